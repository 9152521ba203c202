//! `penstock nvme export`: a database of a volume into files of its own. It decides under which
//! names its bytes lie meanwhile.

use super::copying::Copying;
use super::{Target, beside, endings, local};
use crate::args::NvmeCopy;
use penstock_base::Result;
use penstock_device::address::ENDINGS;
use penstock_device::volume::{Lock, OpenFileOptions, Volume};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const OPERATION: &str = "nvme export";

/// What a file is called until all of its bytes are there.
const PARTIAL_ENDING: &str = ".export";

/// Files that an export has made; they are removed unless it comes to its end.
#[derive(Default)]
struct Made(Vec<PathBuf>);

impl Drop for Made {
    fn drop(&mut self) {
        for path in &self.0 {
            // It may have its final name already, or the disk is gone.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Copies out of the volume under other names and gives them theirs at the end, the log before its
/// database: one that was killed leaves nothing that DuckDB would open, an empty file least of all,
/// which it takes for a new database.
pub(super) fn export(target: &Target, copy: &NvmeCopy) -> Result<()> {
    let volume = target.volume(false)?;
    let mut endings = endings(|ending| volume.exists(&format!("{}{ending}", copy.db)));
    endings.reverse();
    let targets: Vec<PathBuf> = endings.iter().map(|it| beside(&copy.file, it)).collect();
    // Before anything is copied; who takes a name later finds that out at the end. Names that are
    // not written to count too: DuckDB would replay the log of another database.
    let mut names = std::iter::once("").chain(ENDINGS).map(|it| beside(&copy.file, it));
    if let Some(taken) = names.find(|path| path.symlink_metadata().is_ok()) {
        return Err(local(Errno::EXIST.into(), OPERATION, &taken));
    }
    let copying = Copying::new(OPERATION)?;
    let mut made = Made::default();
    for (ending, target) in endings.iter().zip(&targets) {
        let partial = beside(target, PARTIAL_ENDING);
        let into = File::create_new(&partial).map_err(|error| local(error, OPERATION, &partial))?;
        made.0.push(partial.clone());
        copy_out(&copying, &volume, &format!("{}{ending}", copy.db), into, &partial)?;
    }
    for target in &targets {
        let fail = |error| local(error, OPERATION, target);
        rename_new(&beside(target, PARTIAL_ENDING), target).map_err(fail)?;
        // A log must not come to lie beside another database, nor a database without its log.
        made.0.push(target.clone());
        sync_name(target).map_err(fail)?;
    }
    made.0.clear();
    Ok(())
}

/// Renames unless there is a file of that name.
fn rename_new(from: &Path, to: &Path) -> std::io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some file systems cannot do both at once.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => link_new(from, to),
        outcome => Ok(outcome?),
    }
}

/// The same in two steps, in each of which the bytes have a name and no name is an empty file's,
/// but where there are no hard links.
fn link_new(from: &Path, to: &Path) -> std::io::Result<()> {
    match std::fs::hard_link(from, to) {
        Ok(()) => std::fs::remove_file(from),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Err(error),
        Err(_) => claim_new(from, to),
    }
}

/// The same where a name can only be had with an empty file.
fn claim_new(from: &Path, to: &Path) -> std::io::Result<()> {
    File::create_new(to)?;
    std::fs::rename(from, to).inspect_err(|_| drop(std::fs::remove_file(to)))
}

/// Makes a new name durable, as its bytes are.
fn sync_name(path: &Path) -> std::io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let opened = File::open(directory.unwrap_or(Path::new(".")));
    match opened.and_then(|directory| directory.sync_all()) {
        // Some file systems cannot, some need not, and who may write need not be let read.
        Err(error)
            if [Errno::INVAL, Errno::ACCESS]
                .iter()
                .any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) =>
        {
            Ok(())
        }
        outcome => outcome,
    }
}

fn copy_out(
    copying: &Copying,
    volume: &Arc<Volume>,
    name: &str,
    mut into: File,
    target: &Path,
) -> Result<()> {
    let fail = |error| local(error, OPERATION, target);
    let from = volume.open_file(name, OpenFileOptions { create: false, lock: Lock::Read })?;
    let write = |bytes: &[u8], _| into.write_all(bytes).map_err(fail);
    copying.copy(|buffer, at| from.read_at(buffer, at), write)?;
    into.sync_all().map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_testkit::scratch::Scratch;

    #[test]
    fn a_name_that_is_taken_is_not_taken_over() {
        let scratch = Scratch::new("export");
        let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
        for rename in [rename_new, link_new, claim_new] {
            std::fs::write(&from, "new").expect("writes");
            std::fs::write(&to, "precious").expect("writes");
            let error = rename(&from, &to).expect_err("it is there");
            assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
            assert_eq!(std::fs::read_to_string(&to).expect("reads"), "precious");
            std::fs::remove_file(&to).expect("removes");
            rename(&from, &to).expect("it is free");
            sync_name(&to).expect("it is there");
            assert_eq!(std::fs::read_to_string(&to).expect("reads"), "new");
            assert!(!from.exists());
        }
    }
}

//! Block devices that are pulled out or read-only, and files whose end moved, which the kernel does
//! not say by itself. It decides when an error means the first, and refuses to open the second for
//! writing.

use crate::errno::{explain, turned_read_only};
use crate::open::OpenFile;
use penstock_base::{Error, Kind, Result};
use rustix::fs::{
    AtFlags, FileType, SeekFrom, Stat, StatxAttributes, StatxFlags, fstat, major, minor, seek,
    statx,
};
use rustix::io::Errno;
use std::fs::File;

/// Refuses a block device that takes no writes: it can be opened for them all the same.
///
/// # Errors
/// `Denied`.
pub(crate) fn refuse_read_only(file: &File, name: &str) -> Result<()> {
    // Without sysfs the first write tells.
    match fstat(file).is_ok_and(|stat| is_read_only(&stat)) {
        true => Err(explain(Errno::ROFS, "device open", name)),
        false => Ok(()),
    }
}

/// Whether the kernel lets nobody write to a block device, as sysfs tells.
fn is_read_only(device: &Stat) -> bool {
    let path = format!("/sys/dev/block/{}:{}/ro", major(device.st_rdev), minor(device.st_rdev));
    std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "1")
}

/// Whether a file must not change, whoever asks.
fn is_immutable(file: &File) -> bool {
    let stat = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
    stat.is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::IMMUTABLE))
}

impl OpenFile {
    /// The error of a command, seen for what it is: a block device that was pulled out has no
    /// blocks any more, so the kernel calls it full, or at its end; of one that was made read-only
    /// it says that the user has no rights.
    pub(crate) fn judge(&self, error: Error, operation: &'static str) -> Error {
        let may_be_gone = matches!(error.kind(), Kind::Exhausted | Kind::Corrupt);
        if may_be_gone && self.is_gone() {
            return explain(Errno::NODEV, operation, &self.name);
        }
        let cure = if error.kind() == Kind::Denied { self.cure_of_read_only() } else { None };
        match cure {
            Some(cure) => turned_read_only(operation, &self.name, cure),
            None => error,
        }
    }

    /// What lets it be written to again, if nobody may write to it now.
    fn cure_of_read_only(&self) -> Option<&'static str> {
        let stat = fstat(&self.file).ok()?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice if is_read_only(&stat) => {
                Some("Let it be written to (blockdev --setrw), or attach it anew with (READ_ONLY)")
            }
            FileType::RegularFile if is_immutable(&self.file) => {
                Some("Let the file be changed (chattr -i), or attach it anew with (READ_ONLY)")
            }
            _ => None,
        }
    }

    /// Where a plain file ends now; none for a device.
    pub(crate) fn end_of_file(&self) -> Option<u64> {
        let stat = fstat(&self.file).ok()?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        is_file.then_some(stat.st_size as u64)
    }

    fn is_gone(&self) -> bool {
        let is_block = fstat(&self.file)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice);
        is_block && seek(&self.file, SeekFrom::End(0)) == Ok(0)
    }
}

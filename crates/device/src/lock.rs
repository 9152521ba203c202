//! Locks on files and block devices. It decides who has to be kept out, by which handle.

use crate::errno::explain;
use crate::loops;
use penstock_base::{Error, Kind, Result};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::File;

/// Locks for writing or for reading, or tells who is in the way.
pub(crate) fn lock(file: &File, write: bool, name: &str) -> Result<()> {
    let operation = match write {
        true => FlockOperation::NonBlockingLockExclusive,
        false => FlockOperation::NonBlockingLockShared,
    };
    match rustix::fs::flock(file, operation) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => {
            Err(Error::new(Kind::Conflict, "another process has the device open")
                .with_operation("device lock")
                .with_object(name)
                .with_hint("Close it there; several processes may only read together"))
        }
        Err(errno) => Err(explain(errno, "device lock", name)),
    }
}

/// A file and a loop device over it are the same bytes, and neither lock keeps the other out. So
/// who opens the device locks the file too, and gets it to hold; who wants to write to the file is
/// refused while there is a device over it, whoever uses that.
pub(crate) fn lock_other_name(
    held: &File,
    is_block: bool,
    write: bool,
    name: &str,
) -> Result<Option<File>> {
    let stat = rustix::fs::fstat(held).map_err(|errno| explain(errno, "device open", name))?;
    if is_block {
        let under = loops::file_under(&stat);
        under.iter().try_for_each(|file| lock(file, write, name))?;
        return Ok(under);
    }
    if write && let Some(device) = loops::device_over(&stat) {
        let device = device.display();
        return Err(Error::new(Kind::Conflict, format!("{device} is a loop device over it"))
            .with_operation("device open")
            .with_object(name)
            .with_hint(format!("Name {device}, or take it away with `losetup -d {device}`")));
    }
    Ok(None)
}

/// The path may have come to mean another file between the two openings.
pub(crate) fn check_same(held: &File, file: &File, name: &str) -> Result<()> {
    let stat = |file| rustix::fs::fstat(file).map_err(|errno| explain(errno, "device open", name));
    let (held, file) = (stat(held)?, stat(file)?);
    if (held.st_dev, held.st_ino) == (file.st_dev, file.st_ino) {
        return Ok(());
    }
    Err(Error::new(Kind::Conflict, "the path was given to another file meanwhile")
        .with_operation("device open")
        .with_object(name)
        .with_hint("Open it again"))
}

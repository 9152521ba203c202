//! Block devices that are pulled out or read-only, and files whose end moved, which the kernel does
//! not say by itself. It decides when an error means the first, and refuses to open the second for
//! writing.

use crate::errno::explain;
use crate::open::OpenFile;
use penstock_base::{Error, Kind, Result};
use rustix::fs::{FileType, SeekFrom, fstat, major, minor, seek};
use rustix::io::Errno;
use std::fs::File;

/// Refuses a block device that takes no writes: it can be opened for them all the same.
///
/// # Errors
/// `Denied`.
pub(crate) fn refuse_read_only(file: &File, name: &str) -> Result<()> {
    let Ok(stat) = fstat(file) else { return Ok(()) };
    let path = format!("/sys/dev/block/{}:{}/ro", major(stat.st_rdev), minor(stat.st_rdev));
    // Without sysfs the first write tells.
    match std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "1") {
        true => Err(explain(Errno::ROFS, "device open", name)),
        false => Ok(()),
    }
}

impl OpenFile {
    /// The error of a command, seen for what it is: a block device that was pulled out has no
    /// blocks any more, so the kernel calls it full, or at its end.
    pub(crate) fn judge(&self, error: Error, operation: &'static str) -> Error {
        let may_be_gone = matches!(error.kind(), Kind::Exhausted | Kind::Corrupt);
        if may_be_gone && self.is_gone() {
            return explain(Errno::NODEV, operation, &self.name);
        }
        error
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

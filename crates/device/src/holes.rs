//! Where a file was ever written to. It decides only what the kernel's answers mean; block devices
//! do not tell.

use crate::open::OpenFile;
use rustix::fs::{FileType, SeekFrom, fstat, seek};
use rustix::io::Errno;
use std::ops::Range;

/// What a device knows of where it was written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// Nothing: what it holds must be read.
    Unknown,
    /// These bytes come next; what lies before them are zeros.
    Next(Range<u64>),
    /// No bytes come any more, only zeros.
    Ended,
}

impl OpenFile {
    /// What was written from a byte on. A file system that knows no holes calls all of a file
    /// written.
    pub(crate) fn written_from(&self, offset: u64) -> Written {
        let is_file = fstat(&self.file)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        if !is_file {
            return Written::Unknown;
        }
        // Moves the file's own position, by which nothing here reads or writes.
        match seek(&self.file, SeekFrom::Data(offset)) {
            Ok(start) => match seek(&self.file, SeekFrom::Hole(start)) {
                Ok(end) => Written::Next(start..end),
                Err(_) => Written::Unknown,
            },
            Err(Errno::NXIO) => Written::Ended,
            Err(_) => Written::Unknown,
        }
    }
}

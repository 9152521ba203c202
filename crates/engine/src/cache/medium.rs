//! What the disk cache needs of the place where its blocks lie. A file of blocks is written once,
//! from its begin to its end, and forgotten whole; a directory has them as files, a device as
//! regions of one size.

use crate::cache::outdated::{HASHES_MAX, Noted};
use crate::cache::record::Record;
use penstock_base::{Error, Kind};
use std::fmt;
use std::io;
use std::sync::Arc;

/// Keeps files of blocks, from one process to the next.
pub(super) trait Medium: fmt::Debug + Send + Sync {
    /// How much it takes where the settings allow `asked_bytes`.
    fn sizes(&self, asked_bytes: u64) -> Sizes;

    /// Bytes that a file takes which has so many.
    fn taken_bytes(&self, file_bytes: u64) -> u64;

    /// Greater than the number of any file that is there, also of those that are not ours.
    fn next_number(&self) -> u64;

    /// Whether it is still this process's: what nobody can take away always is.
    fn is_held(&self) -> bool {
        true
    }

    /// The files from before, oldest first; those of other versions are gone afterwards.
    fn recover(&self) -> Vec<Recovered>;

    /// A new file.
    ///
    /// # Errors
    /// The system's; `StorageFull` where others must be removed first.
    fn create(&self, number: u64) -> io::Result<Arc<dyn BlockFile>>;

    /// Removes a file. Who has it open can read on. One that stays is found at the next start, and
    /// forgotten again when it is the oldest.
    ///
    /// # Errors
    /// The system's, where it stays.
    fn remove(&self, number: u64) -> io::Result<()>;

    /// Sees to it that what was removed stays so, through a power cut too.
    ///
    /// # Errors
    /// The system's, where it may come back.
    fn settle(&self) -> io::Result<()>;

    /// How many versions are noted one by one.
    fn hashes_max(&self) -> usize {
        HASHES_MAX
    }

    /// What was noted last; nothing where nothing ever was, everything where it cannot be read.
    fn noted(&self) -> Noted;

    /// Notes this in place of what was, durably, as is what was removed before.
    ///
    /// # Errors
    /// The system's; what was noted before may be lost then.
    fn note(&self, noted: &Noted) -> io::Result<()>;
}

/// How much a medium takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Most bytes of all files.
    pub capacity_bytes: u64,
    /// Most bytes of one.
    pub file_bytes: u64,
}

/// Where a record lies in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    /// Where its block begins.
    pub block: u64,
    /// Where the next record goes.
    pub end: u64,
}

/// A file of blocks.
pub(super) trait BlockFile: fmt::Debug + Send + Sync {
    /// Where its first record goes.
    fn start(&self) -> u64;

    /// Where a record goes whose header begins at `at`.
    fn spot(&self, at: u64, header_bytes: u64, block_bytes: u64) -> Spot;

    /// Bytes of a file whose last record ends at `end`, once it has a directory of this length.
    fn closed_bytes(&self, end: u64, directory_bytes: u64) -> u64;

    /// Writes a record at `at`.
    ///
    /// # Errors
    /// The system's.
    fn append(&self, at: u64, header: &[u8], block: &[u8]) -> io::Result<Spot>;

    /// Ends the file behind its last record, which ends at `end`, with its directory; its length.
    ///
    /// # Errors
    /// The system's.
    fn close(&self, end: u64, directory: &[u8]) -> io::Result<u64>;

    /// Reads from `position` on.
    ///
    /// # Errors
    /// The system's.
    fn read(&self, position: u64, into: &mut [u8]) -> io::Result<()>;
}

/// Reads a whole block; whether its bytes are those that were written.
pub(super) fn read_checked(
    file: &dyn BlockFile,
    position: u64,
    crc: u32,
    block: &mut [u8],
) -> bool {
    file.read(position, block).is_ok() && crc32fast::hash(block) == crc
}

/// A file from before, and what it holds.
#[derive(Debug)]
pub(super) struct Recovered {
    pub number: u64,
    pub file: Arc<dyn BlockFile>,
    pub bytes: u64,
    /// With where their blocks begin.
    pub records: Vec<(Record, u64)>,
}

/// The error of a device in the words of files.
pub(super) fn io_error(error: Error) -> io::Error {
    let kind = match error.kind() {
        Kind::Exhausted => io::ErrorKind::StorageFull,
        Kind::Denied => io::ErrorKind::PermissionDenied,
        Kind::NotFound => io::ErrorKind::NotFound,
        Kind::Corrupt => io::ErrorKind::InvalidData,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

//! What caches are given, with or without a copy.

use bytes::Bytes;
use penstock_base::ByteRange;

/// Bytes of an object that caches are given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    start: u64,
    bytes: &'a [u8],
    /// The same, where they need not be copied to be kept.
    shared: Option<&'a Bytes>,
}

impl<'a> Piece<'a> {
    /// Bytes that begin at `start`, to be copied.
    pub fn lent(start: u64, bytes: &'a [u8]) -> Self {
        Piece { start, bytes, shared: None }
    }

    /// Bytes that begin at `start` and take no memory beside their own.
    pub fn shared(start: u64, bytes: &'a Bytes) -> Self {
        Piece { start, bytes, shared: Some(bytes) }
    }

    /// Its bytes in the object.
    pub fn range(&self) -> ByteRange {
        ByteRange { start: self.start, end: self.start + self.bytes.len() as u64 }
    }

    /// Bytes of it that may be kept for long: a copy, unless all are wanted. A part that is shared
    /// would hold the memory of all.
    pub fn part(&self, range: ByteRange) -> Bytes {
        match self.shared {
            Some(shared) if range == self.range() => shared.clone(),
            _ => {
                let at = |at: u64| usize::try_from(at - self.start).unwrap_or(usize::MAX);
                Bytes::copy_from_slice(&self.bytes[at(range.start)..at(range.end)])
            }
        }
    }
}

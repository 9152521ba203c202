//! A half-open range of bytes inside an object.

/// Bytes `start..end` of an object, `end` exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl ByteRange {
    /// The range of `len` bytes from `start`; `None` when the end would overflow.
    pub fn of_len(start: u64, len: u64) -> Option<Self> {
        Some(ByteRange { start, end: start.checked_add(len)? })
    }

    /// Number of bytes.
    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Whether no byte is in it.
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    /// Whether `other` lies wholly inside.
    pub fn contains(&self, other: &ByteRange) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// Whether a byte is in both.
    pub fn overlaps(&self, other: &ByteRange) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Number of bytes that are in both.
    pub fn shared_bytes(&self, other: &ByteRange) -> u64 {
        self.end.min(other.end).saturating_sub(self.start.max(other.start))
    }
}

//! Memory at an aligned address. It decides nothing about who needs it.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// Bytes that begin at a multiple of an alignment; they never move.
pub struct AlignedBuffer {
    // Longer by up to one alignment; never grown, so that the address stays.
    bytes: Box<[u8]>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    /// Makes `length` zero bytes at a multiple of `alignment` (at least 1).
    pub fn new(length: usize, alignment: usize) -> Self {
        let alignment = alignment.max(1);
        let bytes = vec![0; length + alignment - 1].into_boxed_slice();
        let start = bytes.as_ptr().addr().next_multiple_of(alignment) - bytes.as_ptr().addr();
        AlignedBuffer { bytes, start, length }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.length)
    }
}

/// Whether `bytes` begin at a multiple of `alignment`.
pub(crate) fn is_aligned(bytes: &[u8], alignment: u32) -> bool {
    bytes.as_ptr().addr().is_multiple_of(alignment.max(1) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_begins_where_it_should() {
        for alignment in [1usize, 4, 512, 4096] {
            for length in [0usize, 1, 511, 4096, 70_000] {
                let mut buffer = AlignedBuffer::new(length, alignment);
                assert_eq!(buffer.len(), length);
                assert!(is_aligned(&buffer, alignment as u32));
                buffer.fill(7);
                assert!(buffer.iter().all(|byte| *byte == 7));
            }
        }
    }
}

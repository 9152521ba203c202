//! Equal parts of one large buffer, each with an owner of its own. It decides nothing about who
//! gets them; the buffer goes back to the kernel with the last of them.

use crate::kernel::large::LargeBuffer;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice::{from_raw_parts, from_raw_parts_mut};
use std::sync::Arc;

/// One part of a buffer; nobody else has it.
pub(crate) struct BufferPart {
    /// Never looked into: only the parts are.
    whole: Arc<LargeBuffer>,
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: its bytes are its own, and the buffer they lie in may be held by any thread.
unsafe impl Send for BufferPart {}
// SAFETY: as above; a shared one is only read.
unsafe impl Sync for BufferPart {}

impl BufferPart {
    /// Divides a buffer into parts of `length` bytes; what is left at its end is nobody's.
    pub(crate) fn divide(mut whole: LargeBuffer, length: usize) -> Vec<BufferPart> {
        let starts: Vec<NonNull<u8>> =
            whole.chunks_exact_mut(length.max(1)).map(|part| NonNull::from(part).cast()).collect();
        let whole = Arc::new(whole);
        let part = |start| BufferPart { whole: whole.clone(), start, length };
        starts.into_iter().map(part).collect()
    }

    /// Tells the buffers of parts from each other.
    pub(crate) fn buffer(&self) -> usize {
        Arc::as_ptr(&self.whole).addr()
    }

    /// How many parts of its buffer somebody has, this one included.
    pub(crate) fn siblings(&self) -> usize {
        Arc::strong_count(&self.whole)
    }
}

impl Deref for BufferPart {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the parts of a buffer do not overlap, nobody looks at the buffer itself, and it
        // lives as long as this.
        unsafe { from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for BufferPart {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed by nobody else.
        unsafe { from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_apart_and_know_how_many_there_are() {
        const PART: usize = 3 * 4096;
        let mut parts = BufferPart::divide(LargeBuffer::new(7 * PART + 5), PART);
        assert_eq!(parts.len(), 7);
        for (number, part) in parts.iter_mut().enumerate() {
            part.fill(number as u8 + 1);
        }
        for (number, part) in parts.iter().enumerate() {
            assert!(part.len() == PART && part.iter().all(|byte| *byte == number as u8 + 1));
        }
        let other = BufferPart::divide(LargeBuffer::new(PART), PART);
        assert_eq!((parts[0].buffer(), parts[0].siblings()), (parts[6].buffer(), 7));
        assert_ne!(parts[0].buffer(), other[0].buffer());
        let last = parts.pop().expect("there are seven");
        drop(parts);
        assert_eq!(last.siblings(), 1);
        let last = std::thread::spawn(move || last[0]).join().expect("no panic");
        assert_eq!(last, 7, "it outlives the others, on any thread");
    }
}

//! Aligned memory of a queue, for callers whose own is not. It decides how much of it there is.

use crate::buffer::AlignedBuffer;
use crate::device::Geometry;
use crate::kernel::dialect::{Dialect, Ring};

/// Memory of a queue for callers whose own is not aligned.
const SLOTS_BYTES: usize = 2 << 20;

/// Aligned memory for callers whose own is not, registered with the ring where the kernel takes it.
///
/// A new queue has none. A call takes one buffer, which is all that a thread needs that reads block
/// by block; all of them come with the first batch in a ring. Made at once they cost a thread that
/// scans its first table a millisecond: 512 pages, each zeroed and pinned.
#[derive(Default)]
pub(super) struct Slots {
    pub buffers: Vec<AlignedBuffer>,
    pub free: Vec<usize>,
    pub is_registered: bool,
    is_full: bool,
}

impl Slots {
    /// Sees to it that there is one, for a call; nothing is registered for it.
    pub(super) fn one(&mut self, geometry: &Geometry) {
        if self.buffers.is_empty() {
            self.grow(1, geometry);
        }
    }

    /// Makes and registers the slots unless they are there, each of its own: before Linux 6.12 NVMe
    /// counts the segments of a whole registered region against the limit of one command.
    pub(super) fn fill<D: Dialect>(&mut self, ring: &Ring<D>, geometry: &Geometry, most: usize) {
        if std::mem::replace(&mut self.is_full, true) {
            return;
        }
        let count = SLOTS_BYTES / geometry.transfer_max_bytes as usize;
        self.grow(count.clamp(most.min(2), most), geometry);
        let regions: Vec<libc::iovec> = self
            .buffers
            .iter_mut()
            .map(|it| libc::iovec { iov_base: it.as_mut_ptr().cast(), iov_len: it.len() })
            .collect();
        // SAFETY: the regions are memory of `self.buffers`, which never moves, is never shrunk
        // and is dropped after the ring (order of the fields of `RingQueue`).
        self.is_registered = unsafe { ring.submitter().register_buffers(&regions) }.is_ok();
    }

    /// Makes slots until there are so many.
    fn grow(&mut self, count: usize, geometry: &Geometry) {
        let length = geometry.transfer_max_bytes as usize;
        let alignment = geometry.buffer_alignment_bytes.max(4096) as usize;
        let new = self.buffers.len()..count.max(self.buffers.len());
        self.buffers.extend(new.clone().map(|_| AlignedBuffer::new(length, alignment)));
        self.free.extend(new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, MemoryDevice};

    #[test]
    fn a_call_has_one_slot_and_no_more_are_made_for_it() {
        let device = MemoryDevice::new(512, 8, 512).expect("the sizes are right");
        let geometry = device.geometry().clone();
        let mut slots = Slots::default();
        slots.one(&geometry);
        slots.one(&geometry);
        assert_eq!((slots.buffers.len(), &slots.free[..]), (1, &[0][..]));
        slots.free.clear();
        slots.one(&geometry);
        assert_eq!(slots.buffers.len(), 1, "it is in use, not missing");
        slots.grow(4, &geometry);
        assert_eq!(slots.free, [1, 2, 3], "the first is still in use");
        slots.grow(2, &geometry);
        assert_eq!(slots.buffers.len(), 4);
    }
}

//! Aligned memory of a queue, for callers whose own is not. It decides how much of it there is.

use crate::buffer::AlignedBuffer;
use crate::device::Geometry;
use crate::kernel::dialect::{Dialect, Ring};

/// Memory of a queue for callers whose own is not aligned.
const SLOTS_BYTES: usize = 2 << 20;

/// Aligned memory for callers whose own is not, registered with the ring where the kernel takes it.
#[derive(Default)]
pub(super) struct Slots {
    pub buffers: Vec<AlignedBuffer>,
    pub free: Vec<usize>,
    pub is_registered: bool,
}

impl Slots {
    /// Makes and registers the slots, each of its own: before Linux 6.12 NVMe counts the segments
    /// of a whole registered region against the limit of one command.
    pub(super) fn fill<D: Dialect>(&mut self, ring: &Ring<D>, geometry: &Geometry, most: usize) {
        let length = geometry.transfer_max_bytes as usize;
        let count = (SLOTS_BYTES / length).clamp(most.min(2), most);
        let alignment = geometry.buffer_alignment_bytes.max(4096) as usize;
        self.buffers = (0..count).map(|_| AlignedBuffer::new(length, alignment)).collect();
        self.free = (0..count).collect();
        let regions: Vec<libc::iovec> = self
            .buffers
            .iter_mut()
            .map(|it| libc::iovec { iov_base: it.as_mut_ptr().cast(), iov_len: it.len() })
            .collect();
        // SAFETY: the regions are memory of `self.buffers`, which never moves, is never shrunk
        // and is dropped after the ring (order of the fields of `RingQueue`).
        self.is_registered = unsafe { ring.submitter().register_buffers(&regions) }.is_ok();
    }
}

//! Large buffers that are filled once and read soon: memory of their own, of huge pages where the
//! kernel has some. Zero pages of 4 KiB, taken one by one, cost four times what copying into them
//! does.

use std::alloc::{Layout, handle_alloc_error};
use std::ffi::c_void;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// From this size on a buffer may lie in huge pages: theirs on x86-64, and on ARM with pages of
/// 4 KiB.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Zero bytes that begin with a huge page. They go back to the kernel when it is dropped.
pub struct LargeBuffer {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: it owns its memory, as a boxed slice does.
unsafe impl Send for LargeBuffer {}
// SAFETY: as above; a shared one is only read.
unsafe impl Sync for LargeBuffer {}

impl LargeBuffer {
    /// Takes `length` zero bytes. Where there is no memory the process ends, as with every
    /// allocation.
    pub fn new(length: usize) -> Self {
        let mapped = mapped_bytes(length);
        // The kernel places mappings by small pages, so one huge page more, and what is too much of
        // it goes back at once.
        let reserved = mapped.saturating_add(HUGE_PAGE_BYTES);
        let whole = map(reserved);
        let before = whole.addr().get().next_multiple_of(HUGE_PAGE_BYTES) - whole.addr().get();
        let behind = reserved - before - mapped;
        // SAFETY: all three stretches lie in the mapping; the outer two are used by nobody, and the
        // advice changes no byte.
        unsafe {
            let start = whole.add(before);
            unmap(whole, before);
            unmap(start.add(mapped), behind);
            // Where there are no huge pages, small ones do.
            let _ = libc::madvise(start.as_ptr().cast::<c_void>(), mapped, libc::MADV_HUGEPAGE);
            LargeBuffer { start, length }
        }
    }

    /// As [`LargeBuffer::new`], of pages that the kernel has at hand, from anywhere. Neighbours are
    /// one mapping to it: a process may have some 65,000 of them.
    pub fn of_any_pages(length: usize) -> Self {
        LargeBuffer { start: map(mapped_bytes(length)), length }
    }
}

/// New zero bytes of the kernel's. Where it has none, the process ends.
fn map(bytes: usize) -> NonNull<u8> {
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping that overlaps nothing.
    let found = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
    match NonNull::new(found.cast::<u8>()) {
        Some(start) if found != libc::MAP_FAILED => start,
        _ => handle_alloc_error(Layout::array::<u8>(bytes).unwrap_or(Layout::new::<u8>())),
    }
}

/// What the kernel maps for a buffer: whole pages.
fn mapped_bytes(length: usize) -> usize {
    length.max(1).next_multiple_of(rustix::param::page_size())
}

/// # Safety
/// The stretch is of whole pages of a mapping of ours, and nobody uses it from now on.
unsafe fn unmap(start: NonNull<u8>, length: usize) {
    if length > 0 {
        // SAFETY: as the caller promises. It fails only where the kernel has no memory to cut a
        // mapping in two; then the stretch stays.
        let _ = unsafe { libc::munmap(start.as_ptr().cast::<c_void>(), length) };
    }
}

impl Drop for LargeBuffer {
    fn drop(&mut self) {
        // SAFETY: it is ours and borrowed by nobody.
        unsafe { unmap(self.start, mapped_bytes(self.length)) }
    }
}

impl Deref for LargeBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: mapped and zeroed by the kernel, for as long as it lives.
        unsafe { from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for LargeBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed by nobody else.
        unsafe { from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl AsRef<[u8]> for LargeBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for LargeBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LargeBuffer({} bytes)", self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_zero_aligned_and_as_long_as_asked_for() {
        for length in [1, 4095, 4096, HUGE_PAGE_BYTES - 1, HUGE_PAGE_BYTES, 5_000_001] {
            let page = rustix::param::page_size();
            for (mut buffer, alignment) in [
                (LargeBuffer::new(length), HUGE_PAGE_BYTES),
                (LargeBuffer::of_any_pages(length), page),
            ] {
                assert_eq!(buffer.len(), length);
                assert!(buffer.as_ptr().addr().is_multiple_of(alignment));
                assert!(buffer.iter().all(|byte| *byte == 0));
                buffer.fill(7);
                assert!(buffer.iter().all(|byte| *byte == 7));
            }
        }
    }

    /// Of the process: (bytes mapped, its mappings).
    fn mapped() -> (usize, usize) {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let bytes = maps.lines().map(|line| {
            let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
            usize::from_str_radix(to, 16).unwrap() - usize::from_str_radix(from, 16).unwrap()
        });
        (bytes.sum(), maps.lines().count())
    }

    #[test]
    fn all_of_it_goes_back() {
        const EACH: usize = 5 << 20;
        const COUNT: usize = 400;
        let before = mapped();
        for _ in 0..COUNT {
            let mut buffer = LargeBuffer::new(EACH);
            buffer[EACH - 1] = 1;
        }
        let after = mapped();
        // Other tests map memory meanwhile, but not so much of it.
        assert!(after.0 < before.0 + COUNT / 4 * HUGE_PAGE_BYTES, "{before:?} {after:?}");
        assert!(after.1 < before.1 + COUNT / 2, "{before:?} {after:?}");
    }

    #[test]
    fn several_threads_may_hold_it() {
        let mut buffer = LargeBuffer::new(HUGE_PAGE_BYTES);
        buffer[0] = 9;
        let shared = std::sync::Arc::new(buffer);
        let other = std::sync::Arc::clone(&shared);
        assert_eq!(std::thread::spawn(move || other[0]).join().unwrap(), 9);
        assert_eq!(shared[0], 9);
    }
}

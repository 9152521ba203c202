//! Pages of memory that is about to be filled, and of the page cache. It decides when the kernel is
//! asked to give the former at once.

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::AsRawFd;

/// Shortest range that is worth a call: a page that is touched first costs a trap of its own, about
/// twice what it costs as one of many.
const POPULATED_LEAST_BYTES: usize = 64 << 10;

/// Has the kernel give all pages of memory that is about to be written by copying, as by
/// `MADV_POPULATE_WRITE` of madvise(2). What it holds stays; before Linux 5.14 nothing happens.
pub(crate) fn populate(into: &mut [u8]) {
    if into.len() < POPULATED_LEAST_BYTES {
        return;
    }
    let page = rustix::param::page_size();
    let start = into.as_ptr().addr().next_multiple_of(page) - into.as_ptr().addr();
    let length = (into.len() - start) / page * page;
    let address = into[start..].as_mut_ptr().cast::<c_void>();
    // SAFETY: the pages lie inside memory that is borrowed to be written, and the advice changes no
    // byte of them. Where it fails, the copy faults them in one by one.
    let _ = unsafe { libc::madvise(address, length, libc::MADV_POPULATE_WRITE) };
}

/// Has the kernel begin to write what the page cache holds of a file, as by sync_file_range(2).
/// Nothing is durable by it, and a failure is told by the next sync.
pub(crate) fn begin_writing(file: &File) {
    // SAFETY: no memory is involved; the descriptor is open while `file` is borrowed.
    let _ = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
}

/// How many pages of a file the page cache holds, by mincore(2).
#[cfg(test)]
pub(crate) fn cached_pages(file: &File) -> usize {
    let length = file.metadata().expect("it is open").len() as usize;
    let (how, kind) = (libc::PROT_READ, libc::MAP_SHARED);
    // SAFETY: a new mapping at a place that the kernel chooses; nobody reads it.
    let map = unsafe { libc::mmap(std::ptr::null_mut(), length, how, kind, file.as_raw_fd(), 0) };
    assert_ne!(map, libc::MAP_FAILED);
    let mut found = vec![0u8; length.div_ceil(rustix::param::page_size())];
    // SAFETY: it writes a byte for each page of the mapping, which is there until the next line.
    assert_eq!(unsafe { libc::mincore(map, length, found.as_mut_ptr()) }, 0);
    // SAFETY: the mapping that was made above.
    assert_eq!(unsafe { libc::munmap(map, length) }, 0);
    found.iter().filter(|state| **state & 1 == 1).count()
}

/// Whether everything that the kernel wrote of a file's page cache since this handle was asked last
/// has reached the device, as sync_file_range(2) tells; it waits for nothing.
///
/// # Errors
/// Why something did not: it is lost as soon as the page cache drops it, and no read tells.
pub(crate) fn check_written(file: &File, end: u64) -> std::io::Result<()> {
    // Behind the end there is nothing to wait for, and the errors are those of the whole file.
    let end = libc::off64_t::try_from(end).unwrap_or(libc::off64_t::MAX - 1);
    let how = libc::SYNC_FILE_RANGE_WAIT_BEFORE;
    // SAFETY: no memory is involved; the descriptor is open while `file` is borrowed.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), end, 1, how) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::AlignedBuffer;

    /// How many pages of a range are there.
    fn present(bytes: &[u8]) -> usize {
        let page = rustix::param::page_size();
        assert!(bytes.as_ptr().addr().is_multiple_of(page));
        let mut found = vec![0u8; bytes.len().div_ceil(page)];
        let address = bytes.as_ptr().cast_mut().cast::<c_void>();
        // SAFETY: it looks at memory that is borrowed, and writes a byte for each page of it.
        let outcome = unsafe { libc::mincore(address, bytes.len(), found.as_mut_ptr()) };
        assert_eq!(outcome, 0);
        found.iter().filter(|state| **state & 1 == 1).count()
    }

    /// So long that the allocator always takes it from the kernel anew.
    const FRESH_BYTES: usize = 48 << 20;

    #[test]
    fn whole_pages_are_there_at_once() {
        let page = rustix::param::page_size();
        for (from, length) in [(0, 64 * page), (1, 62 * page), (page - 1, 60 * page)] {
            let mut buffer = AlignedBuffer::new(FRESH_BYTES, page);
            assert_eq!(present(&buffer), 0, "nobody touched it");
            populate(&mut buffer[from..from + length]);
            assert!(present(&buffer) >= length / page - 1);
            assert!(buffer.iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn bytes_stay_and_short_ranges_are_left_alone() {
        let page = rustix::param::page_size();
        let mut buffer = AlignedBuffer::new(FRESH_BYTES, page);
        populate(&mut buffer[..POPULATED_LEAST_BYTES - 1]);
        populate(&mut []);
        assert_eq!(present(&buffer), 0, "not worth a call");
        buffer[..FRESH_BYTES / 2].fill(7);
        populate(&mut buffer);
        assert!(buffer[..FRESH_BYTES / 2].iter().all(|byte| *byte == 7));
        assert!(buffer[FRESH_BYTES / 2..].iter().all(|byte| *byte == 0));
    }
}

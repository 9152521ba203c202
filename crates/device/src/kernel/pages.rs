//! Pages that the kernel gives and keeps: memory that is about to be filled gets all of its own at
//! once, what is cached of a block device is dropped, and room that is not needed is given back.

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::AsRawFd;

/// Shortest range that is worth a call: a page that is touched first costs a trap of its own, half
/// as much again as what it costs as one of many.
const POPULATED_LEAST_BYTES: usize = 64 << 10;
/// Of so many pages at a time is asked first whether they are there.
const LOOKED_AT_PAGES: usize = 64;

/// Has the kernel give all pages of memory that is about to be written by copying, as by
/// `MADV_POPULATE_WRITE` of madvise(2). What it holds stays; before Linux 5.14 nothing happens.
///
/// Memory that was in use before has its pages, and to take them again costs twice as much as to
/// copy into them: 20 µs for 256 KiB, where mincore(2) tells in 0.7 that they are there.
pub fn populate(into: &mut [u8]) {
    if into.len() < POPULATED_LEAST_BYTES {
        return;
    }
    let page = rustix::param::page_size();
    let start = into.as_ptr().addr().next_multiple_of(page) - into.as_ptr().addr();
    let length = (into.len() - start) / page * page;
    for pages in into[start..][..length].chunks_mut(LOOKED_AT_PAGES * page) {
        let (address, length) = (pages.as_mut_ptr().cast::<c_void>(), pages.len());
        if !are_there(address, length, length / page) {
            // SAFETY: the pages lie inside memory that is borrowed to be written, and the advice
            // changes no byte of them. Where it fails, the copy faults them in one by one.
            let _ = unsafe { libc::madvise(address, length, libc::MADV_POPULATE_WRITE) };
        }
    }
}

/// Whether so many pages, of this length together, are in memory, each of them.
fn are_there(address: *mut c_void, length: usize, pages: usize) -> bool {
    let mut told = [0u8; LOOKED_AT_PAGES];
    let Some(told) = told.get_mut(..pages) else { return false };
    // SAFETY: it writes one byte for each page of the length, and looks at memory of ours only.
    let outcome = unsafe { libc::mincore(address, length, told.as_mut_ptr()) };
    outcome == 0 && told.iter().all(|page| page & 1 == 1)
}

/// `_IO(0x12, 97)` of `linux/fs.h`.
const BLKFLSBUF: u32 = 0x1261;

/// Has the kernel write and drop all that it caches of a block device; it takes root. Nothing of a
/// file.
pub(crate) fn flush_block_buffers(file: &File) {
    // SAFETY: the request takes no memory.
    let _ = unsafe { libc::ioctl(file.as_raw_fd(), BLKFLSBUF as _, 0) };
}

/// Gives room of a file or block device back: a hole, or a discard. By the C library, as pread and
/// pwrite are called, so that a disk of the tests sees it, too.
///
/// # Errors
/// The kernel's.
pub(crate) fn punch_hole(file: &File, offset: u64, length: u64) -> std::io::Result<()> {
    let wrong = |_| std::io::Error::from_raw_os_error(libc::EINVAL);
    let offset = libc::off_t::try_from(offset).map_err(wrong)?;
    let length = libc::off_t::try_from(length).map_err(wrong)?;
    let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: the call takes no memory, and the file is open while it is borrowed.
    match unsafe { libc::fallocate(file.as_raw_fd(), how, offset, length) } {
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
    fn one_page_that_is_missing_is_not_overlooked() {
        let page = rustix::param::page_size();
        for missing in [0, 1, LOOKED_AT_PAGES - 1, LOOKED_AT_PAGES, 3 * LOOKED_AT_PAGES - 1] {
            let mut buffer = AlignedBuffer::new(FRESH_BYTES, page);
            let range = &mut buffer[..3 * LOOKED_AT_PAGES * page];
            for (at, page) in range.chunks_mut(page).enumerate().filter(|(at, _)| *at != missing) {
                page[0] = at as u8 | 1;
            }
            assert_eq!(present(range), 3 * LOOKED_AT_PAGES - 1);
            populate(range);
            assert_eq!(present(range), 3 * LOOKED_AT_PAGES);
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

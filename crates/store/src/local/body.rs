//! The bytes of an open file, read at their offset straight into the caller's buffer.
//!
//! What is in the page cache is copied on the calling thread, which costs less than handing the
//! work over, or is told as a piece of the file for a server that lets the kernel send it; what is
//! not is read on a blocking thread, so that a slow disk never holds up the async threads.

use super::errno::explain;
use penstock_base::{Error, Kind, Result};
use rustix::buffer::spare_capacity;
use rustix::fd::OwnedFd;
use rustix::io::{Errno, ReadWriteFlags};
use std::future::Future;
use std::io::IoSliceMut;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::task::JoinHandle;

/// Most bytes that one call copies while others wait for the thread.
const CACHED_READ_MAX_BYTES: usize = 4 << 20;
/// Bytes per read on a blocking thread.
const DISK_READ_BYTES: usize = 4 << 20;
/// Distance of the bytes that tell whether a stretch is in the page cache: each costs a call, and
/// the kernel takes in and lets go of files in long stretches.
const PROBE_STRIDE_BYTES: u64 = 256 << 10;

/// A stretch of an open file.
#[derive(Clone, Debug)]
pub struct FilePiece {
    /// The file.
    pub file: Arc<OwnedFd>,
    /// The bytes.
    pub range: Range<u64>,
}

/// A stretch of an open file. It stays the version that was opened, whatever is renamed over it.
#[derive(Debug)]
pub struct FileBody {
    file: Arc<OwnedFd>,
    path: String,
    offset: u64,
    end: u64,
    /// Cleared where the file system cannot say what is in the page cache.
    pub(super) nowait: bool,
    /// Set where the file system has no disk that could be waited for.
    in_memory: bool,
    /// What a blocking thread read; the part before `scratch_used` is the caller's already.
    scratch: Vec<u8>,
    scratch_used: usize,
    pending: Option<JoinHandle<Result<Vec<u8>, Errno>>>,
}

impl FileBody {
    pub(super) fn new(file: OwnedFd, path: String, offset: u64, end: u64) -> Self {
        FileBody {
            file: Arc::new(file),
            path,
            offset,
            end,
            nowait: true,
            in_memory: false,
            scratch: Vec::new(),
            scratch_used: 0,
            pending: None,
        }
    }

    /// The next bytes as a piece of the file, at most `most`, for a server that lets the kernel
    /// send them (`sendfile`); they count as read. `None` at the end, and where the bytes are not
    /// in the page cache: then they are to be read.
    pub fn take_cached(&mut self, most: u64) -> Option<FilePiece> {
        if self.pending.is_some() || self.scratch_used < self.scratch.len() {
            return None;
        }
        let len = self.cached_prefix(most.min(self.remaining()));
        let range = self.offset..self.offset + len;
        self.offset = range.end;
        (len > 0).then(|| FilePiece { file: self.file.clone(), range })
    }

    /// How many of the next `len` bytes are in the page cache, by samples: the first byte of every
    /// stride, and the last of all.
    fn cached_prefix(&mut self, len: u64) -> u64 {
        let start = self.offset;
        let mut is_cached = |at: u64| matches!(self.read_cached(&mut [0], start + at), Some(Ok(1)));
        let mut known = 0;
        while known < len && is_cached(known) {
            known = (known + PROBE_STRIDE_BYTES).min(len);
        }
        if known == len && (len == 0 || is_cached(len - 1)) {
            return len;
        }
        // Where the last stride ends is not known.
        known.saturating_sub(PROBE_STRIDE_BYTES)
    }

    /// Bytes still to be read.
    pub fn remaining(&self) -> u64 {
        self.end - self.offset
    }

    /// Reads up to `buf.len()` bytes; 0 at the end.
    ///
    /// # Errors
    /// `Corrupt` when the file was cut while it was read; `Unavailable` on a device error.
    pub fn poll_read(&mut self, context: &mut Context<'_>, buf: &mut [u8]) -> Poll<Result<usize>> {
        let wanted = buf.len().min(usize::try_from(self.remaining()).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Poll::Ready(Ok(0));
        }
        let buf = &mut buf[..wanted];
        let answer = match self.read_ahead_or_cached(buf) {
            Some(answer) => answer,
            None => match self.poll_disk(context, buf) {
                Poll::Ready(answer) => answer,
                Poll::Pending => return Poll::Pending,
            },
        };
        Poll::Ready(match answer {
            Ok(0) => Err(self.cut_short()),
            Ok(count) => {
                self.offset += count as u64;
                Ok(count)
            }
            Err(error) => Err(error),
        })
    }

    /// `None` when the bytes are neither here nor in the page cache.
    fn read_ahead_or_cached(&mut self, buf: &mut [u8]) -> Option<Result<usize>> {
        if self.pending.is_some() {
            return None;
        }
        let left = &self.scratch[self.scratch_used..];
        if left.is_empty() {
            let limit = buf.len().min(CACHED_READ_MAX_BYTES);
            let answer = self.read_cached(&mut buf[..limit], self.offset)?;
            return Some(answer.map_err(|errno| explain(errno, "read", &self.path)));
        }
        let count = left.len().min(buf.len());
        buf[..count].copy_from_slice(&left[..count]);
        self.scratch_used += count;
        Some(Ok(count))
    }

    fn cut_short(&self) -> Error {
        let why = format!("the file ended at byte {}, before {}", self.offset, self.end);
        Error::new(Kind::Corrupt, why)
            .with_object(self.path.clone())
            .with_hint("Another program changed it while it was read; run again")
    }

    /// `None` when the bytes at `offset` are not in the page cache.
    fn read_cached(&mut self, buf: &mut [u8], offset: u64) -> Option<Result<usize, Errno>> {
        if !self.nowait {
            return None;
        }
        self.scratch.clear();
        self.scratch_used = 0;
        let mut slices = [IoSliceMut::new(buf)];
        let flags = if self.in_memory { ReadWriteFlags::empty() } else { ReadWriteFlags::NOWAIT };
        match rustix::io::preadv2(&self.file, &mut slices, offset, flags) {
            Err(Errno::AGAIN) => None,
            Err(Errno::OPNOTSUPP) if !self.in_memory && is_in_memory(&self.file) => {
                self.in_memory = true;
                Some(rustix::io::preadv(&self.file, &mut slices, offset))
            }
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                self.nowait = false;
                None
            }
            answer => Some(answer),
        }
    }

    fn poll_disk(&mut self, context: &mut Context<'_>, buf: &mut [u8]) -> Poll<Result<usize>> {
        let (file, offset) = (&self.file, self.offset);
        let wanted = buf.len().min(DISK_READ_BYTES);
        let scratch = &mut self.scratch;
        let task = self.pending.get_or_insert_with(|| {
            let (file, mut scratch) = (file.clone(), std::mem::take(scratch));
            tokio::task::spawn_blocking(move || {
                scratch.clear();
                scratch.reserve_exact(wanted);
                rustix::io::pread(&file, spare_capacity(&mut scratch), offset)?;
                Ok(scratch)
            })
        });
        let answer = match Pin::new(task).poll(context) {
            Poll::Ready(answer) => answer,
            Poll::Pending => return Poll::Pending,
        };
        self.pending = None;
        let read = answer.map_err(|error| {
            Error::new(Kind::Internal, "a read on a blocking thread broke off").with_source(error)
        });
        Poll::Ready(read.and_then(|read| {
            self.scratch = read.map_err(|errno: Errno| explain(errno, "read", &self.path))?;
            let count = self.scratch.len().min(buf.len());
            buf[..count].copy_from_slice(&self.scratch[..count]);
            self.scratch_used = count;
            Ok(count)
        }))
    }
}

/// Whether the file lives in tmpfs, which does not know NOWAIT because it never waits.
fn is_in_memory(file: &OwnedFd) -> bool {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    rustix::fs::fstatfs(file).is_ok_and(|about| about.f_type == TMPFS_MAGIC)
}

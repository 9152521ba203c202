//! Whether a piece of a body may be written by the thread that received it.
//!
//! A write is a copy into the kernel's cache as long as the disk keeps up, and a copy of bytes that
//! this very processor has just received is the cheapest there is: no other thread is woken, and
//! the buffer is free for the next bytes at once. When the disk does not keep up, a write waits; so
//! one thread of the runtime at least never writes, and after a write that waited none does for
//! a while.

use penstock_base::micros;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A write that took longer than this waited for the disk. A copy of 128 KiB takes some 50
/// microseconds; a thread that others push off its processor is back within some milliseconds.
const COPY_TIME_MAX: Duration = Duration::from_millis(20);
/// How long the disk counts as slow after that.
const SLOW_FOR: Duration = Duration::from_secs(1);

/// Threads that write at this moment.
static WRITING: AtomicUsize = AtomicUsize::new(0);
/// Until when the disk counts as slow, in microseconds since [`beginning`].
static SLOW_UNTIL: AtomicU64 = AtomicU64::new(0);

/// One write on the caller's thread, from its beginning to its end.
#[derive(Debug)]
pub(super) struct Here {
    begun: Instant,
}

impl Here {
    /// The right to write now; `None` when it belongs on a blocking thread.
    pub fn begin() -> Option<Self> {
        let threads = tokio::runtime::Handle::try_current().ok()?.metrics().num_workers();
        let begun = Instant::now();
        if micros(begun.duration_since(beginning())) < SLOW_UNTIL.load(Ordering::Relaxed) {
            return None;
        }
        let here = Here { begun };
        let others = WRITING.fetch_add(1, Ordering::Relaxed);
        leaves_a_thread(others, threads).then_some(here)
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        WRITING.fetch_sub(1, Ordering::Relaxed);
        let ended = Instant::now();
        if let Some(until) = slow_until(ended.duration_since(self.begun)) {
            let until = micros(ended.duration_since(beginning()) + until);
            SLOW_UNTIL.fetch_max(until, Ordering::Relaxed);
        }
    }
}

/// When this process first asked.
fn beginning() -> Instant {
    static BEGINNING: OnceLock<Instant> = OnceLock::new();
    *BEGINNING.get_or_init(Instant::now)
}

/// Whether one more writer beside `others` leaves a thread of the runtime's `threads` to all else.
fn leaves_a_thread(others: usize, threads: usize) -> bool {
    others + 1 < threads
}

/// How long to keep from writing after a write that took so long.
fn slow_until(took: Duration) -> Option<Duration> {
    (took > COPY_TIME_MAX).then_some(SLOW_FOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_never_writes() {
        assert!(!leaves_a_thread(0, 1));
        assert!(leaves_a_thread(0, 2) && !leaves_a_thread(1, 2));
        assert!(leaves_a_thread(2, 4) && !leaves_a_thread(3, 4));
    }

    #[test]
    fn a_write_that_waited_is_told_from_a_copy() {
        assert_eq!(slow_until(Duration::from_millis(3)), None);
        assert_eq!(slow_until(Duration::from_millis(30)), Some(SLOW_FOR));
    }
}

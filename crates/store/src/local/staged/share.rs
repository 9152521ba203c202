//! How much each body on its way to a file collects before it is written: much while few come,
//! little while many do, so that memory does not grow with the number of clients.

use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Most bytes that are collected before they are written. As much again may be on its way to the
/// file.
pub(super) const WRITE_BYTES_MAX: usize = 1 << 20;
/// Fewest that are written at once before the last: below this the call costs more than the copy.
/// The least that a gateway reads of a body at once is a byte less than 16 KiB.
pub(super) const WRITE_BYTES_LEAST: usize = (16 << 10) - 1;
/// Fewest that go to a blocking thread: below this the hop costs more than the write. Among many
/// bodies the blocking threads do not sleep, and the hop costs little.
const WRITE_BYTES_MIN: usize = 64 << 10;
/// What all bodies together may collect, as long as each has the least.
const WRITE_BYTES_ALL: usize = 4 << 20;
/// Most writes at once: a write is a copy into the kernel's cache, and more threads than this make
/// no disk faster, but each has a stack and a heap of its own.
const WRITES_MAX: usize = 8;

/// One of the bodies that are on their way into buckets of this process, which share the memory in
/// which bytes are collected.
#[derive(Debug)]
pub(super) struct Share(());

static BODIES: AtomicUsize = AtomicUsize::new(0);
static WRITES: Semaphore = Semaphore::const_new(WRITES_MAX);

impl Share {
    /// Begins to share.
    pub fn take() -> Self {
        BODIES.fetch_add(1, Ordering::Relaxed);
        Share(())
    }

    /// Waits for a write's turn, which lasts as long as what is given back.
    pub async fn turn(&self) -> Option<SemaphorePermit<'static>> {
        // The semaphore is never closed.
        WRITES.acquire().await.ok()
    }

    /// Bytes that one body collects.
    pub fn bytes(&self) -> usize {
        share_bytes(BODIES.load(Ordering::Relaxed))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        BODIES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What each of so many bodies collects.
fn share_bytes(bodies: usize) -> usize {
    (WRITE_BYTES_ALL / bodies.max(1)).clamp(WRITE_BYTES_MIN, WRITE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_collect_much_and_many_little() {
        assert_eq!([0, 1, 4].map(share_bytes), [WRITE_BYTES_MAX; 3]);
        assert_eq!(share_bytes(16), 256 << 10);
        assert_eq!([64, 10_000].map(share_bytes), [WRITE_BYTES_MIN; 2]);
    }
}

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
/// bodies the blocking threads do not sleep, and the hop costs little. What a gateway reads of each
/// of many bodies at once is a byte less than 32 KiB, and two of those are enough: for the bytes
/// that are missing a third would be held of every body.
const WRITE_BYTES_MIN: usize = (64 << 10) - 2;
/// What all bodies together may collect while they are few. As much again may be on its way.
const WRITE_BYTES_ALL: usize = 4 << 20;
/// More than these each collect the least.
const BODIES_FEW: usize = 16;
/// Most writes at once: a write is a copy into the kernel's cache, and more threads than this make
/// no disk faster, but each has a stack and a heap of its own.
const WRITES_MAX: usize = 8;

/// One of the bodies that are on their way into buckets of this process, which share the memory in
/// which bytes are collected.
#[derive(Debug)]
pub(super) struct Share(());

/// The right to write on a blocking thread.
#[derive(Debug)]
pub(super) struct Turn(#[expect(dead_code, reason = "held")] Option<SemaphorePermit<'static>>);

static BODIES: AtomicUsize = AtomicUsize::new(0);
static WRITES: Semaphore = Semaphore::const_new(WRITES_MAX);

impl Share {
    /// Begins to share.
    pub fn take() -> Self {
        BODIES.fetch_add(1, Ordering::Relaxed);
        Share(())
    }

    /// Waits for a write's turn, which lasts as long as what is given back.
    pub async fn turn(&self) -> Turn {
        // The semaphore is never closed.
        Turn(WRITES.acquire().await.ok())
    }

    /// Whether a body that holds so many bytes should take a turn to write them, or wait for one.
    pub fn is_enough(&self, held_bytes: usize) -> bool {
        is_enough(BODIES.load(Ordering::Relaxed), WRITES.available_permits(), held_bytes)
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
    match bodies {
        0..=BODIES_FEW => (WRITE_BYTES_ALL / bodies.max(1)).min(WRITE_BYTES_MAX),
        _ => WRITE_BYTES_MIN,
    }
}

/// Whether so many bytes are enough to take a turn. Where many bodies wait for one they are enough
/// as soon as a write is worth its call: the next piece comes meanwhile, and is written with them.
fn is_enough(bodies: usize, turns: usize, held_bytes: usize) -> bool {
    let is_crowded = bodies > BODIES_FEW && turns == 0;
    held_bytes >= if is_crowded { WRITE_BYTES_LEAST } else { share_bytes(bodies) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_collect_much_and_many_little() {
        assert_eq!([0, 1, 4].map(share_bytes), [WRITE_BYTES_MAX; 3]);
        assert_eq!(share_bytes(16), 256 << 10);
        assert_eq!([17, 10_000].map(share_bytes), [WRITE_BYTES_MIN; 2]);
    }

    /// A third would be held of every body, and bring nothing but a few missing bytes.
    #[test]
    fn two_reads_of_many_bodies_are_a_write() {
        let read = (32 << 10) - 1;
        assert_eq!([17, 10_000].map(|bodies| share_bytes(bodies).div_ceil(read)), [2; 2]);
    }

    #[test]
    fn who_has_to_wait_among_many_does_so_with_one_piece() {
        assert!(is_enough(17, 0, WRITE_BYTES_LEAST) && !is_enough(17, 0, WRITE_BYTES_LEAST - 1));
        assert!(!is_enough(17, 1, WRITE_BYTES_MIN - 1) && is_enough(17, 1, WRITE_BYTES_MIN));
        assert!(!is_enough(16, 0, share_bytes(16) - 1) && is_enough(16, 0, share_bytes(16)));
    }
}

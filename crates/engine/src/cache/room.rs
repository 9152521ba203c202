//! Room in the queue of the disk cache: a read that brings more than the queue takes goes on as the
//! disk writes, so that all of it is cached.
//!
//! Decides for how long. The writer is waited for while it is done with a block every now and then:
//! a read is slowed down to what the disk takes, and never by more than that. A disk that stands
//! still is waited for once, by each who found it full; from then on nobody waits until it goes on.

use crate::budget::Lease;
use crate::cache::disk::{DiskCache, Shared};
use std::pin::pin;
use std::time::Duration;
use tokio::time::timeout;

/// Most bytes waiting to be written.
const QUEUE_BYTES_MAX: u64 = 64 << 20;
/// A disk that was not done with a single block, of 1 MiB at most, for so long is not waited for:
/// that is far below what any disk writes.
const STUCK: Duration = Duration::from_secs(1);

/// Room for bytes that will be offered at once. Dropping it gives back what is not queued.
#[derive(Debug)]
pub(super) struct Room<'a> {
    shared: &'a Shared,
    bytes: u64,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.shared.lock().promised_bytes -= self.bytes;
        self.shared.progress.notify_waiters();
    }
}

impl DiskCache {
    /// Waits for room for so many bytes, and for the memory that `lease` gives: blocks that wait to
    /// be written give theirs back. `None` where the disk stands still, or has nothing to do and
    /// there is no memory.
    pub(super) async fn room(
        &self,
        bytes: u64,
        lease: impl Fn(u64) -> Option<Lease>,
    ) -> Option<(Room<'_>, Lease)> {
        let shared = &*self.shared;
        loop {
            let mut progress = pin!(shared.progress.notified());
            // From here on, so that nothing is missed between looking and waiting.
            progress.as_mut().enable();
            if let Some(lease) = lease(bytes)
                && let Some(room) = shared.promise(bytes)
            {
                return Some((room, lease));
            }
            if !shared.may_wait() {
                return None;
            }
            if timeout(STUCK, progress).await.is_err() {
                shared.lock().is_stuck = true;
                return None;
            }
        }
    }
}

impl Shared {
    fn promise(&self, bytes: u64) -> Option<Room<'_>> {
        let mut state = self.lock();
        let taken = state.queue_bytes + state.promised_bytes;
        if taken > 0 && taken + bytes > QUEUE_BYTES_MAX {
            return None;
        }
        state.promised_bytes += bytes;
        Some(Room { shared: self, bytes })
    }

    /// Whether something is on its way to the disk, and moves.
    fn may_wait(&self) -> bool {
        let state = self.lock();
        let is_busy = state.queue_bytes + state.promised_bytes > 0 || state.is_writing;
        is_busy && !state.is_stuck
    }

    /// A block is written, or given up.
    pub fn made_progress(&self) {
        self.lock().is_stuck = false;
        self.progress.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::cache::files::Directory;
    use crate::cache::index::ObjectVersion;
    use crate::cache::tests::watched::{Step, Watched};
    use bytes::Bytes;
    use penstock_testkit::scratch::Scratch;
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Mutex};
    use tokio::time::Instant;

    const MIB: u64 = 1 << 20;

    fn offer(cache: &DiskCache, start: u64, bytes: u64, lease: Lease) {
        let version = ObjectVersion { name: "n".into(), etag: "e".into(), size_bytes: 1 << 40 };
        let bytes = Bytes::from(vec![1; usize::try_from(bytes).unwrap()]);
        cache.offer(&version, start, &bytes, lease, || false);
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_stands_still_is_waited_for_once_and_again_when_it_goes_on() {
        let dir = Scratch::new("cache");
        let (go_on, told) = channel::<()>();
        let told = Mutex::new(told);
        let medium = Watched::new(dir.path(), move |step| {
            if matches!(step, Step::Create) {
                // Making a file takes until the test says so, or has ended.
                let _ = told.lock().unwrap().recv();
            }
            Ok(())
        });
        let cache = DiskCache::on(Box::new(medium), 1 << 30).unwrap();
        let budget = Budget::new(1 << 30, Arc::default());
        let lease = |bytes| budget.try_lease(bytes);
        let began = Instant::now();
        let mut offered = 0;
        while let Some((room, lease)) = cache.room(4 * MIB, lease).await {
            offer(&cache, offered, 4 * MIB, lease);
            drop(room);
            offered += 4 * MIB;
        }
        // One block may be out of the queue.
        assert!((QUEUE_BYTES_MAX..=QUEUE_BYTES_MAX + 4 * MIB).contains(&offered), "{offered}");
        assert_eq!(began.elapsed().as_secs(), STUCK.as_secs());
        assert!(cache.room(4 * MIB, lease).await.is_none());
        assert_eq!(began.elapsed().as_secs(), STUCK.as_secs(), "nobody waits any more");
        drop(go_on);
        cache.flush();
        assert_eq!(cache.holdings().block_bytes, offered);
        assert!(cache.room(4 * MIB, lease).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn without_memory_only_blocks_that_are_on_their_way_are_waited_for() {
        let dir = Scratch::new("cache");
        let directory = Directory::hold(dir.path()).unwrap();
        let cache = DiskCache::on(Box::new(directory), 1 << 30).unwrap();
        let began = Instant::now();
        cache.flush();
        assert!(cache.room(MIB, |_| None).await.is_none());
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}

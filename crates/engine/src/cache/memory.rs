//! Blocks in memory: what was read lately, within `cache_memory_bytes` and the memory limit.
//!
//! Off unless asked for, since DuckDB keeps the bytes of Parquet files itself and nothing should be
//! held twice. Blocks go in the order in which they came; those that were read since get another
//! round. All of them go when somebody waits for memory: they can be fetched again.

use crate::budget::{Lease, Pressable, Pressed};
use crate::cache::index::{Found, Index, ObjectVersion, Place};
use crate::cache::piece::Piece;
use crate::cache::record::BLOCK_BYTES_MAX;
use penstock_base::ByteRange;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The blocks that an engine keeps in memory.
#[derive(Debug)]
pub(crate) struct MemoryCache {
    /// Beside the state, so that an engine without one pays no lock.
    capacity_bytes: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    index: Index,
    /// Oldest first.
    order: VecDeque<Kept>,
    bytes: u64,
}

#[derive(Debug)]
struct Kept {
    version: ObjectVersion,
    block: ByteRange,
    _lease: Lease,
}

impl MemoryCache {
    /// Keeps up to so many bytes; none where that is 0.
    pub fn new(capacity_bytes: u64) -> Self {
        MemoryCache { capacity_bytes: AtomicU64::new(capacity_bytes), state: Mutex::default() }
    }

    /// Whether it may hold anything.
    pub fn is_on(&self) -> bool {
        self.capacity_bytes() > 0
    }

    /// How many bytes it may hold.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes.load(Ordering::Relaxed)
    }

    /// Keeps up to so many from now on.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        self.capacity_bytes.store(capacity_bytes, Ordering::Relaxed);
        let dropped = self.lock().shrink(capacity_bytes);
        drop(dropped);
    }

    /// The blocks that a range overlaps, in order.
    pub fn find(&self, version: &ObjectVersion, range: ByteRange) -> Vec<Found> {
        self.lock().index.find(version, range)
    }

    /// How many bytes of a range are here.
    pub fn cached_bytes(&self, version: &ObjectVersion, range: ByteRange) -> u64 {
        self.lock().index.cached_bytes(version, range)
    }

    /// Takes what is missing of `piece`; `lease` gives the right to hold so many bytes, while there
    /// is memory for it.
    pub fn keep(
        &self,
        version: &ObjectVersion,
        piece: Piece<'_>,
        lease: impl Fn(u64) -> Option<Lease>,
    ) {
        let range = piece.range();
        let gaps = self.lock().index.gaps(version, range);
        for block in gaps.into_iter().flat_map(blocks_of) {
            if block.len() > self.capacity_bytes() {
                return;
            }
            let Some(lease) = lease(block.len()) else { return };
            let bytes = piece.part(block);
            let kept = Kept { version: version.clone(), block, _lease: lease };
            let mut state = self.lock();
            // Another reader may have been quicker.
            if state.index.gaps(version, block) != [block] {
                drop(state);
                continue;
            }
            state.index.insert(version, block, Place::Queued(bytes));
            state.bytes += block.len();
            state.order.push_back(kept);
            let dropped = state.shrink(self.capacity_bytes());
            drop(state);
            drop(dropped);
        }
    }

    /// Forgets everything.
    pub fn clear(&self) {
        let dropped = std::mem::take(&mut *self.lock());
        drop(dropped);
    }

    /// Every version with its number of blocks and their bytes.
    pub fn objects(&self) -> Vec<(ObjectVersion, u64, u64)> {
        let state = self.lock();
        state.index.objects().map(|(version, n, bytes)| (version.clone(), n, bytes)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Forgets the oldest until the rest fits. They are to be dropped outside of the lock: giving
    /// memory back wakes writers.
    fn shrink(&mut self, capacity_bytes: u64) -> Vec<Kept> {
        let mut dropped = Vec::new();
        while self.bytes > capacity_bytes
            && let Some(kept) = self.order.pop_front()
        {
            if self.index.take_used(&kept.version, kept.block.start) {
                self.order.push_back(kept);
                continue;
            }
            self.index.forget(&kept.version, kept.block.start, None);
            self.bytes -= kept.block.len();
            dropped.push(kept);
        }
        dropped
    }
}

impl Pressable for MemoryCache {
    fn returnable_bytes(&self) -> Option<u64> {
        Some(self.state.try_lock().ok()?.bytes)
    }

    fn press(&self) -> Pressed {
        let Ok(mut state) = self.state.try_lock() else { return Pressed::Busy };
        let dropped = std::mem::take(&mut *state);
        drop(state);
        Pressed::gave(dropped.bytes > 0)
    }
}

/// A range as blocks of at most [`BLOCK_BYTES_MAX`].
pub(super) fn blocks_of(range: ByteRange) -> impl Iterator<Item = ByteRange> {
    (0..range.len().div_ceil(BLOCK_BYTES_MAX)).map(move |index| {
        let start = range.start + index * BLOCK_BYTES_MAX;
        ByteRange { start, end: (start + BLOCK_BYTES_MAX).min(range.end) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use bytes::Bytes;
    use penstock_base::Metrics;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn version(name: u8) -> ObjectVersion {
        ObjectVersion { name: format!("n{name}").into(), etag: "e".into(), size_bytes: 1 << 40 }
    }

    /// What stands at an offset of an object.
    fn content(name: u8, range: ByteRange) -> Vec<u8> {
        (range.start..range.end).map(|at| (at % 251) as u8 ^ name).collect()
    }

    fn check(cache: &MemoryCache, name: u8, range: ByteRange) -> u64 {
        let mut bytes = 0;
        for found in cache.find(&version(name), range) {
            let Place::Queued(held) = &found.place else { panic!("not in memory") };
            assert!(held[..] == content(name, found.block));
            bytes += found.block.len();
        }
        bytes
    }

    #[test]
    fn what_is_read_again_outlives_what_is_not() {
        let budget = Budget::new(1 << 30, Arc::new(Metrics::default()));
        let cache = MemoryCache::new(10_000);
        let keep = |name: u8| {
            let range = ByteRange { start: 0, end: 1000 };
            let bytes = content(name, range);
            cache.keep(&version(name), Piece::lent(0, &bytes), |bytes| budget.try_lease(bytes));
        };
        keep(0);
        for name in 1..100 {
            keep(name);
            assert_eq!(check(&cache, 0, ByteRange { start: 5, end: 6 }), 1000, "after {name}");
        }
        assert_eq!(check(&cache, 1, ByteRange { start: 0, end: 1000 }), 0);
        assert_eq!(check(&cache, 99, ByteRange { start: 0, end: 1000 }), 1000);
        assert_eq!(budget.held_bytes(), 10_000);
        assert_eq!(cache.press(), Pressed::Gave);
        assert_eq!((budget.held_bytes(), check(&cache, 0, ByteRange { start: 0, end: 9 })), (0, 0));
    }

    proptest! {
        #[test]
        fn bytes_are_right_and_bounded_by_capacity_and_memory(
            steps in prop::collection::vec(
                (0u8..4, 0u64..20_000, 1u64..5000, any::<(bool, bool)>()), 1..200),
            mut capacity in 0u64..40_000, limit in 0u64..40_000,
        ) {
            let budget = Budget::new(limit, Arc::new(Metrics::default()));
            let cache = MemoryCache::new(capacity);
            for (name, start, len, (changes, shares)) in steps {
                let range = ByteRange { start, end: start + len };
                let bytes = Bytes::from(content(name, range));
                let lent = Piece::lent(start, &bytes);
                let piece = if shares { Piece::shared(start, &bytes) } else { lent };
                cache.keep(&version(name), piece, |n| budget.try_lease(n));
                if changes {
                    capacity = (capacity / 2).max(len);
                    cache.set_capacity(capacity);
                }
                check(&cache, name, range);
                let held = cache.lock().bytes;
                prop_assert!(held <= capacity && held <= limit);
                prop_assert_eq!(held, budget.held_bytes());
                let objects: u64 = cache.objects().iter().map(|(_, _, bytes)| bytes).sum();
                prop_assert_eq!(held, objects);
            }
            cache.clear();
            prop_assert_eq!(budget.held_bytes(), 0);
        }
    }
}

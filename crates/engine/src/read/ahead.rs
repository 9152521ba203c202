//! Reading ahead of a reader that goes front to back (CSV, gzip, JSON, bytes).
//!
//! The decision is pure ([`Detector`], [`next_block`]): two reads that follow each other begin a
//! run. In small steps, while less lies ready than the run has read so far, the next block is
//! fetched, of the size of the run, from 256 KiB up to 8 MiB. So what is fetched in vain is never
//! more than what was used; in a statement that may end early, no more than a tenth of it. Any
//! other read ends the run and drops what lies ready, unless it goes back: DuckDB
//! looks at the beginning of a text file first, and then reads it from the beginning.
//!
//! In large steps the next ones are asked for while the present one is carried out, see `begun`. A
//! large read of an object's beginning is a run by itself.
//!
//! Memory for a block is taken only if it is free, of what is fetched ahead in all a quarter of the
//! limit at most, and given back when others wait for it.

use crate::budget::{AHEAD_PARTS, Pressable, Pressed};
use crate::cache::CachedObject;
use crate::pace::policy::{Policy, parts};
use crate::read::begun::{Allowed, BEGUN_MAX, Begun, steps};
use crate::read::block::{Block, Source, fetch};
use crate::read::held::Piece;
use crate::read::neighbours::came_ahead;
use crate::read::spare::Spare;
use penstock_base::ByteRange;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Larger reads go straight into the caller's buffer, as far as they are not here before.
const STEP_BYTES_MAX: u64 = 1 << 20;
const BLOCK_BYTES_MIN: u64 = 256 << 10;
const BLOCK_BYTES_MAX: u64 = 8 << 20;
/// One block is used while the next arrives.
const BLOCKS_MAX: usize = 2;
/// As many may lie where a reader was before it went back.
const BLOCKS_KEPT_MAX: usize = 2 * BLOCKS_MAX;

/// Notices runs of reads.
#[derive(Debug, Default)]
struct Detector {
    next: Option<u64>,
    run_bytes: u64,
}

impl Detector {
    /// Takes note of a read; bytes of the run that it continues, or 0. It may do so out of turn,
    /// where it `was_expected`.
    fn note(&mut self, range: ByteRange, was_expected: bool) -> u64 {
        let begins = range.start == 0 && is_large(range);
        let follows = was_expected || self.next == Some(range.start);
        self.next = self.next.filter(|_| was_expected).max(Some(range.end));
        self.run_bytes = match (follows, begins) {
            (true, _) => self.run_bytes + range.len(),
            (false, true) => range.len(),
            (false, false) => 0,
        };
        self.run_bytes
    }
}

/// Whether a read is too large to be fetched into memory of ours first.
pub(super) fn is_large(range: ByteRange) -> bool {
    range.len() > STEP_BYTES_MAX
}

/// The block to fetch next, if it is time: `ahead_bytes_max` may lie ready, and one smallest block;
/// `ready_end` is where the bytes end that lie ready without a gap behind the read that ended at
/// `read_end`; `end` is that of the object, or of the gap where more lies ready behind it.
fn next_block(ahead_bytes_max: u64, read_end: u64, ready_end: u64, end: u64) -> Option<ByteRange> {
    if ready_end >= end || ready_end.saturating_sub(read_end) > ahead_bytes_max {
        return None;
    }
    let bytes = ahead_bytes_max.clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
    Some(ByteRange { start: ready_end, end: ready_end.saturating_add(bytes).min(end) })
}

/// The read-ahead of one reader.
#[derive(Debug)]
pub(crate) struct Ahead {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    detector: Detector,
    /// In the order of the object.
    blocks: VecDeque<Arc<Block>>,
    /// Requests for what follows the present read, in order.
    begun: VecDeque<Begun>,
    /// What the link brought during one of the last large reads.
    bytes_per_s: Option<f64>,
    registered: bool,
}

impl State {
    /// Whether a read wants of what requests were begun for, or lies between them: there the cache
    /// had what would have been asked for.
    fn expects(&self, range: ByteRange) -> bool {
        let start = self.begun.front().map(|begun| begun.range.start);
        let end = self.begun.iter().map(|begun| begun.range.end).max();
        start.zip(end).is_some_and(|(start, end)| ByteRange { start, end }.overlaps(&range))
    }

    /// What is held or on its way. To be dropped outside of the lock.
    fn clear(&mut self) -> (Vec<Arc<Block>>, Vec<Begun>) {
        (self.blocks.drain(..).collect(), self.begun.drain(..).collect())
    }
}

impl Ahead {
    pub fn new() -> Arc<Self> {
        Arc::new(Ahead { state: Mutex::default() })
    }

    /// Takes note of a read, begins the next block if it is time, and gives the blocks that this
    /// read overlaps. Behind a read that the cache has all of none begins, unless it came there
    /// ahead of this read.
    pub(super) fn blocks(
        self: &Arc<Self>,
        source: &Source<'_>,
        range: ByteRange,
        held: &[Piece],
        is_cached: bool,
    ) -> Vec<Arc<Block>> {
        let (blocks, dropped) = self.note(source, range, held, is_cached);
        drop(dropped);
        blocks.iter().for_each(|block| block.used(range));
        blocks
    }

    /// The blocks that a read overlaps, and those that are not needed any more, which have to be
    /// dropped outside of the lock.
    fn note(
        self: &Arc<Self>,
        source: &Source<'_>,
        range: ByteRange,
        held: &[Piece],
        is_cached: bool,
    ) -> (Vec<Arc<Block>>, Vec<Arc<Block>>) {
        let mut state = self.lock();
        let overlapping = state.blocks.iter().filter(|block| block.range.overlaps(&range));
        let overlapping: Vec<_> = overlapping.cloned().collect();
        let is_cached = is_cached && !came_ahead(&overlapping);
        let goes_back = state.detector.next.is_some_and(|next| range.end <= next);
        let run_bytes = state.detector.note(range, false);
        let mut dropped = Vec::new();
        if run_bytes == 0 {
            // Other threads may read elsewhere in the same reader; one that reads what lies ready
            // still gets it.
            if !goes_back && !state.blocks.iter().any(|block| block.range.start < range.end) {
                dropped.extend(state.blocks.drain(..));
            }
        } else {
            while state.blocks.front().is_some_and(|block| block.range.end <= range.start) {
                dropped.extend(state.blocks.pop_front());
            }
            let ready = held
                .iter()
                .map(|piece| piece.range)
                .chain(state.blocks.iter().map(|block| block.range));
            let ready_end = contiguous_end(range.end, ready.collect());
            let near = state.blocks.partition_point(|block| block.range.start <= ready_end);
            let end = state.blocks.get(near).map_or(source.size_bytes, |kept| kept.range.start);
            let ahead_bytes_max = source.query.ahead_bytes_max(run_bytes);
            if !is_cached
                && near < BLOCKS_MAX
                && let Some(block) = next_block(ahead_bytes_max, range.end, ready_end, end)
                && !CachedObject::has(source.query, source.at, source.version, block)
                && let Some(lease) = source.query.engine.budget.try_lease_ahead(block.len())
            {
                self.register(&mut state, source);
                state.blocks.insert(near, Arc::new(fetch(source, block, lease, None)));
            }
            if state.blocks.len() > BLOCKS_KEPT_MAX {
                dropped.extend(state.blocks.pop_back());
            }
        }
        let overlapping = state.blocks.iter().filter(|block| block.range.overlaps(&range));
        (overlapping.cloned().collect(), dropped)
    }

    /// Whether requests were begun for what a read wants.
    pub fn has_begun(&self, range: ByteRange) -> bool {
        self.lock().expects(range)
    }

    /// Whether a read belongs to what was read before it.
    pub fn goes_on_with(&self, range: ByteRange) -> bool {
        let state = self.lock();
        state.detector.next == Some(range.start) || state.expects(range)
    }

    /// Takes note of a large read, and gives what is on its way or ready of what it wants: requests
    /// that were begun for it, and blocks, where the reads before it were small.
    pub(super) fn large(&self, range: ByteRange) -> (Vec<Begun>, Vec<Arc<Block>>) {
        let mut state = self.lock();
        let was_expected = state.expects(range);
        let mut dropped = Vec::new();
        let is_new = state.detector.note(range, was_expected) <= range.len() && !was_expected;
        // What follows a read of the beginning follows it when it is read again.
        if is_new && state.begun.front().is_none_or(|begun| begun.range.start != range.end) {
            dropped.extend(state.begun.drain(..));
        }
        let is_unneeded = |block: &Arc<Block>| {
            block.range.end <= range.start || (is_new && !block.range.overlaps(&range))
        };
        let (unneeded, blocks): (VecDeque<_>, VecDeque<_>) =
            state.blocks.drain(..).partition(is_unneeded);
        state.blocks = blocks;
        let wanted = state.blocks.iter().filter(|block| block.range.overlaps(&range));
        let wanted: Vec<_> = wanted.cloned().collect();
        wanted.iter().for_each(|block| block.used(range));
        let (mine, others): (VecDeque<Begun>, VecDeque<Begun>) =
            state.begun.drain(..).partition(|begun| begun.range.overlaps(&range));
        state.begun = others;
        // One who reads out of turn may still come, but not long after.
        while state.begun.len() > BEGUN_MAX
            && state.begun.front().is_some_and(|begun| begun.range.end <= range.start)
        {
            dropped.extend(state.begun.pop_front());
        }
        drop(state);
        drop((dropped, unneeded));
        // What begins before this read was meant for another one.
        let mine = mine.into_iter().filter(|begun| begun.range.start >= range.start).collect();
        (mine, wanted)
    }

    /// Asks for what follows a large read which is nearly over.
    pub fn begin_next(self: &Arc<Self>, source: &Source<'_>, range: ByteRange) {
        let engine = &source.query.engine;
        let (latency, limit) = (source.at.mount.latency.get(), engine.budget.limit_bytes());
        let mut state = self.lock();
        let run_bytes = state.detector.run_bytes;
        let Some(read_end) = state.detector.next.filter(|_| run_bytes > 0) else { return };
        let begun_end = state.begun.back().map_or(read_end, |begun| begun.range.end);
        let blocks = state.blocks.iter().map(|block| block.range).collect();
        let asked_end = contiguous_end(begun_end, blocks);
        let step = range.len();
        let profile = &source.at.mount.profile;
        let bytes_per_s = state.bytes_per_s.unwrap_or(profile.connection_bytes_per_s);
        let ahead_bytes_max = source.query.ahead_bytes_max(run_bytes);
        let allowed = Allowed::of(run_bytes, step, bytes_per_s, latency, limit / AHEAD_PARTS)
            .at_most(ahead_bytes_max);
        let steps = steps(step, read_end, asked_end, source.size_bytes, allowed.window_bytes);
        let held: u64 = state.begun.iter().map(Begun::memory_bytes).sum();
        let mut memory_bytes = allowed.memory_bytes.saturating_sub(held);
        let policy = Policy::of(&source.query.settings);
        self.register(&mut state, source);
        for step in steps {
            let limit = policy.fanout_limit(step.len());
            let pace = &source.at.mount.pace;
            for part in parts(step, pace.fanout(&policy, step.len(), limit, latency)) {
                if state.begun.len() >= BEGUN_MAX {
                    return;
                }
                if CachedObject::has(source.query, source.at, source.version, part) {
                    continue;
                }
                let settings = &source.query.settings;
                let Some(slot) = Spare::take(&source.at.mount, settings) else { return };
                let share = part.len().min(memory_bytes);
                memory_bytes -= share;
                state.begun.push_back(Begun::send(source, part, share, slot));
            }
        }
    }

    /// A large read is over: the link is free for what was begun.
    pub fn large_done(&self, bytes_per_s: Option<f64>) {
        let mut state = self.lock();
        if let Some(sample) = bytes_per_s {
            // The most that was seen lately: most samples are of a link that was not full.
            let known = state.bytes_per_s.unwrap_or(sample);
            state.bytes_per_s = Some(sample.max(known * 0.9 + sample * 0.1));
        }
        state.begun.iter().for_each(Begun::fill);
    }

    /// Stops what is on its way and gives back what lies ready.
    pub fn stop(&self) {
        let dropped = self.lock().clear();
        drop(dropped);
    }

    fn register(self: &Arc<Self>, state: &mut State, source: &Source<'_>) {
        if !std::mem::replace(&mut state.registered, true) {
            let pressable: Weak<dyn Pressable> = Arc::downgrade(self) as Weak<_>;
            source.query.engine.budget.register(pressable);
        }
        source.query.neighbours.follow(self);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pressable for Ahead {
    fn is_ahead(&self) -> bool {
        true
    }

    fn returnable_bytes(&self) -> Option<u64> {
        let state = self.state.try_lock().ok()?;
        let begun: u64 = state.begun.iter().map(Begun::leased_bytes).sum();
        Some(begun + state.blocks.iter().map(|block| block.range.len()).sum::<u64>())
    }

    fn press(&self) -> Pressed {
        let Ok(mut state) = self.state.try_lock() else { return Pressed::Busy };
        let (blocks, begun) = state.clear();
        drop(state);
        // A read that waits for one keeps it a little longer.
        blocks.iter().for_each(|block| block.let_go());
        Pressed::gave(!blocks.is_empty() || !begun.is_empty())
    }
}

/// Where the bytes end that lie ready without a gap from `from` on.
fn contiguous_end(from: u64, mut ready: Vec<ByteRange>) -> u64 {
    ready.sort_by_key(|range| range.start);
    ready.iter().fold(from, |end, range| if range.start <= end { end.max(range.end) } else { end })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange { start, end }
    }

    #[test]
    fn random_and_large_reads_are_no_run() {
        let mut detector = Detector::default();
        for read in [range(0, 10), range(50, 60), range(20, 30), range(60, 70)] {
            assert_eq!(detector.note(read, false), 0);
        }
        assert_eq!(detector.note(range(70, 90), false), 20);
        assert_eq!(detector.note(range(100, 101 + STEP_BYTES_MAX), false), 0);
    }

    #[test]
    fn a_large_read_of_the_beginning_is_a_run_and_threads_may_read_it_out_of_turn() {
        const STEP: u64 = 4 << 20;
        let step = |index: u64| range(index * STEP, (index + 1) * STEP);
        let mut detector = Detector::default();
        assert_eq!(detector.note(step(3), false), 0);
        for (index, was_expected) in [(0, false), (1, false), (3, true), (2, true)] {
            assert!(detector.note(step(index), was_expected) >= STEP, "{index}");
        }
        assert_eq!((detector.next, detector.run_bytes), (Some(4 * STEP), 4 * STEP));
        assert_eq!(detector.note(step(9), false), 0);
    }

    #[test]
    fn contiguous_bytes_end_at_the_first_gap() {
        assert_eq!(contiguous_end(5, vec![range(20, 30), range(0, 10), range(10, 15)]), 15);
        assert_eq!(contiguous_end(5, vec![]), 5);
    }

    proptest! {
        /// However the reads come, what is fetched and not read stays below what was read in runs,
        /// plus one smallest block.
        #[test]
        fn what_is_fetched_in_vain_is_bounded_by_what_was_read(
            steps in prop::collection::vec(1u64..100_000, 1..200),
        ) {
            let (size, mut at, mut ready_end, mut fetched) = (1u64 << 40, 0, 0, 0);
            let mut detector = Detector::default();
            for step in steps {
                let read = range(at, at + step);
                at += step;
                let run = detector.note(read, false);
                ready_end = ready_end.max(at);
                if run > 0
                    && let Some(block) = next_block(run, at, ready_end, size)
                {
                    prop_assert_eq!(block.start, ready_end);
                    ready_end = block.end;
                    fetched += block.len();
                    prop_assert!(ready_end - at <= 2 * at + BLOCK_BYTES_MIN);
                }
            }
            prop_assert!(fetched <= 3 * at + BLOCK_BYTES_MIN);
        }
    }
}

//! Reading ahead of a reader that goes front to back (CSV, gzip, JSON, bytes).
//!
//! The decision is pure ([`Detector`], `allowance`): two reads that follow each other begin a run.
//! In small steps, while less lies ready than the run has read so far, the next block is fetched,
//! of the size of the run, from 256 KiB up to 8 MiB; all of it, and what was in vain before, within
//! the reader's allowance. A run from the beginning of compressed text is known to go on: it counts
//! as if it had read from its first step on what opening that brings, and has two blocks behind the
//! one that is read. In a statement that may end early, no more than a tenth of the run is ahead.
//! Any other read ends the run and drops what lies ready, unless it goes back: DuckDB looks at the
//! beginning of a text file first, and then reads it from the beginning.
//!
//! In large steps the next ones are asked for while the present one is carried out, see `begun`. A
//! large read of an object's beginning is a run by itself.
//!
//! Memory for a block is taken only if it is free, of what is fetched ahead in all a quarter of the
//! limit at most, and given back when others wait for it.

mod allowance;
mod burst;
mod detector;
mod trail;

use crate::budget::{AHEAD_PARTS, Pressable, Pressed};
use crate::cache::CachedObject;
use crate::pace::policy::{Policy, parts};
use crate::read::begun::{Allowed, BEGUN_MAX, Begun, steps};
use crate::read::block::{Block, Purpose, Source, fetch};
use crate::read::held::Piece;
use crate::read::neighbours::came_ahead;
use crate::read::spare::Spare;
use allowance::{Allowance, START_BYTES_MAX, Window, next_block};
use burst::UnderWay;
use detector::Detector;
pub(super) use detector::is_large;
use penstock_base::ByteRange;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
pub(crate) use trail::{Bounds, Next};

const BLOCK_BYTES_MIN: u64 = 256 << 10;
const BLOCK_BYTES_MAX: u64 = 8 << 20;
/// One is used while the next arrives.
const BLOCKS_MAX: usize = 2;
/// Those of a run that is known to go on lie behind another one; and as many may lie where a reader
/// was before it went back.
const BLOCKS_KEPT_MAX: usize = 2 * (BLOCKS_MAX + 1);

/// The read-ahead of one reader.
#[derive(Debug)]
pub(crate) struct Ahead {
    state: Mutex<State>,
    /// A run from the beginning counts as no shorter, if that is known to go on; else 0.
    first_bytes: u64,
}

#[derive(Debug, Default)]
struct State {
    detector: Detector,
    allowance: Allowance,
    /// In the order of the object.
    blocks: VecDeque<Arc<Block>>,
    /// Requests for what follows the present read, in order.
    begun: VecDeque<Begun>,
    /// What the link brought during one of the last large reads.
    bytes_per_s: Option<f64>,
    registered: bool,
    under_way: UnderWay,
}

impl State {
    /// Takes note of a read; bytes of the run that it continues, or 0.
    fn read(&mut self, range: ByteRange, was_expected: bool) -> u64 {
        let is_first = self.detector.next.is_none();
        let run_bytes = self.detector.note(range, was_expected);
        // To begin again at the beginning is no jump: text is read so.
        let jumps = run_bytes == 0 && !is_first && range.start > 0;
        self.allowance.read(range.len(), jumps);
        run_bytes
    }

    /// Bytes that are ahead, and nobody has read.
    fn pending_bytes(&self) -> u64 {
        let begun: u64 = self.begun.iter().map(Begun::memory_bytes).sum();
        begun + self.blocks.iter().map(|block| block.unused_bytes()).sum::<u64>()
    }

    /// These are dropped: what came of them and was not read was in vain.
    fn lost<'a>(
        &mut self,
        blocks: impl IntoIterator<Item = &'a Arc<Block>>,
        begun: impl IntoIterator<Item = &'a Begun>,
    ) {
        let blocks: u64 = blocks.into_iter().map(|block| block.in_vain_bytes()).sum();
        let begun: u64 = begun.into_iter().map(Begun::buffered_bytes).sum();
        self.allowance.wasted(blocks + begun);
    }

    /// Whether a read wants of what requests were begun for, or lies between them: there the cache
    /// had what would have been asked for.
    fn expects(&self, range: ByteRange) -> bool {
        let start = self.begun.front().map(|begun| begun.range.start);
        let end = self.begun.iter().map(|begun| begun.range.end).max();
        start.zip(end).is_some_and(|(start, end)| ByteRange { start, end }.overlaps(&range))
    }

    /// What holds memory. To be dropped outside of the lock.
    fn let_go(&mut self) -> (Vec<Arc<Block>>, Vec<Begun>) {
        // What the caches have already is not held here.
        let holds = |block: &Arc<Block>| block.leased_bytes() > 0;
        let (blocks, kept): (Vec<_>, Vec<_>) = self.blocks.drain(..).partition(holds);
        self.blocks = kept.into();
        let let_go: (Vec<_>, Vec<_>) = (blocks, self.begun.drain(..).collect());
        self.lost(&let_go.0, &let_go.1);
        let_go
    }

    /// What is held or on its way. To be dropped outside of the lock.
    fn clear(&mut self) -> (Vec<Arc<Block>>, Vec<Begun>) {
        let cleared: (Vec<_>, Vec<_>) =
            (self.blocks.drain(..).collect(), self.begun.drain(..).collect());
        self.lost(&cleared.0, &cleared.1);
        cleared
    }
}

impl Ahead {
    /// Of a reader whose run from the beginning of its object counts as no shorter than
    /// `first_bytes`.
    pub fn new(first_bytes: u64) -> Arc<Self> {
        Arc::new(Ahead { state: Mutex::default(), first_bytes: first_bytes.min(BLOCK_BYTES_MAX) })
    }

    /// Of a reader whose host fetches ahead itself.
    pub fn doubtful() -> Arc<Self> {
        let state = State { allowance: Allowance::doubtful(), ..State::default() };
        Arc::new(Ahead { state: Mutex::new(state), first_bytes: 0 })
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
        // Now, so that it is not ahead any more.
        overlapping.iter().for_each(|block| block.used(range));
        let is_cached = is_cached && !came_ahead(&overlapping);
        let goes_back = state.detector.next.is_some_and(|next| range.end <= next);
        let run_bytes = state.read(range, false);
        let mut dropped = Vec::new();
        if run_bytes == 0 {
            // Other threads may read elsewhere in the same reader; one that reads what lies ready
            // still gets it.
            if !goes_back && !state.blocks.iter().any(|block| block.range.start < range.end) {
                dropped.extend(state.blocks.drain(..));
                state.lost(&dropped, []);
            }
        } else {
            while state.blocks.front().is_some_and(|block| block.range.end <= range.start) {
                dropped.extend(state.blocks.pop_front());
            }
            // Before it is asked how much more may be ahead.
            state.lost(&dropped, []);
            if !is_cached {
                self.begin_blocks(&mut state, source, range, held, run_bytes);
            }
            while state.blocks.len() > BLOCKS_KEPT_MAX
                && let Some(surplus) = state.blocks.pop_back()
            {
                state.lost([&surplus], []);
                dropped.push(surplus);
            }
        }
        let overlapping = state.blocks.iter().filter(|block| block.range.overlaps(&range));
        (overlapping.cloned().collect(), dropped)
    }

    /// Begins the blocks for which it is time behind a read of a run of so many bytes: one, and two
    /// behind the present one where the run is known to go on.
    fn begin_blocks(
        self: &Arc<Self>,
        state: &mut State,
        source: &Source<'_>,
        range: ByteRange,
        held: &[Piece],
        run_bytes: u64,
    ) {
        let first_bytes = if state.detector.is_from_start { self.first_bytes } else { 0 };
        let (run_bytes, goes_on) = (run_bytes.max(first_bytes), first_bytes > 0);
        loop {
            let ready = held
                .iter()
                .map(|piece| piece.range)
                .chain(state.blocks.iter().map(|block| block.range));
            let ready_end = contiguous_end(range.end, ready.collect());
            let near = state.blocks.partition_point(|block| block.range.start <= ready_end);
            let end = state.blocks.get(near).map_or(source.size_bytes, |kept| kept.range.start);
            if !goes_on && near >= BLOCKS_MAX {
                return;
            }
            let is_behind = |block: &&Arc<Block>| goes_on && block.range.start >= range.end;
            let window = Window {
                run_bytes: source.query.ahead_bytes_max(run_bytes),
                most_bytes: state.allowance.ahead_bytes_max(range.len()),
                pending_bytes: state.pending_bytes(),
                blocks: state.blocks.iter().take(near).filter(is_behind).count(),
            };
            let Some(block) = next_block(window, range.end, ready_end, end) else { return };
            if CachedObject::has(source.query, source.at, source.version, block) {
                return;
            }
            let budget = &source.query.engine.budget;
            let Some(lease) = budget.try_lease_ahead(block.len()) else { return };
            self.register(state, source);
            state.blocks.insert(near, fetch(source, block, lease, Purpose::Reader));
            if !goes_on {
                return;
            }
        }
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
        let was_expected = state.expects(range) || state.under_way.is_beside(range);
        let mut dropped = Vec::new();
        let is_new = state.read(range, was_expected) <= range.len() && !was_expected;
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
        // What begins before this read was meant for another one.
        let (mine, passed): (Vec<_>, Vec<_>) =
            mine.into_iter().partition(|begun| begun.range.start >= range.start);
        dropped.extend(passed);
        // One who reads out of turn may still come, but not long after.
        while state.begun.len() > BEGUN_MAX
            && state.begun.front().is_some_and(|begun| begun.range.end <= range.start)
        {
            dropped.extend(state.begun.pop_front());
        }
        state.lost(&unneeded, &dropped);
        drop(state);
        drop((dropped, unneeded));
        (mine, wanted)
    }

    /// Takes note of a large read of a host that divides its reads. What follows a burst of them is
    /// asked for at once: it is more of the host's own read, for which it has no threads.
    pub fn under_way(
        self: &Arc<Self>,
        source: &Source<'_>,
        range: ByteRange,
    ) -> Option<ReadUnderWay> {
        let mut state = self.lock();
        if state.allowance.is_always_doubtful {
            return None;
        }
        if let Some(burst) = state.under_way.begins(range) {
            state.detector.burst(burst);
            state.allowance.burst();
            let limit_bytes = source.query.engine.budget.limit_bytes() / AHEAD_PARTS;
            let allowed = Allowed {
                window_bytes: START_BYTES_MAX,
                memory_bytes: START_BYTES_MAX.min(limit_bytes),
            };
            self.begin_steps(&mut state, source, range.len(), allowed);
        }
        Some(ReadUnderWay { run: Arc::clone(self), range })
    }

    /// Asks for what follows a large read which is nearly over.
    pub fn begin_next(self: &Arc<Self>, source: &Source<'_>, range: ByteRange) {
        let (latency, limit) =
            (source.at.mount.latency.get(), source.query.engine.budget.limit_bytes());
        let mut state = self.lock();
        let (run_bytes, step) = (state.detector.run_bytes, range.len());
        if run_bytes == 0 {
            return;
        }
        let profile = &source.at.mount.profile;
        let bytes_per_s = state.bytes_per_s.unwrap_or(profile.connection_bytes_per_s);
        let allowed = Allowed::of(run_bytes, step, bytes_per_s, latency, limit / AHEAD_PARTS)
            .at_most(source.query.ahead_bytes_max(run_bytes));
        self.begin_steps(&mut state, source, step, allowed);
    }

    /// Sends the requests for steps of this size that follow the run, as far as it is allowed.
    fn begin_steps(
        self: &Arc<Self>,
        state: &mut State,
        source: &Source<'_>,
        step: u64,
        mut allowed: Allowed,
    ) {
        let Some(read_end) = state.detector.next else { return };
        let begun_end = state.begun.back().map_or(read_end, |begun| begun.range.end);
        let blocks = state.blocks.iter().map(|block| block.range).collect();
        let asked_end = contiguous_end(begun_end, blocks);
        let most_bytes = state.allowance.ahead_bytes_max(step);
        let room_bytes = most_bytes.saturating_sub(state.pending_bytes());
        if state.allowance.is_doubtful() || most_bytes < BLOCK_BYTES_MIN {
            if room_bytes < BLOCK_BYTES_MIN {
                return;
            }
            allowed = allowed.at_most(most_bytes);
        }
        let steps = steps(step, read_end, asked_end, source.size_bytes, allowed.window_bytes);
        let held: u64 = state.begun.iter().map(Begun::memory_bytes).sum();
        let mut memory_bytes = allowed.memory_bytes.saturating_sub(held).min(room_bytes);
        let policy = Policy::of(&source.query.settings);
        let latency = source.at.mount.latency.get();
        self.register(state, source);
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

/// A large read that is not over.
pub(crate) struct ReadUnderWay {
    run: Arc<Ahead>,
    range: ByteRange,
}

impl Drop for ReadUnderWay {
    fn drop(&mut self) {
        self.run.lock().under_way.ended(self.range);
    }
}

impl Pressable for Ahead {
    fn is_ahead(&self) -> bool {
        true
    }

    fn returnable_bytes(&self) -> Option<u64> {
        let state = self.state.try_lock().ok()?;
        let begun: u64 = state.begun.iter().map(Begun::leased_bytes).sum();
        Some(begun + state.blocks.iter().map(|block| block.leased_bytes()).sum::<u64>())
    }

    fn press(&self) -> Pressed {
        let Ok(mut state) = self.state.try_lock() else { return Pressed::Busy };
        let (blocks, begun) = state.let_go();
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

    #[test]
    fn contiguous_bytes_end_at_the_first_gap() {
        let range = |start, end| ByteRange { start, end };
        assert_eq!(contiguous_end(5, vec![range(20, 30), range(0, 10), range(10, 15)]), 15);
        assert_eq!(contiguous_end(5, vec![]), 5);
    }
}

//! How much may be ahead of a reader that goes front to back. Pure.
//!
//! What came in vain, and what lies ready or is on its way, is a tenth of what the reader has read
//! at most, and a start. Of one that goes on the start is what a run ever has ahead, two of the
//! largest blocks, or a step of its own that is longer. So one that takes all of an object is not
//! held up, and nothing is in vain; one that is closed early leaves that, and the tenth.
//!
//! Of one that has jumped the start is the smallest block, until it has read as much as that other
//! start without another jump. A database that is attached is read so: a few blocks that follow
//! each other, then others elsewhere, and each few of them begin like a file that is read to its
//! end. A Parquet file is always read so where the host fetches ahead itself: what follows the row
//! groups that it reads may be left out, and it knows.

use super::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, BLOCKS_MAX};
use crate::query::WASTE_PARTS;
use penstock_base::ByteRange;

/// Less would hold up a reader on a link that brings as much in a round trip.
pub(super) const START_BYTES_MAX: u64 = BLOCKS_MAX as u64 * BLOCK_BYTES_MAX;

/// What one reader has read, and what of the bytes ahead of it was in vain.
#[derive(Debug, Default)]
pub(super) struct Allowance {
    read_bytes: u64,
    wasted_bytes: u64,
    /// Read since it jumped; `None` where it never did.
    since_jump_bytes: Option<u64>,
    /// It counts as one that has just jumped, however long it goes on.
    pub(super) is_always_doubtful: bool,
}

impl Allowance {
    /// Of a reader that counts as one that has just jumped, however long it goes on.
    pub fn doubtful() -> Self {
        Allowance { is_always_doubtful: true, ..Self::default() }
    }

    /// Takes note of a read, and whether it begins elsewhere than where the one before ended.
    pub fn read(&mut self, bytes: u64, jumps: bool) {
        self.read_bytes = self.read_bytes.saturating_add(bytes);
        self.since_jump_bytes = match (jumps, self.since_jump_bytes) {
            (true, _) => Some(0),
            (false, since) => since.map(|since| since.saturating_add(bytes)),
        };
    }

    /// Takes note that reads which seemed to jump are parts of one longer read.
    pub fn burst(&mut self) {
        self.since_jump_bytes = None;
    }

    /// Takes note of bytes that came and that no read took.
    pub fn wasted(&mut self, bytes: u64) {
        self.wasted_bytes = self.wasted_bytes.saturating_add(bytes);
    }

    /// Whether it has jumped not long ago.
    pub fn is_doubtful(&self) -> bool {
        let has_jumped = self.since_jump_bytes.is_some_and(|since| since < START_BYTES_MAX);
        self.is_always_doubtful || has_jumped
    }

    /// Bytes that may be ahead of a reader whose steps have this size, all together.
    pub fn ahead_bytes_max(&self, step_bytes: u64) -> u64 {
        let start_bytes = match self.is_doubtful() {
            true => BLOCK_BYTES_MIN,
            false => START_BYTES_MAX.max(step_bytes),
        };
        self.with_start(start_bytes)
    }

    /// The same with a start that somebody else decides on.
    pub fn with_start(&self, start_bytes: u64) -> u64 {
        start_bytes.saturating_add(self.read_bytes / WASTE_PARTS).saturating_sub(self.wasted_bytes)
    }

    /// What was read, and what was in vain.
    pub fn totals(&self) -> (u64, u64) {
        (self.read_bytes, self.wasted_bytes)
    }
}

/// What may be ahead of a run of small reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// So much of it may lie ready when another block is asked for.
    pub run_bytes: u64,
    /// All that may be ahead of its reader.
    pub most_bytes: u64,
    /// All that is: nobody has read it yet.
    pub pending_bytes: u64,
    /// Blocks that lie ready, or are on their way, behind the read, where it goes on for sure.
    pub blocks: usize,
}

/// The block to fetch next, if it is time: `ready_end` is where the bytes end that lie ready
/// without a gap behind the read that ended at `read_end`; `end` is that of the object, or of the
/// gap where more lies ready behind it.
pub(super) fn next_block(
    window: Window,
    read_end: u64,
    ready_end: u64,
    end: u64,
) -> Option<ByteRange> {
    let Window { run_bytes, most_bytes, pending_bytes, blocks } = window;
    let is_far = ready_end.saturating_sub(read_end) > run_bytes;
    if ready_end >= end || is_far || blocks >= BLOCKS_MAX {
        return None;
    }
    // An equal share for each: one is used while the next arrives.
    let share_bytes =
        most_bytes.div_ceil(BLOCKS_MAX as u64).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
    let room_bytes = most_bytes.saturating_sub(pending_bytes);
    let wanted_bytes = run_bytes.clamp(BLOCK_BYTES_MIN, share_bytes);
    let bytes = wanted_bytes.min(room_bytes);
    let block = ByteRange { start: ready_end, end: ready_end.saturating_add(bytes).min(end) };
    // Less is not worth a request, unless it is the rest. Where one is behind the read already, the
    // next one waits for room: it would be cut into small ones.
    let least_bytes = if blocks == 0 { BLOCK_BYTES_MIN } else { wanted_bytes };
    let is_worth_it = block.len() >= least_bytes || (block.end == end && !block.is_empty());
    is_worth_it.then_some(block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::ahead::State;
    use crate::read::ahead::detector::STEP_BYTES_MAX;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    /// A reader of small steps, whose blocks are there at once.
    #[derive(Default)]
    struct Model {
        state: State,
        /// What lies ready and was not read, behind the last read.
        ready: Option<ByteRange>,
        read_bytes: u64,
        wasted_bytes: u64,
        /// The most that was in vain or would have been, beyond a tenth of what was read.
        beyond_a_tenth: u64,
        longest_run_bytes: u64,
    }

    impl Model {
        fn read(&mut self, range: ByteRange, size: u64) {
            self.read_bytes += range.len();
            let run_bytes = self.state.read(range, false);
            self.longest_run_bytes = self.longest_run_bytes.max(run_bytes);
            let ready = self.ready.take().unwrap_or(ByteRange { start: range.end, end: range.end });
            if run_bytes == 0 {
                let read = ready.end.min(range.end).saturating_sub(ready.start.max(range.start));
                self.wasted_bytes += ready.len() - read;
                self.state.allowance.wasted(ready.len() - read);
                return;
            }
            let start = ready.start.max(range.end);
            let ready = ByteRange { start, end: ready.end.max(start) };
            let window = Window {
                run_bytes,
                most_bytes: self.state.allowance.ahead_bytes_max(range.len()),
                pending_bytes: ready.len(),
                blocks: 0,
            };
            let mut end = ready.end;
            for blocks in 0..BLOCKS_MAX {
                let window = Window { pending_bytes: end - start, blocks, ..window };
                end = next_block(window, range.end, end, size).map_or(end, |block| block.end);
            }
            self.ready = Some(ByteRange { end, ..ready });
            let in_vain = self.wasted_bytes + end - start;
            let beyond = in_vain.saturating_sub(self.read_bytes / WASTE_PARTS);
            self.beyond_a_tenth = self.beyond_a_tenth.max(beyond);
        }
    }

    /// Runs of steps, with a gap before each.
    fn runs(steps: std::ops::Range<usize>) -> impl Strategy<Value = Vec<(u64, Vec<u64>)>> {
        let run = (1u64..40 * MIB, prop::collection::vec(1u64..=STEP_BYTES_MAX, steps));
        prop::collection::vec(run, 1..60)
    }

    fn played(runs: Vec<(u64, Vec<u64>)>) -> Model {
        let (mut model, mut at) = (Model::default(), 0);
        for (gap, steps) in runs {
            at += gap;
            for step in steps {
                model.read(ByteRange { start: at, end: at + step }, u64::MAX);
                at += step;
            }
        }
        model
    }

    proptest! {
        /// Whatever is read and wherever it ends: what was in vain, and what would be if the reader
        /// were closed now, is a tenth and the largest start.
        #[test]
        fn never_more_is_in_vain_than_a_tenth_and_a_start(runs in runs(1..60)) {
            let model = played(runs);
            prop_assert!(model.beyond_a_tenth <= START_BYTES_MAX, "{}", model.beyond_a_tenth);
        }

        /// Of a reader that takes a few blocks here and there, as those of a database are: a tenth
        /// and the smallest block.
        #[test]
        fn of_a_reader_that_jumps_it_is_a_tenth_and_the_smallest_block(mut runs in runs(1..16)) {
            runs[0].1.truncate(1);
            let model = played(runs);
            prop_assert!(model.longest_run_bytes < START_BYTES_MAX);
            prop_assert!(model.beyond_a_tenth <= BLOCK_BYTES_MIN, "{}", model.beyond_a_tenth);
        }

        /// Of a reader that takes all of an object nothing is in vain, whatever its steps; and once
        /// it has read the largest block, at least half of that is ahead behind each read.
        #[test]
        fn a_reader_that_goes_to_the_end_is_never_held_back(
            steps in prop::collection::vec(1u64..=STEP_BYTES_MAX, 1..400),
        ) {
            let size: u64 = steps.iter().sum();
            let (mut model, mut at) = (Model::default(), 0);
            for step in steps {
                model.read(ByteRange { start: at, end: at + step }, size);
                at += step;
                prop_assert!(!model.state.allowance.is_doubtful());
                prop_assert!(model.state.allowance.ahead_bytes_max(step) >= START_BYTES_MAX);
                let ahead = model.ready.map_or(0, |ready| ready.len());
                if at >= BLOCK_BYTES_MAX {
                    let wanted = (size - at).min(BLOCK_BYTES_MAX / 2);
                    prop_assert!(ahead >= wanted, "{} at {}", ahead, at);
                }
            }
            prop_assert_eq!(model.wasted_bytes, 0);
            prop_assert_eq!(model.ready.map_or(0, |ready| ready.len()), 0, "all of it was read");
        }

        /// No block is empty, passes the end, or is more than may be ahead.
        #[test]
        fn a_block_fits(
            run_bytes in 0u64..1 << 40, most_bytes in 0u64..1 << 30, pending in 0u64..1 << 30,
            read_end in 0u64..1 << 20, ready in 0u64..1 << 24, rest in 0u64..1 << 24,
            blocks in 0usize..4,
        ) {
            let window = Window { run_bytes, most_bytes, pending_bytes: pending, blocks };
            let (ready_end, end) = (read_end + ready, read_end + ready + rest);
            if let Some(block) = next_block(window, read_end, ready_end, end) {
                prop_assert!(block.start == ready_end && !block.is_empty() && block.end <= end);
                prop_assert!(pending + block.len() <= most_bytes && ready <= run_bytes);
                prop_assert!(block.len() <= BLOCK_BYTES_MAX && blocks < BLOCKS_MAX);
            }
        }
    }

    #[test]
    fn a_reader_that_wasted_its_allowance_gets_nothing_until_it_has_read_enough() {
        let mut allowance = Allowance::default();
        assert_eq!(allowance.ahead_bytes_max(4096), START_BYTES_MAX);
        assert_eq!(allowance.ahead_bytes_max(32 * MIB), 32 * MIB, "its own step");
        allowance.read(MIB, true);
        assert_eq!(allowance.ahead_bytes_max(4096), BLOCK_BYTES_MIN + MIB / WASTE_PARTS);
        allowance.wasted(MIB);
        assert_eq!(allowance.ahead_bytes_max(4096), 0);
        allowance.read(9 * MIB, false);
        assert!(allowance.is_doubtful());
        assert_eq!(allowance.ahead_bytes_max(4096), BLOCK_BYTES_MIN);
        allowance.read(7 * MIB, false);
        assert!(!allowance.is_doubtful(), "it has gone on for long enough");
    }
}

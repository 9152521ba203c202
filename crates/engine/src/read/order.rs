//! Which files of a glob are begun ahead of a scan, and how much of each. Pure.
//!
//! - Where opening costs no request, since a listing told size and tag, nothing is begun before
//!   somebody reads: size and time may be all that is wanted of the files.
//! - When the first file of a glob is opened, the scan has nearly always just begun (DuckDB binds
//!   it): the next [`FILES_AHEAD_FIRST`] files follow, within [`BYTES_AHEAD_FIRST`]. That is also
//!   all that a `LIMIT 1` or a filter on the path can fetch in vain; what is still on its way when
//!   the statement ends is stopped.
//! - Each further step in order lets it run further ahead, up to [`FILES_AHEAD_MAX`] files; by no
//!   more than one and a tenth of the steps where the statement may end early. A jump begins anew.
//! - Small files come whole as far as `small` allows; beyond, Parquet files give their footers
//!   only.
//! - Files of text that are a little longer than what opening fetches come whole, where they fit
//!   and others of their glob were read so: a second request each would cost a round trip each.
//! - A catalog may tell of long footers: no more than [`BYTES_AHEAD_MAX`] of files that nobody has
//!   opened yet is out at once, or one file.

use crate::query::WASTE_PARTS;
use crate::read::plan::{footer_window, opening_window};
use penstock_base::ByteRange;
use std::ops::Range;

/// Most files whose first bytes are on their way or unused.
const FILES_AHEAD_MAX: usize = 32;
/// Files ahead after the first step in order; it grows with each further step.
const FILES_AHEAD_START: usize = 8;
/// Files ahead of the first one, before any step.
const FILES_AHEAD_FIRST: usize = 15;
/// Most bytes ahead before any step: on a slow link (150 Mbit/s) they take no longer than its round
/// trip (30 ms).
const BYTES_AHEAD_FIRST: u64 = 512 << 10;
/// Most bytes of files that were begun and not opened yet.
const BYTES_AHEAD_MAX: u64 = 8 << 20;
/// They are kept with the bytes of opened objects, of which they have one part in so many: what was
/// used within half of those bytes is there, and each file counts when it is fetched and again when
/// it is opened. More would drive each other out before they are opened.
const HELD_PARTS_AHEAD: u64 = 8;
/// Threads open neighbouring files in any order; a step of this size is still "next".
pub(super) const STEP_MAX: usize = 16;

/// How far a scan has come in the files of its glob.
#[derive(Debug, Default)]
pub(super) struct Order {
    furthest: Option<usize>,
    steps: usize,
    /// Files before this one were begun or passed.
    pub begun: usize,
}

impl Order {
    /// Whether a file was opened by this order.
    pub fn has_begun(&self) -> bool {
        self.furthest.is_some()
    }

    /// Takes note that a file was opened; the files whose first bytes may be fetched now. `first`:
    /// the first one of all was.
    pub fn opened(&mut self, index: usize, first: bool, count: usize, ends_early: bool) -> Batch {
        match self.furthest {
            None => {
                self.furthest = Some(index);
                // Later ones are opened first where the path was filtered, or by other threads.
                let depth = if first { FILES_AHEAD_FIRST } else { 0 };
                return self.ahead(index, depth, count, BYTES_AHEAD_FIRST);
            }
            Some(furthest) if index > furthest + STEP_MAX || index + STEP_MAX < furthest => {
                *self = Order { furthest: Some(index), steps: 0, begun: index + 1 };
                return Batch::NONE;
            }
            Some(furthest) if index > furthest => {
                self.furthest = Some(index);
                self.steps += 1;
            }
            // Opened again, or by a thread that is a little behind.
            Some(_) => return Batch::NONE,
        }
        let depth = match ends_early {
            true => 1 + self.steps / WASTE_PARTS as usize,
            false => self.steps * FILES_AHEAD_START,
        };
        self.ahead(index, depth.min(FILES_AHEAD_MAX), count, u64::MAX)
    }

    fn ahead(&self, index: usize, depth: usize, count: usize, bytes_max: u64) -> Batch {
        let start = self.begun.max(index + 1);
        let end = (index + 1 + depth).min(count).max(start);
        Batch { files: start..end, bytes_max }
    }
}

/// Files whose first bytes may be fetched at once.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub files: Range<usize>,
    pub bytes_max: u64,
}

impl Batch {
    const NONE: Batch = Batch { files: 0..0, bytes_max: 0 };
}

/// A file that may be begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next {
    pub size_bytes: u64,
    /// Its readers begin at its end.
    pub tail_first: bool,
    /// So much of its end is asked for, whatever its size: it is opened, and nobody told its tag.
    pub opening_bytes: Option<u64>,
}

impl Next {
    /// All of a file of text that is no longer than this.
    fn whole_text(&self, bytes_max: u64) -> Option<ByteRange> {
        let is_text = !self.tail_first && self.opening_bytes.is_none();
        let end = self.size_bytes;
        (is_text && end <= bytes_max).then_some(ByteRange { start: 0, end })
    }

    fn window(&self, window_bytes: u64, grid_bytes: u64) -> ByteRange {
        let Next { size_bytes: end, tail_first, opening_bytes } = *self;
        match opening_bytes {
            Some(bytes) => ByteRange { start: end.saturating_sub(bytes), end },
            None => opening_window(end, window_bytes, tail_first, grid_bytes).unwrap_or(NOTHING),
        }
    }
}

/// How much may be ahead of a scan of files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed {
    /// What opening fetches of a file.
    pub window_bytes: u64,
    /// Their readers' reads begin at multiples of this.
    pub grid_bytes: u64,
    /// Of this batch.
    pub bytes_max: u64,
    /// Of files that are no Parquet, of which the first bytes are a large part: as much as was read
    /// of others, or as before the first step.
    pub text_bytes_max: u64,
    /// Small files come whole if all of the batch are no more than this.
    pub whole_bytes_max: u64,
    /// A file of text comes whole up to this length.
    pub text_whole_bytes_max: u64,
    /// Ahead of it already.
    pub out_bytes: u64,
    /// Kept of opened objects.
    pub held_bytes: u64,
}

/// What is fetched of the files of a batch, in their order; fewer than they are where all would be
/// more than is allowed.
pub(super) fn windows(files: &[Next], allowed: &Allowed) -> Vec<ByteRange> {
    let Allowed { grid_bytes, bytes_max, out_bytes, held_bytes, .. } = *allowed;
    let whole = files.iter().map(|file| file.window(allowed.window_bytes, grid_bytes));
    let is_small = whole.clone().map(|window| window.len()).sum::<u64>() <= allowed.whole_bytes_max;
    let is_text = files.iter().all(|file| !file.tail_first);
    let text_max = allowed.text_bytes_max.max(BYTES_AHEAD_FIRST);
    let ahead_max = if is_text { BYTES_AHEAD_MAX.min(text_max) } else { BYTES_AHEAD_MAX };
    let ahead_max = ahead_max.min(held_bytes / HELD_PARTS_AHEAD);
    let mut left = bytes_max.min(ahead_max.saturating_sub(out_bytes));
    // Behind the first batch the next file is opened ahead, however long its footer is.
    let mut may_pass = bytes_max > BYTES_AHEAD_MAX && out_bytes == 0;
    whole
        .zip(files)
        .map_while(|(window, file)| {
            let as_told = file.opening_bytes.is_some() || !file.tail_first;
            let window = if is_small || as_told || window.is_empty() {
                window
            } else {
                footer_window(file.size_bytes, grid_bytes)
            };
            // One that only does not fit yet is left to the next step.
            let text = file.whole_text(allowed.text_whole_bytes_max.min(bytes_max).min(ahead_max));
            let window = text.unwrap_or(window);
            let fits = window.len() <= left || may_pass;
            left = left.saturating_sub(window.len());
            may_pass = false;
            fits.then_some(window)
        })
        .collect()
}

const NOTHING: ByteRange = ByteRange { start: 0, end: 0 };

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WHOLE: u64 = 512 << 10;

    fn allowed(window_bytes: u64, bytes_max: u64, out_bytes: u64) -> Allowed {
        let text_bytes_max = u64::MAX;
        Allowed {
            window_bytes,
            grid_bytes: 1,
            bytes_max,
            text_bytes_max,
            whole_bytes_max: WHOLE,
            text_whole_bytes_max: 0,
            out_bytes,
            held_bytes: u64::MAX,
        }
    }

    #[test]
    fn the_first_file_begins_a_few_and_each_step_more() {
        let mut order = Order::default();
        assert_eq!(
            order.opened(0, true, 100, false),
            Batch { files: 1..16, bytes_max: BYTES_AHEAD_FIRST }
        );
        order.begun = 16;
        assert_eq!(order.opened(0, true, 100, false), Batch::NONE);
        assert_eq!(order.opened(1, false, 100, false).files, 16..16);
        assert_eq!(order.opened(2, false, 100, false).files, 16..19);
    }

    #[test]
    fn a_jump_begins_anew_and_a_first_file_further_on_begins_nothing() {
        let mut order = Order::default();
        order.opened(0, true, 1000, false);
        order.opened(1, false, 1000, false);
        assert_eq!(order.opened(500, false, 1000, false), Batch::NONE);
        assert_eq!(order.opened(501, false, 1000, false).files, 502..510);
        assert!(Order::default().opened(7, false, 1000, false).files.is_empty());
    }

    fn told(size_bytes: u64, tail_first: bool) -> Next {
        Next { size_bytes, tail_first, opening_bytes: None }
    }

    #[test]
    fn a_small_batch_comes_whole_and_a_larger_one_by_its_footers() {
        let small = windows(&[told(20 << 10, true); 9], &allowed(256 << 10, BYTES_AHEAD_FIRST, 0));
        assert_eq!(small, [ByteRange { start: 0, end: 20 << 10 }; 9]);
        let large = windows(&[told(200 << 10, true); 9], &allowed(256 << 10, BYTES_AHEAD_FIRST, 0));
        assert_eq!(large, [ByteRange { start: 184 << 10, end: 200 << 10 }; 9]);
        let text = windows(&[told(200 << 10, false); 9], &allowed(256 << 10, BYTES_AHEAD_FIRST, 0));
        assert_eq!(text, [ByteRange { start: 0, end: 200 << 10 }; 2]);
        assert!(
            windows(&[told(200, true); 9], &allowed(0, 100, 0)).iter().all(ByteRange::is_empty)
        );
        let at_first = Allowed { text_bytes_max: 0, ..allowed(256 << 10, u64::MAX, 0) };
        let count = |read: u64, out: u64| {
            let allowed = Allowed { text_bytes_max: read, out_bytes: out, ..at_first };
            windows(&[told(200 << 10, false); 20], &allowed).len()
        };
        // Text is ahead by as much as was read of it.
        assert_eq!([count(0, 0), count(0, 512 << 10), count(2 << 20, 0)], [2, 0, 10]);
    }

    #[test]
    fn text_comes_whole_where_it_fits_and_else_its_head() {
        let of = |sizes: &[u64], bytes_max: u64| {
            let files: Vec<_> = sizes.iter().map(|kib| told(kib << 10, false)).collect();
            let text_whole_bytes_max = 1 << 20;
            let allowed = Allowed { text_whole_bytes_max, ..allowed(256 << 10, bytes_max, 0) };
            let windows = windows(&files, &allowed);
            assert!(windows.iter().all(|window| window.start == 0));
            windows.iter().map(|window| window.end >> 10).collect::<Vec<_>>()
        };
        assert_eq!(of(&[337; 5], BYTES_AHEAD_FIRST), [337]);
        assert_eq!(of(&[337; 5], 1 << 20), [337; 3]);
        assert_eq!(of(&[300, 700, 100], 600 << 10), [300, 256], "only the head ever fits");
        assert_eq!(of(&[1025; 2], 4 << 20), [256; 2], "longer");
        let parquet = [told(337 << 10, true)];
        let allowed = Allowed { text_whole_bytes_max: 1 << 20, ..allowed(0, u64::MAX, 0) };
        assert!(windows(&parquet, &allowed)[0].is_empty());
    }

    #[test]
    fn long_footers_that_a_catalog_tells_of_are_bounded_by_their_bytes() {
        let footer = |bytes| Next { opening_bytes: Some(bytes), ..told(64 << 20, true) };
        let count = |bytes: u64, max: u64, out: u64| {
            windows(&[footer(bytes); 32], &allowed(256 << 10, max, out)).len()
        };
        assert_eq!(count(3 << 20, BYTES_AHEAD_FIRST, 0), 0, "a LIMIT 1 pays for none");
        assert_eq!(count(3 << 20, u64::MAX, 0), 2);
        assert_eq!(count(3 << 20, u64::MAX, 6 << 20), 0);
        assert_eq!(count(256 << 10, u64::MAX, 0), 32);
        // The next one always, by itself.
        assert_eq!(count(9 << 20, u64::MAX, 0), 1);
        assert_eq!(count(9 << 20, u64::MAX, 1), 0);
        let end = ByteRange { start: 61 << 20, end: 64 << 20 };
        assert_eq!(windows(&[footer(3 << 20)], &allowed(256 << 10, u64::MAX, 0)), [end]);
    }

    #[test]
    fn where_the_statement_may_end_early_one_file_is_ahead_and_a_tenth() {
        let mut order = Order::default();
        for (index, ahead) in [(0, 15), (1, 1), (2, 1), (9, 1), (10, 2), (29, 3), (319, 32)] {
            for passed in order.furthest.map_or(0, |furthest| furthest + 1)..index {
                order.opened(passed, passed == 0, 999, true);
            }
            order.begun = 0;
            assert_eq!(
                order.opened(index, index == 0, 999, true).files.end,
                index + 1 + ahead,
                "{index}"
            );
        }
    }

    proptest! {
        #[test]
        fn nothing_is_begun_twice_nor_too_far_ahead(
            steps in prop::collection::vec((0usize..3, 0usize..40), 1..200), count in 1usize..300,
        ) {
            let mut order = Order::default();
            let mut index = 0;
            let mut begun = std::collections::HashSet::new();
            for (step, taken) in steps {
                index = (index + step).min(count - 1);
                let files = order.opened(index, index == 0, count, false).files;
                let taken = files.start..(files.start + taken).min(files.end);
                order.begun = order.begun.max(taken.end);
                for file in taken {
                    prop_assert!(file > index && file <= index + FILES_AHEAD_MAX && file < count);
                    prop_assert!(begun.insert(file), "{} twice", file);
                }
            }
        }

        #[test]
        fn windows_lie_in_their_files_and_within_the_bytes(
            files in prop::collection::vec((0u64..2_000_000, any::<bool>()), 0..40),
            window_bytes in 0u64..(1 << 19), bytes_max in 0u64..(1 << 20),
            out_bytes in 0u64..(16 << 20), held_bytes in 0u64..(64 << 20),
            text_whole_bytes_max in 0u64..(1 << 21),
        ) {
            let next: Vec<_> = files.iter().map(|&(size, tail)| told(size, tail)).collect();
            let allowed = allowed(window_bytes, bytes_max, out_bytes);
            let allowed = Allowed { text_whole_bytes_max, ..allowed };
            let windows = windows(&next, &Allowed { held_bytes, ..allowed });
            let sum = windows.iter().map(ByteRange::len).sum::<u64>();
            prop_assert!(sum == 0 || sum + out_bytes <= BYTES_AHEAD_MAX);
            prop_assert!(sum == 0 || sum + out_bytes <= held_bytes / HELD_PARTS_AHEAD);
            prop_assert!(windows.iter().map(ByteRange::len).sum::<u64>() <= bytes_max);
            for (window, (size, tail_first)) in windows.iter().zip(files) {
                prop_assert!(window.end <= size);
                let at_its_end = if tail_first { window.end == size } else { window.start == 0 };
                prop_assert!(window.is_empty() || at_its_end);
            }
        }
    }
}

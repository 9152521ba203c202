//! What of one file is fetched or being fetched. It decides which pieces are asked for with a read,
//! and which are dropped. Pure; the bytes are the pieces' matter.

use super::history::History;
use super::{AHEAD_BYTES, PIECE_BYTES, PIECES, Piece};
use crate::volume::table::PAGE_BYTES;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// Where a file is looked at to tell whether all of it is being read: right before a read.
const NEAR_BYTES: u64 = 16 << 20;
/// A file of so many bytes at most is fetched whole: it is little of what may be held, and read
/// before anything tells in which order.
const WHOLE_BYTES: u64 = 16 << 20;
/// That begins with so many blocks read of it. The first is of its metadata, read when it is
/// attached: who only attaches a database fetches nothing of it.
const WHOLE_FROM: u32 = 2;
/// Less than this before a read tells nothing.
const NEAR_LEAST_BYTES: u64 = 2 << 20;
/// Bytes that are read of a file until a piece that nobody came for may be dropped: twice what
/// several readers in order take until they come for the last of all pieces.
const STALE_BYTES: u64 = 2 * PIECES as u64 * PIECE_BYTES;
/// Reads in a row that find nothing, after which nobody will come for what is held.
const MISSES: u32 = 16;
/// Guessing rests while more was dropped unread than this share of what was read.
const WASTED_SHARE: u64 = 8;
/// Bytes after which half of what was read and dropped before is forgotten.
const REMEMBERED_BYTES: u64 = 256 << 20;

/// The pieces of one file, and what was read of it.
#[derive(Default)]
pub(crate) struct Window {
    history: History,
    /// How many blocks were read of it.
    blocks: u32,
    /// By their starts; they do not overlap.
    pieces: BTreeMap<u64, Held>,
    /// Their starts, the oldest first; some are gone.
    order: VecDeque<u64>,
    read_bytes: u64,
    /// Of what was fetched: what was read to its end, and what was dropped before.
    used_bytes: u64,
    wasted_bytes: u64,
    misses: u32,
}

struct Held {
    piece: Arc<Piece>,
    /// How much had been read of the file when it was asked for.
    since_bytes: u64,
}

/// What a read finds, and what it sets off.
#[derive(Default)]
pub(crate) struct Found {
    /// Those that hold a part of it, in order.
    pub here: Vec<Arc<Piece>>,
    /// To be fetched.
    pub asked: Vec<Arc<Piece>>,
    /// Needed no more, with those that this read finishes.
    pub dropped: Vec<Arc<Piece>>,
}

impl Window {
    /// Notes a read of whole pages of a file that ends at `file_end`.
    pub(crate) fn read(&mut self, start: u64, end: u64, file_end: u64) -> Found {
        self.blocks = self.blocks.saturating_add(1);
        let before = self.history.note(start, end);
        self.read_bytes += end - start;
        let mut found = Found { here: self.overlapping(start, end), ..Found::default() };
        self.misses = if found.here.is_empty() { self.misses + 1 } else { 0 };
        for piece in &found.here {
            // Blocks are read once: DuckDB keeps them itself.
            if piece.range.end <= end {
                self.pieces.remove(&piece.range.start);
                self.used_bytes += piece.range.end - piece.range.start;
                found.dropped.push(piece.clone());
            }
        }
        if self.used_bytes > REMEMBERED_BYTES {
            (self.used_bytes, self.wasted_bytes) = (self.used_bytes / 2, self.wasted_bytes / 2);
        }
        let (reach, file_end) = (self.reach(start, before), file_end / PAGE_BYTES * PAGE_BYTES);
        if self.blocks == WHOLE_FROM && file_end <= WHOLE_BYTES {
            // Blocks lie one behind the other: none is in two pieces.
            self.ask(start % PIECE_BYTES..file_end, file_end, &mut found);
        } else if reach >= end - start && self.known(end) < end + reach.div_ceil(2) {
            // Several at once are fewer calls: only when half of what is wanted ahead is used up.
            self.ask(end..(end + reach).min(file_end), file_end, &mut found);
        }
        found
    }

    /// How far ahead of a read is worth fetching. `before` bytes before it were read without a gap.
    /// Where most of what lies before it was read or will be, it is one of several readers that
    /// take the parts of a file in turn, and what follows is read too, gap or not.
    fn reach(&self, start: u64, before: u64) -> u64 {
        let reach = before.min(AHEAD_BYTES);
        let near = start.saturating_sub(NEAR_BYTES)..start;
        let near_bytes = near.end - near.start;
        let is_guessing_bad = self.wasted_bytes * WASTED_SHARE > self.used_bytes;
        if reach == AHEAD_BYTES || near_bytes < NEAR_LEAST_BYTES || is_guessing_bad {
            return reach;
        }
        let held = self.pieces.range(near.clone()).map(|(_, held)| &held.piece.range);
        let held_bytes: u64 = held.map(|range| range.end.min(near.end) - range.start).sum();
        let known_bytes = self.history.read_within(near) + held_bytes;
        match known_bytes >= near_bytes / 4 * 3 {
            true => reach.max(known_bytes.min(AHEAD_BYTES)),
            false => reach,
        }
    }

    /// Up to where all from `at` on is read or here.
    fn known(&self, at: u64) -> u64 {
        let mut at = at;
        loop {
            let unread = self.history.unread(at);
            match self.overlapping(unread, unread + 1).first() {
                Some(piece) => at = piece.range.end,
                None => return unread,
            }
        }
    }

    /// Asks for what of a range is neither read nor here.
    fn ask(&mut self, range: Range<u64>, file_end: u64, found: &mut Found) {
        loop {
            let last = found.asked.last();
            let at = self.known(last.map_or(range.start, |piece| piece.range.end));
            if at >= range.end || !self.make_room(found) {
                return;
            }
            let next = self.pieces.range(at..).next().map_or(u64::MAX, |(start, _)| *start);
            let piece = Piece::new(at..(at + PIECE_BYTES).min(file_end).min(next));
            self.order.push_back(piece.range.start);
            let held = Held { piece: piece.clone(), since_bytes: self.read_bytes };
            self.pieces.insert(piece.range.start, held);
            found.asked.push(piece);
        }
    }

    /// Drops the oldest pieces until there is room for one more; false if somebody may still come
    /// for them. Dropped earlier, they would be fetched in vain as soon as there are many readers.
    fn make_room(&mut self, found: &mut Found) -> bool {
        while self.pieces.len() >= PIECES {
            let Some(oldest) = self.order.front() else { return false };
            if let Some(held) = self.pieces.get(oldest) {
                let is_stale = self.read_bytes - held.since_bytes > STALE_BYTES;
                if !(is_stale || self.misses >= MISSES) || !held.piece.is_idle() {
                    return false;
                }
                self.wasted_bytes += held.piece.range.end - held.piece.range.start;
                found.dropped.extend(self.pieces.remove(oldest).map(|held| held.piece));
            }
            self.order.pop_front();
        }
        if self.order.len() > 4 * PIECES {
            self.order.retain(|start| self.pieces.contains_key(start));
        }
        true
    }

    fn overlapping(&self, start: u64, end: u64) -> Vec<Arc<Piece>> {
        let before = self.pieces.range(..start).next_back().map(|row| row.1);
        let before = before.filter(|held| held.piece.range.end > start);
        let within = self.pieces.range(start..end).map(|row| row.1);
        before.into_iter().chain(within).map(|held| held.piece.clone()).collect()
    }

    /// Drops what overlaps a range that was written or given away.
    pub(crate) fn forget(&mut self, start: u64, end: u64) -> Vec<Arc<Piece>> {
        let gone = self.overlapping(start, end);
        for piece in &gone {
            self.pieces.remove(&piece.range.start);
        }
        gone
    }

    /// Drops all, and begins anew.
    pub(crate) fn close(&mut self) -> Vec<Arc<Piece>> {
        std::mem::take(self).pieces.into_values().map(|held| held.piece).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FILE_END: u64 = 1 << 34;

    /// Reads blocks in order; gives the ranges that were asked for with each.
    fn scan(window: &mut Window, first: u64, count: u64) -> Vec<Vec<std::ops::Range<u64>>> {
        let read = |index| {
            let at = (first + index) * PIECE_BYTES;
            let found = window.read(at, at + PIECE_BYTES, FILE_END);
            found.asked.iter().map(|piece| piece.range.clone()).collect()
        };
        (0..count).map(read).collect()
    }

    fn blocks(range: std::ops::Range<u64>) -> Vec<std::ops::Range<u64>> {
        range.map(|index| index * PIECE_BYTES..(index + 1) * PIECE_BYTES).collect()
    }

    #[test]
    fn the_second_block_in_order_begins_it_and_it_grows() {
        let mut window = Window::default();
        let asked = scan(&mut window, 10, 6);
        assert_eq!(asked[..3], [vec![], blocks(12..13), blocks(13..15)]);
        // Only when half of what is wanted is used up.
        assert_eq!(asked[3..], [blocks(15..17), vec![], blocks(17..21)]);
        scan(&mut window, 16, 100);
        let ahead = window.known(116 * PIECE_BYTES) - 116 * PIECE_BYTES;
        assert!((AHEAD_BYTES / 2..=AHEAD_BYTES).contains(&ahead), "{ahead}");
    }

    proptest! {
        #[test]
        fn a_small_file_is_fetched_whole_with_its_second_block(
            first in 0u64..64,
            second in 0u64..64,
            header in 0u64..64,
            end in PAGE_BYTES..2 * WHOLE_BYTES,
        ) {
            let header = header * PAGE_BYTES;
            let pages_end = end / PAGE_BYTES * PAGE_BYTES;
            let block = |index: u64| {
                let start = header + index * PIECE_BYTES;
                start..(start + PIECE_BYTES).min(pages_end)
            };
            let (first, second) = (block(first), block(second));
            prop_assume!(first != second && !first.is_empty() && !second.is_empty());
            let mut window = Window::default();
            prop_assert!(window.read(first.start, first.end, end).asked.is_empty());
            let found = window.read(second.start, second.end, end);
            let asked: Vec<_> = found.asked.iter().map(|piece| piece.range.clone()).collect();
            if end >= WHOLE_BYTES + PAGE_BYTES {
                prop_assert!(asked.len() <= 1, "it is too long");
                return Ok(());
            }
            let mut all = asked.clone();
            all.extend([first.clone(), second.clone()]);
            all.sort_by_key(|range| range.start);
            prop_assert_eq!(all[0].start, header);
            prop_assert!(all.windows(2).all(|pair| pair[0].end == pair[1].start), "{:?}", all);
            prop_assert_eq!(all[all.len() - 1].end, pages_end);
            prop_assert!(asked.iter().all(|range| range.start % PIECE_BYTES == header));
            prop_assert!(asked.len() < PIECES);
            // Once, and again for who opens it next.
            let dropped = window.close();
            prop_assert_eq!(dropped.len(), asked.len());
            prop_assert!(window.read(first.start, first.end, end).asked.is_empty());
            let again = window.read(second.start, second.end, end).asked.len();
            prop_assert_eq!(again, asked.len());
        }
    }

    #[test]
    fn reads_here_and_there_ask_for_nothing() {
        let mut window = Window::default();
        for place in [7, 3, 90, 50, 20, 1000, 500] {
            assert_eq!(scan(&mut window, place, 1).concat(), []);
        }
    }

    #[test]
    fn nothing_is_asked_for_twice_or_behind_the_end_and_little_is_held() {
        let mut window = Window::default();
        let end = 40 * PIECE_BYTES + PAGE_BYTES + 1;
        let mut asked = Vec::new();
        for index in 0..41 {
            let at = index * PIECE_BYTES;
            let found = window.read(at, (at + PIECE_BYTES).min(end - 1), end);
            asked.extend(found.asked.iter().map(|piece| piece.range.clone()));
        }
        assert_eq!(asked.last().map(|range| range.end), Some(end - 1));
        assert!(asked.windows(2).all(|pair| pair[0].end == pair[1].start), "{asked:?}");
        assert!(window.pieces.is_empty(), "all were read");
        // Two readers in order, and pieces that nobody comes for.
        for index in 0..300 {
            for place in [1000, 3000, 5000 + 700 * (index / 4)] {
                scan(&mut window, place + index, 1);
            }
            assert!(window.pieces.len() <= PIECES && window.order.len() <= 4 * PIECES + 1);
        }
    }

    /// Blocks of row groups as a number of threads takes them: each reads the columns of one side
    /// by side, and takes the next when it is done.
    fn interleaved(threads: u64, groups: u64) -> Vec<u64> {
        const COLUMNS: u64 = 6;
        const BLOCKS: u64 = 4;
        let mut next = (0..groups).map(|group| {
            let first = group * COLUMNS * BLOCKS;
            let block = move |at| first + at % COLUMNS * BLOCKS + at / COLUMNS;
            (0..COLUMNS * BLOCKS).map(block).collect::<VecDeque<u64>>()
        });
        let mut active: Vec<_> = next.by_ref().take(threads as usize).collect();
        let (mut order, mut turn) = (Vec::new(), 0);
        while !active.is_empty() {
            // Out of step, but always the same way.
            turn = (turn * 5 + 3) % 1021;
            let at = turn % active.len();
            order.extend(active[at].pop_front());
            if active[at].is_empty() {
                match next.next() {
                    Some(group) => active[at] = group,
                    None => drop(active.swap_remove(at)),
                }
            }
        }
        order
    }

    #[test]
    fn several_threads_that_read_all_of_a_file_find_most_of_it_here() {
        for (threads, direct_most) in [(1, 20), (2, 40), (4, 120), (8, 500)] {
            let order = interleaved(threads, 80);
            let mut window = Window::default();
            let mut direct = 0;
            for block in &order {
                let at = block * PIECE_BYTES;
                let end = order.len() as u64 * PIECE_BYTES;
                direct += u64::from(window.read(at, at + PIECE_BYTES, end).here.is_empty());
            }
            assert!(direct <= direct_most, "{threads} threads: {direct} of {}", order.len());
            let wasted = window.wasted_bytes / PIECE_BYTES;
            assert!(wasted <= order.len() as u64 / 20, "{threads} threads: {wasted} in vain");
        }
    }

    #[test]
    fn a_reader_elsewhere_gets_room_from_what_nobody_comes_for() {
        let mut window = Window::default();
        for place in 0..6 {
            scan(&mut window, place * 1000, 30);
        }
        assert_eq!(window.pieces.len(), PIECES, "all given up, none stale");
        let asked = scan(&mut window, 9000, 2 * u64::from(MISSES));
        assert!(asked.concat().iter().any(|range| range.start > 9000 * PIECE_BYTES));
        assert!(window.pieces.len() <= PIECES);
    }

    #[test]
    fn what_nobody_comes_for_goes_and_guessing_rests_until_it_is_good_again() {
        let mut window = Window::default();
        scan(&mut window, 0, 30);
        let left = window.pieces.len();
        // Others read on, and find what they want.
        scan(&mut window, 1000, 60);
        let is_left = |window: &Window| window.pieces.contains_key(&(30 * PIECE_BYTES));
        assert!(left > 0 && is_left(&window), "they may still come");
        let mut place = 1060;
        while is_left(&window) && place < 3000 {
            scan(&mut window, place, 1);
            // So many that all the room is taken.
            for other in 1..8 {
                scan(&mut window, 6000 * other + place, 1);
            }
            place += 1;
        }
        assert!(!is_left(&window) && window.read_bytes > STALE_BYTES);
        window.wasted_bytes = window.used_bytes;
        let gap = window.known(place * PIECE_BYTES) + 8 * PIECE_BYTES;
        assert_eq!(window.reach(gap, 0), 0, "most of what lies before it is known");
        scan(&mut window, place, 16 * REMEMBERED_BYTES / PIECE_BYTES);
        place += 16 * REMEMBERED_BYTES / PIECE_BYTES;
        assert!(window.reach((place + 4) * PIECE_BYTES, 0) > 0, "guessed again");
    }

    #[test]
    fn what_was_written_is_dropped() {
        let mut window = Window::default();
        scan(&mut window, 0, 8);
        let held = window.pieces.len();
        let gone = window.forget(9 * PIECE_BYTES + 1, 10 * PIECE_BYTES);
        assert_eq!(gone.len(), 1);
        assert_eq!(window.pieces.len(), held - 1);
    }
}

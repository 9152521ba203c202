//! What of one file is fetched or being fetched. It decides which pieces are asked for with a read,
//! and which are dropped. Pure; the bytes are the pieces' matter.

use super::history::History;
use super::{AHEAD_BYTES, PIECE_BYTES, PIECES, Piece};
use crate::volume::table::PAGE_BYTES;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The pieces of one file, and what was read of it.
#[derive(Default)]
pub(crate) struct Window {
    history: History,
    /// By their starts; they do not overlap.
    pieces: BTreeMap<u64, Arc<Piece>>,
    /// Their starts, the oldest first; some are gone.
    order: VecDeque<u64>,
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
    /// Where the read ends.
    end: u64,
}

impl Window {
    /// Notes a read of whole pages of a file that ends at `file_end`.
    pub(crate) fn read(&mut self, start: u64, end: u64, file_end: u64) -> Found {
        let before = self.history.note(start, end);
        let mut found = Found { here: self.overlapping(start, end), end, ..Found::default() };
        for piece in &found.here {
            // Blocks are read once: DuckDB keeps them itself.
            if piece.range.end <= end {
                self.pieces.remove(&piece.range.start);
                found.dropped.push(piece.clone());
            }
        }
        let (reach, file_end) = (before.min(AHEAD_BYTES), file_end / PAGE_BYTES * PAGE_BYTES);
        // Several at once are fewer calls: only when half of what is wanted ahead is used up.
        if before >= end - start && self.known(end) < end + reach.div_ceil(2) {
            self.ask((end + reach).min(file_end), file_end, &mut found);
        }
        found
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

    /// Asks for what is neither read nor here up to `to`.
    fn ask(&mut self, to: u64, file_end: u64, found: &mut Found) {
        loop {
            let at = self.known(found.asked.last().map_or(found.end, |piece| piece.range.end));
            if at >= to || !self.make_room(found) {
                return;
            }
            let next = self.pieces.range(at..).next().map_or(u64::MAX, |(start, _)| *start);
            let piece = Piece::new(at..(at + PIECE_BYTES).min(file_end).min(next));
            self.order.push_back(piece.range.start);
            self.pieces.insert(piece.range.start, piece.clone());
            found.asked.push(piece);
        }
    }

    /// Drops the oldest pieces until there is room for one more; false if they are on their way.
    fn make_room(&mut self, found: &mut Found) -> bool {
        while self.pieces.len() >= PIECES {
            let Some(oldest) = self.order.front() else { return false };
            if let Some(piece) = self.pieces.get(oldest) {
                if !piece.is_idle() {
                    return false;
                }
                found.dropped.extend(self.pieces.remove(oldest));
            }
            self.order.pop_front();
        }
        if self.order.len() > 4 * PIECES {
            self.order.retain(|start| self.pieces.contains_key(start));
        }
        true
    }

    fn overlapping(&self, start: u64, end: u64) -> Vec<Arc<Piece>> {
        let before = self.pieces.range(..start).next_back().map(|(_, piece)| piece);
        let before = before.filter(|piece| piece.range.end > start);
        before.into_iter().chain(self.pieces.range(start..end).map(|row| row.1)).cloned().collect()
    }

    /// Drops what overlaps a range that was written or given away.
    pub(crate) fn forget(&mut self, start: u64, end: u64) -> Vec<Arc<Piece>> {
        let gone = self.overlapping(start, end);
        for piece in &gone {
            self.pieces.remove(&piece.range.start);
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

//! Which ranges of a file were read lately. It decides how much of what lies before a read was read
//! too: that is how far it is worth reading ahead. Pure.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges that are remembered apart; a reader of more places than this reads in no order.
const RANGES: usize = 256;
/// Bytes after which what was read before is forgotten, so that a second pass starts anew.
const BYTES: u64 = 256 << 20;

/// What was read lately: the older half, and the newer one.
#[derive(Debug, Default)]
pub(crate) struct History {
    old: Ranges,
    new: Ranges,
}

#[derive(Debug, Default)]
struct Ranges {
    /// Ends by starts; ranges that touch are one.
    ends: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Ranges {
    fn add(&mut self, start: u64, end: u64) {
        self.bytes += end - start;
        let (mut from, mut to) = (start, end);
        if let Some((before, its_end)) = self.ends.range(..=start).next_back()
            && *its_end >= start
        {
            (from, to) = (*before, to.max(*its_end));
        }
        while let Some((next, its_end)) = self.ends.range(from..=to).next() {
            let (next, its_end) = (*next, *its_end);
            to = to.max(its_end);
            self.ends.remove(&next);
        }
        self.ends.insert(from, to);
    }

    /// Where the range begins that ends at or behind `at`; else `at`.
    fn start(&self, at: u64) -> u64 {
        let before = self.ends.range(..at).next_back();
        before.filter(|(_, end)| **end >= at).map_or(at, |(start, _)| *start)
    }

    fn is_full(&self) -> bool {
        self.ends.len() >= RANGES || self.bytes >= BYTES
    }

    /// Where the first range begins that begins at `at` or behind it.
    fn next(&self, at: u64) -> u64 {
        self.ends.range(at..).next().map_or(u64::MAX, |(start, _)| *start)
    }

    /// Where the range ends that holds `at`; else `at`.
    fn end(&self, at: u64) -> u64 {
        let before = self.ends.range(..=at).next_back();
        before.map_or(at, |(_, end)| at.max(*end))
    }
}

impl History {
    /// Notes a read; gives how many bytes without a gap before it were read lately.
    pub(crate) fn note(&mut self, start: u64, end: u64) -> u64 {
        if self.unread(start) >= end {
            // Read again: another pass, for which the last one says nothing.
            *self = History::default();
        }
        let newer = self.new.start(start);
        let before = self.old.start(newer);
        self.new.add(start, end);
        if self.new.is_full() {
            self.old = std::mem::take(&mut self.new);
        }
        start - before.min(newer)
    }

    /// The first byte from `at` on that was not read lately.
    pub(crate) fn unread(&self, at: u64) -> u64 {
        let mut end = at;
        loop {
            let next = self.old.end(self.new.end(end));
            if next == end {
                return end;
            }
            end = next;
        }
    }

    /// How many bytes of a range were read lately.
    pub(crate) fn read_within(&self, range: Range<u64>) -> u64 {
        let (mut at, mut bytes) = (range.start, 0);
        while at < range.end {
            let end = self.unread(at).min(range.end);
            bytes += end - at;
            // None begins at `end`: it would belong to what was just counted.
            at = self.old.next(end).min(self.new.next(end));
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_read_behind_others_is_in_order() {
        let mut history = History::default();
        assert_eq!(history.note(100, 110), 0);
        assert_eq!(history.note(120, 130), 0, "there is a gap before it");
        assert_eq!(history.note(110, 120), 10);
        assert_eq!(history.note(130, 140), 30);
        assert_eq!(history.unread(105), 140);
        assert_eq!(history.unread(140), 140);
    }

    #[test]
    fn what_was_read_long_ago_is_forgotten() {
        let mut history = History::default();
        let step = BYTES / 4;
        for pass in 0..3 {
            assert_eq!(history.note(pass * 100 * BYTES, pass * 100 * BYTES + step), 0);
            for at in 1..4 {
                history.note(pass * 100 * BYTES + at * step, pass * 100 * BYTES + (at + 1) * step);
            }
        }
        assert_eq!(history.note(step, 2 * step), 0);
        for place in 0..3 * RANGES as u64 {
            history.note(1000 * BYTES + 2 * place, 1000 * BYTES + 2 * place + 1);
        }
        assert!(history.old.ends.len() + history.new.ends.len() <= 2 * RANGES);
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_list_of_bytes(
            reads in prop::collection::vec((0u64..90, 1u64..9), 0..60),
        ) {
            let (mut history, mut seen) = (History::default(), [false; 100]);
            for (start, length) in reads {
                if seen[start as usize..(start + length) as usize].iter().all(|it| *it) {
                    seen = [false; 100];
                }
                let behind = seen[..start as usize].iter().rev().take_while(|it| **it).count();
                prop_assert_eq!(history.note(start, start + length), behind as u64);
                seen[start as usize..(start + length) as usize].fill(true);
                let ahead = seen[start as usize..].iter().take_while(|it| **it).count();
                prop_assert_eq!(history.unread(start), start + ahead as u64);
                let within = seen[start as usize / 2..].iter().filter(|it| **it).count();
                prop_assert_eq!(history.read_within(start / 2..100), within as u64);
            }
        }
    }
}

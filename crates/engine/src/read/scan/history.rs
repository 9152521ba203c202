//! What columns were read for in the row groups of a scan that are over. Pure.

use crate::query::WASTE_PARTS;

/// The last row groups that are over: a column that was read in all of them is expected.
const MEMORY: u32 = 4;
/// Of so many row groups it is known in how many a column was not read.
const KNOWN_MAX: u32 = 32;
/// Fewer row groups prove nothing.
const PROOF_MIN: u32 = 2;

/// How much is known of what is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// It was so lately, and was not in more than a tenth of what is known.
    Likely,
    /// Where it is always expected, no more than a tenth is in vain.
    Sure,
    /// And that not by one row group alone.
    Proven,
}

impl Trust {
    /// What is sure is looked for by itself, and so is what is not.
    pub fn class(self) -> usize {
        usize::from(self == Trust::Likely)
    }
}

/// Whether a column was read in the last row groups, the newest in the lowest bit.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    read: u32,
    count: u32,
}

impl Past {
    fn push(&mut self, is_read: bool) {
        self.read = self.read << 1 | u32::from(is_read);
        self.count = (self.count + 1).min(KNOWN_MAX);
    }

    /// As in the row group before.
    fn push_again(&mut self) {
        self.push(self.count == 0 || self.read & 1 == 1);
    }

    /// The row groups of which something is known.
    fn known(self) -> u32 {
        u32::MAX.checked_shr(KNOWN_MAX - self.count).unwrap_or(0)
    }

    /// Whether it was read in the last ones of these.
    fn is_in_last(self, of: u32) -> bool {
        // Where the lowest bits are gone, what is left are the older ones.
        let older = (0..MEMORY).fold(of, |left, _| left & left.wrapping_sub(1));
        let last = of & !older;
        self.read & last == last
    }

    /// Whether it is to be expected, by what happened in these.
    fn is_expected(self, of: u32, trust: Trust) -> bool {
        let of = of & self.known();
        let missed = u64::from((of & !self.read).count_ones());
        let is_sure = missed * WASTE_PARTS <= u64::from(of.count_ones());
        self.is_in_last(of)
            && match trust {
                Trust::Likely => !is_sure,
                Trust::Sure => is_sure,
                Trust::Proven => is_sure && of.count_ones() >= PROOF_MIN,
            }
    }
}

/// How one column was used, in row groups that are over.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct History {
    /// Skipped ones among them.
    all: Past,
    /// Of those that were read: the same bit of all columns is the same row group.
    entered: Past,
    /// In any row group, over or not.
    pub is_touched: bool,
}

impl History {
    /// Takes note of a row group that is over.
    pub fn push(&mut self, is_read: bool, was_entered: bool) {
        self.all.push(is_read);
        if was_entered {
            self.entered.push(is_read);
        }
    }

    /// Takes note of one that was read, but did not have to be fetched: nothing is learned from it.
    pub fn push_nothing(&mut self, was_entered: bool) {
        if was_entered {
            self.entered.push_again();
        }
    }

    /// In a row group that lies ahead.
    pub fn is_expected(self) -> bool {
        self.is_touched && self.all.is_in_last(self.all.known())
    }

    /// In a row group that lies ahead, and how sure that is.
    pub fn is_expected_as(self, trust: Trust) -> bool {
        self.is_touched && self.all.is_expected(self.all.known(), trust)
    }

    /// In row groups that lie ahead, by how sure that is.
    pub fn outlook(self) -> [bool; 3] {
        [Trust::Likely, Trust::Sure, Trust::Proven].map(|trust| self.is_expected_as(trust))
    }

    /// In a row group that was read: so it is not skipped.
    pub fn was_expected_inside(self) -> bool {
        self.is_touched && self.entered.is_in_last(self.entered.known())
    }

    /// In a row group that is being read, by those that were read like it.
    pub fn is_expected_inside(self, alike: u32, trust: Trust) -> bool {
        self.is_touched && self.entered.is_expected(alike, trust)
    }

    /// Which of these row groups it was read in too; all of them where it was in none, which tells
    /// nothing.
    pub fn alike(self, alike: u32) -> u32 {
        match alike & self.entered.read & self.entered.known() {
            0 => alike,
            both => both,
        }
    }
}

/// Makes room for `count` columns. New ones were read in none of the row groups before.
pub(super) fn push_unknown(columns: &mut Vec<History>, count: usize) {
    if columns.len() >= count {
        return;
    }
    let none_of = |counts: fn(&History) -> u32| Past {
        read: 0,
        count: columns.iter().map(counts).max().unwrap_or(0),
    };
    let unknown = History {
        all: none_of(|known| known.all.count),
        entered: none_of(|known| known.entered.count),
        is_touched: false,
    };
    columns.resize(count, unknown);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The newest last.
    fn past(read: &[bool]) -> Past {
        let mut past = Past::default();
        read.iter().for_each(|is_read| past.push(*is_read));
        past
    }

    #[test]
    fn what_was_read_in_the_last_row_groups_is_expected_and_how_surely() {
        let expected = |read: &[bool]| {
            let (past, trusts) = (past(read), [Trust::Likely, Trust::Sure, Trust::Proven]);
            trusts.map(|trust| past.is_expected(u32::MAX, trust))
        };
        assert_eq!(expected(&[]), [false, true, false], "before anything is known");
        assert_eq!(expected(&[true]), [false, true, false]);
        assert_eq!(expected(&[true; 40]), [false, true, true]);
        assert_eq!(expected(&[true, true, false]), [false; 3]);
        let mut read = vec![true; 40];
        read[20] = false;
        assert_eq!(expected(&read), [false, true, true], "less than a tenth");
        read[22..26].fill(false);
        assert_eq!(expected(&read), [true, false, false], "more than that");
        read[37] = false;
        assert_eq!(expected(&read), [false; 3], "and lately");
    }

    #[test]
    fn only_the_row_groups_count_that_were_read_alike() {
        let (mut text, mut x, mut z) = (History::default(), History::default(), History::default());
        for matches in [true, false, false, true, false, true, false, false, false, false] {
            text.push(matches, true);
            x.push(matches, true);
            z.push(false, true);
        }
        (text.is_touched, x.is_touched, z.is_touched) = (true, true, true);
        assert!(!x.is_expected_inside(u32::MAX, Trust::Sure));
        let alike = text.alike(u32::MAX);
        assert_eq!(alike.count_ones(), 3);
        assert!(x.is_expected_inside(alike, Trust::Proven));
        assert!(!z.is_expected_inside(alike, Trust::Sure));
        assert_eq!(z.alike(alike), alike, "it was never read");
    }
}

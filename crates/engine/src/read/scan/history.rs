//! What columns were read for in the row groups of a scan that are over. Pure.

/// Row groups that are over and still count.
pub(super) const MEMORY: u32 = 4;

/// Whether a column was read in the last row groups, the newest in the lowest bit.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    read: u32,
    count: u32,
}

impl Past {
    fn push(&mut self, is_read: bool) {
        self.read = self.read << 1 | u32::from(is_read);
        self.count = (self.count + 1).min(MEMORY);
    }

    fn is_all(self) -> bool {
        let wanted = (1 << self.count) - 1;
        self.read & wanted == wanted
    }
}

/// How one column was used, in row groups that are over.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct History {
    /// Skipped ones among them.
    all: Past,
    /// Of those that were read.
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

    /// In a row group that lies ahead.
    pub fn is_expected(self) -> bool {
        self.is_touched && self.all.is_all()
    }

    /// In a row group that is being read: so it is not skipped.
    pub fn is_expected_inside(self) -> bool {
        self.is_touched && self.entered.is_all()
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

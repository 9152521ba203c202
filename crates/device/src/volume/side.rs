//! On which side of the memory limit what was spilled lies, and how much of it may on each. Pure.

/// Where memory of spilled files is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// In the account of those who wait for memory: they get it, once it is back.
    Within,
    /// Beside that account: they have no use of it.
    Beside,
}

impl Side {
    /// Both.
    pub const ALL: [Side; 2] = [Side::Within, Side::Beside];
}

/// One of each side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sides<T> {
    /// See [`Side::Within`].
    pub within: T,
    /// See [`Side::Beside`].
    pub beside: T,
}

impl<T> Sides<T> {
    /// That of a side.
    pub fn of(&self, side: Side) -> &T {
        match side {
            Side::Within => &self.within,
            Side::Beside => &self.beside,
        }
    }

    /// That of a side.
    pub fn of_mut(&mut self, side: Side) -> &mut T {
        match side {
            Side::Within => &mut self.within,
            Side::Beside => &mut self.beside,
        }
    }
}

impl Sides<u64> {
    /// Both together.
    pub fn sum(self) -> u64 {
        self.within.saturating_add(self.beside)
    }
}

/// Most bytes of spilled files that may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpillsMost {
    /// On each side.
    pub each: Sides<u64>,
    /// On both together.
    pub all: u64,
}

impl SpillsMost {
    /// So many bytes, wherever they lie.
    pub fn anywhere(bytes: u64) -> Self {
        SpillsMost { each: Sides { within: bytes, beside: bytes }, all: bytes }
    }

    /// What a holder may have of it who has so much, where all holders together have so much.
    #[must_use]
    pub fn of_holder(self, own: Sides<u64>, held: Sides<u64>) -> Self {
        let rest = |own: u64, most: u64, held: u64| own.saturating_add(most).saturating_sub(held);
        let each = |side| rest(*own.of(side), *self.each.of(side), *held.of(side));
        SpillsMost {
            each: Sides { within: each(Side::Within), beside: each(Side::Beside) },
            all: rest(own.sum(), self.all, held.sum()),
        }
    }
}

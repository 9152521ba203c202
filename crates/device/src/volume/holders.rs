//! The handles to a file that are open. It decides which go together.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Which other handles may be open at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// Any.
    None,
    /// Others that read or do not care.
    Read,
    /// Only those that do not care.
    Write,
}

#[derive(Default)]
pub(crate) struct Holders(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    handles: usize,
    readers: usize,
    has_writer: bool,
}

impl Holders {
    /// Changed in single steps, so a panic elsewhere leaves it whole.
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a handle, unless those that are open forbid it.
    pub(crate) fn try_enter(&self, wish: Lock) -> bool {
        let mut counts = self.counts();
        match wish {
            Lock::None => {}
            Lock::Read if counts.has_writer => return false,
            Lock::Read => counts.readers += 1,
            Lock::Write if counts.has_writer || counts.readers > 0 => return false,
            Lock::Write => counts.has_writer = true,
        }
        counts.handles += 1;
        true
    }

    /// Whether any of them keeps others out.
    pub(crate) fn have_lock(&self) -> bool {
        let counts = self.counts();
        counts.has_writer || counts.readers > 0
    }

    /// Takes a handle out again; whether it was the last.
    pub(crate) fn leave(&self, held: Lock) -> bool {
        let mut counts = self.counts();
        match held {
            Lock::None => {}
            Lock::Read => counts.readers -= 1,
            Lock::Write => counts.has_writer = false,
        }
        counts.handles -= 1;
        counts.handles == 0
    }
}

//! How others wake the thread that writes. It decides nothing about its work.

use super::lock;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// Counts who rang; its lock is held for no longer than that takes.
#[derive(Default)]
pub(crate) struct Wake {
    rung: Mutex<u64>,
    more: Condvar,
}

impl Wake {
    /// So often it rang until now: to be asked before looking for work.
    pub(super) fn seen(&self) -> u64 {
        *lock(&self.rung)
    }

    pub(super) fn ring(&self) {
        *lock(&self.rung) += 1;
        self.more.notify_one();
    }

    /// Waits until it rang since then, or a while.
    pub(super) fn wait(&self, seen: u64, longest: Option<Duration>) {
        let rung = lock(&self.rung);
        let is_quiet = |rung: &mut u64| *rung == seen;
        match longest {
            Some(longest) => drop(self.more.wait_timeout_while(rung, longest, is_quiet)),
            None => drop(self.more.wait_while(rung, is_quiet)),
        }
    }
}

//! Whether a server serves ranges that are counted from the end, as far as it has shown.
//!
//! A refusal of the form tells at once. A failure (500, 502) may be one of the moment: it is told
//! as such, and only where the next such range fails too is the end asked for by its offsets.

use crate::answer::Failure;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Failures in a row after which the end is asked for by its offsets, if those bring it.
const FAILED_MIN: u32 = 2;
/// And after which it is asked for so from then on.
const REFUSED_FROM: u32 = 3;

#[derive(Debug, Default)]
pub(crate) struct Suffixes {
    are_refused: AtomicBool,
    /// Failures since one was served.
    failed: AtomicU32,
}

impl Suffixes {
    pub fn are_refused(&self) -> bool {
        self.are_refused.load(Ordering::Relaxed)
    }

    pub fn refuse(&self) {
        self.are_refused.store(true, Ordering::Relaxed);
    }

    /// One was served.
    pub fn served(&self) {
        self.failed.store(0, Ordering::Relaxed);
    }

    /// Whether the end is to be asked for by its offsets after this failure of a suffix: a server
    /// that asks for patience (503, Retry-After) gets no other request.
    pub fn failed(&self, failure: &Failure) -> bool {
        let is_later = failure.status == 503 || failure.retry_after.is_some();
        matches!(failure.status, 500..=599)
            && !is_later
            && self.failed.fetch_add(1, Ordering::Relaxed) + 1 >= FAILED_MIN
    }

    /// Offsets brought what a suffix did not.
    pub fn came_by_offsets(&self) {
        if self.failed.load(Ordering::Relaxed) >= REFUSED_FROM {
            self.refuse();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_failure_of_the_moment_teaches_nothing_and_one_of_each_time_does() {
        let failure = |status| Failure { status, ..Failure::default() };
        let suffixes = Suffixes::default();
        for status in [400, 403, 404, 429, 503] {
            assert!(!suffixes.failed(&failure(status)), "{status}");
        }
        let later = Failure { retry_after: Some(Duration::ZERO), ..failure(500) };
        assert!(!suffixes.failed(&later) && !suffixes.failed(&later));
        assert!(!suffixes.failed(&failure(500)));
        suffixes.served();
        assert!(!suffixes.failed(&failure(502)));
        assert!(suffixes.failed(&failure(500)));
        suffixes.came_by_offsets();
        assert!(!suffixes.are_refused());
        assert!(suffixes.failed(&failure(500)));
        suffixes.came_by_offsets();
        assert!(suffixes.are_refused());
    }
}

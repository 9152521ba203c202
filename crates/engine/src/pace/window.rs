//! Decides how many requests may wait for a store's answer at once, once it has asked for less
//! (429, 503). Pure: the caller brings the time.
//!
//! Additive increase, multiplicative decrease (Chiu and Jain 1989): a refusal halves the number
//! that was on its way, at most once for all that were sent before the last cut; each window of
//! answers adds one. A store that has not refused for a while is not limited at all. Queueing in a
//! store is not judged here: it shows as a penalty in the cost model, which then asks for fewer at
//! once.

use std::time::Duration;

/// What remains after a refusal.
const CUT: f64 = 0.5;
/// Without a refusal for so long there is no limit any more.
const OPEN_AFTER: Duration = Duration::from_secs(30);
/// A limit that nobody ever meets.
const OPEN: usize = 1 << 20;

/// The window of one store. Times count from any fixed moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Window {
    /// `None` while there is none.
    limit: Option<f64>,
    cut_at: Duration,
    refused_at: Duration,
}

impl Window {
    /// Most requests that may wait for an answer at once.
    pub fn total(&self) -> usize {
        // A float to integer cast saturates.
        self.limit.map_or(OPEN, |limit| (limit as usize).clamp(1, OPEN))
    }

    /// Whether the store has asked for less lately.
    pub fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// A request that was sent at `sent`, with so many on their way now, was refused.
    pub fn refused(&mut self, now: Duration, sent: Duration, on_their_way: usize) {
        self.refused_at = now;
        if self.limit.is_some() && sent <= self.cut_at {
            return;
        }
        let used = (on_their_way.max(1) as f64).min(self.limit.unwrap_or(f64::MAX));
        self.limit = Some((used * CUT).max(1.0));
        self.cut_at = now;
    }

    /// A request was answered.
    pub fn answered(&mut self, now: Duration) {
        let Some(limit) = &mut self.limit else { return };
        *limit += 1.0 / limit.max(1.0);
        if now.saturating_sub(self.refused_at) > OPEN_AFTER {
            self.limit = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn one_burst_of_refusals_is_one_cut() {
        let mut window = Window::default();
        assert_eq!(window.total(), OPEN);
        for refused in 0..20 {
            window.refused(at(100 + refused), at(50), 20);
        }
        assert_eq!(window.total(), 10);
        window.refused(at(200), at(150), 10);
        assert_eq!(window.total(), 5);
    }

    #[test]
    fn a_window_of_answers_adds_one_and_calm_ends_the_limit() {
        let mut window = Window::default();
        window.refused(at(0), at(0), 8);
        for _ in 0..5 {
            window.answered(at(100));
        }
        assert_eq!(window.total(), 5);
        window.answered(OPEN_AFTER + at(1));
        assert!(!window.is_limited());
    }

    proptest! {
        /// Against a store that takes so many requests at once and refuses all others: within ten
        /// seconds of round trips of 100 ms nearly all are answered, and nearly as many at once as
        /// the store takes.
        #[test]
        fn it_finds_what_a_store_takes_within_seconds(
            capacity in 1usize..200, wanted in 1usize..300,
        ) {
            let mut window = Window::default();
            let (mut refused, mut answered) = (0, 0);
            for round in 0u64..200 {
                let now = at((round + 1) * 100);
                let sent = window.total().min(wanted);
                let served = sent.min(capacity);
                for _ in 0..served {
                    window.answered(now);
                }
                for _ in served..sent {
                    window.refused(now, at(round * 100 + 1), sent);
                }
                if round >= 100 {
                    refused += sent - served;
                    answered += served;
                }
            }
            let possible = capacity.min(wanted) * 100;
            prop_assert!(answered * 2 >= possible, "{} of {}", answered, possible);
            prop_assert!(capacity == 1 || refused * 3 <= answered, "{} and {}", refused, answered);
        }
    }
}

//! How busy a statement kept its stores and devices, and what took longest.

use crate::request_log::LoggedRequest;
use penstock_base::micros;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// Most stretches of time that are kept apart. Older ones can only be covered once more by a
/// request that was under way for all of the newer ones.
const STRETCHES_MAX: usize = 256;

/// The time in which at least one of many works was under way.
#[derive(Debug, Default)]
struct Busy {
    /// In microseconds; begin and end, in their order, none touching the next.
    stretches: VecDeque<(u64, u64)>,
    /// Of stretches that are no longer kept.
    past_us: u64,
}

impl Busy {
    /// Adds a work that has ended. They come in the order in which they end, or nearly so.
    fn add(&mut self, begin_us: u64, end_us: u64) {
        let (mut begin, mut end) = (begin_us, end_us.max(begin_us));
        // Those that begin after this one has ended, where it comes late.
        let mut later = Vec::new();
        while let Some(&(last_begin, last_end)) = self.stretches.back() {
            if last_end < begin {
                break;
            }
            self.stretches.pop_back();
            if last_begin > end {
                later.push((last_begin, last_end));
            } else {
                (begin, end) = (begin.min(last_begin), end.max(last_end));
            }
        }
        self.stretches.push_back((begin, end));
        self.stretches.extend(later.into_iter().rev());
        while self.stretches.len() > STRETCHES_MAX {
            self.past_us += self.stretches.pop_front().map_or(0, |(begin, end)| end - begin);
        }
    }

    fn total(&self) -> Duration {
        let kept: u64 = self.stretches.iter().map(|(begin, end)| end - begin).sum();
        Duration::from_micros(self.past_us + kept)
    }
}

/// What a statement did so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrafficSoFar {
    /// The time in which at least one request was under way.
    pub requests_busy: Duration,
    /// The longest request, from sending it to its last byte.
    pub slowest_request: Duration,
    /// Its URL, without secrets; empty where there was none.
    pub slowest_url: String,
    /// The time in which at least one read of a volume was under way.
    pub reads_busy: Duration,
    /// The longest read of a volume.
    pub slowest_read: Duration,
    /// How long its threads worked on its plan, without their waits.
    pub worked: Duration,
}

/// The traffic of one statement.
#[derive(Debug)]
pub(crate) struct Traffic {
    /// No read of a volume begins before.
    since: Instant,
    state: Mutex<State>,
}

impl Default for Traffic {
    fn default() -> Self {
        Traffic { since: Instant::now(), state: Mutex::default() }
    }
}

#[derive(Debug, Default)]
struct State {
    so_far: TrafficSoFar,
    requests: Busy,
    reads: Busy,
}

impl Traffic {
    /// A request has ended.
    pub fn request(&self, request: &LoggedRequest) {
        let event = &request.event;
        let began = event.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut state = self.lock();
        state.requests.add(micros(began), micros(began + event.total));
        let so_far = &mut state.so_far;
        if event.total > so_far.slowest_request {
            so_far.slowest_request = event.total;
            request.url().clone_into(&mut so_far.slowest_url);
        }
    }

    /// A read of a volume has ended.
    pub fn read(&self, began: Instant, took: Duration) {
        let began = began.saturating_duration_since(self.since);
        let mut state = self.lock();
        state.reads.add(micros(began), micros(began + took));
        state.so_far.slowest_read = state.so_far.slowest_read.max(took);
    }

    /// A thread has worked for so long.
    pub fn worked(&self, took: Duration) {
        self.lock().so_far.worked += took;
    }

    pub fn so_far(&self) -> TrafficSoFar {
        let state = self.lock();
        TrafficSoFar {
            requests_busy: state.requests.total(),
            reads_busy: state.reads.total(),
            ..state.so_far.clone()
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn total(works: &[(u64, u64)]) -> u64 {
        let mut busy = Busy::default();
        works.iter().for_each(|(begin, end)| busy.add(*begin, *end));
        u64::try_from(busy.total().as_micros()).expect("it is short")
    }

    #[test]
    fn what_goes_on_at_once_counts_once_and_pauses_do_not() {
        assert_eq!(total(&[]), 0);
        assert_eq!(total(&[(0, 10), (5, 12), (20, 25)]), 17);
        assert_eq!(total(&[(0, 10), (20, 25), (30, 40), (5, 45)]), 45, "one covers the pauses");
        assert_eq!(total(&[(20, 25), (0, 10)]), 15, "one comes late");
    }

    proptest! {
        #[test]
        fn a_moment_counts_if_any_work_was_under_way(
            works in prop::collection::vec((0u64..200, 0u64..30), 0..60),
        ) {
            let works: Vec<_> = works.iter().map(|(begin, len)| (*begin, begin + len)).collect();
            let is_busy = |at: &u64| works.iter().any(|(begin, end)| (begin..end).contains(&at));
            prop_assert_eq!(total(&works), (0u64..300).filter(is_busy).count() as u64);
        }
    }

    #[test]
    fn many_stretches_take_little_memory_and_none_is_lost() {
        let mut busy = Busy::default();
        (0..10_000u64).for_each(|index| busy.add(10 * index, 10 * index + 3));
        assert_eq!(busy.total(), Duration::from_micros(30_000));
        assert!(busy.stretches.len() <= STRETCHES_MAX);
    }
}

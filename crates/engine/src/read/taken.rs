//! How fast the rows of a scan are taken. Pure.
//!
//! Where whoever takes them is slower than the link, what fills the link is more than is of use
//! ahead: what is taken while one answer is on its way is enough.

use crate::read::flow::Need;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// So many reads tell how fast rows are taken now.
const READS_MAX: usize = 8;
/// What is taken during one latency is ahead so many times.
const FILLS: f64 = 1.5;

/// The last reads of a scan.
#[derive(Debug, Default)]
pub(super) struct Takings(VecDeque<Taking>);

#[derive(Clone, Copy, Debug)]
struct Taking {
    at: Instant,
    bytes: u64,
    waited: Duration,
}

impl Takings {
    /// Takes note of a read that ended after so long a wait.
    pub fn read(&mut self, at: Instant, bytes: u64, waited: Duration) {
        if self.0.len() == READS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Taking { at, bytes, waited });
    }

    /// Bytes that are of use ahead of readers, each of which takes a unit at once.
    pub fn of_use_bytes(&self, now: Instant, need: &Need) -> u64 {
        let Need { latency, unit_bytes, readers, .. } = *need;
        let Some(first) = self.0.front() else { return u64::MAX };
        let bytes: u64 = self.0.iter().map(|read| read.bytes).sum();
        let waited: Duration = self.0.iter().skip(1).map(|read| read.waited).sum();
        // They wait side by side.
        let waited_s = waited.as_secs_f64() / readers.max(1) as f64;
        let time_s = now.saturating_duration_since(first.at).as_secs_f64() - waited_s;
        let bytes_per_s = bytes as f64 / time_s.max(0.0);
        // A cast saturates, and what was taken in no time fills any link.
        let once = (bytes_per_s * latency.as_secs_f64() * FILLS) as u64;
        once.saturating_add(unit_bytes.saturating_mul(readers.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LATENCY: Duration = Duration::from_millis(100);

    fn need(readers: u64, unit_bytes: u64) -> Need {
        Need { latency: LATENCY, unit_bytes, readers, on_demand_bytes: 0 }
    }

    fn after(begin: Instant, ms: u64) -> Instant {
        begin + Duration::from_millis(ms)
    }

    #[test]
    fn before_anything_is_known_nothing_is_held_back() {
        let now = Instant::now();
        let mut takings = Takings::default();
        assert_eq!(takings.of_use_bytes(now, &need(1, 7)), u64::MAX);
        takings.read(now, 1000, LATENCY);
        assert_eq!(takings.of_use_bytes(now, &need(1, 7)), u64::MAX, "in no time");
    }

    #[test]
    fn a_scan_that_waits_for_its_link_is_not_held_back() {
        let begin = Instant::now();
        let mut takings = Takings::default();
        for read in 0..20 {
            takings.read(after(begin, read * 110), 1 << 20, Duration::from_millis(100));
        }
        // It takes a MiB in 10 ms.
        let of_use = takings.of_use_bytes(after(begin, 19 * 110), &need(1, 1 << 20));
        assert!(of_use >= 15 << 20, "{of_use}");
    }

    proptest! {
        /// Rows that are taken at one pace, out of what lies ready: in any latency no more is taken
        /// than is of use ahead, and not much less.
        #[test]
        fn what_is_taken_in_a_latency_is_of_use(
            reads in 2u64..40, each_ms in 1u64..2000, unit in 1u64..1 << 30, readers in 1u64..16,
        ) {
            let begin = Instant::now();
            let mut takings = Takings::default();
            for read in 0..reads {
                takings.read(after(begin, read * each_ms), unit, Duration::ZERO);
            }
            let now = after(begin, (reads - 1) * each_ms);
            let of_use = takings.of_use_bytes(now, &need(readers, unit));
            let taken = unit as f64 * LATENCY.as_millis() as f64 / each_ms as f64;
            let rest = of_use as f64 - (unit * readers) as f64;
            prop_assert!(rest >= FILLS * taken - 2.0, "{rest} of {taken}");
            // The first of the reads that are known ended before the time that is looked at.
            prop_assert!(rest <= 2.0 * FILLS * taken + 2.0, "{rest} of {taken}");
        }
    }
}

//! How many requests a key, or all who sign none, may make: a token bucket kept as one number. Pure
//! but for that number.
//!
//! The number is the *theoretical arrival time* of the generic cell rate algorithm (ITU-T I.371):
//! when the bucket will be full again. Time comes in as an argument.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A rate and how far requests may run ahead of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Requests per second; not zero.
    pub per_second: u64,
    /// Requests that may come at once after a pause; not zero.
    pub burst: u64,
}

/// Whether a request may pass now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may; the bucket is full again at this time (nanoseconds).
    Go(u64),
    /// Not before this long.
    Wait(Duration),
}

/// Decides on a request at `now`, where the bucket is full again at `full_at` (both nanoseconds
/// since a common start).
pub fn admit(limit: RateLimit, full_at: u64, now: u64) -> Admission {
    let interval = (1_000_000_000 / limit.per_second.max(1)).max(1);
    let ahead_max = interval.saturating_mul(limit.burst.max(1));
    let next = full_at.max(now).saturating_add(interval);
    match (next - now).checked_sub(ahead_max) {
        None | Some(0) => Admission::Go(next),
        Some(early) => Admission::Wait(Duration::from_nanos(early)),
    }
}

/// The bucket of one key, or of all unsigned requests.
#[derive(Debug)]
pub struct Rate {
    limit: RateLimit,
    full_at: AtomicU64,
}

impl Rate {
    /// A full bucket.
    pub fn new(limit: RateLimit) -> Self {
        Rate { limit, full_at: AtomicU64::new(0) }
    }

    /// Takes a request's worth, or says how long to wait. `now` counts from any fixed start.
    ///
    /// # Errors
    /// The wait.
    pub fn take(&self, now: Duration) -> std::result::Result<(), Duration> {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let mut full_at = self.full_at.load(Ordering::Relaxed);
        loop {
            let next = match admit(self.limit, full_at, now) {
                Admission::Go(next) => next,
                Admission::Wait(wait) => return Err(wait),
            };
            let order = Ordering::Relaxed;
            match self.full_at.compare_exchange_weak(full_at, next, order, order) {
                Ok(_) => return Ok(()),
                Err(changed) => full_at = changed,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limit() -> impl Strategy<Value = RateLimit> {
        (1..2000_u64, 1..50_u64).prop_map(|(per_second, burst)| RateLimit { per_second, burst })
    }

    proptest! {
        #[test]
        fn no_window_holds_more_than_burst_and_rate(
            limit in limit(), pauses in prop::collection::vec(0..5_000_000_u64, 1..300),
        ) {
            let rate = Rate::new(limit);
            let mut now = Duration::ZERO;
            let mut passed = Vec::new();
            for pause in pauses {
                now += Duration::from_nanos(pause);
                if rate.take(now).is_ok() {
                    passed.push(now);
                }
            }
            for (index, start) in passed.iter().enumerate() {
                for (more, end) in passed[index..].iter().enumerate() {
                    // The interval is rounded down to nanoseconds: a millionth more at most.
                    let fill = (*end - *start).as_secs_f64() * limit.per_second as f64 * 1.000_01;
                    prop_assert!(more as f64 <= fill + limit.burst as f64 - 1.0 + 0.01);
                }
            }
        }

        #[test]
        fn after_the_named_wait_the_request_passes(limit in limit(), tries in 1..200_usize) {
            let rate = Rate::new(limit);
            let mut now = Duration::from_secs(1);
            for _ in 0..tries {
                if let Err(wait) = rate.take(now) {
                    prop_assert!(wait > Duration::ZERO);
                    now += wait;
                    prop_assert_eq!(rate.take(now), Ok(()));
                }
            }
        }

        #[test]
        fn a_pause_fills_the_bucket_and_no_more(limit in limit(), pause_s in 60..100_000_u64) {
            let rate = Rate::new(limit);
            let now = Duration::from_secs(pause_s);
            let passed = (0..limit.burst + 5).filter(|_| rate.take(now).is_ok()).count() as u64;
            prop_assert_eq!(passed, limit.burst);
        }
    }
}

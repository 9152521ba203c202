//! Decides whether a failed request is sent again, and after how long. Pure: no clock, no sleep.
//!
//! Full jitter (Brooker, "Exponential Backoff and Jitter", 2015): the wait is uniform between zero
//! and a bound that doubles, so that many clients of a throttling store spread out.

use penstock_base::{Error, Kind, Retry, Settings};
use std::time::Duration;

/// The numbers of the policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// Bound of the first wait.
    pub base: Duration,
    /// Largest bound.
    pub max: Duration,
    /// Time for all attempts together.
    pub deadline: Duration,
}

impl Policy {
    pub fn new(settings: &Settings) -> Self {
        Policy {
            base: Duration::from_millis(settings.retry_base_ms),
            max: Duration::from_millis(settings.retry_max_ms),
            deadline: Duration::from_millis(settings.request_deadline_ms),
        }
    }
}

/// Most attempts in a row that fail in a way which time seldom mends ([`Retry::Briefly`]).
pub(crate) const BRIEF_ATTEMPTS_MAX: u32 = 4;
/// Longest time for them, from the first such failure on: a server restarts in it.
pub(crate) const BRIEF_MAX: Duration = Duration::from_secs(5);
/// Bound of the first wait between them. It doubles, so that few attempts span the time.
const BRIEF_BASE: Duration = Duration::from_millis(700);

/// Failures so far, with the one that is decided about.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Past {
    /// Attempts that failed.
    pub failed: u32,
    /// Since the first sending.
    pub elapsed: Duration,
    /// Attempts that failed as [`Retry::Briefly`] without another failure in between.
    pub brief: u32,
    /// Since the first of these failed.
    pub brief_elapsed: Duration,
}

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Send it again after this wait.
    Wait(Duration),
    /// The error is final by its nature.
    Final,
    /// It could succeed, but not in the time there is.
    TooLate,
}

/// `chance` is uniform in `0.0..1.0`.
pub(crate) fn decide(policy: &Policy, error: &Error, past: &Past, chance: f64) -> Decision {
    if !can_succeed_again(error) {
        return Decision::Final;
    }
    let chance = chance.clamp(0.0, 1.0);
    let jittered = doubled(policy.base, past.failed).min(policy.max).mul_f64(chance);
    let wait = match error.retry() {
        Retry::After(asked) => asked.saturating_add(jittered.min(policy.base)),
        Retry::BackOff | Retry::Never => jittered,
        Retry::Briefly => {
            // Half of the wait is sure: four attempts at once would not outlast a restart.
            let wait =
                doubled(BRIEF_BASE, past.brief).min(policy.max).mul_f64((1.0 + chance) / 2.0);
            if past.brief >= BRIEF_ATTEMPTS_MAX
                || past.brief_elapsed.saturating_add(wait) > BRIEF_MAX
            {
                return Decision::TooLate;
            }
            wait
        }
    };
    if past.elapsed.saturating_add(wait) >= policy.deadline {
        Decision::TooLate
    } else {
        Decision::Wait(wait)
    }
}

/// The bound of the wait after the `failures`th failure, counted from 1.
fn doubled(base: Duration, failures: u32) -> Duration {
    base.saturating_mul(1u32 << failures.saturating_sub(1).min(20))
}

/// Throttling, broken connections, the store's own failures, and a write that met another one whose
/// outcome is open; never a refusal, a missing object, wrong input or a version that changed,
/// whatever a store claims.
fn can_succeed_again(error: &Error) -> bool {
    match error.kind() {
        Kind::Throttled | Kind::Unavailable | Kind::Corrupt | Kind::Conflict => {
            error.retry() != Retry::Never
        }
        Kind::Denied
        | Kind::NotFound
        | Kind::Invalid
        | Kind::Unsupported
        | Kind::Cancelled
        | Kind::Exhausted
        | Kind::Internal => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const POLICY: Policy = Policy {
        base: Duration::from_millis(100),
        max: Duration::from_secs(10),
        deadline: Duration::from_secs(120),
    };

    const FIRST: Past =
        Past { failed: 1, elapsed: Duration::ZERO, brief: 0, brief_elapsed: Duration::ZERO };

    fn throttled() -> Error {
        Error::new(Kind::Throttled, "503").with_retry(Retry::BackOff)
    }

    #[test]
    fn refusals_are_final_even_when_marked_retryable_and_conflicts_unless_they_are() {
        let again = [Kind::Throttled, Kind::Unavailable, Kind::Corrupt, Kind::Conflict];
        for (kind, _, _) in Kind::ALL {
            let error = Error::new(*kind, "x").with_retry(Retry::BackOff);
            let decision = decide(&POLICY, &error, &FIRST, 0.5);
            assert_eq!(decision != Decision::Final, again.contains(kind), "{kind:?}");
        }
        let changed = Error::new(Kind::Conflict, "412");
        assert_eq!(decide(&POLICY, &changed, &FIRST, 0.5), Decision::Final);
    }

    #[test]
    fn retry_after_is_the_least_wait() {
        let error =
            Error::new(Kind::Throttled, "x").with_retry(Retry::After(Duration::from_secs(3)));
        match decide(&POLICY, &error, &FIRST, 0.9) {
            Decision::Wait(wait) => {
                assert!((Duration::from_secs(3)..Duration::from_secs(4)).contains(&wait))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_wait_past_the_deadline_is_not_begun() {
        let error =
            Error::new(Kind::Throttled, "x").with_retry(Retry::After(Duration::from_secs(500)));
        assert_eq!(decide(&POLICY, &error, &FIRST, 0.0), Decision::TooLate);
    }

    proptest! {
        #[test]
        fn wait_is_bounded_and_never_passes_the_deadline(
            attempt in 1u32..100, elapsed_ms in 0u64..200_000, chance in 0.0f64..1.0,
        ) {
            let elapsed = Duration::from_millis(elapsed_ms);
            let past = Past { failed: attempt, elapsed, ..Past::default() };
            match decide(&POLICY, &throttled(), &past, chance) {
                Decision::Wait(wait) => {
                    prop_assert!(wait <= POLICY.max);
                    prop_assert!(elapsed + wait < POLICY.deadline);
                }
                Decision::TooLate => prop_assert!(elapsed + POLICY.max >= POLICY.deadline),
                Decision::Final => prop_assert!(false, "throttling is worth a retry"),
            }
        }

        /// Whatever the jitter, and however long an attempt takes: few attempts, a short time, and
        /// never past the deadline.
        #[test]
        fn what_time_seldom_mends_is_tried_briefly(
            chances in prop::collection::vec(0.0f64..1.0, 10),
            attempt_ms in 0u64..3_000,
            earlier in 0u32..50,
        ) {
            let error = Error::new(Kind::Unavailable, "no such host").with_retry(Retry::Briefly);
            // Throttling before does not use up these attempts.
            let mut past = Past {
                failed: earlier,
                elapsed: Duration::from_secs(u64::from(earlier)),
                ..Past::default()
            };
            let mut waited = Duration::ZERO;
            for chance in chances {
                past.failed += 1;
                past.brief += 1;
                match decide(&POLICY, &error, &past, chance) {
                    Decision::Wait(wait) => {
                        prop_assert!(past.brief_elapsed + wait <= BRIEF_MAX);
                        waited += wait;
                        let passed = wait + Duration::from_millis(attempt_ms);
                        past.brief_elapsed += passed;
                        past.elapsed += passed;
                    }
                    Decision::TooLate => break,
                    Decision::Final => prop_assert!(false, "it is worth a few attempts"),
                }
            }
            prop_assert!((2..=BRIEF_ATTEMPTS_MAX).contains(&past.brief));
            if attempt_ms == 0 {
                prop_assert_eq!(past.brief, BRIEF_ATTEMPTS_MAX);
                prop_assert!(waited > Duration::from_secs(2), "a restart takes seconds");
            }
        }
    }
}

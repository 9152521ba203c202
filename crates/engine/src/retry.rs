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

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Send it again after this wait.
    Wait(Duration),
    /// The error is final by its nature.
    Final,
    /// It could succeed, but not before the deadline.
    TooLate,
}

/// `attempt` counts from 1 (the attempt that just failed), `elapsed` from the first sending,
/// `chance` is uniform in `0.0..1.0`.
pub(crate) fn decide(
    policy: &Policy,
    error: &Error,
    attempt: u32,
    elapsed: Duration,
    chance: f64,
) -> Decision {
    if !can_succeed_again(error) {
        return Decision::Final;
    }
    let doubled = policy.base.saturating_mul(1u32 << (attempt.saturating_sub(1)).min(20));
    let jittered = doubled.min(policy.max).mul_f64(chance.clamp(0.0, 1.0));
    let wait = match error.retry() {
        Retry::After(asked) => asked.saturating_add(jittered.min(policy.base)),
        Retry::BackOff | Retry::Never => jittered,
    };
    if elapsed.saturating_add(wait) >= policy.deadline {
        Decision::TooLate
    } else {
        Decision::Wait(wait)
    }
}

/// Throttling, broken connections and the store's own failures; never a refusal, a missing object,
/// wrong input or a version that changed, whatever a store claims.
fn can_succeed_again(error: &Error) -> bool {
    match error.kind() {
        Kind::Throttled | Kind::Unavailable | Kind::Corrupt => error.retry() != Retry::Never,
        Kind::Denied
        | Kind::NotFound
        | Kind::Invalid
        | Kind::Conflict
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

    fn throttled() -> Error {
        Error::new(Kind::Throttled, "503").with_retry(Retry::BackOff)
    }

    #[test]
    fn refusals_and_conflicts_are_final_even_when_marked_retryable() {
        for (kind, _, _) in Kind::ALL {
            let error = Error::new(*kind, "x").with_retry(Retry::BackOff);
            let decision = decide(&POLICY, &error, 1, Duration::ZERO, 0.5);
            let again = matches!(kind, Kind::Throttled | Kind::Unavailable | Kind::Corrupt);
            assert_eq!(decision != Decision::Final, again, "{kind:?}");
        }
    }

    #[test]
    fn retry_after_is_the_least_wait() {
        let error =
            Error::new(Kind::Throttled, "x").with_retry(Retry::After(Duration::from_secs(3)));
        match decide(&POLICY, &error, 1, Duration::ZERO, 0.9) {
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
        assert_eq!(decide(&POLICY, &error, 1, Duration::ZERO, 0.0), Decision::TooLate);
    }

    proptest! {
        #[test]
        fn wait_is_bounded_and_never_passes_the_deadline(
            attempt in 1u32..100, elapsed_ms in 0u64..200_000, chance in 0.0f64..1.0,
        ) {
            let elapsed = Duration::from_millis(elapsed_ms);
            match decide(&POLICY, &throttled(), attempt, elapsed, chance) {
                Decision::Wait(wait) => {
                    prop_assert!(wait <= POLICY.max);
                    prop_assert!(elapsed + wait < POLICY.deadline);
                }
                Decision::TooLate => prop_assert!(elapsed + POLICY.max >= POLICY.deadline),
                Decision::Final => prop_assert!(false, "throttling is worth a retry"),
            }
        }
    }
}

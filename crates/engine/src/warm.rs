//! Opening connections while a request is under way that several others will follow, so that those
//! find them idle instead of waiting for a round trip, or for three where there is TLS.
//!
//! Decides how many there should be ([`wanted`], pure) and that they end with their statement. How
//! many there may be at all, and who gets one, is the store's affair; whoever finds none opens its
//! own. docs/design/warm-up.md has the reasons.

use crate::location::Location;
use crate::pace::policy::Policy;
use crate::query::QueryCore;
use crate::read::LATENCY_MIN;
use penstock_store::Connections;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::AbortHandle;

/// Requests at once behind a listing whose length is not known yet: the first file is opened, and
/// 15 are opened ahead of it.
const OF_A_GLOB: u64 = 16;
/// Requests at once that follow the opening of a Parquet file whose size is not known, or is large:
/// the first columns of several threads, and what fills the link behind them. What a scan needs
/// beyond, it asks for in several steps.
const OF_A_SCAN_MAX: u64 = 12;
/// A file that is read front to back has a request for what is read and one for what follows.
const IN_A_ROW: u64 = 2;
/// Connections that are opened faster are not worth opening early.
const COST_MIN: Duration = Duration::from_millis(1);
/// Nor are those whose opening is a smaller part of the time to a first byte.
const COST_PARTS: u32 = 10;

/// What is known of the requests that will follow the one that is sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coming {
    /// Those for the files that are listed now.
    Files,
    /// Those for a file that is opened now.
    File {
        size_bytes: Option<u64>,
        /// So much of it comes with opening.
        opening_bytes: u64,
        /// It is read by columns, not front to back.
        is_columns: bool,
    },
    /// So many, for the next step of a file that is read in large ones.
    Step(u64),
}

/// Requests at once that will follow, the place of the present one among them.
fn at_once(coming: Coming, policy: &Policy) -> u64 {
    match coming {
        Coming::Files => OF_A_GLOB,
        Coming::Step(parts) => parts.saturating_add(1),
        Coming::File { size_bytes: None, is_columns: true, .. } => OF_A_SCAN_MAX,
        Coming::File { size_bytes: None, is_columns: false, .. } => IN_A_ROW,
        Coming::File { size_bytes: Some(size), opening_bytes, is_columns } => {
            let rest = size.saturating_sub(opening_bytes);
            match (rest, is_columns) {
                (0, _) => 0,
                (_, true) => rest.div_ceil(policy.min_bytes.max(1)).min(OF_A_SCAN_MAX),
                (_, false) => policy.fanout_limit(rest).max(IN_A_ROW),
            }
        }
    }
}

/// Whether a new connection costs enough to be opened early. What is not known yet is taken for as
/// long as an answer, which is no less than a round trip.
fn is_worth(known: &Connections, first_byte: Duration) -> bool {
    // Opened fast, but the way behind it may be long (a tunnel): that shows in the answers.
    let cost = match (known.connect, known.beyond_kept) {
        (Some(connect), Some(beyond)) => connect.max(beyond),
        (Some(connect), None) if connect >= COST_MIN => connect,
        _ => first_byte,
    };
    first_byte >= LATENCY_MIN && cost >= COST_MIN && cost >= first_byte / COST_PARTS
}

/// How many connections should be idle or on their way to be, so that what is coming waits for
/// none; 0 where nothing should be opened. Half of those that there may be are left to others.
fn wanted(
    coming: Coming,
    policy: &Policy,
    (known, first_byte): (&Connections, Duration),
    (warm_max, connections_max): (u64, u64),
) -> usize {
    if policy.requests_max() <= 1 || !is_worth(known, first_byte) {
        return 0;
    }
    // The present request's own connection serves one of them.
    let others = at_once(coming, policy).saturating_sub(1);
    let wanted = others.min(warm_max).min(connections_max / 2);
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
    if known.idle + known.opening >= wanted { 0 } else { wanted }
}

/// Warm-ups of a statement that may be under way. Their number is bounded by that of requests that
/// begin one, and those that are over are forgotten by the next.
#[derive(Debug, Default)]
pub(crate) struct WarmUps(Mutex<Vec<AbortHandle>>);

impl WarmUps {
    /// Ends them.
    pub fn stop(&self) {
        let under_way = std::mem::take(&mut *self.lock());
        under_way.iter().for_each(AbortHandle::abort);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<AbortHandle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether anything may be opened for a statement; that costs little to know, and nearly every one
/// comes by here.
pub(crate) fn may_warm(query: &QueryCore, at: &Location) -> bool {
    query.settings.warm_connections_max > 0
        && at.mount.latency.get() >= LATENCY_MIN
        && !query.ends_early()
}

/// A request to a store is about to be sent, and these will follow it: opens connections beside it,
/// where that can pay.
pub(crate) fn warm(query: &QueryCore, at: &Location, coming: Coming) {
    if !may_warm(query, at) {
        return;
    }
    let settings = &query.settings;
    let first_byte = at.mount.latency.get();
    let warm_max = settings.warm_connections_max;
    let policy = Policy::of(settings);
    if at_once(coming, &policy) <= 1 || query.cancel.is_cancelled() {
        return;
    }
    let Some(known) = at.mount.store.connections() else { return };
    let limits = (warm_max, settings.connections_per_host);
    let count = wanted(coming, &policy, (&known, first_byte), limits);
    if count == 0 {
        return;
    }
    let Some(opening) = at.mount.store.warm(count) else { return };
    let task = query.engine.handle.spawn(query.scope.run(opening));
    let mut under_way = query.warm_ups.lock();
    under_way.retain(|task| !task.is_finished());
    under_way.push(task.abort_handle());
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_base::Settings;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;
    const FAR: Duration = Duration::from_millis(100);

    fn policy() -> Policy {
        Policy::of(&Settings::default())
    }

    fn file(size_bytes: Option<u64>, is_columns: bool) -> Coming {
        Coming::File { size_bytes, opening_bytes: MIB / 4, is_columns }
    }

    fn cold(coming: Coming) -> usize {
        wanted(coming, &policy(), (&Connections::default(), FAR), (16, 64))
    }

    #[test]
    fn as_many_as_will_be_asked_for_besides_the_present_one() {
        assert_eq!(cold(Coming::Files), 15);
        assert_eq!(cold(file(None, true)), 11);
        assert_eq!(cold(file(None, false)), 1);
        assert_eq!(cold(file(Some(MIB / 4), true)), 0, "opening brings all of it");
        assert_eq!(cold(file(Some(MIB), true)), 0, "one request");
        assert_eq!(cold(file(Some(5 * MIB), true)), 2);
        assert_eq!(cold(file(Some(1 << 40), true)), 11);
        assert_eq!(cold(file(Some(MIB), false)), 1);
        assert_eq!(cold(file(Some(1 << 30), false)), 3, "the fan-out of a large read");
        assert_eq!(cold(Coming::Step(4)), 4);
    }

    #[test]
    fn none_where_they_cannot_pay() {
        let with = |known: Connections, first_byte: Duration| {
            wanted(Coming::Files, &policy(), (&known, first_byte), (16, 64))
        };
        let took = |connect: u64, beyond: Option<u64>| Connections {
            connect: Some(Duration::from_micros(connect)),
            beyond_kept: beyond.map(Duration::from_micros),
            ..Connections::default()
        };
        assert_eq!(with(Connections::default(), Duration::from_millis(1)), 0, "nearby");
        assert_eq!(with(took(100, Some(0)), FAR), 0, "slow answers of a near store");
        assert_eq!(with(took(5_000, Some(5_000)), FAR), 0, "a twentieth of a first byte");
        assert_eq!(with(took(100, None), FAR), 15, "it may be a tunnel");
        assert_eq!(with(took(100, Some(90_000)), FAR), 15, "it is one");
        assert_eq!(with(took(95_000, None), FAR), 15);
        let mut settings = Settings::default();
        settings.set("parallel_read_max_fanout", "1").unwrap();
        let single = Policy::of(&settings);
        assert_eq!(wanted(Coming::Files, &single, (&Connections::default(), FAR), (16, 64)), 0);
    }

    fn any_coming() -> impl Strategy<Value = Coming> {
        let sizes = prop::option::of(0u64..1 << 45);
        prop_oneof![
            Just(Coming::Files),
            (0u64..u64::MAX).prop_map(Coming::Step),
            (sizes, 0u64..64 << 20, any::<bool>()).prop_map(
                |(size_bytes, opening_bytes, is_columns)| Coming::File {
                    size_bytes,
                    opening_bytes,
                    is_columns
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn never_more_than_allowed_and_none_that_are_there(
            coming in any_coming(),
            (idle, opening) in (0usize..70, 0usize..70),
            (connect, beyond) in (prop::option::of(0u64..500), prop::option::of(0u64..500)),
            first_byte in 0u64..500,
            (warm_max, connections_max) in (0u64..1025, 1u64..4097),
            (min_bytes, fanout_max) in (0u64..1 << 40, 1u64..257),
        ) {
            let policy = Policy { min_bytes, fanout_max, ..policy() };
            let ms = Duration::from_millis;
            let known = Connections {
                idle, opening, connect: connect.map(ms), beyond_kept: beyond.map(ms)
            };
            let limits = (warm_max, connections_max);
            let count = wanted(coming, &policy, (&known, ms(first_byte)), limits);
            prop_assert!(count as u64 <= warm_max.min(connections_max / 2));
            prop_assert!(count == 0 || count > idle + opening);
            // With more at hand no more is opened.
            let more = Connections { idle: idle + 1, ..known };
            let then = wanted(coming, &policy, (&more, ms(first_byte)), limits);
            prop_assert!(then.saturating_sub(idle + 1) <= count.saturating_sub(idle));
        }

        #[test]
        fn a_larger_file_never_wants_fewer(
            a in 0u64..1 << 40, b in 0u64..1 << 40, is_columns in any::<bool>()
        ) {
            prop_assert!(cold(file(Some(a.min(b)), is_columns))
                <= cold(file(Some(a.max(b)), is_columns)));
        }
    }
}

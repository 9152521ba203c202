//! How much one read takes from a client's connection.
//!
//! A body is given on as it was read, so larger reads are fewer calls on both sides, and fewer
//! segments that tell the sender of room. Many bodies on their way to a directory are collected, as
//! disks are slower than other servers, so those are read by less. What one read of every
//! connection takes is one budget, so that memory does not grow with their number: few read much,
//! many little. Idle ones count, since the HTTP layer has a buffer ready for the next request of
//! each.

use crate::buckets::Bucket;
use http::Extensions;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most bytes that one read ever takes.
pub const READ_BYTES_MAX: usize = 256 << 10;
/// Fewest that are worth a call, however many connections there are.
const READ_BYTES_MIN: usize = 16 << 10;
/// Connections that share nothing yet, and those that do not on their way to directories either.
const CONNECTIONS_FEW: u64 = 16;
const CONNECTIONS_FEWEST: u64 = 4;
/// What one read of each of more connections takes together on the way to other servers.
const GIVEN_ON_BYTES_ALL: u64 = 16 << 20;
const GIVEN_ON_AMONG_MANY_BYTES: usize = 128 << 10;
/// The same on the way to directories.
const NEAR_BYTES_ALL: u64 = 2 << 20;
const NEAR_BYTES: usize = 128 << 10;
const NEAR_AMONG_MANY_BYTES: usize = 32 << 10;
/// What the HTTP layer holds of all connections together, of an answer that waits to be sent say;
/// as long as each has the least.
const HELD_BYTES_ALL: u64 = 16 << 20;
const HELD_BYTES_MIN: usize = 64 << 10;

/// What the HTTP layer may hold of a connection that comes when so many are open, itself among
/// them.
pub fn held_bytes_most(connections: u64) -> usize {
    let share = usize::try_from(HELD_BYTES_ALL / connections.max(1)).unwrap_or(READ_BYTES_MAX);
    1 << share.clamp(HELD_BYTES_MIN, READ_BYTES_MAX).ilog2()
}

/// What the requests of a connection tell of where its bytes go.
#[derive(Debug, Default)]
pub struct Intake {
    is_given_on: AtomicBool,
}

impl Intake {
    /// Most bytes that one read takes while so many connections are open.
    pub fn bytes_most(&self, connections: u64) -> usize {
        bytes_each(self.is_given_on.load(Ordering::Relaxed), connections)
    }

    /// The connection of this request is about to bring a body for the bucket.
    pub fn is_for(bucket: &Bucket, request: &Extensions) {
        if let Some(intake) = request.get::<Arc<Intake>>() {
            let is_given_on = bucket.store.origin().is_some();
            intake.is_given_on.store(is_given_on, Ordering::Relaxed);
        }
    }
}

/// What one read takes among so many connections. But for the most of all, it is a byte less than a
/// buffer of hyper's, which doubles its buffers when one was filled and halves those of which two
/// reads in turn left more than half.
fn bytes_each(is_given_on: bool, connections: u64) -> usize {
    let few = if is_given_on { CONNECTIONS_FEW } else { CONNECTIONS_FEWEST };
    if connections <= few {
        return READ_BYTES_MAX;
    }
    let (all, most) = match (is_given_on, connections > CONNECTIONS_FEW) {
        (true, _) => (GIVEN_ON_BYTES_ALL, GIVEN_ON_AMONG_MANY_BYTES),
        (false, false) => (NEAR_BYTES_ALL, NEAR_BYTES),
        (false, true) => (NEAR_BYTES_ALL, NEAR_AMONG_MANY_BYTES),
    };
    let share = usize::try_from(all / connections).unwrap_or(most);
    (1 << share.clamp(READ_BYTES_MIN, most).ilog2()) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_are_larger_among_few_and_for_other_servers() {
        let intake = Intake::default();
        let at = |counts: [u64; 5]| counts.map(|count| intake.bytes_most(count));
        let below = |kib: usize| (kib << 10) - 1;
        assert_eq!(at([0, 4, 5, 16, 17])[..2], [256 << 10; 2]);
        assert_eq!(at([0, 4, 5, 16, 17])[2..], [128, 128, 32].map(below));
        assert_eq!(at([64, 65, 128, 129, 1000])[..], [32, 16, 16, 16, 16].map(below));
        intake.is_given_on.store(true, Ordering::Relaxed);
        assert_eq!(at([0, 16, 17, 128, 129])[..2], [256 << 10; 2]);
        assert_eq!(at([0, 16, 17, 128, 129])[2..], [128, 128, 64].map(below));
        assert_eq!(at([1000, 1024, 1025, 10_000, u64::MAX]), [16; 5].map(below));
    }

    #[test]
    fn less_is_held_of_each_of_many_connections() {
        let kib = [0, 64, 65, 128, 129, 256, 257, 4096].map(|count| held_bytes_most(count) >> 10);
        assert_eq!(kib, [256, 256, 128, 128, 64, 64, 64, 64]);
        for connections in 1..5000 {
            let (held, read) = (held_bytes_most(connections), bytes_each(true, connections));
            assert!(held > read || held == READ_BYTES_MAX, "what one read takes fits");
        }
    }

    proptest! {
        /// More connections never read more together, but for the least that each needs.
        #[test]
        fn reads_stay_within_one_budget(is_given_on: bool, connections in 1u64..100_000) {
            let each = bytes_each(is_given_on, connections);
            let all = if is_given_on { GIVEN_ON_BYTES_ALL } else { NEAR_BYTES_ALL };
            prop_assert!(each as u64 * connections <= all || each < READ_BYTES_MIN);
            prop_assert!((READ_BYTES_MIN - 1..=READ_BYTES_MAX).contains(&each));
            prop_assert!(each >= bytes_each(is_given_on, connections + 1));
        }
    }
}

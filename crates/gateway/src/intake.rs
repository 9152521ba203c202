//! How much one read takes from a client's connection.
//!
//! A body on its way to another server is given on as it was read, so larger reads are fewer calls
//! on both sides. One on its way to a directory is collected there anyway, and what a read takes
//! beyond a processor's cache is memory for nothing.

use crate::buckets::Bucket;
use http::Extensions;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most bytes that one read ever takes.
pub const READ_BYTES_MAX: usize = 256 << 10;
/// Connections beyond which each read takes less, so that memory grows slower than their number.
const CONNECTIONS_FEW: u64 = 16;
// Each of the lower bounds is a byte less than a buffer of hyper's, which doubles its buffers when
// one was filled and halves those of which two reads in turn left more than half.
const AMONG_MANY_BYTES: usize = (128 << 10) - 1;
const NEAR_BYTES: usize = (128 << 10) - 1;
const NEAR_AMONG_MANY_BYTES: usize = (32 << 10) - 1;

/// What the requests of a connection tell of where its bytes go.
#[derive(Debug, Default)]
pub struct Intake {
    is_given_on: AtomicBool,
}

impl Intake {
    /// Most bytes that one read takes while so many connections are open.
    pub fn bytes_most(&self, connections: u64) -> usize {
        let is_among_many = connections > CONNECTIONS_FEW;
        match (self.is_given_on.load(Ordering::Relaxed), is_among_many) {
            (true, false) => READ_BYTES_MAX,
            (true, true) => AMONG_MANY_BYTES,
            (false, false) => NEAR_BYTES,
            (false, true) => NEAR_AMONG_MANY_BYTES,
        }
    }

    /// The connection of this request is about to bring a body for the bucket.
    pub fn is_for(bucket: &Bucket, request: &Extensions) {
        if let Some(intake) = request.get::<Arc<Intake>>() {
            let is_given_on = bucket.store.origin().is_some();
            intake.is_given_on.store(is_given_on, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_larger_among_few_and_for_other_servers() {
        let intake = Intake::default();
        let at = |counts: [u64; 4]| counts.map(|count| intake.bytes_most(count));
        let kib = |count: usize| count << 10;
        assert_eq!(at([1, 16, 17, 10_000]), [kib(128) - 1, kib(128) - 1, kib(32) - 1, kib(32) - 1]);
        intake.is_given_on.store(true, Ordering::Relaxed);
        assert_eq!(at([1, 16, 17, 10_000]), [kib(256), kib(256), kib(128) - 1, kib(128) - 1]);
    }
}

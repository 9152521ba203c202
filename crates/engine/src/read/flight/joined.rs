//! Waiting for a flight without a buffer of its own to lead one: for a GET that is passed on.

use super::{Flight, Flights, Follower, Landed, follow};
use crate::location::ObjectId;
use crate::query::QueryCore;
use crate::read::version::Version;
use bytes::Bytes;
use penstock_base::{ByteRange, Metric};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;

/// A flight that takes longer is not waited for: who passes a GET on has a client that waits for
/// its first byte, and may ask the store itself.
const JOIN_WAIT_MAX: Duration = Duration::from_secs(2);

/// Bytes that came with a flight, and the right to hold them.
#[derive(Debug)]
pub(in crate::read) struct Joined(Landed);

impl Joined {
    /// From where those begin that were wanted, at least one.
    pub fn bytes(&self) -> Bytes {
        self.0.bytes.clone()
    }
}

impl Flights {
    /// Waits for what a flight brings of a range from its start on; `None` where none does that is
    /// worth waiting for, or no more comes of it.
    pub(in crate::read) async fn join(
        &self,
        query: &QueryCore,
        id: ObjectId,
        version: &Version,
        range: ByteRange,
    ) -> Option<Joined> {
        let landed = self.follow_first(query, &id, version, range)?;
        let landed = tokio::time::timeout(JOIN_WAIT_MAX, landed).await.ok()?;
        let landed = landed.ok().filter(|landed| !landed.bytes.is_empty())?;
        query.scope.count(Metric::FlightsShared, 1);
        Some(Joined(landed))
    }

    fn follow_first(
        &self,
        query: &QueryCore,
        id: &ObjectId,
        version: &Version,
        range: ByteRange,
    ) -> Option<oneshot::Receiver<Landed>> {
        // Under the lock, so that no flight ends before it knows of its follower.
        let flights = self.lock();
        let same: Vec<&Arc<Flight>> = of_version(flights.get(id)?, version, query).collect();
        let on_their_way: Vec<(ByteRange, u64)> = same
            .iter()
            .map(|flight| (flight.range, flight.arrived.load(Ordering::Relaxed)))
            .collect();
        let stretches = follow(range, &on_their_way, |index, shared| {
            // What lies behind the first stretch is wanted later.
            let is_first = shared.start == range.start;
            let lease = is_first.then(|| query.engine.budget.try_lease(shared.len())).flatten()?;
            let (told, landed) = oneshot::channel();
            let flight = same[index];
            flight.lock().push(Follower { wanted: shared, lease, told });
            flight.is_followed.store(true, Ordering::Release);
            Some(landed)
        });
        stretches.into_iter().next()?.1
    }

    /// Bytes of a range that are on their way.
    pub fn coming_bytes(
        &self,
        query: &QueryCore,
        id: &ObjectId,
        version: &Version,
        range: ByteRange,
    ) -> u64 {
        let flights = self.lock();
        let Some(known) = flights.get(id) else { return 0 };
        let shared = of_version(known, version, query).map(|flight| {
            let (start, end) =
                (flight.range.start.max(range.start), flight.range.end.min(range.end));
            end.saturating_sub(start)
        });
        shared.sum()
    }

    /// Where the first flight behind an offset begins.
    pub fn next_start(
        &self,
        query: &QueryCore,
        id: &ObjectId,
        version: &Version,
        from: u64,
    ) -> Option<u64> {
        let flights = self.lock();
        let starts = of_version(flights.get(id)?, version, query).map(|flight| flight.range.start);
        starts.filter(|start| *start > from).min()
    }
}

fn of_version<'a>(
    flights: &'a [Arc<Flight>],
    version: &'a Version,
    query: &'a QueryCore,
) -> impl Iterator<Item = &'a Arc<Flight>> {
    flights.iter().filter(|flight| flight.is_of(version, query))
}

//! One request for all who want the same bytes of the same version at the same time.
//!
//! A reader that asks the store for a span registers it as a *flight*. Another one that wants bytes
//! of it while it is under way follows: the leader, which reads into its own caller's buffer,
//! copies them for it as soon as they are there. A leader that is cancelled, or fails, hands over
//! what it has; its followers ask for the rest themselves and tell their own errors. Nobody waits
//! for a flight that is much longer than what is wanted of it, nor without memory for the copy.
//!
//! Where a server tells neither tag nor time, nothing tells two versions of one length apart: such
//! a flight is followed by readers of its own query only.
//!
//! A reader that is alone pays for an entry in a map.

mod joined;
mod lying;
mod shared;

pub(super) use joined::Joined;
pub(super) use lying::Listed;

use crate::budget::Lease;
use crate::cache::CachedObject;
use crate::location::{Location, ObjectId};
use crate::pace::policy::Policy;
use crate::query::QueryCore;
use crate::read::begun::{Begun, TakenOver};
use crate::read::debt::{Debt, Debts};
use crate::read::held::Piece;
use crate::read::kept::Kept;
use crate::read::plan::{Source, plan};
use crate::read::room::{Pages, copy_into};
use crate::read::stream::{Stream, told_as_change};
use crate::read::version::Version;
use bytes::Bytes;
use futures_util::future::FutureExt;
use lying::{Found, Lying};
use penstock_base::{ByteRange, Result};
use penstock_store::{GetRange, ObjectMeta};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// A flight is followed if what still has to arrive for it is not longer than so many times what is
/// wanted, and a little ([`FOLLOW_BYTES`]).
const FOLLOW_RATIO: u64 = 4;
const FOLLOW_BYTES: u64 = 256 << 10;

/// Bytes that a leader copied for a follower: from where those begin that it wanted, maybe fewer.
#[derive(Debug)]
struct Landed {
    bytes: Bytes,
    _lease: Lease,
}

struct Follower {
    wanted: ByteRange,
    lease: Lease,
    told: oneshot::Sender<Landed>,
}

/// A span on its way.
struct Flight {
    /// Whose readers lead it.
    query: u64,
    version: Version,
    range: ByteRange,
    /// Where the bytes end that have arrived.
    arrived: AtomicU64,
    is_followed: AtomicBool,
    followers: Mutex<Vec<Follower>>,
    /// Of one that is ahead of reads.
    debt: Weak<Debt>,
}

/// The flights of an engine.
#[derive(Default)]
pub(crate) struct Flights {
    running: Mutex<HashMap<ObjectId, Vec<Arc<Flight>>>>,
    lying: Arc<Lying>,
}

impl std::fmt::Debug for Flights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flights").finish_non_exhaustive()
    }
}

/// What to do for a stretch of a span.
enum Part<'a> {
    Lead(Leader<'a>),
    Follow(ByteRange, oneshot::Receiver<Landed>, Vec<Arc<Debt>>),
    Copy(ByteRange, Found),
}

/// Which bytes of a span to ask for, and which will come on another flight. Pure but for the two
/// closures: `arrived` tells how far a flight is, `memory` gives the lease for a copy.
fn follow<T>(
    range: ByteRange,
    flights: &[(ByteRange, u64)],
    mut memory: impl FnMut(usize, ByteRange) -> Option<T>,
) -> Vec<(ByteRange, Option<T>)> {
    let mut stretches: Vec<(ByteRange, Option<T>)> = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let mut followed = None;
        let mut next = range.end;
        for (index, (flight, arrived)) in flights.iter().enumerate() {
            if flight.start <= at && at < flight.end {
                let shared = ByteRange { start: at, end: flight.end.min(range.end) };
                let to_come = shared.end.saturating_sub(*arrived);
                if to_come <= shared.len().saturating_mul(FOLLOW_RATIO).saturating_add(FOLLOW_BYTES)
                    && let Some(lease) = memory(index, shared)
                {
                    followed = Some((shared, Some(lease)));
                    break;
                }
            } else if flight.start > at {
                next = next.min(flight.start);
            }
        }
        let stretch = followed.unwrap_or((ByteRange { start: at, end: next }, None));
        at = stretch.0.end;
        match stretches.last_mut() {
            Some((led, None)) if stretch.1.is_none() => led.end = at,
            _ => stretches.push(stretch),
        }
    }
    stretches
}

impl Flights {
    /// What lies ready of a span, and how the rest of it comes: small pieces in its middle come
    /// again, since a request for each stretch beside them would take longer.
    fn enter(&self, wanted: &Wanted<'_>, range: ByteRange) -> Vec<Part<'_>> {
        let (query, version) = (wanted.query, wanted.version);
        let found = self.lying(query, &wanted.at.id(), version, range);
        if found.is_empty() {
            return self.enter_missing(wanted, range);
        }
        let ranges: Vec<ByteRange> = found.iter().map(|found| found.piece.range).collect();
        let mount = &wanted.at.mount;
        let gap_bytes = || mount.pace.gap_bytes(&Policy::of(&query.settings), mount.latency.get());
        let spans = plan(range, &ranges, gap_bytes).into_iter();
        let parts = spans.flat_map(|span| match span.source {
            Source::Held(index) => vec![Part::Copy(span.range, found[index].clone())],
            Source::Store => self.enter_missing(wanted, span.range),
        });
        parts.collect()
    }

    /// Registers those stretches of a span that nobody has asked for, and follows for the others.
    fn enter_missing(&self, wanted: &Wanted<'_>, range: ByteRange) -> Vec<Part<'_>> {
        let (query, version, id) = (wanted.query, wanted.version, wanted.at.id());
        let budget = &query.engine.budget;
        let mut flights = self.lock();
        let known = flights.entry(id.clone()).or_default();
        let same: Vec<Arc<Flight>> = known
            .iter()
            .filter(|flight| flight.range.overlaps(&range) && flight.is_of(version, query))
            .cloned()
            .collect();
        let on_their_way: Vec<(ByteRange, u64)> = same
            .iter()
            .map(|flight| (flight.range, flight.arrived.load(Ordering::Relaxed)))
            .collect();
        let stretches = follow(range, &on_their_way, |index, shared| {
            let lease = budget.try_lease(shared.len())?;
            let (told, landed) = oneshot::channel();
            let flight = &same[index];
            flight.lock().push(Follower { wanted: shared, lease, told });
            flight.is_followed.store(true, Ordering::Release);
            Some((landed, flight.debt.upgrade().into_iter().collect()))
        });
        let parts = stretches.into_iter().map(|(range, landed)| match landed {
            Some((landed, debts)) => Part::Follow(range, landed, debts),
            None => {
                let debt = wanted.debts.map(|debts| (debts, Debt::new(range, &query.scope)));
                let flight = Arc::new(Flight {
                    query: query.number,
                    version: version.clone(),
                    range,
                    arrived: AtomicU64::new(range.start),
                    is_followed: AtomicBool::new(false),
                    followers: Mutex::default(),
                    debt: debt.as_ref().map_or_else(Weak::new, |(_, debt)| Arc::downgrade(debt)),
                });
                debt.into_iter().for_each(|(debts, debt)| debts.add(debt));
                known.push(Arc::clone(&flight));
                Part::Lead(Leader { flights: self, id: id.clone(), flight })
            }
        });
        parts.collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectId, Vec<Arc<Flight>>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flight {
    /// Whether what it brings is of a version, for a reader of a query.
    fn is_of(&self, version: &Version, query: &QueryCore) -> bool {
        let is_known = self.query == query.number || self.version.is_told() && version.is_told();
        is_known && self.version.same(version)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Follower>> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies for followers what has arrived: of those that have all they want, or of all when
    /// nothing more comes. `bytes` begins where the flight does.
    fn serve(&self, bytes: &[u8], is_last: bool) {
        let end = self.range.start + bytes.len() as u64;
        let ready: Vec<Follower> = {
            let mut followers = self.lock();
            let ready = followers.extract_if(.., |one| is_last || one.wanted.end <= end).collect();
            self.is_followed.store(!followers.is_empty(), Ordering::Release);
            ready
        };
        let mut copied: Option<(ByteRange, Bytes)> = None;
        for Follower { wanted, lease, told } in ready {
            let wanted = ByteRange { start: wanted.start, end: wanted.end.min(end) };
            if wanted.start >= wanted.end {
                continue;
            }
            // Those who want the same share a copy.
            let shared = match copied.take() {
                Some((range, bytes)) if range.contains(&wanted) => (range, bytes),
                _ => (wanted, Bytes::copy_from_slice(part(bytes, self.range.start, wanted))),
            };
            let from = index(wanted.start - shared.0.start);
            let bytes = shared.1.slice(from..from + index(wanted.len()));
            copied = Some(shared);
            // The follower may be gone.
            let _ = told.send(Landed { bytes, _lease: lease });
        }
    }
}

fn index(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a span lies in memory")
}

fn part(bytes: &[u8], start: u64, range: ByteRange) -> &[u8] {
    &bytes[index(range.start - start)..index(range.end - start)]
}

/// A registered flight. Dropping it ends it; followers that were not served ask for themselves.
struct Leader<'a> {
    flights: &'a Flights,
    id: ObjectId,
    flight: Arc<Flight>,
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        let mut flights = self.flights.lock();
        if let Some(known) = flights.get_mut(&self.id) {
            known.retain(|flight| !Arc::ptr_eq(flight, &self.flight));
            if known.is_empty() {
                flights.remove(&self.id);
            }
        }
        drop(flights);
        // Giving memory back wakes others, so not under the lock.
        let unserved = std::mem::take(&mut *self.flight.lock());
        drop(unserved);
    }
}

/// A flight and the buffer that it fills. However it ends, followers get what has arrived.
struct Landing<'a> {
    leader: Leader<'a>,
    buf: &'a mut [u8],
    filled: usize,
    pages: Pages,
}

impl Landing<'_> {
    async fn fill(
        &mut self,
        stream: &mut Stream,
        progress: Option<&dyn Progress>,
        kept: &mut Kept<'_>,
    ) -> Result<()> {
        while self.filled < self.buf.len() {
            let rest = self.pages.next(self.buf, self.filled);
            let count = stream.read_more(rest).await?;
            self.landed(count);
            progress.inspect(|progress| progress.arrived(count as u64));
            kept.come(&self.buf[..self.filled]).await;
        }
        Ok(())
    }

    /// Copies what was read ahead.
    fn copy(&mut self, pieces: Vec<Piece>, progress: Option<&dyn Progress>) {
        for piece in pieces {
            let rest = &mut self.buf[self.filled..];
            let count = piece.bytes.len().min(rest.len());
            copy_into(&mut rest[..count], &piece.bytes[..count]);
            self.landed(count);
            progress.inspect(|progress| progress.copied(count as u64));
        }
    }

    fn landed(&mut self, count: usize) {
        self.filled += count;
        let flight = &self.leader.flight;
        flight.arrived.store(flight.range.start + self.filled as u64, Ordering::Relaxed);
        if let Some(debt) = flight.debt.upgrade() {
            debt.come(self.filled as u64);
        }
        if flight.is_followed.load(Ordering::Acquire) {
            flight.serve(&self.buf[..self.filled], false);
        }
    }
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        // Nobody can begin to follow once it is off the list.
        let flight = Arc::clone(&self.leader.flight);
        let mut flights = self.leader.flights.lock();
        if let Some(known) = flights.get_mut(&self.leader.id) {
            known.retain(|known| !Arc::ptr_eq(known, &flight));
        }
        drop(flights);
        if flight.is_followed.load(Ordering::Acquire) {
            flight.serve(&self.buf[..self.filled], true);
        }
    }
}

/// Who is told of the bytes of a span as they come.
pub(super) trait Progress: Send + Sync {
    /// Bytes that came over the network.
    fn arrived(&self, bytes: u64);

    /// Bytes that were here.
    fn copied(&self, bytes: u64);
}

/// A version of an object, to fetch spans of.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub query: &'a Arc<QueryCore>,
    pub at: &'a Location,
    pub version: &'a Version,
    pub cached: Option<&'a CachedObject>,
    /// Where an answer confirms what is remembered of the object.
    pub meta: Option<&'a ObjectMeta>,
    /// Told of what arrives.
    pub progress: Option<&'a dyn Progress>,
    /// Of a block that is fetched ahead of reads.
    pub debts: Option<&'a Debts>,
}

impl<'a> Wanted<'a> {
    /// Fills `buf` with a span, from the request that was begun for it, from the store or from
    /// another reader's flight; true when all of it was asked of the store now.
    pub async fn fetch(
        self,
        buf: &mut [u8],
        range: ByteRange,
        begun: Option<Begun>,
    ) -> Result<bool> {
        let flights = &self.query.engine.flights;
        // A request that was begun brings all of its span anyway.
        let parts = match &begun {
            Some(_) => flights.enter_missing(&self, range),
            None => flights.enter(&self, range),
        };
        let mut parts = parts.into_iter();
        match (parts.next(), parts.len()) {
            (Some(Part::Lead(leader)), 0) => {
                let is_fresh = begun.is_none();
                // Boxed, as those that are around it are moved about while they are few bytes.
                self.lead(leader, buf, begun).boxed().await.map(|()| is_fresh)
            }
            (Some(first), _) => self.share(first, parts, buf).await.map(|()| false),
            (None, _) => Ok(true),
        }
    }

    async fn lead(self, leader: Leader<'_>, buf: &mut [u8], begun: Option<Begun>) -> Result<()> {
        let range = leader.flight.range;
        let mut landing = Landing { leader, buf, filled: 0, pages: Pages::default() };
        let taken = match begun {
            Some(begun) => begun.take_over().await,
            None => None,
        };
        let mut stream = match taken {
            Some(TakenOver { pieces, stream }) => {
                landing.copy(pieces, self.progress);
                stream
            }
            None => self.start(range).await?,
        };
        let mut kept = Kept::new(self.cached, self.query, range.start);
        let filled = landing.fill(&mut stream, self.progress, &mut kept).await;
        filled.map_err(|error| told_as_change(error, self.at))?;
        kept.all(landing.buf).await;
        Ok(())
    }

    /// Begins a GET of exactly this range of this version.
    pub async fn start(self, range: ByteRange) -> Result<Stream> {
        let begun = Instant::now();
        let asked = GetRange::Bounded(range);
        let stream = Stream::pinned(self.query, self.at, self.version, asked).await?;
        if let Some(meta) = self.meta {
            self.query.confirm(self.at, meta, begun);
        }
        Ok(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange { start, end }
    }

    #[test]
    fn what_is_on_its_way_is_followed_and_the_rest_is_led() {
        let stretches =
            follow(range(10, 50), &[(range(20, 30), 20), (range(0, 12), 0)], |i, _| Some(i));
        assert_eq!(
            stretches,
            [
                (range(10, 12), Some(1)),
                (range(12, 20), None),
                (range(20, 30), Some(0)),
                (range(30, 50), None)
            ]
        );
    }

    #[test]
    fn a_long_flight_is_not_waited_for_unless_it_is_nearly_there() {
        let long = range(0, 100 << 20);
        let wanted = range(90 << 20, 91 << 20);
        let followed = |arrived| follow(wanted, &[(long, arrived)], |_, _| Some(()))[0].1.is_some();
        assert!(!followed(0));
        assert!(followed(88 << 20));
        assert!(follow(wanted, &[(wanted, 0)], |_, _| None::<()>)[0].1.is_none(), "no memory");
    }

    proptest! {
        #[test]
        fn every_byte_is_led_or_followed_once(
            start in 0u64..1000, len in 1u64..1000,
            flights in prop::collection::vec((0u64..2000, 1u64..500, 0u64..2500), 0..8),
            refused in prop::collection::vec(any::<bool>(), 8),
        ) {
            let wanted = range(start, start + len);
            let flights: Vec<_> = flights.iter().map(|(s, l, a)| (range(*s, s + l), *a)).collect();
            let mut next = start;
            for (stretch, flight) in follow(wanted, &flights, |i, _| (!refused[i]).then_some(i)) {
                prop_assert_eq!(stretch.start, next);
                prop_assert!(!stretch.is_empty());
                if let Some(flight) = flight {
                    prop_assert!(flights[flight].0.contains(&stretch));
                }
                next = stretch.end;
            }
            prop_assert_eq!(next, wanted.end);
        }
    }
}

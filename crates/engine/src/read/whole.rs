//! Whole objects, from servers that serve nothing else: in memory while a reader has them, within
//! `memory_limit_bytes` together with everything else.
//!
//! What came whole is given to the caches like any other bytes. Where they have all of it, or the
//! host says that it keeps what it reads, the next statement asks for the object's version only,
//! and fetches it when something is read of it that is not there after all.

use crate::cache::{CachedObject, Piece};
use crate::cause::Cause;
use crate::location::{Location, ObjectId};
use crate::query::QueryCore;
use crate::read::held::Held;
use crate::read::stream::Stream;
use crate::read::version::{Version, changed};
use bytes::Bytes;
use penstock_base::door::setting;
use penstock_base::{ByteRange, Error, Kind, Result};
use penstock_store::{GetRange, ObjectMeta, Ranges};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use tokio::sync::{Mutex, OnceCell};

/// Those that stay with their query take at most this part of the memory limit.
const KEPT_OF_LIMIT: u64 = 8;
/// Of an object without a known size, so much more memory is taken at once: a quarter of what has
/// come, within these bounds.
const STEP_BYTES_MIN: u64 = 64 << 10;
const STEP_BYTES_MAX: u64 = 64 << 20;

/// More are forgotten all at once: then a range is asked for in vain, or once more than need be.
const NAMES_MAX: usize = 20_000;

/// Of which objects of plain HTTP servers ranges are served, and which came whole where one was
/// asked for. Stores that list serve ranges.
#[derive(Debug, Default)]
pub(crate) struct RangeSupport(std::sync::Mutex<HashMap<ObjectId, bool>>);

impl RangeSupport {
    /// Takes note of an answer to a request for a range.
    pub fn note(&self, at: &Location, is_served: bool) {
        if at.mount.capabilities.list {
            return;
        }
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        names.insert(at.id(), is_served);
    }

    /// `None` where nobody knows yet.
    fn of(&self, at: &Location) -> Option<bool> {
        if at.mount.capabilities.list {
            return Some(true);
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&at.id()).copied()
    }

    /// Whether it was served by ranges when one was last asked for.
    pub fn is_served(&self, at: &Location) -> bool {
        self.of(at) == Some(true)
    }

    /// Whether it came whole when a range was last asked for.
    pub fn comes_whole(&self, at: &Location) -> bool {
        self.of(at) == Some(false)
    }
}

/// Whether an object that came whole need not come again: its version is told, and somebody keeps
/// it. `host_keeps`: the host does, as far as it has memory for it.
pub(super) fn is_kept(
    query: &Arc<QueryCore>,
    at: &Location,
    meta: &ObjectMeta,
    host_keeps: bool,
) -> bool {
    Version::of(meta).is_told()
        && meta.size_bytes.is_some()
        && (host_keeps || is_cached(query, at, meta))
}

/// Whether our caches have all of an object.
pub(super) fn is_cached(query: &Arc<QueryCore>, at: &Location, meta: &ObjectMeta) -> bool {
    let all = ByteRange { start: 0, end: meta.size_bytes.unwrap_or(0) };
    CachedObject::has(query, at, &Version::of(meta), all)
}

/// A whole object that a query opened.
#[derive(Debug)]
pub(super) struct Whole {
    slot: Mutex<Slot>,
    /// So it is read from there as far as it can.
    is_kept: bool,
}

/// What a reader has of a whole object: all of it, or what others keep, and all of it if need be.
/// Nothing of it is ever asked for by ranges, ahead of reads neither.
#[derive(Debug)]
pub(super) struct WholeReader {
    whole: Arc<Whole>,
    here: OnceCell<Arc<Held>>,
}

impl WholeReader {
    /// Whether its bytes are here.
    pub fn is_here(&self) -> bool {
        self.here.initialized()
    }

    /// Its bytes.
    ///
    /// # Errors
    /// As [`Whole::held`].
    pub async fn held(
        &self,
        query: &Arc<QueryCore>,
        at: &Location,
        meta: &ObjectMeta,
    ) -> Result<Arc<Held>> {
        self.here.get_or_try_init(|| self.whole.held(query, at, meta)).await.cloned()
    }
}

#[derive(Debug)]
struct Slot {
    /// For the first reader; or, as long as the query, for all.
    here: Option<Arc<Held>>,
    /// So it is with a small one: DuckDB closes files while it finds out what is in them, and opens
    /// them again. `None` until it came.
    stays: Option<bool>,
    /// The other ones share it, as long as one of them is open.
    last: Weak<Held>,
}

impl Whole {
    /// Fetches an object, unless a cache has all of it. `stream` has it, if it comes already.
    ///
    /// # Errors
    /// `Exhausted` when there is no memory for it; else as a GET's.
    pub async fn fetch(
        query: &Arc<QueryCore>,
        at: &Location,
        stream: Option<Stream>,
    ) -> Result<(ObjectMeta, Self)> {
        let asked = tokio::time::Instant::now();
        let stream = match stream {
            Some(stream) => stream,
            None => Stream::start(query, at, (Cause::Open, GetRange::All)).await?,
        };
        let told = stream.meta().clone();
        // Of a store that lists, what is remembered is read by ranges.
        let is_noted = !at.mount.capabilities.list && Version::of(&told).is_told();
        if is_noted && told.size_bytes.is_some() && is_cached(query, at, &told) {
            query.confirm(at, &told, asked);
            query.engine.range_support.note(at, false);
            return Ok((told, Whole::kept()));
        }
        let (meta, held) = take(query, at, stream).await?;
        if is_noted {
            query.confirm(at, &meta, asked);
            query.engine.range_support.note(at, false);
        }
        let stays = Some(keeps(query, meta.size_bytes.unwrap_or_default()));
        let last = Arc::downgrade(&held);
        let slot = Mutex::new(Slot { here: Some(held), stays, last });
        Ok((meta, Whole { slot, is_kept: false }))
    }

    /// One that somebody keeps.
    pub fn kept() -> Self {
        let slot = Mutex::new(Slot { here: None, stays: None, last: Weak::new() });
        Whole { slot, is_kept: true }
    }

    /// One more reader, with its bytes, unless somebody keeps them.
    ///
    /// # Errors
    /// As [`Whole::held`].
    pub async fn reader(
        self: &Arc<Self>,
        query: &Arc<QueryCore>,
        at: &Location,
        meta: &ObjectMeta,
    ) -> Result<WholeReader> {
        let reader = WholeReader { whole: Arc::clone(self), here: OnceCell::new() };
        if !self.is_kept {
            reader.held(query, at, meta).await?;
        }
        Ok(reader)
    }

    /// Its bytes; where its readers are gone and it with them, they are fetched again.
    ///
    /// # Errors
    /// `Conflict` when it is another version by then; as [`Whole::fetch`].
    async fn held(
        &self,
        query: &Arc<QueryCore>,
        at: &Location,
        meta: &ObjectMeta,
    ) -> Result<Arc<Held>> {
        let mut slot = self.slot.lock().await;
        let here = if slot.stays == Some(true) { slot.here.clone() } else { slot.here.take() };
        if let Some(held) = here.or_else(|| slot.last.upgrade()) {
            return Ok(held);
        }
        // All of it, in the words by which a server tells whether it serves ranges by now.
        let range = if meta.size_bytes > Some(0) { GetRange::From(0) } else { GetRange::All };
        let stream = Stream::start(query, at, (Cause::Read, range)).await?;
        query.engine.range_support.note(at, range != GetRange::All && !stream.ranges_ignored());
        let is_same = |answered: &ObjectMeta| Version::of(meta).matches(answered);
        let is_it = is_same(stream.meta());
        let taken = if is_it { Some(take(query, at, stream).await?) } else { None };
        let Some((answered, held)) = taken.filter(|(answered, _)| is_same(answered)) else {
            query.forget(at);
            return Err(changed(at.url()));
        };
        if slot.stays.is_none() {
            let stays = keeps(query, answered.size_bytes.unwrap_or_default());
            slot.stays = Some(stays);
            slot.here = stays.then(|| Arc::clone(&held));
        }
        slot.last = Arc::downgrade(&held);
        Ok(held)
    }
}

/// An object up to this size that a server has begun to send comes whole at once.
pub(super) const SMALL_BYTES: u64 = 8 << 20;

/// Those that stay with their query have no more together.
pub(super) fn kept_bytes_max(query: &QueryCore) -> u64 {
    query.engine.budget.limit_bytes() / KEPT_OF_LIMIT
}

/// Whether an object stays in memory with its query, with the others of which that was said.
fn keeps(query: &QueryCore, size_bytes: u64) -> bool {
    let most = kept_bytes_max(query);
    let add = |kept: u64| Some(kept + size_bytes).filter(|kept| *kept <= most);
    let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
    query.whole_bytes.fetch_update(set, fetch, add).is_ok()
}

/// All that comes, which the caches are given too.
async fn take(
    query: &Arc<QueryCore>,
    at: &Location,
    mut stream: Stream,
) -> Result<(ObjectMeta, Arc<Held>)> {
    let budget = &query.engine.budget;
    let limit = budget.limit_bytes();
    let size = Some(stream.range()).filter(|range| range.end != u64::MAX).map(|range| range.len());
    let ranges = stream.ranges();
    let no_room_now = || no_room(at, ranges, "what is free of ");
    let mut lease = budget.lease_now(0);
    let mut bytes = Vec::new();
    let mut filled = 0;
    loop {
        let come = filled as u64;
        let step = match size {
            Some(size) => size - come,
            None => (come / 4).clamp(STEP_BYTES_MIN, STEP_BYTES_MAX),
        };
        if size.is_some_and(|size| size > limit) || (size.is_none() && come == limit) {
            return Err(no_room(at, stream.ranges(), ""));
        }
        let step = step.min(limit - come);
        let more = budget.lease_within(step).await;
        lease.join(more.ok_or_else(no_room_now)?);
        let room = usize::try_from(step).unwrap_or(usize::MAX);
        bytes.reserve_exact(room);
        bytes.resize(filled + room, 0);
        while filled < bytes.len() {
            match stream.read_some(&mut bytes[filled..]).await? {
                0 => break,
                count => filled += count,
            }
        }
        if filled < bytes.len() || size.is_some() {
            break;
        }
    }
    bytes.truncate(filled);
    bytes.shrink_to_fit();
    lease.shrink(filled as u64);
    let meta = ObjectMeta { size_bytes: Some(filled as u64), ..stream.meta().clone() };
    let bytes = Bytes::from(bytes);
    if let Some(cached) = CachedObject::of(query, at, &Version::of(&meta)) {
        cached.keep(query, Piece::lent(0, &bytes)).await;
    }
    Ok((meta, Arc::new(Held::whole(bytes, lease))))
}

/// `part` says which part of the limit on memory is meant.
fn no_room(at: &Location, ranges: Ranges, part: &str) -> Error {
    let limit = setting("memory_limit_bytes");
    let server = match ranges {
        Ranges::Packed => "packs what it sends (Content-Encoding), so no range can be asked for",
        _ => "does not serve ranges",
    };
    let why = format!("the server {server}, and the object does not fit into {part}{limit}");
    Error::new(Kind::Exhausted, why).with_operation("GET").with_object(at.url()).with_hint(format!(
        "Raise {limit}, read fewer such objects at once, copy them to a store with ranges, or \
         download them"
    ))
}

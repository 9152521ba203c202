//! Opening and reading: one version of an object, in as few requests as possible.
//!
//! Opening costs one request at most: it asks for the bytes that will be read first (the tail of a
//! Parquet file where the store serves suffixes, the head of any other) and learns size and ETag
//! from the same answer. What is remembered or was listed costs none. Every later GET is pinned to
//! the ETag.

mod ahead;
mod arrived;
mod asking;
mod at_once;
mod begun;
mod block;
mod columns;
mod debt;
mod delivered;
mod files;
pub mod filters;
mod flight;
mod flow;
mod heads;
mod held;
mod kept;
mod neighbours;
mod opened;
mod openings;
mod order;
mod parquet;
mod plan;
mod ranges;
mod reader;
mod ready;
mod room;
mod scan;
mod scanned;
mod sending;
mod small;
mod spare;
mod stream;
mod taken;
mod through;
mod together;
mod trails;
mod version;
mod whole;

pub(crate) use columns::LATENCY_MIN;
pub(crate) use delivered::Delivered;
use filters::{Filter, Filters, Order, Ranges};
pub(crate) use flight::Flights;
pub(crate) use heads::Heads;
pub(crate) use held::{HeldCache, Shown};
pub(crate) use neighbours::Neighbours;
pub(crate) use opened::Opened;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use parquet::fuzz as fuzz_footer;
pub use reader::{Link, Reader};
pub(crate) use room::copy_into;
pub(crate) use scanned::Scanned;
pub(crate) use spare::Spare;
pub use stream::Stream;
pub(crate) use together::Together;
pub use trails::Trails;
pub(crate) use version::Version;
use version::changed;
pub(crate) use whole::RangeSupport;

use crate::attempt::{Weight, retry};
use crate::cache::CachedObject;
use crate::cause::Cause;
use crate::location::Location;
use crate::metadata::Remembered;
use crate::names::Listed;
use crate::query::{Query, QueryCore};
use crate::warm::{Coming, may_warm, warm};
use asking::{confirmed, open_fetch};
use opened::kept_whole;
use openings::{first_bytes, is_packed, opening_bytes};
use penstock_base::settings::Validation;
use penstock_base::{ByteRange, Kind, Metric, Result};
use penstock_store::{GetRange, GetRequest, ObjectMeta};
use std::sync::{Arc, PoisonError};
use tokio::sync::OnceCell;
use tokio::time::Instant;
use whole::is_cached;

/// What the caller knows of an object before opening it, usually from a listing or a table format.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// What the listing told. Size and ETag together make asking the store superfluous.
    pub meta: ObjectMeta,
    /// When that was listed, if a listing of ours told it. A prepared statement keeps what it once
    /// found: older than `cache_validation` allows, or than a change that was seen since, it counts
    /// no more. Without a time it always counts, as what a catalog tells does.
    pub listed: Option<Listed>,
    /// The object never changes under this name: never validate it again.
    pub immutable: bool,
    /// The host is likely to keep what it reads of the object in a cache of its own: ours in memory
    /// does not. [`Reader::told_to_host`] tells it for sure.
    pub host_keeps: bool,
    /// Size of the footer at the object's end, which will be read first.
    pub footer_size_bytes: Option<u64>,
}

impl Known {
    /// Nothing is known.
    pub const NOTHING: Known = Known {
        meta: ObjectMeta {
            size_bytes: None,
            etag: None,
            modified: None,
            content_type: None,
            metadata: Vec::new(),
            version: None,
            storage_class: None,
        },
        listed: None,
        immutable: false,
        host_keeps: false,
        footer_size_bytes: None,
    };
}

impl Query {
    /// Opens an object for reading, pinned to its present version.
    ///
    /// # Errors
    /// `NotFound`; `Denied`; `Throttled` or `Unavailable` when retrying did not help; `Exhausted`
    /// for a server that serves only whole objects, when this one exceeds the memory limit.
    pub async fn open(&self, at: &Location, known: &Known) -> Result<Reader> {
        self.core.run(open(&self.core, at, known)).await
    }

    /// Says which files will be read, in their order and all of one store: what is read of the next
    /// ones is fetched ahead, as it is for those of a glob.
    pub fn announce(&self, files: Vec<(Location, Known)>) {
        self.core.neighbours.announced(&self.core, files);
    }

    /// Says that all row groups of an opened Parquet file will be read for these of its columns, by
    /// their place in the footer, and so of the files of the same glob or list. What comes next is
    /// then fetched ahead from the first read on. `is_cached_ahead` says that the host widens its
    /// reads up to what it has of a file (DuckDB's external file cache).
    pub fn will_read(&self, at: &Location, columns: &[u32], is_cached_ahead: bool) {
        self.core.neighbours.will_read(&self.core, at, columns, is_cached_ahead);
    }

    /// Says what the rows have to be that a scan wants which begins now, of an opened Parquet file
    /// and of the files of the same glob or list: of row groups that have none by their statistics
    /// nothing is fetched ahead. `moving` is a column whose bound is told by
    /// [`Query::bound_moved`] while the scan reads.
    pub fn will_filter(&self, at: &Location, fixed: Vec<Filter>, moving: Option<(u32, Order)>) {
        self.core.neighbours.will_filter(&self.core, at, Filters::new(fixed, moving));
    }

    /// Says which values the rows must have by now in the column whose bound moves.
    pub fn bound_moved(&self, at: &Location, bound: Ranges) {
        self.core.neighbours.bound_moved(at, bound);
    }

    /// Size, tag and time of an object; from memory while that is valid.
    ///
    /// # Errors
    /// As [`Query::open`].
    pub async fn stat(&self, at: &Location) -> Result<ObjectMeta> {
        self.core.run(stat(&self.core, at)).await
    }

    /// Size, tag, time and user metadata of an object as the store tells them now, for a gateway.
    ///
    /// # Errors
    /// As [`Query::open`].
    pub async fn head(&self, at: &Location) -> Result<ObjectMeta> {
        self.core.run(ask(&self.core, at)).await
    }
}

async fn open(query: &Arc<QueryCore>, at: &Location, known: &Known) -> Result<Reader> {
    // A cache that cannot be used is told before anything is asked.
    query.disk()?;
    if known.host_keeps {
        query.host_cache.note(&at.key);
    }
    query.uploads.settled(&at.id()).await;
    let cell = cell(query, at);
    let is_opened = cell.initialized();
    let asks = is_opened && query.asks_always() && !known.immutable;
    query.scope.count(Metric::MetadataHits, u64::from(is_opened && !asks));
    let place = query.neighbours.opened(query, at);
    // Files of a glob are opened ahead, each on a connection that columns are then read on.
    let warms = place.is_none();
    let opened = cell.get_or_try_init(|| find_out(query, at, known, warms, None)).await?;
    query.neighbours.told(at, &opened.meta);
    if asks {
        query.scope.count(Metric::MetadataMisses, 1);
        if !Version::of(&opened.meta).matches(&ask(query, at).await?) {
            query.forget(at);
            return Err(changed(at.url()));
        }
    }
    // A listing may have told a later version than the one that this query reads.
    let place = place
        .map(|place| query.neighbours.known(place))
        .filter(|place| place.is_of(&Version::of(&opened.meta)))
        .or_else(|| query.neighbours.alone(at, &opened.meta));
    opened.reader(query, at, place).await
}

/// What this query knows of an object that it opens.
fn cell(query: &QueryCore, at: &Location) -> Arc<OnceCell<Opened>> {
    let mut opened = query.opened.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(opened.entry(at.id()).or_default())
}

/// Does what opening an object will have to do; asks for so much of it, if it has to be asked for.
async fn open_ahead(
    query: &Arc<QueryCore>,
    at: &Location,
    known: &Known,
    opening_bytes: u64,
) -> Result<()> {
    // Whoever opens it then asks anyway.
    if query.asks_always() {
        return Ok(());
    }
    query.uploads.settled(&at.id()).await;
    let cell = cell(query, at);
    let found = find_out(query, at, known, false, Some(opening_bytes));
    let opened = cell.get_or_try_init(|| found).await?;
    query.neighbours.told(at, &opened.meta);
    let size = opened.meta.size_bytes.unwrap_or(0);
    let (tail_first, grid_bytes) = (tail_first(&at.key), query.read_grid_bytes());
    if let Some(window) = plan::opening_window(size, opening_bytes, tail_first, grid_bytes) {
        opened.reader(query, at, None).await?.fetch_opening(query, window).await?;
    }
    Ok(())
}

/// `warms`: what follows may need more connections than there are. `window` is what is asked for
/// where the tag is not known, if that was decided already.
async fn find_out(
    query: &Arc<QueryCore>,
    at: &Location,
    known: &Known,
    warms: bool,
    window: Option<u64>,
) -> Result<Opened> {
    let engine = &query.engine;
    let held = |meta: &ObjectMeta| engine.held.get(&at.id(), &Version::of(meta)).is_some();
    let near = |meta: &ObjectMeta| held(meta) || opening_is_cached(query, at, meta);
    let warm_known = |meta: &ObjectMeta| {
        if warms && may_warm(query, at) && !near(meta) {
            warm(query, at, coming(query, at, meta.size_bytes));
        }
    };
    if known.meta.size_bytes.is_some()
        && known.meta.etag.is_some()
        && !is_outdated(query, at, known)
        && !engine.range_support.comes_whole(at)
    {
        query.scope.count(Metric::MetadataHits, 1);
        if known.immutable {
            engine.metadata.confirm(at, &known.meta, true, Instant::now());
        }
        warm_known(&known.meta);
        return Ok(Opened::new(known.meta.clone()));
    }
    if let Some(opened) = kept_whole(query, at, known).await {
        return Ok(opened);
    }
    // Whether a plain HTTP server serves ranges is known only from an answer with bytes; of what is
    // here whole none will be asked for.
    let is_here = |meta: &ObjectMeta| {
        let all = ByteRange { start: 0, end: meta.size_bytes.unwrap_or(0) };
        let held = engine.held.get(&at.id(), &Version::of(meta));
        held.is_some_and(|held| held.covers(&all)) || is_cached(query, at, meta)
    };
    let trusted = |meta: &ObjectMeta| engine.range_support.is_served(at) || is_here(meta);
    let mut size_bytes = known.meta.size_bytes;
    let heads = &at.mount.heads;
    match query.remembered(at, Validation::Time) {
        Remembered::Fresh(meta) if meta.size_bytes.is_some() && trusted(&meta) => {
            query.scope.count(Metric::MetadataHits, 1);
            warm_known(&meta);
            return Ok(Opened::new(meta));
        }
        Remembered::Stale(meta)
            if near(&meta) && trusted(&meta) && !heads.are_doubted(|| at.id()) =>
        {
            // The bytes are here already, so a request without a body confirms them.
            query.scope.count(Metric::MetadataMisses, 1);
            let window = opening_bytes(query, at, known, meta.size_bytes, 0);
            return Box::pin(confirmed(query, at, known, (&meta, window))).await;
        }
        Remembered::Fresh(meta) | Remembered::Stale(meta) => {
            query.scope.count(Metric::MetadataMisses, 1);
            size_bytes = size_bytes.or(meta.size_bytes);
        }
        Remembered::Nothing => query.scope.count(Metric::MetadataMisses, 1),
    }
    let asked = Instant::now();
    let will_come = warms.then(|| coming(query, at, size_bytes));
    // Boxed, so that what memory answers moves no large future about.
    let window = window.unwrap_or_else(|| opening_bytes(query, at, known, size_bytes, 0));
    let opened = Box::pin(open_fetch(query, at, known, window, will_come)).await?;
    if known.immutable {
        engine.metadata.confirm(at, &opened.meta, true, asked);
    }
    Ok(opened)
}

/// What will be read of an object that is opened.
fn coming(query: &QueryCore, at: &Location, size_bytes: Option<u64>) -> Coming {
    let opening_bytes = match is_packed(&at.key) {
        true => first_bytes(query, at, size_bytes.unwrap_or(0), true),
        false => query.settings.open_fetch_bytes,
    };
    Coming::File { size_bytes, opening_bytes, is_columns: tail_first(&at.key) }
}

/// Whether what a listing told counts no more.
fn is_outdated(query: &QueryCore, at: &Location, known: &Known) -> bool {
    let Some(Listed(listed)) = known.listed.filter(|_| !known.immutable) else { return false };
    // What this query listed itself it need not ask for.
    let is_old = listed < query.began
        && !query
            .validity(Validation::Time)
            .holds(Instant::now().saturating_duration_since(listed));
    is_old || query.engine.metadata.has_changed_since(at, listed, &known.meta)
}

/// Whether the disk cache has what readers of this version begin with.
fn opening_is_cached(query: &Arc<QueryCore>, at: &Location, meta: &ObjectMeta) -> bool {
    let size = meta.size_bytes.unwrap_or(0);
    let window = first_bytes(query, at, size, true);
    let opening = plan::opening_window(size, window, tail_first(&at.key), query.read_grid_bytes());
    let cached = CachedObject::of(query, at, &Version::of(meta));
    opening.zip(cached).is_some_and(|(opening, cached)| cached.covers(opening))
}

pub(crate) async fn stat(query: &QueryCore, at: &Location) -> Result<ObjectMeta> {
    query.uploads.settled(&at.id()).await;
    let opened = {
        let opened = query.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.get(&at.id()).and_then(|cell| cell.get().map(|opened| opened.meta.clone()))
    };
    let opened = opened.filter(|_| !query.asks_always());
    let (validity, since) =
        (query.validity(Validation::Time), query.counts_since(Validation::Time));
    let known = opened.or_else(|| match query.engine.metadata.get(at, validity, since) {
        Remembered::Fresh(meta) => Some(meta),
        Remembered::Stale(_) | Remembered::Nothing => None,
    });
    // A read whose answer came in chunks told no size; the store may tell it where it is asked.
    if let Some(meta) = known.filter(|meta| meta.size_bytes.is_some()) {
        query.scope.count(Metric::MetadataHits, 1);
        return Ok(meta);
    }
    if query.asks_always() {
        query.scope.count(Metric::MetadataMisses, 1);
        return ask(query, at).await;
    }
    let cell = {
        let mut told = query.told.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(told.entry(at.id()).or_default())
    };
    let is_told = cell.initialized();
    query.scope.count(if is_told { Metric::MetadataHits } else { Metric::MetadataMisses }, 1);
    cell.get_or_try_init(|| ask(query, at)).await.cloned()
}

/// What the store says of an object now: by HEAD, and by a GET of one byte where that tells of
/// another version than is known.
pub(crate) async fn ask(query: &QueryCore, at: &Location) -> Result<ObjectMeta> {
    let known = match query.remembered(at, Validation::Time) {
        Remembered::Fresh(meta) | Remembered::Stale(meta) => Some(meta),
        Remembered::Nothing => None,
    };
    if let Some(meta) = look(query, at, known.as_ref()).await? {
        return Ok(meta);
    }
    let asked = Instant::now();
    let answer = first_byte(query, at).await;
    heard(query, at, asked, &answer);
    answer
}

/// One HEAD; `None` where it tells of another version than is known. A GET decides then.
pub(crate) async fn look(
    query: &QueryCore,
    at: &Location,
    known: Option<&ObjectMeta>,
) -> Result<Option<ObjectMeta>> {
    let asked = Instant::now();
    let heads = &at.mount.heads;
    let by_head = heads.are_believed();
    let stat = || at.mount.store.stat(&at.key);
    let answer = match by_head {
        true => retry(query, (Cause::Open, "HEAD", at), Weight::Small, stat).await,
        false => first_byte(query, at).await,
    };
    if let (Ok(told), Some(known)) = (&answer, known.filter(|_| by_head))
        && !Version::of(known).matches(told)
    {
        heads.doubt(at.id(), known);
        return Ok(None);
    }
    heard(query, at, asked, &answer);
    answer.map(Some)
}

/// Remembers what the store said of an object.
fn heard(query: &QueryCore, at: &Location, asked: Instant, answer: &Result<ObjectMeta>) {
    match answer {
        Ok(meta) => query.confirm(at, meta, asked),
        Err(error) if error.kind() == Kind::NotFound => query.forget(at),
        Err(_) => {}
    }
}

/// One GET of one byte.
async fn first_byte(query: &QueryCore, at: &Location) -> Result<ObjectMeta> {
    let first = || GetRequest::from(GetRange::Bounded(ByteRange { start: 0, end: 1 }));
    let get = || at.mount.store.get(&at.key, first());
    retry(query, (Cause::Open, "GET", at), Weight::Small, get).await.map(|answer| answer.meta)
}

/// Parquet readers begin at the end.
pub(crate) fn tail_first(key: &str) -> bool {
    ends_with(key, ".parquet")
}

/// In any case, as DuckDB compares endings of names.
fn ends_with(key: &str, ending: &str) -> bool {
    let (key, ending) = (key.as_bytes(), ending.as_bytes());
    key.len().checked_sub(ending.len()).is_some_and(|at| key[at..].eq_ignore_ascii_case(ending))
}

impl QueryCore {
    /// Whether each open asks the store, not only the first one of a query.
    fn asks_always(&self) -> bool {
        self.settings.cache_validation == Validation::Always
    }

    /// The object is not what it was: nothing remembered of it counts any more.
    pub(crate) fn forget(&self, at: &Location) {
        self.engine.forget(at, Instant::now());
        self.outdate(at);
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).remove(&at.id());
        self.told.lock().unwrap_or_else(PoisonError::into_inner).remove(&at.id());
    }
}

//! An open object: positional reads into the caller's buffer, from any thread.

mod opening;
mod whole;

use crate::cache::{CachedObject, IsKept};
use crate::cause::Cause;
use crate::location::Location;
use crate::metadata::Validity;
use crate::pace::policy::Policy;
use crate::pace::{OnItsWay, Reserved};
use crate::query::{Query, QueryCore};
use crate::read::ahead::{Ahead, ReadUnderWay, is_large};
use crate::read::at_once::all;
use crate::read::begun::Approach;
use crate::read::block::{Block, Source, copy_ahead};
use crate::read::columns::{LATENCY_MIN, REQUESTS_MAX};
use crate::read::flight::{Progress, Wanted};
use crate::read::held::Held;
use crate::read::neighbours::{Place, Taken, came_ahead};
use crate::read::openings::{first_bytes, run_bytes_min};
use crate::read::plan::{Source as SpanSource, Span, divide, missing, plan, widen};
use crate::read::ready::{Here, Ready, copy_held, is_here};
use crate::read::tail_first;
use crate::read::version::Version;
use crate::read::whole::WholeReader;
use crate::warm::{Coming, warm};
use futures_util::future::{join, try_join_all, try_join4};
use penstock_base::settings::Validation;
use penstock_base::{ByteRange, Error, Kind, Metric, Result};
use penstock_store::ObjectMeta;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Reads from this size on tell a store's pace.
const MEASURED_BYTES_MIN: u64 = 1 << 20;

/// Of columns that are fetched ahead, a longer gap is not read.
const SHARED_GAP_BYTES_MAX: f64 = (256 << 10) as f64;

/// How a store answers, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// What another request adds: the time until its first byte, or a share of it.
    pub latency: Duration,
    /// What one connection brings in a second.
    pub bytes_per_s: f64,
}

/// One object, pinned to the version it was opened with.
#[derive(Debug)]
pub struct Reader {
    at: Location,
    meta: ObjectMeta,
    version: Version,
    size_bytes: u64,
    held: Arc<Held>,
    cached: Option<CachedObject>,
    ahead: Arc<Ahead>,
    /// The run that its large reads belong to: its own, or one of readers that take turns.
    run: Mutex<Arc<Ahead>>,
    tail_first: bool,
    /// In the glob that it was opened from.
    place: Option<Place>,
    /// Of an object that comes whole.
    whole: Option<WholeReader>,
    /// Once the host asked for this version: it may keep its bytes, until this reader is gone.
    is_kept: OnceLock<Option<Arc<IsKept>>>,
}

impl Reader {
    pub(crate) fn new(
        query: &Arc<QueryCore>,
        at: &Location,
        meta: &ObjectMeta,
        held: Option<Arc<Held>>,
        place: Option<Place>,
    ) -> Self {
        let version = Version::of(meta);
        let held = held.unwrap_or_else(|| query.engine.held.get_or_default(at, &version));
        let tail_first = tail_first(&at.key);
        let ahead = match tail_first && query.host_grid_bytes().is_some() {
            true => Ahead::doubtful(),
            false => Ahead::new(run_bytes_min(query, at)),
        };
        Reader {
            at: at.clone(),
            // `open` fetches an object of unknown size whole, and then its size is known.
            size_bytes: meta.size_bytes.unwrap_or(0),
            meta: meta.clone(),
            cached: CachedObject::of(query, at, &version),
            version,
            held,
            run: Mutex::new(Arc::clone(&ahead)),
            ahead,
            tail_first,
            place,
            whole: None,
            is_kept: OnceLock::new(),
        }
    }

    /// What the store said of the object when it was opened; the size is known.
    pub fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The object.
    pub fn location(&self) -> &Location {
        &self.at
    }

    /// How its store answers, for a host that plans its own requests. Where the columns of a scan
    /// are fetched ahead, many requests share a round trip: each costs its share, and no more than
    /// the smallest block that is worth a request.
    pub fn link(&self, query: &Query) -> Link {
        let policy = Policy::of(query.settings());
        let latency = &self.at.mount.latency;
        // What is expected comes near to it in some twenty requests only, where it is longer than
        // the profile says.
        let latency = latency.least().unwrap_or_else(|| latency.get());
        let core = &query.core;
        let shares = |place| core.neighbours.fetches_columns(core, place);
        let bytes_per_s = self.at.mount.pace.connection_bytes_per_s(&policy);
        if !self.place.as_ref().is_some_and(shares) {
            return Link { latency, bytes_per_s };
        }
        let gap = Duration::from_secs_f64(SHARED_GAP_BYTES_MAX / bytes_per_s.max(1.0));
        Link { latency: latency.div_f64(REQUESTS_MAX as f64).min(gap), bytes_per_s }
    }

    /// For how long bytes of it count, where nothing tells its versions apart and the policy of
    /// this query sets a time; [`Duration::MAX`] for ever.
    pub fn valid_for(&self, query: &Query) -> Option<Duration> {
        if self.version.is_told() || self.meta.modified.is_some() {
            return None;
        }
        match query.core.validity(Validation::Query) {
            Validity::Asked => None,
            Validity::For(time) => Some(time),
            Validity::Forever => Some(Duration::MAX),
        }
    }

    /// Fills `buf` with the bytes from `offset` on. Any thread, many at once.
    ///
    /// # Errors
    /// `Invalid` when the range passes the object's end; `Conflict` when the object changed;
    /// `Throttled`, `Unavailable` or `Corrupt` when retrying did not help; `Cancelled`.
    pub async fn read_at(&self, query: &Query, buf: &mut [u8], offset: u64) -> Result<()> {
        query.core.run(self.read_inside(&query.core, buf, offset)).await
    }

    async fn read_inside(&self, query: &Arc<QueryCore>, buf: &mut [u8], offset: u64) -> Result<()> {
        let range = ByteRange::of_len(offset, buf.len() as u64)
            .filter(|range| range.end <= self.size_bytes)
            .ok_or_else(|| self.past_the_end(offset, buf.len()))?;
        if let Some(place) = &self.place {
            query.neighbours.begins(query, place);
        }
        let result = match &self.whole {
            Some(whole) => self.read_of_whole(query, whole, buf, range).await,
            None => self.read_range(query, buf, range).await,
        };
        if let (Ok(taken), Some(place)) = (&result, &self.place) {
            query.neighbours.done(query, place, range, *taken);
        }
        if let Err(error) = &result
            && matches!(error.kind(), Kind::Conflict | Kind::NotFound)
        {
            query.forget(&self.at);
        }
        result.map(|_| ())
    }

    async fn read_range(
        &self,
        query: &Arc<QueryCore>,
        buf: &mut [u8],
        range: ByteRange,
    ) -> Result<Taken> {
        let mut held = self.held.pieces();
        let window = first_bytes(query, &self.at, self.size_bytes, held.is_empty());
        let ranges: Vec<ByteRange> = held.iter().map(|piece| piece.range).collect();
        let grid_bytes = query.read_grid_bytes();
        let widened = widen(range, self.size_bytes, window, self.tail_first, grid_bytes, &ranges);
        // What is begun ahead of this reader is asked for once, by whoever is first.
        if let Some(window) = self.held.coming(&range).or(widened) {
            // Boxed, so that what memory answers moves no large future about.
            let cause = if self.tail_first { Cause::Footer } else { Cause::Open };
            Box::pin(query.scope.run_for(cause, self.fill(query, range, window))).await?;
            held = self.held.pieces();
        }
        let blocks = self.cached.as_ref().map_or_else(Vec::new, |cached| cached.find(range));
        let mut ready = Ready { held, blocks, ahead: Vec::new(), begun: Vec::new() };
        let (mut approach, mut run, mut under_way) = (None, None, None);
        let mut is_cached = !ready.blocks.is_empty() && ready.is_cached(range);
        if let Some(blocks) = self.columns_ahead(query, range, is_cached) {
            ready.ahead = blocks;
        } else if let Some(run) = &*run.insert(self.run(query, range)) {
            (approach, under_way) = self.large(query, run, range, &mut ready);
        } else {
            let source = self.source(query);
            ready.ahead = self.ahead.blocks(&source, range, &ready.held, is_cached);
        }
        let mut from_ahead = !ready.ahead.is_empty() || !ready.begun.is_empty();
        let ahead_bytes = ready.ahead_bytes(range);
        if is_cached {
            from_ahead = came_ahead(&ready.ahead);
            is_cached = !from_ahead;
            approach = approach.filter(|_| from_ahead);
            // Nothing waits for the network.
            (ready.ahead, ready.begun) = Default::default();
        }
        if from_ahead {
            query.scope.count(Metric::ReadAheadHits, 1);
            query.scope.count(Metric::ReadAheadHitBytes, ahead_bytes);
        }
        let requests = self.requests(query, range, &ready.ranges());
        if !from_ahead && ready.blocks.is_empty() && is_here(&requests.spans) {
            query.scope.count(Metric::OpenFetchHits, 1);
        }
        let retries = query.scope.metrics.get(Metric::Retries);
        // Behind the first step of its own requests, in which they take connections.
        let beside = async { approach.is_some().then(|| self.warm_next(query, &requests)) };
        let carrying = self.carry_out(query, &mut *buf, &requests, &mut ready, approach.as_ref());
        let alone = join(carrying, beside).await.0?;
        drop(under_way);
        if let (Some(approach), Some(Some(run))) = (&approach, &run) {
            run.large_done(approach.bytes_per_s());
        }
        if requests.bytes > 0 {
            self.keep_footer(query, range, buf);
        }
        // What others fetched, or a failure held up, tells nothing of the store's pace.
        if let Some(on_its_way) = requests.on_its_way
            && alone
            && query.scope.metrics.get(Metric::Retries) == retries
        {
            on_its_way.ended(&requests.policy, requests.bytes);
        }
        Ok(Taken { on_demand_bytes: requests.bytes, is_cached })
    }

    /// What is missing of a range, in as many requests at once as cost least.
    fn requests<'a>(
        &'a self,
        query: &'a QueryCore,
        range: ByteRange,
        here: &[ByteRange],
    ) -> Requests<'a> {
        let (settings, mount) = (&query.settings, &self.at.mount);
        let policy = Policy::of(settings);
        let gap_bytes = || mount.pace.gap_bytes(&policy, mount.latency.get());
        let spans = plan(range, here, gap_bytes);
        let (bytes, stretches) = missing(&spans);
        let limit = policy.fanout_limit(bytes);
        let cheapest = mount.pace.fanout(&policy, bytes, limit, mount.latency.get());
        let extra = cheapest.max(stretches.min(policy.requests_max())).saturating_sub(1);
        let lanes = query.engine.lanes.reserve(extra, settings.parallel_read_io_threads);
        let at_once = lanes.count() + 1;
        let spans = divide(spans, at_once.min(cheapest));
        let (bytes, requests) = missing(&spans);
        // Requests that wait for each other do not tell what they cost at once.
        let is_measured = bytes >= MEASURED_BYTES_MIN && requests <= at_once;
        let on_its_way = is_measured.then(|| mount.pace.begin(requests));
        let at_once = usize::try_from(at_once).unwrap_or(usize::MAX);
        Requests { spans, at_once, bytes, policy, on_its_way, _lanes: lanes }
    }

    /// What is fetched ahead by what a scan reads of Parquet files; `None` where it is no scan.
    fn columns_ahead(
        &self,
        query: &Arc<QueryCore>,
        range: ByteRange,
        is_cached: bool,
    ) -> Option<Vec<Arc<Block>>> {
        let is_near = self.at.mount.latency.get() < LATENCY_MIN;
        if self.tail_first && self.place.is_some() && !is_near {
            // A long footer takes a while to parse: not under the lock of all scans.
            self.held.layout(self.size_bytes);
        }
        query.neighbours.columns(query, self.place.as_ref()?, range, is_cached)
    }

    /// The run that a large read belongs to, or a small one at the end of such a run. The threads
    /// of a scan may have a reader each, which reads every nth step: together they are one run.
    fn run(&self, query: &QueryCore, range: ByteRange) -> Option<Arc<Ahead>> {
        let mut run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_large(range) {
            return run.has_begun(range).then(|| Arc::clone(&run));
        }
        if !run.goes_on_with(range) {
            let others = query.neighbours.runs(&self.at.id(), &self.version, &self.ahead);
            let other = others.into_iter().find(|other| other.goes_on_with(range));
            *run = other.unwrap_or_else(|| Arc::clone(&self.ahead));
        }
        Some(Arc::clone(&run))
    }

    /// Finds what is ready or on its way of a large read. What follows is asked for when this one
    /// is nearly over, or at once behind a burst.
    fn large(
        &self,
        query: &Arc<QueryCore>,
        run: &Arc<Ahead>,
        range: ByteRange,
        ready: &mut Ready,
    ) -> (Option<Approach>, Option<ReadUnderWay>) {
        let (begun, blocks) = run.large(range);
        ready.begun = begun.into_iter().map(Some).collect();
        ready.ahead = blocks;
        let approach = self.approach(query, run, range);
        let may_burst = approach.is_some() && query.host_grid_bytes().is_some();
        let under_way = may_burst.then(|| run.under_way(&self.source(query), range));
        (approach, under_way.flatten())
    }

    /// Has the next large read asked for when this one is nearly over. Stores nearby are asked when
    /// it comes.
    fn approach(
        &self,
        query: &Arc<QueryCore>,
        run: &Arc<Ahead>,
        range: ByteRange,
    ) -> Option<Approach> {
        let latency = self.at.mount.latency.get();
        let is_wanted = query.settings.parallel_read_enabled && latency >= LATENCY_MIN;
        if !is_wanted || range.end >= self.size_bytes || !is_large(range) {
            return None;
        }
        let (run, query, at) = (Arc::clone(run), Arc::clone(query), self.at.clone());
        let (version, size_bytes) = (self.version.clone(), self.size_bytes);
        let begin = move || {
            let source = Source { query: &query, at: &at, version: &version, size_bytes };
            run.begin_next(&source, range);
        };
        Some(Approach::new(range.len(), latency, begin))
    }

    /// The next large step will be asked for before this one is over, in about as many requests: on
    /// connections that are opened meanwhile.
    fn warm_next(&self, query: &QueryCore, requests: &Requests<'_>) {
        let parts = (requests.spans.len() as u64).min(requests.policy.requests_max());
        warm(query, &self.at, Coming::Step(parts));
    }

    fn source<'a>(&'a self, query: &'a Arc<QueryCore>) -> Source<'a> {
        Source { query, at: &self.at, version: &self.version, size_bytes: self.size_bytes }
    }

    /// Each span goes to its own part of the buffer. What is missing is asked for at once, in as
    /// many requests as may run; meanwhile what is here is copied, and the disk is read. Gives
    /// whether it tells the store's pace.
    async fn carry_out(
        &self,
        query: &Arc<QueryCore>,
        mut buf: &mut [u8],
        requests: &Requests<'_>,
        ready: &mut Ready,
        approach: Option<&Approach>,
    ) -> Result<bool> {
        let progress = approach.map(|approach| approach as &dyn Progress);
        let wanted = Wanted { progress, ..self.wanted(query) };
        let copied = |part: &[u8]| {
            approach.inspect(|approach| approach.copied(part.len() as u64));
        };
        let (mut begun_before, mut fetches, mut ahead) = (Vec::new(), Vec::new(), Vec::new());
        let (mut held, mut cached) = (Vec::new(), Vec::new());
        for span in &requests.spans {
            let len = usize::try_from(span.range.len()).unwrap_or(usize::MAX);
            let (part, rest) = std::mem::take(&mut buf).split_at_mut(len);
            buf = rest;
            match span.source {
                SpanSource::Held(index) => match ready.source(index) {
                    Here::Held(piece) => held.push((piece.clone(), part, span.range)),
                    Here::Ahead(block) => {
                        ahead.push(copy_ahead(wanted, block, part, span.range));
                    }
                    Here::Cached(index) => cached.push((index, part, span.range)),
                    Here::Begun(begun) => {
                        let begun = begun.filter(|begun| begun.range.start == span.range.start);
                        begun_before.push(wanted.fetch(part, span.range, begun));
                    }
                },
                SpanSource::Store => fetches.push(wanted.fetch(part, span.range, None)),
            }
        }
        let blocks = &ready.blocks;
        let here = async {
            for (piece, part, range) in held {
                copy_held(part, range.start, &piece);
                copied(part);
            }
            for (index, part, range) in cached {
                let is_read = self
                    .cached
                    .as_ref()
                    .is_some_and(|cached| cached.read(query, &blocks[index], range.start, part));
                if is_read {
                    copied(part);
                } else {
                    wanted.fetch(part, range, None).await?;
                }
            }
            Ok(())
        };
        // In this order they take their first steps: requests are sent before anything is copied.
        let fetches = all(fetches, requests.at_once);
        let (fetched, begun, ahead, ()) =
            try_join4(fetches, try_join_all(begun_before), try_join_all(ahead), here).await?;
        Ok(fetched && begun.into_iter().chain(ahead).all(|alone| alone))
    }

    fn wanted<'a>(&'a self, query: &'a Arc<QueryCore>) -> Wanted<'a> {
        Wanted {
            query,
            at: &self.at,
            version: &self.version,
            cached: self.cached.as_ref(),
            meta: Some(&self.meta),
            progress: None,
            debts: None,
        }
    }

    fn past_the_end(&self, offset: u64, len: usize) -> Error {
        Error::new(
            Kind::Invalid,
            format!(
                "a read of {len} bytes at {offset} passes the end of the object, which has {} bytes",
                self.size_bytes
            ),
        )
        .with_operation("read")
        .with_object(self.at.url())
    }
}

/// A read as it is carried out.
struct Requests<'a> {
    spans: Vec<Span>,
    /// As many of them are fetched at a time.
    at_once: usize,
    /// To be fetched.
    bytes: u64,
    policy: Policy,
    /// Where it tells the store's pace.
    on_its_way: Option<OnItsWay<'a>>,
    _lanes: Reserved<'a>,
}

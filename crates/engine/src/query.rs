//! One statement or one client request: its settings, cancellation, counters and uploads.

use crate::cache::{DiskCache, HostCache, name_in_cache};
use crate::cancel::Cancellation;
use crate::cause::Cause;
use crate::engine::{Engine, Interrupted};
use crate::location::{Location, ObjectId, StoreOption};
use crate::read::{Neighbours, Opened};
use crate::request_log::{RequestLog, Scope};
use crate::statements::Statement;
use crate::traffic::TrafficSoFar;
use crate::upload::{DetachedUploads, Outputs};
use crate::waits::{add_waited, blocked};
use crate::warm::WarmUps;
use penstock_base::{Metric, Metrics, Result, Settings, micros};
use penstock_store::ObjectMeta;
use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;
use tokio::time;

/// A statement. Dropping it gives up the uploads that were finished detached and never waited for.
pub struct Query {
    pub(crate) core: Arc<QueryCore>,
    interrupted: Option<Interrupted>,
    statement: Option<Arc<Statement>>,
}

impl std::fmt::Debug for Query {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Query").field("core", &self.core).finish_non_exhaustive()
    }
}

/// The part of a query that its background work shares.
#[derive(Debug)]
pub(crate) struct QueryCore {
    pub engine: Arc<Engine>,
    pub settings: Settings,
    pub began: tokio::time::Instant,
    /// Counts the queries of the engine.
    pub number: u64,
    /// The disk cache that it uses to its end.
    disk: OnceLock<Result<Option<Arc<DiskCache>>>>,
    pub host_cache: HostCache,
    pub cancel: Cancellation,
    pub scope: Arc<Scope>,
    /// What this query opened: it sees one version of each object and asks for it once.
    pub opened: Mutex<HashMap<ObjectId, Arc<OnceCell<Opened>>>>,
    /// What the store told this query of objects that it did not open.
    pub told: Mutex<HashMap<ObjectId, Arc<OnceCell<ObjectMeta>>>>,
    /// Bytes of whole objects that stay as long as this does.
    pub whole_bytes: AtomicU64,
    pub uploads: DetachedUploads,
    pub outputs: Outputs,
    /// The files of its globs, to fetch ahead of a scan.
    pub neighbours: Arc<Neighbours>,
    /// Connections that are being opened for it.
    pub warm_ups: WarmUps,
    /// It may end before what it reads does: see [`Query::may_end_early`].
    ends_early: AtomicBool,
    /// See [`Query::may_be_left`].
    may_be_left: AtomicBool,
    /// See [`Query::host_reads_ahead`]; 0 for a host that does not.
    host_grid_bytes: AtomicU64,
    /// See [`QueryCore::gives_way`].
    is_giving_way: AtomicBool,
    /// See [`Query::repeats_for`].
    repeats_until: OnceLock<time::Instant>,
}

/// Of so many bytes read, one may be fetched in vain where the end of a statement is not in sight.
pub(crate) const WASTE_PARTS: u64 = 10;

/// A request that is sent once more has so long for a small answer, also behind the end.
const LAST_ANSWER: Duration = Duration::from_secs(2);

impl QueryCore {
    /// The disk cache that this query's settings ask for, the same one each time. It is opened when
    /// first asked for, since most statements read nothing remote; one that cannot be is not tried
    /// again.
    ///
    /// # Errors
    /// As [`DiskCache::open`].
    pub fn disk(&self) -> Result<Option<Arc<DiskCache>>> {
        let engine = &self.engine;
        let open = || engine.disk.of(&self.settings, self.number, &engine.observer.metrics);
        match self.disk.get_or_init(open) {
            Ok(disk) => Ok(disk.clone()),
            Err(error) => Err(error.again()),
        }
    }

    /// The disk cache, where this query has opened one.
    pub fn opened_disk(&self) -> Option<&Arc<DiskCache>> {
        self.disk.get()?.as_ref().ok()?.as_ref()
    }

    /// What the disk cache has of an object that changed is not to be taken for it.
    pub fn outdate(&self, at: &Location) {
        if let Some(disk) = self.opened_disk()
            && let Some(name) = name_in_cache(at)
        {
            disk.outdate(&name);
        }
    }

    /// Where the host itself fetches ahead what a scan of columns reads: its reads begin and end at
    /// multiples of so many bytes.
    pub fn host_grid_bytes(&self) -> Option<u64> {
        Some(self.host_grid_bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// Reads of the host begin at multiples of so many bytes.
    pub fn read_grid_bytes(&self) -> u64 {
        self.host_grid_bytes().unwrap_or(1)
    }

    /// Whether it may end before what it reads does.
    pub fn ends_early(&self) -> bool {
        self.ends_early.load(Ordering::Relaxed)
    }

    /// Whether whoever takes its rows may stop at any of them.
    pub fn may_be_left(&self) -> bool {
        self.may_be_left.load(Ordering::Relaxed)
    }

    /// Says that nobody waits for what it does: what a store refuses that throttles is not asked
    /// again.
    pub fn gives_way(&self) {
        self.is_giving_way.store(true, Ordering::Relaxed);
    }

    /// Whether it does.
    pub fn is_giving_way(&self) -> bool {
        self.is_giving_way.load(Ordering::Relaxed)
    }

    /// Whether a request that failed may be sent again after this wait.
    pub fn may_repeat(&self, wait: Duration) -> bool {
        self.repeats_until.get().is_none_or(|until| time::Instant::now() + wait <= *until)
    }

    /// The latest moment at which a small answer may come, where there is one.
    pub fn answers_by(&self) -> Option<time::Instant> {
        let last = time::Instant::now() + LAST_ANSWER;
        self.repeats_until.get().map(|until| (*until).max(last))
    }

    /// How many bytes may be ahead of a run of reads: as many as it has read, and of a statement
    /// that may end at any moment those that may be in vain.
    pub fn ahead_bytes_max(&self, run_bytes: u64) -> u64 {
        if self.ends_early() { run_bytes / WASTE_PARTS } else { run_bytes }
    }

    /// Runs a verb: requests count for this query, and cancelling it ends the verb.
    ///
    /// Boxed at once: each future around it would be larger by three of it, and be moved whole by
    /// each of its callers. A read moved 187 KB so, which took longer than all else it does.
    pub fn run<T>(&self, verb: impl Future<Output = Result<T>>) -> impl Future<Output = Result<T>> {
        let verb = Box::pin(verb);
        async move { self.scope.run(self.cancel.race(verb)).await }
    }

    /// As [`QueryCore::run`]; `cause` is what its requests are sent for.
    pub fn run_for<T>(
        &self,
        cause: Cause,
        verb: impl Future<Output = Result<T>>,
    ) -> impl Future<Output = Result<T>> {
        let verb = Box::pin(verb);
        async move { self.scope.run_for(cause, self.cancel.race(verb)).await }
    }
}

impl Query {
    pub(crate) fn new(
        engine: Arc<Engine>,
        settings: Settings,
        interrupted: Option<Interrupted>,
        statement: u64,
    ) -> Self {
        let observer = &engine.observer;
        let numbered = (statement > 0).then(|| observer.statements.begin(statement));
        let metrics = numbered.as_ref().map(|it| Arc::clone(&it.metrics)).unwrap_or_default();
        let log = RequestLog::new(settings.request_log_entries);
        let scope = Scope::new(statement, metrics, log, Arc::clone(&engine.observer));
        let core = Arc::new(QueryCore {
            number: engine.disk.query_begins(),
            engine,
            settings,
            began: tokio::time::Instant::now(),
            disk: OnceLock::new(),
            host_cache: HostCache::default(),
            cancel: Cancellation::default(),
            scope,
            opened: Mutex::default(),
            told: Mutex::default(),
            whole_bytes: AtomicU64::default(),
            uploads: DetachedUploads::default(),
            outputs: Outputs::default(),
            neighbours: Arc::default(),
            warm_ups: WarmUps::default(),
            ends_early: AtomicBool::default(),
            may_be_left: AtomicBool::default(),
            host_grid_bytes: AtomicU64::default(),
            is_giving_way: AtomicBool::default(),
            repeats_until: OnceLock::new(),
        });
        Query { core, interrupted, statement: numbered }
    }

    /// Says that nobody can interrupt it any more: requests that fail are sent again for so long at
    /// most. Bodies that are on their way go on.
    pub fn repeats_for(&self, longest: Duration) {
        // The first one counts.
        let _ = self.core.repeats_until.set(time::Instant::now() + longest);
    }

    /// Runs a verb on the calling thread, which waits for its sockets itself.
    ///
    /// # Errors
    /// The verb's; `Cancelled` when the query is cancelled or interrupted; `Unsupported` in a
    /// forked child.
    pub fn block_on<T>(&self, verb: impl Future<Output = Result<T>>) -> Result<T> {
        let started = Instant::now();
        let verb = blocked(&self.core.scope, self.core.run(verb));
        let result = self
            .core
            .engine
            .block_on(verb, || self.interrupted.as_ref().is_some_and(|interrupted| interrupted()));
        self.core.scope.count(Metric::WaitMicros, micros(started.elapsed()));
        result
    }

    /// The object of a URL, seen with these store options and reached as this query's settings
    /// ask (proxy, certificates, time limits, connections). As [`Engine::locate`] otherwise.
    ///
    /// # Errors
    /// As [`Engine::locate`]; also `Invalid` or `Unsupported` for an `http_proxy` that is none, and
    /// `Invalid` for settings that contradict each other.
    pub fn locate(&self, url: &str, options: &[StoreOption]) -> Result<Location> {
        self.core.settings.check_together()?;
        self.core.engine.locate_with(url, options, &self.core.settings, self.core.began)
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.core.engine
    }

    /// The settings of this query.
    pub fn settings(&self) -> &Settings {
        &self.core.settings
    }

    /// Counters of this query.
    pub fn metrics(&self) -> &Metrics {
        &self.core.scope.metrics
    }

    /// How busy this query kept stores and volumes, and what took longest.
    pub fn traffic(&self) -> TrafficSoFar {
        self.core.scope.traffic.so_far()
    }

    /// The calling thread has read a file on a volume for it, which took until now.
    pub fn has_read_volume(&self, began: Instant, bytes: u64) {
        let (scope, took) = (&self.core.scope, began.elapsed());
        scope.count(Metric::VolumeReads, 1);
        scope.count(Metric::VolumeBytesRead, bytes);
        scope.count(Metric::VolumeReadMicros, micros(took));
        scope.traffic.read(began, took);
        add_waited(took);
    }

    /// A thread has worked on the plan of its statement for so long, its waits not counted: see
    /// [`crate::thread_waited`].
    pub fn has_worked(&self, took: Duration) {
        self.core.scope.traffic.worked(took);
    }

    /// The requests of this query; drain them for the host's log.
    pub fn requests(&self) -> &RequestLog {
        &self.core.scope.log
    }

    /// Stops this query, from any thread: running verbs end with `Cancelled` at once, later ones
    /// do not begin, and uploads are given up.
    pub fn cancel(&self) {
        self.core.cancel.cancel();
        self.core.neighbours.stop();
        self.core.warm_ups.stop();
        self.core.uploads.abort();
    }

    /// Says that the statement may end before its files do (a `LIMIT`): from now on no more is
    /// fetched ahead than a tenth of what was read, and 256 KiB.
    pub fn may_end_early(&self) {
        self.core.ends_early.store(true, Ordering::Relaxed);
    }

    /// Says that its rows go one by one, as they are read, to somebody who takes them and may stop
    /// at any: from now on no more of a scan of columns is fetched ahead than is taken meanwhile.
    pub fn may_be_left(&self) {
        self.core.may_be_left.store(true, Ordering::Relaxed);
    }

    /// Says that the host fetches ahead the columns of Parquet scans itself (DuckDB 2.0), in reads
    /// that begin and end at multiples of `grid_bytes`. Nothing is learned from the order of its
    /// reads then: only a scan whose columns are told ([`Query::will_read`]) is followed, and files
    /// of a glob are opened ahead.
    pub fn host_reads_ahead(&self, grid_bytes: u64) {
        self.core.host_grid_bytes.store(grid_bytes.max(1), Ordering::Relaxed);
    }

    /// Says that no two outputs of this statement may be one object: from now on
    /// [`Query::create`] refuses a name that it has given before.
    pub fn writes_each_name_once(&self) {
        self.core.outputs.guard();
    }

    /// The flag behind [`Query::cancel`], for those who have no reference to the query.
    pub fn cancellation(&self) -> &Cancellation {
        &self.core.cancel
    }

    /// Waits for every upload that was finished detached.
    ///
    /// # Errors
    /// One error that tells of every upload that failed; its kind is the first one's.
    pub async fn barrier(&self) -> Result<()> {
        self.core.run(self.core.uploads.barrier()).await
    }

    /// From now on the events of its requests have their headers.
    pub fn logs_headers(&self) {
        self.core.scope.wants_headers.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// Gives up every detached upload that is not durable yet: nothing becomes visible, and the
    /// parts are aborted in the background.
    pub fn abort_uploads(&self) {
        self.core.uploads.abort();
    }
}

impl Drop for Query {
    fn drop(&mut self) {
        self.core.neighbours.stop();
        self.core.warm_ups.stop();
        self.core.uploads.abort();
        if let Some(statement) = &self.statement {
            self.core.engine.observer.statements.end(statement);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Known, Reader};
    use penstock_store::{GetRequest, PutOptions};

    fn assert_send<T: Send>(_: T) {}

    /// Compiles only if an async door can spawn every verb.
    #[allow(dead_code)]
    fn verbs_can_be_spawned(query: &'static Query, at: &'static Location, get: GetRequest) {
        assert_send(query.open(at, const { &Known::NOTHING }));
        assert_send(query.get(at, get));
        assert_send(query.glob(at));
        assert_send(query.list(at));
        assert_send(query.remove(std::slice::from_ref(at)));
        assert_send(query.copy(at, at, PutOptions::default()));
        assert_send(query.barrier());
    }

    /// The size of what a function returns, which is never called.
    fn size<A, F: Future>(_: impl Fn(A) -> F) -> usize {
        std::mem::size_of::<F>()
    }

    /// Every caller moves them, some of them several times.
    #[test]
    fn futures_of_verbs_are_small() {
        type Verb<'a> = (&'a Query, &'a Location);
        let sizes = [
            size(|(query, at): Verb<'static>| query.open(at, const { &Known::NOTHING })),
            size(|(query, at): Verb<'static>| query.get(at, GetRequest::default())),
            size(|(query, at): Verb<'static>| query.glob(at)),
            size(|(query, at): Verb<'static>| query.stat(at)),
            size(|(reader, query): (&'static Reader, &'static Query)| {
                reader.read_at(query, &mut [], 0)
            }),
        ];
        assert!(sizes.iter().all(|size| *size <= 512), "{sizes:?}");
    }
}

//! What a process (or a DuckDB database) shares: runtime, stores, remembered metadata, memory,
//! counters. Holds things together; decides nothing.

use crate::budget::{Budget, Pressable};
use crate::cache::{DiskSlot, HostVersions, IsKept, MemoryCache};
use crate::limits::Limits;
use crate::location::{Location, Mount, Mounts, Opener, StoreOption};
use crate::metadata::MetadataCache;
use crate::names::{KeptListings, Listings};
use crate::pace::Lanes;
use crate::parallel::Pool;
use crate::query::Query;
use crate::random::{Random, SeededRandom};
use crate::read::{Delivered, Flights, HeldCache, RangeSupport, Scanned, Together, Version};
use crate::renewal::{CurrentOptions, Renewal};
use crate::request_log::{EngineObserver, RequestLog};
use crate::runtime::IoRuntime;
use crate::slots::Slots;
use crate::statements::Statement;
use crate::upload::{Cleanups, Commits, OpenUploads, PiecePool};
use penstock_base::{Error, Kind, Metrics, Result, Settings};
use penstock_store::{ObjectMeta, Observer, Store};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// The shared half of every verb.
#[derive(Debug)]
pub struct Engine {
    pub(crate) settings: Settings,
    /// For callers that block; `None` where the engine lives on the caller's own runtime.
    runtime: Option<Arc<IoRuntime>>,
    /// Where background work is spawned.
    pub(crate) handle: Handle,
    opener: Arc<dyn Opener>,
    pub(crate) mounts: Mounts,
    renewal: OnceLock<Renewal>,
    pub(crate) metadata: MetadataCache,
    pub(crate) held: HeldCache,
    pub(crate) disk: DiskSlot,
    pub(crate) memory: Arc<MemoryCache>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) pieces: Arc<PiecePool>,
    pub(crate) upload_slots: Slots,
    /// Those in force; the statement that began last decides.
    limits: Mutex<Limits>,
    /// Whether a statement has decided on the limits.
    has_begun: AtomicBool,
    pub(crate) open_uploads: OpenUploads,
    pub(crate) cleanups: Cleanups,
    pub(crate) commits: Arc<Commits>,
    pub(crate) listings: Listings,
    pub(crate) kept_listings: KeptListings,
    pub(crate) scanned: Scanned,
    pub(crate) delivered: Delivered,
    pub(crate) host_versions: HostVersions,
    pub(crate) range_support: RangeSupport,
    pub(crate) observer: Arc<EngineObserver>,
    pub(crate) random: Arc<dyn Random>,
    /// For file systems that are not ours.
    pub(crate) pool: Pool,
    /// Requests of large reads beyond the first of each.
    pub(crate) lanes: Lanes,
    /// Spans on their way to readers.
    pub(crate) flights: Flights,
    /// Requests on their way that open objects.
    pub(crate) together: Together,
}

impl Engine {
    /// An engine on the process's I/O runtime that opens every scheme.
    ///
    /// # Errors
    /// `Exhausted` when the I/O threads cannot be started; `Invalid` for settings that contradict
    /// each other.
    pub fn new(settings: Settings) -> Result<Arc<Self>> {
        settings.check_together()?;
        let runtime = IoRuntime::shared(settings.io_threads)?;
        let handle = runtime.handle().clone();
        let random = Arc::new(SeededRandom::from_entropy());
        Self::assemble(settings, Some(runtime), handle, random, |observer, settings| {
            crate::opener::all_schemes(observer, settings)
        })
    }

    /// An engine on a runtime of the caller, with its own opener and chance: for tests, and for
    /// doors that bring their stores with [`Engine::mount`]. Its queries cannot `block_on`.
    pub fn on_runtime(
        settings: Settings,
        handle: Handle,
        random: Arc<dyn Random>,
        opener: impl FnOnce(Arc<dyn Observer>) -> Arc<dyn Opener>,
    ) -> Arc<Self> {
        Self::assemble(settings, None, handle, random, |observer, _| Ok(opener(observer)))
            .expect("this opener cannot fail")
    }

    fn assemble(
        settings: Settings,
        runtime: Option<Arc<IoRuntime>>,
        handle: Handle,
        random: Arc<dyn Random>,
        opener: impl FnOnce(Arc<dyn Observer>, &Settings) -> Result<Arc<dyn Opener>>,
    ) -> Result<Arc<Self>> {
        let metrics = Arc::new(Metrics::default());
        let limits = Limits::of(&settings);
        let observer =
            Arc::new(EngineObserver::new(Arc::clone(&metrics), limits.request_log_entries));
        let opener = opener(Arc::clone(&observer) as Arc<dyn Observer>, &settings)?;
        let budget = Budget::new(limits.memory_bytes, metrics);
        budget.set_spills_beside(limits.spills_beside_bytes);
        let memory = Arc::new(MemoryCache::new(limits.cached_bytes()));
        budget.register(Arc::downgrade(&memory) as Weak<dyn Pressable>);
        Ok(Arc::new(Engine {
            runtime,
            handle,
            opener,
            mounts: Mounts::default(),
            renewal: OnceLock::new(),
            metadata: MetadataCache::new(limits.metadata_cache_entries),
            held: HeldCache::new(limits.held_bytes()),
            disk: DiskSlot::default(),
            memory,
            budget,
            pieces: Arc::default(),
            upload_slots: Slots::new(limits.upload_slots),
            limits: Mutex::new(limits),
            has_begun: AtomicBool::new(false),
            open_uploads: OpenUploads::default(),
            cleanups: Cleanups::default(),
            commits: Arc::default(),
            listings: Listings::default(),
            scanned: Scanned::default(),
            delivered: Delivered::default(),
            host_versions: HostVersions::default(),
            range_support: RangeSupport::default(),
            kept_listings: KeptListings::new(limits.metadata_cache_entries),
            observer,
            random,
            pool: Pool::default(),
            lanes: Lanes::default(),
            flights: Flights::default(),
            together: Together::default(),
            settings,
        }))
    }

    /// Begins a statement or a client request. `interrupted` is asked at most every
    /// [`crate::POLL_INTERVAL`] by callers that block, on the blocked thread. What its settings say
    /// of memory, caches, the log and uploads at once holds for the whole engine from now on: there
    /// is one of each, and the statement that began last decides.
    pub fn query(self: &Arc<Self>, settings: Settings, interrupted: Option<Interrupted>) -> Query {
        self.statement(0, settings, interrupted)
    }

    /// As [`Engine::query`], for a host that numbers its statements, from 1: its requests and
    /// counters are shown under this number.
    pub fn statement(
        self: &Arc<Self>,
        number: u64,
        settings: Settings,
        interrupted: Option<Interrupted>,
    ) -> Query {
        self.adopt_now(&settings);
        Query::new(Arc::clone(self), settings, interrupted, number)
    }

    /// Lets the limits of these settings hold as a statement that begins does: for SET, after which
    /// what an instance does by itself must keep to what was said.
    pub fn adopt_now(&self, settings: &Settings) {
        self.has_begun.store(true, Ordering::Relaxed);
        self.adopt(settings);
    }

    /// Lets the limits of these settings hold until the first statement begins: for what an
    /// instance does by itself, which knows nothing of the settings of a statement.
    pub fn adopt_before_statements(&self, settings: &Settings) {
        if !self.has_begun.load(Ordering::Relaxed) {
            self.adopt(settings);
        }
    }

    fn adopt(&self, settings: &Settings) {
        let wanted = Limits::of(settings);
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        if *limits == wanted {
            return;
        }
        // Under the lock, so that of two statements one decides everything.
        self.metadata.set_entries_max(wanted.metadata_cache_entries);
        self.kept_listings.set_entries_max(wanted.metadata_cache_entries);
        self.held.set_capacity(wanted.held_bytes());
        self.memory.set_capacity(wanted.cached_bytes());
        self.budget.set_limit(wanted.memory_bytes);
        self.budget.set_spills_beside(wanted.spills_beside_bytes);
        self.upload_slots.set_total(wanted.upload_slots);
        self.observer.log.set_entries_max(wanted.request_log_entries);
        *limits = wanted;
    }

    /// The object of a URL, seen with these store options and the engine's own settings; a query
    /// has [`Query::locate`]. Costs no request. For a glob the URL is the pattern, for a listing
    /// the directory.
    ///
    /// # Errors
    /// `Invalid` for a malformed URL or option, `Unsupported` for an unknown scheme.
    pub fn locate(&self, url: &str, options: &[StoreOption]) -> Result<Location> {
        self.locate_with(url, options, &self.settings, Instant::now())
    }

    /// From now on a store that refuses its credentials is opened again with those that the host
    /// has by then, if they are others. Asked once; a second answer is not heard.
    pub fn renews_credentials(&self, current_options: CurrentOptions) {
        let opener = Arc::clone(&self.opener);
        self.renewal.get_or_init(|| Renewal { opener, current_options });
    }

    /// [`Engine::locate`] with the HTTP settings of a query, which began at this time.
    pub(crate) fn locate_with(
        &self,
        url: &str,
        options: &[StoreOption],
        settings: &Settings,
        began: Instant,
    ) -> Result<Location> {
        let http = crate::opener::http_options_of(settings, &self.settings)?;
        self.mounts.locate(&*self.opener, url, options, http, (began, self.renewal.get()))
    }

    /// Takes a store that the caller opened; it should report to [`Engine::observer`].
    pub fn mount(&self, store: Arc<dyn Store>) -> Arc<Mount> {
        Arc::new(self.mounts.mount(store))
    }

    /// The same, and `observer` hears of each of its requests that is sent again.
    pub fn mount_observed(&self, store: Arc<dyn Store>, observer: Arc<dyn Observer>) -> Arc<Mount> {
        Arc::new(self.mounts.mount(store).observed(observer))
    }

    /// Where stores report their requests.
    pub fn observer(&self) -> Arc<dyn Observer> {
        Arc::clone(&self.observer) as Arc<dyn Observer>
    }

    /// The settings that the engine was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Counters since the engine was made.
    pub fn metrics(&self) -> &Metrics {
        &self.observer.metrics
    }

    /// The last statements that the host numbered and that counted something, oldest first.
    pub fn statements(&self) -> Vec<Arc<Statement>> {
        self.observer.statements.snapshot()
    }

    /// Begins to count anew, and forgets the statements. Gauges stay, and so do the counters of
    /// devices, which are the process's.
    pub fn reset_stats(&self) {
        self.observer.metrics.reset();
        self.observer.statements.clear();
    }

    /// The most recent requests.
    pub fn requests(&self) -> &RequestLog {
        &self.observer.log
    }

    /// The memory account.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// The I/O runtime, for doors that serve from it.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Opens the disk cache that the engine's settings ask for, so that a door can tell at its
    /// start what is wrong with it.
    ///
    /// # Errors
    /// `Invalid` when it cannot be used.
    pub fn open_cache(&self) -> Result<()> {
        self.disk.of(&self.settings, 0, &self.observer.metrics).map(|_| ())
    }

    /// The host asks another file system of its own for the version of an object, as it does before
    /// it keeps bytes in its cache; see [`crate::Reader::told_to_host`]. `None` where it is not to
    /// be told, and else what is to be held as long as the object is read.
    pub fn told_elsewhere(&self, url: &str, version: &ObjectMeta) -> Option<Arc<IsKept>> {
        self.host_versions.asked(url.to_owned(), &Version::of(version))
    }

    /// Forgets what is in memory: remembered metadata, listings and bytes. [`Query::clear_cache`]
    /// takes the disk too.
    pub fn clear_cache(&self) {
        self.metadata.clear();
        self.together.clear();
        self.kept_listings.clear();
        self.held.clear();
        self.memory.clear();
    }

    /// Gives up every upload that has not ended, and each that is begun later: for the end of a
    /// process whose threads still write. [`Engine::shutdown`] waits for their parts.
    pub fn stop_uploads(&self) {
        self.open_uploads.stop_all();
    }

    /// Waits until what was given up is tidied away (parts aborted), but not longer than `limit`.
    pub async fn shutdown(&self, limit: Duration) {
        // Past the limit the store's own expiry of unfinished uploads has to do.
        let _ = tokio::time::timeout(limit, self.cleanups.finished()).await;
    }

    /// [`Engine::shutdown`] for a caller that blocks.
    ///
    /// # Errors
    /// As [`Engine::block_on`].
    pub fn shutdown_blocking(&self, limit: Duration) -> Result<()> {
        let shutdown = async {
            self.shutdown(limit).await;
            Ok(())
        };
        self.block_on(shutdown, || false)
    }

    /// The locks and the files of an engine are its process's.
    ///
    /// # Errors
    /// `Unsupported` in a forked child.
    pub(crate) fn refuse_child(&self) -> Result<()> {
        self.runtime.as_ref().map_or(Ok(()), |runtime| runtime.refuse_child())
    }

    /// Runs a future on the calling thread, see [`IoRuntime::block_on`].
    ///
    /// # Errors
    /// The future's; `Cancelled` when interrupted; `Unsupported` in a forked child.
    pub(crate) fn block_on<T>(
        &self,
        future: impl Future<Output = Result<T>>,
        interrupted: impl Fn() -> bool,
    ) -> Result<T> {
        match &self.runtime {
            Some(runtime) => runtime.block_on(future, interrupted),
            None => Err(Error::new(
                Kind::Internal,
                "this engine lives on its caller's runtime, where nobody may block",
            )),
        }
    }
}

/// Tells a blocked caller that its user wants it to stop.
pub type Interrupted = Box<dyn Fn() -> bool + Send + Sync>;

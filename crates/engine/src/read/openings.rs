//! Files that are opened ahead of a scan: the requests for their first bytes, and what became of
//! them. How many at once is decided in `order`.

use crate::limits::HELD_PARTS;
use crate::location::Location;
use crate::query::QueryCore;
use crate::read::order::{Next, Order, windows};
use crate::read::stream::counted;
use crate::read::version::Version;
use crate::read::{Known, Reader, open_ahead, opening_bytes, tail_first};
use crate::request_log::Scope;
use penstock_base::{ByteRange, Metric};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::task::AbortHandle;

/// A thread that opens its file later than that many others is not waited for.
const LATE_MAX: usize = 64;

/// The first bytes of a file that nobody has opened yet.
#[derive(Debug)]
struct Opening {
    asked_bytes: u64,
    /// Over the network, so far.
    arrived_bytes: Arc<AtomicU64>,
    is_opened: AtomicBool,
    scope: Arc<Scope>,
}

impl Drop for Opening {
    fn drop(&mut self) {
        if !*self.is_opened.get_mut() {
            self.scope
                .count(Metric::ReadAheadWastedBytes, self.arrived_bytes.load(Ordering::Relaxed));
        }
    }
}

/// What was begun of the files of a glob. Dropping it tells what arrived in vain.
#[derive(Debug, Default)]
pub(super) struct Openings {
    order: Order,
    /// By the file's place in its glob.
    out: HashMap<usize, Arc<Opening>>,
    /// Those that were opened: a thread that falls behind makes the order begin anew.
    opened: HashSet<usize>,
}

impl Openings {
    /// Takes note that a file is opened, and begins to fetch the first bytes of those that follow.
    pub fn opened(
        &mut self,
        query: &Arc<QueryCore>,
        at: &Location,
        files: &[(String, Known)],
        index: usize,
        tasks: &mut Vec<AbortHandle>,
    ) {
        self.opened.insert(index);
        if let Some(opening) = self.out.remove(&index) {
            opening.is_opened.store(true, Ordering::Relaxed);
        }
        // Those that the scan has passed by do not count as ahead of it any more.
        self.out.retain(|ahead, _| ahead + LATE_MAX >= index);
        tasks.retain(|task| !task.is_finished());
        let batch = self.order.opened(index, files.len(), query.ends_early());
        let first = batch.files.start;
        let files = &files[batch.files];
        let next: Vec<_> = files.iter().map(|file| next_of(query, file)).collect();
        let out_bytes = self.out.values().map(|opening| opening.asked_bytes).sum();
        let window_bytes = query.settings.open_fetch_bytes;
        let held_bytes = query.engine.budget.limit_bytes() / HELD_PARTS;
        let windows = windows(&next, window_bytes, batch.bytes_max, out_bytes, held_bytes);
        self.order.begun = self.order.begun.max(first + windows.len());
        for (index, ((key, known), window)) in (first..).zip(files.iter().zip(windows)) {
            let at = at.sibling(key.as_str());
            let held = query.engine.held.get(&at.id(), &Version::of(&known.meta));
            let is_here = held.is_some_and(|held| held.covers(&window));
            let is_known = self.opened.contains(&index) || self.out.contains_key(&index);
            if !(is_known || is_here && known.meta.etag.is_some()) {
                tasks.push(self.begin(query, at, known, index, window));
            }
        }
    }

    /// The open that needs these bytes asks again and tells its own error.
    fn begin(
        &mut self,
        query: &Arc<QueryCore>,
        at: Location,
        known: &Known,
        index: usize,
        window: ByteRange,
    ) -> AbortHandle {
        let opening = Arc::new(Opening {
            asked_bytes: window.len(),
            arrived_bytes: Arc::default(),
            is_opened: AtomicBool::new(false),
            scope: Arc::clone(&query.scope),
        });
        query.scope.count(Metric::ReadAheadBytes, window.len());
        self.out.insert(index, Arc::clone(&opening));
        let (query, known) = (Arc::clone(query), known.clone());
        let handle = query.engine.handle.clone();
        let task = handle.spawn(async move {
            let fetched = async {
                if known.meta.etag.is_none() {
                    return open_ahead(&query, &at, &known).await;
                }
                let reader = Reader::new(&query, &at, &known.meta, None, None);
                reader.fetch_opening(&query, window).await
            };
            // The open that needs it tells the error.
            let _ = query.run(counted(&opening.arrived_bytes, fetched)).await;
        });
        task.abort_handle()
    }

    /// Nobody will open the others.
    pub fn stop(&mut self) -> impl Drop + use<> {
        Stopped(self.out.drain().map(|(_, opening)| opening).collect())
    }
}

/// To be dropped outside of locks.
struct Stopped(Vec<Arc<Opening>>);

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.clear();
    }
}

/// What opening a file will ask for.
fn next_of(query: &QueryCore, (key, known): &(String, Known)) -> Next {
    let opening_bytes = known.meta.etag.is_none().then(|| opening_bytes(query, known));
    let guess = opening_bytes.unwrap_or(query.settings.open_fetch_bytes);
    let size_bytes = known.meta.size_bytes.unwrap_or(guess);
    Next { size_bytes, tail_first: tail_first(key), opening_bytes }
}

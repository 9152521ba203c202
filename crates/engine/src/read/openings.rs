//! Files that are opened ahead of a scan: the requests for their first bytes, and what became of
//! them. How many at once is decided in `order`, which of them whole in `small`.

use crate::limits::HELD_PARTS;
use crate::location::Location;
use crate::query::QueryCore;
use crate::read::order::{Allowed, Next, Order, windows};
use crate::read::plan::footer_window;
use crate::read::ranges::Ranges;
use crate::read::small::Small;
use crate::read::stream::counted;
use crate::read::version::Version;
use crate::read::{Known, Reader, open_ahead, opening_bytes, tail_first};
use crate::request_log::Scope;
use penstock_base::{ByteRange, Metric};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::AbortHandle;

/// A thread that opens its file later than that many others is not waited for.
const LATE_MAX: usize = 64;

/// The first bytes of a file, until its request is over and nobody reads of it any more.
#[derive(Debug)]
struct Opening {
    window: ByteRange,
    /// It is all of a file of which a footer would do.
    is_whole: bool,
    /// Over the network, so far.
    arrived_bytes: Arc<AtomicU64>,
    /// What of the window its readers wanted.
    read: Mutex<Ranges>,
    scope: Arc<Scope>,
}

impl Opening {
    fn read_bytes(&self) -> u64 {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).bytes_in(self.window)
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        // The window of a file whose size nobody told may be longer than the file.
        let arrived_bytes = self.arrived_bytes.load(Ordering::Relaxed);
        let wasted_bytes = arrived_bytes.saturating_sub(self.read_bytes());
        self.scope.count(Metric::ReadAheadWastedBytes, wasted_bytes);
    }
}

/// What was begun of the files of a glob. Dropping it tells what arrived in vain.
#[derive(Debug, Default)]
pub(super) struct Openings {
    order: Order,
    /// Of files that nobody has opened, by the file's place in its glob.
    out: HashMap<usize, Arc<Opening>>,
    /// Of files that were opened, and whether one of their readers was closed.
    in_use: HashMap<usize, (Arc<Opening>, bool)>,
    small: Small,
    /// By all readers of its files.
    read_bytes: u64,
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
            self.in_use.insert(index, (opening, false));
        }
        // Those that the scan has passed by do not count as ahead of it any more.
        for (_, passed) in self.out.extract_if(|ahead, _| ahead + LATE_MAX < index) {
            note_ended(&mut self.small, &passed);
        }
        tasks.retain(|task| !task.is_finished());
        let batch = self.order.opened(index, files.len(), query.ends_early());
        let first = batch.files.start;
        let files = &files[batch.files];
        let next: Vec<_> = files.iter().map(|file| next_of(query, file)).collect();
        let out_bytes = self.out.values().map(|opening| opening.window.len()).sum();
        let allowed = Allowed {
            window_bytes: query.settings.open_fetch_bytes,
            bytes_max: batch.bytes_max,
            text_bytes_max: self.read_bytes,
            whole_bytes_max: self.small.bytes_max(),
            out_bytes,
            held_bytes: query.engine.budget.limit_bytes() / HELD_PARTS,
        };
        let windows = windows(&next, &allowed);
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

    /// Takes note of a read of one of the files.
    pub fn read(&mut self, index: usize, range: ByteRange) {
        self.read_bytes += range.len();
        if let Some((opening, _)) = self.in_use.get(&index) {
            opening.read.lock().unwrap_or_else(PoisonError::into_inner).add(range);
        }
    }

    /// Takes note that a reader of one of the files is closed.
    pub fn closed(&mut self, index: usize) {
        if let Some((opening, is_closed)) = self.in_use.get_mut(&index)
            && !std::mem::replace(is_closed, true)
        {
            note_ended(&mut self.small, opening);
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
        let size_bytes = known.meta.size_bytes.unwrap_or(0);
        let is_whole = tail_first(&at.key)
            && window.len() == size_bytes
            && window.len() > footer_window(size_bytes).len();
        if is_whole {
            self.small.asked(window.len());
        }
        let opening = Arc::new(Opening {
            window,
            is_whole,
            arrived_bytes: Arc::default(),
            read: Mutex::default(),
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

    /// Nobody will open the others, or read more of those that were opened.
    pub fn stop(&mut self) -> impl Drop + use<> {
        let in_use = self.in_use.drain().map(|(_, (opening, _))| opening);
        Stopped(self.out.drain().map(|(_, opening)| opening).chain(in_use).collect())
    }
}

/// Takes note of what became of a file, if it came whole.
fn note_ended(small: &mut Small, opening: &Opening) {
    if opening.is_whole {
        small.closed(opening.window.len(), opening.read_bytes());
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

//! Files that are opened ahead of a scan: the requests for their first bytes, and what became of
//! them. How many at once is decided in `order`, which of them whole in `small`.

use crate::cause::Cause;
use crate::limits::HELD_PARTS;
use crate::location::Location;
use crate::query::QueryCore;
use crate::read::arrived::Arrived;
use crate::read::order::{Allowed, Next, Order, windows};
use crate::read::plan::footer_window;
use crate::read::ranges::Ranges;
use crate::read::small::{LINK_BYTES_MAX, Small, Text};
use crate::read::version::Version;
use crate::read::{Known, Reader, ends_with, open_ahead, tail_first};
use crate::request_log::Scope;
use penstock_base::{ByteRange, Metric};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::AbortHandle;

/// What a catalog tells of a footer is believed up to this length.
const FOOTER_BYTES_MAX: u64 = 8 << 20;
/// Compressed text is opened with so many times as much as others: it is read in small steps from
/// front to back, mostly twice, and what opening brings is there the second time too.
const PACKED_PARTS: u64 = 4;
/// A thread that opens its file later than that many others is not waited for.
const LATE_MAX: usize = 64;

/// How much of an object is fetched at most before it is known what is wanted of it, where so many
/// others are opened together with it. Text is read from front to back, so nothing of it is too
/// much.
fn window_bytes(query: &QueryCore, at: &Location, others: u64) -> u64 {
    let setting_bytes = query.settings.open_fetch_bytes;
    match () {
        () if tail_first(&at.key) => link_bytes(at, setting_bytes, others),
        () if is_packed(&at.key) => link_bytes(at, packed_bytes(query), others).max(setting_bytes),
        () => setting_bytes,
    }
}

/// Compressed text is read in small steps from front to back. DuckDB goes by these names.
pub(super) fn is_packed(key: &str) -> bool {
    ends_with(key, ".gz") || ends_with(key, ".zst")
}

/// What opening fetches of compressed text on a link that brings as much in a round trip. No more
/// than is kept until its next reader comes: that has half of what is kept to last.
fn packed_bytes(query: &QueryCore) -> u64 {
    let setting_bytes = query.settings.open_fetch_bytes;
    let kept_bytes = query.engine.budget.limit_bytes() / HELD_PARTS / 2;
    setting_bytes.saturating_mul(PACKED_PARTS).min(kept_bytes).max(setting_bytes)
}

/// A run of small reads from the beginning of an object counts as no shorter.
pub(super) fn run_bytes_min(query: &QueryCore, at: &Location) -> u64 {
    if is_packed(&at.key) { packed_bytes(query) } else { 0 }
}

/// So many bytes, but no more than the link brings in a round trip.
fn link_bytes(at: &Location, bytes_max: u64, others: u64) -> u64 {
    // On a full link answers wait for each other, which makes no round trip longer.
    let latency = at.mount.latency.least().unwrap_or_else(|| at.mount.latency.get());
    at.mount.pace.opening_bytes(bytes_max, latency, others)
}

/// The same for a read of an object of known size. Only of a small file or of compressed text, of
/// which nothing is here, it is a question: of others as much comes as their readers ask for.
pub(super) fn first_bytes(
    query: &QueryCore,
    at: &Location,
    size_bytes: u64,
    nothing_is_here: bool,
) -> u64 {
    let setting_bytes = query.settings.open_fetch_bytes;
    let is_packed = is_packed(&at.key);
    match nothing_is_here {
        true if size_bytes <= setting_bytes || is_packed => window_bytes(query, at, 0),
        // Its first bytes came ahead of its reader.
        false if is_packed && size_bytes <= packed_bytes(query) => size_bytes,
        _ => setting_bytes,
    }
}

/// So much is asked for of an object whose tag is not known: what its readers ask for of its end,
/// if a size or the length of its footer tells that, is no more than they want.
pub(super) fn opening_bytes(
    query: &QueryCore,
    at: &Location,
    known: &Known,
    size_bytes: Option<u64>,
    others: u64,
) -> u64 {
    let told_bytes = known.footer_size_bytes.map_or(0, |size| size.min(FOOTER_BYTES_MAX) + 8);
    let wanted_bytes = match (size_bytes, tail_first(&at.key)) {
        (Some(size), true) => {
            footer_window(size, query.read_grid_bytes()).len().min(query.settings.open_fetch_bytes)
        }
        _ => 0,
    };
    window_bytes(query, at, others).max(wanted_bytes).max(told_bytes)
}

/// The first bytes of a file, until its request is over and nobody reads of it any more.
#[derive(Debug)]
struct Opening {
    /// What is fetched ahead: nothing of a file that was opened before it was begun.
    window: ByteRange,
    /// It is all of a file of which a footer would do.
    is_whole: bool,
    /// The file, if it is of text, or could come whole.
    file: Option<ByteRange>,
    is_text: bool,
    /// From the store, so far.
    arrived: Arc<Arrived>,
    /// What of the window its readers wanted.
    read: Mutex<Ranges>,
    scope: Arc<Scope>,
}

impl Opening {
    /// Nothing has come of it yet.
    fn new(query: &QueryCore, key: &str, known: &Known, window: ByteRange) -> Self {
        let size_bytes = known.meta.size_bytes.unwrap_or(0);
        let footer_bytes = footer_window(size_bytes, query.read_grid_bytes()).len();
        let is_text = !tail_first(key);
        let could_be_whole =
            !is_text && size_bytes > footer_bytes && size_bytes <= query.settings.open_fetch_bytes;
        let file = ByteRange { start: 0, end: size_bytes };
        Opening {
            window,
            is_whole: could_be_whole && window.len() == size_bytes,
            file: (is_text || could_be_whole).then_some(file),
            is_text,
            arrived: Arrived::of(&query.scope),
            read: Mutex::default(),
            scope: Arc::clone(&query.scope),
        }
    }

    /// What is read for the first time of its window was wanted.
    fn is_read(&self, range: ByteRange) {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let before = read.bytes_in(self.window);
        read.add(range);
        let hit_bytes = read.bytes_in(self.window) - before;
        self.scope.count(Metric::ReadAheadHitBytes, hit_bytes);
    }

    fn read_bytes(&self, range: ByteRange) -> u64 {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).bytes_in(range)
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        // The window of a file whose size nobody told may be longer than the file.
        let wasted_bytes = self.arrived.bytes().saturating_sub(self.read_bytes(self.window));
        self.scope.count(Metric::ReadAheadWastedBytes, wasted_bytes);
    }
}

/// What was begun of the files of a glob. Dropping it tells what arrived in vain.
#[derive(Debug, Default)]
pub(super) struct Openings {
    order: Order,
    /// Of files that nobody has opened, by the file's place in its glob.
    out: HashMap<usize, Arc<Opening>>,
    /// Of files that were opened, and what was read of them when one of their readers was closed.
    in_use: HashMap<usize, (Arc<Opening>, Option<u64>)>,
    small: Small,
    text: Text,
    /// By all readers of its files.
    read_bytes: u64,
    /// Those that were opened: a thread that falls behind makes the order begin anew.
    opened: HashSet<usize>,
}

impl Openings {
    /// Takes note that a file is opened, and begins to fetch the first bytes of those that follow,
    /// if it is sure that they are wanted.
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
            self.in_use.insert(index, (opening, None));
        } else if let Entry::Vacant(place) = self.in_use.entry(index) {
            let (key, known) = &files[index];
            let opening = Opening::new(query, key, known, ByteRange { start: 0, end: 0 });
            if opening.file.is_some() {
                place.insert((Arc::new(opening), None));
            }
        }
        // Those that the scan has passed by do not count as ahead of it any more.
        for (_, passed) in self.out.extract_if(|ahead, _| ahead + LATE_MAX < index) {
            note_ended((&mut self.small, &mut self.text), &passed, &mut None);
        }
        // Opening it costs no request, and size and time may be all that is wanted of it.
        if self.order.has_begun() || files[index].1.meta.etag.is_none() {
            self.follow(query, at, files, index, tasks);
        }
    }

    /// Takes note that somebody begins to read of an opened file.
    pub fn begins(
        &mut self,
        query: &Arc<QueryCore>,
        at: &Location,
        files: &[(String, Known)],
        index: usize,
        tasks: &mut Vec<AbortHandle>,
    ) {
        if !self.order.has_begun() {
            self.follow(query, at, files, index, tasks);
        }
    }

    /// Begins to fetch the first bytes of those that follow an opened file.
    fn follow(
        &mut self,
        query: &Arc<QueryCore>,
        at: &Location,
        files: &[(String, Known)],
        index: usize,
        tasks: &mut Vec<AbortHandle>,
    ) {
        tasks.retain(|task| !task.is_finished());
        let is_first = self.opened.contains(&0);
        let batch = self.order.opened(index, is_first, files.len(), query.ends_early());
        let first = batch.files.start;
        let files = &files[batch.files];
        let others = files.len().saturating_sub(1) as u64;
        let next: Vec<_> = files.iter().map(|file| next_of(query, at, file, others)).collect();
        let link_bytes = link_bytes(at, LINK_BYTES_MAX, 0);
        let out_bytes = self.out.values().map(|opening| opening.window.len()).sum();
        let allowed = Allowed {
            window_bytes: query.settings.open_fetch_bytes,
            grid_bytes: query.read_grid_bytes(),
            bytes_max: batch.bytes_max,
            text_bytes_max: self.read_bytes,
            whole_bytes_max: self.small.bytes_max(link_bytes),
            text_whole_bytes_max: self.text.bytes_max(query.settings.open_fetch_bytes),
            out_bytes,
            held_bytes: query.engine.budget.limit_bytes() / HELD_PARTS,
        };
        let windows = windows(&next, &allowed);
        self.order.begun = self.order.begun.max(first + windows.len());
        let files = files.iter().zip(next).zip(windows);
        for (index, (((key, known), next), window)) in (first..).zip(files) {
            let at = at.sibling(key.as_str());
            let held = query.engine.held.get(&at.id(), &Version::of(&known.meta));
            let is_here = held.is_some_and(|held| held.covers(&window));
            let is_known = self.opened.contains(&index) || self.out.contains_key(&index);
            if !(is_known || is_here && known.meta.etag.is_some()) {
                tasks.push(self.begin(query, at, known, index, (window, next.opening_bytes)));
            }
        }
    }

    /// Takes note of a read of one of the files.
    pub fn read(&mut self, index: usize, range: ByteRange) {
        self.read_bytes += range.len();
        if let Some((opening, _)) = self.in_use.get(&index) {
            opening.is_read(range);
        }
    }

    /// Takes note that a reader of one of the files is closed.
    pub fn closed(&mut self, index: usize) {
        if let Some((opening, known_bytes)) = self.in_use.get_mut(&index) {
            note_ended((&mut self.small, &mut self.text), opening, known_bytes);
        }
    }

    /// The open that needs these bytes asks again and tells its own error.
    fn begin(
        &mut self,
        query: &Arc<QueryCore>,
        at: Location,
        known: &Known,
        index: usize,
        (window, opening_bytes): (ByteRange, Option<u64>),
    ) -> AbortHandle {
        let opening = Arc::new(Opening::new(query, &at.key, known, window));
        if opening.is_whole {
            self.small.asked(window.len());
        }
        let version = Version::of(&known.meta);
        if opening_bytes.is_none() && version.is_told() {
            query.engine.held.get_or_default(&at, &version).comes(window);
        }
        self.out.insert(index, Arc::clone(&opening));
        let (query, known) = (Arc::clone(query), known.clone());
        let handle = query.engine.handle.clone();
        let task = handle.spawn(async move {
            let fetched = async {
                if let Some(bytes) = opening_bytes {
                    return open_ahead(&query, &at, &known, bytes).await;
                }
                let reader = Reader::new(&query, &at, &known.meta, None, None);
                reader.fetch_opening(&query, window).await
            };
            // The open that needs it tells the error.
            let _ = query.run_for(Cause::Ahead, opening.arrived.during(fetched)).await;
        });
        task.abort_handle()
    }

    /// Nobody will open the others, or read more of those that were opened.
    pub fn stop(&mut self) -> impl Drop + use<> {
        let in_use = self.in_use.drain().map(|(_, (opening, _))| opening);
        Stopped(self.out.drain().map(|(_, opening)| opening).chain(in_use).collect())
    }
}

/// Takes note of what was read of a file, and how much of that was known.
fn note_ended(
    (small, text): (&mut Small, &mut Text),
    opening: &Opening,
    known_bytes: &mut Option<u64>,
) {
    let Some(file) = opening.file else { return };
    let read_bytes = opening.read_bytes(file);
    let before = known_bytes.replace(read_bytes);
    if opening.is_text {
        text.closed(file.len(), read_bytes, before);
    } else {
        small.closed(file.len(), opening.is_whole, read_bytes, before);
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
fn next_of(query: &QueryCore, at: &Location, (key, known): &(String, Known), others: u64) -> Next {
    let size_bytes = known.meta.size_bytes;
    let asked_bytes = || opening_bytes(query, &at.sibling(key.as_str()), known, size_bytes, others);
    let opening_bytes = known.meta.etag.is_none().then(asked_bytes);
    // Ahead of a scan no more of packed text than of others: it may be passed by.
    let ahead_bytes_max = if is_packed(key) { query.settings.open_fetch_bytes } else { u64::MAX };
    let opening_bytes = opening_bytes.map(|bytes| bytes.min(ahead_bytes_max));
    let guess = opening_bytes.unwrap_or(query.settings.open_fetch_bytes);
    let size_bytes = known.meta.size_bytes.unwrap_or(guess);
    Next { size_bytes, tail_first: tail_first(key), opening_bytes }
}

//! Fetching ahead across the files of a glob, and who reads which file.
//!
//! A scan opens the files of its glob one after the other, and each open waits for a footer. So the
//! bytes that opening reads first are fetched for the next files too, several at once. So do the
//! files that a statement names one by one, or a table format: what of them is not known is learned
//! from the same answers.
//!
//! Which, and how much of them, is decided in `order`. Columns are fetched ahead too, see
//! `columns`.

use crate::budget::{Pressable, Pressed};
use crate::location::{Location, ObjectId};
use crate::names::Entry;
use crate::query::QueryCore;
use crate::read::ahead::Ahead;
use crate::read::block::Block;
use crate::read::columns::LATENCY_MIN;
use crate::read::files::Files;
use crate::read::filters::{Filters, Ranges};
use crate::read::order::STEP_MAX;
use crate::read::version::Version;
use crate::read::{Known, tail_first};
use penstock_base::ByteRange;
use penstock_store::ObjectMeta;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::task::AbortHandle;

/// Most globs and single files of one statement that are followed (a join of many tables has one
/// each).
const GLOBS_MAX: usize = 32;
/// Fewer files are not worth following together.
const FILES_MIN: usize = 2;

/// A reader of a file of its statement: of a glob's, or of one by itself. Dropping it tells that
/// the reader is closed.
#[derive(Debug)]
pub(crate) struct Place {
    glob: u64,
    pub(super) index: usize,
    pub(super) reader: u64,
    /// What is known of the file, from a listing or an answer.
    version: Version,
    /// Its reader has begun to read.
    has_begun: AtomicBool,
    neighbours: Weak<Neighbours>,
}

impl Place {
    /// Whether it is a place in these globs. A reader may outlive its statement, whose numbers mean
    /// other files in the next one.
    fn is_in(&self, neighbours: &Arc<Neighbours>) -> bool {
        self.neighbours.as_ptr() == Arc::as_ptr(neighbours)
    }

    /// Whether what is fetched ahead for it is of this version for certain.
    pub fn is_of(&self, version: &Version) -> bool {
        self.version.has_tag_of(version)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(neighbours) = self.neighbours.upgrade() {
            neighbours.closed(self);
        }
    }
}

/// Where the bytes of a read came from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub on_demand_bytes: u64,
    /// All of them lay in the cache, and none came there ahead of this read.
    pub is_cached: bool,
}

/// Whether any of these came over the network.
pub(super) fn came_ahead(blocks: &[Arc<Block>]) -> bool {
    blocks.iter().any(|block| block.come_bytes() > 0)
}

/// The globs of a statement, and what is fetched ahead for them. Dropping it stops the requests.
#[derive(Debug, Default)]
pub(crate) struct Neighbours(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    globs: Vec<Files>,
    globs_seen: u64,
    readers_seen: u64,
    tasks: Vec<AbortHandle>,
    /// Of readers that go front to back.
    readers: Vec<Weak<Ahead>>,
    /// Of those, what is read in large steps, and of which version of which object.
    runs: Vec<(ObjectId, Version, Weak<Ahead>)>,
    registered: bool,
    /// The statement is over: what still comes of it begins nothing.
    is_stopped: bool,
}

impl State {
    /// Follows one more; gives its number.
    fn begin(
        &mut self,
        at: &Location,
        is_glob: bool,
        files: impl IntoIterator<Item = (String, Known)>,
    ) -> u64 {
        self.globs_seen += 1;
        let mut glob = Files::new(self.globs_seen, at, is_glob);
        glob.add(files);
        self.globs.push(glob);
        self.globs_seen
    }

    /// The oldest, outside of what is followed.
    fn forget_surplus(&mut self) -> Vec<Files> {
        let surplus = self.globs.len().saturating_sub(GLOBS_MAX);
        self.globs.drain(..surplus).collect()
    }
}

impl Neighbours {
    /// Takes note of a glob's files, in the order in which a scan will open them: of those of a
    /// further page behind the ones `of` the pages before. Returns what names the glob, if its
    /// files are followed.
    pub fn listed(&self, of: Option<u64>, at: &Location, entries: &[Entry]) -> Option<u64> {
        let known = entries.iter().all(|entry| {
            entry.meta.size_bytes.is_some()
                && entry.meta.etag.as_ref().is_some_and(penstock_store::ETag::is_strong)
        });
        if !known {
            return None;
        }
        let mut state = self.lock();
        let found = of.and_then(|of| state.globs.iter_mut().find(|glob| glob.id == of));
        if let Some(glob) = found {
            glob.add(listed(entries));
            return of;
        }
        if entries.len() < FILES_MIN {
            return None;
        }
        let id = state.begin(at, true, listed(entries));
        let forgotten = state.forget_surplus();
        drop(state);
        drop(forgotten);
        Some(id)
    }

    /// Takes note of files that a statement will read, in their order, and begins with them as if
    /// the first one were opened now. What is known of a glob is known better from its listing.
    pub fn announced(self: &Arc<Self>, query: &Arc<QueryCore>, files: Vec<(Location, Known)>) {
        let [(first, _), (second, _), ..] = &files[..] else { return };
        // A plain HTTP server may serve whole files only, which is too much ahead of a read.
        if !first.mount.capabilities.list {
            return;
        }
        let (at, first, second) = (first.clone(), first.id(), second.id());
        let mut state = self.lock();
        if state.globs.iter().any(|glob| glob.index.contains_key(&second)) {
            return;
        }
        // The first one was opened before, by itself.
        let alone = state.globs.iter_mut().rev().find(|glob| glob.index.contains_key(&first));
        let files = files.into_iter().map(|(at, known)| (at.key, known));
        let id = match alone {
            Some(glob) => {
                glob.add(files.skip(1));
                glob.columns.goes_on();
                glob.id
            }
            None => state.begin(&at, true, files),
        };
        let forgotten = state.forget_surplus();
        let State { globs, tasks, .. } = &mut *state;
        if let Some(glob) = globs.iter_mut().find(|glob| glob.id == id) {
            glob.openings.opened(query, &glob.at, &glob.files, 0, tasks);
        }
        drop(state);
        drop(forgotten);
    }

    /// Takes note of columns that are read of all row groups of an opened file, and of those that
    /// follow it. Of a file that is not followed there is nothing to note, nor of one that the host
    /// may have columns of.
    pub fn will_read(
        &self,
        query: &QueryCore,
        at: &Location,
        columns: &[u32],
        is_cached_ahead: bool,
    ) {
        let id = at.id();
        let mut state = self.lock();
        let found = state.globs.iter_mut().rev().find(|glob| glob.index.contains_key(&id));
        if let Some(glob) = found
            && !(is_cached_ahead && query.engine.scanned.knows(at, &glob.version(glob.index[&id])))
        {
            glob.columns.will_read(columns, is_cached_ahead, query.host_grid_bytes());
        }
    }

    /// Whether the columns of a file are fetched ahead, because a plan named them.
    pub(super) fn fetches_columns(&self, query: &QueryCore, place: &Place) -> bool {
        let mut state = self.lock();
        let glob = state.globs.iter_mut().find(|glob| glob.id == place.glob);
        glob.is_some_and(|glob| glob.columns.is_told() && glob.is_followed(query))
    }

    /// Takes note of what the rows of a scan have to be, before it reads of an opened file and of
    /// those that follow it. Of a file that is not followed there is nothing to note.
    pub fn will_filter(&self, query: &QueryCore, at: &Location, filters: Filters) {
        let (id, filters) = (at.id(), Arc::new(filters));
        let held = {
            let state = self.lock();
            let glob = state.globs.iter().rev().find(|glob| glob.index.contains_key(&id));
            glob.and_then(|glob| glob.held(query, glob.index[&id]))
        };
        // A long footer takes a while to look at: not under the lock of all scans.
        held.and_then(|(held, size_bytes)| held.judged(size_bytes, &filters));
        let mut state = self.lock();
        let found = state.globs.iter_mut().rev().find(|glob| glob.index.contains_key(&id));
        let dropped = found.map(|glob| glob.will_filter(query, &filters));
        drop(state);
        drop(dropped);
    }

    /// Takes note of the bound of a filter that moves while a scan reads.
    pub fn bound_moved(&self, at: &Location, bound: Ranges) {
        let id = at.id();
        let mut state = self.lock();
        let found = state.globs.iter_mut().rev().find(|glob| glob.index.contains_key(&id));
        let dropped = found.map(|glob| glob.columns.bound_moved(bound));
        drop(state);
        drop(dropped);
    }

    /// Takes note of what opening a file told of it.
    pub fn told(&self, at: &Location, meta: &ObjectMeta) {
        let mut state = self.lock();
        if state.globs.is_empty() {
            return;
        }
        let id = at.id();
        let found = state.globs.iter_mut().find_map(|glob| Some((*glob.index.get(&id)?, glob)));
        if let Some((index, glob)) = found
            && glob.files[index].1.meta.etag.is_none()
        {
            glob.files[index].1.meta = meta.clone();
        }
    }

    /// A place with what is known of its file by now.
    pub fn known(&self, mut place: Place) -> Place {
        let state = self.lock();
        if let Some(glob) = state.globs.iter().find(|glob| glob.id == place.glob) {
            place.version = glob.version(place.index);
        }
        drop(state);
        place
    }

    /// Takes note of an opened Parquet file that is in no glob, if it is worth while: the store is
    /// some way off, and has strong tags.
    pub fn alone(self: &Arc<Self>, at: &Location, meta: &ObjectMeta) -> Option<Place> {
        let is_known = meta.size_bytes.is_some()
            && meta.etag.as_ref().is_some_and(penstock_store::ETag::is_strong);
        if !tail_first(&at.key) || !is_known || at.mount.latency.most() < LATENCY_MIN {
            return None;
        }
        let mut state = self.lock();
        let id = at.id();
        let version = Version::of(meta);
        let known = state.globs.iter().find_map(|glob| {
            let index = *glob.index.get(&id)?;
            glob.version(index).has_tag_of(&version).then_some((glob.id, index))
        });
        let (glob, index) = known.unwrap_or_else(|| {
            let known = Known { meta: meta.clone(), ..Known::NOTHING };
            (state.begin(at, false, [(at.key.clone(), known)]), 0)
        });
        let forgotten = state.forget_surplus();
        let place = self.place(&mut state, glob, index, version);
        drop(state);
        drop(forgotten);
        Some(place)
    }

    fn place(
        self: &Arc<Self>,
        state: &mut State,
        glob: u64,
        index: usize,
        version: Version,
    ) -> Place {
        state.readers_seen += 1;
        let (reader, neighbours) = (state.readers_seen, Arc::downgrade(self));
        Place { glob, index, reader, version, has_begun: AtomicBool::default(), neighbours }
    }

    fn closed(&self, place: &Place) {
        let mut state = self.lock();
        let glob = state.globs.iter_mut().find(|glob| glob.id == place.glob);
        let dropped = glob.map(|glob| {
            glob.openings.closed(place.index);
            glob.columns.closed(place.reader)
        });
        drop(state);
        drop(dropped);
    }

    /// Takes note of an opened file and begins to fetch the first bytes of those that follow.
    pub fn opened(self: &Arc<Self>, query: &Arc<QueryCore>, at: &Location) -> Option<Place> {
        let mut state = self.lock();
        let State { globs, tasks, .. } = &mut *state;
        if globs.is_empty() {
            return None;
        }
        let id = at.id();
        let (glob, index) = globs
            .iter_mut()
            .rev()
            .find_map(|glob| glob.index.get(&id).copied().map(|index| (glob, index)))?;
        glob.openings.opened(query, &glob.at, &glob.files, index, tasks);
        let passed = glob.columns.pass(index.saturating_sub(STEP_MAX));
        glob.pull(query, true);
        let (id, version) = (glob.id, glob.version(index));
        let place = self.place(&mut state, id, index, version);
        drop(state);
        drop(passed);
        Some(place)
    }

    /// Takes note that a reader begins to read, and begins to fetch the first bytes of the files
    /// that follow.
    pub(super) fn begins(&self, query: &Arc<QueryCore>, place: &Place) {
        if place.has_begun.swap(true, Ordering::Relaxed) || !place.is_in(&query.neighbours) {
            return;
        }
        let mut state = self.lock();
        let State { globs, tasks, .. } = &mut *state;
        if let Some(glob) = globs.iter_mut().find(|glob| glob.id == place.glob) {
            glob.openings.begins(query, &glob.at, &glob.files, place.index, tasks);
        }
    }

    /// Takes note of a read of a file, begins to fetch what will be read next, and gives what is
    /// fetched ahead of this read. `None` for a reader that is not followed. Behind a read that the
    /// cache has all of nothing begins, unless it came there ahead of this read.
    pub(super) fn columns(
        &self,
        query: &Arc<QueryCore>,
        place: &Place,
        range: ByteRange,
        is_cached: bool,
    ) -> Option<Vec<Arc<Block>>> {
        if !place.is_in(&query.neighbours) {
            return None;
        }
        let mut state = self.lock();
        let State { globs, registered, .. } = &mut *state;
        let glob = globs.iter_mut().find(|glob| glob.id == place.glob)?;
        if !glob.is_followed(query) {
            return None;
        }
        if !std::mem::replace(registered, true) {
            let pressable: Weak<dyn Pressable> = Arc::downgrade(&query.neighbours) as Weak<_>;
            query.engine.budget.register(pressable);
        }
        let (found, dropped) = glob.note(query, place, range)?;
        if !is_cached || came_ahead(&found) {
            glob.pull(query, true);
        }
        drop(state);
        drop(dropped);
        Some(found)
    }

    /// Takes note that a read has ended well.
    pub(super) fn done(
        &self,
        query: &Arc<QueryCore>,
        place: &Place,
        range: ByteRange,
        Taken { on_demand_bytes, is_cached }: Taken,
    ) {
        if !place.is_in(&query.neighbours) {
            return;
        }
        let mut state = self.lock();
        if let Some(glob) = state.globs.iter_mut().find(|glob| glob.id == place.glob) {
            glob.openings.read(place.index, range);
            let dropped = glob.columns.done(place.reader, place.index, range, on_demand_bytes);
            if !is_cached {
                glob.pull(query, true);
            }
            drop(state);
            drop(dropped);
        }
    }

    /// Begins what there is room for now. On a thread that does the input and output: where
    /// somebody else looks at the scans, that is enough.
    pub(super) fn pull(&self, query: &Arc<QueryCore>, id: u64) {
        let Ok(mut state) = self.0.try_lock() else { return };
        if state.is_stopped {
            return;
        }
        if let Some(glob) = state.globs.iter_mut().find(|glob| glob.id == id) {
            glob.pull(query, false);
        }
    }

    /// What is fetched ahead of this reader ends with the statement too.
    pub fn follow(&self, reader: &Arc<Ahead>) {
        let mut state = self.lock();
        let is_other = |known: &Weak<Ahead>| known.as_ptr() != Arc::as_ptr(reader);
        state.readers.retain(|known| known.strong_count() > 0 && is_other(known));
        state.readers.push(Arc::downgrade(reader));
    }

    /// The runs of large reads of a version of an object, but for one's own, which is one of them
    /// from now on.
    pub fn runs(&self, object: &ObjectId, version: &Version, own: &Arc<Ahead>) -> Vec<Arc<Ahead>> {
        let is_own = |run: &Weak<Ahead>| run.as_ptr() == Arc::as_ptr(own);
        let mut state = self.lock();
        state.runs.retain(|(.., run)| run.strong_count() > 0);
        if !state.runs.iter().any(|(.., run)| is_own(run)) {
            state.runs.push((object.clone(), version.clone(), Arc::downgrade(own)));
        }
        let others = state.runs.iter().filter(|(of, its_version, run)| {
            of == object && its_version.same(version) && !is_own(run)
        });
        others.filter_map(|(.., run)| run.upgrade()).collect()
    }

    /// Stops what is on its way.
    pub fn stop(&self) {
        let mut state = self.lock();
        state.is_stopped = true;
        let tasks = std::mem::take(&mut state.tasks);
        let readers = std::mem::take(&mut state.readers);
        let clear = |glob: &mut Files| (glob.columns.clear(), glob.openings.stop());
        let cleared: Vec<_> = state.globs.iter_mut().map(clear).collect();
        drop(state);
        drop(cleared);
        for task in tasks {
            task.abort();
        }
        for reader in readers.iter().filter_map(Weak::upgrade) {
            reader.stop();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a listing tells of its files.
fn listed(entries: &[Entry]) -> impl Iterator<Item = (String, Known)> {
    let known = |entry: &Entry| Known { meta: entry.meta.clone(), ..Known::NOTHING };
    entries.iter().map(move |entry| (entry.key.clone(), known(entry)))
}

impl Pressable for Neighbours {
    fn is_ahead(&self) -> bool {
        true
    }

    fn returnable_bytes(&self) -> Option<u64> {
        let state = self.0.try_lock().ok()?;
        Some(state.globs.iter().map(|glob| glob.columns.unused_bytes()).sum())
    }

    fn press(&self) -> Pressed {
        let Ok(mut state) = self.0.try_lock() else { return Pressed::Busy };
        let held = state.globs.iter().any(|glob| glob.columns.unused_bytes() > 0);
        let cleared: Vec<_> = state.globs.iter_mut().map(|glob| glob.columns.clear()).collect();
        drop(state);
        drop(cleared);
        Pressed::gave(held)
    }
}

//! Fetching ahead across the files of a glob, and who reads which file.
//!
//! A scan opens the files of its glob one after the other, and each open waits for a footer. So the
//! bytes that opening reads first are fetched for the next files too, several at once.
//!
//! - When the first file of a glob is opened, the scan has nearly always just begun (DuckDB binds
//!   it): the next [`FILES_AHEAD_FIRST`] files follow, within [`BYTES_AHEAD_FIRST`]. That is also
//!   all that `DESCRIBE`, a `LIMIT 1` or a filter on the path can fetch in vain; what is still on
//!   its way when the statement ends is stopped.
//! - Each further step in order lets it run further ahead, up to [`FILES_AHEAD_MAX`] files. A jump
//!   begins anew.
//! - Small files come whole as long as a batch is small ([`WHOLE_BYTES_MAX`]); beyond, many of them
//!   at once would cost more time on the wire than the round trip that they save, and Parquet files
//!   give their footers only.
//!
//! The decisions are pure ([`Order`], [`windows`]). Columns are fetched ahead too, see `columns`.

use crate::budget::Pressable;
use crate::location::{Location, ObjectId};
use crate::names::Entry;
use crate::query::QueryCore;
use crate::read::ahead::{Block, Source, fetch};
use crate::read::columns::{Columns, Dropped, LATENCY_MIN, Room};
use crate::read::flow::Flow;
use crate::read::held::Piece;
use crate::read::parquet::Layout;
use crate::read::plan::{footer_window, opening_window};
use crate::read::version::Version;
use crate::read::{Opened, Reader, tail_first};
use penstock_base::ByteRange;
use penstock_store::ObjectMeta;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::task::AbortHandle;

/// Most files whose first bytes are on their way or unused.
const FILES_AHEAD_MAX: usize = 32;
/// Files ahead after the first step in order; it grows with each further step.
const FILES_AHEAD_START: usize = 8;
/// Files ahead of the first one, before any step.
const FILES_AHEAD_FIRST: usize = 15;
/// Most bytes ahead before any step: on a slow link (150 Mbit/s) they take no longer than its round
/// trip (30 ms).
const BYTES_AHEAD_FIRST: u64 = 512 << 10;
/// Most bytes of a batch whose small files are fetched whole.
const WHOLE_BYTES_MAX: u64 = 512 << 10;
/// Threads open neighbouring files in any order; a step of this size is still "next".
const STEP_MAX: usize = 16;
/// Most globs and single files of one statement that are followed (a join of many tables has one
/// each).
const GLOBS_MAX: usize = 32;

/// How far a scan has come in the files of its glob.
#[derive(Debug, Default)]
struct Order {
    furthest: Option<usize>,
    steps: usize,
    /// Files before this one were begun or passed.
    begun: usize,
}

impl Order {
    /// Takes note that a file was opened; the files whose first bytes may be fetched now.
    fn opened(&mut self, index: usize, count: usize) -> Batch {
        match self.furthest {
            None => {
                self.furthest = Some(index);
                // Later ones are opened first where the path was filtered, or by other threads.
                let depth = if index == 0 { FILES_AHEAD_FIRST } else { 0 };
                return self.ahead(index, depth, count, BYTES_AHEAD_FIRST);
            }
            Some(furthest) if index > furthest + STEP_MAX || index + STEP_MAX < furthest => {
                *self = Order { furthest: Some(index), steps: 0, begun: index + 1 };
                return Batch::NONE;
            }
            Some(furthest) if index > furthest => {
                self.furthest = Some(index);
                self.steps += 1;
            }
            // Opened again, or by a thread that is a little behind.
            Some(_) => return Batch::NONE,
        }
        let depth = (self.steps * FILES_AHEAD_START).min(FILES_AHEAD_MAX);
        self.ahead(index, depth, count, u64::MAX)
    }

    fn ahead(&self, index: usize, depth: usize, count: usize, bytes_max: u64) -> Batch {
        let start = self.begun.max(index + 1);
        let end = (index + 1 + depth).min(count).max(start);
        Batch { files: start..end, bytes_max }
    }
}

/// Files whose first bytes may be fetched at once.
#[derive(Debug, PartialEq, Eq)]
struct Batch {
    files: Range<usize>,
    bytes_max: u64,
}

impl Batch {
    const NONE: Batch = Batch { files: 0..0, bytes_max: 0 };
}

/// What is fetched of the files of a batch, in their order; fewer than they are where all would be
/// more than `bytes_max`. Each file is its size and whether its readers begin at its end.
fn windows(files: &[(u64, bool)], window_bytes: u64, bytes_max: u64) -> Vec<ByteRange> {
    let whole = files.iter().map(|&(size, tail_first)| {
        opening_window(size, window_bytes, tail_first).unwrap_or(NOTHING)
    });
    let is_small = whole.clone().map(|window| window.len()).sum::<u64>() <= WHOLE_BYTES_MAX;
    let mut left = bytes_max;
    whole
        .zip(files)
        .map(|(window, &(size, tail_first))| {
            if is_small || !tail_first || window.is_empty() { window } else { footer_window(size) }
        })
        .take_while(|window| {
            let fits = window.len() <= left;
            left = left.saturating_sub(window.len());
            fits
        })
        .collect()
}

const NOTHING: ByteRange = ByteRange { start: 0, end: 0 };

/// The files of one glob, or a file by itself.
#[derive(Debug)]
struct Files {
    id: u64,
    at: Location,
    files: Vec<(String, ObjectMeta)>,
    index: HashMap<ObjectId, usize>,
    order: Order,
    columns: Columns,
}

/// A reader of a file of its statement: of a glob's, or of one by itself. Dropping it tells that
/// the reader is closed.
#[derive(Debug)]
pub(crate) struct Place {
    glob: u64,
    index: usize,
    reader: u64,
    neighbours: Weak<Neighbours>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(neighbours) = self.neighbours.upgrade() {
            neighbours.closed(self);
        }
    }
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
    registered: bool,
}

impl State {
    /// The oldest, outside of what is followed.
    fn forget_surplus(&mut self) -> Vec<Files> {
        let surplus = self.globs.len().saturating_sub(GLOBS_MAX);
        self.globs.drain(..surplus).collect()
    }
}

impl Neighbours {
    /// Takes note of a glob's files, in the order in which a scan will open them.
    pub fn listed(&self, at: &Location, entries: &[Entry]) {
        let known = entries.iter().all(|entry| {
            entry.meta.size_bytes.is_some()
                && entry.meta.etag.as_ref().is_some_and(penstock_store::ETag::is_strong)
        });
        if entries.len() < 3 || !known {
            return;
        }
        let files = entries.iter().map(|entry| (entry.key.clone(), entry.meta.clone())).collect();
        let index = entries
            .iter()
            .enumerate()
            .map(|(index, entry)| (at.sibling(entry.key.as_str()).id(), index))
            .collect();
        let mut state = self.lock();
        state.globs_seen += 1;
        let id = state.globs_seen;
        let columns = Columns::new(true, flow_of(at));
        let order = Order::default();
        state.globs.push(Files { id, at: at.clone(), files, index, order, columns });
        let forgotten = state.forget_surplus();
        drop(state);
        drop(forgotten);
    }

    /// Takes note of an opened Parquet file that is in no glob, if it is worth while: the store is
    /// some way off, and has strong tags.
    pub fn alone(self: &Arc<Self>, at: &Location, meta: &ObjectMeta) -> Option<Place> {
        let is_known = meta.size_bytes.is_some()
            && meta.etag.as_ref().is_some_and(penstock_store::ETag::is_strong);
        if !tail_first(&at.key) || !is_known || at.mount.latency.get() < LATENCY_MIN {
            return None;
        }
        let mut state = self.lock();
        let id = at.id();
        let known = state.globs.iter().find_map(|glob| Some((glob.id, *glob.index.get(&id)?)));
        let (glob, index) = known.unwrap_or_else(|| {
            state.globs_seen += 1;
            let files = vec![(at.key.clone(), meta.clone())];
            let index = HashMap::from([(id, 0)]);
            let columns = Columns::new(false, flow_of(at));
            let (id, order) = (state.globs_seen, Order::default());
            state.globs.push(Files { id, at: at.clone(), files, index, order, columns });
            (id, 0)
        });
        let forgotten = state.forget_surplus();
        let place = self.place(&mut state, glob, index);
        drop(state);
        drop(forgotten);
        Some(place)
    }

    fn place(self: &Arc<Self>, state: &mut State, glob: u64, index: usize) -> Place {
        state.readers_seen += 1;
        Place { glob, index, reader: state.readers_seen, neighbours: Arc::downgrade(self) }
    }

    fn closed(&self, place: &Place) {
        let mut state = self.lock();
        let glob = state.globs.iter_mut().find(|glob| glob.id == place.glob);
        let dropped = glob.map(|glob| glob.columns.closed(place.reader));
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
        tasks.retain(|task| !task.is_finished());
        let batch = glob.order.opened(index, glob.files.len());
        let files = &glob.files[batch.files.clone()];
        let sizes: Vec<_> = files
            .iter()
            .map(|(key, meta)| (meta.size_bytes.unwrap_or(0), tail_first(key)))
            .collect();
        let windows = windows(&sizes, query.settings.open_fetch_bytes, batch.bytes_max);
        glob.order.begun = glob.order.begun.max(batch.files.start + windows.len());
        for ((key, meta), window) in files.iter().zip(windows) {
            let at = glob.at.sibling(key.as_str());
            let opened = Opened { meta: meta.clone(), whole: None };
            let reader = Reader::new(query, &at, &opened, None);
            let query = Arc::clone(query);
            let task = query.engine.handle.clone().spawn(async move {
                // The open that needs these bytes asks again and tells its own error.
                let _ = query.run(reader.fetch_opening(&query, window)).await;
            });
            tasks.push(task.abort_handle());
        }
        let passed = glob.columns.pass(index.saturating_sub(STEP_MAX));
        glob.pull(query);
        let id = glob.id;
        let place = self.place(&mut state, id, index);
        drop(state);
        drop(passed);
        Some(place)
    }

    /// Takes note of a read of a file, begins to fetch what will be read next, and gives what was
    /// fetched ahead of this read, waiting for what is on its way. `None` for a reader that is not
    /// followed.
    pub async fn columns(
        &self,
        query: &Arc<QueryCore>,
        place: &Place,
        range: ByteRange,
    ) -> Option<Vec<Piece>> {
        let mut pieces = Vec::new();
        for block in self.read(query, place, range)? {
            pieces.extend(block.arrived().await);
        }
        Some(pieces)
    }

    fn read(
        &self,
        query: &Arc<QueryCore>,
        place: &Place,
        range: ByteRange,
    ) -> Option<Vec<Arc<Block>>> {
        let mut state = self.lock();
        let State { globs, registered, .. } = &mut *state;
        let glob = globs.iter_mut().find(|glob| glob.id == place.glob)?;
        if !std::mem::replace(registered, true) {
            let pressable: Weak<dyn Pressable> = Arc::downgrade(&query.neighbours) as Weak<_>;
            query.engine.budget.register(pressable);
        }
        let (found, dropped) = glob.note(query, place, range)?;
        glob.pull(query);
        drop(state);
        drop(dropped);
        Some(found)
    }

    /// Takes note that a read has ended.
    pub fn done(&self, query: &Arc<QueryCore>, place: &Place, range: ByteRange) {
        let mut state = self.lock();
        if let Some(glob) = state.globs.iter_mut().find(|glob| glob.id == place.glob) {
            let dropped = glob.columns.done(place.index, range);
            glob.pull(query);
            drop(state);
            drop(dropped);
        }
    }

    /// Stops what is on its way.
    pub fn stop(&self) {
        let mut state = self.lock();
        let tasks = std::mem::take(&mut state.tasks);
        let cleared: Vec<_> = state.globs.iter_mut().map(|glob| glob.columns.clear()).collect();
        drop(state);
        drop(cleared);
        for task in tasks {
            task.abort();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files {
    fn note(
        &mut self,
        query: &Arc<QueryCore>,
        place: &Place,
        range: ByteRange,
    ) -> Option<(Vec<Arc<Block>>, Dropped)> {
        let Files { at, files, columns, .. } = self;
        let is_near = at.mount.latency.get() < LATENCY_MIN;
        if (is_near && columns.ahead_bytes() == 0) || !tail_first(&files[place.index].0) {
            return None;
        }
        columns.note(place.reader, place.index, range, || layout(query, at, &files[place.index]))
    }

    fn pull(&mut self, query: &Arc<QueryCore>) {
        let Files { at, files, columns, .. } = self;
        let latency = at.mount.latency.get();
        if latency < LATENCY_MIN {
            return;
        }
        let room = Room { latency, memory_limit_bytes: query.engine.budget.limit_bytes() };
        let parse = |index: usize| layout(query, at, &files[index]);
        let begin = |index: usize, span: ByteRange, flow: &Arc<Flow>| {
            let (key, meta) = &files[index];
            let (at, version) = (at.sibling(key.as_str()), Version::of(meta));
            let size_bytes = meta.size_bytes?;
            let lease = query.engine.budget.try_lease(span.len())?;
            let source = Source { query, at: &at, version: &version, size_bytes };
            Some(fetch(&source, span, lease, Some(flow)))
        };
        columns.pull(files.len(), room, parse, begin);
    }
}

/// Where the columns of a file lie, if its footer is here.
fn layout(
    query: &Arc<QueryCore>,
    at: &Location,
    (key, meta): &(String, ObjectMeta),
) -> Option<Layout> {
    let id = ObjectId { mount: at.mount.id, key: key.clone() };
    let held = query.engine.held.get(&id, &Version::of(meta))?;
    let size = meta.size_bytes?;
    let pieces = held.pieces();
    Layout::parse(&pieces.iter().find(|piece| piece.range.end == size)?.bytes)
}

fn flow_of(at: &Location) -> Flow {
    Flow::new(at.mount.profile.connection_bytes_per_s, at.mount.latency.get())
}

impl Pressable for Neighbours {
    fn returnable_bytes(&self) -> u64 {
        let Ok(state) = self.0.try_lock() else { return 0 };
        state.globs.iter().map(|glob| glob.columns.ahead_bytes()).sum()
    }

    fn press(&self) -> bool {
        let Ok(mut state) = self.0.try_lock() else { return false };
        let held = state.globs.iter().any(|glob| glob.columns.ahead_bytes() > 0);
        let cleared: Vec<_> = state.globs.iter_mut().map(|glob| glob.columns.clear()).collect();
        drop(state);
        drop(cleared);
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_file_begins_a_few_and_each_step_more() {
        let mut order = Order::default();
        assert_eq!(order.opened(0, 100), Batch { files: 1..16, bytes_max: BYTES_AHEAD_FIRST });
        order.begun = 16;
        assert_eq!(order.opened(0, 100), Batch::NONE);
        assert_eq!(order.opened(1, 100).files, 16..16);
        assert_eq!(order.opened(2, 100).files, 16..19);
    }

    #[test]
    fn a_jump_begins_anew_and_a_first_file_further_on_begins_nothing() {
        let mut order = Order::default();
        order.opened(0, 1000);
        order.opened(1, 1000);
        assert_eq!(order.opened(500, 1000), Batch::NONE);
        assert_eq!(order.opened(501, 1000).files, 502..510);
        assert!(Order::default().opened(7, 1000).files.is_empty());
    }

    #[test]
    fn a_small_batch_comes_whole_and_a_larger_one_by_its_footers() {
        let small = windows(&[(20 << 10, true); 9], 256 << 10, BYTES_AHEAD_FIRST);
        assert_eq!(small, [ByteRange { start: 0, end: 20 << 10 }; 9]);
        let large = windows(&[(200 << 10, true); 9], 256 << 10, BYTES_AHEAD_FIRST);
        assert_eq!(large, [ByteRange { start: 184 << 10, end: 200 << 10 }; 9]);
        let text = windows(&[(200 << 10, false); 9], 256 << 10, BYTES_AHEAD_FIRST);
        assert_eq!(text, [ByteRange { start: 0, end: 200 << 10 }; 2]);
        assert!(windows(&[(200, true); 9], 0, 100).iter().all(ByteRange::is_empty));
    }

    proptest! {
        #[test]
        fn nothing_is_begun_twice_nor_too_far_ahead(
            steps in prop::collection::vec((0usize..3, 0usize..40), 1..200), count in 1usize..300,
        ) {
            let mut order = Order::default();
            let mut index = 0;
            let mut begun = std::collections::HashSet::new();
            for (step, taken) in steps {
                index = (index + step).min(count - 1);
                let files = order.opened(index, count).files;
                let taken = files.start..(files.start + taken).min(files.end);
                order.begun = order.begun.max(taken.end);
                for file in taken {
                    prop_assert!(file > index && file <= index + FILES_AHEAD_MAX && file < count);
                    prop_assert!(begun.insert(file), "{} twice", file);
                }
            }
        }

        #[test]
        fn windows_lie_in_their_files_and_within_the_bytes(
            files in prop::collection::vec((0u64..2_000_000, any::<bool>()), 0..40),
            window_bytes in 0u64..(1 << 19), bytes_max in 0u64..(1 << 20),
        ) {
            let windows = windows(&files, window_bytes, bytes_max);
            prop_assert!(windows.iter().map(ByteRange::len).sum::<u64>() <= bytes_max);
            for (window, (size, tail_first)) in windows.iter().zip(files) {
                prop_assert!(window.end <= size);
                let at_its_end = if tail_first { window.end == size } else { window.start == 0 };
                prop_assert!(window.is_empty() || at_its_end);
            }
        }
    }
}

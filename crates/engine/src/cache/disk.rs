//! Blocks on a local disk: found and read on the caller's thread, written by a thread of their own.
//!
//! An offer is queued and can be read from there at once; whoever has more than the queue has room
//! for waits for the disk first (`room`). What the disk refuses is not cached, and counted: no read
//! fails because of the cache.

use crate::budget::Lease;
use crate::cache::changes::Notes;
use crate::cache::home::Home;
use crate::cache::index::{Found, Index, ObjectVersion, Place};
use crate::cache::medium::{BlockFile, Medium, read_checked};
use crate::cache::memory::blocks_of;
use crate::cache::outdated::{self, Noted};
use crate::cache::record::NAME_BYTES_MAX;
use crate::cache::writer;
use bytes::Bytes;
use penstock_base::{ByteRange, Error, Kind, Metric, Metrics, Result};
use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use tokio::sync::Notify;

/// The disk cache of one directory or device.
#[derive(Debug)]
pub(crate) struct DiskCache {
    pub(super) shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
    /// Last, so that the medium is given up when it is told.
    end: TellEnd,
}

/// What the readers and the writing thread share.
#[derive(Debug)]
pub(super) struct Shared {
    pub medium: Box<dyn Medium>,
    pub state: Mutex<State>,
    /// Told when the queue grows or shrinks, and at the end.
    pub changed: Condvar,
    /// Told of each block that the writer is done with, and of room that is given back.
    pub progress: Notify,
    /// Held while it is noted which versions are outdated, and while the oldest file goes: what is
    /// known of its versions must not go before it. Taken before the state.
    pub noting: Mutex<()>,
    /// Of the one change that waits for a note on a thread.
    pub turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
pub(super) struct State {
    pub index: Index,
    pub files: HashMap<u64, Arc<dyn BlockFile>>,
    pub queue: VecDeque<Queued>,
    pub queue_bytes: u64,
    /// Room in the queue for bytes that are about to be offered.
    pub promised_bytes: u64,
    /// The writer was waited for in vain, and has done nothing since.
    pub is_stuck: bool,
    pub capacity_bytes: u64,
    pub next_file: u64,
    /// Counts up with every clearing: what was begun before must not come back.
    pub epoch: u64,
    pub is_writing: bool,
    pub is_ending: bool,
    /// By name, how many changes of the object are under way.
    pub changing: HashMap<String, usize>,
    /// While blocks of a file that gave way are neither here nor there: the names of the objects
    /// that changed meanwhile.
    pub moving: Option<HashSet<String>>,
    pub notes: Notes,
    pub counts: Counts,
    /// Of the engines that use it: what the writer meets belongs to no statement.
    engines: Vec<Weak<Metrics>>,
}

/// A block on its way to a file.
#[derive(Debug)]
pub(super) struct Queued {
    /// Of when it was offered: one from before a clearing is not written.
    pub epoch: u64,
    pub version: ObjectVersion,
    pub range: ByteRange,
    pub bytes: Bytes,
    /// The right to hold the bytes, shared by the blocks of one offer. Of a survivor there is none:
    /// it is in memory for one write only.
    pub lease: Option<Arc<Lease>>,
}

/// What happened to blocks since the medium was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub written_bytes: u64,
    /// Blocks whose bytes were not those that were written.
    pub corrupt_blocks: u64,
    /// Blocks that the disk did not take.
    pub failed_blocks: u64,
}

/// What a disk cache holds.
#[cfg(test)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holdings {
    pub blocks: u64,
    pub block_bytes: u64,
    pub file_bytes: u64,
    pub capacity_bytes: u64,
    pub counts: Counts,
}

/// The caches that are open in this process, so that its engines share them.
static OPEN: Mutex<Vec<Open>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Open {
    path: PathBuf,
    cache: Weak<DiskCache>,
    end: Arc<End>,
    /// A child of a fork has copies of these, without their threads and their locks.
    process: u32,
}

/// Whether a cache has given its medium up: that takes a moment after its last user left.
#[derive(Debug, Default)]
struct End {
    is_over: Mutex<bool>,
    told: Condvar,
}

impl End {
    fn wait(&self) {
        let is_over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.told.wait_while(is_over, |is_over| !*is_over);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn is_over(&self) -> bool {
        *self.is_over.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct TellEnd {
    end: Arc<End>,
    process: u32,
}

impl Drop for TellEnd {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        *self.end.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.end.told.notify_all();
    }
}

impl DiskCache {
    /// The cache of a directory or device; opened already in this process, it is the same one. What
    /// goes wrong with it is counted for everybody who opened it.
    ///
    /// # Errors
    /// `Invalid` when it cannot be used or another process uses it; `Exhausted` when no thread can
    /// be started.
    pub fn open(home: &Home, capacity_bytes: u64, metrics: &Arc<Metrics>) -> Result<Arc<Self>> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        // Told first, so that all spellings of it can be told to be one. It stays the same when
        // the process changes its working directory.
        let path = home.real_path()?;
        let process = std::process::id();
        open.retain(|known| known.process == process);
        if let Some(known) = open.iter().find(|known| known.path == path) {
            match known.cache.upgrade() {
                Some(cache) if cache.is_held() => {
                    cache.set_capacity(capacity_bytes);
                    cache.shared.lock().tell(metrics);
                    return Ok(cache);
                }
                // Its medium is not its own any more; who still reads with it goes on.
                Some(_) => {}
                None => known.end.wait(),
            }
        }
        // One of another path that is closing is still to be waited for.
        open.retain(|known| known.path != path && !known.end.is_over());
        let end = Arc::new(End::default());
        let cache = DiskCache::start(home.hold(&path)?, capacity_bytes, &end)?;
        cache.shared.lock().tell(metrics);
        let cache = Arc::new(cache);
        open.push(Open { path, cache: Arc::downgrade(&cache), end, process });
        Ok(cache)
    }

    /// A cache of its own, for tests of media that no setting names.
    #[cfg(test)]
    pub(super) fn on(medium: Box<dyn Medium>, capacity_bytes: u64) -> Result<Self> {
        DiskCache::start(medium, capacity_bytes, &Arc::default())
    }

    fn start(medium: Box<dyn Medium>, capacity_bytes: u64, end: &Arc<End>) -> Result<Self> {
        let mut index = Index::default();
        let mut files = HashMap::new();
        let recovered = medium.recover();
        let next_file = medium.next_number();
        let noted = medium.noted();
        for recovered in recovered {
            index.file_grew(recovered.number, medium.taken_bytes(recovered.bytes));
            for (record, position) in recovered.records {
                if index.gaps(&record.version, record.range) == [record.range] {
                    let place = Place::File { file: recovered.number, position, crc: record.crc };
                    index.insert(&record.version, record.range, place);
                    if noted == Noted::All {
                        index.doubt_version(&record.version);
                    } else if noted.has(outdated::hash(&record.version)) {
                        index.outdate_version(&record.version);
                    }
                }
            }
            files.insert(recovered.number, recovered.file);
        }
        let state = State {
            index,
            files,
            queue: VecDeque::new(),
            queue_bytes: 0,
            promised_bytes: 0,
            is_stuck: false,
            capacity_bytes,
            next_file,
            epoch: 0,
            is_writing: false,
            is_ending: false,
            changing: HashMap::new(),
            moving: None,
            notes: Notes::of(noted),
            counts: Counts::default(),
            engines: Vec::new(),
        };
        let (changed, progress) = (Condvar::new(), Notify::new());
        let (state, noting) = (Mutex::new(state), Mutex::default());
        let turn = Arc::default();
        let shared = Arc::new(Shared { medium, state, changed, progress, noting, turn });
        let writer = std::thread::Builder::new()
            .name("penstock-cache".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || writer::run(&shared)
            })
            .map_err(|error| {
                Error::new(Kind::Exhausted, format!("no thread for the disk cache: {error}"))
            })?;
        Ok(DiskCache {
            shared,
            writer: Some(writer),
            end: TellEnd { end: Arc::clone(end), process: std::process::id() },
        })
    }

    /// Whether it can still keep anything: its directory is this process's.
    pub fn is_held(&self) -> bool {
        self.shared.medium.is_held()
    }

    /// How many bytes it may hold.
    pub fn capacity_bytes(&self) -> u64 {
        self.shared.lock().capacity_bytes
    }

    /// Changes the capacity; what is too much goes with the next block that is written.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        self.shared.lock().capacity_bytes = capacity_bytes;
    }

    /// The blocks that a range overlaps, in order.
    pub fn find(&self, version: &ObjectVersion, range: ByteRange) -> Vec<Found> {
        self.shared.lock().index.find(version, range)
    }

    /// Fills `buf` with the bytes of a block from `start` on. `false` when they are not there any
    /// more, or not what was written; then `buf` holds anything. Blocks on the disk.
    pub fn read(&self, version: &ObjectVersion, found: &Found, start: u64, buf: &mut [u8]) -> bool {
        let from = usize::try_from(start - found.block.start).unwrap_or(usize::MAX);
        match &found.place {
            Place::Queued(bytes) => {
                buf.copy_from_slice(&bytes[from..from + buf.len()]);
                true
            }
            Place::File { file, position, crc } => {
                let Some(file_handle) = self.shared.lock().files.get(file).cloned() else {
                    return false;
                };
                let is_good = match buf.len() as u64 == found.block.len() {
                    true => read_checked(&*file_handle, *position, *crc, buf),
                    false => {
                        let len = usize::try_from(found.block.len()).unwrap_or(usize::MAX);
                        let mut block = vec![0; len];
                        let is_good = read_checked(&*file_handle, *position, *crc, &mut block);
                        buf.copy_from_slice(&block[from..from + buf.len()]);
                        is_good
                    }
                };
                if !is_good {
                    let mut state = self.shared.lock();
                    state.index.lose(version, found.block.start, (*file, *position));
                    state.met_corrupt_block();
                }
                is_good
            }
        }
    }

    /// How many bytes of a range are cached.
    pub fn cached_bytes(&self, version: &ObjectVersion, range: ByteRange) -> u64 {
        self.shared.lock().index.cached_bytes(version, range)
    }

    /// The version of an object that was cached last, and whether nothing is known against taking
    /// it for the object.
    pub fn latest(&self, name: &str) -> Option<(ObjectVersion, bool)> {
        let state = self.shared.lock();
        state.index.latest(name).map(|(version, is_present)| (version.clone(), is_present))
    }

    /// The parts of a range that are not cached and could be.
    pub fn wanted(&self, version: &ObjectVersion, range: ByteRange) -> Vec<ByteRange> {
        if version.name.len() > NAME_BYTES_MAX || version.etag.len() > NAME_BYTES_MAX {
            return Vec::new();
        }
        self.shared.lock().index.gaps(version, range)
    }

    /// Takes bytes that begin at `start`, with the right to hold them; the cache is theirs as soon
    /// as this returns. Whether their object `has_outgrown` them is asked when they are taken.
    pub fn offer(
        &self,
        version: &ObjectVersion,
        start: u64,
        bytes: &Bytes,
        lease: Lease,
        has_outgrown: impl FnOnce() -> bool,
    ) {
        let range = ByteRange { start, end: start + bytes.len() as u64 };
        let lease = Arc::new(lease);
        let mut state = self.shared.lock();
        let gaps = state.index.gaps(version, range);
        let is_changing = || state.changing.contains_key(&*version.name);
        if !gaps.is_empty() && (is_changing() || has_outgrown()) {
            state.outdate_version(version);
        }
        for gap in gaps {
            for block in blocks_of(gap) {
                let part = |at: u64| usize::try_from(at - start).unwrap_or(usize::MAX);
                let bytes = bytes.slice(part(block.start)..part(block.end));
                state.index.insert(version, block, Place::Queued(bytes.clone()));
                state.queue_bytes += block.len();
                let (epoch, version) = (state.epoch, version.clone());
                let lease = Some(Arc::clone(&lease));
                state.queue.push_back(Queued { epoch, version, range: block, bytes, lease });
            }
        }
        drop(state);
        self.shared.changed.notify_all();
        // Not under the lock: giving memory back wakes writers.
        drop(lease);
    }

    /// Waits until what was offered is written.
    #[cfg(test)]
    pub fn flush(&self) {
        let state = self.shared.lock();
        let busy = |state: &mut State| !state.queue.is_empty() || state.is_writing;
        drop(self.shared.changed.wait_while(state, busy).unwrap_or_else(PoisonError::into_inner));
    }

    /// What it holds.
    #[cfg(test)]
    pub fn holdings(&self) -> Holdings {
        let state = self.shared.lock();
        let (blocks, block_bytes) = state.index.totals();
        Holdings {
            blocks,
            block_bytes,
            file_bytes: state.index.file_bytes(),
            capacity_bytes: state.capacity_bytes,
            counts: state.counts,
        }
    }

    /// Every version with its number of blocks and their bytes.
    pub fn objects(&self) -> Vec<(ObjectVersion, u64, u64)> {
        let state = self.shared.lock();
        state.index.objects().map(|(version, n, bytes)| (version.clone(), n, bytes)).collect()
    }
}

impl Drop for DiskCache {
    /// Writes what is queued and closes the open file in good order. In a child of a fork there is
    /// no writer, and whoever held the lock is not there to give it back.
    fn drop(&mut self) {
        if self.end.process != std::process::id() {
            return;
        }
        self.shared.lock().is_ending = true;
        self.shared.changed.notify_all();
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

impl Shared {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// One more engine to count for.
    fn tell(&mut self, metrics: &Arc<Metrics>) {
        let is_other = |known: &Weak<Metrics>| known.as_ptr() != Arc::as_ptr(metrics);
        self.engines.retain(|known| known.strong_count() > 0 && is_other(known));
        self.engines.push(Arc::downgrade(metrics));
    }

    /// A block's bytes were not those that were written.
    pub fn met_corrupt_block(&mut self) {
        self.counts.corrupt_blocks += 1;
        self.count(Metric::CacheDiskBlocksCorrupt);
    }

    /// The disk did not take a block.
    pub fn met_refused_block(&mut self) {
        self.counts.failed_blocks += 1;
        self.count(Metric::CacheDiskBlocksFailed);
    }

    fn count(&self, metric: Metric) {
        for metrics in self.engines.iter().filter_map(Weak::upgrade) {
            metrics.add(metric, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_testkit::scratch::Scratch;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// Whoever held the lock when the process forked does not exist in the child.
    #[test]
    fn a_child_of_a_fork_drops_its_copy_without_the_locks_of_its_parent() {
        let dir = Scratch::new("cache");
        let home = Home::Directory(dir.path().to_path_buf());
        let medium = home.hold(&home.real_path().unwrap()).unwrap();
        let mut cache = DiskCache::on(medium, 1 << 20).unwrap();
        cache.end.process += 1;
        let (shared, end) = (Arc::clone(&cache.shared), Arc::clone(&cache.end.end));
        let (told, dropped) = channel();
        let (state, is_over) = (shared.lock(), end.is_over.lock().unwrap());
        std::thread::spawn(move || {
            drop(cache);
            told.send(()).unwrap();
        });
        let is_dropped = dropped.recv_timeout(Duration::from_secs(30));
        drop((state, is_over));
        assert!(is_dropped.is_ok(), "it waits for a lock");
        shared.lock().is_ending = true;
        shared.changed.notify_all();
    }
}

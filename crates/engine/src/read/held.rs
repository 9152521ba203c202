//! Bytes of an object that are kept: what came with the request that opened it.
//!
//! Readers of the same version share them, within one query and from one query to the next: DuckDB
//! opens a file once to bind and once per scanning thread. Where nothing tells versions apart, only
//! readers of one query do.

use crate::budget::{Budget, Lease};
use crate::generations::Generations;
use crate::location::{Location, Mount, ObjectId};
use crate::read::filters::{Filters, Judged};
use crate::read::parquet::{Layout, judge};
use crate::read::version::Version;
use bytes::Bytes;
use penstock_base::ByteRange;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Most pieces per object: head and tail, and one more of each that was widened.
const PIECES_MAX: usize = 4;
/// Name, version and the pieces' own fields, roughly: empty entries count too.
pub(super) const ENTRY_BYTES: u64 = 512;

/// One run of kept bytes.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub range: ByteRange,
    pub bytes: Bytes,
    _lease: Arc<Lease>,
}

impl Piece {
    /// Bytes that begin at an offset, and the right to hold them.
    pub fn new(start: u64, bytes: Bytes, lease: impl Into<Arc<Lease>>) -> Self {
        let range = ByteRange { start, end: start + bytes.len() as u64 };
        Piece { range, bytes, _lease: lease.into() }
    }
}

/// Filters, and what a footer says about them.
type About = (Arc<Filters>, Option<Arc<Judged>>);

/// The kept bytes of one version of an object.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pieces: Mutex<Vec<Piece>>,
    /// What the footer at the end tells, and where the piece begins that has it. It takes a quarter
    /// of the footer's memory at most.
    layout: Mutex<Option<(u64, Option<Arc<Layout>>)>>,
    /// What it says about the filters that were asked for last.
    judged: Mutex<Option<About>>,
    /// Taken while fetching, so that readers which want the same bytes fetch them once.
    pub filling: tokio::sync::Mutex<()>,
    /// What is fetched ahead of its first reader.
    coming: Mutex<Option<ByteRange>>,
}

impl Held {
    /// A whole object, and the right to hold it.
    pub fn whole(bytes: Bytes, lease: Lease) -> Self {
        Held { pieces: Mutex::new(vec![Piece::new(0, bytes, lease)]), ..Held::default() }
    }

    /// Keeps bytes that begin at an offset.
    pub fn keep(&self, start: u64, bytes: Bytes, budget: &Arc<Budget>) {
        let lease = budget.lease_now(bytes.len() as u64);
        self.keep_piece(Piece::new(start, bytes, lease));
    }

    /// Where the columns of a Parquet file of this size lie, if its footer is here. It is parsed
    /// once, and without any lock but this file's.
    pub fn layout(&self, size_bytes: u64) -> Option<Arc<Layout>> {
        let pieces = self.pieces();
        let tail = pieces.iter().find(|piece| piece.range.end == size_bytes)?;
        let start = tail.range.start;
        let mut known = self.layout.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((from, layout)) if *from == start => layout.clone(),
            _ => {
                let layout = Layout::parse_once(&tail.bytes, start).map(Arc::new);
                *known = Some((start, layout.clone()));
                layout
            }
        }
    }

    /// What the footer of a Parquet file of this size says about filters, if it is here.
    pub fn judged(&self, size_bytes: u64, filters: &Arc<Filters>) -> Option<Arc<Judged>> {
        if filters.is_empty() {
            return None;
        }
        let mut known = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, judged)) = &*known
            && Arc::ptr_eq(of, filters)
        {
            return judged.clone();
        }
        let pieces = self.pieces();
        let tail = pieces.iter().find(|piece| piece.range.end == size_bytes)?;
        let judged = judge(&tail.bytes, filters).map(Arc::new);
        *known = Some((Arc::clone(filters), judged.clone()));
        judged
    }

    /// Keeps a piece.
    pub fn keep_piece(&self, piece: Piece) {
        let range = piece.range;
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        let (covered, mut kept): (Vec<_>, Vec<_>) =
            pieces.drain(..).partition(|piece| range.contains(&piece.range));
        kept.push(piece);
        let surplus = kept.len().saturating_sub(PIECES_MAX);
        let dropped: Vec<_> = kept.drain(..surplus).collect();
        *pieces = kept;
        // Giving memory back may wake writers, so not under the lock.
        drop(pieces);
        drop((covered, dropped));
    }

    /// The pieces kept now.
    pub fn pieces(&self) -> Vec<Piece> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether every byte of the range is kept in one piece.
    pub fn covers(&self, range: &ByteRange) -> bool {
        let pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        pieces.iter().any(|piece| piece.range.contains(range))
    }

    /// Takes note that these bytes are fetched ahead of whoever reads them.
    pub fn comes(&self, window: ByteRange) {
        *self.coming.lock().unwrap_or_else(PoisonError::into_inner) = Some(window);
    }

    /// What is fetched ahead that has all of this range, if that is not here.
    pub fn coming(&self, range: &ByteRange) -> Option<ByteRange> {
        let coming = *self.coming.lock().unwrap_or_else(PoisonError::into_inner);
        coming.filter(|window| !range.is_empty() && window.contains(range) && !self.covers(range))
    }

    fn weight(&self) -> u64 {
        self.pieces().iter().map(|piece| piece.range.len()).sum::<u64>() + ENTRY_BYTES
    }
}

/// Kept bytes by object; the least recently used are forgotten.
#[derive(Debug)]
pub(crate) struct HeldCache(Mutex<Generations<ObjectId, Entry>>);

#[derive(Debug)]
struct Entry {
    /// Tells where the object is, as long as its store is open.
    mount: Weak<Mount>,
    version: Version,
    held: Arc<Held>,
}

/// The kept bytes of one object, for people to look at.
#[derive(Debug)]
pub(crate) struct Shown {
    /// As [`Location::name`].
    pub name: String,
    pub version: Version,
    pub bytes: u64,
    pub pieces: u64,
}

impl HeldCache {
    pub fn new(capacity_bytes: u64) -> Self {
        HeldCache(Mutex::new(Generations::new(capacity_bytes)))
    }

    /// Keeps so many from now on.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        self.lock().set_capacity(capacity_bytes);
    }

    /// The kept bytes of a version, if any are.
    pub fn get(&self, id: &ObjectId, version: &Version) -> Option<Arc<Held>> {
        if !version.is_told() {
            return None;
        }
        let mut cache = self.lock();
        let entry = cache.get(id).filter(|entry| entry.version.same(version))?;
        Some(Arc::clone(&entry.held))
    }

    /// The bytes of a version to add to, shared by all who ask.
    pub fn get_or_default(&self, at: &Location, version: &Version) -> Arc<Held> {
        if let Some(held) = self.get(&at.id(), version) {
            return held;
        }
        let held = Arc::new(Held::default());
        self.put(at, version, &held);
        held
    }

    /// Takes note of bytes, or of how many they are now.
    pub fn put(&self, at: &Location, version: &Version, held: &Arc<Held>) {
        if !version.is_told() {
            return;
        }
        let weight = held.weight();
        let (mount, version) = (Arc::downgrade(at.mount()), version.clone());
        let entry = Entry { mount, version, held: Arc::clone(held) };
        self.lock().insert(at.id(), entry, weight);
    }

    /// The objects of which bytes are kept, in no order. Of those whose store was closed nobody
    /// finds them again.
    pub fn objects(&self) -> Vec<Shown> {
        let cache = self.lock();
        let shown = cache.iter().filter_map(|(id, Entry { mount, version, held })| {
            let pieces = held.pieces();
            let bytes = pieces.iter().map(|piece| piece.range.len()).sum();
            let (name, version) = (mount.upgrade()?.name_of(&id.key), version.clone());
            Some(Shown { name, version, bytes, pieces: pieces.len() as u64 })
        });
        shown.filter(|shown| shown.bytes > 0).collect()
    }

    /// Forgets an object.
    pub fn forget(&self, id: &ObjectId) {
        self.lock().remove(id);
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Generations<ObjectId, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! A file in memory: its map, its size, its locks.

use crate::buffer::AlignedBuffer;
use crate::volume::TEMP_PREFIX;
use crate::volume::ahead::Window;
use crate::volume::behind::Late;
use crate::volume::holders::Holders;
use crate::volume::map::Map;
use crate::volume::ranges::Ranges;
use crate::volume::space::{Extent, pages_of};
use crate::volume::table::PAGE_BYTES;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The page that was last written in part, as it is on the device.
pub(crate) struct Edge {
    pub page: AlignedBuffer,
}

/// What the table on the device says of a lasting file.
#[derive(Default)]
pub(crate) struct Known {
    /// Pages that lie where it says.
    pub pages: Ranges,
    /// Where it says that others lie, which were written to other places since.
    pub left: Left,
}

/// Places that a file has left and that are not free yet.
#[derive(Default)]
pub(crate) struct Left {
    places: Vec<Extent>,
    pages: u64,
}

/// No page has this number.
pub(crate) const NO_PAGE: u64 = u64::MAX;

pub(crate) struct Node {
    name: Mutex<String>,
    is_temp: bool,
    is_removed: AtomicBool,
    /// Whether another file has its name; told before it is removed.
    is_replaced: AtomicBool,
    /// Held shared while bytes move, so that pages are not given away meanwhile.
    gate: RwLock<()>,
    /// Changed with the gate held, but for pages that move: nobody else reads or writes those.
    map: Mutex<Arc<Map>>,
    known: Mutex<Known>,
    /// Held shared while anything is written, so that no table tells of places whose bytes are not
    /// there yet, and nothing is cut off whose write may fail: its pages would become holes again.
    overwriting: RwLock<()>,
    size: AtomicU64,
    /// Pages that whoever makes it longer is about to fill, though its size does not tell yet. Set
    /// with the volume's `core` held; lowered also by whoever holds `grow` and has failed.
    promised: AtomicU64,
    /// Writes and truncations that have ended.
    changes: AtomicU64,
    /// Held by whoever makes the file longer or shorter.
    pub(crate) grow: Mutex<()>,
    /// Held by whoever writes a part of a page.
    edge: Mutex<Edge>,
    /// Which page of the file `edge` holds.
    pub(crate) edge_page: AtomicU64,
    /// Pages that the file has and nobody wrote; held by whoever makes such pages, or none of them.
    ///
    /// Threads that add blocks side by side write the later one first now and then. Zeros in the
    /// place of the earlier one would be written for nothing, so they wait until they are needed.
    holes: Mutex<Ranges>,
    /// Whether there are any, without the lock. Set before the file's size takes them in.
    has_holes: AtomicBool,
    holders: Holders,
    /// What of it is read ahead. No other lock is taken while it is held.
    window: Mutex<Window>,
    /// What of it is on its way to the device. No other lock is taken while it is held.
    late: Late,
}

/// What these locks guard is changed in single steps, so a panic elsewhere leaves it whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Node {
    pub(crate) fn new(name: &str, map: Map, size_bytes: u64) -> Self {
        Node {
            name: Mutex::new(name.to_string()),
            is_temp: name.starts_with(TEMP_PREFIX),
            is_removed: AtomicBool::new(false),
            is_replaced: AtomicBool::new(false),
            gate: RwLock::default(),
            map: Mutex::new(Arc::new(map)),
            known: Mutex::new(Known::of(size_bytes)),
            overwriting: RwLock::default(),
            size: AtomicU64::new(size_bytes),
            promised: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            grow: Mutex::new(()),
            edge: Mutex::new(Edge { page: AlignedBuffer::new(0, 1) }),
            edge_page: AtomicU64::new(NO_PAGE),
            holes: Mutex::default(),
            has_holes: AtomicBool::new(false),
            holders: Holders::default(),
            window: Mutex::default(),
            late: Late::default(),
        }
    }

    pub(crate) fn name(&self) -> String {
        lock(&self.name).clone()
    }

    pub(crate) fn rename(&self, to: &str) {
        *lock(&self.name) = to.to_string();
    }

    pub(crate) fn is_temp(&self) -> bool {
        self.is_temp
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Acquire)
    }

    pub(crate) fn mark_removed(&self) {
        self.is_removed.store(true, Ordering::Release);
        self.note_change();
    }

    pub(crate) fn is_replaced(&self) -> bool {
        self.is_replaced.load(Ordering::Acquire)
    }

    pub(crate) fn mark_replaced(&self) {
        self.is_replaced.store(true, Ordering::Release);
    }

    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    pub(crate) fn set_size(&self, bytes: u64) {
        self.size.store(bytes, Ordering::Release);
    }

    /// Says how many pages are about to be filled.
    pub(crate) fn promise(&self, pages: u64) {
        self.promised.store(pages, Ordering::Release);
    }

    /// Pages that it cannot do without. While `core` is held it may fall (a growth fails), and
    /// never rises: so whoever takes the rest back asks once.
    pub(crate) fn needed_pages(&self) -> u64 {
        self.size().div_ceil(PAGE_BYTES).max(self.promised.load(Ordering::Acquire))
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// To be called when a change has ended, well or not: who read before may have read old bytes.
    pub(crate) fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// The map, whose pages the file keeps while this is held.
    pub(crate) fn map(&self) -> HeldMap<'_> {
        let _gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        HeldMap { _gate, map: lock(&self.map).clone() }
    }

    /// In how many pieces it lies.
    pub(crate) fn extent_count(&self) -> usize {
        lock(&self.map).extents().len()
    }

    /// The map, while no bytes move.
    pub(crate) fn map_mut(&self) -> ChangingMap<'_> {
        let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        ChangingMap { _gate, map: lock(&self.map) }
    }

    /// Puts other places in for pages that nobody but the caller reads or writes; returns the old
    /// ones, which have to be kept until no bytes move ([`Node::map_mut`]).
    pub(crate) fn move_pages(&self, first: u64, places: &[Extent]) -> Vec<Extent> {
        Arc::make_mut(&mut lock(&self.map)).replace(first, places)
    }

    /// Held by whoever writes, from before blocks get their places until they are there, or kept in
    /// memory.
    pub(crate) fn overwriting(&self) -> RwLockReadGuard<'_, ()> {
        self.overwriting.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// While this is held nothing is being written.
    pub(crate) fn at_rest(&self) -> RwLockWriteGuard<'_, ()> {
        self.overwriting.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the table on the device says of it.
    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }

    /// Says that the table is to tell where every page lies; gives what it told before.
    pub(crate) fn become_known(&self, size_bytes: u64) -> Known {
        std::mem::replace(&mut *self.known(), Known::of(size_bytes))
    }

    /// The handles to it that are open.
    pub(crate) fn holders(&self) -> &Holders {
        &self.holders
    }

    pub(crate) fn growth(&self) -> MutexGuard<'_, ()> {
        lock(&self.grow)
    }

    pub(crate) fn edge(&self) -> MutexGuard<'_, Edge> {
        lock(&self.edge)
    }

    /// Whether some of its pages were never written.
    pub(crate) fn has_holes(&self) -> bool {
        self.has_holes.load(Ordering::Acquire)
    }

    /// Adds pages behind the end that nobody writes now.
    pub(crate) fn add_hole(&self, first: u64, end: u64) {
        let mut holes = lock(&self.holes);
        holes.add(first, end);
        self.has_holes.store(!holes.is_empty(), Ordering::Release);
    }

    /// Says that these pages are about to be written; gives those that never were before.
    pub(crate) fn leave_holes(&self, first: u64, end: u64) -> Vec<(u64, u64)> {
        match self.has_holes() {
            true => self.holes().take(first, end),
            false => Vec::new(),
        }
    }

    /// What was taken could not be written.
    pub(crate) fn put_back_holes(&self, ranges: &[(u64, u64)]) {
        if !ranges.is_empty() {
            self.holes().put_back(ranges);
        }
    }

    /// The holes, which nobody else fills or makes meanwhile.
    pub(crate) fn holes(&self) -> HolesGuard<'_> {
        HolesGuard { node: self, holes: lock(&self.holes) }
    }

    /// What of it is read ahead.
    pub(crate) fn window(&self) -> MutexGuard<'_, Window> {
        lock(&self.window)
    }

    /// What of it is on its way to the device.
    pub(crate) fn late(&self) -> &Late {
        &self.late
    }

    /// Forgets the page that was written in part, if it is one of these.
    pub(crate) fn forget_edge(&self, first: u64, end: u64) {
        if (first..end).contains(&self.edge_page.load(Ordering::Acquire)) {
            let _edge = self.edge();
            self.edge_page.store(NO_PAGE, Ordering::Release);
        }
    }
}

impl Known {
    fn of(size_bytes: u64) -> Self {
        let pages = Ranges::before(size_bytes.div_ceil(PAGE_BYTES));
        Known { pages, left: Left::default() }
    }
}

impl Left {
    /// How many pages they are.
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    pub(crate) fn places(&self) -> &[Extent] {
        &self.places
    }

    pub(crate) fn add(&mut self, places: &[Extent]) {
        self.places.extend(places);
        self.pages += pages_of(places);
    }

    /// Takes these places out; whether they were all there.
    pub(crate) fn take(&mut self, places: &[Extent]) -> bool {
        if !places.iter().all(|place| self.places.contains(place)) {
            return false;
        }
        self.places.retain(|place| !places.contains(place));
        self.pages -= pages_of(places);
        true
    }
}

/// A map as it was when it was asked for.
pub(crate) struct HeldMap<'a> {
    _gate: RwLockReadGuard<'a, ()>,
    map: Arc<Map>,
}

impl Deref for HeldMap<'_> {
    type Target = Map;

    fn deref(&self) -> &Map {
        &self.map
    }
}

/// A map that may be changed.
pub(crate) struct ChangingMap<'a> {
    _gate: RwLockWriteGuard<'a, ()>,
    map: MutexGuard<'a, Arc<Map>>,
}

impl Deref for ChangingMap<'_> {
    type Target = Map;

    fn deref(&self) -> &Map {
        &self.map
    }
}

impl DerefMut for ChangingMap<'_> {
    fn deref_mut(&mut self) -> &mut Map {
        Arc::make_mut(&mut self.map)
    }
}

/// The holes of a file, held.
pub(crate) struct HolesGuard<'a> {
    node: &'a Node,
    holes: MutexGuard<'a, Ranges>,
}

impl HolesGuard<'_> {
    /// Puts back what was taken and not written.
    pub(crate) fn put_back(&mut self, ranges: &[(u64, u64)]) {
        ranges.iter().for_each(|(first, end)| self.holes.add(*first, *end));
    }

    /// Takes out what lies in a range of pages. Others still see that there are holes until this
    /// guard goes, and wait for it: zeros that are being written must not come after their bytes.
    pub(crate) fn take(&mut self, first: u64, end: u64) -> Vec<(u64, u64)> {
        self.holes.take(first, end)
    }
}

impl Drop for HolesGuard<'_> {
    fn drop(&mut self) {
        self.node.has_holes.store(!self.holes.is_empty(), Ordering::Release);
    }
}

//! Writing behind: who writes blocks goes on while a thread of the volume writes them, as it does
//! over a page cache. It decides how many bytes may be on their way, who finds them meanwhile, and
//! who writes them: the thread, or whoever needs them written before its turn came.
//!
//! What cannot be written stays in memory, and reads find it there. Who needs it written tries once
//! more and is told why it fails; so a sync never succeeds without it.

mod pool;

pub(crate) use pool::Pool;

use crate::device::Command;
use crate::port::Port;
use crate::volume::node::Node;
use crate::volume::table::PAGE_BYTES;
use crate::volume::thread::Worker;
use penstock_base::Result;
use pool::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Largest write that is taken: a block of DuckDB's. Longer ones keep a device busy themselves.
const PART_BYTES: usize = 256 << 10;
/// Parts of one batch.
const BATCH: usize = 8;

/// What these locks guard is changed in single steps.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Some pages of a file on their way to the device.
struct Part {
    pages: Range<u64>,
    state: Mutex<State>,
    /// It is not being written any more.
    rested: Condvar,
}

enum State {
    Waiting(Arc<Bytes>),
    Writing(Arc<Bytes>),
    /// Written, or needed no more.
    Ended,
}

/// A part that is written by whoever holds this; it waits again when this goes before the end.
struct Claimed {
    part: Arc<Part>,
    bytes: Option<Arc<Bytes>>,
}

impl Claimed {
    fn bytes(&self) -> &[u8] {
        self.bytes.as_deref().expect("they are there until the end").get()
    }

    /// It is on the device, or nobody needs it.
    fn end(mut self, node: &Node) {
        node.late().remove(&self.part);
        self.bytes = None;
        self.part.rest(State::Ended);
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        if let Some(bytes) = self.bytes.take() {
            self.part.rest(State::Waiting(bytes));
        }
    }
}

impl Part {
    /// The bytes, while they may not be on the device yet.
    fn bytes(&self) -> Option<Arc<Bytes>> {
        match &*lock(&self.state) {
            State::Waiting(bytes) | State::Writing(bytes) => Some(bytes.clone()),
            State::Ended => None,
        }
    }

    /// Takes it to write it, if it waits for somebody who does.
    fn claim(self: &Arc<Self>) -> Option<Claimed> {
        let mut state = lock(&self.state);
        let State::Waiting(bytes) = &*state else { return None };
        let bytes = bytes.clone();
        *state = State::Writing(bytes.clone());
        Some(Claimed { part: self.clone(), bytes: Some(bytes) })
    }

    fn rest(&self, state: State) {
        *lock(&self.state) = state;
        self.rested.notify_all();
    }

    /// Waits until nobody writes it.
    fn await_rest(&self) -> MutexGuard<'_, State> {
        let mut state = lock(&self.state);
        while matches!(*state, State::Writing(_)) {
            state = self.rested.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }
}

/// What of one file is on its way.
#[derive(Default)]
pub(crate) struct Late {
    /// By their first pages; they do not overlap.
    parts: Mutex<BTreeMap<u64, Arc<Part>>>,
    /// Whether there are any, without the lock.
    is_any: AtomicBool,
}

impl Late {
    pub(crate) fn is_empty(&self) -> bool {
        !self.is_any.load(Ordering::Acquire)
    }

    fn overlapping(&self, pages: &Range<u64>) -> Vec<Arc<Part>> {
        if self.is_empty() {
            return Vec::new();
        }
        let parts = lock(&self.parts);
        let before = parts.range(..pages.start).next_back().map(|row| row.1);
        let before = before.filter(|part| part.pages.end > pages.start);
        let within = parts.range(pages.clone()).map(|row| row.1);
        before.into_iter().chain(within).cloned().collect()
    }

    fn insert(&self, part: Arc<Part>) {
        let mut parts = lock(&self.parts);
        parts.insert(part.pages.start, part);
        self.is_any.store(true, Ordering::Release);
    }

    fn remove(&self, part: &Arc<Part>) {
        let mut parts = lock(&self.parts);
        if parts.get(&part.pages.start).is_some_and(|held| Arc::ptr_eq(held, part)) {
            parts.remove(&part.pages.start);
        }
        self.is_any.store(!parts.is_empty(), Ordering::Release);
    }
}

/// Sees to it that a range of a file whose bytes nobody keeps can be written or given away: parts
/// inside it are needed no more, parts that reach beyond it are written first.
///
/// # Errors
/// As [`Port::run`], for the latter.
pub(crate) fn settle(port: &Port, node: &Node, start: u64, end: u64) -> Result<()> {
    let parts = node.late().overlapping(&(start / PAGE_BYTES..end.div_ceil(PAGE_BYTES)));
    let inside = start.div_ceil(PAGE_BYTES)..end / PAGE_BYTES;
    let is_inside = |pages: &Range<u64>| inside.start <= pages.start && pages.end <= inside.end;
    let (unneeded, needed): (Vec<_>, _) =
        parts.into_iter().partition(|part| is_inside(&part.pages));
    unneeded.iter().for_each(|part| forget_one(node, part));
    write_all(port, node, &needed)
}

/// Nobody needs what is on its way from a page on: the file ends there.
pub(crate) fn forget(node: &Node, first: u64) {
    let parts = node.late().overlapping(&(first..u64::MAX));
    parts.iter().filter(|part| part.pages.start >= first).for_each(|part| forget_one(node, part));
}

fn forget_one(node: &Node, part: &Arc<Part>) {
    *part.await_rest() = State::Ended;
    node.late().remove(part);
}

/// Sees to it that all of a range is written.
///
/// # Errors
/// As [`Port::run`]; what could not be written is still on its way then.
pub(crate) fn finish(port: &Port, node: &Node, start: u64, end: u64) -> Result<()> {
    let parts = node.late().overlapping(&(start / PAGE_BYTES..end.div_ceil(PAGE_BYTES)));
    write_all(port, node, &parts)
}

fn write_all(port: &Port, node: &Node, parts: &[Arc<Part>]) -> Result<()> {
    loop {
        let claimed: Vec<Claimed> = parts.iter().filter_map(Part::claim).collect();
        if !claimed.is_empty() {
            write(port, node, claimed)?;
        }
        // Others write the rest; what they give back is tried here, for the error.
        if parts.iter().all(|part| matches!(*part.await_rest(), State::Ended)) {
            return Ok(());
        }
    }
}

/// Writes parts of a file together; if that fails, one by one, so that only what the device does
/// not take waits again.
fn write(port: &Port, node: &Node, parts: Vec<Claimed>) -> Result<()> {
    let together = write_batch(port, node, &parts);
    if parts.len() == 1 && together.is_err() {
        return together;
    }
    let mut outcome = Ok(());
    for part in parts {
        let written = match &together {
            Ok(()) => Ok(()),
            Err(_) => write_batch(port, node, std::slice::from_ref(&part)),
        };
        match written {
            Ok(()) => part.end(node),
            Err(error) => outcome = Err(error),
        }
    }
    outcome
}

fn write_batch(port: &Port, node: &Node, parts: &[Claimed]) -> Result<()> {
    let map = node.map();
    let blocks_per_page = PAGE_BYTES / u64::from(port.geometry().block_size_bytes);
    let mut batch = Vec::new();
    for claimed in parts {
        let pages = &claimed.part.pages;
        // A file that is gone, or shorter, gave its pages away.
        if node.is_removed() || pages.end > map.pages() {
            continue;
        }
        let mut rest = claimed.bytes();
        for extent in map.pieces(pages.start, pages.end - pages.start) {
            let (from, later) = rest.split_at((extent.pages * PAGE_BYTES) as usize);
            batch.push(Command::Write { block: extent.first_page * blocks_per_page, from });
            rest = later;
        }
    }
    port.run(&mut batch)
}

/// Copies what is on its way of a range of whole pages; gives the ranges of bytes that are not.
pub(crate) fn copy(node: &Node, into: &mut [u8], offset: u64) -> Vec<Range<u64>> {
    let first = offset / PAGE_BYTES;
    let end = first + into.len() as u64 / PAGE_BYTES;
    let parts = node.late().overlapping(&(first..end));
    let (mut at, mut gaps) = (first, Vec::new());
    for part in parts {
        let Some(bytes) = part.bytes() else { continue };
        let (from, to) = (part.pages.start.max(first), part.pages.end.min(end));
        if at < from {
            gaps.push(at * PAGE_BYTES..from * PAGE_BYTES);
        }
        let own = ((from - part.pages.start) * PAGE_BYTES) as usize;
        let length = ((to - from) * PAGE_BYTES) as usize;
        let place = ((from - first) * PAGE_BYTES) as usize;
        into[place..place + length].copy_from_slice(&bytes.get()[own..own + length]);
        at = to;
    }
    if at < end {
        gaps.push(at * PAGE_BYTES..end * PAGE_BYTES);
    }
    gaps
}

#[derive(Default)]
struct Queue {
    parts: VecDeque<(Arc<Node>, Arc<Part>)>,
    is_closed: bool,
}

struct Shared {
    port: Arc<Port>,
    queue: Mutex<Queue>,
    more: Condvar,
}

/// The writing behind of a volume; its thread begins with the first block and ends when this goes.
pub(crate) struct Behind {
    shared: Arc<Shared>,
    pool: Arc<Pool>,
    pub(super) worker: Worker,
}

impl Behind {
    pub(crate) fn new(port: Arc<Port>, pool: Arc<Pool>) -> Self {
        let shared = Shared { port, queue: Mutex::default(), more: Condvar::new() };
        Behind { shared: Arc::new(shared), pool, worker: Worker::default() }
    }

    /// Takes pages of a file from `first` on, for which the file has room and nothing is on its
    /// way; false if too much is, or the system gives no thread, and the caller has to write them.
    pub(crate) fn take(&self, node: &Arc<Node>, first: u64, from: &[u8]) -> bool {
        if from.len() > PART_BYTES {
            return false;
        }
        let Some(bytes) = self.pool.copy(&self.shared.port, from) else { return false };
        let shared = self.shared.clone();
        if self.worker.start("penstock-behind", move || shared.serve()).is_err() {
            return false;
        }
        let part = Arc::new(Part {
            pages: first..first + from.len() as u64 / PAGE_BYTES,
            state: Mutex::new(State::Waiting(bytes)),
            rested: Condvar::new(),
        });
        node.late().insert(part.clone());
        lock(&self.shared.queue).parts.push_back((node.clone(), part));
        self.shared.more.notify_one();
        true
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        // What was spilled is needed no more; what lasts, the volume has seen to.
        lock(&self.shared.queue).is_closed = true;
        self.shared.more.notify_all();
        self.worker.join();
    }
}

impl Shared {
    fn serve(&self) {
        while let Some((node, parts)) = self.next() {
            // Who needs them written tries again, and tells.
            let _ = write(&self.port, &node, parts);
        }
    }

    /// The next parts, of one file; none when the volume closes.
    fn next(&self) -> Option<(Arc<Node>, Vec<Claimed>)> {
        let mut queue = lock(&self.queue);
        loop {
            if queue.is_closed {
                return None;
            }
            let Some((node, _)) = queue.parts.front() else {
                queue = self.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let node = node.clone();
            let mut claimed = Vec::new();
            while claimed.len() < BATCH
                && queue.parts.front().is_some_and(|row| Arc::ptr_eq(&row.0, &node))
                && let Some((_, part)) = queue.parts.pop_front()
            {
                claimed.extend(part.claim());
            }
            if !claimed.is_empty() {
                return Some((node, claimed));
            }
        }
    }
}

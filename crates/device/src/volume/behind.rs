//! Writing behind for files that spill: their blocks need not be durable, so a writer goes on while
//! a thread of the volume writes, as it does over a page cache. It decides how many bytes may be on
//! their way, who finds them meanwhile, and what becomes of a failure: every later call on the file
//! tells it.

use crate::buffer::AlignedBuffer;
use crate::device::Command;
use crate::port::Port;
use crate::volume::copies::memory;
use crate::volume::node::Node;
use crate::volume::table::PAGE_BYTES;
use crate::volume::thread::Worker;
use penstock_base::{Error, Kind, Result};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Largest write that is taken: a block of DuckDB's. Longer ones keep a device busy themselves.
const PART_BYTES: usize = 256 << 10;
/// Most parts on their way, of all files of a volume.
const PARTS: usize = 64;
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
    ended: Condvar,
}

enum State {
    Waiting(Arc<AlignedBuffer>),
    Writing(Arc<AlignedBuffer>),
    /// Written, or needed no more, or failed; which, the file tells.
    Ended,
}

impl Part {
    fn length(&self) -> usize {
        ((self.pages.end - self.pages.start) * PAGE_BYTES) as usize
    }

    /// The bytes, while they may not be on the device yet.
    fn bytes(&self) -> Option<Arc<AlignedBuffer>> {
        match &*lock(&self.state) {
            State::Waiting(bytes) | State::Writing(bytes) => Some(bytes.clone()),
            State::Ended => None,
        }
    }

    /// Waits until it is written; if nobody needs it any more, only for a write that is under way.
    fn settle(&self, is_needed: bool) {
        let mut state = lock(&self.state);
        if !is_needed && matches!(*state, State::Waiting(_)) {
            *state = State::Ended;
        }
        while !matches!(*state, State::Ended) {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// What of one file is on its way.
#[derive(Default)]
pub(crate) struct Late {
    /// By their first pages; they do not overlap.
    parts: BTreeMap<u64, Arc<Part>>,
    /// Why a part could not be written.
    failure: Option<(Kind, String)>,
}

impl Late {
    fn overlapping(&self, pages: &Range<u64>) -> Vec<Arc<Part>> {
        let before = self.parts.range(..pages.start).next_back().map(|row| row.1);
        let before = before.filter(|part| part.pages.end > pages.start);
        let within = self.parts.range(pages.clone()).map(|row| row.1);
        before.into_iter().chain(within).cloned().collect()
    }

    fn remove(&mut self, part: &Arc<Part>) {
        if self.parts.get(&part.pages.start).is_some_and(|held| Arc::ptr_eq(held, part)) {
            self.parts.remove(&part.pages.start);
        }
    }

    /// The failure of a write that its writer was not told.
    pub(crate) fn check(&self) -> Result<()> {
        let Some((kind, message)) = &self.failure else { return Ok(()) };
        let message = format!("an earlier write failed: {message}");
        Err(Error::new(*kind, message).with_operation("volume write"))
    }
}

/// Sees to it that a range of a file can be written or given away: parts inside it are needed no
/// more, parts that reach beyond it are written first.
pub(crate) fn settle(node: &Node, start: u64, end: u64) {
    end_all(node, start, end, |part| {
        start.div_ceil(PAGE_BYTES) > part.pages.start || part.pages.end > end / PAGE_BYTES
    });
}

/// Waits until all of a range is written.
pub(crate) fn finish(node: &Node, start: u64, end: u64) {
    end_all(node, start, end, |_| true);
}

fn end_all(node: &Node, start: u64, end: u64, is_needed: impl Fn(&Part) -> bool) {
    let parts = node.late().overlapping(&(start / PAGE_BYTES..end.div_ceil(PAGE_BYTES)));
    for part in parts {
        part.settle(is_needed(&part));
        node.late().remove(&part);
    }
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
        into[place..place + length].copy_from_slice(&bytes[own..own + length]);
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
    spares: Vec<AlignedBuffer>,
    /// Parts that wait or are being written.
    count: usize,
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
    worker: Worker,
}

impl Behind {
    pub(crate) fn new(port: Arc<Port>) -> Self {
        let shared = Shared { port, queue: Mutex::default(), more: Condvar::new() };
        Behind { shared: Arc::new(shared), worker: Worker::default() }
    }

    /// Takes pages of a file from `first` on, for which the file has room and [`settle`] was
    /// called; false if too much is on its way, and the caller has to write them.
    ///
    /// # Errors
    /// `Exhausted` where the system gives no thread.
    pub(crate) fn take(&self, node: &Arc<Node>, first: u64, from: &[u8]) -> Result<bool> {
        if from.len() > PART_BYTES {
            return Ok(false);
        }
        let spare = {
            let mut queue = lock(&self.shared.queue);
            if queue.count >= PARTS {
                return Ok(false);
            }
            queue.count += 1;
            queue.spares.pop()
        };
        let shared = self.shared.clone();
        let started = self.worker.start("penstock-behind", move || shared.serve());
        if let Err(error) = started {
            lock(&self.shared.queue).count -= 1;
            return Err(error.with_object(self.shared.port.name()));
        }
        let mut bytes = spare.unwrap_or_else(|| memory(&self.shared.port, PART_BYTES));
        bytes[..from.len()].copy_from_slice(from);
        let part = Arc::new(Part {
            pages: first..first + from.len() as u64 / PAGE_BYTES,
            state: Mutex::new(State::Waiting(Arc::new(bytes))),
            ended: Condvar::new(),
        });
        node.late().parts.insert(first, part.clone());
        lock(&self.shared.queue).parts.push_back((node.clone(), part));
        self.shared.more.notify_one();
        Ok(true)
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        // What was spilled is needed no more.
        lock(&self.shared.queue).is_closed = true;
        self.shared.more.notify_all();
        self.worker.join();
    }
}

/// A part that is being written, and its bytes.
type Begun = (Arc<Part>, Arc<AlignedBuffer>);

impl Shared {
    fn serve(&self) {
        while let Some((node, parts)) = self.next() {
            let outcome = self.write(&node, &parts);
            let mut late = node.late();
            if let Err(error) = outcome {
                late.failure.get_or_insert((error.kind(), error.to_string()));
            }
            for (part, _) in &parts {
                late.remove(part);
            }
            drop(late);
            self.end(parts);
        }
    }

    /// The next parts, of one file; none when the volume closes.
    fn next(&self) -> Option<(Arc<Node>, Vec<Begun>)> {
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
            let mut begun = Vec::new();
            while begun.len() < BATCH
                && queue.parts.front().is_some_and(|row| Arc::ptr_eq(&row.0, &node))
                && let Some((_, part)) = queue.parts.pop_front()
            {
                let mut state = lock(&part.state);
                match &*state {
                    State::Waiting(bytes) => {
                        let bytes = bytes.clone();
                        *state = State::Writing(bytes.clone());
                        drop(state);
                        begun.push((part, bytes));
                    }
                    State::Writing(_) | State::Ended => queue.count -= 1,
                }
            }
            if !begun.is_empty() {
                return Some((node, begun));
            }
        }
    }

    /// Writes parts of a file together.
    fn write(&self, node: &Node, parts: &[Begun]) -> Result<()> {
        let map = node.map();
        let blocks_per_page = PAGE_BYTES / u64::from(self.port.geometry().block_size_bytes);
        let mut batch = Vec::new();
        for (part, bytes) in parts {
            // A file that is gone, or shorter, gave its pages away.
            if node.is_removed() || part.pages.end > map.pages() {
                continue;
            }
            let mut rest = &bytes[..part.length()];
            for extent in map.pieces(part.pages.start, part.pages.end - part.pages.start) {
                let (from, later) = rest.split_at((extent.pages * PAGE_BYTES) as usize);
                batch.push(Command::Write { block: extent.first_page * blocks_per_page, from });
                rest = later;
            }
        }
        self.port.run(&mut batch)
    }

    fn end(&self, parts: Vec<Begun>) {
        let mut queue = lock(&self.queue);
        for (part, bytes) in parts {
            *lock(&part.state) = State::Ended;
            part.ended.notify_all();
            queue.count -= 1;
            // A reader may be copying from it.
            queue.spares.extend(Arc::into_inner(bytes));
        }
    }
}

//! Writing behind: who writes blocks goes on while a thread of the volume writes them, as it does
//! over a page cache. It decides how many bytes may be on their way, who finds them meanwhile, and
//! who writes them: the thread, or whoever needs them written before its turn came.
//!
//! What cannot be written stays in memory, and reads find it there. Who needs it written tries once
//! more and is told why it fails; so a sync never succeeds without it.

mod part;
mod pool;
#[cfg(test)]
mod seam;
mod shelf;
mod spilled;
mod wake;

pub(crate) use part::Late;
pub(crate) use pool::Pool;
pub(crate) use spilled::Spilled;

use crate::device::Command;
use crate::kernel::pages::populate;
use crate::port::Port;
use crate::volume::node::Node;
use crate::volume::table::PAGE_BYTES;
use crate::volume::thread::Worker;
use part::{Claimed, Part};
use penstock_base::Result;
use spilled::{LOOK, Owner};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wake::Wake;

/// Largest write that is taken: a block of DuckDB's. Longer ones keep a device busy themselves.
const PART_BYTES: usize = 256 << 10;
/// Parts of one batch.
const BATCH: usize = 8;

/// What these locks guard is changed in single steps.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sees to it that a range of a file whose bytes nobody keeps can be written or given away: parts
/// inside it are needed no more, parts that reach beyond it are written first.
///
/// # Errors
/// As [`Port::run`], for the latter.
pub(crate) fn settle(port: &Port, node: &Node, start: u64, end: u64) -> Result<()> {
    #[cfg(test)]
    seam::reached("settle");
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
    part.forget();
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
        if parts.iter().all(|part| part.await_end()) {
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
        let here = &mut into[place..place + length];
        populate(here);
        here.copy_from_slice(&bytes.get()[own..own + length]);
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
    /// Of lasting files.
    queue: Mutex<Queue>,
    spilled: Arc<Spilled>,
    wake: Arc<Wake>,
}

/// The writing behind of a volume; its thread begins with the first block and ends when this goes.
pub(crate) struct Behind {
    shared: Arc<Shared>,
    pool: Arc<Pool>,
    pub(super) worker: Worker,
}

impl Behind {
    pub(crate) fn new(port: Arc<Port>, pool: Arc<Pool>, spilled: Arc<Spilled>) -> Self {
        let wake = spilled.wake().clone();
        let shared = Shared { port, queue: Mutex::default(), spilled, wake };
        Behind { shared: Arc::new(shared), pool, worker: Worker::default() }
    }

    /// Takes pages of a file from `first` on, for which the file has room and nothing is on its
    /// way; false if too much is, or the system gives no thread, and the caller has to write them.
    pub(crate) fn take(&self, node: &Arc<Node>, first: u64, from: &[u8]) -> bool {
        if from.len() > PART_BYTES {
            return false;
        }
        let Shared { port, spilled, wake, .. } = &*self.shared;
        let bytes = match node.is_temp() {
            true => spilled.copy(port, from),
            false => self.pool.copy(port, from),
        };
        let Some(bytes) = bytes else { return false };
        let shared = self.shared.clone();
        if self.worker.start("penstock-behind", move || shared.serve()).is_err() {
            return false;
        }
        if node.is_temp() {
            let part = Part::new(first, from.len(), bytes.clone());
            // Before others can find it, and end it: its memory may be somebody else's then.
            spilled.fill(&bytes, (Arc::downgrade(node), Arc::downgrade(&part)));
            drop(bytes);
            node.late().insert(part.clone());
            if part.bytes().is_none() {
                node.late().remove(&part);
            }
            return true;
        }
        let part = Part::new(first, from.len(), bytes);
        node.late().insert(part.clone());
        lock(&self.shared.queue).parts.push_back((node.clone(), part));
        wake.ring();
        true
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        // What was spilled is needed no more; what lasts, the volume has seen to.
        lock(&self.shared.queue).is_closed = true;
        self.shared.wake.ring();
        self.worker.join();
    }
}

/// What the thread does next.
enum Work {
    Lasting(Arc<Node>, Vec<Claimed>),
    Spilled(usize, Vec<Owner>),
    Nothing,
    End,
}

impl Shared {
    fn serve(&self) {
        // After a failure what was spilled waits for somebody who comes, or a while.
        let mut is_tired = false;
        loop {
            let seen = self.wake.seen();
            match self.next(is_tired) {
                // Who needs them written tries again, and tells.
                Work::Lasting(node, parts) => drop(write(&self.port, &node, parts)),
                Work::Spilled(page, owners) => {
                    let is_written = self.write_spilled(owners);
                    self.spilled.written(page, is_written);
                    is_tired = !is_written;
                }
                Work::Nothing => {
                    self.wake.wait(seen, self.spilled.look().then_some(LOOK));
                    is_tired = false;
                }
                Work::End => return,
            }
        }
    }

    fn next(&self, is_tired: bool) -> Work {
        let mut queue = lock(&self.queue);
        if queue.is_closed {
            return Work::End;
        }
        while let Some((node, _)) = queue.parts.front() {
            let node = node.clone();
            let mut claimed = Vec::new();
            while claimed.len() < BATCH
                && queue.parts.front().is_some_and(|row| Arc::ptr_eq(&row.0, &node))
                && let Some((_, part)) = queue.parts.pop_front()
            {
                claimed.extend(part.claim());
            }
            if !claimed.is_empty() {
                return Work::Lasting(node, claimed);
            }
        }
        drop(queue);
        match if is_tired { None } else { self.spilled.next() } {
            Some((page, owners)) => Work::Spilled(page, owners),
            None => Work::Nothing,
        }
    }

    /// Writes what lies in a page of memory; whether all of it is on the device.
    fn write_spilled(&self, owners: Vec<Owner>) -> bool {
        let mut files: Vec<(Arc<Node>, Vec<Arc<Part>>)> = Vec::new();
        for (node, part) in owners {
            let (Some(node), Some(part)) = (node.upgrade(), part.upgrade()) else { continue };
            match files.iter_mut().find(|row| Arc::ptr_eq(&row.0, &node)) {
                Some((_, parts)) => parts.push(part),
                None => files.push((node, vec![part])),
            }
        }
        // All of them are tried: what the device takes has its memory free.
        let refused = files.iter().filter(|row| write_all(&self.port, &row.0, &row.1).is_err());
        refused.count() == 0
    }
}

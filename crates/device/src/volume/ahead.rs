//! Reading ahead in files that are read in order: what comes next is fetched while the caller
//! computes, as the page cache does for files of a file system. It decides what is fetched into how
//! much memory; when a read is in order is told by the history.
//!
//! A thread of its own reads, by a queue of its own: batches block, here as everywhere. What is
//! fetched is dropped when the file changes there, so a read gives what the last write left.

mod history;
mod kept;
mod window;
mod worth;

pub(crate) use kept::Kept;
pub(crate) use window::Window;

use crate::device::Command;
use crate::kernel::pages::populate;
use crate::kernel::slept::sleeps;
use crate::port::Port;
use crate::volume::account::{Held, Purpose, Source};
use crate::volume::behind;
use crate::volume::node::Node;
use crate::volume::table::PAGE_BYTES;
use crate::volume::thread::Worker;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use worth::Worth;

/// Bytes that are fetched and dropped together: a block of DuckDB's.
pub(crate) const PIECE_BYTES: u64 = 256 << 10;
/// Most that a file is fetched ahead of its reader.
pub(crate) const AHEAD_BYTES: u64 = 8 << 20;
/// Most pieces of a file that are held.
pub(crate) const PIECES: usize = 96;
/// Pieces of one batch: enough commands in flight, and the first is not kept waiting for long.
const BATCH: usize = 4;

/// A part of a file that is fetched.
pub(crate) struct Piece {
    pub range: Range<u64>,
    state: Mutex<State>,
    arrived: Condvar,
}

enum State {
    /// Nobody reads it yet.
    Asked,
    Coming,
    Here(Held),
    /// It has to be read directly: that tells why it could not be fetched.
    Gone,
}

impl State {
    /// Takes the memory out, if it is here.
    fn take(&mut self) -> Option<Held> {
        match std::mem::replace(self, State::Gone) {
            State::Here(bytes) => Some(bytes),
            other => {
                *self = other;
                None
            }
        }
    }
}

/// What these locks guard is changed in single steps.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Piece {
    pub(crate) fn new(range: Range<u64>) -> Arc<Self> {
        let (state, arrived) = (Mutex::new(State::Asked), Condvar::new());
        Arc::new(Piece { range, state, arrived })
    }

    /// Gives the bytes from `offset` on, which lie inside; waits for those that are coming. False
    /// if the caller is better off reading them itself.
    pub(crate) fn give(&self, offset: u64, into: &mut [u8]) -> bool {
        let mut state = lock(&self.state);
        while matches!(*state, State::Coming) {
            state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        match &*state {
            State::Here(bytes) => {
                let from = (offset - self.range.start) as usize;
                populate(into);
                into.copy_from_slice(&bytes[from..from + into.len()]);
                true
            }
            State::Asked | State::Coming | State::Gone => {
                *state = State::Gone;
                false
            }
        }
    }

    /// Whether it can be dropped without somebody waiting for it.
    pub(crate) fn is_idle(&self) -> bool {
        !matches!(*lock(&self.state), State::Coming)
    }

    fn begin(&self) -> bool {
        let mut state = lock(&self.state);
        let is_asked = matches!(*state, State::Asked);
        if is_asked {
            *state = State::Coming;
        }
        is_asked
    }

    fn end(&self, state: State) {
        *lock(&self.state) = state;
        self.arrived.notify_all();
    }

    /// Nobody fetches it any more. Who took its memory out meanwhile told nobody.
    fn abandon(&self) {
        let mut state = lock(&self.state);
        if matches!(*state, State::Coming) {
            *state = State::Gone;
        }
        self.arrived.notify_all();
    }

    /// Takes the memory out; whoever still comes for it reads himself.
    fn empty(&self) -> Option<Held> {
        let mut state = lock(&self.state);
        let bytes = state.take();
        *state = State::Gone;
        bytes
    }
}

/// Pieces that are being fetched: where their thread panics, their readers read them themselves.
struct Coming<'a>(&'a [Arc<Piece>]);

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|piece| piece.abandon());
    }
}

/// What the reading thread is asked for.
#[derive(Default)]
struct Asked {
    pieces: VecDeque<(Arc<Node>, Arc<Piece>)>,
    worth: Worth,
    is_closed: bool,
}

struct Shared {
    port: Arc<Port>,
    source: Arc<Source>,
    kept: Arc<Kept>,
    asked: Mutex<Asked>,
    more: Condvar,
}

/// The read-ahead of a volume; its thread begins with the first piece and ends when this goes.
pub(crate) struct Ahead {
    shared: Arc<Shared>,
    pub(super) worker: Worker,
}

impl Ahead {
    pub(crate) fn new(port: Arc<Port>, source: Arc<Source>, kept: Arc<Kept>) -> Self {
        let (asked, more) = (Mutex::default(), Condvar::new());
        let shared = Shared { port, source, kept, asked, more };
        Ahead { shared: Arc::new(shared), worker: Worker::default() }
    }

    /// Has pieces of a file fetched. Where the system gives no thread for it, or the device has
    /// shown that it is not worth it, nobody fetches them, and their readers read them themselves.
    pub(crate) fn ask(&self, node: &Arc<Node>, pieces: Vec<Arc<Piece>>) {
        if pieces.is_empty() {
            return;
        }
        let shared = self.shared.clone();
        if self.worker.start("penstock-ahead", move || shared.serve()).is_err() {
            return;
        }
        let mut asked = lock(&self.shared.asked);
        if asked.worth.is_wanted(pieces.len()) {
            asked.pieces.extend(pieces.into_iter().map(|piece| (node.clone(), piece)));
            drop(asked);
            self.shared.more.notify_one();
        }
    }

    /// Keeps the memory of pieces that are needed no more.
    pub(crate) fn recycle(&self, pieces: Vec<Arc<Piece>>) {
        if pieces.is_empty() {
            // Nearly every write and many reads: not worth the lock that all files share.
            return;
        }
        self.shared.kept.keep(pieces.iter().filter_map(|piece| piece.empty()));
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        lock(&self.shared.asked).is_closed = true;
        self.shared.more.notify_all();
        self.worker.join();
    }
}

impl Shared {
    fn serve(&self) {
        while let Some((node, pieces)) = self.next() {
            self.fetch(&node, &pieces);
        }
    }

    /// The next pieces, of one file; none when the volume closes.
    fn next(&self) -> Option<(Arc<Node>, Vec<Arc<Piece>>)> {
        let mut asked = lock(&self.asked);
        loop {
            if asked.is_closed {
                return None;
            }
            let Some((node, _)) = asked.pieces.front() else {
                asked = self.more.wait(asked).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let node = node.clone();
            let mut pieces = Vec::new();
            while pieces.len() < BATCH {
                let is_same = |row: &(Arc<Node>, Arc<Piece>)| Arc::ptr_eq(&row.0, &node);
                if !asked.pieces.front().is_some_and(is_same) {
                    break;
                }
                let Some((_, piece)) = asked.pieces.pop_front() else { break };
                if piece.begin() {
                    pieces.push(piece);
                }
            }
            if !pieces.is_empty() {
                return Some((node, pieces));
            }
        }
    }

    /// Memory for so many pieces, or for as many as may be held.
    fn buffers(&self, count: usize) -> Vec<Held> {
        let mut buffers = self.kept.buffers(count);
        while buffers.len() < count {
            let mut more = self.source.get(&self.port, PIECE_BYTES as usize, Purpose::Ahead);
            if more.is_empty() {
                break;
            }
            let surplus = more.split_off(more.len().min(count - buffers.len()));
            self.kept.keep(surplus.into_iter());
            buffers.append(&mut more);
        }
        buffers
    }

    /// Reads of the device, and notes whether it let this thread sleep.
    fn run(&self, batch: &mut [Command<'_>]) -> bool {
        let before = self.port.lets_sleep().then(sleeps).flatten();
        let is_read = self.port.run(batch).is_ok();
        if is_read
            && let Some(before) = before
            && let Some(after) = sleeps()
        {
            lock(&self.asked).worth.note(after > before);
        }
        is_read
    }

    /// Reads pieces together, those for which there is memory.
    fn fetch(&self, node: &Node, pieces: &[Arc<Piece>]) {
        let _coming = Coming(pieces);
        let geometry = self.port.geometry();
        let mut buffers = self.buffers(pieces.len());
        let (pieces, refused) = pieces.split_at(buffers.len());
        refused.iter().for_each(|piece| piece.end(State::Gone));
        if pieces.is_empty() {
            // Nothing is asked of the device, which tells nothing of it.
            return;
        }
        // What is on its way there is newer than what the device has.
        let finish = |piece: &Arc<Piece>| {
            behind::finish(&self.port, node, piece.range.start, piece.range.end).is_ok()
        };
        let is_read = pieces.iter().all(finish) && {
            let map = node.map();
            let blocks_per_page = PAGE_BYTES / u64::from(geometry.block_size_bytes);
            let mut batch = Vec::new();
            let mut is_there = true;
            for (piece, buffer) in pieces.iter().zip(&mut buffers) {
                let first = piece.range.start / PAGE_BYTES;
                let end = piece.range.end / PAGE_BYTES;
                // A file that was made shorter meanwhile gave its pages away.
                is_there &= end <= map.pages() && !node.is_removed();
                let mut rest = &mut buffer[..((end - first) * PAGE_BYTES) as usize];
                for extent in map.pieces(first, end - first) {
                    let length = (extent.pages * PAGE_BYTES) as usize;
                    let (into, later) = rest.split_at_mut(length);
                    batch.push(Command::Read { block: extent.first_page * blocks_per_page, into });
                    rest = later;
                }
            }
            is_there && self.run(&mut batch)
        };
        for (piece, buffer) in pieces.iter().zip(buffers) {
            piece.end(if is_read { State::Here(buffer) } else { State::Gone });
        }
        if is_read {
            self.kept.note(pieces);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn nobody_waits_for_a_thread_that_panicked() {
        let pieces: Vec<Arc<Piece>> = (0..3).map(|at| Piece::new(at..at + 1)).collect();
        assert!(pieces[..2].iter().all(|piece| piece.begin()));
        let fetched = catch_unwind(AssertUnwindSafe(|| {
            let _coming = Coming(&pieces);
            pieces[0].end(State::Gone);
            panic!("as a defect of a device would");
        }));
        assert!(fetched.is_err());
        assert!(pieces[..2].iter().all(|piece| piece.is_idle() && !piece.give(0, &mut [])));
        assert!(pieces[2].begin(), "one that nobody had begun is still to be fetched");
    }
}

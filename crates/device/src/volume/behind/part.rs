//! Pages of a file that are in memory and may not be on the device yet. It decides who writes them:
//! one at a time, and whoever comes first.

use super::lock;
use super::pool::Bytes;
use crate::volume::node::Node;
use crate::volume::table::PAGE_BYTES;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Some pages of a file on their way to the device.
pub(super) struct Part {
    pub pages: Range<u64>,
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
pub(super) struct Claimed {
    pub part: Arc<Part>,
    bytes: Option<Arc<Bytes>>,
}

impl Claimed {
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_deref().expect("they are there until the end").get()
    }

    /// It is on the device, or nobody needs it.
    pub fn end(mut self, node: &Node) {
        // Before it ends: who awaits that enters others, of which it may hide one.
        node.late().remove(&self.part);
        #[cfg(test)]
        super::seam::reached("ended");
        self.bytes = None;
        self.part.rest(State::Ended);
        // Who took it in may have entered it only now, and have seen it not ended yet.
        node.late().remove(&self.part);
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
    pub fn new(first: u64, length: usize, bytes: Arc<Bytes>) -> Arc<Self> {
        let pages = first..first + length as u64 / PAGE_BYTES;
        Arc::new(Part { pages, state: Mutex::new(State::Waiting(bytes)), rested: Condvar::new() })
    }

    /// The bytes, while they may not be on the device yet.
    pub fn bytes(&self) -> Option<Arc<Bytes>> {
        match &*lock(&self.state) {
            State::Waiting(bytes) | State::Writing(bytes) => Some(bytes.clone()),
            State::Ended => None,
        }
    }

    /// Takes it to write it, if it waits for somebody who does.
    pub fn claim(self: &Arc<Self>) -> Option<Claimed> {
        let mut state = lock(&self.state);
        let State::Waiting(bytes) = &*state else { return None };
        let bytes = bytes.clone();
        *state = State::Writing(bytes.clone());
        Some(Claimed { part: self.clone(), bytes: Some(bytes) })
    }

    fn rest(&self, state: State) {
        let before = std::mem::replace(&mut *lock(&self.state), state);
        drop(before);
        self.rested.notify_all();
    }

    /// Waits until nobody writes it; whether it is on the device then, or needed no more.
    pub fn await_end(&self) -> bool {
        matches!(*self.await_rest(), State::Ended)
    }

    /// Says that nobody needs it, once nobody writes it.
    pub fn forget(&self) {
        // The lock first: memory goes back to others who may have to wait for it.
        let before = std::mem::replace(&mut *self.await_rest(), State::Ended);
        drop(before);
    }

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

    pub(super) fn overlapping(&self, pages: &Range<u64>) -> Vec<Arc<Part>> {
        if self.is_empty() {
            return Vec::new();
        }
        let parts = lock(&self.parts);
        let before = parts.range(..pages.start).next_back().map(|row| row.1);
        let before = before.filter(|part| part.pages.end > pages.start);
        let within = parts.range(pages.clone()).map(|row| row.1);
        before.into_iter().chain(within).cloned().collect()
    }

    pub(super) fn insert(&self, part: Arc<Part>) {
        let mut parts = lock(&self.parts);
        parts.insert(part.pages.start, part);
        self.is_any.store(true, Ordering::Release);
    }

    pub(super) fn remove(&self, part: &Arc<Part>) {
        let mut parts = lock(&self.parts);
        if parts.get(&part.pages.start).is_some_and(|held| Arc::ptr_eq(held, part)) {
            parts.remove(&part.pages.start);
        }
        self.is_any.store(!parts.is_empty(), Ordering::Release);
    }
}

//! The memory limit: one account for uploads, read-ahead and buffered objects together.
//!
//! Decides who may hold how much; allocates nothing. Rules:
//!
//! 1. Memory is given first come, first served, while the total stays within the limit.
//! 2. A holder that will give its memory back without anybody's help (a part on its way to the
//!    store) says so: that memory is *returning*. While an eighth of the limit is, a waiter just
//!    waits.
//! 3. Where less is returning, waiting could be slow or last forever: the waiter's own thread may
//!    be the one that would fill the other buffers. Then the budget presses the registered
//!    [`Pressable`]s, largest first, to begin returning what they hold (a partly filled part that
//!    has the store's smallest part size is sent early; what was read ahead is dropped). What they
//!    drop and a task still has is returning until the task is gone.
//! 4. A holder that another thread has locked for a moment is *busy*: what it can return is not
//!    known, so the first waiter looks again.
//! 5. Where none of them can, none is busy and nothing is returning, the first waiter gets its
//!    memory beyond the limit. A waiter that asked for memory within the limit is refused instead.
//!    What can be pressed then holds nothing but parts below the store's smallest size; what is
//!    left is in the hands of running reads, or was taken by [`Budget::lease_now`], and the gauge
//!    shows it.

mod machine;
mod spills;
mod volumes;

pub(crate) use machine::Memory as Machine;

use crate::waits::{For, waiting};
use futures_util::future::{Either, select};
use penstock_base::{Metric, Metrics};
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{Notify, oneshot};

/// What is fetched ahead of reads, all of it together, has one part in so many of the limit; what a
/// read waits for is not counted.
pub(crate) const AHEAD_PARTS: u64 = 4;

/// Someone who holds memory and can begin to return it. Neither verb waits for a lock: whoever
/// gives memory back may have that lock.
pub(crate) trait Pressable: Send + Sync {
    /// Bytes that [`Pressable::press`] would set returning; 0 if it can do nothing now, `None`
    /// while it is busy.
    fn returnable_bytes(&self) -> Option<u64>;

    /// Gives back what it holds, or sets it returning.
    fn press(&self) -> Pressed;

    /// Whether that is what was fetched ahead of reads: nobody waits for it.
    fn is_ahead(&self) -> bool {
        false
    }
}

/// What came of pressing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pressed {
    /// Something is back, or returning.
    Gave,
    /// There is nothing to give.
    Nothing,
    /// Another thread is at it and will soon be done.
    Busy,
}

impl Pressed {
    /// Of one that was not busy.
    pub fn gave(something: bool) -> Self {
        if something { Pressed::Gave } else { Pressed::Nothing }
    }
}

/// The account.
pub struct Budget {
    state: Mutex<State>,
    metrics: Arc<Metrics>,
    spilled: spills::Share,
}

struct State {
    limit: u64,
    held: u64,
    returning: u64,
    /// Held for what was fetched ahead of reads.
    ahead: u64,
    waiters: VecDeque<Waiter>,
    pressables: Vec<Weak<dyn Pressable>>,
}

struct Waiter {
    bytes: u64,
    /// Whether it is refused where others get memory beyond the limit.
    is_within: bool,
    grant: oneshot::Sender<Option<Lease>>,
    /// Told when a holder was busy.
    again: Arc<Notify>,
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.lock();
        f.debug_struct("Budget")
            .field("limit", &state.limit)
            .field("held", &state.held)
            .field("returning", &state.returning)
            .field("waiters", &state.waiters.len())
            .finish()
    }
}

/// The right to hold so many bytes; dropping it gives them back.
pub(crate) struct Lease {
    budget: Arc<Budget>,
    bytes: u64,
    returning: AtomicBool,
    is_ahead: AtomicBool,
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lease({})", self.bytes)
    }
}

impl Lease {
    /// So many.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Says that these bytes come back without anybody's help.
    pub fn set_returning(&self) {
        // Flag and sum change together, or who takes it back at this moment would do so first.
        let mut state = self.budget.lock();
        if !self.returning.swap(true, Ordering::Relaxed) {
            state.returning += self.bytes;
        }
    }

    /// Says that a read waits for these bytes: they are not ahead any more.
    pub fn set_wanted(&self) {
        if self.is_ahead.swap(false, Ordering::Relaxed) {
            self.budget.lock().ahead -= self.bytes;
        }
    }

    /// Makes another one, of the same account, part of this one. Neither may be returning.
    pub fn join(&mut self, mut other: Lease) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Gives back what is held beyond so many bytes. It may not be returning.
    pub fn shrink(&mut self, bytes: u64) {
        let surplus = self.bytes.saturating_sub(bytes);
        self.bytes -= surplus;
        let budget = Arc::clone(&self.budget);
        let is_ahead = AtomicBool::new(*self.is_ahead.get_mut());
        drop(Lease { budget, bytes: surplus, returning: AtomicBool::new(false), is_ahead });
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.budget.lock();
        state.held -= self.bytes;
        if *self.is_ahead.get_mut() {
            state.ahead -= self.bytes;
        }
        if *self.returning.get_mut() {
            state.returning -= self.bytes;
        }
        self.budget.metrics.sub(Metric::MemoryHeldNow, self.bytes);
        self.budget.settle(state);
    }
}

impl Budget {
    pub(crate) fn new(limit_bytes: u64, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Budget {
            state: Mutex::new(State {
                limit: limit_bytes,
                held: 0,
                returning: 0,
                ahead: 0,
                waiters: VecDeque::new(),
                pressables: Vec::new(),
            }),
            metrics,
            spilled: spills::Share::default(),
        })
    }

    /// Bytes held now.
    pub fn held_bytes(&self) -> u64 {
        self.lock().held
    }

    /// The limit.
    pub fn limit_bytes(&self) -> u64 {
        self.lock().limit
    }

    /// Changes the limit. What is held above a lower one comes back as its holders give it; those
    /// who wait are judged again by the rules, so none of them waits for memory that never returns.
    pub(crate) fn set_limit(self: &Arc<Self>, limit_bytes: u64) {
        let mut state = self.lock();
        state.limit = limit_bytes;
        self.settle(state);
    }

    /// Changes how much of what is spilled to devices may be in memory beside the limit.
    pub(crate) fn set_spills_beside(&self, bytes: u64) {
        self.spilled.set_beside_most(bytes);
    }

    /// Registers a holder that can be pressed; it is forgotten once dropped.
    pub(crate) fn register(&self, pressable: Weak<dyn Pressable>) {
        let mut state = self.lock();
        state.pressables.retain(|known| known.strong_count() > 0);
        state.pressables.push(pressable);
    }

    /// Waits for memory, by the rules above. Dropping the future leaves the queue.
    pub(crate) async fn lease(self: &Arc<Self>, bytes: u64) -> Lease {
        self.wait(bytes, false).await.expect("only who asked for it within the limit is refused")
    }

    /// As [`Budget::lease`], but `None` instead of memory beyond the limit.
    pub(crate) async fn lease_within(self: &Arc<Self>, bytes: u64) -> Option<Lease> {
        self.wait(bytes, true).await
    }

    async fn wait(self: &Arc<Self>, bytes: u64, is_within: bool) -> Option<Lease> {
        // Dropped last, when this waiter has left the queue.
        let _leaving;
        let again = Arc::new(Notify::new());
        let mut granted = {
            let mut state = self.lock();
            if state.waiters.is_empty() && state.fits(bytes) {
                return Some(self.grant(&mut state, bytes));
            }
            let (grant, granted) = oneshot::channel();
            state.waiters.push_back(Waiter { bytes, is_within, grant, again: Arc::clone(&again) });
            self.settle(state);
            granted
        };
        _leaving = Leaving(self);
        loop {
            let again = pin!(again.notified());
            let answer = waiting(For::Memory, pin!(select(&mut granted, again))).await;
            match answer {
                Either::Left((answer, _)) => {
                    return answer.expect("a waiter leaves the queue only with its answer");
                }
                Either::Right(_) => {
                    // Who is busy may need this thread.
                    tokio::task::yield_now().await;
                    self.settle(self.lock());
                }
            }
        }
    }

    /// Memory if it is free and nobody waits: for what is useful but not needed.
    pub(crate) fn try_lease(self: &Arc<Self>, bytes: u64) -> Option<Lease> {
        let mut state = self.lock();
        let free = state.waiters.is_empty() && state.fits(bytes);
        free.then(|| self.grant(&mut state, bytes))
    }

    /// As [`Budget::try_lease`], for what is fetched ahead of reads: see [`AHEAD_PARTS`].
    pub(crate) fn try_lease_ahead(self: &Arc<Self>, bytes: u64) -> Option<Lease> {
        let mut state = self.lock();
        let ahead = state.ahead.saturating_add(bytes);
        if !state.waiters.is_empty() || !state.fits(bytes) || ahead > state.limit / AHEAD_PARTS {
            return None;
        }
        state.ahead = ahead;
        let lease = self.grant(&mut state, bytes);
        lease.is_ahead.store(true, Ordering::Relaxed);
        Some(lease)
    }

    /// How much [`Budget::try_lease_ahead`] would give now.
    pub(crate) fn free_ahead_bytes(&self) -> u64 {
        let state = self.lock();
        if !state.waiters.is_empty() {
            return 0;
        }
        let free = state.limit.saturating_sub(state.held);
        free.min((state.limit / AHEAD_PARTS).saturating_sub(state.ahead))
    }

    /// Memory at once, limit or not: for small amounts that are bounded by their holder. Where
    /// something is fetched ahead of reads, room is made for it.
    pub(crate) fn lease_now(self: &Arc<Self>, bytes: u64) -> Lease {
        let mut state = self.lock();
        let lease = self.grant(&mut state, bytes);
        while !state.fits(0) {
            let pressables = state.pressables.clone();
            drop(state);
            if press_largest(&pressables, |holder| holder.is_ahead()) != Pressed::Gave {
                break;
            }
            state = self.lock();
        }
        lease
    }

    fn grant(self: &Arc<Self>, state: &mut State, bytes: u64) -> Lease {
        state.held += bytes;
        self.metrics.add(Metric::MemoryHeldNow, bytes);
        let returning = AtomicBool::new(false);
        Lease { budget: Arc::clone(self), bytes, returning, is_ahead: AtomicBool::new(false) }
    }

    /// Serves waiters until the first one has to wait for memory that is returning.
    fn settle<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>) {
        loop {
            while state.waiters.front().is_some_and(|first| first.grant.is_closed()) {
                state.waiters.pop_front();
            }
            let Some(bytes) = state.waiters.front().map(|first| first.bytes) else { return };
            if !state.fits(bytes) {
                if state.returning >= bytes.max(state.limit / 8) {
                    return;
                }
                let pressables = state.pressables.clone();
                // A pressed holder locks itself and then this account; never the other way round.
                drop(state);
                let pressed = press_largest(&pressables, |_| true);
                state = self.lock();
                if pressed == Pressed::Gave || state.fits(bytes) {
                    continue;
                }
                if state.returning > 0 {
                    return;
                }
                if pressed == Pressed::Busy {
                    if let Some(first) = state.waiters.front() {
                        first.again.notify_one();
                    }
                    return;
                }
            }
            if let Some(waiter) = state.waiters.pop_front() {
                let is_granted = state.fits(waiter.bytes) || !waiter.is_within;
                let lease = is_granted.then(|| self.grant(&mut state, waiter.bytes));
                let refused = waiter.grant.send(lease);
                // The waiter left meanwhile; its lease must not be dropped under the lock.
                drop(state);
                drop(refused);
                state = self.lock();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn fits(&self, bytes: u64) -> bool {
        self.held.saturating_add(bytes) <= self.limit
    }
}

/// A waiter that leaves has those looked after that stand behind it: it may have been the one that
/// was to look again.
struct Leaving<'a>(&'a Arc<Budget>);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.settle(self.0.lock());
    }
}

/// Presses the holder of those that can return most, or the next one.
fn press_largest(
    pressables: &[Weak<dyn Pressable>],
    is_one: impl Fn(&dyn Pressable) -> bool,
) -> Pressed {
    let mut able: Vec<(u64, Arc<dyn Pressable>)> = Vec::new();
    let mut otherwise = Pressed::Nothing;
    for holder in pressables.iter().filter_map(Weak::upgrade) {
        if !is_one(&*holder) {
            continue;
        }
        match holder.returnable_bytes() {
            Some(0) => {}
            Some(bytes) => able.push((bytes, holder)),
            None => otherwise = Pressed::Busy,
        }
    }
    able.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    for (_, holder) in able {
        match holder.press() {
            Pressed::Gave => return Pressed::Gave,
            Pressed::Nothing => {}
            Pressed::Busy => otherwise = Pressed::Busy,
        }
    }
    otherwise
}

#[cfg(test)]
mod tests;

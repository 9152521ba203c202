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
//!    has the store's smallest part size is sent early; what was read ahead is dropped).
//! 4. Where none of them can and nothing is returning, the first waiter gets its memory beyond the
//!    limit. This happens only when every open upload holds less than the store's smallest part;
//!    the excess is at most that size times the open uploads, and the gauge shows it. A waiter that
//!    asked for memory within the limit is refused instead.

use penstock_base::{Metric, Metrics};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::oneshot;

/// Someone who holds memory and can begin to return it.
pub(crate) trait Pressable: Send + Sync {
    /// Bytes that [`Pressable::press`] would set returning; 0 if it can do nothing now.
    fn returnable_bytes(&self) -> u64;

    /// Sets what it holds returning; false if that is no longer possible.
    fn press(&self) -> bool;
}

/// The account.
pub struct Budget {
    state: Mutex<State>,
    metrics: Arc<Metrics>,
}

struct State {
    limit: u64,
    held: u64,
    returning: u64,
    waiters: VecDeque<Waiter>,
    pressables: Vec<Weak<dyn Pressable>>,
}

struct Waiter {
    bytes: u64,
    /// Whether it is refused where others get memory beyond the limit.
    is_within: bool,
    grant: oneshot::Sender<Option<Lease>>,
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
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lease({})", self.bytes)
    }
}

impl Lease {
    /// Says that these bytes come back without anybody's help.
    pub fn set_returning(&self) {
        if !self.returning.swap(true, Ordering::Relaxed) {
            self.budget.lock().returning += self.bytes;
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
        drop(Lease { budget, bytes: surplus, returning: AtomicBool::new(false) });
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.budget.lock();
        state.held -= self.bytes;
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
                waiters: VecDeque::new(),
                pressables: Vec::new(),
            }),
            metrics,
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
        let granted = {
            let mut state = self.lock();
            if state.waiters.is_empty() && state.fits(bytes) {
                return Some(self.grant(&mut state, bytes));
            }
            let (grant, granted) = oneshot::channel();
            state.waiters.push_back(Waiter { bytes, is_within, grant });
            self.settle(state);
            granted
        };
        granted.await.expect("a waiter leaves the queue only with its answer")
    }

    /// Memory if it is free and nobody waits: for what is useful but not needed.
    pub(crate) fn try_lease(self: &Arc<Self>, bytes: u64) -> Option<Lease> {
        let mut state = self.lock();
        let free = state.waiters.is_empty() && state.fits(bytes);
        free.then(|| self.grant(&mut state, bytes))
    }

    /// Memory at once, limit or not: for small amounts that are bounded by their holder.
    pub(crate) fn lease_now(self: &Arc<Self>, bytes: u64) -> Lease {
        let mut state = self.lock();
        self.grant(&mut state, bytes)
    }

    fn grant(self: &Arc<Self>, state: &mut State, bytes: u64) -> Lease {
        state.held += bytes;
        self.metrics.add(Metric::MemoryHeldNow, bytes);
        Lease { budget: Arc::clone(self), bytes, returning: AtomicBool::new(false) }
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
                let pressed = press_largest(&pressables);
                state = self.lock();
                if pressed || state.fits(bytes) {
                    continue;
                }
                if state.returning > 0 {
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

/// Presses the holder that can return most.
fn press_largest(pressables: &[Weak<dyn Pressable>]) -> bool {
    let mut able: Vec<(u64, Arc<dyn Pressable>)> = pressables
        .iter()
        .filter_map(Weak::upgrade)
        .map(|holder| (holder.returnable_bytes(), holder))
        .filter(|(bytes, _)| *bytes > 0)
        .collect();
    able.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    able.iter().any(|(_, holder)| holder.press())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waiting::serve;
    use futures_util::poll;
    use proptest::prelude::*;
    use std::sync::atomic::AtomicU64;

    fn budget(limit: u64) -> Arc<Budget> {
        Budget::new(limit, Arc::default())
    }

    /// Holds leases that it can drop when pressed.
    struct Holder(Mutex<Vec<Lease>>, AtomicU64);

    impl Pressable for Holder {
        fn returnable_bytes(&self) -> u64 {
            self.0.lock().unwrap().iter().map(|lease| lease.bytes).sum()
        }

        fn press(&self) -> bool {
            self.1.fetch_add(1, Ordering::Relaxed);
            let leases = std::mem::take(&mut *self.0.lock().unwrap());
            !leases.is_empty()
        }
    }

    #[tokio::test]
    async fn waiters_are_served_in_turn_as_memory_comes_back() {
        let budget = budget(20);
        let first = budget.lease(10).await;
        first.set_returning();
        // As long as this is on its way, nobody gets more than the limit.
        let other = budget.lease(10).await;
        other.set_returning();
        let mut second = Box::pin(budget.lease(8));
        let mut third = Box::pin(budget.lease(1));
        let mut fourth = Box::pin(budget.lease(2));
        assert!(poll!(&mut second).is_pending());
        // It would fit as soon as any memory is back, but waits its turn.
        assert!(poll!(&mut third).is_pending());
        assert!(poll!(&mut fourth).is_pending());
        drop(first);
        let second = second.await;
        let third = third.await;
        assert!(poll!(&mut fourth).is_pending(), "8 + 1 + 2 is too much");
        drop(second);
        fourth.await;
        drop(third);
        drop(other);
        assert_eq!(budget.held_bytes(), 0);
    }

    #[tokio::test]
    async fn the_largest_holder_is_pressed_when_nothing_comes_back() {
        let budget = budget(10);
        let small = Arc::new(Holder(Mutex::new(vec![budget.lease(3).await]), AtomicU64::new(0)));
        let large = Arc::new(Holder(Mutex::new(vec![budget.lease(7).await]), AtomicU64::new(0)));
        for holder in [&small, &large] {
            let weak: Weak<dyn Pressable> = Arc::downgrade(holder) as Weak<_>;
            budget.register(weak);
        }
        let lease = budget.lease(5).await;
        assert_eq!(budget.held_bytes(), 8);
        assert_eq!(small.1.load(Ordering::Relaxed), 0);
        drop(lease);
    }

    #[tokio::test]
    async fn memory_within_the_limit_is_refused_where_nobody_can_give_any() {
        let budget = budget(10);
        let mut lease = budget.lease_within(4).await.unwrap();
        lease.join(budget.lease_within(4).await.unwrap());
        assert!(budget.lease_within(3).await.is_none());
        lease.shrink(5);
        let other = budget.lease_within(5).await.unwrap();
        assert_eq!(budget.held_bytes(), 10);
        other.set_returning();
        let mut waiting = Box::pin(budget.lease_within(2));
        assert!(poll!(&mut waiting).is_pending(), "some is on its way back");
        drop(other);
        assert!(waiting.await.is_some());
        drop(lease);
        assert_eq!(budget.held_bytes(), 0);
    }

    #[tokio::test]
    async fn where_nobody_can_give_the_limit_yields() {
        let budget = budget(10);
        let held = budget.lease(10).await;
        let beyond = budget.lease(4).await;
        assert_eq!(budget.held_bytes(), 14);
        drop((held, beyond));
    }

    #[tokio::test]
    async fn a_waiter_that_leaves_does_not_keep_others_waiting() {
        let budget = budget(10);
        let held = budget.lease(10).await;
        held.set_returning();
        let mut left = Box::pin(budget.lease(5));
        assert!(poll!(&mut left).is_pending());
        drop(left);
        let mut next = Box::pin(budget.lease(10));
        assert!(poll!(&mut next).is_pending());
        drop(held);
        next.await;
        assert_eq!(budget.held_bytes(), 0);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Ask(u64),
        Return(prop::sample::Index),
        Drop(prop::sample::Index),
        Leave(prop::sample::Index),
        Limit(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let index = any::<prop::sample::Index>;
        prop_oneof![
            3 => (1u64..60).prop_map(Step::Ask),
            2 => index().prop_map(Step::Return),
            2 => index().prop_map(Step::Drop),
            1 => index().prop_map(Step::Leave),
            1 => (0u64..200).prop_map(Step::Limit),
        ]
    }

    proptest! {
        /// Whatever the limit becomes, a waiter waits only while memory is on its way, and gets its
        /// own in the end.
        #[test]
        fn a_change_of_the_limit_strands_nobody(steps in prop::collection::vec(step(), 0..80)) {
            let budget = budget(100);
            let mut leases: Vec<Lease> = Vec::new();
            let mut waiting: Vec<futures_util::future::BoxFuture<'_, Lease>> = Vec::new();
            for step in steps {
                match step {
                    Step::Ask(bytes) => waiting.push(Box::pin(budget.lease(bytes))),
                    Step::Return(at) if !leases.is_empty() => at.get(&leases).set_returning(),
                    Step::Drop(at) if !leases.is_empty() => {
                        drop(leases.swap_remove(at.index(leases.len())));
                    }
                    Step::Leave(at) if !waiting.is_empty() => {
                        drop(waiting.remove(at.index(waiting.len())));
                    }
                    Step::Limit(bytes) => budget.set_limit(bytes),
                    _ => {}
                }
                // Whoever asks may serve others, so twice.
                for _ in 0..2 {
                    serve(&mut waiting, &mut leases);
                }
                let returning =
                    leases.iter().any(|lease| lease.returning.load(Ordering::Relaxed));
                prop_assert!(waiting.is_empty() || returning);
                let sum: u64 = leases.iter().map(|lease| lease.bytes).sum();
                prop_assert_eq!(budget.held_bytes(), sum);
            }
        }

        /// Without waiting, the account never passes its limit and always adds up.
        #[test]
        fn what_is_given_without_waiting_stays_within_the_limit(
            limit in 0u64..1000, steps in prop::collection::vec((0u64..200, any::<bool>()), 0..100),
        ) {
            let budget = budget(limit);
            let mut leases = Vec::new();
            for (bytes, give_back) in steps {
                leases.extend(budget.try_lease(bytes));
                if give_back && !leases.is_empty() {
                    leases.swap_remove(leases.len() / 2);
                }
                let sum: u64 = leases.iter().map(|lease| lease.bytes).sum();
                prop_assert_eq!(budget.held_bytes(), sum);
                prop_assert!(sum <= limit);
            }
        }
    }
}

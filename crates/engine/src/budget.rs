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

use futures_util::future::{Either, select};
use penstock_base::{Metric, Metrics};
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{Notify, oneshot};

/// What is fetched ahead of reads, all of it together, has one part in so many of the limit.
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
    is_ahead: bool,
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
        let is_ahead = self.is_ahead;
        drop(Lease { budget, bytes: surplus, returning: AtomicBool::new(false), is_ahead });
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.budget.lock();
        state.held -= self.bytes;
        if self.is_ahead {
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
            match select(&mut granted, pin!(again.notified())).await {
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
        let mut lease = self.grant(&mut state, bytes);
        lease.is_ahead = true;
        Some(lease)
    }

    /// Memory at once, limit or not: for small amounts that are bounded by their holder. Where
    /// something is fetched ahead of reads, room is made for it.
    pub(crate) fn lease_now(self: &Arc<Self>, bytes: u64) -> Lease {
        let mut state = self.lock();
        let lease = self.grant(&mut state, bytes);
        while !state.fits(0) && state.ahead > 0 {
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
        Lease { budget: Arc::clone(self), bytes, returning, is_ahead: false }
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
        fn returnable_bytes(&self) -> Option<u64> {
            self.1.fetch_add(1 << 32, Ordering::Relaxed);
            Some(self.0.try_lock().ok()?.iter().map(|lease| lease.bytes).sum())
        }

        fn press(&self) -> Pressed {
            self.1.fetch_add(1, Ordering::Relaxed);
            let Ok(mut leases) = self.0.try_lock() else { return Pressed::Busy };
            let leases = std::mem::take(&mut *leases);
            Pressed::gave(!leases.is_empty())
        }
    }

    impl Holder {
        fn of(budget: &Budget, leases: Vec<Lease>) -> Arc<Self> {
            let holder = Arc::new(Holder(Mutex::new(leases), AtomicU64::new(0)));
            let weak: Weak<dyn Pressable> = Arc::downgrade(&holder) as Weak<_>;
            budget.register(weak);
            holder
        }

        fn pressed(&self) -> u64 {
            self.1.load(Ordering::Relaxed) & 0xffff_ffff
        }

        fn looked_at(&self) -> u64 {
            self.1.load(Ordering::Relaxed) >> 32
        }
    }

    /// Another thread has the holder's lock for a moment: neither is memory given beyond the limit,
    /// nor anybody refused, until it was looked at.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_busy_holder_is_looked_at_again() {
        for is_within in [true, false] {
            let budget = budget(10);
            let holder = Holder::of(&budget, vec![budget.lease(10).await]);
            let (told, locked) = oneshot::channel();
            let thread = std::thread::spawn({
                let holder = Arc::clone(&holder);
                move || {
                    let guard = holder.0.lock().unwrap();
                    told.send(()).unwrap();
                    while holder.looked_at() < 3 {
                        std::thread::yield_now();
                    }
                    drop(guard);
                }
            });
            locked.await.unwrap();
            let lease = budget.wait(5, is_within).await;
            assert!(lease.is_some(), "refused");
            assert_eq!(budget.held_bytes(), 5);
            thread.join().unwrap();
        }
    }

    #[tokio::test]
    async fn a_waiter_that_leaves_has_the_next_one_look_again() {
        let budget = budget(10);
        let holder = Holder::of(&budget, vec![budget.lease(10).await]);
        let mut waiting: Vec<futures_util::future::BoxFuture<'_, Option<Lease>>> =
            vec![Box::pin(budget.wait(5, false)), Box::pin(budget.wait(5, true))];
        let mut served = Vec::new();
        {
            let _busy = holder.0.lock().unwrap();
            serve(&mut waiting, &mut served);
        }
        assert_eq!((waiting.len(), served.len()), (2, 0));
        drop(waiting.remove(0));
        assert!(waiting.remove(0).await.is_some());
        assert_eq!(budget.held_bytes(), 0);
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
        let small = Holder::of(&budget, vec![budget.lease(3).await]);
        let _large = Holder::of(&budget, vec![budget.lease(7).await]);
        let lease = budget.lease(5).await;
        assert_eq!(budget.held_bytes(), 8);
        assert_eq!(small.pressed(), 0);
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

    #[test]
    fn what_is_fetched_ahead_makes_room_at_once() {
        struct Fetched(Holder);
        impl Pressable for Fetched {
            fn returnable_bytes(&self) -> Option<u64> {
                self.0.returnable_bytes()
            }

            fn press(&self) -> Pressed {
                self.0.press()
            }

            fn is_ahead(&self) -> bool {
                true
            }
        }
        let budget = budget(12);
        let part = Holder::of(&budget, vec![budget.try_lease(6).unwrap()]);
        let ahead = vec![budget.try_lease_ahead(3).unwrap()];
        let fetched = Arc::new(Fetched(Holder(Mutex::new(ahead), AtomicU64::new(0))));
        let weak: Weak<dyn Pressable> = Arc::<Fetched>::downgrade(&fetched);
        budget.register(weak);
        let within = budget.lease_now(3);
        assert_eq!((budget.held_bytes(), fetched.0.pressed()), (12, 0), "there was room");
        let small = budget.lease_now(2);
        assert_eq!((budget.held_bytes(), fetched.0.pressed()), (11, 1));
        let beyond = budget.lease_now(2);
        assert_eq!(budget.held_bytes(), 13, "nothing is ahead any more");
        assert_eq!(part.pressed(), 0, "what somebody waits for was pressed");
        drop((within, small, beyond));
    }

    #[test]
    fn what_is_fetched_ahead_has_a_quarter_of_the_limit_together() {
        let budget = budget(40);
        let mut leases = vec![budget.try_lease_ahead(6).unwrap()];
        assert!(budget.try_lease_ahead(5).is_none());
        leases.push(budget.try_lease_ahead(4).unwrap());
        assert!(budget.try_lease_ahead(1).is_none());
        let other = budget.try_lease(30).unwrap();
        leases[0].shrink(2);
        assert!(budget.try_lease_ahead(5).is_none());
        leases.push(budget.try_lease_ahead(4).unwrap());
        drop(leases);
        assert!(budget.try_lease_ahead(11).is_none(), "of the limit, not of what is free");
        drop(budget.try_lease_ahead(10).unwrap());
        drop(other);
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

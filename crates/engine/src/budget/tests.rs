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

/// Holds what was fetched ahead of reads.
struct Fetched(Holder);

impl Fetched {
    fn of(budget: &Budget, ahead: Vec<Lease>) -> Arc<Self> {
        let fetched = Arc::new(Fetched(Holder(Mutex::new(ahead), AtomicU64::new(0))));
        let weak: Weak<dyn Pressable> = Arc::<Fetched>::downgrade(&fetched);
        budget.register(weak);
        fetched
    }
}

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

#[test]
fn what_is_fetched_ahead_makes_room_at_once() {
    let budget = budget(12);
    let part = Holder::of(&budget, vec![budget.try_lease(6).unwrap()]);
    let fetched = Fetched::of(&budget, vec![budget.try_lease_ahead(3).unwrap()]);
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
fn what_a_read_had_wanted_and_nobody_needs_any_more_makes_room_too() {
    let budget = budget(12);
    let ahead = budget.try_lease_ahead(3).unwrap();
    ahead.set_wanted();
    let fetched = Fetched::of(&budget, vec![ahead]);
    let part = budget.try_lease(9).unwrap();
    let small = budget.lease_now(2);
    assert_eq!((budget.held_bytes(), fetched.0.pressed()), (11, 1));
    drop((part, small));
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

#[test]
fn what_a_read_waits_for_leaves_room_for_more_ahead() {
    let budget = budget(40);
    let ahead = budget.try_lease_ahead(10).unwrap();
    assert_eq!(budget.free_ahead_bytes(), 0);
    ahead.set_wanted();
    ahead.set_wanted();
    assert_eq!(budget.free_ahead_bytes(), 10);
    let more = [10, 10, 10].map(|bytes| {
        let lease = budget.try_lease_ahead(bytes).unwrap();
        lease.set_wanted();
        lease
    });
    assert!(budget.try_lease_ahead(1).is_none(), "all of it holds bytes still");
    drop((ahead, more));
    assert_eq!((budget.held_bytes(), budget.free_ahead_bytes()), (0, 10));
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
    /// What is free for what is ahead is what is given for it.
    #[test]
    fn as_much_is_given_ahead_as_is_told_to_be_free(
        limit in 0u64..100, held in prop::collection::vec(0u64..30, 0..4),
        ahead in prop::collection::vec((0u64..30, any::<bool>()), 0..6), bytes in 0u64..30,
    ) {
        let budget = budget(limit);
        let _held: Vec<_> = held.iter().filter_map(|bytes| budget.try_lease(*bytes)).collect();
        let lease = |(bytes, is_wanted): &(u64, bool)| {
            let lease = budget.try_lease_ahead(*bytes)?;
            is_wanted.then(|| lease.set_wanted());
            Some(lease)
        };
        let _ahead: Vec<_> = ahead.iter().filter_map(lease).collect();
        let free = budget.free_ahead_bytes();
        prop_assert_eq!(budget.try_lease_ahead(bytes).is_some(), bytes <= free);
    }

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

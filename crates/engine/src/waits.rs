//! What the threads of a host wait for while they are blocked: the link, the store or memory.
//!
//! Futures that wait for one of these say so ([`waiting`]) from the first poll that finds nothing
//! to the last. A thread that blocks ([`blocked`]) counts the time between its polls by what its
//! own future waits for then. Where that waits for work in the background, such as a request that
//! was sent ahead, it counts by what the background of its statement waits for meanwhile.

use crate::request_log::Scope;
use penstock_base::{Metric, micros};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

tokio::task_local! {
    /// What the future of a blocked thread waits for. Tasks in the background have none.
    static CALL: Arc<Call>;
}

thread_local! {
    static WAITED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// What is waited for. Of several at once the first of this order counts: where bytes arrive, the
/// link is what limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    /// Bytes of an answer that has begun.
    Link,
    /// The first byte of an answer, or the time to ask again.
    Store,
    /// Memory within the limit.
    Memory,
}

const ALL: [(For, Metric); 3] = [
    (For::Link, Metric::WaitLinkMicros),
    (For::Store, Metric::WaitStoreMicros),
    (For::Memory, Metric::WaitMemoryMicros),
];

/// A time for each of [`For`].
type Spent = [Duration; ALL.len()];

#[derive(Debug, Default)]
struct Call([AtomicU32; ALL.len()]);

impl Call {
    fn first(&self) -> Option<For> {
        first(&self.0.each_ref().map(|count| count.load(Ordering::Relaxed)))
    }
}

fn first(waiting: &[u32; ALL.len()]) -> Option<For> {
    ALL.iter().map(|(cause, _)| *cause).find(|cause| waiting[*cause as usize] > 0)
}

/// For how long the background of a statement has waited for what.
#[derive(Debug, Default)]
pub(crate) struct Background(Mutex<Clock>);

#[derive(Debug, Default)]
struct Clock {
    waiting: [u32; ALL.len()],
    since: Option<Instant>,
    spent: Spent,
}

impl Clock {
    fn settle(&mut self, now: Instant) {
        let since = self.since.replace(now).unwrap_or(now);
        if let Some(cause) = first(&self.waiting) {
            self.spent[cause as usize] += now.saturating_duration_since(since);
        }
    }

    fn begins(&mut self, cause: For, now: Instant) {
        self.settle(now);
        self.waiting[cause as usize] += 1;
    }

    fn ends(&mut self, cause: For, now: Instant) {
        self.settle(now);
        self.waiting[cause as usize] -= 1;
    }
}

impl Background {
    fn lock(&self) -> MutexGuard<'_, Clock> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spent(&self, now: Instant) -> Spent {
        let mut clock = self.lock();
        clock.settle(now);
        clock.spent
    }
}

/// A future that waits, as long as this lives.
struct Mark {
    cause: For,
    place: Place,
}

enum Place {
    Call(Arc<Call>),
    Background(Arc<Scope>),
    /// No statement's.
    Nowhere,
}

impl Mark {
    fn new(cause: For) -> Self {
        let place = match CALL.try_with(Arc::clone) {
            Ok(call) => {
                call.0[cause as usize].fetch_add(1, Ordering::Relaxed);
                Place::Call(call)
            }
            Err(_) => Scope::current().map_or(Place::Nowhere, |scope| {
                scope.background.lock().begins(cause, Instant::now());
                Place::Background(scope)
            }),
        };
        Mark { cause, place }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        match &self.place {
            Place::Call(call) => {
                call.0[self.cause as usize].fetch_sub(1, Ordering::Relaxed);
            }
            Place::Background(scope) => scope.background.lock().ends(self.cause, Instant::now()),
            Place::Nowhere => {}
        }
    }
}

/// See [`waiting`].
pub(crate) struct Waiting<'a, F> {
    future: Pin<&'a mut F>,
    cause: For,
    mark: Option<Mark>,
}

impl<F: Future> Future for Waiting<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let polled = self.future.as_mut().poll(context);
        match polled {
            Poll::Ready(_) => self.mark = None,
            Poll::Pending if self.mark.is_none() => self.mark = Some(Mark::new(self.cause)),
            Poll::Pending => {}
        }
        polled
    }
}

/// Says what a future waits for. One that is ready at once costs nothing.
pub(crate) fn waiting<F: Future>(cause: For, future: Pin<&mut F>) -> Waiting<'_, F> {
    Waiting { future, cause, mark: None }
}

/// Between two polls of a blocked thread.
struct Pause {
    began: Instant,
    own: Option<For>,
    /// Of the background, when it began.
    before: Spent,
}

/// What a pause counts as.
fn shares(own: Option<For>, took: Duration, background: Spent) -> Spent {
    let Some(cause) = own else { return background };
    let mut spent = Spent::default();
    spent[cause as usize] = took;
    spent
}

/// What a blocked thread has waited for; counted when it goes on, or is interrupted.
struct Blocked<'a> {
    scope: &'a Arc<Scope>,
    call: Arc<Call>,
    pause: Option<Pause>,
    spent: Spent,
}

impl Blocked<'_> {
    fn pauses(&mut self) {
        let (began, own) = (Instant::now(), self.call.first());
        let before = match own {
            Some(_) => Spent::default(),
            None => self.scope.background.spent(began),
        };
        self.pause = Some(Pause { began, own, before });
    }

    fn goes_on(&mut self) {
        let Some(Pause { began, own, before }) = self.pause.take() else { return };
        let now = Instant::now();
        let background = match own {
            Some(_) => Spent::default(),
            None => {
                let after = self.scope.background.spent(now);
                std::array::from_fn(|index| after[index].saturating_sub(before[index]))
            }
        };
        let shares = shares(own, now.saturating_duration_since(began), background);
        self.spent.iter_mut().zip(shares).for_each(|(sum, share)| *sum += share);
    }
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        self.goes_on();
        for (cause, metric) in ALL {
            let spent = self.spent[cause as usize];
            self.scope.count(metric, micros(spent));
        }
        add_waited(self.spent.iter().sum());
    }
}

/// Runs the future of a thread that blocks, and counts what the thread waits for.
pub(crate) async fn blocked<F: Future>(scope: &Arc<Scope>, future: F) -> F::Output {
    let call = Arc::<Call>::default();
    let mut future = pin!(CALL.scope(Arc::clone(&call), future));
    let mut blocked = Blocked { scope, call, pause: None, spent: Spent::default() };
    poll_fn(|context| {
        blocked.goes_on();
        let polled = future.as_mut().poll(context);
        if polled.is_pending() {
            blocked.pauses();
        }
        polled
    })
    .await
}

/// How long the calling thread has waited, since it began, for what is counted as a wait.
pub fn thread_waited() -> Duration {
    WAITED.get()
}

/// The calling thread has waited.
pub(crate) fn add_waited(took: Duration) {
    WAITED.set(WAITED.get() + took);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    const MS: Duration = Duration::from_millis(1);

    fn counted(scope: &Scope) -> [u64; ALL.len()] {
        ALL.map(|(_, metric)| scope.metrics.get(metric) / 1000)
    }

    #[test]
    fn of_several_waits_the_first_counts() {
        assert_eq!(first(&[0, 0, 0]), None);
        assert_eq!(first(&[0, 0, 1]), Some(For::Memory));
        assert_eq!(first(&[0, 2, 1]), Some(For::Store));
        assert_eq!(first(&[1, 2, 1]), Some(For::Link));
    }

    #[test]
    fn a_pause_counts_as_its_own_wait_or_as_those_of_the_background() {
        let background = [MS, 2 * MS, 3 * MS];
        let zero = Duration::ZERO;
        assert_eq!(shares(Some(For::Store), 9 * MS, background), [zero, 9 * MS, zero]);
        assert_eq!(shares(None, 9 * MS, background), background);
    }

    #[test]
    fn the_background_counts_no_time_twice_and_none_where_nothing_waits() {
        let mut clock = Clock::default();
        let began = Instant::now();
        clock.begins(For::Store, began);
        clock.begins(For::Link, began + 2 * MS);
        clock.begins(For::Link, began + 3 * MS);
        clock.ends(For::Store, began + 4 * MS);
        clock.ends(For::Link, began + 5 * MS);
        clock.ends(For::Link, began + 7 * MS);
        clock.settle(began + 50 * MS);
        assert_eq!(clock.spent, [5 * MS, 2 * MS, Duration::ZERO]);
    }

    #[tokio::test]
    async fn a_blocked_thread_counts_its_own_waits() {
        let scope = Scope::for_test();
        let (began, before) = (Instant::now(), thread_waited());
        let pause = async || {
            let slept = pin!(tokio::time::sleep(30 * MS));
            waiting(For::Store, slept).await;
            tokio::time::sleep(30 * MS).await;
            waiting(For::Memory, pin!(async { 7 })).await
        };
        assert_eq!(blocked(&scope, pause()).await, 7);
        let [link, store, memory] = counted(&scope);
        assert!(store > 0 && link == 0 && memory == 0, "{link} {store} {memory}");
        // The second pause is nobody's.
        let elapsed = began.elapsed();
        assert!(u128::from(store) + 30 <= elapsed.as_millis(), "{store} of {elapsed:?}");
        assert_eq!((thread_waited() - before).as_millis(), u128::from(store));
    }

    #[tokio::test]
    async fn who_waits_for_the_background_counts_what_that_waits_for() {
        let scope = Scope::for_test();
        let (sender, receiver) = oneshot::channel();
        let ahead = tokio::spawn(scope.run(async {
            waiting(For::Link, pin!(tokio::time::sleep(40 * MS))).await;
            sender.send(()).expect("somebody waits");
        }));
        blocked(&scope, receiver).await.expect("a value comes");
        ahead.await.expect("no panic");
        let [link, store, memory] = counted(&scope);
        assert!(link > 0 && store == 0 && memory == 0, "{link} {store} {memory}");
    }

    #[tokio::test]
    async fn an_interrupted_call_counts_until_then() {
        let scope = Scope::for_test();
        let call = blocked(&scope, async {
            waiting(For::Memory, pin!(std::future::pending::<()>())).await;
        });
        tokio::time::timeout(30 * MS, call).await.expect_err("it would never end");
        assert!(counted(&scope)[2] > 0);
    }
}

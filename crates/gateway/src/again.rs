//! Polls a connection again at once where it woke itself while it was polled.
//!
//! HTTP layer and service share one task and hand a body's pieces to each other by waking that
//! task. For the runtime such a wake-up is a task that yields: it goes to the end of the queue, and
//! a sleeping thread is woken to look for work, which takes the task, the piece and the socket away
//! from the processor's cache that has them. Decides only how often a poll is repeated before the
//! others have their turn. What other threads wake, and what a task asks the runtime to wake later
//! (`tokio::task::yield_now`), is the runtime's as ever.

use futures_util::task::AtomicWaker;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use tokio::task::coop::has_budget_remaining;

/// Polls in a row before the thread's other tasks have their turn: some MiB of a body.
const ROUNDS_MAX: usize = 16;

thread_local! {
    /// What this thread polls at this moment. Only ever compared.
    static POLLED: Cell<*const Again> = const { Cell::new(ptr::null()) };
}

/// Who is woken, and whether it was while it was polled.
#[derive(Debug, Default)]
struct Again {
    /// Written and read by the thread that polls.
    is_wanted: AtomicBool,
    task: AtomicWaker,
}

/// Until dropped, this thread polls it.
struct Polling(*const Again);

impl Polling {
    fn begin(again: &Arc<Again>) -> Self {
        Polling(POLLED.replace(Arc::as_ptr(again)))
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        POLLED.set(self.0);
    }
}

impl Wake for Again {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // A thread that ends polls nothing.
        let polled = POLLED.try_with(Cell::get).unwrap_or(ptr::null());
        if ptr::eq(polled, Arc::as_ptr(self)) {
            self.is_wanted.store(true, Ordering::Relaxed);
        } else {
            self.task.wake();
        }
    }
}

/// Runs `future` so that what wakes it while it is polled, on the thread that polls it, has it
/// polled again on the spot.
pub(crate) async fn again<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let again = Arc::new(Again::default());
    let waker = Waker::from(again.clone());
    poll_fn(|context| {
        // Before the poll: whatever wakes from now on wakes this task.
        again.task.register(context.waker());
        for _ in 0..ROUNDS_MAX {
            again.is_wanted.store(false, Ordering::Relaxed);
            let polling = Polling::begin(&again);
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            drop(polling);
            if polled.is_ready() || !again.is_wanted.load(Ordering::Relaxed) {
                return polled;
            }
            // Without budget no socket would do anything in another round.
            if !has_budget_remaining() {
                break;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// Counts how often the task is woken.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Count {
        fn woken(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn a_wake_up_while_it_is_polled_is_no_matter_of_the_runtimes() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let mut context = Context::from_waker(&waker);
        let mut left = 5;
        let mut run = pin!(again(poll_fn(move |context| {
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        })));
        assert!(run.as_mut().poll(&mut context).is_ready());
        assert_eq!(count.woken(), 0);
    }

    #[test]
    fn what_wakes_itself_for_ever_lets_others_have_their_turn() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let mut context = Context::from_waker(&waker);
        let polls = AtomicUsize::new(0);
        let mut run = pin!(again(poll_fn(|context| {
            polls.fetch_add(1, Ordering::Relaxed);
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        })));
        for turn in 1..4 {
            assert!(run.as_mut().poll(&mut context).is_pending());
            assert_eq!((polls.load(Ordering::Relaxed), count.woken()), (turn * ROUNDS_MAX, turn));
        }
    }

    #[test]
    fn a_wake_up_from_outside_is_the_runtimes() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let mut context = Context::from_waker(&waker);
        let outside = AtomicWaker::new();
        let mut run = pin!(again(poll_fn(|context| {
            outside.register(context.waker());
            Poll::<()>::Pending
        })));
        for turn in 1..4 {
            assert!(run.as_mut().poll(&mut context).is_pending());
            assert_eq!(count.woken(), turn - 1);
            outside.wake();
            assert_eq!(count.woken(), turn);
        }
    }

    #[test]
    fn what_another_thread_wakes_meanwhile_is_the_runtimes() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let mut context = Context::from_waker(&waker);
        let polls = AtomicUsize::new(0);
        let mut run = pin!(again(poll_fn(|context| {
            polls.fetch_add(1, Ordering::Relaxed);
            let waker = context.waker().clone();
            std::thread::spawn(move || waker.wake()).join().unwrap();
            Poll::<()>::Pending
        })));
        assert!(run.as_mut().poll(&mut context).is_pending());
        assert_eq!((polls.load(Ordering::Relaxed), count.woken()), (1, 1));
    }

    /// Two threads hand a number to each other: a lost wake-up would never end.
    #[test]
    fn no_wake_up_between_two_threads_is_lost() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let (to, mut from) = tokio::sync::mpsc::channel::<u32>(1);
        let (back, mut answers) = tokio::sync::mpsc::channel::<u32>(1);
        let echo = async move {
            while let Some(number) = from.recv().await {
                back.send(number).await.unwrap();
            }
        };
        let asking = async move {
            for number in 0..20_000 {
                to.send(number).await.unwrap();
                assert_eq!(answers.recv().await, Some(number));
            }
        };
        runtime.block_on(async {
            let echo = tokio::spawn(again(echo));
            tokio::spawn(again(asking)).await.unwrap();
            echo.await.unwrap();
        });
    }

    /// A task that yields by the runtime's own means is not polled again before the others.
    #[tokio::test]
    async fn who_yields_lets_others_go_first() {
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let told = |who| {
            let order = order.clone();
            async move {
                order.lock().unwrap().push(who);
                tokio::task::yield_now().await;
                order.lock().unwrap().push(who);
            }
        };
        let both = [tokio::spawn(again(told("a"))), tokio::spawn(again(told("b")))];
        for one in both {
            one.await.unwrap();
        }
        assert_eq!(order.lock().unwrap()[..2], ["a", "b"]);
    }
}

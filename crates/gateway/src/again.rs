//! Polls a connection again at once where it woke itself while it was polled.
//!
//! HTTP layer and service share one task and hand a body's pieces to each other by waking that
//! task. For the runtime such a wake-up is a task that yields: it goes to the end of the queue, and
//! a sleeping thread is woken to look for work, which takes the task, the piece and the socket away
//! from the processor's cache that has them. Decides only how often a poll is repeated before the
//! others have their turn; whoever means to yield has the runtime wake it later
//! (`tokio::task::yield_now`), which is seen here as a wake-up from outside.

use futures_util::task::AtomicWaker;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use tokio::task::coop::has_budget_remaining;

/// Polls in a row before the thread's other tasks have their turn: some 2 MiB of a body.
const ROUNDS_MAX: usize = 16;

/// Nobody polls: a wake-up is the runtime's.
const RESTING: u8 = 0;
/// Polled at this moment: a wake-up asks for another round.
const POLLED: u8 = 1;
/// Woken since the poll began.
const WOKEN: u8 = 2;

/// Who is woken, and in which state.
#[derive(Debug)]
struct Again {
    state: AtomicU8,
    task: AtomicWaker,
}

impl Wake for Again {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let seen =
            self.state.compare_exchange(POLLED, WOKEN, Ordering::AcqRel, Ordering::Acquire);
        if seen == Err(RESTING) {
            self.task.wake();
        }
    }
}

/// Runs `future` so that what wakes it while it is polled has it polled again on the spot.
pub(crate) async fn again<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let again = Arc::new(Again { state: AtomicU8::new(RESTING), task: AtomicWaker::new() });
    let waker = Waker::from(again.clone());
    poll_fn(|context| {
        // Before the first poll: from the moment when the state rests, this is who is woken.
        again.task.register(context.waker());
        for _ in 0..ROUNDS_MAX {
            again.state.store(POLLED, Ordering::Release);
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Poll::Ready(output);
            }
            let rests =
                again.state.compare_exchange(POLLED, RESTING, Ordering::AcqRel, Ordering::Acquire);
            if rests.is_ok() {
                return Poll::Pending;
            }
            // Without budget no socket would do anything in another round.
            if !has_budget_remaining() {
                break;
            }
        }
        again.state.store(RESTING, Ordering::Release);
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
        assert_eq!(*order.lock().unwrap(), ["a", "b", "a", "b"]);
    }
}

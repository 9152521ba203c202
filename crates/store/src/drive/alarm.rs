//! Time limits, kept by the thread that waits, or by the runtime where a task does.
//!
//! A timer of the runtime that ends before all others wakes the runtime's thread when it is set,
//! and takes its locks each time. A limit of a request is set for each of them and hardly ever
//! reached, so the thread that waits for the answer looks at the clock itself.

use crate::drive::{DRIVING, Waits, is_driving};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use tokio::time::Sleep;

static NEXT_ALARM: AtomicU64 = AtomicU64::new(0);

/// A moment that a future waits for, as a last resort: it is moved far more often than it comes, so
/// only its waker is, and it is looked at again when it rings too early.
#[derive(Debug)]
pub(crate) struct Alarm {
    id: u64,
    /// Where a task of the runtime waits.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Alarm {
    pub fn new() -> Self {
        Alarm { id: NEXT_ALARM.fetch_add(1, Ordering::Relaxed), timer: None }
    }

    /// Ready once the moment is over. The caller is polled again by then, and maybe once before: at
    /// the earlier moment that an earlier poll told.
    pub fn poll(&mut self, context: &mut Context<'_>, due: tokio::time::Instant) -> Poll<()> {
        if is_driving() {
            // It may have been a task's before.
            self.timer = None;
            let due = due.into_std();
            if Instant::now() >= due {
                return Poll::Ready(());
            }
            DRIVING.with_borrow_mut(|driving| {
                if let Some(Waits { alarms, .. }) = driving {
                    alarms.set(self.id, due, context.waker());
                }
            });
            return Poll::Pending;
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        while timer.as_mut().poll(context).is_ready() {
            if tokio::time::Instant::now() >= due {
                self.timer = None;
                return Poll::Ready(());
            }
            timer.as_mut().reset(due);
        }
        Poll::Pending
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // Of another thread it stays, and rings once for nobody.
        let forgotten = DRIVING.try_with(|driving| {
            let mut driving = driving.try_borrow_mut().ok()?;
            driving.as_mut()?.alarms.forget(self.id)
        });
        // A waker may run code of others when dropped, so not while it is borrowed.
        drop(forgotten);
    }
}

/// What a future comes to, or `None` where it takes longer than until `due`.
pub async fn timeout_at<F: Future>(due: tokio::time::Instant, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut alarm = Alarm::new();
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => alarm.poll(context, due).map(|()| None),
    })
    .await
}

/// The alarms of a thread that drives. They are few.
#[derive(Default)]
pub(super) struct Alarms(Vec<(u64, Instant, Waker)>);

impl Alarms {
    fn set(&mut self, id: u64, due: Instant, waker: &Waker) {
        match self.0.iter_mut().find(|(known, ..)| *known == id) {
            Some((_, at, known)) => {
                *at = due.min(*at);
                known.clone_from(waker);
            }
            None => self.0.push((id, due, waker.clone())),
        }
    }

    fn forget(&mut self, id: u64) -> Option<Waker> {
        let at = self.0.iter().position(|(known, ..)| *known == id)?;
        Some(self.0.swap_remove(at).2)
    }

    /// When the first one rings.
    pub fn first(&self) -> Option<Instant> {
        self.0.iter().map(|(_, due, _)| *due).min()
    }

    /// Those that ring now. They are over.
    pub fn due(&mut self, now: Instant) -> impl Iterator<Item = Waker> {
        self.0.extract_if(.., move |(_, due, _)| *due <= now).map(|(_, _, waker)| waker)
    }
}

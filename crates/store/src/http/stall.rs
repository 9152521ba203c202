//! Notices that nothing moves on a connection, without a timer per read.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// One lazily moved timer per connection: progress only clears a mark, and the timer is moved when
/// it fires early, so that a busy connection touches the timer wheel once per stall time.
#[derive(Debug)]
pub(crate) struct Stall {
    limit: Duration,
    waiting_since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    is_off: bool,
}

impl Stall {
    pub(crate) fn new(limit: Duration) -> Self {
        Stall { limit, waiting_since: None, timer: None, is_off: false }
    }

    /// Something moved.
    pub(crate) fn progress(&mut self) {
        self.waiting_since = None;
    }

    /// Waits for nothing any more: for looks at the connection from threads without a timer.
    pub(crate) fn turn_off(&mut self, is_off: bool) {
        self.is_off = is_off;
    }

    /// Called when nothing can move now: ready once nothing has moved for the whole limit.
    pub(crate) fn poll_stalled(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.is_off {
            return Poll::Pending;
        }
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        let due = since + self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        while timer.as_mut().poll(context).is_ready() {
            if Instant::now() >= due {
                self.timer = None;
                return Poll::Ready(());
            }
            timer.as_mut().reset(due);
        }
        Poll::Pending
    }

    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }
}

//! Notices that nothing moves on a connection, without a timer per read.

use crate::drive::Alarm;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// One lazily moved alarm per connection: progress only clears a mark, and the alarm is moved when
/// it rings early, so that a busy connection touches the runtime's timers once per stall time.
#[derive(Debug)]
pub(crate) struct Stall {
    limit: Duration,
    waiting_since: Option<Instant>,
    alarm: Alarm,
    is_off: bool,
}

impl Stall {
    pub(crate) fn new(limit: Duration) -> Self {
        Stall { limit, waiting_since: None, alarm: Alarm::new(), is_off: false }
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
        self.alarm.poll(context, since + self.limit)
    }

    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }
}

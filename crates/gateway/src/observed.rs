//! Request and answer bodies on their way past the front: counted, and bounded in time.

use crate::exchange::{Ending, Exchange};
use crate::rest::Rest;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use s3s::StdError;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};

/// What the error of a body says whose client went silent; [`crate::error`] knows it by this.
pub const STALLED: &str = "the client sent nothing more of the body in time";

/// Tells when nothing has happened for too long. What happens only clears a mark; the timer is
/// moved when it fires early, so that a busy body touches the runtime's timers once per limit.
pub struct StallTimer {
    limit: Duration,
    silent_since: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl StallTimer {
    /// Not running.
    pub fn new(limit: Duration) -> Self {
        StallTimer { limit, silent_since: None, sleep: None }
    }

    /// Something happened.
    pub fn moved(&mut self) {
        self.silent_since = None;
    }

    /// Nothing happened. `true` when that has gone on for too long.
    pub fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        let due = *self.silent_since.get_or_insert_with(Instant::now) + self.limit;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        while sleep.as_mut().poll(context).is_ready() {
            if Instant::now() >= due {
                return true;
            }
            sleep.as_mut().reset(due);
        }
        false
    }
}

/// A request's body.
pub struct Inbound {
    /// There until this is dropped.
    body: Option<Incoming>,
    /// Somebody has asked for some of it.
    is_begun: bool,
    exchange: Arc<Exchange>,
    stall: StallTimer,
    rest: Rest,
}

impl Drop for Inbound {
    fn drop(&mut self) {
        if let Some(body) = self.body.take() {
            self.rest.keep(body, self.is_begun);
        }
    }
}

impl Inbound {
    /// Counts `body` for `exchange`, and gives up a client that is silent for `stall_timeout`. What
    /// is not read of it is left in `rest`.
    pub fn new(
        body: Incoming,
        exchange: Arc<Exchange>,
        stall_timeout: Duration,
        rest: Rest,
    ) -> Self {
        let stall = StallTimer::new(stall_timeout);
        Inbound { body: Some(body), is_begun: false, exchange, stall, rest }
    }
}

impl Body for Inbound {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let this = &mut *self;
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        this.is_begun = true;
        match Pin::new(body).poll_frame(context) {
            Poll::Ready(frame) => {
                this.stall.moved();
                if let Some(Ok(frame)) = &frame
                    && let Some(data) = frame.data_ref()
                {
                    this.exchange.received(data.len());
                }
                Poll::Ready(frame.map(|frame| frame.map_err(StdError::from)))
            }
            Poll::Pending if this.stall.is_over(context) => Poll::Ready(Some(Err(STALLED.into()))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

/// An answer's body. Its exchange ends with it.
pub struct Outbound {
    body: s3s::Body,
    exchange: Option<Arc<Exchange>>,
    status: u16,
    first_byte: Duration,
    sent: u64,
    is_whole: bool,
    /// The request's place among those at work.
    _place: Option<OwnedSemaphorePermit>,
}

impl Outbound {
    /// Of an answer to nobody's account.
    pub fn plain(body: s3s::Body) -> Self {
        Outbound {
            body,
            exchange: None,
            status: 0,
            first_byte: Duration::ZERO,
            sent: 0,
            is_whole: false,
            _place: None,
        }
    }

    /// The answer to `exchange`, which keeps its place until the last byte is on its way.
    pub fn of(
        body: s3s::Body,
        exchange: Arc<Exchange>,
        status: u16,
        place: Option<OwnedSemaphorePermit>,
    ) -> Self {
        // Nobody reads a body that HTTP does not send.
        let is_whole = body.is_end_stream() || exchange.is_bodiless(status);
        let first_byte = exchange.elapsed();
        let exchange = Some(exchange);
        Outbound { body, exchange, status, first_byte, sent: 0, is_whole, _place: place }
    }
}

impl Body for Outbound {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let this = &mut *self;
        let body = Pin::new(&mut this.body);
        let frame = match &this.exchange {
            // What the body asks of a back end while it is read is on the request's account.
            Some(exchange) => exchange.sync_scope(|| body.poll_frame(context)),
            None => body.poll_frame(context),
        };
        match &frame {
            Poll::Ready(Some(Ok(frame))) => {
                this.sent += frame.data_ref().map_or(0, Bytes::len) as u64;
                this.is_whole = this.body.is_end_stream();
            }
            Poll::Ready(Some(Err(_))) => this.is_whole = false,
            Poll::Ready(None) => this.is_whole = true,
            Poll::Pending => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Outbound {
    fn drop(&mut self) {
        let Some(exchange) = self.exchange.take() else { return };
        let ending = Ending {
            status: self.status,
            first_byte: self.first_byte,
            sent: self.sent,
            is_whole: self.is_whole,
        };
        let body = std::mem::take(&mut self.body);
        // The body goes first: what it did for the request is told before the request ends.
        exchange.sync_scope(|| drop(body));
        exchange.finish(ending);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    /// Waits for what `timer` says; the time that it took.
    async fn waited(timer: &mut StallTimer) -> Duration {
        let begun = Instant::now();
        poll_fn(|context| if timer.is_over(context) { Poll::Ready(()) } else { Poll::Pending })
            .await;
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn silence_counts_from_when_it_began() {
        let limit = Duration::from_secs(60);
        let mut timer = StallTimer::new(limit);
        assert_eq!(waited(&mut timer).await.as_secs(), 60);
        timer.moved();
        // What moves every 50 seconds never stalls, though the timer ran from the first silence.
        for _ in 0..5 {
            let pause = Duration::from_secs(50);
            assert!(tokio::time::timeout(pause, waited(&mut timer)).await.is_err());
            timer.moved();
        }
        tokio::time::sleep(Duration::from_secs(1000)).await;
        assert_eq!(waited(&mut timer).await.as_secs(), 60);
    }
}

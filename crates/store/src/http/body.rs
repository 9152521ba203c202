//! The body of an HTTP answer: from the socket straight into the caller's buffer.

use crate::RequestFault;
use crate::http::chunked::ChunkDecoder;
use crate::http::connection::Connection;
use crate::http::head::Framing;
use crate::http::pool::{Pool, Slot};
use crate::http::trace::Trace;
use penstock_base::{Error, Kind, Result, Retry};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Why a request failed whose answer nobody wanted whole.
const UNREAD: &str = "the body was not read to its end";

/// A dropped body with no more than this left is read to its end, so that its connection lives.
const DRAIN_BYTES_MAX: usize = 64 << 10;

/// What is still to come.
#[derive(Debug)]
enum Rest {
    Length(u64),
    Chunked(ChunkDecoder),
    UntilClose,
    Over,
}

/// A connection while its answer is read.
#[derive(Debug)]
pub(crate) struct Lease {
    pub connection: Connection,
    pub slot: Slot,
    pub pool: Arc<Pool>,
    /// `None`: the connection ends with this answer.
    pub idle_limit: Option<Duration>,
}

/// An HTTP body. The connection goes back to the pool when its last byte was read; a body dropped
/// before closes it, unless what is left is there already and small.
#[derive(Debug)]
pub struct HttpBody {
    lease: Option<Lease>,
    rest: Rest,
    trace: Trace,
    operation: &'static str,
    object: Option<Box<str>>,
}

impl HttpBody {
    pub(crate) fn new(
        lease: Lease,
        framing: Framing,
        trace: Trace,
        operation: &'static str,
    ) -> Self {
        let rest = match framing {
            Framing::Empty => Rest::Over,
            Framing::Length(length) => Rest::Length(length),
            Framing::Chunked => Rest::Chunked(ChunkDecoder::new()),
            Framing::UntilClose => Rest::UntilClose,
        };
        let mut body = HttpBody { lease: Some(lease), rest, trace, operation, object: None };
        if matches!(body.rest, Rest::Over) {
            body.end();
        }
        body
    }

    /// Names the object in errors of later reads.
    pub(crate) fn set_object(&mut self, object: &str) {
        self.object = Some(object.into());
    }

    /// Bytes still to come, where the answer told.
    pub fn remaining(&self) -> Option<u64> {
        match &self.rest {
            Rest::Length(left) => Some(*left),
            Rest::Over => Some(0),
            Rest::Chunked(_) | Rest::UntilClose => None,
        }
    }

    /// Reads into `buf` what is there, at least one byte; 0 at the end of the body.
    pub(crate) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<Result<usize>> {
        let mut filled = 0;
        while filled < buf.len() {
            match self.poll_some(context, &mut buf[filled..]) {
                Poll::Ready(Ok(0)) => break,
                Poll::Ready(Ok(count)) => filled += count,
                // What was read before the error is not lost: the next call meets the error again,
                // or the end of the connection.
                Poll::Ready(Err(error)) => return Poll::Ready(Err(self.fail(error))),
                Poll::Pending if filled == 0 => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        self.trace.received(filled);
        if self.is_at_end() {
            self.end();
        }
        Poll::Ready(Ok(filled))
    }

    fn is_at_end(&self) -> bool {
        match &self.rest {
            Rest::Length(left) => *left == 0,
            Rest::Chunked(decoder) => decoder.is_done(),
            Rest::UntilClose => false,
            Rest::Over => true,
        }
    }

    /// One step: some bytes, or 0 at the end of the body.
    fn poll_some(&mut self, context: &mut Context<'_>, buf: &mut [u8]) -> Poll<Result<usize>> {
        let Some(lease) = &mut self.lease else { return Poll::Ready(Ok(0)) };
        let connection = &mut lease.connection;
        loop {
            let limit = match &mut self.rest {
                Rest::Length(left) => *left,
                Rest::UntilClose => u64::MAX,
                Rest::Over => 0,
                Rest::Chunked(decoder) => {
                    if decoder.data_left() == 0 && !decoder.is_done() {
                        if connection.buffered().is_empty() {
                            match connection.poll_fill(context) {
                                Poll::Ready(Ok(0)) => return Poll::Ready(Err(truncated(None))),
                                Poll::Ready(Ok(_)) => {}
                                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                                Poll::Pending => return Poll::Pending,
                            }
                        }
                        let used = decoder.feed(connection.buffered())?;
                        connection.consume(used);
                        continue;
                    }
                    decoder.data_left()
                }
            };
            if limit == 0 {
                return Poll::Ready(Ok(0));
            }
            let wanted = usize::try_from(limit).unwrap_or(usize::MAX).min(buf.len());
            let buffered = connection.buffered();
            let count = if buffered.is_empty() {
                match connection.poll_receive(context, &mut buf[..wanted]) {
                    Poll::Ready(Ok(count)) => count,
                    other => return other,
                }
            } else {
                let count = buffered.len().min(wanted);
                buf[..count].copy_from_slice(&buffered[..count]);
                connection.consume(count);
                count
            };
            match &mut self.rest {
                Rest::Length(left) if count == 0 => {
                    return Poll::Ready(Err(truncated(Some(*left))));
                }
                Rest::Chunked(_) if count == 0 => return Poll::Ready(Err(truncated(None))),
                Rest::UntilClose if count == 0 => {
                    self.rest = Rest::Over;
                    return Poll::Ready(Ok(0));
                }
                Rest::Length(left) => *left -= count as u64,
                Rest::Chunked(decoder) => decoder.took(count as u64),
                Rest::UntilClose | Rest::Over => {}
            }
            return Poll::Ready(Ok(count));
        }
    }

    /// The body was read whole: the connection may serve another request.
    fn end(&mut self) {
        self.rest = Rest::Over;
        if let Some(Lease { mut connection, slot, pool, idle_limit }) = self.lease.take()
            && let Some(idle_limit) = idle_limit
            && connection.buffered().is_empty()
        {
            connection.set_glancing(false);
            pool.give(slot, connection, idle_limit);
        }
        self.trace.finish();
    }

    fn fail(&mut self, error: Error) -> Error {
        self.rest = Rest::Over;
        self.lease = None;
        self.trace.fail(RequestFault::Service, &error.to_string());
        let error = error.with_operation(self.operation);
        match &self.object {
            Some(object) => error.with_object(&**object),
            None => error,
        }
    }

    /// Reads what is left if it is small and there already.
    fn drain(&mut self) {
        let idle_wanted = self.lease.as_ref().is_some_and(|lease| lease.idle_limit.is_some());
        let small = self.remaining().is_none_or(|left| left <= DRAIN_BYTES_MAX as u64);
        if !idle_wanted || !small {
            return;
        }
        if let Some(lease) = &mut self.lease {
            lease.connection.set_glancing(true);
        }
        let mut context = Context::from_waker(Waker::noop());
        let mut scratch = vec![0; DRAIN_BYTES_MAX.min(16 << 10)];
        let mut drained = 0;
        while drained < DRAIN_BYTES_MAX && self.lease.is_some() {
            match self.poll_read(&mut context, &mut scratch) {
                Poll::Ready(Ok(count)) if count > 0 => drained += count,
                _ => return,
            }
        }
    }
}

impl Drop for HttpBody {
    fn drop(&mut self) {
        if self.lease.is_some() {
            self.drain();
        }
        if self.lease.is_some() {
            self.trace.fail(RequestFault::Unread, UNREAD);
        }
    }
}

fn truncated(missing: Option<u64>) -> Error {
    let message = match missing {
        Some(missing) => {
            format!("the server closed the connection {missing} bytes before the end of the answer")
        }
        None => "the server closed the connection before the end of the answer".to_string(),
    };
    Error::new(Kind::Corrupt, message).with_retry(Retry::BackOff)
}

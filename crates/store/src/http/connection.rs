//! One connection: sends a request, reads the head of the answer, then hands out body bytes.
//!
//! It knows nothing of pools or of what an answer means. Every wait ends by progress, by the peer,
//! or by the stall limit.

use crate::http::flowing::{Broken, FlowError, Flowing};
use crate::http::head::{HEAD_BYTES_MAX, Head, parse_head};
use crate::http::socket::Socket;
use crate::http::stall::Stall;
use crate::{Inflow, RequestFault};
use bytes::Bytes;
use penstock_base::door::setting;
use penstock_base::{Error, Kind, Result, Retry};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio_rustls::client::TlsStream;

/// First size of the buffer that heads and chunk sizes are read into. Body bytes that arrive with
/// the head are copied once more, so it is small against a usual body.
const BUFFER_BYTES: usize = 16 << 10;
/// Most pieces handed to one vectored write.
pub(crate) const SLICES_MAX: usize = 32;

fn stalled_hint() -> String {
    format!(
        "Check that a store listens at this endpoint. {} bounds one attempt, {} all of them",
        setting("stall_timeout_ms"),
        setting("request_deadline_ms")
    )
}

#[derive(Debug)]
pub(crate) enum Stream {
    Plain(Socket),
    Tls(Box<TlsStream<Buffered>>),
}

/// The socket below TLS. rustls asks for 4 KiB at a time; a buffer in between takes a dozen records
/// from the kernel in one call.
pub(crate) type Buffered = BufReader<Socket>;

/// Size of that buffer.
pub(crate) const TLS_BUFFER_BYTES: usize = 128 << 10;

/// A failed exchange, and whether any byte of an answer had arrived.
#[derive(Debug)]
pub(crate) struct ExchangeError {
    pub answered: bool,
    /// The peer closed or reset the connection without a byte of an answer.
    pub hung_up: bool,
    pub error: Error,
}

#[derive(Debug)]
pub(crate) struct Connection {
    stream: Stream,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    stall: Stall,
    has_stalled: bool,
}

impl Connection {
    pub(crate) fn new(stream: Stream, stall_limit: Duration) -> Self {
        Connection {
            stream,
            buffer: vec![0; BUFFER_BYTES],
            start: 0,
            end: 0,
            stall: Stall::new(stall_limit),
            has_stalled: false,
        }
    }

    /// Whether an idle connection still waits for a request. Asks the kernel, because the runtime
    /// may not have seen yet that the server closed it.
    pub(crate) fn is_idle(&mut self) -> bool {
        if self.start != self.end {
            return false;
        }
        let socket = match &self.stream {
            Stream::Plain(tcp) => tcp,
            Stream::Tls(tls) if tls.get_ref().0.buffer().is_empty() => tls.get_ref().0.get_ref(),
            Stream::Tls(_) => return false,
        };
        match socket.peek() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
            // A TLS session ticket may have arrived behind the last answer; let rustls take it.
            Ok(1..) if matches!(self.stream, Stream::Tls(_)) => {
                let mut byte = [0; 1];
                let mut context = Context::from_waker(Waker::noop());
                self.stream.poll_read(&mut context, &mut byte).is_pending()
            }
            _ => false,
        }
    }

    /// Sends a request and reads the head of the final answer. `whole` in the result is false when
    /// the answer came before the request was sent whole: the connection is then used up.
    pub(crate) async fn exchange(
        &mut self,
        head: &[u8],
        payload: &[Bytes],
    ) -> std::result::Result<(Head, bool), ExchangeError> {
        let mut outgoing = Outgoing::new(head, payload);
        let mut flushed = false;
        let mut write_error: Option<io::Error> = None;
        poll_fn(|context| {
            if !flushed && write_error.is_none() {
                match self.poll_send(context, &mut outgoing) {
                    Poll::Ready(Ok(())) => flushed = true,
                    // The server may have answered before it hung up: read that first.
                    Poll::Ready(Err(error)) => write_error = Some(error),
                    Poll::Pending => {}
                }
            }
            let answered = self.start != self.end;
            match self.poll_head(context) {
                Poll::Ready(Ok(head)) => Poll::Ready(Ok((head, flushed))),
                Poll::Ready(Err(error)) => {
                    let answered = answered || self.start != self.end;
                    let error = match write_error.take() {
                        Some(cause) if !answered => broken("while the request was sent", cause),
                        _ => error,
                    };
                    let hung_up = !answered && !self.has_stalled;
                    Poll::Ready(Err(ExchangeError { answered, hung_up, error }))
                }
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// The same with a body that is sent on as it comes in. Waiting for its sender is no stall;
    /// the sender's patience is its own affair.
    pub(crate) async fn exchange_flow(
        &mut self,
        head: &[u8],
        body: &mut dyn Inflow,
    ) -> std::result::Result<(Head, bool), FlowError> {
        let mut outgoing = Flowing::new(head, body.size_bytes());
        let mut write_error: Option<io::Error> = None;
        poll_fn(|context| {
            if !outgoing.is_flushed && write_error.is_none() {
                match self.poll_flow(context, &mut outgoing, body) {
                    Poll::Ready(Err(Broken::Body(error))) => {
                        return Poll::Ready(Err(FlowError { error, fault: RequestFault::Body }));
                    }
                    Poll::Ready(Err(Broken::Connection(error))) => write_error = Some(error),
                    Poll::Ready(Ok(())) | Poll::Pending => {}
                }
            }
            let answered = self.start != self.end;
            match self.poll_head(context) {
                Poll::Ready(Ok(head)) => Poll::Ready(Ok((head, outgoing.is_flushed))),
                Poll::Ready(Err(error)) => {
                    let error = match write_error.take() {
                        Some(cause) if !answered => broken("while the request was sent", cause),
                        _ => error,
                    };
                    Poll::Ready(Err(FlowError { error, fault: outgoing.fault() }))
                }
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    fn poll_flow(
        &mut self,
        context: &mut Context<'_>,
        outgoing: &mut Flowing,
        body: &mut dyn Inflow,
    ) -> Poll<std::result::Result<(), Broken>> {
        loop {
            let is_waiting = outgoing.refill(context, body).map_err(Broken::Body)?;
            if outgoing.pieces.is_empty() {
                if is_waiting {
                    self.stall.progress();
                    // What was written must leave: the peer may wait for it, we for the sender.
                    let flushed = self.stream.poll_flush(context).map_err(Broken::Connection)?;
                    let _ = flushed.is_ready();
                    return Poll::Pending;
                }
                let flushed = self.stream.poll_flush(context).map_err(Broken::Connection);
                outgoing.is_flushed = matches!(flushed, Poll::Ready(Ok(())));
                return flushed;
            }
            match outgoing.poll_write(&mut self.stream, context) {
                Poll::Ready(Ok(0)) => {
                    return Poll::Ready(Err(Broken::Connection(io::ErrorKind::WriteZero.into())));
                }
                Poll::Ready(Ok(written)) => {
                    self.stall.progress();
                    outgoing.advance(written);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Broken::Connection(error))),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        outgoing: &mut Outgoing<'_>,
    ) -> Poll<io::Result<()>> {
        while !outgoing.is_done() {
            let written = match outgoing.poll_write(&mut self.stream, context) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(result) => result?,
                Poll::Pending => return Poll::Pending,
            };
            self.stall.progress();
            outgoing.advance(written);
        }
        self.stream.poll_flush(context)
    }

    /// The head of the next final answer; 1xx ones are passed over.
    fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<Result<Head>> {
        loop {
            if self.start != self.end {
                match parse_head(&self.buffer[self.start..self.end]) {
                    Ok(Some((head, length))) => {
                        self.start += length;
                        if (100..200).contains(&head.status) && head.status != 101 {
                            continue;
                        }
                        return Poll::Ready(Ok(head));
                    }
                    Ok(None) => {}
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
            match self.poll_fill(context) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(closed_early())),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Whether reads only look what is there, without a timer: a body may be dropped on a thread
    /// that belongs to no runtime.
    pub(crate) fn set_glancing(&mut self, is_glancing: bool) {
        self.stall.turn_off(is_glancing);
    }

    /// The socket of a proxy connection after its tunnel stands.
    ///
    /// # Errors
    /// `Corrupt` when the proxy sent more than the head.
    pub(crate) fn into_tunnel(self) -> Result<Socket> {
        match self.stream {
            Stream::Plain(tcp) if self.start == self.end => Ok(tcp),
            _ => Err(Error::new(Kind::Corrupt, "the proxy sent bytes before the tunnel was used")),
        }
    }

    /// Bytes that were received and not yet taken.
    pub(crate) fn buffered(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Takes `count` of the buffered bytes.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end, "more consumed than was buffered");
    }

    /// Receives into the own buffer; 0 at the end of the stream.
    pub(crate) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<Result<usize>> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.end == self.buffer.len() {
                self.buffer.resize((self.end * 2).min(2 * HEAD_BYTES_MAX), 0);
            }
        }
        let result = self.stream.poll_read(context, &mut self.buffer[self.end..]);
        let read = match self.settle(context, result) {
            Poll::Ready(Ok(read)) => read,
            other => return other,
        };
        self.end += read;
        Poll::Ready(Ok(read))
    }

    /// Receives straight into the caller's buffer, as much as is there now; 0 at the end of the
    /// stream. The own buffer must be empty.
    pub(crate) fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<Result<usize>> {
        debug_assert!(self.start == self.end, "buffered bytes come first");
        let result = self.stream.poll_read(context, buf);
        self.settle(context, result)
    }

    /// Turns I/O results into ours, and long waits into errors.
    fn settle(
        &mut self,
        context: &mut Context<'_>,
        result: Poll<io::Result<usize>>,
    ) -> Poll<Result<usize>> {
        match result {
            Poll::Ready(Ok(count)) => {
                self.stall.progress();
                Poll::Ready(Ok(count))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(broken("while the answer was read", error))),
            Poll::Pending => self.stall.poll_stalled(context).map(|()| {
                self.has_stalled = true;
                let seconds = self.stall.limit().as_secs_f64();
                Err(Error::new(Kind::Unavailable, format!("nothing moved for {seconds} s"))
                    .with_retry(Retry::BackOff)
                    .with_hint(stalled_hint()))
            }),
        }
    }
}

impl Stream {
    fn poll_read(&mut self, context: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut space = ReadBuf::new(buf);
        let result = match self {
            Stream::Plain(tcp) => Pin::new(tcp).poll_read(context, &mut space),
            Stream::Tls(tls) => Pin::new(tls.as_mut()).poll_read(context, &mut space),
        };
        result.map_ok(|()| space.filled().len())
    }

    pub(crate) fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Plain(tcp) => Pin::new(tcp).poll_write_vectored(context, slices),
            Stream::Tls(tls) => Pin::new(tls.as_mut()).poll_write_vectored(context, slices),
        }
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(tcp) => Pin::new(tcp).poll_flush(context),
            Stream::Tls(tls) => Pin::new(tls.as_mut()).poll_flush(context),
        }
    }
}

/// Head and payload pieces on their way out, written together and never copied.
struct Outgoing<'a> {
    head: &'a [u8],
    payload: &'a [Bytes],
    /// Bytes of the first payload piece that are already out.
    offset: usize,
}

impl<'a> Outgoing<'a> {
    fn new(head: &'a [u8], payload: &'a [Bytes]) -> Self {
        Outgoing { head, payload, offset: 0 }
    }

    fn is_done(&self) -> bool {
        self.head.is_empty() && self.payload.iter().all(Bytes::is_empty)
    }

    fn poll_write(
        &self,
        stream: &mut Stream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        let first = self.payload.first().map(|piece| &piece[self.offset..]);
        let others = self.payload.iter().skip(1).map(|piece| &piece[..]);
        let pieces = std::iter::once(self.head).chain(first).chain(others);
        for (slot, piece) in slices.iter_mut().zip(pieces.filter(|piece| !piece.is_empty())) {
            *slot = IoSlice::new(piece);
            count += 1;
        }
        stream.poll_write(context, &slices[..count])
    }

    fn advance(&mut self, written: usize) {
        let from_head = written.min(self.head.len());
        self.head = &self.head[from_head..];
        let mut left = written - from_head;
        while let Some(piece) = self.payload.first() {
            let rest = piece.len() - self.offset;
            if left < rest {
                self.offset += left;
                return;
            }
            left -= rest;
            self.offset = 0;
            self.payload = &self.payload[1..];
        }
    }
}

fn broken(when: &str, cause: io::Error) -> Error {
    Error::new(Kind::Unavailable, format!("the connection broke {when}"))
        .with_retry(Retry::BackOff)
        .with_source(cause)
}

fn closed_early() -> Error {
    Error::new(Kind::Unavailable, "the server closed the connection before it answered")
        .with_retry(Retry::BackOff)
}

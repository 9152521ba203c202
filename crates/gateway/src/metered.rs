//! Counts the bytes of a connection as they pass, sends pieces of files where their stand-ins are,
//! and cuts it where the client takes none for long.

use crate::handover::Handover;
use crate::intake::Intake;
use crate::observed::StallTimer;
use crate::stats::Stats;
use crate::telemetry::Telemetry;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A connection whose bytes are added to [`Stats`].
pub struct Metered {
    stream: TcpStream,
    stats: Arc<Stats>,
    stall: StallTimer,
    telemetry: Arc<Telemetry>,
    handover: Arc<Handover>,
    intake: Arc<Intake>,
}

impl Metered {
    /// Counts `stream`'s bytes in `stats`; a write on which nothing moves for `stall_timeout` is an
    /// error. What is read may well be nothing for long: the next request. How much one read takes
    /// depends on how many connections `telemetry` counts.
    pub fn new(
        stream: TcpStream,
        stats: Arc<Stats>,
        stall_timeout: Duration,
        telemetry: Arc<Telemetry>,
    ) -> Self {
        let stall = StallTimer::new(stall_timeout);
        let (handover, intake) = Default::default();
        Metered { stream, stats, stall, telemetry, handover, intake }
    }

    /// Takes the pieces of files that this connection sends; only where nothing (such as TLS) comes
    /// between it and the HTTP layer.
    pub fn handover(&self) -> Arc<Handover> {
        self.handover.clone()
    }

    /// Learns from the requests of this connection how much one read should take.
    pub fn intake(&self) -> Arc<Intake> {
        self.intake.clone()
    }

    fn written(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<Result<usize>>,
    ) -> Poll<Result<usize>> {
        match written {
            Poll::Pending if self.stall.is_over(context) => {
                Poll::Ready(Err(Error::from(ErrorKind::TimedOut)))
            }
            Poll::Pending => Poll::Pending,
            Poll::Ready(written) => {
                self.stall.moved();
                if let Ok(written) = written {
                    self.stats.sent(written);
                }
                Poll::Ready(written)
            }
        }
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let before = buffer.filled().len();
        let most = self.intake.bytes_most(self.telemetry.connections_open.get()) as u64;
        ready!(Pin::new(&mut (&mut self.stream).take(most)).poll_read(context, buffer))?;
        self.stats.received(buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let this = &mut *self;
        let written = match this.handover.is_in(slices) {
            Ok(true) => this.handover.poll_send(&this.stream, context, slices),
            Ok(false) => Pin::new(&mut this.stream).poll_write_vectored(context, slices),
            Err(error) => Poll::Ready(Err(error)),
        };
        self.written(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

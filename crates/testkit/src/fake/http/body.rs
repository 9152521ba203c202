//! The body of a request: read when the handler asks, `100 Continue` first where it is awaited.

use super::head::{Framing, Request};
use super::wire::Wire;
use bytes::Bytes;
use std::io;
use tokio::time::sleep_until;

/// Largest body that any service takes in one request.
const BODY_BYTES_MAX: u64 = 5 << 30;
/// A body that nobody asked for is read and dropped up to here, so that the connection lives on.
const DRAIN_BYTES_MAX: u64 = 64 << 20;

/// Reads the body of one request.
#[derive(Debug)]
pub struct BodyReader<'a> {
    wire: &'a mut Wire,
    framing: Framing,
    expects_continue: bool,
    done: bool,
    /// Bytes of the body that were read.
    pub received: u64,
    /// Stop after so many bytes, as a connection cut in mid-upload does.
    pub cut_after: Option<u64>,
}

impl<'a> BodyReader<'a> {
    /// The body that follows a head.
    pub fn new(wire: &'a mut Wire, request: &Request) -> Self {
        let done = request.framing == Framing::Length(0);
        BodyReader {
            wire,
            framing: request.framing,
            expects_continue: request.expects_continue && !done,
            done,
            received: 0,
            cut_after: None,
        }
    }

    /// The whole body: one buffer where its length was told, one for each chunk otherwise.
    ///
    /// # Errors
    /// When the connection breaks, or the body ends before its told length.
    pub async fn read_all(&mut self) -> io::Result<Vec<Bytes>> {
        if self.done {
            return Ok(Vec::new());
        }
        self.invite().await?;
        if let Some(most) = self.cut_after {
            let bytes = self.wire.read_exact(most as usize).await?;
            self.received += bytes.len() as u64;
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let pieces = match self.framing {
            Framing::Length(length) => vec![self.sized(length).await?],
            Framing::Chunked => self.chunks().await?,
        };
        self.done = true;
        Ok(pieces)
    }

    async fn invite(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.expects_continue) && !self.wire.has_buffered() {
            let latency = self.wire.link().options.latency;
            if !latency.is_zero() {
                sleep_until(self.wire.last_read + latency).await;
            }
            self.wire.send(&[Bytes::from_static(b"HTTP/1.1 100 Continue\r\n\r\n")]).await?;
        }
        Ok(())
    }

    async fn sized(&mut self, length: u64) -> io::Result<Bytes> {
        if self.received + length > BODY_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let bytes = self.wire.read_exact(length as usize).await?;
        self.received += bytes.len() as u64;
        if bytes.len() as u64 != length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes)
    }

    async fn chunks(&mut self) -> io::Result<Vec<Bytes>> {
        let mut pieces = Vec::new();
        loop {
            let line = self.wire.read_line().await?;
            let size = line.split(';').next().unwrap_or("").trim();
            let size = u64::from_str_radix(size, 16).map_err(io::Error::other)?;
            if size == 0 {
                while !self.wire.read_line().await?.is_empty() {}
                return Ok(pieces);
            }
            pieces.push(self.sized(size).await?);
            if !self.wire.read_line().await?.is_empty() {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    }

    /// Makes the connection ready for the next request; false when it has to be closed, because
    /// the client still holds back a body or sends one too long to be dropped.
    pub async fn finish(&mut self) -> bool {
        if self.done {
            return true;
        }
        if self.expects_continue && !self.wire.has_buffered() {
            return false;
        }
        self.expects_continue = false;
        match self.framing {
            Framing::Length(length) if length > DRAIN_BYTES_MAX => false,
            _ => self.read_all().await.is_ok(),
        }
    }
}

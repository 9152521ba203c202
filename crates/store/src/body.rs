//! The bytes of an answer, read straight into the caller's buffer.

use crate::answer::UNKNOWN_END;
use crate::http::HttpBody;
use crate::local::{FileBody, FilePiece};
use crate::unpack::Unpacked;
use bytes::Bytes;
use penstock_base::{ByteRange, Error, Kind, Result, Retry};
use std::future::poll_fn;
use std::task::{Context, Poll};

/// Unwanted bytes are passed over in pieces of this size.
const SKIP_BUFFER_BYTES: u64 = 256 << 10;

/// Where the bytes of a store come from that is none of ours, such as a simulated one.
pub trait BodySource: Send + Sync + std::fmt::Debug {
    /// Bytes still to come.
    fn remaining(&self) -> u64;

    /// Reads up to `buf.len()` bytes; 0 at the end.
    fn poll_read(&mut self, context: &mut Context<'_>, buf: &mut [u8]) -> Poll<Result<usize>>;
}

/// A body that is read once, front to back. Each byte is copied once: from the socket (or the TLS
/// buffer, or the page cache) into the buffer that the caller gave.
#[derive(Debug)]
pub enum Body {
    /// Bytes already in memory.
    Memory(Bytes),
    /// Bytes that arrive on a connection.
    Http(Box<HttpBody>),
    /// A stretch of a local file.
    File(Box<FileBody>),
    /// Bytes of somebody else's store.
    Source(Box<dyn BodySource>),
    /// What a server packed, unpacked.
    Unpacked(Box<Unpacked>),
    /// Bytes in memory, and what follows them.
    Joined(Bytes, Box<Body>),
    /// The first bytes of a body, so many.
    Limited(u64, Box<Body>),
}

impl Body {
    /// Reads up to `buf.len()` bytes; 0 at the end of the body.
    ///
    /// # Errors
    /// `Unavailable` (retry) when the connection breaks or stalls; `Corrupt` when it ends early.
    pub async fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        poll_fn(|context| self.poll_read(context, buf)).await
    }

    /// Fills `buf` as far as the body goes; fewer bytes mean its end.
    ///
    /// # Errors
    /// As [`Body::read`].
    pub async fn read_full(&mut self, buf: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        poll_fn(|context| {
            while filled < buf.len() {
                match self.poll_read(context, &mut buf[filled..]) {
                    Poll::Ready(Ok(0)) => break,
                    Poll::Ready(Ok(count)) => filled += count,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => return Poll::Pending,
                }
            }
            Poll::Ready(Ok(filled))
        })
        .await
    }

    /// Fills `buf` to its end.
    ///
    /// # Errors
    /// As [`Body::read`], and `Corrupt` (retry) when the body is shorter.
    pub async fn read_exact(&mut self, buf: &mut [u8]) -> Result<()> {
        let filled = self.read_full(buf).await?;
        if filled == buf.len() {
            return Ok(());
        }
        Err(Error::new(
            Kind::Corrupt,
            format!("the answer ended after {filled} of {} bytes", buf.len()),
        )
        .with_retry(Retry::BackOff))
    }

    /// The whole body, for small answers.
    ///
    /// # Errors
    /// As [`Body::read`], and `Corrupt` when it is longer than `limit` bytes.
    pub async fn read_to_bytes(&mut self, limit: usize) -> Result<Bytes> {
        let expected = self.remaining().and_then(|length| usize::try_from(length).ok());
        let over = || Error::new(Kind::Corrupt, format!("the answer is longer than {limit} bytes"));
        if expected.is_some_and(|length| length > limit) {
            return Err(over());
        }
        // One byte of room beyond the expected length meets the end without growing.
        let mut all = vec![0; expected.map_or(8 << 10, |length| length + 1)];
        let mut filled = 0;
        loop {
            let count = self.read_full(&mut all[filled..]).await?;
            filled += count;
            if filled < all.len() {
                all.truncate(filled);
                return if filled > limit { Err(over()) } else { Ok(all.into()) };
            }
            if filled > limit {
                return Err(over());
            }
            all.resize(filled * 2, 0);
        }
    }

    /// The next bytes, at most `most`, as a piece of a file that is in the kernel's cache; they
    /// count as read. `None` where there is no such piece: then they are to be read.
    pub fn take_cached(&mut self, most: u64) -> Option<FilePiece> {
        match self {
            Body::File(body) => body.take_cached(most),
            _ => None,
        }
    }

    /// Names the object in errors of later reads, as a URL without credentials.
    #[must_use]
    pub fn named(mut self, object: &str) -> Self {
        if let Body::Http(body) = &mut self {
            body.set_object(object);
        }
        self
    }

    /// Passes over `skip` bytes and ends where `range` does: for answers that carry more than was
    /// asked for.
    pub(crate) async fn window(mut self, skip: u64, range: ByteRange) -> Result<Self> {
        let mut left = skip;
        let mut scratch = vec![0; usize::try_from(skip.min(SKIP_BUFFER_BYTES)).unwrap_or(0)];
        while left > 0 {
            let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(scratch.len());
            match self.read(&mut scratch[..wanted]).await? {
                // The object ends before the range: what is left of it is nothing.
                0 => break,
                count => left -= count as u64,
            }
        }
        if range.end == UNKNOWN_END || self.remaining() == Some(range.len()) {
            return Ok(self);
        }
        Ok(Body::Limited(range.len(), Box::new(self)))
    }

    /// Bytes still to come, where that is known.
    fn remaining(&self) -> Option<u64> {
        match self {
            Body::Memory(bytes) => Some(bytes.len() as u64),
            Body::Http(body) => body.remaining(),
            Body::File(body) => Some(body.remaining()),
            Body::Source(body) => Some(body.remaining()),
            Body::Unpacked(_) => None,
            Body::Joined(first, rest) => Some(first.len() as u64 + rest.remaining()?),
            Body::Limited(left, body) => Some(body.remaining()?.min(*left)),
        }
    }

    pub(crate) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<Result<usize>> {
        match self {
            Body::Memory(bytes) => {
                let taken = bytes.split_to(buf.len().min(bytes.len()));
                buf[..taken.len()].copy_from_slice(&taken);
                Poll::Ready(Ok(taken.len()))
            }
            Body::Http(body) => body.poll_read(context, buf),
            Body::File(body) => body.poll_read(context, buf),
            Body::Source(body) => body.poll_read(context, buf),
            Body::Unpacked(body) => body.poll_read(context, buf),
            Body::Joined(first, rest) if first.is_empty() => rest.poll_read(context, buf),
            Body::Joined(first, _) => {
                let taken = first.split_to(buf.len().min(first.len()));
                buf[..taken.len()].copy_from_slice(&taken);
                Poll::Ready(Ok(taken.len()))
            }
            Body::Limited(left, body) => {
                let wanted = usize::try_from(*left).unwrap_or(usize::MAX).min(buf.len());
                let answer = body.poll_read(context, &mut buf[..wanted]);
                if let Poll::Ready(Ok(count)) = &answer {
                    *left -= *count as u64;
                }
                answer
            }
        }
    }
}

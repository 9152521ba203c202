//! A connection: heads in, answers out, with the emulated link in between.

use super::super::data::{Piece, read_file};
use super::super::link::Link;
use super::head::{self, BadHead, Request};
use bytes::{BufMut, Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Bytes asked of the kernel when a head is expected.
const READ_BYTES: usize = 16 << 10;
/// Most slices given to the kernel at once.
const SLICES_MAX: usize = 64;
/// Bytes of a file that are read ahead of sending.
const FILE_BYTES: u64 = 1 << 20;

/// Bytes counted over all connections.
#[derive(Debug, Default)]
pub struct Counters {
    /// Received, heads included.
    pub bytes_in: AtomicU64,
    /// Sent, heads included.
    pub bytes_out: AtomicU64,
}

/// A connection.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    buf: BytesMut,
    link: Arc<Link>,
    counters: Arc<Counters>,
    /// When the last byte of the request came in; the emulated round trip counts from here.
    pub last_read: Instant,
    /// When the client's connection came in.
    pub accepted: Instant,
    /// When the first bytes of its first request came in.
    pub first_read: Instant,
    serial: u64,
}

impl Wire {
    /// Takes over a connection.
    pub fn new(stream: TcpStream, link: Arc<Link>, counters: Arc<Counters>, serial: u64) -> Self {
        let buf = BytesMut::with_capacity(READ_BYTES);
        let accepted = Instant::now();
        let (last_read, first_read) = (accepted, accepted);
        Wire { stream, buf, link, counters, last_read, accepted, first_read, serial }
    }

    /// The emulated link.
    pub fn link(&self) -> &Arc<Link> {
        &self.link
    }

    async fn fill(&mut self, most: usize) -> io::Result<usize> {
        self.buf.reserve(READ_BYTES.min(most));
        let read = self.stream.read_buf(&mut (&mut self.buf).limit(most)).await?;
        self.received(read).await;
        Ok(read)
    }

    async fn received(&mut self, bytes: usize) {
        self.counters.bytes_in.fetch_add(bytes as u64, Ordering::Relaxed);
        if self.first_read == self.accepted {
            self.first_read = Instant::now();
        }
        self.link.receive(bytes as u64).await;
        self.last_read = Instant::now();
    }

    /// The next request's head; `Ok(None)` when the client is done.
    ///
    /// # Errors
    /// The outer error is the connection's, the inner one the head's.
    pub async fn read_head(&mut self) -> io::Result<Result<Option<Request>, BadHead>> {
        loop {
            match head::parse(&self.buf, self.serial) {
                Ok(Some((request, taken))) => {
                    let _ = self.buf.split_to(taken);
                    return Ok(Ok(Some(request)));
                }
                Ok(None) => {}
                Err(bad) => return Ok(Err(bad)),
            }
            if self.fill(usize::MAX).await? == 0 {
                return match self.buf.is_empty() {
                    true => Ok(Ok(None)),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }

    /// Exactly so many bytes, in one buffer of the right size; short only when the client ends.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn read_exact(&mut self, len: usize) -> io::Result<Bytes> {
        let held = self.buf.len().min(len);
        let mut bytes = BytesMut::with_capacity(len);
        bytes.put_slice(&self.buf.split_to(held));
        while bytes.len() < len {
            let room = (len - bytes.len()).min(self.link.chunk_in());
            let read = self.stream.read_buf(&mut (&mut bytes).limit(room)).await?;
            if read == 0 {
                break;
            }
            self.received(read).await;
        }
        Ok(bytes.freeze())
    }

    /// A line of a chunked body, without its end.
    ///
    /// # Errors
    /// When the connection breaks or the line is longer than any legal one.
    pub async fn read_line(&mut self) -> io::Result<String> {
        loop {
            if let Some(at) = self.buf.iter().position(|byte| *byte == b'\n') {
                let line = self.buf.split_to(at + 1);
                let line = std::str::from_utf8(&line).map_err(io::Error::other)?;
                return Ok(line.trim_end_matches(['\r', '\n']).to_string());
            }
            if self.buf.len() > head::HEAD_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if self.fill(usize::MAX).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Whether bytes of the client wait unread in the buffer.
    pub fn has_buffered(&self) -> bool {
        !self.buf.is_empty()
    }

    /// Sends bytes at the pace of the link.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn send(&mut self, pieces: &[Bytes]) -> io::Result<()> {
        let mut queue: VecDeque<Bytes> =
            pieces.iter().filter(|piece| !piece.is_empty()).cloned().collect();
        // Bytes that have passed the emulated link but not yet the kernel.
        let mut passed = 0;
        while !queue.is_empty() {
            let most = self.link.chunk_out();
            let mut slices = Vec::with_capacity(queue.len().min(SLICES_MAX));
            let mut planned = 0;
            for piece in queue.iter().take(SLICES_MAX) {
                let len = piece.len().min(most - planned);
                slices.push(IoSlice::new(&piece[..len]));
                planned += len;
                if planned == most {
                    break;
                }
            }
            self.link.send(planned.saturating_sub(passed) as u64).await;
            let wrote = self.stream.write_vectored(&slices).await?;
            if wrote == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.counters.bytes_out.fetch_add(wrote as u64, Ordering::Relaxed);
            passed = planned.max(passed) - wrote;
            advance(&mut queue, wrote);
        }
        Ok(())
    }

    /// Sends a head and the body behind it; files are read piece by piece.
    ///
    /// # Errors
    /// When the connection breaks or a file cannot be read.
    pub async fn send_answer(&mut self, head: Vec<u8>, body: &[Piece]) -> io::Result<()> {
        let mut ready = vec![Bytes::from(head)];
        for piece in body {
            match piece {
                Piece::Memory(bytes) => ready.push(bytes.clone()),
                Piece::File { file, offset, len } => {
                    let mut at = 0;
                    while at < *len {
                        let part = (*len - at).min(FILE_BYTES);
                        ready.push(read_file(file.clone(), offset + at, part as usize).await?);
                        at += part;
                        self.send(&std::mem::take(&mut ready)).await?;
                    }
                }
            }
        }
        self.send(&ready).await
    }

    /// Waits until the client hangs up or the time is over, whichever is first.
    pub async fn hold(&mut self, longest: Duration) {
        let gone = async {
            let mut byte = [0; 1024];
            while self.stream.read(&mut byte).await.is_ok_and(|read| read > 0) {}
        };
        let _ = tokio::time::timeout(longest, gone).await;
    }

    /// Ends the connection with a reset, which the client sees as an error at once.
    pub fn reset(self) {
        // Lingering for no time makes the kernel answer with RST instead of FIN.
        let _ = self.stream.set_zero_linger();
    }

    /// Ends the connection in order.
    pub async fn finish(mut self) {
        let _ = self.stream.shutdown().await;
    }
}

fn advance(queue: &mut VecDeque<Bytes>, mut sent: usize) {
    while let Some(first) = queue.front_mut() {
        if first.len() > sent {
            let _ = first.split_to(sent);
            return;
        }
        sent -= first.len();
        queue.pop_front();
    }
}

//! Lets the kernel send files: their bytes go from the page cache to the socket and are never read.
//!
//! An answer's body passes the HTTP layer as pieces of bytes. For a piece of a file a *stand-in*
//! passes: so many bytes of one static buffer, known by their address. The connection sends the
//! file's bytes wherever it is given a stand-in. The stand-ins' own bytes never leave: every write
//! must show exactly the pieces that are due, in order and in full length, each as one slice of the
//! buffer. Where they were copied, cut or dropped on the way that does not hold, and the connection
//! ends before anything of that write is sent.

use bytes::Bytes;
use penstock_store::FilePiece;
use rustix::net::SendFlags;
use std::collections::VecDeque;
use std::future::Future as _;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::io::Interest;
use tokio::net::TcpStream;

#[cfg(test)]
mod tests;

/// Largest piece: what one call may read, should the kernel have dropped it since.
pub const PIECE_BYTES_MAX: usize = 1 << 20;
/// Bodies below this are read: where one call sends head and body, a copy costs less.
pub const BODY_BYTES_MIN: u64 = 1 << 20;
/// Bytes after which the thread's other connections have their turn, however fast this client is.
const TURN_BYTES: usize = 8 << 20;

/// Never written to and never sent, so it takes no memory.
static STAND_IN: [u8; PIECE_BYTES_MAX] = [0; PIECE_BYTES_MAX];

/// The pieces of files that one connection is to send.
#[derive(Debug, Default)]
pub struct Handover {
    due: Mutex<Due>,
}

#[derive(Debug, Default)]
struct Due {
    pieces: VecDeque<FilePiece>,
    /// Sent since others had their turn.
    sent_bytes: usize,
}

fn is_stand_in(bytes: &[u8]) -> bool {
    STAND_IN.as_ptr_range().contains(&bytes.as_ptr())
}

fn broken(why: &str) -> Error {
    Error::new(ErrorKind::InvalidData, why)
}

impl Handover {
    fn due(&self) -> MutexGuard<'_, Due> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a piece of at most [`PIECE_BYTES_MAX`] bytes, to be sent where its stand-in is.
    pub fn stand_in(&self, piece: FilePiece) -> Bytes {
        let len = usize::try_from(piece.range.end - piece.range.start).unwrap_or(usize::MAX);
        self.due().pieces.push_back(piece);
        Bytes::from_static(&STAND_IN[..len])
    }

    /// Whether there is a stand-in among the slices of a write.
    ///
    /// # Errors
    /// `InvalidData` where they do not show every piece that is due, and no other.
    pub fn is_in(&self, slices: &[IoSlice<'_>]) -> Result<bool> {
        let due = self.due();
        let mut pieces = due.pieces.iter();
        for slice in slices.iter().filter(|slice| !slice.is_empty() && is_stand_in(slice)) {
            let piece = pieces.next().map(|piece| piece.range.end - piece.range.start);
            if piece != Some(slice.len() as u64) {
                return Err(broken("a stand-in without its piece"));
            }
        }
        match pieces.next() {
            None => Ok(!due.pieces.is_empty()),
            Some(_) => Err(broken("a piece without its stand-in")),
        }
    }

    /// Sends some of `slices`, of which [`Handover::is_in`] said yes: bytes as they are, a piece of
    /// a file for a stand-in.
    ///
    /// # Errors
    /// The socket's, and `InvalidData` for a file that ended before its piece.
    pub fn poll_send(
        &self,
        stream: &TcpStream,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let Some(first) = slices.iter().find(|slice| !slice.is_empty()) else {
            return Poll::Ready(Ok(0));
        };
        let mut due = self.due();
        if due.sent_bytes >= TURN_BYTES {
            due.sent_bytes = 0;
            // Woken once the others had it: a wake-up now would be another poll at once.
            let yielded = pin!(tokio::task::yield_now()).poll(context);
            debug_assert!(yielded.is_pending(), "the first poll yields");
            return Poll::Pending;
        }
        loop {
            if stream.poll_write_ready(context)?.is_pending() {
                due.sent_bytes = 0;
                return Poll::Pending;
            }
            let sent = stream.try_io(Interest::WRITABLE, || match is_stand_in(first) {
                true => due.send_first(stream),
                // The body follows at once: no packet of its own for the head.
                false => {
                    let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
                    Ok(rustix::net::send(stream, first, flags)?)
                }
            });
            match sent {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
        }
    }
}

impl Due {
    fn send_first(&mut self, stream: &TcpStream) -> Result<usize> {
        let piece = self.pieces.front_mut().ok_or_else(|| broken("nothing is due"))?;
        let len = usize::try_from(piece.range.end - piece.range.start).unwrap_or(usize::MAX);
        let sent = rustix::fs::sendfile(stream, &piece.file, Some(&mut piece.range.start), len)?;
        if sent == 0 {
            return Err(broken("the file was cut while it was sent"));
        }
        if piece.range.is_empty() {
            self.pieces.pop_front();
        }
        self.sent_bytes += sent;
        Ok(sent)
    }
}

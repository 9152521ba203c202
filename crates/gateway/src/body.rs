//! Streams an object's body to a client, or into another store, in bounded pieces.

use crate::checksum::{Algorithm, Maker, Sums};
use crate::handover::{self, Handover};
use crate::pieces::Pieces;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use penstock_base::{Error, Kind, Result};
use penstock_engine::Stream;
use penstock_store::Inflow;
use s3s::StdError;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

/// Buffers of one body that are read into again: new ones would have to be zeroed first, which
/// costs half as much as the read.
type Pool = Arc<Mutex<Vec<Vec<u8>>>>;

/// A filled buffer on its way to the socket; it goes back to its pool.
struct Piece {
    buffer: Vec<u8>,
    filled: usize,
    pool: Pool,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        self.pool.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
    }
}

type Reading = Pin<Box<dyn Future<Output = (Box<Stream>, Result<Bytes>)> + Send>>;

enum State {
    Idle(Box<Stream>),
    Reading(Reading),
    Done,
}

/// The body of a GET: exactly `remaining` bytes, or a broken connection. A short body is never
/// passed off as a whole one.
pub struct ObjectBody {
    state: State,
    remaining: u64,
    pieces: Pieces,
    pool: Pool,
    /// Where pieces of files are sent by the kernel.
    handover: Option<Arc<Handover>>,
}

impl ObjectBody {
    /// Sends `len` bytes of `body`.
    pub fn new(body: Stream, len: u64) -> Self {
        let state = State::Idle(Box::new(body));
        let (pieces, pool) = Default::default();
        ObjectBody { state, remaining: len, pieces, pool, handover: None }
    }

    /// Lets the kernel send what it has of a file.
    #[must_use]
    pub fn handing_over(mut self, handover: Option<Arc<Handover>>) -> Self {
        self.handover = handover.filter(|_| self.remaining >= handover::BODY_BYTES_MIN);
        self
    }

    /// The next bytes, if the kernel can send them.
    fn stand_in(&mut self) -> Option<Bytes> {
        let (Some(handover), State::Idle(body)) = (&self.handover, &mut self.state) else {
            return None;
        };
        let most = self.remaining.min(handover::PIECE_BYTES_MAX as u64);
        Some(handover.stand_in(body.take_cached(most)?))
    }
}

/// Reads at most `len` bytes into a buffer of `size`, or of `len` where that is less.
async fn read_piece(
    mut body: Box<Stream>,
    (size, len): (usize, usize),
    pool: Pool,
) -> (Box<Stream>, Result<Bytes>) {
    let buffer = pool.lock().unwrap_or_else(PoisonError::into_inner).pop();
    // A larger one was for larger pieces.
    let buffer = buffer.filter(|buffer| (len..=size).contains(&buffer.len()));
    let mut buffer = buffer.unwrap_or_else(|| vec![0; len]);
    let piece = match body.read(&mut buffer[..len]).await {
        Ok(0) => Err(Error::new(Kind::Corrupt, "the object ended before its size")),
        Ok(filled) => Ok(Bytes::from_owner(Piece { buffer, filled, pool })),
        Err(error) => Err(error),
    };
    (body, piece)
}

impl ObjectBody {
    fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        if self.remaining == 0 {
            self.state = State::Done;
            return Poll::Ready(None);
        }
        if let Some(stand_in) = self.stand_in() {
            self.remaining -= stand_in.len() as u64;
            return Poll::Ready(Some(Ok(stand_in)));
        }
        if let State::Idle(..) = self.state
            && let State::Idle(body) = std::mem::replace(&mut self.state, State::Done)
        {
            let size = self.pieces.size();
            let len = self.remaining.min(size as u64) as usize;
            self.state = State::Reading(Box::pin(read_piece(body, (size, len), self.pool.clone())));
        }
        let State::Reading(reading) = &mut self.state else { return Poll::Ready(None) };
        let (body, piece) = ready!(reading.as_mut().poll(context));
        match piece {
            Ok(bytes) => {
                self.remaining -= bytes.len() as u64;
                self.pieces.came(bytes.len());
                self.state = State::Idle(body);
                Poll::Ready(Some(Ok(bytes)))
            }
            Err(error) => {
                self.state = State::Done;
                self.remaining = 0;
                Poll::Ready(Some(Err(error)))
            }
        }
    }
}

impl http_body::Body for ObjectBody {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let piece = ready!(self.poll_bytes(context));
        Poll::Ready(piece.map(|piece| match piece {
            Ok(bytes) => Ok(Frame::data(bytes)),
            Err(error) => Err(Box::new(error) as StdError),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining)
    }
}

/// The bytes of one version of an object on their way into another: the source of a copy that no
/// store makes by itself.
pub struct CopyFlow {
    body: ObjectBody,
    size_bytes: u64,
    /// Until the last byte has passed.
    maker: Option<Maker>,
    made: Made,
}

/// The checksum of a body that was given away, once it has passed; none where none was wanted.
#[derive(Clone, Debug, Default)]
pub struct Made(Arc<Mutex<Sums>>);

impl Made {
    /// What it came to.
    pub fn sums(&self) -> Sums {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl CopyFlow {
    /// Moves what is left of `source`.
    pub fn new(source: Stream) -> Self {
        let size_bytes = source.range().len();
        let body = ObjectBody::new(source, size_bytes);
        CopyFlow { body, size_bytes, maker: None, made: Made::default() }
    }

    /// Makes a checksum of the bytes on their way.
    #[must_use]
    pub fn summed(mut self, algorithm: Option<Algorithm>) -> (Self, Made) {
        self.maker = algorithm.map(Maker::new);
        self.end_if_all_passed();
        let made = self.made.clone();
        (self, made)
    }

    /// Whoever takes the last byte may ask at once.
    fn end_if_all_passed(&mut self) {
        if self.body.remaining == 0
            && let Some(maker) = self.maker.take()
        {
            *self.made.0.lock().unwrap_or_else(PoisonError::into_inner) = maker.finish();
        }
    }
}

impl std::fmt::Debug for CopyFlow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CopyFlow").field("size_bytes", &self.size_bytes).finish_non_exhaustive()
    }
}

impl Inflow for CopyFlow {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        let piece = ready!(self.body.poll_bytes(context));
        match (&piece, &mut self.maker) {
            (Some(Ok(bytes)), Some(maker)) => {
                maker.update(bytes);
                self.end_if_all_passed();
            }
            // A broken body has no checksum.
            (Some(Err(_)), maker) => *maker = None,
            _ => {}
        }
        Poll::Ready(piece)
    }

    fn late_metadata(&self) -> Vec<(String, String)> {
        self.made.sums().notes()
    }
}

//! Streams an object's body to a client, or into another store, in bounded pieces.

use crate::checksum::{Algorithm, Maker};
use crate::handover::{self, Handover};
use crate::judged::StillTheirs;
use crate::pieces::Pieces;
use crate::receive::Verdict;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use penstock_base::{Error, Kind, Result};
use penstock_engine::Stream;
use penstock_store::Inflow;
use s3s::{S3Error, S3Result, StdError};
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

    /// The next bytes, if they need not be read.
    fn at_hand(&mut self) -> Option<Bytes> {
        if let Some(stand_in) = self.stand_in() {
            return Some(stand_in);
        }
        let State::Idle(body) = &mut self.state else { return None };
        body.take_kept(self.remaining)
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
        if let Some(bytes) = self.at_hand() {
            self.remaining -= bytes.len() as u64;
            return Poll::Ready(Some(Ok(bytes)));
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
    /// `None` once it is answered.
    still: Option<StillTheirs>,
    /// The last piece, until then.
    held: Option<Bytes>,
    verdict: Verdict,
}

impl CopyFlow {
    /// Moves what is left of `source`.
    pub fn new(source: Stream) -> Self {
        let size_bytes = source.range().len();
        let body = ObjectBody::new(source, size_bytes);
        let (maker, still, held) = (None, None, None);
        CopyFlow { body, size_bytes, maker, still, held, verdict: Verdict::default() }
    }

    /// Makes a checksum of the bytes on their way.
    #[must_use]
    pub fn summed(mut self, algorithm: Option<Algorithm>) -> Self {
        self.maker = algorithm.map(Maker::new);
        self.end_if_all_passed();
        self
    }

    /// To be kept only if the bucket is whose it was, once the bytes have come: a large source
    /// takes its time.
    ///
    /// # Errors
    /// As of asking now, where there are no bytes: stores need not look for their end.
    pub async fn if_still(mut self, still: Option<StillTheirs>) -> S3Result<Self> {
        match still {
            Some(still) if self.size_bytes == 0 => still.await?,
            still => self.still = still,
        }
        Ok(self)
    }

    /// What becomes of it, with the checksum that is made on its way.
    pub fn verdict(&self) -> Verdict {
        self.verdict.clone()
    }

    /// Whoever takes the last byte may ask at once.
    fn end_if_all_passed(&mut self) {
        if self.body.remaining == 0
            && let Some(maker) = self.maker.take()
        {
            self.verdict.has_sums(maker.finish());
        }
    }

    /// Ends the flow before its last piece.
    fn refuse(&mut self, refusal: S3Error) -> Poll<Option<Result<Bytes>>> {
        (self.still, self.held) = (None, None);
        Poll::Ready(Some(Err(self.verdict.refuse(refusal))))
    }

    /// Asks what is to be asked once all bytes have come, and lets the last piece go.
    fn end(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        if let Some(still) = &mut self.still {
            if let Err(refusal) = ready!(still.as_mut().poll(context)) {
                return self.refuse(refusal);
            }
            self.still = None;
        }
        Poll::Ready(self.held.take().map(Ok))
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
        if self.held.is_some() {
            return self.end(context);
        }
        match ready!(self.body.poll_bytes(context)) {
            Some(Ok(bytes)) => {
                if let Some(maker) = &mut self.maker {
                    maker.update(&bytes);
                    self.end_if_all_passed();
                }
                if self.body.remaining > 0 {
                    return Poll::Ready(Some(Ok(bytes)));
                }
                self.held = Some(bytes);
                self.end(context)
            }
            // A broken body has no checksum, and is not asked about.
            Some(Err(error)) => {
                (self.maker, self.still) = (None, None);
                Poll::Ready(Some(Err(error)))
            }
            None => Poll::Ready(None),
        }
    }

    fn late_metadata(&self) -> Vec<(String, String)> {
        self.verdict.sums().notes()
    }
}

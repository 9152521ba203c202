//! The bytes of a body in chunks, as they come.

use super::chain::Chain;
use super::{Event, Fault, Frames, Kind};
use bytes::{Bytes, BytesMut};
use http::{Extensions, HeaderMap};
use http_body::Frame;
use s3s::{Body, StdError};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

/// A piece that is shorter than this is copied.
const SMALL_BYTES: usize = 4 << 10;

/// What follows a body in chunks, once all of it was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trailers(Arc<Mutex<Option<HeaderMap>>>);

impl Trailers {
    /// Those of a request, if its body is in chunks.
    pub fn of(extensions: &Extensions) -> Option<Self> {
        extensions.get().cloned()
    }

    /// What came, once.
    pub fn take(&self) -> Option<HeaderMap> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn tell(&self, headers: HeaderMap) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(headers);
    }
}

/// A body without its chunks. It ends well only if they do, and their signatures hold.
pub(crate) struct Unchunked {
    body: Body,
    kind: Kind,
    /// `None` where nobody signed the head.
    chain: Option<Chain>,
    frames: Frames,
    /// What came and is not taken apart yet.
    input: Bytes,
    /// What is taken apart and was not passed on, since what came before it stood in small pieces.
    next: Option<Bytes>,
    /// Whether the chunk that is passing bears a signature.
    is_signed: bool,
    trailers: Trailers,
    /// Whether the head announces any.
    is_announced: bool,
    is_over: bool,
}

impl Unchunked {
    /// Takes `body` apart; what follows its chunks, if that `is_announced`, is told to `trailers`.
    pub fn new(
        body: Body,
        kind: Kind,
        chain: Option<Chain>,
        trailers: Trailers,
        is_announced: bool,
    ) -> Self {
        Unchunked {
            body,
            kind,
            chain,
            frames: Frames::default(),
            input: Bytes::new(),
            next: None,
            is_signed: false,
            trailers,
            is_announced,
            is_over: false,
        }
    }

    /// A chunk begins. A signature that nobody asked for has to hold as well.
    fn begin(&mut self, is_last: bool, signature: Option<String>) -> Result<(), Fault> {
        self.is_signed = signature.is_some();
        match (signature, &mut self.chain, self.kind) {
            (None, _, Kind::Unsigned) => Ok(()),
            (Some(signature), Some(chain), _) => {
                chain.begin(signature);
                if is_last { chain.end() } else { Ok(()) }
            }
            (None, _, Kind::Signed { .. }) | (Some(_), None, _) => Err(Fault::Malformed),
        }
    }

    fn pass(&mut self, bytes: &[u8], ends_chunk: bool) -> Result<(), Fault> {
        let Some(chain) = self.chain.as_mut().filter(|_| self.is_signed) else { return Ok(()) };
        chain.update(bytes);
        if ends_chunk { chain.end() } else { Ok(()) }
    }

    fn end(&mut self) -> Result<(), Fault> {
        let trailer = self.frames.end()?;
        match (&trailer.signature, &self.chain, self.kind) {
            (Some(signature), Some(chain), _) => chain.trailer(&trailer, signature)?,
            (None, _, Kind::Unsigned) => {}
            (None, _, Kind::Signed { has_trailer }) if trailer.fields.is_empty() => {
                if has_trailer {
                    return Err(Fault::NoTrailer);
                }
            }
            (None, _, Kind::Signed { .. }) | (Some(_), None, _) => return Err(Fault::Malformed),
        }
        // A checksum that is passed over would not be compared.
        if !self.is_announced && !trailer.fields.is_empty() {
            return Err(Fault::Unannounced);
        }
        self.trailers.tell(trailer.headers()?);
        Ok(())
    }

    /// The next bytes that `input` has; `None` where more of the body has to come. Small pieces are
    /// copied together: each would hold all that came with it, frames of any length among it.
    fn taken(&mut self) -> Result<Option<Bytes>, Fault> {
        if let Some(next) = self.next.take() {
            return Ok(Some(next));
        }
        let mut small = BytesMut::new();
        while let Some(event) = self.frames.next(&mut self.input)? {
            let bytes = match event {
                Event::Chunk { is_last, signature } => {
                    self.begin(is_last, signature)?;
                    continue;
                }
                Event::Data { bytes, ends_chunk } => {
                    self.pass(&bytes, ends_chunk)?;
                    bytes
                }
            };
            if bytes.len() < SMALL_BYTES {
                small.extend_from_slice(&bytes);
            } else if small.is_empty() {
                return Ok(Some(bytes));
            } else {
                self.next = Some(bytes);
                break;
            }
        }
        Ok((!small.is_empty()).then(|| small.freeze()))
    }

    fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, StdError>>> {
        loop {
            if let Some(bytes) = self.taken()? {
                return Poll::Ready(Some(Ok(bytes)));
            }
            match ready!(http_body::Body::poll_frame(Pin::new(&mut self.body), context)) {
                Some(frame) => self.input = frame?.into_data().unwrap_or_default(),
                None => {
                    self.end()?;
                    return Poll::Ready(None);
                }
            }
        }
    }
}

impl http_body::Body for Unchunked {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let bytes = ready!(self.poll_bytes(context));
        self.is_over = !matches!(bytes, Some(Ok(_)));
        Poll::Ready(bytes.map(|bytes| bytes.map(Frame::data)))
    }

    /// Not before its end was read, which is where it is judged.
    fn is_end_stream(&self) -> bool {
        self.is_over
    }
}

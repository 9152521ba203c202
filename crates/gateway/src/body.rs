//! Streams an object's body to a client in bounded pieces.

use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use penstock_base::{Error, Kind, Result};
use penstock_store::Body;
use s3s::StdError;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Bytes per piece: large enough that the read costs more than the hop, small enough to stay in
/// the processor's second-level cache on its way from file to socket.
const PIECE_BYTES: usize = 256 * 1024;

type Reading = Pin<Box<dyn Future<Output = (Body, BytesMut, Result<Bytes>)> + Send>>;

enum State {
    Idle(Body, BytesMut),
    Reading(Reading),
    Done,
}

/// The body of a GET: exactly `remaining` bytes, or a broken connection. A short body is never
/// passed off as a whole one.
pub struct ObjectBody {
    state: State,
    remaining: u64,
}

impl ObjectBody {
    /// Sends `len` bytes of `body`.
    pub fn new(body: Body, len: u64) -> Self {
        ObjectBody { state: State::Idle(body, BytesMut::new()), remaining: len }
    }
}

async fn read_piece(
    mut body: Body,
    mut buffer: BytesMut,
    len: usize,
) -> (Body, BytesMut, Result<Bytes>) {
    buffer.resize(len, 0);
    let read = body.read(&mut buffer).await;
    let piece = match read {
        Ok(0) => Err(Error::new(Kind::Corrupt, "the object ended before its size")),
        Ok(read) => {
            buffer.truncate(read);
            Ok(buffer.split().freeze())
        }
        Err(error) => Err(error),
    };
    (body, buffer, piece)
}

impl http_body::Body for ObjectBody {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let this = &mut *self;
        if this.remaining == 0 {
            this.state = State::Done;
            return Poll::Ready(None);
        }
        if let State::Idle(..) = this.state
            && let State::Idle(body, buffer) = std::mem::replace(&mut this.state, State::Done)
        {
            let len = this.remaining.min(PIECE_BYTES as u64) as usize;
            this.state = State::Reading(Box::pin(read_piece(body, buffer, len)));
        }
        let State::Reading(reading) = &mut this.state else { return Poll::Ready(None) };
        let (body, buffer, piece) = ready!(reading.as_mut().poll(context));
        match piece {
            Ok(bytes) => {
                this.remaining -= bytes.len() as u64;
                this.state = State::Idle(body, buffer);
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Err(error) => {
                this.state = State::Done;
                this.remaining = 0;
                Poll::Ready(Some(Err(Box::new(error))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.remaining == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining)
    }
}

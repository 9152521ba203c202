//! What nobody read of a request's body, once the answer is known: how much of it is still taken.
//!
//! Little is read before the answer, and the connection then bears another request. Of more, the
//! answer does not wait: it goes out, says that the connection ends, and what its client still
//! sends is thrown away for a while. To close on bytes that nobody took resets a connection, and
//! a client that was sending then may see that in place of the answer.

use bytes::Bytes;
use http_body::Body as _;
use hyper::body::Incoming;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Most of a body that is thrown away before the answer, and how long that is waited for.
const BEFORE_BYTES_MAX: usize = 64 << 10;
const BEFORE_MAX: Duration = Duration::from_secs(1);
/// The same after it: what an SDK sends as one part, and longer than a way there and back.
const AFTER_BYTES_MAX: usize = 16 << 20;
const AFTER_MAX: Duration = Duration::from_secs(2);

/// What nobody read of a request's body, once whoever had it let it go.
#[derive(Clone, Default)]
pub struct Rest(Arc<Mutex<Option<Left>>>);

struct Left {
    body: Incoming,
    /// Somebody has read of it: a client that waited for `100 Continue` was told to send.
    is_begun: bool,
}

/// How reading ended.
enum Thrown {
    Whole,
    Broken,
    Part,
}

impl Rest {
    /// Keeps what is left.
    pub fn keep(&self, body: Incoming, is_begun: bool) {
        let left = (!body.is_end_stream()).then_some(Left { body, is_begun });
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = left;
    }

    /// Reads what is left, if that is little and comes soon. Whether nothing is left, so that the
    /// connection can bear another request; a client that waits for `100 Continue` sends nothing.
    pub async fn is_drained(&self, is_awaited: bool) -> bool {
        let left = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Left { mut body, is_begun }) = left else { return true };
        // To read of it would tell the client to send.
        if is_awaited && !is_begun {
            return false;
        }
        let thrown = thrown_away(&mut body, BEFORE_BYTES_MAX);
        match tokio::time::timeout(BEFORE_MAX, thrown).await {
            Ok(Thrown::Whole) => true,
            Ok(Thrown::Broken) => false,
            Ok(Thrown::Part) | Err(_) => {
                linger(body);
                false
            }
        }
    }
}

/// Throws away what comes of a body while its answer goes out, and for a while after it.
pub fn linger(mut body: Incoming) {
    tokio::spawn(async move {
        // Whatever the end: the connection closes with the body.
        tokio::time::timeout(AFTER_MAX, thrown_away(&mut body, AFTER_BYTES_MAX)).await.ok();
    });
}

async fn thrown_away(body: &mut Incoming, most: usize) -> Thrown {
    let mut read = 0;
    while read <= most {
        let next = std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context));
        match next.await {
            None => return Thrown::Whole,
            Some(Err(_)) => return Thrown::Broken,
            Some(Ok(frame)) => read += frame.data_ref().map_or(0, Bytes::len),
        }
    }
    Thrown::Part
}

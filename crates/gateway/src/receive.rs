//! Takes a request body on its way into a store: hashed as it passes, its last piece held back
//! until every checksum agrees, and the bucket is still whose it was.
//!
//! A small body is taken whole, so that the engine may send it again; a larger one flows, and
//! what is held of it is one piece.

use crate::checksum::{Sums, Verifier};
use crate::chunks::body::Trailers;
use crate::error::{Subject, body_error, to_s3};
use crate::judged::StillTheirs;
use bytes::{Bytes, BytesMut};
use futures_util::Stream as _;
use http::HeaderMap;
use penstock_base::{Error, Kind, Result};
use penstock_store::Inflow;
use penstock_store::streaming::next_piece;
use s3s::dto::StreamingBlob;
use s3s::{S3Error, S3Result, s3_error};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

/// How many bytes come of a body in chunks.
pub(crate) const DECODED_CONTENT_LENGTH: &str = "x-amz-decoded-content-length";
/// Largest body of one PUT or part, as in S3.
const BODY_BYTES_MAX: i64 = 5 << 30;
/// Largest body that is taken whole.
const WHOLE_BYTES_MAX: u64 = 128 << 10;

/// What a request brings besides its head.
pub struct Sent<'a> {
    /// The bytes.
    pub body: Option<StreamingBlob>,
    /// The head, for the checksums in it.
    pub headers: &'a HeaderMap,
    /// What follows an aws-chunked body.
    pub trailers: Option<Trailers>,
    /// Content-Length, without the framing of aws-chunked.
    pub content_length: Option<i64>,
    /// What is asked once the body has come: its sender may have held it back.
    pub still: Option<StillTheirs>,
}

impl<'a> Sent<'a> {
    /// What an input and its request bring.
    pub fn new(
        body: Option<StreamingBlob>,
        headers: &'a HeaderMap,
        trailers: Option<Trailers>,
        content_length: Option<i64>,
    ) -> Self {
        Sent { body, headers, trailers, content_length, still: None }
    }

    /// To be kept only if the bucket is then whose it was.
    pub fn if_still(self, still: Option<StillTheirs>) -> Self {
        Sent { still, ..self }
    }
}

/// A body that was judged by its head.
#[derive(Debug)]
pub enum Incoming {
    /// Whole and verified, with its checksums.
    Whole(Bytes, Sums),
    /// Still to come; the verdict is told at its end.
    Flowing(Box<dyn Inflow>, Verdict),
}

/// What became of a body that flowed, of a client's or of a copy.
#[derive(Clone, Debug, Default)]
pub struct Verdict(Arc<Mutex<Told>>);

#[derive(Debug, Default)]
struct Told {
    refusal: Option<S3Error>,
    sums: Sums,
}

impl Verdict {
    fn lock(&self) -> std::sync::MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes why the body must not be kept, and tells it to the store.
    pub fn refuse(&self, refusal: S3Error) -> Error {
        let why = refusal.message().unwrap_or("the body was refused").to_string();
        self.lock().refusal = Some(refusal);
        Error::new(Kind::Invalid, why)
    }

    /// Notes the checksums of a body that has passed.
    pub fn has_sums(&self, sums: Sums) {
        self.lock().sums = sums;
    }

    /// The checksums of a body, as far as it has passed.
    pub fn sums(&self) -> Sums {
        self.lock().sums.clone()
    }

    /// What the store made of the body, with its checksums. What the sender did wrong comes before
    /// what the store said about it.
    ///
    /// # Errors
    /// The sender's, else the store's.
    pub fn settle<T>(self, subject: Subject, result: Result<T>) -> S3Result<(T, Sums)> {
        let mut told = self.lock();
        if let Some(refusal) = told.refusal.take() {
            return Err(refusal);
        }
        let value = result.map_err(|error| to_s3(subject, error))?;
        Ok((value, std::mem::take(&mut told.sums)))
    }
}

/// What aws-chunked says of its body's length: the only word there is when the request itself is
/// sent with a chunked transfer coding, as AWS's SDK for C++ does.
fn decoded_length(headers: &HeaderMap) -> Option<i64> {
    headers.get(DECODED_CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Judges a body by its head, and takes it whole if it is small.
///
/// # Errors
/// `EntityTooLarge`, `MissingContentLength`, `InvalidDigest`; for a small body also `BadDigest`,
/// `IncompleteBody` and `SignatureDoesNotMatch`.
pub async fn receive(sent: Sent<'_>) -> S3Result<Incoming> {
    let content_length = sent.content_length.or_else(|| decoded_length(sent.headers));
    if content_length.is_some_and(|length| length > BODY_BYTES_MAX) {
        return Err(s3_error!(
            EntityTooLarge,
            "Your proposed upload exceeds the maximum allowed size of 5 GiB; use a multipart upload."
        ));
    }
    let length = content_length.and_then(|length| u64::try_from(length).ok());
    let size_bytes = match (length, &sent.body) {
        (Some(length), _) => length,
        (None, None) => 0,
        (None, Some(_)) => {
            return Err(s3_error!(
                MissingContentLength,
                "You must provide the Content-Length HTTP header."
            ));
        }
    };
    let verdict = Verdict::default();
    let mut receiving = Receiving {
        body: sent.body,
        verifier: Some(Verifier::from_headers(sent.headers)?),
        trailers: sent.trailers,
        still: sent.still,
        size_bytes,
        received_bytes: 0,
        held: None,
        verdict: verdict.clone(),
    };
    if size_bytes > WHOLE_BYTES_MAX {
        return Ok(Incoming::Flowing(Box::new(receiving), verdict));
    }
    let mut whole = BytesMut::new();
    while let Some(piece) = next_piece(&mut receiving).await {
        match piece {
            // The usual small body is one piece, and that is no copy.
            Ok(piece) if piece.len() as u64 == size_bytes => {
                return match next_piece(&mut receiving).await {
                    None => Ok(Incoming::Whole(piece, verdict.settle(Subject::Object, Ok(()))?.1)),
                    Some(_) => Err(s3_error!(IncompleteBody, "The body is too long.")),
                };
            }
            Ok(piece) => whole.extend_from_slice(&piece),
            Err(error) => {
                verdict.settle(Subject::Object, Err::<(), _>(error))?;
                return Err(s3_error!(InternalError, "a refused body has no refusal"));
            }
        }
    }
    let sums = verdict.settle(Subject::Object, Ok(()))?.1;
    Ok(Incoming::Whole(whole.freeze(), sums))
}

/// A body on its way.
struct Receiving {
    /// `None` at its end.
    body: Option<StreamingBlob>,
    /// `None` once it has spoken.
    verifier: Option<Verifier>,
    trailers: Option<Trailers>,
    /// `None` once it is answered.
    still: Option<StillTheirs>,
    size_bytes: u64,
    received_bytes: u64,
    /// The last piece, until the verdict.
    held: Option<Bytes>,
    verdict: Verdict,
}

impl std::fmt::Debug for Receiving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiving")
            .field("size_bytes", &self.size_bytes)
            .field("received_bytes", &self.received_bytes)
            .finish_non_exhaustive()
    }
}

impl Receiving {
    /// Ends the body with what its sender did wrong.
    fn refuse(&mut self, refusal: S3Error) -> Poll<Option<Result<Bytes>>> {
        self.body = None;
        self.verifier = None;
        self.still = None;
        self.held = None;
        Poll::Ready(Some(Err(self.verdict.refuse(refusal))))
    }

    /// Judges the whole, and lets its last piece go.
    fn end(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        self.body = None;
        if let Some(verifier) = self.verifier.take()
            && let Err(refusal) = self.verify(verifier)
        {
            return self.refuse(refusal);
        }
        if let Some(still) = &mut self.still {
            if let Err(refusal) = ready!(still.as_mut().poll(context)) {
                return self.refuse(refusal);
            }
            self.still = None;
        }
        Poll::Ready(self.held.take().map(Ok))
    }

    fn verify(&mut self, verifier: Verifier) -> S3Result<()> {
        if self.received_bytes < self.size_bytes {
            return Err(s3_error!(
                IncompleteBody,
                "You did not provide the number of bytes specified by the Content-Length header."
            ));
        }
        let trailers = self.trailers.take().and_then(|trailers| trailers.take());
        self.verdict.has_sums(verifier.finish(trailers.as_ref())?);
        Ok(())
    }
}

impl Inflow for Receiving {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        loop {
            let Some(body) = &mut self.body else { return self.end(context) };
            let piece = match Pin::new(body).poll_next(context) {
                Poll::Ready(Some(Ok(piece))) => piece,
                Poll::Ready(Some(Err(error))) => return self.refuse(body_error(&error)),
                Poll::Ready(None) => return self.end(context),
                // [`crate::observed::Inbound`] gives a silent sender up.
                Poll::Pending => return Poll::Pending,
            };
            self.received_bytes += piece.len() as u64;
            if self.received_bytes > self.size_bytes {
                return self
                    .refuse(s3_error!(IncompleteBody, "The body is longer than announced."));
            }
            if let Some(verifier) = &mut self.verifier {
                verifier.update(&piece);
            }
            if piece.is_empty() {
                continue;
            }
            if self.received_bytes < self.size_bytes {
                return Poll::Ready(Some(Ok(piece)));
            }
            self.held = Some(piece);
        }
    }

    fn late_metadata(&self) -> Vec<(String, String)> {
        self.verdict.sums().notes()
    }

    fn checksum(&self) -> Option<(String, Option<String>)> {
        self.verifier.as_ref().and_then(Verifier::announced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use s3s::S3ErrorCode;

    type Piece = std::result::Result<Bytes, std::io::Error>;

    fn sent<'a>(pieces: Vec<&'static [u8]>, headers: &'a HeaderMap, length: i64) -> Sent<'a> {
        let pieces = pieces.into_iter().map(|piece| Piece::Ok(Bytes::from_static(piece)));
        let body = StreamingBlob::wrap(futures_util::stream::iter(pieces));
        Sent::new(Some(body), headers, None, Some(length))
    }

    #[tokio::test]
    async fn small_bodies_are_whole() {
        let headers = HeaderMap::new();
        for pieces in [vec![&b"hello"[..]], vec![b"he", b"", b"llo"]] {
            match receive(sent(pieces, &headers, 5)).await.unwrap() {
                Incoming::Whole(bytes, _) => assert_eq!(bytes, "hello"),
                other => panic!("{other:?}"),
            }
        }
        for (pieces, length) in [(vec![&b"hello"[..]], 6), (vec![b"hello"], 4)] {
            let error = receive(sent(pieces, &headers, length)).await.unwrap_err();
            assert_eq!(error.code(), &S3ErrorCode::IncompleteBody);
        }
    }

    #[tokio::test]
    async fn the_last_piece_waits_for_the_verdict() {
        static LARGE: [u8; 200 << 10] = [7; 200 << 10];
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-checksum-crc32", "AAAAAA==".parse().unwrap());
        let length = LARGE.len() as i64;
        let pieces = vec![&LARGE[..1000], &LARGE[1000..]];
        match receive(sent(pieces, &headers, length)).await.unwrap() {
            Incoming::Flowing(mut flow, verdict) => {
                assert_eq!(next_piece(&mut *flow).await.unwrap().unwrap().len(), 1000);
                let error = next_piece(&mut *flow).await.unwrap().unwrap_err();
                let refused = verdict.settle(Subject::Object, Err::<(), _>(error)).unwrap_err();
                assert_eq!(refused.code(), &S3ErrorCode::BadDigest);
            }
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn five_gibibytes_are_the_most() {
        let headers = HeaderMap::new();
        assert!(receive(sent(vec![], &headers, BODY_BYTES_MAX)).await.is_ok());
        let error = receive(sent(vec![], &headers, BODY_BYTES_MAX + 1)).await.unwrap_err();
        assert_eq!(error.code(), &S3ErrorCode::EntityTooLarge);
    }
}

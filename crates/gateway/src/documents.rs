//! Requests whose body is a document (XML, or a policy) are taken whole before they are acted on.
//! The digests that came with one are held against it while it is read, so nothing is done that it
//! did not mean. Bodies that are an object's bytes are judged where they are stored.
//!
//! What is held of all documents together is bounded. Room is taken as the bytes come, so that
//! nobody takes any by announcing a long document, and given back when the operation has ended.

use crate::checksum::Verifier;
use crate::chunks;
use crate::creation::CREATION_BYTES_MAX;
use crate::error::slow_down;
use crate::query::pairs;
use crate::receive::DECODED_CONTENT_LENGTH;
use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderName};
use http::{HeaderMap, Method, Request};
use http_body::{Frame, SizeHint};
use s3s::{Body, S3Error, S3Result, StdError, s3_error};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Longest document that is taken: a batch delete of 1000 long keys is below 2 MiB.
pub(crate) const DOCUMENT_BYTES_MAX: usize = 4 << 20;
/// Most bytes of all documents together: sixteen of the longest, or thousands of the usual ones.
const DOCUMENTS_BYTES_MAX: usize = 64 << 20;
/// What room for them is counted in.
const UNIT_BYTES: usize = 1 << 10;
/// Units of all documents together.
pub(crate) const UNITS_MAX: usize = DOCUMENTS_BYTES_MAX / UNIT_BYTES;
/// What clients wait that are told to slow down.
const DOCUMENT_WAIT: Duration = Duration::from_secs(1);
const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");
/// Operations on objects whose body is a document, by the names in their queries.
const ON_OBJECTS: [&str; 4] = ["acl", "legal-hold", "retention", "tagging"];

/// Whether the body of a request is a document; `path` has the bucket in front.
pub(crate) fn is_document(method: &Method, path: &str, query: &str) -> bool {
    match *method {
        Method::POST => true,
        Method::PUT => {
            !has_key(path) || pairs(query).any(|pair| ON_OBJECTS.contains(&pair.0.as_str()))
        }
        _ => false,
    }
}

fn has_key(path: &str) -> bool {
    path.trim_start_matches('/').split_once('/').is_some_and(|it| !it.1.is_empty())
}

/// A document above the bound, whether its head said so or not.
pub(crate) fn too_long() -> S3Error {
    s3_error!(EntityTooLarge, "The document in this request is longer than 4 MiB.")
}

/// The headers with digests of a document.
fn digests(headers: &HeaderMap, query: &str) -> HeaderMap {
    let mut digests = headers.clone();
    // Those of a completion are the object's, and judged with its parts.
    if pairs(query).any(|pair| pair.0 == "uploadId") {
        digests.clear();
        digests.extend(headers.get(CONTENT_MD5).map(|value| (CONTENT_MD5, value.clone())));
    }
    digests
}

/// What is known of a document: why it was refused, and its room, which it keeps until this goes.
#[derive(Clone, Default)]
pub(crate) struct Verdict(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    refusal: Option<S3Error>,
    room: Option<OwnedSemaphorePermit>,
    /// The document itself, of one that may make a bucket.
    text: Vec<u8>,
}

impl Verdict {
    /// Why the document was refused, if it was.
    pub fn take(&self) -> Option<S3Error> {
        self.known().refusal.take()
    }

    /// The document of a CreateBucket, of which s3s reads a part only.
    ///
    /// # Errors
    /// `MaxMessageLengthExceeded`.
    pub fn creation(&self) -> S3Result<Vec<u8>> {
        let text = std::mem::take(&mut self.known().text);
        match text.len() > CREATION_BYTES_MAX {
            true => Err(s3_error!(
                MaxMessageLengthExceeded,
                "A CreateBucketConfiguration is at most {CREATION_BYTES_MAX} bytes long."
            )),
            false => Ok(text),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses the document: what its reader is told of it.
    fn refuse(&self, error: S3Error) -> StdError {
        let told = error.to_string();
        self.known().refusal = Some(error);
        told.into()
    }
}

/// Whether a body comes in aws-chunked form, and whether there is anything in it.
fn chunked(headers: &HeaderMap) -> (bool, bool) {
    let is_chunked = chunks::is_chunked(headers);
    let is_empty = headers.get(DECODED_CONTENT_LENGTH).is_some_and(|length| length == "0");
    (is_chunked, is_chunked && !is_empty)
}

/// Has a document fail where there is no `room` for it, and its end where it is not what the
/// digests beside it say; `path` has the bucket in front.
///
/// # Errors
/// Those of headers that are no digests; `NotImplemented` for a document in chunks, which S3 has
/// for objects and parts only: what reads documents here would take it for one that was cut.
pub(crate) fn judged(
    mut request: Request<Body>,
    path: &str,
    room: &Arc<Semaphore>,
) -> S3Result<(Request<Body>, Verdict)> {
    let (query, verdict) = (request.uri().query().unwrap_or_default(), Verdict::default());
    if !is_document(request.method(), path, query) {
        return Ok((request, verdict));
    }
    let (is_chunked, has_chunks) = chunked(request.headers());
    // The frame of no chunk is taken out of what bears a signature only.
    let is_framed = is_chunked && !request.headers().contains_key(AUTHORIZATION);
    if has_chunks || is_framed {
        return Err(s3_error!(
            NotImplemented,
            "an aws-chunked document (x-amz-content-sha256: STREAMING-...): only objects and parts \
             are sent in chunks; send this one whole, with its SHA-256 or UNSIGNED-PAYLOAD"
        ));
    }
    let verifier = match is_chunked {
        // There is nothing that a trailer could be of.
        true => None,
        false => Some(Verifier::from_headers(&digests(request.headers(), query))?),
    };
    let verifier = verifier.filter(|verifier| !verifier.is_empty());
    if verifier.is_none() && http_body::Body::is_end_stream(request.body()) {
        return Ok((request, verdict));
    }
    let (told, room) = (verdict.clone(), room.clone());
    // The frame of no chunk is no document.
    let makes_bucket = *request.method() == Method::PUT && !has_key(path) && !is_chunked;
    // An operation that goes on behind the head of its answer keeps what it was told until its end.
    request.extensions_mut().insert(verdict.clone());
    let judged = request.map(|body| {
        Body::http_body(Judged { body, verifier, verdict: told, room, bytes: 0, makes_bucket })
    });
    Ok((judged, verdict))
}

/// A document on its way to whoever takes it whole.
struct Judged {
    body: Body,
    verifier: Option<Verifier>,
    verdict: Verdict,
    room: Arc<Semaphore>,
    /// Those that came.
    bytes: usize,
    /// Whether it may be that of a CreateBucket.
    makes_bucket: bool,
}

impl Judged {
    /// Takes room for bytes that came.
    fn hold(&mut self, bytes: usize) -> Result<(), StdError> {
        let before = self.bytes.div_ceil(UNIT_BYTES);
        self.bytes += bytes;
        // Its reader would stop here too, without a word of why.
        if self.bytes > DOCUMENT_BYTES_MAX {
            return Err(self.verdict.refuse(too_long()));
        }
        let units = self.bytes.div_ceil(UNIT_BYTES) - before;
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let Ok(more) = self.room.clone().try_acquire_many_owned(units) else {
            let why = "The gateway holds as many documents as it takes.";
            return Err(self.verdict.refuse(slow_down(why, DOCUMENT_WAIT)));
        };
        match &mut self.verdict.known().room {
            Some(held) => held.merge(more),
            none => *none = Some(more),
        }
        Ok(())
    }
}

impl Judged {
    /// Keeps what is looked into a second time, and of what is too long for that so much that it
    /// shows.
    fn keep(&mut self, bytes: &Bytes) {
        if self.makes_bucket && self.bytes - bytes.len() <= CREATION_BYTES_MAX {
            let most = bytes.len().min(CREATION_BYTES_MAX + 1);
            self.verdict.known().text.extend_from_slice(&bytes[..most]);
        }
    }
}

impl http_body::Body for Judged {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(bytes) = frame.data_ref() {
                    self.hold(bytes.len())?;
                    self.keep(bytes);
                    if let Some(verifier) = &mut self.verifier {
                        verifier.update(bytes);
                    }
                }
            }
            Some(Err(_)) => self.verifier = None,
            None => {
                if let Some(verifier) = self.verifier.take()
                    && let Err(error) = verifier.finish(None)
                {
                    return Poll::Ready(Some(Err(self.verdict.refuse(error))));
                }
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        // The end is what is judged.
        self.verifier.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use s3s::dto::StreamingBlob;

    #[test]
    fn documents_are_told_from_objects() {
        for (method, path, query, expected) in [
            (Method::PUT, "/lake/k", "", false),
            (Method::PUT, "/lake/k", "partNumber=1&uploadId=u", false),
            (Method::PUT, "/lake/k", "tagging", true),
            (Method::PUT, "/lake/k", "%74agging", true),
            (Method::PUT, "/lake/k", "versionId=1&acl=", true),
            (Method::PUT, "/lake", "cors", true),
            (Method::PUT, "/lake/", "", true),
            (Method::POST, "/lake", "delete", true),
            (Method::POST, "/lake/k", "uploadId=u", true),
            (Method::GET, "/lake/k", "tagging", false),
        ] {
            assert_eq!(is_document(&method, path, query), expected, "{method} {path}?{query}");
        }
    }

    #[test]
    fn a_completion_tells_of_its_object() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_MD5, HeaderValue::from_static("a"));
        headers.insert("x-amz-checksum-crc32", HeaderValue::from_static("b"));
        assert_eq!(digests(&headers, "delete").len(), 2);
        assert_eq!(digests(&headers, "uploadId=u").len(), 1);
    }

    #[tokio::test]
    async fn documents_together_have_so_much_room() {
        let room = Arc::new(Semaphore::new(4));
        let read = async |bytes: usize| {
            // Not one whole piece, which s3s would not have to read.
            let pieces = vec![Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; bytes]))];
            let pieces = StreamingBlob::wrap(futures_util::stream::iter(pieces));
            let request = Request::post("/lake?delete").body(Body::from(pieces)).unwrap();
            let (request, verdict) = judged(request, "/lake", &room).unwrap();
            let mut body = request.into_body();
            let read = body.store_all_limited(DOCUMENT_BYTES_MAX).await.is_ok();
            (read, verdict)
        };
        let (is_read, first) = read(3 * UNIT_BYTES).await;
        assert!(is_read && room.available_permits() == 1);
        let (is_read, refused) = read(UNIT_BYTES + 1).await;
        let error = refused.take().unwrap();
        assert!(!is_read && *error.code() == s3s::S3ErrorCode::SlowDown);
        // What the first took is held until it is answered, not until it is read.
        drop(first);
        assert_eq!(room.available_permits(), 4);
        assert!(read(4 * UNIT_BYTES).await.0);
        assert_eq!(room.available_permits(), 4);
    }
}

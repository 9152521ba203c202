//! Requests whose body is a document (XML, or a policy) are taken whole before they are acted on.
//! The digests that came with one are held against it while it is read, so nothing is done that it
//! did not mean. Bodies that are an object's bytes are judged where they are stored.

use crate::checksum::Verifier;
use crate::query::pairs;
use bytes::Bytes;
use http::header::HeaderName;
use http::{HeaderMap, Method, Request};
use http_body::{Frame, SizeHint};
use s3s::{Body, S3Error, S3Result, StdError};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

/// Longest document that is taken: a batch delete of 1000 long keys is below 2 MiB.
pub(crate) const DOCUMENT_BYTES_MAX: usize = 4 << 20;
const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");
/// Operations on objects whose body is a document, by the names in their queries.
const ON_OBJECTS: [&str; 4] = ["acl", "legal-hold", "retention", "tagging"];

/// Whether the body of a request is a document; `path` has the bucket in front.
fn is_document(method: &Method, path: &str, query: &str) -> bool {
    let has_key = path.trim_start_matches('/').split_once('/').is_some_and(|it| !it.1.is_empty());
    match *method {
        Method::POST => true,
        Method::PUT => !has_key || pairs(query).any(|pair| ON_OBJECTS.contains(&pair.0.as_str())),
        _ => false,
    }
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

/// What a document's digests came to.
#[derive(Clone, Default)]
pub(crate) struct Verdict(Arc<Mutex<Option<S3Error>>>);

impl Verdict {
    /// Why the document was refused, if it was.
    pub fn take(&self) -> Option<S3Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Has the end of a document fail where it is not what the digests beside it say; `path` has the
/// bucket in front.
///
/// # Errors
/// Those of headers that are no digests.
pub(crate) fn judged(request: Request<Body>, path: &str) -> S3Result<(Request<Body>, Verdict)> {
    let (query, verdict) = (request.uri().query().unwrap_or_default(), Verdict::default());
    // The chunks of such a body are taken apart, and their trailer judged, later.
    let sha256 = request.headers().get("x-amz-content-sha256");
    let is_chunked = sha256.is_some_and(|it| it.as_bytes().starts_with(b"STREAMING-"));
    if is_chunked || !is_document(request.method(), path, query) {
        return Ok((request, verdict));
    }
    let verifier = Verifier::from_headers(&digests(request.headers(), query))?;
    if verifier.is_empty() {
        return Ok((request, verdict));
    }
    let told = verdict.clone();
    let judged = request
        .map(|body| Body::http_body(Judged { body, verifier: Some(verifier), verdict: told }));
    Ok((judged, verdict))
}

/// A document on its way to whoever takes it whole.
struct Judged {
    body: Body,
    verifier: Option<Verifier>,
    verdict: Verdict,
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
                if let (Some(verifier), Some(bytes)) = (&mut self.verifier, frame.data_ref()) {
                    verifier.update(bytes);
                }
            }
            Some(Err(_)) => self.verifier = None,
            None => {
                if let Some(verifier) = self.verifier.take()
                    && let Err(error) = verifier.finish(None)
                {
                    let told = error.to_string();
                    *self.verdict.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    return Poll::Ready(Some(Err(told.into())));
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
}

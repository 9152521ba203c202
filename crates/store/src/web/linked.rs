//! What the Hugging Face Hub tells of an object beside the redirect to its bytes. Pure.
//!
//! The bytes of a large file come from another host, by a URL that names one content. That host has
//! tags of its own. So the Hub sends its tag, a hash of the content, with the redirect. Its
//! listings have the same tags.

use crate::answer::text_header;
use crate::{Body, ETag, HttpResponse};
use ::http::header::{CONTENT_LENGTH, ETAG};
use ::http::{HeaderMap, HeaderValue, Method};
use bytes::Bytes;

const LINKED_TAG: &str = "x-linked-etag";
const LINKED_SIZE: &str = "x-linked-size";

/// The tag that a redirect tells.
pub(super) fn tag(headers: &HeaderMap) -> Option<ETag> {
    strong(headers, LINKED_TAG)
}

/// A tag of the Hub. All of them are hashes, so one that was made weak on its way (as proxies do
/// that pack bodies) still names the same bytes.
fn strong(headers: &HeaderMap, name: &str) -> Option<ETag> {
    Some(ETag::parse(text_header(headers, name)?.trim_start_matches("W/")))
}

/// What a redirect says of the object where nothing else is asked.
pub(super) fn head(method: &Method, headers: &HeaderMap) -> Option<HttpResponse> {
    let size = headers.get(LINKED_SIZE).filter(|_| *method == Method::HEAD)?;
    let told = HeaderMap::from_iter([(CONTENT_LENGTH, size.clone())]);
    let body = Body::Memory(Bytes::new());
    let response = HttpResponse { status: 200, headers: told, body };
    Some(tagged(response, Some(tag(headers)?)))
}

/// An answer with this tag, or with its own.
pub(super) fn tagged(mut response: HttpResponse, tag: Option<ETag>) -> HttpResponse {
    let tag = tag.or_else(|| strong(&response.headers, ETAG.as_str()));
    if let Some(value) = tag.and_then(|tag| HeaderValue::from_str(&tag.header_value()).ok()) {
        response.headers.insert(ETAG, value);
    }
    response
}

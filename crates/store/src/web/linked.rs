//! What the Hugging Face Hub tells of an object beside the redirect to its bytes. Pure.
//!
//! The bytes of a large file come from a host of another name, by a URL that names one content. That
//! host's own tags say nothing to the Hub, so the Hub tells its tag, a hash of the content, with the
//! redirect. Its listings have the same tags.

use crate::answer::text_header;
use crate::{Body, ETag, HttpResponse};
use ::http::header::{CONTENT_LENGTH, ETAG};
use ::http::{HeaderMap, HeaderValue, Method};
use bytes::Bytes;

const LINKED_TAG: &str = "x-linked-etag";
const LINKED_SIZE: &str = "x-linked-size";

/// The tag that a redirect tells.
pub(super) fn tag(headers: &HeaderMap) -> Option<String> {
    text_header(headers, LINKED_TAG)
}

/// What a redirect says of the object where nothing else is asked.
pub(super) fn head(method: &Method, headers: &HeaderMap) -> Option<HttpResponse> {
    if *method != Method::HEAD {
        return None;
    }
    let size = headers.get(LINKED_SIZE)?;
    let told = HeaderMap::from_iter([(CONTENT_LENGTH, size.clone())]);
    let body = Body::Memory(Bytes::new());
    let response = HttpResponse { status: 200, headers: told, body };
    Some(tagged(response, Some(tag(headers)?)))
}

/// An answer with the Hub's tag, or with its own. Both are hashes, so one that was made weak on its
/// way (as proxies do that pack bodies) still names the same bytes.
pub(super) fn tagged(mut response: HttpResponse, tag: Option<String>) -> HttpResponse {
    let tag = tag.or_else(|| text_header(&response.headers, ETAG.as_str()));
    let strong = tag.map(|tag| ETag::parse(tag.trim_start_matches("W/")).header_value());
    if let Some(value) = strong.and_then(|tag| HeaderValue::from_str(&tag).ok()) {
        response.headers.insert(ETAG, value);
    }
    response
}

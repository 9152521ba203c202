//! Characters of keys that XML text cannot hold as they are, as S3 writes them: by reference. A
//! reader turns a bare carriage return into a line feed, which is another key. Pure.
//!
//! Source: XML 1.0, 2.11 "End-of-Line Handling". The others are no characters of XML 1.0 in any
//! form; clients that have such keys ask for `encoding-type=url`.

use bytes::Bytes;
use http::Response;
use http::header::CONTENT_LENGTH;
use s3s::Body;
use std::io::Write as _;

/// What every document here begins with.
const DOCUMENT: &[u8] = b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>";

/// Whether it cannot stand in XML text.
fn is_odd(byte: u8) -> bool {
    byte < b' ' && byte != b'\t' && byte != b'\n'
}

/// The answer with references for what cannot stand in it, where it is a document: objects are
/// streams, and pass.
pub(crate) fn referred(mut response: Response<Body>) -> Response<Body> {
    let document = response.body().bytes().filter(|body| body.starts_with(DOCUMENT));
    if let Some(document) = document.filter(|body| body.iter().any(|byte| is_odd(*byte))) {
        response.headers_mut().remove(CONTENT_LENGTH);
        *response.body_mut() = Body::from(Bytes::from(with_references(&document)));
    }
    response
}

fn with_references(document: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(document.len() + 64);
    for byte in document {
        match is_odd(*byte) {
            // Writing to memory does not fail.
            true => drop(write!(text, "&#x{byte:X};")),
            false => text.push(*byte),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(body: impl Into<Bytes>) -> Bytes {
        referred(Response::new(Body::from(body.into()))).into_body().bytes().unwrap()
    }

    #[test]
    fn a_document_refers_to_what_it_cannot_hold() {
        let document = [DOCUMENT, b"<Key>a\rb\x01c\td\n</Key>"].concat();
        let written = [DOCUMENT, b"<Key>a&#xD;b&#x1;c\td\n</Key>"].concat();
        assert_eq!(answered(document), written);
    }

    #[test]
    fn what_is_no_document_stays() {
        assert_eq!(answered("a\rb"), "a\rb");
    }
}

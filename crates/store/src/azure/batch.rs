//! The multipart/mixed bodies of Blob Batch. Pure.

use crate::answer::Failure;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use penstock_base::{Error, Kind, Result, Retry};
use std::fmt::Write;
use std::time::SystemTime;

/// Most requests in one batch.
pub(super) const BATCH_MAX: usize = 256;
/// Most header lines of one answer in a batch.
const HEADER_COUNT_MAX: usize = 64;

/// The body of a batch of signed requests without bodies.
pub(super) fn body(boundary: &str, requests: &[Parts]) -> String {
    let mut body = String::with_capacity(requests.len() * 512);
    for (id, request) in requests.iter().enumerate() {
        let target = request.uri.path_and_query().map_or("/", |path| path.as_str());
        // Writing into a String cannot fail.
        let _ = write!(
            body,
            "--{boundary}\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\
             Content-ID: {id}\r\n\r\n{} {target} HTTP/1.1\r\n",
            request.method
        );
        for (name, value) in &request.headers {
            let _ = write!(body, "{name}: {}\r\n", value.to_str().unwrap_or_default());
        }
        body.push_str("\r\n");
    }
    let _ = write!(body, "--{boundary}--\r\n");
    body
}

/// The answers by the position of their request; `None` for success.
///
/// # Errors
/// `Corrupt` (retry) when an answer is missing or malformed.
pub(super) fn parse(content_type: &str, body: &[u8], count: usize) -> Result<Vec<Option<Failure>>> {
    let boundary = boundary(content_type).ok_or_else(|| corrupt("its type names no boundary"))?;
    let mark = format!("--{boundary}");
    let mut answers: Vec<Option<Option<Failure>>> = vec![None; count];
    for part in split(body, mark.as_bytes()) {
        let (id, failure) = one(part)?;
        let slot = answers.get_mut(id).ok_or_else(|| corrupt("it answers what was not asked"))?;
        if slot.replace(failure).is_some() {
            return Err(corrupt("it answers one request twice"));
        }
    }
    let all: Option<Vec<_>> = answers.into_iter().collect();
    all.ok_or_else(|| corrupt("an answer is missing"))
}

fn boundary(content_type: &str) -> Option<&str> {
    let (_, rest) = content_type.split_once("boundary=")?;
    let rest = rest.split(';').next()?.trim().trim_matches('"');
    (!rest.is_empty()).then_some(rest)
}

/// What stands between the marks, without the text before the first and after the last.
fn split<'a>(body: &'a [u8], mark: &[u8]) -> Vec<&'a [u8]> {
    let mut parts = Vec::new();
    let mut rest = body;
    let mut begun = false;
    while let Some(at) = find(rest, mark) {
        if begun {
            parts.push(&rest[..at]);
        }
        rest = &rest[at + mark.len()..];
        if rest.starts_with(b"--") {
            break;
        }
        begun = true;
    }
    parts
}

fn find(text: &[u8], mark: &[u8]) -> Option<usize> {
    text.windows(mark.len().max(1)).position(|window| window == mark)
}

fn one(part: &[u8]) -> Result<(usize, Option<Failure>)> {
    let start = find(part, b"HTTP/1.").ok_or_else(|| corrupt("a part holds no answer"))?;
    let id = std::str::from_utf8(&part[..start])
        .ok()
        .and_then(|head| {
            head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.trim().eq_ignore_ascii_case("content-id").then(|| value.trim().parse().ok())?
            })
        })
        .ok_or_else(|| corrupt("a part has no Content-ID"))?;
    let mut lines = [httparse::EMPTY_HEADER; HEADER_COUNT_MAX];
    let mut answer = httparse::Response::new(&mut lines);
    let length = match answer.parse(&part[start..]) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Err(corrupt("an answer is cut")),
        Err(error) => return Err(corrupt("an answer is no HTTP").with_source(error)),
    };
    let status = answer.code.unwrap_or_default();
    if status == 202 {
        return Ok((id, None));
    }
    let mut headers = HeaderMap::new();
    for line in answer.headers.iter() {
        let name = HeaderName::from_bytes(line.name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(line.value)) {
            headers.append(name, value);
        }
    }
    let failure = Failure::parse(status, &headers, &part[start + length..], SystemTime::now());
    Ok((id, Some(failure)))
}

fn corrupt(why: &str) -> Error {
    Error::new(Kind::Corrupt, format!("the answer to a batch is malformed: {why}"))
        .with_retry(Retry::Briefly)
        .with_hint("Does a proxy between here and the store alter the bytes?")
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Method, Request};
    use proptest::prelude::*;

    const ANSWER: &str = "--b_1\r\nContent-Type: application/http\r\nContent-ID: 1\r\n\r\n\
        HTTP/1.1 404 The specified blob does not exist.\r\nx-ms-error-code: BlobNotFound\r\n\
        Content-Length: 9\r\nContent-Type: application/xml\r\n\r\n<Error/>\r\n\
        --b_1\r\nContent-Type: application/http\r\nContent-ID: 0\r\n\r\n\
        HTTP/1.1 202 Accepted\r\nx-ms-version: 2018-11-09\r\n\r\n--b_1--";

    #[test]
    fn answers_come_in_the_order_of_their_requests() {
        let answers = parse("multipart/mixed; boundary=b_1", ANSWER.as_bytes(), 2).unwrap();
        assert!(answers[0].is_none());
        let failure = answers[1].as_ref().unwrap();
        assert_eq!((failure.status, failure.code.as_str()), (404, "BlobNotFound"));
    }

    #[test]
    fn wrong_answers_are_corrupt() {
        for (kind, body, count) in [
            ("multipart/mixed", ANSWER, 2),
            ("multipart/mixed; boundary=other", ANSWER, 2),
            ("multipart/mixed; boundary=b_1", ANSWER, 1),
            ("multipart/mixed; boundary=b_1", ANSWER, 3),
            ("multipart/mixed; boundary=b_1", &ANSWER[..60], 2),
        ] {
            let error = parse(kind, body.as_bytes(), count).unwrap_err();
            assert_eq!((error.kind(), error.retry()), (Kind::Corrupt, Retry::Briefly));
        }
    }

    #[test]
    fn requests_are_written_with_their_headers() {
        let request = Request::delete("https://h/c/a%20b?sig=x").header("x-ms-date", "now");
        let (parts, ()) = request.body(()).unwrap().into_parts();
        assert_eq!(parts.method, Method::DELETE);
        let text = body("b_1", &[parts]);
        assert!(
            text.contains("DELETE /c/a%20b?sig=x HTTP/1.1\r\nx-ms-date: now\r\n\r\n"),
            "{text}"
        );
        assert!(text.starts_with("--b_1\r\n") && text.ends_with("--b_1--\r\n"), "{text}");
    }

    proptest! {
        #[test]
        fn hostile_answers_end_without_panic(kind in ".{0,20}", body: Vec<u8>, cut in 0usize..400) {
            let _ = parse(&kind, &body, 2);
            let cut = cut.min(ANSWER.len());
            let mixed = [&ANSWER.as_bytes()[..cut], &body, &ANSWER.as_bytes()[cut..]].concat();
            let _ = parse("x; boundary=b_1", &mixed, 2);
        }
    }
}

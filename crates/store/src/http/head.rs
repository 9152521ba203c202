//! Parses the head of an HTTP/1.x answer and decides how its body is framed (RFC 9112).
//!
//! Pure: bytes in, decision out. Reading from a socket is `connection`'s job.

use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use penstock_base::{Error, Kind, Result, Retry};

/// Longest head that is read: status line and all headers.
pub(crate) const HEAD_BYTES_MAX: usize = 64 << 10;
/// Most header lines.
const HEADER_COUNT_MAX: usize = 128;

/// Status line and headers of one answer.
#[derive(Debug)]
pub(crate) struct Head {
    pub status: u16,
    /// 0 for HTTP/1.0, 1 for HTTP/1.1.
    pub minor_version: u8,
    pub headers: HeaderMap,
}

/// How the end of a body is found (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Empty,
    Length(u64),
    Chunked,
    UntilClose,
}

/// The head at the start of `bytes` and its length; `None` while it is incomplete.
///
/// # Errors
/// `Corrupt` for bytes that are no HTTP/1.x answer, or a head over the limits.
pub(crate) fn parse_head(bytes: &[u8]) -> Result<Option<(Head, usize)>> {
    // An empty line before the status line is tolerated, as RFC 9112 section 2.2 advises.
    let blank = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let text = &bytes[blank..];
    if !b"HTTP/1.".starts_with(&text[..text.len().min(7)]) {
        return Err(garbage(text));
    }
    if !has_end(text) {
        if bytes.len() >= HEAD_BYTES_MAX {
            return Err(corrupt(format!("the answer's headers exceed {HEAD_BYTES_MAX} bytes")));
        }
        return Ok(None);
    }
    let mut lines = [httparse::EMPTY_HEADER; HEADER_COUNT_MAX];
    let mut parsed = httparse::Response::new(&mut lines);
    let length = match parsed.parse(text) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(corrupt(format!("the answer has over {HEADER_COUNT_MAX} headers")));
        }
        Err(error) => return Err(garbage(text).with_source(error)),
    };
    let mut headers = HeaderMap::with_capacity(parsed.headers.len());
    for line in parsed.headers.iter() {
        let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(line.name.as_bytes()), HeaderValue::from_bytes(line.value))
        else {
            return Err(corrupt(format!("the answer's header `{}` is malformed", line.name)));
        };
        headers.append(name, value);
    }
    let status = parsed.code.unwrap_or_default();
    if !(100..1000).contains(&status) {
        return Err(garbage(text));
    }
    let minor_version = parsed.version.unwrap_or_default();
    Ok(Some((Head { status, minor_version, headers }, blank + length)))
}

/// How the body of an answer to `method` ends.
///
/// # Errors
/// `Corrupt` for lengths that contradict each other or are no number.
pub(crate) fn framing(method: &Method, head: &Head) -> Result<Framing> {
    if *method == Method::HEAD || matches!(head.status, 100..=199 | 204 | 304) {
        return Ok(Framing::Empty);
    }
    if head.headers.contains_key(TRANSFER_ENCODING) {
        let mut codings = head
            .headers
            .get_all(TRANSFER_ENCODING)
            .iter()
            .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
            .map(<[u8]>::trim_ascii)
            .filter(|coding| !coding.is_empty());
        return match codings.next_back() {
            Some(last) if last.eq_ignore_ascii_case(b"chunked") => Ok(Framing::Chunked),
            _ => Ok(Framing::UntilClose),
        };
    }
    match content_length(&head.headers)? {
        Some(0) => Ok(Framing::Empty),
        Some(length) => Ok(Framing::Length(length)),
        None => Ok(Framing::UntilClose),
    }
}

/// The Content-Length; several equal ones count as one.
///
/// # Errors
/// `Corrupt` for lengths that contradict each other or are no number.
pub(crate) fn content_length(headers: &HeaderMap) -> Result<Option<u64>> {
    let mut found: Option<u64> = None;
    let values = headers.get_all(CONTENT_LENGTH).iter();
    for text in values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')) {
        let digits = text.trim_ascii();
        let length = std::str::from_utf8(digits)
            .ok()
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(|| corrupt("the answer's Content-Length is no number"))?;
        if found.is_some_and(|earlier| earlier != length) {
            return Err(corrupt("the answer has two different Content-Lengths"));
        }
        found = Some(length);
    }
    Ok(found)
}

/// Whether the connection may carry another request once this answer was read whole.
pub(crate) fn keeps_alive(head: &Head, framing: Framing) -> bool {
    let named = |token: &[u8]| {
        head.headers
            .get_all(CONNECTION)
            .iter()
            .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
            .any(|word| word.trim_ascii().eq_ignore_ascii_case(token))
    };
    // Both framings at once is how requests are smuggled (RFC 9112 section 6.1): do not reuse.
    let ambiguous = framing == Framing::Chunked && head.headers.contains_key(CONTENT_LENGTH);
    let persistent = if head.minor_version == 0 { named(b"keep-alive") } else { !named(b"close") };
    persistent && !ambiguous && framing != Framing::UntilClose && head.status != 101
}

/// Whether the blank line that ends a head is there. Cheap, so that a head that trickles in is
/// parsed once.
fn has_end(text: &[u8]) -> bool {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
        rest = &rest[at + 1..];
        if rest.starts_with(b"\n") || rest.starts_with(b"\r\n") {
            return true;
        }
    }
    false
}

/// A server that speaks no HTTP now seldom does a minute later: it is the wrong port, or a proxy.
fn corrupt(message: impl Into<String>) -> Error {
    Error::new(Kind::Corrupt, message).with_retry(Retry::Briefly)
}

fn garbage(text: &[u8]) -> Error {
    let shown: String = text
        .iter()
        .take(24)
        .map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' })
        .collect();
    let hint = match text.first() {
        Some(0x15 | 0x16) => "The server speaks TLS: use https, or leave use_ssl at true",
        _ => "Is this a proxy, or a port that speaks another protocol? Check the endpoint",
    };
    corrupt(format!("the answer is not HTTP/1.1 (it starts with `{shown}`)")).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ANSWER: &[u8] =
        b"\r\nHTTP/1.1 206 Partial Content\r\nETag: \"x\"\r\nContent-Length: 3\r\n\r\nabc";

    fn head(text: &str) -> Head {
        parse_head(text.as_bytes()).unwrap().unwrap().0
    }

    #[test]
    fn a_head_is_incomplete_at_every_byte_but_its_last() {
        let end = ANSWER.len() - 3;
        for length in 0..end {
            assert!(parse_head(&ANSWER[..length]).unwrap().is_none(), "{length}");
        }
        let (head, used) = parse_head(ANSWER).unwrap().unwrap();
        assert_eq!((head.status, used), (206, end));
        assert_eq!(framing(&Method::GET, &head).unwrap(), Framing::Length(3));
    }

    #[test]
    fn framing_follows_the_rfc() {
        for (method, lines, expected, kept) in [
            (Method::GET, "Content-Length: 5\r\n", Framing::Length(5), true),
            (Method::GET, "Content-Length: 5, 5\r\n", Framing::Length(5), true),
            (Method::GET, "Content-Length: 0\r\n", Framing::Empty, true),
            (Method::HEAD, "Content-Length: 5\r\n", Framing::Empty, true),
            (Method::GET, "", Framing::UntilClose, false),
            (Method::GET, "Transfer-Encoding: gzip, Chunked\r\n", Framing::Chunked, true),
            (Method::GET, "Transfer-Encoding: chunked, gzip\r\n", Framing::UntilClose, false),
            (
                Method::GET,
                "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
                Framing::Chunked,
                false,
            ),
            (
                Method::GET,
                "Connection: x, Close\r\nContent-Length: 5\r\n",
                Framing::Length(5),
                false,
            ),
        ] {
            let head = head(&format!("HTTP/1.1 200 OK\r\n{lines}\r\n"));
            let found = framing(&method, &head).unwrap();
            assert_eq!((found, keeps_alive(&head, found)), (expected, kept), "{lines}");
        }
        let old = head("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n");
        assert!(!keeps_alive(&old, Framing::Length(5)));
    }

    #[test]
    fn lengths_that_cannot_be_are_corrupt() {
        for length in ["-1", "+1", "five", "", "1, 2", "99999999999999999999"] {
            let head = head(&format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"));
            let error = framing(&Method::GET, &head).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt, "{length}");
        }
    }

    #[test]
    fn tls_port_is_recognised() {
        let error = parse_head(b"\x15\x03\x01\x00\x02\x02\x46").unwrap_err();
        assert!(error.hint().unwrap().contains("TLS"), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_end_without_panic(bytes: Vec<u8>) {
            let _ = parse_head(&bytes);
        }

        #[test]
        fn any_bytes_behind_a_good_start_end_without_panic(bytes: Vec<u8>) {
            let text = [b"HTTP/1.1 200 OK\r\n", bytes.as_slice(), b"\r\n\r\n"].concat();
            if let Ok(Some((head, used))) = parse_head(&text) {
                prop_assert!(used <= text.len());
                let _ = framing(&Method::GET, &head).map(|framing| keeps_alive(&head, framing));
            }
        }

        #[test]
        fn headers_come_back_as_sent(
            lines in prop::collection::vec(("x-[a-z]{1,8}", "[!-~]([ -~]{0,20}[!-~])?"), 0..20),
        ) {
            let mut text = String::from("HTTP/1.1 200 OK\r\n");
            for (name, value) in &lines {
                text.push_str(&format!("{name}: {value}\r\n"));
            }
            text.push_str("\r\n");
            let head = head(&text);
            prop_assert_eq!(head.headers.len(), lines.len());
            for (name, value) in &lines {
                let mut found = head.headers.get_all(name.as_str()).iter();
                prop_assert!(found.any(|found| found.as_bytes() == value.as_bytes()));
            }
        }
    }
}

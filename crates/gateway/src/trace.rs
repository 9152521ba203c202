//! Distributed tracing (W3C Trace Context): a span for each request, below the one that the client
//! names, and one for each request to a back end, below that.
//!
//! Decides which spans there are and how they are told. `tracestate` is not passed on.

use crate::access_log::rfc3339;
use crate::exchange::next_number;
use http::HeaderMap;
use penstock_base::micros;
use penstock_store::{RequestEvent, Span};
use serde::Serialize;
use std::time::SystemTime;

/// Characters of a `traceparent` of version 00.
const LENGTH: usize = 55;
/// The flag that says that who asked may keep what it knows of the trace.
const SAMPLED: u8 = 1;

/// The span of a request with these headers: below the client's, or the first of a new trace.
/// `is_kept`: somebody writes new traces down here.
pub fn begin(headers: &HeaderMap, is_kept: bool) -> Span {
    let mut told = headers.get_all("traceparent").iter();
    // Of several nobody knows which is meant.
    let one = told.next().filter(|_| told.next().is_none());
    let parent = one.and_then(|value| parse(value.to_str().ok()?));
    match parent {
        Some(parent) => child(&parent),
        None => Span {
            trace_id: u128::from(id()) << 64 | u128::from(id()),
            id: id(),
            parent_id: None,
            flags: if is_kept { SAMPLED } else { 0 },
        },
    }
}

/// A span below another one.
pub fn child(parent: &Span) -> Span {
    Span { id: id(), parent_id: Some(parent.id), ..*parent }
}

/// An id that no other span has.
fn id() -> u64 {
    next_number().max(1)
}

/// The span that a `traceparent` names. Of versions to come what this one has is read, as the
/// specification wants it.
fn parse(text: &str) -> Option<Span> {
    let text = text.trim();
    let (version, rest) = text.split_at_checked(2)?;
    let version = u8::try_from(number(version)?).ok().filter(|version| *version != 0xff)?;
    let is_long = rest.as_bytes().get(LENGTH - 2) == Some(&b'-');
    if text.len() != LENGTH && !(version > 0 && is_long) {
        return None;
    }
    let mut fields = rest.get(..LENGTH - 2)?.strip_prefix('-')?.split('-');
    let mut field = |digits: usize| number(fields.next().filter(|it| it.len() == digits)?);
    let (trace_id, id, flags) = (field(32)?, field(16)?, field(2)?);
    let id = u64::try_from(id).ok().filter(|id| *id != 0 && trace_id != 0)?;
    let flags = u8::try_from(flags).ok()? & SAMPLED;
    Some(Span { trace_id, id, parent_id: None, flags })
}

/// Body for a fuzzer: what is read is told again as it stood there.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let Some(span) = parse(&text) else { return };
    assert!(span.trace_id != 0 && span.id != 0, "an id that is none: {span:?}");
    let told = span.traceparent();
    // All but the version and the flags.
    let ids = 2..LENGTH - 2;
    assert_eq!(text.trim().get(ids.clone()), told.get(ids), "other ids");
    assert_eq!(parse(&told), Some(span), "a span that changed");
}

/// Hexadecimal digits, small ones only.
fn number(digits: &str) -> Option<u128> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if !digits.bytes().all(is_digit) {
        return None;
    }
    u128::from_str_radix(digits, 16).ok()
}

/// A trace's id as it is written.
pub fn trace_id(span: &Span) -> String {
    format!("{:032x}", span.trace_id)
}

/// A span's id as it is written.
pub fn span_id(id: u64) -> String {
    format!("{id:016x}")
}

/// What the log of back ends tells of one request. Its query stays out: it may hold signatures. So
/// requests that differ by it only (a blob, its blocks, and the list of them) look alike.
#[derive(Debug, Serialize)]
pub struct BackendLine<'a> {
    /// When it was sent.
    #[serde(serialize_with = "rfc3339")]
    time: SystemTime,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    span_id: Option<String>,
    /// The span of the S3 request for which it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_id: Option<String>,
    method: &'static str,
    host: &'a str,
    path: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    range: &'a str,
    /// 0 where no answer came.
    status: u16,
    first_byte_us: u64,
    total_us: u64,
    sent_bytes: u64,
    received_bytes: u64,
    new_connection: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
}

impl<'a> BackendLine<'a> {
    /// Of a request that ended.
    pub fn of(event: &'a RequestEvent) -> Self {
        let rest = event.url.split_once("://").map_or(event.url.as_str(), |(_, rest)| rest);
        let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        BackendLine {
            time: event.started,
            trace_id: event.span.as_ref().map(trace_id),
            span_id: event.span.map(|span| span_id(span.id)),
            parent_id: event.span.and_then(|span| span.parent_id).map(span_id),
            method: event.method,
            host,
            path,
            range: &event.range,
            status: event.status,
            first_byte_us: micros(event.first_byte),
            total_us: micros(event.total),
            sent_bytes: event.sent_bytes,
            received_bytes: event.received_bytes,
            new_connection: event.new_connection,
            error: &event.error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const PARENT: &str = "00f067aa0ba902b7";

    fn headers(values: &[&str]) -> HeaderMap {
        let pair =
            |value: &&str| (http::HeaderName::from_static("traceparent"), value.parse().unwrap());
        values.iter().map(pair).collect()
    }

    #[test]
    fn a_request_is_a_span_below_its_clients() {
        for (text, flags) in [
            (format!("00-{TRACE}-{PARENT}-01"), 1),
            (format!("00-{TRACE}-{PARENT}-00"), 0),
            (format!("00-{TRACE}-{PARENT}-ff"), 1),
            // Of a version to come.
            (format!("cc-{TRACE}-{PARENT}-01"), 1),
            (format!("01-{TRACE}-{PARENT}-01-what-will-be"), 1),
        ] {
            let span = begin(&headers(&[&text]), true);
            assert_eq!((trace_id(&span).as_str(), span.flags), (TRACE, flags), "{text}");
            assert_eq!(span.parent_id.map(span_id).as_deref(), Some(PARENT), "{text}");
            assert_ne!(span_id(span.id), PARENT, "{text}");
            let below = child(&span);
            assert_eq!((below.trace_id, below.parent_id), (span.trace_id, Some(span.id)));
            assert_ne!(below.id, span.id);
        }
    }

    #[test]
    fn what_is_malformed_is_ignored() {
        let right = format!("00-{TRACE}-{PARENT}-01");
        let zero = |digits: &str| right.replace(digits, &"0".repeat(digits.len()));
        for text in [
            String::new(),
            "00".into(),
            "00-short-1-1".into(),
            right.to_uppercase(),
            right[..54].into(),
            format!("{right}-01"),
            format!("ff{}", &right[2..]),
            format!("01-{TRACE}-{PARENT}-01x"),
            format!("0g{}", &right[2..]),
            right.replace('-', "_"),
            format!("00-{PARENT}-{TRACE}-01"),
            zero(TRACE),
            zero(PARENT),
        ] {
            let span = begin(&headers(&[&text]), true);
            assert_eq!((span.parent_id, span.flags), (None, SAMPLED), "{text}");
            assert_ne!(trace_id(&span), TRACE, "{text}");
        }
        let two = begin(&headers(&[&right, &right]), false);
        assert_eq!((two.parent_id, two.flags), (None, 0), "of two nobody knows which");
        assert_ne!(
            begin(&HeaderMap::new(), true).trace_id,
            begin(&HeaderMap::new(), true).trace_id
        );
    }

    proptest! {
        #[test]
        fn what_is_told_is_read_again(trace_id in 1u128.., id in 1u64.., flags in 0u8..2) {
            let span = Span { trace_id, id, parent_id: None, flags };
            prop_assert_eq!(parse(&span.traceparent()), Some(span));
        }

        #[test]
        fn any_text_is_read(text: String) {
            let _ = parse(&text);
        }
    }

    #[test]
    fn a_line_tells_host_and_path_and_no_query() {
        let event = RequestEvent {
            method: "GET",
            url: "http://127.0.0.1:10000/account/c/a%20b?sig=***&comp=block".into(),
            range: String::new(),
            status: 206,
            started: SystemTime::UNIX_EPOCH,
            first_byte: Duration::from_micros(7),
            total: Duration::from_millis(2),
            sent_bytes: 1,
            received_bytes: 2,
            new_connection: true,
            error: String::new(),
            fault: None,
            span: Some(Span { trace_id: 1, id: 2, parent_id: Some(3), flags: 1 }),
            reason: None,
            headers: None,
        };
        let line = serde_json::to_value(BackendLine::of(&event)).unwrap();
        assert_eq!(
            (&line["host"], &line["path"]),
            (&"127.0.0.1:10000".into(), &"/account/c/a%20b".into())
        );
        assert_eq!((&line["first_byte_us"], &line["total_us"]), (&7.into(), &2000.into()));
        assert_eq!(line["span_id"], "0000000000000002");
        assert_eq!(line["parent_id"], "0000000000000003");
        assert!(line.get("range").is_none() && line.get("error").is_none());
        let outside = RequestEvent { url: "http://h".into(), span: None, ..event };
        let line = serde_json::to_value(BackendLine::of(&outside)).unwrap();
        assert_eq!((&line["host"], &line["path"]), (&"h".into(), &"".into()));
        assert!(line.get("trace_id").is_none());
    }
}

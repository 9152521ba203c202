//! What is wrong with a request's head before its signature is looked at: dates, digests and
//! validities that S3 names otherwise than s3s does. Pure.

mod authorization;

use crate::chunks::{self, Kind};
use crate::query;
use crate::receive::DECODED_CONTENT_LENGTH;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, DATE};
use http::{HeaderMap, Method, Request};
use jiff::fmt::rfc2822::DateTimeParser;
use s3s::{S3Error, S3ErrorCode, s3_error};
use std::time::{Duration, SystemTime};

/// Most that the clocks of client and gateway may differ.
const SKEW_MAX: Duration = Duration::from_secs(15 * 60);
/// Longest validity of a presigned URL of version 4.
const VALIDITY_MAX_S: i64 = 7 * 24 * 3600;

/// Dates with a wrong day of the week are dates.
const HTTP_DATE: DateTimeParser = DateTimeParser::new().relaxed_weekday(true);

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// What is wrong, if anything is. The signature decides about all else.
pub(crate) fn fault<B>(request: &Request<B>, now: SystemTime) -> Option<S3Error> {
    if *request.method() == Method::OPTIONS {
        // A browser's preflight has the URL of a signed request and none of its headers. Nobody
        // signs the preflight itself.
        return None;
    }
    let headers = request.headers();
    let authorization = text(headers, AUTHORIZATION.as_str()).unwrap_or_default();
    if let Some(credentials) = authorization.strip_prefix("AWS ") {
        if !credentials.contains(':') {
            let why = "AWS authorization header is invalid. Expected AwsAccessKeyId:signature";
            return Some(s3_error!(InvalidArgument, "{why}"));
        }
        if let Some(fault) = date_fault(headers, now) {
            return Some(fault);
        }
    }
    if let Some(fields) = authorization.strip_prefix("AWS4-HMAC-SHA256") {
        if let Some(fault) = authorization::header_fault(fields) {
            return Some(fault);
        }
        if text(headers, "x-amz-date").is_none_or(|date| v4_date(date).is_none()) {
            return Some(no_date());
        }
        let digest = text(headers, "x-amz-content-sha256").unwrap_or("UNSIGNED-PAYLOAD");
        if !is_digest(digest) {
            let why = "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, \
                       STREAMING-UNSIGNED-PAYLOAD-TRAILER, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, \
                       STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER or a valid sha256 value.";
            return Some(s3_error!(InvalidArgument, "{why}"));
        }
    }
    if let Some(fault) = chunks_fault(headers) {
        return Some(fault);
    }
    let pairs: Vec<_> = query::pairs(request.uri().query().unwrap_or_default()).collect();
    if !authorization.starts_with("AWS4-") && !takes_chunks(request.method(), headers, &pairs) {
        let why = "A body in chunks (x-amz-content-sha256: STREAMING-...) takes a signature of \
                   version 4 in the Authorization header, or none at all and unsigned chunks \
                   (STREAMING-UNSIGNED-PAYLOAD-TRAILER).";
        return Some(s3_error!(InvalidRequest, "{why}"));
    }
    authorization::query_fault(&pairs)
        .or_else(|| validity_fault(&pairs))
        .or_else(|| authorization::two_mechanisms(headers, &pairs))
        .or_else(|| authorization::unsigned_header(headers, &pairs))
        .or_else(|| authorization::missing_header(headers, &pairs))
}

/// Whether somebody takes the chunks out of the body, if it is in chunks: of a request that version
/// 4 does not sign in its header, only of a PUT, and where nobody signs anything.
fn takes_chunks(method: &Method, headers: &HeaderMap, pairs: &[(String, String)]) -> bool {
    let is_signed = || {
        let in_query = ["X-Amz-Signature", "Signature", "AWSAccessKeyId"];
        headers.contains_key(AUTHORIZATION)
            || in_query.iter().any(|name| query::value_of(pairs, name).is_some())
    };
    let is_unsigned = || Kind::of(headers) == Some(Kind::Unsigned);
    !chunks::is_chunked(headers) || (*method == Method::PUT && is_unsigned() && !is_signed())
}

fn no_date() -> S3Error {
    s3_error!(AccessDenied, "AWS authentication requires a valid Date or x-amz-date header.")
}

/// A date of version 4: `20130524T000000Z`.
fn v4_date(text: &str) -> Option<jiff::Timestamp> {
    text.parse().ok()
}

/// Version 2 is dated by `x-amz-date`, else by `Date`.
fn date_fault(headers: &HeaderMap, now: SystemTime) -> Option<S3Error> {
    let date = text(headers, "x-amz-date").or_else(|| text(headers, DATE.as_str()));
    let parsed =
        date.and_then(|date| HTTP_DATE.parse_timestamp(date).ok().or_else(|| v4_date(date)));
    let Some(date) = parsed.filter(|date| *date > jiff::Timestamp::UNIX_EPOCH) else {
        return Some(no_date());
    };
    let date = SystemTime::from(date);
    let apart = now.duration_since(date).unwrap_or_else(|before| before.duration());
    (apart > SKEW_MAX).then(|| {
        let why = "The difference between the request time and the current time is too large.";
        S3Error::with_message(S3ErrorCode::RequestTimeTooSkewed, why)
    })
}

/// A body whose length says that it is in chunks, which nobody would take out of it.
fn chunks_fault(headers: &HeaderMap) -> Option<S3Error> {
    let told = text(headers, DECODED_CONTENT_LENGTH)?;
    let length = text(headers, CONTENT_LENGTH.as_str());
    (length.is_some_and(|length| length != told) && !chunks::is_chunked(headers)).then(|| {
        let why = "x-amz-decoded-content-length tells of a body in chunks, and \
                   x-amz-content-sha256 of one without: they would be kept with the object. Name \
                   the kind of the chunks (STREAMING-...), or send none.";
        s3_error!(InvalidRequest, "{why}")
    })
}

fn is_digest(text: &str) -> bool {
    let is_hash = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash || text == "UNSIGNED-PAYLOAD" || text.starts_with("STREAMING-")
}

/// A presigned URL that is never valid, or for too long.
fn validity_fault(pairs: &[(String, String)]) -> Option<S3Error> {
    let seconds = query::value_of(pairs, "X-Amz-Expires")?.parse::<i64>().ok()?;
    if seconds < 0 {
        return Some(s3_error!(AccessDenied, "Request has expired"));
    }
    (seconds > VALIDITY_MAX_S).then(|| {
        let why = "X-Amz-Expires must be less than a week (in seconds)";
        s3_error!(AccessDenied, "{why}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(uri: &str, headers: &[(&str, &str)]) -> Option<String> {
        code_of(Method::PUT, uri, headers)
    }

    fn code_of(method: Method, uri: &str, headers: &[(&str, &str)]) -> Option<String> {
        let mut builder = Request::builder().method(method).uri(uri).header("host", "h");
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        // 2013-05-24T00:00:00Z
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_369_353_600);
        let fault = fault(&builder.body(()).unwrap(), now);
        fault.map(|error| error.code().as_str().to_string())
    }

    #[test]
    fn version_2_has_a_date_near_now() {
        let at = |date: &str| code("/", &[("authorization", "AWS K:s"), ("x-amz-date", date)]);
        assert_eq!(at("Fri, 24 May 2013 00:10:00 GMT"), None);
        assert_eq!(at("Fri, 24 May 2013 00:10:00 +0000"), None);
        assert_eq!(at("20130524T000000Z"), None);
        for (date, wanted) in [
            ("Fri, 24 May 2013 00:16:00 GMT", "RequestTimeTooSkewed"),
            ("Tue, 07 Jul 9999 21:53:04 GMT", "RequestTimeTooSkewed"),
            ("Tue, 07 Jul 1950 21:53:04 GMT", "AccessDenied"),
            ("Bad Date", "AccessDenied"),
            ("", "AccessDenied"),
        ] {
            assert_eq!(at(date).as_deref(), Some(wanted), "{date}");
        }
        let dated = [("authorization", "AWS K:s"), ("date", "Fri, 24 May 2013 00:00:00 GMT")];
        assert_eq!(code("/", &dated), None);
        assert_eq!(code("/", &dated[..1]).as_deref(), Some("AccessDenied"));
        assert_eq!(code("/", &[("authorization", "AWS HA")]).as_deref(), Some("InvalidArgument"));
    }

    #[test]
    fn version_4_has_a_date_and_a_digest() {
        let v4 = "AWS4-HMAC-SHA256 Credential=K/20130524/r/s3/aws4_request, \
                  SignedHeaders=host;x-amz-date, Signature=s";
        let v4 = ("authorization", v4);
        let date = ("x-amz-date", "20130524T000000Z");
        assert_eq!(code("/", &[v4, date]), None);
        assert_eq!(code("/", &[v4]).as_deref(), Some("AccessDenied"));
        let odd = ("x-amz-content-sha256", "abc");
        assert_eq!(code("/", &[v4, date, odd]).as_deref(), Some("InvalidArgument"));
        let plain = ("x-amz-content-sha256", "UNSIGNED-PAYLOAD");
        assert_eq!(code("/", &[v4, date, plain]), None);
    }

    #[test]
    fn what_no_signature_covers_is_refused() {
        let v4 = "AWS4-HMAC-SHA256 Credential=K/20130524/r/s3/aws4_request, \
                  SignedHeaders=host;x-amz-date;X-Amz-Acl, Signature=s";
        let signed = [("authorization", v4), ("x-amz-date", "20130524T000000Z")];
        let denied = Some("AccessDenied");
        let url = "/b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=K%2F20130524%2Fr%2Fs3\
                   %2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=60&X-Amz-Signature=s\
                   &X-Amz-SignedHeaders=host%3Bx-amz-acl";
        let acl = ("x-amz-acl", "private");
        for (header, wanted) in [
            ("x-amz-content-sha256", None),
            ("content-type", None),
            ("x-amz-copy-source", denied),
            ("x-amz-tagging", denied),
        ] {
            let more = [signed[0], signed[1], acl, (header, "UNSIGNED-PAYLOAD")];
            assert_eq!(code("/b/k", &more).as_deref(), wanted, "{header}");
            let more = [acl, (header, "UNSIGNED-PAYLOAD")];
            assert_eq!(code(url, &more).as_deref(), wanted, "{header} beside a URL");
        }
        // A header that is signed and not there.
        assert_eq!(code("/b/k", &signed).as_deref(), Some("SignatureDoesNotMatch"));
        assert_eq!(code(url, &[]).as_deref(), Some("SignatureDoesNotMatch"));
        assert_eq!(code_of(Method::OPTIONS, url, &[]), None, "a preflight");
        // Names that are encoded are those names.
        let encoded = url.replace("X-Amz-S", "X-Amz-%53").replace("Algorithm", "Algorith%6D");
        assert_eq!(code(&encoded, &[acl, ("x-amz-tagging", "a=b")]).as_deref(), denied);
        // A header that nobody verifies beside a URL says nothing of what is signed.
        let both = [signed[0], signed[1], ("x-amz-acl", "private")];
        assert_eq!(code(url, &both).as_deref(), Some("InvalidArgument"));
        // Nobody signed this at all, and version 2 covers all of them.
        assert_eq!(code("/b/k", &[("x-amz-acl", "private")]), None);
        let v2 = [("authorization", "AWS K:s"), signed[1], ("x-amz-acl", "private")];
        assert_eq!(code("/b/k", &v2), None);
    }

    #[test]
    fn chunks_need_a_signature_of_version_4_or_none() {
        let chunks = ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER");
        assert_eq!(code("/b/k", &[chunks]), None);
        // Forms and documents.
        assert_eq!(code_of(Method::POST, "/b", &[chunks]).as_deref(), Some("InvalidRequest"));
        let signed = ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD");
        assert_eq!(code("/b/k", &[signed]).as_deref(), Some("InvalidRequest"));
        for uri in ["/b/k?X-Amz-Signature=s", "/b/k?AWSAccessKeyId=K&Signature=s&Expires=9"] {
            assert_eq!(code(uri, &[chunks]).as_deref(), Some("InvalidRequest"), "{uri}");
        }
        let v2 = [("authorization", "AWS K:s"), ("x-amz-date", "20130524T000000Z"), chunks];
        assert_eq!(code("/b/k", &v2).as_deref(), Some("InvalidRequest"));
        assert_eq!(code("/b/k", &v2[..2]), None);
    }

    #[test]
    fn urls_are_valid_for_a_week_at_most() {
        for (seconds, wanted) in [
            ("0", None),
            ("604800", None),
            ("604801", Some("AccessDenied")),
            ("-7", Some("AccessDenied")),
        ] {
            let uri = format!("/b/k?X-Amz-Expires={seconds}&X-Amz-Signature=s");
            assert_eq!(code(&uri, &[]).as_deref(), wanted, "{seconds}");
        }
        assert_eq!(code("/b/k", &[]), None);
    }
}

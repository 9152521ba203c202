use super::extent::parse_content_range;
use super::*;
use crate::{GetRange, Ranges};
use ::http::HeaderValue;
use penstock_base::{ByteRange, Kind, Retry};
use proptest::prelude::*;
use std::time::Duration;

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
        .collect()
}

fn bounded(start: u64, end: u64) -> GetRange {
    GetRange::Bounded(ByteRange { start, end })
}

fn failure(status: u16, pairs: &[(&'static str, &str)], body: &str) -> Failure {
    let now = parse_http_date("Fri, 20 Nov 2026 08:00:00 GMT").unwrap();
    Failure::parse(status, &headers(pairs), body.as_bytes(), now)
}

const S3_DENIED: &str = "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code>\
     <Message>Access Denied.</Message><RequestId>1</RequestId></Error>";

#[test]
fn a_part_with_a_cut_body_still_tells_the_size() {
    let size = |asked, range: &str, length: &str| {
        size_of_cut_part(asked, &headers(&[("content-range", range), ("content-length", length)]))
    };
    let front = bounded(0, 10);
    assert_eq!(size(front, "bytes 0-9/100", "4"), Some(100));
    assert_eq!(size(GetRange::Suffix(10), "bytes 90-99/100", "4"), Some(100));
    assert_eq!(size(front, "bytes 0-9/100", "10"), None, "the body is whole");
    assert_eq!(size(front, "bytes 1-9/109", "10"), None, "the head names another range");
    assert_eq!(size(front, "bytes 0-9/*", "4"), None);
}

#[test]
fn statuses_and_codes_have_one_meaning() {
    use Kind::*;
    let xml = |code: &str| format!("<Error><Code>{code}</Code></Error>");
    for (status, code, kind, retryable) in [
        (404, "", NotFound, false),
        (404, "NoSuchBucket", NotFound, false),
        (403, "", Denied, false),
        (401, "", Denied, false),
        (400, "ExpiredToken", Denied, false),
        (400, "RequestTimeout", Unavailable, true),
        (400, "", Invalid, false),
        (409, "", Conflict, false),
        (409, "ConditionalRequestConflict", Conflict, true),
        (412, "PreconditionFailed", Conflict, false),
        (412, "LeaseIdMissing", Conflict, false),
        (409, "BlobArchived", Unsupported, false),
        (409, "BlobBeingRehydrated", Unsupported, false),
        (403, "InvalidObjectState", Unsupported, false),
        (429, "", Throttled, true),
        (503, "SlowDown", Throttled, true),
        (503, "", Throttled, true),
        (500, "InternalError", Unavailable, true),
        (500, "OperationTimedOut", Unavailable, true),
        (502, "", Unavailable, true),
        (504, "", Unavailable, true),
        (408, "", Unavailable, true),
        (501, "NotImplemented", Unsupported, false),
        (507, "", Exhausted, false),
        (507, "XMinioStorageFull", Exhausted, false),
        (301, "PermanentRedirect", Invalid, false),
        (400, "BadDigest", Corrupt, true),
        (600, "", Corrupt, true),
    ] {
        let (got, retry) = failure(status, &[], &xml(code)).verdict();
        assert_eq!((got, retry != Retry::Never), (kind, retryable), "{status} {code}");
    }
}

#[test]
fn retry_after_is_kept_and_bounded() {
    let waits = [("7", 7), ("86400", 300), ("Fri, 20 Nov 2026 08:00:09 GMT", 9)];
    for (text, seconds) in waits {
        let (_, retry) = failure(503, &[("retry-after", text)], "").verdict();
        assert_eq!(retry, Retry::After(Duration::from_secs(seconds)), "{text}");
    }
}

#[test]
fn a_limit_that_is_used_up_says_when_it_begins_anew() {
    let after = |seconds| Retry::After(Duration::from_secs(seconds));
    for (limit, retry) in [
        ("\"api\";r=0;t=55", after(55)),
        ("\"resolvers\"; r=0; t=86400", after(300)),
        ("\"api\";r=5;t=55", Retry::BackOff),
        ("\"api\";r=0", Retry::BackOff),
    ] {
        assert_eq!(failure(429, &[("ratelimit", limit)], "").verdict().1, retry, "{limit}");
        let both = [("ratelimit", limit), ("retry-after", "7")];
        assert_eq!(failure(429, &both, "").verdict().1, after(7), "{limit}");
    }
}

#[test]
fn skewed_clock_is_told_with_its_distance() {
    let date = ("date", "Fri, 20 Nov 2026 09:00:30 GMT");
    let error =
        failure(403, &[date], "<Error><Code>RequestTimeTooSkewed</Code></Error>").into_error(None);
    assert_eq!(error.kind(), Kind::Denied);
    assert!(error.hint().unwrap().contains("60 min 30 s behind the server's"), "{error}");
    let near = ("date", "Fri, 20 Nov 2026 08:00:30 GMT");
    let error = failure(403, &[near], S3_DENIED).into_error(Some("own advice".to_string()));
    assert_eq!(error.hint(), Some("own advice"));
    assert!(error.to_string().contains("(403 AccessDenied): Access Denied"), "{error}");
}

#[test]
fn missing_object_may_be_a_directory() {
    let hint = |code: &str| {
        let body = format!("<Error><Code>{code}</Code></Error>");
        failure(404, &[], &body).missing_object_hint("s3://b/dir/")
    };
    let expected = "List the parent to see what is there; to read a directory use \
                    `s3://b/dir/*.parquet`";
    for code in ["", "NoSuchKey", "BlobNotFound"] {
        assert_eq!(hint(code).as_deref(), Some(expected), "{code}");
    }
    for code in ["NoSuchBucket", "NoSuchUpload", "ContainerNotFound", "AccessDenied"] {
        assert_eq!(hint(code), None, "{code}");
    }
}

#[test]
fn advice_on_credentials_names_the_secret() {
    for code in ["SignatureDoesNotMatch", "InvalidAccessKeyId", "InvalidToken", "ExpiredToken"] {
        let body = format!("<Error><Code>{code}</Code></Error>");
        let mut found = failure(403, &[], &body);
        assert!(found.clone().into_error(None).hint().unwrap().contains("the secret"), "{code}");
        found.secret_name = Some("mine".to_string());
        assert!(found.into_error(None).hint().unwrap().contains("secret 'mine'"), "{code}");
    }
}

#[test]
fn advice_on_a_chains_key_names_the_variables_that_have_it() {
    for (code, variable) in [
        ("SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY of the environment, and REGION"),
        ("InvalidAccessKeyId", "check AWS_ACCESS_KEY_ID of the environment"),
        ("InvalidToken", "Check AWS_SESSION_TOKEN of the environment"),
        ("ExpiredToken", "renew AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN of"),
    ] {
        let mut found = failure(403, &[], &format!("<Error><Code>{code}</Code></Error>"));
        found.secret_name = Some("mine".to_string());
        found.is_key_of_environment = true;
        let error = found.into_error(None);
        let hint = error.hint().unwrap();
        assert!(hint.contains(variable) && !hint.contains("KEY_ID of secret"), "{code}: {hint}");
    }
}

#[test]
fn a_full_store_is_told_from_a_full_disk_here() {
    let error = failure(507, &[], "").into_error(None);
    assert!(error.message().contains("the store has no space left (507)"), "{error}");
    assert!(error.hint().unwrap().contains("at the store"), "{error}");
}

#[test]
fn web_page_is_named_as_such() {
    let html = "<!DOCTYPE html><html><body>Sign in</body></html>";
    let error = failure(403, &[("content-type", "text/html")], html).into_error(None);
    assert!(error.to_string().contains("web page"), "{error}");
    assert!(error.hint().unwrap().contains("proxy"), "{error}");
}

#[test]
fn azure_codes_come_from_header_xml_and_json() {
    let json = "{\"error\":{\"code\":\"FilesystemNotFound\",\"message\":\"gone\\nRequestId:1\"}}";
    let found = failure(404, &[], json);
    assert_eq!((found.code.as_str(), found.message.as_str()), ("FilesystemNotFound", "gone"));
    let found = failure(404, &[("x-ms-error-code", "BlobNotFound")], "");
    assert_eq!(found.code, "BlobNotFound");
}

#[test]
fn region_and_size_are_read_from_the_body() {
    let body = "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>";
    assert_eq!(failure(400, &[], body).region.as_deref(), Some("eu-west-1"));
    let body = "<Error><Code>InvalidRange</Code><ActualObjectSize>5</ActualObjectSize></Error>";
    assert_eq!(failure(416, &[], body).object_size, Some(5));
}

#[test]
fn matching_ranges_pass_and_others_are_corrupt() {
    let check = |asked, range: &str, length: &str| {
        extent(asked, 206, &headers(&[("content-range", range), ("content-length", length)]))
    };
    assert_eq!(check(bounded(2, 5), "bytes 2-4/10", "3").unwrap().size_bytes, Some(10));
    assert_eq!(check(bounded(8, 50), "bytes 8-9/10", "2").unwrap().range.len(), 2);
    assert_eq!(check(GetRange::Suffix(4), "bytes 6-9/10", "4").unwrap().range.start, 6);
    assert_eq!(check(GetRange::Suffix(40), "bytes 0-9/10", "10").unwrap().range.len(), 10);
    for (asked, range, length) in [
        (bounded(2, 5), "bytes 0-2/10", "3"),
        (bounded(2, 5), "bytes 2-3/10", "2"),
        (bounded(2, 5), "bytes 2-4/10", "7"),
        (bounded(2, 5), "bytes 2-4/3", "3"),
        (bounded(2, 5), "lines 2-4/10", "3"),
        (bounded(2, 5), "bytes 2-18446744073709551615/*", "3"),
        (GetRange::Suffix(4), "bytes 0-3/10", "4"),
        (GetRange::From(4), "bytes 4-6/10", "3"),
    ] {
        let error = check(asked, range, length).unwrap_err();
        assert_eq!((error.kind(), error.retry()), (Kind::Corrupt, Retry::Briefly), "{range}");
    }
    assert_eq!(extent(bounded(2, 5), 206, &headers(&[])).unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn an_ignored_range_brings_the_whole_object() {
    let whole = headers(&[("content-length", "10")]);
    let offers = headers(&[("content-length", "10"), ("accept-ranges", "bytes")]);
    let all = ByteRange { start: 0, end: 10 };
    for asked in [bounded(2, 5), GetRange::Suffix(3), GetRange::From(1)] {
        for (answer, ranges) in [(&whole, Ranges::Ignored), (&offers, Ranges::Offered)] {
            let found = extent(asked, 200, answer).unwrap();
            assert_eq!((found.range, found.size_bytes, found.ranges), (all, Some(10), ranges));
        }
    }
    assert_eq!(extent(GetRange::All, 200, &offers).unwrap().ranges, Ranges::Served);
    let endless = extent(GetRange::Suffix(3), 200, &headers(&[])).unwrap();
    assert_eq!((endless.range.end, endless.size_bytes), (UNKNOWN_END, None));
}

#[test]
fn a_part_is_a_part_whatever_the_status() {
    let part = headers(&[("content-range", "bytes 0-2/10"), ("content-length", "3")]);
    for status in [200, 203, 206] {
        assert_eq!(extent(bounded(0, 3), status, &part).unwrap().range.len(), 3);
        assert_eq!(extent(GetRange::All, status, &part).unwrap_err().kind(), Kind::Corrupt);
    }
    // A range of anything but bytes belongs to the page, not to the object.
    let page = headers(&[("content-range", "0-24/3573"), ("content-length", "3")]);
    assert_eq!(extent(GetRange::All, 200, &page).unwrap().size_bytes, Some(3));
    assert!(is_page(&page) && is_page(&headers(&[])) && !is_page(&part));
    let parts = headers(&[("content-type", "multipart/byteranges; boundary=b")]);
    assert!(!is_page(&parts));
}

#[test]
fn only_three_statuses_are_an_object() {
    let objects: Vec<u16> = (100..=999).filter(|status| is_object(*status)).collect();
    assert_eq!(objects, [200, 203, 206]);
    let verdict = |status, pairs: &[(&'static str, &str)]| failure(status, pairs, "").verdict();
    let after = Retry::After(Duration::from_secs(7));
    assert_eq!(verdict(202, &[("retry-after", "7")]), (Kind::Unavailable, after));
    assert_eq!(verdict(202, &[]), (Kind::Unavailable, Retry::Briefly));
    for status in [201, 204, 205, 207, 226] {
        assert_eq!(verdict(status, &[]), (Kind::Corrupt, Retry::Never), "{status}");
        let error = failure(status, &[], "").into_error(None);
        assert!(error.message().contains("no object"), "{error}");
    }
}

#[test]
fn unsatisfiable_range_is_empty_at_the_end() {
    let answer = headers(&[("content-range", "bytes */10")]);
    let none = Failure::default();
    let found = unsatisfiable_extent(bounded(12, 15), &answer, &none).unwrap();
    assert_eq!((found.range, found.size_bytes), (ByteRange { start: 10, end: 10 }, Some(10)));
    assert_eq!(unsatisfiable_extent(bounded(2, 5), &answer, &none), None);
    let empty = headers(&[("content-range", "bytes */0")]);
    assert_eq!(
        unsatisfiable_extent(GetRange::Suffix(5), &empty, &none).unwrap().size_bytes,
        Some(0)
    );
}

proptest! {
    #[test]
    fn an_honest_server_always_passes(size in 1u64..1000, start in 0u64..1000, len in 1u64..1000) {
        prop_assume!(start < size);
        let end = (start + len).min(size);
        let told = format!("bytes {start}-{}/{size}", end - 1);
        let answer = headers(&[("content-range", &told)]);
        let found = extent(bounded(start, start + len), 206, &answer).unwrap();
        prop_assert_eq!(found.range, ByteRange { start, end });
    }

    #[test]
    fn any_content_range_ends_without_panic(text in "[ -~]{0,40}") {
        let _ = parse_content_range(&text);
    }

    #[test]
    fn any_error_body_ends_without_panic(body: Vec<u8>, status in 300u16..600) {
        let found = Failure::parse(status, &HeaderMap::new(), &body, SystemTime::UNIX_EPOCH);
        let _ = found.into_error(None).to_string();
    }
}

#[test]
fn what_a_service_keeps_itself_is_no_metadata_of_a_writer() {
    let answer = headers(&[
        ("x-amz-tagging-count", "2"),
        ("x-amz-mp-parts-count", "3"),
        ("x-amz-checksum-crc32c", "yZRlqg=="),
        ("x-amz-checksum-type", "FULL_OBJECT"),
        ("x-amz-meta-owner", "lake"),
    ]);
    let (kept, written): (Vec<_>, Vec<_>) = object_meta(&answer, None, "x-amz-meta-")
        .metadata
        .into_iter()
        .partition(|(name, _)| is_told_note(name));
    let mut names: Vec<_> = kept.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["@checksum-crc32c", PART_COUNT, TAG_COUNT]);
    assert_eq!(written, [("owner".to_string(), "lake".to_string())]);
}

#[test]
fn conflicts_say_what_stands_in_the_way() {
    let text = |status, body| failure(status, &[], body).into_error(None).to_string();
    let lease = "<Error><Code>LeaseIdMissing</Code></Error>";
    assert!(text(304, "").contains("the object has not changed (304)"));
    assert!(text(412, "").contains("the object changed or exists already (412)"));
    assert!(text(412, lease).contains("stands against the request (412 LeaseIdMissing)"));
}

#[test]
fn a_missing_or_misspelt_place_has_an_advice_that_names_it() {
    for (status, code, place) in [
        (404, "NoSuchBucket", "bucket's name and the endpoint"),
        (404, "ContainerNotFound", "container and account names"),
        (404, "FilesystemNotFound", "container and account names"),
        (400, "InvalidBucketName", "bucket's name has 3 to 63"),
        (400, "InvalidResourceName", "container's name has 3 to 63"),
    ] {
        let body = format!("<Error><Code>{code}</Code></Error>");
        let error = failure(status, &[], &body).into_error(None);
        assert!(error.hint().is_some_and(|hint| hint.contains(place)), "{code}: {error}");
    }
}

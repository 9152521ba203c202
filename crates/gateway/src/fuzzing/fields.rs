//! Bodies for a fuzzer: single headers, queries and hosts of requests, notes of checksums, and the
//! config file. Each line of the input is one field.

use crate::checksum::{PART_SUMS_NOTE, Sums, Verifier};
use crate::config::{Config, Secrets};
use crate::cors::{Question, Rule};
use crate::hosts::Hosts;
use crate::proxies::Proxies;
use crate::tag::TagForm;
use crate::{auth, conditions, overrides, query, tagging, uploads, versions};
use http::header::{HOST, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use penstock_base::{Result, Secret};
use penstock_store::{ETag, ObjectMeta, tags};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Headers with these names, in order, each from a line that can be one.
fn headers(names: &[&'static str], text: &str) -> HeaderMap {
    let pair = |(name, line): (&&'static str, &str)| {
        Some((HeaderName::from_static(name), HeaderValue::from_str(line).ok()?))
    };
    names.iter().zip(text.split('\n')).filter_map(pair).collect()
}

/// Checksums that a head tells or announces, and those that an object's notes tell.
pub(super) fn checksums(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let names = ["x-amz-trailer", "x-amz-checksum-crc32", "x-amz-sdk-checksum-algorithm"];
    let mut told = headers(&names, &text);
    if let Ok(mut verifier) = Verifier::from_headers(&told) {
        verifier.update(input);
        drop(verifier.finish(Some(&told)));
    }
    told.remove("x-amz-checksum-crc32");
    if let Ok(verifier) = Verifier::from_headers(&told) {
        let is_announced = told.contains_key("x-amz-trailer") && !verifier.is_empty();
        let passes = verifier.finish(None).is_ok_and(|sums| sums.is_empty());
        assert!(passes != is_announced, "a trailer that did not come");
    }
    let metadata = vec![
        ("@checksum-crc32".to_string(), text.lines().next().unwrap_or_default().to_string()),
        (PART_SUMS_NOTE.to_string(), text.to_string()),
    ];
    let meta = ObjectMeta { metadata, ..ObjectMeta::default() };
    assert_eq!(Sums::of_part(&meta, 0), None, "parts are counted from 1");
    for number in [1, 2, u32::MAX] {
        drop(Sums::of_part(&meta, number).map(|sums| sums.to_dto()));
    }
    let again = ObjectMeta { metadata: Sums::of(&meta).notes(), ..ObjectMeta::default() };
    assert_eq!(Sums::of(&again), Sums::of(&meta), "checksums that changed");
}

/// Rules of pages of other origins as a bucket's notes keep them, and what they say of requests.
pub(super) fn pages(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (json, asked) = text.split_once('\n').unwrap_or((&text, ""));
    let Ok(rules) = serde_json::from_str::<Vec<Rule>>(json) else { return };
    let checked = rules.iter().all(|rule| rule.check().is_ok());
    let names = ["origin", "access-control-request-method", "access-control-request-headers"];
    let headers = headers(&names, asked);
    for method in [Method::GET, Method::OPTIONS] {
        let Some(question) = Question::of(&method, &headers) else { continue };
        let Some(answer) = question.answer(&rules) else { continue };
        let allowed = &answer["access-control-allow-origin"];
        assert!(allowed == "*" || *allowed == headers["origin"], "another origin: {allowed:?}");
        let has_methods = answer.contains_key("access-control-allow-methods");
        assert!(has_methods || !checked, "rules that were checked and cannot be told");
    }
}

/// Conditions: If-Range, a date, and tags in both forms.
pub(super) fn preconditions(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let modified = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(1_369_353_600_999));
    let etag = ETag::parse(&text);
    for form in [TagForm::Same, TagForm::Dashed] {
        let shown = form.shown(&etag);
        assert_eq!(form.kept(&shown), etag, "a tag that changed");
        if !shown.header_value().starts_with("W/") {
            let held = conditions::if_range(&format!("\"{}\"", shown.0), Some(&shown), None);
            assert!(held, "a tag that is not its own: {shown:?}");
        }
    }
    assert!(!conditions::if_range(&text, None, None), "a version of what is not known");
    conditions::if_range(&text, Some(&etag), modified);
    let mut headers = HeaderMap::new();
    headers.extend(HeaderValue::from_str(&text).ok().map(|value| (IF_UNMODIFIED_SINCE, value)));
    let limit = conditions::unmodified_since(&headers);
    conditions::is_unmodified(limit.as_ref(), &ObjectMeta { modified, ..ObjectMeta::default() });
}

/// Names of hosts: the gateway's own in the first line, a request's in the second, and a path.
pub(super) fn hosts(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let mut lines = text.splitn(3, '\n');
    let domains = lines.next().unwrap_or_default();
    let Ok(hosts) = Hosts::parse(domains, false) else { return };
    let (host, path) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let mut headers = HeaderMap::new();
    headers.extend(HeaderValue::from_str(host).ok().map(|value| (HOST, value)));
    let full = hosts.full_path(&headers, path);
    if let Some(bucket) = hosts.bucket(&headers) {
        assert!(!bucket.is_empty(), "a bucket without a name");
        assert!(host.to_ascii_lowercase().starts_with(&format!("{bucket}.")), "{bucket} of {host}");
        assert_eq!(full, format!("/{bucket}{path}"));
    } else {
        assert_eq!(full, path);
    }
    let location = hosts.location(&headers, "lake", path);
    assert!(location.is_ascii() || !host.is_ascii(), "no URL: {location}");
}

/// Proxies that are trusted in the first line, and X-Forwarded-For in the others.
pub(super) fn proxies(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (setting, lines) = text.split_once('\n').unwrap_or((&text, ""));
    let Ok(proxies) = Proxies::parse(setting) else { return };
    let name = HeaderName::from_static("x-forwarded-for");
    let mut headers = HeaderMap::new();
    for line in lines.split('\n').filter_map(|line| HeaderValue::from_str(line).ok()) {
        headers.append(&name, line);
    }
    let (peer, sender) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([198, 51, 100, 1]));
    let client = proxies.client(peer, &headers);
    assert!(client == peer || proxies.trusts(peer), "somebody was believed who is not trusted");
    // What a trusted proxy saw itself wins over whatever stood there before.
    headers.append(&name, HeaderValue::from_static("198.51.100.1"));
    let client = proxies.client(peer, &headers);
    match (proxies.trusts(peer), proxies.trusts(sender)) {
        (false, _) => assert_eq!(client, peer),
        (true, false) => assert_eq!(client, sender),
        (true, true) => {}
    }
}

/// Queries: their pairs, and headers of the answer that their reader chose.
pub(super) fn queries(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let count = query::pairs(&text).count();
    assert!(count <= text.split('&').count(), "more pairs than there are");
    if let Ok(chosen) = overrides::of_query(&text) {
        assert!(chosen.len() <= count, "more headers than pairs");
    }
}

/// The header that names the source of a copy.
pub(super) const COPY_SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source");

/// Sources of copies, one a line: whoever judges what a copy may read has to mean the same object
/// as whoever reads it.
pub(super) fn copy_source(input: &[u8]) {
    let read = |text: &str| {
        let value = HeaderValue::from_str(text).ok()?;
        auth::copied(&HeaderMap::from_iter([(COPY_SOURCE, value)])).ok()?.pop()
    };
    for line in String::from_utf8_lossy(input).split('\n') {
        let Some(source) = read(line) else { continue };
        assert!(!source.key.contains('\0') && source.key.len() <= 1024, "no key: {source:?}");
        if versions::check_name(&source.key).is_err() {
            continue;
        }
        let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let mut written = format!("{}/{}", source.bucket, encode(&source.key));
        if let Some(version) = &source.version {
            written += &format!("?versionId={}", encode(version));
        }
        assert_eq!(read(&written).as_ref(), Some(&source), "another source: {written}");
    }
}

/// Tags in a header.
pub(super) fn tagging(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let Ok(pairs) = tagging::read_header(&text) else { return };
    assert!(pairs.len() <= 10 && pairs.iter().all(|pair| !pair.0.is_empty()), "{pairs:?}");
    let again = tagging::read_header(&tags::to_query(&pairs));
    assert!(again.is_ok_and(|again| again == pairs), "tags that changed: {pairs:?}");
}

/// The range of a part that is copied.
pub(super) fn copied_range(input: &[u8]) {
    let Ok(header) = HeaderValue::from_bytes(input) else { return };
    let Ok(range) = uploads::copied_range(&header) else { return };
    assert!(range.start < range.end, "a part without a byte: {range:?}");
    let written = format!("bytes={}-{}", range.start, range.end - 1);
    let again = HeaderValue::from_str(&written).map(|header| uploads::copied_range(&header));
    assert!(matches!(again, Ok(Ok(again)) if again == range), "another range: {range:?}");
}

struct Nowhere;

impl Secrets for Nowhere {
    fn file(&self, _: &Path) -> Result<Secret> {
        Ok(Secret::new("from a file"))
    }

    fn variable(&self, _: &str) -> Result<Secret> {
        Ok(Secret::new("from a variable"))
    }
}

/// What stands in every config file that is fed, as a secret.
const SECRET: &str = "hunter2-hunter2";

/// The config file: whatever it says, no secret is in what is told of it.
pub(super) fn config(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let told = match Config::parse(&text, &Nowhere) {
        Ok(config) => format!("{config:?}"),
        Err(error) => format!("{error} {error:?} {:?}", error.hint()),
    };
    let stands_for_a_secret = text
        .lines()
        .all(|line| !line.contains(SECRET) || line.trim_start().starts_with("secret_key = \""));
    assert!(!stands_for_a_secret || !told.contains(SECRET), "a secret is shown: {told}");
}

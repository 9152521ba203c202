//! Preconditions of a request (RFC 9110 section 13), with the services' spelling of tags.

use super::codec::parse_http_date;
use super::http::Headers;
use super::vault::Object;

/// What the preconditions come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Do it.
    Proceed,
    /// 304 for a read, 412 for a write.
    NotModified,
    /// 412.
    Failed,
}

/// Whether a header names the tag; quotes are optional, as the services have it.
fn names(header: &str, etag: &str) -> bool {
    header
        .split(',')
        .map(|tag| tag.trim().trim_start_matches("W/").trim_matches('"'))
        .any(|tag| tag == "*" || tag == etag)
}

/// Judges the preconditions of `headers` whose names start with `prefix`.
pub fn judge(headers: &Headers, prefix: &str, object: Option<&Object>) -> Verdict {
    let header = |name: &str| headers.get(&format!("{prefix}{name}"));
    let time = |name: &str| header(name).and_then(parse_http_date);
    let etag = object.map(|object| object.etag.as_str());
    match (header("if-match"), time("if-unmodified-since")) {
        (Some(tags), _) if !etag.is_some_and(|etag| names(tags, etag)) => return Verdict::Failed,
        (None, Some(time)) if object.is_some_and(|object| object.modified > time) => {
            return Verdict::Failed;
        }
        _ => {}
    }
    match (header("if-none-match"), time("if-modified-since")) {
        (Some(tags), _) if etag.is_some_and(|etag| names(tags, etag)) => Verdict::NotModified,
        (None, Some(time)) if object.is_some_and(|object| object.modified <= time) => {
            Verdict::NotModified
        }
        _ => Verdict::Proceed,
    }
}

#[cfg(test)]
mod tests {
    use super::super::data::Data;
    use super::*;
    use std::time::{Duration, SystemTime};

    fn headers(lines: &[(&str, &str)]) -> Headers {
        Headers(lines.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect())
    }

    #[test]
    fn tags_and_times() {
        let object = Object {
            data: Data::default(),
            etag: "abc".to_string(),
            modified: SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000),
            headers: Vec::new(),
            metadata: Vec::new(),
            checksums: Vec::new(),
            tags: Vec::new(),
            blocks: Vec::new(),
        };
        let (before, after) = ("Mon, 12 Jan 1970 00:00:00 GMT", "Tue, 13 Jan 1970 00:00:00 GMT");
        for (line, there, absent) in [
            (("if-match", "\"abc\""), Verdict::Proceed, Verdict::Failed),
            (("if-match", "abc"), Verdict::Proceed, Verdict::Failed),
            (("if-match", "\"x\", \"abc\""), Verdict::Proceed, Verdict::Failed),
            (("if-match", "\"x\""), Verdict::Failed, Verdict::Failed),
            (("if-match", "*"), Verdict::Proceed, Verdict::Failed),
            (("if-none-match", "*"), Verdict::NotModified, Verdict::Proceed),
            (("if-none-match", "\"x\""), Verdict::Proceed, Verdict::Proceed),
            (("if-modified-since", after), Verdict::NotModified, Verdict::Proceed),
            (("if-modified-since", before), Verdict::Proceed, Verdict::Proceed),
            (("if-unmodified-since", before), Verdict::Failed, Verdict::Proceed),
            (("if-unmodified-since", after), Verdict::Proceed, Verdict::Proceed),
        ] {
            assert_eq!(judge(&headers(&[line]), "", Some(&object)), there, "{line:?}");
            assert_eq!(judge(&headers(&[line]), "", None), absent, "{line:?} of nothing");
        }
    }
}

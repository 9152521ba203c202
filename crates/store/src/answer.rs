//! What the answers of stores mean: failures, ranges and metadata headers.
//!
//! Decides nothing about requests; does no I/O but reading a failed answer's (bounded) body.

mod codes;
mod extent;
mod failure;
mod head;

pub(crate) use extent::{
    Extent, UNKNOWN_END, extent, is_object, is_page, parse_content_range, range_header,
    size_of_cut_part, unsatisfiable_extent,
};
pub(crate) use failure::Failure;
pub(crate) use head::{ByGet, FIRST_BYTE, hides_bytes, is_no_answer, is_size_believed};

use crate::{ETag, ObjectMeta, notes};
use ::http::HeaderMap;
use ::http::header::{CONTENT_TYPE, DATE, ETAG, HeaderName, LAST_MODIFIED};
use jiff::Timestamp;
use std::time::SystemTime;

/// The standard headers that an object keeps, and the names of their metadata pairs (see
/// [`crate::PutOptions::metadata`]).
pub(crate) const STANDARD_HEADERS: &[(&str, &str)] = &[
    ("@cache-control", "cache-control"),
    ("@content-disposition", "content-disposition"),
    ("@content-encoding", "content-encoding"),
    ("@content-language", "content-language"),
    ("@expires", "expires"),
];

/// ETag, time, media type, storage class, standard headers and user metadata (headers that start
/// with `metadata_prefix`).
pub(crate) fn object_meta(
    headers: &HeaderMap,
    size_bytes: Option<u64>,
    metadata_prefix: &str,
) -> ObjectMeta {
    let told = |name: &str| match STANDARD_HEADERS.iter().find(|(_, header)| *header == name) {
        Some((pair, _)) => Some((*pair).to_string()),
        None => match name.strip_prefix(metadata_prefix) {
            Some(name) => Some(name.to_string()),
            None => told_note(name),
        },
    };
    let metadata = headers.iter().filter_map(|(name, value)| {
        let name = told(name.as_str()).filter(|_| !metadata_prefix.is_empty())?;
        Some((name, value.to_str().ok()?.to_string()))
    });
    ObjectMeta {
        size_bytes,
        etag: text_header(headers, ETAG.as_str())
            .map(|text| ETag::parse(&text))
            .filter(|etag| !etag.0.is_empty()),
        modified: text_header(headers, LAST_MODIFIED.as_str())
            .and_then(|text| parse_http_date(&text)),
        content_type: text_header(headers, CONTENT_TYPE.as_str()),
        metadata: metadata.collect(),
        version: version(headers),
        storage_class: ["x-amz-storage-class", "x-goog-storage-class"]
            .iter()
            .find_map(|name| notes::told_class(&text_header(headers, name)?)),
    }
}

/// The notes that services keep themselves: tags and parts by their number, checksums.
fn told_note(header: &str) -> Option<String> {
    match header {
        "x-amz-tagging-count" | "x-ms-tag-count" => Some(TAG_COUNT.to_string()),
        "x-amz-mp-parts-count" => Some(PART_COUNT.to_string()),
        "x-amz-checksum-type" => None,
        _ => {
            let sum = header.strip_prefix("x-amz-")?;
            sum.starts_with("checksum-").then(|| format!("@{sum}"))
        }
    }
}

/// The pair of metadata that tells how many tags an object has.
pub(crate) const TAG_COUNT: &str = "@tag-count";
/// The pair of metadata that tells how many parts an object was made of.
pub(crate) const PART_COUNT: &str = "@part-count";

/// Whether a pair of metadata is what [`object_meta`] read of a service's own accounts: nothing
/// that a copy's writer may send.
pub(crate) fn is_told_note(name: &str) -> bool {
    name == TAG_COUNT || name == PART_COUNT || name.starts_with("@checksum-")
}

/// The id of the version that an answer tells of.
pub(crate) fn version(headers: &HeaderMap) -> Option<String> {
    text_header(headers, "x-amz-version-id").filter(|id| !id.is_empty())
}

/// A header as text; `None` where it is missing or no text.
pub(crate) fn text_header(headers: &HeaderMap, name: &str) -> Option<String> {
    let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
    headers.get(name)?.to_str().ok().map(|text| text.trim().to_string())
}

/// The time of a version that this answer confirms as written: `Last-Modified` where it is told,
/// else the server's own clock (`Date`), which is at most the length of the write later.
pub(crate) fn written_at(headers: &HeaderMap) -> Option<SystemTime> {
    [LAST_MODIFIED, DATE]
        .iter()
        .find_map(|name| parse_http_date(&text_header(headers, name.as_str())?))
}

/// `Fri, 20 Nov 2026 07:28:14 GMT` (RFC 9110 section 5.6.7).
pub(crate) fn parse_http_date(text: &str) -> Option<SystemTime> {
    static PARSER: jiff::fmt::rfc2822::DateTimeParser =
        jiff::fmt::rfc2822::DateTimeParser::new().relaxed_weekday(true);
    PARSER.parse_timestamp(text.trim()).ok().map(SystemTime::from)
}

/// `2026-11-20T07:28:14.000Z`, as listings write times.
pub(crate) fn parse_iso_date(text: &str) -> Option<SystemTime> {
    text.trim().parse::<Timestamp>().ok().map(SystemTime::from)
}

#[cfg(test)]
mod tests;

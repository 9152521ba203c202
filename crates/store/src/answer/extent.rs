//! Checks the range of an answer against the one asked for.

use crate::answer::{Failure, text_header};
use crate::{GetRange, Ranges};
use ::http::HeaderMap;
use ::http::header::{ACCEPT_RANGES, CONTENT_RANGE, CONTENT_TYPE};
use penstock_base::{ByteRange, Error, Kind, Result, Retry};

/// Where a checked answer's bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The object's bytes that the body holds.
    pub range: ByteRange,
    /// Size of the whole object, where told.
    pub size_bytes: Option<u64>,
    /// Whether the body holds the range that was asked for, or the whole object.
    pub ranges: Ranges,
}

/// End of the range of a body whose length the server does not tell.
pub(crate) const UNKNOWN_END: u64 = u64::MAX;

/// Whether a status says that an object, or a part of one, follows. Every other one says "not now"
/// or "not this", whatever its body holds.
pub(crate) fn is_object(status: u16) -> bool {
    matches!(status, 200 | 203 | 206)
}

/// Checks the answer of an object against what was asked for. An answer with a range of bytes is a
/// part, whatever its status is.
///
/// # Errors
/// `Corrupt` (retry) when the answer's range is not the one asked for or contradicts its length.
pub(crate) fn extent(asked: GetRange, status: u16, headers: &HeaderMap) -> Result<Extent> {
    let length = crate::http::content_length(headers)?;
    let text = text_header(headers, CONTENT_RANGE.as_str());
    let told = text.as_deref().and_then(parse_content_range);
    if status != 206 && told.is_none() {
        return Ok(whole(asked, length, headers));
    }
    let wrong = |why: String| {
        Error::new(Kind::Corrupt, format!("the server sent another range than asked: {why}"))
            .with_retry(Retry::Briefly)
            .with_http_status(status)
            .with_hint("Does a proxy or cache between here and the store alter ranges?")
    };
    let text = text.ok_or_else(|| wrong("status 206 without Content-Range".to_string()))?;
    let Some((range, size)) = told else {
        return Err(wrong(format!("Content-Range `{text}` is malformed")));
    };
    if length.is_some_and(|length| length != range.len()) {
        return Err(wrong(format!("Content-Range `{text}` contradicts Content-Length")));
    }
    let fits = match (asked, size) {
        (GetRange::All, size) => range.start == 0 && size.is_none_or(|size| range.end == size),
        (GetRange::Bounded(want), Some(size)) => {
            range.start == want.start && range.end == want.end.min(size)
        }
        (GetRange::Bounded(want), None) => range.start == want.start && range.end <= want.end,
        (GetRange::From(start), size) => {
            range.start == start && size.is_none_or(|size| range.end == size)
        }
        (GetRange::Suffix(count), Some(size)) => {
            range.end == size && range.len() == count.min(size)
        }
        (GetRange::Suffix(count), None) => range.len() <= count,
    };
    if !fits {
        return Err(wrong(format!("asked for {}, got `{text}`", describe(asked))));
    }
    Ok(Extent { range, size_bytes: size, ranges: Ranges::Served })
}

/// The server sends the whole object, asked or not.
fn whole(asked: GetRange, length: Option<u64>, headers: &HeaderMap) -> Extent {
    let offers = text_header(headers, ACCEPT_RANGES.as_str())
        .is_some_and(|text| text.to_ascii_lowercase().contains("bytes"));
    let ranges = match (asked, offers) {
        (GetRange::All, _) => Ranges::Served,
        (_, true) => Ranges::Offered,
        (_, false) => Ranges::Ignored,
    };
    let range = ByteRange { start: 0, end: length.unwrap_or(UNKNOWN_END) };
    Extent { range, size_bytes: length, ranges }
}

/// The object's size by a part that names the range asked for and holds another number of bytes:
/// its body was cut, and its head is right. `None` for every other answer.
pub(crate) fn size_of_cut_part(asked: GetRange, headers: &HeaderMap) -> Option<u64> {
    let length = crate::http::content_length(headers).ok()??;
    let text = text_header(headers, CONTENT_RANGE.as_str())?;
    let (range, size) = parse_content_range(&text)?;
    let size = size?;
    let is_asked = match asked {
        GetRange::All => range.start == 0,
        GetRange::From(start) | GetRange::Bounded(ByteRange { start, .. }) => range.start == start,
        GetRange::Suffix(_) => range.end == size,
    };
    (is_asked && length != range.len()).then_some(size)
}

/// Whether a 206 to a request for all bytes is one page of many: it names no range of bytes.
pub(crate) fn is_page(headers: &HeaderMap) -> bool {
    let media_type = text_header(headers, CONTENT_TYPE.as_str()).unwrap_or_default();
    let is_in_parts = media_type.to_ascii_lowercase().starts_with("multipart/byteranges");
    let range = text_header(headers, CONTENT_RANGE.as_str()).unwrap_or_default();
    !is_in_parts && !range.trim_start().to_ascii_lowercase().starts_with("bytes")
}

/// The size that a 416 tells, if it does.
fn told_size(headers: &HeaderMap, failure: &Failure) -> Option<u64> {
    text_header(headers, CONTENT_RANGE.as_str())
        .as_deref()
        .and_then(|text| text.trim().strip_prefix("bytes"))
        .and_then(|text| text.trim().strip_prefix("*/"))
        .and_then(|size| size.trim().parse().ok())
        .or(failure.object_size)
}

/// The empty extent that a 416 stands for; `None` where the size shows that the range was fine.
/// Without a size, a range that begins at 0 or is counted from the end may have been fine too.
pub(crate) fn unsatisfiable_extent(
    asked: GetRange,
    headers: &HeaderMap,
    failure: &Failure,
) -> Option<Extent> {
    let size = told_size(headers, failure);
    let start = match asked {
        GetRange::All => 0,
        GetRange::Bounded(want) => want.start,
        GetRange::From(start) => start,
        GetRange::Suffix(_) => 0,
    };
    if size.is_some_and(|size| start < size) {
        return None;
    }
    let at = size.unwrap_or(start);
    let range = ByteRange { start: at, end: at };
    Some(Extent { range, size_bytes: size, ranges: Ranges::Served })
}

/// `bytes 0-9/100` or `bytes 0-9/*`.
pub(crate) fn parse_content_range(text: &str) -> Option<(ByteRange, Option<u64>)> {
    let (range, size) = text.trim().strip_prefix("bytes")?.trim().split_once('/')?;
    let (first, last) = range.trim().split_once('-')?;
    let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    let size = match size.trim() {
        "*" => None,
        digits => Some(digits.parse::<u64>().ok()?),
    };
    let end = last.checked_add(1)?;
    let sane = first <= last && size.is_none_or(|size| end <= size);
    sane.then_some((ByteRange { start: first, end }, size))
}

fn describe(asked: GetRange) -> String {
    match asked {
        GetRange::All => "all bytes".to_string(),
        GetRange::Bounded(want) => format!("bytes {}-{}", want.start, want.end.saturating_sub(1)),
        GetRange::From(start) => format!("bytes {start}-"),
        GetRange::Suffix(count) => format!("the last {count} bytes"),
    }
}

/// The value of a Range header; `None` for all bytes.
pub(crate) fn range_header(asked: GetRange) -> Option<String> {
    match asked {
        GetRange::All => None,
        GetRange::Bounded(want) => {
            Some(format!("bytes={}-{}", want.start, want.end.saturating_sub(1)))
        }
        GetRange::From(start) => Some(format!("bytes={start}-")),
        GetRange::Suffix(count) => Some(format!("bytes=-{count}")),
    }
}

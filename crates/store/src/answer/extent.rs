//! Checks the range of an answer against the one asked for.

use crate::GetRange;
use crate::answer::{Failure, text_header};
use ::http::HeaderMap;
use ::http::header::CONTENT_RANGE;
use penstock_base::{ByteRange, Error, Kind, Result, Retry};

/// Where a checked answer's bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The object's bytes that the caller gets.
    pub range: ByteRange,
    /// Size of the whole object, where told.
    pub size_bytes: Option<u64>,
    /// Bytes of the body before `range`: the server ignored the range and sends all.
    pub skip_bytes: u64,
}

/// End of the range of a body whose length the server does not tell.
pub(crate) const UNKNOWN_END: u64 = u64::MAX;

/// Checks a 200 or 206 against what was asked for.
///
/// # Errors
/// `Corrupt` (retry) when the answer's range is not the one asked for or contradicts its length;
/// `Unsupported` when the server ignored the range and the asked bytes cannot be found.
pub(crate) fn extent(asked: GetRange, status: u16, headers: &HeaderMap) -> Result<Extent> {
    let length = crate::http::content_length(headers)?;
    if status != 206 {
        return whole_extent(asked, length);
    }
    let wrong = |why: String| {
        Error::new(Kind::Corrupt, format!("the server sent another range than asked: {why}"))
            .with_retry(Retry::Briefly)
            .with_http_status(status)
            .with_hint("Does a proxy or cache between here and the store alter ranges?")
    };
    let text = text_header(headers, CONTENT_RANGE.as_str())
        .ok_or_else(|| wrong("status 206 without Content-Range".to_string()))?;
    let Some((range, size)) = parse_content_range(&text) else {
        return Err(wrong(format!("Content-Range `{text}` is malformed")));
    };
    let told = || wrong(format!("asked for {}, got `{text}`", describe(asked)));
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
        return Err(told());
    }
    Ok(Extent { range, size_bytes: size, skip_bytes: 0 })
}

/// The server sends the whole object, asked or not.
fn whole_extent(asked: GetRange, length: Option<u64>) -> Result<Extent> {
    let end = length.unwrap_or(UNKNOWN_END);
    let (start, end) = match asked {
        GetRange::All => (0, end),
        GetRange::Bounded(want) => (want.start.min(end), want.end.min(end)),
        GetRange::From(start) => (start.min(end), end),
        GetRange::Suffix(count) => match length {
            Some(length) => (length - count.min(length), length),
            None => {
                return Err(Error::new(
                    Kind::Unsupported,
                    "the server knows neither ranges nor the object's size",
                )
                .with_hint("Copy the object to a store that does"));
            }
        },
    };
    Ok(Extent { range: ByteRange { start, end }, size_bytes: length, skip_bytes: start })
}

/// The empty extent that a 416 stands for; `None` where the size shows that the range was fine.
pub(crate) fn unsatisfiable_extent(
    asked: GetRange,
    headers: &HeaderMap,
    failure: &Failure,
) -> Option<Extent> {
    let told = text_header(headers, CONTENT_RANGE.as_str());
    let size = told
        .as_deref()
        .and_then(|text| text.trim().strip_prefix("bytes"))
        .and_then(|text| text.trim().strip_prefix("*/"))
        .and_then(|size| size.trim().parse().ok())
        .or(failure.object_size);
    let start = match asked {
        GetRange::All => 0,
        GetRange::Bounded(want) => want.start,
        GetRange::From(start) => start,
        // Nothing else than an empty object has no last byte.
        GetRange::Suffix(_) => size.unwrap_or(0),
    };
    if size.is_some_and(|size| start < size) {
        return None;
    }
    let at = size.unwrap_or(start);
    Some(Extent { range: ByteRange { start: at, end: at }, size_bytes: size, skip_bytes: 0 })
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

//! Texts on the wire: percent coding, hex, dates. Written apart from the client's own code.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::time::{Duration, SystemTime};

/// Decodes `%XX`; `plus` also turns `+` into a space, as query strings and forms do.
/// `None` for a broken escape or bytes that are not UTF-8.
pub fn percent_decode(text: &str, plus: bool) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let high = char::from(bytes.next()?).to_digit(16)?;
                let low = char::from(bytes.next()?).to_digit(16)?;
                out.push((high * 16 + low) as u8);
            }
            b'+' if plus => out.push(b' '),
            byte => out.push(byte),
        }
    }
    String::from_utf8(out).ok()
}

/// Encodes all but the unreserved characters of RFC 3986 and those in `keep`.
pub fn percent_encode(text: &str, keep: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || keep.contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes of a hexadecimal text; `None` when it is not one.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

fn stamp(time: SystemTime) -> Timestamp {
    Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// `Fri, 20 Nov 2026 07:28:14 GMT` (RFC 9110 section 5.6.7).
pub fn http_date(time: SystemTime) -> String {
    stamp(time).to_zoned(TimeZone::UTC).strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// Reads an HTTP date.
pub fn parse_http_date(text: &str) -> Option<SystemTime> {
    let civil = text.trim().strip_suffix(" GMT")?;
    let civil = jiff::civil::DateTime::strptime("%a, %d %b %Y %H:%M:%S", civil).ok()?;
    Some(civil.to_zoned(TimeZone::UTC).ok()?.timestamp().into())
}

/// `2026-11-20T07:28:14.000Z`, the form of S3 listings.
pub fn iso_date(time: SystemTime) -> String {
    stamp(time).to_zoned(TimeZone::UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string()
}

/// Reads `2026-11-20T07:28:14Z`, `2026-11-20T07:28Z` or `2026-11-20`, the forms of a SAS.
pub fn parse_iso_date(text: &str) -> Option<SystemTime> {
    if let Ok(stamp) = text.parse::<Timestamp>() {
        return Some(stamp.into());
    }
    let whole = match text.strip_suffix('Z') {
        Some(minutes) => format!("{minutes}:00Z"),
        None => format!("{text}T00:00:00Z"),
    };
    whole.parse::<Timestamp>().ok().map(SystemTime::from)
}

/// Reads `20261120T072814Z`, the form of AWS signatures.
pub fn parse_amz_date(text: &str) -> Option<SystemTime> {
    let civil = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%S", text.strip_suffix('Z')?).ok()?;
    Some(civil.to_zoned(TimeZone::UTC).ok()?.timestamp().into())
}

/// The time without its fraction of a second: what HTTP can express.
pub fn whole_seconds(time: SystemTime) -> SystemTime {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs())
}

/// Distance between two times, in either direction.
pub fn apart(a: SystemTime, b: SystemTime) -> Duration {
    a.duration_since(b).unwrap_or_else(|error| error.duration())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dates_read_back_what_they_wrote() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_159_694);
        assert_eq!(http_date(time), "Fri, 20 Nov 2026 07:28:14 GMT");
        assert_eq!(parse_http_date(&http_date(time)), Some(time));
        assert_eq!(parse_iso_date(&iso_date(time)), Some(time));
        assert_eq!(parse_amz_date("20261120T072814Z"), Some(time));
        assert_eq!(parse_iso_date("2026-11-20T07:28Z"), Some(time - Duration::from_secs(14)));
        for wrong in ["", "Fri", "20 Nov 2026", "2026-13-01T00:00:00Z"] {
            assert_eq!(parse_http_date(wrong), None);
            assert_eq!(parse_amz_date(wrong), None);
        }
    }

    #[test]
    fn broken_escapes_are_refused() {
        for text in ["%", "%2", "%zz", "%ff", "a%C3"] {
            assert_eq!(percent_decode(text, false), None, "{text}");
        }
        assert_eq!(percent_decode("a+b%2B", true).as_deref(), Some("a b+"));
        assert_eq!(percent_decode("a+b%2B", false).as_deref(), Some("a+b+"));
        assert_eq!(unhex("0aF"), None);
        assert_eq!(unhex("0aFf"), Some(vec![0x0a, 0xff]));
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes(text: String) {
            let encoded = percent_encode(&text, b"/");
            prop_assert_eq!(percent_decode(&encoded, true), Some(text.clone()));
            prop_assert_eq!(percent_decode(&encoded, false), Some(text));
        }

        #[test]
        fn decoding_never_panics(text in "[%+0-9a-fA-Fü]{0,20}") {
            percent_decode(&text, true);
            unhex(&text);
            parse_http_date(&text);
            parse_iso_date(&text);
        }
    }
}

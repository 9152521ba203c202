//! The `--range` of `cat`: `A-B` (both inclusive), `A-` or `-N` (the last N bytes), as in HTTP.

use penstock_base::{ByteRange, Error, Kind};
use penstock_engine::GetRange;

/// A range as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeFlag(pub GetRange);

impl std::str::FromStr for RangeFlag {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::new(Kind::Invalid, format!("`{text}` is no range"))
                .with_hint("Write A-B (both inclusive), A- or -N (the last N bytes)")
        };
        let (first, last) = text.split_once('-').ok_or_else(wrong)?;
        let number = |digits: &str| digits.parse::<u64>().map_err(|_| wrong());
        Ok(RangeFlag(match (first, last) {
            ("", count) => GetRange::Suffix(number(count)?),
            (start, "") => GetRange::From(number(start)?),
            (start, last) => {
                let (start, last) = (number(start)?, number(last)?);
                let end = last.checked_add(1).filter(|end| start < *end).ok_or_else(wrong)?;
                GetRange::Bounded(ByteRange { start, end })
            }
        }))
    }
}

/// Refuses a range that has no byte because it begins behind the object's end, as HTTP does
/// (RFC 9110 section 15.5.17); the whole of an empty object is fine.
///
/// # Errors
/// `Invalid`.
pub fn check(range: GetRange, size_bytes: Option<u64>) -> Result<(), Error> {
    let (GetRange::From(start) | GetRange::Bounded(ByteRange { start, .. })) = range else {
        return Ok(());
    };
    match size_bytes {
        Some(size) if start > 0 && start >= size => {
            let why = format!("the range begins at byte {start} of an object of {size} bytes");
            Err(Error::new(Kind::Invalid, why).with_hint("The first byte is number 0"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_begin_within_the_object() {
        let bounded = |start, end| GetRange::Bounded(ByteRange { start, end });
        for (range, is_fine) in [
            (bounded(0, 9), true),
            (bounded(4, 9), true),
            (bounded(5, 9), false),
            (GetRange::From(4), true),
            (GetRange::From(6), false),
            (GetRange::Suffix(9), true),
            (GetRange::All, true),
        ] {
            assert_eq!(check(range, Some(5)).is_ok(), is_fine, "{range:?}");
            assert!(check(range, None).is_ok());
        }
        assert!(check(GetRange::From(0), Some(0)).is_ok());
    }

    #[test]
    fn ranges_read_as_in_http() {
        let read = |text: &str| text.parse::<RangeFlag>().map(|range| range.0);
        assert_eq!(read("0-0").unwrap(), GetRange::Bounded(ByteRange { start: 0, end: 1 }));
        assert_eq!(read("5-").unwrap(), GetRange::From(5));
        assert_eq!(read("-5").unwrap(), GetRange::Suffix(5));
        for wrong in ["", "-", "5", "9-3", "a-b", "0-18446744073709551615"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}

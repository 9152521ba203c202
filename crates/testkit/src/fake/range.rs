//! `Range` headers: bytes asked for, against an object of a size.

use penstock_base::ByteRange;

/// What a `Range` header comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// No usable range: serve everything with 200.
    Whole,
    /// Serve these bytes with 206.
    Part(ByteRange),
    /// No byte of the object is in it: 416.
    Unsatisfiable,
}

/// Judges a header value (RFC 9110 section 14.2); a malformed or multiple range counts as none.
pub fn resolve(value: Option<&str>, size: u64) -> Resolved {
    let Some((first, last)) = value
        .and_then(|value| value.trim().strip_prefix("bytes="))
        .filter(|ranges| !ranges.contains(','))
        .and_then(|range| range.trim().split_once('-'))
    else {
        return Resolved::Whole;
    };
    let number = |text: &str| -> Option<u64> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // More digits than a number holds means further than any object reaches.
        digits.then(|| text.parse().unwrap_or(u64::MAX))
    };
    let part = |start: u64, end: u64| {
        if start < end { Resolved::Part(ByteRange { start, end }) } else { Resolved::Unsatisfiable }
    };
    match (number(first), number(last), first.is_empty(), last.is_empty()) {
        (None, Some(suffix), true, _) => part(size - suffix.min(size), size),
        (Some(start), None, _, true) => part(start, size),
        (Some(start), Some(last), ..) if start <= last => {
            part(start, size.min(last.saturating_add(1)))
        }
        _ => Resolved::Whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn forms() {
        let part = |start, end| Resolved::Part(ByteRange { start, end });
        for (value, expected) in [
            ("bytes=0-0", part(0, 1)),
            ("bytes=2-", part(2, 10)),
            ("bytes=-3", part(7, 10)),
            ("bytes=-30", part(0, 10)),
            ("bytes=5-99999999999999999999999", part(5, 10)),
            ("bytes=10-", Resolved::Unsatisfiable),
            ("bytes=99999999999999999999999-", Resolved::Unsatisfiable),
            ("bytes=-0", Resolved::Unsatisfiable),
            ("bytes=5-4", Resolved::Whole),
            ("bytes=0-1,3-4", Resolved::Whole),
            ("bytes=a-b", Resolved::Whole),
            ("bytes=-", Resolved::Whole),
            ("items=0-1", Resolved::Whole),
        ] {
            assert_eq!(resolve(Some(value), 10), expected, "{value}");
        }
        assert_eq!(resolve(Some("bytes=0-"), 0), Resolved::Unsatisfiable);
        assert_eq!(resolve(None, 10), Resolved::Whole);
    }

    proptest! {
        #[test]
        fn never_outside_the_object(value in "(bytes=)?[0-9-]{0,24}", size: u64) {
            if let Resolved::Part(range) = resolve(Some(&value), size) {
                prop_assert!(range.start < range.end && range.end <= size);
            }
        }
    }
}

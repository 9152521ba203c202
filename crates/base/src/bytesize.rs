//! Byte sizes as people write them: `64MiB`, `1GB`, `512`.

use crate::{Error, Kind, Result};
use std::fmt;

/// A number of bytes that parses from and prints as text with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

const UNITS: &[(&str, u64)] = &[
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("b", 1),
];

impl std::str::FromStr for ByteSize {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::new(Kind::Invalid, format!("`{text}` is not a byte size"))
                .with_hint("Write a whole number with an optional unit, such as 8MiB or 500MB")
        };
        let lower = text.trim().to_ascii_lowercase();
        let (digits, factor) = UNITS
            .iter()
            .find_map(|(unit, factor)| lower.strip_suffix(unit).map(|rest| (rest, *factor)))
            .unwrap_or((&lower, 1));
        let number: u64 = digits.trim().parse().map_err(|_| wrong())?;
        number.checked_mul(factor).map(ByteSize).ok_or_else(wrong)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, factor) in
            [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)]
        {
            if self.0 >= factor && self.0.is_multiple_of(factor) {
                return write!(f, "{}{unit}", self.0 / factor);
            }
        }
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn units_parse() {
        for (text, bytes) in [("512", 512), ("8MiB", 8 << 20), ("1 GB", 1_000_000_000), ("3b", 3)] {
            assert_eq!(text.parse::<ByteSize>().unwrap(), ByteSize(bytes), "{text}");
        }
    }

    #[test]
    fn nonsense_and_overflow_are_refused() {
        for text in ["", "MiB", "-1", "1.5MiB", "99999999999TiB"] {
            assert_eq!(text.parse::<ByteSize>().unwrap_err().kind(), Kind::Invalid, "{text}");
        }
    }

    proptest! {
        #[test]
        fn printed_size_parses_back(bytes: u64) {
            let size = ByteSize(bytes);
            prop_assert_eq!(size.to_string().parse::<ByteSize>().unwrap(), size);
        }
    }
}

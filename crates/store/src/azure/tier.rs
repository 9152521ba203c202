//! Storage classes of S3 as access tiers of blobs, and back. Pure.
//!
//! STANDARD is no tier of its own: what is written without one is in the account's default tier,
//! which is Hot unless the account says otherwise, and accounts without tiers (premium ones) take
//! no other write.

use http::HeaderMap;

/// The header of a write, and of an answer.
pub(super) const HEADER: &str = "x-ms-access-tier";

/// Class, its tier, and whether the tier is told as this class. Ids of blocks name a class by its
/// place in here, so new ones go to the end.
const CLASSES: &[(&str, &str, bool)] = &[
    ("STANDARD_IA", "Cool", true),
    ("ONEZONE_IA", "Cool", false),
    ("GLACIER_IR", "Cold", true),
    // An archived blob takes hours to come back, as from either.
    ("DEEP_ARCHIVE", "Archive", true),
    ("GLACIER", "Archive", false),
];

/// The tier to write a class in; `None` for STANDARD, and for classes that there are none for.
pub(super) fn of_class(class: &str) -> Option<&'static str> {
    CLASSES.iter().find(|row| row.0 == class).map(|row| row.1)
}

/// The number of a class in the ids of blocks; 0 for STANDARD.
pub(super) fn number_of(class: Option<&str>) -> u8 {
    let at = CLASSES.iter().position(|row| Some(row.0) == class);
    at.and_then(|at| u8::try_from(at + 1).ok()).unwrap_or(0)
}

/// The class of a number; `None` for STANDARD, and for one that nobody gave.
pub(super) fn class_at(number: u8) -> Option<&'static str> {
    CLASSES.get(usize::from(number).checked_sub(1)?).map(|row| row.0)
}

/// The class that a tier is told as; `None` for STANDARD.
pub(super) fn class_of(tier: &str) -> Option<Box<str>> {
    let tier = tier.trim();
    CLASSES.iter().find(|row| row.2 && row.1.eq_ignore_ascii_case(tier)).map(|row| row.0.into())
}

/// The class of a blob by the head of an answer.
pub(super) fn class_told(headers: &HeaderMap) -> Option<Box<str>> {
    class_of(headers.get(HEADER)?.to_str().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tier_is_told_as_one_class_that_is_written_there() {
        for (_, tier, _) in CLASSES {
            assert_eq!(CLASSES.iter().filter(|row| row.1 == *tier && row.2).count(), 1, "{tier}");
            let class = class_of(tier).unwrap();
            assert_eq!(of_class(&class), Some(*tier));
        }
        for tier in ["Hot", "P10", ""] {
            assert_eq!(class_of(tier), None, "{tier}");
        }
        assert_eq!(of_class("STANDARD"), None);
        for (class, ..) in CLASSES {
            assert_eq!(class_at(number_of(Some(class))), Some(*class));
        }
        assert_eq!((number_of(None), number_of(Some("STANDARD")), class_at(0)), (0, 0, None));
        assert_eq!(class_at(u8::MAX), None);
    }
}

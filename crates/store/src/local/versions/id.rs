//! Names of versions: what an id may be, which of them tell a time, what their files are called.

use crate::local::names::VERSION;
use crate::local::write;
use rustix::fs::Stat;
use std::time::{Duration, SystemTime};

const ID_CHARS_MAX: usize = 64;

pub(super) fn file_name(id: &str) -> String {
    format!("{VERSION}{id}")
}

/// An id becomes part of a path, and may come from a stranger.
pub(super) fn is_id(id: &str) -> bool {
    (1..=ID_CHARS_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Digits of an id that tell its time, and all of them; see [`fresh`].
const ID_DIGITS: [usize; 2] = [17, 25];

/// An id that no version has.
pub(super) fn fresh() -> String {
    let nanos = write::since_epoch().as_nanos();
    let random: [u8; 4] = crate::random::bytes();
    format!("{nanos:017x}{:08x}", u32::from_be_bytes(random))
}

/// The id of a version whose own is lost: by its file, so that it is the same each time.
pub(super) fn of_lost(stat: &Stat) -> String {
    let nanos = i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec);
    let nanos = u64::try_from(nanos).unwrap_or(0);
    format!("{nanos:017x}{:08x}", stat.st_ino & u64::from(u32::MAX))
}

/// When a version was begun, by its id; `None` for what no bucket gave.
pub(super) fn time_of(id: &str) -> Option<SystemTime> {
    let [time_digits, digits] = ID_DIGITS;
    let is_ours = id.len() == digits && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let nanos = u64::from_str_radix(id.get(..time_digits).filter(|_| is_ours)?, 16).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(nanos))
}

/// What a fuzzer feeds.
#[cfg(any(test, feature = "fuzzing"))]
pub(in crate::local) fn fuzz(id: &str) {
    let has_time = time_of(id).is_some();
    assert!(!has_time || is_id(id), "a time without an id: {id:?}");
    if is_id(id) {
        let name = file_name(id);
        assert!(name.len() <= 255 && !name.contains(['/', '\0']), "no name: {name:?}");
    }
}

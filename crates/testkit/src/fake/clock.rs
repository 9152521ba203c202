//! The fakes' only look at the wall clock.

use super::codec::whole_seconds;
use std::time::{Duration, SystemTime};

/// The time, without its fraction of a second: what HTTP can express.
pub fn now() -> SystemTime {
    whole_seconds(SystemTime::now())
}

/// The time of a server whose clock is ahead by so many seconds, or behind.
pub fn now_ahead(offset_s: i64) -> SystemTime {
    let offset = Duration::from_secs(offset_s.unsigned_abs());
    if offset_s < 0 { SystemTime::now() - offset } else { SystemTime::now() + offset }
}

//! When a refused HEAD says nothing of GET. Pure.

use super::Failure;
use crate::GetRange;
use penstock_base::{ByteRange, Error, Kind};

/// The range by which a GET tells what a HEAD should have told.
pub(crate) const FIRST_BYTE: GetRange = GetRange::Bounded(ByteRange { start: 0, end: 1 });

/// Whether a GET may find the object of which a HEAD was refused so. `is_marked`: the answer has a
/// header by which only the service is known, so its word of what is absent or denied counts.
pub(crate) fn may_answer_get(failure: &Failure, is_marked: bool) -> bool {
    // It says when to come again, for whatever request.
    let is_later = matches!(failure.status, 429 | 503) || failure.retry_after.is_some();
    let is_of_head = matches!(failure.status, 405 | 406 | 501);
    failure.marker.is_none() && !is_later && (is_of_head || !is_marked)
}

/// Whether HEAD failed in a way in which GET need not: something on the way may hang up on it, or
/// answer what is no HTTP.
pub(crate) fn is_no_answer(error: &Error) -> bool {
    matches!(error.kind(), Kind::Unavailable | Kind::Corrupt)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_word_of_the_service_counts_and_that_of_a_proxy_does_not() {
        let failure = |status| Failure { status, ..Failure::default() };
        for status in [201, 202, 204, 304, 400, 401, 403, 404, 500, 502] {
            assert!(may_answer_get(&failure(status), false), "{status}");
            assert!(!may_answer_get(&failure(status), true), "{status}");
        }
        for status in [405, 406, 501] {
            assert!(may_answer_get(&failure(status), true), "{status}");
        }
        for status in [429, 503] {
            assert!(!may_answer_get(&failure(status), false), "{status}");
        }
        let later = Failure { retry_after: Some(Duration::ZERO), ..failure(202) };
        assert!(!may_answer_get(&later, false));
        let removed = Failure { marker: Some("v".into()), ..failure(405) };
        assert!(!may_answer_get(&removed, true), "a delete marker answers 405");
    }
}

//! When a HEAD is believed, and when a GET is asked instead. Pure.

use super::Failure;
use crate::{GetRange, ObjectMeta};
use penstock_base::{ByteRange, Error, Kind};

/// The range by which a GET tells what a HEAD should have told.
pub(crate) const FIRST_BYTE: GetRange = GetRange::Bounded(ByteRange { start: 0, end: 1 });

/// Whether a GET is asked where a HEAD brought no object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByGet {
    /// No: HEAD's word counts.
    Never,
    /// Yes, and HEAD may do better the next time.
    Now,
    /// Yes, and where that finds the object HEAD is not asked again.
    FromNowOn,
    /// Yes: HEAD had no answer.
    Instead,
}

impl ByGet {
    /// After a refusal. `is_marked`: the answer has a header by which only the service is known, so
    /// its word of what is absent or denied counts.
    pub(crate) fn after_refusal(failure: &Failure, is_marked: bool) -> ByGet {
        match (may_answer_get(failure, is_marked), failure.status) {
            (false, _) => ByGet::Never,
            (true, 501) => ByGet::FromNowOn,
            (true, 500..) => ByGet::Now,
            (true, _) => ByGet::FromNowOn,
        }
    }

    /// After an answer with a status of success that is no object's: a web page, or one without
    /// the headers that every object has.
    pub(crate) fn after_strange(is_marked: bool) -> ByGet {
        if is_marked { ByGet::Never } else { ByGet::FromNowOn }
    }

    /// After a request that failed.
    pub(crate) fn after_error(error: &Error) -> ByGet {
        if is_no_answer(error) { ByGet::Instead } else { ByGet::Never }
    }
}

/// Whether a HEAD's size is believed. Proxies and load balancers exist that answer each HEAD with
/// `Content-Length: 0`, so a GET must say too that there are no bytes. An object that is empty
/// costs one small request more by that, at each look; no earlier answer of the host would do
/// instead, since such a box is right about the empty ones.
pub(crate) fn is_size_believed(size_bytes: Option<u64>) -> bool {
    size_bytes != Some(0)
}

/// Whether HEAD names no bytes where GET has some of the same object: it will do so again.
pub(crate) fn hides_bytes(head: &ObjectMeta, get: &ObjectMeta) -> bool {
    head.size_bytes == Some(0) && get.size_bytes != Some(0) && head.etag == get.etag
}

/// Whether a GET may find the object of which a HEAD was refused so.
fn may_answer_get(failure: &Failure, is_marked: bool) -> bool {
    // It says when to come again, for whatever request.
    let is_later = matches!(failure.status, 429 | 503) || failure.retry_after.is_some();
    let is_of_head = matches!(failure.status, 405 | 406 | 501);
    failure.marker.is_none() && !is_later && (is_of_head || !is_marked)
}

/// Whether a request failed in a way in which another method need not: something on the way may
/// hang up on HEAD, or answer what is no HTTP.
pub(crate) fn is_no_answer(error: &Error) -> bool {
    matches!(error.kind(), Kind::Unavailable | Kind::Corrupt)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ETag;
    use std::time::Duration;

    #[test]
    fn the_word_of_the_service_counts_and_that_of_a_proxy_does_not() {
        let failure = |status| Failure { status, ..Failure::default() };
        let after = |status, is_marked| ByGet::after_refusal(&failure(status), is_marked);
        for status in [201, 202, 204, 304, 400, 401, 403, 404] {
            assert_eq!(after(status, false), ByGet::FromNowOn, "{status}");
            assert_eq!(after(status, true), ByGet::Never, "{status}");
        }
        for status in [500, 502, 504] {
            assert_eq!(after(status, false), ByGet::Now, "{status}");
            assert_eq!(after(status, true), ByGet::Never, "{status}");
        }
        for status in [405, 406, 501] {
            assert_eq!(after(status, true), ByGet::FromNowOn, "{status}");
        }
        for status in [429, 503] {
            assert_eq!(after(status, false), ByGet::Never, "{status}");
        }
        let later = Failure { retry_after: Some(Duration::ZERO), ..failure(202) };
        assert_eq!(ByGet::after_refusal(&later, false), ByGet::Never);
        let removed = Failure { marker: Some("v".into()), ..failure(405) };
        let after = ByGet::after_refusal(&removed, true);
        assert_eq!(after, ByGet::Never, "a delete marker answers 405");
    }

    #[test]
    fn a_strange_answer_counts_if_the_service_gave_it() {
        assert_eq!(ByGet::after_strange(true), ByGet::Never);
        assert_eq!(ByGet::after_strange(false), ByGet::FromNowOn);
        for (kind, way) in [
            (Kind::Unavailable, ByGet::Instead),
            (Kind::Corrupt, ByGet::Instead),
            (Kind::Denied, ByGet::Never),
            (Kind::Cancelled, ByGet::Never),
        ] {
            assert_eq!(ByGet::after_error(&Error::new(kind, "x")), way, "{kind:?}");
        }
    }

    #[test]
    fn a_size_of_zero_is_confirmed_by_get() {
        assert!(is_size_believed(Some(1)) && is_size_believed(None));
        assert!(!is_size_believed(Some(0)));
        let meta = |size_bytes: Option<u64>, tag: &str| ObjectMeta {
            size_bytes,
            etag: Some(ETag(tag.into())),
            ..ObjectMeta::default()
        };
        assert!(hides_bytes(&meta(Some(0), "a"), &meta(Some(3), "a")));
        assert!(hides_bytes(&meta(Some(0), "a"), &meta(None, "a")));
        assert!(!hides_bytes(&meta(Some(0), "a"), &meta(Some(0), "a")));
        assert!(!hides_bytes(&meta(Some(0), "a"), &meta(Some(3), "b")), "it was written again");
    }
}

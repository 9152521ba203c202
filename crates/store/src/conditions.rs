//! The conditions of a GET beside its If-Match: what a store sends, and what it compares with the
//! answer. Pure.
//!
//! Of several conditions one is sent: services differ in how they join them (Azure takes
//! If-None-Match *or* If-Modified-Since), and all can be judged by what the answer tells. So a
//! service that passes over a condition is found out too.

use crate::{ETag, GetRequest, ObjectMeta};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use penstock_base::{Error, Kind, Result};
use std::time::{Duration, SystemTime};

impl ETag {
    /// Whether both are of equivalent versions: weak comparison (RFC 9110 section 8.8.3.2).
    pub fn matches_weakly(&self, other: &ETag) -> bool {
        fn opaque(tag: &str) -> &str {
            tag.strip_prefix("W/").map_or(tag, |weak| weak.trim_matches('"'))
        }
        opaque(&self.0) == opaque(&other.0)
    }
}

impl GetRequest {
    /// Whether it asks for a version that the reader does not have yet.
    pub(crate) fn asks_for_news(&self) -> bool {
        self.if_none_match.is_some() || self.if_modified_since.is_some()
    }

    /// Whether a request that a HEAD's tag was added to, and that had no condition of its own,
    /// failed by that tag.
    pub(crate) fn is_contradicted(&self, error: &Error) -> bool {
        let is_bare = self.if_match.is_none() && !self.asks_for_news();
        is_bare && error.kind() == Kind::Conflict
    }

    /// Whether this version is one that the reader has already.
    pub fn has_already(&self, meta: &ObjectMeta) -> bool {
        match (&self.if_none_match, self.if_modified_since) {
            (Some(known), _) => meta.etag.as_ref().is_some_and(|etag| etag.matches_weakly(known)),
            (None, Some(since)) => meta.modified.is_some_and(|time| whole_seconds(time) <= since),
            (None, None) => false,
        }
    }

    /// Answers a version that the reader has already as a 304 would.
    ///
    /// # Errors
    /// `Conflict`, as not modified.
    pub fn refuse_unchanged(&self, meta: &ObjectMeta) -> Result<()> {
        if !self.has_already(meta) {
            return Ok(());
        }
        Err(Error::new(Kind::Conflict, "the object has not changed")
            .with_http_status(304)
            .with_etag(meta.etag.as_ref().map(|etag| etag.0.clone())))
    }

    /// The header of the one condition that is sent, if there is any.
    pub(crate) fn condition_header(&self) -> Option<(&'static str, String)> {
        if let Some(etag) = &self.if_match {
            return Some(("if-match", etag.header_value()));
        }
        if let Some(etag) = &self.if_none_match {
            return Some(("if-none-match", etag.header_value()));
        }
        Some(("if-modified-since", http_date(self.if_modified_since?)?))
    }
}

/// HTTP dates carry whole seconds, so times are compared in those.
fn whole_seconds(time: SystemTime) -> SystemTime {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs()),
        Err(_) => time,
    }
}

/// `Fri, 20 Nov 2026 07:28:14 GMT`; `None` past the year 9999.
pub(crate) fn http_date(time: SystemTime) -> Option<String> {
    let time = Timestamp::try_from(time).ok()?;
    DateTimePrinter::new().timestamp_to_rfc9110_string(&time).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(millis: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
    }

    fn version(tag: &str, millis: u64) -> ObjectMeta {
        let etag = Some(ETag(tag.to_string()));
        ObjectMeta { etag, modified: Some(at(millis)), ..ObjectMeta::default() }
    }

    fn known(tag: &str) -> GetRequest {
        GetRequest { if_none_match: Some(ETag::parse(tag)), ..GetRequest::default() }
    }

    fn since(millis: u64) -> GetRequest {
        GetRequest { if_modified_since: Some(at(millis)), ..GetRequest::default() }
    }

    #[test]
    fn tags_are_compared_weakly() {
        for (asked, is_known) in
            [("\"v1\"", true), ("v1", true), ("W/\"v1\"", true), ("\"v2\"", false)]
        {
            assert_eq!(known(asked).has_already(&version("v1", 0)), is_known, "{asked}");
            let weak = ObjectMeta { etag: Some(ETag::parse("W/\"v1\"")), ..version("", 0) };
            assert_eq!(known(asked).has_already(&weak), is_known, "{asked} of a weak one");
        }
        assert!(!known("v1").has_already(&ObjectMeta::default()), "no tag is no known tag");
    }

    #[test]
    fn times_are_compared_in_whole_seconds_and_void_beside_a_tag() {
        assert!(since(100_000).has_already(&version("v1", 100_900)));
        assert!(!since(99_000).has_already(&version("v1", 100_900)));
        assert!(!since(99_000).has_already(&ObjectMeta::default()), "no time is no known one");
        let both = GetRequest { if_none_match: known("v0").if_none_match, ..since(900_000) };
        assert!(!both.has_already(&version("v1", 0)));
    }

    #[test]
    fn one_condition_is_sent() {
        let sent = |request: &GetRequest| request.condition_header();
        assert_eq!(sent(&GetRequest::default()), None);
        assert_eq!(sent(&known("W/\"v1\"")), Some(("if-none-match", "W/\"v1\"".to_string())));
        let date = "Tue, 13 Jan 1970 00:00:00 GMT".to_string();
        assert_eq!(sent(&since(1_036_800_000)), Some(("if-modified-since", date)));
        let all = GetRequest {
            if_match: Some(ETag("v2".into())),
            if_none_match: known("v1").if_none_match,
            ..since(0)
        };
        assert_eq!(sent(&all), Some(("if-match", "\"v2\"".to_string())));
        let no_match = GetRequest { if_match: None, ..all };
        assert_eq!(sent(&no_match), Some(("if-none-match", "\"v1\"".to_string())));
    }

    #[test]
    fn what_did_not_change_is_told_with_its_tag() {
        let error = known("v1").refuse_unchanged(&version("v1", 0)).unwrap_err();
        assert!(error.is_not_modified() && error.kind() == Kind::Conflict);
        assert_eq!(error.etag(), Some("v1"));
        assert!(known("v0").refuse_unchanged(&version("v1", 0)).is_ok());
    }

    proptest! {
        #[test]
        fn dates_that_are_sent_come_back(seconds in 0_u64..253_402_300_800) {
            let time = at(seconds * 1000);
            let sent = http_date(time).unwrap();
            prop_assert_eq!(crate::answer::parse_http_date(&sent), Some(time));
        }
    }
}

//! Decides whether a conditional request proceeds (RFC 9110 section 13.2.2).
//!
//! Pure: it compares tags and times it is given. Who holds them still while a write takes effect is
//! the store's business.

use http::HeaderMap;
use http::header::IF_UNMODIFIED_SINCE;
use penstock_store::{ETag, ObjectMeta, WriteCondition};
use s3s::dto;
use s3s::{S3Error, S3Result, s3_error};
use std::time::{Duration, SystemTime};

/// What If-Match and If-None-Match may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tag {
    /// `*`: any version.
    Any,
    /// This version.
    One(ETag),
    /// Any of these.
    OneOf(Vec<ETag>),
}

impl Tag {
    fn matches(&self, etag: Option<&ETag>) -> bool {
        match self {
            Tag::Any => true,
            Tag::One(wanted) => Some(wanted) == etag,
            Tag::OneOf(wanted) => etag.is_some_and(|etag| wanted.contains(etag)),
        }
    }
}

impl From<dto::ETagCondition> for Tag {
    fn from(condition: dto::ETagCondition) -> Self {
        match condition {
            dto::ETagCondition::Any => Tag::Any,
            dto::ETagCondition::ETag(etag) => {
                let text = etag.into_value();
                // s3s takes a list for one tag, from its first quote to its last; none holds any.
                match text.contains('"') {
                    true => Tag::OneOf(tags_of_list(&text)),
                    false => Tag::One(ETag(text)),
                }
            }
        }
    }
}

/// The tags of a list without its first and its last quote.
fn tags_of_list(text: &str) -> Vec<ETag> {
    // Inside of quotes and outside take turns.
    text.split('"').step_by(2).map(|tag| ETag(tag.to_string())).collect()
}

/// The conditions of a read, or of the source of a copy.
#[derive(Clone, Debug, Default)]
pub struct ReadConditions {
    /// If-Match.
    pub if_match: Option<Tag>,
    /// If-None-Match.
    pub if_none_match: Option<Tag>,
    /// If-Modified-Since.
    pub if_modified_since: Option<dto::Timestamp>,
    /// If-Unmodified-Since.
    pub if_unmodified_since: Option<dto::Timestamp>,
}

/// Conditions from the fields of a request's input: those of a read.
macro_rules! read_conditions {
    ($input:expr) => {
        $crate::conditions::ReadConditions {
            if_match: $input.if_match.take().map($crate::conditions::Tag::from),
            if_none_match: $input.if_none_match.take().map($crate::conditions::Tag::from),
            if_modified_since: $input.if_modified_since.take(),
            if_unmodified_since: $input.if_unmodified_since.take(),
        }
    };
}
pub(crate) use read_conditions;

/// Conditions from the fields of a request's input: those on the source of a copy.
macro_rules! source_conditions {
    ($input:expr) => {
        $crate::conditions::ReadConditions {
            if_match: $input.copy_source_if_match.take().map($crate::conditions::Tag::from),
            if_none_match: $input
                .copy_source_if_none_match
                .take()
                .map($crate::conditions::Tag::from),
            if_modified_since: $input.copy_source_if_modified_since.take(),
            if_unmodified_since: $input.copy_source_if_unmodified_since.take(),
        }
    };
}
pub(crate) use source_conditions;

/// What the conditions of a read come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send the object.
    Proceed,
    /// 304: the reader has this version already.
    NotModified,
    /// 412.
    Failed,
}

impl ReadConditions {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.if_match.is_none()
            && self.if_none_match.is_none()
            && self.if_modified_since.is_none()
            && self.if_unmodified_since.is_none()
    }

    /// Whether what the reader has is looked at after a time up to which nothing may have changed:
    /// 412 goes before 304, and no back end is told of that time.
    fn comes_later(&self) -> bool {
        self.if_match.is_none() && self.if_unmodified_since.is_some()
    }

    /// Whether no version there is can be sent: one of any kind is not wanted.
    pub fn wants_none(&self) -> bool {
        self.if_none_match == Some(Tag::Any)
    }

    /// The one version that is wanted, if any is.
    pub fn wanted_version(&self) -> Option<&ETag> {
        one(self.if_match.as_ref())
    }

    /// The version that the reader has, if a back end may be told of it: one whose tag it cannot
    /// take for something else.
    pub fn told_version(&self) -> Option<&ETag> {
        let is_plain = |etag: &&ETag| !matches!(etag.0.as_str(), "" | "*") && etag.is_strong();
        one(self.if_none_match.as_ref()).filter(is_plain).filter(|_| !self.comes_later())
    }

    /// The time since which a change is asked for, if a back end may be told of it. A tag makes it
    /// void.
    pub fn told_time(&self) -> Option<SystemTime> {
        if self.comes_later() {
            return None;
        }
        let since = self.if_modified_since.as_ref().filter(|_| self.if_none_match.is_none());
        since.and_then(system_time)
    }

    /// Weighs the conditions against the object's tag and time, in the order of the RFC: a tag
    /// condition makes the time condition of its kind void.
    pub fn evaluate(&self, etag: Option<&ETag>, modified: Option<SystemTime>) -> Verdict {
        let modified = modified.map(|time| dto::Timestamp::from(whole_seconds(time)));
        if let Some(tag) = &self.if_match {
            if !tag.matches(etag) {
                return Verdict::Failed;
            }
        } else if let (Some(limit), Some(modified)) = (&self.if_unmodified_since, &modified)
            && modified > limit
        {
            return Verdict::Failed;
        }
        if let Some(tag) = &self.if_none_match {
            if tag.matches(etag) {
                return Verdict::NotModified;
            }
        } else if let (Some(limit), Some(modified)) = (&self.if_modified_since, &modified)
            && modified <= limit
        {
            return Verdict::NotModified;
        }
        Verdict::Proceed
    }
}

fn one(tag: Option<&Tag>) -> Option<&ETag> {
    match tag {
        Some(Tag::One(etag)) => Some(etag),
        _ => None,
    }
}

/// `None` before 1970, when nothing was written that is here.
fn system_time(time: &dto::Timestamp) -> Option<SystemTime> {
    let mut text = Vec::new();
    time.format(dto::TimestampFormat::EpochSeconds, &mut text).ok()?;
    let seconds = std::str::from_utf8(&text).ok()?.split('.').next()?.parse().ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

fn http_date(time: &dto::Timestamp) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    time.format(dto::TimestampFormat::HttpDate, &mut text).ok().map(|()| text)
}

/// Whether a range still means the version that a client has begun to read (If-Range, RFC 9110
/// section 13.1.5): a strong tag, or the very time that it was told.
pub fn if_range(validator: &str, etag: Option<&ETag>, modified: Option<SystemTime>) -> bool {
    let validator = validator.trim();
    if let Some(tag) = validator.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        return etag.is_some_and(|etag| etag.0 == tag);
    }
    let told = dto::Timestamp::parse(dto::TimestampFormat::HttpDate, validator);
    let modified = modified.map(|time| dto::Timestamp::from(whole_seconds(time)));
    told.is_ok_and(|told| modified == Some(told))
}

/// If-Unmodified-Since of a request that writes or removes; what is no date is to be ignored.
pub fn unmodified_since(headers: &HeaderMap) -> Option<dto::Timestamp> {
    let text = headers.get(IF_UNMODIFIED_SINCE)?.to_str().ok()?;
    dto::Timestamp::parse(dto::TimestampFormat::HttpDate, text.trim()).ok()
}

/// Whether an object was not changed after a time.
pub fn is_unmodified(limit: Option<&dto::Timestamp>, meta: &ObjectMeta) -> bool {
    let modified = meta.modified.map(|time| dto::Timestamp::from(whole_seconds(time)));
    limit.zip(modified).is_none_or(|(limit, modified)| modified <= *limit)
}

/// HTTP dates carry whole seconds, so times are compared in those.
fn whole_seconds(time: SystemTime) -> SystemTime {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs()),
        Err(_) => time,
    }
}

/// The condition of a write.
///
/// # Errors
/// `NotImplemented` for two at once and for lists of tags.
pub fn write_condition(
    if_match: Option<dto::ETagCondition>,
    if_none_match: Option<dto::ETagCondition>,
) -> S3Result<WriteCondition> {
    match (if_match.map(Tag::from), if_none_match.map(Tag::from)) {
        (None, None) => Ok(WriteCondition::None),
        (None, Some(Tag::Any)) => Ok(WriteCondition::IfAbsent),
        (None, Some(Tag::One(etag))) => Ok(WriteCondition::IfNoneMatch(etag)),
        (Some(Tag::One(etag)), None) => Ok(WriteCondition::IfMatch(etag)),
        (Some(Tag::Any), None) => Ok(WriteCondition::IfPresent),
        (Some(Tag::OneOf(_)), None) | (None, Some(Tag::OneOf(_))) => Err(several_tags()),
        _ => Err(s3_error!(NotImplemented, "A write takes If-None-Match or If-Match, one of them")),
    }
}

/// Stores compare with one tag as they write and remove.
pub fn several_tags() -> S3Error {
    s3_error!(NotImplemented, "A condition on a write or a removal names one tag")
}

/// The conditions of a removal.
#[derive(Clone, Debug, Default)]
pub struct RemovalConditions {
    /// If-Match. Removing what is not there succeeds, so that `*` is none.
    pub if_match: Option<dto::ETagCondition>,
    /// Size in bytes.
    pub size: Option<i64>,
    /// Time of the last change, in whole seconds.
    pub modified: Option<dto::Timestamp>,
    /// If-Unmodified-Since, void beside If-Match.
    pub unmodified_since: Option<dto::Timestamp>,
}

impl RemovalConditions {
    /// Whether the object has to be looked at before.
    pub fn need_look(&self) -> bool {
        self.size.is_some() || self.modified.is_some() || self.unmodified_since.is_some()
    }

    /// Whether size and time hold.
    pub fn hold(&self, meta: &ObjectMeta) -> bool {
        let size = meta.size_bytes.and_then(|size| i64::try_from(size).ok());
        let modified = meta.modified.map(dto::Timestamp::from);
        let is_same =
            |wanted: &dto::Timestamp| modified.as_ref().and_then(http_date) == http_date(wanted);
        (self.size.is_none() || self.size == size)
            && self.modified.as_ref().is_none_or(is_same)
            && (self.if_match.is_some() || is_unmodified(self.unmodified_since.as_ref(), meta))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(text: &str) -> Option<Tag> {
        Some(Tag::One(ETag(text.to_string())))
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn verdict(conditions: ReadConditions) -> Verdict {
        conditions.evaluate(Some(&ETag("v1".into())), Some(at(100) + Duration::from_millis(700)))
    }

    #[test]
    fn tags_decide_alone() {
        let met = ReadConditions { if_match: tag("v1"), ..Default::default() };
        assert_eq!(verdict(met), Verdict::Proceed);
        let stale = ReadConditions { if_match: tag("v0"), ..Default::default() };
        assert_eq!(verdict(stale), Verdict::Failed);
        let known = ReadConditions { if_none_match: tag("v1"), ..Default::default() };
        assert_eq!(verdict(known), Verdict::NotModified);
        let any = ReadConditions { if_none_match: Some(Tag::Any), ..Default::default() };
        assert_eq!(verdict(any), Verdict::NotModified);
    }

    #[test]
    fn any_tag_of_a_list_may_match() {
        let parsed = |text: &str| {
            let parsed = dto::ETagCondition::parse_http_header(text.as_bytes());
            Some(Tag::from(parsed.unwrap()))
        };
        for (list, holds) in [
            ("\"v0\", \"v1\"", true),
            ("\"v1\",W/\"v2\"", true),
            ("W/\"v0\", W/\"v1\"", true),
            ("\"v0\", \"v2\"", false),
            ("\"v0, v1\"", false),
        ] {
            let some = ReadConditions { if_match: parsed(list), ..Default::default() };
            assert_eq!(verdict(some.clone()) == Verdict::Proceed, holds, "{list}");
            assert!(some.wanted_version().is_none() || !holds, "no back end is told of a list");
            let none = ReadConditions { if_none_match: parsed(list), ..Default::default() };
            assert_eq!(verdict(none.clone()) == Verdict::NotModified, holds, "{list}");
            assert!(none.told_version().is_none() || !holds);
        }
    }

    #[test]
    fn times_compare_in_whole_seconds() {
        let same =
            ReadConditions { if_unmodified_since: Some(at(100).into()), ..Default::default() };
        assert_eq!(verdict(same), Verdict::Proceed);
        let older =
            ReadConditions { if_unmodified_since: Some(at(99).into()), ..Default::default() };
        assert_eq!(verdict(older), Verdict::Failed);
        let known =
            ReadConditions { if_modified_since: Some(at(100).into()), ..Default::default() };
        assert_eq!(verdict(known), Verdict::NotModified);
    }

    #[test]
    fn a_tag_makes_its_time_void() {
        let both = ReadConditions {
            if_match: tag("v1"),
            if_unmodified_since: Some(at(1).into()),
            if_none_match: tag("v0"),
            if_modified_since: Some(at(1000).into()),
        };
        assert_eq!(verdict(both), Verdict::Proceed);
    }

    #[test]
    fn back_ends_are_told_of_one_version_or_a_time() {
        let none = ReadConditions::default();
        assert!(!none.wants_none() && none.told_version().is_none());
        let any = ReadConditions { if_none_match: Some(Tag::Any), ..Default::default() };
        assert!(any.wants_none() && any.told_version().is_none());
        let since = |time: SystemTime| ReadConditions {
            if_modified_since: Some(time.into()),
            ..none.clone()
        };
        assert_eq!(since(at(100)).told_time(), Some(at(100)));
        assert_eq!(since(at(100) + Duration::from_millis(7)).told_time(), Some(at(100)));
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(9);
        assert_eq!(since(before).told_time(), None);
        let both = ReadConditions { if_none_match: tag("v1"), ..since(at(100)) };
        assert_eq!((both.told_time(), both.told_version()), (None, Some(&ETag("v1".into()))));
        for odd in ["", "*", "W/v1"] {
            let odd = ReadConditions { if_none_match: tag(odd), ..Default::default() };
            assert_eq!(odd.told_version(), None, "it would be taken for something else");
        }
        let unmodified = Some(at(9).into());
        let both = ReadConditions { if_unmodified_since: unmodified.clone(), ..both };
        assert_eq!((both.told_time(), both.told_version()), (None, None), "412 goes first");
        let timed = ReadConditions { if_unmodified_since: unmodified, ..since(at(100)) };
        assert_eq!(timed.told_time(), None);
        let void = ReadConditions { if_match: tag("v1"), ..both };
        assert!(void.told_version().is_some(), "a tag makes the time void");
    }

    #[test]
    fn size_and_time_of_a_removal_are_compared() {
        let meta =
            ObjectMeta { size_bytes: Some(3), modified: Some(at(100)), ..Default::default() };
        let when = |size, seconds: Option<u64>| RemovalConditions {
            size,
            modified: seconds.map(|seconds| at(seconds).into()),
            ..Default::default()
        };
        assert!(when(Some(3), Some(100)).hold(&meta) && when(None, None).hold(&meta));
        assert!(!when(Some(4), None).hold(&meta) && !when(None, Some(99)).hold(&meta));
    }

    #[test]
    fn a_write_takes_one_condition() {
        let any = || Some(dto::ETagCondition::Any);
        let one = || Some(dto::ETagCondition::ETag(dto::ETag::Strong("v1".into())));
        assert_eq!(write_condition(None, any()).unwrap(), WriteCondition::IfAbsent);
        assert_eq!(
            write_condition(one(), None).unwrap(),
            WriteCondition::IfMatch(ETag("v1".into()))
        );
        assert_eq!(write_condition(any(), None).unwrap(), WriteCondition::IfPresent);
        let other = write_condition(None, one()).unwrap();
        assert_eq!(other, WriteCondition::IfNoneMatch(ETag("v1".into())));
        assert!(write_condition(one(), any()).is_err());
        let list = dto::ETagCondition::ETag(dto::ETag::Strong("v1\", \"v2".into()));
        assert!(write_condition(Some(list), None).is_err());
    }
}

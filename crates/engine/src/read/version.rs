//! Which version of an object a reader is pinned to. Pure.

use penstock_base::{Error, Kind};
use penstock_store::{ETag, ObjectMeta};
use std::time::{SystemTime, UNIX_EPOCH};

/// What identifies one version: the ETag, or size and time where the store has no ETag.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Version {
    pub size_bytes: Option<u64>,
    pub etag: Option<ETag>,
    modified_s: Option<u64>,
}

impl Version {
    pub fn of(meta: &ObjectMeta) -> Self {
        Version {
            size_bytes: meta.size_bytes,
            etag: meta.etag.clone(),
            modified_s: meta.modified.map(whole_seconds),
        }
    }

    /// The tag for If-Match: only a strong one promises equal bytes (RFC 9110 section 8.8.1).
    pub fn if_match(&self) -> Option<ETag> {
        self.etag.clone().filter(ETag::is_strong)
    }

    /// Whether an answer of the store is of this version. What either side does not tell is not
    /// compared; times only where no tag decides, since they are often of another resolution.
    pub fn matches(&self, meta: &ObjectMeta) -> bool {
        self.same(&Version::of(meta))
    }

    /// As [`Version::matches`], for two versions.
    pub fn same(&self, other: &Version) -> bool {
        !differ(self.size_bytes, other.size_bytes)
            && match (&self.etag, &other.etag) {
                (Some(mine), Some(theirs)) => mine == theirs,
                _ => !differ(self.modified_s, other.modified_s),
            }
    }

    /// Whether anything but the size tells this version from another one.
    pub fn is_told(&self) -> bool {
        self.etag.is_some() || self.modified_s.is_some()
    }

    /// Whether both tell what sets them apart from others of their size, and the same.
    pub fn is_proven_by(&self, other: &Version) -> bool {
        let both_tagged = self.etag.is_some() && other.etag.is_some();
        let both_timed = self.modified_s.is_some() && other.modified_s.is_some();
        (both_tagged || both_timed) && self.same(other)
    }

    /// Whether both have a tag, and the same one.
    pub fn has_tag_of(&self, other: &Version) -> bool {
        self.etag.is_some() && self.etag == other.etag && self.same(other)
    }
}

fn differ(a: Option<u64>, b: Option<u64>) -> bool {
    matches!((a, b), (Some(a), Some(b)) if a != b)
}

fn whole_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The error of an answer that is not of the version that was asked for.
pub(crate) fn mismatch(version: &Version, answered: &ObjectMeta, url: String) -> Error {
    let answered = Version::of(answered);
    match (version.if_match(), version.size_bytes, answered.size_bytes) {
        (Some(tag), Some(size), Some(other)) if answered.etag.as_ref() == Some(&tag) => {
            let why = format!(
                "the answer is of this version, yet of {other} bytes, where the object has {size}"
            );
            Error::new(Kind::Corrupt, why)
                .with_operation("read")
                .with_object(url)
                .with_hint("Something between here and the store cuts answers off: is it a proxy?")
        }
        _ => changed(url),
    }
}

/// The error of a read whose object is not the one that was opened.
pub(crate) fn changed(url: String) -> Error {
    Error::new(Kind::Conflict, "the object changed after this query had opened it")
        .with_operation("read")
        .with_object(url)
        .with_hint(
            "Re-run the query: it will see the new version; an attached database must be detached \
             and attached again",
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn meta(size: u64, etag: Option<&str>, ms: u64) -> ObjectMeta {
        ObjectMeta {
            size_bytes: Some(size),
            etag: etag.map(ETag::parse),
            modified: Some(UNIX_EPOCH + Duration::from_millis(ms)),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn what_tells_the_size_only_proves_nothing() {
        let version = Version::of(&meta(1, Some("a"), 1500));
        let bare = |etag: Option<&str>, modified| {
            Version::of(&ObjectMeta { modified, ..meta(1, etag, 0) })
        };
        assert!(version.matches(&meta(1, None, 1500)) && version.same(&bare(None, None)));
        assert!(!version.is_proven_by(&bare(None, None)));
        assert!(!bare(Some("a"), None).is_proven_by(&Version::of(&meta(1, None, 1500))));
        assert!(version.is_proven_by(&bare(Some("a"), None)));
        assert!(!version.is_proven_by(&bare(Some("b"), None)));
        assert!(version.is_proven_by(&Version::of(&meta(1, None, 1900))), "whole seconds");
        assert!(!version.is_proven_by(&Version::of(&meta(1, None, 2500))));
    }

    #[test]
    fn tag_decides_and_time_only_without_one() {
        let version = Version::of(&meta(1, Some("a"), 1500));
        assert!(version.matches(&meta(1, Some("a"), 9000)));
        assert!(!version.matches(&meta(1, Some("b"), 1500)));
        assert!(!version.matches(&meta(2, Some("a"), 1500)));
        assert!(version.matches(&meta(1, None, 1000)), "the same second");
        assert!(!version.matches(&meta(1, None, 2000)));
    }

    #[test]
    fn what_has_the_same_tag_has_not_changed() {
        let version = Version::of(&meta(9, Some("a"), 0));
        let told = |other: &ObjectMeta| mismatch(&version, other, "s3://b/k".into()).to_string();
        let cut = told(&meta(3, Some("a"), 0));
        assert!(
            cut.contains("of 3 bytes, where the object has 9") && cut.contains("proxy"),
            "{cut}"
        );
        for other in [meta(3, Some("b"), 0), meta(3, None, 0)] {
            assert!(told(&other).contains("changed"), "{}", told(&other));
        }
    }

    #[test]
    fn weak_tag_is_compared_but_not_sent() {
        let version = Version::of(&meta(1, Some("W/\"a\""), 0));
        assert_eq!(version.if_match(), None);
        assert!(!version.matches(&meta(1, Some("W/\"b\""), 0)));
    }
}

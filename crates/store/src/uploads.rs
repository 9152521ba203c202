//! Listings of uploads that are not completed. Pure.

use crate::UploadId;
use std::cmp::Ordering;
use std::time::SystemTime;

/// An upload that is not completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadEntry {
    /// The key of its target.
    pub key: String,
    /// Its id.
    pub id: UploadId,
    /// When it began.
    pub begun: Option<SystemTime>,
    /// The metadata that it began with, where the list tells.
    pub metadata: Vec<(String, String)>,
}

/// A listing of uploads.
#[derive(Clone, Debug, Default)]
pub struct UploadsRequest {
    /// Only to keys that start with this.
    pub prefix: String,
    /// Only to keys after this one, and those of it that `upload_marker` leaves.
    pub key_marker: String,
    /// Of `key_marker` only those behind this upload; none where it is empty.
    pub upload_marker: String,
    /// Where the last page stopped; opaque, from [`UploadsPage::next`].
    pub token: Option<String>,
    /// How many are wanted: a store that would look for each may stop once it has more.
    pub max: usize,
}

impl UploadsRequest {
    /// Whether a key that begins with `start` may be asked for.
    pub(crate) fn may_want(&self, start: &str) -> bool {
        let may_match = start.starts_with(&self.prefix) || self.prefix.starts_with(start);
        // Else all of them come before the marker.
        let may_follow = start >= self.key_marker.as_str() || self.key_marker.starts_with(start);
        may_match && may_follow
    }

    /// Whether an upload is asked for: one of a wanted key, and behind the markers.
    pub(crate) fn wants(&self, key: &str, id: &str) -> bool {
        let is_behind = match key.cmp(self.key_marker.as_str()) {
            Ordering::Less => false,
            Ordering::Greater => true,
            Ordering::Equal => !self.upload_marker.is_empty() && id > self.upload_marker.as_str(),
        };
        is_behind && key.starts_with(&self.prefix)
    }
}

/// One page of such a listing.
#[derive(Clone, Debug, Default)]
pub struct UploadsPage {
    /// The uploads; those of one key in the order that the markers count by.
    pub uploads: Vec<UploadEntry>,
    /// Token of the next page; `None` on the last. A page may be empty and not be the last.
    pub next: Option<String>,
}

/// The page of a store that knows all of its uploads at once.
pub(crate) fn uploads_behind(
    mut uploads: Vec<UploadEntry>,
    request: &UploadsRequest,
) -> UploadsPage {
    // Not by the time, which a marker does not tell: its upload may be gone by now.
    uploads.sort_by(|a, b| (&a.key, &a.id.0).cmp(&(&b.key, &b.id.0)));
    uploads.retain(|upload| request.wants(&upload.key, &upload.id.0));
    UploadsPage { uploads, next: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_listing_goes_on_behind_its_markers() {
        let upload = |key: &str, id: &str| UploadEntry {
            key: key.into(),
            id: UploadId(id.into()),
            begun: None,
            metadata: Vec::new(),
        };
        let all = ["c 1", "b 2", "b 1", "a 1", "bb 1"];
        let all = all.map(|text| text.split_once(' ').unwrap()).map(|(key, id)| upload(key, id));
        let shown = |prefix: &str, key_marker: &str, upload_marker: &str| {
            let request = UploadsRequest {
                prefix: prefix.into(),
                key_marker: key_marker.into(),
                upload_marker: upload_marker.into(),
                ..Default::default()
            };
            let page = uploads_behind(all.to_vec(), &request);
            let text = |upload: &UploadEntry| format!("{} {}", upload.key, upload.id.0);
            page.uploads.iter().map(text).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(shown("", "", ""), "a 1, b 1, b 2, bb 1, c 1");
        assert_eq!(shown("", "b", ""), "bb 1, c 1");
        assert_eq!(shown("", "b", "1"), "b 2, bb 1, c 1");
        assert_eq!(shown("b", "b", "2"), "bb 1");
    }

    proptest! {
        #[test]
        fn what_is_passed_over_is_wanted_by_nobody(
            start in "[ab/]{0,4}",
            rest in "[ab/]{0,4}",
            prefix in "[ab/]{0,4}",
            key_marker in "[ab/]{0,5}",
            upload_marker in "[01]?",
        ) {
            let (token, max) = (None, 9);
            let request = UploadsRequest { prefix, key_marker, upload_marker, token, max };
            let upload = UploadEntry {
                key: format!("{start}{rest}"),
                id: UploadId("1".into()),
                begun: None,
                metadata: Vec::new(),
            };
            let is_shown = !uploads_behind(vec![upload], &request).uploads.is_empty();
            prop_assert!(!is_shown || request.may_want(&start));
        }
    }

    #[test]
    fn directories_that_hold_nothing_wanted_are_passed_over() {
        let asked = |prefix: &str, key_marker: &str| UploadsRequest {
            prefix: prefix.into(),
            key_marker: key_marker.into(),
            ..Default::default()
        };
        for (prefix, marker, start, is_wanted) in [
            ("", "", "a/", true),
            ("a/b", "", "a/", true),
            ("a/b", "", "a/bc/", true),
            ("a/b", "", "a/c/", false),
            ("a/b", "", "b/", false),
            ("", "b/k", "a/", false),
            ("", "b/k", "b/", true),
            ("", "b/k", "b/a/", false),
            ("", "b/k", "c/", true),
        ] {
            assert_eq!(
                asked(prefix, marker).may_want(start),
                is_wanted,
                "{prefix} {marker} {start}"
            );
        }
    }
}

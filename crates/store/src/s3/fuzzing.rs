//! Bodies for a fuzzer: answers of an S3 server.

use super::replies;
use crate::answer::Failure;
use crate::streaming::versioned;
use http::HeaderMap;
use std::time::SystemTime;

/// Each of them may be anything.
pub(crate) fn replies(input: &[u8]) {
    if let Ok(page) = replies::parse_listing(input) {
        assert!(page.objects.len() <= input.len(), "more objects than bytes");
    }
    if let Ok(id) = replies::parse_upload_id(input) {
        assert!(!id.is_empty(), "an upload without an id");
    }
    drop(replies::parse_written(input, "CompleteMultipartUploadResult"));
    let keys = ["k".to_string(), versioned("k", "v")];
    if let Ok(deleted) = replies::parse_deleted(input, &keys, "DeleteResult") {
        assert_eq!(deleted.len(), keys.len(), "an answer for each key");
    }
    drop(replies::parse_parts(input));
    drop(replies::parse_uploads(input));
    drop(replies::parse_buckets(input));
    for status in [301, 400, 403, 404, 503] {
        Failure::parse(status, &HeaderMap::new(), input, SystemTime::UNIX_EPOCH).verdict();
    }
}

/// Where a list of uploads goes on, and ids of versions as Google has them.
pub(crate) fn markers(input: &[u8]) {
    super::streaming::fuzz(&String::from_utf8_lossy(input));
}

/// Lists of versions, and whether a bucket keeps any.
pub(crate) fn versions(input: &[u8]) {
    drop(replies::parse_retention(input));
    drop(replies::parse_versioning(input));
    for page in [replies::parse_versions(input), replies::parse_generations(input)].iter().flatten()
    {
        assert!(page.versions.len() <= input.len(), "more versions than bytes");
        let id = page.next.as_ref().and_then(|next| next.1.as_ref());
        assert!(id.is_none_or(|id| !id.is_empty()), "a place without an id");
    }
}

/// The AWS configuration files.
pub(crate) fn profiles(input: &[u8]) {
    super::profile::fuzz(&String::from_utf8_lossy(input));
}

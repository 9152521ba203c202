//! What an upload says that it began with, where its id tells it: a client may have made that up.
//! Pure.
//!
//! Decides which notes an upload can have begun with at all. Whether its sender may give it those
//! is decided in [`crate::sharing`].

use crate::error::NO_SUCH_UPLOAD;
use crate::lock;
use crate::sharing::INITIATOR;
use penstock_store::notes::{self, Named};
use s3s::{S3Result, s3_error};

/// The notes that CreateMultipartUpload writes anywhere.
const NOTES: [&str; 5] =
    [notes::TAGGING, notes::ACL, notes::STORAGE_CLASS, notes::UPLOAD_SUMS, INITIATOR];
/// Those that it writes where versions can be locked.
const LOCKS: [&str; 2] = [lock::RETENTION, lock::HOLD];

/// Refuses an upload with a note that none begins with: checksums, sizes of parts and the like are
/// the gateway's own findings, and a completion would believe them.
///
/// # Errors
/// `NoSuchUpload`.
pub(super) fn check(metadata: &[(String, String)], is_lockable: bool) -> S3Result<()> {
    let is_begun_with = |name: &str| match Named::of(name) {
        Named::Metadata(_) | Named::Header(_) => true,
        Named::Note => NOTES.contains(&name) || is_lockable && LOCKS.contains(&name),
    };
    match metadata.iter().all(|pair| is_begun_with(&pair.0)) {
        true => Ok(()),
        false => Err(s3_error!(NoSuchUpload, "{NO_SUCH_UPLOAD}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_begins_with_no_finding_of_the_gateways() {
        let is_taken = |name: &str, is_lockable| {
            check(&[("colour".into(), "blue".into()), (name.into(), "x".into())], is_lockable)
                .is_ok()
        };
        for name in ["size", "@cache-control", "@expires", "@tagging", "@acl", "@upload-sums"] {
            assert!(is_taken(name, false), "{name}");
        }
        for name in ["@checksum-sha256", "@parts", "@part-sums", "@tag-count", "@write", "@odd"] {
            assert!(!is_taken(name, true), "{name}");
        }
        for name in ["@lock-retention", "@lock-hold"] {
            assert!(is_taken(name, true) && !is_taken(name, false), "{name}");
        }
        assert!(!is_taken("@lock-by-rule", true));
    }
}

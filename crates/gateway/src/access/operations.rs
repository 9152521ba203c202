//! The right that each S3 operation needs on its bucket. Pure.

use super::Right;

/// What an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// This right.
    Right(Right),
    /// Any right at all: clients ask these before they use a bucket, and they tell no more than
    /// that it is there.
    Any,
}

const READ: &[&str] = &[
    "GetObject",
    "HeadObject",
    "GetObjectAttributes",
    "GetObjectTagging",
    "GetObjectAcl",
    "GetObjectLegalHold",
    "GetObjectRetention",
    "GetObjectTorrent",
    "SelectObjectContent",
];
const WRITE: &[&str] = &[
    "PutObject",
    "PostObject",
    "CopyObject",
    "CreateMultipartUpload",
    "UploadPart",
    "UploadPartCopy",
    "CompleteMultipartUpload",
    "AbortMultipartUpload",
    "ListParts",
    "PutObjectTagging",
    "DeleteObjectTagging",
    "PutObjectAcl",
];
const DELETE: &[&str] = &["DeleteObject", "DeleteObjects"];
const LIST: &[&str] =
    &["ListObjects", "ListObjectsV2", "ListObjectVersions", "ListMultipartUploads"];
const ANY: &[&str] =
    &["ListBuckets", "HeadBucket", "GetBucketLocation", "GetBucketVersioning", "GetBucketAcl"];

/// What an operation of this name needs. Those that are not known need [`Right::Admin`].
pub fn need_of(operation: &str) -> Need {
    let table = [
        (READ, Need::Right(Right::Read)),
        (WRITE, Need::Right(Right::Write)),
        (DELETE, Need::Right(Right::Delete)),
        (LIST, Need::Right(Right::List)),
        (ANY, Need::Any),
    ];
    let row = table.iter().find(|row| row.0.contains(&operation));
    row.map_or(Need::Right(Right::Admin), |row| row.1)
}

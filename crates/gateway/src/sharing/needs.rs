//! What lists and policies say of each operation: the permission that it takes, and its name in a
//! policy. Pure.

use crate::acl::Permission;

/// What an operation takes where keys are owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// This permission on the bucket.
    OnBucket(Permission),
    /// This permission on the object.
    OnObject(Permission),
    /// To be the bucket's owner.
    Owner,
}

/// Operations whose name in a policy is another, and what they take.
const TABLE: &[(&str, &str, Takes)] = &[
    ("ListObjects", "s3:ListBucket", Takes::OnBucket(Permission::Read)),
    ("ListObjectsV2", "s3:ListBucket", Takes::OnBucket(Permission::Read)),
    ("HeadBucket", "s3:ListBucket", Takes::OnBucket(Permission::Read)),
    ("ListObjectVersions", "s3:ListBucketVersions", Takes::OnBucket(Permission::Read)),
    ("ListMultipartUploads", "s3:ListBucketMultipartUploads", Takes::OnBucket(Permission::Read)),
    ("PutObject", "s3:PutObject", Takes::OnBucket(Permission::Write)),
    ("PostObject", "s3:PutObject", Takes::OnBucket(Permission::Write)),
    ("CopyObject", "s3:PutObject", Takes::OnBucket(Permission::Write)),
    ("CreateMultipartUpload", "s3:PutObject", Takes::OnBucket(Permission::Write)),
    ("UploadPart", "s3:PutObject", Takes::OnBucket(Permission::Write)),
    ("UploadPartCopy", "s3:PutObject", Takes::OnBucket(Permission::Write)),
    ("CompleteMultipartUpload", "s3:PutObject", Takes::OnBucket(Permission::Write)),
    ("AbortMultipartUpload", "s3:AbortMultipartUpload", Takes::OnBucket(Permission::Write)),
    ("ListParts", "s3:ListMultipartUploadParts", Takes::OnBucket(Permission::Write)),
    ("DeleteObject", "s3:DeleteObject", Takes::OnBucket(Permission::Write)),
    ("DeleteObjects", "s3:DeleteObject", Takes::OnBucket(Permission::Write)),
    ("GetObject", "s3:GetObject", Takes::OnObject(Permission::Read)),
    ("HeadObject", "s3:GetObject", Takes::OnObject(Permission::Read)),
    ("GetObjectAttributes", "s3:GetObjectAttributes", Takes::OnObject(Permission::Read)),
    ("GetObjectAcl", "s3:GetObjectAcl", Takes::OnObject(Permission::ReadAcp)),
    ("PutObjectAcl", "s3:PutObjectAcl", Takes::OnObject(Permission::WriteAcp)),
    ("GetBucketAcl", "s3:GetBucketAcl", Takes::OnBucket(Permission::ReadAcp)),
    ("PutBucketAcl", "s3:PutBucketAcl", Takes::OnBucket(Permission::WriteAcp)),
    ("GetBucketEncryption", "s3:GetEncryptionConfiguration", Takes::Owner),
    ("PutBucketEncryption", "s3:PutEncryptionConfiguration", Takes::Owner),
    ("DeleteBucketEncryption", "s3:PutEncryptionConfiguration", Takes::Owner),
    ("GetPublicAccessBlock", "s3:GetBucketPublicAccessBlock", Takes::Owner),
    ("PutPublicAccessBlock", "s3:PutBucketPublicAccessBlock", Takes::Owner),
    ("DeletePublicAccessBlock", "s3:PutBucketPublicAccessBlock", Takes::Owner),
    ("GetBucketNotificationConfiguration", "s3:GetBucketNotification", Takes::Owner),
    ("GetBucketAccelerateConfiguration", "s3:GetAccelerateConfiguration", Takes::Owner),
    ("DeleteBucketCors", "s3:PutBucketCORS", Takes::Owner),
    ("DeleteBucketTagging", "s3:PutBucketTagging", Takes::Owner),
    ("DeleteBucketOwnershipControls", "s3:PutBucketOwnershipControls", Takes::Owner),
    ("GetObjectLockConfiguration", "s3:GetBucketObjectLockConfiguration", Takes::Owner),
    ("PutObjectLockConfiguration", "s3:PutBucketObjectLockConfiguration", Takes::Owner),
];

/// What an operation takes; those that are not known take the owner.
pub fn takes(operation: &str) -> Takes {
    TABLE.iter().find(|row| row.0 == operation).map_or(Takes::Owner, |row| row.2)
}

/// Actions on one version have names of their own.
const OF_VERSIONS: &[(&str, &str)] = &[
    ("s3:GetObject", "s3:GetObjectVersion"),
    ("s3:GetObjectAcl", "s3:GetObjectVersionAcl"),
    ("s3:PutObjectAcl", "s3:PutObjectVersionAcl"),
    ("s3:DeleteObject", "s3:DeleteObjectVersion"),
    ("s3:GetObjectTagging", "s3:GetObjectVersionTagging"),
    ("s3:PutObjectTagging", "s3:PutObjectVersionTagging"),
    ("s3:DeleteObjectTagging", "s3:DeleteObjectVersionTagging"),
    ("s3:GetObjectAttributes", "s3:GetObjectVersionAttributes"),
];

/// The name of an operation in a policy.
pub fn action(operation: &str, is_of_version: bool) -> String {
    let row = TABLE.iter().find(|row| row.0 == operation);
    of_version(
        row.map_or_else(|| format!("s3:{operation}"), |row| row.1.to_string()),
        is_of_version,
    )
}

/// The action as it is called on one version, where it has a name of its own there.
pub fn of_version(action: String, is_of_version: bool) -> String {
    let row = OF_VERSIONS.iter().find(|row| is_of_version && row.0 == action);
    row.map_or(action, |row| row.1.to_string())
}

/// What an owner can do whatever a policy says, so that nobody locks themselves out.
pub fn is_about_policy(operation: &str) -> bool {
    matches!(operation, "GetBucketPolicy" | "PutBucketPolicy" | "DeleteBucketPolicy")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_operations_take_the_owner() {
        assert_eq!(takes("PutBucketReplication"), Takes::Owner);
        assert_eq!(action("PutBucketReplication", false), "s3:PutBucketReplication");
        assert_eq!(action("HeadObject", false), "s3:GetObject");
        assert_eq!(action("HeadObject", true), "s3:GetObjectVersion");
    }
}

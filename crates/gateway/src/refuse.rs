//! Says no, by name, to what S3 has and this gateway has not. Never silently ignores what a client
//! would rely on.

use http::HeaderMap;
use s3s::{S3Result, s3_error};

/// Headers that ask for something to be kept or done with an object, which is not.
const UNKEPT: &[(&str, &str)] = &[
    ("x-amz-server-side-encryption", "server-side encryption"),
    ("x-amz-server-side-encryption-aws-kms-key-id", "server-side encryption"),
    ("x-amz-server-side-encryption-customer-algorithm", "encryption with customer keys"),
    (
        "x-amz-copy-source-server-side-encryption-customer-algorithm",
        "encryption with customer keys",
    ),
    ("x-amz-object-lock-mode", "object lock"),
    ("x-amz-object-lock-retain-until-date", "object lock"),
    ("x-amz-object-lock-legal-hold", "object lock"),
    ("x-amz-website-redirect-location", "website redirects"),
    ("x-amz-grant-full-control", "access control lists"),
    ("x-amz-grant-read", "access control lists"),
    ("x-amz-grant-read-acp", "access control lists"),
    ("x-amz-grant-write-acp", "access control lists"),
];

/// Refuses headers whose effect would be lost.
///
/// # Errors
/// `NotImplemented`; `InvalidStorageClass` for a class other than STANDARD.
pub fn unkept_headers(headers: &HeaderMap) -> S3Result<()> {
    if let Some((name, what)) = UNKEPT.iter().find(|row| headers.contains_key(row.0)) {
        return Err(s3_error!(NotImplemented, "this gateway keeps no {what} (header {name})"));
    }
    match headers.get("x-amz-storage-class") {
        Some(class) if class != "STANDARD" => {
            Err(s3_error!(InvalidStorageClass, "the only storage class here is STANDARD"))
        }
        _ => Ok(()),
    }
}

/// Refuses access control lists that grant more than the owner's own rights.
///
/// # Errors
/// `NotImplemented`.
pub fn acl(acl: Option<&str>) -> S3Result<()> {
    match acl {
        None | Some("private" | "bucket-owner-full-control" | "bucket-owner-read") => Ok(()),
        Some(other) => Err(s3_error!(NotImplemented, "access control lists (canned ACL {other})")),
    }
}

/// Refuses customer keys on reads.
///
/// # Errors
/// `NotImplemented`.
pub fn customer_key(algorithm: Option<&str>) -> S3Result<()> {
    match algorithm {
        None => Ok(()),
        Some(_) => Err(s3_error!(NotImplemented, "encryption with customer keys")),
    }
}

//! Storage classes: which a write may ask for, and how they are told.
//!
//! Classes are the back end's: S3's own pass through, Azure's tiers have names of S3's, and where a
//! back end has neither, all there is is STANDARD.

use crate::buckets::Bucket;
use http::HeaderMap;
use penstock_store::ObjectMeta;
use penstock_store::notes::{STANDARD, STORAGE_CLASS};
use s3s::{S3Result, dto, s3_error};

/// The pair of metadata for the class that a write asks for; `None` where it asks for nothing that
/// the back end would not do anyway.
///
/// # Errors
/// `InvalidStorageClass` for a class that the back end does not have.
pub(crate) fn asked(bucket: &Bucket, headers: &HeaderMap) -> S3Result<Option<(String, String)>> {
    let Some(value) = headers.get("x-amz-storage-class") else { return Ok(None) };
    let class = value.to_str().unwrap_or_default();
    if bucket.store.takes_class(class) {
        return Ok(Some((STORAGE_CLASS.to_string(), class.to_string())));
    }
    match class {
        STANDARD => Ok(None),
        _ => Err(s3_error!(
            InvalidStorageClass,
            "The storage class you specified is not valid: the back end of this bucket has none \
             that it could be"
        )),
    }
}

/// The class of an object.
pub(crate) fn of(meta: &ObjectMeta) -> &str {
    meta.storage_class.as_deref().unwrap_or(STANDARD)
}

/// The class of an upload, by the pairs that it began with and what the back end tells besides.
pub(crate) fn of_upload(begun: &[(String, String)], told: Option<&str>) -> dto::StorageClass {
    let pair = begun.iter().find(|(name, _)| name == STORAGE_CLASS);
    let class = pair.map(|(_, class)| class.as_str()).or(told).unwrap_or(STANDARD);
    dto::StorageClass::from(class.to_string())
}

/// The header of a read, which S3 leaves out for STANDARD.
pub(crate) fn told(meta: &ObjectMeta) -> Option<dto::StorageClass> {
    meta.storage_class.as_deref().map(|class| dto::StorageClass::from(class.to_string()))
}

//! What S3 says of versions where there is one of each object: clients ask before they empty or
//! remove a bucket.
//!
//! The listing is version 1 of the objects' own, each name with the one version `null`.

use crate::buckets::Bucket;
use crate::list::list_v1;
use s3s::{S3Result, dto};

/// The version that an object without versions has.
const ONLY: &str = "null";

/// ListObjectVersions.
///
/// # Errors
/// Those of ListObjects.
pub async fn list(
    bucket: &Bucket,
    input: dto::ListObjectVersionsInput,
) -> S3Result<dto::ListObjectVersionsOutput> {
    let plain = dto::ListObjectsInput {
        bucket: input.bucket,
        delimiter: input.delimiter,
        encoding_type: input.encoding_type,
        // One version of each name: after that version is after the name.
        marker: input.key_marker,
        max_keys: input.max_keys,
        prefix: input.prefix,
        ..Default::default()
    };
    let listed = list_v1(bucket, plain).await?;
    let next_version = listed.next_marker.as_ref().map(|_| ONLY.to_string());
    Ok(dto::ListObjectVersionsOutput {
        name: listed.name,
        prefix: listed.prefix,
        delimiter: listed.delimiter,
        key_marker: listed.marker,
        version_id_marker: input.version_id_marker,
        encoding_type: listed.encoding_type,
        max_keys: listed.max_keys,
        is_truncated: listed.is_truncated,
        next_key_marker: listed.next_marker,
        next_version_id_marker: next_version,
        common_prefixes: listed.common_prefixes,
        versions: listed.contents.map(|objects| objects.into_iter().map(version).collect()),
        ..Default::default()
    })
}

fn version(object: dto::Object) -> dto::ObjectVersion {
    dto::ObjectVersion {
        key: object.key,
        version_id: Some(ONLY.to_string()),
        is_latest: Some(true),
        e_tag: object.e_tag,
        last_modified: object.last_modified,
        size: object.size,
        owner: object.owner,
        storage_class: Some(dto::ObjectVersionStorageClass::from_static(
            dto::ObjectVersionStorageClass::STANDARD,
        )),
        ..Default::default()
    }
}

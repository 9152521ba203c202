//! Versions: which one a request means, and what is told of them.
//!
//! A back end that keeps none has one of each object, called `null`: clients ask for it before
//! they empty or remove a bucket.

use crate::buckets::{Bucket, Buckets};
use crate::classes;
use crate::error::{Subject, to_s3};
use crate::get::shown_tag;
use crate::judged::Judged;
use crate::list::{Names, list_v1, page_size};
use crate::locks;
use crate::sound::Asked;
use http::Extensions;
use penstock_base::{Kind, Result};
use penstock_store::streaming::{NULL_VERSION, versioned};
use penstock_store::{VersionEntry, Versioning, VersionsPage, VersionsRequest};
use s3s::{S3Result, dto, s3_error};

/// The name by which a store knows an object, or one version of it.
///
/// # Errors
/// `NoSuchVersion` where the back end keeps none; `InvalidArgument` for a key that no object has.
pub(crate) fn name(bucket: &Bucket, key: &str, id: Option<&str>) -> S3Result<String> {
    check_name(key)?;
    match id {
        None => Ok(key.to_string()),
        Some(id) if bucket.store.has_versions() => Ok(versioned(key, id)),
        Some(NULL_VERSION) => Ok(key.to_string()),
        Some(_) => Err(s3_error!(NoSuchVersion, "this bucket keeps one version of an object")),
    }
}

/// Longest key, in bytes.
const KEY_BYTES_MAX: usize = 1024;

/// A NUL separates key and version where stores are asked, so it may not come from a client.
///
/// # Errors
/// `InvalidArgument`; `KeyTooLongError`.
pub(crate) fn check_key(key: &str) -> S3Result<()> {
    if key.contains('\0') {
        return Err(s3_error!(InvalidArgument, "A key holds no NUL."));
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(s3_error!(KeyTooLongError, "Your key is too long."));
    }
    Ok(())
}

/// The same of a key that stands in a document or a header, where it may be empty.
///
/// # Errors
/// As of [`check_key`].
pub(crate) fn check_name(key: &str) -> S3Result<()> {
    if key.is_empty() {
        return Err(s3_error!(InvalidArgument, "A key has at least one character."));
    }
    check_key(key)
}

/// GetBucketVersioning.
pub(crate) async fn get(
    buckets: &Buckets,
    input: dto::GetBucketVersioningInput,
) -> S3Result<dto::GetBucketVersioningOutput> {
    let bucket = buckets.get(&input.bucket).await?;
    let status = match state(&bucket).await? {
        // No status is how S3 says that versions were never asked for.
        Versioning::Never => None,
        Versioning::Enabled => Some(dto::BucketVersioningStatus::ENABLED),
        Versioning::Suspended => Some(dto::BucketVersioningStatus::SUSPENDED),
    };
    let status = status.map(dto::BucketVersioningStatus::from_static);
    Ok(dto::GetBucketVersioningOutput { status, ..Default::default() })
}

/// PutBucketVersioning.
pub(crate) async fn put(
    buckets: &Buckets,
    input: dto::PutBucketVersioningInput,
    extensions: &Extensions,
) -> S3Result<dto::PutBucketVersioningOutput> {
    let wanted = input.versioning_configuration;
    if wanted.mfa_delete.is_some_and(|mfa| mfa.as_str() == dto::MFADelete::ENABLED) {
        return Err(s3_error!(NotImplemented, "PutBucketVersioning with MFA delete"));
    }
    let is_enabled = match wanted.status.as_ref().map(dto::BucketVersioningStatus::as_str) {
        Some(dto::BucketVersioningStatus::ENABLED) => true,
        Some(dto::BucketVersioningStatus::SUSPENDED) => false,
        _ => return Err(s3_error!(MalformedXML, "Status is Enabled or Suspended")),
    };
    let bucket = buckets.writable(&input.bucket).await?;
    if !bucket.store.has_versions() {
        return Err(s3_error!(
            NotImplemented,
            "PutBucketVersioning: this bucket's back end keeps no versions that S3 knows"
        ));
    }
    Judged::of(extensions, &input.bucket).is_still(buckets).await?;
    match is_enabled || !bucket.store.can_revise() {
        true => keep(&bucket, is_enabled).await?,
        // Here the lock of the bucket would have to be known.
        false => locks::suspend(buckets, &bucket, &input.bucket).await?,
    }
    Ok(dto::PutBucketVersioningOutput::default())
}

/// Whether a bucket keeps versions.
///
/// # Errors
/// What the back end says.
pub(crate) async fn state(bucket: &Bucket) -> S3Result<Versioning> {
    bucket.store.versioning().await.map_err(|error| to_s3(Subject::Bucket, error))
}

/// Begins or suspends to keep versions.
///
/// # Errors
/// What the back end says.
pub(crate) async fn keep(bucket: &Bucket, is_enabled: bool) -> S3Result<()> {
    let done = bucket.store.set_versioning(is_enabled).await;
    done.map_err(|error| {
        let is_never = error.kind() == Kind::Unsupported;
        let error = to_s3(Subject::Bucket, error);
        match error.message().filter(|_| is_never) {
            Some(why) => s3_error!(NotImplemented, "PutBucketVersioning: {why}"),
            None => error,
        }
    })
}

/// ListObjectVersions.
///
/// # Errors
/// Those of ListObjects.
pub(crate) async fn list(
    bucket: &Bucket,
    owner: dto::Owner,
    input: dto::ListObjectVersionsInput,
) -> S3Result<dto::ListObjectVersionsOutput> {
    if !bucket.store.has_versions() {
        return list_only(bucket, owner, input).await;
    }
    let names = Names::new(input.encoding_type.as_ref())?;
    let max_keys = page_size("max-keys", input.max_keys)?;
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    if given(&input.version_id_marker).is_some() && given(&input.key_marker).is_none() {
        let why = "A version-id marker cannot be specified without a key marker.";
        return Err(s3_error!(InvalidArgument, "{why}"));
    }
    let request = VersionsRequest {
        prefix: bucket.key(input.prefix.as_deref().unwrap_or_default()),
        delimiter: given(&input.delimiter),
        key_marker: given(&input.key_marker).map(|key| bucket.key(&key)),
        version_marker: given(&input.version_id_marker),
        max: usize::try_from(max_keys).unwrap_or(0),
    };
    let mut page = Default::default();
    if max_keys > 0 {
        let listed = bucket.store.list_versions(&request).await;
        let listed = listed.and_then(|page| sound(bucket, &request, page));
        page = listed.map_err(|error| to_s3(Subject::Bucket, error))?;
    }
    // Every name begins with it.
    let before = bucket.prefix().len();
    // What has the name of the place itself has no key in the bucket.
    page.versions.retain(|entry| entry.key.len() > before);
    page.versions.iter_mut().for_each(|entry| drop(entry.key.drain(..before)));
    page.prefixes.iter_mut().for_each(|prefix| drop(prefix.drain(..before)));
    let (markers, versions): (Vec<_>, Vec<_>) =
        page.versions.into_iter().partition(|entry| entry.is_marker);
    let versions: Vec<_> =
        versions.into_iter().map(|entry| version(bucket, entry, names, &owner)).collect();
    let markers: Vec<_> = markers.into_iter().map(|entry| marker(entry, names, &owner)).collect();
    let next_key = page.next.as_ref().map(|(key, _)| names.write(&key[before..]));
    Ok(dto::ListObjectVersionsOutput {
        name: Some(input.bucket),
        prefix: Some(names.write(input.prefix.as_deref().unwrap_or_default())),
        delimiter: given(&input.delimiter).map(|delimiter| names.write(&delimiter)),
        key_marker: Some(names.write(input.key_marker.as_deref().unwrap_or_default())),
        version_id_marker: Some(input.version_id_marker.unwrap_or_default()),
        encoding_type: input.encoding_type,
        max_keys: Some(max_keys),
        is_truncated: Some(page.next.is_some()),
        next_key_marker: next_key,
        next_version_id_marker: page.next.and_then(|(_, version)| version),
        common_prefixes: names.prefixes(&page.prefixes),
        versions: (!versions.is_empty()).then_some(versions),
        delete_markers: (!markers.is_empty()).then_some(markers),
        ..Default::default()
    })
}

/// A page that is what was asked for.
///
/// # Errors
/// `Corrupt` for any other.
fn sound(bucket: &Bucket, request: &VersionsRequest, page: VersionsPage) -> Result<VersionsPage> {
    let asked = Asked {
        root: bucket.store.root(),
        prefix: &request.prefix,
        after: request.key_marker.as_deref(),
    };
    asked.versions(&page, request.version_marker.as_deref()).map(|()| page)
}

fn version(
    bucket: &Bucket,
    entry: VersionEntry,
    names: Names,
    owner: &dto::Owner,
) -> dto::ObjectVersion {
    dto::ObjectVersion {
        storage_class: Some(classes::of(&entry.meta).to_string().into()),
        key: Some(names.write(&entry.key)),
        version_id: Some(entry.id),
        is_latest: Some(entry.is_latest),
        e_tag: shown_tag(bucket, entry.meta.etag.as_ref()),
        last_modified: entry.meta.modified.map(dto::Timestamp::from),
        size: entry.meta.size_bytes.and_then(|size| i64::try_from(size).ok()),
        owner: Some(owner.clone()),
        ..Default::default()
    }
}

fn marker(entry: VersionEntry, names: Names, owner: &dto::Owner) -> dto::DeleteMarkerEntry {
    dto::DeleteMarkerEntry {
        key: Some(names.write(&entry.key)),
        version_id: Some(entry.id),
        is_latest: Some(entry.is_latest),
        last_modified: entry.meta.modified.map(dto::Timestamp::from),
        owner: Some(owner.clone()),
    }
}

/// The listing of version 1, each name with its only version.
async fn list_only(
    bucket: &Bucket,
    owner: dto::Owner,
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
    let listed = list_v1(bucket, owner, plain).await?;
    let next_version = listed.next_marker.as_ref().map(|_| NULL_VERSION.to_string());
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
        versions: listed.contents.map(|objects| objects.into_iter().map(only_version).collect()),
        ..Default::default()
    })
}

fn only_version(object: dto::Object) -> dto::ObjectVersion {
    dto::ObjectVersion {
        key: object.key,
        version_id: Some(NULL_VERSION.to_string()),
        is_latest: Some(true),
        e_tag: object.e_tag,
        last_modified: object.last_modified,
        size: object.size,
        owner: object.owner,
        storage_class: object.storage_class.map(|class| class.as_str().to_string().into()),
        ..Default::default()
    }
}

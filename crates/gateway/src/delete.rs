//! Removing objects: one, or many at once.

use crate::buckets::{Bucket, Buckets};
use crate::conditions::{RemovalConditions, Tag, several_tags, unmodified_since};
use crate::error::{Subject, to_s3};
use crate::get::about_object;
use crate::lock::Leave;
use crate::refuse;
use crate::sharing::Batch;
use crate::{locks, versions};
use futures_util::stream::{self, StreamExt as _};
use http::header::IF_NONE_MATCH;
use penstock_base::Kind;
use penstock_store::streaming::versioned;
use penstock_store::{ETag, ObjectMeta, Removed};
use s3s::{S3Error, S3Request, S3Result, dto, s3_error};

/// Requests that one batch sends at the same time, each for as many objects as the back end takes.
const BATCHES_AT_ONCE: usize = 4;
/// Removals at the same time where each object takes a request.
const DELETES_AT_ONCE: usize = 16;
/// Most objects of one batch, as in S3.
const DELETES_MAX: usize = 1000;

/// DeleteObject.
pub(crate) async fn delete(
    buckets: &Buckets,
    request: S3Request<dto::DeleteObjectInput>,
) -> S3Result<dto::DeleteObjectOutput> {
    if request.headers.contains_key(IF_NONE_MATCH) {
        return Err(s3_error!(NotImplemented, "DeleteObject with If-None-Match"));
    }
    refuse::void_conditions(&request.headers)?;
    let unmodified_since = unmodified_since(&request.headers);
    let input = request.input;
    let leave = locks::leave(input.bypass_governance_retention, &request.extensions)?;
    let bucket = buckets.writable(&input.bucket).await?;
    let conditions = RemovalConditions {
        if_match: input.if_match,
        size: input.if_match_size,
        modified: input.if_match_last_modified_time,
        unmodified_since,
    };
    let version = input.version_id.as_deref();
    let removed = delete_one(&bucket, (&input.key, version), conditions, leave).await?;
    Ok(dto::DeleteObjectOutput {
        delete_marker: removed.is_marker.then_some(true),
        version_id: removed.version,
        ..Default::default()
    })
}

async fn delete_one(
    bucket: &Bucket,
    (key, version): (&str, Option<&str>),
    conditions: RemovalConditions,
    leave: Leave,
) -> S3Result<Removed> {
    let name = versions::name(bucket, key, version)?;
    let mut etag = match conditions.if_match.clone().map(Tag::from) {
        Some(Tag::One(etag)) => Some(bucket.tags.kept(&etag)),
        Some(Tag::OneOf(_)) => return Err(several_tags()),
        // Removing what is not there succeeds, so only a delete marker makes a difference.
        Some(Tag::Any) if bucket.store.has_markers() => Some(ETag("*".to_string())),
        None | Some(Tag::Any) => None,
    };
    if conditions.need_look() {
        match look(bucket, &name, &conditions).await? {
            // What was looked at is what is removed.
            Some(meta) => etag = etag.or(meta.etag),
            None => return Ok(Removed::default()),
        }
    }
    let store = &bucket.store;
    if store.has_markers() || version.is_some() && store.has_versions() {
        // Not sent again by the engine: each time may be another delete marker.
        let key = bucket.key(key);
        let removed = match version.filter(|_| store.can_revise()) {
            Some(id) => bucket.remove_permitted(&key, id, etag.as_ref(), leave.permit()).await,
            None => bucket.remove(&key, version, etag.as_ref()).await,
        };
        return removed.map_err(about_object);
    }
    let removed = bucket.query().delete(&bucket.at(key), etag.as_ref()).await;
    match removed {
        // A condition on what is not there is told as one that does not hold.
        Err(error) if error.kind() == Kind::Conflict && etag.is_some() => {
            match bucket.query().head(&bucket.at(key)).await {
                Err(missing) if missing.kind() == Kind::NotFound => Ok(Removed::default()),
                _ => Err(about_object(error)),
            }
        }
        removed => removed.map(|()| Removed::default()).map_err(about_object),
    }
}

/// The object, if size and time are those that are wanted; `None` where there is none.
async fn look(
    bucket: &Bucket,
    name: &str,
    conditions: &RemovalConditions,
) -> S3Result<Option<ObjectMeta>> {
    let failed = || {
        let why = "At least one of the pre-conditions you specified did not hold";
        s3_error!(PreconditionFailed, "{why}")
    };
    match bucket.query().head(&bucket.at(name)).await {
        Ok(meta) if conditions.hold(&meta) => Ok(Some(meta)),
        Ok(_) => Err(failed()),
        // A delete marker is there, and has neither size nor time.
        Err(error) if error.service_code().is_some_and(|it| it.starts_with("DeleteMarker")) => {
            Err(failed())
        }
        Err(error) if error.kind() == Kind::NotFound => Ok(None),
        Err(error) => Err(about_object(error)),
    }
}

/// What became of one object of a batch: its key, the version that was named, and the end.
type Removal = (String, Option<String>, S3Result<Removed>);

/// DeleteObjects.
pub(crate) async fn delete_batch(
    buckets: &Buckets,
    request: S3Request<dto::DeleteObjectsInput>,
) -> S3Result<dto::DeleteObjectsOutput> {
    let leave = locks::leave(request.input.bypass_governance_retention, &request.extensions)?;
    let bucket = buckets.writable(&request.input.bucket).await?;
    let count = request.input.delete.objects.len();
    if count == 0 || count > DELETES_MAX {
        return Err(s3_error!(MalformedXML, "A batch holds 1 to 1000 objects."));
    }
    let leaves: Vec<S3Result<Leave>> = match Batch::of(buckets, &request).await? {
        None => (0..count).map(|_| Ok(leave)).collect(),
        Some(batch) => {
            let objects = request.input.delete.objects.iter();
            let leaves: Vec<_> = objects.map(|object| batch.leave(object, leave)).collect();
            stream::iter(leaves).buffered(DELETES_AT_ONCE).collect().await
        }
    };
    let name = &request.input.bucket;
    let quiet = request.input.delete.quiet.unwrap_or(false);
    let (mut plain, mut single, mut results) = (Vec::new(), Vec::new(), Vec::new());
    for (object, its_leave) in request.input.delete.objects.into_iter().zip(leaves) {
        let key = object.key.as_str();
        let checked = versions::check_name(key).and_then(|()| buckets.check_key(name, key));
        match its_leave.and_then(|leave| checked.map(|()| leave)) {
            Err(error) => results.push((object.key, object.version_id, Err(error))),
            Ok(same) if is_plain(&bucket, &object) && same == leave => {
                plain.push((object.key, object.version_id));
            }
            // A condition takes a request of its own.
            Ok(its_leave) => single.push((object, its_leave)),
        }
    }
    results.extend(remove_plain(&bucket, plain, leave).await?);
    let single = single.into_iter().map(|(object, leave)| delete_of_batch(&bucket, object, leave));
    results.extend(stream::iter(single).buffered(DELETES_AT_ONCE).collect::<Vec<_>>().await);
    let mut output = dto::DeleteObjectsOutput::default();
    let (mut deleted, mut errors) = (Vec::new(), Vec::new());
    for (key, version, result) in results {
        match result {
            Ok(_) if quiet => {}
            Ok(removed) => deleted.push(gone(key, version, removed)),
            Err(error) => errors.push(told(key, version, &error)),
        }
    }
    (output.deleted, output.errors) = (Some(deleted), Some(errors));
    Ok(output)
}

/// Whether nothing is told of an object but what a batch of the back end takes.
fn is_plain(bucket: &Bucket, object: &dto::ObjectIdentifier) -> bool {
    object.e_tag.is_none()
        && (object.version_id.is_none() || bucket.store.batches_versions())
        && object.size.is_none()
        && object.last_modified_time.is_none()
}

fn gone(key: String, version_id: Option<String>, removed: Removed) -> dto::DeletedObject {
    let marker = removed.is_marker.then_some(true);
    dto::DeletedObject {
        key: Some(key),
        version_id,
        delete_marker: marker,
        delete_marker_version_id: marker.and(removed.version),
    }
}

fn told(key: String, version_id: Option<String>, error: &S3Error) -> dto::Error {
    dto::Error {
        key: Some(key),
        version_id,
        code: Some(error.code().as_str().to_string()),
        message: error.message().map(str::to_string),
    }
}

async fn remove_plain(
    bucket: &Bucket,
    objects: Vec<(String, Option<String>)>,
    leave: Leave,
) -> S3Result<Vec<Removal>> {
    let at_once = bucket.store.profile().delete_batch_max.max(1);
    // A directory's batch is one by one anyway, and does not tell of delete markers.
    let is_local = bucket.store.has_markers() && !bucket.store.judges_parts();
    if at_once == 1 || objects.len() == 1 || is_local {
        let removals = objects.into_iter().map(|(key, version)| async move {
            let place = (key.as_str(), version.as_deref());
            let removed = delete_one(bucket, place, RemovalConditions::default(), leave).await;
            (key, version, removed)
        });
        return Ok(stream::iter(removals).buffered(DELETES_AT_ONCE).collect().await);
    }
    let batches: Vec<Vec<_>> = objects.chunks(at_once).map(<[_]>::to_vec).collect();
    let batches = batches.into_iter().map(|objects| async move {
        let name = |(key, version): &(String, Option<String>)| match version {
            Some(id) => bucket.key(&versioned(key, id)),
            None => bucket.key(key),
        };
        let named: Vec<String> = objects.iter().map(name).collect();
        let results = bucket.remove_batch(&named).await;
        let results = results.map_err(|error| to_s3(Subject::Bucket, error))?;
        let removed = |((key, version), result): (_, penstock_base::Result<Removed>)| {
            (key, version, result.map_err(about_object))
        };
        Ok::<Vec<Removal>, S3Error>(objects.into_iter().zip(results).map(removed).collect())
    });
    let done: Vec<_> = stream::iter(batches).buffered(BATCHES_AT_ONCE).collect().await;
    let mut results = Vec::new();
    for batch in done {
        results.extend(batch?);
    }
    Ok(results)
}

async fn delete_of_batch(bucket: &Bucket, object: dto::ObjectIdentifier, leave: Leave) -> Removal {
    let conditions = RemovalConditions {
        if_match: object.e_tag.map(dto::ETagCondition::ETag),
        size: object.size,
        modified: object.last_modified_time,
        ..Default::default()
    };
    let version = object.version_id;
    let place = (object.key.as_str(), version.as_deref());
    let removed = delete_one(bucket, place, conditions, leave).await;
    (object.key, version, removed)
}

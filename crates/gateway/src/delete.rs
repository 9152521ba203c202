//! Removing objects: one, or many at once.

use crate::buckets::{Bucket, Buckets};
use crate::conditions::Tag;
use crate::error::{Subject, to_s3};
use crate::get::about_object;
use crate::refuse;
use futures_util::stream::{self, StreamExt as _};
use s3s::{S3Error, S3Result, dto, s3_error};

/// Requests that one batch sends at the same time, each for as many objects as the back end takes.
const BATCHES_AT_ONCE: usize = 4;
/// Removals at the same time where each object takes a request.
const DELETES_AT_ONCE: usize = 16;
/// Most objects of one batch, as in S3.
const DELETES_MAX: usize = 1000;

/// DeleteObject.
pub(crate) async fn delete(
    buckets: &Buckets,
    input: dto::DeleteObjectInput,
) -> S3Result<dto::DeleteObjectOutput> {
    refuse::version(input.version_id.as_deref())?;
    if input.if_match_last_modified_time.is_some() || input.if_match_size.is_some() {
        return Err(s3_error!(NotImplemented, "DeleteObject with a condition on time or size"));
    }
    let bucket = buckets.writable(&input.bucket).await?;
    delete_one(&bucket, &input.key, input.if_match).await?;
    Ok(dto::DeleteObjectOutput::default())
}

async fn delete_one(
    bucket: &Bucket,
    key: &str,
    if_match: Option<dto::ETagCondition>,
) -> S3Result<()> {
    let (query, at) = (bucket.query(), bucket.at(key));
    let etag = match if_match.map(Tag::from) {
        None => None,
        Some(Tag::One(etag)) => Some(bucket.tags.kept(&etag)),
        Some(Tag::Any) => query.head(&at).await.map_err(about_object)?.etag,
    };
    query.delete(&at, etag.as_ref()).await.map_err(about_object)
}

/// What became of one object of a batch.
type Removal = (String, S3Result<()>);

/// DeleteObjects.
pub(crate) async fn delete_batch(
    buckets: &Buckets,
    input: dto::DeleteObjectsInput,
) -> S3Result<dto::DeleteObjectsOutput> {
    let bucket = buckets.writable(&input.bucket).await?;
    if input.delete.objects.is_empty() || input.delete.objects.len() > DELETES_MAX {
        return Err(s3_error!(MalformedXML, "A batch holds 1 to 1000 objects."));
    }
    let quiet = input.delete.quiet.unwrap_or(false);
    // A condition takes a request of its own.
    let is_plain =
        |object: &dto::ObjectIdentifier| object.e_tag.is_none() && object.version_id.is_none();
    let (plain, single): (Vec<_>, Vec<_>) = input.delete.objects.into_iter().partition(is_plain);
    let plain = plain.into_iter().map(|object| object.key).collect();
    let mut results = remove_plain(&bucket, plain).await?;
    let single = single.into_iter().map(|object| delete_of_batch(&bucket, object));
    results.extend(stream::iter(single).buffered(DELETES_AT_ONCE).collect::<Vec<_>>().await);
    let mut output = dto::DeleteObjectsOutput::default();
    let (mut deleted, mut errors) = (Vec::new(), Vec::new());
    for (key, result) in results {
        match result {
            Ok(()) if quiet => {}
            Ok(()) => deleted.push(dto::DeletedObject { key: Some(key), ..Default::default() }),
            Err(error) => errors.push(told(key, &error)),
        }
    }
    (output.deleted, output.errors) = (Some(deleted), Some(errors));
    Ok(output)
}

fn told(key: String, error: &S3Error) -> dto::Error {
    dto::Error {
        key: Some(key),
        code: Some(error.code().as_str().to_string()),
        message: error.message().map(str::to_string),
        ..Default::default()
    }
}

async fn remove_plain(bucket: &Bucket, keys: Vec<String>) -> S3Result<Vec<Removal>> {
    let at_once = bucket.store.profile().delete_batch_max.max(1);
    if at_once == 1 || keys.len() == 1 {
        let removals = keys.into_iter().map(|key| async move {
            let removed = delete_one(bucket, &key, None).await;
            (key, removed)
        });
        return Ok(stream::iter(removals).buffered(DELETES_AT_ONCE).collect().await);
    }
    let batches: Vec<Vec<String>> = keys.chunks(at_once).map(<[String]>::to_vec).collect();
    let batches = batches.into_iter().map(|keys| async move {
        let named: Vec<String> = keys.iter().map(|key| bucket.key(key)).collect();
        let results = bucket.store.delete_batch(&named).await;
        let results = results.map_err(|error| to_s3(Subject::Bucket, error))?;
        let results = results.into_iter().map(|result| result.map_err(about_object));
        Ok::<Vec<Removal>, S3Error>(keys.into_iter().zip(results).collect())
    });
    let done: Vec<_> = stream::iter(batches).buffered(BATCHES_AT_ONCE).collect().await;
    let mut results = Vec::new();
    for batch in done {
        results.extend(batch?);
    }
    Ok(results)
}

async fn delete_of_batch(bucket: &Bucket, object: dto::ObjectIdentifier) -> Removal {
    let result = match refuse::version(object.version_id.as_deref()) {
        Err(error) => Err(error),
        Ok(()) => {
            let condition = object.e_tag.map(dto::ETagCondition::ETag);
            delete_one(bucket, &object.key, condition).await
        }
    };
    (object.key, result)
}

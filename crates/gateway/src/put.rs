//! Putting objects.

use crate::buckets::{Bucket, Buckets};
use crate::checksum::{HasChecksums as _, Sums};
use crate::chunks::body::Trailers;
use crate::conditions::{is_unmodified, unmodified_since, write_condition};
use crate::error::Subject;
use crate::get::{about_object, shown_tag};
use crate::headers::{ObjectHeaders, object_headers};
use crate::intake::Intake;
use crate::judged::Judged;
use crate::locks::{self, lock_asked};
use crate::receive::{Incoming, Sent, receive};
use crate::sharing::new_object;
use crate::{classes, refuse, tagging};
use http::HeaderMap;
use penstock_base::Kind;
use penstock_store::WriteCondition;
use s3s::{S3Request, S3Response, S3Result, dto, s3_error};

/// PutObject: one request to the back end.
pub(crate) async fn put(
    buckets: &Buckets,
    mut request: S3Request<dto::PutObjectInput>,
) -> S3Result<S3Response<dto::PutObjectOutput>> {
    let trailers = Trailers::of(&request.extensions);
    let input = &mut request.input;
    let acl = new_object(&request.extensions, &request.headers, &input.bucket).await?;
    if input.write_offset_bytes.is_some() {
        return Err(s3_error!(NotImplemented, "PutObject with x-amz-write-offset-bytes"));
    }
    refuse::void_conditions(&request.headers)?;
    let condition = write_condition(input.if_match.take(), input.if_none_match.take())?;
    let bucket = buckets.writable(&input.bucket).await?;
    refuse::encryption(&request.headers, bucket.is_encrypted())?;
    refuse::unkept_headers(&request.headers)?;
    let mut headers: ObjectHeaders = object_headers!(input, &request.extensions);
    headers.tagging = tagging::of_header(&bucket, input.tagging.take())?;
    let condition = dated(&bucket, &input.key, &request.headers, condition).await?;
    let mut options = headers.into_options(in_store(&bucket, condition))?;
    options.metadata.extend(acl);
    options.metadata.extend(classes::asked(&bucket, &request.headers)?);
    let (place, asked) = ((&*bucket, input.bucket.as_str()), lock_asked!(input));
    let lock = locks::of_new_object(buckets, place, &request.extensions, asked).await?;
    options.metadata.extend(lock);
    Intake::is_for(&bucket, &request.extensions);
    let still = Judged::of(&request.extensions, &input.bucket).at_the_end(&request.extensions);
    let sent = Sent::new(input.body.take(), &request.headers, trailers, input.content_length)
        .if_still(still);
    let (result, sums) = match receive(sent).await? {
        Incoming::Whole(bytes, sums) => {
            options.metadata.extend(sums.notes());
            let key = bucket.key(&input.key);
            let placed = bucket.put_whole(&key, bytes.into(), &options).await;
            (placed.map_err(about_object), sums)
        }
        Incoming::Flowing(body, verdict) => {
            options.metadata.extend(Sums::of_headers(&request.headers).notes());
            let key = bucket.key(&input.key);
            let placed = bucket.put_flow(&key, body, &options).await;
            match verdict.settle(Subject::Object, placed) {
                Ok((result, sums)) => (Ok(result), sums),
                Err(error) => (Err(error), Sums::default()),
            }
        }
    };
    let result = match result {
        Err(error) => return Err(judged_anew(&bucket, &input.key, &options.condition, error).await),
        Ok(result) => result,
    };
    let mut output = dto::PutObjectOutput {
        server_side_encryption: bucket.encryption(),
        e_tag: shown_tag(&bucket, result.etag.as_ref()),
        version_id: result.version,
        ..Default::default()
    };
    output.set_checksums(&sums);
    let mut response = S3Response::new(output);
    response.headers = sums.headers();
    Ok(response)
}

/// If-Unmodified-Since as a condition on the version that it holds for; one on tags makes it void.
async fn dated(
    bucket: &Bucket,
    key: &str,
    headers: &HeaderMap,
    condition: WriteCondition,
) -> S3Result<WriteCondition> {
    let Some(limit) = unmodified_since(headers).filter(|_| condition == WriteCondition::None)
    else {
        return Ok(condition);
    };
    match bucket.query().head(&bucket.at(key)).await {
        Ok(meta) if !is_unmodified(Some(&limit), &meta) => Err(s3_error!(
            PreconditionFailed,
            "At least one of the pre-conditions you specified did not hold"
        )),
        Ok(meta) => Ok(meta
            .etag
            .map_or(condition, |etag| WriteCondition::IfMatch(bucket.tags.shown(&etag)))),
        Err(error) if error.kind() == Kind::NotFound => Ok(WriteCondition::IfAbsent),
        Err(error) => Err(about_object(error)),
    }
}

/// The store's form of a condition.
pub(crate) fn in_store(bucket: &Bucket, condition: WriteCondition) -> WriteCondition {
    match condition {
        WriteCondition::IfMatch(etag) => WriteCondition::IfMatch(bucket.tags.kept(&etag)),
        WriteCondition::IfNoneMatch(etag) => WriteCondition::IfNoneMatch(bucket.tags.kept(&etag)),
        other => other,
    }
}

/// S3 tells a writer whose `If-Match` names an object that is gone that there is none; back ends
/// tell it as a condition that does not hold. Asked only when a write was refused so.
pub(crate) async fn judged_anew(
    bucket: &Bucket,
    key: &str,
    condition: &WriteCondition,
    error: s3s::S3Error,
) -> s3s::S3Error {
    let failed = *error.code() == s3s::S3ErrorCode::PreconditionFailed;
    if !failed || !condition.needs_object() {
        return error;
    }
    match bucket.query().head(&bucket.at(key)).await {
        Err(missing) if missing.kind() == Kind::NotFound => about_object(missing),
        _ => error,
    }
}

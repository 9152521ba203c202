//! Multipart uploads: create, part, part copy, lists, complete, abort.
//!
//! Nothing of an upload is kept in this process: its id and what the back end has of its parts are
//! all there is, so that any replica can serve any request of it.

mod begun;
mod complete;
mod listing;

pub(crate) use complete::complete;
pub(crate) use listing::list_uploads;

use crate::auth::bucket_owner;
use crate::buckets::Buckets;
use crate::checksum::{HasChecksums as _, Sums, UploadKind, announced_algorithm, upload_kind};
use crate::chunks::body::Trailers;
use crate::conditions::source_conditions;
use crate::copy::{PartCopyError, Source, came_between, copy_part};
use crate::error::{NO_SUCH_UPLOAD, Subject, to_s3};
use crate::headers::{ObjectHeaders, object_headers};
use crate::intake::Intake;
use crate::judged::Judged;
use crate::list::page_size;
use crate::locks::{self, lock_asked};
use crate::parts::part_number;
use crate::receive::{Incoming, Sent, receive};
use crate::sharing::{initiator_note, new_object, of_upload};
use crate::{classes, refuse, tagging};
use http::HeaderValue;
use penstock_base::{ByteRange, Error};
use penstock_store::{PartEntry, UploadId, WriteCondition};
use s3s::dto;
use s3s::{S3Error, S3Request, S3Response, S3Result, s3_error};

fn about_upload(error: Error) -> S3Error {
    to_s3(Subject::Upload, error)
}

/// The upload that a request names.
///
/// # Errors
/// `NoSuchUpload` for what names none. No back end is asked about it: some take an empty id for a
/// place of their own.
fn upload_of(id: &str) -> S3Result<UploadId> {
    match id.is_empty() || id.contains(char::is_control) {
        true => Err(s3_error!(NoSuchUpload, "{NO_SUCH_UPLOAD}")),
        false => Ok(UploadId(id.to_string())),
    }
}

/// CreateMultipartUpload.
pub(crate) async fn create(
    buckets: &Buckets,
    mut request: S3Request<dto::CreateMultipartUploadInput>,
) -> S3Result<dto::CreateMultipartUploadOutput> {
    let input = &mut request.input;
    let acl = new_object(&request.extensions, &request.headers, &input.bucket).await?;
    refuse::unkept_headers(&request.headers)?;
    let bucket = buckets.writable(&input.bucket).await?;
    refuse::encryption(&request.headers, bucket.is_encrypted())?;
    let (checksum_algorithm, checksum_type) =
        upload_kind(input.checksum_algorithm.take(), input.checksum_type.take())?;
    let mut headers: ObjectHeaders = object_headers!(input, &request.extensions);
    headers.tagging = tagging::of_header(&bucket, input.tagging.take())?;
    let mut options = headers.into_options(WriteCondition::None)?;
    options.metadata.extend(initiator_note(&request.extensions, &acl));
    options.metadata.extend(acl);
    options.metadata.extend(classes::asked(&bucket, &request.headers)?);
    let (place, asked) = ((&*bucket, input.bucket.as_str()), lock_asked!(input));
    let lock = locks::of_new_upload(buckets, place, &request.extensions, asked).await?;
    options.metadata.extend(lock);
    options.metadata.extend(UploadKind::note(checksum_algorithm.as_ref(), checksum_type.as_ref()));
    let upload = bucket
        .store
        .create_upload(&bucket.key(&input.key), &options)
        .await
        .map_err(|error| to_s3(Subject::Object, error))?;
    Ok(dto::CreateMultipartUploadOutput {
        server_side_encryption: bucket.encryption(),
        bucket: Some(input.bucket.clone()),
        key: Some(input.key.clone()),
        upload_id: Some(upload.0),
        checksum_algorithm,
        checksum_type,
        ..Default::default()
    })
}

/// UploadPart: one request to the back end.
pub(crate) async fn part(
    buckets: &Buckets,
    mut request: S3Request<dto::UploadPartInput>,
) -> S3Result<S3Response<dto::UploadPartOutput>> {
    let trailers = Trailers::of(&request.extensions);
    let input = &mut request.input;
    refuse::unkept_headers(&request.headers)?;
    let number = part_number(input.part_number)?;
    let bucket = buckets.writable(&input.bucket).await?;
    let (key, upload) = (bucket.key(&input.key), upload_of(&input.upload_id)?);
    // A back end that judges parts knows what the upload was created with.
    if !bucket.store.judges_parts() {
        let begun = bucket.store.begun_with(&key, &upload).await.map_err(about_upload)?;
        if let Some(kind) = UploadKind::of(&begun) {
            kind.check_part(announced_algorithm(&request.headers)?)?;
        }
    }
    Intake::is_for(&bucket, &request.extensions);
    let still = Judged::of(&request.extensions, &input.bucket).at_the_end(&request.extensions);
    let sent = Sent::new(input.body.take(), &request.headers, trailers, input.content_length)
        .if_still(still);
    let (part, sums) = match receive(sent).await? {
        Incoming::Whole(bytes, sums) => {
            let store = &bucket.store;
            let sent = store.part_whole(&key, &upload, number, bytes.into(), sums.first()).await;
            (sent.map_err(about_upload)?, sums)
        }
        Incoming::Flowing(body, verdict) => {
            let sent = bucket.store.part_flow(&key, &upload, number, body).await;
            verdict.settle(Subject::Upload, sent)?
        }
    };
    let mut output = dto::UploadPartOutput {
        server_side_encryption: bucket.encryption(),
        e_tag: Some(dto::ETag::Strong(part.etag)),
        ..Default::default()
    };
    output.set_checksums(&sums);
    let mut response = S3Response::new(output);
    response.headers = sums.headers();
    Ok(response)
}

/// UploadPartCopy.
pub(crate) async fn part_copy(
    buckets: &Buckets,
    mut request: S3Request<dto::UploadPartCopyInput>,
) -> S3Result<dto::UploadPartCopyOutput> {
    let input = &mut request.input;
    refuse::unkept_headers(&request.headers)?;
    refuse::void_conditions(&request.headers)?;
    let number = part_number(input.part_number)?;
    // s3s takes an empty header for none, and all of the source would be the part.
    let range = request.headers.get("x-amz-copy-source-range").map(copied_range).transpose()?;
    let conditions = source_conditions!(input);
    let bucket = buckets.writable(&input.bucket).await?;
    let is_unconditional = conditions.is_empty();
    let source = (&input.copy_source, &request.extensions);
    let source = Source::new(buckets, source, range, conditions).await?;
    let upload = upload_of(&input.upload_id)?;
    let still = Judged::of(&request.extensions, &input.bucket).at_the_end(&request.extensions);
    let place = (&*bucket, input.key.as_str());
    let copied = copy_part(&source, place, (&upload, number), still).await;
    let (part, sums, version) = copied.map_err(|error| {
        let error = match error {
            PartCopyError::Said(error) => error,
            PartCopyError::Store(error) => about_upload(error),
        };
        if is_unconditional { came_between(error) } else { error }
    })?;
    let mut result = dto::CopyPartResult {
        e_tag: Some(dto::ETag::Strong(part.etag)),
        last_modified: Some(dto::Timestamp::from(std::time::SystemTime::now())),
        ..Default::default()
    };
    result.set_checksums(&sums);
    Ok(dto::UploadPartCopyOutput {
        copy_source_version_id: version,
        server_side_encryption: bucket.encryption(),
        copy_part_result: Some(result),
        ..Default::default()
    })
}

/// The bytes that `x-amz-copy-source-range` names. Unlike a Range it says both ends: S3 takes
/// neither open nor suffix ranges, so that the size of the part is the client's own.
pub(crate) fn copied_range(header: &HeaderValue) -> S3Result<ByteRange> {
    let offset = |text: &str| {
        // What parses as a number may begin with a plus sign.
        let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>().ok().filter(|_| is_digits)
    };
    let ends = header.to_str().ok().and_then(|text| text.strip_prefix("bytes="));
    let ends = ends.and_then(|text| text.split_once('-'));
    let ends = ends.and_then(|(first, last)| Some((offset(first)?, offset(last)?)));
    let range = ends
        .filter(|(first, last)| first <= last)
        .and_then(|(start, last)| Some(ByteRange { start, end: last.checked_add(1)? }));
    range.ok_or_else(|| {
        s3_error!(
            InvalidArgument,
            "The x-amz-copy-source-range value must be of the form bytes=first-last where first \
             and last are the zero-based offsets of the first and last bytes to copy"
        )
    })
}

/// ListParts.
pub(crate) async fn list_parts(
    buckets: &Buckets,
    request: S3Request<dto::ListPartsInput>,
) -> S3Result<dto::ListPartsOutput> {
    let input = request.input;
    let max_parts = page_size("max-parts", input.max_parts)?;
    let marker = input.part_number_marker.unwrap_or(0);
    let bucket = buckets.get(&input.bucket).await?;
    let upload = upload_of(&input.upload_id)?;
    let parts = bucket.store.list_parts(&bucket.key(&input.key), &upload).await;
    let parts = parts.map_err(about_upload)?;
    let begun = bucket.store.begun_with(&bucket.key(&input.key), &upload).await;
    let begun = begun.map_err(about_upload)?;
    let class = bucket.store.upload_class(&bucket.key(&input.key), &upload).await;
    let class = classes::of_upload(&begun, class.map_err(about_upload)?.as_deref());
    let (owner, initiator) = of_upload(&begun, &bucket_owner(&request.extensions));
    // Of a part that was sent again the newest.
    let newest = parts.chunk_by(|a, b| a.number == b.number).filter_map(<[PartEntry]>::last);
    let after: Vec<&PartEntry> =
        newest.filter(|part| i64::from(part.number) > i64::from(marker)).collect();
    let shown = &after[..after.len().min(usize::try_from(max_parts).unwrap_or(0))];
    let answer = |part: &&PartEntry| {
        let mut answer = dto::Part {
            part_number: i32::try_from(part.number).ok(),
            e_tag: Some(dto::ETag::Strong(part.etag.clone())),
            size: i64::try_from(part.size_bytes).ok(),
            last_modified: part.modified.map(dto::Timestamp::from),
            ..Default::default()
        };
        answer.set_checksums(&Sums::of_store(part.sum.as_ref()));
        answer
    };
    let (checksum_algorithm, checksum_type) =
        UploadKind::of(&begun).map(UploadKind::to_dto).unzip();
    Ok(dto::ListPartsOutput {
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(input.upload_id),
        part_number_marker: Some(marker),
        max_parts: Some(max_parts),
        is_truncated: Some(shown.len() < after.len()),
        next_part_number_marker: shown.last().and_then(|part| i32::try_from(part.number).ok()),
        parts: Some(shown.iter().map(answer).collect()),
        checksum_algorithm,
        checksum_type,
        owner: Some(owner),
        initiator: Some(initiator),
        storage_class: Some(class),
        ..Default::default()
    })
}

/// AbortMultipartUpload.
///
/// # Errors
/// `NotImplemented` for `x-amz-if-match-initiated-time`, which S3 has for directory buckets only:
/// not every back end tells when an upload began.
pub(crate) async fn abort(
    buckets: &Buckets,
    input: dto::AbortMultipartUploadInput,
) -> S3Result<dto::AbortMultipartUploadOutput> {
    if input.if_match_initiated_time.is_some() {
        return Err(s3_error!(
            NotImplemented,
            "x-amz-if-match-initiated-time: an upload is named by its id"
        ));
    }
    let bucket = buckets.writable(&input.bucket).await?;
    let upload = upload_of(&input.upload_id)?;
    let done = bucket.store.discard_upload(&bucket.key(&input.key), &upload).await;
    done.map_err(about_upload)?;
    Ok(dto::AbortMultipartUploadOutput::default())
}

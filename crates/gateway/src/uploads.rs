//! Multipart uploads: create, part, part copy, lists, complete, abort.
//!
//! Nothing of an upload is kept in this process: its id and what the back end has of its parts are
//! all there is, so that any replica can serve any request of it.

mod listing;

pub(crate) use listing::list_uploads;

use crate::auth::bucket_owner;
use crate::buckets::{Bucket, Buckets};
use crate::checksum::{
    HasChecksums as _, PART_SUMS_NOTE, PartSums, Sums, Verifier, upload_kind, whole_object_checksum,
};
use crate::conditions::{source_conditions, write_condition};
use crate::copy::{PartCopyError, Source, copy_part};
use crate::error::{NO_SUCH_PART, Subject, to_s3};
use crate::get::shown_tag;
use crate::headers::{ObjectHeaders, object_headers};
use crate::hosts::Hosts;
use crate::list::page_size;
use crate::locks::{self, lock_asked};
use crate::parts::{PARTS_NOTE, PartSizes, part_number};
use crate::put::{in_store, judged_anew};
use crate::receive::{Incoming, Sent, receive};
use crate::sharing::{completed_object, initiator_note, judges_lists, new_object, of_upload};
use crate::{lenient, refuse, tagging};
use penstock_base::{Error, Kind};
use penstock_store::streaming::split_version;
use penstock_store::{Part, PartEntry, PutOptions, PutResult, UploadId, WriteCondition};
use s3s::dto;
use s3s::{S3Error, S3Request, S3Response, S3Result, s3_error};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Smallest part that is not the last, as in S3.
const PART_BYTES_MIN: u64 = 5 << 20;

fn about_upload(error: Error) -> S3Error {
    to_s3(Subject::Upload, error)
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
    let mut headers: ObjectHeaders = object_headers!(input);
    headers.tagging = tagging::of_header(&bucket, input.tagging.take())?;
    let mut options = headers.into_options(WriteCondition::None)?;
    options.metadata.extend(initiator_note(&request.extensions, &acl));
    options.metadata.extend(acl);
    let (place, asked) = ((&*bucket, input.bucket.as_str()), lock_asked!(input));
    let lock = locks::of_new_upload(buckets, place, &request.extensions, asked).await?;
    options.metadata.extend(lock);
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
    let trailers = lenient::trailers(&mut request);
    let input = &mut request.input;
    refuse::unkept_headers(&request.headers)?;
    let number = part_number(input.part_number)?;
    let bucket = buckets.writable(&input.bucket).await?;
    let (key, upload) = (bucket.key(&input.key), UploadId(input.upload_id.clone()));
    let sent = Sent::new(input.body.take(), &request.headers, trailers, input.content_length);
    let (part, sums) = match receive(sent).await? {
        Incoming::Whole(bytes, sums) => {
            let sent = bucket.store.upload_part(&key, &upload, number, bytes.into()).await;
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
    let number = part_number(input.part_number)?;
    let range = input.copy_source_range.as_deref().map(dto::Range::parse).transpose();
    let range = range.map_err(|_| {
        s3_error!(
            InvalidArgument,
            "The x-amz-copy-source-range value must be of the form bytes=first-last"
        )
    })?;
    let conditions = source_conditions!(input);
    let bucket = buckets.writable(&input.bucket).await?;
    let source = Source::new(buckets, &input.copy_source, range, conditions).await?;
    let upload = UploadId(input.upload_id.clone());
    let copied = copy_part(&source, &bucket, &input.key, &upload, number).await;
    let part = copied.map_err(|error| match error {
        PartCopyError::Source(error) => error,
        PartCopyError::Store(error) => about_upload(error),
    })?;
    Ok(dto::UploadPartCopyOutput {
        copy_source_version_id: split_version(&source.key).1.map(str::to_string),
        server_side_encryption: bucket.encryption(),
        copy_part_result: Some(dto::CopyPartResult {
            e_tag: Some(dto::ETag::Strong(part.etag)),
            last_modified: Some(dto::Timestamp::from(std::time::SystemTime::now())),
            ..Default::default()
        }),
        ..Default::default()
    })
}

/// ListParts.
pub(crate) async fn list_parts(
    buckets: &Buckets,
    request: S3Request<dto::ListPartsInput>,
) -> S3Result<dto::ListPartsOutput> {
    let input = request.input;
    let max_parts = page_size(input.max_parts)?;
    let marker = input.part_number_marker.unwrap_or(0);
    let bucket = buckets.get(&input.bucket).await?;
    let upload = UploadId(input.upload_id.clone());
    let parts = bucket.store.list_parts(&bucket.key(&input.key), &upload).await;
    let parts = parts.map_err(about_upload)?;
    let begun = bucket.store.begun_with(&bucket.key(&input.key), &upload).await;
    let begun = begun.map_err(about_upload)?;
    let (owner, initiator) = of_upload(&begun, &bucket_owner(&request.extensions));
    let after: Vec<&PartEntry> =
        parts.iter().filter(|part| i64::from(part.number) > i64::from(marker)).collect();
    let shown = &after[..after.len().min(usize::try_from(max_parts).unwrap_or(0))];
    let answer = |part: &&PartEntry| dto::Part {
        part_number: i32::try_from(part.number).ok(),
        e_tag: Some(dto::ETag::Strong(part.etag.clone())),
        size: i64::try_from(part.size_bytes).ok(),
        last_modified: part.modified.map(dto::Timestamp::from),
        ..Default::default()
    };
    Ok(dto::ListPartsOutput {
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(input.upload_id),
        part_number_marker: Some(marker),
        max_parts: Some(max_parts),
        is_truncated: Some(shown.len() < after.len()),
        next_part_number_marker: shown.last().and_then(|part| i32::try_from(part.number).ok()),
        parts: Some(shown.iter().map(answer).collect()),
        owner: Some(owner),
        initiator: Some(initiator),
        storage_class: Some(dto::StorageClass::from_static(dto::StorageClass::STANDARD)),
        ..Default::default()
    })
}

/// CompleteMultipartUpload: two requests to the back end, the list of parts and the commit; lists,
/// policies, and on S3 a checksum or size of the whole take theirs besides.
pub(crate) async fn complete(
    buckets: &Buckets,
    hosts: &Hosts,
    mut request: S3Request<dto::CompleteMultipartUploadInput>,
) -> S3Result<dto::CompleteMultipartUploadOutput> {
    let input = &mut request.input;
    let condition = write_condition(input.if_match.take(), input.if_none_match.take())?;
    let named = input.multipart_upload.take().and_then(|list| list.parts).unwrap_or_default();
    if named.is_empty() {
        return Err(s3_error!(MalformedXML, "You must specify at least one part"));
    }
    check_order(&named)?;
    let bucket = buckets.writable(&input.bucket).await?;
    let upload = UploadId(input.upload_id.clone());
    let target = Target { bucket: &bucket, key: bucket.key(&input.key), upload: &upload };
    let sums;
    let result = match target.parts(&named).await? {
        Found::Completed(result) => {
            sums = Sums::default();
            result
        }
        Found::Parts(parts) => {
            if let Some(told) = input.mpu_object_size {
                target.check_size(&parts, told).await?;
            }
            if judges_lists(&request.extensions) {
                let began = bucket.store.begun_with(&target.key, &upload).await;
                let metadata = began.map_err(about_upload)?;
                completed_object(&request.extensions, &metadata, &input.bucket).await?;
            }
            let whole = whole_object_checksum(&request.headers)?;
            let is_full = whole.is_some()
                || request.headers.get("x-amz-checksum-type").is_some_and(|it| it == "FULL_OBJECT");
            let told = PartSums::of(&named, &parts, is_full);
            if let Some(whole) = whole {
                target.verify(&parts, whole, told.as_ref()).await?;
            }
            // Where the back end alone knows the sizes, CRCs were not joined.
            let told = told.filter(|told| !told.is_full() || !bucket.store.judges_parts());
            let note = told.as_ref().and_then(PartSums::note);
            let mut notes = Vec::from_iter(note.map(|note| (PART_SUMS_NOTE.to_string(), note)));
            let place = (&*bucket, input.bucket.as_str());
            notes.extend(locks::of_completion(buckets, place, &request.extensions).await?);
            sums = told.map(PartSums::joined).unwrap_or_default();
            let condition = in_store(&bucket, condition);
            let done = target.commit(&parts, condition.clone(), &sums, notes).await;
            match done {
                Err(error) => {
                    return Err(judged_anew(&bucket, &input.key, &condition, error).await);
                }
                Ok(result) => result,
            }
        }
    };
    let mut output = dto::CompleteMultipartUploadOutput {
        server_side_encryption: bucket.encryption(),
        location: Some(hosts.location(&request.headers, &input.bucket, &input.key)),
        bucket: Some(input.bucket.clone()),
        key: Some(input.key.clone()),
        e_tag: shown_tag(&bucket, result.etag.as_ref()),
        version_id: result.version,
        ..Default::default()
    };
    output.set_checksums(&sums);
    Ok(output)
}

/// What a completion finds.
enum Found {
    Parts(Vec<Part>),
    /// The answer to an earlier completion was lost.
    Completed(PutResult),
}

/// The upload that is being completed.
struct Target<'a> {
    bucket: &'a Bucket,
    key: String,
    upload: &'a UploadId,
}

impl Target<'_> {
    /// The parts that the request names, as they are present. A back end that judges them by itself
    /// is not asked.
    async fn parts(&self, named: &[dto::CompletedPart]) -> S3Result<Found> {
        let store = &self.bucket.store;
        if store.judges_parts() {
            let part =
                |part| named_part(part).map(|(number, etag)| Part { number, etag, size_bytes: 0 });
            return Ok(Found::Parts(named.iter().map(part).collect::<S3Result<_>>()?));
        }
        let refusal = match store.list_parts(&self.key, self.upload).await {
            Ok(present) => match self.chosen_parts(named, &present) {
                Ok(parts) => return Ok(Found::Parts(parts)),
                // Some may still lie there after an upload was completed.
                Err(refusal) => refusal,
            },
            Err(error) if error.kind() == Kind::NotFound => about_upload(error),
            Err(error) => return Err(about_upload(error)),
        };
        match store.completed(&self.key, self.upload).await.map_err(about_upload)? {
            Some(result) => Ok(Found::Completed(result)),
            None => Err(refusal),
        }
    }

    fn chosen_parts(
        &self,
        named: &[dto::CompletedPart],
        present: &[PartEntry],
    ) -> S3Result<Vec<Part>> {
        let is_empty_part = |number, etag: &str| {
            let tag = self.bucket.store.empty_part_tag(&self.key, self.upload, number);
            tag.is_some_and(|tag| tag == etag)
        };
        chosen_parts(named, present, is_empty_part)
    }

    /// Compares the object's size with what the sender counted. A back end that judges the parts
    /// by itself is asked for their sizes: not every service knows the header. The completion names
    /// their tags, so none of them can be another by then.
    async fn check_size(&self, parts: &[Part], told: i64) -> S3Result<()> {
        let store = &self.bucket.store;
        let sizes = match store.judges_parts() {
            false => parts.iter().map(|part| part.size_bytes).collect(),
            true => match store.list_parts(&self.key, self.upload).await {
                Ok(present) => sizes_of(parts, &present),
                // It may have been completed before.
                Err(error) if error.kind() == Kind::NotFound => return Ok(()),
                Err(error) => return Err(about_upload(error)),
            },
        };
        if sizes.len() != parts.len() {
            // The completion says which part is not there.
            return Ok(());
        }
        let size: u64 = sizes.into_iter().sum();
        match u64::try_from(told) == Ok(size) {
            true => Ok(()),
            false => Err(s3_error!(
                InvalidRequest,
                "The object's size does not match x-amz-mp-object-size"
            )),
        }
    }

    /// Compares the whole object with what the sender hashed: by its bytes where the back end can
    /// read parts, else by joining the checksums of the parts.
    async fn verify(
        &self,
        parts: &[Part],
        whole: Verifier,
        told: Option<&PartSums>,
    ) -> S3Result<()> {
        let store = &self.bucket.store;
        let hashing = Arc::new(Mutex::new(Some(whole)));
        let lock = |hashing: &Mutex<Option<Verifier>>| -> Option<Verifier> {
            hashing.lock().unwrap_or_else(PoisonError::into_inner).take()
        };
        let sink = {
            let hashing = hashing.clone();
            move |bytes: &[u8]| {
                let mut hashing = hashing.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(verifier) = hashing.as_mut() {
                    verifier.update(bytes);
                }
            }
        };
        let read = store.read_parts(&self.key, self.upload, parts, Box::new(sink)).await;
        let is_read = read.map_err(about_upload)?;
        let Some(verifier) = lock(&hashing) else {
            return Err(s3_error!(InternalError, "the checksum of the parts was lost"));
        };
        if is_read {
            return verifier.finish(None).map(drop);
        }
        let sized = match told {
            Some(told) if store.judges_parts() => {
                let listed = store.list_parts(&self.key, self.upload).await;
                Some(told.sized(&listed.map_err(about_upload)?)?)
            }
            told => told.cloned(),
        };
        verifier.finish_joined(sized.as_ref())
    }

    async fn commit(
        &self,
        parts: &[Part],
        condition: WriteCondition,
        sums: &Sums,
        notes: Vec<(String, String)>,
    ) -> S3Result<PutResult> {
        let mut metadata = sums.notes();
        metadata.extend(notes);
        if !self.bucket.store.judges_parts() {
            let note = PartSizes::new(parts.iter().map(|part| part.size_bytes)).note();
            metadata.extend(note.map(|note| (PARTS_NOTE.to_string(), note)));
        }
        let options = PutOptions { condition, metadata, ..PutOptions::default() };
        let store = &self.bucket.store;
        let done = store.complete_upload(&self.key, self.upload, parts, &options).await;
        done.map_err(about_upload)
    }
}

fn named_part(part: &dto::CompletedPart) -> S3Result<(u32, String)> {
    let (Some(number), Some(etag)) = (part.part_number, part.e_tag.as_ref()) else {
        return Err(s3_error!(MalformedXML, "Each part needs its PartNumber and ETag"));
    };
    Ok((part_number(number)?, etag.value().to_string()))
}

/// Refuses parts that do not ascend.
fn check_order(named: &[dto::CompletedPart]) -> S3Result<()> {
    let mut last = 0;
    for part in named {
        let (number, _) = named_part(part)?;
        if number <= last {
            return Err(s3_error!(
                InvalidPartOrder,
                "The list of parts was not in ascending order. Parts must be ordered by part number."
            ));
        }
        last = number;
    }
    Ok(())
}

/// The parts that the request names, as they are present. `is_empty_part` knows the tags of parts
/// without bytes, which a back end may not keep.
fn chosen_parts(
    named: &[dto::CompletedPart],
    present: &[PartEntry],
    is_empty_part: impl Fn(u32, &str) -> bool,
) -> S3Result<Vec<Part>> {
    let mut chosen: Vec<Part> = Vec::with_capacity(named.len());
    for part in named {
        let (number, etag) = named_part(part)?;
        let found = present.binary_search_by_key(&number, |entry| entry.number);
        let found = found.ok().map(|at| &present[at]).filter(|entry| entry.etag == etag);
        let size_bytes = match found {
            Some(found) => found.size_bytes,
            None if is_empty_part(number, &etag) => 0,
            None => {
                return Err(s3_error!(InvalidPart, "{NO_SUCH_PART} It is part {number}."));
            }
        };
        chosen.push(Part { number, etag, size_bytes });
    }
    let all_but_last = &chosen[..chosen.len().saturating_sub(1)];
    if let Some(small) = all_but_last.iter().find(|part| part.size_bytes < PART_BYTES_MIN) {
        return Err(s3_error!(
            EntityTooSmall,
            "Your proposed upload is smaller than the minimum allowed size: part {} has {} bytes",
            small.number,
            small.size_bytes
        ));
    }
    Ok(chosen)
}

/// The sizes of those of the parts that are present.
fn sizes_of(parts: &[Part], present: &[PartEntry]) -> Vec<u64> {
    let wanted: HashSet<u32> = parts.iter().map(|part| part.number).collect();
    let chosen = present.iter().filter(|entry| wanted.contains(&entry.number));
    chosen.map(|entry| entry.size_bytes).collect()
}

/// AbortMultipartUpload.
pub(crate) async fn abort(
    buckets: &Buckets,
    input: dto::AbortMultipartUploadInput,
) -> S3Result<dto::AbortMultipartUploadOutput> {
    let bucket = buckets.writable(&input.bucket).await?;
    let upload = UploadId(input.upload_id);
    let done = bucket.store.discard_upload(&bucket.key(&input.key), &upload).await;
    done.map_err(about_upload)?;
    Ok(dto::AbortMultipartUploadOutput::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(number: i32, etag: &str) -> dto::CompletedPart {
        dto::CompletedPart {
            part_number: Some(number),
            e_tag: Some(dto::ETag::Strong(etag.into())),
            ..Default::default()
        }
    }

    fn present(number: u32, size_bytes: u64) -> PartEntry {
        PartEntry { number, etag: format!("e{number}"), size_bytes, modified: None }
    }

    #[test]
    fn parts_are_checked_before_anything_is_put_together() {
        let there = [present(1, PART_BYTES_MIN), present(2, 7), present(5, 9)];
        let code = |named: &[dto::CompletedPart]| {
            check_order(named)
                .and_then(|()| chosen_parts(named, &there, |_, etag| etag == "empty"))
                .map(|parts| parts.len())
                .map_err(|error| error.code().clone())
        };
        assert_eq!(code(&[completed(1, "e1"), completed(2, "e2")]), Ok(2));
        assert_eq!(
            code(&[completed(2, "e2"), completed(1, "e1")]),
            Err(s3s::S3ErrorCode::InvalidPartOrder)
        );
        assert_eq!(code(&[completed(1, "other")]), Err(s3s::S3ErrorCode::InvalidPart));
        assert_eq!(
            code(&[completed(2, "e2"), completed(5, "e5")]),
            Err(s3s::S3ErrorCode::EntityTooSmall)
        );
        assert_eq!(code(&[completed(1, "e1"), completed(3, "empty")]), Ok(2));
        assert_eq!(code(&[completed(0, "e0")]), Err(s3s::S3ErrorCode::InvalidArgument));
    }
}

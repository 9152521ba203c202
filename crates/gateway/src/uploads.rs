//! Multipart uploads: create, part, part copy, lists, complete, abort.

use crate::buckets::Buckets;
use crate::checksum::{Verifier, whole_object_checksum};
use crate::conditions::{ReadConditions, Tag, write_condition};
use crate::error::{Subject, to_s3};
use crate::headers::object_headers;
use crate::list::{Names, owner, page_size};
use crate::objects::{Source, SourceRequest, options_with, result_tag};
use crate::receive::{check_length, receive};
use crate::refuse;
use penstock_base::Error;
use penstock_store::local::{PartEntry, UploadEntry};
use penstock_store::{Part, Store as _, UploadId, WriteCondition};
use s3s::dto;
use s3s::{S3Error, S3Request, S3Result, s3_error};

/// Highest part number, as in S3.
const PART_NUMBER_MAX: i32 = 10_000;
/// Smallest part that is not the last, as in S3.
const PART_BYTES_MIN: u64 = 5 << 20;

fn about_upload(error: Error) -> S3Error {
    to_s3(Subject::Upload, error)
}

fn part_number(number: i32) -> S3Result<u32> {
    match u32::try_from(number) {
        Ok(checked @ 1..) if number <= PART_NUMBER_MAX => Ok(checked),
        _ => Err(s3_error!(
            InvalidArgument,
            "Part number must be an integer between 1 and 10000, inclusive"
        )),
    }
}

/// CreateMultipartUpload.
pub(crate) async fn create(
    buckets: &Buckets,
    mut request: S3Request<dto::CreateMultipartUploadInput>,
) -> S3Result<dto::CreateMultipartUploadOutput> {
    let input = &mut request.input;
    refuse::acl(input.acl.as_ref().map(|acl| acl.as_str()))?;
    refuse::unkept_headers(&request.headers)?;
    let options = object_headers!(input).into_options(WriteCondition::None)?;
    let store = buckets.get(&input.bucket).await?;
    let upload = store
        .create_upload(&input.key, &options)
        .await
        .map_err(|error| to_s3(Subject::Object, error))?;
    Ok(dto::CreateMultipartUploadOutput {
        bucket: Some(input.bucket.clone()),
        key: Some(input.key.clone()),
        upload_id: Some(upload.0),
        checksum_algorithm: input.checksum_algorithm.take(),
        checksum_type: input.checksum_type.take(),
        ..Default::default()
    })
}

/// UploadPart.
pub(crate) async fn part(
    buckets: &Buckets,
    mut request: S3Request<dto::UploadPartInput>,
) -> S3Result<dto::UploadPartOutput> {
    let trailers = request.trailing_headers.take();
    let input = &mut request.input;
    refuse::unkept_headers(&request.headers)?;
    let number = part_number(input.part_number)?;
    check_length(input.content_length)?;
    let store = buckets.get(&input.bucket).await?;
    let upload = UploadId(input.upload_id.clone());
    let len = input.content_length.and_then(|len| u64::try_from(len).ok());
    let mut staged =
        store.stage_part(&input.key, &upload, number, len).await.map_err(about_upload)?;
    let body = input.body.take();
    let sums = receive(&mut staged, body, &request.headers, trailers).await?;
    let part = staged.place_part().await.map_err(about_upload)?;
    Ok(dto::UploadPartOutput {
        e_tag: Some(dto::ETag::Strong(part.etag)),
        checksum_crc32: sums.checksum_crc32,
        checksum_crc32c: sums.checksum_crc32c,
        checksum_crc64nvme: sums.checksum_crc64nvme,
        checksum_sha1: sums.checksum_sha1,
        checksum_sha256: sums.checksum_sha256,
        ..Default::default()
    })
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
    let source = SourceRequest {
        source: input.copy_source.clone(),
        range,
        conditions: ReadConditions {
            if_match: input.copy_source_if_match.take().map(Tag::from),
            if_none_match: input.copy_source_if_none_match.take().map(Tag::from),
            if_modified_since: input.copy_source_if_modified_since.take(),
            if_unmodified_since: input.copy_source_if_unmodified_since.take(),
        },
    };
    let mut source = Source::open(buckets, source).await?;
    let store = buckets.get(&input.bucket).await?;
    let upload = UploadId(input.upload_id.clone());
    let len = Some(source.found.range.len());
    let mut staged =
        store.stage_part(&input.key, &upload, number, len).await.map_err(about_upload)?;
    source.copy_to(&mut staged).await?;
    let part = staged.place_part().await.map_err(about_upload)?;
    Ok(dto::UploadPartCopyOutput {
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
    input: dto::ListPartsInput,
) -> S3Result<dto::ListPartsOutput> {
    let max_parts = page_size(input.max_parts)?;
    let marker = input.part_number_marker.unwrap_or(0);
    let store = buckets.get(&input.bucket).await?;
    let upload = UploadId(input.upload_id.clone());
    let parts = store.list_parts(&input.key, &upload).await.map_err(about_upload)?;
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
        owner: Some(owner()),
        storage_class: Some(dto::StorageClass::from_static(dto::StorageClass::STANDARD)),
        ..Default::default()
    })
}

/// ListMultipartUploads.
pub(crate) async fn list_uploads(
    buckets: &Buckets,
    input: dto::ListMultipartUploadsInput,
) -> S3Result<dto::ListMultipartUploadsOutput> {
    let names = Names::new(input.encoding_type.as_ref())?;
    let max_uploads = page_size(input.max_uploads)?;
    let store = buckets.get(&input.bucket).await?;
    let mut uploads = store.list_uploads().await.map_err(|error| to_s3(Subject::Bucket, error))?;
    uploads.sort_by(|a, b| (&a.key, a.begun, &a.id.0).cmp(&(&b.key, b.begun, &b.id.0)));
    let page = uploads_page(
        &uploads,
        &UploadsQuery {
            prefix: input.prefix.as_deref().unwrap_or_default(),
            delimiter: input.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty()),
            key_marker: input.key_marker.as_deref().unwrap_or_default(),
            upload_marker: input.upload_id_marker.as_deref().unwrap_or_default(),
            max: usize::try_from(max_uploads).unwrap_or(0),
        },
    );
    let answer = |upload: &&UploadEntry| dto::MultipartUpload {
        key: Some(names.write(&upload.key)),
        upload_id: Some(upload.id.0.clone()),
        initiated: upload.begun.map(dto::Timestamp::from),
        owner: Some(owner()),
        storage_class: Some(dto::StorageClass::from_static(dto::StorageClass::STANDARD)),
        ..Default::default()
    };
    let next = page.next.filter(|_| max_uploads > 0);
    Ok(dto::ListMultipartUploadsOutput {
        bucket: Some(input.bucket),
        prefix: Some(names.write(input.prefix.as_deref().unwrap_or_default())),
        delimiter: input.delimiter.as_deref().map(|delimiter| names.write(delimiter)),
        key_marker: Some(names.write(input.key_marker.as_deref().unwrap_or_default())),
        upload_id_marker: input.upload_id_marker,
        encoding_type: input.encoding_type,
        max_uploads: Some(max_uploads),
        is_truncated: Some(next.is_some()),
        next_key_marker: next.as_ref().map(|(key, _)| names.write(key)),
        next_upload_id_marker: next.map(|(_, upload)| upload),
        common_prefixes: names.prefixes(&page.prefixes),
        uploads: Some(page.uploads.iter().map(answer).collect()),
        ..Default::default()
    })
}

struct UploadsQuery<'a> {
    prefix: &'a str,
    delimiter: Option<&'a str>,
    key_marker: &'a str,
    upload_marker: &'a str,
    max: usize,
}

#[derive(Default)]
struct UploadsPage<'a> {
    uploads: Vec<&'a UploadEntry>,
    prefixes: Vec<String>,
    /// Where the next page goes on, when there is one.
    next: Option<(String, String)>,
}

/// One page of sorted uploads. A marker names the last upload of the page before; a key marker
/// alone passes over every upload of that key, or of that folded prefix.
fn uploads_page<'a>(uploads: &'a [UploadEntry], query: &UploadsQuery<'_>) -> UploadsPage<'a> {
    let mut page = UploadsPage::default();
    let mut last = None;
    let mut past_marker = query.upload_marker.is_empty();
    for upload in uploads {
        let Some(rest) = upload.key.strip_prefix(query.prefix) else { continue };
        if upload.key.as_str() < query.key_marker {
            continue;
        }
        if upload.key == query.key_marker {
            let passed = past_marker;
            past_marker |= upload.id.0 == query.upload_marker;
            if query.upload_marker.is_empty() || !passed {
                continue;
            }
        }
        let folded = query
            .delimiter
            .and_then(|delimiter| rest.find(delimiter).map(|at| at + delimiter.len()))
            .map(|end| format!("{}{}", query.prefix, &rest[..end]));
        if let Some(prefix) = &folded
            && (page.prefixes.last() == Some(prefix) || prefix == query.key_marker)
        {
            continue;
        }
        if page.uploads.len() + page.prefixes.len() >= query.max {
            page.next = last;
            return page;
        }
        match folded {
            Some(prefix) => {
                last = Some((prefix.clone(), String::new()));
                page.prefixes.push(prefix);
            }
            None => {
                last = Some((upload.key.clone(), upload.id.0.clone()));
                page.uploads.push(upload);
            }
        }
    }
    page
}

/// CompleteMultipartUpload.
pub(crate) async fn complete(
    buckets: &Buckets,
    mut request: S3Request<dto::CompleteMultipartUploadInput>,
) -> S3Result<dto::CompleteMultipartUploadOutput> {
    let input = &mut request.input;
    let condition = write_condition(input.if_match.take(), input.if_none_match.take())?;
    let named = input.multipart_upload.take().and_then(|list| list.parts).unwrap_or_default();
    if named.is_empty() {
        return Err(s3_error!(MalformedXML, "You must specify at least one part"));
    }
    let store = buckets.get(&input.bucket).await?;
    let upload = UploadId(input.upload_id.clone());
    let parts = match store.list_parts(&input.key, &upload).await {
        Ok(present) => {
            let parts = chosen_parts(&named, &present)?;
            let size: u64 = parts.iter().map(|part| part.size_bytes).sum();
            if input.mpu_object_size.is_some_and(|told| u64::try_from(told) != Ok(size)) {
                return Err(s3_error!(
                    InvalidRequest,
                    "The object's size does not match x-amz-mp-object-size"
                ));
            }
            if let Some(expected) = whole_object_checksum(&request.headers)? {
                let hashed = store
                    .read_parts(&input.key, &upload, &parts, expected, Verifier::update)
                    .await
                    .map_err(about_upload)?;
                hashed.finish(None)?;
            }
            parts
        }
        // The answer to an earlier Complete may have been lost: the store knows its own work.
        Err(error) if error.kind() == penstock_base::Kind::NotFound => named
            .iter()
            .map(|part| named_part(part).map(|(number, etag)| Part { number, etag, size_bytes: 0 }))
            .collect::<S3Result<Vec<_>>>()?,
        Err(error) => return Err(about_upload(error)),
    };
    let result = store
        .complete_upload(&input.key, &upload, &parts, &options_with(condition))
        .await
        .map_err(about_upload)?;
    Ok(dto::CompleteMultipartUploadOutput {
        location: Some(format!("/{}/{}", input.bucket, input.key)),
        bucket: Some(input.bucket.clone()),
        key: Some(input.key.clone()),
        e_tag: result_tag(&result),
        ..Default::default()
    })
}

fn named_part(part: &dto::CompletedPart) -> S3Result<(u32, String)> {
    let (Some(number), Some(etag)) = (part.part_number, part.e_tag.as_ref()) else {
        return Err(s3_error!(MalformedXML, "Each part needs its PartNumber and ETag"));
    };
    Ok((part_number(number)?, etag.value().to_string()))
}

/// The parts that the request names, as they are present.
fn chosen_parts(named: &[dto::CompletedPart], present: &[PartEntry]) -> S3Result<Vec<Part>> {
    let mut chosen: Vec<Part> = Vec::with_capacity(named.len());
    for part in named {
        let (number, etag) = named_part(part)?;
        if chosen.last().is_some_and(|last| last.number >= number) {
            return Err(s3_error!(
                InvalidPartOrder,
                "The list of parts was not in ascending order. Parts must be ordered by part number."
            ));
        }
        let found = present.iter().find(|entry| entry.number == number && entry.etag == etag);
        let Some(found) = found else {
            return Err(s3_error!(
                InvalidPart,
                "Part {number} could not be found. It may not have been uploaded, or its ETag differs."
            ));
        };
        chosen.push(Part { number, etag, size_bytes: found.size_bytes });
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

/// AbortMultipartUpload.
pub(crate) async fn abort(
    buckets: &Buckets,
    input: dto::AbortMultipartUploadInput,
) -> S3Result<dto::AbortMultipartUploadOutput> {
    let store = buckets.get(&input.bucket).await?;
    let upload = UploadId(input.upload_id);
    // S3 tells when there was nothing to abort; the store does not.
    store.list_parts(&input.key, &upload).await.map_err(about_upload)?;
    store.abort_upload(&input.key, &upload).await.map_err(about_upload)?;
    Ok(dto::AbortMultipartUploadOutput::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upload(key: &str, id: &str) -> UploadEntry {
        UploadEntry { key: key.into(), id: UploadId(id.into()), begun: None }
    }

    fn walk(uploads: &[UploadEntry], delimiter: Option<&str>, max: usize) -> Vec<String> {
        let (mut seen, mut marker) = (Vec::new(), (String::new(), String::new()));
        loop {
            let page = uploads_page(
                uploads,
                &UploadsQuery {
                    prefix: "",
                    delimiter,
                    key_marker: &marker.0,
                    upload_marker: &marker.1,
                    max,
                },
            );
            seen.extend(
                page.uploads.iter().map(|upload| format!("{} {}", upload.key, upload.id.0)),
            );
            seen.extend(page.prefixes.iter().cloned());
            match page.next {
                Some(next) => marker = next,
                None => return seen,
            }
        }
    }

    #[test]
    fn pages_of_any_size_give_every_upload_once() {
        let uploads = [
            upload("a", "1"),
            upload("b", "2"),
            upload("b", "3"),
            upload("d/x", "4"),
            upload("d/y", "5"),
        ];
        for max in 1..6 {
            assert_eq!(walk(&uploads, None, max), ["a 1", "b 2", "b 3", "d/x 4", "d/y 5"], "{max}");
            let mut folded = walk(&uploads, Some("/"), max);
            folded.sort();
            assert_eq!(folded, ["a 1", "b 2", "b 3", "d/"], "{max}");
        }
    }

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
            chosen_parts(named, &there)
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
        assert_eq!(code(&[completed(0, "e0")]), Err(s3s::S3ErrorCode::InvalidArgument));
    }
}

//! CompleteMultipartUpload: what is named is held against what is there, then put together.

use super::{about_upload, begun, upload_of};
use crate::buckets::{Bucket, Buckets};
use crate::checksum::{
    HasChecksums as _, Judged, Known, PART_SUMS_NOTE, PartSums, Sums, UploadKind, Verifier,
    announced_algorithm, check_composite, composite_told, handed_over, judge, says_full,
    whole_object_checksum,
};
use crate::conditions::write_condition;
use crate::error::NO_SUCH_PART;
use crate::get::shown_tag;
use crate::hosts::Hosts;
use crate::judged;
use crate::locks;
use crate::parts::{PARTS_NOTE, PartSizes, part_number};
use crate::put::{in_store, judged_anew};
use crate::refuse;
use crate::sharing::{Completion, completed_object};
use penstock_base::Kind;
use penstock_store::sums::split_tag;
use penstock_store::{Part, PartEntry, PutOptions, PutResult, UploadId, WriteCondition};
use s3s::{S3Request, S3Result, dto, s3_error};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Smallest part that is not the last, as in S3.
const PART_BYTES_MIN: u64 = 5 << 20;

/// CompleteMultipartUpload: two requests to the back end, the list of parts and the commit; lists,
/// policies, and on S3 a checksum or size of the whole take theirs besides.
pub(crate) async fn complete(
    buckets: &Buckets,
    hosts: &Hosts,
    mut request: S3Request<dto::CompleteMultipartUploadInput>,
) -> S3Result<dto::CompleteMultipartUploadOutput> {
    let input = &mut request.input;
    refuse::void_conditions(&request.headers)?;
    let condition = write_condition(input.if_match.take(), input.if_none_match.take())?;
    let named = input.multipart_upload.take().and_then(|list| list.parts).unwrap_or_default();
    if named.is_empty() {
        return Err(s3_error!(MalformedXML, "You must specify at least one part"));
    }
    check_order(&named)?;
    let bucket = buckets.writable(&input.bucket).await?;
    let upload = upload_of(&input.upload_id)?;
    let target = Target { bucket: &bucket, key: bucket.key(&input.key), upload: &upload };
    let head = (&request.headers, &request.uri, &request.extensions);
    let completion = Completion::new(head, &input.bucket, &input.key);
    let sums;
    let result = match target.parts(&named).await? {
        Found::Completed(result) => {
            sums = Sums::default();
            result
        }
        Found::Parts(parts, known) => {
            if let Some(told) = input.mpu_object_size {
                target.check_size(&parts, told).await?;
            }
            let kind = target.begun(completion).await?;
            // What is no checksum at all is told before what is missing.
            let whole = whole_object_checksum(&request.headers)?;
            let (judged, mut told) = target.sums(&named, (&parts, &known), kind).await?;
            if let Some(whole) = whole {
                told = target.verify(&parts, whole, &judged).await?;
            }
            // Where the back end alone knows the sizes, CRCs were not joined.
            told = told
                .filter(|told| told.has_sizes() || !told.is_full() || !bucket.store.judges_parts());
            let note = told.as_ref().and_then(PartSums::note);
            let mut notes = Vec::from_iter(note.map(|note| (PART_SUMS_NOTE.to_string(), note)));
            notes.extend(handed_over(&judged, &known));
            let place = (&*bucket, input.bucket.as_str());
            notes.extend(locks::of_completion(buckets, place, &request.extensions).await?);
            sums = told.map(PartSums::joined).unwrap_or_default();
            check_composite(composite_told(&request.headers).as_ref(), &sums)?;
            let condition = in_store(&bucket, condition);
            judged::Judged::of(&request.extensions, &input.bucket).is_still(buckets).await?;
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
    /// With what each was compared with.
    Parts(Vec<Part>, Vec<Known>),
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
            let unknown = if store.judges_sums() { Known::BackEnd } else { Known::Nothing };
            let part = |part| {
                let (number, told) = named_part(part)?;
                let (etag, sum) = split_tag(&told);
                let part = Part { number, etag: etag.to_string(), size_bytes: 0 };
                // A tag that tells a checksum is of a part whose back end keeps none.
                Ok((part, sum.map_or(unknown.clone(), |sum| Known::of(Some(&sum)))))
            };
            let (parts, known) = named.iter().map(part).collect::<S3Result<(Vec<_>, Vec<_>)>>()?;
            return Ok(Found::Parts(parts, known));
        }
        let refusal = match store.list_parts(&self.key, self.upload).await {
            Ok(present) => match self.chosen_parts(named, &present) {
                Ok((parts, known)) => return Ok(Found::Parts(parts, known)),
                // Some may still lie there after an upload was completed.
                Err(refusal) => refusal,
            },
            Err(error) if error.kind() == Kind::NotFound => about_upload(error),
            Err(error) => return Err(about_upload(error)),
        };
        match self.bucket.completed(&self.key, self.upload).await.map_err(about_upload)? {
            Some(result) => Ok(Found::Completed(result)),
            None => Err(refusal),
        }
    }

    fn chosen_parts(
        &self,
        named: &[dto::CompletedPart],
        present: &[PartEntry],
    ) -> S3Result<(Vec<Part>, Vec<Known>)> {
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

    /// What the upload began with, as far as a completion must know it.
    async fn begun(&self, completion: Completion<'_>) -> S3Result<Option<UploadKind>> {
        let headers = completion.headers;
        // Such a back end compares checksums by itself, and its uploads are none that a client made
        // up.
        if self.bucket.store.judges_parts() {
            let is_full = says_full(headers);
            return Ok(announced_algorithm(headers)?
                .filter(|_| is_full)
                .map(|algorithm| UploadKind { algorithm, is_full }));
        }
        let began = self.bucket.store.begun_with(&self.key, self.upload).await;
        let metadata = began.map_err(about_upload)?;
        begun::check(&metadata, self.bucket.store.can_revise())?;
        completed_object(completion, &metadata).await?;
        let kind = UploadKind::of(&metadata);
        if let Some(kind) = kind {
            kind.check_completion(headers)?;
        }
        Ok(kind)
    }

    /// Holds what the request says of the parts' checksums against what they were compared with.
    async fn sums(
        &self,
        named: &[dto::CompletedPart],
        (parts, known): (&[Part], &[Known]),
        kind: Option<UploadKind>,
    ) -> S3Result<(Vec<Judged>, Option<PartSums>)> {
        let judged = named.iter().zip(known).map(|(named, known)| judge(named, known, kind));
        let judged = judged.collect::<S3Result<Vec<_>>>()?;
        for (judged, part) in judged.iter().zip(parts).filter(|(judged, _)| judged.is_unproved) {
            let Some((algorithm, text)) = judged.sum.clone() else { continue };
            let verifier = Verifier::expecting(algorithm, text);
            let is_same = match self.hashed(std::slice::from_ref(part), verifier).await? {
                (verifier, true) => verifier.finish(None).is_ok(),
                (_, false) => {
                    return Err(s3_error!(
                        NotImplemented,
                        "a checksum of part {}, which its ETag does not tell: this bucket's back \
                         end cannot read parts before they are completed. Name the ETag that \
                         UploadPart answered, or no checksum",
                        part.number
                    ));
                }
            };
            if !is_same {
                return Err(s3_error!(InvalidPart, "{NO_SUCH_PART} It is part {}.", part.number));
            }
        }
        let told = PartSums::of(&judged, parts, kind.is_some_and(|kind| kind.is_full));
        Ok((judged, told))
    }

    /// Hands the bytes of parts to a verifier; `false` where the back end cannot read them.
    async fn hashed(&self, parts: &[Part], verifier: Verifier) -> S3Result<(Verifier, bool)> {
        let hashing = Arc::new(Mutex::new(Some(verifier)));
        let sink = {
            let hashing = hashing.clone();
            move |bytes: &[u8]| {
                let mut hashing = hashing.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(verifier) = hashing.as_mut() {
                    verifier.update(bytes);
                }
            }
        };
        let store = &self.bucket.store;
        let read = store.read_parts(&self.key, self.upload, parts, Box::new(sink)).await;
        let is_read = read.map_err(about_upload)?;
        let verifier = hashing.lock().unwrap_or_else(PoisonError::into_inner).take();
        match verifier {
            Some(verifier) => Ok((verifier, is_read)),
            None => Err(s3_error!(InternalError, "the checksum of the parts was lost")),
        }
    }

    /// Compares the whole object with what the sender hashed: by joining the checksums of the
    /// parts, else by its bytes where the back end can read parts. What was joined is given back.
    async fn verify(
        &self,
        parts: &[Part],
        whole: Verifier,
        judged: &[Judged],
    ) -> S3Result<Option<PartSums>> {
        let store = &self.bucket.store;
        let told = match store.judges_parts() {
            false => PartSums::of(judged, parts, true),
            true => match store.list_parts(&self.key, self.upload).await {
                Ok(listed) => PartSums::listed(judged, parts, &listed)?,
                // It may have been completed before; the back end tells.
                Err(error) if error.kind() == Kind::NotFound => return Ok(None),
                Err(error) => return Err(about_upload(error)),
            },
        };
        if told.as_ref().is_some_and(|told| told.joins(&whole)) {
            whole.finish_joined(told.as_ref())?;
            return Ok(told);
        }
        match self.hashed(parts, whole).await? {
            (whole, true) => whole.finish(None).map(|_| told),
            (whole, false) => whole.finish_joined(None).map(|()| told),
        }
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
        let done = self.bucket.complete_upload(&self.key, self.upload, parts, &options).await;
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
) -> S3Result<(Vec<Part>, Vec<Known>)> {
    let mut chosen: Vec<Part> = Vec::with_capacity(named.len());
    let mut known = Vec::with_capacity(named.len());
    for part in named {
        let (number, told) = named_part(part)?;
        // A store that does not keep the checksums of parts leaves them to the tag.
        let (etag, sum) = split_tag(&told);
        // What the part was before it was sent again may be there too, under a tag of its own.
        let first = present.partition_point(|entry| entry.number < number);
        let mut of_number = present[first..].iter().take_while(|entry| entry.number == number);
        let is_it = |entry: &&PartEntry| entry.etag == told || entry.etag == etag;
        let (etag, size_bytes) = match of_number.find(is_it) {
            Some(found) => (found.etag.clone(), found.size_bytes),
            None if is_empty_part(number, etag) => (etag.to_string(), 0),
            None => {
                return Err(s3_error!(InvalidPart, "{NO_SUCH_PART} It is part {number}."));
            }
        };
        chosen.push(Part { number, etag, size_bytes });
        known.push(Known::of(sum.as_ref()));
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
    Ok((chosen, known))
}

/// The sizes of those of the parts that are present.
fn sizes_of(parts: &[Part], present: &[PartEntry]) -> Vec<u64> {
    let wanted: HashSet<u32> = parts.iter().map(|part| part.number).collect();
    let chosen = present.iter().filter(|entry| wanted.contains(&entry.number));
    chosen.map(|entry| entry.size_bytes).collect()
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
        PartEntry { number, etag: format!("e{number}"), size_bytes, modified: None, sum: None }
    }

    #[test]
    fn parts_are_checked_before_anything_is_put_together() {
        let there = [present(1, PART_BYTES_MIN), present(2, 7), present(5, 9)];
        let code = |named: &[dto::CompletedPart]| {
            check_order(named)
                .and_then(|()| chosen_parts(named, &there, |_, etag| etag == "empty"))
                .map(|(parts, _)| parts.len())
                .map_err(|error| error.code().clone())
        };
        assert_eq!(code(&[completed(1, "e1"), completed(2, "e2")]), Ok(2));
        assert_eq!(
            code(&[completed(2, "e2"), completed(1, "e1")]),
            Err(s3s::S3ErrorCode::InvalidPartOrder)
        );
        assert_eq!(code(&[completed(1, "e1-crc32-0d4a1185"), completed(2, "e2")]), Ok(2));
        assert_eq!(code(&[completed(1, "other")]), Err(s3s::S3ErrorCode::InvalidPart));
        assert_eq!(
            code(&[completed(2, "e2"), completed(5, "e5")]),
            Err(s3s::S3ErrorCode::EntityTooSmall)
        );
        assert_eq!(code(&[completed(1, "e1"), completed(3, "empty")]), Ok(2));
        assert_eq!(code(&[completed(0, "e0")]), Err(s3s::S3ErrorCode::InvalidArgument));
    }

    #[test]
    fn of_a_part_that_was_sent_again_the_one_is_taken_that_its_tag_names() {
        let was =
            |etag: &str, size_bytes| PartEntry { etag: etag.into(), ..present(2, size_bytes) };
        let there = [present(1, PART_BYTES_MIN), was("old", 7), was("new", 8), present(3, 9)];
        let chosen = |etag| {
            let named = [completed(1, "e1"), completed(2, etag)];
            chosen_parts(&named, &there, |_, _| false).map(|(parts, _)| parts[1].clone())
        };
        for (etag, size_bytes) in [("old", 7), ("new", 8), ("new-crc32-0d4a1185", 8)] {
            let part = chosen(etag).unwrap();
            assert_eq!((part.etag.as_str(), part.size_bytes), (&etag[..3], size_bytes));
        }
        assert_eq!(chosen("e3").unwrap_err().code(), &s3s::S3ErrorCode::InvalidPart);
    }
}

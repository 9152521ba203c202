//! `Get Blob`, `Put Blob`, `Delete Blob`, metadata and properties.

use super::super::clock;
use super::super::codec::http_date;
use super::super::conditions::{Verdict, judge};
use super::super::data::Data;
use super::super::digest::{base64, crc64, md5, unbase64};
use super::super::http::{Request, Response};
use super::super::range::{Resolved, resolve};
use super::super::refusal::{Refusal, Served};
use super::super::vault::{Lines, Object, State, fresh_etag};
use super::versions::{self, Version};
use super::{Call, blob_not_found, invalid_header, tags};
use bytes::Bytes;

/// Headers that Azure keeps with a blob, set by `x-ms-blob-` and the name.
const KEPT: &[&str] = &[
    "content-type",
    "content-encoding",
    "content-language",
    "content-md5",
    "cache-control",
    "content-disposition",
];
/// What is kept of a tier, which is Hot where none is given.
pub const TIER: &str = "x-ms-access-tier";
const TIERS: &[&str] = &["Hot", "Cool", "Cold", "Archive"];
/// Most bytes of user metadata.
const METADATA_BYTES_MAX: usize = 8192;
/// Longest range whose hash is made on demand.
const RANGE_DIGEST_BYTES_MAX: u64 = 4 << 20;

/// A refusal for a precondition that does not hold.
pub fn condition_not_met() -> Refusal {
    let message = "The condition specified using HTTP conditional header(s) is not met.";
    Refusal::new(412, "ConditionNotMet", message)
}

/// Judges the preconditions of a write.
///
/// # Errors
/// `ConditionNotMet`, or `BlobAlreadyExists` for `If-None-Match: *`.
pub fn check_write(call: &Call<'_>, state: &State) -> Result<(), Refusal> {
    let present = state.object(&call.target.bucket, &call.target.key);
    match judge(&call.request.headers, "", present.as_deref()) {
        Verdict::Proceed => Ok(()),
        Verdict::NotModified if call.header("if-none-match") == Some("*") => {
            Err(Refusal::new(409, "BlobAlreadyExists", "The specified blob already exists."))
        }
        _ => Err(condition_not_met()),
    }
}

/// Checks the hashes of a body against its headers.
///
/// # Errors
/// `Md5Mismatch`, `Crc64Mismatch`, `InvalidMd5`, `BothCrc64AndMd5HeaderPresent`.
pub fn check_digests(call: &Call<'_>, pieces: &[Bytes]) -> Result<(), Refusal> {
    let (md5_told, crc_told) = (call.header("content-md5"), call.header("x-ms-content-crc64"));
    if md5_told.is_some() && crc_told.is_some() {
        let message = "Both x-ms-content-crc64 header and Content-MD5 header are present.";
        return Err(Refusal::new(400, "BothCrc64AndMd5HeaderPresent", message));
    }
    if let Some(told) = md5_told {
        match unbase64(told) {
            Some(told) if told.len() == 16 => {
                if told != md5(pieces) {
                    let message = "The MD5 value specified in the request did not match with the \
                                   MD5 value calculated by the server.";
                    return Err(Refusal::new(400, "Md5Mismatch", message));
                }
            }
            _ => return Err(Refusal::new(400, "InvalidMd5", "The MD5 value is invalid.")),
        }
    }
    if let Some(told) = crc_told
        && unbase64(told).as_deref() != Some(&crc64(pieces).to_le_bytes())
    {
        let message = "The CRC64 value specified in the request did not match with the CRC64 \
                       value calculated by the server.";
        return Err(Refusal::new(400, "Crc64Mismatch", message));
    }
    Ok(())
}

/// Hashes told back for a body: those that were sent, or all where the server makes them.
pub fn tell_digests(call: &Call<'_>, pieces: &[Bytes], mut answer: Response) -> Response {
    if call.server.options.digests {
        if call.header("content-md5").is_none() {
            answer = answer.with("x-ms-content-crc64", base64(&crc64(pieces).to_le_bytes()));
        }
        return answer.with("Content-MD5", base64(&md5(pieces)));
    }
    for name in ["content-md5", "x-ms-content-crc64"] {
        if let Some(told) = call.header(name) {
            answer = answer.with(name, told);
        }
    }
    answer
}

/// Headers of a write that are kept.
pub fn kept_headers(request: &Request) -> Lines {
    let mut lines = Lines::new();
    for name in KEPT {
        let plain = if *name == "content-md5" { None } else { request.headers.get(name) };
        if let Some(value) = request.headers.get(&format!("x-ms-blob-{name}")).or(plain) {
            lines.push((name.to_string(), value.to_string()));
        }
    }
    lines
}

/// The tier that a write asks for.
///
/// # Errors
/// `InvalidHeaderValue`.
pub fn tier(request: &Request) -> Result<Option<(String, String)>, Refusal> {
    let Some(asked) = request.headers.get(TIER) else { return Ok(None) };
    let known = TIERS.iter().find(|known| known.eq_ignore_ascii_case(asked));
    let known = known.ok_or_else(|| invalid_header(TIER))?;
    Ok(Some((TIER.to_string(), known.to_string())))
}

/// The tier of a blob, if it was given one.
pub fn tier_of(object: &Object) -> Option<&str> {
    let line = object.headers.iter().find(|(name, _)| name == TIER);
    line.map(|(_, tier)| tier.as_str())
}

/// User metadata of a write: names are identifiers, as in C#.
///
/// # Errors
/// `InvalidMetadata`, `MetadataTooLarge`.
pub fn metadata(request: &Request) -> Result<Lines, Refusal> {
    let lines = request.headers.with_prefix("x-ms-meta-");
    for (name, value) in &lines {
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if name.is_empty() || !plain || name.starts_with(|first: char| first.is_ascii_digit()) {
            let message = "The metadata specified is invalid. It has characters that are not \
                           permitted.";
            return Err(Refusal::new(400, "InvalidMetadata", message));
        }
        if !value.is_ascii() {
            return Err(invalid_header(name));
        }
    }
    let size: usize = lines.iter().map(|(name, value)| name.len() + value.len()).sum();
    if size > METADATA_BYTES_MAX {
        let message = "The metadata specified exceeds the maximum permissible limit (8KB).";
        return Err(Refusal::new(400, "MetadataTooLarge", message));
    }
    Ok(lines)
}

/// `Get Blob`, `Get Blob Properties`, `Get Blob Metadata`.
///
/// # Errors
/// `BlobNotFound`, `ConditionNotMet`, `InvalidRange`, `InvalidHeaderValue`.
pub async fn get(call: &Call<'_>) -> Served {
    if call.header("if-none-match") == Some("*") {
        return Err(invalid_header("If-None-Match").into());
    }
    let (object, version) = call.server.vault.with(|state| versions::asked(call, state))?;
    let told = |answer| version.told(answer);
    match judge(&call.request.headers, "", Some(&object)) {
        Verdict::Proceed => {}
        Verdict::Failed => return Err(condition_not_met().into()),
        Verdict::NotModified => return Ok(told(describe(Response::new(304), &object))),
    }
    let size = object.data.len();
    if call.target.operation != "GetBlob" {
        let mut answer = told(describe(Response::new(200), &object));
        answer.length_told = Some(size);
        if call.target.operation == "GetBlobMetadata" {
            answer.length_told = Some(0);
        }
        return Ok(answer);
    }
    let asked = call.request.range();
    if asked.is_some_and(|range| range.starts_with("bytes=-")) {
        // Azure has no suffix ranges.
        return Err(invalid_header("Range").into());
    }
    let range = match resolve(asked, size) {
        Resolved::Whole => {
            let mut answer = told(describe(Response::new(200), &object));
            answer.body = object.data.clone();
            return Ok(answer);
        }
        Resolved::Part(range) => range,
        Resolved::Unsatisfiable => {
            let message = "The range specified is invalid for the current size of the resource.";
            let refusal = Refusal::new(416, "InvalidRange", message);
            return Err(refusal.with("Content-Range", format!("bytes */{size}")).into());
        }
    };
    let data = object.data.slice(range.start, range.end);
    let mut answer = told(describe_range(&object, call, &data).await?);
    let part = format!("bytes {}-{}/{size}", range.start, range.end - 1);
    answer = answer.with("Content-Range", part);
    answer.body = data;
    Ok(answer)
}

/// The head of a partial answer: the blob's own MD5 moves to another name.
async fn describe_range(object: &Object, call: &Call<'_>, data: &Data) -> Served {
    let mut answer = describe(Response::new(206), object);
    for line in answer.headers.iter_mut().filter(|line| line.0 == "content-md5") {
        line.0 = "x-ms-blob-content-md5".into();
    }
    let wants = |name: &str| call.header(name).is_some_and(|it| it.eq_ignore_ascii_case("true"));
    let (wants_md5, wants_crc) =
        (wants("x-ms-range-get-content-md5"), wants("x-ms-range-get-content-crc64"));
    if !wants_md5 && !wants_crc {
        return Ok(answer);
    }
    if data.len() > RANGE_DIGEST_BYTES_MAX {
        return Err(invalid_header("x-ms-range-get-content-md5").into());
    }
    let pieces = data.load().await?;
    if wants_md5 {
        answer = answer.with("Content-MD5", base64(&md5(&pieces)));
    }
    if wants_crc {
        answer = answer.with("x-ms-content-crc64", base64(&crc64(&pieces).to_le_bytes()));
    }
    Ok(answer)
}

fn describe(mut answer: Response, object: &Object) -> Response {
    answer = answer
        .with("ETag", format!("\"{}\"", object.etag))
        .with("Last-Modified", http_date(object.modified))
        .with("x-ms-creation-time", http_date(object.modified))
        .with("x-ms-blob-type", "BlockBlob")
        .with("x-ms-lease-status", "unlocked")
        .with("x-ms-lease-state", "available")
        .with("x-ms-server-encrypted", "true")
        .with("Accept-Ranges", "bytes");
    if tier_of(object).is_none() {
        answer = answer.with(TIER, "Hot").with("x-ms-access-tier-inferred", "true");
    }
    for (name, value) in &object.headers {
        answer = answer.with(name.clone(), value.clone());
    }
    if !object.headers.iter().any(|(name, _)| name == "content-type") {
        answer = answer.with("Content-Type", "application/octet-stream");
    }
    if !object.tags.is_empty() {
        answer = answer.with("x-ms-tag-count", object.tags.len().to_string());
    }
    for (name, value) in &object.metadata {
        answer = answer.with(format!("x-ms-meta-{name}"), value.clone());
    }
    answer
}

/// Places a blob and, as the service does, discards every uncommitted block of that name.
///
/// # Errors
/// `ConditionNotMet`, `BlobAlreadyExists`.
pub fn place(call: &Call<'_>, object: Object) -> Result<Response, Refusal> {
    let answer = Response::new(201)
        .with("ETag", format!("\"{}\"", object.etag))
        .with("Last-Modified", http_date(object.modified))
        .with("x-ms-request-server-encrypted", "true");
    let version = call.server.vault.with(|state| -> Result<Version, Refusal> {
        check_write(call, state)?;
        let generation = state.place(&call.target.bucket, &call.target.key, object);
        if let Some(bucket) = state.buckets.get_mut(&call.target.bucket) {
            bucket.blocks.remove(&call.target.key);
        }
        Ok(versions::written(call, generation))
    })?;
    Ok(version.told_of_write(answer))
}

/// `Put Blob`.
///
/// # Errors
/// `InvalidHeaderValue`, `MissingContentLengthHeader`, and those of metadata and conditions.
pub async fn put(call: &Call<'_>, pieces: Vec<Bytes>) -> Served {
    match call.header("x-ms-blob-type") {
        Some("BlockBlob") => {}
        Some(_) => return Err(invalid_header("x-ms-blob-type").into()),
        None => {
            let message = "An HTTP header that's mandatory for this request is not specified: \
                           x-ms-blob-type";
            return Err(Refusal::new(400, "MissingRequiredHeader", message).into());
        }
    }
    if call.request.content_length().is_none() {
        let message = "The Content-Length header was not specified.";
        return Err(Refusal::new(411, "MissingContentLengthHeader", message).into());
    }
    let metadata = metadata(call.request)?;
    let mut headers = kept_headers(call.request);
    headers.extend(tier(call.request)?);
    if !headers.iter().any(|(name, _)| name == "content-md5") {
        let told = call.header("content-md5").map(str::to_string);
        let made = || call.server.options.digests.then(|| base64(&md5(&pieces)));
        headers.extend(told.or_else(made).map(|md5| ("content-md5".to_string(), md5)));
    }
    let answer_digests = tell_digests(call, &pieces, Response::new(201));
    let object = Object {
        data: call.server.vault.keep(pieces).await?,
        etag: fresh_etag(call.server),
        modified: clock::now(),
        headers,
        metadata,
        checksums: Lines::new(),
        tags: tags::of_header(call)?,
        blocks: Vec::new(),
    };
    let mut answer = place(call, object)?;
    answer.headers.extend(answer_digests.headers);
    Ok(answer)
}

/// `Delete Blob`.
///
/// # Errors
/// `BlobNotFound`, `ConditionNotMet`, `OperationNotAllowedOnRootBlob`.
pub fn delete(call: &Call<'_>) -> Served {
    call.server.vault.with(|state| {
        let (present, _) = versions::asked(call, state)?;
        if judge(&call.request.headers, "", Some(&present)) != Verdict::Proceed {
            return Err(condition_not_met().into());
        }
        if !versions::remove_named(call, state)? {
            state.remove(&call.target.bucket, &call.target.key);
        }
        Ok(Response::new(202).with("x-ms-delete-type-permanent", "true"))
    })
}

/// `Set Blob Metadata` and `Set Blob Properties`.
///
/// # Errors
/// `BlobNotFound`, `ConditionNotMet`, and those of metadata.
pub fn describe_anew(call: &Call<'_>) -> Served {
    let metadata = metadata(call.request)?;
    let etag = fresh_etag(call.server);
    let modified = clock::now();
    call.server.vault.with(|state| {
        let present = state.object(&call.target.bucket, &call.target.key);
        let mut object = (*present.ok_or_else(blob_not_found)?).clone();
        check_write(call, state)?;
        let is_new_version = call.target.operation == "SetBlobMetadata";
        match is_new_version {
            true => object.metadata = metadata,
            false => {
                let tier = object.headers.iter().find(|(name, _)| name == TIER).cloned();
                object.headers = kept_headers(call.request);
                object.headers.extend(tier);
            }
        }
        object.etag = etag.clone();
        object.modified = modified;
        let answer = Response::new(200)
            .with("ETag", format!("\"{etag}\""))
            .with("Last-Modified", http_date(modified));
        if !is_new_version {
            state.amend(&call.target.bucket, &call.target.key, object);
            return Ok(answer);
        }
        let generation = state.place(&call.target.bucket, &call.target.key, object);
        Ok(versions::written(call, generation).told_of_write(answer))
    })
}

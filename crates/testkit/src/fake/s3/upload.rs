//! Multipart uploads.

use super::super::clock;
use super::super::codec::{hex, iso_date, unhex};
use super::super::data::Data;
use super::super::digest;
use super::super::http::Response;
use super::super::refusal::{Refusal, Served};
use super::super::vault::{Object, Staged, State, Upload, fresh_etag};
use super::super::xml::{Node, Writer, parse};
use super::object::{check_class, check_write, class_of, etag_of, kept_headers, metadata};
use super::payload::Payload;
use super::versions::Told;
use super::{Call, sums, versions};
use bytes::Bytes;
use std::collections::BTreeMap;

const NAMESPACE: &str = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";
/// Highest part number.
const PARTS_MAX: u32 = 10_000;

fn no_such_upload() -> Refusal {
    Refusal::new(404, "NoSuchUpload", "The specified multipart upload does not exist.")
}

/// The upload that a request names, if it is one of the request's key.
///
/// # Errors
/// `NoSuchUpload`.
pub fn find<'a>(call: &Call<'_>, state: &'a mut State) -> Result<&'a mut Upload, Refusal> {
    let id = call.request.query.get("uploadId").unwrap_or("");
    let bucket = state.buckets.get_mut(&call.target.bucket);
    let upload = bucket.and_then(|bucket| bucket.uploads.get_mut(id));
    upload.filter(|upload| upload.key == call.target.key).ok_or_else(no_such_upload)
}

/// The part number of a request.
///
/// # Errors
/// `InvalidArgument`.
pub fn part_number(call: &Call<'_>) -> Result<u32, Refusal> {
    let number = call.request.query.get("partNumber").and_then(|text| text.parse().ok());
    number.filter(|number| (1..=PARTS_MAX).contains(number)).ok_or_else(|| {
        let message = "Part number must be an integer between 1 and 10000, inclusive";
        Refusal::new(400, "InvalidArgument", message)
    })
}

/// `CreateMultipartUpload`.
///
/// # Errors
/// `MetadataTooLarge`, `InvalidStorageClass`.
pub fn create(call: &Call<'_>) -> Served {
    check_class(call)?;
    let id = fresh_etag(call.server);
    let upload = Upload {
        key: call.target.key.clone(),
        begun: clock::now(),
        headers: kept_headers(call.request),
        metadata: metadata(call.request)?,
        checksum: sums::kind(call),
        parts: BTreeMap::new(),
    };
    call.server.vault.with(|state| {
        let bucket = state.buckets.entry(call.target.bucket.clone()).or_default();
        bucket.uploads.insert(id.clone(), upload);
    });
    let mut xml = Writer::default();
    xml.open("InitiateMultipartUploadResult", NAMESPACE);
    xml.text("Bucket", &call.target.bucket).text("Key", &call.target.key).text("UploadId", id);
    xml.close("InitiateMultipartUploadResult");
    let mut answer = Response::text(200, "application/xml", xml.finish());
    if let Some((algorithm, kind)) = sums::kind(call) {
        answer = answer
            .with("x-amz-checksum-algorithm", algorithm.to_ascii_uppercase())
            .with("x-amz-checksum-type", kind);
    }
    Ok(answer)
}

/// `UploadPart`.
///
/// # Errors
/// `NoSuchUpload`, `InvalidArgument`.
pub async fn part(call: &Call<'_>, payload: Payload) -> Served {
    let number = part_number(call)?;
    call.server.vault.with(|state| {
        find(call, state).and_then(|upload| sums::check_part(upload, &payload.checksums))
    })?;
    let staged = Staged {
        etag: etag_of(call.server, &payload.pieces),
        data: call.server.vault.keep(payload.pieces).await?,
        modified: clock::now(),
        checksums: payload.checksums,
    };
    let mut answer = Response::new(200).with("ETag", format!("\"{}\"", staged.etag));
    for (name, value) in &staged.checksums {
        answer = answer.with(format!("x-amz-checksum-{name}"), value.clone());
    }
    call.server.vault.with(|state| -> Result<(), Refusal> {
        find(call, state)?.parts.insert(number, staged);
        Ok(())
    })?;
    Ok(answer)
}

/// Number, tag and checksum of a part, as a completion names them.
type Named = (u32, String, Option<(String, String)>);

/// The parts that a completion names.
fn named_parts(document: &Node) -> Option<Vec<Named>> {
    let named = |node: &Node| {
        let number = node.child_text("PartNumber")?.trim().parse().ok()?;
        let etag = node.child_text("ETag")?.trim().trim_matches('"').to_string();
        Some((number, etag, sums::named(node)))
    };
    document.children.iter().filter(|node| node.name == "Part").map(named).collect()
}

/// `CompleteMultipartUpload`.
///
/// # Errors
/// `MalformedXML`, `NoSuchUpload`, `InvalidPart`, `InvalidPartOrder`, `EntityTooSmall`,
/// `PreconditionFailed`.
pub async fn complete(call: &Call<'_>, payload: &Payload) -> Served {
    let named = parse(&payload.text()).and_then(|document| named_parts(&document));
    let named = named.filter(|named| !named.is_empty()).ok_or_else(|| {
        Refusal::new(400, "MalformedXML", "The XML you provided was not well-formed")
    })?;
    let upload = call.server.vault.with(|state| find(call, state).cloned())?;
    let (data, etag) = join(call, &upload, &named)?;
    let parts: Vec<&Staged> = named.iter().filter_map(|row| upload.parts.get(&row.0)).collect();
    let bytes = match &upload.checksum {
        Some((_, kind)) if kind == "FULL_OBJECT" => data.load().await?,
        _ => Vec::new(),
    };
    let checksums = sums::of_whole(&upload, &parts, &bytes, &payload.checksums)?;
    let told = checksums.clone();
    let version = call.server.vault.with(|state| -> Result<Told, Refusal> {
        find(call, state)?;
        check_write(call, state)?;
        let object = Object {
            data,
            etag: etag.clone(),
            modified: clock::now(),
            headers: upload.headers.clone(),
            metadata: upload.metadata.clone(),
            checksums,
            tags: Vec::new(),
            blocks: Vec::new(),
        };
        let version = versions::place(call, state, object);
        forget(call, state);
        Ok(version)
    })?;
    let mut xml = Writer::default();
    xml.open("CompleteMultipartUploadResult", NAMESPACE);
    xml.text("Location", format!("/{}/{}", call.target.bucket, call.target.key));
    xml.text("Bucket", &call.target.bucket).text("Key", &call.target.key);
    for (name, value) in told {
        xml.text(&format!("Checksum{}", name.to_ascii_uppercase()), value);
    }
    xml.text("ETag", format!("\"{etag}\"")).close("CompleteMultipartUploadResult");
    let answer = Response::text(200, "application/xml", xml.finish());
    Ok(version.told(answer, call))
}

/// Joins the named parts; the tag is the MD5 of their tags' bytes and their count.
fn join(call: &Call<'_>, upload: &Upload, named: &[Named]) -> Result<(Data, String), Refusal> {
    let mut data = Data::default();
    let mut tags = Vec::new();
    for (index, (number, etag, sum)) in named.iter().enumerate() {
        if index > 0 && named[index - 1].0 >= *number {
            let message = "The list of parts was not in ascending order.";
            return Err(Refusal::new(400, "InvalidPartOrder", message));
        }
        let part = upload.parts.get(number).filter(|part| part.etag == *etag);
        let part = part.ok_or_else(|| {
            let message = "One or more of the specified parts could not be found.";
            Refusal::new(400, "InvalidPart", message)
        })?;
        sums::check_named(upload, *number, part, sum.as_ref())?;
        let last = index + 1 == named.len();
        if !last && part.data.len() < call.server.options.part_bytes_min {
            let message = "Your proposed upload is smaller than the minimum allowed size";
            return Err(Refusal::new(400, "EntityTooSmall", message));
        }
        data.extend(&part.data);
        tags.extend(unhex(etag).unwrap_or_default());
    }
    let digest = hex(&digest::md5(&[Bytes::from(tags)]));
    Ok((data, format!("{digest}-{}", named.len())))
}

fn forget(call: &Call<'_>, state: &mut State) {
    let id = call.request.query.get("uploadId").unwrap_or("");
    if let Some(bucket) = state.buckets.get_mut(&call.target.bucket) {
        bucket.uploads.remove(id);
    }
}

/// `AbortMultipartUpload`.
///
/// # Errors
/// `NoSuchUpload`.
pub fn abort(call: &Call<'_>) -> Served {
    call.server.vault.with(|state| {
        find(call, state)?;
        forget(call, state);
        Ok(Response::new(204))
    })
}

/// `ListParts`: all of them on one page.
///
/// # Errors
/// `NoSuchUpload`.
pub fn list_parts(call: &Call<'_>) -> Served {
    let upload = call.server.vault.with(|state| find(call, state).cloned())?;
    let mut xml = Writer::default();
    xml.open("ListPartsResult", NAMESPACE);
    xml.text("Bucket", &call.target.bucket).text("Key", &call.target.key);
    xml.text("UploadId", call.request.query.get("uploadId").unwrap_or(""));
    xml.text("IsTruncated", "false").text("StorageClass", class_of(&upload.headers));
    for (number, part) in &upload.parts {
        xml.open("Part", "").text("PartNumber", number.to_string());
        xml.text("LastModified", iso_date(part.modified));
        xml.text("ETag", format!("\"{}\"", part.etag));
        for (name, value) in &part.checksums {
            xml.text(&format!("Checksum{}", name.to_ascii_uppercase()), value);
        }
        xml.text("Size", part.data.len().to_string()).close("Part");
    }
    xml.close("ListPartsResult");
    Ok(Response::text(200, "application/xml", xml.finish()))
}

/// `ListMultipartUploads`: those of one key in the order of their ids.
pub fn list_uploads(call: &Call<'_>) -> Response {
    let asked = |name: &str| call.request.query.get(name).unwrap_or("");
    let prefix = asked("prefix");
    let marker = (asked("key-marker"), asked("upload-id-marker"));
    let max: usize = asked("max-uploads").parse().unwrap_or(1000);
    let mut found: Vec<(String, String, String, String)> = call.server.vault.with(|state| {
        let bucket = state.buckets.get(&call.target.bucket);
        let uploads = bucket.into_iter().flat_map(|bucket| &bucket.uploads);
        let row = |(id, upload): (&String, &Upload)| {
            let class = class_of(&upload.headers).to_string();
            (upload.key.clone(), id.clone(), iso_date(upload.begun), class)
        };
        uploads.map(row).collect()
    });
    found.sort();
    found.retain(|(key, id, ..)| {
        let is_behind = match marker.1.is_empty() {
            true => key.as_str() > marker.0,
            false => (key.as_str(), id.as_str()) > marker,
        };
        is_behind && key.starts_with(prefix)
    });
    let is_truncated = found.len() > max;
    found.truncate(max);
    let mut xml = Writer::default();
    xml.open("ListMultipartUploadsResult", NAMESPACE);
    xml.text("Bucket", &call.target.bucket).text("Prefix", prefix);
    xml.text("IsTruncated", is_truncated.to_string());
    if let Some((key, id, ..)) = found.last().filter(|_| is_truncated) {
        xml.text("NextKeyMarker", key).text("NextUploadIdMarker", id);
    }
    for (key, id, begun, class) in &found {
        xml.open("Upload", "").text("Key", key).text("UploadId", id);
        xml.text("Initiated", begun).text("StorageClass", class).close("Upload");
    }
    xml.close("ListMultipartUploadsResult");
    Response::text(200, "application/xml", xml.finish())
}

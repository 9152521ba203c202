//! `CopyObject` and `UploadPartCopy`.

use super::super::clock;
use super::super::codec::{iso_date, percent_decode};
use super::super::conditions::{Verdict, judge};
use super::super::data::Data;
use super::super::digest::amz_checksum;
use super::super::http::Response;
use super::super::range::{Resolved, resolve};
use super::super::refusal::{Refusal, Served};
use super::super::vault::{Lines, Object, Staged, fresh_etag};
use super::super::xml::Writer;
use super::Call;
use super::extras::tags_of_header;
use super::google;
use super::object::{
    STORAGE_CLASS, check_class, check_write, kept_headers, metadata, precondition_failed,
};
use super::upload::{find, part_number};
use std::sync::Arc;
use std::time::SystemTime;

/// Largest source of `CopyObject`.
const COPY_BYTES_MAX: u64 = 5 << 30;

fn invalid(message: &str) -> Refusal {
    Refusal::new(400, "InvalidArgument", message)
}

/// Bucket and key that `x-amz-copy-source` names.
fn source_name(call: &Call<'_>) -> Result<(String, String), Refusal> {
    let header = call.request.headers.get("x-amz-copy-source").unwrap_or("");
    let path = header.split_once("?versionId=").map_or(header, |(path, _)| path);
    let path = percent_decode(path, false).unwrap_or_default();
    let path = path.strip_prefix('/').unwrap_or(&path);
    match path.split_once('/') {
        Some((bucket, key)) if !bucket.is_empty() && !key.is_empty() => {
            Ok((bucket.to_string(), key.to_string()))
        }
        _ => Err(invalid("Copy Source must mention the source bucket and key")),
    }
}

fn source(call: &Call<'_>) -> Result<Arc<Object>, Refusal> {
    let (bucket, key) = source_name(call)?;
    let object = google::source(call, &bucket, &key)?;
    match judge(&call.request.headers, "x-amz-copy-source-", Some(&object)) {
        Verdict::Proceed => Ok(object),
        _ => Err(precondition_failed()),
    }
}

fn answer(name: &'static str, etag: &str, modified: SystemTime, sums: &Lines) -> Response {
    let mut xml = Writer::default();
    xml.open(name, "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"");
    xml.text("LastModified", iso_date(modified)).text("ETag", format!("\"{etag}\""));
    for (name, value) in sums {
        xml.text(&format!("Checksum{}", name.to_ascii_uppercase()), value);
    }
    xml.close(name);
    Response::text(200, "application/xml", xml.finish())
}

/// `CopyObject`.
///
/// # Errors
/// `NoSuchKey`, `PreconditionFailed`, `InvalidRequest`, `InvalidArgument`, `InvalidStorageClass`.
pub fn object(call: &Call<'_>) -> Served {
    check_class(call)?;
    let object = source(call)?;
    let replaces = call.request.headers.get("x-amz-metadata-directive") == Some("REPLACE");
    let (bucket, key) = source_name(call)?;
    if object.data.len() > COPY_BYTES_MAX {
        let message = "The specified copy source is larger than the maximum allowable size";
        return Err(Refusal::new(400, "InvalidRequest", message).into());
    }
    let own_class: Lines =
        kept_headers(call.request).into_iter().filter(|(name, _)| name == STORAGE_CLASS).collect();
    let is_other = replaces
        || call.request.headers.get(STORAGE_CLASS).is_some()
        || call.request.headers.get(google::COPY_GENERATION).is_some();
    if !is_other && (&bucket, &key) == (&call.target.bucket, &call.target.key) {
        let message = "This copy request is illegal because it is trying to copy an object to \
                       itself without changing the object's metadata";
        return Err(Refusal::new(400, "InvalidRequest", message).into());
    }
    let mut copy = (*object).clone();
    copy.modified = clock::now();
    if !call.server.options.digests {
        copy.etag = fresh_etag(call.server);
    }
    if replaces {
        copy.headers = kept_headers(call.request);
        copy.metadata = metadata(call.request)?;
    } else {
        // A copy is of the class that it is given, whatever its source is of.
        copy.headers.retain(|(name, _)| name != STORAGE_CLASS);
        copy.headers.extend(own_class);
    }
    // Tags that come without the directive are ignored, as by Amazon.
    if call.request.headers.get("x-amz-tagging-directive") == Some("REPLACE") {
        copy.tags = tags_of_header(call.request);
    }
    let answer = answer("CopyObjectResult", &copy.etag, copy.modified, &Lines::new());
    let generation = call.server.vault.with(|state| -> Result<u64, Refusal> {
        check_write(call, state)?;
        Ok(state.place(&call.target.bucket, &call.target.key, copy))
    })?;
    Ok(google::with_generation(answer, call, generation))
}

/// `UploadPartCopy`.
///
/// # Errors
/// `NoSuchKey`, `NoSuchUpload`, `InvalidRange`, `InvalidArgument`.
pub async fn part(call: &Call<'_>) -> Served {
    if call.server.options.google {
        let message =
            "A header or query you provided requested a function that is not implemented.";
        return Err(Refusal::new(501, "NotImplemented", message).into());
    }
    let number = part_number(call)?;
    let object = source(call)?;
    let size = object.data.len();
    let data: Data = match call.request.headers.get("x-amz-copy-source-range") {
        None => object.data.clone(),
        Some(text) => match resolve(Some(text), size) {
            Resolved::Part(range) => object.data.slice(range.start, range.end),
            Resolved::Unsatisfiable => {
                let message = "The requested range is not satisfiable";
                return Err(Refusal::new(416, "InvalidRange", message).into());
            }
            Resolved::Whole => {
                let message = "The x-amz-copy-source-range value must be of the form \
                               bytes=first-last";
                return Err(invalid(message).into());
            }
        },
    };
    let modified = clock::now();
    let etag = fresh_etag(call.server);
    let begun = call.server.vault.with(|state| find(call, state).map(|it| it.checksum.clone()))?;
    let mut sums = Lines::new();
    if let Some((algorithm, _)) = begun {
        // The service makes it of the bytes that it copies.
        let sum = amz_checksum(&algorithm, &data.load().await?);
        sums.extend(sum.map(|sum| (algorithm, sum)));
    }
    let staged = Staged { data, etag: etag.clone(), modified, checksums: sums.clone() };
    call.server.vault.with(|state| -> Result<(), Refusal> {
        find(call, state)?.parts.insert(number, staged);
        Ok(())
    })?;
    Ok(answer("CopyPartResult", &etag, modified, &sums))
}

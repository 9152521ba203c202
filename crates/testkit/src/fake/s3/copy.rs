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
use super::extras::tags_of_header;
use super::object::{
    STORAGE_CLASS, check_class, check_write, kept_headers, metadata, precondition_failed,
};
use super::upload::{find, part_number};
use super::versions::Told;
use super::{Call, google, versions};
use std::sync::Arc;
use std::time::SystemTime;

/// Largest source of `CopyObject`.
const COPY_BYTES_MAX: u64 = 5 << 30;
const SOURCE_VERSION_ID: &str = "x-amz-copy-source-version-id";

fn invalid(message: &str) -> Refusal {
    Refusal::new(400, "InvalidArgument", message)
}

/// What `x-amz-copy-source` names.
struct SourceName {
    bucket: String,
    key: String,
    version: Option<String>,
}

fn source_name(call: &Call<'_>) -> Result<SourceName, Refusal> {
    let header = call.request.headers.get("x-amz-copy-source").unwrap_or("");
    let (path, version) = match header.split_once("?versionId=") {
        Some((path, version)) => (path, Some(percent_decode(version, false).unwrap_or_default())),
        None => (header, None),
    };
    let path = percent_decode(path, false).unwrap_or_default();
    let path = path.strip_prefix('/').unwrap_or(&path);
    match path.split_once('/') {
        Some((bucket, key)) if !bucket.is_empty() && !key.is_empty() => {
            Ok(SourceName { bucket: bucket.to_string(), key: key.to_string(), version })
        }
        _ => Err(invalid("Copy Source must mention the source bucket and key")),
    }
}

fn source(call: &Call<'_>, name: &SourceName) -> Result<(Arc<Object>, Told), Refusal> {
    let place = (name.bucket.as_str(), name.key.as_str(), name.version.as_deref());
    let (object, version) = versions::source(call, place)?;
    match judge(&call.request.headers, "x-amz-copy-source-", Some(&object)) {
        Verdict::Proceed => Ok((object, version)),
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
    let name = source_name(call)?;
    let (object, version) = source(call, &name)?;
    let replaces = call.request.headers.get("x-amz-metadata-directive") == Some("REPLACE");
    if object.data.len() > COPY_BYTES_MAX {
        let message = "The specified copy source is larger than the maximum allowable size";
        return Err(Refusal::new(400, "InvalidRequest", message).into());
    }
    let own_class: Lines =
        kept_headers(call.request).into_iter().filter(|(name, _)| name == STORAGE_CLASS).collect();
    let is_other = replaces
        || call.request.headers.get(STORAGE_CLASS).is_some()
        || call.request.headers.get(google::COPY_GENERATION).is_some();
    // A version that is named may be brought back so.
    let is_itself = name.version.is_none()
        && (&name.bucket, &name.key) == (&call.target.bucket, &call.target.key);
    if !is_other && is_itself {
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
    let made = call.server.vault.with(|state| -> Result<Told, Refusal> {
        check_write(call, state)?;
        Ok(versions::place(call, state, copy))
    })?;
    Ok(made.told(version.named(answer, SOURCE_VERSION_ID), call))
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
    let (object, version) = source(call, &source_name(call)?)?;
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
    let answer = answer("CopyPartResult", &etag, modified, &sums);
    Ok(version.named(answer, SOURCE_VERSION_ID))
}

//! `GetObject`, `HeadObject`, `PutObject`, `DeleteObject`.

use super::super::clock;
use super::super::codec::{hex, http_date};
use super::super::conditions::{Verdict, judge};
use super::super::digest;
use super::super::http::{Request, Response};
use super::super::range::{Resolved, resolve};
use super::super::refusal::{Refusal, Served};
use super::super::server::Server;
use super::super::vault::{Lines, Object, State, fresh_etag};
use super::extras::tags_of_header;
use super::payload::Payload;
use super::versions::Told;
use super::{Call, google, versions};
use bytes::Bytes;

/// Headers that S3 keeps with an object and gives back.
const KEPT: &[&str] = &[
    "content-type",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "expires",
    STORAGE_CLASS,
];
/// Kept, and given back, where it is not STANDARD.
pub const STORAGE_CLASS: &str = "x-amz-storage-class";
/// Those that there are.
const CLASSES: &[&str] = &[
    "STANDARD",
    "REDUCED_REDUNDANCY",
    "STANDARD_IA",
    "ONEZONE_IA",
    "INTELLIGENT_TIERING",
    "GLACIER",
    "GLACIER_IR",
    "DEEP_ARCHIVE",
];
/// Most bytes of user metadata.
const METADATA_BYTES_MAX: usize = 2048;

/// Headers of a write that are kept; `aws-chunked` is no encoding of the object.
pub fn kept_headers(request: &Request) -> Lines {
    let mut lines = Lines::new();
    for name in KEPT {
        let Some(value) = request.headers.get(name) else { continue };
        let value = match *name {
            "content-encoding" => {
                let codings = value.split(',').map(str::trim);
                codings.filter(|coding| *coding != "aws-chunked").collect::<Vec<_>>().join(",")
            }
            STORAGE_CLASS if value == "STANDARD" => continue,
            _ => value.to_string(),
        };
        if !value.is_empty() {
            lines.push((name.to_string(), value));
        }
    }
    lines
}

/// Checks the storage class that a write asks for.
///
/// # Errors
/// `InvalidStorageClass`.
pub fn check_class(call: &Call<'_>) -> Result<(), Refusal> {
    let (request, is_google) = (call.request, call.server.options.google);
    let classes = if is_google { google::CLASSES } else { CLASSES };
    match request.headers.get(STORAGE_CLASS) {
        Some(class) if !classes.contains(&class) => {
            let message = "The storage class you specified is not valid";
            Err(Refusal::new(400, "InvalidStorageClass", message))
        }
        _ => Ok(()),
    }
}

/// The storage class of kept headers.
pub fn class_of(headers: &Lines) -> &str {
    let class = headers.iter().find(|(name, _)| name == STORAGE_CLASS);
    class.map_or("STANDARD", |(_, class)| class.as_str())
}

/// User metadata of a write.
///
/// # Errors
/// `MetadataTooLarge`.
pub fn metadata(request: &Request) -> Result<Lines, Refusal> {
    let lines = request.headers.with_prefix("x-amz-meta-");
    let size: usize = lines.iter().map(|(name, value)| name.len() + value.len()).sum();
    if size > METADATA_BYTES_MAX {
        let message = "Your metadata headers exceed the maximum allowed metadata size";
        return Err(Refusal::new(400, "MetadataTooLarge", message));
    }
    Ok(lines)
}

/// The tag of a body: MD5 as the real service, or a unique number of the same shape.
pub fn etag_of(server: &Server, pieces: &[Bytes]) -> String {
    if server.options.digests { hex(&digest::md5(pieces)) } else { fresh_etag(server) }
}

/// A refusal for a precondition that does not hold.
pub fn precondition_failed() -> Refusal {
    let message = "At least one of the pre-conditions you specified did not hold";
    Refusal::new(412, "PreconditionFailed", message)
}

/// Judges the preconditions of a write.
///
/// # Errors
/// `PreconditionFailed`, or `NoSuchKey` for If-Match on what is not there.
pub fn check_write(call: &Call<'_>, state: &State) -> Result<(), Refusal> {
    if call.server.options.google {
        return google::check_write(call, state);
    }
    let present = state.object(&call.target.bucket, &call.target.key);
    match judge(&call.request.headers, "", present.as_deref()) {
        Verdict::Proceed => Ok(()),
        _ if present.is_none() => Err(call.no_such_key()),
        _ => Err(precondition_failed()),
    }
}

/// `GetObject` and `HeadObject`.
///
/// # Errors
/// `NoSuchKey`, `NoSuchVersion`, `MethodNotAllowed`, `PreconditionFailed`, `InvalidRange`.
pub async fn get(call: &Call<'_>) -> Served {
    let request = call.request;
    let (object, version) = versions::asked(call)?;
    match judge(&request.headers, "", Some(&object)) {
        Verdict::Proceed => {}
        Verdict::Failed => return Err(precondition_failed().into()),
        Verdict::NotModified => {
            return Ok(Response::new(304).with("ETag", format!("\"{}\"", object.etag)));
        }
    }
    let size = object.data.len();
    let resolved = resolve(request.range(), size);
    let (status, range) = match resolved {
        Resolved::Whole => (200, (0, size)),
        Resolved::Part(range) => (206, (range.start, range.end)),
        Resolved::Unsatisfiable => {
            let message = "The requested range is not satisfiable";
            let refusal = Refusal::new(416, "InvalidRange", message);
            return Err(refusal.with("Content-Range", format!("bytes */{size}")).into());
        }
    };
    let mut answer = describe(Response::new(status), call, &object);
    answer = version.told(answer, call);
    if status == 206 {
        let (start, end) = range;
        answer = answer.with("Content-Range", format!("bytes {start}-{}/{size}", end - 1));
    } else if request.headers.get("x-amz-checksum-mode") == Some("ENABLED") {
        for (name, value) in &object.checksums {
            answer = answer.with(format!("x-amz-checksum-{name}"), value.clone());
        }
    }
    answer.body = object.data.slice(range.0, range.1);
    Ok(if request.method == "HEAD" { answer.without_body() } else { answer })
}

fn describe(mut answer: Response, call: &Call<'_>, object: &Object) -> Response {
    answer = answer
        .with("ETag", format!("\"{}\"", object.etag))
        .with("Last-Modified", http_date(object.modified))
        .with("Accept-Ranges", "bytes");
    let override_of = |name: &str| call.request.query.get(&format!("response-{name}"));
    for name in KEPT {
        let kept = object.headers.iter().find(|(known, _)| known == name);
        let value = override_of(name).or(kept.map(|(_, value)| value.as_str()));
        match value {
            Some(value) => answer = answer.with(*name, value),
            None if *name == "content-type" => {
                answer = answer.with(*name, "binary/octet-stream");
            }
            None => {}
        }
    }
    if !object.tags.is_empty() {
        answer = answer.with("x-amz-tagging-count", object.tags.len().to_string());
    }
    for (name, value) in &object.metadata {
        answer = answer.with(format!("x-amz-meta-{name}"), value.clone());
    }
    answer
}

/// `PutObject`.
///
/// # Errors
/// `PreconditionFailed`, `MetadataTooLarge`, `InvalidStorageClass`.
pub async fn put(call: &Call<'_>, payload: Payload) -> Served {
    check_class(call)?;
    let object = Object {
        etag: etag_of(call.server, &payload.pieces),
        data: call.server.vault.keep(payload.pieces).await?,
        modified: clock::now(),
        headers: kept_headers(call.request),
        metadata: metadata(call.request)?,
        checksums: payload.checksums,
        tags: tags_of_header(call.request),
        blocks: Vec::new(),
    };
    let mut answer = Response::new(200).with("ETag", format!("\"{}\"", object.etag));
    for (name, value) in &object.checksums {
        answer = answer.with(format!("x-amz-checksum-{name}"), value.clone());
    }
    let version = call.server.vault.with(|state| -> Result<Told, Refusal> {
        check_write(call, state)?;
        Ok(versions::place(call, state, object))
    })?;
    Ok(version.told(answer, call))
}

/// `DeleteObject`.
///
/// # Errors
/// `PreconditionFailed`, `InvalidArgument`.
pub fn delete(call: &Call<'_>) -> Served {
    let (bucket, key) = (&call.target.bucket, &call.target.key);
    let named = versions::named(call)?;
    if named.is_some() && call.request.headers.get("if-match").is_some() {
        let object = versions::asked(call)?.0;
        if judge(&call.request.headers, "", Some(&object)) != Verdict::Proceed {
            return Err(precondition_failed().into());
        }
    }
    call.server.vault.with(|state| {
        if call.request.headers.get("if-match").is_some() && named.is_none() {
            check_write(call, state)?;
        }
        if call.server.options.google {
            google::check_write(call, state)?;
        }
        if google::remove_named(call, state)? {
            return Ok(Response::new(204));
        }
        let removed = versions::remove(state, bucket, key, named);
        Ok(versions::told_of_removal(removed, Response::new(204)))
    })
}

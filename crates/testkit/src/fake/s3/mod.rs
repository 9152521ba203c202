//! The S3 dialect: which operation a request is, and who serves it.

pub mod auth;
pub mod bucket;
pub mod chunked;
pub mod copy;
pub mod delete;
pub mod extras;
pub mod google;
mod list;
pub mod object;
pub mod payload;
pub mod sums;
pub mod upload;
pub mod versioning;
pub mod versions;

use super::clock;
use super::codec::{http_date, percent_decode};
use super::exchange::Target;
use super::http::{BodyReader, Request, Response};
use super::refusal::{Refusal, Served, Trouble};
use super::server::Server;
use std::io;

/// Longest key.
const KEY_BYTES_MAX: usize = 1024;
/// Buckets whose names begin so never appear by themselves.
pub const MISSING: &str = "missing";

/// Everything a handler needs.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The server.
    pub server: &'a Server,
    /// The request's head.
    pub request: &'a Request,
    /// What it is about.
    pub target: &'a Target,
}

impl Call<'_> {
    /// A refusal for a missing key.
    pub fn no_such_key(&self) -> Refusal {
        Refusal::new(404, "NoSuchKey", "The specified key does not exist.")
    }
}

/// Names the operation and takes bucket and key out of the path. No judgement yet.
pub fn target(request: &Request) -> Target {
    let path = request.path.strip_prefix('/').unwrap_or(&request.path);
    let (bucket, key) = match virtual_host_bucket(request) {
        Some(bucket) => (bucket, path),
        None => {
            let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
            (bucket.to_string(), key)
        }
    };
    // A broken escape is refused when the request is served.
    let key = percent_decode(key, false).unwrap_or_default();
    let operation = operation(request, !bucket.is_empty(), !key.is_empty());
    Target { operation, bucket, key }
}

/// `bucket.localhost:PORT` and `bucket.s3.anything:PORT` name the bucket in the host.
fn virtual_host_bucket(request: &Request) -> Option<String> {
    let host = request.headers.get("host")?;
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    let bucket = host.strip_suffix(".localhost").or_else(|| host.split_once(".s3.").map(|it| it.0));
    bucket.filter(|bucket| !bucket.is_empty() && *bucket != "s3").map(str::to_string)
}

fn operation(request: &Request, bucket: bool, key: bool) -> &'static str {
    let has = |name: &str| request.query.has(name);
    let copy_source = ["x-amz-copy-source", "x-goog-copy-source"];
    let copies = copy_source.iter().any(|name| request.headers.get(name).is_some());
    match (request.method.as_str(), bucket, key) {
        ("GET", false, _) => "ListBuckets",
        ("HEAD", true, false) => "HeadBucket",
        ("PUT", true, false) if request.query.raw.is_empty() => "CreateBucket",
        ("DELETE", true, false) if request.query.raw.is_empty() => "DeleteBucket",
        ("POST", true, false) if has("delete") => "DeleteObjects",
        ("GET", true, false) if has("location") => "GetBucketLocation",
        ("GET", true, false) if has("uploads") => "ListMultipartUploads",
        ("GET", true, false) if has("versioning") => "GetBucketVersioning",
        ("PUT", true, false) if has("versioning") => "PutBucketVersioning",
        ("GET", true, false) if has("versions") => "ListObjectVersions",
        ("GET", true, true) if has("tagging") => "GetObjectTagging",
        ("PUT", true, true) if has("tagging") => "PutObjectTagging",
        ("DELETE", true, true) if has("tagging") => "DeleteObjectTagging",
        (_, _, _) if has("tagging") => "Unknown",
        ("GET", true, false) if has("list-type") => "ListObjectsV2",
        ("GET", true, false) if !subresource(request) => "ListObjects",
        ("GET", true, true) if has("uploadId") => "ListParts",
        ("POST", true, true) if has("uploads") => "CreateMultipartUpload",
        ("POST", true, true) if has("uploadId") => "CompleteMultipartUpload",
        ("PUT", true, true) if has("uploadId") && copies => "UploadPartCopy",
        ("PUT", true, true) if has("uploadId") => "UploadPart",
        ("DELETE", true, true) if has("uploadId") => "AbortMultipartUpload",
        (_, true, true) if subresource(request) => "Unknown",
        ("GET", true, true) => "GetObject",
        ("HEAD", true, true) => "HeadObject",
        ("PUT", true, true) if copies => "CopyObject",
        ("PUT", true, true) => "PutObject",
        ("DELETE", true, true) => "DeleteObject",
        _ => "Unknown",
    }
}

/// Whether the query names a part of the service that this fake does not have.
fn subresource(request: &Request) -> bool {
    const ABSENT: &[&str] = &[
        "acl",
        "policy",
        "cors",
        "lifecycle",
        "website",
        "logging",
        "encryption",
        "retention",
        "legal-hold",
        "torrent",
        "attributes",
        "object-lock",
        "select",
        "restore",
        "replication",
        "notification",
        "publicAccessBlock",
        "ownershipControls",
    ];
    request.query.pairs.iter().any(|(name, _)| ABSENT.contains(&name.as_str()))
}

/// Serves a request.
///
/// # Errors
/// When the connection or the disk breaks.
pub async fn serve(
    server: &Server,
    request: &Request,
    target: &Target,
    body: &mut BodyReader<'_>,
    empty_page: bool,
) -> io::Result<Response> {
    let served = match server.options.google {
        true => as_google(server, request, target, body, empty_page).await,
        false => dispatch(&Call { server, request, target }, body, empty_page).await,
    };
    let answer = match served {
        Ok(answer) => answer,
        Err(Trouble::Refused(refusal)) => {
            let answer = refusal.s3(&request.path);
            if request.method == "HEAD" { answer.without_body() } else { answer }
        }
        Err(Trouble::Broken(error)) => return Err(error),
    };
    server.vault.flush().await?;
    let now = clock::now_ahead(server.options.clock_offset_s);
    Ok(answer
        .with("Date", http_date(now))
        .with("x-amz-request-id", "0000000000000000")
        .with("Server", "penstock-fake"))
}

/// Serves a request as Google's XML API does.
async fn as_google(
    server: &Server,
    request: &Request,
    target: &Target,
    body: &mut BodyReader<'_>,
    empty_page: bool,
) -> Served {
    let translated = google::translated(request)?;
    let call = Call { server, request: &translated, target };
    let own = ["PutBucketVersioning", "GetBucketVersioning", "ListObjectVersions"];
    if target.operation.ends_with("ObjectTagging") {
        return Err(not_implemented().into());
    }
    if !own.contains(&target.operation) {
        let answer = dispatch(&call, body, empty_page).await?;
        return Ok(google::told(answer, request, target.operation));
    }
    let signature = auth::verify(&call)?;
    bucket::appear(&call, target.operation, &target.bucket)?;
    match target.operation {
        "PutBucketVersioning" => {
            let payload = payload::receive(&call, &signature, body).await?;
            versioning::set(&call, &payload)
        }
        "GetBucketVersioning" => Ok(versioning::get(&call)),
        _ => google::versions(&call),
    }
}

/// Whether a request has a header of checksums, or says that one follows the body.
fn tells_checksums(request: &Request) -> bool {
    let mut names = request.headers.0.iter().map(|(name, _)| name.as_str());
    names.any(|name| name.starts_with("x-amz-checksum-") || name == "x-amz-trailer")
}

fn not_implemented() -> Refusal {
    let message = "A header you provided implies functionality that is not implemented";
    Refusal::new(501, "NotImplemented", message)
}

async fn dispatch(call: &Call<'_>, body: &mut BodyReader<'_>, empty_page: bool) -> Served {
    let Target { operation, bucket, key } = call.target;
    if percent_decode(&call.request.path, false).is_none() {
        return Err(Refusal::new(400, "InvalidURI", "Couldn't parse the specified URI.").into());
    }
    let signature = auth::verify(call)?;
    if call.server.options.without_checksums && tells_checksums(call.request) {
        return Err(not_implemented().into());
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(Refusal::new(400, "KeyTooLongError", "Your key is too long").into());
    }
    bucket::appear(call, operation, bucket)?;
    match *operation {
        "ListBuckets" => Ok(bucket::list(call)),
        "HeadBucket" => Ok(Response::new(200).with("x-amz-bucket-region", "us-east-1")),
        "CreateBucket" => {
            let payload = payload::receive(call, &signature, body).await?;
            bucket::create(call, &payload)
        }
        "DeleteBucket" => bucket::delete(call),
        "GetBucketLocation" => Ok(bucket::location(call)),
        "GetBucketVersioning" => Ok(versioning::get(call)),
        "PutBucketVersioning" => {
            let payload = payload::receive(call, &signature, body).await?;
            versioning::set(call, &payload)
        }
        "ListObjectVersions" => versions::list(call),
        "GetObjectTagging" => extras::get_tags(call),
        "PutObjectTagging" => {
            let payload = payload::receive(call, &signature, body).await?;
            extras::set_tags(call, Some(&payload))
        }
        "DeleteObjectTagging" => extras::set_tags(call, None),
        "ListObjectsV2" | "ListObjects" => list::objects(call, empty_page),
        "GetObject" | "HeadObject" => object::get(call).await,
        "PutObject" => {
            let payload = payload::receive(call, &signature, body).await?;
            object::put(call, payload).await
        }
        "CopyObject" => copy::object(call),
        "DeleteObject" => object::delete(call),
        "DeleteObjects" => {
            let payload = payload::receive(call, &signature, body).await?;
            delete::objects(call, &payload)
        }
        "CreateMultipartUpload" => upload::create(call),
        "UploadPart" => {
            let payload = payload::receive(call, &signature, body).await?;
            upload::part(call, payload).await
        }
        "UploadPartCopy" => copy::part(call).await,
        "CompleteMultipartUpload" => {
            let payload = payload::receive(call, &signature, body).await?;
            upload::complete(call, &payload).await
        }
        "AbortMultipartUpload" => upload::abort(call),
        "ListParts" => upload::list_parts(call),
        "ListMultipartUploads" => Ok(upload::list_uploads(call)),
        _ => Err(not_implemented().into()),
    }
}

//! The Azure Blob dialect: which operation a request is, and who serves it.

pub mod auth;
pub mod batch;
pub mod blob;
pub mod block;
pub mod container;
pub mod copy;
pub mod hierarchy;
mod list;
pub mod sas;
pub mod tags;
pub mod versions;

use super::codec::{http_date, percent_decode};
use super::data::Data;
use super::exchange::Target;
use super::http::{BodyReader, Request, Response};
use super::refusal::{Refusal, Served, Trouble};
use super::server::Server;
use bytes::Bytes;
use std::io;

/// Service version told in answers.
const VERSION: &str = "2026-04-06";
/// Longest blob name, in characters.
const NAME_CHARS_MAX: usize = 1024;
/// Containers whose names begin so never appear by themselves.
const MISSING: &str = "missing";

/// Everything a handler needs.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The server.
    pub server: &'a Server,
    /// The request's head.
    pub request: &'a Request,
    /// What it is about.
    pub target: &'a Target,
    /// Whether it is part of a batch, which gives its version to its parts.
    pub in_batch: bool,
}

impl Call<'_> {
    /// A header of the request.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.request.headers.get(name)
    }

    /// A parameter of the query.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.request.query.get(name)
    }
}

/// A missing blob.
pub fn blob_not_found() -> Refusal {
    Refusal::new(404, "BlobNotFound", "The specified blob does not exist.")
}

/// A header whose value is not usable.
pub fn invalid_header(name: &str) -> Refusal {
    let message =
        format!("The value for one of the HTTP headers is not in the correct format: {name}");
    Refusal::new(400, "InvalidHeaderValue", message)
}

/// Names the operation and takes container and blob out of the path, which begins with the
/// account as the emulator's does. No judgement yet.
pub fn target(request: &Request) -> Target {
    let path = request.path.strip_prefix('/').unwrap_or(&request.path);
    let (_account, rest) = path.split_once('/').unwrap_or((path, ""));
    let (container, blob) = rest.split_once('/').unwrap_or((rest, ""));
    // A broken escape is refused when the request is served.
    let blob = percent_decode(blob, false).unwrap_or_default();
    let operation = operation(request, !container.is_empty(), !blob.is_empty());
    Target { operation, bucket: container.to_string(), key: blob }
}

fn operation(request: &Request, container: bool, blob: bool) -> &'static str {
    let comp = request.query.get("comp").unwrap_or("");
    let on_container = request.query.get("restype") == Some("container");
    let copies = request.headers.get("x-ms-copy-source").is_some();
    let typed = request.headers.get("x-ms-blob-type").is_some();
    match (request.method.as_str(), comp, container, blob) {
        ("POST", "batch", _, false) => "SubmitBatch",
        ("GET", "list", false, _) => "ListContainers",
        ("GET", "list", true, false) if on_container => "ListBlobs",
        ("PUT", "", true, false) if on_container => "CreateContainer",
        ("GET" | "HEAD", "", true, false) if on_container => "GetContainerProperties",
        ("DELETE", "", true, false) if on_container => "DeleteContainer",
        ("PUT", "block", true, true) if copies => "PutBlockFromURL",
        ("PUT", "block", true, true) => "PutBlock",
        ("PUT", "blocklist", true, true) => "PutBlockList",
        ("GET", "blocklist", true, true) => "GetBlockList",
        ("PUT", "tags", true, true) => "SetBlobTags",
        ("GET", "tags", true, true) => "GetBlobTags",
        ("PUT", "metadata", true, true) => "SetBlobMetadata",
        ("GET" | "HEAD", "metadata", true, true) => "GetBlobMetadata",
        ("PUT", "properties", true, true) => "SetBlobProperties",
        ("PUT", "", true, true) if copies && typed => "PutBlobFromURL",
        ("PUT", "", true, true) if copies => "CopyBlob",
        ("PUT", "", true, true) => "PutBlob",
        ("GET", "", true, true) => "GetBlob",
        ("HEAD", "", true, true) => "GetBlobProperties",
        ("DELETE", "", true, true) => "DeleteBlob",
        _ => "Unknown",
    }
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
    let call = Call { server, request, target, in_batch: false };
    let served = match dispatch(&call, body, empty_page).await {
        Err(Trouble::Broken(error)) => return Err(error),
        Err(Trouble::Refused(refusal)) => {
            let answer = refusal.azure();
            if request.method == "HEAD" { bare(answer) } else { answer }
        }
        Ok(answer) => answer,
    };
    server.vault.flush().await?;
    Ok(finish(&call, served))
}

/// A refusal of HEAD: the service tells neither type nor length of a body that does not come, and
/// Microsoft's C++ SDK parses one wherever a type is told.
fn bare(mut answer: Response) -> Response {
    answer.headers.retain(|(name, _)| name != "Content-Type");
    answer.body = Data::default();
    answer
}

fn finish(call: &Call<'_>, answer: Response) -> Response {
    let answer = answer
        .with("Server", "penstock-fake")
        .with("Date", http_date(auth::now(call.server)))
        .with("x-ms-version", VERSION)
        .with("x-ms-request-id", "00000000-0000-0000-0000-000000000000");
    match call.header("x-ms-client-request-id") {
        Some(id) => answer.with("x-ms-client-request-id", id),
        None => answer,
    }
}

async fn dispatch(call: &Call<'_>, body: &mut BodyReader<'_>, empty_page: bool) -> Served {
    admit(call)?;
    match call.target.operation {
        "GetBlob" | "GetBlobProperties" | "GetBlobMetadata" => blob::get(call).await,
        "PutBlob" => {
            let pieces = receive(call, body).await?;
            blob::put(call, pieces).await
        }
        "PutBlock" => {
            let pieces = receive(call, body).await?;
            block::put(call, pieces).await
        }
        "PutBlockList" => {
            let pieces = receive(call, body).await?;
            block::commit(call, &pieces).await
        }
        "SetBlobTags" => {
            let pieces = receive(call, body).await?;
            tags::set(call, &pieces)
        }
        "SubmitBatch" => {
            let pieces = receive(call, body).await?;
            batch::submit(call, &pieces)
        }
        "ListBlobs" => list::blobs(call, empty_page),
        "PutBlockFromURL" => copy::block(call).await,
        _ => at_once(call),
    }
}

/// What is checked before any operation.
///
/// # Errors
/// The refusal that Azure answers.
pub fn admit(call: &Call<'_>) -> Result<(), Refusal> {
    let Target { operation, bucket, key } = call.target;
    if percent_decode(&call.request.path, false).is_none() {
        return Err(Refusal::new(400, "InvalidUri", "The requested URI is not valid."));
    }
    auth::verify(call)?;
    if key.chars().count() > NAME_CHARS_MAX {
        let message = "The specified resource name length is not within the permissible limits.";
        return Err(Refusal::new(400, "OutOfRangeInput", message));
    }
    container::appear(call, operation, bucket)
}

/// Operations that need no body and no disk; batches use them too.
///
/// # Errors
/// The refusal that Azure answers.
pub fn at_once(call: &Call<'_>) -> Served {
    match call.target.operation {
        "DeleteBlob" => blob::delete(call),
        "SetBlobMetadata" | "SetBlobProperties" => blob::describe_anew(call),
        "GetBlobTags" => tags::get(call),
        "GetBlockList" => block::list(call),
        "PutBlobFromURL" | "CopyBlob" => copy::blob(call),
        "CreateContainer" => container::create(call),
        "GetContainerProperties" => container::properties(call),
        "DeleteContainer" => container::delete(call),
        "ListContainers" => Ok(container::list(call)),
        _ => {
            let message = "The requested operation is not implemented on the specified resource.";
            Err(Refusal::new(501, "NotImplemented", message).into())
        }
    }
}

/// Receives a body and checks the hashes that came along.
async fn receive(call: &Call<'_>, body: &mut BodyReader<'_>) -> Result<Vec<Bytes>, Trouble> {
    let pieces = body.read_all().await?;
    blob::check_digests(call, &pieces)?;
    Ok(pieces)
}

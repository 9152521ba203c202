//! `Put Block`, `Put Block List`, `Get Block List`.

use super::super::clock;
use super::super::codec::http_date;
use super::super::data::Data;
use super::super::digest::unbase64;
use super::super::http::Response;
use super::super::refusal::{Refusal, Served};
use super::super::vault::{Lines, Object, Staged, State, fresh_etag};
use super::super::xml::{Node, Writer, parse};
use super::{Call, blob, blob_not_found, invalid_header, tags};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Longest block id before base64.
const ID_BYTES_MAX: usize = 64;
/// Most blocks of a blob.
const BLOCKS_MAX: usize = 50_000;
/// Largest block.
const BLOCK_BYTES_MAX: u64 = 4000 << 20;

fn invalid_list() -> Refusal {
    Refusal::new(400, "InvalidBlockList", "The specified block list is invalid.")
}

/// The block id of a request.
///
/// # Errors
/// `InvalidQueryParameterValue`.
pub fn id(call: &Call<'_>) -> Result<String, Refusal> {
    let text = call.query("blockid").unwrap_or("");
    match unbase64(text) {
        Some(bytes) if (1..=ID_BYTES_MAX).contains(&bytes.len()) => Ok(text.to_string()),
        _ => {
            let message = "Value for one of the query parameters specified in the request URI is \
                           invalid: blockid";
            Err(Refusal::new(400, "InvalidQueryParameterValue", message))
        }
    }
}

/// Stages a block. Every id of a blob has one length, committed blocks included.
///
/// # Errors
/// `InvalidBlobOrBlock`.
pub fn stage(call: &Call<'_>, id: &str, data: Data) -> Result<(), Refusal> {
    let staged =
        Staged { data, etag: String::new(), modified: clock::now(), checksums: Lines::new() };
    call.server.vault.with(|state| {
        let committed = state.object(&call.target.bucket, &call.target.key);
        let bucket = state.buckets.entry(call.target.bucket.clone()).or_default();
        let blocks = bucket.blocks.entry(call.target.key.clone()).or_default();
        let committed = committed.iter().flat_map(|object| &object.blocks).map(|(id, _)| id);
        if blocks.keys().chain(committed).next().is_some_and(|known| known.len() != id.len()) {
            let message = "The specified blob or block content is invalid.";
            return Err(Refusal::new(400, "InvalidBlobOrBlock", message));
        }
        blocks.insert(id.to_string(), staged);
        Ok(())
    })
}

/// `Put Block`.
///
/// # Errors
/// `InvalidHeaderValue` for an empty block, `RequestBodyTooLarge`, and those of the id.
pub async fn put(call: &Call<'_>, pieces: Vec<Bytes>) -> Served {
    let id = id(call)?;
    let size: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
    if size == 0 {
        return Err(invalid_header("Content-Length").into());
    }
    if size > BLOCK_BYTES_MAX {
        let message = "The request body is too large and exceeds the maximum permissible limit.";
        return Err(Refusal::new(413, "RequestBodyTooLarge", message).into());
    }
    let answer = Response::new(201).with("x-ms-request-server-encrypted", "true");
    let answer = blob::tell_digests(call, &pieces, answer);
    let data = call.server.vault.keep(pieces).await?;
    stage(call, &id, data)?;
    Ok(answer)
}

/// Finds the named blocks among committed and uncommitted ones, and joins them.
fn join(call: &Call<'_>, state: &State, named: &[Node]) -> Option<(Data, Vec<(String, u64)>)> {
    let committed = state.object(&call.target.bucket, &call.target.key);
    let nothing = BTreeMap::new();
    let staged = state.buckets.get(&call.target.bucket)?;
    let staged = staged.blocks.get(&call.target.key).unwrap_or(&nothing);
    let mut positions = BTreeMap::new();
    let mut position = 0;
    for (id, size) in committed.iter().flat_map(|object| &object.blocks) {
        positions.insert(id.as_str(), (position, position + size));
        position += size;
    }
    let old = |id: &str| {
        let (start, end) = positions.get(id)?;
        Some(committed.as_ref()?.data.slice(*start, *end))
    };
    let fresh = |id: &str| staged.get(id).map(|block| block.data.clone());
    let (mut data, mut blocks) = (Data::default(), Vec::new());
    for node in named {
        let id = node.text.trim();
        let block = match node.name.as_str() {
            "Latest" => fresh(id).or_else(|| old(id)),
            "Uncommitted" => fresh(id),
            "Committed" => old(id),
            _ => None,
        }?;
        blocks.push((id.to_string(), block.len()));
        data.extend(&block);
    }
    Some((data, blocks))
}

/// `Put Block List`.
///
/// # Errors
/// `InvalidXmlDocument`, `InvalidBlockList`, `BlockListTooLong`, and those of metadata and
/// conditions.
pub async fn commit(call: &Call<'_>, pieces: &[Bytes]) -> Served {
    let text = String::from_utf8_lossy(&pieces.concat()).into_owned();
    let document = parse(&text).filter(|node| node.name == "BlockList").ok_or_else(|| {
        Refusal::new(400, "InvalidXmlDocument", "XML specified is not syntactically valid.")
    })?;
    if document.children.len() > BLOCKS_MAX {
        let message = "The block list may not contain more than 50,000 blocks.";
        return Err(Refusal::new(400, "BlockListTooLong", message).into());
    }
    let metadata = blob::metadata(call.request)?;
    let mut headers = blob::kept_headers(call.request);
    // `Content-Type` is that of the list; the blob's own has the prefix.
    if call.header("x-ms-blob-content-type").is_none() {
        headers.retain(|(name, _)| name != "content-type");
    }
    headers.extend(blob::tier(call.request)?);
    let (data, blocks) = call
        .server
        .vault
        .with(|state| join(call, state, &document.children))
        .ok_or_else(invalid_list)?;
    let object = Object {
        data,
        etag: fresh_etag(call.server),
        modified: clock::now(),
        headers,
        metadata,
        checksums: Lines::new(),
        tags: tags::of_header(call)?,
        blocks,
    };
    let answer = blob::place(call, object)?;
    Ok(blob::tell_digests(call, pieces, answer))
}

/// `Get Block List`.
///
/// # Errors
/// `BlobNotFound` where there is neither a blob nor a block.
pub fn list(call: &Call<'_>) -> Served {
    let kind = call.query("blocklisttype").unwrap_or("committed");
    let (object, staged) = call.server.vault.with(|state| {
        let object = state.object(&call.target.bucket, &call.target.key);
        let bucket = state.buckets.get(&call.target.bucket);
        let staged = bucket.and_then(|bucket| bucket.blocks.get(&call.target.key)).cloned();
        (object, staged)
    });
    if object.is_none() && staged.is_none() {
        return Err(blob_not_found().into());
    }
    let mut xml = Writer::default();
    xml.open("BlockList", "");
    let write = |xml: &mut Writer, id: &str, size: u64| {
        xml.open("Block", "").text("Name", id).text("Size", size.to_string()).close("Block");
    };
    if matches!(kind, "committed" | "all") {
        xml.open("CommittedBlocks", "");
        for (id, size) in object.iter().flat_map(|object| &object.blocks) {
            write(&mut xml, id, *size);
        }
        xml.close("CommittedBlocks");
    }
    if matches!(kind, "uncommitted" | "all") {
        xml.open("UncommittedBlocks", "");
        for (id, block) in staged.iter().flatten() {
            write(&mut xml, id, block.data.len());
        }
        xml.close("UncommittedBlocks");
    }
    xml.close("BlockList");
    let mut answer = Response::text(200, "application/xml", xml.finish());
    if let Some(object) = object {
        answer = answer
            .with("ETag", format!("\"{}\"", object.etag))
            .with("Last-Modified", http_date(object.modified))
            .with("x-ms-blob-content-length", object.data.len().to_string());
    }
    Ok(answer)
}

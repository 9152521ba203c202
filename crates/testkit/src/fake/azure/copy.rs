//! The From-URL family: `Copy Blob`, `Put Blob From URL`, `Put Block From URL`.

use super::super::clock;
use super::super::codec::percent_decode;
use super::super::conditions::{Verdict, judge};
use super::super::digest::{base64, crc64};
use super::super::exchange::Target;
use super::super::http::{Query, Response};
use super::super::range::{Resolved, resolve};
use super::super::refusal::{Refusal, Served};
use super::super::vault::{Object, fresh_etag};
use super::{Call, auth, blob, block, invalid_header, sas, tags, versions};
use std::sync::Arc;

/// Largest source of a synchronous `Copy Blob From URL`.
const SYNC_COPY_BYTES_MAX: u64 = 256 << 20;
/// Largest source of `Put Blob From URL`.
const PUT_FROM_URL_BYTES_MAX: u64 = 5000 << 20;

fn cannot_verify(status: u16, why: &str) -> Refusal {
    let message = format!("Could not verify the copy source within the specified time. {why}");
    Refusal::new(status, "CannotVerifyCopySource", message)
}

/// The blob that `x-ms-copy-source` names. The URL must carry its own right to be read: a SAS, a
/// bearer token beside it, or (for the asynchronous `Copy Blob`) this very account.
fn source(call: &Call<'_>, needs_right: bool) -> Result<Arc<Object>, Refusal> {
    let url = call.header("x-ms-copy-source").unwrap_or("");
    let rest = url.strip_prefix("http://").ok_or_else(|| invalid_header("x-ms-copy-source"))?;
    let (_host, path) = rest.split_once('/').ok_or_else(|| invalid_header("x-ms-copy-source"))?;
    let (path, raw_query) = path.split_once('?').unwrap_or((path, ""));
    let query = Query::parse(raw_query).ok_or_else(|| invalid_header("x-ms-copy-source"))?;
    let mut parts = path.splitn(3, '/');
    let (Some(account), Some(container), Some(name)) = (parts.next(), parts.next(), parts.next())
    else {
        return Err(invalid_header("x-ms-copy-source"));
    };
    let key = percent_decode(name, false).ok_or_else(|| invalid_header("x-ms-copy-source"))?;
    let target = Target { operation: "GetBlob", bucket: container.to_string(), key };
    if account != call.server.options.account {
        return Err(cannot_verify(404, "The specified resource does not exist."));
    }
    if query.has("sig") {
        sas::verify(call.server, &query, &target)
            .map_err(|refusal| cannot_verify(403, &refusal.message))?;
    } else if let Some(header) = call.header("x-ms-copy-source-authorization") {
        auth::bearer(call.server, header.strip_prefix("Bearer ").unwrap_or(""))
            .map_err(|refusal| cannot_verify(401, &refusal.message))?;
    } else if needs_right && !call.server.options.anonymous {
        return Err(cannot_verify(401, "Public access is not permitted on this storage account."));
    }
    let named = query.get("versionid");
    let found = call.server.vault.with(|state| versions::find(call, state, &target, named));
    let (object, _) = found.map_err(|refusal| cannot_verify(refusal.status, &refusal.message))?;
    if judge(&call.request.headers, "x-ms-source-", Some(&object)) != Verdict::Proceed {
        let message = "The source condition specified using HTTP conditional header(s) is not met.";
        return Err(Refusal::new(412, "SourceConditionNotMet", message));
    }
    Ok(object)
}

/// `Copy Blob` (asynchronous in name, done at once), `Copy Blob From URL`, `Put Blob From URL`.
///
/// # Errors
/// `CannotVerifyCopySource`, `SourceConditionNotMet`, and those of metadata and conditions.
pub fn blob(call: &Call<'_>) -> Served {
    let sync = call.header("x-ms-requires-sync") == Some("true");
    let put = call.target.operation == "PutBlobFromURL";
    let object = source(call, sync || put)?;
    let size_max = if put { PUT_FROM_URL_BYTES_MAX } else { SYNC_COPY_BYTES_MAX };
    if (sync || put) && object.data.len() > size_max {
        let message = "The source request body for copy is too large.";
        return Err(Refusal::new(409, "CopySourceTooLarge", message).into());
    }
    let mut copy = (*object).clone();
    copy.etag = fresh_etag(call.server);
    copy.modified = clock::now();
    let metadata = blob::metadata(call.request)?;
    if put {
        // A put describes the blob anew, unless it asks for the source's properties.
        if call.header("x-ms-copy-source-blob-properties") == Some("false") {
            copy.headers = blob::kept_headers(call.request);
        }
        for (name, value) in blob::kept_headers(call.request) {
            copy.headers.retain(|(known, _)| *known != name);
            copy.headers.push((name, value));
        }
        copy.metadata = metadata;
        copy.blocks = Vec::new();
    } else if !metadata.is_empty() {
        copy.metadata = metadata;
    }
    // A copy is in the tier that it is given, whatever its source is in.
    copy.headers.retain(|(name, _)| name != blob::TIER);
    copy.headers.extend(blob::tier(call.request)?);
    if call.header("x-ms-copy-source-tag-option") != Some("COPY") {
        copy.tags = tags::of_header(call)?;
    }
    let mut answer = blob::place(call, copy)?;
    if !put {
        answer.status = 202;
        answer = answer
            .with("x-ms-copy-id", "00000000-0000-0000-0000-000000000001")
            .with("x-ms-copy-status", "success");
    }
    Ok(answer)
}

/// `Put Block From URL`.
///
/// # Errors
/// `CannotVerifyCopySource`, `InvalidRange`, and those of the block.
pub async fn block(call: &Call<'_>) -> Served {
    let id = block::id(call)?;
    let object = source(call, true)?;
    let size = object.data.len();
    let data = match resolve(call.header("x-ms-source-range"), size) {
        Resolved::Whole => object.data.clone(),
        Resolved::Part(range) => object.data.slice(range.start, range.end),
        Resolved::Unsatisfiable => {
            let message = "The range specified is invalid for the current size of the resource.";
            return Err(Refusal::new(416, "InvalidRange", message).into());
        }
    };
    if data.is_empty() {
        return Err(invalid_header("x-ms-source-range").into());
    }
    let crc = base64(&crc64(&data.load().await?).to_le_bytes());
    block::stage(call, &id, data)?;
    let answer = Response::new(201).with("x-ms-content-crc64", crc);
    Ok(answer.with("x-ms-request-server-encrypted", "true"))
}

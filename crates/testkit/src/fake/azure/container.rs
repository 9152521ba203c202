//! Containers: they appear on first use, and can be made, listed and removed.

use super::super::codec::http_date;
use super::super::http::Response;
use super::super::refusal::{Refusal, Served};
use super::super::vault::{Bucket, fresh_etag};
use super::super::xml::Writer;
use super::{Call, MISSING, versions};

fn not_found() -> Refusal {
    Refusal::new(404, "ContainerNotFound", "The specified container does not exist.")
}

fn valid(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let plain = (3..=63).contains(&name.len())
        && name.bytes().all(allowed)
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--");
    plain || matches!(name, "$root" | "$web")
}

fn invalid() -> Refusal {
    Refusal::new(
        400,
        "InvalidResourceName",
        "The specified resource name contains invalid characters.",
    )
}

/// Makes the container of a request, unless it is one that must be missing.
///
/// # Errors
/// `InvalidResourceName` or `ContainerNotFound`.
pub fn appear(call: &Call<'_>, operation: &str, name: &str) -> Result<(), Refusal> {
    if name.is_empty() || matches!(operation, "CreateContainer" | "DeleteContainer") {
        return Ok(());
    }
    if !valid(name) {
        return Err(invalid());
    }
    call.server.vault.with(|state| {
        if !state.buckets.contains_key(name) {
            if name.starts_with(MISSING) {
                return Err(not_found());
            }
            state.buckets.insert(name.to_string(), versions::kept(call, Bucket::default()));
        }
        Ok(())
    })
}

/// `Create Container`.
///
/// # Errors
/// `InvalidResourceName`, `ContainerAlreadyExists`.
pub fn create(call: &Call<'_>) -> Served {
    let name = &call.target.bucket;
    if !valid(name) {
        return Err(invalid().into());
    }
    let bucket =
        Bucket { metadata: call.request.headers.with_prefix("x-ms-meta-"), ..Bucket::default() };
    let created = bucket.created;
    call.server.vault.with(|state| -> Result<(), Refusal> {
        if state.buckets.contains_key(name) {
            let message = "The specified container already exists.";
            return Err(Refusal::new(409, "ContainerAlreadyExists", message));
        }
        state.buckets.insert(name.clone(), versions::kept(call, bucket));
        Ok(())
    })?;
    Ok(Response::new(201)
        .with("ETag", format!("\"{}\"", fresh_etag(call.server)))
        .with("Last-Modified", http_date(created)))
}

/// `Get Container Properties`.
///
/// # Errors
/// `ContainerNotFound`.
pub fn properties(call: &Call<'_>) -> Served {
    let bucket = call.server.vault.with(|state| {
        let bucket = state.buckets.get(&call.target.bucket);
        bucket.map(|bucket| (bucket.created, bucket.metadata.clone()))
    });
    let (created, metadata) = bucket.ok_or_else(not_found)?;
    let mut answer = Response::new(200)
        .with("ETag", "\"0x8D0000000000000\"")
        .with("Last-Modified", http_date(created))
        .with("x-ms-lease-state", "available")
        .with("x-ms-lease-status", "unlocked")
        // Azure's SDK for C++ (ClickHouse's disk) takes no answer without these two.
        .with("x-ms-has-immutability-policy", "false")
        .with("x-ms-has-legal-hold", "false");
    for (name, value) in metadata {
        answer = answer.with(format!("x-ms-meta-{name}"), value);
    }
    Ok(answer)
}

/// `Delete Container`.
///
/// # Errors
/// `ContainerNotFound`.
pub fn delete(call: &Call<'_>) -> Served {
    let name = &call.target.bucket;
    call.server.vault.with(|state| {
        let keys: Vec<String> = match state.buckets.get(name) {
            Some(bucket) => bucket.objects.keys().cloned().collect(),
            None => return Err(not_found().into()),
        };
        for key in keys {
            state.remove(name, &key);
        }
        state.buckets.remove(name);
        Ok(Response::new(202))
    })
}

/// `List Containers`: all of them on one page.
pub fn list(call: &Call<'_>) -> Response {
    let prefix = call.query("prefix").unwrap_or("");
    let mut xml = Writer::default();
    xml.open("EnumerationResults", "").text("Prefix", prefix).open("Containers", "");
    call.server.vault.with(|state| {
        for (name, bucket) in state.buckets.iter().filter(|(name, _)| name.starts_with(prefix)) {
            xml.open("Container", "").text("Name", name).open("Properties", "");
            xml.text("Last-Modified", http_date(bucket.created));
            xml.text("Etag", "\"0x8D0000000000000\"");
            xml.close("Properties").close("Container");
        }
    });
    xml.close("Containers").text("NextMarker", "").close("EnumerationResults");
    Response::text(200, "application/xml", xml.finish())
}

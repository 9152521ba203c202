//! Shared access signatures: of a service (container or blob) and of an account.

use super::super::codec::parse_iso_date;
use super::super::digest::{base64, hmac, unbase64};
use super::super::exchange::Target;
use super::super::http::Query;
use super::super::refusal::Refusal;
use super::super::server::Server;
use super::auth::{failed, now};

/// From this version on an encryption scope is part of the string to sign.
const WITH_SCOPE: &str = "2020-12-06";
/// From this version on the resource type and the snapshot are.
const WITH_RESOURCE: &str = "2018-11-09";

fn forbidden(code: &'static str) -> Refusal {
    let message = "This request is not authorized to perform this operation using this permission.";
    Refusal::new(403, code, message)
}

/// Verifies the signature in a query for a target.
///
/// # Errors
/// `AuthenticationFailed`, `AuthorizationPermissionMismatch`.
pub fn verify(server: &Server, query: &Query, target: &Target) -> Result<(), Refusal> {
    let field = |name| query.text(name);
    let of_account = query.has("ss");
    let text = match of_account {
        true => account_string(server, query),
        false => service_string(server, query, target)?,
    };
    let key = unbase64(&server.options.key).unwrap_or_default();
    if base64(&hmac(&key, text.as_bytes())) != field("sig") {
        return Err(failed(&format!("Signature did not match. String to sign used was {text:?}")));
    }
    let now = now(server);
    let begins = parse_iso_date(field("st"));
    let ends = parse_iso_date(field("se")).ok_or_else(|| failed("se is mandatory"))?;
    if now > ends || begins.is_some_and(|begins| now < begins) {
        return Err(failed("Signature not valid in the specified time frame"));
    }
    if of_account {
        check_account_scope(field("ss"), field("srt"), target)?;
    }
    let wanted = permission(target.operation);
    if wanted.is_empty() || field("sp").contains(|letter| wanted.contains(letter)) {
        return Ok(());
    }
    Err(forbidden("AuthorizationPermissionMismatch"))
}

/// Any of these letters permits the operation.
fn permission(operation: &str) -> &'static str {
    match operation {
        "GetBlob" | "GetBlobProperties" | "GetBlobMetadata" | "GetBlockList" => "r",
        "ListBlobs" | "ListContainers" | "GetContainerProperties" => "l",
        "DeleteBlob" | "DeleteContainer" => "d",
        "SubmitBatch" => "",
        "PutBlob" | "CopyBlob" | "PutBlobFromURL" | "CreateContainer" => "cw",
        _ => "w",
    }
}

fn check_account_scope(services: &str, types: &str, target: &Target) -> Result<(), Refusal> {
    let level = match (target.bucket.is_empty(), target.key.is_empty()) {
        (true, _) => 's',
        (false, true) => 'c',
        (false, false) => 'o',
    };
    if !services.contains('b') {
        return Err(forbidden("AuthorizationServiceMismatch"));
    }
    if !types.contains(level) {
        return Err(forbidden("AuthorizationResourceTypeMismatch"));
    }
    Ok(())
}

fn account_string(server: &Server, query: &Query) -> String {
    let field = |name| query.text(name);
    let mut lines = vec![server.options.account.as_str()];
    for name in ["sp", "ss", "srt", "st", "se", "sip", "spr", "sv"] {
        lines.push(field(name));
    }
    if field("sv") >= WITH_SCOPE {
        lines.push(field("ses"));
    }
    lines.join("\n") + "\n"
}

fn service_string(server: &Server, query: &Query, target: &Target) -> Result<String, Refusal> {
    let field = |name| query.text(name);
    let account = &server.options.account;
    let container = &target.bucket;
    let resource = match field("sr") {
        "c" => format!("/blob/{account}/{container}"),
        "b" | "bv" => format!("/blob/{account}/{container}/{}", target.key),
        _ => return Err(failed("sr must be b, bv or c")),
    };
    // A blob's signature is for the current version, that of a version for no other.
    let named = field("versionid");
    if field("sr") != "c" && named.is_empty() != (field("sr") == "b") {
        return Err(failed("versionid does not go with sr"));
    }
    let mut lines: Vec<&str> = ["sp", "st", "se"].into_iter().map(field).collect();
    lines.push(&resource);
    lines.extend(["si", "sip", "spr", "sv"].into_iter().map(field));
    if field("sv") >= WITH_RESOURCE {
        let time = if field("sr") == "bv" { named } else { field("snapshot") };
        lines.extend([field("sr"), time]);
    }
    if field("sv") >= WITH_SCOPE {
        lines.push(field("ses"));
    }
    lines.extend(["rscc", "rscd", "rsce", "rscl", "rsct"].into_iter().map(field));
    Ok(lines.join("\n"))
}

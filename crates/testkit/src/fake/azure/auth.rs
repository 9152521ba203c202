//! Shared key and bearer tokens, verified from the service's documentation.

use super::super::clock;
use super::super::codec::{apart, parse_http_date};
use super::super::digest::{base64, hmac, unbase64};
use super::super::http::Request;
use super::super::refusal::Refusal;
use super::super::server::Server;
use super::{Call, sas};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// How far the clocks may be apart.
const SKEW_MAX: Duration = Duration::from_secs(15 * 60);

/// Headers of the string to sign, in its order, before `x-ms-*` and the resource.
const SIGNED: &[&str] = &[
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
];

/// A refusal of credentials.
pub fn failed(why: &str) -> Refusal {
    let message = format!(
        "Server failed to authenticate the request. Make sure the value of Authorization header \
         is formed correctly including the signature. {why}"
    );
    Refusal::new(403, "AuthenticationFailed", message)
}

/// The server's time.
pub fn now(server: &Server) -> SystemTime {
    clock::now_ahead(server.options.clock_offset_s)
}

/// Verifies who asks.
///
/// # Errors
/// The refusal that Azure answers.
pub fn verify(call: &Call<'_>) -> Result<(), Refusal> {
    match call.header("authorization") {
        Some(header) => {
            if let Some(token) = header.strip_prefix("Bearer ") {
                return bearer(call.server, token);
            }
            let claim = header.strip_prefix("SharedKey ").ok_or_else(|| {
                Refusal::new(
                    400,
                    "InvalidAuthenticationInfo",
                    "Authentication scheme is not supported",
                )
            })?;
            shared_key(call, claim)
        }
        None if call.request.query.has("sig") => {
            sas::verify(call.server, &call.request.query, call.target)
        }
        None if call.server.options.anonymous => Ok(()),
        None => Err(Refusal::new(
            401,
            "NoAuthenticationInformation",
            "Server failed to authenticate the request. Please refer to the information in the \
             www-authenticate header.",
        )
        .with("WWW-Authenticate", "Bearer authorization_uri=https://login.example/ resource_id=x")),
    }
}

/// Verifies a bearer token.
///
/// # Errors
/// `InvalidAuthenticationInfo`.
pub fn bearer(server: &Server, token: &str) -> Result<(), Refusal> {
    if server.options.bearer_token.as_deref() == Some(token) {
        return Ok(());
    }
    Err(Refusal::new(401, "InvalidAuthenticationInfo", "Issuer or signature validation failed."))
}

fn shared_key(call: &Call<'_>, claim: &str) -> Result<(), Refusal> {
    let options = &call.server.options;
    let (account, signature) = claim.split_once(':').ok_or_else(|| failed("no signature"))?;
    if account != options.account {
        return Err(failed("unknown account"));
    }
    if call.header("x-ms-version").is_none() && !call.in_batch {
        return Err(failed("x-ms-version is missing"));
    }
    let date = call.header("x-ms-date").or(call.header("date")).and_then(parse_http_date);
    let date = date.ok_or_else(|| failed("The Date header is missing or not a date."))?;
    if apart(now(call.server), date) > SKEW_MAX {
        return Err(failed("Request date header too old or too new."));
    }
    let key = unbase64(&options.key).unwrap_or_default();
    let to_sign = string_to_sign(call.request, account);
    if base64(&hmac(&key, to_sign.as_bytes())) != signature {
        return Err(failed(&format!("The server signed {to_sign:?}.")));
    }
    Ok(())
}

/// The string that a shared key signs (version 2015-02-21 and later).
pub fn string_to_sign(request: &Request, account: &str) -> String {
    let mut text = request.method.clone();
    for name in SIGNED {
        let value = request.headers.get(name).unwrap_or("");
        let value = match *name {
            "content-length" if value == "0" => "",
            "date" if request.headers.get("x-ms-date").is_some() => "",
            _ => value,
        };
        text.push('\n');
        text.push_str(value);
    }
    text.push('\n');
    let mut headers: Vec<&(String, String)> =
        request.headers.0.iter().filter(|(name, _)| name.starts_with("x-ms-")).collect();
    headers.sort();
    for (name, value) in headers {
        text.push_str(&format!("{name}:{value}\n"));
    }
    text.push_str(&format!("/{account}{}", request.path));
    let mut parameters: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, value) in &request.query.pairs {
        parameters.entry(name.to_ascii_lowercase()).or_default().push(value);
    }
    for (name, mut values) in parameters {
        values.sort_unstable();
        text.push_str(&format!("\n{name}:{}", values.join(",")));
    }
    text
}

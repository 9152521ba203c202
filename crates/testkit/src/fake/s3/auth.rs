//! Signature Version 4, verified from the specification and not from any client's code.

use super::super::clock;
use super::super::codec::{apart, hex, parse_amz_date, parse_http_date, percent_encode};
use super::super::digest::{hmac, sha256};
use super::super::http::Request;
use super::super::refusal::Refusal;
use super::Call;
use bytes::Bytes;
use std::time::Duration;

/// How far the clocks may be apart.
const SKEW_MAX: Duration = Duration::from_secs(15 * 60);
/// Longest life of a presigned URL.
const EXPIRES_S_MAX: u64 = 7 * 24 * 3600;

/// How the body is protected by the signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PayloadRule {
    /// Not at all.
    Unsigned,
    /// By its SHA-256 in hexadecimal.
    Sha256(String),
    /// In chunks, each signed after the one before; perhaps with a trailer.
    SignedChunks {
        /// Whether a trailer follows.
        trailer: bool,
    },
    /// In chunks without signatures, with a trailer.
    UnsignedChunks,
}

/// A verified signature: what the signatures of chunks build on.
#[derive(Clone, Debug)]
pub struct Signature {
    /// How the body is protected.
    pub rule: PayloadRule,
    /// Signing key of the day.
    pub key: Vec<u8>,
    /// Time of the signature, as sent.
    pub date: String,
    /// `date/region/service/aws4_request`.
    pub scope: String,
    /// Signature of the head: the seed of the chunks' chain.
    pub seed: String,
}

struct Claim {
    access_key: String,
    scope: String,
    signed_headers: Vec<String>,
    signature: String,
    date: String,
    payload: String,
    presigned: bool,
}

fn denied(message: impl Into<String>) -> Refusal {
    Refusal::new(403, "AccessDenied", message)
}

/// Verifies the signature of a request.
///
/// # Errors
/// The refusal that S3 answers.
pub fn verify(call: &Call<'_>) -> Result<Signature, Refusal> {
    let options = &call.server.options;
    if let Some(token) = bearer(call) {
        return match options.bearer_token.as_deref() == Some(token) {
            true => unsigned(call.request),
            false => Err(Refusal::new(401, "AuthenticationRequired", "Authentication required.")),
        };
    }
    let Some(claim) = claim(call.request)? else {
        if options.anonymous {
            return unsigned(call.request);
        }
        return Err(denied("Access Denied"));
    };
    if claim.access_key != options.account {
        return Err(Refusal::new(
            403,
            "InvalidAccessKeyId",
            "The AWS Access Key Id you provided does not exist in our records.",
        ));
    }
    check_time(call, &claim)?;
    check_token(call)?;
    let scope: Vec<&str> = claim.scope.split('/').collect();
    let [day, region, service, "aws4_request"] = scope[..] else {
        return Err(malformed("the credential scope has not four parts"));
    };
    if service != "s3" || !claim.date.starts_with(day) || region.is_empty() {
        return Err(malformed("the credential scope is for another day, region or service"));
    }
    check_headers(call.request, &claim)?;
    let canonical = canonical_request(call.request, &claim)?;
    let to_sign = format!(
        "AWS4-HMAC-SHA256\n{}\n{}\n{}",
        claim.date,
        claim.scope,
        hex(&sha256(&[Bytes::from(canonical.clone())]))
    );
    let key = signing_key(&options.key, day, region, service);
    if hex(&hmac(&key, to_sign.as_bytes())) != claim.signature {
        return Err(Refusal::new(
            403,
            "SignatureDoesNotMatch",
            format!(
                "The request signature we calculated does not match the signature you provided. \
                 CanonicalRequest: {canonical:?}"
            ),
        ));
    }
    let rule = payload_rule(&claim.payload)?;
    Ok(Signature { rule, key, date: claim.date, scope: claim.scope, seed: claim.signature })
}

/// A token, which Google takes in place of a signature.
fn bearer<'a>(call: &Call<'a>) -> Option<&'a str> {
    let header = call.request.headers.get("authorization");
    header.filter(|_| call.server.options.google)?.strip_prefix("Bearer ")
}

fn unsigned(request: &Request) -> Result<Signature, Refusal> {
    let payload = request.headers.get("x-amz-content-sha256").unwrap_or("UNSIGNED-PAYLOAD");
    let rule = payload_rule(payload)?;
    if matches!(rule, PayloadRule::SignedChunks { .. }) {
        return Err(denied("signed chunks need a signed request"));
    }
    let none = String::new;
    Ok(Signature { rule, key: Vec::new(), date: none(), scope: none(), seed: none() })
}

fn malformed(message: &str) -> Refusal {
    Refusal::new(400, "AuthorizationHeaderMalformed", message)
}

fn payload_rule(text: &str) -> Result<PayloadRule, Refusal> {
    match text {
        "UNSIGNED-PAYLOAD" => Ok(PayloadRule::Unsigned),
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" => Ok(PayloadRule::SignedChunks { trailer: false }),
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => {
            Ok(PayloadRule::SignedChunks { trailer: true })
        }
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => Ok(PayloadRule::UnsignedChunks),
        hash if hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            Ok(PayloadRule::Sha256(hash.to_ascii_lowercase()))
        }
        _ => Err(Refusal::new(
            400,
            "InvalidRequest",
            "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-... or a valid sha256 value.",
        )),
    }
}

/// What the request says of its own signature; `None` when it has none.
fn claim(request: &Request) -> Result<Option<Claim>, Refusal> {
    if let Some(header) = request.headers.get("authorization") {
        return header_claim(request, header).map(Some);
    }
    if request.query.has("X-Amz-Signature") {
        return query_claim(request).map(Some);
    }
    if request.query.has("Signature") {
        return Err(Refusal::new(400, "InvalidRequest", "Please use AWS4-HMAC-SHA256."));
    }
    Ok(None)
}

fn header_claim(request: &Request, header: &str) -> Result<Claim, Refusal> {
    let fields = header.strip_prefix("AWS4-HMAC-SHA256").ok_or_else(|| {
        Refusal::new(
            400,
            "InvalidRequest",
            "The authorization mechanism you have provided is not supported. \
             Please use AWS4-HMAC-SHA256.",
        )
    })?;
    let field = |name: &str| {
        fields
            .split(',')
            .find_map(|field| field.trim().strip_prefix(name)?.strip_prefix('='))
            .ok_or_else(|| malformed(&format!("{name} is missing")))
    };
    let (access_key, scope) = field("Credential")?
        .split_once('/')
        .ok_or_else(|| malformed("the credential has no scope"))?;
    let date = match (request.headers.get("x-amz-date"), request.headers.get("date")) {
        (Some(date), _) => date.to_string(),
        (None, Some(date)) => amz_date(date)?,
        (None, None) => return Err(denied("AWS authentication requires a valid Date")),
    };
    let payload = request.headers.get("x-amz-content-sha256").ok_or_else(|| {
        Refusal::new(
            400,
            "InvalidRequest",
            "Missing required header for this request: x-amz-content-sha256",
        )
    })?;
    Ok(Claim {
        access_key: access_key.to_string(),
        scope: scope.to_string(),
        signed_headers: field("SignedHeaders")?.split(';').map(str::to_string).collect(),
        signature: field("Signature")?.to_string(),
        date,
        payload: payload.to_string(),
        presigned: false,
    })
}

fn amz_date(http_date: &str) -> Result<String, Refusal> {
    let time = parse_http_date(http_date)
        .ok_or_else(|| denied("AWS authentication requires a valid Date"))?;
    let iso = super::super::codec::iso_date(time);
    Ok(iso.replace(".000", "").replace(['-', ':'], ""))
}

fn query_claim(request: &Request) -> Result<Claim, Refusal> {
    let field = |name: &str| {
        request.query.get(name).ok_or_else(|| {
            Refusal::new(
                400,
                "AuthorizationQueryParametersError",
                format!("Query-string authentication requires the {name} parameter"),
            )
        })
    };
    if field("X-Amz-Algorithm")? != "AWS4-HMAC-SHA256" {
        return Err(Refusal::new(
            400,
            "AuthorizationQueryParametersError",
            "X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"",
        ));
    }
    let (access_key, scope) = field("X-Amz-Credential")?
        .split_once('/')
        .ok_or_else(|| malformed("the credential has no scope"))?;
    let payload = request.headers.get("x-amz-content-sha256").unwrap_or("UNSIGNED-PAYLOAD");
    Ok(Claim {
        access_key: access_key.to_string(),
        scope: scope.to_string(),
        signed_headers: field("X-Amz-SignedHeaders")?.split(';').map(str::to_string).collect(),
        signature: field("X-Amz-Signature")?.to_string(),
        date: field("X-Amz-Date")?.to_string(),
        payload: payload.to_string(),
        presigned: true,
    })
}

fn check_time(call: &Call<'_>, claim: &Claim) -> Result<(), Refusal> {
    let signed = parse_amz_date(&claim.date)
        .ok_or_else(|| denied("AWS authentication requires a valid Date or x-amz-date header"))?;
    let now = clock::now_ahead(call.server.options.clock_offset_s);
    if !claim.presigned {
        let skewed = || {
            Refusal::new(
                403,
                "RequestTimeTooSkewed",
                "The difference between the request time and the current time is too large.",
            )
        };
        return if apart(now, signed) > SKEW_MAX { Err(skewed()) } else { Ok(()) };
    }
    let expires = call.request.query.get("X-Amz-Expires").and_then(|text| text.parse().ok());
    match expires {
        Some(seconds @ 1..=EXPIRES_S_MAX) => {
            if now > signed + Duration::from_secs(seconds) || signed > now + SKEW_MAX {
                return Err(denied("Request has expired"));
            }
            Ok(())
        }
        _ => Err(Refusal::new(
            400,
            "AuthorizationQueryParametersError",
            "X-Amz-Expires must be between 1 and 604800 seconds",
        )),
    }
}

fn check_token(call: &Call<'_>) -> Result<(), Refusal> {
    let Some(wanted) = call.server.options.session_token.as_deref() else { return Ok(()) };
    let header = call.request.headers.get("x-amz-security-token");
    match header.or(call.request.query.get("X-Amz-Security-Token")) {
        Some(token) if token == wanted => Ok(()),
        Some(_) => Err(Refusal::new(400, "ExpiredToken", "The provided token has expired.")),
        None => Err(denied("a session token is required")),
    }
}

/// The host and every `x-amz-` header must be signed.
fn check_headers(request: &Request, claim: &Claim) -> Result<(), Refusal> {
    let signed = |name: &str| claim.signed_headers.iter().any(|signed| signed == name);
    let mut sent = request.headers.0.iter().map(|(name, _)| name.as_str());
    let unsigned = sent.find(|name| name.starts_with("x-amz-") && !signed(name));
    match unsigned.or(if signed("host") { None } else { Some("host") }) {
        Some(name) => Err(denied(format!(
            "There were headers present in the request which were not signed: {name}"
        ))),
        None => Ok(()),
    }
}

fn canonical_request(request: &Request, claim: &Claim) -> Result<String, Refusal> {
    let path = super::super::codec::percent_decode(&request.path, false).unwrap_or_default();
    let mut pairs: Vec<(String, String)> = request
        .query
        .pairs
        .iter()
        .filter(|(name, _)| name != "X-Amz-Signature")
        .map(|(name, value)| (percent_encode(name, b""), percent_encode(value, b"")))
        .collect();
    pairs.sort();
    let query: Vec<String> =
        pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut headers = String::new();
    for name in &claim.signed_headers {
        let values: Vec<String> = request
            .headers
            .0
            .iter()
            .filter(|(known, _)| known == name)
            .map(|(_, value)| value.split_ascii_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        if values.is_empty() {
            return Err(denied(format!("the signed header {name} was not sent")));
        }
        headers.push_str(&format!("{name}:{}\n", values.join(",")));
    }
    let payload = &claim.payload;
    Ok(format!(
        "{}\n{}\n{}\n{headers}\n{}\n{payload}",
        request.method,
        percent_encode(&path, b"/"),
        query.join("&"),
        claim.signed_headers.join(";")
    ))
}

/// The key that signs for one day, region and service.
pub fn signing_key(secret: &str, day: &str, region: &str, service: &str) -> Vec<u8> {
    let mut key = hmac(format!("AWS4{secret}").as_bytes(), day.as_bytes());
    for text in [region, service, "aws4_request"] {
        key = hmac(&key, text.as_bytes());
    }
    key
}

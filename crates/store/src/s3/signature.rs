//! Signature Version 4, in headers: what is signed of a request, by which key.
//!
//! The signing crates find and renew credentials, and theirs is the signature that the tests
//! compare with. This one is ours because each request pays for it: it derives the key once a day
//! and writes what is signed once, for a fifth of the processor time.
//!
//! Source: "Authenticating Requests: Using the Authorization Header (AWS Signature Version 4)",
//! Amazon S3 API Reference; RFC 3986, section 2.3 (unreserved characters).

use ::http::header::{AUTHORIZATION, HOST};
use ::http::request::Parts;
use ::http::{HeaderMap, HeaderName, HeaderValue};
use penstock_base::Secret;
use reqsign_aws_v4::Credential;
use reqsign_core::time::Timestamp;
use reqsign_core::{Context, Error, Result, SignRequest, SigningCredential};
use ring::{digest, hmac};
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const SERVICE: &str = "s3";
const CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const SESSION_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
/// The one for sessions of S3 Express ("Regional and Zonal endpoint API operations").
const EXPRESS_TOKEN: HeaderName = HeaderName::from_static("x-amz-s3session-token");
const UNSIGNED_PAYLOAD: &str = "UNSIGNED-PAYLOAD";
/// Credentials that end sooner would end while the request is under way.
const HEADROOM: Duration = Duration::from_secs(10);
/// Such as 20261125T150000Z, of which the first eight are the day.
const MOMENT_BYTES: usize = 16;
const DAY_BYTES: usize = 8;

/// Signs requests for one region.
pub(crate) struct Signature {
    region: String,
    key: Mutex<Option<Derived>>,
}

/// The key of a day.
struct Derived {
    day: [u8; DAY_BYTES],
    secret: Secret,
    key: hmac::Key,
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signature").field("region", &self.region).finish_non_exhaustive()
    }
}

impl Signature {
    pub(crate) fn new(region: &str) -> Self {
        Signature { region: region.to_string(), key: Mutex::new(None) }
    }

    fn sign(&self, request: &mut Parts, credential: &Credential, now: Timestamp) -> Result<()> {
        let moment = moment(now)?;
        complete(request, credential, &moment)?;
        let mut names: Vec<&str> = request.headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        let canonical = canonical_request(request, &names)?;
        let mut text = String::with_capacity(160);
        text.extend([ALGORITHM, "\n", &moment, "\n"]);
        let scope_at = text.len();
        text.extend([&moment[..DAY_BYTES], "/", &self.region, "/", SERVICE, "/aws4_request"]);
        let scope_end = text.len();
        text.push('\n');
        push_hex(&mut text, digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
        let key = self.key(&moment, &credential.secret_access_key);
        let signature = hmac::sign(&key, text.as_bytes());
        let (key_id, scope) = (&credential.access_key_id, &text[scope_at..scope_end]);
        let mut value = String::with_capacity(256);
        value.extend([ALGORITHM, " Credential=", key_id, "/", scope, ", SignedHeaders="]);
        push_joined(&mut value, &names);
        value.push_str(", Signature=");
        push_hex(&mut value, signature.as_ref());
        let mut value = HeaderValue::try_from(value)
            .map_err(|error| Error::credential_invalid("no header takes it").with_source(error))?;
        value.set_sensitive(true);
        request.headers.insert(AUTHORIZATION, value);
        Ok(())
    }

    /// A copy of the key, so that threads do not wait for each other's signatures.
    fn key(&self, moment: &str, secret: &str) -> hmac::Key {
        let day = &moment.as_bytes()[..DAY_BYTES];
        let mut known = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*known
            && known.day == day
            && known.secret.reveal() == secret
        {
            return known.key.clone();
        }
        let key = derived(secret, day, &self.region);
        if let Ok(day) = day.try_into() {
            *known = Some(Derived { day, secret: Secret::new(secret), key: key.clone() });
        }
        key
    }
}

impl SignRequest for Signature {
    type Credential = Credential;

    fn required_valid_until(&self, _: &Credential, _: Option<Duration>) -> Timestamp {
        Timestamp::now() + HEADROOM
    }

    async fn sign_request(
        &self,
        _: &Context,
        request: &mut Parts,
        credential: Option<&Credential>,
        _: Option<Duration>,
    ) -> Result<()> {
        let Some(credential) = credential else { return Ok(()) };
        let now = Timestamp::now();
        if !credential.is_valid_at(now + HEADROOM) {
            return Err(Error::credential_invalid("they expire before the request could end"));
        }
        self.sign(request, credential, now)
    }
}

/// The key for a day, a region and the service.
fn derived(secret: &str, day: &[u8], region: &str) -> hmac::Key {
    let key = |bytes: &[u8]| hmac::Key::new(hmac::HMAC_SHA256, bytes);
    let step = |from: hmac::Key, text: &[u8]| key(hmac::sign(&from, text).as_ref());
    let of_day = step(key(format!("AWS4{secret}").as_bytes()), day);
    let of_region = step(of_day, region.as_bytes());
    step(step(of_region, SERVICE.as_bytes()), b"aws4_request")
}

/// Adds the headers that have to be signed and are not there.
fn complete(request: &mut Parts, credential: &Credential, moment: &str) -> Result<()> {
    let invalid = |what| move |error| Error::request_invalid(what).with_source(error);
    let authority = request.uri.authority().map(|authority| authority.as_str().to_string());
    let authority = authority.ok_or_else(|| Error::request_invalid("the URL names no host"))?;
    let headers = &mut request.headers;
    if !headers.contains_key(HOST) {
        let host = HeaderValue::try_from(&authority);
        headers.insert(HOST, host.map_err(invalid("no header takes the host"))?);
    }
    if !headers.contains_key(DATE) {
        let date = HeaderValue::try_from(moment);
        headers.insert(DATE, date.map_err(invalid("no header takes the time"))?);
    }
    if !headers.contains_key(CONTENT_SHA256) {
        headers.insert(CONTENT_SHA256, HeaderValue::from_static(UNSIGNED_PAYLOAD));
    }
    if let Some(token) = &credential.session_token {
        let mut token = HeaderValue::try_from(token).map_err(|error| {
            Error::credential_invalid("no header takes the session token").with_source(error)
        })?;
        token.set_sensitive(true);
        let is_express = authority.contains("s3express") || authority.contains("--x-s3");
        headers.insert(if is_express { EXPRESS_TOKEN } else { SESSION_TOKEN }, token);
    }
    Ok(())
}

/// What the signature is of: method, path, query, headers, and what is said of the body.
fn canonical_request(request: &Parts, names: &[&str]) -> Result<String> {
    let mut text = String::with_capacity(512);
    text.extend([request.method.as_str(), "\n"]);
    for (index, segment) in request.uri.path().split('/').enumerate() {
        if index > 0 {
            text.push('/');
        }
        push_encoded(&mut text, segment);
    }
    text.push('\n');
    push_query(&mut text, request.uri.query().unwrap_or_default());
    text.push('\n');
    for name in names {
        text.extend([name, ":"]);
        push_value(&mut text, header(&request.headers, name)?);
        text.push('\n');
    }
    text.push('\n');
    push_joined(&mut text, names);
    text.push('\n');
    text.push_str(header(&request.headers, CONTENT_SHA256.as_str())?);
    Ok(text)
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str> {
    let value = headers.get(name).map(HeaderValue::to_str).transpose();
    let value = value.map_err(|error| {
        Error::request_invalid("a header is not of ASCII characters").with_source(error)
    })?;
    Ok(value.unwrap_or_default())
}

/// A header's value, without spaces around it, and with one space for several.
fn push_value(text: &mut String, value: &str) {
    if !value.contains("  ") {
        text.push_str(value.trim_matches(' '));
        return;
    }
    for (index, word) in value.split(' ').filter(|word| !word.is_empty()).enumerate() {
        text.extend([if index > 0 { " " } else { "" }, word]);
    }
}

/// The pairs of a query in order of their names, then values, each encoded in the one way that
/// signatures take; a name without value has an empty one.
fn push_query(text: &mut String, query: &str) {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (mut encoded, mut encoded_value) = (String::new(), String::new());
        push_encoded(&mut encoded, name);
        push_encoded(&mut encoded_value, value);
        (encoded, encoded_value)
    };
    let mut pairs: Vec<_> = query.split('&').filter(|pair| !pair.is_empty()).map(pair).collect();
    pairs.sort_unstable();
    for (index, (name, value)) in pairs.iter().enumerate() {
        text.extend([if index > 0 { "&" } else { "" }, name, "=", value]);
    }
}

/// Text that is percent-encoded in some way, encoded in the one way: all but the unreserved
/// characters, in capitals.
fn push_encoded(text: &mut String, encoded: &str) {
    const CAPITALS: &[u8; 16] = b"0123456789ABCDEF";
    let mut rest = encoded.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = match (first, after) {
            (b'%', [high, low, ..]) => hex_digit(*high).zip(hex_digit(*low)),
            _ => None,
        };
        let (byte, after) = match escaped {
            Some((high, low)) => (high << 4 | low, &after[2..]),
            None => (first, after),
        };
        rest = after;
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            text.push(char::from(byte));
        } else {
            text.push('%');
            text.push(char::from(CAPITALS[usize::from(byte >> 4)]));
            text.push(char::from(CAPITALS[usize::from(byte & 15)]));
        }
    }
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

fn push_joined(text: &mut String, names: &[&str]) {
    for (index, name) in names.iter().enumerate() {
        text.extend([if index > 0 { ";" } else { "" }, name]);
    }
}

/// A time as the header `x-amz-date` has it.
fn moment(now: Timestamp) -> Result<String> {
    let second = jiff::Timestamp::from_second(now.as_second())
        .map_err(|error| Error::unexpected("the clock is off").with_source(error))?;
    let time = jiff::tz::Offset::UTC.to_datetime(second);
    let mut text = String::with_capacity(MOMENT_BYTES);
    let mut push = |number: i16, divisor: i16| {
        let mut divisor = divisor;
        while divisor > 0 {
            text.push(char::from(b'0' + (number / divisor % 10) as u8));
            divisor /= 10;
        }
    };
    push(time.year(), 1000);
    push(time.month().into(), 10);
    push(time.day().into(), 10);
    text.push('T');
    let mut push = |number: i8| {
        text.extend([
            char::from(b'0' + (number / 10) as u8),
            char::from(b'0' + (number % 10) as u8),
        ]);
    };
    push(time.hour());
    push(time.minute());
    push(time.second());
    text.push('Z');
    Ok(text)
}

#[cfg(test)]
mod tests;

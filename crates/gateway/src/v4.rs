//! Signatures of version 4 that a proxy on the way has touched: finds the Host that was signed
//! where its other form came, and names the header that may have changed where a signature does
//! not hold. Pure.
//!
//! s3s verifies every signature. Nothing here lets a request in: it only chooses the Host that s3s
//! sees, between two names of the same host.

use crate::cause;
use crate::hex::{hex, unhex};
use crate::hosts::PATH;
use crate::keys::KeyRing;
use crate::query::{pairs, value_of};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use penstock_base::Secret;
use percent_encoding::{AsciiSet, percent_decode_str, utf8_percent_encode};
use ring::{digest, hmac};
use s3s::{Body, S3Result, s3_error};

/// What stays as it is in a query.
const QUERY: &AsciiSet = &PATH.add(b'/');
/// The ports that clients leave out of a Host, or write.
const DEFAULT_PORTS: [&str; 2] = ["80", "443"];
const HOST: &str = "host";
const ACCEPT_ENCODING: &str = "accept-encoding";
const FORWARDED_HOST: &str = "x-forwarded-host";
const FORWARDED_PORT: &str = "x-forwarded-port";
/// What clients sign as Accept-Encoding, which proxies replace by their own.
const ENCODINGS: [&str; 4] = ["identity", "gzip", "gzip, deflate", ""];
/// Headers that proxies change, and whose values are no secrets.
const SHOWN: [&str; 9] = [
    HOST,
    ACCEPT_ENCODING,
    "connection",
    "content-length",
    "content-type",
    "expect",
    "range",
    "te",
    "user-agent",
];
/// Longest value that a refusal shows, in characters.
const VALUE_CHARS_MAX: usize = 200;
const MISMATCH: &str = "The request signature we calculated does not match the signature you \
                        provided. Check your key and signing method.";

/// What was found out about a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    /// It holds for the request as it came, or is not for this room to judge.
    AsItCame,
    /// It holds for this Host, which is the other form of the one that came.
    Host(HeaderValue),
    /// It does not hold, and this is what the client hears, should s3s find the same.
    Mismatch(String),
}

/// The key that signs within a scope (`20130524/us-east-1/s3/aws4_request`).
pub(crate) fn signing_key(secret: &str, scope: &str) -> hmac::Key {
    let first = format!("AWS4{secret}").into_bytes();
    let key = scope.split('/').fold(first, |key, step| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        hmac::sign(&key, step.as_bytes()).as_ref().to_vec()
    });
    hmac::Key::new(hmac::HMAC_SHA256, &key)
}

/// Gives a request the Host that was signed, where its other form came. The words are what the
/// client hears instead of s3s's, should s3s refuse the signature.
pub(crate) fn mend<B>(request: &mut Request<B>, ring: &KeyRing) -> Option<String> {
    let pairs: Vec<_> = pairs(request.uri().query().unwrap_or_default()).collect();
    match find(request, &pairs, ring) {
        Found::AsItCame => None,
        Found::Host(host) => {
            request.headers_mut().insert(HOST, host);
            None
        }
        Found::Mismatch(words) => Some(words),
    }
}

/// The answer, with these words where s3s has refused the signature too.
pub(crate) fn with_words(
    answer: Response<Body>,
    words: Option<String>,
) -> S3Result<Response<Body>> {
    let is_refused = answer.status() == StatusCode::FORBIDDEN
        && cause::told(&answer).is_some_and(|told| told.0 == "SignatureDoesNotMatch");
    match words.filter(|_| is_refused) {
        Some(words) => Err(s3_error!(SignatureDoesNotMatch, "{words}")),
        None => Ok(answer),
    }
}

/// Looks at the signature of a request. `pairs` are those of its query.
fn find<B>(request: &Request<B>, pairs: &[(String, String)], ring: &KeyRing) -> Found {
    let Some(signed) = Signed::of(request, pairs) else { return Found::AsItCame };
    let Some(secret) = ring.secret(signed.access_key) else { return Found::AsItCame };
    let trial = Trial::new(request, pairs, &signed, secret);
    if trial.holds(None) {
        return Found::AsItCame;
    }
    let headers = request.headers();
    let signs = |name: &str| signed.names.contains(&name);
    let mut forms = other_forms(text(headers, HOST)).filter(|_| signs(HOST));
    let form = forms.find(|form| trial.holds(Some((HOST, form.as_str()))));
    if let Some(form) = form.and_then(|form| HeaderValue::try_from(form).ok()) {
        return Found::Host(form);
    }
    let mut changed = candidates(headers).filter(|(name, _)| signs(name));
    Found::Mismatch(match changed.find(|(name, value)| trial.holds(Some((name, value)))) {
        Some((name, value)) => changed_words(name, &value, text(headers, name)),
        None => unclear_words(headers, &signed.names),
    })
}

/// The other ways to write a host: without its port where that is a default one, and with each of
/// those where it has none.
fn other_forms(host: &str) -> impl Iterator<Item = String> {
    let (name, port) = parted(host);
    let forms = match port {
        Some(port) if DEFAULT_PORTS.contains(&port) => vec![name.to_string()],
        Some(_) => Vec::new(),
        None if name.is_empty() || name.ends_with(':') => Vec::new(),
        None => DEFAULT_PORTS.map(|port| format!("{name}:{port}")).to_vec(),
    };
    forms.into_iter()
}

/// A host's name and its port. The colons within an address of IPv6 are no port's.
fn parted(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port))
            if !port.is_empty()
                && port.bytes().all(|byte| byte.is_ascii_digit())
                && (!name.contains(':') || name.ends_with(']')) =>
        {
            (name, Some(port))
        }
        _ => (host, None),
    }
}

/// What a header may have been before a proxy changed it.
fn candidates(headers: &HeaderMap) -> impl Iterator<Item = (&'static str, String)> {
    let first = |name: &str| {
        let value = headers.get(name)?.to_str().ok()?.split(',').next()?.trim();
        (!value.is_empty()).then(|| value.to_string())
    };
    let mut hosts = Vec::new();
    let (name, port) = parted(text(headers, HOST));
    hosts.extend(port.map(|_| name.to_string()));
    if let Some(port) = first(FORWARDED_PORT) {
        hosts.push(format!("{name}:{port}"));
    }
    if let Some(host) = first(FORWARDED_HOST) {
        hosts.extend(other_forms(&host));
        if let Some(port) = first(FORWARDED_PORT) {
            hosts.push(format!("{}:{port}", parted(&host).0));
        }
        hosts.push(host);
    }
    let hosts = hosts.into_iter().map(|host| (HOST, host));
    hosts.chain(ENCODINGS.map(|encoding| (ACCEPT_ENCODING, encoding.to_string())))
}

/// A header as text; empty where it is not there.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn bounded(value: &str) -> String {
    value.chars().take(VALUE_CHARS_MAX).collect()
}

fn changed_words(name: &str, before: &str, now: &str) -> String {
    let (before, now) = (bounded(before), bounded(now));
    format!(
        "A proxy changed the header {name}, which is signed: the signature holds for `{before}`, \
         and `{now}` reached the gateway. Let the proxy pass {name} on as the client sends it."
    )
}

/// The headers that may be behind a mismatch, as they came.
fn unclear_words(headers: &HeaderMap, names: &[&str]) -> String {
    let signed = SHOWN.iter().filter(|name| names.contains(name));
    let shown = signed.map(|name| format!("{name}: `{}`", bounded(text(headers, name))));
    let shown: Vec<String> = shown.collect();
    format!(
        "{MISMATCH} If a proxy stands between: these signed headers reached the gateway so, and a \
         change to one of them breaks the signature: {}.",
        shown.join(", ")
    )
}

/// What a request says of its signature.
struct Signed<'a> {
    access_key: &'a str,
    scope: &'a str,
    time: &'a str,
    names: Vec<&'a str>,
    signature: Vec<u8>,
    /// What stands for the body in what is signed.
    payload: &'a str,
}

impl<'a> Signed<'a> {
    /// `None` where there is no signature of version 4, or one that s3s refuses for its form.
    fn of<B>(request: &'a Request<B>, pairs: &'a [(String, String)]) -> Option<Self> {
        let headers = request.headers();
        let (credential, names, signature, time, payload);
        if let Some(in_query) = value_of(pairs, "X-Amz-Signature") {
            let of = |name| value_of(pairs, name);
            (credential, names) = (of("X-Amz-Credential")?, of("X-Amz-SignedHeaders")?);
            (signature, time, payload) = (in_query, of("X-Amz-Date")?, "UNSIGNED-PAYLOAD");
        } else {
            let fields = text(headers, "authorization").strip_prefix("AWS4-HMAC-SHA256")?;
            let of = |name: &str| {
                let mut fields = fields.split(',').map(str::trim);
                fields.find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
            };
            let header = |name: &str| headers.get(name)?.to_str().ok();
            (credential, names) = (of("Credential")?, of("SignedHeaders")?);
            signature = of("Signature")?;
            (time, payload) = (header("x-amz-date")?, header("x-amz-content-sha256")?);
        }
        let (access_key, scope) = credential.split_once('/')?;
        let mut names: Vec<&str> = names.split(';').collect();
        names.sort_unstable();
        Some(Signed { access_key, scope, time, names, signature: unhex(signature)?, payload })
    }
}

/// Tries whether a signature holds, for the request as it came or with one header as it may have
/// been.
struct Trial<'a> {
    signed: &'a Signed<'a>,
    headers: &'a HeaderMap,
    key: hmac::Key,
    /// What stands before the headers: with the path as it is decoded and encoded again, and as it
    /// came.
    heads: Vec<String>,
}

impl<'a> Trial<'a> {
    fn new<B>(
        request: &'a Request<B>,
        pairs: &[(String, String)],
        signed: &'a Signed<'a>,
        secret: &Secret,
    ) -> Self {
        let encoded = |text: &str| utf8_percent_encode(text, QUERY).to_string();
        let pairs = pairs.iter().filter(|pair| pair.0 != "X-Amz-Signature");
        let mut pairs: Vec<_> =
            pairs.map(|(name, value)| (encoded(name), encoded(value))).collect();
        pairs.sort_by(|one, other| one.0.cmp(&other.0));
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let (method, query) = (request.method(), pairs.join("&"));
        let raw = request.uri().path();
        let decoded = percent_decode_str(raw).decode_utf8_lossy();
        let path = utf8_percent_encode(&decoded, PATH).to_string();
        let head = |path: &str| format!("{method}\n{path}\n{query}\n");
        let mut heads = vec![head(&path)];
        heads.extend((path != raw).then(|| head(raw)));
        let key = signing_key(secret.reveal(), signed.scope);
        Trial { signed, headers: request.headers(), key, heads }
    }

    /// Whether it holds, compared in constant time.
    fn holds(&self, instead: Option<(&str, &str)>) -> bool {
        let Signed { names, time, scope, signature, payload, .. } = self.signed;
        let mut lines = String::new();
        for name in names {
            lines += &format!("{name}:{}\n", self.value(name, instead));
        }
        let behind = format!("{lines}\n{}\n{payload}", names.join(";"));
        self.heads.iter().any(|head| {
            let hash = digest::digest(&digest::SHA256, format!("{head}{behind}").as_bytes());
            let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hex(hash.as_ref()));
            hmac::verify(&self.key, text.as_bytes(), signature).is_ok()
        })
    }

    /// The values of a header in the form in which they are signed.
    fn value(&self, name: &str, instead: Option<(&str, &str)>) -> String {
        let folded = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some((_, value)) = instead.filter(|it| it.0 == name) {
            return folded(value);
        }
        let values = self.headers.get_all(name).iter();
        let values = values.filter_map(|value| std::str::from_utf8(value.as_bytes()).ok());
        values.map(folded).collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_other_forms_by_its_default_ports_only() {
        for (host, forms) in [
            ("h", &["h:80", "h:443"][..]),
            ("h:80", &["h"]),
            ("h:443", &["h"]),
            ("h:9000", &[]),
            ("[::1]", &["[::1]:80", "[::1]:443"]),
            ("[::1]:443", &["[::1]"]),
            ("[::1]:9000", &[]),
            ("h:", &[]),
            ("", &[]),
        ] {
            assert_eq!(other_forms(host).collect::<Vec<_>>(), forms, "{host}");
        }
    }
}

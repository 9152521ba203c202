//! Signatures of version 2, verified before s3s does: it compares them byte by byte until two
//! differ, which tells a forger how far a guess was right. Here they are compared in constant time,
//! over the very text that s3s signs, so what passes here passes there.
//!
//! That text leaves out what a request names twice, and s3s obeys it all the same: so nothing that
//! is signed may stand there twice.
//!
//! Also finds out whether a bucket's path was signed with a slash behind it, as some clients
//! (botocore) do that send it without. Pure; s3s judges everything else of the request.

use crate::hosts::Hosts;
use crate::keys::KeyRing;
use crate::query::pairs;
use crate::refuse::OPERATIONS;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, CONTENT_TYPE, DATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use ring::hmac;
use s3s::{S3Result, s3_error};
use std::collections::BTreeMap;

/// The parts of a query that are signed, in the order in which they are.
const SIGNED: &[&str] = &[
    "accelerate",
    "acl",
    "analytics",
    "cors",
    "defaultObjectAcl",
    "delete",
    "inventory",
    "lifecycle",
    "location",
    "logging",
    "metrics",
    "notification",
    "object-lock",
    "partNumber",
    "policy",
    "replication",
    "requestPayment",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "restore",
    "select",
    "select-type",
    "storageClass",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
];

/// Headers that have a line of their own in what is signed.
const SIGNED_HEADERS: [&str; 4] = ["content-md5", "content-type", "date", "x-amz-date"];

/// Whether a name in the query makes a request another operation, and is not among what is signed.
fn is_unsigned_operation(name: &str) -> bool {
    OPERATIONS.contains(&name) && !SIGNED.contains(&name)
}

/// The URI with a slash behind the bucket, where that is what was signed; `None` where the request
/// stays as it is. Requests that version 2 does not sign, or with a key that is not there, are
/// s3s's to judge. Neither is what a browser asks before it sends a request: that has the URL of
/// the request, which may be signed, with another method.
///
/// # Errors
/// `SignatureDoesNotMatch`; `AccessDenied` where the signature does not cover the operation's name;
/// `InvalidArgument` for what is signed and stands there twice.
pub(crate) fn verified<B>(
    request: &Request<B>,
    hosts: &Hosts,
    ring: &KeyRing,
) -> S3Result<Option<Uri>> {
    if *request.method() == Method::OPTIONS {
        return Ok(None);
    }
    let (uri, headers) = (request.uri(), request.headers());
    let pairs: Vec<_> = pairs(uri.query().unwrap_or_default()).collect();
    let Some(signed) = Signed::of(headers, &pairs) else { return Ok(None) };
    let Some(secret) = ring.secret(&signed.access_key) else { return Ok(None) };
    if let Some((name, _)) = pairs.iter().find(|pair| is_unsigned_operation(&pair.0)) {
        return Err(s3_error!(
            AccessDenied,
            "Signatures of version 2 do not cover `{name}`, so anybody may have added it to a URL: \
             sign with version 4 (AWS4-HMAC-SHA256)."
        ));
    }
    if let Some(name) = repeated(&pairs, headers) {
        return Err(s3_error!(
            InvalidArgument,
            "`{name}` is given more than once, and signatures of version 2 cover what is given \
             once: give it once, or sign with version 4 (AWS4-HMAC-SHA256)."
        ));
    }
    let unreadable = |name: &&HeaderName| {
        let is_text = |value: &HeaderValue| std::str::from_utf8(value.as_bytes()).is_ok();
        name.as_str().starts_with("x-amz-") && !headers.get_all(*name).iter().all(is_text)
    };
    if let Some(name) = headers.keys().find(unreadable) {
        return Err(s3_error!(
            SignatureDoesNotMatch,
            "The header {name} is no text in UTF-8, so the signature does not cover it."
        ));
    }
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.reveal().as_bytes());
    let told = STANDARD.decode(&signed.signature).unwrap_or_default();
    let before = format!(
        "{}\n{}\n{}\n{}\n{}",
        request.method(),
        unique(headers, "content-md5").unwrap_or_default(),
        unique(headers, CONTENT_TYPE.as_str()).unwrap_or_default(),
        signed.date,
        amz_headers(headers)
    );
    let behind = subresources(&pairs);
    let is_of = |path: &str| {
        hmac::verify(&key, format!("{before}{path}{behind}").as_bytes(), &told).is_ok()
    };
    if is_of(&hosts.full_path(headers, uri.path())) {
        return Ok(None);
    }
    if hosts.bucket(headers).is_none()
        && let Some(slashed) = slashed(uri)
        && is_of(slashed.path())
    {
        return Ok(Some(slashed));
    }
    Err(s3_error!(
        SignatureDoesNotMatch,
        "The request signature we calculated does not match the signature you provided. Check your \
         key and signing method."
    ))
}

/// A name of what is signed that is there more than once, so that [`only`] and [`unique`], as s3s,
/// would leave it out.
fn repeated<'a>(pairs: &[(String, String)], headers: &HeaderMap) -> Option<&'a str> {
    let in_query = |name: &&&str| pairs.iter().filter(|pair| pair.0 == **name).count() > 1;
    let in_headers = |name: &&&str| headers.get_all(**name).iter().count() > 1;
    let in_query = SIGNED.iter().find(in_query);
    in_query.or_else(|| SIGNED_HEADERS.iter().find(in_headers)).copied()
}

/// The URI of a bucket with a slash behind it.
fn slashed(uri: &Uri) -> Option<Uri> {
    let bucket = uri.path().strip_prefix('/').filter(|rest| !rest.is_empty())?;
    if bucket.contains('/') {
        return None;
    }
    match uri.query() {
        Some(query) => format!("/{bucket}/?{query}").parse().ok(),
        None => format!("/{bucket}/").parse().ok(),
    }
}

/// Who signed, what, and when.
struct Signed {
    access_key: String,
    signature: String,
    date: String,
}

impl Signed {
    /// A signature in the URL goes before one in the header.
    fn of(headers: &HeaderMap, pairs: &[(String, String)]) -> Option<Self> {
        if pairs.iter().any(|pair| pair.0 == "Signature") {
            let value = |name: &str| only(pairs, name).map(str::to_string);
            return Some(Signed {
                access_key: value("AWSAccessKeyId")?,
                signature: value("Signature")?,
                date: value("Expires")?,
            });
        }
        let credentials = unique(headers, AUTHORIZATION.as_str())?.strip_prefix("AWS ")?;
        let (access_key, signature) = credentials.split_once(':')?;
        let date = match unique(headers, "x-amz-date") {
            Some(_) => "",
            None => unique(headers, DATE.as_str()).unwrap_or_default(),
        };
        let (access_key, signature) = (access_key.to_string(), signature.to_string());
        Some(Signed { access_key, signature, date: date.to_string() })
    }
}

/// A header as text; `None` for one that is there twice.
fn unique<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = texts(headers, name);
    let first = values.next()?;
    values.next().is_none().then_some(first)
}

/// The values of a header that are text.
fn texts<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).into_iter();
    values.filter_map(|value| std::str::from_utf8(value.as_bytes()).ok())
}

/// The value of a name in a query; `None` for one that is there twice.
fn only<'a>(pairs: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let mut values = pairs.iter().filter(|pair| pair.0 == name);
    let first = values.next()?;
    values.next().is_none().then_some(first.1.as_str())
}

/// The `x-amz-` headers, one a line, by name.
fn amz_headers(headers: &HeaderMap) -> String {
    let mut lines: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in headers.keys().filter(|name| name.as_str().starts_with("x-amz-")) {
        let values: Vec<_> = texts(headers, name.as_str()).map(str::trim).collect();
        if !values.is_empty() {
            lines.insert(name.as_str(), values);
        }
    }
    lines.iter().map(|(name, values)| format!("{name}:{}\n", values.join(","))).collect()
}

/// What is signed of a query, by name.
fn subresources(pairs: &[(String, String)]) -> String {
    let mut text = String::new();
    for name in SIGNED {
        let Some(value) = only(pairs, name) else { continue };
        text.push(if text.is_empty() { '?' } else { '&' });
        text.push_str(name);
        if !value.is_empty() {
            text.push('=');
            text.push_str(value);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{KeyPair, Rates};
    use penstock_base::Secret;

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

    fn signature(text: &str) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, SECRET.as_bytes());
        STANDARD.encode(hmac::sign(&key, text.as_bytes()))
    }

    fn seen(uri: &str, headers: &[(&str, &str)]) -> S3Result<Option<Uri>> {
        let ring = KeyRing::new(
            vec![KeyPair::new("K", Secret::new(SECRET))],
            Vec::new(),
            Rates::default(),
        );
        let hosts = Hosts::parse("s3.example.org", false).unwrap();
        let mut builder = Request::builder().uri(uri);
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        verified(&builder.body(()).unwrap(), &hosts, &ring)
    }

    fn refusal(uri: &str, headers: &[(&str, &str)]) -> String {
        seen(uri, headers).unwrap_err().code().as_str().to_string()
    }

    /// `None` for a request that is refused, else the URI that s3s gets to see.
    fn passed(uri: &str, headers: &[(&str, &str)]) -> Option<String> {
        let seen = seen(uri, headers);
        let seen = seen.map_err(|error| assert_eq!(error.code().as_str(), "SignatureDoesNotMatch"));
        Some(seen.ok()?.map_or(uri.to_string(), |uri| uri.to_string()))
    }

    #[test]
    fn headers_are_verified_and_a_slash_is_added_where_it_was_signed() {
        let date = "Fri, 24 May 2013 00:00:00 GMT";
        let of = |text: &str| format!("AWS K:{}", signature(text));
        let bare = of(&format!("GET\n\n\n{date}\nx-amz-a:1,2\n/b?acl"));
        let slash = of(&format!("GET\n\n\n{date}\nx-amz-a:1,2\n/b/?acl"));
        let headers = |signed| {
            [("date", date), ("x-amz-a", "1"), ("x-amz-a", "2"), ("authorization", signed)]
        };
        assert_eq!(passed("/b?acl", &headers(&slash)).as_deref(), Some("/b/?acl"));
        assert_eq!(passed("/b?acl", &headers(&bare)).as_deref(), Some("/b?acl"));
        assert_eq!(passed("/b/k?acl", &headers(&slash)), None);
        assert_eq!(passed("/b?cors", &headers(&bare)), None);
        assert_eq!(passed("/b?acl", &headers("AWS K:AAAA")), None);
        assert_eq!(passed("/b?acl", &headers("AWS K:no base64")), None);
        // Nothing that is decided here.
        assert_eq!(passed("/b?acl", &[]).as_deref(), Some("/b?acl"));
        assert_eq!(passed("/b?acl", &headers("AWS L:AAAA")).as_deref(), Some("/b?acl"));
        assert_eq!(passed("/b?acl", &headers("AWS4-HMAC-SHA256 x")).as_deref(), Some("/b?acl"));
        // The bucket stands in the host, and its time in another header.
        let text = "GET\n\n\n\nx-amz-date:now\n/b/k?response-expires=1 2&uploadId=u&versionId=3";
        let signed = of(text);
        let uri = "/k?versionId=3&uploadId=u&prefix=p&response-expires=1%202";
        let mut rows = vec![("date", date), ("x-amz-date", "now"), ("authorization", &signed)];
        rows.push(("host", "b.s3.example.org"));
        assert_eq!(passed(uri, &rows).as_deref(), Some(uri));
        assert_eq!(passed(uri, &rows[..3]), None);
    }

    #[test]
    fn a_url_is_signed_too() {
        let escaped = |text: &str| signature(text).replace('+', "%2B").replace('/', "%2F");
        let uri =
            |signed: &str| format!("/b?AWSAccessKeyId=K&Expires=99&Signature={signed}&prefix=x");
        let slash = uri(&escaped("GET\n\n\n99\n/b/"));
        assert_eq!(passed(&slash, &[]), Some(slash.replace("/b?", "/b/?")));
        let bare = uri(&escaped("GET\n\n\n99\n/b"));
        assert_eq!(passed(&bare, &[]), Some(bare.clone()));
        assert_eq!(passed(&uri("AAAA"), &[]), None);
        // A name that is not signed would make it another operation.
        let put = uri(&escaped("GET\n\n\n99\n/b"));
        for name in ["retention", "legal-hold", "encryption", "attributes", "session"] {
            assert!(is_unsigned_operation(name));
            assert_eq!(refusal(&format!("{put}&{name}"), &[]), "AccessDenied", "{name}");
        }
        let question = Request::builder().method("OPTIONS").uri(uri("AAAA")).body(()).unwrap();
        let ring = KeyRing::new(
            vec![KeyPair::new("K", Secret::new(SECRET))],
            Vec::new(),
            Rates::default(),
        );
        assert!(verified(&question, &Hosts::default(), &ring).unwrap().is_none());
        assert_eq!(passed(&bare.replace("=99", "=98"), &[]), None);
        // What it names twice is in no text that is signed, and s3s would obey it.
        for name in SIGNED {
            let twice = format!("{bare}&{name}&{name}=x");
            assert_eq!(refusal(&twice, &[]), "InvalidArgument", "{name}");
        }
        assert_eq!(refusal(&format!("{bare}&%61cl&acl"), &[]), "InvalidArgument");
        for name in SIGNED_HEADERS {
            assert_eq!(refusal(&bare, &[(name, "a"), (name, "b")]), "InvalidArgument", "{name}");
        }
        // Another key's, or with a field that is there twice: s3s knows what is wrong with it.
        for odd in [bare.replace("Id=K", "Id=L"), format!("{bare}&Expires=99")] {
            assert_eq!(passed(&odd, &[]), Some(odd.clone()));
        }
    }
}

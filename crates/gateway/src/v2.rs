//! Signatures of version 2 over a bucket's path, which some clients (botocore) sign with a slash
//! behind it and send without. Pure: it finds out which was meant; s3s verifies the request then.

use crate::auth::KeyRing;
use crate::query::pairs;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, CONTENT_TYPE, DATE};
use http::{HeaderMap, Request, Uri};
use ring::hmac;
use std::collections::BTreeMap;

/// The parts of a query that are signed.
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
    "policy",
    "replication",
    "requestPayment",
    "restore",
    "tagging",
    "uploads",
    "versioning",
    "versions",
    "website",
];

/// The URI with a slash behind the bucket, where that is what was signed.
pub(crate) fn with_slash<B>(request: &Request<B>, ring: &KeyRing) -> Option<Uri> {
    let uri = request.uri();
    let bucket = uri.path().strip_prefix('/').filter(|rest| !rest.is_empty())?;
    if bucket.contains('/') {
        return None;
    }
    let path = format!("/{bucket}/");
    let pairs: Vec<_> = pairs(uri.query().unwrap_or_default()).collect();
    let signed = Signed::of(request.headers(), &pairs)?;
    let secret = ring.secret(&signed.access_key)?;
    let text = format!(
        "{}\n{}\n{}\n{}\n{}{path}{}",
        request.method(),
        text(request.headers(), "content-md5"),
        text(request.headers(), CONTENT_TYPE.as_str()),
        signed.date,
        amz_headers(request.headers()),
        subresources(&pairs)
    );
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.reveal().as_bytes());
    let told = STANDARD.decode(&signed.signature).ok()?;
    hmac::verify(&key, text.as_bytes(), &told).ok()?;
    match uri.query() {
        Some(query) => format!("{path}?{query}").parse().ok(),
        None => path.parse().ok(),
    }
}

/// Who signed, what, and when.
struct Signed {
    access_key: String,
    signature: String,
    date: String,
}

impl Signed {
    fn of(headers: &HeaderMap, pairs: &[(String, String)]) -> Option<Self> {
        if let Some(credentials) = text(headers, AUTHORIZATION.as_str()).strip_prefix("AWS ") {
            let (access_key, signature) = credentials.split_once(':')?;
            let is_amz = headers.contains_key("x-amz-date");
            let date = if is_amz { "" } else { text(headers, DATE.as_str()) };
            let (access_key, signature) = (access_key.to_string(), signature.to_string());
            return Some(Signed { access_key, signature, date: date.to_string() });
        }
        let value = |name: &str| pairs.iter().find(|pair| pair.0 == name).map(|it| it.1.clone());
        Some(Signed {
            access_key: value("AWSAccessKeyId")?,
            signature: value("Signature")?,
            date: value("Expires")?,
        })
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The `x-amz-` headers, one a line, by name.
fn amz_headers(headers: &HeaderMap) -> String {
    let mut lines: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, value) in headers {
        if name.as_str().starts_with("x-amz-") {
            let value = value.to_str().unwrap_or_default().trim();
            lines.entry(name.as_str()).or_default().push(value);
        }
    }
    lines.iter().map(|(name, values)| format!("{name}:{}\n", values.join(","))).collect()
}

/// What is signed of a query, by name.
fn subresources(pairs: &[(String, String)]) -> String {
    let mut text = String::new();
    for name in SIGNED {
        let Some((name, value)) = pairs.iter().find(|pair| pair.0 == *name) else { continue };
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
    use crate::auth::KeyPair;
    use penstock_base::Secret;

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

    fn signature(text: &str) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, SECRET.as_bytes());
        STANDARD.encode(hmac::sign(&key, text.as_bytes()))
    }

    fn slashed(uri: &str, headers: &[(&str, &str)]) -> Option<String> {
        let ring = KeyRing::new(vec![KeyPair::new("K", Secret::new(SECRET))], Vec::new(), 0, 1);
        let mut builder = Request::builder().uri(uri);
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        with_slash(&builder.body(()).unwrap(), &ring).map(|uri| uri.to_string())
    }

    #[test]
    fn a_slash_is_added_where_it_was_signed() {
        let date = "Fri, 24 May 2013 00:00:00 GMT";
        let of = |text: &str| format!("AWS K:{}", signature(text));
        let bare = of(&format!("GET\n\n\n{date}\nx-amz-a:1,2\n/b?acl"));
        let slash = of(&format!("GET\n\n\n{date}\nx-amz-a:1,2\n/b/?acl"));
        let headers = |signed| {
            [("date", date), ("x-amz-a", "1"), ("x-amz-a", "2"), ("authorization", signed)]
        };
        assert_eq!(slashed("/b?acl", &headers(&slash)).as_deref(), Some("/b/?acl"));
        assert_eq!(slashed("/b?acl", &headers(&bare)), None);
        assert_eq!(slashed("/b/k?acl", &headers(&slash)), None);
        assert_eq!(slashed("/", &headers(&slash)), None);
        assert_eq!(slashed("/b?acl", &[]), None);
    }

    #[test]
    fn a_url_is_signed_too() {
        let signed = signature("GET\n\n\n99\n/b/").replace('+', "%2B").replace('/', "%2F");
        let uri = format!("/b?AWSAccessKeyId=K&Expires=99&Signature={signed}&prefix=x");
        assert_eq!(slashed(&uri, &[]), Some(uri.replace("/b?", "/b/?")));
        assert_eq!(slashed(&uri.replace("Id=K", "Id=L"), &[]), None);
    }
}

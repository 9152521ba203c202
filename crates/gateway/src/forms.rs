//! Uploads from browser forms (POST of multipart/form-data to a bucket).
//!
//! Decides who sent a form and whether its policy allows it; then the form is the PutObject that
//! it means, with a mark of who signed it, and goes the way of any other. The file is held whole,
//! up to `form_size_max_bytes`: its checksums and the policy's range of sizes are judged before
//! anything is written, and what stands behind it in a form does not tell where it ends.

mod fields;
mod policy;
mod signature;

use crate::exchange::Exchange;
use crate::front::Limits;
use crate::hosts::{Hosts, PATH};
use crate::keys::KeyRing;
use fields::Form;
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH,
    CONTENT_TYPE, ETAG, EXPIRES, HOST, LOCATION, TRANSFER_ENCODING,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use s3s::{Body, S3Error, S3ErrorCode, S3Result, s3_error, xml};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::OwnedSemaphorePermit;

/// Bytes that all forms together may be held in.
const FORMS_BYTES_MAX: u64 = 256 << 20;
/// When to come back with one that found no room.
const FORM_WAIT: Duration = Duration::from_secs(1);

/// The unit in which they are counted.
const FORM_UNIT_BYTES: u64 = 1 << 10;
/// Units of all forms together; one of the largest size that is taken fits in any case.
pub(crate) fn form_units(size_max_bytes: u64) -> usize {
    usize::try_from(FORMS_BYTES_MAX.max(size_max_bytes) / FORM_UNIT_BYTES).unwrap_or(usize::MAX)
}

/// What stays as it is in a query.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Fields that are headers of the PutObject, besides `x-amz-*`.
const HEADERS: &[HeaderName] = &[
    CACHE_CONTROL,
    CONTENT_DISPOSITION,
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_TYPE,
    EXPIRES,
];
/// Fields that would make another request than a PutObject of what they are.
const OTHERS: &str = "x-amz-copy-source";
/// Fields that are about the form itself.
const OWN: &[&str] = &[
    "x-amz-algorithm",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-signature",
    "x-amz-security-token",
];

/// Who signed a form; s3s sees the PutObject as unsigned.
#[derive(Clone, Debug)]
pub(crate) struct FormSender(pub String);

/// How a form wants to be answered.
#[derive(Debug)]
pub(crate) struct FormAnswer {
    bucket: String,
    key: String,
    location: String,
    redirect: Option<String>,
    status: StatusCode,
    /// The room that the form takes until it is answered.
    place: Option<OwnedSemaphorePermit>,
}

/// Whether a request is a form.
pub(crate) fn is_form<B>(request: &Request<B>) -> bool {
    *request.method() == Method::POST && boundary(request.headers()).is_some()
}

/// What separates the parts of a form.
fn boundary(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let mut words = text.split(';').map(str::trim);
    if !words.next()?.eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let named = words.find_map(|word| {
        let (name, value) = word.split_once('=')?;
        name.eq_ignore_ascii_case("boundary").then_some(value)
    });
    Some(named?.trim_matches('"').to_string())
}

/// The PutObject that a form means.
///
/// # Errors
/// `SlowDown`; `MethodNotAllowed` on an object's path; `MalformedPOSTRequest`, `InvalidArgument`,
/// `EntityTooLarge`; `AccessDenied`, `InvalidPolicyDocument`, `SignatureDoesNotMatch`,
/// `InvalidAccessKeyId`.
pub(crate) async fn put_of(
    request: Request<Body>,
    hosts: &Hosts,
    ring: &KeyRing,
    limits: &Limits,
    now: SystemTime,
) -> S3Result<(Request<Body>, FormAnswer)> {
    let (mut head, body) = request.into_parts();
    let bucket = bucket_of(&hosts.full_path(&head.headers, head.uri.path()))?;
    let (form, place) = read(&head, body, &bucket, limits).await?;
    if let (Some(exchange), Some(key)) =
        (head.extensions.get::<Arc<Exchange>>(), signature::claimed_key(&form))
    {
        exchange.form_names(key);
    }
    let sender = signature::verify(&form, ring, limits.signature_v2)?;
    if let Some(policy) = form.field("policy") {
        policy::check(policy, &form, &bucket, now)?;
    }
    let key = form.key()?;
    let location = hosts.location(&head.headers, &bucket, &key);
    let mut answer = FormAnswer::of(&form, &bucket, &key, location)?;
    answer.place = Some(place);
    // From here on the bucket stands in the path.
    head.headers.remove(HOST);
    head.method = Method::PUT;
    // No policy speaks of what else a URL could say.
    let encoded = |name| utf8_percent_encode(name, PATH);
    let path = format!("/{}/{}", encoded(&bucket), encoded(&key));
    head.uri = path.parse().map_err(|_| s3_error!(InvalidURI, "the key makes no URL"))?;
    head.headers.remove(TRANSFER_ENCODING);
    // What the policy does not know of may not say what becomes of the file.
    let is_told = |name: &HeaderName| name.as_str().starts_with("x-amz-") || HEADERS.contains(name);
    let told: Vec<HeaderName> = head.headers.keys().filter(|name| is_told(name)).cloned().collect();
    for name in told {
        head.headers.remove(name);
    }
    head.headers.insert(CONTENT_LENGTH, HeaderValue::from(form.file.len()));
    set_headers(&mut head.headers, &form)?;
    if let Some(sender) = sender {
        head.extensions.insert(FormSender(sender));
    }
    Ok((Request::from_parts(head, Body::from(form.file)), answer))
}

/// Reads a form, and the room that it takes. The log hears what it is for, as far as that is read.
async fn read(
    head: &Parts,
    mut body: Body,
    bucket: &str,
    limits: &Limits,
) -> S3Result<(Form, OwnedSemaphorePermit)> {
    let told = |key: Option<&str>| {
        if let Some(exchange) = head.extensions.get::<Arc<Exchange>>() {
            exchange.aims_at(bucket, key);
        }
    };
    told(None);
    let size_max_bytes = limits.form_size_max_bytes;
    let limit = usize::try_from(size_max_bytes).unwrap_or(usize::MAX);
    // Nobody has shown a key yet.
    let len = head.headers.get(CONTENT_LENGTH).and_then(|text| text.to_str().ok()?.parse().ok());
    let units = len.unwrap_or(size_max_bytes).min(size_max_bytes).div_ceil(FORM_UNIT_BYTES);
    let units = u32::try_from(units).unwrap_or(u32::MAX);
    let place = limits.forms.clone().try_acquire_many_owned(units).map_err(|_| {
        crate::error::slow_down("The gateway holds as many forms as it takes.", FORM_WAIT)
    })?;
    let held = body.store_all_limited(limit).await;
    let bytes = held.map_err(|error| match error.to_string().contains("limit") {
        true => s3_error!(
            EntityTooLarge,
            "This gateway takes forms of at most {size_max_bytes} bytes; use PutObject."
        ),
        false => crate::error::body_error(&error),
    })?;
    let (form, read) = Form::parse(&bytes, &boundary(&head.headers).unwrap_or_default());
    told(form.key().ok().as_deref());
    read.map(|()| (form, place))
}

/// The bucket of a path that has no key.
fn bucket_of(path: &str) -> S3Result<String> {
    let path = percent_decode_str(path).decode_utf8();
    let path = path.map_err(|_| s3_error!(InvalidURI, "the path is not UTF-8"))?;
    let bucket = path.trim_matches('/');
    match bucket.is_empty() || bucket.contains('/') {
        true => Err(s3_error!(MethodNotAllowed, "Forms are posted to a bucket.")),
        false => Ok(bucket.to_string()),
    }
}

/// The headers that the fields of a form are.
fn set_headers(headers: &mut HeaderMap, form: &Form) -> S3Result<()> {
    for (name, value) in &form.fields {
        let (name, value) = match name.as_str() {
            "acl" => ("x-amz-acl", value.clone()),
            "tagging" => ("x-amz-tagging", tags(value)?),
            "content-md5" => ("content-md5", value.clone()),
            name if OWN.contains(&name) => continue,
            name if name.starts_with(OTHERS) => {
                return Err(s3_error!(InvalidArgument, "a form brings its file: {name}"));
            }
            name if name.starts_with("x-amz-") => (name, value.clone()),
            name if HEADERS.iter().any(|known| known.as_str() == name) => (name, value.clone()),
            _ => continue,
        };
        let wrong = || s3_error!(InvalidArgument, "the field {name} can be no header");
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| wrong())?;
        headers.insert(header, value);
    }
    Ok(())
}

/// The tags of a field, which are a document there, as the header has them.
fn tags(document: &str) -> S3Result<String> {
    let malformed = |_| s3_error!(MalformedXML, "the field tagging holds no tags");
    let mut reader = xml::Deserializer::new(document.as_bytes());
    let tagging: s3s::dto::Tagging =
        xml::Deserialize::deserialize(&mut reader).map_err(malformed)?;
    let pair = |tag: s3s::dto::Tag| {
        let (name, value) = (tag.key.unwrap_or_default(), tag.value.unwrap_or_default());
        format!("{}={}", utf8_percent_encode(&name, QUERY), utf8_percent_encode(&value, QUERY))
    };
    Ok(tagging.tag_set.into_iter().map(pair).collect::<Vec<_>>().join("&"))
}

impl FormAnswer {
    fn of(form: &Form, bucket: &str, key: &str, location: String) -> S3Result<Self> {
        let redirect = form.field("success_action_redirect").or_else(|| form.field("redirect"));
        let redirect = redirect.filter(|url| !url.is_empty()).map(str::to_string);
        if redirect.as_ref().is_some_and(|url| HeaderValue::from_str(url).is_err()) {
            return Err(s3_error!(InvalidArgument, "success_action_redirect is no URL"));
        }
        // Anything else is ignored, as in S3.
        let status = match form.field("success_action_status") {
            Some("200") => StatusCode::OK,
            Some("201") => StatusCode::CREATED,
            _ => StatusCode::NO_CONTENT,
        };
        let (bucket, key) = (bucket.to_string(), key.to_string());
        Ok(FormAnswer { bucket, key, location, redirect, status, place: None })
    }

    /// Says the answer to the PutObject as the form wants it; errors stay as they are.
    pub fn told(self, mut response: Response<Body>) -> Response<Body> {
        if !response.status().is_success() {
            return response;
        }
        let etag = response.headers().get(ETAG).and_then(|value| value.to_str().ok());
        let etag = etag.unwrap_or_default().to_string();
        response.headers_mut().remove(CONTENT_LENGTH);
        if let Some(redirect) = self.redirect {
            let joint = if redirect.contains('?') { '&' } else { '?' };
            let written = |text: &str| utf8_percent_encode(text, QUERY).to_string();
            let target = format!(
                "{redirect}{joint}bucket={}&key={}&etag={}",
                written(&self.bucket),
                written(&self.key),
                written(&etag)
            );
            if let Ok(target) = HeaderValue::from_str(&target) {
                response.headers_mut().insert(LOCATION, target);
            }
            *response.status_mut() = StatusCode::SEE_OTHER;
            *response.body_mut() = Body::empty();
            return response;
        }
        *response.status_mut() = self.status;
        if let Ok(location) = HeaderValue::from_str(&self.location) {
            response.headers_mut().insert(LOCATION, location);
        }
        *response.body_mut() = match self.status {
            StatusCode::CREATED => {
                let xml = HeaderValue::from_static("application/xml");
                response.headers_mut().insert(CONTENT_TYPE, xml);
                Body::from(self.document(&etag))
            }
            _ => Body::empty(),
        };
        response
    }

    fn document(&self, etag: &str) -> String {
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<PostResponse><Location>{}</Location>\
             <Bucket>{}</Bucket><Key>{}</Key><ETag>{}</ETag></PostResponse>",
            escaped(&self.location),
            escaped(&self.bucket),
            escaped(&self.key),
            escaped(etag)
        )
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\r' => escaped.push_str("&#13;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Body for a fuzzer: a form and its policy.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(input: &[u8]) {
    let (form, Ok(())) = Form::parse(&bytes::Bytes::copy_from_slice(input), "b") else { return };
    assert!(form.file.len() <= input.len(), "more than was sent");
    drop((form.key(), FormAnswer::of(&form, "lake", "k", String::new())));
    drop(set_headers(&mut HeaderMap::new(), &form));
    if let Some(policy) = form.field("policy") {
        drop(policy::check(policy, &form, "lake", SystemTime::UNIX_EPOCH));
    }
}

fn malformed(why: &'static str) -> S3Error {
    S3Error::with_message(S3ErrorCode::MalformedPOSTRequest, why)
}

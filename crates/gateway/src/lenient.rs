//! Requests that S3 takes and s3s does not parse: ranges and dates that are none (S3 answers as if
//! they were not there, and keeps such an Expires word for word), conditions on tags without
//! quotes, and metadata whose name is there twice. And those whose body is in chunks, which
//! [`crate::chunks`] takes out.
//!
//! Their headers may be signed, so they are mended only once s3s has verified the signature: a
//! route catches such a request there, mends it, and hands it to a second service, which sees it
//! unsigned with a mark of who sent it. Decides nothing about access.

use crate::chunks::body::{Trailers, Unchunked};
use crate::chunks::chain::Chain;
use crate::chunks::{Aside, Kind, announces_trailer};
use crate::forms::FormSender;
use crate::receive::DECODED_CONTENT_LENGTH;
use http::header::{
    AUTHORIZATION, CONTENT_LENGTH, EXPIRES, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    IF_UNMODIFIED_SINCE, RANGE,
};
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use s3s::dto::{self, ETagCondition, Timestamp, TimestampFormat};
use s3s::route::S3Route;
use s3s::service::S3Service;
use s3s::{Body, S3Request, S3Response, S3Result, s3_error};

const TAGS: [HeaderName; 4] = [
    IF_MATCH,
    IF_NONE_MATCH,
    HeaderName::from_static("x-amz-copy-source-if-match"),
    HeaderName::from_static("x-amz-copy-source-if-none-match"),
];
const DATES: [HeaderName; 3] = [IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE, EXPIRES];
/// Before the names of an object's own metadata.
const METADATA: &str = "x-amz-meta-";
/// What belongs to a signature that has been verified, and to the transfer that it was of.
const VERIFIED: [HeaderName; 3] = [
    AUTHORIZATION,
    HeaderName::from_static("x-amz-content-sha256"),
    HeaderName::from_static("x-amz-security-token"),
];
/// The same in the query of a presigned URL.
const VERIFIED_PAIRS: [&str; 4] = ["X-Amz-", "AWSAccessKeyId=", "Signature=", "Expires="];

/// What S3 makes of a header's value that s3s takes for malformed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Odd {
    /// It passes over it.
    Void,
    /// It reads this.
    Means(String),
}

/// The largest number in ranges that s3s takes; no object is as long.
const FAR: i64 = i64::MAX;

fn odd(name: &HeaderName, value: &HeaderValue) -> Option<Odd> {
    let text = value.to_str().ok()?;
    if *name == RANGE {
        // s3s reads no number as 0.
        let is_none = text == "bytes=-" || dto::Range::parse(text).is_err();
        return is_none.then(|| range(text).unwrap_or(Odd::Void));
    }
    if DATES.contains(name) {
        return Timestamp::parse(TimestampFormat::HttpDate, text).is_err().then_some(Odd::Void);
    }
    let is_tag = TAGS.contains(name) && !text.is_empty() && !text.contains('"');
    // s3s takes a list without quotes for one tag.
    let is_bare = is_tag
        && (text.contains(',') || ETagCondition::parse_http_header(text.as_bytes()).is_err());
    is_bare.then(|| Odd::Means(quoted(text)))
}

/// Tags that came without quotes.
fn quoted(text: &str) -> String {
    let tags = text.split(',').map(|tag| format!("\"{}\"", tag.trim()));
    tags.collect::<Vec<_>>().join(", ")
}

/// A range of numbers that s3s cannot hold. `None` for what is no range.
fn range(text: &str) -> Option<Odd> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(first) || !is_digits(last) || (first.is_empty() && last.is_empty()) {
        return None;
    }
    let (begin, end) = (first.parse::<i64>(), last.parse::<i64>());
    match (first.is_empty(), begin, end) {
        (true, ..) => Some(Odd::Means(format!("bytes=-{FAR}"))),
        (false, Err(_), _) => Some(Odd::Means(format!("bytes={FAR}-"))),
        (false, Ok(begin), Err(_)) => Some(Odd::Means(format!("bytes={begin}-"))),
        // The end is before the beginning.
        (false, Ok(_), Ok(_)) => None,
    }
}

fn is_watched(name: &HeaderName) -> bool {
    *name == RANGE || TAGS.contains(name) || DATES.contains(name)
}

/// Names of metadata that have several values: to S3 that is one, with commas between them.
fn repeated(headers: &HeaderMap) -> impl Iterator<Item = &HeaderName> {
    let is_repeated = |name: &HeaderName| headers.get_all(name).iter().nth(1).is_some();
    let names = headers.keys().filter(|name| name.as_str().starts_with(METADATA));
    names.filter(move |name| is_repeated(name))
}

/// The headers as s3s takes them.
fn mended(mut headers: HeaderMap) -> S3Result<HeaderMap> {
    for name in repeated(&headers).cloned().collect::<Vec<_>>() {
        let values: Vec<&[u8]> = headers.get_all(&name).iter().map(|it| it.as_bytes()).collect();
        let value = HeaderValue::from_bytes(&values.join(&b","[..]));
        let value = value.map_err(|_| s3_error!(InvalidArgument, "{name} is malformed"))?;
        headers.insert(name, value);
    }
    for name in TAGS.iter().chain(&DATES).chain([&RANGE]) {
        match headers.get(name).and_then(|value| odd(name, value)) {
            None => {}
            Some(Odd::Void) => {
                headers.remove(name);
            }
            Some(Odd::Means(text)) => {
                let value = HeaderValue::from_str(&text);
                let value = value.map_err(|_| s3_error!(InvalidArgument, "{name} is malformed"))?;
                headers.insert(name, value);
            }
        }
    }
    Ok(headers)
}

/// The query without what signed it.
fn without_signature(uri: &Uri) -> S3Result<Uri> {
    let Some(query) = uri.query() else { return Ok(uri.clone()) };
    let is_signed = |pair: &&str| VERIFIED_PAIRS.iter().any(|name| pair.starts_with(name));
    let kept: Vec<&str> = query.split('&').filter(|pair| !is_signed(pair)).collect();
    let path = match kept.is_empty() {
        true => uri.path().to_string(),
        false => format!("{}?{}", uri.path(), kept.join("&")),
    };
    path.parse().map_err(|_| s3_error!(InvalidURI, "the URL is malformed"))
}

/// The bytes of a body that was set aside, and what will follow them, in a request whose head s3s
/// has verified. The head then tells of a body without chunks.
fn unchunked(aside: &Aside, request: &mut S3Request<Body>) -> S3Result<(Body, Trailers)> {
    let why = "x-amz-content-sha256 tells of a body in chunks, and the head is not signed so.";
    let not_signed = || s3_error!(InvalidRequest, "{why}");
    let kind = Kind::of(&request.headers).ok_or_else(not_signed)?;
    let secret = request.credentials.as_ref().map(|credentials| credentials.secret_key.expose());
    let chain = secret.and_then(|secret| Chain::of(&request.headers, secret));
    if chain.is_none() && kind != Kind::Unsigned {
        return Err(not_signed());
    }
    let length = request.headers.get(DECODED_CONTENT_LENGTH).cloned();
    let length = length.filter(|value| value.to_str().is_ok_and(|it| it.parse::<u64>().is_ok()));
    let why = "A body in chunks takes an x-amz-decoded-content-length.";
    let length = length.ok_or_else(|| s3_error!(MissingContentLength, "{why}"))?;
    // One that is sent in a chunked transfer coding has none.
    if let Some(told) = request.headers.get_mut(CONTENT_LENGTH) {
        *told = length;
    }
    let trailers = Trailers::default();
    let body = aside.take().unwrap_or_default();
    let is_announced = announces_trailer(&mut request.headers);
    let body = Unchunked::new(body, kind, chain, trailers.clone(), is_announced);
    Ok((Body::http_body(body), trailers))
}

/// An Expires that is no date, of a request that was mended.
#[derive(Clone, Debug)]
struct Expiry(String);

/// The Expires of a request that is no date: `0` and `-1` are common.
pub(crate) fn odd_expires(extensions: &Extensions) -> Option<String> {
    extensions.get::<Expiry>().map(|expiry| expiry.0.clone())
}

/// Catches what has to be mended.
pub(crate) struct Lenient {
    /// Everything but this route.
    pub strict: S3Service,
}

#[async_trait::async_trait]
impl S3Route for Lenient {
    fn is_match(&self, _: &Method, _: &Uri, headers: &HeaderMap, more: &mut Extensions) -> bool {
        Aside::of(more).is_some()
            || headers.iter().any(|(name, value)| is_watched(name) && odd(name, value).is_some())
            || repeated(headers).next().is_some()
    }

    /// Whether it may is asked by the second service, as of every request.
    async fn check_access(&self, _: &mut S3Request<Body>) -> S3Result<()> {
        Ok(())
    }

    async fn call(&self, mut request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let aside = Aside::of(&request.extensions).cloned();
        if let Some(aside) = aside {
            let (body, trailers) = unchunked(&aside, &mut request)?;
            request.input = body;
            request.extensions.insert(trailers);
        }
        let mut mended_request = Request::new(request.input);
        *mended_request.method_mut() = request.method;
        *mended_request.uri_mut() = without_signature(&request.uri)?;
        *mended_request.extensions_mut() = request.extensions;
        let expires = request.headers.get(EXPIRES).filter(|value| odd(&EXPIRES, value).is_some());
        let expires = expires.and_then(|value| Some(Expiry(value.to_str().ok()?.to_string())));
        let mut headers = mended(request.headers)?;
        for name in VERIFIED {
            headers.remove(name);
        }
        *mended_request.headers_mut() = headers;
        let extensions = mended_request.extensions_mut();
        if let Some(credentials) = request.credentials {
            extensions.insert(FormSender(credentials.access_key));
        }
        if let Some(expires) = expires {
            extensions.insert(expires);
        }
        let answered = self.strict.call(mended_request).await;
        let answered = answered.map_err(|error| s3_error!(InternalError, "{error:?}"))?;
        let (head, body) = answered.into_parts();
        let mut response = S3Response::new(body);
        response.status = Some(head.status);
        response.headers = head.headers;
        response.extensions = head.extensions;
        Ok(response)
    }
}

/// Whatever is mended, s3s takes.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(input: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(input) else { return };
    for name in TAGS.iter().chain(&DATES).chain([&RANGE]) {
        let Ok(headers) = mended(HeaderMap::from_iter([(name.clone(), value.clone())])) else {
            continue;
        };
        let again = headers.get(name).and_then(|value| odd(name, value));
        assert_eq!(again, None, "{name} was mended into what has to be mended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_what_s3_reads() {
        let told = |text: &str| {
            let value = HeaderValue::from_str(text).unwrap();
            let headers = mended(HeaderMap::from_iter([(RANGE, value)])).unwrap();
            headers.get(RANGE).map(|value| value.to_str().unwrap().to_string())
        };
        for kept in ["bytes=0-3", "bytes=3-", "bytes=-3"] {
            assert_eq!(told(kept).as_deref(), Some(kept));
        }
        for void in ["bytes=3-2", "bytes=0-1,3-4", "bytes=-", "bytes", "lines=1-2", "bytes=a-b"] {
            assert_eq!(told(void), None, "{void}");
        }
        let most = "18446744073709551614";
        assert_eq!(told(&format!("bytes=9-{most}")).as_deref(), Some("bytes=9-"));
        let far = told(&format!("bytes={most}-{most}"));
        assert_eq!(far.as_deref(), Some("bytes=9223372036854775807-"));
        let all = told("bytes=-99999999999999999999");
        assert_eq!(all.as_deref(), Some("bytes=-9223372036854775807"));
    }

    #[test]
    fn tags_get_their_quotes_and_dates_that_are_none_go() {
        let told = |name: HeaderName, text: &str| {
            let value = HeaderValue::from_str(text).unwrap();
            let headers = mended(HeaderMap::from_iter([(name.clone(), value)])).unwrap();
            headers.get(name).map(|value| value.to_str().unwrap().to_string())
        };
        assert_eq!(told(IF_MATCH, "no_tag").as_deref(), Some("\"no_tag\""));
        assert_eq!(told(IF_MATCH, "a-1,b_2, *").as_deref(), Some("\"a-1\", \"b_2\", \"*\""));
        for kept in ["\"a_b\"", "abc-1", "*", "W/\"x\"", "\"torn"] {
            assert_eq!(told(IF_NONE_MATCH, kept).as_deref(), Some(kept));
        }
        let date = "Fri, 24 May 2013 00:00:00 GMT";
        assert_eq!(told(IF_MODIFIED_SINCE, date).as_deref(), Some(date));
        assert_eq!(told(IF_MODIFIED_SINCE, "yesterday"), None);
    }

    #[test]
    fn metadata_that_is_there_twice_is_one() {
        let name = HeaderName::from_static("x-amz-meta-a");
        let mut headers = HeaderMap::new();
        for value in ["1", "2, 3", ""] {
            headers.append(&name, HeaderValue::from_static(value));
        }
        headers.append("x-other", HeaderValue::from_static("1"));
        headers.append("x-other", HeaderValue::from_static("2"));
        assert_eq!(repeated(&headers).collect::<Vec<_>>(), [&name]);
        let mended = mended(headers).unwrap();
        assert_eq!(mended.get_all(&name).iter().collect::<Vec<_>>(), ["1,2, 3,"]);
        assert_eq!(mended.get_all("x-other").iter().count(), 2);
    }

    #[test]
    fn nothing_of_a_signature_stays_in_the_url() {
        let bare = |uri: &str| without_signature(&uri.parse().unwrap()).unwrap().to_string();
        assert_eq!(bare("/b/k"), "/b/k");
        assert_eq!(bare("/b/k?X-Amz-Date=1&X-Amz-Signature=2"), "/b/k");
        assert_eq!(
            bare("/b/k?versionId=1&AWSAccessKeyId=K&Expires=1&Signature=2"),
            "/b/k?versionId=1"
        );
    }
}

//! Builds, signs and sends the requests of one bucket, and follows it to its region.

mod unsigned;

use crate::advice;
use crate::answer::{self, Failure};
use crate::s3::ANSWER_BYTES_MAX;
use crate::s3::auth::Auth;
use crate::s3::config::{Access, S3Config, Service};
use crate::s3::google;
use crate::streaming::split_version;
use crate::unsigned::ReadsUnsigned;
use crate::{Connections, HttpClient, HttpResponse, Inflow, Payload, WarmUp};
use ::http::request::Parts;
use ::http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use penstock_base::{Error, Kind, Result, Retry};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

/// What is signed for where nobody named one.
const REGION_DEFAULT: &str = "us-east-1";
/// All but the unreserved characters of RFC 3986, as SigV4 wants it.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The same, but slashes stay.
const PATH: &AsciiSet = &QUERY.remove(b'/');

/// One request to be.
#[derive(Clone, Debug)]
pub(crate) struct Call<'a> {
    pub method: Method,
    /// What errors call it.
    pub operation: &'static str,
    /// `None`: the bucket itself.
    pub key: Option<&'a str>,
    /// Names without value have an empty one.
    pub query: Vec<(&'static str, String)>,
    pub headers: HeaderMap,
    pub payload: Payload,
}

impl<'a> Call<'a> {
    pub(crate) fn new(method: Method, operation: &'static str, key: Option<&'a str>) -> Self {
        let (query, headers, payload) = (Vec::new(), HeaderMap::new(), Payload::default());
        Call { method, operation, key, query, headers, payload }
    }

    pub(crate) fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    pub(crate) fn payload(mut self, payload: Payload) -> Self {
        self.payload = payload;
        self
    }

    fn is_read(&self) -> bool {
        self.method == Method::GET || self.method == Method::HEAD
    }

    /// # Errors
    /// `Invalid` for text that no header can carry.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Result<Self> {
        let wrong = || {
            Error::new(Kind::Invalid, format!("header `{name}` cannot carry its value"))
                .with_hint("Headers, and names of metadata, are printable ASCII")
        };
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        let ascii = value.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t'));
        let value = HeaderValue::from_str(value).ok().filter(|_| ascii).ok_or_else(wrong)?;
        self.headers.insert(name, value);
        Ok(self)
    }
}

/// What a request came to.
pub(crate) enum Outcome {
    /// A status of success.
    Done(HttpResponse),
    /// An answer that says no.
    Refused { failure: Failure, headers: HeaderMap },
}

/// Whether a status says that a request was carried out: one that reads needs an object or a
/// document, and one that changes something has what the protocol says of it. Ceph can be set to
/// answer the making of an object with 201 or 204, and some services answer a removal with 200.
fn is_done(method: &Method, status: u16) -> bool {
    match *method {
        Method::GET | Method::HEAD => answer::is_object(status),
        Method::PUT => matches!(status, 200 | 201 | 204),
        Method::DELETE => matches!(status, 200 | 204),
        _ => status == 200,
    }
}

async fn outcome(method: &Method, response: HttpResponse) -> Outcome {
    if is_done(method, response.status) {
        return Outcome::Done(response);
    }
    let headers = response.headers.clone();
    let failure = Failure::read(response).await;
    Outcome::Refused { failure, headers }
}

/// Where the bucket is, as far as known.
#[derive(Clone, Debug)]
struct Target {
    region: String,
    /// `https://host/base/bucket`, to which `/key` is added.
    bucket_url: String,
    auth: Auth,
}

/// Sends requests to one bucket.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) config: S3Config,
    http: HttpClient,
    target: RwLock<Arc<Target>>,
    reads_unsigned: ReadsUnsigned,
}

impl Sender {
    /// `auth` is of this configuration, and may be of other buckets too.
    pub(crate) fn new(config: S3Config, http: HttpClient, auth: Auth) -> Self {
        let region = first_region(&config).to_string();
        let target =
            Target { bucket_url: bucket_url(&config, config.region.as_deref()), region, auth };
        let reads_unsigned = ReadsUnsigned::default();
        Sender { config, http, target: RwLock::new(Arc::new(target)), reads_unsigned }
    }

    fn target(&self) -> Arc<Target> {
        self.target.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is known of the connections to the bucket.
    pub(crate) fn connections(&self) -> Connections {
        self.http.connections(&self.target().bucket_url)
    }

    /// Opens connections before requests need them; see [`Store::warm`](crate::Store::warm).
    pub(crate) fn warm(&self, count: usize) -> Option<WarmUp> {
        let url = &self.target().bucket_url;
        if !self.http.has_answered(url) {
            return None;
        }
        self.http.warm(url, count)
    }

    pub(crate) fn header_prefix(&self) -> &'static str {
        self.target().auth.header_prefix()
    }

    /// Sends a request, twice if the first answer names the bucket's region.
    ///
    /// # Errors
    /// When no answer came, the request could not be signed, or the object has no name. A refusal
    /// is an [`Outcome`].
    pub(crate) async fn send(&self, call: &Call<'_>) -> Result<Outcome> {
        if let Some(key) = call.key {
            self.require_key(call, key)?;
            if self.config.service == Service::Gcs {
                google::check_version(key).map_err(|error| self.named(call, error))?;
            }
        }
        if self.config.environment.is_some() && call.is_read() {
            return self.read(call).await;
        }
        self.follow(call, true).await
    }

    /// Sends a request, twice if the first answer names the bucket's region.
    async fn follow(&self, call: &Call<'_>, is_signed: bool) -> Result<Outcome> {
        let as_asked = |target: Arc<Target>| match is_signed {
            true => target,
            false => Arc::new(Target { auth: Auth::Anonymous, ..(*target).clone() }),
        };
        let target = self.target();
        let outcome = self.send_to(&as_asked(target.clone()), call).await?;
        let Outcome::Refused { failure, .. } = &outcome else { return Ok(outcome) };
        match self.moved(&target, failure) {
            Some(moved) => self.send_to(&as_asked(moved), call).await,
            None => Ok(outcome),
        }
    }

    /// Sends a request and turns a refusal into an error.
    ///
    /// # Errors
    /// All that can happen, with operation and object.
    pub(crate) async fn done(&self, call: &Call<'_>) -> Result<HttpResponse> {
        match self.send(call).await? {
            Outcome::Done(response) => Ok(response),
            Outcome::Refused { failure, .. } => Err(self.refusal(call, failure)),
        }
    }

    /// Ends a request whose answer says nothing but its status: a web page there is a proxy's, and
    /// an error document says that it was not done, whatever the status.
    ///
    /// # Errors
    /// `Corrupt` for such a page, that of the document, and when the answer breaks off.
    pub(crate) async fn acknowledged(
        &self,
        call: &Call<'_>,
        mut response: HttpResponse,
    ) -> Result<()> {
        let read = response.body.read_to_bytes(ANSWER_BYTES_MAX).await;
        let bytes = read.map_err(|error| self.named(call, error))?;
        // The media type is not asked: some servers call every answer a web page. Without headers
        // there is no time to compare with either. Status 500 is that of work whose end is not
        // known, unless the code says more.
        let failure = Failure::parse(500, &HeaderMap::new(), &bytes, SystemTime::UNIX_EPOCH);
        if failure.is_html {
            return Err(self.named(call, strange("all signs of a store: it is a web page")));
        }
        // Stores answer nothing, or a document; a filter on the way may answer in its own words.
        let text = bytes.trim_ascii_start();
        if !text.is_empty() && !text.starts_with(b"<") {
            return Err(self.named(call, strange("all signs of a store: its body is no XML")));
        }
        match crate::xml::is_error_document(&bytes) {
            true => Err(self.refusal(call, failure)),
            false => Ok(()),
        }
    }

    /// Sends a call whose body is still coming in, once: it cannot follow the bucket to another
    /// region, but the next one goes there.
    ///
    /// # Errors
    /// As [`Sender::send`], and the body's own.
    pub(crate) async fn send_flow(
        &self,
        call: &Call<'_>,
        body: Box<dyn Inflow>,
    ) -> Result<Outcome> {
        if let Some(key) = call.key {
            self.require_key(call, key)?;
        }
        let target = self.target();
        let parts = self.signed(&target, call).await?;
        let response = self.http.send_flow(parts, body).await;
        let response = response.map_err(|error| self.named(call, error))?;
        let outcome = outcome(&call.method, response).await;
        if let Outcome::Refused { failure, .. } = &outcome
            && self.moved(&target, failure).is_some()
        {
            let error = Error::new(Kind::Unavailable, "the bucket is in another region");
            return Err(self.named(call, error.with_retry(Retry::BackOff)));
        }
        Ok(outcome)
    }

    async fn send_to(&self, target: &Target, call: &Call<'_>) -> Result<Outcome> {
        let parts = self.signed(target, call).await?;
        let response = self.http.send(parts, call.payload.clone()).await;
        let response = response.map_err(|error| self.named(call, error))?;
        Ok(outcome(&call.method, response).await)
    }

    async fn signed(&self, target: &Target, call: &Call<'_>) -> Result<Parts> {
        let named = |error: Error| self.named(call, error);
        self.check_withheld(call)?;
        let url = request_url(&target.bucket_url, self.config.service, call);
        let request = Request::builder().method(call.method.clone()).uri(url.as_str()).body(());
        let (mut parts, ()) = request
            .map_err(|error| {
                named(Error::new(Kind::Invalid, "the key makes no valid URL").with_source(error))
            })?
            .into_parts();
        parts.headers.extend(call.headers.clone());
        for (name, value) in &self.config.headers {
            parts.headers.insert(name.clone(), value.clone());
        }
        if self.config.requester_pays && self.config.service != Service::Gcs {
            let payer = HeaderValue::from_static("requester");
            parts.headers.insert(HeaderName::from_static("x-amz-request-payer"), payer);
        }
        if self.config.service == Service::Gcs {
            // Otherwise Google unpacks objects that are stored with gzip encoding, and ranges and
            // sizes no longer fit the stored bytes.
            parts.headers.insert(::http::header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        }
        target.auth.sign(&mut parts).await.map_err(named)?;
        Ok(parts)
    }

    /// The target in the region that the answer names, if it is another one. It is remembered.
    fn moved(&self, target: &Target, failure: &Failure) -> Option<Arc<Target>> {
        let wrong_place = matches!(failure.status, 301 | 307 | 400 | 403);
        let region = failure.region.as_deref().filter(|_| wrong_place)?;
        if region == target.region || !is_region(region) {
            return None;
        }
        let moved = Arc::new(Target {
            region: region.to_string(),
            bucket_url: bucket_url(&self.config, Some(region)),
            auth: target.auth.for_region(region),
        });
        *self.target.write().unwrap_or_else(PoisonError::into_inner) = moved.clone();
        Some(moved)
    }

    /// Without a key, a request for an object would be one for its bucket: a PUT would create it
    /// and a DELETE remove it.
    ///
    /// # Errors
    /// `Invalid` for an empty key.
    pub(crate) fn require_key(&self, call: &Call<'_>, key: &str) -> Result<()> {
        if !key.is_empty() {
            return Ok(());
        }
        let root = &self.config.root;
        let error = Error::new(Kind::Invalid, "the URL names a bucket, not an object in it")
            .with_hint(format!("Add a key, or use a glob such as `{root}*.parquet`"));
        Err(self.named(call, error))
    }

    /// The error of a refused request, with advice that fits the bucket.
    pub(crate) fn refusal(&self, call: &Call<'_>, mut failure: Failure) -> Error {
        failure.secret_name.clone_from(&self.config.secret_name);
        failure.is_key_of_environment = self.config.is_key_of_environment;
        failure.was_unsigned = self.config.access == Access::Anonymous;
        let is_version = call.key.is_some_and(|key| split_version(key).1.is_some());
        if is_version && self.config.service == Service::Gcs && failure.code == "NoSuchKey" {
            failure.code = "NoSuchVersion".to_string();
        }
        let missing = |key| failure.missing_object_hint(&format!("{}{key}", self.config.root));
        let hint = call.key.and_then(missing).or_else(|| self.hint(&failure));
        failure.environment_hint = self.environment_hint();
        self.named(call, self.with_environment(call, failure.into_error(hint)))
    }

    pub(crate) fn named(&self, call: &Call<'_>, error: Error) -> Error {
        error.with_operation(call.operation).with_object(format!(
            "{}{}",
            self.config.root,
            call.key.unwrap_or_default()
        ))
    }

    /// The type of secret that goes with the service.
    fn secret_type(&self) -> &'static str {
        match self.config.service {
            Service::Gcs => "gcs",
            Service::R2 => "r2",
            Service::Aws | Service::Other => "s3",
        }
    }

    /// The scope of a secret for the bucket.
    fn scope(&self) -> &str {
        self.config.root.trim_end_matches('/')
    }

    fn hint(&self, failure: &Failure) -> Option<String> {
        let config = &self.config;
        let (secret_type, scope) = (self.secret_type(), self.scope());
        let (kind, _) = failure.verdict();
        if let Some(withheld) = config.withheld.as_ref().filter(|_| kind == Kind::Denied) {
            return Some(format!("The request carried no credentials, since {withheld}"));
        }
        if kind == Kind::Denied && config.access == Access::Anonymous {
            let key = [("key_id", "..."), ("secret", "..."), ("scope", scope)];
            let key = advice::give(secret_type, &key);
            return Some(format!("No credentials were given. {key}"));
        }
        if kind == Kind::Denied {
            let which = match &config.secret_name {
                Some(_) if config.is_key_of_environment => {
                    advice::values_of_environment(None, &["key_id"])
                }
                Some(name) => format!("secret '{name}'"),
                None => "the credentials from settings or environment".to_string(),
            };
            return Some(match advice::which(&config.root, secret_type) {
                Some(used) => format!("Check {which}, its rights on {scope}, and `{used}`"),
                None => format!("Check {which} and its rights on {scope}"),
            });
        }
        match (failure.status, failure.code.as_str()) {
            (304, _) => None,
            (300..=399, _) | (_, "AuthorizationHeaderMalformed") => Some(match &failure.region {
                Some(region) => {
                    let set = advice::set("region", region);
                    format!("The bucket is in region {region}: {set}")
                }
                None => {
                    let name = config.secret_name.as_deref();
                    format!("Check {}", advice::values(name, &["endpoint", "region"]))
                }
            }),
            // HEAD has no body, so the service could not say what it did not like.
            (400, "") => Some(
                "Often the region, an expired session token or an impossible bucket name: check \
                 the credentials and the URL"
                    .to_string(),
            ),
            _ => None,
        }
    }
}

/// The region that is signed for until the service names another.
pub(crate) fn first_region(config: &S3Config) -> &str {
    config.region.as_deref().unwrap_or(match config.service {
        Service::R2 | Service::Gcs => "auto",
        Service::Aws | Service::Other => REGION_DEFAULT,
    })
}

fn is_region(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 40
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

fn bucket_url(config: &S3Config, region: Option<&str>) -> String {
    let scheme = if config.https { "https" } else { "http" };
    let host = match (&config.host, region) {
        (Some(host), Some(region)) if config.service == Service::Aws => {
            follow_region(host, region).unwrap_or_else(|| host.clone())
        }
        (Some(host), _) => host.clone(),
        (None, Some(region)) => aws_host(region),
        (None, None) => "s3.amazonaws.com".to_string(),
    };
    let (bucket, base) = (&config.bucket, &config.base_path);
    if bucket.is_empty() {
        format!("{scheme}://{host}{base}")
    } else if config.path_style {
        format!("{scheme}://{host}{base}/{bucket}")
    } else {
        format!("{scheme}://{bucket}.{host}{base}")
    }
}

fn aws_host(region: &str) -> String {
    let suffix = if region.starts_with("cn-") { ".cn" } else { "" };
    format!("s3.{region}.amazonaws.com{suffix}")
}

/// A plain regional host of Amazon in another region; private and special ones stay.
fn follow_region(host: &str, region: &str) -> Option<String> {
    let front = host.strip_suffix(".amazonaws.com")?;
    let old = front.strip_prefix("s3.").or_else(|| front.strip_prefix("s3-"))?;
    (!old.contains('.')).then(|| aws_host(region))
}

pub(crate) fn encode_path(key: &str) -> String {
    utf8_percent_encode(key, PATH).to_string()
}

fn request_url(bucket_url: &str, service: Service, call: &Call<'_>) -> String {
    let mut url = String::with_capacity(bucket_url.len() + 128);
    url.push_str(bucket_url);
    url.push('/');
    let (key, version) = split_version(call.key.unwrap_or_default());
    url.extend(utf8_percent_encode(key, PATH));
    let parameter = if service == Service::Gcs { "generation" } else { "versionId" };
    let version = version.map(|id| (parameter, id.to_string()));
    for (index, (name, value)) in call.query.iter().chain(&version).enumerate() {
        url.push(if index == 0 { '?' } else { '&' });
        url.push_str(name);
        // A bare name and an empty value sign alike, but some servers route by the bare name only.
        if !value.is_empty() {
            url.push('=');
            url.extend(utf8_percent_encode(value, QUERY));
        }
    }
    url
}

/// The usual reason for an answer that no store would give.
pub(crate) const NO_STORE_HINT: &str =
    "Is a proxy answering in the store's place, or is ENDPOINT no S3 service?";

/// The error for an answer of success that lacks what it must have.
pub(crate) fn strange(what: &str) -> Error {
    Error::new(Kind::Corrupt, format!("the store's answer lacks {what}"))
        .with_retry(Retry::Briefly)
        .with_hint(NO_STORE_HINT)
}

#[cfg(test)]
mod tests;

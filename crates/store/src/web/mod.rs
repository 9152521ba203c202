//! Objects behind plain HTTP servers, read only.
//!
//! A root is a scheme, host and port; a key is the rest of the URL as the user wrote it, query
//! included. Decides about redirects, about servers without HEAD or without ranges, and about
//! which credentials go where.

mod get;
mod location;
mod stat;

use crate::advice;
use crate::answer::{self, Failure};
use crate::options::StoreOptions;
use crate::{
    Capabilities, ETag, GetRange, GetRequest, GetResponse, HttpClient, HttpResponse, ListPage,
    ListRequest, ObjectMeta, Part, Payload, Profile, PutOptions, PutResult, Store, UploadId,
};
use ::http::header::{AUTHORIZATION, HeaderName};
use ::http::{HeaderMap, HeaderValue, Method, Request};
use async_trait::async_trait;
use location::{Redirects, encoded, origin_of, request_url, resolve};
use penstock_base::{ByteRange, Error, Kind, Result};
use std::sync::atomic::{AtomicBool, Ordering};

/// Longest chain of redirects.
const REDIRECTS_MAX: usize = 10;

/// A web server.
#[derive(Debug)]
pub struct HttpStore {
    root: String,
    http: HttpClient,
    /// Sent to this server only, and within the scope.
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The scope of the headers' secret, percent-encoded; `None` for the whole server.
    scope: Option<String>,
    secret_name: Option<String>,
    redirects: Redirects,
    /// The server does not answer HEAD (or the URL is signed for GET).
    head_refused: AtomicBool,
    /// The server serves no ranges that are counted from the end.
    suffix_refused: AtomicBool,
}

/// An answer, or a refusal with its headers.
enum Outcome {
    Done(HttpResponse),
    Refused { failure: Failure, headers: HeaderMap },
}

/// Where a request begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Where a redirect has lately led to: for the other reads of what was opened.
    Remembered,
    /// At the object's own URL: for what asks for its present version.
    Anew,
}

impl Way {
    /// Objects are opened by a request without a condition for their beginning or their end.
    fn of(request: &GetRequest) -> Self {
        let may_open = match request.range {
            GetRange::All | GetRange::Suffix(_) => true,
            GetRange::From(start) | GetRange::Bounded(ByteRange { start, .. }) => start == 0,
        };
        match may_open && request.if_match.is_none() {
            true => Way::Anew,
            false => Way::Remembered,
        }
    }
}

impl HttpStore {
    /// Opens `scheme://authority/`; no request is sent.
    ///
    /// # Errors
    /// `Invalid` for a host that is none, or options that cannot be.
    pub fn open(
        scheme: &str,
        authority: &str,
        options: &StoreOptions,
        http: &HttpClient,
    ) -> Result<Self> {
        if authority.contains('@') {
            return Err(Error::new(Kind::Invalid, "user and password do not belong into a URL")
                .with_hint(advice::give(
                    "http",
                    &[("extra_http_headers.Authorization", "Basic ...")],
                )));
        }
        let wrong = || Error::new(Kind::Invalid, format!("`{authority}` is no host name"));
        let parsed: ::http::uri::Authority = authority.parse().map_err(|_| wrong())?;
        if parsed.host().is_empty() {
            return Err(wrong());
        }
        crate::http::explicit_port(&parsed)?;
        let mut headers = crate::open::extra_headers(options)?;
        if let Some(token) = options.get("bearer_token") {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| {
                Error::new(Kind::Invalid, "the secret's BEARER_TOKEN is no header text")
            })?;
            value.set_sensitive(true);
            headers.push((AUTHORIZATION, value));
        }
        Ok(HttpStore {
            root: format!("{scheme}://{}/", authority.to_ascii_lowercase()),
            http: http.clone(),
            headers,
            scope: options.get("scope").map(encoded),
            secret_name: options.get("secret_name").map(str::to_string),
            redirects: Redirects::default(),
            head_refused: AtomicBool::new(false),
            suffix_refused: AtomicBool::new(false),
        })
    }

    fn object(&self, key: &str) -> String {
        format!("{}{key}", self.root)
    }

    fn named(&self, operation: &'static str, key: &str, error: Error) -> Error {
        error.with_operation(operation).with_object(self.object(key))
    }

    fn unsupported(&self, operation: &'static str, key: &str) -> Error {
        let error = Error::new(Kind::Unsupported, "plain HTTP servers are read only")
            .with_hint("Write to S3, Azure or a local file");
        self.named(operation, key, error)
    }

    /// Sends a request where the object is, by way of redirects: `Way::Anew` begins at its own URL.
    async fn send(
        &self,
        (method, way): (&Method, Way),
        operation: &'static str,
        key: &str,
        headers: &HeaderMap,
    ) -> Result<Outcome> {
        let named = |error: Error| self.named(operation, key, error);
        let own = request_url(&self.root, key);
        let mut remembered = self.redirects.get(key).filter(|_| way == Way::Remembered);
        let mut url = remembered.clone().unwrap_or_else(|| own.clone());
        for _ in 0..=REDIRECTS_MAX {
            let has_secret = url == own || self.is_within_scope(&url);
            let response = self.send_one(method, &url, headers, has_secret).await.map_err(named)?;
            match response.status {
                status if answer::is_object(status) => {
                    if url == own {
                        self.redirects.forget(key);
                    } else if remembered.is_none() {
                        self.redirects.put(key, &url);
                    }
                    return Ok(Outcome::Done(response));
                }
                301 | 302 | 303 | 307 | 308 => {
                    let target = answer::text_header(&response.headers, "location");
                    drop(response);
                    let target = target.and_then(|target| resolve(&url, &target));
                    url = target.ok_or_else(|| {
                        named(Error::new(Kind::Corrupt, "the server redirects to nowhere"))
                    })?;
                }
                // What a redirect led to may expire (signed URLs): ask the way again.
                401 | 403 | 404 | 410 if remembered.is_some() => {
                    drop(response);
                    self.redirects.forget(key);
                    remembered = None;
                    url.clone_from(&own);
                }
                _ => {
                    let headers = response.headers.clone();
                    let mut failure = Failure::read(response).await;
                    if !has_secret {
                        failure.location = Some(penstock_base::redact::url(&url).into_owned());
                    }
                    return Ok(Outcome::Refused { failure, headers });
                }
            }
        }
        Err(named(
            Error::new(Kind::Invalid, format!("more than {REDIRECTS_MAX} redirects"))
                .with_hint("The server sends the request in a circle: check the URL"),
        ))
    }

    async fn send_one(
        &self,
        method: &Method,
        url: &str,
        headers: &HeaderMap,
        has_secret: bool,
    ) -> Result<HttpResponse> {
        let request = Request::builder().method(method.clone()).uri(url).body(());
        let (mut parts, ()) = request
            .map_err(|error| Error::new(Kind::Invalid, "the URL is malformed").with_source(error))?
            .into_parts();
        parts.headers.extend(headers.clone());
        if has_secret {
            for (name, value) in &self.headers {
                parts.headers.insert(name.clone(), value.clone());
            }
        }
        self.http.send(parts, Payload::default()).await
    }

    /// Whether the headers may go where a redirect leads: to this server, within the scope.
    fn is_within_scope(&self, url: &str) -> bool {
        let covers = |scope: &String| crate::scope::covered_bytes(scope, url).is_some();
        origin_of(url) == origin_of(&self.root) && self.scope.as_ref().is_none_or(covers)
    }

    fn refusal(&self, operation: &'static str, key: &str, failure: Failure) -> Error {
        // Web pages are what web servers answer with; only an object store's are odd.
        let secret_name = self.secret_name.clone();
        let was_unsigned = self.headers.is_empty();
        let failure = Failure { is_html: false, secret_name, was_unsigned, ..failure };
        let (kind, _) = failure.verdict();
        let hint = (kind == Kind::Denied).then(|| match (&self.secret_name, &failure.location) {
            (_, Some(url)) if !was_unsigned => format!(
                "The server redirects to {url}, to which its credentials do not go: read that URL \
                 itself, with credentials of its own"
            ),
            (Some(name), _) => format!("Check secret '{name}' and its rights"),
            (None, _) => {
                let scope = self.root.trim_end_matches('/');
                let token = [("bearer_token", "..."), ("scope", scope)];
                format!("No credentials were given. {}", advice::give("http", &token))
            }
        });
        self.named(operation, key, failure.into_error(hint))
    }
}

#[async_trait]
impl Store for HttpStore {
    fn root(&self) -> &str {
        &self.root
    }

    fn origin(&self) -> Option<String> {
        Some(self.root.clone())
    }

    fn profile(&self) -> Profile {
        Profile {
            first_byte_ms: 50.0,
            connection_bytes_per_s: 50e6,
            part_size_min_bytes: 1,
            part_size_max_bytes: 1,
            part_count_max: 1,
            parts_uniform: false,
            put_size_max_bytes: 0,
            delete_batch_max: 1,
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            write: false,
            list: false,
            suffix_range: !self.suffix_refused.load(Ordering::Relaxed),
            conditional_put: false,
            conditional_delete: false,
            list_etag: false,
            copy: false,
        }
    }

    async fn get(&self, key: &str, request: GetRequest) -> Result<GetResponse> {
        self.get_object(key, request).await
    }

    async fn stat(&self, key: &str) -> Result<ObjectMeta> {
        self.stat_object(key).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        let error = Error::new(Kind::Unsupported, "plain HTTP servers cannot list")
            .with_hint("Name the files one by one, as in read_parquet([...])");
        Err(self.named("list", &request.prefix, error))
    }

    async fn put(&self, key: &str, _payload: Payload, _options: &PutOptions) -> Result<PutResult> {
        Err(self.unsupported("PUT", key))
    }

    async fn create_upload(&self, key: &str, _options: &PutOptions) -> Result<UploadId> {
        Err(self.unsupported("create upload", key))
    }

    async fn upload_part(
        &self,
        key: &str,
        _upload: &UploadId,
        _number: u32,
        _payload: Payload,
    ) -> Result<Part> {
        Err(self.unsupported("upload part", key))
    }

    async fn complete_upload(
        &self,
        key: &str,
        _upload: &UploadId,
        _parts: &[Part],
        _options: &PutOptions,
    ) -> Result<PutResult> {
        Err(self.unsupported("complete upload", key))
    }

    async fn abort_upload(&self, key: &str, _upload: &UploadId) -> Result<()> {
        Err(self.unsupported("abort upload", key))
    }

    async fn delete(&self, key: &str, _if_match: Option<&ETag>) -> Result<()> {
        Err(self.unsupported("DELETE", key))
    }

    async fn delete_batch(&self, keys: &[String]) -> Result<Vec<Result<()>>> {
        Err(self.unsupported("DELETE", keys.first().map_or("", String::as_str)))
    }

    async fn copy(&self, _from: &str, to: &str, _options: &PutOptions) -> Result<PutResult> {
        Err(self.unsupported("copy", to))
    }
}

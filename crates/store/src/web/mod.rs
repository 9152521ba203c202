//! Objects behind plain HTTP servers, read only.
//!
//! A root is a scheme, host and port; a key is the rest of the URL as the user wrote it, query
//! included. Decides about redirects, about servers without HEAD or without ranges, and about
//! which credentials go where. A repository of the Hugging Face Hub is such a server, too, under
//! the names and with the listings of [`crate::hub`].

mod get;
mod linked;
mod location;
mod stat;

use crate::advice;
use crate::answer::{self, Failure};
use crate::hub::Hub;
use crate::options::StoreOptions;
use crate::suffixes::Suffixes;
use crate::{
    Capabilities, ETag, GetRange, GetRequest, GetResponse, HttpClient, HttpResponse, ListPage,
    ListRequest, ObjectMeta, Part, Payload, Profile, PutOptions, PutResult, Store, UploadId,
};
use ::http::header::{AUTHORIZATION, HeaderName};
use ::http::{HeaderMap, HeaderValue, Method, Request};
use async_trait::async_trait;
pub(crate) use location::encoded;
use location::{Found, Redirects, origin_of, request_url, resolve};
use penstock_base::{ByteRange, Error, Kind, Result, Secret};
use std::sync::atomic::AtomicBool;

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
    /// The repository that this is, where the server is the Hugging Face Hub.
    hub: Option<Hub>,
    redirects: Redirects,
    /// The server does not answer HEAD (or the URL is signed for GET).
    head_refused: AtomicBool,
    suffixes: Suffixes,
    /// The server packs files that are packed already, and serves ranges of that.
    packs_twice: AtomicBool,
}

/// An answer, or a refusal with its headers.
pub(crate) enum Outcome {
    Done(HttpResponse),
    Refused { failure: Failure, headers: HeaderMap },
}

/// Where a request begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way<'a> {
    /// Where a redirect has lately led to, unless that is known to be another version than this:
    /// for the other reads of what was opened.
    Remembered(Option<&'a ETag>),
    /// At the object's own URL: for what asks for its present version.
    Anew,
}

impl<'a> Way<'a> {
    /// Objects are opened by a request without a condition for their beginning or their end.
    fn of(request: &'a GetRequest) -> Self {
        let may_open = match request.range {
            GetRange::All | GetRange::Suffix(_) => true,
            GetRange::From(start) | GetRange::Bounded(ByteRange { start, .. }) => start == 0,
        };
        match may_open && request.if_match.is_none() {
            true => Way::Anew,
            false => Way::Remembered(request.if_match.as_ref()),
        }
    }

    fn remembered(self, redirects: &Redirects, own: &str) -> Option<Found> {
        let Way::Remembered(wanted) = self else { return None };
        let is_other =
            |tag: &ETag| wanted.is_some_and(|wanted| wanted.is_strong() && wanted != tag);
        redirects.get(own).filter(|(_, tag)| !tag.as_ref().is_some_and(is_other))
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
        let root = format!("{scheme}://{}/", authority.to_ascii_lowercase());
        let scope = options.get("scope").map(encoded);
        Ok(HttpStore { scope, ..HttpStore::rooted(root, None, options, http)? })
    }

    /// Opens the repository of what follows `hf://`, and gives the key in it; no request is sent.
    ///
    /// # Errors
    /// `Invalid` for a URL that names no repository, or options that cannot be.
    pub fn open_hub(
        rest: &str,
        options: &StoreOptions,
        http: &HttpClient,
    ) -> Result<(Self, String)> {
        let (hub, key) = Hub::open(rest, options)?;
        Ok((HttpStore::rooted(hub.root().to_string(), Some(hub), options, http)?, key))
    }

    fn rooted(
        root: String,
        hub: Option<Hub>,
        options: &StoreOptions,
        http: &HttpClient,
    ) -> Result<Self> {
        let mut headers = crate::open::extra_headers(options)?;
        let environment = |name: &str| std::env::var(name).ok();
        let token = match &hub {
            Some(_) => crate::hub::token(options, &environment),
            None => options.get("bearer_token").map(Secret::new),
        };
        if let Some(token) = token {
            let bearer = format!("Bearer {}", token.reveal());
            let mut value = HeaderValue::from_str(&bearer).map_err(|_| {
                Error::new(Kind::Invalid, "the secret's token is no header text")
                    .with_hint("Check it for line ends and letters that are not of ASCII")
            })?;
            value.set_sensitive(true);
            headers.push((AUTHORIZATION, value));
        }
        Ok(HttpStore {
            root,
            http: http.clone(),
            headers,
            scope: None,
            secret_name: options.get("secret_name").map(str::to_string),
            hub,
            redirects: Redirects::default(),
            head_refused: AtomicBool::new(false),
            suffixes: Suffixes::default(),
            packs_twice: AtomicBool::new(false),
        })
    }

    /// Where its objects are asked for.
    fn base(&self) -> &str {
        self.hub.as_ref().map_or(&self.root, Hub::base)
    }

    fn object(&self, key: &str) -> String {
        format!("{}{key}", self.root)
    }

    fn named(&self, operation: &'static str, key: &str, error: Error) -> Error {
        error.with_operation(operation).with_object(self.object(key))
    }

    fn unsupported(&self, operation: &'static str, key: &str) -> Error {
        let what = self.hub.as_ref().map_or("plain HTTP servers", |_| "repositories of the Hub");
        let error = Error::new(Kind::Unsupported, format!("{what} are read only"))
            .with_hint("Write to S3, Azure or a local file");
        self.named(operation, key, error)
    }

    /// Sends a request where the object is, by way of redirects: `Way::Anew` begins at its own URL.
    async fn send(
        &self,
        asked: (&Method, Way<'_>),
        operation: &'static str,
        key: &str,
        headers: &HeaderMap,
    ) -> Result<Outcome> {
        let own = match &self.hub {
            Some(hub) => hub.url_of(key).map_err(|error| error.with_operation(operation))?,
            None => request_url(&self.root, key),
        };
        self.send_to(own, asked, (operation, key), headers).await
    }

    /// Sends a request to a URL of this server.
    ///
    /// # Errors
    /// What befell the connection, and redirects that lead nowhere.
    pub(crate) async fn send_to(
        &self,
        own: String,
        (method, way): (&Method, Way<'_>),
        (operation, key): (&'static str, &str),
        headers: &HeaderMap,
    ) -> Result<Outcome> {
        let named = |error: Error| self.named(operation, key, error);
        let mut remembered = way.remembered(&self.redirects, &own);
        let (mut url, mut tag) = remembered.clone().unwrap_or_else(|| (own.clone(), None));
        for _ in 0..=REDIRECTS_MAX {
            let has_secret = url == own || self.is_within_scope(&url);
            let response = self.send_one(method, &url, headers, has_secret).await.map_err(named)?;
            match response.status {
                status if answer::is_object(status) => {
                    if url == own {
                        self.redirects.forget(&own);
                    } else if remembered.is_none() {
                        self.redirects.put(&own, (&url, tag.clone()));
                    }
                    let is_hub = self.hub.is_some();
                    let answer = if is_hub { linked::tagged(response, tag) } else { response };
                    return Ok(Outcome::Done(answer));
                }
                301 | 302 | 303 | 307 | 308 => {
                    let target = answer::text_header(&response.headers, "location");
                    let target = target.and_then(|target| resolve(&url, &target));
                    url = target.ok_or_else(|| {
                        named(Error::new(Kind::Corrupt, "the server redirects to nowhere"))
                    })?;
                    if self.hub.is_some() {
                        tag = linked::tag(&response.headers).or(tag);
                        if let Some(told) = linked::head(method, &response.headers) {
                            self.redirects.put(&own, (&url, tag));
                            return Ok(Outcome::Done(told));
                        }
                    }
                }
                // What a redirect led to may expire (signed URLs): ask the way again.
                401 | 403 | 404 | 410 if remembered.is_some() => {
                    drop(response);
                    self.redirects.forget(&own);
                    (remembered, tag) = (None, None);
                    url.clone_from(&own);
                }
                _ => return Ok(refused(response, (&url, has_secret)).await),
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
        origin_of(url) == origin_of(self.base()) && self.scope.as_ref().is_none_or(covers)
    }

    pub(crate) fn refusal(&self, operation: &'static str, key: &str, failure: Failure) -> Error {
        // Web pages are what web servers answer with; only an object store's are odd.
        let secret_name = self.secret_name.clone();
        let was_unsigned = self.headers.is_empty();
        let failure = Failure { is_html: false, secret_name, was_unsigned, ..failure };
        let hint = match &self.hub {
            Some(hub) => hub.advice(&failure),
            None => self.advice(&failure),
        };
        self.named(operation, key, failure.into_error(hint))
    }

    fn advice(&self, failure: &Failure) -> Option<String> {
        let (kind, _) = failure.verdict();
        (kind == Kind::Denied).then(|| match (&self.secret_name, &failure.location) {
            (_, Some(url)) if !failure.was_unsigned => format!(
                "The server redirects to {url}, to which its credentials do not go: read that URL \
                 itself, with credentials of its own"
            ),
            (Some(name), _) => format!("Check secret '{name}' and its rights"),
            (None, _) => {
                let scope = self.root.trim_end_matches('/');
                let token = [("bearer_token", "..."), ("scope", scope)];
                format!("No credentials were given. {}", advice::give("http", &token))
            }
        })
    }
}

async fn refused(response: HttpResponse, (url, has_secret): (&str, bool)) -> Outcome {
    let headers = response.headers.clone();
    let mut failure = Failure::read(response).await;
    if !has_secret {
        failure.location = Some(penstock_base::redact::url(url).into_owned());
    }
    Outcome::Refused { failure, headers }
}

#[async_trait]
impl Store for HttpStore {
    fn root(&self) -> &str {
        &self.root
    }

    fn origin(&self) -> Option<String> {
        Some(self.base().to_string())
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
            list: self.hub.is_some(),
            suffix_range: !self.suffixes.are_refused(),
            conditional_put: false,
            conditional_delete: false,
            list_etag: self.hub.is_some(),
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
        if let Some(hub) = &self.hub {
            return hub.list(self, &request).await;
        }
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

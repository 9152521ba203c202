//! Sends requests: picks or opens a connection, and re-sends once when a pooled one proves dead.

use crate::http::body::{HttpBody, Lease};
use crate::http::connect::connect;
use crate::http::connection::Connection;
use crate::http::head::{Framing, Head, framing, keeps_alive};
use crate::http::options::HttpOptions;
use crate::http::pool::{CaFile, Kept, On, Origin, Place, Pool, Slot, Taken, Trust};
use crate::http::proxy::{ProxyChoice, ProxyEnvironment, bare_host, explicit_port, proxy_for};
use crate::http::tls::client_config;
use crate::http::trace::{Trace, Waiting, method_name};
use crate::http::warming::{Coming, Connections, WarmUp};
use crate::{Body, Inflow, Observer, Payload, RequestFault};
use futures_util::future::{Either, join_all, select};
use http::header::{
    ACCEPT_ENCODING, CONTENT_LENGTH, HOST, IF_MATCH, IF_NONE_MATCH, TRANSFER_ENCODING, USER_AGENT,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, Uri};
use penstock_base::door::setting;
use penstock_base::{Error, Kind, Result, Retry};
use rustls::ClientConfig;
use std::collections::HashMap;
use std::io::Write as _;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest wait for a connection that others hold, in stall times, where nobody says.
const SLOT_WAIT_STALLS: u32 = 10;

/// The head of an answer, and its body as it is asked for.
#[derive(Debug)]
pub struct HttpResponse {
    /// HTTP status.
    pub status: u16,
    /// All headers.
    pub headers: HeaderMap,
    /// The bytes.
    pub body: Body,
}

/// An HTTP/1.1 client. Clones share their connections.
#[derive(Clone, Debug)]
pub struct HttpClient {
    shared: Arc<Shared>,
    observer: Arc<dyn Observer>,
    proxy: Arc<ProxyChoice>,
    trust: Trust,
}

#[derive(Debug)]
struct Shared {
    options: HttpOptions,
    environment: ProxyEnvironment,
    pool: Arc<Pool>,
    /// Made at the first https request: reading the system's certificates takes milliseconds.
    tls: Arc<Mutex<HashMap<Trust, Arc<ClientConfig>>>>,
}

impl HttpClient {
    /// A client; `observer` hears of every request.
    ///
    /// # Errors
    /// `Invalid` or `Unsupported` for a malformed proxy in the environment.
    pub fn new(options: HttpOptions, observer: Arc<dyn Observer>) -> Result<Self> {
        let environment = match options.proxy {
            ProxyChoice::Environment => ProxyEnvironment::read(|name| std::env::var(name).ok())?,
            _ => ProxyEnvironment::default(),
        };
        Ok(HttpClient {
            proxy: Arc::new(options.proxy.clone()),
            trust: Trust {
                verify: options.verify_tls,
                ca_file: options.ca_file.as_deref().map(CaFile::of_setting),
            },
            observer,
            shared: Arc::new(Shared {
                pool: Arc::new(Pool::new(options.connections_per_host)),
                environment,
                tls: Arc::default(),
                options,
            }),
        })
    }

    /// The same client with another observer.
    #[must_use]
    pub fn with_observer(&self, observer: Arc<dyn Observer>) -> Self {
        HttpClient { observer, ..self.clone() }
    }

    /// The same client over connections of its own, at most so many to each host.
    #[must_use]
    pub fn apart(&self, connections_per_host: usize) -> Self {
        let shared = Shared {
            options: HttpOptions { connections_per_host, ..self.shared.options.clone() },
            environment: self.shared.environment.clone(),
            pool: Arc::new(Pool::new(connections_per_host)),
            tls: Arc::clone(&self.shared.tls),
        };
        HttpClient { shared: Arc::new(shared), ..self.clone() }
    }

    /// The same client with another proxy.
    #[must_use]
    pub fn with_proxy(&self, proxy: ProxyChoice) -> Self {
        HttpClient { proxy: Arc::new(proxy), ..self.clone() }
    }

    /// The same client with certificates checked or not.
    #[must_use]
    pub fn with_verify_tls(&self, verify: bool) -> Self {
        HttpClient { trust: Trust { verify, ..self.trust.clone() }, ..self.clone() }
    }

    /// The same client with another PEM file of certificate authorities, that of the option
    /// `ca_cert_file`.
    #[must_use]
    pub fn with_ca_file(&self, path: &Path) -> Self {
        let ca_file = Some(CaFile { path: Arc::from(path), is_option: true });
        HttpClient { trust: Trust { ca_file, ..self.trust.clone() }, ..self.clone() }
    }

    /// Sends one request and reads the head of the answer, whatever its status.
    ///
    /// `request.uri` is absolute. `Host`, `Content-Length`, `User-Agent` and `Accept-Encoding` are
    /// added where they are missing. A request that met a dead pooled connection is sent once more
    /// on a new one, if that is safe; everything else is left to the engine.
    ///
    /// # Errors
    /// `Unavailable` when no answer came, `Corrupt` when it is none of HTTP, `Invalid` for a
    /// request that cannot be sent. Operation and object are left for the caller to name.
    pub async fn send(&self, mut request: Parts, payload: Payload) -> Result<HttpResponse> {
        let told = (self.shared.options.user_agent.as_str(), payload.len());
        let mut trace = Trace::start(self.observer.clone(), &mut request, told);
        let answer = self.send_traced(&request, &payload, &mut trace).await;
        self.respond(answer, RequestFault::Service, &request, trace)
    }

    /// As [`HttpClient::send`], with a body that is sent on while it comes in. It is sent once,
    /// whatever happens; a connection that broke off in it is closed, so that no server can take
    /// what it got for the whole.
    ///
    /// # Errors
    /// As [`HttpClient::send`], and the body's own.
    pub async fn send_flow(
        &self,
        mut request: Parts,
        mut body: Box<dyn Inflow>,
    ) -> Result<HttpResponse> {
        let told = (self.shared.options.user_agent.as_str(), body.size_bytes());
        let mut trace = Trace::start(self.observer.clone(), &mut request, told);
        let mut fault = RequestFault::Service;
        let sent = async {
            let origin = self.origin(&request.uri)?;
            let head_bytes = self.encode_head(&request, body.size_bytes(), &origin)?;
            let slot = self.slot(origin).await?;
            let kept = self.kept(&slot).await;
            trace.connected(kept.is_none());
            let mut connection = match kept {
                Some(kept) => kept.connection,
                None => self.connect(&slot.origin).await?,
            };
            let answer = connection.exchange_flow(&head_bytes, &mut *body).await;
            let answer = answer.map_err(|failed| {
                fault = failed.fault;
                failed.error
            })?;
            self.leased(&request, answer, connection, slot)
        };
        let answer = sent.await;
        self.respond(answer, fault, &request, trace)
    }

    fn respond(
        &self,
        answer: Result<(Head, Framing, Lease)>,
        fault: RequestFault,
        request: &Parts,
        mut trace: Trace,
    ) -> Result<HttpResponse> {
        match answer {
            Ok((head, framing, lease)) => {
                trace.answered(head.status, &head.headers);
                let operation = method_name(&request.method);
                let body = HttpBody::new(lease, framing, trace, operation);
                let body = Body::Http(Box::new(body));
                Ok(HttpResponse { status: head.status, headers: head.headers, body })
            }
            Err(error) => {
                trace.fail(fault, &error.to_string());
                Err(error)
            }
        }
    }

    async fn slot(&self, origin: Origin) -> Result<Slot> {
        let options = &self.shared.options;
        let limit = options.slot_timeout.unwrap_or(options.stall_timeout * SLOT_WAIT_STALLS);
        let waiting = self.shared.pool.slot(origin, || Waiting::begin(&*self.observer));
        tokio::time::timeout(limit, waiting).await.map_err(|_| self.no_slot())
    }

    async fn send_traced(
        &self,
        request: &Parts,
        payload: &Payload,
        trace: &mut Trace,
    ) -> Result<(Head, Framing, Lease)> {
        let origin = self.origin(&request.uri)?;
        let head_bytes = self.encode_head(request, payload.len(), &origin)?;
        let slot = self.slot(origin).await?;
        let pool = &self.shared.pool;
        // Of a request with a body the time would be the body's.
        let since = payload.is_empty().then(Instant::now);
        let after = || since.map(|since| since.elapsed());
        if let Some(Kept { mut connection, is_fresh }) = self.kept(&slot).await {
            trace.connected(false);
            match connection.exchange(&head_bytes, &payload.0).await {
                Ok(answer) => {
                    if is_fresh || since.is_some() {
                        let on = if is_fresh { On::Fresh } else { On::Used };
                        pool.note_answer(&slot, on, after());
                    }
                    return self.leased(request, answer, connection, slot);
                }
                // The usual reason: the server gave the connection up just as the request left.
                Err(failed) if !failed.answered && may_resend(request) => {}
                Err(failed) if !failed.answered => return Err(stale(failed.error)),
                Err(failed) => return Err(failed.error),
            }
        }
        trace.connected(true);
        let mut connection = self.connect(&slot.origin).await?;
        match connection.exchange(&head_bytes, &payload.0).await {
            Ok(answer) => {
                pool.note_answer(&slot, On::New, after());
                self.leased(request, answer, connection, slot)
            }
            Err(failed) if failed.hung_up && !pool.has_answered(&slot.origin) => {
                Err(never_http(failed.error, &slot.origin))
            }
            Err(failed) => Err(failed.error),
        }
    }

    /// A connection that stands, or comes before an own one could.
    async fn kept(&self, slot: &Slot) -> Option<Kept> {
        let Coming { mut arrival, until } = match self.shared.pool.take(slot) {
            Taken::Kept(kept) => return Some(kept),
            Taken::Coming(coming) => coming,
            Taken::Nothing => {
                self.shared.pool.make_room(slot);
                return None;
            }
        };
        let left = until.saturating_duration_since(Instant::now());
        let came = tokio::time::timeout(left, &mut arrival).await;
        arrival.close();
        // It may have come at the last moment.
        let connection = came.map_or_else(|_| arrival.try_recv().ok(), Result::ok);
        let kept = connection.map(|connection| Kept { connection, is_fresh: true });
        let kept = kept.and_then(|mut kept| kept.connection.is_idle().then_some(kept));
        if kept.is_none() {
            self.shared.pool.make_room(slot);
        }
        kept
    }

    /// Whether the server of a URL has ever answered in HTTP.
    pub(crate) fn has_answered(&self, url: &str) -> bool {
        let origin = url.parse().ok().and_then(|uri| self.origin(&uri).ok());
        origin.is_some_and(|origin| self.shared.pool.has_answered(&origin))
    }

    /// What is known of the connections to the server of a URL.
    pub fn connections(&self, url: &str) -> Connections {
        let origin = url.parse().ok().and_then(|uri| self.origin(&uri).ok());
        origin.map_or_else(Connections::default, |origin| self.shared.pool.connections(&origin))
    }

    /// Opens connections to the server of a URL until `count` are idle or being opened, no more
    /// than there may be of one host: how many are missing is seen now, and the future, if any,
    /// opens them. What fails is the observer's to hear: the request that needs a connection opens
    /// one then, and tells its own error. A request that finds none idle waits for one that is
    /// being opened. Dropping the future ends those.
    pub fn warm(&self, url: &str, count: usize) -> Option<WarmUp> {
        let origin = self.origin(&url.parse().ok()?).ok()?;
        let places = self.shared.pool.begin(origin, count);
        if places.is_empty() {
            return None;
        }
        let client = self.clone();
        Some(Box::pin(async move {
            client.shared.pool.sweep(client.shared.options.idle_timeout);
            join_all(places.into_iter().map(|place| client.open_ahead(place))).await;
        }))
    }

    async fn open_ahead(&self, mut place: Place) {
        let origin = Arc::clone(&place.origin);
        let ended = {
            let connecting = pin!(self.connect(&origin));
            let stopped = pin!(place.stopped());
            match select(connecting, stopped).await {
                Either::Left((ended, _)) => ended,
                Either::Right(_) => return,
            }
        };
        self.observer.connection_warmed(ended.is_ok());
        if let Ok(connection) = ended {
            place.ready(connection, self.shared.options.idle_timeout);
        }
    }

    fn no_slot(&self) -> Error {
        let count = self.shared.options.connections_per_host;
        Error::new(Kind::Exhausted, format!("all {count} connections to the host stay in use"))
            .with_hint(format!(
                "Raise {}, or read fewer files at once",
                setting("connections_per_host")
            ))
    }

    fn leased(
        &self,
        request: &Parts,
        (head, sent_whole): (Head, bool),
        connection: Connection,
        slot: Slot,
    ) -> Result<(Head, Framing, Lease)> {
        let framing = framing(&request.method, &head)?;
        let reusable = sent_whole && keeps_alive(&head, framing);
        let idle_limit = reusable.then(|| self.idle_limit(&head.headers));
        let pool = self.shared.pool.clone();
        Ok((head, framing, Lease { connection, slot, pool, idle_limit }))
    }

    /// The own limit, or a second less than the server's where it tells (`Keep-Alive: timeout=5`).
    fn idle_limit(&self, headers: &HeaderMap) -> Duration {
        let own = self.shared.options.idle_timeout;
        let told = headers
            .get("keep-alive")
            .and_then(|value| value.to_str().ok())
            .and_then(|text| text.split(',').find_map(|word| word.trim().strip_prefix("timeout=")))
            .and_then(|seconds| seconds.trim().parse::<u64>().ok());
        told.map_or(own, |seconds| own.min(Duration::from_secs(seconds.saturating_sub(1))))
    }

    async fn connect(&self, origin: &Origin) -> Result<Connection> {
        let options = &self.shared.options;
        let tls = origin.trust.as_ref().map(|trust| self.tls(trust)).transpose()?;
        let has_answered = self.shared.pool.has_answered(origin);
        let since = Instant::now();
        let connecting =
            connect(origin, tls, options.connect_timeout, options.stall_timeout, has_answered);
        let connection = connecting.await?;
        self.shared.pool.note_connect(origin, since.elapsed());
        Ok(connection)
    }

    fn tls(&self, trust: &Trust) -> Result<Arc<ClientConfig>> {
        // Held while certificates are read, so that requests at the start read them once.
        let mut made = self.shared.tls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = made.get(trust) {
            return Ok(config.clone());
        }
        let config = client_config(trust.ca_file.as_ref(), trust.verify)?;
        made.insert(trust.clone(), config.clone());
        Ok(config)
    }

    fn origin(&self, uri: &Uri) -> Result<Origin> {
        let is_https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(invalid("a request needs an http or https URL")),
        };
        let host = bare_host(uri.host().unwrap_or_default()).to_ascii_lowercase();
        if host.is_empty() {
            return Err(invalid("the URL has no host"));
        }
        let port = uri.authority().map(explicit_port).transpose()?.flatten();
        Ok(Origin {
            port: port.unwrap_or(if is_https { 443 } else { 80 }),
            proxy: proxy_for(&self.proxy, &self.shared.environment, uri).cloned(),
            trust: is_https.then(|| self.trust.clone()),
            host,
        })
    }

    /// Request line and headers as bytes.
    fn encode_head(&self, request: &Parts, size_bytes: u64, origin: &Origin) -> Result<Vec<u8>> {
        let headers = &request.headers;
        let mut head = Vec::with_capacity(1024);
        let path = request.uri.path_and_query().map_or("/", |path| path.as_str());
        let path = if path.is_empty() { "/" } else { path };
        let authority = match (origin.is_https(), origin.port) {
            (true, 443) | (false, 80) => origin.host_for_header(),
            (_, port) => format!("{}:{port}", origin.host_for_header()),
        };
        let proxy = origin.proxy.as_ref().filter(|_| !origin.is_https());
        // A proxy wants the whole URL of a plain request (RFC 9112 section 3.2.2).
        let target = if proxy.is_some() { format!("http://{authority}") } else { String::new() };
        let put = |head: &mut Vec<u8>, name: &str, value: &[u8]| {
            head.extend_from_slice(name.as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value);
            head.extend_from_slice(b"\r\n");
        };
        // Writing into a Vec cannot fail.
        let _ = write!(head, "{} {target}{path} HTTP/1.1\r\n", request.method);
        if !headers.contains_key(HOST) {
            put(&mut head, "Host", authority.as_bytes());
        }
        if let Some(authorization) = proxy.and_then(|proxy| proxy.authorization.as_ref()) {
            put(&mut head, "Proxy-Authorization", authorization.reveal().as_bytes());
        }
        if !headers.contains_key(USER_AGENT) {
            put(&mut head, "User-Agent", self.shared.options.user_agent.as_bytes());
        }
        // The sizes and ranges of a packed body are not those of the object.
        if !headers.contains_key(ACCEPT_ENCODING) {
            put(&mut head, "Accept-Encoding", b"identity");
        }
        let has_body =
            size_bytes > 0 || matches!(request.method, Method::PUT | Method::POST | Method::PATCH);
        for (name, value) in headers {
            if name == TRANSFER_ENCODING {
                return Err(invalid("requests are sent with a Content-Length only"));
            }
            if name != CONTENT_LENGTH {
                put(&mut head, name.as_str(), value.as_bytes());
            }
        }
        if has_body {
            put(&mut head, "Content-Length", size_bytes.to_string().as_bytes());
        }
        head.extend_from_slice(b"\r\n");
        if head.contains(&0) {
            return Err(invalid("a request header holds a zero byte"));
        }
        Ok(head)
    }
}

/// Whether sending a request twice does the same as sending it once. A conditional write is not
/// among them: its second copy would fail on what the first one wrote. Google ties writes to
/// generations by headers of its own.
fn may_resend(request: &Parts) -> bool {
    let is_conditional = |name: &HeaderName| {
        *name == IF_MATCH || *name == IF_NONE_MATCH || name.as_str().starts_with("x-goog-if-")
    };
    match request.method {
        Method::GET | Method::HEAD => true,
        Method::PUT | Method::DELETE => !request.headers.keys().any(is_conditional),
        _ => false,
    }
}

fn stale(cause: Error) -> Error {
    Error::new(Kind::Unavailable, "a kept connection was closed before any byte of the answer")
        .with_retry(Retry::BackOff)
        .with_source(cause)
}

/// A server that hangs up on the first request it ever got from here may be none of HTTP: databases
/// do so.
fn never_http(cause: Error, origin: &Origin) -> Error {
    let place = match origin.proxy.as_ref().filter(|_| !origin.is_https()) {
        Some(proxy) => format!("the proxy {}:{} ({})", proxy.host, proxy.port, proxy.named_by),
        None => format!("{}:{}", origin.host_for_header(), origin.port),
    };
    cause.with_retry(Retry::Briefly).with_hint(format!(
        "{place} has not answered a request yet: is it the store's port, or another service's?"
    ))
}

fn invalid(message: &str) -> Error {
    Error::new(Kind::Invalid, message)
}

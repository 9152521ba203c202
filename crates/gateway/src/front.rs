//! What every request passes first and every answer last: the gateway's own pages, the limits, the
//! request id, the count.

use crate::chunks::{self, set_aside};
use crate::claims::{self, Kept};
use crate::cors::Question;
use crate::documents::{self, DOCUMENT_BYTES_MAX};
use crate::exchange::{Exchange, Ledger};
use crate::forms::{form_units, is_form, put_of};
use crate::hosts::Hosts;
use crate::keys::KeyRing;
use crate::notices::Limit;
use crate::observed::{Inbound, Outbound};
use crate::pages::Pages;
use crate::proxies::Proxies;
use crate::ready::Readiness;
use crate::receive::DECODED_CONTENT_LENGTH;
use crate::rest::{self, Rest};
use crate::stats::Stats;
use crate::telemetry::{Refused, Telemetry};
use crate::{absent, cause, error, heads, late, query, refuse, v2, v4, words, xml_text};
use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, EXPECT,
};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use hyper::body::{Body as _, Incoming};
use penstock_base::settings::ServeSettings;
use s3s::service::S3Service;
use s3s::{HttpError, S3Error, S3ErrorCode, S3Result, s3_error};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::Semaphore;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
/// What clients told to slow down wait at least.
const BUSY_WAIT: Duration = Duration::from_secs(1);
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What the front holds requests to.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub body_size_max_bytes: u64,
    pub client_stall_timeout: Duration,
    pub signature_v2: bool,
    pub form_size_max_bytes: u64,
    /// Room for forms that are held.
    pub forms: Arc<Semaphore>,
    /// Room for documents that are held.
    pub documents: Arc<Semaphore>,
}

impl Limits {
    pub fn new(settings: &ServeSettings) -> Self {
        Limits {
            body_size_max_bytes: settings.body_size_max_bytes,
            client_stall_timeout: Duration::from_millis(settings.client_stall_timeout_ms),
            signature_v2: settings.signature_v2_enabled,
            form_size_max_bytes: settings.form_size_max_bytes,
            forms: Arc::new(Semaphore::new(form_units(settings.form_size_max_bytes))),
            documents: Arc::new(Semaphore::new(documents::UNITS_MAX)),
        }
    }
}

/// Everything a connection needs.
#[derive(Clone)]
pub(crate) struct Front {
    pub s3: S3Service,
    pub stats: Arc<Stats>,
    pub ledger: Ledger,
    pub readiness: Arc<Readiness>,
    pub limits: Arc<Limits>,
    pub ring: Arc<KeyRing>,
    pub pages: Arc<Pages>,
    pub hosts: Arc<Hosts>,
    pub proxies: Arc<Proxies>,
    /// Whether there is a port for operators, which then has what is theirs alone.
    pub has_admin: bool,
    /// Places of requests at work.
    pub places: Arc<Semaphore>,
}

impl Front {
    pub fn telemetry(&self) -> &Arc<Telemetry> {
        &self.ledger.telemetry
    }

    /// Answers a request on the S3 port.
    pub async fn answer(
        self,
        peer: SocketAddr,
        request: Request<Incoming>,
    ) -> Result<Response<Outbound>, HttpError> {
        if let Some(page) = self.own_page(peer, &request).await {
            return Ok(closed_if(self.readiness.is_draining(), page));
        }
        self.stats.request(request.method().as_str());
        let client = self.proxies.client(peer.ip(), request.headers());
        let exchange = Exchange::begin(&self.ledger, client, &request);
        let kept = Kept::of(&request, &self.hosts);
        let closes = expects_and_sends_nothing(&request) || self.readiness.is_draining();
        let (response, place) = match self.places.clone().try_acquire_owned() {
            Ok(place) => (self.s3_answer(&exchange, request).await?, Some(place)),
            Err(_) => {
                self.telemetry().refused(Refused::Busy);
                let why = "The gateway is at its limit of requests at work.";
                (unheard(refusal(error::slow_down(why, BUSY_WAIT))?, request), None)
            }
        };
        let mut response = late::begun(xml_text::referred(words::told(response)));
        if response.status() == StatusCode::NOT_IMPLEMENTED {
            *response.status_mut() = refuse::absent_status(kept.query());
        }
        if let Some((code, message)) = cause::told(&response) {
            self.say_whose(&exchange, &kept, &code);
            exchange.refused(code, message);
        }
        // In a drain the client's next request so finds another replica.
        let response = closed_if(closes, with_id(response, exchange.id()));
        let status = response.status().as_u16();
        Ok(response.map(|body| Outbound::of(body, exchange, status, place)))
    }

    /// Says which key a request named that was refused for its signature.
    fn say_whose(&self, exchange: &Exchange, kept: &Kept, code: &str) {
        if claims::is_about_signature(code)
            && let Some(words) = exchange.unverified(kept.claim(), &self.ring)
        {
            let words = format!("{code}: {words}");
            self.telemetry().notices.say_within(Limit::Signatures, "signature", &words);
        }
    }

    async fn s3_answer(
        &self,
        exchange: &Arc<Exchange>,
        request: Request<Incoming>,
    ) -> Result<Response<s3s::Body>, HttpError> {
        let admitted = match self.refused(&request, exchange.time()) {
            None => self.verified_v2(&request),
            Some(error) => Err(error),
        };
        let slashed = match admitted {
            Ok(slashed) => slashed,
            Err(error) => return Ok(unheard(refusal(error)?, request)),
        };
        let is_awaited = request.headers().contains_key(EXPECT);
        let (stall_timeout, rest) = (self.limits.client_stall_timeout, Rest::default());
        let mut request = request.map(|body| {
            // A body that is not there needs no watching.
            match body.is_end_stream() {
                true => s3s::Body::from(body),
                false => {
                    let (exchange, rest) = (exchange.clone(), rest.clone());
                    s3s::Body::http_body(Inbound::new(body, exchange, stall_timeout, rest))
                }
            }
        });
        request.extensions_mut().insert(exchange.clone());
        if let Some(uri) = slashed {
            *request.uri_mut() = uri;
        }
        let response = exchange.scope(self.of_a_page(exchange, request)).await?;
        // What of a body nobody read stands before the next request: a client that is not told so
        // sends that one to a connection that is being closed.
        Ok(closed_if(!rest.is_drained(is_awaited).await, response))
    }

    /// Answers a request that may come from a page of another origin.
    async fn of_a_page(
        &self,
        exchange: &Exchange,
        request: Request<s3s::Body>,
    ) -> Result<Response<s3s::Body>, HttpError> {
        let question = Question::of(request.method(), request.headers());
        let path = self.hosts.full_path(request.headers(), request.uri().path());
        if *request.method() == Method::OPTIONS {
            // Nobody signs these, and most of them cost a request to the back end.
            let answer = match self.ring.charge_public(self.telemetry()) {
                Ok(()) => self.pages.preflight(question, &path).await,
                Err(error) => Err(error),
            };
            return answer.or_else(refusal);
        }
        let mut response = self.put_or_call(request, &path, exchange.time()).await?;
        if let Some(question) = question {
            // What was refused before anybody was charged for it costs such a request too; what was
            // told to slow down costs none.
            let may_ask = exchange.is_charged().unwrap_or_else(|| self.ring.spares_public());
            self.pages.mark(&question, &path, may_ask, response.headers_mut()).await;
        }
        Ok(response)
    }

    /// A form is the PutObject that it means. `path` has the bucket in front.
    async fn put_or_call(
        &self,
        request: Request<s3s::Body>,
        path: &str,
        now: SystemTime,
    ) -> Result<Response<s3s::Body>, HttpError> {
        if !is_form(&request) {
            // s3s knows not all of them, and tells of those no name.
            if *request.method() == Method::POST {
                let query = request.uri().query().unwrap_or_default();
                let place = absent::place_of(path);
                if let Some(error) = absent::by_request(request.method(), place, query) {
                    return refusal(error);
                }
            }
            let query = request.uri().query().unwrap_or_default();
            let is_document = documents::is_document(request.method(), path, query);
            let room = &self.limits.documents;
            let (mut request, verdict) = match documents::judged(request, path, room) {
                Ok(judged) => judged,
                Err(error) => return refusal(error),
            };
            let mismatch = v4::mend(&mut request, &self.ring);
            let is_head = *request.method() == Method::HEAD;
            let request = if is_document { request } else { set_aside(request) };
            let mut response = match v4::with_words(self.s3.call(request).await?, mismatch) {
                Ok(response) => response,
                Err(error) => return refusal(error),
            };
            // s3s knows one status only of a HEAD that went well.
            if is_head
                && response.headers().contains_key(CONTENT_RANGE)
                && response.status() == StatusCode::OK
            {
                *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            }
            return match (verdict.take(), is_unread(&response)) {
                (Some(error), _) => refusal(self.counted(error, Refused::Documents)),
                (None, true) => refusal(unread()),
                (None, false) => Ok(response),
            };
        }
        if chunks::is_chunked(request.headers()) {
            return refusal(s3_error!(
                InvalidRequest,
                "a form in chunks (x-amz-content-sha256: STREAMING-...): they would be kept with \
                 the object; send the form as it is"
            ));
        }
        match put_of(request, &self.hosts, &self.ring, &self.limits, now).await {
            Ok((put, form)) => Ok(form.told(self.s3.call(put).await?)),
            Err(error) => refusal(self.counted(error, Refused::Forms)),
        }
    }

    /// Counts a request that is told to slow down for this reason, and leaves other errors alone.
    fn counted(&self, error: S3Error, reason: Refused) -> S3Error {
        if *error.code() == S3ErrorCode::SlowDown {
            self.telemetry().refused(reason);
        }
        error
    }

    /// Verifies a signature of version 2; a form bears its own in itself. The URI is the one that
    /// was signed, where that is another.
    fn verified_v2(&self, request: &Request<Incoming>) -> S3Result<Option<Uri>> {
        match is_form(request) {
            true => Ok(None),
            false => v2::verified(request, &self.hosts, &self.ring),
        }
    }

    /// Why a request is not looked at further.
    fn refused(&self, request: &Request<Incoming>, now: SystemTime) -> Option<S3Error> {
        // The second is what comes of chunks, which is all that is told of the length of some.
        let told = |name: &str| request.headers().get(name)?.to_str().ok()?.parse::<u64>().ok();
        let names = [CONTENT_LENGTH.as_str(), DECODED_CONTENT_LENGTH];
        let length = names.into_iter().filter_map(told).max().unwrap_or(0);
        // Every POST but a form carries XML, which s3s holds whole.
        if request.method() == Method::POST
            && !is_form(request)
            && length > DOCUMENT_BYTES_MAX as u64
        {
            return Some(documents::too_long());
        }
        if length > self.limits.body_size_max_bytes {
            let most = self.limits.body_size_max_bytes;
            return Some(s3_error!(EntityTooLarge, "This gateway takes at most {most} bytes."));
        }
        if !self.limits.signature_v2 && is_signed_v2(request) {
            let why = "The authorization mechanism you have provided is not supported. Please use \
                       AWS4-HMAC-SHA256. (Version 2 is off: signature_v2_enabled.)";
            return Some(s3_error!(InvalidRequest, "{why}"));
        }
        heads::fault(request, now)
    }

    /// The pages that every port has: they tell load balancers no more than yes or no. The counters
    /// are among them where there is no other port.
    async fn own_page<B>(
        &self,
        peer: SocketAddr,
        request: &Request<B>,
    ) -> Option<Response<Outbound>> {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        if !is_read || self.hosts.bucket(request.headers()).is_some() {
            return None;
        }
        match request.uri().path() {
            "/healthz" => Some(text(StatusCode::OK, "text/plain", "ok\n".into())),
            "/readyz" => {
                let (is_ready, why) = self.readiness.ask().await;
                let status =
                    if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                Some(text(status, "text/plain", why))
            }
            "/_penstock/stats" if !self.has_admin => Some(self.stats_to(peer)),
            _ => None,
        }
    }

    /// Answers a request on the admin port.
    pub async fn admin_answer(
        self,
        peer: SocketAddr,
        request: Request<Incoming>,
    ) -> Result<Response<Outbound>, HttpError> {
        if let Some(page) = self.own_page(peer, &request).await {
            return Ok(page);
        }
        Ok(match (request.method(), request.uri().path()) {
            (&Method::GET, "/metrics") => {
                let engine = self.pages.buckets.engine_metrics();
                let page = self.telemetry().page(engine, &self.stats.snapshot());
                text(StatusCode::OK, PROMETHEUS, page)
            }
            // What /metrics has of them too.
            (&Method::GET, "/_penstock/stats") => self.stats_page(),
            _ => {
                let pages = "/metrics, /healthz, /readyz, /_penstock/stats\n".to_string();
                text(StatusCode::NOT_FOUND, "text/plain", pages)
            }
        })
    }

    /// The counters, to this machine only: they tell of the traffic of others.
    fn stats_to(&self, peer: SocketAddr) -> Response<Outbound> {
        if !peer.ip().to_canonical().is_loopback() {
            let refusal = "statistics are told to this machine only\n".to_string();
            return text(StatusCode::FORBIDDEN, "text/plain", refusal);
        }
        self.stats_page()
    }

    fn stats_page(&self) -> Response<Outbound> {
        match serde_json::to_string(&self.stats.snapshot()) {
            Ok(json) => text(StatusCode::OK, "application/json", json),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", error.to_string()),
        }
    }
}

fn refusal(error: S3Error) -> Result<Response<s3s::Body>, HttpError> {
    error.to_http_response().map_err(|error| HttpError::new(Box::new(error)))
}

/// An answer that says, where it is the last one, that its connection closes.
fn closed_if<B>(is_last: bool, mut response: Response<B>) -> Response<B> {
    if is_last {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// An answer to a request of whose body nothing was read, and nothing will be.
fn unheard(response: Response<s3s::Body>, request: Request<Incoming>) -> Response<s3s::Body> {
    let is_unread = !request.body().is_end_stream();
    let response = closed_if(is_unread, response);
    if is_unread {
        // Who waits for `100 Continue` sends nothing yet, and would if somebody read.
        if !request.headers().contains_key(EXPECT) {
            rest::linger(request.into_body());
        }
    }
    response
}

/// Whether s3s could not read the body of a request that it takes whole: it says so without a word
/// of why, as nothing else does.
fn is_unread(response: &Response<s3s::Body>) -> bool {
    let is_mute = |xml: Bytes| !xml.windows(9).any(|part| part == b"<Message>");
    response.status() == StatusCode::INTERNAL_SERVER_ERROR
        && response.body().bytes().is_some_and(is_mute)
}

fn unread() -> S3Error {
    let code = S3ErrorCode::Custom("XAmzContentSHA256Mismatch".into());
    let why = "The body of this request is not what its head says: its length, or its \
               x-amz-content-sha256.";
    let mut error = S3Error::with_message(code, why);
    error.set_status_code(StatusCode::BAD_REQUEST);
    error
}

/// Whether a request waits for `100 Continue` and has no body. No such word is sent then, and
/// clients on botocore take the status line of the answer, which they read early, for that of the
/// next one on the connection as well: it must have no next one.
fn expects_and_sends_nothing(request: &Request<Incoming>) -> bool {
    request.headers().contains_key(EXPECT) && request.body().is_end_stream()
}

/// Whether version 2 signs this request, in its header or its URL.
fn is_signed_v2<B>(request: &Request<B>) -> bool {
    let header = request.headers().get(AUTHORIZATION);
    let in_header = header.is_some_and(|value| value.as_bytes().starts_with(b"AWS "));
    let mut pairs = query::pairs(request.uri().query().unwrap_or_default());
    in_header || pairs.any(|pair| pair.0 == "AWSAccessKeyId")
}

/// Names the request in the answer's head, and in its body where that is an error.
fn with_id(mut response: Response<s3s::Body>, id: &str) -> Response<s3s::Body> {
    const END: &[u8] = b"</Error>";
    if let Ok(value) = HeaderValue::from_str(id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    if response.status().as_u16() < 400 {
        return with_bare_tag(response);
    }
    if let Some(xml) = response.body().bytes()
        && let Some(before) = xml.strip_suffix(END)
    {
        let told = [before, b"<RequestId>", id.as_bytes(), b"</RequestId>", END].concat();
        response.headers_mut().remove(CONTENT_LENGTH);
        *response.body_mut() = s3s::Body::from(Bytes::from(told));
    }
    response
}

/// The one answer in whose XML S3 writes the tag without its quotes.
fn with_bare_tag(mut response: Response<s3s::Body>) -> Response<s3s::Body> {
    const ROOT: &[u8] = b"<GetObjectAttributesResponse";
    let Some(xml) = response.body().bytes() else { return response };
    let head = &xml[..xml.len().min(128)];
    if !head.windows(ROOT.len()).any(|window| window == ROOT) {
        return response;
    }
    let text = String::from_utf8_lossy(&xml);
    let bare = ["&quot;", "\""].iter().fold(text.into_owned(), |text, quote| {
        let text = text.replace(&format!("<ETag>{quote}"), "<ETag>");
        text.replace(&format!("{quote}</ETag>"), "</ETag>")
    });
    response.headers_mut().remove(CONTENT_LENGTH);
    *response.body_mut() = s3s::Body::from(Bytes::from(bare));
    response
}

fn text(status: StatusCode, media_type: &'static str, body: String) -> Response<Outbound> {
    let mut response = Response::new(Outbound::plain(s3s::Body::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_request_twice() {
        let error = s3_error!(NoSuchKey, "gone");
        let named = with_id(error.to_http_response().unwrap(), "AB12");
        assert_eq!(named.headers()["x-amz-request-id"], "AB12");
        let body = named.body().bytes().unwrap();
        let text = std::str::from_utf8(&body).unwrap();
        assert!(text.ends_with("<RequestId>AB12</RequestId></Error>"), "{text}");
    }

    #[test]
    fn version_2_is_recognised_wherever_it_signs() {
        let request = |uri: &str, header: Option<&str>| {
            let mut builder = Request::builder().uri(uri);
            if let Some(header) = header {
                builder = builder.header("authorization", header);
            }
            builder.body(()).unwrap()
        };
        assert!(is_signed_v2(&request("/b/k", Some("AWS K:sig"))));
        assert!(is_signed_v2(&request("/b/k?Expires=1&AWSAccessKeyId=K&Signature=s", None)));
        assert!(is_signed_v2(&request("/b/k?Expires=1&%41WSAccessKeyId=K&Signature=s", None)));
        assert!(!is_signed_v2(&request("/b/k", Some("AWS4-HMAC-SHA256 Credential=K"))));
        assert!(!is_signed_v2(&request("/b/AWSAccessKeyId=?prefix=AWSAccessKeyId", None)));
    }
}

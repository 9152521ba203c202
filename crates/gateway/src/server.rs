//! Accepts connections, answers the gateway's own endpoints, hands the rest to S3, and drains.

use crate::metered::Metered;
use crate::stats::Stats;
use http::{Method, Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use penstock_base::{Error, Kind, Result};
use s3s::service::S3Service;
use s3s::{HttpError, s3_error};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Longest time for a request's head, and for the next request on a connection that is kept.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Most connections at once; further ones wait in the kernel's queue. Each may hold the buffers of
/// one body.
const CONNECTIONS_MAX: usize = 4096;
/// Wait after an accept that failed for want of descriptors, so that closing ones free some.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Everything a connection needs.
#[derive(Clone)]
pub(crate) struct Front {
    pub s3: S3Service,
    pub stats: Arc<Stats>,
}

/// Binds `listen` (`HOST:PORT`).
///
/// # Errors
/// `Invalid` for an address that cannot be parsed or resolved, `Conflict` for a port in use,
/// `Denied` for one that needs rights.
pub(crate) async fn bind(listen: &str) -> Result<TcpListener> {
    TcpListener::bind(listen).await.map_err(|cause| {
        let (kind, hint) = match cause.kind() {
            std::io::ErrorKind::AddrInUse => (
                Kind::Conflict,
                "Another process listens there: stop it, or choose another port (0 takes a free one)",
            ),
            std::io::ErrorKind::PermissionDenied => {
                (Kind::Denied, "Ports below 1024 need rights: choose a higher one")
            }
            _ => (Kind::Invalid, "Give --listen as HOST:PORT with an address of this machine"),
        };
        Error::new(kind, format!("cannot listen on {listen}")).with_source(cause).with_hint(hint)
    })
}

/// Serves until `shutdown` resolves, then lets requests in flight end, for at most `drain`.
pub(crate) async fn run(
    listener: TcpListener,
    front: Front,
    shutdown: impl Future<Output = ()>,
    drain: Duration,
) {
    let graceful = GracefulShutdown::new();
    let mut shutdown = std::pin::pin!(shutdown);
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        tokio::select! {
            (place, accepted) = accept(&listener, &places) => match accepted {
                Ok((stream, peer)) => serve_connection(stream, peer, place, &front, &graceful),
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            () = &mut shutdown => break,
        }
    }
    drop(listener);
    // Past the limit the connections are cut with the runtime; an upload cut so leaves no object.
    tokio::time::timeout(drain, graceful.shutdown()).await.ok();
}

/// A connection, once there is a place for it.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> (Option<OwnedSemaphorePermit>, std::io::Result<(TcpStream, SocketAddr)>) {
    // The semaphore is never closed, so there is always a place in the end.
    let place = places.clone().acquire_owned().await.ok();
    (place, listener.accept().await)
}

fn serve_connection(
    stream: TcpStream,
    peer: SocketAddr,
    place: Option<OwnedSemaphorePermit>,
    front: &Front,
    graceful: &GracefulShutdown,
) {
    front.stats.connection();
    // Without it the last segment of an answer waits for the peer's delayed acknowledgement.
    stream.set_nodelay(true).ok();
    let io = TokioIo::new(Metered::new(stream, front.stats.clone()));
    let front = front.clone();
    let service = service_fn(move |request| answer(front.clone(), peer, request));
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(io, service);
    let connection = graceful.watch(connection);
    tokio::spawn(async move {
        // A connection that breaks is its client's affair, and the client knows.
        connection.await.ok();
        drop(place);
    });
}

async fn answer(
    front: Front,
    peer: SocketAddr,
    request: Request<Incoming>,
) -> Result<Response<s3s::Body>, HttpError> {
    if request.method() == Method::GET {
        match request.uri().path() {
            "/healthz" => return Ok(text(StatusCode::OK, "text/plain", "ok\n".into())),
            "/_penstock/stats" => return Ok(stats(&front, peer)),
            _ => {}
        }
    }
    front.stats.request(request.method().as_str());
    if request.method() == Method::POST && is_too_long(&request) {
        let error = s3_error!(EntityTooLarge, "The XML of this request is longer than 4 MiB.");
        return error.to_http_response().map_err(|error| HttpError::new(Box::new(error)));
    }
    let closes = expects_and_sends_nothing(&request);
    let mut answer = front.s3.call(request.map(s3s::Body::from)).await?;
    if closes {
        let close = http::HeaderValue::from_static("close");
        answer.headers_mut().insert(http::header::CONNECTION, close);
    }
    Ok(answer)
}

/// Whether a request waits for `100 Continue` and has no body. No such word is sent then, and
/// clients on botocore take the status line of the answer, which they read early, for that of the
/// next one on the connection as well: it must have no next one.
fn expects_and_sends_nothing(request: &Request<Incoming>) -> bool {
    request.headers().contains_key(http::header::EXPECT) && request.body().is_end_stream()
}

/// Every POST carries XML, which s3s holds whole.
fn is_too_long(request: &Request<Incoming>) -> bool {
    let length = request.headers().get(http::header::CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    length.is_some_and(|length| length > crate::XML_BYTES_MAX)
}

/// The counters, to this machine only: they tell of the traffic of others.
fn stats(front: &Front, peer: SocketAddr) -> Response<s3s::Body> {
    if !peer.ip().to_canonical().is_loopback() {
        let refusal = "statistics are told to this machine only\n".to_string();
        return text(StatusCode::FORBIDDEN, "text/plain", refusal);
    }
    match serde_json::to_string(&front.stats.snapshot()) {
        Ok(json) => text(StatusCode::OK, "application/json", json),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", error.to_string()),
    }
}

fn text(status: StatusCode, media_type: &'static str, body: String) -> Response<s3s::Body> {
    let mut response = Response::new(s3s::Body::from(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(media_type));
    response
}

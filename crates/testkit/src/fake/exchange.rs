//! One connection, exchange by exchange: read a head, let faults strike, serve, answer.

use super::admin;
use super::bend::{Then, bend, latency, send};
use super::data::Data;
use super::fault::{Action, CONNECT, FaultSpec};
use super::http::wire::Wire;
use super::http::{BodyReader, Request, Response};
use super::refusal::Refusal;
use super::server::{Protocol, Server};
use super::stats::RequestRecord;
use super::{azure, s3};
use bytes::Bytes;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use tokio::net::TcpStream;
use tokio::time::{sleep, sleep_until};

/// What a request is about, before anything is read or done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The service's name of the operation.
    pub operation: &'static str,
    /// Bucket or container; empty for requests about the account.
    pub bucket: String,
    /// Key or blob name, decoded; empty for requests about the bucket.
    pub key: String,
}

/// How an exchange ends.
enum End {
    Answer(Response),
    Close,
    Reset,
}

/// Serves a connection until either side ends it.
pub async fn serve(server: Arc<Server>, stream: TcpStream, serial: u64) {
    let mut wire = Wire::new(stream, server.link.clone(), server.stats.counters.clone(), serial);
    match refuse_connection(&server).await {
        None => {}
        Some(Action::Close) => return wire.finish().await,
        Some(_) => return wire.reset(),
    }
    let mut first = true;
    loop {
        let request = match wire.read_head().await {
            Ok(Ok(Some(request))) => request,
            Ok(Ok(None)) | Err(_) => return,
            Ok(Err(bad)) => {
                let answer = Response::text(bad.0, "text/plain", format!("{}\n", bad.1));
                let head = answer.head(false);
                let _ = wire.send_answer(head, &answer.body.0).await;
                return wire.finish().await;
            }
        };
        if admin::is_admin(&request.path) {
            if administer(&server, &mut wire, &request).await.is_err() {
                return;
            }
            continue;
        }
        match exchange(&server, wire, &request, first).await {
            Some(kept) => wire = kept,
            None => return,
        }
        first = false;
    }
}

/// The fault that ends a connection before its first request.
async fn refuse_connection(server: &Server) -> Option<Action> {
    for fault in server.faults.strike("CONNECT", CONNECT, "", "") {
        if let Action::Stall(longest) = &fault.action {
            sleep(*longest).await;
        }
        if matches!(fault.action, Action::Reset | Action::Close | Action::Stall(_)) {
            server.faults.took_effect(&fault.action);
            return Some(fault.action);
        }
    }
    None
}

async fn administer(server: &Server, wire: &mut Wire, request: &Request) -> io::Result<()> {
    let body = BodyReader::new(wire, request).read_all().await?;
    let answer = admin::answer(server, request, &body);
    wire.send_answer(answer.head(true), &answer.body.0).await
}

fn signed_headers(request: &Request) -> String {
    let authorization = request.headers.get("authorization").unwrap_or_default();
    let behind = authorization.split_once("SignedHeaders=").map_or("", |(_, behind)| behind);
    behind.split(',').next().unwrap_or_default().trim().to_string()
}

/// What a request was signed with, as sent.
fn credential(request: &Request) -> String {
    let header = |name| request.headers.get(name).unwrap_or_default();
    let (authorization, token) = (header("authorization"), header("x-amz-security-token"));
    format!("{authorization} {token} {}", request.query.raw)
}

async fn exchange(server: &Server, mut wire: Wire, request: &Request, first: bool) -> Option<Wire> {
    let begun = Instant::now();
    let _in_flight = server.stats.begin();
    let target = match server.protocol {
        Protocol::S3 => s3::target(request),
        Protocol::Azure => azure::target(request),
    };
    let disarmed = server.faults.disarmed();
    let faults =
        server.faults.strike(&request.method, target.operation, &target.key, &credential(request));
    let mut body = BodyReader::new(&mut wire, request);
    let end = serve_with_faults(server, request, &target, &mut body, &faults).await;
    let mut record = RequestRecord {
        method: request.method.clone(),
        operation: target.operation,
        path: printable_path(request),
        range: asked_range(request),
        traceparent: request.headers.get("traceparent").unwrap_or_default().to_string(),
        signed_headers: signed_headers(request),
        status: 0,
        bytes_in: body.received,
        bytes_out: 0,
        start_us: server.stats.since_begin(begun),
        total_us: 0,
        connection: request.connection,
    };
    let mut answer = match end {
        End::Answer(answer) => answer,
        End::Close => {
            server.stats.answering(begun, record);
            wire.finish().await;
            return None;
        }
        End::Reset => {
            server.stats.answering(begun, record);
            wire.reset();
            return None;
        }
    };
    let ready = body.finish().await;
    record.bytes_in = body.received;
    let shape = bend(&mut answer, &faults, &server.faults);
    let keep = ready && request.keep_alive && !answer.close;
    wait_for_link(server, &wire, first).await;
    if let Some(more) = latency(&faults) {
        disarmed.or_after(more).await;
    }
    record.status = answer.status;
    let place = server.stats.answering(begun, record);
    let sent = send(&mut wire, &answer, keep, &shape).await;
    server.stats.answered(place, sent.as_ref().map_or(0, |sent| sent.body_bytes));
    match sent.map_or(Then::Reset, |sent| sent.then) {
        Then::GoOn => return Some(wire),
        Then::Close => wire.finish().await,
        Then::Reset => wire.reset(),
    }
    None
}

/// The request's effect and answer, unless a fault takes its place.
async fn serve_with_faults(
    server: &Server,
    request: &Request,
    target: &Target,
    body: &mut BodyReader<'_>,
    faults: &[FaultSpec],
) -> End {
    let mut request = std::borrow::Cow::Borrowed(request);
    let mut lost = None;
    for fault in faults {
        if let Some(end) = in_place(server, &request, body, fault).await {
            server.faults.took_effect(&fault.action);
            return end;
        }
        match &fault.action {
            Action::IgnoreRange if request.range().is_some() => {
                request.to_mut().ignores_range = true;
                server.faults.took_effect(&fault.action);
            }
            Action::Replace => {
                replace(server, target);
                server.faults.took_effect(&fault.action);
            }
            Action::LostAnswer => lost = Some(&fault.action),
            _ => {}
        }
    }
    let empty_page = faults.iter().find(|fault| fault.action == Action::EmptyPage);
    if let Some(fault) = empty_page.filter(|_| target.operation.starts_with("List")) {
        server.faults.took_effect(&fault.action);
    }
    let served = match server.protocol {
        Protocol::S3 => s3::serve(server, &request, target, body, empty_page.is_some()).await,
        Protocol::Azure => azure::serve(server, &request, target, body, empty_page.is_some()).await,
    };
    match (served, lost) {
        (Ok(answer), None) => End::Answer(answer),
        (Ok(_), Some(action)) => {
            server.faults.took_effect(action);
            End::Reset
        }
        (Err(_), _) => End::Reset,
    }
}

/// What a fault does in the place of serving the request.
async fn in_place(
    server: &Server,
    request: &Request,
    body: &mut BodyReader<'_>,
    fault: &FaultSpec,
) -> Option<End> {
    Some(match &fault.action {
        Action::Reset => End::Reset,
        Action::Close => End::Close,
        Action::ResetUpload(bytes) => {
            body.cut_after = Some(*bytes);
            // Whether the body was that long or not, the connection is cut.
            let _ = body.read_all().await;
            End::Reset
        }
        Action::Stall(longest) => {
            sleep(*longest).await;
            End::Reset
        }
        Action::Status(status) => instead(request, status_answer(server, *status, fault)),
        Action::Html(status) => instead(request, html(*status)),
        Action::ErrorIn200 => {
            let refusal = Refusal::new(200, "InternalError", "We encountered an internal error");
            instead(request, refusal.s3(&request.path))
        }
        _ => return None,
    })
}

fn status_answer(server: &Server, status: u16, fault: &FaultSpec) -> Response {
    let code = fault.code.clone().unwrap_or_else(|| {
        let code = match (server.protocol, status) {
            (Protocol::S3, 429 | 503) => "SlowDown",
            (Protocol::S3, 403) => "AccessDenied",
            (Protocol::S3, _) => "InternalError",
            (Protocol::Azure, 429 | 503) => "ServerBusy",
            (Protocol::Azure, 403) => "AuthenticationFailed",
            (Protocol::Azure, _) => "InternalError",
        };
        code.to_string()
    });
    let mut refusal = Refusal::new(status, code, "an injected fault");
    if let Some(seconds) = fault.retry_after_s {
        refusal = refusal.with("Retry-After", seconds.to_string());
    }
    match server.protocol {
        Protocol::S3 => refusal.s3(""),
        Protocol::Azure => refusal.azure(),
    }
}

/// An answer that takes the place of the true one.
fn instead(request: &Request, answer: Response) -> End {
    let is_head = request.method == "HEAD";
    End::Answer(if is_head { answer.without_body() } else { answer })
}

fn html(status: u16) -> Response {
    let page = "<!DOCTYPE html><html><body><h1>Please sign in to the network</h1></body></html>\n";
    Response::text(status, "text/html", page.to_string())
}

/// Puts another object of the same size in the place of the target.
fn replace(server: &Server, target: &Target) {
    let etag = super::vault::fresh_etag(server);
    server.vault.with(|state| {
        if let Some(object) = state.object(&target.bucket, &target.key) {
            let mut other = (*object).clone();
            other.data = Data::from(Bytes::from(vec![0xA5; other.data.len() as usize]));
            (other.etag, other.modified) = (etag, super::clock::now());
            state.place(&target.bucket, &target.key, other);
        }
    });
}

async fn wait_for_link(server: &Server, wire: &Wire, first: bool) {
    let mut wait = server.link.options.latency;
    if first {
        wait += server.link.handshake_left(wire.accepted, wire.first_read);
    }
    if !wait.is_zero() {
        sleep_until(wire.last_read + wait).await;
    }
}

fn asked_range(request: &Request) -> String {
    request.range().unwrap_or("").to_string()
}

/// Path and query without signatures and tokens.
fn printable_path(request: &Request) -> String {
    if request.query.raw.is_empty() {
        return request.path.clone();
    }
    let secret = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or("").to_ascii_lowercase();
        !matches!(name.as_str(), "sig" | "x-amz-signature" | "x-amz-security-token")
    };
    let kept: Vec<&str> = request.query.raw.split('&').filter(secret).collect();
    format!("{}?{}", request.path, kept.join("&"))
}

//! One connection, exchange by exchange: read a head, let faults strike, serve, answer.

use super::admin;
use super::data::{Data, Piece};
use super::fault::{Action, FaultSpec};
use super::http::wire::Wire;
use super::http::{BodyReader, Request, Response};
use super::refusal::Refusal;
use super::server::{Protocol, Server};
use super::stats::RequestRecord;
use super::{azure, s3};
use bytes::Bytes;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::time::{Instant as Moment, sleep, sleep_until};

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
    Reset,
}

/// Serves a connection until either side ends it.
pub async fn serve(server: Arc<Server>, stream: TcpStream, serial: u64) {
    let mut wire = Wire::new(stream, server.link.clone(), server.stats.counters.clone(), serial);
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
    let End::Answer(mut answer) = end else {
        server.stats.answering(begun, record);
        wire.reset();
        return None;
    };
    let ready = body.finish().await;
    record.bytes_in = body.received;
    let cut = alter(&mut answer, &faults);
    let keep = ready && request.keep_alive && !answer.close;
    wait_for_link(server, &wire, first).await;
    if let Some(more) = latency(&faults) {
        disarmed.or_after(more).await;
    }
    record.status = answer.status;
    let place = server.stats.answering(begun, record);
    let told = send(&mut wire, &answer, keep, &faults, cut).await;
    server.stats.answered(place, told.as_ref().copied().unwrap_or(0));
    match (told, cut, keep) {
        (Ok(_), None, true) => Some(wire),
        (Ok(_), None, false) => {
            wire.finish().await;
            None
        }
        _ => {
            wire.reset();
            None
        }
    }
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
    let mut lost = false;
    for fault in faults {
        match &fault.action {
            Action::Reset => return End::Reset,
            Action::ResetUpload(bytes) => {
                body.cut_after = Some(*bytes);
                // Whether the body was that long or not, the connection is cut.
                let _ = body.read_all().await;
                return End::Reset;
            }
            Action::Stall(longest) => {
                sleep(*longest).await;
                return End::Reset;
            }
            Action::Status(status) => {
                return instead(&request, status_answer(server, *status, fault));
            }
            Action::Html(status) => return instead(&request, html(*status)),
            Action::ErrorIn200 => {
                let refusal =
                    Refusal::new(200, "InternalError", "We encountered an internal error");
                return instead(&request, refusal.s3(&request.path));
            }
            Action::IgnoreRange => request.to_mut().ignores_range = true,
            Action::Replace => replace(server, target),
            Action::LostAnswer => lost = true,
            _ => {}
        }
    }
    let empty_page = faults.iter().any(|fault| fault.action == Action::EmptyPage);
    let served = match server.protocol {
        Protocol::S3 => s3::serve(server, &request, target, body, empty_page).await,
        Protocol::Azure => azure::serve(server, &request, target, body, empty_page).await,
    };
    match served {
        Ok(answer) if !lost => End::Answer(answer),
        _ => End::Reset,
    }
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

/// Bends the answer; returns after how many body bytes the connection is cut.
fn alter(answer: &mut Response, faults: &[FaultSpec]) -> Option<u64> {
    let mut cut = None;
    for fault in faults {
        let len = answer.body.len();
        match fault.action {
            Action::Cut(bytes) => cut = Some(bytes.min(len)),
            Action::Truncate(bytes) => answer.body = answer.body.slice(0, bytes.min(len)),
            Action::LieLength(by) => answer.length_told = Some(len.saturating_add_signed(by)),
            Action::WrongRange(by) => shift_range(answer, by),
            Action::Corrupt(at) if at < len => {
                if let Some(Piece::Memory(byte)) = answer.body.slice(at, at + 1).0.first() {
                    let mut bent = answer.body.slice(0, at);
                    bent.extend(&Data::from(Bytes::from(vec![!byte[0]])));
                    bent.extend(&answer.body.slice(at + 1, len));
                    answer.body = bent;
                }
            }
            _ => {}
        }
    }
    cut
}

fn shift_range(answer: &mut Response, by: i64) {
    let shifted = answer.header("Content-Range").and_then(|value| {
        let (range, size) = value.strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let first = first.parse::<u64>().ok()?.saturating_add_signed(by);
        let last = last.parse::<u64>().ok()?.saturating_add_signed(by);
        Some(format!("bytes {first}-{last}/{size}"))
    });
    if let Some(shifted) = shifted {
        answer.replace_header("Content-Range", shifted);
    }
}

/// What faults add to the link's.
fn latency(faults: &[FaultSpec]) -> Option<Duration> {
    faults.iter().fold(None, |sum: Option<Duration>, fault| match fault.action {
        Action::Latency(more) => Some(sum.unwrap_or_default() + more),
        _ => sum,
    })
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

/// Sends an answer; returns the number of body bytes sent.
async fn send(
    wire: &mut Wire,
    answer: &Response,
    keep: bool,
    faults: &[FaultSpec],
    cut: Option<u64>,
) -> io::Result<u64> {
    let body = match cut {
        Some(bytes) => answer.body.slice(0, bytes),
        None => answer.body.clone(),
    };
    let pace = faults.iter().find_map(|fault| match fault.action {
        Action::Slow(bytes_per_s) => Some(bytes_per_s),
        _ => None,
    });
    let head = answer.head(keep);
    let Some(bytes_per_s) = pace else {
        wire.send_answer(head, &body.0).await?;
        return Ok(body.len());
    };
    wire.send_answer(head, &[]).await?;
    // A tenth of a second's bytes a step: slow enough to be seen, fast enough to be steady.
    let step = (bytes_per_s / 10).max(1);
    let begun = Moment::now();
    let mut sent = 0;
    while sent < body.len() {
        let end = (sent + step).min(body.len());
        sleep_until(begun + Duration::from_secs_f64(end as f64 / bytes_per_s as f64)).await;
        wire.send_answer(Vec::new(), &body.slice(sent, end).0).await?;
        sent = end;
    }
    Ok(sent)
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

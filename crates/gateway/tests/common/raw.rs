//! Answers that may break off, and moments that a test waits for.

use super::{ACCESS_KEY, Request, SECRET_KEY, Server, sign};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Longer than anything here takes, so that a test that waits in vain ends.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// What a client saw of an answer.
#[derive(Debug, Default)]
pub struct Seen {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
    /// The body ended where its head said that it would.
    pub is_whole: bool,
}

/// Sends a request on a connection of its own, signed.
pub async fn begun(server: &Server, request: &Request<'_>) -> TcpStream {
    let host = server.address.to_string();
    begun_with(server, &sign::signed(request, &host, SECRET_KEY, ACCESS_KEY)).await
}

/// Sends these bytes on a connection of their own.
pub async fn begun_with(server: &Server, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

/// Sends a request, and takes what comes until it is whole or the connection ends. `None` where not
/// even a head came.
pub async fn ask(server: &Server, request: &Request<'_>) -> Option<Seen> {
    let is_head = request.method == "HEAD";
    let mut stream = begun(server, request).await;
    let seen = tokio::time::timeout(PATIENCE, seen(&mut stream, is_head)).await;
    seen.unwrap_or_else(|_| panic!("{} {} is never answered", request.method, request.path))
}

async fn seen(stream: &mut TcpStream, is_head: bool) -> Option<Seen> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if !more(stream, &mut bytes).await {
            return None;
        }
    };
    let body = bytes.split_off(head_end);
    let head = String::from_utf8(bytes).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let headers: BTreeMap<String, String> = head
        .split("\r\n")
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_string()))
        .collect();
    let mut seen = Seen { status, headers, body, is_whole: false };
    // Nothing that is asked here is answered in chunks.
    assert!(!seen.headers.contains_key("transfer-encoding"), "{head}");
    let told = seen.headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let length = if is_head { 0 } else { told };
    while seen.body.len() < length && more(stream, &mut seen.body).await {}
    seen.is_whole = seen.body.len() == length;
    Some(seen)
}

/// Whether more came.
async fn more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> bool {
    stream.read_buf(bytes).await.is_ok_and(|read| read > 0)
}

/// Waits for a moment that has to come.
pub async fn until(what: &str, mut has_come: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !has_come().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// The value of a line of `/metrics`, by all that stands before it.
pub async fn metric(server: &Server, line: &str) -> u64 {
    let page = server.admin_page("/metrics").await.text();
    let value = page.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(' '));
    let value = value.unwrap_or_else(|| panic!("{line} is missing in\n{page}"));
    value.parse().unwrap()
}

/// Waits until no client is connected and no request is at work any more: whatever held a place, a
/// permit or a connection has given it back.
pub async fn at_rest(server: &Server) {
    for gauge in ["penstock_requests_in_flight", "penstock_connections_open"] {
        until(gauge, async || metric(server, gauge).await == 0).await;
    }
}

//! What a stop does to requests in flight.

use crate::common::{Dir, Request, SECRET_KEY, Server, options, read_answer, serve_settings, sign};
use penstock_base::ServeSettings;
use penstock_gateway::Options;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

/// Sends a PUT but for its last byte, and waits until the server has begun to read its body.
async fn begin_put(server: &Server, body: &[u8]) -> (TcpStream, Vec<u8>) {
    let headers = [("expect", "100-continue")];
    let request = Request {
        method: "PUT",
        path: "/lake/slow",
        headers: &headers,
        body,
        ..Default::default()
    };
    let bytes =
        sign::signed(&request, &server.address.to_string(), SECRET_KEY, crate::common::ACCESS_KEY);
    let (head, body) = bytes.split_at(bytes.len() - body.len());
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(head).await.unwrap();
    let proceed = read_answer(&mut stream, true).await;
    assert_eq!(proceed.status, 100);
    stream.write_all(&body[..body.len() - 1]).await.unwrap();
    (stream, body[body.len() - 1..].to_vec())
}

#[tokio::test]
async fn a_request_in_flight_ends_and_a_new_one_is_not_taken() {
    let mut server = Server::start().await;
    let (mut stream, last) = begin_put(&server, b"the whole body").await;
    server.stop.take().unwrap().send(()).unwrap();
    // The listener closes; the request goes on.
    let closed = tokio::time::timeout(Duration::from_secs(10), async {
        while TcpStream::connect(server.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    });
    closed.await.expect("still listening");
    stream.write_all(&last).await.unwrap();
    let answer = read_answer(&mut stream, false).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    server.served.await.unwrap();
    let written = std::fs::read(server.dir.served().join("lake/slow")).unwrap();
    assert_eq!(written, b"the whole body");
}

#[tokio::test]
async fn a_request_that_does_not_end_is_cut_at_the_limit() {
    let dir = Dir::new();
    let serve = ServeSettings { drain_seconds: 0, ..serve_settings() };
    let short = Options { serve, ..options(&dir) };
    let mut server = Server::start_with(dir, short).await;
    let (_stream, _last) = begin_put(&server, b"never finished").await;
    server.stop.take().unwrap().send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(10), server.served).await.expect("hangs").unwrap();
    assert!(!server.dir.served().join("lake/slow").exists());
}

#[tokio::test]
async fn readyz_says_no_before_the_port_closes() {
    let dir = Dir::new();
    // Long enough that the test ends first.
    let serve = ServeSettings { drain_delay_ms: 600_000, ..serve_settings() };
    let told = Options { serve, ..options(&dir) };
    let mut server = Server::start_with(dir, told).await;
    let ready = server.admin_page("/readyz").await;
    assert_eq!((ready.status, ready.text().as_str()), (200, "ready\ndir: ok\n"));
    server.stop.take().unwrap().send(()).unwrap();
    let said_no = tokio::time::timeout(Duration::from_secs(10), async {
        while server.admin_page("/readyz").await.status != 503 {
            tokio::task::yield_now().await;
        }
    });
    said_no.await.expect("still ready");
    // Whoever has not noticed yet is served, and sent elsewhere for the next request.
    let answer = server.put("/lake/late", b"taken").await;
    assert_eq!((answer.status, answer.header("connection")), (200, "close"));
    assert_eq!(server.admin_page("/healthz").await.status, 200);
    // Whoever asks for these on the port of S3 holds a connection to it.
    for (path, status) in [("/healthz", 200), ("/readyz", 503)] {
        let page = server.get(path).await;
        assert_eq!((page.status, page.header("connection")), (status, "close"), "{path}");
    }
    server.served.abort();
}

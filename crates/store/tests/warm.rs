//! Connections that are opened before requests need them: how many, who gets them, and that
//! nothing depends on them.

#![allow(clippy::unwrap_used)] // helpers of tests fail as tests do

mod common;

use common::{Script, client, client_with, get, get_all, read_request};
use futures_util::future::join_all;
use penstock_base::{Kind, Retry};
use penstock_store::{HttpClient, HttpOptions};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const EMPTY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// Opens what is missing of so many.
async fn warm(client: &HttpClient, url: &str, count: usize) {
    if let Some(opening) = client.warm(url, count) {
        opening.await;
    }
}

/// Waits until the server has seen so many connections.
async fn accepted(server: &Script, count: usize) {
    while server.connections() < count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_wave_of_requests_finds_them_idle_and_opens_none() {
    let server = Script::answering(EMPTY).await;
    let (client, heard) = client();
    let url = server.url("/k");
    for _ in 0..2 {
        // The second time costs nothing.
        warm(&client, &url, 4).await;
        accepted(&server, 4).await;
        assert_eq!(client.connections(&url).idle, 4);
    }
    let wave = join_all((0..4).map(|_| get_all(&client, &url))).await;
    assert!(wave.iter().all(Result::is_ok));
    assert_eq!((heard.opened(), server.connections()), (vec![false; 4], 4));
    // What requests have used counts too; more are what is missing.
    warm(&client, &url, 3).await;
    warm(&client, &url, 6).await;
    accepted(&server, 6).await;
    assert_eq!((heard.warmed(), client.connections(&url).idle), (vec![true; 6], 6));
    // What is used goes first: its windows are wider.
    for _ in 0..5 {
        get_all(&client, &url).await.unwrap();
    }
    assert_eq!(server.connections(), 6);
}

#[tokio::test]
async fn never_more_than_one_host_may_have_those_in_use_included() {
    let server = Script::start(|_, mut stream| async move {
        while read_request(&mut stream).await.is_some() {
            // More than a body that is dropped is drained of.
            let mut answer = b"HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n".to_vec();
            answer.resize(answer.len() + 10_000_000, b'x');
            if stream.write_all(&answer).await.is_err() {
                return;
            }
        }
    })
    .await;
    let (client, _) =
        client_with(HttpOptions { connections_per_host: 3, ..HttpOptions::default() });
    let url = server.url("/");
    let held = get(&client, &url).await.unwrap();
    warm(&client, &url, 100).await;
    let known = client.connections(&url);
    assert_eq!((known.idle, known.opening), (2, 0));
    let others = [get(&client, &url).await.unwrap(), get(&client, &url).await.unwrap()];
    warm(&client, &url, 100).await;
    assert_eq!((client.connections(&url).idle, server.connections()), (0, 3));
    drop((held, others));
    warm(&client, &url, 100).await;
    assert_eq!(client.connections(&url).idle, 3);
}

#[tokio::test]
async fn what_fails_is_told_by_the_request_that_needs_it() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/k", listener.local_addr().unwrap());
    drop(listener);
    let (client, heard) = client();
    warm(&client, &url, 2).await;
    warm(&client, "no url", 2).await;
    assert_eq!(heard.warmed(), [false; 2]);
    let error = get(&client, &url).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (Kind::Unavailable, Retry::Briefly));
    assert!(error.to_string().contains("no connection to"), "{error}");
}

#[tokio::test]
async fn one_that_the_server_gave_up_is_replaced() {
    // It serves no connection but the third.
    let server = Script::start(|turn, mut stream| async move {
        while turn > 1 && read_request(&mut stream).await.is_some() {
            stream.write_all(EMPTY).await.unwrap();
        }
    })
    .await;
    let (client, heard) = client();
    let url = server.url("/");
    warm(&client, &url, 2).await;
    accepted(&server, 2).await;
    get_all(&client, &url).await.unwrap();
    assert_eq!((heard.opened(), server.connections()), (vec![true], 3));
}

#[tokio::test]
async fn one_that_nobody_uses_goes_after_the_usual_time() {
    let server = Script::answering(EMPTY).await;
    let (client, heard) =
        client_with(HttpOptions { idle_timeout: Duration::ZERO, ..HttpOptions::default() });
    let url = server.url("/");
    warm(&client, &url, 2).await;
    assert_eq!(client.connections(&url).idle, 0);
    get_all(&client, &url).await.unwrap();
    assert_eq!(heard.opened(), [true]);
}

/// No request follows that would close them.
#[tokio::test]
async fn those_that_nobody_uses_are_closed_in_a_process_that_rests() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let idle_timeout = Duration::from_millis(50);
    let (client, _) = client_with(HttpOptions { idle_timeout, ..HttpOptions::default() });
    warm(&client, &url, 2).await;
    for _ in 0..2 {
        let (mut accepted, _) = listener.accept().await.unwrap();
        let mut byte = [0];
        let end = tokio::time::timeout(Duration::from_secs(30), accepted.read(&mut byte));
        assert_eq!(end.await.unwrap().unwrap(), 0, "it is closed, and nothing was sent");
    }
}

/// An address that answers nothing, as a machine that is down: its queue of connections is full,
/// and the kernel drops what asks for one more.
fn silent() -> (socket2::Socket, Vec<TcpStream>, SocketAddr) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any: SocketAddr = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0).into();
    socket.bind(&any.into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut queue = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
        queue.push(stream);
    }
    (socket, queue, address)
}

#[tokio::test(start_paused = true)]
async fn one_that_hangs_makes_room_for_the_requests_own() {
    let (_socket, _queue, address) = silent();
    let (client, heard) =
        client_with(HttpOptions { connections_per_host: 1, ..HttpOptions::default() });
    let url = format!("http://{address}/");
    let warming = tokio::spawn({
        let (client, url) = (client.clone(), url.clone());
        async move { warm(&client, &url, 5).await }
    });
    while client.connections(&url).opening == 0 {
        tokio::task::yield_now().await;
    }
    let error = get(&client, &url).await.unwrap_err();
    assert!(error.to_string().contains("took longer than 10 s"), "{error}");
    assert_eq!(heard.opened(), [true]);
    warming.await.unwrap();
    // It was stopped, long before its own time was over.
    assert_eq!((client.connections(&url).opening, heard.warmed()), (0, Vec::new()));
}

#[tokio::test]
async fn dropping_it_ends_the_attempts() {
    let (_socket, _queue, address) = silent();
    let (client, heard) = client();
    let url = format!("http://{address}/");
    let warming = tokio::spawn({
        let (client, url) = (client.clone(), url.clone());
        async move { warm(&client, &url, 5).await }
    });
    while client.connections(&url).opening < 5 {
        tokio::task::yield_now().await;
    }
    warming.abort();
    assert!(warming.await.unwrap_err().is_cancelled());
    assert_eq!((client.connections(&url).opening, heard.warmed()), (0, Vec::new()));
}

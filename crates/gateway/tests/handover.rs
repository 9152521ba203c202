//! Large files that the kernel sends: whatever client, file and server do meanwhile, a client gets
//! the bytes of one version or a broken connection.

use crate::common::{
    ACCESS_KEY, Dir, Request, SECRET_KEY, Server, options, read_answer, serve_settings,
};
use penstock_base::ServeSettings;
use penstock_gateway::Options;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// More than the sockets' buffers hold.
const SIZE: usize = (24 << 20) + 12_345;

/// No two blocks are alike, and no byte is zero.
fn body(seed: u64) -> Vec<u8> {
    let byte = |n: u64| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8 | 1;
    (seed..seed + SIZE as u64).map(byte).collect()
}

/// With a large object.
async fn started(serve: ServeSettings) -> (Server, Vec<u8>) {
    let dir = Dir::new();
    let told = Options { serve, ..options(&dir) };
    let (server, body) = (Server::start_with(dir, told).await, body(0));
    assert_eq!(server.put("/lake/large", &body).await.status, 200);
    (server, body)
}

fn signed(server: &Server, request: &Request<'_>) -> Vec<u8> {
    crate::common::sign::signed(request, &server.address.to_string(), SECRET_KEY, ACCESS_KEY)
}

fn get_large() -> Request<'static> {
    Request { path: "/lake/large", ..Default::default() }
}

/// A GET of which the client has taken the head and little more.
async fn begun(server: &Server) -> (TcpStream, Vec<u8>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 << 10).unwrap();
    let mut stream = socket.connect(server.address).await.unwrap();
    stream.write_all(&signed(server, &get_large())).await.unwrap();
    let mut taken = vec![0; 4096];
    stream.read_exact(&mut taken).await.unwrap();
    let head = taken.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    (stream, taken.split_off(head + 4))
}

/// What else comes until the end, and whether that was an orderly one.
async fn rest(stream: &mut TcpStream, taken: &mut Vec<u8>, most: usize) -> bool {
    let mut piece = [0; 8 << 10];
    while taken.len() < most {
        match stream.read(&mut piece).await {
            Ok(0) => return true,
            Ok(read) => taken.extend_from_slice(&piece[..read]),
            Err(_) => return false,
        }
        tokio::task::yield_now().await;
    }
    true
}

#[tokio::test]
async fn requests_in_a_row_are_answered_in_order() {
    let (server, body) = started(serve_settings()).await;
    assert_eq!(server.put("/lake/small", b"small").await.status, 200);
    let head = Request { method: "HEAD", ..get_large() };
    let range = [("range", "bytes=1000001-9000000")];
    let range = Request { headers: &range, ..get_large() };
    let small = Request { path: "/lake/small", ..Default::default() };
    let (large, part) = (&body[..], &body[1_000_001..9_000_001]);
    let asked = [
        (get_large(), 200, large),
        (head, 200, b""),
        (range.clone(), 206, part),
        (small, 200, b"small"),
        (get_large(), 200, large),
        (range, 206, part),
    ];
    let mut requests = Vec::new();
    for (request, ..) in &asked {
        requests.extend(signed(&server, request));
    }
    let stream = TcpStream::connect(server.address).await.unwrap();
    let (mut stream, mut sink) = stream.into_split();
    sink.write_all(&requests).await.unwrap();
    for (request, status, expected) in asked {
        // Of a pipeline the reader must not take bytes of the next answer.
        let mut text = Vec::new();
        while !text.ends_with(b"\r\n\r\n") {
            text.push(stream.read_u8().await.unwrap());
        }
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
        let mut received = vec![0; expected.len()];
        stream.read_exact(&mut received).await.unwrap();
        assert!(received == expected, "{} {:?}", request.method, request.headers);
    }
}

#[tokio::test]
async fn if_range_means_the_version_it_names() {
    let (server, body) = started(serve_settings()).await;
    let tag = server.get("/lake/large").await.header("etag").to_string();
    for (tag, status, expected) in
        [(tag.as_str(), 206, &body[5..5_000_000]), ("\"another\"", 200, &body[..])]
    {
        let headers = [("range", "bytes=5-4999999"), ("if-range", tag)];
        let answer = server.send(Request { headers: &headers, ..get_large() }).await;
        assert!(answer.status == status && answer.body == expected, "{tag}");
    }
}

#[tokio::test]
async fn slow_clients_get_every_byte_at_once_and_it_is_counted() {
    let (server, body) = started(serve_settings()).await;
    let one = async {
        let (mut stream, mut taken) = begun(&server).await;
        assert!(rest(&mut stream, &mut taken, SIZE).await);
        taken
    };
    let other = async {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(&signed(&server, &get_large())).await.unwrap();
        read_answer(&mut stream, false).await.body
    };
    let (one, other) = tokio::join!(one, other);
    assert!(one == body && other == body);
    let told = format!("penstock_sent_bytes_total {}", 2 * SIZE);
    let counted = async {
        while !server.admin_page("/metrics").await.text().contains(&told) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), counted).await.expect("not counted");
}

#[tokio::test]
async fn what_is_not_in_the_page_cache_is_read() {
    let (server, body) = started(serve_settings()).await;
    let file = std::fs::File::open(server.dir.served().join("lake/large")).unwrap();
    file.sync_all().unwrap();
    for dropped in [0..SIZE, 0..1 << 20, 3 << 20..5 << 20, SIZE - (2 << 20)..SIZE] {
        let len = std::num::NonZeroU64::new(dropped.len() as u64);
        rustix::fs::fadvise(&file, dropped.start as u64, len, rustix::fs::Advice::DontNeed)
            .unwrap();
        assert!(server.get("/lake/large").await.body == body, "{dropped:?}");
    }
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_the_server_at_work() {
    let (server, body) = started(serve_settings()).await;
    for _ in 0..8 {
        let (stream, taken) = begun(&server).await;
        assert!(body.starts_with(&taken));
        drop(stream);
    }
    assert!(server.get("/lake/large").await.body == body);
    let ended = async {
        while !server.admin_page("/metrics").await.text().contains("requests_in_flight 0\n") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), ended).await.expect("still in flight");
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_cut() {
    let serve = ServeSettings { client_stall_timeout_ms: 100, ..serve_settings() };
    let (server, body) = started(serve).await;
    let (mut stream, mut taken) = begun(&server).await;
    let cut = async {
        while !server.admin_page("/metrics").await.text().contains("requests_in_flight 0\n") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), cut).await.expect("still waited for");
    rest(&mut stream, &mut taken, SIZE).await;
    assert!(taken.len() < SIZE && body.starts_with(&taken));
}

#[tokio::test]
async fn a_file_that_is_cut_while_it_is_sent_breaks_the_connection() {
    let (server, body) = started(serve_settings()).await;
    let (mut stream, mut taken) = begun(&server).await;
    let path = server.dir.served().join("lake/large");
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(0).unwrap();
    rest(&mut stream, &mut taken, SIZE).await;
    assert!(taken.len() < SIZE && body.starts_with(&taken), "{} bytes came", taken.len());
}

#[tokio::test]
async fn an_object_that_is_replaced_while_it_is_sent_comes_as_it_was() {
    let (server, old) = started(serve_settings()).await;
    let new = body(7);
    let (mut stream, mut taken) = begun(&server).await;
    assert_eq!(server.put("/lake/large", &new).await.status, 200);
    assert!(rest(&mut stream, &mut taken, SIZE).await);
    assert!(taken == old);
    assert!(server.get("/lake/large").await.body == new);
}

#[tokio::test]
async fn a_server_that_stops_sends_what_it_has_begun() {
    let (mut server, body) = started(serve_settings()).await;
    let (mut stream, mut taken) = begun(&server).await;
    server.stop.take().unwrap().send(()).unwrap();
    assert!(rest(&mut stream, &mut taken, SIZE).await);
    assert!(taken == body);
    // The connection has no further request, so nothing is waited for.
    drop(stream);
    tokio::time::timeout(Duration::from_secs(20), server.served).await.expect("hangs").unwrap();
}

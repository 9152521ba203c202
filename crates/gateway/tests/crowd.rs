//! More connections than there are places: they wait, none is lost, and no silent one keeps others
//! out for longer than `head_timeout_ms`.

use crate::common::raw::{PATIENCE, at_rest, metric, until};
use crate::common::{
    ACCESS_KEY, Answer, Dir, Request, SECRET_KEY, Server, options, read_answer, serve_settings,
    sign,
};
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use penstock_base::ServeSettings;
use penstock_gateway::Options;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const PLACES: u64 = 3;
const OPEN: &str = "penstock_connections_open";
const ACCEPTED: &str = "penstock_connections_total";

/// A gateway with few places, and an object.
async fn crowded(change: impl FnOnce(&mut ServeSettings)) -> Server {
    let dir = Dir::new();
    let mut serve = ServeSettings { connections_max: PLACES, ..serve_settings() };
    change(&mut serve);
    let told = Options { serve, ..options(&dir) };
    let server = Server::start_with(dir, told).await;
    std::fs::write(server.dir.served().join("lake/k"), "bytes").unwrap();
    server
}

/// As many connections as there are places, each of which has sent `bytes`.
async fn all_places(server: &Server, bytes: &[u8]) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for _ in 0..PLACES {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        held.push(stream);
    }
    until("all are accepted", async || metric(server, ACCEPTED).await == PLACES).await;
    held
}

/// A GET that is sent, and whose answer is still to come.
async fn asked(server: &Server) -> TcpStream {
    let request = Request { path: "/lake/k", ..Default::default() };
    let bytes = sign::signed(&request, &server.address.to_string(), SECRET_KEY, ACCESS_KEY);
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&bytes).await.unwrap();
    stream
}

async fn answered(stream: &mut TcpStream) -> Answer {
    tokio::time::timeout(PATIENCE, read_answer(stream, false)).await.expect("an answer")
}

#[tokio::test]
async fn further_connections_wait_and_take_the_places_of_those_that_end() {
    let server = crowded(|_| {}).await;
    let mut held = all_places(&server, b"").await;
    let mut waiting = Vec::new();
    for _ in 0..2 * PLACES {
        waiting.push(asked(&server).await);
    }
    // Operators have places of their own, and see that none of these is in.
    assert_eq!(server.admin_page("/readyz").await.status, 200);
    assert_eq!((metric(&server, OPEN).await, metric(&server, ACCEPTED).await), (PLACES, PLACES));
    for stream in &mut waiting {
        let mut byte = [0];
        assert!(stream.read(&mut byte).now_or_never().is_none(), "nobody is served yet");
    }
    // One place is enough for all of them in turn.
    held.pop();
    for mut stream in waiting {
        assert_eq!(answered(&mut stream).await.body, b"bytes");
    }
    assert_eq!(metric(&server, ACCEPTED).await, 3 * PLACES);
    // Those who have places are served as ever.
    for mut stream in held {
        let request = Request { path: "/lake/k", ..Default::default() };
        let host = server.address.to_string();
        stream.write_all(&sign::signed(&request, &host, SECRET_KEY, ACCESS_KEY)).await.unwrap();
        assert_eq!(answered(&mut stream).await.body, b"bytes");
    }
    at_rest(&server).await;
}

#[tokio::test]
async fn of_many_at_once_every_one_is_served() {
    let server = crowded(|_| {}).await;
    let clients = (0..40).map(async |_| {
        let mut stream = asked(&server).await;
        answered(&mut stream).await.body
    });
    let bodies = join_all(clients).await;
    assert!(bodies.iter().all(|body| body == b"bytes"));
    assert_eq!(metric(&server, ACCEPTED).await, 40);
    at_rest(&server).await;
}

#[tokio::test]
async fn silent_connections_keep_others_out_for_no_longer_than_they_may() {
    let limit = |serve: &mut ServeSettings| serve.head_timeout_ms = 300;
    let whole = |server: &Server| {
        let request = Request { path: "/lake/k", ..Default::default() };
        sign::signed(&request, &server.address.to_string(), SECRET_KEY, ACCESS_KEY)
    };
    // Those that say nothing, that begin a head, and that had an answer and ask for no other.
    for said in ["", "GET /lake/k HTTP/1.1\r\nhost: h\r\nx-", "all"] {
        let server = crowded(limit).await;
        let bytes = if said == "all" { whole(&server) } else { said.as_bytes().to_vec() };
        let held = all_places(&server, &bytes).await;
        let mut waiting = asked(&server).await;
        assert_eq!(answered(&mut waiting).await.body, b"bytes", "{said}");
        drop(waiting);
        at_rest(&server).await;
        drop(held);
    }
}

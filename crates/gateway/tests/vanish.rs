//! Clients that vanish in each state of a request: nothing is stored that was not whole, what was
//! asked for happens or does not, and whatever the request held is given back.

use crate::common::raw::{at_rest, begun, begun_with, until};
use crate::common::{ACCESS_KEY, Lane, Request, SECRET_KEY, Server, read_answer, sign};
use tokio::io::AsyncReadExt as _;

on_lane!(azure, Azure: in_the_head_or_the_body_leaves_what_was_there,
    while_it_waits_for_an_answer_either_way_is_whole,
    while_it_takes_an_answer_gives_everything_back);
on_lane!(s3, S3: in_the_head_or_the_body_leaves_what_was_there,
    while_it_waits_for_an_answer_either_way_is_whole,
    while_it_takes_an_answer_gives_everything_back);
on_lane!(local, Local: in_the_head_or_the_body_leaves_what_was_there,
    while_it_takes_an_answer_gives_everything_back);

const KEPT: &[u8] = b"what was there before";
/// Larger than what is taken whole, and than what is read at once.
const LARGE: usize = 2 << 20;
/// More than the places that there are: none may be lost.
const TIMES: usize = 6;

/// With few places of each kind, so that one which is not given back is missed.
async fn narrow(lane: Lane) -> Server {
    let server = Server::on_with(lane, |options| {
        options.serve.requests_max = 2;
        options.serve.connections_max = 4;
        options.settings.connections_per_host = 2;
    })
    .await;
    assert_eq!(server.put("/lake/k", KEPT).await.status, 200);
    server
}

fn field(text: &str, name: &str) -> String {
    let behind = text.split_once(&format!("<{name}>")).unwrap_or_else(|| panic!("{text}")).1;
    behind.split_once("</").unwrap().0.to_string()
}

async fn begin_upload(server: &Server, key: &str) -> String {
    let path = format!("/lake/{key}?uploads");
    let begin = Request { method: "POST", path: &path, ..Default::default() };
    field(&server.send(begin).await.text(), "UploadId")
}

/// What lies in the served directory, hidden files included.
fn files(server: &Server, lane: Lane) -> Vec<String> {
    match lane {
        Lane::Local => server.dir.files(),
        _ => Vec::new(),
    }
}

/// Requests of which less than all is sent, with the bytes that are.
fn cut_short(server: &Server, upload: &str) -> Vec<(String, Vec<u8>)> {
    let host = server.address.to_string();
    let (small, large) = (vec![1; 1000], vec![2; LARGE]);
    let part = format!("/lake/parts?partNumber=1&uploadId={upload}");
    let mut all = Vec::new();
    let mut cut = |what: &str, bytes: &[u8], left: usize| {
        let sent = bytes.len() - left;
        all.push((format!("{what}, {left} bytes left"), bytes[..sent].to_vec()));
    };
    for (path, body) in
        [("/lake/k", &small), ("/lake/k", &large), (part.as_str(), &small), (part.as_str(), &large)]
    {
        let request = Request { method: "PUT", path, body, ..Default::default() };
        let bytes = sign::signed(&request, &host, SECRET_KEY, ACCESS_KEY);
        // In the head, before the body, in it, and before its last byte.
        for left in [bytes.len() - 30, body.len() + 2, body.len(), body.len() / 2, 1] {
            cut(path, &bytes, left);
        }
    }
    for piece in [&small, &large] {
        let chunks = sign::Chunks {
            pieces: &[piece.as_slice(), piece.as_slice()],
            trailer: None,
            forged: None,
            is_cut: false,
        };
        let bytes = sign::signed_chunks("/lake/k", &chunks, &host, SECRET_KEY, ACCESS_KEY);
        // In either chunk, in the last one, which is empty, and before its last byte.
        for left in [piece.len() * 3 / 2, piece.len() / 2, 40, 1] {
            cut("aws-chunked", &bytes, left);
        }
    }
    all
}

async fn in_the_head_or_the_body_leaves_what_was_there(lane: Lane) {
    let server = narrow(lane).await;
    let upload = begin_upload(&server, "parts").await;
    let before = files(&server, lane);
    for (what, bytes) in cut_short(&server, &upload) {
        drop(begun_with(&server, &bytes).await);
        at_rest(&server).await;
        assert_eq!(server.get("/lake/k").await.body, KEPT, "{what}");
        let path = format!("/lake/parts?uploadId={upload}");
        let parts = server.get(&path).await.text();
        assert!(!parts.contains("<PartNumber>"), "{what}: {parts}");
        // A write that was under way when it ended removes its file behind it.
        until(&what, async || files(&server, lane) == before).await;
    }
    // One that was told to go on, and does not.
    for length in [1000, LARGE].into_iter().cycle().take(TIMES) {
        let length = length.to_string();
        let headers = [("expect", "100-continue"), ("content-length", length.as_str())];
        let request = Request {
            method: "PUT",
            path: "/lake/k",
            headers: &headers,
            content_sha256: Some("UNSIGNED-PAYLOAD"),
            ..Default::default()
        };
        let mut stream = begun(&server, &request).await;
        assert_eq!(read_answer(&mut stream, true).await.status, 100);
        drop(stream);
        at_rest(&server).await;
    }
    assert_eq!(server.get("/lake/k").await.body, KEPT);
    assert_eq!(files(&server, lane), before);
    // Two at once, which takes all the places that there are.
    let large = vec![3; LARGE];
    let (one, two) = tokio::join!(server.put("/lake/one", &large), server.put("/lake/two", &large));
    assert_eq!((one.status, two.status), (200, 200));
}

async fn while_it_waits_for_an_answer_either_way_is_whole(lane: Lane) {
    let server = narrow(lane).await;
    let [complete, copy] = match lane {
        Lane::Azure => ["PutBlockList", "CopyBlob"],
        _ => ["CompleteMultipartUpload", "CopyObject"],
    };
    for number in 0..TIMES {
        let key = format!("whole{number}");
        let upload = begin_upload(&server, &key).await;
        let part = format!("/lake/{key}?partNumber=1&uploadId={upload}");
        let tag = server.put(&part, b"part").await.header("etag").to_string();
        let path = format!("/lake/{key}?uploadId={upload}");
        let body = format!(
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part>\
             </CompleteMultipartUpload>"
        );
        let body = body.as_bytes();
        let request = Request { method: "POST", path: &path, body, ..Default::default() };
        // Done before the client is gone, and not yet.
        let fault = if number % 2 == 0 { "latency=100" } else { "stall=100" };
        vanish_while(&server, &format!("{fault},op={complete},times=1"), &request).await;
        let path = format!("/lake/{key}");
        let got = server.get(&path).await;
        assert!(got.status == 404 || got.body == b"part", "{fault}: {}", got.status);
        let again = server.send(request).await;
        assert_eq!((again.status, again.code().as_str()), (200, ""), "{fault}: {}", again.text());
        assert_eq!(server.get(&path).await.body, b"part", "{fault}");

        let path = format!("/lake/copied{number}");
        let source = [("x-amz-copy-source", "/lake/k")];
        let request =
            Request { method: "PUT", path: &path, headers: &source, ..Default::default() };
        vanish_while(&server, &format!("{fault},op={copy},times=1"), &request).await;
        let got = server.get(&path).await;
        assert!(got.status == 404 || got.body == KEPT, "{fault}: {}", got.status);
        assert_eq!(server.send(request).await.status, 200, "{fault}");
        assert_eq!(server.get(&path).await.body, KEPT, "{fault}");
    }
}

/// Sends a request, and is gone once the back end has it.
async fn vanish_while(server: &Server, fault: &str, request: &Request<'_>) {
    let fake = server.fake.as_ref().unwrap();
    fake.fault(fault);
    let stream = begun(server, request).await;
    until("the back end has it", async || fake.faults().fired() == [1]).await;
    drop(stream);
    at_rest(server).await;
    fake.faults().clear();
}

async fn while_it_takes_an_answer_gives_everything_back(lane: Lane) {
    let server = narrow(lane).await;
    // More than sockets take, so that it is in the middle.
    let large = vec![5; 24 << 20];
    assert_eq!(server.put("/lake/large", &large).await.status, 200);
    for number in 0..TIMES {
        let headers = [("range", "bytes=1000-")];
        let headers = if number % 2 == 0 { &headers[..] } else { &[] };
        let request = Request { path: "/lake/large", headers, ..Default::default() };
        let mut stream = begun(&server, &request).await;
        let mut first = [0; 4096];
        stream.read_exact(&mut first).await.unwrap();
        assert!(first.starts_with(b"HTTP/1.1 20"));
        drop(stream);
        at_rest(&server).await;
        if lane != Lane::Local {
            let list = Request { path: "/lake?list-type=2", ..Default::default() };
            vanish_while(&server, "latency=50,times=1", &list).await;
        }
    }
    let (one, two) = tokio::join!(server.get("/lake/large"), server.get("/lake?list-type=2"));
    assert!(one.body == large && two.status == 200);
    at_rest(&server).await;
}

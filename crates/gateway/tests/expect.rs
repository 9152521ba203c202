//! Bodies of requests that are refused. Clients that wait for `100 Continue`: what is refused by
//! its head, or by what is there already, is refused before the body is asked for, where that costs
//! no request of its own. Those that send it all the same read why it was refused.

use crate::common::raw::{at_rest, begun, begun_with};
use crate::common::{Lane, Request, Server, read_answer, sign};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

on_every_lane!(
    what_its_head_refuses_is_never_asked_for;
    but_google:
    a_condition_that_does_not_hold_is_told_and_nothing_is_replaced
);

/// Larger than what is taken whole.
const LARGE: usize = 1 << 20;

/// A PUT to `/lake/k` of which the head is all that was sent.
fn head<'a>(headers: &'a [(&'a str, &'a str)]) -> Request<'a> {
    let content_sha256 = Some("UNSIGNED-PAYLOAD");
    Request { method: "PUT", path: "/lake/k", headers, content_sha256, ..Default::default() }
}

async fn what_its_head_refuses_is_never_asked_for(lane: Lane) {
    let server = Server::on_with(lane, |options| {
        options.serve.body_size_max_bytes = 2 << 20;
        options.serve.form_size_max_bytes = 1 << 20;
    })
    .await;
    assert_eq!(server.put("/lake/k", b"kept").await.status, 200);
    let large = LARGE.to_string();
    let expects = [("expect", "100-continue"), ("content-length", large.as_str())];
    let too_long = (3 << 20).to_string();
    let with = |more: &[(&'static str, &'static str)]| [&expects[..], more].concat();
    for (headers, status, code) in [
        (vec![expects[0], ("content-length", &too_long)], 400, "EntityTooLarge"),
        (with(&[("x-amz-checksum-crc32", "no checksum")]), 400, "BadDigest"),
        (with(&[("x-amz-server-side-encryption", "aws:kms")]), 400, "NotImplemented"),
        (with(&[("if-match", "\"a\", \"b\"")]), 400, "NotImplemented"),
    ] {
        let mut stream = begun(&server, &head(&headers)).await;
        let refused = read_answer(&mut stream, false).await;
        assert_eq!((refused.status, refused.code().as_str()), (status, code), "{}", refused.text());
        assert_eq!(refused.header("connection"), "close", "{code}");
    }
    // Whose signature does not hold, and to a bucket that is not there.
    let host = server.address.to_string();
    let forged = sign::signed(&head(&expects), &host, "another secret", crate::common::ACCESS_KEY);
    let mut stream = begun_with(&server, &forged).await;
    assert_eq!(read_answer(&mut stream, false).await.code(), "SignatureDoesNotMatch");
    assert_eq!(server.get("/lake/k").await.body, b"kept");
    at_rest(&server).await;
}

/// Whether a back end judges conditions before a byte of the body comes: a directory does, where
/// that is a look at a name. Others would be asked twice for every write whose condition holds.
fn judges_first(lane: Lane) -> bool {
    lane == Lane::Local
}

async fn a_condition_that_does_not_hold_is_told_and_nothing_is_replaced(lane: Lane) {
    let server = Server::on(lane).await;
    assert_eq!(server.put("/lake/k", b"kept").await.status, 200);
    let large = LARGE.to_string();
    for condition in [("if-none-match", "*"), ("if-match", "\"0123-4\"")] {
        // The shorter one is taken whole before anything else, wherever it goes.
        for (length, is_first) in [("5", false), (&large, judges_first(lane))] {
            let headers = [("expect", "100-continue"), ("content-length", length), condition];
            let mut stream = begun(&server, &head(&headers)).await;
            let mut answer = read_answer(&mut stream, true).await;
            assert_eq!(answer.status == 100, !is_first, "{condition:?} {length}");
            if !is_first {
                let body = vec![1; length.parse().unwrap()];
                stream.write_all(&body).await.unwrap();
                answer = read_answer(&mut stream, true).await;
            } else {
                assert_eq!(answer.header("connection"), "close");
            }
            assert_eq!(answer.status, 412, "{condition:?} {length}");
            assert_eq!(server.get("/lake/k").await.body, b"kept", "{condition:?} {length}");
        }
    }
    // One that holds is asked for its body.
    let headers = [("expect", "100-continue"), ("content-length", &large), ("if-none-match", "*")];
    let mut stream = begun(&server, &Request { path: "/lake/new", ..head(&headers) }).await;
    assert_eq!(read_answer(&mut stream, true).await.status, 100);
    stream.write_all(&vec![1; LARGE]).await.unwrap();
    assert_eq!(read_answer(&mut stream, true).await.status, 200);
    drop(stream);
    at_rest(&server).await;
}

#[tokio::test]
async fn a_refusal_tells_whether_the_connection_bears_another_request() {
    let server = Server::start().await;
    // Whoever waits to be told to send sends nothing: the rest cannot be read.
    let awaited = b"PUT /lake/k HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\n\
                    content-length: 5\r\n\r\n";
    let refused = server.send_raw(awaited).await;
    assert_eq!((refused.status, refused.header("connection")), (403, "close"));
    // A small body is read to its end, though nobody wants it, and the next request is answered.
    let sent = b"PUT /lake/k HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\n\r\n";
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    for _ in 0..2 {
        stream.write_all(sent).await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        let refused = read_answer(&mut stream, false).await;
        assert_eq!((refused.status, refused.header("connection")), (403, ""));
    }
    // What is long is not.
    let long = b"PUT /lake/k HTTP/1.1\r\nhost: h\r\ncontent-length: 100000\r\n\r\n";
    stream.write_all(long).await.unwrap();
    stream.write_all(&[0; 100_000]).await.unwrap();
    let refused = read_answer(&mut stream, false).await;
    assert_eq!((refused.status, refused.header("connection")), (403, "close"));
}

#[tokio::test]
async fn who_still_sends_reads_why_it_was_refused() {
    // More than the kernel holds for both ends; the last is refused by its length alone.
    const LONG: usize = 12 << 20;
    let server = Server::on_with(Lane::Memory, |options| {
        options.serve.form_size_max_bytes = LONG as u64;
        options.serve.body_size_max_bytes = LONG as u64;
    })
    .await;
    let more = LONG + 1;
    for (length, status) in [(LONG, 403), (more, 400)] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let head = format!("PUT /lake/k HTTP/1.1\r\nhost: h\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![0; length]).await.expect("it is taken, though nobody wants it");
        let refused = read_answer(&mut stream, false).await;
        assert_eq!((refused.status, refused.header("connection")), (status, "close"));
    }
    // Not for ever.
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let endless = b"PUT /lake/k HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(endless).await.unwrap();
    let chunk = [b"10000\r\n".as_slice(), &[0; 0x10000], b"\r\n"].concat();
    let sent_all = async {
        for _ in 0..(1 << 30) / chunk.len() {
            stream.write_all(&chunk).await?;
        }
        std::io::Result::Ok(())
    };
    sent_all.await.expect_err("a gibibyte was taken of a request that was refused");
    at_rest(&server).await;
}

//! Bodies that come as one chunk, however long they are, as AWS's C libraries send them: nothing
//! holds that chunk. And what else may be said of chunks, and by whom.

use crate::common::raw::{PATIENCE, at_rest, begun_with, until};
use crate::common::sign::{self, Chunks};
use crate::common::{ACCESS_KEY, Answer, Lane, Request, SECRET_KEY, Server, read_answer};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use penstock_gateway::Grant;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

const CRC32: &str = "x-amz-checksum-crc32";
const UNSIGNED: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";

on_every_lane!(
    one_chunk_is_passed_on_as_it_comes,
    what_else_a_line_says_is_passed_over,
    nothing_follows_unless_it_is_announced,
);
on_lane!(azure_alone, Azure: who_signs_nothing_may_send_chunks);
on_lane!(local_alone, Local: who_signs_nothing_may_send_chunks, only_objects_come_in_chunks);

/// So much is sent before the chunk has come.
const BEGUN: usize = 24 << 20;
const SIZE: usize = 32 << 20;

fn bytes(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at % 251) as u8).collect()
}

fn sum(bytes: &[u8]) -> String {
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, bytes);
    STANDARD.encode(&sum.to_be_bytes()[4..])
}

/// A PUT of one chunk, signed or not.
fn one_chunk(server: &Server, path: &str, body: &[u8], is_signed: bool) -> Vec<u8> {
    let host = server.address.to_string();
    if is_signed {
        let pieces = [body];
        let chunks = Chunks { pieces: &pieces, trailer: None, forged: None, is_cut: false };
        return sign::signed_chunks(path, &chunks, &host, SECRET_KEY, ACCESS_KEY);
    }
    let framed = sign::unsigned_chunks(&[body], (CRC32, &sum(body)));
    put_framed(&host, path, body.len(), &framed)
}

fn put_framed(host: &str, path: &str, size: usize, framed: &[u8]) -> Vec<u8> {
    let (length, decoded) = (framed.len().to_string(), size.to_string());
    let headers = [
        ("content-encoding", "aws-chunked"),
        ("content-length", length.as_str()),
        ("x-amz-decoded-content-length", decoded.as_str()),
        ("x-amz-trailer", CRC32),
    ];
    let content_sha256 = Some(UNSIGNED);
    let headers = &headers;
    let request = Request {
        method: "PUT",
        path,
        headers,
        body: framed,
        content_sha256,
        ..Default::default()
    };
    sign::signed(&request, host, SECRET_KEY, ACCESS_KEY)
}

/// How many bytes of a body that is still coming are in hidden files of the directory.
fn staged(server: &Server) -> u64 {
    let length = |name: &String| std::fs::metadata(server.dir.0.join(name)).map(|it| it.len());
    server.dir.files().iter().filter_map(|name| length(name).ok()).sum()
}

async fn one_chunk_is_passed_on_as_it_comes(lane: Lane) {
    let server = Server::on(lane).await;
    let body = bytes(SIZE);
    for is_signed in [false, true] {
        let path = format!("/lake/{is_signed}");
        let request = one_chunk(&server, &path, &body, is_signed);
        let (begin, rest) = request.split_at(BEGUN);
        let mut stream = match lane {
            Lane::Local => {
                let before = staged(&server);
                let stream = begun_with(&server, begin).await;
                let least = before + BEGUN as u64 / 2;
                until("it is passed on", async || staged(&server) >= least).await;
                stream
            }
            // All there is to be seen of memory are whole objects.
            Lane::Memory => begun_with(&server, begin).await,
            _ => {
                // It has taken so much of a chunk that never comes.
                let fake = server.fake.as_ref().unwrap();
                let op = if lane == Lane::Azure { "PutBlob" } else { "PutObject" };
                fake.fault(&format!("reset-upload=1000000,op={op},times=1"));
                let mut stream = begun_with(&server, &begin[..BEGUN / 2]).await;
                let refused = tokio::time::timeout(PATIENCE, read_answer(&mut stream, false)).await;
                let refused = refused.expect("an answer before the chunk has come");
                assert_eq!((refused.status, fake.faults().fired()), (503, vec![1]));
                fake.faults().clear();
                begun_with(&server, begin).await
            }
        };
        stream.write_all(rest).await.unwrap();
        let answer = read_answer(&mut stream, false).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        drop(stream);
        assert!(server.get(&path).await.body == body, "{path}: other bytes");
    }
    at_rest(&server).await;
}

async fn what_else_a_line_says_is_passed_over(lane: Lane) {
    let server = Server::on(lane).await;
    for size in [5, 300 << 10] {
        let body = bytes(size);
        let told = sum(&body);
        let framed = [
            format!("{size:x};note=\"a\"\r\n").as_bytes(),
            &body,
            format!("\r\n0;\r\n{CRC32}:{told}\r\n\r\n").as_bytes(),
        ]
        .concat();
        let host = server.address.to_string();
        let put = server.send_raw(&put_framed(&host, "/lake/k", size, &framed)).await;
        assert_eq!(put.status, 200, "{}", put.text());
        assert_eq!(put.header(CRC32), told);
        assert!(server.get("/lake/k").await.body == body, "other bytes");
    }
}

async fn nothing_follows_unless_it_is_announced(lane: Lane) {
    let server = Server::on(lane).await;
    for size in [5, 300 << 10] {
        let (body, decoded) = (bytes(size), size.to_string());
        let put = async |framed: &[u8]| {
            let told = sum(&body);
            let headers = [("x-amz-decoded-content-length", decoded.as_str()), (CRC32, &told)];
            let request = Request {
                method: "PUT",
                path: "/lake/k",
                headers: &headers,
                body: framed,
                content_sha256: Some(UNSIGNED),
                ..Default::default()
            };
            server.send(request).await
        };
        let framed = sign::unsigned_chunks(&[&body], (CRC32, &sum(&body)));
        let refused = put(&framed).await;
        let told = (refused.status, refused.code());
        assert_eq!(told, (400, "MalformedTrailerError".to_string()), "{}", refused.text());
        assert_eq!(server.get("/lake/k").await.status, 404);
        let bare = [format!("{size:x}\r\n").as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
        let taken = put(&bare).await;
        assert_eq!(taken.status, 200, "{}", taken.text());
        assert!(server.get("/lake/k").await.body == body, "other bytes");
        let gone = Request { method: "DELETE", path: "/lake/k", ..Default::default() };
        assert_eq!(server.send(gone).await.status, 204);
    }
}

/// SDKs without keys make checksums too, and send them behind the body.
async fn who_signs_nothing_may_send_chunks(lane: Lane) {
    let server = Server::on_with(lane, |options| options.public = vec![Grant::everything()]).await;
    let put = async |size: usize, framed: &[u8], decoded: &str| -> Answer {
        let head = format!(
            "PUT /lake/{size} HTTP/1.1\r\nhost: h\r\ncontent-encoding: aws-chunked\r\n\
             x-amz-content-sha256: {UNSIGNED}\r\nx-amz-trailer: {CRC32}\r\n{decoded}\
             content-length: {}\r\n\r\n",
            framed.len()
        );
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(&[head.as_bytes(), framed].concat()).await.unwrap();
        read_answer(&mut stream, false).await
    };
    for size in [0, 5, 300 << 10] {
        let body = bytes(size);
        let pieces: &[&[u8]] = if size == 0 { &[] } else { &[&body] };
        let decoded = format!("x-amz-decoded-content-length: {size}\r\n");
        let wrong = sign::unsigned_chunks(pieces, (CRC32, "AAAAAQ=="));
        let refused = put(size, &wrong, &decoded).await;
        assert_eq!((refused.status, refused.code()), (400, "BadDigest".to_string()), "{size}");
        assert_eq!(server.get(&format!("/lake/{size}")).await.status, 404);
        let framed = sign::unsigned_chunks(pieces, (CRC32, &sum(&body)));
        let untold = put(size, &framed, "").await;
        assert_eq!((untold.status, untold.code()), (411, "MissingContentLength".to_string()));
        let signed = [b"0;chunk-signature=00\r\n\r\n".as_slice(), &framed].concat();
        let told = put(size, &signed, &decoded).await;
        assert_eq!((told.status, told.code()), (400, "IncompleteBody".to_string()), "{size}");
        let taken = put(size, &framed, &decoded).await;
        assert_eq!(taken.status, 200, "{size}: {}", taken.text());
        assert!(server.get(&format!("/lake/{size}")).await.body == body, "{size}: other bytes");
    }
}

/// Nobody takes the chunks out of a form, nor of a document that nobody signs: of a form they would
/// be kept with the object, and of a document that is said to have none no digest was compared.
async fn only_objects_come_in_chunks(lane: Lane) {
    let server = Server::on_with(lane, |options| options.public = vec![Grant::everything()]).await;
    assert_eq!(server.put("/lake/k", b"kept").await.status, 200);
    let begin = "--X1\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nform\r\n--X1\r\n\
                 Content-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n";
    let form = sign::unsigned_chunks(&[begin.as_bytes(), b"a\r\n--X1--\r\n"], (CRC32, "AAAAAQ=="));
    let removal = b"<Delete><Object><Key>k</Key></Object></Delete>";
    let form_type = ("content-type", "multipart/form-data; boundary=X1");
    let other_md5 = ("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==");
    for (method, path, header, body, decoded, status) in [
        ("POST", "/lake", form_type, &form[..], "200", 400),
        ("POST", "/lake?delete", other_md5, removal, "0", 400),
        ("PUT", "/other", other_md5, b"0\r\n\r\n", "0", 400),
    ] {
        let told = ("x-amz-decoded-content-length", decoded);
        let headers = [header, told, ("x-amz-content-sha256", UNSIGNED)];
        let request = Request { method, path, headers: &headers, body, ..Default::default() };
        let answer = server.unsigned(request).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
    }
    assert_eq!(server.get("/lake/k").await.body, b"kept");
    assert_eq!(server.get("/lake/form").await.status, 404);
    assert_eq!(server.get("/other").await.status, 404);
}

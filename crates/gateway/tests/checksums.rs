//! Checksums of every kind that S3 has: compared before anything is visible, and told again.

use crate::common::{Answer, Lane, Request, Server, sign};

/// Of "hello world", by zlib, hashlib and xxHash's own implementation.
const SUMS: [(&str, &str); 10] = [
    ("x-amz-checksum-crc32", "DUoRhQ=="),
    ("x-amz-checksum-crc32c", "yZRlqg=="),
    ("x-amz-checksum-crc64nvme", "jSnVw/bqjr4="),
    ("x-amz-checksum-sha1", "Kq5sNclPz7QV2+lfQIuc6R7oRu0="),
    ("x-amz-checksum-sha256", "uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek="),
    (
        "x-amz-checksum-sha512",
        "MJ7MSJwS1utMxA9QyQLytNDtd+5RGnx6m808qG1M2G+YndNbxf9JlnDaNCVbRbDP2DDoH2Bdz33FVC6TrpzXbw==",
    ),
    ("x-amz-checksum-md5", "XrY7u+Ae7tCTyyK7j1rNww=="),
    ("x-amz-checksum-xxhash64", "RatnNLIeaWg="),
    ("x-amz-checksum-xxhash3", "1Eex6kDmmIs="),
    ("x-amz-checksum-xxhash128", "340J6T+HSQCpm4d1zBW2xw=="),
];

/// The same algorithm, of other bytes.
fn other(sum: &str) -> String {
    let first = if sum.starts_with('A') { 'B' } else { 'A' };
    format!("{first}{}", &sum[1..])
}

async fn put(server: &Server, path: &str, name: &str, sum: &str, is_trailer: bool) -> Answer {
    if !is_trailer {
        let headers = [(name, sum)];
        let body = b"hello world";
        return server
            .send(Request { method: "PUT", path, headers: &headers, body, ..Default::default() })
            .await;
    }
    let body = sign::unsigned_chunks(&[b"hello ", b"world"], (name, sum));
    let length = body.len().to_string();
    let headers = [
        ("content-encoding", "aws-chunked"),
        ("content-length", length.as_str()),
        ("x-amz-decoded-content-length", "11"),
        ("x-amz-trailer", name),
    ];
    let request = Request {
        method: "PUT",
        path,
        headers: &headers,
        body: &body,
        content_sha256: Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
        ..Default::default()
    };
    server.send(request).await
}

async fn told(server: &Server, method: &str, path: &str, name: &str) -> String {
    let headers = [("x-amz-checksum-mode", "ENABLED")];
    let request = Request { method, path, headers: &headers, ..Default::default() };
    server.send(request).await.header(name).to_string()
}

on_every_lane!(
    every_kind_is_compared_before_anything_is_there,
    a_copy_with_a_list_of_its_own_keeps_its_checksum,
    a_trailer_that_was_not_announced_is_refused_and_nothing_kept,
    a_copy_has_a_checksum_of_the_algorithm_that_is_asked_for,
    a_document_that_is_not_what_its_digest_says_does_nothing
);

async fn every_kind_is_compared_before_anything_is_there(lane: Lane) {
    let server = Server::on(lane).await;
    for (name, sum) in SUMS {
        for is_trailer in [false, true] {
            let what = format!("{name}, trailer: {is_trailer}");
            let path = format!("/lake/{name}-{is_trailer}");
            let wrong = put(&server, &path, name, &other(sum), is_trailer).await;
            assert_eq!((wrong.status, wrong.code().as_str()), (400, "BadDigest"), "{what}");
            assert_eq!(server.get(&path).await.status, 404, "{what}");
            let right = put(&server, &path, name, sum, is_trailer).await;
            assert_eq!((right.status, right.header(name)), (200, sum), "{what}: {}", right.text());
            // S3 tells those again that it keeps itself, Google none.
            if !matches!(lane, Lane::S3 | Lane::Google) {
                assert_eq!(told(&server, "GET", &path, name).await, sum, "{what}");
                assert_eq!(told(&server, "HEAD", &path, name).await, sum, "{what}");
            }
        }
    }
}

/// Of a small body, and of one that flows: another is announced than the one that comes.
async fn a_trailer_that_was_not_announced_is_refused_and_nothing_kept(lane: Lane) {
    let server = Server::on(lane).await;
    let (crc32, large) = (SUMS[0], vec![7; 200 << 10]);
    for body in [&b"hello world"[..], &large] {
        let (length, framed) = (body.len().to_string(), sign::unsigned_chunks(&[body], crc32));
        let framed_length = framed.len().to_string();
        let headers = [
            ("content-encoding", "aws-chunked"),
            ("content-length", framed_length.as_str()),
            ("x-amz-decoded-content-length", length.as_str()),
            ("x-amz-trailer", "x-amz-checksum-sha1"),
        ];
        let request = Request {
            method: "PUT",
            path: "/lake/k",
            headers: &headers,
            body: &framed,
            content_sha256: Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
            ..Default::default()
        };
        let refused = server.send(request).await;
        let told = (refused.status, refused.code());
        assert_eq!(told, (400, "MalformedTrailerError".to_string()), "{}", refused.text());
        assert!(refused.text().contains(crc32.0), "{}", refused.text());
        assert_eq!(server.get("/lake/k").await.status, 404);
    }
}

/// Where metadata is written behind the bytes; elsewhere a copy keeps what its source has.
async fn a_copy_has_a_checksum_of_the_algorithm_that_is_asked_for(lane: Lane) {
    let server = Server::on(lane).await;
    let [crc32, sha256] = [SUMS[0], SUMS[4]];
    put(&server, "/lake/k", crc32.0, crc32.1, false).await;
    let is_near = matches!(lane, Lane::Local | Lane::Memory);
    let copy = |path: &'static str, algorithm: &'static str| {
        let server = &server;
        async move {
            let headers = [
                ("x-amz-copy-source", "/lake/k"),
                ("x-amz-checksum-algorithm", algorithm),
                ("x-amz-tagging-directive", "REPLACE"),
            ];
            let request = Request { method: "PUT", path, headers: &headers, ..Default::default() };
            server.send(request).await
        }
    };
    let none = copy("/lake/none", "FOO").await;
    assert_eq!((none.status, none.code().as_str()), (400, "InvalidRequest"), "{}", none.text());
    assert_eq!(server.get("/lake/none").await.status, 404);
    for (name, sum) in SUMS {
        let algorithm: &'static str = name.trim_start_matches("x-amz-checksum-");
        let copied = copy("/lake/copy", algorithm).await;
        assert_eq!(copied.status, 200, "{name}: {}", copied.text());
        assert_eq!(server.get("/lake/copy").await.body, b"hello world", "{name}");
        if is_near {
            assert_eq!(told(&server, "HEAD", "/lake/copy", name).await, sum, "{name}");
        }
    }
    if !matches!(lane, Lane::S3 | Lane::Google) {
        let kept = if is_near { "" } else { crc32.1 };
        assert_eq!(told(&server, "HEAD", "/lake/copy", crc32.0).await, kept);
    }
    // Onto itself that is a change where one is made.
    let itself = copy("/lake/k", "sha256").await;
    match is_near {
        true => {
            let text = itself.text();
            let element = format!("<ChecksumSHA256>{}</ChecksumSHA256>", sha256.1);
            assert!(text.contains(&element), "{text}");
            assert!(text.contains("<ChecksumType>FULL_OBJECT</ChecksumType>"), "{text}");
            assert_eq!(told(&server, "GET", "/lake/k", sha256.0).await, sha256.1);
        }
        false => assert_eq!(itself.code(), "InvalidRequest"),
    }
    assert_eq!(server.get("/lake/k").await.body, b"hello world");
}

/// A list of the copy's own stands in its metadata, in place of that of its source.
async fn a_copy_with_a_list_of_its_own_keeps_its_checksum(lane: Lane) {
    let server = Server::on_with(lane, |options| options.serve.acl = "public".to_string()).await;
    let headers = [("x-amz-copy-source", "/lake/k")];
    for (name, sum) in [SUMS[0], SUMS[2], SUMS[4]] {
        assert_eq!(put(&server, "/lake/k", name, sum, false).await.status, 200);
        let request =
            Request { method: "PUT", path: "/lake/copy", headers: &headers, ..Default::default() };
        let copied = server.send(request).await;
        assert_eq!(copied.status, 200, "{name}: {}", copied.text());
        assert_eq!(server.get("/lake/copy").await.body, b"hello world");
        if !matches!(lane, Lane::Google) {
            assert_eq!(told(&server, "HEAD", "/lake/copy", name).await, sum, "{name}");
        }
    }
}

/// A large body is placed as it comes; a directory's metadata is written behind it.
#[tokio::test]
async fn the_checksum_in_a_trailer_of_a_large_body_is_kept_on_a_directory() {
    let server = Server::on(Lane::Local).await;
    let large = vec![b'a'; 300 << 10];
    // CRC-32 of 307,200 times "a", from Python's zlib.
    let sum = "IGoStg==";
    let body = sign::unsigned_chunks(&[&large], ("x-amz-checksum-crc32", sum));
    let length = body.len().to_string();
    let headers = [
        ("content-encoding", "aws-chunked"),
        ("content-length", length.as_str()),
        ("x-amz-decoded-content-length", "307200"),
        ("x-amz-trailer", "x-amz-checksum-crc32"),
        // Mended before it is understood, which must not lose the trailer.
        ("if-match", "no_tag"),
    ];
    let request = |headers| Request {
        method: "PUT",
        path: "/lake/large",
        headers,
        body: &body,
        content_sha256: Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
        ..Default::default()
    };
    assert_eq!(server.send(request(&headers)).await.code(), "NoSuchKey");
    let put = server.send(request(&headers[..4])).await;
    assert_eq!((put.status, put.header("x-amz-checksum-crc32")), (200, sum), "{}", put.text());
    assert_eq!(told(&server, "HEAD", "/lake/large", "x-amz-checksum-crc32").await, sum);
}

async fn a_document_that_is_not_what_its_digest_says_does_nothing(lane: Lane) {
    let server = Server::on(lane).await;
    server.put("/lake/k", b"bytes").await;
    let delete = b"<Delete><Object><Key>k</Key></Object></Delete>";
    let tags = b"<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>";
    let md5 = ("content-md5", "XrY7u+Ae7tCTyyK7j1rNww==");
    for (name, sum) in [SUMS[0], SUMS[4], md5] {
        for (method, path, body) in
            [("POST", "/lake?delete", &delete[..]), ("PUT", "/lake/k?tagging", &tags[..])]
        {
            let headers = [(name, sum)];
            let content_sha256 = Some("UNSIGNED-PAYLOAD");
            let asked = Request {
                method,
                path,
                headers: &headers,
                body,
                content_sha256,
                ..Default::default()
            };
            let answer = server.send(asked).await;
            let told = (answer.status, answer.code());
            assert_eq!(told, (400, "BadDigest".into()), "{name} {path}: {}", answer.text());
        }
    }
    assert_eq!(server.get("/lake/k").await.body, b"bytes");
    assert!(!server.get("/lake/k?tagging").await.text().contains("<Key>a</Key>"));
    let upload = server
        .send(Request { method: "POST", path: "/lake/m?uploads", ..Default::default() })
        .await
        .text();
    let (_, id) = upload.split_once("<UploadId>").unwrap();
    let id = id.split_once("</UploadId>").unwrap().0;
    let part = server.put(&format!("/lake/m?partNumber=1&uploadId={id}"), b"part").await;
    let complete = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{}</ETag></Part>\
         </CompleteMultipartUpload>",
        part.header("etag")
    );
    let path = format!("/lake/m?uploadId={id}");
    let asked = Request {
        method: "POST",
        path: &path,
        headers: &[md5],
        body: complete.as_bytes(),
        ..Default::default()
    };
    assert_eq!(server.send(asked.clone()).await.code(), "BadDigest");
    assert_eq!(server.get("/lake/m").await.status, 404);
    let done = server.send(Request { headers: &[], ..asked }).await;
    assert_eq!(done.status, 200, "{}", done.text());
}

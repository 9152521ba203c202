//! Bad input: refused with the right code, leaving nothing, never leaving the served directory.

use crate::common::{Lane, Request, SECRET_KEY, Server, sign};
use std::os::unix::fs::symlink;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

async fn code(server: &Server, request: Request<'_>) -> (u16, String) {
    let answer = server.send(request).await;
    (answer.status, answer.code())
}

fn is(status: u16, code: &str) -> (u16, String) {
    (status, code.to_string())
}

on_every_lane!(
    malformed_xml_is_refused,
    a_body_that_is_not_what_was_promised_leaves_nothing,
    malformed_chunks_are_refused,
    chunks_without_the_last_one_are_refused,
    chunks_that_nobody_takes_out_are_refused,
    keys_in_a_document_are_held_to_the_same_as_others,
    what_is_not_there_has_its_code,
    a_large_body_that_is_wrong_leaves_what_was_there,
);

#[tokio::test]
async fn wrong_credentials_are_told_apart() {
    let server = Server::start().await;
    let host = server.address.to_string();
    let request = Request { path: "/lake", ..Default::default() };
    let signed = |secret, access| sign::signed(&request, &host, secret, access);
    let wrong_secret = server.send_raw(&signed("wrong", crate::common::ACCESS_KEY)).await;
    assert_eq!((wrong_secret.status, wrong_secret.code()), is(403, "SignatureDoesNotMatch"));
    let wrong_key = server.send_raw(&signed(SECRET_KEY, "NOBODY")).await;
    assert_eq!((wrong_key.status, wrong_key.code()), is(403, "InvalidAccessKeyId"));
    let unsigned = server.send_raw(b"GET /lake HTTP/1.1\r\nhost: h\r\n\r\n").await;
    assert_eq!((unsigned.status, unsigned.code()), is(403, "AccessDenied"));
    let late = Request { clock_offset_s: -3600, ..request.clone() };
    assert_eq!(code(&server, late).await, is(403, "RequestTimeTooSkewed"));
    let early = Request { clock_offset_s: 3600, ..request.clone() };
    assert_eq!(code(&server, early).await, is(403, "RequestTimeTooSkewed"));
    for answer in [wrong_secret, wrong_key, unsigned] {
        assert!(!answer.text().contains(SECRET_KEY));
    }
}

#[tokio::test]
async fn presigned_urls_expire_and_cover_their_path() {
    let server = Server::start().await;
    server.put("/lake/k", b"shared").await;
    server.put("/lake/other", b"private").await;
    let host = server.address.to_string();
    let sign = |expires, offset| {
        sign::presigned(
            "GET",
            "/lake/k",
            &host,
            SECRET_KEY,
            crate::common::ACCESS_KEY,
            expires,
            offset,
        )
    };
    let ask = async |path: String| {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n");
        server.send_raw(request.as_bytes()).await
    };
    let expired = ask(sign(60, -120)).await;
    assert_eq!((expired.status, expired.code()), is(403, "AccessDenied"));
    let moved = ask(sign(60, 0).replace("/lake/k?", "/lake/other?")).await;
    assert_eq!((moved.status, moved.code()), is(403, "SignatureDoesNotMatch"));
    let stretched = ask(sign(60, 0).replace("Expires=60", "Expires=600")).await;
    assert_eq!((stretched.status, stretched.code()), is(403, "SignatureDoesNotMatch"));
}

async fn malformed_xml_is_refused(lane: Lane) {
    let server = Server::on(lane).await;
    for body in ["<Delete", "<Delete></Wrong>", "not xml", "<Delete/>", "\u{0}"] {
        let request = Request {
            method: "POST",
            path: "/lake?delete",
            body: body.as_bytes(),
            ..Default::default()
        };
        let (status, code) = code(&server, request).await;
        assert_eq!((status, code.as_str()), (400, "MalformedXML"), "{body:?}");
    }
    let begun = server
        .send(Request { method: "POST", path: "/lake/mp?uploads", ..Default::default() })
        .await
        .text();
    let id = begun.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap();
    let path = format!("/lake/mp?uploadId={id}");
    for body in [
        "<CompleteMultipartUpload>",
        "<CompleteMultipartUpload/>",
        "<CompleteMultipartUpload><Part><PartNumber>x</PartNumber></Part></CompleteMultipartUpload>",
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber></Part></CompleteMultipartUpload>",
    ] {
        let request =
            Request { method: "POST", path: &path, body: body.as_bytes(), ..Default::default() };
        assert_eq!(code(&server, request).await, is(400, "MalformedXML"), "{body}");
    }
    let huge = vec![b' '; 5 << 20];
    let request =
        Request { method: "POST", path: "/lake?delete", body: &huge, ..Default::default() };
    let (status, _) = code(&server, request).await;
    assert!((400..500).contains(&status), "{status}");
}

async fn a_body_that_is_not_what_was_promised_leaves_nothing(lane: Lane) {
    let server = Server::on(lane).await;
    let put = |headers, content_sha256| Request {
        method: "PUT",
        path: "/lake/k",
        headers,
        body: b"hello world",
        content_sha256,
        ..Default::default()
    };
    let other = sign::sha256_hex(b"something else");
    let wrong_sha = code(&server, put(&[], Some(&other))).await;
    assert_eq!(wrong_sha, is(400, "XAmzContentSHA256Mismatch"));
    let wrong_md5 = code(&server, put(&[("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")], None)).await;
    assert_eq!(wrong_md5, is(400, "BadDigest"));
    let no_md5 = code(&server, put(&[("content-md5", "short")], None)).await;
    assert_eq!(no_md5, is(400, "InvalidDigest"));
    let wrong_crc = code(&server, put(&[("x-amz-checksum-crc32c", "AAAAAA==")], None)).await;
    assert_eq!(wrong_crc, is(400, "BadDigest"));
    let other = "x-amz-checksum-sha1";
    for (trailer, value, wanted) in
        [("x-amz-checksum-crc32", "AAAAAA==", "BadDigest"), (other, "x", "MalformedTrailerError")]
    {
        let body = sign::unsigned_chunks(&[b"hello"], (trailer, value));
        let length = body.len().to_string();
        let headers = [
            ("content-encoding", "aws-chunked"),
            ("content-length", length.as_str()),
            ("x-amz-decoded-content-length", "5"),
            ("x-amz-trailer", "x-amz-checksum-crc32"),
        ];
        let request = Request {
            method: "PUT",
            path: "/lake/k",
            headers: &headers,
            body: &body,
            content_sha256: Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
            ..Default::default()
        };
        assert_eq!(code(&server, request).await, is(400, wanted), "{trailer}");
    }
    assert_eq!(server.get("/lake/k").await.status, 404);
    assert_eq!(server.dir.files(), Vec::<String>::new());
}

async fn malformed_chunks_are_refused(lane: Lane) {
    let server = Server::on(lane).await;
    for body in
        ["zz\r\nhello\r\n0\r\n\r\n", "5\r\nhel", "5;chunk-signature=00\r\nhello\r\n0\r\n\r\n"]
    {
        let length = body.len().to_string();
        let headers = [
            ("content-encoding", "aws-chunked"),
            ("content-length", length.as_str()),
            ("x-amz-decoded-content-length", "5"),
        ];
        let request = Request {
            method: "PUT",
            path: "/lake/k",
            headers: &headers,
            body: body.as_bytes(),
            content_sha256: Some("STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
            ..Default::default()
        };
        assert_eq!(code(&server, request).await, is(400, "IncompleteBody"), "{body:?}");
    }
    assert_eq!(server.dir.files(), Vec::<String>::new());
}

/// They would be kept with the object.
async fn chunks_that_nobody_takes_out_are_refused(lane: Lane) {
    let server = Server::on(lane).await;
    let body = b"5\r\nhello\r\n0\r\n\r\n";
    let put = |decoded: &'static str| {
        let server = &server;
        async move {
            let headers = [("x-amz-decoded-content-length", decoded)];
            let request = Request {
                method: "PUT",
                path: "/lake/k",
                headers: &headers,
                body,
                content_sha256: Some("UNSIGNED-PAYLOAD"),
                ..Default::default()
            };
            server.send(request).await
        }
    };
    let refused = put("5").await;
    assert_eq!((refused.status, refused.code()), is(400, "InvalidRequest"), "{}", refused.text());
    assert_eq!(server.get("/lake/k").await.status, 404);
    // A length that is that of the body tells of none.
    let taken = put("15").await;
    assert_eq!(taken.status, 200, "{}", taken.text());
    assert_eq!(server.get("/lake/k").await.body, body);
}

async fn keys_in_a_document_are_held_to_the_same_as_others(lane: Lane) {
    let server = Server::on(lane).await;
    server.put("/lake/k", b"bytes").await;
    let long = "l".repeat(1025);
    let body = format!(
        "<Delete><Object><Key>{long}</Key></Object><Object><Key></Key></Object>\
         <Object><Key>k</Key></Object></Delete>"
    );
    let request = Request {
        method: "POST",
        path: "/lake?delete",
        body: body.as_bytes(),
        ..Default::default()
    };
    let text = server.send(request).await.text();
    for (key, code) in [(long.as_str(), "KeyTooLongError"), ("", "InvalidArgument")] {
        let element = format!("<Key>{key}</Key><Code>{code}</Code>");
        let other = format!("<Code>{code}</Code><Key>{key}</Key>");
        assert!(text.contains(&element) || text.contains(&other), "{code}: {text}");
    }
    assert!(text.contains("<Deleted><Key>k</Key></Deleted>"), "{text}");
    assert_eq!(server.get("/lake/k").await.status, 404);
}

/// The sizes agree, and yet somebody cut it: nothing says that what is there is all.
async fn chunks_without_the_last_one_are_refused(lane: Lane) {
    let server = Server::on(lane).await;
    let large = vec![b'x'; 300 << 10];
    for data in [&b"hello"[..], &large] {
        let whole = sign::unsigned_chunks(&[data], ("x-amz-checksum-crc32", "AAAAAA=="));
        let last = b"0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n".len();
        // All of the last one, and all but its first digit.
        for cut in [last, last - 1] {
            let body = &whole[..whole.len() - cut];
            let (length, decoded) = (body.len().to_string(), data.len().to_string());
            let headers = [
                ("content-encoding", "aws-chunked"),
                ("content-length", length.as_str()),
                ("x-amz-decoded-content-length", decoded.as_str()),
                ("x-amz-trailer", "x-amz-checksum-crc32"),
            ];
            let request = Request {
                method: "PUT",
                path: "/lake/k",
                headers: &headers,
                body,
                content_sha256: Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
                ..Default::default()
            };
            let answer = code(&server, request).await;
            assert_eq!(answer, is(400, "IncompleteBody"), "{} without {cut}", data.len());
        }
    }
    assert_eq!(server.get("/lake/k").await.status, 404);
    assert_eq!(server.dir.files(), Vec::<String>::new());
}

/// Bodies that flow, since they are too large to be taken whole: nothing is kept of a bad one, and
/// what was there before stays.
async fn a_large_body_that_is_wrong_leaves_what_was_there(lane: Lane) {
    let server = Server::on(lane).await;
    let body = vec![b'x'; 3 << 20];
    fn put<'a>(path: &'a str, headers: &'a [(&'a str, &'a str)], body: &'a [u8]) -> Request<'a> {
        Request { method: "PUT", path, headers, body, ..Default::default() }
    }
    server.put("/lake/old", b"old").await;
    let other = sign::sha256_hex(b"something else");
    for path in ["/lake/new", "/lake/old"] {
        let wrong_sha =
            code(&server, Request { content_sha256: Some(&other), ..put(path, &[], &body) }).await;
        assert_eq!(wrong_sha, is(400, "XAmzContentSHA256Mismatch"));
        let md5 = [("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")];
        assert_eq!(code(&server, put(path, &md5, &body)).await, is(400, "BadDigest"));
        let crc = [("x-amz-checksum-crc64nvme", "AAAAAAAAAAA=")];
        assert_eq!(code(&server, put(path, &crc, &body)).await, is(400, "BadDigest"));
        let chunks = sign::unsigned_chunks(&[&body], ("x-amz-checksum-crc32", "AAAAAA=="));
        let (length, decoded) = (chunks.len().to_string(), body.len().to_string());
        let headers = [
            ("content-encoding", "aws-chunked"),
            ("content-length", length.as_str()),
            ("x-amz-decoded-content-length", decoded.as_str()),
            ("x-amz-trailer", "x-amz-checksum-crc32"),
        ];
        let content_sha256 = Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER");
        let trailer = Request { content_sha256, ..put(path, &headers, &chunks) };
        assert_eq!(code(&server, trailer).await, is(400, "BadDigest"));
        let request = put(path, &[], &body);
        let host = server.address.to_string();
        let bytes = sign::signed(&request, &host, SECRET_KEY, crate::common::ACCESS_KEY);
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(&bytes[..bytes.len() - 1]).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut rest).await.ok();
    }
    assert_eq!(server.get("/lake/new").await.status, 404);
    assert_eq!(server.get("/lake/old").await.body, b"old");
    let right = put("/lake/new", &[], &body);
    assert_eq!(code(&server, right).await.0, 200);
    assert!(server.get("/lake/new").await.body == body, "the bytes differ");
}

#[tokio::test]
async fn a_connection_cut_in_a_body_leaves_nothing() {
    let server = Server::start().await;
    let body = vec![7; 3 << 20];
    let request = Request { method: "PUT", path: "/lake/cut", body: &body, ..Default::default() };
    let bytes =
        sign::signed(&request, &server.address.to_string(), SECRET_KEY, crate::common::ACCESS_KEY);
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&bytes[..bytes.len() - 1]).await.unwrap();
    stream.shutdown().await.unwrap();
    // The server's answer or close tells that it is done with the body.
    let mut rest = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut rest).await.ok();
    assert_eq!(server.get("/lake/cut").await.status, 404);
    // A write that was under way removes its file when it ends, on a thread of its own.
    let gone = tokio::time::timeout(std::time::Duration::from_secs(10), async {
        while !server.dir.files().is_empty() {
            tokio::task::yield_now().await;
        }
    });
    assert!(gone.await.is_ok(), "{:?}", server.dir.files());
}

#[tokio::test]
async fn no_key_leads_out_of_the_directory() {
    let server = Server::start().await;
    std::fs::write(server.dir.0.join("outside.txt"), "outside").unwrap();
    symlink(server.dir.0.join("outside.txt"), server.dir.served().join("lake/link")).unwrap();
    symlink(&server.dir.0, server.dir.served().join("lake/linkdir")).unwrap();
    symlink(&server.dir.0, server.dir.served().join("linkbucket")).unwrap();
    let paths = [
        "/lake/../outside.txt",
        "/lake/../../outside.txt",
        "/lake/%2e%2e/%2e%2e/outside.txt",
        "/lake/..%2F..%2Foutside.txt",
        "/lake//../../outside.txt",
        "/lake/x/../../../outside.txt",
        "/lake/link",
        "/lake/linkdir/outside.txt",
        "/linkbucket/outside.txt",
        "/../outside.txt",
        "/..%2Foutside.txt",
        "/%2e%2e/outside.txt",
        "/.penstock-x/outside.txt",
    ];
    for path in paths {
        for method in ["GET", "HEAD", "PUT", "DELETE"] {
            let answer =
                server.send(Request { method, path, body: b"", ..Default::default() }).await;
            assert!(!answer.text().contains("outside\n") && answer.text() != "outside", "{path}");
            if method == "GET" {
                assert!(answer.status >= 400, "{method} {path}: {}", answer.status);
            }
        }
        let outside = std::fs::read_to_string(server.dir.0.join("outside.txt")).unwrap();
        assert_eq!(outside, "outside", "{path}");
    }
    let mut names: Vec<_> = std::fs::read_dir(&server.dir.0)
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["outside.txt", "served"]);
}

#[tokio::test]
async fn odd_keys_are_names_of_their_own_or_refused() {
    let server = Server::start().await;
    for key in ["a//b", "/lead", "dir/", "x/../y", "..", "%C3%BC", "%20", "a%3Fb"] {
        let path = format!("/lake/{key}");
        assert_eq!(server.put(&path, key.as_bytes()).await.status, 200, "{key}");
        assert_eq!(server.get(&path).await.text(), key);
    }
    let long = format!("/lake/{}", "k".repeat(1025));
    for path in ["/lake/nul%00byte", "/lake/.penstock-tmp-1", "/lake/%FF%FE", long.as_str()] {
        let answer = server.put(path, b"x").await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.text());
        assert!(
            !answer.text().contains(server.dir.0.to_str().unwrap()),
            "tells where it keeps things: {}",
            answer.text()
        );
    }
    for bucket in ["UPPER", "a", "..", "under_score", "healthz", "xn--x"] {
        let path = format!("/{bucket}");
        let request = Request { method: "PUT", path: &path, ..Default::default() };
        let answer = server.send(request).await;
        assert_eq!(answer.status, 400, "{bucket}: {}", answer.text());
    }
}

#[tokio::test]
async fn what_is_missing_says_its_name() {
    let server = Server::start().await;
    server.put("/lake/k", b"x").await;
    for (method, path, name) in [
        ("GET", "/lake?metrics&id=1", "GetBucketMetricsConfiguration"),
        ("GET", "/lake?inventory&id=1", "GetBucketInventoryConfiguration"),
        ("GET", "/lake?analytics&id=1", "GetBucketAnalyticsConfiguration"),
    ] {
        let answer = server.send(Request { method, path, ..Default::default() }).await;
        assert_eq!((answer.status, answer.code()), is(501, "NotImplemented"), "{path}");
        assert!(answer.text().contains(name), "{path}: {}", answer.text());
    }
    for (header, value, told) in [
        ("x-amz-server-side-encryption", "AES256", "NotImplemented"),
        ("x-amz-acl", "public-read", "AccessControlListNotSupported"),
        ("x-amz-website-redirect-location", "/x", "NotImplemented"),
    ] {
        let headers = [(header, value)];
        let request =
            Request { method: "PUT", path: "/lake/n", headers: &headers, ..Default::default() };
        assert_eq!(code(&server, request).await, is(400, told), "{header}");
    }
    // What belongs to a write is no part of a read, and a key without its algorithm none of either.
    let headers = [("x-amz-server-side-encryption", "AES256")];
    for method in ["GET", "HEAD"] {
        let request = Request { method, path: "/lake/k", headers: &headers, ..Default::default() };
        assert_eq!(server.send(request).await.status, 400, "{method}");
    }
    let headers = [("x-amz-server-side-encryption-customer-key", "AAAA")];
    let request =
        Request { method: "PUT", path: "/lake/n", headers: &headers, ..Default::default() };
    assert_eq!(code(&server, request).await, is(400, "InvalidArgument"));
    let headers = [("x-amz-storage-class", "GLACIER")];
    let request =
        Request { method: "PUT", path: "/lake/n", headers: &headers, ..Default::default() };
    assert_eq!(code(&server, request).await, is(400, "InvalidStorageClass"));
    let version =
        code(&server, Request { path: "/lake/k?versionId=abc", ..Default::default() }).await;
    assert_eq!(version, is(404, "NoSuchVersion"));
    assert_eq!(server.get("/lake/n").await.status, 404);
}

async fn what_is_not_there_has_its_code(lane: Lane) {
    let server = Server::on(lane).await;
    let none = Request::default();
    for (method, path, expected) in [
        ("GET", "/missing-lake", is(404, "NoSuchBucket")),
        ("PUT", "/missing-lake/k", is(404, "NoSuchBucket")),
        ("GET", "/lake/k", is(404, "NoSuchKey")),
        ("DELETE", "/missing-lake", is(404, "NoSuchBucket")),
        ("GET", "/lake/k?uploadId=0123456789abcdef0123456789abcdef", is(404, "NoSuchUpload")),
        ("DELETE", "/lake/k?uploadId=..%2F..%2Fx", is(404, "NoSuchUpload")),
        ("PUT", "/lake/k?partNumber=1&uploadId=nonsense", is(404, "NoSuchUpload")),
        ("PUT", "/lake/k?partNumber=0&uploadId=nonsense", is(400, "InvalidArgument")),
        ("PUT", "/lake/k?partNumber=10001&uploadId=nonsense", is(400, "InvalidArgument")),
    ] {
        let got = code(&server, Request { method, path, ..none.clone() }).await;
        assert_eq!(got, expected, "{method} {path}");
    }
    let copy = Request {
        method: "PUT",
        path: "/lake/copy",
        headers: &[("x-amz-copy-source", "lake/..%2F..%2Foutside.txt")],
        ..none.clone()
    };
    // Azure has no such names, so nothing is asked there.
    let no_key =
        if lane == Lane::Azure { is(400, "InvalidArgument") } else { is(404, "NoSuchKey") };
    assert_eq!(code(&server, copy).await, no_key);
    let large = Request {
        method: "PUT",
        path: "/lake/large",
        headers: &[("content-length", "5368709121")],
        ..none
    };
    assert_eq!(code(&server, large).await, is(400, "EntityTooLarge"));
}

//! Signatures of requests that a proxy has touched: the Host in its other form holds, and whatever
//! else was changed or taken out is named.

use crate::common::sign::{presigned, signed};
use crate::common::{ACCESS_KEY, Answer, Request, SECRET_KEY, Server};

/// Sends a request that was signed for one Host with another one.
async fn moved(server: &Server, request: &Request<'_>, from: &str, to: &str) -> Answer {
    let bytes = signed(request, from, SECRET_KEY, ACCESS_KEY);
    let at = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(bytes[..at].to_vec()).unwrap();
    let head = head.replace(&format!("host: {from}\r\n"), &format!("host: {to}\r\n"));
    server.send_raw(&[head.as_bytes(), &bytes[at..]].concat()).await
}

/// The same of a presigned URL.
async fn moved_url(server: &Server, method: &str, from: &str, to: &str) -> Answer {
    let url = presigned(method, "/lake/a%20b", from, SECRET_KEY, ACCESS_KEY, 60, 0);
    let body = if method == "PUT" { "content-length: 3\r\n\r\nabc" } else { "\r\n" };
    let request = format!("{method} {url} HTTP/1.1\r\nhost: {to}\r\n{body}");
    server.send_raw(request.as_bytes()).await
}

#[tokio::test]
async fn a_host_holds_with_its_default_port_and_without() {
    let server = Server::start().await;
    for (from, to) in [
        ("s3.example.org", "s3.example.org:80"),
        ("s3.example.org", "s3.example.org:443"),
        ("s3.example.org:80", "s3.example.org"),
        ("s3.example.org:443", "s3.example.org"),
        ("[::1]:443", "[::1]"),
        ("192.0.2.7", "192.0.2.7:80"),
    ] {
        let put =
            Request { method: "PUT", path: "/lake/a%20b", body: b"abc", ..Default::default() };
        let placed = moved(&server, &put, from, to).await;
        assert_eq!(placed.status, 200, "{from} {to}: {}", placed.text());
        let got = Request { path: "/lake/a%20b?x-id=GetObject", ..Default::default() };
        assert_eq!(moved(&server, &got, from, to).await.body, b"abc", "{from} {to}");
        assert_eq!(moved_url(&server, "PUT", from, to).await.status, 200, "{from} {to}");
        assert_eq!(moved_url(&server, "GET", from, to).await.body, b"abc", "{from} {to}");
        let head = moved_url(&server, "HEAD", from, to).await;
        assert_eq!(head.header("content-length"), "3", "{from} {to}");
    }
    assert!(!server.notices.lines().iter().any(|line| line.starts_with("signature")));
}

#[tokio::test]
async fn another_host_or_port_does_not_hold() {
    let server = Server::start().await;
    server.put("/lake/a%20b", b"abc").await;
    for (from, to) in [
        ("s3.example.org", "s3.example.org:9000"),
        ("s3.example.org:80", "s3.example.org:443"),
        ("s3.example.org", "s3.example.com"),
        ("s3.example.org:443", "s3.example.com"),
        ("s3.example.org:8080", "s3.example.org"),
        ("s3.example.org:80", "s3.example.org:80:80"),
    ] {
        let got = Request { path: "/lake/a%20b", ..Default::default() };
        let refused = moved(&server, &got, from, to).await;
        assert_eq!((refused.status, refused.code().as_str()), (403, "SignatureDoesNotMatch"));
        assert!(refused.text().contains("host"), "{}", refused.text());
        let refused = moved_url(&server, "GET", from, to).await;
        assert_eq!(refused.code(), "SignatureDoesNotMatch", "{from} {to}");
    }
    // The other form of the host makes no wrong secret right, and no other path either.
    let get = Request { path: "/lake/a%20b", ..Default::default() };
    for (secret, path) in [("another secret", "/lake/a%20b"), (SECRET_KEY, "/lake/other")] {
        let bytes = signed(&get, "s3.example.org", secret, ACCESS_KEY);
        let text = String::from_utf8(bytes).unwrap();
        let text = text.replace("host: s3.example.org", "host: s3.example.org:80");
        let text = text.replace("/lake/a%20b", path);
        assert_eq!(server.send_raw(text.as_bytes()).await.code(), "SignatureDoesNotMatch");
    }
}

/// What a proxy does to a request, and how the refusal names it.
#[tokio::test]
async fn a_header_that_a_proxy_changed_is_named() {
    let server = Server::start().await;
    server.put("/lake/k", b"abc").await;
    let accept = [("accept-encoding", "identity")];
    let request = Request { path: "/lake/k", headers: &accept, ..Default::default() };
    let bytes = signed(&request, "s3.example.org", SECRET_KEY, ACCESS_KEY);
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(server.send_raw(text.as_bytes()).await.body, b"abc");
    let host = "host: s3.example.org\r\n";
    for (from, to, words) in [
        (
            "accept-encoding: identity",
            "accept-encoding: gzip, br",
            "A proxy changed the header accept-encoding, which is signed: the signature holds for \
             `identity`, and `gzip, br` reached the gateway.",
        ),
        (
            host,
            "host: 10.0.0.7:9000\r\nx-forwarded-host: s3.example.org\r\n",
            "A proxy changed the header host, which is signed: the signature holds for \
             `s3.example.org`, and `10.0.0.7:9000` reached the gateway.",
        ),
        (host, "host: s3.example.org:9000\r\n", "the signature holds for `s3.example.org`"),
        (
            host,
            "host: pod-7\r\n",
            "these signed headers reached the gateway so, and a change to one of them breaks the \
             signature: host: `pod-7`, accept-encoding: `identity`.",
        ),
    ] {
        let refused = server.send_raw(text.replace(from, to).as_bytes()).await;
        assert_eq!((refused.status, refused.code().as_str()), (403, "SignatureDoesNotMatch"));
        assert!(refused.text().contains(words), "{}", refused.text());
        assert!(!refused.text().contains(SECRET_KEY));
    }
}

#[tokio::test]
async fn a_signed_header_that_did_not_arrive_is_named() {
    let server = Server::start().await;
    server.put("/lake/k", b"abc").await;
    let headers = [("x-custom", "1"), ("range", "bytes=0-1"), ("te", "trailers")];
    let request = Request { path: "/lake/k", headers: &headers, ..Default::default() };
    let bytes = signed(&request, "s3.example.org", SECRET_KEY, ACCESS_KEY);
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(server.send_raw(text.as_bytes()).await.status, 206);
    for (name, value) in headers {
        let stripped = text.replace(&format!("{name}: {value}\r\n"), "");
        let refused = server.send_raw(stripped.as_bytes()).await;
        assert_eq!((refused.status, refused.code().as_str()), (403, "SignatureDoesNotMatch"));
        let words = format!("The header `{name}` is signed (SignedHeaders) and did not reach");
        assert!(refused.text().contains(&words), "{}", refused.text());
    }
    let url = presigned("GET", "/lake/k", "s3.example.org", SECRET_KEY, ACCESS_KEY, 60, 0);
    let url = url.replace("SignedHeaders=host", "SignedHeaders=host%3Bx-amz-acl");
    let request = format!("GET {url} HTTP/1.1\r\nhost: s3.example.org\r\n\r\n");
    let refused = server.send_raw(request.as_bytes()).await;
    assert!(refused.text().contains("The header `x-amz-acl` is signed"), "{}", refused.text());
}

//! A request does what was signed and named, and nothing else.

use crate::common::{ACCESS_KEY, Answer, Lane, Request, SECRET_KEY, Server, sign};

on_every_lane!(
    a_presigned_url_is_not_made_to_copy,
    an_operation_that_is_not_known_is_not_taken_for_a_plain_one,
    a_key_with_a_nul_is_nobodys,
);

fn refused(answer: &Answer, status: u16, code: &str, what: &str) {
    assert_eq!((answer.status, answer.code().as_str()), (status, code), "{what}");
}

async fn a_presigned_url_is_not_made_to_copy(lane: Lane) {
    let server = Server::on(lane).await;
    server.put("/lake/private", b"secret").await;
    let host = server.address.to_string();
    let url = sign::presigned("PUT", "/lake/up/k", &host, SECRET_KEY, ACCESS_KEY, 60, 0);
    for more in ["x-amz-copy-source: lake/private", "x-amz-tagging: a=b", "x-amz-acl: private"] {
        let request =
            format!("PUT {url} HTTP/1.1\r\nhost: {host}\r\n{more}\r\ncontent-length: 3\r\n\r\nown");
        let answer = server.send_raw(request.as_bytes()).await;
        refused(&answer, 403, "AccessDenied", more);
        assert!(answer.text().contains("not signed: x-amz-"), "{}", answer.text());
        assert_eq!(server.get("/lake/up/k").await.status, 404, "{more}");
    }
    let request = format!("PUT {url} HTTP/1.1\r\nhost: {host}\r\ncontent-length: 3\r\n\r\nown");
    assert_eq!(server.send_raw(request.as_bytes()).await.status, 200);
    assert_eq!(server.get("/lake/up/k").await.body, b"own");
}

async fn an_operation_that_is_not_known_is_not_taken_for_a_plain_one(lane: Lane) {
    let server = Server::on(lane).await;
    server.put("/lake/k", b"bytes").await;
    let ask = async |method: &str, path: &str| {
        let request = Request { method, path, body: b"<Xml/>", ..Default::default() };
        let answer = server.send(request).await;
        // A client that hears a 501 of an object itself would send it again.
        let is_plain = ["renameObject", "uploads", "foo", "a=b"].iter().any(|it| path.contains(it));
        let status = if is_plain { 400 } else { 501 };
        refused(&answer, status, "NotImplemented", &format!("{method} {path}"));
    };
    for query in ["renameObject", "annotation&annotationName=a", "restore", "uploads", "foo", "a=b"]
    {
        ask("PUT", &format!("/lake/k?{query}")).await;
        ask("DELETE", &format!("/lake/k?{query}")).await;
    }
    ask("DELETE", "/lake/k?acl").await;
    ask("GET", "/lake/k?restore").await;
    for query in ["abac", "metadataConfiguration", "logging=", "policyStatus"] {
        ask("DELETE", &format!("/lake?{query}")).await;
    }
    ask("PUT", "/made-by-mistake?abac").await;
    ask("GET", "/lake?abac").await;
    assert_eq!(server.get("/lake/k").await.body, b"bytes");
    let tracked = Request { method: "PUT", path: "/lake/k?x-id=PutObject", ..Default::default() };
    assert_eq!(server.send(tracked).await.status, 200);
    assert_eq!(server.get("/lake/k?cache=17").await.status, 200);
}

async fn a_key_with_a_nul_is_nobodys(lane: Lane) {
    let server = Server::on(lane).await;
    server.put("/lake/k", b"bytes").await;
    for tail in ["%00", "%00null", "%00b"] {
        let path = format!("/lake/k{tail}");
        for method in ["GET", "HEAD", "PUT", "DELETE"] {
            let request = Request { method, path: &path, body: b"", ..Default::default() };
            assert_eq!(server.send(request).await.status, 400, "{method} {path}");
        }
        let tagging = format!("{path}?tagging");
        assert_eq!(server.get(&tagging).await.status, 400, "{tagging}");
        let source = format!("lake/k{tail}");
        let headers = [("x-amz-copy-source", source.as_str())];
        let copy =
            Request { method: "PUT", path: "/lake/copy", headers: &headers, ..Default::default() };
        assert_eq!(server.send(copy).await.status, 400, "a copy of {source}");
    }
    assert_eq!(server.get("/lake/k").await.body, b"bytes");
    assert_eq!(server.get("/lake/copy").await.status, 404);
}

//! Buckets in the host name, and what answers say of where things are.

use crate::common::{ACCESS_KEY, Answer, Lane, Request, SECRET_KEY, Server, sign};

const HOST: &str = "Lake.S3.example.org:9000";

async fn server(lane: Lane) -> Server {
    Server::on_with(lane, |options| {
        options.serve.domains = "s3.example.org".to_string();
    })
    .await
}

async fn ask(server: &Server, host: &str, request: Request<'_>) -> Answer {
    server.send_raw(&sign::signed(&request, host, SECRET_KEY, ACCESS_KEY)).await
}

on_every_lane!(a_bucket_may_stand_before_the_host);

async fn a_bucket_may_stand_before_the_host(lane: Lane) {
    let server = server(lane).await;
    let put = Request { method: "PUT", path: "/dir/k", body: b"hello", ..Default::default() };
    let put = ask(&server, HOST, put).await;
    assert_eq!(put.status, 200, "{}", put.text());
    // The same object by its path, on any name.
    assert_eq!(server.get("/lake/dir/k").await.body, b"hello");
    for host in ["s3.example.org", "balancer.internal", "127.0.0.1:9000"] {
        let path = Request { path: "/lake/dir/k", ..Default::default() };
        assert_eq!(ask(&server, host, path).await.body, b"hello", "{host}");
    }
    let got = ask(&server, HOST, Request { path: "/dir/k", ..Default::default() }).await;
    assert_eq!((got.status, got.body.as_slice()), (200, &b"hello"[..]));
    let listed = ask(&server, HOST, Request { path: "/?list-type=2", ..Default::default() }).await;
    assert!(listed.text().contains("<Key>dir/k</Key>"), "{}", listed.text());
    let other = "other.s3.example.org";
    let missing = ask(&server, other, Request { path: "/dir/k", ..Default::default() }).await;
    assert!(["NoSuchBucket", "NoSuchKey"].contains(&missing.code().as_str()), "{}", missing.text());
    // A key may be called like a page of the gateway's own.
    let health = Request { path: "/healthz", ..Default::default() };
    assert_eq!(ask(&server, HOST, health.clone()).await.code(), "NoSuchKey");
    assert_eq!(ask(&server, "s3.example.org", health).await.text(), "ok\n");
    let presigned = sign::presigned("GET", "/dir/k", HOST, SECRET_KEY, ACCESS_KEY, 60, 0);
    let request = format!("GET {presigned} HTTP/1.1\r\nhost: {HOST}\r\n\r\n");
    assert_eq!(server.send_raw(request.as_bytes()).await.body, b"hello");
}

#[tokio::test]
async fn a_signature_holds_for_its_host_only() {
    let server = server(Lane::Local).await;
    server.put("/lake/k", b"x").await;
    let request = Request { path: "/k", ..Default::default() };
    let signed = sign::signed(&request, HOST, SECRET_KEY, ACCESS_KEY);
    let moved = String::from_utf8(signed).unwrap().replace(HOST, "other.s3.example.org:9000");
    assert_eq!(server.send_raw(moved.as_bytes()).await.code(), "SignatureDoesNotMatch");
}

#[tokio::test]
async fn completions_tell_a_url() {
    let server = server(Lane::Local).await;
    for (host, path, wanted) in [
        ("h:9000", "/lake/a%20b", "http://h:9000/lake/a%20b"),
        (HOST, "/a%20b", "http://Lake.S3.example.org:9000/a%20b"),
    ] {
        let post = |path, body| Request { method: "POST", path, body, ..Default::default() };
        let begin = format!("{path}?uploads");
        let begun = ask(&server, host, post(&begin, b"")).await.text();
        let id = begun.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap();
        let part = format!("{path}?partNumber=1&uploadId={id}");
        let part = Request { method: "PUT", path: &part, body: b"x", ..Default::default() };
        let tag = ask(&server, host, part).await.header("etag").to_string();
        let body = format!(
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part>\
             </CompleteMultipartUpload>"
        );
        let end = format!("{path}?uploadId={id}");
        let done = ask(&server, host, post(&end, body.as_bytes())).await.text();
        assert!(done.contains(&format!("<Location>{wanted}</Location>")), "{done}");
    }
}

#[tokio::test]
async fn a_bucket_tells_its_region() {
    let server = server(Lane::Local).await;
    let head = |path| Request { method: "HEAD", path, ..Default::default() };
    assert_eq!(server.send(head("/lake")).await.header("x-amz-bucket-region"), "us-east-1");
    let body = b"<CreateBucketConfiguration><LocationConstraint>eu-west-1</LocationConstraint>\
                 </CreateBucketConfiguration>";
    let make = Request { method: "PUT", path: "/far", body, ..Default::default() };
    assert_eq!(server.send(make).await.status, 200);
    assert_eq!(server.send(head("/far")).await.header("x-amz-bucket-region"), "eu-west-1");
    assert_eq!(server.send(head("/none")).await.status, 404);
}

#[tokio::test]
async fn a_reader_chooses_headers_of_the_answer() {
    let server = server(Lane::Local).await;
    server.put("/lake/k", b"x").await;
    let path = "/lake/k?response-cache-control=no-cache&response-content-type=a%2Fb\
                &response-expires=Thu%2C%2001%20Dec%201994%2016%3A00%3A00%20GMT";
    for method in ["GET", "HEAD"] {
        let told = server.send(Request { method, path, ..Default::default() }).await;
        assert_eq!(told.header("cache-control"), "no-cache", "{method}");
        assert_eq!(told.header("content-type"), "a/b", "{method}");
        assert_eq!(told.header("expires"), "Thu, 01 Dec 1994 16:00:00 GMT", "{method}");
    }
    let open = Server::on_with(Lane::Local, |options| {
        options.public = vec![penstock_gateway::Grant::everything()];
    })
    .await;
    open.put("/lake/k", b"x").await;
    let refused = open.unsigned(Request { path, ..Default::default() }).await;
    assert_eq!((refused.status, refused.code().as_str()), (400, "InvalidRequest"));
}

//! Google Cloud Storage as a back end, by its XML API: what works, and what it refuses by name.

#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

mod common;

use common::{Dir, Request, Server, google, options_over};
use penstock_testkit::fake::{FakeOptions, FakeS3};

async fn server() -> Server {
    let fake = FakeS3::start(FakeOptions::s3()).unwrap();
    let options = options_over(google(&fake));
    let mut server = Server::start_with(Dir::new(), options).await;
    server.fake = Some(fake);
    server
}

fn get<'a>(path: &'a str, headers: &'a [(&'a str, &'a str)]) -> Request<'a> {
    Request { path, headers, ..Default::default() }
}

#[tokio::test]
async fn objects_come_and_go() {
    let server = server().await;
    let headers = [("content-type", "text/csv"), ("x-amz-meta-owner", "me")];
    let put = Request {
        method: "PUT",
        path: "/lake/dir/k",
        headers: &headers,
        body: b"0123456789",
        ..Default::default()
    };
    let put = server.send(put).await;
    assert_eq!(put.status, 200, "{}", put.text());
    let got = server.get("/lake/dir/k").await;
    assert_eq!((got.status, got.body.as_slice()), (200, &b"0123456789"[..]));
    for (name, value) in headers {
        assert_eq!(got.header(name), value, "{name}");
    }
    let part = server.send(get("/lake/dir/k", &[("range", "bytes=2-4")])).await;
    assert_eq!((part.status, part.body.as_slice()), (206, &b"234"[..]));
    let stale = server.send(get("/lake/dir/k", &[("if-match", "\"other\"")])).await;
    assert_eq!(stale.status, 412);
    let tag = got.header("etag").to_string();
    let fake = server.fake.as_ref().unwrap();
    for (value, status) in [(tag.as_str(), 304), ("\"other\"", 200)] {
        fake.reset_stats();
        let known = server.send(get("/lake/dir/k", &[("if-none-match", value)])).await;
        assert_eq!((known.status, known.header("etag")), (status, tag.as_str()));
        assert!(fake.requests().len() <= 1, "one request");
    }
    let listed = server.get("/lake?list-type=2&prefix=dir%2F").await.text();
    assert!(listed.contains("<Key>dir/k</Key>"), "{listed}");
    let remove = Request { method: "DELETE", path: "/lake/dir/k", ..Default::default() };
    assert_eq!(server.send(remove).await.status, 204);
    assert_eq!(server.get("/lake/dir/k").await.code(), "NoSuchKey");
}

#[tokio::test]
async fn parts_make_an_object() {
    let server = server().await;
    let post = |path, body| Request { method: "POST", path, body, ..Default::default() };
    let begun = server.send(post("/lake/up?uploads", b"")).await.text();
    let id = begun.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap();
    let (first, mut list) = (vec![7; 5 << 20], String::new());
    for (number, body) in [(1, first.as_slice()), (2, b"end")] {
        let path = format!("/lake/up?partNumber={number}&uploadId={id}");
        let sent = server.send(Request { method: "PUT", path: &path, body, ..Default::default() });
        let tag = sent.await.header("etag").to_string();
        list += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>");
    }
    let body = format!("<CompleteMultipartUpload>{list}</CompleteMultipartUpload>");
    let done = server.send(post(&format!("/lake/up?uploadId={id}"), body.as_bytes())).await;
    assert_eq!(done.status, 200, "{}", done.text());
    let got = server.get("/lake/up").await.body;
    assert_eq!((got.len(), &got[5 << 20..]), ((5 << 20) + 3, &b"end"[..]));
}

/// What could not be noted is refused before there is a bucket without it.
#[tokio::test]
async fn settings_of_buckets_are_refused_before_anything_is_made() {
    let body = b"<CreateBucketConfiguration><LocationConstraint>eu-west-1</LocationConstraint>\
        </CreateBucketConfiguration>";
    for body in [&body[..], b""] {
        let fake = FakeS3::start(FakeOptions::s3()).unwrap();
        let mut options = options_over(google(&fake));
        options.serve.acl = "owners".to_string();
        let server = Server::start_with(Dir::new(), options).await;
        let make = Request { method: "PUT", path: "/new-lake", body, ..get("", &[]) };
        let refused = server.send(make).await;
        let code = refused.code();
        assert_eq!((refused.status, code.as_str()), (501, "NotImplemented"), "{code}");
        let made = fake.requests().iter().any(|request| request.operation == "CreateBucket");
        assert!(!made);
    }
    let server = server().await;
    let body = b"<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>";
    let tags = Request { method: "PUT", path: "/lake?tagging", body, ..get("", &[]) };
    let refused = server.send(tags).await;
    assert_eq!((refused.status, refused.code().as_str()), (501, "NotImplemented"));
    assert!(refused.text().contains("settings of buckets"), "{}", refused.text());
}

#[tokio::test]
async fn what_google_has_not_is_refused_by_name() {
    let server = server().await;
    let tag = server.put("/lake/k", b"one").await.header("etag").to_string();
    let tagging = b"<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>";
    let versioning = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    let matching = [("if-match", tag.as_str())];
    for (what, request) in [
        ("tags", Request { method: "PUT", path: "/lake/k?tagging", body: tagging, ..get("", &[]) }),
        (
            "versions",
            Request { method: "PUT", path: "/lake?versioning", body: versioning, ..get("", &[]) },
        ),
        ("overwriting", Request { method: "PUT", body: b"two", ..get("/lake/k", &matching) }),
        ("removing", Request { method: "DELETE", ..get("/lake/k", &matching) }),
    ] {
        let refused = server.send(request).await;
        let code = refused.code();
        assert_eq!((refused.status, code.as_str()), (501, "NotImplemented"), "{what}: {code}");
    }
    assert_eq!(server.get("/lake/k").await.body, b"one");
}

#[tokio::test]
async fn a_bucket_is_where_google_was_told_to_put_it() {
    let server = server().await;
    let body = b"<CreateBucketConfiguration><LocationConstraint>EU</LocationConstraint>\
        </CreateBucketConfiguration>";
    let made = server.send(Request { method: "PUT", path: "/placed", body, ..get("", &[]) }).await;
    assert_eq!(made.status, 200, "{}", made.text());
    let told = server.get("/placed?location").await;
    assert!(told.text().contains(">EU</LocationConstraint>"), "{}", told.text());
    // Told by the service itself: nothing is kept beside it.
    let buckets = server.get("/").await.text();
    assert_eq!(buckets.matches("<Bucket>").count(), 1, "{buckets}");
}

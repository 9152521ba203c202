//! Google Cloud Storage as a back end, by its XML API: what works, and what it refuses by name.

use crate::common::{Answer, Dir, Request, Server, google, google_by_token, options_over};
use penstock_testkit::fake::{FakeOptions, FakeS3};

async fn server() -> Server {
    with(None).await
}

/// With an HMAC key, or in Google's own dialect with a token.
async fn with(token: Option<&str>) -> Server {
    let bearer_token = token.map(str::to_string);
    let fake = FakeS3::start(FakeOptions { bearer_token, ..FakeOptions::google() }).unwrap();
    let backend = match token {
        Some(token) => google_by_token(&fake, token),
        None => google(&fake),
    };
    let mut server = Server::start_with(Dir::new(), options_over(backend)).await;
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

/// Google has no copies of parts: the bytes pass through here.
#[tokio::test]
async fn a_part_is_copied_through_the_gateway() {
    for token in [None, Some("t0ken")] {
        let server = with(token).await;
        server.put("/lake/k", b"0123456789").await;
        let post = |path, body| Request { method: "POST", path, body, ..Default::default() };
        let begun = server.send(post("/lake/up?uploads", b"")).await.text();
        let id = begun.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap();
        let path = format!("/lake/up?partNumber=1&uploadId={id}");
        let headers = [("x-amz-copy-source", "lake/k"), ("x-amz-copy-source-range", "bytes=2-5")];
        let copied = server.send(Request { method: "PUT", ..get(&path, &headers) }).await;
        assert_eq!(copied.status, 200, "{}", copied.text());
        let text = copied.text();
        let tag = text.split("<ETag>").nth(1).unwrap().split('<').next().unwrap();
        let body = format!(
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part>\
             </CompleteMultipartUpload>"
        );
        let done = server.send(post(&format!("/lake/up?uploadId={id}"), body.as_bytes())).await;
        assert_eq!(done.status, 200, "{}", done.text());
        assert_eq!(server.get("/lake/up").await.body, b"2345");
        let requests = server.fake.as_ref().unwrap().requests();
        assert!(requests.iter().all(|request| request.operation != "UploadPartCopy"));
    }
}

/// What could not be noted is refused before there is a bucket without it.
#[tokio::test]
async fn settings_of_buckets_are_refused_before_anything_is_made() {
    let body = b"<CreateBucketConfiguration><LocationConstraint>eu-west-1</LocationConstraint>\
        </CreateBucketConfiguration>";
    for body in [&body[..], b""] {
        let fake = FakeS3::start(FakeOptions::google()).unwrap();
        let mut options = options_over(google(&fake));
        options.serve.acl = "owners".to_string();
        let server = Server::start_with(Dir::new(), options).await;
        let make = Request { method: "PUT", path: "/new-lake", body, ..get("", &[]) };
        let refused = server.send(make).await;
        let code = refused.code();
        assert_eq!((refused.status, code.as_str()), (400, "NotImplemented"), "{code}");
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
    let versioning = b"<VersioningConfiguration><Status>Enabled</Status>\
        <MfaDelete>Enabled</MfaDelete></VersioningConfiguration>";
    let matching = [("if-match", tag.as_str())];
    let sized = [("x-amz-if-match-size", "3")];
    for (what, status, request) in [
        (
            "tags",
            501,
            Request { method: "PUT", path: "/lake/k?tagging", body: tagging, ..get("", &[]) },
        ),
        (
            "MFA delete",
            501,
            Request { method: "PUT", path: "/lake?versioning", body: versioning, ..get("", &[]) },
        ),
        ("overwriting", 400, Request { method: "PUT", body: b"two", ..get("/lake/k", &matching) }),
        ("removing", 400, Request { method: "DELETE", ..get("/lake/k", &matching) }),
        ("removing by size", 400, Request { method: "DELETE", ..get("/lake/k", &sized) }),
    ] {
        let refused = server.send(request).await;
        let code = refused.code();
        assert_eq!((refused.status, code.as_str()), (status, "NotImplemented"), "{what}: {code}");
    }
    assert_eq!(server.get("/lake/k").await.body, b"one");
}

async fn keep_versions(server: &Server) {
    let body = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    let put = Request { method: "PUT", path: "/lake?versioning", body, ..get("", &[]) };
    assert_eq!(server.send(put).await.status, 200);
    assert_eq!(server.get("/lake?versioning").await.text().matches("Enabled").count(), 1);
}

async fn put(server: &Server, path: &str, body: &[u8]) -> String {
    server.put(path, body).await.header("x-amz-version-id").to_string()
}

async fn remove(server: &Server, path: &str) -> Answer {
    server.send(Request { method: "DELETE", path, ..Default::default() }).await
}

/// Version ids and which is the latest, in the order of the list.
async fn listed(server: &Server, query: &str) -> Vec<(String, bool)> {
    let text = server.get(&format!("/lake?versions{query}")).await.text();
    assert!(!text.contains("<DeleteMarker>"), "{text}");
    let field = |entry: &str, name: &str| {
        let rest = entry.split_once(&format!("<{name}>")).unwrap().1;
        rest.split_once('<').unwrap().0.to_string()
    };
    let entries = text.split("<Version>").skip(1);
    entries.map(|it| (field(it, "VersionId"), field(it, "IsLatest") == "true")).collect()
}

#[tokio::test]
async fn generations_are_versions() {
    for token in [None, Some("t0ken")] {
        let server = with(token).await;
        assert!(!server.get("/lake?versioning").await.text().contains("<Status>"));
        keep_versions(&server).await;
        let first = put(&server, "/lake/k", b"one").await;
        let second = put(&server, "/lake/k", b"two").await;
        let wanted = [(second.clone(), true), (first.clone(), false)];
        assert_eq!(listed(&server, "").await, wanted, "latest first");
        let got = server.get("/lake/k").await;
        assert_eq!((got.body.as_slice(), got.header("x-amz-version-id")), (&b"two"[..], &*second));
        let path = format!("/lake/k?versionId={first}");
        let got = server.get(&path).await;
        assert_eq!((got.body.as_slice(), got.header("x-amz-version-id")), (&b"one"[..], &*first));
        let head = server.send(Request { method: "HEAD", path: &path, ..Default::default() }).await;
        assert_eq!((head.status, head.header("x-amz-version-id")), (200, &*first));
        // Back to what it was: a token copies there, with a key the bytes pass through here.
        let source = format!("lake/k?versionId={first}");
        let headers = [("x-amz-copy-source", source.as_str())];
        let back = Request { method: "PUT", ..get("/lake/k", &headers) };
        let back = server.send(back).await;
        assert_eq!(back.status, 200, "{}", back.text());
        assert_eq!(back.header("x-amz-copy-source-version-id"), first);
        assert_eq!(server.get("/lake/k").await.body, b"one");
        let third = back.header("x-amz-version-id").to_string();
        let requests = server.fake.as_ref().unwrap().requests();
        let copies = requests.iter().filter(|it| it.operation == "CopyObject").count();
        assert_eq!(copies, usize::from(token.is_some()));
        // Without a delete marker: the removed one is a version as the others, and none the latest.
        let removed = remove(&server, "/lake/k").await;
        assert_eq!(removed.status, 204);
        let told = ["x-amz-delete-marker", "x-amz-version-id"].map(|name| removed.header(name));
        assert_eq!(told, ["", ""]);
        assert_eq!(server.get("/lake/k").await.code(), "NoSuchKey");
        let all = [&third, &second, &first].map(|id| (id.clone(), false));
        assert_eq!(listed(&server, "").await, all);
        let page = listed(&server, "&max-keys=1").await;
        assert_eq!(page, all[..1]);
        let next = format!("&key-marker=k&version-id-marker={third}");
        assert_eq!(listed(&server, &next).await, all[1..]);
        let removed = remove(&server, &format!("/lake/k?versionId={second}")).await;
        assert_eq!((removed.status, removed.header("x-amz-version-id")), (204, &*second));
        assert_eq!(
            server.get(&format!("/lake/k?versionId={second}")).await.code(),
            "NoSuchVersion"
        );
        assert_eq!(server.get("/lake/k?versionId=null").await.code(), "NoSuchVersion");
    }
}

/// As clients do before they remove a bucket.
#[tokio::test]
async fn a_bucket_is_emptied_of_its_versions() {
    let server = server().await;
    keep_versions(&server).await;
    for body in [&b"one"[..], b"two", b"three"] {
        put(&server, "/lake/k", body).await;
    }
    remove(&server, "/lake/k").await;
    assert_eq!(remove(&server, "/lake").await.code(), "BucketNotEmpty");
    let versions = listed(&server, "").await;
    let objects: String = versions
        .iter()
        .map(|(id, _)| format!("<Object><Key>k</Key><VersionId>{id}</VersionId></Object>"))
        .collect();
    let body = format!("<Delete>{objects}</Delete>");
    let batch = Request {
        method: "POST",
        path: "/lake?delete",
        body: body.as_bytes(),
        ..Default::default()
    };
    let done = server.send(batch).await.text();
    assert_eq!(done.matches("<Deleted>").count(), 3, "{done}");
    assert!(!done.contains("DeleteMarker"), "{done}");
    assert_eq!(listed(&server, "").await, []);
    assert_eq!(remove(&server, "/lake").await.status, 204);
}

/// Whether or not a bucket keeps them, every object has one, and it is told.
#[tokio::test]
async fn a_bucket_that_keeps_none_has_one_version_of_each() {
    let server = server().await;
    put(&server, "/lake/k", b"one").await;
    let second = put(&server, "/lake/k", b"two").await;
    assert_eq!(listed(&server, "").await, [(second.clone(), true)]);
    let got = server.get(&format!("/lake/k?versionId={second}")).await;
    assert_eq!(got.body, b"two");
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

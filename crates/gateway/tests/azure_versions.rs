//! Versions of blobs on an account that keeps them, as clients of S3 meet them.

use crate::common::{Answer, Dir, Request, Server, azure, options_over};
use penstock_testkit::fake::{FakeAzure, FakeOptions};

async fn server() -> Server {
    let fake = FakeAzure::start(FakeOptions::azure_versioned()).unwrap();
    let mut server = Server::start_with(Dir::new(), options_over(azure(&fake))).await;
    server.fake = Some(fake);
    let made = server.send(Request { method: "PUT", path: "/lake", ..Default::default() }).await;
    assert_eq!(made.status, 200, "{}", made.text());
    server
}

fn get<'a>(path: &'a str, headers: &'a [(&'a str, &'a str)]) -> Request<'a> {
    Request { path, headers, ..Default::default() }
}

async fn put(server: &Server, path: &str, body: &[u8]) -> String {
    server.put(path, body).await.header("x-amz-version-id").to_string()
}

async fn remove(server: &Server, path: &str) -> Answer {
    server.send(Request { method: "DELETE", path, ..Default::default() }).await
}

fn fields(text: &str, name: &str) -> Vec<String> {
    let tag = format!("<{name}>");
    let parts = text.split(&tag).skip(1);
    parts.map(|part| part.split_once('<').unwrap().0.to_string()).collect()
}

/// Version ids and which is the latest, in the order of the list.
async fn listed(server: &Server, query: &str) -> Vec<(String, bool)> {
    let text = server.get(&format!("/lake?versions{query}")).await.text();
    assert!(!text.contains("<DeleteMarker>"), "{text}");
    let latest = fields(&text, "IsLatest").into_iter().map(|it| it == "true");
    fields(&text, "VersionId").into_iter().zip(latest).collect()
}

/// A time has colons, which a query must not be confused by.
fn of(path: &str, id: &str) -> String {
    format!("{path}?versionId={}", id.replace(':', "%3A"))
}

#[tokio::test]
async fn versions_are_passed_through() {
    let server = server().await;
    let first = put(&server, "/lake/k", b"one").await;
    let second = put(&server, "/lake/k", b"two").await;
    assert!(!first.is_empty() && first != second, "{first} {second}");
    assert_eq!(listed(&server, "").await, [(second.clone(), true), (first.clone(), false)]);
    let got = server.get("/lake/k").await;
    assert_eq!((got.body.as_slice(), got.header("x-amz-version-id")), (&b"two"[..], &*second));
    let old = of("/lake/k", &first);
    let got = server.get(&old).await;
    assert_eq!((got.body.as_slice(), got.header("x-amz-version-id")), (&b"one"[..], &*first));
    let head = server.send(Request { method: "HEAD", path: &old, ..Default::default() }).await;
    assert_eq!((head.status, head.header("x-amz-version-id")), (200, &*first));
    let part = server.send(get(&old, &[("range", "bytes=-2")])).await;
    assert_eq!((part.status, part.body.as_slice()), (206, &b"ne"[..]));
    // Back to what it was: the service copies.
    let source = of("lake/k", &first);
    let headers = [("x-amz-copy-source", source.as_str())];
    let back = server.send(Request { method: "PUT", ..get("/lake/k", &headers) }).await;
    assert_eq!(back.status, 200, "{}", back.text());
    assert_eq!(back.header("x-amz-copy-source-version-id"), first);
    let third = back.header("x-amz-version-id").to_string();
    assert_eq!(server.get("/lake/k").await.body, b"one");
    let requests = server.fake.as_ref().unwrap().requests();
    assert_eq!(requests.iter().filter(|it| it.operation == "CopyBlob").count(), 1);
    assert_eq!(listed(&server, "").await.len(), 3);
    assert_eq!(listed(&server, "&max-keys=1").await, [(third.clone(), true)]);
    let next = format!("&key-marker=k&version-id-marker={}", third.replace(':', "%3A"));
    assert_eq!(listed(&server, &next).await, [(second, false), (first, false)]);
}

#[tokio::test]
async fn a_removal_leaves_versions_and_no_marker() {
    let server = server().await;
    let first = put(&server, "/lake/k", b"one").await;
    let second = put(&server, "/lake/k", b"two").await;
    let removed = remove(&server, "/lake/k").await;
    assert_eq!(removed.status, 204);
    let told = ["x-amz-delete-marker", "x-amz-version-id"].map(|name| removed.header(name));
    assert_eq!(told, ["", ""]);
    assert_eq!(server.get("/lake/k").await.code(), "NoSuchKey");
    assert_eq!(listed(&server, "").await, [(second.clone(), false), (first.clone(), false)]);
    assert_eq!(server.get(&of("/lake/k", &second)).await.body, b"two");
    assert_eq!(remove(&server, "/lake").await.code(), "BucketNotEmpty");
    let removed = remove(&server, &of("/lake/k", &second)).await;
    assert_eq!((removed.status, removed.header("x-amz-version-id")), (204, &*second));
    assert_eq!(server.get(&of("/lake/k", &second)).await.code(), "NoSuchVersion");
    // The current one by its id: the one before does not take its place.
    let third = put(&server, "/lake/k", b"three").await;
    assert_eq!(remove(&server, &of("/lake/k", &third)).await.status, 204);
    assert_eq!(listed(&server, "").await, [(first.clone(), false)]);
    let body = format!(
        "<Delete><Object><Key>k</Key><VersionId>{first}</VersionId></Object>\
         <Object><Key>other</Key></Object></Delete>"
    );
    let batch = Request {
        method: "POST",
        path: "/lake?delete",
        body: body.as_bytes(),
        ..Default::default()
    };
    let done = server.send(batch).await.text();
    assert_eq!(done.matches("<Deleted>").count(), 2, "{done}");
    assert!(!done.contains("DeleteMarker"), "{done}");
    assert_eq!(remove(&server, "/lake").await.status, 204);
}

#[tokio::test]
async fn an_upload_makes_a_version() {
    let server = server().await;
    let first = put(&server, "/lake/k", b"one").await;
    let post = |path, body| Request { method: "POST", path, body, ..Default::default() };
    let begun = server.send(post("/lake/k?uploads", b"")).await.text();
    let id = fields(&begun, "UploadId").remove(0);
    let path = format!("/lake/k?partNumber=1&uploadId={id}");
    let source = of("/lake/k", &first);
    let headers = [("x-amz-copy-source", source.as_str())];
    let copied = server.send(Request { method: "PUT", ..get(&path, &headers) }).await;
    assert_eq!(copied.header("x-amz-copy-source-version-id"), first, "{}", copied.text());
    let tag = fields(&copied.text(), "ETag").remove(0);
    let body = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part>\
         </CompleteMultipartUpload>"
    );
    let path = format!("/lake/k?uploadId={id}");
    let done = server.send(post(&path, body.as_bytes())).await;
    let version = done.header("x-amz-version-id").to_string();
    assert_eq!(listed(&server, "").await, [(version, true), (first, false)], "{}", done.text());
    assert_eq!(server.get("/lake/k").await.body, b"one");
}

#[tokio::test]
async fn versions_have_tags_of_their_own() {
    let server = server().await;
    let first = put(&server, "/lake/k", b"one").await;
    put(&server, "/lake/k", b"two").await;
    let body = b"<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>";
    let path = of("/lake/k", &first) + "&tagging";
    let set = server.send(Request { method: "PUT", body, ..get(&path, &[]) }).await;
    assert_eq!((set.status, set.header("x-amz-version-id")), (200, &*first));
    assert!(server.get(&path).await.text().contains("<Key>a</Key>"));
    assert!(!server.get("/lake/k?tagging").await.text().contains("<Key>a</Key>"));
    assert_eq!(listed(&server, "").await.len(), 2);
}

#[tokio::test]
async fn whether_versions_are_kept_is_told_and_not_set() {
    let server = server().await;
    let asked = "/lake?versioning";
    assert!(!server.get(asked).await.text().contains("<Status>"), "nothing tells yet");
    put(&server, "/lake/k", b"one").await;
    assert!(server.get(asked).await.text().contains("<Status>Enabled</Status>"));
    for status in ["Enabled", "Suspended"] {
        let body =
            format!("<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>");
        let put = Request { method: "PUT", body: body.as_bytes(), ..get(asked, &[]) };
        let refused = server.send(put).await;
        assert_eq!((refused.status, refused.code().as_str()), (501, "NotImplemented"));
        for word in ["PutBucketVersioning", "account", "--enable-versioning"] {
            assert!(refused.text().contains(word), "{}", refused.text());
        }
    }
}

#[tokio::test]
async fn ids_that_are_none_are_told() {
    let server = server().await;
    put(&server, "/lake/k", b"one").await;
    for id in ["abc", "null", "2020-01-01T00:00:00.0000000Z"] {
        let path = of("/lake/k", id);
        assert_eq!(server.get(&path).await.code(), "NoSuchVersion", "{id}");
        let head = server.send(Request { method: "HEAD", path: &path, ..Default::default() }).await;
        assert_eq!(head.status, 404, "{id}");
    }
    let bad = server.get("/lake?versions&key-marker=k&version-id-marker=abc").await;
    assert_eq!(bad.code(), "InvalidArgument");
    // Nothing of this id is there to be removed.
    assert_eq!(remove(&server, &of("/lake/k", "null")).await.status, 204);
    assert_eq!(server.get("/lake/k").await.body, b"one");
}

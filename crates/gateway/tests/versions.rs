//! Versions of objects: kept by a directory, asked of S3, refused by name elsewhere.

#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

mod common;

use common::{Answer, Dir, Lane, Request, Server, options, options_over};
use penstock_base::Secret;
use penstock_gateway::BackendOptions;
use std::net::SocketAddr;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;

const ENABLED: &[u8] =
    b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
const SUSPENDED: &[u8] =
    b"<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>";

async fn set_versioning(server: &Server, body: &[u8]) -> Answer {
    let path = "/lake?versioning";
    server.send(Request { method: "PUT", path, body, ..Default::default() }).await
}

async fn delete(server: &Server, path: &str) -> Answer {
    server.send(Request { method: "DELETE", path, ..Default::default() }).await
}

fn id(answer: &Answer) -> String {
    answer.header("x-amz-version-id").to_string()
}

/// Key, id, and whether it is the latest: those of versions, then those of delete markers.
async fn listed(server: &Server, query: &str) -> Vec<(String, String, bool)> {
    let text = server.get(&format!("/lake?versions{query}")).await.text();
    let field = |part: &str, name: &str| {
        let after = part.split(&format!("<{name}>")).nth(1).unwrap_or_default();
        after.split("</").next().unwrap_or_default().to_string()
    };
    let parts = text.split("<Version>").skip(1).chain(text.split("<DeleteMarker>").skip(1));
    let entry = |part: &str| {
        (field(part, "Key"), field(part, "VersionId"), field(part, "IsLatest") == "true")
    };
    parts.map(entry).collect()
}

#[tokio::test]
async fn a_directory_keeps_versions() {
    let server = Server::start().await;
    let plain = server.put("/lake/k", b"plain").await;
    assert_eq!(id(&plain), "", "no versions were asked for");
    assert_eq!(set_versioning(&server, ENABLED).await.status, 200);
    assert!(server.get("/lake?versioning").await.text().contains("<Status>Enabled</Status>"));
    let first = id(&server.put("/lake/k", b"first").await);
    let second = id(&server.put("/lake/k", b"second").await);
    assert!(!first.is_empty() && first != second);
    let got = server.get("/lake/k").await;
    assert_eq!((got.body.as_slice(), id(&got)), (&b"second"[..], second.clone()));
    for (version, body) in [("null", &b"plain"[..]), (&first, b"first"), (&second, b"second")] {
        let got = server.get(&format!("/lake/k?versionId={version}")).await;
        assert_eq!((got.body.as_slice(), id(&got).as_str()), (body, version));
    }
    let entry = |id: &str, is_latest| ("k".to_string(), id.to_string(), is_latest);
    let all = [entry(&second, true), entry(&first, false), entry("null", false)];
    assert_eq!(listed(&server, "").await, all);
    assert_eq!(listed(&server, "&max-keys=1").await, all[..1]);
    let next = format!("&key-marker=k&version-id-marker={second}");
    assert_eq!(listed(&server, &next).await, all[1..]);
    // Another process over the same directory knows the same.
    let dir = Dir::new();
    let other = Server::start_with(dir, options(&server.dir)).await;
    assert_eq!(listed(&other, "").await, all);
    let gone = delete(&other, &format!("/lake/k?versionId={second}")).await;
    assert_eq!((gone.status, id(&gone)), (204, second));
    assert_eq!(server.get("/lake/k").await.body, b"first", "the one before is current again");
    assert_eq!(delete(&server, "/lake").await.code(), "BucketNotEmpty");
}

#[tokio::test]
async fn a_delete_marker_hides_what_is_kept() {
    let server = Server::start().await;
    set_versioning(&server, ENABLED).await;
    let first = id(&server.put("/lake/dir/k", b"first").await);
    let marked = delete(&server, "/lake/dir/k").await;
    assert_eq!((marked.status, marked.header("x-amz-delete-marker")), (204, "true"));
    let hidden = server.get("/lake/dir/k").await;
    assert_eq!((hidden.status, hidden.code().as_str()), (404, "NoSuchKey"));
    assert_eq!(hidden.header("x-amz-delete-marker"), "true");
    assert_eq!(id(&hidden), id(&marked));
    let of_marker = server.get(&format!("/lake/dir/k?versionId={}", id(&marked))).await;
    assert_eq!((of_marker.status, of_marker.code().as_str()), (405, "MethodNotAllowed"));
    assert!(!server.get("/lake?list-type=2").await.text().contains("<Key>"));
    assert_eq!(server.get(&format!("/lake/dir/k?versionId={first}")).await.body, b"first");
    assert_eq!(delete(&server, "/lake").await.code(), "BucketNotEmpty");
    let unmarked = delete(&server, &format!("/lake/dir/k?versionId={}", id(&marked))).await;
    assert_eq!((unmarked.status, unmarked.header("x-amz-delete-marker")), (204, "true"));
    assert_eq!(server.get("/lake/dir/k").await.body, b"first");
    let path = format!("/lake/dir/k?versionId={first}");
    assert_eq!(delete(&server, &path).await.status, 204);
    assert_eq!(delete(&server, &path).await.status, 204, "what is not there is no error");
    assert_eq!(listed(&server, "").await, []);
    let missing = server.get(&path).await;
    assert_eq!((missing.status, missing.code().as_str()), (404, "NoSuchVersion"));
    assert_eq!(delete(&server, "/lake").await.status, 204);
}

#[tokio::test]
async fn suspended_versions_replace_the_one_called_null() {
    let server = Server::start().await;
    set_versioning(&server, ENABLED).await;
    let first = id(&server.put("/lake/k", b"first").await);
    set_versioning(&server, SUSPENDED).await;
    assert_eq!(id(&server.put("/lake/k", b"one").await), "");
    server.put("/lake/k", b"two").await;
    let entry = |id: &str, is_latest| ("k".to_string(), id.to_string(), is_latest);
    assert_eq!(listed(&server, "").await, [entry("null", true), entry(&first, false)]);
    assert_eq!(id(&delete(&server, "/lake/k").await), "null");
    assert_eq!(server.get("/lake/k").await.status, 404);
    assert_eq!(listed(&server, "").await, [entry(&first, false), entry("null", true)]);
    delete(&server, "/lake/k?versionId=null").await;
    assert_eq!(server.get("/lake/k").await.body, b"first");
}

#[tokio::test]
async fn versions_are_tagged_copied_and_folded() {
    let server = Server::start().await;
    set_versioning(&server, ENABLED).await;
    let first = id(&server.put("/lake/d/k", b"first").await);
    server.put("/lake/d/k", b"second").await;
    server.put("/lake/z", b"z").await;
    let path = format!("/lake/d/k?tagging&versionId={first}");
    let body = b"<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>";
    let tagged = Request { method: "PUT", path: &path, body, ..Default::default() };
    assert_eq!(server.send(tagged).await.status, 200);
    assert!(server.get(&path).await.text().contains("<Key>a</Key>"));
    assert!(!server.get("/lake/d/k?tagging").await.text().contains("<Key>a</Key>"));
    let source = format!("/lake/d/k?versionId={first}");
    let headers = [("x-amz-copy-source", source.as_str())];
    let copy = Request { method: "PUT", path: "/lake/c", headers: &headers, ..Default::default() };
    let copied = server.send(copy).await;
    assert_eq!(copied.header("x-amz-copy-source-version-id"), first);
    assert_eq!(server.get("/lake/c").await.body, b"first");
    let folded = server.get("/lake?versions&delimiter=%2F&max-keys=2").await.text();
    assert!(folded.contains("<CommonPrefixes><Prefix>d/</Prefix>"), "{folded}");
    let keys: Vec<_> = listed(&server, "&delimiter=%2F").await.into_iter().map(|it| it.0).collect();
    assert_eq!(keys, ["c", "z"]);
}

/// An S3 service that answers every request so; the next request of a connection begins behind the
/// body of the last.
async fn service(body: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                loop {
                    let (mut line, mut length) = (String::new(), 0);
                    while stream.read_line(&mut line).await.is_ok_and(|read| read > 2) {
                        let value = line.to_ascii_lowercase();
                        if let Some(value) = value.strip_prefix("content-length:") {
                            length = value.trim().parse().unwrap();
                        }
                        line.clear();
                    }
                    if line.is_empty() || stream.read_exact(&mut vec![0; length]).await.is_err() {
                        return;
                    }
                    stream.write_all(answer.as_bytes()).await.ok();
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn a_batch_tells_the_delete_markers_that_s3_made() {
    let address = service(
        "<DeleteResult><Deleted><Key>a</Key><DeleteMarker>true</DeleteMarker>\
         <DeleteMarkerVersionId>m1</DeleteMarkerVersionId></Deleted>\
         <Deleted><Key>b</Key></Deleted></DeleteResult>",
    )
    .await;
    let mut backend = BackendOptions::directory(std::path::Path::new("/"));
    backend.url = "s3://".to_string();
    backend.options = [
        ("endpoint", format!("http://{address}")),
        ("key_id", "test".to_string()),
        ("secret", "test".to_string()),
        ("url_style", "path".to_string()),
    ]
    .map(|(name, value)| (name.to_string(), Secret::new(value)))
    .to_vec();
    let server = Server::start_with(Dir::new(), options_over(backend)).await;
    let body = b"<Delete><Object><Key>a</Key></Object><Object><Key>b</Key></Object></Delete>";
    let batch = Request { method: "POST", path: "/lake?delete", body, ..Default::default() };
    let text = server.send(batch).await.text();
    let deleted: Vec<&str> = text.split("<Deleted>").skip(1).collect();
    assert_eq!(deleted.len(), 2, "{text}");
    let marker = "<DeleteMarkerVersionId>m1</DeleteMarkerVersionId>";
    assert!(deleted[0].contains("<DeleteMarker>true</DeleteMarker>"), "{text}");
    assert!(deleted[0].contains(marker) && deleted[0].contains("<Key>a</Key>"), "{text}");
    assert!(!deleted[1].contains("DeleteMarker"), "{text}");
}

on_lane!(memory, Memory: versions_are_refused_by_name);
on_lane!(azure, Azure: versions_are_refused_by_name);

async fn versions_are_refused_by_name(lane: Lane) {
    let server = Server::on(lane).await;
    let refused = set_versioning(&server, ENABLED).await;
    assert_eq!((refused.status, refused.code().as_str()), (501, "NotImplemented"));
    assert!(refused.text().contains("PutBucketVersioning"), "{}", refused.text());
    server.put("/lake/k", b"x").await;
    assert_eq!(server.get("/lake/k?versionId=abc").await.code(), "NoSuchVersion");
    assert_eq!(server.get("/lake/k?versionId=null").await.body, b"x");
}

//! The disk cache behind the gateway: bytes that lie there are not fetched again, and no object is
//! served that the back end has not confirmed.

use crate::common::{Dir, Lane, Request, Server, options};
use penstock_base::Kind;
use penstock_gateway::Gateway;
use std::time::Duration;

const MIB: usize = 1 << 20;

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index % 251) as u8).collect()
}

async fn cached_server(lane: Lane, cache: &Dir, policy: &str) -> Server {
    let dir = cache.0.join("cache").display().to_string();
    Server::on_with(lane, |options| {
        options.settings.set("cache_dir", &dir).unwrap();
        options.settings.set("cache_validation", policy).unwrap();
    })
    .await
}

/// The operations that the back end saw since the last look, at least as many as are expected.
async fn operations(server: &Server, expected: usize) -> Vec<&'static str> {
    let fake = server.fake.as_ref().unwrap();
    // A request is counted when its answer is out, which the client may see first.
    let counted = tokio::time::timeout(Duration::from_secs(10), async {
        while fake.requests().len() < expected {
            tokio::task::yield_now().await;
        }
    });
    counted.await.ok();
    let seen = fake.requests().into_iter().map(|request| request.operation).collect();
    fake.reset_stats();
    seen
}

async fn reads_are_answered_from_the_disk_once_confirmed(lane: Lane) {
    let (get, head) = match lane {
        Lane::Azure => ("GetBlob", "GetBlobProperties"),
        _ => ("GetObject", "HeadObject"),
    };
    let cache = Dir::new();
    let server = cached_server(lane, &cache, "auto").await;
    let body = bytes(3 * MIB + 11);
    let mark = [("x-amz-meta-my-key", "v"), ("content-type", "text/x-odd")];
    let put = Request { method: "PUT", path: "/lake/k", headers: &mark, ..Default::default() };
    assert_eq!(server.send(Request { body: &body, ..put }).await.status, 200);
    operations(&server, 1).await;
    let first = server.get("/lake/k").await;
    assert!(first.body == body);
    assert_eq!(operations(&server, 1).await, [get]);
    let second = server.get("/lake/k").await;
    assert!(second.body == body);
    assert_eq!(operations(&server, 1).await, [head]);
    for name in ["etag", "x-amz-meta-my-key", "content-type", "last-modified", "content-length"] {
        assert_eq!(first.header(name), second.header(name), "{name}");
    }
    let range = [("range", "bytes=1000000-1000009")];
    let part =
        server.send(Request { path: "/lake/k", headers: &range, ..Default::default() }).await;
    assert_eq!((part.status, &part.body[..]), (206, &body[1_000_000..1_000_010]));
    assert_eq!(operations(&server, 1).await, [head]);
    // What the engine counted is on the page.
    let page = server.admin_page("/metrics").await.text();
    let read: u64 = ["memory", "disk"]
        .map(|cache| format!("penstock_cache_read_bytes_total{{cache=\"{cache}\"}} "))
        .iter()
        .filter_map(|begin| page.lines().find_map(|line| line.strip_prefix(begin)))
        .map(|count| count.parse::<u64>().unwrap())
        .sum();
    assert!(read >= body.len() as u64 + 10, "{page}");
    // Replaced through another gateway: this one has heard nothing of it.
    let other = Server { fake: None, ..over_same(&server, lane).await };
    assert_eq!(other.put("/lake/k", b"new").await.status, 200);
    operations(&server, 1).await;
    assert_eq!(server.get("/lake/k").await.body, b"new");
    assert_eq!(operations(&server, 2).await, [head, get]);
    let gone =
        other.send(Request { method: "DELETE", path: "/lake/k", ..Default::default() }).await;
    assert_eq!(gone.status, 204);
    let answer = server.get("/lake/k").await;
    assert_eq!((answer.status, answer.code().as_str()), (404, "NoSuchKey"));
}

/// Another replica over the same back end, without a cache.
async fn over_same(server: &Server, lane: Lane) -> Server {
    let fake = server.fake.as_ref().unwrap();
    let backend =
        if lane == Lane::Azure { crate::common::azure(fake) } else { crate::common::s3(fake) };
    Server::start_with(Dir::new(), crate::common::options_over(backend)).await
}

async fn what_a_client_has_costs_one_request_beside_the_cache(lane: Lane) {
    let (get, head) = match lane {
        Lane::Azure => ("GetBlob", "GetBlobProperties"),
        _ => ("GetObject", "HeadObject"),
    };
    let cache = Dir::new();
    let server = cached_server(lane, &cache, "auto").await;
    let body = bytes(2 * MIB);
    assert_eq!(server.put("/lake/k", &body).await.status, 200);
    let tag = server.get("/lake/k").await.header("etag").to_string();
    operations(&server, 2).await;
    let ask = async |value: &str| {
        let headers = [("if-none-match", value)];
        server.send(Request { path: "/lake/k", headers: &headers, ..Default::default() }).await
    };
    let known = ask(&tag).await;
    assert_eq!((known.status, known.header("etag")), (304, tag.as_str()));
    assert_eq!(operations(&server, 1).await, [get]);
    // Another version than the client's is cached, and confirmed.
    let other = ask("\"other-1\"").await;
    assert!(other.status == 200 && other.body == body);
    assert_eq!(operations(&server, 1).await, [head]);
    let replica = Server { fake: None, ..over_same(&server, lane).await };
    assert_eq!(replica.put("/lake/k", b"new").await.status, 200);
    operations(&server, 1).await;
    let changed = ask(&tag).await;
    assert_eq!((changed.status, changed.body.as_slice()), (200, &b"new"[..]));
    assert_eq!(operations(&server, 1).await, [get]);
}

on_lane!(azure, Azure: reads_are_answered_from_the_disk_once_confirmed,
    what_a_client_has_costs_one_request_beside_the_cache);
on_lane!(s3, S3: reads_are_answered_from_the_disk_once_confirmed,
    what_a_client_has_costs_one_request_beside_the_cache);

#[tokio::test]
async fn objects_that_never_change_are_not_asked_for() {
    let cache = Dir::new();
    let server = cached_server(Lane::S3, &cache, "never").await;
    let body = bytes(2 * MIB);
    assert_eq!(server.put("/lake/k", &body).await.status, 200);
    assert!(server.get("/lake/k").await.body == body);
    operations(&server, 2).await;
    assert!(server.get("/lake/k").await.body == body);
    assert_eq!(operations(&server, 0).await, Vec::<&str>::new());
    let tag = server.get("/lake/k").await.header("etag").to_string();
    let headers = [("if-none-match", tag.as_str())];
    let known = Request { path: "/lake/k", headers: &headers, ..Default::default() };
    assert_eq!(server.send(known).await.status, 304);
    assert_eq!(operations(&server, 0).await, Vec::<&str>::new());
}

#[tokio::test]
async fn a_cache_directory_that_cannot_be_used_is_told_at_the_start() {
    let dir = Dir::new();
    std::fs::write(dir.0.join("file"), "x").unwrap();
    let mut options = options(&dir);
    let path = dir.0.join("file").display().to_string();
    options.settings.set("cache_dir", &path).unwrap();
    let error = Gateway::bind(options).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("cache_dir"), "{error}");
}

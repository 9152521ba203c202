//! A cache whose validation asks for nothing: what this gateway writes, copies and removes is seen
//! at once, no copy is made of old bytes, and what lets strangers in is never remembered.

use crate::common::{Answer, Dir, Lane, Request, Server, options_over};
use penstock_gateway::{BackendOptions, BucketOptions, Options};

const MIB: usize = 1 << 20;
/// Nothing is asked for again by either.
const POLICIES: [&str; 2] = ["time", "never"];

on_lane!(azure, Azure: each_write_is_seen_at_once, copies_are_of_what_the_back_end_has);
on_lane!(s3, S3: each_write_is_seen_at_once, copies_are_of_what_the_back_end_has);
on_lane!(google, Google: each_write_is_seen_at_once, copies_are_of_what_the_back_end_has);

fn cached(options: &mut Options, policy: &str) {
    let settings = [
        ("cache_memory_bytes", "64MiB"),
        ("cache_validation", policy),
        ("metadata_validity_ms", "86400000"),
    ];
    for (name, value) in settings {
        options.settings.set(name, value).unwrap();
    }
}

fn bytes(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|index| (index % 251) as u8 ^ seed).collect()
}

async fn put_with(server: &Server, path: &str, headers: &[(&str, &str)], body: &[u8]) {
    let put = Request { method: "PUT", path, headers, body, ..Default::default() };
    let answer = server.send(put).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
}

/// An object whose bytes and metadata are remembered: the back end is not asked for it any more.
async fn remembered(server: &Server, path: &str, seed: u8) -> Answer {
    let headers = [("content-type", "text/plain"), ("x-amz-meta-seed", "old")];
    put_with(server, path, &headers, &bytes(seed, MIB)).await;
    let first = server.get(path).await;
    assert!(first.status == 200 && first.body == bytes(seed, MIB), "{path}");
    assert_not_asked(server, path).await;
    first
}

async fn assert_not_asked(server: &Server, path: &str) {
    let before = server.backend_requests();
    assert_eq!(server.get(path).await.status, 200);
    assert_eq!(server.backend_requests(), before, "{path}: the cache is not in use");
}

fn field(answer: &Answer, name: &str) -> String {
    let text = answer.text();
    let rest = text.split_once(&format!("<{name}>")).unwrap_or_else(|| panic!("{text}")).1;
    rest.split_once("</").unwrap().0.replace("&quot;", "").replace('"', "")
}

async fn begin_upload(server: &Server, path: &str) -> String {
    let path = format!("{path}?uploads");
    let begun = Request { method: "POST", path: &path, ..Default::default() };
    field(&server.send(begun).await, "UploadId")
}

async fn complete(server: &Server, path: &str, id: &str, tag: &str) {
    let body = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part>\
         </CompleteMultipartUpload>"
    );
    let path = format!("{path}?uploadId={id}");
    let (method, body) = ("POST", body.as_bytes());
    let done = server.send(Request { method, path: &path, body, ..Default::default() }).await;
    assert!(done.status == 200 && done.text().contains("<ETag>"), "{}", done.text());
}

async fn upload(server: &Server, path: &str, body: &[u8]) {
    let id = begin_upload(server, path).await;
    let part = format!("{path}?partNumber=1&uploadId={id}");
    let sent = server.put(&part, body).await;
    assert_eq!(sent.status, 200, "{}", sent.text());
    complete(server, path, &id, sent.header("etag")).await;
}

async fn delete_all(server: &Server, keys: &[&str]) {
    let objects: String =
        keys.iter().map(|key| format!("<Object><Key>{key}</Key></Object>")).collect();
    let body = format!("<Delete>{objects}</Delete>");
    let (method, path, body) = ("POST", "/lake?delete", body.as_bytes());
    let answer = server.send(Request { method, path, body, ..Default::default() }).await;
    assert!(!answer.text().contains("<Error>"), "{}", answer.text());
}

async fn each_write_is_seen_at_once(lane: Lane) {
    for policy in POLICIES {
        let server = Server::on_with(lane, |options| cached(options, policy)).await;
        for (path, body) in [("/lake/small", bytes(7, 1000)), ("/lake/large", bytes(7, 400_000))] {
            let old = remembered(&server, path, 1).await;
            assert_eq!(server.put(path, &body).await.status, 200);
            let new = server.get(path).await;
            assert!(
                new.body == body && new.header("etag") != old.header("etag"),
                "{policy} {path}"
            );
            assert!(server.get(path).await.body == body);
        }
        remembered(&server, "/lake/uploaded", 2).await;
        upload(&server, "/lake/uploaded", &bytes(8, MIB)).await;
        assert!(server.get("/lake/uploaded").await.body == bytes(8, MIB), "{policy}");

        remembered(&server, "/lake/copied", 3).await;
        put_with(&server, "/lake/copied", &[("x-amz-copy-source", "/lake/large")], b"").await;
        assert!(server.get("/lake/copied").await.body == bytes(7, 400_000), "{policy}");

        // The same bytes with other metadata, and on S3 the same tag.
        remembered(&server, "/lake/renoted", 4).await;
        let other = [
            ("x-amz-copy-source", "/lake/renoted"),
            ("x-amz-metadata-directive", "REPLACE"),
            ("x-amz-meta-seed", "new"),
        ];
        put_with(&server, "/lake/renoted", &other, b"").await;
        let renoted = server.get("/lake/renoted").await;
        assert_eq!(renoted.header("x-amz-meta-seed"), "new", "{policy}");

        if lane != Lane::Google {
            remembered(&server, "/lake/tagged", 5).await;
            let tags =
                b"<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>";
            put_with(&server, "/lake/tagged?tagging", &[], tags).await;
            assert_eq!(server.get("/lake/tagged").await.header("x-amz-tagging-count"), "1");
            assert_not_asked(&server, "/lake/tagged").await;
            let (method, path) = ("DELETE", "/lake/tagged?tagging");
            let removed = Request { method, path, ..Default::default() };
            assert_eq!(server.send(removed).await.status, 204);
            assert_eq!(server.get("/lake/tagged").await.header("x-amz-tagging-count"), "");
        }

        remembered(&server, "/lake/one", 6).await;
        let removed = Request { method: "DELETE", path: "/lake/one", ..Default::default() };
        assert_eq!(server.send(removed).await.status, 204);
        assert_eq!(server.get("/lake/one").await.code(), "NoSuchKey", "{policy}");
        for path in ["/lake/b1", "/lake/b2"] {
            remembered(&server, path, 6).await;
        }
        delete_all(&server, &["b1", "b2"]).await;
        for path in ["/lake/b1", "/lake/b2"] {
            assert_eq!(server.get(path).await.code(), "NoSuchKey", "{policy} {path}");
        }
    }
}

/// The lane's buckets and, behind the same gateway, `near`, a bucket on a directory.
fn beside_a_directory(options: &mut Options, dir: &Dir) {
    let directory =
        BackendOptions { name: "disk".into(), ..BackendOptions::directory(&dir.served()) };
    options.backends.push(BackendOptions { is_dynamic: false, ..directory });
    let (name, backend) = ("near".to_string(), "disk".to_string());
    options.buckets.push(BucketOptions { name, backend, ..Default::default() });
}

async fn copies_are_of_what_the_back_end_has(lane: Lane) {
    for policy in POLICIES {
        let dir = Dir::new();
        std::fs::create_dir_all(dir.served().join("near")).unwrap();
        let server = Server::on_with(lane, |options| {
            cached(options, policy);
            beside_a_directory(options, &dir);
        })
        .await;
        let other = over_same(&server, lane, |_| {}).await;
        remembered(&server, "/lake/k", 1).await;
        let new = bytes(9, MIB);
        assert_eq!(other.put("/lake/k", &new).await.status, 200);
        // Nobody told this gateway.
        assert_not_asked(&server, "/lake/k").await;
        let from = [("x-amz-copy-source", "/lake/k")];
        put_with(&server, "/near/copy", &from, b"").await;
        assert!(server.get("/near/copy").await.body == new, "{policy}: CopyObject");
        let id = begin_upload(&server, "/near/parts").await;
        let path = format!("/near/parts?partNumber=1&uploadId={id}");
        let part = Request { method: "PUT", path: &path, headers: &from, ..Default::default() };
        let tag = field(&server.send(part).await, "ETag");
        complete(&server, "/near/parts", &id, &tag).await;
        assert!(server.get("/near/parts").await.body == new, "{policy}: UploadPartCopy");
    }
}

/// What a directory keeps in tags, and Azure does not.
#[tokio::test]
async fn a_copy_with_tags_that_its_back_end_cannot_keep_is_refused() {
    let dir = Dir::new();
    std::fs::create_dir_all(dir.served().join("near")).unwrap();
    let server = Server::on_with(Lane::Azure, |options| beside_a_directory(options, &dir)).await;
    put_with(&server, "/near/k", &[("x-amz-tagging", "who=me%40home")], b"x").await;
    let from = ("x-amz-copy-source", "/near/k");
    let copy = async |more: &[(&str, &str)]| {
        let headers = [&[from], more].concat();
        let (method, path) = ("PUT", "/lake/copy");
        server.send(Request { method, path, headers: &headers, ..Default::default() }).await
    };
    let refused = copy(&[]).await;
    assert_eq!((refused.status, refused.code().as_str()), (400, "InvalidTag"));
    assert_eq!(server.get("/lake/copy").await.status, 404);
    let replaced = [("x-amz-tagging-directive", "REPLACE"), ("x-amz-tagging", "who=me")];
    assert_eq!(copy(&replaced).await.status, 200);
}

/// Another gateway over the same back end.
async fn over_same(server: &Server, lane: Lane, change: impl FnOnce(&mut Options)) -> Server {
    let fake = server.fake.as_ref().unwrap();
    let backend = match lane {
        Lane::Azure => crate::common::azure(fake),
        Lane::Google => crate::common::google(fake),
        _ => crate::common::s3(fake),
    };
    let mut options = options_over(backend);
    change(&mut options);
    Server::start_with(Dir::new(), options).await
}

/// A write that took effect though its answer was lost on the way to the gateway.
#[tokio::test]
async fn a_write_without_an_answer_is_seen() {
    for policy in POLICIES {
        let server = Server::on_with(Lane::Azure, |options| cached(options, policy)).await;
        remembered(&server, "/lake/k", 1).await;
        let faults = server.fake.as_ref().unwrap().faults();
        faults.add("lost-answer,method=PUT".parse().unwrap());
        let new = bytes(9, 400_000);
        assert!(server.put("/lake/k", &new).await.status >= 500);
        faults.clear();
        assert!(server.get("/lake/k").await.body == new, "{policy}");
    }
}

fn with_policies(options: &mut Options, policy: &str) {
    cached(options, policy);
    options.serve.acl = "owners".to_string();
}

/// What lets the public in is read anew by every replica, and may be changed at each.
async fn a_policy_removed_elsewhere_lets_nobody_in(lane: Lane) {
    const OPEN: &[u8] = br#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*",
        "Action":"s3:GetObject","Resource":"arn:aws:s3:::lake/*"}]}"#;
    for policy in POLICIES {
        let first = Server::on_with(lane, |options| with_policies(options, policy)).await;
        let second = over_same(&first, lane, |options| with_policies(options, policy)).await;
        put_with(&first, "/lake/k", &[], b"bytes").await;
        let stranger = async |server: &Server| {
            server.unsigned(Request { path: "/lake/k", ..Default::default() }).await.status
        };
        let set = Request { method: "PUT", path: "/lake?policy", body: OPEN, ..Default::default() };
        let removed = Request { method: "DELETE", path: "/lake?policy", ..Default::default() };
        assert_eq!(first.send(set.clone()).await.status, 204, "{policy}");
        for server in [&first, &second, &first, &second] {
            assert_eq!(stranger(server).await, 200, "{policy}");
        }
        assert_eq!(first.send(removed.clone()).await.status, 204, "{policy}");
        assert_eq!((stranger(&first).await, stranger(&second).await), (403, 403), "{policy}");
        // And again, the other way round.
        let again = second.send(set).await;
        assert_eq!(again.status, 204, "{policy}: {}", again.text());
        assert_eq!((stranger(&first).await, stranger(&second).await), (200, 200), "{policy}");
        assert_eq!(second.send(removed).await.status, 204, "{policy}");
        assert_eq!((stranger(&first).await, stranger(&second).await), (403, 403), "{policy}");
    }
}

/// Who may read an object its list says, and that of the bytes it came with: to look at the list is
/// to learn which version is there.
async fn what_was_private_stays_so_when_others_replace_it(lane: Lane) {
    for policy in POLICIES {
        let first = Server::on_with(lane, |options| with_policies(options, policy)).await;
        let second = over_same(&first, lane, |options| with_policies(options, policy)).await;
        let (private, public) = (bytes(1, MIB), bytes(2, MIB));
        put_with(&first, "/lake/k", &[], &private).await;
        assert!(second.get("/lake/k").await.body == private, "{policy}");
        put_with(&first, "/lake/k", &[("x-amz-acl", "public-read")], &public).await;
        let read = Request { path: "/lake/k", ..Default::default() };
        let answer = second.unsigned(read).await;
        assert!(answer.status == 200 && answer.body == public, "{policy}");
    }
}

on_lane!(notes_azure, Azure: a_policy_removed_elsewhere_lets_nobody_in,
    what_was_private_stays_so_when_others_replace_it);
on_lane!(notes_s3, S3: a_policy_removed_elsewhere_lets_nobody_in,
    what_was_private_stays_so_when_others_replace_it);

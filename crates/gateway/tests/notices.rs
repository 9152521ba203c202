//! What the gateway says to its operator: the start, bad signatures, back ends that are lost and
//! come back, reloads and drains. And what the access log has of requests that nobody has signed.

use crate::common::{
    ACCESS_KEY, Dir, Lane, Request, SECRET_KEY, Server, options, serve_settings, sign,
};
use penstock_base::{Secret, ServeSettings};
use penstock_gateway::{BackendOptions, BucketOptions, Grant, KeyPair, Notices, Options};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// The lines of one subject.
fn said(notices: &Notices, subject: &str) -> Vec<String> {
    let start = format!("{subject}: ");
    let lines = notices.lines().into_iter();
    lines.filter_map(|line| Some(line.strip_prefix(&start)?.to_string())).collect()
}

/// Waits for something that another task does.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(20), async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("{what} did not come"));
}

/// The lines of a log, once there are as many as are expected.
async fn logged(path: &Path, expected: usize) -> Vec<Value> {
    let text = || std::fs::read_to_string(path).unwrap_or_default();
    until("a line", async || text().matches('\n').count() >= expected).await;
    text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn the_start_names_version_back_ends_buckets_and_keys() {
    let dir = Dir::new();
    let memory = |name: &str| BackendOptions {
        name: name.to_string(),
        url: "mem://".to_string(),
        ..BackendOptions::default()
    };
    let bucket = |name: &str, backend: &str| BucketOptions {
        name: name.to_string(),
        backend: backend.to_string(),
        ..BucketOptions::default()
    };
    let mut told = options(&dir);
    told.backends.push(memory("fast"));
    told.backends.push(BackendOptions { is_read_only: true, ..memory("kept") });
    told.buckets = vec![bucket("raw", "fast"), bucket("old", "kept")];
    told.keys.push(KeyPair::new("second", Secret::new("another secret of it")));
    told.public = vec![Grant::everything()];
    let server = Server::start_with(dir, told).await;
    let lines = said(&server.notices, "start");
    let (address, admin) = (server.address, server.admin);
    assert_eq!(
        lines,
        [
            format!(
                "penstock {} serves S3 on http://{address}, metrics on http://{admin}",
                env!("CARGO_PKG_VERSION")
            ),
            "back ends: `dir` (file), `fast` (mem), `kept` (mem, read only)".to_string(),
            "buckets: `old` on `kept`, `raw` on `fast`, and every container of `dir`".to_string(),
            format!("keys: `{ACCESS_KEY}`, `second`; unsigned requests are let in"),
        ]
    );
    let all = server.notices.lines().concat();
    assert!(!all.contains("another secret") && !all.contains(SECRET_KEY), "{all}");
}

/// A request that names a key and is refused for its signature.
fn forged(server: &Server, request: &Request<'_>, key: &str, secret: &str) -> Vec<u8> {
    sign::signed(request, &server.address.to_string(), secret, key)
}

#[tokio::test]
async fn a_bad_signature_is_a_line_with_what_it_claims() {
    let server = Server::start().await;
    let get = Request { path: "/lake/a/b?acl", ..Default::default() };
    let put = Request { method: "PUT", path: "/lake/k", body: b"x", ..Default::default() };
    let late = Request { clock_offset_s: -3600, ..get.clone() };
    let host = server.address.to_string();
    let plain = |head: String| format!("{head} HTTP/1.1\r\nhost: {host}\r\n").into_bytes();
    let url = |expires, offset| {
        let url = sign::presigned("GET", "/lake/k", &host, "wrong", ACCESS_KEY, expires, offset);
        [plain(format!("GET {url}")), b"\r\n".to_vec()].concat()
    };
    let v2 = b"authorization: AWS OLD:c2ln\r\ndate: Fri, 24 May 2013 00:00:00 GMT\r\n\r\n";
    let form = "--X\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nk\r\n--X\r\n\
                Content-Disposition: form-data; name=\"AWSAccessKeyId\"\r\n\r\nFORM\r\n--X\r\n\
                Content-Disposition: form-data; name=\"policy\"\r\n\r\ne30=\r\n--X\r\n\
                Content-Disposition: form-data; name=\"signature\"\r\n\r\nc2ln\r\n--X\r\n\
                Content-Disposition: form-data; name=\"file\"\r\n\r\nx\r\n--X--\r\n";
    let form_head = format!(
        "content-type: multipart/form-data; boundary=X\r\ncontent-length: {}\r\n\r\n{form}",
        form.len()
    );
    for (bytes, words) in [
        (
            forged(&server, &put, ACCESS_KEY, "wrong"),
            "SignatureDoesNotMatch: key `TESTACCESS`, PutObject in bucket `lake`, from 127.0.0.1",
        ),
        (
            forged(&server, &get, "nobody", SECRET_KEY),
            "InvalidAccessKeyId: key `nobody`, GetObjectAcl in bucket `lake`, from 127.0.0.1",
        ),
        (
            forged(&server, &late, ACCESS_KEY, SECRET_KEY),
            "RequestTimeTooSkewed: key `TESTACCESS`, GetObjectAcl in bucket `lake`",
        ),
        (url(60, 0), "SignatureDoesNotMatch: key `TESTACCESS`, GetObject in bucket `lake`"),
        (url(60, -7200), "AccessDenied: key `TESTACCESS`, GetObject in bucket `lake`"),
        (
            [plain("DELETE /lake".into()), v2.to_vec()].concat(),
            "RequestTimeTooSkewed: key `OLD`, DeleteBucket in bucket `lake`",
        ),
        (
            [plain("POST /lake".into()), form_head.into_bytes()].concat(),
            "InvalidAccessKeyId: key `FORM`, PostObject in bucket `lake`",
        ),
    ] {
        let answer = server.send_raw(&bytes).await;
        assert!(answer.status >= 400, "{words}");
        let lines = said(&server.notices, "signature");
        let line = lines.last().unwrap();
        assert!(line.starts_with(words), "{line} for {words}");
        assert!(line.ends_with(answer.header("x-amz-request-id")), "{line}");
    }
    let count = said(&server.notices, "signature").len();
    // What nobody signs, and what a key may not, is another matter.
    server.unsigned(Request { path: "/lake/k", ..Default::default() }).await;
    assert_eq!(server.get("/lake/never").await.status, 404);
    assert_eq!(said(&server.notices, "signature").len(), count);
}

#[tokio::test]
async fn a_secret_in_the_place_of_a_key_is_not_shown() {
    let dir = Dir::new();
    let mut told = options(&dir);
    let path = dir.0.join("access.log");
    told.serve.access_log = path.display().to_string();
    told.keys.push(KeyPair::new("plain", Secret::new("a-secret-without-slashes")));
    let server = Server::start_with(dir, told).await;
    let get = Request { path: "/lake/k", ..Default::default() };
    server.send_raw(&forged(&server, &get, "a-secret-without-slashes", "plain")).await;
    let lines = said(&server.notices, "signature");
    assert!(lines[0].contains("a secret key in the place of its access key"), "{lines:?}");
    let found = logged(&path, 1).await;
    assert!(found[0].get("claimed_key_id").is_none(), "{found:?}");
    let all = server.notices.lines().concat() + &std::fs::read_to_string(&path).unwrap();
    assert!(!all.contains("a-secret-without"), "{all}");
}

#[tokio::test]
async fn of_many_bad_signatures_ten_a_second_are_lines_and_the_others_a_count() {
    let server = Server::start().await;
    let get = Request { path: "/lake/k", ..Default::default() };
    let bytes = forged(&server, &get, ACCESS_KEY, "wrong");
    let sent = 60;
    futures_util::future::join_all((0..sent).map(|_| server.send_raw(&bytes))).await;
    // However long they took: each is a line, or in a count.
    let counted = || {
        let lines = said(&server.notices, "signature");
        let counts = lines.iter().filter_map(|line| line.split_once(" more lines within 1 s"));
        let left_out: usize = counts.clone().map(|it| it.0.parse::<usize>().unwrap()).sum();
        (lines.len() - counts.count(), left_out)
    };
    until("the count", async || {
        let (lines, left_out) = counted();
        lines + left_out == sent
    })
    .await;
    assert!(counted().0 < sent, "{:?}", counted());
}

/// Requests of every operation: the method, the path, and whether it is a copy.
fn asked() -> Vec<(&'static str, String, bool)> {
    let lake = [
        "acl",
        "accelerate",
        "cors",
        "encryption",
        "lifecycle",
        "list-type=2",
        "location",
        "logging",
        "notification",
        "object-lock",
        "ownershipControls",
        "policy",
        "policyStatus",
        "publicAccessBlock",
        "replication",
        "requestPayment",
        "tagging",
        "uploads",
        "versioning",
        "versions",
        "website",
        "",
    ];
    let object = ["acl", "attributes", "legal-hold", "retention", "tagging", "uploadId=u", ""];
    let mut asked = vec![("GET", "/".to_string(), false)];
    for query in lake {
        asked.extend(["GET", "PUT", "DELETE"].map(|it| (it, format!("/lake?{query}"), false)));
    }
    for query in object {
        asked.extend(["GET", "PUT", "DELETE"].map(|it| (it, format!("/lake/k?{query}"), false)));
    }
    asked.extend([
        ("HEAD", "/lake".to_string(), false),
        ("HEAD", "/lake/k".to_string(), false),
        ("POST", "/lake?delete".to_string(), false),
        ("POST", "/lake/k?uploads".to_string(), false),
        ("POST", "/lake/k?uploadId=u".to_string(), false),
        ("PUT", "/lake/k?partNumber=1&uploadId=u".to_string(), false),
        ("PUT", "/lake/k?partNumber=1&uploadId=u".to_string(), true),
        ("PUT", "/lake/k".to_string(), true),
    ]);
    asked
}

/// What a request claims, in a log, is what it would have been.
#[tokio::test]
async fn the_access_log_has_what_a_bad_signature_claims() {
    let dir = Dir::new();
    let path = dir.0.join("access.log");
    let mut told = options(&dir);
    told.serve.access_log = path.display().to_string();
    let server = Server::start_with(dir, told).await;
    let source = [("x-amz-copy-source", "/lake/k")];
    let asked = asked();
    let mut ids = Vec::new();
    for (method, path, is_copy) in &asked {
        let headers = if *is_copy { &source[..] } else { &[] };
        let request = Request { method, path, headers, ..Default::default() };
        for secret in [SECRET_KEY, "wrong"] {
            let answer = server.send_raw(&forged(&server, &request, ACCESS_KEY, secret)).await;
            ids.push(answer.header("x-amz-request-id").to_string());
        }
    }
    let lines = logged(&path, ids.len()).await;
    // A line is written when its answer has left, which the next request does not wait for.
    let of = |id: &String| lines.iter().find(|line| line["id"] == id.as_str()).unwrap();
    let mut compared = 0;
    for (pair, (method, path, _)) in ids.chunks(2).zip(&asked) {
        let (good, bad) = (of(&pair[0]), of(&pair[1]));
        assert_eq!(bad["error"], "SignatureDoesNotMatch", "{method} {path}: {bad}");
        assert_eq!(bad["claimed_key_id"], ACCESS_KEY, "{method} {path}");
        assert!(bad["key_id"].is_null() && good.get("claimed_key_id").is_none());
        // What s3s takes for no operation at all has no name of its own.
        if good["operation"].is_null() {
            continue;
        }
        compared += 1;
        // Whatever a query names that s3s does not know of a plain operation is refused by name.
        if good["error"] != "NotImplemented" {
            assert_eq!(bad["operation"], good["operation"], "{method} {path}");
        }
        assert_eq!((&bad["bucket"], &bad["key"]), (&good["bucket"], &good["key"]), "{path}");
    }
    assert!(compared > 60, "{compared} of {}", asked.len());
}

#[tokio::test]
async fn a_back_end_that_is_lost_and_comes_back_is_two_lines() {
    let server = Server::on_with(Lane::S3, |options| {
        options.serve.backend_deadline_ms = 500;
    })
    .await;
    server.put("/lake/k", b"x").await;
    let fake = server.fake.as_ref().unwrap();
    assert!(said(&server.notices, "back end `back`").is_empty());
    for fault in ["status=500", "reset"] {
        fake.fault(fault);
        for _ in 0..3 {
            assert!(server.get("/lake/k").await.status >= 500, "{fault}");
        }
        fake.faults().clear();
        until("its return", async || server.get("/lake/k").await.status == 200).await;
    }
    let lines = said(&server.notices, "back end `back`");
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines[0].contains("3 requests in a row failed on its side (500)"), "{lines:?}");
    assert!(lines[2].contains("3 requests in a row had no answer"), "{lines:?}");
    for line in [&lines[1], &lines[3]] {
        assert!(line.starts_with("answers again, after "), "{lines:?}");
    }
    let address = fake.address().to_string();
    assert!(!lines.concat().contains(&address), "{lines:?}");
}

#[tokio::test]
async fn a_drain_says_how_many_requests_it_cut() {
    let dir = Dir::new();
    let serve = ServeSettings { drain_seconds: 0, ..serve_settings() };
    let told = Options { serve, ..options(&dir) };
    let mut server = Server::start_with(dir, told).await;
    let (notices, reloader) = (server.notices.clone(), server.reloader.clone());
    reloader.reload().unwrap();
    assert_eq!(
        said(&notices, "reload"),
        ["keys, back ends and settings are read at the start only"]
    );
    let headers = [("expect", "100-continue")];
    let put = Request {
        method: "PUT",
        path: "/lake/k",
        headers: &headers,
        body: b"never",
        ..Default::default()
    };
    let bytes = forged(&server, &put, ACCESS_KEY, SECRET_KEY);
    let mut stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let head = &bytes[..bytes.len() - 5];
    tokio::io::AsyncWriteExt::write_all(&mut stream, head).await.unwrap();
    assert_eq!(crate::common::read_answer(&mut stream, true).await.status, 100);
    server.stop.take().unwrap().send(()).unwrap();
    server.served.await.unwrap();
    let lines = said(&notices, "drain");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("begins with 1 requests at work on 1 connections"), "{lines:?}");
    assert!(lines[1].ends_with("1 requests were cut"), "{lines:?}");
}

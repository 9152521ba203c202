//! Uploads from browser forms: signatures, policies, answers.

use crate::common::{
    ACCESS_KEY, Answer, Dir, Lane, Request, SECRET_KEY, Server, serve_settings, sign,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use penstock_base::ServeSettings;
use penstock_gateway::{Grant, Options};
use ring::hmac;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

on_every_lane!(
    a_signed_form_makes_an_object,
    policies_hold,
    a_form_may_name_a_class,
    headers_beside_a_form_are_not_its_fields,
);

/// A form of these fields and a file `a.txt`.
fn form(fields: &[(&str, &str)], file: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in fields {
        let head = format!("--X1\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
        body.extend_from_slice(format!("{head}{value}\r\n").as_bytes());
    }
    let head = "--X1\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\n";
    body.extend_from_slice(head.as_bytes());
    body.extend_from_slice(file);
    body.extend_from_slice(b"\r\n--X1--\r\n");
    body
}

const TYPE: (&str, &str) = ("content-type", "multipart/form-data; boundary=X1");

impl Server {
    async fn post(&self, fields: &[(&str, &str)], file: &[u8]) -> Answer {
        let body = form(fields, file);
        let headers = [TYPE];
        let path = "/lake";
        self.unsigned(Request {
            method: "POST",
            path,
            headers: &headers,
            body: &body,
            ..Default::default()
        })
        .await
    }
}

/// The fields that sign a policy of these conditions, for the bucket, with version 4.
fn signed(conditions: &str, expires_s: i64) -> Vec<(String, String)> {
    signed_for(&format!(r#"{conditions}{{"bucket": "lake"}},"#), expires_s)
}

fn signed_for(conditions: &str, expires_s: i64) -> Vec<(String, String)> {
    let time = sign::timestamp(0);
    let credential = format!("{ACCESS_KEY}/{}/{}/s3/aws4_request", &time[..8], sign::REGION);
    let until = sign::timestamp(expires_s);
    let until = format!(
        "{}-{}-{}T{}:{}:{}Z",
        &until[..4],
        &until[4..6],
        &until[6..8],
        &until[9..11],
        &until[11..13],
        &until[13..15]
    );
    let policy = format!(
        r#"{{"expiration": "{until}", "conditions": [{conditions}
        {{"x-amz-algorithm": "AWS4-HMAC-SHA256"}}, {{"x-amz-credential": "{credential}"}},
        {{"x-amz-date": "{time}"}}]}}"#
    );
    let policy = STANDARD.encode(policy);
    let key = hmac::Key::new(hmac::HMAC_SHA256, &sign::signing_key(SECRET_KEY, &time[..8]));
    let signature = sign::hex(hmac::sign(&key, policy.as_bytes()).as_ref());
    let pair = |name: &str, value: String| (name.to_string(), value);
    vec![
        pair("X-Amz-Algorithm", "AWS4-HMAC-SHA256".into()),
        pair("X-Amz-Credential", credential),
        pair("X-Amz-Date", time),
        pair("Policy", policy),
        pair("X-Amz-Signature", signature),
    ]
}

fn with<'a>(
    signed: &'a [(String, String)],
    more: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    let own = signed.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    own.chain(more.iter().copied()).collect()
}

const ANY_KEY: &str = r#"["starts-with", "$key", "up/"], "#;

async fn a_signed_form_makes_an_object(lane: Lane) {
    let server = Server::on(lane).await;
    let conditions = format!(
        r#"{ANY_KEY}["starts-with", "$Content-Type", "text/"], ["eq", "$x-amz-meta-colour", "blue"],
        ["content-length-range", 1, 300000], ["starts-with", "$success_action_status", ""],
        ["starts-with", "$success_action_redirect", "http://there/"], "#
    );
    let signature = signed(&conditions, 60);
    let more =
        [("key", "up/${filename}"), ("Content-Type", "text/plain"), ("x-amz-meta-colour", "blue")];
    let fields = with(&signature, &more);
    let large = vec![7; 200_000];
    let redirect = ("success_action_redirect", "http://there/?a=b");
    let (created, there) = (("success_action_status", "201"), redirect);
    let plain = with(&signature, &[&more[..], &[("success_action_status", ""), there]].concat());
    let to = server.post(&plain, &large).await;
    assert_eq!(to.status, 303, "{}", to.text());
    let target = to.header("location");
    assert!(target.starts_with("http://there/?a=b&bucket=lake&key=up%2Fa.txt&etag="), "{target}");
    let got = server.get("/lake/up/a.txt").await;
    assert_eq!((got.status, got.body), (200, large));
    assert_eq!(got.headers["content-type"], "text/plain");
    assert_eq!(got.headers["x-amz-meta-colour"], "blue");
    // Every field but the exempt ones has a condition, and every condition a field.
    let lacking = server.post(&fields, b"x").await;
    assert_eq!((lacking.status, lacking.code().as_str()), (403, "AccessDenied"));
    let conditions = format!(r#"{ANY_KEY}["eq", "$success_action_status", "201"], "#);
    let signature = signed(&conditions, 60);
    let made = server.post(&with(&signature, &[("key", "up/b"), created]), b"bytes").await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert!(made.text().contains("<Bucket>lake</Bucket><Key>up/b</Key><ETag>"), "{}", made.text());
    assert_eq!(server.get("/lake/up/b").await.body, b"bytes");
}

async fn a_form_may_name_a_class(lane: Lane) {
    let server = Server::on(lane).await;
    let class = ("x-amz-storage-class", "STANDARD_IA");
    let signature =
        signed(&format!(r#"{ANY_KEY}["eq", "$x-amz-storage-class", "STANDARD_IA"], "#), 60);
    let made = server.post(&with(&signature, &[("key", "up/k"), class]), b"x").await;
    if matches!(lane, Lane::Local | Lane::Memory) {
        assert_eq!((made.status, made.code().as_str()), (400, "InvalidStorageClass"));
        return;
    }
    assert_eq!(made.status, 204, "{}", made.text());
    assert_eq!(server.get("/lake/up/k").await.header(class.0), class.1);
}

async fn policies_hold(lane: Lane) {
    let server = Server::on(lane).await;
    let range = format!(r#"{ANY_KEY}["content-length-range", 2, 4], "#);
    let good = signed(&range, 60);
    assert_eq!(server.post(&with(&good, &[("key", "up/k")]), b"123").await.status, 204);
    for (signature, more, file, status, code) in [
        (&good, vec![("key", "up/n")], &b"1"[..], 400, "EntityTooSmall"),
        (&good, vec![("key", "up/n")], b"12345", 400, "EntityTooLarge"),
        (&good, vec![("key", "elsewhere")], b"123", 403, "AccessDenied"),
        (&good, vec![("key", "up/n"), ("acl", "private")], b"123", 403, "AccessDenied"),
        (&good, vec![], b"123", 400, "InvalidArgument"),
        (&signed(&range, -1), vec![("key", "up/n")], b"123", 403, "AccessDenied"),
        (&signed("[\"eq\"], ", 60), vec![("key", "up/n")], b"123", 400, "InvalidPolicyDocument"),
        (&vec![], vec![("key", "up/n")], b"123", 403, "AccessDenied"),
    ] {
        let answer = server.post(&with(signature, &more), file).await;
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{more:?}");
    }
    let mut forged = good.clone();
    forged[4].1.replace_range(..4, "0000");
    let answer = server.post(&with(&forged, &[("key", "up/n")]), b"123").await;
    assert_eq!(answer.code(), "SignatureDoesNotMatch");
    let sums = [("key", "up/n"), ("x-amz-checksum-crc32", "AAAAAA==")];
    let answer = server.post(&with(&good, &sums), b"123").await;
    assert_eq!((answer.status, answer.code().as_str()), (400, "BadDigest"), "{}", answer.text());
    assert_eq!(server.get("/lake/up/n").await.status, 404);
    assert_eq!(server.get("/lake/up/k").await.body, b"123");
}

async fn headers_beside_a_form_are_not_its_fields(lane: Lane) {
    let server = Server::on(lane).await;
    server.put("/lake/private", b"secret").await;
    let signature = signed(ANY_KEY, 60);
    let body = form(&with(&signature, &[("key", "up/k")]), b"own");
    let (method, path) = ("POST", "/lake");
    let headers = [
        TYPE,
        ("x-amz-copy-source", "lake/private"),
        ("x-amz-meta-colour", "red"),
        ("cache-control", "no-store"),
    ];
    let posted = Request { method, path, headers: &headers, body: &body, ..Default::default() };
    assert_eq!(server.unsigned(posted).await.status, 204);
    let got = server.get("/lake/up/k").await;
    assert_eq!(got.body, b"own");
    assert!(!got.headers.contains_key("x-amz-meta-colour"));
    assert!(!got.headers.contains_key("cache-control"));
}

#[tokio::test]
async fn a_form_is_no_other_request_than_the_upload_of_its_file() {
    let server = Server::start().await;
    server.put("/lake/private", b"secret").await;
    // A policy for any bucket, and what a URL could say behind the name of one.
    let any = signed_for(&format!(r#"{ANY_KEY}["starts-with", "$bucket", "lake"],"#), 60);
    let body = form(&with(&any, &[("key", "up/k")]), b"own");
    for path in ["/lake%3Ftagging&x=", "/lake%3Fpolicy&x=", "/lake%23"] {
        let headers = [TYPE];
        let posted =
            Request { method: "POST", path, headers: &headers, body: &body, ..Default::default() };
        let refused = server.unsigned(posted).await;
        assert_eq!((refused.status, refused.code().as_str()), (400, "InvalidBucketName"), "{path}");
    }
    let copies = format!(r#"{ANY_KEY}["starts-with", "$x-amz-copy-source", ""], "#);
    let copies = signed(&copies, 60);
    let fields = with(&copies, &[("key", "up/k"), ("x-amz-copy-source", "lake/private")]);
    assert_eq!(server.post(&fields, b"own").await.code(), "InvalidArgument");
    assert_eq!(server.get("/lake/up/k").await.status, 404);
}

#[tokio::test]
async fn no_more_forms_are_held_than_there_is_room_for() {
    let server = Server::on_with(Lane::Memory, |options| {
        options.serve.form_size_max_bytes = 256 << 20;
    })
    .await;
    let signature = signed(ANY_KEY, 60);
    let body = form(&with(&signature, &[("key", "up/k")]), b"own");
    // Of unknown length, it may become as long as any.
    let head = format!(
        "POST /lake HTTP/1.1\r\nhost: h\r\n{}: {}\r\ntransfer-encoding: chunked\r\n\r\n",
        TYPE.0, TYPE.1
    );
    let chunk = |bytes: &[u8]| {
        let size = format!("{:x}\r\n", bytes.len());
        [size.as_bytes(), bytes, b"\r\n"].concat()
    };
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    slow.write_all(&[head.as_bytes(), &chunk(&body[..9])].concat()).await.unwrap();
    let refused = loop {
        // The first one is in once the second one is not.
        let answer = server.post(&with(&signature, &[("key", "up/other")]), b"other").await;
        match answer.status {
            204 => tokio::task::yield_now().await,
            _ => break answer,
        }
    };
    assert_eq!((refused.status, refused.code().as_str()), (503, "SlowDown"));
    assert_eq!(refused.header("retry-after"), "1");
    let page = server.admin_page("/metrics").await.text();
    assert!(page.contains("penstock_requests_refused_total{reason=\"forms\"} 1"), "{page}");
    slow.write_all(&[chunk(&body[9..]), chunk(b"")].concat()).await.unwrap();
    assert_eq!(crate::common::read_answer(&mut slow, false).await.status, 204);
    let again = server.post(&with(&signature, &[("key", "up/other")]), b"other").await;
    assert_eq!(again.status, 204);
}

#[tokio::test]
async fn version_2_signs_forms_where_it_is_on() {
    let policy = STANDARD.encode(
        r#"{"expiration": "2100-01-01T00:00:00Z", "conditions": [{"bucket": "lake"},
        ["starts-with", "$key", ""]]}"#,
    );
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, SECRET_KEY.as_bytes());
    let signature = STANDARD.encode(hmac::sign(&key, policy.as_bytes()).as_ref());
    let fields = [
        ("key", "k"),
        ("AWSAccessKeyId", ACCESS_KEY),
        ("policy", &policy),
        ("signature", &signature),
    ];
    let server = Server::start().await;
    assert_eq!(server.post(&fields, b"bytes").await.status, 204);
    let without = &fields[..3];
    assert_eq!(server.post(without, b"bytes").await.status, 400);
    let off = Server::on_with(Lane::Local, |options| {
        options.serve.signature_v2_enabled = false;
        options.serve.form_size_max_bytes = 64 << 10;
    })
    .await;
    assert_eq!(off.post(&fields, b"bytes").await.code(), "InvalidRequest");
    assert_eq!(off.post(&fields, &vec![0; 100_000]).await.code(), "EntityTooLarge");
    let path = "/lake/k";
    let headers = [TYPE];
    let body = form(&fields, b"bytes");
    let onto =
        Request { method: "POST", path, headers: &headers, body: &body, ..Default::default() };
    assert_eq!(off.unsigned(onto).await.code(), "MethodNotAllowed");
}

/// s3s sees forms, and requests that are mended before it parses them, as unsigned. The log tells
/// their keys all the same, and none where there is none.
#[tokio::test]
async fn the_log_tells_who_signed_a_form_or_a_request_that_was_mended() {
    let dir = Dir::new();
    let path = dir.0.join("access.log");
    let serve = ServeSettings { access_log: path.display().to_string(), ..serve_settings() };
    let public = vec![Grant::everything()];
    let told = Options { serve, public, ..crate::common::options(&dir) };
    let server = Server::start_with(dir, told).await;
    let signature = signed(ANY_KEY, 60);
    assert_eq!(server.post(&with(&signature, &[("key", "up/k")]), b"own").await.status, 204);
    assert_eq!(server.post(&[("key", "up/n")], b"nobody's").await.status, 204);
    // No range at all: S3 passes over it.
    let headers = [("range", "bytes=a-b")];
    let get = || Request { path: "/lake/up/k", headers: &headers, ..Default::default() };
    assert_eq!(server.send(get()).await.body, b"own");
    assert_eq!(server.unsigned(get()).await.body, b"own");
    let lines = logged(&path, 4).await;
    let mut found: Vec<_> =
        lines.iter().map(|line| (line["operation"].as_str(), line["key_id"].as_str())).collect();
    found.sort_unstable();
    let (put, get, key) = (Some("PutObject"), Some("GetObject"), Some(ACCESS_KEY));
    assert_eq!(found, [(get, None), (get, key), (put, None), (put, key)]);
}

/// Where a form was refused before it became a request of its own, the log tells what it was for,
/// as far as that was read.
#[tokio::test]
async fn the_log_tells_the_key_of_a_form_that_was_refused() {
    let dir = Dir::new();
    let path = dir.0.join("access.log");
    let access_log = path.display().to_string();
    let serve = ServeSettings { access_log, form_size_max_bytes: 64 << 10, ..serve_settings() };
    let told = Options { serve, ..crate::common::options(&dir) };
    let server = Server::start_with(dir, told).await;
    let mut forged = signed(ANY_KEY, 60);
    forged[4].1.replace_range(..4, "0000");
    let without_policy = [("key", "up/k"), ("x-amz-signature", "00")];
    let long = "k".repeat(5000);
    for (fields, file, code) in [
        (with(&forged, &[("key", "up/${filename}")]), &b"x"[..], "SignatureDoesNotMatch"),
        (with(&signed(ANY_KEY, -1), &[("key", "up/late")]), b"x", "AccessDenied"),
        (without_policy.to_vec(), b"x", "InvalidArgument"),
        (vec![("key", &*long), ("x-amz-signature", "00")], b"x", "InvalidArgument"),
        (with(&forged, &[("key", "up/large")]), &vec![0; 100_000], "EntityTooLarge"),
    ] {
        assert_eq!(server.post(&fields, file).await.code(), code);
    }
    let headers = [TYPE];
    let body = b"--X1\r\nContent-Disposition: form-data; name=key\r\n\r\nup/fileless\r\n--X1--";
    let (method, at) = ("POST", "/lake");
    let fileless = Request { method, path: at, headers: &headers, body, ..Default::default() };
    assert_eq!(server.unsigned(fileless).await.code(), "InvalidArgument");
    let lines = logged(&path, 6).await;
    let found: Vec<_> = lines.iter().map(|line| line["key"].as_str()).collect();
    let cut = &long[..1024];
    let keys = ["up/a.txt", "up/late", "up/k", cut].map(Some);
    assert_eq!(found, [&keys[..], &[None, Some("up/fileless")]].concat());
    for line in lines {
        assert_eq!((line["bucket"].as_str(), line["key_id"].as_str()), (Some("lake"), None));
    }
}

/// The lines of a log, once there are as many.
async fn logged(path: &Path, count: usize) -> Vec<Value> {
    let lines = async {
        loop {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            if text.lines().count() == count && text.ends_with('\n') {
                return text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), lines).await.unwrap()
}

//! What keys with few rights, nobody, and those who ask too often may.

use crate::common::{
    ACCESS_KEY, Answer, Dir, Lane, Request, SECRET_KEY, Server, options, serve_settings, sign,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use penstock_base::{Secret, ServeSettings};
use penstock_gateway::{Grant, KeyPair, Options, Pattern, Rights};
use ring::hmac;
use std::time::Instant;

fn grant(buckets: &[&str], rights: &[&str]) -> Grant {
    Grant {
        buckets: buckets.iter().map(|name| Pattern::new(*name)).collect(),
        rights: Rights::parse(rights.iter().copied()).unwrap(),
    }
}

fn key(name: &str, grants: Vec<Grant>) -> KeyPair {
    KeyPair { grants, ..KeyPair::new(name, Secret::new(SECRET_KEY)) }
}

/// With the buckets `lake` and `open-data`, an object `k` in each.
async fn server(keys: Vec<KeyPair>, public: Vec<Grant>) -> Server {
    let dir = Dir::new();
    let mut told = Options { public, ..options(&dir) };
    told.keys.extend(keys);
    let server = Server::start_with(dir, told).await;
    let make = Request { method: "PUT", path: "/open-data", ..Default::default() };
    assert_eq!(server.send(make).await.status, 200);
    for path in ["/lake/k", "/open-data/k"] {
        assert_eq!(server.put(path, b"the bytes").await.status, 200);
    }
    server
}

impl Server {
    async fn ask_with_key(&self, key: &str, method: &str, path: &str) -> Answer {
        self.send_as(key, Request { method, path, ..Default::default() }).await
    }

    async fn unasked(&self, method: &str, path: &str) -> Answer {
        self.unsigned(Request { method, path, ..Default::default() }).await
    }
}

#[tokio::test]
async fn each_key_may_what_its_grants_say_and_no_more() {
    let grants = vec![grant(&["open-*"], &["read", "list"]), grant(&["lake"], &["write"])];
    let server = server(vec![key("FEW", grants)], Vec::new()).await;
    for (method, path, status) in [
        ("GET", "/open-data/k", 200),
        ("HEAD", "/open-data", 200),
        ("GET", "/open-data?list-type=2", 200),
        ("PUT", "/open-data/k", 403),
        ("DELETE", "/open-data/k", 403),
        ("DELETE", "/open-data", 403),
        ("PUT", "/lake/new", 200),
        ("GET", "/lake/k", 403),
        ("GET", "/lake?list-type=2", 403),
        ("DELETE", "/lake/new", 403),
        ("GET", "/open/k", 403),
        ("PUT", "/brand-new", 403),
    ] {
        let answer = server.ask_with_key("FEW", method, path).await;
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
    }
    let denied = server.ask_with_key("FEW", "GET", "/lake/k").await;
    assert_eq!(denied.code(), "AccessDenied");
    assert!(denied.text().contains("`read`"), "{}", denied.text());
    // Nothing was changed by what was refused.
    assert_eq!(server.get("/open-data/k").await.body, b"the bytes");
}

#[tokio::test]
async fn a_copy_takes_the_right_to_read_its_source() {
    let grants = vec![grant(&["open-data"], &["read"]), grant(&["lake"], &["write"])];
    let server = server(vec![key("FEW", grants)], Vec::new()).await;
    let copy = async |source: &str, path: &str| {
        let headers = [("x-amz-copy-source", source)];
        let request = Request { method: "PUT", path, headers: &headers, ..Default::default() };
        server.send_as("FEW", request).await
    };
    assert_eq!(copy("/open-data/k", "/lake/copied").await.status, 200);
    for source in ["/lake/k", "lake/k", "/%6Cake/k", "lake%2Fk"] {
        let refused = copy(source, "/lake/stolen").await;
        assert_eq!(refused.status, 403, "{source}: {}", refused.text());
    }
    assert_eq!(server.get("/lake/stolen").await.status, 404);
}

#[tokio::test]
async fn the_list_of_buckets_shows_what_one_may_use() {
    let server = server(vec![key("FEW", vec![grant(&["open-*"], &["read"])])], Vec::new()).await;
    let shown = server.ask_with_key("FEW", "GET", "/").await.text();
    assert!(shown.contains("<Name>open-data</Name>") && !shown.contains("lake"), "{shown}");
    assert!(server.get("/").await.text().contains("<Name>lake</Name>"));
}

#[tokio::test]
async fn nobody_may_what_is_public_and_no_more() {
    let server = server(Vec::new(), vec![grant(&["open-data"], &["read"])]).await;
    assert_eq!(server.unasked("GET", "/open-data/k").await.body, b"the bytes");
    for (method, path) in
        [("GET", "/lake/k"), ("GET", "/open-data"), ("DELETE", "/open-data/k"), ("PUT", "/newone")]
    {
        let answer = server.unasked(method, path).await;
        assert_eq!((answer.status, answer.code().as_str()), (403, "AccessDenied"), "{path}");
    }
    // Who signs with a key that is not there is told so, public or not.
    assert_eq!(
        server.ask_with_key("NOKEY", "GET", "/open-data/k").await.code(),
        "InvalidAccessKeyId"
    );
}

/// Else whoever has a key would have to leave it out to read what everybody may.
#[tokio::test]
async fn every_key_may_what_is_public() {
    let keys = vec![key("FEW", vec![grant(&["lake"], &["write"])])];
    let server = server(keys, vec![grant(&["open-data"], &["read"])]).await;
    assert_eq!(server.ask_with_key("FEW", "GET", "/open-data/k").await.body, b"the bytes");
    let headers = [("x-amz-copy-source", "/open-data/k")];
    let path = "/lake/copied";
    let copy = Request { method: "PUT", path, headers: &headers, ..Default::default() };
    assert_eq!(server.send_as("FEW", copy).await.status, 200);
    assert!(server.ask_with_key("FEW", "GET", "/").await.text().contains("<Name>open-data</Name>"));
    for (method, path) in [("GET", "/lake/k"), ("GET", "/open-data"), ("PUT", "/open-data/k")] {
        assert_eq!(server.ask_with_key("FEW", method, path).await.status, 403, "{method} {path}");
    }
}

#[tokio::test]
async fn a_key_that_asks_too_often_is_told_when_to_come_again() {
    let dir = Dir::new();
    let serve = ServeSettings { key_requests_burst: 3, ..serve_settings() };
    let mut told = Options { serve, ..options(&dir) };
    // One request in so long a time that this test is over before it.
    let slow = KeyPair { requests_per_second: Some(1), ..key("SLOW", vec![Grant::everything()]) };
    told.keys.push(slow);
    let server = Server::start_with(dir, told).await;
    let mut refused = 0;
    for _ in 0..40 {
        let answer = server.ask_with_key("SLOW", "HEAD", "/lake").await;
        match answer.status {
            200 => {}
            503 => {
                refused += 1;
                assert_eq!(answer.header("retry-after"), "1");
            }
            other => panic!("{other}"),
        }
        // Others do not wait for it.
        assert_eq!(server.ask_with_key(ACCESS_KEY, "HEAD", "/lake").await.status, 200);
    }
    assert!(refused > 20, "{refused} of 40");
    let page = server.admin_page("/metrics").await.text();
    assert!(
        page.contains(&format!("penstock_requests_refused_total{{reason=\"rate\"}} {refused}"))
    );
}

/// Unsigned requests share one rate, whatever lets them in, and so do the questions of browsers,
/// which nobody signs either.
#[tokio::test]
async fn unsigned_requests_and_preflights_that_come_too_often_are_told_when_to_come_again() {
    let slow = |options: &mut Options| {
        // One request in so long a time that this test is over before it.
        options.serve.public_requests_per_second = 1;
        options.serve.key_requests_burst = 3;
        options.public = vec![grant(&["lake"], &["read"])];
    };
    let server = Server::on_with(Lane::S3, slow).await;
    assert_eq!(server.put("/lake/k", b"the bytes").await.status, 200);
    let origin = ("origin", "http://a");
    let asked = [origin, ("access-control-request-method", "GET")];
    let preflight =
        || Request { method: "OPTIONS", path: "/lake/k", headers: &asked, ..Default::default() };
    let mut refused = 0;
    for _ in 0..20 {
        for (answer, status) in [
            (server.unsigned(Request { path: "/lake/k", ..Default::default() }).await, 200),
            // No rule of the bucket lets that page in.
            (server.unsigned(preflight()).await, 403),
        ] {
            if answer.status == 503 {
                refused += 1;
                assert_eq!(
                    (answer.code().as_str(), answer.header("retry-after")),
                    ("SlowDown", "1")
                );
            } else {
                assert_eq!(answer.status, status, "{}", answer.text());
            }
        }
        // Who signs does not wait for those who do not.
        assert_eq!(server.get("/lake/k").await.status, 200);
    }
    assert!(refused > 20, "{refused} of 40");
    let page = server.admin_page("/metrics").await.text();
    let line = format!("penstock_requests_refused_total{{reason=\"public\"}} {refused}\n");
    assert!(page.contains(&line) && page.contains("{reason=\"rate\"} 0\n"), "{page}");
}

/// What is refused before anybody is charged for it would else read the bucket's rules each time.
#[tokio::test]
async fn refused_requests_of_pages_cost_the_back_end_no_more_than_unsigned_ones_may() {
    let server = Server::on_with(Lane::S3, |options| {
        options.serve.public_requests_per_second = 1;
        options.serve.key_requests_burst = 1;
        let slow =
            KeyPair { requests_per_second: Some(1), ..key("SLOW", vec![Grant::everything()]) };
        options.keys.push(slow);
    })
    .await;
    let headers = [("origin", "http://a")];
    let get = || Request { path: "/lake/k", headers: &headers, ..Default::default() };
    let (before, since) = (server.backend_requests(), Instant::now());
    for _ in 0..20 {
        // Nobody is let in unsigned, so these are charged to nobody.
        assert_eq!(server.unsigned(get()).await.status, 403);
    }
    let asked = server.backend_requests() - before;
    let most = 2 + since.elapsed().as_secs();
    assert!(asked <= most, "{asked} requests, at most {most}");
    let before = server.backend_requests();
    let mut slowed = 0;
    for _ in 0..20 {
        slowed += u64::from(server.send_as("SLOW", get()).await.status == 503);
    }
    let asked = server.backend_requests() - before;
    // Of each that was let in: its object, which is not there, and the rules.
    assert!(slowed > 0 && asked <= 2 * (20 - slowed), "{asked} requests, {slowed} told to wait");
}

#[tokio::test]
async fn a_bucket_is_signed_by_version_2_with_a_slash_or_without() {
    let server = server(Vec::new(), Vec::new()).await;
    let date = crate::common::sign::timestamp(0);
    for (resource, status) in [("/lake/?acl", 200), ("/lake?acl", 200), ("/other/?acl", 403)] {
        let text = format!("GET\n\n\n{date}\n{resource}");
        let secret = SECRET_KEY.as_bytes();
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret);
        let signature = STANDARD.encode(hmac::sign(&key, text.as_bytes()));
        let head = format!(
            "GET /lake?acl HTTP/1.1\r\nhost: h\r\ndate: {date}\r\n\
             authorization: AWS {ACCESS_KEY}:{signature}\r\n\r\n"
        );
        let answer = server.send_raw(head.as_bytes()).await;
        assert_eq!(answer.status, status, "{resource}: {}", answer.text());
    }
}

/// What is named twice is in no text that version 2 signs.
#[tokio::test]
async fn a_url_of_version_2_is_for_no_other_operation_on_its_path() {
    let server = server(Vec::new(), Vec::new()).await;
    let presigned = |method: &str, path: &str| {
        let text = format!("{method}\n\n\n9999999999\n{path}");
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, SECRET_KEY.as_bytes());
        let signature = STANDARD.encode(hmac::sign(&key, text.as_bytes()));
        let signature = signature.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
        format!("{path}?AWSAccessKeyId={ACCESS_KEY}&Expires=9999999999&Signature={signature}")
    };
    let ask = async |method: &str, url: String| {
        let head = format!("{method} {url} HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n");
        server.send_raw(head.as_bytes()).await
    };
    let tags = b"<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>";
    assert_eq!(server.put("/lake/k?tagging", tags).await.status, 200);
    for (method, path, names) in [
        ("GET", "/lake/k", &["tagging", "acl", "t%61gging"][..]),
        ("GET", "/lake", &["policy", "versions", "uploads", "acl", "tagging", "location"]),
        ("DELETE", "/lake/k", &["tagging"]),
    ] {
        let url = presigned(method, path);
        for name in names {
            let answer = ask(method, format!("{url}&{name}&{name}")).await;
            let found = (answer.status, answer.code());
            assert_eq!(found, (400, "InvalidArgument".into()), "{name}: {}", answer.text());
        }
    }
    assert_eq!(ask("GET", presigned("GET", "/lake/k")).await.status, 200);
    assert!(server.get("/lake/k?tagging").await.text().contains("<Key>a</Key>"));
    assert_eq!(ask("DELETE", presigned("DELETE", "/lake/k")).await.status, 204);
}

#[tokio::test]
async fn signatures_of_version_2_can_be_switched_off() {
    let head = format!(
        "GET /lake/k HTTP/1.1\r\nhost: h\r\ndate: {}\r\n\
         authorization: AWS TESTACCESS:AAAA\r\n\r\n",
        crate::common::sign::timestamp(0)
    );
    let on = server(Vec::new(), Vec::new()).await;
    assert_eq!(on.send_raw(head.as_bytes()).await.code(), "SignatureDoesNotMatch");
    let dir = Dir::new();
    let serve = ServeSettings { signature_v2_enabled: false, ..serve_settings() };
    let told = Options { serve, ..options(&dir) };
    let off = Server::start_with(dir, told).await;
    let answer = off.send_raw(head.as_bytes()).await;
    assert_eq!((answer.status, answer.code().as_str()), (400, "InvalidRequest"));
    assert!(answer.text().contains("AWS4-HMAC-SHA256"), "{}", answer.text());
}

/// As on S3: a signature tells who asks, and until when, not how often.
#[tokio::test]
async fn a_signed_request_may_come_again_until_it_is_too_old() {
    let server = server(Vec::new(), Vec::new()).await;
    let host = server.address.to_string();
    let put = |clock_offset_s| {
        let put = Request { method: "PUT", path: "/lake/again", body: b"x", ..Default::default() };
        let put = Request { clock_offset_s, ..put };
        sign::signed(&put, &host, SECRET_KEY, ACCESS_KEY)
    };
    let url = |offset_s| {
        let url = sign::presigned("GET", "/lake/k", &host, SECRET_KEY, ACCESS_KEY, 600, offset_s);
        format!("GET {url} HTTP/1.1\r\nhost: {host}\r\n\r\n").into_bytes()
    };
    // Of a signed head 15 minutes either way, of a URL as long as it says itself.
    for young in [put(-14 * 60), url(-9 * 60)] {
        for _ in 0..2 {
            assert_eq!(server.send_raw(&young).await.status, 200);
        }
    }
    for (old, code) in [(put(-16 * 60), "RequestTimeTooSkewed"), (url(-11 * 60), "AccessDenied")] {
        for _ in 0..2 {
            let answer = server.send_raw(&old).await;
            assert_eq!((answer.status, answer.code().as_str()), (403, code), "{}", answer.text());
        }
    }
}

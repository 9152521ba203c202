//! The fakes on the wire: connections, bodies, faults, the emulated link, the administration.

use crate::raw::{Answer, Raw, ask, put};
use penstock_testkit::fake::{FakeAzure, FakeHandle, FakeOptions, FakeS3, LinkOptions};
use penstock_testkit::ramp::ramp;
use std::time::{Duration, Instant};

fn s3() -> FakeHandle {
    FakeS3::start(FakeOptions { anonymous: true, ..FakeOptions::s3() }).unwrap()
}

/// A fake with an object of 1,000 bytes.
fn s3_with_object() -> (FakeHandle, Vec<u8>) {
    let fake = s3();
    let bytes = ramp(1, 0, 1000).to_vec();
    put(fake.address(), "/bucket/key", &bytes);
    (fake, bytes)
}

fn get(fake: &FakeHandle, headers: &str) -> Option<Answer> {
    ask(fake.address(), "GET", "/bucket/key", headers)
}

#[test]
fn requests_sent_together_are_answered_in_order() {
    let fake = s3();
    let mut raw = Raw::connect(fake.address());
    raw.send(
        b"PUT /bucket/a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc\
          PUT /bucket/b HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nde\
          GET /bucket/a HTTP/1.1\r\nHost: h\r\n\r\nGET /bucket/b HTTP/1.1\r\nHost: h\r\n\r\n",
    );
    let bodies: Vec<String> =
        (0..4).map(|_| raw.answer_to("GET").expect("an answer").text()).collect();
    assert_eq!(bodies, ["", "", "abc", "de"]);
    assert_eq!(fake.stats().connections, 1);
}

#[test]
fn continue_is_told_before_the_body_and_only_then() {
    let fake = s3();
    let mut raw = Raw::connect(fake.address());
    raw.send(
        b"PUT /bucket/a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n",
    );
    assert_eq!(raw.answer_to("PUT").unwrap().status, 100);
    assert_eq!(raw.send(b"abc").answer_to("PUT").unwrap().status, 200);

    fake.fault("status=503,method=PUT");
    raw.send(
        b"PUT /bucket/a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n",
    );
    let refused = raw.answer_to("PUT").unwrap();
    assert_eq!((refused.status, refused.header("Connection")), (503, Some("close")));
}

#[test]
fn bodies_without_a_length_arrive_whole() {
    let fake = FakeAzure::start(FakeOptions { anonymous: true, ..FakeOptions::azure() }).unwrap();
    let mut raw = Raw::connect(fake.address());
    let head = "PUT /devstoreaccount1/box/b?comp=block&blockid=AAAA HTTP/1.1\r\nHost: h\r\n\
                Transfer-Encoding: chunked\r\n\r\n";
    raw.send(head.as_bytes()).send(b"3\r\nabc\r\n5;x=y\r\ndefgh\r\n0\r\nTrailer: z\r\n\r\n");
    assert_eq!(raw.answer_to("PUT").unwrap().status, 201);
    let list = b"<BlockList><Latest>AAAA</Latest></BlockList>";
    let target = "/devstoreaccount1/box/b?comp=blocklist";
    assert_eq!(raw.ask("PUT", target, "", list).unwrap().status, 201);
    let got = raw.ask("GET", "/devstoreaccount1/box/b", "", b"").unwrap();
    assert_eq!(got.text(), "abcdefgh");
}

#[test]
fn a_body_that_ends_early_leaves_nothing() {
    let fake = s3();
    let mut raw = Raw::connect(fake.address());
    raw.send(b"PUT /bucket/cut HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc").end();
    assert!(raw.answer_to("PUT").is_none());
    assert_eq!(ask(fake.address(), "GET", "/bucket/cut", "").unwrap().status, 404);
}

#[test]
fn heads_that_are_no_http_are_refused() {
    let fake = s3();
    for head in ["nonsense\r\n\r\n", "GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n"] {
        assert_eq!(
            Raw::connect(fake.address()).send(head.as_bytes()).answer_to("").unwrap().status,
            400
        );
    }
    assert_eq!(ask(fake.address(), "GET", "/bucket/%zz", "").unwrap().status, 400);
    assert_eq!(ask(fake.address(), "GET", "/missing-bucket/key", "").unwrap().status, 404);
    assert_eq!(ask(fake.address(), "GET", "/Bad_Name/key", "").unwrap().status, 400);
}

#[test]
fn ranges_and_conditions() {
    let (fake, bytes) = s3_with_object();
    for (range, start, end) in [
        ("0-0", 0, 1),
        ("10-19", 10, 20),
        ("990-", 990, 1000),
        ("-7", 993, 1000),
        ("5-5000", 5, 1000),
    ] {
        let answer = get(&fake, &format!("Range: bytes={range}\r\n")).unwrap();
        assert_eq!((answer.status, &answer.body[..]), (206, &bytes[start..end]), "{range}");
        let told = format!("bytes {start}-{}/1000", end - 1);
        assert_eq!(answer.header("Content-Range"), Some(told.as_str()));
    }
    let past = get(&fake, "Range: bytes=1000-\r\n").unwrap();
    assert_eq!((past.status, past.header("Content-Range")), (416, Some("bytes */1000")));
    assert_eq!(get(&fake, "If-Match: \"other\"\r\n").unwrap().status, 412);
    let etag = get(&fake, "").unwrap().header("ETag").unwrap().to_string();
    assert_eq!(get(&fake, &format!("If-None-Match: {etag}\r\n")).unwrap().status, 304);
    let head = ask(fake.address(), "HEAD", "/bucket/key", "").unwrap();
    assert_eq!((head.header("Content-Length"), head.body.len()), (Some("1000"), 0));
}

#[test]
fn azure_refuses_a_head_without_telling_a_type() {
    let fake = FakeAzure::start(FakeOptions { anonymous: true, ..FakeOptions::azure() }).unwrap();
    let path = "/devstoreaccount1/container/lost";
    let head = ask(fake.address(), "HEAD", path, "").unwrap();
    assert_eq!((head.status, head.header("x-ms-error-code")), (404, Some("BlobNotFound")));
    // The C++ SDK parses a body wherever a type is told, and none comes.
    assert_eq!((head.header("Content-Type"), head.body.len()), (None, 0));
    let get = ask(fake.address(), "GET", path, "").unwrap();
    assert_eq!(get.header("Content-Type"), Some("application/xml"));
}

#[test]
fn faults_that_take_the_place_of_the_answer() {
    let (fake, bytes) = s3_with_object();
    let strike = |fault: &str| {
        fake.faults().clear();
        fake.fault(&format!("{fault},op=GetObject,times=1"));
        get(&fake, "")
    };
    let busy = strike("status=503,retry-after=7,code=Busy").unwrap();
    assert_eq!((busy.status, busy.header("Retry-After")), (503, Some("7")));
    assert!(busy.text().contains("<Code>Busy</Code>"));
    assert!(strike("reset").is_none());
    assert!(strike("stall=1").is_none());
    assert!(strike("html").unwrap().text().contains("<html>"));
    let page = strike("html=404").unwrap();
    assert_eq!((page.status, page.text().contains("<html>")), (404, true));
    assert!(strike("error-200").unwrap().text().contains("<Error>"));
    let replaced = strike("replace").unwrap();
    assert!(replaced.body.len() == 1000 && replaced.body != bytes);
    assert_eq!(get(&fake, "").unwrap().body, replaced.body, "the fault struck once, for good");
    assert_eq!(fake.faults().fired(), [1]);
}

#[test]
fn faults_that_bend_the_answer() {
    let (fake, bytes) = s3_with_object();
    let strike = |fault: &str, headers: &str| {
        fake.faults().clear();
        fake.fault(fault);
        get(&fake, headers).unwrap()
    };
    let range = "Range: bytes=100-199\r\n";
    let cut = strike("cut=10", range);
    assert_eq!((cut.status, cut.whole, &cut.body[..]), (206, false, &bytes[100..110]));
    let truncated = strike("truncate=10", range);
    assert_eq!((truncated.whole, &truncated.body[..]), (true, &bytes[100..110]));
    assert_eq!(truncated.header("Content-Range"), Some("bytes 100-199/1000"));
    fake.faults().clear();
    fake.fault("lie-length=+5");
    let mut waiting = Raw::connect(fake.address()).impatient();
    let longer = waiting.ask("GET", "/bucket/key", range, b"").unwrap();
    assert_eq!((longer.header("Content-Length"), longer.whole), (Some("105"), false));
    let shorter = strike("lie-length=-5", range);
    assert_eq!((shorter.header("Content-Length"), shorter.whole), (Some("95"), true));
    let shifted = strike("wrong-range=+50", range);
    assert_eq!(shifted.header("Content-Range"), Some("bytes 150-249/1000"));
    assert_eq!(shifted.body, &bytes[100..200]);
    let ignored = strike("ignore-range", range);
    assert_eq!((ignored.status, ignored.body.len()), (200, 1000));
    let corrupt = strike("corrupt=3", range);
    assert_eq!(corrupt.body[3], !bytes[103]);
    assert_eq!((&corrupt.body[..3], &corrupt.body[4..]), (&bytes[100..103], &bytes[104..200]));
    let begun = Instant::now();
    assert_eq!(strike("slow=1000", range).body, &bytes[100..200]);
    assert!(begun.elapsed() >= Duration::from_millis(95), "100 bytes at 1,000 a second");
}

#[test]
fn faults_that_end_the_answer() {
    let (fake, bytes) = s3_with_object();
    let strike = |fault: &str| {
        fake.faults().clear();
        fake.fault(&format!("{fault},op=GetObject,times=1"));
        let mut raw = Raw::connect(fake.address()).impatient();
        raw.ask("GET", "/bucket/key", "", b"")
    };
    for nothing in ["close", "cut-head=30"] {
        assert!(strike(nothing).is_none(), "{nothing}");
    }
    let hung = strike("hang=10").unwrap();
    assert_eq!((hung.whole, &hung.body[..]), (false, &bytes[..10]));
    let told_twice = strike("two-lengths=7").unwrap();
    assert!(told_twice.head.contains("Content-Length: 1000\r\nContent-Length: 1007"));
    let untold = strike("without=ETag").unwrap();
    assert_eq!((untold.header("ETag"), &untold.body), (None, &bytes));
    let unframed = strike("without=content-length").unwrap();
    assert_eq!(unframed.header("Content-Length"), None);
    assert_eq!(unframed.header("Connection"), Some("close"));
    for chunked in ["cut-chunk=10", "bad-chunk=10"] {
        let answer = strike(chunked).unwrap();
        assert_eq!(answer.header("Transfer-Encoding"), Some("chunked"), "{chunked}");
    }
    // A connection is struck before its first request.
    fake.faults().clear();
    fake.fault("close,op=Connect,times=1");
    assert!(get(&fake, "").is_none());
    assert_eq!(get(&fake, "").unwrap().body, bytes);
}

/// What strikes a request to which it does not apply is no fault that a client met.
#[test]
fn only_faults_that_took_effect_are_counted_as_injected() {
    let (fake, _) = s3_with_object();
    for fault in ["wrong-range=+5", "cut=5000", "empty-page", "ignore-range", "hang=1000"] {
        fake.fault(fault);
    }
    get(&fake, "");
    assert!(fake.faults().injected().is_empty(), "{:?}", fake.faults().injected());
    assert_eq!(fake.faults().fired(), [1; 5]);
    fake.faults().clear();
    fake.fault("cut=10");
    get(&fake, "").unwrap();
    assert_eq!(fake.faults().injected(), [("cut", 1)].into());
}

#[test]
fn faults_of_uploads() {
    let fake = s3();
    let write = |key: &str| Raw::connect(fake.address()).ask("PUT", key, "", &[7; 5000]);
    fake.fault("lost-answer,key=lost");
    assert!(write("/bucket/lost").is_none());
    assert_eq!(ask(fake.address(), "HEAD", "/bucket/lost", "").map(|it| it.status), None);
    fake.faults().clear();
    assert_eq!(ask(fake.address(), "HEAD", "/bucket/lost", "").unwrap().status, 200);
    fake.fault("reset-upload=100,key=cut");
    let mut raw = Raw::connect(fake.address());
    raw.send(b"PUT /bucket/cut HTTP/1.1\r\nHost: h\r\nContent-Length: 5000\r\n\r\n")
        .send(&[7; 100]);
    assert!(raw.answer_to("PUT").is_none());
    fake.faults().clear();
    assert_eq!(ask(fake.address(), "HEAD", "/bucket/cut", "").unwrap().status, 404);
}

#[test]
fn an_empty_page_is_not_the_last() {
    let (fake, _) = s3_with_object();
    fake.fault("empty-page,op=ListObjectsV2,nth=1");
    let page = ask(fake.address(), "GET", "/bucket?list-type=2", "").unwrap().text();
    assert!(page.contains("<IsTruncated>true") && !page.contains("<Contents>"), "{page}");
    let token = page.split("NextContinuationToken>").nth(1).unwrap().trim_end_matches("</");
    let target = format!("/bucket?list-type=2&continuation-token={}", token.replace('=', "%3D"));
    let page = ask(fake.address(), "GET", &target, "").unwrap().text();
    assert!(page.contains("<IsTruncated>false") && page.contains("<Key>key</Key>"), "{page}");
}

#[test]
fn the_link_delays_each_answer_and_paces_bytes() {
    let link = LinkOptions {
        latency: Duration::from_millis(40),
        connect_latency: Duration::from_millis(30),
        bits_per_s_down: Some(8e6),
        bits_per_s_up: Some(4e6),
    };
    let fake = FakeS3::start(FakeOptions { anonymous: true, link, ..FakeOptions::s3() }).unwrap();
    let mut raw = Raw::connect(fake.address());
    let begun = Instant::now();
    raw.ask("PUT", "/bucket/key", "", &[1; 50_000]).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(95 + 70), "{:?}", begun.elapsed());
    let begun = Instant::now();
    raw.ask("GET", "/bucket/key", "", b"").unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(45 + 40), "{:?}", begun.elapsed());
}

#[test]
fn the_administration_counts_and_arms() {
    let (fake, _) = s3_with_object();
    let mut raw = Raw::connect(fake.address());
    assert_eq!(raw.ask("POST", "/_penstock/reset", "", b"").unwrap().status, 204);
    get(&fake, "Range: bytes=0-9\r\n").unwrap();
    let stats = raw.ask("GET", "/_penstock/stats", "", b"").unwrap().text();
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    assert_eq!(stats["requests"]["total"], 1, "requests of the administration do not count");
    assert_eq!(stats["requests"]["operation"]["GetObject"], 1);
    assert_eq!(stats["requests"]["method"]["GET"], 1);
    assert!(stats["rss_bytes"].as_u64() > Some(0));
    let requests = raw.ask("GET", "/_penstock/requests?n=1", "", b"").unwrap().text();
    let requests: serde_json::Value = serde_json::from_str(&requests).unwrap();
    assert_eq!(requests[0]["range"], "bytes=0-9");
    assert_eq!((&requests[0]["status"], &requests[0]["bytes_out"]), (&206.into(), &10.into()));

    let armed = raw.ask("POST", "/_penstock/faults", "", b"status=500,times=1\n\nreset,nth=9\n");
    assert_eq!(armed.unwrap().status, 204);
    assert_eq!(get(&fake, "").unwrap().status, 500);
    let wrong = raw.ask("POST", "/_penstock/faults", "", b"statsu=500").unwrap();
    assert!(wrong.status == 400 && wrong.text().contains("status"), "{}", wrong.text());
    assert_eq!(raw.ask("PUT", "/_penstock/faults", "", b"status=503").unwrap().status, 204);
    assert_eq!(get(&fake, "").unwrap().status, 503);
    assert_eq!(fake.faults().fired(), [1], "in place of the two before");
    assert_eq!(raw.ask("DELETE", "/_penstock/faults", "", b"").unwrap().status, 204);
    assert!(fake.faults().fired().is_empty());
}

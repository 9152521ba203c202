//! What a client sees of objects, lists, uploads and the gateway's own endpoints.

use crate::common::{Answer, Dir, Lane, Request, Server, options, sign};
use penstock_gateway::{Grant, Options};

on_every_lane!(
    an_object_comes_back_with_what_was_said_of_it,
    an_answer_to_an_expectation_of_nothing_is_the_connections_last,
    ranges_of_every_form,
    a_range_of_another_version_is_the_whole_object,
    listings_fold_page_and_encode,
    aws_chunked_with_a_trailing_checksum,
    aws_chunked_in_a_chunked_transfer,
    presigned_urls_open_without_headers,;
    // With an HMAC key no write has a condition; it tells no checksums, and every object has a
    // version.
    but_google:
    conditions_on_reads_writes_and_deletes,
    of_many_conditional_creators_one_wins,
    attributes_and_checksums_are_told,
    every_object_has_one_version,
);

fn keys_of(listing: &Answer) -> Vec<String> {
    let text = listing.text();
    let cut = |part: &str| part.split("</Key>").next().unwrap_or_default().to_string();
    text.split("<Key>").skip(1).map(cut).collect()
}

async fn an_object_comes_back_with_what_was_said_of_it(lane: Lane) {
    let server = Server::on(lane).await;
    let headers = [
        ("content-type", "text/csv"),
        ("cache-control", "no-store"),
        ("content-encoding", "gzip"),
        ("x-amz-meta-owner", "me"),
    ];
    let put = Request {
        method: "PUT",
        path: "/lake/dir/a%20b.csv",
        headers: &headers,
        body: b"0123456789",
        ..Default::default()
    };
    let put = server.send(put).await;
    assert_eq!(put.status, 200, "{}", put.text());
    let got = server.get("/lake/dir/a%20b.csv").await;
    assert_eq!((got.status, got.body.as_slice()), (200, &b"0123456789"[..]));
    for (name, value) in headers {
        assert_eq!(got.header(name), value, "{name}");
    }
    assert_eq!(got.header("etag"), put.header("etag"));
    if lane == Lane::Local {
        let file = server.dir.served().join("lake/dir/a b.csv");
        assert_eq!(std::fs::read(file).unwrap(), b"0123456789");
    }
    let head = Request { method: "HEAD", path: "/lake/dir/a%20b.csv", ..Default::default() };
    let head = server.send(head).await;
    assert_eq!((head.status, head.header("content-length")), (200, "10"));
    assert_eq!(head.header("etag"), put.header("etag"));
}

async fn an_answer_to_an_expectation_of_nothing_is_the_connections_last(lane: Lane) {
    let server = Server::on(lane).await;
    let empty = async |headers: &[(&str, &str)]| {
        let put = Request { method: "PUT", path: "/lake/empty", headers, ..Default::default() };
        let answer = server.send(put).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.header("connection").to_string()
    };
    assert_eq!(empty(&[("expect", "100-continue")]).await, "close");
    assert_eq!(empty(&[]).await, "");
}

async fn a_range_of_another_version_is_the_whole_object(lane: Lane) {
    let server = Server::on(lane).await;
    let first = server.put("/lake/k", b"first version").await;
    let time = server.get("/lake/k").await.header("last-modified").to_string();
    let ranged = async |range: &str, validator: &str| {
        let headers = [("range", range), ("if-range", validator)];
        server.send(Request { path: "/lake/k", headers: &headers, ..Default::default() }).await
    };
    let etag = first.header("etag");
    for validator in [etag, time.as_str()] {
        let got = ranged("bytes=6-", validator).await;
        assert_eq!((got.status, got.body), (206, b"version".to_vec()), "{validator}");
    }
    assert_eq!(ranged("bytes=50-", etag).await.code(), "InvalidRange");
    let weak = format!("W/{etag}");
    server.put("/lake/k", b"other").await;
    for validator in [etag, "Thu, 01 Jan 2015 00:00:00 GMT", "nonsense", &weak] {
        for range in ["bytes=1-2", "bytes=-2", "bytes=50-"] {
            let got = ranged(range, validator).await;
            assert_eq!((got.status, got.body), (200, b"other".to_vec()), "{range} {validator}");
            assert!(!got.headers.contains_key("content-range"), "{validator}");
            let headers = [("range", range), ("if-range", validator)];
            let method = "HEAD";
            let head = Request { method, path: "/lake/k", headers: &headers, ..Default::default() };
            let told = server.send(head).await;
            assert_eq!((told.status, told.header("content-length")), (200, "5"), "{validator}");
        }
    }
}

async fn ranges_of_every_form(lane: Lane) {
    let server = Server::on(lane).await;
    server.put("/lake/k", b"0123456789").await;
    server.put("/lake/empty", b"").await;
    let ranged = async |path: &str, range: &str| {
        let headers = [("range", range)];
        server.send(Request { path, headers: &headers, ..Default::default() }).await
    };
    for (range, body, content_range) in [
        ("bytes=0-3", &b"0123"[..], "bytes 0-3/10"),
        ("bytes=7-", b"789", "bytes 7-9/10"),
        ("bytes=-4", b"6789", "bytes 6-9/10"),
        ("bytes=-40", b"0123456789", "bytes 0-9/10"),
        ("bytes=8-100", b"89", "bytes 8-9/10"),
        // Past what s3s can hold.
        ("bytes=9-18446744073709551614", b"9", "bytes 9-9/10"),
        ("bytes=-18446744073709551616", b"0123456789", "bytes 0-9/10"),
    ] {
        let got = ranged("/lake/k", range).await;
        assert_eq!((got.status, got.body.as_slice()), (206, body), "{range}");
        assert_eq!(got.header("content-range"), content_range, "{range}");
    }
    for (path, range) in [
        ("/lake/k", "bytes=10-"),
        ("/lake/k", "bytes=-0"),
        ("/lake/k", "bytes=18446744073709551616-"),
        ("/lake/empty", "bytes=0-0"),
    ] {
        let got = ranged(path, range).await;
        assert_eq!((got.status, got.code().as_str()), (416, "InvalidRange"), "{path} {range}");
    }
    assert_eq!(server.get("/lake/empty").await.status, 200);
    // What is no range is not there.
    for range in ["bytes=3-2", "bytes=0-1,3-4", "bytes=a-b", "bytes=", "lines=0-1"] {
        let got = ranged("/lake/k", range).await;
        assert_eq!((got.status, got.body.as_slice()), (200, &b"0123456789"[..]), "{range}");
    }
}

async fn conditions_on_reads_writes_and_deletes(lane: Lane) {
    let server = Server::on(lane).await;
    let tag = server.put("/lake/k", b"one").await.header("etag").to_string();
    let ask = async |method: &str, name: &str, value: &str| {
        let headers = [(name, value)];
        let request = Request { method, path: "/lake/k", headers: &headers, ..Default::default() };
        server.send(request).await.status
    };
    let bare = tag.trim_matches('"').to_string();
    assert_eq!(ask("GET", "if-match", &tag).await, 200);
    assert_eq!(ask("GET", "if-match", &bare).await, 200);
    assert_eq!(ask("GET", "if-match", "\"other\"").await, 412);
    // Without quotes and in characters that no tag of ours has.
    assert_eq!(ask("GET", "if-match", "no_tag").await, 412);
    assert_eq!(ask("GET", "if-none-match", "no_tag").await, 200);
    assert_eq!(ask("PUT", "if-match", "no_tag").await, 412);
    assert_eq!(ask("GET", "if-modified-since", "yesterday").await, 200);
    assert_eq!(ask("GET", "if-none-match", &tag).await, 304);
    assert_eq!(ask("HEAD", "if-none-match", &tag).await, 304);
    assert_eq!(ask("GET", "if-none-match", &bare).await, 304);
    assert_eq!(ask("GET", "if-none-match", &format!("W/{tag}")).await, 304);
    assert_eq!(ask("GET", "if-none-match", "*").await, 304);
    assert_eq!(ask("GET", "if-none-match", "\"other\"").await, 200);
    let (has, lacks) = (format!("\"other\", {tag}"), "\"other\",W/\"another\"");
    for method in ["GET", "HEAD"] {
        assert_eq!(ask(method, "if-none-match", &has).await, 304);
        assert_eq!(ask(method, "if-none-match", lacks).await, 200);
        assert_eq!(ask(method, "if-match", &has).await, 200);
        assert_eq!(ask(method, "if-match", lacks).await, 412);
    }
    for method in ["PUT", "DELETE"] {
        assert_eq!(ask(method, "if-match", &has).await, 400, "it compares with one tag");
    }
    let (past, future) = ("Thu, 01 Jan 1970 00:00:01 GMT", "Fri, 31 Dec 2100 00:00:00 GMT");
    assert_eq!(ask("GET", "if-modified-since", past).await, 200);
    assert_eq!(ask("GET", "if-modified-since", future).await, 304);
    let known = [("if-none-match", tag.as_str()), ("range", "bytes=0-1")];
    let known = Request { path: "/lake/k", headers: &known, ..Default::default() };
    let known = server.send(known).await;
    assert_eq!((known.status, known.header("etag")), (304, tag.as_str()), "304 tells the tag");
    // An ordinary tag, not every version.
    assert_eq!(ask("GET", "if-none-match", "\"*\"").await, 200);
    // A time up to which nothing may have changed is looked at before what the reader has (RFC 9110
    // section 13.2.2).
    for known in [("if-none-match", tag.as_str()), ("if-modified-since", future)] {
        for method in ["GET", "HEAD"] {
            let headers = [("if-unmodified-since", past), known];
            let request =
                Request { method, path: "/lake/k", headers: &headers, ..Default::default() };
            assert_eq!(server.send(request).await.status, 412, "{method} {known:?}");
            let headers = [("if-unmodified-since", future), known];
            let request =
                Request { method, path: "/lake/k", headers: &headers, ..Default::default() };
            assert_eq!(server.send(request).await.status, 304, "{method} {known:?}");
        }
    }
    assert_eq!(ask("PUT", "if-none-match", "*").await, 412);
    assert_eq!(ask("PUT", "if-match", "\"other\"").await, 412);
    assert_eq!(ask("DELETE", "if-match", "\"other\"").await, 412);
    assert_eq!(server.get("/lake/k").await.body, b"one");
    assert_eq!(ask("PUT", "if-match", &tag).await, 200);
    assert_eq!(ask("DELETE", "if-match", &tag).await, 412, "the old tag");
    assert_eq!(ask("DELETE", "if-match", "*").await, 204);
    assert_eq!(server.get("/lake/k").await.status, 404);
    assert_eq!(ask("PUT", "if-none-match", "*").await, 200);
}

async fn of_many_conditional_creators_one_wins(lane: Lane) {
    let server = Server::on(lane).await;
    let headers = [("if-none-match", "*")];
    let attempts = (0..16).map(|number| {
        let server = &server;
        async move {
            let body = format!("writer {number}");
            let request = Request {
                method: "PUT",
                path: "/lake/contested",
                headers: &headers,
                body: body.as_bytes(),
                ..Default::default()
            };
            (server.send(request).await.status, body)
        }
    });
    let answers = futures_util::future::join_all(attempts).await;
    let winners: Vec<_> = answers.iter().filter(|answer| answer.0 == 200).collect();
    assert_eq!(winners.len(), 1, "{answers:?}");
    assert!(answers.iter().all(|answer| [200, 412].contains(&answer.0)), "{answers:?}");
    assert_eq!(server.get("/lake/contested").await.text(), winners[0].1);
}

async fn listings_fold_page_and_encode(lane: Lane) {
    let server = Server::on(lane).await;
    for key in ["a", "b/1", "b/2", "c%2Bd", "e/"] {
        assert_eq!(server.put(&format!("/lake/{key}"), b"x").await.status, 200, "{key}");
    }
    let all = server.get("/lake?list-type=2").await;
    assert_eq!(keys_of(&all), ["a", "b/1", "b/2", "c+d", "e/"]);
    let encoded = server.get("/lake?list-type=2&encoding-type=url").await;
    assert_eq!(keys_of(&encoded)[3], "c%2Bd");
    let folded = server.get("/lake?delimiter=%2F&list-type=2").await;
    assert_eq!(keys_of(&folded), ["a", "c+d"]);
    assert!(folded.text().contains("<KeyCount>4</KeyCount>"), "{}", folded.text());
    assert_eq!(server.get("/lake?list-type=2&start-after=").await.status, 200);
    let after = server.get("/lake?list-type=2&start-after=b%2F1").await;
    assert_eq!(keys_of(&after), ["b/2", "c+d", "e/"]);
    let none = server.get("/lake?list-type=2&max-keys=0").await.text();
    assert!(none.contains("<IsTruncated>false</IsTruncated>"), "{none}");
    // Version 1, name by name, over folded prefixes.
    let (mut seen, mut marker) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("/lake?delimiter=%2F&marker={marker}&max-keys=1")).await;
        let text = page.text();
        let field = |name: &str| {
            let after = text.split_once(&format!("<{name}>")).map(|(_, rest)| rest.to_string());
            after.and_then(|rest| rest.split_once("</").map(|(value, _)| value.to_string()))
        };
        let folded = text.split_once("<CommonPrefixes><Prefix>").map(|(_, rest)| rest.to_string());
        let prefix =
            folded.and_then(|rest| rest.split_once("</").map(|(name, _)| name.to_string()));
        seen.extend(keys_of(&page).into_iter().chain(prefix));
        match field("NextMarker") {
            Some(next) => marker = next.replace('/', "%2F").replace('+', "%2B"),
            None => break,
        }
    }
    assert_eq!(seen, ["a", "b/", "c+d", "e/"]);
}

async fn aws_chunked_with_a_trailing_checksum(lane: Lane) {
    let server = Server::on(lane).await;
    // CRC-32 of "hello world", from Python's zlib.
    let body = sign::unsigned_chunks(&[b"hello ", b"world"], ("x-amz-checksum-crc32", "DUoRhQ=="));
    let length = body.len().to_string();
    let headers = [
        ("content-encoding", "aws-chunked"),
        ("content-length", length.as_str()),
        ("x-amz-decoded-content-length", "11"),
        ("x-amz-trailer", "x-amz-checksum-crc32"),
    ];
    let request = Request {
        method: "PUT",
        path: "/lake/chunked",
        headers: &headers,
        body: &body,
        content_sha256: Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
        ..Default::default()
    };
    let put = server.send(request).await;
    assert_eq!(put.status, 200, "{}", put.text());
    assert_eq!(put.header("x-amz-checksum-crc32"), "DUoRhQ==");
    let got = server.get("/lake/chunked").await;
    assert_eq!(got.body, b"hello world");
    assert_eq!(got.header("content-encoding"), "", "belongs to the transfer");
}

async fn aws_chunked_in_a_chunked_transfer(lane: Lane) {
    let server = Server::on(lane).await;
    // As AWS's SDK for C++ sends a stream: no Content-Length, the transfer's own chunks outside.
    let inner = sign::unsigned_chunks(&[b"hello ", b"world"], ("x-amz-checksum-crc32", "DUoRhQ=="));
    let body = [format!("{:x}\r\n", inner.len()).as_bytes(), &inner, b"\r\n0\r\n\r\n"].concat();
    let headers = [
        ("content-encoding", "aws-chunked"),
        ("transfer-encoding", "chunked"),
        ("x-amz-decoded-content-length", "11"),
        ("x-amz-trailer", "x-amz-checksum-crc32"),
    ];
    let request = Request {
        method: "PUT",
        path: "/lake/streamed",
        headers: &headers,
        body: &body,
        content_sha256: Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
        ..Default::default()
    };
    let put = server.send(request).await;
    assert_eq!(put.status, 200, "{}", put.text());
    assert_eq!(server.get("/lake/streamed").await.body, b"hello world");
}

async fn every_object_has_one_version(lane: Lane) {
    let server = Server::on(lane).await;
    for key in ["a", "b/1", "b/2", "c"] {
        server.put(&format!("/lake/{key}"), b"x").await;
    }
    let page = server.get("/lake?versions&max-keys=2&delimiter=%2F").await;
    assert_eq!(page.status, 200, "{}", page.text());
    assert_eq!(keys_of(&page), ["a"]);
    for text in [
        "<VersionId>null</VersionId>",
        "<IsLatest>true</IsLatest>",
        "<CommonPrefixes><Prefix>b/</Prefix></CommonPrefixes>",
        "<NextKeyMarker>b/</NextKeyMarker>",
    ] {
        assert!(page.text().contains(text), "{text} in {}", page.text());
    }
    let next = "/lake?versions&delimiter=%2F&key-marker=b%2F&version-id-marker=null";
    assert_eq!(keys_of(&server.get(next).await), ["c"]);
    let versioning = server.get("/lake?versioning").await;
    assert_eq!(versioning.status, 200);
    assert!(!versioning.text().contains("<Status>"), "{}", versioning.text());
}

async fn presigned_urls_open_without_headers(lane: Lane) {
    let server = Server::on(lane).await;
    server.put("/lake/k", b"shared").await;
    let host = server.address.to_string();
    let path = sign::presigned(
        "GET",
        "/lake/k",
        &host,
        crate::common::SECRET_KEY,
        crate::common::ACCESS_KEY,
        60,
        0,
    );
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n");
    let got = server.send_raw(request.as_bytes()).await;
    assert_eq!((got.status, got.body.as_slice()), (200, &b"shared"[..]), "{}", got.text());
}

/// What GetObjectAttributes tells, and checksums that a GET tells again.
async fn attributes_and_checksums_are_told(lane: Lane) {
    let server = Server::on(lane).await;
    // CRC-32 of "hello world", from Python's zlib.
    let headers = [("x-amz-checksum-crc32", "DUoRhQ==")];
    let put = Request {
        method: "PUT",
        path: "/lake/k",
        headers: &headers,
        body: b"hello world",
        ..Default::default()
    };
    assert_eq!(server.send(put).await.header("x-amz-checksum-crc32"), "DUoRhQ==");
    let headers = [("x-amz-object-attributes", "ETag,ObjectSize,Checksum")];
    let told = Request { path: "/lake/k?attributes", headers: &headers, ..Default::default() };
    let told = server.send(told).await.text();
    assert!(told.contains("<ObjectSize>11</ObjectSize>"), "{told}");
    if lane == Lane::S3 {
        return;
    }
    assert!(told.contains("<ChecksumCRC32>DUoRhQ==</ChecksumCRC32>"), "{told}");
    let asked = [("x-amz-checksum-mode", "ENABLED")];
    let got = server.send(Request { path: "/lake/k", headers: &asked, ..Default::default() }).await;
    assert_eq!(got.header("x-amz-checksum-crc32"), "DUoRhQ==");
    let ranged = [("x-amz-checksum-mode", "ENABLED"), ("range", "bytes=0-3")];
    let got =
        server.send(Request { path: "/lake/k", headers: &ranged, ..Default::default() }).await;
    assert_eq!((got.status, got.header("x-amz-checksum-crc32")), (206, ""));
}

#[tokio::test]
async fn a_bucket_that_is_moved_or_made_anew_behind_our_back_is_noticed() {
    let server = Server::start().await;
    let (lake, moved) = (server.dir.served().join("lake"), server.dir.served().join("moved"));
    server.put("/lake/k", b"first").await;
    std::fs::rename(&lake, &moved).unwrap();
    assert_eq!(server.get("/lake/k").await.code(), "NoSuchBucket");
    assert_eq!(server.get("/moved/k").await.body, b"first");
    std::fs::create_dir(&lake).unwrap();
    assert_eq!(server.get("/lake/k").await.code(), "NoSuchKey");
    server.put("/lake/k", b"second").await;
    assert_eq!(server.get("/moved/k").await.body, b"first");
    std::fs::write(lake.join("put-by-hand"), "seen").unwrap();
    assert_eq!(server.get("/lake/put-by-hand").await.body, b"seen");
}

#[tokio::test]
async fn own_endpoints_tell_health_and_counts() {
    let server = Server::start().await;
    server.put("/lake/k", b"0123456789").await;
    let host = server.address.to_string();
    let plain = async |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n");
        server.send_raw(request.as_bytes()).await
    };
    assert_eq!(plain("/healthz").await.text(), "ok\n");
    // Where operators have a port, the other one knows the name no more than any other.
    let (refused, other) = (plain("/_penstock/stats").await, plain("/_penstock/other").await);
    assert_eq!((refused.status, refused.code()), (other.status, other.code()));
    assert!(!refused.text().contains("PutObject"), "{}", refused.text());
    let page = server.admin_page("/_penstock/stats").await;
    let stats: serde_json::Value = serde_json::from_slice(&page.body).unwrap();
    assert_eq!(stats["requests"]["operation"]["PutObject"], 1);
    assert_eq!(stats["requests"]["method"], serde_json::json!({"GET": 2, "PUT": 1}));
    assert_eq!(stats["connections"], 4);
    assert!(stats["bytes_in"].as_u64().unwrap() > 10, "{stats}");
    assert!(stats["peak_rss_bytes"].as_u64().unwrap() > 1 << 20, "{stats}");
}

#[tokio::test]
async fn anonymous_lets_unsigned_requests_in_and_still_verifies_signed_ones() {
    let dir = Dir::new();
    let open = Options { public: vec![Grant::everything()], ..options(&dir) };
    let server = Server::start_with(dir, open).await;
    let put = b"PUT /lake/k HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\nhi";
    assert_eq!(server.send_raw(put).await.status, 200);
    let got = server.send_raw(b"GET /lake/k HTTP/1.1\r\nhost: h\r\n\r\n").await;
    assert_eq!(got.body, b"hi");
    assert_eq!(server.get("/lake/k").await.body, b"hi");
    let wrong = sign::signed(
        &Request { path: "/lake/k", ..Default::default() },
        "h",
        "wrong",
        crate::common::ACCESS_KEY,
    );
    assert_eq!(server.send_raw(&wrong).await.code(), "SignatureDoesNotMatch");
}

//! What is set up on buckets: kept, told, removed, and 404 with S3's names where it never was.

use crate::common::{Lane, Request, Server};
use penstock_gateway::{CorsRule, PageRule, Pattern};

on_every_lane!(
    what_was_never_set_up_has_a_name,
    what_is_always_off_is_told_so,
    a_document_in_chunks_is_refused_by_name,;
    // Nothing is kept there of a bucket.
    but_google:
    what_is_set_up_is_told,
    a_bucket_is_made_with_its_tags_or_not_at_all,
    pages_of_other_origins,
);

async fn set(server: &Server, path: &str, body: &str) {
    let body = body.as_bytes();
    let answer = server.send(Request { method: "PUT", path, body, ..Default::default() }).await;
    // As S3 answers each of them.
    let status = if path.ends_with("?tagging") { 204 } else { 200 };
    assert_eq!(answer.status, status, "{path}: {}", answer.text());
}

async fn what_was_never_set_up_has_a_name(lane: Lane) {
    let server = Server::on(lane).await;
    for (query, code) in [
        ("tagging", "NoSuchTagSet"),
        ("cors", "NoSuchCORSConfiguration"),
        ("policy", "NoSuchBucketPolicy"),
        ("publicAccessBlock", "NoSuchPublicAccessBlockConfiguration"),
        ("ownershipControls", "OwnershipControlsNotFoundError"),
        ("lifecycle", "NoSuchLifecycleConfiguration"),
        ("website", "NoSuchWebsiteConfiguration"),
        ("replication", "ReplicationConfigurationNotFoundError"),
        ("object-lock", "ObjectLockConfigurationNotFoundError"),
    ] {
        let answer = server.get(&format!("/lake?{query}")).await;
        assert_eq!((answer.status, answer.code().as_str()), (404, code), "{query}");
        let missing = server.get(&format!("/missing-lake?{query}")).await;
        // The Azure fake makes containers when they are named.
        if !matches!(lane, Lane::Azure | Lane::S3) {
            assert_eq!(missing.code(), "NoSuchBucket", "{query}");
        }
    }
}

async fn a_bucket_is_made_with_its_tags_or_not_at_all(lane: Lane) {
    let server = Server::on(lane).await;
    let make = async |path: &str, inside: &str| {
        let body = format!("<CreateBucketConfiguration>{inside}</CreateBucketConfiguration>");
        let body = body.as_bytes();
        let made = Request { method: "PUT", path, body, ..Default::default() };
        server.send(made).await
    };
    let place = "<LocationConstraint>eu-west-1</LocationConstraint>";
    let tag = |name: &str| format!("<Tag><Key>{name}</Key><Value>1</Value></Tag>");
    let tags = format!("{place}<Tags>{}{}</Tags>", tag("a"), tag("b"));
    assert_eq!(make("/tagged", &tags).await.status, 200);
    let told = server.get("/tagged?tagging").await.text();
    assert!(told.contains("<Key>a</Key>") && told.contains("<Key>b</Key>"), "{told}");
    assert!(server.get("/tagged?location").await.text().contains(">eu-west-1<"));
    let bucket = "<Bucket><Type>Directory</Type></Bucket>";
    let location = "<Location><Name>use1-az4</Name><Type>AvailabilityZone</Type></Location>";
    for (inside, code, word) in [
        (format!("{location}{bucket}"), "NotImplemented", "Location in"),
        (bucket.to_string(), "NotImplemented", "Bucket in"),
        ("<Else>1</Else>".to_string(), "NotImplemented", "Else in"),
        (format!("<Tags>{}{}</Tags>", tag("a"), tag("a")), "InvalidTag", "same key"),
    ] {
        let refused = make("/odd", &inside).await;
        assert_eq!(refused.code(), code, "{inside}: {}", refused.text());
        assert!(refused.text().contains(word), "{inside}: {}", refused.text());
        let buckets = server.get("/").await.text();
        assert!(!buckets.contains("<Name>odd</Name>"), "{inside}: {buckets}");
    }
}

/// No client sends one so: S3 has chunks for objects and parts.
async fn a_document_in_chunks_is_refused_by_name(lane: Lane) {
    let server = Server::on(lane).await;
    let send = async |method: &str, path: &str, pieces: &[&[u8]]| {
        let crc32 = ("x-amz-checksum-crc32", "AAAAAA==");
        let body = crate::common::sign::unsigned_chunks(pieces, crc32);
        let length = pieces.iter().map(|piece| piece.len()).sum::<usize>().to_string();
        let headers = [
            ("content-encoding", "aws-chunked"),
            ("x-amz-decoded-content-length", length.as_str()),
            ("x-amz-trailer", crc32.0),
        ];
        let content_sha256 = Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER");
        let request = Request {
            method,
            path,
            headers: &headers,
            body: &body,
            content_sha256,
            ..Default::default()
        };
        server.send(request).await
    };
    let creation = b"<CreateBucketConfiguration/>";
    for (method, path, status, document) in [
        ("PUT", "/chunked", 400, &creation[..]),
        ("PUT", "/lake?tagging", 501, b"<Tagging><TagSet/></Tagging>"),
        ("PUT", "/lake/k?tagging", 501, b"<Tagging><TagSet/></Tagging>"),
        ("POST", "/lake?delete", 400, b"<Delete><Object><Key>k</Key></Object></Delete>"),
    ] {
        let refused = send(method, path, &[document]).await;
        let found = (refused.status, refused.code());
        assert_eq!(found, (status, "NotImplemented".to_string()), "{path}: {}", refused.text());
        assert!(refused.text().contains("aws-chunked"), "{path}: {}", refused.text());
    }
    assert!(!server.get("/").await.text().contains("<Name>chunked</Name>"));
    // Where there is no document, there is nothing to take apart.
    let made = send("PUT", "/chunked", &[]).await;
    assert_eq!(made.status, 200, "{}", made.text());
    assert_eq!(server.put("/chunked/k", b"x").await.status, 200);
}

/// Some features S3 tells as off with an answer, not with an error.
async fn what_is_always_off_is_told_so(lane: Lane) {
    let server = Server::on(lane).await;
    for (query, expected) in [
        ("logging", "<BucketLoggingStatus"),
        ("notification", "<NotificationConfiguration"),
        ("accelerate", "<AccelerateConfiguration"),
        ("requestPayment", "<Payer>BucketOwner</Payer>"),
    ] {
        let answer = server.get(&format!("/lake?{query}")).await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.text());
        let text = answer.text();
        assert!(text.contains(expected), "{query}: {text}");
        for set_up in ["Status>", "LoggingEnabled", "TopicConfiguration"] {
            assert!(!text.contains(&format!("<{set_up}")), "{query}: {text}");
        }
        if lane == Lane::Local {
            let missing = server.get(&format!("/missing-lake?{query}")).await;
            assert_eq!(missing.code(), "NoSuchBucket", "{query}");
        }
    }
}

async fn what_is_set_up_is_told(lane: Lane) {
    let server = Server::on(lane).await;
    for (query, body, part) in [
        (
            "tagging",
            "<Tagging><TagSet><Tag><Key>team</Key><Value>b\u{e4}r</Value></Tag></TagSet></Tagging>",
            "<Key>team</Key><Value>b\u{e4}r</Value>",
        ),
        (
            "cors",
            "<CORSConfiguration><CORSRule><AllowedMethod>GET</AllowedMethod>\
             <AllowedOrigin>https://*.org</AllowedOrigin></CORSRule></CORSConfiguration>",
            "<AllowedOrigin>https://*.org</AllowedOrigin>",
        ),
        (
            "publicAccessBlock",
            "<PublicAccessBlockConfiguration><BlockPublicAcls>true</BlockPublicAcls>\
             </PublicAccessBlockConfiguration>",
            "<BlockPublicAcls>true</BlockPublicAcls>",
        ),
        (
            "ownershipControls",
            "<OwnershipControls><Rule><ObjectOwnership>ObjectWriter</ObjectOwnership></Rule>\
             </OwnershipControls>",
            "<ObjectOwnership>ObjectWriter</ObjectOwnership>",
        ),
    ] {
        let path = format!("/lake?{query}");
        set(&server, &path, body).await;
        set(&server, &path, body).await;
        let told = server.get(&path).await;
        assert!(told.text().contains(part), "{query}: {}", told.text());
        // What one thing was set to changes nothing of another.
        let removed = Request { method: "DELETE", path: &path, ..Default::default() };
        if query != "tagging" {
            assert_eq!(server.send(removed).await.status, 204, "{query}");
            assert_eq!(server.get(&path).await.status, 404, "{query}");
        }
    }
    assert!(server.get("/lake?tagging").await.text().contains("team"));
    // A bucket of the same name that is made later has none of it.
    let gone = Request { method: "DELETE", path: "/lake", ..Default::default() };
    assert_eq!(server.send(gone).await.status, 204);
    let body = b"<CreateBucketConfiguration><LocationConstraint>eu-west-1</LocationConstraint>\
        </CreateBucketConfiguration>";
    let made = Request { method: "PUT", path: "/lake", body, ..Default::default() };
    assert_eq!(server.send(made).await.status, 200);
    assert_eq!(server.get("/lake?tagging").await.code(), "NoSuchTagSet");
    assert!(server.get("/lake?location").await.text().contains(">eu-west-1<"));
}

/// A removal that was killed leaves the notes: whoever makes the bucket anew must not inherit them.
#[tokio::test]
async fn what_a_cut_removal_left_is_not_inherited() {
    let server = Server::start().await;
    set(
        &server,
        "/lake?tagging",
        "<Tagging><TagSet><Tag><Key>team</Key><Value>b</Value></Tag></TagSet></Tagging>",
    )
    .await;
    set(
        &server,
        "/lake?cors",
        "<CORSConfiguration><CORSRule><AllowedMethod>GET</AllowedMethod>\
         <AllowedOrigin>*</AllowedOrigin></CORSRule></CORSConfiguration>",
    )
    .await;
    // Made again while it is there it keeps them.
    set(&server, "/lake", "").await;
    assert_eq!(server.get("/lake?tagging").await.status, 200);
    std::fs::remove_dir_all(server.dir.served().join("lake")).unwrap();
    set(&server, "/lake", "").await;
    assert_eq!(server.get("/lake?tagging").await.code(), "NoSuchTagSet");
    assert_eq!(server.get("/lake?cors").await.code(), "NoSuchCORSConfiguration");
}

async fn pages_of_other_origins(lane: Lane) {
    let server = Server::on_with(lane, |options| {
        let rule = CorsRule {
            origins: vec!["https://fixed.org".into()],
            methods: vec!["GET".into()],
            ..CorsRule::default()
        };
        options.cors = vec![PageRule { buckets: vec![Pattern::new("la*")], rule }];
    })
    .await;
    assert_eq!(server.put("/lake/k", b"bytes").await.status, 200);
    let rule = "<CORSConfiguration><CORSRule><AllowedMethod>PUT</AllowedMethod>\
        <AllowedOrigin>*</AllowedOrigin><AllowedHeader>x-amz-*</AllowedHeader>\
        <ExposeHeader>ETag</ExposeHeader><MaxAgeSeconds>60</MaxAgeSeconds>\
        </CORSRule></CORSConfiguration>";
    set(&server, "/lake?cors", rule).await;
    let ask = async |origin: &str, method: &str, headers: &str| {
        let mut asked = vec![("origin", origin), ("access-control-request-method", method)];
        if !headers.is_empty() {
            asked.push(("access-control-request-headers", headers));
        }
        let path = "/lake/k?X-Amz-Signature=any";
        let request = Request { method: "OPTIONS", path, headers: &asked, ..Default::default() };
        server.unsigned(request).await
    };
    let put = ask("http://a", "PUT", "x-amz-date").await;
    assert_eq!((put.status, put.header("access-control-allow-origin")), (200, "*"));
    assert_eq!(put.header("access-control-allow-headers"), "x-amz-date");
    assert_eq!(put.header("access-control-max-age"), "60");
    let fixed = ask("https://fixed.org", "GET", "").await;
    assert_eq!(fixed.header("access-control-allow-origin"), "https://fixed.org");
    let refused = ask("http://a", "GET", "").await;
    assert_eq!((refused.status, refused.code().as_str()), (403, "AccessForbidden"));
    let bare = Request { method: "OPTIONS", path: "/lake/k", ..Default::default() };
    assert_eq!(server.unsigned(bare).await.status, 400);
    // The answer itself says it too, an error as well.
    let headers = [("origin", "https://fixed.org")];
    for (path, status) in [("/lake/k", 200), ("/lake/absent", 404)] {
        let got = server.send(Request { path, headers: &headers, ..Default::default() }).await;
        assert_eq!(got.status, status);
        assert_eq!(got.header("access-control-allow-origin"), "https://fixed.org");
    }
}

/// Whose notes are damaged can remove the bucket, and has a whole one then.
#[tokio::test]
async fn a_bucket_whose_notes_cannot_be_read_is_removed_with_them() {
    let server = Server::on(Lane::Local).await;
    let bucket = |method| Request { method, path: "/torn", ..Default::default() };
    assert_eq!(server.send(bucket("PUT")).await.status, 200);
    let tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>";
    set(&server, "/torn?tagging", tags).await;
    let notes = server.dir.served().join("penstock-notes/torn/bucket.json");
    std::fs::write(&notes, "{\"tags\": [[\"a\"").unwrap();
    assert_eq!(server.get("/torn?tagging").await.status, 500);
    assert_eq!(server.send(bucket("DELETE")).await.status, 204);
    assert!(!notes.exists());
    assert_eq!(server.send(bucket("PUT")).await.status, 200);
    assert_eq!(server.get("/torn?tagging").await.code(), "NoSuchTagSet");
}

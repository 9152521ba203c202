//! A service of S3's interface that does not know checksums in `x-amz-checksum` headers: the
//! gateway compares what clients send, and the service is spared it.

use crate::common::{Answer, Dir, Request, Server, options_over, s3};
use penstock_base::Secret;
use penstock_testkit::fake::{FakeOptions, FakeS3};

/// Of "hello world", by zlib and hashlib.
const SUMS: [(&str, &str); 3] = [
    ("x-amz-checksum-crc32", "DUoRhQ=="),
    ("x-amz-checksum-crc64nvme", "jSnVw/bqjr4="),
    ("x-amz-checksum-sha1", "Kq5sNclPz7QV2+lfQIuc6R7oRu0="),
];
/// CRC-32 of 307,200 times `a`.
const OF_LARGE: [(&str, &str); 1] = [("x-amz-checksum-crc32", "IGoStg==")];

async fn before_an_old_service(choice: &str) -> Server {
    let options = FakeOptions { without_checksums: true, ..FakeOptions::s3() };
    let fake = FakeS3::start(options).unwrap();
    let mut backend = s3(&fake);
    backend.options.push(("checksum".to_string(), Secret::new(choice)));
    let server = Server::start_with(Dir::new(), options_over(backend)).await;
    Server { fake: Some(fake), ..server }
}

async fn put(server: &Server, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    server.send(Request { method: "PUT", path, headers, body, ..Default::default() }).await
}

/// The object, asked for with its checksums.
async fn got(server: &Server, path: &str) -> Vec<u8> {
    let headers = [("x-amz-checksum-mode", "ENABLED")];
    let head = Request { method: "HEAD", path, headers: &headers, ..Default::default() };
    assert_eq!(server.send(head).await.status, 200, "{path}");
    server.send(Request { path, headers: &headers, ..Default::default() }).await.body
}

#[tokio::test]
async fn every_client_may_put_with_and_without_a_checksum() {
    for (choice, first) in [("auto", 2), ("none", 1), ("md5", 1)] {
        let server = before_an_old_service(choice).await;
        for (name, sum) in SUMS {
            let path = format!("/lake/{name}");
            let what = format!("{choice} {name}");
            // What is learnt is kept, one algorithm after the other.
            for requests in [first, 1] {
                let before = server.backend_requests();
                let sent = put(&server, &path, &[(name, sum)], b"hello world").await;
                assert_eq!((sent.status, sent.header(name)), (200, sum), "{what}: {}", sent.text());
                assert_eq!(server.backend_requests() - before, requests, "{what}");
            }
            assert_eq!(got(&server, &path).await, b"hello world", "{what}");
            let wrong = put(&server, &path, &[(name, sum)], b"hello there").await;
            assert_eq!((wrong.status, wrong.code().as_str()), (400, "BadDigest"), "{what}");
            assert_eq!(got(&server, &path).await, b"hello world", "{what}");
        }
        let plain = put(&server, "/lake/plain", &[], b"hello world").await;
        assert_eq!(plain.status, 200, "{choice}: {}", plain.text());
        let server = before_an_old_service(choice).await;
        let first = put(&server, "/lake/plain", &[], b"hello world").await;
        assert_eq!(first.status, 200, "{choice}: {}", first.text());
    }
}

/// Nobody has such a body when its refusal comes, but its sender.
#[tokio::test]
async fn a_body_that_flows_is_asked_for_again_and_goes_without() {
    let body = vec![b'a'; 300 << 10];
    for (choice, answers) in [("auto", &[503, 200, 200][..]), ("none", &[200]), ("md5", &[200])] {
        let server = before_an_old_service(choice).await;
        for status in answers {
            let sent = put(&server, "/lake/large", &OF_LARGE, &body).await;
            assert_eq!(sent.status, *status, "{choice}: {}", sent.text());
        }
        assert!(got(&server, "/lake/large").await == body, "{choice}");
        let wrong = put(&server, "/lake/large", &OF_LARGE, &body[1..]).await;
        assert_eq!((wrong.status, wrong.code().as_str()), (400, "BadDigest"), "{choice}");
    }
}

/// The operator says that it keeps them: that it does not is told, not passed over.
#[tokio::test]
async fn a_service_that_is_said_to_keep_checksums_must_take_them() {
    let server = before_an_old_service("crc32").await;
    let refused = put(&server, "/lake/k", &SUMS[..1], b"hello world").await;
    assert_eq!((refused.status, refused.code().as_str()), (400, "NotImplemented"));
    assert_eq!(server.get("/lake/k").await.status, 404);
}

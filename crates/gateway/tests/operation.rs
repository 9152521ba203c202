//! What an operator sees: request ids, metrics, the access log; and what limits do.

use crate::common::{
    ACCESS_KEY, Dir, Lane, Request, SECRET_KEY, Server, options, read_answer, serve_settings, sign,
};
use penstock_base::ServeSettings;
use penstock_gateway::Options;
use rustls::pki_types::ServerName;
use serde_json::Value;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

async fn started(serve: ServeSettings) -> Server {
    let dir = Dir::new();
    let told = Options { serve, ..options(&dir) };
    Server::start_with(dir, told).await
}

/// A PUT whose body has begun and not ended.
async fn begun_put(server: &Server) -> TcpStream {
    let headers = [("expect", "100-continue")];
    let request = Request {
        method: "PUT",
        path: "/lake/slow",
        headers: &headers,
        body: b"whole",
        ..Default::default()
    };
    let bytes = sign::signed(&request, &server.address.to_string(), SECRET_KEY, ACCESS_KEY);
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&bytes[..bytes.len() - 5]).await.unwrap();
    assert_eq!(read_answer(&mut stream, true).await.status, 100);
    stream
}

#[tokio::test]
async fn every_answer_and_error_bears_an_id_of_its_own() {
    let server = Server::start().await;
    let mut ids = HashSet::new();
    for answer in [
        server.put("/lake/k", b"x").await,
        server.get("/lake/k").await,
        server.get("/lake/missing").await,
        server.send_as("NOKEY", Request { path: "/lake/k", ..Default::default() }).await,
    ] {
        let id = answer.header("x-amz-request-id").to_string();
        assert_eq!(id.len(), 16, "{answer:?}");
        if answer.status >= 400 {
            let told = format!("<RequestId>{id}</RequestId>");
            assert!(answer.text().contains(&told), "{}", answer.text());
        }
        ids.insert(id);
    }
    assert_eq!(ids.len(), 4);
}

#[tokio::test]
async fn metrics_count_what_happened_on_their_own_port_only() {
    let server = Server::on(Lane::Azure).await;
    server.put("/lake/k", b"12345").await;
    server.get("/lake/k").await;
    server.get("/lake/missing").await;
    let page = server.admin_page("/metrics").await;
    assert!(page.header("content-type").starts_with("text/plain; version=0.0.4"));
    let page = page.text();
    for line in [
        "penstock_requests_total{operation=\"PutObject\",status=\"200\"} 1",
        "penstock_requests_total{operation=\"GetObject\",status=\"200\"} 1",
        "penstock_requests_total{operation=\"GetObject\",status=\"404\"} 1",
        "penstock_request_duration_seconds_count{operation=\"GetObject\"} 2",
        "penstock_received_bytes_total 5",
        "penstock_requests_in_flight 0",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is missing in\n{page}");
    }
    let named = "penstock_backend_requests_total{backend=\"back\",method=\"";
    let of_backend = |line: &&str| line.starts_with(named);
    let counted: u64 = page
        .lines()
        .filter(of_backend)
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
        .sum();
    assert_eq!(counted, server.backend_requests());
    // On the port of S3 it is a bucket's name, and nobody's business.
    let there = server.send_raw(b"GET /metrics HTTP/1.1\r\nhost: h\r\n\r\n").await;
    assert_eq!(there.status, 403, "{}", there.text());
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let waited = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            if let Some(found) = found() {
                return found;
            }
            tokio::task::yield_now().await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("{what} did not come"))
}

#[tokio::test]
async fn the_log_tells_each_request_and_no_secret() {
    let dir = Dir::new();
    let path = dir.0.join("access.log");
    let access_log = path.display().to_string();
    let serve = ServeSettings { access_log, ..serve_settings() };
    let told = Options { serve, ..options(&dir) };
    let server = Server::start_with(dir, told).await;
    let put = server.put("/lake/a%20b", b"12345").await;
    let host = server.address.to_string();
    let presigned = sign::presigned("GET", "/lake/a%20b", &host, SECRET_KEY, ACCESS_KEY, 60, 0);
    let get = format!("GET {presigned} HTTP/1.1\r\nhost: {host}\r\nuser-agent: it\r\n\r\n");
    assert_eq!(server.send_raw(get.as_bytes()).await.status, 200);
    let forged = Request { path: "/lake/k", ..Default::default() };
    let forged = sign::signed(&forged, &host, "another secret", ACCESS_KEY);
    assert_eq!(server.send_raw(&forged).await.status, 403);
    let found = until("the third line", || Some(lines(&path)).filter(|it| it.len() == 3)).await;
    assert_eq!(found[0]["id"], put.header("x-amz-request-id"));
    assert_eq!(found[0]["operation"], "PutObject");
    assert_eq!((&found[0]["bucket"], &found[0]["key"]), (&"lake".into(), &"a b".into()));
    assert_eq!((&found[0]["received_bytes"], &found[0]["status"]), (&5.into(), &200.into()));
    assert_eq!((&found[1]["sent_bytes"], &found[1]["whole"]), (&5.into(), &true.into()));
    assert_eq!((&found[1]["key_id"], &found[1]["user_agent"]), (&ACCESS_KEY.into(), &"it".into()));
    // Whose signature does not hold is nobody.
    assert_eq!((&found[2]["status"], &found[2]["key_id"]), (&403.into(), &Value::Null));
    let text = std::fs::read_to_string(&path).unwrap();
    for secret in [SECRET_KEY, "X-Amz-Signature", "Signature=", "x-amz-date"] {
        assert!(!text.contains(secret), "{secret} is in the log");
    }
}

#[tokio::test]
async fn the_log_tells_why_a_request_failed_and_no_secret() {
    let dir = Dir::new();
    let path = dir.0.join("access.log");
    let fake =
        penstock_testkit::fake::FakeAzure::start(penstock_testkit::fake::FakeOptions::azure())
            .unwrap();
    let serve = ServeSettings { access_log: path.display().to_string(), ..serve_settings() };
    let told = Options { serve, ..crate::common::options_over(crate::common::azure(&fake)) };
    let server = Server::start_with(dir, told).await;
    let host = server.address.to_string();
    assert_eq!(server.put("/lake/k", b"x").await.status, 200);
    assert_eq!(server.get("/lake/absent").await.code(), "NoSuchKey");
    let head = Request { method: "HEAD", path: "/lake/absent", ..Default::default() };
    assert_eq!(server.send(head).await.status, 404);
    let presigned = sign::presigned("GET", "/lake/k", &host, "another", ACCESS_KEY, 60, 0);
    let forged = format!("GET {presigned} HTTP/1.1\r\nhost: {host}\r\n\r\n");
    assert_eq!(server.send_raw(forged.as_bytes()).await.status, 403);
    let key = "bXkgc2VjcmV0IGtleQ==";
    let headers = [
        ("x-amz-server-side-encryption-customer-algorithm", "AES256"),
        ("x-amz-server-side-encryption-customer-key", key),
    ];
    let refused = Request { path: "/lake/k", headers: &headers, ..Default::default() };
    assert_eq!(server.send(refused).await.code(), "NotImplemented");
    fake.fault("status=403,code=AuthenticationFailed");
    let denied = server.put("/lake/k", b"x").await;
    assert_eq!(denied.code(), "AccessDenied");
    let found = until("the sixth line", || Some(lines(&path)).filter(|it| it.len() == 6)).await;
    let told = |at: usize| {
        let text = |name: &str| found[at][name].as_str().unwrap_or_default().to_string();
        (text("error"), text("cause"))
    };
    assert!(found[0].get("error").is_none() && found[0].get("cause").is_none());
    for at in [1, 2] {
        let (error, cause) = told(at);
        assert_eq!(error, "NoSuchKey");
        assert!(cause.contains("az://") && cause.contains("lake/absent"), "{cause}");
    }
    assert_eq!(told(3).0, "SignatureDoesNotMatch");
    assert_eq!(told(4).0, "NotImplemented");
    assert!(told(4).1.contains("customer"), "{}", told(4).1);
    // What is for the operator alone: the service's own code, and what to do.
    let (error, cause) = told(5);
    assert_eq!(error, "AccessDenied");
    assert!(cause.contains("AuthenticationFailed") && cause.contains("Check"), "{cause}");
    assert!(!denied.text().contains("Check"), "{}", denied.text());
    let text = std::fs::read_to_string(&path).unwrap();
    let connection = fake.connection_string();
    let account_key = connection.split("AccountKey=").nth(1).unwrap().split(';').next().unwrap();
    for secret in [SECRET_KEY, account_key, key, "X-Amz-Signature", "Signature="] {
        assert!(!text.contains(secret), "{secret} is in the log");
    }
}

/// Its head may tell no length, and that of a PUT could be an object's.
#[tokio::test]
async fn a_document_that_is_too_long_is_refused_for_that() {
    let server = Server::start().await;
    server.put("/lake/k", b"x").await;
    let body = vec![b' '; (4 << 20) + 1];
    for (method, path) in
        [("PUT", "/lake/k?tagging"), ("PUT", "/lake?cors"), ("POST", "/lake?delete")]
    {
        let refused = Request { method, path, body: &body, ..Default::default() };
        let refused = server.send(refused).await;
        assert_eq!((refused.status, refused.code().as_str()), (400, "EntityTooLarge"), "{path}");
    }
}

/// Documents are held whole, and those of all requests together have a bound.
#[tokio::test]
async fn more_documents_than_there_is_room_for_are_told_to_slow_down() {
    const LONGEST: usize = 4 << 20;
    let server = Server::start().await;
    let host = server.address.to_string();
    let length = LONGEST.to_string();
    let headers = [("content-length", length.as_str())];
    let head = Request {
        method: "POST",
        path: "/lake?delete",
        headers: &headers,
        content_sha256: Some("UNSIGNED-PAYLOAD"),
        ..Default::default()
    };
    let head = sign::signed(&head, &host, SECRET_KEY, ACCESS_KEY);
    // Each lacks its last byte, so none is ever answered.
    let body = vec![b' '; LONGEST - 1];
    let mut held = Vec::new();
    for _ in 0..16 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(&head).await.unwrap();
        stream.write_all(&body).await.unwrap();
        held.push(stream);
    }
    let document = b"<Delete><Object><Key>k</Key></Object></Delete>";
    let small =
        || Request { method: "POST", path: "/lake?delete", body: document, ..Default::default() };
    // A document that comes while these are still being read may take the room of one of them.
    let all = format!("penstock_received_bytes_total {}\n", 16 * body.len());
    let read = async { while !server.admin_page("/metrics").await.text().contains(&all) {} };
    let wait = Duration::from_secs(20);
    tokio::time::timeout(wait, read).await.unwrap();
    let refused = server.send(small()).await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.code(), "SlowDown");
    assert_eq!(refused.header("retry-after"), "1");
    let page = server.admin_page("/metrics").await.text();
    assert!(page.contains("penstock_requests_refused_total{reason=\"documents\"} 1"), "{page}");
    assert_eq!(server.put("/lake/k", b"objects are none").await.status, 200);
    drop(held);
    // A closed connection may not have been noticed yet.
    let taken = async { while server.send(small()).await.status != 200 {} };
    tokio::time::timeout(wait, taken).await.unwrap();
}

#[tokio::test]
async fn the_log_counts_requests_to_the_back_end_on_each_account() {
    let dir = Dir::new();
    let path = dir.0.join("access.log");
    let fake =
        penstock_testkit::fake::FakeAzure::start(penstock_testkit::fake::FakeOptions::azure())
            .unwrap();
    let serve = ServeSettings { access_log: path.display().to_string(), ..serve_settings() };
    let told = Options { serve, ..crate::common::options_over(crate::common::azure(&fake)) };
    let server = Server::start_with(dir, told).await;
    let make = Request { method: "PUT", path: "/lake", ..Default::default() };
    assert_eq!(server.send(make).await.status, 200);
    let large = vec![7; 3 << 20];
    server.put("/lake/large", &large).await;
    assert_eq!(server.get("/lake/large").await.body, large);
    let found = until("the third line", || Some(lines(&path)).filter(|it| it.len() == 3)).await;
    let total: u64 = found.iter().map(|line| line["backend_requests"].as_u64().unwrap()).sum();
    assert_eq!(total, fake.stats().requests, "{found:#?}");
    assert_eq!(found[2]["backend_requests"], 1, "a GET is one request");
}

#[tokio::test]
async fn more_requests_than_places_are_told_to_slow_down() {
    let server = started(ServeSettings { requests_max: 1, ..serve_settings() }).await;
    let mut slow = begun_put(&server).await;
    let refused = server.get("/lake/k").await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "SlowDown"));
    assert_eq!(refused.header("retry-after"), "1");
    // The gateway's own pages always have a place.
    assert_eq!(server.admin_page("/readyz").await.status, 200);
    slow.write_all(b"whole").await.unwrap();
    assert_eq!(read_answer(&mut slow, false).await.status, 200);
    drop(slow);
    assert_eq!(server.get("/lake/slow").await.body, b"whole");
    let page = server.admin_page("/metrics").await.text();
    assert!(page.contains("penstock_requests_refused_total{reason=\"busy\"} 1"), "{page}");
}

#[tokio::test]
async fn a_client_that_goes_silent_is_given_up_and_leaves_nothing() {
    let server = started(ServeSettings { client_stall_timeout_ms: 100, ..serve_settings() }).await;
    let mut slow = begun_put(&server).await;
    let answer = read_answer(&mut slow, false).await;
    assert_eq!((answer.status, answer.code().as_str()), (400, "RequestTimeout"));
    assert_eq!(server.get("/lake/slow").await.status, 404);
}

#[tokio::test]
async fn heads_and_bodies_have_a_largest_size() {
    let head_size_max_bytes = 8 << 10;
    let body_size_max_bytes = 1 << 20;
    let form_size_max_bytes = body_size_max_bytes;
    let limits = ServeSettings {
        head_size_max_bytes,
        body_size_max_bytes,
        form_size_max_bytes,
        ..serve_settings()
    };
    let server = started(limits).await;
    let long = format!("GET /lake/k HTTP/1.1\r\nhost: h\r\nx-long: {}\r\n\r\n", "a".repeat(9000));
    assert_eq!(server.send_raw(long.as_bytes()).await.status, 431);
    let refused = server.put("/lake/k", &vec![0; (1 << 20) + 1]).await;
    assert_eq!((refused.status, refused.code().as_str()), (400, "EntityTooLarge"));
    // Of chunks the length is told apart from that of what is sent.
    let head = "PUT /lake/k HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n";
    let told = format!("{head}x-amz-decoded-content-length: {}\r\n\r\n", (1 << 20) + 1);
    let refused = server.send_raw(told.as_bytes()).await;
    assert_eq!((refused.status, refused.code().as_str()), (400, "EntityTooLarge"));
    assert_eq!(server.put("/lake/k", &vec![0; 1 << 20]).await.status, 200);
}

struct Certificate {
    pem: String,
    key: String,
    der: rustls::pki_types::CertificateDer<'static>,
}

fn certificate() -> Certificate {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_string()]).unwrap();
    Certificate {
        pem: made.cert.pem(),
        key: made.signing_key.serialize_pem(),
        der: made.cert.der().clone(),
    }
}

fn write(dir: &Path, certificate: &Certificate) {
    std::fs::write(dir.join("cert.pem"), &certificate.pem).unwrap();
    std::fs::write(dir.join("key.pem"), &certificate.key).unwrap();
}

async fn tls(
    server: &Server,
    trusted: &Certificate,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted.der.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(server.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

#[tokio::test]
async fn certificates_are_exchanged_under_open_connections() {
    let dir = Dir::new();
    let (old, new) = (certificate(), certificate());
    write(&dir.0, &old);
    let path = |name: &str| dir.0.join(name).display().to_string();
    let (tls_cert_file, tls_key_file) = (path("cert.pem"), path("key.pem"));
    // Looked at so seldom that the signal below is what does it.
    let tls_check_ms = 86_400_000;
    let serve = ServeSettings { tls_cert_file, tls_key_file, tls_check_ms, ..serve_settings() };
    let told = Options { serve, ..options(&dir) };
    let server = Server::start_with(dir, told).await;
    let ask = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut open = tls(&server, &old).await.unwrap();
    open.write_all(ask).await.unwrap();
    assert_eq!(read_answer(&mut open, false).await.status, 200);
    write(&server.dir.0, &new);
    server.reloader.reload().unwrap();
    // The open connection goes on, a new one shows the new certificate.
    open.write_all(ask).await.unwrap();
    assert_eq!(read_answer(&mut open, false).await.status, 200);
    assert!(tls(&server, &old).await.is_err());
    let mut second = tls(&server, &new).await.unwrap();
    let host = server.address.to_string();
    let put = Request { method: "PUT", path: "/lake/k", body: b"tls", ..Default::default() };
    second.write_all(&sign::signed(&put, &host, SECRET_KEY, ACCESS_KEY)).await.unwrap();
    assert_eq!(read_answer(&mut second, false).await.status, 200);
    // Large files too are encrypted, so they cannot be the kernel's to send.
    let large: Vec<u8> = (0..5_000_000_u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(server.dir.served().join("lake/large"), &large).unwrap();
    let get = Request { path: "/lake/large", ..Default::default() };
    second.write_all(&sign::signed(&get, &host, SECRET_KEY, ACCESS_KEY)).await.unwrap();
    assert!(read_answer(&mut second, false).await.body == large);
    // Files that do not fit leave it as it is.
    std::fs::write(server.dir.0.join("key.pem"), &old.key).unwrap();
    assert!(server.reloader.reload().is_err());
    tls(&server, &new).await.unwrap();
    let said = server.notices.lines();
    let said: Vec<_> = said.iter().filter(|line| line.starts_with("reload: ")).collect();
    assert!(said[0].contains("the certificate is a new one, which holds until 4096-"), "{said:?}");
    assert!(said[1].contains("the old certificate stays in use"), "{said:?}");
    assert_eq!(said.len(), 2);
    let page = server.admin_page("/metrics").await.text();
    assert!(page.contains("penstock_tls_reloads_total{result=\"ok\"} 1"), "{page}");
    assert!(page.contains("penstock_tls_reloads_total{result=\"failed\"} 1"), "{page}");
    // The client that trusted another certificate.
    assert!(page.contains("penstock_tls_failures_total 1"), "{page}");
}

#[tokio::test]
async fn a_changed_certificate_is_noticed_without_a_signal() {
    let dir = Dir::new();
    let (old, new) = (certificate(), certificate());
    write(&dir.0, &old);
    let path = |name: &str| dir.0.join(name).display().to_string();
    let (tls_cert_file, tls_key_file) = (path("cert.pem"), path("key.pem"));
    let tls_check_ms = 100;
    let serve = ServeSettings { tls_cert_file, tls_key_file, tls_check_ms, ..serve_settings() };
    let told = Options { serve, ..options(&dir) };
    let server = Server::start_with(dir, told).await;
    write(&server.dir.0, &new);
    let noticed = tokio::time::timeout(Duration::from_secs(20), async {
        while tls(&server, &new).await.is_err() {}
    });
    noticed.await.expect("the old certificate is still shown");
}

#[tokio::test]
async fn a_back_end_that_fails_on_and_on_is_told_in_time() {
    const RETRIES: &str = "penstock_backend_retries_total{backend=\"back\"} ";
    for fault in ["status=503", "status=500", "reset"] {
        let server = Server::on_with(Lane::S3, |options| {
            options.serve.backend_deadline_ms = 300;
        })
        .await;
        server.put("/lake/k", b"bytes").await;
        server.fake.as_ref().unwrap().fault(fault);
        let asked = async {
            let put = Request { method: "PUT", path: "/lake/n", body: b"n", ..Default::default() };
            (server.get("/lake/k").await, server.send(put).await)
        };
        // Far below the two minutes of request_deadline_ms.
        let asked = tokio::time::timeout(std::time::Duration::from_secs(30), asked);
        let (got, put) = asked.await.expect("both are answered");
        let page = server.admin_page("/metrics").await.text();
        let retries = page.lines().find_map(|line| line.strip_prefix(RETRIES));
        assert!(retries.unwrap().parse::<u64>().unwrap() > 0, "{fault}: {page}");
        assert_eq!((got.status, put.status), (503, 503), "{fault}: {} {}", got.text(), put.text());
    }
}

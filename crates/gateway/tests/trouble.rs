//! Back ends that are busy, slow or down, and clients that take their time.

use crate::common::{ACCESS_KEY, Answer, Dir, Lane, Request, SECRET_KEY, Server, sign};
use penstock_gateway::Options;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

on_lane!(azure, Azure: clients_that_are_slow_to_take_leave_the_others_an_answer,
    a_back_end_that_throttles_is_no_back_end_that_is_down,
    a_completion_that_takes_long_is_answered_at_once,
    a_copy_that_takes_long_is_answered_at_once);
on_lane!(s3, S3: clients_that_are_slow_to_take_leave_the_others_an_answer,
    a_back_end_that_throttles_is_no_back_end_that_is_down,
    a_completion_that_takes_long_is_answered_at_once,
    a_copy_that_takes_long_is_answered_at_once);
on_lane!(local, Local: a_completion_that_takes_long_is_answered_at_once,
    a_copy_that_takes_long_is_answered_at_once);

fn impatient(options: &mut Options) {
    options.serve.backend_deadline_ms = 300;
}

/// More than the buffers of two sockets take.
const LARGE: usize = 48 << 20;

/// Begins a GET and takes the first bytes of its answer.
async fn begun_get(server: &Server, path: &str) -> TcpStream {
    let request = Request { path, ..Default::default() };
    let host = server.address.to_string();
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&sign::signed(&request, &host, SECRET_KEY, ACCESS_KEY)).await.unwrap();
    let mut first = [0; 64];
    stream.read_exact(&mut first).await.unwrap();
    assert!(first.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&first));
    stream
}

async fn clients_that_are_slow_to_take_leave_the_others_an_answer(lane: Lane) {
    let server = Server::on_with(lane, |options| {
        impatient(options);
        options.settings.connections_per_host = 1;
    })
    .await;
    assert_eq!(server.put("/lake/large", &vec![7; LARGE]).await.status, 200);
    let mut slow = begun_get(&server, "/lake/large").await;
    let is_told = |answer: Answer| {
        assert_eq!((answer.status, answer.code().as_str()), (503, "SlowDown"), "{}", answer.text());
        assert_eq!(answer.header("retry-after"), "1");
        assert!(!answer.text().contains("connections_per_host"), "{}", answer.text());
    };
    is_told(server.get("/lake/large").await);
    // One that is sent again, one that flows, and a list.
    is_told(server.put("/lake/small", b"bytes").await);
    is_told(server.put("/lake/flows", &vec![1; 1 << 20]).await);
    is_told(server.get("/lake?list-type=2").await);
    let ready = server.admin_page("/readyz").await;
    assert_eq!(ready.status, 200, "{}", ready.text());
    // What they waited for is told, and that nobody does any more.
    let page = server.admin_page("/metrics").await.text();
    assert!(page.contains("penstock_backend_connections_awaited{backend=\"back\"} 0\n"), "{page}");
    let begin = "penstock_backend_connection_wait_seconds_count{backend=\"back\"} ";
    let waits = page.lines().find_map(|line| line.strip_prefix(begin)).unwrap();
    assert!(waits.parse::<u64>().unwrap() >= 4, "{page}");
    let mut rest = vec![0; LARGE];
    slow.read_exact(&mut rest[64..]).await.unwrap();
    drop(slow);
    assert_eq!(server.put("/lake/small", b"bytes").await.status, 200);
}

async fn a_back_end_that_throttles_is_no_back_end_that_is_down(lane: Lane) {
    let throttle = if lane == Lane::Azure { "ServerBusy" } else { "SlowDown" };
    for (fault, code, waits) in [
        (format!("status=503,code={throttle}"), "SlowDown", "1"),
        ("status=500".to_string(), "ServiceUnavailable", ""),
        ("reset".to_string(), "ServiceUnavailable", ""),
    ] {
        let server = Server::on_with(lane, impatient).await;
        server.fake.as_ref().unwrap().fault(&fault);
        let answer = server.get("/lake/k").await;
        assert_eq!((answer.status, answer.code().as_str()), (503, code), "{fault}");
        assert_eq!(answer.header("retry-after"), waits, "{fault}");
        let ready = server.admin_page("/readyz").await;
        let expected = if code == "SlowDown" { 200 } else { 503 };
        assert_eq!(ready.status, expected, "{fault}: {}", ready.text());
    }
}

async fn a_completion_that_takes_long_is_answered_at_once(lane: Lane) {
    let logs = Dir::new();
    let log = logs.0.join("access.log");
    let server = Server::on_with(lane, |options| {
        impatient(options);
        options.serve.access_log = log.display().to_string();
        options.serve.completion_quiet_ms = 0;
    })
    .await;
    if lane == Lane::Local {
        assert_eq!(server.put("/lake/k", b"old").await.status, 200);
    }
    let begun = Request { method: "POST", path: "/lake/k?uploads", ..Default::default() };
    let id = field(&server.send(begun).await.text(), "UploadId");
    let path = format!("/lake/k?partNumber=1&uploadId={id}");
    let tag = server.put(&path, b"part").await.header("etag").to_string();
    let path = format!("/lake/k?uploadId={id}");
    let complete = async |tag: &str| {
        let body = format!(
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part>\
             </CompleteMultipartUpload>"
        );
        let body = body.as_bytes();
        server.send(Request { method: "POST", path: &path, body, ..Default::default() }).await
    };
    let wrong = complete("\"00000000000000000000000000000000\"").await;
    is_one_document(&wrong, "Error");
    assert_eq!((wrong.status, wrong.code().as_str()), (200, "InvalidPart"), "{}", wrong.text());
    is_logged(&log, "InvalidPart").await;
    if let Some(fake) = &server.fake {
        fake.fault("status=500");
        let failed = complete(&tag).await;
        assert_eq!((failed.status, failed.code().as_str()), (200, "ServiceUnavailable"));
        fake.faults().clear();
    }
    let done = complete(&tag).await;
    assert_eq!((done.status, done.code().as_str()), (200, ""), "{}", done.text());
    is_one_document(&done, "CompleteMultipartUploadResult");
    assert_eq!(field(&done.text(), "Key"), "k");
    assert_eq!(server.get("/lake/k").await.body, b"part");
}

async fn a_copy_that_takes_long_is_answered_at_once(lane: Lane) {
    let logs = Dir::new();
    let log = logs.0.join("access.log");
    let server = Server::on_with(lane, |options| {
        impatient(options);
        options.serve.access_log = log.display().to_string();
        options.serve.completion_quiet_ms = 0;
    })
    .await;
    assert_eq!(server.put("/lake/from", b"bytes").await.status, 200);
    let begun = Request { method: "POST", path: "/lake/whole?uploads", ..Default::default() };
    let id = field(&server.send(begun).await.text(), "UploadId");
    let part = format!("/lake/whole?partNumber=1&uploadId={id}");
    let copy = async |source: &str, path: &str| {
        let headers = [("x-amz-copy-source", source)];
        server.send(Request { method: "PUT", path, headers: &headers, ..Default::default() }).await
    };
    for path in ["/lake/to", &part] {
        let missing = copy("/lake/nothing", path).await;
        assert_eq!((missing.status, missing.code().as_str()), (200, "NoSuchKey"), "{path}");
        is_one_document(&missing, "Error");
        assert_eq!(field(&missing.text(), "RequestId"), missing.header("x-amz-request-id"));
        assert_eq!(missing.header("content-type"), "application/xml");
    }
    is_logged(&log, "NoSuchKey").await;
    assert_eq!(server.get("/lake/to").await.status, 404);
    let copied = copy("/lake/from", "/lake/to").await;
    assert_eq!((copied.status, copied.code().as_str()), (200, ""), "{}", copied.text());
    is_one_document(&copied, "CopyObjectResult");
    let got = server.get("/lake/to").await;
    let tag = field(&copied.text(), "ETag").replace("&quot;", "\"");
    assert_eq!((got.header("etag"), &*got.body), (tag.as_str(), &b"bytes"[..]));
    let copied = copy("/lake/from", &part).await;
    is_one_document(&copied, "CopyPartResult");
    let tag = field(&copied.text(), "ETag");
    let body = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part>\
         </CompleteMultipartUpload>"
    );
    let (path, body) = (format!("/lake/whole?uploadId={id}"), body.as_bytes());
    let done =
        server.send(Request { method: "POST", path: &path, body, ..Default::default() }).await;
    is_one_document(&done, "CompleteMultipartUploadResult");
    assert_eq!(server.get("/lake/whole").await.body, b"bytes");
}

/// Whether an answer that began late is well-formed: a declaration, white space, and one element.
fn is_one_document(answer: &Answer, root: &str) {
    let text = answer.text();
    let rest = text.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>").unwrap();
    let element = rest.trim_start();
    assert!(element.starts_with(&format!("<{root}")), "{text}");
    assert!(element.ends_with(&format!("</{root}>")) && !element.contains("<?"), "{text}");
}

/// The operator hears of an error, though its status was sent before.
async fn is_logged(log: &Path, code: &str) {
    let told = async {
        loop {
            let text = std::fs::read_to_string(log).unwrap_or_default();
            if let Some(line) = text.lines().find(|line| line.contains(code)) {
                return line.to_string();
            }
            tokio::task::yield_now().await;
        }
    };
    let line = tokio::time::timeout(Duration::from_secs(20), told).await.unwrap();
    assert!(line.contains("\"status\":200") && line.contains("\"cause\""), "{line}");
}

fn field(text: &str, name: &str) -> String {
    let behind = text.split_once(&format!("<{name}>")).unwrap().1;
    behind.split_once("</").unwrap().0.to_string()
}

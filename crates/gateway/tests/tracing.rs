//! Traces: each request is a span below the client's, and each request to a back end one below
//! that, told in the logs and to the back end.

use crate::common::{ACCESS_KEY, Dir, Lane, Request, SECRET_KEY, Server};
use penstock_base::ServeSettings;
use serde_json::Value;
use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

on_lane!(azure, Azure: requests_to_back_ends_are_spans_of_the_clients_trace,
    what_is_no_context_begins_a_trace, uploads_and_copies_are_traced_and_their_signatures_hold);
on_lane!(s3, S3: requests_to_back_ends_are_spans_of_the_clients_trace,
    what_is_no_context_begins_a_trace, uploads_and_copies_are_traced_and_their_signatures_hold);

/// With both logs, in the directory.
async fn traced(lane: Lane, logs: &Dir) -> Server {
    let at = |name: &str| logs.0.join(name).display().to_string();
    Server::on_with(lane, |options| {
        let (access_log, backend_log) = (at("access.log"), at("backend.log"));
        options.serve = ServeSettings { access_log, backend_log, ..options.serve.clone() };
    })
    .await
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The lines of both logs that hold some text, once there are as many as are expected. Lines of
/// what was asked before may still come.
async fn told(logs: &Dir, text: &str, expected: usize) -> (Vec<Value>, Vec<Value>) {
    let waited = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            let of = |name: &str| {
                let mut found = lines(&logs.0.join(name));
                found.retain(|line| line.to_string().contains(text));
                found
            };
            let (access, backend) = (of("access.log"), of("backend.log"));
            if access.len() >= expected && backend.len() >= expected {
                return (access, backend);
            }
            tokio::task::yield_now().await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("the lines did not come"))
}

async fn requests_to_back_ends_are_spans_of_the_clients_trace(lane: Lane) {
    let logs = Dir::new();
    let server = traced(lane, &logs).await;
    assert_eq!(server.put("/lake/a%20b", b"0123456789").await.status, 200);
    let fake = server.fake.as_ref().unwrap();
    fake.reset_stats();
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let headers = [("traceparent", parent.as_str()), ("range", "bytes=2-4")];
    let get = Request { path: "/lake/a%20b", headers: &headers, ..Default::default() };
    assert_eq!(server.send(get).await.body, b"234");
    let (access, backend) = told(&logs, TRACE, 1).await;
    let ([request], [span]) = (&access[..], &backend[..]) else { panic!("{access:?} {backend:?}") };
    assert_eq!((&request["trace_id"], &request["parent_id"]), (&TRACE.into(), &PARENT.into()));
    assert_eq!((&span["trace_id"], &span["parent_id"]), (&TRACE.into(), &request["span_id"]));
    let ids = [&request["span_id"], &span["span_id"]].map(|id| id.as_str().unwrap().to_string());
    assert!(ids.iter().all(|id| id.len() == 16 && id != PARENT) && ids[0] != ids[1], "{ids:?}");
    assert_eq!((&span["method"], &span["status"]), (&"GET".into(), &206.into()));
    assert_eq!((&span["range"], &span["received_bytes"]), (&"bytes=2-4".into(), &3.into()));
    assert!(span["path"].as_str().unwrap().ends_with("/lake/a%20b"), "{span}");
    assert_eq!(span["host"], fake.address().to_string());
    assert!(span["total_us"].as_u64() >= span["first_byte_us"].as_u64(), "{span}");
    let carried: Vec<String> = fake.requests().into_iter().map(|it| it.traceparent).collect();
    assert_eq!(carried, [format!("00-{TRACE}-{}-01", ids[1])]);
    let text = std::fs::read_to_string(logs.0.join("backend.log")).unwrap();
    for secret in [SECRET_KEY, ACCESS_KEY, "Signature", "SharedKey", "uthorization", "sig="] {
        assert!(!text.contains(secret), "{secret} is in the log");
    }
}

async fn what_is_no_context_begins_a_trace(lane: Lane) {
    let logs = Dir::new();
    let server = traced(lane, &logs).await;
    let upper = format!("00-{}-{PARENT}-01", TRACE.to_uppercase());
    let odd = ["", "00-0-0-01", upper.as_str(), "00-00000000000000000000000000000000-1-01"];
    for value in odd {
        let headers = [("traceparent", value)];
        let get = Request { path: "/lake/missing", headers: &headers, ..Default::default() };
        assert_eq!(server.send(get).await.status, 404, "{value}");
    }
    let (new, backend) = told(&logs, "missing", 4).await;
    let traces: HashSet<&str> = new.iter().map(|line| line["trace_id"].as_str().unwrap()).collect();
    assert_eq!(traces.len(), 4, "{new:?}");
    assert!(traces.iter().all(|trace| trace.len() == 32 && !trace.eq_ignore_ascii_case(TRACE)));
    assert!(new.iter().all(|line| line.get("parent_id").is_none()), "{new:?}");
    let spans: HashSet<_> = new.iter().map(|line| &line["span_id"]).collect();
    for span in &backend {
        assert!(traces.contains(span["trace_id"].as_str().unwrap()), "{span}");
        assert!(spans.contains(&span["parent_id"]), "{span}");
    }
}

/// Every way of sending a request carries the header, and none signs it: what is between may change
/// it. (A shared key of Azure signs none but `x-ms-`; its fake verifies.)
async fn uploads_and_copies_are_traced_and_their_signatures_hold(lane: Lane) {
    let logs = Dir::new();
    let server = traced(lane, &logs).await;
    server.fake.as_ref().unwrap().reset_stats();
    let parent = format!("00-{TRACE}-{PARENT}-00");
    let context = ("traceparent", parent.as_str());
    let send = async |method: &'static str, path: &str, more: &[(&str, &str)], body: &[u8]| {
        let headers: Vec<(&str, &str)> = [&[context], more].concat();
        let answer =
            server.send(Request { method, path, headers: &headers, body, ..Default::default() });
        let answer = answer.await;
        assert!(answer.status < 300, "{method} {path}: {}", answer.text());
        answer
    };
    // One that flows, and one that is whole.
    send("PUT", "/lake/large", &[], &vec![7; 1 << 20]).await;
    send("PUT", "/lake/small", &[("if-none-match", "*")], b"small").await;
    send("PUT", "/lake/copy", &[("x-amz-copy-source", "/lake/large")], b"").await;
    let begun = send("POST", "/lake/up?uploads", &[], b"").await.text();
    let id = begun.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap().to_string();
    let path = format!("/lake/up?partNumber=1&uploadId={id}");
    let tag = send("PUT", &path, &[], &vec![1; 300 << 10]).await.header("etag").to_string();
    let list = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part>\
         </CompleteMultipartUpload>"
    );
    send("POST", &format!("/lake/up?uploadId={id}"), &[], list.as_bytes()).await;
    send("GET", "/lake?list-type=2", &[], b"").await;
    let keys = "<Delete><Object><Key>small</Key></Object><Object><Key>up</Key></Object></Delete>";
    send("POST", "/lake?delete", &[], keys.as_bytes()).await;
    let seen = server.fake.as_ref().unwrap().requests();
    assert!(seen.len() >= 7, "{seen:?}");
    let prefix = format!("00-{TRACE}-");
    for request in &seen {
        assert!(request.traceparent.starts_with(&prefix), "{request:?}");
        assert!(request.traceparent.ends_with("-00"), "what is not sampled stays so: {request:?}");
        let signed: Vec<&str> = request.signed_headers.split(';').collect();
        assert_eq!(signed.contains(&"host"), lane == Lane::S3, "{request:?}");
        assert!(!signed.contains(&"traceparent"), "{request:?}");
    }
    let ids: HashSet<&str> = seen.iter().map(|request| request.traceparent.as_str()).collect();
    assert_eq!(ids.len(), seen.len(), "each has a span of its own");
}

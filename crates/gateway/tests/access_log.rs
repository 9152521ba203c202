//! What the access log says of how an answer ended.

use crate::common::{Dir, Request, Server, options};
use penstock_gateway::Options;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// The lines of a log, once there are as many as are expected.
async fn lines(path: &Path, expected: usize) -> Vec<Value> {
    let waited = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            if text.matches('\n').count() >= expected {
                return text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            }
            tokio::task::yield_now().await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("the lines did not come"))
}

#[tokio::test]
async fn answers_that_http_sends_without_a_body_are_whole() {
    let dir = Dir::new();
    let path = dir.0.join("access.log");
    let mut told: Options = options(&dir);
    told.serve.access_log = path.display().to_string();
    let server = Server::start_with(dir, told).await;
    let put = server.put("/lake/k", b"12345").await;
    let (etag, none) = (put.header("etag"), "\"none\"");
    let mut expected = vec![("PUT".to_string(), 200_u64)];
    for (method, path, headers, status) in [
        ("GET", "/lake/k", &[("if-none-match", etag)][..], 304),
        ("HEAD", "/lake/k", &[], 200),
        ("HEAD", "/lake/k", &[("if-none-match", etag)], 304),
        ("HEAD", "/lake/k", &[("if-match", none)], 412),
        ("HEAD", "/lake/absent", &[], 404),
        ("GET", "/lake/absent", &[], 404),
        ("DELETE", "/lake/k", &[], 204),
    ] {
        let request = Request { method, path, headers, ..Default::default() };
        assert_eq!(server.send(request).await.status, status, "{method} {path}");
        expected.push((method.to_string(), u64::from(status)));
    }
    let unsigned = Request { method: "HEAD", path: "/lake/k", ..Default::default() };
    assert_eq!(server.unsigned(unsigned).await.status, 403);
    expected.push(("HEAD".to_string(), 403));
    let found = lines(&path, expected.len()).await;
    let told = |line: &Value| {
        (line["method"].as_str().unwrap().to_string(), line["status"].as_u64().unwrap())
    };
    let mut found_told: Vec<_> = found.iter().map(told).collect();
    // A line is written when its answer has left, which the next request need not wait for.
    found_told.sort();
    expected.sort();
    assert_eq!(found_told, expected);
    for line in &found {
        assert_eq!(line["whole"], true, "{line}");
        let is_bodiless = line["method"] == "HEAD" || line["status"] == 304;
        assert!(!is_bodiless || line["sent_bytes"] == 0, "{line}");
    }
}

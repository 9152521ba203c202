//! How many requests to its back end an operation costs.

use super::{Answer, Request, Server};
use std::time::Duration;

/// One row of the table: an operation, and the requests that it may cost.
pub async fn costs(server: &Server, what: &str, request: Request<'_>, expected: &[&str]) -> String {
    let answer = answered(server, what, request, expected).await;
    assert!(answer.status < 300, "{what}: {} {}", answer.status, answer.text());
    if answer.header("etag").is_empty() { answer.text() } else { answer.header("etag").to_string() }
}

/// The same for an answer of another status.
pub async fn costs_status(
    server: &Server,
    (what, status): (&str, u16),
    request: Request<'_>,
    expected: &[&str],
) {
    let answer = answered(server, what, request, expected).await;
    assert_eq!(answer.status, status, "{what}: {}", answer.text());
    assert!(!answer.header("etag").is_empty(), "{what}: it tells which version there is");
}

async fn answered(server: &Server, what: &str, request: Request<'_>, expected: &[&str]) -> Answer {
    let fake = server.fake.as_ref().unwrap();
    fake.reset_stats();
    let answer = server.send(request).await;
    // A request is counted when its answer is out, which the client may see first.
    let counted = tokio::time::timeout(Duration::from_secs(10), async {
        while fake.requests().len() < expected.len() {
            tokio::task::yield_now().await;
        }
    });
    counted.await.ok();
    let mut sent: Vec<&str> = fake.requests().into_iter().map(|it| it.operation).collect();
    sent.sort();
    assert_eq!(sent, expected, "{what}");
    answer
}

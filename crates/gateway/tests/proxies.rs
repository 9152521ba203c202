//! Whom a gateway behind balancers takes for the sender of a request: in policies, and in its log.

use crate::common::{Answer, Dir, Request, Server, options};
use serde_json::Value;
use std::time::Duration;

/// Lets those in who ask from one network, whoever they are.
const POLICY: &[u8] = br#"{"Statement": [{"Effect": "Allow", "Principal": "*",
    "Action": "s3:GetObject", "Resource": "arn:aws:s3:::mine/*",
    "Condition": {"IpAddress": {"aws:SourceIp": "203.0.113.0/24"}}}]}"#;

/// A gateway with an access log and an object that [`POLICY`] opens.
async fn started(trusted_proxies: &str) -> Server {
    let dir = Dir::new();
    let mut told = options(&dir);
    told.serve.acl = "owners".to_string();
    told.serve.trusted_proxies = trusted_proxies.to_string();
    told.serve.access_log = dir.0.join("access.log").display().to_string();
    let server = Server::start_with(dir, told).await;
    let put = async |path, body| {
        let answer = server.put(path, body).await;
        assert!(matches!(answer.status, 200 | 204), "{path}: {}", answer.text());
    };
    put("/mine", b"").await;
    put("/mine/k", b"bytes").await;
    put("/mine?policy", POLICY).await;
    server
}

async fn ask(server: &Server, lines: &[&str]) -> Answer {
    let headers: Vec<(&str, &str)> = lines.iter().map(|line| ("X-Forwarded-For", *line)).collect();
    server.unsigned(Request { path: "/mine/k", headers: &headers, ..Default::default() }).await
}

/// The log's line about the request that was answered so.
async fn logged(server: &Server, answer: &Answer) -> Value {
    let (id, path) = (answer.header("x-amz-request-id"), server.dir.0.join("access.log"));
    let line = || {
        let text = std::fs::read_to_string(&path).unwrap();
        // The last one may be on its way still.
        let mut lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.find(|line| line["id"] == id)
    };
    let found = async {
        loop {
            if let Some(line) = line() {
                return line;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), found).await.expect("the line is written")
}

#[tokio::test]
async fn a_trusted_proxy_says_whom_policies_judge_and_the_log_names() {
    let server = started("127.0.0.0/8, 10.0.0.0/8").await;
    for (lines, status, client) in [
        (&[][..], 403, "127.0.0.1"),
        (&["203.0.113.7"], 200, "203.0.113.7"),
        (&["203.0.113.7:4711, 10.0.0.8"], 200, "203.0.113.7"),
        (&["198.51.100.1", "203.0.113.7", "10.0.0.8"], 200, "203.0.113.7"),
        // Whoever makes up an entry has another one behind it.
        (&["203.0.113.7, 198.51.100.1"], 403, "198.51.100.1"),
        (&["203.0.113.7", "198.51.100.1, 10.0.0.8"], 403, "198.51.100.1"),
        (&["203.0.113.7, unknown"], 403, "127.0.0.1"),
        (&["203.0.113.7, unknown, 10.0.0.8"], 403, "10.0.0.8"),
    ] {
        let answer = ask(&server, lines).await;
        assert_eq!(answer.status, status, "{lines:?}: {}", answer.text());
        assert_eq!(logged(&server, &answer).await["peer"], client, "{lines:?}");
    }
}

#[tokio::test]
async fn nobody_else_is_believed() {
    for trusted in ["", "10.0.0.0/8, 127.0.0.2"] {
        let server = started(trusted).await;
        for lines in [&["203.0.113.7"][..], &["203.0.113.7", "10.0.0.8"]] {
            let answer = ask(&server, lines).await;
            assert_eq!(answer.status, 403, "{trusted} {lines:?}: {}", answer.text());
            assert_eq!(logged(&server, &answer).await["peer"], "127.0.0.1", "{trusted} {lines:?}");
        }
    }
}

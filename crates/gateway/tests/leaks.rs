//! What a back end that answers garbage again and again leaves behind: nothing. The only test of
//! its process, whose descriptors and memory it looks at.

#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

mod common;

use common::raw::{ask, at_rest, until};
use common::{Lane, Request, Server};
use futures_util::future::join_all;

/// Each strikes a share of the requests.
const FAULTS: &[&str] = &[
    "html,p=0.1",
    "error-200,p=0.1",
    "cut=1000,p=0.1",
    "cut=100000,p=0.1",
    "truncate=1000,p=0.1",
    "lie-length=-5,p=0.1",
    "wrong-range=+1,p=0.1",
    "ignore-range,p=0.1",
    "reset,p=0.1",
    "reset-upload=50000,p=0.1",
    "lost-answer,p=0.1",
];
const LARGE: usize = 300_000;
const AT_ONCE: usize = 64;
const CONNECTIONS: usize = 8;
/// Those that are kept for the next request have both their ends in this process, and there may be
/// more of them at one moment than at another.
const DESCRIPTORS_SLACK: usize = 2 * 2 * CONNECTIONS + 8;
const MEMORY_SLACK_BYTES: u64 = 24 << 20;

/// Descriptors and resident bytes of this process, the fake included.
fn held() -> (usize, u64) {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    (descriptors, line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10)
}

async fn round(server: &Server, large: &[u8]) {
    let batch = b"<Delete><Object><Key>gone</Key></Object></Delete>";
    let (source, range) = ([("x-amz-copy-source", "/lake/k")], [("range", "bytes=1000-250999")]);
    let request = |method, path, body| Request { method, path, body, ..Default::default() };
    let asked = [
        request("GET", "/lake/k", b""),
        Request { headers: &range, ..request("GET", "/lake/k", b"") },
        request("HEAD", "/lake/k", b""),
        request("PUT", "/lake/small", b"small"),
        request("PUT", "/lake/large", large),
        Request { headers: &source, ..request("PUT", "/lake/copied", b"") },
        request("GET", "/lake?list-type=2", b""),
        request("DELETE", "/lake/gone", b""),
        request("POST", "/lake?delete", batch),
        request("POST", "/lake/upload?uploads", b""),
    ];
    let asked = asked.iter().cycle().take(AT_ONCE);
    join_all(asked.map(|request| ask(server, request))).await;
}

async fn begun(lane: Lane, large: &[u8]) -> Server {
    let server = Server::on_with(lane, |options| {
        options.serve.backend_deadline_ms = 150;
        options.settings.stall_timeout_ms = 150;
        options.settings.connections_per_host = CONNECTIONS as u64;
    })
    .await;
    assert_eq!(server.put("/lake/k", large).await.status, 200);
    let fake = server.fake.as_ref().unwrap();
    FAULTS.iter().for_each(|fault| fake.fault(fault));
    server
}

#[tokio::test]
async fn garbage_leaves_nothing_behind() {
    let large = vec![7; LARGE];
    let servers = [begun(Lane::Azure, &large).await, begun(Lane::S3, &large).await];
    let rounds = async |count: usize| {
        for _ in 0..count {
            join_all(servers.iter().map(|server| round(server, &large))).await;
        }
        for server in &servers {
            at_rest(server).await;
        }
    };
    rounds(3).await;
    let (descriptors, memory) = held();
    rounds(6).await;
    for server in &servers {
        let fired = server.fake.as_ref().unwrap().faults().fired();
        assert!(fired.iter().all(|count| *count > 0), "each has struck: {fired:?}");
    }
    // The other ends of its connections are in this process too, and end a moment later.
    until("descriptors come back", async || held().0 <= descriptors + DESCRIPTORS_SLACK).await;
    let grown = held().1.saturating_sub(memory);
    assert!(grown <= MEMORY_SLACK_BYTES, "{} MB more than before", grown >> 20);
}

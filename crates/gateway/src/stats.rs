//! Counts what the gateway did and what it cost, for `GET /_penstock/stats`.
//!
//! Process figures come from /proc, so that a benchmark reads the server's own account of itself.

use crate::telemetry::{Count, Rows};
use serde::Serialize;
use std::collections::BTreeMap;

/// Clock ticks per second in /proc (`USER_HZ`), 100 on every architecture that Linux runs on today.
const TICKS_PER_SECOND: f64 = 100.0;

/// Methods that are counted by their names.
const METHODS: [&str; 6] = ["DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT"];

/// Counters since the start.
#[derive(Debug, Default)]
pub struct Stats {
    methods: Rows<Count>,
    operations: Rows<Count>,
    bytes_in: Count,
    bytes_out: Count,
    connections: Count,
}

/// What the endpoint prints.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    /// Requests, the gateway's own endpoints aside.
    pub requests: Requests,
    /// Bytes read from connections, heads included.
    pub bytes_in: u64,
    /// Bytes written to connections, heads included.
    pub bytes_out: u64,
    /// Connections accepted.
    pub connections: u64,
    /// Processor time of this process.
    pub cpu_seconds: f64,
    /// Resident memory now.
    pub rss_bytes: u64,
    /// Most resident memory so far.
    pub peak_rss_bytes: u64,
}

/// Requests by what they are.
#[derive(Debug, Serialize)]
pub struct Requests {
    /// All of them.
    pub total: u64,
    /// By HTTP method.
    pub method: BTreeMap<String, u64>,
    /// By S3 operation; those that failed before one was known are missing here.
    pub operation: BTreeMap<String, u64>,
}

impl Stats {
    /// A connection was accepted.
    pub fn connection(&self) {
        self.connections.add(1);
    }

    /// A request's head was read.
    pub fn request(&self, method: &str) {
        // A client may call its method what it likes.
        self.methods.of(if METHODS.contains(&method) { method } else { "other" }).add(1);
    }

    /// A request turned out to be this S3 operation.
    pub fn operation(&self, name: &str) {
        self.operations.of(name).add(1);
    }

    /// Bytes came in.
    pub fn received(&self, bytes: usize) {
        self.bytes_in.add(bytes as u64);
    }

    /// Bytes went out.
    pub fn sent(&self, bytes: usize) {
        self.bytes_out.add(bytes as u64);
    }

    /// The values now.
    pub fn snapshot(&self) -> Snapshot {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let method = copy(&self.methods);
        let total = method.values().sum();
        Snapshot {
            requests: Requests { total, method, operation: copy(&self.operations) },
            bytes_in: self.bytes_in.get(),
            bytes_out: self.bytes_out.get(),
            connections: self.connections.get(),
            cpu_seconds: cpu_seconds(&stat),
            rss_bytes: status_bytes(&status, "VmRSS:"),
            peak_rss_bytes: status_bytes(&status, "VmHWM:"),
        }
    }
}

fn copy(counts: &Rows<Count>) -> BTreeMap<String, u64> {
    counts.sorted().into_iter().map(|(name, count)| (name.to_string(), count.get())).collect()
}

/// User and system time: fields 14 and 15, counted after the command name, which may hold spaces.
fn cpu_seconds(stat: &str) -> f64 {
    let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks: u64 =
        after_name.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / TICKS_PER_SECOND
}

fn status_bytes(status: &str, field: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().map_or(0, |kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_process_figures_appear() {
        let stats = Stats::default();
        stats.request("GET");
        stats.request("GET");
        stats.operation("GetObject");
        stats.received(3);
        let snapshot = stats.snapshot();
        assert_eq!(snapshot.requests.method["GET"], 2);
        assert_eq!(snapshot.requests.operation["GetObject"], 1);
        assert_eq!(snapshot.bytes_in, 3);
        assert!(snapshot.peak_rss_bytes >= snapshot.rss_bytes && snapshot.rss_bytes > 0);
    }

    #[test]
    fn command_names_with_spaces_do_not_shift_the_fields() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0";
        assert_eq!(cpu_seconds(stat), 3.0);
    }
}

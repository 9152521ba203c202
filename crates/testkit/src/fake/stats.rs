//! What a fake counts and remembers, and what it says of its own process.

use super::http::wire::Counters;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Clock ticks a second in `/proc/self/stat`, fixed on Linux.
const TICKS_PER_S: f64 = 100.0;

/// One request, as it was served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    /// `GET`, `PUT`, ...
    pub method: String,
    /// The service's name for it, such as `GetObject`.
    pub operation: &'static str,
    /// Path and query as sent, signatures cut out.
    pub path: String,
    /// Range asked for, or empty.
    pub range: String,
    /// The header `traceparent`, or empty.
    pub traceparent: String,
    /// The headers that a signature of version 4 covers, or empty.
    pub signed_headers: String,
    /// Status answered; 0 when the connection was cut instead.
    pub status: u16,
    /// Body bytes received.
    pub bytes_in: u64,
    /// Body bytes sent.
    pub bytes_out: u64,
    /// Microseconds from the start of the server (or its last reset) to the end of the head.
    pub start_us: u64,
    /// Microseconds from there to the last byte of the answer.
    pub total_us: u64,
    /// Serial number of the connection.
    pub connection: u64,
}

/// Counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatsSnapshot {
    /// All requests.
    pub requests: u64,
    /// Requests by method.
    pub methods: BTreeMap<String, u64>,
    /// Requests by operation.
    pub operations: BTreeMap<String, u64>,
    /// Requests by status answered; 0 where the connection was cut instead.
    pub statuses: BTreeMap<u16, u64>,
    /// Bytes received, heads included.
    pub bytes_in: u64,
    /// Bytes sent, heads included.
    pub bytes_out: u64,
    /// Connections accepted.
    pub connections: u64,
    /// Most requests in flight at once.
    pub in_flight_max: u64,
}

impl StatsSnapshot {
    /// Requests of an operation.
    pub fn operation(&self, name: &str) -> u64 {
        self.operations.get(name).copied().unwrap_or(0)
    }

    /// Requests of a method.
    pub fn method(&self, name: &str) -> u64 {
        self.methods.get(name).copied().unwrap_or(0)
    }
}

/// Where the record of a request is.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    begun: Instant,
    serial: u64,
}

#[derive(Debug)]
struct Log {
    begin: Instant,
    snapshot: StatsSnapshot,
    requests: VecDeque<RequestRecord>,
}

/// Counters and the log of one server.
#[derive(Debug)]
pub struct Stats {
    /// Bytes over all connections.
    pub counters: Arc<Counters>,
    log: Mutex<Log>,
    log_entries: usize,
    in_flight: AtomicU64,
    in_flight_max: AtomicU64,
}

impl Stats {
    /// Remembers the last `log_entries` requests.
    pub fn new(log_entries: usize) -> Self {
        let log = Log {
            begin: Instant::now(),
            snapshot: StatsSnapshot::default(),
            requests: VecDeque::new(),
        };
        Stats {
            counters: Arc::default(),
            log: Mutex::new(log),
            log_entries,
            in_flight: AtomicU64::new(0),
            in_flight_max: AtomicU64::new(0),
        }
    }

    fn log(&self) -> std::sync::MutexGuard<'_, Log> {
        self.log.lock().expect("no holder of this lock panics")
    }

    /// A connection was accepted.
    pub fn connected(&self) {
        self.log().snapshot.connections += 1;
    }

    /// A request began; it lasts until the guard is dropped.
    pub fn begin(&self) -> InFlight<'_> {
        let now = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        self.in_flight_max.fetch_max(now, Ordering::Relaxed);
        InFlight(self)
    }

    /// Requests whose answers have not been sent yet.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Microseconds since the start or the last reset.
    pub fn since_begin(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.log().begin).as_micros() as u64
    }

    /// A request is about to be answered: it is counted before its client can know, so whoever has
    /// the answer finds it here. One that began before the last reset is forgotten with the others
    /// of its time: one that was stalled may be answered a minute later.
    pub fn answering(&self, begun: Instant, record: RequestRecord) -> Place {
        let mut log = self.log();
        let place = Place { begun, serial: log.snapshot.requests };
        if begun < log.begin {
            return place;
        }
        let snapshot = &mut log.snapshot;
        snapshot.requests += 1;
        *snapshot.methods.entry(record.method.clone()).or_default() += 1;
        *snapshot.operations.entry(record.operation.to_string()).or_default() += 1;
        *snapshot.statuses.entry(record.status).or_default() += 1;
        if log.requests.len() == self.log_entries {
            log.requests.pop_front();
        }
        if self.log_entries > 0 {
            log.requests.push_back(record);
        }
        place
    }

    /// Its answer went out, or what of it did.
    pub fn answered(&self, place: Place, bytes_out: u64) {
        let mut log = self.log();
        if place.begun < log.begin {
            return;
        }
        // The log ends with the newest request, whose serial is one less than their number.
        let from_end = (log.snapshot.requests - place.serial) as usize;
        let index = log.requests.len().checked_sub(from_end);
        if let Some(record) = index.and_then(|index| log.requests.get_mut(index)) {
            record.bytes_out = bytes_out;
            record.total_us = place.begun.elapsed().as_micros() as u64;
        }
    }

    /// Counters at this moment.
    pub fn snapshot(&self) -> StatsSnapshot {
        let mut snapshot = self.log().snapshot.clone();
        snapshot.bytes_in = self.counters.bytes_in.load(Ordering::Relaxed);
        snapshot.bytes_out = self.counters.bytes_out.load(Ordering::Relaxed);
        snapshot.in_flight_max = self.in_flight_max.load(Ordering::Relaxed);
        snapshot
    }

    /// The last requests, oldest first.
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.log().requests.iter().cloned().collect()
    }

    /// Forgets everything counted, and restarts the peak of resident memory.
    pub fn reset(&self) {
        let mut log = self.log();
        log.begin = Instant::now();
        log.snapshot = StatsSnapshot::default();
        log.requests.clear();
        self.counters.bytes_in.store(0, Ordering::Relaxed);
        self.counters.bytes_out.store(0, Ordering::Relaxed);
        self.in_flight_max.store(self.in_flight.load(Ordering::Relaxed), Ordering::Relaxed);
        // 5 resets VmHWM (proc(5)); where that is not allowed the peak is that of the whole run.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
    }

    /// The answer of `/_penstock/stats`.
    pub fn to_json(&self) -> Value {
        let snapshot = self.snapshot();
        let statuses: BTreeMap<String, u64> =
            snapshot.statuses.iter().map(|(status, count)| (status.to_string(), *count)).collect();
        let process = Process::read();
        json!({
            "requests": {
                "total": snapshot.requests,
                "method": snapshot.methods,
                "operation": snapshot.operations,
                "status": statuses,
            },
            "bytes_in": snapshot.bytes_in,
            "bytes_out": snapshot.bytes_out,
            "connections": snapshot.connections,
            "in_flight_max": snapshot.in_flight_max,
            "cpu_seconds": process.cpu_seconds,
            "rss_bytes": process.rss_bytes,
            "peak_rss_bytes": process.peak_rss_bytes,
        })
    }

    /// The answer of `/_penstock/requests`: the last `most` requests, oldest first.
    pub fn requests_json(&self, most: usize) -> Value {
        let log = self.log();
        let skip = log.requests.len().saturating_sub(most);
        let to_json = |record: &RequestRecord| {
            json!({
                "method": record.method,
                "operation": record.operation,
                "path": record.path,
                "range": record.range,
                "status": record.status,
                "bytes_in": record.bytes_in,
                "bytes_out": record.bytes_out,
                "start_us": record.start_us,
                "total_us": record.total_us,
                "connection": record.connection,
            })
        };
        log.requests.iter().skip(skip).map(to_json).collect()
    }
}

/// Counts a request as in flight.
#[derive(Debug)]
pub struct InFlight<'a>(&'a Stats);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the kernel says of this process; zeros where there is no `/proc`.
#[derive(Clone, Copy, Debug, Default)]
struct Process {
    cpu_seconds: f64,
    rss_bytes: u64,
    peak_rss_bytes: u64,
}

impl Process {
    fn read() -> Self {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Process {
            cpu_seconds: cpu_ticks(&stat) as f64 / TICKS_PER_S,
            rss_bytes: kib_line(&status, "VmRSS:") * 1024,
            peak_rss_bytes: kib_line(&status, "VmHWM:") * 1024,
        }
    }
}

/// User and system ticks: fields 14 and 15, counted after the name in parentheses.
fn cpu_ticks(stat: &str) -> u64 {
    let after_name = stat.rsplit(')').next().unwrap_or("");
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    let field = |index: usize| fields.get(index).and_then(|text| text.parse().ok()).unwrap_or(0);
    field(11) + field(12)
}

fn kib_line(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("");
    line.trim().trim_end_matches("kB").trim().parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_began_before_a_reset_is_not_counted_after_it() {
        let stats = Stats::new(10);
        let record = RequestRecord {
            method: "GET".into(),
            operation: "GetObject",
            path: "/b/k".into(),
            range: String::new(),
            traceparent: String::new(),
            signed_headers: String::new(),
            status: 200,
            bytes_in: 0,
            bytes_out: 0,
            start_us: 0,
            total_us: 0,
            connection: 1,
        };
        let places = [(); 2].map(|()| stats.answering(Instant::now(), record.clone()));
        assert_eq!(stats.snapshot().requests, 2);
        stats.answered(places[0], 7);
        let sent = |stats: &Stats| -> Vec<u64> {
            stats.requests().iter().map(|record| record.bytes_out).collect()
        };
        assert_eq!(sent(&stats), [7, 0]);
        let begun = Instant::now();
        stats.reset();
        stats.answered(places[1], 7);
        stats.answered(stats.answering(begun, record.clone()), 7);
        assert!(stats.requests().is_empty());
        // Of a log that is shorter than what there was, what is left is found.
        let short = Stats::new(1);
        let places = [(); 2].map(|()| short.answering(Instant::now(), record.clone()));
        for (place, bytes) in places.into_iter().zip([8, 9]) {
            short.answered(place, bytes);
        }
        assert_eq!(sent(&short), [9]);
    }

    #[test]
    fn proc_lines_are_read() {
        let stat = "42 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0";
        assert_eq!(cpu_ticks(stat), 200);
        assert_eq!(kib_line("VmRSS:\t   120 kB\nVmHWM:\t 340 kB\n", "VmHWM:"), 340);
        assert_eq!(cpu_ticks("") + kib_line("", "VmRSS:"), 0);
    }
}

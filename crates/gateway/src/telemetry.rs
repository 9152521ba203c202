//! What the gateway counts for `/metrics`, and how it is printed.
//!
//! Every figure belongs to a row of [`penstock_base::metrics::GATEWAY`]; no label can take
//! unboundedly many values.

mod backends;
mod counts;
mod prometheus;

use crate::notices::Notices;
use crate::ready::Found;
use crate::stats::Snapshot;
use backends::BackendCounts;
pub use backends::BackendObserver;
pub use counts::{Count, Rows};
use counts::{Statuses, Times};
use penstock_base::{Metric, Metrics, metrics as table};
use prometheus::{Family, Sample};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Why a request was told to slow down.
#[derive(Clone, Copy, Debug)]
pub enum Refused {
    /// Too many requests at work.
    Busy,
    /// Its key's rate.
    Rate,
    /// The rate of unsigned requests.
    Public,
    /// Room for forms.
    Forms,
    /// Room for documents.
    Documents,
}

impl Refused {
    /// Each with the value of its label, in the order in which they are counted.
    const ALL: [(Refused, &str); 5] = [
        (Refused::Busy, "busy"),
        (Refused::Rate, "rate"),
        (Refused::Public, "public"),
        (Refused::Forms, "forms"),
        (Refused::Documents, "documents"),
    ];
}

/// Upper bounds: from half a millisecond (a small read from the page cache) to a minute (a slow
/// upload).
const BOUNDS: &[Duration] = &[
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2500),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(60),
];

/// Requests of one operation.
#[derive(Debug, Default)]
struct Operation {
    statuses: Statuses,
    total: Times,
    first_byte: Times,
}

/// The counters of one gateway, and where it says what happens.
#[derive(Debug)]
pub struct Telemetry {
    /// Lines for the operator.
    pub notices: Notices,
    operations: Rows<Operation>,
    /// In the order in which they were opened.
    back_ends: Mutex<Vec<Arc<BackendCounts>>>,
    ready: Mutex<BTreeMap<String, bool>>,
    /// Body bytes that clients sent.
    pub received: Count,
    /// Body bytes that clients were sent.
    pub sent: Count,
    /// Requests at work.
    pub in_flight: Count,
    /// Connections accepted.
    pub connections: Count,
    /// Connections open.
    pub connections_open: Count,
    /// Connections that could not be accepted.
    pub accept_failures: Count,
    /// Handshakes that failed.
    pub tls_failures: Count,
    /// Reloads that worked.
    pub tls_reloads: Count,
    /// Reloads after which the old certificate stayed.
    pub tls_reloads_failed: Count,
    /// Lines that the access log lost.
    pub log_lost: Count,
    refused: [Count; Refused::ALL.len()],
    started: SystemTime,
}

impl Telemetry {
    /// Zeroes, of a process that started then.
    pub fn new(started: SystemTime) -> Self {
        Telemetry::saying(started, Notices::default())
    }

    /// The same, with its lines elsewhere.
    pub fn saying(started: SystemTime, notices: Notices) -> Self {
        Telemetry {
            notices,
            operations: Rows::default(),
            back_ends: Mutex::default(),
            ready: Mutex::default(),
            received: Count::default(),
            sent: Count::default(),
            in_flight: Count::default(),
            connections: Count::default(),
            connections_open: Count::default(),
            accept_failures: Count::default(),
            tls_failures: Count::default(),
            tls_reloads: Count::default(),
            tls_reloads_failed: Count::default(),
            log_lost: Count::default(),
            refused: Default::default(),
            started,
        }
    }

    /// A request was answered.
    pub fn request(&self, operation: &str, status: u16, first_byte: Duration, total: Duration) {
        let row = self.operations.of(operation);
        row.statuses.add(status);
        row.first_byte.observe(first_byte);
        row.total.observe(total);
    }

    /// A request was told to slow down.
    pub fn refused(&self, reason: Refused) {
        self.refused[reason as usize].add(1);
    }

    /// The counters of the back end of this name, for its observer.
    pub fn back_end(&self, name: &str) -> Arc<BackendCounts> {
        let mut all = self.back_ends.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.iter().find(|known| known.name() == name) {
            return known.clone();
        }
        let counts = Arc::new(BackendCounts::new(name, self.notices.clone()));
        all.push(counts.clone());
        counts
    }

    /// What `/readyz` found of a back end.
    pub(crate) fn looked(&self, name: &str, found: Found) {
        self.back_end(name).presence.looked(found);
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        ready.insert(name.to_string(), found.is_there);
    }

    /// The page for Prometheus, with what the engine counted and the process's own figures.
    pub fn page(&self, engine: &Metrics, process: &Snapshot) -> String {
        let mut families = self.request_families();
        families.extend(self.traffic_families());
        families.extend(self.backend_families());
        families.extend(engine_families(engine));
        families.extend(self.process_families(process));
        families.sort_by_key(|family| {
            table::GATEWAY.iter().position(|metric| metric.name == family.metric.name)
        });
        prometheus::render(&families)
    }

    fn request_families(&self) -> Vec<Family> {
        let mut requests = Family::new(table::REQUESTS);
        let mut total = Family::new(table::REQUEST_SECONDS);
        let mut first_byte = Family::new(table::FIRST_BYTE_SECONDS);
        for (name, row) in self.operations.sorted() {
            for (status, count) in row.statuses.counted() {
                requests.push(Sample::of([name, &status.to_string()], count as f64));
            }
            total.push(Sample::histogram([name], &row.total.histogram()));
            first_byte.push(Sample::histogram([name], &row.first_byte.histogram()));
        }
        vec![requests, total, first_byte]
    }

    fn traffic_families(&self) -> Vec<Family> {
        let plain = |metric, count: &Count| Family::single(metric, count.get() as f64);
        let mut refused = Family::new(table::REFUSED);
        for (count, (_, label)) in self.refused.iter().zip(Refused::ALL) {
            refused.push(Sample::of([label], count.get() as f64));
        }
        let mut reloads = Family::new(table::TLS_RELOADS);
        reloads.push(Sample::of(["ok"], self.tls_reloads.get() as f64));
        reloads.push(Sample::of(["failed"], self.tls_reloads_failed.get() as f64));
        vec![
            plain(table::RECEIVED_BYTES, &self.received),
            plain(table::SENT_BYTES, &self.sent),
            plain(table::IN_FLIGHT, &self.in_flight),
            plain(table::CONNECTIONS, &self.connections),
            plain(table::CONNECTIONS_OPEN, &self.connections_open),
            plain(table::ACCEPT_FAILURES, &self.accept_failures),
            plain(table::TLS_FAILURES, &self.tls_failures),
            plain(table::LOG_LOST, &self.log_lost),
            refused,
            reloads,
        ]
    }

    fn backend_families(&self) -> Vec<Family> {
        let all = self.back_ends.lock().unwrap_or_else(PoisonError::into_inner);
        let mut families = backends::families(&all);
        let ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        let mut answers = Family::new(table::BACKEND_READY);
        for (name, is_ready) in ready.iter() {
            answers.push(Sample::of([name.as_str()], f64::from(u8::from(*is_ready))));
        }
        families.push(answers);
        families
    }

    fn process_families(&self, process: &Snapshot) -> Vec<Family> {
        let started = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut build = Family::new(table::BUILD);
        build.push(Sample::of([env!("CARGO_PKG_VERSION")], 1.0));
        vec![
            Family::single(table::CPU_SECONDS, process.cpu_seconds),
            Family::single(table::RSS_BYTES, process.rss_bytes as f64),
            Family::single(table::OPEN_FILES, open_files() as f64),
            Family::single(table::START_SECONDS, started.as_secs_f64()),
            build,
        ]
    }
}

/// What the engine counts for itself, and this only tells.
fn engine_families(engine: &Metrics) -> Vec<Family> {
    let labelled = |metric, rows: [(&str, Metric); 2]| {
        let mut family = Family::new(metric);
        for (label, counted) in rows {
            family.push(Sample::of([label], engine.get(counted) as f64));
        }
        family
    };
    let plain = |metric, counted| Family::single(metric, engine.get(counted) as f64);
    let bytes = [("memory", Metric::CacheMemoryBytesRead), ("disk", Metric::CacheDiskBytesRead)];
    vec![
        labelled(
            table::CACHE_HITS,
            [("memory", Metric::CacheMemoryHits), ("disk", Metric::CacheDiskHits)],
        ),
        labelled(table::CACHE_READ_BYTES, bytes),
        labelled(
            table::CACHE_DISK_LOST,
            [
                ("refused", Metric::CacheDiskBlocksFailed),
                ("corrupt", Metric::CacheDiskBlocksCorrupt),
            ],
        ),
        plain(table::CACHE_DISK_SKIPPED, Metric::CacheDiskBytesSkipped),
        plain(table::READ_AHEAD_HITS, Metric::ReadAheadHits),
        plain(table::READ_AHEAD_BYTES, Metric::ReadAheadBytes),
        plain(table::READ_AHEAD_WASTED, Metric::ReadAheadWastedBytes),
    ]
}

/// Descriptors of this process.
fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

#[cfg(test)]
mod tests;

//! The one table of counters, and their atomic values; and the tables of devices' and of the
//! gateway's metrics.
//!
//! `penstock_stats()` prints from [`Metric::ALL`] and [`DeviceMetric::ALL`], the box in EXPLAIN
//! ANALYZE from the first, `/metrics` of the gateway from [`GATEWAY`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A time as counters have it: in microseconds.
pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

macro_rules! metrics {
    (
        $(#[$about:meta])* $table:ident
        $($variant:ident $area:ident $name:literal $unit:literal $doc:literal;)*
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum $table {
            $(#[doc = $doc] $variant,)*
        }

        impl $table {
            /// Every metric with its stable name, unit and meaning.
            pub const ALL: &'static [($table, &'static str, &'static str, &'static str)] = &[
                $(($table::$variant, $name, $unit, $doc),)*
            ];

            /// What it is about: a group of the table.
            pub fn area(self) -> &'static str {
                match self {
                    $($table::$variant => stringify!($area),)*
                }
            }
        }
    };
}

metrics! {
    /// A counter, or a gauge where its name ends in `_now`.
    Metric
    Requests requests "requests" "count" "Requests sent, retries included.";
    RequestsGet requests "requests_get" "count" "GET requests sent.";
    RequestsHead requests "requests_head" "count" "HEAD requests sent.";
    RequestsPut requests "requests_put" "count" "PUT requests sent.";
    RequestsPost requests "requests_post" "count" "POST requests sent.";
    RequestsDelete requests "requests_delete" "count" "DELETE requests sent.";
    RequestsHedged requests "requests_hedged" "count"
        "Second requests for answers that were late, at most 2 % of the GET requests.";
    BodiesReplaced requests "bodies_replaced" "count"
        "Answers that came far slower than others of their store and were asked for again, within the same 2 %.";
    Retries requests "retries" "count" "Requests that were sent again.";
    Errors requests "errors" "count" "Requests that ended in an error for the caller.";
    BytesRead requests "bytes_read" "bytes" "Body bytes received.";
    BytesWritten requests "bytes_written" "bytes" "Body bytes sent.";
    RequestMicros requests "request_time_us" "microseconds"
        "Sum of the time from sending each request to its last byte.";
    WaitMicros waits "wait_time_us" "microseconds"
        "Sum of the time that callers were blocked on I/O.";
    WaitLinkMicros waits "wait_link_time_us" "microseconds"
        "Of `wait_time_us`, the wait for bytes of answers that had begun.";
    WaitStoreMicros waits "wait_store_time_us" "microseconds"
        "Of `wait_time_us`, the wait for first bytes of answers: connections, pauses before a request is sent again and the time that an upload takes are in it.";
    WaitMemoryMicros waits "wait_memory_time_us" "microseconds"
        "Of `wait_time_us`, the wait for memory within the limit.";
    Connections connections "connections" "count" "Connections opened.";
    ConnectionsWarmed connections "connections_warmed" "count"
        "Of these, connections opened before a request needed them; each other one was waited for.";
    ConnectionsUnwarmed connections "connections_unwarmed" "count"
        "Attempts to open one that failed; the requests that needed one opened their own.";
    MetadataHits metadata "metadata_hits" "count" "Opens answered from remembered metadata.";
    MetadataMisses metadata "metadata_misses" "count" "Opens that had to ask the store.";
    ListingHits metadata "listing_hits" "count"
        "Pages of listings that were remembered, or came with the request of another who asked for the same.";
    OpenFetchHits reads "open_fetch_hits" "count" "Reads answered from the bytes fetched at open.";
    ReadAheadHits reads "read_ahead_hits" "count"
        "Reads answered from bytes that were fetched ahead.";
    FlightsShared reads "flights_shared" "count"
        "Spans, or parts of them, that came with a request of another reader, or lay ready for one.";
    ReadAheadHitBytes reads "read_ahead_hit_bytes" "bytes"
        "Bytes of reads that were fetched ahead, or on their way.";
    ReadAheadBytes reads "read_ahead_bytes" "bytes"
        "Bytes asked of stores ahead of reads; of files that are opened ahead, those that came.";
    ReadAheadWastedBytes reads "read_ahead_wasted_bytes" "bytes"
        "Of these, bytes that arrived and no read wanted, or that had to be asked for again.";
    CacheHits cache "cache_hits" "count"
        "Blocks read from the caches of bytes, on disk and in memory.";
    CacheBytesRead cache "cache_bytes_read" "bytes" "Bytes read from these caches.";
    CacheMemoryHits cache "cache_memory_hits" "count"
        "Of these blocks, those that were in memory, on their way to the disk or for good.";
    CacheMemoryBytesRead cache "cache_memory_bytes_read" "bytes" "Bytes of these.";
    CacheDiskHits cache "cache_disk_hits" "count" "The others, which were read from the disk.";
    CacheDiskBytesRead cache "cache_disk_bytes_read" "bytes" "Bytes of these.";
    CacheDiskBytesSkipped cache "cache_disk_bytes_skipped" "bytes"
        "Bytes that were fetched and not given to the disk cache: its disk stood still, or no memory was free.";
    CacheDiskBlocksFailed cache "cache_disk_blocks_failed" "count"
        "Blocks that the disk cache could not write; counted for the engine alone, as the writer serves all statements.";
    CacheDiskBlocksCorrupt cache "cache_disk_blocks_corrupt" "count"
        "Blocks of the disk cache that could not be read as they were written, and were fetched again; counted for the engine alone.";
    WrappedReads wrapped "wrapped_reads" "count" "Reads of wrapped file systems, split or not.";
    WrappedReadsSplit wrapped "wrapped_reads_split" "count"
        "Reads of wrapped file systems that became several sub-reads at once.";
    WrappedSubReads wrapped "wrapped_sub_reads" "count" "Sub-reads of the reads that were split.";
    VolumeReads volumes "volume_reads" "count"
        "Reads of files on volumes (`nvme://`) by the plans of statements, from the device or from memory that was read ahead.";
    VolumeBytesRead volumes "volume_bytes_read" "bytes" "Bytes of these reads.";
    VolumeReadMicros volumes "volume_read_time_us" "microseconds"
        "Sum of the time that these reads took.";
    Uploads uploads "uploads" "count" "Objects made durable.";
    UploadsAborted uploads "uploads_aborted" "count" "Uploads given up; nothing became visible.";
    MemoryHeldNow memory "memory_held_bytes_now" "bytes"
        "Bytes of the memory limit in use; up to a sixteenth of the limit stays in use between queries, for bytes of opened objects that are kept.";
    MemoryOfVolumesNow memory "memory_of_volumes_bytes_now" "bytes"
        "Of these, bytes of what volumes on devices read ahead and write behind, of what was spilled to them within the limit, and of memory that they keep for it.";
    MemoryOfSpillsNow memory "memory_of_spills_bytes_now" "bytes"
        "Bytes of what was spilled to devices and is in memory, within the limit and beside it.";
    MemoryOfSpillsBesideNow memory "memory_of_spills_beside_bytes_now" "bytes"
        "Of these, bytes beside the limit: those that memory_held_bytes_now does not count.";
}

metrics! {
    /// What is counted of each queue of a block device. The counts are the process's.
    DeviceMetric
    Reads devices "device_reads" "count" "Read commands that ended on block devices.";
    Writes devices "device_writes" "count" "Write commands that ended.";
    Flushes devices "device_flushes" "count" "Flush commands that ended.";
    Trims devices "device_trims" "count" "Trim commands that ended.";
    Errors devices "device_errors" "count" "Of all commands, those that failed.";
    BytesRead devices "device_bytes_read" "bytes" "Bytes of the read commands.";
    BytesWritten devices "device_bytes_written" "bytes" "Bytes of the write commands.";
    BytesInPlace devices "device_bytes_in_place" "bytes"
        "Bytes of blocks of volumes that were overwritten where they lay, for want of room: a power cut before the next sync may leave parts of both.";
    InFlightNow devices "device_in_flight_now" "count" "Commands that devices are at work on.";
    InFlightMost devices "device_in_flight_most" "count"
        "Most commands of one queue that a device was at work on at once.";
    TimeMicros devices "device_time_us" "microseconds"
        "Sum of the time from giving each command to a device to its end.";
    Latency devices "device_latency" "count"
        "Commands by the time that they took: longer than the row before, up to `upto_us`, or without bound where that is NULL; rows of none are left out.";
}

/// What a metric of the gateway does over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Only grows; its name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution: `_bucket`, `_sum` and `_count`.
    Histogram,
}

impl Shape {
    /// The word that Prometheus has for it.
    pub fn name(self) -> &'static str {
        match self {
            Shape::Counter => "counter",
            Shape::Gauge => "gauge",
            Shape::Histogram => "histogram",
        }
    }
}

/// One metric of `/metrics`. No label names a bucket, an object or a client: their number has no
/// bound, and their names are nobody's business.
#[derive(Clone, Copy, Debug)]
pub struct GatewayMetric {
    /// Stable name, unit last but for `_total`.
    pub name: &'static str,
    /// What it does over time.
    pub shape: Shape,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// What it tells, in one sentence.
    pub doc: &'static str,
}

macro_rules! gateway_metrics {
    ($($constant:ident $name:literal $shape:ident [$($label:literal),*] $doc:literal;)*) => {
        $(#[doc = $doc] pub const $constant: &GatewayMetric = &GatewayMetric {
            name: $name,
            shape: Shape::$shape,
            labels: &[$($label),*],
            doc: $doc,
        };)*

        /// What `/metrics` of the gateway prints, in its order.
        pub const GATEWAY: &[&GatewayMetric] = &[$($constant),*];
    };
}

gateway_metrics! {
    REQUESTS "penstock_requests_total" Counter ["operation", "status"]
        "Requests answered, by S3 operation (`none` where the request failed before one was known) and HTTP status.";
    REQUEST_SECONDS "penstock_request_duration_seconds" Histogram ["operation"]
        "Time from a request's head to the last byte of its answer.";
    FIRST_BYTE_SECONDS "penstock_request_first_byte_seconds" Histogram ["operation"]
        "Time from a request's head to the head of its answer.";
    RECEIVED_BYTES "penstock_received_bytes_total" Counter []
        "Body bytes that clients sent.";
    SENT_BYTES "penstock_sent_bytes_total" Counter []
        "Body bytes that clients were sent.";
    IN_FLIGHT "penstock_requests_in_flight" Gauge []
        "Requests at work now.";
    REFUSED "penstock_requests_refused_total" Counter ["reason"]
        "Requests told to slow down: `busy` (requests_max), `rate` (their key's), `public` (that of unsigned requests), `forms` or `documents` (no memory for theirs).";
    CONNECTIONS "penstock_connections_total" Counter []
        "Connections accepted.";
    CONNECTIONS_OPEN "penstock_connections_open" Gauge []
        "Connections open now.";
    ACCEPT_FAILURES "penstock_accept_failures_total" Counter []
        "Connections that could not be accepted, on either port: as a rule the process has as many files open as it may.";
    TLS_FAILURES "penstock_tls_failures_total" Counter []
        "Connections that ended in their TLS handshake.";
    TLS_RELOADS "penstock_tls_reloads_total" Counter ["result"]
        "Reloads of the TLS files: `ok`, or `failed` where the old certificate stays.";
    BACKEND_REQUESTS "penstock_backend_requests_total" Counter ["backend", "method", "status"]
        "Requests to back ends over HTTP, by method and HTTP status (0 where none came).";
    BACKEND_SECONDS "penstock_backend_duration_seconds" Histogram ["backend", "method"]
        "Time from a back-end request to the last byte of its answer, its wait for a connection included.";
    BACKEND_SENT_BYTES "penstock_backend_sent_bytes_total" Counter ["backend"]
        "Body bytes sent to back ends over HTTP.";
    BACKEND_RECEIVED_BYTES "penstock_backend_received_bytes_total" Counter ["backend"]
        "Body bytes received from back ends over HTTP.";
    BACKEND_WAITING "penstock_backend_connections_awaited" Gauge ["backend"]
        "Requests that wait for a connection now, since connections_per_host are in use.";
    BACKEND_WAIT_SECONDS "penstock_backend_connection_wait_seconds" Histogram ["backend"]
        "Time of such waits that ended, with a connection or without; requests that found one at once are not among them.";
    RETRIES "penstock_backend_retries_total" Counter ["backend"]
        "Requests to back ends that were sent again after a failure.";
    HEDGES "penstock_backend_hedges_total" Counter ["backend", "reason"]
        "Second requests for reads, at most 2 % of them: the answer was `late`, or its body `slow`, far below others of its back end.";
    BACKEND_READY "penstock_backend_ready" Gauge ["backend"]
        "Whether a back end answered when /readyz last asked it (1) or not (0).";
    CACHE_HITS "penstock_cache_hits_total" Counter ["cache"]
        "Blocks that were read from the caches of bytes: `memory` (those too that wait to be written to the disk) or `disk`.";
    CACHE_READ_BYTES "penstock_cache_read_bytes_total" Counter ["cache"]
        "Bytes of these blocks.";
    CACHE_DISK_LOST "penstock_cache_disk_blocks_lost_total" Counter ["reason"]
        "Blocks that the disk of the cache did not take (`refused`), or gave back otherwise than they were written (`corrupt`).";
    CACHE_DISK_SKIPPED "penstock_cache_disk_skipped_bytes_total" Counter []
        "Bytes that were fetched and not given to the disk cache: its disk stood still, or no memory was free.";
    READ_AHEAD_HITS "penstock_read_ahead_hits_total" Counter []
        "Ranges of which something was fetched ahead of their clients: read_ahead_max_bytes.";
    READ_AHEAD_BYTES "penstock_read_ahead_bytes_total" Counter []
        "Bytes asked of back ends ahead of clients.";
    READ_AHEAD_WASTED "penstock_read_ahead_wasted_bytes_total" Counter []
        "Of these, bytes that came before their client was gone and that it did not ask for; the caches may still serve them to others.";
    LOG_LOST "penstock_access_log_lost_total" Counter []
        "Lines of the access log, and of that of back ends, that could not be written in time, or at all.";
    CPU_SECONDS "process_cpu_seconds_total" Counter []
        "Processor time of the process, user and system.";
    RSS_BYTES "process_resident_memory_bytes" Gauge []
        "Resident memory of the process.";
    OPEN_FILES "process_open_fds" Gauge []
        "Open file descriptors of the process.";
    START_SECONDS "process_start_time_seconds" Gauge []
        "When the process started, in seconds since 1970.";
    BUILD "penstock_build_info" Gauge ["version"]
        "Always 1; its label is the version.";
}

/// A set of counters; one lives in each engine and one in each query.
#[derive(Debug)]
pub struct Metrics([AtomicU64; Metric::ALL.len()]);

impl Default for Metrics {
    fn default() -> Self {
        Metrics(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Metrics {
    /// Adds to a counter or gauge.
    pub fn add(&self, metric: Metric, amount: u64) {
        self.0[metric as usize].fetch_add(amount, Ordering::Relaxed);
    }

    /// Lowers a gauge.
    pub fn sub(&self, metric: Metric, amount: u64) {
        self.0[metric as usize].fetch_sub(amount, Ordering::Relaxed);
    }

    /// Sets every counter to 0. Gauges stay.
    pub fn reset(&self) {
        for metric in counters() {
            self.0[metric as usize].store(0, Ordering::Relaxed);
        }
    }

    /// Whether no counter has counted.
    pub fn is_zero(&self) -> bool {
        counters().all(|metric| self.get(metric) == 0)
    }

    /// The value now.
    pub fn get(&self, metric: Metric) -> u64 {
        self.0[metric as usize].load(Ordering::Relaxed)
    }
}

/// Those that are no gauges.
fn counters() -> impl Iterator<Item = Metric> {
    let counters = Metric::ALL.iter().filter(|(_, name, ..)| !name.ends_with("_now"));
    counters.map(|(metric, ..)| *metric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_order_matches_the_enum() {
        for (index, row) in Metric::ALL.iter().enumerate() {
            assert_eq!(row.0 as usize, index, "{}", row.1);
        }
        for (index, row) in DeviceMetric::ALL.iter().enumerate() {
            assert_eq!(row.0 as usize, index, "{}", row.1);
            assert!(row.1.starts_with("device_") && row.3.ends_with('.'), "{}", row.1);
        }
    }

    #[test]
    fn areas_are_few_and_each_stands_together() {
        let mut areas: Vec<&str> = Metric::ALL.iter().map(|row| row.0.area()).collect();
        areas.dedup();
        let groups = areas.len();
        areas.sort_unstable();
        areas.dedup();
        assert_eq!(areas.len(), groups, "an area is in two places: {areas:?}");
        assert!(areas.iter().all(|area| area.bytes().all(|byte| byte.is_ascii_lowercase())));
        assert!(DeviceMetric::ALL.iter().all(|row| row.0.area() == "devices"));
    }

    #[test]
    fn names_of_the_gateways_metrics_say_what_they_are() {
        for (index, metric) in GATEWAY.iter().enumerate() {
            let is_counter = metric.shape == Shape::Counter;
            assert_eq!(is_counter, metric.name.ends_with("_total"), "{}", metric.name);
            assert!(metric.doc.ends_with('.'), "{} needs a sentence", metric.name);
            assert!(GATEWAY[..index].iter().all(|other| other.name != metric.name));
        }
    }

    #[test]
    fn gauge_goes_up_and_down() {
        let metrics = Metrics::default();
        metrics.add(Metric::MemoryHeldNow, 10);
        metrics.sub(Metric::MemoryHeldNow, 4);
        assert_eq!(metrics.get(Metric::MemoryHeldNow), 6);
        assert!(metrics.is_zero(), "a gauge is no counter");
        metrics.add(Metric::Requests, 1);
        assert!(!metrics.is_zero());
        metrics.reset();
        assert_eq!((metrics.get(Metric::Requests), metrics.get(Metric::MemoryHeldNow)), (0, 6));
    }
}

//! The one table of counters, and their atomic values.
//!
//! `penstock_stats()`, the box in EXPLAIN ANALYZE and `/metrics` print from [`Metric::ALL`].

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! metrics {
    ($($variant:ident $name:literal $unit:literal $doc:literal;)*) => {
        /// A counter, or a gauge where its name ends in `_now`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum Metric {
            $(#[doc = $doc] $variant,)*
        }

        impl Metric {
            /// Every metric with its stable name, unit and meaning.
            pub const ALL: &'static [(Metric, &'static str, &'static str, &'static str)] = &[
                $((Metric::$variant, $name, $unit, $doc),)*
            ];
        }
    };
}

metrics! {
    Requests "requests" "count" "Requests sent, retries included.";
    RequestsGet "requests_get" "count" "GET requests sent.";
    RequestsHead "requests_head" "count" "HEAD requests sent.";
    RequestsPut "requests_put" "count" "PUT requests sent.";
    RequestsPost "requests_post" "count" "POST requests sent.";
    RequestsDelete "requests_delete" "count" "DELETE requests sent.";
    Retries "retries" "count" "Requests that were sent again.";
    Errors "errors" "count" "Requests that ended in an error told to the caller.";
    BytesRead "bytes_read" "bytes" "Body bytes received.";
    BytesWritten "bytes_written" "bytes" "Body bytes sent.";
    RequestMicros "request_time_us" "microseconds"
        "Sum of the time from sending each request to its last byte.";
    WaitMicros "wait_time_us" "microseconds" "Sum of the time that callers were blocked on I/O.";
    Connections "connections" "count" "Connections opened.";
    MetadataHits "metadata_hits" "count" "Opens answered from remembered metadata.";
    MetadataMisses "metadata_misses" "count" "Opens that had to ask the store.";
    OpenFetchHits "open_fetch_hits" "count" "Reads answered from the bytes fetched at open.";
    ReadAheadHits "read_ahead_hits" "count" "Reads answered from bytes that were fetched ahead.";
    WrappedReads "wrapped_reads" "count" "Reads of wrapped file systems, split or not.";
    WrappedReadsSplit "wrapped_reads_split" "count"
        "Reads of wrapped file systems that became several sub-reads at once.";
    WrappedSubReads "wrapped_sub_reads" "count" "Sub-reads of the reads that were split.";
    Uploads "uploads" "count" "Objects made durable.";
    UploadsAborted "uploads_aborted" "count" "Uploads given up; nothing became visible.";
    MemoryHeldNow "memory_held_bytes_now" "bytes" "Bytes of the memory limit in use.";
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

    /// The value now.
    pub fn get(&self, metric: Metric) -> u64 {
        self.0[metric as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_order_matches_the_enum() {
        for (index, row) in Metric::ALL.iter().enumerate() {
            assert_eq!(row.0 as usize, index, "{}", row.1);
        }
    }

    #[test]
    fn gauge_goes_up_and_down() {
        let metrics = Metrics::default();
        metrics.add(Metric::MemoryHeldNow, 10);
        metrics.sub(Metric::MemoryHeldNow, 4);
        assert_eq!(metrics.get(Metric::MemoryHeldNow), 6);
    }
}

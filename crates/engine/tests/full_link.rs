//! A scan by one thread over a shared link, on a virtual clock: the link is never idle while
//! something is left to fetch.

use crate::support::{Bench, Link, Scripted, pattern, read};
use penstock_base::{ByteRange, Metric};
use penstock_engine::Known;
use penstock_testkit::parquet::footer;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A file of row groups of one column, and the way to it.
struct Scan {
    groups: usize,
    group_bytes: usize,
    latency: Duration,
    bytes_per_s: f64,
    memory: &'static str,
}

impl Scan {
    fn file(&self) -> Vec<u8> {
        let mut data = pattern(4 + self.groups * self.group_bytes);
        let group = |index: usize| {
            let start = 4 + index * self.group_bytes;
            vec![ByteRange::of_len(start as u64, self.group_bytes as u64).unwrap()]
        };
        data.extend(footer(&(0..self.groups).map(group).collect::<Vec<_>>()));
        data
    }

    /// How long a row group is on the link.
    fn way(&self) -> Duration {
        Duration::from_secs_f64(self.group_bytes as f64 / self.bytes_per_s)
    }

    /// Reads all of it, a row group at a time, and works on each; how long that took.
    async fn run(&self, data: &[u8], work: Duration) -> Duration {
        let mut store = Scripted::remote(self.latency);
        store.link = Some(Link::new(self.bytes_per_s));
        store.profile.connection_bytes_per_s = self.bytes_per_s / 2.0;
        let bench = Bench::with(store, &[("memory_limit_bytes", self.memory)]);
        bench.store.place("t.parquet", data.to_vec()).await;
        let (query, at) = (bench.query(), bench.at("t.parquet"));
        let begin = Instant::now();
        let reader = query.open(&at, &Known::default()).await.unwrap();
        read(&reader, &query, data.len() - 8, 8).await;
        query.will_read(&at, &[0], false);
        for group in 0..self.groups {
            let start = 4 + group * self.group_bytes;
            let found = read(&reader, &query, start, self.group_bytes).await;
            assert!(found == data[start..start + self.group_bytes], "row group {group}");
            sleep(work).await;
        }
        let took = begin.elapsed();
        let requests = bench.store.take_calls().len();
        assert!(requests <= self.groups + 1, "no row group is two requests");
        assert_eq!(query.metrics().get(Metric::ReadAheadWastedBytes), 0);
        took
    }

    /// The footer and the first row group are waited for, and the last one is worked on.
    fn least(&self, data: &[u8], work: Duration) -> Duration {
        Duration::from_secs_f64(data.len() as f64 / self.bytes_per_s) + 2 * self.latency + work
    }
}

#[tokio::test(start_paused = true)]
async fn the_link_is_full_though_the_reader_works_on_each_row_group() {
    let latency = Duration::from_millis(30);
    let scan =
        Scan { groups: 24, group_bytes: 3 << 20, latency, bytes_per_s: 60e6, memory: "1GiB" };
    let data = scan.file();
    for percent in [0, 10, 25, 40, 55, 70, 85, 95] {
        let work = scan.way() * percent / 100;
        let (took, least) = (scan.run(&data, work).await, scan.least(&data, work));
        // The first one shares the link with two that are ahead of it, and the last ones come
        // together: a reader that is nearly as slow as the link does not make up for that.
        let more = if percent <= 40 { latency } else { 3 * scan.way() };
        assert!(took <= least + more, "{percent} %: {took:?} of {least:?}");
    }
}

/// The profile expects 30 ms.
#[tokio::test(start_paused = true)]
async fn the_link_to_a_store_that_is_further_than_expected_is_full_soon() {
    let latency = Duration::from_millis(150);
    let scan =
        Scan { groups: 100, group_bytes: 1 << 20, latency, bytes_per_s: 80e6, memory: "1GiB" };
    let data = scan.file();
    let (took, least) = (scan.run(&data, Duration::ZERO).await, scan.least(&data, Duration::ZERO));
    assert!(took <= least + 2 * latency, "{took:?} of {least:?}");
}

/// Of which several are one request.
#[tokio::test(start_paused = true)]
async fn the_link_is_full_with_small_row_groups() {
    let latency = Duration::from_millis(100);
    let scan =
        Scan { groups: 500, group_bytes: 100 << 10, latency, bytes_per_s: 80e6, memory: "1GiB" };
    let data = scan.file();
    for percent in [0, 50] {
        let work = scan.way() * percent / 100;
        let (took, least) = (scan.run(&data, work).await, scan.least(&data, work));
        assert!(took <= least + 2 * latency, "{percent} %: {took:?} of {least:?}");
    }
}

/// What is ahead may take a quarter of it: a little more than what fills the link.
#[tokio::test(start_paused = true)]
async fn the_link_is_full_with_little_memory() {
    let latency = Duration::from_millis(100);
    let memory = "80MiB";
    let scan = Scan { groups: 100, group_bytes: 1 << 20, latency, bytes_per_s: 80e6, memory };
    let data = scan.file();
    for percent in [0, 50] {
        let work = scan.way() * percent / 100;
        let (took, least) = (scan.run(&data, work).await, scan.least(&data, work));
        assert!(took <= least + 2 * latency, "{percent} %: {took:?} of {least:?}");
    }
}

/// Row groups of which few fit into what may be ahead, and which are several requests each: by
/// threads that take one after the other, each with a reader of its own.
async fn by_threads(threads: usize, bytes_per_s: f64, work: Duration) -> (Duration, Duration) {
    let latency = Duration::from_millis(100);
    let memory = "384MiB";
    let scan = Scan { groups: 20, group_bytes: (12 << 20) + 1000, latency, bytes_per_s, memory };
    let data = Arc::new(scan.file());
    let mut store = Scripted::remote(latency);
    store.link = Some(Link::new(bytes_per_s));
    store.profile.connection_bytes_per_s = 40e6;
    let bench = Bench::with(store, &[("memory_limit_bytes", memory)]);
    bench.store.place("t.parquet", data.to_vec()).await;
    let (query, at) = (Arc::new(bench.query()), bench.at("t.parquet"));
    let begin = Instant::now();
    let first = query.open(&at, &Known::default()).await.unwrap();
    read(&first, &query, data.len() - 8, 8).await;
    query.will_read(&at, &[0], false);
    let next = Arc::new(AtomicUsize::new(0));
    let mut running = Vec::new();
    for _ in 0..threads {
        let reader = query.open(&at, &Known::default()).await.unwrap();
        let (query, data, next) = (Arc::clone(&query), Arc::clone(&data), Arc::clone(&next));
        let (groups, group_bytes) = (scan.groups, scan.group_bytes);
        running.push(tokio::spawn(async move {
            loop {
                let group = next.fetch_add(1, Ordering::Relaxed);
                if group >= groups {
                    return;
                }
                let start = 4 + group * group_bytes;
                let found = read(&reader, &query, start, group_bytes).await;
                assert!(found == data[start..start + group_bytes], "row group {group}");
                sleep(work).await;
            }
        }));
    }
    for thread in running {
        thread.await.unwrap();
    }
    let took = begin.elapsed();
    assert_eq!(query.metrics().get(Metric::ReadAheadWastedBytes), 0);
    (took, scan.least(&data, work))
}

/// What may be ahead is hardly more than what fills the link. A row group that is being read is
/// not ahead any more, and none is begun of which a part does not fit: that would be a round trip.
#[tokio::test(start_paused = true)]
async fn the_link_is_hardly_idle_with_large_row_groups() {
    for work in [0, 15] {
        let work = Duration::from_millis(work);
        let (took, least) = by_threads(1, 750e6, work).await;
        let more = took.saturating_sub(least);
        assert!(more <= Duration::from_millis(425), "{work:?}: {took:?} of {least:?}");
    }
}

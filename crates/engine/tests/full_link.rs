//! A scan by one thread over a shared link, on a virtual clock: the link is never idle while
//! something is left to fetch.

#![allow(clippy::unwrap_used)]

mod support;

use penstock_base::{ByteRange, Metric};
use penstock_engine::Known;
use penstock_testkit::parquet::footer;
use std::time::Duration;
use support::{Bench, Link, Scripted, pattern, read};
use tokio::time::{Instant, sleep};

const GROUPS: usize = 24;
const GROUP_BYTES: usize = 3 << 20;
const LATENCY: Duration = Duration::from_millis(30);
const BYTES_PER_S: f64 = 60e6;

/// A file of row groups of one column.
fn file() -> Vec<u8> {
    let mut data = pattern(4 + GROUPS * GROUP_BYTES);
    let group = |index: usize| {
        let start = 4 + index * GROUP_BYTES;
        vec![ByteRange::of_len(start as u64, GROUP_BYTES as u64).unwrap()]
    };
    data.extend(footer(&(0..GROUPS).map(group).collect::<Vec<_>>()));
    data
}

/// Reads all of it, a row group at a time, and works on each; how long that took.
async fn scan(data: &[u8], work: Duration) -> Duration {
    let mut store = Scripted::remote(LATENCY);
    store.link = Some(Link::new(BYTES_PER_S));
    store.profile.connection_bytes_per_s = BYTES_PER_S / 2.0;
    let bench = Bench::new(store);
    bench.store.place("t.parquet", data.to_vec()).await;
    let (query, at) = (bench.query(), bench.at("t.parquet"));
    let begin = Instant::now();
    let reader = query.open(&at, &Known::default()).await.unwrap();
    read(&reader, &query, data.len() - 8, 8).await;
    query.will_read(&at, &[0], false);
    for group in 0..GROUPS {
        let start = 4 + group * GROUP_BYTES;
        let found = read(&reader, &query, start, GROUP_BYTES).await;
        assert!(found == data[start..start + GROUP_BYTES], "row group {group}");
        sleep(work).await;
    }
    let took = begin.elapsed();
    assert_eq!(bench.store.take_calls().len(), GROUPS + 1, "each row group is one request");
    assert_eq!(query.metrics().get(Metric::ReadAheadWastedBytes), 0);
    took
}

#[tokio::test(start_paused = true)]
async fn the_link_is_full_though_the_reader_works_on_each_row_group() {
    let data = file();
    let way = Duration::from_secs_f64(GROUP_BYTES as f64 / BYTES_PER_S);
    for percent in [0, 10, 25, 40, 55, 70, 85, 95] {
        let work = way * percent / 100;
        let took = scan(&data, work).await;
        // The footer and the first row group are waited for, and the last one is worked on.
        let least = Duration::from_secs_f64(data.len() as f64 / BYTES_PER_S) + 2 * LATENCY + work;
        // The first one shares the link with two that are ahead of it, and the last ones come
        // together: a reader that is nearly as slow as the link does not make up for that.
        let more = if percent <= 40 { LATENCY } else { 3 * way };
        assert!(took <= least + more, "{percent} %: {took:?} of {least:?}");
    }
}

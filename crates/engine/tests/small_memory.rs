//! Where the memory limit is small: what is kept of opened objects serves those who come next.

use crate::support::{Bench, Link, Scripted, pattern, read};
use penstock_base::{ByteRange, Metric};
use penstock_engine::Known;
use penstock_testkit::parquet::footer;
use std::time::Duration;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// A very wide file, whose footer is a twentieth of the limit: it is kept, and tells where columns
/// lie.
#[tokio::test(start_paused = true)]
async fn a_footer_of_a_twentieth_of_the_limit_is_kept() {
    const COLUMNS: usize = 1000;
    const WIDE: usize = 64 * KIB;
    const GROUP: usize = WIDE + COLUMNS * 16;
    let chunks = |group: usize| -> Vec<ByteRange> {
        let start = 4 + group * GROUP;
        let narrow = (0..COLUMNS).map(|column| (start + WIDE + column * 16, 16));
        let all = std::iter::once((start, WIDE)).chain(narrow);
        all.map(|(at, len)| ByteRange::of_len(at as u64, len as u64).unwrap()).collect()
    };
    let mut groups = 100;
    let mut end = Vec::new();
    while end.len() < 3 * MIB {
        groups += 5;
        end = footer(&(0..groups).map(chunks).collect::<Vec<_>>());
    }
    assert!(end.len() < 7 * MIB / 2, "{}", end.len());
    let mut data = pattern(4 + groups * GROUP);
    data.extend(&end);
    let store = Scripted::remote(Duration::from_millis(10));
    let bench = Bench::with(store, &[("memory_limit_bytes", "64MiB")]);
    bench.store.place("a.parquet", data.clone()).await;
    let begin = data.len() - end.len();
    for is_first in [true, false] {
        let query = bench.query();
        let reader = query.open(&bench.at("a.parquet"), &Known::NOTHING).await.unwrap();
        assert!(read(&reader, &query, begin, end.len()).await == end);
        let calls = bench.store.take_calls();
        assert_eq!(calls.len(), if is_first { 2 } else { 0 }, "{calls:?}");
        for group in 0..20 {
            read(&reader, &query, 4 + group * GROUP, WIDE).await;
        }
        assert!(query.metrics().get(Metric::ReadAheadHits) > 10, "{is_first}");
        drop((reader, query));
        tokio::time::sleep(Duration::from_millis(100)).await;
        bench.store.take_calls();
    }
}

/// What is fetched of files that are opened ahead is there when they are opened.
#[tokio::test(start_paused = true)]
async fn files_opened_ahead_do_not_drive_each_other_out() {
    let store = Scripted::remote(Duration::from_millis(10));
    let bench = Bench::with(store, &[("memory_limit_bytes", "64MiB")]);
    let size = 300 * KIB;
    for number in 0..60 {
        bench.store.place(&format!("t/{number:02}.csv"), pattern(size)).await;
    }
    let query = bench.query();
    let found = query.glob(&bench.at("t/*.csv")).await.unwrap();
    bench.store.take_calls();
    for file in &found {
        let known = Known { meta: file.meta.clone(), ..Known::default() };
        let reader = query.open(&bench.at(&file.key), &known).await.unwrap();
        read(&reader, &query, 0, 256 * KIB).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut calls = bench.store.take_calls();
    let count = calls.len();
    calls.sort();
    calls.dedup();
    assert_eq!(count, calls.len(), "each is asked for once: {calls:?}");
    assert_eq!(count, found.len());
    let ahead = query.metrics().get(Metric::ReadAheadBytes);
    assert!(ahead > 50 * 256 * KIB as u64, "{ahead}");
}

/// A request that is stopped in the middle has brought something in vain.
#[tokio::test(start_paused = true)]
async fn what_came_of_a_stopped_request_was_in_vain() {
    const BYTES_PER_S: f64 = 4e6;
    let mut wasted = Vec::new();
    for wait_ms in [100, 600] {
        let mut store = Scripted::remote(Duration::from_millis(10));
        store.link = Some(Link::new(BYTES_PER_S));
        let bench = Bench::new(store);
        bench.store.place("a.csv", pattern(40 * MIB)).await;
        let query = bench.query();
        let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
        for index in 0..66 {
            read(&reader, &query, index * 128 * KIB, 128 * KIB).await;
        }
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        let engine = bench.engine.clone();
        drop((reader, query));
        tokio::time::sleep(Duration::from_millis(1)).await;
        wasted.push(engine.metrics().get(Metric::ReadAheadWastedBytes));
    }
    // What the link brought in between.
    let more = wasted[1].saturating_sub(wasted[0]) as f64;
    assert!((0.9..1.1).contains(&(more / (BYTES_PER_S * 0.5))), "{wasted:?}");
}

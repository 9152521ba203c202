//! What is counted as fetched ahead in vain: every byte that came over the network and that no read
//! took, once, and no other one; with caches of bytes and without.

use crate::support::{Bench, Fault, Link, Scripted, pattern, read};
use penstock_base::{ByteRange, Metric};
use penstock_engine::{Known, Query, Reader};
use penstock_testkit::parquet::footer;
use std::time::Duration;
use tokio::time::Instant;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const LATENCY: Duration = Duration::from_millis(100);
const CHUNK: usize = 300 * KIB;

/// Lets background work go as far as it can.
async fn settle() {
    for _ in 0..2000 {
        tokio::task::yield_now().await;
    }
}

fn ahead(query: &Query) -> u64 {
    query.metrics().get(Metric::ReadAheadBytes)
}

fn wasted(query: &Query) -> u64 {
    query.metrics().get(Metric::ReadAheadWastedBytes)
}

async fn text(store: Scripted, settings: &[(&str, &str)]) -> (Bench, Query, Reader, Vec<u8>) {
    let bench = Bench::with(store, settings);
    let data = pattern(6 * MIB + 5);
    bench.store.place("a.csv", data.clone()).await;
    let query = bench.query();
    let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
    (bench, query, reader, data)
}

/// What arrived for a read is in the cache before the read comes: it is a read of this run still.
#[tokio::test(start_paused = true)]
async fn a_run_goes_on_through_what_the_cache_took_of_it() {
    for cache in ["0", "64MiB"] {
        let settings = [("cache_memory_bytes", cache)];
        let (bench, query, reader, data) = text(Scripted::new(), &settings).await;
        let mut at = 0;
        while at < data.len() {
            let step = (16 * KIB).min(data.len() - at);
            assert!(read(&reader, &query, at, step).await == data[at..at + step]);
            settle().await;
            at += step;
        }
        drop(reader);
        assert_eq!(wasted(&query), 0, "{cache}");
        let calls = bench.store.take_calls();
        assert!(calls.len() <= 8, "{cache}: {calls:?}");
        assert_eq!(query.metrics().get(Metric::BytesRead), data.len() as u64, "nothing twice");
        if cache != "0" {
            // All of it is here: nothing is fetched ahead of it.
            let query = bench.query();
            let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
            bench.store.take_calls();
            for at in (0..4 * MIB).step_by(64 * KIB) {
                read(&reader, &query, at, 64 * KIB).await;
                settle().await;
            }
            assert_eq!((ahead(&query), wasted(&query)), (0, 0));
            assert_eq!(bench.store.take_calls(), Vec::<String>::new());
        }
    }
}

/// Two reads of the same bytes of a block take them once.
#[tokio::test(start_paused = true)]
async fn bytes_that_are_read_twice_are_used_once() {
    for again in [1, 2, 5] {
        let (bench, query, reader, _) = text(Scripted::new(), &[]).await;
        read(&reader, &query, 0, 200 * KIB).await;
        // 256 KiB came with the opening, and 400 KiB more are asked for behind this one.
        read(&reader, &query, 200 * KIB, 200 * KIB).await;
        settle().await;
        for _ in 0..again {
            read(&reader, &query, 400 * KIB, 100 * KIB).await;
            settle().await;
        }
        let asked = ahead(&query);
        query.cancel();
        drop(reader);
        drop(query);
        settle().await;
        let used = 100 * KIB as u64;
        assert_eq!(bench.engine.metrics().get(Metric::ReadAheadWastedBytes), asked - used);
    }
}

/// What came of a block before it failed is asked for again: no read took it.
#[tokio::test(start_paused = true)]
async fn what_came_of_a_block_that_failed_was_in_vain() {
    let settings = [("retry_base_ms", "1")];
    let (bench, query, reader, data) = text(Scripted::remote(LATENCY), &settings).await;
    read(&reader, &query, 0, 200 * KIB).await;
    bench.store.fail("get", Fault::CutBody(70 * KIB));
    bench.store.fail("get", Fault::Deny);
    // The rest of this read waits longer than the block behind it takes to fail.
    let second = read(&reader, &query, 200 * KIB, 50 * KIB).await;
    assert!(second == data[200 * KIB..250 * KIB]);
    tokio::time::sleep(4 * LATENCY).await;
    let third = read(&reader, &query, 250 * KIB, 100 * KIB).await;
    assert!(third == data[250 * KIB..350 * KIB]);
    drop(reader);
    query.cancel();
    settle().await;
    let came = bench.engine.metrics().get(Metric::ReadAheadWastedBytes);
    assert!(came >= 70 * KIB as u64, "{came}");
}

/// A file of row groups of three columns, and a scan of its first and third one.
struct Scan {
    reader: Reader,
    data: Vec<u8>,
}

impl Scan {
    async fn place(bench: &Bench, row_groups: usize) {
        let chunk = |index: usize| ByteRange {
            start: (4 + index * CHUNK) as u64,
            end: (4 + (index + 1) * CHUNK) as u64,
        };
        let groups: Vec<Vec<ByteRange>> =
            (0..row_groups).map(|group| (0..3).map(|c| chunk(group * 3 + c)).collect()).collect();
        let mut data = pattern(4 + row_groups * 3 * CHUNK);
        data.extend(pattern(256 * KIB));
        data.extend(footer(&groups));
        bench.store.place("one.parquet", data).await;
    }

    async fn begin(bench: &Bench, query: &Query) -> Self {
        let data = bench.store.content("one.parquet").await.unwrap().to_vec();
        let reader = query.open(&bench.at("one.parquet"), &Known::NOTHING).await.unwrap();
        read(&reader, query, data.len() - 8, 8).await;
        bench.store.take_calls();
        Scan { reader, data }
    }

    /// Gives how many round trips it took.
    async fn read(&self, query: &Query, row_groups: std::ops::Range<usize>) -> u128 {
        let begun = Instant::now();
        for row_group in row_groups {
            for column in [0, 2] {
                let start = 4 + (row_group * 3 + column) * CHUNK;
                let bytes = read(&self.reader, query, start, CHUNK).await;
                assert!(bytes == self.data[start..start + CHUNK]);
                settle().await;
            }
        }
        begun.elapsed().as_millis() / LATENCY.as_millis()
    }
}

const CACHED: [(&str, &str); 1] = [("cache_memory_bytes", "256MiB")];

#[tokio::test(start_paused = true)]
async fn a_scan_goes_on_through_what_the_cache_took_of_it() {
    for settings in [&[][..], &CACHED[..]] {
        let bench = Bench::with(Scripted::remote(LATENCY), settings);
        Scan::place(&bench, 60).await;
        let query = bench.query();
        let scan = Scan::begin(&bench, &query).await;
        let round_trips = scan.read(&query, 0..60).await;
        assert!(round_trips <= 9, "{round_trips} round trips, {settings:?}");
        assert_eq!(wasted(&query), 0, "{settings:?}");
        drop(scan);
        query.cancel();
        assert_eq!(wasted(&query), 0, "{settings:?}");
    }
}

/// Row groups that the cache has are row groups of the scan, and none that it skipped.
#[tokio::test(start_paused = true)]
async fn a_scan_goes_on_behind_what_the_cache_has() {
    let bench = Bench::with(Scripted::remote(LATENCY), &CACHED);
    Scan::place(&bench, 60).await;
    let query = bench.query();
    let scan = Scan::begin(&bench, &query).await;
    // At most as much is ahead of it as it has read.
    scan.read(&query, 0..10).await;
    drop((scan, query));
    settle().await;
    let query = bench.query();
    let scan = Scan::begin(&bench, &query).await;
    assert_eq!(scan.read(&query, 0..10).await, 0);
    assert_eq!(ahead(&query), 0, "the cache has it all");
    let round_trips = scan.read(&query, 10..60).await;
    assert!(round_trips <= 7, "{round_trips} round trips");
    drop(scan);
    query.cancel();
    assert_eq!(wasted(&query), 0);
}

/// A block that the cache has came over no network, now or in vain.
#[tokio::test(start_paused = true)]
async fn what_came_from_the_cache_is_not_counted_as_fetched() {
    let bench = Bench::with(Scripted::remote(LATENCY), &CACHED);
    Scan::place(&bench, 40).await;
    let query = bench.query();
    let scan = Scan::begin(&bench, &query).await;
    scan.read(&query, 20..40).await;
    drop((scan, query));
    let query = bench.query();
    let scan = Scan::begin(&bench, &query).await;
    scan.read(&query, 0..16).await;
    query.cancel();
    drop(scan);
    settle().await;
    // Row groups 16 to 19 at most, and the column that is one request with the last one of them.
    let bound = (9 * CHUNK) as u64;
    let sent: u64 = query.metrics().get(Metric::BytesRead);
    assert!(wasted(&query) <= bound, "{} of {sent}", wasted(&query));
    assert!(ahead(&query) <= (20 * 2 * CHUNK) as u64, "{} asked for", ahead(&query));
}

/// What the cache has is read from there by whoever wants it, once, and not fetched ahead from it.
#[tokio::test(start_paused = true)]
async fn a_scan_reads_once_what_the_cache_has() {
    let bench = Bench::with(Scripted::remote(LATENCY), &CACHED);
    Scan::place(&bench, 40).await;
    let query = bench.query();
    let scan = Scan::begin(&bench, &query).await;
    scan.read(&query, 8..40).await;
    drop((scan, query));
    let query = bench.query();
    let scan = Scan::begin(&bench, &query).await;
    let in_cache = |query: &Query| query.metrics().get(Metric::CacheBytesRead);
    // What is missing begins what is ahead, far into what is there.
    scan.read(&query, 0..8).await;
    let (missing, before) = (ahead(&query), in_cache(&query));
    settle().await;
    assert_eq!(scan.read(&query, 8..40).await, 0);
    assert_eq!(ahead(&query), missing, "fetched ahead of what is there");
    let read_bytes = (32 * 2 * CHUNK) as u64;
    assert_eq!(in_cache(&query) - before, read_bytes);
    // Row groups that were fetched ahead are in the cache when they are read.
    assert!(before <= (8 * 2 * CHUNK) as u64, "{before} bytes of the cache for what it lacked");
}

/// The same of text in small steps, and in large ones.
#[tokio::test(start_paused = true)]
async fn a_run_fetches_nothing_ahead_that_the_cache_has() {
    for step in [64 * KIB, 2 * MIB] {
        let bench = Bench::with(Scripted::remote(LATENCY), &CACHED);
        let data = pattern(24 * MIB);
        bench.store.place("a.csv", data.clone()).await;
        let kept = 8 * MIB..24 * MIB;
        let query = bench.query();
        let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
        for at in kept.clone().step_by(MIB) {
            read(&reader, &query, at, MIB).await;
        }
        drop(reader);
        query.cancel();
        settle().await;
        bench.store.take_calls();
        let query = bench.query();
        let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
        for at in (0..data.len()).step_by(step) {
            assert!(read(&reader, &query, at, step).await == data[at..at + step]);
            settle().await;
        }
        let calls = bench.store.take_calls();
        let start =
            |call: &String| call.split([' ', '.']).nth(3).unwrap().parse::<usize>().unwrap();
        assert!(calls.iter().all(|call| start(call) < kept.start), "steps of {step}: {calls:?}");
        let came = query.metrics().get(Metric::BytesRead);
        // A block that begins where the cache has nothing may end where it has something.
        let bound = (data.len() - kept.len() + MIB) as u64;
        assert!(came <= bound, "steps of {step}: {came} bytes came, {bound} at most");
    }
}

/// Of a file that is opened ahead, what had come when the statement ended.
#[tokio::test(start_paused = true)]
async fn an_opening_that_is_stopped_midway_was_in_vain_as_far_as_it_came() {
    let mut store = Scripted::remote(Duration::from_millis(10));
    store.link = Some(Link::new(1e6));
    let bench = Bench::new(store);
    for number in 0..3 {
        bench.store.place(&format!("t/{number}.parquet"), pattern(200 * KIB)).await;
    }
    let query = bench.query();
    query.glob(&bench.at("t/*.parquet")).await.unwrap();
    let reader = query.open(&bench.at("t/0.parquet"), &Known::NOTHING).await.unwrap();
    // They share the link, so most of the others has come with it.
    read(&reader, &query, 200 * KIB - 8, 8).await;
    drop(reader);
    query.cancel();
    drop(query);
    settle().await;
    let wasted = bench.engine.metrics().get(Metric::ReadAheadWastedBytes);
    let expected = 2 * 128 * KIB as u64..2 * 200 * KIB as u64;
    assert!(expected.contains(&wasted), "{wasted}");
}

//! Missing stretches on both sides of what the cache has: one request where the store is so far, by
//! what was measured of it, that what lies between costs less than asking twice.

use crate::support::{Bench, Link, Scripted, pattern, read};
use penstock_engine::Known;
use std::time::Duration;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// Where the cached stretch begins.
const AT: usize = 12 * MIB;
/// What is missing on each side of it.
const SIDE: usize = 64 * KIB;

/// A store with what it says of itself: first byte in milliseconds, bytes per second.
fn store(told_ms: f64, told_bytes_per_s: f64, delay_ms: u64) -> Scripted {
    let mut store = Scripted::remote(Duration::from_millis(delay_ms));
    store.profile.first_byte_ms = told_ms;
    store.profile.connection_bytes_per_s = told_bytes_per_s;
    store
}

/// Requests that a read sends which goes over a cached stretch of so many bytes, once something was
/// seen of the store: so many small reads, and so many of 2 MiB.
async fn requests(store: Scripted, (small, large): (usize, usize), gap: usize) -> usize {
    let settings = [("cache_memory_bytes", "64MiB"), ("parallel_read_enabled", "false")];
    let bench = Bench::with(store, &settings);
    let data = pattern(16 * MIB);
    bench.store.place("a.csv", data.clone()).await;
    // A statement each, so that no read is the next step of another.
    let one = async |at: usize, len: usize| {
        let query = bench.query();
        let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
        assert!(read(&reader, &query, at, len).await == data[at..at + len], "at {at}");
    };
    for number in 0..small {
        one(MIB + number * 16 * KIB, KIB).await;
    }
    for number in 0..large {
        one((2 + 2 * number) * MIB, 2 * MIB).await;
    }
    one(AT, gap).await;
    bench.store.take_calls();
    one(AT - SIDE, SIDE + gap + SIDE).await;
    let calls = bench.store.take_calls();
    let (start, end) = (AT - SIDE, AT + gap + SIDE);
    let apart = [format!("get a.csv {start}..{AT}"), format!("get a.csv {}..{end}", AT + gap)];
    let together = [format!("get a.csv {start}..{end}")];
    assert!(calls == apart || calls == together, "{calls:?}");
    calls.len()
}

#[tokio::test(start_paused = true)]
async fn near_stretches_are_one_request_of_a_far_store_and_two_of_a_near_one() {
    for (delay_ms, gap, expected) in [
        // 2.7 MB come in 30 ms; what was fetched once is not fetched again beyond 1 MiB.
        (30, 64 * KIB, 1),
        (30, MIB, 1),
        (30, MIB + 64 * KIB, 2),
        // 270 KB in 3 ms.
        (3, 200 * KIB, 1),
        (3, 300 * KIB, 2),
        // Nothing in no time.
        (0, 4 * KIB, 2),
    ] {
        let found = requests(store(delay_ms as f64, 90e6, delay_ms), (0, 0), gap).await;
        assert_eq!(found, expected, "{gap} bytes, {delay_ms} ms");
    }
}

/// What a store says of itself counts until it is seen to answer otherwise.
#[tokio::test(start_paused = true)]
async fn the_latency_is_the_one_that_was_measured() {
    assert_eq!(requests(store(30.0, 90e6, 0), (0, 0), 64 * KIB).await, 2, "told to be far");
    // An answer that comes later than expected counts by an eighth.
    assert_eq!(requests(store(0.1, 90e6, 30), (30, 0), 64 * KIB).await, 1, "told to be near");
}

#[tokio::test(start_paused = true)]
async fn the_bandwidth_is_the_one_that_was_measured() {
    let slow = || {
        let mut slow = store(30.0, 90e6, 30);
        slow.link = Some(Link::new(1e6));
        slow
    };
    // 30 KB come in 30 ms. Small reads tell that too, where there were no others.
    assert_eq!(requests(slow(), (8, 0), 64 * KIB).await, 2, "told to be fast, small reads");
    assert_eq!(requests(slow(), (8, 0), 16 * KIB).await, 1, "and still some way off");
    assert_eq!(requests(slow(), (0, 4), 64 * KIB).await, 2, "told to be fast");
    assert_eq!(requests(slow(), (0, 4), 16 * KIB).await, 1, "and still some way off");
    assert_eq!(requests(store(30.0, 1e6, 30), (0, 4), 512 * KIB).await, 1, "told to be slow");
    assert_eq!(requests(store(30.0, 1e6, 30), (0, 0), 512 * KIB).await, 2, "nothing was seen");
}

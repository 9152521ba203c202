//! How much is asked of a store at once: settings, refusals, readers of the same bytes, late
//! answers.

use crate::support::{Bench, Fault, Scripted, pattern, read};
use penstock_base::Metric;
use penstock_engine::{Known, Query, Reader};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn distant() -> Scripted {
    let mut store = Scripted::remote(Duration::from_millis(30));
    store.profile.connection_bytes_per_s = 90e6;
    store
}

async fn opened(bench: &Bench, data: &[u8]) -> (Arc<Query>, Arc<Reader>) {
    bench.store.place("a.csv", data.to_vec()).await;
    let query = bench.query();
    let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
    bench.store.take_calls();
    (Arc::new(query), Arc::new(reader))
}

/// Requests of one read of so many bytes.
async fn requests(settings: &[(&str, &str)], len: usize) -> usize {
    let bench = Bench::with(distant(), settings);
    let data = pattern(MIB + len);
    let (query, reader) = opened(&bench, &data).await;
    assert!(read(&reader, &query, MIB, len).await == data[MIB..]);
    bench.store.take_calls().len()
}

#[tokio::test(start_paused = true)]
async fn settings_mean_for_our_stores_what_they_mean_for_wrapped_ones() {
    const FIXED: (&str, &str) = ("parallel_read_auto_fanout_enabled", "false");
    const CHUNK: (&str, &str) = ("parallel_read_chunk_size_bytes", "1MiB");
    for (settings, len, expected) in [
        (&[FIXED, CHUNK][..], 8 * MIB, 4),
        (&[FIXED, CHUNK, ("parallel_read_max_fanout", "6")], 8 * MIB, 6),
        (&[FIXED, ("parallel_read_chunk_size_bytes", "4MiB")], 8 * MIB, 2),
        (&[FIXED, CHUNK, ("parallel_read_min_bytes", "9MiB")], 8 * MIB, 1),
        (&[FIXED, CHUNK, ("parallel_read_enabled", "false")], 8 * MIB, 1),
        (&[FIXED, CHUNK, ("parallel_read_io_threads", "2")], 8 * MIB, 3),
        (&[FIXED, CHUNK, ("parallel_read_recommended_preset_enabled", "true")], 40 * MIB, 2),
        // The documented cost: 30 ms and 90 MB/s, and a penalty that does not pay.
        (
            &[
                CHUNK,
                ("parallel_read_auto_fanout_overhead_adaptive_enabled", "false"),
                ("parallel_read_auto_fanout_overhead_ms", "500"),
            ],
            8 * MIB,
            1,
        ),
        (
            &[
                CHUNK,
                ("parallel_read_auto_fanout_overhead_adaptive_enabled", "false"),
                ("parallel_read_auto_fanout_overhead_ms", "0"),
            ],
            8 * MIB,
            4,
        ),
    ] {
        assert_eq!(requests(settings, len).await, expected, "{settings:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_near_is_read_in_one_request() {
    let bench = Bench::new(Scripted::new());
    let data = pattern(65 * MIB);
    let (query, reader) = opened(&bench, &data).await;
    assert!(read(&reader, &query, MIB, 64 * MIB).await == data[MIB..]);
    assert_eq!(bench.store.take_calls().len(), 1);
}

fn spawn_read(
    query: &Arc<Query>,
    reader: &Arc<Reader>,
    at: usize,
    len: usize,
) -> JoinHandle<Vec<u8>> {
    let (query, reader) = (Arc::clone(query), Arc::clone(reader));
    tokio::spawn(async move { read(&reader, &query, at, len).await })
}

#[tokio::test(start_paused = true)]
async fn readers_of_the_same_bytes_share_one_request() {
    let bench = Bench::new(distant());
    let data = pattern(4 * MIB);
    let (query, reader) = opened(&bench, &data).await;
    let other_query = Arc::new(bench.query());
    let other = other_query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
    let other = Arc::new(other);
    bench.store.take_calls();
    let reads = [
        (spawn_read(&query, &reader, MIB, MIB), MIB..2 * MIB),
        (spawn_read(&query, &reader, MIB, MIB), MIB..2 * MIB),
        (spawn_read(&other_query, &other, MIB, MIB), MIB..2 * MIB),
        (
            spawn_read(&other_query, &other, MIB + 300 * KIB, MIB),
            MIB + 300 * KIB..2 * MIB + 300 * KIB,
        ),
    ];
    for (bytes, expected) in reads {
        assert!(bytes.await.unwrap() == data[expected]);
    }
    let mut calls = bench.store.take_calls();
    calls.sort();
    assert_eq!(calls, ["get a.csv 1048576..2097152", "get a.csv 2097152..2404352"]);
    assert_eq!(bench.engine.metrics().get(Metric::FlightsShared), 3);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_stopped_or_fails_does_not_stop_those_who_follow_it() {
    for fault in [None, Some(Fault::Deny)] {
        let bench = Bench::new(distant());
        let data = pattern(4 * MIB);
        let (query, reader) = opened(&bench, &data).await;
        let gate = bench.store.hold("get");
        if let Some(fault) = &fault {
            bench.store.fail("get", fault.clone());
        }
        let leader = spawn_read(&query, &reader, MIB, MIB);
        sleep(Duration::from_millis(1)).await;
        let followers = [(); 3].map(|()| spawn_read(&query, &reader, MIB, MIB));
        sleep(Duration::from_millis(1)).await;
        assert_eq!(bench.store.take_calls().len(), 1);
        match fault {
            None => leader.abort(),
            Some(_) => gate.add_permits(1),
        }
        assert!(leader.await.is_err(), "stopped, or panicked for the error");
        gate.add_permits(9);
        for follower in followers {
            assert!(follower.await.unwrap() == data[MIB..2 * MIB]);
        }
        assert_eq!(bench.store.take_calls().len(), 1, "one of them leads now");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_asks_for_less_gets_less_and_then_more_again() {
    let bench = Bench::with(distant(), &[("retry_base_ms", "1"), ("retry_max_ms", "1")]);
    let data = pattern(4 * MIB);
    let (query, reader) = opened(&bench, &data).await;
    let gate = bench.store.hold("get");
    for _ in 0..8 {
        bench.store.fail("get", Fault::Throttle);
    }
    let reads: Vec<_> =
        (0..16).map(|i| spawn_read(&query, &reader, MIB + i * 8192, 4096)).collect();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(bench.store.take_calls().len(), 16, "nobody has asked for less yet");
    gate.add_permits(8);
    sleep(Duration::from_millis(50)).await;
    // 16 were on their way, so 8 may be now: those that were sent before.
    assert_eq!(bench.store.take_calls().len(), 0);
    gate.add_permits(4);
    sleep(Duration::from_millis(50)).await;
    let sent_again = bench.store.take_calls().len();
    assert!((4..=5).contains(&sent_again), "{sent_again}");
    gate.add_permits(100);
    for (i, bytes) in reads.into_iter().enumerate() {
        let start = MIB + i * 8192;
        assert!(bytes.await.unwrap() == data[start..start + 4096]);
    }
    // After half a minute without a refusal nothing is held back.
    sleep(Duration::from_secs(31)).await;
    read(&reader, &query, 2 * MIB, 4096).await;
    gate.forget_permits(100);
    bench.store.take_calls();
    let reads: Vec<_> =
        (0..32).map(|i| spawn_read(&query, &reader, 2 * MIB + i * 8192, 4096)).collect();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(bench.store.take_calls().len(), 32);
    gate.add_permits(100);
    for bytes in reads {
        bytes.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_is_asked_for_a_second_time_and_no_more_than_one_in_fifty() {
    let bench = Bench::new(distant());
    let data = pattern(4 * MIB);
    let (query, reader) = opened(&bench, &data).await;
    for i in 0..150 {
        read(&reader, &query, 300 * KIB + (i * 37 % 150) * 20_000, 100).await;
    }
    assert_eq!(query.metrics().get(Metric::RequestsHedged), 0);
    bench.store.take_calls();
    for _ in 0..2 {
        bench.store.fail("get", Fault::Hang);
        let begun = Instant::now();
        read(&reader, &query, 3 * MIB, 100).await;
        assert!(begun.elapsed() < Duration::from_millis(100), "{:?}", begun.elapsed());
        assert_eq!(bench.store.take_calls().len(), 2);
    }
    // Two of 152 are spent, of a third one not all is there.
    bench.store.fail("get", Fault::Hang);
    bench.store.fail("get", Fault::Hang);
    let both = async {
        read(&reader, &query, 3 * MIB, 100).await;
        read(&reader, &query, 3 * MIB, 200).await;
    };
    timeout(Duration::from_secs(20), both).await.unwrap_err();
    assert!(query.metrics().get(Metric::RequestsHedged) <= 3);
}

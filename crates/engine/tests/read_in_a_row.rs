//! Fetching ahead of a reader that goes front to back: blocks of a file that is read in small
//! steps, requests for the next large step, and the memory that this may hold.

use crate::support::{Bench, Fault, Scripted, pattern, read};
use penstock_base::Metric;
use penstock_engine::{Known, Query};
use penstock_store::PutOptions;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const LATENCY: Duration = Duration::from_millis(100);

/// Lets background work go as far as it can.
async fn settle() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn small_reads_in_a_row_are_fetched_ahead_in_growing_blocks() {
    let bench = Bench::new(Scripted::new());
    let data = pattern(6 * MIB + 5);
    bench.store.place("a.csv.gz", data.clone()).await;
    let query = bench.query();
    let reader = query.open(&bench.at("a.csv.gz"), &Known::NOTHING).await.unwrap();
    let mut all = Vec::new();
    while all.len() < data.len() {
        let step = (16 * KIB).min(data.len() - all.len());
        let bytes = read(&reader, &query, all.len(), step).await;
        all.extend(bytes);
    }
    assert!(all == data);
    let calls = bench.store.take_calls();
    assert!(calls.len() <= 8, "head, then blocks of the size of what was read: {calls:?}");
    assert_eq!(query.metrics().get(Metric::BytesRead), data.len() as u64, "nothing twice");
    drop(reader);
    bench.engine.clear_cache();
    assert_eq!(bench.engine.budget().held_bytes(), 0);
}

/// Of a read that a block covers in part the rest is asked for while the block is on its way.
#[tokio::test(start_paused = true)]
async fn a_block_on_its_way_holds_up_no_request() {
    let bench = Bench::new(Scripted::remote(LATENCY));
    let data = pattern(2 * MIB);
    bench.store.place("a.csv", data.clone()).await;
    let query = bench.query();
    let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
    read(&reader, &query, 0, 200 * KIB).await;
    bench.store.take_calls();
    let begin = Instant::now();
    let first = read(&reader, &query, 200 * KIB, 200 * KIB);
    let (first, second) = tokio::join!(first, read(&reader, &query, 600 * KIB, 200 * KIB));
    assert_eq!(begin.elapsed(), LATENCY, "all is asked for at once");
    assert!(first == data[200 * KIB..400 * KIB]);
    assert!(second == data[600 * KIB..800 * KIB]);
    let mut calls = bench.store.take_calls();
    calls.sort();
    // The first 256 KiB came with the opening.
    let asked = [(256, 400), (400, 656), (656, 800)];
    let asked = asked.map(|(from, to)| format!("get a.csv {}..{}", from * KIB, to * KIB));
    assert_eq!(calls, asked, "nothing twice");
    assert_eq!(query.metrics().get(Metric::ReadAheadHits), 1);
}

/// As gzip reads, whose window doubles: what was fetched ahead of small reads is there for large
/// ones.
#[tokio::test(start_paused = true)]
async fn reads_that_grow_large_find_what_came_ahead_of_small_ones() {
    for (latency, step_max) in [(0, 2), (0, 8), (100, 2), (100, 4), (100, 8)] {
        let mut store = Scripted::remote(Duration::from_millis(latency));
        store.profile.connection_bytes_per_s = 100e6;
        let bench = Bench::with(store, &[("parallel_read_max_fanout", "1")]);
        let data = pattern(40 * MIB + 5);
        bench.store.place("a.csv.gz", data.clone()).await;
        let query = bench.query();
        let reader = query.open(&bench.at("a.csv.gz"), &Known::NOTHING).await.unwrap();
        let (mut at, mut step) = (0, 256 * KIB);
        while at < data.len() {
            let len = step.min(data.len() - at);
            assert!(read(&reader, &query, at, len).await == data[at..at + len], "{at}");
            settle().await;
            at += len;
            step = (step * 2).min(step_max * MIB);
        }
        drop(reader);
        let metrics = query.metrics();
        let told = format!("{latency} ms, steps up to {step_max} MiB");
        assert_eq!(metrics.get(Metric::BytesRead), data.len() as u64, "nothing twice: {told}");
        assert_eq!(metrics.get(Metric::ReadAheadWastedBytes), 0, "{told}");
        bench.engine.clear_cache();
        assert_eq!(bench.engine.budget().held_bytes(), 0);
    }
}

/// As zstd reads, whose steps end behind the blocks of anybody else: opening brings 1 MiB, and two
/// blocks are on their way. A client whose requests double from 1 MiB on takes as many round trips,
/// and one more to ask for the size.
#[tokio::test(start_paused = true)]
async fn compressed_text_takes_no_more_round_trips_than_requests_that_double() {
    const STEP: usize = 131_075;
    for name in ["a.json.zst", "a.csv.GZ"] {
        let bench = Bench::new(Scripted::remote(LATENCY));
        let data = pattern(15_000_000);
        bench.store.place(name, data.clone()).await;
        let query = bench.query();
        let begin = Instant::now();
        let reader = query.open(&bench.at(name), &Known::NOTHING).await.unwrap();
        for at in (0..data.len()).step_by(STEP) {
            let len = STEP.min(data.len() - at);
            assert!(read(&reader, &query, at, len).await == data[at..at + len], "{at}");
        }
        assert!(begin.elapsed() <= 4 * LATENCY, "{name}: {:?}", begin.elapsed());
        let calls = bench.store.take_calls();
        assert_eq!(calls[0], format!("get {name} 0..{MIB}"));
        assert!(calls.len() <= 8, "{calls:?}");
        assert_eq!(query.metrics().get(Metric::BytesRead), data.len() as u64, "nothing twice");
        assert_eq!(query.metrics().get(Metric::ReadAheadWastedBytes), 0);
        // DuckDB reads it a second time.
        for at in (0..MIB - STEP).step_by(STEP) {
            assert!(read(&reader, &query, at, STEP).await == data[at..at + STEP], "{at}");
        }
        assert_eq!(query.metrics().get(Metric::BytesRead), data.len() as u64, "it is here");
    }
}

/// What a statement that may end early reads of compressed text costs what opening brings, and what
/// a run may be ahead of it.
#[tokio::test(start_paused = true)]
async fn of_compressed_text_little_is_ahead_in_a_statement_that_may_end_early() {
    let bench = Bench::new(Scripted::remote(LATENCY));
    bench.store.place("a.csv.gz", pattern(15 * MIB)).await;
    let query = bench.query();
    query.may_end_early();
    let reader = query.open(&bench.at("a.csv.gz"), &Known::NOTHING).await.unwrap();
    for index in 0..4 {
        read(&reader, &query, index * 128 * KIB, 128 * KIB).await;
        settle().await;
    }
    drop(reader);
    assert_eq!(bench.store.take_calls(), [format!("get a.csv.gz 0..{MIB}")]);
}

#[tokio::test(start_paused = true)]
async fn the_next_block_is_on_its_way_before_it_is_needed() {
    let bench = Bench::new(Scripted::new());
    bench.store.place("a.csv", pattern(4 * MIB)).await;
    let query = bench.query();
    let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
    bench.store.take_calls();
    for index in 0..12 {
        read(&reader, &query, index * 16 * KIB, 16 * KIB).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.store.take_calls(), ["get a.csv 262144..524288"]);
}

/// DuckDB looks at the beginning of a text file and then reads it from the beginning: what came
/// ahead of the first look is not fetched twice.
#[tokio::test(start_paused = true)]
async fn what_lies_ready_is_kept_for_a_reader_that_goes_back_to_the_beginning() {
    let bench = Bench::new(Scripted::new());
    let data = pattern(6 * MIB + 5);
    bench.store.place("a.csv.gz", data.clone()).await;
    let query = bench.query();
    let reader = query.open(&bench.at("a.csv.gz"), &Known::NOTHING).await.unwrap();
    let step = 16 * KIB;
    for index in 0..MIB / step {
        read(&reader, &query, index * step, step).await;
        settle().await;
    }
    let first = query.metrics().get(Metric::BytesRead);
    assert!(first > 3 * MIB as u64 / 2, "{first}: there is something to lose");
    for at in (0..data.len()).step_by(step) {
        let length = step.min(data.len() - at);
        assert!(read(&reader, &query, at, length).await == data[at..at + length]);
        settle().await;
    }
    drop(reader);
    let metrics = query.metrics();
    assert_eq!(metrics.get(Metric::ReadAheadWastedBytes), 0);
    assert!(metrics.get(Metric::BytesRead) <= (data.len() + MIB) as u64, "only the look twice");
    bench.engine.clear_cache();
    assert_eq!(bench.engine.budget().held_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn reads_here_and_there_fetch_nothing_ahead() {
    let bench = Bench::new(Scripted::new());
    let data = pattern(4 * MIB);
    bench.store.place("a.bin", data.clone()).await;
    let query = bench.query();
    let reader = query.open(&bench.at("a.bin"), &Known::NOTHING).await.unwrap();
    bench.store.take_calls();
    for index in [50, 10, 30, 20, 40] {
        let offset = index * 64 * KIB;
        assert_eq!(read(&reader, &query, offset, 10).await, &data[offset..offset + 10]);
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.store.take_calls().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_block_that_fails_is_read_again_by_the_reader_that_needs_it() {
    let bench = Bench::new(Scripted::new());
    let data = pattern(MIB);
    bench.store.place("a.csv", data.clone()).await;
    let query = bench.query();
    let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
    bench.store.fail("get", Fault::Deny);
    for index in 0..32 {
        let offset = index * 16 * KIB;
        assert_eq!(read(&reader, &query, offset, 16 * KIB).await, &data[offset..offset + 16 * KIB]);
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn writers_get_the_memory_of_what_was_read_ahead() {
    let bench = Bench::with(Scripted::like_azure(), &[("memory_limit_bytes", "64MiB")]);
    bench.store.place("a.csv", pattern(40 * MIB)).await;
    let query = bench.query();
    let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
    for index in 0..100 {
        read(&reader, &query, index * 128 * KIB, 128 * KIB).await;
        tokio::task::yield_now().await;
    }
    assert!(bench.engine.budget().held_bytes() > 8 << 20);
    let gate = bench.store.hold("part");
    let mut writer = query.create(&bench.at("out"), PutOptions::default()).unwrap();
    let data = pattern(100 * MIB);
    let open = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(bench.engine.budget().held_bytes() <= 64 << 20);
        gate.add_permits(1000);
    };
    let (written, ()) = tokio::join!(writer.write(&data), open);
    written.unwrap();
    writer.finish().await.unwrap();
    assert!(bench.store.content("out").await.unwrap() == data);
}

/// Reads of an object in steps of so many bytes; round trips, as the clock of the test tells.
async fn in_steps(bench: &Bench, query: &Query, data: &[u8], step: usize) -> u128 {
    let reader = query.open(&bench.at("a.bin"), &Known::NOTHING).await.unwrap();
    let begun = tokio::time::Instant::now();
    for start in (0..data.len()).step_by(step) {
        let len = step.min(data.len() - start);
        assert!(read(&reader, query, start, len).await == data[start..start + len]);
        // The reader is busy with it.
        settle().await;
    }
    begun.elapsed().as_millis() / LATENCY.as_millis()
}

#[tokio::test(start_paused = true)]
async fn the_next_large_read_is_asked_for_before_the_present_one_is_over() {
    for (step, round_trips_max) in [(4 * MIB, 6), (16 * MIB, 4)] {
        let mut store = Scripted::remote(LATENCY);
        store.profile.connection_bytes_per_s = 1e9;
        let bench = Bench::with(store, &[("open_fetch_bytes", "0")]);
        let data = pattern(40 * MIB + 5);
        bench.store.place("a.bin", data.clone()).await;
        let query = bench.query();
        let round_trips = in_steps(&bench, &query, &data, step).await;
        assert!(round_trips <= round_trips_max, "{step}: {round_trips} round trips");
        let metrics = query.metrics();
        assert_eq!(metrics.get(Metric::BytesRead), data.len() as u64, "nothing twice");
        assert_eq!(metrics.get(Metric::ReadAheadWastedBytes), 0);
        assert!(metrics.get(Metric::ReadAheadHits) > 0);
        assert_eq!(bench.engine.budget().held_bytes(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn large_reads_here_and_there_or_of_a_store_nearby_ask_for_nothing_else() {
    for (delay, starts) in [(LATENCY, vec![8, 0, 32, 16]), (Duration::ZERO, vec![0, 4, 8, 12])] {
        let bench = Bench::with(Scripted::remote(delay), &[("parallel_read_max_fanout", "1")]);
        let data = pattern(40 * MIB);
        bench.store.place("a.bin", data.clone()).await;
        let query = bench.query();
        let reader = query.open(&bench.at("a.bin"), &Known::NOTHING).await.unwrap();
        // A store that is near is known to be so from its first answers on.
        read(&reader, &query, 39 * MIB, KIB).await;
        bench.store.take_calls();
        for start in &starts {
            read(&reader, &query, start * MIB, 4 * MIB).await;
            settle().await;
        }
        let calls = bench.store.take_calls();
        // The read of the beginning is no run before another one follows it.
        let of_the_next = usize::from(!delay.is_zero());
        assert_eq!(calls.len(), 4 + of_the_next, "{calls:?}");
        assert!(query.metrics().get(Metric::ReadAheadWastedBytes) <= 4 * MIB as u64 / 10);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_for_behind_a_large_read_is_bounded_and_ends_with_the_query() {
    for end in ["cancel", "drop", "close"] {
        let store = Scripted::remote(LATENCY);
        let bench = Bench::with(store, &[("memory_limit_bytes", "64MiB")]);
        let data = pattern(100 * MIB);
        bench.store.place("a.bin", data.clone()).await;
        let query = bench.query();
        let reader = query.open(&bench.at("a.bin"), &Known::NOTHING).await.unwrap();
        let before = bench.engine.budget().held_bytes();
        for start in (0..60).step_by(12) {
            read(&reader, &query, start * MIB, 12 * MIB).await;
            tokio::time::sleep(2 * LATENCY).await;
            let held = bench.engine.budget().held_bytes() - before;
            let most = if start == 0 { 12 * MIB as u64 / 10 } else { 16 << 20 };
            assert!(held > 0 && held <= most, "{held} behind {start} MiB");
        }
        match end {
            "cancel" => query.cancel(),
            "drop" => drop(query),
            _ => drop(reader),
        }
        settle().await;
        assert_eq!(bench.engine.budget().held_bytes(), before, "{end}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_begun_and_fails_is_made_again_by_the_read_that_needs_it() {
    let bench = Bench::new(Scripted::remote(LATENCY));
    let data = pattern(24 * MIB);
    bench.store.place("a.bin", data.clone()).await;
    let query = bench.query();
    let reader = query.open(&bench.at("a.bin"), &Known::NOTHING).await.unwrap();
    read(&reader, &query, 0, 8 * MIB).await;
    bench.store.fail("get", Fault::Deny);
    bench.store.fail("get", Fault::CutBody(MIB));
    for start in [8 * MIB, 16 * MIB] {
        let bytes = read(&reader, &query, start, 8 * MIB).await;
        assert!(bytes == data[start..start + 8 * MIB], "{start}");
    }
}

/// As the threads of a JSON scan read: each has a reader, and takes the next step when it is done
/// with the one before.
#[tokio::test(start_paused = true)]
async fn readers_that_take_turns_find_asked_for_what_follows_all_of_them() {
    const STEP: usize = 4 * MIB;
    let mut store = Scripted::remote(LATENCY);
    store.profile.connection_bytes_per_s = 1e9;
    let bench = Bench::with(store, &[("open_fetch_bytes", "0"), ("parallel_read_max_fanout", "1")]);
    let data = pattern(24 * STEP + 5);
    bench.store.place("a.json", data.clone()).await;
    let query = bench.query();
    let mut readers = Vec::new();
    for _ in 0..3 {
        readers.push(query.open(&bench.at("a.json"), &Known::NOTHING).await.unwrap());
    }
    let begun = tokio::time::Instant::now();
    let next = std::cell::Cell::new(0);
    let scan = async |reader: &penstock_engine::Reader| {
        while next.get() < data.len() {
            let start = next.get();
            let len = STEP.min(data.len() - start);
            next.set(start + len);
            assert!(read(reader, &query, start, len).await == data[start..start + len]);
            settle().await;
        }
    };
    tokio::join!(scan(&readers[0]), scan(&readers[1]), scan(&readers[2]));
    let round_trips = begun.elapsed().as_millis() / LATENCY.as_millis();
    assert!(round_trips <= 5, "{round_trips} round trips, where eight are without");
    let metrics = query.metrics();
    assert_eq!(metrics.get(Metric::BytesRead), data.len() as u64, "nothing twice");
    assert_eq!(metrics.get(Metric::ReadAheadWastedBytes), 0);
    drop(readers);
    assert_eq!(bench.engine.budget().held_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn two_scans_of_one_object_are_two_runs() {
    const STEP: usize = 4 * MIB;
    let bench = Bench::with(Scripted::remote(LATENCY), &[("parallel_read_max_fanout", "1")]);
    let data = pattern(8 * STEP);
    bench.store.place("a.json", data.clone()).await;
    let query = bench.query();
    let one = query.open(&bench.at("a.json"), &Known::NOTHING).await.unwrap();
    let other = query.open(&bench.at("a.json"), &Known::NOTHING).await.unwrap();
    for start in (0..data.len()).step_by(STEP) {
        for reader in [&one, &other] {
            assert!(read(reader, &query, start, STEP).await == data[start..start + STEP]);
            settle().await;
        }
    }
    let metrics = query.metrics();
    assert!(metrics.get(Metric::ReadAheadHits) >= 12, "both find what follows");
    assert_eq!(metrics.get(Metric::ReadAheadWastedBytes), 0);
}

/// A reader that goes on much later, or never: its request gives connection and memory back.
#[tokio::test(start_paused = true)]
async fn a_request_that_nobody_takes_over_ends_after_the_stall_timeout() {
    let bench = Bench::with(Scripted::remote(LATENCY), &[("stall_timeout_ms", "5000")]);
    let data = pattern(32 * MIB);
    bench.store.place("a.csv", data.clone()).await;
    let query = bench.query();
    let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
    let before = bench.engine.budget().held_bytes();
    for index in 0..2 {
        let step = 4 * MIB * index;
        assert!(read(&reader, &query, step, 4 * MIB).await == data[step..step + 4 * MIB]);
    }
    tokio::time::sleep(2 * LATENCY).await;
    assert!(bench.engine.budget().held_bytes() > before, "something is ahead");
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(bench.engine.budget().held_bytes(), before);
    assert!(read(&reader, &query, 8 * MIB, 4 * MIB).await == data[8 * MIB..12 * MIB]);
}

/// Requests that wait for their readers leave connections to reads on demand: two files that are
/// read in turn never wait until one of them gives up.
#[tokio::test(start_paused = true)]
async fn few_connections_are_not_taken_by_what_nobody_reads_yet() {
    for connections in [1, 2, 3] {
        let mut store = Scripted::remote(LATENCY);
        store.connections = Some(Arc::new(Semaphore::new(connections)));
        let count = connections.to_string();
        let bench = Bench::with(store, &[("connections_per_host", &count)]);
        let data = pattern(40 * MIB);
        let query = bench.query();
        let mut readers = Vec::new();
        for key in ["a.bin", "b.bin", "c.bin"] {
            bench.store.place(key, data.clone()).await;
            readers.push(query.open(&bench.at(key), &Known::NOTHING).await.unwrap());
        }
        let began = Instant::now();
        for start in (0..40).step_by(2) {
            for reader in &readers {
                let bytes = read(reader, &query, start * MIB, 2 * MIB).await;
                assert!(bytes == data[start * MIB..(start + 2) * MIB]);
            }
        }
        let round_trips = began.elapsed().as_millis() / LATENCY.as_millis();
        assert!(round_trips <= 3 * 20 * 2, "{connections}: {round_trips} for 60 reads");
        let ahead = query.metrics().get(Metric::ReadAheadBytes);
        assert_eq!(ahead == 0, connections == 1, "{connections}: {ahead}");
    }
}

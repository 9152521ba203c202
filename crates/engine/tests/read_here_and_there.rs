//! What is fetched ahead of a reader that jumps, as one of an attached database does, or that stops
//! midway: a tenth of what it read, and a start. And that one which goes to the end pays nothing.

use crate::support::{Bench, Link, Scripted, pattern, read};
use penstock_base::Metric;
use penstock_engine::{Known, Query, Reader};
use std::time::Duration;
use tokio::time::Instant;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const LATENCY: Duration = Duration::from_millis(100);
/// Where the blocks of a database begin, and how long they are.
const HEADERS: usize = 12 * KIB;
const BLOCK: usize = 256 * KIB;
/// What may be in vain of a reader that jumps, beyond a tenth.
const START: u64 = 256 << 10;
/// And of one that does not: two of the largest blocks.
const FRONT_START: u64 = 16 << 20;

/// Lets background work go as far as it can.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// Reads blocks of a database as DuckDB does for a column of a table with one thread: the headers,
/// its directory at the end, and of each row group the blocks of the column, `in_a_row` of which
/// follow each other; those of the other columns lie between. Gives how much was read.
async fn scan_a_column(
    reader: &Reader,
    query: &Query,
    data: &[u8],
    in_a_row: usize,
    at_once: usize,
) -> u64 {
    let blocks = (data.len() - HEADERS) / BLOCK;
    let block = |number: usize, count: usize| (HEADERS + number * BLOCK, count * BLOCK);
    let mut reads: Vec<(usize, usize)> = (0..3).map(|header| (header * 4 * KIB, 4 * KIB)).collect();
    reads.extend([block(blocks - 1, 1), block(blocks - 3, 1), block(blocks - 2, 1)]);
    for group in (0..blocks - 4 * in_a_row).step_by(4 * in_a_row) {
        for number in (group..group + in_a_row).step_by(at_once) {
            reads.push(block(number, at_once.min(group + in_a_row - number)));
        }
        // What does not fit into the blocks of its group lies elsewhere.
        if group % 3 == 0 {
            reads.push(block(group + 2 * in_a_row, 1));
        }
    }
    let mut read_bytes = 0;
    for (start, length) in reads {
        assert!(read(reader, query, start, length).await == data[start..start + length], "{start}");
        settle().await;
        read_bytes += length as u64;
    }
    read_bytes
}

#[tokio::test(start_paused = true)]
async fn a_database_that_is_attached_wastes_a_tenth() {
    let data = pattern(HEADERS + 200 * BLOCK);
    for (latency, cache) in [(Duration::ZERO, "0"), (LATENCY, "0"), (LATENCY, "64MiB")] {
        for (in_a_row, at_once) in [(2, 1), (4, 1), (5, 1), (7, 1), (4, 2), (12, 5), (20, 10)] {
            let settings = [("cache_memory_bytes", cache)];
            let bench = Bench::with(Scripted::remote(latency), &settings);
            bench.store.place("a.db", data.clone()).await;
            let query = bench.query();
            let reader = query.open(&bench.at("a.db"), &Known::NOTHING).await.unwrap();
            let read_bytes = scan_a_column(&reader, &query, &data, in_a_row, at_once).await;
            drop(reader);
            query.cancel();
            settle().await;
            let metrics = query.metrics();
            let wasted = metrics.get(Metric::ReadAheadWastedBytes);
            let told = format!("{in_a_row} in a row, {at_once} at once, {latency:?}, {cache}");
            let most = START + read_bytes / 10;
            assert!(wasted <= most, "{wasted} in vain of {read_bytes} read: {told}");
            if at_once == 1 && in_a_row >= 4 {
                assert!(metrics.get(Metric::ReadAheadHits) > 0, "none came ahead: {told}");
            }
            drop(query);
            bench.engine.clear_cache();
            assert_eq!(bench.engine.budget().held_bytes(), 0, "{told}");
        }
    }
}

/// One that takes rows of a result and then closes it.
#[tokio::test(start_paused = true)]
async fn a_reader_that_stops_midway_leaves_two_blocks_and_a_tenth_in_vain() {
    let data = pattern(80 * MIB);
    for step in [64 * KIB, 768 * KIB, 2 * MIB] {
        for length in [MIB, 6 * MIB, 20 * MIB, 40 * MIB] {
            let bench = Bench::new(Scripted::remote(LATENCY));
            bench.store.place("a.csv", data.clone()).await;
            let query = bench.query();
            let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
            for start in (0..length).step_by(step) {
                assert!(read(&reader, &query, start, step).await == data[start..start + step]);
                settle().await;
            }
            drop(reader);
            query.cancel();
            settle().await;
            let wasted = query.metrics().get(Metric::ReadAheadWastedBytes);
            let read_bytes = length.next_multiple_of(step) as u64;
            let most = FRONT_START + read_bytes / 10;
            assert!(wasted <= most, "{wasted} in vain, {step} bytes at once up to {length}");
        }
    }
}

/// It reads all that is ahead of it, so that nothing is held back; over a link that brings as much
/// in a round trip as may be ahead, it is full once the run is long enough.
#[tokio::test(start_paused = true)]
async fn a_reader_that_goes_to_the_end_fills_the_link_and_wastes_nothing() {
    const BYTES_PER_S: f64 = 80e6;
    let data = pattern(64 * MIB + 5);
    for step in [64 * KIB, 256 * KIB, MIB, 4 * MIB] {
        let mut store = Scripted::remote(LATENCY);
        store.link = Some(Link::new(BYTES_PER_S));
        let bench = Bench::new(store);
        bench.store.place("a.csv", data.clone()).await;
        let query = bench.query();
        let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
        let begun = Instant::now();
        for start in (0..data.len()).step_by(step) {
            let end = data.len().min(start + step);
            assert!(read(&reader, &query, start, end - start).await == data[start..end]);
        }
        let took = begun.elapsed().as_secs_f64();
        let metrics = query.metrics();
        assert_eq!(metrics.get(Metric::ReadAheadWastedBytes), 0, "steps of {step}");
        assert_eq!(metrics.get(Metric::BytesRead), data.len() as u64, "nothing twice");
        // It doubles what is ahead with each round trip until the link is full.
        let most = data.len() as f64 / BYTES_PER_S + 8.0 * LATENCY.as_secs_f64();
        assert!(took <= most, "{took:.3} s in steps of {step}, {most:.3} at most");
    }
}

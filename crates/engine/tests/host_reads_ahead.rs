//! A host that fetches ahead itself, as DuckDB 2.0 does: each of a few threads reads blocks of at
//! most 2 MiB, one row group after the other, on a grid of 4 KiB. On a virtual clock.

use crate::support::{Bench, Link, Scripted, pattern, read};
use penstock_base::{ByteRange, Metric};
use penstock_engine::Known;
use penstock_testkit::parquet::footer;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

const GRID: usize = 4096;
const BLOCK: usize = 2 << 20;
const LATENCY: Duration = Duration::from_millis(100);
const BYTES_PER_S: f64 = 500e6;
/// The footer and its length.
const TAIL: usize = 8;

/// A file of row groups of a few columns, and which of them are read.
#[derive(Clone, Copy)]
struct Scan {
    groups: usize,
    column_bytes: usize,
    columns: usize,
    /// The first ones behind column 0; or all, where it is as many as there are.
    wanted: usize,
    /// Of the host.
    threads: usize,
    /// Its file handles, which its threads share.
    handles: usize,
}

/// What a scan took and asked for.
struct Outcome {
    time: Duration,
    requests: usize,
    sent_bytes: u64,
    wasted_bytes: u64,
}

impl Scan {
    fn chunk(&self, group: usize, column: usize) -> ByteRange {
        let start = 4 + (group * self.columns + column) * self.column_bytes;
        ByteRange::of_len(start as u64, self.column_bytes as u64).unwrap()
    }

    fn file(&self) -> Vec<u8> {
        let mut data = pattern(4 + self.groups * self.columns * self.column_bytes);
        // Bloom filters and indexes: the last columns do not come with the footer.
        data.extend(pattern(1 << 20));
        let group = |group: usize| (0..self.columns).map(|at| self.chunk(group, at)).collect();
        data.extend(footer(&(0..self.groups).map(group).collect::<Vec<Vec<_>>>()));
        data
    }

    fn first(&self) -> usize {
        usize::from(self.wanted < self.columns)
    }

    /// The blocks that the host reads, in order: the wanted columns of a row group are one range.
    fn blocks(&self, size: usize) -> Vec<(usize, usize)> {
        let mut blocks = Vec::new();
        for group in 0..self.groups {
            let start = self.chunk(group, self.first()).start as usize / GRID * GRID;
            let last = self.chunk(group, self.first() + self.wanted - 1).end as usize;
            let end = last.next_multiple_of(GRID).min(size);
            blocks.extend((start..end).step_by(BLOCK).map(|at| (at, (end - at).min(BLOCK))));
        }
        blocks
    }

    /// How long it takes at least: the footer, a round trip, and all bytes.
    fn least(&self) -> Duration {
        let bytes = self.groups * self.wanted * self.column_bytes;
        2 * LATENCY + Duration::from_secs_f64(bytes as f64 / BYTES_PER_S)
    }

    async fn run(&self, is_told: bool) -> Outcome {
        let mut store = Scripted::remote(LATENCY);
        store.link = Some(Link::new(BYTES_PER_S));
        store.profile.connection_bytes_per_s = 90e6;
        let bench = Bench::with(store, &[("memory_limit_bytes", "1GiB")]);
        let data = Arc::new(self.file());
        bench.store.place("t.parquet", data.to_vec()).await;
        let (query, at) = (Arc::new(bench.query()), bench.at("t.parquet"));
        query.host_reads_ahead(GRID as u64);
        let begin = Instant::now();
        let reader = query.open(&at, &Known::default()).await.unwrap();
        read(&reader, &query, data.len() - TAIL, TAIL).await;
        if is_told {
            let columns: Vec<u32> =
                (self.first()..self.first() + self.wanted).map(|at| at as u32).collect();
            query.will_read(&at, &columns, true);
        }
        let mut left = self.blocks(data.len());
        if self.handles == 1 {
            // Its threads come one before the other, as it happens.
            left[1..].chunks_exact_mut(2).for_each(|pair| pair.swap(0, 1));
        }
        let left: VecDeque<_> = left.into();
        let left = Arc::new(Mutex::new(left));
        let mut threads = JoinSet::new();
        let mut readers = Vec::new();
        for _ in 0..self.handles {
            readers.push(Arc::new(query.open(&at, &Known::default()).await.unwrap()));
        }
        for thread in 0..self.threads {
            let (left, query, data) = (left.clone(), query.clone(), data.clone());
            let reader = Arc::clone(&readers[thread % self.handles]);
            threads.spawn(async move {
                loop {
                    let Some((start, len)) = left.lock().unwrap().pop_front() else { return };
                    let found = read(&reader, &query, start, len).await;
                    assert!(found == data[start..start + len], "{len} bytes at {start}");
                }
            });
        }
        threads.join_all().await;
        let time = begin.elapsed();
        let sent = bench.store.take_calls();
        let metrics = query.metrics();
        Outcome {
            time,
            requests: sent.len(),
            sent_bytes: metrics.get(Metric::BytesRead),
            wasted_bytes: metrics.get(Metric::ReadAheadWastedBytes),
        }
    }
}

const ONE_LARGE: Scan = Scan {
    groups: 1,
    column_bytes: (6 << 20) + 100,
    columns: 6,
    wanted: 6,
    threads: 4,
    handles: 4,
};
const ONE_COLUMN: Scan =
    Scan { groups: 40, column_bytes: (1 << 20) + 1000, columns: 2, wanted: 1, ..ONE_LARGE };
const SMALL: Scan = Scan { groups: 200, column_bytes: 50_000, columns: 3, wanted: 1, ..ONE_LARGE };

/// Two blocks each: by the time the second is read, its reader may have been in the next one.
const ALL_COLUMNS: Scan =
    Scan { groups: 16, column_bytes: 900_000, columns: 4, wanted: 4, handles: 1, ..ONE_LARGE };

/// One large row group, one column of many, small ones, and all columns: by the host's threads
/// alone each of them waits for a round trip with each block.
#[tokio::test(start_paused = true)]
async fn a_scan_whose_columns_are_told_fills_the_link_whatever_the_hosts_threads() {
    let scans =
        [("large", ONE_LARGE), ("column", ONE_COLUMN), ("small", SMALL), ("all", ALL_COLUMNS)];
    for (name, scan) in scans {
        for threads in [4, 16] {
            let scan = Scan { threads, ..scan };
            let (told, alone) = (scan.run(true).await, scan.run(false).await);
            let case = format!("{name}, {threads} threads: {:?} of {:?}", told.time, scan.least());
            // At most 48 requests are on their way, and the small ones are 200.
            assert!(told.time <= scan.least() + 6 * LATENCY, "{case}");
            let percent = if threads == 4 { 150 } else { 100 };
            assert!(told.time * percent / 100 <= alone.time, "{case}, alone {:?}", alone.time);
            assert!(told.requests <= alone.requests, "{case}: {}", told.requests);
            assert_eq!(told.wasted_bytes, 0, "{case}");
            let read = (scan.groups * scan.wanted * scan.column_bytes) as u64;
            assert!(told.sent_bytes <= read + read / 10 + (2 << 20), "{case}: {}", told.sent_bytes);
        }
    }
}

/// Its order tells nothing: row groups are read beside each other, and by any of its readers.
#[tokio::test(start_paused = true)]
async fn nothing_is_learned_from_a_hosts_own_fetching_ahead() {
    let scan = Scan { threads: 4, ..ONE_COLUMN };
    let outcome = scan.run(false).await;
    assert_eq!(outcome.wasted_bytes, 0);
    assert!(outcome.requests >= scan.groups, "{}", outcome.requests);
}

/// Blocks that follow each other and then others elsewhere, as where a filter leaves rows: nothing
/// is asked for behind them.
#[tokio::test(start_paused = true)]
async fn what_follows_a_few_blocks_of_a_host_is_left_to_it() {
    let bench = Bench::with(Scripted::remote(LATENCY), &[]);
    let data = Scan { groups: 40, ..ONE_COLUMN }.file();
    bench.store.place("t.parquet", data.clone()).await;
    let (query, at) = (bench.query(), bench.at("t.parquet"));
    query.host_reads_ahead(GRID as u64);
    let reader = query.open(&at, &Known::default()).await.unwrap();
    // The last ones are as many as make a run of another reader go on.
    for (place, blocks) in [(0, 3), (4, 3), (8, 11)] {
        for block in 0..blocks {
            let start = (place + block) * BLOCK;
            assert!(read(&reader, &query, start, BLOCK).await == data[start..start + BLOCK]);
        }
    }
    drop(reader);
    assert_eq!(query.metrics().get(Metric::ReadAheadWastedBytes), 0);
    assert_eq!(bench.store.take_calls().len(), 1 + 17, "the opening, and one for each block");
}

/// A host divides a long read of text into blocks, and has five threads to fetch them. The rest of
/// that read is requested with the first blocks, in whatever order the threads come. This holds for
/// statements that may end early, too.
#[tokio::test(start_paused = true)]
async fn a_long_read_of_text_takes_one_round_trip_however_few_threads_fetch_its_blocks() {
    const SIZE: usize = 11 * BLOCK - 4321;
    let data = pattern(SIZE);
    for (order, ends_early) in [
        ([0, 1, 2, 3, 4], false),
        ([3, 1, 4, 0, 2], false),
        ([0, 1, 2, 3, 4], true),
        ([3, 1, 4, 0, 2], true),
    ] {
        let mut store = Scripted::remote(LATENCY);
        store.link = Some(Link::new(BYTES_PER_S));
        store.profile.connection_bytes_per_s = 90e6;
        let bench = Bench::with(store, &[("memory_limit_bytes", "1GiB")]);
        bench.store.place("t.csv", data.clone()).await;
        let (query, at) = (Arc::new(bench.query()), bench.at("t.csv"));
        query.host_reads_ahead(GRID as u64);
        if ends_early {
            query.may_end_early();
        }
        let begin = Instant::now();
        let reader = Arc::new(query.open(&at, &Known::default()).await.unwrap());
        let left = Arc::new(Mutex::new((5..11).collect::<VecDeque<usize>>()));
        let mut threads = JoinSet::new();
        for first in order {
            let (left, reader, query, data) =
                (left.clone(), reader.clone(), query.clone(), data.clone());
            threads.spawn(async move {
                let mut next = Some(first);
                while let Some(block) = next {
                    let start = block * BLOCK;
                    let len = BLOCK.min(SIZE - start);
                    let found = read(&reader, &query, start, len).await;
                    assert!(found == data[start..start + len], "block {block}");
                    next = left.lock().unwrap().pop_front();
                }
            });
        }
        threads.join_all().await;
        let (time, metrics) = (begin.elapsed(), query.metrics());
        let least = 2 * LATENCY + Duration::from_secs_f64(SIZE as f64 / BYTES_PER_S);
        assert!(time < least + LATENCY / 2, "{order:?}: {time:?}, at least {least:?}");
        assert_eq!(metrics.get(Metric::BytesRead), SIZE as u64, "{order:?}");
        assert_eq!(metrics.get(Metric::ReadAheadWastedBytes), 0, "{order:?}");
    }
}

/// The host hears what another request adds: a round trip. Where a plan named the columns of the
/// scan, that is a share of one, or as long as the smallest block takes.
#[tokio::test(start_paused = true)]
async fn a_request_that_shares_its_round_trip_costs_its_share() {
    for (bytes_per_s, gap_bytes) in [(10e6, 20_833), (1e9, 256 << 10)] {
        let mut store = Scripted::remote(LATENCY);
        store.profile.connection_bytes_per_s = bytes_per_s;
        let bench = Bench::with(store, &[]);
        bench.store.place("t.parquet", ONE_COLUMN.file()).await;
        let (query, at) = (bench.query(), bench.at("t.parquet"));
        query.host_reads_ahead(GRID as u64);
        let reader = query.open(&at, &Known::default()).await.unwrap();
        assert_eq!(reader.link(&query).latency, LATENCY);
        query.will_read(&at, &[1], true);
        // What the host makes of it: a shorter gap between columns is read.
        let link = reader.link(&query);
        assert_eq!((link.latency.as_secs_f64() * link.bytes_per_s) as u64, gap_bytes, "{link:?}");
        // Another statement may filter.
        let other = bench.query();
        other.host_reads_ahead(GRID as u64);
        let reader = other.open(&at, &Known::default()).await.unwrap();
        assert_eq!(reader.link(&other).latency, LATENCY);
    }
}

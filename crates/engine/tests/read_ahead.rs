//! Fetching ahead: footers and columns of a glob's next files, the next row groups of a file, and
//! the memory that this may hold.

use crate::support::{Bench, Scripted, pattern, read};
use penstock_base::{ByteRange, Metric};
use penstock_engine::{Entry, Known, Query, Reader};
use penstock_store::PutOptions;
use penstock_testkit::parquet::footer;
use std::time::Duration;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

#[tokio::test(start_paused = true)]
async fn footers_of_a_globs_next_files_are_fetched_ahead_from_the_first_read_on() {
    let bench = Bench::new(Scripted::new());
    let data = pattern(MIB);
    for index in 0..40 {
        bench.store.place(&format!("d/{index:02}.parquet"), data.clone()).await;
    }
    let query = bench.query();
    let found = query.glob(&bench.at("d/*.parquet")).await.unwrap();
    bench.store.take_calls();
    let mut calls = Vec::new();
    for (index, entry) in found.iter().enumerate() {
        let reader = open_found(&bench, &query, entry).await;
        settle().await;
        calls.extend(bench.store.take_calls());
        if index == 0 {
            assert!(calls.is_empty(), "nobody reads yet: {calls:?}");
        }
        assert_eq!(
            read(&reader, &query, data.len() - 16 * KIB, 16 * KIB).await,
            &data[data.len() - 16 * KIB..]
        );
        settle().await;
        calls.extend(bench.store.take_calls());
        if index == 0 {
            assert_eq!(calls.len(), 1 + 15, "the first begins fifteen: {calls:?}");
        }
    }
    let each_once: Vec<String> =
        (0..40).map(|index| format!("get d/{index:02}.parquet 1032192..1048576")).collect();
    calls.sort();
    assert_eq!(calls, each_once);
}

/// Ten files of 200 KiB together are not worth one round trip, so only footers come ahead, and then
/// each read asks for what it wants.
#[tokio::test(start_paused = true)]
async fn many_small_files_of_a_glob_give_their_footers_and_few_come_whole() {
    for (size, window) in [(200 * KIB, "188416..204800"), (20 * KIB, "0..20480")] {
        let bench = Bench::new(Scripted::new());
        let data = pattern(size);
        for index in 0..10 {
            bench.store.place(&format!("d/{index}.parquet"), data.clone()).await;
        }
        let query = bench.query();
        let found = query.glob(&bench.at("d/*.parquet")).await.unwrap();
        bench.store.take_calls();
        let first = open_found(&bench, &query, &found[0]).await;
        read(&first, &query, size - 8, 8).await;
        settle().await;
        let mut calls = bench.store.take_calls();
        calls.retain(|call| !call.contains("/0."));
        calls.sort();
        let expected: Vec<String> =
            (1..10).map(|index| format!("get d/{index}.parquet {window}")).collect();
        assert_eq!(calls, expected);
        let second = open_found(&bench, &query, &found[1]).await;
        assert_eq!(read(&second, &query, 4, KIB).await, &data[4..4 + KIB]);
        let calls = bench.store.take_calls();
        let of_the_second: Vec<_> = calls.iter().filter(|call| call.contains("/1.")).collect();
        if size == 200 * KIB {
            assert_eq!(of_the_second, ["get d/1.parquet 4..1028"]);
        } else {
            assert!(of_the_second.is_empty(), "{of_the_second:?}");
        }
    }
}

/// Opens what a glob found, as a scan does.
async fn open_found(bench: &Bench, query: &Query, entry: &Entry) -> Reader {
    let known = Known { meta: entry.meta.clone(), ..Known::default() };
    query.open(&bench.at(&entry.key), &known).await.unwrap()
}

/// Lets background work go as far as it can.
async fn settle() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

/// Files of two row groups of three columns, each chunk of `chunk_bytes`.
async fn place_columns(bench: &Bench, count: usize, chunk_bytes: usize) -> Vec<u8> {
    let data = parquet(2, chunk_bytes);
    for index in 0..count {
        bench.store.place(&format!("d/{index:02}.parquet"), data.clone()).await;
    }
    data
}

#[tokio::test(start_paused = true)]
async fn columns_read_in_one_file_of_a_glob_are_fetched_ahead_in_the_next_ones() {
    const CHUNK: usize = 100 * KIB;
    for (delay_ms, expected) in [(10, "together"), (0, "on demand")] {
        let bench = Bench::new(Scripted::remote(Duration::from_millis(delay_ms)));
        let data = place_columns(&bench, 6, CHUNK).await;
        let query = bench.query();
        let found = query.glob(&bench.at("d/*.parquet")).await.unwrap();
        for (index, entry) in found.iter().enumerate() {
            let reader = open_found(&bench, &query, entry).await;
            // Longer than the footer, as DuckDB reads it.
            read(&reader, &query, data.len() - 16 * KIB, 16 * KIB).await;
            settle().await;
            bench.store.take_calls();
            for start in [4 + CHUNK, 4 + 4 * CHUNK] {
                let column = read(&reader, &query, start, CHUNK).await;
                assert_eq!(column, &data[start..start + CHUNK]);
            }
            let calls = bench.store.take_calls();
            match (expected, index) {
                // The second column of both row groups of all six files, this read among them.
                ("together", 0) => assert_eq!(calls.len(), 12, "{calls:?}"),
                ("together", _) => assert!(calls.is_empty(), "{calls:?}"),
                _ => assert_eq!(calls.len(), 2, "{calls:?}"),
            }
        }
        assert!(bench.engine.budget().held_bytes() < MIB as u64, "what was read is given back");
    }
}

/// Of small chunks a fixed number could lie ready for one column, and none for the next one.
#[tokio::test(start_paused = true)]
async fn blocks_that_lie_ready_hold_no_request_up() {
    const CHUNK: usize = 20 * KIB;
    let bench = Bench::new(Scripted::remote(Duration::from_millis(10)));
    let data = parquet(8, CHUNK);
    for index in 0..14 {
        bench.store.place(&format!("d/{index:02}.parquet"), data.clone()).await;
    }
    let query = bench.query();
    let found = query.glob(&bench.at("d/*.parquet")).await.unwrap();
    let reader = open_found(&bench, &query, &found[0]).await;
    read(&reader, &query, data.len() - 16 * KIB, 16 * KIB).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    for column in [2, 0] {
        read(&reader, &query, 4 + column * CHUNK, CHUNK).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let begun = tokio::time::Instant::now();
    for group in 1..8 {
        for column in [2, 0] {
            let start = 4 + (3 * group + column) * CHUNK;
            assert!(read(&reader, &query, start, CHUNK).await == data[start..start + CHUNK]);
        }
    }
    assert_eq!(begun.elapsed(), Duration::ZERO, "both columns of seven row groups are here");
}

#[tokio::test(start_paused = true)]
async fn columns_fetched_ahead_are_bounded_and_given_back() {
    const CHUNK: usize = 900 * KIB;
    let bench = Bench::new(Scripted::remote(Duration::from_millis(10)));
    let data = place_columns(&bench, 20, CHUNK).await;
    let query = bench.query();
    let found = query.glob(&bench.at("d/*.parquet")).await.unwrap();
    let reader = query.open(&bench.at(&found[0].key), &Known::NOTHING).await.unwrap();
    read(&reader, &query, data.len() - 8, 8).await;
    settle().await;
    let before = bench.engine.budget().held_bytes();
    read(&reader, &query, 4, CHUNK).await;
    settle().await;
    let ahead = bench.engine.budget().held_bytes() - before;
    assert!(ahead > 7 * MIB as u64 && ahead <= 8 * MIB as u64, "{ahead}");
    drop(query);
    settle().await;
    assert_eq!(bench.engine.budget().held_bytes(), before);
}

#[tokio::test(start_paused = true)]
async fn writers_get_the_memory_of_columns_fetched_ahead() {
    const CHUNK: usize = 900 * KIB;
    let mut store = Scripted::remote(Duration::from_millis(10));
    store.profile.part_size_min_bytes = 1;
    let bench = Bench::with(store, &[("memory_limit_bytes", "64MiB")]);
    let data = place_columns(&bench, 20, CHUNK).await;
    let query = bench.query();
    let found = query.glob(&bench.at("d/*.parquet")).await.unwrap();
    let reader = query.open(&bench.at(&found[0].key), &Known::NOTHING).await.unwrap();
    read(&reader, &query, data.len() - 8, 8).await;
    settle().await;
    read(&reader, &query, 4, CHUNK).await;
    assert!(bench.engine.budget().held_bytes() > 7 << 20);
    // None of these sends anything yet: the memory has to come from what was fetched ahead.
    let mut writers = Vec::new();
    for index in 0..12 {
        let at = bench.at(&format!("out/{index}"));
        let mut writer = query.create(&at, PutOptions::default()).unwrap();
        writer.write(&pattern(5 * MIB)).await.unwrap();
        writers.push(writer);
    }
    assert!(bench.engine.budget().held_bytes() <= 64 << 20);
    bench.store.take_calls();
    let column = read(&reader, &query, 4 + 3 * CHUNK, CHUNK).await;
    assert_eq!(column, &data[4 + 3 * CHUNK..4 + 4 * CHUNK], "what was given back is right");
    assert!(!bench.store.take_calls().is_empty(), "what was given back is fetched again");
}

/// A file: row groups of three columns, each chunk of `chunk_bytes`.
fn parquet(row_groups: usize, chunk_bytes: usize) -> Vec<u8> {
    let chunk = |index: usize| ByteRange {
        start: (4 + index * chunk_bytes) as u64,
        end: (4 + (index + 1) * chunk_bytes) as u64,
    };
    let mut data = pattern(4 + row_groups * 3 * chunk_bytes);
    let groups: Vec<Vec<ByteRange>> =
        (0..row_groups).map(|group| (0..3).map(|c| chunk(group * 3 + c)).collect()).collect();
    data.extend(footer(&groups));
    data
}

/// A file by itself.
async fn place_row_groups(bench: &Bench, row_groups: usize, chunk_bytes: usize) -> Vec<u8> {
    let data = parquet(row_groups, chunk_bytes);
    bench.store.place("one.parquet", data.clone()).await;
    data
}

/// How long reads take, one after the other, on the test's clock.
struct Scan<'a> {
    query: &'a Query,
    reader: Reader,
    data: &'a [u8],
    chunk_bytes: usize,
}

impl<'a> Scan<'a> {
    async fn begin(bench: &Bench, query: &'a Query, data: &'a [u8], chunk_bytes: usize) -> Self {
        let reader = query.open(&bench.at("one.parquet"), &Known::NOTHING).await.unwrap();
        read(&reader, query, data.len() - 8, 8).await;
        Scan { query, reader, data, chunk_bytes }
    }

    async fn columns(&self, row_group: usize, columns: std::ops::Range<usize>) {
        let start = 4 + (row_group * 3 + columns.start) * self.chunk_bytes;
        let bytes = columns.len() * self.chunk_bytes;
        let read = read(&self.reader, self.query, start, bytes).await;
        assert!(read == self.data[start..start + bytes]);
    }
}

const LATENCY: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn the_next_row_groups_of_a_file_are_fetched_ahead_once_the_scan_goes_on() {
    const CHUNK: usize = 300 * KIB;
    let one_read = std::iter::once(0..3).collect();
    for (columns, round_trips_max) in [(one_read, 6), (vec![2..3, 0..1], 7)] {
        let bench = Bench::new(Scripted::remote(LATENCY));
        let data = place_row_groups(&bench, 30, CHUNK).await;
        let query = bench.query();
        let scan = Scan::begin(&bench, &query, &data, CHUNK).await;
        bench.store.take_calls();
        let begun = tokio::time::Instant::now();
        for row_group in 0..30 {
            for columns in &columns {
                scan.columns(row_group, columns.clone()).await;
            }
        }
        let round_trips = begun.elapsed().as_millis() / LATENCY.as_millis();
        assert!(round_trips <= round_trips_max, "{columns:?}: {round_trips} round trips");
        let calls = bench.store.take_calls();
        assert!(calls.len() <= 30 * columns.len(), "{calls:?}");
        drop(scan);
        assert_eq!(query.metrics().get(Metric::ReadAheadWastedBytes), 0);
        assert!(query.metrics().get(Metric::ReadAheadHits) >= 28);
    }
}

/// A wide file: its footer is longer than what opening fetches. DuckDB reads it whole, or up to the
/// end of the file that its external file cache has.
#[tokio::test(start_paused = true)]
async fn a_long_footer_takes_one_more_request_and_is_kept() {
    for known_bytes in [8, 128 * KIB, 256 * KIB] {
        let bench = Bench::new(Scripted::remote(LATENCY));
        let mut data = pattern(4 + 20 * 3000 * 100);
        let chunk = |index: u64| ByteRange { start: 4 + index * 100, end: 4 + (index + 1) * 100 };
        let groups: Vec<Vec<ByteRange>> = (0..20)
            .map(|group| (0..3000).map(|column| chunk(group * 3000 + column)).collect())
            .collect();
        let footer = footer(&groups);
        data.extend(&footer);
        assert!(footer.len() > 600 * KIB);
        bench.store.place("wide.parquet", data.clone()).await;
        let begin = data.len() - footer.len();
        for expected in [2, 0] {
            let query = bench.query();
            let reader = query.open(&bench.at("wide.parquet"), &Known::NOTHING).await.unwrap();
            read(&reader, &query, data.len() - known_bytes, known_bytes).await;
            let rest = footer.len() - known_bytes;
            let known = read(&reader, &query, begin, rest).await;
            assert!(known == footer[..rest]);
            let gets = bench.store.take_calls();
            assert_eq!(
                gets.iter().filter(|call| call.starts_with("get")).count(),
                expected,
                "{gets:?}"
            );
            // Where the columns lie is known from it: one of each row group, in order.
            for group in 0..20 {
                let column = read(&reader, &query, 4 + group * 300_000, 100).await;
                assert!(column == data[4 + group * 300_000..][..100]);
            }
            let hits = query.metrics().get(Metric::ReadAheadHits);
            assert!(hits >= 17, "{hits} of 20 with {known_bytes} bytes known");
            bench.store.take_calls();
        }
    }
}

/// Files of a glob as DuckDB scans all their columns: it knows the end of each file, and its
/// external file cache widens the read before it up to there, over row groups.
#[tokio::test(start_paused = true)]
async fn a_read_that_spans_row_groups_tells_what_the_next_files_are_read_for() {
    const TAIL: usize = 16 * KIB;
    for (row_groups, chunk_bytes) in [(2, 200 * KIB), (10, 50 * KIB), (4, 300 * KIB)] {
        let bench = Bench::new(Scripted::remote(LATENCY));
        let data = parquet(row_groups, chunk_bytes);
        for index in 0..30 {
            bench.store.place(&format!("d/{index:02}.parquet"), data.clone()).await;
        }
        let query = bench.query();
        let found = query.glob(&bench.at("d/*.parquet")).await.unwrap();
        let begun = tokio::time::Instant::now();
        for entry in &found {
            let reader = open_found(&bench, &query, entry).await;
            read(&reader, &query, data.len() - TAIL, TAIL).await;
            let group_bytes = 3 * chunk_bytes;
            for group in 0..row_groups - 1 {
                let start = 4 + group * group_bytes;
                let is_widened = group == row_groups - 2;
                let end = if is_widened { data.len() - TAIL } else { start + group_bytes };
                assert!(read(&reader, &query, start, end - start).await == data[start..end]);
            }
        }
        let round_trips = begun.elapsed().as_millis() / LATENCY.as_millis();
        assert!(round_trips <= 12, "{round_trips} round trips for {row_groups} row groups a file");
        let wasted = query.metrics().get(Metric::ReadAheadWastedBytes);
        assert_eq!(wasted, 0, "what came with the footer is not fetched again");
    }
}

#[tokio::test(start_paused = true)]
async fn row_groups_of_a_store_nearby_are_read_on_demand() {
    let bench = Bench::new(Scripted::new());
    const CHUNK: usize = 400 * KIB;
    let data = place_row_groups(&bench, 10, CHUNK).await;
    let query = bench.query();
    let scan = Scan::begin(&bench, &query, &data, CHUNK).await;
    for row_group in 0..10 {
        scan.columns(row_group, 0..3).await;
    }
    assert_eq!(query.metrics().get(Metric::ReadAheadBytes), 0);
}

/// A scan that ends in its first row group wastes nothing, and one that skips row groups little.
#[tokio::test(start_paused = true)]
async fn a_scan_that_ends_early_or_skips_wastes_less_than_a_tenth() {
    const CHUNK: usize = 300 * KIB;
    for row_groups in [vec![0], (0..60).step_by(3).collect(), vec![7, 30, 31, 58]] {
        let bench = Bench::new(Scripted::remote(LATENCY));
        let data = place_row_groups(&bench, 60, CHUNK).await;
        let query = bench.query();
        let scan = Scan::begin(&bench, &query, &data, CHUNK).await;
        for row_group in &row_groups {
            scan.columns(*row_group, 0..1).await;
            scan.columns(*row_group, 2..3).await;
        }
        settle().await;
        query.cancel();
        let wasted = query.metrics().get(Metric::ReadAheadWastedBytes);
        let used = (row_groups.len() * 2 * CHUNK) as u64;
        assert!(wasted <= used / 10, "{row_groups:?}: {wasted} of {used}");
    }
}

#[tokio::test(start_paused = true)]
async fn row_groups_fetched_ahead_are_bounded_and_end_with_the_query() {
    const CHUNK: usize = 3 * MIB;
    for end in ["cancel", "drop"] {
        let store = Scripted::remote(LATENCY);
        let bench = Bench::with(store, &[("memory_limit_bytes", "64MiB")]);
        let data = place_row_groups(&bench, 6, CHUNK).await;
        let query = bench.query();
        let scan = Scan::begin(&bench, &query, &data, CHUNK).await;
        let before = bench.engine.budget().held_bytes();
        for row_group in 0..3 {
            scan.columns(row_group, 0..3).await;
            let ahead = bench.engine.budget().held_bytes() - before;
            assert!(ahead <= 16 << 20, "a quarter of the limit: {ahead}");
        }
        assert!(query.metrics().get(Metric::ReadAheadHits) > 0);
        bench.store.take_calls();
        if end == "cancel" {
            query.cancel();
        }
        drop(scan);
        drop(query);
        settle().await;
        assert_eq!(bench.engine.budget().held_bytes(), before, "{end}");
        tokio::time::sleep(2 * LATENCY).await;
        assert_eq!(bench.store.take_calls(), Vec::<String>::new(), "{end}");
    }
}

/// Threads of a scan have a reader each, and take the row groups in turn.
#[tokio::test(start_paused = true)]
async fn several_readers_of_a_file_share_what_is_ahead_of_them() {
    const CHUNK: usize = 300 * KIB;
    let bench = Bench::new(Scripted::remote(LATENCY));
    let data = place_row_groups(&bench, 40, CHUNK).await;
    let query = bench.query();
    let scans = [
        Scan::begin(&bench, &query, &data, CHUNK).await,
        Scan::begin(&bench, &query, &data, CHUNK).await,
        Scan::begin(&bench, &query, &data, CHUNK).await,
    ];
    bench.store.take_calls();
    let begun = tokio::time::Instant::now();
    for first in (0..39).step_by(3) {
        tokio::join!(
            scans[0].columns(first, 0..3),
            scans[1].columns(first + 1, 0..3),
            scans[2].columns(first + 2, 0..3),
        );
    }
    let round_trips = begun.elapsed().as_millis() / LATENCY.as_millis();
    assert!(round_trips <= 5, "{round_trips} round trips");
    assert_eq!(query.metrics().get(Metric::ReadAheadWastedBytes), 0);
}

/// What a scan is ahead of leaves half of the connections to reads on demand, all files together.
#[tokio::test(start_paused = true)]
async fn a_scan_leaves_half_of_the_connections_to_reads_on_demand() {
    for connections in [1, 2, 6] {
        let store = Scripted::remote(Duration::from_millis(100));
        let count = connections.to_string();
        let bench = Bench::with(store, &[("connections_per_host", &count)]);
        let data = place_row_groups(&bench, 24, 200 * KIB).await;
        let query = bench.query();
        let scan = Scan::begin(&bench, &query, &data, 200 * KIB).await;
        for row_group in 0..3 {
            scan.columns(row_group, 0..3).await;
        }
        settle().await;
        bench.store.take_calls();
        let gate = bench.store.hold("get");
        let rest = async {
            for row_group in 3..24 {
                scan.columns(row_group, 0..3).await;
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(1), rest).await;
        assert!(ended.is_err(), "nothing is answered any more");
        let calls = bench.store.take_calls().len();
        // The read that waits asks too, unless what it wants is on its way already.
        assert!((1..=1 + connections / 2).contains(&calls), "{connections}: {calls}");
        gate.add_permits(1000);
    }
}

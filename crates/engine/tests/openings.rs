//! Files that are opened ahead of a scan: how many bytes of them are out at once, and that they are
//! counted, those in vain too.

use crate::support::{Bench, Link, Scripted, pattern, read};
use penstock_base::Metric;
use penstock_engine::{Entry, Known, Query, Reader};
use penstock_store::ObjectMeta;
use std::time::Duration;

const FILE: usize = 20 << 10;
const MIB: usize = 1 << 20;

async fn settle() {
    for _ in 0..2000 {
        tokio::task::yield_now().await;
    }
}

/// Opens what a glob found, as a scan does.
async fn open_found(bench: &Bench, query: &Query, entry: &Entry) -> Reader {
    let known = Known { meta: entry.meta.clone(), ..Known::default() };
    query.open(&bench.at(&entry.key), &known).await.unwrap()
}

fn counted(query: &Query) -> (u64, u64) {
    let metrics = query.metrics();
    (metrics.get(Metric::ReadAheadBytes), metrics.get(Metric::ReadAheadWastedBytes))
}

#[tokio::test(start_paused = true)]
async fn what_is_opened_ahead_is_counted_and_what_nobody_opens_was_in_vain() {
    for (opened, told) in [(1, true), (4, true), (10, true), (1, false), (4, false), (10, false)] {
        let bench = Bench::new(Scripted::new());
        for number in 0..10 {
            bench.store.place(&format!("t/{number}.parquet"), pattern(FILE)).await;
        }
        let query = bench.query();
        let files: Vec<(_, Known)> = (0..10)
            .map(|number| (bench.at(&format!("t/{number}.parquet")), Known::default()))
            .collect();
        if told {
            query.glob(&bench.at("t/*.parquet")).await.unwrap();
        } else {
            query.announce(files.clone());
        }
        let mut readers = Vec::new();
        for (at, _) in &files[..opened] {
            let reader = query.open(at, &Known::default()).await.unwrap();
            read(&reader, &query, 0, FILE).await;
            readers.push(reader);
            settle().await;
        }
        // Of a file that nobody told of it is no more than came, though more was asked for.
        let ahead = if told { 9 } else { 1 };
        let (come, wasted) = counted(&query);
        assert_eq!(come % FILE as u64, 0);
        assert!(come >= (ahead * FILE) as u64, "{opened} of {told}: {come}");
        assert_eq!(wasted, 0, "who knows what is opened next");
        let requests =
            bench.store.take_calls().iter().filter(|call| call.starts_with("get")).count();
        drop(readers);
        let engine = bench.engine.clone();
        drop(query);
        settle().await;
        let wasted = engine.metrics().get(Metric::ReadAheadWastedBytes);
        assert_eq!(wasted, ((requests - opened) * FILE) as u64, "{opened}, {told}: {requests}");
        if opened == 10 {
            assert_eq!(wasted, 0);
        }
    }
}

/// A thread that falls far behind the others opens its file at last: nothing is opened ahead again.
#[tokio::test(start_paused = true)]
async fn files_that_were_opened_are_not_opened_ahead() {
    const WINDOW: usize = 16 << 10;
    let bench = Bench::with(Scripted::new(), &[("open_fetch_bytes", "16KiB")]);
    for number in 0..60 {
        bench.store.place(&format!("t/{number:02}.parquet"), pattern(FILE)).await;
    }
    let query = bench.query();
    let found = query.glob(&bench.at("t/*.parquet")).await.unwrap();
    let order = (0..3).chain(4..50).chain([3, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59]);
    for index in order {
        let known = Known { meta: found[index].meta.clone(), ..Known::default() };
        let reader = query.open(&bench.at(&found[index].key), &known).await.unwrap();
        read(&reader, &query, FILE - WINDOW, WINDOW).await;
        settle().await;
        if index % 7 == 0 {
            // Nothing that was kept is there by the time.
            bench.engine.clear_cache();
        }
    }
    let engine = bench.engine.clone();
    drop(query);
    settle().await;
    assert_eq!(engine.metrics().get(Metric::ReadAheadWastedBytes), 0);
}

/// Parquet files that are small enough to come whole are tried so, and come whole for as long as
/// they are read: a statement that wants footers only moves little else.
#[tokio::test(start_paused = true)]
async fn small_files_come_whole_where_they_are_read() {
    const SMALL: usize = 150 << 10;
    const FOOTER: usize = 16 << 10;
    for is_read in [true, false] {
        let bench = Bench::new(Scripted::remote(Duration::from_millis(10)));
        for number in 0..100 {
            bench.store.place(&format!("t/{number:02}.parquet"), pattern(SMALL)).await;
        }
        let query = bench.query();
        let found = query.glob(&bench.at("t/*.parquet")).await.unwrap();
        for entry in &found {
            let known = Known { meta: entry.meta.clone(), ..Known::default() };
            let reader = query.open(&bench.at(&entry.key), &known).await.unwrap();
            read(&reader, &query, SMALL - FOOTER, FOOTER).await;
            if is_read {
                read(&reader, &query, 0, SMALL - FOOTER).await;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let (came, calls) = (query.metrics().get(Metric::BytesRead), bench.store.take_calls());
        let gets = calls.iter().filter(|call| call.starts_with("get")).count();
        let engine = bench.engine.clone();
        drop(query);
        settle().await;
        let wasted = engine.metrics().get(Metric::ReadAheadWastedBytes) as usize;
        if is_read {
            assert_eq!((came as usize, wasted), (100 * SMALL, 0));
            // Those that are begun before the first whole one was read give their footer first.
            assert!(gets <= 100 + 15 + 32, "{gets}");
        } else {
            assert!(came as usize <= 100 * FOOTER + MIB, "{came}");
            // The first file is not opened ahead: its reader asks for all of it.
            let read_bytes = 99 * FOOTER + SMALL;
            assert_eq!(came as usize - wasted, read_bytes, "all that nobody read is counted");
        }
    }
}

/// On a link of 20 Mbit/s. Nothing is known of it before the first file has come.
fn slow() -> Scripted {
    let mut store = Scripted::remote(Duration::from_millis(30));
    store.link = Some(Link::new(2.5e6));
    store
}

/// What opening a file by its name brings: the end of it, as much as the link brings in a round
/// trip once that is known, and what a catalog tells of.
#[tokio::test(start_paused = true)]
async fn opening_fetches_no_more_than_the_link_brings_in_a_round_trip() {
    let file = 10 * MIB;
    let bench = Bench::new(slow());
    let told = |bytes| Known { footer_size_bytes: Some(bytes), ..Known::default() };
    let steps = [
        ("first.parquet", Known::default(), 256 << 10..=256 << 10),
        ("second.parquet", Known::default(), 70_000..=80_000),
        ("told.parquet", told(200 << 10), (200 << 10) + 8..=(200 << 10) + 8),
        ("told_little.parquet", told(100), 70_000..=80_000),
        ("text.csv", Known::default(), 256 << 10..=256 << 10),
    ];
    for (name, known, expected) in steps {
        bench.store.place(name, pattern(file)).await;
        let query = bench.query();
        let at = bench.at(name);
        let reader = query.open(&at, &known).await.unwrap();
        let came = query.metrics().get(Metric::BytesRead);
        assert!(expected.contains(&came), "{name}: {came}");
        // What is missing of a longer footer is asked for by itself.
        if !name.ends_with(".csv") {
            let longer = (300 << 10) as usize;
            assert!(
                read(&reader, &query, file - longer, longer).await
                    == pattern(file)[file - longer..]
            );
            assert_eq!(query.metrics().get(Metric::BytesRead), longer as u64, "{name}");
        }
    }
}

/// A hundred files of which footers are wanted, or everything.
#[tokio::test(start_paused = true)]
async fn on_a_slow_link_small_files_come_whole_only_where_they_are_read() {
    const SMALL: usize = 150 << 10;
    const FOOTER: usize = 16 << 10;
    for (is_known, is_read) in [(true, true), (true, false), (false, true), (false, false)] {
        let bench = Bench::new(slow());
        if is_known {
            bench.store.place("other.csv", pattern(MIB)).await;
            let query = bench.query();
            let reader = query.open(&bench.at("other.csv"), &Known::default()).await.unwrap();
            read(&reader, &query, 0, MIB).await;
        }
        for number in 0..100 {
            bench.store.place(&format!("t/{number:02}.parquet"), pattern(SMALL)).await;
        }
        let query = bench.query();
        let found = query.glob(&bench.at("t/*.parquet")).await.unwrap();
        let begun = tokio::time::Instant::now();
        for entry in &found {
            let known = Known { meta: entry.meta.clone(), ..Known::default() };
            let reader = query.open(&bench.at(&entry.key), &known).await.unwrap();
            read(&reader, &query, SMALL - FOOTER, FOOTER).await;
            if is_read {
                read(&reader, &query, 0, SMALL - FOOTER).await;
            }
        }
        let (took, came) = (begun.elapsed(), query.metrics().get(Metric::BytesRead) as usize);
        let first = if is_known { FOOTER } else { SMALL };
        let wanted = if is_read { 100 * SMALL } else { 99 * FOOTER + first };
        assert_eq!(came, wanted, "{is_known} {is_read}");
        // The link is full, but for a few round trips at the beginning, and those for what is
        // missing of files whose footers came before any was read.
        let least = Duration::from_secs_f64(came as f64 / 2.5e6);
        let idle = Duration::from_millis(if is_read { 16 * 30 } else { 200 });
        assert!(took < least + idle, "{took:?} {least:?}");
    }
}

/// Files of text a little longer than what opening fetches take a request each, and not two; where
/// their heads are wanted, no more than these come.
#[tokio::test(start_paused = true)]
async fn text_files_come_whole_where_they_are_read() {
    const TEXT: usize = 337 << 10;
    for read_bytes in [TEXT, 64 << 10] {
        let bench = Bench::new(Scripted::remote(Duration::from_millis(100)));
        for number in 0..40 {
            bench.store.place(&format!("t/{number:02}.csv"), pattern(TEXT)).await;
        }
        let query = bench.query();
        let found = query.glob(&bench.at("t/*.csv")).await.unwrap();
        for entry in &found {
            let known = Known { meta: entry.meta.clone(), ..Known::default() };
            let reader = query.open(&bench.at(&entry.key), &known).await.unwrap();
            assert!(read(&reader, &query, 0, read_bytes).await == pattern(TEXT)[..read_bytes]);
        }
        let (came, calls) = (query.metrics().get(Metric::BytesRead), bench.store.take_calls());
        let gets = calls.iter().filter(|call| call.starts_with("get")).count();
        drop(query);
        settle().await;
        let wasted = bench.engine.metrics().get(Metric::ReadAheadWastedBytes) as usize;
        assert_eq!(gets, 40);
        if read_bytes == TEXT {
            assert_eq!((came as usize, wasted), (40 * TEXT, 0));
        } else {
            assert!(came as usize <= 39 * (256 << 10) + TEXT, "{came}");
        }
    }
}

/// DuckDB reads a file of compressed text twice: of one that fits into what opening brings of such
/// nothing comes twice, also where its first bytes came ahead.
#[tokio::test(start_paused = true)]
async fn compressed_text_of_a_glob_comes_once_however_often_it_is_read() {
    const TEXT: usize = 900 << 10;
    const STEP: usize = 128 << 10;
    let bench = Bench::new(Scripted::remote(Duration::from_millis(100)));
    for number in 0..3 {
        bench.store.place(&format!("t/{number}.csv.gz"), pattern(TEXT)).await;
    }
    let query = bench.query();
    let found = query.glob(&bench.at("t/*.csv.gz")).await.unwrap();
    for entry in &found {
        let known = Known { meta: entry.meta.clone(), ..Known::default() };
        for _ in 0..2 {
            let reader = query.open(&bench.at(&entry.key), &known).await.unwrap();
            for at in (0..TEXT).step_by(STEP) {
                let len = STEP.min(TEXT - at);
                assert!(read(&reader, &query, at, len).await == pattern(TEXT)[at..at + len]);
            }
        }
    }
    assert_eq!(query.metrics().get(Metric::BytesRead) as usize, 3 * TEXT);
    let calls = bench.store.take_calls();
    let gets = calls.iter().filter(|call| call.starts_with("get")).count();
    assert!(gets <= 5, "the first in one, of the others the first bytes came ahead: {calls:?}");
}

/// A reader that is there sooner than what was begun ahead of it waits for that.
#[tokio::test(start_paused = true)]
async fn what_is_on_its_way_is_not_asked_for_again() {
    for (name, size) in [("csv", 337 << 10), ("parquet", 30 << 10)] {
        let bench = Bench::new(Scripted::remote(Duration::from_millis(100)));
        for number in 0..2 {
            bench.store.place(&format!("t/{number}.{name}"), pattern(size)).await;
        }
        let query = bench.query();
        let found = query.glob(&bench.at(&format!("t/*.{name}"))).await.unwrap();
        let mut readers = Vec::new();
        for entry in &found {
            let known = Known { meta: entry.meta.clone(), ..Known::default() };
            readers.push(query.open(&bench.at(&entry.key), &known).await.unwrap());
        }
        bench.store.take_calls();
        let begun = tokio::time::Instant::now();
        assert!(read(&readers[1], &query, 0, size).await == pattern(size));
        settle().await;
        assert_eq!(bench.store.take_calls().len(), 1, "{name}");
        assert_eq!(begun.elapsed(), Duration::from_millis(100));
    }
}

/// Of a file that is small enough to come whole, too: only its footer was begun, as much of it as a
/// host reads that begins at multiples of a block.
#[tokio::test(start_paused = true)]
async fn a_footer_on_its_way_is_not_overtaken_by_its_file() {
    const SMALL: usize = 150 << 10;
    for grid in [1, 4096] {
        let start = (SMALL - (16 << 10)) / grid * grid;
        let bench = Bench::new(Scripted::remote(Duration::from_millis(100)));
        for number in 0..10 {
            bench.store.place(&format!("t/{number}.parquet"), pattern(SMALL)).await;
        }
        let query = bench.query();
        if grid > 1 {
            query.host_reads_ahead(grid as u64);
        }
        let found = query.glob(&bench.at("t/*.parquet")).await.unwrap();
        let first = open_found(&bench, &query, &found[0]).await;
        bench.store.take_calls();
        let others = async {
            // As DuckDB 1.5 does: the length of the footer first.
            let of_each = found[1..].iter().map(async |entry| {
                let reader = open_found(&bench, &query, entry).await;
                if grid == 1 {
                    read(&reader, &query, SMALL - 8, 8).await;
                }
                read(&reader, &query, start, SMALL - start).await;
            });
            futures_util::future::join_all(of_each).await;
        };
        futures_util::future::join(read(&first, &query, SMALL - 8, 8), others).await;
        let came = query.metrics().get(Metric::BytesRead);
        assert_eq!(came, (SMALL + 9 * (SMALL - start)) as u64, "{grid}");
        assert_eq!(bench.store.take_calls().len(), 10, "{grid}");
    }
}

/// So does one that wants more than that: what is behind it is asked for meanwhile.
#[tokio::test(start_paused = true)]
async fn behind_what_is_on_its_way_only_the_rest_is_asked_for() {
    const SIZE: usize = 600 << 10;
    let bench = Bench::new(Scripted::remote(Duration::from_millis(100)));
    for number in 0..2 {
        bench.store.place(&format!("t/{number}.csv"), pattern(SIZE)).await;
    }
    let query = bench.query();
    let found = query.glob(&bench.at("t/*.csv")).await.unwrap();
    bench.store.take_calls();
    let begun = tokio::time::Instant::now();
    let first = open_found(&bench, &query, &found[0]).await;
    let second = async {
        let second = open_found(&bench, &query, &found[1]).await;
        settle().await;
        assert!(read(&second, &query, 0, SIZE).await == pattern(SIZE));
    };
    futures_util::future::join(read(&first, &query, 0, 256 << 10), second).await;
    assert_eq!(begun.elapsed(), Duration::from_millis(100));
    let mut calls = bench.store.take_calls();
    calls.sort();
    let second = ["get t/1.csv 0..262144", "get t/1.csv 262144..614400"];
    assert_eq!(calls, ["get t/0.csv 0..262144", second[0], second[1]]);
    drop(first);
    drop(query);
    settle().await;
    let metrics = bench.engine.metrics();
    assert_eq!(metrics.get(Metric::BytesRead), (SIZE + (256 << 10)) as u64);
    assert_eq!(metrics.get(Metric::ReadAheadWastedBytes), 0);
}

/// A catalog that tells of footers of 3 MiB has no thirty of them fetched at once.
#[tokio::test(start_paused = true)]
async fn long_footers_of_a_catalog_are_bounded_by_their_bytes() {
    let bench = Bench::new(Scripted::remote(Duration::from_millis(10)));
    let footer = 3 * MIB;
    let known = Known {
        meta: ObjectMeta { size_bytes: Some(4 * MIB as u64), ..ObjectMeta::default() },
        footer_size_bytes: Some(footer as u64),
        ..Known::default()
    };
    let files: Vec<_> = (0..20).map(|number| bench.at(&format!("l/{number}.parquet"))).collect();
    for file in &files {
        bench.store.place(file.key(), pattern(4 * MIB)).await;
    }
    let query = bench.query();
    query.announce(files.iter().map(|at| (at.clone(), known.clone())).collect());
    settle().await;
    assert!(bench.store.take_calls().is_empty(), "a plan alone pays for none");
    let (mut asked, mut ahead_of_its_opening) = (0, 0);
    for (index, at) in files.iter().enumerate() {
        let reader = query.open(at, &known).await.unwrap();
        read(&reader, &query, 4 * MIB - 8, 8).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        settle().await;
        asked += bench.store.take_calls().len();
        let out = asked - (index + 1);
        ahead_of_its_opening += usize::from(out > 0);
        assert!(out * footer <= 8 * MIB, "{out} files ahead of {index}");
    }
    assert_eq!(asked, files.len(), "each is asked for once");
    assert!(ahead_of_its_opening >= files.len() - 4);
}

/// Beside the caches that settings ask for.
#[tokio::test(start_paused = true)]
async fn what_came_with_an_opening_is_shown_among_the_caches() {
    let bench = Bench::new(Scripted::new());
    let size = 1 << 20;
    bench.store.place("a.parquet", pattern(size)).await;
    let query = bench.query();
    let opened = || {
        let entries = query.cache_entries().unwrap();
        entries.into_iter().filter(|entry| entry.cache == "opened").collect::<Vec<_>>()
    };
    assert!(opened().is_empty());
    query.open(&bench.at("a.parquet"), &Known::NOTHING).await.unwrap();
    let shown = opened();
    assert_eq!(shown.len(), 1, "{shown:?}");
    assert_eq!(shown[0].object, "https://far.example/t/a.parquet");
    assert!(!shown[0].etag.is_empty(), "{shown:?}");
    assert_eq!((shown[0].size_bytes, shown[0].cached_bytes), (Some(size as u64), 256 << 10));
    assert_eq!(shown[0].blocks, 1);
    bench.engine.clear_cache();
    assert!(opened().is_empty());
}

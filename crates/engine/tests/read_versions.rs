//! What is fetched, held or remembered is of one version, and of one statement where only that
//! knows what it is.

use crate::support::{Bench, Fault, Scripted, pattern, read};
use bytes::Bytes;
use penstock_base::{ByteRange, Kind, Result};
use penstock_engine::{Entry, Known, Query, Reader};
use penstock_store::PutOptions;
use penstock_testkit::parquet::footer;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

const CHUNK: usize = 100 << 10;

/// Lets background work go as far as it can.
async fn settle() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

/// Files of two row groups of three columns; their bytes depend on `seed`.
async fn place_columns(bench: &Bench, directory: &str, count: usize, seed: u8) -> Vec<u8> {
    let chunk = |index: usize| {
        ByteRange::of_len((4 + index * CHUNK) as u64, CHUNK as u64).expect("a small offset")
    };
    let mut data: Vec<u8> = pattern(4 + 6 * CHUNK).iter().map(|byte| byte ^ seed).collect();
    data.extend(footer(&[(0..3).map(chunk).collect(), (3..6).map(chunk).collect()]));
    for index in 0..count {
        bench.store.place(&format!("{directory}/{index}.parquet"), data.clone()).await;
    }
    data
}

/// Opens what a glob found, as a scan does, and reads its footer.
async fn open_found(bench: &Bench, query: &Query, entry: &Entry) -> Reader {
    let known = Known { meta: entry.meta.clone(), ..Known::default() };
    let reader = query.open(&bench.at(&entry.key), &known).await.unwrap();
    let size = usize::try_from(reader.size_bytes()).unwrap();
    read(&reader, query, size - 8, 8).await;
    settle().await;
    reader
}

/// Numbers of globs, files and readers begin anew in each statement.
#[tokio::test(start_paused = true)]
async fn a_reader_that_outlives_its_statement_reads_its_own_file() {
    let bench = Bench::new(Scripted::remote(Duration::from_millis(10)));
    let ours = place_columns(&bench, "a", 6, 0).await;
    let theirs = place_columns(&bench, "b", 3, 1).await;
    let first = bench.query();
    let found = first.glob(&bench.at("a/*.parquet")).await.unwrap();
    let second_file = open_found(&bench, &first, &found[1]).await;
    let last_file = open_found(&bench, &first, &found[5]).await;

    let next = bench.query();
    let found = next.glob(&bench.at("b/*.parquet")).await.unwrap();
    let reader = open_found(&bench, &next, &found[0]).await;
    let column = 4 + CHUNK;
    assert!(read(&reader, &next, column, CHUNK).await == theirs[column..column + CHUNK]);
    settle().await;
    for reader in [second_file, last_file] {
        for column in [column, column + 3 * CHUNK] {
            assert!(read(&reader, &next, column, CHUNK).await == ours[column..column + CHUNK]);
        }
    }
}

/// A query sees the version that it opened first, also where a later listing tells another.
#[tokio::test(start_paused = true)]
async fn what_is_fetched_ahead_of_a_newer_version_is_not_mixed_into_an_older_one() {
    let bench = Bench::new(Scripted::remote(Duration::from_millis(10)));
    place_columns(&bench, "d", 4, 0).await;
    let query = bench.query();
    let early = query.open(&bench.at("d/1.parquet"), &Known::NOTHING).await.unwrap();
    place_columns(&bench, "d", 4, 1).await;
    let found = query.glob(&bench.at("d/*.parquet")).await.unwrap();
    let reader = open_found(&bench, &query, &found[0]).await;
    read(&reader, &query, 4 + CHUNK, CHUNK).await;
    settle().await;
    let known = Known { meta: found[1].meta.clone(), ..Known::default() };
    let pinned = query.open(&bench.at("d/1.parquet"), &known).await.unwrap();
    assert_eq!(pinned.meta().etag, early.meta().etag);
    let mut column = vec![0; CHUNK];
    let error = pinned.read_at(&query, &mut column, (4 + CHUNK) as u64).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict, "{error}");
}

/// The host's cache compares versions when an object is opened, and at no read.
#[tokio::test(start_paused = true)]
async fn one_version_at_a_time_is_the_hosts_to_keep() {
    let bench =
        Bench::with(Scripted::remote(Duration::from_millis(10)), &[("cache_validation", "query")]);
    let host = Known { host_keeps: true, ..Known::NOTHING };
    let at = bench.at("a.bin");
    bench.store.place("a.bin", pattern(1000)).await;
    let (first, second) = (bench.query(), bench.query());
    let old = first.open(&at, &host).await.unwrap();
    bench.store.place("a.bin", pattern(2000)).await;
    let new = second.open(&at, &host).await.unwrap();
    assert!(old.told_to_host(&first, true).is_some());
    assert!(new.told_to_host(&second, true).is_none(), "of the old version bytes are put there");
    assert_eq!(new.told_to_host(&second, false), Some(new.meta()), "nothing is put anywhere");
    let again = first.open(&at, &host).await.unwrap();
    assert_eq!(again.told_to_host(&first, true), Some(old.meta()));
    drop((old, again));
    assert!(new.told_to_host(&second, true).is_none(), "what it was told first holds");
    let newer = second.open(&at, &host).await.unwrap();
    assert_eq!(newer.told_to_host(&second, true), Some(new.meta()));
}

/// What the host is not told it does not keep: our cache in memory does then.
#[tokio::test(start_paused = true)]
async fn what_the_host_does_not_keep_is_kept_in_memory() {
    let settings = [("cache_validation", "query"), ("cache_memory_bytes", "1MiB")];
    let bench = Bench::with(Scripted::remote(Duration::from_millis(10)), &settings);
    let host = Known { host_keeps: true, ..Known::NOTHING };
    let at = bench.at("a.bin");
    let read_all = async |query: &Query| {
        let reader = query.open(&at, &host).await.unwrap();
        reader.told_to_host(query, true);
        read(&reader, query, 0, 300_000).await;
        reader
    };
    bench.store.place("a.bin", pattern(300_000)).await;
    let query = bench.query();
    let old = read_all(&query).await;
    bench.store.place("a.bin", pattern(300_000)).await;
    read_all(&bench.query()).await;
    bench.store.take_calls();
    read_all(&bench.query()).await;
    assert_eq!(bench.store.take_calls(), ["stat a.bin"], "another query has it from memory");
    drop(old);
    read_all(&bench.query()).await;
    assert_eq!(bench.store.take_calls(), ["stat a.bin"]);
}

/// A page that is made anew for each request, always of one length: nothing tells its versions
/// apart, so each query fetches it, once.
#[tokio::test(start_paused = true)]
async fn an_object_without_tag_and_time_is_fetched_by_each_query() {
    for policy in ["auto", "time", "query", "always"] {
        for size in [1000, 1 << 20] {
            let bench = Bench::with(Scripted::like_a_page(), &[("cache_validation", policy)]);
            for round in 1..4u8 {
                bench.store.place("a.json", vec![round; size]).await;
                let query = bench.query();
                bench.store.take_calls();
                for _ in 0..2 {
                    let reader = query.open(&bench.at("a.json"), &Known::NOTHING).await.unwrap();
                    assert!(read(&reader, &query, 0, 1000).await == [round; 1000], "{policy}");
                }
                let calls = bench.store.take_calls();
                let gets = calls.iter().filter(|call| call.starts_with("get"));
                assert_eq!(gets.count(), 1, "{policy}: {calls:?}");
                tokio::time::advance(Duration::from_secs(3600)).await;
            }
        }
    }
}

/// What an earlier query has on its way may be of another version, which nothing would tell: it is
/// not what a later one opens by, nor reads.
#[tokio::test(start_paused = true)]
async fn a_page_on_its_way_to_one_query_is_not_read_by_another() {
    const SIZE: usize = 1 << 20;
    for held in ["opening", "reading"] {
        let bench = Bench::with(Scripted::like_a_page(), &[("cache_validation", "time")]);
        bench.store.place("a.csv", vec![1; SIZE]).await;
        let gate = Arc::new(Semaphore::new(0));
        let early = Arc::new(bench.query());
        let reader = match held {
            "opening" => None,
            _ => Some(early.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap()),
        };
        bench.store.fail("get", Fault::Delay(Arc::clone(&gate)));
        let (query, at) = (Arc::clone(&early), bench.at("a.csv"));
        let reading = tokio::spawn(async move {
            let reader = match reader {
                Some(reader) => reader,
                None => query.open(&at, &Known::NOTHING).await.unwrap(),
            };
            read(&reader, &query, SIZE / 2, SIZE / 2).await
        });
        settle().await;
        bench.store.place("a.csv", vec![2; SIZE]).await;
        let late = async {
            let query = bench.query();
            let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
            let tail = read(&reader, &query, SIZE / 2, SIZE / 2).await;
            [read(&reader, &query, 0, SIZE / 2).await, tail].concat()
        };
        let release = async {
            settle().await;
            gate.add_permits(1);
        };
        let (bytes, ()) = tokio::join!(late, release);
        assert!(bytes == [2; SIZE], "{held}");
        let early = reading.await.unwrap();
        assert!(held == "opening" || early == [1; SIZE / 2], "{held}");
    }
}

/// An answer that was on its way while the object was written tells what stood there before.
#[tokio::test(start_paused = true)]
async fn a_late_answer_does_not_undo_what_is_known_of_a_write() {
    for written in [Some(200), None] {
        let bench = Bench::with(Scripted::new(), &[("cache_validation", "time")]);
        let at = bench.at("a.csv");
        bench.store.place("a.csv", pattern(100)).await;
        let gate = Arc::new(Semaphore::new(0));
        bench.store.fail("stat", Fault::Delay(Arc::clone(&gate)));
        let (reading, writing) = (bench.query(), bench.query());
        let write = async {
            settle().await;
            tokio::time::advance(Duration::from_millis(10)).await;
            match written {
                Some(size) => {
                    let options = PutOptions::default();
                    writing.put(&at, Bytes::from(pattern(size)).into(), &options).await.unwrap();
                }
                None => writing.remove(std::slice::from_ref(&at)).await.unwrap(),
            }
            gate.add_permits(1);
        };
        let (late, ()) = tokio::join!(reading.stat(&at), write);
        assert_eq!(late.unwrap().size_bytes, Some(100));
        let known = bench.query().stat(&at).await.ok().and_then(|meta| meta.size_bytes);
        assert_eq!(known, written.map(|size| size as u64));
    }
}

/// What a prepared statement listed long ago is asked for again, at once or after the first
/// statement that found it changed.
#[tokio::test(start_paused = true)]
async fn an_old_listing_counts_no_longer_than_the_policy_allows() {
    for (policy, age_ms, is_asked) in [
        ("time", 4_000, false),
        ("time", 6_000, true),
        ("query", 1, true),
        ("always", 1, true),
        ("never", 3_600_000, false),
    ] {
        let bench = Bench::with(Scripted::new(), &[("cache_validation", policy)]);
        for key in ["d/0.csv", "d/1.csv"] {
            bench.store.place(key, pattern(1 << 20)).await;
        }
        let found = bench.query().glob(&bench.at("d/*.csv")).await.unwrap();
        bench.store.place("d/1.csv", vec![7; 2 << 20]).await;
        tokio::time::advance(Duration::from_millis(age_ms)).await;
        let execute = async || {
            let query = bench.query();
            for entry in &found {
                let (meta, listed) = (entry.meta.clone(), Some(entry.listed));
                let known = Known { meta, listed, ..Known::default() };
                let reader = query.open(&bench.at(&entry.key), &known).await?;
                let mut bytes = vec![0; usize::try_from(reader.size_bytes()).unwrap()];
                reader.read_at(&query, &mut bytes, 0).await?;
                let is_new = entry.key == "d/1.csv";
                assert!(bytes == if is_new { vec![7; 2 << 20] } else { pattern(1 << 20) });
            }
            Result::Ok(())
        };
        let first: Result<()> = execute().await;
        let kind = first.err().map(|error| error.kind());
        assert_eq!(kind, (!is_asked).then_some(Kind::Conflict), "{policy}");
        execute().await.unwrap_or_else(|error| panic!("{policy}: {error}"));
    }
}

/// A statement that lists and reads asks for nothing twice, however long it takes.
#[tokio::test(start_paused = true)]
async fn a_query_trusts_its_own_listing() {
    let bench = Bench::new(Scripted::new());
    bench.store.place("d/0.csv", pattern(100)).await;
    let query = bench.query();
    let found = query.glob(&bench.at("d/*.csv")).await.unwrap();
    tokio::time::advance(Duration::from_secs(3600)).await;
    bench.store.take_calls();
    let (meta, listed) = (found[0].meta.clone(), Some(found[0].listed));
    query.open(&bench.at("d/0.csv"), &Known { meta, listed, ..Known::default() }).await.unwrap();
    assert!(bench.store.take_calls().is_empty());
}

/// Whoever asks for size and tag of an object twice in a statement is told the same, in one
/// request, but for what the statement itself changed.
#[tokio::test]
async fn a_query_asks_once_for_a_version_that_it_does_not_read() {
    for (policy, asked) in [("query", 1), ("always", 3)] {
        let bench = Bench::with(Scripted::new(), &[("cache_validation", policy)]);
        let at = bench.at("a.csv");
        for round in 1..3 {
            bench.store.place("a.csv", pattern(round)).await;
            let query = bench.query();
            for _ in 0..3 {
                assert_eq!(query.stat(&at).await.unwrap().size_bytes, Some(round as u64));
            }
            assert_eq!(bench.store.take_calls().len(), asked, "{policy}");
            let mut writer = query.create(&at, PutOptions::default()).unwrap();
            writer.write(&[7; 9]).await.unwrap();
            writer.finish().await.unwrap();
            assert_eq!(query.stat(&at).await.unwrap().size_bytes, Some(9));
            query.remove(std::slice::from_ref(&at)).await.unwrap();
            assert_eq!(query.stat(&at).await.unwrap_err().kind(), Kind::NotFound);
            bench.store.take_calls();
        }
    }
}

/// What a host that plans its own requests is told: how the store answers, and how long bytes count
/// of what has neither tag nor time.
#[tokio::test(start_paused = true)]
async fn a_host_is_told_of_the_link_and_how_long_bytes_count() {
    let latency = Duration::from_millis(40);
    for (policy, valid_for) in [
        ("always", None),
        ("query", None),
        ("time", Some(Duration::from_secs(5))),
        ("never", Some(Duration::MAX)),
    ] {
        for is_page in [false, true] {
            let mut store = if is_page { Scripted::like_a_page() } else { Scripted::new() };
            store.delay = latency;
            let bench = Bench::with(store, &[("cache_validation", policy)]);
            bench.store.place("a.csv", pattern(2 << 20)).await;
            let query = bench.query();
            let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
            read(&reader, &query, 0, 1 << 20).await;
            let told = reader.valid_for(&query);
            assert_eq!(told, valid_for.filter(|_| is_page), "{policy} {is_page}");
            let link = reader.link(&query);
            assert!(link.latency > Duration::ZERO && link.latency <= latency, "{link:?}");
            assert!(link.bytes_per_s > 0.0 && link.bytes_per_s.is_finite(), "{link:?}");
        }
    }
}

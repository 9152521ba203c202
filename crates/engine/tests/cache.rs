//! The disk cache under readers: what was read once is not fetched again, and never wrong.

use crate::support::{Bench, Fault, Scripted, pattern};
use penstock_base::{Kind, Metric};
use penstock_engine::{Known, Query};
use penstock_testkit::scratch::Scratch;
use std::sync::Arc;
use std::time::Duration;

const MIB: usize = 1 << 20;

async fn read(bench: &Bench, query: &Query, key: &str, offset: usize, len: usize) -> Vec<u8> {
    let reader = query.open(&bench.at(key), &Known::NOTHING).await.unwrap();
    let mut buf = vec![0; len];
    reader.read_at(query, &mut buf, offset as u64).await.unwrap();
    buf
}

fn bench(dir: &Scratch, store: Scripted) -> Bench {
    let dir = dir.path().join("cache");
    Bench::with(store, &[("cache_dir", dir.to_str().unwrap()), ("metadata_validity_ms", "0")])
}

/// A process that begins with what the one before has left on its disk and in its store.
async fn restart(dir: &Scratch, before: Bench) -> Bench {
    let Bench { store, engine } = before;
    let mut next = Scripted::new();
    next.memory = Arc::clone(&store.memory);
    drop((engine, store));
    bench(dir, next)
}

#[tokio::test]
async fn what_was_read_is_not_fetched_again_by_another_process() {
    let dir = Scratch::new("engine-cache");
    let data = pattern(4 * MIB);
    let first = bench(&dir, Scripted::new());
    first.store.place("a.parquet", data.clone()).await;
    assert_eq!(
        read(&first, &first.query(), "a.parquet", 100, 2 * MIB).await,
        data[100..][..2 * MIB]
    );
    assert_eq!(first.store.take_calls(), ["get a.parquet -262144", "get a.parquet 100..2097252"]);
    let second = restart(&dir, first).await;
    let query = second.query();
    assert_eq!(read(&second, &query, "a.parquet", 100, 2 * MIB).await, data[100..][..2 * MIB]);
    assert_eq!(second.store.take_calls(), ["stat a.parquet"], "its version is asked for");
    for (metric, bytes) in [
        (Metric::CacheBytesRead, 2 * MIB as u64),
        (Metric::CacheDiskBytesRead, 2 * MIB as u64),
        (Metric::CacheMemoryBytesRead, 0),
    ] {
        assert_eq!(query.metrics().get(metric), bytes, "{metric:?}");
    }
    // A part that is not there yet is fetched, and only that.
    assert_eq!(read(&second, &query, "a.parquet", 50, 2 * MIB).await, data[50..][..2 * MIB]);
    assert_eq!(second.store.take_calls(), ["get a.parquet 50..100"]);
    // A later statement confirms the version without fetching bytes again.
    assert_eq!(read(&second, &second.query(), "a.parquet", 60, MIB).await, data[60..][..MIB]);
    assert_eq!(second.store.take_calls(), ["stat a.parquet"]);
}

/// What is opened ahead and lies on the disk is asked of no store, and does not count as such.
#[tokio::test]
async fn files_that_are_opened_ahead_from_the_disk_are_not_asked_for() {
    let dir = Scratch::new("engine-cache");
    let data = pattern(200 << 10);
    let first = bench(&dir, Scripted::remote(Duration::from_millis(10)));
    let keys: Vec<String> = (0..6).map(|number| format!("t/{number}.parquet")).collect();
    for key in &keys {
        first.store.place(key, data.clone()).await;
    }
    let open_all = async |bench: &Bench| {
        let query = bench.query();
        let found = query.glob(&bench.at("t/*.parquet")).await.unwrap();
        for entry in &found {
            let known = Known { meta: entry.meta.clone(), ..Known::NOTHING };
            let reader = query.open(&bench.at(&entry.key), &known).await.unwrap();
            let mut end = [0; 8];
            reader.read_at(&query, &mut end, reader.size_bytes() - 8).await.unwrap();
            assert_eq!(end, data[data.len() - 8..]);
        }
        query
    };
    let query = open_all(&first).await;
    let (ahead, came) = (Metric::ReadAheadBytes, Metric::BytesRead);
    let count = |query: &Query, metric| query.metrics().get(metric);
    assert!((1..=count(&query, came)).contains(&count(&query, ahead)));
    drop(query);
    let second = restart(&dir, first).await;
    let query = open_all(&second).await;
    assert_eq!((count(&query, ahead), count(&query, came)), (0, 0));
}

/// More than the queue before the disk takes, and more than the memory that there is for it.
#[tokio::test]
async fn a_long_read_is_cached_to_its_last_byte() {
    const LEN: usize = 100 * MIB;
    for memory in ["1GiB", "64MiB"] {
        let dir = Scratch::new("engine-cache");
        let first = bench(&dir, Scripted::new());
        first.store.place("a.bin", pattern(LEN)).await;
        let query = |bench: &Bench| {
            let mut settings = bench.engine.settings().clone();
            settings.set("parallel_read_enabled", "false").unwrap();
            settings.set("memory_limit_bytes", memory).unwrap();
            bench.engine.query(settings, None)
        };
        let of_first = query(&first);
        assert!(read(&first, &of_first, "a.bin", 0, LEN).await == pattern(LEN));
        assert_eq!(of_first.metrics().get(Metric::CacheDiskBytesSkipped), 0, "{memory}");
        drop(of_first);
        let second = restart(&dir, first).await;
        assert!(read(&second, &query(&second), "a.bin", 0, LEN).await == pattern(LEN));
        assert_eq!(second.store.take_calls(), ["stat a.bin"], "{memory}");
    }
}

/// They are cached as they come, not when all of them are here.
#[tokio::test(start_paused = true)]
async fn what_came_of_a_read_that_was_given_up_is_cached() {
    let dir = Scratch::new("engine-cache");
    let first = bench(&dir, Scripted::new());
    first.store.place("a.bin", pattern(8 * MIB)).await;
    let query = first.query();
    let reader = query.open(&first.at("a.bin"), &Known::NOTHING).await.unwrap();
    first.store.fail("get", Fault::CutBody(5 * MIB));
    first.store.fail("get", Fault::Hang);
    let mut buf = vec![0; 8 * MIB];
    let reading = reader.read_at(&query, &mut buf, 0);
    assert!(tokio::time::timeout(Duration::from_secs(5), reading).await.is_err());
    drop((reader, query));
    let second = restart(&dir, first).await;
    let again = read(&second, &second.query(), "a.bin", 0, 8 * MIB).await;
    assert!(again == pattern(8 * MIB));
    // Five steps of 1 MiB behind the quarter of one that came with opening it.
    assert_eq!(second.store.take_calls(), ["stat a.bin", "get a.bin 5505024..8388608"]);
}

/// However few requests may be on their way at once.
#[tokio::test]
async fn holes_between_cached_bytes_are_fetched_and_nothing_between_them() {
    for parallel in ["false", "true"] {
        let dir = Scratch::new("engine-cache");
        let first = bench(&dir, Scripted::new());
        first.store.place("a.bin", pattern(12 * MIB)).await;
        read(&first, &first.query(), "a.bin", 2 * MIB, 2 * MIB).await;
        read(&first, &first.query(), "a.bin", 6 * MIB, 3 * MIB).await;
        let second = restart(&dir, first).await;
        let mut settings = second.engine.settings().clone();
        settings.set("parallel_read_enabled", parallel).unwrap();
        let query = second.engine.query(settings, None);
        assert!(read(&second, &query, "a.bin", 0, 12 * MIB).await == pattern(12 * MIB));
        let mut calls = second.store.take_calls();
        calls.sort();
        assert_eq!(
            calls,
            [
                "get a.bin 262144..2097152",
                "get a.bin 4194304..6291456",
                "get a.bin 9437184..12582912",
                "stat a.bin"
            ],
            "{parallel}"
        );
    }
}

#[tokio::test]
async fn a_changed_object_is_another_one() {
    let dir = Scratch::new("engine-cache");
    let bench = bench(&dir, Scripted::new());
    bench.store.place("a", vec![1; MIB]).await;
    assert_eq!(read(&bench, &bench.query(), "a", 0, MIB).await, vec![1; MIB]);
    bench.store.place("a", vec![2; MIB]).await;
    assert_eq!(read(&bench, &bench.query(), "a", 0, MIB).await, vec![2; MIB]);
}

#[tokio::test]
async fn damaged_blocks_are_fetched_anew() {
    let dir = Scratch::new("engine-cache");
    let data = pattern(3 * MIB);
    let first = bench(&dir, Scripted::new());
    first.store.place("a", data.clone()).await;
    read(&first, &first.query(), "a", 0, 3 * MIB).await;
    let second = restart(&dir, first).await;
    for entry in std::fs::read_dir(dir.path().join("cache")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "blocks") {
            let mut content = std::fs::read(&path).unwrap();
            let middle = content.len() / 2;
            content[middle] ^= 1;
            std::fs::write(&path, content).unwrap();
        }
    }
    second.store.take_calls();
    assert_eq!(read(&second, &second.query(), "a", 0, 3 * MIB).await, data);
    let calls = second.store.take_calls();
    assert_eq!(calls.len(), 2, "the opening, and one block: {calls:?}");
    assert_eq!(second.engine.metrics().get(Metric::CacheDiskBlocksCorrupt), 1);
}

#[tokio::test]
async fn what_has_no_strong_tag_is_not_cached() {
    let dir = Scratch::new("engine-cache");
    let mut store = Scripted::new();
    store.weak_tags = true;
    let bench = bench(&dir, store);
    bench.store.place("a", pattern(2 * MIB)).await;
    for _ in 0..2 {
        read(&bench, &bench.query(), "a", MIB, MIB).await;
        assert_eq!(bench.store.take_calls().len(), 2);
    }
}

#[tokio::test]
async fn a_cache_that_cannot_be_used_is_told_when_an_object_is_opened() {
    let dir = Scratch::new("engine-cache");
    std::fs::write(dir.path().join("cache"), "a file").unwrap();
    let bench = bench(&dir, Scripted::new());
    bench.store.place("a", pattern(10)).await;
    let error = bench.query().open(&bench.at("a"), &Known::NOTHING).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("cache_dir"), "{error}");
    assert!(bench.store.take_calls().is_empty());
    let mut settings = bench.engine.settings().clone();
    settings.set("cache_dir", "").unwrap();
    let query = bench.engine.query(settings, None);
    query.open(&bench.at("a"), &Known::NOTHING).await.unwrap();
}

#[tokio::test]
async fn clearing_takes_the_disk_too() {
    let dir = Scratch::new("engine-cache");
    let bench = bench(&dir, Scripted::new());
    bench.store.place("a", pattern(2 * MIB)).await;
    read(&bench, &bench.query(), "a", 0, 2 * MIB).await;
    bench.query().clear_cache().unwrap();
    bench.store.take_calls();
    read(&bench, &bench.query(), "a", 0, 2 * MIB).await;
    assert_eq!(bench.store.take_calls().len(), 2);
}

/// Of a server that sends all of it for each range, since that was read by ranges: once is enough.
#[tokio::test]
async fn what_is_here_in_part_comes_whole_once_from_a_server_without_ranges() {
    let dir = Scratch::new("engine-cache");
    let data = pattern(6 * MIB);
    let plain = |ranges_ignored: bool| {
        let mut store = Scripted::new();
        (store.capabilities.list, store.capabilities.list_etag) = (false, false);
        store.ranges_ignored = ranges_ignored.into();
        store
    };
    let first = bench(&dir, plain(false));
    first.store.place("a.parquet", data.clone()).await;
    read(&first, &first.query(), "a.parquet", 4 * MIB, 2 * MIB).await;
    let Bench { store, engine } = first;
    let mut next = plain(true);
    next.memory = Arc::clone(&store.memory);
    drop((engine, store));
    let second = bench(&dir, next);
    let query = second.query();
    let reader = query.open(&second.at("a.parquet"), &Known::NOTHING).await.unwrap();
    for start in (0..4 * MIB).step_by(MIB) {
        let mut buf = vec![0; MIB];
        reader.read_at(&query, &mut buf, start as u64).await.unwrap();
        assert!(buf == data[start..][..MIB]);
    }
    let calls = second.store.take_calls();
    assert_eq!(calls, ["get a.parquet -262144"]);
}

//! What this process changed does not come back from the disk cache with the next process, also
//! where nothing is asked of the store as long as something is remembered (`never`).

use crate::support::{Bench, Fault, Scripted, create, pattern};
use bytes::Bytes;
use penstock_base::{Kind, Metric, Result};
use penstock_engine::{Known, Query};
use penstock_store::{Payload, PutOptions};
use penstock_testkit::scratch::Scratch;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
const NOTED: &str = "penstock-cache.outdated";

/// A process with a cache in this directory, and what the store of the one before has.
fn process(cache: &Path, before: Option<Bench>) -> Bench {
    let settings = [("cache_dir", cache.to_str().unwrap()), ("cache_validation", "never")];
    let mut store = Scripted::new();
    if let Some(Bench { store: old, engine }) = before {
        store.memory = Arc::clone(&old.memory);
        drop((engine, old));
    }
    Bench::with(store, &settings)
}

fn old() -> Vec<u8> {
    pattern(2 * MIB)
}

fn new() -> Vec<u8> {
    vec![7; 2 * MIB]
}

fn payload(bytes: Vec<u8>) -> Payload {
    Payload::from(Bytes::from(bytes))
}

/// All bytes of an object, and the requests that they took.
async fn read(bench: &Bench, key: &str) -> Result<(Vec<u8>, usize)> {
    bench.store.take_calls();
    let query = bench.query();
    let reader = query.open(&bench.at(key), &Known::NOTHING).await?;
    let mut buf = vec![0; usize::try_from(reader.size_bytes()).unwrap()];
    reader.read_at(&query, &mut buf, 0).await?;
    Ok((buf, bench.store.take_calls().len()))
}

/// A directory in which a process has cached two objects.
async fn cached(scratch: &Scratch) -> (PathBuf, Bench) {
    let cache = scratch.path().join("cache");
    let bench = process(&cache, None);
    for key in ["a.csv", "b.csv"] {
        bench.store.place(key, old()).await;
        assert!(read(&bench, key).await.unwrap().0 == old());
    }
    (cache, bench)
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Put,
    Write(usize),
    Copy,
    Remove,
    Delete,
}

async fn change(bench: &Bench, query: &Query, how: Change) {
    let at = bench.at("a.csv");
    match how {
        Change::Put => {
            query.put(&at, payload(new()), &PutOptions::default()).await.unwrap();
        }
        Change::Write(len) => {
            let mut writer = create(bench, query, "a.csv");
            writer.write(&vec![7; len]).await.unwrap();
            writer.finish().await.unwrap();
        }
        Change::Copy => {
            bench.store.place("c.csv", new()).await;
            query.copy(&bench.at("c.csv"), &at, PutOptions::default()).await.unwrap();
        }
        Change::Remove => query.remove(slice::from_ref(&at)).await.unwrap(),
        Change::Delete => query.delete(&at, None).await.unwrap(),
    }
}

#[tokio::test]
async fn a_changed_object_is_asked_for_by_the_next_process_and_others_are_not() {
    for how in [
        Change::Put,
        Change::Write(2 * MIB),
        Change::Write(20 * MIB),
        Change::Copy,
        Change::Remove,
        Change::Delete,
    ] {
        let scratch = Scratch::new("outdated");
        let (cache, bench) = cached(&scratch).await;
        // One that has read nothing itself.
        let bench = process(&cache, Some(bench));
        change(&bench, &bench.query(), how).await;
        let bench = process(&cache, Some(bench));
        let found = read(&bench, "a.csv").await;
        match how {
            Change::Remove | Change::Delete => {
                assert_eq!(found.unwrap_err().kind(), Kind::NotFound, "{how:?}");
                continue;
            }
            _ => assert!(found.unwrap().0.iter().all(|byte| *byte == 7), "{how:?}"),
        }
        assert_eq!(read(&bench, "b.csv").await.unwrap(), (old(), 0), "{how:?}");
        // What is cached of it now is what it is.
        let bench = process(&cache, Some(bench));
        let (found, requests) = read(&bench, "a.csv").await.unwrap();
        assert!(found.iter().all(|byte| *byte == 7) && requests == 0, "{how:?}: {requests}");
    }
}

/// As DuckLake does it: written once, read often.
#[tokio::test]
async fn what_a_process_has_made_and_read_is_known_to_the_next_one() {
    let scratch = Scratch::new("outdated");
    let bench = process(scratch.path(), None);
    change(&bench, &bench.query(), Change::Put).await;
    assert_eq!(read(&bench, "a.csv").await.unwrap().0, new());
    let bench = process(scratch.path(), Some(bench));
    assert_eq!(read(&bench, "a.csv").await.unwrap(), (new(), 0));
    assert!(!scratch.path().join(NOTED).exists(), "there was nothing to note");
}

/// Waits until a cache directory has blocks of so many bytes.
fn wait_for_blocks(cache: &Path, bytes: u64) {
    let began = Instant::now();
    let has = || {
        let entries = std::fs::read_dir(cache).into_iter().flatten();
        entries.filter_map(|entry| entry.ok()?.metadata().ok()).map(|it| it.len()).sum::<u64>()
    };
    while has() < bytes {
        assert!(began.elapsed() < Duration::from_secs(60), "nothing was cached");
        std::thread::yield_now();
    }
}

/// What a process leaves behind that is killed now.
fn killed(cache: &Path, scratch: &Scratch) -> PathBuf {
    let left = scratch.path().join("left");
    std::fs::create_dir(&left).unwrap();
    for entry in std::fs::read_dir(cache).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, left.join(path.file_name().unwrap())).unwrap();
    }
    left
}

/// The store carries out what the process did not live to hear of. What it read meanwhile was the
/// object then.
#[tokio::test]
async fn a_process_that_is_killed_in_a_change_leaves_nothing_that_is_taken_for_the_object() {
    for was_cached in [true, false] {
        let scratch = Scratch::new("outdated");
        let cache = scratch.path().join("cache");
        let bench = process(&cache, None);
        bench.store.place("a.csv", old()).await;
        if was_cached {
            assert!(read(&bench, "a.csv").await.unwrap().0 == old());
        }
        let gate = bench.store.hold("put");
        let (query, at) = (bench.query(), bench.at("a.csv"));
        let put = tokio::spawn(async move {
            query.put(&at, payload(new()), &PutOptions::default()).await.unwrap();
        });
        let is_sent = |call: &String| call.starts_with("put");
        while !bench.store.calls.lock().unwrap().iter().any(is_sent) {
            tokio::task::yield_now().await;
        }
        assert!(read(&bench, "a.csv").await.unwrap().0 == old());
        wait_for_blocks(&cache, 2 * MIB as u64);
        let left = killed(&cache, &scratch);
        gate.add_permits(1);
        put.await.unwrap();
        let later = process(&left, Some(bench));
        assert!(read(&later, "a.csv").await.unwrap().0 == new(), "{was_cached}");
    }
}

/// Its caller gave up, so the store may carry it out at any time.
#[tokio::test]
async fn what_is_read_after_a_change_that_nobody_heard_the_end_of_is_not_taken_for_the_object() {
    let scratch = Scratch::new("outdated");
    let (cache, bench) = cached(&scratch).await;
    bench.store.fail("put", Fault::Hang);
    let (query, at, options) = (bench.query(), bench.at("n.csv"), PutOptions::default());
    bench.store.place("n.csv", old()).await;
    let put = query.put(&at, payload(new()), &options);
    assert!(tokio::time::timeout(Duration::from_millis(50), put).await.is_err());
    assert!(read(&bench, "n.csv").await.unwrap().0 == old());
    drop(query);
    let bench = process(&cache, Some(bench));
    bench.store.place("n.csv", new()).await;
    assert!(read(&bench, "n.csv").await.unwrap().0 == new());
    assert_eq!(read(&bench, "b.csv").await.unwrap().1, 0, "others stay known");
}

#[tokio::test]
async fn a_damaged_note_counts_for_everything() {
    let scratch = Scratch::new("outdated");
    let (cache, bench) = cached(&scratch).await;
    change(&bench, &bench.query(), Change::Put).await;
    let noted = cache.join(NOTED);
    let mut bytes = std::fs::read(&noted).unwrap();
    bytes[17] ^= 1;
    // Nothing is outdated anew before the next process reads it.
    std::fs::write(&noted, bytes).unwrap();
    let bench = process(&cache, Some(bench));
    assert!(read(&bench, "a.csv").await.unwrap().0 == new());
    let (found, requests) = read(&bench, "b.csv").await.unwrap();
    assert!(found == old() && requests == 1, "{requests}: asked for, and not fetched again");
    // The store has confirmed it.
    let bench = process(&cache, Some(bench));
    assert_eq!(read(&bench, "b.csv").await.unwrap(), (old(), 0));
}

/// What the store said of an object before it changed confirms nothing behind that.
#[tokio::test]
async fn an_answer_from_before_a_change_confirms_nothing() {
    let scratch = Scratch::new("outdated");
    let (cache, bench) = cached(&scratch).await;
    let bench = process(&cache, Some(bench));
    let answer = Arc::new(tokio::sync::Semaphore::new(0));
    bench.store.fail("stat", Fault::Delay(Arc::clone(&answer)));
    let asking = bench.query();
    // Of one that has not opened the cache nothing is confirmed.
    asking.cache_entries().unwrap();
    let at = bench.at("a.csv");
    // So that it is asked about.
    let begun = bench.query().change(slice::from_ref(&at)).await.unwrap();
    let changes = async {
        while bench.store.take_calls().is_empty() {
            tokio::task::yield_now().await;
        }
        begun.ended(&Ok(()));
        change(&bench, &bench.query(), Change::Put).await;
        answer.add_permits(1);
    };
    let (meta, ()) = tokio::join!(asking.stat(&at), changes);
    meta.unwrap();
    drop(asking);
    let bench = process(&cache, Some(bench));
    assert!(read(&bench, "a.csv").await.unwrap().0 == new());
}

/// A disk that takes no note: better no cache than one that is believed.
#[tokio::test]
async fn where_nothing_can_be_noted_nothing_stays() {
    let scratch = Scratch::new("outdated");
    let (cache, bench) = cached(&scratch).await;
    std::fs::create_dir(cache.join(format!("{NOTED}.new"))).unwrap();
    change(&bench, &bench.query(), Change::Put).await;
    assert_eq!(bench.engine.metrics().get(Metric::CacheDiskBlocksFailed), 1);
    let bench = process(&cache, Some(bench));
    assert!(read(&bench, "a.csv").await.unwrap().0 == new());
    assert!(read(&bench, "b.csv").await.unwrap().1 > 0);
}

/// Neither a note, nor that what is there goes: the old bytes would be taken for the new object.
#[tokio::test]
async fn where_nothing_can_be_noted_and_nothing_goes_nothing_is_changed() {
    let scratch = Scratch::new("outdated");
    let (cache, bench) = cached(&scratch).await;
    // So that the file of blocks is closed.
    let bench = process(&cache, Some(bench));
    let noting = cache.join(format!("{NOTED}.new"));
    std::fs::create_dir(&noting).unwrap();
    let blocks = std::fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path());
    let blocks: Vec<_> =
        blocks.filter(|path| path.extension() == Some("blocks".as_ref())).collect();
    let query = bench.query();
    query.cache_entries().unwrap();
    for path in &blocks {
        std::fs::remove_file(path).unwrap();
        std::fs::create_dir(path).unwrap();
    }
    assert!(!blocks.is_empty());
    for key in ["a.csv", "n.csv"] {
        let put = query.put(&bench.at(key), payload(new()), &PutOptions::default()).await;
        let error = put.unwrap_err();
        assert_eq!(error.kind(), Kind::Exhausted);
        let text = error.to_string();
        assert!(text.contains(cache.to_str().unwrap()) && text.contains("cache_dir"), "{text}");
    }
    assert!(
        bench.store.content("a.csv").await.unwrap() == old()
            && bench.store.content("n.csv").await.is_none()
    );
    std::fs::remove_dir(&noting).unwrap();
    change(&bench, &query, Change::Put).await;
    assert!(bench.store.content("a.csv").await.unwrap() == new());
}

#[tokio::test]
async fn a_cache_that_cannot_be_opened_stops_no_change_and_is_tried_once_for_a_query() {
    let scratch = Scratch::new("outdated");
    let (path, cache) = (scratch.path().join("file"), scratch.path().join("file/cache"));
    std::fs::write(&path, "").unwrap();
    let bench = process(&cache, None);
    let query = bench.query();
    change(&bench, &query, Change::Put).await;
    std::fs::remove_file(&path).unwrap();
    change(&bench, &query, Change::Put).await;
    assert!(!cache.exists(), "it was tried again");
    let error = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap_err();
    assert!(error.to_string().contains("cache_dir"), "{error}");
    assert!(read(&bench, "a.csv").await.unwrap().0 == new() && cache.exists());
}

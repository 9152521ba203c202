//! GETs through the disk cache, as the gateway and the command line send them, and the policies by
//! which what is known of objects counts.

use crate::support::{Bench, Fault, Scripted, pattern};
use penstock_base::{ByteRange, Kind, Metric, Result};
use penstock_engine::{GetRange, GetRequest, Known, Query};
use penstock_testkit::scratch::Scratch;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

fn bench(dir: &Scratch, settings: &[(&str, &str)]) -> Bench {
    let dir = dir.path().join("cache");
    let mut all = vec![("cache_dir", dir.to_str().unwrap())];
    all.extend(settings);
    Bench::with(Scripted::new(), &all)
}

/// A process that begins with what the one before has left on its disk and in its store.
fn restart(dir: &Scratch, before: Bench, settings: &[(&str, &str)]) -> Bench {
    let Bench { store, engine } = before;
    let memory = Arc::clone(&store.memory);
    drop((engine, store));
    let dir = dir.path().join("cache");
    let mut all = vec![("cache_dir", dir.to_str().unwrap())];
    all.extend(settings);
    let mut next = Scripted::new();
    next.memory = memory;
    Bench::with(next, &all)
}

async fn try_get(bench: &Bench, query: &Query, key: &str, range: GetRange) -> Result<Vec<u8>> {
    let request = GetRequest::from(range);
    let mut stream = query.get(&bench.at(key), request).await?;
    let (mut all, mut buf) = (Vec::new(), vec![0; 100_000]);
    loop {
        match stream.read(&mut buf).await? {
            0 => return Ok(all),
            count => all.extend_from_slice(&buf[..count]),
        }
    }
}

async fn get(bench: &Bench, key: &str, range: GetRange) -> Vec<u8> {
    try_get(bench, &bench.query(), key, range).await.unwrap()
}

fn bounded(start: usize, end: usize) -> GetRange {
    GetRange::Bounded(ByteRange { start: start as u64, end: end as u64 })
}

#[tokio::test]
async fn what_a_get_brought_is_not_fetched_again_once_the_store_confirms_its_version() {
    let dir = Scratch::new("engine-through");
    let data = pattern(5 * MIB + 7);
    let first = bench(&dir, &[]);
    first.store.place("a", data.clone()).await;
    assert!(get(&first, "a", GetRange::All).await == data);
    assert!(get(&first, "a", GetRange::All).await == data);
    assert_eq!(first.store.take_calls(), ["get a all", "stat a"]);
    let next = restart(&dir, first, &[]);
    let query = next.query();
    for (range, from, to) in [
        (GetRange::All, 0, data.len()),
        (bounded(3 * MIB - 1, 4 * MIB + 1), 3 * MIB - 1, 4 * MIB + 1),
        (GetRange::Suffix(9), data.len() - 9, data.len()),
        (GetRange::From(5 * MIB as u64), 5 * MIB, data.len()),
    ] {
        assert!(try_get(&next, &query, "a", range).await.unwrap() == data[from..to]);
        assert_eq!(next.store.take_calls(), ["stat a"], "{range:?}");
    }
    assert!(query.metrics().get(Metric::CacheBytesRead) > 6 * MIB as u64);
}

#[tokio::test]
async fn a_replaced_object_is_never_served_from_the_disk() {
    let dir = Scratch::new("engine-through");
    let bench = bench(&dir, &[]);
    for round in 0..3u8 {
        let data = vec![round; 2 * MIB];
        bench.store.place("a", data.clone()).await;
        assert!(get(&bench, "a", GetRange::All).await == data, "round {round}");
    }
    let expected = ["get a all", "stat a", "get a all", "stat a", "get a all"];
    assert_eq!(bench.store.take_calls(), expected);
    bench.engine.query(bench.engine.settings().clone(), None).clear_cache().unwrap();
    get(&bench, "a", GetRange::All).await;
    assert_eq!(bench.store.take_calls(), ["get a all"], "clearing clears");
}

#[tokio::test]
async fn of_what_is_cached_in_part_the_rest_is_fetched() {
    let dir = Scratch::new("engine-through");
    let bench = bench(&dir, &[]);
    let data = pattern(8 * MIB);
    bench.store.place("a", data.clone()).await;
    get(&bench, "a", bounded(MIB, 3 * MIB)).await;
    bench.store.take_calls();
    assert!(get(&bench, "a", GetRange::All).await == data);
    assert_eq!(bench.store.take_calls(), ["get a all"], "less than half is not worth a question");
    let bench = restart(&dir, bench, &[]);
    bench.query().clear_cache().unwrap();
    get(&bench, "a", bounded(MIB, 6 * MIB)).await;
    bench.store.take_calls();
    assert!(get(&bench, "a", GetRange::All).await == data);
    let expected = ["stat a", "get a 0..1048576", "get a 6291456..8388608"];
    assert_eq!(bench.store.take_calls(), expected);
    assert!(get(&bench, "a", GetRange::All).await == data);
    assert_eq!(bench.store.take_calls(), ["stat a"], "the rest was kept too");
}

#[tokio::test]
async fn damage_and_broken_bodies_cost_requests_and_no_wrong_byte() {
    let dir = Scratch::new("engine-through");
    let first = bench(&dir, &[]);
    let data = pattern(6 * MIB);
    first.store.place("a", data.clone()).await;
    first.store.fail("get", Fault::CutBody(1_500_000));
    assert!(get(&first, "a", GetRange::All).await == data);
    let next = restart(&dir, first, &[]);
    for entry in std::fs::read_dir(dir.path().join("cache")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "blocks") {
            let mut content = std::fs::read(&path).unwrap();
            let middle = content.len() / 2;
            content[middle] ^= 1;
            std::fs::write(&path, content).unwrap();
        }
    }
    next.store.fail("get", Fault::CutBody(1000));
    assert!(get(&next, "a", GetRange::All).await == data);
    let calls = next.store.take_calls();
    assert_eq!(calls.len(), 3, "its version, the damaged block, and that again: {calls:?}");
    assert!(get(&next, "a", GetRange::All).await == data);
    assert_eq!(next.store.take_calls(), ["stat a"], "what was damaged is whole again");
}

#[tokio::test]
async fn a_condition_is_the_stores_to_judge_and_what_is_gone_is_told() {
    let dir = Scratch::new("engine-through");
    let bench = bench(&dir, &[]);
    bench.store.place("a", pattern(MIB)).await;
    get(&bench, "a", GetRange::All).await;
    let request = GetRequest {
        range: GetRange::All,
        if_match: Some(penstock_store::ETag("other".into())),
        ..Default::default()
    };
    let error = bench.query().get(&bench.at("a"), request).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    bench.query().remove(&[bench.at("a")]).await.unwrap();
    let error = try_get(&bench, &bench.query(), "a", GetRange::All).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
}

/// How often the store is asked for an object that is opened twice in each of two queries.
#[tokio::test(start_paused = true)]
async fn each_policy_asks_as_often_as_it_says() {
    for (policy, expected) in [("always", 4), ("query", 2), ("time", 1), ("never", 1), ("auto", 1)]
    {
        let bench = Bench::with(Scripted::new(), &[("cache_validation", policy)]);
        bench.store.place("a.parquet", pattern(1000)).await;
        for _ in 0..2 {
            let query = bench.query();
            for _ in 0..2 {
                query.open(&bench.at("a.parquet"), &Known::NOTHING).await.unwrap();
            }
        }
        assert_eq!(bench.store.take_calls().len(), expected, "{policy}");
        tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
        bench.query().open(&bench.at("a.parquet"), &Known::NOTHING).await.unwrap();
        let expected = usize::from(policy != "never");
        assert_eq!(bench.store.take_calls().len(), expected, "{policy}, an hour later");
    }
}

#[tokio::test]
async fn an_object_that_changes_in_a_query_that_always_asks_is_a_conflict() {
    let bench = Bench::with(Scripted::new(), &[("cache_validation", "always")]);
    bench.store.place("a", pattern(1000)).await;
    let query = bench.query();
    query.open(&bench.at("a"), &Known::NOTHING).await.unwrap();
    bench.store.place("a", pattern(1001)).await;
    let error = query.open(&bench.at("a"), &Known::NOTHING).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    let reader = bench.query().open(&bench.at("a"), &Known::NOTHING).await.unwrap();
    assert_eq!(reader.size_bytes(), 1001);
}

/// Objects that never change are not asked for by a new process either, if the disk has them.
#[tokio::test]
async fn a_new_process_asks_nothing_of_objects_that_never_change() {
    let dir = Scratch::new("engine-through");
    let never = [("cache_validation", "never")];
    let first = bench(&dir, &never);
    let data = pattern(3 * MIB);
    first.store.place("a.parquet", data.clone()).await;
    let read = async |bench: &Bench| {
        let query = bench.query();
        let reader = query.open(&bench.at("a.parquet"), &Known::NOTHING).await.unwrap();
        let mut buf = vec![0; reader.size_bytes() as usize];
        reader.read_at(&query, &mut buf, 0).await.unwrap();
        let mut tail = vec![0; 100];
        reader.read_at(&query, &mut tail, reader.size_bytes() - 100).await.unwrap();
        buf
    };
    assert!(read(&first).await == data);
    let next = restart(&dir, first, &never);
    assert!(read(&next).await == data);
    assert_eq!(next.store.take_calls(), Vec::<String>::new());
}

/// Whoever wants the bytes alone is not asked for either: each command of `penstock` is a new
/// process. Whoever needs an object's type and metadata is: the disk does not tell them.
#[tokio::test]
async fn a_new_process_gets_bytes_of_objects_that_never_change_without_asking() {
    let dir = Scratch::new("engine-through");
    let never = [("cache_validation", "never")];
    let data = pattern(3 * MIB);
    let mut process = bench(&dir, &never);
    process.store.place("a", data.clone()).await;
    assert!(get(&process, "a", GetRange::All).await == data);
    for (wants_bytes, expected) in [(true, vec![]), (false, vec!["stat a"]), (true, vec![])] {
        process = restart(&dir, process, &never);
        let query = process.query();
        let mut stream = match wants_bytes {
            true => query.get_bytes(&process.at("a"), GetRange::All).await.unwrap(),
            false => query.get(&process.at("a"), GetRange::All.into()).await.unwrap(),
        };
        let mut all = vec![0; data.len()];
        let mut filled = 0;
        while filled < all.len() {
            filled += stream.read(&mut all[filled..]).await.unwrap();
        }
        assert!(all == data);
        assert_eq!(process.store.take_calls(), expected, "{wants_bytes}");
    }
}

/// What DuckDB keeps itself is not kept again, unless somebody asks for that.
#[tokio::test]
async fn memory_keeps_what_was_read_if_it_is_asked_to() {
    for (bytes, expected) in [("0", 2), ("16MiB", 0)] {
        let bench = Bench::with(Scripted::new(), &[("cache_memory_bytes", bytes)]);
        let data = pattern(4 * MIB);
        bench.store.place("a.csv", data.clone()).await;
        for round in 0..2 {
            let query = bench.query();
            let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
            let mut buf = vec![0; 2 * MIB];
            for offset in [MIB, 2 * MIB] {
                reader.read_at(&query, &mut buf, offset as u64).await.unwrap();
                assert!(buf == data[offset..offset + 2 * MIB]);
            }
            let calls = bench.store.take_calls();
            assert!(round == 0 || calls.len() == expected, "{bytes}: {calls:?}");
        }
        let query = bench.query();
        let kept = query.cache_entries().unwrap();
        let in_memory = kept.iter().filter(|entry| entry.cache == "memory");
        let cached: u64 = in_memory.map(|entry| entry.cached_bytes).sum();
        let in_vain = 256 << 10; // the opening
        assert_eq!(cached, if expected == 0 { (3 * MIB + in_vain) as u64 } else { 0 });
        query.clear_cache().unwrap();
        assert!(query.cache_entries().unwrap().is_empty());
        assert_eq!(bench.engine.budget().held_bytes(), 0);
    }
}

/// A server gets blocks of memory as they are, and reads what is not there.
#[tokio::test]
async fn what_lies_in_memory_is_given_without_a_copy() {
    let settings = [("cache_memory_bytes", "16MiB"), ("cache_validation", "never")];
    let bench = Bench::with(Scripted::new(), &settings);
    let data = pattern(6 * MIB);
    bench.store.place("a.bin", data.clone()).await;
    let first = bounded(1000, 4 * MIB);
    assert!(get(&bench, "a.bin", first).await == data[1000..4 * MIB]);
    let (mut places, mut buf) = (Vec::new(), vec![0; 100_000]);
    for round in 0..2 {
        bench.store.take_calls();
        let (query, wanted) = (bench.query(), 500..5 * MIB);
        let range = bounded(wanted.start, wanted.end);
        let mut stream = query.get_bytes(&bench.at("a.bin"), range).await.unwrap();
        let (mut all, mut shared, mut at) = (Vec::new(), 0, Vec::new());
        while all.len() < wanted.len() {
            if let Some(bytes) = stream.take_kept(300_000) {
                assert!((1..=300_000).contains(&bytes.len()));
                shared += bytes.len();
                at.push(bytes.as_ptr() as usize);
                all.extend_from_slice(&bytes);
            } else {
                let count = stream.read(&mut buf).await.unwrap();
                all.extend_from_slice(&buf[..count]);
            }
        }
        assert!(all == data[wanted.clone()], "round {round}");
        assert_eq!((stream.read(&mut buf).await.unwrap(), stream.take_kept(1)), (0, None));
        let expected = if round == 0 { 4 * MIB - 1000 } else { wanted.len() };
        assert_eq!(shared, expected, "round {round}");
        assert_eq!(query.metrics().get(Metric::CacheMemoryBytesRead), shared as u64);
        let calls = bench.store.take_calls();
        assert_eq!(calls.len(), [2, 0][round], "{calls:?}");
        places.push(at);
    }
    let again = places[0].iter().filter(|at| places[1].contains(at)).count();
    assert_eq!(again, places[0].len(), "copied");
}

/// With bytes in memory asked for, those that the host keeps are not held twice; but what is there
/// from a query that it kept nothing of is read.
#[tokio::test]
async fn memory_keeps_nothing_of_what_the_host_keeps() {
    let bench = Bench::with(Scripted::new(), &[("cache_memory_bytes", "16MiB")]);
    let data = pattern(2 * MIB);
    let read = async |known: &Known| {
        let query = bench.query();
        let reader = query.open(&bench.at("a.csv"), known).await.unwrap();
        let mut buf = vec![0; MIB];
        reader.read_at(&query, &mut buf, 0).await.unwrap();
        assert!(buf == data[..MIB]);
        let kept = query.cache_entries().unwrap();
        let in_memory = kept.iter().filter(|entry| entry.cache == "memory");
        in_memory.map(|entry| entry.cached_bytes).sum::<u64>()
    };
    bench.store.place("a.csv", data.clone()).await;
    let by_host = Known { host_keeps: true, ..Known::default() };
    assert_eq!(read(&by_host).await, 0);
    // What it was opened with is held beside the cache.
    let rest = (MIB - (256 << 10)) as u64;
    assert!(read(&Known::NOTHING).await >= rest);
    bench.store.take_calls();
    assert!(read(&by_host).await >= rest);
    let calls = bench.store.take_calls();
    assert!(calls.iter().all(|call| !call.starts_with("get")), "{calls:?}");
}

/// What the cache gives for longer than a request may take costs the next request no time.
#[tokio::test(start_paused = true)]
async fn a_get_that_the_cache_serves_for_long_still_has_the_whole_deadline_for_the_store() {
    let settings = [("cache_memory_bytes", "64MiB"), ("request_deadline_ms", "1000")];
    let bench = Bench::with(Scripted::remote(Duration::from_millis(10)), &settings);
    let data = pattern(8 * MIB);
    bench.store.place("a", data.clone()).await;
    for (start, end) in [(0, 3 * MIB), (4 * MIB, 7 * MIB)] {
        get(&bench, "a", bounded(start, end)).await;
    }
    let query = bench.query();
    let request = GetRequest::default();
    let mut stream = query.get(&bench.at("a"), request).await.unwrap();
    let (mut all, mut buf) = (Vec::new(), vec![0; MIB]);
    loop {
        match stream.read(&mut buf).await.unwrap() {
            0 => break,
            count => all.extend_from_slice(&buf[..count]),
        }
        // Longer for all of them together than one request may take.
        tokio::time::advance(Duration::from_millis(600)).await;
    }
    assert!(all == data);
    assert_eq!(query.metrics().get(Metric::Retries), 0);
}

/// Both caches at once: bytes come from where they are, and a writer gets the memory.
#[tokio::test]
async fn memory_beside_a_disk_gives_way_to_writers() {
    let dir = Scratch::new("engine-through");
    let memory = [("cache_memory_bytes", "1GiB"), ("memory_limit_bytes", "64MiB")];
    let bench = bench(&dir, &memory);
    let data = pattern(40 * MIB);
    bench.store.place("a", data.clone()).await;
    assert!(get(&bench, "a", GetRange::All).await == data);
    // What the disk has not taken yet counts too, until it has.
    let held = || bench.engine.budget().held_bytes();
    let begun = Instant::now();
    while held() > 40 << 20 && begun.elapsed() < Duration::from_secs(30) {
        tokio::task::yield_now().await;
    }
    assert!(held() > 0 && held() <= 40 << 20, "half of the limit, and what is being written");
    assert!(get(&bench, "a", GetRange::All).await == data);
    let query = bench.query();
    let mut writers = Vec::new();
    for index in 0..12 {
        let at = bench.at(&format!("out/{index}"));
        let mut writer = query.create(&at, penstock_store::PutOptions::default()).unwrap();
        writer.write(&pattern(5 * MIB)).await.unwrap();
        writers.push(writer);
    }
    assert!(bench.engine.budget().held_bytes() <= 64 << 20);
    assert!(get(&bench, "a", GetRange::All).await == data);
}

//! Opening and reading: request counts, pinning, resuming, giving up.

#![allow(clippy::unwrap_used)]

mod support;

use penstock_base::{ByteRange, Kind, Metric};
use penstock_engine::{Known, Query, Reader};
use penstock_store::{GetRange, GetRequest, ObjectMeta, PutOptions};
use penstock_testkit::parquet::footer;
use std::time::Duration;
use support::{Bench, Fault, Scripted, pattern};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

async fn read(reader: &Reader, query: &Query, offset: usize, len: usize) -> Vec<u8> {
    let mut buf = vec![0; len];
    reader.read_at(query, &mut buf, offset as u64).await.unwrap();
    buf
}

#[tokio::test(start_paused = true)]
async fn cold_parquet_costs_one_request_before_column_data() {
    let bench = Bench::new(Scripted::new());
    let data = pattern(2 * MIB);
    bench.store.place("a.parquet", data.clone()).await;
    let query = bench.query();
    // DuckDB binds (open, footer) and then opens once per thread.
    let bind = query.open(&bench.at("a.parquet"), &Known::NOTHING).await.unwrap();
    assert_eq!(bind.size_bytes(), data.len() as u64);
    let footer = read(&bind, &query, data.len() - 16 * KIB, 16 * KIB).await;
    assert_eq!(footer, &data[data.len() - 16 * KIB..]);
    for _ in 0..4 {
        query.open(&bench.at("a.parquet"), &Known::NOTHING).await.unwrap();
    }
    assert_eq!(bench.store.take_calls(), ["get a.parquet -262144"]);
    let column = read(&bind, &query, 4, MIB).await;
    assert_eq!(column, &data[4..4 + MIB]);
    assert_eq!(bench.store.take_calls(), ["get a.parquet 4..1048580"]);
    assert_eq!(query.metrics().get(Metric::Requests), 2);
}

#[tokio::test(start_paused = true)]
async fn cold_parquet_without_suffix_ranges_costs_two_and_a_small_file_one() {
    let bench = Bench::new(Scripted::like_azure());
    let data = pattern(2 * MIB);
    bench.store.place("a.parquet", data.clone()).await;
    bench.store.place("small.parquet", data[..100 * KIB].to_vec()).await;
    let query = bench.query();
    let large = query.open(&bench.at("a.parquet"), &Known::NOTHING).await.unwrap();
    let footer = read(&large, &query, data.len() - 16 * KIB, 16 * KIB).await;
    assert_eq!(footer, &data[data.len() - 16 * KIB..]);
    assert_eq!(
        bench.store.take_calls(),
        ["get a.parquet 0..262144", "get a.parquet 2080768..2097152"]
    );
    let small = query.open(&bench.at("small.parquet"), &Known::NOTHING).await.unwrap();
    assert_eq!(read(&small, &query, 0, 100 * KIB).await, &data[..100 * KIB]);
    assert_eq!(bench.store.take_calls(), ["get small.parquet 0..262144"]);
}

#[tokio::test(start_paused = true)]
async fn listing_makes_opening_free() {
    let bench = Bench::new(Scripted::new());
    let data = pattern(2 * MIB);
    bench.store.place("d/a.parquet", data.clone()).await;
    let query = bench.query();
    let found = query.glob(&bench.at("d/*.parquet")).await.unwrap();
    bench.store.take_calls();
    let known = Known { meta: found[0].meta.clone(), ..Known::default() };
    let reader = query.open(&bench.at(&found[0].key), &known).await.unwrap();
    assert!(bench.store.take_calls().is_empty());
    read(&reader, &query, data.len() - 8, 8).await;
    read(&reader, &query, data.len() - 16 * KIB, 16 * KIB).await;
    assert_eq!(bench.store.take_calls(), ["get d/a.parquet 2080768..2097152"]);
    // Without the caller's help the engine remembers the listing.
    let other = bench.query();
    other.open(&bench.at("d/a.parquet"), &Known::NOTHING).await.unwrap();
    assert!(bench.store.take_calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn footers_of_a_globs_next_files_are_fetched_ahead_from_the_first_open_on() {
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
        let known = Known { meta: entry.meta.clone(), ..Known::default() };
        let reader = query.open(&bench.at(&entry.key), &known).await.unwrap();
        if index < 2 {
            settle().await;
            calls.extend(bench.store.take_calls());
            assert_eq!(calls.len(), 15 + index, "the first begins fifteen: {calls:?}");
        }
        assert_eq!(
            read(&reader, &query, data.len() - 16 * KIB, 16 * KIB).await,
            &data[data.len() - 16 * KIB..]
        );
        calls.extend(bench.store.take_calls());
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
        let open = async |index: usize| {
            let known = Known { meta: found[index].meta.clone(), ..Known::default() };
            query.open(&bench.at(&found[index].key), &known).await.unwrap()
        };
        open(0).await;
        settle().await;
        let mut calls = bench.store.take_calls();
        calls.sort();
        let expected: Vec<String> =
            (1..10).map(|index| format!("get d/{index}.parquet {window}")).collect();
        assert_eq!(calls, expected);
        let second = open(1).await;
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

/// Lets background work go as far as it can.
async fn settle() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

/// Files of two row groups of three columns, each chunk of `chunk_bytes`.
async fn place_columns(bench: &Bench, count: usize, chunk_bytes: usize) -> Vec<u8> {
    let chunk = |index: usize| ByteRange {
        start: (4 + index * chunk_bytes) as u64,
        end: (4 + (index + 1) * chunk_bytes) as u64,
    };
    let mut data = pattern(4 + 6 * chunk_bytes);
    data.extend(footer(&[(0..3).map(chunk).collect(), (3..6).map(chunk).collect()]));
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
            let known = Known { meta: entry.meta.clone(), ..Known::default() };
            let reader = query.open(&bench.at(&entry.key), &known).await.unwrap();
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

#[tokio::test(start_paused = true)]
async fn warm_reopen_is_free_inside_the_window_and_costs_one_after() {
    let bench = Bench::new(Scripted::new());
    let data = pattern(2 * MIB);
    bench.store.place("a.parquet", data.clone()).await;
    for (wait_ms, calls) in
        [(0, vec!["get a.parquet -262144"]), (4_000, vec![]), (6_000, vec!["stat a.parquet"])]
    {
        tokio::time::advance(Duration::from_millis(wait_ms)).await;
        let query = bench.query();
        let reader = query.open(&bench.at("a.parquet"), &Known::NOTHING).await.unwrap();
        read(&reader, &query, data.len() - 64 * KIB, 64 * KIB).await;
        query.open(&bench.at("a.parquet"), &Known::NOTHING).await.unwrap();
        assert_eq!(bench.store.take_calls(), calls, "after {wait_ms} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn immutable_objects_are_never_validated() {
    let bench = Bench::new(Scripted::new());
    bench.store.place("a.parquet", pattern(MIB)).await;
    let known = Known { immutable: true, ..Known::default() };
    bench.query().open(&bench.at("a.parquet"), &known).await.unwrap();
    bench.store.take_calls();
    tokio::time::advance(Duration::from_secs(86_400)).await;
    bench.query().open(&bench.at("a.parquet"), &Known::NOTHING).await.unwrap();
    assert!(bench.store.take_calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn window_of_zero_asks_once_in_every_query() {
    let bench = Bench::with(Scripted::new(), &[("metadata_validity_ms", "0")]);
    bench.store.place("a.parquet", pattern(MIB)).await;
    for _ in 0..2 {
        let query = bench.query();
        for _ in 0..3 {
            query.open(&bench.at("a.parquet"), &Known::NOTHING).await.unwrap();
        }
        assert_eq!(bench.store.take_calls().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_object_is_asked_for_every_time() {
    let bench = Bench::new(Scripted::new());
    let query = bench.query();
    for _ in 0..2 {
        let error = query.open(&bench.at("none"), &Known::NOTHING).await.unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound);
        assert!(!query.exists(&bench.at("none")).await.unwrap());
    }
    assert_eq!(bench.store.take_calls().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_replaced_object_is_a_clear_error_and_the_next_query_sees_the_new_one() {
    let bench = Bench::new(Scripted::new());
    bench.store.place("a.csv", pattern(2 * MIB)).await;
    let query = bench.query();
    let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
    bench.store.place("a.csv", pattern(3 * MIB)).await;
    let error = reader.read_at(&query, &mut vec![0; KIB], MIB as u64).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    let text = error.to_string();
    assert!(text.contains("mem://t/a.csv") && text.contains("Re-run the query"), "{text}");
    let again = bench.query().open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
    assert_eq!(again.size_bytes(), 3 * MIB as u64);
}

#[tokio::test(start_paused = true)]
async fn a_removed_object_is_told_as_such() {
    let bench = Bench::new(Scripted::new());
    bench.store.place("a.csv", pattern(2 * MIB)).await;
    let query = bench.query();
    let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
    bench.query().remove(&[bench.at("a.csv")]).await.unwrap();
    let error = reader.read_at(&query, &mut vec![0; KIB], MIB as u64).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(error.to_string().contains("removed since"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_broken_body_is_resumed_where_it_stopped() {
    let bench = Bench::new(Scripted::new());
    let data = pattern(2 * MIB);
    bench.store.place("a.csv", data.clone()).await;
    let query = bench.query();
    let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
    bench.store.take_calls();
    bench.store.fail("get", Fault::CutBody(1000));
    bench.store.fail("get", Fault::CutBody(0));
    bench.store.fail("get", Fault::Cut);
    assert_eq!(read(&reader, &query, MIB, MIB).await, &data[MIB..]);
    assert_eq!(
        bench.store.take_calls(),
        [
            "get a.csv 1048576..2097152",
            "get a.csv 1049576..2097152",
            "get a.csv 1049576..2097152",
            "get a.csv 1049576..2097152",
        ]
    );
    assert_eq!(query.metrics().get(Metric::Retries), 3);
}

#[tokio::test(start_paused = true)]
async fn an_object_replaced_between_break_and_resume_is_not_mixed() {
    let bench = Bench::new(Scripted::new());
    bench.store.place("a.csv", pattern(2 * MIB)).await;
    let query = bench.query();
    let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
    bench.store.fail("get", Fault::CutBody(1000));
    let gate = bench.store.hold("get");
    gate.add_permits(1);
    let mut buf = vec![0; MIB];
    let replaced = async {
        // The first answer is on its way; the second waits at the gate.
        while bench.store.calls.lock().unwrap().len() < 3 {
            tokio::task::yield_now().await;
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        bench.store.place("a.csv", vec![7; 2 * MIB]).await;
        gate.add_permits(1);
    };
    let (result, ()) = tokio::join!(reader.read_at(&query, &mut buf, MIB as u64), replaced);
    assert_eq!(result.unwrap_err().kind(), Kind::Conflict);
}

#[tokio::test(start_paused = true)]
async fn throttling_for_ten_seconds_only_slows() {
    let bench = Bench::new(Scripted::new());
    bench.store.place("a.parquet", pattern(KIB)).await;
    for _ in 0..7 {
        bench.store.fail("get", Fault::Throttle);
    }
    let began = tokio::time::Instant::now();
    bench.query().open(&bench.at("a.parquet"), &Known::NOTHING).await.unwrap();
    assert!(began.elapsed() > Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn throttling_past_the_deadline_tells_attempts_and_time() {
    let bench = Bench::with(Scripted::new(), &[("request_deadline_ms", "20000")]);
    bench.store.place("a.parquet", pattern(KIB)).await;
    for _ in 0..1000 {
        bench.store.fail("get", Fault::Throttle);
    }
    let began = tokio::time::Instant::now();
    let error = bench.query().open(&bench.at("a.parquet"), &Known::NOTHING).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Throttled);
    assert!(error.to_string().contains("gave up after "), "{error}");
    assert!(began.elapsed() <= Duration::from_secs(20), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_ends_at_the_deadline() {
    let bench = Bench::with(Scripted::new(), &[("request_deadline_ms", "20000")]);
    bench.store.place("a.parquet", pattern(KIB)).await;
    bench.store.fail("get", Fault::Hang);
    let error = bench.query().open(&bench.at("a.parquet"), &Known::NOTHING).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.to_string().contains("request_deadline_ms"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_told_at_once() {
    let bench = Bench::new(Scripted::new());
    bench.store.fail("get", Fault::Deny);
    let began = tokio::time::Instant::now();
    let error = bench.query().open(&bench.at("a"), &Known::NOTHING).await.unwrap_err();
    assert_eq!((error.kind(), began.elapsed()), (Kind::Denied, Duration::ZERO));
    assert_eq!(bench.store.take_calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn cancelling_ends_a_read_at_once() {
    let bench = Bench::new(Scripted::new());
    bench.store.place("a.csv", pattern(2 * MIB)).await;
    let query = bench.query();
    let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
    bench.store.fail("get", Fault::Hang);
    let mut buf = vec![0; KIB];
    let cancel = async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        query.cancel();
    };
    let (result, ()) = tokio::join!(reader.read_at(&query, &mut buf, MIB as u64), cancel);
    assert_eq!(result.unwrap_err().kind(), Kind::Cancelled);
    let later = query.open(&bench.at("b"), &Known::NOTHING).await.unwrap_err();
    assert_eq!(later.kind(), Kind::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_read_past_the_end_is_refused_without_a_request() {
    let bench = Bench::new(Scripted::new());
    bench.store.place("a.csv", pattern(KIB)).await;
    let query = bench.query();
    let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
    bench.store.take_calls();
    let error = reader.read_at(&query, &mut [0; 2], KIB as u64 - 1).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(bench.store.take_calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_very_large_read_is_split_and_arrives_in_order() {
    let bench = Bench::new(Scripted::new());
    let data = pattern(40 * MIB);
    bench.store.place("a.csv", data.clone()).await;
    let query = bench.query();
    let meta = ObjectMeta { size_bytes: Some(data.len() as u64), ..Default::default() };
    let known = Known { meta, ..Known::default() };
    let reader = query.open(&bench.at("a.csv"), &known).await.unwrap();
    bench.store.take_calls();
    assert!(read(&reader, &query, 0, data.len()).await == data);
    assert_eq!(bench.store.take_calls().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn empty_object_opens_and_reads() {
    let bench = Bench::new(Scripted::new());
    bench.store.place("e.parquet", Vec::new()).await;
    let query = bench.query();
    let reader = query.open(&bench.at("e.parquet"), &Known::NOTHING).await.unwrap();
    assert_eq!(reader.size_bytes(), 0);
    reader.read_at(&query, &mut [], 0).await.unwrap();
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

#[tokio::test(start_paused = true)]
async fn a_server_without_ranges_is_read_once_and_whole() {
    let mut store = Scripted::new();
    (store.capabilities.list, store.capabilities.list_etag) = (false, false);
    store.ranges_ignored = true;
    let bench = Bench::with(store, &[("memory_limit_bytes", "64MiB")]);
    let data = pattern(2 * MIB);
    bench.store.place("a.parquet", data.clone()).await;
    let query = bench.query();
    let reader = query.open(&bench.at("a.parquet"), &Known::NOTHING).await.unwrap();
    assert_eq!(read(&reader, &query, MIB, KIB).await, &data[MIB..MIB + KIB]);
    let again = query.open(&bench.at("a.parquet"), &Known::NOTHING).await.unwrap();
    assert!(read(&again, &query, 0, data.len()).await == data);
    assert_eq!(bench.store.take_calls(), ["get a.parquet -262144", "get a.parquet all"]);
    bench.store.place("b.parquet", vec![1; 65 * MIB]).await;
    let error = query.open(&bench.at("b.parquet"), &Known::NOTHING).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Exhausted);
    assert!(error.to_string().contains("does not serve ranges"), "{error}");
}

/// A gateway's client that stops reading for an hour is no failure of the store.
#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_its_time_may_still_resume() {
    let bench = Bench::new(Scripted::new());
    let data = pattern(MIB);
    bench.store.place("a.bin", data.clone()).await;
    let query = bench.query();
    bench.store.fail("get", Fault::CutBody(1000));
    let request = GetRequest { range: GetRange::All, if_match: None };
    let mut stream = query.get(&bench.at("a.bin"), request).await.unwrap();
    let mut all = vec![0; MIB];
    let first = stream.read(&mut all).await.unwrap();
    assert_eq!(first, 1000);
    tokio::time::advance(Duration::from_secs(3600)).await;
    let mut filled = first;
    while filled < MIB {
        filled += stream.read(&mut all[filled..]).await.unwrap();
    }
    assert!(all == data);
    assert_eq!(stream.read(&mut all).await.unwrap(), 0);
}

//! Opening and reading: request counts, what is remembered, which version is read.

use crate::support::{Bench, Fault, Scripted, pattern, read};
use penstock_base::{Kind, Metric};
use penstock_engine::Known;
use penstock_store::ObjectMeta;
use std::sync::atomic::Ordering;
use std::time::Duration;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

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
    let mut store = Scripted::remote(Duration::from_millis(30));
    store.profile.connection_bytes_per_s = 90e6;
    let bench = Bench::new(store);
    let data = pattern(40 * MIB);
    bench.store.place("a.csv", data.clone()).await;
    let query = bench.query();
    let meta = ObjectMeta { size_bytes: Some(data.len() as u64), ..Default::default() };
    let known = Known { meta, ..Known::default() };
    let reader = query.open(&bench.at("a.csv"), &known).await.unwrap();
    bench.store.take_calls();
    assert!(read(&reader, &query, 0, data.len()).await == data);
    assert_eq!(bench.store.take_calls().len(), 3);
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
async fn a_server_without_ranges_is_read_once_and_whole() {
    let mut store = Scripted::new();
    (store.capabilities.list, store.capabilities.list_etag) = (false, false);
    store.ranges_ignored = true.into();
    let bench = Bench::with(store, &[("memory_limit_bytes", "64MiB")]);
    let data = pattern(2 * MIB);
    bench.store.place("a.parquet", data.clone()).await;
    let query = bench.query();
    let reader = query.open(&bench.at("a.parquet"), &Known::NOTHING).await.unwrap();
    assert_eq!(read(&reader, &query, MIB, KIB).await, &data[MIB..MIB + KIB]);
    let again = query.open(&bench.at("a.parquet"), &Known::NOTHING).await.unwrap();
    assert!(read(&again, &query, 0, data.len()).await == data);
    assert_eq!(bench.store.take_calls(), ["get a.parquet -262144"], "one body");
    bench.store.place("b.parquet", vec![1; 65 * MIB]).await;
    let error = query.open(&bench.at("b.parquet"), &Known::NOTHING).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Exhausted);
    assert!(error.to_string().contains("does not serve ranges"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn whole_objects_share_the_memory_limit_and_are_given_back_with_their_readers() {
    for endless in [false, true] {
        let mut store = Scripted::new();
        (store.endless, store.ranges_ignored) = (endless, true.into());
        (store.capabilities.list, store.capabilities.list_etag) = (false, false);
        let bench = Bench::with(store, &[("memory_limit_bytes", "64MiB")]);
        let held = || bench.engine.budget().held_bytes();
        let data = pattern(25 * MIB);
        for key in ["a.csv", "b.csv", "c.csv", "d.csv"] {
            bench.store.place(key, data.clone()).await;
        }
        let query = bench.query();
        let open = async |key: &str| query.open(&bench.at(key), &Known::NOTHING).await;
        let readers = [open("a.csv").await.unwrap(), open("b.csv").await.unwrap()];
        assert_eq!(held(), 50 << 20);
        let error = open("c.csv").await.unwrap_err();
        assert_eq!(error.kind(), Kind::Exhausted);
        assert!(
            error.to_string().contains("what is free of penstock_memory_limit_bytes"),
            "{error}"
        );
        assert_eq!(held(), 50 << 20, "what was refused is given back");
        drop(readers);
        // The statement has many such files, one after the other.
        for key in ["c.csv", "d.csv", "a.csv"] {
            let reader = open(key).await.unwrap();
            assert!(read(&reader, &query, 24 * MIB, MIB).await == data[24 * MIB..]);
        }
        // Fetched again, it has to be the version that this query saw.
        bench.store.place("b.csv", vec![1; 25 * MIB]).await;
        assert_eq!(open("b.csv").await.unwrap_err().kind(), Kind::Conflict);
        assert_eq!(held(), 0);
    }
}

/// A page that differs in every answer is one for a query that opens it again and again.
#[tokio::test(start_paused = true)]
async fn a_small_whole_object_stays_with_its_query() {
    let mut store = Scripted::new();
    (store.endless, store.ranges_ignored) = (true, true.into());
    (store.capabilities.list, store.capabilities.list_etag) = (false, false);
    let bench = Bench::with(store, &[("memory_limit_bytes", "64MiB")]);
    let data = pattern(MIB);
    bench.store.place("page.json", data.clone()).await;
    let query = bench.query();
    let open = async || query.open(&bench.at("page.json"), &Known::NOTHING).await.unwrap();
    drop(open().await);
    drop(open().await);
    bench.store.place("page.json", vec![1; MIB + 1]).await;
    assert!(read(&open().await, &query, 0, MIB).await == data);
    assert_eq!(bench.engine.budget().held_bytes(), 1 << 20);
    drop(query);
    assert_eq!(bench.engine.budget().held_bytes(), 0);
}

/// A plain HTTP server without ranges, seen by statements that keep what they read as `settings`
/// say.
fn without_ranges(settings: &[(&str, &str)]) -> Bench {
    let mut store = Scripted::new();
    (store.capabilities.list, store.capabilities.list_etag) = (false, false);
    store.ranges_ignored = true.into();
    Bench::with(store, settings)
}

/// Reads `a.parquet` in a statement of its own, from its end to its begin.
async fn read_anew(bench: &Bench, known: &Known) -> Vec<u8> {
    let query = bench.query();
    let reader = query.open(&bench.at("a.parquet"), known).await.unwrap();
    let half = reader.size_bytes() as usize / 2;
    let rest = read(&reader, &query, half, reader.size_bytes() as usize - half).await;
    let again = query.open(&bench.at("a.parquet"), known).await.unwrap();
    [read(&again, &query, 0, half).await, rest].concat()
}

#[tokio::test(start_paused = true)]
async fn what_came_whole_does_not_come_again_where_a_cache_has_it() {
    const WHOLE: [&str; 1] = ["get a.parquet -262144"];
    let cached = ("cache_memory_bytes", "8MiB");
    for (policy, expected) in [("query", vec!["stat a.parquet"]), ("time", vec![])] {
        let bench = without_ranges(&[cached, ("cache_validation", policy)]);
        let data = pattern(3 * MIB + 7);
        bench.store.place("a.parquet", data.clone()).await;
        assert!(read_anew(&bench, &Known::NOTHING).await == data);
        assert_eq!(bench.store.take_calls(), WHOLE, "{policy}");
        for _ in 0..2 {
            assert!(read_anew(&bench, &Known::NOTHING).await == data);
            assert_eq!(bench.store.take_calls(), expected, "{policy}");
        }
        // Another version is seen when the policy says so, and then fetched.
        tokio::time::sleep(Duration::from_secs(6)).await;
        let data = pattern(3 * MIB + 8);
        bench.store.place("a.parquet", data.clone()).await;
        assert!(read_anew(&bench, &Known::NOTHING).await == data);
        assert_eq!(bench.store.take_calls(), [&["stat a.parquet"], &WHOLE[..]].concat());
        // What the cache lost comes again, whole.
        bench.engine.query(bench.engine.settings().clone(), None).clear_cache().unwrap();
        assert!(read_anew(&bench, &Known::NOTHING).await == data);
        assert_eq!(bench.store.take_calls(), WHOLE, "{policy}");
    }
}

/// A HEAD that tells the size only is of any version of that size.
#[tokio::test(start_paused = true)]
async fn what_came_whole_is_not_kept_on_the_word_of_its_size() {
    let mut store = Scripted::new();
    (store.capabilities.list, store.capabilities.list_etag) = (false, false);
    store.ranges_ignored = true.into();
    store.bare_heads = true;
    let bench =
        Bench::with(store, &[("cache_memory_bytes", "8MiB"), ("cache_validation", "query")]);
    for first in [1, 2] {
        let data = vec![first; 2 * MIB];
        bench.store.place("a.parquet", data.clone()).await;
        assert!(read_anew(&bench, &Known::NOTHING).await == data, "{first}");
    }
}

/// Nor is it lost with a HEAD that is refused.
#[tokio::test(start_paused = true)]
async fn what_came_whole_needs_no_head() {
    let bench = without_ranges(&[("cache_memory_bytes", "8MiB"), ("cache_validation", "query")]);
    let data = pattern(2 * MIB);
    bench.store.place("a.parquet", data.clone()).await;
    assert!(read_anew(&bench, &Known::NOTHING).await == data);
    bench.store.fail("stat", Fault::Deny);
    assert!(read_anew(&bench, &Known::NOTHING).await == data);
}

/// A cache on the way may send all of it once, and ranges from then on.
#[tokio::test(start_paused = true)]
async fn what_came_whole_once_is_served_by_ranges_later() {
    let bench = without_ranges(&[("cache_validation", "query")]);
    let data = pattern(3 * MIB);
    bench.store.place("a.parquet", data.clone()).await;
    let kept = Known { host_keeps: true, ..Known::NOTHING };
    assert!(read_anew(&bench, &kept).await == data);
    bench.store.ranges_ignored.store(false, Ordering::Relaxed);
    assert!(read_anew(&bench, &kept).await == data);
    bench.store.take_calls();
    let query = bench.query();
    let reader = query.open(&bench.at("a.parquet"), &kept).await.unwrap();
    assert!(read(&reader, &query, 0, MIB).await == data[..MIB]);
    let calls = bench.store.take_calls();
    assert!(
        !calls.iter().any(|call| call.ends_with(" all") || call.ends_with(" 0..")),
        "{calls:?}"
    );
}

/// Front to back in large steps: what follows is here, and not asked for ahead.
#[tokio::test(start_paused = true)]
async fn of_what_came_whole_nothing_is_asked_for_ahead() {
    let mut store = Scripted::remote(Duration::from_millis(50));
    (store.capabilities.list, store.capabilities.list_etag) = (false, false);
    store.ranges_ignored = true.into();
    let bench = Bench::new(store);
    let data = pattern(6 * MIB + 5);
    bench.store.place("a.parquet", data.clone()).await;
    let query = bench.query();
    let reader = query.open(&bench.at("a.parquet"), &Known::NOTHING).await.unwrap();
    bench.store.take_calls();
    for start in (0..6 * MIB).step_by(2 * MIB) {
        assert!(read(&reader, &query, start, 2 * MIB).await == data[start..start + 2 * MIB]);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(bench.store.take_calls(), Vec::<String>::new());
}

/// DuckDB keeps what it reads of Parquet files, and may have forgotten it.
#[tokio::test(start_paused = true)]
async fn what_came_whole_and_the_host_keeps_comes_again_when_it_is_read() {
    let bench = without_ranges(&[("cache_validation", "query")]);
    let data = pattern(3 * MIB);
    bench.store.place("a.parquet", data.clone()).await;
    let kept = Known { host_keeps: true, ..Known::NOTHING };
    assert!(read_anew(&bench, &kept).await == data);
    bench.store.take_calls();
    let query = bench.query();
    let reader = query.open(&bench.at("a.parquet"), &kept).await.unwrap();
    assert_eq!(reader.size_bytes(), 3 << 20);
    assert_eq!(bench.store.take_calls(), ["stat a.parquet"], "nothing was read of it");
    assert!(read(&reader, &query, 5, MIB).await == data[5..MIB + 5]);
    assert!(read(&reader, &query, MIB, MIB).await == data[MIB..2 * MIB]);
    assert_eq!(bench.store.take_calls(), ["get a.parquet 0.."], "it may serve ranges by now");
    drop((reader, query));
    // It has to be the version that was opened.
    let query = bench.query();
    let reader = query.open(&bench.at("a.parquet"), &kept).await.unwrap();
    bench.store.place("a.parquet", pattern(3 * MIB + 1)).await;
    let error = reader.read_at(&query, &mut [0; 9], 0).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    drop((reader, query));
    assert_eq!(bench.engine.budget().held_bytes(), 0);
}

/// A catalog that tells nonsense does not have an object fetched whole.
#[tokio::test(start_paused = true)]
async fn the_footer_that_a_catalog_tells_of_is_fetched_up_to_a_bound() {
    let bench = Bench::new(Scripted::new());
    bench.store.place("a.parquet", pattern(10 * MIB)).await;
    let known = Known { footer_size_bytes: Some(u64::MAX), ..Known::default() };
    bench.query().open(&bench.at("a.parquet"), &known).await.unwrap();
    assert_eq!(bench.store.take_calls(), [format!("get a.parquet -{}", 8 * MIB + 8)]);
}

//! Servers whose HEAD tells of another version than their GET.

use crate::support::{Bench, Scripted, pattern, read};
use penstock_base::{Kind, Result};
use penstock_engine::Known;
use penstock_store::{ETag, ObjectMeta};
use std::time::{Duration, SystemTime};

const BYTES: usize = 300_000;

/// What HEAD tells otherwise.
type Change = fn(&mut ObjectMeta);

const OTHERS: [(&str, Change); 4] = [
    ("tag", |meta| meta.etag = Some(ETag("another".into()))),
    ("size", |meta| meta.size_bytes = Some(7)),
    ("weak tag", |meta| meta.etag = Some(ETag("W/\"another\"".into()))),
    ("time", |meta| {
        meta.etag = None;
        meta.modified = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(9));
    }),
];

fn scripted(other: Change) -> Scripted {
    let mut store = Scripted::new();
    store.other_heads = Some(other);
    store
}

/// An engine that has each query ask for the version, and has the bytes in memory.
fn bench(other: Change) -> Bench {
    Bench::with(scripted(other), &[("cache_validation", "query"), ("cache_memory_bytes", "8MiB")])
}

async fn read_all(bench: &Bench, len: usize) -> Result<Vec<u8>> {
    let query = bench.query();
    let reader = query.open(&bench.at("a.bin"), &Known::NOTHING).await?;
    let mut bytes = vec![0; len];
    reader.read_at(&query, &mut bytes, 0).await?;
    Ok(bytes)
}

#[tokio::test(start_paused = true)]
async fn a_head_unlike_get_fails_no_query_and_is_asked_once() {
    for (what, other) in OTHERS {
        let bench = bench(other);
        let data = pattern(BYTES);
        bench.store.place("a.bin", data.clone()).await;
        for round in 0..4 {
            assert!(read_all(&bench, BYTES).await.unwrap() == data, "{what} {round}");
            let calls = bench.store.take_calls();
            let heads = calls.iter().filter(|call| call.starts_with("stat")).count();
            assert_eq!(heads, usize::from(round == 1), "{what} {round}: {calls:?}");
        }
        let meta = bench.query().stat(&bench.at("a.bin")).await.unwrap();
        assert_eq!(meta.size_bytes, Some(BYTES as u64), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_is_noticed_whether_head_is_believed_or_not() {
    for (what, other) in OTHERS.into_iter().chain([("nothing", (|_| ()) as Change)]) {
        let bench = bench(other);
        for round in 0..4 {
            let data = pattern(BYTES + round);
            bench.store.place("a.bin", data.clone()).await;
            assert!(read_all(&bench, data.len()).await.unwrap() == data, "{what} {round}");
            assert!(read_all(&bench, data.len()).await.unwrap() == data, "{what} {round}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_costs_one_request_beside_the_head() {
    let bench = bench(|_| ());
    bench.store.place("a.bin", pattern(BYTES)).await;
    read_all(&bench, 1000).await.unwrap();
    let data: Vec<u8> = pattern(BYTES).iter().rev().copied().collect();
    bench.store.place("a.bin", data.clone()).await;
    bench.store.take_calls();
    assert!(read_all(&bench, 1000).await.unwrap() == data[..1000]);
    assert_eq!(bench.store.take_calls(), ["stat a.bin", "get a.bin 0..262144"]);
    assert!(read_all(&bench, 1000).await.unwrap() == data[..1000]);
    assert_eq!(bench.store.take_calls(), ["stat a.bin"], "HEAD is believed still");
}

/// Nothing is known then with which HEAD could be compared, before the first bytes come.
#[tokio::test(start_paused = true)]
async fn a_head_that_came_first_fails_one_query_at_most_and_the_error_blames_no_change() {
    for (what, other) in OTHERS.into_iter().filter(|(what, _)| what.contains("tag")) {
        let settings = [("cache_validation", "query"), ("open_fetch_bytes", "0")];
        let bench = Bench::with(scripted(other), &settings);
        let data = pattern(BYTES);
        bench.store.place("a.bin", data.clone()).await;
        let error = read_all(&bench, BYTES).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Conflict, "{what}");
        assert!(error.to_string().contains("HEAD and GET"), "{what}: {error}");
        for _ in 0..2 {
            assert!(read_all(&bench, BYTES).await.unwrap() == data, "{what}");
        }
        let query = bench.query();
        let reader = query.open(&bench.at("a.bin"), &Known::NOTHING).await.unwrap();
        bench.store.place("a.bin", pattern(BYTES + 1)).await;
        let mut rest = vec![0; 1000];
        let error = reader.read_at(&query, &mut rest, 0).await.unwrap_err();
        assert!(error.to_string().contains("changed"), "{what}: {error}");
        read(&bench.query().open(&bench.at("a.bin"), &Known::NOTHING).await.unwrap(), &query, 0, 9)
            .await;
    }
}

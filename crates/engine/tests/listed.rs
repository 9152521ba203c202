//! What a listing told is not asked for again in the statement that listed it.

use crate::support::{Bench, Scripted, pattern, read};
use penstock_base::{Metric, Settings};
use penstock_engine::{Engine, Known, Query};
use penstock_testkit::scratch::Scratch;
use std::time::Duration;

const FILES: usize = 60;

async fn bench(policy: &[(&str, &str)]) -> Bench {
    let bench = Bench::with(Scripted::new(), policy);
    for number in 0..FILES {
        bench.store.place(&format!("t/{number:02}.bin"), pattern(100)).await;
    }
    bench
}

/// Every policy under which an answer counts for its statement.
const POLICIES: [&[(&str, &str)]; 4] = [
    &[("cache_validation", "time")],
    &[("cache_validation", "time"), ("metadata_validity_ms", "0")],
    &[("cache_validation", "query")],
    &[("cache_validation", "never")],
];

/// A statement that has listed its files, a while after it began.
async fn listed(bench: &Bench) -> (Query, Vec<(String, Known)>) {
    let query = bench.query();
    tokio::time::advance(Duration::from_millis(1)).await;
    let found = query.glob(&bench.at("t/*.bin")).await.unwrap();
    assert_eq!(found.len(), FILES);
    assert_eq!(bench.store.take_calls().len(), 1);
    // Longer than what is remembered counts for others.
    tokio::time::advance(Duration::from_secs(10)).await;
    let known = |entry: penstock_engine::Entry| {
        let known = Known { meta: entry.meta, listed: Some(entry.listed), ..Known::default() };
        (entry.key, known)
    };
    (query, found.into_iter().map(known).collect())
}

#[tokio::test(start_paused = true)]
async fn size_and_time_of_what_was_listed_cost_no_request() {
    for policy in POLICIES {
        let bench = bench(policy).await;
        let (query, found) = listed(&bench).await;
        for (key, known) in &found {
            let reader = query.open(&bench.at(key), known).await.unwrap();
            assert_eq!(reader.size_bytes(), 100);
            assert!(reader.meta().modified.is_some() && reader.meta().etag.is_some());
            // Whoever has only the name asks the same engine.
            assert!(query.exists(&bench.at(key)).await.unwrap());
            assert_eq!(query.stat(&bench.at(key)).await.unwrap().size_bytes, Some(100));
            query.open(&bench.at(key), &Known::NOTHING).await.unwrap();
            // What is fetched ahead would be sent now.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(bench.store.take_calls(), [""; 0], "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn names_of_what_was_listed_cost_no_request() {
    for policy in POLICIES {
        let bench = bench(policy).await;
        let (query, found) = listed(&bench).await;
        for (key, _) in &found {
            assert!(query.exists(&bench.at(key)).await.unwrap());
        }
        assert_eq!(bench.store.take_calls(), [""; 0], "{policy:?}");
    }
    // Whoever asks always, asks.
    let bench = bench(&[("cache_validation", "always")]).await;
    let (query, found) = listed(&bench).await;
    assert!(query.exists(&bench.at(&found[0].0)).await.unwrap());
    assert_eq!(bench.store.take_calls(), ["stat t/00.bin"]);
}

#[tokio::test(start_paused = true)]
async fn the_listing_of_a_statement_that_is_over_counts_as_the_policy_says() {
    for (policy, asks) in POLICIES.into_iter().zip([true, true, true, false]) {
        let bench = bench(policy).await;
        let (query, found) = listed(&bench).await;
        drop(query);
        let next = bench.query();
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(next.exists(&bench.at(&found[0].0)).await.unwrap());
        assert_eq!(!bench.store.take_calls().is_empty(), asks, "{policy:?}");
    }
}

/// What a listing tells never mixes versions: the read is pinned to its tag.
#[tokio::test(start_paused = true)]
async fn an_object_that_was_replaced_since_its_listing_is_a_conflict() {
    for policy in POLICIES {
        let bench = bench(policy).await;
        let (query, found) = listed(&bench).await;
        bench.store.place("t/00.bin", pattern(300)).await;
        bench.store.take_calls();
        let (key, known) = &found[0];
        let reader = query.open(&bench.at(key), known).await.unwrap();
        let mut bytes = vec![0; 100];
        let error = reader.read_at(&query, &mut bytes, 0).await.unwrap_err();
        assert_eq!(error.kind(), penstock_base::Kind::Conflict, "{error}");
    }
}

/// The first read tells that bytes are wanted: from then on files are opened ahead as ever.
#[tokio::test(start_paused = true)]
async fn the_first_read_begins_what_follows() {
    let bench = bench(POLICIES[0]).await;
    let (query, found) = listed(&bench).await;
    let (key, known) = &found[0];
    let reader = query.open(&bench.at(key), known).await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(bench.store.take_calls(), [""; 0]);
    read(&reader, &query, 0, 100).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(bench.store.take_calls().len(), 16, "this one and those of the first step");
}

/// A directory of this machine tells in its listing what its files tell, too.
#[tokio::test]
async fn files_of_a_directory_are_known_from_its_listing() {
    let scratch = Scratch::new("listed");
    for number in 0..20 {
        std::fs::write(scratch.path().join(format!("{number:02}.bin")), pattern(100)).unwrap();
    }
    let engine = Engine::new(Settings::default()).unwrap();
    let query = engine.query(engine.settings().clone(), None);
    let pattern = format!("{}/*.bin", scratch.path().display());
    let found = query.glob(&query.locate(&pattern, &[]).unwrap()).await.unwrap();
    assert_eq!(found.len(), 20);
    for entry in found {
        let at = query.locate(&entry.url, &[]).unwrap();
        let known = Known { meta: entry.meta, listed: Some(entry.listed), ..Known::default() };
        let reader = query.open(&at, &known).await.unwrap();
        assert_eq!((reader.size_bytes(), reader.meta().modified.is_some()), (100, true));
        assert!(query.exists(&at).await.unwrap());
    }
    assert_eq!(query.metrics().get(Metric::MetadataMisses), 0);
}

//! Listings that are kept: for how long they count, what ends them, and who shares them, all by the
//! requests that the store saw.

use crate::support::{Bench, Fault, Scripted};
use bytes::Bytes;
use penstock_base::{Kind, Metric};
use penstock_engine::{Engine, Known, Location, Query};
use penstock_store::{PutOptions, Store};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Some directories of some files, a page of a listing being shorter than any of it.
async fn bench(settings: &[(&str, &str)]) -> Bench {
    let mut all = vec![("list_page_size", "7")];
    all.extend(settings);
    let bench = Bench::with(Scripted::new(), &all);
    for number in 0..30 {
        bench.store.place(&format!("t/m={}/a{number}.parquet", number % 3), "x").await;
        bench.store.place(&format!("u/y={number}/m=1/a.parquet"), "x").await;
    }
    bench
}

async fn glob(query: &Query, at: &Location) -> Vec<String> {
    let found = query.glob(at).await.unwrap();
    let whole: Vec<_> = found.into_iter().map(|entry| entry.key).collect();
    let mut pages = query.glob_pages(at).await.unwrap();
    let mut keys = Vec::new();
    while let Some(page) = query.next_page(&mut pages).await.unwrap() {
        keys.extend(page.into_iter().map(|entry| entry.key));
    }
    assert_eq!(keys, whole, "page by page it is the same");
    whole
}

fn kept(engine: &Arc<Engine>) -> Vec<(String, u64)> {
    let query = engine.query(engine.settings().clone(), None);
    let entries = query.cache_entries().unwrap().into_iter();
    let mut kept: Vec<_> = entries
        .filter(|entry| entry.cache == "listing")
        .map(|entry| {
            assert!(entry.cached_bytes > 0);
            (entry.object, entry.blocks)
        })
        .collect();
    kept.sort();
    kept
}

const PATTERNS: [&str; 4] = ["t/m=1/*.parquet", "t/**", "t/m=?/a*", "u/y=*7/m=1/*.parquet"];

/// Somebody may be waiting for it.
#[tokio::test(start_paused = true)]
async fn that_nothing_is_there_is_never_remembered() {
    let bench = bench(&[("cache_validation", "never")]).await;
    let query = bench.query();
    query.glob(&bench.at("t/**")).await.unwrap();
    for (number, pattern) in
        ["n/none/*", "n/other/**", "t/*/none*", "t/*/la[t]e-3", "u/y=*7/m=2/*"].iter().enumerate()
    {
        let at = bench.at(pattern);
        assert!(query.glob(&at).await.unwrap().is_empty());
        bench.store.take_calls();
        assert!(query.glob(&at).await.unwrap().is_empty());
        assert!(!bench.store.take_calls().is_empty(), "{pattern}");
        let key = pattern.replace("**", "*").replace("u/y=*7", "u/y=7").replace("t/*", "t/m=1");
        let key = key.replace("*", &format!("-{number}")).replace("[t]", "t");
        bench.store.place(&key, "x").await;
        assert_eq!(query.glob(&at).await.unwrap().len(), 1, "{pattern} finds {key}");
    }
}

#[tokio::test(start_paused = true)]
async fn policies_say_when_a_listing_counts() {
    for (settings, in_one_query, later, much_later) in [
        (("always", "5000", "5000"), false, false, false),
        (("query", "5000", "5000"), true, false, false),
        (("time", "0", "5000"), true, false, false),
        (("auto", "5000", "5000"), true, true, false),
        (("time", "5000", "5000"), true, true, false),
        (("time", "5000", "0"), true, false, false),
        (("never", "0", "0"), true, true, true),
    ] {
        let (policy, object_ms, listing_ms) = settings;
        let bench = bench(&[
            ("cache_validation", policy),
            ("metadata_validity_ms", object_ms),
            ("listing_validity_ms", listing_ms),
        ])
        .await;
        for pattern in PATTERNS {
            let at = bench.at(pattern);
            let query = bench.query();
            let wanted = query.glob(&at).await.unwrap().len();
            assert!(!bench.store.take_calls().is_empty());
            let is_kept = |at: &str, wanted: bool| {
                let calls = bench.store.take_calls();
                assert_eq!(calls.is_empty(), wanted, "{settings:?} {pattern} {at}: {calls:?}");
            };
            assert_eq!(glob(&query, &at).await.len(), wanted);
            is_kept("in one query", in_one_query);
            tokio::time::advance(Duration::from_millis(4000)).await;
            assert_eq!(bench.query().glob(&at).await.unwrap().len(), wanted);
            is_kept("later", later);
            tokio::time::advance(Duration::from_millis(5001)).await;
            assert_eq!(glob(&bench.query(), &at).await.len(), wanted);
            is_kept("much later", much_later);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_is_seen_counted_and_cleared() {
    let bench = bench(&[("cache_validation", "never")]).await;
    let query = bench.query();
    query.glob(&bench.at("t/m=1/*.parquet")).await.unwrap();
    query.list(&bench.at("t")).await.unwrap();
    let two = [
        ("https://far.example/t/t/".to_string(), 1),
        ("https://far.example/t/t/m=1/".to_string(), 2),
    ];
    assert_eq!(kept(&bench.engine), two);
    bench.store.take_calls();
    // An entry of a listing says when the store told it, not when it was read again.
    let first = query.list(&bench.at("t")).await.unwrap();
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(bench.query().list(&bench.at("t")).await.unwrap(), first);
    assert_eq!(bench.engine.metrics().get(Metric::ListingHits), 2);
    assert!(bench.store.take_calls().is_empty());
    bench.query().clear_cache().unwrap();
    assert!(kept(&bench.engine).is_empty());
    query.list(&bench.at("t")).await.unwrap();
    assert_eq!(bench.store.take_calls(), ["list t/"]);
}

#[tokio::test(start_paused = true)]
async fn other_credentials_see_their_own() {
    let bench = bench(&[("cache_validation", "never")]).await;
    bench.query().list(&bench.at("t")).await.unwrap();
    bench.store.take_calls();
    let options = [("key_id".to_string(), "another".to_string())];
    let theirs = bench.engine.locate("mem://t/t", &options).unwrap();
    bench.query().list(&theirs).await.unwrap();
    assert_eq!(bench.store.take_calls(), ["list t/"]);
    // But a change counts for all who see the place.
    bench.query().remove(&[theirs.sibling("t/m=1/a1.parquet")]).await.unwrap();
    bench.store.take_calls();
    for at in [bench.at("t"), theirs] {
        bench.query().list(&at).await.unwrap();
        assert_eq!(bench.store.take_calls(), ["list t/"]);
    }
}

#[tokio::test(start_paused = true)]
async fn every_own_change_ends_the_listings_that_may_tell_of_it() {
    let options = PutOptions::default();
    for change in ["put", "write", "remove", "remove many", "delete", "copy", "rename", "directory"]
    {
        let bench = bench(&[("cache_validation", "never")]).await;
        let other = bench.at("u/y=17/**");
        let all = ["t/**", "t/m=1/*", "t/m=?/a*", "**"].map(|pattern| bench.at(pattern));
        let query = bench.query();
        for at in all.iter().chain([&other]) {
            query.glob(at).await.unwrap();
        }
        let (new, old) = (bench.at("t/m=1/new"), bench.at("t/m=1/a1.parquet"));
        let older = bench.at("t/m=1/a4.parquet");
        match change {
            "put" => drop(query.put(&new, Bytes::from("x").into(), &options).await.unwrap()),
            "copy" => drop(query.copy(&old, &new, options.clone()).await.unwrap()),
            "rename" => query.rename(&old, &new).await.unwrap(),
            "remove" => query.remove(&[old]).await.unwrap(),
            "remove many" => query.remove(&[old, older]).await.unwrap(),
            "delete" => query.delete(&old, None).await.unwrap(),
            "directory" => query.remove_directory(&bench.at("t/m=1")).await.unwrap(),
            _ => {
                let mut writer = query.create(&new, options.clone()).unwrap();
                writer.write(b"x").await.unwrap();
                writer.finish().await.unwrap();
            }
        }
        bench.store.take_calls();
        let count = 30
            + match change {
                "put" | "write" | "copy" => 1,
                "remove" | "delete" => -1,
                "remove many" => -2,
                "directory" => -10,
                _ => 0,
            };
        for (at, of_u) in all.iter().zip([0, 0, 0, 30]) {
            let found = query.glob(at).await.unwrap().len();
            assert!(!bench.store.take_calls().is_empty(), "{change}: {}", at.url());
            if of_u > 0 || at.key() == "t/**" {
                assert_eq!(found as i64, count + of_u, "{change}: {}", at.url());
            }
        }
        query.glob(&other).await.unwrap();
        assert!(bench.store.take_calls().is_empty(), "{change}: elsewhere nothing changed");
    }
}

/// A change whose answer was lost, or that nobody waits for any more, may have happened.
#[tokio::test(start_paused = true)]
async fn a_change_of_which_nothing_was_heard_ends_them_too() {
    let bench = bench(&[("cache_validation", "never")]).await;
    let (at, new) = (bench.at("t/m=1/*"), bench.at("t/m=1/new"));
    let query = bench.query();
    query.glob(&at).await.unwrap();
    bench.store.fail("put", Fault::LoseAnswer);
    bench.store.fail("put", Fault::Deny);
    let options = PutOptions::default();
    query.put(&new, Bytes::from("x").into(), &options).await.unwrap_err();
    assert_eq!(query.glob(&at).await.unwrap().len(), 11);
    let newer = bench.at("t/m=1/newer");
    bench.store.fail("put", Fault::Delay(Arc::new(Semaphore::new(0))));
    let put = query.put(&newer, Bytes::from("x").into(), &options);
    assert!(tokio::time::timeout(Duration::from_secs(1), put).await.is_err());
    assert_eq!(query.glob(&at).await.unwrap().len(), 12);
}

#[tokio::test(start_paused = true)]
async fn a_listing_under_way_while_its_objects_change_is_not_kept() {
    let bench = bench(&[("cache_validation", "never")]).await;
    let at = bench.at("t/m=1/*");
    let gate = bench.store.hold("list");
    let query = Arc::new(bench.query());
    let listing = tokio::spawn({
        let (query, at) = (Arc::clone(&query), at.clone());
        async move { query.glob(&at).await.unwrap().len() }
    });
    settle().await;
    query
        .put(&bench.at("t/m=1/new"), Bytes::from("x").into(), &PutOptions::default())
        .await
        .unwrap();
    // One that is asked for now must not join it.
    let calls = bench.store.take_calls().len();
    let second = tokio::spawn({
        let (query, at) = (Arc::clone(&query), at.clone());
        async move { query.glob(&at).await.unwrap().len() }
    });
    settle().await;
    assert_eq!((calls, bench.store.take_calls().len()), (2, 1));
    gate.add_permits(100);
    listing.await.unwrap();
    assert_eq!(second.await.unwrap(), 11);
    bench.store.take_calls();
    assert_eq!(query.glob(&at).await.unwrap().len(), 11);
    assert!(bench.store.take_calls().is_empty(), "the second is kept");
}

async fn settle() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_ask_for_the_same_at_once_share_its_requests() {
    let bench = bench(&[("cache_validation", "time"), ("listing_validity_ms", "5000")]).await;
    for pattern in PATTERNS {
        let alone = bench.query();
        bench.query().clear_cache().unwrap();
        let wanted = alone.glob(&bench.at(pattern)).await.unwrap().len();
        let calls = bench.store.take_calls();
        bench.query().clear_cache().unwrap();
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let (query, at) = (bench.query(), bench.at(pattern));
                tokio::spawn(async move { query.glob(&at).await.unwrap().len() })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.await.unwrap(), wanted);
        }
        assert_eq!(bench.store.take_calls().len(), calls.len(), "{pattern}");
    }
}

/// Who fetches a page for others may be stopped, or told no.
#[tokio::test(start_paused = true)]
async fn what_ends_one_asker_ends_no_other() {
    for failure in ["cancel", "drop", "deny"] {
        let bench = bench(&[("cache_validation", "never")]).await;
        let at = bench.at("t/m=1/*");
        let gate = bench.store.hold("list");
        let first = Arc::new(bench.query());
        let leading = tokio::spawn({
            let (first, at) = (Arc::clone(&first), at.clone());
            async move { first.glob(&at).await }
        });
        settle().await;
        let following: Vec<_> = (0..3)
            .map(|_| {
                let (query, at) = (bench.query(), at.clone());
                tokio::spawn(async move { query.glob(&at).await.unwrap().len() })
            })
            .collect();
        settle().await;
        match failure {
            "cancel" => first.cancel(),
            "drop" => leading.abort(),
            _ => bench.store.fail("list", Fault::Deny),
        }
        settle().await;
        gate.add_permits(100);
        for follower in following {
            assert_eq!(follower.await.unwrap(), 10, "{failure}");
        }
        match leading.await {
            Ok(told) => {
                let wanted = if failure == "deny" { Kind::Denied } else { Kind::Cancelled };
                assert_eq!(told.unwrap_err().kind(), wanted);
            }
            Err(dropped) => assert!(dropped.is_cancelled()),
        }
        // What failed is not kept, and what is kept is whole.
        assert_eq!(bench.query().glob(&at).await.unwrap().len(), 10);
    }
}

#[tokio::test(start_paused = true)]
async fn what_failed_or_was_left_before_its_end_is_not_kept() {
    let bench = bench(&[("cache_validation", "never")]).await;
    let at = bench.at("t/**");
    // The first page, and the two ahead of it.
    let query = bench.query();
    let mut pages = query.glob_pages(&at).await.unwrap();
    query.next_page(&mut pages).await.unwrap().unwrap();
    settle().await;
    drop(pages);
    assert!(kept(&bench.engine).is_empty());
    bench.store.fail("list", Fault::Deny);
    query.glob(&at).await.unwrap_err();
    assert!(kept(&bench.engine).is_empty());
    assert_eq!(query.glob(&at).await.unwrap().len(), 30);
    assert_eq!(kept(&bench.engine), [("https://far.example/t/t/".to_string(), 5)]);
}

#[tokio::test(start_paused = true)]
async fn no_more_is_kept_than_remembered_objects_may_take() {
    for entries in ["0", "10", "200"] {
        let settings = [("cache_validation", "never"), ("metadata_cache_entries", entries)];
        let bench = bench(&settings).await;
        let query = bench.query();
        for pattern in ["t/**", "t/m=0/*", "t/m=1/*", "t/m=2/*", "u/**", "**", "t/none/*"] {
            let count = query.glob(&bench.at(pattern)).await.unwrap().len();
            assert_eq!(query.glob(&bench.at(pattern)).await.unwrap().len(), count);
        }
        let entries: u64 = entries.parse().unwrap();
        let listed: Vec<_> = query.cache_entries().unwrap();
        let bytes: u64 =
            listed.iter().filter(|e| e.cache == "listing").map(|e| e.cached_bytes).sum();
        assert!(bytes <= entries * 256, "{bytes} bytes for {entries}");
        assert_eq!(bytes > 0, entries > 10, "{entries}");
    }
}

/// What will be removed is asked for, whatever is remembered.
#[tokio::test(start_paused = true)]
async fn a_directory_is_removed_as_it_is_now() {
    let bench = bench(&[("cache_validation", "never")]).await;
    let query = bench.query();
    query.glob(&bench.at("t/m=1/**")).await.unwrap();
    bench.store.place("t/m=1/of-another-process", "x").await;
    assert_eq!(query.glob(&bench.at("t/m=1/**")).await.unwrap().len(), 10);
    assert_eq!(query.list_below(&bench.at("t/m=1")).await.unwrap().len(), 11);
    query.remove_directory(&bench.at("t/m=1")).await.unwrap();
    assert!(query.list_below(&bench.at("t/m=1")).await.unwrap().is_empty());
    assert!(query.glob(&bench.at("t/m=1/**")).await.unwrap().is_empty());
}

/// An object that is not there any more was in a listing that does not count any more.
#[tokio::test(start_paused = true)]
async fn an_object_that_is_missing_ends_the_listing_that_told_of_it() {
    let bench = bench(&[("cache_validation", "never")]).await;
    let query = bench.query();
    let found = query.glob(&bench.at("t/m=1/*")).await.unwrap();
    bench.store.memory.delete(&found[0].key, None).await.unwrap();
    let known = Known { meta: found[0].meta.clone(), ..Known::default() };
    let reader = query.open(&bench.at(&found[0].key), &known).await.unwrap();
    let error = reader.read_at(&query, &mut [0], 0).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    assert_eq!(bench.query().glob(&bench.at("t/m=1/*")).await.unwrap().len(), 9);
}

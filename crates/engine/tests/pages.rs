//! Globs page by page: the same names, few requests before the first is used, and no end where a
//! page failed.

use crate::support::{Bench, Fault, Scripted};
use bytes::Bytes;
use penstock_base::{Kind, Result};
use penstock_engine::{GlobPages, Query};
use penstock_store::PutOptions;

const PATTERNS: [&str; 9] = [
    "t/m=1/*.parquet",
    "t/m=?/a*",
    "t/**/a.parquet",
    "**",
    "t/none/*",
    "t/literal.parquet",
    "t/y=*7/a.parquet",
    "odd/br[a]c.csv",
    "odd/no[n]e.csv",
];

/// Each glob asks for its pages.
async fn bench(page_size: &str) -> Bench {
    let settings = [("list_page_size", page_size), ("cache_validation", "always")];
    let bench = Bench::with(Scripted::new(), &settings);
    for number in 0..30 {
        bench.store.place(&format!("t/m={}/a{number}.parquet", number % 4), "x").await;
        bench.store.place(&format!("t/y={number}/a.parquet"), "x").await;
    }
    bench.store.place("odd/br[a]c.csv", "x").await;
    bench
}

async fn rest(query: &Query, pages: &mut GlobPages) -> Result<Vec<String>> {
    let mut keys = Vec::new();
    while let Some(page) = query.next_page(pages).await? {
        assert!(!page.is_empty());
        keys.extend(page.into_iter().map(|entry| entry.key));
    }
    Ok(keys)
}

#[tokio::test(start_paused = true)]
async fn pages_together_are_the_glob() {
    for page_size in ["1", "2", "7", "1000"] {
        let bench = bench(page_size).await;
        for pattern in PATTERNS {
            let query = bench.query();
            let whole = query.glob(&bench.at(pattern)).await.unwrap();
            let whole: Vec<_> = whole.into_iter().map(|entry| entry.key).collect();
            let calls = bench.store.take_calls();
            let query = bench.query();
            let mut pages = query.glob_pages(&bench.at(pattern)).await.unwrap();
            let found = rest(&query, &mut pages).await.unwrap();
            assert_eq!(found, whole, "{pattern} by {page_size}");
            assert_eq!(bench.store.take_calls(), calls, "{pattern} by {page_size}");
            assert!(query.next_page(&mut pages).await.unwrap().is_none());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_nobody_asks_for_is_not_listed() {
    let bench = bench("2").await;
    let query = bench.query();
    let mut pages = query.glob_pages(&bench.at("t/**")).await.unwrap();
    assert!(!pages.is_whole());
    let first = query.next_page(&mut pages).await.unwrap().unwrap();
    assert_eq!(first.len(), 2);
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(bench.store.take_calls().len() <= 4, "the first, two that wait, and no more");
    // A change elsewhere asks for none either.
    query.put(&bench.at("u/new"), Bytes::from("x").into(), &PutOptions::default()).await.unwrap();
    query.remove(&[bench.at("u/new")]).await.unwrap();
    assert_eq!(bench.store.take_calls(), ["put u/new 1", "delete u/new"]);
    assert_eq!(rest(&query, &mut pages).await.unwrap().len(), 58);
    // And nothing is asked for any more once it is dropped.
    let pages = query.glob_pages(&bench.at("t/**")).await.unwrap();
    drop(pages);
    bench.store.take_calls();
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(bench.store.take_calls().len() <= 1);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_failed_is_no_end() {
    let bench = bench("2").await;
    let query = bench.query();
    let mut pages = query.glob_pages(&bench.at("t/**")).await.unwrap();
    bench.store.fail("list", Fault::Deny);
    let error = rest(&query, &mut pages).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Denied, "{error}");
    // Who asks again (a prepared statement) gets it, and no name is missing or told twice.
    assert!(!rest(&query, &mut pages).await.unwrap().is_empty());
    for failures in 1..5 {
        let mut pages = query.glob_pages(&bench.at("t/**")).await.unwrap();
        let mut found = 0;
        for _ in 0..failures {
            let page = query.next_page(&mut pages).await.unwrap().unwrap();
            found += page.len();
            bench.store.fail("list", Fault::Deny);
            while let Ok(page) = query.next_page(&mut pages).await {
                found += page.unwrap().len();
            }
        }
        assert_eq!(found + rest(&query, &mut pages).await.unwrap().len(), 60);
        assert!(query.next_page(&mut pages).await.unwrap().is_none());
    }
    // Nor is a statement that was stopped.
    let query = bench.query();
    let mut pages = query.glob_pages(&bench.at("t/**")).await.unwrap();
    query.cancel();
    query.next_page(&mut pages).await.unwrap().expect("the first has come");
    assert_eq!(rest(&query, &mut pages).await.unwrap_err().kind(), Kind::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_page_is_tried_again() {
    let bench = bench("2").await;
    let query = bench.query();
    let mut pages = query.glob_pages(&bench.at("t/**")).await.unwrap();
    bench.store.fail("list", Fault::Cut);
    assert_eq!(rest(&query, &mut pages).await.unwrap().len(), 60);
}

/// A statement may write to and remove from the very directory that it reads.
#[tokio::test(start_paused = true)]
async fn what_changes_meanwhile_changes_no_page() {
    let bench = bench("2").await;
    let whole = bench.query().glob(&bench.at("t/**")).await.unwrap();
    let query = bench.query();
    let mut pages = query.glob_pages(&bench.at("t/**")).await.unwrap();
    query.next_page(&mut pages).await.unwrap().expect("the first has come");
    let options = PutOptions::default();
    query.put(&bench.at("t/z/new"), Bytes::from("x").into(), &options).await.unwrap();
    let mut writer = query.create(&bench.at("t/z/other"), options.clone()).unwrap();
    writer.write(b"x").await.unwrap();
    writer.finish().await.unwrap();
    let last = whole.last().unwrap().key.clone();
    query.remove(&[bench.at(&last)]).await.unwrap();
    let found = rest(&query, &mut pages).await.unwrap();
    assert_eq!(found.len(), whole.len() - 2);
    assert_eq!(found.last(), Some(&last));

    // Each kind of change by itself.
    for change in ["put", "write", "remove", "copy"] {
        let mut pages = query.glob_pages(&bench.at("t/**")).await.unwrap();
        let whole = query.glob(&bench.at("t/**")).await.unwrap().len();
        let (new, old) = (bench.at(&format!("t/zz/{change}")), bench.at("t/z/new"));
        match change {
            "put" => drop(query.put(&new, Bytes::from("x").into(), &options).await.unwrap()),
            "copy" => drop(query.copy(&old, &new, options.clone()).await.unwrap()),
            "remove" => query.remove(&[bench.at("t/z/other")]).await.unwrap(),
            _ => {
                let mut writer = query.create(&new, options.clone()).unwrap();
                writer.write(b"x").await.unwrap();
                writer.finish().await.unwrap();
            }
        }
        assert_eq!(rest(&query, &mut pages).await.unwrap().len(), whole, "{change}");
    }
}

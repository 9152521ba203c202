//! Listing, globbing, removing, copying: requests and results.

use crate::support::{Bench, Fault, Scripted, create};
use penstock_base::Kind;
use penstock_store::PutOptions;

async fn bench(keys: &[&str], settings: &[(&str, &str)]) -> Bench {
    let bench = Bench::with(Scripted::new(), settings);
    for key in keys {
        bench.store.place(key, "x").await;
    }
    bench
}

async fn glob(bench: &Bench, pattern: &str) -> Vec<String> {
    let found = bench.query().glob(&bench.at(pattern)).await.unwrap();
    found.into_iter().map(|entry| entry.key).collect()
}

const LAKE: &[&str] = &[
    "t/m=1/a.parquet",
    "t/m=1/b.parquet",
    "t/m=10/a.parquet",
    "t/m=2/a.parquet",
    "t/m=2/deep/a.parquet",
    "t/notes.txt",
    "u/x.parquet",
];

#[tokio::test(start_paused = true)]
async fn glob_lists_only_the_literal_prefix() {
    let bench = bench(LAKE, &[]).await;
    for (pattern, found, calls) in [
        ("t/m=1/*.parquet", vec!["t/m=1/a.parquet", "t/m=1/b.parquet"], vec!["list t/m=1/"]),
        ("t/m=2/*", vec!["t/m=2/a.parquet"], vec!["list t/m=2/"]),
        ("t/m=?/a*", vec!["t/m=1/a.parquet", "t/m=2/a.parquet"], vec!["list t/m= flat"]),
        (
            "t/**/a.parquet",
            vec!["t/m=1/a.parquet", "t/m=10/a.parquet", "t/m=2/a.parquet", "t/m=2/deep/a.parquet"],
            vec!["list t/ flat"],
        ),
        ("**/x.parquet", vec!["u/x.parquet"], vec!["list  flat"]),
        ("t/none/*", vec![], vec!["list t/none/"]),
        ("t/literal.parquet", vec!["t/literal.parquet"], vec![]),
    ] {
        assert_eq!(glob(&bench, pattern).await, found, "{pattern}");
        let calls: Vec<String> = calls.iter().map(|call| call.trim_end().to_string()).collect();
        assert_eq!(bench.store.take_calls(), calls, "{pattern}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_with_brackets_is_found_by_itself_where_no_other_matches() {
    let bench = bench(&["odd/br[a]c.csv", "odd/set[b].csv", "odd/setb.csv"], &[]).await;
    assert_eq!(glob(&bench, "odd/br[a]c.csv").await, ["odd/br[a]c.csv"]);
    assert_eq!(glob(&bench, "odd/set[b].csv").await, ["odd/setb.csv"]);
    assert!(glob(&bench, "odd/no[n]e.csv").await.is_empty());
}

/// A wide table of which one directory is wanted: levels are cheaper than names.
#[tokio::test(start_paused = true)]
async fn glob_descends_where_few_of_many_names_match() {
    let keys: Vec<String> = (0..40)
        .flat_map(|year| (0..20).map(move |file| format!("t/y={year:02}/m=1/{file:02}.parquet")))
        .collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let bench = bench(&keys, &[("list_page_size", "50")]).await;
    let found = glob(&bench, "t/y=*7/m=1/*.parquet").await;
    assert_eq!(found.len(), 4 * 20);
    assert!(found.is_sorted());
    let calls = bench.store.take_calls();
    // One page to look, one level of years, four directories; flat would be sixteen pages.
    assert_eq!(calls.len(), 6, "{calls:?}");
    let all = glob(&bench, "t/y=*/m=1/*.parquet").await;
    assert_eq!(all.len(), keys.len());
    assert_eq!(bench.store.take_calls().len(), 16, "where all match, pages are cheaper");
}

#[tokio::test(start_paused = true)]
async fn list_shows_one_level_with_urls() {
    let bench = bench(LAKE, &[]).await;
    for directory in ["t", "t/"] {
        let found = bench.query().list(&bench.at(directory)).await.unwrap();
        let found: Vec<(String, bool)> =
            found.into_iter().map(|entry| (entry.url, entry.is_directory)).collect();
        let expected = [
            ("mem://t/t/m=1", true),
            ("mem://t/t/m=10", true),
            ("mem://t/t/m=2", true),
            ("mem://t/t/notes.txt", false),
        ];
        assert_eq!(found, expected.map(|(url, directory)| (url.to_string(), directory)));
    }
    assert!(bench.query().list(&bench.at("none")).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn directories_exist_when_something_is_below() {
    let bench = bench(LAKE, &[]).await;
    let query = bench.query();
    assert!(query.directory_exists(&bench.at("t/m=1")).await.unwrap());
    assert!(!query.directory_exists(&bench.at("t/m")).await.unwrap());
    assert_eq!(bench.store.take_calls().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn existence_is_remembered_from_a_listing_and_forgotten_by_removing() {
    let bench = bench(LAKE, &[]).await;
    let query = bench.query();
    query.list(&bench.at("u")).await.unwrap();
    bench.store.take_calls();
    assert!(query.exists(&bench.at("u/x.parquet")).await.unwrap());
    assert!(bench.store.take_calls().is_empty());
    query.remove(&[bench.at("u/x.parquet")]).await.unwrap();
    assert!(!query.exists(&bench.at("u/x.parquet")).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn removing_many_goes_in_batches_and_missing_ones_are_fine() {
    let bench = bench(LAKE, &[]).await;
    let mut all: Vec<_> = LAKE.iter().map(|key| bench.at(key)).collect();
    all.push(bench.at("was/never/there"));
    bench.query().remove(&all).await.unwrap();
    assert_eq!(bench.store.take_calls(), ["batch 8"]);
    bench.query().remove(&[bench.at("nor/this")]).await.unwrap();
    assert_eq!(bench.store.take_calls(), ["delete nor/this"]);
    assert!(glob(&bench, "**").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn removing_a_directory_leaves_its_neighbours() {
    let bench = bench(LAKE, &[]).await;
    bench.query().remove_directory(&bench.at("t/m=1")).await.unwrap();
    assert_eq!(glob(&bench, "t/m=1*/*").await, ["t/m=10/a.parquet"]);
}

/// Some servers, and proxies that cut off queries, pass over prefix and delimiter.
#[tokio::test(start_paused = true)]
async fn of_a_store_that_lists_all_names_only_those_asked_for_are_seen_and_removed() {
    let mut store = Scripted::new();
    store.lists_all = true;
    // A page of few names, so that patterns are followed level by level.
    let bench = Bench::with(store, &[("list_page_size", "3")]);
    for key in LAKE {
        bench.store.place(key, "x").await;
    }
    let query = bench.query();
    for (pattern, found) in [
        ("t/m=1/*", vec!["t/m=1/a.parquet", "t/m=1/b.parquet"]),
        ("t/m=2*/a*", vec!["t/m=2/a.parquet"]),
        ("t/m=2*/*/a*", vec!["t/m=2/deep/a.parquet"]),
        ("u/**", vec!["u/x.parquet"]),
    ] {
        assert_eq!(glob(&bench, pattern).await, found, "{pattern}");
    }
    let listed = query.list(&bench.at("t")).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|it| (it.key.as_str(), it.is_directory)).collect();
    let directories = ["t/m=1", "t/m=10", "t/m=2"].map(|key| (key, true));
    assert_eq!(listed, [&directories[..], &[("t/notes.txt", false)]].concat());
    assert!(query.directory_exists(&bench.at("t/m=2")).await.unwrap());
    assert!(!query.directory_exists(&bench.at("none")).await.unwrap());
    query.remove_directory(&bench.at("t/m=1")).await.unwrap();
    query.remove_directory(&bench.at("none")).await.unwrap();
    assert_eq!(glob(&bench, "**").await, &LAKE[2..]);
}

#[tokio::test(start_paused = true)]
async fn removal_is_retried_and_refusals_are_told() {
    let bench = bench(LAKE, &[]).await;
    bench.store.fail("batch", Fault::Throttle);
    let two = [bench.at("t/m=1/a.parquet"), bench.at("t/m=1/b.parquet")];
    bench.query().remove(&two).await.unwrap();
    bench.store.fail("delete", Fault::Deny);
    let error = bench.query().remove(&[bench.at("u/x.parquet")]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Denied);
}

#[tokio::test(start_paused = true)]
async fn renaming_copies_and_removes() {
    let bench = bench(LAKE, &[]).await;
    bench.query().rename(&bench.at("u/x.parquet"), &bench.at("u/y.parquet")).await.unwrap();
    assert_eq!(bench.store.take_calls(), ["copy u/x.parquet u/y.parquet", "delete u/x.parquet"]);
    assert_eq!(glob(&bench, "u/*").await, ["u/y.parquet"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_renamed_to_its_own_name_stays() {
    let bench = bench(LAKE, &[]).await;
    let at = bench.at("u/x.parquet");
    bench.query().rename(&at, &at).await.unwrap();
    assert_eq!(glob(&bench, "u/*").await, ["u/x.parquet"]);
    let absent = bench.at("u/absent");
    let error = bench.query().rename(&absent, &absent).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
}

#[tokio::test(start_paused = true)]
async fn copying_between_stores_goes_through_here() {
    let bench = bench(&["a"], &[]).await;
    let other = bench.engine.mount(std::sync::Arc::new(Scripted::new()));
    bench.query().copy(&bench.at("a"), &other.at("b"), PutOptions::default()).await.unwrap();
    assert_eq!(bench.query().head(&other.at("b")).await.unwrap().size_bytes, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_statement_that_writes_each_name_once_may_write_it_again_when_it_is_free() {
    let bench = Bench::new(Scripted::new());
    let query = bench.query();
    query.writes_each_name_once();
    let write = async |key: &str| {
        let mut writer = query.create(&bench.at(key), PutOptions::default())?;
        writer.write(b"x").await?;
        writer.finish().await
    };
    write("d/a").await.unwrap();
    let error = write("d/a").await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    assert!(error.to_string().contains("mem://t/d/a"), "{error}");
    // Moved away, as a temporary file is.
    query.rename(&bench.at("d/a"), &bench.at("d/b")).await.unwrap();
    write("d/a").await.unwrap();
    let error = query.rename(&bench.at("d/a"), &bench.at("d/b")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    query.remove(&[bench.at("d/a")]).await.unwrap();
    // Given up.
    drop(query.create(&bench.at("d/a"), PutOptions::default()).unwrap());
    write("d/a").await.unwrap();
    // Another statement.
    create(&bench, &bench.query(), "d/a").finish().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn names_that_the_server_keeps_as_one_are_refused_and_nothing_of_them_stays() {
    for at_once in [false, true] {
        let mut store = Scripted::new();
        store.folds_case = true;
        let bench = Bench::new(store);
        let query = bench.query();
        query.writes_each_name_once();
        let mut writers = Vec::new();
        for key in ["p=a/x", "p=b/x", "p=A/x"] {
            let mut writer = create(&bench, &query, key);
            writer.write(key.as_bytes()).await.unwrap();
            writer.finish_detached().unwrap();
            if !at_once {
                while bench.store.content(&key.to_lowercase()).await.is_none() {
                    tokio::task::yield_now().await;
                }
            }
            writers.push(writer);
        }
        let error = query.barrier().await.unwrap_err();
        assert_eq!(error.kind(), Kind::Conflict, "{error}");
        let text = error.to_string();
        assert!(text.contains("mem://t/p=a/x") && text.contains("mem://t/p=A/x"), "{text}");
        query.retract(&writers.iter().collect::<Vec<_>>(), false).await.unwrap();
        for key in ["p=a/x", "p=b/x"] {
            assert_eq!(bench.store.content(key).await, None, "{key}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn names_that_differ_by_case_are_asked_for_once_they_are_placed() {
    let bench = Bench::new(Scripted::new());
    let query = bench.query();
    query.writes_each_name_once();
    for key in ["p=a/x", "p=b/x", "p=A/x"] {
        create(&bench, &query, key).finish().await.unwrap();
    }
    query.barrier().await.unwrap();
    let calls = bench.store.take_calls();
    let asked: Vec<&String> = calls.iter().filter(|call| call.starts_with("stat")).collect();
    assert_eq!(asked, ["stat p=a/x", "stat p=A/x"]);
    // A statement that does not write each name once asks for nothing.
    for key in ["p=c/x", "p=C/x"] {
        create(&bench, &bench.query(), key).finish().await.unwrap();
    }
    assert!(bench.store.take_calls().iter().all(|call| !call.starts_with("stat")));
}

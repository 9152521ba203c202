//! Statements that open the same object at the same time: one request for all of them, where the
//! policy lets its answer count.

use crate::support::{Bench, Fault, Scripted, create, pattern, read};
use penstock_base::{Kind, Metric, Result};
use penstock_engine::{Known, Query, Reader};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::sleep;

const MIB: usize = 1 << 20;
const WINDOW: usize = 256 << 10;
const NAMES: [&str; 2] = ["a.parquet", "a.csv"];

async fn bench(store: Scripted, settings: &[(&str, &str)]) -> Bench {
    let bench = Bench::with(store, settings);
    for name in NAMES {
        bench.store.place(name, pattern(MIB)).await;
    }
    bench
}

fn far() -> Scripted {
    Scripted::remote(Duration::from_millis(20))
}

type Opened = (Arc<Query>, Result<Reader>);

/// A statement of its own that opens a file, as known as this.
fn spawn_open(bench: &Bench, query: Query, name: &str, known: Known) -> JoinHandle<Opened> {
    let (query, at) = (Arc::new(query), bench.at(name));
    tokio::spawn(async move {
        let reader = query.open(&at, &known).await;
        (query, reader)
    })
}

fn open_at_once(bench: &Bench, name: &str, statements: usize) -> Vec<JoinHandle<Opened>> {
    let open = |_| spawn_open(bench, bench.query(), name, Known::NOTHING);
    (0..statements).map(open).collect()
}

/// What they read first, which has come with the opening.
async fn reads_what_came((query, reader): &Opened, name: &str) {
    let at = if name.ends_with(".csv") { 0 } else { MIB - WINDOW };
    let reader = reader.as_ref().unwrap();
    assert!(read(reader, query, at, WINDOW).await == pattern(MIB)[at..at + WINDOW], "{name}");
}

fn shared(bench: &Bench) -> u64 {
    bench.engine.metrics().get(Metric::FlightsShared)
}

#[tokio::test(start_paused = true)]
async fn statements_that_open_an_object_at_once_send_one_request() {
    for (page, name) in [(false, NAMES[0]), (false, NAMES[1]), (true, NAMES[0]), (true, NAMES[1])] {
        let mut store = if page { Scripted::like_a_page() } else { Scripted::new() };
        store.delay = Duration::from_millis(20);
        let bench = bench(store, &[]).await;
        let begun = tokio::time::Instant::now();
        for opened in open_at_once(&bench, name, 8) {
            let opened = opened.await.unwrap();
            reads_what_came(&opened, name).await;
            assert!(read(opened.1.as_ref().unwrap(), &opened.0, 8, 9).await == pattern(MIB)[8..17]);
        }
        assert!(begun.elapsed() < Duration::from_millis(20 * 10));
        let calls = bench.store.take_calls();
        let opening = if name == "a.csv" { "get a.csv 0..262144" } else { "get a.parquet -262144" };
        let openings = calls.iter().filter(|call| *call == opening).count();
        // Nothing would tell what another one fetched of a page from what is there now.
        assert_eq!(openings, if page { 8 } else { 1 }, "{page} {calls:?}");
        let least = if page { 0 } else { 7 };
        assert!(shared(&bench) >= least, "{}", shared(&bench));
    }
}

/// Where the bytes are here already, or none are wanted, the HEAD that confirms the version is one.
#[tokio::test(start_paused = true)]
async fn statements_that_confirm_an_object_at_once_send_one_request() {
    for opening_bytes in ["256KiB", "0"] {
        let bench = bench(far(), &[("open_fetch_bytes", opening_bytes)]).await;
        for _ in 0..2 {
            bench.store.take_calls();
            for opened in open_at_once(&bench, "a.csv", 8) {
                opened.await.unwrap().1.unwrap();
            }
            // What was told counts no more then.
            sleep(Duration::from_secs(6)).await;
        }
        assert_eq!(bench.store.take_calls(), ["stat a.csv"], "{opening_bytes}");
        assert_eq!(shared(&bench), 14, "{opening_bytes}");
    }
}

/// The request of a statement that is stopped is sent again by one of those who wait for it.
#[tokio::test(start_paused = true)]
async fn who_is_stopped_stops_no_other() {
    let bench = bench(far(), &[]).await;
    let gate = bench.store.hold("get");
    let leader = spawn_open(&bench, bench.query(), "a.parquet", Known::NOTHING);
    sleep(Duration::from_millis(1)).await;
    let joined = open_at_once(&bench, "a.parquet", 3);
    let interrupted = Arc::new(bench.query());
    let waits = {
        let (query, at) = (Arc::clone(&interrupted), bench.at("a.parquet"));
        tokio::spawn(async move { query.open(&at, &Known::NOTHING).await.map(|_| ()) })
    };
    sleep(Duration::from_millis(1)).await;
    assert_eq!(bench.store.take_calls().len(), 1);
    // One of those who wait is stopped: at once, and alone.
    interrupted.cancel();
    assert_eq!(waits.await.unwrap().unwrap_err().kind(), Kind::Cancelled);
    assert!(joined.iter().all(|one| !one.is_finished()));
    leader.abort();
    assert!(leader.await.unwrap_err().is_cancelled());
    sleep(Duration::from_millis(1)).await;
    assert_eq!(bench.store.take_calls().len(), 1, "one of them leads now");
    gate.add_permits(9);
    for opened in joined {
        reads_what_came(&opened.await.unwrap(), "a.parquet").await;
    }
    assert!(bench.store.take_calls().is_empty());
}

/// An error is that of the statement which asked: the others ask for themselves, all at once.
#[tokio::test(start_paused = true)]
async fn who_fails_fails_no_other() {
    let bench = bench(far(), &[]).await;
    bench.store.fail("get", Fault::Deny);
    let begun = tokio::time::Instant::now();
    let mut failed = 0;
    for opened in open_at_once(&bench, "a.csv", 4) {
        let opened = opened.await.unwrap();
        match &opened.1 {
            Ok(_) => reads_what_came(&opened, "a.csv").await,
            Err(error) => {
                assert_eq!(error.kind(), Kind::Denied);
                failed += 1;
            }
        }
    }
    assert_eq!((failed, bench.store.take_calls().len()), (1, 4));
    assert_eq!(begun.elapsed(), Duration::from_millis(40), "they do not wait for each other");
}

/// Of a server without ranges each statement fetches the whole object; that it has none is told
/// to those who wait.
#[tokio::test(start_paused = true)]
async fn whole_objects_are_fetched_by_each() {
    let mut store = far();
    store.ranges_ignored = true.into();
    let bench = bench(store, &[]).await;
    for opened in open_at_once(&bench, "a.csv", 3) {
        reads_what_came(&opened.await.unwrap(), "a.csv").await;
    }
    let calls = bench.store.take_calls();
    assert_eq!(calls, ["get a.csv 0..262144", "get a.csv all", "get a.csv all"]);
}

/// What has to be asked in each statement is not told by a request that was sent before it began.
#[tokio::test(start_paused = true)]
async fn an_answer_counts_as_the_policy_says() {
    let policies = [
        // Sent before the statement began, sent behind it; requests of both with that of another.
        (("cache_validation", "time"), 1, 1),
        (("metadata_validity_ms", "0"), 2, 1),
        (("cache_validation", "query"), 2, 1),
        (("cache_validation", "always"), 2, 2),
        (("cache_validation", "never"), 1, 1),
    ];
    for (setting, old, new) in policies {
        for (is_old, immutable) in [(true, false), (false, false), (true, true), (false, true)] {
            let bench = bench(far(), &[setting]).await;
            let gate = bench.store.hold("get");
            let known = Known { immutable, ..Known::NOTHING };
            let before = (!is_old).then(|| bench.query());
            sleep(Duration::from_millis(1)).await;
            let leader = spawn_open(&bench, bench.query(), "a.csv", known.clone());
            sleep(Duration::from_millis(1)).await;
            let query = before.unwrap_or_else(|| bench.query());
            let other = spawn_open(&bench, query, "a.csv", known);
            sleep(Duration::from_millis(1)).await;
            gate.add_permits(9);
            for opened in [leader, other] {
                reads_what_came(&opened.await.unwrap(), "a.csv").await;
            }
            let calls = bench.store.take_calls().len();
            let expected = if is_old { old } else { new };
            let expected = if immutable { 1 } else { expected };
            assert_eq!(calls, expected, "{setting:?} {is_old} {immutable}");
        }
    }
}

/// A statement that begins when another one has written sees what that wrote, with and without room
/// to remember it; so does one that begins when the caches were cleared.
#[tokio::test(start_paused = true)]
async fn what_was_sent_before_a_write_is_not_waited_for() {
    for (entries, writes) in [("100000", true), ("0", true), ("100000", false)] {
        let bench = bench(far(), &[("metadata_cache_entries", entries)]).await;
        // The store has acted, and its answer is on its way.
        let gate = Arc::new(tokio::sync::Semaphore::new(0));
        bench.store.fail("get", Fault::Delay(Arc::clone(&gate)));
        let early = spawn_open(&bench, bench.query(), "a.csv", Known::NOTHING);
        sleep(Duration::from_millis(50)).await;
        if writes {
            let query = bench.query();
            let mut writer = create(&bench, &query, "a.csv");
            writer.write(b"new").await.unwrap();
            writer.finish().await.unwrap();
        } else {
            bench.store.place("a.csv", &b"new"[..]).await;
            bench.engine.clear_cache();
        }
        let late = spawn_open(&bench, bench.query(), "a.csv", Known::NOTHING).await.unwrap();
        assert_eq!(late.1.unwrap().size_bytes(), 3, "{entries} {writes}");
        gate.add_permits(1);
        assert_eq!(early.await.unwrap().1.unwrap().size_bytes(), MIB as u64);
    }
}

/// Which bytes come is a matter of the first statement; one that wants more asks for more.
#[tokio::test(start_paused = true)]
async fn who_wants_more_than_comes_asks_itself() {
    for (first, second, expected) in [(9 << 10, 9 << 10, 1), (9 << 10, 0, 1), (0, 900 << 10, 2)] {
        let bench = bench(far(), &[]).await;
        let known = |footer: u64| Known {
            footer_size_bytes: (footer > 0).then_some(footer),
            ..Known::NOTHING
        };
        let opened = [first, second]
            .map(|footer| spawn_open(&bench, bench.query(), "a.parquet", known(footer)));
        for one in opened {
            reads_what_came(&one.await.unwrap(), "a.parquet").await;
        }
        assert_eq!(bench.store.take_calls().len(), expected, "{first} {second}");
    }
}

//! Uploads that end beside the statement that began them: the barrier, giving up, and what a failed
//! statement takes back.

use crate::support::{Bench, Fault, Scripted, assert_clean, create, pattern};
use penstock_base::Kind;
use penstock_engine::Writer;
use penstock_store::{PutOptions, WriteCondition};
use std::time::Duration;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

#[tokio::test(start_paused = true)]
async fn detached_uploads_overlap_and_the_barrier_waits() {
    let bench = Bench::new(Scripted::new());
    let query = bench.query();
    let gate = bench.store.hold("put");
    for index in 0..10 {
        let mut writer = create(&bench, &query, &format!("d/{index}"));
        writer.write(&pattern(KIB)).await.unwrap();
        writer.finish_detached().unwrap();
    }
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.store.take_calls().len(), 10, "all are on their way at once");
    let open = async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(bench.store.content("d/0").await, None);
        gate.add_permits(10);
    };
    let (barrier, ()) = tokio::join!(query.barrier(), open);
    barrier.unwrap();
    for index in 0..10 {
        assert!(bench.store.content(&format!("d/{index}")).await.is_some());
    }
    assert_clean(&bench).await;
}

#[tokio::test(start_paused = true)]
async fn the_barrier_tells_of_every_failure() {
    let bench = Bench::new(Scripted::new());
    let query = bench.query();
    for _ in 0..3 {
        bench.store.fail("put", Fault::Deny);
    }
    for index in 0..10 {
        let mut writer = create(&bench, &query, &format!("d/{index}"));
        writer.write(b"x").await.unwrap();
        writer.finish_detached().unwrap();
    }
    let error = query.barrier().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Denied);
    let text = error.to_string();
    assert!(text.contains("3 of 10 uploads failed"), "{text}");
    for index in 0..3 {
        assert!(text.contains(&format!("mem://d/{index} ")), "{text}");
    }
    query.barrier().await.unwrap();
    assert_clean(&bench).await;
}

#[tokio::test(start_paused = true)]
async fn aborted_or_forgotten_detached_uploads_never_become_visible() {
    for how in ["abort", "cancel", "drop"] {
        let bench = Bench::new(Scripted::new());
        let query = bench.query();
        let gate = bench.store.hold("part");
        let mut writer = create(&bench, &query, "a");
        writer.write(&pattern(9 * MIB)).await.unwrap();
        writer.finish_detached().unwrap();
        tokio::task::yield_now().await;
        match how {
            "abort" => {
                query.abort_uploads();
                assert_eq!(query.barrier().await.unwrap_err().kind(), Kind::Cancelled);
            }
            "cancel" => query.cancel(),
            _ => drop(query),
        }
        // The finishing task gives the upload up in its next turn.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        gate.add_permits(10);
        assert_clean(&bench).await;
        assert_eq!(bench.store.take_calls().last().unwrap(), "abort a", "{how}");
        assert_eq!(bench.store.content("a").await, None, "{how}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_query_sees_its_own_detached_uploads() {
    let bench = Bench::new(Scripted::new());
    let query = bench.query();
    let mut writer = create(&bench, &query, "d/a");
    writer.write(b"hello").await.unwrap();
    writer.finish_detached().unwrap();
    assert!(query.exists(&bench.at("d/a")).await.unwrap());
    let mut writer = create(&bench, &query, "d/b");
    writer.write(b"hello").await.unwrap();
    writer.finish_detached().unwrap();
    assert_eq!(query.list(&bench.at("d")).await.unwrap().len(), 2);
    // Removing gives up what is pending, and removes what became visible.
    let mut writer = create(&bench, &query, "d/c");
    writer.write(b"hello").await.unwrap();
    writer.finish_detached().unwrap();
    query.remove(&[bench.at("d/c")]).await.unwrap();
    assert_eq!(bench.store.content("d/c").await, None);
    assert_clean(&bench).await;
}

/// A failed statement over objects that existed: nothing is removed that it did not make.
#[tokio::test(start_paused = true)]
async fn retracting_removes_what_was_made_and_nothing_else() {
    let bench = Bench::new(Scripted::new());
    let query = bench.query();
    for key in ["refused", "taken"] {
        bench.store.place(key, "old").await;
    }
    let mut writers = Vec::new();
    for key in ["made", "taken", "refused", "open"] {
        let mut writer = create(&bench, &query, key);
        writer.write(key.as_bytes()).await.unwrap();
        if key == "refused" {
            bench.store.fail("put", Fault::Deny);
        }
        if key != "open" {
            writer.finish_detached().unwrap();
            let _ = query.barrier().await;
        }
        writers.push(writer);
    }
    // Somebody else's, after ours was there.
    bench.store.place("taken", "theirs").await;
    bench.store.take_calls();
    let writers: Vec<&Writer> = writers.iter().collect();
    bench.query().retract(&writers, false).await.unwrap();
    let mut calls = bench.store.take_calls();
    calls.sort();
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert!(calls.iter().all(|call| call.starts_with("delete ")), "{calls:?}");
    assert_eq!(bench.store.content("made").await, None);
    assert_eq!(bench.store.content("taken").await.unwrap(), "theirs");
    assert_eq!(bench.store.content("refused").await.unwrap(), "old");
    // A second time nothing is left to ask.
    bench.query().retract(&writers, false).await.unwrap();
    assert_eq!(bench.store.take_calls(), Vec::<String>::new());
}

/// The store made it, nobody heard, and the statement was interrupted before it asked again.
#[tokio::test(start_paused = true)]
async fn what_may_stand_unheard_is_removed_where_its_name_was_new() {
    for names_are_new in [true, false] {
        let bench = Bench::new(Scripted::new());
        bench.store.fail("put", Fault::LoseAnswer);
        let query = bench.query();
        let mut writer = create(&bench, &query, "a");
        writer.write(b"x").await.unwrap();
        writer.finish_detached().unwrap();
        while bench.store.content("a").await.is_none() {
            tokio::task::yield_now().await;
        }
        query.cancel();
        assert_eq!(query.barrier().await.unwrap_err().kind(), Kind::Cancelled);
        bench.query().retract(&[&writer], names_are_new).await.unwrap();
        assert_eq!(bench.store.content("a").await.is_none(), names_are_new);
        let calls = bench.store.take_calls();
        let puts = calls.iter().filter(|call| call.starts_with("put "));
        assert_eq!(puts.count(), 1, "{calls:?}");
    }
}

/// One of which that is known, and one that answers so.
#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_compare_keeps_all_but_new_names() {
    for (known, (condition, names_are_new, kept)) in [true, false].into_iter().flat_map(|known| {
        let cases = [
            (WriteCondition::None, false, true),
            (WriteCondition::None, true, false),
            (WriteCondition::IfAbsent, false, false),
        ];
        cases.map(|case| (known, case))
    }) {
        let bench = {
            let mut store = Scripted::new();
            store.capabilities.conditional_delete = !known;
            Bench::new(store)
        };
        if !known {
            bench.store.fail("delete", Fault::NotImplemented);
        }
        let query = bench.query();
        let options = PutOptions { condition, ..PutOptions::default() };
        let mut writer = query.create(&bench.at("a"), options).unwrap();
        writer.write(b"x").await.unwrap();
        writer.finish().await.unwrap();
        query.retract(&[&writer], names_are_new).await.unwrap();
        assert_eq!(bench.store.content("a").await.is_some(), kept, "{known} {names_are_new}");
    }
}

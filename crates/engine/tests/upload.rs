//! Writing: request counts, failures, giving up, the barrier, the memory limit.

#![allow(clippy::unwrap_used)]

mod support;

use bytes::Bytes;
use penstock_base::{Kind, Metric};
use penstock_engine::{Known, Query, Writer};
use penstock_store::{PutOptions, WriteCondition};
use std::time::Duration;
use support::{Bench, Fault, Scripted, pattern};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn create(bench: &Bench, query: &Query, key: &str) -> Writer {
    query.create(&bench.at(key), PutOptions::default()).unwrap()
}

/// Nothing is held and nothing is left to tidy up.
async fn assert_clean(bench: &Bench) {
    bench.engine.shutdown(Duration::from_secs(60)).await;
    assert_eq!(bench.engine.budget().held_bytes(), 0);
    assert_eq!(bench.engine.metrics().get(Metric::MemoryHeldNow), 0);
}

#[tokio::test(start_paused = true)]
async fn an_object_up_to_the_part_size_is_exactly_one_put() {
    let bench = Bench::new(Scripted::new());
    let query = bench.query();
    for len in [0, 1, 100 * KIB, 8 * MIB] {
        let data = pattern(len);
        let mut writer = create(&bench, &query, "a");
        for piece in data.chunks(4096) {
            writer.write(piece).await.unwrap();
        }
        writer.finish().await.unwrap();
        assert_eq!(bench.store.take_calls(), [format!("put a {len}")]);
        assert!(bench.store.content("a").await.unwrap() == data);
    }
    assert_eq!(query.metrics().get(Metric::Uploads), 4);
    assert_clean(&bench).await;
}

#[tokio::test(start_paused = true)]
async fn a_larger_object_goes_in_parts_while_it_is_written() {
    let bench = Bench::new(Scripted::new());
    let query = bench.query();
    let data = pattern(20 * MIB + 5);
    let mut writer = create(&bench, &query, "a");
    for piece in data.chunks(MIB + 7) {
        writer.write(piece).await.unwrap();
    }
    assert_eq!(writer.position(), data.len() as u64);
    writer.finish().await.unwrap();
    let mut calls = bench.store.take_calls();
    calls[1..4].sort();
    assert_eq!(
        calls,
        ["create a", "part a 1 8388608", "part a 2 8388608", "part a 3 4194309", "complete a"]
    );
    assert!(bench.store.content("a").await.unwrap() == data);
    assert_clean(&bench).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_written_is_known_without_asking() {
    let bench = Bench::new(Scripted::new());
    let query = bench.query();
    let mut writer = create(&bench, &query, "a.parquet");
    writer.write(&pattern(MIB)).await.unwrap();
    writer.finish().await.unwrap();
    bench.store.take_calls();
    let reader = bench.query().open(&bench.at("a.parquet"), &Known::NOTHING).await.unwrap();
    assert_eq!(reader.size_bytes(), MIB as u64);
    assert!(bench.store.take_calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn faults_at_each_request_are_retried() {
    for verb in ["create", "part", "complete", "put"] {
        for fault in [Fault::Throttle, Fault::Cut, Fault::LoseAnswer] {
            let bench = Bench::new(Scripted::new());
            let query = bench.query();
            bench.store.fail(verb, fault.clone());
            let data = pattern(if verb == "put" { KIB } else { 17 * MIB });
            let mut writer = create(&bench, &query, "a");
            writer.write(&data).await.unwrap();
            writer.finish().await.unwrap_or_else(|error| panic!("{verb} {fault:?}: {error}"));
            assert!(bench.store.content("a").await.unwrap() == data, "{verb} {fault:?}");
            assert_eq!(query.metrics().get(Metric::Retries), 1);
            assert_clean(&bench).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_part_leaves_nothing_and_tells_why() {
    let bench = Bench::new(Scripted::new());
    let query = bench.query();
    bench.store.fail("part", Fault::Deny);
    let mut writer = create(&bench, &query, "a");
    let data = pattern(MIB);
    let mut result = Ok(());
    for _ in 0..40 {
        result = writer.write(&data).await;
        if result.is_err() {
            break;
        }
    }
    let error = match result {
        Err(error) => error,
        Ok(()) => writer.finish().await.unwrap_err(),
    };
    assert_eq!(error.kind(), Kind::Denied);
    drop(writer);
    assert_clean(&bench).await;
    assert_eq!(bench.store.take_calls().last().unwrap(), "abort a");
    assert_eq!(bench.store.content("a").await, None);
    assert_eq!(query.metrics().get(Metric::UploadsAborted), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_beginning_or_end_leaves_nothing() {
    for verb in ["create", "complete", "put"] {
        let bench = Bench::new(Scripted::new());
        let query = bench.query();
        bench.store.fail(verb, Fault::Deny);
        let mut writer = create(&bench, &query, "a");
        let len = if verb == "put" { KIB } else { 9 * MIB };
        writer.write(&pattern(len)).await.unwrap();
        let error = writer.finish().await.unwrap_err();
        assert_eq!(error.kind(), Kind::Denied, "{verb}: {error}");
        assert_clean(&bench).await;
        let aborted = bench.store.take_calls().iter().any(|call| call == "abort a");
        assert_eq!(aborted, verb == "complete", "{verb}");
        assert_eq!(bench.store.content("a").await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_a_writer_aborts_its_parts_even_while_the_upload_is_being_begun() {
    for hold in ["create", "part", "none"] {
        let bench = Bench::new(Scripted::new());
        let query = bench.query();
        let gate = bench.store.hold(hold);
        let mut writer = create(&bench, &query, "a");
        writer.write(&pattern(9 * MIB)).await.unwrap();
        tokio::task::yield_now().await;
        drop(writer);
        gate.add_permits(10);
        assert_clean(&bench).await;
        assert_eq!(bench.store.take_calls().last().unwrap(), "abort a", "{hold}");
        assert_eq!(bench.store.content("a").await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn the_statement_that_began_last_sets_the_limits() {
    let bench = Bench::new(Scripted::new());
    let gate = bench.store.hold("part");
    let mut settings = bench.engine.settings().clone();
    settings.set("upload_concurrency", "2").unwrap();
    settings.set("memory_limit_bytes", "64MiB").unwrap();
    let query = bench.engine.query(settings, None);
    assert_eq!(bench.engine.budget().limit_bytes(), 64 << 20);
    let mut writers = Vec::new();
    for key in ["a", "b", "c"] {
        let mut writer = create(&bench, &query, key);
        writer.write(&pattern(9 * MIB)).await.unwrap();
        writers.push(writer);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let parts = |calls: Vec<String>| calls.iter().filter(|call| call.starts_with("part")).count();
    assert_eq!(parts(bench.store.take_calls()), 2);
    let _other = bench.query();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(parts(bench.store.take_calls()), 1, "the third begins as the limit is back");
    assert_eq!(bench.engine.budget().limit_bytes(), 1 << 30);
    gate.add_permits(10);
    drop(writers);
    assert_clean(&bench).await;
}

#[tokio::test(start_paused = true)]
async fn uploads_that_are_stopped_leave_nothing_and_later_ones_do_not_begin() {
    let bench = Bench::new(Scripted::new());
    let query = bench.query();
    let mut done = create(&bench, &query, "done");
    done.write(&pattern(9 * MIB)).await.unwrap();
    done.finish().await.unwrap();
    let gate = bench.store.hold("part");
    let mut ending = create(&bench, &query, "ending");
    ending.write(&pattern(9 * MIB)).await.unwrap();
    ending.finish_detached().unwrap();
    let mut open = create(&bench, &query, "open");
    open.write(&pattern(9 * MIB)).await.unwrap();
    tokio::task::yield_now().await;
    bench.store.take_calls();
    bench.engine.stop_uploads();
    assert_eq!(open.write(b"more").await.unwrap_err().kind(), Kind::Cancelled);
    let mut late = create(&bench, &query, "late");
    assert_eq!(late.write(b"x").await.unwrap_err().kind(), Kind::Cancelled);
    gate.add_permits(10);
    assert_clean(&bench).await;
    let mut calls = bench.store.take_calls();
    calls.sort();
    assert_eq!(calls, ["abort ending", "abort open"]);
    assert_eq!(bench.store.content("done").await.unwrap().len(), 9 * MIB);
}

#[tokio::test(start_paused = true)]
async fn only_if_absent_never_replaces() {
    for len in [KIB, 9 * MIB] {
        let bench = Bench::new(Scripted::new());
        let query = bench.query();
        bench.store.place("a", "first").await;
        let options = PutOptions { condition: WriteCondition::IfAbsent, ..PutOptions::default() };
        let mut writer = query.create(&bench.at("a"), options).unwrap();
        writer.write(&pattern(len)).await.unwrap();
        let error = writer.finish().await.unwrap_err();
        assert_eq!(error.kind(), Kind::Conflict);
        assert_eq!(bench.store.content("a").await.unwrap(), "first");
        assert_clean(&bench).await;
    }
}

/// The store carried the first attempt out, its answer was lost, and the second is refused.
#[tokio::test(start_paused = true)]
async fn a_conditional_write_whose_answer_was_lost_is_no_conflict() {
    for is_new in [true, false] {
        let bench = Bench::new(Scripted::new());
        let query = bench.query();
        let at = bench.at("a");
        let condition = match is_new {
            true => WriteCondition::IfAbsent,
            false => {
                bench.store.place("a", "first").await;
                WriteCondition::IfMatch(query.stat(&at).await.unwrap().etag.unwrap())
            }
        };
        let options = PutOptions { condition, ..PutOptions::default() };
        bench.store.fail("put", Fault::LoseAnswer);
        let placed = query.put(&at, Bytes::from("ours").into(), &options).await.unwrap();
        assert_eq!(bench.store.content("a").await.unwrap(), "ours");
        assert_eq!(placed.etag, query.head(&at).await.unwrap().etag);
        // Refused at once, it is a conflict.
        let error = query.put(&at, Bytes::from("ours").into(), &options).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Conflict, "{error}");
    }
}

/// Whether the first attempt took effect before another writer's cannot be told; nor is a writer
/// of the very same bytes taken for this one.
#[tokio::test(start_paused = true)]
async fn a_conditional_write_that_may_have_been_replaced_is_neither_success_nor_conflict() {
    for (theirs, fault) in [("theirs", Fault::Cut), ("ours", Fault::Cut), ("theirs", Fault::Proxy)]
    {
        let bench = Bench::new(Scripted::new());
        let query = bench.query();
        bench.store.place("a", theirs).await;
        let options = PutOptions { condition: WriteCondition::IfAbsent, ..PutOptions::default() };
        bench.store.fail("put", fault);
        let put = query.put(&bench.at("a"), Bytes::from("ours").into(), &options).await;
        let error = put.unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
        assert!(error.hint().unwrap().contains("Read the object"), "{error}");
        assert_eq!(bench.store.content("a").await.unwrap(), theirs);
        // One that the store did not take on leaves nothing open.
        bench.store.fail("put", Fault::Throttle);
        let put = query.put(&bench.at("a"), Bytes::from("ours").into(), &options).await;
        assert_eq!(put.unwrap_err().kind(), Kind::Conflict);
    }
}

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

/// Ctrl-C while the PUT is on its way: whether the store still carries it out is not known until
/// it answers, so the answer is waited for and the object removed.
#[tokio::test(start_paused = true)]
async fn an_object_that_became_visible_after_all_is_taken_back() {
    for (len, verb) in [(KIB, "put"), (9 * MIB, "complete")] {
        let bench = Bench::new(Scripted::new());
        let query = bench.query();
        let gate = bench.store.hold(verb);
        let mut writer = create(&bench, &query, "a");
        writer.write(&pattern(len)).await.unwrap();
        let interrupted = tokio::time::timeout(Duration::from_millis(20), writer.finish()).await;
        assert!(interrupted.is_err());
        drop(writer);
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        bench.store.take_calls();
        gate.add_permits(10);
        assert_clean(&bench).await;
        assert_eq!(bench.store.content("a").await, None, "{verb}");
    }
}

#[tokio::test(start_paused = true)]
async fn giving_up_waits_for_a_silent_store_only_so_long() {
    let bench = Bench::new(Scripted::new());
    let query = bench.query();
    bench.store.fail("put", Fault::Hang);
    let mut writer = create(&bench, &query, "a");
    writer.write(b"x").await.unwrap();
    let interrupted = tokio::time::timeout(Duration::from_millis(20), writer.finish()).await;
    assert!(interrupted.is_err());
    drop(writer);
    let began = tokio::time::Instant::now();
    assert_clean(&bench).await;
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
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

/// The limit holds although a hundred files are open, fed in turn by one thread that nothing else
/// would ever wake.
#[tokio::test(start_paused = true)]
async fn a_hundred_writers_stay_within_the_limit_where_blocks_may_be_small() {
    let bench = Bench::with(Scripted::like_azure(), &[("memory_limit_bytes", "64MiB")]);
    let query = bench.query();
    let mut writers: Vec<Writer> =
        (0..100).map(|index| create(&bench, &query, &format!("p/{index}"))).collect();
    let piece = pattern(100 * KIB);
    let mut most = 0;
    for _ in 0..20 {
        for writer in &mut writers {
            writer.write(&piece).await.unwrap();
            most = most.max(bench.engine.budget().held_bytes());
        }
    }
    assert!(most <= 64 << 20, "{most}");
    assert!(most > 48 << 20, "the limit was reached: {most}");
    for mut writer in writers {
        writer.finish_detached().unwrap();
    }
    query.barrier().await.unwrap();
    let expected = piece.repeat(20);
    for index in [0, 57, 99] {
        assert!(bench.store.content(&format!("p/{index}")).await.unwrap() == expected);
    }
    assert_clean(&bench).await;
}

/// Where parts have a smallest size, the limit is exceeded only by parts smaller than that.
#[tokio::test(start_paused = true)]
async fn a_hundred_writers_never_wait_for_each_other_for_ever() {
    let bench = Bench::with(Scripted::new(), &[("memory_limit_bytes", "64MiB")]);
    let query = bench.query();
    let mut writers: Vec<Writer> =
        (0..100).map(|index| create(&bench, &query, &format!("p/{index}"))).collect();
    let piece = pattern(100 * KIB);
    let mut most = 0;
    for _ in 0..80 {
        for writer in &mut writers {
            writer.write(&piece).await.unwrap();
            most = most.max(bench.engine.budget().held_bytes());
        }
    }
    assert!(most <= (64 + 100 * 6) << 20, "{most}");
    for mut writer in writers {
        writer.finish().await.unwrap();
    }
    assert!(bench.store.content("p/99").await.unwrap() == piece.repeat(80));
    assert_clean(&bench).await;
}

#[tokio::test(start_paused = true)]
async fn a_writer_waits_for_memory_on_its_way_and_goes_on_when_it_is_back() {
    let settings = [("memory_limit_bytes", "64MiB"), ("upload_concurrency", "64")];
    let bench = Bench::with(Scripted::new(), &settings);
    let query = bench.query();
    let gate = bench.store.hold("part");
    let mut writer = create(&bench, &query, "a");
    let data = pattern(100 * MIB);
    let open = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let held = bench.engine.budget().held_bytes();
        assert_eq!(held, 64 << 20, "the writer fills the limit and then waits");
        gate.add_permits(100);
    };
    let (written, ()) = tokio::join!(writer.write(&data), open);
    written.unwrap();
    writer.finish().await.unwrap();
    assert!(bench.store.content("a").await.unwrap() == data);
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

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_compare_keeps_all_but_new_names() {
    for (condition, names_are_new, kept) in [
        (WriteCondition::None, false, true),
        (WriteCondition::None, true, false),
        (WriteCondition::IfAbsent, false, false),
    ] {
        let bench = {
            let mut store = Scripted::new();
            store.capabilities.conditional_delete = false;
            Bench::new(store)
        };
        let query = bench.query();
        let options = PutOptions { condition, ..PutOptions::default() };
        let mut writer = query.create(&bench.at("a"), options).unwrap();
        writer.write(b"x").await.unwrap();
        writer.finish().await.unwrap();
        query.retract(&[&writer], names_are_new).await.unwrap();
        assert_eq!(bench.store.content("a").await.is_some(), kept);
    }
}

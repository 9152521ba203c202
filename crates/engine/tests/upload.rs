//! Writing: request counts, failures, what is stopped, conditions.

use bytes::Bytes;
use penstock_base::{Kind, Metric};
use penstock_engine::Known;
use penstock_store::{PutOptions, WriteCondition};

use crate::support::{Bench, Fault, Scripted, assert_clean, create, pattern};
use std::time::Duration;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

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

/// A defect of ours is an error of the statement, and no statement that waits for ever.
#[tokio::test(start_paused = true)]
async fn a_task_that_panics_is_told_and_waited_for_by_nobody() {
    for (verb, detached, last) in [
        ("part", false, "abort a"),
        ("create", false, "create a"),
        ("complete", false, "abort a"),
        ("complete", true, "abort a"),
    ] {
        let bench = Bench::new(Scripted::new());
        let query = bench.query();
        bench.store.fail(verb, Fault::Panic);
        let mut writer = create(&bench, &query, "a");
        let written = async {
            writer.write(&pattern(20 * MIB)).await?;
            if detached {
                writer.finish_detached()?;
                return query.barrier().await;
            }
            writer.finish().await.map(drop)
        };
        let written = tokio::time::timeout(Duration::from_secs(600), written).await;
        let error = written.expect("it does not wait for ever").unwrap_err();
        assert!(error.to_string().contains("ended without an answer"), "{verb}: {error}");
        assert_eq!(error.kind(), Kind::Internal, "{verb}");
        drop(writer);
        assert_clean(&bench).await;
        assert_eq!(bench.store.take_calls().last().unwrap(), last);
        assert_eq!(bench.store.content("a").await, None);
    }
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
    let instance = |limit| {
        let mut settings = bench.engine.settings().clone();
        settings.set("memory_limit_bytes", limit).unwrap();
        bench.engine.adopt_before_statements(&settings);
    };
    instance("96MiB");
    assert_eq!(bench.engine.budget().limit_bytes(), 96 << 20);
    settings.set("upload_concurrency", "2").unwrap();
    settings.set("memory_limit_bytes", "64MiB").unwrap();
    let query = bench.engine.query(settings, None);
    instance("96MiB");
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

//! How uploads end: not cut off, asked for once more, and given up without a trace.

use crate::support::{Bench, Fault, Scripted, assert_clean, create, pattern};
use penstock_base::{Kind, Metric};
use penstock_engine::Writer;
use penstock_store::{PutOptions, Store as _, WriteCondition};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::sync::Semaphore;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Lets every task run until all wait.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Begins the end of an upload: on this one thread, its task runs when the test waits next.
fn begin_to_finish(writer: &mut Writer) {
    let mut finishing = pin!(writer.finish());
    assert!(finishing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

/// Ctrl-C just as the object is finished, before any request that would make it visible was sent.
#[tokio::test(start_paused = true)]
async fn an_end_that_is_given_up_before_its_request_leaves_what_was_there() {
    let data = pattern(9 * MIB);
    for how in ["abort", "drop", "cancel", "cancelled before", "stop", "retract"] {
        for len in [KIB, 9 * MIB] {
            for can_compare in [true, false] {
                let mut store = Scripted::new();
                store.capabilities.conditional_delete = can_compare;
                let bench = Bench::new(store);
                bench.store.place("a", "old").await;
                let query = bench.query();
                let mut writer = create(&bench, &query, "a");
                writer.write(&data[..len]).await.unwrap();
                settle().await;
                if how == "cancelled before" {
                    query.cancel();
                    let error = writer.finish().await.unwrap_err();
                    assert_eq!(error.kind(), Kind::Cancelled);
                } else {
                    begin_to_finish(&mut writer);
                }
                match how {
                    "abort" => writer.abort(),
                    "drop" => drop(writer),
                    "cancel" => query.cancel(),
                    "stop" => bench.engine.stop_uploads(),
                    "retract" => bench.query().retract(&[&writer], false).await.unwrap(),
                    _ => {}
                }
                settle().await;
                assert_clean(&bench).await;
                let told = format!("{how}, {len} bytes, compares: {can_compare}");
                let calls = bench.store.take_calls();
                let sent = |call: &&String| {
                    ["put", "complete", "delete"].iter().any(|verb| call.starts_with(verb))
                };
                assert_eq!(calls.iter().filter(sent).count(), 0, "{told}: {calls:?}");
                let aborts = calls.iter().filter(|call| *call == "abort a").count();
                assert_eq!(aborts, usize::from(len > MIB), "{told}: {calls:?}");
                assert_eq!(bench.store.content("a").await.unwrap(), "old", "{told}");
            }
        }
    }
}

/// Ctrl-C between the store's answer and its being heard of.
#[tokio::test(start_paused = true)]
async fn an_end_that_came_before_its_writer_was_stopped_is_taken_back() {
    for len in [KIB, 9 * MIB] {
        let bench = Bench::new(Scripted::new());
        let query = bench.query();
        let mut writer = create(&bench, &query, "a");
        writer.write(&pattern(len)).await.unwrap();
        let mut finishing = Box::pin(writer.finish());
        let waker = Context::from_waker(Waker::noop());
        assert!(finishing.as_mut().poll(&mut { waker }).is_pending());
        settle().await;
        assert!(bench.store.content("a").await.is_some(), "{len} bytes are there");
        query.cancel();
        assert_eq!(finishing.await.unwrap_err().kind(), Kind::Cancelled);
        settle().await;
        assert_clean(&bench).await;
        assert!(bench.store.content("a").await.is_none(), "of {len} bytes nothing stays");
    }
}

/// The parts of a large object take the store minutes to join.
#[tokio::test(start_paused = true)]
async fn a_completion_takes_the_time_that_the_store_needs() {
    let bench = Bench::new(Scripted::new());
    let query = bench.query();
    let answer = Arc::new(Semaphore::new(0));
    bench.store.fail("complete", Fault::Delay(Arc::clone(&answer)));
    let data = pattern(9 * MIB);
    let mut writer = create(&bench, &query, "a");
    writer.write(&data).await.unwrap();
    let joined = async {
        tokio::time::sleep(Duration::from_secs(600)).await;
        answer.add_permits(1);
    };
    let (finished, ()) = tokio::join!(writer.finish(), joined);
    finished.unwrap();
    assert_eq!(bench.store.take_calls().last().unwrap(), "complete a");
    assert!(bench.store.content("a").await.unwrap() == data);
    assert_clean(&bench).await;
}

/// No answer arrived in the time there is, but the object did.
#[tokio::test(start_paused = true)]
async fn a_completion_is_asked_for_once_more_before_it_is_told_as_failed() {
    for (lost, is_told) in [(2, true), (3, false)] {
        let store = Scripted::remote(Duration::from_millis(1500));
        let bench = Bench::with(store, &[("request_deadline_ms", "2000")]);
        let query = bench.query();
        let data = pattern(9 * MIB);
        let mut writer = create(&bench, &query, "a");
        writer.write(&data).await.unwrap();
        (0..lost).for_each(|_| bench.store.fail("complete", Fault::LoseAnswer));
        let finished = writer.finish().await;
        assert_eq!(finished.is_ok(), is_told, "{finished:?}");
        let made = bench.store.memory.stat("a").await.unwrap().etag;
        assert_clean(&bench).await;
        let calls = bench.store.take_calls();
        let asked = calls.iter().filter(|call| *call == "complete a").count();
        assert_eq!(asked, 3, "{calls:?}");
        assert_eq!(query.metrics().get(Metric::Retries), 2);
        match finished {
            Ok(told) => assert_eq!(told.etag, made),
            Err(error) => {
                assert!(error.to_string().contains("gave up after 2 attempts"), "{error}");
            }
        }
        let aborts = calls.iter().filter(|call| *call == "abort a").count();
        assert_eq!(aborts, usize::from(!is_told), "{calls:?}");
        assert!(bench.store.content("a").await.unwrap() == data);
    }
}

/// Its first attempt was refused; what the second one placed would be removed, and the old object
/// with it.
#[tokio::test(start_paused = true)]
async fn a_request_that_would_place_it_is_not_sent_again_once_it_is_given_up() {
    for (len, verb) in [(KIB, "put"), (9 * MIB, "complete")] {
        for condition in [false, true] {
            let settings = [("retry_base_ms", "1000"), ("retry_max_ms", "1000")];
            let bench = Bench::with(Scripted::new(), &settings);
            bench.store.place("a", "old").await;
            let query = bench.query();
            let condition = match condition {
                true => {
                    let found = query.stat(&bench.at("a")).await.unwrap();
                    WriteCondition::IfMatch(found.etag.unwrap())
                }
                false => WriteCondition::None,
            };
            let options = PutOptions { condition, ..PutOptions::default() };
            let mut writer = query.create(&bench.at("a"), options).unwrap();
            writer.write(&pattern(len)).await.unwrap();
            bench.store.fail(verb, Fault::Throttle);
            begin_to_finish(&mut writer);
            settle().await;
            let calls = bench.store.take_calls();
            assert!(calls.last().unwrap().starts_with(verb), "{calls:?}");
            drop(writer);
            assert_clean(&bench).await;
            let sent = bench.store.take_calls();
            assert!(sent.iter().all(|call| call == "abort a"), "{verb}: {sent:?}");
            assert_eq!(bench.store.content("a").await.unwrap(), "old", "{verb}");
        }
    }
}

/// How much of it was taken is not known, so nothing can be finished after it.
#[tokio::test(start_paused = true)]
async fn a_write_that_was_interrupted_leaves_nothing_to_be_finished() {
    for finish in ["finish", "detached", "write"] {
        let bench = Bench::with(Scripted::new(), &[("upload_concurrency", "2")]);
        bench.store.place("a", "old").await;
        let query = bench.query();
        let gate = bench.store.hold("part");
        let mut writer = create(&bench, &query, "a");
        let data = pattern(30 * MIB);
        let interrupted = tokio::time::timeout(Duration::from_secs(1), writer.write(&data)).await;
        assert!(interrupted.is_err(), "it waits for its parts");
        gate.add_permits(100);
        settle().await;
        let ended = match finish {
            "finish" => writer.finish().await.map(drop),
            "detached" => writer.finish_detached(),
            _ => writer.write(b"more").await,
        };
        let error = ended.unwrap_err();
        assert_eq!(error.kind(), Kind::Cancelled, "{finish}: {error}");
        assert!(error.to_string().contains("earlier write"), "{finish}: {error}");
        drop(writer);
        assert_clean(&bench).await;
        assert_eq!(bench.store.take_calls().last().unwrap(), "abort a", "{finish}");
        assert_eq!(bench.store.content("a").await.unwrap(), "old", "{finish}");
    }
}

/// Its end is under way, which bytes that come now would miss.
#[tokio::test(start_paused = true)]
async fn nothing_follows_an_end_that_was_asked_for() {
    for finish in ["finish", "detached", "write"] {
        let bench = Bench::new(Scripted::new());
        let query = bench.query();
        let mut writer = create(&bench, &query, "a");
        writer.write(b"all of it").await.unwrap();
        begin_to_finish(&mut writer);
        let ended = match finish {
            "finish" => writer.finish().await.map(drop),
            "detached" => writer.finish_detached(),
            _ => writer.write(b"more").await,
        };
        let error = ended.unwrap_err();
        assert_eq!(error.kind(), Kind::Internal, "{finish}: {error}");
        settle().await;
        assert_eq!(bench.store.content("a").await.unwrap(), "all of it", "{finish}");
    }
}

/// What a statement took back cannot be finished behind it.
#[tokio::test(start_paused = true)]
async fn an_upload_that_was_taken_back_cannot_be_finished() {
    for detached in [false, true] {
        let bench = Bench::new(Scripted::new());
        bench.store.place("a", "old").await;
        let query = bench.query();
        let mut writer = create(&bench, &query, "a");
        writer.write(b"new").await.unwrap();
        bench.query().retract(&[&writer], true).await.unwrap();
        let error = if detached {
            writer.finish_detached().unwrap();
            query.barrier().await.unwrap_err()
        } else {
            writer.finish().await.unwrap_err()
        };
        assert_eq!(error.kind(), Kind::Cancelled, "{error}");
        assert_clean(&bench).await;
        assert_eq!(bench.store.take_calls(), Vec::<String>::new());
        assert_eq!(bench.store.content("a").await.unwrap(), "old");
    }
}

/// A file that a destructor closes, when nobody is there to interrupt it.
#[tokio::test(start_paused = true)]
async fn what_fails_is_sent_again_only_for_the_time_that_is_left() {
    for (left_s, is_once) in [(15, false), (0, true)] {
        let bench = Bench::with(Scripted::new(), &[("request_deadline_ms", "60000")]);
        for _ in 0..1000 {
            bench.store.fail("put", Fault::Throttle);
        }
        let query = bench.query();
        let mut writer = create(&bench, &query, "a");
        writer.write(&pattern(KIB)).await.unwrap();
        query.repeats_for(Duration::from_secs(left_s));
        let began = tokio::time::Instant::now();
        let error = writer.finish().await.unwrap_err();
        assert_eq!(error.kind(), Kind::Throttled, "{error}");
        assert!(began.elapsed() <= Duration::from_secs(left_s), "{:?}", began.elapsed());
        let puts = bench.store.take_calls().iter().filter(|it| it.starts_with("put")).count();
        assert_eq!(puts == 1, is_once, "{puts}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_on_its_way_is_not_cut_when_the_time_is_over() {
    let bench = Bench::new(Scripted::new());
    let query = bench.query();
    let mut writer = create(&bench, &query, "a");
    writer.write(&pattern(KIB)).await.unwrap();
    let gate = bench.store.hold("put");
    query.repeats_for(Duration::from_secs(15));
    let later = async {
        tokio::time::sleep(Duration::from_secs(100)).await;
        gate.add_permits(1);
    };
    let (finished, ()) = tokio::join!(writer.finish(), later);
    finished.unwrap();
    assert!(bench.store.content("a").await.is_some());
}

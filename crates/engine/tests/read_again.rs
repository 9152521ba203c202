//! Reads that fail: resuming, trying again, giving up, cancelling.

use crate::support::{Bench, Fault, Scripted, pattern, read};
use penstock_base::{Kind, Metric};
use penstock_engine::Known;
use penstock_store::{Again, GetRequest, Observer, RequestEvent};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

#[tokio::test(start_paused = true)]
async fn a_broken_body_is_resumed_where_it_stopped() {
    let bench = Bench::new(Scripted::new());
    let data = pattern(2 * MIB);
    bench.store.place("a.csv", data.clone()).await;
    let query = bench.query();
    let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
    bench.store.take_calls();
    bench.store.fail("get", Fault::CutBody(1000));
    bench.store.fail("get", Fault::CutBody(0));
    bench.store.fail("get", Fault::Cut);
    assert_eq!(read(&reader, &query, MIB, MIB).await, &data[MIB..]);
    assert_eq!(
        bench.store.take_calls(),
        [
            "get a.csv 1048576..2097152",
            "get a.csv 1049576..2097152",
            "get a.csv 1049576..2097152",
            "get a.csv 1049576..2097152",
        ]
    );
    assert_eq!(query.metrics().get(Metric::Retries), 3);
}

#[tokio::test(start_paused = true)]
async fn an_object_replaced_between_break_and_resume_is_not_mixed() {
    let bench = Bench::new(Scripted::new());
    bench.store.place("a.csv", pattern(2 * MIB)).await;
    let query = bench.query();
    let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
    bench.store.fail("get", Fault::CutBody(1000));
    let gate = bench.store.hold("get");
    gate.add_permits(1);
    let mut buf = vec![0; MIB];
    let replaced = async {
        // The first answer is on its way; the second waits at the gate.
        while bench.store.calls.lock().unwrap().len() < 3 {
            tokio::task::yield_now().await;
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        bench.store.place("a.csv", vec![7; 2 * MIB]).await;
        gate.add_permits(1);
    };
    let (result, ()) = tokio::join!(reader.read_at(&query, &mut buf, MIB as u64), replaced);
    assert_eq!(result.unwrap_err().kind(), Kind::Conflict);
}

/// Else a server that breaks each answer after a few bytes would be asked for hours.
#[tokio::test(start_paused = true)]
async fn a_body_that_breaks_after_a_few_bytes_each_time_ends_at_the_deadline() {
    let settings = [("request_deadline_ms", "20000"), ("retry_max_ms", "1000")];
    for (broken_bytes, is_read) in [(7, false), (70_000, true)] {
        let bench = Bench::with(Scripted::new(), &settings);
        let data = pattern(8 * MIB);
        bench.store.place("a.csv", data.clone()).await;
        let query = bench.query();
        let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
        for _ in 0..2000 {
            bench.store.fail("get", Fault::CutBody(broken_bytes));
        }
        let (began, mut buf) = (tokio::time::Instant::now(), vec![0; 7 * MIB]);
        let result = reader.read_at(&query, &mut buf, MIB as u64).await;
        match result {
            Ok(()) => assert!(is_read && buf == data[MIB..]),
            Err(error) => {
                assert!(!is_read, "{error}");
                assert_eq!(error.kind(), Kind::Corrupt, "{error}");
                assert!(error.to_string().contains("gave up after"), "{error}");
                assert!(began.elapsed() <= Duration::from_secs(20), "{:?}", began.elapsed());
            }
        }
    }
}

/// A gateway's client that stops reading for an hour is no failure of the store.
#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_its_time_may_still_resume() {
    let bench = Bench::new(Scripted::new());
    let data = pattern(MIB);
    bench.store.place("a.bin", data.clone()).await;
    let query = bench.query();
    bench.store.fail("get", Fault::CutBody(1000));
    let request = GetRequest::default();
    let mut stream = query.get(&bench.at("a.bin"), request).await.unwrap();
    let mut all = vec![0; MIB];
    // Nor is one that begins to read an hour after it was answered.
    tokio::time::advance(Duration::from_secs(3600)).await;
    let first = stream.read(&mut all).await.unwrap();
    assert_eq!(first, 1000);
    tokio::time::advance(Duration::from_secs(3600)).await;
    let mut filled = first;
    while filled < MIB {
        filled += stream.read(&mut all[filled..]).await.unwrap();
    }
    assert!(all == data);
    assert_eq!(stream.read(&mut all).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn throttling_for_ten_seconds_only_slows() {
    let bench = Bench::new(Scripted::new());
    bench.store.place("a.parquet", pattern(KIB)).await;
    for _ in 0..7 {
        bench.store.fail("get", Fault::Throttle);
    }
    let began = tokio::time::Instant::now();
    bench.query().open(&bench.at("a.parquet"), &Known::NOTHING).await.unwrap();
    assert!(began.elapsed() > Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn throttling_past_the_deadline_tells_attempts_and_time() {
    let bench = Bench::with(Scripted::new(), &[("request_deadline_ms", "20000")]);
    bench.store.place("a.parquet", pattern(KIB)).await;
    for _ in 0..1000 {
        bench.store.fail("get", Fault::Throttle);
    }
    let began = tokio::time::Instant::now();
    let error = bench.query().open(&bench.at("a.parquet"), &Known::NOTHING).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Throttled);
    assert!(error.to_string().contains("gave up after "), "{error}");
    assert!(began.elapsed() <= Duration::from_secs(20), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_ends_at_the_deadline() {
    let bench = Bench::with(Scripted::new(), &[("request_deadline_ms", "20000")]);
    bench.store.place("a.parquet", pattern(KIB)).await;
    bench.store.fail("get", Fault::Hang);
    let error = bench.query().open(&bench.at("a.parquet"), &Known::NOTHING).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.to_string().contains("request_deadline_ms"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_told_at_once() {
    let bench = Bench::new(Scripted::new());
    bench.store.fail("get", Fault::Deny);
    let began = tokio::time::Instant::now();
    let error = bench.query().open(&bench.at("a"), &Known::NOTHING).await.unwrap_err();
    assert_eq!((error.kind(), began.elapsed()), (Kind::Denied, Duration::ZERO));
    assert_eq!(bench.store.take_calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn cancelling_ends_a_read_at_once() {
    let bench = Bench::new(Scripted::new());
    bench.store.place("a.csv", pattern(2 * MIB)).await;
    let query = bench.query();
    let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
    bench.store.fail("get", Fault::Hang);
    let mut buf = vec![0; KIB];
    let cancel = async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        query.cancel();
    };
    let (result, ()) = tokio::join!(reader.read_at(&query, &mut buf, MIB as u64), cancel);
    assert_eq!(result.unwrap_err().kind(), Kind::Cancelled);
    let later = query.open(&bench.at("b"), &Known::NOTHING).await.unwrap_err();
    assert_eq!(later.kind(), Kind::Cancelled);
}

#[derive(Debug, Default)]
struct Heard(Mutex<Vec<Again>>);

impl Observer for Heard {
    fn request_finished(&self, _event: RequestEvent) {}

    fn sent_again(&self, why: Again) {
        self.0.lock().unwrap().push(why);
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_counts_by_store_hears_which_one_was_asked_again() {
    let bench = Bench::new(Scripted::new());
    let query = bench.query();
    let other = Scripted::new();
    other.place("k", pattern(KIB)).await;
    other.fail("stat", Fault::Throttle);
    bench.store.place("k", pattern(KIB)).await;
    let heard = Arc::new(Heard::default());
    let watched = bench.engine.mount_observed(Arc::new(other), heard.clone());
    for _ in 0..2 {
        query.head(&watched.at("k")).await.unwrap();
        query.head(&bench.at("k")).await.unwrap();
        bench.store.fail("stat", Fault::Throttle);
    }
    assert_eq!(*heard.0.lock().unwrap(), [Again::Failed]);
    assert_eq!(query.metrics().get(Metric::Retries), 2);
}

//! What is remembered of objects ends with a change by this process, whatever became of its request
//! and whoever sent it.

use crate::support::{Bench, Fault, Scripted, pattern};
use penstock_base::{ByteRange, Error, Kind, Result};
use penstock_engine::{GetRange, GetRequest, Known, PutOptions};
use penstock_store::{Payload, Store as _};
use penstock_testkit::scratch::Scratch;
use std::slice;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

const MIB: usize = 1 << 20;

/// Nothing is asked for again that is remembered.
fn bench() -> Bench {
    Bench::with(Scripted::new(), &[("cache_validation", "never")])
}

/// The size of an object, and whether the store was asked.
async fn size(bench: &Bench, key: &str) -> (u64, bool) {
    let meta = bench.query().stat(&bench.at(key)).await.unwrap();
    (meta.size_bytes.unwrap(), !bench.store.take_calls().is_empty())
}

#[tokio::test]
async fn what_is_remembered_ends_before_a_change_and_once_more_behind_it() {
    let bench = bench();
    let at = bench.at("a");
    bench.store.place("a", pattern(1)).await;
    assert_eq!(size(&bench, "a").await, (1, true));
    assert_eq!(size(&bench, "a").await, (1, false));
    let change = bench.query().change(slice::from_ref(&at)).await.unwrap();
    assert_eq!(size(&bench, "a").await, (1, true), "asked before it took effect");
    bench.store.place("a", pattern(2)).await;
    change.ended(&Ok(()));
    assert_eq!(size(&bench, "a").await, (2, true));
    assert_eq!(size(&bench, "a").await, (2, false));
}

#[tokio::test]
async fn an_answer_that_is_older_than_a_change_is_not_remembered() {
    let bench = bench();
    let at = bench.at("a");
    bench.store.place("a", pattern(1)).await;
    let answer = Arc::new(Semaphore::new(0));
    bench.store.fail("stat", Fault::Delay(Arc::clone(&answer)));
    let query = bench.query();
    let change = async {
        while bench.store.take_calls().is_empty() {
            tokio::task::yield_now().await;
        }
        let change = bench.query().change(slice::from_ref(&at)).await.unwrap();
        bench.store.place("a", pattern(2)).await;
        change.ended(&Ok(()));
        answer.add_permits(1);
    };
    let (meta, ()) = tokio::join!(query.stat(&at), change);
    assert_eq!(meta.unwrap().size_bytes, Some(1), "told before the change");
    assert_eq!(size(&bench, "a").await, (2, true));
}

/// Clearing forgets objects, and not that they change.
#[tokio::test]
async fn clearing_remembers_which_objects_may_still_change() {
    let bench = bench();
    let at = bench.at("a");
    bench.store.place("a", pattern(1)).await;
    let change = bench.query().change(slice::from_ref(&at)).await.unwrap();
    drop(change);
    assert_eq!(size(&bench, "a").await, (1, true));
    bench.query().clear_cache().unwrap();
    assert_eq!(size(&bench, "a").await, (1, true));
    bench.store.place("a", pattern(2)).await;
    assert_eq!(size(&bench, "a").await, (2, true), "nobody heard what became of the change");
}

/// The store may carry it out later than what is asked for next.
#[tokio::test(start_paused = true)]
async fn of_a_change_that_nobody_heard_the_end_of_nothing_is_remembered_for_a_while() {
    let failed = |kind| Err::<(), Error>(Error::new(kind, "it broke"));
    let open: [Option<Result<()>>; 4] = [
        None,
        Some(failed(Kind::Unavailable)),
        Some(failed(Kind::Corrupt)),
        Some(failed(Kind::Cancelled)),
    ];
    for end in open {
        let bench = bench();
        let at = bench.at("a");
        bench.store.place("a", pattern(1)).await;
        let change = bench.query().change(slice::from_ref(&at)).await.unwrap();
        match &end {
            Some(result) => change.ended(result),
            None => drop(change),
        }
        assert_eq!(size(&bench, "a").await, (1, true), "{end:?}");
        // Another one, of which everything is known, changes nothing about the first.
        bench.query().change(slice::from_ref(&at)).await.unwrap().ended(&Ok(()));
        assert_eq!(size(&bench, "a").await, (1, true), "{end:?}");
        bench.store.place("a", pattern(2)).await;
        assert_eq!(size(&bench, "a").await, (2, true), "{end:?}");
        tokio::time::sleep(Duration::from_secs(301)).await;
        assert_eq!(size(&bench, "a").await, (2, true), "{end:?}");
        assert_eq!(size(&bench, "a").await, (2, false), "{end:?}: long ago");
    }
    for kind in [Kind::Conflict, Kind::NotFound, Kind::Denied, Kind::Invalid] {
        let bench = bench();
        bench.store.place("a", pattern(1)).await;
        bench.query().change(slice::from_ref(&bench.at("a"))).await.unwrap().ended(&failed(kind));
        assert_eq!(size(&bench, "a").await, (1, true), "{kind:?}");
        assert_eq!(size(&bench, "a").await, (1, false), "{kind:?}: the store refused");
    }
}

/// The first attempt took effect; none was answered.
#[tokio::test(start_paused = true)]
async fn a_put_that_fails_may_have_replaced_the_object() {
    let settings = [("cache_validation", "never"), ("request_deadline_ms", "2000")];
    let bench = Bench::with(Scripted::new(), &settings);
    bench.store.place("a", pattern(1)).await;
    assert_eq!(size(&bench, "a").await, (1, true));
    bench.store.fail("put", Fault::LoseAnswer);
    (0..100).for_each(|_| bench.store.fail("put", Fault::Cut));
    let payload = Payload::from(bytes::Bytes::from_static(b"new"));
    let put = bench.query().put(&bench.at("a"), payload, &PutOptions::default()).await;
    assert_eq!(put.unwrap_err().kind(), Kind::Unavailable);
    bench.store.take_calls();
    assert_eq!(size(&bench, "a").await, (3, true));
}

/// What a disk has of a version is not the object once this process saw that go.
#[tokio::test]
async fn what_was_removed_is_not_opened_from_the_disk() {
    let dir = Scratch::new("engine-changes");
    let path = dir.path().join("cache").display().to_string();
    let settings = [("cache_validation", "never"), ("cache_dir", path.as_str())];
    let bench = Bench::with(Scripted::new(), &settings);
    let at = bench.at("a.parquet");
    bench.store.place("a.parquet", pattern(2 * MIB)).await;
    let query = bench.query();
    let reader = query.open(&at, &Known::NOTHING).await.unwrap();
    reader.read_at(&query, &mut vec![0; 2 * MIB], 0).await.unwrap();
    bench.query().remove(slice::from_ref(&at)).await.unwrap();
    let error = bench.query().open(&at, &Known::NOTHING).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
}

/// Another process replaced the object, of which this one has a half: the read that finds that out
/// fails, and the next one asks.
#[tokio::test]
async fn a_get_that_meets_another_version_half_way_is_the_last_one_that_does() {
    let settings = [("cache_validation", "never"), ("cache_memory_bytes", "16MiB")];
    let bench = Bench::with(Scripted::new(), &settings);
    let place = async |data: Vec<u8>| {
        let content_type = Some("text/plain".to_string());
        let options = PutOptions { content_type, ..PutOptions::default() };
        bench.store.memory.put("a", Payload::from(bytes::Bytes::from(data)), &options).await
    };
    let get = async |range: GetRange| {
        let mut stream = bench.query().get(&bench.at("a"), GetRequest::from(range)).await?;
        let (mut all, mut buf) = (Vec::new(), vec![0; MIB]);
        loop {
            match stream.read(&mut buf).await? {
                0 => return Ok::<_, Error>(all),
                count => all.extend_from_slice(&buf[..count]),
            }
        }
    };
    for other in [true, false] {
        place(pattern(4 * MIB)).await.unwrap();
        let half = GetRange::Bounded(ByteRange { start: 0, end: 3 * MIB as u64 });
        assert!(get(half).await.unwrap() == pattern(3 * MIB));
        match other {
            true => drop(place(vec![7; 4 * MIB]).await.unwrap()),
            false => bench.store.memory.delete("a", None).await.unwrap(),
        }
        let expected = if other { Kind::Conflict } else { Kind::NotFound };
        assert_eq!(get(GetRange::All).await.unwrap_err().kind(), expected);
        match get(GetRange::All).await {
            Ok(all) => assert!(other && all == vec![7; 4 * MIB]),
            Err(error) => assert_eq!((other, error.kind()), (false, Kind::NotFound)),
        }
        bench.engine.clear_cache();
    }
}

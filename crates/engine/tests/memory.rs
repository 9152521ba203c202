//! Memory of what is fetched ahead, wanted by others while the requests for it still run: it is
//! waited for, so that nobody is refused and the limit holds.

use crate::support::{Bench, Scripted, pattern, read};
use penstock_base::ByteRange;
use penstock_engine::{Known, Location, Query, Reader};
use penstock_store::PutOptions;
use penstock_testkit::parquet::footer;
use std::sync::Arc;
use std::time::Duration;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const LIMIT: u64 = 64 << 20;

/// What was fetched ahead.
#[derive(Clone, Copy, Debug)]
enum Ahead {
    /// Of small reads in a row.
    Blocks,
    /// Of large ones.
    Begun,
    /// Of a scan.
    Columns,
}

const KINDS: [Ahead; 3] = [Ahead::Blocks, Ahead::Begun, Ahead::Columns];

fn bench() -> Bench {
    let store = Scripted::remote(Duration::from_millis(10));
    Bench::with(store, &[("memory_limit_bytes", "64MiB")])
}

/// A server of the same engine that serves only whole objects, so that reading one takes memory
/// within the limit or fails.
async fn page(bench: &Bench, len: usize) -> Location {
    let mut store = Scripted::new();
    (store.capabilities.list, store.capabilities.list_etag) = (false, false);
    store.ranges_ignored = true.into();
    store.place("page.csv", vec![7; len]).await;
    bench.engine.mount(Arc::new(store)).at("page.csv")
}

/// Reads until memory is held for requests whose answers do not come.
async fn read_ahead(bench: &Bench, query: &Query, kind: Ahead) -> Reader {
    let open = async |key: &str| query.open(&bench.at(key), &Known::NOTHING).await.unwrap();
    match kind {
        Ahead::Blocks => {
            bench.store.place("a.csv", pattern(40 * MIB)).await;
            let reader = open("a.csv").await;
            for index in 0..100 {
                read(&reader, query, index * 128 * KIB, 128 * KIB).await;
            }
            let _gate = bench.store.hold("get");
            let rest = async {
                for index in 100..320 {
                    read(&reader, query, index * 128 * KIB, 128 * KIB).await;
                }
            };
            let ended = tokio::time::timeout(Duration::from_secs(1), rest).await;
            assert!(ended.is_err(), "a block is on its way");
            reader
        }
        Ahead::Begun => {
            bench.store.place("a.bin", pattern(60 * MIB)).await;
            let reader = open("a.bin").await;
            for index in 0..3 {
                read(&reader, query, index * 8 * MIB, 8 * MIB).await;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            reader
        }
        Ahead::Columns => {
            const CHUNK: usize = MIB;
            let chunk = |index: usize| ByteRange {
                start: (4 + index * CHUNK) as u64,
                end: (4 + (index + 1) * CHUNK) as u64,
            };
            let mut data = pattern(4 + 24 * CHUNK);
            data.extend(footer(&(0..24).map(|index| vec![chunk(index)]).collect::<Vec<_>>()));
            bench.store.place("a.parquet", data.clone()).await;
            let reader = open("a.parquet").await;
            read(&reader, query, data.len() - 8, 8).await;
            for index in 0..7 {
                read(&reader, query, 4 + index * CHUNK, CHUNK).await;
            }
            let _gate = bench.store.hold("get");
            let rest = async {
                for index in 7..24 {
                    read(&reader, query, 4 + index * CHUNK, CHUNK).await;
                }
            };
            let ended = tokio::time::timeout(Duration::from_secs(1), rest).await;
            assert!(ended.is_err(), "columns are on their way");
            reader
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_to_stay_within_the_limit_waits_for_what_was_fetched_ahead() {
    for kind in KINDS {
        let bench = bench();
        let query = bench.query();
        let _reader = read_ahead(&bench, &query, kind).await;
        let held = bench.engine.budget().held_bytes();
        assert!(held > 3 << 20, "{kind:?}: {held}");
        let page = page(&bench, 62 * MIB).await;
        let whole = query.open(&page, &Known::NOTHING).await;
        assert!(whole.is_ok(), "{kind:?}: {}", whole.unwrap_err());
        assert!(bench.engine.budget().held_bytes() <= LIMIT);
    }
}

#[tokio::test(start_paused = true)]
async fn writers_pass_no_limit_while_what_was_fetched_ahead_comes_back() {
    for kind in KINDS {
        let bench = bench();
        let query = bench.query();
        let _reader = read_ahead(&bench, &query, kind).await;
        // None of these may send anything yet.
        let mut writers = Vec::new();
        for index in 0..12 {
            let at = bench.at(&format!("out/{index}"));
            let mut writer = query.create(&at, PutOptions::default()).unwrap();
            for _ in 0..20 {
                writer.write(&[7; 256 * KIB - 1]).await.unwrap();
                let held = bench.engine.budget().held_bytes();
                assert!(held <= LIMIT, "{kind:?}: {held}");
            }
            writers.push(writer);
        }
    }
}

/// The tasks that have the memory end on other threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_that_other_threads_give_back_is_waited_for() {
    let bench = Bench::with(Scripted::new(), &[("memory_limit_bytes", "64MiB")]);
    bench.store.place("a.csv", pattern(8 * MIB)).await;
    // Beside what opening keeps there is no room for a block.
    let page = page(&bench, 64 * MIB - 400 * KIB).await;
    for turn in 0..8 {
        bench.engine.clear_cache();
        bench.store.take_calls();
        let query = Arc::new(bench.query());
        // Opening and two blocks; one more waits.
        bench.store.hold("get").add_permits(3);
        let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
        let reader = Arc::new(reader);
        let reading = tokio::spawn({
            let (query, reader) = (Arc::clone(&query), Arc::clone(&reader));
            async move {
                for index in 0..128 {
                    read(&reader, &query, index * 64 * KIB, 64 * KIB).await;
                }
            }
        });
        while bench.store.calls.lock().unwrap().len() < 4 {
            tokio::task::yield_now().await;
        }
        reading.abort();
        assert!(reading.await.is_err(), "it waits for a block");
        let whole = query.open(&page, &Known::NOTHING).await;
        assert!(whole.is_ok(), "turn {turn}: {}", whole.unwrap_err());
        assert!(bench.engine.budget().held_bytes() <= LIMIT);
    }
}

//! A statement that is cancelled at any of its requests: nothing of it runs on, its memory is given
//! back, and the next one finds everything as it should be; so does the next process in the files
//! of the disk cache.

use crate::support::{Bench, Scripted, pattern};
use penstock_base::{ByteRange, Kind, Metric, Result};
use penstock_engine::{Known, Query};
use penstock_testkit::parquet::footer;
use penstock_testkit::scratch::Scratch;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, Semaphore};

const KIB: usize = 1 << 10;
const CHUNK: usize = 40 * KIB;
const GROUPS: usize = 3;
const COLUMNS: usize = 2;
const TEXT: usize = 900 * KIB;
const BYTES: usize = 6 * 1024 * KIB + 5;
const STEP: usize = 1536 * KIB;
const CONNECTIONS: usize = 8;

struct Lake {
    bench: Bench,
    settings: Vec<(&'static str, String)>,
    parquet: Vec<u8>,
    text: Vec<u8>,
    bytes: Vec<u8>,
}

fn far_store() -> Scripted {
    let mut store = Scripted::remote(Duration::from_millis(20));
    store.connections = Some(Arc::new(Semaphore::new(CONNECTIONS)));
    store
}

fn bench(store: Scripted, settings: &[(&'static str, String)]) -> Bench {
    let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    Bench::with(store, &settings)
}

impl Lake {
    async fn new(validation: &str, caches: &[(&'static str, &str)]) -> Self {
        let settings = [
            ("list_page_size", "3"),
            ("connections_per_host", "8"),
            ("cache_validation", validation),
            ("open_fetch_bytes", "32KiB"),
        ];
        let settings: Vec<_> = settings.iter().chain(caches).collect();
        let settings: Vec<_> =
            settings.iter().map(|(name, value)| (*name, (*value).to_string())).collect();
        let chunk = |index: usize| {
            ByteRange::of_len((4 + index * CHUNK) as u64, CHUNK as u64).expect("a small offset")
        };
        let mut parquet = pattern(4 + GROUPS * COLUMNS * CHUNK);
        let groups = (0..GROUPS)
            .map(|group| (group * COLUMNS..(group + 1) * COLUMNS).map(chunk).collect::<Vec<_>>());
        parquet.extend(footer(&groups.collect::<Vec<_>>()));
        let (text, bytes) = (pattern(TEXT), pattern(BYTES));
        let bench = bench(far_store(), &settings);
        for number in 0..6 {
            bench.store.place(&format!("t/p={number}/a.parquet"), parquet.clone()).await;
            bench.store.place(&format!("s/y={number}/m=1/a"), "x").await;
        }
        bench.store.place("text.csv", text.clone()).await;
        bench.store.place("bytes.bin", bytes.clone()).await;
        Lake { bench, settings, parquet, text, bytes }
    }

    /// As another process finds what this one has left.
    fn restarted(self) -> Self {
        let Lake { bench: Bench { store, engine }, settings, parquet, text, bytes } = self;
        let mut next = far_store();
        next.memory = Arc::clone(&store.memory);
        // The cache is closed with the engine.
        drop((engine, store));
        Lake { bench: bench(next, &settings), settings, parquet, text, bytes }
    }

    /// Lists, a glob by pages and one that descends, a scan of Parquet files, and readers that go
    /// front to back in small and in large steps.
    async fn statement(&self, query: &Query) -> Result<()> {
        let bench = &self.bench;
        assert_eq!(query.list(&bench.at("t")).await?.len(), 6);
        assert_eq!(query.glob(&bench.at("s/y=4/*/a")).await?.len(), 1);
        assert_eq!(query.glob(&bench.at("s/*4/m=1/*")).await?.len(), 1);
        let mut files = Vec::new();
        let mut pages = query.glob_pages(&bench.at("t/**/*.parquet")).await?;
        while let Some(page) = query.next_page(&mut pages).await? {
            files.extend(page);
        }
        assert_eq!(files.len(), 6);
        for file in &files {
            let known =
                Known { meta: file.meta.clone(), listed: Some(file.listed), ..Known::default() };
            let reader = query.open(&bench.at(&file.key), &known).await?;
            let end = self.parquet.len();
            let chunks = (0..GROUPS * COLUMNS).map(|index| 4 + index * CHUNK);
            let chunks = chunks.map(|start| start..start + CHUNK);
            for range in std::iter::once(end - 8..end).chain(chunks) {
                let mut buf = vec![0; range.len()];
                reader.read_at(query, &mut buf, range.start as u64).await?;
                assert!(buf == self.parquet[range.clone()], "{range:?} of {}", file.key);
            }
        }
        for (key, data, step) in
            [("text.csv", &self.text, 32 * KIB), ("bytes.bin", &self.bytes, STEP)]
        {
            let reader = query.open(&bench.at(key), &Known::NOTHING).await?;
            for start in (0..data.len()).step_by(step) {
                let end = data.len().min(start + step);
                let mut buf = vec![0; end - start];
                reader.read_at(query, &mut buf, start as u64).await?;
                assert!(buf == data[start..end], "{start} of {key}");
            }
        }
        Ok(())
    }

    /// A statement that is cancelled at one of its requests.
    async fn cancelled_at(self: &Arc<Self>, number: usize, told: &str) {
        let begun = Arc::new(Notify::new());
        *self.bench.store.tell_at.lock().unwrap() = Some((number, Arc::clone(&begun)));
        let query = Arc::new(self.bench.query());
        let running = tokio::spawn({
            let (lake, query) = (Arc::clone(self), Arc::clone(&query));
            async move { lake.statement(&query).await }
        });
        tokio::time::timeout(Duration::from_secs(600), begun.notified()).await.expect(told);
        // Half of them as their request leaves, half as its answer comes.
        if number.is_multiple_of(2) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        query.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(5), running).await.expect(told);
        if let Err(error) = ended.unwrap() {
            assert_eq!(error.kind(), Kind::Cancelled, "{told}: {error}");
        }
        drop(query);
        self.assert_idle(told).await;
        self.bench.store.take_calls();
        *self.bench.store.tell_at.lock().unwrap() = None;
    }

    /// Nothing is on its way.
    async fn assert_idle(&self, told: &str) {
        // The tasks that were stopped end when they are scheduled.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let store = &self.bench.store;
        assert_eq!(store.running.load(Ordering::Relaxed), 0, "{told}: a request runs on");
        let free = store.connections.as_ref().unwrap().available_permits();
        assert_eq!(free, CONNECTIONS, "{told}: an answer is held");
    }

    /// Nothing is on its way, and nothing is held but what is kept for the next statement.
    async fn assert_still(&self, told: &str) {
        self.assert_idle(told).await;
        self.bench.query().clear_cache().unwrap();
        // The block that the disk is about to have is held until it has it, on another thread.
        let since = Instant::now();
        while self.bench.engine.budget().held_bytes() > 0 {
            assert!(since.elapsed() < Duration::from_secs(20), "{told}: memory is held");
            std::thread::yield_now();
        }
    }
}

async fn at_every_request(validation: &str) {
    let lake = Arc::new(Lake::new(validation, &[]).await);
    lake.statement(&lake.bench.query()).await.unwrap();
    lake.assert_still("whole").await;
    let requests = lake.bench.store.take_calls().len();
    assert!(requests > 30, "{requests} requests");
    for number in 1..=requests {
        let told = format!("{validation}, request {number} of {requests}");
        lake.cancelled_at(number, &told).await;
        lake.assert_still(&told).await;
        lake.statement(&lake.bench.query()).await.expect(&told);
        lake.assert_still(&told).await;
        lake.bench.store.take_calls();
    }
}

#[tokio::test(start_paused = true)]
async fn a_statement_may_be_cancelled_at_each_of_its_requests() {
    at_every_request("time").await;
}

#[tokio::test(start_paused = true)]
async fn so_may_one_that_always_asks() {
    at_every_request("always").await;
}

/// What came before is kept, in memory and on the disk: the next statement and the next process
/// read it there, and no block of it is torn.
#[tokio::test(start_paused = true)]
async fn so_may_one_whose_bytes_are_cached() {
    let dir = Scratch::new("engine-cancelled");
    let disk = dir.path().join("cache");
    let caches = [("cache_dir", disk.to_str().unwrap()), ("cache_memory_bytes", "64MiB")];
    let mut lake = Arc::new(Lake::new("time", &caches).await);
    lake.statement(&lake.bench.query()).await.unwrap();
    lake.assert_still("whole").await;
    let requests = lake.bench.store.take_calls().len();
    assert!(requests > 30, "{requests} requests");
    for number in 1..=requests {
        let told = format!("cached, request {number} of {requests}");
        lake.cancelled_at(number, &told).await;
        lake.statement(&lake.bench.query()).await.expect(&told);
        lake.assert_idle(&told).await;
        lake = Arc::new(Arc::into_inner(lake).expect("the statement is over").restarted());
        lake.statement(&lake.bench.query()).await.expect(&told);
        let metrics = lake.bench.engine.metrics();
        assert!(metrics.get(Metric::CacheDiskBytesRead) > BYTES as u64, "{told}: nothing was kept");
        assert_eq!(metrics.get(Metric::CacheDiskBlocksCorrupt), 0, "{told}: a block is torn");
        lake.assert_still(&told).await;
        lake.bench.store.take_calls();
    }
}

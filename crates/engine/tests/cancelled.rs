//! A statement that is cancelled at any of its requests: nothing of it runs on, its memory is given
//! back, and the next one finds everything as it should be.

#![allow(clippy::unwrap_used)]

mod support;

use penstock_base::{ByteRange, Kind, Result};
use penstock_engine::{Known, Query};
use penstock_testkit::parquet::footer;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use support::{Bench, Scripted, pattern};
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
    parquet: Vec<u8>,
    text: Vec<u8>,
    bytes: Vec<u8>,
}

impl Lake {
    async fn new(validation: &str) -> Self {
        let mut store = Scripted::remote(Duration::from_millis(20));
        store.connections = Some(Arc::new(Semaphore::new(CONNECTIONS)));
        let settings = [
            ("list_page_size", "3"),
            ("connections_per_host", "8"),
            ("cache_validation", validation),
            ("open_fetch_bytes", "32KiB"),
        ];
        let chunk = |index: usize| {
            ByteRange::of_len((4 + index * CHUNK) as u64, CHUNK as u64).expect("a small offset")
        };
        let mut parquet = pattern(4 + GROUPS * COLUMNS * CHUNK);
        let groups = (0..GROUPS)
            .map(|group| (group * COLUMNS..(group + 1) * COLUMNS).map(chunk).collect::<Vec<_>>());
        parquet.extend(footer(&groups.collect::<Vec<_>>()));
        let (text, bytes) = (pattern(TEXT), pattern(BYTES));
        let bench = Bench::with(store, &settings);
        for number in 0..6 {
            bench.store.place(&format!("t/p={number}/a.parquet"), parquet.clone()).await;
            bench.store.place(&format!("s/y={number}/m=1/a"), "x").await;
        }
        bench.store.place("text.csv", text.clone()).await;
        bench.store.place("bytes.bin", bytes.clone()).await;
        Lake { bench, parquet, text, bytes }
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

    /// Nothing is on its way, and nothing is held but what is kept for the next statement.
    async fn assert_still(&self, told: &str) {
        // The tasks that were stopped end when they are scheduled.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let store = &self.bench.store;
        assert_eq!(store.running.load(Ordering::Relaxed), 0, "{told}: a request runs on");
        let free = store.connections.as_ref().unwrap().available_permits();
        assert_eq!(free, CONNECTIONS, "{told}: an answer is held");
        self.bench.engine.clear_cache();
        assert_eq!(self.bench.engine.budget().held_bytes(), 0, "{told}: memory is held");
    }
}

async fn at_every_request(validation: &str) {
    let lake = Arc::new(Lake::new(validation).await);
    lake.statement(&lake.bench.query()).await.unwrap();
    lake.assert_still("whole").await;
    let requests = lake.bench.store.take_calls().len();
    assert!(requests > 30, "{requests} requests");
    for number in 1..=requests {
        let told = format!("{validation}, request {number} of {requests}");
        let begun = Arc::new(Notify::new());
        *lake.bench.store.tell_at.lock().unwrap() = Some((number, Arc::clone(&begun)));
        let query = Arc::new(lake.bench.query());
        let running = tokio::spawn({
            let (lake, query) = (Arc::clone(&lake), Arc::clone(&query));
            async move { lake.statement(&query).await }
        });
        tokio::time::timeout(Duration::from_secs(600), begun.notified()).await.expect(&told);
        // Half of them as their request leaves, half as its answer comes.
        if number % 2 == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        query.cancel();
        let told_of = tokio::time::timeout(Duration::from_secs(5), running).await.expect(&told);
        if let Err(error) = told_of.unwrap() {
            assert_eq!(error.kind(), Kind::Cancelled, "{told}: {error}");
        }
        drop(query);
        lake.assert_still(&told).await;
        lake.bench.store.take_calls();
        *lake.bench.store.tell_at.lock().unwrap() = None;
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

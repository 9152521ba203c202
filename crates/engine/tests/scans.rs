//! Globs and Parquet scans on a virtual clock, made from seeds: what is listed and fetched ahead,
//! by several threads, over stores that fail, in statements that are cancelled. Whatever the seed:
//! no deadlock, every byte right, and nothing left behind.

#![allow(clippy::unwrap_used)]

mod support;

use penstock_base::{ByteRange, Kind, Metric, Result};
use penstock_engine::{Entry, Known, Query};
use penstock_testkit::parquet::footer;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use support::{Bench, Fault, Scripted, pattern};
use tokio::sync::Semaphore;

const SEEDS: u64 = 1_000;

struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn of(&mut self, choices: &[&'static str]) -> &'static str {
        choices[self.below(choices.len())]
    }
}

/// The files of a lake, all of them alike, and what a scan reads of each.
struct Lake {
    data: Vec<u8>,
    files: usize,
    wanted: Vec<std::ops::Range<usize>>,
}

impl Lake {
    fn of(chance: &mut Chance) -> Self {
        let (groups, columns) = (1 + chance.below(5), 1 + chance.below(4));
        let chunk = 512 + chance.below(24 << 10);
        let start = |group: usize, column: usize| 4 + (group * columns + column) * chunk;
        let mut data = pattern(start(groups, 0));
        let range = |group, column| {
            ByteRange::of_len(start(group, column) as u64, chunk as u64).expect("a small offset")
        };
        let layout = (0..groups).map(|group| (0..columns).map(|c| range(group, c)).collect());
        data.extend(footer(&layout.collect::<Vec<Vec<ByteRange>>>()));
        let read: Vec<_> = (0..columns).filter(|_| chance.below(3) > 0).collect();
        let mut wanted = Vec::new();
        for group in 0..groups {
            if chance.below(5) > 0 {
                wanted.extend(read.iter().map(|c| start(group, *c)..start(group, *c) + chunk));
            }
        }
        Lake { data, files: 1 + chance.below(14), wanted }
    }

    /// A thread, which takes one file after the other.
    async fn read(
        &self,
        query: &Query,
        bench: &Bench,
        all: &[Entry],
        next: &AtomicUsize,
    ) -> Result<()> {
        while let Some(file) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (meta, listed) = (file.meta.clone(), Some(file.listed));
            let known = Known { meta, listed, ..Known::default() };
            let reader = query.open(&bench.at(&file.key), &known).await?;
            let tail = self.data.len() - 8..self.data.len();
            for range in std::iter::once(&tail).chain(&self.wanted) {
                let mut buf = vec![0; range.len()];
                reader.read_at(query, &mut buf, range.start as u64).await?;
                assert!(buf == self.data[range.clone()], "{range:?} of {}", file.key);
            }
        }
        Ok(())
    }

    async fn scan(&self, query: &Query, bench: &Bench, threads: usize) -> Result<()> {
        let mut all = Vec::new();
        let mut pages = query.glob_pages(&bench.at("t/*/*.parquet")).await?;
        while let Some(page) = query.next_page(&mut pages).await? {
            all.extend(page);
        }
        assert_eq!(all.len(), self.files);
        let next = AtomicUsize::new(0);
        let readers = (0..threads).map(|_| self.read(query, bench, &all, &next));
        futures_util::future::try_join_all(readers).await.map(drop)
    }
}

fn bench(chance: &mut Chance) -> (Bench, usize) {
    let mut store = Scripted::remote(Duration::from_millis(chance.below(60) as u64));
    let connections = 2 + chance.below(15);
    store.connections = Some(Arc::new(Semaphore::new(connections)));
    for _ in 0..chance.below(5) {
        let fault = match chance.below(4) {
            0 => Fault::Throttle,
            1 => Fault::CutBody(chance.below(9000)),
            _ => Fault::Cut,
        };
        store.fail(if chance.below(4) == 0 { "list" } else { "get" }, fault);
    }
    let count = connections.to_string();
    let settings = [
        ("connections_per_host", &*count),
        ("list_page_size", chance.of(&["1", "3", "7", "5000"])),
        ("open_fetch_bytes", chance.of(&["0", "4KiB", "32KiB", "256KiB"])),
        ("cache_validation", chance.of(&["always", "query", "time", "never"])),
        ("retry_base_ms", "1"),
    ];
    (Bench::with(store, &settings), connections)
}

async fn run(seed: u64) -> (u64, u64, bool) {
    let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let lake = Arc::new(Lake::of(&mut chance));
    let (bench, connections) = bench(&mut chance);
    for number in 0..lake.files {
        bench.store.place(&format!("t/p={}/{number}.parquet", number % 3), lake.data.clone()).await;
    }
    let (threads, query) = (1 + chance.below(4), bench.query());
    let mut scan = Box::pin(lake.scan(&query, &bench, threads));
    // A statement in five is stopped at some moment.
    let stop_ms = if chance.below(5) == 0 { chance.below(600) as u64 } else { 600_000 };
    let stop = async {
        tokio::time::sleep(Duration::from_millis(stop_ms)).await;
        query.cancel();
    };
    let (told, cancelled) = tokio::select! {
        told = &mut scan => (told, false),
        () = stop => {
            assert!(stop_ms < 600_000, "seed {seed}: it stands still");
            ((&mut scan).await, true)
        }
    };
    drop(scan);
    match told {
        Err(error) if cancelled => {
            assert_eq!(error.kind(), Kind::Cancelled, "seed {seed}: {error}")
        }
        told => told.unwrap_or_else(|error| panic!("seed {seed}: {error}")),
    }
    let hits = query.metrics().get(Metric::ReadAheadHits);
    let asked = query.metrics().get(Metric::ReadAheadBytes);
    drop(query);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.store.running.load(Ordering::Relaxed), 0, "seed {seed}: a request runs on");
    let free = bench.store.connections.as_ref().unwrap().available_permits();
    assert_eq!(free, connections, "seed {seed}: an answer is held");
    bench.engine.clear_cache();
    assert_eq!(bench.engine.budget().held_bytes(), 0, "seed {seed}: memory is held");
    (hits, asked, cancelled)
}

#[test]
fn every_scan_ends_with_the_right_bytes_whatever_the_seed() {
    let (mut hits, mut ahead, mut stopped) = (0, 0, 0);
    for seed in 0..SEEDS {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        let (hit, asked, cancelled) = runtime.block_on(run(seed));
        hits += hit;
        ahead += u64::from(asked > 0);
        stopped += u64::from(cancelled);
    }
    // That it was no idle talk.
    assert!(hits > SEEDS && ahead > SEEDS / 2 && stopped > SEEDS / 20, "{hits} {ahead} {stopped}");
}

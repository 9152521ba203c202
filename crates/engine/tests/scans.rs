//! Globs and Parquet scans on a virtual clock, made from seeds: what is listed and fetched ahead,
//! by several threads, over stores that fail, in statements that are cancelled. Whatever the seed:
//! no deadlock, every byte right, memory within its limit, little fetched in vain of whole scans,
//! nothing asked for twice where it is cached, and nothing left behind.
//!
//! `PENSTOCK_SCANS_SEED=N cargo test -p penstock-engine --test scans` runs one seed alone.

#![allow(clippy::unwrap_used)]

mod support;

use penstock_base::settings::Validation;
use penstock_base::{ByteRange, Kind, Metric, Result, Settings};
use penstock_engine::{Entry, Known, Query};
use penstock_testkit::parquet::footer;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use support::{Bench, Fault, Scripted, pattern};
use tokio::sync::Semaphore;

const SEEDS: u64 = 10_000;

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
    is_whole: bool,
    /// The footer, which is read first.
    end: std::ops::Range<usize>,
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
        let end = start(groups, 0)..data.len();
        let read: Vec<_> = (0..columns).filter(|_| chance.below(3) > 0).collect();
        let mut wanted = Vec::new();
        for group in 0..groups {
            if chance.below(5) > 0 {
                wanted.extend(read.iter().map(|c| start(group, *c)..start(group, *c) + chunk));
            }
        }
        let is_whole = wanted.len() == groups * columns;
        Lake { data, files: 1 + chance.below(14), end, wanted, is_whole }
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
            for range in [&tail, &self.end].into_iter().chain(&self.wanted) {
                let mut buf = vec![0; range.len()];
                reader.read_at(query, &mut buf, range.start as u64).await?;
                bench.within_memory();
                assert!(buf == self.data[range.clone()], "{range:?} of {}", file.key);
            }
        }
        Ok(())
    }

    fn read_bytes(&self) -> u64 {
        let of_each: usize = self.wanted.iter().map(std::ops::Range::len).sum();
        ((of_each + self.end.len()) * self.files) as u64
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

impl Bench {
    fn within_memory(&self) {
        let held = self.engine.budget().held_bytes();
        let limit = self.engine.settings().memory_limit_bytes;
        assert!(held <= limit, "{held} bytes of memory are held, of {limit}");
    }

    /// Whether whatever is read stays here, and counts without a question.
    fn keeps_all(&self) -> bool {
        let settings = self.engine.settings();
        settings.cache_memory_bytes >= 64 << 20
            && settings.memory_limit_bytes >= 1 << 30
            && settings.cache_validation == Validation::Never
    }

    /// Bytes that GETs asked for, of files of so many.
    fn asked_bytes(&self, size: u64) -> u64 {
        let of = |call: &String| {
            let range = call.strip_prefix("get ")?.split_once(' ')?.1;
            if let Some(count) = range.strip_prefix('-') {
                return Some(size.min(count.parse().ok()?));
            }
            let (start, end) = range.split_once("..")?;
            Some(end.parse::<u64>().ok()?.min(size) - start.parse::<u64>().ok()?)
        };
        self.store.calls.lock().unwrap().iter().filter_map(of).sum()
    }

    async fn nothing_is_left(&self, connections: usize) {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(self.store.running.load(Ordering::Relaxed), 0, "a request runs on");
        let free = self.store.connections.as_ref().unwrap().available_permits();
        assert_eq!(free, connections, "an answer is held");
    }
}

fn bench(chance: &mut Chance) -> (Bench, usize, usize) {
    let mut store = Scripted::remote(Duration::from_millis(chance.below(60) as u64));
    let connections = 2 + chance.below(15);
    store.connections = Some(Arc::new(Semaphore::new(connections)));
    let faults = chance.below(5);
    for _ in 0..faults {
        let fault = match chance.below(4) {
            0 => Fault::Throttle,
            1 => Fault::CutBody(chance.below(9000)),
            _ => Fault::Cut,
        };
        store.fail(if chance.below(4) == 0 { "list" } else { "get" }, fault);
    }
    let count = connections.to_string();
    let mut settings = Settings::default();
    for (name, value) in [
        ("connections_per_host", &*count),
        ("list_page_size", chance.of(&["1", "3", "7", "5000"])),
        ("open_fetch_bytes", chance.of(&["0", "4KiB", "32KiB", "256KiB"])),
        ("cache_validation", chance.of(&["always", "query", "time", "never"])),
        ("cache_memory_bytes", chance.of(&["0", "0", "1MiB", "64MiB"])),
        ("retry_base_ms", "1"),
    ] {
        settings.set(name, value).unwrap();
    }
    // Beyond the range of the table, so that small files press on it as large ones do.
    if chance.below(3) == 0 {
        settings.memory_limit_bytes = (512 << 10) + chance.below(8 << 20) as u64;
    }
    (Bench::of(store, settings), connections, faults)
}

/// What came of a seed.
#[derive(Debug, Default)]
struct Outcome {
    hits: u64,
    ahead: u64,
    stopped: u64,
    /// Of scans that read all there is, to its end.
    read_bytes: u64,
    asked_bytes: u64,
    again: u64,
}

impl Outcome {
    fn add(&mut self, other: &Outcome) {
        self.hits += other.hits;
        self.ahead += other.ahead;
        self.stopped += other.stopped;
        self.read_bytes += other.read_bytes;
        self.asked_bytes += other.asked_bytes;
        self.again += other.again;
    }
}

async fn run(seed: u64) -> Outcome {
    let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let lake = Lake::of(&mut chance);
    let (bench, connections, faults) = bench(&mut chance);
    for number in 0..lake.files {
        bench.store.place(&format!("t/p={}/{number}.parquet", number % 3), lake.data.clone()).await;
    }
    let (threads, query) = (1 + chance.below(4), bench.query());
    let mut scan = Box::pin(lake.scan(&query, &bench, threads));
    // A statement in five is stopped at some moment.
    let stop_ms = if chance.below(5) == 0 { chance.below(600) as u64 } else { 600_000 };
    let stop = async {
        for _ in 0..stop_ms {
            // What is fetched ahead takes memory between reads too.
            bench.within_memory();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        query.cancel();
    };
    let (told, cancelled) = tokio::select! {
        told = &mut scan => (told, false),
        () = stop => {
            assert!(stop_ms < 600_000, "it stands still");
            ((&mut scan).await, true)
        }
    };
    drop(scan);
    match told {
        Err(error) if cancelled => assert_eq!(error.kind(), Kind::Cancelled, "{error}"),
        told => told.unwrap_or_else(|error| panic!("{error}")),
    }
    let hits = query.metrics().get(Metric::ReadAheadHits);
    let asked = query.metrics().get(Metric::ReadAheadBytes);
    drop(query);
    bench.nothing_is_left(connections).await;
    let mut outcome = Outcome { hits, ahead: u64::from(asked > 0), ..Outcome::default() };
    if cancelled {
        outcome.stopped = 1;
    } else {
        if faults == 0 && lake.is_whole {
            outcome.read_bytes = lake.read_bytes();
            outcome.asked_bytes = bench.asked_bytes(lake.data.len() as u64);
        }
        if bench.keeps_all() {
            // What was read is here: a second statement asks for names at most.
            bench.store.take_calls();
            let query = bench.query();
            lake.scan(&query, &bench, threads).await.unwrap();
            let calls = bench.store.take_calls();
            assert!(calls.iter().all(|call| call.starts_with("list")), "{calls:?}");
            outcome.again = 1;
            drop(query);
            bench.nothing_is_left(connections).await;
        }
    }
    bench.engine.clear_cache();
    assert_eq!(bench.engine.budget().held_bytes(), 0, "memory is held");
    outcome
}

fn run_seed(seed: u64) -> Outcome {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    let done = catch_unwind(AssertUnwindSafe(|| runtime.block_on(run(seed))));
    done.unwrap_or_else(|_| panic!("seed {seed} fails; PENSTOCK_SCANS_SEED={seed} runs it again"))
}

#[test]
fn every_scan_ends_with_the_right_bytes_whatever_the_seed() {
    if let Ok(seed) = std::env::var("PENSTOCK_SCANS_SEED") {
        run_seed(seed.parse().unwrap());
        return;
    }
    let next = AtomicU64::new(0);
    let work = || {
        let mut sum = Outcome::default();
        loop {
            match next.fetch_add(1, Ordering::Relaxed) {
                seed if seed < SEEDS => sum.add(&run_seed(seed)),
                _ => return sum,
            }
        }
    };
    let mut sum = Outcome::default();
    std::thread::scope(|threads| {
        for worker in [threads.spawn(work), threads.spawn(work)] {
            sum.add(&worker.join().expect("no seed fails"));
        }
    });
    // That it was no idle talk.
    assert!(sum.hits > SEEDS && sum.ahead > SEEDS / 2 && sum.stopped > SEEDS / 20, "{sum:?}");
    assert!(sum.again > SEEDS / 50, "{sum:?}");
    // Of scans of all there is, at most a tenth is asked for in vain.
    assert!(sum.read_bytes > 0 && sum.asked_bytes * 10 <= sum.read_bytes * 11, "{sum:?}");
}

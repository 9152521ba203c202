//! Statements of one process that scan a file at the same time, on a virtual clock: what is fetched
//! ahead of one of them is there for all, and in vain only where none of them reads it. A model of
//! DuckDB's external file cache stands in between: what one has read, another does not ask for.
//!
//! `PENSTOCK_SIDE_BY_SIDE_SEED=N cargo test -p penstock-engine --test side_by_side` runs one seed.

#![allow(clippy::unwrap_used)]

mod support;

use futures_util::future::join_all;
use penstock_base::{ByteRange, Kind, Metric, Settings};
use penstock_engine::{Known, Query};
use penstock_testkit::parquet::footer;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::Duration;
use support::{Bench, Link, Scripted, pattern};
use tokio::time::{Instant, sleep};

const SEEDS: u64 = 150;
const KIB: usize = 1 << 10;
const CHUNK: usize = 250 * KIB;
const COLUMNS: usize = 2;
const LATENCY: Duration = Duration::from_millis(20);

/// A file of row groups of two columns, both of which are read.
struct File {
    bench: Bench,
    row_groups: usize,
    data: Vec<u8>,
    /// What DuckDB keeps of it, if it does: offsets of column chunks.
    kept: Option<Mutex<HashSet<usize>>>,
}

/// One that scans it.
#[derive(Clone, Copy, Debug)]
struct Statement {
    begins_after: Duration,
    /// What it takes to work on a column chunk.
    works_for: Duration,
    /// It is told that all of the columns are read.
    is_told: bool,
    is_stopped_after: Option<Duration>,
}

const AT_ONCE: Statement = Statement {
    begins_after: Duration::ZERO,
    works_for: Duration::from_millis(2),
    is_told: true,
    is_stopped_after: None,
};

impl File {
    async fn of(row_groups: usize, is_kept: bool, settings: Settings) -> Self {
        let mut store = Scripted::remote(LATENCY);
        store.link = Some(Link::new(200e6));
        let bench = Bench::of(store, settings);
        let chunk = |index: usize| ByteRange {
            start: (4 + index * CHUNK) as u64,
            end: (4 + (index + 1) * CHUNK) as u64,
        };
        let groups: Vec<Vec<ByteRange>> = (0..row_groups)
            .map(|group| (0..COLUMNS).map(|column| chunk(group * COLUMNS + column)).collect())
            .collect();
        let mut data = pattern(4 + row_groups * COLUMNS * CHUNK);
        data.extend(pattern(256 * KIB));
        data.extend(footer(&groups));
        bench.store.place("one.parquet", data.clone()).await;
        File { bench, row_groups, data, kept: is_kept.then(Mutex::default) }
    }

    /// Reads all row groups; gives how many column chunks it asked for.
    async fn scan(&self, query: &Query, statement: Statement) -> penstock_base::Result<usize> {
        sleep(statement.begins_after).await;
        let at = self.bench.at("one.parquet");
        let known = Known { host_keeps: self.kept.is_some(), ..Known::NOTHING };
        let reader = query.open(&at, &known).await?;
        let mut end = vec![0; 8];
        reader.read_at(query, &mut end, self.data.len() as u64 - 8).await?;
        if statement.is_told {
            query.will_read(&at, &[0, 1], false);
        }
        let mut asked = 0;
        for start in (0..self.row_groups * COLUMNS).map(|index| 4 + index * CHUNK) {
            let is_kept = |kept: &Mutex<HashSet<usize>>| kept.lock().unwrap().contains(&start);
            if !self.kept.as_ref().is_some_and(is_kept) {
                let mut buf = vec![0; CHUNK];
                reader.read_at(query, &mut buf, start as u64).await?;
                assert!(buf == self.data[start..start + CHUNK], "at {start}");
                if let Some(kept) = &self.kept {
                    kept.lock().unwrap().insert(start);
                }
                asked += 1;
            }
            self.within_memory();
            sleep(statement.works_for).await;
        }
        Ok(asked)
    }

    fn within_memory(&self) {
        let held = self.bench.engine.budget().held_bytes();
        let limit = self.bench.engine.settings().memory_limit_bytes;
        assert!(held <= limit, "{held} bytes of memory are held, of {limit}");
    }

    /// All of them at the same time; gives how long each took, of those that were not stopped.
    async fn run(&self, statements: &[Statement]) -> Vec<Duration> {
        let run = |statement: Statement| async move {
            let (query, begun) = (self.bench.query(), Instant::now());
            let mut scan = Box::pin(self.scan(&query, statement));
            let stop = statement.is_stopped_after.unwrap_or(Duration::from_secs(600));
            tokio::select! {
                done = &mut scan => {
                    done.unwrap();
                    return Some(begun.elapsed());
                }
                () = sleep(stop) => query.cancel(),
            }
            assert!(statement.is_stopped_after.is_some(), "it stands still");
            // It may have read all that it wants just before.
            if let Err(error) = scan.await {
                assert_eq!(error.kind(), Kind::Cancelled, "{error}");
            }
            None
        };
        let took = join_all(statements.iter().map(|statement| run(*statement))).await;
        took.into_iter().flatten().collect()
    }

    /// Bytes that the store was asked for, and those that were fetched ahead in vain.
    fn outcome(&self) -> (u64, u64) {
        let metrics = self.bench.engine.metrics();
        (metrics.get(Metric::BytesRead), metrics.get(Metric::ReadAheadWastedBytes))
    }

    async fn nothing_is_left(self) {
        sleep(Duration::from_secs(1)).await;
        let running = &self.bench.store.running;
        assert_eq!(running.load(std::sync::atomic::Ordering::Relaxed), 0, "a request runs on");
        self.bench.engine.clear_cache();
        assert_eq!(self.bench.engine.budget().held_bytes(), 0, "memory is held");
    }
}

#[tokio::test(start_paused = true)]
async fn four_equal_scans_at_once_are_sent_little_more_than_the_file() {
    for works_for in [1, 3, 8].map(Duration::from_millis) {
        for apart in [0, 7, 45].map(Duration::from_millis) {
            for is_told in [true, false] {
                let file = File::of(64, true, Settings::default()).await;
                let statement = |number: u32| Statement {
                    begins_after: apart * number,
                    works_for,
                    is_told,
                    ..AT_ONCE
                };
                file.run(&[0, 1, 2, 3].map(statement)).await;
                let (sent, wasted) = file.outcome();
                let what =
                    format!("{sent} sent, {wasted} in vain, {works_for:?} {apart:?} {is_told}");
                let size = file.data.len() as u64;
                assert!(wasted * 10 <= sent, "{what}");
                assert!(sent <= size + size / 10, "{what}");
                file.nothing_is_left().await;
            }
        }
    }
}

/// One that is stopped takes nothing from the others but what it would have brought them.
#[tokio::test(start_paused = true)]
async fn a_statement_that_is_stopped_does_not_hold_up_another_one() {
    for stopped_after in [5, 25, 45, 60, 90, 130].map(Duration::from_millis) {
        for is_kept in [true, false] {
            let file = File::of(64, is_kept, Settings::default()).await;
            let alone = file.run(&[AT_ONCE]).await[0];
            file.nothing_is_left().await;
            let file = File::of(64, is_kept, Settings::default()).await;
            let stopped = Statement { is_stopped_after: Some(stopped_after), ..AT_ONCE };
            let goes_on = Statement { begins_after: Duration::from_millis(1), ..AT_ONCE };
            let took = file.run(&[stopped, goes_on]).await[0];
            // It waits for what was on its way for both, once more.
            let most = alone + 4 * LATENCY;
            assert!(took <= most, "{took:?}, alone {alone:?}, {stopped_after:?} {is_kept}");
            file.nothing_is_left().await;
        }
    }
}

/// Where nothing stands in between each of them is given each byte, and the store is asked once.
#[tokio::test(start_paused = true)]
async fn scans_whose_host_keeps_nothing_share_what_is_ahead_of_them() {
    let file = File::of(64, false, Settings::default()).await;
    let one = File::of(64, false, Settings::default()).await;
    let alone = one.run(&[AT_ONCE]).await[0];
    let took = file.run(&[AT_ONCE; 4]).await;
    let (sent, wasted) = file.outcome();
    let size = file.data.len() as u64;
    assert!(wasted * 10 <= sent && sent <= size + size / 10, "{wasted} of {sent} in vain");
    assert!(took.iter().all(|took| *took <= alone + LATENCY), "{took:?}, alone {alone:?}");
    file.nothing_is_left().await;
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Gives what was sent and what was in vain, of statements that all went on to the end.
async fn run(seed: u64) -> (u64, u64) {
    let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let memory_limit_bytes = [2 << 20, 16 << 20, 1 << 30][chance.below(3) as usize];
    let mut settings = Settings { memory_limit_bytes, ..Settings::default() };
    settings.set("cache_memory_bytes", ["0", "0", "64MiB"][chance.below(3) as usize]).unwrap();
    let file = File::of(1 + chance.below(30) as usize, chance.below(3) > 0, settings).await;
    let statements: Vec<Statement> = (0..2 + chance.below(3))
        .map(|_| Statement {
            begins_after: Duration::from_millis(chance.below(80)),
            works_for: Duration::from_micros(100 + chance.below(8_000)),
            is_told: chance.below(2) == 0,
            is_stopped_after: (chance.below(4) == 0)
                .then(|| Duration::from_millis(chance.below(200))),
        })
        .collect();
    file.run(&statements).await;
    let outcome = file.outcome();
    file.nothing_is_left().await;
    let is_whole = statements.iter().all(|statement| statement.is_stopped_after.is_none());
    if is_whole { outcome } else { (0, 0) }
}

#[test]
fn whatever_the_seed_all_bytes_are_right_and_few_are_in_vain() {
    let one = std::env::var("PENSTOCK_SIDE_BY_SIDE_SEED").ok();
    let one: Option<u64> = one.map(|seed| seed.parse().unwrap());
    let (mut sent, mut wasted) = (0, 0);
    for seed in one.map_or(0..SEEDS, |seed| seed..seed + 1) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        let done = catch_unwind(AssertUnwindSafe(|| runtime.block_on(run(seed))));
        let done = done.unwrap_or_else(|_| {
            panic!("seed {seed} fails; PENSTOCK_SIDE_BY_SIDE_SEED={seed} runs it again")
        });
        (sent, wasted) = (sent + done.0, wasted + done.1);
    }
    assert!(wasted * 20 <= sent, "{wasted} of {sent} in vain");
}

//! What readers do in one simulation, and what has to hold afterwards.

use crate::store::{Model, OBJECT, OBJECT_BYTES, One, PAGE, PAGE_BYTES, SimStore, meta};
use penstock_base::{Kind, Metric, Settings};
use penstock_engine::{Engine, Known, Query, Random, Reader, SeededRandom};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::time::{Instant, sleep, timeout};

/// No read takes longer, however many others there are and whatever goes wrong.
const READ_MAX: Duration = Duration::from_secs(120);

/// One reader: reads one after the other.
#[derive(Clone, Debug)]
pub struct Plan {
    key: &'static str,
    begins_after: Duration,
    /// Offset and length.
    reads: Vec<(u64, usize)>,
    /// The query is cancelled after this time.
    cancelled_after: Option<Duration>,
    /// The reader's future is dropped after this time.
    dropped_after: Option<Duration>,
}

/// One simulation.
#[derive(Clone, Debug)]
pub struct Scenario {
    seed: u64,
    model: Model,
    settings: Settings,
    readers: Vec<Plan>,
}

/// What became of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub reads: u64,
    pub cancelled: u64,
    pub shared: u64,
    pub hedged: u64,
    pub replaced: u64,
    pub gets: u64,
    pub refused: u64,
    pub sent_bytes: u64,
    /// Seeds in which nothing was asked for ahead of reads.
    pub exact: u64,
    /// Objects that were read whole, and those that found no memory.
    pub pages: u64,
    pub without_memory: u64,
    pub longest: Duration,
}

impl Outcome {
    pub fn add(&mut self, other: &Outcome) {
        self.reads += other.reads;
        self.cancelled += other.cancelled;
        self.shared += other.shared;
        self.hedged += other.hedged;
        self.replaced += other.replaced;
        self.gets += other.gets;
        self.refused += other.refused;
        self.sent_bytes += other.sent_bytes;
        self.exact += other.exact;
        self.pages += other.pages;
        self.without_memory += other.without_memory;
        self.longest = self.longest.max(other.longest);
    }
}

/// Numbers from a seed.
struct Dice(SeededRandom);

impl Dice {
    fn chance(&self, probability: f64) -> bool {
        self.0.unit() < probability
    }

    /// Spread evenly over the orders of magnitude.
    fn between(&self, least: f64, most: f64) -> f64 {
        least * (most / least).powf(self.0.unit())
    }

    fn whole(&self, least: u64, most: u64) -> u64 {
        least + ((most - least + 1) as f64 * self.0.unit()) as u64
    }

    fn model(&self) -> Model {
        let connection_bytes_per_ms = self.between(5_000.0, 500_000.0);
        Model {
            latency_ms: self.between(0.5, 150.0),
            tail: if self.chance(0.5) { 0.02 } else { 0.0 },
            connection_bytes_per_ms,
            link_bytes_per_ms: connection_bytes_per_ms * self.between(1.0, 8.0),
            capacity: if self.chance(0.3) { self.whole(1, 10) as usize } else { usize::MAX },
            servers: if self.chance(0.2) { self.whole(1, 8) as usize } else { usize::MAX },
            fails: if self.chance(0.3) { 0.05 } else { 0.0 },
            breaks: if self.chance(0.3) { 0.1 } else { 0.0 },
            trickles: if self.chance(0.2) { 0.03 } else { 0.0 },
        }
    }

    fn settings(&self) -> Settings {
        // Beyond the ranges of the table, so that small objects do what large ones do.
        Settings {
            memory_limit_bytes: self.between(64e3, 16e6) as u64,
            part_size_bytes: 64_000,
            open_fetch_bytes: 0,
            request_deadline_ms: 3_600_000,
            request_log_entries: 0,
            parallel_read_chunk_size_bytes: self.between(16e3, 1e6) as u64,
            parallel_read_min_bytes: self.whole(0, 1 << 20),
            parallel_read_max_fanout: self.whole(1, 8),
            parallel_read_io_threads: self.whole(1, 16),
            parallel_read_auto_fanout_enabled: self.chance(0.7),
            parallel_read_auto_fanout_overhead_adaptive_enabled: self.chance(0.8),
            ..Settings::default()
        }
    }

    fn reader(&self, spots: &[u64]) -> Plan {
        let count = self.whole(1, 5);
        let mut at = spots[self.whole(0, spots.len() as u64 - 1) as usize];
        let (in_steps, in_large_steps) = (self.chance(0.3), self.chance(0.5));
        if in_steps && in_large_steps && self.chance(0.5) {
            at = 0;
        }
        let reads = (0..count).map(|_| {
            let (least, most) = match (in_steps, in_large_steps) {
                (true, true) => (1.1e6, 1.5e6),
                (true, false) => (1e3, 64e3),
                (false, _) => (1e3, 1.5e6),
            };
            let len = (self.between(least, most) as u64).min(OBJECT_BYTES - at);
            let read = (at, len as usize);
            at = if in_steps && at + len < OBJECT_BYTES - (1 << 20) {
                at + len
            } else {
                spots[self.whole(0, spots.len() as u64 - 1) as usize]
            };
            read
        });
        Plan {
            reads: reads.collect(),
            key: if self.chance(0.7) { "a" } else { "b" },
            begins_after: match self.chance(0.5) {
                true => Duration::ZERO,
                false => Duration::from_micros(self.whole(0, 100_000)),
            },
            cancelled_after: self
                .chance(0.15)
                .then(|| Duration::from_micros(self.between(10.0, 1e6) as u64)),
            dropped_after: self
                .chance(0.15)
                .then(|| Duration::from_micros(self.between(10.0, 1e6) as u64)),
        }
    }
}

impl Scenario {
    /// Whatever comes out of the seed.
    pub fn of(seed: u64) -> Self {
        let dice = Dice(SeededRandom::new(seed));
        let spots: Vec<u64> = (0..4).map(|_| dice.whole(0, OBJECT_BYTES - (3 << 20))).collect();
        let mut readers: Vec<Plan> = (0..dice.whole(1, 6)).map(|_| dice.reader(&spots)).collect();
        if dice.chance(0.05) {
            // Enough small reads for second requests.
            let many = |i: u64| ((i * 7919 * 512) % (OBJECT_BYTES - 512), 512);
            readers.push(Plan {
                key: "c",
                begins_after: Duration::ZERO,
                reads: (0..250).map(many).collect(),
                cancelled_after: None,
                dropped_after: None,
            });
        }
        let (model, settings) = (dice.model(), dice.settings());
        if dice.chance(0.15) {
            // One that waits for memory which the others may have taken ahead of their reads.
            readers.push(Plan {
                key: PAGE,
                begins_after: Duration::from_micros(dice.whole(0, 300_000)),
                reads: vec![(0, PAGE_BYTES as usize), (999, 10_000)],
                cancelled_after: None,
                dropped_after: None,
            });
        }
        Scenario { seed, model, settings, readers }
    }

    /// Readers that read the same, beginning at the same time, where nothing goes wrong.
    pub fn in_step(seed: u64) -> Self {
        let dice = Dice(SeededRandom::new(seed));
        let reads: Vec<(u64, usize)> =
            (0..3).map(|i| ((i << 21) + 1, dice.between(1e3, 2e6) as usize)).collect();
        let plan = Plan {
            key: "a",
            begins_after: Duration::ZERO,
            reads,
            cancelled_after: None,
            dropped_after: None,
        };
        let mut settings = dice.settings();
        settings.memory_limit_bytes = 64 << 20;
        let model = Model {
            latency_ms: dice.between(2.0, 100.0),
            ..Model::calm(1.0, dice.between(5e3, 5e5), 1e6)
        };
        let readers = vec![plan; dice.whole(2, 5) as usize];
        Scenario { seed, model, settings, readers }
    }

    /// The bytes of one of the readers.
    pub fn bytes_once(&self) -> u64 {
        self.readers[0].reads.iter().map(|(_, len)| *len as u64).sum()
    }
}

/// Opens the object, about which all is known but for a page; `None` for a query that was
/// cancelled, and for a page for which there is no memory.
pub async fn open(query: &Query, key: &str) -> Option<Reader> {
    let at = query.locate(&format!("sim://t/{key}"), &[]).expect("a URL of the simulation");
    let known = Known { meta: meta(), ..Known::default() };
    let known = if key == PAGE { &Known::NOTHING } else { &known };
    let opened = timeout(READ_MAX, query.open(&at, known)).await;
    match opened.unwrap_or_else(|_| panic!("opening {key} starves")) {
        Err(error) if error.kind() == Kind::Cancelled => None,
        Err(error) if error.kind() == Kind::Exhausted && key == PAGE => None,
        opened => Some(opened.expect("all is known")),
    }
}

/// The reads of one reader, whose bytes are wanted once each; how many succeeded, and the longest.
async fn read_all(
    engine: &Arc<Engine>,
    query: &Query,
    plan: &Plan,
    wanted_bytes: &AtomicU64,
) -> (u64, Duration) {
    sleep(plan.begins_after).await;
    let (mut reads, mut longest) = (0, Duration::ZERO);
    if plan.key == PAGE {
        wanted_bytes.fetch_add(PAGE_BYTES, Ordering::Relaxed);
    }
    let Some(reader) = open(query, plan.key).await else { return (reads, longest) };
    let mut space = Vec::new();
    for &(offset, len) in &plan.reads {
        let from = offset as usize;
        space.clear();
        space.resize(len, 0xA5);
        if plan.key != PAGE {
            wanted_bytes.fetch_add(len as u64, Ordering::Relaxed);
        }
        let begun = Instant::now();
        let done = timeout(READ_MAX, reader.read_at(query, &mut space, offset)).await;
        let done = done.unwrap_or_else(|_| panic!("a read of {len} at {offset} starves"));
        longest = longest.max(begun.elapsed());
        let (held, limit) =
            (engine.metrics().get(Metric::MemoryHeldNow), engine.settings().memory_limit_bytes);
        assert!(held <= limit, "{held} bytes of memory are held, of {limit}");
        match done {
            Ok(()) => {
                assert!(space == OBJECT[from..from + len], "wrong bytes at {offset}");
                reads += 1;
            }
            Err(error) if error.kind() == Kind::Cancelled => break,
            Err(error) => panic!("a read of {len} at {offset}: {error}"),
        }
    }
    (reads, longest)
}

async fn play(engine: &Arc<Engine>, plan: &Plan, wanted_bytes: &AtomicU64) -> (u64, Duration) {
    let query = Arc::new(engine.query(engine.settings().clone(), None));
    if let Some(after) = plan.cancelled_after {
        let query = Arc::downgrade(&query);
        tokio::spawn(async move {
            sleep(after).await;
            if let Some(query) = query.upgrade() {
                query.cancel();
            }
        });
    }
    let reading = read_all(engine, &query, plan, wanted_bytes);
    match plan.dropped_after {
        Some(after) => timeout(after, reading).await.unwrap_or_default(),
        None => reading.await,
    }
}

pub fn engine_over(store: &Arc<SimStore>, settings: &Settings, seed: u64) -> Arc<Engine> {
    let opener = Arc::new(One(Arc::clone(store)));
    let random = Arc::new(SeededRandom::new(seed));
    Engine::on_runtime(settings.clone(), Handle::current(), random, |_| opener)
}

pub fn on_a_virtual_clock<T>(future: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without threads").block_on(future)
}

/// Plays a scenario and checks what has to hold.
///
/// # Panics
/// When something does not.
pub fn run(scenario: &Scenario) -> Outcome {
    on_a_virtual_clock(async {
        let store = Arc::new(SimStore::new(scenario.model.clone(), scenario.seed));
        let engine = engine_over(&store, &scenario.settings, scenario.seed);
        let wanted_bytes = Arc::new(AtomicU64::new(0));
        let mut players = Vec::new();
        for plan in scenario.readers.clone() {
            let (engine, wanted_bytes) = (Arc::clone(&engine), Arc::clone(&wanted_bytes));
            players.push(tokio::spawn(async move { play(&engine, &plan, &wanted_bytes).await }));
        }
        let mut outcome = Outcome::default();
        for (player, plan) in players.into_iter().zip(&scenario.readers) {
            let (reads, longest) = player.await.expect("no reader panics");
            outcome.reads += reads;
            outcome.longest = outcome.longest.max(longest);
            if plan.key == PAGE {
                outcome.pages += 1;
                outcome.without_memory += u64::from(reads == 0);
            } else {
                outcome.cancelled += u64::from(reads < plan.reads.len() as u64);
            }
        }
        // Background requests that were stopped have to run once more to end.
        sleep(Duration::from_secs(1)).await;
        let metrics = engine.metrics();
        assert_eq!(metrics.get(Metric::MemoryHeldNow), 0, "memory is not given back");
        outcome.shared = metrics.get(Metric::FlightsShared);
        outcome.hedged = metrics.get(Metric::RequestsHedged);
        outcome.replaced = metrics.get(Metric::BodiesReplaced);
        outcome.gets = store.told.gets.load(Ordering::Relaxed);
        outcome.refused = store.told.refused.load(Ordering::Relaxed);
        outcome.sent_bytes = store.told.bytes.load(Ordering::Relaxed);
        // A body that breaks goes on where it stopped, and of two answers to one request one is
        // read: so nothing is sent twice but what was asked for ahead of reads that did not come,
        // or came elsewhere.
        let wanted = wanted_bytes.load(Ordering::Relaxed);
        let ahead = metrics.get(Metric::ReadAheadBytes);
        let sent = outcome.sent_bytes;
        assert!(sent <= wanted + ahead, "{sent} bytes are sent for {wanted} and {ahead} ahead");
        outcome.exact = u64::from(ahead == 0);
        let extra = outcome.hedged + outcome.replaced;
        assert!(extra <= (outcome.gets - extra) / 50, "{extra} of {}", outcome.gets);
        outcome
    })
}

/// The time of reads of 1.25 MiB by one reader that goes front to back, again and again.
pub fn in_a_row(model: &Model, settings: &[(&str, &str)]) -> Duration {
    const STEP: u64 = 5 << 18;
    let reads = (0..60).map(|i| (i % (OBJECT_BYTES / STEP) * STEP, STEP as usize)).collect();
    timed(model, settings, reads).0
}

/// The time of sixty plain reads of 4 MiB after three hundred small ones, which pay for requests
/// beyond, and how many bodies were replaced.
pub fn with_small_ones(model: &Model) -> (Duration, u64) {
    let small = (0..300).map(|i| ((i * 7919 * 512) % (OBJECT_BYTES - 512), 512));
    let large = (0..60).map(|i| (((i % 2) << 22) + 1, (4 << 20) - 1));
    timed(model, &[("parallel_read_enabled", "false")], small.chain(large).collect())
}

/// The time of thirty reads of 4 MiB by one reader.
pub fn stream(model: &Model, settings: &[(&str, &str)]) -> Duration {
    timed(model, settings, (0..30).map(|i| ((i % 2) << 22, 4 << 20)).collect()).0
}

fn timed(model: &Model, settings: &[(&str, &str)], reads: Vec<(u64, usize)>) -> (Duration, u64) {
    let mut chosen = Settings { parallel_read_chunk_size_bytes: 1 << 20, ..Settings::default() };
    for (name, value) in settings {
        chosen.set(name, value).expect("a setting");
    }
    let plan = Plan {
        key: "a",
        begins_after: Duration::ZERO,
        reads,
        cancelled_after: None,
        dropped_after: None,
    };
    on_a_virtual_clock(async {
        let store = Arc::new(SimStore::new(model.clone(), 1));
        let engine = engine_over(&store, &chosen, 1);
        let begun = Instant::now();
        play(&engine, &plan, &AtomicU64::new(0)).await;
        (begun.elapsed(), engine.metrics().get(Metric::BodiesReplaced))
    })
}

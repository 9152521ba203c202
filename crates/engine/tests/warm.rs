//! Connections that are opened beside the request that several others follow: when and how many,
//! and over HTTP that those others wait for none.

use crate::support::{Bench, Fault, Scripted, pattern, read};
use penstock_base::{Kind, Metric, Settings};
use penstock_engine::{Engine, Known, Location, PutOptions, Query};
use penstock_store::Connections;
use penstock_testkit::fake::{FakeHandle, FakeOptions, FakeS3, LinkOptions};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
const LATENCY: Duration = Duration::from_millis(100);
const NONE: [usize; 0] = [];
/// No network has such connections.
const AT_ONCE: Duration = Duration::from_millis(1);
/// Nothing is waited for any longer.
const PATIENCE: Duration = Duration::from_secs(60);

fn remote() -> Scripted {
    knowing(Some(Connections::default()))
}

/// Some way off, and with this to say of its connections.
fn knowing(known: Option<Connections>) -> Scripted {
    let mut store = Scripted::remote(LATENCY);
    store.known = known;
    store
}

/// What was opened early since the last call, after all that is ready to run has run.
async fn warmed(bench: &Bench) -> Vec<usize> {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    std::mem::take(&mut *bench.store.warmed.lock().unwrap())
}

#[tokio::test(start_paused = true)]
async fn opening_a_file_opens_what_its_size_asks_for() {
    for (key, len, expected) in [
        // Before the size is known, and then.
        ("a.parquet", 20 * MIB, &[11, 9][..]),
        ("a.parquet", 5 * MIB, &[11, 2]),
        ("a.parquet", MIB / 8, &[11]),
        ("a.csv", 40 * MIB, &[1, 2]),
        ("a.csv", MIB / 8, &[1]),
    ] {
        let bench = Bench::new(remote());
        bench.store.place(key, pattern(len)).await;
        let query = bench.query();
        let reader = query.open(&bench.at(key), &Known::NOTHING).await.unwrap();
        assert_eq!(warmed(&bench).await, expected, "{key} of {len}");
        // Opened again by the same statement, or from memory, it asks for nothing.
        let _again = query.open(&bench.at(key), &Known::NOTHING).await.unwrap();
        assert_eq!(warmed(&bench).await, NONE, "{key} of {len}");
        // Where a listing or a catalog tells the size, nothing is guessed.
        bench.engine.clear_cache();
        let other = bench.query();
        let known = Known { meta: reader.meta().clone(), ..Known::NOTHING };
        let _told = other.open(&bench.at(key), &known).await.unwrap();
        assert_eq!(warmed(&bench).await, expected[1..], "{key} of {len}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_glob_opens_them_beside_its_first_page_and_its_files_none() {
    let bench = Bench::new(remote());
    for index in 0..20 {
        bench.store.place(&format!("d/{index:02}.parquet"), pattern(8 * MIB)).await;
    }
    let query = bench.query();
    let found = query.glob(&bench.at("d/*.parquet")).await.unwrap();
    assert_eq!(warmed(&bench).await, [15]);
    for entry in &found[..3] {
        let known = Known { meta: entry.meta.clone(), ..Known::NOTHING };
        query.open(&bench.at(&entry.key), &known).await.unwrap();
    }
    assert_eq!(warmed(&bench).await, NONE, "files of a glob are opened ahead by requests");
    // What is kept is not asked for.
    query.glob(&bench.at("d/*.parquet")).await.unwrap();
    query.glob(&bench.at("d/01.parquet")).await.unwrap();
    assert_eq!(warmed(&bench).await, NONE);
}

#[tokio::test(start_paused = true)]
async fn a_large_step_opens_them_for_the_next_one() {
    let bench = Bench::with(remote(), &[("parallel_read_auto_fanout_enabled", "false")]);
    bench.store.place("a.csv", pattern(100 * MIB)).await;
    let query = bench.query();
    let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
    warmed(&bench).await;
    read(&reader, &query, 0, 32 * MIB).await;
    // One of them finds what opening brought.
    let for_next = warmed(&bench).await;
    assert!(matches!(for_next[..], [2 | 3]), "{for_next:?}");
    read(&reader, &query, 68 * MIB, 32 * MIB).await;
    assert_eq!(warmed(&bench).await, NONE, "nothing follows the last step");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_opened_where_it_cannot_pay() {
    let open = async |store: Scripted, settings: &[(&str, &str)], ends_early: bool| {
        let bench = Bench::with(store, settings);
        bench.store.place("d/a.parquet", pattern(20 * MIB)).await;
        let query = bench.query();
        if ends_early {
            query.may_end_early();
        }
        query.glob(&bench.at("d/*.parquet")).await.unwrap();
        query.open(&bench.at("d/a.parquet"), &Known::NOTHING).await.unwrap();
        warmed(&bench).await
    };
    assert_eq!(open(remote(), &[], false).await, [15, 9]);
    assert_eq!(open(remote(), &[], true).await, NONE, "a statement that fetches little");
    assert_eq!(open(remote(), &[("warm_connections_max", "0")], false).await, NONE);
    assert_eq!(open(remote(), &[("warm_connections_max", "2")], false).await, [2; 2]);
    assert_eq!(open(remote(), &[("parallel_read_enabled", "false")], false).await, NONE);
    assert_eq!(open(remote(), &[("connections_per_host", "1")], false).await, NONE);
    let near = Connections {
        connect: Some(Duration::from_micros(200)),
        beyond_kept: Some(Duration::ZERO),
        ..Connections::default()
    };
    assert_eq!(
        open(knowing(Some(near)), &[], false).await,
        NONE,
        "a store nearby that answers slowly"
    );
    let idle = Connections { idle: 10, opening: 5, ..Connections::default() };
    assert_eq!(open(knowing(Some(idle)), &[], false).await, NONE);
    assert_eq!(open(knowing(None), &[], false).await, NONE);
    let mut fast = remote();
    (fast.profile.first_byte_ms, fast.delay) = (1.0, Duration::from_millis(1));
    assert_eq!(open(fast, &[], false).await, NONE);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_statement_opens_no_more() {
    let bench = Bench::new(remote());
    bench.store.place("a.parquet", pattern(20 * MIB)).await;
    bench.store.fail("get", Fault::Hang);
    let query = bench.query();
    let at = bench.at("a.parquet");
    let opened = query.open(&at, const { &Known::NOTHING });
    let (opened, ()) = futures_util::future::join(opened, async { query.cancel() }).await;
    assert_eq!(opened.unwrap_err().kind(), Kind::Cancelled);
    assert_eq!(warmed(&bench).await, [11], "while it ran");
    assert!(query.open(&at, &Known::NOTHING).await.is_err());
    assert_eq!(warmed(&bench).await, NONE);
}

/// Attempts may take long.
#[tokio::test(start_paused = true)]
async fn what_is_under_way_ends_with_its_statement() {
    for is_cancelled in [true, false] {
        let bench = Bench::new(remote());
        bench.store.place("a.parquet", pattern(20 * MIB)).await;
        let query = bench.query();
        query.open(&bench.at("a.parquet"), &Known::NOTHING).await.unwrap();
        let under_way = || bench.store.warming.load(Ordering::Relaxed);
        assert!(under_way() > 0);
        match is_cancelled {
            true => query.cancel(),
            false => drop(query),
        }
        while under_way() > 0 {
            tokio::task::yield_now().await;
        }
    }
}

type Setting = (&'static str, &'static str);

/// An engine that has no connection yet, and a server some way off.
struct Wire {
    fake: FakeHandle,
    engine: Arc<Engine>,
    settings: &'static [Setting],
}

impl Wire {
    fn new(settings: &'static [Setting]) -> Self {
        let (latency, connect_latency) = (Duration::from_millis(5), Duration::from_millis(5));
        let link = LinkOptions { latency, connect_latency, ..LinkOptions::default() };
        let fake = FakeS3::start(FakeOptions { link, ..FakeOptions::s3() }).unwrap();
        Wire { fake, engine: engine(settings), settings }
    }

    fn at(&self, engine: &Engine, key: &str) -> Location {
        at(engine, &self.fake.address().to_string(), key)
    }

    /// Writes by another engine, whose connections are its own.
    fn write(&self, key: &str, data: &[u8]) {
        let other = engine(&[]);
        let query = other.query(other.settings().clone(), None);
        let mut writer = query.create(&self.at(&other, key), PutOptions::default()).unwrap();
        query.block_on(writer.write(data)).unwrap();
        query.block_on(writer.finish()).unwrap();
        self.fake.reset_stats();
    }

    /// A statement after a first one, which met the server: one connection is idle. It stands at
    /// once, and what lies behind is believed to be far. If its thread had to wait for a processor
    /// meanwhile, a tenth of a first byte or less, none is worth opening early: then another engine
    /// meets the server.
    fn met(&mut self) -> Query {
        let begun = Instant::now();
        loop {
            let first = query(&self.engine);
            let at = self.at(&self.engine, "none");
            assert_eq!(first.block_on(first.head(&at)).unwrap_err().kind(), Kind::NotFound);
            assert!(at.mount().store().warm(0).is_none());
            let connect = at.mount().store().connections().unwrap().connect.unwrap();
            if connect < AT_ONCE {
                return query(&self.engine);
            }
            assert!(begun.elapsed() < PATIENCE, "no connection stood within {AT_ONCE:?}");
            self.engine = engine(self.settings);
            self.fake.reset_stats();
        }
    }

    /// Waits until so many were opened early.
    fn warmed(&self, count: u64) {
        let metrics = self.engine.metrics();
        reached("connections opened early", count, || metrics.get(Metric::ConnectionsWarmed));
    }
}

/// Waits until there are so many; not for ever.
fn reached(what: &str, count: u64, now: impl Fn() -> u64) {
    let begun = Instant::now();
    while now() < count {
        assert!(begun.elapsed() < PATIENCE, "{} of {count} {what}", now());
        std::thread::yield_now();
    }
}

fn engine(settings: &[(&str, &str)]) -> Arc<Engine> {
    let mut all = Settings::default();
    settings.iter().for_each(|(name, value)| all.set(name, value).unwrap());
    Engine::new(all).unwrap()
}

fn at(engine: &Engine, endpoint: &str, key: &str) -> Location {
    at_of(engine, endpoint, key, "false")
}

fn at_of(engine: &Engine, endpoint: &str, key: &str, use_ssl: &str) -> Location {
    let options = [
        ("secret_type", "s3"),
        ("key_id", "test"),
        ("secret", "test"),
        ("region", "us-east-1"),
        ("endpoint", endpoint),
        ("url_style", "path"),
        ("use_ssl", use_ssl),
    ]
    .map(|(name, value)| (name.to_string(), value.to_string()));
    engine.locate(&format!("s3://lake/{key}"), &options).unwrap()
}

fn query(engine: &Arc<Engine>) -> Query {
    engine.query(engine.settings().clone(), None)
}

/// Of each request of the statement, whether it opened its own connection.
fn opened(query: &Query) -> Vec<bool> {
    query.requests().drain().iter().map(|request| request.event.new_connection).collect()
}

/// Eight threads that read a file at once, as those of a scan do, after it was opened. Gives how
/// many of their requests had to wait for a connection.
fn wave(wire: &mut Wire, data: &[u8], warmed: u64) -> usize {
    let query = wire.met();
    let at = wire.at(&wire.engine, "a.parquet");
    let reader = query.block_on(query.open(&at, &Known::NOTHING)).unwrap();
    wire.warmed(warmed);
    assert_eq!(opened(&query), [false], "opening took the first one");
    let together = Barrier::new(8);
    std::thread::scope(|threads| {
        for index in 0..8 {
            let (query, reader, together) = (&query, &reader, &together);
            threads.spawn(move || {
                let mut buf = vec![0; 64 << 10];
                together.wait();
                query.block_on(reader.read_at(query, &mut buf, index * MIB as u64)).unwrap();
                assert!(buf == data[index as usize * MIB..][..buf.len()]);
            });
        }
    });
    let waves = opened(&query);
    assert_eq!(waves.len(), 8);
    waves.into_iter().filter(|is_new| *is_new).count()
}

#[test]
fn the_first_wave_of_a_scan_waits_for_no_connection() {
    let data = pattern(16 * MIB);
    let mut wire = Wire::new(&[]);
    wire.write("a.parquet", &data);
    assert_eq!(wave(&mut wire, &data, 11), 0);
    let metrics = wire.engine.metrics();
    let counted = [Metric::Connections, Metric::ConnectionsWarmed, Metric::ConnectionsUnwarmed];
    assert_eq!(counted.map(|metric| metrics.get(metric)), [12, 11, 0]);
    assert_eq!(wire.fake.stats().connections, 12, "no more than were wanted");

    // As it is without: all but those that find one that another has left.
    let mut wire = Wire::new(&[("warm_connections_max", "0")]);
    wire.write("a.parquet", &data);
    let waited = wave(&mut wire, &data, 0);
    assert!((1..=7).contains(&waited), "{waited}");
}

#[test]
fn a_glob_has_its_connections_before_its_names() {
    let mut wire = Wire::new(&[]);
    for index in 0..8 {
        wire.write(&format!("d/{index}.parquet"), &pattern(MIB));
    }
    let query = wire.met();
    let found = query.block_on(query.glob(&wire.at(&wire.engine, "d/*.parquet"))).unwrap();
    wire.warmed(15);
    assert_eq!((found.len(), opened(&query)), (8, vec![false]));
    let known = Known { meta: found[0].meta.clone(), ..Known::NOTHING };
    let at = wire.at(&wire.engine, &found[0].key);
    let reader = query.block_on(query.open(&at, &known)).unwrap();
    let mut buf = [0; 8];
    query.block_on(reader.read_at(&query, &mut buf, MIB as u64 - 8)).unwrap();
    // The footers of all eight are asked for at once.
    reached("requests", 9, || query.metrics().get(Metric::Requests));
    assert_eq!(opened(&query), [false; 8]);
    assert_eq!(wire.fake.stats().connections, 16);
}

/// What listens there may be no store.
#[test]
fn a_server_that_has_not_answered_is_sent_one_connection() {
    let mut wire = Wire::new(&[]);
    wire.write("a.parquet", &pattern(16 * MIB));
    let at = wire.at(&wire.engine, "a.parquet");
    assert!(at.mount().store().warm(3).is_none());
    wire.met();
    assert!(at.mount().store().warm(3).is_some());
}

#[test]
fn a_server_that_does_not_listen_is_told_as_without() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    drop(listener);
    let told = |settings: &[(&str, &str)]| {
        let retries = [("retry_base_ms", "1"), ("retry_max_ms", "2")];
        let engine = engine(&[&retries, settings].concat());
        let query = query(&engine);
        let at = at(&engine, &endpoint, "a.parquet");
        let error = query.block_on(query.open(&at, &Known::NOTHING)).unwrap_err();
        engine.shutdown_blocking(Duration::from_secs(10)).unwrap();
        let warmed = engine.metrics().get(Metric::ConnectionsWarmed);
        assert_eq!((engine.metrics().get(Metric::Connections), warmed), (error_count(&query), 0));
        (error.kind(), error.message().to_string(), error.hint().map(str::to_string))
    };
    assert_eq!(told(&[]), told(&[("warm_connections_max", "0")]));
}

/// Requests of a statement that were to open a connection.
fn error_count(query: &Query) -> u64 {
    opened(query).into_iter().filter(|is_new| *is_new).count() as u64
}

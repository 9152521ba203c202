//! One server, one engine, and a row of operations on them.

use crate::bytes::Content;
use crate::dice::Dice;
use crate::operation::{Held, KEYS, Operation};
use crate::plan::{self, STALL_TIMEOUT_MS};
use penstock_base::{Kind, Metric, Settings};
use penstock_engine::{Engine, Location, Query};
use penstock_testkit::fake::{FakeAzure, FakeHandle, FakeOptions, FakeS3};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Operations of one world.
const OPERATIONS: u64 = 25;
/// No operation takes longer. Each of its requests ends within `request_deadline_ms`, or where it
/// carries a body, soon after; the machine may be busy besides.
const OPERATION_MAX: Duration = Duration::from_secs(40);
/// Time for what is done in the background when an operation has ended: aborting parts.
const BEHIND_MAX: Duration = Duration::from_secs(20);
const TOKEN: &str = "t0ken-of-the-test";

/// How the engine sees the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    S3,
    Google,
    Azure,
    Hierarchy,
    Web,
}

/// What became of a world.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub operations: u64,
    pub errors: u64,
    pub longest: Duration,
    pub injected: BTreeMap<&'static str, u64>,
}

impl Outcome {
    pub fn faults(&self) -> u64 {
        self.injected.values().sum()
    }

    pub fn add(&mut self, other: Outcome) {
        self.operations += other.operations;
        self.errors += other.errors;
        self.longest = self.longest.max(other.longest);
        for (name, count) in other.injected {
            *self.injected.entry(name).or_default() += count;
        }
    }
}

pub struct World {
    pub held: Held,
    seed: u64,
    is_shown: bool,
    dice: Dice,
    door: Door,
    fake: FakeHandle,
    engine: Arc<Engine>,
    aside: TcpStream,
    outcome: Outcome,
}

impl World {
    pub fn new(seed: u64, is_shown: bool) -> Self {
        let dice = Dice::new(seed);
        let door = [
            Door::S3,
            Door::Azure,
            Door::Web,
            Door::S3,
            Door::Google,
            Door::Azure,
            Door::Hierarchy,
        ][seed as usize % 7];
        let token = Some(TOKEN.to_string());
        let fake = match door {
            Door::S3 => FakeS3::start(FakeOptions::s3()),
            Door::Google => {
                FakeS3::start(FakeOptions { bearer_token: token, ..FakeOptions::google() })
            }
            Door::Web => FakeS3::start(FakeOptions { anonymous: true, ..FakeOptions::s3() }),
            Door::Azure => FakeAzure::start(FakeOptions::azure()),
            Door::Hierarchy => FakeAzure::start(FakeOptions::azure_hierarchical()),
        };
        let fake = fake.unwrap();
        let aside = TcpStream::connect(fake.address()).unwrap();
        let engine = Engine::new(settings(&dice)).unwrap();
        World {
            held: Held::new(),
            seed,
            is_shown,
            dice,
            door,
            fake,
            engine,
            aside,
            outcome: Outcome::default(),
        }
    }

    /// The object of a key, as this door sees it.
    pub fn at(&self, key: &str) -> Location {
        if self.door == Door::Web {
            let key = key.replace(' ', "%20").replace('+', "%2B");
            let url = format!("http://{}/lake/{key}", self.fake.address());
            return self.engine.locate(&url, &[]).unwrap();
        }
        self.at_store(key)
    }

    fn at_store(&self, key: &str) -> Location {
        let endpoint = self.fake.address().to_string();
        let text = self.fake.connection_string();
        let (scheme, options) = match self.door {
            Door::S3 | Door::Web => (
                "s3",
                vec![
                    ("secret_type", "s3"),
                    ("key_id", "test"),
                    ("secret", "test"),
                    ("region", "us-east-1"),
                    ("endpoint", &*endpoint),
                    ("url_style", "path"),
                    ("use_ssl", "false"),
                ],
            ),
            Door::Google => (
                "gs",
                vec![
                    ("secret_type", "gcs"),
                    ("bearer_token", TOKEN),
                    ("endpoint", &*endpoint),
                    ("url_style", "path"),
                    ("use_ssl", "false"),
                ],
            ),
            Door::Azure | Door::Hierarchy => {
                ("az", vec![("secret_type", "azure"), ("connection_string", &*text)])
            }
        };
        let options: Vec<_> = options
            .into_iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect();
        self.engine.locate(&format!("{scheme}://lake/{key}"), &options).unwrap()
    }

    /// A query of which the network has time enough, also on a machine that is busy.
    fn patient(&self) -> Query {
        let settings = Settings { request_deadline_ms: 30_000, ..self.engine.settings().clone() };
        self.engine.query(settings, None)
    }

    fn query(&self) -> Query {
        let until = Instant::now() + OPERATION_MAX;
        let is_late = Box::new(move || Instant::now() > until);
        self.engine.query(self.engine.settings().clone(), Some(is_late))
    }

    /// All operations, and what has to hold when they are over.
    pub fn run(mut self) -> Outcome {
        self.seed_objects();
        for number in 0..OPERATIONS {
            let operation = Operation::draw(&self.dice, &self.held, self.door != Door::Web);
            let answers = operation.answers(self.door == Door::Web);
            let faults = plan::draw(&self.dice, answers, operation.body_bytes(&self.held));
            let what = format!(
                "operation {number} of seed {} at {:?}: {operation:?} with {faults:?}",
                self.seed, self.door
            );
            if self.is_shown {
                crate::say(&what);
            }
            // Printed only where a check fails.
            let told = Told(&what);
            self.operate(&operation, &faults);
            drop(told);
        }
        self.assert_calm();
        self.outcome.injected = self.fake.faults().injected();
        self.outcome
    }

    /// Some objects of all sizes, placed while nothing goes wrong.
    fn seed_objects(&mut self) {
        for key in KEYS {
            if !self.dice.chance(0.8) {
                continue;
            }
            let len = match self.dice.whole(0, 3) {
                0 => self.dice.whole(0, 200),
                1 => self.dice.between(1_000, 60_000),
                2 => self.dice.between(60_000, 1_000_000),
                _ => self.dice.between(1_000_000, 4_000_000),
            };
            let content = Content::new(self.dice.whole(0, 1 << 30), len);
            let query = self.patient();
            let payload = bytes::Bytes::from_static(content.bytes()).into();
            let at = self.at_store(key);
            query.block_on(query.put(&at, payload, &Default::default())).unwrap();
            self.held.insert(key.to_string(), content);
        }
        if self.dice.chance(0.5) {
            self.engine.clear_cache();
        }
    }

    fn operate(&mut self, operation: &Operation, faults: &[String]) {
        let before = self.fake.faults().injected();
        for fault in faults {
            self.fake.fault(fault);
        }
        let query = self.query();
        let began = Instant::now();
        let error = operation.run(self, &query);
        let took = began.elapsed();
        drop(query);
        self.outcome.operations += 1;
        self.outcome.longest = self.outcome.longest.max(took);
        if let Some(error) = &error {
            if self.is_shown {
                crate::say(&format!("    {error} ({took:?})"));
            }
            self.outcome.errors += 1;
            let kind = error.kind();
            assert_ne!(kind, Kind::Cancelled, "it did not end within {OPERATION_MAX:?}: {error}");
            assert!(!matches!(kind, Kind::Internal | Kind::Exhausted), "{error}");
            assert!(error.object().is_some(), "it names no object: {error}");
            assert!(!error.to_string().contains(TOKEN), "{error}");
        }
        self.let_the_server_end();
        self.fake.faults().clear();
        self.engine.shutdown_blocking(BEHIND_MAX).unwrap();
        // A request may also lie in a connection that the server has not accepted yet. It accepts
        // a newer connection later.
        self.aside = TcpStream::connect(self.fake.address()).unwrap();
        self.let_the_server_end();
        let lossy = self.fake.faults().injected().into_iter().any(|(kind, count)| {
            plan::is_lossy(kind) && count > before.get(kind).copied().unwrap_or_default()
        });
        // A machine that is busy loses answers, too: they come too late.
        let was_heard = !lossy && took < Duration::from_millis(STALL_TIMEOUT_MS);
        let allowed = operation.allowed(&self.held, error.is_none(), was_heard);
        self.assert_nothing_is_left(&allowed, was_heard);
    }

    /// A request whose sender gave it up may lie at the server still, which would carry it out
    /// later. The server is one thread: what came before a request is begun before its answer.
    fn let_the_server_end(&self) {
        let until = Instant::now() + BEHIND_MAX;
        loop {
            self.ask_the_server();
            if self.fake.in_flight() == 0 {
                return;
            }
            assert!(Instant::now() < until, "the server still answers");
        }
    }

    /// On a connection of its own, which no fault strikes.
    fn ask_the_server(&self) {
        let mut aside = &self.aside;
        aside.write_all(b"GET /_penstock/faults HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        let (mut answer, mut piece) = (Vec::new(), [0; 1024]);
        while !answer.ends_with(b"]\n") {
            let count = aside.read(&mut piece).unwrap();
            assert!(count > 0, "the server ended");
            answer.extend_from_slice(&piece[..count]);
        }
    }

    /// Whether the server refused to end an upload, for good or as often as it was asked.
    fn refused_to_abort(&self, upload: &str) -> bool {
        let requests = self.fake.requests();
        let aborts = requests.iter().filter(|request| {
            request.operation == "AbortMultipartUpload" && request.path.contains(upload)
        });
        let statuses: Vec<u16> = aborts.map(|request| request.status).collect();
        statuses.len() >= 4 || statuses.iter().any(|status| matches!(status, 400..=499 | 501))
    }

    /// The server holds what it may, whole, and nothing besides; what it holds is what counts from
    /// now on.
    fn assert_nothing_is_left(
        &mut self,
        allowed: &BTreeMap<String, Vec<Option<Content>>>,
        was_heard: bool,
    ) {
        let (objects, uploads) = self.fake.vault().with(|state| {
            let bucket = state.buckets.get("lake").cloned().unwrap_or_default();
            (bucket.objects, bucket.uploads)
        });
        for key in objects.keys() {
            assert!(KEYS.contains(&key.as_str()), "there is an object {key}");
        }
        for key in KEYS {
            let before = [self.held.get(*key).copied()];
            let states = allowed.get(*key).map_or(&before[..], Vec::as_slice);
            let object = objects.get(*key);
            let now = states.iter().find(|state| match (state, object) {
                (Some(content), Some(object)) => content.is(&object.data),
                (None, None) => true,
                _ => false,
            });
            let size = object.map(|object| object.data.len());
            let now = now.unwrap_or_else(|| {
                panic!("the server holds {size:?} bytes of {key}, which is none of {states:?}")
            });
            match now {
                Some(content) => self.held.insert(key.to_string(), *content),
                None => self.held.remove(*key),
            };
        }
        // An upload whose beginning was never answered has no name here, and no parts there.
        for (id, upload) in uploads {
            let is_nobodys = !was_heard && upload.parts.is_empty();
            let is_left = is_nobodys || self.refused_to_abort(&id);
            assert!(is_left, "upload {id} of {} is left open", upload.key);
        }
        self.fake.vault().with(|state| {
            if let Some(bucket) = state.buckets.get_mut("lake") {
                bucket.uploads.clear();
            }
        });
    }

    /// With the network as it should be all is well at once: nothing wrong was kept, and nothing
    /// that requests need is missing.
    fn assert_calm(&mut self) {
        let told = format!("the calm after seed {} at {:?}", self.seed, self.door);
        let told = Told(&told);
        let mut rest: Vec<Operation> = Vec::new();
        for (key, content) in &self.held {
            let ranges = vec![(0, content.len as u64)];
            rest.push(Operation::Read { key: key.clone(), ranges });
            rest.push(Operation::Stat { key: key.clone() });
        }
        if self.door != Door::Web {
            rest.push(Operation::List { directory: "d" });
            rest.push(Operation::Glob { pattern: "**" });
            let content = Content::new(77, 9 << 20);
            rest.push(Operation::Write { key: KEYS[0].to_string(), content, piece: 1 << 20 });
            rest.push(Operation::Remove { keys: self.held.keys().cloned().collect() });
        }
        for operation in rest {
            let began = Instant::now();
            let error = operation.run(self, &self.patient());
            assert!(error.is_none(), "{operation:?}: {}", error.unwrap());
            assert!(began.elapsed() < Duration::from_secs(25), "{operation:?} was slow");
        }
        self.engine.clear_cache();
        self.engine.shutdown_blocking(BEHIND_MAX).unwrap();
        assert_eq!(self.engine.metrics().get(Metric::MemoryHeldNow), 0);
        drop(told);
    }
}

/// What is being done, for whoever reads of a check that failed.
struct Told<'a>(&'a str);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}

/// Beyond the ranges of the table, so that small objects do what large ones do, and that what is
/// lost of the few slots, connections and bytes is missed soon.
fn settings(dice: &Dice) -> Settings {
    Settings {
        memory_limit_bytes: 64 << 20,
        part_size_bytes: if dice.chance(0.5) { 128 << 10 } else { 5 << 20 },
        upload_concurrency: dice.whole(1, 4),
        connections_per_host: dice.whole(2, 6),
        connect_timeout_ms: 1_000,
        stall_timeout_ms: STALL_TIMEOUT_MS,
        request_deadline_ms: 1_500,
        retry_base_ms: 1,
        retry_max_ms: 20,
        list_page_size: dice.whole(1, 4),
        cache_memory_bytes: if dice.chance(0.5) { 8 << 20 } else { 0 },
        parallel_read_chunk_size_bytes: dice.between(16_000, 1_000_000),
        parallel_read_min_bytes: dice.between(16_000, 1_000_000),
        ..Settings::default()
    }
}

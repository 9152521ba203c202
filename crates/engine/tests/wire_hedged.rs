//! Second requests for late answers, over HTTP: the first answer counts, the connection of the
//! other one is given up at once, and no more than one in fifty is extra.

use crate::wire::relay::Relay;
use penstock_base::{Metric, Settings};
use penstock_engine::{Engine, Known, Location, PutOptions, Query, Reader};
use penstock_testkit::fake::{FakeHandle, FakeOptions, FakeS3};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
/// What every answer takes: stores that are nearer have no second requests.
const USUAL_MS: u64 = 6;
const LATE: Duration = Duration::from_secs(5);

struct Far {
    store: FakeHandle,
    relay: Relay,
    engine: Arc<Engine>,
    data: Vec<u8>,
}

impl Far {
    fn new() -> Self {
        let store = FakeS3::start(FakeOptions::s3()).unwrap();
        let relay = Relay::before(store.address());
        let engine = Engine::new(Settings::default()).unwrap();
        let data = (0..4 * MIB).map(|i| ((i * 2_654_435_761) >> 13) as u8).collect();
        let far = Far { store, relay, engine, data };
        let query = far.query();
        let mut writer = query.create(&far.at(), PutOptions::default()).unwrap();
        query.block_on(writer.write(&far.data)).unwrap();
        query.block_on(writer.finish()).unwrap();
        far
    }

    fn query(&self) -> Query {
        self.engine.query(Settings::default(), None)
    }

    fn at(&self) -> Location {
        crate::wire::at(&self.engine, self.relay.address, "s3://lake/a.csv")
    }

    fn open(&self, query: &Query) -> Reader {
        query.block_on(query.open(&self.at(), &Known::NOTHING)).unwrap()
    }

    /// A small read, somewhere behind what opening brought.
    fn read(&self, query: &Query, reader: &Reader, number: usize) {
        let start = MIB + number * 997 * 1013 % (2 * MIB);
        let mut buf = [0; 100];
        query.block_on(reader.read_at(query, &mut buf, start as u64)).unwrap();
        assert!(buf == self.data[start..start + 100], "wrong bytes at {start}");
    }

    fn hedged(&self) -> u64 {
        self.engine.metrics().get(Metric::RequestsHedged)
    }

    fn assert_few_were_extra(&self) {
        let (all, extra) = (self.engine.metrics().get(Metric::RequestsGet), self.hedged());
        assert!(extra > 0 && extra * 50 <= all, "{extra} of {all}");
    }
}

#[test]
fn an_answer_that_is_late_is_overtaken_and_its_connection_given_up() {
    let far = Far::new();
    let query = far.query();
    let reader = far.open(&query);
    far.store.fault(&format!("latency={USUAL_MS},op=GetObject"));
    (0..110).for_each(|number| far.read(&query, &reader, number));
    // A busy machine is late itself, which may have spent what was saved up.
    let is_overtaken = (1..6).any(|round| {
        (0..55).for_each(|number| far.read(&query, &reader, round * 101 + number));
        let (hedged, closed) = (far.hedged(), far.relay.closed());
        far.store.fault(&format!("latency={},op=GetObject,times=1", LATE.as_millis()));
        let begun = Instant::now();
        far.read(&query, &reader, round * 7);
        if begun.elapsed() >= LATE / 2 || far.hedged() == hedged {
            return false;
        }
        // Long before its answer comes.
        while far.relay.closed() == closed {
            assert!(begun.elapsed() < LATE, "the request that lost goes on");
            std::thread::yield_now();
        }
        true
    });
    assert!(is_overtaken, "{} second requests", far.hedged());
    far.assert_few_were_extra();
    // What is left of the fault: whoever reads on is not held up by it.
    far.store.faults().clear();
    (0..20).for_each(|number| far.read(&query, &reader, number));
}

/// Fewer are late than one in a hundred: more would be what is usual of this store.
#[test]
fn of_many_answers_some_of_them_late_one_in_fifty_is_asked_for_twice_at_most() {
    const READS: usize = 600;
    let far = Far::new();
    let query = far.query();
    let reader = far.open(&query);
    far.store.fault(&format!("latency={USUAL_MS},op=GetObject"));
    (0..110).for_each(|number| far.read(&query, &reader, number));
    far.store.fault("latency=250,op=GetObject,p=0.008");
    (0..READS).for_each(|number| far.read(&query, &reader, number));
    far.assert_few_were_extra();
    let served = far.store.stats().operation("GetObject");
    let asked = (1 + 110 + READS) as u64;
    assert!(served <= asked + asked / 50, "{served} requests for {asked} reads");
}

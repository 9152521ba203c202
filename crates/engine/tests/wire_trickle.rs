//! Bodies that drip, over HTTP: the rest comes on another connection, the slow one is closed, and
//! no more than one request in fifty is extra.

use crate::wire::relay::Relay;
use penstock_base::{Metric, Settings};
use penstock_engine::{Engine, Known, Location, LoggedRequest, PutOptions, Query, Reader};
use penstock_testkit::fake::{FakeHandle, FakeOptions, FakeS3};
use std::sync::Arc;
use std::time::{Duration, Instant};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// What connections bring is learned from bodies of 256 KiB and more.
const USUAL_LEN: usize = 300 * KIB;
/// So many of them pay for one extra request.
const PER_EXTRA: usize = 50;

/// A store, and an engine that reads each range by one request.
struct Lake {
    store: FakeHandle,
    relay: Relay,
    engine: Arc<Engine>,
    settings: Settings,
    data: Vec<u8>,
}

impl Lake {
    fn new() -> Self {
        let store = FakeS3::start(FakeOptions::s3()).unwrap();
        let relay = Relay::before(store.address());
        let mut settings = Settings::default();
        settings.set("parallel_read_enabled", "false").unwrap();
        let engine = Engine::new(settings.clone()).unwrap();
        let data = (0..8 * MIB).map(|i| ((i * 2_654_435_761) >> 13) as u8).collect();
        let lake = Lake { store, relay, engine, settings, data };
        let query = lake.query();
        let mut writer = query.create(&lake.at(), PutOptions::default()).unwrap();
        query.block_on(writer.write(&lake.data)).unwrap();
        query.block_on(writer.finish()).unwrap();
        lake
    }

    fn query(&self) -> Query {
        self.engine.query(self.settings.clone(), None)
    }

    fn at(&self) -> Location {
        crate::wire::at(&self.engine, self.relay.address, "s3://lake/a.csv")
    }

    fn open(&self, query: &Query) -> Reader {
        query.block_on(query.open(&self.at(), &Known::NOTHING)).unwrap()
    }

    fn read(&self, query: &Query, reader: &Reader, start: usize, len: usize) {
        let mut buf = vec![0; len];
        query.block_on(reader.read_at(query, &mut buf, start as u64)).unwrap();
        assert!(buf == self.data[start..start + len], "wrong bytes at {start}");
    }

    /// Reads as they usually are, here and there.
    fn usual(&self, query: &Query, reader: &Reader, count: usize) {
        for number in 0..count {
            let start = MIB + number * 997 * 1013 % (6 * MIB);
            self.read(query, reader, start, USUAL_LEN);
        }
    }

    fn count(&self, metric: Metric) -> u64 {
        self.engine.metrics().get(metric)
    }

    fn assert_few_were_extra(&self) {
        let extra = self.count(Metric::RequestsHedged) + self.count(Metric::BodiesReplaced);
        let all = self.count(Metric::RequestsGet);
        assert!(extra > 0 && extra * PER_EXTRA as u64 <= all, "{extra} of {all}");
    }
}

#[test]
fn a_body_that_drips_is_replaced_and_its_connection_closed() {
    const LEN: usize = 2 * MIB;
    const DRIP_BYTES_PER_S: usize = 200_000;
    let whole = Duration::from_secs((LEN / DRIP_BYTES_PER_S) as u64);
    let lake = Lake::new();
    let query = lake.query();
    let reader = lake.open(&query);
    // A busy machine has late answers, which may have spent what was saved up.
    let is_replaced = (0..4).any(|round| {
        lake.usual(&query, &reader, PER_EXTRA + 5);
        let (replaced, closed) = (lake.count(Metric::BodiesReplaced), lake.relay.closed());
        lake.store.reset_stats();
        query.requests().drain();
        lake.store.fault(&format!("slow={DRIP_BYTES_PER_S},op=GetObject,times=1"));
        let (begun, start) = (Instant::now(), (1 + round) * MIB);
        lake.read(&query, &reader, start, LEN);
        if lake.count(Metric::BodiesReplaced) == replaced {
            return false;
        }
        assert!(begun.elapsed() < whole / 2, "{:?} in place of {whole:?}", begun.elapsed());
        while lake.relay.closed() == closed {
            assert!(begun.elapsed() < whole, "the body that was replaced goes on");
            std::thread::yield_now();
        }
        // The one that drips may be taken note of later, when the fake has seen its end.
        let rest = (begin_of(&lake, start, LEN), start + LEN);
        assert!((start + 1..rest.1).contains(&rest.0), "what had come was asked for again");
        assert!(attempt_from(&query, rest.0) > 1, "the rest reads as if asked for once");
        true
    });
    assert!(is_replaced, "no body was replaced");
    lake.assert_few_were_extra();
    lake.usual(&query, &reader, 20);
}

/// Where the last request for bytes of a range began.
fn begin_of(lake: &Lake, start: usize, len: usize) -> usize {
    let begins = lake.store.requests().into_iter().filter_map(|request| {
        let (first, last) = request.range.strip_prefix("bytes=")?.split_once('-')?;
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        (first >= start && last == start + len - 1).then_some(first)
    });
    begins.max().unwrap()
}

/// Which attempt a request for bytes from a place on was, as the list of requests tells.
fn attempt_from(query: &Query, start: usize) -> u32 {
    let requests = query.requests().drain();
    let of_rest =
        |request: &&LoggedRequest| request.event.range.starts_with(&format!("bytes={start}-"));
    requests.iter().find(of_rest).unwrap().event.reason.as_ref().unwrap().attempt
}

/// Where many drip, those are replaced that are paid for; the others come to their ends.
#[test]
fn of_many_bodies_that_drip_one_in_fifty_is_replaced_at_most() {
    const DRIPPING: usize = 3;
    let lake = Lake::new();
    let query = lake.query();
    let reader = lake.open(&query);
    lake.usual(&query, &reader, PER_EXTRA + 5);
    lake.store.reset_stats();
    // Each of them takes 1.5 s to its end, and half a second to be seen.
    lake.store.fault(&format!("slow=200000,op=GetObject,times={DRIPPING}"));
    lake.usual(&query, &reader, DRIPPING);
    lake.usual(&query, &reader, PER_EXTRA);
    lake.assert_few_were_extra();
    let extra = lake.count(Metric::RequestsHedged) + lake.count(Metric::BodiesReplaced);
    let served = lake.store.stats().operation("GetObject");
    assert!(served <= (DRIPPING + PER_EXTRA) as u64 + extra, "{served}, {extra} of them extra");
}

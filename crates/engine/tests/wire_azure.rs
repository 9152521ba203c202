//! The engine over the Azure fake: requests on the wire.

use penstock_base::{Metric, Settings};
use penstock_engine::{Engine, Known, Location, PutOptions, WriteCondition};
use penstock_testkit::fake::{FakeAzure, FakeHandle, FakeOptions};
use std::sync::Arc;
use std::time::Duration;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

struct Wire {
    fake: FakeHandle,
    engine: Arc<Engine>,
}

impl Wire {
    fn new() -> Self {
        let fake = FakeAzure::start(FakeOptions::azure()).unwrap();
        Wire { fake, engine: Engine::new(Settings::default()).unwrap() }
    }

    fn at(&self, key: &str) -> Location {
        let text = self.fake.connection_string();
        let options = [("secret_type", "azure"), ("connection_string", text.as_str())]
            .map(|(name, value)| (name.to_string(), value.to_string()));
        self.engine.locate(&format!("az://lake/{key}"), &options).unwrap()
    }

    fn write(&self, key: &str, data: &[u8]) {
        let query = self.engine.query(Settings::default(), None);
        let mut writer = query.create(&self.at(key), PutOptions::default()).unwrap();
        for piece in data.chunks(300 * KIB) {
            query.block_on(writer.write(piece)).unwrap();
        }
        query.block_on(writer.finish()).unwrap();
    }

    /// Method and path of the requests so far, and forgets them.
    fn requests(&self, count: u64) -> Vec<String> {
        // The fake takes note of a request when its answer is sent: it may be a moment behind.
        while self.fake.stats().requests < count {
            std::thread::yield_now();
        }
        let requests = self.fake.requests();
        self.fake.reset_stats();
        requests.iter().map(|request| request.operation.to_string()).collect()
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[test]
fn small_blob_is_one_put_and_its_read_one_get() {
    let wire = Wire::new();
    let data = pattern(80 * KIB);
    wire.write("a.parquet", &data);
    assert_eq!(wire.requests(1), ["PutBlob"]);
    wire.engine.clear_cache();
    let query = wire.engine.query(Settings::default(), None);
    let reader = query.block_on(query.open(&wire.at("a.parquet"), &Known::NOTHING)).unwrap();
    let mut buf = vec![0; data.len()];
    query.block_on(reader.read_at(&query, &mut buf, 0)).unwrap();
    assert!(buf == data);
    assert_eq!(wire.requests(1), ["GetBlob"]);
    assert_eq!(query.metrics().get(Metric::Requests), 1);
}

#[test]
fn large_blob_is_blocks_and_one_commit_and_its_footer_two_gets() {
    let wire = Wire::new();
    let data = pattern(18 * MIB);
    wire.write("a.parquet", &data);
    assert_eq!(wire.requests(4), ["PutBlock", "PutBlock", "PutBlock", "PutBlockList"]);
    wire.engine.clear_cache();
    let query = wire.engine.query(Settings::default(), None);
    let reader = query.block_on(query.open(&wire.at("a.parquet"), &Known::NOTHING)).unwrap();
    let mut footer = vec![0; 64 * KIB];
    let offset = data.len() - footer.len();
    query.block_on(reader.read_at(&query, &mut footer, offset as u64)).unwrap();
    assert!(footer == data[offset..]);
    assert_eq!(wire.requests(2), ["GetBlob", "GetBlob"]);
    assert_eq!(query.metrics().get(Metric::Requests), 2);
    // After a listing the footer is the first request.
    let found = query.block_on(query.glob(&wire.at("*.parquet"))).unwrap();
    let known = Known { meta: found[0].meta.clone(), ..Known::NOTHING };
    wire.engine.clear_cache();
    let other = wire.engine.query(Settings::default(), None);
    let reader = other.block_on(other.open(&wire.at("a.parquet"), &known)).unwrap();
    other.block_on(reader.read_at(&other, &mut footer, offset as u64)).unwrap();
    assert_eq!(other.metrics().get(Metric::Requests), 1);
}

#[test]
fn blob_given_up_never_becomes_visible() {
    let wire = Wire::new();
    let query = wire.engine.query(Settings::default(), None);
    let mut writer = query.create(&wire.at("a.bin"), PutOptions::default()).unwrap();
    query.block_on(writer.write(&pattern(20 * MIB))).unwrap();
    drop(writer);
    wire.engine.shutdown_blocking(Duration::from_secs(10)).unwrap();
    assert_eq!(wire.engine.metrics().get(Metric::MemoryHeldNow), 0);
    assert!(!query.block_on(query.exists(&wire.at("a.bin"))).unwrap());
}

#[test]
fn a_conditional_put_whose_answer_was_lost_is_no_conflict() {
    let wire = Wire::new();
    let (query, at) = (wire.engine.query(Settings::default(), None), wire.at("a.bin"));
    wire.fake.fault("lost-answer,op=PutBlob,times=1");
    let options = PutOptions { condition: WriteCondition::IfAbsent, ..PutOptions::default() };
    let put = query.put(&at, bytes::Bytes::from("ours").into(), &options);
    let placed = query.block_on(put).unwrap();
    assert_eq!(wire.fake.faults().fired(), [1]);
    let meta = query.block_on(query.head(&at)).unwrap();
    assert_eq!(placed.etag, meta.etag);
    let own = meta.metadata.iter().filter(|(name, _)| !name.starts_with('@'));
    assert_eq!(own.count(), 0, "{:?}", meta.metadata);
}

/// Such an account lists directory by directory, in pages that end anywhere.
#[test]
fn globs_of_a_hierarchical_account_find_each_name_in_byte_order() {
    let fake = FakeAzure::start(FakeOptions::azure_hierarchical()).unwrap();
    let mut set = Settings::default();
    set.set("list_page_size", "2").unwrap();
    let wire = Wire { fake, engine: Engine::new(set.clone()).unwrap() };
    let keys = ["a-b/x", "a-c", "a.txt", "a/00", "a/01", "a/02", "ab"];
    for key in keys {
        wire.write(key, b"x");
    }
    let query = wire.engine.query(set, None);
    let glob = |pattern: &str| -> Vec<String> {
        let found = query.block_on(query.glob(&wire.at(pattern))).unwrap();
        found.into_iter().map(|entry| entry.key).collect()
    };
    assert_eq!(glob("**"), keys);
    assert_eq!(glob("*"), ["a-c", "a.txt", "ab"]);
    assert_eq!(glob("a*/*"), ["a-b/x", "a/00", "a/01", "a/02"]);
    assert_eq!(glob("a/*"), ["a/00", "a/01", "a/02"]);
}

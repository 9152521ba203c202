//! The engine over HTTP, as DuckDB's threads use it: requests on the wire, faults of the network.

use penstock_base::{Kind, Metric, Settings};
use penstock_engine::{Engine, Known, Location, PutOptions, Query, Reader, WriteCondition};
use penstock_testkit::fake::{FakeHandle, FakeOptions, FakeS3};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

struct Wire {
    fake: FakeHandle,
    engine: Arc<Engine>,
    seen: Cell<u64>,
}

impl Wire {
    fn new(settings: &[(&str, &str)]) -> Self {
        Wire::to(FakeOptions::s3(), settings)
    }

    fn to(fake: FakeOptions, settings: &[(&str, &str)]) -> Self {
        let mut all = Settings::default();
        // Small back-offs, so that retrying costs a test nothing.
        for (name, value) in [("retry_base_ms", "1"), ("retry_max_ms", "20")].iter().chain(settings)
        {
            all.set(name, value).unwrap();
        }
        let fake = FakeS3::start(fake).unwrap();
        Wire { fake, engine: Engine::new(all).unwrap(), seen: Cell::new(0) }
    }

    fn query(&self) -> Query {
        self.engine.query(self.engine.settings().clone(), None)
    }

    fn at(&self, key: &str) -> Location {
        crate::wire::at(&self.engine, self.fake.address(), &format!("s3://lake/{key}"))
    }

    /// The fake as Google, which speaks its own dialect to those who bring a token.
    fn at_google(&self, url: &str) -> Location {
        let endpoint = self.fake.address().to_string();
        let options = [
            ("secret_type", "gcs"),
            ("bearer_token", "t0ken"),
            ("endpoint", &endpoint),
            ("url_style", "path"),
            ("use_ssl", "false"),
        ]
        .map(|(name, value)| (name.to_string(), value.to_string()));
        self.engine.locate(url, &options).unwrap()
    }

    fn write(&self, key: &str, data: &[u8]) -> penstock_base::Result<()> {
        let query = self.query();
        let mut writer = query.create(&self.at(key), PutOptions::default())?;
        for piece in data.chunks(MIB - 3) {
            query.block_on(writer.write(piece))?;
        }
        query.block_on(writer.finish())?;
        Ok(())
    }

    /// Checks the operations since the last call, in order. The fake takes note of a request when
    /// its answer is sent, so it may be a moment behind the client, which counts them too.
    fn assert_operations(&self, expected: &[&str]) {
        let sent = self.engine.metrics().get(Metric::Requests) - self.seen.get();
        self.seen.set(self.seen.get() + sent);
        assert_eq!(sent, expected.len() as u64, "requests by the client's count");
        loop {
            let operations: Vec<_> =
                self.fake.requests().iter().map(|request| request.operation).collect();
            if operations.len() >= expected.len() {
                assert_eq!(operations, expected);
                return self.fake.reset_stats();
            }
            std::thread::yield_now();
        }
    }

    fn open(&self, query: &Query, key: &str) -> penstock_base::Result<Reader> {
        query.block_on(query.open(&self.at(key), &Known::NOTHING))
    }

    fn exists(&self, key: &str) -> bool {
        let query = self.query();
        query.block_on(query.exists(&self.at(key))).unwrap()
    }

    fn assert_clean(&self) {
        self.engine.shutdown_blocking(Duration::from_secs(10)).unwrap();
        assert_eq!(self.engine.metrics().get(Metric::MemoryHeldNow), 0);
        let listing = self
            .fake
            .vault()
            .with(|state| state.buckets.values().map(|bucket| bucket.uploads.len()).sum::<usize>());
        assert_eq!(listing, 0, "no upload is left open at the store");
    }
}

fn read(
    query: &Query,
    reader: &Reader,
    offset: usize,
    len: usize,
) -> penstock_base::Result<Vec<u8>> {
    let mut buf = vec![0; len];
    query.block_on(reader.read_at(query, &mut buf, offset as u64))?;
    Ok(buf)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[test]
fn small_object_is_one_put_and_cold_parquet_one_get() {
    let wire = Wire::new(&[]);
    let data = pattern(2 * MIB);
    wire.write("a.parquet", &data).unwrap();
    wire.assert_operations(&["PutObject"]);
    wire.engine.clear_cache();
    let query = wire.query();
    let reader = wire.open(&query, "a.parquet").unwrap();
    assert_eq!(
        read(&query, &reader, data.len() - 64 * KIB, 64 * KIB).unwrap(),
        &data[data.len() - 64 * KIB..]
    );
    for _ in 0..4 {
        wire.open(&query, "a.parquet").unwrap();
    }
    wire.assert_operations(&["GetObject"]);
    assert_eq!(read(&query, &reader, 0, MIB).unwrap(), &data[..MIB]);
    assert_eq!(query.metrics().get(Metric::Requests), 2);
    drop(reader);
    wire.engine.clear_cache();
    wire.assert_clean();
}

#[test]
fn large_object_goes_in_parts_and_comes_back() {
    let wire = Wire::new(&[]);
    let data = pattern(21 * MIB + 17);
    wire.write("a.csv", &data).unwrap();
    wire.assert_operations(&[
        "CreateMultipartUpload",
        "UploadPart",
        "UploadPart",
        "UploadPart",
        "CompleteMultipartUpload",
    ]);
    let query = wire.query();
    let reader = wire.open(&query, "a.csv").unwrap();
    assert!(read(&query, &reader, 0, data.len()).unwrap() == data);
}

#[test]
fn reading_survives_each_fault_of_a_get() {
    let data = pattern(MIB);
    for fault in [
        "status=503,op=GetObject,times=3",
        "status=500,op=GetObject,times=1",
        "status=429,op=GetObject,times=1,retry-after=0",
        "reset,op=GetObject,times=2",
        "cut=100000,op=GetObject,times=3",
        "truncate=100000,op=GetObject,times=1",
        "wrong-range=+5,op=GetObject,times=1",
        "html,op=GetObject,times=1",
    ] {
        let wire = Wire::new(&[("open_fetch_bytes", "0")]);
        wire.write("a.bin", &data).unwrap();
        let query = wire.query();
        let reader = wire.open(&query, "a.bin").unwrap();
        wire.fake.fault(fault);
        match read(&query, &reader, 10, MIB - 20) {
            Ok(bytes) => assert!(bytes == data[10..MIB - 10], "{fault}: wrong bytes"),
            Err(error) => panic!("{fault}: {error}"),
        }
        assert!(wire.fake.faults().fired().iter().all(|count| *count > 0), "{fault}");
    }
}

#[test]
fn writing_survives_each_fault_of_its_requests() {
    let large = pattern(17 * MIB);
    for operation in ["CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload", "PutObject"]
    {
        for action in ["status=503", "reset", "lost-answer", "status=500"] {
            let wire = Wire::new(&[]);
            wire.fake.fault(&format!("{action},op={operation},times=1"));
            let data = if operation == "PutObject" { &large[..MIB] } else { &large[..] };
            wire.write("a.bin", data).unwrap_or_else(|e| panic!("{action} {operation}: {e}"));
            assert_eq!(wire.fake.faults().fired(), [1], "{action} {operation}");
            let query = wire.query();
            let reader = wire.open(&query, "a.bin").unwrap();
            assert!(read(&query, &reader, 0, data.len()).unwrap() == data, "{action} {operation}");
        }
    }
}

/// S3 asks for a write that met another one of the name to be sent again, and for a completion that
/// did to be begun anew.
#[test]
fn a_write_that_met_another_one_goes_again_and_a_completion_does_not() {
    for code in ["OperationAborted", "ConditionalRequestConflict"] {
        let wire = Wire::new(&[]);
        wire.fake.fault(&format!("status=409,code={code},op=PutObject,times=1"));
        wire.write("a.bin", b"abc").unwrap_or_else(|error| panic!("{code}: {error}"));
        wire.assert_operations(&["PutObject", "PutObject"]);
        wire.fake.fault(&format!("status=409,code={code},op=CompleteMultipartUpload,times=1"));
        let error = wire.write("b.bin", &pattern(17 * MIB)).unwrap_err();
        assert_eq!(error.kind(), Kind::Conflict, "{error}");
        assert!(!wire.exists("b.bin"), "{code}");
    }
}

/// The engine takes such a refusal for final, so the store has to go on by itself.
#[test]
fn a_service_without_checksums_takes_the_first_write_already() {
    let fake = FakeOptions { without_checksums: true, ..FakeOptions::s3() };
    let wire = Wire::to(fake, &[]);
    for operations in [&["PutObject", "PutObject"][..], &["PutObject"]] {
        wire.write("a.bin", b"bytes").unwrap();
        wire.assert_operations(operations);
    }
    let large = pattern(17 * MIB);
    wire.write("b.bin", &large).unwrap();
    let query = wire.query();
    let reader = wire.open(&query, "b.bin").unwrap();
    assert!(read(&query, &reader, 0, large.len()).unwrap() == large);
}

#[test]
fn a_conditional_put_whose_answer_was_lost_is_no_conflict() {
    let google = FakeOptions { bearer_token: Some("t0ken".to_string()), ..FakeOptions::google() };
    for (fake, is_google) in [(FakeOptions::s3(), false), (google, true)] {
        let wire = Wire::to(fake, &[]);
        let at = |key: &str| {
            if is_google { wire.at_google(&format!("gs://lake/{key}")) } else { wire.at(key) }
        };
        let query = wire.query();
        let put = |key: &str| {
            let condition = WriteCondition::IfAbsent;
            let options = PutOptions { condition, ..PutOptions::default() };
            query.block_on(query.put(&at(key), bytes::Bytes::from("ours").into(), &options))
        };
        // The first connection, and one that was kept: on that one requests are sent again at once.
        for key in ["a.bin", "b.bin"] {
            wire.fake.faults().clear();
            wire.fake.fault("lost-answer,op=PutObject,times=1");
            let placed = put(key).unwrap();
            assert_eq!(wire.fake.faults().fired(), [1]);
            let meta = query.block_on(query.head(&at(key))).unwrap();
            assert_eq!(placed.etag, meta.etag);
            let own = meta.metadata.iter().filter(|(name, _)| !name.starts_with('@'));
            assert_eq!(own.count(), 0, "{:?}", meta.metadata);
            assert_eq!(put(key).unwrap_err().kind(), Kind::Conflict);
        }
    }
}

#[test]
fn names_survive_each_fault_of_their_requests() {
    for operation in ["ListObjectsV2", "HeadObject", "DeleteObjects", "DeleteObject", "CopyObject"]
    {
        for action in ["status=503", "reset", "lost-answer"] {
            let wire = Wire::new(&[]);
            for key in ["d/a", "d/b", "d/c"] {
                wire.write(key, b"x").unwrap();
            }
            wire.engine.clear_cache();
            wire.fake.fault(&format!("{action},op={operation},times=1"));
            let query = wire.query();
            let work = async {
                assert!(query.exists(&wire.at("d/a")).await?);
                assert_eq!(query.list(&wire.at("d")).await?.len(), 3);
                query.rename(&wire.at("d/a"), &wire.at("e/a")).await?;
                query.remove(&[wire.at("d/b"), wire.at("d/c")]).await?;
                assert!(!query.directory_exists(&wire.at("d")).await?);
                query.exists(&wire.at("e/a")).await
            };
            let found = query.block_on(work);
            assert!(found.unwrap_or_else(|error| panic!("{action} {operation}: {error}")));
            assert_eq!(wire.fake.faults().fired(), [1], "{action} {operation}");
        }
    }
}

#[test]
fn an_empty_page_is_not_the_end_of_a_listing() {
    let wire = Wire::new(&[]);
    for index in 0..5 {
        wire.write(&format!("d/{index}"), b"x").unwrap();
    }
    wire.fake.fault("empty-page,op=ListObjectsV2,times=2");
    let query = wire.query();
    assert_eq!(query.block_on(query.glob(&wire.at("d/*"))).unwrap().len(), 5);
    wire.fake.fault("empty-page,op=ListObjectsV2,times=1");
    assert!(query.block_on(query.directory_exists(&wire.at("d"))).unwrap());
}

#[test]
fn a_listing_that_never_ends_is_told() {
    let wire = Wire::new(&[]);
    wire.write("d/1", b"x").unwrap();
    wire.fake.fault("empty-page,op=ListObjectsV2");
    let query = wire.query();
    for error in [
        query.block_on(query.glob(&wire.at("d/*"))).unwrap_err(),
        query.block_on(query.glob(&wire.at("*/1"))).unwrap_err(),
        query.block_on(query.directory_exists(&wire.at("d"))).unwrap_err(),
    ] {
        assert_eq!(error.kind(), Kind::Corrupt, "{error}");
        assert!(error.to_string().contains("same page"), "{error}");
    }
}

#[test]
fn throttled_for_good_tells_attempts_and_leaves_nothing() {
    for operation in ["CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"] {
        let wire = Wire::new(&[("request_deadline_ms", "300")]);
        wire.fake.fault(&format!("status=503,op={operation}"));
        let error = wire.write("a.bin", &pattern(17 * MIB)).unwrap_err();
        assert_eq!(error.kind(), Kind::Throttled, "{operation}: {error}");
        assert!(error.to_string().contains("gave up after"), "{error}");
        assert!(error.hint().unwrap().contains("request_deadline_ms"), "{error}");
        // The fault stays: the attempt that the deadline cut off may still be on its way.
        assert!(!wire.exists("a.bin"), "{operation}");
        if operation != "CreateMultipartUpload" {
            wire.assert_clean();
        }
    }
}

#[test]
fn an_upload_whose_end_is_never_answered_names_operation_and_object() {
    let wire = Wire::new(&[("request_deadline_ms", "300"), ("stall_timeout_ms", "200")]);
    wire.fake.fault("reset-upload=1000,op=CompleteMultipartUpload");
    let error = wire.write("a.bin", &pattern(17 * MIB)).unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    assert!(error.to_string().starts_with("complete upload s3://lake/a.bin: "), "{error}");
    assert!(error.to_string().contains("nothing moved for 0.2 s"), "{error}");
}

/// As S3 answers the completion of a large object: the head at once, then byte by byte.
#[test]
fn a_completion_that_the_store_answers_slowly_is_not_cut_at_the_deadline() {
    let wire = Wire::new(&[("request_deadline_ms", "300")]);
    wire.fake.fault("slow=400,op=CompleteMultipartUpload");
    let data = pattern(17 * MIB);
    let began = Instant::now();
    wire.write("a.bin", &data).unwrap();
    assert!(began.elapsed() > Duration::from_millis(400), "it was answered at once");
    let ends = |name| wire.fake.requests().iter().filter(|sent| sent.operation == name).count();
    assert_eq!((ends("CompleteMultipartUpload"), ends("AbortMultipartUpload")), (1, 0));
    assert!(wire.exists("a.bin"));
    wire.assert_clean();
}

#[test]
fn a_web_page_in_place_of_the_store_is_asked_for_four_times() {
    for operation in ["GetObject", "PutObject", "ListObjectsV2", "DeleteObjects"] {
        let wire = Wire::new(&[]);
        wire.fake.fault(&format!("html,op={operation}"));
        let query = wire.query();
        let error = match operation {
            "GetObject" => wire.open(&query, "a.bin").map(drop),
            "PutObject" => wire.write("a.bin", b"x"),
            "ListObjectsV2" => query.block_on(query.list(&wire.at(""))).map(drop),
            _ => query.block_on(query.remove(&[wire.at("a"), wire.at("b")])),
        }
        .unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{operation}: {error}");
        assert!(error.to_string().contains("s3://lake/"), "{error}");
        assert!(error.to_string().contains("proxy"), "{error}");
        assert!(error.to_string().contains("gave up after 4 attempts"), "{error}");
        wire.assert_operations(&[operation; 4]);
    }
}

#[test]
fn a_refused_connection_is_tried_four_times() {
    let wire = Wire::new(&[]);
    let at = wire.at("a.bin");
    let query = wire.query();
    drop(wire.fake);
    let error = query.block_on(query.stat(&at)).unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    assert!(error.to_string().starts_with("HEAD s3://lake/a.bin: "), "{error}");
    assert!(error.to_string().contains("gave up after 4 attempts"), "{error}");
}

#[test]
fn wrong_key_is_told_at_once() {
    let wire = Wire::new(&[]);
    wire.write("a.bin", b"x").unwrap();
    wire.assert_operations(&["PutObject"]);
    let endpoint = wire.fake.address().to_string();
    let options = [
        ("secret_type", "s3"),
        ("key_id", "test"),
        ("secret", "wr0ng-s3cret"),
        ("endpoint", endpoint.as_str()),
        ("url_style", "path"),
        ("use_ssl", "false"),
    ]
    .map(|(name, value)| (name.to_string(), value.to_string()));
    let at = wire.engine.locate("s3://lake/a.bin", &options).unwrap();
    let query = wire.query();
    let error = query.block_on(query.open(&at, &Known::NOTHING)).unwrap_err();
    assert_eq!(error.kind(), Kind::Denied, "{error}");
    assert!(!format!("{error} {error:?}").contains("wr0ng-s3cret"));
    wire.assert_operations(&["GetObject"]);
}

#[test]
fn object_replaced_while_it_is_read_is_a_conflict() {
    let wire = Wire::new(&[]);
    wire.write("a.bin", &pattern(MIB)).unwrap();
    wire.engine.clear_cache();
    let query = wire.query();
    let reader = wire.open(&query, "a.bin").unwrap();
    wire.fake.fault("replace,op=GetObject,times=1");
    let error = read(&query, &reader, 600 * KIB, KIB).unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict, "{error}");
    assert!(error.to_string().contains("Re-run the query"), "{error}");
}

#[test]
fn interruption_ends_a_blocked_read_and_a_blocked_write() {
    let wire = Wire::new(&[]);
    wire.write("a.bin", &pattern(MIB)).unwrap();
    wire.engine.clear_cache();
    let asked = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&asked);
    let query = wire.engine.query(
        wire.engine.settings().clone(),
        Some(Box::new(move || flag.load(Ordering::Relaxed))),
    );
    let reader = query.block_on(query.open(&wire.at("a.bin"), &Known::NOTHING)).unwrap();
    wire.fake.fault("stall=60000,op=GetObject");
    asked.store(true, Ordering::Relaxed);
    let mut buf = vec![0; KIB];
    let error = query.block_on(reader.read_at(&query, &mut buf, 600 * KIB as u64)).unwrap_err();
    assert_eq!(error.kind(), Kind::Cancelled);

    wire.fake.fault("stall=60000,op=PutObject");
    let mut writer = query.create(&wire.at("b.bin"), PutOptions::default()).unwrap();
    asked.store(false, Ordering::Relaxed);
    query.block_on(writer.write(b"x")).unwrap();
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            // A request that the store has not struck yet would take effect once faults are over.
            while wire.fake.faults().fired().last() == Some(&0) {
                std::thread::yield_now();
            }
            asked.store(true, Ordering::Relaxed);
        });
        query.block_on(writer.finish()).unwrap_err()
    });
    assert_eq!(error.kind(), Kind::Cancelled);
    drop(writer);
    wire.fake.faults().clear();
    assert!(!wire.exists("b.bin"));
    wire.engine.clear_cache();
    drop(reader);
    wire.assert_clean();
}

#[test]
fn two_writers_of_one_key_only_one_wins() {
    let wire = Wire::new(&[]);
    let results: Vec<_> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|index| {
                let (query, at) = (wire.query(), wire.at("one"));
                scope.spawn(move || {
                    let options =
                        PutOptions { condition: WriteCondition::IfAbsent, ..PutOptions::default() };
                    let mut writer = query.create(&at, options)?;
                    query.block_on(writer.write(&[index; KIB]))?;
                    query.block_on(writer.finish())
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    let lost = results.into_iter().filter_map(Result::err);
    assert!(lost.into_iter().all(|error| error.kind() == Kind::Conflict));
}

#[test]
fn ten_partitions_overlap_behind_the_barrier() {
    let wire = Wire::new(&[]);
    let query = wire.query();
    wire.fake.fault("latency=100,op=PutObject");
    for index in 0..10 {
        let mut writer =
            query.create(&wire.at(&format!("p={index}/0.parquet")), PutOptions::default()).unwrap();
        query.block_on(writer.write(&pattern(80 * KIB))).unwrap();
        writer.finish_detached().unwrap();
    }
    query.block_on(query.barrier()).unwrap();
    wire.assert_operations(&["PutObject"; 10]);
    wire.fake.faults().clear();
    let found = query.block_on(query.glob(&wire.at("p=*/*.parquet"))).unwrap();
    assert_eq!(found.len(), 10);
    assert_eq!(found[0].url, "s3://lake/p=0/0.parquet");
    wire.assert_operations(&["ListObjectsV2"]);
    wire.assert_clean();
}

//! What a host that plans its own requests (DuckDB's prefetcher) is told of a store: the round trip
//! and what one connection brings are those that a stopwatch gives.

use crate::support::{Bench, Link, Scripted, pattern, read};
use penstock_base::Settings;
use penstock_engine::{Engine, Known, PutOptions};
use penstock_testkit::fake::{FakeOptions, FakeS3, LinkOptions};
use std::time::{Duration, Instant};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// How far it may be off.
const WRONG_MAX: f64 = 0.3;

fn is_near(told: f64, measured: f64) -> bool {
    (told / measured - 1.0).abs() <= WRONG_MAX
}

/// Whatever the store's profile says, and however the reads look that it is learned from.
#[tokio::test(start_paused = true)]
async fn what_is_told_is_what_was_measured_and_not_what_the_profile_says() {
    let data = pattern(32 * MIB);
    // The clock of the tests has milliseconds: turns of 64 KiB take one, two, four or 25 of them.
    for (latency_ms, bytes_per_s) in
        [(100, 2_621_440.0), (30, 16_384_000.0), (100, 65_536_000.0), (3, 32_768_000.0)]
    {
        for (len, count) in [(128 * KIB, 30), (2 * MIB, 6), (20 * MIB, 8)] {
            for is_split in ["true", "false"] {
                let mut store = Scripted::remote(Duration::from_millis(latency_ms));
                store.profile.connection_bytes_per_s = 90e6;
                store.link = Some(Link::new(bytes_per_s));
                let bench = Bench::with(store, &[("parallel_read_enabled", is_split)]);
                bench.store.place("a.csv", data.clone()).await;
                let query = bench.query();
                let reader = query.open(&bench.at("a.csv"), &Known::NOTHING).await.unwrap();
                for number in 0..count {
                    // Here and there, so that nothing is asked for ahead.
                    let at = MIB + number * 7919 * 4096 % (data.len() - MIB - len);
                    assert!(read(&reader, &query, at, len).await == data[at..at + len]);
                }
                let link = reader.link(&query);
                let told_ms = link.latency.as_secs_f64() * 1000.0;
                let case = format!("{latency_ms} ms, {bytes_per_s} B/s, {len} bytes, {is_split}");
                assert!(is_near(told_ms, latency_ms as f64), "{link:?}, {case}");
                assert!(is_near(link.bytes_per_s, bytes_per_s), "{link:?}, {case}");
            }
        }
    }
}

/// Over HTTP: a store 100 ms away, behind 100 Mbit/s.
#[test]
fn a_store_over_http_is_told_as_it_is_measured() {
    let latency = Duration::from_millis(100);
    let link = LinkOptions { latency, bits_per_s_down: Some(1e8), ..LinkOptions::default() };
    let fake = FakeS3::start(FakeOptions { link, ..FakeOptions::s3() }).unwrap();
    let mut settings = Settings::default();
    settings.set("parallel_read_enabled", "false").unwrap();
    let engine = Engine::new(settings.clone()).unwrap();
    let at = crate::wire::at(&engine, fake.address(), "s3://lake/a.csv");
    let query = engine.query(settings, None);
    let data = pattern(12 * MIB);
    let mut writer = query.create(&at, PutOptions::default()).unwrap();
    query.block_on(writer.write(&data)).unwrap();
    query.block_on(writer.finish()).unwrap();
    let reader = query.block_on(query.open(&at, &Known::NOTHING)).unwrap();
    let timed = |start: usize, len: usize| {
        let begun = Instant::now();
        let mut buf = vec![0; len];
        query.block_on(reader.read_at(&query, &mut buf, start as u64)).unwrap();
        assert!(buf == data[start..start + len]);
        begun.elapsed().as_secs_f64()
    };
    // By a stopwatch: the shortest read of next to nothing, and what those of 2 MiB take longer.
    let starts = [9 * MIB, 3 * MIB, 6 * MIB];
    let first_byte_s = starts.map(|start| timed(start, 100)).into_iter().fold(f64::MAX, f64::min);
    let whole_s = starts.map(|start| timed(start + MIB - 5, 2 * MIB)).into_iter().sum::<f64>();
    let transfer_s = whole_s / starts.len() as f64 - first_byte_s;
    let (told, bytes_per_s) = (reader.link(&query), 2.0 * MIB as f64 / transfer_s);
    assert!(is_near(told.latency.as_secs_f64(), first_byte_s), "{told:?}, {first_byte_s} s");
    assert!(is_near(told.bytes_per_s, bytes_per_s), "{told:?}, {bytes_per_s} B/s");
}

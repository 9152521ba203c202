//! Fetching ahead for clients that read an object in ranges, a request for each, as behind the
//! gateway.

use crate::support::{Bench, Fault, Scripted, pattern};
use bytes::Bytes;
use penstock_base::{ByteRange, Metric, Result};
use penstock_engine::{GetRange, GetRequest, Payload, PutOptions, Query, Stream, Trails};
use penstock_store::Store as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// A door that serves ranges.
struct Door {
    bench: Bench,
    trails: Arc<Trails>,
}

/// Its cache is in memory, and asks nothing of objects again.
const CACHED: &[(&str, &str)] = &[
    ("cache_memory_bytes", "512MiB"),
    ("cache_validation", "never"),
    ("request_log_entries", "0"),
];

impl Door {
    fn new(store: Scripted, settings: &[(&str, &str)]) -> Self {
        let all = [CACHED, settings].concat();
        let bench = Bench::with(store, &all);
        let trails = Trails::new(&bench.engine, 32 << 20).unwrap();
        Door { bench, trails }
    }

    async fn over(key: &str, data: &[u8]) -> Self {
        let door = Door::new(Scripted::new(), &[]);
        door.place(key, data.to_vec()).await;
        door
    }

    /// As a service has it, which tells a media type: what a listing does not tell counts as known
    /// only then.
    async fn place(&self, key: &str, data: impl Into<Bytes>) {
        let content_type = Some("application/octet-stream".to_string());
        let options = PutOptions { content_type, ..PutOptions::default() };
        let memory = &self.bench.store.memory;
        memory.put(key, Payload::from(data.into()), &options).await.unwrap();
    }

    /// What a client is answered, before it takes any of it.
    async fn begin(&self, query: &Query, key: &str, start: usize, end: usize) -> Result<Stream> {
        let range = GetRange::Bounded(ByteRange { start: start as u64, end: end as u64 });
        let stream = query.get(&self.bench.at(key), GetRequest::from(range)).await?;
        Ok(stream.follow(&self.trails))
    }

    /// A request of a client that takes all of its answer, and then what is ahead has come.
    async fn read(&self, key: &str, start: usize, end: usize) -> Vec<u8> {
        let bytes = self.read_at_once(key, start, end).await;
        settle().await;
        bytes
    }

    async fn read_at_once(&self, key: &str, start: usize, end: usize) -> Vec<u8> {
        let query = self.bench.query();
        let stream = self.begin(&query, key, start, end).await.unwrap();
        drop(query);
        rest_of(stream).await
    }

    /// Ranges of a size one after the other, from one offset to another.
    async fn reads(&self, key: &str, data: &[u8], from: usize, to: usize, step: usize) {
        for start in (from..to).step_by(step) {
            let end = (start + step).min(to);
            assert!(self.read(key, start, end).await == data[start..end], "{start}");
        }
    }

    fn calls(&self) -> Vec<String> {
        self.bench.store.take_calls()
    }

    fn ahead_bytes(&self) -> u64 {
        self.bench.engine.metrics().get(Metric::ReadAheadBytes)
    }

    fn wasted_bytes(&self) -> u64 {
        self.bench.engine.metrics().get(Metric::ReadAheadWastedBytes)
    }
}

async fn rest_of(mut stream: Stream) -> Vec<u8> {
    let (mut all, mut buf) = (Vec::new(), vec![0; 256 * KIB]);
    loop {
        match stream.read(&mut buf).await.unwrap() {
            0 => return all,
            count => all.extend_from_slice(&buf[..count]),
        }
    }
}

/// Lets all that can go on do so.
async fn settle() {
    for _ in 0..500 {
        tokio::task::yield_now().await;
    }
}

/// The ranges of these requests, in the order of their starts.
fn spans(calls: &[String]) -> Vec<(usize, usize)> {
    let span = |call: &String| {
        let range = call.strip_prefix("get ").and_then(|call| call.split(' ').nth(1));
        let (start, end) = range.and_then(|range| range.split_once("..")).expect(call);
        (start.parse().unwrap(), end.parse().unwrap())
    };
    let mut spans: Vec<_> = calls.iter().map(span).collect();
    spans.sort_unstable();
    spans
}

/// All bytes up to `size` were asked for, and each once.
fn assert_each_byte_once(calls: &[String], size: usize) {
    let mut next = 0;
    for (start, end) in spans(calls) {
        assert_eq!(start, next, "{calls:?}");
        next = end;
    }
    assert_eq!(next, size, "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn behind_two_ranges_in_a_row_the_next_ones_are_here_when_they_are_asked_for() {
    for step in [MIB, 3 * MIB + 7, 8 * MIB, 16 * MIB] {
        let data = pattern(61 * MIB + 13);
        let door = Door::over("a", &data).await;
        door.reads("a", &data, 0, 2 * step, step).await;
        let calls = door.calls();
        assert_eq!(spans(&calls)[..2], [(0, step), (step, 2 * step)], "{step}");
        assert!(calls.len() > 2, "{step}: {calls:?}");
        let mut all = calls;
        let mut waited = 0;
        for start in (2 * step..data.len()).step_by(step) {
            let end = (start + step).min(data.len());
            assert!(door.read("a", start, end).await == data[start..end], "{start}");
            let calls = door.calls();
            // A request that begins where the client's does was not ahead of it.
            waited += spans(&calls).iter().filter(|span| span.0 == start).count();
            all.extend(calls);
        }
        assert_eq!(waited, 0, "{step}: {all:?}");
        assert_each_byte_once(&all, data.len());
        let ahead_bytes = data.len() - 2 * step;
        assert_eq!(door.ahead_bytes(), ahead_bytes as u64, "{step}");
        assert_eq!(door.wasted_bytes(), 0, "{step}");
        let hits = door.bench.engine.metrics().get(Metric::ReadAheadHits);
        assert_eq!(hits, ahead_bytes.div_ceil(step) as u64, "{step}");
        // Small ranges become larger requests.
        assert!(step > MIB || all.len() < data.len() / MIB / 2, "{}", all.len());
    }
}

#[tokio::test(start_paused = true)]
async fn reads_here_and_there_cost_one_request_each_and_bring_nothing_else() {
    let data = pattern(64 * MIB);
    let door = Door::over("a", &data).await;
    // Each place once, none beside the one before.
    for index in 0..64 {
        let start = (index * 37 % 64) * MIB;
        assert!(door.read("a", start, start + 700 * KIB).await == data[start..start + 700 * KIB]);
        assert_eq!(door.calls(), [format!("get a {start}..{}", start + 700 * KIB)]);
    }
    // From the end to the beginning.
    let door = Door::over("a", &data).await;
    for start in (0..64).rev().map(|index| index * MIB) {
        door.read("a", start, start + MIB).await;
        assert_eq!(door.calls().len(), 1);
    }
    assert_eq!((door.ahead_bytes(), door.wasted_bytes()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_asks_for_many_ranges_at_once_needs_nothing_ahead() {
    let data = pattern(16 * MIB);
    let door = Door::over("a", &data).await;
    let query = door.bench.query();
    let mut streams = Vec::new();
    for index in 0..16 {
        streams.push(door.begin(&query, "a", index * MIB, (index + 1) * MIB).await.unwrap());
    }
    for (index, stream) in streams.into_iter().enumerate() {
        assert!(rest_of(stream).await == data[index * MIB..(index + 1) * MIB]);
    }
    settle().await;
    assert_eq!(door.calls().len(), 16);
    assert_eq!(door.ahead_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_range_that_is_on_its_way_is_waited_for_and_not_asked_for_again() {
    let data = pattern(48 * MIB);
    let mut took = Vec::new();
    for most_bytes in [0u64, 32 << 20] {
        let mut store = Scripted::remote(Duration::from_millis(30));
        store.link = Some(crate::support::Link::new(200e6));
        let mut door = Door::new(store, &[]);
        door.trails = Trails::new(&door.bench.engine, most_bytes).unwrap();
        door.place("a", data.clone()).await;
        let began = Instant::now();
        for start in (0..data.len()).step_by(2 * MIB) {
            assert!(
                door.read_at_once("a", start, start + 2 * MIB).await
                    == data[start..start + 2 * MIB]
            );
        }
        took.push(began.elapsed().as_secs_f64());
        assert_each_byte_once(&door.calls(), data.len());
        let shared = door.bench.engine.metrics().get(Metric::FlightsShared);
        assert_eq!(shared > 0, most_bytes > 0);
        assert_eq!(door.wasted_bytes(), 0);
    }
    // Of 24 round trips those in which the window grows are left, and then the link is full.
    let link_s = data.len() as f64 / 200e6;
    assert!(took[0] > link_s + 24.0 * 0.030, "{took:?}");
    assert!(took[1] < link_s + 8.0 * 0.030, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn clients_that_read_the_same_side_by_side_share_what_is_ahead() {
    let data = pattern(24 * MIB);
    let door = Door::over("a", &data).await;
    for start in (0..data.len()).step_by(MIB) {
        let both = [0, 1].map(|_| door.read_at_once("a", start, start + MIB));
        let both = futures_util::future::join_all(both).await;
        assert!(both.iter().all(|bytes| *bytes == data[start..start + MIB]), "{start}");
        settle().await;
    }
    let mut calls = door.calls();
    calls.sort();
    // Their first ranges, before anything of them was cached.
    calls.dedup();
    assert_each_byte_once(&calls, data.len());
    assert_eq!(door.wasted_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn behind_what_others_have_read_nothing_is_asked_for() {
    let data = pattern(8 * MIB);
    let door = Door::over("a", &data).await;
    door.read("a", 0, data.len()).await;
    assert_eq!(door.calls(), ["get a 0..8388608"]);
    door.reads("a", &data, 0, data.len(), MIB).await;
    assert_eq!(door.calls(), Vec::<String>::new());
    // And of what is cached in part the rest.
    let door = Door::over("a", &data).await;
    door.read("a", 5 * MIB, 6 * MIB).await;
    door.reads("a", &data, 0, data.len(), MIB).await;
    assert_each_byte_once(&door.calls(), data.len());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_replaced_meanwhile_is_never_mixed_nor_served_stale() {
    for validation in ["always", "auto"] {
        let door = Door::new(Scripted::new(), &[("cache_validation", validation)]);
        let (old, new) = (vec![1u8; 16 * MIB], vec![2u8; 16 * MIB]);
        door.place("a", old.clone()).await;
        door.reads("a", &old, 0, 2 * MIB, MIB).await;
        assert!(door.ahead_bytes() > 0);
        // What comes next is cached, or on its way, when the object is replaced.
        let gate = door.bench.store.hold("get");
        let query = door.bench.query();
        let third = door.begin(&query, "a", 2 * MIB, 3 * MIB).await.unwrap();
        settle().await;
        door.place("a", new.clone()).await;
        gate.add_permits(1000);
        assert!(rest_of(third).await == old[2 * MIB..3 * MIB], "its version was confirmed before");
        settle().await;
        door.calls();
        door.reads("a", &new, 3 * MIB, 8 * MIB, MIB).await;
        let calls = door.calls();
        assert!(calls.iter().any(|call| call == "get a 3145728..4194304"), "{calls:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_breaks_off_stops_what_is_on_its_way() {
    let data = pattern(32 * MIB);
    let door = Door::over("a", &data).await;
    let query = door.bench.query();
    door.read("a", 0, 4 * MIB).await;
    let gate = door.bench.store.hold("get");
    gate.add_permits(1);
    let mut second = door.begin(&query, "a", 4 * MIB, 8 * MIB).await.unwrap();
    settle().await;
    let running = || door.bench.store.running.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(running(), 2, "two requests for what follows");
    let mut buf = vec![0; KIB];
    second.read(&mut buf).await.unwrap();
    drop(second);
    settle().await;
    assert_eq!(running(), 0);
    gate.add_permits(100);
    settle().await;
    assert_eq!(door.wasted_bytes(), 0, "none of it came");
    // It has to begin anew.
    door.calls();
    door.read("a", 8 * MIB, 12 * MIB).await;
    assert_eq!(door.calls(), ["get a 8388608..12582912"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_client_left_unread_counts_as_wasted_once_it_is_gone() {
    let data = pattern(32 * MIB);
    let door = Door::over("a", &data).await;
    door.reads("a", &data, 0, 2 * MIB, MIB).await;
    let ahead_bytes = door.ahead_bytes();
    assert_eq!((ahead_bytes, door.wasted_bytes()), (MIB as u64, 0));
    tokio::time::advance(Duration::from_secs(31)).await;
    // Whoever comes next notices.
    door.read("a", 20 * MIB, 21 * MIB).await;
    assert_eq!(door.wasted_bytes(), ahead_bytes);
    // The bytes are in the cache all the same.
    door.calls();
    door.read("a", 2 * MIB, 3 * MIB).await;
    assert_eq!(door.calls(), Vec::<String>::new());
}

/// Two ranges in a row and then elsewhere, as of the columns of a row group, without end.
#[tokio::test(start_paused = true)]
async fn of_clients_that_soon_stop_a_tenth_is_in_vain_and_a_start() {
    let settings = [("cache_memory_bytes", "128MiB")];
    let door = Door::new(Scripted::new(), &settings);
    let data = Bytes::from(pattern(8 * MIB));
    let mut read_bytes = 0;
    for index in 0..160 {
        let key = format!("k{index}");
        door.place(&key, data.clone()).await;
        door.reads(&key, &data, 0, 2 * MIB, MIB).await;
        read_bytes += 2 * MIB as u64;
        tokio::time::advance(Duration::from_secs(31)).await;
    }
    door.read("k0", 7 * MIB, 8 * MIB).await;
    let wasted_bytes = door.wasted_bytes();
    assert!(wasted_bytes > 60 << 20, "{wasted_bytes}: the test shows nothing");
    assert!(wasted_bytes <= read_bytes / 10 + (64 << 20), "{wasted_bytes} of {read_bytes}");
    // Who goes on is still read ahead for, with a tenth of what it has read.
    let data = pattern(64 * MIB);
    door.place("long", data.clone()).await;
    let before = door.ahead_bytes();
    door.reads("long", &data, 0, data.len(), 4 * MIB).await;
    assert!(door.ahead_bytes() - before > 16 << 20, "{}", door.ahead_bytes() - before);
    assert_eq!(door.wasted_bytes(), wasted_bytes);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_asks_for_less_is_asked_for_nothing_ahead() {
    let data = pattern(32 * MIB);
    let door = Door::over("a", &data).await;
    door.read("a", 0, MIB).await;
    door.bench.store.fail("get", Fault::Throttle);
    // The client's own request is sent again, and nothing besides.
    door.read("a", MIB, 2 * MIB).await;
    assert_eq!(door.calls().len(), 3);
    door.reads("a", &data, 2 * MIB, 6 * MIB, MIB).await;
    assert_eq!(door.calls().len(), 4);
    assert_eq!(door.ahead_bytes(), 0);
    tokio::time::sleep(Duration::from_secs(31)).await;
    door.reads("a", &data, 8 * MIB, 10 * MIB, MIB).await;
    assert!(door.ahead_bytes() > 0, "calm again");
}

#[tokio::test(start_paused = true)]
async fn a_request_ahead_that_is_refused_is_not_sent_again() {
    let data = pattern(32 * MIB);
    let door = Door::over("a", &data).await;
    door.read("a", 0, 4 * MIB).await;
    let query = door.bench.query();
    let second = door.begin(&query, "a", 4 * MIB, 8 * MIB).await.unwrap();
    door.bench.store.fail("get", Fault::Throttle);
    door.bench.store.fail("get", Fault::Throttle);
    assert!(rest_of(second).await == data[4 * MIB..8 * MIB]);
    settle().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let calls = spans(&door.calls());
    let ahead: Vec<_> = calls.iter().filter(|span| span.0 >= 8 * MIB).collect();
    assert_eq!(ahead, [&(8 * MIB, 10 * MIB), &(10 * MIB, 12 * MIB)]);
    // Whoever wants the bytes asks for them.
    assert!(door.read("a", 8 * MIB, 12 * MIB).await == data[8 * MIB..12 * MIB]);
}

#[tokio::test(start_paused = true)]
async fn many_clients_at_once_hold_no_more_than_a_quarter_of_the_memory() {
    const LIMIT: u64 = 64 << 20;
    let settings = [("memory_limit_bytes", "64MiB"), ("cache_memory_bytes", "16MiB")];
    let mut store = Scripted::remote(Duration::from_millis(30));
    store.link = Some(crate::support::Link::new(200e6));
    let door = Door::new(store, &settings);
    let data = Bytes::from(pattern(24 * MIB));
    for client in 0..12 {
        door.place(&format!("k{client}"), data.clone()).await;
    }
    let held = || door.bench.engine.budget().held_bytes();
    let clients = (0..12).map(|client| {
        let (door, data) = (&door, &data);
        async move {
            for start in (0..data.len()).step_by(4 * MIB) {
                let bytes = door.read_at_once(&format!("k{client}"), start, start + 4 * MIB).await;
                assert!(bytes == data[start..start + 4 * MIB], "{client} at {start}");
            }
        }
    });
    let watched = async {
        loop {
            // What is on its way, what the cache has, and a piece for each client.
            assert!(held() <= LIMIT / 4 + (16 << 20) + 12 * MIB as u64, "{}", held());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        _ = futures_util::future::join_all(clients) => {}
        () = watched => {}
    }
    assert!(door.ahead_bytes() > 0);
    drop(door.trails);
    door.bench.engine.clear_cache();
    crate::support::assert_clean(&door.bench).await;
}

#[tokio::test(start_paused = true)]
async fn what_no_cache_takes_is_not_fetched_ahead() {
    let data = pattern(8 * MIB);
    for (weak_tags, capacity) in [(false, "0"), (true, "64MiB")] {
        let mut store = Scripted::new();
        store.weak_tags = weak_tags;
        let door = Door::new(store, &[("cache_memory_bytes", capacity)]);
        door.place("a", data.clone()).await;
        door.reads("a", &data, 0, data.len(), MIB).await;
        assert_eq!(door.calls().len(), 8);
        assert_eq!(door.ahead_bytes(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn what_does_not_come_is_asked_for_by_who_waits_for_it() {
    let data = pattern(32 * MIB);
    let door = Door::over("a", &data).await;
    door.reads("a", &data, 0, 2 * MIB, MIB).await;
    door.bench.store.fail("get", Fault::Hang);
    let began = Instant::now();
    door.reads("a", &data, 2 * MIB, 16 * MIB, MIB).await;
    let took = began.elapsed();
    assert!((2..5).contains(&took.as_secs()), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_the_caches_did_not_keep_was_in_vain() {
    let data = pattern(32 * MIB);
    let door = Door::over("a", &data).await;
    door.reads("a", &data, 0, 8 * MIB, 2 * MIB).await;
    assert_eq!(door.wasted_bytes(), 0);
    let hits = || door.bench.engine.metrics().get(Metric::ReadAheadHits);
    let before = hits();
    door.bench.engine.clear_cache();
    door.reads("a", &data, 8 * MIB, 12 * MIB, 2 * MIB).await;
    assert!(door.wasted_bytes() >= 2 << 20, "{}", door.wasted_bytes());
    assert_eq!(hits(), before);
}

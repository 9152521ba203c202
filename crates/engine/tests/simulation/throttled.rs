//! A store that refuses what is more than so many requests at once: how close to that the engine
//! comes, how seldom it is refused, and that it takes all again once the store does.

use crate::scenario::{engine_over, on_a_virtual_clock, open};
use crate::store::{Model, OBJECT, OBJECT_BYTES, SimStore};
use penstock_base::Settings;
use penstock_engine::Engine;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

const LATENCY_MS: f64 = 50.0;
/// A round trip is counted in when the first of many answers has cut what is on its way.
const SETTLED_AFTER: Duration = Duration::from_secs(3);

/// Answers and refusals in some time.
#[derive(Clone, Copy, Debug)]
struct Span {
    answered: f64,
    refused: f64,
    seconds: f64,
}

impl Span {
    /// How many requests the store carried out at once, on average.
    fn at_once(&self) -> f64 {
        self.answered / self.seconds * LATENCY_MS / 1000.0
    }

    /// Refusals for each answer.
    fn refused(&self) -> f64 {
        self.refused / self.answered
    }
}

/// What happens in the store from one moment to another.
async fn span(store: &SimStore, from: Instant, to: Instant) -> Span {
    sleep_until(from).await;
    let counts = || {
        let gets = store.told.gets.load(Ordering::Relaxed);
        let refused = store.told.refused.load(Ordering::Relaxed);
        ((gets - refused) as f64, refused as f64)
    };
    let before = counts();
    sleep_until(to).await;
    let after = counts();
    Span {
        answered: after.0 - before.0,
        refused: after.1 - before.1,
        seconds: (to - from).as_secs_f64(),
    }
}

/// One thread of small reads here and there, until the end.
async fn read_until(engine: Arc<Engine>, number: u64, until: Instant) {
    let query = engine.query(engine.settings().clone(), None);
    let reader = open(&query, "a").await.expect("nobody cancels it");
    let mut buf = vec![0; 512];
    let mut at = number * 65_537 * 512;
    // Of its own, so that readers which meet, and share a request then, part again.
    let stride = (7919 + 2 * number) * 512;
    while Instant::now() < until {
        at = (at + stride) % (OBJECT_BYTES - 512);
        reader.read_at(&query, &mut buf, at).await.expect("what is refused is sent again");
        assert!(buf == OBJECT[at as usize..][..512], "wrong bytes at {at}");
    }
}

/// With so many threads that read, how it goes while the store takes `capacity` requests at once,
/// and how when it takes all again.
fn throttled(capacity: usize, readers: u64) -> (Span, Span) {
    let model = Model { capacity, ..Model::calm(LATENCY_MS, 100_000.0, 1e9) };
    let settings = Settings {
        open_fetch_bytes: 0,
        request_deadline_ms: 3_600_000,
        request_log_entries: 0,
        ..Settings::default()
    };
    on_a_virtual_clock(async {
        let store = Arc::new(SimStore::new(model, 1));
        let engine = engine_over(&store, &settings, 1);
        let begun = Instant::now();
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        let players: Vec<_> = (0..readers)
            .map(|number| tokio::spawn(read_until(Arc::clone(&engine), number, at(69))))
            .collect();
        let limited = span(&store, begun + SETTLED_AFTER, at(30)).await;
        store.capacity.store(usize::MAX, Ordering::Relaxed);
        // It holds back until the store has refused nothing for half a minute.
        let lifted = span(&store, at(64), at(69)).await;
        for player in players {
            player.await.expect("no reader panics");
        }
        (limited, lifted)
    })
}

/// From three seconds on: between half of what the store takes and all of it, as halving and adding
/// one makes it, and all that is wanted where the store takes more than that. Once it is one too
/// many, what follows is refused until the first refusal has come back, so one round trip in as
/// many as half of the requests at once: about one and a half refusals in so many answers.
#[test]
fn what_is_on_its_way_settles_below_what_a_store_takes_and_recovers() {
    for (capacity, readers) in [(8, 32), (16, 64), (40, 100), (100, 40)] {
        let (limited, lifted) = throttled(capacity, readers);
        let wanted = (readers as f64).min(capacity as f64);
        let told = format!("{readers} readers, {capacity} at once: {limited:?}, then {lifted:?}");
        let at_once = limited.at_once();
        assert!(at_once >= 0.65 * wanted, "{at_once:.1} of {wanted} at once; {told}");
        assert!(at_once <= 1.02 * wanted, "{at_once:.1} of {wanted} at once; {told}");
        let refused_max = if readers > capacity as u64 { 1.7 / capacity as f64 } else { 0.0 };
        assert!(limited.refused() <= refused_max, "{:.3}; {told}", limited.refused());
        assert_eq!(lifted.refused, 0.0, "{told}");
        let at_once = lifted.at_once();
        assert!(at_once >= 0.9 * readers as f64, "{at_once:.1} at once when lifted; {told}");
    }
}

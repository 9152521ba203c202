//! How much is asked of a store at once: what is learned of it, and who may ask now.
//!
//! Holds the state of one store; the decisions are pure and lie in `cost` (what a read costs),
//! `learn` (the numbers of that), `policy` (what the settings allow), `window` (after a refusal),
//! `tail` (late answers), `trickle` (slow bodies) and `rate` (what opening an object brings).

pub(crate) mod cost;
pub(crate) mod learn;
pub(crate) mod policy;
mod rate;
mod tail;
pub(crate) mod trickle;
mod window;

use crate::slots::{Slot, Slots};
use cost::CostModel;
use learn::{Learner, Load, Seen};
use penstock_store::Profile;
use policy::Policy;
use rate::{Rate, opening_bytes};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tail::Tail;
use tokio::time::Instant;
use trickle::{Stretch, Usual};
use window::Window;

/// Held bytes between two missing stretches are worth a request of their own from here on, however
/// far the store: what was fetched once should not be fetched again.
const GAP_BYTES_MAX: u64 = 1 << 20;

/// What is known of one store, and what is on its way from it.
#[derive(Debug)]
pub(crate) struct Pace {
    began: Instant,
    learner: Mutex<Learner>,
    window: Mutex<Window>,
    /// Taken by requests until their first byte.
    slots: Slots,
    waiting: AtomicUsize,
    tail: Mutex<Tail>,
    /// What connections bring.
    usual: Mutex<Usual>,
    /// What the link brings.
    rate: Mutex<Rate>,
    /// Objects that are being opened.
    openings: AtomicU64,
    reads: AtomicU64,
    requests: AtomicU64,
}

impl Pace {
    pub fn new(profile: &Profile) -> Self {
        let bytes_per_ms = profile.connection_bytes_per_s / 1000.0;
        let window = Window::default();
        Pace {
            began: Instant::now(),
            learner: Mutex::new(Learner::new(profile.first_byte_ms, bytes_per_ms)),
            slots: Slots::new(window.total()),
            window: Mutex::new(window),
            waiting: AtomicUsize::new(0),
            tail: Mutex::default(),
            usual: Mutex::default(),
            rate: Mutex::default(),
            openings: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            requests: AtomicU64::new(0),
        }
    }

    /// What one connection brings in a second, as far as it is known.
    pub fn connection_bytes_per_s(&self, policy: &Policy) -> f64 {
        self.measured(policy, &lock(&self.learner)).bytes_per_ms * 1000.0
    }

    /// The shortest run of held bytes between two missing ones that is not fetched again.
    pub fn gap_bytes(&self, policy: &Policy, latency: Duration) -> u64 {
        let mut learner = lock(&self.learner);
        learner.know_first_byte(millis(latency));
        self.measured(policy, &learner).gap_bytes().min(GAP_BYTES_MAX)
    }

    /// The model of one reader, with what was measured of a connection that was alone. What the
    /// learner has is made of whole reads, so where the latency was not known yet, or bodies are
    /// short beside it, it is too little. Before any read was large enough for it, what all
    /// connections brought is nearer to the truth than what the store's profile says.
    fn measured(&self, policy: &Policy, learner: &Learner) -> CostModel {
        let model = learner.model(policy, 1.0);
        let rate = *lock(&self.rate);
        let of_all = || rate.bytes_per_ms().filter(|_| !learner.knows_bandwidth());
        let bytes_per_ms = rate.alone_bytes_per_ms().or_else(of_all);
        CostModel { bytes_per_ms: bytes_per_ms.unwrap_or(model.bytes_per_ms), ..model }
    }

    /// In how many requests at once a read of `len` bytes is cheapest, at most `limit`.
    pub fn fanout(&self, policy: &Policy, len: u64, limit: u64, latency: Duration) -> u64 {
        if limit <= 1 {
            return 1;
        }
        let reads = self.reads.load(Ordering::Relaxed) + 1;
        let mut learner = lock(&self.learner);
        learner.know_first_byte(millis(latency));
        learner.choose(policy, len, limit, reads as f64)
    }

    /// A read of so many requests begins.
    pub fn begin(&self, requests: u64) -> OnItsWay<'_> {
        let before = self.requests.fetch_add(requests, Ordering::Relaxed);
        let reads = self.reads.fetch_add(1, Ordering::Relaxed);
        OnItsWay { pace: self, requests, others: (reads, before), began: Instant::now() }
    }

    /// Waits until one more request may wait for its first byte; at once, unless the store has
    /// asked for less lately.
    pub async fn enter(&self) -> Entered<'_> {
        let slot = self.slots.slot().await;
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Entered { pace: self, _slot: slot, sent: self.began.elapsed() }
    }

    /// Whether the store has asked for less lately.
    pub fn is_limited(&self) -> bool {
        lock(&self.window).is_limited()
    }

    /// A request is sent; when its answer is late, if that may matter.
    pub fn late_after(&self) -> Option<Duration> {
        let late_ms = lock(&self.tail).sent()?;
        // A store that has asked for less gets nothing extra.
        (!self.is_limited()).then(|| Duration::from_secs_f64(late_ms / 1000.0))
    }

    /// Whether a second request for a late answer can be paid for, which pays for it.
    pub fn spend(&self) -> bool {
        lock(&self.tail).spend()
    }

    /// Whether a body that came so far is to be replaced by another request, which pays for it.
    /// Nothing extra goes to a store that has asked for less.
    pub fn is_trickle(&self, stretch: &mut Stretch, left: u64, latency: Duration) -> bool {
        stretch.judge(&mut lock(&self.usual), left, millis(latency))
            && !self.is_limited()
            && self.spend()
    }

    /// Somebody waits for bytes of a body.
    pub fn waits(&self) -> Waiting<'_> {
        lock(&self.rate).waits(self.began.elapsed());
        Waiting { pace: self, come_bytes: 0 }
    }

    /// An object is opened until this is dropped.
    pub fn opens(&self) -> Opens<'_> {
        self.openings.fetch_add(1, Ordering::Relaxed);
        Opens(self)
    }

    /// How much of an object is fetched at most with the request that opens it, and with so many
    /// others that are sent together with it.
    pub fn opening_bytes(&self, setting_bytes: u64, latency: Duration, others: u64) -> u64 {
        let bytes_per_ms = lock(&self.rate).bytes_per_ms();
        let openings = self.openings.load(Ordering::Relaxed) + 1 + others;
        opening_bytes(setting_bytes, bytes_per_ms, latency, openings)
    }

    /// A second request was sent; whether it was answered first.
    pub fn judged(&self, won: bool) {
        lock(&self.tail).judged(won);
    }
}

/// A wait for bytes of a body; they have come where it is told before it is dropped.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    pace: &'a Pace,
    come_bytes: u64,
}

impl Waiting<'_> {
    /// So many came.
    pub fn came(mut self, bytes: usize) {
        self.come_bytes = bytes as u64;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        lock(&self.pace.rate).waited(self.pace.began.elapsed(), self.come_bytes);
    }
}

/// An object that is being opened.
#[derive(Debug)]
pub(crate) struct Opens<'a>(&'a Pace);

impl Drop for Opens<'_> {
    fn drop(&mut self) {
        self.0.openings.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A read that is on its way.
#[derive(Debug)]
pub(crate) struct OnItsWay<'a> {
    pace: &'a Pace,
    requests: u64,
    /// Other reads, and their requests, when it began.
    others: (u64, u64),
    began: Instant,
}

impl OnItsWay<'_> {
    /// All of it was asked of the store, and arrived.
    pub fn ended(self, policy: &Policy, len: u64) {
        let mean = |before: u64, now: u64, own: u64| {
            own as f64 + (before + now.saturating_sub(own)) as f64 / 2.0
        };
        let (reads, requests) = (&self.pace.reads, &self.pace.requests);
        let load = Load {
            reads: mean(self.others.0, reads.load(Ordering::Relaxed), 1),
            requests: mean(self.others.1, requests.load(Ordering::Relaxed), self.requests),
        };
        let took_ms = millis(self.began.elapsed());
        let seen = Seen { len, fanout: self.requests, took_ms, load: Some(load), is_cold: false };
        lock(&self.pace.learner).observe(policy, &seen);
    }
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        self.pace.requests.fetch_sub(self.requests, Ordering::Relaxed);
        self.pace.reads.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request that waits for its first byte.
#[derive(Debug)]
pub(crate) struct Entered<'a> {
    pace: &'a Pace,
    _slot: Slot<'a>,
    sent: Duration,
}

impl Entered<'_> {
    /// The first byte came.
    pub fn answered(self) {
        let now = self.pace.began.elapsed();
        lock(&self.pace.tail).answered(millis(now.saturating_sub(self.sent)));
        self.judged(|window| window.answered(now));
    }

    /// The store asked for less (429, 503).
    pub fn refused(self) {
        let now = self.pace.began.elapsed();
        let waiting = self.pace.waiting.load(Ordering::Relaxed);
        self.judged(|window| window.refused(now, self.sent, waiting));
    }

    fn judged(&self, judge: impl FnOnce(&mut Window)) {
        let mut window = lock(&self.pace.window);
        let before = window.total();
        judge(&mut window);
        if window.total() != before {
            // Under the lock, so that the last judgement decides.
            self.pace.slots.set_total(window.total());
        }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.pace.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Requests of all reads beyond the first of each, as many as the setting allows at once. A read
/// that finds none free is one request.
#[derive(Debug, Default)]
pub(crate) struct Lanes(AtomicU64);

/// Lanes of one read; dropping it gives them back.
#[derive(Debug)]
pub(crate) struct Reserved<'a> {
    lanes: &'a Lanes,
    count: u64,
}

impl Lanes {
    /// Reserves up to `wanted` while no more than `limit` are taken; possibly none.
    pub fn reserve(&self, wanted: u64, limit: u64) -> Reserved<'_> {
        let mut count = 0;
        if wanted > 0 {
            // The closure always gives a value, so this cannot fail.
            let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                count = wanted.min(limit.saturating_sub(taken));
                Some(taken + count)
            });
        }
        Reserved { lanes: self, count }
    }
}

impl Reserved<'_> {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.lanes.0.fetch_sub(self.count, Ordering::Relaxed);
    }
}

pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_base::Settings;
    use penstock_store::Store as _;
    use penstock_store::memory::MemoryStore;
    use proptest::prelude::*;

    proptest! {
        /// However far the store and fast its connections: what was fetched is fetched again up to
        /// a bound only.
        #[test]
        fn the_gap_follows_the_latency_that_was_measured_up_to_its_bound(
            told_ms in 0.0..1e6f64, bytes_per_s in 0.0..1e12f64,
            one_us in 0u64..10_000_000, other_us in 0u64..10_000_000,
        ) {
            let profile = Profile {
                first_byte_ms: told_ms,
                connection_bytes_per_s: bytes_per_s,
                ..MemoryStore::new("t").profile()
            };
            let (pace, policy) = (Pace::new(&profile), Policy::of(&Settings::default()));
            let gap = |us: u64| pace.gap_bytes(&policy, Duration::from_micros(us));
            let (near, far) = (gap(one_us.min(other_us)), gap(one_us.max(other_us)));
            prop_assert!(near <= far && far <= GAP_BYTES_MAX, "{} and {}", near, far);
            prop_assert_eq!(gap(0), 0, "what is told counts no more");
        }
    }

    #[test]
    fn lanes_are_given_as_long_as_there_are_some_and_come_back() {
        let lanes = Lanes::default();
        let first = lanes.reserve(3, 4);
        assert_eq!((first.count(), lanes.reserve(3, 4).count()), (3, 1));
        assert_eq!(lanes.reserve(3, 2).count(), 0, "the limit was lowered");
        drop(first);
        assert_eq!(lanes.reserve(9, 4).count(), 4);
    }
}

//! How long a store takes to its first byte, as seen lately.

use penstock_base::micros;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The least of two of these is the least that was seen lately. A store is not believed to be as
/// near as one answer was for longer: what was in a cache of the store's, or came from a machine
/// that is gone, says nothing of the others. BBR has ten seconds, and drains the link to look
/// again; here nothing is drained, and answers on a link that we keep full wait for each other.
const WINDOW: Duration = Duration::from_secs(30);

/// Begins with what the store's profile expects; a shorter time counts at once, longer ones (which
/// include waiting for a connection, or for other answers on the same link) by an eighth each.
#[derive(Debug)]
pub(crate) struct Latency {
    told: Duration,
    expected_micros: AtomicU64,
    /// `None`: no answer has begun.
    least: Mutex<Option<Least>>,
}

/// The least of this window, and of the one before it.
#[derive(Clone, Copy, Debug)]
struct Least {
    began: Instant,
    now: Duration,
    before: Option<Duration>,
}

impl Least {
    fn with(self, at: Instant, time: Duration) -> Self {
        let age = at.saturating_duration_since(self.began);
        match self {
            Least { began, now, before } if age < WINDOW => {
                Least { began, now: now.min(time), before }
            }
            Least { now, .. } if age < 2 * WINDOW => {
                Least { began: at, now: time, before: Some(now) }
            }
            _ => Least { began: at, now: time, before: None },
        }
    }
}

impl Latency {
    /// `expected_ms` may be any number; a negative one is 0.
    pub fn new(expected_ms: f64) -> Self {
        // A float to integer cast saturates.
        let micros = (expected_ms * 1000.0) as u64;
        let (told, expected_micros) = (Duration::from_micros(micros), AtomicU64::new(micros));
        Latency { told, expected_micros, least: Mutex::default() }
    }

    /// An answer began after this time.
    pub fn note(&self, time: Duration) {
        self.note_at(Instant::now(), time);
    }

    fn note_at(&self, at: Instant, time: Duration) {
        let sample = micros(time);
        // Two that note at once may lose one sample.
        let old = self.expected_micros.load(Ordering::Relaxed);
        let next = sample.min(old + sample.saturating_sub(old) / 8);
        self.expected_micros.store(next, Ordering::Relaxed);
        let first = Least { began: at, now: time, before: None };
        let mut least = self.lock();
        *least = Some(least.map_or(first, |least| least.with(at, time)));
    }

    /// The time to expect.
    pub fn get(&self) -> Duration {
        Duration::from_micros(self.expected_micros.load(Ordering::Relaxed))
    }

    /// The time to expect, or what the profile says where that is longer: for what is decided once,
    /// and not by the one answer that came last.
    pub fn most(&self) -> Duration {
        self.get().max(self.told)
    }

    /// The least that was seen lately, if there was any answer.
    pub fn least(&self) -> Option<Duration> {
        self.lock().map(|least| least.before.map_or(least.now, |before| before.min(least.now)))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Least>> {
        self.least.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_time_counts_at_once_and_long_ones_slowly() {
        let latency = Latency::new(30.0);
        assert_eq!((latency.get(), latency.least()), (Duration::from_millis(30), None));
        latency.note(Duration::from_millis(110));
        assert_eq!(latency.get(), Duration::from_millis(40));
        assert_eq!(latency.least(), Some(Duration::from_millis(110)));
        latency.note(Duration::from_micros(200));
        assert_eq!(latency.get(), Duration::from_micros(200));
        latency.note(Duration::from_millis(1));
        assert_eq!(latency.get(), Duration::from_micros(300));
        for _ in 0..50 {
            latency.note(Duration::from_secs(u64::MAX));
        }
        assert!(latency.get() > Duration::from_secs(1));
    }

    #[test]
    fn one_fast_answer_is_forgotten_in_a_while() {
        let (latency, began) = (Latency::new(30.0), Instant::now());
        let (fast, slow) = (Duration::from_millis(1), Duration::from_millis(100));
        latency.note_at(began, fast);
        assert_eq!((latency.get(), latency.most()), (fast, Duration::from_millis(30)));
        for step in 1..20 {
            latency.note_at(began + step * WINDOW / 5, slow);
            let least = latency.least().unwrap();
            assert!(step >= 10 || least == fast, "{step}: {least:?}");
            assert!(step < 10 || least == slow, "{step}: {least:?}");
        }
        // After a rest the next answer alone counts, and until then the last ones.
        assert_eq!(latency.least(), Some(slow));
        latency.note_at(began + 10 * WINDOW, 2 * slow);
        assert_eq!(latency.least(), Some(2 * slow));
        latency.note_at(began + 10 * WINDOW + slow, fast);
        assert_eq!(latency.least(), Some(fast), "a shorter one counts at once");
    }
}

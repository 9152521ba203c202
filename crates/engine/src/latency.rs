//! How long a store takes to its first byte, as seen lately.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Begins with what the store's profile expects; a shorter time counts at once, longer ones (which
/// include waiting for a connection, or for other answers on the same link) by an eighth each.
#[derive(Debug)]
pub(crate) struct Latency {
    expected_micros: AtomicU64,
    least_micros: AtomicU64,
}

/// No answer has begun.
const UNSEEN: u64 = u64::MAX;

impl Latency {
    /// `expected_ms` may be any number; a negative one is 0.
    pub fn new(expected_ms: f64) -> Self {
        // A float to integer cast saturates.
        let expected_micros = AtomicU64::new((expected_ms * 1000.0) as u64);
        Latency { expected_micros, least_micros: AtomicU64::new(UNSEEN) }
    }

    /// An answer began after this time.
    pub fn note(&self, time: Duration) {
        let sample = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        // Two that note at once may lose one sample.
        let old = self.expected_micros.load(Ordering::Relaxed);
        let next = sample.min(old + sample.saturating_sub(old) / 8);
        self.expected_micros.store(next, Ordering::Relaxed);
        self.least_micros.fetch_min(sample, Ordering::Relaxed);
    }

    /// The time to expect.
    pub fn get(&self) -> Duration {
        Duration::from_micros(self.expected_micros.load(Ordering::Relaxed))
    }

    /// The least that was seen, if there was any answer.
    pub fn least(&self) -> Option<Duration> {
        let least = self.least_micros.load(Ordering::Relaxed);
        (least != UNSEEN).then(|| Duration::from_micros(least))
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
}

//! How long a store takes to its first byte, as seen lately.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Begins with what the store's profile expects; a shorter time counts at once, longer ones (which
/// include waiting for a connection, or for other answers on the same link) by an eighth each.
#[derive(Debug)]
pub(crate) struct Latency(AtomicU64);

impl Latency {
    /// `expected_ms` may be any number; a negative one is 0.
    pub fn new(expected_ms: f64) -> Self {
        // A float to integer cast saturates.
        Latency(AtomicU64::new((expected_ms * 1000.0) as u64))
    }

    /// An answer began after this time.
    pub fn note(&self, time: Duration) {
        let sample = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        // Two that note at once may lose one sample.
        let old = self.0.load(Ordering::Relaxed);
        self.0.store(sample.min(old + sample.saturating_sub(old) / 8), Ordering::Relaxed);
    }

    /// The time to expect.
    pub fn get(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_time_counts_at_once_and_long_ones_slowly() {
        let latency = Latency::new(30.0);
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

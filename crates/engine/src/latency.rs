//! How long a store takes to its first byte, as seen lately.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What the store's profile expects, until a first time is seen. Of those that follow, a shorter one
/// counts at once, longer ones (which include waiting for a connection, or for other answers on the
/// same link) by an eighth each.
#[derive(Debug)]
pub(crate) struct Latency {
    micros: AtomicU64,
    is_seen: AtomicBool,
}

impl Latency {
    /// `expected_ms` may be any number; a negative one is 0.
    pub fn new(expected_ms: f64) -> Self {
        // A float to integer cast saturates.
        let micros = AtomicU64::new((expected_ms * 1000.0) as u64);
        Latency { micros, is_seen: AtomicBool::new(false) }
    }

    /// An answer began after this time.
    pub fn note(&self, time: Duration) {
        let sample = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        // Two that note at once may lose one sample.
        let old = self.micros.load(Ordering::Relaxed);
        let next = if self.is_seen.load(Ordering::Relaxed) {
            sample.min(old + sample.saturating_sub(old) / 8)
        } else {
            sample
        };
        self.micros.store(next, Ordering::Relaxed);
        // Whoever sees it sees the time, too.
        self.is_seen.store(true, Ordering::Release);
    }

    /// The time to expect.
    pub fn get(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::Relaxed))
    }

    /// The time to expect, if there was any answer.
    pub fn seen(&self) -> Option<Duration> {
        self.is_seen.load(Ordering::Acquire).then(|| self.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_time_and_a_short_one_count_at_once_and_long_ones_slowly() {
        let latency = Latency::new(30.0);
        assert_eq!((latency.get(), latency.seen()), (Duration::from_millis(30), None));
        latency.note(Duration::from_millis(100));
        assert_eq!(latency.seen(), Some(Duration::from_millis(100)));
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

//! A distribution of times with fixed bounds. Pure.

use std::time::Duration;

/// Upper bounds of the buckets in seconds; a last one without bound follows. From half a
/// millisecond (a small read from the page cache) to a minute (a slow upload).
pub const BOUNDS_SECONDS: [f64; 16] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
];

/// How many times fell below each bound.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// One per bound, and the rest.
    counts: [u64; BOUNDS_SECONDS.len() + 1],
    sum_seconds: f64,
}

impl Histogram {
    /// Adds a time.
    pub fn observe(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        let bucket = BOUNDS_SECONDS.iter().position(|bound| seconds <= *bound);
        self.counts[bucket.unwrap_or(BOUNDS_SECONDS.len())] += 1;
        self.sum_seconds += seconds;
    }

    /// How many times were at most each bound, in order of the bounds.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let sums = self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        BOUNDS_SECONDS.into_iter().zip(sums)
    }

    /// All of them.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum.
    pub fn sum_seconds(&self) -> f64 {
        self.sum_seconds
    }
}

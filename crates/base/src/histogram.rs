//! A distribution of times over fixed bounds. Pure.

use std::time::Duration;

/// How many times fell below each of some bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    bounds: &'static [Duration],
    /// One per bound, and the rest.
    counts: Vec<u64>,
    sum: Duration,
}

/// Which of the counts of [`Histogram`] a time belongs to: of the first bound that is not below
/// it, or behind the last.
pub fn bucket(bounds: &[Duration], time: Duration) -> usize {
    bounds.partition_point(|bound| *bound < time)
}

impl Histogram {
    /// An empty one over upper bounds, which rise.
    pub fn new(bounds: &'static [Duration]) -> Self {
        Histogram { bounds, counts: vec![0; bounds.len() + 1], sum: Duration::ZERO }
    }

    /// Adds a time.
    pub fn observe(&mut self, time: Duration) {
        self.counts[bucket(self.bounds, time)] += 1;
        self.sum += time;
    }

    /// Adds times that were counted elsewhere: one count per bound and one for the rest, and the
    /// sum of the times.
    pub fn add(&mut self, counts: &[u64], sum: Duration) {
        debug_assert_eq!(counts.len(), self.counts.len(), "counts over other bounds");
        self.counts.iter_mut().zip(counts).for_each(|(into, count)| *into += count);
        self.sum += sum;
    }

    /// How many fell between each bound and the one before; the last row has no bound.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        let bounds = self.bounds.iter().copied().map(Some).chain([None]);
        bounds.zip(self.counts.iter().copied())
    }

    /// How many times were at most each bound, in order of the bounds.
    pub fn cumulative(&self) -> impl Iterator<Item = (Duration, u64)> {
        let sums = self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        self.bounds.iter().copied().zip(sums)
    }

    /// All of them.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum.
    pub fn sum(&self) -> Duration {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOUNDS: &[Duration] =
        &[Duration::from_micros(1), Duration::from_micros(2), Duration::from_micros(4)];

    proptest! {
        #[test]
        fn each_time_is_counted_once_below_its_bound(
            nanos in prop::collection::vec(0u64..6000, 0..60), cut in 0usize..60,
        ) {
            let mut whole = Histogram::new(BOUNDS);
            let mut parts = [Histogram::new(BOUNDS), Histogram::new(BOUNDS)];
            for (index, nanos) in nanos.iter().enumerate() {
                whole.observe(Duration::from_nanos(*nanos));
                parts[usize::from(index >= cut)].observe(Duration::from_nanos(*nanos));
            }
            prop_assert_eq!(whole.count(), nanos.len() as u64);
            prop_assert_eq!(whole.sum().as_nanos(), nanos.iter().map(|it| u128::from(*it)).sum());
            for (bound, count) in whole.cumulative() {
                let fits = |nanos: &&u64| u128::from(**nanos) <= bound.as_nanos();
                prop_assert_eq!(count, nanos.iter().filter(fits).count() as u64);
            }
            prop_assert_eq!(whole.buckets().map(|(_, count)| count).sum::<u64>(), whole.count());
            let [mut first, second] = parts;
            let counts: Vec<u64> = second.buckets().map(|(_, count)| count).collect();
            first.add(&counts, second.sum());
            prop_assert_eq!(first, whole);
        }
    }
}

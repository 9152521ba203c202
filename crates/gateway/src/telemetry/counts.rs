//! Counters that many requests add to at once: atomic, so that none waits for another.

use super::BOUNDS;
use penstock_base::Histogram;
use penstock_base::histogram::bucket;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Statuses of HTTP have three digits, and no answer is 0.
const STATUSES: usize = 1000;
/// More names than [`Rows`] are asked for: S3 has some hundred operations, HTTP a few methods.
const ROWS: usize = 160;

/// A count that goes up and, for gauges, down.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Zero.
    pub const fn new() -> Self {
        Count(AtomicU64::new(0))
    }

    /// Raises it.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Lowers it.
    pub fn sub(&self, amount: u64) {
        self.0.fetch_sub(amount, Ordering::Relaxed);
    }

    /// The value now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A distribution of times.
#[derive(Debug)]
pub struct Times {
    counts: [Count; BOUNDS.len() + 1],
    nanos: Count,
}

impl Default for Times {
    fn default() -> Self {
        Times { counts: std::array::from_fn(|_| Count::default()), nanos: Count::default() }
    }
}

impl Times {
    /// Adds one.
    pub fn observe(&self, time: Duration) {
        self.counts[bucket(BOUNDS, time)].add(1);
        self.nanos.add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// What there is now.
    pub fn histogram(&self) -> Histogram {
        let mut histogram = Histogram::new(BOUNDS);
        let counts: Vec<u64> = self.counts.iter().map(Count::get).collect();
        histogram.add(&counts, Duration::from_nanos(self.nanos.get()));
        histogram
    }
}

/// Answers by status: 8 KiB.
#[derive(Debug)]
pub struct Statuses([Count; STATUSES]);

impl Default for Statuses {
    fn default() -> Self {
        Statuses([const { Count::new() }; STATUSES])
    }
}

impl Statuses {
    /// Counts an answer.
    pub fn add(&self, status: u16) {
        self.0[usize::from(status).min(STATUSES - 1)].add(1);
    }

    /// The statuses that there were, in their order, and how many of each.
    pub fn counted(&self) -> impl Iterator<Item = (usize, u64)> {
        self.0.iter().map(Count::get).enumerate().filter(|row| row.1 > 0)
    }
}

/// Counters by name. The first to come with a name makes its row; whoever comes later finds it
/// there, and waits for nobody. Names past the room that there is share the last row.
#[derive(Debug)]
pub struct Rows<T>([OnceLock<Box<(String, T)>>; ROWS]);

impl<T> Default for Rows<T> {
    fn default() -> Self {
        Rows([const { OnceLock::new() }; ROWS])
    }
}

/// What the last row is called.
const OTHER: &str = "other";

impl<T: Default> Rows<T> {
    /// The counters of this name.
    pub fn of(&self, name: &str) -> &T {
        let made = |name: &str| Box::new((name.to_string(), T::default()));
        for slot in &self.0[..ROWS - 1] {
            let row = slot.get_or_init(|| made(name));
            if row.0 == name {
                return &row.1;
            }
        }
        &self.0[ROWS - 1].get_or_init(|| made(OTHER)).1
    }

    /// All that there are, by name.
    pub fn sorted(&self) -> BTreeMap<&str, &T> {
        let rows = self.0.iter().filter_map(OnceLock::get);
        rows.map(|row| (row.0.as_str(), &row.1)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_come_at_once_with_new_names_find_the_same_rows() {
        const THREADS: usize = 8;
        let rows: Rows<Count> = Rows::default();
        let names: Vec<String> = (0..40).map(|number| format!("Operation{number}")).collect();
        let start = std::sync::Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for shift in 0..THREADS {
                let (rows, names, start) = (&rows, &names, &start);
                scope.spawn(move || {
                    start.wait();
                    for turn in 0..names.len() * 25 {
                        rows.of(&names[(turn * (shift + 1)) % names.len()]).add(1);
                    }
                });
            }
        });
        let sorted = rows.sorted();
        assert_eq!(sorted.len(), names.len());
        let total: u64 = sorted.values().map(|count| count.get()).sum();
        assert_eq!(total, (THREADS * names.len() * 25) as u64);
    }

    #[test]
    fn names_without_end_take_no_memory_without_end() {
        let rows: Rows<Count> = Rows::default();
        for number in 0..1000 {
            rows.of(&format!("n{number}")).add(1);
        }
        let sorted = rows.sorted();
        assert_eq!(sorted.len(), ROWS);
        assert_eq!(sorted[OTHER].get(), 1000 - (ROWS as u64 - 1));
    }

    #[test]
    fn statuses_are_told_in_their_order() {
        let statuses = Statuses::default();
        for status in [404, 0, 200, 404, 65_535] {
            statuses.add(status);
        }
        let counted: Vec<_> = statuses.counted().collect();
        assert_eq!(counted, [(0, 1), (200, 1), (404, 2), (999, 1)]);
    }
}

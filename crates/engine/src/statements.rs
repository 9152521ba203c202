//! The counters of the last statements, for people who ask what each of them did.
//!
//! Only statements that the host numbers are here, and of those that ended only such as counted
//! something: others would push them out.

use penstock_base::Metrics;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Most statements that are remembered.
pub const STATEMENTS_MAX: usize = 100;

/// Stands for a statement that has not ended.
const RUNS: u64 = u64::MAX;

/// One statement.
#[derive(Debug)]
pub struct Statement {
    /// The host's number.
    pub number: u64,
    /// When it began to use the engine.
    pub started: SystemTime,
    /// What it counted so far.
    pub metrics: Arc<Metrics>,
    begun: Instant,
    elapsed_us: AtomicU64,
}

impl Statement {
    /// How long it has used the engine, or did until it ended.
    pub fn elapsed(&self) -> Duration {
        match self.elapsed_us.load(Ordering::Relaxed) {
            RUNS => self.begun.elapsed(),
            micros => Duration::from_micros(micros),
        }
    }
}

/// The last statements of an engine.
#[derive(Debug, Default)]
pub(crate) struct Statements(Mutex<VecDeque<Arc<Statement>>>);

impl Statements {
    /// A statement begins, or goes on: what tidies up after it has its number.
    pub fn begin(&self, number: u64) -> Arc<Statement> {
        let mut known = self.lock();
        if let Some(same) = known.iter().find(|statement| statement.number == number) {
            same.elapsed_us.store(RUNS, Ordering::Relaxed);
            return Arc::clone(same);
        }
        let new = Arc::new(Statement {
            number,
            started: SystemTime::now(),
            metrics: Arc::default(),
            begun: Instant::now(),
            elapsed_us: AtomicU64::new(RUNS),
        });
        known.push_back(Arc::clone(&new));
        let surplus = known.len().saturating_sub(STATEMENTS_MAX);
        known.drain(..surplus);
        new
    }

    /// A statement ended.
    pub fn end(&self, ended: &Arc<Statement>) {
        let micros = u64::try_from(ended.begun.elapsed().as_micros()).unwrap_or(RUNS - 1);
        ended.elapsed_us.store(micros, Ordering::Relaxed);
        if ended.metrics.is_zero() {
            self.lock().retain(|statement| !Arc::ptr_eq(statement, ended));
        }
    }

    /// Those that counted something, oldest first.
    pub fn snapshot(&self) -> Vec<Arc<Statement>> {
        let known = self.lock();
        known.iter().filter(|statement| !statement.metrics.is_zero()).cloned().collect()
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Statement>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_base::Metric;

    fn numbers(statements: &Statements) -> Vec<u64> {
        statements.snapshot().iter().map(|statement| statement.number).collect()
    }

    #[test]
    fn the_last_statements_that_counted_something_are_remembered() {
        let statements = Statements::default();
        for number in 1..=STATEMENTS_MAX as u64 + 2 {
            let statement = statements.begin(number);
            statement.metrics.add(Metric::Requests, number);
            statements.end(&statement);
            statements.end(&statements.begin(1000 + number));
        }
        let known = numbers(&statements);
        assert_eq!(known.len(), STATEMENTS_MAX - 1, "the one that counted nothing had a place");
        assert_eq!(known.last(), Some(&(STATEMENTS_MAX as u64 + 2)));
        statements.clear();
        assert!(numbers(&statements).is_empty());
    }

    #[test]
    fn what_tidies_up_counts_for_its_statement() {
        let statements = Statements::default();
        let (first, tidying) = (statements.begin(7), statements.begin(7));
        tidying.metrics.add(Metric::RequestsDelete, 1);
        assert_eq!(first.metrics.get(Metric::RequestsDelete), 1);
        statements.end(&first);
        let elapsed = first.elapsed();
        assert_eq!(first.elapsed(), elapsed, "it ended");
        assert_eq!(numbers(&statements), [7]);
    }
}

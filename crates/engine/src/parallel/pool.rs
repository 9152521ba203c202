//! The threads that help readers of wrapped file systems: those file systems block, so they need
//! threads, apart from DuckDB's and from the I/O runtime's.
//!
//! A reader reserves helpers before it splits its read, and takes part itself. So nothing ever
//! waits in a queue: where no thread is free the reader reads alone, as it would without a pool.
//! Threads start when they are first needed and end when nobody needed them for a while.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A thread that had nothing to do for so long ends.
const IDLE_MAX: Duration = Duration::from_secs(10);

type Task = Box<dyn FnOnce() + Send>;

/// The threads of one engine.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
    /// The process that the threads belong to: a fork copies this struct, not the threads.
    process: u32,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// At most one for each reserved thread.
    tasks: VecDeque<Task>,
    /// Threads that are reserved or at work.
    busy: u64,
    /// Threads that are there.
    threads: u64,
    closed: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("busy", &self.busy)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

impl Default for Pool {
    fn default() -> Self {
        Pool { shared: Arc::default(), process: std::process::id() }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The life of a thread.
    fn serve(&self) {
        let mut state = self.lock();
        loop {
            if let Some(task) = state.tasks.pop_front() {
                drop(state);
                // A panic of a task is told by its latch, see `Helpers::run`.
                let _ = catch_unwind(AssertUnwindSafe(task));
                state = self.lock();
                state.busy -= 1;
                continue;
            }
            if state.closed {
                break;
            }
            let waited = self.changed.wait_timeout(state, IDLE_MAX);
            let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = woken;
            if timeout.timed_out() && state.tasks.is_empty() && state.threads > state.busy {
                break;
            }
        }
        state.threads -= 1;
        self.changed.notify_all();
    }
}

impl Pool {
    /// Reserves up to `wanted` helpers while no more than `limit` are busy; possibly none.
    pub fn reserve(&self, wanted: u64, limit: u64) -> Helpers<'_> {
        if wanted == 0 || self.process != std::process::id() {
            return Helpers { pool: self, count: 0 };
        }
        let mut state = self.shared.lock();
        let mut count = wanted.min(limit.saturating_sub(state.busy));
        while state.threads < state.busy + count {
            if !self.start_thread() {
                // The system has no thread to give: who is there has to do.
                count = state.threads - state.busy;
                break;
            }
            state.threads += 1;
        }
        state.busy += count;
        Helpers { pool: self, count }
    }

    fn start_thread(&self) -> bool {
        let shared = Arc::clone(&self.shared);
        let builder = std::thread::Builder::new().name("penstock-read".to_string());
        builder.spawn(move || shared.serve()).is_ok()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        let mut state = self.shared.lock();
        state.closed = true;
        self.shared.changed.notify_all();
        while state.threads > 0 {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Reserved threads; they are free again when this is dropped or has run.
#[derive(Debug)]
pub(crate) struct Helpers<'a> {
    pool: &'a Pool,
    count: u64,
}

/// Counts the helpers of one read that are not done yet.
#[derive(Default)]
struct Latch {
    left: Mutex<u64>,
    done: Condvar,
}

struct CountDown(Arc<Latch>);

impl Drop for CountDown {
    fn drop(&mut self) {
        *self.0.left.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.done.notify_all();
    }
}

/// Waits when it is dropped, so that a panic of the caller's own part cannot free what helpers use.
struct WaitForAll(Arc<Latch>);

impl Drop for WaitForAll {
    fn drop(&mut self) {
        let mut left = self.0.left.lock().unwrap_or_else(PoisonError::into_inner);
        while *left > 0 {
            left = self.0.done.wait(left).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Helpers<'_> {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Runs `work` with 0 on this thread and with 1 to `lanes - 1` on helpers, and returns when all
    /// calls have ended; when this thread's call panics, it panics then.
    pub fn run(mut self, lanes: u64, work: Arc<dyn Fn(u64) + Send + Sync>) {
        let used = lanes.saturating_sub(1).min(self.count);
        let latch = Arc::new(Latch { left: Mutex::new(used), done: Condvar::new() });
        let wait = WaitForAll(Arc::clone(&latch));
        {
            let mut state = self.pool.shared.lock();
            for lane in 1..=used {
                let (work, latch) = (Arc::clone(&work), CountDown(Arc::clone(&latch)));
                state.tasks.push_back(Box::new(move || {
                    let _latch = latch;
                    work(lane);
                }));
            }
            // Each task gives its thread back itself.
            self.count -= used;
            self.pool.shared.changed.notify_all();
        }
        work(0);
        drop(wait);
    }
}

impl Drop for Helpers<'_> {
    fn drop(&mut self) {
        if self.count > 0 {
            self.pool.shared.lock().busy -= self.count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn all_lanes_run_at_once_and_the_caller_is_one_of_them() {
        let pool = Pool::default();
        let helpers = pool.reserve(3, 16);
        assert_eq!(helpers.count(), 3);
        // Every lane waits for all the others: this ends only if they run at once.
        let (meeting, caller) = (Arc::new(Barrier::new(4)), std::thread::current().id());
        let seen = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&seen);
        helpers.run(
            4,
            Arc::new(move |lane| {
                meeting.wait();
                assert_eq!(lane == 0, std::thread::current().id() == caller);
                count.fetch_add(1 << (8 * lane), Ordering::Relaxed);
            }),
        );
        assert_eq!(seen.load(Ordering::Relaxed), 0x0101_0101);
    }

    #[test]
    fn nobody_gets_more_than_is_free() {
        let pool = Pool::default();
        let first = pool.reserve(3, 4);
        let second = pool.reserve(3, 4);
        let third = pool.reserve(1, 4);
        assert_eq!((first.count(), second.count(), third.count()), (3, 1, 0));
        drop(first);
        assert_eq!(pool.reserve(9, 4).count(), 3);
    }

    #[test]
    fn a_lane_that_panics_ends_and_its_thread_helps_again() {
        let pool = Pool::default();
        for _ in 0..3 {
            let helpers = pool.reserve(1, 1);
            assert_eq!(helpers.count(), 1);
            helpers.run(2, Arc::new(|lane| assert_eq!(lane, 0, "meant to panic")));
            // The thread is given back a moment after the read ended.
            while pool.shared.lock().busy > 0 {
                std::thread::yield_now();
            }
        }
        assert_eq!(pool.shared.lock().threads, 1);
    }

    #[test]
    fn a_caller_that_panics_waits_for_its_helpers() {
        let pool = Pool::default();
        let ended = Arc::new(AtomicU64::new(0));
        let (count, meeting) = (Arc::clone(&ended), Arc::new(Barrier::new(2)));
        let helpers = pool.reserve(1, 1);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            helpers.run(
                2,
                Arc::new(move |lane| {
                    meeting.wait();
                    assert_ne!(lane, 0, "meant to panic");
                    count.fetch_add(1, Ordering::Relaxed);
                }),
            );
        }));
        assert!(caught.is_err());
        assert_eq!(ended.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_forked_child_gets_no_helpers() {
        let mut pool = Pool::default();
        pool.process += 1;
        assert_eq!(pool.reserve(4, 16).count(), 0);
    }
}

//! Wrap mode: one large read of another file system becomes several at once.
//!
//! The other file system blocks, so its sub-reads run on the caller's thread and on helpers of the
//! pool. How many, and where they begin, is decided in `pace`, as for our own stores.

mod pool;
mod systems;

pub(crate) use pool::Pool;
pub use systems::{WRAP_SYSTEMS, WrapSystem};

use crate::Query;
use crate::pace::learn::{FileState, Learner, Seen};
use crate::pace::millis;
use crate::pace::policy::{Policy, parts};
use penstock_base::{ByteRange, Metric};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One of the reads that a large read became.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubRead {
    /// Which open file to read: 0 is the reader's own, others are opened when first asked for.
    /// Only sub-reads that may share a file have the same number.
    pub handle: u64,
    /// What to read.
    pub range: ByteRange,
}

/// Carries out a sub-read; false when it failed, for a reason that it keeps.
pub type SubReader = Arc<dyn Fn(SubRead) -> bool + Send + Sync>;

/// What a wrapped file system needs to be read in parallel: what was learned of it.
#[derive(Debug)]
pub struct ParallelReads {
    shares_handle: bool,
    first_read_alone: bool,
    learner: Mutex<Learner>,
}

/// What is to be known of the reader's own open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnFile {
    /// It was opened for parallel access.
    pub is_shared: bool,
    /// Open files of the object that reads have used, itself among them; 0 before its first read
    /// has succeeded.
    pub files_used: u64,
    /// Opening it asked the store, so it has a connection before its first read.
    pub is_connected: bool,
    /// What was read of the object so far.
    pub bytes_read: u64,
}

/// Which open file the sub-read of a lane reads.
#[derive(Clone, Copy, Debug)]
struct Handles {
    /// Each lane has its own.
    dedicated: bool,
    /// The reader's own file may be read by several threads at once.
    own_is_shared: bool,
}

impl Handles {
    /// How many open files so many lanes read.
    fn count(self, lanes: u64) -> u64 {
        if self.dedicated { lanes } else { 1 + self.of_lane(1).min(lanes - 1) }
    }

    /// In how many parts a read may be made of open files only.
    fn open_fanout(self, files_used: u64, limit: u64) -> u64 {
        (1..=limit).rev().find(|lanes| self.count(*lanes) <= files_used).unwrap_or(1)
    }

    fn of_lane(self, lane: u64) -> u64 {
        match lane {
            0 => 0,
            lane if self.dedicated => lane,
            _ => u64::from(!self.own_is_shared),
        }
    }
}

impl ParallelReads {
    /// For the file system of this name.
    pub fn new(file_system: &str) -> Self {
        ParallelReads {
            shares_handle: systems::shares_handle(file_system),
            first_read_alone: systems::first_read_alone(file_system),
            learner: Mutex::default(),
        }
    }

    /// Whether a read of `len` bytes might be split at all.
    pub fn may_split(&self, query: &Query, len: u64) -> bool {
        Policy::of(query.settings()).fanout_limit(len) > 1
    }

    /// Opening a file took so long; whether the store was asked, which tells how far it is.
    pub fn observe_open(&self, took: Duration) -> bool {
        self.learner().observe_open(millis(took))
    }

    /// Reads `range` in one or several calls of `read`, all of which have ended on return. One
    /// call is on this thread; a read in one call costs nothing else. False when a call failed;
    /// the calls that ran beside it were seen to their ends.
    pub fn read(&self, query: &Query, range: ByteRange, own: OwnFile, read: SubReader) -> bool {
        let settings = query.settings();
        let policy = Policy::of(settings);
        let limit = match self.first_read_alone && own.files_used == 0 {
            true => 1,
            false => policy.fanout_limit(range.len()),
        };
        let handles = Handles {
            dedicated: settings.parallel_read_dedicated_handles || !self.shares_handle,
            own_is_shared: own.is_shared,
        };
        let file = FileState {
            open_fanout: handles.open_fanout(own.files_used, limit),
            is_connected: own.is_connected || own.files_used > 0,
            bytes_read: own.bytes_read,
        };
        let wanted = match limit {
            1 => 1,
            _ => self.learner().choose_wrapped(&policy, range.len(), limit, &file),
        };
        let pool = &query.engine().pool;
        let helpers = pool.reserve(wanted - 1, settings.parallel_read_io_threads);
        let parts = parts(range, helpers.count() + 1);
        let fanout = (parts.len() as u64).max(1);
        let is_cold = handles.count(fanout) > own.files_used;
        let started = Instant::now();
        let succeeded = if fanout == 1 {
            drop(helpers);
            read(SubRead { handle: 0, range })
        } else {
            split(helpers, parts, handles, read)
        };
        if succeeded {
            let took_ms = millis(started.elapsed());
            let seen = Seen { len: range.len(), fanout, took_ms, load: None, is_cold };
            self.learner().observe(&policy, &seen);
        }
        count(query, fanout);
        succeeded
    }

    fn learner(&self) -> MutexGuard<'_, Learner> {
        self.learner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The caller reads the last part: a file system that moves the file's position with positional
/// reads leaves it where one plain read would have.
fn split(
    helpers: pool::Helpers<'_>,
    parts: Vec<ByteRange>,
    handles: Handles,
    read: SubReader,
) -> bool {
    let lanes = parts.len();
    let failed = Arc::new(AtomicBool::new(false));
    let outcome = Arc::clone(&failed);
    let work = move |lane: u64| {
        let part = usize::try_from(lane).unwrap_or(usize::MAX).checked_sub(1);
        let range = parts[part.unwrap_or(lanes - 1)];
        // Set before, so that a panic counts as a failure.
        let handle = handles.of_lane(lane);
        let guard = FailUnlessDone { failed: &outcome, done: false };
        guard.finish(read(SubRead { handle, range }));
    };
    helpers.run(lanes as u64, Arc::new(work));
    !failed.load(Ordering::Acquire)
}

/// Marks a failure unless it is told of a success.
struct FailUnlessDone<'a> {
    failed: &'a AtomicBool,
    done: bool,
}

impl FailUnlessDone<'_> {
    fn finish(mut self, succeeded: bool) {
        self.done = succeeded;
    }
}

impl Drop for FailUnlessDone<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.failed.store(true, Ordering::Release);
        }
    }
}

fn count(query: &Query, fanout: u64) {
    let scope = &query.core.scope;
    scope.count(Metric::WrappedReads, 1);
    if fanout > 1 {
        scope.count(Metric::WrappedReadsSplit, 1);
        scope.count(Metric::WrappedSubReads, fanout);
    }
}

#[cfg(test)]
mod tests;

//! Large reads that follow each other: the next one is asked for before the present one is over.
//!
//! The request is sent when what is left of the present read takes about as long as a first byte
//! ([`is_time`]). Until the present read is over its bytes stay in the socket: they would only
//! compete. While the reader is busy with what it has, they are read into memory, as far as that is
//! allowed. The read that wants them takes the answer over where it stands, and has the rest of it
//! go straight into its own buffer. A read that has not come after the stall timeout asks anew: the
//! connections of readers that stand still are for those that go on.
//!
//! The decisions are pure: [`is_time`], [`steps`], [`Allowed`].

use crate::budget::{Budget, Lease};
use crate::cause::Cause;
use crate::query::QueryCore;
use crate::read::block::Source;
use crate::read::flight::Progress;
use crate::read::held::Piece;
use crate::read::room::Room;
use crate::read::spare::SpareSlot;
use crate::read::stream::Stream;
use crate::request_log::Scope;
use penstock_base::{ByteRange, Error, Kind, Metric, Result};
use penstock_device::HUGE_PAGE_BYTES;
use penstock_store::GetRange;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// Smaller pieces of memory would be too many.
const PIECE_BYTES: u64 = HUGE_PAGE_BYTES as u64;
/// The next request is sent so much earlier than its first byte is needed.
const EARLY: f64 = 1.25;
/// Of a first read, one part of so many may be fetched in vain: whether another follows is not
/// known.
const FIRST_PARTS: u64 = 10;
/// Most requests of a run that are sent and not taken over; of all runs of a store, see `spare`.
pub(super) const BEGUN_MAX: usize = 16;

/// How much may be ahead of a run of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Allowed {
    /// To be asked for.
    pub window_bytes: u64,
    /// Of it, to be read into memory.
    pub memory_bytes: u64,
}

impl Allowed {
    /// Behind a run of `run_bytes`, the last of it a read of `step_bytes`, over a link that brings
    /// `bytes_per_s`: what it brings during one latency, and what the reader takes at once. Never
    /// more than was read; behind a first read, the next one and little of it in memory.
    pub fn of(
        run_bytes: u64,
        step_bytes: u64,
        bytes_per_s: f64,
        latency: Duration,
        memory_limit_bytes: u64,
    ) -> Self {
        if run_bytes <= step_bytes {
            let memory_bytes = (run_bytes / FIRST_PARTS).min(memory_limit_bytes);
            return Allowed { window_bytes: run_bytes, memory_bytes };
        }
        // A cast saturates.
        let in_flight = (bytes_per_s * latency.as_secs_f64()) as u64;
        let window_bytes = in_flight.saturating_add(step_bytes).min(run_bytes);
        Allowed { window_bytes, memory_bytes: window_bytes.min(memory_limit_bytes) }
    }

    /// No more than this.
    pub fn at_most(self, bytes: u64) -> Self {
        let Allowed { window_bytes, memory_bytes } = self;
        Allowed { window_bytes: window_bytes.min(bytes), memory_bytes: memory_bytes.min(bytes) }
    }
}

/// The reads to ask for: those of `step_bytes` that follow `asked_end`, where reads have come to
/// `read_end`; at least one where none is asked for. What ends within a step is made up for first,
/// so that each read takes whole answers.
pub(super) fn steps(
    step_bytes: u64,
    read_end: u64,
    asked_end: u64,
    size: u64,
    window_bytes: u64,
) -> Vec<ByteRange> {
    let mut steps = Vec::new();
    let mut start = asked_end.max(read_end);
    while start < size
        && step_bytes > 0
        && steps.len() < BEGUN_MAX
        && (start == read_end || start - read_end + step_bytes <= window_bytes)
    {
        let within = (start - read_end) % step_bytes;
        let end = start.saturating_add(step_bytes - within).min(size);
        steps.push(ByteRange { start, end });
        start = end;
    }
    steps
}

/// Whether what is `left` of a read, of which so much `arrived` in this time, will have arrived
/// when the first byte of a request could that is sent now.
fn is_time(arrived: u64, left: u64, elapsed: Duration, latency: Duration) -> bool {
    left as f64 * elapsed.as_secs_f64() <= arrived as f64 * latency.as_secs_f64() * EARLY
}

/// A read that is under way, and what is done when its end is near.
pub(super) struct Approach {
    left_bytes: AtomicU64,
    latency: Duration,
    /// First bytes, and how many came over the network since.
    seen: Mutex<Option<(Instant, u64)>>,
    begin: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Progress for Approach {
    fn copied(&self, bytes: u64) {
        let before = self.left_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if before <= bytes {
            self.begin();
        }
    }

    fn arrived(&self, bytes: u64) {
        let before = self.left_bytes.fetch_sub(bytes, Ordering::Relaxed);
        let left = before.saturating_sub(bytes);
        let now = Instant::now();
        let (since, arrived) = {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            match seen.as_mut() {
                // How long the first ones took is not known.
                None => *seen.insert((now, 0)),
                Some((since, arrived)) => {
                    *arrived += bytes;
                    (*since, *arrived)
                }
            }
        };
        if left == 0 || (arrived > 0 && is_time(arrived, left, now - since, self.latency)) {
            self.begin();
        }
    }
}

impl Approach {
    pub fn new(len: u64, latency: Duration, begin: impl FnOnce() + Send + 'static) -> Self {
        Approach {
            left_bytes: AtomicU64::new(len),
            latency,
            seen: Mutex::default(),
            begin: Mutex::new(Some(Box::new(begin))),
        }
    }

    /// What the link brought in a second, if that was seen.
    pub fn bytes_per_s(&self) -> Option<f64> {
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, arrived) = seen?;
        let elapsed = since.elapsed();
        (arrived >= PIECE_BYTES && elapsed >= Duration::from_millis(1))
            .then(|| arrived as f64 / elapsed.as_secs_f64())
    }

    fn begin(&self) {
        let begin = self.begin.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(begin) = begin {
            begin();
        }
    }
}

/// What a request does that nobody reads yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// Its bytes stay in the socket.
    Parked,
    /// They are read into memory.
    Filling,
    /// A reader takes it over.
    Wanted,
}

/// A request that was sent for a read which has not come yet. Dropping it ends the request.
#[derive(Debug)]
pub(super) struct Begun {
    pub range: ByteRange,
    phase: watch::Sender<Phase>,
    task: JoinHandle<Result<TakenOver>>,
    memory_bytes: u64,
    memory: Arc<Memory>,
    is_taken: bool,
    scope: Arc<Scope>,
}

/// The memory of a request, which its task takes bit by bit.
#[derive(Debug, Default)]
struct Memory {
    buffered_bytes: AtomicU64,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    /// Those that are gone were given back.
    leases: Vec<Weak<Lease>>,
    /// Nobody wants the rest.
    is_over: bool,
}

impl Memory {
    /// Memory for so many bytes, if it is free and the request still wanted.
    fn take(&self, budget: &Arc<Budget>, bytes: u64) -> Option<Arc<Lease>> {
        let mut taken = self.lock();
        if taken.is_over {
            return None;
        }
        // Under the lock, so that what is taken is either seen by `let_go` or not taken at all.
        let lease = Arc::new(budget.try_lease_ahead(bytes)?);
        taken.leases.push(Arc::downgrade(&lease));
        Some(lease)
    }

    fn leased_bytes(&self) -> u64 {
        let leases = self.leases();
        leases.iter().map(|lease| lease.bytes()).sum()
    }

    /// Says that all of it comes back, and takes no more.
    fn let_go(&self) {
        self.lock().is_over = true;
        self.leases().iter().for_each(|lease| lease.set_returning());
    }

    /// To be dropped outside of the lock, as giving memory back wakes others.
    fn leases(&self) -> Vec<Arc<Lease>> {
        self.lock().leases.iter().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer as far as it has come: bytes in memory, and the stream that has the rest.
#[derive(Debug)]
pub(super) struct TakenOver {
    pub pieces: Vec<Piece>,
    pub stream: Stream,
}

impl Drop for Begun {
    fn drop(&mut self) {
        // Before the task is stopped: it ends on another thread, and gives its memory back there.
        self.memory.let_go();
        self.task.abort();
        if !self.is_taken {
            self.scope.count(Metric::ReadAheadWastedBytes, self.buffered_bytes());
        }
    }
}

impl Begun {
    /// Sends the request; up to `memory_bytes` of its answer may be read into memory.
    pub fn send(source: &Source<'_>, range: ByteRange, memory_bytes: u64, slot: SpareSlot) -> Self {
        let query = source.query;
        let (phase, told) = watch::channel(Phase::Parked);
        let memory = Arc::new(Memory::default());
        let scope = Arc::clone(&query.scope);
        scope.count(Metric::ReadAheadBytes, range.len());
        let answer = Answer {
            query: Arc::clone(query),
            told,
            memory: Arc::clone(&memory),
            memory_bytes,
            _slot: slot,
        };
        let query = Arc::clone(query);
        let (at, version) = (source.at.clone(), source.version.clone());
        let handle = query.engine.handle.clone();
        let task = handle.spawn(scope.run_for(Cause::Ahead, async move {
            let asked = GetRange::Bounded(range);
            let taken = async {
                let stream = Stream::pinned(&query, &at, &version, asked).await?;
                answer.wait(stream).await
            };
            query.cancel.race(taken).await
        }));
        Begun { range, phase, task, memory_bytes, memory, is_taken: false, scope }
    }

    /// The read before it is over: the link is free.
    pub fn fill(&self) {
        self.phase.send_if_modified(|phase| {
            let is_parked = *phase == Phase::Parked;
            *phase = (*phase).max(Phase::Filling);
            is_parked
        });
    }

    /// Bytes of it that may be in memory.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Bytes of it in memory.
    pub fn buffered_bytes(&self) -> u64 {
        self.memory.buffered_bytes.load(Ordering::Relaxed)
    }

    /// Memory that it holds.
    pub fn leased_bytes(&self) -> u64 {
        self.memory.leased_bytes()
    }

    /// Its answer, when that has begun; `None` where the request failed: who needs the bytes asks
    /// again and tells its own error.
    pub async fn take_over(mut self) -> Option<TakenOver> {
        self.phase.send_replace(Phase::Wanted);
        let taken = (&mut self.task).await;
        let taken = taken.ok()?.ok()?;
        self.is_taken = true;
        Some(taken)
    }
}

/// The task behind a request.
struct Answer {
    query: Arc<QueryCore>,
    told: watch::Receiver<Phase>,
    memory: Arc<Memory>,
    memory_bytes: u64,
    /// Until a reader wants it: then it is no request ahead of reads any more.
    _slot: SpareSlot,
}

impl Answer {
    /// Reads ahead as far as it may, until a reader wants the answer.
    async fn wait(mut self, mut stream: Stream) -> Result<TakenOver> {
        let mut pieces = Vec::new();
        let mut start = stream.range().start;
        let end = stream.range().end.min(start.saturating_add(self.memory_bytes));
        self.until(Phase::Filling).await?;
        while start < end && !self.is_wanted() {
            let room = (end - start).min(PIECE_BYTES);
            let budget = &self.query.engine.budget;
            let Some(lease) = self.memory.take(budget, room) else { break };
            let mut bytes = Room::of(room);
            let mut filled = 0;
            while filled < bytes.len() && !self.is_wanted() {
                let count = stream.read_more(&mut bytes[filled..]).await?;
                filled += count;
                self.memory.buffered_bytes.fetch_add(count as u64, Ordering::Relaxed);
            }
            pieces.push(Piece::new(start, bytes.freeze().slice(..filled), lease));
            start += filled as u64;
        }
        self.until(Phase::Wanted).await?;
        stream.rested();
        Ok(TakenOver { pieces, stream })
    }

    fn is_wanted(&self) -> bool {
        *self.told.borrow() == Phase::Wanted
    }

    async fn until(&mut self, phase: Phase) -> Result<()> {
        let limit = Duration::from_millis(self.query.settings.stall_timeout_ms);
        // Without anybody who could tell, the task is about to be stopped.
        let told = timeout(limit, self.told.wait_for(|told| *told >= phase)).await;
        told.map(drop).map_err(|_| Error::new(Kind::Cancelled, "nobody wanted it for too long"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_next_is_sent_one_latency_before_the_end() {
        let (latency, second) = (Duration::from_millis(100), Duration::from_secs(1));
        // 100 MiB in a second, so 10 MiB are one latency.
        assert!(!is_time(100 * MIB, 20 * MIB, second, latency));
        assert!(is_time(100 * MIB, 10 * MIB, second, latency));
        assert!(is_time(100 * MIB, 0, second, latency));
    }

    #[test]
    fn behind_a_first_read_little_is_kept_and_behind_a_run_what_fills_the_link() {
        let latency = Duration::from_millis(100);
        let step = 32 * MIB;
        let first = Allowed::of(step, step, 1e9, latency, u64::MAX);
        assert_eq!(first, Allowed { window_bytes: step, memory_bytes: step / 10 });
        let run = Allowed::of(10 * step, step, 1e9, latency, 50 * MIB);
        assert_eq!(run, Allowed { window_bytes: 100_000_000 + step, memory_bytes: 50 * MIB });
        assert_eq!(steps(step, step, step, 10 * step, run.window_bytes).len(), 3);
        assert_eq!(steps(step, step, 0, 10 * step, 0), [ByteRange { start: step, end: 2 * step }]);
        assert_eq!(steps(step, step, 0, step, u64::MAX), []);
    }

    proptest! {
        #[test]
        fn steps_follow_each_other_up_to_the_window_and_the_end(
            step in 1u64..100, read_end in 0u64..1000, ahead in 0u64..300, size in 0u64..1500,
            window in 0u64..500,
        ) {
            let asked_end = read_end + ahead;
            let mut next = asked_end;
            for range in steps(step, read_end, asked_end, size, window) {
                prop_assert_eq!(range.start, next);
                prop_assert!(!range.is_empty() && range.len() <= step && range.end <= size);
                prop_assert!(range.end - read_end <= window.max(step));
                next = range.end;
            }
        }

        /// Whatever the link: what may be ahead is never more than what was read.
        #[test]
        fn never_more_is_ahead_than_was_read(
            run in 0u64..1 << 40, step in 1u64..1 << 30, rate in 0.0..1e12f64, ms in 0u64..10_000,
            memory in 0u64..1 << 40,
        ) {
            let allowed = Allowed::of(run, step, rate, Duration::from_millis(ms), memory);
            prop_assert!(allowed.window_bytes <= run);
            prop_assert!(allowed.memory_bytes <= allowed.window_bytes.min(memory));
        }
    }
}

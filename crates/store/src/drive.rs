//! Runs a future on a thread that blocks, and waits for its sockets on that very thread.
//!
//! A socket event that goes through the runtime wakes the runtime's thread, which then wakes the
//! caller: two switches of threads for each piece of an answer. Here the caller asks the kernel
//! itself, and keeps the time limits of its requests ([`Alarm`]). Other timers, channels and
//! everything else still wake it from other threads.
//!
//! Decides only who waits for a socket; what is read from it, and for how long, is decided by the
//! future. docs/design/driving.md has the reasons.

mod alarm;

pub(crate) use alarm::Alarm;
pub use alarm::timeout_at;

use alarm::Alarms;
use penstock_base::{Error, Kind, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::cell::RefCell;
use std::future::Future;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

thread_local! {
    /// Set while this thread runs [`block_on`]: what its futures wait for.
    static DRIVING: RefCell<Option<Waits>> = const { RefCell::new(None) };
    static SIGNAL: RefCell<Option<Arc<Signal>>> = const { RefCell::new(None) };
}

/// What the futures of a thread wait for.
#[derive(Default)]
struct Waits {
    sockets: Vec<Interest>,
    alarms: Alarms,
}

/// What is waited for on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

impl Direction {
    fn bit(self) -> u8 {
        match self {
            Direction::Read => 1,
            Direction::Write => 2,
        }
    }

    fn flags(self) -> PollFlags {
        match self {
            Direction::Read => PollFlags::IN,
            Direction::Write => PollFlags::OUT,
        }
    }
}

/// A socket in non-blocking mode, and whether a call on it is worth trying.
#[derive(Debug)]
pub(crate) struct Watched {
    pub tcp: TcpStream,
    ready: AtomicU8,
}

impl Watched {
    pub fn new(tcp: TcpStream) -> Self {
        let both = Direction::Read.bit() | Direction::Write.bit();
        Watched { tcp, ready: AtomicU8::new(both) }
    }

    pub fn is_ready(&self, direction: Direction) -> bool {
        self.ready.load(Ordering::Acquire) & direction.bit() != 0
    }

    /// A call would have blocked, or took all there was: ask the kernel before the next one.
    pub fn clear_ready(&self, direction: Direction) {
        self.ready.fetch_and(!direction.bit(), Ordering::AcqRel);
    }

    fn set_ready(&self, direction: Direction) {
        self.ready.fetch_or(direction.bit(), Ordering::AcqRel);
    }
}

/// One wait, over after the first event. A socket that was closed meanwhile is not kept open.
struct Interest {
    socket: Weak<Watched>,
    direction: Direction,
    waker: Waker,
}

/// Whether this thread waits for its sockets itself.
pub(crate) fn is_driving() -> bool {
    DRIVING.with_borrow(Option::is_some)
}

/// Wakes `waker` when the socket is ready; only where [`is_driving`].
pub(crate) fn wait_here(socket: &Arc<Watched>, direction: Direction, waker: &Waker) {
    DRIVING.with_borrow_mut(|driving| {
        let Some(Waits { sockets: interests, .. }) = driving else { return };
        let same = |known: &&mut Interest| {
            known.direction == direction && known.socket.as_ptr() == Arc::as_ptr(socket)
        };
        match interests.iter_mut().find(same) {
            Some(known) => known.waker.clone_from(waker),
            None => interests.push(Interest {
                socket: Arc::downgrade(socket),
                direction,
                waker: waker.clone(),
            }),
        }
    });
}

/// Runs `future` on the calling thread. Every `tick` in which it is not done `is_over` is asked,
/// and ends it: the answer is then `None`. A future that is ready at once costs no system call.
///
/// Timers of the future need the runtime's context, which the caller enters.
///
/// # Errors
/// `Exhausted` when the system gives no event descriptor.
///
/// # Panics
/// When called from inside a future that this thread already runs.
pub fn block_on<F: Future>(
    future: F,
    tick: Duration,
    is_over: impl Fn() -> bool,
) -> Result<Option<F::Output>> {
    let _driving = Driving::begin();
    let signal = Signal::of_this_thread();
    let waker = Waker::from(Arc::clone(&signal));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let mut due: Option<Instant> = None;
    loop {
        signal.rest();
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Ok(Some(output));
        }
        loop {
            let now = Instant::now();
            let left = due.get_or_insert(now + tick).saturating_duration_since(now);
            if left.is_zero() {
                if is_over() {
                    return Ok(None);
                }
                due = Some(now + tick);
            } else if signal.is_woken() {
                break;
            } else {
                wait(&signal, now, left)?;
            }
        }
    }
}

/// Marks the thread as driving, until dropped.
struct Driving;

impl Driving {
    fn begin() -> Self {
        DRIVING.with_borrow_mut(|driving| {
            assert!(driving.is_none(), "a future that blocks runs inside another one");
            *driving = Some(Waits::default());
        });
        Driving
    }
}

impl Drop for Driving {
    fn drop(&mut self) {
        // Wakers may run code of others when dropped, so not while it is borrowed.
        let waits = DRIVING.take();
        drop(waits);
    }
}

/// Sleeps until a socket is ready, an alarm is due, another thread wakes this one, or the time is
/// over.
fn wait(signal: &Signal, now: Instant, limit: Duration) -> Result<()> {
    let bell = signal.bell()?;
    let waits = DRIVING.with_borrow_mut(|driving| {
        let Waits { sockets, alarms } = driving.as_mut()?;
        Some((std::mem::take(sockets), alarms.first()))
    });
    let (interests, first) = waits.unzip();
    let until_first = first.flatten().map(|due| due.saturating_duration_since(now));
    let limit = until_first.map_or(limit, |left| left.min(limit));
    let sockets: Vec<(Arc<Watched>, Interest)> = interests
        .into_iter()
        .flatten()
        .filter_map(|interest| Some((interest.socket.upgrade()?, interest)))
        .collect();
    let mut fds = Vec::with_capacity(sockets.len() + 1);
    fds.push(PollFd::new(bell, PollFlags::IN));
    fds.extend(
        sockets
            .iter()
            .map(|(socket, interest)| PollFd::new(&socket.tcp, interest.direction.flags())),
    );
    let limit = Timespec::try_from(limit).expect("a tick fits into a timespec");
    if signal.fall_asleep() {
        let result = poll(&mut fds, Some(&limit));
        signal.wake_up();
        match result {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(exhausted("waiting for the network failed", error)),
        }
    }
    let mut events = fds.iter().map(PollFd::revents);
    if events.next().is_some_and(|bell| !bell.is_empty()) {
        signal.silence();
    }
    let events: Vec<bool> = events.map(|events| !events.is_empty()).collect();
    let mut ready = Vec::new();
    let mut waiting = Vec::new();
    for ((socket, interest), is_ready) in sockets.into_iter().zip(events) {
        if is_ready {
            socket.set_ready(interest.direction);
            ready.push(interest.waker);
        } else {
            waiting.push(interest);
        }
    }
    DRIVING.with_borrow_mut(|driving| {
        let Some(Waits { sockets, alarms }) = driving else { return };
        sockets.append(&mut waiting);
        if first.flatten().is_some() {
            ready.extend(alarms.due(Instant::now()));
        }
    });
    ready.into_iter().for_each(Waker::wake);
    Ok(())
}

/// How a thread is woken by others.
#[derive(Debug)]
struct Signal {
    state: AtomicU8,
    /// Made when the thread sleeps for the first time.
    bell: OnceLock<OwnedFd>,
    /// A child of a fork must not share its parent's bell.
    process: u32,
}

const AT_REST: u8 = 0;
const ASLEEP: u8 = 1;
const WOKEN: u8 = 2;

impl Signal {
    fn of_this_thread() -> Arc<Self> {
        let process = std::process::id();
        SIGNAL.with_borrow_mut(|signal| match signal {
            Some(known) if known.process == process => Arc::clone(known),
            _ => {
                let state = AtomicU8::new(AT_REST);
                let fresh = Arc::new(Signal { state, bell: OnceLock::new(), process });
                *signal = Some(Arc::clone(&fresh));
                fresh
            }
        })
    }

    fn bell(&self) -> Result<&OwnedFd> {
        if let Some(bell) = self.bell.get() {
            return Ok(bell);
        }
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| exhausted("the system gives no event descriptor", error))?;
        Ok(self.bell.get_or_init(|| bell))
    }

    /// The future is about to be polled. To be read in one with the change: a store alone may take
    /// place behind the reads of the poll, and would then undo the waking of somebody of whose work
    /// they saw nothing.
    fn rest(&self) {
        self.state.swap(AT_REST, Ordering::AcqRel);
    }

    fn is_woken(&self) -> bool {
        self.state.load(Ordering::Acquire) == WOKEN
    }

    /// False when it was woken before: it must not sleep.
    fn fall_asleep(&self) -> bool {
        self.swap_if(AT_REST, ASLEEP)
    }

    fn wake_up(&self) {
        self.swap_if(ASLEEP, AT_REST);
    }

    fn swap_if(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn silence(&self) {
        let mut count = [0; 8];
        // It rang, or another event of the same moment took the count already.
        let _ = self.bell.get().map(|bell| rustix::io::read(bell, &mut count));
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(WOKEN, Ordering::AcqRel) == ASLEEP
            && let Some(bell) = self.bell.get()
        {
            // It fails only when the count is full, and then it rings anyway.
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
    }
}

fn exhausted(what: &str, error: Errno) -> Error {
    Error::new(Kind::Exhausted, what)
        .with_source(std::io::Error::from(error))
        .with_hint("Raise the limit on open files (ulimit -n)")
}

#[cfg(test)]
mod tests;

//! A command's engine, and the one query on it that a signal cancels.

use crate::args::Target;
use crate::report::exit_code;
use penstock_base::{Error, Kind, Result, Settings};
use penstock_engine::{Engine, Location, Query, StoreOption};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Longest wait, at the end of a cancelled transfer, for its parts to be aborted.
const TIDY_LIMIT: Duration = Duration::from_secs(10);

/// An engine, and one query on it that SIGINT (Ctrl-C), SIGTERM and SIGHUP cancel.
pub struct Session {
    pub engine: Arc<Engine>,
    pub query: Arc<Query>,
}

impl Session {
    /// Starts the engine.
    ///
    /// # Errors
    /// `Exhausted` when its threads cannot be started; `Internal` when signals cannot be received.
    pub fn start(settings: Settings) -> Result<Self> {
        let engine = Engine::new(settings.clone())?;
        let stop = raised_by_signals(engine.handle())?;
        let query = engine.query(settings, Some(Box::new(move || stop.load(Ordering::Relaxed))));
        Ok(Session { engine, query: Arc::new(query) })
    }

    /// Whether there is an object of just this name, of whatever form.
    ///
    /// # Errors
    /// What the store says but that there is none, or that it has no names of this form.
    pub fn has_object(&self, at: &Location) -> Result<bool> {
        if at.key().is_empty() {
            return Ok(false);
        }
        match self.query.block_on(self.query.exists(at)) {
            Err(error) if error.kind() == Kind::Invalid => Ok(false),
            found => found,
        }
    }

    pub fn locate(&self, target: &Target) -> Result<Location> {
        let options = options(target)?;
        self.engine.locate(&target.url, &options)
    }
}

/// A flag that SIGINT (Ctrl-C), SIGTERM and SIGHUP raise, as long as the runtime is there. A second
/// one of them ends the process.
///
/// # Errors
/// `Internal` when signals cannot be received.
pub fn raised_by_signals(runtime: &Handle) -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    let entered = runtime.enter();
    let mut signals = Signals::listen()?;
    drop(entered);
    runtime.spawn(async move {
        signals.next().await;
        flag.store(true, Ordering::Relaxed);
        // A second one does not wait for anything, such as a reader that takes no more.
        signals.next().await;
        std::process::exit(i32::from(exit_code(Kind::Cancelled)));
    });
    Ok(stop)
}

/// What asks a command to end. Each would end it at once by itself, and leave parts of uploads and
/// half a file behind.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// None where whoever started it has it ignored, as `nohup` does.
    hangup: Option<Signal>,
}

impl Signals {
    /// Must be called on a runtime.
    fn listen() -> Result<Self> {
        let listen = |kind: SignalKind| {
            signal(kind).map_err(|cause| {
                Error::new(Kind::Internal, "signals cannot be received").with_source(cause)
            })
        };
        let ignored = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let hangup = match ignores(&ignored, SignalKind::hangup()) {
            true => None,
            false => Some(listen(SignalKind::hangup())?),
        };
        let interrupt = listen(SignalKind::interrupt())?;
        Ok(Signals { interrupt, terminate: listen(SignalKind::terminate())?, hangup })
    }

    async fn next(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => drop(hangup.recv().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = hangup => {}
        }
    }
}

/// Whether a process ignores a signal, as `/proc/PID/status` tells; where there is none it does
/// not.
fn ignores(status: &str, signal: SignalKind) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let bit = u32::try_from(signal.as_raw_value() - 1).unwrap_or(u32::MAX);
    mask.checked_shr(bit).is_some_and(|mask| mask & 1 == 1)
}

impl Drop for Session {
    fn drop(&mut self) {
        // What stays is aborted by the store's own expiry; the verb's own error matters more.
        self.engine.shutdown_blocking(TIDY_LIMIT).ok();
    }
}

fn options(target: &Target) -> Result<Vec<StoreOption>> {
    target.store.resolve(&target.url, |name| std::env::var(name).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_signal_is_read_from_the_mask() {
        let hangup = "Name:\tpenstock\nSigIgn:\t0000000000000001\nSigCgt:\t0000000000004002\n";
        assert!(ignores(hangup, SignalKind::hangup()));
        assert!(!ignores(hangup, SignalKind::interrupt()));
        assert!(ignores("SigIgn:\t0000000000004000\n", SignalKind::terminate()));
        for odd in ["", "SigIgn:\tx\n", "SigCgt:\t0000000000000001\n"] {
            assert!(!ignores(odd, SignalKind::hangup()), "{odd}");
        }
    }
}

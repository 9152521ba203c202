//! The one I/O runtime of the process, and the bridge for callers that block.
//!
//! The runtime's threads do background work and keep timers. A blocking caller runs its own future
//! on its own thread and waits for its own sockets there: bytes go from the socket straight into
//! the caller's buffer without another thread in between, and returning early (an interruption)
//! drops the future, which cancels its requests.

use crate::cancel::cancelled;
use penstock_base::door::setting;
use penstock_base::{Error, Kind, Result};
use penstock_store::drive::block_on;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};

/// How often a blocked caller asks whether it was interrupted.
pub const POLL_INTERVAL: Duration = Duration::from_millis(20);

static SHARED: Mutex<Option<Arc<IoRuntime>>> = Mutex::new(None);

/// The threads that perform I/O, apart from every caller's threads.
#[derive(Debug)]
pub struct IoRuntime {
    runtime: Runtime,
    /// The process that the threads belong to: a fork copies this struct, not the threads.
    process: u32,
}

impl IoRuntime {
    /// The runtime of this process, made on first use with `threads` threads (later calls get the
    /// same one, whatever they ask). A forked child gets a runtime of its own.
    ///
    /// # Errors
    /// `Exhausted` when the threads cannot be started.
    pub fn shared(threads: u64) -> Result<Arc<Self>> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        match shared.as_ref() {
            Some(runtime) if runtime.process == std::process::id() => Ok(Arc::clone(runtime)),
            _ => {
                let fresh = Arc::new(Self::start(threads)?);
                if let Some(parents) = shared.replace(Arc::clone(&fresh)) {
                    // Its threads exist in the parent only; dropping it would wait for them here.
                    std::mem::forget(parents);
                }
                Ok(fresh)
            }
        }
    }

    fn start(threads: u64) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(usize::try_from(threads).unwrap_or(usize::MAX).max(1))
            .thread_name("penstock-io")
            .enable_all()
            .build()
            .map_err(|error| {
                Error::new(Kind::Exhausted, "the I/O threads could not be started")
                    .with_source(error)
                    .with_hint(format!(
                        "Raise the limit on threads (ulimit -u) or lower {}",
                        setting("io_threads")
                    ))
            })?;
        Ok(IoRuntime { runtime, process: std::process::id() })
    }

    /// For spawning background work.
    pub fn handle(&self) -> &Handle {
        self.runtime.handle()
    }

    /// What a forked child has of its parent's is not its own.
    ///
    /// # Errors
    /// `Unsupported` in a forked child.
    pub fn refuse_child(&self) -> Result<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(Error::new(
            Kind::Unsupported,
            "this process was forked after Penstock had started, and its I/O threads stayed in \
             the parent",
        )
        .with_hint("Open a new database connection in the child, or fork before connecting"))
    }

    /// Runs `future` on the calling thread until it is done or `interrupted` says so. A future
    /// that is ready at once costs neither a timer nor a call of `interrupted`.
    ///
    /// # Errors
    /// The future's own; `Cancelled` when interrupted; `Unsupported` in a forked child.
    ///
    /// # Panics
    /// When called from inside an async task: those await instead.
    pub fn block_on<T>(
        &self,
        future: impl Future<Output = Result<T>>,
        interrupted: impl Fn() -> bool,
    ) -> Result<T> {
        self.refuse_child()?;
        // The runtime's own threads must never wait.
        assert!(Handle::try_current().is_err(), "an async task blocks: it has to await instead");
        // For timers and background work.
        let _runtime = self.handle().enter();
        block_on(future, POLL_INTERVAL, interrupted)?.unwrap_or_else(|| Err(cancelled()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_future_asks_for_no_interruption() {
        let runtime = IoRuntime::shared(1).unwrap();
        let answer = runtime.block_on(async { Ok(7) }, || panic!("asked")).unwrap();
        assert_eq!(answer, 7);
    }

    #[test]
    fn interruption_ends_a_future_that_never_would() {
        let runtime = IoRuntime::shared(1).unwrap();
        let error = runtime.block_on(std::future::pending::<Result<()>>(), || true).unwrap_err();
        assert_eq!(error.kind(), Kind::Cancelled);
    }

    #[test]
    fn every_engine_of_the_process_shares_the_threads() {
        let (a, b) = (IoRuntime::shared(1).unwrap(), IoRuntime::shared(4).unwrap());
        assert!(Arc::ptr_eq(&a, &b));
    }

    #[test]
    fn a_runtime_of_another_process_is_refused_by_name() {
        let mut runtime = IoRuntime::start(1).unwrap();
        runtime.process += 1;
        let error = runtime.block_on(async { Ok(()) }, || false).unwrap_err();
        assert!(error.to_string().contains("forked"), "{error}");
    }
}

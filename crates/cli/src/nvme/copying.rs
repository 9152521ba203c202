//! What an import and an export have in common: bytes go in pieces, and between two of them a
//! signal ends the verb, which then takes back what it has made. It decides nothing else.

use crate::session::raised_by_signals;
use penstock_base::{Error, Kind, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::runtime::Runtime;

/// Bytes that are copied at once.
const COPY_BYTES: usize = 4 << 20;

/// Copies until a signal comes.
pub(super) struct Copying {
    operation: &'static str,
    stop: Arc<AtomicBool>,
    // Its thread takes the signals.
    _runtime: Runtime,
}

impl Copying {
    pub(super) fn new(operation: &'static str) -> Result<Self> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().map_err(|cause| {
            Error::new(Kind::Exhausted, "a thread for signals cannot be started")
                .with_operation(operation)
                .with_source(cause)
        })?;
        let stop = raised_by_signals(runtime.handle())?;
        Ok(Copying { operation, stop, _runtime: runtime })
    }

    /// Copies what `read` gives, from an offset on, until that is nothing.
    ///
    /// # Errors
    /// Those of both; `Cancelled` after a signal.
    pub(super) fn copy(
        &self,
        mut read: impl FnMut(&mut [u8], u64) -> Result<usize>,
        mut write: impl FnMut(&[u8], u64) -> Result<()>,
    ) -> Result<()> {
        let mut buffer = vec![0; COPY_BYTES];
        let mut at = 0u64;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(
                    Error::new(Kind::Cancelled, "a signal ended it").with_operation(self.operation)
                );
            }
            let count = read(&mut buffer, at)?;
            if count == 0 {
                return Ok(());
            }
            write(&buffer[..count], at)?;
            at += count as u64;
        }
    }
}

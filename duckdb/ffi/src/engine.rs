//! The engine of one database instance.

use crate::abi::{PsPair, free, give, handle, pairs};
use crate::error::{PsError, guarded, quiet};
use crate::rows::PsRows;
use penstock_base::Settings;
use penstock_engine::Engine;
use std::sync::Arc;
use std::time::Duration;

/// Longest wait, when a database closes, for parts of given-up uploads to be aborted.
const SHUTDOWN_MAX: Duration = Duration::from_secs(5);

/// An engine, given to the caller.
#[derive(Debug)]
pub struct PsEngine(pub(crate) Arc<Engine>);

impl Drop for PsEngine {
    fn drop(&mut self) {
        // Only in a forked child this fails: the child has no uploads of its own.
        let _ = self.0.shutdown_blocking(SHUTDOWN_MAX);
    }
}

/// See the header.
///
/// # Safety
/// The pairs are readable, the out-parameters null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_engine_new(
    settings: *const PsPair,
    count: usize,
    out: *mut *mut PsEngine,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let settings = with_pairs(Settings::default(), &pairs(settings, count, "a setting")?)?;
            give(out, PsEngine(Engine::new(settings)?))
        })
    }
    .is_some()
}

pub(crate) fn with_pairs(
    mut settings: Settings,
    pairs: &[(String, String)],
) -> penstock_base::Result<Settings> {
    for (name, value) in pairs {
        settings.set(name, value)?;
    }
    Ok(settings)
}

/// See the header.
///
/// # Safety
/// `engine` came from this library, and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_engine_free(engine: *mut PsEngine) {
    // SAFETY: the caller vouches for it.
    unsafe { free(engine) }
}

/// See the header.
///
/// # Safety
/// `engine` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_engine_clear_cache(engine: *const PsEngine) {
    // SAFETY: the caller vouches for it.
    if let Ok(engine) = unsafe { handle(engine, "engine") } {
        quiet((), || engine.0.clear_cache());
    }
}

/// See the header.
///
/// # Safety
/// `engine` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_engine_stats(engine: *const PsEngine) -> *mut PsRows {
    // SAFETY: the caller vouches for it.
    let Ok(engine) = (unsafe { handle(engine, "engine") }) else { return std::ptr::null_mut() };
    quiet(std::ptr::null_mut(), || PsRows::of_metrics(engine.0.metrics()).give())
}

/// See the header.
///
/// # Safety
/// `engine` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_engine_requests(engine: *const PsEngine) -> *mut PsRows {
    // SAFETY: the caller vouches for it.
    let Ok(engine) = (unsafe { handle(engine, "engine") }) else { return std::ptr::null_mut() };
    quiet(std::ptr::null_mut(), || PsRows::of_requests(&engine.0.requests().snapshot()).give())
}

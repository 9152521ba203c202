//! The engine of one database instance.

use crate::abi::{PsPair, free, give, handle, pairs};
use crate::error::{PsError, guarded, quiet};
use crate::rows::PsRows;
use penstock_base::Settings;
use penstock_engine::{Engine, settings_here};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Longest wait, when a database closes, for parts of given-up uploads to be aborted.
const SHUTDOWN_MAX: Duration = Duration::from_secs(5);

/// The same at the end of the process, for all databases together. docs/semantics.md promises it.
const EXIT_MAX: Duration = Duration::from_secs(10);

/// Engines of this process, and the process that made each: a fork copies the list.
static ENGINES: Mutex<Vec<(u32, Weak<Engine>)>> = Mutex::new(Vec::new());

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
            let settings = with_pairs(settings_here(), &pairs(settings, count, "a setting")?)?;
            let engine = Engine::new(settings)?;
            let mut engines = ENGINES.lock().unwrap_or_else(PoisonError::into_inner);
            engines.retain(|(_, engine)| engine.strong_count() > 0);
            engines.push((std::process::id(), Arc::downgrade(&engine)));
            drop(engines);
            give(out, PsEngine(engine))
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
/// The engine came from this library, the pairs are readable, the out-parameter is null or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_engine_adopt(
    engine: *const PsEngine,
    settings: *const PsPair,
    count: usize,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let engine = &handle(engine, "engine")?.0;
            let changed = pairs(settings, count, "a setting")?;
            engine.adopt_now(&with_pairs(engine.settings().clone(), &changed)?);
            Ok(())
        })
    }
    .is_some()
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn ps_process_ends() {
    quiet((), || {
        // A forked child may have got the lock taken, by a thread that it has not.
        let Ok(mut known) = ENGINES.try_lock() else { return };
        let here = std::process::id();
        let engines: Vec<_> = known
            .drain(..)
            .filter(|(process, _)| *process == here)
            .filter_map(|(_, engine)| engine.upgrade())
            .collect();
        drop(known);
        if engines.is_empty() {
            return;
        }
        // An exit handler runs when the thread-locals of its thread are gone already, so the work
        // is done on another one. Without a thread the parts wait for the store's own expiry.
        let end = move || {
            let deadline = Instant::now() + EXIT_MAX;
            engines.iter().for_each(|engine| engine.stop_uploads());
            for engine in &engines {
                let left = deadline.saturating_duration_since(Instant::now());
                let _ = engine.shutdown_blocking(left);
            }
        };
        if let Ok(thread) = std::thread::Builder::new().name("penstock-exit".into()).spawn(end) {
            let _ = thread.join();
        }
    });
}

/// See the header.
///
/// # Safety
/// `engine` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_engine_stats(engine: *const PsEngine) -> *mut PsRows {
    // SAFETY: the caller vouches for it.
    let Ok(engine) = (unsafe { handle(engine, "engine") }) else { return std::ptr::null_mut() };
    quiet(std::ptr::null_mut(), || PsRows::of_engine(engine.0.metrics()).give())
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

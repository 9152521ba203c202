//! The engine of one database instance.

use crate::abi::{PsPair, PsStr, free, give, handle, pairs};
use crate::error::{PsError, guarded, quiet};
use crate::rows::PsRows;
use penstock_base::Settings;
use penstock_base::door;
use penstock_base::settings::theirs;
use penstock_engine::{Engine, print_panics_without_secrets, settings_here};
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

/// Longest wait, when a database closes, for parts of given-up uploads to be aborted.
const SHUTDOWN_MAX: Duration = Duration::from_secs(5);

/// The same at the end of the process, for all databases together. docs/semantics.md promises it.
const EXIT_MAX: Duration = Duration::from_secs(10);

/// Engines of this process, and the process that made each: a fork copies the list.
static ENGINES: Mutex<Vec<(u32, Weak<Engine>)>> = Mutex::new(Vec::new());

/// An engine, given to the caller.
#[derive(Debug)]
pub struct PsEngine(pub(crate) Arc<Engine>, Arc<RwLock<bool>>);

impl Drop for PsEngine {
    fn drop(&mut self) {
        // Waits for a call that runs: the host may be gone afterwards.
        *self.1.write().unwrap_or_else(PoisonError::into_inner) = true;
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
            print_panics_without_secrets();
            door::calls_itself(concat!("duckdb penstock/", env!("CARGO_PKG_VERSION")).to_string());
            let settings = with_pairs(settings_here(), &pairs(settings, count, "a setting")?)?;
            let engine = Engine::new(settings)?;
            let mut engines = ENGINES.lock().unwrap_or_else(PoisonError::into_inner);
            engines.retain(|(_, engine)| engine.strong_count() > 0);
            engines.push((std::process::id(), Arc::downgrade(&engine)));
            drop(engines);
            give(out, PsEngine(engine, Arc::default()))
        })
    }
    .is_some()
}

pub(crate) fn with_pairs(
    mut settings: Settings,
    pairs: &[(String, String)],
) -> penstock_base::Result<Settings> {
    for (name, value) in pairs {
        if !theirs::apply(&mut settings, name, value)? {
            settings.set(name, value)?;
        }
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

/// Takes one option.
pub type PsOptionFn = unsafe extern "C" fn(into: *mut c_void, key: PsStr, value: PsStr);

/// Tells the options that a new statement would use for a URL, one by one.
pub type PsCurrentOptionsFn = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        url: PsStr,
        used: *const PsPair,
        count: usize,
        add: PsOptionFn,
        into: *mut c_void,
    ) -> bool,
>;

struct Host {
    current: unsafe extern "C" fn(
        *mut c_void,
        PsStr,
        *const PsPair,
        usize,
        PsOptionFn,
        *mut c_void,
    ) -> bool,
    context: *mut c_void,
    /// True once the handle is being freed: the context may be gone.
    is_gone: Arc<RwLock<bool>>,
}

// SAFETY: the treaty has the function called from any thread.
unsafe impl Send for Host {}
// SAFETY: as above, also from several threads at once.
unsafe impl Sync for Host {}

impl Host {
    fn options(&self, url: &str, used: &[(String, String)]) -> Option<Vec<(String, String)>> {
        let is_gone = self.is_gone.read().unwrap_or_else(PoisonError::into_inner);
        if *is_gone {
            return None;
        }
        let used: Vec<PsPair> = used
            .iter()
            .map(|(key, value)| PsPair { key: PsStr::lend(key), value: PsStr::lend(value) })
            .collect();
        let mut options: Vec<(String, String)> = Vec::new();
        let into = (&raw mut options).cast();
        // SAFETY: the context lives as long as the handle, and all else as long as the call.
        let known = unsafe {
            (self.current)(
                self.context,
                PsStr::lend(url),
                used.as_ptr(),
                used.len(),
                add_option,
                into,
            )
        };
        known.then_some(options)
    }
}

/// # Safety
/// `into` is what [`Host::options`] gave, and the texts are readable.
unsafe extern "C" fn add_option(into: *mut c_void, key: PsStr, value: PsStr) {
    // SAFETY: the caller vouches for it.
    let options = unsafe { &mut *into.cast::<Vec<(String, String)>>() };
    // SAFETY: as above.
    let texts = unsafe { (key.text("an option"), value.text("an option")) };
    if let (Ok(key), Ok(value)) = texts {
        options.push((key.to_string(), value.to_string()));
    }
}

/// See the header.
///
/// # Safety
/// The engine came from this library, and `context` lives as long as it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_engine_renews_secrets(
    engine: *const PsEngine,
    current: PsCurrentOptionsFn,
    context: *mut c_void,
) {
    // SAFETY: the caller vouches for it.
    let (Ok(engine), Some(current)) = (unsafe { handle(engine, "engine") }, current) else {
        return;
    };
    let host = Host { current, context, is_gone: Arc::clone(&engine.1) };
    quiet((), || {
        engine.0.renews_credentials(Arc::new(move |url, used| host.options(url, used)));
    });
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
pub unsafe extern "C" fn ps_engine_statements(engine: *const PsEngine) -> *mut PsRows {
    // SAFETY: the caller vouches for it.
    let Ok(engine) = (unsafe { handle(engine, "engine") }) else { return std::ptr::null_mut() };
    quiet(std::ptr::null_mut(), || PsRows::of_statements(&engine.0.statements()).give())
}

/// See the header.
///
/// # Safety
/// `engine` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_engine_reset_stats(engine: *const PsEngine) {
    // SAFETY: the caller vouches for it.
    if let Ok(engine) = unsafe { handle(engine, "engine") } {
        quiet((), || engine.0.reset_stats());
    }
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

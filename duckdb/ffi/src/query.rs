//! One statement: settings, interruption, counters, the barrier.

use crate::abi::{PsPair, give, handle, pairs};
use crate::engine::{PsEngine, with_pairs};
use crate::error::{PsError, guarded, quiet};
use crate::rows::PsRows;
use penstock_engine::Query;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Tells whether the user asked to stop.
pub type PsInterruptedFn = Option<unsafe extern "C" fn(context: *mut c_void) -> bool>;

/// What the host has of a statement.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PsStatement {
    /// Its number, 0 for none.
    pub number: u64,
    /// Tells whether the user asked to stop.
    pub interrupted: PsInterruptedFn,
    /// For `interrupted`.
    pub context: *mut c_void,
}

/// A query, given to the caller. Writers share it, so that they can outlive the handle.
#[derive(Debug)]
pub struct PsQuery {
    pub(crate) query: Arc<Query>,
    watched: Arc<AtomicBool>,
}

struct Watch {
    interrupted: unsafe extern "C" fn(context: *mut c_void) -> bool,
    context: *mut c_void,
    /// False once the handle is freed: the context may be gone.
    watched: Arc<AtomicBool>,
}

// SAFETY: the treaty has the function called from any thread that blocks on this query.
unsafe impl Send for Watch {}
// SAFETY: as above, also from several threads at once.
unsafe impl Sync for Watch {}

impl Watch {
    fn is_interrupted(&self) -> bool {
        // SAFETY: the context lives as long as the handle, which is not freed.
        self.watched.load(Ordering::Acquire) && unsafe { (self.interrupted)(self.context) }
    }
}

/// See the header.
///
/// # Safety
/// The engine came from this library, the pairs are readable, `statement` is null or readable and
/// its context lives as long as the query, the out-parameters are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_query_new(
    engine: *const PsEngine,
    settings: *const PsPair,
    count: usize,
    statement: *const PsStatement,
    out: *mut *mut PsQuery,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let engine = &handle(engine, "engine")?.0;
            let settings =
                with_pairs(engine.settings().clone(), &pairs(settings, count, "a setting")?)?;
            let watched = Arc::new(AtomicBool::new(true));
            let number = statement.as_ref().map_or(0, |statement| statement.number);
            let watch = statement.as_ref().and_then(|statement| {
                let (interrupted, context) = (statement.interrupted?, statement.context);
                let watch = Watch { interrupted, context, watched: Arc::clone(&watched) };
                Some(Box::new(move || watch.is_interrupted()) as penstock_engine::Interrupted)
            });
            let query = Arc::new(engine.statement(number, settings, watch));
            give(out, PsQuery { query, watched })
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// `query` came from this library, and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_query_free(query: *mut PsQuery) {
    // SAFETY: the caller vouches for it.
    if let Some(query) = unsafe { query.as_ref() } {
        query.watched.store(false, Ordering::Release);
        quiet((), || query.query.abort_uploads());
    }
    // SAFETY: the caller vouches for it.
    unsafe { crate::abi::free(query) }
}

/// See the header.
///
/// # Safety
/// `query` came from this library, `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_query_barrier(query: *const PsQuery, error: *mut *mut PsError) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let query = &handle(query, "query")?.query;
            query.block_on(query.barrier())
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// `query` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_query_abort_uploads(query: *const PsQuery) {
    // SAFETY: the caller vouches for it.
    if let Ok(query) = unsafe { handle(query, "query") } {
        quiet((), || query.query.abort_uploads());
    }
}

/// See the header.
///
/// # Safety
/// `query` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_query_repeats_for(query: *const PsQuery, ms: u64) {
    // SAFETY: the caller vouches for it.
    if let Ok(query) = unsafe { handle(query, "query") } {
        quiet((), || query.query.repeats_for(Duration::from_millis(ms)));
    }
}

/// See the header.
///
/// # Safety
/// `query` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_query_may_end_early(query: *const PsQuery) {
    // SAFETY: the caller vouches for it.
    if let Ok(query) = unsafe { handle(query, "query") } {
        quiet((), || query.query.may_end_early());
    }
}

/// See the header.
///
/// # Safety
/// `query` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_query_may_be_left(query: *const PsQuery) {
    // SAFETY: the caller vouches for it.
    if let Ok(query) = unsafe { handle(query, "query") } {
        quiet((), || query.query.may_be_left());
    }
}

/// See the header.
///
/// # Safety
/// `query` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_query_writes_each_name_once(query: *const PsQuery) {
    // SAFETY: the caller vouches for it.
    if let Ok(query) = unsafe { handle(query, "query") } {
        quiet((), || query.query.writes_each_name_once());
    }
}

/// See the header.
///
/// # Safety
/// `query` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_query_host_reads_ahead(query: *const PsQuery, grid_bytes: u64) {
    // SAFETY: the caller vouches for it.
    if let Ok(query) = unsafe { handle(query, "query") } {
        quiet((), || query.query.host_reads_ahead(grid_bytes));
    }
}

/// See the header.
///
/// # Safety
/// `query` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_query_stats(query: *const PsQuery) -> *mut PsRows {
    // SAFETY: the caller vouches for it.
    let Ok(query) = (unsafe { handle(query, "query") }) else { return null_mut() };
    quiet(null_mut(), || PsRows::of_metrics(query.query.metrics()).give())
}

/// See the header.
///
/// # Safety
/// `query` came from this library, the out-parameters are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_query_cache(
    query: *const PsQuery,
    out: *mut *mut PsRows,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let entries = handle(query, "query")?.query.cache_entries()?;
            give(out, PsRows::of_cache(&entries))
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// `query` came from this library, `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_query_clear_cache(
    query: *const PsQuery,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe { guarded(error, || handle(query, "query")?.query.clear_cache()) }.is_some()
}

/// See the header.
///
/// # Safety
/// `query` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_query_drain_requests(query: *const PsQuery) -> *mut PsRows {
    // SAFETY: the caller vouches for it.
    let Ok(query) = (unsafe { handle(query, "query") }) else { return null_mut() };
    quiet(null_mut(), || PsRows::of_logged(&query.query.requests().drain()).give())
}

/// See the header.
///
/// # Safety
/// `query` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_query_logs_headers(query: *const PsQuery) {
    // SAFETY: the caller vouches for it.
    if let Ok(query) = unsafe { handle(query, "query") } {
        quiet((), || query.query.logs_headers());
    }
}

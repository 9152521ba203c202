//! Wrap mode: sub-reads of another file system, which the other side carries out when called, and
//! what that system changes.

use crate::abi::{PsPair, PsStr, free, give, handle};
use crate::error::{PsError, guarded, quiet};
use crate::names::locate_all;
use crate::query::PsQuery;
use penstock_base::{ByteRange, Error, Kind};
use penstock_engine::{OwnFile, ParallelReads, SubRead, WRAP_SYSTEMS};
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

/// What is learned of one wrapped file system, given to the caller.
#[derive(Debug)]
pub struct PsParallel(ParallelReads);

/// Carries out a sub-read; false when it failed.
pub type PsSubReadFn =
    unsafe extern "C" fn(context: *mut c_void, handle: u64, offset: u64, len: u64) -> bool;

/// A file system of an extension that can be wrapped.
#[repr(C)]
#[derive(Debug)]
pub struct PsWrapSystem {
    /// The extension.
    pub extension: PsStr,
    /// What its `GetName()` says.
    pub file_system: PsStr,
}

/// The reader's own open file, and what was read of the object.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PsOwnFile {
    /// It may be read by several threads at once.
    pub is_shared: bool,
    /// Opening it asked the store.
    pub is_connected: bool,
    /// Open files that reads have used, its own among them; 0 before a read has succeeded.
    pub files_used: u64,
    /// Bytes that reads have brought so far.
    pub bytes_read: u64,
}

struct Reads {
    read: PsSubReadFn,
    context: *mut c_void,
}

// SAFETY: the treaty has the function called from any thread.
unsafe impl Send for Reads {}
// SAFETY: as above, also from several threads at once.
unsafe impl Sync for Reads {}

impl Reads {
    fn carry_out(&self, sub: SubRead) -> bool {
        // SAFETY: the context lives until `ps_parallel_read` returns; no sub-read outlives that.
        unsafe { (self.read)(self.context, sub.handle, sub.range.start, sub.range.len()) }
    }
}

/// See the header.
///
/// # Safety
/// The query came from this library, texts and pairs are readable, `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_changed_by_others(
    query: *const PsQuery,
    urls: *const PsStr,
    url_count: usize,
    options: *const PsPair,
    option_count: usize,
    is_heard: bool,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let (query, objects) = locate_all(query, urls, url_count, options, option_count)?;
            let change = query.block_on(query.change(&objects))?;
            if is_heard {
                change.ended(&Ok(()));
            }
            Ok(())
        })
    }
    .is_some()
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn ps_wrap_system_count() -> usize {
    WRAP_SYSTEMS.len()
}

/// See the header.
///
/// # Safety
/// `out` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_wrap_system_get(index: usize, out: *mut PsWrapSystem) {
    let Some(row) = WRAP_SYSTEMS.get(index) else { return };
    if out.is_null() {
        return;
    }
    let system = PsWrapSystem {
        extension: PsStr::lend(row.extension),
        file_system: PsStr::lend(row.file_system),
    };
    // SAFETY: not null, and the caller vouches for it.
    unsafe { out.write(system) };
}

/// See the header.
///
/// # Safety
/// The text is readable, the out-parameters are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_parallel_new(
    file_system: PsStr,
    out: *mut *mut PsParallel,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let name = file_system.text("the file system's name")?;
            give(out, PsParallel(ParallelReads::new(name)))
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// `parallel` came from this library, and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_parallel_free(parallel: *mut PsParallel) {
    // SAFETY: the caller vouches for it.
    unsafe { free(parallel) }
}

/// See the header.
///
/// # Safety
/// `parallel` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_parallel_opened(parallel: *const PsParallel, took_us: u64) -> bool {
    // SAFETY: the caller vouches for it.
    match unsafe { handle(parallel, "parallel reads") } {
        Ok(parallel) => quiet(true, || parallel.0.observe_open(Duration::from_micros(took_us))),
        Err(_) => true,
    }
}

/// See the header.
///
/// # Safety
/// Handles came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_parallel_may_split(
    parallel: *const PsParallel,
    query: *const PsQuery,
    len: u64,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    let (parallel, query) = unsafe { (handle(parallel, "parallel reads"), handle(query, "query")) };
    match (parallel, query) {
        (Ok(parallel), Ok(query)) => quiet(false, || parallel.0.may_split(&query.query, len)),
        _ => false,
    }
}

/// See the header.
///
/// # Safety
/// Handles came from this library; `read` may be called from any thread with `context` until this
/// returns; `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_parallel_read(
    parallel: *const PsParallel,
    query: *const PsQuery,
    offset: u64,
    len: u64,
    own: PsOwnFile,
    read: Option<PsSubReadFn>,
    context: *mut c_void,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let parallel = &handle(parallel, "parallel reads")?.0;
            let query = &handle(query, "query")?.query;
            let range = ByteRange::of_len(offset, len).ok_or_else(|| {
                Error::new(Kind::Invalid, "the read passes the largest possible offset")
            })?;
            let read =
                read.ok_or_else(|| Error::new(Kind::Internal, "the sub-read function is null"))?;
            let reads = Reads { read, context };
            let carry_out = Arc::new(move |sub: SubRead| reads.carry_out(sub));
            let own = OwnFile {
                is_shared: own.is_shared,
                files_used: own.files_used,
                is_connected: own.is_connected,
                bytes_read: own.bytes_read,
            };
            if parallel.read(query, range, own, carry_out) {
                Ok(())
            } else {
                // Whoever failed knows why; this is for a panic, where nobody does.
                Err(Error::new(Kind::Internal, "a sub-read ended without a result"))
            }
        })
    }
    .is_some()
}

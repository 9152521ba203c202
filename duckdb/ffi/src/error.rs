//! The one shape of failure: a kind, a message, an HTTP status. Panics become `Internal`.

use crate::abi::{PsStr, free};
use crate::their_words::{is_http, kind, reason, told};
use penstock_base::{Error, Kind, Result};
use penstock_engine::panic_text;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A failure, given to the caller.
#[derive(Debug)]
pub struct PsError {
    /// None where DuckDB is to raise its IO Error, whatever the kind.
    kind: Option<Kind>,
    message: String,
    http_status: Option<u16>,
    is_http: bool,
}

impl From<Error> for PsError {
    fn from(error: Error) -> Self {
        PsError {
            kind: kind(&error),
            message: told(&error),
            http_status: error.http_status(),
            is_http: is_http(&error),
        }
    }
}

/// Runs the body of an exported function: `None`, and the error given to the caller, when it
/// failed or panicked.
///
/// # Safety
/// `error` is null or writable.
pub unsafe fn guarded<T>(error: *mut *mut PsError, body: impl FnOnce() -> Result<T>) -> Option<T> {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return Some(value),
        Ok(Err(failure)) => failure,
        Err(panic) => Error::new(Kind::Internal, format!("panic: {}", panic_text(&*panic))),
    };
    if !error.is_null() {
        // SAFETY: not null, and the caller vouches for it.
        unsafe { error.write(Box::into_raw(Box::new(failure.into()))) };
    }
    None
}

/// As [`guarded`] for functions that cannot fail: a panic gives the fallback.
pub fn quiet<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(fallback)
}

/// See the header.
///
/// # Safety
/// `error` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_error_kind(error: *const PsError) -> i32 {
    // SAFETY: the caller vouches for it.
    match unsafe { error.as_ref() } {
        Some(error) => error.kind.map_or(0, |kind| kind as i32),
        None => Kind::Internal as i32,
    }
}

/// See the header.
///
/// # Safety
/// `error` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_error_message(error: *const PsError) -> PsStr {
    // SAFETY: the caller vouches for it.
    unsafe { error.as_ref() }.map_or(PsStr::EMPTY, |error| PsStr::lend(&error.message))
}

/// See the header.
///
/// # Safety
/// `error` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_error_http_status(error: *const PsError) -> i32 {
    // SAFETY: the caller vouches for it.
    unsafe { error.as_ref() }.and_then(|error| error.http_status).map_or(0, i32::from)
}

/// See the header.
///
/// # Safety
/// `error` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_error_is_http(error: *const PsError) -> bool {
    // SAFETY: the caller vouches for it.
    unsafe { error.as_ref() }.is_some_and(|error| error.is_http)
}

/// See the header.
///
/// # Safety
/// `error` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_error_http_reason(error: *const PsError) -> PsStr {
    // SAFETY: the caller vouches for it.
    let status = unsafe { error.as_ref() }.and_then(|error| error.http_status);
    status.map_or(PsStr::EMPTY, |status| PsStr::lend(reason(status)))
}

/// See the header.
///
/// # Safety
/// `error` came from this library, and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_error_free(error: *mut PsError) {
    // SAFETY: the caller vouches for it.
    unsafe { free(error) }
}

//! What URLs say by themselves: no store and no device is asked.

use crate::abi::{PsStr, give};
use crate::error::{PsError, guarded, quiet};
use crate::rows::PsRows;
use penstock_base::redact;
use penstock_device::address::Address;
use penstock_engine::covered_bytes;
use std::os::unix::fs::FileTypeExt;

/// See the header.
///
/// # Safety
/// The texts are readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_scope_covers(scope: PsStr, url: PsStr) -> i64 {
    quiet(-1, || {
        // SAFETY: the caller vouches for the texts.
        let texts = unsafe { (scope.text("the scope"), url.text("the URL")) };
        // A text that is not UTF-8 covers nothing.
        let (Ok(scope), Ok(url)) = texts else { return -1 };
        covered_bytes(scope, url).and_then(|bytes| i64::try_from(bytes).ok()).unwrap_or(-1)
    })
}

/// See the header.
///
/// # Safety
/// As [`ps_volume_database`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_shown_url(
    url: PsStr,
    out: *mut *mut PsRows,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let shown = redact::url(url.text("the URL")?).into_owned();
            give(out, PsRows::of_text(shown))
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// The text is readable, the out-parameters are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_volume_database(
    url: PsStr,
    out: *mut *mut PsRows,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let address = Address::parse(url.text("the URL")?)?;
            give(out, PsRows::of_text(address.database().unwrap_or_default().to_string()))
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// The text is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_volume_is_file(url: PsStr) -> bool {
    quiet(true, || {
        // SAFETY: the caller vouches for the text.
        let text = unsafe { url.text("the URL") };
        let address = text.ok().and_then(|text| Address::parse(text).ok());
        let about = address.and_then(|address| std::fs::metadata(&address.device).ok());
        let is_device = |about: std::fs::Metadata| {
            about.file_type().is_block_device() || about.file_type().is_char_device()
        };
        !about.is_some_and(is_device)
    })
}

/// See the header.
///
/// # Safety
/// As [`ps_volume_database`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_volume_replaced(
    url: PsStr,
    out: *mut *mut PsRows,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || give(out, PsRows::of_text(Address::replaced(url.text("the URL")?)?)))
    }
    .is_some()
}

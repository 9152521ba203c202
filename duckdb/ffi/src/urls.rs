//! What URLs of files on volumes say by themselves: no device is touched.

use crate::abi::{PsStr, give};
use crate::error::{PsError, guarded};
use crate::rows::PsRows;
use penstock_device::address::Address;

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

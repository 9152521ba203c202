//! The settings of httpfs, azure and aws, which a database takes without them.

use crate::abi::{PsPair, PsStr, give, pairs};
use crate::error::{PsError, guarded, quiet};
use crate::rows::PsRows;
use penstock_base::settings::flag;
use penstock_base::settings::moving::{of_environment, of_setting};
use penstock_base::settings::theirs::{TABLE, instead, taken};
use penstock_engine::store_options::is_known;
use std::ptr::null_mut;

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn ps_theirs() -> *mut PsRows {
    quiet(null_mut(), || PsRows::of_theirs(TABLE).give())
}

/// See the header.
///
/// # Safety
/// The pairs are readable, the out-parameters are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_differences(
    settings: *const PsPair,
    count: usize,
    out: *mut *mut PsRows,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let set = pairs(settings, count, "the settings")?;
            let told = set.iter().filter_map(|(name, value)| of_setting(name, value));
            let environment = of_environment(&set, &|name| std::env::var(name).ok());
            give(out, PsRows::of_differences(told.chain(environment).collect()))
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// The text is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_is_option(name: PsStr) -> bool {
    quiet(false, || {
        // SAFETY: the caller vouches for the text.
        unsafe { name.text("the option") }.is_ok_and(is_known)
    })
}

/// See the header.
///
/// # Safety
/// The text is readable, `out` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_flag(text: PsStr, out: *mut bool) -> bool {
    quiet(false, || {
        // SAFETY: the caller vouches for the text.
        let text = unsafe { text.text("the flag") };
        let Some(value) = text.ok().and_then(flag).filter(|_| !out.is_null()) else { return false };
        // SAFETY: not null, and the caller vouches for it.
        unsafe { out.write(value) };
        true
    })
}

/// See the header.
///
/// # Safety
/// The texts are readable, the out-parameters are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_theirs_taken(
    name: PsStr,
    value: PsStr,
    out: *mut *mut PsRows,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let kept = taken(name.text("the setting's name")?, value.text("the setting")?)?;
            give(out, PsRows::of_text(kept))
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// The texts are readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_theirs_instead(name: PsStr, value: PsStr) -> PsStr {
    quiet(PsStr::EMPTY, || {
        // SAFETY: the caller vouches for the texts.
        let texts = unsafe { name.text("the name").ok().zip(value.text("the value").ok()) };
        texts.and_then(|(name, value)| instead(name, value)).map_or(PsStr::EMPTY, PsStr::lend)
    })
}

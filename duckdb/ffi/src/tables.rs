//! The settings table and the version.

use crate::abi::PsStr;
use crate::error::{PsError, guarded, quiet};
use crate::rows::PsRows;
use penstock_base::Settings;
use penstock_base::settings::{SettingType, TABLE, spec};
use penstock_device::volume::Asked;
use penstock_engine::{check_cache, check_settings, default_here};
use std::ptr::null_mut;

/// One row of the settings table.
#[repr(C)]
#[derive(Debug)]
pub struct PsSettingInfo {
    /// Name without prefix.
    pub name: PsStr,
    /// What it does.
    pub doc: PsStr,
    /// Default, as text.
    pub default_value: PsStr,
    /// `ps_setting_type`.
    pub setting_type: u32,
    /// Whether `min` and `max` mean something.
    pub has_range: bool,
    /// Whether it is read at the start only.
    pub read_once: bool,
    /// Smallest value.
    pub min: u64,
    /// Largest value.
    pub max: u64,
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn ps_setting_count() -> usize {
    TABLE.len()
}

/// See the header.
///
/// # Safety
/// `out` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_setting_describe(index: usize, out: *mut PsSettingInfo) {
    let Some(row) = TABLE.get(index) else { return };
    if out.is_null() {
        return;
    }
    let info = PsSettingInfo {
        name: PsStr::lend(row.name),
        doc: PsStr::lend(row.doc),
        default_value: PsStr::lend(default_here(row)),
        setting_type: match row.setting_type {
            SettingType::Bool => 0,
            SettingType::Number => 1,
            SettingType::Bytes => 2,
            SettingType::Millis => 3,
            SettingType::Text | SettingType::Validation => 4,
            SettingType::Url => 5,
        },
        has_range: row.range.is_some(),
        read_once: row.read_once,
        min: row.range.map_or(0, |range| range.0),
        max: row.range.map_or(0, |range| range.1),
    };
    // SAFETY: not null, and the caller vouches for it.
    unsafe { out.write(info) };
}

/// See the header.
///
/// # Safety
/// The texts are readable, `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_setting_check(
    name: PsStr,
    value: PsStr,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let mut settings = Settings::default();
            settings.set(name.text("the setting's name")?, value.text("the setting")?)?;
            Asked::from_settings(&settings)?;
            check_settings(&settings)?;
            check_cache(&settings)
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// The texts are readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_setting_shown(name: PsStr, value: PsStr) -> *mut PsRows {
    quiet(null_mut(), || {
        // SAFETY: the caller vouches for the texts.
        let texts = unsafe { name.text("the name").ok().zip(value.text("the value").ok()) };
        let shown =
            texts.and_then(|(name, value)| Some(spec(name).ok()?.setting_type.shown(value)));
        shown.map_or(null_mut(), |shown| PsRows::of_text(shown).give())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn ps_version() -> PsStr {
    quiet(PsStr::EMPTY, || PsStr::lend(env!("CARGO_PKG_VERSION")))
}

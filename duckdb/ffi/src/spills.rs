//! Directories for spilling on volumes. One is there from when it is made until it is removed, or
//! its database instance is gone; it keeps the volume open meanwhile.

use crate::abi::{PsPair, PsStr, give};
use crate::error::{PsError, guarded};
use crate::rows::PsRows;
use crate::volumes::{At, Directory, PsVolumes, put};
use penstock_base::{Kind, Result};
use penstock_device::address::Place;
use penstock_device::volume::Volume;

/// What a URL of a directory for spilling names.
fn directory(volumes: &PsVolumes, at: &At) -> Result<Directory> {
    match &at.address.place {
        Place::Temp { directory, file: None } => {
            Ok(volumes.directory(&at.address.device, directory))
        }
        _ => {
            let message = "it is no directory for spilling, and a volume has no others";
            let hint = "Spilling goes to nvme:///dev/ng0n1?temp. COPY writes a table to a file of \
                        its own, such as nvme:///dev/ng0n1?db=orders.parquet; EXPORT DATABASE \
                        goes to a file system";
            Err(at.error(Kind::Invalid, message).with_hint(hint))
        }
    }
}

/// See the header.
///
/// # Safety
/// As [`crate::ps_volume_url`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_spill_exists(
    volumes: *const PsVolumes,
    url: PsStr,
    out: *mut bool,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let (volumes, at) = At::new(volumes, url, std::ptr::null(), 0)?;
            let there = match directory(volumes, &at) {
                Ok(directory) => volumes.spills().contains_key(&directory),
                Err(_) => false,
            };
            put(out, there)
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// As [`crate::ps_volume_url`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_spill_create(
    volumes: *const PsVolumes,
    url: PsStr,
    settings: *const PsPair,
    count: usize,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let (volumes, at) = At::new(volumes, url, settings, count)?;
            let directory = directory(volumes, &at)?;
            let wish = volumes.wish(at.address.asked, &at.settings, true)?;
            let volume = volumes.join(&directory.0, &wish)?;
            volumes.spills().insert(directory, volume);
            Ok(())
        })
    }
    .is_some()
}

/// Names of the files in a directory, without its prefix. A child of a fork has none: DuckDB
/// removes what is there while it closes, and those are its parent's.
fn files(volume: &Volume, prefix: &str) -> Vec<String> {
    if volume.check_process("volume list").is_err() {
        return Vec::new();
    }
    let names = volume.list().into_iter();
    names.filter_map(|file| file.name.strip_prefix(prefix).map(str::to_string)).collect()
}

/// See the header.
///
/// # Safety
/// As [`crate::ps_volume_url`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_spill_list(
    volumes: *const PsVolumes,
    url: PsStr,
    out: *mut *mut PsRows,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let (volumes, at) = At::new(volumes, url, std::ptr::null(), 0)?;
            let directory = directory(volumes, &at)?;
            let spills = volumes.spills();
            let names = spills.get(&directory).map(|volume| files(volume, &directory.1));
            give(out, PsRows::of_names(names.unwrap_or_default()))
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// As [`crate::ps_volume_url`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_spill_remove(
    volumes: *const PsVolumes,
    url: PsStr,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let (volumes, at) = At::new(volumes, url, std::ptr::null(), 0)?;
            let directory = directory(volumes, &at)?;
            let Some(volume) = volumes.spills().remove(&directory) else { return Ok(()) };
            let (_, prefix) = directory;
            files(&volume, &prefix)
                .iter()
                .try_for_each(|name| volume.remove(&(prefix.clone() + name)))
        })
    }
    .is_some()
}

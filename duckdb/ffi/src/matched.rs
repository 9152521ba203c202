//! Databases of a volume by a pattern. It decides what of a URL is one: the name of the database.
//! A device is named, for to look for one would open all that there are.

use crate::abi::{PsPair, PsStr, give};
use crate::error::{PsError, guarded};
use crate::rows::PsRows;
use crate::volumes::{At, PsVolumes, databases};
use penstock_base::{Kind, Result};
use penstock_device::address::Place;
use penstock_engine::fits_pattern;

/// The URLs that the one of a pattern stands for, of the databases that there are; `None` where it
/// is no pattern, but the name of one.
fn matched(url: &str, pattern: &str, names: &[String]) -> Option<Vec<String>> {
    if names.iter().any(|name| name == pattern) {
        return None;
    }
    let (device, query) = url.split_once('?')?;
    let written = format!("db={pattern}");
    let fits = |name: &&String| fits_pattern(pattern, name) == Some(true);
    let mut found: Vec<&String> = names.iter().filter(fits).collect();
    found.sort();
    let to_url =
        |name: &String| format!("{device}?{}", query.replacen(&written, &format!("db={name}"), 1));
    Some(found.into_iter().map(to_url).collect())
}

fn urls(volumes: &PsVolumes, at: &At) -> Result<Vec<String>> {
    let itself = || vec![at.url.clone()];
    let (address, is_pattern) = (&at.address, |text: &str| fits_pattern(text, "").is_some());
    let device = address.device.to_string_lossy();
    if is_pattern(&device) && !address.device.exists() {
        let error = at.error(Kind::Invalid, "a device is named, not looked for by a pattern");
        return Err(error.with_hint("Write nvme:///dev/ng0n1?db=*"));
    }
    let Place::Database(name) = &address.place else { return Ok(itself()) };
    // Behind the name of a log stands the ending that the URL has elsewhere.
    if !is_pattern(name) || !at.url.contains(&format!("db={name}")) {
        return Ok(itself());
    }
    let target = volumes.target(at, false)?;
    let names = target.peek(|it| Ok(databases(it)))?;
    Ok(matched(&at.url, name, &names).unwrap_or_else(itself))
}

/// See the header.
///
/// # Safety
/// As [`crate::ps_volume_url`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_volume_glob(
    volumes: *const PsVolumes,
    url: PsStr,
    settings: *const PsPair,
    count: usize,
    out: *mut *mut PsRows,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let (volumes, at) = At::new(volumes, url, settings, count)?;
            give(out, PsRows::of_names(urls(volumes, &at)?))
        })
    }
    .is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_stands_for_the_databases_that_fit_it() {
        let names = ["sales", "a*", "old/sales", "stock"].map(str::to_string);
        let found = |pattern: &str| {
            let url = format!("nvme://db=s*.img?io=file&db={pattern}&depth=4");
            matched(&url, pattern, &names).map(|urls| {
                let name = |url: String| {
                    let front = url.strip_prefix("nvme://db=s*.img?io=file&db=");
                    front.and_then(|it| it.strip_suffix("&depth=4")).map(str::to_string)
                };
                urls.into_iter().map(|url| name(url).expect("only the name differs")).collect()
            })
        };
        let of = |names: &[&str]| Some(names.iter().map(|it| it.to_string()).collect::<Vec<_>>());
        assert_eq!(found("s*"), of(&["sales", "stock"]));
        assert_eq!(found("**/sales"), of(&["old/sales", "sales"]));
        assert_eq!(found("[!s]*"), of(&["a*"]));
        assert_eq!(found("x*"), of(&[]));
        assert_eq!(found("a*"), None, "it is the name of one");
    }
}

//! URLs of files that DuckDB replaces. COPY writes beside what is there, under a name that has
//! `tmp_` behind the path's last slash, and renames at the end: in `nvme:///dev/ng0n1?db=sales`
//! that is another device. So the file's name gets a slash of its own, as in
//! `nvme:///dev/ng0n1?file=/sales`, and what DuckDB would take for a part of the path is written
//! as `%2F`. Pure.

use super::{Address, Place, SCHEME, fail};
use penstock_base::Result;
use std::fmt::Write as _;

/// The parameter that names a file so; only [`Address::replaced`] writes it.
pub(super) const PARAMETER: &str = "file";

/// How DuckDB marks a file that is to replace another (`physical_copy_to_file.cpp`).
const TEMP_BEGIN: &str = "/tmp_";

impl Address {
    /// The URL of the same file that stays on its volume with `tmp_` behind the last slash.
    ///
    /// # Errors
    /// As [`Address::parse`], and for a URL that names no file.
    pub fn replaced(url: &str) -> Result<String> {
        let Address { device, place, asked } = Address::parse(url)?;
        let Place::Database(name) = place else {
            return fail(url, "it names no file", "Write nvme:///dev/ng0n1?db=orders.parquet");
        };
        let (device, asked) = (device.display(), asked.to_string());
        let asked = asked.strip_prefix('&').map_or_else(String::new, |it| format!("{it}&"));
        Ok(format!("{SCHEME}{device}?{asked}{PARAMETER}=/{}", encoded(&name)))
    }

    /// The name of the file in whose place COPY will put the one that it writes at this URL, if it
    /// has made the URL of one of [`Address::replaced`].
    pub fn to_replace(url: &str) -> Option<String> {
        let (front, name) = url.rsplit_once(TEMP_BEGIN)?;
        let front = front.strip_suffix('=')?.strip_suffix(PARAMETER)?;
        let is_it = front.ends_with(['?', '&']) && !name.contains('/');
        is_it.then(|| decoded(&format!("/{name}"))).flatten()
    }
}

/// Slashes of both kinds divide paths, and dots that begin a name may be a directory.
fn encoded(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for (at, letter) in name.char_indices() {
        match letter {
            '/' | '\\' | '%' => _ = write!(text, "%{:02X}", u32::from(letter)),
            '.' if at == 0 => text += "%2E",
            _ => text.push(letter),
        }
    }
    text
}

/// The name that a value of the parameter stands for.
pub(super) fn decoded(value: &str) -> Option<String> {
    let mut parts = value.strip_prefix('/')?.split('%');
    let mut name = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2).filter(|it| it.bytes().all(|it| it.is_ascii_hexdigit()))?;
        name.push(u8::from_str_radix(digits, 16).ok()?);
        name.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(name).ok()
}

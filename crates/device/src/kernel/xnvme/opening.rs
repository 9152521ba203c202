//! Opening a device with one of libxnvme's backends. It decides what is named of a backend beside
//! what its caller named.

use crate::backend::Backend;
use crate::kernel::xnvme::library::Library;
use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt;
use std::io;
use std::ptr::null;

/// The parts that identify and read a plain file. The library of 2026 does not find them for every
/// asynchronous interface; that of 2024 finds them itself and knows `file_as_ns` by no name.
const OF_FILE: [Parts; 2] = [
    Parts { sync: Some("psync"), admin: Some("file_as_ns") },
    Parts { sync: Some("psync"), admin: None },
];
/// The library of 2026 takes what is not NVMe for a device without blocks, unless it is named.
const OF_DEVICE: [Parts; 2] =
    [Parts { sync: None, admin: None }, Parts { sync: Some("block"), admin: Some("block") }];

/// What is named where the caller names nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Parts {
    sync: Option<&'static str>,
    admin: Option<&'static str>,
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [("sync", self.sync), ("admin", self.admin)];
        let named = named.map(|(part, name)| name.map(|name| format!("{part}={name}")));
        let named: Vec<_> = named.into_iter().flatten().collect();
        match named.is_empty() {
            true => f.write_str("without sync= and admin="),
            false => write!(f, "with {}", named.join(",")),
        }
    }
}

/// Names as the library takes them.
#[derive(Default)]
pub(super) struct Names(Vec<CString>);

impl Names {
    /// Keeps a name; the address is right while this is there.
    fn keep(&mut self, name: Option<&str>) -> *const c_char {
        let Some(name) = name else { return null() };
        self.0.push(CString::new(name).expect("a backend's names have no zero byte"));
        self.0.last().expect("it was pushed").as_ptr()
    }
}

/// The library's device, and the names that it may look at as long as that is open.
///
/// # Errors
/// The library's own, of every try.
pub(super) fn open(
    library: &Library,
    uri: &CStr,
    backend: Backend,
    is_file: bool,
    write: bool,
) -> io::Result<(*mut c_void, Names)> {
    let tries: &[Parts] = if is_file { &OF_FILE } else { &OF_DEVICE };
    let mut failures: Vec<(Parts, io::Error)> = Vec::new();
    for parts in tries {
        let parts = Parts {
            sync: backend.part("sync").or(parts.sync),
            admin: backend.part("admin").or(parts.admin),
        };
        if failures.iter().any(|(tried, _)| *tried == parts) {
            continue;
        }
        let mut names = Names::default();
        let mut wish = library.defaults();
        wish.asynchronous = names.keep(backend.part("async"));
        wish.be = names.keep(backend.part("be"));
        wish.mem = names.keep(backend.part("mem"));
        wish.sync = names.keep(parts.sync);
        wish.admin = names.keep(parts.admin);
        wish.direct = 1;
        (wish.read_only, wish.read_write) = (u8::from(!write), u8::from(write));
        // SAFETY: both point to what lives until the call returns.
        let device = unsafe { (library.open)(uri.as_ptr(), &raw mut wish) };
        if device.is_null() {
            failures.push((parts, reason(io::Error::last_os_error())));
            continue;
        }
        // SAFETY: an open device has a geometry as long as it is open.
        if unsafe { (*(library.geo)(device)).block_bytes } > 0 {
            return Ok((device, names));
        }
        // SAFETY: it was just opened, and nobody else knows it.
        unsafe { (library.close)(device) };
        failures.push((parts, io::Error::other("the library finds no blocks on it")));
    }
    Err(together(failures))
}

/// One error that tells of every try: which of them would have been right, only the reader knows.
fn together(mut failures: Vec<(Parts, io::Error)>) -> io::Error {
    if failures.len() == 1 {
        return failures.remove(0).1;
    }
    let tell = |(parts, error): &(Parts, io::Error)| format!("{parts}: {error}");
    io::Error::other(failures.iter().map(tell).collect::<Vec<_>>().join("; "))
}

/// Where none of its backends has all the parts, libxnvme 0.7.5 gives the number of a part as an
/// error, with the sign turned round.
fn reason(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(..=0) => io::Error::other("no backend of the library has these parts"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_no_error_of_the_system_is_told_in_words() {
        let told = reason(io::Error::from_raw_os_error(-16)).to_string();
        assert!(told.contains("no backend"), "{told}");
        assert_eq!(reason(io::Error::from_raw_os_error(2)).raw_os_error(), Some(2));
    }

    #[test]
    fn every_try_is_told() {
        let failure = |parts, number| (parts, io::Error::from_raw_os_error(number));
        let told = together(vec![failure(OF_DEVICE[0], 2), failure(OF_DEVICE[1], 13)]).to_string();
        assert!(told.starts_with("without sync= and admin=: No such file"), "{told}");
        assert!(told.contains("; with sync=block,admin=block: Permission denied"), "{told}");
        let alone = together(vec![failure(OF_FILE[0], 2)]);
        assert_eq!(alone.raw_os_error(), Some(2));
    }
}

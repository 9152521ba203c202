//! Which of libxnvme's backends a device is opened with: `io_uring`, or what each part of it is
//! called. Pure; the names are the library's own, and what there is, it knows.

use penstock_base::{Error, Kind, Result, nearest::nearest};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// How the names of libxnvme's backends begin.
pub(crate) const XNVME: &str = "xnvme:";

/// The parts that can be named, as `struct xnvme_opts` has them.
const PARTS: [&str; 5] = ["async", "sync", "be", "admin", "mem"];
const EXAMPLE: &str = "Write io=xnvme:io_uring, or io=xnvme:async=io_uring,sync=psync";

/// A backend of libxnvme, as it is written behind `xnvme:`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend(&'static str);

fn fail<T>(message: String, hint: impl Into<String>) -> Result<T> {
    Err(Error::new(Kind::Invalid, message).with_hint(hint))
}

impl Backend {
    /// From the name of an asynchronous interface, or parts and their names with commas between.
    /// However it is written, what means the same is the same.
    ///
    /// # Errors
    /// `Invalid` for parts that there are not, and for no name at all.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut named: [Option<&str>; PARTS.len()] = [None; PARTS.len()];
        for word in text.split(',') {
            let (part, name) = match word.split_once('=') {
                Some(pair) => pair,
                None if text == word => ("async", word),
                None => {
                    return fail(format!("io={XNVME}{text} has a word without a part"), EXAMPLE);
                }
            };
            let Some(index) = PARTS.iter().position(|it| *it == part) else {
                let known = || format!("Known are: {}", PARTS.join(", "));
                let hint =
                    nearest(part, PARTS).map_or_else(known, |it| format!("Did you mean {it}?"));
                return fail(format!("io={XNVME} has no part {part}"), hint);
            };
            if name.is_empty() || name.contains('\0') {
                return fail(format!("io={XNVME}{text} names no backend"), EXAMPLE);
            }
            if named[index].replace(name).is_some() {
                return fail(format!("io={XNVME}{text} has {part} twice"), EXAMPLE);
            }
        }
        let given = PARTS.iter().zip(named).filter_map(|(part, name)| name.map(|it| (*part, it)));
        let given: Vec<_> = given.collect();
        let text = match given.as_slice() {
            [("async", name)] => name.to_string(),
            parts => parts
                .iter()
                .map(|(part, name)| format!("{part}={name}"))
                .collect::<Vec<_>>()
                .join(","),
        };
        Ok(Backend(keep(text)))
    }

    /// What a part is called, if it was named.
    pub(crate) fn part(self, part: &str) -> Option<&'static str> {
        if !self.0.contains('=') {
            return (part == "async").then_some(self.0);
        }
        let mut pairs = self.0.split(',').filter_map(|word| word.split_once('='));
        pairs.find(|pair| pair.0 == part).map(|pair| pair.1)
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// A process uses few, so they are kept.
fn keep(text: String) -> &'static str {
    static TEXTS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = texts.get(text.as_str()).copied().unwrap_or_else(|| text.leak());
    texts.insert(kept);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Backend {
        Backend::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn a_backend_is_named_whole_or_in_parts() {
        assert_eq!(parse("io_uring").part("async"), Some("io_uring"));
        assert_eq!(parse("io_uring").part("sync"), None);
        assert_eq!(parse("async=io_uring"), parse("io_uring"));
        let whole = parse("mem=posix,be=linux,async=libaio,admin=nvme,sync=nvme");
        let parts = PARTS.map(|part| whole.part(part));
        assert_eq!(parts, ["libaio", "nvme", "linux", "nvme", "posix"].map(Some));
        assert_eq!(whole.to_string(), "async=libaio,sync=nvme,be=linux,admin=nvme,mem=posix");
        assert_eq!(parse(&whole.to_string()), whole);
        assert_eq!(parse("sync=psync").part("async"), None);
    }

    #[test]
    fn what_is_no_backend_is_told() {
        for (text, told) in [
            ("", "names no backend"),
            ("async=", "names no backend"),
            ("sync=psync,posix", "a word without a part"),
            ("sync=psync,sync=nvme", "has sync twice"),
            ("asinc=libaio", "Did you mean async?"),
            ("dev=linux", "Known are: async, sync, be, admin, mem"),
        ] {
            let error = Backend::parse(text).expect_err(text);
            assert!(error.to_string().contains(told), "{error}");
            assert!(error.hint().is_some(), "{error}");
        }
    }
}

//! What goes to stdout, and what became of it.

use penstock_base::{Error, Kind, Result};
use std::io::{ErrorKind, Write as _};

/// Writes to stdout. A reader that has seen enough (`| head`) is no error.
///
/// # Errors
/// As [`unwritable`].
pub fn print(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(cause) if cause.kind() != ErrorKind::BrokenPipe => Err(unwritable(cause)),
        _ => Ok(()),
    }
}

/// Why stdout took no more: `Exhausted` for a full disk or a file that may not grow.
pub fn unwritable(cause: std::io::Error) -> Error {
    let (kind, hint) = match cause.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            (Kind::Exhausted, "Free space on the disk that stdout goes to, and run again")
        }
        ErrorKind::FileTooLarge => {
            (Kind::Exhausted, "Raise the limit of file sizes (`ulimit -f`), or take another disk")
        }
        _ => (Kind::Unavailable, "Check the file or program that stdout goes to"),
    };
    Error::new(kind, "cannot write to stdout").with_source(cause).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_from_a_broken_one() {
        for (cause, kind, word) in [
            (ErrorKind::StorageFull, Kind::Exhausted, "Free space"),
            (ErrorKind::QuotaExceeded, Kind::Exhausted, "Free space"),
            (ErrorKind::FileTooLarge, Kind::Exhausted, "ulimit -f"),
            (ErrorKind::Other, Kind::Unavailable, "stdout goes to"),
        ] {
            let error = unwritable(cause.into());
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.hint().unwrap().contains(word), "{error}");
        }
    }
}

//! What the operating system's error numbers mean to a caller of a store.

use super::attributes::LOST;
use super::upload::DAMAGED;
use super::versions::MOUNTED;
use crate::STORAGE_FULL;
use penstock_base::{Error, Kind};
use rustix::io::Errno;

const LOST_HINT: &str = "Bring back its `.penstock-meta-...` file from where it was copied from, \
     or go on without what that held: `setfattr -x user.penstock` on the object's file";

/// An error of a system call on `path`, in the words of the store.
pub(super) fn explain(errno: Errno, doing: &str, path: &str) -> Error {
    let (kind, why, hint) = match errno {
        Errno::NOENT => (Kind::NotFound, "no such file", None),
        Errno::NOTDIR => (
            Kind::Invalid,
            "a part of the path is a file, not a directory",
            Some("A directory tree cannot hold both an object `a` and objects below `a/`"),
        ),
        Errno::ISDIR => (
            Kind::Invalid,
            "it is a directory, not a file",
            Some("Name a file, or use a pattern such as `dir/*.parquet`"),
        ),
        Errno::ACCESS | Errno::PERM => {
            (Kind::Denied, "the operating system refused", Some("Check owner and mode of the path"))
        }
        Errno::ROFS => (Kind::Denied, "the file system is mounted read-only", None),
        Errno::XDEV | Errno::LOOP => (
            Kind::Denied,
            "the path leads out of the store's root through a symbolic link, or round in a circle",
            Some("Mount or copy the target inside the root instead"),
        ),
        Errno::NOSPC | Errno::DQUOT => {
            (Kind::Exhausted, "the disk or quota is full", Some("Free space and run again"))
        }
        Errno::FBIG => (
            Kind::Exhausted,
            "the file system does not allow files so large",
            Some("Raise the limit of file sizes (`ulimit -f`), or use another file system"),
        ),
        Errno::MFILE | Errno::NFILE => {
            (Kind::Exhausted, "too many open files", Some("Raise `ulimit -n`"))
        }
        Errno::NOMEM => (Kind::Exhausted, "the system is out of memory", None),
        Errno::NAMETOOLONG => (
            Kind::Invalid,
            "the path is too long for this file system",
            Some(
                "Between slashes 255 bytes fit, and 238 bytes in the name of an object that other \
                 objects lie below",
            ),
        ),
        Errno::IO => (Kind::Unavailable, "the device reported an input/output error", None),
        errno => {
            by_this_store(errno).unwrap_or((Kind::Unavailable, "the operating system failed", None))
        }
    };
    let mut error =
        Error::new(kind, format!("{why} ({doing} `{path}`, os error {})", errno.raw_os_error()));
    match errno {
        Errno::NAMETOOLONG => error = error.with_service_code("KeyTooLongError"),
        // Other resources that are exhausted come back by themselves.
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => error = error.with_service_code(STORAGE_FULL),
        _ => {}
    }
    match hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

/// What this store says in the words of the operating system, where that would not say it itself.
fn by_this_store(errno: Errno) -> Option<(Kind, &'static str, Option<&'static str>)> {
    Some(match errno {
        LOST => (
            Kind::Corrupt,
            "the hidden file with its type, metadata, version and lock is gone",
            Some(LOST_HINT),
        ),
        MOUNTED => (
            Kind::Unsupported,
            "the object lies on another file system than its bucket, which keeps versions",
            Some(
                "To remove the object, delete it by its version id. Otherwise let the whole bucket \
                 lie on one file system, or serve what is mounted there as a bucket of its own",
            ),
        ),
        DAMAGED => (
            Kind::Corrupt,
            "what the upload began with cannot be read",
            Some("Abort the upload and begin it anew"),
        ),
        _ => return None,
    })
}

/// The same for an error that came through `std::io`.
pub(super) fn explain_io(error: &std::io::Error, doing: &str, path: &str) -> Error {
    match Errno::from_io_error(error) {
        Some(errno) => explain(errno, doing, path),
        None => Error::new(Kind::Unavailable, format!("{error} ({doing} `{path}`)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_names_path_and_cure() {
        let error = explain(Errno::NOSPC, "write", "/data/a.parquet");
        assert_eq!(error.kind(), Kind::Exhausted);
        let text = error.to_string();
        assert!(text.contains("/data/a.parquet") && text.contains("Free space"), "{text}");
    }

    #[test]
    fn a_link_that_leads_out_is_told_apart_from_a_mount_inside() {
        for (errno, kind, told) in [
            (Errno::XDEV, Kind::Denied, "through a symbolic link"),
            (MOUNTED, Kind::Unsupported, "on another file system"),
        ] {
            let error = explain(errno, "rename to", "/data/lake/a");
            assert_eq!(error.kind(), kind);
            assert!(error.to_string().contains(told), "{error}");
        }
    }
}

//! The beginning of a bucket: its directory, whose name is on the disk when that is told. What
//! comes into the bucket would be lost with the name, however durable it is itself.

use super::durable::sync_dir;
use super::errno::explain;
use penstock_base::{Error, Kind, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;

/// Makes the directory of a bucket; making one that is there succeeds.
///
/// # Errors
/// As the operating system says; `Invalid` for a path without a name.
pub(super) fn make(path: &Path) -> Result<()> {
    let failed = |errno| explain(errno, "make", &path.display().to_string());
    let name = path.file_name().ok_or_else(|| {
        let why = format!("`{}` is no name for a directory", path.display());
        Error::new(Kind::Invalid, why)
    })?;
    let around = path.parent().filter(|around| !around.as_os_str().is_empty());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = rustix::fs::open(around.unwrap_or(Path::new(".")), flags, Mode::empty());
    let parent = parent.map_err(failed)?;
    match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o777)) {
        // Whoever made it may have been killed before its name was on the disk.
        Ok(()) | Err(Errno::EXIST) => sync_dir(&parent).map_err(failed),
        Err(errno) => Err(failed(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::durable::seen;
    use penstock_testkit::scratch::Scratch;

    #[test]
    fn the_name_of_a_bucket_is_on_the_disk_when_it_is_told() {
        let dir = Scratch::new("bucket");
        let path = dir.path().join("new");
        for what in ["a new one", "one that is there"] {
            let (made, synced) = seen::during(|| make(&path));
            made.unwrap();
            assert_eq!(synced.len(), 1, "{what}");
            assert_eq!(synced[0].path, dir.path(), "{what}");
            assert_eq!(synced[0].names, ["new"], "{what}");
        }
        let nowhere = make(&dir.path().join("no/where")).unwrap_err();
        assert_eq!(nowhere.kind(), Kind::NotFound);
    }
}

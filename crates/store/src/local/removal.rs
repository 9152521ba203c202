//! The end of a bucket: its directory goes only if nothing is in it, and nothing came meanwhile.
//!
//! A directory must be empty to be removed, and whether it was is decided by that one call. So what
//! is hidden in the bucket (unfinished uploads, attributes, the note of versions) first moves into
//! a hidden directory beside it, and moves back where an object was quicker. A writer that had
//! opened its directory before can still place its object there, hidden by now: then the hidden
//! directory becomes the bucket, without its unfinished uploads. A removal that is killed is ended
//! by whoever comes next ([`mend`]).

mod mend;

#[cfg(any(test, feature = "fuzzing"))]
pub(super) use mend::fuzz;
pub(super) use mend::mend;

use super::errno::explain;
use super::names::{REMOVED, TEMP, UPLOAD, VERSIONING};
use super::root::{Root, lock};
use super::write::rename_at;
use super::{durable::sync_dir, upload};
use penstock_base::{Error, Kind, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::path::Arg;
use std::ffi::{CStr, CString};
use std::path::Path;

const ROUNDS_MAX: usize = 64;

/// How far a removal has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// No object was found.
    Looked,
    /// What is hidden is out of the way.
    Moved,
    /// The directory is gone.
    Removed,
}

/// Removes the bucket's directory.
///
/// # Errors
/// `Conflict` when objects are in it, and `NotFound` when another directory has its path. The
/// bucket is as it was then, with what came meanwhile.
pub(super) fn remove(root: &Root) -> Result<()> {
    remove_telling(root, |_| ())
}

fn remove_telling(root: &Root, mut tell: impl FnMut(Step)) -> Result<()> {
    let failed = |errno| match errno {
        Errno::NOTEMPTY | Errno::EXIST => Error::new(Kind::Conflict, "the bucket is not empty"),
        // What the path leads to is on another file system than the directory around it.
        Errno::XDEV => explain(Errno::BUSY, "remove", &root.path),
        errno => explain(errno, "remove", &root.path),
    };
    let path = Path::new(&root.path);
    if !root.is_at(path) {
        let why = format!("`{}` is no longer the directory that was opened", root.path);
        return Err(Error::new(Kind::NotFound, why));
    }
    let bucket = root.open_dir(".").map_err(failed)?;
    let around = path.parent().filter(|around| !around.as_os_str().is_empty());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = rustix::fs::open(around.unwrap_or(Path::new(".")), flags, Mode::empty());
    let parent = parent.map_err(failed)?;
    let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
        Error::new(Kind::Invalid, format!("`{}` cannot be removed by this name", root.path))
    })?;
    // This bucket may have been left half emptied itself.
    mend::mend_in(&parent, around.unwrap_or(Path::new(".")), Some(name)).map_err(failed)?;
    if holds_objects(&bucket).map_err(failed)? {
        return Err(failed(Errno::NOTEMPTY));
    }
    tell(Step::Looked);
    let aside = Aside::make(&parent).map_err(failed)?;
    mend::tell_owner(&aside.dir, &bucket, name).map_err(failed)?;
    let emptied = move_out(&bucket, &aside.dir).and_then(|()| {
        tell(Step::Moved);
        if holds_objects(&aside.dir)? {
            return Err(Errno::NOTEMPTY);
        }
        if !root.is_at(path) {
            return Err(Errno::NOENT);
        }
        rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)
    });
    if let Err(errno) = emptied {
        let moved = move_back(root, &aside.dir, ".")
            .and_then(|()| mend::drop_owner(&aside.dir))
            .and_then(|()| aside.forget(&parent));
        match moved {
            // Nothing could go back: another removal was quicker.
            Err(Errno::NOTEMPTY | Errno::EXIST) if !root.is_at(path) => {
                let _ = aside.bury(&parent);
            }
            moved => moved.map_err(failed)?,
        }
        return Err(failed(errno));
    }
    tell(Step::Removed);
    if let Err(errno) = aside.bury(&parent) {
        // Only an empty directory is replaced by this: a bucket that was made anew.
        let back = rustix::fs::renameat(&parent, &aside.name, &parent, name);
        let hint = || format!("What a writer placed meanwhile is in `{}` beside it", aside.name);
        back.map_err(|errno| failed(errno).with_hint(hint()))?;
        return Err(failed(errno));
    }
    sync_dir(&parent).map_err(failed)
}

/// The hidden directory, locked as long as somebody works with it.
struct Aside {
    name: String,
    dir: OwnedFd,
}

impl Aside {
    fn make(parent: &OwnedFd) -> Result<Self, Errno> {
        for _ in 0..ROUNDS_MAX {
            let name = format!("{REMOVED}{}", super::nonce());
            rustix::fs::mkdirat(parent, &name, Mode::from_raw_mode(0o777))?;
            let Ok(dir) = open_in(parent, &name) else { continue };
            lock(&dir)?;
            // Another removal may have swept it before the lock was ours.
            if open_in(parent, &name).is_ok() {
                return Ok(Aside { name, dir });
            }
        }
        Err(Errno::AGAIN)
    }

    /// Removes the directory, which must be empty.
    fn forget(&self, parent: &OwnedFd) -> Result<(), Errno> {
        rustix::fs::unlinkat(parent, &self.name, AtFlags::REMOVEDIR)
    }

    /// Removes the directory with what is hidden in it, unless there is an object. First what a
    /// writer could still make an object of; what objects need goes last.
    fn bury(&self, parent: &OwnedFd) -> Result<(), Errno> {
        let is_unfinished = |name: &CStr| has_prefix(name, TEMP) || has_prefix(name, UPLOAD);
        clear(&self.dir, &is_unfinished)?;
        if holds_objects(&self.dir)? {
            return Err(Errno::NOTEMPTY);
        }
        clear(&self.dir, &|name| is_ours(name) && !has_prefix(name, VERSIONING))?;
        let note = rustix::fs::readlinkat(&self.dir, VERSIONING, Vec::new());
        if note.is_ok() {
            rustix::fs::unlinkat(&self.dir, VERSIONING, AtFlags::empty())?;
        }
        self.forget(parent).inspect_err(|_| {
            // Something came in the last moment.
            let _ = note.map(|note| rustix::fs::symlinkat(note, &self.dir, VERSIONING));
        })
    }
}

/// Moves all that is no object; the note of versions last, since writers ask for it.
fn move_out(bucket: &OwnedFd, aside: &OwnedFd) -> Result<(), Errno> {
    let mut found = entries(bucket)?;
    found.retain(|(name, is_dir)| *is_dir || is_ours(name));
    found.sort_by_key(|(name, _)| has_prefix(name, VERSIONING));
    for (name, is_dir) in found {
        match move_one(bucket, aside, &name, is_dir) {
            // Its writer was quicker.
            Err(Errno::NOENT) => {}
            moved => moved?,
        }
    }
    Ok(())
}

/// Moves everything back, beside what has come meanwhile; the note of versions first.
fn move_back(root: &Root, aside: &OwnedFd, path: &str) -> Result<(), Errno> {
    let bucket = root.open_dir(path)?;
    let mut found = entries(aside)?;
    found.retain(|(name, _)| !mend::is_owner_link(name));
    found.sort_by_key(|(name, _)| !has_prefix(name, VERSIONING));
    for (name, is_dir) in found {
        match move_one(aside, &bucket, &name, is_dir) {
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) if is_dir => {
                let below = name.to_str().map_err(|_| Errno::EXIST)?;
                let below = if path == "." { below.into() } else { format!("{path}/{below}") };
                // An object that took the name gives way, as to any directory.
                root.make_dir(&below)?;
                move_back(root, &open_in(aside, &*name)?, &below)?;
                rustix::fs::unlinkat(aside, &*name, AtFlags::REMOVEDIR)?;
            }
            // Removed meanwhile, or the bucket itself is.
            Err(Errno::NOENT) => {}
            // A newer one is there.
            Err(Errno::EXIST) => rustix::fs::unlinkat(aside, &*name, AtFlags::empty())?,
            moved => moved?,
        }
    }
    Ok(())
}

/// Moves a name to another directory, where it replaces an empty directory at most.
fn move_one(from: &OwnedFd, to: &OwnedFd, name: &CStr, is_dir: bool) -> Result<(), Errno> {
    let flags = if is_dir { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
    rename_at(from, name, to, name, flags)
}

/// Whether anything but our own hidden files is below the directory.
fn holds_objects(dir: &OwnedFd) -> Result<bool, Errno> {
    for (name, is_dir) in entries(dir)? {
        if is_ours(&name) {
            continue;
        }
        if !is_dir {
            return Ok(true);
        }
        match open_in(dir, &*name).and_then(|below| holds_objects(&below)) {
            Ok(false) | Err(Errno::NOENT) => {}
            answer => return answer,
        }
    }
    Ok(false)
}

/// Removes everything of these names below the directory, and the directories that are empty then.
fn clear(dir: &OwnedFd, is_meant: &dyn Fn(&CStr) -> bool) -> Result<(), Errno> {
    for (name, is_dir) in entries(dir)? {
        let removed = match (is_dir, is_meant(&name)) {
            (true, is_whole) => {
                let all: &dyn Fn(&CStr) -> bool = &|_| true;
                open_in(dir, &*name)
                    .and_then(|below| clear(&below, if is_whole { all } else { is_meant }))
                    .and_then(|()| rustix::fs::unlinkat(dir, &*name, AtFlags::REMOVEDIR))
            }
            (false, true) => rustix::fs::unlinkat(dir, &*name, AtFlags::empty()),
            (false, false) => Ok(()),
        };
        match removed {
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn has_prefix(name: &CStr, prefix: &str) -> bool {
    name.to_bytes().starts_with(prefix.as_bytes())
}

fn is_ours(name: &CStr) -> bool {
    name.to_str().is_ok_and(upload::is_leftover)
}

/// The names in a directory, and whether each is a directory.
fn entries(dir: &OwnedFd) -> Result<Vec<(CString, bool)>, Errno> {
    let mut found = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let is_dir = match entry.file_type() {
            FileType::Unknown => match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode) == FileType::Directory,
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(errno),
            },
            told => told == FileType::Directory,
        };
        found.push((name.to_owned(), is_dir));
    }
    Ok(found)
}

fn open_in(dir: &OwnedFd, name: impl Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests;

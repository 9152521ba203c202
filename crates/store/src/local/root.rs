//! The directory that a local store lives in, and how names below it are opened.
//!
//! A bucket resolves names with `openat2(RESOLVE_BENEATH)`: no `..` and no symbolic link leads out
//! of it. Where the kernel has no `openat2`, every component is opened without following links.

use super::Scope;
use super::durable::sync_dir;
use super::errno::explain;
use super::names::{self, Location};
use penstock_base::Result;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::path::Path;

/// `openat2` answers EAGAIN when a rename raced with its walk.
const OPEN_RACES_MAX: usize = 64;
/// Links one behind the other that the kernel follows.
const LINKS_MAX: usize = 40;
const DIR_MODE: Mode = Mode::from_raw_mode(0o777);

/// An open root directory.
#[derive(Debug)]
pub(super) struct Root {
    pub scope: Scope,
    /// For messages.
    pub path: String,
    fd: OwnedFd,
}

impl Root {
    /// Opens an existing directory.
    pub fn open(path: &Path, scope: Scope) -> Result<Self> {
        let text = path.display().to_string();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|errno| explain(errno, "open", &text))?;
        Ok(Root { scope, path: text.trim_end_matches('/').to_string(), fd })
    }

    /// A relative path as people see it.
    pub fn shown(&self, relative: &str) -> String {
        format!("{}/{relative}", self.path)
    }

    /// Opens a name below the root.
    pub fn open_at(&self, relative: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        if self.scope == Scope::Files {
            return rustix::fs::openat(&self.fd, relative, flags, Mode::empty());
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..OPEN_RACES_MAX {
            match rustix::fs::openat2(&self.fd, relative, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN) => {}
                // A sandbox that does not know the call answers EPERM.
                Err(Errno::NOSYS | Errno::PERM) => return self.open_without_links(relative, flags),
                answer => return answer,
            }
        }
        Err(Errno::AGAIN)
    }

    /// The same, but only if no disk is needed to find it: AGAIN otherwise, and on kernels that
    /// cannot tell (`RESOLVE_CACHED` came with Linux 5.12).
    pub fn open_file_cached(&self, relative: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut resolve = ResolveFlags::CACHED;
        if self.scope == Scope::Bucket {
            resolve |= ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        }
        match rustix::fs::openat2(&self.fd, relative, flags, Mode::empty(), resolve) {
            Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => Err(Errno::AGAIN),
            answer => answer,
        }
    }

    /// Whether this path leads to the directory, and not through a symbolic link.
    pub fn is_at(&self, path: &Path) -> bool {
        let (own, found) = (rustix::fs::fstat(&self.fd), rustix::fs::lstat(path));
        matches!((own, found), (Ok(own), Ok(found))
            if (own.st_dev, own.st_ino) == (found.st_dev, found.st_ino))
    }

    fn open_without_links(&self, relative: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (dirs, name) = relative.rsplit_once('/').unwrap_or((".", relative));
        let mut at = rustix::fs::openat(&self.fd, ".", step, Mode::empty())?;
        for component in dirs.split('/').filter(|component| *component != ".") {
            at = rustix::fs::openat(&at, component, step, Mode::empty())?;
        }
        rustix::fs::openat(&at, name, flags | OFlags::NOFOLLOW, Mode::empty())
    }

    /// Opens a directory for reading its names and syncing it.
    pub fn open_dir(&self, relative: &str) -> Result<OwnedFd, Errno> {
        self.open_at(relative, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// What a symbolic link at the root says; `None` where there is none.
    pub fn note(&self, name: &str) -> Result<Option<String>, Errno> {
        match rustix::fs::readlinkat(&self.fd, name, Vec::new()) {
            Ok(text) => Ok(text.into_string().ok()),
            Err(Errno::NOENT | Errno::INVAL) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// The same by the kernel's caches alone; an error where it would have to wait for a disk.
    pub fn note_cached(&self, name: &str) -> Result<Option<String>, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (mode, resolve) = (Mode::empty(), ResolveFlags::CACHED);
        match rustix::fs::openat2(&self.fd, name, flags, mode, resolve) {
            Ok(link) => {
                rustix::fs::readlinkat(link, "", Vec::new()).map(|text| text.into_string().ok())
            }
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Makes a symbolic link at the root say something, at once and durably.
    pub fn set_note(&self, name: &str, text: &str) -> Result<(), Errno> {
        let temp = super::temp_name();
        rustix::fs::symlinkat(text, &self.fd, &temp)?;
        let renamed = rustix::fs::renameat(&self.fd, &temp, &self.fd, name);
        renamed.inspect_err(|_| {
            let _ = rustix::fs::unlinkat(&self.fd, &temp, AtFlags::empty());
        })?;
        sync_dir(&self.fd)
    }

    /// Opens a file for reading; never blocks on a pipe.
    pub fn open_file(&self, relative: &str) -> Result<OwnedFd, Errno> {
        self.open_at(relative, OFlags::RDONLY | OFlags::NONBLOCK)
    }

    /// Whether a name leads to this file now.
    pub fn leads_to(&self, location: &Location, stat: &Stat) -> Result<bool, Errno> {
        match self.open_at(&location.path(), OFlags::PATH).and_then(rustix::fs::fstat) {
            Ok(now) => Ok((now.st_ino, now.st_dev) == (stat.st_ino, stat.st_dev)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Where the file of a name is: elsewhere if that is a symbolic link's.
    pub fn behind_links(&self, location: &Location) -> Result<Location, Errno> {
        let mut at = location.clone();
        for _ in 0..LINKS_MAX {
            let link = self
                .open_dir(&at.dir)
                .and_then(|dir| rustix::fs::readlinkat(dir, &at.name, Vec::new()));
            let target = match link {
                Ok(target) => target.into_string().map_err(|_| Errno::ILSEQ)?,
                Err(Errno::INVAL | Errno::NOENT | Errno::NOTDIR) => return Ok(at),
                Err(errno) => return Err(errno),
            };
            at = match target.rsplit_once('/') {
                None => Location { name: target, ..at },
                Some((dir, name)) => {
                    // From `/` on, which only plain files may: it is their root.
                    let dir = match target.strip_prefix('/') {
                        Some(_) => format!("./{dir}"),
                        None => format!("{}/{dir}", at.dir),
                    };
                    Location { dir, name: name.to_string() }
                }
            };
        }
        Err(Errno::LOOP)
    }

    /// Opens an object wherever it is kept, and tells where. What has the plain name comes first; a
    /// directory comes back only if no object is kept aside of it.
    pub fn open_object(&self, location: &Location) -> Result<(OwnedFd, Location), Errno> {
        let plain = self.open_file(&location.path());
        let is_dir = match &plain {
            Ok(fd) => {
                let stat = rustix::fs::fstat(fd)?;
                FileType::from_raw_mode(stat.st_mode) == FileType::Directory
            }
            Err(Errno::NOENT) => true,
            Err(errno) => return Err(*errno),
        };
        if is_dir && let Some(aside) = location.aside(self.scope) {
            match self.open_file(&aside.path()) {
                Err(Errno::NOENT) => {}
                answer => return Ok((answer?, aside)),
            }
        }
        Ok((plain?, location.clone()))
    }

    /// Opens a directory, making it and its parents where they are missing. What is made is synced
    /// into its parent, so that a file put there survives a crash. In a bucket, a file that has the
    /// name of a directory is kept aside from now on.
    pub fn make_dir(&self, relative: &str) -> Result<OwnedFd, Errno> {
        match self.open_dir(relative) {
            Err(Errno::NOENT) => {}
            Err(Errno::NOTDIR) if self.scope == Scope::Bucket => {}
            answer => return answer,
        }
        let ends = relative.match_indices('/').map(|(at, _)| at).chain([relative.len()]);
        for end in ends {
            let path = &relative[..end];
            let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
            let parent = self.open_dir(parent)?;
            self.make_one(&parent, name)?;
        }
        self.open_dir(relative)
    }

    fn make_one(&self, parent: &OwnedFd, name: &str) -> Result<(), Errno> {
        for _ in 0..OPEN_RACES_MAX {
            match rustix::fs::mkdirat(parent, name, DIR_MODE) {
                Ok(()) => return sync_dir(parent),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
            match (self.open_plain(parent, name), names::aside(self.scope, name)) {
                (Ok(Some(file)), Some(aside)) => move_aside(parent, name, &file, &aside)?,
                (Ok(Some(_)), None) if self.scope == Scope::Files => return Err(Errno::NOTDIR),
                // It would have a place beside the directory if its name were shorter.
                (Ok(Some(_)), None) => return Err(Errno::NAMETOOLONG),
                // A directory, or a link that opening the directory will judge.
                (Ok(None), _) => return Ok(()),
                (Err(Errno::NOENT), _) => {}
                (Err(errno), _) => return Err(errno),
            }
        }
        Err(Errno::AGAIN)
    }

    /// The file of this name; `None` if it is something else.
    fn open_plain(&self, parent: &OwnedFd, name: &str) -> Result<Option<OwnedFd>, Errno> {
        let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::openat(parent, name, flags, Mode::empty()).map(Some)
    }

    /// Removes a directory and its parents as far as they are empty, but never the root. Plain
    /// files are another matter: there, directories belong to the user.
    pub fn clean_dirs(&self, relative: &str) {
        if self.scope == Scope::Files {
            return;
        }
        let mut path = relative;
        while path != "." {
            let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
            let removed = self
                .open_dir(parent)
                .and_then(|parent| rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR));
            if removed.is_err() {
                return;
            }
            path = parent;
        }
    }
}

/// Gives a file the name under which it is kept beside a directory. Readers look there when the
/// plain name is missing, so at no time is the object gone; writers of it wait for the lock.
fn move_aside(parent: &OwnedFd, name: &str, file: &OwnedFd, aside: &str) -> Result<(), Errno> {
    lock(file)?;
    let (held, now) =
        (rustix::fs::fstat(file)?, rustix::fs::statat(parent, name, AtFlags::empty()));
    match now {
        Ok(now) if (now.st_ino, now.st_dev) == (held.st_ino, held.st_dev) => {}
        // Replaced or gone while we waited: look again.
        Ok(_) | Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno),
    }
    // Should both names be there, the plain one is the newer.
    rustix::fs::renameat(parent, name, parent, aside)?;
    sync_dir(parent)
}

/// Waits for the exclusive lock of an open file or directory.
pub(super) fn lock(fd: impl AsFd) -> Result<(), Errno> {
    loop {
        match rustix::fs::flock(&fd, FlockOperation::LockExclusive) {
            Err(Errno::INTR) => {}
            answer => return answer,
        }
    }
}

//! Placing and removing files so that an object is whole or not there, and conditions hold.
//!
//! A write goes to a hidden temporary file in the target's directory, is synced, and renamed. Every
//! writer that replaces or removes a file first locks that file (`flock`) and checks that it is
//! still the one of that name; every writer that found none renames without replacing. So
//! conditions hold between processes on one machine. Rounds below repeat after a lost race between
//! local system calls; they are not retries of failed ones.

use super::Scope;
use super::attributes::{self, Attributes, etag};
use super::durable::{sync_dir, sync_file};
use super::errno::{explain, explain_io};
use super::names::Location;
use super::root::{Root, lock};
use super::versions::{self, Keeper};
use crate::{Payload, PutResult, WriteCondition};
use bytes::Bytes;
use penstock_base::{Error, Kind, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat, Timespec,
    Timestamps,
};
use rustix::io::Errno;
use rustix::path::Arg;
use std::fs::File;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Races lost in a row before a write gives up; each loss means that somebody else's write won.
const ROUNDS_MAX: usize = 1000;
/// Below this, reserving space costs more than it tells.
const RESERVE_MIN_BYTES: u64 = 1 << 20;
/// Longest list of buffers that the kernel takes in one call.
const IOV_MAX: usize = 1024;

/// A hidden file that goes away unless it is published.
#[derive(Debug)]
pub(super) struct Temp {
    pub dir: OwnedFd,
    pub name: String,
    pub file: File,
    published: bool,
}

impl Drop for Temp {
    fn drop(&mut self) {
        if !self.published {
            // Best effort: a leftover is hidden, and swept by the next writer of the directory.
            let _ = rustix::fs::unlinkat(&self.dir, &self.name, AtFlags::empty());
        }
    }
}

impl Temp {
    /// A fresh hidden, locked file in an open directory.
    pub fn create_in(dir: OwnedFd, shown: &str) -> Result<Self> {
        match Self::try_create(dir, shown)? {
            Some(temp) => Ok(temp),
            None => Err(Error::new(Kind::NotFound, "the directory was removed meanwhile")),
        }
    }

    /// `None` when the directory or the new file was removed by somebody else at once.
    fn try_create(dir: OwnedFd, shown: &str) -> Result<Option<Self>> {
        let name = super::temp_name();
        let made = create_locked(&dir, &name);
        let file = made.map_err(|errno| explain(errno, "create a file beside", shown))?;
        Ok(file.map(|file| Temp { dir, name, file, published: false }))
    }

    /// A fresh hidden file in the directory of `location`, which is made where it is missing. It is
    /// locked for as long as its writer lives; who can lock a temporary file may remove it.
    pub fn create(root: &Root, location: &Location) -> Result<Self> {
        let shown = root.shown(&location.path());
        for _ in 0..ROUNDS_MAX {
            let dir =
                root.make_dir(&location.dir).map_err(|e| explain(e, "make directory", &shown))?;
            if let Some(temp) = Self::try_create(dir, &shown)? {
                return Ok(temp);
            }
        }
        Err(lost_races(&shown))
    }

    /// Gives the file a name in its own directory, replacing what has it.
    pub fn keep_as(&mut self, name: &str, shown: &str) -> Result<()> {
        rustix::fs::renameat(&self.dir, &self.name, &self.dir, name)
            .map_err(|errno| explain(errno, "keep a part of", shown))?;
        self.published = true;
        Ok(())
    }

    /// An existing file that is about to be published.
    pub fn adopt(dir: OwnedFd, name: String, file: File) -> Self {
        Temp { dir, name, file, published: true }
    }

    /// Writes the payload at the end of the file.
    pub fn write(&mut self, payload: &Payload, shown: &str) -> Result<()> {
        self.reserve(payload.len(), shown)?;
        self.append(&payload.0, shown)
    }

    /// Takes the space of a file that will have `len` bytes, so that a full disk is told of early.
    /// The file does not get longer: space that was never written to must not count as bytes.
    pub fn reserve(&mut self, len: u64, shown: &str) -> Result<()> {
        if len < RESERVE_MIN_BYTES {
            return Ok(());
        }
        // Asked first: a reservation that does not fit takes all space there is before it fails,
        // and every other writer of the disk fails meanwhile.
        if let Ok(space) = rustix::fs::fstatvfs(&self.file)
            && len > space.f_bavail.saturating_mul(space.f_frsize)
        {
            return Err(explain(Errno::NOSPC, "reserve space for", shown));
        }
        match rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, len) {
            Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => {
                Err(explain(errno, "reserve space for", shown))
            }
            // Not every file system can reserve.
            _ => Ok(()),
        }
    }

    /// Writes some pieces at the end of the file.
    pub fn append(&mut self, pieces: &[Bytes], shown: &str) -> Result<()> {
        let pieces = pieces.iter().filter(|piece| !piece.is_empty());
        let mut slices: Vec<_> = pieces.map(|piece| std::io::IoSlice::new(piece)).collect();
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            let count = rest.len().min(IOV_MAX);
            match self.file.write_vectored(&rest[..count]) {
                Ok(0) => return Err(explain(Errno::IO, "write", shown)),
                Ok(written) => std::io::IoSlice::advance_slices(&mut rest, written),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(explain_io(&error, "write", shown)),
            }
        }
        Ok(())
    }

    /// Makes the content durable, then the name, in one atomic step.
    pub fn publish(
        mut self,
        root: &Root,
        location: &Location,
        condition: &WriteCondition,
        attributes: &Attributes,
    ) -> Result<PutResult> {
        let shown = root.shown(&location.path());
        let target = root.open_dir(&location.dir).map_err(|e| explain(e, "open", &shown))?;
        let mut attributes = attributes.clone();
        let mut placed = None;
        // Once more where versions began to be kept while the file was synced.
        for _ in 0..ROUNDS_MAX {
            let keeper = Keeper::open(root, location)
                .map_err(|errno| explain(errno, "keep the versions of", &shown))?;
            // In its turn: versions are in the order of their times, and whoever had the turn
            // before this writer may have written while it waited.
            set_time(&self.file).map_err(|errno| explain(errno, "set the time of", &shown))?;
            let stat = rustix::fs::fstat(&self.file).map_err(|e| explain(e, "stat", &shown))?;
            attributes.version = keeper.as_ref().and_then(Keeper::new_id);
            attributes
                .store(&self.file, &target)
                .map_err(|errno| explain(errno, "store the metadata of", &shown))?;
            sync_file(&self.file).map_err(|errno| explain(errno, "sync", &shown))?;
            match self.rename(root, location, &target, condition, keeper.as_ref()) {
                Ok(true) => {
                    self.published = true;
                    let replaced = keeper.as_ref().map_or(Ok(()), Keeper::replaced);
                    replaced.map_err(|errno| explain(errno, "replace a version of", &shown))?;
                    placed = Some(stat);
                    break;
                }
                // The hidden file has the time in its name, which will be another.
                Ok(false) => attributes::forget(&target, &stat),
                Err(error) => {
                    attributes::forget(&target, &stat);
                    return Err(error);
                }
            }
        }
        let Some(stat) = placed else { return Err(lost_races(&shown)) };
        // Whoever waits for the lock may go on; durability of the name concerns only this caller.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        sync_dir(&target).map_err(|errno| explain(errno, "sync the directory of", &shown))?;
        let version = attributes.version;
        let modified = attributes::meta(&stat).modified;
        Ok(PutResult { etag: Some(etag(&stat)), modified, version, ..PutResult::default() })
    }

    /// Gives the file its name. `false` if that has to wait for a turn, since versions are kept
    /// now.
    fn rename(
        &self,
        root: &Root,
        location: &Location,
        target: &OwnedFd,
        condition: &WriteCondition,
        keeper: Option<&Keeper>,
    ) -> Result<bool> {
        let shown = root.shown(&location.path());
        let failed = |errno| explain(errno, "rename to", &shown);
        for _ in 0..ROUNDS_MAX {
            let (current, at) = Current::find(root, location, target).map_err(failed)?;
            if let Current::Directory = current {
                return Err(in_the_way(root, &shown));
            }
            check(condition, current.stat(), &shown)?;
            let in_tree = match keeper {
                Some(keeper) => keeper.keep(root, &current, (target, &at)).map_err(failed)?,
                None if versions::have_begun(root, location).map_err(failed)? => return Ok(false),
                None => false,
            };
            let flags = match current {
                Current::Absent => RenameFlags::NOREPLACE,
                _ => RenameFlags::empty(),
            };
            match rename_at(&self.dir, &self.name, target, &at.name, flags) {
                Ok(()) => {
                    current.forget_if_gone(in_tree, target);
                    return Ok(true);
                }
                Err(Errno::EXIST | Errno::ISDIR) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        Err(lost_races(&shown))
    }
}

/// Makes a temporary file and locks it, so that nobody sweeps it while it is open. `None` when the
/// directory or the new file was removed by somebody else at once.
pub(super) fn create_locked(dir: &OwnedFd, name: &str) -> Result<Option<File>, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o666)) {
        Ok(fd) => File::from(fd),
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let stat = lock(&file).and_then(|()| rustix::fs::fstat(&file));
    let stat = stat.inspect_err(|_| {
        let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
    })?;
    Ok((stat.st_nlink > 0).then_some(file))
}

/// `renameat2` with a fall-back for file systems without NOREPLACE: a hard link never replaces.
pub(super) fn rename_at(
    from_dir: &OwnedFd,
    from: impl Arg + Copy,
    to_dir: &OwnedFd,
    to: impl Arg + Copy,
    flags: RenameFlags,
) -> Result<(), Errno> {
    if flags.is_empty() {
        return rustix::fs::renameat(from_dir, from, to_dir, to);
    }
    match rustix::fs::renameat_with(from_dir, from, to_dir, to, flags) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            rustix::fs::linkat(from_dir, from, to_dir, to, AtFlags::empty())?;
            rustix::fs::unlinkat(from_dir, from, AtFlags::empty())
        }
        answer => answer,
    }
}

/// What has the target's name now.
pub(super) enum Current {
    Absent,
    Directory,
    /// A file, locked against other writers of this store until dropped.
    File {
        stat: Stat,
        held: Option<OwnedFd>,
    },
}

impl Current {
    pub fn stat(&self) -> Option<&Stat> {
        match self {
            Current::File { stat, .. } => Some(stat),
            _ => None,
        }
    }

    /// Removes what is beside a file whose name was taken away, unless another name, such as one
    /// that a link led to, needs it. What the tree of versions has under a name of its own has what
    /// is beside it there too.
    pub fn forget_if_gone(&self, in_tree: bool, dir: &OwnedFd) {
        let Current::File { stat, held } = self else { return };
        let is_gone = match held {
            Some(file) if !attributes::may_be_beside(file) => false,
            Some(file) if in_tree => attributes::is_only_in_tree(file),
            Some(file) => attributes::is_gone(file),
            // It had the name that was taken away.
            None => stat.st_nlink <= 1,
        };
        if is_gone {
            attributes::forget(dir, stat);
        }
    }

    /// What is there, and under which name a write belongs: beside a directory of the plain name,
    /// and wherever the object is kept already.
    pub fn find(
        root: &Root,
        location: &Location,
        dir: &OwnedFd,
    ) -> Result<(Self, Location), Errno> {
        let plain = Self::lock(root, location, dir)?;
        let aside = location.aside(root.scope);
        match (&plain, aside) {
            (Current::Absent, Some(aside)) => match Self::lock(root, &aside, dir)? {
                Current::Absent => Ok((plain, location.clone())),
                kept => Ok((kept, aside)),
            },
            (Current::Directory, Some(aside)) => Ok((Self::lock(root, &aside, dir)?, aside)),
            _ => Ok((plain, location.clone())),
        }
    }

    fn lock(root: &Root, location: &Location, dir: &OwnedFd) -> Result<Self, Errno> {
        for _ in 0..ROUNDS_MAX {
            let fd = match root.open_file(&location.path()) {
                Ok(fd) => fd,
                Err(Errno::NOENT) => return Ok(Current::Absent),
                // A file that may not be read can still be replaced, but not locked.
                Err(Errno::ACCESS) => {
                    let stat = rustix::fs::statat(dir, &location.name, AtFlags::SYMLINK_NOFOLLOW)?;
                    return Ok(Current::File { stat, held: None });
                }
                Err(errno) => return Err(errno),
            };
            let stat = rustix::fs::fstat(&fd)?;
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                return Ok(Current::Directory);
            }
            lock(&fd)?;
            match rustix::fs::statat(dir, &location.name, AtFlags::empty()) {
                Ok(now) if (now.st_ino, now.st_dev) == (stat.st_ino, stat.st_dev) => {
                    let stat = rustix::fs::fstat(&fd)?;
                    return Ok(Current::File { stat, held: Some(fd) });
                }
                Ok(_) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::AGAIN)
    }
}

pub(super) fn check(condition: &WriteCondition, current: Option<&Stat>, shown: &str) -> Result<()> {
    if condition.holds(current.map(etag).as_ref()) {
        return Ok(());
    }
    let why = match (condition, current) {
        (WriteCondition::IfMatch(_), Some(_)) => "the file has changed",
        (_, Some(_)) => "the file exists already",
        (_, None) => "the file is gone",
    };
    Err(Error::new(Kind::Conflict, format!("{why} (`{shown}`)")))
}

/// The error of a file that has no place beside the directory of its name.
fn in_the_way(root: &Root, shown: &str) -> Error {
    match root.scope {
        Scope::Files => explain(Errno::ISDIR, "replace", shown),
        Scope::Bucket => explain(Errno::NAMETOOLONG, "keep an object beside the directory", shown),
    }
}

/// Checks early for a place and for a condition, to spare work that is bound to fail; publishing
/// checks again.
pub(super) fn check_now(
    root: &Root,
    location: &Location,
    condition: &WriteCondition,
) -> Result<()> {
    let shown = root.shown(&location.path());
    let found = root.open_object(location).and_then(|(file, _)| rustix::fs::fstat(file));
    match found {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
            match location.aside(root.scope) {
                Some(_) => check(condition, None, &shown),
                None => Err(in_the_way(root, &shown)),
            }
        }
        Ok(stat) => check(condition, Some(&stat), &shown),
        Err(Errno::NOENT) => check(condition, None, &shown),
        // Publishing will tell it better.
        Err(_) => Ok(()),
    }
}

/// What became of a file that was to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    NotThere,
    Removed,
    /// It is there: versions are kept now, and it becomes one.
    NowKept,
}

/// Removes a file if it is there and the condition holds, in a bucket that keeps no versions.
pub(super) fn remove(root: &Root, location: &Location, condition: &WriteCondition) -> Result<Gone> {
    let shown = root.shown(&location.path());
    let failed = |errno| explain(errno, "remove", &shown);
    let dir = match root.open_dir(&location.dir) {
        Ok(dir) => dir,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Gone::NotThere),
        Err(errno) => return Err(failed(errno)),
    };
    let (current, at) = Current::find(root, location, &dir).map_err(failed)?;
    let Some(stat) = current.stat() else {
        return Ok(Gone::NotThere);
    };
    if versions::have_begun(root, location).map_err(failed)? {
        return Ok(Gone::NowKept);
    }
    check(condition, Some(stat), &shown)?;
    rustix::fs::unlinkat(&dir, &at.name, AtFlags::empty()).map_err(failed)?;
    current.forget_if_gone(false, &dir);
    sync_dir(&dir).map_err(failed)?;
    Ok(Gone::Removed)
}

/// The kernel's own time stamp moves in ticks of some milliseconds; version tags need better.
pub(super) fn set_time(file: &File) -> Result<(), Errno> {
    let now = since_epoch();
    let time = Timespec {
        tv_sec: i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(now.subsec_nanos()),
    };
    rustix::fs::futimens(file, &Timestamps { last_access: time, last_modification: time })
}

/// The time of a write, counted from 1970.
pub(super) fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn lost_races(shown: &str) -> Error {
    let why = format!("other writers of `{shown}` won {ROUNDS_MAX} times in a row");
    Error::new(Kind::Conflict, why)
        .with_service_code("OperationAborted")
        .with_hint("Write to names of your own, or one after the other")
}

//! Versions of the objects of a bucket that keeps them.
//!
//! The current version of an object is the file under its own name, as in any bucket. Those before
//! it, and delete markers, are files in a hidden tree that has a directory for each key. Writers of
//! one key take turns by the lock of that directory.
//!
//! A crash loses nothing: what becomes an earlier version gets its second name, in the tree, before
//! its first one goes to another version; what becomes current again gets the plain name before it
//! loses the other. A version that a crash left under both names counts once, as the current one.
//! Whether a bucket keeps versions is said by a symbolic link at its root, read by each write.

mod id;
mod listing;
mod named;
mod removal;

#[cfg(any(test, feature = "fuzzing"))]
pub(super) use id::fuzz;
pub(super) use listing::list;
pub(super) use named::{explain_missing, open, revise};
pub(super) use removal::remove;

use self::id::file_name;
use super::Scope;
use super::attributes::{self, Attributes, Look};
use super::described::ROUNDS_MAX;
use super::durable::{sync_dir, sync_file};
use super::errno::explain;
use super::names::{Location, UPLOAD, VERSION, VERSIONING, VERSIONS};
use super::root::{Root, lock};
use super::write::{self, Current, Temp};
use crate::streaming::{NULL_VERSION, Permit, Versioning};
use crate::{ETag, ObjectMeta, WriteCondition};
use penstock_base::Result;
use rustix::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::fs::File;

/// A version has its second name in the tree, at the root of its bucket, and there is none on
/// another file system, such as one that is mounted below.
pub(super) const MOUNTED: Errno = Errno::MULTIHOP;

const ENABLED: &str = "enabled";
const SUSPENDED: &str = "suspended";

/// Whether the bucket keeps versions.
pub(super) fn versioning(root: &Root) -> Result<Versioning, Errno> {
    if root.scope == Scope::Files {
        return Ok(Versioning::Never);
    }
    Ok(of_note(root.note(VERSIONING)?.as_deref()))
}

/// The same without waiting for a disk: what the kernel has in its caches, else `None`. Asked by
/// writers that may have to know whether a version would be locked.
pub(super) fn versioning_cached(root: &Root) -> Option<Versioning> {
    let note = root.note_cached(VERSIONING).ok().filter(|_| root.scope == Scope::Bucket)?;
    Some(of_note(note.as_deref()))
}

fn of_note(note: Option<&str>) -> Versioning {
    match note {
        Some(ENABLED) => Versioning::Enabled,
        Some(_) => Versioning::Suspended,
        None => Versioning::Never,
    }
}

/// Whether versions are kept of what has this place: never of what is no object.
fn versioning_of(root: &Root, location: &Location) -> Result<Versioning, Errno> {
    let parent = location.dir.rsplit('/').next().unwrap_or_default();
    if parent.starts_with(UPLOAD) { Ok(Versioning::Never) } else { versioning(root) }
}

/// Whether a writer that took no turn, since no versions were kept, has to begin again: asked with
/// the file locked that it would replace or remove. What is placed behind a turn from then on waits
/// for that lock, or for the name.
pub(super) fn have_begun(root: &Root, location: &Location) -> Result<bool, Errno> {
    Ok(versioning_of(root, location)? != Versioning::Never)
}

/// Begins or suspends to keep versions.
pub(super) fn set_versioning(root: &Root, is_enabled: bool) -> Result<(), Errno> {
    root.set_note(VERSIONING, if is_enabled { ENABLED } else { SUSPENDED })
}

/// The directory of a key in the tree of versions.
fn place(location: &Location) -> String {
    format!("{VERSIONS}/{}", location.path())
}

/// One file of the tree.
struct Kept {
    id: String,
    stat: Stat,
    is_marker: bool,
}

/// The condition of a removal; `*` is any version.
pub(super) fn removal_condition(if_match: Option<&ETag>) -> WriteCondition {
    match if_match {
        None => WriteCondition::None,
        Some(tag) if tag.0 == "*" => WriteCondition::IfPresent,
        Some(tag) => WriteCondition::IfMatch(tag.clone()),
    }
}

/// What a permit or a revision is shown of a version, whose file must be locked.
fn shown_meta(stat: &Stat, attributes: &Attributes) -> ObjectMeta {
    ObjectMeta { metadata: attributes.metadata.clone(), ..attributes::meta(stat) }
}

/// Whether both are of one file.
fn is_same(a: &Stat, b: &Stat) -> bool {
    (a.st_ino, a.st_dev) == (b.st_ino, b.st_dev)
}

/// The earlier versions of a key in its directory, latest first.
fn kept(dir: &OwnedFd) -> Result<Vec<Kept>, Errno> {
    let mut found = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_str().unwrap_or_default();
        let Some(id) = name.strip_prefix(VERSION) else { continue };
        let file = match open_in(dir, id) {
            // Removed this moment, or a symbolic link: no version is one.
            Err(Errno::NOENT | Errno::LOOP) => continue,
            answer => answer?,
        };
        let stat = rustix::fs::fstat(&file)?;
        let is_marker = match Attributes::look(file.as_fd(), &stat, || dir.try_clone_errno())? {
            Look::Found(attributes) => attributes.is_marker,
            Look::NoneBeside { .. } if attributes::is_gone(&file) => continue,
            // Who asks for it hears that its attributes are lost; those of markers are never so
            // many that they are beside it.
            Look::NoneBeside { .. } => false,
        };
        found.push(Kept { id: id.to_string(), stat, is_marker });
    }
    let time = |kept: &Kept| (kept.stat.st_mtime, kept.stat.st_mtime_nsec);
    found.sort_by(|a, b| (time(b), &b.id).cmp(&(time(a), &a.id)));
    Ok(found)
}

fn is_link(dir: &OwnedFd, at: &Location) -> Result<bool, Errno> {
    let stat = rustix::fs::statat(dir, &at.name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

/// Where the hidden file of an object in `dir` is: elsewhere if its name is a link's.
fn beside(root: &Root, dir: &OwnedFd, at: &Location) -> Result<OwnedFd, Errno> {
    match is_link(dir, at)? {
        true => root.open_dir(&root.behind_links(at)?.dir),
        false => dir.try_clone_errno(),
    }
}

fn open_in(dir: &OwnedFd, id: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(dir, file_name(id), flags, Mode::empty())
}

/// Opening a path knows the same error, of links that lead out of the bucket.
fn across(errno: Errno) -> Errno {
    if errno == Errno::XDEV { MOUNTED } else { errno }
}

trait TryCloneErrno {
    fn try_clone_errno(&self) -> Result<OwnedFd, Errno>;
}

impl TryCloneErrno for OwnedFd {
    fn try_clone_errno(&self) -> Result<OwnedFd, Errno> {
        self.try_clone().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

/// The versions of one key, for a writer that has its turn until this is dropped.
pub(super) struct Keeper {
    versioning: Versioning,
    path: String,
    dir: OwnedFd,
}

impl Keeper {
    /// Waits for the turn; `None` where no versions are kept.
    pub fn open(root: &Root, location: &Location) -> Result<Option<Self>, Errno> {
        let versioning = versioning_of(root, location)?;
        if versioning == Versioning::Never {
            return Ok(None);
        }
        let path = place(location);
        for _ in 0..ROUNDS_MAX {
            let dir = match root.make_dir(&path) {
                Err(Errno::NOENT) => continue,
                answer => answer?,
            };
            lock(&dir)?;
            // Somebody may have removed it, empty, before the lock was ours.
            let (held, now) = (rustix::fs::fstat(&dir)?, root.open_dir(&path));
            if let Ok(now) = now.and_then(rustix::fs::fstat)
                && (now.st_ino, now.st_dev) == (held.st_ino, held.st_dev)
            {
                return Ok(Some(Keeper { versioning, path, dir }));
            }
        }
        Err(Errno::AGAIN)
    }

    /// The id of the version that is about to be written; `None` for the one called `null`.
    pub fn new_id(&self) -> Option<String> {
        (self.versioning == Versioning::Enabled).then(id::fresh)
    }

    /// Gives the current version, whose plain name another is about to get, its name in the tree.
    /// `false` where it needs none.
    pub fn keep(
        &self,
        root: &Root,
        current: &Current,
        (dir, at): (&OwnedFd, &Location),
    ) -> Result<bool, Errno> {
        let Current::File { stat, held } = current else { return Ok(false) };
        let link = |id: &str| {
            let sidecar = Attributes::link_sidecar(stat, &beside(root, dir, at)?, &self.dir);
            sidecar.and_then(|()| self.link(held.as_ref(), (dir, at), id)).map_err(across)
        };
        let loaded = match held {
            Some(file) => Attributes::load(file.as_fd(), stat, || beside(root, dir, at)),
            None => Ok(Attributes::default()),
        };
        let attributes = match loaded {
            // Nobody knows its id. It is kept as it is, under another, unless an earlier writer
            // that ended in the middle has done so: two names of one file look like two versions.
            Err(attributes::LOST) => {
                if self.names_of(stat)?.is_empty() {
                    match link(&id::of_lost(stat)) {
                        Err(Errno::EXIST) => link(&id::fresh())?,
                        linked => linked?,
                    }
                }
                return sync_dir(&self.dir).map(|()| true);
            }
            loaded => loaded?,
        };
        let id = attributes.version_id();
        if self.versioning == Versioning::Suspended && id == NULL_VERSION {
            return Ok(false);
        }
        match link(id) {
            Ok(()) => {}
            // By an earlier writer that ended in the middle.
            Err(Errno::EXIST) if self.has(id, stat)? => {}
            // Another program put its file there: one `null` more, or a copy with all attributes.
            Err(Errno::EXIST) => {
                let id = id::fresh();
                if let Some(file) = held {
                    let named = Attributes { version: Some(id.clone()), ..attributes };
                    let place = beside(root, dir, at)?;
                    match named.replace(&File::from(file.try_clone_errno()?), &place) {
                        // A file of another user; the name in the tree tells its id too.
                        Ok(()) | Err(Errno::PERM | Errno::ACCESS) => {}
                        Err(errno) => return Err(errno),
                    }
                }
                link(&id)?;
            }
            Err(errno) => return Err(errno),
        }
        sync_dir(&self.dir).map(|()| true)
    }

    /// Gives the file a name in the tree that the plain name leads to; a link in the tree would
    /// lead to what has that name later.
    fn link(
        &self,
        held: Option<&OwnedFd>,
        (dir, at): (&OwnedFd, &Location),
        id: &str,
    ) -> Result<(), Errno> {
        let (to, id) = (&self.dir, file_name(id));
        match held.filter(|_| is_link(dir, at).unwrap_or(true)) {
            Some(file) => {
                let path = format!("/proc/self/fd/{}", file.as_raw_fd());
                rustix::fs::linkat(CWD, path, to, id, AtFlags::SYMLINK_FOLLOW)
            }
            None => rustix::fs::linkat(dir, &*at.name, to, id, AtFlags::empty()),
        }
    }

    /// Whether this file is what the tree has under this id.
    fn has(&self, id: &str, stat: &Stat) -> Result<bool, Errno> {
        let kept = rustix::fs::statat(&self.dir, file_name(id), AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(is_same(&kept, stat))
    }

    /// The ids under which the tree has this file.
    fn names_of(&self, stat: &Stat) -> Result<Vec<String>, Errno> {
        let mut found = Vec::new();
        for entry in Dir::read_from(&self.dir)? {
            let entry = entry?;
            let name = entry.file_name().to_str().unwrap_or_default();
            let Some(id) = name.strip_prefix(VERSION) else { continue };
            match self.has(id, stat) {
                Ok(true) => found.push(id.to_string()),
                Ok(false) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(found)
    }

    /// Another version has become current: where no versions are kept any more, it is the one
    /// called `null`, and takes the place of an earlier one.
    pub fn replaced(&self) -> Result<(), Errno> {
        match self.versioning {
            Versioning::Suspended => self.forget(NULL_VERSION),
            _ => Ok(()),
        }
    }

    fn forget(&self, id: &str) -> Result<(), Errno> {
        let file = open_in(&self.dir, id);
        match rustix::fs::unlinkat(&self.dir, file_name(id), AtFlags::empty()) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno),
        }
        // After the name: who still finds that finds both. A second name needs it still.
        if let Ok(file) = file
            && attributes::may_be_beside(&file)
            && let stat = rustix::fs::fstat(&file)?
            && (stat.st_nlink == 0 || self.names_of(&stat)?.is_empty())
        {
            attributes::forget(&self.dir, &stat);
        }
        sync_dir(&self.dir)
    }

    /// Locks an earlier version that may be removed; `None` where it is gone already.
    fn permitted(&self, id: &str, permit: &Permit, shown: &str) -> Result<Option<OwnedFd>> {
        let failed = |errno| explain(errno, "remove a version of", shown);
        let file = match open_in(&self.dir, id) {
            Err(Errno::NOENT) => return Ok(None),
            answer => answer.map_err(failed)?,
        };
        lock(&file).map_err(failed)?;
        let stat = rustix::fs::fstat(&file).map_err(failed)?;
        let attributes = Attributes::load(file.as_fd(), &stat, || self.dir.try_clone_errno());
        permit(&shown_meta(&stat, &attributes.map_err(failed)?))?;
        Ok(Some(file))
    }

    /// Writes a delete marker into the tree.
    fn mark(&self, shown: &str) -> Result<String> {
        let failed = |errno| explain(errno, "mark as deleted", shown);
        let version = self.new_id();
        let id = version.clone().unwrap_or_else(|| NULL_VERSION.to_string());
        let mut temp = Temp::create_in(self.dir.try_clone_errno().map_err(failed)?, shown)?;
        write::set_time(&temp.file).map_err(failed)?;
        let attributes = Attributes { version, is_marker: true, ..Attributes::default() };
        attributes.store(&temp.file, &self.dir).map_err(failed)?;
        sync_file(&temp.file).map_err(failed)?;
        temp.keep_as(&file_name(&id), shown)?;
        sync_dir(&self.dir).map_err(failed)?;
        Ok(id)
    }

    /// Gives an earlier version the plain name again. What comes back holds its lock, where `held`
    /// does not: who would change its metadata in the tree waits until it is no longer there.
    fn restore(
        &self,
        kept: &Kept,
        (dir, at): (&OwnedFd, &Location),
        replaces: bool,
        held: Option<&OwnedFd>,
    ) -> Result<OwnedFd, Errno> {
        let file = open_in(&self.dir, &kept.id)?;
        // The lock is one of an open file: the same file opened twice would wait for itself.
        if held.is_none() {
            lock(&file)?;
        }
        Attributes::link_sidecar(&kept.stat, &self.dir, dir).map_err(across)?;
        let from = file_name(&kept.id);
        let named = match replaces {
            true => rustix::fs::renameat(&self.dir, &from, dir, &*at.name),
            false => rustix::fs::linkat(&self.dir, &from, dir, &*at.name, AtFlags::empty()),
        };
        named.map_err(across)?;
        sync_dir(dir)?;
        if replaces {
            attributes::forget(&self.dir, &kept.stat);
        }
        Ok(file)
    }
}

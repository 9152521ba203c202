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

#[cfg(any(test, feature = "fuzzing"))]
pub(super) use id::fuzz;
pub(super) use listing::list;
pub(super) use named::{explain_missing, open, revise};

use self::id::file_name;
use super::Scope;
use super::attributes::{self, Attributes, Look};
use super::described::ROUNDS_MAX;
use super::durable::{sync_dir, sync_file};
use super::errno::explain;
use super::names::{Location, UPLOAD, VERSION, VERSIONING, VERSIONS};
use super::root::{Root, lock};
use super::write::{self, Current, Gone, Temp, check};
use crate::streaming::{NULL_VERSION, Permit, Removed, Versioning};
use crate::{ETag, ObjectMeta, WriteCondition};
use penstock_base::Result;
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::fs::File;

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

/// The earlier versions of a key in its directory, latest first.
fn kept(dir: &OwnedFd) -> Result<Vec<Kept>, Errno> {
    let mut found = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_str().unwrap_or_default();
        let Some(id) = name.strip_prefix(VERSION) else { continue };
        let file = match open_in(dir, id) {
            // Removed this moment.
            Err(Errno::NOENT) => continue,
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

fn open_in(dir: &OwnedFd, id: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(dir, file_name(id), flags, Mode::empty())
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
    pub fn keep(&self, current: &Current, dir: &OwnedFd, name: &str) -> Result<(), Errno> {
        let Current::File { stat, held } = current else { return Ok(()) };
        let link = |id: &str| {
            Attributes::link_sidecar(stat, dir, &self.dir)?;
            rustix::fs::linkat(dir, name, &self.dir, file_name(id), AtFlags::empty())
        };
        let loaded = match held {
            Some(file) => Attributes::load(file.as_fd(), stat, || dir.try_clone_errno()),
            None => Ok(Attributes::default()),
        };
        let attributes = match loaded {
            // Nobody knows its id. It is kept as it is, under another.
            Err(attributes::LOST) => {
                link(&id::fresh())?;
                return sync_dir(&self.dir);
            }
            loaded => loaded?,
        };
        let id = attributes.version_id();
        if self.versioning == Versioning::Suspended && id == NULL_VERSION {
            return Ok(());
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
                    match named.replace(&File::from(file.try_clone_errno()?), dir) {
                        // A file of another user; the name in the tree tells its id too.
                        Ok(()) | Err(Errno::PERM | Errno::ACCESS) => {}
                        Err(errno) => return Err(errno),
                    }
                }
                link(&id)?;
            }
            Err(errno) => return Err(errno),
        }
        sync_dir(&self.dir)
    }

    /// Whether this file is what the tree has under this id.
    fn has(&self, id: &str, stat: &Stat) -> Result<bool, Errno> {
        let kept = rustix::fs::statat(&self.dir, file_name(id), AtFlags::SYMLINK_NOFOLLOW)?;
        Ok((kept.st_ino, kept.st_dev) == (stat.st_ino, stat.st_dev))
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
        let stat = open_in(&self.dir, id).and_then(rustix::fs::fstat);
        match rustix::fs::unlinkat(&self.dir, file_name(id), AtFlags::empty()) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno),
        }
        // After the name: who still finds that finds both.
        if let Ok(stat) = stat {
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

    /// Gives an earlier version the plain name again. What comes back holds its lock: who would
    /// change its metadata in the tree waits until it is no longer there.
    fn restore(
        &self,
        kept: &Kept,
        dir: &OwnedFd,
        name: &str,
        replaces: bool,
    ) -> Result<OwnedFd, Errno> {
        let file = open_in(&self.dir, &kept.id)?;
        lock(&file)?;
        Attributes::link_sidecar(&kept.stat, &self.dir, dir)?;
        let from = file_name(&kept.id);
        if replaces {
            rustix::fs::renameat(&self.dir, &from, dir, name)?;
        } else {
            rustix::fs::linkat(&self.dir, &from, dir, name, AtFlags::empty())?;
        }
        sync_dir(dir)?;
        if replaces {
            attributes::forget(&self.dir, &kept.stat);
        }
        Ok(file)
    }
}

/// Removes an object or one of its versions.
pub(super) fn remove(
    root: &Root,
    location: &Location,
    version: Option<&str>,
    condition: &WriteCondition,
    permit: Option<&Permit>,
) -> Result<Removed> {
    let shown = root.shown(&location.path());
    let failed = |errno| explain(errno, "remove", &shown);
    let mut keeper = Keeper::open(root, location).map_err(failed)?;
    if keeper.is_none() {
        let is_meant = version.is_none_or(|id| id == NULL_VERSION);
        match if is_meant { write::remove(root, location, condition)? } else { Gone::NotThere } {
            Gone::NotThere => {}
            Gone::Removed => root.clean_dirs(&location.dir),
            Gone::NowKept => keeper = Keeper::open(root, location).map_err(failed)?,
        }
    }
    let Some(keeper) = keeper else {
        let version = version.map(str::to_string);
        return Ok(Removed { version, is_marker: false });
    };
    let done = match version {
        None => remove_current(root, location, &keeper, condition),
        Some(id) => remove_version(root, location, &keeper, id, (condition, permit)),
    };
    root.clean_dirs(&location.dir);
    root.clean_dirs(&keeper.path);
    done
}

/// Puts a delete marker before what is there.
fn remove_current(
    root: &Root,
    location: &Location,
    keeper: &Keeper,
    condition: &WriteCondition,
) -> Result<Removed> {
    let shown = root.shown(&location.path());
    let failed = |errno| explain(errno, "remove", &shown);
    let found = match root.open_dir(&location.dir) {
        Ok(dir) => {
            let (current, at) = Current::find(root, location, &dir).map_err(failed)?;
            current.stat().is_some().then_some((current, at, dir))
        }
        Err(Errno::NOENT | Errno::NOTDIR) => None,
        Err(errno) => return Err(failed(errno)),
    };
    match &found {
        Some((current, ..)) => check(condition, current.stat(), &shown)?,
        // A marker is a version that no tag is for; what never was has no condition, and there is
        // nothing to do then.
        None if *condition == WriteCondition::None => {}
        None if kept(&keeper.dir).map_err(failed)?.is_empty() => return Ok(Removed::default()),
        None if *condition == WriteCondition::IfPresent => {}
        None => check(condition, None, &shown)?,
    }
    if let Some((current, at, dir)) = &found {
        keeper.keep(current, dir, &at.name).map_err(failed)?;
    }
    let id = keeper.mark(&shown)?;
    if let Some((current, at, dir)) = &found {
        rustix::fs::unlinkat(dir, &at.name, AtFlags::empty()).map_err(failed)?;
        current.stat().inspect(|stat| attributes::forget(dir, stat));
        sync_dir(dir).map_err(failed)?;
    }
    Ok(Removed { version: Some(id), is_marker: true })
}

/// Removes one version for good. What is the latest behind it becomes current.
fn remove_version(
    root: &Root,
    location: &Location,
    keeper: &Keeper,
    id: &str,
    (condition, permit): (&WriteCondition, Option<&Permit>),
) -> Result<Removed> {
    let shown = root.shown(&location.path());
    let failed = |errno| explain(errno, "remove a version of", &shown);
    let others: Vec<Kept> = kept(&keeper.dir).map_err(failed)?;
    let latest = others.iter().find(|kept| kept.id != id).filter(|kept| !kept.is_marker);
    let dir = root.make_dir(&location.dir).map_err(failed)?;
    let (current, at) = Current::find(root, location, &dir).map_err(failed)?;
    let removed = |is_marker| Removed { version: Some(id.to_string()), is_marker };
    if let Current::File { stat, held: Some(file) } = &current {
        let attributes = Attributes::load(file.as_fd(), stat, || dir.try_clone_errno());
        let attributes = attributes.map_err(failed)?;
        if attributes.version_id() == id {
            check(condition, Some(stat), &shown)?;
            permit.map_or(Ok(()), |permit| permit(&shown_meta(stat, &attributes)))?;
            match latest {
                Some(latest) => {
                    keeper.restore(latest, &dir, &at.name, true).map_err(failed)?;
                }
                None => {
                    rustix::fs::unlinkat(&dir, &at.name, AtFlags::empty()).map_err(failed)?;
                    sync_dir(&dir).map_err(failed)?;
                }
            }
            attributes::forget(&dir, stat);
            keeper.forget(id).map_err(failed)?;
            return Ok(removed(false));
        }
    }
    let Some(gone) = others.iter().find(|kept| kept.id == id) else { return Ok(removed(false)) };
    check(condition, Some(&gone.stat), &shown)?;
    // Locked until it is gone: whoever changes its metadata waits, and finds it gone.
    let _held = match permit {
        Some(permit) => keeper.permitted(id, permit, &shown)?,
        None => None,
    };
    let was_latest = current.stat().is_none() && others.first().is_some_and(|kept| kept.id == id);
    match latest.filter(|_| was_latest) {
        Some(latest) => {
            let _held = keeper.restore(latest, &dir, &at.name, false).map_err(failed)?;
            keeper.forget(id).map_err(failed)?;
            keeper.forget(&latest.id).map_err(failed)?;
        }
        None => keeper.forget(id).map_err(failed)?,
    }
    Ok(removed(gone.is_marker))
}

//! Objects as readers find them: the file that has the name, and what is kept of it beside its
//! bytes, both of one version.
//!
//! A reader holds no lock. Between its look for the name and its look for the attributes a writer
//! may replace the object, and take away the hidden file that described it: a file whose name leads
//! elsewhere by then is looked for again.

use super::attributes::{self, Attributes, Look};
use super::errno::explain;
use super::names::Location;
use super::root::Root;
use super::{Scope, versions};
use crate::ObjectMeta;
use penstock_base::{Error, Kind, Result};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

/// Looks lost to writers in a row; each means that somebody's write won.
pub(super) const ROUNDS_MAX: usize = 64;

/// Opens an object for reading.
pub(super) fn open(root: &Root, location: &Location) -> Result<(OwnedFd, ObjectMeta)> {
    for _ in 0..ROUNDS_MAX {
        let found = root.open_object(location).map_err(|errno| {
            // To a reader, `a/b` below a file `a` is simply not there.
            let errno = if errno == Errno::NOTDIR { Errno::NOENT } else { errno };
            explain(errno, "open", &root.shown(&location.path()))
        });
        let (file, at) = found.map_err(|error| match root.scope {
            Scope::Bucket => versions::explain_missing(root, location, error),
            Scope::Files => error,
        })?;
        if let Some(opened) = with_attributes(root, &at, file)? {
            return Ok(opened);
        }
    }
    Err(replaced_again(&root.shown(&location.path())))
}

/// The same for a plain file that the kernel finds in its caches, without waiting for a disk: a
/// hand-over to a blocking thread costs several times as much as the calls. `None` for all else.
pub(super) fn open_cached(
    root: &Root,
    location: &Location,
) -> Option<Result<(OwnedFd, ObjectMeta)>> {
    let file = root.open_file_cached(&location.path()).ok()?;
    let stat = rustix::fs::fstat(&file).ok()?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    is_file.then(|| with_attributes(root, location, file).transpose()).flatten()
}

fn with_attributes(
    root: &Root,
    location: &Location,
    file: OwnedFd,
) -> Result<Option<(OwnedFd, ObjectMeta)>> {
    let described = describe(root, location, &file)?;
    Ok(described.map(|(meta, attributes)| {
        let Attributes { content_type, metadata, version, .. } = attributes;
        (file, ObjectMeta { content_type, metadata, version, ..meta })
    }))
}

/// Metadata and attributes of an open file; `None` when the name leads elsewhere by now, and what
/// described the file may be there or gone.
///
/// # Errors
/// `Corrupt` when the hidden file that holds the attributes is lost.
pub(super) fn describe(
    root: &Root,
    location: &Location,
    file: &OwnedFd,
) -> Result<Option<(ObjectMeta, Attributes)>> {
    let shown = || root.shown(&location.path());
    let stat = rustix::fs::fstat(file).map_err(|errno| explain(errno, "stat", &shown()))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory if root.scope == Scope::Bucket => {
            let why = format!("no such object (`{}` is a directory)", shown());
            return Err(Error::new(Kind::NotFound, why));
        }
        FileType::Directory => return Err(explain(Errno::ISDIR, "open", &shown())),
        _ => {
            let why = format!("`{}` is not a regular file", shown());
            return Err(Error::new(Kind::Invalid, why));
        }
    }
    let attributes = attributes_of(root, location, file, &stat)
        .map_err(|errno| explain(errno, "read the metadata of", &shown()))?;
    Ok(attributes.map(|attributes| (attributes::meta(&stat), attributes)))
}

fn attributes_of(
    root: &Root,
    location: &Location,
    file: &OwnedFd,
    stat: &Stat,
) -> Result<Option<Attributes>, Errno> {
    let look = |at: &Location| Attributes::look(file.as_fd(), stat, || root.open_dir(&at.dir));
    if let Look::Found(attributes) = look(location)? {
        return Ok(Some(attributes));
    }
    // A name is taken away before what is beside it: one that is still there had nothing.
    if !root.leads_to(location, stat)? {
        return Ok(None);
    }
    // But it may be a link's, or have been given other attributes between the look at the file and
    // that beside it.
    match look(&root.behind_links(location)?)? {
        Look::Found(attributes) => Ok(Some(attributes)),
        _ if !root.leads_to(location, stat)? => Ok(None),
        Look::NoneBeside { is_marked: false } => Ok(Some(Attributes::default())),
        Look::NoneBeside { is_marked: true } => Err(attributes::LOST),
    }
}

/// The error of a look that lost to other writers again and again.
pub(super) fn replaced_again(shown: &str) -> Error {
    let why = format!("`{shown}` was replaced {ROUNDS_MAX} times while it was looked at");
    Error::new(Kind::Conflict, why)
        .with_service_code("OperationAborted")
        .with_hint("Ask again when its writers have paused")
}

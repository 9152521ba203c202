//! One version of an object, named by its id or the current one: opens it, and changes what is kept
//! beside its bytes.

use super::id::{file_name, is_id};
use super::{kept, place, shown_meta, versioning};
use crate::ObjectMeta;
use crate::local::attributes::Attributes;
use crate::local::described::{ROUNDS_MAX, describe, replaced_again};
use crate::local::errno::explain;
use crate::local::names::Location;
use crate::local::root::{Root, lock};
use crate::streaming::{Revision, Versioning};
use crate::versions::{MARKER, MARKER_VERSION};
use penstock_base::{Error, Kind, Result};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::fs::File;

/// Finds one version, and tells where its file is.
fn find(root: &Root, location: &Location, id: &str) -> Result<(OwnedFd, Location)> {
    let shown = root.shown(&location.path());
    let failed = |errno| explain(errno, "open a version of", &shown);
    let earlier = Location { dir: place(location), name: file_name(id) };
    let mut unreadable = None;
    // It may become an earlier version, or current again, between two looks.
    for _ in 0..if is_id(id) { 2 } else { 0 } {
        if let Ok((file, at)) = root.open_object(location) {
            match describe(root, &at, &file) {
                Ok(Some((_, attributes))) if attributes.version_id() == id => {
                    return Ok((file, at));
                }
                Err(error) if error.kind() == Kind::Corrupt => unreadable = Some(error),
                _ => {}
            }
        }
        match root.open_file(&earlier.path()) {
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            answer => return Ok((answer.map_err(failed)?, earlier)),
        }
    }
    // The current version may be the one that is meant.
    if let Some(error) = unreadable {
        return Err(error);
    }
    let why = "The specified version does not exist.";
    Err(Error::new(Kind::NotFound, why).with_service_code("NoSuchVersion"))
}

/// Opens one version.
pub(in crate::local) fn open(
    root: &Root,
    location: &Location,
    id: &str,
) -> Result<(OwnedFd, ObjectMeta)> {
    for _ in 0..ROUNDS_MAX {
        let (file, at) = find(root, location, id)?;
        let Some((meta, attributes)) = describe(root, &at, &file)? else { continue };
        check_object(&attributes, id)?;
        let version = Some(id.to_string());
        let (content_type, metadata) = (attributes.content_type, attributes.metadata);
        return Ok((file, ObjectMeta { version, content_type, metadata, ..meta }));
    }
    Err(replaced_again(&root.shown(&location.path())))
}

/// Refuses a version that is a delete marker.
fn check_object(attributes: &Attributes, id: &str) -> Result<()> {
    if !attributes.is_marker {
        return Ok(());
    }
    let why = "This version is a delete marker.";
    Err(Error::new(Kind::NotFound, why).with_service_code(format!("{MARKER_VERSION}{id}")))
}

/// Says more of an object that is not there, where a delete marker stands in its place.
pub(in crate::local) fn explain_missing(root: &Root, location: &Location, error: Error) -> Error {
    if error.kind() != Kind::NotFound
        || !matches!(versioning(root), Ok(it) if it != Versioning::Never)
    {
        return error;
    }
    let found = root.open_dir(&place(location)).and_then(|dir| kept(&dir));
    match found.ok().and_then(|kept| kept.into_iter().next()).filter(|latest| latest.is_marker) {
        Some(marker) => error.with_service_code(format!("{MARKER}{}", marker.id)),
        None => error,
    }
}

/// Replaces the pair of this name in the metadata of an object or one of its versions, at once.
/// Bytes, tag and time stay.
pub(in crate::local) fn revise(
    root: &Root,
    location: &Location,
    version: Option<&str>,
    (name, revision): (&str, &Revision),
) -> Result<()> {
    let shown = root.shown(&location.path());
    let failed = |errno| explain(errno, "change the metadata of", &shown);
    let gone = |errno| match errno {
        Errno::NOTDIR | Errno::NOENT => {
            explain_missing(root, location, Error::new(Kind::NotFound, "no such object"))
        }
        errno => failed(errno),
    };
    for _ in 0..ROUNDS_MAX {
        let (file, at) = match version {
            Some(id) => find(root, location, id)?,
            None => root.open_object(location).map_err(gone)?,
        };
        // Writers of the name wait for this lock too.
        lock(&file).map_err(failed)?;
        let stat = rustix::fs::fstat(&file).map_err(failed)?;
        // Whoever had it may have given the name to another file, and this one with what is beside
        // it to the tree; what would be written here now, nobody would find.
        if !root.leads_to(&at, &stat).map_err(failed)? {
            continue;
        }
        let at = root.behind_links(&at).map_err(failed)?;
        let Some((_, mut attributes)) = describe(root, &at, &file)? else { continue };
        version.map_or(Ok(()), |id| check_object(&attributes, id))?;
        let value = revision(&shown_meta(&stat, &attributes))?;
        attributes.metadata.retain(|pair| pair.0 != name);
        attributes.metadata.extend(value.map(|value| (name.to_string(), value)));
        let dir = root.open_dir(&at.dir).map_err(failed)?;
        let file = File::from(file);
        return attributes.replace(&file, &dir).map_err(failed);
    }
    Err(replaced_again(&shown))
}

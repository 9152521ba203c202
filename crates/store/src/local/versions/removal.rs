//! Removes objects of a bucket that keeps versions, and versions for good.
//!
//! A removed object gets a delete marker before it; where the latest version is removed for good,
//! what is the latest behind it becomes current.

use super::{Keeper, Kept, beside, is_same, kept, shown_meta};
use crate::WriteCondition;
use crate::local::attributes::{Attributes, LOST};
use crate::local::durable::sync_dir;
use crate::local::errno::explain;
use crate::local::names::Location;
use crate::local::root::Root;
use crate::local::write::{self, Current, Gone, check};
use crate::streaming::{NULL_VERSION, Permit, Removed};
use penstock_base::Result;
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::AtFlags;
use rustix::io::Errno;

/// Removes an object or one of its versions.
pub(in crate::local) fn remove(
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
    let in_tree = match &found {
        Some((current, at, dir)) => keeper.keep(root, current, (dir, at)).map_err(failed)?,
        None => false,
    };
    let id = keeper.mark(&shown)?;
    if let Some((current, at, dir)) = &found {
        rustix::fs::unlinkat(dir, &at.name, AtFlags::empty()).map_err(failed)?;
        current.forget_if_gone(in_tree, dir);
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
    let dir = root.make_dir(&location.dir).map_err(failed)?;
    let (current, at) = Current::find(root, location, &dir).map_err(failed)?;
    let kept = kept(&keeper.dir).map_err(failed)?;
    // The current version may have names in the tree: it is no other, and locked already.
    let (own, others): (Vec<Kept>, Vec<Kept>) = kept
        .into_iter()
        .partition(|kept| current.stat().is_some_and(|stat| is_same(stat, &kept.stat)));
    let removed = |is_marker| Removed { version: Some(id.to_string()), is_marker };
    if let Current::File { stat, held: Some(file) } = &current {
        let names = Names { own: &own, others: &others };
        let loaded = Attributes::load(file.as_fd(), stat, || beside(root, &dir, &at));
        let attributes = match loaded {
            // Which version this is nobody knows; but not one that the tree has.
            Err(LOST) if others.iter().any(|kept| kept.id == id) => None,
            loaded => Some(loaded.map_err(failed)?),
        };
        if let Some(attributes) = attributes.filter(|it| names.are_of_current(it, id)) {
            check(condition, Some(stat), &shown)?;
            permit.map_or(Ok(()), |permit| permit(&shown_meta(stat, &attributes)))?;
            match attributes.version_id() == id {
                true => remove_latest(keeper, id, names, (&current, &dir, &at)),
                // A second name, which a writer that was killed left, and the first is told.
                false => keeper.forget(id),
            }
            .map_err(failed)?;
            return Ok(removed(false));
        }
    }
    let Some(gone) = others.iter().find(|kept| kept.id == id) else { return Ok(removed(false)) };
    check(condition, Some(&gone.stat), &shown)?;
    // Locked until it is gone: whoever changes its metadata waits, and finds it gone.
    let held = match permit {
        Some(permit) => keeper.permitted(id, permit, &shown)?,
        None => None,
    };
    let was_latest = current.stat().is_none() && others.first().is_some_and(|kept| kept.id == id);
    match behind(&others, id).filter(|_| was_latest) {
        Some(latest) => {
            // A second name of the same file is locked with the first.
            let held = held.as_ref().filter(|_| is_same(&gone.stat, &latest.stat));
            let _held = keeper.restore(latest, (&dir, &at), false, held).map_err(failed)?;
            keeper.forget(id).map_err(failed)?;
            keeper.forget(&latest.id).map_err(failed)?;
        }
        None => keeper.forget(id).map_err(failed)?,
    }
    Ok(removed(gone.is_marker))
}

/// The names that the tree has for a key.
#[derive(Clone, Copy)]
struct Names<'a> {
    /// Of the current version, latest first as the others.
    own: &'a [Kept],
    others: &'a [Kept],
}

impl Names<'_> {
    /// Whether the current version, of these attributes, has this id, or a name of it.
    fn are_of_current(&self, attributes: &Attributes, id: &str) -> bool {
        attributes.version_id() == id || self.own.iter().any(|kept| kept.id == id)
    }
}

/// What becomes current when the version of this id is gone.
fn behind<'a>(others: &'a [Kept], id: &str) -> Option<&'a Kept> {
    others.iter().find(|kept| kept.id != id).filter(|kept| !kept.is_marker)
}

/// Removes the current version, with each name that it has in the tree.
fn remove_latest(
    keeper: &Keeper,
    id: &str,
    names: Names<'_>,
    (current, dir, at): (&Current, &OwnedFd, &Location),
) -> Result<(), Errno> {
    match behind(names.others, id) {
        Some(latest) => drop(keeper.restore(latest, (dir, at), true, None)?),
        None => {
            rustix::fs::unlinkat(dir, &at.name, AtFlags::empty())?;
            sync_dir(dir)?;
        }
    }
    keeper.forget(id)?;
    for kept in names.own.iter().filter(|kept| kept.id != id) {
        keeper.forget(&kept.id)?;
    }
    current.forget_if_gone(false, dir);
    Ok(())
}

//! Removes objects of a bucket that keeps versions, and versions for good.
//!
//! A removed object gets a delete marker before it; where the latest version is removed for good,
//! what is the latest behind it becomes current.

use super::{Keeper, Kept, beside, kept, shown_meta};
use crate::WriteCondition;
use crate::local::attributes::Attributes;
use crate::local::durable::sync_dir;
use crate::local::errno::explain;
use crate::local::names::Location;
use crate::local::root::Root;
use crate::local::write::{self, Current, Gone, check};
use crate::streaming::{NULL_VERSION, Permit, Removed};
use penstock_base::Result;
use rustix::fd::AsFd as _;
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
    let others: Vec<Kept> = kept(&keeper.dir).map_err(failed)?;
    let latest = others.iter().find(|kept| kept.id != id).filter(|kept| !kept.is_marker);
    let dir = root.make_dir(&location.dir).map_err(failed)?;
    let (current, at) = Current::find(root, location, &dir).map_err(failed)?;
    let removed = |is_marker| Removed { version: Some(id.to_string()), is_marker };
    if let Current::File { stat, held: Some(file) } = &current {
        let attributes = Attributes::load(file.as_fd(), stat, || beside(root, &dir, &at));
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
            keeper.forget(id).map_err(failed)?;
            current.forget_if_gone(false, &dir);
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

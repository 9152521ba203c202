//! Removals that were killed in the middle: a bucket is brought back whole, or is gone.
//!
//! What is hidden in a bucket lies in a hidden directory beside it while a removal decides. That
//! directory says by a symbolic link, which leads nowhere, whose it is. If that bucket still has
//! its name, it was not removed, and gets everything back; else it was, and the rest goes too.

use super::{Aside, entries, move_back, open_in};
use crate::local::Scope;
use crate::local::errno::explain;
use crate::local::names::{REMOVED, TEMP};
use crate::local::root::Root;
use penstock_base::Result;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::path::Path;

/// The link's name, after the prefix of what is in nobody's way.
const OWNER: &str = "removal";

fn owner_link() -> String {
    format!("{TEMP}{OWNER}")
}

/// Whether a name is that of the link.
pub(super) fn is_owner_link(name: &CStr) -> bool {
    name.to_bytes().strip_prefix(TEMP.as_bytes()) == Some(OWNER.as_bytes())
}

/// Removes the link, once nothing else is there.
pub(super) fn drop_owner(aside: &OwnedFd) -> Result<(), Errno> {
    match rustix::fs::unlinkat(aside, owner_link(), AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

/// The bucket that a hidden directory belongs to.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    /// Its device is that of the directory around it, whose number need not outlive a boot.
    inode: u64,
    name: String,
}

impl Owner {
    fn of(stat: &Stat, name: &str) -> Self {
        // Wide enough on every system.
        #[allow(clippy::useless_conversion)]
        let inode = u64::from(stat.st_ino);
        Owner { inode, name: name.to_string() }
    }

    fn text(&self) -> String {
        format!("{}:{}", self.inode, self.name)
    }

    fn parse(text: &str) -> Option<Self> {
        let (inode, name) = text.split_once(':')?;
        let inode = inode.parse().ok()?;
        let is_name = !name.is_empty() && !matches!(name, "." | "..") && !name.contains('/');
        is_name.then(|| Owner { inode, name: name.to_string() })
    }

    /// Whether the bucket still has its name.
    fn is_there(&self, parent: &OwnedFd) -> Result<bool, Errno> {
        match rustix::fs::statat(parent, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Owner::of(&stat, &self.name) == *self),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }
}

/// Body for a fuzzer: a mark names a bucket beside it or is none, and is told as it was read.
#[cfg(any(test, feature = "fuzzing"))]
pub(in crate::local) fn fuzz(text: &str) {
    let Some(owner) = Owner::parse(text) else { return };
    let path = Path::new(&owner.name);
    assert_eq!(path.components().count(), 1, "a bucket elsewhere: {owner:?}");
    assert_eq!(path.file_name(), Some(path.as_os_str()), "no bucket's name: {owner:?}");
    assert_eq!(Owner::parse(&owner.text()).as_ref(), Some(&owner), "a mark that changed");
}

/// Says whose a new hidden directory is, before anything moves there.
pub(super) fn tell_owner(aside: &OwnedFd, bucket: impl AsFd, name: &str) -> Result<(), Errno> {
    let owner = Owner::of(&rustix::fs::fstat(bucket)?, name);
    rustix::fs::symlinkat(owner.text(), aside, owner_link())
}

fn owner_of(aside: &OwnedFd) -> Option<Owner> {
    let link = rustix::fs::readlinkat(aside, owner_link(), Vec::new()).ok()?;
    Owner::parse(link.to_str().ok()?)
}

/// Ends every removal in this directory whose process is gone. `false` while others are under way,
/// or cannot be ended.
///
/// # Errors
/// As the operating system says, where that of the bucket `asked` for cannot be ended.
pub(in crate::local) fn mend(around: &Path, asked: Option<&str>) -> Result<bool> {
    let failed = |errno| explain(errno, "end a removal in", &around.display().to_string());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = rustix::fs::open(around, flags, Mode::empty()).map_err(failed)?;
    mend_in(&parent, around, asked).map_err(failed)
}

pub(super) fn mend_in(parent: &OwnedFd, around: &Path, asked: Option<&str>) -> Result<bool, Errno> {
    let mut is_settled = true;
    for (name, _) in entries(parent)? {
        let Some(name) = name.to_str().ok().filter(|name| name.starts_with(REMOVED)) else {
            continue;
        };
        let Ok(dir) = open_in(parent, name) else { continue };
        if rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive).is_err() {
            is_settled = false;
            continue;
        }
        // Another may have mended it before the lock was ours.
        if open_in(parent, name).is_err() {
            continue;
        }
        let owner = owner_of(&dir);
        match end(Aside { name: name.to_string(), dir }, parent, around) {
            Err(errno) if owner.is_some_and(|owner| Some(&*owner.name) == asked) => {
                return Err(errno);
            }
            // Other buckets are none the worse. It is tried again with the next access.
            Err(_) => is_settled = false,
            Ok(()) => {}
        }
    }
    Ok(is_settled)
}

fn end(aside: Aside, parent: &OwnedFd, around: &Path) -> Result<(), Errno> {
    let owner = owner_of(&aside.dir);
    if let Some(owner) = &owner
        && owner.is_there(parent)?
    {
        let path = around.join(&owner.name);
        // Removed by another this moment: nothing could go back.
        let moved = Root::open(&path, Scope::Bucket).map_err(|_| Errno::NOENT).and_then(|root| {
            move_back(&root, &aside.dir, ".")?;
            drop_owner(&aside.dir)?;
            aside.forget(parent)
        });
        if owner.is_there(parent)? {
            return moved;
        }
    }
    match (aside.bury(parent), owner) {
        // A writer placed an object there when the bucket had gone: it is the bucket.
        (Err(Errno::NOTEMPTY | Errno::EXIST), Some(owner)) => {
            let flags = RenameFlags::NOREPLACE;
            match super::rename_at(parent, &*aside.name, parent, &*owner.name, flags) {
                // One that was made anew has the name. The object stays where nothing removes it.
                Err(Errno::EXIST | Errno::NOTEMPTY) => Ok(()),
                done => done,
            }
        }
        (Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT), _) => Ok(()),
        (done, _) => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn owners_come_back(inode: u64, name in "[a-z.:-]{3,20}") {
            let owner = Owner { inode, name };
            prop_assert_eq!(Owner::parse(&owner.text()), Some(owner));
        }

        #[test]
        fn any_text_is_read(text: String) {
            let _ = Owner::parse(&text);
        }
    }

    #[test]
    fn no_owner_leads_elsewhere() {
        for text in ["2:", "2:.", "2:..", "2:a/b", "x:a", "2"] {
            assert_eq!(Owner::parse(text), None, "{text}");
        }
    }
}

//! Removes what crashed writers left in a directory: hidden, harmless, but using space.
//!
//! A temporary file whose lock can be taken has no writer any more. An upload that nobody touched
//! for a week is given up, as Azure does with its blocks. A hidden attribute file goes when no file
//! in the directory has its inode.

use super::attributes::sidecar_inode;
use super::names::{TEMP, UPLOAD};
use super::root::Root;
use super::upload;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags};
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const UPLOAD_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);
/// An attribute file is written a moment before its object gets its name.
const SIDECAR_LIFE: Duration = Duration::from_secs(3600);
const REMEMBERED_MAX: usize = 4096;

/// Which directories this store has swept: each once, when it first writes there.
#[derive(Debug, Default)]
pub(super) struct Sweeper(Mutex<HashSet<String>>);

impl Sweeper {
    /// Sweeps a directory unless it was swept before. Best effort: what cannot be removed stays
    /// hidden, and a write must not fail because of somebody else's leftover.
    pub fn sweep_once(&self, root: &Root, path: &str) {
        {
            let mut swept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if swept.len() >= REMEMBERED_MAX {
                swept.clear();
            }
            if !swept.insert(path.to_string()) {
                return;
            }
        }
        if let Ok(dir) = root.open_dir(path) {
            sweep(root, path, &dir);
        }
    }
}

fn sweep(root: &Root, path: &str, dir: &OwnedFd) {
    let mut inodes = HashSet::new();
    let mut leftovers = Vec::new();
    for entry in Dir::read_from(dir).into_iter().flatten().flatten() {
        match entry.file_name().to_str() {
            Ok(name) if upload::is_leftover(name) => leftovers.push(name.to_string()),
            _ => {
                inodes.insert(entry.ino());
            }
        }
    }
    for name in leftovers {
        if name.starts_with(TEMP) {
            remove_if_unlocked(dir, &name);
        } else if name.starts_with(UPLOAD) && is_older(dir, &name, UPLOAD_LIFE) {
            let full = if path == "." { name } else { format!("{path}/{name}") };
            upload::discard(root, &full);
        } else if sidecar_inode(&name).is_some_and(|inode| !inodes.contains(&inode))
            && is_older(dir, &name, SIDECAR_LIFE)
        {
            let _ = rustix::fs::unlinkat(dir, &name, AtFlags::empty());
        }
    }
}

fn remove_if_unlocked(dir: &OwnedFd, name: &str) {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(dir, name, flags, Mode::empty()) else { return };
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
        let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
    }
}

fn is_older(dir: &OwnedFd, name: &str, life: Duration) -> bool {
    let Ok(stat) = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else { return false };
    let changed = UNIX_EPOCH + Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
    SystemTime::now().duration_since(changed).is_ok_and(|age| age > life)
}

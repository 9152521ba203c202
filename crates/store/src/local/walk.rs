//! Names below a directory in byte order of their keys, reading no more directories than needed.

mod entries;

use super::attributes::meta;
use super::errno::explain;
use super::root::Root;
use super::write::since_epoch;
use super::{Scope, names};
use crate::listing::{Cursor, Names};
use crate::{ListRequest, ObjectMeta};
use entries::{Entries, Entry};
use penstock_base::{Kind, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, FileType, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::sync::Arc;
use std::time::Duration;

/// Time stamps move in ticks, of whole seconds on the coarsest file systems: a directory that
/// changed as recently as this may change again without a new stamp.
const STAMP_TICK_MAX: Duration = Duration::from_secs(2);
/// Most names of a directory that is read anew for a page because it has changed.
const ENTRIES_MAX: usize = 20_000;

/// A walk over the keys that start with a prefix. Directories are sorted by name plus `/`, so that
/// the order is that of whole keys (`a-b` before `a/b`).
#[derive(Debug)]
pub(super) struct Walk {
    root: Arc<Root>,
    rest: Rest,
    /// The directories of the frames.
    dirs: Vec<Arc<OwnedFd>>,
}

/// What is still to come of a walk: names in memory, and no open directory.
#[derive(Debug, Default)]
pub(super) struct Rest {
    prefix: String,
    /// Whether directories below the prefix are shown as one folded name each.
    folds_dirs: bool,
    frames: Vec<Frame>,
}

#[derive(Debug)]
struct Frame {
    /// The directory's device and inode.
    identity: (u64, u64),
    /// Path relative to the root.
    path: String,
    /// Key prefix of what is in it: empty, or ending with `/`.
    base: String,
    entries: Entries,
    next: usize,
    /// When the directory had last changed before it was read; `None` if that was just then.
    changed: Option<Duration>,
}

/// A file found by a walk; its metadata is read only when somebody asks.
#[derive(Debug)]
pub(super) struct Found {
    dir: Arc<OwnedFd>,
    name: String,
}

impl Found {
    /// Size, tag and time; `None` if the file is gone by now.
    pub fn meta(&self) -> Result<Option<ObjectMeta>, Errno> {
        match rustix::fs::statat(&*self.dir, self.name.as_str(), AtFlags::empty()) {
            Ok(stat) => Ok(Some(meta(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

impl Walk {
    /// Starts at the deepest directory that holds every key with this prefix.
    pub fn start(root: Arc<Root>, request: &ListRequest, cursor: &Cursor) -> Result<Self> {
        let prefix = request.prefix.as_str();
        let dir = prefix.rsplit_once('/').map(|(dir, _)| dir);
        let base = dir.map_or(String::new(), |dir| format!("{dir}/"));
        let folds_dirs = request.delimiter.as_deref() == Some("/");
        let prefix_owned = prefix.to_string();
        let rest = Rest { prefix: prefix_owned, folds_dirs, frames: Vec::new() };
        let mut walk = Walk { root, rest, dirs: Vec::new() };
        // A prefix that no file can have is shared by no file.
        let Ok(path) = names::directory(walk.root.scope, dir) else { return Ok(walk) };
        walk.enter(path, base, cursor)?;
        Ok(walk)
    }

    /// Lets the next call of `next` find the last name again, for a page that had no room for it.
    pub fn step_back(&mut self) {
        if let Some(frame) = self.rest.frames.last_mut() {
            frame.next = frame.next.saturating_sub(1);
        }
    }

    /// Closes the directories, until the walk goes on.
    pub fn pause(mut self) -> Rest {
        for frame in &mut self.rest.frames {
            frame.entries.shrink();
        }
        self.rest
    }

    /// Goes on; `None` where that would not show what is there now.
    pub fn resume(root: Arc<Root>, rest: Rest) -> Option<Self> {
        let dirs = rest.frames.iter().map(|frame| frame.reopen(&root).map(Arc::new));
        let dirs = dirs.collect::<Option<Vec<_>>>()?;
        Some(Walk { root, rest, dirs })
    }

    fn enter(&mut self, path: String, base: String, cursor: &Cursor) -> Result<()> {
        let shown = self.root.shown(&path);
        let dir = match self.root.open_dir(&path) {
            Ok(dir) => dir,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            Err(errno) => return Err(explain(errno, "list", &shown)),
        };
        let failed = |errno| explain(errno, "list", &shown);
        let stat = rustix::fs::fstat(&dir).map_err(failed)?;
        let changed = changed(&stat).filter(|changed| is_settled(*changed, since_epoch()));
        let mut entries = Entries::default();
        for entry in Dir::read_from(&dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let Some(is_dir) = self.kind(&dir, &path, name, entry.file_type()).map_err(failed)?
            else {
                continue;
            };
            let Some(mut part) = names::decode(name.to_bytes(), is_dir) else { continue };
            if is_dir {
                part.push('/');
            }
            if self.may_hold(&format!("{base}{part}"), is_dir, cursor) {
                // Decoded, so it is text.
                let name = name.to_str().unwrap_or_default();
                entries.push(Entry { part: &part, name, is_dir });
            }
        }
        entries.sort();
        let identity = identity(&stat);
        self.rest.frames.push(Frame { identity, path, base, entries, next: 0, changed });
        self.dirs.push(Arc::new(dir));
        Ok(())
    }

    fn may_hold(&self, key: &str, is_dir: bool, cursor: &Cursor) -> bool {
        if is_dir {
            let related = key.starts_with(&self.rest.prefix) || self.rest.prefix.starts_with(key);
            related && cursor.admits_below(key)
        } else {
            key.starts_with(&self.rest.prefix) && cursor.admits(key)
        }
    }

    /// Whether all of a directory becomes one folded name, with nothing of it behind the cursor.
    fn folds(&self, key: &str, cursor: &Cursor) -> bool {
        let begun = match cursor {
            Cursor::Start => false,
            Cursor::After(name) | Cursor::Past(name) => name.starts_with(key),
        };
        self.rest.folds_dirs
            && !begun
            && key.len() > self.rest.prefix.len()
            && self.may_hold(key, true, cursor)
    }

    /// Whether any object lies below a directory; stops at the first.
    fn holds_file(&self, path: &str) -> Result<bool> {
        let failed = |errno| explain(errno, "list", &self.root.shown(path));
        let dir = match self.root.open_dir(path) {
            Ok(dir) => dir,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(false),
            Err(errno) => return Err(failed(errno)),
        };
        let mut below = Vec::new();
        for entry in Dir::read_from(&dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            match self.kind(&dir, path, name, entry.file_type()).map_err(failed)? {
                Some(is_dir) if names::decode(name.to_bytes(), is_dir).is_none() => {}
                Some(true) => below.push(frame_path(path, &name.to_string_lossy())),
                Some(false) => return Ok(true),
                None => {}
            }
        }
        for path in below {
            if self.holds_file(&path)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a name is a directory; `None` for what is neither directory nor file. Links to files
    /// count as files unless they lead out of a bucket; links to directories are not walked, since
    /// they can go round in circles.
    fn kind(
        &self,
        dir: &OwnedFd,
        path: &str,
        name: &CStr,
        told: FileType,
    ) -> Result<Option<bool>, Errno> {
        let found = match told {
            FileType::Unknown => match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(Errno::NOENT) => return Ok(None),
                Err(errno) => return Err(errno),
            },
            told => told,
        };
        Ok(match found {
            FileType::Directory => Some(true),
            FileType::RegularFile => Some(false),
            FileType::Symlink if self.link_to_file(dir, path, name) => Some(false),
            _ => None,
        })
    }

    fn link_to_file(&self, dir: &OwnedFd, path: &str, name: &CStr) -> bool {
        let stat = match (self.root.scope, name.to_str()) {
            (Scope::Files, _) => rustix::fs::statat(dir, name, AtFlags::empty()),
            (Scope::Bucket, Ok(name)) => self
                .root
                .open_at(&format!("{path}/{name}"), OFlags::PATH)
                .and_then(rustix::fs::fstat),
            (Scope::Bucket, Err(_)) => return false,
        };
        stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
    }
}

impl Names for Walk {
    type Entry = Found;

    fn next(&mut self, cursor: &Cursor) -> Result<Option<(String, Found)>> {
        while let (Some(frame), Some(dir)) = (self.rest.frames.last_mut(), self.dirs.last()) {
            let Some(entry) = frame.entries.get(frame.next) else {
                self.rest.frames.pop();
                self.dirs.pop();
                continue;
            };
            frame.next += 1;
            let key = format!("{}{}", frame.base, entry.part);
            let (is_dir, name, dir) = (entry.is_dir, entry.name.to_string(), dir.clone());
            if is_dir {
                let path = frame_path(&frame.path, &name);
                if self.folds(&key, cursor) {
                    if self.holds_file(&path)? {
                        // The name is not shown: it only has to fall below the folded one.
                        return Ok(Some((format!("{key}-"), Found { dir, name })));
                    }
                } else if self.may_hold(&key, true, cursor) {
                    match self.enter(path, key, cursor) {
                        Err(error) if error.kind() == Kind::NotFound => {}
                        answer => answer?,
                    }
                }
            } else if self.may_hold(&key, false, cursor) {
                return Ok(Some((key, Found { dir, name })));
            }
        }
        Ok(None)
    }
}

impl Rest {
    /// The memory that it takes.
    pub fn bytes(&self) -> usize {
        let bytes = |frame: &Frame| {
            let text = frame.path.capacity() + frame.base.capacity();
            size_of::<Frame>() + text + frame.entries.bytes()
        };
        size_of::<Self>() + self.prefix.capacity() + self.frames.iter().map(bytes).sum::<usize>()
    }
}

impl Frame {
    /// The directory, if it is the same one and has not changed since it was read: going on then
    /// shows what is there now. Large ones may have changed: read anew for every page, a listing of
    /// a million names that are being written would end hours later.
    fn reopen(&self, root: &Root) -> Option<OwnedFd> {
        let dir = root.open_dir(&self.path).ok()?;
        let stat = rustix::fs::fstat(&dir).ok()?;
        let is_large = self.entries.len() > ENTRIES_MAX;
        let is_unchanged = self.changed.is_some() && self.changed == changed(&stat);
        (self.identity == identity(&stat) && (is_large || is_unchanged)).then_some(dir)
    }
}

// The fields have other types on other systems.
#[allow(clippy::useless_conversion)]
fn identity(stat: &Stat) -> (u64, u64) {
    (u64::from(stat.st_dev), u64::from(stat.st_ino))
}

/// When a directory last changed, counted from 1970: by the stamp that no program can set.
fn changed(stat: &Stat) -> Option<Duration> {
    let parts = (u64::try_from(stat.st_ctime), u32::try_from(stat.st_ctime_nsec));
    let (Ok(seconds), Ok(nanos)) = parts else { return None };
    Some(Duration::new(seconds, nanos))
}

/// Whether a change from now on is sure to get another stamp.
fn is_settled(changed: Duration, now: Duration) -> bool {
    now.checked_sub(changed).is_some_and(|age| age > STAMP_TICK_MAX)
}

fn frame_path(dir: &str, name: &str) -> String {
    if dir == "." { name.to_string() } else { format!("{dir}/{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_testkit::scratch::Scratch;

    #[test]
    fn a_directory_that_changed_just_now_is_not_settled() {
        let seconds = Duration::from_secs;
        assert!(is_settled(seconds(10), seconds(13)));
        assert!(!is_settled(seconds(10), seconds(12)));
        // A clock that was set back, or a file system with another one.
        assert!(!is_settled(seconds(10), seconds(9)));
    }

    #[test]
    fn a_walk_is_current_until_one_of_its_directories_changes() {
        let dir = Scratch::new("walk");
        let path = dir.path();
        std::fs::create_dir_all(path.join("d/e")).unwrap();
        std::fs::write(path.join("d/e/k"), "v").unwrap();
        let root = Arc::new(Root::open(path, Scope::Bucket).unwrap());
        for below in ["", "d", "d/e"] {
            let begun = || {
                let walk = Walk::start(root.clone(), &ListRequest::default(), &Cursor::Start);
                let mut walk = walk.unwrap();
                assert_eq!(walk.next(&Cursor::Start).unwrap().unwrap().0, "d/e/k");
                walk.pause()
            };
            let resumes = |rest| Walk::resume(root.clone(), rest).is_some();
            assert!(!resumes(begun()), "made this moment");
            let stamp =
                |path: &str| changed(&rustix::fs::fstat(root.open_dir(path).unwrap()).unwrap());
            // As if all had been there for long.
            let settled = || {
                let mut rest = begun();
                for frame in &mut rest.frames {
                    frame.changed = stamp(&frame.path);
                }
                rest
            };
            let (rest, other) = (settled(), settled());
            assert_eq!((rest.frames.len(), resumes(settled())), (3, true));
            let below = format!("./{below}");
            let before = stamp(&below);
            let mut number = 0;
            while stamp(&below) == before {
                std::fs::write(path.join(&below).join(format!("z{number}")), "v").unwrap();
                number += 1;
            }
            assert!(!resumes(rest), "`{below}` has changed");
            // Another directory of the name has another inode, whatever its stamp says.
            let mut other = other;
            for frame in &mut other.frames {
                frame.changed = stamp(&frame.path);
            }
            other.frames[1].identity.1 += 1;
            assert!(!resumes(other), "another directory");
        }
    }
}

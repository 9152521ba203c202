//! What a file system does not keep of an object: media type, user metadata, its upload.
//!
//! Kept in the extended attribute `user.penstock`; where the file system has none (or it is too
//! small), in a hidden file beside the object that carries the version's tag in its name, so that
//! it can never describe another version. The extended attribute then says so by a mark: a hidden
//! file that no mark asks for counts for nothing, and a mark without one is damage, not emptiness.

use super::durable::{sync_bytes, sync_dir, sync_file};
use super::names::SIDECAR;
use super::write::create_locked;
use crate::streaming::NULL_VERSION;
use crate::{ETag, ObjectMeta, PutOptions};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, Stat, XattrFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Read, Write};
use std::time::{Duration, SystemTime};

const ATTRIBUTE: &str = "user.penstock";
const IN_SIDECAR: &[u8] = b"sidecar";
/// The kernel's limit for one attribute.
const ATTRIBUTE_MAX_BYTES: usize = 64 << 10;
const ATTRIBUTE_USUAL_BYTES: usize = 1 << 10;
/// What a file is that is marked and has no hidden file: a number that no file system gives.
pub(super) const LOST: Errno = Errno::NOTRECOVERABLE;
/// Sweepers that may be quicker than the lock of a new file, one after the other.
const TEMP_ROUNDS_MAX: usize = 64;

/// Where attributes were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// With the object's own file.
    File,
    /// In a hidden file of the same directory.
    Beside,
}

/// What a look for the attributes of a file has found.
#[derive(Debug)]
pub(super) enum Look {
    Found(Attributes),
    /// No hidden file; whether there has to be one.
    NoneBeside {
        is_marked: bool,
    },
}

/// The attributes of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Attributes {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metadata: Vec<(String, String)>,
    /// Makes a repeated completion recognise its own object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<String>,
    /// The id of this version; `None` for the one that S3 calls `null`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether this is a delete marker: no object, but a version that says that there is none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_marker: bool,
}

impl Attributes {
    pub fn of(options: &PutOptions) -> Self {
        Attributes {
            content_type: options.content_type.clone(),
            metadata: options.metadata.clone(),
            ..Default::default()
        }
    }

    pub fn options(&self) -> PutOptions {
        PutOptions {
            content_type: self.content_type.clone(),
            metadata: self.metadata.clone(),
            ..Default::default()
        }
    }

    fn is_empty(&self) -> bool {
        *self == Attributes::default()
    }

    /// Writes them to `file`, whose content and time must be final and which has no name that
    /// anybody knows; `dir` is where the object will be. A file that had none and gets none costs
    /// nothing.
    pub fn store(&self, file: &File, dir: &OwnedFd) -> Result<(), Errno> {
        if self.is_empty() {
            return Ok(());
        }
        self.write(file, dir, |_| Ok(())).map(drop)
    }

    /// Writes them so that those before stand until these do, whatever fails and wherever it ends:
    /// an attribute is replaced at once, and the mark is set when the hidden file is there;
    /// `settle` makes that so that a power cut keeps the order.
    fn write(
        &self,
        file: &File,
        dir: &OwnedFd,
        settle: impl Fn(&OwnedFd) -> Result<(), Errno>,
    ) -> Result<Place, Errno> {
        let text = serde_json::to_vec(self).expect("text and lists of text always serialise");
        let needs_mark = match rustix::fs::fsetxattr(file, ATTRIBUTE, &text, XattrFlags::empty()) {
            Ok(()) => return Ok(Place::File),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => false,
            // One that has the mark needs no place for it on a full disk.
            Err(Errno::TOOBIG | Errno::NOSPC | Errno::DQUOT | Errno::RANGE) => !is_marked(file)?,
            Err(errno) => return Err(errno),
        };
        let stat = rustix::fs::fstat(file)?;
        Self::write_beside(&text, &sidecar_name(&stat), dir)?;
        settle(dir)?;
        if needs_mark {
            let marked = rustix::fs::fsetxattr(file, ATTRIBUTE, IN_SIDECAR, XattrFlags::empty());
            marked.inspect_err(|_| forget(dir, &stat))?;
        }
        Ok(Place::Beside)
    }

    /// Makes a hidden file of this name hold the text, at once.
    fn write_beside(text: &[u8], name: &str, dir: &OwnedFd) -> Result<(), Errno> {
        // Under another name first: attributes of an object that is there may be replaced.
        let (mut sidecar, temp) = create_temp(dir)?;
        let written = sidecar.write_all(text);
        let written = written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
        let written = written.and_then(|()| sync_bytes(&sidecar));
        let kept = written.and_then(|()| rustix::fs::renameat(dir, &temp, dir, name));
        kept.inspect_err(|_| {
            let _ = rustix::fs::unlinkat(dir, &temp, AtFlags::empty());
        })
    }

    /// Puts them in the place of those that `file` has, durably. Where that fails, or is cut off,
    /// the file has those that it had.
    pub fn replace(&self, file: &File, dir: &OwnedFd) -> Result<(), Errno> {
        let was_beside = may_be_beside(file);
        let place = if self.is_empty() {
            match rustix::fs::fremovexattr(file, ATTRIBUTE) {
                Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => Place::File,
                Err(errno) => return Err(errno),
            }
        } else {
            self.write(file, dir, |dir| sync_dir(dir))?
        };
        sync_file(file)?;
        // The hidden file goes last, once nothing asks for it after a power cut either.
        if was_beside && place == Place::File {
            forget(dir, &rustix::fs::fstat(file)?);
            sync_dir(dir)?;
        }
        Ok(())
    }

    /// Gives the hidden file of a version, if it has one, a second name in another directory.
    pub fn link_sidecar(stat: &Stat, from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
        let name = sidecar_name(stat);
        for _ in 0..TEMP_ROUNDS_MAX {
            match rustix::fs::linkat(from, &name, to, &name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                // Left by a crash: the version may have got other attributes since.
                Err(Errno::EXIST) => match rustix::fs::unlinkat(to, &name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(errno) => return Err(errno),
                },
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::EXIST)
    }

    /// The id of the version; S3 calls one without an id `null`.
    pub fn version_id(&self) -> &str {
        self.version.as_deref().unwrap_or(NULL_VERSION)
    }

    /// Reads those of an open file whose name in `dir` nobody takes away meanwhile; `dir` is opened
    /// only if a hidden file must be read.
    ///
    /// # Errors
    /// [`LOST`], and what the file system says.
    pub fn load(
        file: BorrowedFd<'_>,
        stat: &Stat,
        dir: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) -> Result<Self, Errno> {
        match Self::look(file, stat, dir)? {
            Look::Found(attributes) => Ok(attributes),
            Look::NoneBeside { is_marked: false } => Ok(Attributes::default()),
            Look::NoneBeside { is_marked: true } => Err(LOST),
        }
    }

    /// The same where the name may lead elsewhere by now, and the hidden file be gone with it.
    pub fn look(
        file: BorrowedFd<'_>,
        stat: &Stat,
        dir: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) -> Result<Look, Errno> {
        let (text, is_marked) = match read_attribute(file) {
            Ok(text) if text != IN_SIDECAR => (Some(text), false),
            Err(Errno::NODATA) => return Ok(Look::Found(Attributes::default())),
            Ok(_) => (None, true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => (None, false),
            Err(errno) => return Err(errno),
        };
        let text = match text {
            Some(text) => text,
            None => match dir().and_then(|dir| read_sidecar(&dir, &sidecar_name(stat))) {
                Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Look::NoneBeside { is_marked }),
                answer => answer?,
            },
        };
        // Somebody else's text under our name: the object's bytes are still good.
        Ok(Look::Found(serde_json::from_slice(&text).unwrap_or_default()))
    }
}

/// A fresh hidden file, locked while it is open, and its name.
fn create_temp(dir: &OwnedFd) -> Result<(File, String), Errno> {
    for _ in 0..TEMP_ROUNDS_MAX {
        let name = super::temp_name();
        if let Some(file) = create_locked(dir, &name)? {
            return Ok((file, name));
        }
    }
    Err(Errno::NOENT)
}

fn read_attribute(file: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    for size in [ATTRIBUTE_USUAL_BYTES, ATTRIBUTE_MAX_BYTES] {
        let mut text = vec![0; size];
        match rustix::fs::fgetxattr(file, ATTRIBUTE, &mut text[..]) {
            Ok(len) => {
                text.truncate(len);
                return Ok(text);
            }
            Err(Errno::RANGE) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::RANGE)
}

fn read_sidecar(dir: &OwnedFd, name: &str) -> Result<Vec<u8>, Errno> {
    let fd = rustix::fs::openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = Vec::new();
    File::from(fd)
        .read_to_end(&mut text)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(text)
}

/// Whether a version may have a hidden file: a look at the open file is all that most replacements
/// need, and the directory is not searched while others wait for it.
pub(super) fn may_be_beside(file: impl AsFd) -> bool {
    is_marked(file).unwrap_or(true)
}

fn is_marked(file: impl AsFd) -> Result<bool, Errno> {
    let mut text = [0; IN_SIDECAR.len()];
    match rustix::fs::fgetxattr(file, ATTRIBUTE, &mut text) {
        Ok(len) => Ok(&text[..len] == IN_SIDECAR),
        // None, or more than says that they are elsewhere.
        Err(Errno::NODATA | Errno::RANGE) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Whether a file has lost its last name. One that has another, perhaps in the same directory,
/// still needs what is beside it.
pub(super) fn is_gone(file: impl AsFd) -> bool {
    rustix::fs::fstat(file).is_ok_and(|stat| stat.st_nlink == 0)
}

/// Whether a file has at most that name which it has in the tree of versions.
pub(super) fn is_only_in_tree(file: impl AsFd) -> bool {
    rustix::fs::fstat(file).is_ok_and(|stat| stat.st_nlink <= 1)
}

/// Removes the hidden file of a version that is gone, if it had one.
pub(super) fn forget(dir: impl AsFd, stat: &Stat) {
    // Best effort: a hidden file without its object is swept later.
    let _ = rustix::fs::unlinkat(dir, sidecar_name(stat), AtFlags::empty());
}

/// The inode that a hidden file describes, from its name.
pub(super) fn sidecar_inode(name: &str) -> Option<u64> {
    let fields: Vec<&str> = name.strip_prefix(SIDECAR)?.split('-').collect();
    let is_number = |field: &&str| field.bytes().all(|byte| byte.is_ascii_hexdigit());
    match fields[..] {
        [_, _, inode] if fields.iter().all(is_number) => u64::from_str_radix(inode, 16).ok(),
        _ => None,
    }
}

fn sidecar_name(stat: &Stat) -> String {
    format!("{SIDECAR}{}", etag(stat).0)
}

/// The version tag: nanoseconds of the last change, size and inode. Writes through the store set
/// the time themselves, so two versions in one tick of the kernel's clock differ too.
pub(super) fn etag(stat: &Stat) -> ETag {
    let nanos = i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec);
    ETag(format!("{nanos:x}-{:x}-{:x}", stat.st_size, stat.st_ino))
}

/// Metadata without attributes.
pub(super) fn meta(stat: &Stat) -> ObjectMeta {
    ObjectMeta {
        size_bytes: u64::try_from(stat.st_size).ok(),
        etag: Some(etag(stat)),
        modified: modified(stat),
        content_type: None,
        metadata: Vec::new(),
        version: None,
        storage_class: None,
    }
}

/// The time of the last change; `None` before 1970.
pub(super) fn modified(stat: &Stat) -> Option<SystemTime> {
    let seconds = u64::try_from(stat.st_mtime).ok()?;
    let nanos = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
}

//! Multipart uploads as hidden directories of part files beside their target.
//!
//! A part file's name carries number, size and tag, which tells its checksum, so that a completion
//! needs no other record and any process can continue. It gets that name when its bytes are on the
//! disk. Completing appends the later parts to the first part's file (inside the kernel, and
//! without copying where the file system shares blocks), then publishes that file.
//!
//! Who gives a part its name, and who completes, holds the lock of the upload's directory.

mod join;
mod listing;

pub(super) use listing::list;

use join::{check_parts, check_whole, join, open_part};

use super::attributes::{Attributes, etag, modified};
use super::described::{ROUNDS_MAX, describe, replaced_again};
use super::durable::{sync_bytes, sync_dir};
use super::errno::{explain, explain_io};
use super::names::{self, Location, TEMP, UPLOAD};
use super::root::Root;
use super::write::{self, Temp};
use crate::streaming::{PartEntry, PartSink};
use crate::sums::{Sum, split_tag, tag_with_sum};
use crate::{ObjectMeta, Part, Payload, PutOptions, PutResult, UploadId, WriteCondition};
use penstock_base::{Error, Kind, Result};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FlockOperation, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Read as _;

/// The same count as S3, so that a gateway needs no other.
pub(super) const PART_COUNT_MAX: u32 = 10_000;
const OPTIONS: &str = "options";
/// What they take at most: several times what any service takes as headers.
const OPTIONS_MAX_BYTES: usize = 1 << 20;
const OPTIONS_USUAL_BYTES: usize = 8 << 10;
/// What is read of options that nobody wrote like this: a number that no file system gives.
pub(super) const DAMAGED: Errno = Errno::OWNERDEAD;
/// Rounds of removing what an upload has: parts under way come to an end, and none begins.
const DISCARD_ROUNDS_MAX: usize = 100;
/// Bytes per read when parts are read back.
const READ_BYTES: usize = 256 << 10;

/// What an upload began with.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Begun {
    /// The file name of its target.
    pub name: String,
    #[serde(flatten)]
    pub attributes: Attributes,
}

/// Makes the directory of an upload.
pub(super) fn create(root: &Root, location: &Location, options: &PutOptions) -> Result<UploadId> {
    let id = super::nonce();
    let shown = root.shown(&location.path());
    // One that could not be completed is refused before its parts come.
    write::check_now(root, location, &WriteCondition::None)?;
    let staging = staging(location, &id);
    let begun = Begun { name: location.name.clone(), attributes: Attributes::of(options) };
    let begun = serde_json::to_vec(&begun).map_err(|error| {
        Error::new(Kind::Internal, "upload options do not serialise").with_source(error)
    })?;
    if begun.len() > OPTIONS_MAX_BYTES {
        let why = format!("the upload's metadata take {} bytes of text", begun.len());
        let hint = format!("An upload in a directory begins with {OPTIONS_MAX_BYTES} at most");
        return Err(Error::new(Kind::Invalid, why).with_hint(hint));
    }
    root.make_dir(&staging.dir).map_err(|e| explain(e, "begin an upload beside", &shown))?;
    let mut temp = Temp::create(root, &staging)?;
    temp.write(&Payload(vec![begun.into()]), &shown)?;
    temp.publish(root, &staging, &WriteCondition::None, &Attributes::default())?;
    Ok(UploadId(id))
}

/// Writes one part; the same number again replaces it.
pub(super) fn write_part(
    root: &Root,
    location: &Location,
    id: &UploadId,
    number: u32,
    (payload, sum): (&Payload, Option<&Sum>),
) -> Result<Part> {
    let mut temp = begin_part(root, location, id, number)?;
    let shown = root.shown(&location.path());
    temp.write(payload, &shown)?;
    keep_part(temp, number, sum, &shown)
}

/// A file for the bytes of a part.
pub(super) fn begin_part(
    root: &Root,
    location: &Location,
    id: &UploadId,
    number: u32,
) -> Result<Temp> {
    if !(1..=PART_COUNT_MAX).contains(&number) {
        let why = format!("part number {number} is outside 1 to {PART_COUNT_MAX}");
        return Err(Error::new(Kind::Invalid, why));
    }
    let shown = root.shown(&location.path());
    let dir = open_upload(root, location, id)?;
    let begun = match read_begun(&dir) {
        Ok(begun) => begun,
        Err(Errno::NOENT) => return Err(ended()),
        Err(errno) => return Err(explain(errno, "upload a part of", &shown)),
    };
    if begun.name != location.name {
        return Err(Error::new(Kind::NotFound, "no such upload of this key"));
    }
    let temp = Temp::create_in(dir, &shown)?;
    // Whoever ends an upload takes its options away first and then what lies in it: a file that
    // was made behind its back would stay for a week.
    if let Err(Errno::NOENT) = rustix::fs::statat(&temp.dir, OPTIONS, AtFlags::SYMLINK_NOFOLLOW) {
        drop(temp);
        discard(root, &staging(location, &id.0).dir);
        return Err(ended());
    }
    Ok(temp)
}

/// Makes the file the upload's part of this number: first its bytes are made durable, then its
/// name, so that whatever has the name of a part after a power cut is one.
pub(super) fn keep_part(
    mut temp: Temp,
    number: u32,
    sum: Option<&Sum>,
    shown: &str,
) -> Result<Part> {
    let failed = |errno| explain(errno, "keep a part of", shown);
    sync_bytes(&temp.file).map_err(failed)?;
    let stat = rustix::fs::fstat(&temp.file).map_err(failed)?;
    let size_bytes = u64::try_from(stat.st_size).unwrap_or(0);
    let part = Part { number, etag: tag_with_sum(&etag(&stat).0, sum), size_bytes };
    // In turn: of two that write one part at once, each would remove the other's.
    super::root::lock(&temp.dir).map_err(failed)?;
    temp.keep_as(&part_name(&part), shown).map_err(|error| match error.kind() {
        Kind::NotFound => ended(),
        _ => error,
    })?;
    drop_others(&temp.dir, &part).map_err(|e| explain(e, "replace a part of", shown))?;
    // Nobody needs to wait for the disk.
    let _ = rustix::fs::flock(&temp.dir, FlockOperation::Unlock);
    sync_dir(&temp.dir).map_err(failed)?;
    Ok(part)
}

/// The metadata that an upload began with.
pub(super) fn begun_with(
    root: &Root,
    location: &Location,
    id: &UploadId,
) -> Result<Vec<(String, String)>> {
    let dir = open_upload(root, location, id)?;
    let begun = read_begun(&dir);
    let shown = root.shown(&location.path());
    Ok(begun.map_err(|e| explain(e, "read the options of", &shown))?.attributes.metadata)
}

/// Opens the directory of an upload.
pub(super) fn open_upload(root: &Root, location: &Location, id: &UploadId) -> Result<OwnedFd> {
    check_id(id)?;
    open_staging(root, &staging(location, &id.0), &root.shown(&location.path()))
}

/// Publishes the parts as one file.
pub(super) fn complete(
    root: &Root,
    location: &Location,
    id: &UploadId,
    parts: &[Part],
    options: &PutOptions,
) -> Result<PutResult> {
    check_id(id)?;
    let shown = root.shown(&location.path());
    let staging = staging(location, &id.0);
    let dir = match root.open_dir(&staging.dir) {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return completed_before(root, location, id),
        Err(errno) => return Err(explain(errno, "complete the upload of", &shown)),
    };
    // Two completions of one upload take turns; the second finds the directory gone.
    super::root::lock(&dir).map_err(|e| explain(e, "lock the upload of", &shown))?;
    if root.open_dir(&staging.dir).is_err() {
        return completed_before(root, location, id);
    }
    let begun = match read_begun(&dir) {
        Ok(begun) => begun,
        Err(Errno::NOENT) => return completed_before(root, location, id),
        Err(errno) => return Err(explain(errno, "read the options of", &shown)),
    };
    // One that was killed when the object had its name left some of the parts.
    if let Ok(done) = completed_before(root, location, id) {
        discard(root, &staging.dir);
        return Ok(done);
    }
    // The lock is held until nothing of the upload is left.
    let locked = dir.try_clone().map_err(|e| explain_io(&e, "lock the upload of", &shown))?;
    // A part that comes too late tidies up without the lock: what it took away is no part that was
    // named wrongly.
    let told = |error| match read_begun(&dir) {
        Err(Errno::NOENT) => ended(),
        _ => error,
    };
    check_parts(&dir, parts, &shown).map_err(told)?;
    write::check_now(root, location, &options.condition)?;
    let mut attributes = Attributes::of(&options.or_from(&begun.attributes.options()));
    attributes.upload = Some(id.0.clone());
    let temp = match parts {
        [first, rest @ ..] => {
            let file = join(&dir, (first, rest), &shown).map_err(told)?;
            Temp::adopt(dir, part_name(first), file)
        }
        [] => Temp::create_in(dir, &shown)?,
    };
    let result = temp.publish(root, location, &options.condition, &attributes)?;
    discard(root, &staging.dir);
    drop(locked);
    Ok(result)
}

/// Removes the parts. What is not there is fine. A completion under way stops at its next part, if
/// there is one, and is waited for: its parts are not taken from under it.
pub(super) fn abort(root: &Root, location: &Location, id: &UploadId) -> Result<()> {
    check_id(id)?;
    let path = staging(location, &id.0).dir;
    if let Ok(dir) = root.open_dir(&path) {
        let shown = root.shown(&location.path());
        // By this the completion knows, and nobody begins a part.
        let _ = rustix::fs::unlinkat(&dir, OPTIONS, AtFlags::empty());
        super::root::lock(&dir).map_err(|e| explain(e, "lock the upload of", &shown))?;
        discard(root, &path);
    }
    root.clean_dirs(&location.dir);
    Ok(())
}

/// Removes an upload's directory with all that is in it.
pub(super) fn discard(root: &Root, path: &str) {
    // Best effort: what stays is hidden and is swept a week later.
    let Ok(dir) = root.open_dir(path) else { return };
    let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
    let Ok(parent) = root.open_dir(parent) else { return };
    // From here on nobody begins a part of it.
    let _ = rustix::fs::unlinkat(&dir, OPTIONS, AtFlags::empty());
    for _ in 0..DISCARD_ROUNDS_MAX {
        for entry in Dir::read_from(&dir).into_iter().flatten().flatten() {
            let _ = rustix::fs::unlinkat(&dir, entry.file_name(), AtFlags::empty());
        }
        // A part that got its name while the others were removed is found by the next round.
        match rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            _ => return,
        }
    }
}

/// Where the options of an upload are; its directory is the upload's.
fn staging(location: &Location, id: &str) -> Location {
    let dir = Location { dir: location.dir.clone(), name: format!("{UPLOAD}{id}") }.path();
    Location { dir, name: OPTIONS.into() }
}

/// An id becomes part of a path, and may come from a stranger.
fn check_id(id: &UploadId) -> Result<()> {
    let fits = id.0.len() == super::NONCE_CHARS && id.0.bytes().all(|b| b.is_ascii_hexdigit());
    if fits { Ok(()) } else { Err(Error::new(Kind::NotFound, "no such upload")) }
}

/// The part that a file of an upload holds.
pub(super) fn part_of_name(name: &str) -> Option<Part> {
    let mut fields = name.strip_prefix("part-")?.splitn(3, '-');
    let number = fields.next()?.parse().ok()?;
    let size_bytes = u64::from_str_radix(fields.next()?, 16).ok()?;
    Some(Part { number, size_bytes, etag: fields.next()?.to_string() })
}

/// The name of the file that holds a part.
pub(super) fn part_name(part: &Part) -> String {
    format!("part-{:05}-{:x}-{}", part.number, part.size_bytes, part.etag)
}

fn open_staging(root: &Root, staging: &Location, shown: &str) -> Result<OwnedFd> {
    root.open_dir(&staging.dir).map_err(|errno| match errno {
        Errno::NOENT => ended(),
        errno => explain(errno, "upload a part of", shown),
    })
}

fn ended() -> Error {
    Error::new(Kind::NotFound, "no such upload; it ended or never was")
}

/// Removes what earlier uploads of the same part left.
fn drop_others(dir: &OwnedFd, part: &Part) -> Result<(), Errno> {
    let (prefix, own) = (format!("part-{:05}-", part.number), part_name(part));
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_bytes().starts_with(prefix.as_bytes()) && name.to_bytes() != own.as_bytes() {
            match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    Ok(())
}

/// What the upload in this directory began with.
pub(super) fn read_begun(dir: &OwnedFd) -> Result<Begun, Errno> {
    serde_json::from_slice(&read_options(dir)?).map_err(|_| DAMAGED)
}

/// The text of that, read as a whole.
fn read_options(dir: impl AsFd) -> Result<Vec<u8>, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, OPTIONS, flags, rustix::fs::Mode::empty())?;
    let mut text = Vec::with_capacity(OPTIONS_USUAL_BYTES);
    let read = File::from(fd).take(OPTIONS_MAX_BYTES as u64 + 1).read_to_end(&mut text);
    read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    if text.len() > OPTIONS_MAX_BYTES { Err(DAMAGED) } else { Ok(text) }
}

/// The answer to a completion that was lost: the object says which upload made it, wherever it is
/// kept.
pub(super) fn completed_before(
    root: &Root,
    location: &Location,
    id: &UploadId,
) -> Result<PutResult> {
    let shown = root.shown(&location.path());
    let (at, meta, attributes) = (0..ROUNDS_MAX)
        .find_map(|_| described(root, location, &shown).transpose())
        .unwrap_or_else(|| Err(replaced_again(&shown)))?;
    if attributes.upload.as_ref() != Some(&id.0) {
        return Err(ended());
    }
    // Whoever gave it the name may have been killed before that was on the disk.
    let synced = root.open_dir(&at.dir).and_then(sync_dir);
    synced.map_err(|errno| explain(errno, "sync the directory of", &shown))?;
    let (etag, modified, version) = (meta.etag, meta.modified, attributes.version);
    Ok(PutResult { etag, modified, version, ..PutResult::default() })
}

/// What has the name, and where it is kept; `None` when it was replaced this moment.
fn described(
    root: &Root,
    location: &Location,
    shown: &str,
) -> Result<Option<(Location, ObjectMeta, Attributes)>> {
    let (file, at) = root.open_object(location).map_err(|errno| match errno {
        Errno::NOENT | Errno::NOTDIR => ended(),
        errno => explain(errno, "open", shown),
    })?;
    let described = describe(root, &at, &file).map_err(|error| match error.kind() {
        Kind::NotFound => ended(),
        _ => error,
    })?;
    Ok(described.map(|(meta, attributes)| (at, meta, attributes)))
}

/// The parts that an upload has, by number.
pub(super) fn list_parts(
    root: &Root,
    location: &Location,
    id: &UploadId,
) -> Result<Vec<PartEntry>> {
    let shown = root.shown(&location.path());
    let failed = |errno| explain(errno, "list the parts of", &shown);
    let dir = open_upload(root, location, id)?;
    let begun = match read_begun(&dir) {
        Ok(begun) => begun,
        Err(Errno::NOENT) => return Err(ended()),
        Err(errno) => return Err(failed(errno)),
    };
    if begun.name != location.name {
        return Err(Error::new(Kind::NotFound, "no such upload of this key"));
    }
    let mut parts = Vec::new();
    for entry in Dir::read_from(&dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Some(part) = entry.file_name().to_str().ok().and_then(part_of_name) else {
            continue;
        };
        match rustix::fs::statat(&dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
            // Not one that could be completed with.
            Ok(stat) if check_whole(&part, &stat).is_err() => {}
            Ok(stat) => parts.push(PartEntry {
                number: part.number,
                sum: split_tag(&part.etag).1,
                etag: part.etag,
                size_bytes: part.size_bytes,
                modified: modified(&stat),
            }),
            // Replaced this moment.
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    parts.sort_by_key(|part| part.number);
    Ok(parts)
}

/// Hands the bytes of parts to `sink`, in order.
pub(super) fn read_parts(
    root: &Root,
    location: &Location,
    id: &UploadId,
    parts: &[Part],
    sink: &mut PartSink,
) -> Result<()> {
    let shown = root.shown(&location.path());
    let dir = open_upload(root, location, id)?;
    let mut buffer = vec![0; READ_BYTES];
    check_parts(&dir, parts, &shown)?;
    for part in parts {
        let mut file = open_part(&dir, part, OFlags::RDONLY, &shown)?.take(part.size_bytes);
        loop {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => sink(&buffer[..count]),
                Err(error) => return Err(explain_io(&error, "read a part of", &shown)),
            }
        }
    }
    Ok(())
}

/// Whether a directory entry is a leftover of a writer: a temporary file or an upload.
pub(super) fn is_leftover(name: &str) -> bool {
    let is_ours = [TEMP, UPLOAD, names::SIDECAR].iter().any(|prefix| name.starts_with(prefix));
    is_ours || name == names::VERSIONING
}

#[cfg(test)]
mod tests;

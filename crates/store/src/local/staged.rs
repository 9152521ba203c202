//! What a gateway needs of a local bucket besides the [`Store`](crate::Store) trait: bodies that
//! are never whole in memory, and the tales of uploads.
//!
//! A [`Staged`] body is a hidden file that grows as pieces come, one write at a time on a blocking
//! thread while the next pieces arrive, and is published or forgotten as a whole.

use super::errno::{explain, explain_io};
use super::names::{self, Location, UPLOAD};
use super::root::Root;
use super::upload;
use super::write::{self, Temp};
use super::{LocalStore, Shared, attributes::Attributes};
use crate::streaming::{PartEntry, UploadEntry};
use crate::{Part, PutOptions, PutResult, UploadId, WriteCondition};
use bytes::Bytes;
use penstock_base::{Error, Kind, Result};
use rustix::fs::{AtFlags, Dir, FileType};
use rustix::io::Errno;
use std::io::Read as _;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use tokio::task::JoinHandle;

/// Bytes that are collected before they are written. As much again may be on its way to the file.
const WRITE_BYTES: usize = 1 << 20;
/// Bytes per read when parts are read back.
const READ_BYTES: usize = 256 << 10;

/// A body on its way into the bucket. Dropped without being placed, it leaves nothing.
#[derive(Debug)]
pub struct Staged {
    shared: Arc<Shared>,
    location: Location,
    part: Option<u32>,
    /// `None` while a write has it.
    temp: Option<Temp>,
    held: Vec<Bytes>,
    held_bytes: usize,
    size_bytes: u64,
    flight: Option<JoinHandle<(Temp, Result<()>)>>,
}

impl Staged {
    fn new(shared: Arc<Shared>, location: Location, part: Option<u32>, temp: Temp) -> Self {
        Staged {
            shared,
            location,
            part,
            temp: Some(temp),
            held: Vec::new(),
            held_bytes: 0,
            size_bytes: 0,
            flight: None,
        }
    }

    /// Takes the next piece. Waits while the disk is slower than the sender.
    ///
    /// # Errors
    /// `Exhausted` for a full disk; what an earlier piece met.
    pub async fn write(&mut self, piece: Bytes) -> Result<()> {
        self.size_bytes += piece.len() as u64;
        self.held_bytes += piece.len();
        self.held.push(piece);
        if self.held_bytes < WRITE_BYTES {
            return Ok(());
        }
        self.land().await?;
        self.take_off()
    }

    /// Waits for the write that is under way.
    async fn land(&mut self) -> Result<()> {
        if let Some(flight) = self.flight.take() {
            let (temp, written) = flight.await.map_err(broke_off)?;
            self.temp = Some(temp);
            written?;
        }
        Ok(())
    }

    /// Begins to write what is held.
    fn take_off(&mut self) -> Result<()> {
        let mut temp = self.temp.take().ok_or_else(used_up)?;
        let pieces = std::mem::take(&mut self.held);
        self.held_bytes = 0;
        let shown = self.shown();
        self.flight = Some(tokio::task::spawn_blocking(move || {
            let written = temp.append(&pieces, &shown);
            (temp, written)
        }));
        Ok(())
    }

    /// The whole file, its last pieces still to be written.
    async fn whole(&mut self) -> Result<(Temp, Vec<Bytes>)> {
        self.land().await?;
        Ok((self.temp.take().ok_or_else(used_up)?, std::mem::take(&mut self.held)))
    }

    fn shown(&self) -> String {
        self.shared.root.shown(&self.location.path())
    }

    /// Publishes the body under its key.
    ///
    /// # Errors
    /// `Conflict` when the condition does not hold, and what the file system says.
    pub async fn place(mut self, options: &PutOptions) -> Result<PutResult> {
        let (mut temp, last) = self.whole().await?;
        let options = options.clone();
        blocking(move || {
            temp.append(&last, &self.shown())?;
            let attributes = Attributes::of(&options);
            temp.publish(&self.shared.root, &self.location, &options.condition, &attributes)
        })
        .await
    }

    /// Makes the body the part that it was staged for.
    ///
    /// # Errors
    /// `NotFound` when the upload ended meanwhile.
    pub async fn place_part(mut self) -> Result<Part> {
        let number = self.part.ok_or_else(used_up)?;
        let (mut temp, last) = self.whole().await?;
        blocking(move || {
            temp.append(&last, &self.shown())?;
            upload::keep_part(temp, number, self.size_bytes, &self.shown())
        })
        .await
    }
}

impl LocalStore {
    /// Begins an object whose body comes in pieces; `len` is its size where it is known. A
    /// condition that does not hold now is told before a byte comes, and judged again at the end.
    ///
    /// # Errors
    /// `Conflict`; `Invalid` for a key without a place; `Exhausted` for a disk without `len` bytes.
    pub async fn stage(
        &self,
        key: &str,
        len: Option<u64>,
        condition: &WriteCondition,
    ) -> Result<Staged> {
        let condition = condition.clone();
        let shared = self.shared.clone();
        self.run_at("PUT", key, move |_, location| {
            write::check_now(&shared.root, location, &condition)?;
            let mut temp = Temp::create(&shared.root, location)?;
            shared.sweeper.sweep_once(&shared.root, &location.dir);
            temp.reserve(len.unwrap_or(0), &shared.root.shown(&location.path()))?;
            Ok(Staged::new(shared, location.clone(), None, temp))
        })
        .await
    }

    /// Begins a part whose body comes in pieces.
    ///
    /// # Errors
    /// `NotFound` for an upload that is not there, `Invalid` for a number out of range.
    pub async fn stage_part(
        &self,
        key: &str,
        upload: &UploadId,
        number: u32,
        len: Option<u64>,
    ) -> Result<Staged> {
        let (id, shared) = (upload.clone(), self.shared.clone());
        self.run_at("upload part", key, move |_, location| {
            let mut temp = upload::begin_part(&shared.root, location, &id, number)?;
            temp.reserve(len.unwrap_or(0), &shared.root.shown(&location.path()))?;
            Ok(Staged::new(shared, location.clone(), Some(number), temp))
        })
        .await
    }

    /// The parts of an upload, by number.
    ///
    /// # Errors
    /// `NotFound` for an upload that is not there or is another key's.
    pub async fn list_parts(&self, key: &str, upload: &UploadId) -> Result<Vec<PartEntry>> {
        let id = upload.clone();
        self.run_at("list parts", key, move |shared, location| {
            list_parts(&shared.root, location, &id)
        })
        .await
    }

    /// Reads parts in order, and hands `each` their bytes, for a checksum of the whole.
    ///
    /// # Errors
    /// `NotFound` for the upload, `Invalid` for a part that is not there.
    pub async fn read_parts<T: Send + 'static>(
        &self,
        key: &str,
        upload: &UploadId,
        parts: &[Part],
        mut state: T,
        each: fn(&mut T, &[u8]),
    ) -> Result<T> {
        let (id, parts) = (upload.clone(), parts.to_vec());
        self.run_at("read parts", key, move |shared, location| {
            let shown = shared.root.shown(&location.path());
            let dir = upload::open_upload(&shared.root, location, &id)?;
            let mut buffer = vec![0; READ_BYTES];
            for (file, part) in upload::open_parts(&dir, &parts, &shown)?.into_iter().zip(&parts) {
                let mut file = file.take(part.size_bytes);
                loop {
                    match file.read(&mut buffer) {
                        Ok(0) => break,
                        Ok(count) => each(&mut state, &buffer[..count]),
                        Err(error) => return Err(explain_io(&error, "read a part of", &shown)),
                    }
                }
            }
            Ok(state)
        })
        .await
    }

    /// The object that this upload made.
    ///
    /// # Errors
    /// `NotFound` when the key holds no such object.
    pub async fn completed(&self, key: &str, upload: &UploadId) -> Result<PutResult> {
        let id = upload.clone();
        self.run_at("complete upload", key, move |shared, location| {
            upload::completed_before(&shared.root, location, &id)
        })
        .await
    }

    /// Every upload of the bucket that is not completed, in no particular order.
    ///
    /// # Errors
    /// What the file system says.
    pub async fn list_uploads(&self) -> Result<Vec<UploadEntry>> {
        self.run("list uploads", "", |shared| {
            let mut uploads = Vec::new();
            find_uploads(&shared.root, ".", "", &mut uploads)
                .map_err(|errno| explain(errno, "list", &shared.root.path))?;
            Ok(uploads)
        })
        .await
    }

    /// Whether the bucket's directory is still the one at this path: not removed, moved or
    /// replaced since it was opened. A name in use is in the kernel's cache, so this waits for no
    /// disk.
    pub fn is_at(&self, path: &std::path::Path) -> bool {
        self.shared.root.is_at(path)
    }

    /// Removes the bucket's directory, if no object is in it; unfinished uploads go too.
    ///
    /// # Errors
    /// `Conflict` when objects are in it.
    pub async fn remove_bucket(&self) -> Result<()> {
        self.run("delete bucket", "", |shared| {
            let path = std::path::Path::new(&shared.root.path);
            let failed = |error: std::io::Error| explain_io(&error, "remove", &shared.root.path);
            if has_objects(path).map_err(failed)? {
                return Err(Error::new(Kind::Conflict, "the bucket is not empty"));
            }
            remove_hidden(path).map_err(failed)?;
            // An object that came meanwhile makes this fail, and stays.
            std::fs::remove_dir(path).map_err(|error| match error.kind() {
                std::io::ErrorKind::DirectoryNotEmpty => {
                    Error::new(Kind::Conflict, "the bucket is not empty")
                }
                _ => failed(error),
            })
        })
        .await
    }
}

fn list_parts(root: &Root, location: &Location, id: &UploadId) -> Result<Vec<PartEntry>> {
    let shown = root.shown(&location.path());
    let failed = |errno| explain(errno, "list the parts of", &shown);
    let dir = upload::open_upload(root, location, id)?;
    let begun = match upload::read_begun(&dir) {
        Ok(begun) => begun,
        Err(Errno::NOENT) => return Err(Error::new(Kind::NotFound, "the upload has ended")),
        Err(errno) => return Err(failed(errno)),
    };
    if begun.name != location.name {
        return Err(Error::new(Kind::NotFound, "no such upload of this key"));
    }
    let mut parts = Vec::new();
    for entry in Dir::read_from(&dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Some(part) = entry.file_name().to_str().ok().and_then(upload::part_of_name) else {
            continue;
        };
        match rustix::fs::statat(&dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => parts.push(PartEntry {
                number: part.number,
                etag: part.etag,
                size_bytes: part.size_bytes,
                modified: u64::try_from(stat.st_mtime)
                    .ok()
                    .map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds)),
            }),
            // Replaced this moment.
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    parts.sort_by_key(|part| part.number);
    Ok(parts)
}

/// Walks the directories below `path`; `prefix` is what their keys begin with.
fn find_uploads(
    root: &Root,
    path: &str,
    prefix: &str,
    found: &mut Vec<UploadEntry>,
) -> Result<(), Errno> {
    let dir = match root.open_dir(path) {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno),
    };
    for entry in Dir::read_from(&dir)? {
        let entry = entry?;
        if !matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
            continue;
        }
        let Ok(name) = entry.file_name().to_str() else { continue };
        let below = if path == "." { name.to_string() } else { format!("{path}/{name}") };
        if let Some(id) = name.strip_prefix(UPLOAD) {
            // One that ends this moment is not there any more.
            let Ok(upload) = root.open_dir(&below) else { continue };
            let Ok(begun) = upload::read_begun(&upload) else { continue };
            let Some(last) = names::decode(begun.name.as_bytes(), false) else { continue };
            let stat = rustix::fs::fstat(&upload)?;
            found.push(UploadEntry {
                key: format!("{prefix}{last}"),
                id: UploadId(id.to_string()),
                begun: u64::try_from(stat.st_mtime)
                    .ok()
                    .map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds)),
            });
        } else if let Some(component) = names::decode(name.as_bytes(), true) {
            find_uploads(root, &below, &format!("{prefix}{component}/"), found)?;
        }
    }
    Ok(())
}

/// Whether anything but our own hidden files is below the directory.
fn has_objects(dir: &std::path::Path) -> std::io::Result<bool> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_dir = entry.file_type()?.is_dir();
        let leftover = name.to_str().is_some_and(upload::is_leftover);
        if !leftover && (!is_dir || has_objects(&entry.path())?) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes our own hidden files and the directories that are empty without them.
fn remove_hidden(dir: &std::path::Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let leftover = entry.file_name().to_str().is_some_and(upload::is_leftover);
        match (entry.file_type()?.is_dir(), leftover) {
            (true, true) => std::fs::remove_dir_all(entry.path())?,
            (true, false) => {
                remove_hidden(&entry.path())?;
                std::fs::remove_dir(entry.path())?;
            }
            (false, true) => std::fs::remove_file(entry.path())?,
            (false, false) => {}
        }
    }
    Ok(())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(broke_off(error)))
}

fn broke_off(error: tokio::task::JoinError) -> Error {
    Error::new(Kind::Internal, "work on a blocking thread broke off").with_source(error)
}

fn used_up() -> Error {
    Error::new(Kind::Internal, "the staged body was used after an error")
}

#[cfg(test)]
mod tests;

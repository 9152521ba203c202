//! The files of a cache directory: who may use it, what lies there from before, and new ones.
//!
//! A directory belongs to one process at a time, by a lock that ends with the process. It is one of
//! `fcntl`, which belongs to the process: a child of a fork does not have it, and so does not keep
//! it when its parent ends (`flock` would, whatever the child does). Such a lock does not stop the
//! process itself, where Penstock may be loaded twice; so the lock file tells who holds it. Only
//! files that carry this format's mark are ever removed.
//!
//! Whoever removes the lock file, or all that is in the directory, gives it away: another process
//! may hold what is there next. Nothing is made, removed or noted in it any more.

use crate::cache::medium::{BlockFile, Medium, Recovered, Sizes, Spot};
use crate::cache::outdated::{Noted, noted_bytes};
use crate::cache::record::{
    HEAD_BYTES, HEADER_BYTES_MAX, Head, Record, TRAILER_BYTES, head, judge_head, parse_directory,
    parse_trailer, trailer,
};
use penstock_base::door::setting;
use penstock_base::{Error, Kind, Result};
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

const LOCK_NAME: &str = "penstock-cache.lock";
const EXTENSION: &str = "blocks";
const NOTED_NAME: &str = "penstock-cache.outdated";
/// Becomes the one above.
const NOTING_NAME: &str = "penstock-cache.outdated.new";

/// A directory that this process holds.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    lock: File,
    /// A child of a fork does not hold it.
    process: u32,
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // Nobody reads it but those who want to know who holds the lock.
            let _ = self.lock.set_len(0);
        }
    }
}

/// A file is this part of the capacity, within limits, so that what is forgotten at once is little
/// and the number of open files small.
const FILES: u64 = 64;
const FILE_BYTES_MIN: u64 = 4 << 20;
const FILE_BYTES_MAX: u64 = 256 << 20;
/// The note of so many versions has half a MiB.
const HASHES_MAX_HERE: usize = 1 << 16;
/// What the files beside those of blocks take at most: the lock file, and a note while the next
/// one takes its place.
const BESIDE_BYTES: u64 = 4096 + 2 * noted_bytes(HASHES_MAX_HERE) as u64;

impl Directory {
    /// Makes a directory if need be, readable by its owner only; its absolute path without links.
    ///
    /// # Errors
    /// `Invalid` when it cannot be made, with the reason.
    pub fn make(path: &Path) -> Result<PathBuf> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .and_then(|()| path.canonicalize())
            .map_err(|error| unusable(path, "the directory cannot be made", &error))
    }

    /// Locks a directory.
    ///
    /// # Errors
    /// `Invalid` when it cannot be written or locked, with the reason.
    pub fn hold(path: &Path) -> Result<Self> {
        let named = |what: &str, error: &io::Error| unusable(path, what, error);
        let name = path.join(LOCK_NAME);
        let mut lock = match take_kept(&name) {
            Some(kept) => kept,
            None => private()
                .read(true)
                .create(true)
                .truncate(false)
                .open(&name)
                .map_err(|error| named("the directory cannot be written", &error))?,
        };
        // One that does not read is of nobody.
        let mut owner = String::new();
        let _ = lock.read_to_string(&mut owner);
        let mine = holder(&lock);
        match rustix::fs::fcntl_lock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if owner.trim_end() == mine => {
                // Closing it would give up the lock that the other copy holds.
                KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(lock);
                return Err(in_use(path, "another copy of Penstock in this process"));
            }
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::ACCESS) => {
                let process = owner.split_whitespace().next();
                let process = process.map(|pid| format!("process {pid}"));
                return Err(in_use(path, process.as_deref().unwrap_or("another process")));
            }
            Err(errno) => return Err(named("the directory cannot be locked", &errno.into())),
        }
        lock.set_len(0)
            .and_then(|()| lock.write_all_at(format!("{mine}\n").as_bytes(), 0))
            .map_err(|error| named("the directory cannot be written", &error))?;
        Ok(Directory { path: path.to_path_buf(), lock, process: std::process::id() })
    }

    /// # Errors
    /// `NotFound` where the directory is not this process's any more.
    fn refuse_given_away(&self) -> io::Result<()> {
        let told = "the lock file of the cache was removed";
        self.is_held().then_some(()).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, told))
    }

    fn numbers(&self) -> Vec<u64> {
        let entries = std::fs::read_dir(&self.path).into_iter().flatten();
        let mut numbers: Vec<u64> =
            entries.filter_map(|entry| number_of(&entry.ok()?.path())).collect();
        numbers.sort_unstable();
        numbers
    }

    fn recover_one(&self, number: u64) -> io::Result<Option<Recovered>> {
        let file = OpenOptions::new().read(true).open(self.file_path(number))?;
        let bytes = file.metadata()?.len();
        let mut begin = [0; HEAD_BYTES as usize];
        let judged = match file.read_exact_at(&mut begin, 0) {
            Ok(()) => judge_head(&begin),
            // Cut short at its very begin; only we give files such names.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Head::OtherVersion,
            Err(error) => return Err(error),
        };
        match judged {
            Head::Ours => {}
            Head::OtherVersion => {
                self.remove(number)?;
                return Ok(None);
            }
            Head::Foreign => return Ok(None),
        }
        let (directory, file) = (directory_of(&file, bytes)?, Arc::new(Plain(file)));
        let records = match directory {
            Some((directory, start)) => {
                parse_directory(&directory, file.start(), start, |at, header, block| {
                    file.spot(at, header, block)
                })
            }
            None => walk(&file.0, bytes)?,
        };
        Ok(Some(Recovered { number, file, bytes, records }))
    }

    fn file_path(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number:016x}.{EXTENSION}"))
    }
}

impl Medium for Directory {
    fn sizes(&self, asked_bytes: u64) -> Sizes {
        let file_bytes = (asked_bytes / FILES).clamp(FILE_BYTES_MIN, FILE_BYTES_MAX);
        Sizes { capacity_bytes: asked_bytes.saturating_sub(BESIDE_BYTES), file_bytes }
    }

    fn taken_bytes(&self, file_bytes: u64) -> u64 {
        file_bytes
    }

    fn next_number(&self) -> u64 {
        self.numbers().last().map_or(0, |last| last.saturating_add(1))
    }

    /// What is not ours is left alone.
    fn recover(&self) -> Vec<Recovered> {
        let recover = |number| self.recover_one(number).ok().flatten();
        self.numbers().into_iter().filter_map(recover).collect()
    }

    fn is_held(&self) -> bool {
        let there = std::fs::metadata(self.path.join(LOCK_NAME));
        there.is_ok_and(|there| is_file(&self.lock, &there))
    }

    fn create(&self, number: u64) -> io::Result<Arc<dyn BlockFile>> {
        self.refuse_given_away()?;
        let file = private().read(true).create_new(true).open(self.file_path(number))?;
        file.write_all_at(&head(), 0)?;
        Ok(Arc::new(Plain(file)))
    }

    fn remove(&self, number: u64) -> io::Result<()> {
        let path = self.file_path(number);
        if let Err(error) = self.refuse_given_away() {
            // One that stays may be taken by who comes next for what it was.
            return if path.symlink_metadata().is_ok() { Err(error) } else { Ok(()) };
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn settle(&self) -> io::Result<()> {
        match File::open(&self.path) {
            Ok(directory) => directory.sync_all(),
            // With all that was in it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn hashes_max(&self) -> usize {
        HASHES_MAX_HERE
    }

    fn noted(&self) -> Noted {
        match std::fs::read(self.path.join(NOTED_NAME)) {
            Ok(bytes) => Noted::decode(&bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Noted::nothing(),
            Err(_) => Noted::All,
        }
    }

    fn note(&self, noted: &Noted) -> io::Result<()> {
        self.refuse_given_away()?;
        let noting = self.path.join(NOTING_NAME);
        let file = private().create(true).truncate(true).open(&noting)?;
        file.write_all_at(&noted.encode(), 0)?;
        file.sync_all()?;
        std::fs::rename(&noting, self.path.join(NOTED_NAME))?;
        self.settle()
    }
}

/// A file of the directory: records one behind the other, without gaps.
#[derive(Debug)]
struct Plain(File);

impl BlockFile for Plain {
    fn start(&self) -> u64 {
        HEAD_BYTES
    }

    fn spot(&self, at: u64, header_bytes: u64, block_bytes: u64) -> Spot {
        let block = at + header_bytes;
        Spot { block, end: block + block_bytes }
    }

    /// It may become longer than others by its directory.
    fn closed_bytes(&self, end: u64, _: u64) -> u64 {
        end
    }

    /// The header is written last: a record whose bytes did not arrive has none.
    fn append(&self, at: u64, header: &[u8], block: &[u8]) -> io::Result<Spot> {
        let spot = self.spot(at, header.len() as u64, block.len() as u64);
        self.0.write_all_at(block, spot.block)?;
        self.0.write_all_at(header, at)?;
        Ok(spot)
    }

    fn close(&self, end: u64, directory: &[u8]) -> io::Result<u64> {
        let trailer = trailer(end, directory);
        self.0.write_all_at(directory, end)?;
        let end = end + directory.len() as u64;
        self.0.write_all_at(&trailer, end)?;
        Ok(end + trailer.len() as u64)
    }

    fn read(&self, position: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(into, position)
    }
}

/// Lock files that another copy of Penstock in this process holds: one of each, however often it is
/// tried.
static KEPT: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// A lock file that is open already, to be read from its begin.
fn take_kept(name: &Path) -> Option<File> {
    let there = std::fs::metadata(name).ok()?;
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let at = kept.iter().position(|kept| is_file(kept, &there))?;
    let mut file = kept.swap_remove(at);
    file.rewind().ok()?;
    Some(file)
}

fn is_file(open: &File, there: &Metadata) -> bool {
    open.metadata().is_ok_and(|open| (open.dev(), open.ino()) == (there.dev(), there.ino()))
}

/// Cached bytes are as private as the objects.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

fn unusable(path: &Path, what: &str, error: &io::Error) -> Error {
    Error::new(Kind::Invalid, format!("{what}: {error}"))
        .with_operation("open the disk cache")
        .with_object(path.display().to_string())
        .with_hint(format!(
            "Set {} to a directory that this user may write, or to '' for no disk cache",
            setting("cache_dir")
        ))
}

fn in_use(path: &Path, owner: &str) -> Error {
    Error::new(Kind::Conflict, format!("{owner} uses this cache directory"))
        .with_operation("open the disk cache")
        .with_object(path.display().to_string())
        .with_hint(format!(
            "Give each process its own {}, or set it to '' for no disk cache",
            setting("cache_dir")
        ))
}

/// Who holds a lock: the number of this process, when it began, and the number of the lock file.
/// No other process has had these, and no copy of the file has them.
fn holder(lock: &File) -> String {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name, in parentheses, may hold anything; the time is the 22nd field (proc(5)).
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let began = fields.split_whitespace().nth(19).unwrap_or("-");
    let file = lock.metadata().map_or(0, |metadata| metadata.ino());
    format!("{} {began} {file}", std::process::id())
}

fn number_of(path: &Path) -> Option<u64> {
    let stem = path.file_stem()?.to_str()?;
    let is_ours = path.extension()? == EXTENSION && stem.len() == 16;
    is_ours.then(|| u64::from_str_radix(stem, 16).ok()).flatten()
}

/// The directory of a file that was closed in good order, and where it begins.
fn directory_of(file: &File, bytes: u64) -> io::Result<Option<(Vec<u8>, u64)>> {
    let Some(at) = bytes.checked_sub(TRAILER_BYTES) else { return Ok(None) };
    let mut trailer = [0; TRAILER_BYTES as usize];
    file.read_exact_at(&mut trailer, at)?;
    let Some((range, crc)) = parse_trailer(&trailer, bytes) else { return Ok(None) };
    let mut directory = vec![0; usize::try_from(range.len()).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut directory, range.start)?;
    Ok((crc32fast::hash(&directory) == crc).then_some((directory, range.start)))
}

/// The records of a file that was cut short.
fn walk(file: &File, bytes: u64) -> io::Result<Vec<(Record, u64)>> {
    let mut records = Vec::new();
    let mut position = HEAD_BYTES;
    let mut buf = vec![0; HEADER_BYTES_MAX];
    while position < bytes {
        let len = HEADER_BYTES_MAX.min(usize::try_from(bytes - position).unwrap_or(usize::MAX));
        file.read_exact_at(&mut buf[..len], position)?;
        let Some((record, header_bytes)) = Record::parse(&buf[..len]) else { break };
        let block = position + header_bytes as u64;
        position = block + record.range.len();
        if position > bytes {
            break;
        }
        records.push((record, block));
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_testkit::scratch::Scratch;

    /// Two notes are there while one takes the place of the other.
    #[test]
    fn the_largest_notes_are_within_what_was_asked_for() {
        let dir = Scratch::new("cache");
        let medium = Directory::hold(dir.path()).expect("holds");
        let asked_bytes = 64 << 20;
        let blocks_bytes = medium.sizes(asked_bytes).capacity_bytes;
        let hashes = (0..medium.hashes_max() as u64).collect();
        medium.note(&Noted::of(hashes, medium.hashes_max())).expect("notes");
        let bytes = |name: &str| dir.path().join(name).metadata().expect("is there").len();
        assert_eq!(bytes(NOTED_NAME), noted_bytes(HASHES_MAX_HERE) as u64);
        let beside_bytes = 2 * bytes(NOTED_NAME) + bytes(LOCK_NAME);
        assert!(blocks_bytes + beside_bytes <= asked_bytes, "{blocks_bytes}, {beside_bytes}");
        assert!(blocks_bytes >= asked_bytes / 64 * 62);
    }

    /// Cached bytes are as private as the objects, whatever else may be read in the place.
    #[test]
    fn the_directory_and_its_files_are_for_their_owner_only() {
        let parent = Scratch::new("cache-owner");
        let path = Directory::make(&parent.path().join("a/b")).expect("is made");
        let medium = Directory::hold(&path).expect("holds");
        drop(medium.create(0).expect("creates"));
        medium.note(&Noted::nothing()).expect("notes");
        let mode = |path: &Path| path.metadata().expect("is there").mode() & 0o777;
        for directory in [path.as_path(), path.parent().expect("has one")] {
            assert_eq!(mode(directory), 0o700, "{}", directory.display());
        }
        let entries = std::fs::read_dir(&path).expect("is read");
        let files: Vec<PathBuf> = entries.map(|entry| entry.expect("is there").path()).collect();
        assert_eq!(files.len(), 3, "lock, blocks and note: {files:?}");
        for file in files {
            assert_eq!(mode(&file), 0o600, "{}", file.display());
        }
    }
}

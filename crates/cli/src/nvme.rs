//! `penstock nvme`: volumes and caches on files and block devices. It decides what is printed and
//! which files make a database; the volume and the engine's cache decide everything else.

mod copying;
mod export;
mod target;

use crate::args::{NvmeCommand, NvmeCopy, NvmeFormat};
use crate::output::shown;
use crate::print;
use copying::Copying;
use penstock_base::{ByteSize, Error, Kind, Result, Settings};
use penstock_device::address::{ENDINGS, IMPORT_ENDING, check_name, check_path, check_volume_path};
use penstock_device::volume::{Asked, FormatOptions, Lock, OpenFileOptions, Volume, check, format};
use penstock_engine::{CacheDevice, format_cache_device, look_at_cache_device};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use target::Target;

/// Carries out one of the verbs.
///
/// # Errors
/// `Invalid` for settings of devices that mean nothing; and what the verb fails by.
pub fn run(command: &NvmeCommand, settings: &Settings) -> Result<()> {
    let set = Asked::from_settings(settings)?;
    let target = |device| Target::new(device, set);
    match command {
        NvmeCommand::Format(format) => make(&target(&format.device)?, format),
        NvmeCommand::Ls(device) => ls(&target(device)?),
        NvmeCommand::Check(device) => look(&target(device)?),
        NvmeCommand::Grow(device) => grow(&target(device)?),
        NvmeCommand::Import(copy) => import(&target(&copy.device)?, copy),
        NvmeCommand::Export(copy) => export::export(&target(&copy.device)?, copy),
        NvmeCommand::Rm(rm) => remove(&target(&rm.device)?, &rm.db),
    }
}

/// Refuses a path that no URL would lead to. Databases are found by where links lead, a cache by
/// the path that cache_dir says.
fn check_reachable(path: &Path, is_cache: bool) -> Result<()> {
    if is_cache {
        return check_path(path).map(drop);
    }
    let real = path.canonicalize().or_else(|_| {
        // It is not there yet: what is, is its directory.
        let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new(".")).canonicalize()?;
        Ok(path.file_name().map_or(directory.clone(), |name| directory.join(name)))
    });
    let real = real.map_err(|error: std::io::Error| local(error, "nvme format", path))?;
    check_volume_path(&real).map(drop)
}

fn make(target: &Target, how: &NvmeFormat) -> Result<()> {
    check_reachable(target.path, how.cache)?;
    let is_new = how.size.map_or(Ok(false), |size| make_file(target.path, size, how.cache))?;
    make_on(target, how).inspect_err(|error| {
        // In a conflict somebody else has the file by now.
        if is_new && error.kind() != Kind::Conflict {
            let _ = std::fs::remove_file(target.path);
        }
    })
}

/// Makes a file of a size, unless there is an empty one or one of that size; whether it did. Cached
/// bytes are as private as the objects: nobody else may read them.
fn make_file(path: &Path, size: ByteSize, is_private: bool) -> Result<bool> {
    const OPERATION: &str = "nvme format";
    let mode = if is_private { 0o600 } else { 0o666 };
    match File::options().write(true).create_new(true).mode(mode).open(path) {
        Ok(file) => {
            let sized = file.set_len(size.0).inspect_err(|_| drop(std::fs::remove_file(path)));
            sized.map_err(|error| no_such_size(error, path, size)).map(|()| true)
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let found = std::fs::metadata(path).map_err(|error| local(error, OPERATION, path))?;
            if found.is_file() && [0, size.0].contains(&found.len()) {
                return Ok(false);
            }
            let message = "it is there already, so that it cannot be made with --size";
            Err(Error::new(Kind::Conflict, message)
                .with_operation(OPERATION)
                .with_object(path.display().to_string())
                .with_hint("Leave --size out, or give the file its size with `truncate -s`"))
        }
        Err(error) => Err(local(error, OPERATION, path)),
    }
}

/// The error of a file that cannot be given a size.
fn no_such_size(error: std::io::Error, path: &Path, size: ByteSize) -> Error {
    const OPERATION: &str = "nvme format";
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::InvalidInput | ErrorKind::FileTooLarge => {
            Error::new(Kind::Invalid, format!("no file here can have {} bytes", size.0))
                .with_operation(OPERATION)
                .with_object(path.display().to_string())
                .with_hint("Give --size a smaller one, or name a place on another file system")
        }
        _ => local(error, OPERATION, path),
    }
}

fn make_on(target: &Target, how: &NvmeFormat) -> Result<()> {
    let port = target.port(true, how.size)?;
    if how.cache {
        let size = ByteSize(format_cache_device(&port, how.force)?);
        return print(&format!("{}: a cache of {size}\n", target.shown()));
    }
    format(&port, FormatOptions { force: how.force })?;
    let volume = Volume::open(port)?;
    let (size, free) = (ByteSize(volume.size_bytes()), ByteSize(volume.free_bytes()));
    print(&format!("{}: a volume of {size}, {free} free\n", target.shown()))
}

/// The size of a cache in words.
fn cache_size(cache: &CacheDevice) -> String {
    match cache.capacity_bytes {
        Some(bytes) => format!("a cache of {}", ByteSize(bytes)),
        None => "a cache of another version of Penstock".to_string(),
    }
}

fn ls(target: &Target) -> Result<()> {
    let port = target.port(false, None)?;
    if let Some(cache) = look_at_cache_device(&port)? {
        return print(&format!("{}: {}, no volume\n", target.shown(), cache_size(&cache)));
    }
    let lines = Volume::open(port)?.list().into_iter();
    let lines = lines.map(|file| format!("{:>14}  {}\n", file.size_bytes, shown(&file.name)));
    print(&lines.collect::<String>())
}

fn look(target: &Target) -> Result<()> {
    let port = target.port(false, None)?;
    let fail = |message, hint| {
        Err(Error::new(Kind::Corrupt, message)
            .with_operation("nvme check")
            .with_object(target.name())
            .with_hint(hint))
    };
    let mut text = String::new();
    if let Some(cache) = look_at_cache_device(&port)? {
        for (index, is_sound) in cache.sound_labels.iter().enumerate() {
            let verdict = if *is_sound { "sound" } else { "damaged" };
            text += &format!("label {}: {verdict}\n", index + 1);
        }
        print(&(text + &cache_size(&cache) + "; blocks are checked when they are read\n"))?;
        return match cache.sound_labels.contains(&false) {
            true => fail("one of the cache's labels is damaged", "The next use makes it anew"),
            false => Ok(()),
        };
    }
    let report = check(&port)?;
    for (index, copy) in report.copies.iter().enumerate() {
        text += &format!("table {}: {copy}\n", index + 1);
    }
    for file in &report.files {
        let (size, room) = (file.size_bytes, ByteSize(file.allocated_bytes));
        text += &format!("file {}: {size} bytes in {room}, all of it read\n", shown(&file.name));
    }
    text +=
        &format!("volume: {}, {} free\n", ByteSize(report.size_bytes), ByteSize(report.free_bytes));
    print(&text)?;
    match report.sound_copies == report.copies.len() {
        true => Ok(()),
        false => fail(
            "not every copy of the table is sound",
            "Nothing is lost: the next opening for writing makes the others anew",
        ),
    }
}

fn grow(target: &Target) -> Result<()> {
    let volume = target.volume(true)?;
    let before = volume.size_bytes();
    let size_bytes = volume.grow()?;
    let (size, free) = (ByteSize(size_bytes), ByteSize(volume.free_bytes()));
    let outcome = match size_bytes > before {
        true => "",
        false => "; nothing grew: it has all of the device, which has to become larger first",
    };
    print(&format!("{}: a volume of {size}, {free} free{outcome}\n", target.shown()))
}

fn local(error: std::io::Error, operation: &'static str, path: &Path) -> Error {
    use std::io::ErrorKind;
    let (kind, hint) = match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            (Kind::NotFound, "Look at the path: it has to be there")
        }
        ErrorKind::PermissionDenied => (Kind::Denied, "Ask for access to it, or use another user"),
        ErrorKind::AlreadyExists => {
            (Kind::Conflict, "Nothing is overwritten: name another file, or remove this one")
        }
        ErrorKind::StorageFull => (Kind::Exhausted, "Free space there, or name another place"),
        ErrorKind::IsADirectory => (Kind::Invalid, "Name a file"),
        ErrorKind::ReadOnlyFilesystem => {
            (Kind::Denied, "Name another place, or let it be written to: mount -o remount,rw")
        }
        _ => (Kind::Unavailable, "See the kernel's log (dmesg)"),
    };
    Error::new(kind, error.to_string())
        .with_operation(operation)
        .with_object(path.display().to_string())
        .with_hint(hint)
}

/// A database and what lies beside it now: its name's endings, the database itself first.
fn endings(exists: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let companions = ENDINGS.into_iter().filter(|ending| exists(ending));
    std::iter::once("").chain(companions).collect()
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(ending);
    name.into()
}

/// Copies into the volume under another name and renames at the end, so that a database of this
/// name is never there in part. The log comes first: without its database nobody reads it.
fn import(target: &Target, copy: &NvmeCopy) -> Result<()> {
    const OPERATION: &str = "nvme import";
    check_name(&copy.db, &copy.db).map_err(|error| error.with_operation(OPERATION))?;
    let volume = target.volume(true)?;
    let path = &copy.file;
    let copying = Copying::new(OPERATION)?;
    check_source(path)?;
    let locked = lock(path)?;
    check_magic(&locked, path)?;
    let mut endings = endings(|ending| beside(path, ending).exists());
    let taken: Vec<String> =
        std::iter::once("").chain(ENDINGS).map(|it| copy.db.clone() + it).collect();
    let names: Vec<String> = taken.iter().map(|name| name.clone() + IMPORT_ENDING).collect();
    if !volume.exists(&copy.db) && volume.exists(&names[0]) {
        // An import was killed when its log had its name and its database not yet.
        remove_all(&volume, &taken)?;
    }
    if let Some(name) = taken.iter().find(|name| volume.exists(name)) {
        let device = target.name();
        let hint = format!(
            "An import overwrites nothing: choose another --db, or remove that database and its \
             log with `penstock nvme rm {device} --db {}`",
            copy.db
        );
        return Err(Error::new(Kind::Conflict, format!("there is a file {name} already"))
            .with_operation(OPERATION)
            .with_object(device)
            .with_hint(hint));
    }
    endings.reverse();
    // What an import that was killed has left, a log too that this one has not.
    remove_all(&volume, &names)?;
    let copied = endings.iter().try_for_each(|ending| {
        let name = format!("{}{ending}{IMPORT_ENDING}", copy.db);
        copy_in(&copying, &volume, &beside(path, ending), &name)
    });
    let imported = copied.and_then(|()| {
        endings.iter().try_for_each(|ending| {
            let name = format!("{}{ending}", copy.db);
            volume.rename(&format!("{name}{IMPORT_ENDING}"), &name)
        })
    });
    drop(locked);
    imported.inspect_err(|_| {
        // Their room would be lost. Where even this fails, the error of the copy says more.
        let _ = remove_all(&volume, &names);
    })
}

/// Removes those of the names that are there; how many they were.
fn remove_all(volume: &Volume, names: &[String]) -> Result<usize> {
    let there: Vec<&String> = names.iter().filter(|name| volume.exists(name)).collect();
    there.iter().try_for_each(|name| volume.remove(name))?;
    Ok(there.len())
}

fn refuse_source(path: &Path, message: String, hint: &str) -> Error {
    let error = Error::new(Kind::Invalid, message).with_operation("nvme import");
    error.with_object(path.display().to_string()).with_hint(hint)
}

/// Refuses what is neither a file nor a block device: to open a pipe is to wait for its writer.
fn check_source(path: &Path) -> Result<()> {
    use std::os::unix::fs::FileTypeExt;
    let found = std::fs::metadata(path).map_err(|error| local(error, "nvme import", path))?;
    let kind = found.file_type();
    match kind.is_file() || kind.is_block_device() {
        true => Ok(()),
        false => {
            let message = "it is neither a file nor a block device".to_string();
            Err(refuse_source(path, message, "Name the file of a database"))
        }
    }
}

/// Refuses what DuckDB would not open either.
fn check_magic(file: &File, path: &Path) -> Result<()> {
    use std::os::unix::fs::FileExt;
    /// Behind the checksum of the header.
    const MAGIC: std::ops::Range<usize> = 8..12;
    let mut head = [0; MAGIC.end];
    match file.read_exact_at(&mut head, 0) {
        Ok(()) if head[MAGIC] == *b"DUCK" => Ok(()),
        Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => {
            Err(local(error, "nvme import", path))
        }
        _ => {
            let message = "it is no DuckDB database: DUCK is not at its byte 8".to_string();
            Err(refuse_source(path, message, "Name a file that DuckDB has made with ATTACH"))
        }
    }
}

/// Keeps DuckDB from writing to a database meanwhile, by the lock that its readers take. It goes
/// when any handle of this process on that file is closed, so the database is copied last.
fn lock(path: &Path) -> Result<File> {
    const OPERATION: &str = "nvme import";
    let file = File::open(path).map_err(|error| local(error, OPERATION, path))?;
    match fcntl_lock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(file),
        Err(Errno::ACCESS | Errno::AGAIN) => {
            Err(Error::new(Kind::Conflict, "another process has the database open for writing")
                .with_operation(OPERATION)
                .with_object(path.display().to_string())
                .with_hint("Close it there"))
        }
        Err(errno) => Err(local(errno.into(), OPERATION, path)),
    }
}

fn copy_in(copying: &Copying, volume: &Arc<Volume>, source: &Path, name: &str) -> Result<()> {
    let fail = |error| local(error, "nvme import", source);
    check_source(source)?;
    let mut from = File::open(source).map_err(fail)?;
    let options = OpenFileOptions { create: true, lock: Lock::Write };
    let into = volume.open_file(name, options)?;
    let read = |buffer: &mut [u8], _| fill(&mut from, buffer).map_err(fail);
    copying.copy(read, |bytes, at| into.write_at(bytes, at))?;
    into.sync()
}

/// Reads until the buffer is full or the file ends.
fn fill(from: &mut File, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut count = 0;
    while count < buffer.len() {
        match from.read(&mut buffer[count..]) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

fn remove(target: &Target, db: &str) -> Result<()> {
    let volume = target.volume(true)?;
    let names = std::iter::once("").chain(ENDINGS).map(|ending| format!("{db}{ending}"));
    // And what an import that was killed has left.
    let names: Vec<String> = names.flat_map(|name| [name.clone() + IMPORT_ENDING, name]).collect();
    match remove_all(&volume, &names)? {
        0 => volume.remove(db),
        _ => Ok(()),
    }
}

//! Locks on files and block devices. It decides who is kept out, by which handle, and until when.

use crate::errno::{explain, explain_io};
use crate::kernel::closing::Closing;
use crate::loops;
use penstock_base::{Error, Kind, Result};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::cell::OnceCell;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a claim is waited for that nobody's lock goes with: until a program of a child has
/// started; where the processors are busy, some milliseconds.
const LONGEST: Duration = Duration::from_millis(100);
/// After how long it is looked at without being told: the kernel tells of a close before it lets a
/// claim go.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// A locked file. Dropped by the process that locked it, it is unlocked at once, not only when the
/// last copy of its descriptor is closed: a child that is about to start a program has one until
/// then, and would keep out whoever opens the file next. A child that stays lets it lie.
#[derive(Debug)]
pub(crate) struct Locked {
    file: File,
    process: u32,
}

impl Locked {
    /// A file that is read without a lock: to unlock it in the end does nothing.
    pub(crate) fn by_nobody(file: File) -> Self {
        Locked { file, process: std::process::id() }
    }
}

impl Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // Should it fail, closing does it.
            let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        }
    }
}

/// Opens what shall be claimed: a block device with O_EXCL, which nobody else can have so
/// meanwhile. Who has closed it is in the way as long as a child has a copy of its descriptor, so
/// that is waited for; who still has it is told at once.
pub(crate) fn open_claimed(path: &Path, how: &std::fs::OpenOptions, name: &str) -> Result<File> {
    let owner = || {
        let stat = rustix::fs::stat(path).ok()?;
        owner(&std::fs::read_to_string("/proc/locks").ok()?, stat.st_dev, stat.st_ino)
    };
    let closing = OnceCell::new();
    let wait = || {
        let closing: &Option<Closing> = closing.get_or_init(|| Closing::of(path));
        closing.as_ref().is_some_and(|closing| {
            closing.wait(BETWEEN_LOOKS);
            true
        })
    };
    wait_for_claim(|| how.open(path), owner, wait, name)
}

/// Opens, as often as `wait` says that it is worth it, as long as that is refused for a claim
/// whose `owner` is not known.
fn wait_for_claim(
    open: impl Fn() -> io::Result<File>,
    owner: impl Fn() -> Option<u32>,
    wait: impl Fn() -> bool,
    name: &str,
) -> Result<File> {
    let begun = Instant::now();
    loop {
        let error = match open() {
            Ok(file) => return Ok(file),
            Err(error) => error,
        };
        let is_busy = error.raw_os_error() == Some(Errno::BUSY.raw_os_error());
        if let Some(pid) = is_busy.then(&owner).flatten() {
            return Err(taken(Some(pid), name));
        }
        if !is_busy || begun.elapsed() >= LONGEST || !wait() {
            return Err(explain_io(&error, "device open", name));
        }
    }
}

/// The error of a device that another process has, or this one.
fn taken(owner: Option<u32>, name: &str) -> Error {
    let whose = match owner {
        Some(pid) if pid == std::process::id() => "This process has it. ".to_string(),
        Some(pid) => format!("Process {pid} has it. "),
        None => String::new(),
    };
    let message =
        "another process has the device open, or this one by another name or for something else";
    Error::new(Kind::Conflict, message)
        .with_operation("device lock")
        .with_object(name)
        .with_hint(format!("{whose}Close it there; several processes may only read together"))
}

/// Locks for writing or for reading, or tells who is in the way.
pub(crate) fn lock(file: File, write: bool, name: &str) -> Result<Locked> {
    let operation = match write {
        true => FlockOperation::NonBlockingLockExclusive,
        false => FlockOperation::NonBlockingLockShared,
    };
    match rustix::fs::flock(&file, operation) {
        Ok(()) => Ok(Locked { file, process: std::process::id() }),
        Err(Errno::WOULDBLOCK) => {
            let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
            let stat = rustix::fs::fstat(&file);
            let owner = stat.ok().and_then(|stat| owner(&locks, stat.st_dev, stat.st_ino));
            Err(taken(owner, name))
        }
        Err(errno) => Err(explain(errno, "device lock", name)),
    }
}

/// The process that locked a file, as /proc/locks tells it (proc_locks(5)); `None` where it does
/// not: of other namespaces the numbers mean nothing here, and some file systems name another
/// device there.
fn owner(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let place = format!("{major:02x}:{minor:02x}:{inode}");
    let is_it = |line: &&str| {
        let mut words = line.split_ascii_whitespace();
        words.nth(1) == Some("FLOCK") && words.nth(3) == Some(&place)
    };
    let pid = locks.lines().find(is_it)?.split_ascii_whitespace().nth(4)?.parse().ok()?;
    (pid > 0).then_some(pid)
}

/// A file and a loop device over it are the same bytes, and neither lock keeps the other out. So
/// who opens the device locks the file too, and gets it to hold; who wants to write to the file is
/// refused while there is a device over it, whoever uses that.
pub(crate) fn lock_other_name(
    held: &File,
    is_block: bool,
    write: bool,
    name: &str,
) -> Result<Option<Locked>> {
    let stat = rustix::fs::fstat(held).map_err(|errno| explain(errno, "device open", name))?;
    if is_block {
        return loops::file_under(&stat).map(|file| lock(file, write, name)).transpose();
    }
    if write && let Some(device) = loops::device_over(&stat) {
        let device = device.display();
        return Err(Error::new(Kind::Conflict, format!("{device} is a loop device over it"))
            .with_operation("device open")
            .with_object(name)
            .with_hint(format!("Name {device}, or take it away with `losetup -d {device}`")));
    }
    Ok(None)
}

/// The path may have come to mean another file between the two openings.
pub(crate) fn check_same(held: &File, file: &File, name: &str) -> Result<()> {
    let stat = |file| rustix::fs::fstat(file).map_err(|errno| explain(errno, "device open", name));
    let (held, file) = (stat(held)?, stat(file)?);
    if (held.st_dev, held.st_ino) == (file.st_dev, file.st_ino) {
        return Ok(());
    }
    Err(Error::new(Kind::Conflict, "the path was given to another file meanwhile")
        .with_operation("device open")
        .with_object(name)
        .with_hint("Open it again"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::fork::fork;
    use std::cell::Cell;
    use std::io::{Read as _, Write as _};

    #[test]
    fn the_owner_of_a_lock_is_named() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 fe:00:42 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 26526 fe:00:42 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 9 fe:00:43 0 EOF\n\
                     3: FLOCK  ADVISORY  READ 0 fe:00:44 0 EOF\n";
        let device = rustix::fs::makedev(0xfe, 0);
        assert_eq!(owner(locks, device, 42), Some(26526));
        assert_eq!(owner(locks, device, 43), None, "who waits has it not");
        assert_eq!(owner(locks, device, 44), None, "of another namespace");
        assert_eq!(owner(locks, rustix::fs::makedev(0xfd, 0), 42), None);
        for strange in ["", "x", "1: FLOCK", "1: FLOCK ADVISORY WRITE x fe:00:42 0 EOF"] {
            assert_eq!(owner(strange, device, 42), None);
        }
        // Of a file in memory: not all file systems tell the same device in both places.
        let memory = rustix::fs::memfd_create("locked", rustix::fs::MemfdFlags::CLOEXEC);
        let memory = File::from(memory.expect("there is memory"));
        let again = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&memory));
        let _held = lock(memory, true, "it").expect("nobody has it");
        let refused = lock(File::open(again).expect("it is open"), true, "it");
        let refused = refused.expect_err("it is locked");
        assert!(refused.hint().expect("a hint").starts_with("This process has it."), "{refused}");
    }

    #[test]
    fn a_claim_that_is_about_to_go_is_waited_for() {
        let busy = || io::Error::from_raw_os_error(Errno::BUSY.raw_os_error());
        let (tries, waits) = (Cell::new(0), Cell::new(0));
        let is_free_after = |many: u32| {
            tries.set(0);
            waits.set(0);
            let tries = &tries;
            move || {
                tries.set(tries.get() + 1);
                if tries.get() > many { File::open("/dev/null") } else { Err(busy()) }
            }
        };
        let wait = || {
            waits.set(waits.get() + 1);
            true
        };
        wait_for_claim(is_free_after(3), || None, wait, "it").expect("a child had it");
        assert_eq!((tries.get(), waits.get()), (4, 3));
        let mounted = wait_for_claim(is_free_after(u32::MAX), || None, wait, "it");
        let mounted = mounted.expect_err("it stays in use");
        assert!(mounted.to_string().contains("in use: mounted"), "{mounted}");
        let cannot = wait_for_claim(is_free_after(3), || None, || false, "it");
        assert_eq!(cannot.expect_err("nobody tells").kind(), Kind::Conflict);
        assert_eq!(tries.get(), 1);
        let locked = wait_for_claim(is_free_after(3), || Some(7), wait, "it");
        let locked = locked.expect_err("7 has it");
        assert!(locked.hint().expect("a hint").starts_with("Process 7 has it."), "{locked}");
        assert_eq!((tries.get(), waits.get()), (1, 0), "nobody waits for that");
        let absent = wait_for_claim(|| File::open("/nowhere"), || Some(7), wait, "it");
        assert_eq!(absent.expect_err("there is none").kind(), Kind::NotFound);
    }

    /// A child has a copy of the descriptor; one that is about to start a program keeps it for a
    /// moment, this one until it is told to end.
    #[test]
    fn a_lock_ends_with_its_owner_whoever_has_a_copy() {
        let path = std::env::temp_dir().join(format!("penstock-locked-{}", std::process::id()));
        let file = || std::fs::File::create(&path).expect("creates");
        let mut held = Some(lock(file(), true, "it").expect("nobody has it"));
        let (mut dropped, mut told) = std::io::pipe().expect("there is a pipe");
        let (mut go, mut begin) = std::io::pipe().expect("there is a pipe");
        let keeps = fork(|| {
            go.read_exact(&mut [0]).expect("the parent says when");
        });
        let drops = fork(|| {
            drop(held.take());
            told.write_all(&[1]).expect("the parent waits");
        });
        dropped.read_exact(&mut [0]).expect("the child says when");
        assert!(drops.ends_well());
        let refused = lock(file(), true, "it").expect_err("a child's copy is not the lock");
        assert_eq!(refused.kind(), Kind::Conflict, "{refused}");
        // It was this process, as where a loop device is over a file.
        assert!(refused.message().contains("or this one by another name"), "{refused}");
        drop(held.take());
        let again = lock(file(), true, "it");
        begin.write_all(&[1]).expect("the child waits");
        assert!(keeps.ends_well());
        let _ = std::fs::remove_file(&path);
        again.expect("its owner let it go");
    }
}

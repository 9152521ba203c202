//! What belongs to the process that made it. A child of a fork has a copy of everything in memory,
//! but none of the threads, its locks may be held by threads that it has not, and what the device
//! holds changes without its knowledge. So it lets all of that lie, and is told what to do instead.

use penstock_base::{Error, Kind};
use std::ops::Deref;

/// A value that a child of a fork neither closes nor waits for when it drops its copy.
#[derive(Debug)]
pub(crate) struct Own<T> {
    /// Empty only while it is being dropped.
    value: Option<T>,
    process: u32,
}

impl<T> Own<T> {
    pub(crate) fn new(value: T) -> Self {
        Own { value: Some(value), process: std::process::id() }
    }

    /// Whether this is the process that made it.
    pub(crate) fn is_here(&self) -> bool {
        self.process == std::process::id()
    }
}

impl<T> Deref for Own<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("it is there until it is dropped")
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if !self.is_here() {
            std::mem::forget(self.value.take());
        }
    }
}

/// The error of a child that uses what its parent has open.
pub(crate) fn forked(operation: &'static str, object: &str) -> Error {
    let message = "this process was forked while the volume was open, and that stays its parent's";
    Error::new(Kind::Unsupported, message)
        .with_operation(operation)
        .with_object(object)
        .with_hint("Detach it before the fork, or start a new process that attaches it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::fork::fork;
    use crate::volume::{File, FormatOptions, Lock, OpenFileOptions, TEMP_PREFIX};
    use crate::volume::{SharedVolume, Volume, format};
    use crate::{Discipline, Io, OpenOptions, Port, open};
    use penstock_base::Result;
    use std::io::{Read as _, Write as _};
    use std::path::{Path, PathBuf};
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

    const BLOCK: usize = 64 << 10;
    const BLOCKS: usize = 40;

    /// A child holds every lock that its parent's other threads have at the fork, so these tests
    /// take turns.
    static TURN: Mutex<()> = Mutex::new(());

    /// A volume in a file, which goes with this.
    struct Disk(PathBuf, #[allow(dead_code)] MutexGuard<'static, ()>);

    impl Disk {
        fn new(name: &str) -> Self {
            let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
            let name = format!("penstock-forked-{name}-{}", std::process::id());
            let disk = Disk(std::env::temp_dir().join(name), turn);
            let options =
                OpenOptions { create_bytes: Some(12 << 20), ..OpenOptions::new(Io::File) };
            let device = open(&disk.0, &options).expect("makes the file");
            let port = Port::new(device, Discipline::Thread).expect("has queues");
            format(&port, FormatOptions::default()).expect("it is empty");
            disk
        }
    }

    impl Drop for Disk {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn shared(path: &Path) -> Result<SharedVolume> {
        SharedVolume::open(path, &OpenOptions::new(Io::Direct), Discipline::Thread)
    }

    fn file(volume: &Arc<Volume>, name: &str) -> Result<File> {
        volume.open_file(name, OpenFileOptions { create: true, lock: Lock::None })
    }

    fn fill(file: &File, byte: u8) {
        for number in 0..BLOCKS {
            file.write_at(&[byte; BLOCK], (number * BLOCK) as u64).expect("writes");
        }
        file.sync().expect("syncs");
    }

    fn holds(file: &File, byte: u8) -> bool {
        (0..BLOCKS).all(|number| {
            let mut found = [0; BLOCK];
            file.read_at(&mut found, (number * BLOCK) as u64).expect("reads");
            found == [byte; BLOCK]
        })
    }

    /// What its parent had freed when it forked is not the child's to trim: it was taken since.
    #[test]
    fn a_child_of_a_fork_uses_and_closes_nothing_of_its_parents_volume() {
        let disk = Disk::new("parent");
        let volume = shared(&disk.0).expect("opens");
        let db = file(&volume, "db").expect("creates");
        fill(&db, 1);
        // Both threads of the volume are there, and freed pages wait to be trimmed.
        assert!(holds(&db, 1));
        let spilled = format!("{TEMP_PREFIX}a");
        fill(&file(&volume, &spilled).expect("creates"), 2);
        volume.remove(&spilled).expect("removes");

        let (mut go, mut begin) = std::io::pipe().expect("there is a pipe");
        let mut held = Some((volume, db));
        let child = fork(|| {
            go.read_exact(&mut [0]).expect("the parent says when");
            let (volume, db) = held.take().expect("it has a copy");
            let refused = [
                db.read_at(&mut [0; 10], 0).map(drop),
                db.write_at(&[9; 10], 0),
                db.truncate(0),
                db.sync(),
                db.trim(0, 8192),
                volume
                    .open_file("db", OpenFileOptions { create: false, lock: Lock::None })
                    .map(drop),
                volume.remove("db"),
                volume.rename("db", "other"),
                volume.grow().map(drop),
                shared(&disk.0).map(drop),
            ];
            for outcome in refused {
                let error = outcome.expect_err("it is the parent's");
                assert_eq!(error.kind(), Kind::Unsupported, "{error}");
                assert!(error.to_string().contains("forked"), "{error}");
                assert!(error.hint().is_some(), "{error}");
            }
            drop((volume.clone(), db, volume));
        });
        let (volume, db) = held.take().expect("the child has a copy of it");
        let after = file(&volume, "after").expect("creates");
        fill(&after, 3);
        begin.write_all(&[1]).expect("the child waits");
        assert!(child.ends_well());
        assert!(holds(&db, 1) && holds(&after, 3));
        fill(&db, 4);
        assert!(holds(&db, 4));
        let error = open(&disk.0, &OpenOptions::new(Io::Direct)).err().expect("it is locked");
        assert_eq!(error.kind(), Kind::Conflict, "{error}");
    }

    #[test]
    fn a_child_of_a_fork_opens_what_its_parent_has_not() {
        let disk = Disk::new("child");
        let child = fork(|| {
            let volume = shared(&disk.0).expect("nobody has it");
            fill(&file(&volume, "db").expect("creates"), 5);
        });
        assert!(child.ends_well());
        let volume = shared(&disk.0).expect("the child is gone");
        assert!(holds(&file(&volume, "db").expect("it is there"), 5));
    }

    /// Both only read, so the child may open what its parent has open; and what it drops of its
    /// parent's does not count for what it has opened itself.
    #[test]
    fn a_child_of_a_fork_that_reads_what_its_parent_reads_keeps_it_until_its_own_end() {
        let disk = Disk::new("readers");
        fill(&file(&shared(&disk.0).expect("opens"), "db").expect("creates"), 6);
        let options = || OpenOptions { write: false, ..OpenOptions::new(Io::Direct) };
        let read = || SharedVolume::open(&disk.0, &options(), Discipline::Thread);
        let mut inherited = Some(read().expect("nobody writes"));
        let child = fork(|| {
            let own = read().expect("both read");
            drop(inherited.take().map(|volume| (volume.clone(), volume)));
            assert!(SharedVolume::is_open(&disk.0), "it has it open still");
            let again = read().expect("it joins what is open");
            assert!(Arc::ptr_eq(&own, &again));
            drop(own);
            assert!(SharedVolume::is_open(&disk.0));
            let plain = OpenFileOptions { create: false, lock: Lock::None };
            assert!(holds(&again.open_file("db", plain).expect("it is there"), 6));
            drop(again);
            assert!(!SharedVolume::is_open(&disk.0));
        });
        assert!(child.ends_well());
        assert!(SharedVolume::is_open(&disk.0));
    }
}

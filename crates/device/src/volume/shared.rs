//! Volumes that a process has open, by device: a database that is attached finds the volume that
//! another one on the same device has opened. It decides when a volume is closed: with its last
//! handle.

use crate::device::Device;
use crate::open::{Io, IoChoice, OpenOptions, QUEUE_DEPTH, open_by};
use crate::port::Port;
use crate::process::forked;
use crate::queues::Discipline;
use crate::volume::Volume;
use crate::wait::Wait;
use penstock_base::{Error, Kind, Result};
use rustix::fs::FileType;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// How somebody wants a device to be opened; what is `None` is left open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// How bytes move; who says `auto` takes whatever it is open by already.
    pub io: Option<IoChoice>,
    /// How threads share queues.
    pub discipline: Option<Discipline>,
    /// Most commands in flight per queue.
    pub queue_depth: Option<u32>,
    /// How threads wait for commands.
    pub wait: Option<Wait>,
}

impl Asked {
    /// Opens a device so; what is left open is chosen. Tells the io too.
    ///
    /// # Errors
    /// As [`open_by`].
    pub fn open(
        self,
        path: &Path,
        write: bool,
        create_bytes: Option<u64>,
    ) -> Result<(Io, Arc<dyn Device>)> {
        let Asked { io, queue_depth, wait, .. } = self;
        let wait = wait.unwrap_or_default();
        let options =
            OpenOptions { write, create_bytes, queue_depth, wait, ..OpenOptions::new(Io::Uring) };
        open_by(path, io.unwrap_or_default(), &options)
    }

    /// How threads share its queues, also where that is left open.
    pub fn discipline(self) -> Discipline {
        self.discipline.unwrap_or(Discipline::Thread)
    }
}

/// What [`SharedVolume::join`] is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// Whether anything will be written. A reader may join a writer.
    pub write: bool,
    /// What must be so, also if the device is open already.
    pub asked: Asked,
    /// What else is taken if it is not open yet.
    pub otherwise: Asked,
}

/// How a process has a device open; every handle has it open alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct How {
    io: Io,
    discipline: Discipline,
    queue_depth: u32,
    wait: Wait,
    write: bool,
}

impl How {
    /// What a wish asks for that is otherwise; empty if it suits.
    fn missing(self, wish: &Wish) -> Vec<String> {
        let asked = wish.asked;
        let io = asked.io.filter(|io| *io != IoChoice::Auto);
        let unlike = Asked { io, ..asked }.unlike(Asked {
            io: Some(IoChoice::By(self.io)),
            discipline: Some(self.discipline),
            queue_depth: Some(self.queue_depth),
            wait: Some(self.wait),
        });
        let access = (wish.write && !self.write).then(|| "writing".to_string());
        let parameters = unlike.to_string();
        let named = parameters.split('&').filter(|it| !it.is_empty()).map(str::to_string);
        access.into_iter().chain(named).collect()
    }

    /// Opens the volume, and tells how.
    fn open(path: &Path, wish: &Wish) -> Result<(Self, Arc<Volume>)> {
        let (asked, write) = (wish.asked.or(wish.otherwise), wish.write);
        let (io, device) = asked.open(path, write, None).map_err(|error| match error.kind() {
            Kind::Conflict if is_inherited(path) => {
                forked("volume open", &path.display().to_string())
            }
            _ => error,
        })?;
        let discipline = asked.discipline();
        let queue_depth = asked.queue_depth.unwrap_or(QUEUE_DEPTH);
        let how = How { io, discipline, queue_depth, wait: asked.wait.unwrap_or_default(), write };
        let port = Port::new(device, discipline)?;
        let volume = match io {
            // The page cache reads ahead and writes behind.
            Io::File => Volume::open(port),
            // The others are there to be compared; threads beside the callers' are no part of them.
            _ if discipline == Discipline::Thread => Volume::open_with_helpers(port),
            _ => Volume::open(port),
        };
        Ok((how, volume?))
    }
}

/// Which device it is, whatever path leads to it: its own number, or that of a file's file system
/// and the file's in it.
type Key = (Kin, u64, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kin {
    Block,
    Character,
    File,
}

struct Row {
    key: Key,
    how: How,
    volume: Arc<Volume>,
    handles: usize,
}

/// What one process has open, and in a child of a fork what its parent had: the child begins with
/// none, for it must neither use those nor wait for their lock.
#[derive(Default)]
struct Open {
    process: OnceLock<u32>,
    rows: Mutex<Vec<Row>>,
    of_child: OnceLock<Box<Open>>,
}

static OPEN: Open =
    Open { process: OnceLock::new(), rows: Mutex::new(Vec::new()), of_child: OnceLock::new() };

/// What this process has open, and what its ancestors had when they forked.
fn open_here() -> (&'static Open, Vec<&'static Open>) {
    let here = std::process::id();
    let (mut open, mut inherited) = (&OPEN, Vec::new());
    while *open.process.get_or_init(|| here) != here {
        inherited.push(open);
        open = open.of_child.get_or_init(Box::default);
    }
    (open, inherited)
}

/// Rows are added and taken out whole.
fn rows() -> MutexGuard<'static, Vec<Row>> {
    open_here().0.rows.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a device was open when this process was forked.
fn is_inherited(path: &Path) -> bool {
    let Some(key) = key(path) else { return false };
    let has = |rows: &[Row]| rows.iter().any(|row| row.key == key);
    open_here().1.iter().any(|open| open.rows.try_lock().is_ok_and(|rows| has(&rows)))
}

/// A handle to a volume that others in the process may have open too. Files that were opened
/// through it should be dropped first: the device is free for others after the last of all.
pub struct SharedVolume {
    // Empty only while it is being dropped.
    volume: Option<Arc<Volume>>,
}

impl SharedVolume {
    /// Opens the volume on a device, or joins those who have it open with this io and discipline.
    ///
    /// # Errors
    /// As [`SharedVolume::join`].
    pub fn open(path: &Path, options: &OpenOptions, discipline: Discipline) -> Result<Self> {
        let (io, discipline) = (Some(IoChoice::By(options.io)), Some(discipline));
        let asked = Asked { io, discipline, ..Asked::default() };
        let (queue_depth, wait) = (options.queue_depth, Some(options.wait));
        let otherwise = Asked { queue_depth, wait, ..Asked::default() };
        Self::join(path, &Wish { write: options.write, asked, otherwise })
    }

    /// Opens the volume on a device, or joins those who have it open.
    ///
    /// # Errors
    /// As [`open`](crate::open()) and [`Volume::open`]; `Conflict` if it is open otherwise than
    /// asked, or read-only and should be written.
    pub fn join(path: &Path, wish: &Wish) -> Result<Self> {
        // Held while a volume opens, so that two threads do not meet as two owners would.
        let mut rows = rows();
        if let Some(found) = Self::find(&mut rows, path, wish)? {
            return Ok(found);
        }
        let (how, volume) = How::open(path, wish)?;
        let Some(key) = key(path) else {
            return Err(Error::new(Kind::Unavailable, "the device went while it was opened")
                .with_operation("volume open")
                .with_object(path.display().to_string())
                .with_hint("Look whether it is there, and open it again"));
        };
        rows.push(Row { key, how, volume: volume.clone(), handles: 1 });
        Ok(SharedVolume { volume: Some(volume) })
    }

    /// Looks at a volume. If nobody has it open, it is opened for the time of the look, in which
    /// nobody of this process opens any: a look is never in the way of a writer.
    ///
    /// # Errors
    /// As [`SharedVolume::join`], and those of `look`.
    pub fn peek<T>(
        path: &Path,
        wish: &Wish,
        look: impl FnOnce(&Arc<Volume>) -> Result<T>,
    ) -> Result<T> {
        let wish = Wish { write: false, ..*wish };
        let mut rows = rows();
        if let Some(found) = Self::find(&mut rows, path, &wish)? {
            drop(rows);
            return look(&found);
        }
        let (_, volume) = How::open(path, &wish)?;
        look(&volume)
    }

    /// Whether the process has the device open.
    pub fn is_open(path: &Path) -> bool {
        let rows = rows();
        key(path).is_some_and(|key| rows.iter().any(|row| row.key == key))
    }

    fn find(rows: &mut [Row], path: &Path, wish: &Wish) -> Result<Option<Self>> {
        let Some(key) = key(path) else { return Ok(None) };
        let Some(row) = rows.iter_mut().find(|row| row.key == key) else { return Ok(None) };
        let missing = row.how.missing(wish);
        if !missing.is_empty() {
            return Err(conflict(row.how, &missing, path));
        }
        row.handles += 1;
        Ok(Some(SharedVolume { volume: Some(row.volume.clone()) }))
    }
}

fn conflict(how: How, missing: &[String], path: &Path) -> Error {
    let How { io, discipline, queue_depth, wait, write } = how;
    let access = if write { "for writing" } else { "read-only" };
    let (queues, wait, missing) = (discipline.name(), wait.name(), missing.join(" and "));
    let message = format!(
        "it is open already {access}, with io={io}, queues={queues}, depth={queue_depth} and \
         wait={wait}; this asks for {missing}"
    );
    Error::new(Kind::Conflict, message)
        .with_operation("volume open")
        .with_object(path.display().to_string())
        .with_hint(
            "Open it alike (what SET says counts as if the URL said it), or first close the other \
             databases on it, or the DuckDB that spills to it",
        )
}

fn key(path: &Path) -> Option<Key> {
    let stat = rustix::fs::stat(path).ok()?;
    Some(match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => (Kin::Block, stat.st_rdev, 0),
        FileType::CharacterDevice => (Kin::Character, stat.st_rdev, 0),
        _ => (Kin::File, stat.st_dev, stat.st_ino),
    })
}

impl Deref for SharedVolume {
    type Target = Arc<Volume>;

    fn deref(&self) -> &Arc<Volume> {
        self.volume.as_ref().expect("it is there until the handle is dropped")
    }
}

/// Which row counts the handles of this volume. None in a child of a fork whose parent's it is,
/// also where the child has the same device open itself.
fn row_of(rows: &[Row], volume: &Arc<Volume>) -> Option<usize> {
    rows.iter().position(|row| Arc::ptr_eq(&row.volume, volume))
}

impl Clone for SharedVolume {
    fn clone(&self) -> Self {
        let mut rows = rows();
        if let Some(index) = row_of(&rows, self) {
            rows[index].handles += 1;
        }
        SharedVolume { volume: self.volume.clone() }
    }
}

impl Drop for SharedVolume {
    fn drop(&mut self) {
        let mut rows = rows();
        let found = row_of(&rows, self);
        self.volume = None;
        let Some(index) = found else { return };
        rows[index].handles -= 1;
        if rows[index].handles == 0 {
            // Closed with the lock held: who opens it next must find it free.
            drop(rows.swap_remove(index));
        }
    }
}

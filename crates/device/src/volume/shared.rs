//! Volumes that a process has open, by device: a database that is attached finds the volume that
//! another one on the same device has opened. It decides when a volume is closed: with its last
//! handle.

use crate::open::{OpenOptions, open};
use crate::port::Port;
use crate::queues::Discipline;
use crate::volume::Volume;
use penstock_base::{Error, Kind, Result};
use rustix::fs::FileType;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How a process has a device open; every handle has it open alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct How {
    io: crate::Io,
    discipline: Discipline,
    write: bool,
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

static OPEN: Mutex<Vec<Row>> = Mutex::new(Vec::new());

/// Rows are added and taken out whole.
fn rows() -> MutexGuard<'static, Vec<Row>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A handle to a volume that others in the process may have open too. Files that were opened
/// through it should be dropped first: the device is free for others after the last of all.
pub struct SharedVolume {
    // Empty only while it is being dropped.
    volume: Option<Arc<Volume>>,
    key: Key,
}

impl SharedVolume {
    /// Opens the volume on a device, or joins those who have it open.
    ///
    /// # Errors
    /// As [`open`] and [`Volume::open`]; `Conflict` if it is open with another io or discipline,
    /// or read-only and should be written.
    pub fn open(path: &Path, options: &OpenOptions, discipline: Discipline) -> Result<Self> {
        let wish = How { io: options.io, discipline, write: options.write };
        // Held while a volume opens, so that two threads do not meet as two owners would.
        let mut rows = rows();
        if let Some(key) = key(path)
            && let Some(row) = rows.iter_mut().find(|row| row.key == key)
        {
            if row.how != wish {
                return Err(conflict(row.how, path));
            }
            row.handles += 1;
            return Ok(SharedVolume { volume: Some(row.volume.clone()), key });
        }
        let volume = Volume::open(Port::new(open(path, options)?, discipline)?)?;
        let Some(key) = key(path) else {
            return Err(Error::new(Kind::Unavailable, "the device went while it was opened")
                .with_object(path.display().to_string()));
        };
        rows.push(Row { key, how: wish, volume: volume.clone(), handles: 1 });
        Ok(SharedVolume { volume: Some(volume), key })
    }
}

fn conflict(how: How, path: &Path) -> Error {
    let name = crate::Io::ALL.iter().find(|row| row.0 == how.io).map_or("", |row| row.1);
    let queues = Discipline::ALL.iter().find(|row| row.0 == how.discipline);
    let queues = queues.map_or("", |row| row.1);
    let access = if how.write { "for writing" } else { "read-only" };
    let message = format!("it is open already {access}, with io={name} and queues={queues}");
    Error::new(Kind::Conflict, message)
        .with_operation("volume open")
        .with_object(path.display().to_string())
        .with_hint("Open it alike, or close the other databases on it first")
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

impl Clone for SharedVolume {
    fn clone(&self) -> Self {
        let mut rows = rows();
        let row = rows.iter_mut().find(|row| row.key == self.key);
        row.expect("a volume with a handle has a row").handles += 1;
        SharedVolume { volume: self.volume.clone(), key: self.key }
    }
}

impl Drop for SharedVolume {
    fn drop(&mut self) {
        let mut rows = rows();
        self.volume = None;
        let Some(index) = rows.iter().position(|row| row.key == self.key) else { return };
        rows[index].handles -= 1;
        if rows[index].handles == 0 {
            // Closed with the lock held: who opens it next must find it free.
            drop(rows.swap_remove(index));
        }
    }
}

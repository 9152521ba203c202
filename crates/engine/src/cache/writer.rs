//! The thread that writes blocks: into one open file at a time, the oldest file giving way.

use crate::cache::disk::{Queued, Shared, State, read_checked};
use crate::cache::index::{Place, Survivor};
use crate::cache::record::{HEAD_BYTES, Record, trailer};
use bytes::Bytes;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, MutexGuard, PoisonError};

/// A file is this part of the capacity, within limits, so that what is forgotten at once is little
/// and the number of open files small.
const FILES: u64 = 64;
const FILE_BYTES_MIN: u64 = 4 << 20;
const FILE_BYTES_MAX: u64 = 256 << 20;

/// The file that is written.
struct OpenFile {
    number: u64,
    epoch: u64,
    file: Arc<File>,
    position: u64,
    /// Headers of all its records.
    directory: Vec<u8>,
}

/// Blocks of a forgotten file, which is removed but still open.
type Survivors = VecDeque<(Survivor, Arc<File>)>;

/// Writes until the end; then closes the open file in good order.
pub(super) fn run(shared: &Shared) {
    let mut open: Option<OpenFile> = None;
    let mut survivors = Survivors::new();
    loop {
        let next = match survivors.pop_front() {
            Some((survivor, file)) => revive(shared, &survivor, &file),
            None => match wait(shared) {
                Some(queued) => Some(queued),
                None => break,
            },
        };
        if let Some(queued) = next {
            write(shared, &mut open, &mut survivors, queued);
        }
    }
    if let Some(open) = open {
        // Without its directory the next start walks the file.
        let _ = open.close();
    }
}

/// The next block to write; `None` at the end.
fn wait(shared: &Shared) -> Option<Queued> {
    let mut state = shared.lock();
    state.is_writing = false;
    shared.changed.notify_all();
    let idle = |state: &mut State| state.queue.is_empty() && !state.is_ending;
    let mut state = shared.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
    let queued = state.queue.pop_front()?;
    state.queue_bytes -= queued.range.len();
    state.is_writing = true;
    Some(queued)
}

/// A block of a removed file, as if it had been offered anew.
fn revive(shared: &Shared, survivor: &Survivor, file: &File) -> Option<Queued> {
    let mut block = vec![0; usize::try_from(survivor.block.len()).ok()?];
    if !read_checked(file, survivor.position, survivor.crc, &mut block) {
        shared.lock().counts.corrupt_blocks += 1;
        return None;
    }
    let bytes = Bytes::from(block);
    let mut state = shared.lock();
    // Somebody may have offered it meanwhile.
    if state.index.gaps(&survivor.version, survivor.block) != [survivor.block] {
        return None;
    }
    state.index.insert(&survivor.version, survivor.block, Place::Queued(bytes.clone()));
    let version = survivor.version.clone();
    Some(Queued { version, range: survivor.block, bytes, lease: None })
}

/// Writes one block, or forgets it where the disk does not take it.
fn write(shared: &Shared, open: &mut Option<OpenFile>, survivors: &mut Survivors, queued: Queued) {
    let crc = crc32fast::hash(&queued.bytes);
    let record = Record { version: queued.version.clone(), range: queued.range, crc };
    let header = record.header();
    let record_bytes = header.len() as u64 + queued.range.len();
    let mut written = ready(shared, open, survivors, record_bytes)
        .and_then(|open| open.append(&header, &queued.bytes));
    if written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::StorageFull) {
        // Others filled the disk: the cache makes room for itself, and stays smaller.
        let state = shared.lock();
        if forget_oldest(shared, state, open.as_ref(), survivors) {
            written = ready(shared, open, survivors, record_bytes)
                .and_then(|open| open.append(&header, &queued.bytes));
        }
    }
    let mut state = shared.lock();
    let Queued { version, range, bytes: _, lease } = queued;
    match (written, open) {
        (Ok(position), Some(open)) if open.epoch == state.epoch => {
            let place = (open.number, position, crc);
            if state.index.settle(&version, range.start, place) {
                state.counts.written_bytes += range.len();
            }
            state.index.file_grew(open.number, open.position);
        }
        (Ok(_), _) => state.index.forget(&version, range.start, None),
        (Err(_), _) => {
            state.index.forget(&version, range.start, None);
            state.counts.failed_blocks += 1;
        }
    }
    drop(state);
    drop(lease);
}

/// The open file with room for a record, all files together within the capacity.
fn ready<'a>(
    shared: &Shared,
    open: &'a mut Option<OpenFile>,
    survivors: &mut Survivors,
    record_bytes: u64,
) -> io::Result<&'a mut OpenFile> {
    let (epoch, capacity_bytes) = {
        let state = shared.lock();
        (state.epoch, state.capacity_bytes)
    };
    let file_bytes = (capacity_bytes / FILES).clamp(FILE_BYTES_MIN, FILE_BYTES_MAX);
    match open.take() {
        // Cleared: the file is removed.
        Some(old) if old.epoch != epoch => {}
        Some(full) if full.position + record_bytes > file_bytes => {
            let number = full.number;
            let bytes = full.close()?;
            shared.lock().index.file_grew(number, bytes);
        }
        fitting => *open = fitting,
    }
    loop {
        let state = shared.lock();
        let fits = state.index.file_bytes() + record_bytes <= capacity_bytes;
        if fits || !forget_oldest(shared, state, open.as_ref(), survivors) {
            break;
        }
    }
    match open {
        Some(open) => Ok(open),
        None => Ok(open.insert(OpenFile::create(shared, epoch)?)),
    }
}

/// Forgets the oldest file that is not open; `false` where there is none.
fn forget_oldest(
    shared: &Shared,
    mut state: MutexGuard<'_, State>,
    open: Option<&OpenFile>,
    survivors: &mut Survivors,
) -> bool {
    let Some((number, kept)) = state.index.forget_oldest(open.map(|open| open.number)) else {
        return false;
    };
    let file = state.files.remove(&number);
    drop(state);
    shared.directory.remove(number);
    if let Some(file) = file {
        survivors.extend(kept.into_iter().map(|survivor| (survivor, Arc::clone(&file))));
    }
    true
}

impl OpenFile {
    fn create(shared: &Shared, epoch: u64) -> io::Result<Self> {
        let number = {
            let mut state = shared.lock();
            state.next_file += 1;
            state.next_file - 1
        };
        let file = Arc::new(shared.directory.create(number)?);
        let mut state = shared.lock();
        if state.epoch == epoch {
            state.files.insert(number, Arc::clone(&file));
            state.index.file_grew(number, HEAD_BYTES);
        } else {
            shared.directory.remove(number);
        }
        Ok(OpenFile { number, epoch, file, position: HEAD_BYTES, directory: Vec::new() })
    }

    /// Where the block begins in the file. The header is written last: a record whose bytes did
    /// not arrive has none.
    fn append(&mut self, header: &[u8], block: &[u8]) -> io::Result<u64> {
        let position = self.position + header.len() as u64;
        self.file.write_all_at(block, position)?;
        self.file.write_all_at(header, self.position)?;
        self.directory.extend(header);
        self.position = position + block.len() as u64;
        Ok(position)
    }

    /// Writes the directory; the file's length.
    fn close(self) -> io::Result<u64> {
        let trailer = trailer(self.position, &self.directory);
        self.file.write_all_at(&self.directory, self.position)?;
        let end = self.position + self.directory.len() as u64;
        self.file.write_all_at(&trailer, end)?;
        Ok(end + trailer.len() as u64)
    }
}

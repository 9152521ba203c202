//! The thread that writes blocks: into one open file at a time, the oldest file giving way.

use crate::cache::changes::Gone;
use crate::cache::disk::{Queued, Shared, State};
use crate::cache::index::{Place, Survivor};
use crate::cache::medium::{BlockFile, Sizes, read_checked};
use crate::cache::record::Record;
use bytes::Bytes;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, PoisonError};

/// The file that is written.
struct OpenFile {
    number: u64,
    epoch: u64,
    file: Arc<dyn BlockFile>,
    position: u64,
    /// Headers of all its records.
    directory: Vec<u8>,
}

/// Blocks of forgotten files, which are removed but still open.
type Survivors = VecDeque<Kept>;

struct Kept {
    /// Of when its file was forgotten.
    epoch: u64,
    survivor: Survivor,
    file: Arc<dyn BlockFile>,
}

/// Writes until the end; then closes the open file in good order.
pub(super) fn run(shared: &Shared) {
    let mut open: Option<OpenFile> = None;
    let mut survivors = Survivors::new();
    loop {
        let next = match survivors.pop_front() {
            Some(kept) => revive(shared, kept),
            None => match wait(shared) {
                Some(queued) => Some(queued),
                None => break,
            },
        };
        if let Some(queued) = next {
            write(shared, &mut open, &mut survivors, queued);
        }
        if survivors.is_empty() {
            shared.lock().moving = None;
        }
        shared.made_progress();
    }
    // Where that fails nothing is there to be taken for anything, or each start asks.
    let _ = shared.note(false);
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
fn revive(shared: &Shared, Kept { epoch, survivor, file }: Kept) -> Option<Queued> {
    if shared.lock().epoch != epoch {
        return None;
    }
    let mut block = vec![0; usize::try_from(survivor.block.len()).ok()?];
    if !read_checked(&*file, survivor.position, survivor.crc, &mut block) {
        shared.lock().met_corrupt_block();
        return None;
    }
    let bytes = Bytes::from(block);
    let mut state = shared.lock();
    // All may have been cleared meanwhile, or somebody have offered it.
    if state.epoch != epoch
        || state.index.gaps(&survivor.version, survivor.block) != [survivor.block]
    {
        return None;
    }
    if state.moving.as_ref().is_some_and(|changed| changed.contains(&*survivor.version.name)) {
        state.outdate_version(&survivor.version);
    } else if survivor.is_doubted {
        state.doubt_version(&survivor.version);
    }
    state.index.insert(&survivor.version, survivor.block, Place::Queued(bytes.clone()));
    let Survivor { version, block: range, .. } = survivor;
    Some(Queued { epoch, version, range, bytes, lease: None })
}

/// Writes one block, or forgets it where the disk does not take it.
fn write(shared: &Shared, open: &mut Option<OpenFile>, survivors: &mut Survivors, queued: Queued) {
    let crc = crc32fast::hash(&queued.bytes);
    let record = Record { version: queued.version.clone(), range: queued.range, crc };
    let header = record.header();
    // No block lies on the disk before what is to be known of its version.
    let noted = shared.note(false);
    let mut written = noted.and_then(|()| append(shared, open, survivors, &header, &queued));
    if written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::StorageFull) {
        // Others filled the disk: the cache makes room for itself, and stays smaller.
        if forget_oldest(shared, open.as_ref(), survivors) {
            written = append(shared, open, survivors, &header, &queued);
        }
    }
    let mut state = shared.lock();
    let Queued { epoch, version, range, bytes: _, lease } = queued;
    match (written, open) {
        // All was cleared; what is there of the block now was offered since.
        _ if state.epoch != epoch => {}
        (Ok(Some(position)), Some(open)) => {
            let place = (open.number, position, crc);
            if state.index.settle(&version, range.start, place) {
                state.counts.written_bytes += range.len();
            }
            let bytes = shared.medium.taken_bytes(open.position);
            state.index.file_grew(open.number, bytes);
        }
        (Ok(_), _) => state.index.forget(&version, range.start, None),
        (Err(_), _) => {
            state.index.forget(&version, range.start, None);
            state.met_refused_block();
        }
    }
    drop(state);
    drop(lease);
}

/// Where the block begins in the open file; `None` where all was cleared since it was offered.
fn append(
    shared: &Shared,
    open: &mut Option<OpenFile>,
    survivors: &mut Survivors,
    header: &[u8],
    queued: &Queued,
) -> io::Result<Option<u64>> {
    let open = ready(shared, open, survivors, header, queued)?;
    open.map(|open| open.append(header, &queued.bytes)).transpose()
}

/// The open file with room for a record, all files together within the capacity.
fn ready<'a>(
    shared: &Shared,
    open: &'a mut Option<OpenFile>,
    survivors: &mut Survivors,
    header: &[u8],
    queued: &Queued,
) -> io::Result<Option<&'a mut OpenFile>> {
    let (epoch, asked_bytes) = {
        let state = shared.lock();
        (state.epoch, state.capacity_bytes)
    };
    if queued.epoch != epoch {
        return Ok(None);
    }
    let Sizes { capacity_bytes, file_bytes } = shared.medium.sizes(asked_bytes);
    let record_bytes = header.len() as u64 + queued.range.len();
    match open.take() {
        // Cleared: the file is removed.
        Some(old) if old.epoch != epoch => {}
        Some(full) if full.bytes_with(header, queued.range.len()) > file_bytes => {
            let number = full.number;
            let bytes = shared.medium.taken_bytes(full.close()?);
            shared.lock().index.file_grew(number, bytes);
        }
        fitting => *open = fitting,
    }
    loop {
        let fits = shared.lock().index.file_bytes() + record_bytes <= capacity_bytes;
        if fits || !forget_oldest(shared, open.as_ref(), survivors) {
            break;
        }
    }
    match open {
        Some(open) => Ok(Some(open)),
        None => Ok(Some(open.insert(OpenFile::create(shared, epoch)?))),
    }
}

/// Forgets the oldest file that is not open; `false` where there is none.
fn forget_oldest(shared: &Shared, open: Option<&OpenFile>, survivors: &mut Survivors) -> bool {
    let noting = shared.noting.lock().unwrap_or_else(PoisonError::into_inner);
    let gone = shared.forget_oldest(&noting, open.map(|open| open.number));
    drop(noting);
    let Some(Gone { epoch, file, survivors: kept }) = gone else { return false };
    if let Some(file) = file {
        let kept = kept.into_iter();
        survivors.extend(kept.map(|survivor| Kept { epoch, survivor, file: Arc::clone(&file) }));
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
        let file = shared.medium.create(number)?;
        let mut state = shared.lock();
        if state.epoch == epoch {
            state.files.insert(number, Arc::clone(&file));
            state.index.file_grew(number, shared.medium.taken_bytes(file.start()));
        } else {
            // It has no blocks.
            let _ = shared.medium.remove(number);
        }
        let position = file.start();
        Ok(OpenFile { number, epoch, file, position, directory: Vec::new() })
    }

    /// Bytes of the file if one more record came and it were closed then.
    fn bytes_with(&self, header: &[u8], block_bytes: u64) -> u64 {
        let header_bytes = header.len() as u64;
        let spot = self.file.spot(self.position, header_bytes, block_bytes);
        self.file.closed_bytes(spot.end, self.directory.len() as u64 + header_bytes)
    }

    /// Where the block begins in the file.
    fn append(&mut self, header: &[u8], block: &[u8]) -> io::Result<u64> {
        let spot = self.file.append(self.position, header, block)?;
        self.directory.extend(header);
        self.position = spot.end;
        Ok(spot.block)
    }

    /// Writes the directory; the file's length.
    fn close(self) -> io::Result<u64> {
        self.file.close(self.position, &self.directory)
    }
}

//! Finds what lies on a device from before: the heads of all slots in one go, the trailers of those
//! in use in another, then a directory for each; only a slot whose file was cut short is walked
//! header by header.

use crate::cache::medium::BlockFile;
use crate::cache::record::{Record, parse_directory};
use crate::cache::region::layout::{
    HEADER_ROOM, Head, Label, PAGE_BYTES, Trailer, pages, take_header,
};
use crate::cache::region::{memory, read_at};
use penstock_device::{Command, Port};

/// Pages that are read at once.
const BATCH: usize = 256;

/// A slot in use.
#[derive(Debug)]
pub(super) struct Scanned {
    pub slot: u64,
    pub head: Head,
    /// With what its directory holds, if it was closed.
    closed: Option<(Trailer, Vec<u8>)>,
}

/// The slots in use, the oldest file first. What cannot be read is not there.
pub(super) fn scan(port: &Port, label: &Label) -> Vec<Scanned> {
    let places: Vec<u64> = (0..label.slots).map(|slot| label.slot_start(slot)).collect();
    let mut found: Vec<Scanned> = Vec::new();
    read_pages(port, &places, |slot, page| {
        if let Some(head) = Head::decode(page, label.id) {
            found.push(Scanned { slot: slot as u64, head, closed: None });
        }
    });
    found.sort_by_key(|it| it.head.number);
    // A number that is there twice is of a damaged device; the slots of both are in use.
    let ends = |it: &Scanned| label.slot_start(it.slot) + label.slot_bytes - PAGE_BYTES;
    let places: Vec<u64> = found.iter().map(ends).collect();
    let mut trailers = vec![None; found.len()];
    read_pages(port, &places, |index, page| {
        trailers[index] = Trailer::decode(page, found[index].head.mark, label.slot_bytes);
    });
    for (it, trailer) in found.iter_mut().zip(trailers) {
        let Some(trailer) = trailer else { continue };
        let mut directory = memory(port, pages(trailer.directory_bytes));
        let place = label.slot_start(it.slot) + trailer.end;
        if read_at(port, place, &mut directory).is_ok() {
            let bytes = &directory[..trailer.directory_bytes as usize];
            if crc32fast::hash(bytes) == trailer.directory_crc {
                it.closed = Some((trailer, bytes.to_vec()));
            }
        }
    }
    found
}

/// Reads pages from places, many at once; where that fails, one by one.
fn read_pages(port: &Port, places: &[u64], mut each: impl FnMut(usize, &[u8])) {
    let page_bytes = PAGE_BYTES as usize;
    let block_bytes = u64::from(port.geometry().block_size_bytes);
    let mut buffer = memory(port, PAGE_BYTES * BATCH.min(places.len()) as u64);
    for (first, places) in (0..).step_by(BATCH).zip(places.chunks(BATCH)) {
        let into = buffer.chunks_mut(page_bytes).zip(places);
        let mut commands: Vec<Command<'_>> =
            into.map(|(into, place)| Command::Read { block: place / block_bytes, into }).collect();
        let is_read = port.run(&mut commands).is_ok();
        for (index, (page, place)) in buffer.chunks_mut(page_bytes).zip(places).enumerate() {
            if is_read || read_at(port, *place, page).is_ok() {
                each(first + index, page);
            }
        }
    }
}

impl Scanned {
    /// Its records, with where their blocks begin.
    pub fn records(&self, file: &super::SlotFile) -> Vec<(Record, u64)> {
        match &self.closed {
            Some((trailer, directory)) => {
                parse_directory(directory, file.start(), trailer.end, |at, header, block| {
                    file.spot(at, header, block)
                })
            }
            None => walk(file),
        }
    }
}

/// The records of a file that was not closed.
fn walk(file: &super::SlotFile) -> Vec<(Record, u64)> {
    let slot_bytes = file.core.label.slot_bytes;
    let mut records = Vec::new();
    let mut room = memory(&file.core.port, HEADER_ROOM);
    let mut at = file.start();
    while at < slot_bytes {
        let here = &mut room[..HEADER_ROOM.min(slot_bytes - at) as usize];
        if file.read(at, here).is_err() {
            break;
        }
        let Some((record, header_bytes)) = take_header(file.head.mark, here) else { break };
        let spot = file.spot(at, header_bytes as u64, record.range.len());
        if spot.end > slot_bytes {
            break;
        }
        records.push((record, spot.block));
        at = spot.end;
    }
    records
}

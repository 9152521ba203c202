//! The disk cache on a device: slots instead of files. It decides when a slot may be used again,
//! and how what lies there from before is found; `layout` decides what the bytes mean.
//!
//! Nothing here waits for the device to make anything durable but clearing: a block that a power
//! cut has torn does not have its checksum, and is fetched anew.

mod layout;
mod scan;

#[cfg(test)]
mod tests;

use crate::cache::medium::{BlockFile, Medium, Recovered, Sizes, Spot, io_error};
use crate::cache::outdated::Noted;
use layout::{
    Found, Head, Label, NOTED_ROOM, NOTED_START, PAGE_BYTES, Trailer, VERSION, header_pages, pages,
    put_header,
};
use penstock_base::{Error, Kind, Result};
use penstock_device::volume::signature::{CACHE, HEAD_BYTES, recognise};
use penstock_device::volume::{check_unused, table::COPY_BYTES};
use penstock_device::{AlignedBuffer, Command, Port};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A cache on a device that this process has open.
#[derive(Debug)]
pub(super) struct Region(Arc<Core>);

/// What the files of a region share with it.
struct Core {
    port: Port,
    label: Label,
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    /// Those that no file has; the last one is taken first.
    free: Vec<u64>,
    /// By number, the slots of files that were not removed.
    used: Vec<(u64, u64)>,
    next_number: u64,
    /// Whether the label says so.
    is_noted: bool,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Core({}, {:?})", self.port.name(), self.label)
    }
}

fn failure(port: &Port, kind: Kind, message: impl Into<String>) -> Error {
    Error::new(kind, message).with_operation("open the disk cache").with_object(port.name())
}

/// Makes an empty cache on a device; how many bytes of blocks it holds. What a cache or a volume or
/// anybody else has left there is lost, so it must be said that this is meant.
///
/// # Errors
/// `Conflict` if the device is not empty and `is_forced` is not set, naming what is on it;
/// `Invalid` if it is too small; `Unsupported` for blocks larger than a page; and as [`Port::run`].
pub fn format_device(port: &Port, is_forced: bool) -> Result<u64> {
    check_blocks(port)?;
    let device_bytes = port.geometry().size_bytes();
    let Some(label) = Label::of(random(), device_bytes) else {
        let least = Label::device_bytes_min();
        let message = format!("{device_bytes} bytes are too few for a cache: it takes {least}");
        let hint = "Name a larger device, or enlarge the file: truncate -s 1GiB";
        return Err(failure(port, Kind::Invalid, message).with_hint(hint));
    };
    if !is_forced {
        check_unused(port)?;
    }
    // A volume that lay here has copies of its table there, and would open from one of them.
    let end = device_bytes / PAGE_BYTES * PAGE_BYTES;
    for place in [COPY_BYTES, end - COPY_BYTES] {
        write_at(port, place, &[&memory(port, PAGE_BYTES)])?;
    }
    // What began here may have signs of itself behind the first page: it is no more.
    write_at(port, PAGE_BYTES, &[&memory(port, HEAD_BYTES as u64 - PAGE_BYTES)])?;
    write_label(port, &label)?;
    Ok(label.capacity_bytes())
}

/// A cache on a device, as its labels tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheDevice {
    /// Most bytes of blocks; `None` if another version of Penstock has made it.
    pub capacity_bytes: Option<u64>,
    /// Whether each of the two labels is sound.
    pub sound_labels: [bool; 2],
}

/// Looks whether a device was made a cache; changes nothing.
///
/// # Errors
/// `Corrupt` if it was, and became smaller since; and as [`Port::run`].
pub fn look_at_device(port: &Port) -> Result<Option<CacheDevice>> {
    let found = labels(port)?;
    check_end(port, found)?;
    let sound_labels = found.map(|found| found != Found::Nothing);
    let capacity_bytes = found.iter().find_map(ours).map(|label| label.capacity_bytes());
    let is_cache = sound_labels.contains(&true) && over(port, found[0])?.is_none();
    Ok(is_cache.then_some(CacheDevice { capacity_bytes, sound_labels }))
}

/// What lies where the labels should be.
fn labels(port: &Port) -> Result<[Found; 2]> {
    let mut found = [Found::Nothing; 2];
    for (found, place) in found.iter_mut().zip(label_places(port)) {
        let mut page = memory(port, PAGE_BYTES);
        read_at(port, place, &mut page)?;
        *found = Label::judge(&page, port.geometry().size_bytes());
    }
    Ok(found)
}

fn ours(found: &Found) -> Option<Label> {
    match found {
        Found::Ours(label) => Some(*label),
        Found::OtherVersion(_) | Found::CutOff(_) | Found::Nothing => None,
    }
}

/// Refuses a cache whose device became smaller.
fn check_end(port: &Port, found: [Found; 2]) -> Result<()> {
    let needed = found.iter().find_map(|found| match found {
        Found::CutOff(bytes) => Some(*bytes),
        Found::Ours(_) | Found::OtherVersion(_) | Found::Nothing => None,
    });
    let Some(needed) = needed.filter(|_| !found.iter().any(|found| ours(found).is_some())) else {
        return Ok(());
    };
    let (is, name) = (port.geometry().size_bytes(), port.name());
    let message = format!("the device has {is} bytes, the cache on it {needed}");
    Err(failure(port, Kind::Corrupt, message).with_hint(format!(
        "It shrank. A cache holds copies only: make it anew with `penstock nvme format --cache \
         --force {name}`"
    )))
}

/// The label of the cache on a device, and what lies in both places of it.
fn label(port: &Port) -> Result<(Label, [Found; 2])> {
    check_blocks(port)?;
    let found = labels(port)?;
    check_end(port, found)?;
    if over(port, found[0])?.is_some() {
        return Err(no_cache(port));
    }
    let label = match (found.iter().find_map(ours), found[0]) {
        (Some(label), _) => Some(label),
        (None, Found::OtherVersion(_)) => Label::of(random(), port.geometry().size_bytes()),
        (None, _) => None,
    };
    label.map(|label| (label, found)).ok_or_else(|| no_cache(port))
}

/// Numbers that no earlier cache or file has had.
fn random() -> u64 {
    RandomState::new().hash_one(0)
}

fn check_blocks(port: &Port) -> Result<()> {
    let block_bytes = u64::from(port.geometry().block_size_bytes);
    if PAGE_BYTES.is_multiple_of(block_bytes) {
        return Ok(());
    }
    let message = format!("blocks of {block_bytes} bytes are larger than a page");
    Err(failure(port, Kind::Unsupported, message)
        .with_hint("Format the namespace with blocks of 4096 bytes or less"))
}

/// Where the two labels lie.
fn label_places(port: &Port) -> [u64; 2] {
    let pages = port.geometry().size_bytes() / PAGE_BYTES;
    [0, pages.saturating_sub(1) * PAGE_BYTES]
}

fn write_label(port: &Port, label: &Label) -> Result<()> {
    let page = label.encode();
    for place in label_places(port) {
        write_at(port, place, &[&page])?;
        port.flush()?;
    }
    Ok(())
}

/// The error of a write to a slot. What is forgotten gives a full file system, or a thin volume,
/// under the device nothing back: a slot keeps its room. So this must not read as if it did.
fn refused(error: Error) -> io::Error {
    match error.kind() {
        Kind::Exhausted => io::Error::other(error),
        _ => io_error(error),
    }
}

/// Memory that the device takes as it is.
fn memory(port: &Port, bytes: u64) -> AlignedBuffer {
    let alignment = port.geometry().buffer_alignment_bytes.max(PAGE_BYTES as u32);
    AlignedBuffer::new(bytes as usize, alignment as usize)
}

/// Writes parts of whole pages one behind the other, in flight together.
fn write_at(port: &Port, offset: u64, parts: &[&[u8]]) -> Result<()> {
    let block_bytes = u64::from(port.geometry().block_size_bytes);
    let mut at = offset;
    let mut batch = Vec::with_capacity(parts.len());
    for from in parts {
        batch.push(Command::Write { block: at / block_bytes, from });
        at += from.len() as u64;
    }
    port.run(&mut batch)
}

/// Reads any bytes from the begin of a page on, without reading a page in vain.
fn read_at(port: &Port, offset: u64, into: &mut [u8]) -> Result<()> {
    let block_bytes = u64::from(port.geometry().block_size_bytes);
    let whole = into.len() / block_bytes as usize * block_bytes as usize;
    let (body, rest) = into.split_at_mut(whole);
    if rest.is_empty() {
        return port.read(offset / block_bytes, body);
    }
    let mut tail = memory(port, block_bytes);
    let last = (offset + whole as u64) / block_bytes;
    port.run(&mut [
        Command::Read { block: offset / block_bytes, into: body },
        Command::Read { block: last, into: &mut tail },
    ])?;
    rest.copy_from_slice(&tail[..rest.len()]);
    Ok(())
}

impl Region {
    /// Takes a device that was made a cache. What another version of Penstock has left there is
    /// given up; a label that is damaged is written anew from the other.
    ///
    /// # Errors
    /// `Invalid` where there is no cache: nothing else is ever touched; `Corrupt` where the device
    /// became smaller; and as [`Port::run`].
    pub fn hold(port: Port) -> Result<Self> {
        let (label, found) = label(&port)?;
        if found != [Found::Ours(label); 2] {
            write_label(&port, &label)?;
        }
        Ok(Self::with_label(port, label))
    }

    /// Whether there is a device to hold; changes nothing.
    ///
    /// # Errors
    /// As [`Region::hold`].
    pub fn check(port: &Port) -> Result<()> {
        label(port).map(drop)
    }

    fn with_label(port: Port, label: Label) -> Self {
        let free = (0..label.slots).rev().collect();
        let is_noted = label.is_noted;
        let slots = Mutex::new(Slots { free, is_noted, ..Slots::default() });
        Region(Arc::new(Core { port, label, slots }))
    }

    /// A cache of small slots, for tests.
    #[cfg(test)]
    pub fn lay_out(port: Port, slot_bytes: u64) -> Result<Self> {
        let label = Label::with_slots(random(), port.geometry().size_bytes(), slot_bytes);
        let label = label.expect("the device is large enough for such slots");
        write_label(&port, &label)?;
        Ok(Self::with_label(port, label))
    }
}

/// What a device begins with in the place of a cache; the label at its end may have outlived it.
fn over(port: &Port, first: Found) -> Result<Option<&'static str>> {
    if first != Found::Nothing {
        return Ok(None);
    }
    let mut head = memory(port, port.geometry().size_bytes().min(HEAD_BYTES as u64));
    read_at(port, 0, &mut head)?;
    Ok(recognise(&head).filter(|what| *what != CACHE))
}

/// The error of a device without a cache tells what it holds instead. A damaged label is nothing.
fn no_cache(port: &Port) -> Error {
    let what = match over(port, Found::Nothing) {
        Ok(what) => what,
        Err(error) => return error,
    };
    let name = port.name();
    if let Some(what) = what {
        let message = format!("there is no Penstock cache on it, but {what}");
        return failure(port, Kind::Invalid, message).with_hint(format!(
            "Name another device; `penstock nvme format --cache --force {name}` would overwrite \
             this one"
        ));
    }
    let message = format!("there is no cache of format {VERSION} or before on it");
    failure(port, Kind::Invalid, message).with_hint(format!(
        "Make one with `penstock nvme format --cache {name}`; whatever lies there is lost"
    ))
}

impl Core {
    /// Slots are taken and given back whole.
    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Medium for Region {
    /// All of the device: it was made for nothing else. A slot that is being emptied and one that
    /// is being filled are beside the rest.
    fn sizes(&self, _: u64) -> Sizes {
        let file_bytes = self.0.label.slot_bytes;
        Sizes { capacity_bytes: self.0.label.capacity_bytes(), file_bytes }
    }

    /// A slot is in use whole.
    fn taken_bytes(&self, _: u64) -> u64 {
        self.0.label.slot_bytes
    }

    fn next_number(&self) -> u64 {
        self.0.slots().next_number
    }

    fn recover(&self) -> Vec<Recovered> {
        let found = scan::scan(&self.0.port, &self.0.label);
        let mut slots = self.0.slots();
        slots.next_number = found.iter().map(|it| it.head.number + 1).max().unwrap_or(0);
        slots.free.retain(|slot| found.iter().all(|it| it.slot != *slot));
        slots.used = found.iter().map(|it| (it.head.number, it.slot)).collect();
        drop(slots);
        let recovered = |it: scan::Scanned| {
            let file = SlotFile { core: self.0.clone(), slot: it.slot, head: it.head };
            let records = it.records(&file);
            let bytes = self.0.label.slot_bytes;
            Recovered { number: it.head.number, file: Arc::new(file), bytes, records }
        };
        found.into_iter().map(recovered).collect()
    }

    fn create(&self, number: u64) -> io::Result<Arc<dyn BlockFile>> {
        let head = Head { number, mark: random() };
        let slot = {
            let mut slots = self.0.slots();
            let slot = slots.free.pop().ok_or(io::ErrorKind::StorageFull)?;
            slots.used.push((number, slot));
            slot
        };
        // From here on it is given back when it is dropped.
        let file = SlotFile { core: self.0.clone(), slot, head };
        let page = head.encode(self.0.label.id);
        write_at(&self.0.port, file.offset(0), &[&page]).map_err(refused)?;
        Ok(Arc::new(file))
    }

    fn remove(&self, number: u64) -> io::Result<()> {
        let slot = {
            let mut slots = self.0.slots();
            let at = slots.used.iter().position(|used| used.0 == number);
            at.map(|at| slots.used.swap_remove(at).1)
        };
        let Some(slot) = slot else { return Ok(()) };
        let zeros = memory(&self.0.port, PAGE_BYTES);
        write_at(&self.0.port, self.0.label.slot_start(slot), &[&zeros]).map_err(io_error)
    }

    fn settle(&self) -> io::Result<()> {
        self.0.port.flush().map_err(io_error)
    }

    fn noted(&self) -> Noted {
        if !self.0.slots().is_noted {
            return Noted::nothing();
        }
        let mut bytes = memory(&self.0.port, NOTED_ROOM);
        match read_at(&self.0.port, NOTED_START, &mut bytes) {
            Ok(()) => Noted::decode(&bytes),
            Err(_) => Noted::All,
        }
    }

    /// One that a power cut tears counts as a note of everything.
    fn note(&self, noted: &Noted) -> io::Result<()> {
        let Core { port, label, .. } = &*self.0;
        let encoded = noted.encode();
        let mut bytes = memory(port, NOTED_ROOM);
        bytes[..encoded.len()].copy_from_slice(&encoded);
        let write = || {
            // What was noted of files that are removed is not there any more: they have to stay so.
            port.flush()?;
            write_at(port, NOTED_START, &[&bytes])?;
            port.flush()?;
            if !self.0.slots().is_noted {
                write_label(port, &Label { is_noted: true, ..*label })?;
                self.0.slots().is_noted = true;
            }
            Ok(())
        };
        write().map_err(io_error)
    }
}

/// A file in a slot; the slot is free again when nobody has it open.
#[derive(Debug)]
struct SlotFile {
    core: Arc<Core>,
    slot: u64,
    head: Head,
}

impl Drop for SlotFile {
    fn drop(&mut self) {
        let mut slots = self.core.slots();
        slots.used.retain(|used| used.1 != self.slot);
        slots.free.push(self.slot);
    }
}

impl SlotFile {
    /// On the device.
    fn offset(&self, position: u64) -> u64 {
        self.core.label.slot_start(self.slot) + position
    }
}

impl BlockFile for SlotFile {
    fn start(&self) -> u64 {
        PAGE_BYTES
    }

    fn spot(&self, at: u64, header_bytes: u64, block_bytes: u64) -> Spot {
        let block = at + header_pages(header_bytes);
        Spot { block, end: block + pages(block_bytes) }
    }

    fn closed_bytes(&self, end: u64, directory_bytes: u64) -> u64 {
        end + pages(directory_bytes) + PAGE_BYTES
    }

    fn append(&self, at: u64, header: &[u8], block: &[u8]) -> io::Result<Spot> {
        let port = &self.core.port;
        let spot = self.spot(at, header.len() as u64, block.len() as u64);
        if self.closed_bytes(spot.end, header.len() as u64) > self.core.label.slot_bytes {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut head = memory(port, spot.block - at);
        put_header(self.head.mark, header, &mut head);
        let (body, rest) = block.split_at(block.len() / PAGE_BYTES as usize * PAGE_BYTES as usize);
        let mut tail = memory(port, pages(rest.len() as u64));
        tail[..rest.len()].copy_from_slice(rest);
        write_at(port, self.offset(at), &[&head, body, &tail]).map_err(refused)?;
        Ok(spot)
    }

    fn close(&self, end: u64, directory: &[u8]) -> io::Result<u64> {
        let Core { port, label, .. } = &*self.core;
        let trailer = Trailer {
            end,
            directory_bytes: directory.len() as u64,
            directory_crc: crc32fast::hash(directory),
        };
        let mut padded = memory(port, pages(directory.len() as u64));
        padded[..directory.len()].copy_from_slice(directory);
        write_at(port, self.offset(end), &[&padded]).map_err(refused)?;
        let page = trailer.encode(self.head.mark);
        write_at(port, self.offset(label.slot_bytes - PAGE_BYTES), &[&page]).map_err(refused)?;
        Ok(label.slot_bytes)
    }

    fn read(&self, position: u64, into: &mut [u8]) -> io::Result<()> {
        read_at(&self.core.port, self.offset(position), into).map_err(io_error)
    }
}

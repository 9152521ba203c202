//! How a cache lies on a device. Pure.
//!
//! Pages of 4096 bytes. The first and the last page carry the label: what lies between is cut into
//! slots of one length, and each slot has one file of blocks.
//!
//! ```text
//! head | record | record | ...        | directory | ... | trailer
//! ```
//!
//! A record is its header, filled up to whole pages, and the block, filled up likewise, so that a
//! block is read without the pages of others. Head, headers and trailer of a file carry its mark, a
//! random number: what an earlier file has left in the slot has another one. Every number is
//! little-endian; label, head, headers, directory and trailer carry a CRC-32 of themselves, and
//! headers one of their block: what does not fit is taken as not there.

use crate::cache::outdated::NOTED_BYTES_MAX;
use crate::cache::record::{HEADER_BYTES_MAX, Record};

/// The unit of everything.
pub(super) const PAGE_BYTES: u64 = 4096;
/// Before the first slot.
pub(super) const SLOTS_START: u64 = 16 * PAGE_BYTES;
/// Where it stands which versions are outdated: behind the label.
pub(super) const NOTED_START: u64 = PAGE_BYTES;
pub(super) const NOTED_ROOM: u64 = (NOTED_BYTES_MAX as u64).next_multiple_of(PAGE_BYTES);
const _: () = assert!(NOTED_START + NOTED_ROOM <= SLOTS_START);
/// Pages that are looked at for a header.
pub(super) const HEADER_ROOM: u64 = (MARK_BYTES + HEADER_BYTES_MAX as u64).next_multiple_of(4096);
const MARK_BYTES: u64 = 8;
/// Fewest slots that a cache can live in: files give way, and are read until others are written.
pub(super) const SLOTS_MIN: u64 = 4;
/// Slots are this part of the device, within limits.
const SLOTS: u64 = 64;
const SLOT_BYTES_MIN: u64 = 4 << 20;
const SLOT_BYTES_MAX: u64 = 256 << 20;
/// Of 256 TiB.
const SLOTS_MAX: u64 = 1 << 20;

const LABEL_MAGIC: [u8; 8] = *b"PENCACHE";
const HEAD_MAGIC: [u8; 8] = *b"PENSLOT\0";
const TRAILER_MAGIC: [u8; 8] = *b"PENSLOTT";
/// Changes whenever these bytes mean something else; what another version wrote is not read.
pub(super) const VERSION: u32 = 1;
/// Bytes of a label that count, in every version.
const LABEL_BYTES: usize = 64;

/// Up to the next page.
pub(super) fn pages(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE_BYTES)
}

/// What the label says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label {
    /// Another one each time the cache is made anew.
    pub id: u64,
    pub slot_bytes: u64,
    pub slots: u64,
    /// Whether it was ever noted that versions are outdated.
    pub is_noted: bool,
}

/// What lies where a label should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Ours(Label),
    /// A sound label of another version of Penstock.
    OtherVersion(u32),
    /// A sound label of a device that had at least so many bytes, which are more than it has.
    CutOff(u64),
    /// No label, or a damaged one.
    Nothing,
}

impl Label {
    /// For a device of so many bytes; `None` if it is too small.
    pub fn of(id: u64, device_bytes: u64) -> Option<Self> {
        let slot_bytes = (device_bytes / SLOTS).clamp(SLOT_BYTES_MIN, SLOT_BYTES_MAX);
        Self::with_slots(id, device_bytes, slot_bytes - slot_bytes % PAGE_BYTES)
    }

    /// With slots of this length.
    pub fn with_slots(id: u64, device_bytes: u64, slot_bytes: u64) -> Option<Self> {
        let room = device_bytes.checked_sub(SLOTS_START + PAGE_BYTES)?;
        let slots = (room / slot_bytes).min(SLOTS_MAX);
        (slots >= SLOTS_MIN).then_some(Label { id, slot_bytes, slots, is_noted: false })
    }

    /// Least bytes of a device.
    pub fn device_bytes_min() -> u64 {
        SLOTS_START + SLOTS_MIN * SLOT_BYTES_MIN + PAGE_BYTES
    }

    /// Most bytes of files in use: beside them there is one slot that is being emptied, or filled.
    pub fn capacity_bytes(&self) -> u64 {
        (self.slots - 1) * self.slot_bytes
    }

    /// Where a slot begins.
    pub fn slot_start(&self, slot: u64) -> u64 {
        SLOTS_START + slot * self.slot_bytes
    }

    /// Fewest bytes of a device that it fits on; `None` if there can be none.
    fn needs(&self) -> Option<u64> {
        let end = self.slots.checked_mul(self.slot_bytes);
        let end = end.and_then(|bytes| bytes.checked_add(SLOTS_START + PAGE_BYTES));
        let is_whole = self.slot_bytes.is_multiple_of(PAGE_BYTES) && self.slot_bytes > 0;
        // Slots and their directories are read into memory, and there is a list of all slots.
        let is_sane = self.slot_bytes <= SLOT_BYTES_MAX && self.slots <= SLOTS_MAX;
        end.filter(|_| is_whole && is_sane && self.slots >= SLOTS_MIN)
    }

    /// As a page.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(PAGE_BYTES as usize);
        out.extend(LABEL_MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend([0; 4]);
        out.extend(self.id.to_le_bytes());
        out.extend(self.slot_bytes.to_le_bytes());
        out.extend(self.slots.to_le_bytes());
        out.extend(u64::from(self.is_noted).to_le_bytes());
        out.resize(LABEL_BYTES, 0);
        let crc = crc32fast::hash(&out);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out.resize(PAGE_BYTES as usize, 0);
        out
    }

    /// Judges a page of a device of so many bytes.
    pub fn judge(page: &[u8], device_bytes: u64) -> Found {
        let Some(page) = page.get(..LABEL_BYTES) else { return Found::Nothing };
        let mut plain = page.to_vec();
        plain[12..16].fill(0);
        if page[..8] != LABEL_MAGIC || u32_at(page, 12) != crc32fast::hash(&plain) {
            return Found::Nothing;
        }
        let version = u32_at(page, 8);
        if version != VERSION {
            return Found::OtherVersion(version);
        }
        let [id, slot_bytes, slots] = [16, 24, 32].map(|at| u64_at(page, at));
        let label = Label { id, slot_bytes, slots, is_noted: u64_at(page, 40) != 0 };
        match label.needs() {
            Some(bytes) if bytes <= device_bytes => Found::Ours(label),
            Some(bytes) => Found::CutOff(bytes),
            None => Found::Nothing,
        }
    }
}

/// Of `bytes`, which are long enough.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// The first page of a slot that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Counts up: the oldest file has the lowest.
    pub number: u64,
    pub mark: u64,
}

impl Head {
    pub fn encode(&self, id: u64) -> Vec<u8> {
        sealed(HEAD_MAGIC, [id, self.number, self.mark, 0])
    }

    /// `None` for a slot that is not in use, or whose head is damaged.
    pub fn decode(page: &[u8], id: u64) -> Option<Self> {
        let [found, number, mark, _] = unseal(HEAD_MAGIC, page)?;
        (found == id).then_some(Head { number, mark })
    }
}

/// The last page of a slot whose file was closed in good order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trailer {
    /// Where the last record ends and the directory begins, in the slot.
    pub end: u64,
    pub directory_bytes: u64,
    pub directory_crc: u32,
}

impl Trailer {
    pub fn encode(&self, mark: u64) -> Vec<u8> {
        let crc = u64::from(self.directory_crc);
        sealed(TRAILER_MAGIC, [mark, self.end, self.directory_bytes, crc])
    }

    /// `None` where this file was not closed, or the trailer is damaged.
    pub fn decode(page: &[u8], mark: u64, slot_bytes: u64) -> Option<Self> {
        let [found, end, directory_bytes, crc] = unseal(TRAILER_MAGIC, page)?;
        let last = end.checked_add(directory_bytes)?.checked_add(PAGE_BYTES)?;
        let is_whole = end.is_multiple_of(PAGE_BYTES) && last <= slot_bytes;
        let directory_crc = u32::try_from(crc).ok()?;
        (found == mark && is_whole).then_some(Trailer { end, directory_bytes, directory_crc })
    }
}

/// A page of a few numbers.
fn sealed(magic: [u8; 8], numbers: [u64; 4]) -> Vec<u8> {
    let mut out = Vec::with_capacity(PAGE_BYTES as usize);
    out.extend(magic);
    numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
    let crc = crc32fast::hash(&out);
    out.extend(crc.to_le_bytes());
    out.resize(PAGE_BYTES as usize, 0);
    out
}

fn unseal(magic: [u8; 8], page: &[u8]) -> Option<[u64; 4]> {
    let (body, rest) = page.split_at_checked(40)?;
    let is_sound = body[..8] == magic && rest.len() >= 4;
    (is_sound && u32_at(rest, 0) == crc32fast::hash(body))
        .then(|| [8, 16, 24, 32].map(|at| u64_at(body, at)))
}

/// Pages of a record's header, with the mark of its file before it.
pub(super) fn header_pages(header_bytes: u64) -> u64 {
    pages(MARK_BYTES + header_bytes)
}

/// Puts a header into the pages that it takes.
pub(super) fn put_header(mark: u64, header: &[u8], into: &mut [u8]) {
    into[..8].copy_from_slice(&mark.to_le_bytes());
    into[8..8 + header.len()].copy_from_slice(header);
    into[8 + header.len()..].fill(0);
}

/// The record whose header begins these pages, and its header's length; `None` for anything else,
/// also for a record of an earlier file.
pub(super) fn take_header(mark: u64, bytes: &[u8]) -> Option<(Record, usize)> {
    let rest = bytes.strip_prefix(&mark.to_le_bytes())?;
    Record::parse(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_encoded_is_decoded_and_nothing_that_was_changed() {
        let label = Label::of(7, 1 << 30).unwrap();
        assert_eq!(label.slots, ((1 << 30) - SLOTS_START - PAGE_BYTES) / label.slot_bytes);
        let head = Head { number: 9, mark: 11 };
        let trailer = Trailer { end: 8192, directory_bytes: 100, directory_crc: 5 };
        let good = |pages: &[Vec<u8>; 3]| {
            let label_is = Label::judge(&pages[0], 1 << 30) == Found::Ours(label);
            let head_is = Head::decode(&pages[1], 7) == Some(head);
            let trailer_is = Trailer::decode(&pages[2], 11, label.slot_bytes) == Some(trailer);
            [label_is, head_is, trailer_is]
        };
        let pages = [label.encode(), head.encode(7), trailer.encode(11)];
        assert_eq!(good(&pages), [true; 3]);
        for at in 0..64 {
            let mut damaged = pages.clone();
            damaged.iter_mut().for_each(|page| page[at] ^= 4);
            // What lies behind the numbers and their checksum counts for nothing.
            let counts = [true, at < 44, at < 44];
            assert_eq!(good(&damaged), counts.map(|counts| !counts), "byte {at}");
        }
        let needed = label.needs().unwrap();
        assert!(needed > 1 << 29 && needed <= 1 << 30);
        assert_eq!(Label::judge(&pages[0], 1 << 29), Found::CutOff(needed), "the device shrank");
        assert_eq!(Label::judge(&pages[0], needed), Found::Ours(label));
        assert_eq!(Head::decode(&pages[1], 8), None, "of a cache before");
        assert_eq!(Trailer::decode(&pages[2], 12, label.slot_bytes), None, "of a file before");
    }

    #[test]
    fn another_version_is_told() {
        let mut page = Label::of(7, 1 << 30).unwrap().encode();
        page[8..12].copy_from_slice(&9u32.to_le_bytes());
        page[12..16].fill(0);
        let crc = crc32fast::hash(&page[..LABEL_BYTES]);
        page[12..16].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Label::judge(&page, 1 << 30), Found::OtherVersion(9));
    }

    /// Whoever can write a device can give it a right checksum too.
    #[test]
    fn slots_that_no_cache_has_are_no_cache() {
        let sound = Label::of(7, 1 << 30).unwrap();
        for label in [
            Label { slot_bytes: 1 << 38, slots: 4, ..sound },
            Label { slot_bytes: PAGE_BYTES, slots: 1 << 21, ..sound },
        ] {
            assert_eq!(Label::judge(&label.encode(), 1 << 45), Found::Nothing, "{label:?}");
        }
    }

    proptest! {
        #[test]
        fn slots_fit_on_the_device(bytes in 0u64..1 << 60) {
            match Label::of(1, bytes) {
                Some(label) => {
                    prop_assert!(label.needs().is_some_and(|needs| needs <= bytes));
                    prop_assert!(label.slot_start(label.slots) + PAGE_BYTES <= bytes);
                    prop_assert!(label.slot_bytes <= SLOT_BYTES_MAX);
                }
                None => prop_assert!(bytes < Label::device_bytes_min()),
            }
        }

        #[test]
        fn any_bytes_are_judged_without_harm(page in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(Label::judge(&page, 1 << 40), Found::Nothing);
            prop_assert_eq!(Head::decode(&page, 0), None);
            prop_assert_eq!(Trailer::decode(&page, 0, 1 << 30), None);
            prop_assert!(take_header(0, &page).is_none());
        }
    }
}

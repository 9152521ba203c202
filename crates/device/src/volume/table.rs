//! The table of a volume: files, sizes, extents, and its form on the device. Pure.
//!
//! Every integer is little-endian. A header of 64 bytes (magic, format version, length, checksum
//! over everything, generation, identity, pages, page size, number of files), then the files in the
//! order of their names: length and bytes of the name, size in bytes, extents.

use crate::volume::space::Extent;
use crc_fast::{CrcAlgorithm, Digest};
use std::collections::BTreeMap;

/// The unit of allocation and of every transfer.
pub const PAGE_BYTES: u64 = 4096;
/// Room of one copy of the table.
pub const COPY_BYTES: u64 = 1 << 20;
/// Pages of one copy.
pub const COPY_PAGES: u64 = COPY_BYTES / PAGE_BYTES;
/// Copies of the table: two at the start of the device, one at its end.
pub const COPIES: usize = 3;
/// Fewest pages of a volume.
pub const PAGES_MIN: u64 = 4 * COPY_PAGES;
/// The version that this program writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 1;
/// Longest name of a file.
pub const NAME_BYTES_MAX: usize = 255;

const MAGIC: [u8; 8] = *b"PENSTOCK";
/// Bytes before the first file.
pub const HEADER_BYTES: usize = 64;
/// Bytes of an extent.
pub const EXTENT_BYTES: u64 = 16;
const CHECKSUM: std::ops::Range<usize> = 16..24;

/// Where each copy begins on a volume of so many pages.
pub fn copy_pages(page_count: u64) -> [u64; COPIES] {
    [0, COPY_PAGES, page_count - COPY_PAGES]
}

/// The pages that files may have.
pub fn data_pages(page_count: u64) -> Extent {
    Extent { first_page: 2 * COPY_PAGES, pages: page_count - 3 * COPY_PAGES }
}

/// A file as the table knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Exact size.
    pub size_bytes: u64,
    /// Where its pages lie; they may be more than the size needs.
    pub extents: Vec<Extent>,
}

/// What a volume holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Counts the versions of the table; the highest valid one holds.
    pub generation: u64,
    /// Tells volumes apart.
    pub id: u64,
    /// Pages of the volume, copies included.
    pub page_count: u64,
    /// The files by name.
    pub files: BTreeMap<String, Entry>,
}

/// Why bytes are no table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// No Penstock volume begins here.
    Foreign,
    /// A sound table of a format that this program does not know.
    Newer(u32),
    /// It says that it has this format, and is no sound table as far as this program knows: a newer
    /// one has another header, or this one is damaged where it says so.
    Other(u32),
    /// It was one; what is wrong with it.
    Damaged(&'static str),
}

/// Bytes of a file with a name of so many bytes and so many extents.
pub fn entry_bytes(name_bytes: usize, extents: usize) -> u64 {
    2 + name_bytes as u64 + 8 + 4 + extents as u64 * EXTENT_BYTES
}

/// Whether a name may be in the table.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control)
}

impl Table {
    /// An empty volume.
    pub fn new(id: u64, generation: u64, page_count: u64) -> Self {
        Table { generation, id, page_count, files: BTreeMap::new() }
    }

    /// The bytes of a copy, whole pages; `None` if they are more than a copy has room for.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; HEADER_BYTES];
        for (name, entry) in &self.files {
            bytes.extend((name.len() as u16).to_le_bytes());
            bytes.extend(name.as_bytes());
            bytes.extend(entry.size_bytes.to_le_bytes());
            bytes.extend((entry.extents.len() as u32).to_le_bytes());
            for extent in &entry.extents {
                bytes.extend(extent.first_page.to_le_bytes());
                bytes.extend(extent.pages.to_le_bytes());
            }
        }
        if bytes.len() as u64 > COPY_BYTES {
            return None;
        }
        let length = (bytes.len() - HEADER_BYTES) as u32;
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&length.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.generation.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.id.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.page_count.to_le_bytes());
        bytes[48..52].copy_from_slice(&(PAGE_BYTES as u32).to_le_bytes());
        bytes[52..56].copy_from_slice(&(self.files.len() as u32).to_le_bytes());
        let sum = checksum(&bytes);
        bytes[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
        bytes.resize(bytes.len().next_multiple_of(PAGE_BYTES as usize), 0);
        Some(bytes)
    }

    /// How many bytes a copy has that begins with this page; `None` if it cannot be one.
    pub fn encoded_length(first_page: &[u8]) -> Option<usize> {
        let header = first_page.get(..HEADER_BYTES)?;
        let mut reader = Reader(&header[12..16]);
        let length = HEADER_BYTES + reader.u32()? as usize;
        (header[..8] == MAGIC && length as u64 <= COPY_BYTES).then_some(length)
    }

    /// Reads a copy; bytes behind it do not matter.
    ///
    /// # Errors
    /// The flaw, for anything but a sound table of a known format.
    pub fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        if bytes.get(..8) != Some(&MAGIC[..]) {
            return Err(Flaw::Foreign);
        }
        let version = Reader(&bytes[8..]).u32().ok_or(Flaw::Damaged("it is cut off"))?;
        let sound = Self::sound(bytes);
        if version != FORMAT_VERSION {
            return Err(match sound {
                Ok(_) => Flaw::Newer(version),
                Err(_) if version > FORMAT_VERSION => Flaw::Other(version),
                Err(flaw) => flaw,
            });
        }
        let table = Self::parse(sound?).ok_or(Flaw::Damaged("its parts do not fit together"))?;
        table.validate()?;
        Ok(table)
    }

    /// The bytes of a copy, if their checksum is right.
    fn sound(bytes: &[u8]) -> Result<&[u8], Flaw> {
        let length = Self::encoded_length(bytes).ok_or(Flaw::Damaged("its length is wrong"))?;
        let bytes = bytes.get(..length).ok_or(Flaw::Damaged("it is cut off"))?;
        match bytes[CHECKSUM] == checksum(bytes).to_le_bytes() {
            true => Ok(bytes),
            false => Err(Flaw::Damaged("its checksum is wrong")),
        }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(&bytes[24..]);
        let mut table = Table::new(0, reader.u64()?, 0);
        table.id = reader.u64()?;
        table.page_count = reader.u64()?;
        let page_size = reader.u32()?;
        let count = reader.u32()?;
        if u64::from(page_size) != PAGE_BYTES || reader.u64()? != 0 {
            return None;
        }
        for _ in 0..count {
            let length = reader.u16()?;
            let name = std::str::from_utf8(reader.bytes(length.into())?).ok()?;
            let mut entry = Entry { size_bytes: reader.u64()?, extents: Vec::new() };
            for _ in 0..reader.u32()? {
                let (first_page, pages) = (reader.u64()?, reader.u64()?);
                entry.extents.push(Extent { first_page, pages });
            }
            if !is_name(name) || table.files.insert(name.to_string(), entry).is_some() {
                return None;
            }
        }
        reader.0.is_empty().then_some(table)
    }

    /// Whether the numbers fit together: no page belongs to two, all lie inside, sizes fit.
    fn validate(&self) -> Result<(), Flaw> {
        if self.page_count < PAGES_MIN || self.page_count.checked_mul(PAGE_BYTES).is_none() {
            return Err(Flaw::Damaged("it has no right number of pages"));
        }
        let data = data_pages(self.page_count);
        let mut used: Vec<Extent> = Vec::new();
        for entry in self.files.values() {
            let mut pages = 0u64;
            for extent in &entry.extents {
                let end = extent.first_page.checked_add(extent.pages);
                let is_inside = end.is_some_and(|end| end <= data.end());
                if extent.pages == 0 || extent.first_page < data.first_page || !is_inside {
                    return Err(Flaw::Damaged("a file lies outside the volume"));
                }
                pages = pages.saturating_add(extent.pages);
                used.push(*extent);
            }
            if entry.size_bytes.div_ceil(PAGE_BYTES) > pages {
                return Err(Flaw::Damaged("a file is longer than its pages"));
            }
        }
        used.sort_unstable();
        match used.windows(2).all(|pair| pair[0].end() <= pair[1].first_page) {
            true => Ok(()),
            false => Err(Flaw::Damaged("two files share a page")),
        }
    }
}

/// CRC-64/NVME over the whole copy, the place of the checksum counted as zeros.
fn checksum(bytes: &[u8]) -> u64 {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    digest.update(&bytes[..CHECKSUM.start]);
    digest.update(&[0; 8]);
    digest.update(&bytes[CHECKSUM.end..]);
    digest.finalize()
}

/// What stands behind a table's head is taken from a fuzzer; the head and the checksum are right,
/// or nothing would come further than them.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(input: &[u8]) {
    let mut bytes = vec![0; 24];
    bytes.extend(input);
    bytes.resize(bytes.len().max(HEADER_BYTES), 0);
    let length = (bytes.len() - HEADER_BYTES) as u32;
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&length.to_le_bytes());
    let sum = checksum(&bytes);
    bytes[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
    if let Ok(table) = Table::decode(&bytes) {
        let encoded = table.encode().expect("it was no longer");
        assert_eq!(Table::decode(&encoded), Ok(table));
    }
    drop(Table::decode(input));
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (now, later) = self.0.split_at_checked(count)?;
        self.0 = later;
        Some(now)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.bytes(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(8)?.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests;

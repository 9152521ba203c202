//! How blocks lie in a file of the disk cache. Pure.
//!
//! A file is a head of [`HEAD_BYTES`], then records one after the other, each a header and the
//! block's bytes. A file that was closed in good order ends with its directory: all headers once
//! more, and a trailer that tells where they begin. So a start reads one directory per file, and
//! only a file that was cut short is walked record by record. Every number is little-endian, every
//! header carries a CRC-32 of itself and of its block: what does not fit is taken as not there.

use crate::cache::index::ObjectVersion;
use crate::cache::medium::Spot;
use penstock_base::ByteRange;

/// Of every file.
const MAGIC: [u8; 8] = *b"PENSTOCK";
/// Of every record.
const RECORD_MAGIC: u32 = 0x4b4c_4250;
const TRAILER_MAGIC: u32 = 0x5249_4450;
/// Changes whenever these bytes mean something else; files of another version are not read.
const VERSION: u32 = 1;

/// Bytes before the first record.
pub(super) const HEAD_BYTES: u64 = 16;
/// Bytes of the trailer.
pub(super) const TRAILER_BYTES: u64 = 16;
/// Bytes of a record's header before its names.
const FIXED_BYTES: usize = 36;
/// Longest URL or tag that is cached (S3 keys end at 1,024 bytes).
pub(super) const NAME_BYTES_MAX: usize = 4096;
/// Longest header.
pub(super) const HEADER_BYTES_MAX: usize = FIXED_BYTES + 2 * NAME_BYTES_MAX + 4;
/// Longest block. A read verifies whole blocks, so this bounds what it reads in vain.
pub(super) const BLOCK_BYTES_MAX: u64 = 1 << 20;

/// What a record holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub version: ObjectVersion,
    /// Bytes of the object; never empty, at most [`BLOCK_BYTES_MAX`].
    pub range: ByteRange,
    pub crc: u32,
}

/// What the first bytes of a file say of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// It is a file of this version.
    Ours,
    /// Another version of Penstock wrote it.
    OtherVersion,
    /// Something else wrote it.
    Foreign,
}

/// The first bytes of a file.
pub(super) fn head() -> [u8; HEAD_BYTES as usize] {
    let mut head = [0; HEAD_BYTES as usize];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let crc = crc32fast::hash(&head[..12]);
    head[12..].copy_from_slice(&crc.to_le_bytes());
    head
}

/// Judges the first bytes of a file.
pub(super) fn judge_head(bytes: &[u8]) -> Head {
    if bytes == head() {
        Head::Ours
    } else if bytes.starts_with(&MAGIC) {
        Head::OtherVersion
    } else {
        Head::Foreign
    }
}

impl Record {
    /// The header, which the block's bytes follow.
    pub fn header(&self) -> Vec<u8> {
        let (name, etag) = (self.version.name.as_bytes(), self.version.etag.as_bytes());
        let mut out = Vec::with_capacity(FIXED_BYTES + name.len() + etag.len() + 4);
        out.extend(RECORD_MAGIC.to_le_bytes());
        out.extend((name.len() as u16).to_le_bytes());
        out.extend((etag.len() as u16).to_le_bytes());
        out.extend((self.range.len() as u32).to_le_bytes());
        out.extend(self.crc.to_le_bytes());
        out.extend(self.range.start.to_le_bytes());
        out.extend(self.version.size_bytes.to_le_bytes());
        out.extend(0u32.to_le_bytes());
        debug_assert_eq!(out.len(), FIXED_BYTES);
        out.extend(name);
        out.extend(etag);
        let crc = crc32fast::hash(&out);
        out.extend(crc.to_le_bytes());
        out
    }

    /// Reads a header at the begin of `bytes`; also its length. `None` for anything else.
    pub fn parse(bytes: &[u8]) -> Option<(Record, usize)> {
        let u16_at = |at: usize| Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let u32_at = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        if u32_at(0)? != RECORD_MAGIC {
            return None;
        }
        let (name_bytes, etag_bytes) = (usize::from(u16_at(4)?), usize::from(u16_at(6)?));
        let names_end = FIXED_BYTES + name_bytes + etag_bytes;
        if u32_at(names_end)? != crc32fast::hash(bytes.get(..names_end)?) {
            return None;
        }
        let (len, size_bytes) = (u64::from(u32_at(8)?), u64_at(24)?);
        let range = ByteRange::of_len(u64_at(16)?, len)?;
        if len == 0 || len > BLOCK_BYTES_MAX || range.end > size_bytes {
            return None;
        }
        let text = |from: usize, to: usize| std::str::from_utf8(&bytes[from..to]).ok();
        let version = ObjectVersion {
            name: text(FIXED_BYTES, FIXED_BYTES + name_bytes)?.into(),
            etag: text(FIXED_BYTES + name_bytes, names_end)?.into(),
            size_bytes,
        };
        Some((Record { version, range, crc: u32_at(12)? }, names_end + 4))
    }
}

/// The trailer of a file whose directory begins at `start` and has these bytes.
pub(super) fn trailer(start: u64, directory: &[u8]) -> [u8; TRAILER_BYTES as usize] {
    let mut out = [0; TRAILER_BYTES as usize];
    out[..4].copy_from_slice(&TRAILER_MAGIC.to_le_bytes());
    out[4..12].copy_from_slice(&start.to_le_bytes());
    out[12..].copy_from_slice(&crc32fast::hash(directory).to_le_bytes());
    out
}

/// Where the directory of a file lies, and its CRC; `None` where the file has none.
pub(super) fn parse_trailer(bytes: &[u8], file_bytes: u64) -> Option<(ByteRange, u32)> {
    if bytes.len() as u64 != TRAILER_BYTES || bytes[..4] != TRAILER_MAGIC.to_le_bytes() {
        return None;
    }
    let start = u64::from_le_bytes(*bytes[4..].first_chunk()?);
    let end = file_bytes.checked_sub(TRAILER_BYTES)?;
    let crc = u32::from_le_bytes(*bytes[12..].first_chunk()?);
    (HEAD_BYTES <= start && start <= end).then_some((ByteRange { start, end }, crc))
}

/// The records of a file's directory, with where their blocks begin. The first lies at `start`, the
/// last ends at `end`; `spot` is told position, header bytes and block bytes. Stops at the first
/// that does not fit.
pub(super) fn parse_directory(
    directory: &[u8],
    start: u64,
    end: u64,
    spot: impl Fn(u64, u64, u64) -> Spot,
) -> Vec<(Record, u64)> {
    let mut records = Vec::new();
    let (mut rest, mut position) = (directory, start);
    while let Some((record, header_bytes)) = Record::parse(rest) {
        let spot = spot(position, header_bytes as u64, record.range.len());
        if spot.end > end {
            break;
        }
        records.push((record, spot.block));
        position = spot.end;
        rest = &rest[header_bytes..];
    }
    records
}

/// A fuzzer's bytes as a directory, and behind the magic word as a header whose checksum is right.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(input: &[u8]) {
    let mut header = RECORD_MAGIC.to_le_bytes().to_vec();
    header.extend(input);
    let length = |at: usize| {
        header.get(at..at + 2).map_or(0, |it| usize::from(it[0]) | usize::from(it[1]) << 8)
    };
    let names_end = FIXED_BYTES + length(4) + length(6);
    if header.len() >= names_end {
        header.truncate(names_end);
        let crc = crc32fast::hash(&header);
        header.extend(crc.to_le_bytes());
    }
    if let Some((record, bytes)) = Record::parse(&header) {
        assert_eq!(Record::parse(&record.header()), Some((record, bytes)));
    }
    let packed = |at: u64, header_bytes: u64, block_bytes: u64| Spot {
        block: at + header_bytes,
        end: at + header_bytes + block_bytes,
    };
    for bytes in [input, &header] {
        parse_directory(bytes, HEAD_BYTES, 1 << 40, packed);
        judge_head(bytes);
        parse_trailer(bytes, 1 << 40);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packed(at: u64, header_bytes: u64, block_bytes: u64) -> Spot {
        Spot { block: at + header_bytes, end: at + header_bytes + block_bytes }
    }

    fn record() -> impl Strategy<Value = Record> {
        (".{0,40}", "[a-z0-9]{1,20}", 0u64..1 << 40, 1..=BLOCK_BYTES_MAX, any::<u32>()).prop_map(
            |(name, etag, start, len, crc)| Record {
                version: ObjectVersion {
                    name: name.into(),
                    etag: etag.into(),
                    size_bytes: start + len,
                },
                range: ByteRange { start, end: start + len },
                crc,
            },
        )
    }

    proptest! {
        #[test]
        fn a_header_is_read_as_it_was_written(record in record(), rest: Vec<u8>) {
            let mut bytes = record.header();
            let len = bytes.len();
            prop_assert!(len <= HEADER_BYTES_MAX);
            bytes.extend(rest);
            prop_assert_eq!(Record::parse(&bytes), Some((record, len)));
        }

        #[test]
        fn no_header_with_one_byte_changed_is_taken(
            record in record(), at: prop::sample::Index, change in 1u8..,
        ) {
            let mut bytes = record.header();
            let at = at.index(bytes.len());
            bytes[at] ^= change;
            prop_assert_eq!(Record::parse(&bytes), None);
        }

        #[test]
        fn parsers_take_any_bytes(bytes: Vec<u8>, start: u64, file_bytes: u64) {
            Record::parse(&bytes);
            judge_head(&bytes);
            if let Some((range, _)) = parse_trailer(&bytes, file_bytes) {
                prop_assert!(range.start <= range.end && range.end <= file_bytes);
            }
            for (record, block) in parse_directory(&bytes, HEAD_BYTES, start, packed) {
                prop_assert!(block + record.range.len() <= start);
            }
        }

        #[test]
        fn a_directory_tells_where_blocks_lie(records in prop::collection::vec(record(), 0..8)) {
            let mut directory = Vec::new();
            let (mut position, mut wanted) = (HEAD_BYTES, Vec::new());
            for record in &records {
                let header = record.header();
                wanted.push((record.clone(), position + header.len() as u64));
                position += header.len() as u64 + record.range.len();
                directory.extend(header);
            }
            prop_assert_eq!(&parse_directory(&directory, HEAD_BYTES, position, packed), &wanted);
            let end = position + directory.len() as u64;
            let told = parse_trailer(&trailer(position, &directory), end + TRAILER_BYTES);
            let crc = crc32fast::hash(&directory);
            prop_assert_eq!(told, Some((ByteRange { start: position, end }, crc)));
        }
    }

    #[test]
    fn files_of_others_are_known() {
        assert_eq!(judge_head(&head()), Head::Ours);
        let mut other = head();
        other[8] += 1;
        assert_eq!(judge_head(&other), Head::OtherVersion);
        assert_eq!(judge_head(b"PAR1 and so on.."), Head::Foreign);
        assert_eq!(judge_head(b""), Head::Foreign);
    }
}

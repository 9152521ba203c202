//! Where the columns of a Parquet file lie: the one thing that fetching ahead wants from its footer
//! (Apache Parquet format, `parquet.thrift`; Thrift compact protocol). Pure.
//!
//! What it does not understand gives `None`: then nothing is fetched ahead, and whoever reads the
//! file tells what is wrong with it.

use crate::read::plan::FOOTER_BYTES_MAX;
use penstock_base::ByteRange;
use std::ops::RangeInclusive;

/// Structures inside structures; the format needs five.
const DEPTH_MAX: u32 = 16;

/// The column chunks of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// By row group, then by column.
    row_groups: Vec<Vec<ByteRange>>,
    /// From the first byte of each row group to its last.
    extents: Vec<ByteRange>,
    /// Where the last of them ends.
    columns_end: u64,
    /// Whether they follow each other, as nearly all writers place them.
    is_in_order: bool,
}

impl Layout {
    /// Reads the footer at the end of `tail`, which is the end of a file.
    pub fn parse(tail: &[u8]) -> Option<Layout> {
        let mut footer = Thrift { rest: footer(tail)?, depth: 0 };
        let row_groups =
            footer.structures_in(4, |row_group| row_group.structures_in(1, column_chunk))?;
        Some(Layout::new(row_groups))
    }

    /// As [`Layout::parse`]; without row groups where the footer is here and not understood, so
    /// that it is looked at once.
    pub fn parse_once(tail: &[u8]) -> Option<Layout> {
        footer(tail)?;
        Some(Layout::parse(tail).unwrap_or_else(|| Layout::new(Vec::new())))
    }

    /// A file with these column chunks, by row group.
    pub fn new(row_groups: Vec<Vec<ByteRange>>) -> Self {
        let extent = |chunks: &Vec<ByteRange>| ByteRange {
            start: chunks.iter().map(|chunk| chunk.start).min().unwrap_or(0),
            end: chunks.iter().map(|chunk| chunk.end).max().unwrap_or(0),
        };
        let extents: Vec<ByteRange> = row_groups.iter().map(extent).collect();
        let columns_end = extents.iter().map(|extent| extent.end).max().unwrap_or(0);
        let is_in_order = extents.windows(2).all(|pair| pair[0].end <= pair[1].start);
        Layout { row_groups, extents, columns_end, is_in_order }
    }

    /// The row group, and the columns in it, that a read touches; none for a read of the footer,
    /// which takes in what happens to lie before it, and for one of several row groups, which is of
    /// the file's bytes, not of its columns.
    pub fn touched(&self, range: ByteRange) -> Option<(usize, RangeInclusive<usize>)> {
        if range.end > self.columns_end {
            return None;
        }
        // A file may have a hundred thousand row groups, and as many reads.
        let passed = if self.is_in_order {
            self.extents.partition_point(|extent| extent.end <= range.start)
        } else {
            0
        };
        let near = self.extents.iter().enumerate().skip(passed);
        let mut near = near.filter(|(_, extent)| extent.overlaps(&range));
        let (index, columns) = near.find_map(|(index, _)| {
            let chunks = &self.row_groups[index];
            let first = chunks.iter().position(|chunk| chunk.overlaps(&range))?;
            let last = chunks.iter().rposition(|chunk| chunk.overlaps(&range))?;
            Some((index, first..=last))
        })?;
        let mut next = self.row_groups.get(index + 1).into_iter().flatten();
        (!next.any(|chunk| chunk.overlaps(&range))).then_some((index, columns))
    }

    /// Number of row groups.
    pub fn row_group_count(&self) -> usize {
        self.row_groups.len()
    }

    /// The column chunks of a row group.
    pub fn row_group(&self, index: usize) -> &[ByteRange] {
        &self.row_groups[index]
    }
}

/// The footer at the end of a file, if all of it is here.
fn footer(tail: &[u8]) -> Option<&[u8]> {
    let (rest, magic) = tail.split_at_checked(tail.len().checked_sub(4)?)?;
    let (rest, length) = rest.split_at_checked(rest.len().checked_sub(4)?)?;
    let length = u32::from_le_bytes(length.try_into().ok()?);
    if magic != b"PAR1" || u64::from(length) > FOOTER_BYTES_MAX {
        return None;
    }
    rest.get(rest.len().checked_sub(length as usize)?..)
}

/// A chunk begins with its dictionary, where it has one.
fn column_chunk(thrift: &mut Thrift<'_>) -> Option<ByteRange> {
    let (mut length, mut pages, mut dictionary) = (0, 0, 0);
    thrift.structure(|thrift, field, kind| match (field, kind) {
        (3, STRUCT) => thrift.structure(|thrift, field, kind| {
            match (field, kind) {
                (7, I64) => length = thrift.integer()?,
                (9, I64) => pages = thrift.integer()?,
                (11, I64) => dictionary = thrift.integer()?,
                _ => thrift.skip(kind)?,
            }
            Some(())
        }),
        _ => thrift.skip(kind),
    })?;
    let start = if dictionary > 0 { dictionary.min(pages) } else { pages };
    ByteRange::of_len(u64::try_from(start).ok()?, u64::try_from(length).ok()?)
}

const BOOL_TRUE: u8 = 1;
const BOOL_FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;

/// What is left of a message in Thrift's compact protocol.
struct Thrift<'a> {
    rest: &'a [u8],
    depth: u32,
}

impl Thrift<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A zigzag-encoded number.
    fn integer(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    fn pass(&mut self, count: u64) -> Option<()> {
        self.rest = self.rest.get(usize::try_from(count).ok()?..)?;
        Some(())
    }

    /// Goes through the fields of a structure; `field` takes the value of each.
    fn structure(&mut self, mut field: impl FnMut(&mut Self, i64, u8) -> Option<()>) -> Option<()> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        let mut id = 0i64;
        loop {
            let head = self.byte()?;
            if head == 0 {
                self.depth -= 1;
                return Some(());
            }
            id = match head >> 4 {
                0 => self.integer()?,
                delta => id.checked_add(i64::from(delta))?,
            };
            field(self, id, head & 0x0f)?;
        }
    }

    /// Goes through a structure of which only one field is wanted, a list of structures; `element`
    /// reads each of those.
    fn structures_in<T>(
        &mut self,
        wanted: i64,
        mut element: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let mut found = Vec::new();
        self.structure(|thrift, field, kind| match (field, kind) {
            (field, LIST) if field == wanted => thrift.list(STRUCT, |thrift| {
                found.push(element(thrift)?);
                Some(())
            }),
            _ => thrift.skip(kind),
        })?;
        Some(found)
    }

    /// Goes through a list whose elements are of this kind.
    fn list(&mut self, kind: u8, mut element: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        let head = self.byte()?;
        let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        // Each element takes a byte at least, so the count needs no limit of its own.
        if head & 0x0f != kind || count > self.rest.len() as u64 {
            return None;
        }
        (0..count).try_for_each(|_| element(self))
    }

    fn skip(&mut self, kind: u8) -> Option<()> {
        match kind {
            BOOL_TRUE | BOOL_FALSE => Some(()),
            BYTE => self.pass(1),
            I16 | I32 | I64 => self.varint().map(|_| ()),
            DOUBLE => self.pass(8),
            BINARY => {
                let length = self.varint()?;
                self.pass(length)
            }
            LIST | SET => {
                let kind = self.rest.first()? & 0x0f;
                self.list(kind, |thrift| thrift.skip_element(kind))
            }
            MAP => {
                let count = self.varint()?;
                if count == 0 {
                    return Some(());
                }
                let kinds = self.byte()?;
                if count > self.rest.len() as u64 {
                    return None;
                }
                (0..count).try_for_each(|_| {
                    self.skip_element(kinds >> 4)?;
                    self.skip_element(kinds & 0x0f)
                })
            }
            STRUCT => self.structure(|thrift, _, kind| thrift.skip(kind)),
            _ => None,
        }
    }

    /// As a field a boolean is its own kind; as an element it takes a byte.
    fn skip_element(&mut self, kind: u8) -> Option<()> {
        match kind {
            BOOL_TRUE | BOOL_FALSE => self.pass(1),
            kind => {
                self.depth += 1;
                if self.depth > DEPTH_MAX {
                    return None;
                }
                let skipped = self.skip(kind);
                self.depth -= 1;
                skipped
            }
        }
    }
}

#[cfg(test)]
mod tests;

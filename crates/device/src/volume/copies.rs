//! The copies of the table on the device: which one holds, and the order in which they are written.
//!
//! A commit flushes what was written before, writes the first copy, flushes, and writes the others;
//! the flush that begins the next commit covers those. So at every moment one sound copy is
//! durable, and nothing is in a table that is not durable itself.

use crate::buffer::AlignedBuffer;
use crate::device::Command;
use crate::port::Port;
use crate::volume::budget::{TABLE_FULL, TABLE_FULL_HINT};
use crate::volume::format::has_data;
use crate::volume::shrunk::shrank;
use crate::volume::signature::{CACHE, DUCKDB, HEAD_BYTES, recognise};
use crate::volume::table::{COPIES, COPY_BYTES, COPY_PAGES, Flaw, PAGE_BYTES, PAGES_MIN};
use crate::volume::table::{FORMAT_VERSION, Table, copy_pages};
use penstock_base::door::setting;
use penstock_base::{Error, Kind, Result};

/// Pages as the device counts them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paging {
    /// Logical blocks of a page.
    pub blocks_per_page: u64,
    /// Whole pages of the device.
    pub pages: u64,
}

impl Paging {
    /// # Errors
    /// `Unsupported` for blocks larger than a page.
    pub(crate) fn of(port: &Port) -> Result<Self> {
        let geometry = port.geometry();
        let block_size = u64::from(geometry.block_size_bytes);
        if !PAGE_BYTES.is_multiple_of(block_size) {
            let message = format!("blocks of {block_size} bytes are larger than a page");
            return Err(Error::new(Kind::Unsupported, message)
                .with_operation("volume open")
                .with_object(port.name())
                .with_hint("Format the namespace with blocks of 4096 bytes or less"));
        }
        let blocks_per_page = PAGE_BYTES / block_size;
        Ok(Paging { blocks_per_page, pages: geometry.block_count / blocks_per_page })
    }
}

/// Memory that every device takes as it is.
pub(crate) fn memory(port: &Port, bytes: usize) -> AlignedBuffer {
    let alignment = port.geometry().buffer_alignment_bytes.max(PAGE_BYTES as u32);
    AlignedBuffer::new(bytes, alignment as usize)
}

/// What lies where a copy should be.
pub(crate) type Found = Result<Table, Flaw>;

/// Reads what lies at a page as a copy of at most so many pages.
pub(crate) fn read_at(port: &Port, paging: Paging, first_page: u64, most: u64) -> Result<Found> {
    let mut head = memory(port, PAGE_BYTES as usize);
    port.read(first_page * paging.blocks_per_page, &mut head)?;
    read_rest(port, paging, first_page, most, &head)
}

/// Reads the copy that begins at a page, of which there are at most so many.
pub(crate) fn read_copy(port: &Port, paging: Paging, first_page: u64, most: u64) -> Result<Found> {
    unless_lost(read_at(port, paging, first_page, most))
}

/// The same where its first page was read.
fn read_rest(port: &Port, paging: Paging, first: u64, most: u64, head: &[u8]) -> Result<Found> {
    let Some(length) = Table::encoded_length(head).filter(|it| *it > head.len()) else {
        return Ok(Table::decode(head));
    };
    let bytes = length.next_multiple_of(PAGE_BYTES as usize);
    let mut whole = memory(port, bytes.min(most as usize * PAGE_BYTES as usize));
    port.read(first * paging.blocks_per_page, &mut whole)?;
    Ok(Table::decode(&whole))
}

/// A copy that the medium lost is damaged as one of wrong bytes is. Any other failure may be over
/// in a moment: the copy may be the newest, and no other is taken in its place.
fn unless_lost(found: Result<Found>) -> Result<Found> {
    match found {
        Err(error) if error.kind() == Kind::Corrupt => {
            Ok(Err(Flaw::Damaged("the medium lost what it held")))
        }
        other => other,
    }
}

/// The first pages of copies, read together: a device that has to be waited for is waited for once.
/// None if one of them cannot be read.
fn read_heads(port: &Port, paging: Paging, places: [u64; COPIES]) -> Option<Vec<AlignedBuffer>> {
    let mut heads: Vec<_> = places.map(|_| memory(port, PAGE_BYTES as usize)).into();
    let blocks = places.map(|page| page * paging.blocks_per_page);
    let pairs = heads.iter_mut().zip(blocks);
    let mut batch: Vec<_> =
        pairs.map(|(head, block)| Command::Read { block, into: &mut head[..] }).collect();
    port.run(&mut batch).ok()?;
    Some(heads)
}

/// Reads every copy. The place of the last one is told by the others, else it is looked for at the
/// end of the device.
pub(crate) fn read_copies(port: &Port, paging: Paging) -> Result<[Found; COPIES]> {
    let at_end = paging.pages - COPY_PAGES;
    let places = [0, COPY_PAGES, at_end];
    let heads = read_heads(port, paging, places);
    let read = |copy: usize| match &heads {
        Some(heads) => unless_lost(read_rest(port, paging, places[copy], COPY_PAGES, &heads[copy])),
        None => read_copy(port, paging, places[copy], COPY_PAGES),
    };
    let (first, second) = (read(0)?, read(1)?);
    let told = newest(&[&first, &second]).map(|table| table.page_count);
    let third = match told.map(|end| end - COPY_PAGES).filter(|place| *place < at_end) {
        Some(place) => read_copy(port, paging, place, COPY_PAGES)?,
        None => read(2)?,
    };
    Ok([first, second, third])
}

fn newest<'a>(found: &[&'a Found]) -> Option<&'a Table> {
    let sound = found.iter().filter_map(|found| found.as_ref().ok());
    sound.max_by_key(|table| table.generation)
}

/// The format of a volume that a newer Penstock made. Where no checksum tells, two copies have to
/// agree, and none may be sound: one alone is damaged where it says its format.
fn newer(found: &[Found; COPIES]) -> Option<u32> {
    let mut others: Vec<u32> = Vec::new();
    for copy in found {
        match copy {
            Err(Flaw::Newer(version)) => return Some(*version),
            Err(Flaw::Other(version)) => others.push(*version),
            Ok(_) | Err(Flaw::Foreign | Flaw::Damaged(_)) => {}
        }
    }
    let is_agreed = |version: &u32| others.iter().filter(|it| *it == version).count() > 1;
    let has_sound = found.iter().any(Result::is_ok);
    others.iter().copied().find(|version| !has_sound && is_agreed(version))
}

/// The table that holds, or why there is none.
pub(crate) fn choose(found: &[Found; COPIES], port: &Port, paging: Paging) -> Result<Table> {
    let fail = |kind, message: String, hint: String| {
        let error = Error::new(kind, message).with_operation("volume open");
        Err(error.with_object(port.name()).with_hint(hint))
    };
    if let Some(version) = newer(found) {
        let message = format!("the volume has format {version}, known is {FORMAT_VERSION}");
        return fail(Kind::Unsupported, message, "Use a newer Penstock".into());
    }
    let Some(table) = newest(&[&found[0], &found[1], &found[2]]) else {
        let damage = found.iter().find_map(|found| match found {
            Err(Flaw::Damaged(what)) => Some(*what),
            Err(Flaw::Other(_)) => Some("its format or its checksum is wrong"),
            _ => None,
        });
        return match damage {
            Some(what) => fail(
                Kind::Corrupt,
                format!("no copy of the volume's table is sound: {what}"),
                "Restore the device from a backup".into(),
            ),
            None => Err(no_volume(port, paging)),
        };
    };
    refuse_overwritten(found, port)?;
    match table.page_count > paging.pages {
        true => Err(shrank(port, paging, table)),
        false => Ok(table.clone()),
    }
}

/// The error of a device without a volume tells what it holds instead.
fn no_volume(port: &Port, paging: Paging) -> Error {
    match held(port) {
        Ok(Some(what)) => return foreign(port, what),
        Ok(None) => {}
        Err(error) => return error,
    }
    let name = port.name();
    let hint = match has_data(port, paging) {
        Ok(false) => format!("Make one with `penstock nvme format {name}`"),
        // A table may lie at a former end where nobody looked.
        _ => format!(
            "It is not empty: if there was a volume before the device grew, give it the size that \
             it had (a file with `truncate -s SIZE`) and open it again; `penstock nvme format \
             --force {name}` overwrites what it holds"
        ),
    };
    let error = Error::new(Kind::NotFound, "there is no Penstock volume on it");
    error.with_operation("volume open").with_object(name).with_hint(hint)
}

/// What begins on a device, however small, where that is known.
pub(crate) fn held(port: &Port) -> Result<Option<&'static str>> {
    let mut head = memory(port, (HEAD_BYTES as u64).min(port.geometry().size_bytes()) as usize);
    port.read(0, &mut head)?;
    Ok(recognise(&head))
}

/// Refuses a device that something else begins on, though a copy of the table has outlived it
/// behind: a file system that was made over a volume leaves most of the device as it was. A volume
/// never takes the begin of its first copy away itself.
fn refuse_overwritten(found: &[Found; COPIES], port: &Port) -> Result<()> {
    if found[0] != Err(Flaw::Foreign) {
        return Ok(());
    }
    held(port)?.map_or(Ok(()), |what| Err(foreign(port, what)))
}

/// The error of a device that holds something else than a volume.
pub(crate) fn foreign(port: &Port, what: &str) -> Error {
    let name = port.name();
    let hint = match what {
        DUCKDB => format!(
            "Attach it as the file that it is, or copy it into a volume: `penstock nvme import \
             DEVICE {name} --db NAME`"
        ),
        CACHE => format!("Name another device, or give it as {}", setting("cache_dir")),
        _ => "Name another device; `penstock nvme format --force` would overwrite this one".into(),
    };
    let message = format!("there is no Penstock volume on it, but {what}");
    let error = Error::new(Kind::NotFound, message).with_operation("volume open");
    error.with_object(name).with_hint(hint)
}

/// The table as bytes for the device.
pub(crate) fn encode(port: &Port, table: &Table) -> Result<AlignedBuffer> {
    let Some(bytes) = table.encode() else {
        let error = Error::new(Kind::Exhausted, TABLE_FULL);
        return Err(error.with_object(port.name()).with_hint(TABLE_FULL_HINT));
    };
    let mut buffer = memory(port, bytes.len());
    buffer.copy_from_slice(&bytes);
    Ok(buffer)
}

/// Makes `encoded`, the bytes of `table`, the one that holds.
pub(crate) fn commit(
    port: &Port,
    paging: Paging,
    table: &Table,
    encoded: &[u8],
    flush: impl Fn() -> Result<()>,
) -> Result<()> {
    let blocks = copy_pages(table.page_count).map(|page| page * paging.blocks_per_page);
    flush()?;
    port.write(blocks[0], encoded)?;
    flush()?;
    let others = [blocks[1], blocks[2]];
    port.run(&mut others.map(|block| Command::Write { block, from: encoded }))
}

/// Writes the copies that differ from the one that holds, one after the other. After a process was
/// killed, the copy that holds may be in the device's or the page cache only: were another one
/// overwritten before it is durable, a power cut could take them all.
pub(crate) fn repair(
    port: &Port,
    paging: Paging,
    found: &[Found; COPIES],
    table: &Table,
) -> Result<()> {
    let places = found.iter().zip(copy_pages(table.page_count));
    let mut differing = places.filter(|(found, _)| found.as_ref() != Ok(table)).peekable();
    if differing.peek().is_none() {
        return Ok(());
    }
    let encoded = encode(port, table)?;
    port.flush()?;
    for (_, page) in differing {
        port.write(page * paging.blocks_per_page, &encoded)?;
        port.flush()?;
    }
    Ok(())
}

/// Writes the copies of a new volume, each over its whole room: a file gets its blocks for them
/// now, and nothing of what lay there before is left.
pub(crate) fn lay_out(port: &Port, paging: Paging, table: &Table) -> Result<()> {
    let encoded = encode(port, table)?;
    let mut room = memory(port, COPY_BYTES as usize);
    room[..encoded.len()].copy_from_slice(&encoded);
    for page in copy_pages(table.page_count) {
        port.write(page * paging.blocks_per_page, &room)?;
        port.flush()?;
    }
    Ok(())
}

/// Whether a device is large enough.
///
/// # Errors
/// `Invalid`, naming the least size.
pub(crate) fn check_size(port: &Port, paging: Paging) -> Result<()> {
    match paging.pages >= PAGES_MIN {
        true => Ok(()),
        false => Err(too_small(port)),
    }
}

/// The error of a device that is too small for a volume.
pub(crate) fn too_small(port: &Port) -> Error {
    let message = format!(
        "{} bytes are too few for a volume: it takes {}",
        port.geometry().size_bytes(),
        PAGES_MIN * PAGE_BYTES
    );
    let hint = match held(port) {
        Ok(Some(what)) => format!("It holds {what}: name another device"),
        _ => "Name a larger device, or enlarge the file: truncate -s 1GiB".to_string(),
    };
    Error::new(Kind::Invalid, message)
        .with_operation("volume open")
        .with_object(port.name())
        .with_hint(hint)
}

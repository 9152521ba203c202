//! Making a volume, and looking at one without trusting it. It decides what may be overwritten.

use crate::holes::Written;
use crate::port::Port;
use crate::volume::FileInfo;
use crate::volume::copies::{Paging, check_size, choose, lay_out, memory, read_copies};
use crate::volume::grown::find_copies;
use crate::volume::shrunk::check_whole;
use crate::volume::signature::{HEAD_BYTES, recognise};
use crate::volume::table::{COPY_BYTES, COPY_PAGES, FORMAT_VERSION, Flaw, PAGE_BYTES, Table};
use penstock_base::{Error, Kind, Result};
use std::hash::{BuildHasher, RandomState};

/// Most places between begin and end at which a device is looked at before it is formatted.
const SAMPLES: u64 = 1024;

/// How [`format`] treats what is there.
#[derive(Clone, Copy, Debug, Default)]
pub struct FormatOptions {
    /// Overwrites whatever the device holds.
    pub force: bool,
}

/// Makes an empty volume on a device. A crash meanwhile leaves the volume that was there, or none,
/// or the new one.
///
/// # Errors
/// `Conflict` if the device is not empty and `force` is not set, naming what is on it; `Invalid` if
/// it is too small; and as [`Port::run`].
pub fn format(port: &Port, options: FormatOptions) -> Result<()> {
    let paging = Paging::of(port)?;
    check_size(port, paging)?;
    let found = read_copies(port, paging)?;
    if !options.force {
        check_unused(port)?;
    }
    // Higher than any table that a crash may leave beside the new one.
    let generations = found.iter().filter_map(|found| found.as_ref().ok().map(|it| it.generation));
    let generation = generations.max().unwrap_or(0).saturating_add(1);
    let id = RandomState::new().hash_one(paging.pages);
    lay_out(port, paging, &Table::new(id, generation, paging.pages))
        .map_err(|error| error.with_operation("volume format"))
}

/// Pages between the first and last copy of a table, from which is judged whether a device is
/// empty that does not tell where it was written to: all of a small one, evenly spread ones of
/// others, for to read a whole device takes hours.
fn sampled(pages: u64) -> impl Iterator<Item = u64> {
    let between = pages.saturating_sub(2 * COPY_PAGES);
    let count = between.min(SAMPLES);
    (0..count).map(move |index| COPY_PAGES + index * between / count)
}

fn is_zero(bytes: &[u8]) -> bool {
    const ZEROS: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];
    bytes.chunks(ZEROS.len()).all(|chunk| *chunk == ZEROS[..chunk.len()])
}

/// Whether there is anything but zeros between the first and last copy of a table, as far as
/// [`sampled`] tells.
fn has_data_sampled(port: &Port, paging: Paging) -> Result<bool> {
    let mut page = memory(port, PAGE_BYTES as usize);
    for at in sampled(paging.pages) {
        port.read(at * paging.blocks_per_page, &mut page)?;
        if !is_zero(&page) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The same; of a file everything is read that was ever written.
pub(crate) fn has_data(port: &Port, paging: Paging) -> Result<bool> {
    let mut buffer = memory(port, COPY_BYTES as usize);
    let last = paging.pages - COPY_PAGES;
    let mut page = COPY_PAGES;
    while page < last {
        let written = match port.written_from(page * PAGE_BYTES) {
            Written::Unknown => return has_data_sampled(port, paging),
            Written::Ended => return Ok(false),
            Written::Next(written) => written,
        };
        page = page.max(written.start / PAGE_BYTES);
        let end = written.end.div_ceil(PAGE_BYTES).min(last);
        while page < end {
            let pages = (end - page).min(COPY_PAGES);
            let into = &mut buffer[..(pages * PAGE_BYTES) as usize];
            port.read(page * paging.blocks_per_page, into)?;
            if !is_zero(into) {
                return Ok(true);
            }
            page += pages;
        }
    }
    Ok(false)
}

/// Refuses a device that is not empty: at its begin, at its end, or between, where a file is read
/// whole, and of a device some places are.
///
/// # Errors
/// `Conflict`, naming what is recognised; and as [`Port::run`].
pub fn check_unused(port: &Port) -> Result<()> {
    let paging = Paging::of(port)?;
    check_size(port, paging)?;
    let mut start = memory(port, COPY_BYTES as usize);
    port.read(0, &mut start)?;
    let mut end = memory(port, COPY_BYTES as usize);
    port.read((paging.pages - COPY_PAGES) * paging.blocks_per_page, &mut end)?;
    let known = recognise(&start[..HEAD_BYTES]).or_else(|| recognise(&end[..HEAD_BYTES]));
    let what = match known {
        Some(what) => what,
        None if is_zero(&start) && is_zero(&end) && !has_data(port, paging)? => return Ok(()),
        None => "data",
    };
    Err(Error::new(Kind::Conflict, format!("the device holds {what}"))
        .with_operation("volume format")
        .with_object(port.name())
        .with_hint("If nothing on it is needed any more, overwrite it with --force"))
}

/// What [`check`] found.
#[derive(Clone, Debug)]
pub struct Report {
    /// One line for each copy of the table.
    pub copies: Vec<String>,
    /// Copies that are sound and up to date.
    pub sound_copies: usize,
    /// Bytes of the volume.
    pub size_bytes: u64,
    /// Bytes that no file has.
    pub free_bytes: u64,
    /// The files of the table that holds.
    pub files: Vec<FileInfo>,
}

/// Looks at a volume and changes nothing. Reads every byte of every file, so that the device can
/// say which of them it has lost.
///
/// # Errors
/// As [`crate::volume::Volume::open`], and for bytes that cannot be read, naming the file.
pub fn check(port: &Port) -> Result<Report> {
    let paging = Paging::of(port)?;
    check_whole(port, paging)?;
    let found = find_copies(port, paging)?;
    let table = choose(&found, port, paging)?;
    let is_current = |copy: &Table| copy.generation == table.generation;
    let tell = |found: &Result<Table, Flaw>| match found {
        Ok(copy) if is_current(copy) => format!("sound, generation {}", copy.generation),
        Ok(copy) => format!("behind, generation {}", copy.generation),
        Err(Flaw::Foreign) => "there is none".to_string(),
        Err(Flaw::Newer(version)) => format!("format {version}, known is {FORMAT_VERSION}"),
        Err(Flaw::Other(version)) => {
            format!("format {version}, known is {FORMAT_VERSION}, or damaged")
        }
        Err(Flaw::Damaged(what)) => format!("damaged: {what}"),
    };
    let mut buffer = memory(port, COPY_BYTES as usize);
    let mut used = 0;
    let mut files = Vec::new();
    for (name, entry) in &table.files {
        let mut allocated_bytes = 0;
        for extent in &entry.extents {
            allocated_bytes += extent.pages * PAGE_BYTES;
            for page in (extent.first_page..extent.end()).step_by(COPY_PAGES as usize) {
                let pages = (extent.end() - page).min(COPY_PAGES);
                let into = &mut buffer[..(pages * PAGE_BYTES) as usize];
                port.read(page * paging.blocks_per_page, into)
                    .map_err(|error| error.with_note(format!("in the file {name}")))?;
            }
        }
        used += allocated_bytes;
        files.push(FileInfo { name: name.clone(), size_bytes: entry.size_bytes, allocated_bytes });
    }
    Ok(Report {
        copies: found.iter().map(tell).collect(),
        sound_copies: found.iter().flatten().filter(|copy| is_current(copy)).count(),
        size_bytes: table.page_count * PAGE_BYTES,
        free_bytes: (table.page_count - 3 * COPY_PAGES) * PAGE_BYTES - used,
        files,
    })
}

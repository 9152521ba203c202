//! Devices that have grown since their volume was made, and lost the first two copies of its table:
//! the third is where the device ended. It decides where that can have been, and how long is
//! looked.

use crate::holes::Written;
use crate::port::Port;
use crate::volume::copies::{Found, Paging, memory, read_copies, read_copy};
use crate::volume::signature::{HEAD_BYTES, recognise};
use crate::volume::table::{COPIES, COPY_BYTES, COPY_PAGES, Flaw, PAGE_BYTES, PAGES_MIN, Table};
use penstock_base::Result;
use std::ops::Range;

/// Most pages that are read of a file, which tells where it was written to: 1 GiB.
const PAGES_MOST: u64 = (1 << 30) / PAGE_BYTES;
/// Most ranges of a file that are looked at.
const RANGES_MOST: usize = 65_536;
/// Most places at each distance that are looked at on a device, where every page may be one.
const PLACES_MOST: usize = 4096;
/// Partitions and logical volumes end at whole MiB, and large ones mostly at whole GiB.
const STEPS: [u64; 2] = [COPY_PAGES, (1 << 30) / PAGE_BYTES];

/// As [`read_copies`]; where none is sound, the last one is looked for at former ends too. Not if
/// something else begins on the device, nor if there is a damaged copy at its end: then the volume
/// has grown with it, and what lies at a former end is older than what was lost.
pub(crate) fn find_copies(port: &Port, paging: Paging) -> Result<[Found; COPIES]> {
    let mut found = read_copies(port, paging)?;
    let is_lost = |copy: &Found| matches!(copy, Err(Flaw::Foreign | Flaw::Damaged(_)));
    if !found.iter().all(is_lost) || found[COPIES - 1] != Err(Flaw::Foreign) {
        return Ok(found);
    }
    if found[0] == Err(Flaw::Foreign) {
        let mut head = memory(port, HEAD_BYTES);
        port.read(0, &mut head)?;
        if recognise(&head).is_some() {
            return Ok(found);
        }
    }
    if let Some(table) = at_former_end(port, paging)? {
        found[COPIES - 1] = Ok(table);
    }
    Ok(found)
}

/// The table of the volume with the last end before the device's.
fn at_former_end(port: &Port, paging: Paging) -> Result<Option<Table>> {
    let places = PAGES_MIN - COPY_PAGES..paging.pages.saturating_sub(COPY_PAGES);
    if let Some(written) = written(port, &places) {
        return in_written(port, paging, &written);
    }
    for place in candidates(&places) {
        if let Some(table) = at(port, paging, place)? {
            return Ok(Some(table));
        }
    }
    Ok(None)
}

/// Where a last copy can begin on a device that does not tell where it was written to.
fn candidates(places: &Range<u64>) -> impl Iterator<Item = u64> {
    let (first, end) = (places.start, places.end);
    STEPS.into_iter().flat_map(move |step| {
        let last_end = (end + COPY_PAGES).saturating_sub(1) / step * step;
        let ends = (0..PLACES_MOST as u64).map_while(move |back| last_end.checked_sub(back * step));
        ends.filter_map(|end| end.checked_sub(COPY_PAGES)).take_while(move |at| *at >= first)
    })
}

/// The pages of a file that were written to; none if that is not known.
fn written(port: &Port, places: &Range<u64>) -> Option<Vec<Range<u64>>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut at = places.start * PAGE_BYTES;
    while at < places.end * PAGE_BYTES && ranges.len() < RANGES_MOST {
        match port.written_from(at) {
            Written::Unknown => return None,
            Written::Ended => break,
            Written::Next(bytes) => {
                let end = bytes.end.div_ceil(PAGE_BYTES).min(places.end);
                ranges.push((bytes.start / PAGE_BYTES).max(places.start)..end);
                at = bytes.end;
            }
        }
    }
    Some(ranges)
}

/// Looks at every page, from the last one back.
fn in_written(port: &Port, paging: Paging, written: &[Range<u64>]) -> Result<Option<Table>> {
    let mut buffer = memory(port, COPY_BYTES as usize);
    let mut left = PAGES_MOST;
    for range in written.iter().rev() {
        let mut end = range.end;
        while end > range.start && left > 0 {
            let first = end.saturating_sub(COPY_PAGES.min(left)).max(range.start);
            let into = &mut buffer[..((end - first) * PAGE_BYTES) as usize];
            port.read(first * paging.blocks_per_page, into)?;
            let pages = into.chunks(PAGE_BYTES as usize).enumerate().rev();
            for (page, _) in pages.filter(|row| Table::encoded_length(row.1).is_some()) {
                if let Some(table) = at(port, paging, first + page as u64)? {
                    return Ok(Some(table));
                }
            }
            left -= end - first;
            end = first;
        }
    }
    Ok(None)
}

/// The table whose last copy begins at a page.
fn at(port: &Port, paging: Paging, page: u64) -> Result<Option<Table>> {
    let found = read_copy(port, paging, page, COPY_PAGES)?;
    Ok(found.ok().filter(|table| table.page_count == page + COPY_PAGES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_whole_mib_from_the_end_and_then_whole_gib() {
        let mib = |ends: &[u64]| -> Vec<u64> { ends.iter().map(|end| (end - 1) * 256).collect() };
        let small: Vec<u64> = candidates(&(768..10 * 256 - 256)).collect();
        assert_eq!(small, mib(&[9, 8, 7, 6, 5, 4]));
        let uneven: Vec<u64> = candidates(&(768..10 * 256 - 250)).take(2).collect();
        assert_eq!(uneven, mib(&[10, 9]));
        let tib: Vec<u64> = candidates(&(768..(1 << 28) - 256)).collect();
        assert_eq!(tib.len(), PLACES_MOST + 1023);
        assert_eq!(tib[PLACES_MOST..][..2], mib(&[1023 << 10, 1022 << 10]));
    }
}

//! Devices that became smaller than the volume on them, most often a file that was cut off. It
//! decides what is told of them: what was there, what of it is gone, and what can be done.

use crate::port::Port;
use crate::volume::copies::{Found, Paging, foreign, held, read_at, too_small};
use crate::volume::table::{Entry, Flaw, PAGE_BYTES, PAGES_MIN, Table};
use penstock_base::{Error, Kind, Result};

/// Most files that are named.
const NAMED_MOST: usize = 4;

/// Whether a device is large enough to hold a volume, for who expects one on it.
///
/// # Errors
/// `Corrupt` where one begins, `Invalid` for other devices that are too small; and as
/// [`Port::run`].
pub(crate) fn check_whole(port: &Port, paging: Paging) -> Result<()> {
    if paging.pages >= PAGES_MIN {
        return Ok(());
    }
    let found = match paging.pages {
        0 => Err(Flaw::Foreign),
        _ => first_copy(port, paging)?,
    };
    Err(match found {
        Err(Flaw::Foreign) => match held(port)? {
            Some(what) => foreign(port, what),
            None => too_small(port),
        },
        Ok(table) => shrank(port, paging, &table),
        Err(_) => {
            let is = port.geometry().size_bytes();
            let message = format!("a volume begins on it, but {is} bytes are less than any has");
            told(port, message).with_hint(
                "It shrank, or is the begin of a copy: restore it from a backup, or make it anew \
                 with `penstock nvme format --force`",
            )
        }
    })
}

/// The first copy of the table, as far as the device goes.
fn first_copy(port: &Port, paging: Paging) -> Result<Found> {
    read_at(port, paging, 0, paging.pages)
}

/// The error of a device that is smaller than the volume that a table tells of.
pub(crate) fn shrank(port: &Port, paging: Paging, table: &Table) -> Error {
    let (is, was) = (port.geometry().size_bytes(), table.page_count * PAGE_BYTES);
    let files = table.files.iter();
    let is_cut = |it: &Entry| it.extents.iter().any(|extent| extent.end() > paging.pages);
    let cut: Vec<&str> =
        files.filter(|(_, entry)| is_cut(entry)).map(|(name, _)| name.as_str()).collect();
    let message = format!("the device has {is} bytes, its volume {was}");
    let name = port.name();
    if cut.is_empty() {
        return told(port, format!("{message}; no file lay behind its end")).with_hint(format!(
            "It shrank: give it its size back, a file with `truncate -s {was} {name}`"
        ));
    }
    let more = if cut.len() > NAMED_MOST { ", ..." } else { "" };
    let named = cut[..cut.len().min(NAMED_MOST)].join(", ");
    told(port, format!("{message}; behind its end lay parts of {named}{more}")).with_hint(format!(
        "It shrank: give a device its size back. A file that was cut off has lost those: \
         `truncate -s {was} {name}` makes the others readable, those come from a backup"
    ))
}

fn told(port: &Port, message: String) -> Error {
    Error::new(Kind::Corrupt, message).with_operation("volume open").with_object(port.name())
}

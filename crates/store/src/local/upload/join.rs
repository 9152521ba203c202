//! The parts of a completion: looked at all at once, then opened one at a time, as they are needed.
//! An upload may have more of them than a process may have files open.

use super::{OPTIONS, ended, part_name};
use crate::Part;
use crate::local::errno::{explain, explain_io};
use penstock_base::{Error, Kind, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, OFlags, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};

/// Refuses parts that do not ascend, are not there, or are shorter than their names say.
pub(super) fn check_parts(dir: &OwnedFd, parts: &[Part], shown: &str) -> Result<()> {
    let mut last = 0;
    for part in parts {
        // A tag becomes part of a path, and may come from a stranger.
        if part.number <= last || !is_tag(&part.etag) {
            return Err(no_such_part(part));
        }
        last = part.number;
        match rustix::fs::statat(dir, part_name(part), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => check_whole(part, &stat)?,
            Err(Errno::NOENT) => return Err(no_such_part(part)),
            Err(errno) => return Err(explain(errno, "look at a part of", shown)),
        }
    }
    Ok(())
}

/// Opens the file of a part that was checked. It may be longer than its name says: a completion
/// that broke off has appended to it.
pub(super) fn open_part(dir: &OwnedFd, part: &Part, access: OFlags, shown: &str) -> Result<File> {
    let failed = |errno| explain(errno, "open a part of", shown);
    let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    match rustix::fs::openat(dir, part_name(part), flags, rustix::fs::Mode::empty()) {
        Ok(fd) => {
            let stat = rustix::fs::fstat(&fd).map_err(failed)?;
            check_whole(part, &stat).map(|()| File::from(fd))
        }
        Err(Errno::NOENT) => Err(no_such_part(part)),
        Err(errno) => Err(failed(errno)),
    }
}

fn no_such_part(part: &Part) -> Error {
    let why = format!("part {} is missing, replaced or out of order", part.number);
    Error::new(Kind::Invalid, why)
}

fn is_tag(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.bytes().all(fits)
}

/// Refuses the file of a part that is shorter than its name says.
pub(super) fn check_whole(part: &Part, stat: &Stat) -> Result<()> {
    let Part { number, size_bytes, .. } = *part;
    let found = u64::try_from(stat.st_size).unwrap_or(0);
    if found >= size_bytes {
        return Ok(());
    }
    let why = format!("part {number} has only {found} of its {size_bytes} bytes left");
    Err(Error::new(Kind::Invalid, why)
        .with_hint("A power cut or another program took the rest; send this part again"))
}

/// Appends the later parts to the first one's file. A part that an earlier completion had begun to
/// append to counts with its own bytes, so a failed completion can be repeated.
pub(super) fn join(dir: &OwnedFd, (first, rest): (&Part, &[Part]), shown: &str) -> Result<File> {
    let failed = |error: std::io::Error| explain_io(&error, "join the parts of", shown);
    let mut file = open_part(dir, first, OFlags::RDWR, shown)?;
    file.set_len(first.size_bytes).map_err(failed)?;
    file.seek(SeekFrom::End(0)).map_err(failed)?;
    for part in rest {
        check_not_aborted(dir, shown)?;
        let mut next = open_part(dir, part, OFlags::RDONLY, shown)?.take(part.size_bytes);
        let copied = std::io::copy(&mut next, &mut file).map_err(failed)?;
        if copied != part.size_bytes {
            let why = format!("part {} has {copied} bytes, not {}", part.number, part.size_bytes);
            return Err(Error::new(Kind::Corrupt, why));
        }
    }
    check_not_aborted(dir, shown)?;
    Ok(file)
}

/// Whoever aborts an upload takes its options away before it waits for the completion.
fn check_not_aborted(dir: &OwnedFd, shown: &str) -> Result<()> {
    match rustix::fs::statat(dir, OPTIONS, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(()),
        Err(Errno::NOENT) => Err(ended()),
        Err(errno) => Err(explain(errno, "read the options of", shown)),
    }
}

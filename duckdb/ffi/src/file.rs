//! Open files on volumes.

use crate::abi::{PsPair, PsStr, free, give, handle};
use crate::error::{PsError, guarded};
use crate::query::PsQuery;
use crate::rows::PsRows;
use crate::volumes::{At, PsVolumes, Target, put};
use crate::window::{Plan, SMALL_MAX_BYTES, Window};
use penstock_base::{Error, Kind, Result};
use penstock_device::volume::{File, Lock, OpenFileOptions, SharedVolume, Version};
use std::ffi::c_void;
use std::sync::Mutex;
use std::time::Instant;

/// Bytes that a look at a file takes along, so that it need not open the device a second time.
const HEAD_BYTES: usize = 4096;

/// How a file is opened; the bits of the header.
#[derive(Clone, Copy)]
struct Flags(u32);

impl Flags {
    const WRITE: u32 = 1;
    const CREATE: u32 = 2;
    const TRUNCATE: u32 = 4;
    const EXCLUSIVE: u32 = 8;
    const NULL_IF_ABSENT: u32 = 16;
    const READ_LOCK: u32 = 32;
    const WRITE_LOCK: u32 = 64;

    fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }

    fn lock(self) -> Lock {
        match (self.has(Self::READ_LOCK), self.has(Self::WRITE_LOCK)) {
            (_, true) => Lock::Write,
            (true, false) => Lock::Read,
            (false, false) => Lock::None,
        }
    }
}

/// An open file, given to the caller.
pub struct PsFile {
    access: Access,
    may_write: bool,
}

enum Access {
    Open {
        // Before the volume: files go first.
        file: File,
        /// DuckDB replays its log in pieces of 4 KiB.
        ahead: Mutex<Window>,
        _volume: SharedVolume,
    },
    /// A reader without a lock on a volume that nobody else has open. It must not be in the way of
    /// one who wants to write, so it keeps nothing open: it looks again when it is read, and takes
    /// no other file for the one that it found.
    Look { target: Target, head: Vec<u8>, size_bytes: u64, version: Version },
}

impl PsFile {
    fn open(target: Target, flags: Flags) -> Result<Option<Self>> {
        let may_write = flags.has(Flags::WRITE);
        let is_look = !may_write && flags.lock() == Lock::None;
        if is_look && !target.is_open() {
            let access = Access::look(target, flags)?;
            return Ok(access.map(|access| PsFile { access, may_write }));
        }
        let volume = target.join()?;
        let exists = volume.exists(&target.name);
        let fail = |kind, message: &str| {
            let error = Error::new(kind, message).with_operation("volume open file");
            Err(error.with_object(&target.name))
        };
        if exists && flags.has(Flags::EXCLUSIVE) {
            return fail(Kind::Conflict, "it exists already");
        }
        if let (Some(other), true) = (&target.to_replace, flags.has(Flags::TRUNCATE)) {
            // Told now, and not when all is written.
            volume.check_replaceable(other)?;
        }
        let create = flags.has(Flags::CREATE) || flags.has(Flags::TRUNCATE);
        if !exists && !create && flags.has(Flags::NULL_IF_ABSENT) {
            return Ok(None);
        }
        let options = OpenFileOptions { create, lock: flags.lock() };
        let file = volume.open_file(&target.name, options)?;
        if flags.has(Flags::TRUNCATE) && file.size_bytes() > 0 {
            file.truncate(0)?;
        }
        let access = Access::Open { file, ahead: Mutex::default(), _volume: volume };
        Ok(Some(PsFile { access, may_write }))
    }

    fn read(&self, into: &mut [u8], offset: u64) -> Result<usize> {
        match &self.access {
            Access::Open { file, ahead, .. } => read_ahead(file, ahead, into, offset),
            Access::Look { target, head, size_bytes, version } => {
                let length = size_bytes.saturating_sub(offset).min(into.len() as u64) as usize;
                let start = offset.min(*size_bytes) as usize;
                if let Some(known) = head.get(start..start + length) {
                    into[..length].copy_from_slice(known);
                    return Ok(length);
                }
                target.peek(|volume| {
                    let options = OpenFileOptions { create: false, lock: Lock::None };
                    let file = volume.open_file(&target.name, options)?;
                    match file.is_still(version)? {
                        true => file.read_at(into, offset),
                        false => Err(target.replaced()),
                    }
                })
            }
        }
    }

    /// The same text for every handle to the same file, and another for one that replaces it.
    fn version(&self) -> Result<String> {
        match &self.access {
            Access::Open { file, .. } => Ok(file.version()?.to_string()),
            Access::Look { version, .. } => Ok(version.to_string()),
        }
    }

    fn size_bytes(&self) -> u64 {
        match &self.access {
            Access::Open { file, .. } => file.size_bytes(),
            Access::Look { size_bytes, .. } => *size_bytes,
        }
    }

    /// The file, if it may be changed.
    fn writable(&self) -> Result<&File> {
        match &self.access {
            Access::Open { file, .. } if self.may_write => Ok(file),
            Access::Open { .. } | Access::Look { .. } => {
                Err(Error::new(Kind::Denied, "the file was opened for reading")
                    .with_operation("volume write"))
            }
        }
    }
}

/// Reads through the window, if nobody else is at it. Of two threads that read small pieces at once
/// neither is the reader for whom it is there.
fn read_ahead(file: &File, ahead: &Mutex<Window>, into: &mut [u8], offset: u64) -> Result<usize> {
    if into.len() > SMALL_MAX_BYTES {
        return file.read_at(into, offset);
    }
    let Ok(mut window) = ahead.try_lock() else { return file.read_at(into, offset) };
    match window.plan(offset, into.len(), file.changes()) {
        Plan::Straight => {
            drop(window);
            file.read_at(into, offset)
        }
        Plan::Held => Ok(window.take(into, offset)),
        Plan::Fill => {
            // Before the bytes: a change that ends meanwhile makes them old.
            let changes = file.changes();
            window.fill(offset, changes, |room| file.read_at(room, offset))?;
            Ok(window.take(into, offset))
        }
    }
}

impl Access {
    fn look(target: Target, flags: Flags) -> Result<Option<Self>> {
        let found = target.peek(|volume| {
            if flags.has(Flags::NULL_IF_ABSENT) && !volume.exists(&target.name) {
                return Ok(None);
            }
            let options = OpenFileOptions { create: false, lock: Lock::None };
            let file = volume.open_file(&target.name, options)?;
            let mut head = vec![0; HEAD_BYTES];
            let length = file.read_at(&mut head, 0)?;
            head.truncate(length);
            Ok(Some((head, file.size_bytes(), file.version()?)))
        })?;
        Ok(found.map(|(head, size_bytes, version)| Access::Look {
            target,
            head,
            size_bytes,
            version,
        }))
    }
}

/// See the header.
///
/// # Safety
/// Handles came from this library, text and pairs are readable, the out-parameters are null or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_file_open(
    volumes: *const PsVolumes,
    url: PsStr,
    settings: *const PsPair,
    count: usize,
    flags: u32,
    out: *mut *mut PsFile,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let (volumes, at) = At::new(volumes, url, settings, count)?;
            let flags = Flags(flags);
            match PsFile::open(volumes.target(&at, flags.has(Flags::WRITE))?, flags)? {
                Some(file) => give(out, file),
                None => put(out, std::ptr::null_mut()),
            }
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// `file` came from this library, and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_file_free(file: *mut PsFile) {
    // SAFETY: the caller vouches for it.
    unsafe { free(file) }
}

/// A length that memory can have: no range of it is longer than `isize::MAX`.
fn length(len: u64) -> Result<usize> {
    let fits = isize::try_from(len).ok().and_then(|len| usize::try_from(len).ok());
    fits.ok_or_else(|| {
        Error::new(Kind::Invalid, format!("{len} bytes exceed the address space"))
            .with_operation("volume file")
            .with_hint("This is a mistake of the caller; please report it")
    })
}

/// See the header.
///
/// # Safety
/// `file` and `query` came from this library, `buffer` has `len` writable bytes that nobody else
/// uses, the out-parameters are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_file_read(
    file: *const PsFile,
    query: *const PsQuery,
    buffer: *mut c_void,
    len: u64,
    offset: u64,
    got: *mut u64,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let file = handle(file, "file")?;
            if len == 0 {
                return put(got, 0);
            }
            if buffer.is_null() {
                return Err(Error::new(Kind::Internal, "the read buffer is null"));
            }
            let into = std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length(len)?);
            let began = Instant::now();
            let count = file.read(into, offset)? as u64;
            if let Some(query) = query.as_ref() {
                query.query.has_read_volume(began, count);
            }
            put(got, count)
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// `file` came from this library, `data` has `len` readable bytes, `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_file_write(
    file: *const PsFile,
    data: *const c_void,
    len: u64,
    offset: u64,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let from = crate::abi::array(data.cast::<u8>(), length(len)?, "the data")?;
            handle(file, "file")?.writable()?.write_at(from, offset)
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// `file` came from this library, `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_file_sync(file: *const PsFile, error: *mut *mut PsError) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe { guarded(error, || handle(file, "file")?.writable()?.sync()) }.is_some()
}

/// See the header.
///
/// # Safety
/// `file` came from this library, `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_file_truncate(
    file: *const PsFile,
    size_bytes: u64,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe { guarded(error, || handle(file, "file")?.writable()?.truncate(size_bytes)) }.is_some()
}

/// See the header.
///
/// # Safety
/// `file` came from this library, `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_file_trim(
    file: *const PsFile,
    offset: u64,
    len: u64,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe { guarded(error, || handle(file, "file")?.writable()?.trim(offset, len)) }.is_some()
}

/// See the header.
///
/// # Safety
/// `file` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_file_size(file: *const PsFile) -> u64 {
    // SAFETY: the caller vouches for it.
    let Ok(file) = (unsafe { handle(file, "file") }) else { return 0 };
    crate::error::quiet(0, || file.size_bytes())
}

/// See the header.
///
/// # Safety
/// `file` came from this library, the out-parameters are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_file_version(
    file: *const PsFile,
    out: *mut *mut PsRows,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe { guarded(error, || give(out, PsRows::of_text(handle(file, "file")?.version()?))) }
        .is_some()
}

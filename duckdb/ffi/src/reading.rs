//! Open objects.

use crate::abi::{PsPair, PsStr, array, free, give, handle, pairs};
use crate::engine::PsEngine;
use crate::error::{PsError, guarded};
use crate::names::locate;
use crate::query::PsQuery;
use crate::rows::epoch_us;
use penstock_base::{Error, Kind, Result, micros};
use penstock_engine::{ETag, IsKept, Known, Listed, ObjectMeta, Reader};
use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// An open object, given to the caller.
#[derive(Debug)]
pub struct PsReader {
    reader: Reader,
}

/// What the caller knows of an object before opening it.
#[repr(C)]
#[derive(Debug)]
pub struct PsKnown {
    has_size: bool,
    size_bytes: u64,
    has_modified: bool,
    modified_us: i64,
    etag: PsStr,
    immutable: bool,
    host_keeps: bool,
    footer_size_bytes: u64,
    listed_us: u64,
}

/// What tells the version of an open object from others.
#[repr(C)]
#[derive(Debug)]
pub struct PsTold {
    has_modified: bool,
    modified_us: i64,
    etag: PsStr,
}

impl PsKnown {
    unsafe fn to_known(&self) -> Result<Known> {
        // SAFETY: passed on from the caller.
        let etag = unsafe { self.etag.text("the ETag") }?;
        Ok(Known {
            meta: ObjectMeta {
                size_bytes: self.has_size.then_some(self.size_bytes),
                etag: (!etag.is_empty()).then(|| ETag::parse(etag)),
                modified: (self.has_modified && self.modified_us >= 0)
                    .then(|| UNIX_EPOCH + Duration::from_micros(self.modified_us.unsigned_abs())),
                ..ObjectMeta::default()
            },
            listed: Listed::from_us(self.listed_us),
            immutable: self.immutable,
            host_keeps: self.host_keeps,
            footer_size_bytes: (self.footer_size_bytes != 0).then_some(self.footer_size_bytes),
        })
    }
}

/// See the header.
///
/// # Safety
/// Handles came from this library, texts and pairs are readable, `known` is null or readable, the
/// out-parameters are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_open_read(
    query: *const PsQuery,
    url: PsStr,
    options: *const PsPair,
    option_count: usize,
    known: *const PsKnown,
    out: *mut *mut PsReader,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let (query, at) = locate(query, url, options, option_count)?;
            let known = match known.as_ref() {
                Some(known) => known.to_known()?,
                None => Known::default(),
            };
            let reader = query.block_on(query.open(&at, &known))?;
            give(out, PsReader { reader })
        })
    }
    .is_some()
}

/// An object that another file system opened is kept by the host in this version.
#[derive(Debug)]
pub struct PsKept {
    _is_kept: Arc<IsKept>,
}

/// See the header.
///
/// # Safety
/// `engine` came from this library, texts are readable, `version` is null or readable, the
/// out-parameters are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_told_elsewhere(
    engine: *const PsEngine,
    url: PsStr,
    version: *const PsKnown,
    out: *mut *mut PsKept,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let version = match version.as_ref() {
                Some(known) => known.to_known()?.meta,
                None => ObjectMeta::default(),
            };
            let engine = &handle(engine, "engine")?.0;
            match engine.told_elsewhere(url.text("the URL")?, &version) {
                Some(kept) => give(out, PsKept { _is_kept: kept }),
                None => Ok(()),
            }
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// `kept` came from this library, and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_kept_free(kept: *mut PsKept) {
    // SAFETY: the caller vouches for it.
    unsafe { free(kept) }
}

/// See the header.
///
/// # Safety
/// `query` came from this library, `urls` and `known` have `count` readable elements, texts and
/// pairs are readable, `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_query_announce(
    query: *const PsQuery,
    urls: *const PsStr,
    known: *const PsKnown,
    count: usize,
    options: *const PsPair,
    option_count: usize,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let query = &handle(query, "query")?.query;
            let options = pairs(options, option_count, "a store option")?;
            let urls = array(urls, count, "the URLs")?;
            let known = array(known, count, "what is known of the files")?;
            let file = |(url, known): (&PsStr, &PsKnown)| {
                Ok((query.locate(url.text("the URL")?, &options)?, known.to_known()?))
            };
            query.announce(urls.iter().zip(known).map(file).collect::<Result<_>>()?);
            Ok(())
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// `query` came from this library, texts, pairs and `columns` are readable, `error` is null or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_query_will_read(
    query: *const PsQuery,
    url: PsStr,
    options: *const PsPair,
    option_count: usize,
    columns: *const u32,
    column_count: usize,
    is_cached_ahead: bool,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let (query, at) = locate(query, url, options, option_count)?;
            query.will_read(&at, array(columns, column_count, "the columns")?, is_cached_ahead);
            Ok(())
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// `reader` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_reader_size(reader: *const PsReader) -> u64 {
    // SAFETY: the caller vouches for it.
    unsafe { handle(reader, "reader") }.map_or(0, |reader| reader.reader.size_bytes())
}

/// See the header.
///
/// # Safety
/// Handles came from this library, `out` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_reader_version(
    reader: *const PsReader,
    query: *const PsQuery,
    host_keeps: bool,
    out: *mut PsTold,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        let (Ok(reader), Ok(query)) = (handle(reader, "reader"), handle(query, "query")) else {
            return false;
        };
        let Some(meta) = reader.reader.told_to_host(&query.query, host_keeps) else { return false };
        let version = PsTold {
            has_modified: meta.modified.is_some(),
            modified_us: meta.modified.map_or(0, epoch_us),
            etag: meta.etag.as_ref().map_or(PsStr::lend(""), |etag| PsStr::lend(&etag.0)),
        };
        if let Some(out) = out.as_mut() {
            *out = version;
        }
        true
    }
}

/// See the header.
///
/// # Safety
/// Handles came from this library, `latency_s` and `bytes_per_s` are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_reader_link(
    reader: *const PsReader,
    query: *const PsQuery,
    latency_s: *mut f64,
    bytes_per_s: *mut f64,
) {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        let (Ok(reader), Ok(query)) = (handle(reader, "reader"), handle(query, "query")) else {
            return;
        };
        let link = reader.reader.link(&query.query);
        if let Some(out) = latency_s.as_mut() {
            *out = link.latency.as_secs_f64();
        }
        if let Some(out) = bytes_per_s.as_mut() {
            *out = link.bytes_per_s;
        }
    }
}

/// See the header.
///
/// # Safety
/// Handles came from this library, `us` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_reader_valid_for(
    reader: *const PsReader,
    query: *const PsQuery,
    us: *mut u64,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        let (Ok(reader), Ok(query)) = (handle(reader, "reader"), handle(query, "query")) else {
            return false;
        };
        let Some(time) = reader.reader.valid_for(&query.query) else { return false };
        if let Some(out) = us.as_mut() {
            *out = micros(time);
        }
        true
    }
}

/// See the header.
///
/// # Safety
/// Handles came from this library, `buffer` has `len` writable bytes that nobody else uses, `error`
/// is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_read_at(
    reader: *const PsReader,
    query: *const PsQuery,
    buffer: *mut c_void,
    len: u64,
    offset: u64,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let reader = &handle(reader, "reader")?.reader;
            let query = &handle(query, "query")?.query;
            if len == 0 {
                return Ok(());
            }
            if buffer.is_null() {
                return Err(Error::new(Kind::Internal, "the read buffer is null"));
            }
            let len = usize::try_from(len)
                .map_err(|_| Error::new(Kind::Invalid, "the read exceeds the address space"))?;
            let buffer = std::slice::from_raw_parts_mut(buffer.cast::<u8>(), len);
            query.block_on(reader.read_at(query, buffer, offset))
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// `reader` came from this library, and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_reader_free(reader: *mut PsReader) {
    // SAFETY: the caller vouches for it.
    unsafe { free(reader) }
}

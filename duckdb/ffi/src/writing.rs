//! Objects being written.

use crate::abi::{PsPair, PsStr, array, free, give, handle};
use crate::error::{PsError, guarded};
use crate::names::locate;
use crate::query::PsQuery;
use penstock_base::{Error, Kind, Result};
use penstock_engine::{PutOptions, Query, WriteCondition, Writer};
use std::ffi::c_void;
use std::sync::Arc;

/// An object being written, given to the caller.
#[derive(Debug)]
pub struct PsWriter {
    writer: Writer,
    query: Arc<Query>,
}

/// See the header.
///
/// # Safety
/// Handles came from this library, texts and pairs are readable, the out-parameters are null or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_open_write(
    query: *const PsQuery,
    url: PsStr,
    options: *const PsPair,
    option_count: usize,
    only_if_absent: bool,
    out: *mut *mut PsWriter,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let (query, at) = locate(query, url, options, option_count)?;
            let condition =
                if only_if_absent { WriteCondition::IfAbsent } else { WriteCondition::None };
            let writer = query.create(&at, PutOptions { condition, ..PutOptions::default() })?;
            give(out, PsWriter { writer, query: Arc::clone(query) })
        })
    }
    .is_some()
}

/// The writer behind a handle.
///
/// # Safety
/// Unless null, `writer` came from this library, and no other call uses it now.
unsafe fn exclusive<'a>(writer: *mut PsWriter) -> Result<&'a mut PsWriter> {
    // SAFETY: passed on from the caller.
    unsafe { writer.as_mut() }
        .ok_or_else(|| Error::new(Kind::Internal, "the writer handle is null"))
}

/// See the header.
///
/// # Safety
/// `writer` came from this library and no other call uses it, `data` has `len` readable bytes,
/// `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_write(
    writer: *mut PsWriter,
    data: *const c_void,
    len: u64,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let PsWriter { writer, query } = exclusive(writer)?;
            let len = usize::try_from(len)
                .map_err(|_| Error::new(Kind::Invalid, "the write exceeds the address space"))?;
            let data = array(data.cast::<u8>(), len, "the data to write")?;
            query.block_on(writer.write(data))
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// `writer` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_writer_position(writer: *const PsWriter) -> u64 {
    // SAFETY: the caller vouches for it.
    unsafe { writer.as_ref() }.map_or(0, |writer| writer.writer.position())
}

/// See the header.
///
/// # Safety
/// `writer` came from this library and no other call uses it, `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_writer_finish(writer: *mut PsWriter, error: *mut *mut PsError) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let PsWriter { writer, query } = exclusive(writer)?;
            let finished = query.block_on(writer.finish());
            if finished.is_err() {
                // Interrupted, it is still open; the treaty has it given up.
                writer.abort();
            }
            finished.map(|_| ())
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// As [`ps_writer_finish`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_writer_finish_detached(
    writer: *mut PsWriter,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe { guarded(error, || exclusive(writer)?.writer.finish_detached()) }.is_some()
}

/// See the header.
///
/// # Safety
/// `writer` came from this library, and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_writer_free(writer: *mut PsWriter) {
    // SAFETY: the caller vouches for it.
    unsafe { free(writer) }
}

/// See the header.
///
/// # Safety
/// `query` and the writers came from this library, no other call uses the writers, `writers` has
/// `count` readable handles, `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_query_retract(
    query: *const PsQuery,
    writers: *const *const PsWriter,
    count: usize,
    names_are_new: bool,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let query = &handle(query, "query")?.query;
            let writers = array(writers, count, "the writers")?
                .iter()
                .map(|writer| Ok(&handle(*writer, "writer")?.writer))
                .collect::<Result<Vec<&Writer>>>()?;
            query.block_on(query.retract(&writers, names_are_new))
        })
    }
    .is_some()
}

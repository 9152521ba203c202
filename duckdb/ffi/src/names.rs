//! Names: glob, list, exists, remove, move.

use crate::abi::{PsPair, PsStr, array, free, give, handle, pairs};
use crate::error::{PsError, guarded};
use crate::query::PsQuery;
use crate::rows::epoch_us;
use penstock_base::{Error, Kind, Result};
use penstock_engine::{Entry, GlobPages, Location, Query};
use std::sync::Arc;

/// The result of a glob or a list, given to the caller.
#[derive(Debug)]
pub struct PsListing(Vec<Listed>);

#[derive(Debug)]
struct Listed {
    entry: Entry,
    etag: String,
}

/// One name.
#[repr(C)]
#[derive(Debug)]
pub struct PsEntry {
    url: PsStr,
    is_directory: bool,
    has_size: bool,
    size_bytes: u64,
    has_modified: bool,
    modified_us: i64,
    etag: PsStr,
    listed_us: u64,
}

impl PsListing {
    fn of(entries: Vec<Entry>) -> Self {
        let with_etag = |entry: Entry| Listed {
            etag: entry.meta.etag.as_ref().map_or_else(String::new, |etag| etag.0.clone()),
            entry,
        };
        PsListing(entries.into_iter().map(with_etag).collect())
    }
}

/// What every verb that names an object begins with.
///
/// # Safety
/// The handle came from this library, text and pairs are readable.
pub(crate) unsafe fn locate<'a>(
    query: *const PsQuery,
    url: PsStr,
    options: *const PsPair,
    option_count: usize,
) -> Result<(&'a Arc<Query>, Location)> {
    // SAFETY: passed on from the caller.
    let (query, options, url) = unsafe {
        let options = pairs(options, option_count, "a store option")?;
        (&handle(query, "query")?.query, options, url.text("the URL")?)
    };
    let at = query.locate(url, &options)?;
    Ok((query, at))
}

/// As [`locate`], for verbs of several objects.
///
/// # Safety
/// The handle came from this library, texts and pairs are readable.
pub(crate) unsafe fn locate_all<'a>(
    query: *const PsQuery,
    urls: *const PsStr,
    url_count: usize,
    options: *const PsPair,
    option_count: usize,
) -> Result<(&'a Arc<Query>, Vec<Location>)> {
    // SAFETY: passed on from the caller.
    unsafe {
        let query = &handle(query, "query")?.query;
        let options = pairs(options, option_count, "a store option")?;
        let locate = |url: &PsStr| query.locate(url.text("the URL")?, &options);
        let objects = array(urls, url_count, "the URLs")?.iter().map(locate);
        Ok((query, objects.collect::<Result<_>>()?))
    }
}

/// See the header.
///
/// # Safety
/// Handles came from this library, texts and pairs are readable, the out-parameters are null or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_glob(
    query: *const PsQuery,
    pattern: PsStr,
    options: *const PsPair,
    option_count: usize,
    out: *mut *mut PsListing,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let (query, at) = locate(query, pattern, options, option_count)?;
            give(out, PsListing::of(query.block_on(query.glob(&at))?))
        })
    }
    .is_some()
}

/// A glob whose pages come one by one.
#[derive(Debug)]
pub struct PsPages(GlobPages);

/// See the header.
///
/// # Safety
/// As [`ps_glob`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_glob_pages(
    query: *const PsQuery,
    pattern: PsStr,
    options: *const PsPair,
    option_count: usize,
    out: *mut *mut PsPages,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let (query, at) = locate(query, pattern, options, option_count)?;
            give(out, PsPages(query.block_on(query.glob_pages(&at))?))
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// The handles came from this library, nobody else uses `pages` now, the out-parameters are null or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_pages_next(
    query: *const PsQuery,
    pages: *mut PsPages,
    out: *mut *mut PsListing,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let query = &handle(query, "query")?.query;
            let none = || Error::new(Kind::Internal, "the pages are null");
            let pages = pages.as_mut().ok_or_else(none)?;
            match query.block_on(query.next_page(&mut pages.0))? {
                Some(entries) => give(out, PsListing::of(entries)),
                None => Ok(()),
            }
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// `pages` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_pages_is_whole(pages: *const PsPages) -> bool {
    // SAFETY: the caller vouches for it.
    unsafe { pages.as_ref() }.is_none_or(|pages| pages.0.is_whole())
}

/// See the header.
///
/// # Safety
/// `pages` came from this library, and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_pages_free(pages: *mut PsPages) {
    // SAFETY: the caller vouches for it.
    unsafe { free(pages) }
}

/// See the header.
///
/// # Safety
/// As [`ps_glob`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_list(
    query: *const PsQuery,
    directory: PsStr,
    options: *const PsPair,
    option_count: usize,
    out: *mut *mut PsListing,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let (query, at) = locate(query, directory, options, option_count)?;
            give(out, PsListing::of(query.block_on(query.list(&at))?))
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// As [`ps_glob`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_list_below(
    query: *const PsQuery,
    directory: PsStr,
    options: *const PsPair,
    option_count: usize,
    out: *mut *mut PsListing,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let (query, at) = locate(query, directory, options, option_count)?;
            give(out, PsListing::of(query.block_on(query.list_below(&at))?))
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// `listing` came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_listing_count(listing: *const PsListing) -> usize {
    // SAFETY: the caller vouches for it.
    unsafe { listing.as_ref() }.map_or(0, |listing| listing.0.len())
}

/// See the header.
///
/// # Safety
/// `listing` came from this library, `out` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_listing_get(
    listing: *const PsListing,
    index: usize,
    out: *mut PsEntry,
) {
    // SAFETY: the caller vouches for it.
    let listed = unsafe { listing.as_ref() }.and_then(|listing| listing.0.get(index));
    let Some(Listed { entry, etag }) = listed else { return };
    if out.is_null() {
        return;
    }
    let plain = PsEntry {
        url: PsStr::lend(&entry.url),
        is_directory: entry.is_directory,
        has_size: entry.meta.size_bytes.is_some(),
        size_bytes: entry.meta.size_bytes.unwrap_or(0),
        has_modified: entry.meta.modified.is_some(),
        modified_us: entry.meta.modified.map_or(0, epoch_us),
        etag: PsStr::lend(etag),
        listed_us: entry.listed.to_us(),
    };
    // SAFETY: not null, and the caller vouches for it.
    unsafe { out.write(plain) };
}

/// See the header.
///
/// # Safety
/// `listing` came from this library, and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_listing_free(listing: *mut PsListing) {
    // SAFETY: the caller vouches for it.
    unsafe { free(listing) }
}

/// Writes an answer of yes or no.
///
/// # Safety
/// `out` is null or writable.
unsafe fn answer(out: *mut bool, value: bool) -> Result<()> {
    if out.is_null() {
        return Err(Error::new(Kind::Internal, "the out-parameter is null"));
    }
    // SAFETY: not null, and the caller vouches for it.
    unsafe { out.write(value) };
    Ok(())
}

/// See the header.
///
/// # Safety
/// As [`ps_glob`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_exists(
    query: *const PsQuery,
    url: PsStr,
    options: *const PsPair,
    option_count: usize,
    out: *mut bool,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let (query, at) = locate(query, url, options, option_count)?;
            answer(out, query.block_on(query.exists(&at))?)
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// As [`ps_glob`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_directory_exists(
    query: *const PsQuery,
    url: PsStr,
    options: *const PsPair,
    option_count: usize,
    out: *mut bool,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let (query, at) = locate(query, url, options, option_count)?;
            answer(out, query.block_on(query.directory_exists(&at))?)
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// As [`ps_glob`]; `urls` has `url_count` readable texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_remove(
    query: *const PsQuery,
    urls: *const PsStr,
    url_count: usize,
    options: *const PsPair,
    option_count: usize,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let (query, objects) = locate_all(query, urls, url_count, options, option_count)?;
            query.block_on(query.remove(&objects))
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// As [`ps_glob`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_remove_directory(
    query: *const PsQuery,
    url: PsStr,
    options: *const PsPair,
    option_count: usize,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let (query, at) = locate(query, url, options, option_count)?;
            query.block_on(query.remove_directory(&at))
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// As [`ps_glob`], for both names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_move(
    query: *const PsQuery,
    from: PsStr,
    from_options: *const PsPair,
    from_option_count: usize,
    to: PsStr,
    to_options: *const PsPair,
    to_option_count: usize,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let (query, source) = locate(query, from, from_options, from_option_count)?;
            let options = pairs(to_options, to_option_count, "a store option")?;
            let target = query.locate(to.text("the URL")?, &options)?;
            query.block_on(query.rename(&source, &target))
        })
    }
    .is_some()
}

//! The requests that open an object: one for its first or last bytes, or one for all of it.
//!
//! Decides what becomes of an answer that has the whole object where a range was asked for. It is
//! read to its end, unless the object is large and the server serves ranges after all.

use super::opened::Opened;
use super::stream::Stream;
use super::together::{self, Brought};
use super::version::Version;
use super::whole::{self, Whole};
use super::{Known, ask, coming, look, tail_first};
use crate::cache::{CachedObject, Piece};
use crate::cause::Cause;
use crate::location::Location;
use crate::query::QueryCore;
use crate::warm::{Coming, warm};
use futures_util::future::join;
use penstock_base::{ByteRange, Kind, Result};
use penstock_store::{GetRange, ObjectMeta, Ranges};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::time::Instant;

/// One GET that tells size and ETag and brings the bytes which will be read first; if another query
/// has sent it, that one.
pub(super) async fn open_fetch(
    query: &Arc<QueryCore>,
    at: &Location,
    known: &Known,
    window: u64,
    will_come: Option<Coming>,
) -> Result<Opened> {
    if window == 0 {
        return asked(query, at, known.immutable).await;
    }
    let range = first_range(at, known, window);
    let whole = Mutex::new(None);
    let brought = || request(query, at, (range, window), will_come, &whole);
    match together::opened(query, at, (Some(range), known.immutable), brought).await? {
        Some(opened) => Ok(opened),
        None => {
            let stream = whole.into_inner().unwrap_or_else(PoisonError::into_inner);
            fetch_whole(query, at, stream).await
        }
    }
}

/// One HEAD, or that of another query, for an object of which the bytes of a version are here. The
/// GET that opens it, where HEAD tells of another version.
pub(super) async fn confirmed(
    query: &Arc<QueryCore>,
    at: &Location,
    known: &Known,
    (here, window): (&ObjectMeta, u64),
) -> Result<Opened> {
    if window == 0 {
        return asked(query, at, known.immutable).await;
    }
    let whole = Mutex::new(None);
    let brought = || async {
        match look(query, at, Some(here)).await? {
            Some(meta) => Ok(meta.size_bytes.is_some().then_some(Brought { meta, bytes: None })),
            None => {
                let range = first_range(at, known, window);
                request(query, at, (range, window), None, &whole).await
            }
        }
    };
    match together::opened(query, at, (None, known.immutable), brought).await? {
        Some(opened) => Ok(opened),
        None => {
            let stream = whole.into_inner().unwrap_or_else(PoisonError::into_inner);
            fetch_whole(query, at, stream).await
        }
    }
}

/// The range by which an object is opened.
fn first_range(at: &Location, known: &Known, window: u64) -> GetRange {
    let from_tail = tail_first(&at.key) || known.footer_size_bytes.is_some();
    if from_tail && at.mount.serves_suffix() {
        return GetRange::Suffix(window);
    }
    // The size that a table format told need not be right: whatever comes is of the object.
    let size = known.meta.size_bytes.filter(|_| from_tail).unwrap_or(window);
    let start = size.saturating_sub(window);
    GetRange::Bounded(ByteRange { start, end: start.saturating_add(window) })
}

/// Sends that GET; `None` where the server does not serve ranges, or tells no size. What it sends
/// then, if that is the whole object, is left in `whole`.
async fn request(
    query: &Arc<QueryCore>,
    at: &Location,
    (range, window): (GetRange, u64),
    will_come: Option<Coming>,
    whole: &Mutex<Option<Stream>>,
) -> Result<Option<Brought>> {
    let _opens = at.mount.pace.opens();
    let asked = Instant::now();
    // Behind its own first step, in which it takes a connection.
    let beside = async { will_come.into_iter().for_each(|it| warm(query, at, it)) };
    let is_of_the_end = match range {
        GetRange::Bounded(range) => range.start > 0,
        range => matches!(range, GetRange::Suffix(_)),
    };
    let cause = if is_of_the_end { Cause::Footer } else { Cause::Open };
    let (started, ()) = join(Stream::start_or_whole(query, at, (cause, range)), beside).await;
    let mut stream = match started {
        Err(error) if error.kind() == Kind::Unsupported => return Ok(None),
        stream => stream?,
    };
    let meta = stream.meta().clone();
    // Without a size the end of a range cannot be checked; without ranges each read would cost
    // what lies before it too.
    if meta.size_bytes.is_none_or(|size| size > window && stream.ranges_ignored()) {
        let sent = (&meta, stream.ranges());
        let Some(end) = end_of_large(query, at, (range, window), sent).await else {
            let whole_stream = Some(stream).filter(Stream::ranges_ignored);
            *whole.lock().unwrap_or_else(PoisonError::into_inner) = whole_stream;
            return Ok(None);
        };
        stream = end;
    }
    if !stream.ranges_ignored() {
        query.engine.range_support.note(at, true);
    }
    if will_come.is_some() && !stream.ranges_ignored() {
        // Now the size is known.
        warm(query, at, coming(query, at, meta.size_bytes));
    }
    let start = stream.range().start;
    let bytes = stream.read_rest(window).await?;
    query.confirm(at, &meta, asked);
    if let Some(cached) = CachedObject::of(query, at, &Version::of(&meta)) {
        cached.keep(query, Piece::lent(start, &bytes)).await;
    }
    Ok(Some(Brought { meta, bytes: Some((start, bytes)) }))
}

/// The end of an object by its offsets, where the server sends all of it instead of a suffix. Asked
/// for only where the whole object is large, and the server may serve it.
async fn end_of_large(
    query: &Arc<QueryCore>,
    at: &Location,
    (range, window): (GetRange, u64),
    (meta, ranges): (&ObjectMeta, Ranges),
) -> Option<Stream> {
    let size = meta.size_bytes.filter(|_| matches!(range, GetRange::Suffix(_)))?;
    let is_large = match ranges {
        Ranges::Offered => size > whole::SMALL_BYTES,
        Ranges::Ignored => size > whole::kept_bytes_max(query),
        Ranges::Served | Ranges::Packed => false,
    };
    let end = ByteRange { start: size.saturating_sub(window), end: size };
    match is_large {
        true => Stream::ask_once(query, at, &Version::of(meta), end).await,
        false => None,
    }
    .filter(|stream| !stream.ranges_ignored())
}

/// One HEAD, or that of another query; where it tells no size, the object is fetched to learn it.
pub(super) async fn asked(
    query: &Arc<QueryCore>,
    at: &Location,
    is_immutable: bool,
) -> Result<Opened> {
    let head = || async {
        let meta = ask(query, at).await?;
        Ok(meta.size_bytes.is_some().then_some(Brought { meta, bytes: None }))
    };
    match together::opened(query, at, (None, is_immutable), head).await? {
        Some(opened) => Ok(opened),
        None => fetch_whole(query, at, None).await,
    }
}

/// `stream` has all of it, if it has come already.
async fn fetch_whole(
    query: &Arc<QueryCore>,
    at: &Location,
    stream: Option<Stream>,
) -> Result<Opened> {
    let (meta, whole) = Whole::fetch(query, at, stream).await?;
    Ok(Opened::of_whole(meta, whole))
}

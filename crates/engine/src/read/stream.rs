//! One range of one version, read front to back; a broken answer is resumed where it stopped.

use crate::attempt::Attempts;
use crate::cache::CachedObject;
use crate::cause::Cause;
use crate::location::Location;
use crate::pace::millis;
use crate::pace::trickle::Stretch;
use crate::query::{Query, QueryCore};
use crate::read::arrived;
use crate::read::heads::told_apart;
use crate::read::room::Room;
use crate::read::sending::{Unasked, get};
use crate::read::through::{self, Through, Wants};
use crate::read::trails::Mark;
use crate::read::version::{Version, changed, mismatch};
use crate::waits::{For, waiting};
use bytes::Bytes;
use penstock_base::{ByteRange, Error, Kind, Result, Retry};
use penstock_store::{
    Again, Body, FilePiece, GetRange, GetRequest, GetResponse, ObjectMeta, Ranges,
};
use std::pin::pin;
use std::sync::Arc;
use tokio::time::Instant;

/// A GET that is being read. All its bytes are of one version, however often it was resumed.
#[derive(Debug)]
pub struct Stream {
    query: Arc<QueryCore>,
    at: Location,
    meta: ObjectMeta,
    version: Version,
    range: ByteRange,
    next: u64,
    /// `None` after a break, until the next read asks again.
    body: Option<Body>,
    /// Where the body ends: at the range's end, or where the cache goes on.
    body_end: u64,
    pub(super) through: Option<Through>,
    /// Where a client reads it that may go on with the next range.
    pub(super) mark: Option<Mark>,
    ranges: Ranges,
    attempts: Attempts,
    /// When the last read ended: until the next one nobody waits for the store.
    left_at: Option<Instant>,
    /// How fast it comes.
    stretch: Stretch,
}

impl Query {
    /// Begins a GET, for a gateway: one request, no metadata from memory. The store judges the
    /// conditions. Where `cache_dir` is set, bytes that lie there are not asked for, once the store
    /// has confirmed their version (or `cache_validation` says that it need not).
    ///
    /// # Errors
    /// `NotFound`; `Conflict` when a condition does not hold (see [`GetRequest`]); `Denied`,
    /// `Throttled`, `Unavailable`;
    /// `Invalid` when the disk cache cannot be used.
    pub async fn get(&self, at: &Location, request: GetRequest) -> Result<Stream> {
        self.core.run(through::get(&self.core, at, request, Wants::Headers)).await
    }

    /// As [`Query::get`], for whoever wants nothing but bytes: where `cache_validation` is `never`,
    /// the version in the cache is enough, which tells neither type nor metadata of its object.
    ///
    /// # Errors
    /// As [`Query::get`].
    pub async fn get_bytes(&self, at: &Location, range: GetRange) -> Result<Stream> {
        self.core.run(through::get(&self.core, at, range.into(), Wants::Bytes)).await
    }
}

impl Stream {
    pub(crate) async fn start(
        query: &Arc<QueryCore>,
        at: &Location,
        (cause, request): (Cause, impl Into<GetRequest>),
    ) -> Result<Stream> {
        let request = request.into();
        let mut attempts = Attempts::new(query, (cause, "GET"), at);
        let response = get(query, at, (&request, Unasked::Dropped), &mut attempts).await?;
        Ok(Stream::of(query, at, response, attempts))
    }

    /// The same for a reader that takes the whole object, where a server sends that instead of the
    /// range.
    pub(super) async fn start_or_whole(
        query: &Arc<QueryCore>,
        at: &Location,
        (cause, range): (Cause, GetRange),
    ) -> Result<Stream> {
        let mut attempts = Attempts::new(query, (cause, "GET"), at);
        let response = get(query, at, (&range.into(), Unasked::Taken), &mut attempts).await?;
        Ok(Stream::of(query, at, response, attempts))
    }

    /// The same for a question that may fail: it is asked once, and `None` is any failure.
    pub(super) async fn ask_once(
        query: &Arc<QueryCore>,
        at: &Location,
        version: &Version,
        range: ByteRange,
    ) -> Option<Stream> {
        let attempts = Attempts::new(query, (Cause::Footer, "GET"), at);
        let (asked, if_match) = (GetRange::Bounded(range), version.if_match());
        let request = GetRequest { range: asked, if_match, ..GetRequest::default() };
        let answer = attempts.bounded(at.mount.store.get(&at.key, request)).await.ok()?;
        let is_it = answer.range == range && version.matches(&answer.meta);
        is_it.then(|| Stream::of(query, at, answer, attempts))
    }

    fn of(
        query: &Arc<QueryCore>,
        at: &Location,
        response: GetResponse,
        attempts: Attempts,
    ) -> Stream {
        Stream {
            query: Arc::clone(query),
            at: at.clone(),
            version: Version::of(&response.meta),
            meta: response.meta,
            range: response.range,
            next: response.range.start,
            body: Some(response.body),
            body_end: response.range.end,
            through: None,
            mark: None,
            ranges: response.ranges,
            attempts,
            left_at: Some(Instant::now()),
            stretch: Stretch::default(),
        }
    }

    /// A range of a version that the store has confirmed, of which the cache has much.
    pub(super) fn cached(
        query: &Arc<QueryCore>,
        at: &Location,
        meta: ObjectMeta,
        range: ByteRange,
        through: Through,
    ) -> Stream {
        Stream {
            query: Arc::clone(query),
            at: at.clone(),
            version: Version::of(&meta),
            meta,
            range,
            next: range.start,
            body: None,
            body_end: range.start,
            through: Some(through),
            mark: None,
            ranges: Ranges::Served,
            attempts: Attempts::new(query, (Cause::Read, "GET"), at),
            left_at: Some(Instant::now()),
            stretch: Stretch::default(),
        }
    }

    /// Begins a GET of exactly this range of one version.
    pub(crate) async fn pinned(
        query: &Arc<QueryCore>,
        at: &Location,
        version: &Version,
        range: GetRange,
    ) -> Result<Stream> {
        let request = GetRequest { range, if_match: version.if_match(), ..GetRequest::default() };
        let stream = match Stream::start(query, at, (Cause::Read, request)).await {
            Ok(stream) if version.matches(&stream.meta) => stream,
            Ok(stream) => {
                let error = mismatch(version, &stream.meta, at.url());
                return Err(told_apart(query, at, version, error).await);
            }
            Err(error) => {
                let error = told_as_change(error, at);
                return Err(told_apart(query, at, version, error).await);
            }
        };
        if matches!(range, GetRange::Bounded(asked) if asked != stream.range) {
            return Err(Error::new(
                Kind::Unsupported,
                "the server answers another range than the one asked for",
            )
            .with_operation("GET")
            .with_object(at.url())
            .with_hint("A proxy in between may drop the Range header"));
        }
        Ok(stream)
    }

    /// What the store says of the whole object.
    pub fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    /// What it reads, where a cache keeps it.
    pub(super) fn cached_object(&self) -> Option<(&Location, &Version, &CachedObject)> {
        let through = self.through.as_ref()?;
        Some((&self.at, &self.version, through.cached_object()))
    }

    /// Whether the server sends the whole object for each range of it.
    pub fn ranges_ignored(&self) -> bool {
        self.ranges.are_ignored()
    }

    /// How the server took the range.
    pub(super) fn ranges(&self) -> Ranges {
        self.ranges
    }

    /// The bytes that are read: those asked for, cut at the object's end. Its end is `u64::MAX`
    /// where the server does not tell the size.
    pub fn range(&self) -> ByteRange {
        self.range
    }

    /// Reads up to `buf.len()` bytes; 0 at the end. Counts for the query that began it.
    ///
    /// # Errors
    /// `Conflict` when the object changed since; else what ended the retries; `Cancelled`.
    pub async fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let query = Arc::clone(&self.query);
        query.run(self.read_some(buf)).await
    }

    /// Nobody read it for a while: what fails next has the whole deadline again.
    pub(super) fn rested(&mut self) {
        self.attempts.rested();
    }

    /// The next bytes, at most `most`, as a piece of a file that is in the kernel's cache, for a
    /// server that lets the kernel send it; they count as read. `None` where there is no such
    /// piece: then they are to be read.
    pub fn take_cached(&mut self, most: u64) -> Option<FilePiece> {
        if self.through.is_some() || self.range.end == u64::MAX {
            return None;
        }
        let left = self.body_end - self.next;
        let piece = self.body.as_mut()?.take_cached(most.min(left))?;
        let bytes = piece.range.end - piece.range.start;
        self.next += bytes;
        self.attempts.arrived(bytes);
        Some(piece)
    }

    /// The next bytes, at most `most`, as the cache in memory has them, for a server that need not
    /// have them in a buffer of its own; they count as read. `None` where they are not there: then
    /// they are to be read.
    pub fn take_kept(&mut self, most: u64) -> Option<Bytes> {
        let through = self.through.as_ref().filter(|_| self.body.is_none())?;
        let most = most.min(self.range.end - self.next);
        if most == 0 {
            return None;
        }
        let bytes = through.share(&self.query, self.next, most)?;
        self.came(bytes.len());
        Some(bytes)
    }

    /// As [`Stream::read`], inside a verb.
    pub(crate) async fn read_some(&mut self, buf: &mut [u8]) -> Result<usize> {
        if let Some(left_at) = self.left_at.take() {
            self.attempts.excuse(left_at.elapsed());
        }
        let result = self.read_next(buf).await;
        self.left_at = Some(Instant::now());
        result
    }

    async fn read_next(&mut self, buf: &mut [u8]) -> Result<usize> {
        let left = usize::try_from(self.range.end - self.next).unwrap_or(usize::MAX);
        let want = buf.len().min(left);
        if want == 0 {
            return Ok(0);
        }
        loop {
            let rest = ByteRange { start: self.next, end: self.range.end };
            if self.body.is_none()
                && let Some(through) = &mut self.through
                && let Some(count) = through
                    .read(&self.query, (&self.at, &self.version), rest, &mut buf[..want])
                    .await
            {
                self.came(count);
                return Ok(count);
            }
            let mut body = match self.body.take() {
                Some(body) => body,
                None => self.resume().await?,
            };
            let left = usize::try_from(self.body_end - self.next).unwrap_or(usize::MAX);
            let asked = Instant::now();
            let pace = self.at.mount.pace.waits();
            let part = &mut buf[..want.min(left)];
            let answer = waiting(For::Link, pin!(body.read(part))).await;
            pace.came(*answer.as_ref().unwrap_or(&0));
            let error = match answer {
                Ok(0) if self.range.end == u64::MAX => {
                    self.range.end = self.next;
                    return Ok(0);
                }
                Ok(0) => self.truncated(),
                Ok(count) => {
                    let start = self.next;
                    self.came(count);
                    arrived::count(count as u64);
                    let end = self.body_end;
                    let is_last = self.next == end;
                    let is_trickle = self.is_trickle(count as u64, millis(asked.elapsed()));
                    if is_last {
                        self.attempts.ended();
                    }
                    if is_last || is_trickle {
                        drop(body);
                    } else {
                        self.body = Some(body);
                    }
                    if let Some(through) = &mut self.through {
                        through.keep(&self.query, start, &buf[..count], end).await;
                    }
                    return Ok(count);
                }
                Err(error) => error,
            };
            drop(body);
            if self.range.end == u64::MAX {
                let error = error.with_operation("GET").with_object(self.at.url());
                return Err(error.with_note("the server tells no size to go on from"));
            }
            self.attempts.failed(&self.query, resumable(error)).await?;
        }
    }

    /// Takes note of bytes that are given to who reads.
    fn came(&mut self, count: usize) {
        self.next += count as u64;
        self.attempts.arrived(count as u64);
        if self.next >= self.range.end
            && let Some(mark) = self.mark.take()
        {
            mark.ended();
        }
    }

    /// Whether what comes is so little that the rest is asked for on another connection.
    fn is_trickle(&mut self, bytes: u64, waited_ms: f64) -> bool {
        let (mount, left) = (&self.at.mount, self.body_end - self.next);
        if !(self.stretch.arrived(bytes, waited_ms) || left == 0) || self.range.end == u64::MAX {
            return false;
        }
        let is_trickle = mount.pace.is_trickle(&mut self.stretch, left, mount.latency.get());
        if is_trickle {
            mount.sent_again(&self.query.scope, Again::Slow);
            self.attempts.replaced();
        }
        is_trickle
    }

    /// Reads at least one byte: the stream is known to have more.
    pub(crate) async fn read_more(&mut self, buf: &mut [u8]) -> Result<usize> {
        match self.read_some(buf).await? {
            0 if !buf.is_empty() => Err(self.truncated().with_object(self.at.url())),
            count => Ok(count),
        }
    }

    /// Reads exactly `buf.len()` bytes.
    pub(crate) async fn read_exact(&mut self, mut buf: &mut [u8]) -> Result<()> {
        while !buf.is_empty() {
            let count = self.read_more(buf).await?;
            buf = &mut buf[count..];
        }
        Ok(())
    }

    /// Reads what is left, at most `limit` bytes of it.
    pub(crate) async fn read_rest(&mut self, limit: u64) -> Result<Bytes> {
        let left = (self.range.end - self.next).min(limit);
        let mut bytes = Room::of(left);
        self.read_exact(&mut bytes).await?;
        Ok(bytes.freeze())
    }

    async fn resume(&mut self) -> Result<Body> {
        if self.range.end == u64::MAX {
            return Err(Error::new(
                Kind::Unavailable,
                "the answer broke off, and the server tells no size to go on from",
            )
            .with_operation("GET")
            .with_object(self.at.url()));
        }
        // The cache may have served for long, or the reader have taken its time.
        self.attempts.begin();
        let rest = ByteRange { start: self.next, end: self.range.end };
        let rest = match &self.through {
            Some(through) => through.gap(&self.query, (&self.at, &self.version), rest),
            None => rest,
        };
        let request = GetRequest {
            range: GetRange::Bounded(rest),
            if_match: self.version.if_match(),
            ..Default::default()
        };
        let asked = (&request, Unasked::Dropped);
        let response = match get(&self.query, &self.at, asked, &mut self.attempts).await {
            Ok(response) if self.version.matches(&response.meta) => response,
            Ok(response) => {
                self.query.forget(&self.at);
                return Err(mismatch(&self.version, &response.meta, self.at.url()));
            }
            Err(error) => {
                // Else whoever need not ask would begin with what is remembered, time and again.
                if matches!(error.kind(), Kind::Conflict | Kind::NotFound) {
                    self.query.forget(&self.at);
                }
                return Err(told_as_change(error, &self.at));
            }
        };
        if response.range != rest {
            return Err(Error::new(
                Kind::Unsupported,
                "the answer broke off, and the server does not serve the range that is missing",
            )
            .with_operation("GET")
            .with_object(self.at.url()));
        }
        self.body_end = rest.end;
        Ok(response.body)
    }

    fn truncated(&self) -> Error {
        Error::new(
            Kind::Corrupt,
            format!("the body ended at byte {} of {}", self.next, self.range.end),
        )
        .with_operation("GET")
        .with_retry(Retry::BackOff)
    }
}

/// A body that broke or ended early can always be asked for again.
fn resumable(error: Error) -> Error {
    match (error.kind(), error.retry()) {
        (Kind::Corrupt | Kind::Unavailable, Retry::Never) => error.with_retry(Retry::BackOff),
        _ => error,
    }
}

/// A condition that does not hold any more means that the object was replaced; so does absence of
/// what was there.
pub(crate) fn told_as_change(error: Error, at: &Location) -> Error {
    match error.kind() {
        Kind::Conflict => changed(at.url()),
        Kind::NotFound => {
            error.with_hint("It was there when this query opened it, and was removed since")
        }
        _ => error,
    }
}

//! An object, or a range of it, front to back: its head with the request that tells its version,
//! the rest in steps of several requests at once, each pinned to that version. Where a store tells
//! no version or serves no ranges, and for what is short, one request brings it all.

use crate::session::Session;
use penstock_base::{ByteRange, Error, Kind, Result};
use penstock_engine::{GetRange, Known, Location, ObjectMeta, Query, Reader, Stream};
use std::sync::Arc;
use tokio::task::JoinHandle;

/// Bytes that a single request is read by.
const PIECE_BYTES: u64 = 1 << 20;
/// Two steps are held at once: one that is written and one that is read, of this part of the limit.
const STEP_OF_LIMIT: u64 = 8;

/// The bytes that are still to come.
pub struct Download {
    stream: Stream,
    steps: Option<Steps>,
    piece: Vec<u8>,
    left: Option<u64>,
}

/// Those behind the head.
struct Steps {
    query: Arc<Query>,
    reader: Arc<Reader>,
    rest: ByteRange,
    step_bytes: u64,
    coming: Option<Step>,
    runs_on: tokio::runtime::Handle,
}

/// A step on its way; it is stopped with the download.
struct Step(JoinHandle<Result<Vec<u8>>>);

impl Drop for Step {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Download {
    /// Asks for the head.
    ///
    /// # Errors
    /// As [`Query::get_bytes`].
    pub async fn start(session: &Session, at: &Location, asked: GetRange) -> Result<Download> {
        let query = &session.query;
        let settings = query.settings();
        let head_bytes = settings.parallel_read_min_bytes.max(PIECE_BYTES);
        let (start, end) = match asked {
            GetRange::All => (0, u64::MAX),
            GetRange::From(start) => (start, u64::MAX),
            GetRange::Bounded(range) => (range.start, range.end),
            // Where it begins is known from the answer only.
            GetRange::Suffix(_) => (0, 0),
        };
        let head_end = start.saturating_add(head_bytes);
        if !settings.parallel_read_enabled || end <= head_end {
            return Download::plain(query, at, asked).await;
        }
        let head = GetRange::Bounded(ByteRange { start, end: head_end });
        let stream = match query.get_bytes(at, head).await {
            Err(error) if error.kind() == Kind::Unsupported => {
                return Download::plain(query, at, asked).await;
            }
            stream => stream?,
        };
        let meta = stream.meta();
        let is_told = meta.etag.as_ref().is_some_and(|tag| !tag.0.starts_with("W/"));
        let Some(size) = meta.size_bytes.filter(|_| is_told && !stream.ranges_ignored()) else {
            drop(stream);
            return Download::plain(query, at, asked).await;
        };
        let rest = ByteRange { start: stream.range().end, end: end.min(size) };
        let left = Some(stream.range().len() + rest.end.saturating_sub(rest.start));
        if rest.start >= rest.end {
            return Ok(Download { stream, steps: None, piece: Vec::new(), left });
        }
        // It is read whole: what scans of columns do would be in the way.
        query.host_reads_ahead(1);
        let known = Known { meta: meta.clone(), ..Known::default() };
        let reader = Arc::new(query.open(at, &known).await?);
        let (chunk, fanout) =
            (settings.parallel_read_chunk_size_bytes, settings.parallel_read_max_fanout);
        let most = (settings.memory_limit_bytes / STEP_OF_LIMIT).max(PIECE_BYTES);
        let mut steps = Steps {
            query: Arc::clone(query),
            reader,
            rest,
            step_bytes: chunk.saturating_mul(fanout).clamp(PIECE_BYTES, most),
            coming: None,
            runs_on: session.engine.handle().clone(),
        };
        steps.begin();
        Ok(Download { stream, steps: Some(steps), piece: Vec::new(), left })
    }

    async fn plain(query: &Query, at: &Location, asked: GetRange) -> Result<Download> {
        let stream = query.get_bytes(at, asked).await?;
        let range = stream.range();
        let left = (range.end != u64::MAX).then(|| range.len());
        Ok(Download { stream, steps: None, piece: Vec::new(), left })
    }

    /// What the store says of the whole object.
    pub fn meta(&self) -> &ObjectMeta {
        self.stream.meta()
    }

    /// The next bytes; none at the end.
    ///
    /// # Errors
    /// `Conflict` when the object changed since; `Corrupt` when fewer bytes came than the store
    /// told; else what ended the retries; `Cancelled`.
    pub async fn next(&mut self) -> Result<&[u8]> {
        self.piece.resize(PIECE_BYTES as usize, 0);
        let count = self.stream.read(&mut self.piece).await?;
        self.piece.truncate(count);
        if count == 0
            && let Some(steps) = &mut self.steps
        {
            self.piece = steps.next().await?;
        }
        let count = self.piece.len() as u64;
        match &mut self.left {
            Some(left) if count > *left || (count == 0 && *left > 0) => {
                return Err(Error::new(
                    Kind::Corrupt,
                    format!("{left} bytes were to come, and {count} came"),
                ));
            }
            Some(left) => *left -= count,
            None => {}
        }
        Ok(&self.piece)
    }
}

impl Steps {
    /// Asks for the next step, so that it comes while the one before is written.
    fn begin(&mut self) {
        let start = self.rest.start;
        let end = self.rest.end.min(start.saturating_add(self.step_bytes));
        self.rest.start = end;
        if start == end {
            return;
        }
        let (query, reader) = (Arc::clone(&self.query), Arc::clone(&self.reader));
        self.coming = Some(Step(self.runs_on.spawn(async move {
            let len = usize::try_from(end - start).unwrap_or(usize::MAX);
            let mut bytes = vec![0; len];
            reader.read_at(&query, &mut bytes, start).await.map(|()| bytes)
        })));
    }

    async fn next(&mut self) -> Result<Vec<u8>> {
        let Some(mut step) = self.coming.take() else { return Ok(Vec::new()) };
        let bytes = (&mut step.0).await.map_err(|cause| {
            Error::new(Kind::Internal, "a task that reads broke off").with_source(cause)
        })??;
        self.begin();
        Ok(bytes)
    }
}

//! A store on a virtual clock: latency with a tail, connections that share a link, room for so many
//! requests at once, refusals, broken bodies. All of it from one seed.

use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{ByteRange, Error, Kind, Result, Retry};
use penstock_engine::{Opener, Random, SeededRandom, StoreOption};
use penstock_store::{
    Body, BodySource, Capabilities, ETag, GetRange, GetRequest, GetResponse, HttpOptions, ListPage,
    ListRequest, ObjectMeta, Part, Payload, Profile, PutOptions, PutResult, Ranges, Store,
    UploadId,
};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// Size of the one object, which has every key.
pub const OBJECT_BYTES: u64 = 8 << 20;

/// This key has only the first bytes of the object, and its size is told by no HEAD: so it is read
/// whole, into memory that has to be within the limit.
pub const PAGE: &str = "page";
pub const PAGE_BYTES: u64 = 60_000;

/// Bytes that differ from place to place.
pub static OBJECT: LazyLock<Bytes> = LazyLock::new(|| {
    let words = 0..OBJECT_BYTES / 8;
    words.flat_map(|i| (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()).collect()
});

/// What a store is like.
#[derive(Clone, Debug)]
pub struct Model {
    pub latency_ms: f64,
    /// Of the requests, so many take twenty times as long.
    pub tail: f64,
    pub connection_bytes_per_ms: f64,
    pub link_bytes_per_ms: f64,
    /// More requests at once, up to their first byte, are refused.
    pub capacity: usize,
    /// More requests at once, up to their first byte, wait for their turn.
    pub servers: usize,
    /// Chance that a request fails.
    pub fails: f64,
    /// Chance that a body breaks off.
    pub breaks: f64,
    /// Chance that a body trickles: fifty times as slow as others.
    pub trickles: f64,
}

impl Model {
    /// Nothing goes wrong and nothing is short.
    pub fn calm(latency_ms: f64, connection_bytes_per_ms: f64, link_bytes_per_ms: f64) -> Self {
        Model {
            latency_ms,
            tail: 0.0,
            connection_bytes_per_ms,
            link_bytes_per_ms,
            capacity: usize::MAX,
            servers: usize::MAX,
            fails: 0.0,
            breaks: 0.0,
            trickles: 0.0,
        }
    }
}

/// What happened in a store.
#[derive(Debug, Default)]
pub struct Told {
    pub gets: AtomicU64,
    pub refused: AtomicU64,
    /// Of all bodies, whole or not.
    pub bytes: AtomicU64,
}

/// The store.
#[derive(Debug)]
pub struct SimStore {
    pub model: Model,
    /// `Model::capacity`, which may change.
    pub capacity: AtomicUsize,
    pub told: Arc<Told>,
    random: SeededRandom,
    waiting: AtomicUsize,
    /// When the link is free again.
    link: Arc<Mutex<Option<Instant>>>,
    turns: Option<tokio::sync::Semaphore>,
}

impl SimStore {
    pub fn new(model: Model, seed: u64) -> Self {
        SimStore {
            capacity: AtomicUsize::new(model.capacity),
            turns: (model.servers < usize::MAX).then(|| tokio::sync::Semaphore::new(model.servers)),
            model,
            told: Arc::default(),
            random: SeededRandom::new(seed),
            waiting: AtomicUsize::new(0),
            link: Arc::default(),
        }
    }

    fn chance(&self, probability: f64) -> bool {
        self.random.unit() < probability
    }

    fn latency(&self) -> Duration {
        let factor = if self.chance(self.model.tail) { 20.0 } else { 1.0 };
        let jitter = 0.9 + 0.2 * self.random.unit();
        Duration::from_secs_f64(self.model.latency_ms * jitter * factor / 1000.0)
    }
}

/// One request that waits for its first byte.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A body as it comes over the link.
struct SimBody {
    bytes: Bytes,
    /// Bytes after which the connection breaks.
    breaks_after: Option<usize>,
    piece: usize,
    sent: usize,
    ms_per_byte: (f64, f64),
    link: Arc<Mutex<Option<Instant>>>,
    told: Arc<Told>,
    next: Option<(usize, Pin<Box<Sleep>>)>,
}

impl std::fmt::Debug for SimBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimBody({} of {})", self.sent, self.bytes.len())
    }
}

impl SimBody {
    /// Books the next piece: it comes when connection and link have brought it.
    fn book(&self, count: usize) -> Instant {
        let now = Instant::now();
        let ms = |per_byte: f64| Duration::from_secs_f64(count as f64 * per_byte / 1000.0);
        let mut link = self.link.lock().unwrap();
        let free = link.unwrap_or(now).max(now) + ms(self.ms_per_byte.1);
        *link = Some(free);
        free.max(now + ms(self.ms_per_byte.0))
    }
}

impl BodySource for SimBody {
    fn remaining(&self) -> u64 {
        (self.bytes.len() - self.sent) as u64
    }

    fn poll_read(&mut self, context: &mut Context<'_>, buf: &mut [u8]) -> Poll<Result<usize>> {
        let end = self.breaks_after.unwrap_or(usize::MAX).min(self.bytes.len());
        if self.sent == end {
            return Poll::Ready(match self.breaks_after {
                Some(_) => Err(failed("the connection broke")),
                None => Ok(0),
            });
        }
        let (count, mut arrival) = self.next.take().unwrap_or_else(|| {
            let count = self.piece.min(end - self.sent).min(buf.len());
            (count, Box::pin(sleep_until(self.book(count))))
        });
        if arrival.as_mut().poll(context).is_pending() {
            self.next = Some((count, arrival));
            return Poll::Pending;
        }
        let count = count.min(buf.len());
        buf[..count].copy_from_slice(&self.bytes[self.sent..self.sent + count]);
        self.sent += count;
        self.told.bytes.fetch_add(count as u64, Ordering::Relaxed);
        Poll::Ready(Ok(count))
    }
}

fn failed(why: &str) -> Error {
    Error::new(Kind::Unavailable, why).with_operation("GET").with_retry(Retry::BackOff)
}

fn none<T>() -> Result<T> {
    Err(Error::new(Kind::Unsupported, "the simulated store only reads"))
}

/// What is known of the object.
pub fn meta() -> ObjectMeta {
    ObjectMeta {
        size_bytes: Some(OBJECT_BYTES),
        etag: Some(ETag("\"1\"".into())),
        ..ObjectMeta::default()
    }
}

fn meta_of(key: &str) -> ObjectMeta {
    ObjectMeta { size_bytes: (key != PAGE).then_some(OBJECT_BYTES), ..meta() }
}

#[async_trait]
impl Store for SimStore {
    fn root(&self) -> &str {
        "sim://t/"
    }

    fn origin(&self) -> Option<String> {
        None
    }

    fn profile(&self) -> Profile {
        Profile {
            first_byte_ms: 30.0,
            connection_bytes_per_s: 90e6,
            part_size_min_bytes: 0,
            part_size_max_bytes: u64::MAX,
            part_count_max: 10_000,
            parts_uniform: false,
            put_size_max_bytes: u64::MAX,
            delete_batch_max: 10,
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            write: false,
            list: true,
            suffix_range: true,
            conditional_put: false,
            conditional_delete: false,
            list_etag: true,
            copy: false,
        }
    }

    async fn get(&self, key: &str, request: GetRequest) -> Result<GetResponse> {
        self.told.gets.fetch_add(1, Ordering::Relaxed);
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        let latency = self.latency();
        if before >= self.capacity.load(Ordering::Relaxed) {
            self.told.refused.fetch_add(1, Ordering::Relaxed);
            sleep(latency).await;
            let slow_down = Error::new(Kind::Throttled, "slow down").with_operation("GET");
            return Err(slow_down.with_retry(Retry::BackOff));
        }
        let turn = match &self.turns {
            Some(turns) => Some(turns.acquire().await.expect("the semaphore is never closed")),
            None => None,
        };
        sleep(latency).await;
        drop(turn);
        if self.chance(self.model.fails) {
            return Err(failed("the server failed"));
        }
        let size = if key == PAGE { PAGE_BYTES } else { OBJECT_BYTES };
        let range = match request.range {
            GetRange::All => ByteRange { start: 0, end: size },
            GetRange::Bounded(range) => range,
            GetRange::From(start) => ByteRange { start, end: size },
            GetRange::Suffix(count) => ByteRange { start: size.saturating_sub(count), end: size },
        };
        let range = ByteRange { start: range.start, end: range.end.min(size) };
        let bytes = OBJECT.slice(range.start as usize..range.end as usize);
        let breaks = self.chance(self.model.breaks);
        let breaks_after = breaks.then(|| (bytes.len() as f64 * self.random.unit()) as usize);
        let slowness = if self.chance(self.model.trickles) { 50.0 } else { 1.0 };
        let body = SimBody {
            piece: if slowness > 1.0 { 16 << 10 } else { (bytes.len() / 4).max(16 << 10) },
            bytes,
            breaks_after,
            sent: 0,
            ms_per_byte: (
                slowness / self.model.connection_bytes_per_ms,
                1.0 / self.model.link_bytes_per_ms,
            ),
            link: Arc::clone(&self.link),
            told: Arc::clone(&self.told),
            next: None,
        };
        let body = Body::Source(Box::new(body));
        Ok(GetResponse { meta: meta_of(key), range, body, ranges: Ranges::Served })
    }

    async fn stat(&self, key: &str) -> Result<ObjectMeta> {
        sleep(self.latency()).await;
        Ok(meta_of(key))
    }

    async fn list(&self, _request: ListRequest) -> Result<ListPage> {
        none()
    }

    async fn put(&self, _: &str, _: Payload, _: &PutOptions) -> Result<PutResult> {
        none()
    }

    async fn create_upload(&self, _: &str, _: &PutOptions) -> Result<UploadId> {
        none()
    }

    async fn upload_part(&self, _: &str, _: &UploadId, _: u32, _: Payload) -> Result<Part> {
        none()
    }

    async fn complete_upload(
        &self,
        _: &str,
        _: &UploadId,
        _: &[Part],
        _: &PutOptions,
    ) -> Result<PutResult> {
        none()
    }

    async fn abort_upload(&self, _: &str, _: &UploadId) -> Result<()> {
        none()
    }

    async fn delete(&self, _: &str, _: Option<&ETag>) -> Result<()> {
        none()
    }

    async fn delete_batch(&self, _: &[String]) -> Result<Vec<Result<()>>> {
        none()
    }

    async fn copy(&self, _: &str, _: &str, _: &PutOptions) -> Result<PutResult> {
        none()
    }
}

/// Finds the one store under every URL.
#[derive(Debug)]
pub struct One(pub Arc<SimStore>);

impl Opener for One {
    fn root_of(&self, url: &str) -> Result<(String, String)> {
        let key = url.strip_prefix("sim://t/").expect("a URL of the simulation");
        Ok(("sim://t/".to_string(), key.to_string()))
    }

    fn open(
        &self,
        url: &str,
        _options: &[StoreOption],
        _http: Option<&HttpOptions>,
    ) -> Result<(Arc<dyn Store>, String)> {
        let (_, key) = self.root_of(url)?;
        Ok((Arc::clone(&self.0) as Arc<dyn Store>, key))
    }
}

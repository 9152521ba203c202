//! A store in memory that counts its requests and misbehaves on command; and an engine over it, on
//! a runtime where time is paused and chance is seeded.

#![allow(clippy::unwrap_used)]
// Each test binary uses its own part of this.
#![allow(dead_code, unused_imports)]

mod bench;
mod link;

pub use bench::{Bench, assert_clean, create, pattern, read};
pub use link::Link;

use async_trait::async_trait;
use bytes::Bytes;
use link::{OnConnection, OnLink};
use penstock_base::{ByteRange, Error, Kind, Result, Retry};
use penstock_store::memory::MemoryStore;
use penstock_store::{
    Body, Capabilities, Connections, ETag, GetRange, GetRequest, GetResponse, ListPage,
    ListRequest, ObjectMeta, Observer, Part, Payload, Profile, PutOptions, PutResult, Ranges,
    RequestEvent, Store, UploadId, WarmUp,
};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tokio::sync::{Notify, Semaphore};

/// What one request does instead of succeeding.
#[derive(Clone, Debug)]
pub enum Fault {
    /// 503, and the store's code for it.
    Throttle,
    /// 503 of a proxy before the store, which does not say what became of the request.
    Proxy,
    /// 403.
    Deny,
    /// 501.
    NotImplemented,
    /// The connection breaks before the store acts.
    Cut,
    /// Nobody listens at the address.
    Refuse,
    /// The store acts, but its answer is lost.
    LoseAnswer,
    /// The body ends after so many bytes.
    CutBody(usize),
    /// No answer, ever.
    Hang,
    /// A defect in the client.
    Panic,
    /// The store acts, and its answer arrives once the semaphore has a permit.
    Delay(Arc<Semaphore>),
}

/// The store.
#[derive(Debug)]
pub struct Scripted {
    pub memory: Arc<MemoryStore>,
    pub calls: Mutex<Vec<String>>,
    /// What it says of its connections.
    pub known: Option<Connections>,
    /// How many connections were to be opened early, each time.
    pub warmed: Mutex<Vec<usize>>,
    /// Warm-ups under way.
    pub warming: Arc<AtomicUsize>,
    faults: Mutex<VecDeque<(&'static str, Fault)>>,
    /// Requests of the named verb wait here until permits are added.
    gate: Mutex<Option<(&'static str, Arc<Semaphore>)>>,
    pub profile: Profile,
    pub capabilities: Capabilities,
    pub ranges_ignored: AtomicBool,
    /// Listings tell of all names, whatever prefix and delimiter were asked for.
    pub lists_all: bool,
    /// Answers to HEAD tell the size only.
    pub bare_heads: bool,
    /// What answers to HEAD tell otherwise than those to GET.
    pub other_heads: Option<fn(&mut ObjectMeta)>,
    /// Answers carry weak tags only, which promise no equal bytes.
    pub weak_tags: bool,
    /// Answers carry neither tag nor time, as those of a page that is made for each request.
    pub untold: bool,
    /// Answers to GETs tell no size.
    pub endless: bool,
    /// Names that differ by case only are one, as on a file system of Windows or macOS.
    pub folds_case: bool,
    /// Before each answer, on the test's clock.
    pub delay: Duration,
    /// A GET has one until its body was read or dropped; first come, first served.
    pub connections: Option<Arc<Semaphore>>,
    /// What all bodies share.
    pub link: Option<Arc<Link>>,
    /// Requests that were sent and neither answered nor given up.
    pub running: Arc<AtomicUsize>,
    /// Told when the request of this number begins, counting from 1.
    pub tell_at: Mutex<Option<(usize, Arc<Notify>)>>,
    observer: Mutex<Option<Arc<dyn Observer>>>,
}

/// One that runs.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Scripted {
    pub fn new() -> Self {
        let memory = Arc::new(MemoryStore::new("t"));
        Scripted {
            profile: Profile { part_size_min_bytes: 5 << 20, ..memory.profile() },
            capabilities: memory.capabilities(),
            memory,
            calls: Mutex::default(),
            known: None,
            warmed: Mutex::default(),
            warming: Arc::default(),
            faults: Mutex::default(),
            gate: Mutex::default(),
            ranges_ignored: AtomicBool::new(false),
            lists_all: false,
            bare_heads: false,
            other_heads: None,
            weak_tags: false,
            untold: false,
            endless: false,
            folds_case: false,
            delay: Duration::ZERO,
            connections: None,
            link: None,
            running: Arc::default(),
            tell_at: Mutex::default(),
            observer: Mutex::default(),
        }
    }

    /// Some way off: each answer takes this long.
    pub fn remote(delay: Duration) -> Self {
        let mut store = Scripted { delay, ..Self::new() };
        store.profile.first_byte_ms = 30.0;
        store
    }

    /// Without listings, tags and times.
    pub fn like_a_page() -> Self {
        let mut store = Scripted { untold: true, ..Self::new() };
        store.capabilities.list = false;
        store.capabilities.list_etag = false;
        store
    }

    /// Without suffix ranges, and with blocks of any size.
    pub fn like_azure() -> Self {
        let mut store = Self::new();
        store.capabilities.suffix_range = false;
        store.profile.part_size_min_bytes = 1;
        store
    }

    pub fn fail(&self, verb: &'static str, fault: Fault) {
        self.faults.lock().unwrap().push_back((verb, fault));
    }

    /// Holds requests of a verb back until the semaphore has permits.
    pub fn hold(&self, verb: &'static str) -> Arc<Semaphore> {
        let gate = Arc::new(Semaphore::new(0));
        *self.gate.lock().unwrap() = Some((verb, Arc::clone(&gate)));
        gate
    }

    /// The requests since the last call, as `verb key detail`.
    pub fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }

    pub async fn place(&self, key: &str, bytes: impl Into<Bytes>) {
        self.memory.put(key, Payload::from(bytes.into()), &PutOptions::default()).await.unwrap();
    }

    pub async fn content(&self, key: &str) -> Option<Bytes> {
        let request = GetRequest::default();
        let mut response = self.memory.get(key, request).await.ok()?;
        Some(response.body.read_to_bytes(usize::MAX).await.unwrap())
    }

    fn stored_key(&self, key: &str) -> String {
        if self.folds_case { key.to_lowercase() } else { key.to_string() }
    }

    /// Notes the request; what comes back still has to happen after the store acted.
    async fn begin(&self, verb: &'static str, text: String) -> Result<Option<Fault>> {
        self.running.fetch_add(1, Ordering::Relaxed);
        let _running = Running(Arc::clone(&self.running));
        let number = {
            let mut calls = self.calls.lock().unwrap();
            calls.push(format!("{verb} {text}").trim_end().to_string());
            calls.len()
        };
        if let Some((_, told)) = self.tell_at.lock().unwrap().take_if(|(at, _)| *at == number) {
            told.notify_one();
        }
        let gate = self.gate.lock().unwrap().clone();
        if let Some((_, gate)) = gate.filter(|(held, _)| *held == verb) {
            gate.acquire().await.unwrap().forget();
        }
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        let fault = {
            let mut faults = self.faults.lock().unwrap();
            let index = faults.iter().position(|(at, _)| *at == verb);
            index.and_then(|index| faults.remove(index)).map(|(_, fault)| fault)
        };
        let failed =
            |kind, why: &str| Err(Error::new(kind, why).with_object(format!("mem://{text}")));
        match fault {
            Some(fault @ (Fault::Throttle | Fault::Proxy)) => failed(Kind::Throttled, "503")
                .map_err(|error: Error| {
                    let error = error.with_retry(Retry::BackOff).with_http_status(503);
                    match fault {
                        Fault::Throttle => error.with_service_code("SlowDown"),
                        _ => error,
                    }
                }),
            Some(Fault::Deny) => failed(Kind::Denied, "403"),
            Some(Fault::NotImplemented) => failed(Kind::Unsupported, "501"),
            Some(Fault::Cut) => {
                failed(Kind::Unavailable, "reset").map_err(|e: Error| e.with_retry(Retry::BackOff))
            }
            Some(Fault::Refuse) => {
                Err(Error::new(Kind::Unavailable, "refused").with_retry(Retry::Briefly))
            }
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Panic) => panic!("asked to"),
            other => Ok(other),
        }
    }

    fn weaken(&self, meta: &mut ObjectMeta) {
        if self.weak_tags {
            meta.etag = Some(ETag("W/\"1\"".into()));
        }
        if self.untold {
            (meta.etag, meta.modified) = (None, None);
        }
    }

    fn end(&self, method: &'static str, received: u64, sent: u64) {
        if let Some(observer) = &*self.observer.lock().unwrap() {
            observer.request_finished(RequestEvent {
                method,
                url: String::new(),
                range: String::new(),
                status: 200,
                started: SystemTime::now(),
                first_byte: Duration::ZERO,
                total: Duration::ZERO,
                sent_bytes: sent,
                received_bytes: received,
                new_connection: false,
                error: String::new(),
                fault: None,
                span: None,
                reason: None,
                headers: None,
            });
        }
    }
}

async fn lost<T>(fault: Option<Fault>, answer: Result<T>) -> Result<T> {
    match fault {
        Some(Fault::Delay(gate)) => {
            gate.acquire().await.unwrap().forget();
            answer
        }
        Some(Fault::LoseAnswer) => {
            Err(Error::new(Kind::Unavailable, "answer lost").with_retry(Retry::BackOff))
        }
        _ => answer,
    }
}

fn describe(range: GetRange) -> String {
    match range {
        GetRange::All => "all".into(),
        GetRange::Bounded(ByteRange { start, end }) => format!("{start}..{end}"),
        GetRange::From(start) => format!("{start}.."),
        GetRange::Suffix(count) => format!("-{count}"),
    }
}

#[async_trait]
impl Store for Scripted {
    fn root(&self) -> &str {
        self.memory.root()
    }

    /// As if it were far away.
    fn origin(&self) -> Option<String> {
        Some("https://far.example/t/".to_string())
    }

    fn profile(&self) -> Profile {
        self.profile
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn connections(&self) -> Option<Connections> {
        self.known
    }

    fn warm(&self, count: usize) -> Option<WarmUp> {
        self.warmed.lock().unwrap().push(count);
        // It takes as long as the statement does.
        self.warming.fetch_add(1, Ordering::Relaxed);
        let warming = Running(Arc::clone(&self.warming));
        Some(Box::pin(async move {
            let _warming = warming;
            std::future::pending().await
        }))
    }

    async fn get(&self, key: &str, request: GetRequest) -> Result<GetResponse> {
        let text = format!("{key} {}", describe(request.range));
        let connection = match &self.connections {
            Some(connections) => Some(Arc::clone(connections).acquire_owned().await.unwrap()),
            None => None,
        };
        let fault = self.begin("get", text).await?;
        let is_ignored =
            self.ranges_ignored.load(Ordering::Relaxed) && request.range != GetRange::All;
        let range = if is_ignored { GetRange::All } else { request.range };
        let mut response = self.memory.get(key, GetRequest { range, ..request }).await?;
        if is_ignored {
            response.ranges = Ranges::Ignored;
        }
        self.end("GET", response.range.len(), 0);
        if let (Some(Fault::CutBody(count)), Body::Memory(bytes)) = (&fault, &mut response.body) {
            bytes.truncate(*count);
        }
        self.weaken(&mut response.meta);
        if self.endless {
            (response.meta.size_bytes, response.range.end) = (None, u64::MAX);
        }
        if let Some(connection) = connection {
            let Body::Memory(bytes) = response.body else { panic!("it is in memory") };
            response.body = Body::Source(Box::new(OnConnection::new(bytes, connection)));
        } else if let Some(link) = &self.link {
            let Body::Memory(bytes) = response.body else { panic!("it is in memory") };
            let link = Arc::clone(link);
            response.body = Body::Source(Box::new(OnLink::new(bytes, link)));
        }
        lost(fault, Ok(response)).await
    }

    async fn stat(&self, key: &str) -> Result<ObjectMeta> {
        let fault = self.begin("stat", key.into()).await?;
        self.end("HEAD", 0, 0);
        let mut meta = self.memory.stat(&self.stored_key(key)).await?;
        self.weaken(&mut meta);
        if self.bare_heads {
            (meta.etag, meta.modified) = (None, None);
        }
        if let Some(change) = self.other_heads {
            change(&mut meta);
        }
        lost(fault, Ok(meta)).await
    }

    async fn list(&self, mut request: ListRequest) -> Result<ListPage> {
        let flat = if request.delimiter.is_some() { "" } else { " flat" };
        let fault = self.begin("list", format!("{}{flat}", request.prefix)).await?;
        self.end("GET", 0, 0);
        if self.lists_all {
            (request.prefix, request.delimiter) = (String::new(), None);
        }
        lost(fault, self.memory.list(request).await).await
    }

    async fn put(&self, key: &str, payload: Payload, options: &PutOptions) -> Result<PutResult> {
        let fault = self.begin("put", format!("{key} {}", payload.len())).await?;
        self.end("PUT", 0, payload.len());
        lost(fault, self.memory.put(&self.stored_key(key), payload, options).await).await
    }

    async fn create_upload(&self, key: &str, options: &PutOptions) -> Result<UploadId> {
        let fault = self.begin("create", key.into()).await?;
        lost(fault, self.memory.create_upload(&self.stored_key(key), options).await).await
    }

    async fn upload_part(
        &self,
        key: &str,
        upload: &UploadId,
        number: u32,
        payload: Payload,
    ) -> Result<Part> {
        let fault = self.begin("part", format!("{key} {number} {}", payload.len())).await?;
        self.end("PUT", 0, payload.len());
        lost(fault, self.memory.upload_part(&self.stored_key(key), upload, number, payload).await)
            .await
    }

    async fn complete_upload(
        &self,
        key: &str,
        upload: &UploadId,
        parts: &[Part],
        options: &PutOptions,
    ) -> Result<PutResult> {
        let fault = self.begin("complete", key.into()).await?;
        self.end("POST", 0, 0);
        lost(
            fault,
            self.memory.complete_upload(&self.stored_key(key), upload, parts, options).await,
        )
        .await
    }

    async fn abort_upload(&self, key: &str, upload: &UploadId) -> Result<()> {
        let fault = self.begin("abort", key.into()).await?;
        lost(fault, self.memory.abort_upload(key, upload).await).await
    }

    async fn delete(&self, key: &str, if_match: Option<&ETag>) -> Result<()> {
        let fault = self.begin("delete", key.into()).await?;
        lost(fault, self.memory.delete(&self.stored_key(key), if_match).await).await
    }

    async fn delete_batch(&self, keys: &[String]) -> Result<Vec<Result<()>>> {
        let fault = self.begin("batch", keys.len().to_string()).await?;
        lost(fault, self.memory.delete_batch(keys).await).await
    }

    async fn copy(&self, from: &str, to: &str, options: &PutOptions) -> Result<PutResult> {
        let fault = self.begin("copy", format!("{from} {to}")).await?;
        lost(fault, self.memory.copy(from, to, options).await).await
    }
}

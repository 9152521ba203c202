//! Objects in this process's memory (`mem://name/`): the reference that other stores are compared
//! with, and a store for tests and scratch data.
//!
//! Stores live in one registry by name for as long as the process does. Nothing is bounded here:
//! who writes into memory owns its size.

mod streaming;

pub use streaming::MemoryAccount;

use crate::listing::{Cursor, Names, read_page};
use crate::notes;
use crate::sums::{Sum, tag_with_sum};
use crate::{
    Body, Capabilities, ETag, GetRequest, GetResponse, ListEntry, ListPage, ListRequest,
    ObjectMeta, Part, Payload, Profile, PutOptions, PutResult, Ranges, Store, UploadId,
    WriteCondition,
};
use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{Error, Kind, Result};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

const LIST_PAGE_MAX: u32 = 5000;
const DELETE_BATCH_MAX: usize = 1000;
const PART_COUNT_MAX: u32 = 10_000;

static REGISTRY: LazyLock<Mutex<HashMap<String, Arc<MemoryStore>>>> = LazyLock::new(Mutex::default);
static NEXT_TAG: AtomicU64 = AtomicU64::new(1);

/// Objects in memory, with every capability of [`Store`].
#[derive(Debug)]
pub struct MemoryStore {
    root: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Object>,
    uploads: HashMap<String, Upload>,
}

#[derive(Clone, Debug)]
struct Object {
    bytes: Bytes,
    meta: ObjectMeta,
    made_by_upload: Option<String>,
    tags: Vec<(String, String)>,
}

#[derive(Debug)]
struct Upload {
    key: String,
    options: PutOptions,
    parts: BTreeMap<u32, (String, Bytes)>,
}

impl MemoryStore {
    /// The store of this name; the first caller creates it.
    pub fn named(name: &str) -> Arc<Self> {
        let mut registry = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
        registry.entry(name.to_string()).or_insert_with(|| Arc::new(Self::new(name))).clone()
    }

    /// A store that is in no registry, so that nobody else can reach it.
    pub fn new(name: &str) -> Self {
        MemoryStore { root: format!("mem://{name}/"), state: Mutex::default() }
    }

    /// A panic while the lock was held leaves whole objects: each change is one map operation.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, kind: Kind, operation: &'static str, key: &str, why: &str) -> Error {
        Error::new(kind, why).with_operation(operation).with_object(format!("{}{key}", self.root))
    }

    fn not_found(&self, operation: &'static str, key: &str) -> Error {
        self.error(Kind::NotFound, operation, key, "no such object")
    }

    fn check(
        &self,
        state: &State,
        operation: &'static str,
        key: &str,
        condition: &WriteCondition,
    ) -> Result<()> {
        let current = state.objects.get(key).and_then(|object| object.meta.etag.as_ref());
        if condition.holds(current) {
            return Ok(());
        }
        let why = match (condition, current) {
            (WriteCondition::IfMatch(_), Some(_)) => "the object has changed",
            (_, Some(_)) => "the object exists already",
            (_, None) => "the object is gone",
        };
        Err(self.error(Kind::Conflict, operation, key, why))
    }

    fn keep_part(
        &self,
        key: &str,
        upload: &UploadId,
        number: u32,
        (payload, sum): (&Payload, Option<&Sum>),
    ) -> Result<Part> {
        if !(1..=PART_COUNT_MAX).contains(&number) {
            let why = format!("part number {number} is outside 1 to {PART_COUNT_MAX}");
            return Err(self.error(Kind::Invalid, "upload part", key, &why));
        }
        let bytes = own_copy(payload);
        let size_bytes = bytes.len() as u64;
        let tag = format!("{:016x}", NEXT_TAG.fetch_add(1, Ordering::Relaxed));
        let etag = tag_with_sum(&tag, sum);
        let mut state = self.state();
        let found = state.uploads.get_mut(&upload.0).filter(|found| found.key == key);
        let found = found.ok_or_else(|| {
            self.error(Kind::NotFound, "upload part", key, "no such upload; it ended or never was")
        })?;
        found.parts.insert(number, (etag.clone(), bytes));
        Ok(Part { number, etag, size_bytes })
    }
}

impl State {
    fn place(
        &mut self,
        key: &str,
        bytes: Bytes,
        options: &PutOptions,
        made_by_upload: Option<String>,
    ) -> PutResult {
        let mut meta = ObjectMeta {
            size_bytes: Some(bytes.len() as u64),
            etag: Some(ETag(format!("{:016x}", NEXT_TAG.fetch_add(1, Ordering::Relaxed)))),
            modified: Some(SystemTime::now()),
            content_type: options.content_type.clone(),
            metadata: options
                .metadata
                .iter()
                .filter(|(name, _)| name != notes::TAGGING)
                .cloned()
                .collect(),
            version: None,
            storage_class: None,
        };
        let tagging = options.metadata.iter().find(|(name, _)| name == notes::TAGGING);
        let tags = tagging.map(|(_, pairs)| crate::tags::from_query(pairs));
        let tags = tags.unwrap_or_default();
        count_tags(&mut meta, &tags);
        let result = written(&meta);
        self.objects.insert(key.to_string(), Object { bytes, meta, made_by_upload, tags });
        result
    }
}

/// Notes how many tags there are, as services tell it.
fn count_tags(meta: &mut ObjectMeta, tags: &[(String, String)]) {
    meta.metadata.retain(|(name, _)| name != crate::answer::TAG_COUNT);
    if !tags.is_empty() {
        meta.metadata.push((crate::answer::TAG_COUNT.to_string(), tags.len().to_string()));
    }
}

fn written(meta: &ObjectMeta) -> PutResult {
    PutResult { etag: meta.etag.clone(), modified: meta.modified, ..PutResult::default() }
}

/// Always copies: the sender counts a piece's memory as its own until the piece is dropped.
fn own_copy(payload: &Payload) -> Bytes {
    payload.0.concat().into()
}

/// Keys of a store that start with a prefix.
struct Keys<'a> {
    objects: &'a BTreeMap<String, Object>,
    prefix: &'a str,
}

impl Names for Keys<'_> {
    type Entry = ObjectMeta;

    fn next(&mut self, cursor: &Cursor) -> Result<Option<(String, ObjectMeta)>> {
        let from_prefix = Bound::Included(self.prefix.to_string());
        let from = match cursor {
            Cursor::After(last) if last.as_str() >= self.prefix => Bound::Excluded(last.clone()),
            Cursor::Past(done) if done.as_str() >= self.prefix => match successor(done) {
                Some(next) => Bound::Included(next),
                None => return Ok(None),
            },
            _ => from_prefix,
        };
        let found = self.objects.range((from, Bound::Unbounded)).next();
        Ok(found
            .filter(|(key, _)| key.starts_with(self.prefix))
            .map(|(key, object)| (key.clone(), listed(&object.meta))))
    }
}

fn listed(meta: &ObjectMeta) -> ObjectMeta {
    ObjectMeta { metadata: Vec::new(), content_type: None, ..meta.clone() }
}

/// The smallest text greater than every text that starts with `prefix`: its last character that
/// can be raised is raised (UTF-8 orders like its code points). `None` where there is no such text.
fn successor(prefix: &str) -> Option<String> {
    let mut text = prefix.to_string();
    while let Some(last) = text.pop() {
        let raised = (last as u32 + 1..=char::MAX as u32).find_map(char::from_u32);
        if let Some(raised) = raised {
            text.push(raised);
            return Some(text);
        }
    }
    None
}

#[async_trait]
impl Store for MemoryStore {
    fn root(&self) -> &str {
        &self.root
    }

    fn origin(&self) -> Option<String> {
        None
    }

    fn profile(&self) -> Profile {
        Profile {
            first_byte_ms: 0.001,
            connection_bytes_per_s: 8e9,
            part_size_min_bytes: 1,
            part_size_max_bytes: u64::MAX,
            part_count_max: PART_COUNT_MAX,
            parts_uniform: false,
            put_size_max_bytes: u64::MAX,
            delete_batch_max: DELETE_BATCH_MAX,
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            write: true,
            list: true,
            suffix_range: true,
            conditional_put: true,
            conditional_delete: true,
            list_etag: true,
            copy: true,
        }
    }

    async fn get(&self, key: &str, request: GetRequest) -> Result<GetResponse> {
        let state = self.state();
        let object = state.objects.get(key).ok_or_else(|| self.not_found("GET", key))?;
        if request.if_match.is_some() && request.if_match != object.meta.etag {
            return Err(self.error(Kind::Conflict, "GET", key, "the object has changed"));
        }
        request.refuse_unchanged(&object.meta).map_err(|error| {
            error.with_operation("GET").with_object(format!("{}{key}", self.root))
        })?;
        let range = request.range.resolve(object.bytes.len() as u64);
        let bytes = object.bytes.slice(range.start as usize..range.end as usize);
        Ok(GetResponse {
            meta: object.meta.clone(),
            range,
            body: Body::Memory(bytes),
            ranges: Ranges::Served,
        })
    }

    async fn stat(&self, key: &str) -> Result<ObjectMeta> {
        let state = self.state();
        state
            .objects
            .get(key)
            .map(|object| object.meta.clone())
            .ok_or_else(|| self.not_found("HEAD", key))
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        let state = self.state();
        let mut keys = Keys { objects: &state.objects, prefix: &request.prefix };
        let page = read_page(&mut keys, &request, LIST_PAGE_MAX)
            .map_err(|error| error.with_operation("list").with_object(self.root.clone()))?;
        let objects = page.objects.into_iter().map(|(key, meta)| ListEntry { key, meta }).collect();
        Ok(ListPage { objects, prefixes: page.prefixes, next: page.next })
    }

    async fn put(&self, key: &str, payload: Payload, options: &PutOptions) -> Result<PutResult> {
        let bytes = own_copy(&payload);
        let mut state = self.state();
        self.check(&state, "PUT", key, &options.condition)?;
        Ok(state.place(key, bytes, options, None))
    }

    async fn create_upload(&self, key: &str, options: &PutOptions) -> Result<UploadId> {
        let id = format!("{:016x}", NEXT_TAG.fetch_add(1, Ordering::Relaxed));
        let upload =
            Upload { key: key.to_string(), options: options.clone(), parts: BTreeMap::new() };
        self.state().uploads.insert(id.clone(), upload);
        Ok(UploadId(id))
    }

    async fn upload_part(
        &self,
        key: &str,
        upload: &UploadId,
        number: u32,
        payload: Payload,
    ) -> Result<Part> {
        self.keep_part(key, upload, number, (&payload, None))
    }

    async fn complete_upload(
        &self,
        key: &str,
        upload: &UploadId,
        parts: &[Part],
        options: &PutOptions,
    ) -> Result<PutResult> {
        const OPERATION: &str = "complete upload";
        let mut state = self.state();
        let Some(found) = state.uploads.get(&upload.0).filter(|found| found.key == key) else {
            let made = state
                .objects
                .get(key)
                .filter(|object| object.made_by_upload.as_deref() == Some(upload.0.as_str()));
            return match made {
                Some(object) => Ok(written(&object.meta)),
                None => Err(self.error(
                    Kind::NotFound,
                    OPERATION,
                    key,
                    "no such upload; it ended or never was",
                )),
            };
        };
        let mut pieces = Vec::with_capacity(parts.len());
        let mut last = 0;
        for part in parts {
            let staged = found.parts.get(&part.number).filter(|staged| staged.0 == part.etag);
            let (true, Some((_, bytes))) = (part.number > last, staged) else {
                let why = format!("part {} is missing, replaced or out of order", part.number);
                return Err(self.error(Kind::Invalid, OPERATION, key, &why));
            };
            last = part.number;
            pieces.push(bytes.clone());
        }
        self.check(&state, OPERATION, key, &options.condition)?;
        let begun = found.options.clone();
        state.uploads.remove(&upload.0);
        let options = options.or_from(&begun);
        let bytes = Payload(pieces).into_bytes();
        Ok(state.place(key, bytes, &options, Some(upload.0.clone())))
    }

    async fn abort_upload(&self, _key: &str, upload: &UploadId) -> Result<()> {
        self.state().uploads.remove(&upload.0);
        Ok(())
    }

    async fn delete(&self, key: &str, if_match: Option<&ETag>) -> Result<()> {
        let mut state = self.state();
        if let (Some(tag), Some(_)) = (if_match, state.objects.get(key)) {
            self.check(&state, "DELETE", key, &WriteCondition::IfMatch(tag.clone()))?;
        }
        state.objects.remove(key);
        Ok(())
    }

    async fn delete_batch(&self, keys: &[String]) -> Result<Vec<Result<()>>> {
        let mut state = self.state();
        Ok(keys
            .iter()
            .map(|key| {
                state.objects.remove(key);
                Ok(())
            })
            .collect())
    }

    async fn copy(&self, from: &str, to: &str, options: &PutOptions) -> Result<PutResult> {
        let mut state = self.state();
        let source = state.objects.get(from).ok_or_else(|| self.not_found("copy", from))?.clone();
        self.check(&state, "copy", to, &options.condition)?;
        let kept = PutOptions {
            content_type: source.meta.content_type,
            metadata: source.meta.metadata,
            ..Default::default()
        };
        let keeps_tags = !options.metadata.iter().any(|(name, _)| name == notes::TAGGING);
        let options = options.or_from(&kept);
        let result = state.place(to, source.bytes, &options, None);
        if let Some(made) = state.objects.get_mut(to).filter(|_| keeps_tags) {
            made.tags = source.tags;
        }
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(store: &MemoryStore, key: &str) -> Bytes {
        let request = GetRequest::default();
        match store.get(key, request).await.unwrap().body {
            Body::Memory(bytes) => bytes,
            other => panic!("memory answers with {other:?}"),
        }
    }

    #[tokio::test]
    async fn same_name_is_the_same_store() {
        let options = PutOptions::default();
        let a = MemoryStore::named("same-name-test");
        a.put("k", Bytes::from_static(b"v").into(), &options).await.unwrap();
        assert_eq!(read(&MemoryStore::named("same-name-test"), "k").await, "v");
    }

    #[tokio::test]
    async fn upload_is_invisible_until_complete_and_completes_twice() {
        let store = MemoryStore::new("t");
        let options = PutOptions { content_type: Some("text/plain".into()), ..Default::default() };
        let id = store.create_upload("k", &options).await.unwrap();
        let two = store.upload_part("k", &id, 2, Bytes::from_static(b"b").into()).await.unwrap();
        let one = store.upload_part("k", &id, 1, Bytes::from_static(b"a").into()).await.unwrap();
        assert_eq!(store.stat("k").await.unwrap_err().kind(), Kind::NotFound);
        let parts = [one, two];
        let plain = PutOptions::default();
        let first = store.complete_upload("k", &id, &parts, &plain).await.unwrap();
        let again = store.complete_upload("k", &id, &parts, &plain).await.unwrap();
        assert_eq!(first, again);
        assert_eq!(read(&store, "k").await, "ab");
        assert_eq!(store.stat("k").await.unwrap().content_type.as_deref(), Some("text/plain"));
    }

    #[test]
    fn successor_passes_every_continuation() {
        assert_eq!(successor("a/"), Some("a0".into()));
        assert_eq!(successor("a\u{10FFFF}"), Some("b".into()));
        assert_eq!(successor("\u{D7FF}"), Some("\u{E000}".into()));
        assert_eq!(successor("\u{10FFFF}"), None);
    }
}

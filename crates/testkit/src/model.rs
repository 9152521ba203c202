//! The contract of a store in the fewest words: a map behind a lock, with every ability.
//!
//! It is the reference that other implementations are compared with, and the object that broken
//! wrappers are built from. Abilities can be taken away to examine callers and the suite itself.

use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{ByteRange, Error, Kind, Result};
use penstock_store::{
    Body, Capabilities, ETag, GetRange, GetRequest, GetResponse, ListEntry, ListPage, ListRequest,
    ObjectMeta, Part, Payload, Profile, PutOptions, PutResult, Ranges, Store, UploadId,
    WriteCondition,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::SystemTime;

/// Every ability that the contract knows.
pub const EVERYTHING: Capabilities = Capabilities {
    write: true,
    list: true,
    suffix_range: true,
    conditional_put: true,
    conditional_delete: true,
    list_etag: true,
    copy: true,
};

#[derive(Clone, Debug)]
struct Object {
    bytes: Bytes,
    meta: ObjectMeta,
    made_by: Option<String>,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Object>,
    uploads: HashMap<String, BTreeMap<u32, Bytes>>,
    versions: u64,
}

/// A store in memory that does what the contract says, and nothing else.
#[derive(Debug)]
pub struct ModelStore {
    root: String,
    capabilities: Capabilities,
    state: Mutex<State>,
}

impl Default for ModelStore {
    fn default() -> Self {
        ModelStore::with_capabilities(EVERYTHING)
    }
}

impl ModelStore {
    /// An empty store with some of the abilities only.
    pub fn with_capabilities(capabilities: Capabilities) -> Self {
        ModelStore { root: "model://bucket/".to_string(), capabilities, state: Mutex::default() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    fn error(&self, kind: Kind, operation: &'static str, key: &str, why: &str) -> Error {
        Error::new(kind, why).with_operation(operation).with_object(format!("{}{key}", self.root))
    }

    fn need(&self, able: bool, operation: &'static str, key: &str) -> Result<()> {
        let refusal = || self.error(Kind::Unsupported, operation, key, "not claimed");
        if able { Ok(()) } else { Err(refusal()) }
    }

    fn found(&self, state: &State, operation: &'static str, key: &str) -> Result<Object> {
        let missing = || self.error(Kind::NotFound, operation, key, "no such object");
        state.objects.get(key).cloned().ok_or_else(missing)
    }

    fn check(
        &self,
        state: &State,
        operation: &'static str,
        key: &str,
        condition: &WriteCondition,
    ) -> Result<()> {
        let present = state.objects.get(key).and_then(|object| object.meta.etag.as_ref());
        let holds = condition.holds(present);
        self.need(
            *condition == WriteCondition::None || self.capabilities.conditional_put,
            operation,
            key,
        )?;
        let conflict = || self.error(Kind::Conflict, operation, key, "the condition does not hold");
        if holds { Ok(()) } else { Err(conflict()) }
    }

    fn place(
        state: &mut State,
        key: &str,
        bytes: Bytes,
        options: &PutOptions,
        made_by: Option<String>,
    ) -> PutResult {
        state.versions += 1;
        let etag = Some(ETag(format!("v{}", state.versions)));
        let modified = Some(SystemTime::now());
        let meta = ObjectMeta {
            size_bytes: Some(bytes.len() as u64),
            etag: etag.clone(),
            modified,
            content_type: options.content_type.clone(),
            metadata: options.metadata.clone(),
            version: None,
            storage_class: None,
        };
        state.objects.insert(key.to_string(), Object { bytes, meta, made_by });
        PutResult { etag, modified, ..PutResult::default() }
    }
}

fn joined(payload: Payload) -> Bytes {
    payload.0.concat().into()
}

/// The part of an object of `size` bytes that a range asks for.
pub fn resolve(range: GetRange, size: u64) -> ByteRange {
    let (start, end) = match range {
        GetRange::All => (0, size),
        GetRange::Bounded(range) => (range.start, range.end),
        GetRange::From(start) => (start, size),
        GetRange::Suffix(len) => (size.saturating_sub(len), size),
    };
    let end = end.min(size);
    ByteRange { start: start.min(end), end }
}

#[async_trait]
impl Store for ModelStore {
    fn root(&self) -> &str {
        &self.root
    }

    fn origin(&self) -> Option<String> {
        None
    }

    fn profile(&self) -> Profile {
        Profile {
            first_byte_ms: 0.0,
            connection_bytes_per_s: 1e10,
            part_size_min_bytes: 0,
            part_size_max_bytes: u64::MAX,
            part_count_max: 10_000,
            parts_uniform: false,
            put_size_max_bytes: u64::MAX,
            delete_batch_max: 10,
        }
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    async fn get(&self, key: &str, request: GetRequest) -> Result<GetResponse> {
        if matches!(request.range, GetRange::Suffix(_)) {
            self.need(self.capabilities.suffix_range, "GET", key)?;
        }
        let object = self.found(&self.state(), "GET", key)?;
        if request.if_match.is_some() && request.if_match != object.meta.etag {
            return Err(self.error(Kind::Conflict, "GET", key, "the object changed"));
        }
        let named =
            |error: Error| error.with_operation("GET").with_object(format!("{}{key}", self.root));
        request.refuse_unchanged(&object.meta).map_err(named)?;
        let range = resolve(request.range, object.bytes.len() as u64);
        let body = Body::Memory(object.bytes.slice(range.start as usize..range.end as usize));
        Ok(GetResponse { meta: object.meta, range, body, ranges: Ranges::Served })
    }

    async fn stat(&self, key: &str) -> Result<ObjectMeta> {
        Ok(self.found(&self.state(), "HEAD", key)?.meta)
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        self.need(self.capabilities.list, "list", &request.prefix)?;
        let most = request.max_keys.unwrap_or(1000) as usize;
        let after = request.token.or(request.start_after).unwrap_or_default();
        let state = self.state();
        let mut page = ListPage::default();
        let mut last = String::new();
        for (key, object) in &state.objects {
            let fold = request.delimiter.as_ref().and_then(|delimiter| {
                let rest = key.strip_prefix(&request.prefix)?;
                rest.find(delimiter.as_str())
                    .map(|at| key[..request.prefix.len() + at + delimiter.len()].to_string())
            });
            // A folded name counts as seen when the listing has passed the fold itself.
            let passed = *key <= after || fold.as_ref().is_some_and(|fold| *fold == after);
            if !key.starts_with(&request.prefix)
                || passed
                || fold.as_ref() == page.prefixes.last() && fold.is_some()
            {
                continue;
            }
            if page.objects.len() + page.prefixes.len() == most {
                page.next = Some(last);
                break;
            }
            last = fold.clone().unwrap_or_else(|| key.clone());
            match fold {
                Some(fold) => page.prefixes.push(fold),
                None => {
                    let mut meta = object.meta.clone();
                    meta.etag = meta.etag.filter(|_| self.capabilities.list_etag);
                    page.objects.push(ListEntry { key: key.clone(), meta });
                }
            }
        }
        Ok(page)
    }

    async fn put(&self, key: &str, payload: Payload, options: &PutOptions) -> Result<PutResult> {
        self.need(self.capabilities.write, "PUT", key)?;
        let mut state = self.state();
        self.check(&state, "PUT", key, &options.condition)?;
        Ok(Self::place(&mut state, key, joined(payload), options, None))
    }

    async fn create_upload(&self, key: &str, _options: &PutOptions) -> Result<UploadId> {
        self.need(self.capabilities.write, "create upload", key)?;
        let mut state = self.state();
        state.versions += 1;
        let id = format!("{key}#{}", state.versions);
        state.uploads.insert(id.clone(), BTreeMap::new());
        Ok(UploadId(id))
    }

    async fn upload_part(
        &self,
        key: &str,
        upload: &UploadId,
        number: u32,
        payload: Payload,
    ) -> Result<Part> {
        self.need(self.capabilities.write, "upload part", key)?;
        let bytes = joined(payload);
        let size_bytes = bytes.len() as u64;
        match self.state().uploads.get_mut(&upload.0) {
            Some(parts) => drop(parts.insert(number, bytes)),
            None => return Err(self.error(Kind::NotFound, "upload part", key, "no such upload")),
        }
        Ok(Part { number, etag: format!("part-{number}"), size_bytes })
    }

    async fn complete_upload(
        &self,
        key: &str,
        upload: &UploadId,
        parts: &[Part],
        options: &PutOptions,
    ) -> Result<PutResult> {
        const OPERATION: &str = "complete upload";
        self.need(self.capabilities.write, OPERATION, key)?;
        let mut state = self.state();
        let Some(sent) = state.uploads.get(&upload.0) else {
            // The answer may have been lost: the object tells whether this upload made it.
            let object = self.found(&state, OPERATION, key)?;
            if object.made_by.as_ref() == Some(&upload.0) {
                let (etag, modified) = (object.meta.etag, object.meta.modified);
                return Ok(PutResult { etag, modified, ..PutResult::default() });
            }
            return Err(self.error(Kind::Conflict, OPERATION, key, "another write took its place"));
        };
        let mut bytes = Vec::new();
        for part in parts {
            let missing = || self.error(Kind::Invalid, OPERATION, key, "a part is missing");
            bytes.extend_from_slice(sent.get(&part.number).ok_or_else(missing)?);
        }
        self.check(&state, OPERATION, key, &options.condition)?;
        state.uploads.remove(&upload.0);
        Ok(Self::place(&mut state, key, bytes.into(), options, Some(upload.0.clone())))
    }

    async fn abort_upload(&self, key: &str, upload: &UploadId) -> Result<()> {
        self.need(self.capabilities.write, "abort upload", key)?;
        self.state().uploads.remove(&upload.0);
        Ok(())
    }

    async fn delete(&self, key: &str, if_match: Option<&ETag>) -> Result<()> {
        self.need(self.capabilities.write, "DELETE", key)?;
        self.need(if_match.is_none() || self.capabilities.conditional_delete, "DELETE", key)?;
        let mut state = self.state();
        let present = state.objects.get(key).and_then(|object| object.meta.etag.as_ref());
        if if_match.is_some() && present.is_some() && present != if_match {
            return Err(self.error(Kind::Conflict, "DELETE", key, "the object changed"));
        }
        state.objects.remove(key);
        Ok(())
    }

    async fn delete_batch(&self, keys: &[String]) -> Result<Vec<Result<()>>> {
        self.need(self.capabilities.write, "delete", "")?;
        let mut results = Vec::new();
        for key in keys {
            results.push(self.delete(key, None).await);
        }
        Ok(results)
    }

    async fn copy(&self, from: &str, to: &str, options: &PutOptions) -> Result<PutResult> {
        self.need(self.capabilities.write && self.capabilities.copy, "copy", from)?;
        let mut state = self.state();
        let source = self.found(&state, "copy", from)?;
        self.check(&state, "copy", to, &options.condition)?;
        let mut options = options.clone();
        options.content_type = options.content_type.or(source.meta.content_type);
        if options.metadata.is_empty() {
            options.metadata = source.meta.metadata;
        }
        Ok(Self::place(&mut state, to, source.bytes, &options, None))
    }
}

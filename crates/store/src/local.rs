//! Local files as objects: directories as buckets, and plain paths.
//!
//! An object is one file under its own name, so other programs can read a bucket and fill it.
//! Writes are crash-safe (see `write`), conditions hold between processes on one machine, and all
//! disk work happens on blocking threads. A bucket holds `a` and `a/b` at once: the file `a` is
//! then kept under a hidden name beside the directory. Among plain files the second of the two is
//! refused.
//!
//! Reads of an open object stay with the version that was opened. A program that overwrites a
//! file in place, instead of renaming a new one over it, changes the bytes under an open reader;
//! the tag tells at the next open.

mod attributes;
mod body;
mod bucket;
mod described;
mod durable;
mod errno;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod names;
mod parked;
mod removal;
mod root;
mod staged;
mod streaming;
mod sweep;
mod upload;
mod versions;
mod walk;
mod write;

#[cfg(test)]
mod tests;

pub use body::{FileBody, FilePiece};
pub use staged::Staged;

use crate::listing::{Cursor, read_page};
use crate::random;
use crate::streaming::{Permit, Removed, split_version};
use crate::{
    Body, Capabilities, ETag, GetRequest, GetResponse, ListEntry, ListPage, ListRequest,
    ObjectMeta, Part, Payload, Profile, PutOptions, PutResult, Ranges, Store, UploadId,
};
use async_trait::async_trait;
use attributes::Attributes;
use described::{open, open_cached};
use errno::{explain, explain_io};
use names::Location;
use parked::Parked;
use penstock_base::{Error, Kind, Result};
use root::Root;
use rustix::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use sweep::Sweeper;
use walk::Walk;
use write::Temp;

const LIST_PAGE_MAX: u32 = 5000;
const DELETE_BATCH_MAX: usize = 1000;
const NONCE_CHARS: usize = 32;

/// What the root means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// The root is a bucket: nothing leads out of it, every key has a place, directories are ours.
    Bucket,
    /// The root is `/`: keys are absolute paths without the first slash, directories the user's.
    Files,
}

/// Objects as local files.
#[derive(Debug)]
pub struct LocalStore {
    url: String,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    root: Arc<Root>,
    sweeper: Sweeper,
    parked: Parked,
}

impl LocalStore {
    /// A bucket: the objects below an existing directory. Symbolic links inside it work as long as
    /// they stay inside.
    ///
    /// # Errors
    /// `NotFound` and `Denied` as the operating system says; `Invalid` if it is no directory.
    pub fn open(directory: &Path) -> Result<Self> {
        let url = format!("file://{}/", directory.display().to_string().trim_end_matches('/'));
        Self::with_root(Root::open(directory, Scope::Bucket)?, url)
    }

    /// The same, making the directory where it is missing.
    ///
    /// # Errors
    /// As [`LocalStore::open`].
    pub fn create(directory: &Path) -> Result<Self> {
        std::fs::create_dir_all(directory).map_err(|error| {
            explain_io(&error, "make directory", &directory.display().to_string())
        })?;
        Self::open(directory)
    }

    /// Plain files of this machine: keys are absolute paths without the first slash.
    ///
    /// # Errors
    /// As [`LocalStore::open`].
    pub fn files() -> Result<Self> {
        Self::with_root(Root::open(Path::new("/"), Scope::Files)?, "file:///".into())
    }

    fn with_root(root: Root, url: String) -> Result<Self> {
        let shared =
            Shared { root: Arc::new(root), sweeper: Sweeper::default(), parked: Parked::default() };
        Ok(LocalStore { url, shared: Arc::new(shared) })
    }

    /// Runs disk work on a blocking thread and names operation and object in its errors. A dropped
    /// future does not stop work that has begun, but that work is atomic.
    async fn run<T: Send + 'static>(
        &self,
        operation: &'static str,
        key: &str,
        work: impl FnOnce(&Shared) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let shared = self.shared.clone();
        let done = staged::blocking(move || work(&shared)).await;
        done.map_err(|error| self.name(error, operation, key))
    }

    fn name(&self, error: Error, operation: &'static str, key: &str) -> Error {
        error.with_operation(operation).with_object(format!("{}{key}", self.url))
    }

    /// The same with the place of `key`.
    async fn run_at<T: Send + 'static>(
        &self,
        operation: &'static str,
        key: &str,
        work: impl FnOnce(&Shared, &Location) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let location = names::locate(self.shared.root.scope, key).map_err(|error| {
            error.with_operation(operation).with_object(format!("{}{key}", self.url))
        })?;
        self.run(operation, key, move |shared| work(shared, &location)).await
    }
}

/// Key and version of a name (see [`crate::streaming::versioned`]).
fn versioned_key(name: &str) -> (&str, Option<String>) {
    let (key, version) = split_version(name);
    (key, version.map(str::to_string))
}

/// Sixteen random bytes as hexadecimal text.
fn nonce() -> String {
    random::hex(&random::bytes::<{ NONCE_CHARS / 2 }>())
}

/// A fresh name of a temporary file.
fn temp_name() -> String {
    format!("{}{}", names::TEMP, nonce())
}

impl Shared {
    fn get(
        &self,
        location: &Location,
        (file, meta): (OwnedFd, ObjectMeta),
        request: &GetRequest,
    ) -> Result<GetResponse> {
        if request.if_match.is_some() && request.if_match != meta.etag {
            return Err(Error::new(Kind::Conflict, "the file has changed since it was opened")
                .with_hint("Run again to read the new version"));
        }
        request.refuse_unchanged(&meta)?;
        let range = request.range.resolve(meta.size_bytes.unwrap_or(0));
        let body = FileBody::new(file, self.root.shown(&location.path()), range.start, range.end);
        Ok(GetResponse { meta, range, body: Body::File(Box::new(body)), ranges: Ranges::Served })
    }

    fn put(
        &self,
        location: &Location,
        payload: &Payload,
        options: &PutOptions,
    ) -> Result<PutResult> {
        write::check_now(&self.root, location, &options.condition)?;
        let mut temp = Temp::create(&self.root, location)?;
        self.sweeper.sweep_once(&self.root, &location.dir);
        temp.write(payload, &self.root.shown(&location.path()))?;
        temp.publish(&self.root, location, &options.condition, &Attributes::of(options))
    }

    fn copy(&self, from: &Location, to: &Location, options: &PutOptions) -> Result<PutResult> {
        let (source, meta) = open(&self.root, from)?;
        write::check_now(&self.root, to, &options.condition)?;
        let mut temp = Temp::create(&self.root, to)?;
        // Shares blocks or copies inside the kernel where the file system can.
        let mut source = std::fs::File::from(source);
        let copied = std::io::copy(&mut source, &mut temp.file)
            .map_err(|error| explain_io(&error, "copy to", &self.root.shown(&to.path())))?;
        if Some(copied) != meta.size_bytes {
            let why = format!("the source changed while it was copied ({copied} bytes came)");
            return Err(Error::new(Kind::Conflict, why).with_service_code("OperationAborted"));
        }
        let kept = PutOptions {
            content_type: meta.content_type,
            metadata: meta.metadata,
            ..Default::default()
        };
        let attributes = Attributes::of(&options.or_from(&kept));
        temp.publish(&self.root, to, &options.condition, &attributes)
    }

    fn delete(&self, location: &Location, if_match: Option<&ETag>) -> Result<()> {
        self.remove(location, None, if_match, None).map(drop)
    }

    fn remove(
        &self,
        location: &Location,
        version: Option<&str>,
        if_match: Option<&ETag>,
        permit: Option<&Permit>,
    ) -> Result<Removed> {
        let condition = versions::removal_condition(if_match);
        versions::remove(&self.root, location, version, &condition, permit)
    }

    /// Opens an object, or the version of it that is meant.
    fn open(&self, location: &Location, version: Option<&str>) -> Result<(OwnedFd, ObjectMeta)> {
        match version {
            Some(id) => versions::open(&self.root, location, id),
            None => open(&self.root, location),
        }
    }

    fn list(&self, request: &ListRequest) -> Result<ListPage> {
        let (page, walk) = self.list_once(request)?;
        if let Some(token) = &page.next {
            self.parked.put(request, token, walk.pause());
        }
        Ok(page)
    }

    /// One page, and the walk that the next one may go on with.
    fn list_once(&self, request: &ListRequest) -> Result<(ListPage, Walk)> {
        let waiting = self.parked.take(request);
        let mut walk = match waiting.and_then(|rest| Walk::resume(self.root.clone(), rest)) {
            Some(walk) => walk,
            None => Walk::start(self.root.clone(), request, &Cursor::of(request)?)?,
        };
        let page = read_page(&mut walk, request, LIST_PAGE_MAX)?;
        let mut objects = Vec::with_capacity(page.objects.len());
        for (key, found) in page.objects {
            let meta =
                found.meta().map_err(|errno| explain(errno, "stat", &self.root.shown(&key)))?;
            objects.extend(meta.map(|meta| ListEntry { key, meta }));
        }
        if page.next.is_some() {
            walk.step_back();
        }
        Ok((ListPage { objects, prefixes: page.prefixes, next: page.next }, walk))
    }
}

#[async_trait]
impl Store for LocalStore {
    fn root(&self) -> &str {
        &self.url
    }

    fn origin(&self) -> Option<String> {
        None
    }

    fn profile(&self) -> Profile {
        Profile {
            first_byte_ms: 0.05,
            connection_bytes_per_s: 2e9,
            part_size_min_bytes: 1,
            part_size_max_bytes: u64::MAX,
            part_count_max: upload::PART_COUNT_MAX,
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
        if let Ok(at) = names::locate(self.shared.root.scope, key)
            && let Some(opened) = open_cached(&self.shared.root, &at)
        {
            return opened
                .and_then(|opened| self.shared.get(&at, opened, &request))
                .map_err(|error| self.name(error, "GET", key));
        }
        let (key, version) = versioned_key(key);
        self.run_at("GET", key, move |shared, at| {
            shared.get(at, shared.open(at, version.as_deref())?, &request)
        })
        .await
    }

    async fn stat(&self, key: &str) -> Result<ObjectMeta> {
        if let Ok(at) = names::locate(self.shared.root.scope, key)
            && let Some(opened) = open_cached(&self.shared.root, &at)
        {
            return opened.map(|(_, meta)| meta).map_err(|error| self.name(error, "HEAD", key));
        }
        let (key, version) = versioned_key(key);
        self.run_at("HEAD", key, move |shared, at| {
            shared.open(at, version.as_deref()).map(|(_, meta)| meta)
        })
        .await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        let prefix = request.prefix.clone();
        self.run("list", &prefix, move |shared| shared.list(&request)).await
    }

    async fn put(&self, key: &str, payload: Payload, options: &PutOptions) -> Result<PutResult> {
        let options = options.clone();
        self.run_at("PUT", key, move |shared, at| shared.put(at, &payload, &options)).await
    }

    async fn create_upload(&self, key: &str, options: &PutOptions) -> Result<UploadId> {
        let options = options.clone();
        self.run_at("create upload", key, move |shared, at| {
            let id = upload::create(&shared.root, at, &options)?;
            shared.sweeper.sweep_once(&shared.root, &at.dir);
            Ok(id)
        })
        .await
    }

    async fn upload_part(
        &self,
        key: &str,
        upload: &UploadId,
        number: u32,
        payload: Payload,
    ) -> Result<Part> {
        let id = upload.clone();
        self.run_at("upload part", key, move |shared, at| {
            upload::write_part(&shared.root, at, &id, number, (&payload, None))
        })
        .await
    }

    async fn complete_upload(
        &self,
        key: &str,
        upload: &UploadId,
        parts: &[Part],
        options: &PutOptions,
    ) -> Result<PutResult> {
        let (id, parts, options) = (upload.clone(), parts.to_vec(), options.clone());
        self.run_at("complete upload", key, move |shared, at| {
            upload::complete(&shared.root, at, &id, &parts, &options)
        })
        .await
    }

    async fn abort_upload(&self, key: &str, upload: &UploadId) -> Result<()> {
        let id = upload.clone();
        self.run_at("abort upload", key, move |shared, at| upload::abort(&shared.root, at, &id))
            .await
    }

    async fn delete(&self, key: &str, if_match: Option<&ETag>) -> Result<()> {
        let if_match = if_match.cloned();
        self.run_at("DELETE", key, move |shared, at| shared.delete(at, if_match.as_ref())).await
    }

    async fn delete_batch(&self, keys: &[String]) -> Result<Vec<Result<()>>> {
        let keys = keys.to_vec();
        let url = self.url.clone();
        self.run("DELETE", "", move |shared| {
            let one = |key: &String| {
                names::locate(shared.root.scope, key)
                    .and_then(|at| shared.delete(&at, None))
                    .map_err(|e| e.with_operation("DELETE").with_object(format!("{url}{key}")))
            };
            Ok(keys.iter().map(one).collect())
        })
        .await
    }

    async fn copy(&self, from: &str, to: &str, options: &PutOptions) -> Result<PutResult> {
        let options = options.clone();
        let from = names::locate(self.shared.root.scope, from)
            .map_err(|error| self.name(error, "copy", from))?;
        self.run_at("copy", to, move |shared, to| shared.copy(&from, to, &options)).await
    }
}

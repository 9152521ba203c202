//! Azure Blob Storage, and Data Lake Storage (ADLS Gen2) through its Blob endpoint.
//!
//! Decides which requests a verb of [`Store`] is; how URLs, credentials, listings and batches look
//! is decided in the modules below. API: "Blob Storage REST API" of Microsoft's storage reference.
//!
//! What Azure does differently, and what a caller notices of it:
//!
//! - There are no suffix ranges; the end of a blob costs a second request.
//! - An upload needs no request to begin, and cannot be discarded: its blocks are invisible and
//!   expire after a week, or go when anything else is committed to the same blob. An abort
//!   therefore sends nothing, so that it can never publish or destroy anything.
//! - Committing to a blob drops the unfinished blocks of all other writers. Of two uploads of one
//!   key the second to finish gets `Conflict` and has to begin anew; it never publishes a mix.
//! - Directories of accounts with a hierarchical namespace are listed as empty blobs; they are
//!   hidden, and a read of one is `NotFound`. Such accounts list directory by directory; lists are
//!   put into byte order, which costs small requests besides (see `hierarchy`).
//! - Blob Batch is not offered by all accounts. Where it is refused, names are deleted one by one,
//!   several at a time.
//! - Whether versions are kept is set on the account, and no request of the Blob service tells. A
//!   removal makes the current version one like any other, without a delete marker.
//! - `.` and `..` between slashes are resolved by servers on the way, and the service turns a
//!   backslash into a slash; such keys are refused, since they would be other blobs.

mod account;
mod acknowledged;
pub mod address;
mod batch;
mod block;
mod config;
mod connection_string;
mod copy;
mod credentials;
mod delete;
mod endpoint;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod hierarchy;
mod hosts;
mod identity;
mod list;
mod metadata;
mod ordered;
pub(crate) mod sas;
mod shared_key;
mod shared_tokens;
mod stat;
mod streaming;
mod tier;
mod upload;
mod versions;
mod wire;

pub use account::AzureAccount;
pub use address::Address;

use crate::answer::{
    Extent, Failure, UNKNOWN_END, extent, is_object, range_header, unsatisfiable_extent,
};
use crate::options::StoreOptions;
use crate::stat::stat;
use crate::streaming::split_version;
use crate::{
    Body, Capabilities, Connections, CopySource, ETag, GetRange, GetRequest, GetResponse,
    HttpClient, HttpResponse, ListPage, ListRequest, ObjectMeta, Part, Payload, Profile,
    PutOptions, PutResult, Ranges, Store, UploadId, WarmUp, WriteCondition, unpack,
};
use ::http::Method;
use ::http::header::RANGE;
use async_trait::async_trait;
use block::Upload;
use bytes::Bytes;
use ordered::Namespace;
use penstock_base::{Error, Kind, Result, Retry};
use std::sync::atomic::{AtomicBool, AtomicU32};
use upload::BlockBody;
use wire::{Ask, Wire, blob_meta, is_directory, put_result};

const MIB: u64 = 1 << 20;
/// Put Blob since version 2019-12-12.
const PUT_SIZE_MAX: u64 = 5000 * MIB;
/// Put Block since version 2019-12-12.
const BLOCK_SIZE_MAX: u64 = 4000 * MIB;
/// Committed blocks of one blob.
const BLOCK_COUNT_MAX: u32 = 50_000;
const LIST_PAGE_MAX: u32 = 5000;
/// A listing page of 5000 names of 1024 characters, with room for their properties.
const LIST_BYTES_MAX: usize = 64 << 20;

/// One container of an account.
#[derive(Debug)]
pub struct AzureStore {
    wire: Wire,
    /// The service does not know `startFrom`: it refused the version that brought it.
    start_from_refused: AtomicBool,
    /// Whether the account has a hierarchical namespace, as far as its lists have told.
    namespace: Namespace,
    /// Batches that were refused one after the other.
    batches_refused: AtomicU32,
    /// What is in between answers HEAD otherwise than GET.
    head_refused: AtomicBool,
}

impl AzureStore {
    /// The container that a URL names, and the URL's key in it. Sends nothing.
    ///
    /// # Errors
    /// `Invalid` for a malformed URL or option, or when no account is known.
    pub fn open(client: &HttpClient, url: &str, options: &StoreOptions) -> Result<(Self, String)> {
        let address = Address::parse(url)?;
        let key = address.key.clone();
        let wire =
            Wire::new(client.clone(), address, options).map_err(|error| error.with_object(url))?;
        Ok((AzureStore::over(wire), key))
    }

    fn over(wire: Wire) -> Self {
        AzureStore {
            wire,
            start_from_refused: AtomicBool::new(false),
            namespace: Namespace::default(),
            batches_refused: AtomicU32::new(0),
            head_refused: AtomicBool::new(false),
        }
    }

    /// Put Blob.
    async fn put_blob(
        &self,
        key: &str,
        options: &PutOptions,
        body: BlockBody,
    ) -> Result<PutResult> {
        self.check_key("PUT", key)?;
        let headers = vec![("x-ms-blob-type", "BlockBlob".to_string())];
        let (payload, flow) = body.split();
        let ask = Ask { headers, options: Some(options), payload, flow, ..Ask::default() };
        let response = self.wire.send("PUT", key, Method::PUT, ask).await?;
        if response.status != 201 {
            return Err(self.wire.refused(response, "PUT", key).await);
        }
        self.written(response, "PUT", key).await
    }

    /// Tag and time of what a request wrote; the rest of its answer says nothing.
    async fn written(
        &self,
        response: HttpResponse,
        operation: &'static str,
        key: &str,
    ) -> Result<PutResult> {
        let result = put_result(&response.headers);
        self.acknowledged(response, operation, key).await?;
        Ok(result)
    }

    /// Makes the container if it is not there; for tests and set-up.
    ///
    /// # Errors
    /// As any write.
    pub async fn create_container(&self) -> Result<()> {
        self.make_container("create container").await
    }

    async fn make_container(&self, operation: &'static str) -> Result<()> {
        let ask = Ask { query: &[("restype", "container")], ..Ask::default() };
        let response = self.wire.send(operation, "", Method::PUT, ask).await?;
        match response.status {
            201 => self.acknowledged(response, operation, "").await,
            _ => {
                let failure = Failure::read(response).await;
                if failure.code == "ContainerAlreadyExists" {
                    return Ok(());
                }
                Err(self.wire.failed(failure, operation, ""))
            }
        }
    }

    fn check_key(&self, operation: &'static str, key: &str) -> Result<()> {
        versions::check(key).map_err(|error| self.wire.named(error, operation, key))?;
        let key = split_version(key).0;
        if key.is_empty() {
            let error = Error::new(Kind::Invalid, "the URL names a container, not a blob in it");
            let error = self.wire.named(error, operation, key);
            return Err(error.with_hint(
                "Name a blob, as in az://container/name, or read all with a pattern (`*`)",
            ));
        }
        let why = if key.split('/').any(|part| part == "." || part == "..") {
            "`.` and `..` between slashes cannot be part of a blob's name"
        } else if key.contains('\\') {
            "Azure takes a backslash in a blob's name for a slash"
        } else {
            return Ok(());
        };
        Err(self.wire.named(Error::new(Kind::Invalid, why), operation, key))
    }

    /// One GET; any status is an answer.
    async fn ask(&self, key: &str, request: &GetRequest) -> Result<HttpResponse> {
        let mut headers: Vec<_> = request.condition_header().into_iter().collect();
        headers.extend(range_header(request.range).map(|value| (RANGE.as_str(), value)));
        let ask = Ask { headers, ..Ask::default() };
        self.wire.send("GET", key, Method::GET, ask).await
    }

    /// What the answer to a GET says.
    async fn answered(
        &self,
        key: &str,
        request: &GetRequest,
        response: HttpResponse,
    ) -> Result<GetResponse> {
        if response.status == 304 && !wire::is_from_service(&response.headers) {
            return Err(self.foreign("GET", key));
        }
        if !is_object(response.status) {
            return Err(self.wire.refused(response, "GET", key).await);
        }
        if !wire::is_of_blob(&response.headers) {
            return Err(self.foreign("GET", key));
        }
        if is_directory(&response.headers) {
            return Err(self.directory("GET", key));
        }
        let found = versions::check_null(key, &response.headers)
            .and_then(|()| unpack::refuse_unless_label(&response.headers))
            .and_then(|()| extent(request.range, response.status, &response.headers))
            .and_then(|found| whole_range(found, request.range))
            .map_err(|error| self.wire.named(error, "GET", key))?;
        let Extent { range, size_bytes, ranges } = found;
        let meta = blob_meta(&response.headers, size_bytes);
        self.check_unchanged(key, request, &meta)?;
        let body = response.body.named(&format!("{}{key}", self.wire.address.root));
        Ok(GetResponse { meta, range, body, ranges })
    }

    /// A range that is empty in itself, or lies behind the end: metadata, and no bytes.
    async fn empty_answer(&self, key: &str, request: &GetRequest) -> Result<GetResponse> {
        let meta = self.head("GET", key, request).await?;
        self.check_unchanged(key, request, &meta)?;
        let range = request.range.resolve(meta.size_bytes.unwrap_or(0));
        if !range.is_empty() {
            let why = "the service refused a range that lies inside the blob";
            let error = Error::new(Kind::Corrupt, why).with_retry(Retry::Briefly);
            return Err(self.wire.named(error, "GET", key));
        }
        Ok(GetResponse { meta, range, body: Body::Memory(Bytes::new()), ranges: Ranges::Served })
    }

    /// The service is told one condition of several.
    fn check_unchanged(&self, key: &str, asked: &GetRequest, meta: &ObjectMeta) -> Result<()> {
        asked.refuse_unchanged(meta).map_err(|error| self.wire.named(error, "GET", key))
    }

    async fn head(
        &self,
        operation: &'static str,
        key: &str,
        asked: &GetRequest,
    ) -> Result<ObjectMeta> {
        let headers = asked.condition_header().into_iter().collect();
        let ask = Ask { headers, ..Ask::default() };
        let response = self.wire.send(operation, key, Method::HEAD, ask).await?;
        if !is_object(response.status) {
            return Err(self.wire.refused(response, operation, key).await);
        }
        self.told(operation, key, &response)
    }

    /// What the head of an answer says.
    fn told(
        &self,
        operation: &'static str,
        key: &str,
        response: &HttpResponse,
    ) -> Result<ObjectMeta> {
        if !wire::is_of_blob(&response.headers) {
            return Err(self.foreign(operation, key));
        }
        if is_directory(&response.headers) {
            return Err(self.directory(operation, key));
        }
        let size = crate::http::content_length(&response.headers)
            .and_then(|size| versions::check_null(key, &response.headers).map(|()| size))
            .map_err(|error| self.wire.named(error, operation, key))?;
        Ok(blob_meta(&response.headers, size))
    }

    fn directory(&self, operation: &'static str, key: &str) -> Error {
        let error = Error::new(Kind::NotFound, "no such object; it is a directory")
            .with_hint("Name a file in it, or use a pattern such as `dir/*.parquet`");
        self.wire.named(error, operation, key)
    }
}

#[async_trait]
impl Store for AzureStore {
    fn root(&self) -> &str {
        &self.wire.address.root
    }

    fn origin(&self) -> Option<String> {
        Some(format!("{}/{}/", self.wire.config.endpoint, self.wire.address.container))
    }

    fn profile(&self) -> Profile {
        Profile {
            first_byte_ms: 20.0,
            connection_bytes_per_s: 60e6,
            part_size_min_bytes: 1,
            part_size_max_bytes: BLOCK_SIZE_MAX,
            part_count_max: BLOCK_COUNT_MAX,
            parts_uniform: false,
            put_size_max_bytes: PUT_SIZE_MAX,
            delete_batch_max: batch::BATCH_MAX,
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            write: true,
            list: true,
            suffix_range: false,
            conditional_put: true,
            conditional_delete: true,
            list_etag: true,
            copy: true,
        }
    }

    fn connections(&self) -> Option<Connections> {
        Some(self.wire.connections())
    }

    fn warm(&self, count: usize) -> Option<WarmUp> {
        self.wire.warm(count)
    }

    async fn get(&self, key: &str, request: GetRequest) -> Result<GetResponse> {
        self.check_key("GET", key)?;
        match request.range {
            GetRange::Suffix(_) => {
                let error = Error::new(Kind::Unsupported, "Azure has no ranges from the end");
                return Err(self.wire.named(error, "GET", key));
            }
            GetRange::Bounded(range) if range.is_empty() => {
                return self.empty_answer(key, &request).await;
            }
            _ => {}
        }
        let response = self.ask(key, &request).await?;
        if response.status == 416 {
            let headers = response.headers.clone();
            let failure = Failure::read(response).await;
            return match unsatisfiable_extent(request.range, &headers, &failure) {
                Some(_) => self.empty_answer(key, &request).await,
                None => Err(self.wire.failed(failure, "GET", key)),
            };
        }
        // The emulator answers a range behind the end with 206, no bytes and an impossible range.
        if response.status == 206 && is_without_bytes(&response) {
            return self.empty_answer(key, &request).await;
        }
        self.answered(key, &request, response).await
    }

    async fn stat(&self, key: &str) -> Result<ObjectMeta> {
        self.check_key("HEAD", key)?;
        stat(self, key).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        if request.max_keys == Some(0) {
            return Ok(ListPage::default());
        }
        self.list_in_order(&request).await
    }

    async fn put(&self, key: &str, payload: Payload, options: &PutOptions) -> Result<PutResult> {
        self.put_blob(key, options, BlockBody::Held(payload)).await
    }

    async fn create_upload(&self, key: &str, options: &PutOptions) -> Result<UploadId> {
        self.check_key("create upload", key)?;
        Ok(Upload::begin(&self.place(key), options).id())
    }

    async fn upload_part(
        &self,
        key: &str,
        upload: &UploadId,
        number: u32,
        payload: Payload,
    ) -> Result<Part> {
        self.check_key("upload part", key)?;
        self.send_part(key, upload, number, BlockBody::Held(payload)).await
    }

    async fn complete_upload(
        &self,
        key: &str,
        upload: &UploadId,
        parts: &[Part],
        options: &PutOptions,
    ) -> Result<PutResult> {
        self.check_key("complete upload", key)?;
        self.complete(key, upload, parts, options).await
    }

    async fn abort_upload(&self, key: &str, upload: &UploadId) -> Result<()> {
        let named = |error: Error| self.wire.named(error, "abort upload", key);
        // Nothing can discard the blocks of one upload; whatever request were sent here could only
        // publish something or destroy somebody else's work. They expire in a week.
        self.upload(key, upload).map(|_| ()).map_err(named)
    }

    async fn delete(&self, key: &str, if_match: Option<&ETag>) -> Result<()> {
        self.check_key("DELETE", key)?;
        self.delete_one(key, if_match).await
    }

    async fn delete_batch(&self, keys: &[String]) -> Result<Vec<Result<()>>> {
        self.delete_many(keys).await
    }

    async fn copy(&self, from: &str, to: &str, options: &PutOptions) -> Result<PutResult> {
        self.check_key("copy", from)?;
        self.check_key("copy", to)?;
        self.copy_blob(&CopySource::whole(from), to, options).await
    }
}

fn is_without_bytes(response: &HttpResponse) -> bool {
    matches!(crate::http::content_length(&response.headers), Ok(Some(0)))
}

/// The service honours every range it is asked for; an answer with all bytes instead comes from a
/// proxy, and cannot be told from a changed blob.
fn whole_range(found: Extent, asked: GetRange) -> Result<Extent> {
    let Extent { range, size_bytes, ranges } = found;
    let is_all = size_bytes.is_some_and(|size| asked.resolve(size) == range);
    if is_all || !ranges.are_ignored() && range.end != UNKNOWN_END {
        return Ok(Extent { ranges: Ranges::Served, ..found });
    }
    let why = "the answer has all bytes, or tells no size, though a range was asked for";
    Err(Error::new(Kind::Corrupt, why)
        .with_retry(Retry::Briefly)
        .with_hint("Does a proxy or cache between here and the store alter ranges?"))
}

/// The condition of a delete is that of a write.
fn delete_condition(if_match: Option<&ETag>) -> WriteCondition {
    if_match.cloned().map_or(WriteCondition::None, WriteCondition::IfMatch)
}

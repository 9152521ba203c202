//! S3 and all services that speak it: Amazon, R2, Google Cloud Storage (XML API), MinIO, Ceph, ...
//!
//! One bucket is one store. The file decides how each verb of [`Store`] is asked in S3's words;
//! signing is `auth`'s, sending and finding the region `request`'s, reading answers `replies`'.

mod account;
mod auth;
mod checksum;
mod config;
mod copy;
mod delete;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod google;
mod profile;
mod replies;
mod request;
mod signature;
mod sources;
mod stat;
mod streaming;
mod suffix;
mod sums;
mod upload;
mod versions;

pub use account::S3Account;

use crate::answer::{self, Extent};
use crate::notes;
use crate::options::StoreOptions;
use crate::stat::stat;
use crate::suffixes::Suffixes;
use crate::{
    Body, Capabilities, Connections, CopySource, ETag, GetRange, GetRequest, GetResponse,
    HttpClient, HttpResponse, ListPage, ListRequest, ObjectMeta, Part, Payload, Profile,
    PutOptions, PutResult, Ranges, Store, UploadId, WarmUp, WriteCondition, encoded_word, unpack,
};
use ::http::Method;
use ::http::header::{CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH, RANGE};
use async_trait::async_trait;
use auth::Auth;
use bytes::Bytes;
use checksum::Seal;
use config::{ChecksumChoice, S3Config, Service};
use penstock_base::{ByteRange, Error, Kind, Result};
use request::{Call, Outcome, Sender};
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

/// Longest listing or batch answer: 1000 keys of 1024 bytes, each byte escaped, and room.
const ANSWER_BYTES_MAX: usize = 16 << 20;
const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
/// Most names of one listing page and of one batch delete.
const PAGE_MAX: u32 = 1000;
/// User metadata that holds [`notes::ACL`].
const ACL_METADATA: &str = "penstock-acl";
/// User metadata that holds [`notes::WRITE`].
const WRITE_METADATA: &str = "penstock-write";

/// A bucket.
#[derive(Debug)]
pub struct S3Store {
    sender: Sender,
    seal: Seal,
    suffixes: Suffixes,
    /// The service answers HEAD otherwise than GET.
    head_refused: AtomicBool,
    /// The service takes no removals of many objects at once.
    batch_refused: AtomicBool,
}

impl S3Store {
    /// Opens `scheme://bucket/`; no request is sent.
    ///
    /// # Errors
    /// `Invalid` for options that cannot be.
    pub fn open(
        scheme: &str,
        bucket: &str,
        options: &StoreOptions,
        http: &HttpClient,
    ) -> Result<Self> {
        S3Store::open_by_url(scheme, bucket, (&StoreOptions::default(), options), http)
    }

    /// The same, where the first options stand in the URL's own query.
    pub(crate) fn open_by_url(
        scheme: &str,
        bucket: &str,
        given: (&StoreOptions, &StoreOptions),
        http: &HttpClient,
    ) -> Result<Self> {
        let environment = |name: &str| std::env::var(name).ok();
        let config = config::read(scheme, bucket, given, &environment)?;
        let auth = Auth::new(&config.access, request::first_region(&config), http);
        Ok(S3Store::new(config, http.clone(), auth))
    }

    /// `auth` is of this configuration, and may be of other buckets too.
    fn new(config: S3Config, http: HttpClient, auth: Auth) -> Self {
        // Google's XML API has checksum headers of its own, and is reached over https.
        let seal = Seal::new(match config.checksum {
            ChecksumChoice::Auto if config.service == Service::Gcs => ChecksumChoice::None,
            choice => choice,
        });
        S3Store {
            sender: Sender::new(config, http, auth),
            seal,
            suffixes: Suffixes::default(),
            head_refused: AtomicBool::new(false),
            batch_refused: AtomicBool::new(false),
        }
    }

    fn is_gcs(&self) -> bool {
        self.sender.config.service == Service::Gcs
    }

    /// Whether Google is spoken to in its own words, which tie a request to a generation: Amazon's
    /// signature takes Amazon's words only.
    fn knows_generations(&self) -> bool {
        self.is_gcs() && self.sender.header_prefix() == "x-goog-"
    }

    fn named(&self, call: &Call<'_>, error: Error) -> Error {
        self.sender.named(call, error)
    }

    /// A header of user metadata.
    fn with_metadata<'a>(&self, call: Call<'a>, name: &str, value: &str) -> Result<Call<'a>> {
        let name = format!("{}meta-{name}", self.sender.header_prefix());
        call.header(&name, &encoded_word::encode(value))
    }

    /// Headers of a write: media type, user metadata, encryption.
    fn with_write_headers<'a>(&self, mut call: Call<'a>, options: &PutOptions) -> Result<Call<'a>> {
        let prefix = self.sender.header_prefix();
        if let Some(media_type) = &options.content_type {
            call = call.header(CONTENT_TYPE.as_str(), media_type)?;
        }
        for (name, value) in &options.metadata {
            let standard = answer::STANDARD_HEADERS.iter().find(|(pair, _)| pair == name);
            call = match (standard, name.strip_prefix('@')) {
                (Some((_, header)), _) => call.header(header, value)?,
                (None, None) => self.with_metadata(call, name, value)?,
                (None, Some("tagging")) => call.header(&format!("{prefix}tagging"), value)?,
                (None, Some(note)) if note.starts_with("checksum-") && !self.is_gcs() => {
                    match note.strip_prefix("checksum-").is_some_and(|it| self.seal.passes(it)) {
                        true => call.header(&format!("x-amz-{note}"), value)?,
                        false => call,
                    }
                }
                (None, Some("storage-class")) => {
                    let class = self.own_class(&call, value)?;
                    call.header(&format!("{prefix}storage-class"), class)?
                }
                // S3's own lists know nothing of the gateway's owners.
                (None, Some("acl")) => self.with_metadata(call, ACL_METADATA, value)?,
                (None, Some("write")) => self.with_metadata(call, WRITE_METADATA, value)?,
                // The service keeps its own accounts of what else there is to note.
                (None, Some(_)) => call,
            };
        }
        if let Some(key) = &self.sender.config.kms_key_id {
            call = match self.is_gcs() {
                true => call.header(&format!("{prefix}encryption-kms-key-name"), key)?,
                false => call
                    .header("x-amz-server-side-encryption", "aws:kms")?
                    .header("x-amz-server-side-encryption-aws-kms-key-id", key)?,
            };
        }
        Ok(call)
    }

    /// The condition of a write.
    fn with_condition<'a>(&self, call: Call<'a>, condition: &WriteCondition) -> Result<Call<'a>> {
        match condition {
            WriteCondition::None => Ok(call),
            // Google's XML API knows generations, not tags, on writes; and those in its own dialect
            // only, which an HMAC key does not speak.
            WriteCondition::IfAbsent if self.knows_generations() => {
                call.header(google::IF_GENERATION, "0")
            }
            _ if self.is_gcs() => {
                let why = "Google Cloud Storage cannot tie a write to what is there";
                Err(self.named(&call, Error::new(Kind::Unsupported, why)))
            }
            WriteCondition::IfAbsent => call.header(IF_NONE_MATCH.as_str(), "*"),
            WriteCondition::IfMatch(etag) => call.header(IF_MATCH.as_str(), &etag.header_value()),
            WriteCondition::IfPresent => call.header(IF_MATCH.as_str(), "*"),
            WriteCondition::IfNoneMatch(etag) => {
                call.header(IF_NONE_MATCH.as_str(), &etag.header_value())
            }
        }
    }

    fn meta(&self, response: &HttpResponse, size_bytes: Option<u64>) -> ObjectMeta {
        let prefix = format!("{}meta-", self.sender.header_prefix());
        let meta = answer::object_meta(&response.headers, size_bytes, &prefix);
        let mut meta = self.told(meta, &response.headers);
        for (name, value) in &mut meta.metadata {
            if !name.starts_with('@') {
                *value = encoded_word::decode(value);
            }
            match name.as_str() {
                ACL_METADATA => *name = notes::ACL.to_string(),
                WRITE_METADATA => *name = notes::WRITE.to_string(),
                _ => {}
            }
        }
        meta
    }

    /// Every answer of S3 for an object carries its tag; what has none comes from something else.
    fn require_tag(&self, call: &Call<'_>, etag: Option<ETag>) -> Result<ETag> {
        etag.filter(|etag| !etag.0.is_empty())
            .ok_or_else(|| self.named(call, request::strange("an ETag")))
    }

    /// The body of the answer to a request that must succeed.
    async fn answer(&self, call: &Call<'_>) -> Result<Bytes> {
        let mut response = self.sender.done(call).await?;
        let read = response.body.read_to_bytes(ANSWER_BYTES_MAX).await;
        read.map_err(|error| self.named(call, error))
    }

    /// Tag and time of what a request wrote, from the head of its answer.
    async fn written(
        &self,
        call: &Call<'_>,
        response: HttpResponse,
    ) -> Result<(ETag, Option<SystemTime>)> {
        let headers = response.headers.clone();
        self.sender.acknowledged(call, response).await?;
        let etag = answer::text_header(&headers, ETAG.as_str());
        let etag = self.require_tag(call, etag.map(|text| ETag::parse(&text)))?;
        Ok((etag, answer::written_at(&headers)))
    }

    /// What an answer with an object's bytes says.
    fn answered(
        &self,
        call: &Call<'_>,
        request: &GetRequest,
        response: HttpResponse,
    ) -> Result<GetResponse> {
        let Extent { range, size_bytes, ranges } = unpack::refuse_unless_label(&response.headers)
            .and_then(|()| answer::extent(request.range, response.status, &response.headers))
            .map_err(|error| self.named(call, error))?;
        let meta = self.meta(&response, size_bytes);
        self.require_tag(call, meta.etag.clone())?;
        // Some services pass over conditions.
        request.refuse_unchanged(&meta).map_err(|error| self.named(call, error))?;
        let object = format!("{}{}", self.root(), call.key.unwrap_or_default());
        let body = response.body.named(&object);
        Ok(GetResponse { meta, range, body, ranges })
    }

    /// Answers a range without bytes, which HTTP cannot ask for.
    async fn get_nothing(&self, key: &str, request: &GetRequest) -> Result<GetResponse> {
        let meta = self.stat(key).await?;
        let call = Call::new(Method::GET, "GET", Some(key));
        if request.if_match.as_ref().is_some_and(|wanted| meta.etag.as_ref() != Some(wanted)) {
            return Err(self.named(&call, Error::new(Kind::Conflict, "the object has changed")));
        }
        request.refuse_unchanged(&meta).map_err(|error| self.named(&call, error))?;
        let size = meta.size_bytes.unwrap_or_default();
        let at = match request.range {
            GetRange::Bounded(range) => range.start.min(size),
            _ => size,
        };
        let range = ByteRange { start: at, end: at };
        Ok(GetResponse { meta, range, body: Body::Memory(Bytes::new()), ranges: Ranges::Served })
    }
}

#[async_trait]
impl Store for S3Store {
    fn root(&self) -> &str {
        &self.sender.config.root
    }

    fn origin(&self) -> Option<String> {
        let S3Config { https, host, base_path, bucket, .. } = &self.sender.config;
        let scheme = if *https { "https" } else { "http" };
        // AWS names a bucket once in all regions.
        let host = host.as_deref().unwrap_or("s3.amazonaws.com");
        Some(format!("{scheme}://{host}{base_path}/{bucket}/"))
    }

    fn profile(&self) -> Profile {
        Profile {
            first_byte_ms: 30.0,
            connection_bytes_per_s: 90e6,
            part_size_min_bytes: 5 * MIB,
            part_size_max_bytes: 5 * GIB,
            part_count_max: 10_000,
            parts_uniform: self.sender.config.service == Service::R2,
            put_size_max_bytes: 5 * GIB,
            delete_batch_max: if self.is_gcs() { 1 } else { PAGE_MAX as usize },
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            write: true,
            list: true,
            suffix_range: !self.suffixes.are_refused(),
            conditional_put: !self.is_gcs(),
            conditional_delete: !self.is_gcs() || self.knows_generations(),
            list_etag: true,
            copy: true,
        }
    }

    fn connections(&self) -> Option<Connections> {
        Some(self.sender.connections())
    }

    fn warm(&self, count: usize) -> Option<WarmUp> {
        self.sender.warm(count)
    }

    async fn get(&self, key: &str, request: GetRequest) -> Result<GetResponse> {
        let empty = match request.range {
            GetRange::Bounded(range) => range.is_empty(),
            GetRange::Suffix(count) => count == 0,
            GetRange::All | GetRange::From(_) => false,
        };
        if empty {
            return self.get_nothing(key, &request).await;
        }
        if let GetRange::Suffix(count) = request.range
            && self.suffixes.are_refused()
        {
            return self.get_end(key, count, &request).await;
        }
        let mut call = Call::new(Method::GET, "GET", Some(key));
        if request.range == GetRange::All {
            call = self.asking_checksums(call)?;
        }
        if let Some(range) = answer::range_header(request.range) {
            call = call.header(RANGE.as_str(), &range)?;
        }
        if let Some((name, value)) = request.condition_header() {
            call = call.header(name, &value)?;
        }
        match self.send_asking(&call).await? {
            Outcome::Done(response) => {
                if matches!(request.range, GetRange::Suffix(_)) {
                    self.suffixes.served();
                }
                self.answered(&call, &request, response)
            }
            Outcome::Refused { failure, headers } if failure.status == 416 => {
                self.behind_the_end(&call, &request, failure, &headers).await
            }
            Outcome::Refused { failure, .. } => {
                if let Some(count) = S3Store::refuses_suffix(&request, &failure)
                    && let Ok(answer) = self.get_end_instead(key, count, &request).await
                {
                    return Ok(answer);
                }
                if let GetRange::Suffix(count) = request.range
                    && self.suffixes.failed(&failure)
                    && let Ok(answer) = self.get_end(key, count, &request).await
                {
                    self.suffixes.came_by_offsets();
                    return Ok(answer);
                }
                Err(self.sender.refusal(&call, failure))
            }
        }
    }

    async fn stat(&self, key: &str) -> Result<ObjectMeta> {
        stat(self, key).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        if request.max_keys == Some(0) {
            return Ok(ListPage::default());
        }
        let mut call = Call::new(Method::GET, "list", None).query("list-type", "2");
        let max_keys = request.max_keys.unwrap_or(PAGE_MAX).min(PAGE_MAX);
        call = call.query("encoding-type", "url").query("max-keys", max_keys.to_string());
        let optional = [
            ("continuation-token", request.token.as_ref()),
            ("delimiter", request.delimiter.as_ref()),
            ("prefix", Some(&request.prefix)),
            ("start-after", request.start_after.as_ref().filter(|_| request.token.is_none())),
        ];
        for (name, value) in optional {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                call = call.query(name, value);
            }
        }
        let named = |error: Error| {
            let object = format!("{}{}", self.root(), request.prefix);
            error.with_operation("list").with_object(object)
        };
        let mut response = self.sender.done(&call).await?;
        let bytes = response.body.read_to_bytes(ANSWER_BYTES_MAX).await.map_err(named)?;
        let mut page = replies::parse_listing(&bytes).map_err(named)?;
        for entry in &mut page.objects {
            entry.meta.storage_class = self.told_class(entry.meta.storage_class.take());
        }
        Ok(page)
    }

    async fn put(&self, key: &str, payload: Payload, options: &PutOptions) -> Result<PutResult> {
        let call = Call::new(Method::PUT, "PUT", Some(key)).payload(payload);
        let call = self.with_write_headers(call, options)?;
        let call = self.with_condition(call, &options.condition)?;
        let call = self.seal.put(call)?;
        match self.send_sealed(&call).await? {
            Outcome::Done(response) => {
                let version = self.version(&response.headers);
                let (etag, modified) = self.written(&call, response).await?;
                Ok(PutResult { etag: Some(etag), modified, version, ..PutResult::default() })
            }
            Outcome::Refused { failure, .. } => Err(self.sender.refusal(&call, failure)),
        }
    }

    async fn create_upload(&self, key: &str, options: &PutOptions) -> Result<UploadId> {
        self.begin_upload(key, options).await
    }

    async fn upload_part(
        &self,
        key: &str,
        upload: &UploadId,
        number: u32,
        payload: Payload,
    ) -> Result<Part> {
        self.send_part(key, upload, number, payload, None).await
    }

    async fn complete_upload(
        &self,
        key: &str,
        upload: &UploadId,
        parts: &[Part],
        options: &PutOptions,
    ) -> Result<PutResult> {
        self.finish_upload(key, upload, parts, options).await
    }

    async fn abort_upload(&self, key: &str, upload: &UploadId) -> Result<()> {
        let call =
            Call::new(Method::DELETE, "abort upload", Some(key)).query("uploadId", &upload.0);
        match self.sender.send(&call).await? {
            Outcome::Done(response) => self.sender.acknowledged(&call, response).await,
            Outcome::Refused { failure, .. } if failure.status == 404 && !failure.is_html => Ok(()),
            Outcome::Refused { failure, .. } => Err(self.sender.refusal(&call, failure)),
        }
    }

    async fn delete(&self, key: &str, if_match: Option<&ETag>) -> Result<()> {
        self.remove_version(key, None, if_match).await.map(drop)
    }

    async fn delete_batch(&self, keys: &[String]) -> Result<Vec<Result<()>>> {
        let results = self.remove_many(keys, true).await?;
        Ok(results.into_iter().map(|result| result.map(drop)).collect())
    }

    async fn copy(&self, from: &str, to: &str, options: &PutOptions) -> Result<PutResult> {
        self.copy_object(&CopySource::whole(from), to, options).await
    }
}

//! What a gateway asks of a container: blocks and blobs whose bodies are still coming in, uploads
//! without any state but their blocks, copies by URL, index tags.

use super::block::{Mark, Staged, Upload};
use super::delete::is_gone;
use super::hierarchy::Walk;
use super::list::Token;
use super::ordered::UNCOMMITTED;
use super::upload::{BLOCK_LIST_BYTES_MAX, BlockBody, Committed};
use super::wire::Ask;
use super::{AzureStore, tier, versions};
use crate::answer::Failure;
use crate::streaming::{
    CopiedPart, CopySource, Inflow, PartEntry, Removed, StreamingStore, UploadEntry, UploadsPage,
    UploadsRequest, Versioning, VersionsPage, VersionsRequest,
};
use crate::sums::{Sum, overheard, tag_with_sum};
use crate::{ETag, ListPage, ListRequest, Part, Payload, PutOptions, PutResult, UploadId, tags};
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use http::{HeaderMap, Method};
use penstock_base::{Error, Kind, Result};

/// Ten tags, each character escaped.
const TAGS_BYTES_MAX: usize = 64 << 10;
const TAGS_ROOT: &str = "Tags";
/// What the service takes in tags beside letters and digits.
const TAG_MARKS: &str = " +-./:=_";
/// What accounts with a hierarchical namespace answer to `comp=tags`: they have none.
const NO_SUCH_QUERY: &str = "InvalidQueryParameterValue";
/// Requests at once that look for the blocks of listed blobs.
const BLOCK_LISTS_AT_ONCE: usize = 16;

/// The CRC-64/NVME that the service made of a block, least byte first; S3 writes it the other way.
fn told_crc64(headers: &HeaderMap) -> Option<Sum> {
    let told = STANDARD.decode(headers.get("x-ms-content-crc64")?).ok()?;
    let value = u64::from_le_bytes(told.try_into().ok()?);
    Some(("crc64nvme".to_string(), STANDARD.encode(value.to_be_bytes())))
}

#[async_trait]
impl StreamingStore for AzureStore {
    async fn put_flow(
        &self,
        key: &str,
        body: Box<dyn Inflow>,
        options: &PutOptions,
    ) -> Result<PutResult> {
        self.put_blob(key, options, BlockBody::Flowing(body)).await
    }

    async fn part_flow(
        &self,
        key: &str,
        upload: &UploadId,
        number: u32,
        body: Box<dyn Inflow>,
    ) -> Result<Part> {
        self.check_key("upload part", key)?;
        let (body, heard) = overheard(body);
        let part = self.send_part(key, upload, number, BlockBody::Flowing(body)).await?;
        Ok(Part { etag: tag_with_sum(&part.etag, heard.sum().as_ref()), ..part })
    }

    fn empty_part_tag(&self, key: &str, upload: &UploadId, number: u32) -> Option<String> {
        let upload = self.upload(key, upload).ok()?;
        Some(upload.part_tag(number, 0, Mark::default()))
    }

    async fn list_parts(&self, key: &str, upload: &UploadId) -> Result<Vec<PartEntry>> {
        const OPERATION: &str = "list parts";
        self.check_key(OPERATION, key)?;
        let named = |error: Error| self.wire.named(error, OPERATION, key);
        let upload = self.upload(key, upload).map_err(named)?;
        let blocks = self.staged(OPERATION, key, &upload).await?;
        if blocks.is_given_up {
            let gone = Error::new(Kind::NotFound, "the upload was given up");
            return Err(named(gone.with_service_code("NoSuchUpload")));
        }
        let entry = |&Staged { number, mark, size_bytes }: &Staged| PartEntry {
            number,
            etag: upload.part_tag(number, size_bytes, mark),
            size_bytes,
            modified: None,
            sum: None,
        };
        Ok(blocks.parts.iter().map(entry).collect())
    }

    async fn completed(&self, key: &str, upload: &UploadId) -> Result<Option<PutResult>> {
        let named = |error: Error| self.wire.named(error, "complete upload", key);
        let upload = self.upload(key, upload).map_err(named)?;
        match self.committed_before(key, &upload).await? {
            Committed::Ours(result) => Ok(Some(result)),
            Committed::Others | Committed::Nothing => Ok(None),
        }
    }

    async fn begun_with(&self, key: &str, upload: &UploadId) -> Result<Vec<(String, String)>> {
        let upload = self.upload(key, upload);
        let upload = upload.map_err(|error| self.wire.named(error, "read an upload's id", key))?;
        Ok(upload.metadata())
    }

    /// Uploads to keys that hold no blob yet, by their blocks: a listing, and a request for each
    /// blob without bytes until enough are found. An upload over a blob that exists does not show,
    /// nor does one without parts.
    async fn list_uploads(&self, request: &UploadsRequest) -> Result<UploadsPage> {
        let has_markers = !request.upload_marker.is_empty();
        let (mut keys, mut next, start_after) = self.uncommitted(request).await?;
        let is_behind = |key: &str| {
            let is_new = request.token.is_none() || start_after.as_deref() < Some(key);
            let marker = request.key_marker.as_str();
            is_new && (key > marker || key == marker && has_markers)
        };
        keys.retain(|key| is_behind(key));
        let keys = keys.into_iter();
        let mut found =
            stream::iter(keys.map(|key| self.uploads_of(key))).buffered(BLOCK_LISTS_AT_ONCE);
        let mut uploads: Vec<UploadEntry> = Vec::new();
        while let Some(mut of_key) = found.try_next().await? {
            of_key.sort_by(|a, b| a.id.0.cmp(&b.id.0));
            if of_key.first().is_some_and(|upload| upload.key == request.key_marker) {
                of_key.retain(|upload| upload.id.0 > request.upload_marker);
            }
            uploads.extend(of_key);
            if let Some(last) = uploads.last().filter(|_| uploads.len() > request.max) {
                let start_after = Some(last.key.clone());
                next = Some(Token { start_after, ..Token::default() }.text());
                break;
            }
        }
        drop(found);
        Ok(UploadsPage { uploads, next })
    }

    /// Blocks of one upload cannot be discarded; they are invisible and expire in a week. A block
    /// of one byte marks the upload, so that nobody completes it.
    async fn discard_upload(&self, key: &str, upload: &UploadId) -> Result<()> {
        const OPERATION: &str = "abort upload";
        self.check_key(OPERATION, key)?;
        let named = |error: Error| self.wire.named(error, OPERATION, key);
        let id = self.upload(key, upload).map_err(named)?.given_up_id();
        let query = [("comp", "block"), ("blockid", id.as_str())];
        let payload = Payload::from(Bytes::from_static(b"-"));
        let ask = Ask { query: &query, payload, ..Ask::default() };
        let response = self.wire.send(OPERATION, key, Method::PUT, ask).await?;
        match response.status {
            201 => self.acknowledged(response, OPERATION, key).await,
            _ => Err(self.wire.refused(response, OPERATION, key).await),
        }
    }

    async fn copy_version(
        &self,
        source: &CopySource,
        to: &str,
        options: &PutOptions,
    ) -> Result<Option<PutResult>> {
        self.check_key("copy", &source.key)?;
        self.check_key("copy", to)?;
        self.copy_blob(source, to, options).await.map(Some)
    }

    /// Put Block From URL, which the emulator does not have.
    async fn copy_part(
        &self,
        source: &CopySource,
        key: &str,
        upload: &UploadId,
        number: u32,
    ) -> Result<Option<CopiedPart>> {
        const OPERATION: &str = "copy part";
        self.check_key(OPERATION, &source.key)?;
        self.check_key(OPERATION, key)?;
        let named = |error: Error| self.wire.named(error, OPERATION, key);
        let upload = self.upload(key, upload).map_err(named)?;
        let Some(range) = source.range.filter(|range| !range.is_empty()) else { return Ok(None) };
        let mut headers = self.source_headers(source).await.map_err(named)?;
        headers.push(("x-ms-source-range", format!("bytes={}-{}", range.start, range.end - 1)));
        let mark = upload.new_mark();
        let id = upload.block_id(number, mark);
        let query = [("comp", "block"), ("blockid", id.as_str())];
        let ask = Ask { query: &query, headers, ..Ask::default() };
        let response = self.wire.send(OPERATION, key, Method::PUT, ask).await?;
        if response.status == 201 {
            let sum = told_crc64(&response.headers);
            self.acknowledged(response, OPERATION, key).await?;
            let size_bytes = range.len();
            let etag = upload.part_tag(number, size_bytes, mark);
            return Ok(Some(CopiedPart { part: Part { number, etag, size_bytes }, sum }));
        }
        let failure = Failure::read(response).await;
        // A service that cannot fetch by itself, or may not read its own URL, gets the bytes.
        let must_stream = failure.verdict().0 == Kind::Unsupported
            || failure.code == "CannotVerifyCopySource" && failure.status != 404
            || failure.code == "InvalidHeaderValue";
        if must_stream { Ok(None) } else { Err(self.wire.failed(failure, OPERATION, key)) }
    }

    fn has_versions(&self) -> bool {
        true
    }

    fn has_markers(&self) -> bool {
        false
    }

    async fn versioning(&self) -> Result<Versioning> {
        self.versions_kept().await
    }

    async fn set_versioning(&self, _is_enabled: bool) -> Result<()> {
        Err(self.wire.named(versions::set_on_account(), "set versioning", ""))
    }

    async fn list_versions(&self, request: &VersionsRequest) -> Result<VersionsPage> {
        self.versions(request).await
    }

    async fn remove(
        &self,
        key: &str,
        version: Option<&str>,
        if_match: Option<&ETag>,
    ) -> Result<Removed> {
        self.remove_version(key, version, if_match).await
    }

    fn takes_class(&self, class: &str) -> bool {
        tier::of_class(class).is_some()
    }

    fn copies_tags(&self) -> bool {
        false
    }

    fn has_tags(&self) -> bool {
        true
    }

    fn tag_marks(&self) -> Option<&'static str> {
        Some(TAG_MARKS)
    }

    async fn tags(&self, key: &str) -> Result<Vec<(String, String)>> {
        const OPERATION: &str = "get tags";
        self.check_key(OPERATION, key)?;
        self.require_null(OPERATION, key).await?;
        let ask = Ask { query: &[("comp", "tags")], ..Ask::default() };
        let mut response = self.wire.send(OPERATION, key, Method::GET, ask).await?;
        if response.status != 200 {
            return Err(about_tags(self.wire.refused(response, OPERATION, key).await));
        }
        let body = response.body.read_to_bytes(TAGS_BYTES_MAX).await;
        let tags = body.and_then(|body| tags::from_xml(TAGS_ROOT, &body));
        tags.map_err(|error| self.wire.named(error, OPERATION, key))
    }

    async fn set_tags(&self, key: &str, tags: &[(String, String)]) -> Result<()> {
        const OPERATION: &str = "set tags";
        self.check_key(OPERATION, key)?;
        self.require_null(OPERATION, key).await?;
        let headers = vec![("content-type", "application/xml; charset=UTF-8".to_string())];
        let payload = Payload::from(Bytes::from(tags::to_xml(TAGS_ROOT, tags)));
        let ask = Ask { query: &[("comp", "tags")], headers, payload, ..Ask::default() };
        let response = self.wire.send(OPERATION, key, Method::PUT, ask).await?;
        match response.status {
            204 => self.acknowledged(response, OPERATION, key).await,
            _ => Err(about_tags(self.wire.refused(response, OPERATION, key).await)),
        }
    }
}

/// A refusal of tags, in our words where the account has none at all.
fn about_tags(error: Error) -> Error {
    match error.service_code() {
        Some(NO_SUCH_QUERY) => {
            let why = "the account keeps no tags of blobs: it has a hierarchical namespace";
            let object = error.object().unwrap_or_default().to_string();
            Error::new(Kind::Unsupported, why).with_object(object)
        }
        _ => error,
    }
}

impl AzureStore {
    /// Blobs without bytes, such as those that have blocks only: a page of them with the token of
    /// the next, and the name that they are behind where a token told it.
    async fn uncommitted(
        &self,
        request: &UploadsRequest,
    ) -> Result<(Vec<String>, Option<String>, Option<String>)> {
        let prefix = request.prefix.as_str();
        let named = |error: Error| self.wire.named(error, UNCOMMITTED.operation, prefix);
        let asked = ListRequest { prefix: prefix.to_string(), ..ListRequest::default() };
        let keys = |page: ListPage| {
            let empty = page.objects.into_iter().filter(|it| it.meta.size_bytes == Some(0));
            empty.map(|entry| entry.key).collect()
        };
        let token = request.token.as_deref();
        if let Some(walk) =
            token.map(|token| Walk::parse(token, prefix)).transpose().map_err(named)?.flatten()
        {
            let mut page = self.walk_on(&asked, walk, UNCOMMITTED).await?;
            let next = page.next.take();
            return Ok((keys(page), next, None));
        }
        let key_marker = Some(request.key_marker.clone()).filter(|key| !key.is_empty());
        let from = match token {
            Some(token) => Token::parse(token).map_err(named)?,
            None => Token { start_after: key_marker, ..Token::default() },
        };
        if !self.namespace.is_hierarchical() {
            let listing = self.listing(&asked, &from, UNCOMMITTED).await?;
            if from.start_after.is_some() && self.namespace.is_unknown() {
                self.ask_namespace(prefix, UNCOMMITTED).await?;
            }
            if !self.namespace.is_hierarchical() {
                // The client's marker is compared anyway, and may be in the middle of a key's
                // uploads.
                let start_after = from.start_after.clone().filter(|_| token.is_some());
                let next = Some(listing.marker.clone()).filter(|marker| !marker.is_empty());
                let next =
                    next.map(|marker| Token { marker, start_after: start_after.clone() }.text());
                return Ok((keys(listing.flat(None)), next, from.start_after));
            }
        }
        let mut page = self.walk_from(&asked, &from, UNCOMMITTED).await?;
        let next = page.next.take();
        let mut keys: Vec<String> = keys(page);
        let marker = Some(&request.key_marker).filter(|key| !key.is_empty() && token.is_none());
        if let Some(marker) = marker.filter(|key| key.starts_with(prefix)) {
            // The list is behind it, but more of its uploads may be.
            keys.insert(0, marker.clone());
        }
        Ok((keys, next, from.start_after))
    }

    async fn uploads_of(&self, key: String) -> Result<Vec<UploadEntry>> {
        const OPERATION: &str = "list uploads";
        let query = [("comp", "blocklist"), ("blocklisttype", "uncommitted")];
        let ask = Ask { query: &query, ..Ask::default() };
        let mut response = self.wire.send(OPERATION, &key, Method::GET, ask).await?;
        if response.status != 200 {
            let failure = Failure::read(response).await;
            // Completed or expired this moment.
            return match is_gone(&failure) {
                true => Ok(Vec::new()),
                false => Err(self.wire.failed(failure, OPERATION, &key)),
            };
        }
        let body = response.body.read_to_bytes(BLOCK_LIST_BYTES_MAX).await;
        let found = body.and_then(|body| Upload::found_in(&self.place(&key), &body));
        let found = found.map_err(|error| self.wire.named(error, OPERATION, &key))?;
        let entry = |upload: Upload| UploadEntry {
            key: key.clone(),
            id: upload.id(),
            begun: None,
            metadata: upload.metadata(),
        };
        Ok(found.into_iter().map(entry).collect())
    }
}

//! Copies inside a bucket, without the bytes passing through here.

use crate::answer::{self, Failure};
use crate::notes;
use crate::s3::config::Service;
use crate::s3::google;
use crate::s3::replies::{parse_copied_part, parse_written};
use crate::s3::request::{Call, Outcome, encode_path};
use crate::s3::{ANSWER_BYTES_MAX, GIB, S3Store};
use crate::streaming::split_version;
use crate::{
    CopiedPart, CopySource, ObjectMeta, Part, PutOptions, PutResult, Store, StreamingStore as _,
    UploadId, WriteCondition, tags,
};
use ::http::Method;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use penstock_base::{ByteRange, Error, Kind, Result};

/// Larger objects than this S3 copies in parts only.
const COPY_SIZE_MAX: u64 = 5 * GIB;
/// Size of the parts of a large copy; they cost no bandwidth here, so they are large.
const COPY_PART_BYTES: u64 = GIB;
/// Where answers tell which version of the source was copied.
const COPIED_VERSION: &str = "x-amz-copy-source-version-id";
/// Parts of one copy under way at once.
const COPY_CONCURRENCY: usize = 8;

impl S3Store {
    pub(super) async fn copy_object(
        &self,
        source: &CopySource,
        to: &str,
        options: &PutOptions,
    ) -> Result<PutResult> {
        let prefix = self.sender.header_prefix();
        // A checksum would be held against the body of this request, which is empty; the service
        // keeps those of what it copies.
        let mut options = options.clone();
        options.metadata.retain(|(name, _)| !answer::is_told_note(name));
        let options = &options;
        let mut call = Call::new(Method::PUT, "copy", Some(to));
        self.sender.require_key(&call, &source.key)?;
        self.sender.require_key(&call, to)?;
        call = self.with_source(call, source)?;
        if options.replaces() {
            call = call.header(&format!("{prefix}metadata-directive"), "REPLACE")?;
        }
        if options.metadata.iter().any(|pair| pair.0 == notes::TAGGING) && !self.is_gcs() {
            call = call.header(&format!("{prefix}tagging-directive"), "REPLACE")?;
        }
        let call = self.with_write_headers(call, options)?;
        let call = self.with_condition(call, &options.condition)?;
        self.judge_target(&call, to, &options.condition).await?;
        match self.sender.send(&call).await? {
            Outcome::Done(mut response) => {
                let bytes = response.body.read_to_bytes(ANSWER_BYTES_MAX).await;
                let bytes = bytes.map_err(|error| self.named(&call, error))?;
                let (etag, modified) = parse_written(&bytes, "CopyObjectResult")
                    .map_err(|error| self.named(&call, error))?;
                let version = self.version(&response.headers);
                let copied_version = answer::text_header(&response.headers, COPIED_VERSION);
                Ok(PutResult { etag: Some(etag), modified, version, copied_version })
            }
            // Google copies an object of any size in one request, and has no copies of parts.
            Outcome::Refused { failure, .. } if !self.is_gcs() && may_be_too_large(&failure) => {
                let meta = match self.stat(&source.key).await {
                    Ok(meta) if meta.size_bytes.is_some_and(|size| size > COPY_SIZE_MAX) => meta,
                    // How large it is can be told later: the copy may be tried again.
                    Err(error) if error.kind() == Kind::Throttled => return Err(error),
                    Err(error) if error.kind() == Kind::Unavailable => return Err(error),
                    // Something else was wrong, and the service said what.
                    _ => return Err(self.sender.refusal(&call, failure)),
                };
                self.copy_in_parts(source, meta, to, options).await
            }
            Outcome::Refused { failure, .. } => Err(self.sender.refusal(&call, failure)),
        }
    }

    /// Judges the condition on the target before the copy. Amazon does so itself, at the moment of
    /// the write; many others ignore the header, and there this check is all there is: it leaves
    /// a moment in which another writer may come between.
    async fn judge_target(
        &self,
        call: &Call<'_>,
        to: &str,
        condition: &WriteCondition,
    ) -> Result<()> {
        if *condition == WriteCondition::None || self.sender.config.service == Service::Aws {
            return Ok(());
        }
        let found = match self.stat(to).await {
            Ok(meta) => Some(meta),
            Err(error) if error.kind() == Kind::NotFound => None,
            Err(error) => return Err(error),
        };
        if condition.holds(found.as_ref().and_then(|meta| meta.etag.as_ref())) {
            return Ok(());
        }
        Err(self
            .named(call, Error::new(Kind::Conflict, "the target exists already or has changed")))
    }

    /// Whether a request can name the source. Google passes over `versionId` in it and would copy
    /// the live generation: it has a header of its own, and takes none of its own headers beside
    /// those of Amazon's signature, which an HMAC key makes.
    pub(super) fn names_source(&self, source: &CopySource) -> bool {
        let is_plain = split_version(&source.key).1.is_none();
        is_plain || !self.is_gcs() || self.knows_generations()
    }

    /// Names the source of a copy, and the version that it must still be.
    fn with_source<'a>(&self, mut call: Call<'a>, source: &CopySource) -> Result<Call<'a>> {
        let name = format!("{}copy-source", self.sender.header_prefix());
        let (key, version) = split_version(&source.key);
        if !self.names_source(source) {
            let why = "Google Cloud Storage copies the live object only for an HMAC key";
            return Err(self.named(&call, Error::new(Kind::Unsupported, why)));
        }
        let version = match version {
            Some(id) if self.is_gcs() => {
                google::check_version(&source.key).map_err(|error| self.named(&call, error))?;
                call = call.header(&format!("{name}-generation"), id)?;
                String::new()
            }
            Some(id) => format!("?versionId={}", encode_path(id)),
            None => String::new(),
        };
        let path = format!("/{}/{}{version}", self.sender.config.bucket, encode_path(key));
        let call = call.header(&name, &path)?;
        match &source.if_match {
            Some(etag) => call.header(&format!("{name}-if-match"), &etag.header_value()),
            None => Ok(call),
        }
    }

    /// Copies an object over S3's limit: every part by reference, then as one upload. All parts
    /// are of the version that the caller wants, else of the one that `meta` tells of.
    async fn copy_in_parts(
        &self,
        source: &CopySource,
        meta: ObjectMeta,
        to: &str,
        options: &PutOptions,
    ) -> Result<PutResult> {
        let size = meta.size_bytes.unwrap_or_default();
        let version = source.if_match.clone().or(meta.etag.clone());
        let source = CopySource { if_match: version, ..source.clone() };
        let mut kept = options.clone();
        kept.metadata.extend(self.tags_left(&source, &meta, options).await?);
        // A copy keeps what the caller does not replace; an upload has to be told.
        if !kept.replaces() {
            kept.content_type = meta.content_type;
            kept.metadata.extend(meta.metadata);
            kept.metadata.retain(|(name, _)| !answer::is_told_note(name));
        }
        let upload = self.begin_upload(to, &kept).await?;
        let copies = stream::iter(copy_ranges(size))
            .map(|(number, range)| self.copy_range(&source, range, to, &upload, number));
        let copied = copies.buffered(COPY_CONCURRENCY).map_ok(|copied| copied.part);
        let finished = match copied.try_collect::<Vec<Part>>().await {
            Ok(parts) => self.finish_upload(to, &upload, &parts, options).await,
            Err(error) => Err(error),
        };
        let finished = finished.map(|done| PutResult { copied_version: meta.version, ..done });
        if finished.is_err() {
            // The first error is the one to tell; parts that stay cost storage, not correctness.
            let _ = self.abort_upload(to, &upload).await;
        }
        finished
    }

    /// The source's tags, where the caller gives the copy no others and there are any: a copy in
    /// one request has them, an upload has to be told.
    async fn tags_left(
        &self,
        source: &CopySource,
        meta: &ObjectMeta,
        options: &PutOptions,
    ) -> Result<Option<(String, String)>> {
        let is_told = options.metadata.iter().any(|pair| pair.0 == notes::TAGGING);
        let count = meta.metadata.iter().find(|pair| pair.0 == answer::TAG_COUNT);
        if is_told || count.is_none_or(|pair| pair.1 == "0") {
            return Ok(None);
        }
        let tags = self.tags(&source.key).await?;
        Ok(Some((notes::TAGGING.to_string(), tags::to_query(&tags))))
    }

    /// Makes a range of the source a part of an upload.
    pub(super) async fn copy_range(
        &self,
        source: &CopySource,
        range: ByteRange,
        to: &str,
        upload: &UploadId,
        number: u32,
    ) -> Result<CopiedPart> {
        let prefix = self.sender.header_prefix();
        let bytes = format!("bytes={}-{}", range.start, range.end - 1);
        let call = Call::new(Method::PUT, "copy part", Some(to))
            .query("partNumber", number.to_string())
            .query("uploadId", &upload.0)
            .header(&format!("{prefix}copy-source-range"), &bytes)?;
        let call = self.with_source(call, source)?;
        let answer = self.answer(&call).await?;
        let (etag, sum) = parse_copied_part(&answer).map_err(|error| self.named(&call, error))?;
        let part = Part { number, etag: etag.0, size_bytes: range.len() };
        Ok(CopiedPart { part, sum })
    }
}

fn may_be_too_large(failure: &Failure) -> bool {
    let (kind, _) = failure.verdict();
    kind == Kind::Invalid
        && matches!(failure.code.as_str(), "InvalidRequest" | "EntityTooLarge" | "InvalidArgument")
}

fn copy_ranges(size: u64) -> Vec<(u32, ByteRange)> {
    let starts = (0..size).step_by(usize::try_from(COPY_PART_BYTES).unwrap_or(usize::MAX));
    let range = |start| ByteRange { start, end: (start + COPY_PART_BYTES).min(size) };
    (1..).zip(starts.map(range)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copied_ranges_cover_the_object_without_gap() {
        let ranges = copy_ranges(7 * GIB + 5);
        assert_eq!(ranges.len(), 8);
        assert_eq!(ranges[7], (8, ByteRange { start: 7 * GIB, end: 7 * GIB + 5 }));
        assert!(ranges.windows(2).all(|pair| pair[0].1.end == pair[1].1.start));
    }
}

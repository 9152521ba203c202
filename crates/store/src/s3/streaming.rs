//! What a gateway asks of a bucket: bodies that are still coming in, and S3's own verbs for uploads
//! and tags, passed through.

use crate::answer::{self, Failure};
use crate::s3::request::{Call, Outcome};
use crate::s3::{ANSWER_BYTES_MAX, S3Store, replies};
use crate::streaming::{
    CopySource, Inflow, PartEntry, PartSink, StreamingStore, UploadEntry, unsupported,
};
use crate::{ETag, Part, Payload, PutOptions, PutResult, UploadId, xml};
use ::http::Method;
use ::http::header::{CONTENT_TYPE, ETAG};
use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{Error, Kind, Result};

impl S3Store {
    /// Sends a call whose body flows, and reads the tag of what it wrote.
    async fn flow(&self, call: &Call<'_>, body: Box<dyn Inflow>) -> Result<ETag> {
        match self.sender.send_flow(call, body).await? {
            Outcome::Done(mut response) => {
                let etag = answer::text_header(&response.headers, ETAG.as_str());
                let etag = self.require_tag(call, etag.map(|text| ETag::parse(&text)))?;
                let read = response.body.read_to_bytes(ANSWER_BYTES_MAX).await;
                read.map_err(|error| self.named(call, error))?;
                Ok(etag)
            }
            Outcome::Refused { failure, .. } => Err(self.sender.refusal(call, failure)),
        }
    }

    async fn answer(&self, call: &Call<'_>) -> Result<Bytes> {
        let mut response = self.sender.done(call).await?;
        let read = response.body.read_to_bytes(ANSWER_BYTES_MAX).await;
        read.map_err(|error| self.named(call, error))
    }

    fn no_tags(&self) -> Error {
        unsupported(self, "tags", "object tags")
    }
}

#[async_trait]
impl StreamingStore for S3Store {
    async fn put_flow(
        &self,
        key: &str,
        body: Box<dyn Inflow>,
        options: &PutOptions,
    ) -> Result<PutResult> {
        let call = Call::new(Method::PUT, "PUT", Some(key));
        let call = self.with_write_headers(call, options)?;
        let call = self.with_condition(call, &options.condition)?;
        let etag = self.flow(&call, body).await?;
        Ok(PutResult { etag: Some(etag), modified: None })
    }

    async fn part_flow(
        &self,
        key: &str,
        upload: &UploadId,
        number: u32,
        body: Box<dyn Inflow>,
    ) -> Result<Part> {
        let size_bytes = body.size_bytes();
        let call = Call::new(Method::PUT, "upload part", Some(key))
            .query("partNumber", number.to_string())
            .query("uploadId", &upload.0);
        let etag = self.flow(&call, body).await?.0;
        Ok(Part { number, etag, size_bytes })
    }

    fn judges_parts(&self) -> bool {
        true
    }

    async fn list_parts(&self, key: &str, upload: &UploadId) -> Result<Vec<PartEntry>> {
        let (mut parts, mut marker) = (Vec::new(), String::new());
        loop {
            let mut call =
                Call::new(Method::GET, "list parts", Some(key)).query("uploadId", &upload.0);
            if !marker.is_empty() {
                call = call.query("part-number-marker", &marker);
            }
            let page = replies::parse_parts(&self.answer(&call).await?);
            let (found, next) = page.map_err(|error| self.named(&call, error))?;
            parts.extend(found);
            match next {
                Some(next) if next != marker => marker = next,
                _ => return Ok(parts),
            }
        }
    }

    async fn completed(&self, _key: &str, _upload: &UploadId) -> Result<Option<PutResult>> {
        // A service that lost its answer tells so itself: completing is tried there.
        Ok(None)
    }

    async fn read_parts(
        &self,
        _key: &str,
        _upload: &UploadId,
        _parts: &[Part],
        _sink: PartSink,
    ) -> Result<bool> {
        Ok(false)
    }

    async fn list_uploads(&self, prefix: &str) -> Result<Vec<UploadEntry>> {
        let (mut uploads, mut marker) = (Vec::new(), (String::new(), String::new()));
        loop {
            let mut call = Call::new(Method::GET, "list uploads", None)
                .query("uploads", "")
                .query("encoding-type", "url");
            let optional =
                [("prefix", prefix), ("key-marker", &marker.0), ("upload-id-marker", &marker.1)];
            for (name, value) in optional.into_iter().filter(|(_, value)| !value.is_empty()) {
                call = call.query(name, value);
            }
            let page = replies::parse_uploads(&self.answer(&call).await?);
            let (found, next) = page.map_err(|error| self.named(&call, error))?;
            uploads.extend(found);
            match next {
                Some(next) if next != marker => marker = next,
                _ => return Ok(uploads),
            }
        }
    }

    async fn discard_upload(&self, key: &str, upload: &UploadId) -> Result<()> {
        let call =
            Call::new(Method::DELETE, "abort upload", Some(key)).query("uploadId", &upload.0);
        let response = self.sender.done(&call).await?;
        self.sender.removed(&call, response).await
    }

    async fn copy_version(
        &self,
        source: &CopySource,
        to: &str,
        options: &PutOptions,
    ) -> Result<Option<PutResult>> {
        self.copy_object(&source.key, source.if_match.as_ref(), to, options).await.map(Some)
    }

    async fn copy_part(
        &self,
        source: &CopySource,
        key: &str,
        upload: &UploadId,
        number: u32,
    ) -> Result<Option<Part>> {
        let Some(range) = source.range.filter(|range| !range.is_empty()) else { return Ok(None) };
        let etag = source.if_match.as_ref().map(|etag| etag.header_value());
        let part = (number, range);
        S3Store::copy_part(self, &source.key, key, upload, part, etag.as_deref()).await.map(Some)
    }

    fn has_tags(&self) -> bool {
        !self.is_gcs()
    }

    async fn tags(&self, key: &str) -> Result<Vec<(String, String)>> {
        if self.is_gcs() {
            return Err(self.no_tags());
        }
        let call = Call::new(Method::GET, "get tags", Some(key)).query("tagging", "");
        let tags = replies::parse_tagging(&self.answer(&call).await?);
        tags.map_err(|error| self.named(&call, error))
    }

    async fn set_tags(&self, key: &str, tags: &[(String, String)]) -> Result<()> {
        if self.is_gcs() {
            return Err(self.no_tags());
        }
        if tags.is_empty() {
            let call = Call::new(Method::DELETE, "remove tags", Some(key)).query("tagging", "");
            let response = self.sender.done(&call).await?;
            return self.sender.removed(&call, response).await;
        }
        let payload = Payload::from(Bytes::from(tagging_body(tags)));
        let digest = super::checksum::md5_base64(&payload);
        let call = Call::new(Method::PUT, "set tags", Some(key))
            .query("tagging", "")
            .header("content-md5", &digest)?
            .header(CONTENT_TYPE.as_str(), "application/xml")?
            .payload(payload);
        self.answer(&call).await.map(drop)
    }
}

fn tagging_body(tags: &[(String, String)]) -> String {
    let mut body = String::from("<Tagging><TagSet>");
    for (name, value) in tags {
        let (name, value) = (xml::escape(name), xml::escape(value));
        body.push_str(&format!("<Tag><Key>{name}</Key><Value>{value}</Value></Tag>"));
    }
    body.push_str("</TagSet></Tagging>");
    body
}

/// Whether a refusal says that the bucket is there already, and this account's.
pub(super) fn is_own_bucket(failure: &Failure) -> bool {
    failure.code == "BucketAlreadyOwnedByYou" || failure.code == "YouAlreadyOwnThisBucket"
}

impl S3Store {
    /// Asks for the bucket itself.
    ///
    /// # Errors
    /// `NotFound`, `Denied`.
    pub(super) async fn check_bucket(&self) -> Result<()> {
        let call = Call::new(Method::HEAD, "check bucket", None);
        let done = self.sender.done(&call).await;
        done.map(drop).map_err(|error| match error.kind() {
            // An answer to HEAD tells no code, and there is nothing else that could be missing.
            Kind::NotFound => error.with_service_code("NoSuchBucket"),
            _ => error,
        })
    }
}

//! What a gateway asks of a bucket: bodies that are still coming in, and S3's own verbs for uploads
//! and tags, passed through.

use crate::answer::Failure;
use crate::s3::checksum::Seal;
use crate::s3::request::{Call, Outcome, strange};
use crate::s3::upload::parts_call;
use crate::s3::{S3Store, google, replies};
use crate::streaming::{
    CopiedPart, CopySource, Inflow, PartEntry, PartPlace, Removed, StreamingStore, UploadsPage,
    UploadsRequest, Versioning, VersionsPage, VersionsRequest, no_tags,
};
use crate::sums::Sum;
use crate::{ETag, Part, Payload, PutOptions, PutResult, Store, UploadId, notes, tags};
use ::http::Method;
use ::http::header::CONTENT_TYPE;
use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{Error, Kind, Result};

const TAGS_ROOT: &str = "Tagging";
/// Most uploads of a page, as in S3.
const UPLOADS_MAX: usize = 1000;

/// Key and upload where a listing goes on, as text: `<length>:<key><upload>`.
fn marker_text((key, upload): &(String, String)) -> String {
    format!("{}:{key}{upload}", key.len())
}

fn read_marker(text: &str) -> Result<(String, String)> {
    let read = || {
        let (length, rest) = text.split_once(':')?;
        let (key, upload) = rest.split_at_checked(length.parse().ok()?)?;
        Some((key.to_string(), upload.to_string()))
    };
    let foreign = || Error::new(Kind::Invalid, "the listing token is not one of this store");
    read().ok_or_else(foreign)
}

/// What a fuzzer feeds: a place and a version, in a line each.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn fuzz(text: &str) {
    let (place, version) = text.split_once('\n').unwrap_or((text, ""));
    if let Ok(marker) = read_marker(place) {
        assert!(marker.0.len() + marker.1.len() < place.len(), "a marker of more than there is");
        let again = read_marker(&marker_text(&marker));
        assert!(again.is_ok_and(|again| again == marker), "a place that changed: {place}");
    }
    let again = read_marker(&marker_text(&(place.to_string(), version.to_string())));
    assert!(again.is_ok_and(|again| again.0 == place && again.1 == version), "another place");
    let name = crate::streaming::versioned(place, version);
    if google::check_version(&name).is_ok() && !place.contains('\0') {
        assert!(version.parse::<u64>().is_ok_and(|number| number > 0), "no generation: {version}");
    }
}

/// A service that passes over a marker would be asked for the same page for ever.
pub(super) fn same_page() -> Error {
    strange("a next page: it names the same one again")
}

impl S3Store {
    /// Sends a call whose body flows; tag, time and version of what it wrote.
    async fn flow(&self, call: &Call<'_>, body: Box<dyn Inflow>) -> Result<PutResult> {
        match self.sender.send_flow(call, body).await? {
            Outcome::Done(response) => {
                let version = self.version(&response.headers);
                let (etag, modified) = self.written(call, response).await?;
                Ok(PutResult { etag: Some(etag), modified, version, ..PutResult::default() })
            }
            Outcome::Refused { failure, .. } => {
                let is_blamed = self.seal.guess(call, &failure);
                let error = self.sender.refusal(call, failure);
                Err(if is_blamed { Seal::send_again(error) } else { error })
            }
        }
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
        self.flow(&call, body).await
    }

    async fn part_flow(
        &self,
        key: &str,
        upload: &UploadId,
        number: u32,
        body: Box<dyn Inflow>,
    ) -> Result<Part> {
        self.flow_part(key, upload, number, body).await
    }

    async fn part_whole(
        &self,
        key: &str,
        upload: &UploadId,
        number: u32,
        payload: Payload,
        sum: Option<Sum>,
    ) -> Result<Part> {
        self.send_part(key, upload, number, payload, sum.as_ref()).await
    }

    fn judges_parts(&self) -> bool {
        true
    }

    fn judges_sums(&self) -> bool {
        self.seal.passes_sums()
    }

    async fn list_parts(&self, key: &str, upload: &UploadId) -> Result<Vec<PartEntry>> {
        let (mut parts, mut marker) = (Vec::new(), String::new());
        loop {
            let mut call = parts_call(key, upload);
            if !marker.is_empty() {
                call = call.query("part-number-marker", &marker);
            }
            let page = replies::parse_parts(&self.answer(&call).await?);
            let (found, next) = page.map_err(|error| self.named(&call, error))?;
            parts.extend(found);
            match next {
                Some(next) if next == marker => return Err(self.named(&call, same_page())),
                Some(next) => marker = next,
                None => return Ok(parts),
            }
        }
    }

    fn takes_class(&self, class: &str) -> bool {
        match self.is_gcs() {
            true => google::class(class).is_some(),
            false => !class.is_empty(),
        }
    }

    async fn upload_class(&self, key: &str, upload: &UploadId) -> Result<Option<Box<str>>> {
        let call = parts_call(key, upload).query("max-parts", "1");
        let class = replies::parse_upload_class(&self.answer(&call).await?);
        class.map(|class| self.told_class(class)).map_err(|error| self.named(&call, error))
    }

    async fn list_uploads(&self, request: &UploadsRequest) -> Result<UploadsPage> {
        let marker = match &request.token {
            Some(token) => read_marker(token)?,
            None => (request.key_marker.clone(), request.upload_marker.clone()),
        };
        // One more than is wanted tells whether there are more.
        let max = request.max.saturating_add(1).min(UPLOADS_MAX).to_string();
        let mut call = Call::new(Method::GET, "list uploads", None)
            .query("uploads", "")
            .query("encoding-type", "url")
            .query("max-uploads", max);
        let optional = [
            ("prefix", &request.prefix),
            ("key-marker", &marker.0),
            ("upload-id-marker", &marker.1),
        ];
        for (name, value) in optional.into_iter().filter(|(_, value)| !value.is_empty()) {
            call = call.query(name, value);
        }
        let page = replies::parse_uploads(&self.answer(&call).await?);
        let (mut uploads, next) = page.map_err(|error| self.named(&call, error))?;
        for pair in uploads.iter_mut().flat_map(|upload| &mut upload.metadata) {
            if pair.0 == notes::STORAGE_CLASS && self.is_gcs() {
                pair.1 = google::told_class(&pair.1).to_string();
            }
        }
        uploads.retain(|it| it.key > marker.0 || it.key == marker.0 && !marker.1.is_empty());
        if next.as_ref() == Some(&marker) {
            return Err(self.named(&call, same_page()));
        }
        Ok(UploadsPage { uploads, next: next.map(|next| marker_text(&next)) })
    }

    async fn discard_upload(&self, key: &str, upload: &UploadId) -> Result<()> {
        let call =
            Call::new(Method::DELETE, "abort upload", Some(key)).query("uploadId", &upload.0);
        let response = self.sender.done(&call).await?;
        self.sender.acknowledged(&call, response).await
    }

    async fn copy_version(
        &self,
        source: &CopySource,
        to: &str,
        options: &PutOptions,
    ) -> Result<Option<PutResult>> {
        if !self.names_source(source) {
            return Ok(None);
        }
        self.copy_object(source, to, options).await.map(Some)
    }

    async fn copy_part(
        &self,
        source: &CopySource,
        key: &str,
        upload: &UploadId,
        number: u32,
    ) -> Result<Option<CopiedPart>> {
        let Some(range) = source.range.filter(|range| !range.is_empty()) else { return Ok(None) };
        // Google copies whole objects only.
        if self.is_gcs() || !self.names_source(source) {
            return Ok(None);
        }
        self.copy_range(source, range, key, upload, number).await.map(Some)
    }

    fn has_tags(&self) -> bool {
        !self.is_gcs()
    }

    async fn tags(&self, key: &str) -> Result<Vec<(String, String)>> {
        if self.is_gcs() {
            return Err(no_tags(self.root()));
        }
        let call = Call::new(Method::GET, "get tags", Some(key)).query("tagging", "");
        let tags = tags::from_xml(TAGS_ROOT, &self.answer(&call).await?);
        tags.map_err(|error| self.named(&call, error))
    }

    async fn set_tags(&self, key: &str, tags: &[(String, String)]) -> Result<()> {
        if self.is_gcs() {
            return Err(no_tags(self.root()));
        }
        if tags.is_empty() {
            let call = Call::new(Method::DELETE, "remove tags", Some(key)).query("tagging", "");
            let response = self.sender.done(&call).await?;
            return self.sender.acknowledged(&call, response).await;
        }
        let payload = Payload::from(Bytes::from(tags::to_xml(TAGS_ROOT, tags)));
        let digest = super::checksum::md5_base64(&payload);
        let call = Call::new(Method::PUT, "set tags", Some(key))
            .query("tagging", "")
            .header("content-md5", &digest)?
            .header(CONTENT_TYPE.as_str(), "application/xml")?
            .payload(payload);
        let response = self.sender.done(&call).await?;
        self.sender.acknowledged(&call, response).await
    }

    async fn part_place(&self, key: &str, number: u32) -> Result<Option<PartPlace>> {
        match self.is_gcs() {
            true => self.only_part(key).await.map(|()| None),
            false => self.head_of_part(key, number).await,
        }
    }

    fn has_versions(&self) -> bool {
        true
    }

    async fn versioning(&self) -> Result<Versioning> {
        self.bucket_versioning().await
    }

    async fn set_versioning(&self, is_enabled: bool) -> Result<()> {
        self.set_bucket_versioning(is_enabled).await
    }

    async fn retains_versions(&self) -> Result<bool> {
        self.bucket_retains().await
    }

    async fn list_versions(&self, request: &VersionsRequest) -> Result<VersionsPage> {
        self.bucket_versions(request).await
    }

    async fn remove(
        &self,
        key: &str,
        version: Option<&str>,
        if_match: Option<&ETag>,
    ) -> Result<Removed> {
        self.remove_version(key, version, if_match).await
    }

    fn batches_versions(&self) -> bool {
        !self.is_gcs()
    }

    async fn remove_batch(&self, keys: &[String]) -> Result<Vec<Result<Removed>>> {
        self.remove_many(keys, false).await
    }
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

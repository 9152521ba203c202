//! Versions as the service keeps them, passed through.

use super::replies::{parse_retention, parse_versioning, parse_versions};
use crate::answer;
use crate::s3::config::Service;
use crate::s3::request::{Call, Outcome};
use crate::s3::{S3Store, google};
use crate::streaming::{PartPlace, Removed, Versioning, VersionsPage, VersionsRequest, versioned};
use crate::{ETag, GetRange, Payload, Store as _};
use ::http::header::{CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_MATCH};
use ::http::{HeaderMap, Method};
use bytes::Bytes;
use penstock_base::{Error, Kind, Result};

/// How services tell that a bucket has no object lock, or that they have none.
const NO_LOCK: [Kind; 3] = [Kind::NotFound, Kind::Unsupported, Kind::Invalid];

impl S3Store {
    pub(super) async fn bucket_versioning(&self) -> Result<Versioning> {
        let call = Call::new(Method::GET, "get versioning", None).query("versioning", "");
        let told = parse_versioning(&self.answer(&call).await?);
        told.map_err(|error| self.named(&call, error))
    }

    pub(super) async fn set_bucket_versioning(&self, is_enabled: bool) -> Result<()> {
        let status = if is_enabled { "Enabled" } else { "Suspended" };
        let body =
            format!("<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>");
        let payload = Payload::from(Bytes::from(body));
        let digest = super::checksum::md5_base64(&payload);
        let call = Call::new(Method::PUT, "set versioning", None)
            .query("versioning", "")
            .header("content-md5", &digest)?
            .header(CONTENT_TYPE.as_str(), "application/xml")?
            .payload(payload);
        let response = self.sender.done(&call).await?;
        self.sender.acknowledged(&call, response).await
    }

    /// Whether the bucket's object lock has a default retention.
    pub(super) async fn bucket_retains(&self) -> Result<bool> {
        if self.is_gcs() {
            return Ok(false);
        }
        let call = Call::new(Method::GET, "get object lock", None).query("object-lock", "");
        match self.answer(&call).await {
            Ok(told) => parse_retention(&told).map_err(|error| self.named(&call, error)),
            Err(error) if NO_LOCK.contains(&error.kind()) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn bucket_versions(&self, request: &VersionsRequest) -> Result<VersionsPage> {
        if self.is_gcs() {
            return self.generations(request).await;
        }
        let mut call = Call::new(Method::GET, "list versions", None)
            .query("versions", "")
            .query("encoding-type", "url")
            .query("max-keys", request.max.to_string());
        let optional = [
            ("prefix", Some(&request.prefix)),
            ("delimiter", request.delimiter.as_ref()),
            ("key-marker", request.key_marker.as_ref()),
            ("version-id-marker", request.version_marker.as_ref()),
        ];
        for (name, value) in optional {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                call = call.query(name, value);
            }
        }
        let told = parse_versions(&self.answer(&call).await?);
        told.map_err(|error| self.named(&call, error))
    }

    pub(super) async fn remove_version(
        &self,
        key: &str,
        version: Option<&str>,
        if_match: Option<&ETag>,
    ) -> Result<Removed> {
        let name = version.map_or(key.to_string(), |id| versioned(key, id));
        let mut call = Call::new(Method::DELETE, "DELETE", Some(&name));
        // Where there are no delete markers, a removal of anything that is there needs no
        // condition: one of what is not there succeeds without.
        let if_match = if_match.filter(|etag| !(self.is_gcs() && etag.0 == "*"));
        if let Some(etag) = if_match.filter(|_| self.is_gcs()) {
            let Some(generation) = self.tied_generation(&call, &name, etag).await? else {
                return Ok(Removed { version: version.map(str::to_string), is_marker: false });
            };
            // One that is named is what it is for good.
            if version.is_none() {
                call = call.header(google::IF_GENERATION, &generation)?;
            }
        } else if let Some(etag) = if_match {
            call = call.header(IF_MATCH.as_str(), &etag.header_value())?;
            self.judge_removed(&call, &name, etag).await?;
        }
        match self.sender.send(&call).await? {
            Outcome::Done(response) => {
                let marker = answer::text_header(&response.headers, "x-amz-delete-marker");
                let is_marker = marker.as_deref() == Some("true");
                let version = match self.is_gcs() {
                    // The answer tells nothing; of a version it was the one that was named.
                    true => version.map(str::to_string),
                    false => answer::version(&response.headers),
                };
                self.sender.acknowledged(&call, response).await?;
                Ok(Removed { version, is_marker })
            }
            // Nothing else that is not found says that the object is not there: a bucket's name is
            // probably wrong, and so is the address of what is no object store.
            Outcome::Refused { failure, .. }
                if matches!(failure.code.as_str(), "NoSuchKey" | "NoSuchVersion") =>
            {
                Ok(Removed { version: version.map(str::to_string), is_marker: false })
            }
            Outcome::Refused { failure, .. } => Err(self.sender.refusal(&call, failure)),
        }
    }

    /// Judges the condition on what is to be removed before the request. Amazon does so itself;
    /// others have ignored the header since it came late (2024), and there this check is all there
    /// is: it leaves a moment in which another writer may come between.
    async fn judge_removed(&self, call: &Call<'_>, name: &str, etag: &ETag) -> Result<()> {
        if self.sender.config.service == Service::Aws || etag.0 == "*" {
            return Ok(());
        }
        match self.stat(name).await {
            Ok(meta) if meta.etag.as_ref().is_some_and(|found| found != etag) => {
                let why = "the object has changed: its tag is another one";
                Err(self.named(call, Error::new(Kind::Conflict, why)))
            }
            // The service says itself what it makes of a removal of nothing, and who may remove may
            // not be one who may read.
            Err(error) if !matches!(error.kind(), Kind::NotFound | Kind::Denied) => Err(error),
            _ => Ok(()),
        }
    }

    /// Refuses to tell of parts where there are several and the service tells of none: the first
    /// must not be all of them.
    pub(super) async fn only_part(&self, key: &str) -> Result<()> {
        let etag = self.stat(key).await?.etag;
        match tells_parts(etag.as_ref().map(|etag| etag.0.as_str())) {
            true => Err(self.named(&Call::new(Method::HEAD, "HEAD", Some(key)), no_parts())),
            false => Ok(()),
        }
    }

    /// Asks for the head of a part, which tells where it lies.
    pub(super) async fn head_of_part(&self, key: &str, number: u32) -> Result<Option<PartPlace>> {
        let call =
            Call::new(Method::HEAD, "HEAD", Some(key)).query("partNumber", number.to_string());
        let response = match self.sender.send(&call).await? {
            Outcome::Done(response) => response,
            Outcome::Refused { failure, .. } => {
                let status = failure.status;
                let error = self.sender.refusal(&call, failure);
                return Err(match status {
                    416 => error.with_service_code("InvalidPartNumber"),
                    _ => error,
                });
            }
        };
        let told = answer::text_header(&response.headers, CONTENT_RANGE.as_str());
        let (range, size) = match told.as_deref().and_then(answer::parse_content_range) {
            Some((range, size)) => (range, size),
            // Only a service that does not know the parameter sends all: past the first part, and
            // of an object whose tag tells several.
            None if number > 1 || tells_parts(tag_of(&response.headers).as_deref()) => {
                return Err(self.named(&call, no_parts()));
            }
            None => {
                let extent = answer::extent(GetRange::All, 200, &response.headers);
                let extent = extent.map_err(|error| self.named(&call, error))?;
                (extent.range, extent.size_bytes)
            }
        };
        let meta = self.meta(&response, size);
        Ok(Some(PartPlace { meta, range }))
    }
}

fn tag_of(headers: &HeaderMap) -> Option<String> {
    answer::text_header(headers, ETAG.as_str())
}

fn no_parts() -> Error {
    Error::new(Kind::Unsupported, "the service tells no parts")
}

/// Whether the tag is that of an upload of more than one part: `<digest>-<their number>`.
fn tells_parts(tag: Option<&str>) -> bool {
    let tag = tag.unwrap_or_default().trim_matches('"');
    let count = tag.rsplit_once('-').and_then(|(_, count)| count.parse().ok());
    count.is_some_and(|count: u32| count > 1)
}

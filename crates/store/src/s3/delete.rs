//! Removing many objects with one request.

use crate::s3::request::Call;
use crate::s3::{S3Store, checksum, replies};
use crate::streaming::{Removed, split_version};
use crate::{Payload, Store as _};
use ::http::Method;
use ::http::header::CONTENT_TYPE;
use bytes::Bytes;
use penstock_base::Result;

impl S3Store {
    /// Removes objects, or versions of them that are named. A service that is told to be quiet
    /// names failures only, which is a shorter answer; else it tells which delete markers there are
    /// now.
    ///
    /// # Errors
    /// Those of the request; each object has a result of its own.
    pub(super) async fn remove_many(
        &self,
        keys: &[String],
        is_quiet: bool,
    ) -> Result<Vec<Result<Removed>>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        // Some characters have no place in XML, so such names go one by one; an empty one is
        // refused then, and alone.
        let speakable = |text: &str| text.chars().all(|c| c >= ' ' || "\t\n\r".contains(c));
        let unspeakable = |name: &String| {
            let (key, version) = split_version(name);
            key.is_empty() || !speakable(key) || !version.is_none_or(speakable)
        };
        if self.is_gcs() || keys.iter().any(unspeakable) {
            let mut results = Vec::with_capacity(keys.len());
            for name in keys {
                let (key, version) = split_version(name);
                results.push(self.remove_version(key, version, None).await);
            }
            return Ok(results);
        }
        let mut body = format!("<Delete><Quiet>{is_quiet}</Quiet>");
        for name in keys {
            let (key, version) = split_version(name);
            body.push_str("<Object><Key>");
            body.push_str(&crate::xml::escape(key));
            body.push_str("</Key>");
            if let Some(version) = version {
                let version = crate::xml::escape(version);
                body.push_str(&format!("<VersionId>{version}</VersionId>"));
            }
            body.push_str("</Object>");
        }
        body.push_str("</Delete>");
        let payload = Payload::from(Bytes::from(body));
        // Older servers insist on Content-MD5, and newer ones still take it.
        let digest = checksum::md5_base64(&payload);
        let call = Call::new(Method::POST, "delete", None)
            .query("delete", "")
            .header("content-md5", &digest)?
            .header(CONTENT_TYPE.as_str(), "application/xml")?
            .payload(payload);
        let results = replies::parse_deleted(&self.answer(&call).await?, keys, self.root());
        results.map_err(|error| self.named(&call, error))
    }
}

//! Removing many objects with one request.

use crate::s3::request::Call;
use crate::s3::{S3Store, checksum, replies};
use crate::streaming::{Removed, split_version};
use crate::{Payload, Store as _};
use ::http::Method;
use ::http::header::CONTENT_TYPE;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use penstock_base::{Error, Kind, Result};
use std::sync::atomic::Ordering;

/// Removals under way at once where the service takes no batches.
const SINGLE_REMOVALS_AT_ONCE: usize = 16;
/// Codes of refusals that are about the bucket or the connection, and so of any request.
const OF_ANY_REQUEST: &[&str] = &[
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
    "PermanentRedirect",
    "TemporaryRedirect",
    "InvalidBucketName",
];

/// Whether a refusal may say that the service has no batches: some answer 501 or 405, some take the
/// request for another one that is malformed (400).
fn is_no_batch(error: &Error) -> bool {
    let status = error.http_status().unwrap_or_default();
    let is_refusal = status >= 400 && matches!(error.kind(), Kind::Unsupported | Kind::Invalid);
    // Whatever code an appliance makes up for it.
    let is_no_method = matches!(status, 405 | 501);
    (is_refusal || is_no_method)
        && !error.service_code().is_some_and(|it| OF_ANY_REQUEST.contains(&it))
}

impl S3Store {
    /// Removes objects, or versions of them that are named. A service that is told to be quiet
    /// names failures only, which is a shorter answer; else it tells which delete markers there are
    /// now. A service that refuses such a request gets one for each object, from then on.
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
        let is_refused = self.batch_refused.load(Ordering::Relaxed);
        if is_refused || self.is_gcs() || keys.iter().any(unspeakable) {
            return Ok(self.remove_singly(keys).await);
        }
        match self.remove_batch(keys, is_quiet).await {
            Err(error) if is_no_batch(&error) => {
                // One alone tells whether it is the batch that is refused: if not, there is one
                // error to tell, and not one for each object.
                let first = self.remove_singly(&keys[..1]).await.pop().transpose()?;
                self.batch_refused.store(true, Ordering::Relaxed);
                let rest = self.remove_singly(&keys[1..]).await;
                Ok(first.map(Ok).into_iter().chain(rest).collect())
            }
            done => done,
        }
    }

    /// One request for each name, several at a time.
    async fn remove_singly(&self, names: &[String]) -> Vec<Result<Removed>> {
        let removals = (0..names.len()).map(|at| async move {
            let (key, version) = split_version(&names[at]);
            self.remove_version(key, version, None).await
        });
        stream::iter(removals).buffered(SINGLE_REMOVALS_AT_ONCE).collect().await
    }

    async fn remove_batch(&self, keys: &[String], is_quiet: bool) -> Result<Vec<Result<Removed>>> {
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

//! Removing blobs: one, or many in a batch.

use super::batch::{self, BATCH_MAX};
use super::wire::{Ask, condition_header};
use super::{AzureStore, delete_condition};
use crate::answer::{Failure, text_header};
use crate::{ETag, Payload, random};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Method;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use penstock_base::{Error, Kind, Result};
use std::sync::atomic::Ordering;

/// Deletes at a time where the account has no batches.
const SINGLE_DELETES_AT_ONCE: usize = 16;
/// Batches refused without one that was not, for whatever reason, after which none is tried: an
/// account may say so in words that nobody knows, and one odd moment, in which several are under
/// way, says nothing of the next.
const BATCHES_REFUSED_MAX: u32 = 16;
/// An answer for each of 256 names, with the service's words for each refusal.
const BATCH_ANSWER_BYTES_MAX: usize = 4 << 20;

/// What became of a batch.
enum Batched {
    /// Sent; what each blob came to.
    Done(Vec<Result<()>>),
    /// Refused: its blobs go one by one.
    NotThisOne,
    /// The account offers none.
    Never,
}

/// Whether a refusal says that the blob is not there. A missing container is not a missing blob:
/// the name is probably wrong. And what a web page, or anything else that is not the service, does
/// not find says nothing of blobs.
pub(super) fn is_gone(failure: &Failure) -> bool {
    failure.status == 404 && matches!(failure.code.as_str(), "BlobNotFound" | "PathNotFound")
}

impl AzureStore {
    /// Removes one blob; what is not there counts as removed.
    pub(super) async fn delete_one(&self, key: &str, if_match: Option<&ETag>) -> Result<()> {
        let condition = condition_header(&delete_condition(if_match));
        let headers = condition.into_iter().map(|(_, value)| ("if-match", value)).collect();
        let ask = Ask { headers, ..Ask::default() };
        let response = self.wire.send("DELETE", key, Method::DELETE, ask).await?;
        if response.status == 202 {
            return self.acknowledged(response, "DELETE", key).await;
        }
        self.judge(Some(Failure::read(response).await), key)
    }

    /// Removes up to 256 blobs, in one request where the account offers that.
    pub(super) async fn delete_many(&self, keys: &[String]) -> Result<Vec<Result<()>>> {
        if keys.len() > BATCH_MAX {
            let why = format!("{} names are more than one batch takes ({BATCH_MAX})", keys.len());
            let error = Error::new(Kind::Invalid, why);
            return Err(self.wire.named(error, "batch delete", ""));
        }
        let odd_key = keys.iter().any(|key| self.check_key("DELETE", key).is_err());
        let refused = &self.batches_refused;
        if keys.len() > 1 && !odd_key && refused.load(Ordering::Relaxed) < BATCHES_REFUSED_MAX {
            match self.delete_batched(keys).await? {
                Batched::Done(results) => {
                    refused.store(0, Ordering::Relaxed);
                    return Ok(results);
                }
                Batched::NotThisOne => drop(refused.fetch_add(1, Ordering::Relaxed)),
                Batched::Never => refused.store(BATCHES_REFUSED_MAX, Ordering::Relaxed),
            }
        }
        let single = (0..keys.len()).map(|at| async move {
            self.check_key("DELETE", &keys[at])?;
            self.delete_one(&keys[at], None).await
        });
        Ok(stream::iter(single).buffered(SINGLE_DELETES_AT_ONCE).collect().await)
    }

    async fn delete_batched(&self, keys: &[String]) -> Result<Batched> {
        const OPERATION: &str = "batch delete";
        let mut requests = Vec::with_capacity(keys.len());
        for key in keys {
            let path = self.wire.path(Some(key));
            let mut parts = self
                .wire
                .request(Method::DELETE, &path, &Ask::default())
                .map_err(|error| self.wire.named(error, OPERATION, key))?;
            // The version is the outer request's; the service refuses one in here.
            parts.headers.clear();
            parts.headers.insert(CONTENT_LENGTH, http::HeaderValue::from_static("0"));
            self.wire
                .sign(&mut parts)
                .await
                .map_err(|error| self.wire.named(error, OPERATION, key))?;
            requests.push(parts);
        }
        let boundary = format!("batch_{}", random::hex(&random::bytes::<16>()));
        let body = batch::body(&boundary, &requests);
        let ask = Ask {
            query: &[("restype", "container"), ("comp", "batch")],
            headers: vec![("content-type", format!("multipart/mixed; boundary={boundary}"))],
            payload: Payload::from(Bytes::from(body)),
            ..Ask::default()
        };
        let mut response = self.wire.send(OPERATION, "", Method::POST, ask).await?;
        if response.status != 202 {
            let failure = Failure::read(response).await;
            return match failure.verdict().0 {
                Kind::Unsupported => Ok(Batched::Never),
                Kind::Invalid | Kind::Conflict => Ok(Batched::NotThisOne),
                _ => Err(self.wire.failed(failure, OPERATION, "")),
            };
        }
        let named = |error: Error| self.wire.named(error, OPERATION, "");
        let kind = text_header(&response.headers, CONTENT_TYPE.as_str()).unwrap_or_default();
        let body = response.body.read_to_bytes(BATCH_ANSWER_BYTES_MAX).await.map_err(named)?;
        let answers = batch::parse(&kind, &body, keys.len()).map_err(named)?;
        let judged = answers.into_iter().zip(keys);
        Ok(Batched::Done(judged.map(|(failure, key)| self.judge(failure, key)).collect()))
    }

    fn judge(&self, failure: Option<Failure>, key: &str) -> Result<()> {
        match failure {
            None => Ok(()),
            Some(failure) if is_gone(&failure) => Ok(()),
            Some(failure) => Err(self.wire.failed(failure, "DELETE", key)),
        }
    }
}

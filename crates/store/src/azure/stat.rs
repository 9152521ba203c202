//! What the service says of a blob without sending it. Where HEAD is refused by what may not be the
//! service, a GET of one byte decides.

use super::AzureStore;
use super::wire::is_from_service;
use crate::answer::{FIRST_BYTE, Failure, is_no_answer, is_object, may_answer_get};
use crate::{GetRange, GetRequest, HttpResponse, ObjectMeta};
use ::http::Method;
use penstock_base::Result;
use std::sync::atomic::Ordering;

impl AzureStore {
    /// Size, tag and metadata of a blob.
    ///
    /// # Errors
    /// As [`crate::Store::stat`].
    pub(super) async fn stat_object(&self, key: &str) -> Result<ObjectMeta> {
        if self.head_refused.load(Ordering::Relaxed) {
            return self.stat_by_get(key).await;
        }
        let sent = self.wire.send("HEAD", key, Method::HEAD, Default::default()).await;
        let is_lasting = match sent {
            Ok(response) if is_object(response.status) => match self.told("HEAD", key, &response) {
                Ok(meta) => return Ok(meta),
                Err(error) if is_from_service(&response.headers) => return Err(error),
                Err(_) => true,
            },
            Ok(response) => {
                let is_marked = is_from_service(&response.headers);
                let failure = Failure::read(response).await;
                if !may_answer_get(&failure, is_marked) {
                    return Err(self.wire.failed(failure, "HEAD", key));
                }
                failure.status < 500 || failure.status == 501
            }
            // Where GET has no answer either, HEAD's error tells what was wanted.
            Err(error) if is_no_answer(&error) => {
                return match self.stat_by_get(key).await {
                    Err(other) if is_no_answer(&other) => Err(error),
                    answer => answer,
                };
            }
            Err(error) => return Err(error),
        };
        let meta = self.stat_by_get(key).await?;
        if is_lasting {
            self.head_refused.store(true, Ordering::Relaxed);
        }
        Ok(meta)
    }

    /// The same by a GET of one byte; of a blob without bytes, by one of all.
    async fn stat_by_get(&self, key: &str) -> Result<ObjectMeta> {
        let request = GetRequest::from(FIRST_BYTE);
        let response = self.ask(key, &request).await?;
        if !is_without_bytes(&response) {
            return self.answered(key, &request, response).await.map(|answer| answer.meta);
        }
        let request = GetRequest::from(GetRange::All);
        let response = self.ask(key, &request).await?;
        self.answered(key, &request, response).await.map(|answer| answer.meta)
    }
}

/// Whether an answer says that there is no first byte, in the words of the service or its emulator.
fn is_without_bytes(response: &HttpResponse) -> bool {
    response.status == 416 || response.status == 206 && super::is_without_bytes(response)
}

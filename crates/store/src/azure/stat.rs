//! What the service says of a blob without sending it.

use super::AzureStore;
use super::wire::is_from_service;
use crate::answer::{ByGet, FIRST_BYTE, Failure, is_object};
use crate::stat::{Look, NoHead};
use crate::{GetRange, GetRequest, HttpResponse, ObjectMeta};
use ::http::Method;
use async_trait::async_trait;
use penstock_base::Result;
use std::sync::atomic::AtomicBool;

#[async_trait]
impl Look for AzureStore {
    fn head_refused(&self) -> &AtomicBool {
        &self.head_refused
    }

    async fn ask_head(&self, key: &str) -> std::result::Result<ObjectMeta, NoHead> {
        let sent = self.wire.send("HEAD", key, Method::HEAD, Default::default()).await;
        let response =
            sent.map_err(|error| NoHead { by_get: ByGet::after_error(&error), error })?;
        let is_marked = is_from_service(&response.headers);
        if is_object(response.status) {
            let by_get = ByGet::after_strange(is_marked);
            return self.told("HEAD", key, &response).map_err(|error| NoHead { error, by_get });
        }
        let failure = Failure::read(response).await;
        let by_get = ByGet::after_refusal(&failure, is_marked);
        Err(NoHead { error: self.wire.failed(failure, "HEAD", key), by_get })
    }

    async fn first_byte(&self, key: &str) -> Result<Option<ObjectMeta>> {
        let request = GetRequest::from(FIRST_BYTE);
        let response = self.ask(key, &request).await?;
        if is_without_bytes(&response) {
            return Ok(None);
        }
        self.answered(key, &request, response).await.map(|answer| Some(answer.meta))
    }

    async fn no_bytes(&self, key: &str) -> Result<ObjectMeta> {
        let request = GetRequest::from(GetRange::All);
        let response = self.ask(key, &request).await?;
        self.answered(key, &request, response).await.map(|answer| answer.meta)
    }
}

/// Whether an answer says that there is no first byte, in the words of the service or its emulator.
fn is_without_bytes(response: &HttpResponse) -> bool {
    response.status == 416 || response.status == 206 && super::is_without_bytes(response)
}

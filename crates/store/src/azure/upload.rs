//! Uploads in parts: blocks that are invisible until a list of them is committed.

use super::block::Upload;
use super::wire::{Ask, META_PREFIX, UPLOAD_NONCE, put_result};
use super::{AzureStore, BLOCK_COUNT_MAX, drain};
use crate::answer::Failure;
use crate::{HttpResponse, Part, Payload, PutOptions, PutResult, UploadId};
use bytes::Bytes;
use http::Method;
use penstock_base::{Error, Kind, Result};

impl AzureStore {
    /// Put Block. An empty part is not sent, since the service refuses empty blocks.
    pub(super) async fn send_part(
        &self,
        key: &str,
        upload: &UploadId,
        number: u32,
        payload: Payload,
    ) -> Result<Part> {
        const OPERATION: &str = "upload part";
        let named = |error: Error| self.wire.named(error, OPERATION, key);
        if !(1..=BLOCK_COUNT_MAX).contains(&number) {
            let why = format!("part number {number} is outside 1 to {BLOCK_COUNT_MAX}");
            return Err(named(Error::new(Kind::Invalid, why)));
        }
        let upload = Upload::parse(upload).map_err(named)?;
        let part = Part { number, etag: String::new(), size_bytes: payload.len() };
        if payload.is_empty() {
            return Ok(part);
        }
        let id = upload.block_id(number);
        let query = [("comp", "block"), ("blockid", id.as_str())];
        let ask = Ask { query: &query, payload, ..Ask::default() };
        let response = self.wire.send(OPERATION, key, Method::PUT, ask).await?;
        if response.status != 201 {
            return Err(self.wire.refused(response, OPERATION, key).await);
        }
        drain(response).await.map_err(named)?;
        Ok(part)
    }

    /// Put Block List, and what its refusal means.
    pub(super) async fn complete(
        &self,
        key: &str,
        upload: &UploadId,
        parts: &[Part],
        options: &PutOptions,
    ) -> Result<PutResult> {
        const OPERATION: &str = "complete upload";
        let named = |error: Error| self.wire.named(error, OPERATION, key);
        let upload = Upload::parse(upload).map_err(named)?;
        if parts.windows(2).any(|pair| pair[0].number >= pair[1].number) {
            return Err(named(Error::new(Kind::Invalid, "the parts are out of order")));
        }
        let options = options.or_from(&upload.options());
        // Without blocks nothing in the commit tells that it was made before.
        if parts.iter().all(|part| part.size_bytes == 0)
            && let Committed::Ours(result) = self.committed_before(key, &upload).await?
        {
            return Ok(result);
        }
        let response = self.commit(key, &upload, parts, &options).await?;
        if response.status == 201 {
            let result = put_result(&response.headers);
            drain(response).await.map_err(named)?;
            return Ok(result);
        }
        let failure = Failure::read(response).await;
        let blocks_gone = failure.code == "InvalidBlockList";
        let is_refused = blocks_gone || failure.verdict().0 == Kind::Conflict;
        if !is_refused {
            return Err(self.wire.failed(failure, OPERATION, key));
        }
        match self.committed_before(key, &upload).await? {
            Committed::Ours(result) => Ok(result),
            Committed::Others if blocks_gone => Err(named(
                Error::new(
                    Kind::Conflict,
                    "another writer finished first; this upload's parts are gone",
                )
                .with_http_status(failure.status)
                .with_hint("Run again, and let each writer use names of its own"),
            )),
            Committed::Nothing if blocks_gone => Err(named(
                Error::new(Kind::NotFound, "parts of the upload are missing or have expired")
                    .with_http_status(failure.status),
            )),
            _ => Err(self.wire.failed(failure, OPERATION, key)),
        }
    }

    /// After a refused commit: whether the blob is the one that this upload made, so that only the
    /// answer had been lost.
    async fn committed_before(&self, key: &str, upload: &Upload) -> Result<Committed> {
        let response = self.wire.send("complete upload", key, Method::HEAD, Ask::default()).await?;
        match response.status {
            200 => {
                let name = format!("{META_PREFIX}{UPLOAD_NONCE}");
                let nonce = response.headers.get(name).and_then(|value| value.to_str().ok());
                if nonce == Some(upload.nonce_text().as_str()) {
                    Ok(Committed::Ours(put_result(&response.headers)))
                } else {
                    Ok(Committed::Others)
                }
            }
            404 => Ok(Committed::Nothing),
            _ => Err(self.wire.refused(response, "complete upload", key).await),
        }
    }

    async fn commit(
        &self,
        key: &str,
        upload: &Upload,
        parts: &[Part],
        options: &PutOptions,
    ) -> Result<HttpResponse> {
        let mut headers = vec![("x-ms-meta-penstock_upload", upload.nonce_text())];
        // An empty block is refused by the service, so it was never sent.
        let mut numbers = parts.iter().filter(|part| part.size_bytes > 0).map(|part| part.number);
        let Some(first) = numbers.next() else {
            headers.push(("x-ms-blob-type", "BlockBlob".to_string()));
            let ask = Ask { headers, options: Some(options), ..Ask::default() };
            return self.wire.send("complete upload", key, Method::PUT, ask).await;
        };
        let list = upload.block_list(std::iter::once(first).chain(numbers));
        headers.push(("content-type", "application/xml".to_string()));
        let ask = Ask {
            query: &[("comp", "blocklist")],
            headers,
            options: Some(options),
            payload: Payload::from(Bytes::from(list)),
            version: None,
        };
        self.wire.send("complete upload", key, Method::PUT, ask).await
    }
}

/// What has the upload's key.
enum Committed {
    Ours(PutResult),
    Others,
    Nothing,
}

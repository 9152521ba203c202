//! Uploads in parts: blocks that are invisible until a list of them is committed.

use super::block::{Blocks, Mark, Upload};
use super::delete::is_gone;
use super::wire::{Ask, META_PREFIX, UPLOAD_NONCE, is_from_service, put_result};
use super::{AzureStore, BLOCK_COUNT_MAX};
use crate::answer::Failure;
use crate::sums::split_tag;
use crate::{HttpResponse, Inflow, Part, Payload, PutOptions, PutResult, UploadId};
use bytes::Bytes;
use http::Method;
use penstock_base::{Error, Kind, Result};
use std::collections::HashSet;

/// Two lists of up to 100,000 blocks, with ids of up to 88 characters.
pub(super) const BLOCK_LIST_BYTES_MAX: usize = 32 << 20;

impl AzureStore {
    /// Put Block. An empty part is not sent, since the service refuses empty blocks.
    pub(super) async fn send_part(
        &self,
        key: &str,
        upload: &UploadId,
        number: u32,
        body: BlockBody,
    ) -> Result<Part> {
        const OPERATION: &str = "upload part";
        let named = |error: Error| self.wire.named(error, OPERATION, key);
        if !(1..=BLOCK_COUNT_MAX).contains(&number) {
            let why = format!("part number {number} is outside 1 to {BLOCK_COUNT_MAX}");
            return Err(named(Error::new(Kind::Invalid, why)));
        }
        let upload = self.upload(key, upload).map_err(named)?;
        let size_bytes = match &body {
            BlockBody::Held(payload) => payload.len(),
            BlockBody::Flowing(flow) => flow.size_bytes(),
        };
        let mark = if size_bytes == 0 { Mark::default() } else { upload.new_mark() };
        let part = Part { number, etag: upload.part_tag(number, size_bytes, mark), size_bytes };
        if size_bytes == 0 {
            return Ok(part);
        }
        let id = upload.block_id(number, mark);
        let query = [("comp", "block"), ("blockid", id.as_str())];
        let (payload, flow) = body.split();
        let ask = Ask { query: &query, payload, flow, ..Ask::default() };
        let response = self.wire.send(OPERATION, key, Method::PUT, ask).await?;
        if response.status != 201 {
            return Err(self.wire.refused(response, OPERATION, key).await);
        }
        self.acknowledged(response, OPERATION, key).await?;
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
        let upload = self.upload(key, upload).map_err(named)?;
        if parts.windows(2).any(|pair| pair[0].number >= pair[1].number) {
            return Err(named(Error::new(Kind::Invalid, "the parts are out of order")));
        }
        let options = options.or_from(&upload.options().map_err(named)?);
        // Without blocks nothing in the commit tells that it was made before.
        if parts.iter().all(|part| part.size_bytes == 0)
            && let Committed::Ours(result) = self.committed_before(key, &upload).await?
        {
            return Ok(result);
        }
        let Some(named_blocks) = named_blocks(&upload, parts) else {
            return match self.committed_before(key, &upload).await? {
                Committed::Ours(result) => Ok(result),
                other => Err(named(self.missing_parts(key, &upload, parts, &other).await?)),
            };
        };
        let response = self.commit(key, &upload, &named_blocks, &options).await?;
        if response.status == 201 {
            return self.written(response, OPERATION, key).await;
        }
        let failure = Failure::read(response).await;
        let blocks_gone = failure.code == "InvalidBlockList";
        let is_refused = blocks_gone || failure.verdict().0 == Kind::Conflict;
        if !is_refused {
            return Err(self.wire.failed(failure, OPERATION, key));
        }
        match self.committed_before(key, &upload).await? {
            Committed::Ours(result) => Ok(result),
            other if blocks_gone => {
                let error = self.missing_parts(key, &upload, parts, &other).await?;
                Err(named(error.with_http_status(failure.status)))
            }
            _ => Err(self.wire.failed(failure, OPERATION, key)),
        }
    }

    /// Why a commit found not all of its blocks (Get Block List).
    async fn missing_parts(
        &self,
        key: &str,
        upload: &Upload,
        parts: &[Part],
        there: &Committed,
    ) -> Result<Error> {
        let staged = self.staged("complete upload", key, upload).await?.parts;
        let there_are: HashSet<(u32, Mark)> =
            staged.iter().map(|block| (block.number, block.mark)).collect();
        let is_staged = |part: &Part| {
            upload.mark_of(part).is_some_and(|mark| there_are.contains(&(part.number, mark)))
        };
        let missing = parts.iter().filter(|part| part.size_bytes > 0).find(|it| !is_staged(it));
        // Whoever knows a part's tag staged it: if it is gone, another writer's commit dropped it.
        let was_staged = |part: &Part| {
            let mark = upload.mark_of(part);
            let tag = mark.map(|mark| upload.part_tag(part.number, part.size_bytes, mark));
            tag.is_some_and(|tag| tag == split_tag(&part.etag).0)
        };
        let dropped = |part: &Part| there.is_others() && was_staged(part);
        Ok(match (missing, there) {
            (Some(part), _) if !staged.is_empty() && !dropped(part) => {
                let number = part.number;
                let other = staged.iter().any(|block| block.number == number);
                let why = match other {
                    true => format!("part {number} was uploaded with another tag than this one"),
                    false => format!("part {number} was never uploaded"),
                };
                Error::new(Kind::Invalid, why).with_service_code("InvalidPart")
            }
            (_, Committed::Others) => {
                let why = "another writer finished first; this upload's parts are gone";
                Error::new(Kind::Conflict, why)
                    .with_service_code("InvalidPart")
                    .with_hint("Run again, and let each writer use names of its own")
            }
            _ => Error::new(Kind::NotFound, "the upload's parts are missing or have expired"),
        })
    }

    /// The blocks of an upload that wait for their commit (Get Block List).
    pub(super) async fn staged(
        &self,
        operation: &'static str,
        key: &str,
        upload: &Upload,
    ) -> Result<Blocks> {
        let query = [("comp", "blocklist"), ("blocklisttype", "uncommitted")];
        let ask = Ask { query: &query, ..Ask::default() };
        let mut response = self.wire.send(operation, key, Method::GET, ask).await?;
        if response.status == 200 {
            let body = response.body.read_to_bytes(BLOCK_LIST_BYTES_MAX).await;
            let blocks = body.and_then(|body| upload.blocks_in(&body));
            return blocks.map_err(|error| self.wire.named(error, operation, key));
        }
        let failure = Failure::read(response).await;
        // A blob without any block, finished or not.
        if is_gone(&failure) {
            return Ok(Blocks::default());
        }
        Err(self.wire.failed(failure, operation, key))
    }

    /// Reads an upload's id.
    ///
    /// # Errors
    /// `NotFound` when it is none of this key's.
    pub(super) fn upload(&self, key: &str, upload: &UploadId) -> Result<Upload> {
        Upload::parse(upload, &self.place(key))
    }

    /// Container and key, as upload ids are tied to them.
    pub(super) fn place(&self, key: &str) -> String {
        format!("{}/{key}", self.wire.address.container)
    }

    /// After a refused commit: whether the blob is the one that this upload made, so that only the
    /// answer had been lost.
    pub(super) async fn committed_before(&self, key: &str, upload: &Upload) -> Result<Committed> {
        let response = self.wire.send("complete upload", key, Method::HEAD, Ask::default()).await?;
        match response.status {
            200 if !is_from_service(&response.headers) => Err(self.foreign("complete upload", key)),
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
        blocks: &[(u32, Mark)],
        options: &PutOptions,
    ) -> Result<HttpResponse> {
        let mut headers = vec![("x-ms-meta-penstock_upload", upload.nonce_text())];
        if blocks.is_empty() {
            headers.push(("x-ms-blob-type", "BlockBlob".to_string()));
            let ask = Ask { headers, options: Some(options), ..Ask::default() };
            return self.wire.send("complete upload", key, Method::PUT, ask).await;
        }
        let list = upload.block_list(blocks.iter().copied());
        headers.push(("content-type", "application/xml".to_string()));
        let ask = Ask {
            query: &[("comp", "blocklist")],
            headers,
            options: Some(options),
            payload: Payload::from(Bytes::from(list)),
            ..Ask::default()
        };
        self.wire.send("complete upload", key, Method::PUT, ask).await
    }
}

/// The blocks that parts name by their tags; `None` where a tag is not this upload's. An empty
/// block is refused by the service, so it was never sent.
fn named_blocks(upload: &Upload, parts: &[Part]) -> Option<Vec<(u32, Mark)>> {
    let sent = parts.iter().filter(|part| part.size_bytes > 0);
    sent.map(|part| upload.mark_of(part).map(|mark| (part.number, mark))).collect()
}

/// The body of a block.
#[derive(Debug)]
pub(super) enum BlockBody {
    Held(Payload),
    Flowing(Box<dyn Inflow>),
}

impl BlockBody {
    /// What of it is held, and what is still to come.
    pub fn split(self) -> (Payload, Option<Box<dyn Inflow>>) {
        match self {
            BlockBody::Held(payload) => (payload, None),
            BlockBody::Flowing(flow) => (Payload::default(), Some(flow)),
        }
    }
}

/// What has the upload's key.
pub(super) enum Committed {
    Ours(PutResult),
    Others,
    Nothing,
}

impl Committed {
    fn is_others(&self) -> bool {
        matches!(self, Committed::Others)
    }
}

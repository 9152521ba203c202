//! Bodies that flow into a local bucket: staged as a hidden file, published or forgotten whole.
//!
//! A small body is only begun once it has come: one visit to a blocking thread then does it all.

use super::errno::explain;
use super::{LocalStore, Staged, upload, versioned_key, versions};
use crate::streaming::{
    Inflow, PartEntry, PartSink, Permit, Removed, Revision, StreamingStore, UploadsPage,
    UploadsRequest, Versioning, VersionsPage, VersionsRequest, next_piece, with_late,
};
use crate::sums::{Sum, sum_of_notes};
use crate::{
    ETag, Part, Payload, PutOptions, PutResult, Store, UploadId, WriteCondition, notes, tags,
};
use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{Kind, Result};

/// Largest body that waits for its end in memory; others collect as much before they are written.
const WHOLE_BYTES_MAX: u64 = 64 << 10;
/// Pieces of it at most: what comes in more comes slowly, and each takes memory of its own.
const WHOLE_PIECES_MAX: usize = 16;

/// Whether nothing has to be known of the place before the body's end: a condition that does not
/// hold is told at once.
fn can_wait(size_bytes: u64, options: &PutOptions) -> bool {
    size_bytes <= WHOLE_BYTES_MAX && options.condition == WriteCondition::None
}

/// The first pieces of a body, and whether they are all.
async fn first_pieces(body: &mut dyn Inflow) -> Result<(Vec<Bytes>, bool)> {
    let mut pieces = Vec::new();
    while pieces.len() < WHOLE_PIECES_MAX {
        match next_piece(body).await {
            Some(piece) => pieces.push(piece?),
            None => return Ok((pieces, true)),
        }
    }
    Ok((pieces, false))
}

/// Takes a body, and gives back what it told at its end.
async fn fill(staged: &mut Staged, mut body: Box<dyn Inflow>) -> Result<Vec<(String, String)>> {
    staged.fill(&mut *body).await?;
    Ok(body.late_metadata())
}

#[async_trait]
impl StreamingStore for LocalStore {
    async fn put_flow(
        &self,
        key: &str,
        mut body: Box<dyn Inflow>,
        options: &PutOptions,
    ) -> Result<PutResult> {
        let size_bytes = body.size_bytes();
        let mut begun = Vec::new();
        if can_wait(size_bytes, options) {
            let (pieces, is_whole) = first_pieces(&mut *body).await?;
            if is_whole {
                let options = with_late(options, body.late_metadata());
                return self.put(key, Payload(pieces), &options).await;
            }
            begun = pieces;
        }
        let mut staged = self.stage(key, Some(size_bytes), &options.condition).await?;
        for piece in begun {
            staged.hold(piece);
        }
        let late = fill(&mut staged, body).await?;
        staged.place(&with_late(options, late)).await
    }

    async fn part_flow(
        &self,
        key: &str,
        upload: &UploadId,
        number: u32,
        body: Box<dyn Inflow>,
    ) -> Result<Part> {
        let mut staged = self.stage_part(key, upload, number, Some(body.size_bytes())).await?;
        let late = fill(&mut staged, body).await?;
        staged.place_part(sum_of_notes(late)).await
    }

    async fn part_whole(
        &self,
        key: &str,
        upload: &UploadId,
        number: u32,
        payload: Payload,
        sum: Option<Sum>,
    ) -> Result<Part> {
        let id = upload.clone();
        self.run_at("upload part", key, move |shared, at| {
            upload::write_part(&shared.root, at, &id, number, (&payload, sum.as_ref()))
        })
        .await
    }

    async fn list_parts(&self, key: &str, upload: &UploadId) -> Result<Vec<PartEntry>> {
        let id = upload.clone();
        self.run_at("list parts", key, move |shared, location| {
            upload::list_parts(&shared.root, location, &id)
        })
        .await
    }

    async fn completed(&self, key: &str, upload: &UploadId) -> Result<Option<PutResult>> {
        let id = upload.clone();
        let found = self.run_at("complete upload", key, move |shared, location| {
            upload::completed_before(&shared.root, location, &id)
        });
        match found.await {
            Ok(result) => Ok(Some(result)),
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn read_parts(
        &self,
        key: &str,
        upload: &UploadId,
        parts: &[Part],
        mut sink: PartSink,
    ) -> Result<bool> {
        let (id, parts) = (upload.clone(), parts.to_vec());
        self.run_at("read parts", key, move |shared, location| {
            upload::read_parts(&shared.root, location, &id, &parts, &mut sink)?;
            Ok(true)
        })
        .await
    }

    async fn list_uploads(&self, request: &UploadsRequest) -> Result<UploadsPage> {
        let request = request.clone();
        self.run("list uploads", "", move |shared| upload::list(&shared.root, &request)).await
    }

    async fn begun_with(&self, key: &str, upload: &UploadId) -> Result<Vec<(String, String)>> {
        let id = upload.clone();
        self.run_at("read upload", key, move |shared, at| upload::begun_with(&shared.root, at, &id))
            .await
    }

    async fn discard_upload(&self, key: &str, upload: &UploadId) -> Result<()> {
        match self.list_parts(key, upload).await {
            // What it began with cannot be read: then nothing else helps.
            Err(error) if error.kind() != Kind::Corrupt => Err(error),
            _ => self.abort_upload(key, upload).await,
        }
    }

    fn has_tags(&self) -> bool {
        true
    }

    async fn tags(&self, key: &str) -> Result<Vec<(String, String)>> {
        let meta = self.stat(key).await?;
        let tagging = meta.metadata.iter().find(|(name, _)| name == notes::TAGGING);
        Ok(tagging.map(|(_, text)| tags::from_query(text)).unwrap_or_default())
    }

    async fn set_tags(&self, key: &str, tags: &[(String, String)]) -> Result<()> {
        let text = (!tags.is_empty()).then(|| tags::to_query(tags));
        self.revise(key, notes::TAGGING, Box::new(move |_| Ok(text.clone()))).await
    }

    fn can_revise(&self) -> bool {
        true
    }

    async fn revise(&self, key: &str, pair: &'static str, revision: Revision) -> Result<()> {
        let (key, version) = versioned_key(key);
        self.run_at("change metadata", key, move |shared, at| {
            versions::revise(&shared.root, at, version.as_deref(), (pair, &revision))
        })
        .await
    }

    async fn remove_permitted(
        &self,
        key: &str,
        version: &str,
        if_match: Option<&ETag>,
        permit: Permit,
    ) -> Result<Removed> {
        let (version, if_match) = (version.to_string(), if_match.cloned());
        self.run_at("DELETE", key, move |shared, at| {
            shared.remove(at, Some(&version), if_match.as_ref(), Some(&permit))
        })
        .await
    }

    fn has_versions(&self) -> bool {
        true
    }

    async fn versioning(&self) -> Result<Versioning> {
        if let Some(known) = versions::versioning_cached(&self.shared.root) {
            return Ok(known);
        }
        self.run("get versioning", "", |shared| {
            let asked = versions::versioning(&shared.root);
            asked.map_err(|errno| explain(errno, "read", &shared.root.path))
        })
        .await
    }

    async fn set_versioning(&self, is_enabled: bool) -> Result<()> {
        self.run("set versioning", "", move |shared| {
            let done = versions::set_versioning(&shared.root, is_enabled);
            done.map_err(|errno| explain(errno, "write", &shared.root.path))
        })
        .await
    }

    async fn list_versions(&self, request: &VersionsRequest) -> Result<VersionsPage> {
        let request = request.clone();
        self.run("list versions", "", move |shared| {
            // Its pages go on by name: nobody asks for the rest of a walk.
            let current = |page: &_| shared.list_once(page).map(|(page, _)| page);
            versions::list(&shared.root, &request, current)
        })
        .await
    }

    async fn remove(
        &self,
        key: &str,
        version: Option<&str>,
        if_match: Option<&ETag>,
    ) -> Result<Removed> {
        let (version, if_match) = (version.map(str::to_string), if_match.cloned());
        self.run_at("DELETE", key, move |shared, at| {
            shared.remove(at, version.as_deref(), if_match.as_ref(), None)
        })
        .await
    }
}

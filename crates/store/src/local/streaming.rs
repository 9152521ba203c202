//! Bodies that flow into a local bucket: staged as a hidden file, published or forgotten whole.

use super::{LocalStore, Staged, upload};
use crate::streaming::{Inflow, PartEntry, PartSink, StreamingStore, UploadEntry, next_piece};
use crate::{Part, PutOptions, PutResult, Store, UploadId};
use async_trait::async_trait;
use penstock_base::{Kind, Result};

async fn fill(staged: &mut Staged, mut body: Box<dyn Inflow>) -> Result<()> {
    while let Some(piece) = next_piece(&mut *body).await {
        staged.write(piece?).await?;
    }
    Ok(())
}

#[async_trait]
impl StreamingStore for LocalStore {
    async fn put_flow(
        &self,
        key: &str,
        body: Box<dyn Inflow>,
        options: &PutOptions,
    ) -> Result<PutResult> {
        let mut staged = self.stage(key, Some(body.size_bytes()), &options.condition).await?;
        fill(&mut staged, body).await?;
        staged.place(options).await
    }

    async fn part_flow(
        &self,
        key: &str,
        upload: &UploadId,
        number: u32,
        body: Box<dyn Inflow>,
    ) -> Result<Part> {
        let mut staged = self.stage_part(key, upload, number, Some(body.size_bytes())).await?;
        fill(&mut staged, body).await?;
        staged.place_part().await
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

    async fn list_uploads(&self, prefix: &str) -> Result<Vec<UploadEntry>> {
        let prefix = prefix.to_string();
        self.run("list uploads", "", move |shared| {
            let mut uploads = upload::list(&shared.root)?;
            uploads.retain(|upload| upload.key.starts_with(&prefix));
            Ok(uploads)
        })
        .await
    }

    async fn discard_upload(&self, key: &str, upload: &UploadId) -> Result<()> {
        self.list_parts(key, upload).await?;
        self.abort_upload(key, upload).await
    }
}

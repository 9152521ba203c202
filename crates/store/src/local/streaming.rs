//! Bodies that flow into a local bucket: staged as a hidden file, published or forgotten whole.

use super::{LocalStore, Staged};
use crate::streaming::{
    CopySource, Inflow, PartEntry, PartSink, StreamingStore, UploadEntry, next_piece, unsupported,
};
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

    fn judges_parts(&self) -> bool {
        false
    }

    async fn list_parts(&self, key: &str, upload: &UploadId) -> Result<Vec<PartEntry>> {
        LocalStore::list_parts(self, key, upload).await
    }

    async fn completed(&self, key: &str, upload: &UploadId) -> Result<Option<PutResult>> {
        match LocalStore::completed(self, key, upload).await {
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
        sink: PartSink,
    ) -> Result<bool> {
        let each = |sink: &mut PartSink, bytes: &[u8]| sink(bytes);
        drop(LocalStore::read_parts(self, key, upload, parts, sink, each).await?);
        Ok(true)
    }

    async fn list_uploads(&self, prefix: &str) -> Result<Vec<UploadEntry>> {
        let mut uploads = LocalStore::list_uploads(self).await?;
        uploads.retain(|upload| upload.key.starts_with(prefix));
        Ok(uploads)
    }

    async fn discard_upload(&self, key: &str, upload: &UploadId) -> Result<()> {
        LocalStore::list_parts(self, key, upload).await?;
        self.abort_upload(key, upload).await
    }

    async fn copy_version(
        &self,
        _source: &CopySource,
        _to: &str,
        _options: &PutOptions,
    ) -> Result<Option<PutResult>> {
        Ok(None)
    }

    async fn copy_part(
        &self,
        _source: &CopySource,
        _key: &str,
        _upload: &UploadId,
        _number: u32,
    ) -> Result<Option<Part>> {
        Ok(None)
    }

    fn has_tags(&self) -> bool {
        false
    }

    async fn tags(&self, _key: &str) -> Result<Vec<(String, String)>> {
        Err(unsupported(self, "get tags", "object tags"))
    }

    async fn set_tags(&self, _key: &str, _tags: &[(String, String)]) -> Result<()> {
        Err(unsupported(self, "set tags", "object tags"))
    }
}

//! Bodies that flow into memory, and accounts of stores there.

use super::{MemoryStore, State, Upload};
use crate::streaming::{
    Inflow, PartEntry, PartSink, StreamingStore, UploadEntry, UploadsPage, UploadsRequest, collect,
    uploads_behind, with_late,
};
use crate::sums::{Sum, split_tag, sum_of_notes};
use crate::{Account, ContainerEntry, Part, Payload, PutOptions, PutResult, Store, UploadId};
use async_trait::async_trait;
use penstock_base::{Error, Kind, Result};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

impl MemoryStore {
    fn upload<'a>(
        &self,
        state: &'a State,
        operation: &'static str,
        key: &str,
        upload: &UploadId,
    ) -> Result<&'a Upload> {
        let found = state.uploads.get(&upload.0).filter(|found| found.key == key);
        found.ok_or_else(|| self.error(Kind::NotFound, operation, key, "no such upload"))
    }
}

#[async_trait]
impl StreamingStore for MemoryStore {
    async fn put_flow(
        &self,
        key: &str,
        mut body: Box<dyn Inflow>,
        options: &PutOptions,
    ) -> Result<PutResult> {
        let bytes = collect(&mut *body).await?;
        let options = with_late(options, body.late_metadata());
        self.put(key, bytes.into(), &options).await
    }

    async fn part_flow(
        &self,
        key: &str,
        upload: &UploadId,
        number: u32,
        mut body: Box<dyn Inflow>,
    ) -> Result<Part> {
        let bytes = collect(&mut *body).await?;
        let sum = sum_of_notes(body.late_metadata());
        self.keep_part(key, upload, number, (&bytes.into(), sum.as_ref()))
    }

    async fn part_whole(
        &self,
        key: &str,
        upload: &UploadId,
        number: u32,
        payload: Payload,
        sum: Option<Sum>,
    ) -> Result<Part> {
        self.keep_part(key, upload, number, (&payload, sum.as_ref()))
    }

    async fn list_parts(&self, key: &str, upload: &UploadId) -> Result<Vec<PartEntry>> {
        let state = self.state();
        let found = self.upload(&state, "list parts", key, upload)?;
        let entry = |(number, (etag, bytes)): (&u32, &(String, bytes::Bytes))| PartEntry {
            number: *number,
            etag: etag.clone(),
            size_bytes: bytes.len() as u64,
            modified: None,
            sum: split_tag(etag).1,
        };
        Ok(found.parts.iter().map(entry).collect())
    }

    async fn completed(&self, key: &str, upload: &UploadId) -> Result<Option<PutResult>> {
        let state = self.state();
        let made = state.objects.get(key);
        let made = made.filter(|it| it.made_by_upload.as_deref() == Some(upload.0.as_str()));
        Ok(made.map(|object| super::written(&object.meta)))
    }

    async fn read_parts(
        &self,
        key: &str,
        upload: &UploadId,
        parts: &[Part],
        mut sink: PartSink,
    ) -> Result<bool> {
        let state = self.state();
        let found = self.upload(&state, "read parts", key, upload)?;
        for part in parts {
            let (_, bytes) = found.parts.get(&part.number).ok_or_else(|| {
                let why = format!("part {} is not there", part.number);
                self.error(Kind::Invalid, "read parts", key, &why)
            })?;
            sink(bytes);
        }
        Ok(true)
    }

    async fn list_uploads(&self, request: &UploadsRequest) -> Result<UploadsPage> {
        let state = self.state();
        let entry = |(id, found): (&String, &Upload)| UploadEntry {
            key: found.key.clone(),
            id: UploadId(id.clone()),
            begun: None,
            metadata: found.options.metadata.clone(),
        };
        Ok(uploads_behind(state.uploads.iter().map(entry).collect(), request))
    }

    async fn begun_with(&self, key: &str, upload: &UploadId) -> Result<Vec<(String, String)>> {
        let state = self.state();
        Ok(self.upload(&state, "read upload", key, upload)?.options.metadata.clone())
    }

    async fn discard_upload(&self, key: &str, upload: &UploadId) -> Result<()> {
        StreamingStore::list_parts(self, key, upload).await?;
        self.abort_upload(key, upload).await
    }

    fn has_tags(&self) -> bool {
        true
    }

    async fn tags(&self, key: &str) -> Result<Vec<(String, String)>> {
        let state = self.state();
        let object = state.objects.get(key).ok_or_else(|| self.not_found("get tags", key))?;
        Ok(object.tags.clone())
    }

    async fn set_tags(&self, key: &str, tags: &[(String, String)]) -> Result<()> {
        let mut state = self.state();
        let object = state.objects.get_mut(key);
        let object = object.ok_or_else(|| self.not_found("set tags", key))?;
        object.tags = tags.to_vec();
        super::count_tags(&mut object.meta, tags);
        Ok(())
    }
}

/// Containers in this process's memory: those of one account are nobody else's.
#[derive(Debug, Default)]
pub struct MemoryAccount {
    containers: Mutex<BTreeMap<String, Arc<MemoryStore>>>,
}

impl MemoryAccount {
    /// An account with these containers.
    pub fn with_containers<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let made = |name: &str| (name.to_string(), Arc::new(MemoryStore::new(name)));
        MemoryAccount { containers: Mutex::new(names.into_iter().map(made).collect()) }
    }

    fn containers(&self) -> MutexGuard<'_, BTreeMap<String, Arc<MemoryStore>>> {
        self.containers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, container: &str) -> Result<Arc<MemoryStore>> {
        let found = self.containers().get(container).cloned();
        found.ok_or_else(|| {
            Error::new(Kind::NotFound, "the container does not exist")
                .with_object(format!("mem://{container}/"))
                .with_service_code("ContainerNotFound")
        })
    }
}

#[async_trait]
impl Account for MemoryAccount {
    async fn open(&self, container: &str) -> Result<Arc<dyn StreamingStore>> {
        Ok(self.get(container)?)
    }

    async fn check(&self, container: &str) -> Result<()> {
        self.get(container).map(drop)
    }

    async fn list(&self) -> Result<Vec<ContainerEntry>> {
        let entry = |name: &String| ContainerEntry { name: name.clone(), created: None };
        Ok(self.containers().keys().map(entry).collect())
    }

    async fn create(&self, container: &str) -> Result<()> {
        let new = || Arc::new(MemoryStore::new(container));
        self.containers().entry(container.to_string()).or_insert_with(new);
        Ok(())
    }

    async fn delete(&self, container: &str) -> Result<()> {
        let store = self.get(container)?;
        let mut containers = self.containers();
        if !store.state().objects.is_empty() {
            return Err(Error::new(Kind::Conflict, "the container is not empty")
                .with_service_code("BucketNotEmpty"));
        }
        containers.remove(container);
        Ok(())
    }
}

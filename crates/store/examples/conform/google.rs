//! Places objects by Google's JSON API, for emulators of it whose XML API only reads.

use async_trait::async_trait;
use penstock_base::{Error, Kind, Result};
use penstock_store::{
    Capabilities, ETag, GetRequest, GetResponse, HttpClient, ListPage, ListRequest, ObjectMeta,
    Part, Payload, Profile, PutOptions, PutResult, Store, UploadId,
};
use std::fmt::Write as _;
use std::sync::Arc;

/// Writes to one bucket, and does nothing else.
#[derive(Debug)]
pub struct JsonWriter {
    examined: Arc<dyn Store>,
    http: HttpClient,
    /// Up to the object's name, which is a parameter.
    url: String,
}

impl JsonWriter {
    /// `base` is the bucket's URL: `http://127.0.0.1:4443/bucket`.
    pub fn new(examined: Arc<dyn Store>, http: HttpClient, base: &str) -> Option<Self> {
        let (server, bucket) = base.trim_end_matches('/').rsplit_once('/')?;
        let url = format!("{server}/upload/storage/v1/b/{bucket}/o?uploadType=media&name=");
        Some(JsonWriter { examined, http, url })
    }
}

fn unsupported<T>() -> Result<T> {
    Err(Error::new(Kind::Unsupported, "this only places objects"))
}

#[async_trait]
impl Store for JsonWriter {
    fn root(&self) -> &str {
        self.examined.root()
    }

    fn origin(&self) -> Option<String> {
        None
    }

    fn profile(&self) -> Profile {
        self.examined.profile()
    }

    fn capabilities(&self) -> Capabilities {
        self.examined.capabilities()
    }

    async fn put(&self, key: &str, payload: Payload, _: &PutOptions) -> Result<PutResult> {
        let mut url = self.url.clone();
        for byte in key.bytes() {
            write!(url, "%{byte:02X}").expect("a String takes text");
        }
        let request = http::Request::post(url).body(()).expect("an encoded URL is one");
        let answer = self.http.send(request.into_parts().0, payload).await?;
        match answer.status {
            200 => Ok(PutResult::default()),
            status => Err(Error::new(Kind::Unavailable, format!("the server answered {status}"))),
        }
    }

    async fn get(&self, _: &str, _: GetRequest) -> Result<GetResponse> {
        unsupported()
    }

    async fn stat(&self, _: &str) -> Result<ObjectMeta> {
        unsupported()
    }

    async fn list(&self, _: ListRequest) -> Result<ListPage> {
        unsupported()
    }

    async fn create_upload(&self, _: &str, _: &PutOptions) -> Result<UploadId> {
        unsupported()
    }

    async fn upload_part(&self, _: &str, _: &UploadId, _: u32, _: Payload) -> Result<Part> {
        unsupported()
    }

    async fn complete_upload(
        &self,
        _: &str,
        _: &UploadId,
        _: &[Part],
        _: &PutOptions,
    ) -> Result<PutResult> {
        unsupported()
    }

    async fn abort_upload(&self, _: &str, _: &UploadId) -> Result<()> {
        unsupported()
    }

    async fn delete(&self, _: &str, _: Option<&ETag>) -> Result<()> {
        unsupported()
    }

    async fn delete_batch(&self, _: &[String]) -> Result<Vec<Result<()>>> {
        unsupported()
    }

    async fn copy(&self, _: &str, _: &str, _: &PutOptions) -> Result<PutResult> {
        unsupported()
    }
}

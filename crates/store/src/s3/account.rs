//! An account of an S3 service whose buckets are stores.

use super::config::{self, S3Config, Service};
use super::request::{Call, Outcome};
use super::streaming::is_own_bucket;
use super::{ANSWER_BYTES_MAX, S3Store, replies};
use crate::options::{Family, StoreOptions};
use crate::streaming::StreamingStore;
use crate::{Account, ContainerEntry, HttpClient, Payload};
use ::http::Method;
use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::Result;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Buckets kept open. Their names come from clients, so there may be any number.
const OPEN_MAX: usize = 1024;

/// One account (or one set of credentials) of one service.
#[derive(Debug)]
pub struct S3Account {
    scheme: String,
    options: StoreOptions,
    http: HttpClient,
    open: Mutex<HashMap<String, Arc<S3Store>>>,
}

impl S3Account {
    /// The account of these options; sends nothing.
    ///
    /// # Errors
    /// `Invalid` for options that cannot be.
    pub fn new(http: &HttpClient, scheme: &str, options: &StoreOptions) -> Result<Self> {
        let account = S3Account {
            scheme: scheme.to_string(),
            options: options.clone(),
            http: crate::open::client_for(Family::S3, options, http)?,
            open: Mutex::default(),
        };
        account.config("bucket")?;
        Ok(account)
    }

    fn config(&self, bucket: &str) -> Result<S3Config> {
        let environment = |name: &str| std::env::var(name).ok();
        config::read(&self.scheme, bucket, &self.options, &environment)
    }

    fn store(&self, bucket: &str) -> Result<Arc<S3Store>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = open.get(bucket) {
            return Ok(store.clone());
        }
        if open.len() >= OPEN_MAX {
            open.clear();
        }
        let store = Arc::new(S3Store::new(self.config(bucket)?, self.http.clone())?);
        open.insert(bucket.to_string(), store.clone());
        Ok(store)
    }
}

#[async_trait]
impl Account for S3Account {
    async fn open(&self, container: &str) -> Result<Arc<dyn StreamingStore>> {
        Ok(self.store(container)?)
    }

    async fn check(&self, container: &str) -> Result<()> {
        self.store(container)?.check_bucket().await
    }

    async fn list(&self) -> Result<Vec<ContainerEntry>> {
        // A bucket without a name is the service.
        let mut config = self.config("service")?;
        config.bucket = String::new();
        config.root = format!("{}://", self.scheme);
        let service = S3Store::new(config, self.http.clone())?;
        let call = Call::new(Method::GET, "list buckets", None);
        let mut response = service.sender.done(&call).await?;
        let body = response.body.read_to_bytes(ANSWER_BYTES_MAX).await;
        let entries = body.and_then(|body| replies::parse_buckets(&body));
        let mut entries = entries.map_err(|error| service.named(&call, error))?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    async fn create(&self, container: &str) -> Result<()> {
        let store = self.store(container)?;
        let config = &store.sender.config;
        let region = config.region.as_deref().filter(|region| *region != "us-east-1");
        make(&store, region.filter(|_| config.service == Service::Aws)).await
    }

    /// Buckets of Amazon are in the region that the options name.
    fn places_containers(&self) -> bool {
        matches!(self.scheme.as_str(), "gs" | "gcs")
    }

    async fn create_at(&self, container: &str, location: &str) -> Result<()> {
        make(&*self.store(container)?, Some(location)).await
    }

    async fn location(&self, container: &str) -> Result<String> {
        let store = self.store(container)?;
        let call = Call::new(Method::GET, "bucket location", None).query("location", "");
        let location = replies::parse_location(&store.answer(&call).await?);
        location.map_err(|error| store.named(&call, error))
    }

    async fn delete(&self, container: &str) -> Result<()> {
        let store = self.store(container)?;
        let call = Call::new(Method::DELETE, "delete bucket", None);
        let response = store.sender.done(&call).await?;
        store.sender.removed(&call, response).await
    }
}

/// Makes a bucket, at a place that the service may be told.
async fn make(store: &S3Store, location: Option<&str>) -> Result<()> {
    let mut call = Call::new(Method::PUT, "create bucket", None);
    if let Some(location) = location {
        let body = format!(
            "<CreateBucketConfiguration><LocationConstraint>{}</LocationConstraint>\
             </CreateBucketConfiguration>",
            crate::xml::escape(location)
        );
        call = call.payload(Payload::from(Bytes::from(body)));
    }
    match store.sender.send(&call).await? {
        Outcome::Done(_) => Ok(()),
        Outcome::Refused { failure, .. } if is_own_bucket(&failure) => Ok(()),
        Outcome::Refused { failure, .. } => Err(store.sender.refusal(&call, failure)),
    }
}

//! An account of an S3 service whose buckets are stores.

use super::auth::Auth;
use super::config::{self, S3Config, Service};
use super::request::{Call, Outcome, first_region};
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
    /// All buckets are asked for with the same credentials, which are found once.
    auth: Auth,
    open: Mutex<HashMap<String, Arc<S3Store>>>,
}

impl S3Account {
    /// The account of these options; sends nothing.
    ///
    /// # Errors
    /// `Invalid` for options that cannot be.
    pub fn new(http: &HttpClient, scheme: &str, options: &StoreOptions) -> Result<Self> {
        let http = crate::open::client_for(Family::S3, options, http)?;
        let config = read(scheme, "bucket", options)?;
        Ok(S3Account {
            scheme: scheme.to_string(),
            options: options.clone(),
            auth: Auth::new(&config.access, first_region(&config), &http),
            http,
            open: Mutex::default(),
        })
    }

    fn config(&self, bucket: &str) -> Result<S3Config> {
        read(&self.scheme, bucket, &self.options)
    }

    fn bucket(&self, config: S3Config) -> S3Store {
        S3Store::new(config, self.http.clone(), self.auth.clone())
    }

    fn store(&self, bucket: &str) -> Result<Arc<S3Store>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = open.get(bucket) {
            return Ok(store.clone());
        }
        if open.len() >= OPEN_MAX {
            open.clear();
        }
        let store = Arc::new(self.bucket(self.config(bucket)?));
        open.insert(bucket.to_string(), store.clone());
        Ok(store)
    }
}

#[async_trait]
impl Account for S3Account {
    async fn open(&self, container: &str) -> Result<Arc<dyn StreamingStore>> {
        Ok(self.store(container)?)
    }

    fn apart(&self, connections_per_host: usize) -> Option<Arc<dyn Account>> {
        Some(Arc::new(S3Account {
            scheme: self.scheme.clone(),
            options: self.options.clone(),
            http: self.http.apart(connections_per_host),
            auth: self.auth.clone(),
            open: Mutex::default(),
        }))
    }

    async fn check(&self, container: &str) -> Result<()> {
        self.store(container)?.check_bucket().await
    }

    async fn list(&self) -> Result<Vec<ContainerEntry>> {
        // A bucket without a name is the service.
        let mut config = self.config("service")?;
        config.bucket = String::new();
        config.root = format!("{}://", self.scheme);
        let service = self.bucket(config);
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
        store.sender.acknowledged(&call, response).await
    }
}

fn read(scheme: &str, bucket: &str, options: &StoreOptions) -> Result<S3Config> {
    let given = (&StoreOptions::default(), options);
    let config = config::read(scheme, bucket, given, &|name: &str| std::env::var(name).ok())?;
    // Who runs a gateway means its credentials, wherever they stand.
    Ok(S3Config { environment: None, ..config })
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
        Outcome::Done(response) => store.sender.acknowledged(&call, response).await,
        Outcome::Refused { failure, .. } if is_own_bucket(&failure) => Ok(()),
        Outcome::Refused { failure, .. } => Err(store.sender.refusal(&call, failure)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::token_service::{TokenService, context};
    use crate::s3::config::{Access, ChainSource, ChainSpec};
    use crate::{HttpOptions, Observer, RequestEvent};

    #[derive(Debug)]
    struct Deaf;

    impl Observer for Deaf {
        fn request_finished(&self, _event: RequestEvent) {}
    }

    #[tokio::test]
    async fn all_buckets_and_who_asks_apart_have_credentials_that_were_found_once() {
        let tokens = TokenService::start(|_| {
            let key = r#""AccessKeyId":"FOUND","SecretAccessKey":"hunter2","Token":"t""#;
            (200, format!(r#"{{{key},"Expiration":"2100-01-01T00:00:00Z"}}"#))
        });
        let tokens = tokens.await;
        let service = TokenService::start(|_| (200, String::new())).await;
        let pairs = [("endpoint", service.url.as_str()), ("url_style", "path")];
        let options = StoreOptions::new(pairs).unwrap();
        let http = HttpClient::new(HttpOptions::default(), Arc::new(Deaf)).unwrap();
        let mut account = S3Account::new(&http, "s3", &options).unwrap();
        let metadata = [("AWS_CONTAINER_CREDENTIALS_FULL_URI", tokens.url.as_str())];
        let chain = ChainSpec { sources: vec![ChainSource::Metadata], ..ChainSpec::default() };
        let access = Access::AwsChain { chain, fallback: None };
        account.auth = Auth::in_context(&access, "us-east-1", context(None, None, &metadata));
        let apart = account.apart(2).unwrap();
        apart.check("one").await.unwrap();
        for bucket in ["one", "two"] {
            account.check(bucket).await.unwrap();
        }
        let seen = service.seen();
        assert!(seen.len() == 3 && seen.iter().all(|head| head.contains("FOUND/")), "{seen:?}");
        assert_eq!(tokens.seen().len(), 1);
    }
}

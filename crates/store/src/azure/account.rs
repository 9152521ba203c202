//! A storage account whose containers are stores.

use super::list::{corrupt, parse_containers};
use super::wire::{Ask, Wire};
use super::{Address, AzureStore, LIST_BYTES_MAX, sas};
use crate::answer::Failure;
use crate::options::{Family, StoreOptions};
use crate::streaming::{StreamingStore, VersionsRequest};
use crate::{Account, ContainerEntry, HttpClient, Progress, Store as _};
use async_trait::async_trait;
use http::Method;
use penstock_base::{Error, Kind, Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Containers kept open. Their names come from clients, so there may be any number.
const OPEN_MAX: usize = 1024;

/// One storage account. Its containers share credentials and tokens.
#[derive(Debug)]
pub struct AzureAccount {
    /// What stands before a container's name in URLs.
    base: String,
    wire: Wire,
    open: Mutex<HashMap<String, Arc<AzureStore>>>,
}

impl AzureAccount {
    /// The account of the options (`az://`), or the one that the URL names
    /// (`az://account.blob.core.windows.net/`). Sends nothing.
    ///
    /// # Errors
    /// `Invalid` for a malformed URL or option, or when no account is known.
    pub fn new(client: &HttpClient, url: &str, options: &StoreOptions) -> Result<Self> {
        let (place, query) = match sas::split(url) {
            Some((place, query)) => (place, format!("?{query}")),
            None => (url, String::new()),
        };
        let base = if place.ends_with('/') { place.to_string() } else { format!("{place}/") };
        let address = Address::parse(&format!("{base}container{query}"))?;
        if address.container != "container" || !address.key.is_empty() {
            return Err(Error::new(Kind::Invalid, "the URL names more than an account")
                .with_object(url)
                .with_hint("Write az:// or az://account.blob.core.windows.net/"));
        }
        let client = crate::open::client_for(Family::Azure, options, client)?;
        let wire = Wire::new(client, address, options)
            .map_err(|error| error.with_object(url))?
            .for_container("", base.clone());
        Ok(AzureAccount { base, wire, open: Mutex::default() })
    }

    fn store(&self, container: &str) -> Arc<AzureStore> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = open.get(container) {
            return store.clone();
        }
        if open.len() >= OPEN_MAX {
            open.clear();
        }
        let root = format!("{}{container}/", self.base);
        let store = Arc::new(AzureStore::over(self.wire.for_container(container, root)));
        open.insert(container.to_string(), store.clone());
        store
    }

    async fn expect(
        &self,
        container: &str,
        operation: &'static str,
        method: Method,
        status: u16,
    ) -> Result<()> {
        let store = self.store(container);
        let ask = Ask { query: &[("restype", "container")], ..Ask::default() };
        let response = store.wire.send(operation, "", method, ask).await?;
        if response.status == status {
            return store.acknowledged(response, operation, "").await;
        }
        Err(store.wire.refused(response, operation, "").await)
    }
}

#[async_trait]
impl Account for AzureAccount {
    async fn open(&self, container: &str) -> Result<Arc<dyn StreamingStore>> {
        Ok(self.store(container))
    }

    fn apart(&self, connections_per_host: usize) -> Option<Arc<dyn Account>> {
        let base = self.base.clone();
        let wire = self.wire.for_container("", base.clone()).apart(connections_per_host);
        Some(Arc::new(AzureAccount { base, wire, open: Mutex::default() }))
    }

    async fn check(&self, container: &str) -> Result<()> {
        let checked = self.expect(container, "check container", Method::HEAD, 200).await;
        // An answer to HEAD may tell no code, and there is nothing else that could be missing.
        checked.map_err(|error| match error.kind() {
            Kind::NotFound => error.with_service_code("ContainerNotFound"),
            _ => error,
        })
    }

    async fn list(&self) -> Result<Vec<ContainerEntry>> {
        const OPERATION: &str = "list containers";
        let path = format!("{}/", self.wire.config.endpoint.base_path);
        let (mut entries, mut marker) = (Vec::new(), String::new());
        let mut progress = Progress::default();
        loop {
            let mut query = vec![("comp", "list")];
            if !marker.is_empty() {
                query.push(("marker", marker.as_str()));
            }
            let ask = Ask { query: &query, ..Ask::default() };
            let mut response = self.wire.send_to(OPERATION, "", Method::GET, &path, ask).await?;
            if response.status != 200 {
                let failure = Failure::read(response).await;
                return Err(self.wire.failed(failure, OPERATION, ""));
            }
            let body = response.body.read_to_bytes(LIST_BYTES_MAX).await;
            let page = body.and_then(|body| parse_containers(&body));
            let (found, next) = page.map_err(|error| self.wire.named(error, OPERATION, ""))?;
            entries.extend(found);
            let Some(next) = next else { break };
            let endless = |did| self.wire.named(corrupt(&format!("it {did}")), OPERATION, "");
            progress.go_on(&next).map_err(endless)?;
            marker = next;
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    async fn create(&self, container: &str) -> Result<()> {
        self.store(container).create_container().await
    }

    /// The service removes a container with all that is in it, so what is in it is asked first,
    /// versions included. A blob that comes between the two requests goes too.
    async fn delete(&self, container: &str) -> Result<()> {
        let store = self.store(container);
        let first = VersionsRequest { max: 1, ..VersionsRequest::default() };
        if !store.list_versions(&first).await?.versions.is_empty() {
            return Err(Error::new(Kind::Conflict, "the container is not empty")
                .with_operation("delete container")
                .with_object(store.root())
                .with_service_code("BucketNotEmpty"));
        }
        self.expect(container, "delete container", Method::DELETE, 202).await
    }
}

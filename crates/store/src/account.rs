//! The containers of an account, which a gateway makes, lists and removes.

use crate::streaming::StreamingStore;
use async_trait::async_trait;
use penstock_base::{Error, Kind, Result};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::SystemTime;

/// One container of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerEntry {
    /// Its name.
    pub name: String,
    /// When it was made, where the account knows.
    pub created: Option<SystemTime>,
}

/// An account whose containers (S3 and Google: buckets; a directory: its subdirectories) are
/// stores.
#[async_trait]
pub trait Account: Send + Sync + Debug {
    /// The store of a container. The same store again as long as the container is the same.
    ///
    /// # Errors
    /// `Invalid` for a name that no container can have; `NotFound` only where asking costs nothing.
    async fn open(&self, container: &str) -> Result<Arc<dyn StreamingStore>>;

    /// Whether the container is there.
    ///
    /// # Errors
    /// `NotFound`, `Denied`.
    async fn check(&self, container: &str) -> Result<()>;

    /// The same account over connections of its own, at most so many to each host. Credentials are
    /// fetched once for both. `None` where there are no connections.
    fn apart(&self, _connections_per_host: usize) -> Option<Arc<dyn Account>> {
        None
    }

    /// Whether its containers answer so to [`StreamingStore::can_revise`].
    fn can_revise(&self) -> bool {
        false
    }

    /// All containers, in byte order of their names.
    ///
    /// # Errors
    /// `Denied`, `Unsupported`.
    async fn list(&self) -> Result<Vec<ContainerEntry>>;

    /// Makes a container; making one that is there succeeds.
    ///
    /// # Errors
    /// `Invalid` for its name, `Conflict` when it is somebody else's.
    async fn create(&self, container: &str) -> Result<()>;

    /// Whether the service puts a container where it is told, and tells where it is.
    fn places_containers(&self) -> bool {
        false
    }

    /// Makes a container at a place of the service's, such as `EU`.
    ///
    /// # Errors
    /// As [`Account::create`]; `Invalid` for a place that there is not; `Unsupported` where
    /// [`Account::places_containers`] says no.
    async fn create_at(&self, container: &str, _location: &str) -> Result<()> {
        Err(no_places(container))
    }

    /// Where a container is.
    ///
    /// # Errors
    /// `NotFound`; `Unsupported` where [`Account::places_containers`] says no.
    async fn location(&self, container: &str) -> Result<String> {
        Err(no_places(container))
    }

    /// Removes a container without objects.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` while there are objects in it.
    async fn delete(&self, container: &str) -> Result<()>;
}

fn no_places(container: &str) -> Error {
    Error::new(Kind::Unsupported, "containers have no place here").with_object(container)
}

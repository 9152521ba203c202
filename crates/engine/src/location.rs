//! Where an object is: a store that the engine opened once, and a key in it.

use penstock_base::Result;
use penstock_store::{Capabilities, Profile, Store};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// One store option: a pair of a secret, or of DuckDB's `s3_*` and `azure_*` settings.
pub type StoreOption = (String, String);

/// Makes a store from a URL and its options. The engine's own opener knows every scheme; tests
/// bring theirs.
pub trait Opener: Send + Sync + std::fmt::Debug {
    /// The store that the URL lies in, and the URL's key in it.
    ///
    /// # Errors
    /// `Invalid` for a malformed URL or option, `Unsupported` for an unknown scheme.
    fn open(&self, url: &str, options: &[StoreOption]) -> Result<(Arc<dyn Store>, String)>;
}

/// A store as the engine holds it: opened once for a root and its options, then shared, so that
/// connections, tokens and remembered metadata are shared too.
#[derive(Debug)]
pub struct Mount {
    pub(crate) id: u64,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) profile: Profile,
    pub(crate) capabilities: Capabilities,
}

impl Mount {
    /// The store, for verbs that carry no policy (a gateway's tags and multipart staging).
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// What the store can do.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// How the store likes to be asked.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The object of a key.
    pub fn at(self: &Arc<Self>, key: impl Into<String>) -> Location {
        Location { mount: Arc::clone(self), key: key.into(), prefix: self.store.root().into() }
    }
}

/// A named object, present or not. For listings the key is a prefix, for globs a pattern.
#[derive(Clone, Debug)]
pub struct Location {
    pub(crate) mount: Arc<Mount>,
    pub(crate) key: String,
    /// What stands before the key in URLs, spelt as the caller did (`s3a://`, `azure://`).
    prefix: Arc<str>,
}

impl Location {
    /// The URL, spelt as the caller spells this store.
    pub fn url(&self) -> String {
        format!("{}{}", self.prefix, self.key)
    }

    /// The key inside the store.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The store.
    pub fn mount(&self) -> &Arc<Mount> {
        &self.mount
    }

    /// Another object of the same store, with the same spelling of the URL.
    pub fn sibling(&self, key: impl Into<String>) -> Location {
        Location { key: key.into(), ..self.clone() }
    }

    /// The object's name without regard to credentials: root and key.
    pub(crate) fn name(&self) -> String {
        format!("{}{}", self.mount.store.root(), self.key)
    }

    /// Names the object as these credentials see it.
    pub(crate) fn id(&self) -> ObjectId {
        ObjectId { mount: self.mount.id, key: self.key.clone() }
    }
}

/// An object as one set of credentials sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ObjectId {
    pub mount: u64,
    pub key: String,
}

/// The stores opened so far.
#[derive(Default)]
pub(crate) struct Mounts {
    known: Mutex<HashMap<(String, Vec<StoreOption>), Arc<Mount>>>,
    next_id: AtomicU64,
}

// By hand: the keys of the map hold secrets.
impl std::fmt::Debug for Mounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mounts").finish_non_exhaustive()
    }
}

impl Mounts {
    /// The mount of a URL; a store opened before with the same root and options is used again.
    pub fn locate(
        &self,
        opener: &dyn Opener,
        url: &str,
        options: &[StoreOption],
    ) -> Result<Location> {
        let (store, key) = opener.open(url, options)?;
        let prefix = url.strip_suffix(key.as_str()).unwrap_or(store.root()).into();
        let mut sorted = options.to_vec();
        sorted.sort();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mount = known
            .entry((store.root().to_string(), sorted))
            .or_insert_with(|| Arc::new(self.mount(store)));
        Ok(Location { mount: Arc::clone(mount), key, prefix })
    }

    /// Takes a store that the caller opened.
    pub fn mount(&self, store: Arc<dyn Store>) -> Mount {
        Mount {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            profile: store.profile(),
            capabilities: store.capabilities(),
            store,
        }
    }
}

//! A secret that was replaced while a statement runs: the statement goes on with the new one.
//!
//! A store that refuses the old credentials makes the engine ask its host what a new statement
//! would use. The new options are taken where they reach the same objects; else the refusal stands.

use crate::location::{Opener, StoreOption};
use penstock_base::Result;
use penstock_store::{
    Capabilities, Connections, ETag, GetRequest, GetResponse, HttpOptions, ListPage, ListRequest,
    ObjectMeta, Part, Payload, Profile, PutOptions, PutResult, Store, UploadId, WarmUp,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use tokio::time::Instant;

/// How stores of this engine are opened again.
#[derive(Clone)]
pub(crate) struct Renewal {
    pub opener: Arc<dyn Opener>,
    pub current_options: CurrentOptions,
}

impl std::fmt::Debug for Renewal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Renewal").field("opener", &self.opener).finish_non_exhaustive()
    }
}

/// Tells what a statement that begins now would use for a URL, given what the running one uses.
/// `None` where the host knows no secret for it. May be called on any thread.
pub type CurrentOptions =
    Arc<dyn Fn(&str, &[StoreOption]) -> Option<Vec<StoreOption>> + Send + Sync>;

/// A store whose credentials can be replaced while it is in use.
pub(crate) struct Renewable {
    root: String,
    origin: Option<String>,
    current: RwLock<Arc<dyn Store>>,
    renewals: AtomicU64,
    renewed_at: Mutex<Option<Instant>>,
    how: Renewal,
    http: Option<HttpOptions>,
    /// What the current store was opened with. Held while the host is asked, so that of many
    /// requests that are refused together one asks.
    options: Mutex<Vec<StoreOption>>,
}

// By hand: the options hold secrets.
impl std::fmt::Debug for Renewable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Renewable").field("store", &self.current()).finish_non_exhaustive()
    }
}

impl Renewable {
    pub fn new(
        store: Arc<dyn Store>,
        options: &[StoreOption],
        http: Option<HttpOptions>,
        how: Renewal,
    ) -> Self {
        Renewable {
            root: store.root().to_string(),
            origin: store.origin(),
            current: RwLock::new(store),
            renewals: AtomicU64::new(0),
            renewed_at: Mutex::default(),
            how,
            http,
            options: Mutex::new(options.to_vec()),
        }
    }

    fn current(&self) -> Arc<dyn Store> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// How often it was renewed, for [`Renewable::renew`].
    pub fn renewals(&self) -> u64 {
        self.renewals.load(Ordering::Acquire)
    }

    /// A request with the credentials of `seen` renewals was refused. Whether there are other ones
    /// now, with which it is worth sending again.
    pub fn renew(&self, url: &str, seen: u64) -> bool {
        let mut options = self.options.lock().unwrap_or_else(PoisonError::into_inner);
        if self.renewals() != seen {
            return true;
        }
        let Some(fresh) = (self.how.current_options)(url, &options) else { return false };
        if is_same(&fresh, &options) {
            return false;
        }
        // What cannot be opened, or has other objects, leaves the refusal as it is.
        let opened = self.how.opener.open(url, &fresh, self.http.as_ref());
        let Some((store, _)) = opened
            .ok()
            .filter(|(store, _)| store.root() == self.root && store.origin() == self.origin)
        else {
            return false;
        };
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = store;
        *options = fresh;
        *self.renewed_at() = Some(Instant::now());
        self.renewals.fetch_add(1, Ordering::Release);
        true
    }

    /// Whether it still stands for the options that it was first opened with, for a statement that
    /// began at this time. A statement that began after a renewal and has the old options means
    /// them.
    pub fn is_for(&self, began: Instant) -> bool {
        self.renewed_at().is_none_or(|renewed| began <= renewed)
    }

    fn renewed_at(&self) -> MutexGuard<'_, Option<Instant>> {
        self.renewed_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The host may tell the same options in another order.
fn is_same(one: &[StoreOption], other: &[StoreOption]) -> bool {
    let sorted = |options: &[StoreOption]| {
        let mut sorted = options.to_vec();
        sorted.sort();
        sorted
    };
    sorted(one) == sorted(other)
}

#[async_trait::async_trait]
impl Store for Renewable {
    fn root(&self) -> &str {
        &self.root
    }

    fn origin(&self) -> Option<String> {
        self.origin.clone()
    }

    fn profile(&self) -> Profile {
        self.current().profile()
    }

    fn capabilities(&self) -> Capabilities {
        self.current().capabilities()
    }

    fn connections(&self) -> Option<Connections> {
        self.current().connections()
    }

    fn warm(&self, count: usize) -> Option<WarmUp> {
        self.current().warm(count)
    }

    async fn get(&self, key: &str, request: GetRequest) -> Result<GetResponse> {
        self.current().get(key, request).await
    }

    async fn stat(&self, key: &str) -> Result<ObjectMeta> {
        self.current().stat(key).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        self.current().list(request).await
    }

    async fn put(&self, key: &str, payload: Payload, options: &PutOptions) -> Result<PutResult> {
        self.current().put(key, payload, options).await
    }

    async fn create_upload(&self, key: &str, options: &PutOptions) -> Result<UploadId> {
        self.current().create_upload(key, options).await
    }

    async fn upload_part(
        &self,
        key: &str,
        upload: &UploadId,
        number: u32,
        payload: Payload,
    ) -> Result<Part> {
        self.current().upload_part(key, upload, number, payload).await
    }

    async fn complete_upload(
        &self,
        key: &str,
        upload: &UploadId,
        parts: &[Part],
        options: &PutOptions,
    ) -> Result<PutResult> {
        self.current().complete_upload(key, upload, parts, options).await
    }

    async fn abort_upload(&self, key: &str, upload: &UploadId) -> Result<()> {
        self.current().abort_upload(key, upload).await
    }

    async fn delete(&self, key: &str, if_match: Option<&ETag>) -> Result<()> {
        self.current().delete(key, if_match).await
    }

    async fn delete_batch(&self, keys: &[String]) -> Result<Vec<Result<()>>> {
        self.current().delete_batch(keys).await
    }

    async fn copy(&self, from: &str, to: &str, options: &PutOptions) -> Result<PutResult> {
        self.current().copy(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_base::{Error, Kind};
    use penstock_store::memory::MemoryStore;
    use std::sync::atomic::AtomicUsize;

    /// Opens a store of the root that the options name, if they name one.
    #[derive(Debug)]
    struct ByOptions;

    impl Opener for ByOptions {
        fn root_of(&self, _: &str) -> Result<(String, String)> {
            unreachable!("a store that is open is opened again by its URL")
        }

        fn open(
            &self,
            _: &str,
            options: &[StoreOption],
            _: Option<&HttpOptions>,
        ) -> Result<(Arc<dyn Store>, String)> {
            let root = options.iter().find(|(name, _)| name == "root");
            let (_, root) = root.ok_or_else(|| Error::new(Kind::Invalid, "no root"))?;
            Ok((Arc::new(MemoryStore::new(root)), "k".to_string()))
        }
    }

    fn options(root: &str, secret: &str) -> Vec<StoreOption> {
        [("root", root), ("secret", secret)].map(|(k, v)| (k.to_string(), v.to_string())).to_vec()
    }

    /// A store opened with the secret `old`, whose host has these options now; and how often the
    /// host was asked.
    fn renewable(now: Option<Vec<StoreOption>>) -> (Renewable, Arc<AtomicUsize>) {
        let used = options("t", "old");
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let current_options: CurrentOptions = Arc::new(move |url, _| {
            assert_eq!(url, "mem://t/k");
            counted.fetch_add(1, Ordering::Relaxed);
            now.clone()
        });
        let how = Renewal { opener: Arc::new(ByOptions), current_options };
        let (store, _) = ByOptions.open("mem://t/k", &used, None).unwrap();
        (Renewable::new(store, &used, None, how), asked)
    }

    #[test]
    fn a_secret_that_was_replaced_is_taken_once() {
        let (store, asked) = renewable(Some(options("t", "new")));
        let before = store.current();
        assert!(store.renew("mem://t/k", 0));
        assert!(!Arc::ptr_eq(&before, &store.current()));
        // Another request that was refused with the old one.
        assert!(store.renew("mem://t/k", 0));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        // One that was refused with the new one.
        assert!(!store.renew("mem://t/k", 1));
        assert_eq!((asked.load(Ordering::Relaxed), store.renewals()), (2, 1));
    }

    #[test]
    fn a_refusal_stands_where_nothing_better_is_known() {
        let mut reordered = options("t", "old");
        reordered.reverse();
        let no_root = vec![("secret".to_string(), "new".to_string())];
        for now in [None, Some(options("t", "old")), Some(reordered), Some(no_root)] {
            let (store, _) = renewable(now.clone());
            assert!(!store.renew("mem://t/k", 0), "{now:?}");
            assert_eq!(store.renewals(), 0);
        }
    }

    #[test]
    fn a_secret_for_other_objects_is_not_taken() {
        let (store, _) = renewable(Some(options("elsewhere", "new")));
        let before = store.current();
        assert!(!store.renew("mem://t/k", 0));
        assert!(Arc::ptr_eq(&before, &store.current()));
    }

    #[tokio::test(start_paused = true)]
    async fn statements_that_begin_later_with_the_old_options_mean_them() {
        let (store, _) = renewable(Some(options("t", "new")));
        let earlier = Instant::now();
        assert!(store.is_for(earlier));
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        assert!(store.renew("mem://t/k", 0));
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        assert!(store.is_for(earlier));
        assert!(!store.is_for(Instant::now()));
    }

    #[test]
    fn debug_shows_no_option() {
        let (store, _) = renewable(None);
        assert!(!format!("{store:?}").contains("old"));
    }
}

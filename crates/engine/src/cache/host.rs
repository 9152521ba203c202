//! What the host keeps in memory itself: so that nothing is held there twice, and that no bytes of
//! one version of an object get among those of another there.

use crate::read::Version;
use penstock_base::redact;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The kinds of objects, by their extension, that the host of a query was seen to open through a
/// cache of its own. The next files of a glob are so known before they are opened.
#[derive(Debug, Default)]
pub(crate) struct HostCache {
    /// Beside the lock, for hosts without such a cache.
    has_any: AtomicBool,
    extensions: Mutex<BTreeSet<String>>,
}

fn extension(key: &str) -> &str {
    let name = key.rsplit('/').next().unwrap_or(key);
    name.rsplit_once('.').map_or("", |(_, extension)| extension)
}

impl HostCache {
    /// The host keeps what it reads of this object.
    pub fn note(&self, key: &str) {
        let mut extensions = self.extensions.lock().unwrap_or_else(PoisonError::into_inner);
        if !extensions.contains(extension(key)) {
            extensions.insert(extension(key).to_string());
        }
        self.has_any.store(true, Ordering::Relaxed);
    }

    /// Whether it is likely to keep what is read of this one.
    pub fn keeps(&self, key: &str) -> bool {
        self.has_any.load(Ordering::Relaxed)
            && self
                .extensions
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .contains(extension(key))
    }
}

/// The version of each object that the host's cache is for: that of its readers which told it.
///
/// DuckDB's external file cache compares versions when a file is opened, and at no read. A reader
/// of an older version that is still open would put its bytes among those of a newer one, for all
/// who read that later, or be given them. So as long as readers of a version are open through that
/// cache, it is not told the version of others: what it cannot tell apart it does not keep.
///
/// The host knows objects by their URLs, whatever store that leads to.
#[derive(Default)]
pub(crate) struct HostVersions(Arc<Told>);

type Told = Mutex<HashMap<String, (Version, Weak<IsKept>)>>;

/// A reader's bytes may be kept: others of its version may be, as long as this is there.
pub struct IsKept {
    url: String,
    told: Arc<Told>,
}

/// By hand: a URL's query may hold a signature or a key.
impl fmt::Debug for IsKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IsKept").field(&redact::url(&self.url)).finish()
    }
}

impl fmt::Debug for HostVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostVersions").finish_non_exhaustive()
    }
}

impl HostVersions {
    /// The host asks a reader for its version, as it does before it keeps anything; `None` where
    /// it is not to be told.
    pub fn asked(&self, url: String, version: &Version) -> Option<Arc<IsKept>> {
        let (of, readers) = {
            let mut told = lock(&self.0);
            match told.get(&url).and_then(|(of, readers)| Some((of.clone(), readers.upgrade()?))) {
                Some(found) => found,
                None => {
                    let readers = Arc::new(IsKept { url: url.clone(), told: Arc::clone(&self.0) });
                    told.insert(url, (version.clone(), Arc::downgrade(&readers)));
                    return Some(readers);
                }
            }
        };
        // Without the lock: they may be the last by now, and then take it.
        is_one_to_host(&of, version).then_some(readers)
    }

    /// Whether it would be told this version now. `url` is asked for where it has been told any.
    pub fn takes<U: AsRef<str>>(&self, url: impl FnOnce() -> U, version: &Version) -> bool {
        let told = lock(&self.0);
        if told.is_empty() {
            return true;
        }
        told.get(url().as_ref())
            .is_none_or(|(of, readers)| readers.strong_count() == 0 || is_one_to_host(of, version))
    }
}

/// As DuckDB has it: by the tags, and without any by the times.
fn is_one_to_host(one: &Version, other: &Version) -> bool {
    one.has_tag_of(other) || (one.etag.is_none() && one == other)
}

fn lock(told: &Told) -> MutexGuard<'_, HashMap<String, (Version, Weak<IsKept>)>> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for IsKept {
    fn drop(&mut self) {
        let mut told = lock(&self.told);
        // Readers of another version may have come meanwhile.
        if told.get(&self.url).is_some_and(|(_, readers)| readers.strong_count() == 0) {
            told.remove(&self.url);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_store::{ETag, ObjectMeta};
    use std::time::{Duration, UNIX_EPOCH};

    fn version(etag: Option<&str>, modified_s: u64) -> Version {
        let etag = etag.map(|etag| ETag(etag.into()));
        let modified = Some(UNIX_EPOCH + Duration::from_secs(modified_s));
        let meta = ObjectMeta { etag, modified, size_bytes: Some(9), ..ObjectMeta::default() };
        Version::of(&meta)
    }

    #[test]
    fn one_version_is_told_as_long_as_it_is_read() {
        let versions = HostVersions::default();
        let asked = |url: &str, etag| versions.asked(url.into(), &version(Some(etag), 1));
        let takes = |etag| versions.takes(|| "s3://b/a", &version(Some(etag), 1));
        assert!(takes("1") && takes("2"));
        let (first, second) = (asked("s3://b/a", "1"), asked("s3://b/a", "1"));
        assert!(first.is_some() && second.is_some());
        assert!(asked("s3://b/a", "2").is_none() && asked("s3://b/b", "2").is_some());
        assert!(takes("1") && !takes("2"));
        drop(first);
        assert!(asked("s3://b/a", "2").is_none());
        drop(second);
        let newer = asked("s3://b/a", "2");
        assert!(newer.is_some() && asked("s3://b/a", "1").is_none());
        drop(newer);
        assert!(lock(&versions.0).is_empty(), "nothing is read any more");
    }

    #[test]
    fn without_a_tag_only_the_same_time_is_the_same_version() {
        let versions = HostVersions::default();
        let asked = |etag, time| versions.asked("s3://b/a".into(), &version(etag, time)).is_some();
        let _first = versions.asked("s3://b/a".into(), &version(None, 1));
        assert!(asked(None, 1) && !asked(None, 2));
        assert!(!asked(Some("2"), 1), "what has a tag is another one to DuckDB");
    }

    #[test]
    fn kinds_are_told_apart_by_what_follows_the_last_dot() {
        let host = HostCache::default();
        assert!(!host.keeps("a.parquet"));
        host.note("lake/v1.0/a.parquet");
        host.note("lake/v1.0/noext");
        assert!(host.keeps("b.parquet") && host.keeps("other") && !host.keeps("a.csv"));
    }
}

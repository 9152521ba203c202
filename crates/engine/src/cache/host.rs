//! What the host keeps in memory itself: so that nothing is held there twice, and that no bytes of
//! one version of an object get among those of another there.

use crate::read::Version;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

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

/// With more objects there is a look at which are read no more.
const OBJECTS_MIN: usize = 64;

/// The version of each object that the host's cache is for: that of its readers which are open.
///
/// DuckDB's external file cache compares versions when a file is opened, and at no read. A reader
/// of an older version that is still open would put its bytes among those of a newer one, for all
/// who read that later, or be given them. So as long as readers of a version are open through that
/// cache, it is not told the version of others: what it cannot tell apart it does not keep.
#[derive(Debug, Default)]
pub(crate) struct HostVersions(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    objects: HashMap<String, (Version, Weak<IsKept>)>,
    most: usize,
}

/// A reader's bytes may be kept: others of its version may be, as long as this is there.
#[derive(Debug)]
pub struct IsKept(());

impl HostVersions {
    /// A reader of a version is opened; `None` where its bytes are not to be kept. The host knows
    /// objects by their URLs, whatever store that leads to.
    pub fn opened(&self, url: String, version: &Version) -> Option<Arc<IsKept>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Kept { objects, most } = &mut *kept;
        if let Some((of, readers)) = objects.get(&url)
            && let Some(readers) = readers.upgrade()
        {
            // As the host tells them apart: what has a tag is not what has none.
            let is_same = of.etag == version.etag && of.same(version);
            return is_same.then_some(readers);
        }
        if objects.len() > *most {
            objects.retain(|_, (_, readers)| readers.strong_count() > 0);
            *most = (2 * objects.len()).max(OBJECTS_MIN);
        }
        let readers = Arc::new(IsKept(()));
        objects.insert(url, (version.clone(), Arc::downgrade(&readers)));
        Some(readers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_store::{ETag, ObjectMeta};

    #[test]
    fn one_version_is_kept_as_long_as_it_is_read() {
        let version = |tag: &str| {
            let etag = Some(ETag(tag.into()));
            Version::of(&ObjectMeta { etag, size_bytes: Some(9), ..ObjectMeta::default() })
        };
        let versions = HostVersions::default();
        let opened = |url: &str, tag| versions.opened(url.into(), &version(tag));
        let (first, second) = (opened("s3://b/a", "1"), opened("s3://b/a", "1"));
        assert!(first.is_some() && second.is_some());
        assert!(opened("s3://b/a", "2").is_none() && opened("s3://b/b", "2").is_some());
        drop(first);
        assert!(opened("s3://b/a", "2").is_none());
        drop(second);
        let newer = opened("s3://b/a", "2");
        assert!(newer.is_some() && opened("s3://b/a", "1").is_none());
        for number in 0..1000 {
            assert!(opened(&number.to_string(), "1").is_some());
        }
        assert!(versions.0.lock().expect("nobody panicked").objects.len() <= 2 * OBJECTS_MIN);
        assert!(opened("s3://b/a", "1").is_none(), "it is still read");
        let untagged = ObjectMeta { size_bytes: Some(9), ..ObjectMeta::default() };
        assert!(versions.opened("s3://b/a".into(), &Version::of(&untagged)).is_none());
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

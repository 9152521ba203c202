//! What the host keeps in memory itself, so that nothing is held there twice.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_apart_by_what_follows_the_last_dot() {
        let host = HostCache::default();
        assert!(!host.keeps("a.parquet"));
        host.note("lake/v1.0/a.parquet");
        host.note("lake/v1.0/noext");
        assert!(host.keeps("b.parquet") && host.keeps("other") && !host.keeps("a.csv"));
    }
}

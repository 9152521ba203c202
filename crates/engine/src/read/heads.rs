//! Whether HEAD is believed of a store's objects: some servers, proxies and caches answer it with
//! another tag, time or size than GET. What a GET tells counts, since it is what brings the bytes.
//!
//! HEAD is compared with what is known of the object. Where they differ, the object has changed or
//! HEAD is wrong, and the next GET tells which: if it knows nothing of a change, HEAD is asked for
//! no object of this store again.

use super::version::Version;
use crate::attempt::Attempts;
use crate::cause::Cause;
use crate::location::{Location, ObjectId};
use crate::query::QueryCore;
use penstock_base::{Error, Kind};
use penstock_store::ObjectMeta;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// More are forgotten all at once: then nothing is learnt of them.
const DOUBTS_MAX: usize = 1000;

#[derive(Debug, Default)]
pub(crate) struct Heads {
    are_wrong: AtomicBool,
    /// The versions that objects were known to have when HEAD told of another one.
    doubts: Mutex<HashMap<ObjectId, Version>>,
    has_doubts: AtomicBool,
}

impl Heads {
    pub fn are_believed(&self) -> bool {
        !self.are_wrong.load(Ordering::Relaxed)
    }

    fn are_wrong(&self) {
        self.are_wrong.store(true, Ordering::Relaxed);
    }

    /// HEAD told of another version than this one, which is known.
    pub fn doubt(&self, id: ObjectId, known: &ObjectMeta) {
        let mut doubts = self.lock();
        if doubts.len() >= DOUBTS_MAX {
            doubts.clear();
        }
        doubts.insert(id, Version::of(known));
        self.has_doubts.store(true, Ordering::Relaxed);
    }

    /// Whether a GET has yet to say what the object is.
    pub fn are_doubted(&self, id: impl FnOnce() -> ObjectId) -> bool {
        self.has_doubts.load(Ordering::Relaxed) && self.lock().contains_key(&id())
    }

    /// A GET told this.
    pub fn settle(&self, id: impl FnOnce() -> ObjectId, told: &ObjectMeta) {
        if !self.has_doubts.load(Ordering::Relaxed) {
            return;
        }
        let mut doubts = self.lock();
        let known = doubts.remove(&id());
        self.has_doubts.store(!doubts.is_empty(), Ordering::Relaxed);
        if known.is_some_and(|known| known.is_proven_by(&Version::of(told))) {
            self.are_wrong();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectId, Version>> {
        self.doubts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of a read that met another version than the one that was opened. Where HEAD tells of
/// that one still, it is HEAD that is wrong, and no object has changed.
pub(super) async fn told_apart(
    query: &Arc<QueryCore>,
    at: &Location,
    opened: &Version,
    error: Error,
) -> Error {
    let heads = &at.mount.heads;
    if error.kind() != Kind::Conflict || !heads.are_believed() || !opened.is_told() {
        return error;
    }
    let attempts = Attempts::new(query, (Cause::Open, "HEAD"), at);
    match attempts.bounded(at.mount.store.stat(&at.key)).await {
        Ok(told) if opened.is_proven_by(&Version::of(&told)) => {
            heads.are_wrong();
            query.forget(at);
            Error::new(Kind::Conflict, "HEAD and GET tell of two versions of this object")
                .with_operation("read")
                .with_object(at.url())
                .with_hint("Run the query again: what GET tells counts from now on")
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_store::ETag;

    fn meta(tag: &str) -> ObjectMeta {
        let etag = Some(ETag(tag.into()));
        ObjectMeta { size_bytes: Some(1), etag, ..ObjectMeta::default() }
    }

    #[test]
    fn head_is_wrong_where_a_get_tells_what_was_known() {
        let id = |key: &str| ObjectId { mount: 1, key: key.into() };
        let heads = Heads::default();
        heads.settle(|| id("a"), &meta("known"));
        heads.doubt(id("a"), &meta("known"));
        heads.settle(|| id("b"), &meta("known"));
        assert!(heads.are_doubted(|| id("a")) && !heads.are_doubted(|| id("b")));
        heads.settle(|| id("a"), &meta("new"));
        assert!(heads.are_believed() && !heads.are_doubted(|| id("a")), "it has changed");
        heads.doubt(id("a"), &meta("known"));
        heads.settle(|| id("a"), &meta("known"));
        assert!(!heads.are_believed());
    }

    #[test]
    fn doubts_are_bounded() {
        let heads = Heads::default();
        for number in 0..=DOUBTS_MAX {
            heads.doubt(ObjectId { mount: 1, key: number.to_string() }, &meta("known"));
        }
        assert!(heads.lock().len() <= DOUBTS_MAX);
    }
}

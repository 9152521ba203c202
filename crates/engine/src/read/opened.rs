//! What opening an object found out, for all of a query's readers of it.

use crate::location::Location;
use crate::metadata::Remembered;
use crate::query::QueryCore;
use crate::read::held::Held;
use crate::read::neighbours::Place;
use crate::read::reader::Reader;
use crate::read::version::Version;
use crate::read::whole::{Whole, is_kept};
use crate::read::{Known, look};
use penstock_base::settings::Validation;
use penstock_base::{Metric, Result};
use penstock_store::ObjectMeta;
use std::sync::Arc;

/// What opening found out.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(super) meta: ObjectMeta,
    pub(super) bytes: Bytes,
}

/// Where the bytes are that come with opening.
#[derive(Debug)]
pub(super) enum Bytes {
    /// With those of every query, by version.
    Shared,
    /// With this query, where nothing tells versions apart.
    Query(Arc<Held>),
    /// From a server that serves only whole objects.
    Whole(Arc<Whole>),
}

impl Opened {
    pub(super) fn new(meta: ObjectMeta) -> Self {
        let bytes = match Version::of(&meta).is_told() {
            true => Bytes::Shared,
            false => Bytes::Query(Arc::default()),
        };
        Opened { meta, bytes }
    }

    /// From a server that serves only whole objects.
    pub(super) fn of_whole(meta: ObjectMeta, whole: Whole) -> Self {
        Opened { meta, bytes: Bytes::Whole(Arc::new(whole)) }
    }

    /// A reader of it.
    ///
    /// # Errors
    /// As a GET's where the bytes that opening brought are gone.
    pub(super) async fn reader(
        &self,
        query: &Arc<QueryCore>,
        at: &Location,
        place: Option<Place>,
    ) -> Result<Reader> {
        match &self.bytes {
            Bytes::Shared => Ok(Reader::new(query, at, &self.meta, None, place)),
            Bytes::Query(held) => {
                Ok(Reader::new(query, at, &self.meta, Some(Arc::clone(held)), place))
            }
            Bytes::Whole(whole) => {
                let whole = whole.reader(query, at, &self.meta).await?;
                Ok(Reader::of_whole(query, at, &self.meta, whole))
            }
        }
    }
}

/// What a server without ranges sent whole, where somebody keeps it and it is the same still.
pub(super) async fn kept_whole(
    query: &Arc<QueryCore>,
    at: &Location,
    known: &Known,
) -> Option<Opened> {
    // Of nearly all objects that is all there is to it.
    if !query.engine.range_support.comes_whole(at) {
        return None;
    }
    let (meta, is_fresh) = match query.remembered(at, Validation::Time) {
        Remembered::Fresh(meta) => (meta, true),
        Remembered::Stale(meta) => (meta, false),
        Remembered::Nothing => return None,
    };
    if !is_kept(query, at, &meta, known.host_keeps) {
        return None;
    }
    if is_fresh {
        query.scope.count(Metric::MetadataHits, 1);
        return Some(Opened::of_whole(meta, Whole::kept()));
    }
    let version = Version::of(&meta);
    let is_proof = |answered: ObjectMeta| version.is_proven_by(&Version::of(&answered));
    // Whatever else the answer is, the GET has it in its own words, and counts.
    let told = look(query, at, Some(&meta)).await.ok().flatten();
    let is_same = told.is_some_and(is_proof);
    is_same.then(|| {
        query.scope.count(Metric::MetadataMisses, 1);
        Opened::of_whole(meta, Whole::kept())
    })
}

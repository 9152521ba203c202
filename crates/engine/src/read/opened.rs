//! What opening an object found out, for all of a query's readers of it.

use crate::location::Location;
use crate::query::QueryCore;
use crate::read::held::Held;
use crate::read::neighbours::Place;
use crate::read::reader::Reader;
use crate::read::version::Version;
use crate::read::whole::Whole;
use penstock_base::Result;
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

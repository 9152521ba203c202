//! Reads of an object that comes whole or not at all.

use super::Reader;
use crate::location::Location;
use crate::query::QueryCore;
use crate::read::neighbours::Taken;
use crate::read::plan::plan;
use crate::read::ready::{Ready, is_here};
use crate::read::whole::WholeReader;
use penstock_base::{ByteRange, Metric, Result};
use penstock_store::ObjectMeta;
use std::sync::Arc;

impl Reader {
    /// A reader of an object that comes whole.
    pub(in crate::read) fn of_whole(
        query: &Arc<QueryCore>,
        at: &Location,
        meta: &ObjectMeta,
        whole: WholeReader,
    ) -> Self {
        let reader = Reader::new(query, at, meta, Some(Arc::default()), None);
        Reader { whole: Some(whole), ..reader }
    }

    /// From memory or the cache; what is neither there nor here comes with the whole object.
    pub(super) async fn read_of_whole(
        &self,
        query: &Arc<QueryCore>,
        whole: &WholeReader,
        buf: &mut [u8],
        range: ByteRange,
    ) -> Result<Taken> {
        let cached = self.cached.as_ref().filter(|_| !whole.is_here());
        let blocks = cached.map_or_else(Vec::new, |cached| cached.find(range));
        let (ahead, begun) = Default::default();
        let mut ready = Ready { held: Vec::new(), blocks, ahead, begun };
        let is_cached = is_here(&plan(range, &ready.ranges(), || 0));
        if !is_cached {
            ready.blocks.clear();
            ready.held = whole.held(query, &self.at, &self.meta).await?.pieces();
            query.scope.count(Metric::OpenFetchHits, 1);
        }
        let requests = self.requests(query, range, &ready.ranges());
        self.carry_out(query, buf, &requests, &mut ready, None).await?;
        Ok(Taken { on_demand_bytes: 0, is_cached })
    }
}

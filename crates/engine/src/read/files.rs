//! The files of one glob, of a list or by themselves: what is known of each, and what is fetched
//! ahead of them.

use crate::cache::CachedObject;
use crate::location::{Location, ObjectId};
use crate::query::QueryCore;
use crate::read::block::{Block, Purpose, Scanning, Source, fetch};
use crate::read::columns::{Ahead, Columns, Dropped, LATENCY_MIN, Room, Told};
use crate::read::delivered::Given;
use crate::read::filters::{Filters, Judged};
use crate::read::flow::Flow;
use crate::read::held::Held;
use crate::read::neighbours::Place;
use crate::read::openings::Openings;
use crate::read::spare::Spare;
use crate::read::version::Version;
use crate::read::{Known, tail_first};
use penstock_base::ByteRange;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The files of one glob, or a file by itself.
#[derive(Debug)]
pub(super) struct Files {
    pub id: u64,
    pub at: Location,
    /// What is known of each; a listing tells size and tag, others may not.
    pub files: Vec<(String, Known)>,
    pub index: HashMap<ObjectId, usize>,
    pub openings: Openings,
    pub columns: Columns,
    /// Those whose columns were read.
    scanned: HashSet<usize>,
}

impl Files {
    /// None yet; `id` names them.
    pub fn new(id: u64, at: &Location, is_glob: bool) -> Self {
        let flow = Flow::new(at.mount.profile.connection_bytes_per_s);
        Files {
            id,
            at: at.clone(),
            files: Vec::new(),
            index: HashMap::new(),
            openings: Openings::default(),
            columns: Columns::new(is_glob, flow),
            scanned: HashSet::new(),
        }
    }

    /// Takes note of more, behind those that are known.
    pub fn add(&mut self, files: impl IntoIterator<Item = (String, Known)>) {
        for (key, known) in files {
            self.index.insert(self.at.sibling(key.as_str()).id(), self.files.len());
            self.files.push((key, known));
        }
    }

    /// Whether its columns are fetched ahead here: of a host that does it itself only where a plan
    /// tells which ones.
    pub fn is_followed(&self, query: &QueryCore) -> bool {
        query.host_grid_bytes().is_none() || self.columns.is_told()
    }

    /// What is known of a file's version.
    pub fn version(&self, index: usize) -> Version {
        Version::of(&self.files[index].1.meta)
    }

    /// Takes note of a read, see [`Columns::note`].
    pub fn note(
        &mut self,
        query: &Arc<QueryCore>,
        place: &Place,
        range: ByteRange,
    ) -> Option<(Vec<Arc<Block>>, Dropped)> {
        let Files { at, files, columns, scanned, .. } = self;
        let is_near = at.mount.latency.get() < LATENCY_MIN;
        if (is_near && columns.unused_bytes() == 0) || !tail_first(&files[place.index].0) {
            return None;
        }
        let file = &files[place.index];
        let parse = |filters: Option<&Arc<Filters>>| told(query, at, file, filters);
        let noted = columns.note(place.reader, place.index, range, parse)?;
        if scanned.insert(place.index) {
            query.engine.scanned.note(&at.sibling(file.0.as_str()), &Version::of(&file.1.meta));
        }
        Some(noted)
    }

    /// The kept bytes of a file, and its size.
    pub fn held(&self, query: &QueryCore, index: usize) -> Option<(Arc<Held>, u64)> {
        held(query, &self.at, &self.files[index])
    }

    /// Takes note of the filters of a plan, see [`Columns::will_filter`].
    pub fn will_filter(&mut self, query: &QueryCore, filters: &Arc<Filters>) -> Dropped {
        let Files { at, files, columns, .. } = self;
        let judge = |index: usize| -> Option<Arc<Judged>> {
            let (held, size_bytes) = held(query, at, &files[index])?;
            held.judged(size_bytes, filters)
        };
        columns.will_filter(Arc::clone(filters), judge)
    }

    /// Begins what there is room for now. The layout of files whose footer is here is looked at
    /// where that is the `thorough` way: it may take a while.
    pub fn pull(&mut self, query: &Arc<QueryCore>, is_thorough: bool) {
        let latency = self.at.mount.latency.get();
        if latency < LATENCY_MIN || !self.is_followed(query) {
            return;
        }
        let Files { id, at, files, columns, .. } = self;
        let room = Room {
            latency: at.mount.latency.least().unwrap_or(latency),
            memory_limit_bytes: query.engine.budget.limit_bytes(),
            free_bytes: query.engine.budget.free_ahead_bytes(),
            ends_early: query.ends_early(),
            may_be_left: query.may_be_left(),
            requests: at.mount.spare.free(&query.settings),
        };
        // Others are not looked at: that would count as a use of what is kept of them.
        let parse = |index: usize, filters: Option<&Arc<Filters>>| {
            let is_looked_at = is_thorough && tail_first(&files[index].0);
            is_looked_at.then(|| told(query, at, &files[index], filters)).flatten()
        };
        let begin = |index: usize, span: ByteRange, flow: &Arc<Flow>| {
            let (key, Known { meta, .. }) = &files[index];
            let (at, version) = (at.sibling(key.as_str()), Version::of(meta));
            let size_bytes = meta.size_bytes?;
            if CachedObject::has(query, &at, &version, span) {
                return Some(Ahead::IsCached);
            }
            let slot = Spare::take(&at.mount, &query.settings)?;
            let lease = query.engine.budget.try_lease_ahead(span.len())?;
            let source = Source { query, at: &at, version: &version, size_bytes };
            let scanning = Scanning { slot, flow: Arc::clone(flow), files: *id };
            Some(Ahead::Begun(fetch(&source, span, lease, Purpose::Scan(scanning))))
        };
        columns.pull(files.len(), room, parse, begin);
    }
}

/// What is told of a file, if its footer is here.
fn told(
    query: &QueryCore,
    at: &Location,
    file: &(String, Known),
    filters: Option<&Arc<Filters>>,
) -> Option<Told> {
    let (held, size_bytes) = held(query, at, file)?;
    let layout = held.layout(size_bytes)?;
    let judged = filters.and_then(|filters| held.judged(size_bytes, filters));
    Some(Told { layout, judged, given: given(query, at, file) })
}

/// What reads of all statements are given of a file, where the host keeps that.
fn given(query: &QueryCore, at: &Location, (key, known): &(String, Known)) -> Option<Given> {
    let id = ObjectId { mount: at.mount.id, key: key.clone() };
    let is_kept = query.host_cache.keeps(key);
    is_kept.then(|| query.engine.delivered.given(query.number, &id, &Version::of(&known.meta)))?
}

/// The kept bytes of a file, and its size.
fn held(
    query: &QueryCore,
    at: &Location,
    (key, Known { meta, .. }): &(String, Known),
) -> Option<(Arc<Held>, u64)> {
    let id = ObjectId { mount: at.mount.id, key: key.clone() };
    let held = query.engine.held.get(&id, &Version::of(meta))?;
    Some((held, meta.size_bytes?))
}

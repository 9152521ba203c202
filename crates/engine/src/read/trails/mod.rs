//! Fetching ahead for clients of a door that answers each range by itself (a gateway).
//!
//! Nobody holds an object open there: a client that reads it from front to back sends a request for
//! each range. Which of them follow each other is decided in `table`, how much may be ahead of all
//! clients in `account`; what is fetched and when, by `ahead`, as for a reader of our own. It goes
//! to the caches, and a request for it that comes meanwhile waits for it (`flight`). So without a
//! cache nothing is ahead, and what this process knows of a client is worth no more than that.
//!
//! Only what the door has let a client read tells anything, since it is the door that says so
//! ([`Stream::follow`]), and each request is pinned to the version that the client was given. A
//! client that breaks a range off, or comes no more, is forgotten, and what is on its way is
//! stopped. Nothing is asked of a store ahead that has asked for less lately, and what it refuses
//! then is not asked again.

mod account;
mod table;

pub(crate) use account::Standing;

use crate::cache::CachedObject;
use crate::engine::Engine;
use crate::location::Location;
use crate::query::Query;
use crate::read::ahead::{Ahead, Bounds, Next};
use crate::read::block::{Block, Source};
use crate::read::stream::Stream;
use crate::read::version::Version;
use account::Account;
use penstock_base::{ByteRange, Metric, Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use table::{Step, Table};
use tokio::time::Instant;

/// Of the caches so much may be ahead of all clients: what drives out what was not read yet is
/// fetched twice.
const CACHE_PARTS: u64 = 2;

/// The clients of a door that read objects in ranges, and what is fetched ahead of them. Dropping
/// it stops that.
#[derive(Debug)]
pub struct Trails {
    /// Does all that is ahead, whichever request brought it about.
    query: Query,
    most_bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    table: Table,
    account: Account,
    /// Of those that go on, by number.
    clients: HashMap<u64, Client>,
}

#[derive(Debug)]
struct Client {
    ahead: Arc<Ahead>,
    /// As the account knows it.
    standing: Standing,
}

impl State {
    /// Trails are over; what is pushed is to be dropped outside of the lock.
    fn over(&mut self, numbers: impl IntoIterator<Item = u64>, dropped: &mut Vec<Arc<Block>>) {
        for number in numbers {
            if let Some(client) = self.clients.remove(&number) {
                let wasted_bytes = client.ahead.leave(dropped);
                self.account.over(&client.standing, wasted_bytes);
            }
        }
    }
}

/// What is read of a version of an object.
struct Read<'a> {
    at: &'a Location,
    version: &'a Version,
    size_bytes: u64,
    range: ByteRange,
    cached: &'a CachedObject,
}

impl Trails {
    /// Of an engine's objects, with at most so many bytes ahead of each client.
    ///
    /// # Errors
    /// `Invalid` when the disk cache cannot be used.
    pub fn new(engine: &Arc<Engine>, most_bytes: u64) -> Result<Arc<Self>> {
        let query = engine.query(engine.settings().clone(), None);
        query.core.gives_way();
        query.core.disk()?;
        Ok(Arc::new(Trails { query, most_bytes, state: Mutex::default() }))
    }

    /// A range begins to be read; asks for what follows it, where it goes on with another one.
    fn begins(&self, read: &Read<'_>) -> Step {
        let (mut dropped, mut over) = (Vec::new(), Vec::new());
        let mut state = self.lock();
        let now = Instant::now();
        let step = state.table.begins(&read.at.id(), read.version, read.range, now, &mut over);
        state.over(over, &mut dropped);
        if step.goes_on {
            self.goes_on(&mut state, step.number, read, &mut dropped);
        }
        drop(state);
        // Giving memory back wakes others.
        drop(dropped);
        step
    }

    fn goes_on(
        &self,
        state: &mut State,
        number: u64,
        read: &Read<'_>,
        dropped: &mut Vec<Arc<Block>>,
    ) {
        let State { account, clients, .. } = state;
        let new = || Client { ahead: Ahead::new(0), standing: Standing::default() };
        let client = clients.entry(number).or_insert_with(new);
        let is_cached = read.cached.covers(read.range);
        let (standing, came_ahead) = client.ahead.read_on(read.range, read.cached, dropped);
        account.moved(&client.standing, &standing);
        client.standing = standing;
        let core = &self.query.core;
        core.scope.count(Metric::ReadAheadHits, u64::from(came_ahead));
        // What others have read is likely to go on being here.
        if is_cached && !came_ahead {
            return;
        }
        let all_bytes = read.cached.capacity_bytes() / CACHE_PARTS;
        let pending_bytes = account.pending_bytes_max(&standing, all_bytes).min(self.most_bytes);
        let bounds = Bounds { owed_bytes: account.owed_bytes_max(&standing), pending_bytes };
        let Read { at, version, size_bytes, range, cached } = *read;
        let source = Source { query: core, at, version, size_bytes };
        let next = Next { source, cached, range };
        let standing = client.ahead.fetch_on(&next, bounds);
        account.moved(&client.standing, &standing);
        client.standing = standing;
    }

    /// The range that a trail was at is over.
    fn ended(&self, mark: &Mark) {
        let number = mark.step.number;
        let mut dropped = Vec::new();
        let mut state = self.lock();
        if mark.is_whole && !mark.step.goes_on {
            // Those that go on have an account of their own.
            state.account.read(mark.range.len());
        }
        if mark.is_whole && !mark.is_last {
            state.table.ended(number, Instant::now());
        } else {
            state.table.forget(number);
            state.over([number], &mut dropped);
        }
        drop(state);
        drop(dropped);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A range that is being read; dropping it says that its client has broken it off.
#[derive(Debug)]
pub(crate) struct Mark {
    trails: Arc<Trails>,
    step: Step,
    range: ByteRange,
    /// Nothing of the object lies behind it.
    is_last: bool,
    /// All of it was read.
    is_whole: bool,
}

impl Mark {
    /// All of it was read.
    pub fn ended(mut self) {
        self.is_whole = true;
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.trails.ended(self);
    }
}

impl Stream {
    /// Says that a client was let read this, which may go on with the range behind it: that is then
    /// fetched ahead. Of what no cache takes nothing is.
    #[must_use]
    pub fn follow(mut self, trails: &Arc<Trails>) -> Self {
        let range = self.range();
        if let Some(size_bytes) = self.meta().size_bytes
            && let Some((at, version, cached)) = self.cached_object()
            && !range.is_empty()
            && range.len() < size_bytes
        {
            let step = trails.begins(&Read { at, version, size_bytes, range, cached });
            let trails = Arc::clone(trails);
            let is_last = range.end >= size_bytes;
            self.mark = Some(Mark { trails, step, range, is_last, is_whole: false });
        }
        self
    }
}

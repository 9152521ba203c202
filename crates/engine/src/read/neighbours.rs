//! Fetching ahead across the files of a glob.
//!
//! A scan opens the files of its glob one after the other, and each open waits for a footer. Once
//! two files were opened in the glob's order, the bytes that opening reads first (see
//! `opening_window`) are fetched for the next ones, several at once. What is fetched in vain is
//! bounded by [`FILES_AHEAD_MAX`] windows, and happens only when a scan that went in order stops.
//!
//! The decision is pure ([`Order`]).

use crate::location::{Location, ObjectId};
use crate::names::Entry;
use crate::query::QueryCore;
use crate::read::{Opened, Reader};
use penstock_store::ObjectMeta;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::AbortHandle;

/// Most files whose first bytes are on their way or unused.
const FILES_AHEAD_MAX: usize = 32;
/// Files ahead after the first step in order; it grows with each further step.
const FILES_AHEAD_START: usize = 8;
/// Threads open neighbouring files in any order; a step of this size is still "next".
const STEP_MAX: usize = 16;
/// Most globs of one statement that are followed (a join of many tables has one each).
const GLOBS_MAX: usize = 8;

/// How far a scan has come in the files of its glob.
#[derive(Debug, Default)]
struct Order {
    furthest: Option<usize>,
    steps: usize,
    /// Files before this one were begun or passed.
    begun: usize,
}

impl Order {
    /// Takes note that a file was opened; the files whose first bytes should be fetched now.
    fn opened(&mut self, index: usize, count: usize) -> Range<usize> {
        match self.furthest {
            None => self.furthest = Some(index),
            Some(furthest) if index > furthest + STEP_MAX || index + STEP_MAX < furthest => {
                *self = Order { furthest: Some(index), steps: 0, begun: index + 1 };
            }
            Some(furthest) if index > furthest => {
                self.furthest = Some(index);
                self.steps += 1;
            }
            // Opened again, or by a thread that is a little behind.
            Some(_) => return 0..0,
        }
        if self.steps == 0 {
            return 0..0;
        }
        let depth = (self.steps * FILES_AHEAD_START).min(FILES_AHEAD_MAX);
        let start = self.begun.max(index + 1);
        let end = (index + 1 + depth).min(count).max(start);
        self.begun = end;
        start..end
    }
}

/// The files of one glob.
#[derive(Debug)]
struct Files {
    at: Location,
    files: Vec<(String, ObjectMeta)>,
    index: HashMap<ObjectId, usize>,
    order: Order,
}

/// The globs of a statement, and what is fetched ahead for them. Dropping it stops the requests.
#[derive(Debug, Default)]
pub(crate) struct Neighbours(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    globs: Vec<Files>,
    tasks: Vec<AbortHandle>,
}

impl Neighbours {
    /// Takes note of a glob's files, in the order in which a scan will open them.
    pub fn listed(&self, at: &Location, entries: &[Entry]) {
        let known = entries.iter().all(|entry| {
            entry.meta.size_bytes.is_some()
                && entry.meta.etag.as_ref().is_some_and(penstock_store::ETag::is_strong)
        });
        if entries.len() < 3 || !known {
            return;
        }
        let files = entries.iter().map(|entry| (entry.key.clone(), entry.meta.clone())).collect();
        let index = entries
            .iter()
            .enumerate()
            .map(|(index, entry)| (at.sibling(entry.key.as_str()).id(), index))
            .collect();
        let mut state = self.lock();
        if state.globs.len() == GLOBS_MAX {
            state.globs.remove(0);
        }
        state.globs.push(Files { at: at.clone(), files, index, order: Order::default() });
    }

    /// Takes note of an opened file and begins to fetch the first bytes of those that follow.
    pub fn opened(&self, query: &Arc<QueryCore>, at: &Location) {
        let mut state = self.lock();
        let State { globs, tasks } = &mut *state;
        let id = at.id();
        let Some((glob, index)) = globs
            .iter_mut()
            .rev()
            .find_map(|glob| glob.index.get(&id).copied().map(|index| (glob, index)))
        else {
            return;
        };
        tasks.retain(|task| !task.is_finished());
        for (key, meta) in &glob.files[glob.order.opened(index, glob.files.len())] {
            let at = glob.at.sibling(key.as_str());
            let opened = Opened { meta: meta.clone(), whole: None };
            let reader = Reader::new(query, &at, &opened);
            let query = Arc::clone(query);
            let task = query.engine.handle.clone().spawn(async move {
                // The open that needs these bytes asks again and tells its own error.
                let _ = query.run(reader.fetch_opening(&query)).await;
            });
            tasks.push(task.abort_handle());
        }
    }

    /// Stops what is on its way.
    pub fn stop(&self) {
        for task in std::mem::take(&mut self.lock().tasks) {
            task.abort();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_file_begins_nothing_and_the_second_begins_the_next() {
        let mut order = Order::default();
        assert_eq!(order.opened(0, 100), 0..0);
        assert_eq!(order.opened(0, 100), 0..0);
        assert_eq!(order.opened(1, 100), 2..10);
        assert_eq!(order.opened(2, 100), 10..19);
    }

    #[test]
    fn a_jump_begins_anew() {
        let mut order = Order::default();
        order.opened(0, 1000);
        order.opened(1, 1000);
        assert_eq!(order.opened(500, 1000), 0..0);
        assert_eq!(order.opened(501, 1000), 502..510);
    }

    proptest! {
        #[test]
        fn nothing_is_begun_twice_nor_too_far_ahead(
            steps in prop::collection::vec(0usize..3, 1..200), count in 1usize..300,
        ) {
            let mut order = Order::default();
            let mut index = 0;
            let mut begun = std::collections::HashSet::new();
            for step in steps {
                index = (index + step).min(count - 1);
                for file in order.opened(index, count) {
                    prop_assert!(file > index && file <= index + FILES_AHEAD_MAX && file < count);
                    prop_assert!(begun.insert(file), "{} twice", file);
                }
            }
        }
    }
}

//! What reads of the statements that run now were given, by version of an object: a host that keeps
//! what it reads (DuckDB's external file cache) does not ask for it again, whoever of them did.
//!
//! It tells a scan why it was not asked for what it expected. No request is held back by it: the
//! host may have driven out what it kept.

use crate::location::ObjectId;
use crate::read::ranges::Ranges;
use crate::read::version::Version;
use penstock_base::ByteRange;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Of more statements on one version those are told apart that came last: one that runs for long
/// keeps what thousands of short ones were given.
const STATEMENTS_MAX: usize = 32;

/// What was given of the objects whose statements run.
#[derive(Debug, Default)]
pub(crate) struct Delivered(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    tallies: HashMap<ObjectId, Vec<(Version, Weak<Tally>)>>,
    /// With more of them there is a look at which are over.
    most: usize,
}

/// What was given of one version, by statement, as long as one that scans it runs.
#[derive(Debug, Default)]
struct Tally(Mutex<Vec<(u64, Ranges)>>);

/// What was given of a version to one statement, and to all others.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    query: u64,
    tally: Arc<Tally>,
}

impl Delivered {
    /// That of a version, for a statement. `None` of a version that nothing tells from others for
    /// certain.
    pub fn given(&self, query: u64, id: &ObjectId, version: &Version) -> Option<Given> {
        version.if_match()?;
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let State { tallies, most } = &mut *state;
        if tallies.len() > *most {
            tallies.retain(|_, known| known.iter().any(|(_, tally)| tally.strong_count() > 0));
            *most = (2 * tallies.len()).max(64);
        }
        let known = tallies.entry(id.clone()).or_default();
        known.retain(|(_, tally)| tally.strong_count() > 0);
        let found = known.iter().find(|(of, _)| of.has_tag_of(version));
        if let Some(tally) = found.and_then(|(_, tally)| tally.upgrade()) {
            return Some(Given { query, tally });
        }
        let tally = Arc::default();
        known.push((version.clone(), Arc::downgrade(&tally)));
        Some(Given { query, tally })
    }
}

impl Given {
    /// A read of the statement was given these bytes.
    pub fn add(&self, range: ByteRange) {
        let mut given = self.lock();
        let mine = given.iter().position(|(query, _)| *query == self.query);
        let mine = mine.unwrap_or_else(|| {
            if given.len() == STATEMENTS_MAX {
                let (_, oldest) = given.remove(0);
                for range in oldest.all() {
                    given[0].1.add(*range);
                }
            }
            given.push((self.query, Ranges::default()));
            given.len() - 1
        });
        given[mine].1.add(range);
    }

    /// Whether reads of another statement were given all of a range.
    pub fn is_anothers(&self, range: ByteRange) -> bool {
        let given = self.lock();
        let mut others = given.iter().filter(|(query, _)| *query != self.query);
        others.any(|(_, ranges)| ranges.bytes_in(range) == range.len())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(u64, Ranges)>> {
        self.tally.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_store::{ETag, ObjectMeta};

    fn version(tag: &str) -> Version {
        let etag = Some(ETag(tag.into()));
        Version::of(&ObjectMeta { etag, size_bytes: Some(9), ..ObjectMeta::default() })
    }

    #[test]
    fn statements_tell_each_other_what_they_were_given_of_a_version_while_one_of_them_runs() {
        let delivered = Delivered::default();
        let id = |name: &str| ObjectId { mount: 1, key: name.into() };
        let given = |query, tag| delivered.given(query, &id("a"), &version(tag));
        let range = |start, end| ByteRange { start, end };
        let first = given(1, "\"1\"").expect("it is told");
        first.add(range(0, 4));
        first.add(range(4, 6));
        let second = given(2, "\"1\"").expect("it is told");
        assert!(second.is_anothers(range(2, 6)) && !second.is_anothers(range(2, 7)));
        assert!(!first.is_anothers(range(2, 6)), "it knows that itself");
        let other = given(2, "\"2\"").expect("it is told");
        assert!(!other.is_anothers(range(2, 6)));
        drop((first, second));
        assert!(!given(2, "\"1\"").expect("it is told").is_anothers(range(0, 4)));
        assert!(given(1, "W/\"1\"").is_none(), "it promises no equal bytes");
        for number in 0..1000 {
            delivered.given(1, &id(&number.to_string()), &version("\"1\""));
        }
        let long = given(1, "\"1\"").expect("it is told");
        for query in 2..1000 {
            given(query, "\"1\"").expect("it is told").add(range(query, query + 1));
        }
        assert!(long.lock().len() <= STATEMENTS_MAX);
        assert!((2..1000).all(|query| long.is_anothers(range(query, query + 1))));
        let state = delivered.0.lock().expect("nobody panicked");
        assert!(state.tallies.len() <= 130, "{}", state.tallies.len());
    }
}

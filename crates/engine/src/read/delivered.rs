//! What reads of the statements that run now were given, by version of an object: a host that keeps
//! what it reads (DuckDB's external file cache) does not ask for it again, whoever of them did.

use crate::location::ObjectId;
use crate::read::ranges::Ranges;
use crate::read::version::Version;
use penstock_base::ByteRange;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The tallies of objects whose statements run.
#[derive(Debug, Default)]
pub(crate) struct Delivered(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    tallies: HashMap<ObjectId, Vec<(Version, Weak<Tally>)>>,
    /// With more of them there is a look at which are over.
    most: usize,
}

/// What was given of one version, as long as a statement that reads it runs.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<Ranges>);

impl Delivered {
    /// That of a version, shared by all statements that read it. `None` of a version that nothing
    /// tells from others for certain.
    pub fn tally(&self, id: &ObjectId, version: &Version) -> Option<Arc<Tally>> {
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
            return Some(tally);
        }
        let tally = Arc::new(Tally::default());
        known.push((version.clone(), Arc::downgrade(&tally)));
        Some(tally)
    }
}

impl Tally {
    /// A read was given these bytes.
    pub fn add(&self, range: ByteRange) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).add(range);
    }

    /// What of a range is worth asking for: from the first byte that no read was given to the last.
    pub fn missing(&self, range: ByteRange) -> Option<ByteRange> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).missing(range)
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
    fn statements_share_what_they_know_of_a_version_while_one_of_them_runs() {
        let delivered = Delivered::default();
        let id = |name: &str| ObjectId { mount: 1, key: name.into() };
        let tally = |name, tag| delivered.tally(&id(name), &version(tag));
        let range = |start, end| ByteRange { start, end };
        let first = tally("a", "\"1\"").expect("it is told");
        first.add(range(0, 4));
        let second = tally("a", "\"1\"").expect("it is told");
        assert_eq!(second.missing(range(2, 6)), Some(range(4, 6)));
        let other = tally("a", "\"2\"").expect("it is told");
        assert_eq!(other.missing(range(2, 6)), Some(range(2, 6)));
        drop((first, second));
        let anew = tally("a", "\"1\"").expect("it is told");
        assert_eq!(anew.missing(range(0, 4)), Some(range(0, 4)));
        assert!(tally("a", "W/\"1\"").is_none(), "it promises no equal bytes");
        for number in 0..1000 {
            delivered.tally(&id(&number.to_string()), &version("\"1\""));
        }
        let state = delivered.0.lock().expect("nobody panicked");
        assert!(state.tallies.len() <= 130, "{}", state.tallies.len());
    }
}

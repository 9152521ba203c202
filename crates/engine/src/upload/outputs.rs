//! The names that one statement writes. Two outputs of one name would end as one object, and the
//! rows of the other would be lost without an error.
//!
//! Some servers keep names that differ by case only as one (a file system of macOS or Windows below
//! them). No request asks a server for that. So once two such names of a statement are placed, the
//! tags that stand under them decide.

use crate::attempt::{Weight, retry};
use crate::cause::Cause;
use crate::location::Location;
use crate::query::QueryCore;
use penstock_base::{Error, Kind, Result};
use penstock_store::ETag;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Each name that is being written or was written, by its folded form. Nothing is refused before
/// [`Outputs::guard`].
#[derive(Debug, Default)]
pub(crate) struct Outputs(Mutex<Option<HashMap<String, Vec<Output>>>>);

#[derive(Clone, Debug)]
struct Output {
    at: Location,
    /// The tag of the object, once it is placed and the store gave one.
    placed: Option<ETag>,
}

impl Outputs {
    /// From now on each name is written once.
    pub fn guard(&self) {
        self.lock().get_or_insert_default();
    }

    /// An output begins.
    ///
    /// # Errors
    /// `Conflict` where another output has this name; the error has both URLs.
    pub fn begin(&self, at: &Location) -> Result<()> {
        let mut outputs = self.lock();
        let Some(names) = outputs.as_mut() else { return Ok(()) };
        let alike = names.entry(folded(&at.name())).or_default();
        if let Some(first) = alike.iter().find(|output| output.at.name() == at.name()) {
            return Err(written_twice(first.at.url(), at.url()));
        }
        alike.push(Output { at: at.clone(), placed: None });
        Ok(())
    }

    /// The output was given up, removed or renamed: its name is free again.
    pub fn forget(&self, at: &Location) {
        let mut outputs = self.lock();
        let Some(names) = outputs.as_mut() else { return };
        let name = folded(&at.name());
        if let Some(alike) = names.get_mut(&name) {
            alike.retain(|output| output.at.name() != at.name());
            if alike.is_empty() {
                names.remove(&name);
            }
        }
    }

    /// Notes the tag of an output that is placed; the others with a like name that are placed, too.
    fn placed(&self, at: &Location, tag: &ETag) -> Vec<Output> {
        let mut outputs = self.lock();
        let Some(alike) = outputs.as_mut().and_then(|names| names.get_mut(&folded(&at.name())))
        else {
            return Vec::new();
        };
        let (own, others): (Vec<_>, Vec<_>) =
            alike.iter_mut().partition(|output| output.at.name() == at.name());
        own.into_iter().for_each(|output| output.placed = Some(tag.clone()));
        others.into_iter().filter(|output| output.placed.is_some()).map(|it| it.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Option<HashMap<String, Vec<Output>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks, for an output that is placed, whether the server keeps it and another output of the
/// statement as one object. Costs no request unless two names are alike.
///
/// # Errors
/// `Conflict` where it does. Where the server cannot be asked, its error.
pub(super) async fn check_apart(query: &QueryCore, at: &Location, tag: &ETag) -> Result<()> {
    for other in query.outputs.placed(at, tag) {
        // Whichever was placed last stands under both names.
        for (name, tags) in [
            (&other.at, (other.placed.as_ref(), Some(tag))),
            (at, (Some(tag), other.placed.as_ref())),
        ] {
            let stands = retry(query, (Cause::Write, "HEAD", name), Weight::Small, || {
                name.mount.store.stat(&name.key)
            })
            .await?
            .etag;
            let (its_own, the_others) = tags;
            if stands.as_ref() != its_own && stands.as_ref() == the_others {
                return Err(written_twice(other.at.url(), at.url()));
            }
        }
    }
    Ok(())
}

/// The form in which names are equal that differ by case only.
fn folded(name: &str) -> String {
    name.to_lowercase()
}

fn written_twice(first: String, second: String) -> Error {
    let why = match first == second {
        true => "two outputs of this statement have this name".to_string(),
        false => format!("two outputs of this statement are one object: {first} is the other"),
    };
    Error::new(Kind::Conflict, why).with_operation("write").with_object(second).with_hint(
        "Let each output have a name of its own. Partition values can give one name: NULL is \
         written as __HIVE_DEFAULT_PARTITION__, as is that text; some servers keep names that \
         differ by case only as one. Replace one of them in the query, or add {uuid} to \
         FILENAME_PATTERN",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::Mounts;
    use penstock_store::memory::MemoryStore;
    use std::sync::Arc;

    #[test]
    fn a_name_is_written_once_until_it_is_free_again() {
        let mount = Arc::new(Mounts::default().mount(Arc::new(MemoryStore::new("t"))));
        let outputs = Outputs::default();
        outputs.begin(&mount.at("a")).unwrap();
        outputs.begin(&mount.at("a")).unwrap();
        outputs.guard();
        outputs.begin(&mount.at("a")).unwrap();
        outputs.begin(&mount.at("A")).unwrap();
        let error = outputs.begin(&mount.at("a")).unwrap_err();
        assert_eq!(error.kind(), Kind::Conflict);
        assert!(error.to_string().contains("NULL"), "{error}");
        outputs.forget(&mount.at("a"));
        outputs.begin(&mount.at("a")).unwrap();
    }

    #[test]
    fn two_spellings_of_one_name_are_both_told() {
        let error = written_twice("s3://b/k".to_string(), "s3a://b/k".to_string()).to_string();
        assert!(error.contains("s3://b/k ") && error.contains("s3a://b/k"), "{error}");
    }
}

//! The names that one statement writes. Two outputs of one name would end as one object, and the
//! rows of the other would be lost without an error.

use crate::location::Location;
use penstock_base::{Error, Kind, Result};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Each name that is being written or was written, with its URL as the caller spelt it. Nothing is
/// refused before [`Outputs::guard`].
#[derive(Debug, Default)]
pub(crate) struct Outputs(Mutex<Option<HashMap<String, String>>>);

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
        let url = at.url();
        match names.get(&at.name()) {
            Some(first) => Err(written_twice(first, url)),
            None => {
                names.insert(at.name(), url);
                Ok(())
            }
        }
    }

    /// The output was given up, removed or renamed: its name is free again.
    pub fn forget(&self, at: &Location) {
        if let Some(names) = self.lock().as_mut() {
            names.remove(&at.name());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<HashMap<String, String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn written_twice(first: &str, second: String) -> Error {
    let why = match first == second {
        true => "two outputs of this statement have this name".to_string(),
        false => format!("two outputs of this statement are one object: {first} is the other"),
    };
    Error::new(Kind::Conflict, why).with_operation("write").with_object(second).with_hint(
        "Let each output have a name of its own. Partition values can give one name: NULL is \
         written as __HIVE_DEFAULT_PARTITION__, as is that text; replace one of them in the query, \
         or add {uuid} to FILENAME_PATTERN",
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
        let error = written_twice("s3://b/k", "s3a://b/k".to_string()).to_string();
        assert!(error.contains("s3://b/k ") && error.contains("s3a://b/k"), "{error}");
    }
}

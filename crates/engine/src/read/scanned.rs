//! Which versions of files earlier statements read columns of: DuckDB's own cache may have any of
//! them, and does not ask for those again.

use crate::location::Location;
use crate::read::version::Version;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// More are forgotten all at once: then a column may be fetched ahead that is not read.
const FILES_MAX: usize = 100_000;

/// Files by name and version.
#[derive(Debug, Default)]
pub(crate) struct Scanned(Mutex<HashSet<(String, Version)>>);

impl Scanned {
    /// Takes note of a read of a file's columns.
    pub fn note(&self, at: &Location, version: &Version) {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if files.len() >= FILES_MAX {
            files.clear();
        }
        files.insert((at.name(), version.clone()));
    }

    /// Whether columns of this version were read.
    pub fn knows(&self, at: &Location, version: &Version) -> bool {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.contains(&(at.name(), version.clone()))
    }
}

//! A directory that asks the test before each change of it.

use crate::cache::files::Directory;
use crate::cache::medium::{BlockFile, Medium, Recovered, Sizes};
use crate::cache::outdated::{HASHES_MAX, Noted};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// What is about to be done.
pub(in crate::cache) enum Step<'a> {
    Create,
    Remove,
    Settle,
    Note(&'a Noted),
}

type Before = dyn Fn(Step<'_>) -> io::Result<()> + Send + Sync;

pub(in crate::cache) struct Watched {
    directory: Directory,
    /// May hold a step up, or refuse it.
    before: Box<Before>,
    /// Of each file, in place of the directory's own.
    pub file_bytes: Option<u64>,
    pub hashes_max: usize,
}

impl Watched {
    pub fn new(
        dir: &Path,
        before: impl Fn(Step<'_>) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let directory = Directory::hold(dir).unwrap();
        let before = Box::new(before);
        Watched { directory, before, file_bytes: None, hashes_max: HASHES_MAX }
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watched").field(&self.directory).finish()
    }
}

impl Medium for Watched {
    fn sizes(&self, asked_bytes: u64) -> Sizes {
        let sizes = self.directory.sizes(asked_bytes);
        match self.file_bytes {
            Some(file_bytes) => Sizes { capacity_bytes: asked_bytes, file_bytes },
            None => sizes,
        }
    }

    fn taken_bytes(&self, file_bytes: u64) -> u64 {
        self.directory.taken_bytes(file_bytes)
    }

    fn next_number(&self) -> u64 {
        self.directory.next_number()
    }

    fn recover(&self) -> Vec<Recovered> {
        self.directory.recover()
    }

    fn create(&self, number: u64) -> io::Result<Arc<dyn BlockFile>> {
        (self.before)(Step::Create)?;
        self.directory.create(number)
    }

    fn remove(&self, number: u64) -> io::Result<()> {
        (self.before)(Step::Remove)?;
        self.directory.remove(number)
    }

    fn settle(&self) -> io::Result<()> {
        (self.before)(Step::Settle)?;
        self.directory.settle()
    }

    fn hashes_max(&self) -> usize {
        self.hashes_max
    }

    fn noted(&self) -> Noted {
        self.directory.noted()
    }

    fn note(&self, noted: &Noted) -> io::Result<()> {
        (self.before)(Step::Note(noted))?;
        self.directory.note(noted)
    }
}

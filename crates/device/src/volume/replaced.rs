//! A file that takes the name of another one. It decides what stands in the way of that, and how
//! who reads the other one learns of it.

use crate::volume::behind;
use crate::volume::file::{File, PAGE};
use crate::volume::node::Node;
use crate::volume::space::Extent;
use crate::volume::table::{PAGE_BYTES, is_name};
use crate::volume::{Core, TEMP_PREFIX, Volume, no_such_file};
use crc_fast::CrcAlgorithm;
use penstock_base::{Error, Kind, Result};
use std::fmt;

const RENAME: &str = "volume rename";

/// What tells a file from another one that gets its name, for whoever keeps no handle to it. The
/// table has nothing but names for files, so this is where the bytes lie, how many they are, and
/// what the first and the last of them are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Of the volume's table: while it stands, nothing was replaced.
    generation: u64,
    lies: Lies,
    ends: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Lies {
    volume: u64,
    size_bytes: u64,
    /// Of the pages that the size needs: what a file has beyond comes and goes.
    extents: Vec<Extent>,
}

/// The same text for the same file.
impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lies { volume, size_bytes, extents } = &self.lies;
        write!(f, "{volume:x} {size_bytes} {:x}", self.ends)?;
        extents.iter().try_for_each(|it| write!(f, " {}+{}", it.first_page, it.pages))
    }
}

impl File {
    /// The version of the file that this handle is of.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn version(&self) -> Result<Version> {
        // Before the bytes: what is replaced meanwhile has another one.
        let generation = self.volume.generation();
        let lies = self.lies();
        Ok(Version { generation, ends: self.ends(lies.size_bytes)?, lies })
    }

    /// Whether this handle is of the file that a version was taken of.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn is_still(&self, version: &Version) -> Result<bool> {
        let generation = self.volume.generation();
        if self.lies() != version.lies {
            return Ok(false);
        }
        // A file that was replaced twice may lie where the first one did.
        Ok(generation == version.generation || self.ends(version.lies.size_bytes)? == version.ends)
    }

    fn lies(&self) -> Lies {
        let (volume, size_bytes) = (self.volume.id(), self.node.size());
        let extents = self.node.map().pieces(0, size_bytes.div_ceil(PAGE_BYTES));
        Lies { volume, size_bytes, extents }
    }

    fn ends(&self, size_bytes: u64) -> Result<u64> {
        let mut bytes = vec![0; 2 * PAGE];
        let (first, last) = bytes.split_at_mut(PAGE);
        self.read_at(first, 0)?;
        self.read_at(last, size_bytes.saturating_sub(PAGE_BYTES))?;
        Ok(crc_fast::checksum(CrcAlgorithm::Crc64Nvme, &bytes))
    }
}

impl Volume {
    /// Counts what was committed to the volume's table.
    fn generation(&self) -> u64 {
        self.core().table.generation
    }

    pub(super) fn locked(&self, operation: &'static str, name: &str) -> Error {
        let message = "it is open already, with a lock that forbids this";
        self.error(Kind::Conflict, message, operation, name).with_hint(
            "Detach the database, or close the other handle; several may only read together",
        )
    }

    /// What is told about a file that is there no more.
    pub(super) fn gone(&self, operation: &'static str, node: &Node) -> Error {
        let (message, hint) = match node.is_replaced() {
            true => ("it was replaced while it was open", "Run the statement again"),
            false => (
                "the file was removed",
                "Run the statement again if the file is there; a database has to be detached and \
                 attached again",
            ),
        };
        self.error(Kind::NotFound, message, operation, &node.name()).with_hint(hint)
    }

    /// Whether [`Volume::rename`] may put another file in the place of this one, for whoever has
    /// that file still to write. A name that no file has is free.
    ///
    /// # Errors
    /// `Conflict` if a handle to the file holds a lock.
    pub fn check_replaceable(&self, name: &str) -> Result<()> {
        self.check_process(RENAME)?;
        self.check_unlocked(&self.core(), name)
    }

    /// A database that is attached is locked: what it has not written yet would have no place.
    fn check_unlocked(&self, core: &Core, name: &str) -> Result<()> {
        match core.nodes.get(name).is_some_and(|node| node.holders().have_lock()) {
            true => Err(self.locked(RENAME, name)),
            false => Ok(()),
        }
    }

    /// Gives a file another name, in place of the file that may have it; at no moment, not even
    /// after a crash, is there none of that name. Open handles follow.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` if a handle to the file that has the name holds a lock; `Invalid`
    /// between temporary and lasting names; and as [`Port::run`](crate::Port::run).
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.check_writable(RENAME)?;
        let mut core = self.core();
        let Some(node) = core.nodes.get(from).cloned() else {
            return Err(no_such_file(self.object(from), &core, RENAME));
        };
        if from == to {
            return Ok(());
        }
        if !is_name(to) || node.is_temp() != to.starts_with(TEMP_PREFIX) {
            let message = "it cannot get that name";
            return Err(self.error(Kind::Invalid, message, RENAME, from).with_hint(format!(
                "A name has 1 to 255 bytes; {TEMP_PREFIX} is for temporary files"
            )));
        }
        self.check_unlocked(&core, to)?;
        if !node.is_temp() {
            let longer = to.len().saturating_sub(from.len()) as u64;
            self.check_name_room(&core, longer, RENAME, from)?;
            let mut next = core.table.clone();
            let entry = next.files.remove(from).expect("a lasting file is in the table");
            next.files.insert(to.to_string(), entry);
            self.commit(&mut core, next, RENAME)?;
        }
        core.nodes.remove(from);
        let replaced = core.nodes.insert(to.to_string(), node.clone());
        node.rename(to);
        if let Some(replaced) = replaced {
            replaced.mark_replaced();
            self.discard(&mut core, &replaced);
            drop(core);
            behind::forget(&replaced, 0);
        }
        Ok(())
    }
}

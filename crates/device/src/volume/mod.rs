//! Files on a device: a few named ones, of exact size, that grow, shrink, sync and are renamed.
//! Made for databases: `sales`, its log `sales.wal`, and what a checkpoint puts beside them; names
//! below `temp/` are for spilling and are gone when the volume is closed.
//!
//! It decides where bytes lie and when they are durable. Creating, renaming, truncating and
//! removing are durable when they return, whole or not at all; bytes and growth after
//! [`File::sync`]. How bytes move is the port's matter.

mod account;
mod ahead;
mod behind;
mod budget;
mod copies;
mod durable;
mod file;
mod format;
mod grown;
mod helped;
mod holders;
mod map;
mod moved;
mod node;
mod ranges;
mod replaced;
mod room;
mod shared;
mod shrunk;
mod side;
pub mod signature;
pub mod space;
mod spare;
pub mod table;
mod thread;
mod write;

pub use account::{Account, Lease, Leased, Memory, Purpose};
pub use file::File;
pub use format::{FormatOptions, Report, check, check_unused, format};
pub use holders::Lock;
pub use replaced::Version;
pub use shared::{Asked, SharedVolume, Wish};
pub use side::{Side, Sides, SpillsMost};

use crate::port::Port;
use crate::process::{Own, forked};
use copies::{Paging, choose, memory, repair};
use durable::Flushes;
use grown::find_copies;
use helped::Helpers;
use map::Map;
use node::Node;
use penstock_base::{Error, Kind, Result};
use shrunk::check_whole;
use space::{Extent, Space};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use table::{Entry, PAGE_BYTES, Table, data_pages, entry_bytes, is_name};

/// Names that begin so are of temporary files.
pub const TEMP_PREFIX: &str = "temp/";

/// How [`Volume::open_file`] opens.
#[derive(Clone, Copy, Debug)]
pub struct OpenFileOptions {
    /// Makes the file if it is not there.
    pub create: bool,
    /// Which other handles may be open meanwhile.
    pub lock: Lock,
}

/// A file as [`Volume::list`] tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Its name.
    pub name: String,
    /// Exact size.
    pub size_bytes: u64,
    /// Room that it has on the device.
    pub allocated_bytes: u64,
}

/// An open volume, shared by the threads of a process.
pub struct Volume {
    // Before the port, which their threads hold.
    helpers: Option<Own<Helpers>>,
    port: Own<Arc<Port>>,
    paging: Paging,
    core: Own<Mutex<Core>>,
    flushes: Flushes,
    /// Cleared when the device turns out not to trim.
    trims: AtomicBool,
    /// Pages that were overwritten where they lay, though they should have moved.
    stayed_pages: AtomicU64,
}

/// What changes only with a commit, or with an allocation.
struct Core {
    /// As it is on the device.
    table: Table,
    nodes: BTreeMap<String, Arc<Node>>,
    space: Space,
    /// Holds the free pages that were not trimmed.
    untrimmed: Range<u64>,
}

// Locks are taken in this order: a node's `grow`, its `overwriting`, its `edge`, its `holes`, the
// volume's `core`, a node's `known`, its gate and `map`.
impl Volume {
    /// Opens the volume on a device. A read-only port gives a read-only volume; else copies of the
    /// table that are damaged are written anew from a sound one.
    ///
    /// # Errors
    /// `NotFound` where there is none, or where something else has taken the device's beginning,
    /// `Unsupported` for a newer format, `Corrupt` if no copy of
    /// the table is sound or the device shrank; and as [`Port::run`].
    pub fn open(port: Port) -> Result<Arc<Self>> {
        Self::open_with(port, false)
    }

    /// As [`Volume::open`], for a device past the page cache: files that are read in order are read
    /// ahead, and blocks are written behind, by threads of the volume. What of them cannot be
    /// written is told by the file's next [`File::sync`], which tries once more.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open_with_helpers(port: Port) -> Result<Arc<Self>> {
        Self::open_with(port, true)
    }

    fn open_with(port: Port, has_helpers: bool) -> Result<Arc<Self>> {
        let paging = Paging::of(&port)?;
        check_whole(&port, paging)?;
        let found = find_copies(&port, paging)?;
        let table = choose(&found, &port, paging)?;
        if !port.geometry().is_read_only {
            repair(&port, paging, &found, &table)?;
        }
        let extents = table.files.values().flat_map(|entry| entry.extents.iter().copied());
        let space = Space::new(data_pages(table.page_count), extents);
        let nodes = table.files.iter().map(|(name, entry)| {
            let map = Map::new(&entry.extents);
            (name.clone(), Arc::new(Node::new(name, map, entry.size_bytes)))
        });
        let nodes = nodes.collect();
        let trims = AtomicBool::new(port.geometry().can_trim);
        let core = Mutex::new(Core { table, nodes, space, untrimmed: 0..0 });
        let port = Arc::new(port);
        let helpers = has_helpers.then(|| Own::new(Helpers::new(&port)));
        Ok(Arc::new(Volume {
            helpers,
            port: Own::new(port),
            paging,
            core: Own::new(core),
            flushes: Flushes::default(),
            trims,
            stayed_pages: AtomicU64::default(),
        }))
    }

    /// The device under the volume.
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// Refuses what a child of a fork asks of its parent's volume. It must not ask anything else:
    /// the locks may be held for ever.
    ///
    /// # Errors
    /// `Unsupported` in a forked child.
    pub fn check_process(&self, operation: &'static str) -> Result<()> {
        match self.port.is_here() {
            true => Ok(()),
            false => Err(forked(operation, self.port.name())),
        }
    }

    /// Nothing panics with the lock held and the state half changed.
    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How errors call a file: as its URL does, without whose a temporary one is.
    fn object(&self, name: &str) -> String {
        match name.strip_prefix(TEMP_PREFIX) {
            Some(name) => {
                let file = name.rsplit('/').next().unwrap_or(name);
                format!("{}?temp/{file}", self.port.name())
            }
            None => format!("{}?db={name}", self.port.name()),
        }
    }

    fn error(&self, kind: Kind, message: &str, operation: &'static str, name: &str) -> Error {
        Error::new(kind, message).with_operation(operation).with_object(self.object(name))
    }

    /// The files by name, temporary ones too.
    pub fn list(&self) -> Vec<FileInfo> {
        let core = self.core();
        let info = |(name, node): (&String, &Arc<Node>)| FileInfo {
            name: name.clone(),
            size_bytes: node.size(),
            allocated_bytes: node.map().pages() * PAGE_BYTES,
        };
        core.nodes.iter().map(info).collect()
    }

    /// Whether there is a file of this name.
    pub fn exists(&self, name: &str) -> bool {
        self.core().nodes.contains_key(name)
    }

    /// Bytes that no file has.
    pub fn free_bytes(&self) -> u64 {
        self.core().space.free_pages() * PAGE_BYTES
    }

    /// Bytes of the volume, its own tables included.
    pub fn size_bytes(&self) -> u64 {
        self.core().table.page_count * PAGE_BYTES
    }

    /// The number that tells volumes apart.
    pub fn id(&self) -> u64 {
        self.core().table.id
    }

    /// Opens a file; a new one is durable, and empty, when this returns.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` if another handle's lock forbids it; `Invalid` for a name that is
    /// none; `Denied` to create on a read-only volume; and as [`Volume::check_process`] and
    /// [`Port::run`].
    pub fn open_file(self: &Arc<Self>, name: &str, options: OpenFileOptions) -> Result<File> {
        const OPERATION: &str = "volume open file";
        self.check_process(OPERATION)?;
        let mut core = self.core();
        let node = match core.nodes.get(name) {
            Some(node) => node.clone(),
            None if options.create => self.create(&mut core, name)?,
            None => return Err(no_such_file(self.object(name), &core, OPERATION)),
        };
        if !node.holders().try_enter(options.lock) {
            return Err(self.locked(OPERATION, name));
        }
        Ok(File::new(self.clone(), node, options.lock))
    }

    fn create(&self, core: &mut Core, name: &str) -> Result<Arc<Node>> {
        const OPERATION: &str = "volume create";
        self.check_writable(OPERATION)?;
        if !is_name(name) {
            let message = "a name has 1 to 255 bytes and no control characters";
            let error = self.error(Kind::Invalid, message, OPERATION, name);
            return Err(error.with_hint("Choose another name"));
        }
        let node = Arc::new(Node::new(name, Map::default(), 0));
        if !node.is_temp() {
            self.check_name_room(core, entry_bytes(name.len(), 0), OPERATION, name)?;
            let mut next = core.table.clone();
            next.files.insert(name.to_string(), Entry::default());
            self.commit(core, next, OPERATION)?;
        }
        core.nodes.insert(name.to_string(), node.clone());
        Ok(node)
    }

    /// Removes a file. Handles to it that are open fail from then on.
    ///
    /// # Errors
    /// `NotFound`; and as [`Port::run`].
    pub fn remove(&self, name: &str) -> Result<()> {
        const OPERATION: &str = "volume remove";
        self.check_writable(OPERATION)?;
        let mut core = self.core();
        let Some(node) = core.nodes.get(name).cloned() else {
            return Err(no_such_file(self.object(name), &core, OPERATION));
        };
        if !node.is_temp() {
            let mut next = core.table.clone();
            next.files.remove(name);
            self.commit(&mut core, next, OPERATION)?;
        }
        core.nodes.remove(name);
        self.discard(&mut core, &node);
        drop(core);
        // Nor does anybody need what of it is in memory.
        behind::forget(&node, 0);
        Ok(())
    }

    /// Lets the volume use a device that has become larger since it was formatted.
    ///
    /// # Errors
    /// As [`Port::run`].
    pub fn grow(&self) -> Result<u64> {
        self.check_writable("volume grow")?;
        let mut core = self.core();
        if self.paging.pages > core.table.page_count {
            let mut next = core.table.clone();
            next.page_count = self.paging.pages;
            let before = data_pages(core.table.page_count).end();
            self.commit(&mut core, next, "volume grow")?;
            // What a lost table is looked for at (`grown.rs`) must not be older than it.
            let nothing = memory(&self.port, PAGE_BYTES as usize);
            self.port.write(before * self.paging.blocks_per_page, &nothing)?;
            let pages = data_pages(self.paging.pages).end() - before;
            core.space.release(Extent { first_page: before, pages });
        }
        Ok(core.table.page_count * PAGE_BYTES)
    }
}

/// Names a few of the files that there are.
fn no_such_file(object: String, core: &Core, operation: &'static str) -> Error {
    const NAMED_MOST: usize = 12;
    let lasting: Vec<&str> = core.table.files.keys().map(String::as_str).collect();
    let hint = match lasting.len() {
        0 => "The volume is empty".to_string(),
        count => {
            let more = if count > NAMED_MOST { ", ..." } else { "" };
            format!("There are: {}{more}", lasting[..count.min(NAMED_MOST)].join(", "))
        }
    };
    let error = Error::new(Kind::NotFound, "there is no such file").with_operation(operation);
    error.with_object(object).with_hint(hint)
}

impl Drop for Volume {
    fn drop(&mut self) {
        if !self.port.is_here() {
            return;
        }
        // What nobody synced may be lost, and the second and third copy of the last table, which
        // may still be in the device's cache: the first is durable. So failures do not matter.
        if !self.port.geometry().is_read_only && !self.flushes.is_failed() {
            let nodes: Vec<_> = self.core().nodes.values().cloned().collect();
            for node in nodes {
                let is_written = self.finish(&node, node.size()).is_ok();
                // A file that is closed holds what was written, also where blocks moved.
                if is_written && !node.has_holes() && node.known().left.pages() > 0 {
                    drop(self.sync(&node, node.at_rest()));
                }
            }
            self.trim_late();
            let _ = self.port.flush();
        }
        if self.flushes.is_failed() {
            self.port.forget_cached();
        }
    }
}

//! The room of the table: every piece in which a file lies takes some. It decides how many pieces
//! files may come to lie in, so that no sync finds its table too long to be written.

use crate::volume::table::{COPY_BYTES, EXTENT_BYTES, HEADER_BYTES, entry_bytes};
use crate::volume::{Core, Volume};
use penstock_base::{Error, Kind, Result};

/// Blocks that are overwritten move while the table takes no more than this: the rest is for files
/// that grow.
const MOVING_MOST_BYTES: u64 = COPY_BYTES / 4 * 3;

impl Core {
    /// The longest that the table can be, whichever of the files are synced next.
    fn table_bytes(&self) -> u64 {
        let lasting = self.nodes.iter().filter(|(_, node)| !node.is_temp());
        let entries = lasting.map(|(name, node)| {
            let committed = self.table.files.get(name).map_or(0, |entry| entry.extents.len());
            entry_bytes(name.len(), committed.max(node.extent_count()))
        });
        HEADER_BYTES as u64 + entries.sum::<u64>()
    }

    /// Whether blocks may move, and files come to lie in so many pieces more.
    pub(super) fn may_move(&self, pieces: u64) -> bool {
        self.table_bytes() + pieces * EXTENT_BYTES <= MOVING_MOST_BYTES
    }

    /// Whether files may come to lie in so many pieces more.
    pub(super) fn may_grow(&self, pieces: u64) -> bool {
        self.table_bytes() + pieces * EXTENT_BYTES <= COPY_BYTES
    }

    /// Whether there is room for a name that is so much longer, or new.
    pub(super) fn may_have_name(&self, bytes: u64) -> bool {
        self.table_bytes() + bytes <= COPY_BYTES
    }
}

impl Volume {
    pub(super) fn table_full(&self, operation: &'static str, name: &str) -> Error {
        self.error(Kind::Exhausted, TABLE_FULL, operation, name).with_hint(TABLE_FULL_HINT)
    }

    /// Refuses a name for which the table has no room.
    pub(super) fn check_name_room(
        &self,
        core: &Core,
        bytes: u64,
        operation: &'static str,
        name: &str,
    ) -> Result<()> {
        match core.may_have_name(bytes) {
            true => Ok(()),
            false => Err(self.table_full(operation, name)),
        }
    }
}

/// What is wrong where the table has no room.
pub(super) const TABLE_FULL: &str = "the volume's table is full: its files lie in too many pieces";
/// What helps: copied in anew, a database lies in few.
pub(super) const TABLE_FULL_HINT: &str =
    "Remove files, or export a database, remove it and import it again";

//! What files have beyond their need. A file that grows is given more than it asks for, so that it
//! lies in few pieces; this decides when that is taken back: when another file needs the room, and
//! when nobody has the file open any more.

use crate::volume::map::Map;
use crate::volume::node::Node;
use crate::volume::{Core, Volume};
use penstock_base::Result;
use std::sync::Arc;

/// How many pages a file has that it does not need.
fn spare_pages(node: &Node) -> u64 {
    node.map().pages().saturating_sub(node.needed_pages())
}

impl Volume {
    /// Takes back what all files have beyond their need, if it is so many pages as are wanted.
    ///
    /// # Errors
    /// As [`Volume::commit`]; then nothing is taken.
    pub(super) fn take_back_if(
        &self,
        core: &mut Core,
        operation: &'static str,
        is_wanted: impl Fn(u64) -> bool,
    ) -> Result<()> {
        if !is_wanted(core.nodes.values().map(|node| spare_pages(node)).sum()) {
            return Ok(());
        }
        let nodes: Vec<Arc<Node>> = core.nodes.values().cloned().collect();
        self.take_back(core, nodes.iter().map(Arc::as_ref), operation)
    }

    /// To be called when nobody has a file open any more. The file loses nothing where this fails:
    /// the device has failed then, and whoever changes something next is told.
    pub(super) fn give_back(&self, node: &Node) {
        const OPERATION: &str = "volume close file";
        if spare_pages(node) == 0 || self.check_writable(OPERATION).is_err() {
            return;
        }
        let mut core = self.core();
        if !node.is_removed() {
            let _ = self.take_back(&mut core, std::iter::once(node), OPERATION);
        }
    }

    /// The table on the device stops naming those pages before anybody else can have them. What it
    /// says of the pages that are kept stays: where they moved, or hold more, only a sync tells.
    fn take_back<'a>(
        &self,
        core: &mut Core,
        nodes: impl Iterator<Item = &'a Node>,
        operation: &'static str,
    ) -> Result<()> {
        let needs: Vec<(&Node, u64)> = nodes.map(|node| (node, node.needed_pages())).collect();
        let mut next = core.table.clone();
        let mut is_told = false;
        for (node, needed) in needs.iter().filter(|(node, _)| !node.is_temp()) {
            let Some(entry) = next.files.get_mut(&node.name()) else { continue };
            let (kept, freed) = Map::new(&entry.extents).cut(*needed);
            is_told |= !freed.is_empty();
            entry.extents = kept.extents().to_vec();
        }
        if is_told {
            self.commit(core, next, operation)?;
        }
        for (node, needed) in needs {
            let freed = {
                let mut map = node.map_mut();
                let (kept, freed) = map.cut(needed);
                *map = kept;
                freed
            };
            self.release(core, &freed, true);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Image, ModelDevice};
    use crate::volume::{FormatOptions, Lock, OpenFileOptions, format};
    use crate::{Discipline, Port};

    /// Between its room and its size a file that grows has pages that nothing tells of but this.
    #[test]
    fn what_is_about_to_be_filled_is_not_taken() {
        let model = ModelDevice::new(4096, 1280, Image::default()).expect("the sizes are right");
        let port = Port::new(Arc::new(model), Discipline::Thread).expect("opens");
        format(&port, FormatOptions::default()).expect("formats");
        let volume = Volume::open(port).expect("opens");
        let options = OpenFileOptions { create: true, lock: Lock::None };
        let file = volume.open_file("db", options).expect("creates");
        file.write_at(&[1; 5000], 0).expect("writes");
        let growth = file.node.growth();
        file.reserve(20, &growth).expect("there is room");
        let take_all = || {
            let taken = volume.take_back_if(&mut volume.core(), "volume write", |_| true);
            taken.expect("commits");
            file.node.map().pages()
        };
        assert_eq!(take_all(), 20);
        file.node.promise(0);
        assert_eq!(take_all(), 2);
    }
}

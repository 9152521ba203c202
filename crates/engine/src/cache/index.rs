//! Which blocks of which objects are cached, and where. Pure.
//!
//! Blocks of one version never overlap: an offer is cut to what is not there yet. Files of blocks
//! are forgotten oldest first; blocks of them that were used since they were written get another
//! round (as in S3-FIFO, Yang et al., SOSP 2023), at most [`SURVIVORS`] of a file.

use crate::cache::marks::Marks;
use bytes::Bytes;
use penstock_base::ByteRange;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Most bytes of a forgotten file that are written again, as a part of the file: 1 of so many.
const SURVIVORS: u64 = 2;

/// One version of an object, whatever credentials were used to open it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ObjectVersion {
    /// URL of where it really is.
    pub name: Arc<str>,
    /// Its strong ETag.
    pub etag: Arc<str>,
    pub size_bytes: u64,
}

/// Where a block's bytes are.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// On the way to a file.
    Queued(Bytes),
    /// At this position of this file.
    File { file: u64, position: u64, crc: u32 },
}

#[derive(Debug)]
struct Block {
    end: u64,
    place: Place,
    used: bool,
}

/// A block that a read overlaps.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub block: ByteRange,
    pub place: Place,
}

#[derive(Debug, Default)]
struct File {
    bytes: u64,
    /// Those written to it; they may have been forgotten since.
    blocks: Vec<(ObjectVersion, u64)>,
    /// Hashes of versions that were marked when they were lost, of which it may still hold blocks.
    lost: Vec<u64>,
}

/// A block of a forgotten file that is worth another round.
#[derive(Debug)]
pub(super) struct Survivor {
    pub version: ObjectVersion,
    pub block: ByteRange,
    pub position: u64,
    pub crc: u32,
    /// Its version was marked, as all were: that must not get lost on the way.
    pub is_doubted: bool,
}

/// What is cached.
#[derive(Debug, Default)]
pub(super) struct Index {
    objects: HashMap<ObjectVersion, BTreeMap<u64, Block>>,
    /// By name, the versions of which something is cached; the last one was cached last.
    versions: HashMap<Arc<str>, Vec<ObjectVersion>>,
    /// Those that are not to be taken for their objects without asking.
    marks: Marks,
    files: BTreeMap<u64, File>,
}

impl Index {
    /// The parts of a range that are not cached.
    pub fn gaps(&self, version: &ObjectVersion, range: ByteRange) -> Vec<ByteRange> {
        let mut gaps = Vec::new();
        let mut next = range.start;
        for found in self.overlapping(version, range) {
            if found.start > next {
                gaps.push(ByteRange { start: next, end: found.start });
            }
            next = next.max(found.end);
        }
        if next < range.end {
            gaps.push(ByteRange { start: next, end: range.end });
        }
        gaps
    }

    fn overlapping(
        &self,
        version: &ObjectVersion,
        range: ByteRange,
    ) -> impl Iterator<Item = ByteRange> {
        let blocks = self.objects.get(version);
        let first = blocks
            .and_then(|blocks| blocks.range(..=range.start).next_back())
            .map_or(range.start, |(start, _)| *start);
        blocks
            .into_iter()
            .flat_map(move |blocks| blocks.range(first..range.end.max(first)))
            .map(|(start, block)| ByteRange { start: *start, end: block.end })
            .filter(move |block| block.end > range.start)
    }

    /// The blocks that a range overlaps, in order; they count as used.
    pub fn find(&mut self, version: &ObjectVersion, range: ByteRange) -> Vec<Found> {
        let ranges: Vec<ByteRange> = self.overlapping(version, range).collect();
        let Some(blocks) = self.objects.get_mut(version) else { return Vec::new() };
        let mut found = Vec::with_capacity(ranges.len());
        for range in ranges {
            let Some(block) = blocks.get_mut(&range.start) else { continue };
            block.used = true;
            found.push(Found { block: range, place: block.place.clone() });
        }
        found
    }

    /// Takes note of a block, which must lie in a gap.
    pub fn insert(&mut self, version: &ObjectVersion, range: ByteRange, place: Place) {
        debug_assert_eq!(self.gaps(version, range), [range], "blocks never overlap");
        if let Place::File { file, .. } = &place {
            let file = self.files.entry(*file).or_default();
            file.blocks.push((version.clone(), range.start));
        }
        let block = Block { end: range.end, place, used: false };
        self.objects.entry(version.clone()).or_default().insert(range.start, block);
        let versions = self.versions.entry(Arc::clone(&version.name)).or_default();
        if versions.last() != Some(version) {
            versions.retain(|known| known != version);
            versions.push(version.clone());
        }
    }

    /// Whether a block was used since this was last asked.
    pub fn take_used(&mut self, version: &ObjectVersion, start: u64) -> bool {
        let block = self.objects.get_mut(version).and_then(|blocks| blocks.get_mut(&start));
        block.is_some_and(|block| std::mem::take(&mut block.used))
    }

    /// The version of an object that was cached last, and whether nothing is known against taking
    /// it for the object.
    pub fn latest(&self, name: &str) -> Option<(&ObjectVersion, bool)> {
        let version = self.versions.get(name)?.last()?;
        Some((version, !self.is_outdated(version)))
    }

    /// What is cached of an object is not to be taken for it; whether that is news.
    pub fn outdate(&mut self, name: &str) -> bool {
        let versions = self.versions.get(name).into_iter().flatten();
        versions.filter(|version| self.marks.outdate(version)).count() > 0
    }

    /// As [`Index::outdate`] of one version, of which something is about to be cached.
    pub fn outdate_version(&mut self, version: &ObjectVersion) -> bool {
        self.marks.outdate(version)
    }

    /// As [`Index::outdate_version`], where that is said of all versions.
    pub fn doubt_version(&mut self, version: &ObjectVersion) -> bool {
        self.marks.doubt(version)
    }

    /// A version is its object; whether that is news.
    pub fn confirm(&mut self, version: &ObjectVersion) -> bool {
        self.marks.remove(version)
    }

    pub fn is_outdated(&self, version: &ObjectVersion) -> bool {
        self.marks.of(version).is_some()
    }

    /// Hashes of an object's versions that are not to be taken for it.
    pub fn outdated_of(&self, name: &str) -> impl Iterator<Item = u64> {
        let versions = self.versions.get(name).into_iter().flatten();
        versions.filter_map(|version| Some(self.marks.of(version)?.hash))
    }

    /// Hashes of all that are not to be taken for their objects, should they be found again.
    pub fn outdated(&self) -> HashSet<u64> {
        let lost = self.files.values().flat_map(|file| &file.lost);
        lost.copied().chain(self.marks.hashes()).collect()
    }

    /// As [`Index::forget`], of a block that cannot be read: it may be found in its file again.
    pub fn lose(&mut self, version: &ObjectVersion, start: u64, (file, position): (u64, u64)) {
        if let Some(mark) = self.marks.of(version)
            && let Some(file) = self.files.get_mut(&file)
            && !file.lost.contains(&mark.hash)
        {
            file.lost.push(mark.hash);
        }
        self.forget(version, start, Some((file, position)));
    }

    /// How many bytes of a range are cached.
    pub fn cached_bytes(&self, version: &ObjectVersion, range: ByteRange) -> u64 {
        let blocks = self.overlapping(version, range);
        blocks.map(|block| block.end.min(range.end) - block.start.max(range.start)).sum()
    }

    /// A queued block reached its file. `false` when it was forgotten meanwhile.
    pub fn settle(
        &mut self,
        version: &ObjectVersion,
        start: u64,
        (file, position, crc): (u64, u64, u32),
    ) -> bool {
        let block = self.objects.get_mut(version).and_then(|blocks| blocks.get_mut(&start));
        let Some(block) = block.filter(|block| matches!(block.place, Place::Queued(_))) else {
            return false;
        };
        block.place = Place::File { file, position, crc };
        self.files.entry(file).or_default().blocks.push((version.clone(), start));
        true
    }

    /// Forgets a block, if it is still the one at this place (`None`: queued).
    pub fn forget(&mut self, version: &ObjectVersion, start: u64, place: Option<(u64, u64)>) {
        let Some(blocks) = self.objects.get_mut(version) else { return };
        let is_it = blocks.get(&start).is_some_and(|block| match (&block.place, place) {
            (Place::Queued(_), None) => true,
            (Place::File { file, position, .. }, Some(at)) => (*file, *position) == at,
            _ => false,
        });
        if is_it {
            blocks.remove(&start);
        }
        if blocks.is_empty() {
            self.objects.remove(version);
            self.marks.remove(version);
            if let Some(versions) = self.versions.get_mut(&version.name) {
                versions.retain(|known| known != version);
                if versions.is_empty() {
                    self.versions.remove(&version.name);
                }
            }
        }
    }

    /// A file has so many bytes now.
    pub fn file_grew(&mut self, file: u64, bytes: u64) {
        self.files.entry(file).or_default().bytes = bytes;
    }

    /// Bytes of all files.
    pub fn file_bytes(&self) -> u64 {
        self.files.values().map(|file| file.bytes).sum()
    }

    /// Forgets the oldest file other than `open`, and gives what of it is worth another round.
    pub fn forget_oldest(&mut self, open: Option<u64>) -> Option<(u64, Vec<Survivor>)> {
        let oldest = self.files.keys().copied().find(|file| Some(*file) != open)?;
        let file = self.files.remove(&oldest)?;
        let mut survivors = Vec::new();
        let mut left = file.bytes / SURVIVORS;
        for (version, start) in file.blocks {
            let block = self.objects.get(&version).and_then(|blocks| blocks.get(&start));
            let Some(&Block { end, place: Place::File { file, position, crc }, used }) = block
            else {
                continue;
            };
            if file != oldest {
                continue;
            }
            let mark = self.marks.of(&version).map(|mark| mark.is_doubt);
            let (is_doubted, is_outdated) = (mark == Some(true), mark == Some(false));
            self.forget(&version, start, Some((file, position)));
            if used && !is_outdated && end - start <= left {
                left -= end - start;
                let block = ByteRange { start, end };
                survivors.push(Survivor { version, block, position, crc, is_doubted });
            }
        }
        Some((oldest, survivors))
    }

    /// Forgets everything; the files that held it.
    pub fn clear(&mut self) -> Vec<u64> {
        let files = self.files.keys().copied().collect();
        *self = Index::default();
        files
    }

    /// Blocks cached, and their bytes.
    #[cfg(test)]
    pub fn totals(&self) -> (u64, u64) {
        self.objects().fold((0, 0), |sum, (_, blocks, bytes)| (sum.0 + blocks, sum.1 + bytes))
    }

    /// Every cached version with its number of blocks and their bytes.
    pub fn objects(&self) -> impl Iterator<Item = (&ObjectVersion, u64, u64)> {
        self.objects.iter().map(|(version, blocks)| {
            let bytes = blocks.iter().map(|(start, block)| block.end - start).sum();
            (version, blocks.len() as u64, bytes)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::outdated;
    use proptest::prelude::*;

    fn version(name: u8) -> ObjectVersion {
        ObjectVersion { name: format!("s3://b/{name}").into(), etag: "e".into(), size_bytes: 1000 }
    }

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange { start, end }
    }

    fn at(file: u64, position: u64) -> Place {
        Place::File { file, position, crc: 0 }
    }

    #[test]
    fn used_blocks_of_a_forgotten_file_survive_up_to_half_of_it() {
        let mut index = Index::default();
        for start in 0..10 {
            index.insert(&version(0), range(start * 10, start * 10 + 10), at(1, start));
        }
        index.file_grew(1, 100);
        index.find(&version(0), range(15, 95));
        let (file, survivors) = index.forget_oldest(None).unwrap();
        assert_eq!(file, 1);
        let starts: Vec<u64> = survivors.iter().map(|survivor| survivor.block.start).collect();
        assert_eq!(starts, [10, 20, 30, 40, 50]);
        assert_eq!(index.totals(), (0, 0));
        assert!(index.forget_oldest(None).is_none());
    }

    /// A version that is outdated must not be written again: what is known of it goes with its last
    /// block.
    #[test]
    fn what_is_outdated_goes_with_its_file_and_every_version_of_a_name_is() {
        let mut index = Index::default();
        let other = ObjectVersion { etag: "f".into(), ..version(0) };
        index.insert(&version(0), range(0, 10), at(1, 0));
        index.insert(&version(1), range(0, 10), at(1, 10));
        index.insert(&other, range(0, 10), at(2, 0));
        index.file_grew(1, 100);
        assert_eq!(index.latest("s3://b/0"), Some((&other, true)));
        assert!(index.outdate("s3://b/0") && !index.outdate("s3://b/0"));
        assert_eq!(index.latest("s3://b/0"), Some((&other, false)));
        [version(0), version(1)].iter().for_each(|it| drop(index.find(it, range(0, 10))));
        let (_, survivors) = index.forget_oldest(None).unwrap();
        assert_eq!(survivors.len(), 1, "{survivors:?}");
        assert_eq!(survivors[0].version, version(1));
        assert_eq!(index.outdated(), HashSet::from([outdated::hash(&other)]));
        index.forget(&other, 0, Some((2, 0)));
        assert!(index.outdated().is_empty() && index.latest("s3://b/0").is_none());
    }

    #[test]
    fn what_is_only_doubted_gets_another_round_until_it_is_known_to_have_changed() {
        for has_changed in [false, true] {
            let mut index = Index::default();
            index.insert(&version(0), range(0, 10), at(1, 0));
            index.file_grew(1, 100);
            assert!(index.doubt_version(&version(0)) && !index.doubt_version(&version(0)));
            assert!(!has_changed || !index.outdate("s3://b/0"), "it has a mark");
            index.find(&version(0), range(0, 10));
            let (_, survivors) = index.forget_oldest(None).unwrap();
            assert!(survivors.iter().all(|survivor| survivor.is_doubted));
            assert_eq!(survivors.is_empty(), has_changed);
        }
    }

    #[test]
    fn what_is_confirmed_has_no_mark() {
        let mut index = Index::default();
        index.insert(&version(0), range(0, 10), at(1, 0));
        assert!(!index.confirm(&version(0)));
        index.outdate("s3://b/0");
        assert!(index.confirm(&version(0)) && !index.confirm(&version(0)));
        assert_eq!(index.latest("s3://b/0"), Some((&version(0), true)));
        assert!(index.outdated().is_empty());
    }

    /// A disk may read tomorrow what it did not today.
    #[test]
    fn a_lost_block_keeps_its_mark_until_its_file_goes() {
        let mut index = Index::default();
        index.insert(&version(0), range(0, 10), at(1, 0));
        index.insert(&version(1), range(0, 10), at(1, 10));
        index.file_grew(1, 100);
        index.outdate("s3://b/0");
        index.lose(&version(0), 0, (1, 0));
        index.lose(&version(1), 0, (1, 10));
        assert_eq!(index.totals(), (0, 0));
        assert_eq!(index.outdated(), HashSet::from([outdated::hash(&version(0))]));
        index.forget_oldest(None).unwrap();
        assert!(index.outdated().is_empty());
    }

    #[test]
    fn the_open_file_is_not_forgotten() {
        let mut index = Index::default();
        index.file_grew(1, 10);
        index.file_grew(2, 10);
        assert_eq!(index.forget_oldest(Some(1)).map(|(file, _)| file), Some(2));
        assert!(index.forget_oldest(Some(1)).is_none());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Offer(u8, u64, u64),
        Settle,
        Forget,
        ForgetOldest,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u8..3, 0u64..100, 1u64..40).prop_map(|(n, s, l)| Step::Offer(n, s, l)),
            3 => Just(Step::Settle),
            1 => Just(Step::Forget),
            1 => Just(Step::ForgetOldest),
        ]
    }

    proptest! {
        /// Whatever comes: blocks never overlap, gaps and blocks together are the range asked for,
        /// and the totals are those of the blocks.
        #[test]
        fn the_index_agrees_with_a_map_of_bytes(steps in prop::collection::vec(step(), 1..120)) {
            let mut index = Index::default();
            let mut model: HashMap<(u8, u64), Option<u64>> = HashMap::new();
            let mut queued: Vec<(u8, ByteRange)> = Vec::new();
            let mut position = 0;
            for step in steps {
                match step {
                    Step::Offer(name, start, len) => {
                        for gap in index.gaps(&version(name), range(start, start + len)) {
                            let bytes = Bytes::from(vec![0; gap.len() as usize]);
                            index.insert(&version(name), gap, Place::Queued(bytes));
                            queued.push((name, gap));
                            for byte in gap.start..gap.end {
                                prop_assert!(model.insert((name, byte), None).is_none());
                            }
                        }
                    }
                    Step::Settle => if let Some((name, block)) = queued.pop() {
                        position += 1;
                        let file = position / 3;
                        let place = (file, position, 0);
                        prop_assert!(index.settle(&version(name), block.start, place));
                        index.file_grew(file, 1000);
                        for byte in block.start..block.end {
                            model.insert((name, byte), Some(file));
                        }
                    }
                    Step::Forget => if let Some((name, block)) = queued.pop() {
                        index.forget(&version(name), block.start, None);
                        for byte in block.start..block.end {
                            model.remove(&(name, byte));
                        }
                    }
                    Step::ForgetOldest => if let Some((file, _)) = index.forget_oldest(None) {
                        model.retain(|_, at| *at != Some(file));
                    }
                }
                prop_assert_eq!(index.totals().1, model.len() as u64);
                for name in 0..3 {
                    let whole = range(0, 200);
                    let mut bytes = Vec::new();
                    for gap in index.gaps(&version(name), whole) {
                        bytes.extend((gap.start..gap.end).map(|byte| (byte, false)));
                    }
                    for found in index.find(&version(name), whole) {
                        bytes.extend((found.block.start..found.block.end).map(|b| (b, true)));
                    }
                    bytes.sort_unstable();
                    let wanted: Vec<_> =
                        (0..200).map(|byte| (byte, model.contains_key(&(name, byte)))).collect();
                    prop_assert_eq!(bytes, wanted);
                }
            }
        }
    }
}

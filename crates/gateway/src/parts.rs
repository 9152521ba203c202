//! Numbers and sizes of parts. Pure.

use penstock_base::ByteRange;
use penstock_store::ObjectMeta;
use s3s::{S3Result, s3_error};

/// Highest part number, as in S3.
const PART_NUMBER_MAX: i32 = 10_000;
/// The pair of metadata that tells the sizes of an object's parts.
pub const PARTS_NOTE: &str = "@parts";
/// The pair of metadata in which a service that keeps its own accounts tells their number.
const PART_COUNT_NOTE: &str = "@part-count";
/// Longest such note: metadata is short of room, and parts usually have one size.
const NOTE_BYTES_MAX: usize = 1024;

/// A part number of a client.
///
/// # Errors
/// `InvalidArgument` outside 1 to 10000.
pub fn part_number(number: i32) -> S3Result<u32> {
    match u32::try_from(number) {
        Ok(checked @ 1..) if number <= PART_NUMBER_MAX => Ok(checked),
        _ => Err(s3_error!(
            InvalidArgument,
            "Part number must be an integer between 1 and 10000, inclusive"
        )),
    }
}

/// The sizes of an object's parts: runs of a size and how often it comes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartSizes(Vec<(u64, u64)>);

impl PartSizes {
    /// Of parts in their order.
    pub fn new(sizes: impl IntoIterator<Item = u64>) -> Self {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for size in sizes {
            match runs.last_mut() {
                Some((last, count)) if *last == size => *count += 1,
                _ => runs.push((size, 1)),
            }
        }
        PartSizes(runs)
    }

    /// What an object's metadata tells of its parts.
    pub fn of(meta: &ObjectMeta) -> Option<Self> {
        let (_, note) = meta.metadata.iter().find(|(name, _)| name == PARTS_NOTE)?;
        let run = |text: &str| {
            let (size, count) = text.split_once('x').unwrap_or((text, "1"));
            Some((size.parse().ok()?, count.parse().ok().filter(|count| *count > 0)?))
        };
        note.split(',').map(run).collect::<Option<Vec<_>>>().map(PartSizes)
    }

    /// How many parts there are, where only their number is told: by the service itself.
    pub fn count_told(meta: &ObjectMeta) -> Option<i32> {
        let note = meta.metadata.iter().find(|(name, _)| name == PART_COUNT_NOTE);
        note.and_then(|(_, count)| count.parse().ok())
    }

    /// The note for the metadata; `None` where it would be too long.
    pub fn note(&self) -> Option<String> {
        let run = |&(size, count): &(u64, u64)| match count {
            1 => size.to_string(),
            count => format!("{size}x{count}"),
        };
        let note = self.0.iter().map(run).collect::<Vec<_>>().join(",");
        (note.len() <= NOTE_BYTES_MAX && !note.is_empty()).then_some(note)
    }

    /// How many parts there are.
    pub fn count(&self) -> u64 {
        self.0.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// The bytes of a part, by its place among those that there are. `None` past the last.
    pub fn range(&self, number: u32) -> Option<ByteRange> {
        let mut before = u64::from(number).checked_sub(1)?;
        let mut start = 0u64;
        for (size, count) in &self.0 {
            if before < *count {
                let start = start.checked_add(size.checked_mul(before)?)?;
                return Some(ByteRange { start, end: start.checked_add(*size)? });
            }
            before -= count;
            start = start.checked_add(size.checked_mul(*count)?)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn told(note: &str) -> Option<PartSizes> {
        let metadata = vec![(PARTS_NOTE.to_string(), note.to_string())];
        PartSizes::of(&ObjectMeta { metadata, ..Default::default() })
    }

    #[test]
    fn numbers_have_bounds() {
        assert_eq!(part_number(1).unwrap(), 1);
        assert!(
            part_number(0).is_err() && part_number(10_001).is_err() && part_number(-1).is_err()
        );
    }

    proptest! {
        #[test]
        fn notes_come_back_and_ranges_join(sizes in prop::collection::vec(0u64..4, 1..30)) {
            let parts = PartSizes::new(sizes.iter().copied());
            prop_assert_eq!(told(&parts.note().unwrap()), Some(parts.clone()));
            prop_assert_eq!(parts.count(), sizes.len() as u64);
            let mut end = 0;
            for (number, size) in (1..).zip(&sizes) {
                let range = parts.range(number).unwrap();
                prop_assert_eq!((range.start, range.len()), (end, *size));
                end = range.end;
            }
            prop_assert_eq!(parts.range(sizes.len() as u32 + 1), None);
        }

        #[test]
        fn any_note_is_read_or_passed_over(note in "[0-9x,]{0,24}", number: u32) {
            let _ = told(&note).map(|parts| (parts.range(number), parts.count()));
        }
    }
}

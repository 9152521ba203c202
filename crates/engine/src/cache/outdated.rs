//! Which of the cached versions are not to be taken for their objects without asking the store, as
//! it stands beside the blocks. Pure.
//!
//! Under the policy `never` the version that was cached last is the object. Of one that was changed
//! through a process that has the cache, later processes have to know better: that is noted before
//! the change is sent. One that the store confirms is taken for its object again. A note is a hash,
//! so two versions that share one cost a request, and no wrong byte. What cannot be read counts as
//! a note of everything, and so does more than there is room for.

use crate::cache::index::ObjectVersion;
use std::collections::HashSet;

const MAGIC: [u8; 8] = *b"PENOLD\0\x01";
const HEAD_BYTES: usize = 16;
/// Most hashes that are noted one by one where there is no more room than this.
pub(super) const HASHES_MAX: usize = 3500;
/// Stands for their number where all are noted.
const ALL: u32 = u32::MAX;
/// Most bytes of what is noted there.
pub(super) const NOTED_BYTES_MAX: usize = noted_bytes(HASHES_MAX);

/// How many bytes a note of so many hashes takes.
pub(super) const fn noted_bytes(hashes: usize) -> usize {
    HEAD_BYTES + 8 * hashes
}

/// Versions of which the store has to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Noted {
    These(HashSet<u64>),
    All,
}

impl Noted {
    /// None of them.
    pub fn nothing() -> Self {
        Noted::These(HashSet::new())
    }

    /// These, where they are not more than there is room for.
    pub fn of(hashes: HashSet<u64>, hashes_max: usize) -> Self {
        match hashes.len() <= hashes_max {
            true => Noted::These(hashes),
            false => Noted::All,
        }
    }

    /// Whether a version of this hash is.
    pub fn has(&self, hash: u64) -> bool {
        match self {
            Noted::These(hashes) => hashes.contains(&hash),
            Noted::All => true,
        }
    }

    /// What is noted while one of the two is replaced by the other, whichever is there.
    pub fn and(&self, other: &Noted) -> Noted {
        match (self, other) {
            (Noted::These(one), Noted::These(two)) => Noted::These(one & two),
            (Noted::All, noted) | (noted, Noted::All) => noted.clone(),
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.resize(HEAD_BYTES, 0);
        let count = match self {
            Noted::These(hashes) => {
                hashes.iter().for_each(|hash| out.extend(hash.to_le_bytes()));
                hashes.len() as u32
            }
            Noted::All => ALL,
        };
        out[8..12].copy_from_slice(&count.to_le_bytes());
        let crc = crc32fast::hash(&out);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Of what was encoded, and anything behind it; of anything else all versions are noted.
    pub fn decode(bytes: &[u8]) -> Self {
        Self::parse(bytes).unwrap_or(Noted::All)
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let u32_at = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let count = match u32_at(8)? {
            ALL => return None,
            count => usize::try_from(count).ok()?,
        };
        let end = HEAD_BYTES.checked_add(count.checked_mul(8)?)?;
        let mut plain = bytes.get(..end)?.to_vec();
        plain[12..16].fill(0);
        if plain[..8] != MAGIC || u32_at(12)? != crc32fast::hash(&plain) {
            return None;
        }
        let hashes = plain[HEAD_BYTES..].chunks_exact(8);
        let hashes = hashes.map(|it| u64::from_le_bytes(it.try_into().expect("eight bytes")));
        Some(Noted::These(hashes.collect()))
    }
}

/// FNV-1a: the same in every build.
pub(super) fn hash(version: &ObjectVersion) -> u64 {
    let size_bytes = version.size_bytes.to_le_bytes();
    let parts = [version.name.as_bytes(), &[0], version.etag.as_bytes(), &[0], &size_bytes];
    parts.into_iter().flatten().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn version(number: u64) -> ObjectVersion {
        let etag = format!("\"{}\"", number / 7);
        let name = format!("https://h/b/{}", number % 7);
        ObjectVersion { name: name.into(), etag: etag.into(), size_bytes: 100 }
    }

    fn hashes(count: u64) -> HashSet<u64> {
        (0..count).map(|number| hash(&version(number))).collect()
    }

    fn noted(count: u64) -> Noted {
        Noted::of(hashes(count), HASHES_MAX)
    }

    #[test]
    fn more_than_there_is_room_for_is_everything() {
        for count in [0, 1, HASHES_MAX as u64, HASHES_MAX as u64 + 1] {
            let noted = noted(count);
            let bytes = noted.encode();
            assert!(bytes.len() <= NOTED_BYTES_MAX, "{count}");
            assert_eq!(Noted::decode(&bytes), noted);
            assert!(hashes(count).into_iter().all(|hash| noted.has(hash)));
            let other = hash(&version(HASHES_MAX as u64 + 9));
            assert_eq!(noted.has(other), noted == Noted::All, "{count}");
        }
        assert_eq!(noted(0), Noted::nothing());
    }

    proptest! {
        #[test]
        fn any_damage_is_a_note_of_everything(
            count in 0u64..20, at: prop::sample::Index, change in 1u8.., cut: prop::sample::Index,
        ) {
            let mut bytes = noted(count).encode();
            prop_assert_eq!(Noted::decode(&bytes[..cut.index(bytes.len())]), Noted::All);
            let mut padded = bytes.clone();
            padded.resize(4096, 0);
            prop_assert_eq!(Noted::decode(&padded), noted(count));
            let at = at.index(bytes.len());
            bytes[at] ^= change;
            prop_assert_eq!(Noted::decode(&bytes), Noted::All);
        }

        #[test]
        fn what_is_noted_during_a_note_is_what_both_have(
            one in 0u64..9, two in 0u64..9, at in 0u64..9,
        ) {
            let hash = hash(&version(at));
            let room = |is_room| if is_room { HASHES_MAX } else { 4 };
            for (less, more) in [(true, true), (false, true), (false, false)] {
                let one = Noted::of(hashes(one), room(less));
                let two = Noted::of(hashes(two), room(more));
                prop_assert_eq!(one.and(&two).has(hash), one.has(hash) && two.has(hash));
                prop_assert_eq!(one.and(&two), two.and(&one));
            }
        }

        #[test]
        fn any_bytes_are_taken(bytes: Vec<u8>) {
            Noted::decode(&bytes);
        }
    }
}

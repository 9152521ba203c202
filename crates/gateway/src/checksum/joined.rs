//! Checksums of whole uploads from those of their parts. Pure.
//!
//! S3 has two kinds: *composite* is the checksum of the parts' checksums, with their count behind
//! it; *full object* is that of all bytes, which CRCs of parts can be joined to when their sizes
//! are known. The parts' own were compared with their bytes when they came in.

use super::algorithm::Hasher;
use super::{Algorithm, Expected, Judged, Known, Sums, Verifier, mismatch};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use penstock_store::{Part, PartEntry};
use s3s::{S3Result, s3_error};

/// Longest note of the parts' checksums: metadata is short of room.
const NOTE_BYTES_MAX: usize = 2048;

/// The checksums of an upload's parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartSums {
    algorithm: Algorithm,
    is_full: bool,
    /// Number, checksum and size.
    parts: Vec<(u32, Vec<u8>, u64)>,
}

impl PartSums {
    /// `None` unless every part has one, all of one algorithm.
    pub fn of(judged: &[Judged], parts: &[Part], is_full: bool) -> Option<Self> {
        let algorithm = judged.first()?.sum.as_ref()?.0;
        let sum = |(part, judged): (&Part, &Judged)| {
            let (_, text) = judged.sum.as_ref().filter(|sum| sum.0 == algorithm)?;
            Some((part.number, STANDARD.decode(text).ok()?, part.size_bytes))
        };
        let parts = parts.iter().zip(judged).map(sum).collect::<Option<Vec<_>>>()?;
        // CRC-64 has no composite form.
        let is_full = is_full || !algorithm.composes();
        Some(PartSums { algorithm, is_full, parts })
    }

    /// The same with sizes, and checksums where it has them, that the back end tells.
    ///
    /// # Errors
    /// `InvalidPart` for a part that it does not tell of.
    pub fn listed(
        judged: &[Judged],
        parts: &[Part],
        listed: &[PartEntry],
    ) -> S3Result<Option<Self>> {
        let (mut judged, mut parts) = (judged.to_vec(), parts.to_vec());
        for (judged, part) in judged.iter_mut().zip(&mut parts) {
            let found = listed.iter().find(|entry| entry.number == part.number);
            let missing = || s3_error!(InvalidPart, "Part {} could not be found.", part.number);
            let found = found.ok_or_else(missing)?;
            part.size_bytes = found.size_bytes;
            if let Known::Sum(algorithm, text) = Known::of(found.sum.as_ref()) {
                judged.sum = Some((algorithm, text));
            }
        }
        Ok(PartSums::of(&judged, &parts, true))
    }

    /// Whether the checksum of the whole follows from them.
    pub fn joins(&self, whole: &Verifier) -> bool {
        let wanted = whole.expected.as_ref().map(|expected| expected.algorithm);
        wanted == Some(self.algorithm) && self.full().is_some()
    }

    /// Whether the checksum of the whole is wanted, not that of checksums.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether every part's size is known.
    pub fn has_sizes(&self) -> bool {
        self.parts.iter().any(|part| part.2 > 0)
    }

    /// The note that tells them again; `None` where it would be too long.
    pub fn note(&self) -> Option<String> {
        let name = self.algorithm.name();
        let sums: Vec<String> = self.parts.iter().map(|part| STANDARD.encode(&part.1)).collect();
        let note = format!("{name}:{}", sums.join(","));
        (note.len() <= NOTE_BYTES_MAX).then_some(note)
    }

    /// The checksum of the whole; none where parts' hashes cannot be joined.
    pub fn joined(self) -> Sums {
        let text = match self.is_full {
            true => self.full(),
            false => Some(self.composite()),
        };
        text.map(|text| Sums::one(self.algorithm, text)).unwrap_or_default()
    }

    /// The CRC of all bytes. `None` for a hash, which cannot be joined, and for sums that are none.
    fn full(&self) -> Option<String> {
        let (crc, width) = (self.algorithm.crc()?, self.algorithm.size_bytes());
        let number = |sum: &[u8]| {
            let sum = (sum.len() == width).then_some(sum)?;
            Some(sum.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte)))
        };
        let mut parts = self.parts.iter();
        let mut whole = number(&parts.next()?.1)?;
        for (_, sum, size_bytes) in parts {
            whole = crc_fast::checksum_combine(crc, whole, number(sum)?, *size_bytes);
        }
        Some(STANDARD.encode(&whole.to_be_bytes()[8 - width..]))
    }

    fn composite(&self) -> String {
        let mut hasher = Hasher::new(self.algorithm);
        for (_, sum, _) in &self.parts {
            hasher.update(sum);
        }
        format!("{}-{}", hasher.finish(), self.parts.len())
    }
}

impl Verifier {
    /// Compares what is expected of the whole with the joined checksums of its parts.
    ///
    /// # Errors
    /// `BadDigest` when one differs; `NotImplemented` when the parts do not tell it.
    pub fn finish_joined(self, parts: Option<&PartSums>) -> S3Result<()> {
        let Some(Expected { algorithm, text, .. }) = self.expected else { return Ok(()) };
        let joined = parts.filter(|parts| parts.algorithm == algorithm);
        let Some(actual) = joined.and_then(PartSums::full) else {
            return Err(s3_error!(
                NotImplemented,
                "{} of a whole upload without that of each part: this bucket's back end cannot \
                 read parts before they are completed",
                algorithm.header()
            ));
        };
        match text.is_some_and(|expected| expected != actual) {
            true => Err(mismatch(algorithm)),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn judged(algorithm: Algorithm, pieces: &[Vec<u8>]) -> Vec<Judged> {
        let sum = |piece: &Vec<u8>| {
            let mut hasher = Hasher::new(algorithm);
            hasher.update(piece);
            Judged { sum: Some((algorithm, hasher.finish())), is_unproved: false }
        };
        pieces.iter().map(sum).collect()
    }

    fn parts_of(pieces: &[Vec<u8>]) -> Vec<Part> {
        (1..)
            .zip(pieces)
            .map(|(number, piece)| Part {
                number,
                etag: String::new(),
                size_bytes: piece.len() as u64,
            })
            .collect()
    }

    proptest! {
        #[test]
        fn joined_crcs_are_those_of_the_whole(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6),
        ) {
            let parts = parts_of(&pieces);
            for algorithm in [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64Nvme] {
                let whole = judged(algorithm, &[pieces.concat()]).remove(0).sum.unwrap().1;
                let sums = PartSums::of(&judged(algorithm, &pieces), &parts, true).unwrap();
                prop_assert_eq!(sums.joined(), Sums::one(algorithm, whole));
            }
        }
    }

    #[test]
    fn composite_counts_the_parts() {
        let pieces = [b"hello ".to_vec(), b"world".to_vec()];
        let (told, parts) = (judged(Algorithm::Crc32, &pieces), parts_of(&pieces));
        let sums = PartSums::of(&told, &parts, false).unwrap().joined().to_dto();
        // CRC-32 of the two parts' CRC-32s, from Python's zlib.
        assert_eq!(sums.checksum_crc32.as_deref(), Some("1Fu2mQ==-2"));
        let mut bare = told.clone();
        bare[1] = Judged { sum: None, is_unproved: false };
        assert_eq!(PartSums::of(&bare, &parts, false), None);
    }

    #[test]
    fn a_list_tells_sizes_and_checksums() {
        let pieces = [b"hello ".to_vec(), b"world".to_vec()];
        let sums = judged(Algorithm::Crc32, &pieces);
        let listed: Vec<PartEntry> = (1..)
            .zip(pieces.iter().zip(&sums))
            .map(|(number, (piece, judged))| PartEntry {
                number,
                etag: String::new(),
                size_bytes: piece.len() as u64,
                modified: None,
                sum: judged.sum.clone().map(|(it, text)| (it.name().to_string(), text)),
            })
            .collect();
        let mut parts = parts_of(&pieces);
        for part in &mut parts {
            part.size_bytes = 0;
        }
        let bare = vec![Judged { sum: None, is_unproved: false }; 2];
        let told = PartSums::listed(&bare, &parts, &listed).unwrap().unwrap();
        // Of "hello world", from Python's zlib.
        assert_eq!(told.joined(), Sums::one(Algorithm::Crc32, "DUoRhQ==".into()));
        assert!(PartSums::listed(&bare, &parts, &listed[1..]).is_err());
    }
}

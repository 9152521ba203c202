//! Checksums of whole uploads from those of their parts. Pure.
//!
//! S3 has two kinds: *composite* is the checksum of the parts' checksums, with their count behind
//! it; *full object* is that of all bytes, which CRCs of parts can be joined to when their sizes
//! are known. The parts' own were compared with their bytes when they came in.

use super::algorithm::Hasher;
use super::{Algorithm, Expected, Sums, Verifier, mismatch};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use penstock_store::{Part, PartEntry};
use s3s::{S3Result, dto, s3_error};

/// Longest note of the parts' checksums: metadata is short of room.
const NOTE_BYTES_MAX: usize = 2048;

/// The checksums of an upload's parts, as the completing request tells them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartSums {
    algorithm: Algorithm,
    is_full: bool,
    /// Number, checksum and size.
    parts: Vec<(u32, Vec<u8>, u64)>,
}

/// What a completion says of a part, in an algorithm that s3s knows.
fn sum_of(algorithm: Algorithm, part: &dto::CompletedPart) -> Option<&String> {
    match algorithm {
        Algorithm::Crc32 => part.checksum_crc32.as_ref(),
        Algorithm::Crc32c => part.checksum_crc32c.as_ref(),
        Algorithm::Crc64Nvme => part.checksum_crc64nvme.as_ref(),
        Algorithm::Sha1 => part.checksum_sha1.as_ref(),
        Algorithm::Sha256 => part.checksum_sha256.as_ref(),
        _ => None,
    }
}

impl PartSums {
    /// The algorithm that every named part has a checksum of, if there is one.
    pub fn of(named: &[dto::CompletedPart], parts: &[Part], is_full: bool) -> Option<Self> {
        Algorithm::ALL.into_iter().find_map(|(algorithm, _)| {
            let sum = |(part, named): (&Part, &dto::CompletedPart)| {
                let sum = STANDARD.decode(sum_of(algorithm, named)?).ok()?;
                Some((part.number, sum, part.size_bytes))
            };
            let parts = parts.iter().zip(named).map(sum).collect::<Option<Vec<_>>>()?;
            // CRC-64 has no composite form.
            let is_full = is_full || !algorithm.composes();
            Some(PartSums { algorithm, is_full, parts })
        })
    }

    /// The same with the sizes that the back end tells.
    ///
    /// # Errors
    /// `InvalidPart` for a part that it does not tell of.
    pub fn sized(&self, listed: &[PartEntry]) -> S3Result<Self> {
        let mut sized = self.clone();
        for (number, _, size_bytes) in &mut sized.parts {
            let found = listed.iter().find(|entry| entry.number == *number);
            *size_bytes = found
                .ok_or_else(|| s3_error!(InvalidPart, "Part {number} could not be found."))?
                .size_bytes;
        }
        Ok(sized)
    }

    /// Whether the checksum of the whole is wanted, not that of checksums.
    pub fn is_full(&self) -> bool {
        self.is_full
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

    fn sums(bytes: &[u8]) -> dto::Checksum {
        let sum = |algorithm| {
            let mut hasher = Hasher::new(algorithm);
            hasher.update(bytes);
            Some(hasher.finish())
        };
        dto::Checksum {
            checksum_crc32: sum(Algorithm::Crc32),
            checksum_crc32c: sum(Algorithm::Crc32c),
            checksum_crc64nvme: sum(Algorithm::Crc64Nvme),
            ..Default::default()
        }
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

    fn named(
        pieces: &[Vec<u8>],
        tell: fn(dto::Checksum) -> dto::CompletedPart,
    ) -> Vec<dto::CompletedPart> {
        pieces.iter().map(|piece| tell(sums(piece))).collect()
    }

    proptest! {
        #[test]
        fn joined_crcs_are_those_of_the_whole(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6),
        ) {
            let (whole, parts) = (sums(&pieces.concat()), parts_of(&pieces));
            let crc32 = named(&pieces, |sums| dto::CompletedPart {
                checksum_crc32: sums.checksum_crc32, ..Default::default()
            });
            let crc32 = PartSums::of(&crc32, &parts, true).unwrap().joined().to_dto();
            prop_assert_eq!(crc32.checksum_crc32, whole.checksum_crc32);
            let crc32c = named(&pieces, |sums| dto::CompletedPart {
                checksum_crc32c: sums.checksum_crc32c, ..Default::default()
            });
            let crc32c = PartSums::of(&crc32c, &parts, true).unwrap().joined().to_dto();
            prop_assert_eq!(crc32c.checksum_crc32c, whole.checksum_crc32c);
            let crc64 = named(&pieces, |sums| dto::CompletedPart {
                checksum_crc64nvme: sums.checksum_crc64nvme, ..Default::default()
            });
            let crc64 = PartSums::of(&crc64, &parts, false).unwrap().joined().to_dto();
            prop_assert_eq!(crc64.checksum_crc64nvme, whole.checksum_crc64nvme);
        }
    }

    #[test]
    fn composite_counts_the_parts() {
        let pieces = [b"hello ".to_vec(), b"world".to_vec()];
        let told = named(&pieces, |sums| dto::CompletedPart {
            checksum_crc32: sums.checksum_crc32,
            ..Default::default()
        });
        let sums = PartSums::of(&told, &parts_of(&pieces), false).unwrap().joined().to_dto();
        // CRC-32 of the two parts' CRC-32s, from Python's zlib.
        assert_eq!(sums.checksum_crc32.as_deref(), Some("1Fu2mQ==-2"));
        let mut bare = told.clone();
        bare[1] = dto::CompletedPart::default();
        assert_eq!(PartSums::of(&bare, &parts_of(&pieces), false), None);
    }
}

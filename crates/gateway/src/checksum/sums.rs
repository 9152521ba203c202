//! Checksums as answers tell them and as an object's metadata remembers them.
//!
//! s3s has fields for the older algorithms; the others are headers that it knows nothing of.

use super::Algorithm;
use super::algorithm::HEADER;
use http::{HeaderMap, HeaderName, HeaderValue};
use penstock_store::ObjectMeta;
use s3s::dto;

/// Before the names of pairs of metadata: `@checksum-crc32` and its kin.
const NOTE: &str = "@checksum-";
/// The pair of metadata that tells the checksums of parts: the algorithm's name, a colon, and one
/// after the other.
pub const PART_SUMS_NOTE: &str = "@part-sums";

/// Checksums of one object or part, as base64; composite ones have the number of parts behind them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    rows: Vec<(Algorithm, String)>,
    /// Whether they are a part's of an object whose own is of its parts' checksums.
    is_of_composite: bool,
}

impl FromIterator<(Algorithm, String)> for Sums {
    fn from_iter<T: IntoIterator<Item = (Algorithm, String)>>(rows: T) -> Self {
        Sums { rows: rows.into_iter().collect(), is_of_composite: false }
    }
}

impl Sums {
    /// One checksum.
    pub fn one(algorithm: Algorithm, text: String) -> Self {
        Sums::from_iter([(algorithm, text)])
    }

    /// Those that a request's head tells; those of a trailer come with the body.
    pub fn of_headers(headers: &HeaderMap) -> Self {
        let told = |(algorithm, name): (Algorithm, &str)| {
            let text = headers.get(name)?.to_str().ok()?;
            Some((algorithm, text.to_string()))
        };
        Algorithm::ALL.into_iter().filter_map(told).collect()
    }

    /// Those that an object's metadata tells.
    pub fn of(meta: &ObjectMeta) -> Self {
        let told = |(name, text): &(String, String)| {
            let algorithm = Algorithm::of_name(name.strip_prefix(NOTE)?)?;
            Some((algorithm, text.clone()))
        };
        meta.metadata.iter().filter_map(told).collect()
    }

    /// Those of one part of an upload, where its completion told them.
    pub fn of_part(meta: &ObjectMeta, number: u32) -> Option<Self> {
        let note = meta.metadata.iter().find(|(name, _)| name == PART_SUMS_NOTE);
        let (algorithm, list) = note?.1.split_once(':')?;
        let at = usize::try_from(number).ok()?.checked_sub(1)?;
        let text = list.split(',').nth(at)?;
        let mut sums = Sums::one(Algorithm::of_name(algorithm)?, text.to_string());
        // Its type is told as that of the whole.
        sums.is_of_composite = Sums::of(meta).kind() == Some(dto::ChecksumType::COMPOSITE);
        Some(sums)
    }

    /// The pairs of metadata that tell them again.
    pub fn notes(&self) -> Vec<(String, String)> {
        let note = |(algorithm, text): &(Algorithm, String)| {
            (format!("{NOTE}{}", algorithm.name()), text.clone())
        };
        self.rows.iter().map(note).collect()
    }

    /// Whether a pair of metadata of this name tells a checksum.
    pub fn is_note(name: &str) -> bool {
        name.starts_with(NOTE)
    }

    /// The one of this algorithm.
    pub fn get(&self, wanted: Algorithm) -> Option<&str> {
        self.rows.iter().find(|row| row.0 == wanted).map(|row| row.1.as_str())
    }

    /// One as stores have it: the algorithm's name and the value.
    pub fn first(&self) -> Option<(String, String)> {
        self.rows.first().map(|(algorithm, text)| (algorithm.name().to_string(), text.clone()))
    }

    /// Those of one part, as a store tells them.
    pub fn of_store(sum: Option<&(String, String)>) -> Self {
        let known = sum.and_then(|(name, text)| Some((Algorithm::of_name(name)?, text.clone())));
        known.into_iter().collect()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Without those that are of parts' checksums: what is left holds for the same bytes elsewhere.
    pub fn of_bytes(mut self) -> Self {
        self.rows.retain(|(_, text)| !text.contains('-'));
        self
    }

    /// Whether they are of all bytes or of the parts' checksums.
    fn kind(&self) -> Option<&'static str> {
        if self.rows.is_empty() {
            return None;
        }
        let is_composite =
            self.is_of_composite || self.rows.iter().any(|(_, text)| text.contains('-'));
        Some(if is_composite {
            dto::ChecksumType::COMPOSITE
        } else {
            dto::ChecksumType::FULL_OBJECT
        })
    }

    /// As s3s has them; those that it has no field for are left out.
    pub fn to_dto(&self) -> dto::Checksum {
        let of = |wanted: Algorithm| {
            self.rows.iter().find(|(algorithm, _)| *algorithm == wanted).map(|row| row.1.clone())
        };
        dto::Checksum {
            checksum_crc32: of(Algorithm::Crc32),
            checksum_crc32c: of(Algorithm::Crc32c),
            checksum_crc64nvme: of(Algorithm::Crc64Nvme),
            checksum_sha1: of(Algorithm::Sha1),
            checksum_sha256: of(Algorithm::Sha256),
            checksum_type: self.kind().map(dto::ChecksumType::from_static),
        }
    }

    /// The headers that s3s has no field for.
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (algorithm, text) in &self.rows {
            let is_field = Algorithm::ALL[..5].iter().any(|row| row.0 == *algorithm);
            if !is_field && let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(HeaderName::from_static(algorithm.header()), value);
            }
        }
        headers
    }

    /// The name in the header of an algorithm.
    pub(super) fn shown(algorithm: Algorithm) -> String {
        algorithm.header().trim_start_matches(HEADER).to_ascii_uppercase()
    }
}

/// An answer that carries checksums.
pub trait HasChecksums {
    /// Takes those that it has fields for.
    fn set_checksums(&mut self, sums: &Sums);
}

macro_rules! has_checksums {
    ($($output:ty [$($kind:ident)?]),*) => {
        $(impl HasChecksums for $output {
            fn set_checksums(&mut self, sums: &Sums) {
                let sums = sums.to_dto();
                self.checksum_crc32 = sums.checksum_crc32;
                self.checksum_crc32c = sums.checksum_crc32c;
                self.checksum_crc64nvme = sums.checksum_crc64nvme;
                self.checksum_sha1 = sums.checksum_sha1;
                self.checksum_sha256 = sums.checksum_sha256;
                $(self.$kind = sums.$kind;)?
            }
        })*
    };
}
has_checksums!(
    dto::GetObjectOutput [checksum_type],
    dto::HeadObjectOutput [checksum_type],
    dto::PutObjectOutput [checksum_type],
    dto::CompleteMultipartUploadOutput [checksum_type],
    dto::CopyObjectResult [checksum_type],
    // Parts have no field for it.
    dto::UploadPartOutput [],
    dto::CopyPartResult [],
    dto::ObjectPart [],
    dto::Part []
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_the_type_of_its_object() {
        let meta = |whole: &str| {
            let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
            let metadata = vec![pair("@checksum-sha1", whole), pair(PART_SUMS_NOTE, "sha1:a,b")];
            ObjectMeta { metadata, ..Default::default() }
        };
        let kind = |whole: &str| {
            let part = Sums::of_part(&meta(whole), 2).unwrap().to_dto();
            assert_eq!(part.checksum_sha1.as_deref(), Some("b"));
            part.checksum_type.map(|kind| kind.as_str().to_string())
        };
        assert_eq!(kind("c-2").as_deref(), Some("COMPOSITE"));
        assert_eq!(kind("c").as_deref(), Some("FULL_OBJECT"));
        assert_eq!(Sums::of_part(&meta("c-2"), 3), None);
    }
}

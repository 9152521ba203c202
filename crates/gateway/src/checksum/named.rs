//! What a completion says of its parts' checksums, against what the parts were compared with. Pure.

use super::algorithm::HEADER;
use super::{Algorithm, Sums};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use penstock_store::notes;
use penstock_store::sums::Sum;
use s3s::{S3Error, S3Result, dto, s3_error};

/// The checksums that an upload was created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadKind {
    /// Of every part.
    pub algorithm: Algorithm,
    /// Whether the whole object has the checksum of its bytes, not that of its parts' checksums.
    pub is_full: bool,
}

impl UploadKind {
    /// What the metadata that an upload began with says.
    pub fn of(begun: &[(String, String)]) -> Option<Self> {
        let (_, text) = begun.iter().find(|(name, _)| name == notes::UPLOAD_SUMS)?;
        let (algorithm, kind) = text.split_once(':')?;
        let is_full = kind == dto::ChecksumType::FULL_OBJECT;
        Some(UploadKind { algorithm: Algorithm::of_name(algorithm)?, is_full })
    }

    /// The pair of metadata that says it, of an answer to CreateMultipartUpload.
    pub fn note(
        algorithm: Option<&dto::ChecksumAlgorithm>,
        kind: Option<&dto::ChecksumType>,
    ) -> Option<(String, String)> {
        let (algorithm, kind) = (algorithm?.as_str().to_ascii_lowercase(), kind?.as_str());
        Some((notes::UPLOAD_SUMS.to_string(), format!("{algorithm}:{kind}")))
    }

    /// As answers tell it.
    pub fn to_dto(self) -> (dto::ChecksumAlgorithm, dto::ChecksumType) {
        let name = Sums::shown(self.algorithm);
        (dto::ChecksumAlgorithm::from(name), dto::ChecksumType::from_static(self.type_name()))
    }

    fn type_name(self) -> &'static str {
        match self.is_full {
            true => dto::ChecksumType::FULL_OBJECT,
            false => dto::ChecksumType::COMPOSITE,
        }
    }

    /// Refuses a part whose checksum is another than the upload's.
    ///
    /// # Errors
    /// `InvalidRequest`, as S3 has it; without a checksum only where the whole is one of parts'.
    pub fn check_part(self, announced: Option<Algorithm>) -> S3Result<()> {
        if announced == Some(self.algorithm) || announced.is_none() && self.is_full {
            return Ok(());
        }
        Err(s3_error!(
            InvalidRequest,
            "Checksum Type mismatch occurred, expected checksum Type: {}, actual checksum Type: {}",
            self.algorithm.name(),
            announced.map_or("null", Algorithm::name)
        ))
    }

    /// Refuses a completion that says another type than the upload has.
    ///
    /// # Errors
    /// `InvalidRequest`.
    pub fn check_completion(self, headers: &HeaderMap) -> S3Result<()> {
        let told = headers.get("x-amz-checksum-type");
        if told.is_none_or(|told| told.as_bytes().eq_ignore_ascii_case(self.type_name().as_bytes()))
        {
            return Ok(());
        }
        Err(s3_error!(
            InvalidRequest,
            "The upload was created using the {} checksum mode. The complete request must use the \
             same checksum mode.",
            self.type_name()
        ))
    }
}

/// What is known of a part when its upload is completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// It was compared with this.
    Sum(Algorithm, String),
    /// Nobody knows of any.
    Nothing,
    /// The back end, which compares by itself.
    BackEnd,
}

impl Known {
    /// A checksum that a store told.
    pub fn of(sum: Option<&Sum>) -> Self {
        let known = sum.and_then(|(name, text)| Some((Algorithm::of_name(name)?, text.clone())));
        known.map_or(Known::Nothing, |(algorithm, text)| Known::Sum(algorithm, text))
    }
}

/// What holds for a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Its checksum, if it has one that matters to the whole.
    pub sum: Option<(Algorithm, String)>,
    /// Whether that is the completion's word alone.
    pub is_unproved: bool,
}

/// Holds one named part against what is known of it.
///
/// # Errors
/// `InvalidPart` for another value than the part was compared with, `BadDigest` for another
/// algorithm; `InvalidRequest` where the upload's algorithm wants one and none is named;
/// `InvalidArgument` for what is no checksum.
pub fn judge(
    named: &dto::CompletedPart,
    known: &Known,
    kind: Option<UploadKind>,
) -> S3Result<Judged> {
    let number = named.part_number.unwrap_or_default();
    let mut told = FIELDS.into_iter().filter_map(|(algorithm, field)| {
        field(named).as_ref().map(|text| (algorithm, text.clone()))
    });
    let (first, second) = (told.next(), told.next());
    let wrong_value = || s3_error!(InvalidArgument, "The checksum of part {number} is invalid.");
    if second.is_some() {
        return Err(wrong_value());
    }
    let Some((algorithm, text)) = first else { return unnamed(number, known, kind) };
    if STANDARD.decode(&text).map(|sum| sum.len()) != Ok(algorithm.size_bytes()) {
        return Err(wrong_value());
    }
    match known {
        Known::Sum(right, _) if *right != algorithm => Err(s3_error!(
            BadDigest,
            "The {} you specified for part {number} did not match what we received.",
            algorithm.name()
        )),
        Known::Sum(_, right) if *right != text => Err(s3_error!(
            InvalidPart,
            "One or more of the specified parts could not be found: part {number} has another {} \
             than the one named.",
            algorithm.name()
        )),
        _ => {
            let is_unproved = *known == Known::Nothing;
            Ok(Judged { sum: Some((algorithm, text)), is_unproved })
        }
    }
}

/// A part of which the completion says nothing.
fn unnamed(number: i32, known: &Known, kind: Option<UploadKind>) -> S3Result<Judged> {
    let nothing = Judged { sum: None, is_unproved: false };
    let (Known::Sum(algorithm, text), Some(kind)) = (known, kind) else { return Ok(nothing) };
    // Those that a completion has no field for here cannot be named.
    if !kind.is_full && FIELDS.iter().any(|row| row.0 == kind.algorithm) {
        return Err(s3_error!(
            InvalidRequest,
            "The upload was created using a {} checksum. The complete request must include the \
             checksum for each part. It was missing for part {number} in the request.",
            kind.algorithm.name()
        ));
    }
    let is_ours = kind.algorithm == *algorithm;
    Ok(Judged { sum: is_ours.then(|| (*algorithm, text.clone())), is_unproved: false })
}

type Field = fn(&dto::CompletedPart) -> &Option<String>;

/// The algorithms that s3s knows in a completion.
const FIELDS: [(Algorithm, Field); 5] = [
    (Algorithm::Crc32, |part| &part.checksum_crc32),
    (Algorithm::Crc32c, |part| &part.checksum_crc32c),
    (Algorithm::Crc64Nvme, |part| &part.checksum_crc64nvme),
    (Algorithm::Sha1, |part| &part.checksum_sha1),
    (Algorithm::Sha256, |part| &part.checksum_sha256),
];

/// The pair of metadata that hands named checksums to a back end that compares by itself; `known`
/// are those that it does not keep.
pub fn handed_over(judged: &[Judged], known: &[Known]) -> Option<(String, String)> {
    let of_back_end = |(judged, known): (&Judged, &Known)| {
        judged.sum.clone().filter(|_| *known == Known::BackEnd)
    };
    let sums: Vec<_> = judged.iter().zip(known).map(of_back_end).collect();
    let algorithm = sums.iter().flatten().next()?.0;
    let texts = sums.iter().map(|sum| match sum {
        Some((found, text)) if *found == algorithm => text.as_str(),
        _ => "",
    });
    let list = texts.collect::<Vec<_>>().join(",");
    Some((notes::NAMED_SUMS.to_string(), format!("{}:{list}", algorithm.name())))
}

/// The checksum of the parts' checksums that a completion tells in its head.
pub fn composite_told(headers: &HeaderMap) -> Option<(Algorithm, String)> {
    let is_composite = headers
        .get("x-amz-checksum-type")
        .is_some_and(|kind| kind.as_bytes().eq_ignore_ascii_case(b"COMPOSITE"));
    let told = |(algorithm, name): (Algorithm, &str)| {
        let text = headers.get(name)?.to_str().ok()?.trim();
        (is_composite || text.contains('-')).then(|| (algorithm, text.to_string()))
    };
    Algorithm::ALL.into_iter().find_map(told)
}

/// The refusal of such a checksum that is another than the parts make.
pub fn check_composite(told: Option<&(Algorithm, String)>, made: &Sums) -> Result<(), S3Error> {
    let Some((algorithm, text)) = told else { return Ok(()) };
    let Some(right) = made.get(*algorithm) else { return Ok(()) };
    let is_same = right == text || right.split_once('-').is_some_and(|(sum, _)| sum == text);
    if is_same { Ok(()) } else { Err(super::mismatch(*algorithm)) }
}

/// The algorithm of the checksum that a request carries or announces.
///
/// # Errors
/// As of reading it.
pub fn announced_algorithm(headers: &HeaderMap) -> S3Result<Option<Algorithm>> {
    Ok(super::announced(headers)?.map(|(algorithm, _)| algorithm))
}

/// Whether a completion names the type of its checksum as that of all bytes.
pub fn says_full(headers: &HeaderMap) -> bool {
    headers.get(format!("{HEADER}type")).is_some_and(|kind| kind == "FULL_OBJECT")
}

#[cfg(test)]
mod tests {
    use super::*;
    use s3s::S3ErrorCode;

    const CRC: &str = "DUoRhQ==";
    const COMPOSITE: UploadKind = UploadKind { algorithm: Algorithm::Crc32, is_full: false };

    fn crc32(text: &str) -> dto::CompletedPart {
        let checksum_crc32 = Some(text.to_string());
        dto::CompletedPart { part_number: Some(1), checksum_crc32, ..Default::default() }
    }

    fn code(named: &dto::CompletedPart, known: &Known, kind: Option<UploadKind>) -> S3ErrorCode {
        judge(named, known, kind).unwrap_err().code().clone()
    }

    #[test]
    fn what_a_completion_names_is_what_the_part_had() {
        let known = Known::Sum(Algorithm::Crc32, CRC.into());
        let sum = Some((Algorithm::Crc32, CRC.to_string()));
        let right = judge(&crc32(CRC), &known, None).unwrap();
        assert_eq!(right, Judged { sum: sum.clone(), is_unproved: false });
        assert_eq!(code(&crc32("AAAAAA=="), &known, None), S3ErrorCode::InvalidPart);
        assert_eq!(code(&crc32("AAAA"), &known, None), S3ErrorCode::InvalidArgument);
        let sha1 = Known::Sum(Algorithm::Sha1, "x".into());
        assert_eq!(code(&crc32(CRC), &sha1, None), S3ErrorCode::BadDigest);
        let two = dto::CompletedPart { checksum_sha1: Some("x".into()), ..crc32(CRC) };
        assert_eq!(code(&two, &known, None), S3ErrorCode::InvalidArgument);
        assert!(judge(&crc32(CRC), &Known::Nothing, None).unwrap().is_unproved);
        assert!(!judge(&crc32(CRC), &Known::BackEnd, None).unwrap().is_unproved);
    }

    #[test]
    fn a_composite_checksum_wants_one_of_every_part() {
        let (bare, known) =
            (dto::CompletedPart::default(), Known::Sum(Algorithm::Crc32, CRC.into()));
        assert_eq!(code(&bare, &known, Some(COMPOSITE)), S3ErrorCode::InvalidRequest);
        let full = UploadKind { is_full: true, ..COMPOSITE };
        let sum = Some((Algorithm::Crc32, CRC.to_string()));
        assert_eq!(judge(&bare, &known, Some(full)).unwrap().sum, sum);
        // An upload that named no algorithm has no checksum of the whole.
        assert_eq!(judge(&bare, &known, None).unwrap().sum, None);
        assert!(COMPOSITE.check_part(None).is_err() && full.check_part(None).is_ok());
        assert!(full.check_part(Some(Algorithm::Sha1)).is_err());
        assert!(COMPOSITE.check_part(Some(Algorithm::Crc32)).is_ok());
    }

    #[test]
    fn a_back_end_is_handed_what_it_can_compare() {
        let judged = |text: Option<&str>| Judged {
            sum: text.map(|text| (Algorithm::Crc32, text.to_string())),
            is_unproved: false,
        };
        let all = [judged(Some("a")), judged(None), judged(Some("b"))];
        let known = [Known::BackEnd, Known::BackEnd, Known::Sum(Algorithm::Crc32, "b".into())];
        assert_eq!(handed_over(&all, &known).unwrap().1, "crc32:a,,");
        assert_eq!(handed_over(&all[1..], &known[1..]), None);
    }

    #[test]
    fn a_composite_checksum_that_is_told_is_compared() {
        let made = Sums::one(Algorithm::Crc32, "1Fu2mQ==-2".into());
        let told = |text: &str| Some((Algorithm::Crc32, text.to_string()));
        assert!(check_composite(told("1Fu2mQ==-2").as_ref(), &made).is_ok());
        assert!(check_composite(told("1Fu2mQ==").as_ref(), &made).is_ok());
        assert!(check_composite(told("1Fu2mQ==-3").as_ref(), &made).is_err());
        assert!(check_composite(None, &made).is_ok());
    }

    #[test]
    fn an_upload_tells_its_kind_again() {
        let algorithm = dto::ChecksumAlgorithm::from_static("CRC32");
        let kind = dto::ChecksumType::from_static(dto::ChecksumType::COMPOSITE);
        let note = UploadKind::note(Some(&algorithm), Some(&kind)).unwrap();
        assert_eq!(UploadKind::of(&[note]), Some(COMPOSITE));
        assert_eq!(COMPOSITE.to_dto(), (algorithm, kind));
        assert_eq!(UploadKind::note(None, None), None);
    }
}

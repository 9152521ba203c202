//! Checks that a body is the one its sender hashed, before the object becomes visible.
//!
//! Content-MD5 and the `x-amz-checksum-*` family (crc32, crc32c, crc64nvme, sha1, sha256), sent as
//! headers or as trailers of an aws-chunked body. The signature's own SHA-256 is checked by s3s.

mod joined;

pub use joined::PartSums;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Md5, Sha1, Sha256};
use s3s::dto;
use s3s::{S3Error, S3Result, s3_error};

const HEADER: &str = "x-amz-checksum-";
/// Headers of that prefix that carry no checksum.
const ABOUT: [&str; 3] = ["algorithm", "mode", "type"];

/// One algorithm of the `x-amz-checksum-*` family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// CRC-32 (ISO-HDLC).
    Crc32,
    /// CRC-32C (Castagnoli).
    Crc32c,
    /// CRC-64/NVME.
    Crc64Nvme,
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
}

impl Algorithm {
    const ALL: [(Algorithm, &'static str); 5] = [
        (Algorithm::Crc32, "x-amz-checksum-crc32"),
        (Algorithm::Crc32c, "x-amz-checksum-crc32c"),
        (Algorithm::Crc64Nvme, "x-amz-checksum-crc64nvme"),
        (Algorithm::Sha1, "x-amz-checksum-sha1"),
        (Algorithm::Sha256, "x-amz-checksum-sha256"),
    ];

    /// By its name in `x-amz-checksum-algorithm` and its kin, in any case.
    fn of_name(name: &str) -> Option<Algorithm> {
        let named = |row: &&(Algorithm, &str)| {
            row.1.strip_prefix(HEADER).is_some_and(|own| own.eq_ignore_ascii_case(name))
        };
        Self::ALL.iter().find(named).map(|row| row.0)
    }

    fn size_bytes(self) -> usize {
        match self {
            Algorithm::Crc32 | Algorithm::Crc32c => 4,
            Algorithm::Crc64Nvme => 8,
            Algorithm::Sha1 => 20,
            Algorithm::Sha256 => 32,
        }
    }

    fn header(self) -> &'static str {
        Self::ALL.iter().find(|row| row.0 == self).map_or("", |row| row.1)
    }
}

/// Hashes a body while it passes and compares at its end.
pub struct Verifier {
    md5: Option<(Md5, [u8; 16])>,
    hasher: ChecksumHasher,
    expected: Vec<(Algorithm, Option<String>)>,
}

impl Verifier {
    /// Reads from the request's headers what to expect. An algorithm that is announced as a trailer
    /// is hashed too; its value comes at the end.
    ///
    /// # Errors
    /// `InvalidDigest` for a Content-MD5 that is not base64 of 16 bytes; `BadDigest` for a checksum
    /// that is none of its algorithm; `InvalidRequest` for several; `NotImplemented` for an
    /// algorithm that is not here.
    pub fn from_headers(headers: &HeaderMap) -> S3Result<Self> {
        let expected = announced(headers)?;
        let mut hasher = ChecksumHasher::default();
        for (algorithm, _) in &expected {
            match algorithm {
                Algorithm::Crc32 => hasher.crc32 = Some(Crc32::new()),
                Algorithm::Crc32c => hasher.crc32c = Some(Crc32c::new()),
                Algorithm::Crc64Nvme => hasher.crc64nvme = Some(Crc64Nvme::new()),
                Algorithm::Sha1 => hasher.sha1 = Some(Sha1::new()),
                Algorithm::Sha256 => hasher.sha256 = Some(Sha256::new()),
            }
        }
        Ok(Verifier { md5: expected_md5(headers)?, hasher, expected })
    }

    /// Whether there is anything to compare.
    pub fn is_empty(&self) -> bool {
        self.md5.is_none() && self.expected.is_empty()
    }

    /// Takes the next bytes of the body.
    pub fn update(&mut self, bytes: &[u8]) {
        if let Some((md5, _)) = &mut self.md5 {
            md5.update(bytes);
        }
        self.hasher.update(bytes);
    }

    /// Compares with what the sender hashed; `trailers` are those that followed the body. Returns
    /// the computed checksums, which S3 puts in its answer.
    ///
    /// # Errors
    /// `BadDigest` when one differs, or a trailer that was announced did not come.
    pub fn finish(self, trailers: Option<&HeaderMap>) -> S3Result<dto::Checksum> {
        if let Some((md5, expected)) = self.md5
            && md5.finalize() != expected
        {
            return Err(s3_error!(
                BadDigest,
                "The Content-MD5 you specified did not match what we received."
            ));
        }
        let mut computed = self.hasher.finalize();
        if !self.expected.is_empty() {
            let kind = dto::ChecksumType::FULL_OBJECT;
            computed.checksum_type = Some(dto::ChecksumType::from_static(kind));
        }
        for (algorithm, header) in self.expected {
            let name = algorithm.header();
            let trailer = || trailers?.get(name)?.to_str().ok().map(|text| text.trim().to_string());
            let Some(expected) = header.or_else(trailer) else {
                return Err(s3_error!(
                    BadDigest,
                    "the trailer {name} was announced and did not come"
                ));
            };
            let actual = match algorithm {
                Algorithm::Crc32 => &computed.checksum_crc32,
                Algorithm::Crc32c => &computed.checksum_crc32c,
                Algorithm::Crc64Nvme => &computed.checksum_crc64nvme,
                Algorithm::Sha1 => &computed.checksum_sha1,
                Algorithm::Sha256 => &computed.checksum_sha256,
            };
            if actual.as_ref() != Some(&expected) {
                return Err(mismatch(algorithm));
            }
        }
        Ok(computed)
    }
}

/// What CompleteMultipartUpload says of the whole object, if it says anything that bytes can be
/// compared with: a composite checksum is one of the parts' checksums, which were compared already.
///
/// # Errors
/// As [`Verifier::from_headers`].
pub fn whole_object_checksum(headers: &HeaderMap) -> S3Result<Option<Verifier>> {
    let composite = headers.get("x-amz-checksum-type").is_some_and(|kind| kind == "COMPOSITE");
    let tells_parts = |value: &http::HeaderValue| value.as_bytes().contains(&b'-');
    if composite || Algorithm::ALL.iter().any(|row| headers.get(row.1).is_some_and(tells_parts)) {
        return Ok(None);
    }
    let mut whole = headers.clone();
    // That one is the digest of the request's own XML.
    whole.remove("content-md5");
    let verifier = Verifier::from_headers(&whole)?;
    Ok((!verifier.is_empty()).then_some(verifier))
}

fn mismatch(algorithm: Algorithm) -> S3Error {
    let name = algorithm.header().trim_start_matches(HEADER).to_ascii_uppercase();
    s3_error!(BadDigest, "The {name} you specified did not match the calculated checksum.")
}

/// The checksums that a request carries, or announces as trailers: one at most, in S3.
fn announced(headers: &HeaderMap) -> S3Result<Vec<(Algorithm, Option<String>)>> {
    let mut found: Vec<(Algorithm, Option<String>)> = Vec::new();
    for (name, value) in headers {
        let Some(own) = name.as_str().strip_prefix(HEADER) else { continue };
        if ABOUT.contains(&own) {
            continue;
        }
        let algorithm = Algorithm::of_name(own).ok_or_else(|| unknown(own))?;
        let text = value.to_str().unwrap_or_default().trim().to_string();
        found.push((algorithm, Some(text)));
    }
    let trailers = headers.get_all("x-amz-trailer").iter().filter_map(|value| value.to_str().ok());
    for name in trailers.flat_map(|value| value.split(',')).map(str::trim) {
        let lower = name.to_ascii_lowercase();
        let Some(own) = lower.strip_prefix(HEADER) else { continue };
        let algorithm = Algorithm::of_name(own).ok_or_else(|| unknown(own))?;
        if !found.iter().any(|row| row.0 == algorithm) {
            found.push((algorithm, None));
        }
    }
    if found.len() > 1 {
        let why = "Expecting a single x-amz-checksum- header. Multiple checksum Types are not \
                   allowed.";
        return Err(s3_error!(InvalidRequest, "{why}"));
    }
    if let Some((algorithm, Some(text))) = found.first() {
        // A composite one has the number of parts behind it.
        let sum = text.split_once('-').map_or(text.as_str(), |parts| parts.0);
        if STANDARD.decode(sum).map(|sum| sum.len()) != Ok(algorithm.size_bytes()) {
            let name = algorithm.header();
            return Err(s3_error!(BadDigest, "Value for {name} header is invalid."));
        }
    }
    let told = headers.get("x-amz-sdk-checksum-algorithm").and_then(|value| value.to_str().ok());
    if let (Some(told), Some((algorithm, _))) = (told, found.first())
        && Algorithm::of_name(told) != Some(*algorithm)
    {
        let why = "Value for x-amz-sdk-checksum-algorithm header is invalid.";
        return Err(s3_error!(InvalidRequest, "{why}"));
    }
    Ok(found)
}

/// A checksum that nobody compares must not look like one that was.
fn unknown(name: &str) -> S3Error {
    s3_error!(NotImplemented, "checksums of the algorithm {name}")
}

/// What CreateMultipartUpload says of checksums, as its answer tells it again.
///
/// # Errors
/// `InvalidRequest` for what is no algorithm or type, and for types that an algorithm has not.
pub fn upload_kind(
    algorithm: Option<dto::ChecksumAlgorithm>,
    kind: Option<dto::ChecksumType>,
) -> S3Result<(Option<dto::ChecksumAlgorithm>, Option<dto::ChecksumType>)> {
    use dto::ChecksumType as Type;
    let kind = kind.map(|kind| kind.as_str().to_ascii_uppercase());
    let is_kind = |kind: &String| [Type::COMPOSITE, Type::FULL_OBJECT].contains(&kind.as_str());
    if kind.as_ref().is_some_and(|kind| !is_kind(kind)) {
        return Err(s3_error!(InvalidRequest, "Value for x-amz-checksum-type header is invalid."));
    }
    let Some(name) = algorithm.map(|name| name.as_str().to_ascii_uppercase()) else {
        let why = "The x-amz-checksum-type header can only be used with the \
                   x-amz-checksum-algorithm header.";
        return if kind.is_none() {
            Ok((None, None))
        } else {
            Err(s3_error!(InvalidRequest, "{why}"))
        };
    };
    let Some(algorithm) = Algorithm::of_name(&name) else {
        let why = "Checksum algorithm provided is unsupported. Please try again with any of the \
                   valid types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]";
        return Err(s3_error!(InvalidRequest, "{why}"));
    };
    let (composes, joins) = match algorithm {
        Algorithm::Crc64Nvme => (false, true),
        Algorithm::Crc32 | Algorithm::Crc32c => (true, true),
        Algorithm::Sha1 | Algorithm::Sha256 => (true, false),
    };
    let default = if composes { Type::COMPOSITE } else { Type::FULL_OBJECT };
    let kind = kind.unwrap_or_else(|| default.to_string());
    let fits = if kind == Type::COMPOSITE { composes } else { joins };
    if !fits {
        let lower = name.to_ascii_lowercase();
        return Err(s3_error!(
            InvalidRequest,
            "The {kind} checksum type cannot be used with the {lower} checksum algorithm."
        ));
    }
    Ok((Some(dto::ChecksumAlgorithm::from(name)), Some(Type::from(kind))))
}

fn expected_md5(headers: &HeaderMap) -> S3Result<Option<(Md5, [u8; 16])>> {
    let Some(value) = headers.get("content-md5") else { return Ok(None) };
    let digest = value
        .to_str()
        .ok()
        .and_then(|text| STANDARD.decode(text.trim()).ok())
        .and_then(|bytes| <[u8; 16]>::try_from(bytes).ok())
        .ok_or_else(|| s3_error!(InvalidDigest, "The Content-MD5 you specified is not valid."))?;
    Ok(Some((Md5::new(), digest)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use s3s::S3ErrorCode;

    fn headers(rows: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in rows {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    fn check(
        rows: &[(&'static str, &str)],
        trailers: &[(&'static str, &str)],
    ) -> S3Result<dto::Checksum> {
        let mut verifier = Verifier::from_headers(&headers(rows))?;
        verifier.update(b"hello ");
        verifier.update(b"world");
        verifier.finish(Some(&headers(trailers)))
    }

    // Digests of "hello world", computed with Python's hashlib and zlib.
    const MD5: &str = "XrY7u+Ae7tCTyyK7j1rNww==";
    const CRC32: &str = "DUoRhQ==";
    const SHA1: &str = "Kq5sNclPz7QV2+lfQIuc6R7oRu0=";

    #[test]
    fn right_digests_pass_and_are_returned() {
        let sums = check(&[("content-md5", MD5), ("x-amz-checksum-crc32", CRC32)], &[]).unwrap();
        assert_eq!(sums.checksum_crc32.as_deref(), Some(CRC32));
        assert_eq!(sums.checksum_sha1, None);
    }

    #[test]
    fn wrong_digests_are_refused() {
        let wrong_md5 = check(&[("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")], &[]).unwrap_err();
        assert_eq!(wrong_md5.code(), &S3ErrorCode::BadDigest);
        let wrong_crc = check(&[("x-amz-checksum-crc32", "AAAAAA==")], &[]).unwrap_err();
        assert_eq!(wrong_crc.code(), &S3ErrorCode::BadDigest);
        let no_md5 = check(&[("content-md5", "not base64")], &[]).unwrap_err();
        assert_eq!(no_md5.code(), &S3ErrorCode::InvalidDigest);
    }

    #[test]
    fn one_checksum_of_a_known_algorithm() {
        let code = |rows: &[(&'static str, &str)]| {
            let error = check(rows, &[]).unwrap_err();
            error.code().as_str().to_string()
        };
        let crc = ("x-amz-checksum-crc32", CRC32);
        assert_eq!(code(&[crc, ("x-amz-checksum-sha1", SHA1)]), "InvalidRequest");
        assert_eq!(code(&[crc, ("x-amz-trailer", "x-amz-checksum-sha1")]), "InvalidRequest");
        assert_eq!(code(&[("x-amz-checksum-crc32", "DUoR")]), "BadDigest");
        assert_eq!(code(&[("x-amz-checksum-crc32", "!")]), "BadDigest");
        assert_eq!(code(&[crc, ("x-amz-sdk-checksum-algorithm", "SHA1")]), "InvalidRequest");
        assert!(check(&[crc, ("x-amz-sdk-checksum-algorithm", "crc32")], &[]).is_ok());
        assert!(check(&[crc, ("x-amz-checksum-type", "FULL_OBJECT")], &[]).is_ok());
        // What nobody would compare is refused.
        assert_eq!(code(&[("x-amz-checksum-sha512", "AAAA")]), "NotImplemented");
        assert_eq!(code(&[("x-amz-trailer", "x-amz-checksum-xxhash64")]), "NotImplemented");
    }

    #[test]
    fn uploads_have_checksums_that_there_are() {
        use dto::{ChecksumAlgorithm as Name, ChecksumType as Type};
        let kind = |name: Option<&str>, kind: Option<&str>| {
            let name = name.map(|name| Name::from(name.to_string()));
            let told = upload_kind(name, kind.map(|kind| Type::from(kind.to_string())));
            let told = told.map_err(|error| error.code().clone())?;
            Ok((told.0.map(|it| it.as_str().to_string()), told.1.map(|it| it.as_str().to_string())))
        };
        let both = |a: &str, b: &str| Ok((Some(a.to_string()), Some(b.to_string())));
        assert_eq!(kind(None, None), Ok((None, None)));
        assert_eq!(kind(Some("cRc32"), None), both("CRC32", "COMPOSITE"));
        assert_eq!(kind(Some("CRC32C"), Some("full_object")), both("CRC32C", "FULL_OBJECT"));
        assert_eq!(kind(Some("CRC64NVME"), None), both("CRC64NVME", "FULL_OBJECT"));
        for (name, type_) in [
            (None, Some("COMPOSITE")),
            (Some("MD4"), None),
            (Some("CRC32"), Some("ODD")),
            (Some("CRC64NVME"), Some("COMPOSITE")),
            (Some("SHA256"), Some("FULL_OBJECT")),
        ] {
            assert_eq!(kind(name, type_), Err(S3ErrorCode::InvalidRequest), "{name:?} {type_:?}");
        }
    }

    #[test]
    fn trailers_count_and_must_come() {
        let announced = [("x-amz-trailer", "x-amz-checksum-sha1")];
        assert!(check(&announced, &[("x-amz-checksum-sha1", SHA1)]).is_ok());
        assert_eq!(check(&announced, &[]).unwrap_err().code(), &S3ErrorCode::BadDigest);
    }
}

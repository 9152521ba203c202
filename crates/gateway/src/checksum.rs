//! Checks that a body is the one its sender hashed, before the object becomes visible.
//!
//! Content-MD5 and the `x-amz-checksum-*` family, sent as headers or as trailers of an aws-chunked
//! body. The SHA-256 that a signature of version 4 covers is checked by s3s; where no such
//! signature is, here.

mod algorithm;
mod joined;
mod named;
mod sums;

pub use algorithm::Algorithm;
pub use joined::PartSums;
pub use named::{
    Judged, Known, UploadKind, announced_algorithm, check_composite, composite_told, handed_over,
    judge, says_full,
};
pub use sums::{HasChecksums, PART_SUMS_NOTE, Sums};

use crate::hex::hex;
use algorithm::{HEADER, Hasher};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};
use ring::digest;
use s3s::crypto::{Checksum as _, Md5};
use s3s::dto;
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};

/// Headers of that prefix that carry no checksum.
const ABOUT: [&str; 3] = ["algorithm", "mode", "type"];
const CONTENT_SHA256: &str = "x-amz-content-sha256";

/// Hashes a body while it passes and compares at its end.
pub struct Verifier {
    md5: Option<(Md5, [u8; 16])>,
    /// `x-amz-content-sha256` of a request that version 4 did not sign.
    payload: Option<(digest::Context, String)>,
    expected: Option<Expected>,
    /// Names of the trailers that the head announces.
    trailers: Vec<String>,
}

/// A checksum of the family.
struct Expected {
    algorithm: Algorithm,
    hasher: Hasher,
    /// `None` for one that comes as a trailer.
    text: Option<String>,
}

impl Verifier {
    /// Reads from the request's headers what to expect. An algorithm that is announced as a trailer
    /// is hashed too; its value comes at the end.
    ///
    /// # Errors
    /// `InvalidDigest` for a Content-MD5 that is not base64 of 16 bytes; `BadDigest` for a checksum
    /// that is none of its algorithm; `InvalidRequest` for several, and for trailers that are no
    /// checksums; `NotImplemented` for an algorithm that is not here.
    pub fn from_headers(headers: &HeaderMap) -> S3Result<Self> {
        let expected = announced(headers)?.map(|(algorithm, text)| Expected {
            algorithm,
            hasher: Hasher::new(algorithm),
            text,
        });
        let (md5, payload) = (expected_md5(headers)?, expected_payload(headers));
        Ok(Verifier { md5, payload, expected, trailers: trailer_names(headers).collect() })
    }

    /// Expects this checksum.
    pub fn expecting(algorithm: Algorithm, text: String) -> Self {
        let hasher = Hasher::new(algorithm);
        let expected = Some(Expected { algorithm, hasher, text: Some(text) });
        Verifier { md5: None, payload: None, expected, trailers: Vec::new() }
    }

    /// Whether there is anything to compare.
    pub fn is_empty(&self) -> bool {
        self.md5.is_none() && self.payload.is_none() && self.expected.is_none()
    }

    /// The algorithm's name, and the checksum where it came before the body.
    pub fn announced(&self) -> Option<(String, Option<String>)> {
        self.expected.as_ref().map(|it| (it.algorithm.name().to_string(), it.text.clone()))
    }

    /// Takes the next bytes of the body.
    pub fn update(&mut self, bytes: &[u8]) {
        if let Some((md5, _)) = &mut self.md5 {
            md5.update(bytes);
        }
        if let Some((sha, _)) = &mut self.payload {
            sha.update(bytes);
        }
        if let Some(expected) = &mut self.expected {
            expected.hasher.update(bytes);
        }
    }

    /// Compares with what the sender hashed; `trailers` are those that followed the body. Returns
    /// the checksum, which S3 puts in its answer.
    ///
    /// # Errors
    /// `BadDigest` when one differs, or a trailer that was announced did not come;
    /// `MalformedTrailerError` for one that was not announced, which nobody would have compared, or
    /// that comes twice;
    /// `XAmzContentSHA256Mismatch`.
    pub fn finish(self, trailers: Option<&HeaderMap>) -> S3Result<Sums> {
        let mut came = trailers.into_iter().flat_map(HeaderMap::keys);
        let is_announced = |name: &str| self.trailers.iter().any(|it| it == name);
        if let Some(name) = came.find(|name| !is_announced(name.as_str())) {
            return Err(malformed(&format!("x-amz-trailer does not announce {name}")));
        }
        if let Some((md5, expected)) = self.md5
            && md5.finalize() != expected
        {
            return Err(s3_error!(
                BadDigest,
                "The Content-MD5 you specified did not match what we received."
            ));
        }
        if let Some((sha, expected)) = self.payload
            && hex(sha.finish().as_ref()) != expected.to_ascii_lowercase()
        {
            return Err(wrong_payload());
        }
        let Some(Expected { algorithm, hasher, text }) = self.expected else {
            return Ok(Sums::default());
        };
        let name = algorithm.header();
        let mut values = trailers.into_iter().flat_map(|came| came.get_all(name));
        let trailer = values.next().and_then(|value| value.to_str().ok()).map(str::trim);
        if values.next().is_some() {
            return Err(malformed(&format!("{name} comes twice")));
        }
        // One that stands in the head as well has to be the same.
        let sum = hasher.finish();
        let is_other = trailer.is_some_and(|trailer| trailer != sum);
        let Some(expected) = text.or_else(|| trailer.map(str::to_string)) else {
            return Err(s3_error!(BadDigest, "the trailer {name} was announced and did not come"));
        };
        match sum == expected && !is_other {
            true => Ok(Sums::one(algorithm, expected)),
            false => Err(mismatch(algorithm)),
        }
    }
}

/// Makes the checksum of bytes that come with none.
pub struct Maker {
    algorithm: Algorithm,
    hasher: Hasher,
}

impl Maker {
    /// Of this algorithm.
    pub fn new(algorithm: Algorithm) -> Self {
        Maker { algorithm, hasher: Hasher::new(algorithm) }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// The checksum of all.
    pub fn finish(self) -> Sums {
        Sums::one(self.algorithm, self.hasher.finish())
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
    whole.remove(CONTENT_SHA256);
    let verifier = Verifier::from_headers(&whole)?;
    Ok((!verifier.is_empty()).then_some(verifier))
}

fn mismatch(algorithm: Algorithm) -> S3Error {
    let name = Sums::shown(algorithm);
    s3_error!(BadDigest, "The {name} you specified did not match the calculated checksum.")
}

/// The checksum that a request carries, or announces as a trailer: one at most, in S3.
fn announced(headers: &HeaderMap) -> S3Result<Option<(Algorithm, Option<String>)>> {
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
    for name in trailer_names(headers) {
        // What is announced would have to be compared, as clients take for granted.
        let Some(own) = name.strip_prefix(HEADER) else {
            return Err(s3_error!(
                InvalidRequest,
                "The value specified in the x-amz-trailer header is not supported: only checksums \
                 (x-amz-checksum-*) follow a body, not {name}."
            ));
        };
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
    // One that nobody knows is refused where no checksum comes with it too.
    let told = headers.get("x-amz-sdk-checksum-algorithm");
    let told = told.map(|value| value.to_str().ok().and_then(Algorithm::of_name));
    let is_other = |told| found.first().is_some_and(|row| told != row.0);
    if told.is_some_and(|told| told.is_none_or(is_other)) {
        let why = "Value for x-amz-sdk-checksum-algorithm header is invalid.";
        return Err(s3_error!(InvalidRequest, "{why}"));
    }
    let Some((algorithm, text)) = found.pop() else { return Ok(None) };
    if let Some(text) = &text {
        // A composite one has the number of parts behind it.
        let sum = text.split_once('-').map_or(text.as_str(), |parts| parts.0);
        if STANDARD.decode(sum).map(|sum| sum.len()) != Ok(algorithm.size_bytes()) {
            let name = algorithm.header();
            return Err(s3_error!(BadDigest, "Value for {name} header is invalid."));
        }
    }
    Ok(Some((algorithm, text)))
}

/// The trailers that a head announces, in small letters.
fn trailer_names(headers: &HeaderMap) -> impl Iterator<Item = String> {
    let values = headers.get_all("x-amz-trailer").iter().filter_map(|value| value.to_str().ok());
    let names = values.flat_map(|value| value.split(',')).map(str::trim);
    names.filter(|name| !name.is_empty()).map(str::to_ascii_lowercase)
}

/// S3 has one sentence for all that can be wrong with trailers.
fn malformed(what: &str) -> S3Error {
    let why = format!(
        "The request contained trailing data that was not well-formed or did not conform to our \
         published schema: {what}."
    );
    let mut error = S3Error::with_message(S3ErrorCode::Custom("MalformedTrailerError".into()), why);
    error.set_status_code(StatusCode::BAD_REQUEST);
    error
}

/// A checksum that nobody compares must not look like one that was.
fn unknown(name: &str) -> S3Error {
    s3_error!(NotImplemented, "checksums of the algorithm {name}")
}

/// The algorithm that `x-amz-checksum-algorithm` names.
///
/// # Errors
/// `InvalidRequest` for what is none.
pub fn named_algorithm(name: &str) -> S3Result<Algorithm> {
    let why = "Checksum algorithm provided is unsupported. Please try again with any of the valid \
               types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256, SHA512, MD5, XXHASH64, XXHASH3, \
               XXHASH128]";
    Algorithm::of_name(name).ok_or_else(|| s3_error!(InvalidRequest, "{why}"))
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
    let algorithm = named_algorithm(&name)?;
    let (composes, joins) = (algorithm.composes(), algorithm.crc().is_some());
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

fn wrong_payload() -> S3Error {
    let code = S3ErrorCode::Custom("XAmzContentSHA256Mismatch".into());
    let why = "The provided 'x-amz-content-sha256' header does not match what was computed.";
    let mut error = S3Error::with_message(code, why);
    error.set_status_code(StatusCode::BAD_REQUEST);
    error
}

/// The digest that a request without a signature of version 4 tells of its body.
fn expected_payload(headers: &HeaderMap) -> Option<(digest::Context, String)> {
    let authorization = headers.get(AUTHORIZATION);
    if authorization.is_some_and(|value| value.as_bytes().starts_with(b"AWS4-")) {
        return None;
    }
    let told = headers.get(CONTENT_SHA256)?.to_str().ok()?;
    // What is no digest either is one that no body has.
    let is_word = told == "UNSIGNED-PAYLOAD" || told.starts_with("STREAMING-");
    (!is_word).then(|| (digest::Context::new(&digest::SHA256), told.to_string()))
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

    fn headers(rows: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in rows {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    fn check(rows: &[(&'static str, &str)], trailers: &[(&'static str, &str)]) -> S3Result<Sums> {
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
        assert_eq!(sums, Sums::one(Algorithm::Crc32, CRC32.to_string()));
        // What s3s has no field for is a header.
        let xxh = ("x-amz-checksum-xxhash64", "RatnNLIeaWg=");
        let sums = check(&[xxh], &[]).unwrap();
        assert_eq!((sums.to_dto().checksum_crc32, sums.headers()[xxh.0] == xxh.1), (None, true));
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
    fn a_digest_that_nobody_signed_is_compared_too() {
        let wrong = "0".repeat(64);
        let right = hex(digest::digest(&digest::SHA256, b"hello world").as_ref());
        let of = |sum: &str, rest: &[(&'static str, &str)]| {
            let rows = [&[("x-amz-content-sha256", sum)], rest].concat();
            check(&rows, &[]).map(drop).map_err(|error| error.code().as_str().to_string())
        };
        assert_eq!(of(&right.to_uppercase(), &[]), Ok(()));
        assert_eq!(of(&wrong, &[]), Err("XAmzContentSHA256Mismatch".to_string()));
        assert_eq!(of("no digest at all", &[]), Err("XAmzContentSHA256Mismatch".to_string()));
        assert_eq!(of("UNSIGNED-PAYLOAD", &[]), Ok(()));
        // s3s compares that one.
        assert_eq!(of(&wrong, &[("authorization", "AWS4-HMAC-SHA256 x")]), Ok(()));
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
        for odd in ["", "CRC31", "sha"] {
            assert_eq!(code(&[("x-amz-sdk-checksum-algorithm", odd)]), "InvalidRequest", "{odd}");
        }
        assert!(check(&[("x-amz-sdk-checksum-algorithm", "SHA256")], &[]).is_ok());
        assert!(check(&[crc, ("x-amz-checksum-type", "FULL_OBJECT")], &[]).is_ok());
        // What nobody would compare is refused.
        assert_eq!(code(&[("x-amz-checksum-sha3", "AAAA")]), "NotImplemented");
        assert_eq!(code(&[("x-amz-trailer", "x-amz-checksum-blake3")]), "NotImplemented");
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
        assert_eq!(kind(Some("xxhash3"), None), both("XXHASH3", "COMPOSITE"));
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
        let sum = ("x-amz-checksum-sha1", SHA1);
        assert!(check(&[("x-amz-trailer", " X-Amz-Checksum-Sha1,")], &[sum]).is_ok());
        let twice = check(&announced, &[sum, ("x-amz-checksum-sha1", "x")]).unwrap_err();
        assert_eq!(twice.code().as_str(), "MalformedTrailerError");
        // In the head as well.
        let head = [sum, announced[0]];
        assert!(check(&head, &[]).is_ok() && check(&head, &[sum]).is_ok());
        let other = check(&head, &[("x-amz-checksum-sha1", "x")]).unwrap_err();
        assert_eq!(other.code(), &S3ErrorCode::BadDigest);
    }

    #[test]
    fn only_checksums_are_announced() {
        for other in ["content-md5", "x-amz-checksum-sha1, x-amz-meta-note"] {
            let error = Verifier::from_headers(&headers(&[("x-amz-trailer", other)]));
            assert_eq!(error.err().unwrap().code(), &S3ErrorCode::InvalidRequest, "{other}");
        }
    }

    #[test]
    fn a_trailer_that_nobody_announced_is_refused() {
        let sum = ("x-amz-checksum-sha1", SHA1);
        let announced = ("x-amz-trailer", "x-amz-checksum-sha1");
        for (head, came) in [
            (&[][..], &[sum][..]),
            (&[announced], &[sum, ("x-amz-checksum-crc32", "AAAAAA==")]),
            (&[announced], &[sum, ("x-amz-note", "1")]),
            (&[("x-amz-checksum-crc32", CRC32)], &[("x-amz-checksum-crc32", CRC32)]),
        ] {
            let error = check(head, came).unwrap_err();
            assert_eq!(error.code().as_str(), "MalformedTrailerError", "{head:?} {came:?}");
            assert_eq!(error.status_code(), Some(StatusCode::BAD_REQUEST));
        }
    }
}

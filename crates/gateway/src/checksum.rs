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
use s3s::{S3Result, s3_error};

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

    fn header(self) -> &'static str {
        Self::ALL.iter().find(|row| row.0 == self).map_or("", |row| row.1)
    }

    fn of_header(name: &str) -> Option<Algorithm> {
        Self::ALL.iter().find(|row| row.1.eq_ignore_ascii_case(name)).map(|row| row.0)
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
    /// `InvalidDigest` for a Content-MD5 that is not base64 of 16 bytes.
    pub fn from_headers(headers: &HeaderMap) -> S3Result<Self> {
        let mut expected = Vec::new();
        for (algorithm, name) in Algorithm::ALL {
            if let Some(value) = headers.get(name) {
                let text =
                    value.to_str().map_err(|_| s3_error!(InvalidRequest, "{name} is not text"))?;
                expected.push((algorithm, Some(text.trim().to_string())));
            }
        }
        let trailers = headers.get_all("x-amz-trailer").iter();
        for name in trailers.filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(',')) {
            if let Some(algorithm) = Algorithm::of_header(name.trim())
                && !expected.iter().any(|row| row.0 == algorithm)
            {
                expected.push((algorithm, None));
            }
        }
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
        let computed = self.hasher.finalize();
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
                return Err(s3_error!(
                    BadDigest,
                    "The {name} you specified did not match the calculated checksum."
                ));
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
    fn trailers_count_and_must_come() {
        let announced = [("x-amz-trailer", "x-amz-checksum-sha1")];
        assert!(check(&announced, &[("x-amz-checksum-sha1", SHA1)]).is_ok());
        assert_eq!(check(&announced, &[]).unwrap_err().code(), &S3ErrorCode::BadDigest);
    }
}

//! The algorithms of the `x-amz-checksum-*` family, by name, and how each hashes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crc_fast::CrcAlgorithm;
use ring::digest;
use s3s::crypto::{Checksum as _, Md5};
use xxhash_rust::xxh3::Xxh3;
use xxhash_rust::xxh64::Xxh64;

pub(super) const HEADER: &str = "x-amz-checksum-";

/// One algorithm of the family.
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
    /// SHA-512.
    Sha512,
    /// MD5.
    Md5,
    /// XXH64.
    Xxh64,
    /// XXH3 of 64 bits.
    Xxh3,
    /// XXH3 of 128 bits.
    Xxh128,
}

impl Algorithm {
    /// With the names of their headers; those that s3s has fields for come first.
    pub(super) const ALL: [(Algorithm, &'static str); 10] = [
        (Algorithm::Crc32, "x-amz-checksum-crc32"),
        (Algorithm::Crc32c, "x-amz-checksum-crc32c"),
        (Algorithm::Crc64Nvme, "x-amz-checksum-crc64nvme"),
        (Algorithm::Sha1, "x-amz-checksum-sha1"),
        (Algorithm::Sha256, "x-amz-checksum-sha256"),
        (Algorithm::Sha512, "x-amz-checksum-sha512"),
        (Algorithm::Md5, "x-amz-checksum-md5"),
        (Algorithm::Xxh64, "x-amz-checksum-xxhash64"),
        (Algorithm::Xxh3, "x-amz-checksum-xxhash3"),
        (Algorithm::Xxh128, "x-amz-checksum-xxhash128"),
    ];

    /// By its name in `x-amz-checksum-algorithm` and its kin, in any case.
    pub fn of_name(name: &str) -> Option<Algorithm> {
        let named = |row: &&(Algorithm, &str)| {
            row.1.strip_prefix(HEADER).is_some_and(|own| own.eq_ignore_ascii_case(name))
        };
        Self::ALL.iter().find(named).map(|row| row.0)
    }

    /// Bytes of its checksums.
    pub fn size_bytes(self) -> usize {
        match self {
            Algorithm::Crc32 | Algorithm::Crc32c => 4,
            Algorithm::Crc64Nvme | Algorithm::Xxh64 | Algorithm::Xxh3 => 8,
            Algorithm::Md5 | Algorithm::Xxh128 => 16,
            Algorithm::Sha1 => 20,
            Algorithm::Sha256 => 32,
            Algorithm::Sha512 => 64,
        }
    }

    /// The header that carries its checksum.
    pub fn header(self) -> &'static str {
        Self::ALL.iter().find(|row| row.0 == self).map_or("", |row| row.1)
    }

    /// Its name, in small letters.
    pub fn name(self) -> &'static str {
        self.header().trim_start_matches(HEADER)
    }

    /// The CRC that it is: those of parts can be joined.
    pub(super) fn crc(self) -> Option<CrcAlgorithm> {
        match self {
            Algorithm::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
            Algorithm::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
            Algorithm::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
            _ => None,
        }
    }

    /// Whether a checksum of the parts' checksums can stand for a whole upload.
    pub(super) fn composes(self) -> bool {
        self != Algorithm::Crc64Nvme
    }
}

/// Hashes bytes as they come.
pub(super) enum Hasher {
    Crc(crc_fast::Digest, usize),
    Sha(digest::Context),
    Md5(Md5),
    Xxh64(Xxh64),
    /// With the bytes of its result.
    Xxh3(Box<Xxh3>, usize),
}

impl Hasher {
    pub fn new(algorithm: Algorithm) -> Self {
        if let Some(crc) = algorithm.crc() {
            return Hasher::Crc(crc_fast::Digest::new(crc), algorithm.size_bytes());
        }
        match algorithm {
            Algorithm::Sha256 => Hasher::Sha(digest::Context::new(&digest::SHA256)),
            Algorithm::Sha512 => Hasher::Sha(digest::Context::new(&digest::SHA512)),
            Algorithm::Md5 => Hasher::Md5(Md5::new()),
            Algorithm::Xxh64 => Hasher::Xxh64(Xxh64::new(0)),
            Algorithm::Xxh3 | Algorithm::Xxh128 => {
                Hasher::Xxh3(Box::new(Xxh3::new()), algorithm.size_bytes())
            }
            // What is left, besides the CRCs above.
            _ => Hasher::Sha(digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY)),
        }
    }

    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Crc(crc, _) => crc.update(bytes),
            Hasher::Sha(sha) => sha.update(bytes),
            Hasher::Md5(md5) => md5.update(bytes),
            Hasher::Xxh64(xxh) => xxh.update(bytes),
            Hasher::Xxh3(xxh, _) => xxh.update(bytes),
        }
    }

    /// The checksum, as headers carry it.
    pub fn finish(self) -> String {
        match self {
            Hasher::Crc(crc, size) => STANDARD.encode(&crc.finalize().to_be_bytes()[8 - size..]),
            Hasher::Sha(sha) => STANDARD.encode(sha.finish()),
            Hasher::Md5(md5) => STANDARD.encode(md5.finalize()),
            Hasher::Xxh64(xxh) => STANDARD.encode(xxh.digest().to_be_bytes()),
            Hasher::Xxh3(xxh, 8) => STANDARD.encode(xxh.digest().to_be_bytes()),
            Hasher::Xxh3(xxh, _) => STANDARD.encode(xxh.digest128().to_be_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hashes_as_its_definition_says() {
        // Of "hello world": zlib, hashlib and the reference implementations of CRC and xxHash.
        for (algorithm, wanted) in [
            (Algorithm::Crc32, "DUoRhQ=="),
            (Algorithm::Crc32c, "yZRlqg=="),
            (Algorithm::Crc64Nvme, "jSnVw/bqjr4="),
            (Algorithm::Sha1, "Kq5sNclPz7QV2+lfQIuc6R7oRu0="),
            (Algorithm::Sha256, "uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek="),
            (
                Algorithm::Sha512,
                "MJ7MSJwS1utMxA9QyQLytNDtd+5RGnx6m808qG1M2G+YndNbxf9JlnDaNCVbRbDP2DDoH2Bdz33FVC6T\
                 rpzXbw==",
            ),
            (Algorithm::Md5, "XrY7u+Ae7tCTyyK7j1rNww=="),
            (Algorithm::Xxh64, "RatnNLIeaWg="),
            (Algorithm::Xxh3, "1Eex6kDmmIs="),
            (Algorithm::Xxh128, "340J6T+HSQCpm4d1zBW2xw=="),
        ] {
            let mut hasher = Hasher::new(algorithm);
            hasher.update(b"hello ");
            hasher.update(b"world");
            assert_eq!(hasher.finish(), wanted, "{algorithm:?}");
            assert_eq!(Algorithm::of_name(&algorithm.name().to_uppercase()), Some(algorithm));
        }
    }

    #[test]
    fn the_sizes_are_those_of_the_results() {
        for (algorithm, _) in Algorithm::ALL {
            let sum = STANDARD.decode(Hasher::new(algorithm).finish()).unwrap();
            assert_eq!(sum.len(), algorithm.size_bytes(), "{algorithm:?}");
        }
    }
}

//! Protects uploads on their way to the server.
//!
//! CRC-32 (`x-amz-checksum-crc32`) costs a tenth of MD5's CPU time, and current services check it;
//! older ones refuse headers that they do not know. So it is sent until a server refuses it, and
//! never again to that bucket. Parts of the engine's uploads go without: S3 wants their sums once
//! more when the upload completes, which may happen in another process than the one that sent them,
//! and over https every record is authenticated anyway. What a gateway's client made is passed on.

use crate::Payload;
use crate::answer::Failure;
use crate::s3::config::ChecksumChoice;
use crate::s3::request::Call;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};
use penstock_base::{Error, Result, Retry};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Adds checksums to uploads, and remembers what the server thinks of them.
#[derive(Debug)]
pub(crate) struct Seal {
    choice: ChecksumChoice,
    refused: AtomicBool,
    trailers_refused: AtomicBool,
}

impl Seal {
    pub(crate) fn new(choice: ChecksumChoice) -> Self {
        Seal { choice, refused: AtomicBool::new(false), trailers_refused: AtomicBool::new(false) }
    }

    /// Whether checksums that a client made for an upload's parts are passed on: only to a service
    /// that is said to keep them. What others make of them differs too much to be found out in the
    /// middle of an upload, and must not differ between replicas.
    pub(crate) fn passes_sums(&self) -> bool {
        self.choice == ChecksumChoice::Crc32
    }

    /// The same for those that follow the body.
    pub(crate) fn passes_trailers(&self) -> bool {
        self.passes_sums() && !self.trailers_refused.load(Ordering::Relaxed)
    }

    pub(crate) fn refuse_trailers(&self) {
        self.trailers_refused.store(true, Ordering::Relaxed);
    }

    /// Adds the checksum of the payload; tells whether the server might refuse its kind.
    pub(crate) fn put<'a>(&self, call: Call<'a>) -> Result<(Call<'a>, bool)> {
        let choice = match self.choice {
            ChecksumChoice::Auto if self.refused.load(Ordering::Relaxed) => ChecksumChoice::None,
            choice => choice,
        };
        match choice {
            // What a gateway's client made of the body protects it, and S3 takes one only.
            ChecksumChoice::Auto | ChecksumChoice::Crc32 if has_sum(&call) => Ok((call, false)),
            ChecksumChoice::Auto | ChecksumChoice::Crc32 => {
                let sum = crc32_base64(&call.payload);
                let call = call.header("x-amz-checksum-crc32", &sum)?;
                Ok((call, choice == ChecksumChoice::Auto))
            }
            ChecksumChoice::Md5 => Ok((self.part(call)?, false)),
            ChecksumChoice::None => Ok((call, false)),
        }
    }

    /// Adds the checksum of one part.
    pub(crate) fn part<'a>(&self, call: Call<'a>) -> Result<Call<'a>> {
        if self.choice != ChecksumChoice::Md5 {
            return Ok(call);
        }
        let sum = md5_base64(&call.payload);
        call.header("content-md5", &sum)
    }

    /// Whether a refusal was about the checksum; if so none is sent from now on.
    pub(crate) fn learn(&self, failure: &Failure) -> bool {
        let about_headers = matches!(failure.status, 400 | 501)
            && (failure.status == 501
                || failure.message.to_ascii_lowercase().contains("checksum")
                    && failure.code != "BadDigest");
        if about_headers {
            self.refused.store(true, Ordering::Relaxed);
        }
        about_headers
    }

    /// Lets the engine send a refused upload again, this time without checksum.
    pub(crate) fn try_without(error: Error) -> Error {
        error
            .with_retry(Retry::After(Duration::ZERO))
            .with_hint("The store does not know x-amz-checksum-crc32; uploads go on without it")
    }
}

fn has_sum(call: &Call<'_>) -> bool {
    call.headers.keys().any(|name| name.as_str().starts_with("x-amz-checksum-"))
}

fn crc32_base64(payload: &Payload) -> String {
    let mut hasher = crc32fast::Hasher::new();
    for piece in &payload.0 {
        hasher.update(piece);
    }
    STANDARD.encode(hasher.finalize().to_be_bytes())
}

pub(crate) fn md5_base64(payload: &Payload) -> String {
    let mut hasher = Md5::new();
    for piece in &payload.0 {
        hasher.update(piece);
    }
    STANDARD.encode(hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::Method;

    fn failure(status: u16, code: &str, message: &str) -> Failure {
        Failure { status, code: code.into(), message: message.into(), ..Failure::default() }
    }

    #[test]
    fn sums_are_those_of_the_standards() {
        let payload = Payload(vec![Bytes::from_static(b"1234"), Bytes::from_static(b"56789")]);
        // CRC-32/ISO-HDLC check value cbf43926.
        assert_eq!(crc32_base64(&payload), STANDARD.encode([0xcb, 0xf4, 0x39, 0x26]));
        assert_eq!(md5_base64(&Payload::default()), "1B2M2Y8AsgTpgAmY7PhCfg==");
    }

    #[test]
    fn one_checksum_is_sent_and_it_is_the_clients() {
        for choice in [ChecksumChoice::Auto, ChecksumChoice::Crc32] {
            let seal = Seal::new(choice);
            let call = || Call::new(Method::PUT, "PUT", Some("k"));
            let sums = |call: Call<'_>| {
                let (call, may_be_refused) = seal.put(call).unwrap();
                let names = call.headers.keys().map(|name| name.as_str().to_string());
                (names.collect::<Vec<_>>(), may_be_refused)
            };
            let own = call().header("x-amz-checksum-sha1", "AAAA").unwrap();
            assert_eq!(sums(own), (vec!["x-amz-checksum-sha1".to_string()], false));
            assert_eq!(sums(call()).0, ["x-amz-checksum-crc32"]);
        }
    }

    #[test]
    fn refused_checksum_is_not_sent_again() {
        let seal = Seal::new(ChecksumChoice::Auto);
        let send = || seal.put(Call::new(Method::PUT, "PUT", Some("k"))).unwrap();
        assert!(send().0.headers.contains_key("x-amz-checksum-crc32"));
        assert!(!seal.learn(&failure(400, "BadDigest", "the checksum did not match")));
        assert!(!seal.learn(&failure(403, "AccessDenied", "")));
        assert!(seal.learn(&failure(501, "NotImplemented", "")));
        assert!(send().0.headers.is_empty());
    }
}

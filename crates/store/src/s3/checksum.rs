//! Protects uploads on their way to the server.
//!
//! CRC-32 (`x-amz-checksum-crc32`) costs a tenth of MD5's CPU time, and current services check it;
//! older ones refuse headers that they do not know. So it is sent until a server refuses it, and
//! never again to that bucket; a write that was refused for it goes again without it. Parts of the
//! engine's uploads go without: S3 wants their sums once more when the upload completes, which may
//! happen in another process than the one that sent them, and over https every record is
//! authenticated anyway. What a gateway's client made of an object is passed on likewise, but not
//! where the choice is another one: the gateway has compared it already.

use crate::Payload;
use crate::answer::Failure;
use crate::s3::S3Store;
use crate::s3::config::ChecksumChoice;
use crate::s3::request::{Call, Outcome};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};
use penstock_base::{Error, Kind, Result, Retry};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const PREFIX: &str = "x-amz-checksum-";
/// Behind the prefix: asks for what is kept.
const MODE: &str = "mode";

/// Adds checksums to uploads, and remembers what the server thinks of them.
#[derive(Debug)]
pub(crate) struct Seal {
    choice: ChecksumChoice,
    refused: Mutex<Refused>,
    trailers_refused: AtomicBool,
}

/// What a service does not take, by what is behind [`PREFIX`].
#[derive(Debug, Default)]
struct Refused {
    /// The same request was refused with them, and done without.
    proven: BTreeSet<String>,
    /// A body was refused with them that could not be sent again.
    guessed: BTreeSet<String>,
}

impl Seal {
    pub(crate) fn new(choice: ChecksumChoice) -> Self {
        let (refused, trailers_refused) = (Mutex::default(), AtomicBool::new(false));
        Seal { choice, refused, trailers_refused }
    }

    fn refused(&self) -> MutexGuard<'_, Refused> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_refused(&self, name: &str) -> bool {
        let refused = self.refused();
        refused.proven.contains(name) || refused.guessed.contains(name)
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

    /// Whether the checksum of this algorithm that a client made of a whole object is passed on.
    pub(crate) fn passes(&self, algorithm: &str) -> bool {
        match self.choice {
            ChecksumChoice::Crc32 => true,
            ChecksumChoice::Auto => !self.is_refused(algorithm),
            ChecksumChoice::Md5 | ChecksumChoice::None => false,
        }
    }

    /// Adds the checksum of the payload.
    pub(crate) fn put<'a>(&self, call: Call<'a>) -> Result<Call<'a>> {
        match self.choice {
            // What a gateway's client made of the body protects it, and S3 takes one only.
            ChecksumChoice::Auto | ChecksumChoice::Crc32 if has_sum(&call) => Ok(call),
            ChecksumChoice::Auto | ChecksumChoice::Crc32 if self.passes("crc32") => {
                let sum = crc32_base64(&call.payload);
                call.header("x-amz-checksum-crc32", &sum)
            }
            ChecksumChoice::Md5 => self.part(call),
            ChecksumChoice::Auto | ChecksumChoice::Crc32 | ChecksumChoice::None => Ok(call),
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

    /// Whether a write may have been refused for the checksum in its head, which may be left out.
    /// What was left out on a guess and is refused all the same was not refused for that.
    fn blames(&self, call: &Call<'_>, failure: &Failure) -> bool {
        if self.choice != ChecksumChoice::Auto || !is_about_headers(failure) {
            return false;
        }
        let may_be = has_sum(call);
        if !may_be {
            self.refused().guessed.clear();
        }
        may_be
    }

    /// The service did without these headers what it refused with them.
    fn learn(&self, call: &Call<'_>) {
        self.refused().proven.extend(names(call));
    }

    /// Leaves the checksum out from now on if a body that came in was refused for it.
    pub(crate) fn guess(&self, call: &Call<'_>, failure: &Failure) -> bool {
        let is_blamed = self.blames(call, failure);
        if is_blamed {
            self.refused().guessed.extend(names(call));
        }
        is_blamed
    }

    /// Lets the sender send such a body again, which nobody here has.
    pub(crate) fn send_again(error: Error) -> Error {
        let hint = "The store does not know checksums in x-amz-checksum headers; objects go on \
                    without them. Send this one again";
        let again = Error::new(Kind::Unavailable, "the object must be sent again");
        let again = again.with_retry(Retry::After(Duration::ZERO)).with_hint(hint);
        again.with_source(error)
    }
}

impl S3Store {
    /// Sends a write, and again without its checksum where the service does not know that.
    pub(super) async fn send_sealed(&self, call: &Call<'_>) -> Result<Outcome> {
        let outcome = self.sender.send(call).await?;
        match &outcome {
            Outcome::Refused { failure, .. } if self.seal.blames(call, failure) => {
                self.send_without(call).await
            }
            _ => Ok(outcome),
        }
    }

    /// Has the service tell an object's checksums, which it keeps to itself otherwise.
    pub(super) fn asking_checksums<'a>(&self, call: Call<'a>) -> Result<Call<'a>> {
        match self.is_gcs() || self.seal.is_refused(MODE) {
            true => Ok(call),
            false => call.header(&format!("{PREFIX}{MODE}"), "ENABLED"),
        }
    }

    /// Sends a read, and again without asking for checksums where the service does not know that.
    pub(super) async fn send_asking(&self, call: &Call<'_>) -> Result<Outcome> {
        let outcome = self.sender.send(call).await?;
        match &outcome {
            Outcome::Refused { failure, .. } if has_sum(call) && is_about_headers(failure) => {
                self.send_without(call).await
            }
            _ => Ok(outcome),
        }
    }

    async fn send_without(&self, call: &Call<'_>) -> Result<Outcome> {
        let mut plain = call.clone();
        for name in names(call) {
            plain.headers.remove(format!("{PREFIX}{name}"));
        }
        let outcome = self.sender.send(&plain).await?;
        if matches!(outcome, Outcome::Done(_)) {
            self.seal.learn(call);
        }
        Ok(outcome)
    }
}

/// What a request has behind [`PREFIX`].
fn names(call: &Call<'_>) -> impl Iterator<Item = String> {
    call.headers.keys().filter_map(|name| name.as_str().strip_prefix(PREFIX).map(str::to_string))
}

fn has_sum(call: &Call<'_>) -> bool {
    names(call).next().is_some()
}

/// Whether a refusal is that of a header which the service does not know, and not that of what the
/// header says: bytes that are other ones must not go again without the checksum that told it.
fn is_about_headers(failure: &Failure) -> bool {
    let message = failure.message.to_ascii_lowercase();
    let tells_others = failure.code == "BadDigest"
        || failure.code.to_ascii_lowercase().contains("mismatch")
        || message.contains("match");
    match failure.status {
        _ if failure.is_not_implemented() => true,
        400 => message.contains("checksum") && !tells_others,
        _ => false,
    }
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

    fn call<'a>() -> Call<'a> {
        Call::new(Method::PUT, "PUT", Some("k"))
    }

    fn sent(seal: &Seal, call: Call<'_>) -> Vec<String> {
        let call = seal.put(call).unwrap();
        call.headers.keys().map(|name| name.as_str().to_string()).collect()
    }

    #[test]
    fn one_checksum_is_sent_and_it_is_the_clients() {
        for choice in [ChecksumChoice::Auto, ChecksumChoice::Crc32] {
            let seal = Seal::new(choice);
            let own = call().header("x-amz-checksum-sha1", "AAAA").unwrap();
            assert_eq!(sent(&seal, own), ["x-amz-checksum-sha1"]);
            assert_eq!(sent(&seal, call()), ["x-amz-checksum-crc32"]);
        }
    }

    #[test]
    fn what_a_client_made_goes_where_the_choice_is_no_other() {
        for (choice, passes, own) in [
            (ChecksumChoice::Auto, true, &["x-amz-checksum-crc32"][..]),
            (ChecksumChoice::Crc32, true, &["x-amz-checksum-crc32"]),
            (ChecksumChoice::Md5, false, &["content-md5"]),
            (ChecksumChoice::None, false, &[]),
        ] {
            let seal = Seal::new(choice);
            assert_eq!(seal.passes("sha1"), passes, "{choice:?}");
            assert_eq!(sent(&seal, call()), own, "{choice:?}");
        }
    }

    #[test]
    fn only_an_unknown_header_is_left_out() {
        for (status, code, message, is_about) in [
            (501, "NotImplemented", "", true),
            (501, "", "", true),
            (400, "NotImplemented", "what is this?", true),
            (400, "InvalidRequest", "x-amz-checksum-crc32: unsupported Checksum header", true),
            (400, "InvalidArgument", "what is this?", false),
            (400, "BadDigest", "The CRC32 is not the calculated checksum", false),
            (400, "XAmzContentChecksumMismatch", "not the checksum that was computed", false),
            (400, "InvalidRequest", "the checksum did not match", false),
            (403, "AccessDenied", "checksum", false),
            (503, "SlowDown", "", false),
        ] {
            let failure = failure(status, code, message);
            assert_eq!(is_about_headers(&failure), is_about, "{status} {code} {message}");
        }
    }

    #[test]
    fn each_algorithm_is_left_out_for_itself_and_only_of_one_choice() {
        let unknown = failure(501, "NotImplemented", "");
        let sealed = |name: &str| call().header(&format!("{PREFIX}{name}"), "AAAA").unwrap();
        let seal = Seal::new(ChecksumChoice::Auto);
        assert!(seal.blames(&sealed("sha1"), &unknown));
        assert!(seal.passes("sha1"), "nothing is proved yet");
        seal.learn(&sealed("sha1"));
        assert!(!seal.passes("sha1") && seal.passes("crc32"));
        assert_eq!(sent(&seal, call()), ["x-amz-checksum-crc32"]);
        assert!(seal.guess(&sealed("crc32"), &unknown));
        assert!(sent(&seal, call()).is_empty());
        // The same body came again, and was refused again: for something else.
        assert!(!seal.guess(&call(), &unknown));
        assert!(seal.passes("crc32") && !seal.passes("sha1"));
        let told = Seal::new(ChecksumChoice::Crc32);
        assert!(!told.blames(&sealed("crc32"), &unknown), "the operator knows better");
    }
}

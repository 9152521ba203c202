//! Checksums of an upload's parts, passed on to a service that keeps them.
//!
//! What the client made is sent as it came: in the head, or behind the body as a trailer of an
//! aws-chunked one. A service that keeps it says so in its answer and compares by itself when the
//! upload is completed; where it does not, the part's tag tells it ([`crate::sums`]).

use crate::s3::S3Store;
use crate::s3::request::{Call, Outcome};
use crate::streaming::Inflow;
use crate::sums::{Sum, overheard, sum_of_notes, tag_with_sum};
use crate::{Part, PutOptions, UploadId, notes};
use ::http::{HeaderMap, Method};
use bytes::Bytes;
use penstock_base::{Error, Kind, Result, Retry};
use std::collections::VecDeque;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Bytes of a chunk: the least that S3 takes is 8 KiB.
const CHUNK_BYTES: u64 = 64 << 10;
/// Characters of each algorithm's checksum in base64.
const VALUE_CHARS: [(&str, usize); 10] = [
    ("crc32", 8),
    ("crc32c", 8),
    ("crc64nvme", 12),
    ("xxhash64", 12),
    ("xxhash3", 12),
    ("md5", 24),
    ("xxhash128", 24),
    ("sha1", 28),
    ("sha256", 44),
    ("sha512", 88),
];

fn value_chars(name: &str) -> Option<usize> {
    VALUE_CHARS.iter().find(|row| row.0 == name).map(|row| row.1)
}

fn header(name: &str) -> String {
    format!("x-amz-checksum-{name}")
}

/// A request for one part.
pub(super) fn part_call<'a>(key: &'a str, upload: &UploadId, number: u32) -> Call<'a> {
    Call::new(Method::PUT, "upload part", Some(key))
        .query("partNumber", number.to_string())
        .query("uploadId", &upload.0)
}

/// The tag of a part: the service's own if its answer says that it keeps the checksum.
pub(super) fn tag(etag: &str, sum: Option<&Sum>, answer: &HeaderMap) -> String {
    tag_with_sum(etag, sum.filter(|sum| !is_kept(sum, answer)))
}

fn is_kept((name, value): &Sum, answer: &HeaderMap) -> bool {
    answer.get(header(name)).is_some_and(|kept| kept.as_bytes() == value.as_bytes())
}

impl S3Store {
    /// Adds a part's checksum to its request.
    pub(super) fn with_sum<'a>(&self, call: Call<'a>, sum: Option<&Sum>) -> Result<Call<'a>> {
        match sum.filter(|_| self.seal.passes_sums()) {
            Some((name, value)) => call.header(&header(name), value),
            None => Ok(call),
        }
    }

    /// Adds the algorithm and type that an upload begins with.
    pub(super) fn with_kind<'a>(&self, call: Call<'a>, options: &PutOptions) -> Result<Call<'a>> {
        let note = options.metadata.iter().find(|(name, _)| name == notes::UPLOAD_SUMS);
        let kind = note.and_then(|(_, text)| text.split_once(':'));
        match kind.filter(|_| self.seal.passes_sums()) {
            Some((algorithm, kind)) => call
                .header(&header("algorithm"), &algorithm.to_ascii_uppercase())?
                .header(&header("type"), kind),
            None => Ok(call),
        }
    }

    /// Adds the checksum of the whole that a completion tells.
    pub(super) fn with_whole<'a>(&self, call: Call<'a>, options: &PutOptions) -> Result<Call<'a>> {
        let whole = sum_of_notes(options.metadata.clone());
        // One of the parts' checksums follows from them.
        match whole.filter(|(_, value)| !value.contains('-') && self.seal.passes_sums()) {
            Some((name, value)) => {
                call.header(&header(&name), &value)?.header(&header("type"), "FULL_OBJECT")
            }
            None => Ok(call),
        }
    }

    /// Sends a part whose body is still coming in.
    pub(super) async fn flow_part(
        &self,
        key: &str,
        upload: &UploadId,
        number: u32,
        body: Box<dyn Inflow>,
    ) -> Result<Part> {
        let size_bytes = body.size_bytes();
        let (mut body, heard) = overheard(body);
        let mut call = part_call(key, upload, number);
        let mut is_framed = false;
        match body.checksum() {
            Some((name, Some(value))) => call = self.with_sum(call, Some(&(name, value)))?,
            Some((name, None)) if self.seal.passes_trailers() => {
                if let Some(chars) = value_chars(&name) {
                    call = framed_call(call, &name, size_bytes)?;
                    body = Box::new(Framed::new(body, &name, chars));
                    is_framed = true;
                }
            }
            _ => {}
        }
        let response = match self.sender.send_flow(&call, body).await? {
            Outcome::Done(response) => response,
            Outcome::Refused { failure, .. } => {
                let is_unknown = is_framed && failure.is_not_implemented();
                let error = self.sender.refusal(&call, failure);
                return Err(if is_unknown { self.without_trailers(error) } else { error });
            }
        };
        let answer = response.headers.clone();
        let (etag, _) = self.written(&call, response).await?;
        let sum = heard.sum();
        if is_framed && !sum.as_ref().is_some_and(|sum| is_kept(sum, &answer)) {
            // It may have taken the chunks' framing for bytes. Nobody knows the tag of that part.
            let why = "the store does not say that it understood a checksum behind the body";
            return Err(self.without_trailers(self.named(&call, Error::new(Kind::Corrupt, why))));
        }
        Ok(Part { number, etag: tag(&etag.0, sum.as_ref(), &answer), size_bytes })
    }

    /// From now on bodies go without trailers; this one must be sent again.
    fn without_trailers(&self, error: Error) -> Error {
        self.seal.refuse_trailers();
        let hint = "The store does not know checksums behind a body; parts go on without them. \
                    Send this part again";
        let again = Error::new(Kind::Unavailable, "the part must be sent again");
        let again = again.with_retry(Retry::After(Duration::ZERO)).with_hint(hint);
        again.with_source(error)
    }
}

fn framed_call<'a>(call: Call<'a>, name: &str, size_bytes: u64) -> Result<Call<'a>> {
    call.header("content-encoding", "aws-chunked")?
        .header("x-amz-decoded-content-length", &size_bytes.to_string())?
        .header("x-amz-trailer", &header(name))?
        .header("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER")
}

/// The elements of a completion's list that tell parts' checksums, one for each part or empty.
pub(super) fn named_elements(options: &PutOptions) -> Vec<String> {
    let note = options.metadata.iter().find(|(name, _)| name == notes::NAMED_SUMS);
    let Some((name, list)) = note.and_then(|(_, text)| text.split_once(':')) else {
        return Vec::new();
    };
    let element = |value: &str| match value {
        "" => String::new(),
        value => {
            let tag = format!("Checksum{}", name.to_ascii_uppercase());
            format!("<{tag}>{}</{tag}>", crate::xml::escape(value))
        }
    };
    list.split(',').map(element).collect()
}

/// The checksum that an element of a list of parts tells.
pub(super) fn sum_of_element(element: &str, text: &str) -> Option<Sum> {
    let name = element.strip_prefix("Checksum")?.to_ascii_lowercase();
    value_chars(&name).map(|_| (name, text.trim().to_string()))
}

/// A body in unsigned chunks, its checksum behind them.
#[derive(Debug)]
struct Framed {
    body: Box<dyn Inflow>,
    name: String,
    size_bytes: u64,
    /// Bytes of the body that are still to come, and how many of them belong to this chunk.
    left: u64,
    chunk_left: u64,
    ready: VecDeque<Bytes>,
    has_ended: bool,
}

impl Framed {
    fn new(body: Box<dyn Inflow>, name: &str, value_chars: usize) -> Self {
        let left = body.size_bytes();
        let size_bytes = framed_size(left) + (header(name).len() + 1 + value_chars + 4) as u64;
        let (ready, name) = (VecDeque::new(), name.to_string());
        Framed { body, name, size_bytes, left, chunk_left: 0, ready, has_ended: false }
    }

    /// Cuts a piece where chunks meet.
    fn frame(&mut self, mut piece: Bytes) {
        while !piece.is_empty() {
            if self.chunk_left == 0 {
                self.chunk_left = self.left.min(CHUNK_BYTES);
                self.ready.push_back(format!("{:x}\r\n", self.chunk_left).into());
            }
            let most = usize::try_from(self.chunk_left).unwrap_or(usize::MAX).max(1);
            let bytes = piece.split_to(piece.len().min(most));
            self.left = self.left.saturating_sub(bytes.len() as u64);
            self.chunk_left = self.chunk_left.saturating_sub(bytes.len() as u64);
            self.ready.push_back(bytes);
            if self.chunk_left == 0 {
                self.ready.push_back(Bytes::from_static(b"\r\n"));
            }
        }
    }
}

/// Chunks of so many bytes, without what follows the last one's head.
fn framed_size(size_bytes: u64) -> u64 {
    let framing = |bytes: u64| format!("{bytes:x}").len() as u64 + 4;
    let (whole, rest) = (size_bytes / CHUNK_BYTES, size_bytes % CHUNK_BYTES);
    let last = if rest > 0 { framing(rest) } else { 0 };
    size_bytes + whole * framing(CHUNK_BYTES) + last + "0\r\n".len() as u64
}

impl Inflow for Framed {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(piece)));
            }
            if self.has_ended {
                return Poll::Ready(None);
            }
            match ready!(self.body.poll_piece(context)) {
                Some(Ok(piece)) => self.frame(piece),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    self.has_ended = true;
                    let value = sum_of_notes(self.body.late_metadata()).map(|sum| sum.1);
                    let value = value.unwrap_or_default();
                    let end = format!("0\r\n{}:{value}\r\n\r\n", header(&self.name));
                    self.ready.push_back(end.into());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streaming::collect;
    use proptest::prelude::*;

    #[derive(Debug)]
    struct Pieces(VecDeque<Bytes>, u64);

    impl Inflow for Pieces {
        fn size_bytes(&self) -> u64 {
            self.1
        }

        fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
            Poll::Ready(self.0.pop_front().map(Ok))
        }

        fn late_metadata(&self) -> Vec<(String, String)> {
            vec![("@checksum-crc32".into(), "DUoRhQ==".into())]
        }
    }

    /// What a reader makes of the chunks.
    fn unframed(mut text: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let mut bytes = Vec::new();
        loop {
            let end = text.windows(2).position(|pair| pair == b"\r\n").unwrap();
            let size = std::str::from_utf8(&text[..end]).unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            text = &text[end + 2..];
            if size == 0 {
                return (bytes, text.to_vec());
            }
            bytes.extend_from_slice(&text[..size]);
            assert_eq!(&text[size..size + 2], b"\r\n");
            text = &text[size + 2..];
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn framed_bodies_have_the_size_that_they_announce(
            sizes in prop::collection::vec(0usize..150_000, 0..5),
        ) {
            let pieces: VecDeque<Bytes> =
                sizes.iter().zip(1u8..).map(|(size, byte)| vec![byte; *size].into()).collect();
            let whole: Vec<u8> = pieces.iter().flatten().copied().collect();
            let body = Box::new(Pieces(pieces, whole.len() as u64));
            let mut framed = Framed::new(body, "crc32", 8);
            let announced = framed.size_bytes();
            let text = futures_util::FutureExt::now_or_never(collect(&mut framed));
            let text = text.unwrap().unwrap();
            prop_assert_eq!(text.len() as u64, announced);
            let (bytes, trailer) = unframed(&text);
            prop_assert!(bytes == whole);
            prop_assert_eq!(trailer, b"x-amz-checksum-crc32:DUoRhQ==\r\n\r\n");
        }
    }

    #[test]
    fn a_kept_checksum_is_not_in_the_tag() {
        let sum = ("crc32".to_string(), "DUoRhQ==".to_string());
        let mut answer = HeaderMap::new();
        assert_eq!(tag("e", Some(&sum), &answer), "e-crc32-0d4a1185");
        answer.insert("x-amz-checksum-crc32", "DUoRhQ==".parse().unwrap());
        assert_eq!(tag("e", Some(&sum), &answer), "e");
        assert_eq!(tag("e", None, &answer), "e");
    }

    #[test]
    fn a_completion_names_what_it_was_told() {
        let note = (notes::NAMED_SUMS.to_string(), "crc32c:a=,,b".to_string());
        let options = PutOptions { metadata: vec![note], ..Default::default() };
        let tags =
            ["<ChecksumCRC32C>a=</ChecksumCRC32C>", "", "<ChecksumCRC32C>b</ChecksumCRC32C>"];
        assert_eq!(named_elements(&options), tags);
        assert_eq!(sum_of_element("ChecksumSHA1", "x"), Some(("sha1".into(), "x".into())));
        assert_eq!(sum_of_element("ChecksumType", "COMPOSITE"), None);
    }
}

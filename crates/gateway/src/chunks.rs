//! Where the chunks of an aws-chunked body end: the last one is empty, and a body without it was
//! cut, as is one without the signed trailer that was announced. Reads the sizes only; what they
//! frame, and who signed it, is s3s's to judge. Pure.
//!
//! Source: "Signature Calculations for the Authorization Header: Transferring Payload in Multiple
//! Chunks", Amazon S3 API Reference.

use http::HeaderMap;

/// What `x-amz-content-sha256` begins with where the body is in chunks.
const STREAMING: &str = "STREAMING-";
/// The same where a signed trailer follows them, which s3s judges only if it is there.
const SIGNED_TRAILER: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";
/// Bytes of the line end behind the last chunk, which may be all that follows where no trailer is.
const LINE_END_BYTES: u8 = 2;
/// Hexadecimal digits of the largest size that fits.
const DIGITS_MAX: u32 = 16;

/// The chunks of a body that is passing.
#[derive(Clone, Debug)]
pub struct Chunks {
    at: At,
    has_trailer: bool,
}

/// Where in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// In the size of a chunk.
    Size { bytes: u64, digits: u32 },
    /// Behind it, in its line.
    Line { bytes: u64 },
    /// In the data, or the line end behind it.
    Data { left_bytes: u64 },
    /// Past the last one, with so many bytes behind it; more than are counted are as many.
    Over { behind_bytes: u8 },
    /// In what is no chunk, of which s3s says so.
    Lost,
}

const NEXT: At = At::Size { bytes: 0, digits: 0 };

/// What is missing of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The last chunk.
    Chunks,
    /// The signed trailer behind it.
    Trailer,
}

impl Chunks {
    /// Of a request with this head; `None` where its body is not in chunks.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get("x-amz-content-sha256")?;
        let value = value.as_bytes();
        let has_trailer = value == SIGNED_TRAILER.as_bytes();
        value.starts_with(STREAMING.as_bytes()).then_some(Chunks { at: NEXT, has_trailer })
    }

    /// Goes on by what came.
    pub fn pass(&mut self, mut piece: &[u8]) {
        while let Some((&byte, rest)) = piece.split_first() {
            piece = rest;
            self.at = match self.at {
                At::Size { bytes, digits } => match (byte as char).to_digit(16) {
                    Some(digit) if digits < DIGITS_MAX => {
                        At::Size { bytes: bytes << 4 | u64::from(digit), digits: digits + 1 }
                    }
                    None if digits > 0 && matches!(byte, b';' | b'\r') => At::Line { bytes },
                    _ => At::Lost,
                },
                At::Line { bytes } if byte != b'\n' => At::Line { bytes },
                At::Line { bytes: 0 } => At::Over { behind_bytes: 0 },
                At::Line { bytes } => At::Data { left_bytes: bytes.saturating_add(2) },
                At::Data { left_bytes } => {
                    let passed = left_bytes.min(rest.len() as u64 + 1);
                    piece = rest.get(passed as usize - 1..).unwrap_or_default();
                    match left_bytes - passed {
                        0 => NEXT,
                        left_bytes => At::Data { left_bytes },
                    }
                }
                At::Over { behind_bytes } => {
                    let passed = u8::try_from(rest.len()).unwrap_or(u8::MAX).saturating_add(1);
                    let behind_bytes = behind_bytes.saturating_add(passed);
                    self.at = At::Over { behind_bytes: behind_bytes.min(LINE_END_BYTES + 1) };
                    return;
                }
                At::Lost => return,
            };
        }
    }

    /// What has not come yet, as far as anything can be said.
    pub fn missing(&self) -> Option<Missing> {
        match self.at {
            At::Over { behind_bytes } if self.has_trailer && behind_bytes <= LINE_END_BYTES => {
                Some(Missing::Trailer)
            }
            At::Over { .. } | At::Lost => None,
            _ => Some(Missing::Chunks),
        }
    }

    /// Whether all came, or nothing can be said.
    pub fn are_over(&self) -> bool {
        self.missing().is_none()
    }
}

/// What a fuzzer feeds: wherever it is cut in two, the answer is the same.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(input: &[u8]) {
    for has_trailer in [false, true] {
        let begun = Chunks { at: NEXT, has_trailer };
        let mut whole = begun.clone();
        whole.pass(input);
        let (head, tail) = input.split_at(input.len() / 2);
        let mut halves = begun;
        halves.pass(head);
        assert!(!halves.are_over() || whole.are_over(), "chunks that go on past the last");
        halves.pass(tail);
        assert_eq!(halves.at, whole.at, "another place by another cut");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn framed(sizes: &[usize], extension: &str) -> Vec<u8> {
        let chunk = |size: &usize| {
            let data = "0\r\n".repeat(*size).into_bytes();
            [format!("{size:X}{extension}\r\n").as_bytes(), &data[..*size], b"\r\n"].concat()
        };
        sizes.iter().flat_map(chunk).collect()
    }

    fn after(pieces: &[&[u8]]) -> Chunks {
        let mut chunks = Chunks { at: NEXT, has_trailer: false };
        pieces.iter().for_each(|piece| chunks.pass(piece));
        chunks
    }

    #[test]
    fn only_a_streamed_body_is_in_chunks() {
        let of = |value: &'static str| {
            let name = http::HeaderName::from_static("x-amz-content-sha256");
            Chunks::of(&HeaderMap::from_iter([(name, value.parse().unwrap())])).is_some()
        };
        assert!(
            of("STREAMING-AWS4-HMAC-SHA256-PAYLOAD") && of("STREAMING-UNSIGNED-PAYLOAD-TRAILER")
        );
        assert!(!of("UNSIGNED-PAYLOAD"));
        assert!(Chunks::of(&HeaderMap::new()).is_none());
    }

    #[test]
    fn what_is_no_chunk_is_left_to_others() {
        for odd in ["\r\n", "g\r\n", ";x\r\n", "00000000000000000\r\n"] {
            assert_eq!(after(&[odd.as_bytes()]).at, At::Lost, "{odd:?}");
        }
        assert_eq!(after(&[b"ffffffffffffffff\r\n"]).at, At::Data { left_bytes: u64::MAX });
    }

    #[test]
    fn a_signed_trailer_has_to_follow() {
        let missing = |kind: &'static str, behind: &[u8]| {
            let name = http::HeaderName::from_static("x-amz-content-sha256");
            let headers = HeaderMap::from_iter([(name, kind.parse().unwrap())]);
            let mut chunks = Chunks::of(&headers).unwrap();
            chunks.pass(b"0;chunk-signature=a\r\n");
            behind.chunks(1).for_each(|byte| chunks.pass(byte));
            chunks.missing()
        };
        for behind in [&b""[..], b"\r", b"\r\n"] {
            assert_eq!(missing(SIGNED_TRAILER, behind), Some(Missing::Trailer), "{behind:?}");
            assert_eq!(missing("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", behind), None);
            assert_eq!(missing("STREAMING-UNSIGNED-PAYLOAD-TRAILER", behind), None);
        }
        assert_eq!(missing(SIGNED_TRAILER, b"\r\nx"), None, "s3s's to judge");
    }

    proptest! {
        #[test]
        fn they_are_over_with_the_empty_one_and_not_before(
            sizes in prop::collection::vec(1usize..400, 0..6),
            is_signed: bool,
            cut in 0usize..4096,
        ) {
            let signature = format!(";chunk-signature={}", "0".repeat(64));
            let extension = if is_signed { signature } else { String::new() };
            let cut_body = framed(&sizes, &extension);
            let cut = cut.min(cut_body.len());
            let chunks = after(&[&cut_body[..cut], &cut_body[cut..]]);
            prop_assert_eq!(chunks.at, NEXT);
            prop_assert!(!chunks.are_over());
            let trailer = b"x-amz-checksum-crc32:a\r\n".to_vec();
            let whole = [cut_body, framed(&[0], &extension), trailer].concat();
            prop_assert!(after(&[&whole[..cut], &whole[cut..]]).are_over());
            prop_assert!(after(&whole.chunks(1).collect::<Vec<_>>()).are_over());
        }
    }
}

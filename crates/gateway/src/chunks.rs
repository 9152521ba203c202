//! Where the chunks of an aws-chunked body end: the last one is empty, and a body without it was
//! cut. Reads the sizes only; what they frame, and who signed it, is s3s's to judge. Pure.
//!
//! Source: "Signature Calculations for the Authorization Header: Transferring Payload in Multiple
//! Chunks", Amazon S3 API Reference.

use http::HeaderMap;

/// What `x-amz-content-sha256` begins with where the body is in chunks.
const STREAMING: &str = "STREAMING-";
/// Hexadecimal digits of the largest size that fits.
const DIGITS_MAX: u32 = 16;

/// The chunks of a body that is passing.
#[derive(Clone, Debug)]
pub struct Chunks(At);

/// Where in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// In the size of a chunk.
    Size { bytes: u64, digits: u32 },
    /// Behind it, in its line.
    Line { bytes: u64 },
    /// In the data, or the line end behind it.
    Data { left_bytes: u64 },
    /// Past the last one.
    Over,
    /// In what is no chunk, of which s3s says so.
    Lost,
}

const NEXT: At = At::Size { bytes: 0, digits: 0 };

impl Chunks {
    /// Of a request with this head; `None` where its body is not in chunks.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get("x-amz-content-sha256")?;
        value.as_bytes().starts_with(STREAMING.as_bytes()).then_some(Chunks(NEXT))
    }

    /// Goes on by what came.
    pub fn pass(&mut self, mut piece: &[u8]) {
        while let Some((&byte, rest)) = piece.split_first() {
            piece = rest;
            self.0 = match self.0 {
                At::Size { bytes, digits } => match (byte as char).to_digit(16) {
                    Some(digit) if digits < DIGITS_MAX => {
                        At::Size { bytes: bytes << 4 | u64::from(digit), digits: digits + 1 }
                    }
                    None if digits > 0 && matches!(byte, b';' | b'\r') => At::Line { bytes },
                    _ => At::Lost,
                },
                At::Line { bytes } if byte != b'\n' => At::Line { bytes },
                At::Line { bytes: 0 } => At::Over,
                At::Line { bytes } => At::Data { left_bytes: bytes.saturating_add(2) },
                At::Data { left_bytes } => {
                    let passed = left_bytes.min(rest.len() as u64 + 1);
                    piece = rest.get(passed as usize - 1..).unwrap_or_default();
                    match left_bytes - passed {
                        0 => NEXT,
                        left_bytes => At::Data { left_bytes },
                    }
                }
                At::Over | At::Lost => return,
            };
        }
    }

    /// Whether the last one came, or nothing can be said.
    pub fn are_over(&self) -> bool {
        matches!(self.0, At::Over | At::Lost)
    }
}

/// What a fuzzer feeds: wherever it is cut in two, the answer is the same.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(input: &[u8]) {
    let mut whole = Chunks(NEXT);
    whole.pass(input);
    let (head, tail) = input.split_at(input.len() / 2);
    let mut halves = Chunks(NEXT);
    halves.pass(head);
    assert!(!halves.are_over() || whole.are_over(), "chunks that go on past the last");
    halves.pass(tail);
    assert_eq!(halves.0, whole.0, "another place by another cut");
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
        let mut chunks = Chunks(NEXT);
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
            assert_eq!(after(&[odd.as_bytes()]).0, At::Lost, "{odd:?}");
        }
        assert_eq!(after(&[b"ffffffffffffffff\r\n"]).0, At::Data { left_bytes: u64::MAX });
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
            prop_assert_eq!(chunks.0, NEXT);
            prop_assert!(!chunks.are_over());
            let trailer = b"x-amz-checksum-crc32:a\r\n".to_vec();
            let whole = [cut_body, framed(&[0], &extension), trailer].concat();
            prop_assert!(after(&[&whole[..cut], &whole[cut..]]).are_over());
            prop_assert!(after(&whole.chunks(1).collect::<Vec<_>>()).are_over());
        }
    }
}

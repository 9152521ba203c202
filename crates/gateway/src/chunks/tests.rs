use super::tests_only::parsed;
use super::*;
use proptest::prelude::*;
use std::future::poll_fn;
use std::pin::Pin;

fn framed(sizes: &[usize], extension: &str) -> Vec<u8> {
    let chunk = |size: &usize| {
        let data = "0\r\n".repeat(*size).into_bytes();
        [format!("{size:X}{extension}\r\n").as_bytes(), &data[..*size], b"\r\n"].concat()
    };
    sizes.iter().flat_map(chunk).collect()
}

fn data(sizes: &[usize]) -> Vec<u8> {
    sizes.iter().flat_map(|size| "0\r\n".repeat(*size).into_bytes()[..*size].to_vec()).collect()
}

#[test]
fn only_a_streamed_body_is_in_chunks() {
    let of = |value: &'static str| {
        let name = HeaderName::from_static("x-amz-content-sha256");
        Kind::of(&HeaderMap::from_iter([(name, value.parse().unwrap())]))
    };
    assert_eq!(of("STREAMING-UNSIGNED-PAYLOAD-TRAILER"), Some(Kind::Unsigned));
    assert_eq!(of(SIGNED), Some(Kind::Signed { has_trailer: false }));
    assert_eq!(of(SIGNED_TRAILER), Some(Kind::Signed { has_trailer: true }));
    // s3s says that it does not know this one.
    assert_eq!(of("STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD"), None);
    assert_eq!(of("UNSIGNED-PAYLOAD"), None);
    assert_eq!(Kind::of(&HeaderMap::new()), None);
}

#[test]
fn what_is_no_chunk_is_refused() {
    let long = format!("5;{}\r\nhello\r\n0\r\n", "x".repeat(LINE_BYTES_MAX));
    let behind = format!("0\r\na:{}\r\n", "x".repeat(TRAILER_BYTES_MAX));
    let lines = format!("0\r\n{}", "a:b\r\n".repeat(TRAILER_LINES_MAX + 1));
    let texts = ["\r\n", "g\r\n", ";x\r\n", "+5\r\nhello\r\n0\r\n", "00000000000000000\r\n", "5\n"];
    for odd in texts.into_iter().chain(["5\r\nhelloo\r\n0\r\n", "5\r\nhello\n0\r\n", "0\r\nno"]) {
        assert_eq!(parsed(&[odd.as_bytes()]), Err(Fault::Malformed), "{odd:?}");
    }
    for odd in [long, behind, lines] {
        assert_eq!(parsed(&[odd.as_bytes()]), Err(Fault::Malformed));
    }
}

#[test]
fn a_line_may_say_more_than_its_size() {
    for extension in ["", ";", ";note=1", ";chunk-signature=ab", ";note;chunk-signature=ab"] {
        let body = [framed(&[5], extension), framed(&[0], extension)].concat();
        let (found, signatures, _) = parsed(&[&body]).unwrap();
        assert_eq!(found, data(&[5]), "{extension}");
        let signature = extension.contains("signature").then(|| "ab".to_string());
        assert_eq!(signatures, [signature.clone(), signature], "{extension}");
    }
}

#[test]
fn trailers_are_read_in_every_form() {
    let fields = vec![("a".to_string(), "1".to_string()), ("b".to_string(), "2 3".to_string())];
    for text in ["A: 1\r\nb:2 3\r\n\r\n", "b:2 3\na:1\n", "\r\nb:2 3\r\na:1", "a:\t1 \r\nB:2 3"] {
        let body = format!("0\r\n{text}\r\nX-Amz-Trailer-Signature: ff\r\n");
        let (_, _, trailer) = parsed(&[body.as_bytes()]).unwrap();
        assert_eq!(trailer.fields, fields, "{text:?}");
        assert_eq!(trailer.signature.as_deref(), Some("ff"), "{text:?}");
        assert_eq!(trailer.canonical(), "a:1\nb:2 3\n");
        assert_eq!(trailer.headers().unwrap()["b"], "2 3");
    }
    assert_eq!(parsed(&[b"0\r\n\r\n"]).unwrap().2, Trailer::default());
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
        let begun = parsed(&[&cut_body[..cut], &cut_body[cut..]]);
        prop_assert_eq!(begun, Err(Fault::NoLastChunk));
        let trailer = b"x-amz-checksum-crc32:a\r\n".to_vec();
        let whole = [cut_body, framed(&[0], &extension), trailer].concat();
        let halves = parsed(&[&whole[..cut], &whole[cut..]]).unwrap();
        prop_assert_eq!(&halves.0, &data(&sizes));
        prop_assert_eq!(&halves.2.fields[0].1, "a");
        prop_assert_eq!(&parsed(&whole.chunks(1).collect::<Vec<_>>()).unwrap(), &halves);
    }

    /// A chunk is held nowhere: as much goes on as came of it.
    #[test]
    fn what_has_come_of_a_chunk_is_passed_on(size in 1u64..1 << 60, come in 1usize..5000) {
        let mut input = Bytes::from(format!("{size:x}\r\n{}", "x".repeat(come)));
        let mut frames = Frames::default();
        let chunk = Event::Chunk { is_last: false, signature: None };
        prop_assert_eq!(frames.next(&mut input), Ok(Some(chunk)));
        let length = size.min(come as u64);
        match frames.next(&mut input) {
            Ok(Some(Event::Data { bytes, ends_chunk })) => {
                prop_assert_eq!(bytes.len() as u64, length);
                prop_assert_eq!(ends_chunk, length == size);
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }
}

/// Each piece would hold the frames that came with it, a thousand bytes for one.
#[tokio::test]
async fn small_pieces_are_passed_on_together() {
    use super::body::{Trailers, Unchunked};
    use http_body::Body as _;
    let note = format!(";{}", "x".repeat(LINE_BYTES_MAX - 10));
    let sizes = [vec![1; 50], vec![10_000, 1, 10_000], vec![1; 50]].concat();
    let body = [framed(&sizes, &note), framed(&[0], "")].concat();
    let mut body = Unchunked::new(
        Body::from(Bytes::from(body)),
        Kind::Unsigned,
        None,
        Trailers::default(),
        false,
    );
    let mut lengths = Vec::new();
    let mut found = Vec::new();
    while let Some(frame) = poll_fn(|it| Pin::new(&mut body).poll_frame(it)).await {
        let piece = frame.unwrap().into_data().unwrap();
        lengths.push(piece.len());
        found.extend_from_slice(&piece);
    }
    assert_eq!(lengths, [50, 10_000, 1, 10_000, 50]);
    assert_eq!(found, data(&sizes));
}

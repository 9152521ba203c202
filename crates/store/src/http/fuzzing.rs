//! Bodies for a fuzzer: heads and chunked bodies.

use super::chunked::ChunkDecoder;
use super::head::{framing, keeps_alive, parse_head};
use http::Method;

/// A head is the same, however much follows it.
pub(crate) fn head(input: &[u8]) {
    let Ok(Some((head, len))) = parse_head(input) else { return };
    assert!(len <= input.len(), "a head of more bytes than there are");
    let again = parse_head(&input[..len]);
    assert!(
        matches!(&again, Ok(Some((same, size))) if *size == len && same.headers == head.headers),
        "a head that depends on what follows it"
    );
    for method in [Method::GET, Method::HEAD, Method::PUT] {
        if let Ok(framing) = framing(&method, &head) {
            keeps_alive(&head, framing);
        }
    }
}

/// A chunked body is the same, in whatever pieces it arrives; the first byte says in which.
pub(crate) fn chunked(input: &[u8]) {
    let Some((step, input)) = input.split_first() else { return };
    let whole = decode(&[input]);
    let pieces: Vec<&[u8]> = input.chunks(usize::from(*step).max(1)).collect();
    assert_eq!(whole, decode(&pieces), "a body that depends on its pieces");
}

/// The data and whether the end was reached; `None` for what is no chunked body.
fn decode(pieces: &[&[u8]]) -> Option<(Vec<u8>, bool)> {
    let (mut decoder, mut data) = (ChunkDecoder::new(), Vec::new());
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() && !decoder.is_done() {
            let used = match decoder.data_left() {
                0 => decoder.feed(rest).ok()?,
                left => {
                    let count = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    data.extend_from_slice(&rest[..count]);
                    decoder.took(count as u64);
                    count
                }
            };
            rest = &rest[used..];
        }
    }
    Some((data, decoder.is_done()))
}

/// A proxy's URL, and who does not go through it.
pub(crate) fn proxy(input: &[u8]) {
    super::proxy::fuzz(&String::from_utf8_lossy(input));
}

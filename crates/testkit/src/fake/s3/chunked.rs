//! The `aws-chunked` coding: chunks with or without signatures, trailers behind them.

use super::super::codec::hex;
use super::super::digest::{hmac, sha256};
use super::super::refusal::Refusal;
use super::super::vault::Lines;
use super::auth::{PayloadRule, Signature};
use bytes::Bytes;

/// SHA-256 of nothing.
const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// A decoded body: its pieces and the lines behind them.
pub type Decoded = (Vec<Bytes>, Lines);

fn incomplete() -> Refusal {
    Refusal::new(400, "IncompleteBody", "The request body terminated unexpectedly")
}

/// Decodes a body without copying it.
///
/// # Errors
/// `IncompleteBody`, or `SignatureDoesNotMatch` for a chunk or a trailer.
pub fn decode(body: Bytes, signature: &Signature) -> Result<Decoded, Refusal> {
    let signed = matches!(signature.rule, PayloadRule::SignedChunks { .. });
    let mut rest = body;
    let mut previous = signature.seed.clone();
    let mut pieces = Vec::new();
    loop {
        let line = take_line(&mut rest).ok_or_else(incomplete)?;
        let (size, extension) = line.split_once(';').unwrap_or((&line, ""));
        let size = usize::from_str_radix(size.trim(), 16).map_err(|_| incomplete())?;
        if size > rest.len() {
            return Err(incomplete());
        }
        let piece = rest.split_to(size);
        if signed {
            let told = extension.trim().strip_prefix("chunk-signature=").unwrap_or("");
            previous = check_chunk(signature, &previous, &piece, told)?;
        }
        if size == 0 {
            break;
        }
        pieces.push(piece);
        if take_line(&mut rest).as_deref() != Some("") {
            return Err(incomplete());
        }
    }
    let trailer = trailer(&mut rest)?;
    let mut lines = Lines::new();
    let mut told = None;
    for (name, value) in trailer {
        if name == "x-amz-trailer-signature" {
            told = Some(value);
        } else {
            lines.push((name, value));
        }
    }
    if signature.rule == (PayloadRule::SignedChunks { trailer: true }) {
        check_trailer(signature, &previous, &lines, told.as_deref().unwrap_or(""))?;
    }
    Ok((pieces, lines))
}

fn take_line(rest: &mut Bytes) -> Option<String> {
    let at = rest.windows(2).position(|pair| pair == b"\r\n")?;
    let line = rest.split_to(at + 2);
    std::str::from_utf8(&line[..at]).ok().map(str::to_string)
}

fn trailer(rest: &mut Bytes) -> Result<Lines, Refusal> {
    let mut lines = Lines::new();
    while !rest.is_empty() {
        let line = take_line(rest).ok_or_else(incomplete)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(incomplete)?;
        lines.push((name.trim().to_ascii_lowercase(), value.trim().to_string()));
    }
    Ok(lines)
}

fn check(signature: &Signature, to_sign: &str, told: &str) -> Result<String, Refusal> {
    let right = hex(&hmac(&signature.key, to_sign.as_bytes()));
    if right == told {
        return Ok(right);
    }
    Err(Refusal::new(403, "SignatureDoesNotMatch", "the signature of a chunk does not match"))
}

fn check_chunk(
    signature: &Signature,
    previous: &str,
    piece: &Bytes,
    told: &str,
) -> Result<String, Refusal> {
    let Signature { date, scope, .. } = signature;
    let hash = hex(&sha256(std::slice::from_ref(piece)));
    let to_sign =
        format!("AWS4-HMAC-SHA256-PAYLOAD\n{date}\n{scope}\n{previous}\n{EMPTY_SHA256}\n{hash}");
    check(signature, &to_sign, told)
}

fn check_trailer(
    signature: &Signature,
    previous: &str,
    lines: &Lines,
    told: &str,
) -> Result<(), Refusal> {
    let Signature { date, scope, .. } = signature;
    let text: String = lines.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let hash = hex(&sha256(&[Bytes::from(text)]));
    let to_sign = format!("AWS4-HMAC-SHA256-TRAILER\n{date}\n{scope}\n{previous}\n{hash}");
    check(signature, &to_sign, told).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unsigned() -> Signature {
        let none = String::new;
        let rule = PayloadRule::UnsignedChunks;
        Signature { rule, key: Vec::new(), date: none(), scope: none(), seed: none() }
    }

    #[test]
    fn unsigned_chunks_with_a_trailer() {
        let body = "3\r\nabc\r\n2\r\nde\r\n0\r\nx-amz-checksum-crc32:AAAA\r\n\r\n";
        let (pieces, lines) = decode(Bytes::from_static(body.as_bytes()), &unsigned()).unwrap();
        assert_eq!(pieces.concat(), b"abcde");
        assert_eq!(lines, [("x-amz-checksum-crc32".to_string(), "AAAA".to_string())]);
    }

    /// The example of the S3 documentation, "Signature calculations for chunked upload".
    #[test]
    fn documented_example_of_signed_chunks() {
        let signature = Signature {
            rule: PayloadRule::SignedChunks { trailer: false },
            key: super::super::auth::signing_key(
                "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                "20130524",
                "us-east-1",
                "s3",
            ),
            date: "20130524T000000Z".to_string(),
            scope: "20130524/us-east-1/s3/aws4_request".to_string(),
            seed: "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9".to_string(),
        };
        let mut body = Vec::new();
        for (size, signature) in [
            (65536, "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"),
            (1024, "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"),
            (0, "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"),
        ] {
            body.extend(format!("{size:x};chunk-signature={signature}\r\n").into_bytes());
            body.extend(vec![b'a'; size]);
            body.extend(b"\r\n");
        }
        let (pieces, _) = decode(Bytes::from(body.clone()), &signature).unwrap();
        assert_eq!(pieces.iter().map(Bytes::len).sum::<usize>(), 66560);
        body[100] ^= 1;
        assert_eq!(
            decode(Bytes::from(body), &signature).unwrap_err().code,
            "SignatureDoesNotMatch"
        );
    }

    proptest! {
        #[test]
        fn decoding_never_panics(body: Vec<u8>) {
            let _ = decode(Bytes::from(body), &unsigned());
        }

        #[test]
        fn cut_bodies_are_refused_or_whole(cut in 0usize..60) {
            let body = b"3\r\nabc\r\n2\r\nde\r\n0\r\nx-amz-checksum-crc32:AAAA\r\n\r\n";
            let cut = cut.min(body.len());
            if let Ok((pieces, _)) = decode(Bytes::copy_from_slice(&body[..cut]), &unsigned()) {
                prop_assert_eq!(pieces.concat(), b"abcde");
            }
        }
    }
}

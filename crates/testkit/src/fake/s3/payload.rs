//! The body of an S3 request: received, unpacked, and checked against every hash that came along.

use super::super::codec::hex;
use super::super::digest::{amz_checksum, md5, sha256, unbase64};
use super::super::http::BodyReader;
use super::super::refusal::{Refusal, Trouble};
use super::super::vault::Lines;
use super::Call;
use super::auth::{PayloadRule, Signature};
use super::chunked;
use super::sums::CHECKSUMS;
use bytes::Bytes;

/// A checked body.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    /// Its bytes.
    pub pieces: Vec<Bytes>,
    /// Checksums that were sent and hold, by name.
    pub checksums: Lines,
}

impl Payload {
    /// The body as text, for documents.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.pieces.concat()).into_owned()
    }
}

/// Receives the body of a request.
///
/// # Errors
/// The refusal for the first hash that does not hold, or a broken connection.
pub async fn receive(
    call: &Call<'_>,
    signature: &Signature,
    body: &mut BodyReader<'_>,
) -> Result<Payload, Trouble> {
    let headers = &call.request.headers;
    if call.request.method == "PUT" && call.request.content_length().is_none() {
        let decoded_length = headers.get("x-amz-decoded-content-length");
        if decoded_length.is_none() {
            return Err(Refusal::new(
                411,
                "MissingContentLength",
                "You must provide the Content-Length HTTP header.",
            )
            .into());
        }
    }
    let mut pieces = body.read_all().await?;
    let mut trailer = Lines::new();
    match &signature.rule {
        PayloadRule::Unsigned => {}
        PayloadRule::Sha256(told) => {
            if hex(&sha256(&pieces)) != *told {
                return Err(Refusal::new(
                    400,
                    "XAmzContentSHA256Mismatch",
                    "The provided 'x-amz-content-sha256' header does not match what was computed.",
                )
                .into());
            }
        }
        PayloadRule::SignedChunks { .. } | PayloadRule::UnsignedChunks => {
            let whole = match <[Bytes; 1]>::try_from(pieces) {
                Ok([whole]) => whole,
                Err(pieces) => Bytes::from(pieces.concat()),
            };
            (pieces, trailer) = chunked::decode(whole, signature)?;
            check_decoded_length(call, &pieces)?;
        }
    }
    check_md5(call, &pieces)?;
    let checksums = check_sums(call, &pieces, &trailer)?;
    Ok(Payload { pieces, checksums })
}

fn check_decoded_length(call: &Call<'_>, pieces: &[Bytes]) -> Result<(), Refusal> {
    let told = call.request.headers.get("x-amz-decoded-content-length");
    let length: usize = pieces.iter().map(Bytes::len).sum();
    if told.and_then(|text| text.parse().ok()) == Some(length) {
        return Ok(());
    }
    Err(Refusal::new(
        400,
        "IncompleteBody",
        "You did not provide the number of bytes specified by the decoded content length.",
    ))
}

fn check_md5(call: &Call<'_>, pieces: &[Bytes]) -> Result<(), Refusal> {
    let Some(told) = call.request.headers.get("content-md5") else { return Ok(()) };
    match unbase64(told) {
        Some(told) if told.len() == 16 => {
            if told == md5(pieces) {
                return Ok(());
            }
            Err(Refusal::new(
                400,
                "BadDigest",
                "The Content-MD5 you specified did not match what we received.",
            ))
        }
        _ => Err(Refusal::new(400, "InvalidDigest", "The Content-MD5 you specified is not valid.")),
    }
}

fn check_sums(call: &Call<'_>, pieces: &[Bytes], trailer: &Lines) -> Result<Lines, Refusal> {
    let mut held = Lines::new();
    for name in CHECKSUMS {
        let header = format!("x-amz-checksum-{name}");
        let in_trailer =
            trailer.iter().find(|(known, _)| *known == header).map(|(_, value)| value.as_str());
        let Some(told) = call.request.headers.get(&header).or(in_trailer) else { continue };
        // A checksum of all parts, sent with the completion, is not one of this body.
        let of_body = call.target.operation != "CompleteMultipartUpload";
        if of_body && amz_checksum(name, pieces).as_deref() != Some(told) {
            return Err(Refusal::new(
                400,
                "BadDigest",
                format!("The {name} you specified did not match the calculated checksum."),
            ));
        }
        held.push((name.to_string(), told.to_string()));
    }
    if held.len() > 1 {
        return Err(Refusal::new(
            400,
            "InvalidRequest",
            "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.",
        ));
    }
    Ok(held)
}

//! Checksums of uploads: one algorithm from creation to completion, as S3 has it.

use super::super::digest::{amz_checksum, unbase64};
use super::super::refusal::Refusal;
use super::super::vault::{Lines, Staged, Upload};
use super::super::xml::Node;
use super::Call;
use bytes::Bytes;

/// Names of the algorithms.
pub const CHECKSUMS: &[&str] = &["crc32", "crc32c", "crc64nvme", "sha1", "sha256"];

/// The algorithm and the type that a creation names.
pub fn kind(call: &Call<'_>) -> Option<(String, String)> {
    let headers = &call.request.headers;
    let algorithm = headers.get("x-amz-checksum-algorithm")?.to_ascii_lowercase();
    let kind = headers.get("x-amz-checksum-type").unwrap_or("COMPOSITE");
    Some((algorithm, kind.to_string()))
}

/// Refuses a part of another algorithm than the upload's.
///
/// # Errors
/// `InvalidRequest`.
pub fn check_part(upload: &Upload, sums: &Lines) -> Result<(), Refusal> {
    let Some((algorithm, kind)) = &upload.checksum else { return Ok(()) };
    let found = sums.first().map_or("null", |(name, _)| name.as_str());
    if found == algorithm || found == "null" && kind == "FULL_OBJECT" {
        return Ok(());
    }
    let message = format!(
        "Checksum Type mismatch occurred, expected checksum Type: {algorithm}, actual checksum \
         Type: {found}"
    );
    Err(Refusal::new(400, "InvalidRequest", message))
}

/// What a completion names of a part.
pub fn named(node: &Node) -> Option<(String, String)> {
    CHECKSUMS.iter().find_map(|name| {
        let element = format!("Checksum{}", name.to_ascii_uppercase());
        Some((name.to_string(), node.child_text(&element)?.trim().to_string()))
    })
}

/// Holds what a completion names of a part against what the part came with.
///
/// # Errors
/// `InvalidPart` for another, `InvalidRequest` for none where the upload wants one.
pub fn check_named(
    upload: &Upload,
    number: u32,
    part: &Staged,
    named: Option<&(String, String)>,
) -> Result<(), Refusal> {
    match (named, &upload.checksum) {
        (Some(sum), _) if !part.checksums.contains(sum) => {
            let message = "One or more of the specified parts could not be found.";
            Err(Refusal::new(400, "InvalidPart", message))
        }
        (None, Some((algorithm, kind))) if kind == "COMPOSITE" => {
            let message = format!(
                "The upload was created using a {algorithm} checksum. The complete request must \
                 include the checksum for each part. It was missing for part {number} in the \
                 request."
            );
            Err(Refusal::new(400, "InvalidRequest", message))
        }
        _ => Ok(()),
    }
}

/// The checksum of the whole.
///
/// # Errors
/// `BadDigest` for another than the completion tells of all bytes.
pub fn of_whole(
    upload: &Upload,
    parts: &[&Staged],
    bytes: &[Bytes],
    told: &Lines,
) -> Result<Lines, Refusal> {
    let Some((algorithm, kind)) = &upload.checksum else { return Ok(told.clone()) };
    let of = |part: &&Staged| {
        let found = part.checksums.iter().find(|(name, _)| name == algorithm);
        found.and_then(|(_, text)| unbase64(text)).map(Bytes::from)
    };
    let sum = if kind == "FULL_OBJECT" {
        amz_checksum(algorithm, bytes)
    } else {
        let sums: Option<Vec<Bytes>> = parts.iter().map(of).collect();
        let joined = sums.and_then(|sums| amz_checksum(algorithm, &sums));
        joined.map(|joined| format!("{joined}-{}", parts.len()))
    };
    let sum = sum.unwrap_or_default();
    if told.iter().any(|(name, text)| name == algorithm && *text != sum) {
        let message =
            format!("The {algorithm} you specified did not match the calculated checksum.");
        return Err(Refusal::new(400, "BadDigest", message));
    }
    Ok(vec![(algorithm.clone(), sum)])
}

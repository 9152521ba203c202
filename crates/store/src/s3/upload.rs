//! Multipart uploads of S3.

use crate::answer;
use crate::s3::replies::{parse_upload_id, parse_written};
use crate::s3::request::{Call, Outcome};
use crate::s3::sums::{named_elements, part_call, tag};
use crate::s3::{ANSWER_BYTES_MAX, S3Store};
use crate::sums::Sum;
use crate::{ETag, Part, Payload, PutOptions, PutResult, Store, UploadId, WriteCondition};
use ::http::Method;
use ::http::header::CONTENT_TYPE;
use bytes::Bytes;
use md5::{Digest, Md5};
use penstock_base::{Error, Kind, Result};

impl S3Store {
    pub(super) async fn begin_upload(&self, key: &str, options: &PutOptions) -> Result<UploadId> {
        let call = Call::new(Method::POST, "create upload", Some(key)).query("uploads", "");
        let plain = self.with_write_headers(call, options)?;
        let call = self.with_kind(plain.clone(), options)?;
        let mut response = match self.sender.send(&call).await? {
            Outcome::Done(response) => response,
            // A service that does not know the algorithm gets parts without checksums.
            Outcome::Refused { failure, .. }
                if call.headers.len() > plain.headers.len()
                    && (failure.is_not_implemented() || failure.code == "InvalidRequest") =>
            {
                self.sender.done(&plain).await?
            }
            Outcome::Refused { failure, .. } => return Err(self.sender.refusal(&call, failure)),
        };
        let bytes = response.body.read_to_bytes(ANSWER_BYTES_MAX).await;
        let id = bytes.and_then(|bytes| parse_upload_id(&bytes));
        id.map(UploadId).map_err(|error| self.named(&call, error))
    }

    pub(super) async fn send_part(
        &self,
        key: &str,
        upload: &UploadId,
        number: u32,
        payload: Payload,
        sum: Option<&Sum>,
    ) -> Result<Part> {
        let size_bytes = payload.len();
        let call = part_call(key, upload, number).payload(payload);
        let call = self.with_sum(self.seal.part(call)?, sum)?;
        let response = self.sender.done(&call).await?;
        let answer = response.headers.clone();
        let (etag, _) = self.written(&call, response).await?;
        Ok(Part { number, etag: tag(&etag.0, sum, &answer), size_bytes })
    }

    pub(super) async fn finish_upload(
        &self,
        key: &str,
        upload: &UploadId,
        parts: &[Part],
        options: &PutOptions,
    ) -> Result<PutResult> {
        let call = Call::new(Method::POST, "complete upload", Some(key))
            .query("uploadId", &upload.0)
            .header(CONTENT_TYPE.as_str(), "application/xml")?
            .payload(Payload::from(Bytes::from(complete_body(parts, &named_elements(options)))));
        if self.is_gcs() && options.condition != WriteCondition::None {
            // It passes over the header that a single write would carry, and overwrites.
            let why = "Google Cloud Storage completes an upload whatever is there";
            let error = Error::new(Kind::Unsupported, why);
            return Err(self.named(
                &call,
                error.with_hint("Leave the condition out, or write the object in one PUT"),
            ));
        }
        let call = self.with_whole(call, options)?;
        let call = self.with_condition(call, &options.condition)?;
        let failure = match self.sender.send(&call).await? {
            Outcome::Done(mut response) => {
                let bytes = response.body.read_to_bytes(ANSWER_BYTES_MAX).await;
                let bytes = bytes.map_err(|error| self.named(&call, error))?;
                let (etag, modified) = parse_written(&bytes, "CompleteMultipartUploadResult")
                    .map_err(|error| self.named(&call, error))?;
                let modified = modified.or_else(|| answer::written_at(&response.headers));
                let version = self.version(&response.headers);
                let etag = Some(etag);
                return Ok(PutResult { etag, modified, version, ..PutResult::default() });
            }
            Outcome::Refused { failure, .. } => failure,
        };
        // An earlier request may have done it and its answer been lost. Then the upload is gone;
        // one that a condition refuses stays, however like its bytes are to those that stand there.
        let maybe_done = match failure.status {
            409 | 412 => !self.has_upload(key, upload).await?,
            status => status == 404 || failure.code == "NoSuchUpload",
        };
        if maybe_done && let Some(result) = self.own_result(key, parts).await? {
            return Ok(result);
        }
        Err(self.sender.refusal(&call, failure))
    }

    /// Whether an upload is still open, which whoever may not list its parts takes it to be.
    async fn has_upload(&self, key: &str, upload: &UploadId) -> Result<bool> {
        let call = parts_call(key, upload).query("max-parts", "1");
        match self.sender.send(&call).await? {
            Outcome::Done(_) => Ok(true),
            Outcome::Refused { failure, .. } if failure.status == 404 => Ok(false),
            Outcome::Refused { failure, .. } if failure.status == 403 => Ok(true),
            Outcome::Refused { failure, .. } => Err(self.sender.refusal(&call, failure)),
        }
    }

    /// The object at `key`, if it is the one that these parts make.
    async fn own_result(&self, key: &str, parts: &[Part]) -> Result<Option<PutResult>> {
        let Some(expected) = multipart_etag(parts) else { return Ok(None) };
        match self.stat(key).await {
            Ok(meta) if meta.etag.as_ref() == Some(&expected) => {
                let (modified, version) = (meta.modified, meta.version);
                let etag = meta.etag;
                Ok(Some(PutResult { etag, modified, version, ..PutResult::default() }))
            }
            Ok(_) => Ok(None),
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The request for the parts of an upload.
pub(super) fn parts_call<'a>(key: &'a str, upload: &UploadId) -> Call<'a> {
    Call::new(Method::GET, "list parts", Some(key)).query("uploadId", &upload.0)
}

/// The list of a completion; `sums` has an element for each part, where any has.
fn complete_body(parts: &[Part], sums: &[String]) -> String {
    let mut body = String::from("<CompleteMultipartUpload>");
    for (at, part) in parts.iter().enumerate() {
        let etag = ETag(part.etag.clone()).header_value();
        body.push_str(&format!(
            "<Part><PartNumber>{}</PartNumber><ETag>{}</ETag>{}</Part>",
            part.number,
            crate::xml::escape(&etag),
            sums.get(at).map_or("", String::as_str)
        ));
    }
    body.push_str("</CompleteMultipartUpload>");
    body
}

/// The tag that S3 gives to an object of these parts: the MD5 of their MD5s and their number.
/// `None` where the parts' tags are no MD5s (encryption, other services).
fn multipart_etag(parts: &[Part]) -> Option<ETag> {
    let mut hasher = Md5::new();
    for part in parts {
        hasher.update(hex_bytes(&part.etag)?);
    }
    Some(ETag(format!("{}-{}", crate::random::hex(&hasher.finalize()), parts.len())))
}

fn hex_bytes(text: &str) -> Option<[u8; 16]> {
    let digits = text.as_bytes();
    if digits.len() != 32 {
        return None;
    }
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_of_parts_is_amazons() {
        let part = |number, text: &[u8]| {
            let hex = Md5::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
            Part { number, etag: hex, size_bytes: text.len() as u64 }
        };
        // md5(md5("a") followed by md5("b")), computed with md5sum.
        let etag = multipart_etag(&[part(1, b"a"), part(2, b"b")]).unwrap();
        assert_eq!(etag.0, "96e024ba2074fe77e8e965ba43a704be-2");
        let odd = Part { number: 1, etag: "0x8D".into(), size_bytes: 1 };
        assert_eq!(multipart_etag(&[odd]), None);
    }

    #[test]
    fn body_quotes_and_escapes_tags() {
        let part = Part { number: 3, etag: "a<b".into(), size_bytes: 1 };
        let body = complete_body(&[part], &[]);
        let part = "<Part><PartNumber>3</PartNumber><ETag>&quot;a&lt;b&quot;</ETag></Part>";
        assert!(body.contains(part), "{body}");
    }
}

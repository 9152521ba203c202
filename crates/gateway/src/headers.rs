//! What S3 remembers of an object besides its bytes, to and from the store's metadata pairs.
//!
//! User metadata keeps its names. The standard headers (`Cache-Control` and its kin) are kept as
//! pairs whose names begin with `@`, which no `x-amz-meta-` header can carry.

use http::HeaderMap;
use penstock_store::tags;
use penstock_store::{ObjectMeta, PutOptions, WriteCondition};
use s3s::dto;
use s3s::{S3Result, s3_error};

/// Most bytes of user metadata, names and values together, as S3 limits it.
const USER_METADATA_BYTES_MAX: usize = 2048;

/// Under this name S3 back ends keep an object's list (see [`crate::sharing`]).
const OWN_NAME: &str = "penstock-acl";

/// The headers of a PUT, a copy with REPLACE, or a new multipart upload.
#[derive(Clone, Debug, Default)]
pub struct ObjectHeaders {
    /// Content-Type.
    pub content_type: Option<String>,
    /// Cache-Control.
    pub cache_control: Option<String>,
    /// Content-Disposition.
    pub content_disposition: Option<String>,
    /// Content-Encoding, without `aws-chunked`, which belongs to the transfer.
    pub content_encoding: Option<String>,
    /// Content-Language.
    pub content_language: Option<String>,
    /// Expires, as sent.
    pub expires: Option<dto::Timestamp>,
    /// `x-amz-meta-*`, without the prefix.
    pub metadata: Option<dto::Metadata>,
    /// `x-amz-tagging`, as sent.
    pub tagging: Option<String>,
}

/// Takes the like-named fields of an input of s3s.
macro_rules! object_headers {
    ($input:expr) => {
        $crate::headers::ObjectHeaders {
            content_type: $input.content_type.take(),
            cache_control: $input.cache_control.take(),
            content_disposition: $input.content_disposition.take(),
            content_encoding: $input.content_encoding.take(),
            content_language: $input.content_language.take(),
            expires: $input.expires.take(),
            metadata: $input.metadata.take(),
            tagging: None,
        }
    };
}
pub(crate) use object_headers;

/// The fields of an answer that come from what is remembered.
macro_rules! set_object_headers {
    ($output:expr, $meta:expr) => {{
        let headers = $crate::headers::ObjectHeaders::from_meta($meta);
        $output.content_type = headers.content_type;
        $output.cache_control = headers.cache_control;
        $output.content_disposition = headers.content_disposition;
        $output.content_encoding = headers.content_encoding;
        $output.content_language = headers.content_language;
        $output.expires = headers.expires;
        $output.metadata = headers.metadata;
        $output.version_id = $meta.version.clone();
        let lock = $crate::lock::Lock::of($meta).map_err($crate::get::about_object)?;
        let hold = lock.is_held.map($crate::lock::hold_text);
        $output.object_lock_legal_hold_status =
            hold.map(s3s::dto::ObjectLockLegalHoldStatus::from_static);
        if let Some(retention) = lock.retention {
            let mode = s3s::dto::ObjectLockMode::from_static(retention.mode.name());
            $output.object_lock_mode = Some(mode);
            $output.object_lock_retain_until_date = Some(retention.until);
        }
    }};
}
pub(crate) use set_object_headers;

impl ObjectHeaders {
    /// As the store keeps them.
    ///
    /// # Errors
    /// `MetadataTooLarge` past S3's limit.
    pub fn into_options(self, condition: WriteCondition) -> S3Result<PutOptions> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        let mut user_bytes = 0;
        for (name, value) in self.metadata.into_iter().flatten() {
            if name.eq_ignore_ascii_case(OWN_NAME) {
                return Err(s3_error!(InvalidArgument, "x-amz-meta-{OWN_NAME} is the gateway's"));
            }
            user_bytes += name.len() + value.len();
            pairs.push((name.to_ascii_lowercase(), value));
        }
        if user_bytes > USER_METADATA_BYTES_MAX {
            return Err(s3_error!(
                MetadataTooLarge,
                "Your metadata headers exceed the maximum allowed metadata size of 2048 bytes."
            ));
        }
        let expires = self.expires.as_ref().map(http_date).transpose()?;
        let encoding = self.content_encoding.as_deref().and_then(without_aws_chunked);
        for (name, value) in [
            ("@cache-control", self.cache_control),
            ("@content-disposition", self.content_disposition),
            ("@content-encoding", encoding),
            ("@content-language", self.content_language),
            ("@expires", expires),
            ("@tagging", self.tagging),
        ] {
            pairs.extend(value.map(|value| (name.to_string(), value)));
        }
        // S3's own default; also tells the store that nothing is to be inherited from elsewhere.
        let content_type = self.content_type.or_else(|| Some("binary/octet-stream".to_string()));
        Ok(PutOptions { condition, content_type, metadata: pairs })
    }

    /// As the store kept them.
    pub fn from_meta(meta: &ObjectMeta) -> Self {
        let mut headers = ObjectHeaders {
            content_type: Some(
                meta.content_type.clone().unwrap_or_else(|| "binary/octet-stream".to_string()),
            ),
            ..Default::default()
        };
        let mut user = dto::Metadata::default();
        for (name, value) in &meta.metadata {
            let value = value.clone();
            match name.as_str() {
                "@cache-control" => headers.cache_control = Some(value),
                "@content-disposition" => headers.content_disposition = Some(value),
                "@content-encoding" => headers.content_encoding = Some(value),
                "@content-language" => headers.content_language = Some(value),
                "@expires" => {
                    let format = dto::TimestampFormat::HttpDate;
                    headers.expires = dto::Timestamp::parse(format, &value).ok();
                }
                // Notes that no client wrote.
                name if name.starts_with('@') => {}
                _ => {
                    user.insert(name.clone(), value);
                }
            }
        }
        headers.metadata = (!user.is_empty()).then_some(user);
        headers
    }
}

/// How many tags an object has; `None` for none.
pub fn tag_count(meta: &ObjectMeta) -> Option<i32> {
    let pair = |wanted: &str| {
        let found = meta.metadata.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.as_str())
    };
    let count = match pair("@tagging") {
        Some(text) => i32::try_from(tags::from_query(text).len()).ok(),
        None => pair("@tag-count")?.parse().ok(),
    };
    count.filter(|count| *count > 0)
}

/// Checksums, as an object's metadata tells them: `@checksum-crc32` and its kin.
#[derive(Clone, Debug, Default)]
pub struct Notes(dto::Checksum);

const CHECKSUM: &str = "@checksum-";
/// The pair of metadata that tells the checksums of parts: the algorithm's name, a colon, and one
/// after the other.
pub const PART_SUMS_NOTE: &str = "@part-sums";

/// The fields of checksums and the names of their algorithms.
macro_rules! each_checksum {
    ($sums:expr, $each:expr) => {{
        $each("crc32", &mut $sums.checksum_crc32);
        $each("crc32c", &mut $sums.checksum_crc32c);
        $each("crc64nvme", &mut $sums.checksum_crc64nvme);
        $each("sha1", &mut $sums.checksum_sha1);
        $each("sha256", &mut $sums.checksum_sha256);
    }};
}

/// The pairs of metadata that tell of checksums.
pub fn checksum_notes(sums: &dto::Checksum) -> Vec<(String, String)> {
    let (mut sums, mut notes) = (sums.clone(), Vec::new());
    let mut note = |name: &str, sum: &mut Option<String>| {
        notes.extend(sum.take().map(|sum| (format!("{CHECKSUM}{name}"), sum)));
    };
    each_checksum!(sums, note);
    notes
}

/// The checksums that a request's head tells; those of a trailer come too late for the metadata
/// of a body that flows.
pub fn known_checksums(headers: &HeaderMap) -> dto::Checksum {
    let mut sums = dto::Checksum::default();
    let told = |name: &str, sum: &mut Option<String>| {
        let header = headers.get(format!("x-amz-checksum-{name}"));
        *sum = header.and_then(|value| value.to_str().ok()).map(str::to_string);
    };
    each_checksum!(sums, told);
    sums
}

/// An answer that carries checksums.
pub trait HasChecksums {
    /// Takes them.
    fn set_checksums(&mut self, sums: dto::Checksum);
}

macro_rules! has_checksums {
    ($($output:ty [$($kind:ident)?]),*) => {
        $(impl HasChecksums for $output {
            fn set_checksums(&mut self, sums: dto::Checksum) {
                self.checksum_crc32 = sums.checksum_crc32;
                self.checksum_crc32c = sums.checksum_crc32c;
                self.checksum_crc64nvme = sums.checksum_crc64nvme;
                self.checksum_sha1 = sums.checksum_sha1;
                self.checksum_sha256 = sums.checksum_sha256;
                $(self.$kind = sums.$kind;)?
            }
        })*
    };
}
has_checksums!(
    dto::GetObjectOutput [checksum_type],
    dto::HeadObjectOutput [checksum_type],
    dto::PutObjectOutput [checksum_type],
    dto::CompleteMultipartUploadOutput [checksum_type],
    // The answer to a part has no field for it.
    dto::UploadPartOutput []
);

impl Notes {
    /// What an object's metadata tells.
    pub fn of(meta: &ObjectMeta) -> Self {
        let mut sums = dto::Checksum::default();
        let found = |name: &str, sum: &mut Option<String>| {
            let note = format!("{CHECKSUM}{name}");
            let pair = meta.metadata.iter().find(|(name, _)| *name == note);
            *sum = pair.map(|(_, value)| value.clone());
        };
        each_checksum!(sums, found);
        let is_composite =
            meta.metadata.iter().any(|(name, sum)| name.starts_with(CHECKSUM) && sum.contains('-'));
        let kind = if is_composite {
            dto::ChecksumType::COMPOSITE
        } else {
            dto::ChecksumType::FULL_OBJECT
        };
        if sums != dto::Checksum::default() {
            sums.checksum_type = Some(dto::ChecksumType::from_static(kind));
        }
        Notes(sums)
    }

    /// Those of one part of an upload, where its completion told them.
    pub fn of_part(meta: &ObjectMeta, number: u32) -> Option<dto::Checksum> {
        let note = meta.metadata.iter().find(|(name, _)| name == PART_SUMS_NOTE);
        let (algorithm, list) = note?.1.split_once(':')?;
        let at = usize::try_from(number).ok()?.checked_sub(1)?;
        let wanted = list.split(',').nth(at)?;
        let mut sums = dto::Checksum::default();
        let found = |name: &str, sum: &mut Option<String>| {
            *sum = (name == algorithm).then(|| wanted.to_string());
        };
        each_checksum!(sums, found);
        sums.checksum_type = Notes::of(meta).0.checksum_type;
        Some(sums)
    }

    /// Those that there are.
    pub fn checksum(self) -> Option<dto::Checksum> {
        (self.0 != dto::Checksum::default()).then_some(self.0)
    }
}

fn http_date(time: &dto::Timestamp) -> S3Result<String> {
    let mut text = Vec::new();
    time.format(dto::TimestampFormat::HttpDate, &mut text)
        .map_err(|_| s3_error!(InvalidArgument, "Expires is not a date"))?;
    String::from_utf8(text).map_err(|_| s3_error!(InvalidArgument, "Expires is not a date"))
}

fn without_aws_chunked(encoding: &str) -> Option<String> {
    let kept: Vec<&str> = encoding
        .split(',')
        .map(str::trim)
        .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("aws-chunked"))
        .collect();
    (!kept.is_empty()).then(|| kept.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta_of(options: PutOptions) -> ObjectMeta {
        ObjectMeta {
            size_bytes: Some(0),
            etag: None,
            modified: None,
            content_type: options.content_type,
            metadata: options.metadata,
            version: None,
        }
    }

    #[test]
    fn everything_comes_back_as_it_went_in() {
        let sent = ObjectHeaders {
            content_type: Some("text/csv".into()),
            cache_control: Some("no-store".into()),
            content_disposition: Some("attachment".into()),
            content_encoding: Some("aws-chunked, gzip".into()),
            content_language: Some("de".into()),
            expires: Some(dto::Timestamp::default()),
            metadata: Some([("Owner".to_string(), "me".to_string())].into_iter().collect()),
            tagging: None,
        };
        let back =
            ObjectHeaders::from_meta(&meta_of(sent.into_options(WriteCondition::None).unwrap()));
        assert_eq!(back.content_type.as_deref(), Some("text/csv"));
        assert_eq!(back.cache_control.as_deref(), Some("no-store"));
        assert_eq!(back.content_disposition.as_deref(), Some("attachment"));
        assert_eq!(back.content_encoding.as_deref(), Some("gzip"));
        assert_eq!(back.content_language.as_deref(), Some("de"));
        assert_eq!(back.expires, Some(dto::Timestamp::default()));
        assert_eq!(back.metadata.unwrap()["owner"], "me");
    }

    #[test]
    fn aws_chunked_alone_leaves_no_encoding() {
        assert_eq!(without_aws_chunked("aws-chunked"), None);
        assert_eq!(without_aws_chunked("gzip"), Some("gzip".to_string()));
    }

    #[test]
    fn too_much_metadata_is_refused() {
        let metadata = Some([("k".to_string(), "v".repeat(2048))].into_iter().collect());
        let headers = ObjectHeaders { metadata, ..Default::default() };
        assert!(headers.into_options(WriteCondition::None).is_err());
    }
}

//! What S3 remembers of an object besides its bytes, to and from the store's metadata pairs.
//!
//! User metadata keeps its names. The standard headers (`Cache-Control` and its kin) are kept as
//! pairs whose names begin with `@`, which no `x-amz-meta-` header can carry.

use crate::lenient;
use http::header::EXPIRES;
use http::{HeaderName, HeaderValue};
use penstock_store::notes;
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
    pub expires: Option<String>,
    /// `x-amz-meta-*`, without the prefix.
    pub metadata: Option<dto::Metadata>,
    /// `x-amz-tagging`, as sent.
    pub tagging: Option<String>,
}

/// Takes the like-named fields of an input of s3s, and what its request has of them otherwise.
macro_rules! object_headers {
    ($input:expr, $extensions:expr) => {
        $crate::headers::ObjectHeaders {
            content_type: $input.content_type.take(),
            cache_control: $input.cache_control.take(),
            content_disposition: $input.content_disposition.take(),
            content_encoding: $input.content_encoding.take(),
            content_language: $input.content_language.take(),
            expires: $crate::headers::expires($input.expires.take(), $extensions)?,
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
        $output.metadata = headers.metadata;
        $output.version_id = $meta.version.clone();
        $output.storage_class = $crate::classes::told($meta);
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
        let encoding = self.content_encoding.as_deref().and_then(without_aws_chunked);
        for (name, value) in [
            ("@cache-control", self.cache_control),
            ("@content-disposition", self.content_disposition),
            ("@content-encoding", encoding),
            ("@content-language", self.content_language),
            ("@expires", self.expires),
            (notes::TAGGING, self.tagging),
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
                "@expires" => headers.expires = Some(value),
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
    let count = match pair(notes::TAGGING) {
        Some(text) => i32::try_from(tags::from_query(text).len()).ok(),
        None => pair("@tag-count")?.parse().ok(),
    };
    count.filter(|count| *count > 0)
}

/// The Expires of a request, of which s3s reads only a date.
///
/// # Errors
/// `InvalidArgument` for a date that cannot be written.
pub fn expires(
    date: Option<dto::Timestamp>,
    extensions: &http::Extensions,
) -> S3Result<Option<String>> {
    match date {
        Some(date) => http_date(&date).map(Some),
        None => Ok(lenient::odd_expires(extensions)),
    }
}

/// The Expires of an answer, word for word, which is no field of s3s's: that takes dates only.
pub fn told_expires(meta: &ObjectMeta) -> Option<(HeaderName, HeaderValue)> {
    let expires = ObjectHeaders::from_meta(meta).expires?;
    Some((EXPIRES, HeaderValue::from_str(&expires).ok()?))
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
            storage_class: None,
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
            expires: Some("0".into()),
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
        assert_eq!(back.expires.as_deref(), Some("0"));
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

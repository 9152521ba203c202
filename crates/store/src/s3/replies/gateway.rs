//! Answers of S3 that only a gateway asks for: parts, uploads, buckets. Pure.

use super::{decode_url, is_encoding, is_true, parse_written, walk_root};
use crate::answer::parse_iso_date;
use crate::notes::{self, told_class};
use crate::s3::request::strange;
use crate::s3::sums::sum_of_element;
use crate::streaming::{PartEntry, UploadEntry, VersionEntry, Versioning, VersionsPage};
use crate::sums::Sum;
use crate::{ContainerEntry, ETag, ObjectMeta, UploadId};
use penstock_base::Result;

/// One page of ListParts, and the marker of the next.
///
/// # Errors
/// `Corrupt` for an answer that is none.
pub(crate) fn parse_parts(bytes: &[u8]) -> Result<(Vec<PartEntry>, Option<String>)> {
    let (mut parts, mut next, mut truncated) = (Vec::new(), None, false);
    let empty =
        || PartEntry { number: 0, etag: String::new(), size_bytes: 0, modified: None, sum: None };
    let mut part = empty();
    walk_root(bytes, &["ListPartsResult"], "a list of parts", |element| {
        let text = element.text.trim();
        match element.path[1..].iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["Part", "PartNumber"] => part.number = text.parse().unwrap_or_default(),
            ["Part", "ETag"] => part.etag = ETag::parse(text).0,
            ["Part", "Size"] => {
                part.size_bytes = text.parse().map_err(|_| strange("the size of a part"))?;
            }
            ["Part", "LastModified"] => part.modified = parse_iso_date(text),
            ["Part", field] if field.starts_with("Checksum") => {
                part.sum = sum_of_element(field, text).or(part.sum.take());
            }
            ["Part"] if part.number == 0 => return Err(strange("the number of a part")),
            ["Part"] => parts.push(std::mem::replace(&mut part, empty())),
            ["IsTruncated"] => truncated = is_true(text)?,
            ["NextPartNumberMarker"] => next = Some(text.to_string()),
            _ => {}
        }
        Ok(())
    })?;
    Ok((parts, next.filter(|_| truncated)))
}

/// The storage class that ListParts tells of the upload.
///
/// # Errors
/// `Corrupt` for an answer that is none.
pub(crate) fn parse_upload_class(bytes: &[u8]) -> Result<Option<Box<str>>> {
    let mut class = None;
    walk_root(bytes, &["ListPartsResult"], "a list of parts", |element| {
        if element.is_at(&["StorageClass"]) {
            class = told_class(element.text);
        }
        Ok(())
    })?;
    Ok(class)
}

/// The tag of a part that was copied, and the checksum that the service made of it.
///
/// # Errors
/// As [`parse_written`].
pub(crate) fn parse_copied_part(bytes: &[u8]) -> Result<(ETag, Option<Sum>)> {
    const ROOT: &str = "CopyPartResult";
    let (etag, _) = parse_written(bytes, ROOT)?;
    let mut sum = None;
    walk_root(bytes, &[ROOT], "the result of the copy", |element| {
        if let [_, field] = element.path
            && field.starts_with("Checksum")
        {
            sum = sum_of_element(field, element.text.trim()).or(sum.take());
        }
        Ok(())
    })?;
    Ok((etag, sum))
}

/// Key and upload id where a listing of uploads goes on.
pub(crate) type UploadsMarker = (String, String);

/// One page of ListMultipartUploads, and the markers of the next.
///
/// # Errors
/// `Corrupt` for an answer that is none.
pub(crate) fn parse_uploads(bytes: &[u8]) -> Result<(Vec<UploadEntry>, Option<UploadsMarker>)> {
    let empty = || UploadEntry {
        key: String::new(),
        id: UploadId(String::new()),
        begun: None,
        metadata: Vec::new(),
    };
    let (mut uploads, mut upload) = (Vec::new(), empty());
    let (mut truncated, mut encoded, mut marker) = (false, false, UploadsMarker::default());
    walk_root(bytes, &["ListMultipartUploadsResult"], "a list of uploads", |element| {
        let text = element.text;
        match element.path[1..].iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["Upload", "Key"] => upload.key = text.to_string(),
            ["Upload", "UploadId"] => upload.id = UploadId(text.trim().to_string()),
            ["Upload", "StorageClass"] => {
                let class = told_class(text).map(String::from);
                let pair = class.map(|class| (notes::STORAGE_CLASS.to_string(), class));
                upload.metadata.extend(pair);
            }
            ["Upload", "Initiated"] => upload.begun = parse_iso_date(text),
            ["Upload"] if upload.id.0.is_empty() => return Err(strange("the id of an upload")),
            ["Upload"] => uploads.push(std::mem::replace(&mut upload, empty())),
            ["IsTruncated"] => truncated = is_true(text)?,
            [name] if is_encoding(name) => encoded = text.trim() == "url",
            ["NextKeyMarker"] => marker.0 = text.to_string(),
            ["NextUploadIdMarker"] => marker.1 = text.to_string(),
            _ => {}
        }
        Ok(())
    })?;
    if encoded {
        marker.0 = decode_url(&marker.0)?;
        for upload in &mut uploads {
            upload.key = decode_url(&upload.key)?;
        }
    }
    Ok((uploads, truncated.then_some(marker)))
}

/// Whether a bucket keeps versions.
///
/// # Errors
/// `Corrupt` for an answer that is none.
pub(crate) fn parse_versioning(bytes: &[u8]) -> Result<Versioning> {
    let mut found = Versioning::Never;
    walk_root(bytes, &["VersioningConfiguration"], "a versioning configuration", |element| {
        if element.is_at(&["Status"]) {
            found = match element.text.trim() {
                "Enabled" => Versioning::Enabled,
                _ => Versioning::Suspended,
            };
        }
        Ok(())
    })?;
    Ok(found)
}

/// Whether an answer to GetObjectLockConfiguration has a default retention.
///
/// # Errors
/// `Corrupt` for an answer that is none.
pub(crate) fn parse_retention(bytes: &[u8]) -> Result<bool> {
    let mut found = false;
    walk_root(bytes, &["ObjectLockConfiguration"], "a configuration of object lock", |element| {
        found |= element.is_at(&["Rule", "DefaultRetention", "Mode"]);
        Ok(())
    })?;
    Ok(found)
}

/// One page of ListObjectVersions.
///
/// # Errors
/// `Corrupt` for an answer that is none.
pub(crate) fn parse_versions(bytes: &[u8]) -> Result<VersionsPage> {
    let empty = || VersionEntry {
        key: String::new(),
        id: String::new(),
        is_latest: false,
        is_marker: false,
        meta: ObjectMeta::default(),
    };
    let (mut page, mut entry) = (VersionsPage::default(), empty());
    let (mut truncated, mut encoded, mut marker) = (false, false, UploadsMarker::default());
    walk_root(bytes, &["ListVersionsResult"], "a list of versions", |element| {
        let text = element.text;
        match element.path[1..].iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["Version" | "DeleteMarker", field] => match *field {
                "Key" => entry.key = text.to_string(),
                "VersionId" => entry.id = text.trim().to_string(),
                "IsLatest" => entry.is_latest = text.trim() == "true",
                "ETag" => entry.meta.etag = Some(ETag::parse(text)),
                "Size" => entry.meta.size_bytes = text.trim().parse().ok(),
                "LastModified" => entry.meta.modified = parse_iso_date(text),
                "StorageClass" => entry.meta.storage_class = told_class(text),
                _ => {}
            },
            [kind @ ("Version" | "DeleteMarker")] => {
                entry.is_marker = *kind == "DeleteMarker";
                page.versions.push(std::mem::replace(&mut entry, empty()));
            }
            ["CommonPrefixes", "Prefix"] => page.prefixes.push(text.to_string()),
            ["IsTruncated"] => truncated = is_true(text)?,
            [name] if is_encoding(name) => encoded = text.trim() == "url",
            ["NextKeyMarker"] => marker.0 = text.to_string(),
            ["NextVersionIdMarker"] => marker.1 = text.trim().to_string(),
            _ => {}
        }
        Ok(())
    })?;
    if encoded {
        marker.0 = decode_url(&marker.0)?;
        let keys = page.versions.iter_mut().map(|entry| &mut entry.key);
        for name in keys.chain(&mut page.prefixes) {
            *name = decode_url(name)?;
        }
    }
    let (key, version) = marker;
    if truncated && key.is_empty() {
        return Err(strange("where the list of versions goes on"));
    }
    page.next = truncated.then_some((key, Some(version).filter(|id| !id.is_empty())));
    Ok(page)
}

/// Where a bucket is.
///
/// # Errors
/// `Corrupt` for an answer that is none.
pub(crate) fn parse_location(bytes: &[u8]) -> Result<String> {
    let mut location = String::new();
    walk_root(bytes, &["LocationConstraint"], "the location of a bucket", |element| {
        location = element.text.trim().to_string();
        Ok(())
    })?;
    Ok(location)
}

/// The buckets of an account.
///
/// # Errors
/// `Corrupt` for an answer that is none.
pub(crate) fn parse_buckets(bytes: &[u8]) -> Result<Vec<ContainerEntry>> {
    let (mut buckets, mut name, mut created) = (Vec::new(), None, None);
    walk_root(bytes, &["ListAllMyBucketsResult"], "a list of buckets", |element| {
        if element.is_at(&["Buckets", "Bucket", "Name"]) {
            name = Some(element.text.to_string());
        } else if element.is_at(&["Buckets", "Bucket", "CreationDate"]) {
            created = parse_iso_date(element.text);
        } else if element.is_at(&["Buckets", "Bucket"]) {
            let name = name.take().ok_or_else(|| strange("the name of a bucket"))?;
            buckets.push(ContainerEntry { name, created: created.take() });
        }
        Ok(())
    })?;
    Ok(buckets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_tell_where_they_go_on() {
        let part =
            "<Part><PartNumber>2</PartNumber><ETag>&quot;e&quot;</ETag><Size>5</Size></Part>";
        let page = |truncated: bool| {
            format!(
                "<ListPartsResult><IsTruncated>{truncated}</IsTruncated>\
                 <NextPartNumberMarker>2</NextPartNumberMarker>{part}</ListPartsResult>"
            )
        };
        let (parts, next) = parse_parts(page(true).as_bytes()).unwrap();
        assert_eq!((parts[0].number, parts[0].etag.as_str(), parts[0].size_bytes), (2, "e", 5));
        assert_eq!(next.as_deref(), Some("2"));
        assert_eq!(parse_parts(page(false).as_bytes()).unwrap().1, None);
        let uploads = "<ListMultipartUploadsResult><EncodingType>url</EncodingType>\
            <IsTruncated>true</IsTruncated><NextKeyMarker>a%2Bb</NextKeyMarker>\
            <NextUploadIdMarker>u1</NextUploadIdMarker>\
            <Upload><Key>a%2Bb</Key><UploadId>u1</UploadId></Upload></ListMultipartUploadsResult>";
        let (found, next) = parse_uploads(uploads.as_bytes()).unwrap();
        assert_eq!((found[0].key.as_str(), found[0].id.0.as_str()), ("a+b", "u1"));
        assert_eq!(next, Some(("a+b".to_string(), "u1".to_string())));
    }

    #[test]
    fn object_lock_retains_by_a_rule_only() {
        let told = |rule: &str| {
            let enabled = "<ObjectLockEnabled>Enabled</ObjectLockEnabled>";
            let text =
                format!("<ObjectLockConfiguration>{enabled}{rule}</ObjectLockConfiguration>");
            parse_retention(text.as_bytes()).unwrap()
        };
        let rule = "<Mode>GOVERNANCE</Mode><Days>1</Days>";
        assert!(told(&format!("<Rule><DefaultRetention>{rule}</DefaultRetention></Rule>")));
        assert!(!told(""));
        assert!(parse_retention(b"<Other/>").is_err());
    }

    #[test]
    fn other_roots_are_no_answers() {
        for page in ["<html><body/></html>", "", "<Error><Code>x</Code></Error>"] {
            assert!(parse_parts(page.as_bytes()).is_err(), "{page}");
            assert!(parse_uploads(page.as_bytes()).is_err(), "{page}");
            assert!(parse_buckets(page.as_bytes()).is_err(), "{page}");
            assert!(parse_location(page.as_bytes()).is_err(), "{page}");
        }
    }
}

//! ListMultipartUploads.

use crate::auth::bucket_owner;
use crate::buckets::Buckets;
use crate::error::{Subject, to_s3};
use crate::list::{Names, page_size};
use crate::sharing::of_upload;
use penstock_store::UploadEntry;
use s3s::dto;
use s3s::{S3Request, S3Result};

/// ListMultipartUploads.
pub(crate) async fn list_uploads(
    buckets: &Buckets,
    request: S3Request<dto::ListMultipartUploadsInput>,
) -> S3Result<dto::ListMultipartUploadsOutput> {
    let other = bucket_owner(&request.extensions);
    let input = request.input;
    let names = Names::new(input.encoding_type.as_ref())?;
    let max_uploads = page_size(input.max_uploads)?;
    let bucket = buckets.get(&input.bucket).await?;
    let prefix = bucket.key(input.prefix.as_deref().unwrap_or_default());
    let uploads = bucket.store.list_uploads(&prefix).await;
    let mut uploads = uploads.map_err(|error| to_s3(Subject::Bucket, error))?;
    for upload in &mut uploads {
        upload.key.drain(..bucket.prefix().len());
    }
    uploads.sort_by(|a, b| (&a.key, a.begun, &a.id.0).cmp(&(&b.key, b.begun, &b.id.0)));
    let page = uploads_page(
        &uploads,
        &UploadsQuery {
            prefix: input.prefix.as_deref().unwrap_or_default(),
            delimiter: input.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty()),
            key_marker: input.key_marker.as_deref().unwrap_or_default(),
            upload_marker: input.upload_id_marker.as_deref().unwrap_or_default(),
            max: usize::try_from(max_uploads).unwrap_or(0),
        },
    );
    let answer = |upload: &&UploadEntry| {
        let (owner, initiator) = of_upload(&upload.metadata, &other);
        dto::MultipartUpload {
            key: Some(names.write(&upload.key)),
            upload_id: Some(upload.id.0.clone()),
            initiated: upload.begun.map(dto::Timestamp::from),
            owner: Some(owner),
            initiator: Some(initiator),
            storage_class: Some(dto::StorageClass::from_static(dto::StorageClass::STANDARD)),
            ..Default::default()
        }
    };
    let next = page.next.filter(|_| max_uploads > 0);
    Ok(dto::ListMultipartUploadsOutput {
        bucket: Some(input.bucket),
        prefix: Some(names.write(input.prefix.as_deref().unwrap_or_default())),
        delimiter: input.delimiter.as_deref().map(|delimiter| names.write(delimiter)),
        key_marker: Some(names.write(input.key_marker.as_deref().unwrap_or_default())),
        upload_id_marker: input.upload_id_marker,
        encoding_type: input.encoding_type,
        max_uploads: Some(max_uploads),
        is_truncated: Some(next.is_some()),
        next_key_marker: next.as_ref().map(|(key, _)| names.write(key)),
        next_upload_id_marker: next.map(|(_, upload)| upload),
        common_prefixes: names.prefixes(&page.prefixes),
        uploads: Some(page.uploads.iter().map(answer).collect()),
        ..Default::default()
    })
}

struct UploadsQuery<'a> {
    prefix: &'a str,
    delimiter: Option<&'a str>,
    key_marker: &'a str,
    upload_marker: &'a str,
    max: usize,
}

#[derive(Default)]
struct UploadsPage<'a> {
    uploads: Vec<&'a UploadEntry>,
    prefixes: Vec<String>,
    /// Where the next page goes on, when there is one.
    next: Option<(String, String)>,
}

/// One page of sorted uploads. A marker names the last upload of the page before; a key marker
/// alone passes over every upload of that key, or of that folded prefix.
fn uploads_page<'a>(uploads: &'a [UploadEntry], query: &UploadsQuery<'_>) -> UploadsPage<'a> {
    let mut page = UploadsPage::default();
    let mut last = None;
    let mut past_marker = query.upload_marker.is_empty();
    for upload in uploads {
        let Some(rest) = upload.key.strip_prefix(query.prefix) else { continue };
        if upload.key.as_str() < query.key_marker {
            continue;
        }
        if upload.key == query.key_marker {
            let passed = past_marker;
            past_marker |= upload.id.0 == query.upload_marker;
            if query.upload_marker.is_empty() || !passed {
                continue;
            }
        }
        let folded = query
            .delimiter
            .and_then(|delimiter| rest.find(delimiter).map(|at| at + delimiter.len()))
            .map(|end| format!("{}{}", query.prefix, &rest[..end]));
        if let Some(prefix) = &folded
            && (page.prefixes.last() == Some(prefix) || prefix == query.key_marker)
        {
            continue;
        }
        if page.uploads.len() + page.prefixes.len() >= query.max {
            page.next = last;
            return page;
        }
        match folded {
            Some(prefix) => {
                last = Some((prefix.clone(), String::new()));
                page.prefixes.push(prefix);
            }
            None => {
                last = Some((upload.key.clone(), upload.id.0.clone()));
                page.uploads.push(upload);
            }
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_store::UploadId;

    fn upload(key: &str, id: &str) -> UploadEntry {
        UploadEntry { key: key.into(), id: UploadId(id.into()), begun: None, metadata: Vec::new() }
    }

    fn walk(uploads: &[UploadEntry], delimiter: Option<&str>, max: usize) -> Vec<String> {
        let (mut seen, mut marker) = (Vec::new(), (String::new(), String::new()));
        loop {
            let page = uploads_page(
                uploads,
                &UploadsQuery {
                    prefix: "",
                    delimiter,
                    key_marker: &marker.0,
                    upload_marker: &marker.1,
                    max,
                },
            );
            seen.extend(
                page.uploads.iter().map(|upload| format!("{} {}", upload.key, upload.id.0)),
            );
            seen.extend(page.prefixes.iter().cloned());
            match page.next {
                Some(next) => marker = next,
                None => return seen,
            }
        }
    }

    #[test]
    fn pages_of_any_size_give_every_upload_once() {
        let uploads = [
            upload("a", "1"),
            upload("b", "2"),
            upload("b", "3"),
            upload("d/x", "4"),
            upload("d/y", "5"),
        ];
        for max in 1..6 {
            assert_eq!(walk(&uploads, None, max), ["a 1", "b 2", "b 3", "d/x 4", "d/y 5"], "{max}");
            let mut folded = walk(&uploads, Some("/"), max);
            folded.sort();
            assert_eq!(folded, ["a 1", "b 2", "b 3", "d/"], "{max}");
        }
    }
}

//! ListMultipartUploads.

use crate::auth::bucket_owner;
use crate::buckets::{Bucket, Buckets};
use crate::checksum::UploadKind;
use crate::classes;
use crate::error::{Subject, to_s3};
use crate::list::{Names, page_size};
use crate::sharing::of_upload;
use penstock_store::UploadEntry;
use penstock_store::streaming::UploadsRequest;
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
    let max_uploads = page_size("max-uploads", input.max_uploads)?;
    let bucket = buckets.get(&input.bucket).await?;
    let prefix = input.prefix.as_deref().unwrap_or_default();
    let key_marker = input.key_marker.as_deref().unwrap_or_default();
    let mut page = Page {
        prefix,
        delimiter: input.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty()),
        key_marker,
        max: usize::try_from(max_uploads).unwrap_or(0),
        ..Page::default()
    };
    let request = UploadsRequest {
        prefix: bucket.key(prefix),
        key_marker: Some(key_marker)
            .filter(|key| !key.is_empty())
            .map_or_else(String::new, |key| bucket.key(key)),
        upload_marker: input.upload_id_marker.clone().unwrap_or_default(),
        token: None,
        max: page.max,
    };
    fill(&mut page, &bucket, request).await?;
    let answer = |upload: &UploadEntry| {
        let (owner, initiator) = of_upload(&upload.metadata, &other);
        let (checksum_algorithm, checksum_type) =
            UploadKind::of(&upload.metadata).map(UploadKind::to_dto).unzip();
        dto::MultipartUpload {
            key: Some(names.write(&upload.key)),
            upload_id: Some(upload.id.0.clone()),
            initiated: upload.begun.map(dto::Timestamp::from),
            checksum_algorithm,
            checksum_type,
            owner: Some(owner),
            initiator: Some(initiator),
            storage_class: Some(classes::of_upload(&upload.metadata, None)),
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

/// Fills a page, asking the back end for as much as it needs.
async fn fill(page: &mut Page<'_>, bucket: &Bucket, mut request: UploadsRequest) -> S3Result<()> {
    loop {
        let found = bucket.store.list_uploads(&request).await;
        let found = found.map_err(|error| to_s3(Subject::Bucket, error))?;
        for mut upload in found.uploads {
            upload.key.drain(..bucket.prefix().len());
            if !page.take(upload) {
                return Ok(());
            }
        }
        match found.next {
            Some(token) => request.token = Some(token),
            None => return Ok(()),
        }
    }
}

/// One page, filled from uploads that come in order, from behind its markers on.
#[derive(Default)]
struct Page<'a> {
    prefix: &'a str,
    delimiter: Option<&'a str>,
    key_marker: &'a str,
    max: usize,
    uploads: Vec<UploadEntry>,
    prefixes: Vec<String>,
    last: Option<(String, String)>,
    /// Where the next page goes on, when there is one.
    next: Option<(String, String)>,
}

impl Page<'_> {
    /// Takes the next upload; `false` once the page is full. The marker names its last upload; one
    /// that is a folded prefix passes over all of that.
    fn take(&mut self, upload: UploadEntry) -> bool {
        let Some(rest) = upload.key.strip_prefix(self.prefix) else { return true };
        let folded = self
            .delimiter
            .and_then(|delimiter| rest.find(delimiter).map(|at| at + delimiter.len()))
            .map(|end| format!("{}{}", self.prefix, &rest[..end]));
        if let Some(prefix) = &folded
            && (self.prefixes.last() == Some(prefix) || prefix == self.key_marker)
        {
            return true;
        }
        if self.uploads.len() + self.prefixes.len() >= self.max {
            self.next = self.last.take();
            return false;
        }
        match folded {
            Some(prefix) => {
                self.last = Some((prefix.clone(), String::new()));
                self.prefixes.push(prefix);
            }
            None => {
                self.last = Some((upload.key.clone(), upload.id.0.clone()));
                self.uploads.push(upload);
            }
        }
        true
    }
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
            let key_marker = marker.0.as_str();
            let mut page = Page { delimiter, key_marker, max, ..Page::default() };
            // Behind the markers, as a store cuts them.
            let is_behind = |upload: &&UploadEntry| {
                let at = (upload.key.as_str(), upload.id.0.as_str());
                match marker.1.is_empty() {
                    true => upload.key.as_str() > key_marker,
                    false => at > (key_marker, marker.1.as_str()),
                }
            };
            uploads.iter().filter(is_behind).all(|upload| page.take(upload.clone()));
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

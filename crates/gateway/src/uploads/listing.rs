//! ListMultipartUploads.

use crate::auth::bucket_owner;
use crate::buckets::Buckets;
use crate::checksum::UploadKind;
use crate::classes;
use crate::error::{Subject, to_s3};
use crate::list::{Names, page_size};
use crate::sharing::of_upload;
use crate::sound::Asked;
use penstock_base::Result;
use penstock_store::streaming::{UploadsPage, UploadsRequest};
use penstock_store::{Progress, UploadEntry};
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
    let (store, within) = (&bucket.store, (bucket.store.root(), bucket.prefix()));
    let list = |request: UploadsRequest| async move { store.list_uploads(&request).await };
    let filled = fill(&mut page, within, request, list).await;
    filled.map_err(|error| to_s3(Subject::Bucket, error))?;
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

/// How many uploads a directory bucket of S3 is asked for, which can only be told if they are all.
const UNORDERED_MAX: usize = 1000;

/// Fills a page from a store's listing, asking for as much as it needs; its keys come without the
/// prefix that they lie `within`.
///
/// # Errors
/// The store's, and `Corrupt` for uploads that were not asked for.
async fn fill<F: Future<Output = Result<UploadsPage>>>(
    page: &mut Page<'_>,
    (root, within): (&str, &str),
    mut request: UploadsRequest,
    list: impl Fn(UploadsRequest) -> F,
) -> Result<()> {
    let (prefix, after) = (request.prefix.clone(), request.key_marker.clone());
    let after = (!after.is_empty()).then_some(after.as_str());
    let asked = Asked { root, prefix: &prefix, after };
    let mut progress = Progress::default();
    let upload_marker = request.upload_marker.clone();
    if asked.is_unordered() {
        // Its markers are none of a client's, and all of it is needed.
        let max = UNORDERED_MAX;
        request = UploadsRequest { prefix: request.prefix, max, ..UploadsRequest::default() };
    }
    loop {
        let mut found = list(request.clone()).await?;
        if asked.is_unordered() {
            asked.put_uploads_in_order(&mut found, &upload_marker)?;
        }
        asked.uploads(&found.uploads, &upload_marker)?;
        for mut upload in found.uploads {
            // Every key begins with it.
            upload.key.drain(..within.len());
            if !page.take(upload) {
                return Ok(());
            }
        }
        match found.next {
            Some(token) => request.token = Some(asked.next(&mut progress, token)?),
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
    use futures_util::FutureExt as _;
    use penstock_base::Kind;
    use penstock_store::UploadId;
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::future::ready;

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

    /// Some begin with the prefixes that are asked for below, some with a part of them.
    const NAME: &str = "(t|te|team|team/|team/d|\u{e9})?(/|\u{e9}|d/|[a-c]){0,3}";

    fn any_page() -> impl Strategy<Value = UploadsPage> {
        let uploads = prop::collection::vec((NAME, "[1-3]"), 0..4);
        (uploads, prop::option::of("[xyz]")).prop_map(|(mut rows, next)| {
            if rows.len() % 2 == 0 {
                rows.sort();
            }
            let uploads = rows.iter().map(|(key, id)| upload(key, id)).collect();
            UploadsPage { uploads, next }
        })
    }

    proptest! {
        #[test]
        fn whatever_a_back_end_lists_only_what_was_asked_for_is_shown(
            pages in prop::collection::vec(any_page(), 1..5),
            within in "(team/)?",
            prefix in "(d|d/)?",
            key_marker in "[a-d/]{0,3}",
            upload_marker in "[1-3]?",
            delimiter in prop::option::of("/"),
            max in 0usize..4,
        ) {
            let inside = |name: &str| format!("{within}{name}");
            let request = UploadsRequest {
                prefix: inside(&prefix),
                key_marker: if key_marker.is_empty() { String::new() } else { inside(&key_marker) },
                upload_marker: upload_marker.clone(),
                token: None,
                max,
            };
            let next = Cell::new(0);
            let stubborn = |_| {
                let page = pages[next.get() % pages.len()].clone();
                next.set(next.get() + 1);
                ready(Ok(page))
            };
            let delimiter = delimiter.as_deref();
            let (prefix, key_marker) = (prefix.as_str(), key_marker.as_str());
            let mut page = Page { prefix, delimiter, key_marker, max, ..Page::default() };
            let filled = fill(&mut page, ("s3://c/", &within), request, stubborn).now_or_never();
            match filled.expect("nothing is waited for") {
                Err(error) => prop_assert_eq!(error.kind(), Kind::Corrupt),
                Ok(()) => {
                    let keys = page.uploads.iter().map(|it| it.key.as_str());
                    let names = || keys.clone().chain(page.prefixes.iter().map(String::as_str));
                    prop_assert!(names().all(|name| name.starts_with(prefix)));
                    prop_assert!(keys.clone().all(|key| key >= key_marker));
                    prop_assert!(page.uploads.len() + page.prefixes.len() <= max);
                }
            }
        }
    }
}

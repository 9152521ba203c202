//! Reads the XML answers of S3: listings, upload ids, results of batches, copies and completions.
//! Pure.

mod gateway;
mod google;

pub(crate) use gateway::{
    parse_buckets, parse_copied_part, parse_location, parse_parts, parse_retention,
    parse_upload_class, parse_uploads, parse_versioning, parse_versions,
};
pub(crate) use google::parse_generations;

use crate::answer::{Failure, parse_iso_date};
use crate::notes::told_class;
use crate::s3::request::{NO_STORE_HINT, strange};
use crate::streaming::{split_version, versioned};
use crate::xml::{Element, is_error_document, walk};
use crate::{ETag, ListEntry, ListPage, ObjectMeta, Removed};
use ::http::HeaderMap;
use penstock_base::{Error, Kind, Result, Retry};
use percent_encoding::percent_decode_str;
use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

/// One page of ListObjectsV2.
///
/// # Errors
/// `Corrupt` for an answer that is no listing.
pub(crate) fn parse_listing(bytes: &[u8]) -> Result<ListPage> {
    let mut page = ListPage::default();
    let (mut key, mut meta) = (None, ObjectMeta::default());
    let mut prefix = None;
    let (mut encoded, mut truncated, mut token) = (false, None, None);
    walk_root(bytes, &["ListBucketResult"], "a listing", |element| {
        let text = element.text;
        match element.path[1..].iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["Contents", "Key"] => key = Some(text.to_string()),
            ["Contents", "Size"] => meta.size_bytes = text.trim().parse().ok(),
            ["Contents", "ETag"] => {
                meta.etag = Some(ETag::parse(text)).filter(|etag| !etag.0.is_empty());
            }
            ["Contents", "StorageClass"] => meta.storage_class = told_class(text),
            ["Contents", "LastModified"] => meta.modified = parse_iso_date(text),
            ["Contents"] => {
                let key = key.take().ok_or_else(|| strange("a name in the listing"))?;
                if meta.size_bytes.is_none() {
                    return Err(strange("a size in the listing"));
                }
                page.objects.push(ListEntry { key, meta: std::mem::take(&mut meta) });
            }
            ["CommonPrefixes", "Prefix"] => prefix = Some(text.to_string()),
            ["CommonPrefixes"] => {
                page.prefixes.push(prefix.take().ok_or_else(|| strange("a prefix"))?);
            }
            [name] if is_encoding(name) => encoded = text.trim() == "url",
            ["IsTruncated"] => truncated = Some(is_true(text)?),
            ["NextContinuationToken"] => token = Some(text.to_string()),
            _ => {}
        }
        Ok(())
    })?;
    if encoded {
        for entry in &mut page.objects {
            entry.key = decode_url(&entry.key)?;
        }
        for prefix in &mut page.prefixes {
            *prefix = decode_url(prefix)?;
        }
    }
    let token = token.filter(|token: &String| !token.is_empty());
    // Where only the token tells that there is more.
    page.next = match (truncated.unwrap_or(token.is_some()), token) {
        (true, Some(token)) => Some(token),
        (true, _) => return Err(strange("the token of the next page")),
        (false, _) => None,
    };
    Ok(page)
}

/// Whether there is more. Some servers begin with a capital; what is neither word is refused, since
/// names would be missing.
fn is_true(text: &str) -> Result<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" | "" => Ok(false),
        _ => Err(strange("whether there is another page")),
    }
}

/// The element that tells how names are written, which Google spells in its own way.
fn is_encoding(element: &str) -> bool {
    matches!(element, "EncodingType" | "Encoding-Type")
}

/// Text of `encoding-type=url`, in which a space is a plus sign.
fn decode_url(text: &str) -> Result<String> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8().map_err(|error| {
        Error::new(Kind::Corrupt, "a name in the listing is no UTF-8").with_source(error)
    })?;
    Ok(decoded.into_owned())
}

/// The id of a new upload.
///
/// # Errors
/// `Corrupt` for an answer without one.
pub(crate) fn parse_upload_id(bytes: &[u8]) -> Result<String> {
    let mut id = None;
    walk_written(bytes, "InitiateMultipartUploadResult", "an upload id", |element| {
        if element.is_at(&["UploadId"]) {
            id = Some(element.text.trim().to_string());
        }
        Ok(())
    })?;
    id.filter(|id| !id.is_empty()).ok_or_else(|| strange("an upload id"))
}

/// ETag and time of a copy, or the tag of a completed upload, from an answer with this root.
///
/// # Errors
/// The service's own error, which S3 may put into an answer of status 200; `Corrupt` for anything
/// else that does not say what was written, such as a proxy's web page.
pub(crate) fn parse_written(bytes: &[u8], root: &str) -> Result<(ETag, Option<SystemTime>)> {
    let (mut etag, mut modified) = (None, None);
    walk_written(bytes, root, "the result of the write", |element| {
        match element.path.last().map(String::as_str) {
            Some("ETag") if element.path.len() == 2 => etag = Some(ETag::parse(element.text)),
            Some("LastModified") => modified = parse_iso_date(element.text),
            _ => {}
        }
        Ok(())
    })?;
    let etag = etag.filter(|etag| !etag.0.is_empty()).ok_or_else(|| strange("an ETag"))?;
    Ok((etag, modified))
}

/// What became of the names of a batch delete, in the order asked. One that the answer does not
/// name was removed: a request may ask for failures only. A failure that names no version is one of
/// each version of its key.
///
/// # Errors
/// `Corrupt` for an answer that is none.
pub(crate) fn parse_deleted(
    bytes: &[u8],
    keys: &[String],
    root: &str,
) -> Result<Vec<Result<Removed>>> {
    let mut failures: HashMap<String, (String, String)> = HashMap::new();
    let mut removals: HashMap<String, Removed> = HashMap::new();
    let (mut key, mut code, mut message) = (None, String::new(), String::new());
    let (mut removal, mut version) = (Removed::default(), None);
    let named = |key: Option<String>, version: Option<String>| {
        let key = key.ok_or_else(|| strange("a name in the batch's results"))?;
        Ok::<_, Error>(version.map_or_else(|| key.clone(), |id| versioned(&key, &id)))
    };
    walk_written(bytes, "DeleteResult", "the results of the batch", |element| {
        if element.is_at(&["Error", "Key"]) || element.is_at(&["Deleted", "Key"]) {
            key = Some(element.text.to_string());
        } else if element.is_at(&["Error", "VersionId"]) || element.is_at(&["Deleted", "VersionId"])
        {
            version = Some(element.text.trim().to_string()).filter(|id| !id.is_empty());
        } else if element.is_at(&["Deleted", "DeleteMarker"]) {
            removal.is_marker = element.text.trim() == "true";
        } else if element.is_at(&["Deleted", "DeleteMarkerVersionId"]) {
            removal.version = Some(element.text.trim().to_string()).filter(|id| !id.is_empty());
        } else if element.is_at(&["Deleted"]) {
            let name = named(key.take(), version.take())?;
            removals.insert(name, std::mem::take(&mut removal));
        } else if element.is_at(&["Error", "Code"]) {
            code = element.text.to_string();
        } else if element.is_at(&["Error", "Message"]) {
            message = element.text.to_string();
        } else if element.is_at(&["Error"]) {
            let name = named(key.take(), version.take())?;
            failures.insert(name, (std::mem::take(&mut code), std::mem::take(&mut message)));
        }
        Ok(())
    })?;
    // A failure of a version that nobody asked for is one of its key: it is not passed over.
    let asked: HashSet<&String> = keys.iter().collect();
    let others: HashMap<String, (String, String)> = failures
        .iter()
        .filter(|(name, _)| !asked.contains(name))
        .map(|(name, failure)| (split_version(name).0.to_string(), failure.clone()))
        .collect();
    let result = |name: &String| {
        let (key, version) = split_version(name);
        let removal = removals.get(name);
        let failure = failures.get(name).or_else(|| failures.get(key)).or_else(|| others.get(key));
        let Some((code, message)) = failure.filter(|_| removal.is_none()) else {
            let mut removal = removal.cloned().unwrap_or_default();
            removal.version = removal.version.or_else(|| version.map(str::to_string));
            return Ok(removal);
        };
        if code == "NoSuchKey" {
            return Ok(Removed::default());
        }
        let failure = Failure {
            // A code that nobody knows counts as a failure on the store's side.
            status: 500,
            code: code.clone(),
            message: message.clone(),
            ..Failure::default()
        };
        let error = failure.into_error(None);
        Err(error.with_operation("delete").with_object(format!("{root}{name}")))
    };
    Ok(keys.iter().map(result).collect())
}

/// Walks an answer that must have one of these roots, so that a well-formed page of a proxy is
/// never taken for a result.
fn walk_root(
    bytes: &[u8],
    roots: &[&str],
    what: &str,
    mut visit: impl FnMut(Element<'_>) -> Result<()>,
) -> Result<()> {
    let walked = walk(bytes, |element| {
        if !roots.contains(&element.path[0].as_str()) {
            return Err(strange(what));
        }
        visit(element)
    });
    walked.map_err(|error| error.with_hint(NO_STORE_HINT))
}

/// The same of the answer to a write: S3 may put an error into an answer of status 200.
fn walk_written(
    bytes: &[u8],
    root: &str,
    what: &str,
    visit: impl FnMut(Element<'_>) -> Result<()>,
) -> Result<()> {
    let walked = walk_root(bytes, &[root], what, visit);
    if walked.is_err() && is_error_document(bytes) {
        // Status 500: the work was begun and its end is not known, unless the code says more.
        let failure = Failure::parse(500, &HeaderMap::new(), bytes, SystemTime::now());
        return Err(late_failure(failure));
    }
    walked
}

/// A failure that a 200 carried: worth another try unless the code says otherwise.
fn late_failure(failure: Failure) -> Error {
    let unknown = failure.code.is_empty();
    let error = failure.into_error(None);
    if unknown { error.with_retry(Retry::BackOff) } else { error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COMPLETED: &str = "CompleteMultipartUploadResult";

    #[test]
    fn no_spelling_of_is_truncated_loses_a_page() {
        const TOKEN: &str = "<NextContinuationToken>t</NextContinuationToken>";
        let next = |told: &str| {
            let text = format!("<ListBucketResult>{told}</ListBucketResult>");
            parse_listing(text.as_bytes()).map(|page| page.next)
        };
        for told in ["true", "True", " TRUE\n"] {
            let told = format!("<IsTruncated>{told}</IsTruncated>");
            assert_eq!(next(&format!("{told}{TOKEN}")).unwrap().as_deref(), Some("t"), "{told}");
            assert_eq!(next(&told).unwrap_err().kind(), Kind::Corrupt, "{told}");
        }
        for told in ["", "false", "False"] {
            assert_eq!(next(&format!("<IsTruncated>{told}</IsTruncated>{TOKEN}")).unwrap(), None);
        }
        assert_eq!(next(TOKEN).unwrap().as_deref(), Some("t"));
        assert_eq!(next("").unwrap(), None);
        assert_eq!(next("<IsTruncated>ja</IsTruncated>").unwrap_err().kind(), Kind::Corrupt);
    }

    #[test]
    fn only_the_expected_root_with_a_tag_is_a_write() {
        let good = format!("  <{COMPLETED} xmlns=\"u\"><ETag>&quot;e-1&quot;</ETag></{COMPLETED}>");
        assert_eq!(parse_written(good.as_bytes(), COMPLETED).unwrap().0.0, "e-1");
        for answer in [
            "",
            "<html><body><h1>Please sign in</h1></body></html>",
            "<!DOCTYPE html><html><body>x<br></body></html>",
            "<html><ETag>e</ETag></html>",
            "<CopyObjectResult><ETag>e</ETag></CopyObjectResult>",
            "<CompleteMultipartUploadResult/>",
            "<CompleteMultipartUploadResult><ETag>&quot;&quot;</ETag>\
             </CompleteMultipartUploadResult>",
            "<CompleteMultipartUploadResult><ETag>e</ETag>",
            "<CompleteMultipartUploadResult><Part><ETag>e</ETag></Part>\
             </CompleteMultipartUploadResult>",
        ] {
            let error = parse_written(answer.as_bytes(), COMPLETED).unwrap_err();
            let found = (error.kind(), error.retry());
            assert_eq!(found, (Kind::Corrupt, Retry::Briefly), "{answer}");
            assert!(error.hint().unwrap().contains("proxy"), "{answer}");
        }
    }

    #[test]
    fn a_batch_tells_what_became_of_each_key() {
        let answer = b"<DeleteResult><Deleted><Key>plain</Key></Deleted>\
            <Deleted><Key>kept</Key><DeleteMarker>true</DeleteMarker>\
            <DeleteMarkerVersionId>m1</DeleteMarkerVersionId></Deleted>\
            <Error><Key>held</Key><Code>AccessDenied</Code><Message>no</Message></Error>\
            </DeleteResult>";
        let keys = ["kept", "held", "unnamed", "plain"].map(str::to_string);
        let results = parse_deleted(answer, &keys, "s3://b/").unwrap();
        let told: Vec<_> =
            results.iter().map(|it| it.as_ref().map_err(|error| error.kind())).collect();
        let marker = Removed { version: Some("m1".into()), is_marker: true };
        let plain = Removed::default();
        assert_eq!(told, [Ok(&marker), Err(Kind::Denied), Ok(&plain), Ok(&plain)]);
    }

    #[test]
    fn a_batch_tells_what_became_of_each_version() {
        let answer = b"<DeleteResult>\
            <Deleted><Key>k</Key><VersionId>1</VersionId></Deleted>\
            <Deleted><Key>k</Key><VersionId>m</VersionId><DeleteMarker>true</DeleteMarker>\
            <DeleteMarkerVersionId>m</DeleteMarkerVersionId></Deleted>\
            <Error><Key>k</Key><VersionId>2</VersionId><Code>AccessDenied</Code></Error>\
            <Error><Key>l</Key><Code>AccessDenied</Code></Error></DeleteResult>";
        let names = [("k", "m"), ("k", "2"), ("k", "1"), ("l", "1")];
        let names = names.map(|(key, id)| versioned(key, id));
        let results = parse_deleted(answer, &names, "s3://b/").unwrap();
        let told: Vec<_> =
            results.iter().map(|it| it.as_ref().map_err(|error| error.kind())).collect();
        let marker = Removed { version: Some("m".into()), is_marker: true };
        let version = Removed { version: Some("1".into()), is_marker: false };
        let denied = Err(Kind::Denied);
        assert_eq!(told, [Ok(&marker), denied, Ok(&version), denied]);
    }

    #[test]
    fn a_removal_that_is_told_counts_and_no_failure_is_passed_over() {
        let answer = b"<DeleteResult>\
            <Error><Key>k</Key><Code>AccessDenied</Code></Error>\
            <Deleted><Key>k</Key><VersionId>1</VersionId></Deleted>\
            <Error><Key>l</Key><VersionId>null</VersionId><Code>AccessDenied</Code></Error>\
            </DeleteResult>";
        let version = versioned("k", "1");
        let keys = ["k", &version, "l", "m"].map(str::to_string);
        let results = parse_deleted(answer, &keys, "s3://b/").unwrap();
        let told: Vec<_> = results.iter().map(Result::is_ok).collect();
        assert_eq!(told, [false, true, false, true]);
    }

    #[test]
    fn foreign_answers_are_no_results() {
        for answer in [
            "<html><UploadId>u</UploadId></html>",
            "<ListBucketResults/>",
            "<r><ListBucketResult/></r>",
            "<!DOCTYPE html><html><p>x</html>",
        ] {
            let errors = [
                parse_listing(answer.as_bytes()).unwrap_err(),
                parse_upload_id(answer.as_bytes()).unwrap_err(),
                parse_deleted(answer.as_bytes(), &["k".into()], "s3://b/").unwrap_err(),
            ];
            for error in errors {
                let found = (error.kind(), error.retry());
                assert_eq!(found, (Kind::Corrupt, Retry::Briefly), "{answer}");
                assert!(error.hint().unwrap().contains("proxy"), "{answer}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_other_root_is_a_write(root in "[A-Za-z]{1,40}", tag in "[a-f0-9]{1,32}") {
            prop_assume!(root != COMPLETED);
            let answer = format!("<{root}><ETag>{tag}</ETag></{root}>");
            prop_assert!(parse_written(answer.as_bytes(), COMPLETED).is_err());
        }
    }
}

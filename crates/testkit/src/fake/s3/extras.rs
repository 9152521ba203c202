//! Tags of objects, and `ListObjectVersions` of a bucket that keeps none: each object with the one
//! version `null`.

use super::super::codec::{iso_date, percent_decode};
use super::super::http::{Request, Response};
use super::super::refusal::{Refusal, Served};
use super::super::vault::{Lines, Object};
use super::super::xml::{Writer, parse};
use super::Call;
use super::object::class_of;
use super::payload::Payload;

const NAMESPACE: &str = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";

/// Tags that come with a write.
pub fn tags_of_header(request: &Request) -> Lines {
    let text = request.headers.get("x-amz-tagging").unwrap_or_default();
    let decode = |text: &str| percent_decode(text, true).unwrap_or_default();
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name), decode(value))
    };
    pairs.map(pair).collect()
}

/// `GetObjectTagging`.
///
/// # Errors
/// `NoSuchKey`.
pub fn get_tags(call: &Call<'_>) -> Served {
    let found = call.server.vault.with(|state| state.object(&call.target.bucket, &call.target.key));
    let object = found.ok_or_else(|| call.no_such_key())?;
    let mut xml = Writer::default();
    xml.open("Tagging", NAMESPACE).open("TagSet", "");
    for (name, value) in &object.tags {
        xml.open("Tag", "").text("Key", name).text("Value", value).close("Tag");
    }
    xml.close("TagSet").close("Tagging");
    Ok(Response::text(200, "application/xml", xml.finish()))
}

/// `PutObjectTagging`, and `DeleteObjectTagging` without a payload.
///
/// # Errors
/// `NoSuchKey`, `MalformedXML`.
pub fn set_tags(call: &Call<'_>, payload: Option<&Payload>) -> Served {
    let mut tags = Lines::new();
    if let Some(payload) = payload {
        let document = parse(&payload.text()).filter(|node| node.name == "Tagging");
        let malformed = || Refusal::new(400, "MalformedXML", "The XML was not well-formed");
        let document = document.ok_or_else(malformed)?;
        for tag in document.children.iter().flat_map(|set| &set.children) {
            let text = |name| tag.child_text(name).unwrap_or_default().to_string();
            tags.push((text("Key"), text("Value")));
        }
    }
    let (bucket, key) = (&call.target.bucket, &call.target.key);
    call.server.vault.with(|state| -> Result<(), Refusal> {
        let object = state.object(bucket, key).ok_or_else(|| call.no_such_key())?;
        state.place(bucket, key, Object { tags, ..(*object).clone() });
        Ok(())
    })?;
    Ok(Response::new(if payload.is_some() { 200 } else { 204 }))
}

/// `ListObjectVersions`, by version 1 of the listing of objects: without delimiters.
pub fn versions(call: &Call<'_>) -> Response {
    let query = &call.request.query;
    let most: usize = query.get("max-keys").and_then(|most| most.parse().ok()).unwrap_or(1000);
    let prefix = query.get("prefix").unwrap_or_default();
    let marker = query.get("key-marker").unwrap_or_default();
    let delimiter = query.get("delimiter").unwrap_or_default();
    let mut xml = Writer::default();
    xml.open("ListVersionsResult", NAMESPACE);
    let (mut shown, mut last, mut more) = (0, String::new(), false);
    call.server.vault.with(|state| {
        let Some(bucket) = state.buckets.get(&call.target.bucket) else { return };
        for (key, object) in &bucket.objects {
            let Some(rest) = key.strip_prefix(prefix) else { continue };
            let fold = rest.find(delimiter).filter(|_| !delimiter.is_empty());
            let fold = fold.map(|at| format!("{prefix}{}", &rest[..at + delimiter.len()]));
            let name = fold.clone().unwrap_or_else(|| key.clone());
            if name.as_str() <= marker || name == last {
                continue;
            }
            if shown == most {
                more = true;
                return;
            }
            (shown, last) = (shown + 1, name);
            match fold {
                Some(fold) => {
                    xml.open("CommonPrefixes", "").text("Prefix", fold).close("CommonPrefixes");
                }
                None => {
                    xml.open("Version", "").text("Key", key).text("VersionId", "null");
                    xml.text("IsLatest", "true").text("LastModified", iso_date(object.modified));
                    xml.text("ETag", format!("\"{}\"", object.etag));
                    xml.text("Size", object.data.len().to_string());
                    xml.text("StorageClass", class_of(&object.headers)).close("Version");
                }
            }
        }
    });
    xml.text("IsTruncated", more.to_string());
    if more {
        xml.text("NextKeyMarker", last).text("NextVersionIdMarker", "null");
    }
    xml.close("ListVersionsResult");
    Response::text(200, "application/xml", xml.finish())
}

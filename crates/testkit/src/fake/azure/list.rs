//! `List Blobs`: opaque markers, names that XML cannot hold, folds among the names.

use super::super::codec::{hex, http_date, percent_encode, unhex};
use super::super::digest::hmac;
use super::super::http::Response;
use super::super::listing::{Name, PageRequest, Start, page};
use super::super::refusal::{Refusal, Served};
use super::super::vault::{Bucket, Object};
use super::super::xml::Writer;
use super::Call;
use super::blob::tier_of;
use super::hierarchy;
use super::versions::{self, Version};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

/// Most names of a page, whatever is asked for.
const PAGE_MAX: usize = 5000;

/// The refusal of a query parameter.
pub fn invalid(parameter: &str) -> Refusal {
    let message = format!(
        "Value for one of the query parameters specified in the request URI is invalid: {parameter}"
    );
    Refusal::new(400, "InvalidQueryParameterValue", message)
}

fn seal(key: &str, text: &[u8]) -> String {
    hex(&hmac(key.as_bytes(), text)[..8])
}

/// A marker says nothing to a client, and none but ours is taken: as on the real service, a key
/// is not a marker.
fn marker(start: &Start, key: &str) -> String {
    let bytes: Vec<u8> = start.to_text().bytes().rev().map(|byte| byte ^ 0xA5).collect();
    format!("2!{}!{}!{}", bytes.len(), hex(&bytes), seal(key, &bytes))
}

fn read_marker(text: &str, key: &str) -> Result<Start, Refusal> {
    let read = || {
        let [version, _len, body, told] = text.split('!').collect::<Vec<_>>()[..] else {
            return None;
        };
        let mut bytes = unhex(body)?;
        if version != "2" || seal(key, &bytes) != told {
            return None;
        }
        bytes.reverse();
        bytes.iter_mut().for_each(|byte| *byte ^= 0xA5);
        Start::from_text(&String::from_utf8(bytes).ok()?)
    };
    read().ok_or_else(|| invalid("marker"))
}

/// Serves a page; `empty` is the fault that makes it one without names.
///
/// # Errors
/// `InvalidQueryParameterValue`, `OutOfRangeQueryParameterValue`.
pub fn blobs(call: &Call<'_>, empty: bool) -> Served {
    let most = match call.query("maxresults").map(str::parse::<usize>) {
        None => PAGE_MAX,
        Some(Ok(most @ 1..)) => most.min(PAGE_MAX),
        Some(Ok(0)) => {
            let message = "One of the query parameters specified is outside the permissible range.";
            return Err(Refusal::new(400, "OutOfRangeQueryParameterValue", message).into());
        }
        Some(_) => return Err(invalid("maxresults").into()),
    };
    let secret = &call.server.options.key;
    let start = match (call.query("marker"), call.query("startFrom")) {
        (Some(text), _) if !text.is_empty() => read_marker(text, secret)?,
        (_, Some(name)) if !name.is_empty() => Start::At(name.to_string()),
        _ => Start::First,
    };
    let request = PageRequest {
        prefix: call.query("prefix").unwrap_or(""),
        delimiter: call.query("delimiter").unwrap_or(""),
        from: &start,
        most,
    };
    let include: Vec<&str> = call.query("include").unwrap_or("").split(',').collect();
    if call.server.options.hierarchical {
        hierarchy::check(call, request)?;
        if include.contains(&"versions") {
            return Err(invalid("include").into());
        }
    }
    let listed = call.server.vault.with(|state| {
        let Some(bucket) = state.buckets.get(&call.target.bucket) else {
            return page(&BTreeMap::new(), request);
        };
        if call.server.options.hierarchical {
            let with_blocks =
                include.contains(&"uncommittedblobs").then(|| with_uncommitted(bucket));
            return hierarchy::page_of(with_blocks.as_ref().unwrap_or(&bucket.objects), request);
        }
        if include.contains(&"versions") && call.server.options.versioning {
            return page(&versions::all(bucket), request);
        }
        match include.contains(&"uncommittedblobs") {
            true => page(&with_uncommitted(bucket), request),
            false => page(&bucket.objects, request),
        }
    });
    let (names, next) = match empty {
        true => (Vec::new(), Some(start.clone())),
        false => (listed.names, listed.next),
    };
    let next = next.map(|next| marker(&next, secret));
    let xml = render(call, &names, next.as_deref(), include.contains(&"metadata"));
    Ok(Response::text(200, "application/xml", xml))
}

/// Blobs, and blobs of no bytes for those that have uncommitted blocks only.
fn with_uncommitted(bucket: &Bucket) -> BTreeMap<String, Arc<Object>> {
    let mut all = bucket.objects.clone();
    for name in bucket.blocks.keys() {
        all.entry(name.clone()).or_insert_with(|| {
            Arc::new(Object {
                data: super::super::data::Data::from(Bytes::new()),
                etag: String::new(),
                modified: SystemTime::UNIX_EPOCH,
                headers: Vec::new(),
                metadata: Vec::new(),
                checksums: Vec::new(),
                tags: Vec::new(),
                blocks: Vec::new(),
            })
        });
    }
    all
}

fn render(call: &Call<'_>, names: &[Name], next: Option<&str>, metadata: bool) -> String {
    let mut xml = Writer::default();
    xml.open("EnumerationResults", &format!("ContainerName=\"{}\"", call.target.bucket));
    for (parameter, element) in [
        ("prefix", "Prefix"),
        ("marker", "Marker"),
        ("startFrom", "StartFrom"),
        ("maxresults", "MaxResults"),
        ("delimiter", "Delimiter"),
    ] {
        if let Some(value) = call.query(parameter) {
            write_name(&mut xml, element, value);
        }
    }
    xml.open("Blobs", "");
    for name in names {
        match name {
            Name::Fold(fold) => {
                xml.open("BlobPrefix", "");
                write_name(&mut xml, "Name", fold);
                if call.server.options.hierarchical {
                    xml.open("Properties", "").text("ResourceType", "directory");
                    xml.close("Properties");
                }
                xml.close("BlobPrefix");
            }
            Name::Object(name, object) => {
                let (key, version) = versions::split(name);
                let kind = call.server.options.hierarchical.then(|| hierarchy::kind(object));
                write_blob(&mut xml, (key, version), (object, kind), metadata);
            }
        }
    }
    xml.close("Blobs").text("NextMarker", next.unwrap_or("")).close("EnumerationResults");
    xml.finish()
}

/// Names with characters that XML 1.0 forbids come percent-encoded and say so.
fn write_name(xml: &mut Writer, element: &str, name: &str) {
    let forbidden = |letter: char| {
        (letter < ' ' && !matches!(letter, '\t' | '\n' | '\r'))
            || matches!(letter, '\u{FFFE}' | '\u{FFFF}')
    };
    if name.contains(forbidden) {
        xml.text_with(element, "Encoded=\"true\"", &percent_encode(name, b""));
    } else {
        xml.text(element, name);
    }
}

fn write_blob(
    xml: &mut Writer,
    (key, version): (&str, Option<Version>),
    (object, kind): (&Object, Option<&str>),
    metadata: bool,
) {
    xml.open("Blob", "");
    write_name(xml, "Name", key);
    if let Some(version) = version {
        version.list(xml);
    }
    xml.open("Properties", "");
    xml.text("Creation-Time", http_date(object.modified));
    xml.text("Last-Modified", http_date(object.modified)).text("Etag", &object.etag);
    xml.text("Content-Length", object.data.len().to_string());
    for (header, element) in [
        ("content-type", "Content-Type"),
        ("content-encoding", "Content-Encoding"),
        ("content-language", "Content-Language"),
        ("content-md5", "Content-MD5"),
        ("cache-control", "Cache-Control"),
        ("content-disposition", "Content-Disposition"),
    ] {
        let value = object.headers.iter().find(|(name, _)| name == header);
        xml.text(element, value.map_or("", |(_, value)| value.as_str()));
    }
    xml.text("BlobType", "BlockBlob");
    if let Some(kind) = kind {
        xml.text("ResourceType", kind);
    }
    match tier_of(object) {
        Some(tier) => xml.text("AccessTier", tier),
        None => xml.text("AccessTier", "Hot").text("AccessTierInferred", "true"),
    };
    xml.text("LeaseStatus", "unlocked");
    xml.text("LeaseState", "available").text("ServerEncrypted", "true");
    xml.close("Properties");
    if metadata {
        xml.open("Metadata", "");
        for (name, value) in &object.metadata {
            xml.text(name, value);
        }
        xml.close("Metadata");
    }
    xml.close("Blob");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn markers_read_back_and_only_ours_do(key in "[a-z/ü%!]{3,40}", other: String) {
            let start = Start::AfterFold(key.clone());
            let text = marker(&start, "k");
            prop_assert!(!text.contains(&key));
            prop_assert_eq!(read_marker(&text, "k").unwrap(), start);
            prop_assert!(read_marker(&text, "another key").is_err());
            prop_assert!(read_marker(&key, "k").is_err());
            prop_assert!(read_marker(&other, "k").is_err());
        }
    }
}

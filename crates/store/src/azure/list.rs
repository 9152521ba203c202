//! Answers of List Blobs, and this store's tokens for their pages. Lists of accounts with a
//! hierarchical namespace are put in order in `hierarchy`.
//!
//! Markers are opaque: on the real service they are no keys, and a page may be empty and still not
//! be the last. What was asked with `start_after` is filtered here again, since emulators and older
//! services know nothing of `startFrom`, and since it includes the name itself. A prefix that
//! `start_after` lies in does not tell whether a name behind it does; that is asked for.

use super::wire::marks_directory;
use super::{AzureStore, tier};
use crate::answer::parse_http_date;
use crate::{ContainerEntry, ETag, ListEntry, ListPage, ListRequest, ObjectMeta, Store as _, xml};
use penstock_base::{Error, Kind, Result, Retry};
use percent_encoding::percent_decode_str;
use std::cmp::Ordering;

/// Where the next page begins: the service's marker, and the name to filter by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Token {
    pub marker: String,
    pub start_after: Option<String>,
}

impl Token {
    /// `m<marker>`, or `s<length>:<start_after><marker>`.
    pub fn text(&self) -> String {
        match &self.start_after {
            None => format!("m{}", self.marker),
            Some(name) => format!("s{}:{name}{}", name.len(), self.marker),
        }
    }

    pub fn parse(text: &str) -> Result<Self> {
        let foreign = || Error::new(Kind::Invalid, "the listing token is not one of this store");
        if let Some(marker) = text.strip_prefix('m') {
            return Ok(Token { marker: marker.to_string(), start_after: None });
        }
        let (length, rest) =
            text.strip_prefix('s').and_then(|rest| rest.split_once(':')).ok_or_else(foreign)?;
        let length: usize = length.parse().map_err(|_| foreign())?;
        let (name, marker) = rest.split_at_checked(length).ok_or_else(foreign)?;
        Ok(Token { marker: marker.to_string(), start_after: Some(name.to_string()) })
    }
}

/// Names to ask for where one behind `start_after` is looked for, which itself comes with them.
const PROBE_NAMES: u32 = 2;

impl AzureStore {
    /// Leaves out the prefix that `start_after` lies in, unless a name behind it does too: the
    /// service folds names that begin before or at it as well. One more request, and only where
    /// there is such a prefix, which is on one page of a listing at most.
    ///
    /// # Errors
    /// As any listing.
    pub(super) async fn drop_passed_prefix(
        &self,
        page: &mut ListPage,
        start_after: Option<&str>,
    ) -> Result<()> {
        let Some(after) = start_after else { return Ok(()) };
        let straddles = |prefix: &String| after.starts_with(prefix.as_str());
        let Some(at) = page.prefixes.iter().position(straddles) else { return Ok(()) };
        // With the greatest character behind it a prefix means all that it folds.
        if after[page.prefixes[at].len()..].starts_with(char::MAX) {
            page.prefixes.remove(at);
            return Ok(());
        }
        let mut probe = ListRequest {
            prefix: page.prefixes[at].clone(),
            start_after: Some(after.to_string()),
            max_keys: Some(PROBE_NAMES),
            ..ListRequest::default()
        };
        loop {
            let found = self.list(probe.clone()).await?;
            if !found.objects.is_empty() {
                return Ok(());
            }
            if found.next.is_none() {
                page.prefixes.remove(at);
                return Ok(());
            }
            // A service that does not start there lists all that comes before: in large pages.
            probe.max_keys = None;
            probe.token = found.next;
        }
    }
}

/// Fields of the blob that is being read.
#[derive(Default)]
struct Blob {
    name: Option<String>,
    meta: ObjectMeta,
    is_hidden: bool,
    has_type: bool,
}

/// What each name of an account with a hierarchical namespace tells, and no other.
pub(super) const RESOURCE_TYPE: &str = "ResourceType";

/// A name as the service listed it.
#[derive(Debug)]
pub(super) enum Name {
    Object(ListEntry),
    /// Folded names.
    Prefix(String),
    /// A directory of a Data Lake account, which is listed as an empty blob, or what was removed.
    Hidden(String),
}

impl Name {
    pub fn text(&self) -> &str {
        match self {
            Name::Object(entry) => &entry.key,
            Name::Prefix(name) | Name::Hidden(name) => name,
        }
    }
}

/// A page as the service listed it.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub names: Vec<Name>,
    /// Of the next page; empty on the last.
    pub marker: String,
    /// Whether the account has a hierarchical namespace, where a name tells: of those accounts
    /// each has a type.
    pub is_hierarchical: Option<bool>,
}

impl Listing {
    /// Whether names ascend: those of blobs, and those of folded names.
    pub fn is_ordered_by(&self, compare: fn(&str, &str) -> Ordering) -> bool {
        let of = |is_prefix: bool| {
            let names = self.names.iter();
            names.filter(move |name| matches!(name, Name::Prefix(_)) == is_prefix).map(Name::text)
        };
        [true, false].map(|is_prefix| of(is_prefix).is_sorted_by(|a, b| compare(a, b).is_le()))
            == [true, true]
    }

    /// The page of a flat namespace, which lists in byte order, without what `start_after`
    /// excludes.
    pub fn flat(self, start_after: Option<&str>) -> ListPage {
        let mut page = ListPage::default();
        let is_behind = |name: &str| start_after.is_none_or(|after| name > after);
        // Names behind `start_after` may lie below the prefix that it lies in itself; see
        // `drop_passed_prefix`.
        let is_open = |prefix: &str| start_after.is_some_and(|after| after.starts_with(prefix));
        for name in self.names {
            match name {
                Name::Object(entry) if is_behind(&entry.key) => page.objects.push(entry),
                Name::Prefix(prefix) if is_behind(&prefix) || is_open(&prefix) => {
                    page.prefixes.push(prefix);
                }
                _ => {}
            }
        }
        // The service compares names by its own rules; within a page they can be put right.
        page.objects.sort_by(|a, b| a.key.cmp(&b.key));
        page.prefixes.sort();
        if !self.marker.is_empty() {
            let start_after = start_after.map(str::to_string);
            page.next = Some(Token { marker: self.marker, start_after }.text());
        }
        page
    }
}

/// Reads one page.
///
/// # Errors
/// `Corrupt` (retry) for what is no such answer.
pub(super) fn parse(body: &[u8]) -> Result<Listing> {
    let mut page = Listing::default();
    let mut blob = Blob::default();
    let mut prefix: Option<String> = None;
    let mut is_listing = false;
    xml::walk(body, |element| {
        let path: Vec<&str> = element.path.iter().map(String::as_str).collect();
        let text = element.text;
        match path[..] {
            ["EnumerationResults"] => is_listing = true,
            ["EnumerationResults", "NextMarker"] => page.marker = text.to_string(),
            ["EnumerationResults", "Blobs", "BlobPrefix", "Name"] => prefix = Some(name(&element)?),
            ["EnumerationResults", "Blobs", "BlobPrefix", "Properties", RESOURCE_TYPE] => {
                page.is_hierarchical = Some(true);
            }
            ["EnumerationResults", "Blobs", "BlobPrefix"] => {
                let found = prefix.take().ok_or_else(|| corrupt("a prefix has no name"))?;
                page.names.push(Name::Prefix(found));
            }
            ["EnumerationResults", "Blobs", "Blob", "Name"] => blob.name = Some(name(&element)?),
            ["EnumerationResults", "Blobs", "Blob", "Deleted"] => {
                blob.is_hidden |= text.trim() == "true";
            }
            ["EnumerationResults", "Blobs", "Blob", "Properties", field] => {
                blob.has_type |= field == RESOURCE_TYPE;
                blob.is_hidden |= property(&mut blob.meta, field, text)?;
            }
            ["EnumerationResults", "Blobs", "Blob", "Metadata", entry] => {
                blob.is_hidden |= marks_directory(entry, text);
            }
            ["EnumerationResults", "Blobs", "Blob"] => {
                let Blob { name, meta, is_hidden, has_type } = std::mem::take(&mut blob);
                let key = name.ok_or_else(|| corrupt("a blob has no name"))?;
                page.is_hierarchical = Some(has_type || page.is_hierarchical == Some(true));
                page.names.push(match is_hidden {
                    true => Name::Hidden(key),
                    false => Name::Object(ListEntry { key, meta }),
                });
            }
            _ => {}
        }
        Ok(())
    })?;
    if is_listing { Ok(page) } else { Err(corrupt("it is no listing")) }
}

/// Reads one page of List Containers, and the marker of the next.
///
/// # Errors
/// `Corrupt` (retry) for what is no such answer.
pub(super) fn parse_containers(body: &[u8]) -> Result<(Vec<ContainerEntry>, Option<String>)> {
    let (mut containers, mut next, mut is_listing) = (Vec::new(), None, false);
    let (mut name, mut created) = (None, None);
    xml::walk(body, |element| {
        let path: Vec<&str> = element.path.iter().map(String::as_str).collect();
        match path[..] {
            ["EnumerationResults"] => is_listing = true,
            ["EnumerationResults", "NextMarker"] => {
                next = Some(element.text.to_string()).filter(|marker| !marker.is_empty());
            }
            ["EnumerationResults", "Containers", "Container", "Name"] => {
                name = Some(element.text.to_string());
            }
            ["EnumerationResults", "Containers", "Container", "Properties", "Last-Modified"] => {
                created = parse_http_date(element.text);
            }
            ["EnumerationResults", "Containers", "Container"] => {
                let name = name.take().ok_or_else(|| corrupt("a container has no name"))?;
                containers.push(ContainerEntry { name, created: created.take() });
            }
            _ => {}
        }
        Ok(())
    })?;
    if is_listing { Ok((containers, next)) } else { Err(corrupt("it is no listing")) }
}

/// Takes over a property of a listed blob; whether it is a directory.
pub(super) fn property(meta: &mut ObjectMeta, field: &str, text: &str) -> Result<bool> {
    match field {
        "Content-Length" => {
            let size = text.trim().parse().map_err(|_| corrupt("a size is no number"))?;
            meta.size_bytes = Some(size);
        }
        "Etag" => meta.etag = Some(ETag::parse(text)).filter(|etag| !etag.0.is_empty()),
        "Last-Modified" => meta.modified = parse_http_date(text),
        "Content-Type" if !text.is_empty() => meta.content_type = Some(text.to_string()),
        "AccessTier" => meta.storage_class = tier::class_of(text),
        RESOURCE_TYPE => return Ok(text.trim() == "directory"),
        _ => {}
    }
    Ok(false)
}

/// A name, decoded where the service had to encode what XML cannot hold.
pub(super) fn name(element: &xml::Element<'_>) -> Result<String> {
    let is_encoded = element
        .attributes
        .iter()
        .any(|(name, value)| name == "Encoded" && value.eq_ignore_ascii_case("true"));
    if !is_encoded {
        return Ok(element.text.to_string());
    }
    let decoded = percent_decode_str(element.text).decode_utf8();
    decoded.map(|name| name.into_owned()).map_err(|_| corrupt("an encoded name is no UTF-8"))
}

pub(super) fn corrupt(why: &str) -> Error {
    Error::new(Kind::Corrupt, format!("the service's listing is malformed: {why}"))
        .with_retry(Retry::Briefly)
        .with_hint("Is the endpoint really an Azure Blob service, and is there a proxy between?")
}

#[cfg(test)]
mod tests;

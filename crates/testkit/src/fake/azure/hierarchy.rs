//! Lists of an account with a hierarchical namespace: `/` comes before every other character, and
//! each directory shows as a blob of no bytes, or folded with what is in it.
//!
//! Directories are those that blobs lie in: they come and go with them. A name may be a blob's and
//! a directory's, as no such account allows; then both are listed.

use super::super::data::Data;
use super::super::listing::{Name, Page, PageRequest, Start, page};
use super::super::refusal::Refusal;
use super::super::vault::Object;
use super::Call;
use super::list::invalid;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

/// In the place of `/`, so that the order of bytes is that of directories. No name holds it.
const LEAST: &str = "\0";
/// The metadata that marks a directory.
const IS_FOLDER: &str = "hdi_isfolder";

fn inner(name: &str) -> String {
    name.replace('/', LEAST)
}

fn outer(name: &str) -> String {
    name.replace(LEAST, "/")
}

/// What `ResourceType` tells of a listed blob.
pub fn kind(object: &Object) -> &'static str {
    match object.metadata.iter().any(|(name, _)| name == IS_FOLDER) {
        true => "directory",
        false => "file",
    }
}

/// Refuses what such accounts refuse: a prefix that a blob stands in the middle of, and a start
/// below the directory whose names fold.
///
/// # Errors
/// `InvalidQueryParameterValue`, `ResourceTypeMismatch`.
pub fn check(call: &Call<'_>, request: PageRequest<'_>) -> Result<(), Refusal> {
    let prefix = request.prefix;
    let is_blob = |at: usize| {
        let object =
            call.server.vault.with(|state| state.object(&call.target.bucket, &prefix[..at]));
        object.is_some_and(|object| kind(&object) == "file")
    };
    let is_directory = |at: usize| {
        let below = &prefix[..=at];
        call.server.vault.with(|state| {
            let bucket = state.buckets.get(&call.target.bucket);
            bucket.is_some_and(|bucket| bucket.objects.keys().any(|key| key.starts_with(below)))
        })
    };
    if prefix.match_indices('/').any(|(at, _)| is_blob(at) && !is_directory(at)) {
        let message = "The specified resource type is not the one of the path in the prefix.";
        return Err(Refusal::new(409, "ResourceTypeMismatch", message));
    }
    let start = call.query("startFrom").unwrap_or("");
    let level = start.strip_prefix(prefix).unwrap_or("");
    match request.delimiter == "/" && level.contains('/') {
        true => Err(invalid("startFrom")),
        false => Ok(()),
    }
}

fn directory() -> Arc<Object> {
    Arc::new(Object {
        data: Data::default(),
        etag: String::new(),
        modified: SystemTime::UNIX_EPOCH,
        headers: Vec::new(),
        metadata: vec![(IS_FOLDER.to_string(), "true".to_string())],
        checksums: Vec::new(),
        tags: Vec::new(),
        blocks: Vec::new(),
    })
}

/// One page of such a list.
pub fn page_of(objects: &BTreeMap<String, Arc<Object>>, request: PageRequest<'_>) -> Page {
    let mut index = BTreeMap::new();
    for (name, object) in objects {
        index.insert(inner(name), object.clone());
        // Folded, a directory shows as what is in it.
        for (at, _) in name.match_indices('/').filter(|_| request.delimiter.is_empty()) {
            if !name[..at].ends_with('/') && at > 0 {
                index.entry(inner(&name[..at])).or_insert_with(directory);
            }
        }
    }
    let from = match request.from {
        Start::First => Start::First,
        Start::After(name) => Start::After(inner(name)),
        Start::At(name) => Start::At(inner(name)),
        Start::AfterFold(fold) => Start::AfterFold(inner(fold)),
    };
    let (prefix, delimiter) = (inner(request.prefix), inner(request.delimiter));
    let request =
        PageRequest { prefix: &prefix, delimiter: &delimiter, from: &from, most: request.most };
    let listed = page(&index, request);
    let name = |name: Name| match name {
        Name::Object(name, object) => Name::Object(outer(&name), object),
        Name::Fold(fold) => Name::Fold(outer(&fold)),
    };
    let next = listed.next.map(|next| match next {
        Start::First => Start::First,
        Start::After(name) => Start::After(outer(&name)),
        Start::At(name) => Start::At(outer(&name)),
        Start::AfterFold(fold) => Start::AfterFold(outer(&fold)),
    });
    Page { names: listed.names.into_iter().map(name).collect(), next }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_goes_directory_by_directory() {
        let keys = ["A/dat1", "A-B/dat2", "A-B-C", "A.C/dat3", "AB"];
        let objects: BTreeMap<String, Arc<Object>> = keys
            .map(|key| {
                let mut object = (*directory()).clone();
                object.metadata.clear();
                (key.to_string(), Arc::new(object))
            })
            .into();
        let listed = |delimiter: &str| {
            let (mut names, mut from) = (Vec::new(), Start::First);
            loop {
                let request = PageRequest { prefix: "", delimiter, from: &from, most: 2 };
                let page = page_of(&objects, request);
                names.extend(page.names.into_iter().map(|name| match name {
                    Name::Object(name, object) => format!("{name} {}", kind(&object)),
                    Name::Fold(fold) => fold,
                }));
                let Some(next) = page.next else { return names };
                from = next;
            }
        };
        assert_eq!(
            listed(""),
            [
                "A directory",
                "A/dat1 file",
                "A-B directory",
                "A-B/dat2 file",
                "A-B-C file",
                "A.C directory",
                "A.C/dat3 file",
                "AB file"
            ]
        );
        assert_eq!(listed("/"), ["A/", "A-B/", "A-B-C file", "A.C/", "AB file"]);
    }
}

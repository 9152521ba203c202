//! The uploads of a bucket: a walk over those of its directories that can hold one that is wanted.
//!
//! An upload lies beside its target, so that completing it is a rename inside one directory and one
//! file system. Nothing else tells which uploads there are: a second place would have to be kept in
//! step by every program that begins and ends one, and be mended after a crash.

use super::{Begun, read_options};
use crate::UploadId;
use crate::local::attributes::modified;
use crate::local::errno::explain;
use crate::local::names::{self, UPLOAD};
use crate::local::root::Root;
use crate::streaming::{UploadEntry, UploadsPage, UploadsRequest};
use penstock_base::{Error, Kind, Result};
use rustix::fs::{Dir, FileType};
use rustix::io::Errno;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::SystemTime;

/// Uploads of a page at least: those that fold to one prefix are looked at a page at a time.
const PAGE_LEAST: usize = 1000;

/// The next uploads of the bucket that are not completed and are asked for, in order.
///
/// # Errors
/// `Invalid` for a token of another store, and as the operating system says.
pub(in crate::local) fn list(root: &Root, request: &UploadsRequest) -> Result<UploadsPage> {
    list_some(root, request, request.max.max(PAGE_LEAST))
}

/// So many of them.
pub(super) fn list_some(root: &Root, request: &UploadsRequest, max: usize) -> Result<UploadsPage> {
    let mut request = request.clone();
    if let Some(token) = request.token.take() {
        (request.key_marker, request.upload_marker) = markers_of(&token)?;
    }
    let mut search = Search {
        root,
        request: &request,
        found: First { max, kept: BTreeMap::new(), is_cut: false },
    };
    search.walk(".", "").map_err(|errno| explain(errno, "list", &root.path))?;
    let First { kept, is_cut, .. } = search.found;
    let next = kept.last_key_value().filter(|_| is_cut).map(|(name, _)| token_of(name));
    let entry = |((key, id), Found { begun, options })| {
        let metadata = serde_json::from_slice::<Begun>(&options).ok()?.attributes.metadata;
        Some(UploadEntry { key, id: UploadId(id), begun, metadata })
    };
    Ok(UploadsPage { uploads: kept.into_iter().filter_map(entry).collect(), next })
}

/// Where a page stopped. No id has a slash: it is part of a directory's name.
fn token_of((key, id): &(String, String)) -> String {
    format!("{id}/{key}")
}

fn markers_of(token: &str) -> Result<(String, String)> {
    let parts = token.split_once('/').filter(|(id, key)| !id.is_empty() && !key.is_empty());
    let (id, key) = parts.ok_or_else(|| {
        Error::new(Kind::Invalid, "the token of the listing is not one of this store")
    })?;
    Ok((key.to_string(), id.to_string()))
}

/// The first of what comes in no order, by name: key and id.
#[derive(Debug)]
struct First<T> {
    max: usize,
    kept: BTreeMap<(String, String), T>,
    /// Whether there are more.
    is_cut: bool,
}

impl<T> First<T> {
    fn add(&mut self, name: (String, String), value: T) {
        self.kept.insert(name, value);
        if self.kept.len() > self.max {
            self.kept.pop_last();
            self.is_cut = true;
        }
    }

    /// Whether a key that begins so can still be among the first. If not, there may be more.
    fn may_take(&mut self, start: &str) -> bool {
        let is_full = self.kept.len() == self.max;
        let is_behind = is_full
            && self.kept.last_key_value().is_some_and(|((last, _), _)| start > last.as_str());
        self.is_cut |= is_behind;
        !is_behind
    }
}

#[derive(Debug)]
struct Found {
    begun: Option<SystemTime>,
    options: Vec<u8>,
}

/// The part of the options that tells the key.
#[derive(Deserialize)]
struct Named {
    name: String,
}

struct Search<'a> {
    root: &'a Root,
    request: &'a UploadsRequest,
    found: First<Found>,
}

impl Search<'_> {
    /// Looks into the directories below `path`; `prefix` is what their keys begin with.
    fn walk(&mut self, path: &str, prefix: &str) -> Result<(), Errno> {
        let dir = match self.root.open_dir(path) {
            Ok(dir) => dir,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        for entry in Dir::read_from(&dir)? {
            let entry = entry?;
            if !matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
                continue;
            }
            let Ok(name) = entry.file_name().to_str() else { continue };
            let below = if path == "." { name.to_string() } else { format!("{path}/{name}") };
            if let Some(id) = name.strip_prefix(UPLOAD) {
                self.look(&below, prefix, id)?;
            } else if let Some(component) = names::decode(name.as_bytes(), true) {
                let prefix = format!("{prefix}{component}/");
                if self.request.may_want(&prefix) && self.found.may_take(&prefix) {
                    self.walk(&below, &prefix)?;
                }
            }
        }
        Ok(())
    }

    fn look(&mut self, path: &str, prefix: &str, id: &str) -> Result<(), Errno> {
        // One that ends this moment is not there any more.
        let Ok(upload) = self.root.open_dir(path) else { return Ok(()) };
        let Ok(options) = read_options(&upload) else { return Ok(()) };
        let Ok(Named { name }) = serde_json::from_slice(&options) else { return Ok(()) };
        let Some(last) = names::decode(name.as_bytes(), false) else { return Ok(()) };
        let key = format!("{prefix}{last}");
        if self.request.wants(&key, id) {
            let begun = modified(&rustix::fs::fstat(&upload)?);
            self.found.add((key, id.to_string()), Found { begun, options });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn tokens_tell_where_a_page_stopped(key in "[a/ü]{1,9}", id in "[0-9a-f]{1,9}") {
            let token = token_of(&(key.clone(), id.clone()));
            prop_assert_eq!(markers_of(&token).unwrap(), (key, id));
        }

        #[test]
        fn the_first_are_kept_whatever_comes_first(
            names in proptest::collection::btree_set("[ab/]{1,4}", 0..12),
            order in any::<u64>(),
            max in 1_usize..5,
        ) {
            let mut shuffled: Vec<_> = names.iter().cloned().collect();
            shuffled.sort_by_key(|name| {
                name.bytes().fold(order, |hash, byte| hash.wrapping_mul(31) ^ u64::from(byte))
            });
            let mut first = First { max, kept: BTreeMap::new(), is_cut: false };
            for name in shuffled {
                // A directory that is passed over holds none of them.
                if first.may_take(&name) {
                    first.add((name, "1".to_string()), ());
                }
            }
            let kept: Vec<_> = first.kept.keys().map(|(key, _)| key).collect();
            prop_assert_eq!(kept, names.iter().take(max).collect::<Vec<_>>());
            prop_assert_eq!(first.is_cut, names.len() > max);
        }
    }

    #[test]
    fn odd_tokens_are_refused() {
        for token in ["", "/", "1/", "/k", "1"] {
            assert_eq!(markers_of(token).unwrap_err().kind(), Kind::Invalid, "{token}");
        }
    }
}

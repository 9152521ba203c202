//! Lists the versions of a bucket: the current ones and the tree, joined by key.

use super::id::{of_lost, time_of};
use super::{Kept, kept, place};
use crate::local::attributes;
use crate::local::described::{ROUNDS_MAX, describe, replaced_again};
use crate::local::errno::explain;
use crate::local::names::{self, Location, VERSION, VERSIONS};
use crate::local::root::Root;
use crate::streaming::{NULL_VERSION, VersionEntry, VersionsPage, VersionsRequest};
use crate::{ListPage, ListRequest, ObjectMeta};
use penstock_base::{Error, Kind, Result};
use rustix::fs::Dir;
use rustix::io::Errno;
use std::collections::BTreeSet;

/// Keys that are looked up at once.
const KEYS_AT_ONCE: usize = 1000;

/// One page. `current` lists the objects that are there now.
pub(in crate::local) fn list(
    root: &Root,
    request: &VersionsRequest,
    current: impl Fn(&ListRequest) -> Result<ListPage>,
) -> Result<VersionsPage> {
    let mut page = Pager { request, page: VersionsPage::default(), last: None };
    if let (Some(key), Some(marker)) = (&request.key_marker, &request.version_marker)
        && let Ok(location) = names::locate(root.scope, key)
    {
        let versions = of_key(root, &location)?;
        let from = behind(&versions, marker)?;
        for (at, version) in versions.into_iter().enumerate().skip(from) {
            if !page.add(key, at == 0, version) {
                return Ok(page.page);
            }
        }
    }
    let mut after = request.key_marker.clone().map(|marker| past(&marker, request));
    loop {
        let keys = next_keys(root, &request.prefix, after.as_deref(), &current)?;
        let Some(last) = keys.last().cloned() else { return Ok(page.page) };
        for key in keys {
            if after.as_ref().is_some_and(|after| key <= *after) {
                continue;
            }
            if let Some(folded) = folded(&key, request) {
                if !page.fold(&folded) {
                    return Ok(page.page);
                }
                after = Some(past(&folded, request));
                continue;
            }
            let Ok(location) = names::locate(root.scope, &key) else { continue };
            for (at, version) in of_key(root, &location)?.into_iter().enumerate() {
                if !page.add(&key, at == 0, version) {
                    return Ok(page.page);
                }
            }
        }
        after = after.max(Some(last));
    }
}

/// Where the versions of a key go on behind one of them. Who empties a bucket page by page has
/// removed it meanwhile: its id says how old it was. Of a `null` that is gone nothing does, and
/// rather are versions told twice than never.
///
/// # Errors
/// `Invalid` for what is no id.
fn behind(versions: &[Version], marker: &str) -> Result<usize> {
    if let Some(at) = versions.iter().position(|(id, ..)| id == marker) {
        return Ok(at + 1);
    }
    let Some(time) = time_of(marker) else {
        return match marker {
            NULL_VERSION => Ok(0),
            _ => Err(Error::new(Kind::Invalid, "the version marker is no version of this bucket")),
        };
    };
    let is_older = |(id, _, meta): &Version| match time_of(id) {
        Some(_) => id.as_str() < marker,
        None => meta.modified.is_none_or(|modified| modified <= time),
    };
    Ok(versions.iter().position(is_older).unwrap_or(versions.len()))
}

/// What a key folds to.
fn folded(key: &str, request: &VersionsRequest) -> Option<String> {
    let delimiter = request.delimiter.as_deref().filter(|it| !it.is_empty())?;
    let rest = key.strip_prefix(&request.prefix)?;
    let end = rest.find(delimiter)? + delimiter.len();
    Some(format!("{}{}", request.prefix, &rest[..end]))
}

/// A marker that is a folded prefix stands for all keys below it.
fn past(marker: &str, request: &VersionsRequest) -> String {
    match folded(marker, request).as_deref() == Some(marker) {
        true => format!("{marker}{}", char::MAX),
        false => marker.to_string(),
    }
}

/// The next keys that have any version, in order; none at the end.
fn next_keys(
    root: &Root,
    prefix: &str,
    after: Option<&str>,
    current: impl Fn(&ListRequest) -> Result<ListPage>,
) -> Result<BTreeSet<String>> {
    let request = ListRequest {
        prefix: prefix.to_string(),
        start_after: after.map(str::to_string),
        max_keys: u32::try_from(KEYS_AT_ONCE).ok(),
        ..ListRequest::default()
    };
    let page = current(&request)?;
    let mut horizon = page.next.and(page.objects.last().map(|entry| entry.key.clone()));
    let mut keys: BTreeSet<String> = page.objects.into_iter().map(|entry| entry.key).collect();
    let earlier = keys_of_tree(root, prefix, after, KEYS_AT_ONCE)?;
    if earlier.len() == KEYS_AT_ONCE {
        let last = earlier.last().cloned();
        horizon = horizon.into_iter().chain(last).min();
    }
    keys.extend(earlier);
    if let Some(horizon) = horizon {
        keys.retain(|key| *key <= horizon);
    }
    Ok(keys)
}

struct Pager<'a> {
    request: &'a VersionsRequest,
    page: VersionsPage,
    last: Option<(String, Option<String>)>,
}

impl Pager<'_> {
    /// Whether there is room for one more; if not, the page ends here.
    fn has_room(&mut self) -> bool {
        if self.page.versions.len() + self.page.prefixes.len() < self.request.max {
            return true;
        }
        self.page.next = self.last.take();
        false
    }

    fn add(&mut self, key: &str, is_latest: bool, (id, is_marker, meta): Version) -> bool {
        if !self.has_room() {
            return false;
        }
        self.last = Some((key.to_string(), Some(id.clone())));
        let key = key.to_string();
        self.page.versions.push(VersionEntry { key, id, is_latest, is_marker, meta });
        true
    }

    fn fold(&mut self, prefix: &str) -> bool {
        if !self.has_room() {
            return false;
        }
        self.last = Some((prefix.to_string(), None));
        self.page.prefixes.push(prefix.to_string());
        true
    }
}

/// Id, whether it is a delete marker, and what it is.
type Version = (String, bool, ObjectMeta);

/// The current version of a key, and whether its own id is known.
fn current_of(root: &Root, location: &Location) -> Result<Option<(Version, bool)>> {
    for _ in 0..ROUNDS_MAX {
        let Ok((file, at)) = root.open_object(location) else { return Ok(None) };
        match describe(root, &at, &file) {
            Ok(Some((meta, attributes))) => {
                return Ok(Some(((attributes.version_id().to_string(), false, meta), true)));
            }
            // It became an earlier version this moment.
            Ok(None) => {}
            // It is there, and who asks for it hears that its attributes are lost. The versions
            // beside it, and of other keys, are told all the same.
            Err(error) if error.kind() == Kind::Corrupt => {
                let Ok(stat) = rustix::fs::fstat(&file) else { return Err(error) };
                return Ok(Some(((of_lost(&stat), false, attributes::meta(&stat)), false)));
            }
            Err(_) => return Ok(None),
        }
    }
    Err(replaced_again(&root.shown(&location.path())))
}

/// Every version of one key, latest first.
fn of_key(root: &Root, location: &Location) -> Result<Vec<Version>> {
    let shown = root.shown(&location.path());
    let mut current = current_of(root, location)?;
    let kept = match root.open_dir(&place(location)) {
        Ok(dir) => kept(&dir),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(Vec::new()),
        Err(errno) => Err(errno),
    };
    let mut kept = kept.map_err(|errno| explain(errno, "list the versions of", &shown))?;
    if let Some(((id, _, meta), is_known)) = &mut current {
        // A crash may leave it a name in the tree; its tag has the inode.
        let is_current = |kept: &Kept| meta.etag == Some(attributes::etag(&kept.stat));
        if let Some(own) = kept.iter().find(|kept| !*is_known && is_current(kept)) {
            id.clone_from(&own.id);
        }
        kept.retain(|kept| kept.id != *id && !is_current(kept));
    }
    let earlier = kept.into_iter().map(|it| (it.id, it.is_marker, attributes::meta(&it.stat)));
    Ok(current.map(|(version, _)| version).into_iter().chain(earlier).collect())
}

/// Keys in the tree of versions that start with `prefix` and come after `after`: the first `max`.
fn keys_of_tree(
    root: &Root,
    prefix: &str,
    after: Option<&str>,
    max: usize,
) -> Result<BTreeSet<String>> {
    let mut search = Search { root, prefix, after, max, found: BTreeSet::new() };
    search
        .walk(VERSIONS, None)
        .map_err(|errno| explain(errno, "list the versions below", &root.path))?;
    Ok(search.found)
}

struct Search<'a> {
    root: &'a Root,
    prefix: &'a str,
    after: Option<&'a str>,
    max: usize,
    found: BTreeSet<String>,
}

impl Search<'_> {
    /// `key` is the key whose directory this is, in both of its forms: as an object's own name and
    /// as what keys below it begin with.
    fn walk(
        &mut self,
        path: &str,
        key: Option<(Option<String>, Option<String>)>,
    ) -> Result<(), Errno> {
        let dir = match self.root.open_dir(path) {
            Ok(dir) => dir,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        let base = match &key {
            Some((_, below)) => below.clone().map(|below| format!("{below}/")),
            None => Some(String::new()),
        };
        let mut holds = false;
        for entry in Dir::read_from(&dir)? {
            let entry = entry?;
            let name = entry.file_name().to_str().unwrap_or_default();
            if name.starts_with(VERSION) {
                holds = true;
                continue;
            }
            let own = names::decode(name.as_bytes(), false);
            let below = names::decode(name.as_bytes(), true);
            let (Some(base), true) = (&base, own.is_some() || below.is_some()) else { continue };
            let join = |part: Option<String>| part.map(|part| format!("{base}{part}"));
            self.walk(&format!("{path}/{name}"), Some((join(own), join(below))))?;
        }
        if holds && let Some((Some(key), _)) = key {
            self.add(key);
        }
        Ok(())
    }

    fn add(&mut self, key: String) {
        if key.starts_with(self.prefix) && self.after.is_none_or(|after| key.as_str() > after) {
            self.found.insert(key);
            if self.found.len() > self.max {
                self.found.pop_last();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    #[test]
    fn a_list_goes_on_behind_a_version_that_is_gone() {
        let id = |nanos: u64| format!("{nanos:017x}{:08x}", 7);
        let version = |id: String, nanos| {
            let modified = SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(nanos));
            (id, false, ObjectMeta { modified, ..ObjectMeta::default() })
        };
        let versions = [
            version(id(9), 9),
            version(NULL_VERSION.to_string(), 6),
            version(id(4), 4),
            version(id(2), 2),
        ];
        let at = |marker: &str| behind(&versions, marker).ok();
        assert_eq!([at(&id(9)), at("null"), at(&id(2))], [Some(1), Some(2), Some(4)]);
        assert_eq!([at(&id(10)), at(&id(8)), at(&id(5))], [Some(0), Some(1), Some(2)]);
        assert_eq!([at(&id(3)), at(&id(1))], [Some(3), Some(4)]);
        for odd in ["", "../x", "zz", "0123", "000000000000000zz00000007"] {
            assert_eq!(at(odd), None, "{odd}");
        }
        assert_eq!(behind(&versions[2..], "null").ok(), Some(0));
    }
}

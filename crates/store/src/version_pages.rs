//! Pages of versions in S3's order, of services that list them oldest first. Pure.
//!
//! Of a key whose versions go on on the service's next page none can be told: the newest may be
//! there.

use crate::versions::{VersionEntry, VersionsPage, VersionsRequest};
use std::cmp::Ordering;

/// What was found so far that may be told, and whether there is more behind it.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub versions: Vec<VersionEntry>,
    pub prefixes: Vec<String>,
    pub has_more: bool,
}

impl Found {
    pub fn len(&self) -> usize {
        self.versions.len() + self.prefixes.len()
    }

    /// How much of it can be told, where the service's next page may hold more versions of `open`.
    pub fn complete(&self, open: Option<&str>) -> usize {
        let is_open = |entry: &&VersionEntry| open == Some(entry.key.as_str());
        self.len() - self.versions.iter().filter(is_open).count()
    }

    /// The first page of it. All versions of each of its keys are there, but for some of the last
    /// key where there is more.
    pub fn page(
        mut self,
        max: usize,
        latest_first: fn(&VersionEntry, &VersionEntry) -> Ordering,
    ) -> VersionsPage {
        self.versions.sort_by(|a, b| a.key.cmp(&b.key).then_with(|| latest_first(a, b)));
        self.prefixes.sort();
        self.prefixes.dedup();
        let has_more = self.has_more || self.len() > max;
        let mut page = VersionsPage::default();
        let mut versions = self.versions.into_iter().peekable();
        let mut prefixes = self.prefixes.into_iter().peekable();
        let mut last = None;
        for _ in 0..max {
            let is_version = match (versions.peek(), prefixes.peek()) {
                (Some(entry), Some(prefix)) => entry.key < *prefix,
                (found, _) => found.is_some(),
            };
            if is_version {
                let Some(entry) = versions.next() else { break };
                last = Some((entry.key.clone(), Some(entry.id.clone())));
                page.versions.push(entry);
            } else {
                let Some(prefix) = prefixes.next() else { break };
                last = Some((prefix.clone(), None));
                page.prefixes.push(prefix);
            }
        }
        page.next = last.filter(|_| has_more);
        page
    }
}

/// Whether a key is one that the listing tells by itself.
pub(crate) fn is_listed(key: &str, request: &VersionsRequest) -> bool {
    let delimiter = request.delimiter.as_deref().filter(|it| !it.is_empty());
    let rest = key.strip_prefix(&request.prefix).filter(|_| !key.is_empty());
    rest.is_some_and(|rest| delimiter.is_none_or(|it| !rest.contains(it)))
}

#[cfg(test)]
mod tests;

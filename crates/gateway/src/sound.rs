//! Whether what a back end lists is what it was asked for: names below the prefix, in order, behind
//! the one that they were to follow, on pages that come to an end. Pure.
//!
//! A service that passes over `prefix` would show the clients of one bucket what is in another, and
//! one that passes over `start-after` the same page for ever; of names in no order, those are lost
//! that come after the last one of a page. Such a listing is an error that says what the back end
//! did. The name itself is for the operator: to a client it may be another's.

use penstock_base::{Error, Kind, Result};
use penstock_store::streaming::UploadsPage;
use penstock_store::{ListPage, Progress, UploadEntry, VersionsPage};

/// How the URL of a directory bucket of S3 ends, and that of no other bucket.
const DIRECTORY_BUCKET: &str = "--x-s3/";

/// Whether names behind `after` may lie below a prefix.
fn is_open(prefix: &str, after: &str) -> bool {
    prefix > after || after.starts_with(prefix)
}

/// What a listing was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// The URL of the store, for errors.
    pub root: &'a str,
    /// What every name begins with.
    pub prefix: &'a str,
    /// The name that all of them follow.
    pub after: Option<&'a str>,
}

impl Asked<'_> {
    /// Whether this is a directory bucket of S3 (Express One Zone), which lists in no order and
    /// starts at no name.
    pub fn is_unordered(&self) -> bool {
        self.root.ends_with(DIRECTORY_BUCKET)
    }

    /// The token of the next page, if it is one.
    ///
    /// # Errors
    /// `Corrupt` for a token that was there before, and after too many pages.
    pub fn next(&self, progress: &mut Progress, token: String) -> Result<String> {
        progress.go_on(&token).map_err(|did| self.strange(did, ""))?;
        Ok(token)
    }

    /// Puts a listing of a directory bucket in order, which takes all of it: whoever goes on after
    /// the last name of a page would not meet those that come on a later one.
    ///
    /// # Errors
    /// `Unsupported` where there is more than this page.
    pub fn put_in_order(&self, page: &mut ListPage) -> Result<()> {
        if page.next.is_some() {
            return Err(self.no_order());
        }
        page.objects.sort_by(|a, b| a.key.cmp(&b.key));
        page.prefixes.sort();
        if let Some(after) = self.after {
            page.objects.retain(|entry| entry.key.as_str() > after);
            page.prefixes.retain(|prefix| is_open(prefix, after));
        }
        Ok(())
    }

    /// The same of a list of uploads, behind the upload `marker` of the key that they were to
    /// follow, or behind all of that key where it is empty.
    ///
    /// # Errors
    /// `Unsupported` where there is more than this page.
    pub fn put_uploads_in_order(&self, page: &mut UploadsPage, marker: &str) -> Result<()> {
        if page.next.is_some() {
            return Err(self.no_order());
        }
        page.uploads.sort_by(|a, b| (&a.key, &a.id.0).cmp(&(&b.key, &b.id.0)));
        let Some(after) = self.after else { return Ok(()) };
        page.uploads.retain(|upload| match upload.key == after {
            true => !marker.is_empty() && upload.id.0.as_str() > marker,
            false => upload.key.as_str() > after,
        });
        Ok(())
    }

    fn no_order(&self) -> Error {
        let why = "the bucket is a directory bucket of S3, which lists names in no order, and more \
                   than a page of them cannot be put in order";
        Error::new(Kind::Unsupported, why)
            .with_operation("list")
            .with_object(format!("{}{}", self.root, self.prefix))
            .with_hint(
                "List a prefix with fewer names than a page, or keep what is to be listed in a \
                 general purpose bucket",
            )
    }

    /// An error about a name, or about the listing as a whole.
    fn strange(&self, did: &str, name: &str) -> Error {
        let why = format!("the back end's listing is not what it was asked for: it {did}");
        let name = if name.is_empty() { self.prefix } else { name };
        Error::new(Kind::Corrupt, why)
            .with_operation("list")
            .with_object(format!("{}{name}", self.root))
            .with_hint(
                "Ask the back end for the same listing without the gateway: the service, or what \
                 stands before it, does not keep to the protocol",
            )
    }

    fn below(&self, name: &str) -> Result<()> {
        let did = "holds a name that does not begin with the prefix asked for";
        match name.starts_with(self.prefix) {
            true => Ok(()),
            false => Err(self.strange(did, name)),
        }
    }

    /// `is_behind` tells whether a name comes after another.
    fn ascend<'n>(
        &self,
        mut names: impl Iterator<Item = &'n str>,
        is_behind: fn(&str, &str) -> bool,
    ) -> Result<()> {
        let Some(mut last) = names.next() else { return Ok(()) };
        for name in names {
            if !is_behind(name, last) && self.is_unordered() {
                return Err(self.no_order());
            }
            if !is_behind(name, last) {
                return Err(self.strange("holds names out of order, or one of them twice", name));
            }
            last = name;
        }
        Ok(())
    }

    fn not_behind(&self, name: &str) -> Error {
        self.strange("begins before the name that it was to follow", name)
    }

    /// Judges a page of objects and folded prefixes.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn objects(&self, page: &ListPage) -> Result<()> {
        let keys = || page.objects.iter().map(|entry| entry.key.as_str());
        let prefixes = || page.prefixes.iter().map(String::as_str);
        keys().chain(prefixes()).try_for_each(|name| self.below(name))?;
        self.ascend(keys(), |name, last| name > last)?;
        self.ascend(prefixes(), |name, last| name > last)?;
        let Some(after) = self.after else { return Ok(()) };
        // More may follow below the prefix that the name itself lies in.
        let early = keys().find(|name| *name <= after);
        match early.or_else(|| prefixes().find(|prefix| !is_open(prefix, after))) {
            Some(name) => Err(self.not_behind(name)),
            None => Ok(()),
        }
    }

    /// Judges a page of uploads behind the upload `marker` of the key that they were to follow,
    /// or behind all of that key where it is empty. Those of one key come in any order.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn uploads(&self, uploads: &[UploadEntry], marker: &str) -> Result<()> {
        let keys = || uploads.iter().map(|upload| upload.key.as_str());
        keys().try_for_each(|name| self.below(name))?;
        self.ascend(keys(), |name, last| name >= last)?;
        let Some(after) = self.after else { return Ok(()) };
        let is_behind = |upload: &UploadEntry| match upload.key == after {
            true => !marker.is_empty() && upload.id.0 != marker,
            false => upload.key.as_str() > after,
        };
        match uploads.iter().find(|upload| !is_behind(upload)) {
            Some(upload) => Err(self.not_behind(&upload.key)),
            None => Ok(()),
        }
    }

    /// Judges a page of versions behind the version `marker` of the key that they were to follow.
    /// Some services tell delete markers after all versions, so the order is not looked at.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn versions(&self, page: &VersionsPage, marker: Option<&str>) -> Result<()> {
        let keys = || page.versions.iter().map(|entry| entry.key.as_str());
        let next = page.next.iter().map(|(key, _)| key.as_str());
        let prefixes = page.prefixes.iter().map(String::as_str);
        keys().chain(prefixes).chain(next).try_for_each(|name| self.below(name))?;
        let Some(after) = self.after else { return Ok(()) };
        if let Some(name) = keys().find(|name| *name < after) {
            return Err(self.not_behind(name));
        }
        let is_same = |(key, version): &(String, Option<String>)| {
            key == after && version.as_deref() == marker
        };
        match page.next.as_ref().is_some_and(is_same) {
            true => Err(self.strange("comes to no end: the next page is this one again", "")),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;

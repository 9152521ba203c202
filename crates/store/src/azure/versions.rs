//! Versions of blobs, as accounts keep them that are set so.
//!
//! An id is the time of its write. A blob that was written while none were kept has no id; it is
//! told as the version `null`, as S3 calls such an object. A removal makes the current version one
//! like any other, and then none of the blob is current: there are no delete markers. The current
//! version cannot be removed by its id, so it is made one like any other before that.
//!
//! Azure lists versions oldest first, S3 latest first.

use super::delete::is_gone;
use super::list::{self, RESOURCE_TYPE, Token, corrupt};
use super::ordered::BLOBS;
use super::wire::{Ask, marks_directory};
use super::{AzureStore, LIST_BYTES_MAX, LIST_PAGE_MAX};
use crate::answer::{Failure, text_header};
use crate::streaming::{
    NULL_VERSION, Removed, StreamingStore as _, VersionEntry, Versioning, VersionsPage,
    VersionsRequest, split_version, versioned,
};
use crate::version_pages::Found;
use crate::{ETag, GetRequest, ListEntry, ListRequest, ObjectMeta, Progress, xml};
use http::{HeaderMap, Method};
use jiff::Timestamp;
use penstock_base::{Error, Kind, Result};
use std::cmp::Ordering;
use std::sync::atomic::Ordering::Relaxed;

/// Most characters of an id; those of the service have 28.
const ID_CHARS_MAX: usize = 40;
/// How many blobs are looked at to tell whether versions are kept.
const SAMPLE: u32 = 100;

/// The id of the version that an answer tells of.
pub(super) fn told(headers: &HeaderMap) -> Option<String> {
    text_header(headers, "x-ms-version-id").filter(|id| !id.is_empty())
}

/// The parameter by which a request names a version; none for the blob itself.
pub(super) fn parameter(version: Option<&str>) -> Option<(&'static str, &str)> {
    version.filter(|id| *id != NULL_VERSION).map(|id| ("versionid", id))
}

/// When a version was written, by its id: a time in UTC.
fn time_of(id: &str) -> Option<Timestamp> {
    id.parse().ok().filter(|_| id.len() <= ID_CHARS_MAX && id.ends_with('Z'))
}

fn no_such_version(why: &str) -> Error {
    Error::new(Kind::NotFound, why).with_service_code("NoSuchVersion")
}

/// Refuses a version that cannot be one, which Azure would call a bad request.
///
/// # Errors
/// `NotFound`.
pub(super) fn check(name: &str) -> Result<()> {
    match split_version(name).1 {
        Some(id) if id != NULL_VERSION && time_of(id).is_none() => {
            Err(no_such_version("Azure has no such version: its versions are times"))
        }
        _ => Ok(()),
    }
}

fn is_null(name: &str) -> bool {
    split_version(name).1 == Some(NULL_VERSION)
}

/// Refuses a blob that has an id where the one without was asked for.
///
/// # Errors
/// `NotFound`.
pub(super) fn check_null(name: &str, headers: &HeaderMap) -> Result<()> {
    match is_null(name) && told(headers).is_some() {
        true => Err(no_such_version("the blob has no version `null`: Azure gave each its id")),
        false => Ok(()),
    }
}

/// The answer to whoever asks a container to keep versions, or not to.
pub(super) fn set_on_account() -> Error {
    let why = "Azure keeps versions, or does not, for all containers of an account alike";
    Error::new(Kind::Unsupported, why).with_hint(
        "Set it on the account: az storage account blob-service-properties update \
         --enable-versioning true --account-name NAME",
    )
}

/// What a container's blobs tell of the account's setting: that of the last write.
fn kept(entries: &[VersionEntry]) -> Versioning {
    let has_id = |entry: &VersionEntry| entry.id != NULL_VERSION;
    let last = entries.iter().max_by_key(|entry| (entry.meta.modified, has_id(entry)));
    match last {
        Some(last) if has_id(last) => Versioning::Enabled,
        _ if entries.iter().any(has_id) => Versioning::Suspended,
        _ => Versioning::Never,
    }
}

fn latest_first(a: &VersionEntry, b: &VersionEntry) -> Ordering {
    let age = |entry: &VersionEntry| (entry.is_latest, time_of(&entry.id));
    age(b).cmp(&age(a))
}

/// Where a listing goes on: behind a key, or behind a version of it.
#[derive(Clone, Copy, Debug)]
struct Marker<'a> {
    key: &'a str,
    version: Option<&'a str>,
}

impl<'a> Marker<'a> {
    /// # Errors
    /// `Invalid` for a version that cannot be one.
    fn of(request: &'a VersionsRequest) -> Result<Option<Self>> {
        let version = request.version_marker.as_deref();
        if version.is_some_and(|id| id != NULL_VERSION && time_of(id).is_none()) {
            let why = "the version marker is no version of this container";
            return Err(Error::new(Kind::Invalid, why));
        }
        let key = request.key_marker.as_deref().filter(|key| !key.is_empty());
        Ok(key.map(|key| Marker { key, version }))
    }

    fn admits(&self, entry: &VersionEntry) -> bool {
        let is_older = |id: &str| match id {
            // What has no id is what the blob holds now.
            NULL_VERSION => entry.id != NULL_VERSION,
            id => entry.id != NULL_VERSION && time_of(&entry.id) < time_of(id),
        };
        match entry.key.as_str().cmp(self.key) {
            Ordering::Greater => true,
            Ordering::Equal => self.version.is_some_and(is_older),
            Ordering::Less => false,
        }
    }

    /// A prefix that the key itself lies in may hold names behind it.
    fn may_admit(&self, prefix: &str) -> bool {
        prefix > self.key || self.is_inside(prefix)
    }

    /// Whether the key is one of those that the prefix folds; the prefix itself stands for all.
    fn is_inside(&self, prefix: &str) -> bool {
        self.key.len() > prefix.len() && self.key.starts_with(prefix)
    }
}

/// One page of the service: versions, folded prefixes, and its marker of the next.
#[derive(Debug, Default)]
pub(super) struct Page {
    versions: Vec<VersionEntry>,
    prefixes: Vec<String>,
    next: String,
    /// As a page of blobs tells it.
    is_hierarchical: Option<bool>,
}

/// A version that is being read.
#[derive(Default)]
struct Version {
    name: Option<String>,
    id: Option<String>,
    is_current: bool,
    is_hidden: bool,
    meta: ObjectMeta,
}

/// Reads one page of List Blobs with versions. Directories and what was removed softly are left
/// out.
///
/// # Errors
/// `Corrupt` (retry) for what is no such answer.
pub(super) fn parse_page(body: &[u8]) -> Result<Page> {
    let mut page = Page::default();
    let (mut version, mut prefix, mut is_listing) = (Version::default(), None, false);
    xml::walk(body, |element| {
        let path: Vec<&str> = element.path.iter().map(String::as_str).collect();
        let text = element.text;
        match path[..] {
            ["EnumerationResults"] => is_listing = true,
            ["EnumerationResults", "NextMarker"] => page.next = text.to_string(),
            ["EnumerationResults", "Blobs", "BlobPrefix", "Name"] => {
                prefix = Some(list::name(&element)?);
            }
            ["EnumerationResults", "Blobs", "BlobPrefix"] => {
                page.prefixes.push(prefix.take().ok_or_else(|| corrupt("a prefix has no name"))?);
            }
            ["EnumerationResults", "Blobs", "Blob", "Name"] => {
                version.name = Some(list::name(&element)?);
            }
            ["EnumerationResults", "Blobs", "Blob", "VersionId"] => {
                version.id = Some(text.trim().to_string()).filter(|id| !id.is_empty());
            }
            ["EnumerationResults", "Blobs", "Blob", "IsCurrentVersion"] => {
                version.is_current = text.trim() == "true";
            }
            ["EnumerationResults", "Blobs", "Blob", "Deleted"] => {
                version.is_hidden |= text.trim() == "true";
            }
            ["EnumerationResults", "Blobs", "Blob" | "BlobPrefix", "Properties", RESOURCE_TYPE] => {
                page.is_hierarchical = Some(true);
                version.is_hidden |= list::property(&mut version.meta, RESOURCE_TYPE, text)?;
            }
            ["EnumerationResults", "Blobs", "Blob", "Properties", field] => {
                version.is_hidden |= list::property(&mut version.meta, field, text)?;
            }
            ["EnumerationResults", "Blobs", "Blob", "Metadata", entry] => {
                version.is_hidden |= marks_directory(entry, text);
            }
            ["EnumerationResults", "Blobs", "Blob"] => {
                let read = std::mem::take(&mut version);
                page.is_hierarchical.get_or_insert(false);
                let is_hidden = read.is_hidden;
                let entry = read.entry()?;
                page.versions.extend(Some(entry).filter(|_| !is_hidden));
            }
            _ => {}
        }
        Ok(())
    })?;
    if is_listing { Ok(page) } else { Err(corrupt("it is no listing")) }
}

impl Version {
    fn entry(self) -> Result<VersionEntry> {
        let key = self.name.ok_or_else(|| corrupt("a blob has no name"))?;
        if self.id.as_deref().is_some_and(|id| time_of(id).is_none()) {
            return Err(corrupt("the id of a version is no time"));
        }
        let is_latest = self.is_current || self.id.is_none();
        let id = self.id.unwrap_or_else(|| NULL_VERSION.to_string());
        Ok(VersionEntry { key, id, is_latest, is_marker: false, meta: self.meta })
    }
}

impl AzureStore {
    /// Whether versions are kept, as far as the first blobs of the container tell: the setting is
    /// the account's, and only its management knows it.
    pub(super) async fn versions_kept(&self) -> Result<Versioning> {
        let request = ListRequest { max_keys: Some(SAMPLE), ..ListRequest::default() };
        let page = self.versions_page(&request, &Token::default()).await?;
        Ok(kept(&page.versions))
    }

    /// A page of versions as S3 lists them.
    pub(super) async fn versions(&self, request: &VersionsRequest) -> Result<VersionsPage> {
        const OPERATION: &str = "list versions";
        let prefix = request.prefix.as_str();
        let named = |error: Error| self.wire.named(error, OPERATION, prefix);
        let marker = Marker::of(request).map_err(named)?;
        if self.namespace.is_hierarchical() {
            return self.current_versions(request, marker).await;
        }
        let mut from =
            Token { start_after: marker.map(|it| it.key.to_string()), ..Token::default() };
        let mut asked = ListRequest {
            prefix: prefix.to_string(),
            delimiter: request.delimiter.clone(),
            ..ListRequest::default()
        };
        let (mut found, mut progress) = (Found::default(), Progress::default());
        loop {
            // A service that does not start where it is told lists all that comes before.
            let is_from_start = from.start_after.is_some() && self.start_from_refused.load(Relaxed);
            let most = u32::try_from(request.max.saturating_add(1)).unwrap_or(LIST_PAGE_MAX);
            asked.max_keys = Some(if is_from_start { LIST_PAGE_MAX } else { most });
            let page = self.versions_page(&asked, &from).await?;
            if marker.is_some() && self.namespace.is_unknown() {
                self.ask_namespace(prefix, BLOBS).await?;
            }
            if self.namespace.is_hierarchical() {
                return self.current_versions(request, marker).await;
            }
            let admits = |entry: &VersionEntry| marker.is_none_or(|it| it.admits(entry));
            let may_admit = |prefix: &String| marker.is_none_or(|it| it.may_admit(prefix));
            found.versions.extend(page.versions.into_iter().filter(admits));
            found.prefixes.extend(page.prefixes.into_iter().filter(may_admit));
            if page.next.is_empty() {
                break;
            }
            let open = found.versions.iter().map(|entry| entry.key.as_str()).max();
            if found.complete(open) > request.max {
                found.has_more = true;
                break;
            }
            progress.go_on(&page.next).map_err(|did| named(corrupt(&format!("it {did}"))))?;
            from.marker = page.next;
        }
        if let Some(marker) = marker {
            self.drop_passed(&mut found, marker).await?;
        }
        Ok(found.page(request.max, latest_first))
    }

    /// The same of an account with a hierarchical namespace, which keeps no versions: each blob is
    /// what it holds now. Its lists take a walk to be in order.
    async fn current_versions(
        &self,
        request: &VersionsRequest,
        marker: Option<Marker<'_>>,
    ) -> Result<VersionsPage> {
        let most = u32::try_from(request.max.saturating_add(1)).unwrap_or(LIST_PAGE_MAX);
        let mut asked = ListRequest {
            prefix: request.prefix.clone(),
            delimiter: request.delimiter.clone(),
            start_after: marker.map(|marker| marker.key.to_string()),
            max_keys: Some(most),
            ..ListRequest::default()
        };
        let current = |entry: ListEntry| VersionEntry {
            key: entry.key,
            id: NULL_VERSION.to_string(),
            is_latest: true,
            is_marker: false,
            meta: entry.meta,
        };
        let (mut found, mut progress) = (Found::default(), Progress::default());
        loop {
            let page = self.list_in_order(&asked).await?;
            found.versions.extend(page.objects.into_iter().map(current));
            let may_admit = |prefix: &String| marker.is_none_or(|it| it.may_admit(prefix));
            found.prefixes.extend(page.prefixes.into_iter().filter(may_admit));
            let Some(token) = page.next else { break };
            if found.len() > request.max {
                found.has_more = true;
                break;
            }
            let went = progress.go_on(&token).map_err(|did| corrupt(&format!("it {did}")));
            went.map_err(|error| self.wire.named(error, "list versions", &request.prefix))?;
            asked.token = Some(token);
        }
        Ok(found.page(request.max, latest_first))
    }

    /// Leaves out the prefix that the marker lies in, unless a version behind the marker does too:
    /// the service folds what comes before it as well.
    async fn drop_passed(&self, found: &mut Found, marker: Marker<'_>) -> Result<()> {
        let at = found.prefixes.iter().position(|prefix| marker.is_inside(prefix));
        let Some(at) = at else { return Ok(()) };
        let probe = VersionsRequest {
            prefix: found.prefixes[at].clone(),
            delimiter: None,
            key_marker: Some(marker.key.to_string()),
            version_marker: marker.version.map(str::to_string),
            max: 1,
        };
        if self.list_versions(&probe).await?.versions.is_empty() {
            found.prefixes.remove(at);
        }
        Ok(())
    }

    async fn versions_page(&self, request: &ListRequest, from: &Token) -> Result<Page> {
        const OPERATION: &str = "list versions";
        let was_refused = self.start_from_refused.load(Relaxed);
        let mut response = self.list_page(request, from, "metadata,versions").await?;
        if response.status == 400 {
            let failure = Failure::read(response).await;
            if failure.code != "InvalidQueryParameterValue" {
                return Err(self.wire.failed(failure, OPERATION, &request.prefix));
            }
            // Of an account that knows of no versions each blob is what it holds now. The refusal
            // says nothing of where a list may start.
            self.start_from_refused.store(was_refused, Relaxed);
            response = self.list_page(request, from, "metadata").await?;
        }
        if response.status != 200 {
            return Err(self.wire.refused(response, OPERATION, &request.prefix).await);
        }
        let body = response.body.read_to_bytes(LIST_BYTES_MAX).await;
        let page = body.and_then(|body| parse_page(&body));
        let page = page.map_err(|error| self.wire.named(error, OPERATION, &request.prefix))?;
        self.namespace.notice(page.is_hierarchical);
        Ok(page)
    }

    /// Removes a blob, which leaves its versions, or one version for good.
    pub(super) async fn remove_version(
        &self,
        key: &str,
        version: Option<&str>,
        if_match: Option<&ETag>,
    ) -> Result<Removed> {
        const OPERATION: &str = "DELETE";
        let Some(id) = version else {
            self.check_key(OPERATION, key)?;
            self.delete_one(key, if_match).await?;
            return Ok(Removed::default());
        };
        let name = versioned(key, id);
        self.check_key(OPERATION, &name)?;
        let removed = Removed { version: Some(id.to_string()), is_marker: false };
        if id == NULL_VERSION {
            return self.remove_current(key, id, if_match).await.map(|()| removed);
        }
        if let Some(failure) = self.delete_named(&name, if_match).await? {
            if failure.code != "OperationNotAllowedOnRootBlob" {
                return Err(self.wire.failed(failure, OPERATION, &name));
            }
            self.remove_current(key, id, if_match).await?;
            if let Some(failure) = self.delete_named(&name, if_match).await? {
                return Err(self.wire.failed(failure, OPERATION, &name));
            }
        }
        Ok(removed)
    }

    /// Removes the blob, if it is this version still: that is one like any other then, where
    /// versions are kept.
    async fn remove_current(&self, key: &str, id: &str, if_match: Option<&ETag>) -> Result<()> {
        const OPERATION: &str = "DELETE";
        let current = match self.head(OPERATION, key, &GetRequest::default()).await {
            Ok(meta) => meta,
            Err(error) if error.kind() == Kind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        if current.version.as_deref().unwrap_or(NULL_VERSION) != id {
            return Ok(());
        }
        let etag = if_match.or(current.etag.as_ref());
        match self.delete_one(key, etag).await {
            // Nobody asked for a condition: another writer came between.
            Err(error) if error.kind() == Kind::Conflict && if_match.is_none() => {
                Err(error.with_service_code("OperationAborted"))
            }
            removed => removed,
        }
    }

    /// Delete Blob of one version; what is wrong, but for its not being there.
    async fn delete_named(&self, name: &str, if_match: Option<&ETag>) -> Result<Option<Failure>> {
        const OPERATION: &str = "DELETE";
        let headers = if_match.map(|etag| ("if-match", etag.header_value())).into_iter().collect();
        let ask = Ask { headers, ..Ask::default() };
        let response = self.wire.send(OPERATION, name, Method::DELETE, ask).await?;
        if response.status == 202 {
            return self.acknowledged(response, OPERATION, name).await.map(|()| None);
        }
        let failure = Failure::read(response).await;
        Ok(Some(failure).filter(|failure| !is_gone(failure)))
    }

    /// Sees to it that a blob has no id where the version without is asked for, by operations whose
    /// answers do not tell.
    ///
    /// # Errors
    /// `NotFound`.
    pub(super) async fn require_null(&self, operation: &'static str, name: &str) -> Result<()> {
        if !is_null(name) {
            return Ok(());
        }
        self.head(operation, name, &GetRequest::default()).await.map(drop)
    }
}

#[cfg(test)]
mod tests;

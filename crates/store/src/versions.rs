//! Versions of objects: their names, and how they are listed. Pure.

use crate::ObjectMeta;

/// The id of the version that was written while no versions were kept.
pub const NULL_VERSION: &str = "null";

/// Between a key and the id of one of its versions; no key of S3 or Azure that anybody can write
/// has it.
const VERSION_MARK: char = '\0';

/// The service code of an object whose latest version is a delete marker; the marker's id follows.
pub(crate) const MARKER: &str = "DeleteMarker:";
/// The service code of a version that is one.
pub(crate) const MARKER_VERSION: &str = "DeleteMarkerVersion:";

/// The name of one version of an object, for every method that reads, tags or copies from one. A
/// store without versions has no object of this name.
pub fn versioned(key: &str, version: &str) -> String {
    format!("{key}{VERSION_MARK}{version}")
}

/// Key and version of a name that [`versioned`] may have made.
pub fn split_version(name: &str) -> (&str, Option<&str>) {
    match name.split_once(VERSION_MARK) {
        Some((key, version)) => (key, Some(version)),
        None => (name, None),
    }
}

/// Whether a container keeps the versions of its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versioning {
    /// It was never asked to.
    Never,
    /// Every write makes a version, every removal a delete marker.
    Enabled,
    /// What was kept stays; a write replaces the version `null`.
    Suspended,
}

/// What a removal did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// The version that was removed, or that the delete marker became.
    pub version: Option<String>,
    /// Whether a delete marker was made, or was what went.
    pub is_marker: bool,
}

/// One version of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionEntry {
    /// The key.
    pub key: String,
    /// The version's id.
    pub id: String,
    /// Whether it is what the key holds now.
    pub is_latest: bool,
    /// Whether it is a delete marker.
    pub is_marker: bool,
    /// Size, tag and time.
    pub meta: ObjectMeta,
}

/// A listing of versions, in byte order of the keys and latest first.
#[derive(Clone, Debug, Default)]
pub struct VersionsRequest {
    /// Only keys that start with this.
    pub prefix: String,
    /// As in [`crate::ListRequest`].
    pub delimiter: Option<String>,
    /// Only after this key, or after `version_marker` of it. A folded prefix is passed over whole.
    pub key_marker: Option<String>,
    /// Only after this version of `key_marker`.
    pub version_marker: Option<String>,
    /// Most versions and prefixes of a page.
    pub max: usize,
}

/// One page of such a listing.
#[derive(Clone, Debug, Default)]
pub struct VersionsPage {
    /// The versions.
    pub versions: Vec<VersionEntry>,
    /// Folded keys, each ending with the delimiter.
    pub prefixes: Vec<String>,
    /// The markers of the next page; `None` on the last.
    pub next: Option<(String, Option<String>)>,
}

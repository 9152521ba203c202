//! The nouns of the [`crate::Store`] trait.

use crate::Body;
use crate::answer::UNKNOWN_END;
use bytes::Bytes;
use penstock_base::{ByteRange, Error, Kind, Result};
use std::time::SystemTime;

/// Service code of what has no room on its disk ([`penstock_base::Error::service_code`]).
pub const STORAGE_FULL: &str = "StorageFull";

/// An entity tag without its quotes (RFC 9110 section 8.8.3). The quotes are put back on the wire,
/// so that the tag of a listing equals the tag of a GET whatever a store quotes where.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ETag(pub String);

impl ETag {
    /// Takes a header or XML value, with or without quotes.
    pub fn parse(text: &str) -> Self {
        let bare = text.trim();
        if bare.starts_with("W/") {
            return ETag(bare.to_string());
        }
        let bare = bare.strip_prefix('"').unwrap_or(bare);
        ETag(bare.strip_suffix('"').unwrap_or(bare).to_string())
    }

    /// Weak tags (`W/"..."`) promise equivalence, not equal bytes, so they cannot pin a version.
    pub fn is_strong(&self) -> bool {
        !self.0.is_empty() && !self.0.starts_with("W/")
    }

    /// The form for If-Match and If-None-Match headers.
    pub fn header_value(&self) -> String {
        if self.0.starts_with("W/") || self.0 == "*" {
            self.0.clone()
        } else {
            format!("\"{}\"", self.0)
        }
    }
}

/// What a store says of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Size in bytes. `None` only for an HTTP server that does not tell.
    pub size_bytes: Option<u64>,
    /// Version tag; `None` where the store has none.
    pub etag: Option<ETag>,
    /// Time of the last change, usually in whole seconds.
    pub modified: Option<SystemTime>,
    /// Media type, where the answer carried one.
    pub content_type: Option<String>,
    /// User metadata, names in lower case; filled by `get` and `stat`, empty in listings.
    pub metadata: Vec<(String, String)>,
    /// The version's id, where the container keeps versions; empty in listings.
    pub version: Option<String>,
    /// The storage class in S3's words; `None` for STANDARD, and where the store tells none.
    pub storage_class: Option<Box<str>>,
}

/// Which bytes to get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GetRange {
    /// The whole object.
    #[default]
    All,
    /// These bytes; the answer is shorter where the object ends before.
    Bounded(ByteRange),
    /// From this offset to the end.
    From(u64),
    /// The last so many bytes (not on Azure, see [`crate::Capabilities::suffix_range`]).
    Suffix(u64),
}

impl GetRange {
    /// The bytes that the range names in an object of this size. Empty where the range begins at
    /// or past the end.
    pub fn resolve(&self, size_bytes: u64) -> ByteRange {
        match *self {
            GetRange::All => ByteRange { start: 0, end: size_bytes },
            GetRange::Bounded(range) => {
                let start = range.start.min(size_bytes);
                ByteRange { start, end: range.end.min(size_bytes).max(start) }
            }
            GetRange::From(start) => ByteRange { start: start.min(size_bytes), end: size_bytes },
            GetRange::Suffix(len) => {
                ByteRange { start: size_bytes.saturating_sub(len), end: size_bytes }
            }
        }
    }
}

/// A GET. [`GetRange`] makes one without conditions.
#[derive(Clone, Debug, Default)]
pub struct GetRequest {
    /// Which bytes.
    pub range: GetRange,
    /// Fail with `Conflict` unless the object has this tag.
    pub if_match: Option<ETag>,
    /// Fail as not modified ([`penstock_base::Error::is_not_modified`]) while the object has this
    /// tag, compared weakly.
    pub if_none_match: Option<ETag>,
    /// Fail as not modified while the object was not changed after this time, in whole seconds;
    /// void beside `if_none_match`.
    pub if_modified_since: Option<SystemTime>,
}

impl From<GetRange> for GetRequest {
    fn from(range: GetRange) -> Self {
        GetRequest { range, ..GetRequest::default() }
    }
}

/// The answer to a GET: metadata first, bytes as they are asked for.
#[derive(Debug)]
pub struct GetResponse {
    /// The whole object's metadata (its size, not the range's).
    pub meta: ObjectMeta,
    /// The bytes that the body holds, checked against the request by the store. The end is
    /// `u64::MAX` where an HTTP server tells no length.
    pub range: ByteRange,
    /// The bytes.
    pub body: Body,
    /// Whether the body holds the range that was asked for, or the whole object.
    pub ranges: Ranges,
}

/// How a server took the range of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ranges {
    /// The body holds what was asked for.
    #[default]
    Served,
    /// The body holds the whole object, although a range of it was asked for.
    Ignored,
    /// The same, and the server says that it serves ranges (`Accept-Ranges: bytes`).
    Offered,
    /// The server packs what it sends (Content-Encoding), so that no range of the object can be
    /// asked for. The body holds the whole object, unpacked; its size is not known.
    Packed,
}

impl Ranges {
    /// Whether the body holds the whole object where a range was asked for.
    pub fn are_ignored(self) -> bool {
        self != Ranges::Served
    }
}

impl GetResponse {
    /// The range that was asked for, where the server sent the whole object: the bytes before it
    /// are read and dropped.
    ///
    /// # Errors
    /// `Unsupported` for the end of an object whose size is not known; as a read of the body.
    pub async fn cut(self, asked: GetRange) -> Result<Self> {
        if !self.ranges.are_ignored() || asked == GetRange::All {
            return Ok(self);
        }
        let range = match (asked, self.meta.size_bytes) {
            (GetRange::Suffix(_), None) => {
                let why = "the server knows neither ranges nor the object's size";
                return Err(Error::new(Kind::Unsupported, why)
                    .with_hint("Copy the object to a store that does"));
            }
            (asked, size) => asked.resolve(size.unwrap_or(UNKNOWN_END)),
        };
        let body = self.body.window(range.start, range).await?;
        Ok(GetResponse { range, body, ..self })
    }
}

/// Bytes to send. A retry sends them again, so they are held, in pieces to save a copy.
#[derive(Clone, Debug, Default)]
pub struct Payload(pub Vec<Bytes>);

impl Payload {
    /// Number of bytes.
    pub fn len(&self) -> u64 {
        self.0.iter().map(|piece| piece.len() as u64).sum()
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Bytes::is_empty)
    }

    /// All bytes in one piece; free when there is only one.
    pub fn into_bytes(mut self) -> Bytes {
        if self.0.len() == 1 {
            return self.0.remove(0);
        }
        self.0.concat().into()
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Payload(vec![bytes])
    }
}

/// When a write may take effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WriteCondition {
    /// Always: replace what is there.
    #[default]
    None,
    /// Only if nothing is there (If-None-Match: *).
    IfAbsent,
    /// Only over this version (If-Match).
    IfMatch(ETag),
    /// Only if something is there (If-Match: *).
    IfPresent,
    /// Only if nothing is there or another version than this one (If-None-Match).
    IfNoneMatch(ETag),
}

impl WriteCondition {
    /// Whether it holds while `current` is there.
    pub fn holds(&self, current: Option<&ETag>) -> bool {
        match self {
            WriteCondition::None => true,
            WriteCondition::IfAbsent => current.is_none(),
            WriteCondition::IfMatch(wanted) => current == Some(wanted),
            WriteCondition::IfPresent => current.is_some(),
            WriteCondition::IfNoneMatch(unwanted) => current != Some(unwanted),
        }
    }

    /// Whether it cannot hold where nothing is there.
    pub fn needs_object(&self) -> bool {
        matches!(self, WriteCondition::IfMatch(_) | WriteCondition::IfPresent)
    }
}

/// How to write an object.
#[derive(Clone, Debug, Default)]
pub struct PutOptions {
    /// When the write may take effect; `Conflict` otherwise.
    pub condition: WriteCondition,
    /// Media type.
    pub content_type: Option<String>,
    /// User metadata, names in lower case. Names that begin with `@`, which no header can have, are
    /// the object's own: `@cache-control`, `@content-disposition`, `@content-encoding`,
    /// `@content-language` and `@expires` are the headers of these names (kept as such where the
    /// store has them), `@tagging` the object's tags (RFC 3986 query pairs), `@storage-class` where
    /// the store puts it (only for stores with [`crate::StreamingStore::takes_class`]), and any
    /// other a note of whoever wrote it.
    pub metadata: Vec<(String, String)>,
}

impl PutOptions {
    /// Whether media type and metadata are given, so that a copy takes over none of its source's.
    /// Pairs whose names begin with `@` do not say so.
    pub fn replaces(&self) -> bool {
        self.content_type.is_some() || self.metadata.iter().any(|pair| !pair.0.starts_with('@'))
    }

    /// These options, with media type and metadata taken from `other` where both are absent here:
    /// a completed upload keeps what it began with, and a copy keeps its source's. Pairs whose
    /// names begin with `@` are added to the others.
    #[must_use]
    pub fn or_from(&self, other: &PutOptions) -> PutOptions {
        let mut options = self.clone();
        if !self.replaces() {
            options.content_type = other.content_type.clone();
            let own = &self.metadata;
            let is_new = |pair: &&(String, String)| {
                pair.0 != crate::notes::UPLOAD_SUMS && own.iter().all(|(name, _)| *name != pair.0)
            };
            options.metadata.extend(other.metadata.iter().filter(is_new).cloned());
        }
        options
    }
}

/// What a finished write left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutResult {
    /// The new version's tag, where the store told it.
    pub etag: Option<ETag>,
    /// The new version's time, where the store told it.
    pub modified: Option<SystemTime>,
    /// The new version's id, where the container keeps versions.
    pub version: Option<String>,
    /// Of a copy: the version that was copied, where the service tells it.
    pub copied_version: Option<String>,
}

/// One uploaded part, as the completing request names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// From 1, without gaps.
    pub number: u32,
    /// The tag the store gave it (S3), empty where the number names it (Azure).
    pub etag: String,
    /// Its size.
    pub size_bytes: u64,
}

/// A listing request. Names come in byte order.
#[derive(Clone, Debug, Default)]
pub struct ListRequest {
    /// Only names that start with this.
    pub prefix: String,
    /// Folds names below the next delimiter after the prefix into `prefixes`. Usually `/` or none.
    pub delimiter: Option<String>,
    /// Only names after this one, exclusive.
    pub start_after: Option<String>,
    /// Where the last page stopped; opaque, from [`ListPage::next`].
    pub token: Option<String>,
    /// Most names per page.
    pub max_keys: Option<u32>,
}

/// One page of a listing.
#[derive(Clone, Debug, Default)]
pub struct ListPage {
    /// Objects, in byte order of their names.
    pub objects: Vec<ListEntry>,
    /// Folded names, each ending with the delimiter.
    pub prefixes: Vec<String>,
    /// Token of the next page; `None` on the last. A page may be empty and not be the last.
    pub next: Option<String>,
}

/// One listed object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEntry {
    /// The whole key.
    pub key: String,
    /// What the listing told of it.
    pub meta: ObjectMeta,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_is_cut_to_the_object() {
        let bounded = |start, end| GetRange::Bounded(ByteRange { start, end });
        for (range, start, end) in [
            (GetRange::All, 0, 10),
            (bounded(2, 5), 2, 5),
            (bounded(8, 50), 8, 10),
            (bounded(30, 50), 10, 10),
            (GetRange::From(10), 10, 10),
            (GetRange::Suffix(4), 6, 10),
            (GetRange::Suffix(40), 0, 10),
        ] {
            assert_eq!(range.resolve(10), ByteRange { start, end }, "{range:?}");
        }
    }

    #[test]
    fn notes_join_what_an_upload_began_with() {
        let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
        let begun = PutOptions {
            content_type: Some("text/csv".into()),
            metadata: vec![
                pair("owner", "me"),
                pair("@parts", "old"),
                pair(crate::notes::UPLOAD_SUMS, "crc32:COMPOSITE"),
            ],
            ..Default::default()
        };
        let notes = PutOptions { metadata: vec![pair("@parts", "5")], ..Default::default() };
        let joined = notes.or_from(&begun);
        assert_eq!(joined.content_type.as_deref(), Some("text/csv"));
        assert_eq!(joined.metadata, [pair("@parts", "5"), pair("owner", "me")]);
        let other = PutOptions { metadata: vec![pair("a", "b")], ..Default::default() };
        assert_eq!(other.or_from(&begun).metadata, other.metadata);
    }

    #[test]
    fn etag_is_the_same_with_and_without_quotes() {
        assert_eq!(ETag::parse("\"0x8D\""), ETag::parse("0x8D"));
        assert_eq!(ETag::parse("0x8D").header_value(), "\"0x8D\"");
        let weak = ETag::parse(" W/\"1\"");
        assert!(!weak.is_strong());
        assert_eq!(weak.header_value(), "W/\"1\"");
    }
}

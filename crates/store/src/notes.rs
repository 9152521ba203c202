//! Names of pairs of [`PutOptions::metadata`](crate::PutOptions::metadata) that are the object's
//! own, and that more than one crate has to know.

use crate::answer::STANDARD_HEADERS;

/// What their names begin with; no name of a client's can, as it is a header's.
const NOTE: char = '@';

/// What a name of metadata is to whoever wrote the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named<'a> {
    /// A pair of the writer's own.
    Metadata(&'a str),
    /// A header of HTTP's, by its name in lower case.
    Header(&'static str),
    /// A note that the writer knows nothing of.
    Note,
}

impl Named<'_> {
    /// What this name is.
    pub fn of(name: &str) -> Named<'_> {
        match STANDARD_HEADERS.iter().find(|row| row.0 == name) {
            Some((_, header)) => Named::Header(header),
            None if name.starts_with(NOTE) => Named::Note,
            None => Named::Metadata(name),
        }
    }
}

/// The storage class to write an object in, in S3's words. What an object is in is told by
/// [`ObjectMeta::storage_class`](crate::ObjectMeta::storage_class), so a copy does not inherit it.
pub const STORAGE_CLASS: &str = "@storage-class";
/// The storage class that every store has, and in which an object is where nothing is told.
pub const STANDARD: &str = "STANDARD";
/// The object's tags (RFC 3986 query pairs, [`crate::tags`]).
pub const TAGGING: &str = "@tagging";
/// The gateway's access control list of an object.
pub const ACL: &str = "@acl";
/// The checksums that an upload began with: algorithm and type, as in `crc32:COMPOSITE`. The
/// upload's, not its object's.
pub const UPLOAD_SUMS: &str = "@upload-sums";
/// The checksums that a completion names: an algorithm, a colon, and one for each part or nothing,
/// with commas between. For stores that compare them by themselves.
pub const NAMED_SUMS: &str = "@named-sums";
/// The mark by which a conditional write knows its object again.
pub const WRITE: &str = "@write";

/// The storage class that an answer tells; `None` for [`STANDARD`].
pub(crate) fn told_class(text: &str) -> Option<Box<str>> {
    let class = text.trim();
    (!class.is_empty() && class != STANDARD).then(|| class.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_told_from_headers_and_from_metadata() {
        assert_eq!(Named::of("owner"), Named::Metadata("owner"));
        assert_eq!(Named::of("@cache-control"), Named::Header("cache-control"));
        for note in [STORAGE_CLASS, TAGGING, ACL, WRITE, "@checksum-crc32", "@parts"] {
            assert_eq!(Named::of(note), Named::Note, "{note}");
        }
    }
}

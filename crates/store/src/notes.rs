//! Names of pairs of [`PutOptions::metadata`](crate::PutOptions::metadata) that are the object's
//! own, and that more than one crate has to know.

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

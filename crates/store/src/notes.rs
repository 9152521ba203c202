//! Names of pairs of [`PutOptions::metadata`](crate::PutOptions::metadata) that are the object's
//! own, and that more than one crate has to know.

/// The object's tags (RFC 3986 query pairs, [`crate::tags`]).
pub const TAGGING: &str = "@tagging";
/// The gateway's access control list of an object.
pub const ACL: &str = "@acl";
/// The mark by which a conditional write knows its object again.
pub const WRITE: &str = "@write";

//! The order of a hierarchical namespace, and the forks of names: the places where it is another
//! one than that of bytes. Pure.

use super::super::list::{Listing, Name};
use std::cmp::Ordering;

/// The order of such an account.
pub fn compare(a: &str, b: &str) -> Ordering {
    let rank = |byte: u8| match byte {
        b'/' => 0,
        0..b'/' => byte + 1,
        _ => byte,
    };
    a.bytes().map(rank).cmp(b.bytes().map(rank))
}

/// The least name behind a directory and behind those of its siblings that byte order has before.
pub fn bound(node: &str) -> String {
    format!("{node}0")
}

/// What the names in a directory begin with.
pub fn below(node: &str) -> String {
    format!("{node}/")
}

/// The places at or behind `from` bytes where a name goes on with `/` (then the fork is open: more
/// of the directory may follow) or with a character before that.
pub fn forks(name: &str, from: usize) -> impl Iterator<Item = (&str, bool)> {
    let bytes = name.as_bytes();
    // Such an account has no empty names between slashes.
    let at =
        (from.max(1)..bytes.len()).filter(move |at| bytes[*at] <= b'/' && bytes[at - 1] != b'/');
    at.map(move |at| (&name[..at], bytes[at] == b'/'))
}

/// What there is at a fork.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// Whether there is a directory of this name.
    pub is_directory: bool,
    /// The first sibling that byte order has before what is in the directory.
    pub low: Option<String>,
}

impl Sight {
    /// Looks at the next page of the names that begin with `node`, folded at `/`; whether all is
    /// known by then.
    pub fn see(&mut self, node: &str, listing: &Listing) -> bool {
        let mut names: Vec<&str> = listing.names.iter().map(Name::text).collect();
        names.sort_by(|a, b| compare(a, b));
        for name in names {
            let Some(rest) = name.strip_prefix(node) else { continue };
            match rest.bytes().next() {
                None => {}
                Some(b'/') => self.is_directory = true,
                Some(next) => {
                    let sibling = name.strip_suffix('/').unwrap_or(name);
                    self.low = (next < b'/').then(|| sibling.to_string());
                    return true;
                }
            }
        }
        listing.marker.is_empty()
    }
}

/// A node, and what there is at it.
pub type Looked = (String, Sight);

/// What was seen at a node.
pub fn sight<'a>(looked: &'a [Looked], node: &str) -> Option<&'a Sight> {
    looked.iter().find(|(of, _)| of == node).map(|(_, sight)| sight)
}

/// Whether nothing can be at a node, since a part of it that a slash follows is no directory.
pub fn is_cut_off(node: &str, looked: &[Looked]) -> bool {
    let cuts = |(part, sight): &Looked| {
        let rest = node.strip_prefix(part.as_str());
        !sight.is_directory && rest.is_some_and(|rest| rest.starts_with('/'))
    };
    looked.iter().any(cuts)
}

/// What a name is, seen from a prefix: up to the next `/`.
pub fn component<'a>(prefix: &str, name: &'a str) -> &'a str {
    let rest = name.get(prefix.len()..).unwrap_or_default();
    let end = rest.find('/').unwrap_or(rest.len());
    &name[..name.len() - rest.len() + end]
}

//! In place of `wide_hash.rs` on other processors: there the crate `ghash` does all of it.

/// More than any message has.
pub(crate) const WIDE_BYTES: usize = usize::MAX;

/// There is none.
pub(crate) enum WideHash {}

impl WideHash {
    pub(crate) fn new(_: &[u8; 16]) -> Option<Self> {
        None
    }

    pub(crate) fn add<'a>(&self, _: &mut [u8; 16], _: &'a [u8]) -> &'a [u8] {
        match *self {}
    }
}

//! Names: listing, globbing, existence, removing, copying.

mod change;
mod glob;
mod list;
mod listings;
mod pages;
mod pattern;

pub(crate) use listings::Listings;
pub use pages::GlobPages;

use penstock_store::ObjectMeta;

/// One name that a listing or glob found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The whole URL, spelt as the caller spells the store; of a directory without the last slash.
    pub url: String,
    /// The key inside the store; of a directory without the last slash.
    pub key: String,
    /// Whether it stands for the names below it.
    pub is_directory: bool,
    /// What the listing told; empty for a directory.
    pub meta: ObjectMeta,
}

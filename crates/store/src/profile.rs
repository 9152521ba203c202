//! What a store says of itself: its physics and its abilities.

/// How a store likes to be asked. A starting point: the engine learns better values while it runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// Expected time to the first byte.
    pub first_byte_ms: f64,
    /// Expected bandwidth of one connection.
    pub connection_bytes_per_s: f64,
    /// Smallest part that is not the last (S3: 5 MiB).
    pub part_size_min_bytes: u64,
    /// Largest part.
    pub part_size_max_bytes: u64,
    /// Most parts of one object.
    pub part_count_max: u32,
    /// Whether all parts but the last must have the same size (R2).
    pub parts_uniform: bool,
    /// Largest object that one PUT may carry.
    pub put_size_max_bytes: u64,
    /// Most names in one batch delete.
    pub delete_batch_max: usize,
}

/// What a store can do. Conformance tests check each claim, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// PUT, DELETE, uploads.
    pub write: bool,
    /// Listing.
    pub list: bool,
    /// GET of the last n bytes.
    pub suffix_range: bool,
    /// If-Match and If-None-Match on writes.
    pub conditional_put: bool,
    /// If-Match on DELETE.
    pub conditional_delete: bool,
    /// Listings carry ETags equal to those of GET.
    pub list_etag: bool,
    /// Server-side copy.
    pub copy: bool,
}

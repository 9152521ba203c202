//! Names: listing, globbing, existence, removing, copying.

mod change;
mod changing;
mod glob;
mod kept;
mod list;
mod listings;
mod pages;
mod pattern;
mod turned;

pub use changing::Change;
pub(crate) use changing::may_have_acted;
pub(crate) use kept::KeptListings;
pub(crate) use listings::Listings;
pub use pages::GlobPages;
pub use pattern::fits as fits_pattern;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use pattern::fuzz as fuzz_pattern;
pub(crate) use turned::Turned;

use penstock_base::{micros, redact};
use penstock_store::ObjectMeta;
use std::sync::OnceLock;
use std::time::Duration;
use tokio::time::Instant;

/// One name that a listing or glob found.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// The whole URL, spelt as the caller spells the store; of a directory without the last slash.
    pub url: String,
    /// The key inside the store; of a directory without the last slash.
    pub key: String,
    /// Whether it stands for the names below it.
    pub is_directory: bool,
    /// What the listing told; empty for a directory.
    pub meta: ObjectMeta,
    /// When that was.
    pub listed: Listed,
}

/// By hand: a URL's query may hold a signature or a key.
impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry")
            .field("url", &redact::url(&self.url))
            .field("is_directory", &self.is_directory)
            .field("meta", &self.meta)
            .finish_non_exhaustive()
    }
}

impl Entry {
    pub(crate) fn object(url: String, key: String, meta: ObjectMeta) -> Self {
        Entry { url, key, is_directory: false, meta, listed: Listed(Instant::now()) }
    }
}

/// When a name was listed, on a clock that only goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed(pub(crate) Instant);

/// Where the numbers of [`Listed::to_us`] begin.
static BEGINNING: OnceLock<Instant> = OnceLock::new();

impl Listed {
    /// As a number for callers that keep it; never 0. It means something to this process only.
    pub fn to_us(self) -> u64 {
        let since = self.0.saturating_duration_since(*BEGINNING.get_or_init(|| self.0));
        micros(since).saturating_add(1)
    }

    /// What such a number stood for, within a microsecond; `None` for 0.
    pub fn from_us(us: u64) -> Option<Self> {
        let since = Duration::from_micros(us.checked_sub(1)?);
        // Rounded up, or what a query listed at its very beginning would seem older than it.
        BEGINNING.get()?.checked_add(since + Duration::from_micros(1)).map(Listed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_comes_back_from_its_number() {
        let first = Listed(Instant::now());
        let later = Listed(first.0 + Duration::from_nanos(1_234_567));
        for listed in [first, later] {
            let back = Listed::from_us(listed.to_us()).unwrap();
            assert!(back.0 >= listed.0 && back.0 - listed.0 <= Duration::from_micros(1));
        }
        assert_eq!(Listed::from_us(0), None);
    }
}

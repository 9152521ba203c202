//! Opens a store for a URL: the one place that knows the HTTP client's making.

use crate::location::{Opener, StoreOption};
use penstock_base::{Error, Kind, Result, Settings};
use penstock_store::{Observer, Store};
use std::sync::Arc;

#[derive(Debug)]
struct AllSchemes;

impl Opener for AllSchemes {
    fn open(&self, url: &str, _options: &[StoreOption]) -> Result<(Arc<dyn Store>, String)> {
        Err(Error::new(Kind::Unsupported, "no store handles this scheme").with_object(url))
    }
}

/// The opener of every scheme that the store crate knows.
///
/// # Errors
/// `Invalid` for a `ca_file` or `http_proxy` that cannot be used.
pub(crate) fn all_schemes(
    _observer: Arc<dyn Observer>,
    _settings: &Settings,
) -> Result<Arc<dyn Opener>> {
    Ok(Arc::new(AllSchemes))
}

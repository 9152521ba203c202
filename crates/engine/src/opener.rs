//! Opens a store for a URL: the one place that knows how the HTTP client is made.

use crate::location::{Opener, StoreOption};
use penstock_base::{Result, Settings};
use penstock_store::options::StoreOptions;
use penstock_store::{HttpClient, HttpOptions, Observer, Store};
use std::sync::Arc;

/// Every scheme that the store crate knows, over one HTTP client.
#[derive(Debug)]
struct AllSchemes(HttpClient);

impl Opener for AllSchemes {
    fn root_of(&self, url: &str) -> Result<(String, String)> {
        penstock_store::root_of(url)
    }

    fn open(&self, url: &str, options: &[StoreOption]) -> Result<(Arc<dyn Store>, String)> {
        let options = StoreOptions::new(options.iter().map(|(name, value)| (name, value)))
            .map_err(|error| error.with_object(url))?;
        penstock_store::open(url, &options, &self.0)
    }
}

/// The opener of every scheme that the store crate knows.
///
/// # Errors
/// `Invalid` for a `ca_file` or `http_proxy` that cannot be used.
pub(crate) fn all_schemes(
    observer: Arc<dyn Observer>,
    settings: &Settings,
) -> Result<Arc<dyn Opener>> {
    let client = HttpClient::new(HttpOptions::from_settings(settings)?, observer)?;
    Ok(Arc::new(AllSchemes(client)))
}

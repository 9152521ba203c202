//! Opens a store for a URL: the one place that knows the HTTP client's making.

use crate::location::{Opener, StoreOption};
use penstock_base::{Result, Settings};
use penstock_store::{HttpClient, HttpOptions, Observer, Store, StoreOptions};
use std::sync::Arc;

/// Every scheme of the store crate, over one HTTP client: connections are shared by all stores.
#[derive(Debug)]
struct AllSchemes {
    http: HttpClient,
}

impl Opener for AllSchemes {
    fn open(&self, url: &str, options: &[StoreOption]) -> Result<(Arc<dyn Store>, String)> {
        let options = options.iter().map(|(name, value)| (name, value));
        penstock_store::open(url, &StoreOptions::new(options)?, &self.http)
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
    let http = HttpClient::new(HttpOptions::from_settings(settings)?, observer)?;
    Ok(Arc::new(AllSchemes { http }))
}

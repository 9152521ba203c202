//! Opens a store for a URL: the one place that knows how HTTP clients are made.

use crate::generations::Generations;
use crate::location::{Opener, StoreOption};
use penstock_base::{Error, Result, Settings};
use penstock_store::options::StoreOptions;
use penstock_store::{HttpClient, HttpOptions, Observer, Store};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Most clients kept besides the engine's own. One that is forgotten lives on in its stores.
const CLIENTS_MAX: u64 = 16;

/// Every scheme that the store crate knows, over one HTTP client, and over others for queries
/// whose settings ask for them.
#[derive(Debug)]
struct AllSchemes {
    own: HttpClient,
    others: Mutex<Generations<HttpOptions, HttpClient>>,
    observer: Arc<dyn Observer>,
}

impl AllSchemes {
    fn client(&self, http: Option<&HttpOptions>) -> Result<HttpClient> {
        let Some(http) = http else { return Ok(self.own.clone()) };
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = others.get(http) {
            return Ok(client.clone());
        }
        let client = HttpClient::new(http.clone(), Arc::clone(&self.observer))?;
        others.insert(http.clone(), client.clone(), 1);
        Ok(client)
    }
}

impl Opener for AllSchemes {
    fn root_of(&self, url: &str) -> Result<(String, String)> {
        penstock_store::root_of(url)
    }

    fn open(
        &self,
        url: &str,
        options: &[StoreOption],
        http: Option<&HttpOptions>,
    ) -> Result<(Arc<dyn Store>, String)> {
        let named = |error: Error| error.with_object(url);
        let options =
            StoreOptions::new(options.iter().map(|(name, value)| (name, value))).map_err(named)?;
        let client = self.client(http).map_err(named)?;
        penstock_store::open(url, &options, &client)
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
    let own = HttpClient::new(HttpOptions::from_settings(settings)?, Arc::clone(&observer))?;
    Ok(Arc::new(AllSchemes { own, others: Mutex::new(Generations::new(CLIENTS_MAX)), observer }))
}

/// The HTTP options of a query, where its settings ask for others than the engine's own.
///
/// # Errors
/// `Invalid` or `Unsupported` for an `http_proxy` that is none.
pub(crate) fn http_options_of(query: &Settings, engine: &Settings) -> Result<Option<HttpOptions>> {
    // Almost always the two are one, and nothing has to be made of them.
    if query == engine {
        return Ok(None);
    }
    let asked = HttpOptions::from_settings(query)?;
    Ok((asked != HttpOptions::from_settings(engine)?).then_some(asked))
}

/// Judges settings by what they mean, not only by their form: a proxy that is none, a `ca_file`
/// without certificates.
///
/// # Errors
/// `Invalid` or `Unsupported`, with the name of the setting.
pub fn check_settings(settings: &Settings) -> Result<()> {
    crate::cache::Home::of(settings)?;
    check_proxy(settings)?;
    check_ca_file(settings)
}

/// Whether the proxy of the settings is one, where they name one.
///
/// # Errors
/// `Invalid` or `Unsupported`.
pub fn check_proxy(settings: &Settings) -> Result<()> {
    HttpOptions::from_settings(settings).map(drop)
}

/// Whether the certificates can be read that the settings trust, where they name a file.
///
/// # Errors
/// `Invalid`, with the reason.
pub fn check_ca_file(settings: &Settings) -> Result<()> {
    let ca_file = settings.ca_file.clone();
    HttpOptions::from_settings(&Settings { ca_file, ..Settings::default() })?.check()
}

/// Whether the disk cache that the settings ask for, if any, could be made and filled. Leaves
/// nothing behind.
///
/// # Errors
/// `Invalid`, with the reason.
pub fn check_cache(settings: &Settings) -> Result<()> {
    match settings.cache_dir.as_str() {
        "" => Ok(()),
        _ => crate::cache::Home::of(settings)?.check(),
    }
}

/// The directory of the disk cache, where the settings ask for one and it is none on a device. It
/// need not be there.
///
/// # Errors
/// `Invalid` for what names neither a directory nor a device.
pub fn cache_directory(settings: &Settings) -> Result<Option<PathBuf>> {
    match settings.cache_dir.as_str() {
        "" => Ok(None),
        _ => Ok(crate::cache::Home::of(settings)?.directory()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_log::EngineObserver;

    fn with(name: &str, value: &str) -> Settings {
        let mut settings = Settings::default();
        settings.set(name, value).unwrap();
        settings
    }

    #[test]
    fn every_http_setting_of_a_query_asks_for_another_client() {
        let engine = Settings::default();
        for (name, value) in [
            ("http_proxy", "http://px:1"),
            ("ca_file", "/x.pem"),
            ("stall_timeout_ms", "1"),
            ("connect_timeout_ms", "1"),
            ("connections_per_host", "1"),
        ] {
            assert!(http_options_of(&with(name, value), &engine).unwrap().is_some(), "{name}");
        }
        for settings in [with("list_page_size", "7"), engine.clone()] {
            assert_eq!(http_options_of(&settings, &engine).unwrap(), None);
        }
        let error = http_options_of(&with("http_proxy", "a b"), &engine).unwrap_err();
        assert!(error.to_string().contains("http_proxy"), "{error}");
    }

    #[test]
    fn clients_are_shared_and_few() {
        let observer: Arc<dyn Observer> = Arc::new(EngineObserver::new(Arc::default(), 0));
        let opener = AllSchemes {
            own: HttpClient::new(HttpOptions::default(), Arc::clone(&observer)).unwrap(),
            others: Mutex::new(Generations::new(CLIENTS_MAX)),
            observer,
        };
        for count in 1..100 {
            let http = HttpOptions { connections_per_host: count, ..HttpOptions::default() };
            opener.client(Some(&http)).unwrap();
            let kept = opener.others.lock().unwrap().len();
            assert!(kept as u64 <= CLIENTS_MAX);
            opener.client(Some(&http)).unwrap();
            assert_eq!(opener.others.lock().unwrap().len(), kept, "the same one again");
        }
    }

    #[test]
    fn settings_are_judged_by_what_they_mean() {
        assert!(check_settings(&Settings::default()).is_ok());
        for (name, value) in [("http_proxy", "garbage:::"), ("ca_file", "/nonexistent.pem")] {
            let error = check_settings(&with(name, value)).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}

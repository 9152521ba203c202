//! From a URL and its options to a store and a key.
//!
//! Decides which scheme is whose, and what all HTTP stores share: proxy, certificates, headers.
//! Opening sends no request.

use crate::azure::Address;
use crate::hub::root_and_key;
use crate::options::{Family, StoreOptions};
use crate::{AzureStore, HttpClient, HttpStore, LocalStore, MemoryStore, S3Store, Store};
use ::http::{HeaderName, HeaderValue};
use penstock_base::nearest::nearest;
use penstock_base::{Error, Kind, Result};
use std::path::Path;
use std::sync::Arc;

use crate::http::{Proxy, ProxyChoice};

/// Every scheme that [`open`] knows.
pub const SCHEMES: &[&str] = &[
    "s3", "s3a", "s3n", "r2", "gs", "gcs", "http", "https", "hf", "az", "azure", "abfss", "abfs",
    "file", "mem",
];

/// The store that a URL lies in, and the URL's key in it.
///
/// # Errors
/// `Invalid` for a malformed URL or option, `Unsupported` for an unknown scheme.
pub fn open(
    url: &str,
    options: &StoreOptions,
    http: &HttpClient,
) -> Result<(Arc<dyn Store>, String)> {
    let named = |error: Error| error.with_object(url);
    let (scheme, rest) = split_scheme(url).map_err(named)?;
    match scheme {
        "s3" | "s3a" | "s3n" | "r2" | "gs" | "gcs" => {
            let place = BucketUrl::parse(rest, options).map_err(named)?;
            let open = || {
                let http = client_for(Family::S3, options, http)?;
                S3Store::open_by_url(scheme, place.bucket, (&place.options, options), &http)
            };
            let store = open().map_err(named)?;
            Ok((Arc::new(store), place.key.to_string()))
        }
        "az" | "azure" | "abfss" | "abfs" => {
            let http = client_for(Family::Azure, options, http).map_err(named)?;
            let (store, key) = AzureStore::open(&http, url, options).map_err(named)?;
            Ok((Arc::new(store), key))
        }
        "http" | "https" => {
            let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
            let open = || {
                let http = client_for(Family::Http, options, http)?;
                HttpStore::open(scheme, authority, options, &http)
            };
            let store = open().map_err(named)?;
            Ok((Arc::new(store), key.to_string()))
        }
        "hf" => {
            let http = client_for(Family::Hub, options, http).map_err(named)?;
            let (store, key) = HttpStore::open_hub(rest, options, &http).map_err(named)?;
            Ok((Arc::new(store), key))
        }
        "file" => {
            let key = rest.strip_prefix('/').ok_or_else(|| {
                named(invalid("a file URL has three slashes").with_hint("Write file:///path"))
            })?;
            Ok((Arc::new(LocalStore::files()?), key.to_string()))
        }
        "mem" => {
            let (name, key) = rest.split_once('/').unwrap_or((rest, ""));
            Ok((MemoryStore::named(name), key.to_string()))
        }
        other => Err(named(unknown_scheme(other))),
    }
}

/// Root (ending with `/`) and key of a URL, without opening anything. Root and key joined are the
/// URL again, but for the options in its query.
///
/// # Errors
/// As [`open`].
pub fn root_of(url: &str) -> Result<(String, String)> {
    let named = |error: Error| error.with_object(url);
    let (scheme, rest) = split_scheme(url).map_err(named)?;
    match scheme {
        "s3" | "s3a" | "s3n" | "r2" | "gs" | "gcs" => {
            let place = BucketUrl::parse(rest, &StoreOptions::default()).map_err(named)?;
            Ok((format!("{scheme}://{}/", place.bucket), place.key.to_string()))
        }
        "az" | "azure" | "abfss" | "abfs" => {
            let address = Address::parse(url).map_err(named)?;
            Ok((address.root, address.key))
        }
        "hf" => root_and_key(rest).map_err(named),
        "file" => Ok(("file:///".to_string(), rest.strip_prefix('/').unwrap_or(rest).to_string())),
        _ => {
            let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
            Ok((format!("{scheme}://{authority}/"), key.to_string()))
        }
    }
}

/// Scheme, in lower case whatever the URL has (RFC 3986 section 3.1), and what follows its `://`.
fn split_scheme(url: &str) -> Result<(&'static str, &str)> {
    match url.split_once("://") {
        Some((scheme, rest)) => {
            match SCHEMES.iter().find(|known| known.eq_ignore_ascii_case(scheme)) {
                Some(known) => Ok((known, rest)),
                None => Err(unknown_scheme(scheme)),
            }
        }
        // A path of this machine.
        None if url.starts_with('/') => Ok(("file", url)),
        None => Err(invalid("this is no URL").with_hint("Write scheme://name/key")),
    }
}

fn unknown_scheme(scheme: &str) -> Error {
    let error = Error::new(Kind::Unsupported, format!("no store serves the scheme `{scheme}`"));
    match nearest(&scheme.to_ascii_lowercase(), SCHEMES.iter().copied()) {
        Some(near) => error.with_hint(format!("Did you mean `{near}://`?")),
        None => error.with_hint(format!("Known are {}", SCHEMES.join(", "))),
    }
}

/// `bucket/key?s3_region=...` with the options of the query.
#[derive(Debug)]
struct BucketUrl<'a> {
    bucket: &'a str,
    key: &'a str,
    options: StoreOptions,
}

impl<'a> BucketUrl<'a> {
    fn parse(rest: &'a str, options: &StoreOptions) -> Result<Self> {
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.contains(['@', ':']) {
            return Err(invalid("the URL names a bucket that cannot be")
                .with_hint("Give keys by a secret or by options of the store, not in the URL"));
        }
        let names = ["url_compatibility_mode", "s3_url_compatibility_mode"];
        if options.flag(&names)?.unwrap_or(false) {
            return Ok(BucketUrl { bucket, key, options: StoreOptions::default() });
        }
        // A `?` may also be a wildcard or part of a name, so only what looks like options is taken.
        match key.split_once('?').filter(|(_, query)| query.starts_with("s3_")) {
            Some((key, query)) => Ok(BucketUrl { bucket, key, options: query_options(query)? }),
            None => Ok(BucketUrl { bucket, key, options: StoreOptions::default() }),
        }
    }
}

/// Options in the query of an S3 URL, as httpfs takes them.
fn query_options(query: &str) -> Result<StoreOptions> {
    // The secret's key of the same meaning would win over the setting's, so its name is used.
    const NAMES: &[(&str, &str)] = &[
        ("s3_region", "region"),
        ("s3_access_key_id", "key_id"),
        ("s3_secret_access_key", "secret"),
        ("s3_session_token", "session_token"),
        ("s3_endpoint", "endpoint"),
        ("s3_url_style", "url_style"),
        ("s3_use_ssl", "use_ssl"),
        ("s3_kms_key_id", "kms_key_id"),
        ("s3_requester_pays", "requester_pays"),
    ];
    let mut options = StoreOptions::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some((_, option)) = NAMES.iter().find(|(known, _)| *known == name) else {
            let error = invalid(&format!("unknown option `{name}` in the URL"));
            return Err(match nearest(name, NAMES.iter().map(|(known, _)| *known)) {
                Some(near) => error.with_hint(format!("Did you mean `{near}`?")),
                None => error.with_hint("For a key with `?` SET s3_url_compatibility_mode = true"),
            });
        };
        let value = percent_encoding::percent_decode_str(value).decode_utf8_lossy();
        options.push(option, &value)?;
    }
    Ok(options)
}

/// The client for one store: its proxy and whom it trusts.
///
/// # Errors
/// `Invalid` or `Unsupported` for a proxy that is none.
pub(crate) fn client_for(
    family: Family,
    options: &StoreOptions,
    http: &HttpClient,
) -> Result<HttpClient> {
    let mut client = http.clone();
    let azure = |name: &'static str| if family == Family::Azure { name } else { "http_proxy" };
    let names = ["http_proxy", azure("azure_http_proxy")];
    if let Some((name, url)) = names.iter().find_map(|name| Some((*name, options.get(name)?))) {
        let user = options.first_of(&[
            "http_proxy_username",
            "proxy_user_name",
            azure("azure_proxy_user_name"),
        ]);
        let password = options.first_of(&[
            "http_proxy_password",
            "proxy_password",
            azure("azure_proxy_password"),
        ]);
        let proxy = Proxy::parse(url)?.named_by(match (name, options.get("secret_name")) {
            ("azure_http_proxy", _) => "DuckDB's setting azure_http_proxy".to_string(),
            (_, None) => "the store option or DuckDB setting http_proxy".to_string(),
            (_, Some(_)) => {
                format!("http_proxy of {} or of DuckDB's settings", options.secret_label())
            }
        });
        let proxy = match user {
            Some(user) => proxy.with_basic(user, password.unwrap_or_default()),
            None => proxy,
        };
        client = client.with_proxy(ProxyChoice::Fixed(proxy));
    }
    if options.flag(&["verify_ssl"])? == Some(false) {
        client = client.with_verify_tls(false);
    }
    if let Some(path) = options.get("ca_cert_file") {
        client = client.with_ca_file(Path::new(path));
    }
    Ok(client)
}

/// The headers that the options want on every request.
///
/// # Errors
/// `Invalid` for text that no header can carry.
pub(crate) fn extra_headers(options: &StoreOptions) -> Result<Vec<(HeaderName, HeaderValue)>> {
    let mut headers = Vec::new();
    for (name, value) in options.extra_headers()? {
        let wrong = || invalid(&format!("`{name}` in extra_http_headers is no valid header"));
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        let mut value = HeaderValue::from_str(value.reveal()).map_err(|_| wrong())?;
        value.set_sensitive(true);
        headers.push((header, value));
    }
    Ok(headers)
}

fn invalid(message: &str) -> Error {
    Error::new(Kind::Invalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RequestEvent;

    #[derive(Debug)]
    struct Deaf;

    impl crate::Observer for Deaf {
        fn request_finished(&self, _event: RequestEvent) {}
    }

    fn open_with(url: &str, pairs: &[(&str, &str)]) -> Result<(Arc<dyn Store>, String)> {
        let http = HttpClient::new(crate::HttpOptions::default(), Arc::new(Deaf))?;
        let options = StoreOptions::new(pairs.iter().copied())?;
        open(url, &options, &http)
    }

    #[test]
    fn schemes_keep_their_spelling_in_the_root() {
        for (url, root, key) in [
            ("s3://b/a//b ?.parquet", "s3://b/", "a//b ?.parquet"),
            ("s3a://b", "s3a://b/", ""),
            ("gs://b/x", "gs://b/", "x"),
            ("file:///tmp/a b", "file:///", "tmp/a b"),
            ("mem://m/a//b", "mem://m/", "a//b"),
            ("az://acc.blob.core.windows.net/c/a//b", "az://acc.blob.core.windows.net/c/", "a//b"),
            ("abfss://fs@acc.dfs.core.windows.net/k", "abfss://fs@acc.dfs.core.windows.net/", "k"),
            ("s3://b/k?s3_region=eu-west-1&s3_use_ssl=false", "s3://b/", "k"),
            ("hf://datasets/me/lake@~parquet/a?b", "hf://datasets/me/lake@~parquet/", "a?b"),
            ("hf://models/me/bert", "hf://models/me/bert/", ""),
        ] {
            let (store, found) = open_with(url, &[]).unwrap();
            assert_eq!((store.root(), found.as_str()), (root, key));
            assert_eq!(root_of(url).unwrap(), (root.to_string(), key.to_string()));
        }
    }

    #[test]
    fn schemes_are_taken_in_any_case() {
        for (url, root, key) in [
            ("S3://b/K", "s3://b/", "K"),
            ("Gs://b/x", "gs://b/", "x"),
            ("AZ://acc.blob.core.windows.net/c/K", "az://acc.blob.core.windows.net/c/", "K"),
            ("ABFSS://c@a.dfs.core.windows.net/", "abfss://c@a.dfs.core.windows.net/", ""),
            ("HTTP://h/x", "http://h/", "x"),
            ("HF://spaces/me/App/X", "hf://spaces/me/App/", "X"),
            ("MEM://m/x", "mem://m/", "x"),
        ] {
            let (store, found) = open_with(url, &[]).unwrap();
            assert_eq!((store.root(), found.as_str()), (root, key));
            assert_eq!(root_of(url).unwrap(), (root.to_string(), key.to_string()));
        }
        let error = open_with("S4://b/k", &[]).unwrap_err();
        assert_eq!(error.hint(), Some("Did you mean `s3://`?"));
    }

    #[test]
    fn a_path_is_a_file() {
        let (store, key) = open_with("/tmp/x", &[]).unwrap();
        assert_eq!((store.root(), key.as_str()), ("file:///", "tmp/x"));
        assert_eq!(root_of("/tmp/x").unwrap(), ("file:///".to_string(), "tmp/x".to_string()));
    }

    #[test]
    fn slips_are_named() {
        let error = open_with("s4://b/k", &[]).unwrap_err();
        assert_eq!(
            (error.kind(), error.hint()),
            (Kind::Unsupported, Some("Did you mean `s3://`?"))
        );
        let error = open_with("s3://b/k?s3_regio=x", &[]).unwrap_err();
        assert_eq!(error.hint(), Some("Did you mean `s3_region`?"));
        let error = open_with("s3:///k", &[]).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        let error = open_with("s3://b/k", &[("http_proxy", "socks5://x")]).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported);
    }

    #[test]
    fn compatibility_mode_keeps_the_question_mark() {
        let pairs = [("s3_url_compatibility_mode", "true")];
        let (_, key) = open_with("s3://b/k?s3_region=x", &pairs).unwrap();
        assert_eq!(key, "k?s3_region=x");
    }
}

//! Opens the account that a back end's options name. Sends nothing.

mod directory;

use crate::route::{BackendOptions, BucketOptions};
use directory::Directory;
use penstock_base::nearest::nearest;
use penstock_base::{Error, Kind, Result};
use penstock_store::options::Family;
use penstock_store::{Account, AzureAccount, HttpClient, MemoryAccount, S3Account, StoreOptions};
use std::path::Path;
use std::sync::Arc;

/// Schemes of back ends.
const SCHEMES: &[&str] =
    &["az", "azure", "abfss", "abfs", "s3", "s3a", "gs", "gcs", "r2", "file", "mem"];

/// The account of a back end, for these buckets of the configuration.
///
/// # Errors
/// `Invalid` for options that cannot be, `Unsupported` for an unknown scheme; for a directory
/// `NotFound` and `Denied`.
pub fn open(
    backend: &BackendOptions,
    buckets: &[BucketOptions],
    http: &HttpClient,
) -> Result<Arc<dyn Account>> {
    open_account(backend, buckets, http).map_err(|error| error.with_object(backend.url.as_str()))
}

fn open_account(
    backend: &BackendOptions,
    buckets: &[BucketOptions],
    http: &HttpClient,
) -> Result<Arc<dyn Account>> {
    let pairs = backend.options.iter().map(|(name, value)| (name.as_str(), value.reveal()));
    let options = StoreOptions::new(pairs)?;
    let (scheme, rest) = backend.url.split_once("://").unwrap_or((backend.url.as_str(), ""));
    match scheme {
        "az" | "azure" | "abfss" | "abfs" => {
            Ok(Arc::new(AzureAccount::new(http, &backend.url, &options)?))
        }
        "s3" | "s3a" | "gs" | "gcs" | "r2" => {
            if !rest.is_empty() {
                return Err(Error::new(Kind::Invalid, "the URL of a back end names no bucket")
                    .with_hint(format!("Write {scheme}:// and name the `container` of a bucket")));
            }
            Ok(Arc::new(S3Account::new(http, scheme, &options)?))
        }
        "file" => Ok(Arc::new(Directory::open(Path::new(rest), is_written(backend, buckets))?)),
        // Elsewhere the containers of named buckets have to be there; here nothing ever is.
        "mem" => {
            let own = buckets.iter().filter(|bucket| bucket.backend == backend.name);
            Ok(Arc::new(MemoryAccount::with_containers(own.map(BucketOptions::container))))
        }
        other => Err(unknown_scheme(other)),
    }
}

/// Whether any bucket of a back end may be written to, or made there.
fn is_written(backend: &BackendOptions, buckets: &[BucketOptions]) -> bool {
    let mut own = buckets.iter().filter(|bucket| bucket.backend == backend.name);
    !backend.is_read_only && (backend.is_dynamic || own.any(|bucket| !bucket.is_read_only))
}

/// Names of options that were given for this back end and that nothing there looks at.
pub fn passed_over(backend: &BackendOptions) -> Vec<String> {
    let family = match backend.url.split_once("://").map_or("", |(scheme, _)| scheme) {
        "az" | "azure" | "abfss" | "abfs" => Some(Family::Azure),
        "s3" | "s3a" | "r2" => Some(Family::S3),
        "gs" | "gcs" => Some(Family::Gcs),
        _ => None,
    };
    let pairs = backend.options.iter().map(|(name, value)| (name.as_str(), value.reveal()));
    // Names that no store knows are told as the back end is opened.
    let options = StoreOptions::new(pairs).unwrap_or_default();
    options.passed_over(family).into_iter().map(str::to_string).collect()
}

fn unknown_scheme(scheme: &str) -> Error {
    let error = Error::new(Kind::Unsupported, format!("no back end has the scheme `{scheme}`"));
    match nearest(scheme, SCHEMES.iter().copied()) {
        Some(near) => error.with_hint(format!("Did you mean `{near}://`?")),
        None => error.with_hint(format!("Known are {}", SCHEMES.join(", "))),
    }
}

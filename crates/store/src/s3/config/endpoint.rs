//! Where a bucket's service answers, and who says so. Pure.

use super::flag_of;
use crate::advice;
use crate::options::StoreOptions;
use penstock_base::{Error, Kind, Result};

/// Where requests go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub https: bool,
    /// `None`: Amazon's, which follows from the region.
    pub host: Option<String>,
    pub base_path: String,
    /// It was named with the credentials: by a secret, a flag or a back end's line.
    pub is_of_secret: bool,
    /// The URL itself names it, and nothing else does.
    pub is_of_url: bool,
}

impl Endpoint {
    /// The endpoint of `options` and the environment, unless `url`, the options in the URL's query,
    /// names another.
    ///
    /// # Errors
    /// `Invalid` for a host that is none, and where an account is missing.
    pub fn of(
        scheme: &str,
        options: &StoreOptions,
        url: &StoreOptions,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let own = Endpoint::told(scheme, options, environment);
        if url.get("endpoint").or(url.get("use_ssl")).is_none() {
            return own;
        }
        let named = Endpoint::told(scheme, &url.clone().joined(options), environment)?;
        Ok(match own {
            Ok(own) if own.host == named.host => {
                let is_of_secret = own.is_of_secret && own.https == named.https;
                Endpoint { is_of_secret, ..named }
            }
            _ => Endpoint { is_of_url: true, is_of_secret: false, ..named },
        })
    }

    fn told(
        scheme: &str,
        options: &StoreOptions,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let secret_type = options.get("secret_type").unwrap_or_default();
        let is_google = matches!(scheme, "gs" | "gcs") || secret_type == "gcs";
        let given = options
            .first_of(&["endpoint", "s3_endpoint"])
            .map(str::to_string)
            .or_else(|| {
                let names = match (scheme, options.get("account_id")) {
                    _ if is_google => &[][..],
                    ("r2", Some(_)) => &[],
                    // As DuckDB's setting of it does.
                    ("r2", None) => &["DUCKDB_S3_ENDPOINT"],
                    _ => &["DUCKDB_S3_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"],
                };
                names.iter().find_map(|name| environment(name))
            })
            .filter(|endpoint| !is_default_endpoint(endpoint));
        let is_of_secret = given.is_some() && options.get("endpoint").is_some();
        let text = match given {
            Some(text) => Some(text),
            None if is_google => Some("storage.googleapis.com".to_string()),
            None if scheme == "r2" || secret_type == "r2" => {
                let account = options.get("account_id").ok_or_else(|| {
                    let wanted = [("account_id", "..."), ("key_id", "..."), ("secret", "...")];
                    Error::new(Kind::Invalid, "an r2 URL needs a Cloudflare account")
                        .with_hint(advice::give("r2", &wanted))
                })?;
                Some(format!("{account}.r2.cloudflarestorage.com"))
            }
            None => None,
        };
        let use_ssl = match options.flag(&["use_ssl", "s3_use_ssl"])? {
            Some(flag) => flag,
            None => flag_of("DUCKDB_S3_USE_SSL", environment)?.unwrap_or(true),
        };
        match text {
            Some(text) => Ok(Endpoint { is_of_secret, ..Endpoint::parse(&text, use_ssl)? }),
            None => Ok(Endpoint { https: use_ssl, ..Endpoint::default() }),
        }
    }

    fn parse(text: &str, use_ssl: bool) -> Result<Self> {
        let (https, rest) = match text.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            Some(_) => return Err(bad_endpoint(text)),
            None => (use_ssl, text),
        };
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let authority: ::http::uri::Authority = host.parse().map_err(|_| bad_endpoint(text))?;
        if authority.host().is_empty() || host.contains('@') {
            return Err(bad_endpoint(text));
        }
        crate::http::explicit_port(&authority)?;
        let path = path.trim_matches('/');
        if format!("/{path}").parse::<::http::uri::PathAndQuery>().is_err()
            || path.contains(['?', '#'])
        {
            return Err(bad_endpoint(text));
        }
        let base_path = if path.is_empty() { String::new() } else { format!("/{path}") };
        let host = Some(host.to_ascii_lowercase());
        Ok(Endpoint { https, host, base_path, ..Endpoint::default() })
    }
}

fn bad_endpoint(text: &str) -> Error {
    Error::new(Kind::Invalid, format!("`{text}` is no endpoint"))
        .with_hint("Write host:port, or http://host:port, without the bucket")
}

/// Amazon's regionless default, which httpfs always fills in.
fn is_default_endpoint(endpoint: &str) -> bool {
    let host = endpoint.split_once("://").map_or(endpoint, |(_, host)| host);
    host.trim_end_matches('/') == "s3.amazonaws.com"
}

pub(super) fn host_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

pub(super) fn is_aws_host(host: &str) -> bool {
    host.ends_with(".amazonaws.com") || host.ends_with(".amazonaws.com.cn")
}

/// `eu-west-1` of `s3.eu-west-1.amazonaws.com` and of `s3.dualstack.eu-west-1.amazonaws.com`.
pub(super) fn region_of_host(host: &str) -> Option<String> {
    let front = host.strip_suffix(".cn").unwrap_or(host).strip_suffix(".amazonaws.com")?;
    let region = front.rsplit('.').next()?;
    (region.matches('-').count() >= 2 && front.starts_with("s3")).then(|| region.to_string())
}

/// Whether a host, with its port if any, is one of Google's interfaces.
pub(super) fn is_google_host(host: &str) -> bool {
    let host = host.strip_suffix(":443").unwrap_or(host);
    host.ends_with(".googleapis.com")
}

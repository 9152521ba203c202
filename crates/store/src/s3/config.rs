//! What a secret, DuckDB's settings and the environment say about an S3 bucket. Pure.

use crate::advice;
use crate::options::StoreOptions;
use ::http::{HeaderName, HeaderValue};
use penstock_base::{Error, Kind, Result, Secret};
use std::net::IpAddr;

/// Whose service it is: they differ in more than the host name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// Amazon's own.
    Aws,
    /// Cloudflare R2: parts of one upload have one size.
    R2,
    /// Google Cloud Storage through its XML API.
    Gcs,
    /// Any other service or server.
    Other,
}

/// Where credentials come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Requests are not signed.
    Anonymous,
    /// An access key, temporary if there is a token.
    Key { key_id: Secret, secret: Secret, token: Option<Secret> },
    /// The sources that AWS tools look at; `fallback` is the key found when the secret was made.
    AwsChain { chain: ChainSpec, fallback: Option<Box<Access>> },
    /// An OAuth token that does not renew itself.
    Bearer(Secret),
    /// Google's application default credentials, or a given file or JSON text.
    Google { json: Option<Secret>, path: Option<String> },
}

/// Which sources of an AWS chain to ask, and which role to assume with what they give.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChainSpec {
    /// Names of sources in order; empty means all.
    pub sources: Vec<ChainSource>,
    pub profile: Option<String>,
    pub assume_role_arn: Option<String>,
    pub external_id: Option<String>,
    pub role_session_name: Option<String>,
    pub web_identity_token_file: Option<String>,
}

/// One source of a chain, by DuckDB's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChainSource {
    /// `env`: AWS_ACCESS_KEY_ID and its kin.
    Environment,
    /// `config`: the shared credentials and config files.
    Profile,
    /// `sso`: tokens that `aws sso login` left.
    Sso,
    /// `sts`: a web identity token file.
    WebIdentity,
    /// `process`: the profile's credential_process.
    Process,
    /// `instance`: container and instance metadata.
    Metadata,
}

/// How uploads are protected on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChecksumChoice {
    /// CRC-32, until the server refuses it.
    Auto,
    Crc32,
    Md5,
    None,
}

/// Everything that a store needs to know.
#[derive(Clone, Debug)]
pub(crate) struct S3Config {
    /// `s3://bucket/`.
    pub root: String,
    pub bucket: String,
    pub service: Service,
    /// `None`: found out by asking.
    pub region: Option<String>,
    pub https: bool,
    /// Host, with port where it is not the scheme's; `None`: follows from the region (AWS).
    pub host: Option<String>,
    /// Path before the bucket, without slash at the end.
    pub base_path: String,
    pub path_style: bool,
    pub access: Access,
    pub kms_key_id: Option<String>,
    pub requester_pays: bool,
    pub checksum: ChecksumChoice,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub secret_name: Option<String>,
}

/// Reads the options of `scheme://bucket/`; `environment` answers environment variables.
///
/// # Errors
/// `Invalid` for values that cannot be.
pub(crate) fn read(
    scheme: &str,
    bucket: &str,
    options: &StoreOptions,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<S3Config> {
    check_bucket(bucket)?;
    let environment = |name: &str| environment(name).filter(|text| !text.trim().is_empty());
    let google = matches!(scheme, "gs" | "gcs");
    let endpoint = endpoint(scheme, options, &environment)?;
    let host = endpoint.host.as_deref().map(host_of);
    let service = match host {
        Some(host) if host.ends_with(".r2.cloudflarestorage.com") => Service::R2,
        Some("storage.googleapis.com") => Service::Gcs,
        Some(host) if is_aws_host(host) => Service::Aws,
        None => Service::Aws,
        _ if google => Service::Gcs,
        _ if scheme == "r2" => Service::R2,
        _ => Service::Other,
    };
    let region = options
        .first_of(&["region", "s3_region"])
        .map(str::to_string)
        .filter(|_| service != Service::Gcs)
        .or_else(|| host.and_then(region_of_host))
        .or_else(|| {
            let from_environment =
                || environment("AWS_REGION").or_else(|| environment("AWS_DEFAULT_REGION"));
            (service == Service::Aws).then(from_environment).flatten()
        });
    let path_style = path_style(bucket, service, host, endpoint.https, options)?;
    Ok(S3Config {
        root: format!("{scheme}://{bucket}/"),
        bucket: bucket.to_string(),
        service,
        region,
        https: endpoint.https,
        host: endpoint.host,
        base_path: endpoint.base_path,
        path_style,
        access: access(google, options, &environment)?,
        kms_key_id: options.first_of(&["kms_key_id", "s3_kms_key_id"]).map(str::to_string),
        requester_pays: options.flag(&["requester_pays", "s3_requester_pays"])?.unwrap_or(false),
        checksum: checksum(options)?,
        headers: crate::open::extra_headers(options)?,
        secret_name: options.get("secret_name").map(str::to_string),
    })
}

struct Endpoint {
    https: bool,
    host: Option<String>,
    base_path: String,
}

fn endpoint(
    scheme: &str,
    options: &StoreOptions,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Endpoint> {
    let google = matches!(scheme, "gs" | "gcs");
    let secret_type = options.get("secret_type").unwrap_or_default();
    let given = options
        .first_of(&["endpoint", "s3_endpoint"])
        .map(str::to_string)
        .or_else(|| {
            let names = ["DUCKDB_S3_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"];
            let found = || names.iter().find_map(|name| environment(name));
            (!google && scheme != "r2").then(found).flatten()
        })
        .filter(|endpoint| !is_default_endpoint(endpoint));
    let text = match given {
        Some(text) => Some(text),
        None if google || secret_type == "gcs" => Some("storage.googleapis.com".to_string()),
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
        None => environment("DUCKDB_S3_USE_SSL").is_none_or(|text| text.trim() != "false"),
    };
    let Some(text) = text else {
        return Ok(Endpoint { https: use_ssl, host: None, base_path: String::new() });
    };
    let (https, rest) = match text.split_once("://") {
        Some(("https", rest)) => (true, rest),
        Some(("http", rest)) => (false, rest),
        Some(_) => return Err(bad_endpoint(&text)),
        None => (use_ssl, text.as_str()),
    };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let authority: ::http::uri::Authority = host.parse().map_err(|_| bad_endpoint(&text))?;
    if authority.host().is_empty() || host.contains('@') {
        return Err(bad_endpoint(&text));
    }
    crate::http::explicit_port(&authority)?;
    let path = path.trim_matches('/');
    if format!("/{path}").parse::<::http::uri::PathAndQuery>().is_err() || path.contains(['?', '#'])
    {
        return Err(bad_endpoint(&text));
    }
    let base_path = if path.is_empty() { String::new() } else { format!("/{path}") };
    Ok(Endpoint { https, host: Some(host.to_ascii_lowercase()), base_path })
}

fn bad_endpoint(text: &str) -> Error {
    let shown = crate::http::redacted_text(text);
    Error::new(Kind::Invalid, format!("`{shown}` is no endpoint"))
        .with_hint("Write host:port, or http://host:port, without the bucket")
}

/// Amazon's regionless default, which httpfs always fills in.
fn is_default_endpoint(endpoint: &str) -> bool {
    let host = endpoint.split_once("://").map_or(endpoint, |(_, host)| host);
    host.trim_end_matches('/') == "s3.amazonaws.com"
}

fn host_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

fn is_aws_host(host: &str) -> bool {
    host.ends_with(".amazonaws.com") || host.ends_with(".amazonaws.com.cn")
}

/// `eu-west-1` of `s3.eu-west-1.amazonaws.com` and of `s3.dualstack.eu-west-1.amazonaws.com`.
fn region_of_host(host: &str) -> Option<String> {
    let front = host.strip_suffix(".cn").unwrap_or(host).strip_suffix(".amazonaws.com")?;
    let region = front.rsplit('.').next()?;
    (region.matches('-').count() >= 2 && front.starts_with("s3")).then(|| region.to_string())
}

fn path_style(
    bucket: &str,
    service: Service,
    host: Option<&str>,
    https: bool,
    options: &StoreOptions,
) -> Result<bool> {
    let parse = |text: &str| match text.to_ascii_lowercase().as_str() {
        "path" => Ok(true),
        "vhost" | "virtual" => Ok(false),
        _ => {
            Err(Error::new(Kind::Invalid, format!("url_style is `path` or `vhost`, not `{text}`")))
        }
    };
    let own = options.get("url_style").map(parse).transpose()?;
    let setting = options.get("s3_url_style").map(parse).transpose()?;
    let bare = crate::http::bare_host(host.unwrap_or_default());
    let cannot_vhost = bare.parse::<IpAddr>().is_ok()
        // A certificate for *.host does not cover bucket names with dots.
        || (https && bucket.contains('.'))
        || !bucket.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'));
    let default = matches!(service, Service::R2 | Service::Gcs) || bare == "localhost";
    Ok(cannot_vhost || own.unwrap_or(default || setting.unwrap_or(false)))
}

fn access(
    google: bool,
    options: &StoreOptions,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Access> {
    let chain_wanted = options.get("provider") == Some("credential_chain");
    if let Some(token) = options.get("bearer_token") {
        return Ok(Access::Bearer(Secret::new(token)));
    }
    let json = options.get("service_account_key").map(Secret::new);
    let path = options.get("service_account_path").map(str::to_string);
    if json.is_some() || path.is_some() {
        return Ok(Access::Google { json, path });
    }
    let key = key_of(options)?;
    let renewable = options.has_prefix("refresh_info.");
    let chained = (chain_wanted && renewable) || options.get("assume_role_arn").is_some();
    if let Some(key) = key.clone().filter(|_| !chained) {
        return Ok(key);
    }
    if google && key.is_none() {
        let wanted = chain_wanted || environment("GOOGLE_APPLICATION_CREDENTIALS").is_some();
        let google = Access::Google { json: None, path: None };
        return Ok(if wanted { google } else { Access::Anonymous });
    }
    let fallback = key.map(Box::new);
    let told_by_environment = [
        "AWS_ACCESS_KEY_ID",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ];
    let chain = chain_spec(options)?;
    let told = || told_by_environment.iter().any(|name| environment(name).is_some());
    if chain_wanted || chain.assume_role_arn.is_some() || fallback.is_some() || told() {
        return Ok(Access::AwsChain { chain, fallback });
    }
    Ok(Access::Anonymous)
}

fn key_of(options: &StoreOptions) -> Result<Option<Access>> {
    match key(options, ["key_id", "secret", "session_token"])? {
        Some(key) => Ok(Some(key)),
        None => key(options, ["s3_access_key_id", "s3_secret_access_key", "s3_session_token"]),
    }
}

/// A key from one place; a token of another place never joins it.
fn key(options: &StoreOptions, [id, secret, token]: [&str; 3]) -> Result<Option<Access>> {
    let (Some(key_id), secret_key) = (options.get(id), options.get(secret)) else {
        return Ok(None);
    };
    let secret_key = secret_key.ok_or_else(|| {
        let of = options.get("secret_name").map(|name| format!("secret '{name}': "));
        let what = format!("{}a key id is given without its secret key", of.unwrap_or_default());
        let both = [("key_id", "..."), ("secret", "...")];
        Error::new(Kind::Invalid, what).with_hint(advice::give("s3", &both))
    })?;
    Ok(Some(Access::Key {
        key_id: Secret::new(key_id),
        secret: Secret::new(secret_key),
        token: options.get(token).map(Secret::new),
    }))
}

fn chain_spec(options: &StoreOptions) -> Result<ChainSpec> {
    let get = |name: &str| {
        let refreshed = format!("refresh_info.{name}");
        options.get(name).or_else(|| options.get(&refreshed)).map(str::to_string)
    };
    let words = get("chain").unwrap_or_default().to_ascii_lowercase();
    let sources = words.split([';', ',']).map(str::trim).filter(|word| !word.is_empty());
    Ok(ChainSpec {
        sources: sources.map(chain_source).collect::<Result<_>>()?,
        profile: get("profile"),
        assume_role_arn: get("assume_role_arn"),
        external_id: get("external_id"),
        role_session_name: get("role_session_name"),
        web_identity_token_file: get("web_identity_token_file"),
    })
}

fn chain_source(word: &str) -> Result<ChainSource> {
    Ok(match word {
        "env" => ChainSource::Environment,
        "config" | "profile" => ChainSource::Profile,
        "sso" => ChainSource::Sso,
        "sts" | "web_identity" => ChainSource::WebIdentity,
        "process" => ChainSource::Process,
        "instance" | "container" => ChainSource::Metadata,
        _ => {
            return Err(Error::new(
                Kind::Invalid,
                format!("`{word}` is no source of a credential chain"),
            )
            .with_hint("Known are env, config, sso, sts, process, instance"));
        }
    })
}

fn checksum(options: &StoreOptions) -> Result<ChecksumChoice> {
    Ok(match options.get("checksum").map(str::to_ascii_lowercase).as_deref() {
        None | Some("auto") => ChecksumChoice::Auto,
        Some("crc32") => ChecksumChoice::Crc32,
        Some("md5") => ChecksumChoice::Md5,
        Some("none") => ChecksumChoice::None,
        Some(other) => {
            return Err(Error::new(
                Kind::Invalid,
                format!("checksum is auto, crc32, md5 or none, not `{other}`"),
            ));
        }
    })
}

fn check_bucket(bucket: &str) -> Result<()> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':');
    if bucket.is_empty() || !bucket.bytes().all(fits) || bucket.starts_with('.') {
        return Err(Error::new(Kind::Invalid, format!("`{bucket}` is no bucket name"))
            .with_hint("Write s3://bucket/key"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;

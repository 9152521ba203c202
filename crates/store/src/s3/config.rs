//! What a secret, DuckDB's settings and the environment say about an S3 bucket. Pure.

mod access;
mod endpoint;

use crate::options::StoreOptions;
use crate::unsigned::Withheld;
use ::http::{HeaderName, HeaderValue};
use endpoint::{Endpoint, host_of, is_aws_host, region_of_host};
use penstock_base::settings::flag;
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
    /// The environment gave the credentials, by this variable: what is public is read without them
    /// where they are refused.
    pub environment: Option<&'static str>,
    /// A chain that somebody asked for has its key from the environment's variables.
    pub is_key_of_environment: bool,
    /// Why the environment's credentials do not go to the endpoint: reads go without them.
    pub withheld: Option<Withheld>,
    pub kms_key_id: Option<String>,
    pub requester_pays: bool,
    pub checksum: ChecksumChoice,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub secret_name: Option<String>,
}

/// Reads the options of `scheme://bucket/`, of which `url` are those in the URL's own query;
/// `environment` answers environment variables.
///
/// # Errors
/// `Invalid` for values that cannot be; `Denied` where credentials are not for the endpoint.
pub(crate) fn read(
    scheme: &str,
    bucket: &str,
    (url, own): (&StoreOptions, &StoreOptions),
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<S3Config> {
    check_bucket(bucket)?;
    let is_asked = own.flag(&["enable_global_s3_configuration"])?.unwrap_or(true);
    let environment = |name: &str| {
        let counts = |text: &String| is_asked && !text.trim().is_empty() && !is_emptied(own, name);
        environment(name).filter(counts)
    };
    let google = matches!(scheme, "gs" | "gcs");
    let endpoint = Endpoint::of(scheme, own, url, &environment)?;
    let options = &url.clone().joined(own);
    let found = access::access(google, options, &environment)?.at(&endpoint, options, url)?;
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
    let regions = || environment("AWS_REGION").or_else(|| environment("AWS_DEFAULT_REGION"));
    // The environment's region is Amazon's.
    let region = options
        .first_of(&["region", "s3_region"])
        .map(str::to_string)
        .filter(|_| service != Service::Gcs)
        .or_else(|| host.and_then(region_of_host))
        .or_else(|| (service == Service::Aws).then(regions).flatten());
    check_region(region.as_deref())?;
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
        is_key_of_environment: access::is_key_of_environment(&found, &environment),
        access: found.access,
        environment: found.environment,
        withheld: found.withheld,
        kms_key_id: options
            .first_of(&["kms_key_id", "s3_kms_key_id"])
            .map(str::to_string)
            .or_else(|| environment("DUCKDB_S3_KMS_KEY_ID")),
        requester_pays: match options.flag(&["requester_pays", "s3_requester_pays"])? {
            Some(flag) => flag,
            None => flag_of("DUCKDB_S3_REQUESTER_PAYS", &environment)?.unwrap_or(false),
        },
        checksum: checksum(options)?,
        headers: crate::open::extra_headers(options)?,
        secret_name: options.get("secret_name").map(str::to_string),
    })
}

/// Whether a setting that stands in for this variable was given an empty text.
fn is_emptied(options: &StoreOptions, variable: &str) -> bool {
    // The settings of credentials are first given their values by these.
    let names = match variable {
        "AWS_REGION" | "AWS_DEFAULT_REGION" => &["s3_region"][..],
        "DUCKDB_S3_ENDPOINT" | "AWS_ENDPOINT_URL_S3" | "AWS_ENDPOINT_URL" => &["s3_endpoint"],
        "DUCKDB_S3_KMS_KEY_ID" => &["s3_kms_key_id"],
        _ if access::AWS_VARIABLES.contains(&variable) || variable == access::SECRET => {
            &["s3_access_key_id", "s3_secret_access_key"]
        }
        _ => &[],
    };
    names.iter().any(|name| options.get(&format!("emptied.{name}")).is_some())
}

/// A flag of the environment.
fn flag_of(
    variable: &'static str,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<bool>> {
    let Some(text) = environment(variable) else { return Ok(None) };
    flag(&text).map(Some).ok_or_else(|| {
        let what = format!("the environment variable {variable} takes true or false, not `{text}`");
        Error::new(Kind::Invalid, what)
    })
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

/// A region stands in host names, and must not make another host of them.
fn check_region(region: Option<&str>) -> Result<()> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    match region {
        Some(region) if !region.bytes().all(fits) => {
            let why = format!("`{}` is no region", region.escape_debug());
            Err(Error::new(Kind::Invalid, why).with_hint("Write one such as eu-west-1"))
        }
        _ => Ok(()),
    }
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

//! The settings of DuckDB's httpfs, azure and aws: their types, their defaults, and what each means
//! here.
//!
//! [`TABLE`] decides which names a database takes without those extensions, and what becomes of
//! their values: read by the stores, turned into settings of ours, or not followed, with a notice
//! that tells what happens instead. It holds the names of the extensions for DuckDB 1.5 and 2.0.
//! Whoever registers a name first defines it for all, so types and defaults are those of 1.5.

use super::Settings;
use crate::{Error, Kind, Result};

/// The type of a setting as its extension registers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TheirType {
    /// BOOLEAN.
    Bool,
    /// UBIGINT.
    Unsigned,
    /// BIGINT.
    Signed,
    /// INTEGER.
    Integer,
    /// FLOAT.
    Float,
    /// VARCHAR.
    Text,
    /// VARCHAR[].
    Texts,
    /// MAP(VARCHAR, VARCHAR).
    Map,
}

/// What becomes of a value.
#[derive(Clone, Copy, Debug)]
pub enum Meaning {
    /// The stores read it, as the option of its name.
    Option,
    /// The shim reads it.
    Shim,
    /// Sets settings of ours.
    Ours(fn(&mut Settings, u64)),
    /// Penstock always does what the first of these values asks for, the others mean the same, and
    /// this instead of any other value. Where there is none, no value is followed.
    Fixed(&'static [&'static str], &'static str),
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct TheirSetting {
    /// Name in DuckDB.
    pub name: &'static str,
    /// Its type.
    pub their_type: TheirType,
    /// Default, as text; `None` for NULL.
    pub default: Option<&'static str>,
    /// What becomes of its value.
    pub meaning: Meaning,
    /// What it does, in one sentence.
    pub doc: &'static str,
}

use Meaning::{Fixed, Ours, Shim};
use TheirType::{Bool, Float, Integer, Map, Signed, Text, Texts, Unsigned};

macro_rules! theirs {
    ($($name:literal $kind:ident $default:expr, $meaning:expr, $doc:literal;)*) => {
        /// Every setting, grouped by the extension that has it.
        pub const TABLE: &[TheirSetting] = &[
            $(TheirSetting {
                name: $name,
                their_type: $kind,
                default: $default,
                meaning: $meaning,
                doc: $doc,
            },)*
        ];
    };
}

const NONE: Option<&str> = None;
const READ: Meaning = Meaning::Option;
const TRUE: &[&str] = &["true"];
const FALSE: &[&str] = &["false"];
/// No value asks for what Penstock does.
const NEVER: &[&str] = &[];

theirs! {
    "s3_region" Text NONE, READ, "S3 region.";
    "s3_access_key_id" Text NONE, READ, "S3 access key id.";
    "s3_secret_access_key" Text NONE, READ, "S3 secret access key.";
    "s3_session_token" Text NONE, READ, "S3 session token.";
    "s3_endpoint" Text NONE, READ, "S3 endpoint.";
    "s3_url_style" Text Some("vhost"), READ, "Where the bucket stands: vhost or path.";
    "s3_use_ssl" Bool Some("true"), READ, "Whether S3 is asked by https.";
    "s3_kms_key_id" Text NONE, READ, "Key of KMS for what is written.";
    "s3_url_compatibility_mode" Bool Some("false"), READ,
        "Takes wildcards and options in S3 URLs as part of the key.";
    "s3_requester_pays" Bool Some("false"), READ, "Agrees to pay for requests.";
    "s3_allow_recursive_globbing" Bool Some("true"), Fixed(NEVER,
        "for each glob Penstock chooses between one listing of all keys and listings by directory"),
        "How globs list.";
    "s3_uploader_max_filesize" Text Some("800GB"), Fixed(NEVER,
        "parts begin with penstock_part_size_bytes and grow, up to the store's largest object"),
        "Largest upload.";
    "s3_uploader_max_parts_per_file" Unsigned Some("10000"), Fixed(NEVER,
        "parts begin with penstock_part_size_bytes and grow where the store's limit asks for it"),
        "Most parts of an upload.";
    "s3_uploader_thread_limit" Unsigned Some("50"), Ours(uploads),
        "Most parts in flight: sets penstock_upload_concurrency.";
    "s3_version_id_pinning" Bool Some("false"), Fixed(FALSE,
        "each read of an open file names the ETag it was opened with; an object that was replaced \
         is an error"),
        "Pins reads to a version.";
    "s3_list_concurrency" Unsigned NONE, Fixed(NEVER,
        "the listings of a glob share penstock_connections_per_host"),
        "Most listings at once.";
    "s3_url_scheme_aliases" Texts NONE, Fixed(&["[]"],
        "Penstock serves s3, s3a, s3n, r2, gs and gcs; other schemes are not taken for S3"),
        "Further schemes of S3.";
    "s3_use_global_endpoint" Bool NONE, Fixed(NEVER,
        "requests go to the endpoint of the bucket's region, which Penstock finds out"),
        "Asks the endpoint without a region.";
    "s3_enable_deprecated_url_parameters" Bool NONE, Fixed(TRUE,
        "options in the query of an S3 URL are taken, unless s3_url_compatibility_mode is on"),
        "Takes options in the query of an S3 URL.";
    "enable_global_s3_configuration" Bool Some("true"), READ,
        "Whether S3 looks at the environment.";
    "merge_http_secret_into_s3_request" Bool Some("true"), READ,
        "Takes headers and proxy of http secrets for S3, but no Authorization.";
    "gcs_user_project" Text NONE, Fixed(&[""],
        "requests to Google name no project; set EXTRA_HTTP_HEADERS of the secret to \
         MAP {'x-goog-user-project': '...'}"),
        "Project that pays for requests to Google.";
    "extra_http_headers" Map NONE, Fixed(&["{}"],
        "no header goes to every host; EXTRA_HTTP_HEADERS of a secret go to what its scope names"),
        "Headers of every request.";
    "http_timeout" Unsigned Some("30"), Ours(timeout),
        "Seconds for an answer: sets penstock_connect_timeout_ms and penstock_stall_timeout_ms.";
    "http_retries" Unsigned Some("3"), Fixed(NEVER,
        "a request that can succeed is sent again until penstock_request_deadline_ms is over, \
         however often"),
        "How often a request is sent again.";
    "http_retry_wait_ms" Unsigned Some("100"), Ours(retry_wait),
        "First wait before a request is sent again: sets penstock_retry_base_ms.";
    "http_retry_backoff" Float Some("4"), Fixed(&["2"],
        "the wait doubles, with jitter, up to penstock_retry_max_ms"),
        "Factor by which that wait grows.";
    "http_keep_alive" Bool Some("true"), Fixed(TRUE,
        "connections are kept and used again; one that the server closed is replaced"),
        "Keeps connections.";
    "force_download" Bool Some("false"), Fixed(FALSE,
        "of a file only what a query needs is fetched; a server without ranges sends it whole"),
        "Fetches files whole when they are opened.";
    "force_download_threshold" Unsigned Some("0"), Fixed(&["0"],
        "a file that fits into penstock_open_fetch_bytes comes with the request that opens it"),
        "Fetches smaller files whole when they are opened.";
    "auto_fallback_to_full_download" Bool Some("true"), Fixed(TRUE,
        "a server without ranges always sends the file whole"),
        "Fetches files whole where a server has no ranges.";
    "allow_asterisks_in_http_paths" Bool Some("false"), Shim, "Takes `*` in an http URL as it is.";
    "enable_curl_server_cert_verification" Bool Some("true"), Fixed(TRUE,
        "certificates are checked; VERIFY_SSL false in a secret turns that off for its scope"),
        "Checks certificates.";
    "enable_server_cert_verification" Bool Some("false"), Fixed(TRUE,
        "certificates are checked; VERIFY_SSL false in a secret turns that off for its scope"),
        "Checks certificates.";
    "ca_cert_file" Text Some(""), READ, "PEM file of certificate authorities to trust, too.";
    "unsafe_disable_etag_checks" Bool Some("false"), Fixed(FALSE,
        "each read of an open file names the ETag it was opened with; an object that was replaced \
         is an error"),
        "Reads on where a file was replaced.";
    "hf_max_per_page" Unsigned Some("0"), READ, "Most entries in a page of a listing of hf://.";
    "httpfs_client_implementation" Text Some("default"), Fixed(&["default"],
        "Penstock sends requests with its own client; DuckDB's own requests, as of INSTALL, stay \
         DuckDB's"),
        "HTTP client of httpfs.";
    "httpfs_connection_caching" Bool Some("false"), Fixed(TRUE,
        "connections are kept and shared by all files, up to penstock_connections_per_host"),
        "Keeps connections.";
    "httpfs_enable_credential_refresh" Bool Some("true"), Fixed(TRUE,
        "after a refusal Penstock always looks for newer credentials"),
        "Looks for newer credentials after a refusal.";
    "aws_default_credentials" Text NONE, Fixed(NEVER,
        "the environment's credentials are used where no secret covers a path"),
        "Credentials where there is no secret.";
    "aws_network_calls_via_duckdb" Bool Some("true"), Fixed(NEVER,
        "Penstock asks for credentials with its own client"),
        "Asks for credentials with DuckDB's client.";
    "azure_storage_connection_string" Text NONE, READ, "Azure connection string.";
    "azure_account_name" Text NONE, READ, "Azure account.";
    "azure_endpoint" Text Some("blob.core.windows.net"), READ, "Azure endpoint.";
    "azure_credential_chain" Text NONE, READ, "Sources of Azure credentials, in order.";
    "azure_http_proxy" Text NONE, READ, "Proxy for Azure.";
    "azure_proxy_user_name" Text NONE, READ, "User name of the proxy for Azure.";
    "azure_proxy_password" Text NONE, READ, "Password of the proxy for Azure.";
    "azure_http_stats" Bool Some("false"), Fixed(TRUE,
        "EXPLAIN ANALYZE always shows the requests of a statement"),
        "Shows requests in EXPLAIN ANALYZE.";
    "azure_http_logging" Bool Some("true"), Shim,
        "Logs requests to Azure, where enable_logging('HTTP') asks for it.";
    "azure_http_logging_redact_query_params" Text Some("sig"), Fixed(&["sig"],
        "Penstock hides signatures and tokens in logged URLs, and nothing else"),
        "Parameters that are not logged.";
    "azure_http_logging_redact_headers" Text Some("Authorization"), Shim,
        "Headers whose values are not logged, beside those of credentials.";
    "azure_context_caching" Bool Some("true"), Fixed(TRUE,
        "connections and tokens are always shared"),
        "Keeps clients of Azure.";
    "azure_transport_option_type" Text Some("default"), Fixed(&["default"],
        "Penstock sends requests with its own client"),
        "HTTP client of azure.";
    "azure_read_transfer_concurrency" Integer Some("5"), Fixed(NEVER,
        "a large read becomes as many requests as its cost model says, up to \
         penstock_parallel_read_max_fanout"),
        "Most requests of one read.";
    "azure_read_transfer_chunk_size" Signed Some("1048576"), Fixed(NEVER,
        "the size of a request follows from latency and bandwidth, and from \
         penstock_parallel_read_chunk_size_bytes"),
        "Largest request of a read.";
    "azure_read_buffer_size" Unsigned Some("1048576"), Fixed(NEVER,
        "read-ahead follows from latency and bandwidth, within penstock_memory_limit_bytes"),
        "Buffer of a read.";
    "azure_write_block_size" Unsigned Some("8388608"), Fixed(NEVER,
        "blocks begin with penstock_part_size_bytes and grow where Azure's limit asks for it"),
        "Size of the blocks of an upload.";
    "azure_write_staged_blocks_per_commit" Unsigned Some("0"), Fixed(&["0"],
        "a blob appears whole when it is closed, or not at all"),
        "Blocks after which part of a blob becomes visible.";
}

/// A value inside the range of a setting of ours; 0 is no limit.
fn within(name: &str, value: u64) -> u64 {
    let row = super::TABLE.iter().find(|row| row.name == name);
    let (min, max) = row.and_then(|row| row.range).unwrap_or((0, u64::MAX));
    if value == 0 { max } else { value.clamp(min, max) }
}

fn timeout(settings: &mut Settings, seconds: u64) {
    let millis = seconds.saturating_mul(1000);
    settings.connect_timeout_ms = within("connect_timeout_ms", millis);
    settings.stall_timeout_ms = within("stall_timeout_ms", millis);
}

fn retry_wait(settings: &mut Settings, millis: u64) {
    settings.retry_base_ms = within("retry_base_ms", millis.max(1));
    settings.retry_max_ms = settings.retry_max_ms.max(settings.retry_base_ms);
}

fn uploads(settings: &mut Settings, threads: u64) {
    settings.upload_concurrency = within("upload_concurrency", threads.max(1));
}

/// The variables of the environment whose value httpfs copies into a setting; the first that is set
/// counts. Here they give the setting its first value, but for those of [`hides_variables`].
pub fn variables(name: &str) -> &'static [&'static str] {
    match name {
        "s3_region" => &["AWS_REGION", "AWS_DEFAULT_REGION"],
        "s3_access_key_id" => &["AWS_ACCESS_KEY_ID"],
        "s3_secret_access_key" => &["AWS_SECRET_ACCESS_KEY"],
        "s3_session_token" => &["AWS_SESSION_TOKEN"],
        "s3_endpoint" => &["DUCKDB_S3_ENDPOINT"],
        "s3_use_ssl" => &["DUCKDB_S3_USE_SSL"],
        "s3_kms_key_id" => &["DUCKDB_S3_KMS_KEY_ID"],
        "s3_requester_pays" => &["DUCKDB_S3_REQUESTER_PAYS"],
        _ => &[],
    }
}

/// Whether the variables of a setting hold credentials: those are shown in no setting.
pub fn hides_variables(name: &str) -> bool {
    matches!(name, "s3_access_key_id" | "s3_secret_access_key" | "s3_session_token")
}

/// The row of a name.
pub fn find(name: &str) -> Option<&'static TheirSetting> {
    TABLE.iter().find(|row| row.name == name)
}

/// Sets what a setting of theirs means for ours. False for one that means nothing for them.
///
/// # Errors
/// `Invalid` for a value that is no whole number.
pub fn apply(settings: &mut Settings, name: &str, value: &str) -> Result<bool> {
    let Some(TheirSetting { meaning: Ours(set), .. }) = find(name) else { return Ok(false) };
    let number = value.parse().map_err(|_| {
        Error::new(Kind::Invalid, format!("`{name}` takes a whole number, not `{value}`"))
    })?;
    set(settings, number);
    Ok(true)
}

/// What Penstock does instead of following a value that somebody gave, as the end of a sentence;
/// `None` where it does what the value asks for.
pub fn instead(name: &str, value: &str) -> Option<&'static str> {
    let Some(TheirSetting { meaning: Fixed(like, instead), .. }) = find(name) else {
        return None;
    };
    let same = |known: &str| match (known.parse::<f64>(), value.parse::<f64>()) {
        (Ok(known), Ok(value)) => known.total_cmp(&value).is_eq(),
        _ => known.eq_ignore_ascii_case(value),
    };
    (!like.iter().any(|known| same(known))).then_some(*instead)
}

/// The value to be kept, of one that was given.
///
/// # Errors
/// `Invalid` for one that the extension refuses, too.
pub fn taken(name: &str, value: &str) -> Result<String> {
    match name {
        "httpfs_client_implementation" if !matches!(value, "default" | "curl" | "httplib") => {
            let what = "Unsupported option for httpfs_client_implementation, only `curl`, \
                        `httplib` and `default` are known";
            Err(Error::new(Kind::Invalid, what))
        }
        // A later change of the working directory does not move it.
        "ca_cert_file" if !value.is_empty() => Ok(std::path::absolute(value)
            .map_or_else(|_| value.to_string(), |path| path.to_string_lossy().into_owned())),
        _ => Ok(value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_sentence_and_its_own_name() {
        for (index, row) in TABLE.iter().enumerate() {
            assert!(row.doc.ends_with('.'), "{} needs a sentence", row.name);
            assert!(TABLE[..index].iter().all(|other| other.name != row.name), "{}", row.name);
            if let Fixed(_, instead) = row.meaning {
                assert!(!instead.ends_with('.'), "{}: the end of a sentence", row.name);
            }
        }
    }

    #[test]
    fn penstock_does_what_a_default_asks_for_but_for_these() {
        let is_fixed =
            |row: &&TheirSetting| matches!(row.meaning, Fixed(like, _) if !like.is_empty());
        let differs = |row: &&TheirSetting| {
            row.default.is_some_and(|value| instead(row.name, value).is_some())
        };
        let names = TABLE.iter().filter(is_fixed).filter(differs).map(|row| row.name);
        let known = [
            "http_retry_backoff",
            "enable_server_cert_verification",
            "httpfs_connection_caching",
            "azure_http_stats",
        ];
        assert_eq!(names.collect::<Vec<_>>(), known);
    }

    #[test]
    fn a_value_that_is_not_followed_is_told() {
        assert!(instead("force_download", "true").unwrap().contains("only what a query needs"));
        assert_eq!(instead("force_download", "FALSE"), None);
        assert_eq!(instead("http_retry_backoff", "2.0"), None);
        assert!(instead("http_retries", "5").is_some());
        assert!(instead("http_retries", "3").is_some(), "not the default: somebody gave it");
        assert_eq!(instead("s3_region", "eu-west-1"), None);
        assert_eq!(instead("http_timeout", "5"), None);
        assert_eq!(instead("no_such", "1"), None);
    }

    #[test]
    fn variables_are_those_of_settings_that_stores_read() {
        let given: Vec<_> = TABLE.iter().filter(|row| !variables(row.name).is_empty()).collect();
        assert_eq!(given.len(), 8);
        assert!(given.iter().all(|row| matches!(row.meaning, Meaning::Option)));
        let hidden = given.iter().filter(|row| hides_variables(row.name));
        assert_eq!(hidden.count(), 3);
    }

    #[test]
    fn theirs_become_ours_inside_our_ranges() {
        let mut settings = Settings::default();
        assert!(apply(&mut settings, "http_timeout", "5").unwrap());
        assert_eq!((settings.connect_timeout_ms, settings.stall_timeout_ms), (5000, 5000));
        assert!(apply(&mut settings, "http_timeout", "50000").unwrap());
        assert_eq!((settings.connect_timeout_ms, settings.stall_timeout_ms), (600_000, 3_600_000));
        assert!(apply(&mut settings, "http_timeout", "0").unwrap());
        assert_eq!(settings.stall_timeout_ms, 3_600_000, "no limit");
        assert!(apply(&mut settings, "http_retry_wait_ms", "20000").unwrap());
        assert_eq!((settings.retry_base_ms, settings.retry_max_ms), (20_000, 20_000));
        assert!(apply(&mut settings, "http_retry_wait_ms", "0").unwrap());
        assert_eq!((settings.retry_base_ms, settings.retry_max_ms), (1, 20_000));
        assert!(apply(&mut settings, "s3_uploader_thread_limit", "3").unwrap());
        assert_eq!(settings.upload_concurrency, 3);
        assert!(!apply(&mut settings, "force_download", "true").unwrap());
        assert!(!apply(&mut settings, "part_size_bytes", "1").unwrap());
        assert_eq!(apply(&mut settings, "http_timeout", "x").unwrap_err().kind(), Kind::Invalid);
    }

    #[test]
    fn what_their_extension_refuses_is_refused() {
        assert_eq!(taken("httpfs_client_implementation", "curl").unwrap(), "curl");
        let error = taken("httpfs_client_implementation", "wget").unwrap_err();
        assert!(error.to_string().contains("Unsupported option for httpfs_client_implementation"));
        assert!(std::path::Path::new(&taken("ca_cert_file", "x.pem").unwrap()).is_absolute());
        assert_eq!(taken("ca_cert_file", "").unwrap(), "");
        assert_eq!(taken("http_timeout", "5").unwrap(), "5");
    }
}

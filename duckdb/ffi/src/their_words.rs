//! The words in which httpfs tells that a request failed, by which tools know it. They stand
//! before our own, which say why and what to do.

use penstock_base::{Error, Kind};
use penstock_engine::{NOT_A_FILE, NOT_A_TYPE};

/// Status and reason, as HTTP spells it.
const REASONS: &[(u16, &str)] = &[
    (200, "OK"),
    (201, "Created"),
    (202, "Accepted"),
    (204, "No Content"),
    (206, "Partial Content"),
    (301, "Moved Permanently"),
    (302, "Found"),
    (304, "Not Modified"),
    (307, "Temporary Redirect"),
    (308, "Permanent Redirect"),
    (400, "Bad Request"),
    (401, "Unauthorized"),
    (403, "Forbidden"),
    (404, "Not Found"),
    (405, "Method Not Allowed"),
    (407, "Proxy Authentication Required"),
    (408, "Request Timeout"),
    (409, "Conflict"),
    (410, "Gone"),
    (412, "Precondition Failed"),
    (416, "Range Not Satisfiable"),
    (429, "Too Many Requests"),
    (500, "Internal Server Error"),
    (501, "Not Implemented"),
    (502, "Bad Gateway"),
    (503, "Service Unavailable"),
    (504, "Gateway Timeout"),
];

/// How the store's error begins for which azure has other words.
const NO_ACCOUNT: &str = "no storage account is known";

/// How the store's error begins where certificates are asked for in a file that has none.
const WRONG_CA_FILE: &str = "ca_cert_file ";

const NOT_IN_URL: &str = "Cannot identify the storage account by this URL: it was looked for in \
                          that of the secret or the settings";

/// What httpfs says of a URL that names no file of the Hub.
fn not_parsed(error: &Error, url: &str) -> Option<String> {
    // Of a repository as a whole the URL has a slash at its end, whoever wrote it without.
    let url = url.strip_suffix('/').filter(|it| !it.ends_with('/')).unwrap_or(url);
    match error.message() {
        message if message.starts_with(NOT_A_FILE) => Some(format!(
            "Failed to parse '{url}'. Please format url like: \
             'hf://datasets/my-username/my-dataset/path/to/file.parquet'"
        )),
        message if message.starts_with(NOT_A_TYPE) => Some(format!(
            "Failed to parse: '{url}'. Currently DuckDB only supports querying datasets or spaces, \
             so the url should start with 'hf://datasets' or 'hf://spaces'"
        )),
        _ => None,
    }
}

/// Whether DuckDB's IO Error is what httpfs raises, where ours is of another class.
fn is_io(error: &Error) -> bool {
    not_parsed(error, "").is_some()
}

/// Whether this is a URL of a Data Lake, as Hadoop writes it, but without its account.
fn names_no_account(url: &str) -> bool {
    let rest = url.strip_prefix("abfss://").or_else(|| url.strip_prefix("abfs://"));
    let authority = rest.and_then(|rest| rest.split('/').next());
    authority.is_some_and(|authority| !authority.contains(['.', '@']))
}

/// The reason that belongs to a status; empty for one without.
pub(crate) fn reason(status: u16) -> &'static str {
    REASONS.iter().find(|row| row.0 == status).map_or("", |row| row.1)
}

/// Whether an error is one of HTTP's: the store answered, and refused or failed.
pub(crate) fn is_http(error: &Error) -> bool {
    let kinds = [Kind::NotFound, Kind::Denied, Kind::Throttled, Kind::Unavailable];
    error.http_status().is_some() && kinds.contains(&error.kind())
}

/// Whether it is about the file in `ca_cert_file`. httpfs finds that when a connection begins, so
/// there it is a failure of the connection.
fn is_of_ca_file(error: &Error) -> bool {
    error.kind() == Kind::Invalid && error.message().starts_with(WRONG_CA_FILE)
}

/// The kind of an error by which DuckDB's class is chosen.
pub(crate) fn kind(error: &Error) -> Option<Kind> {
    match () {
        () if is_io(error) => None,
        () if is_of_ca_file(error) => Some(Kind::Unavailable),
        () => Some(error.kind()),
    }
}

/// The method that httpfs would have sent: it opens a file with HEAD.
fn method(operation: &str) -> &'static str {
    match operation {
        "GET" | "read" => "HEAD",
        "PUT" | "write" | "upload part" => "PUT",
        "DELETE" | "delete" => "DELETE",
        operation if operation.contains("upload") => "POST",
        _ => "GET",
    }
}

/// The text of an error, behind the words of httpfs where it has any for it.
pub(crate) fn told(error: &Error) -> String {
    let ours = error.to_string();
    // Devices and files of this machine fail in their own words.
    let is_of_store = |url: &&str| url.contains("://") && !url.starts_with("nvme://");
    let Some(url) = error.object().filter(is_of_store) else { return ours };
    let method = method(error.operation().unwrap_or("GET"));
    if let Some(theirs) = not_parsed(error, url) {
        return format!("{theirs}. {ours}");
    }
    let ours = match error.kind() {
        Kind::NotFound if names_no_account(url) => format!("{ours} ({NOT_IN_URL})"),
        _ => ours,
    };
    match error.http_status() {
        Some(status) if is_http(error) => {
            let reason = reason(status);
            if matches!(method, "PUT" | "POST") {
                format!("Unable to connect to URL {url}: {reason} (HTTP code {status}). {ours}")
            } else {
                let method = if method == "HEAD" { "GET" } else { method };
                let reason = if reason.is_empty() { "" } else { &format!(" {reason}") };
                format!("HTTP {method} error on '{url}' (HTTP {status}{reason}). {ours}")
            }
        }
        _ if is_of_ca_file(error) => format!(
            "Problem with the SSL CA cert (path? access rights?) error for HTTP {method} to \
             '{url}'. {ours}"
        ),
        None if error.kind() == Kind::Unavailable => {
            format!("Could not get an answer error for HTTP {method} to '{url}'. {ours}")
        }
        _ if error.message().starts_with(NO_ACCOUNT) => {
            format!("No valid Azure credentials found. {ours}")
        }
        _ => ours,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(kind: Kind, operation: &'static str, status: Option<u16>) -> String {
        let error = Error::new(kind, "why").with_operation(operation).with_object("s3://b/k");
        told(&match status {
            Some(status) => error.with_http_status(status),
            None => error,
        })
    }

    #[test]
    fn statuses_are_told_as_httpfs_does_with_our_words_behind() {
        let missing = "HTTP GET error on 's3://b/k' (HTTP 404 Not Found). GET s3://b/k: why";
        assert_eq!(failed(Kind::NotFound, "GET", Some(404)), missing);
        let refused = "Unable to connect to URL s3://b/k: Forbidden (HTTP code 403). \
                       PUT s3://b/k: why";
        assert_eq!(failed(Kind::Denied, "PUT", Some(403)), refused);
        let odd = "HTTP GET error on 's3://b/k' (HTTP 599). list s3://b/k: why";
        assert_eq!(failed(Kind::Unavailable, "list", Some(599)), odd);
        let unreached = "Could not get an answer error for HTTP HEAD to 's3://b/k'. \
                         GET s3://b/k: why";
        assert_eq!(failed(Kind::Unavailable, "GET", None), unreached);
    }

    #[test]
    fn what_is_no_failure_of_http_has_our_words_alone() {
        assert_eq!(failed(Kind::Denied, "GET", None), "GET s3://b/k: why");
        assert_eq!(failed(Kind::Conflict, "PUT", Some(412)), "PUT s3://b/k: why");
        assert_eq!(told(&Error::new(Kind::Unavailable, "why")), "why");
        for device in ["/dev/nvme0n1", "nvme:///dev/nvme0n1/db"] {
            let error = Error::new(Kind::Unavailable, "EIO").with_object(device);
            assert_eq!(told(&error), format!("{device}: EIO"));
        }
    }

    #[test]
    fn what_names_no_file_of_the_hub_is_told_as_httpfs_does() {
        for (message, url, theirs) in [
            (NOT_A_FILE, "hf://", "Failed to parse 'hf://'. Please"),
            (NOT_A_FILE, "hf://datasets/x/y/", "Failed to parse 'hf://datasets/x/y'. Please"),
            (
                NOT_A_FILE,
                "hf://x",
                "Failed to parse 'hf://x'. Please format url like: 'hf://datasets",
            ),
            (NOT_A_TYPE, "hf://x/y", "Failed to parse: 'hf://x/y'. Currently DuckDB only supports"),
        ] {
            let error = Error::new(Kind::Invalid, message).with_object(url).with_hint("Write so");
            let text = told(&error);
            assert!(text.starts_with(theirs), "{text}");
            assert!(text.ends_with("Write so"), "{text}");
            assert_eq!(kind(&error), None);
        }
        let other = Error::new(Kind::Invalid, "x").with_object("hf://x");
        assert_eq!(kind(&other), Some(Kind::Invalid));
    }

    #[test]
    fn a_file_without_certificates_is_a_failure_of_the_connection() {
        let error = Error::new(Kind::Invalid, "ca_cert_file /x.pem: it holds no certificate");
        let error = error.with_operation("GET").with_object("https://h/k");
        assert_eq!(kind(&error), Some(Kind::Unavailable));
        let told = told(&error);
        assert!(told.starts_with("Problem with the SSL CA cert"), "{told}");
        assert!(told.ends_with("/x.pem: it holds no certificate"), "{told}");
        assert_eq!(kind(&Error::new(Kind::Invalid, "other")), Some(Kind::Invalid));
    }

    #[test]
    fn a_missing_account_is_told_as_azure_does() {
        let missing = Error::new(Kind::NotFound, "no container").with_http_status(404);
        let text = told(&missing.with_object("abfss://c/k"));
        assert!(text.contains("Cannot identify the storage account"), "{text}");
        assert!(!names_no_account("abfss://c@a.dfs.core.windows.net/k"));
        assert!(!names_no_account("az://c/k"));
        let error = Error::new(Kind::Invalid, "no storage account is known for `az://c/`");
        let told = told(&error.with_object("az://c/k"));
        assert!(told.starts_with("No valid Azure credentials found. az://c/k: no"), "{told}");
    }
}

//! Where a Blob service answers, and the URLs of its containers and blobs. Pure.

use super::address::blob_suffix;
use penstock_base::{Error, Kind, Result};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::fmt;

/// All but the unreserved characters of RFC 3986, and the slash that keys are full of.
const IN_PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');
/// The same for a query value.
const IN_QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The base URL of one account's Blob service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Whether TLS is used.
    pub is_https: bool,
    /// Host name, perhaps with a port.
    pub authority: String,
    /// Empty, or the account as a path (`/devstoreaccount1`), as emulators have it.
    pub base_path: String,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.base_path)
    }
}

impl Endpoint {
    /// Parses a base URL such as `https://account.blob.core.windows.net` or
    /// `http://127.0.0.1:10000/devstoreaccount1`. A Data Lake host becomes its Blob twin.
    ///
    /// # Errors
    /// `Invalid` for any other scheme, or a URL with user, query or fragment.
    pub fn parse(url: &str) -> Result<Self> {
        let wrong = || {
            Error::new(Kind::Invalid, "the endpoint is no URL of a Blob service").with_hint(
                "Write https://account.blob.core.windows.net or \
                 http://127.0.0.1:10000/devstoreaccount1",
            )
        };
        let (scheme, rest) = url.trim().split_once("://").ok_or_else(wrong)?;
        let is_https = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err(wrong()),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let odd = |c: char| c.is_control() || c.is_whitespace() || matches!(c, '?' | '#' | '@');
        if authority.is_empty() || authority.contains(odd) || path.contains(odd) {
            return Err(wrong());
        }
        crate::http::explicit_port(&authority.parse().map_err(|_| wrong())?)?;
        let authority = match authority.split_once('.') {
            Some((account, rest)) => format!("{account}.{}", blob_suffix(rest)),
            None => authority.to_string(),
        };
        let path = path.trim_matches('/');
        let base_path = if path.is_empty() { String::new() } else { format!("/{path}") };
        Ok(Endpoint { is_https, authority, base_path })
    }

    /// The account that stands in the path, as emulators have it.
    pub fn account_of_path(&self) -> Option<&str> {
        self.base_path.strip_prefix('/').and_then(|path| path.split('/').next())
    }

    /// The account that the endpoint is of: the path of an emulator, else the host's first label.
    pub fn account(&self) -> Option<&str> {
        if let Some(account) = self.account_of_path() {
            return Some(account);
        }
        let host = self.authority.split(':').next().unwrap_or(&self.authority);
        let is_address = host.parse::<std::net::IpAddr>().is_ok() || host.starts_with('[');
        host.split_once('.').map(|(account, _)| account).filter(|_| !is_address)
    }

    /// Path of a container, or of a blob in it.
    pub fn path(&self, container: &str, key: Option<&str>) -> String {
        let container = utf8_percent_encode(container, IN_PATH);
        match key {
            Some(key) => {
                format!("{}/{container}/{}", self.base_path, utf8_percent_encode(key, IN_PATH))
            }
            None => format!("{}/{container}", self.base_path),
        }
    }

    /// A whole URL from a path and query pairs.
    pub fn url(&self, path: &str, query: &[(&str, &str)]) -> String {
        let scheme = if self.is_https { "https" } else { "http" };
        let mut url = format!("{scheme}://{}{path}", self.authority);
        for (at, (name, value)) in query.iter().enumerate() {
            url.push(if at == 0 { '?' } else { '&' });
            url.push_str(name);
            url.push('=');
            url.extend(utf8_percent_encode(value, IN_QUERY));
        }
        url
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_urls() {
        for (url, shown, account) in [
            ("https://acc.blob.core.windows.net", "https://acc.blob.core.windows.net", Some("acc")),
            ("https://acc.dfs.core.windows.net/", "https://acc.blob.core.windows.net", Some("acc")),
            ("http://127.0.0.1:10000/dev/", "http://127.0.0.1:10000/dev", Some("dev")),
            ("http://127.0.0.1:10000", "http://127.0.0.1:10000", None),
            ("http://localhost:1", "http://localhost:1", None),
        ] {
            let endpoint = Endpoint::parse(url).unwrap();
            assert_eq!((endpoint.to_string().as_str(), endpoint.account()), (shown, account));
        }
        for url in
            ["", "acc.blob.core.windows.net", "ftp://x", "https://", "https://u:p@h", "http://h?x"]
        {
            assert_eq!(Endpoint::parse(url).unwrap_err().kind(), Kind::Invalid, "{url}");
        }
        for place in ["127.0.0.1:99999", "acc.blob.core.windows.net:abc"] {
            let error = Endpoint::parse(&format!("http://{place}/dev")).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{place}");
            assert!(error.message().contains(place), "{error}");
        }
    }

    #[test]
    fn names_are_encoded_once_and_slashes_stay() {
        let endpoint = Endpoint::parse("http://h:1/dev").unwrap();
        let path = endpoint.path("c", Some("a b//ü%20+?#&x"));
        assert_eq!(path, "/dev/c/a%20b//%C3%BC%2520%2B%3F%23%26x");
        let url = endpoint.url("/dev/c", &[("comp", "list"), ("prefix", "a/b +")]);
        assert_eq!(url, "http://h:1/dev/c?comp=list&prefix=a%2Fb%20%2B");
    }
}

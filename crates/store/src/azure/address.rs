//! Azure URLs: which account, container and key a text names. Pure.
//!
//! Takes the forms that DuckDB's azure extension takes, and the one of Hadoop and Spark:
//!
//! | form | account |
//! | --- | --- |
//! | `az://container/key`, `azure://...`, `abfss://fs/path`, `abfs://...` | from the secret |
//! | `az://account.blob.core.windows.net/container/key` | in the URL |
//! | `abfss://account.dfs.core.windows.net/fs/path` | in the URL |
//! | `abfss://fs@account.dfs.core.windows.net/path` | in the URL |
//!
//! Keys are taken as they stand: nothing is decoded, nothing normalised.

use super::endpoint::Endpoint;
use penstock_base::{Error, Kind, Result};

/// The schemes of this store.
pub const SCHEMES: &[&str] = &["az", "azure", "abfss", "abfs"];

const FORMS: &str = "Write az://container/key, az://account.blob.core.windows.net/container/key \
                     or abfss://container@account.dfs.core.windows.net/path";

/// What an Azure URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The URL up to the key, as it was written but with its scheme in lower case, ending with `/`.
    pub root: String,
    /// Account and endpoint, where the URL names them.
    pub account: Option<AccountHost>,
    /// The container (file system).
    pub container: String,
    /// The rest.
    pub key: String,
}

/// An account and the host name without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountHost {
    /// First label of the host name, in lower case as the rest.
    pub name: String,
    /// `blob.core.windows.net` and the like, perhaps with a port.
    pub suffix: String,
}

impl AccountHost {
    /// The endpoint of the account's Blob service: Data Lake hosts have a twin for it.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            is_https: true,
            authority: format!("{}.{}", self.name, blob_suffix(&self.suffix)),
            base_path: String::new(),
        }
    }
}

/// The Blob twin of a Data Lake host suffix; any other suffix unchanged.
pub(super) fn blob_suffix(suffix: &str) -> String {
    suffix.strip_prefix("dfs.").map_or(suffix.to_string(), |rest| format!("blob.{rest}"))
}

impl Address {
    /// Parses a URL.
    ///
    /// # Errors
    /// `Invalid`, with the accepted forms.
    pub fn parse(url: &str) -> Result<Self> {
        let wrong =
            |why: &str| Error::new(Kind::Invalid, format!("`{url}` {why}")).with_hint(FORMS);
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("is no URL"))?;
        if !SCHEMES.iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
            return Err(wrong("is no Azure URL"));
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (account, container, key) = if let Some((container, host)) = authority.split_once('@') {
            let account = account_host(host).ok_or_else(|| wrong("names no account after `@`"))?;
            (Some(account), container, path)
        } else if let Some(account) = account_host(authority) {
            let (container, key) = path.split_once('/').unwrap_or((path, ""));
            (Some(account), container, key)
        } else {
            (None, authority, path)
        };
        if container.is_empty() {
            return Err(wrong("names no container"));
        }
        if container.contains(|c: char| c.is_control() || "?#*[]{}".contains(c)) {
            return Err(wrong("names a container that cannot be"));
        }
        let mut root = scheme.to_ascii_lowercase();
        root.push_str(&url[scheme.len()..url.len() - key.len()]);
        if !root.ends_with('/') {
            root.push('/');
        }
        Ok(Address { root, account, container: container.to_string(), key: key.to_string() })
    }
}

/// Container names have no dots, so a dot tells a host name. Hosts are the same in any case.
fn account_host(authority: &str) -> Option<AccountHost> {
    let in_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    let (name, suffix) = authority.split_once('.')?;
    let valid = !name.is_empty() && !suffix.is_empty() && authority.chars().all(in_host);
    let lower = |text: &str| text.to_ascii_lowercase();
    valid.then(|| AccountHost { name: lower(name), suffix: lower(suffix) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn forms_of_a_url() {
        let blob = "https://acc.blob.core.windows.net";
        for (url, root, endpoint, container, key) in [
            ("az://c/a/b", "az://c/", None, "c", "a/b"),
            ("azure://c/a", "azure://c/", None, "c", "a"),
            ("abfss://fs/p/q", "abfss://fs/", None, "fs", "p/q"),
            ("az://c", "az://c/", None, "c", ""),
            ("AZ://c//x", "az://c/", None, "c", "/x"),
            ("az://c/a.b/c@d?e#f%20", "az://c/", None, "c", "a.b/c@d?e#f%20"),
            (
                "az://acc.blob.core.windows.net/c/k/x",
                "az://acc.blob.core.windows.net/c/",
                Some(blob),
                "c",
                "k/x",
            ),
            (
                "abfss://acc.dfs.core.windows.net/c",
                "abfss://acc.dfs.core.windows.net/c/",
                Some(blob),
                "c",
                "",
            ),
            (
                "abfss://c@acc.dfs.core.windows.net/k/x",
                "abfss://c@acc.dfs.core.windows.net/",
                Some(blob),
                "c",
                "k/x",
            ),
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!(address.root, root, "{url}");
            let found = address.account.map(|account| account.endpoint().to_string());
            assert_eq!(found.as_deref(), endpoint, "{url}");
            assert_eq!((address.container.as_str(), address.key.as_str()), (container, key));
        }
    }

    #[test]
    fn wrong_urls_show_the_forms() {
        for url in ["az://", "az:///k", "c/k", "s3://c/k", "abfss://c@/k", "az://acc.blob.x", ""] {
            let error = Address::parse(url).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{url}");
            assert!(error.hint().unwrap().contains("abfss://container@account"), "{url}");
        }
    }

    proptest! {
        #[test]
        fn root_and_key_are_the_url(text in "[a-z@./ü?]{0,20}") {
            let url = format!("az://{text}");
            if let Ok(address) = Address::parse(&url) {
                let joined = format!("{}{}", address.root, address.key);
                prop_assert_eq!(joined.trim_end_matches('/'), url.trim_end_matches('/'));
                prop_assert!(!address.container.is_empty());
            }
        }
    }
}

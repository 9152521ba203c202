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
//! A container may be percent-encoded, as OneLake's workspaces are whose names have spaces, and is
//! decoded once. Keys are taken as they stand: nothing is decoded, nothing normalised. A shared
//! access signature behind the URL's last `?` is a credential, and no part of the key.

use super::endpoint::Endpoint;
use super::sas;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use penstock_base::{Error, Kind, Result, Secret};
use percent_encoding::percent_decode_str;
use std::fmt;

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
    /// The container (file system), decoded.
    pub container: String,
    /// The rest.
    pub key: String,
    /// The signature that the URL ends with.
    pub sas: Option<Secret>,
}

/// An account and the host name without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountHost {
    /// First label of the host name, in lower case as the rest.
    pub name: String,
    /// `blob.core.windows.net` and the like, perhaps with a port.
    pub suffix: String,
}

impl fmt::Display for AccountHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.name, self.suffix)
    }
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

/// The Blob twin of a Data Lake host suffix; any other suffix unchanged. The label may stand behind
/// others: `z12.dfs.fabric.microsoft.com` is a private link to a workspace of OneLake.
pub(super) fn blob_suffix(suffix: &str) -> String {
    let labels = suffix.split('.').map(|label| match label.strip_suffix("dfs") {
        Some(ring) if ring.is_empty() || ring.ends_with('-') => format!("{ring}blob"),
        _ => label.to_string(),
    });
    labels.collect::<Vec<_>>().join(".")
}

impl Address {
    /// Parses a URL.
    ///
    /// # Errors
    /// `Invalid`, with the accepted forms.
    pub fn parse(url: &str) -> Result<Self> {
        let wrong =
            |why: &str| Error::new(Kind::Invalid, format!("`{url}` {why}")).with_hint(FORMS);
        let (url, sas) = match sas::split(url) {
            Some((place, query)) => (place, Some(signature(query)?)),
            None => (url, None),
        };
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
        let name = percent_decode_str(container).decode_utf8_lossy();
        if name.is_empty() {
            return Err(wrong("names no container"));
        }
        if name.contains(|c: char| c.is_control() || "/?#*[]{}".contains(c))
            || container.contains(':')
        {
            return Err(wrong("names a container that cannot be"));
        }
        let mut root = scheme.to_ascii_lowercase();
        root.push_str(&url[scheme.len()..url.len() - key.len()]);
        if !root.ends_with('/') {
            root.push('/');
        }
        let (container, key) = (name.into_owned(), key.to_string());
        Ok(Address { root, account, container, key, sas })
    }
}

/// The signature of a URL, as it is sent.
///
/// # Errors
/// `Invalid` where something was joined to the URL behind it, as a directory's files are.
fn signature(query: &str) -> Result<Secret> {
    let sas = sas::parse(query)?;
    let sig = sas.reveal().split('&').find_map(|pair| pair.strip_prefix("sig="));
    let sig = percent_decode_str(sig.unwrap_or_default()).decode_utf8_lossy();
    match STANDARD.decode(sig.as_bytes()) {
        Ok(_) => Ok(sas),
        Err(_) => Err(Error::new(
            Kind::Invalid,
            "the URL ends with a shared access signature, but its `sig=` is not base64; was it cut, \
             or a name joined to it?",
        )
        .with_hint(
            "Give the signature as a credential instead: a connection string \
             BlobEndpoint=https://ACCOUNT.blob.core.windows.net;SharedAccessSignature=...",
        )),
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
            // A workspace whose name has a space, and a key whose name has a percent sign.
            (
                "abfss://My%20Workspace@onelake.dfs.fabric.microsoft.com/L.Lakehouse/a%20b",
                "abfss://My%20Workspace@onelake.dfs.fabric.microsoft.com/",
                Some("https://onelake.blob.fabric.microsoft.com"),
                "My Workspace",
                "L.Lakehouse/a%20b",
            ),
            (
                "abfss://ws@0a1b.z0a.dfs.fabric.microsoft.com/i/Files/x",
                "abfss://ws@0a1b.z0a.dfs.fabric.microsoft.com/",
                Some("https://0a1b.z0a.blob.fabric.microsoft.com"),
                "ws",
                "i/Files/x",
            ),
            (
                "abfss://ws@0a1b.z0a.msit-dfs.fabric.microsoft.com/i",
                "abfss://ws@0a1b.z0a.msit-dfs.fabric.microsoft.com/",
                Some("https://0a1b.z0a.msit-blob.fabric.microsoft.com"),
                "ws",
                "i",
            ),
            (
                "az://acc.privatelink.dfs.core.windows.net/c/k",
                "az://acc.privatelink.dfs.core.windows.net/c/",
                Some("https://acc.privatelink.blob.core.windows.net"),
                "c",
                "k",
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

    #[test]
    fn a_signature_behind_a_url_is_a_credential() {
        let address =
            Address::parse("az://acc.blob.core.windows.net/c/p?.csv?sv=1&sig=YWI=").unwrap();
        assert_eq!((address.container.as_str(), address.key.as_str()), ("c", "p?.csv"));
        assert_eq!(address.sas, Some(Secret::new("sv=1&sig=YWI%3D")));
        let address = Address::parse("az://acc.blob.core.windows.net/c?sv=1&sig=YWI=").unwrap();
        assert_eq!(
            (address.root.as_str(), address.key.as_str()),
            ("az://acc.blob.core.windows.net/c/", "")
        );
        let error = Address::parse("az://c/dir?sv=1&sig=YWI=/p=1/x.csv").unwrap_err();
        assert!(error.to_string().contains("a name joined to it?"), "{error}");
        assert!(!error.to_string().contains("YWI"), "{error}");
    }

    proptest! {
        /// What is encoded once in the URL is encoded once in the request, whatever it is.
        #[test]
        fn a_container_is_encoded_once(name in "[a-zA-Z0-9 %+üé._-]{1,12}") {
            let reserved = percent_encoding::NON_ALPHANUMERIC;
            let typed = percent_encoding::utf8_percent_encode(&name, reserved);
            let url = format!("abfss://{typed}@onelake.dfs.fabric.microsoft.com/k");
            let address = Address::parse(&url).unwrap();
            prop_assert_eq!(&address.container, &name);
            let path = address.account.unwrap().endpoint().path(&address.container, None);
            let sent = percent_decode_str(&path[1..]).decode_utf8().unwrap();
            prop_assert_eq!(sent.as_ref(), name.as_str());
        }

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

//! Whether credentials may go to a host that a URL names. Pure.
//!
//! A token reads every account that its identity may read. A shared access signature is all that
//! its holder needs. A signature by the account's key does not name the host. A server that
//! receives one of them can use it. So they go to the hosts of Azure's storage services, and if
//! they were made for one account, to its hosts. A host of any other kind is named where the
//! credentials are, by `endpoint` or a connection string, and never by a URL alone.

use super::address::{AccountHost, blob_suffix};
use super::endpoint::Endpoint;

/// The ends of host names of Azure's clouds, after `blob.` or `dfs.`: the public cloud and its
/// accounts with DNS zones, China, US Government, Germany (until 2021), and OneLake.
const CLOUDS: &[&str] = &[
    "core.windows.net",
    "storage.azure.net",
    "core.chinacloudapi.cn",
    "core.usgovcloudapi.net",
    "core.cloudapi.de",
    ONELAKE,
];
const ONELAKE: &str = "fabric.microsoft.com";
/// Workspaces of OneLake have hosts of their own; all are of this account.
const ONELAKE_ACCOUNT: &str = "onelake";

/// What credentials were made for.
#[derive(Clone, Copy, Debug, Default)]
pub struct MadeFor<'a> {
    /// The account; `None` where they may be of any.
    pub account: Option<&'a str>,
    /// `endpoint` without the account, such as `blob.storage.example`.
    pub suffix: Option<&'a str>,
}

/// Why credentials do not go to a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// It is no host of Azure's, or not of the endpoint that was named with the credentials.
    Host,
    /// It is of another account.
    Account,
}

/// Decides whether credentials may go to the host of a URL.
///
/// # Errors
/// The reason why not.
pub fn check(host: &AccountHost, made_for: MadeFor<'_>) -> Result<(), Foreign> {
    let suffix = without_implied_port(&host.suffix);
    let is_named = made_for.suffix.is_some_and(|named| {
        let named = named.to_ascii_lowercase();
        blob_suffix(without_implied_port(&named)) == blob_suffix(suffix)
    });
    // In another cloud the same name is another customer's account.
    if made_for.suffix.is_some() && !is_named && !is_same_cloud(suffix, made_for.suffix) {
        return Err(Foreign::Host);
    }
    let account = account_of(host);
    if cloud_of(suffix).is_none() && !is_named {
        return Err(Foreign::Host);
    }
    match made_for.account {
        Some(own) if !own.eq_ignore_ascii_case(account) => Err(Foreign::Account),
        _ => Ok(()),
    }
}

fn is_same_cloud(suffix: &str, named: Option<&str>) -> bool {
    let named = named.map(str::to_ascii_lowercase).unwrap_or_default();
    let cloud = cloud_of(without_implied_port(suffix));
    cloud.is_some() && cloud == cloud_of(without_implied_port(&named))
}

/// The account whose host this is.
pub fn account_of(host: &AccountHost) -> &str {
    match cloud_of(without_implied_port(&host.suffix)) {
        Some(ONELAKE) => ONELAKE_ACCOUNT,
        Some(_) => own_name(&host.name),
        None => &host.name,
    }
}

/// Where the host of a URL is read with credentials that name a whole endpoint.
///
/// It may be that endpoint's own host, or one of `others`, which name theirs beside them. It may
/// be another host of the account in the endpoint's cloud, which is read as the URL names it. An
/// endpoint of no cloud (an emulator, a custom domain) stands for the account's hosts in each.
///
/// # Errors
/// The reason why the host is none of these.
pub fn read_at(
    host: &AccountHost,
    endpoint: &Endpoint,
    others: &[(Endpoint, Endpoint)],
    account: Option<&str>,
) -> Result<Endpoint, Foreign> {
    let named = host.endpoint().authority;
    let is_named = |it: &Endpoint| {
        let authority = it.authority.to_ascii_lowercase();
        without_implied_port(&authority) == without_implied_port(&named)
    };
    if is_named(endpoint) {
        return Ok(endpoint.clone());
    }
    if let Some((_, read_at)) = others.iter().find(|(it, _)| is_named(it)) {
        return Ok(read_at.clone());
    }
    if cloud_of(without_implied_port(&host.suffix)).is_none() {
        return Err(Foreign::Host);
    }
    if account.is_some_and(|own| !own.eq_ignore_ascii_case(account_of(host))) {
        return Err(Foreign::Account);
    }
    let suffix = endpoint.authority.split_once('.').map(|(_, suffix)| suffix);
    match suffix.filter(|suffix| cloud_of(without_implied_port(suffix)).is_some()) {
        None => Ok(endpoint.clone()),
        Some(_) if is_same_cloud(&host.suffix, suffix) => {
            Ok(Endpoint { authority: named, ..endpoint.clone() })
        }
        Some(_) => Err(Foreign::Host),
    }
}

fn without_implied_port(suffix: &str) -> &str {
    suffix.strip_suffix(":443").unwrap_or(suffix)
}

/// The cloud of a host, from what follows its first name.
fn cloud_of(suffix: &str) -> Option<&'static str> {
    let mut rest = suffix;
    // `privatelink` leads into a virtual network. A zone (`z27`, of OneLake `z0a`) is a part of the
    // cloud's names.
    while let Some((label, behind)) = rest.split_once('.')
        && (label == "privatelink" || is_zone(label))
    {
        rest = behind;
    }
    let (service, cloud) = rest.split_once('.')?;
    let cloud = CLOUDS.iter().find(|known| **known == cloud).copied()?;
    // OneLake has hosts that name no service, too, and rings (`msit-dfs`).
    let own = match cloud {
        ONELAKE => service.rsplit('-').next()?,
        _ => service,
    };
    (matches!(own, "blob" | "dfs") || (cloud, own) == (ONELAKE, "onelake")).then_some(cloud)
}

fn is_zone(label: &str) -> bool {
    let digits = label.strip_prefix('z').unwrap_or_default();
    !digits.is_empty() && digits.len() <= 2 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The account of a host's first name, which may also name a second place or a way to it:
/// `account-secondary`, `account-microsoftrouting`. Accounts have no hyphens.
fn own_name(name: &str) -> &str {
    name.split('-').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::azure::Address;
    use proptest::prelude::*;

    fn checked(url: &str, made_for: MadeFor<'_>) -> Result<(), Foreign> {
        check(&Address::parse(url).unwrap().account.unwrap(), made_for)
    }

    const ANY: MadeFor<'static> = MadeFor { account: None, suffix: None };
    const LAKE: MadeFor<'static> = MadeFor { account: Some("lake"), suffix: None };

    #[test]
    fn an_accounts_own_hosts_are_those_of_every_cloud() {
        for host in [
            "lake.blob.core.windows.net",
            "lake.dfs.core.windows.net",
            "LAKE.Blob.Core.Windows.Net",
            "lake.blob.core.windows.net:443",
            "lake.blob.core.chinacloudapi.cn",
            "lake.dfs.core.usgovcloudapi.net",
            "lake.blob.core.cloudapi.de",
            "lake.z27.blob.storage.azure.net",
            "lake.privatelink.blob.core.windows.net",
            "lake.z1.privatelink.dfs.storage.azure.net",
            "lake-secondary.blob.core.windows.net",
            "lake-microsoftrouting.dfs.core.windows.net",
        ] {
            let url = format!("abfss://data@{host}/x");
            assert_eq!(checked(&url, LAKE), Ok(()), "{url}");
            let other = MadeFor { account: Some("other"), suffix: None };
            assert_eq!(checked(&url, other), Err(Foreign::Account), "{url}");
            assert_eq!(checked(&url, ANY), Ok(()), "{url}");
        }
        for host in [
            "onelake.dfs.fabric.microsoft.com",
            "onelake.blob.fabric.microsoft.com",
            "westus-onelake.dfs.fabric.microsoft.com",
            "0a1b2c.z0a.dfs.fabric.microsoft.com",
            "0a1b2c.z07.blob.fabric.microsoft.com",
            "0a1b2c.z0a.onelake.fabric.microsoft.com",
            "0a1b2c.z0a.msit-dfs.fabric.microsoft.com",
            "api.onelake.fabric.microsoft.com",
            "westus-api.onelake.fabric.microsoft.com",
        ] {
            let url = format!("abfss://workspace@{host}/x");
            let onelake = MadeFor { account: Some("onelake"), suffix: None };
            assert_eq!(checked(&url, onelake), Ok(()), "{url}");
            assert_eq!(checked(&url, LAKE), Err(Foreign::Account), "{url}");
        }
    }

    #[test]
    fn a_host_that_only_looks_like_one_is_foreign() {
        for host in [
            "evil.example",
            "lake.evil.example",
            "lake.blob.core.windows.net.evil.example",
            "lake.blob.core.windows.net.",
            "lake.blob.core.windows.net:8443",
            "lake.xblob.core.windows.net",
            "lake.blob.core.windows.netx",
            "lake.blob.core.windows",
            "lake.file.core.windows.net",
            "lake.msit-blob.core.windows.net",
            "lake.onelake.core.windows.net",
            "0a1b2c.z0a.w.api.fabric.microsoft.com",
            "lake.onelake.onelake.fabric.microsoft.com",
            "lake.zyx.blob.core.windows.net",
            "lake.core.windows.net",
            "blob.core.windows.net",
            "127.0.0.1",
        ] {
            let url = format!("abfss://data@{host}/x");
            for made_for in [ANY, LAKE] {
                assert_eq!(checked(&url, made_for), Err(Foreign::Host), "{url}");
            }
        }
        // What stands before the last `@` is no host.
        for url in ["az://lake.blob.core.windows.net@evil.example/x", "abfss://c@evil.example/x"] {
            assert_eq!(checked(url, ANY), Err(Foreign::Host), "{url}");
        }
    }

    #[test]
    fn an_endpoint_named_with_the_credentials_is_their_own() {
        let made_for = |suffix| MadeFor { account: Some("lake"), suffix: Some(suffix) };
        for suffix in ["blob.stack.example", "dfs.stack.example", "Blob.Stack.Example:443"] {
            assert_eq!(checked("az://lake.blob.stack.example/c/x", made_for(suffix)), Ok(()));
            assert_eq!(checked("az://c@lake.dfs.stack.example/x", made_for(suffix)), Ok(()));
        }
        for (url, suffix) in [
            ("az://lake.blob.stack.example/c/x", "stack.example"),
            ("az://lake.blob.stack.example/c/x", "blob.stack.example:8443"),
            ("az://lake.blob.stack.example.evil/c/x", "blob.stack.example"),
        ] {
            assert_eq!(checked(url, made_for(suffix)), Err(Foreign::Host), "{url}");
        }
        let other = checked("az://other.blob.stack.example/c/x", made_for("blob.stack.example"));
        assert_eq!(other, Err(Foreign::Account));
    }

    proptest! {
        /// No host takes credentials unless the names behind the account are a cloud's, to the end.
        #[test]
        fn only_a_cloud_at_the_end_of_the_host_is_trusted(
            host in "[a-z0-9-]{1,8}(\\.(blob|dfs|core|windows|net|privatelink|z12|evil)){1,6}",
        ) {
            let address = Address::parse(&format!("az://c@{host}/x")).unwrap();
            let is_own = check(&address.account.unwrap(), ANY).is_ok();
            prop_assert!(!is_own || CLOUDS.iter().any(|cloud| {
                let ends = |service| host.ends_with(&format!(".{service}.{cloud}"));
                ends("blob") || ends("dfs")
            }), "{host}");
        }
    }
}

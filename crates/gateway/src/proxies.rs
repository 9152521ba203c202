//! From which address a request came that balancers passed on: the setting `trusted_proxies`. Pure.
//!
//! A balancer adds the address that spoke to it at the end of `X-Forwarded-For`; what stands before
//! that is what it was told, and may be made up. So the header is read from its end, for as long as
//! it is trusted proxies that speak. What requests are held to by connection is not decided here.

use crate::network::Network;
use http::{HeaderMap, HeaderName};
use penstock_base::{Error, Kind, Result};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The proxies that are believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Proxies(Vec<Network>);

impl Proxies {
    /// From the setting: addresses and networks, separated by commas.
    ///
    /// # Errors
    /// `Invalid` for what is neither, and for a network that everybody is in.
    pub fn parse(setting: &str) -> Result<Self> {
        let names = setting.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.map(proxy).collect::<Result<_>>().map(Proxies)
    }

    /// Who sent a request: the other end of the connection, or, if that is trusted, whom it and the
    /// trusted ones before it say they spoke to. An entry that is no address ends that: then it is
    /// the last proxy that is known.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.to_canonical();
        let mut told = entries(headers);
        while self.trusts(client) {
            match told.next().and_then(address) {
                Some(before) => client = before,
                None => break,
            }
        }
        client
    }

    /// Whether an address is that of a proxy that is believed.
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.has(address))
    }
}

fn proxy(name: &str) -> Result<Network> {
    let refused = |why: &str, hint: &str| {
        Err(Error::new(Kind::Invalid, format!("trusted_proxies: `{name}` {why}")).with_hint(hint))
    };
    let Some(network) = Network::parse(name) else {
        let hint = "Give addresses such as 10.0.3.7 and networks such as 10.8.0.0/16, separated by \
                    commas, without ports";
        return refused("is neither an address nor a network", hint);
    };
    if network.has_all() {
        let hint = "Name the networks of your balancers only: who is in them may claim any address";
        return refused("trusts everybody", hint);
    }
    match network.base() {
        IpAddr::V6(base) if base.to_ipv4_mapped().is_some() => {
            refused("is of IPv4, written as IPv6", "Write it as IPv4, such as 10.8.0.0/16")
        }
        _ => Ok(network),
    }
}

/// The entries of all the headers, the last one first.
fn entries(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let lines = headers.get_all(FORWARDED_FOR).iter().rev();
    lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','))
}

/// The address of an entry, which may have a port, and brackets if it is of IPv6.
fn address(entry: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(entry).ok()?.trim_matches([' ', '\t']);
    let bare = || text.parse::<IpAddr>().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    let in_brackets = || {
        let inner = text.strip_prefix('[')?.strip_suffix(']')?;
        inner.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
    };
    bare().or_else(with_port).or_else(in_brackets).map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests;

//! Networks: the addresses that share their first bits with one that is named. Pure; whose they are
//! others know.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network (`10.0.0.0/8`), or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    base: IpAddr,
    bits: u32,
}

impl Network {
    /// `None` for a text that is neither.
    pub fn parse(text: &str) -> Option<Self> {
        let (base, bits) = text.split_once('/').unwrap_or((text, ""));
        let base: IpAddr = base.parse().ok()?;
        let width = if base.is_ipv4() { Ipv4Addr::BITS } else { Ipv6Addr::BITS };
        let bits = if text.contains('/') { bits.parse().ok()? } else { width };
        (bits <= width).then_some(Network { base, bits })
    }

    /// Whether an address is in it. One of IPv4 that is written as one of IPv6 is one of IPv4.
    pub fn has(&self, address: IpAddr) -> bool {
        let first = |bytes: u128, width: u32| {
            let bits = self.bits.min(width);
            if bits == 0 { 0 } else { bytes >> (width - bits) }
        };
        match (address.to_canonical(), self.base) {
            (IpAddr::V4(address), IpAddr::V4(base)) => {
                let number = |it: Ipv4Addr| u128::from(u32::from(it));
                first(number(address), Ipv4Addr::BITS) == first(number(base), Ipv4Addr::BITS)
            }
            (IpAddr::V6(address), IpAddr::V6(base)) => {
                first(u128::from(address), Ipv6Addr::BITS)
                    == first(u128::from(base), Ipv6Addr::BITS)
            }
            _ => false,
        }
    }

    /// Whether every address of its kind is in it.
    pub fn has_all(&self) -> bool {
        self.bits == 0
    }

    /// The address that it is named by.
    pub fn base(&self) -> IpAddr {
        self.base
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_the_networks_whose_bits_it_has() {
        for (network, address, is_in) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3/32", "10.1.2.4", false),
            ("0.0.0.0/0", "203.0.113.1", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("2001:db8::/32", "2001:db8:1::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::1", "::1", true),
            ("::/0", "10.0.0.1", false),
        ] {
            let found = Network::parse(network).unwrap().has(address.parse().unwrap());
            assert_eq!(found, is_in, "{address} in {network}");
        }
        for odd in ["", "10.0.0", "10.0.0.0/", "10.0.0.0/33", "::/129", "10.0.0.0/8/8", "x/8"] {
            assert_eq!(Network::parse(odd), None, "{odd}");
        }
    }
}

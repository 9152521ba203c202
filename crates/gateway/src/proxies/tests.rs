//! Tests of who a client is behind proxies.

use super::*;
use http::HeaderValue;
use proptest::prelude::*;
use std::net::Ipv4Addr;

fn proxies() -> Proxies {
    Proxies::parse("10.0.0.0/8, 192.168.1.7,2001:db8:aaaa::/48").unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn client(peer: &str, lines: &[&str]) -> String {
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append(FORWARDED_FOR, HeaderValue::from_str(line).unwrap());
    }
    proxies().client(ip(peer), &headers).to_string()
}

#[test]
fn the_last_address_that_is_no_proxys_is_the_clients() {
    for (peer, lines, expected) in [
        // Nobody in between, or nobody who says so.
        ("203.0.113.1", &[][..], "203.0.113.1"),
        ("10.0.0.1", &[], "10.0.0.1"),
        ("10.0.0.1", &[""], "10.0.0.1"),
        // Whoever is not trusted is not believed.
        ("203.0.113.1", &["198.51.100.1"], "203.0.113.1"),
        ("192.168.1.8", &["198.51.100.1"], "192.168.1.8"),
        ("10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
        ("::ffff:10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
        ("2001:db8:aaaa::1", &["2001:db8:bbbb::1"], "2001:db8:bbbb::1"),
        // What a client made up stands before what the proxy saw.
        ("10.0.0.1", &["1.1.1.1, 198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", &["1.1.1.1", "198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", &["10.9.9.9, 198.51.100.1"], "198.51.100.1"),
        // Proxies behind proxies, in one line or several.
        ("10.0.0.1", &["1.1.1.1, 198.51.100.1, 192.168.1.7,10.3.0.1"], "198.51.100.1"),
        ("10.0.0.1", &["1.1.1.1,198.51.100.1", "192.168.1.7 ,\t10.3.0.1"], "198.51.100.1"),
        // Who asks from within the trusted networks is the first that is known.
        ("10.0.0.1", &["10.7.7.7, 10.3.0.1"], "10.7.7.7"),
        // Forms of an address.
        ("10.0.0.1", &["198.51.100.1:4711"], "198.51.100.1"),
        ("10.0.0.1", &["[2001:db8::1]:4711"], "2001:db8::1"),
        ("10.0.0.1", &["[2001:db8::1]"], "2001:db8::1"),
        ("10.0.0.1", &["2001:db8::1"], "2001:db8::1"),
        ("10.0.0.1", &["::ffff:198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", &["198.51.100.1, ::ffff:10.3.0.1"], "198.51.100.1"),
        // What is no address ends it at the last proxy that is known.
        ("10.0.0.1", &["unknown"], "10.0.0.1"),
        ("10.0.0.1", &["198.51.100.1, unknown"], "10.0.0.1"),
        ("10.0.0.1", &["198.51.100.1, "], "10.0.0.1"),
        ("10.0.0.1", &["198.51.100.1", ""], "10.0.0.1"),
        ("10.0.0.1", &["198.51.100.1, , 10.3.0.1"], "10.3.0.1"),
        ("10.0.0.1", &["198.51.100.1, _hidden, 10.3.0.1"], "10.3.0.1"),
        ("10.0.0.1", &["198.51.100.1 10.3.0.1"], "10.0.0.1"),
        ("10.0.0.1", &["198.51.100.1:port"], "10.0.0.1"),
        ("10.0.0.1", &["198.51.100.1:70000"], "10.0.0.1"),
        ("10.0.0.1", &["[198.51.100.1]"], "10.0.0.1"),
        ("10.0.0.1", &["[2001:db8::1"], "10.0.0.1"),
        ("10.0.0.1", &["198.51.100.0/24"], "10.0.0.1"),
    ] {
        assert_eq!(client(peer, lines), expected, "{peer} {lines:?}");
    }
}

#[test]
fn bytes_that_are_no_text_end_it() {
    let mut headers = HeaderMap::new();
    let line = HeaderValue::from_bytes(b"198.51.100.1,\xff,10.3.0.1").unwrap();
    headers.append(FORWARDED_FOR, line);
    assert_eq!(proxies().client(ip("10.0.0.1"), &headers), ip("10.3.0.1"));
}

#[test]
fn nobody_is_believed_unless_told_so() {
    let mut headers = HeaderMap::new();
    headers.append(FORWARDED_FOR, HeaderValue::from_static("198.51.100.1"));
    for setting in ["", " , "] {
        let nobody = Proxies::parse(setting).unwrap();
        assert_eq!(nobody, Proxies::default());
        assert_eq!(nobody.client(ip("10.0.0.1"), &headers), ip("10.0.0.1"));
    }
}

#[test]
fn what_is_no_proxy_is_told_with_what_to_write() {
    for (setting, why) in [
        ("10.0.0.1:9000", "neither an address nor a network"),
        ("balancer.internal", "neither an address nor a network"),
        ("10.0.0.0/8 10.1.0.0/16", "neither an address nor a network"),
        ("10.0.0.1, 10.0.0.0/40", "`10.0.0.0/40` is neither"),
        ("0.0.0.0/0", "trusts everybody"),
        ("::/0", "trusts everybody"),
        ("::ffff:10.0.0.0/104", "written as IPv6"),
    ] {
        let error = Proxies::parse(setting).unwrap_err();
        assert!(error.to_string().contains(why), "{setting}: {error}");
        assert!(error.hint().is_some() && error.kind() == Kind::Invalid, "{setting}");
    }
}

/// An address in one of the networks of [`proxies`].
fn trusted() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| Ipv4Addr::from((10 << 24) | (bits >> 8)).into()),
        Just(ip("192.168.1.7")),
        any::<u64>().prop_map(|bits| {
            let network = 0x2001_0db8_aaaa_u128 << 80;
            Ipv6Addr::from(network | u128::from(bits)).into()
        }),
    ]
}

fn stranger() -> impl Strategy<Value = IpAddr> {
    let any_address = prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::from(Ipv4Addr::from(bits))),
        any::<u128>().prop_map(|bits| IpAddr::from(Ipv6Addr::from(bits))),
    ];
    let canonical = any_address.prop_map(|address| address.to_canonical());
    canonical.prop_filter("a proxy's", |address| !proxies().trusts(*address))
}

fn written(address: IpAddr, form: u8) -> String {
    match (form % 3, address) {
        (0, _) => SocketAddr::new(address, 4711).to_string(),
        (1, IpAddr::V6(_)) => format!("[{address}]"),
        _ => address.to_string(),
    }
}

/// What a client may write itself: addresses, proxies' too, and anything else.
fn made_up() -> impl Strategy<Value = Vec<String>> {
    let entry = prop_oneof![
        stranger().prop_map(|address| address.to_string()),
        trusted().prop_map(|address| address.to_string()),
        "[ -~]{0,20}",
    ];
    prop::collection::vec(entry, 0..5)
}

proptest! {
    #[test]
    fn what_a_client_makes_up_never_wins(
        made_up in made_up(),
        sender in stranger(),
        chain in prop::collection::vec((trusted(), any::<u8>(), any::<bool>()), 1..4),
        form in any::<u8>(),
    ) {
        // Each proxy adds who spoke to it, behind a comma or in a line of its own; the last of them
        // is the peer.
        let mut lines = vec![made_up.join(",")];
        let (mut speaker, mut form) = (sender, form);
        for (proxy, next_form, begins_line) in &chain {
            let entry = written(speaker, form);
            match (begins_line, lines.last_mut()) {
                (false, Some(line)) if !line.is_empty() => *line += &format!(", {entry}"),
                _ => lines.push(entry),
            }
            (speaker, form) = (*proxy, *next_form);
        }
        let mut headers = HeaderMap::new();
        for line in &lines {
            headers.append(FORWARDED_FOR, HeaderValue::from_str(line).unwrap());
        }
        prop_assert_eq!(proxies().client(speaker, &headers), sender, "{:?}", lines);
        // To a gateway that trusts none of them the header says nothing.
        prop_assert_eq!(Proxies::default().client(speaker, &headers), speaker);
        prop_assert_eq!(proxies().client(sender, &headers), sender);
    }
}

//! Decides which proxy, if any, a request goes through.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use http::uri::Authority;
use penstock_base::door::setting;
use penstock_base::{Error, Kind, Result, Secret};
use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};

/// Where the proxy comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub enum ProxyChoice {
    /// HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY, read when the client is made.
    #[default]
    Environment,
    /// No proxy.
    None,
    /// This proxy for every request.
    Fixed(Proxy),
}

/// An HTTP proxy. Its own connection is plain HTTP; TLS to the store goes through a tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Proxy {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Value of Proxy-Authorization.
    pub(crate) authorization: Option<Secret>,
    /// Where it was asked for: a setting, a variable.
    pub(crate) named_by: Cow<'static, str>,
}

impl Proxy {
    /// Parses `http://user:password@host:port`; scheme and user info are optional.
    ///
    /// # Errors
    /// `Invalid` for text that is no such URL, `Unsupported` for other schemes.
    pub fn parse(url: &str) -> Result<Self> {
        let wrong = || {
            Error::new(Kind::Invalid, "the proxy is not a URL such as http://host:3128")
                .with_hint(format!("Check {}, the secret, or HTTPS_PROXY", setting("http_proxy")))
        };
        let text = url.trim();
        let rest = match text.split_once("://") {
            Some(("http", rest)) => rest,
            // More than a scheme: a password may stand in it.
            Some((scheme, _)) if scheme.contains([':', '@']) => return Err(wrong()),
            Some((scheme, _)) => {
                return Err(Error::new(
                    Kind::Unsupported,
                    format!("a proxy with scheme `{scheme}` is not supported"),
                )
                .with_hint("Give an http:// proxy; https stores are reached through its tunnel"));
            }
            None => text,
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (user_info, host) = match rest.rsplit_once('@') {
            Some((user_info, host)) => (Some(user_info), host),
            None => (None, rest),
        };
        let authority: Authority = host.parse().map_err(|_| wrong())?;
        let name = bare_host(authority.host());
        // What stands in brackets is an address (RFC 3986, section 3.2.2).
        let is_address = || name.parse::<Ipv6Addr>().is_ok();
        if name.is_empty() || (name.len() < authority.host().len() && !is_address()) {
            return Err(wrong());
        }
        let proxy = Proxy {
            host: name.to_string(),
            port: explicit_port(&authority)?.unwrap_or(80),
            authorization: None,
            named_by: "the caller".into(),
        };
        Ok(match user_info {
            Some(user_info) => {
                let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
                let decode = |text| {
                    percent_encoding::percent_decode_str(text).decode_utf8_lossy().to_string()
                };
                proxy.with_basic(&decode(user), &decode(password))
            }
            None => proxy,
        })
    }

    /// Remembers where it was asked for (`the environment variable HTTPS_PROXY`), for errors.
    #[must_use]
    pub fn named_by(mut self, place: impl Into<Cow<'static, str>>) -> Self {
        self.named_by = place.into();
        self
    }

    /// Adds a user name and password (RFC 7617).
    #[must_use]
    pub fn with_basic(mut self, user: &str, password: &str) -> Self {
        let token = STANDARD.encode(format!("{user}:{password}"));
        self.authorization = Some(Secret::new(format!("Basic {token}")));
        self
    }
}

/// The proxies of the environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProxyEnvironment {
    http: Option<Proxy>,
    https: Option<Proxy>,
    no_proxy: Vec<String>,
}

impl ProxyEnvironment {
    /// Reads the variables through `variable`; lower-case names win, as in curl.
    ///
    /// # Errors
    /// As [`Proxy::parse`].
    pub(crate) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let get = |name: &str| {
            let found = |name: String| variable(&name).map(|text| (name, text));
            found(name.to_ascii_lowercase())
                .or_else(|| found(name.to_string()))
                .filter(|(_, text)| !text.trim().is_empty())
        };
        let all = get("ALL_PROXY");
        let proxy = |name| {
            let Some((name, url)) = get(name).or(all.clone()) else { return Ok(None) };
            let place = format!("the environment variable {name}");
            Proxy::parse(&url).map(|proxy| Some(proxy.named_by(place)))
        };
        let no_proxy = get("NO_PROXY").map(|(_, text)| text).unwrap_or_default();
        Ok(ProxyEnvironment {
            http: proxy("HTTP_PROXY")?,
            https: proxy("HTTPS_PROXY")?,
            no_proxy: no_proxy
                .split([',', ' '])
                .map(|entry| entry.trim().to_ascii_lowercase())
                .filter(|entry| !entry.is_empty())
                .collect(),
        })
    }

    fn pick(&self, is_https: bool, host: &str, port: u16) -> Option<&Proxy> {
        let proxy = if is_https { self.https.as_ref() } else { self.http.as_ref() }?;
        let excluded = is_loopback(host)
            || self.no_proxy.iter().any(|entry| no_proxy_matches(entry, host, port));
        (!excluded).then_some(proxy)
    }
}

/// The proxy for a request. Link-local addresses (instance metadata) never go through one, and
/// loopback ones only through a proxy that was asked for by name.
pub(crate) fn proxy_for<'a>(
    choice: &'a ProxyChoice,
    environment: &'a ProxyEnvironment,
    uri: &Uri,
) -> Option<&'a Proxy> {
    let host = bare_host(uri.host().unwrap_or_default()).to_ascii_lowercase();
    if is_link_local(&host) {
        return None;
    }
    let is_https = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
    match choice {
        ProxyChoice::Environment => environment.pick(is_https, &host, port),
        ProxyChoice::None => None,
        ProxyChoice::Fixed(proxy) => Some(proxy),
    }
}

/// A host without the brackets of an IPv6 literal.
pub(crate) fn bare_host(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// The port that stands behind a host, `None` where none does.
///
/// # Errors
/// `Invalid` for a port that is no number from 1 to 65535: no other port is guessed for it.
pub(crate) fn explicit_port(authority: &Authority) -> Result<Option<u16>> {
    let text = authority.as_str();
    let place = text.rsplit_once('@').map_or(text, |(_, place)| place);
    let port = match place.strip_prefix(authority.host()) {
        Some("" | ":") => return Ok(None),
        Some(rest) => rest.strip_prefix(':'),
        None => None,
    };
    let is_number = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
    let number = port.filter(is_number).and_then(|text| text.parse().ok());
    number.filter(|port| *port != 0).map(Some).ok_or_else(|| {
        Error::new(Kind::Invalid, format!("`{place}` has a wrong port"))
            .with_hint("Write host:port, with a number from 1 to 65535")
    })
}

fn is_link_local(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => address.is_link_local(),
        Ok(IpAddr::V6(address)) => address.is_unicast_link_local(),
        Err(_) => host == "metadata.google.internal",
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// One entry of NO_PROXY: `*`, a domain with all below it, an address, or a block of addresses,
/// each but the last with an optional port.
fn no_proxy_matches(entry: &str, host: &str, port: u16) -> bool {
    if entry == "*" {
        return true;
    }
    if let Some((network, bits)) = entry.split_once('/') {
        return in_block(network, bits, host).unwrap_or(false);
    }
    let (name, wanted_port) = match entry.rsplit_once(':') {
        Some((name, digits)) if !name.contains(':') || name.ends_with(']') => {
            (name, digits.parse::<u16>().ok())
        }
        _ => (entry, None),
    };
    if wanted_port.is_some_and(|wanted| wanted != port) {
        return false;
    }
    let name = bare_host(name).trim_start_matches("*.").trim_start_matches('.');
    host == name
        || (host.parse::<IpAddr>().is_err()
            && host.strip_suffix(name).is_some_and(|front| front.ends_with('.')))
}

fn in_block(network: &str, bits: &str, host: &str) -> Option<bool> {
    let bits: u32 = bits.parse().ok()?;
    match (network.parse().ok()?, host.parse().ok()?) {
        (IpAddr::V4(network), IpAddr::V4(host)) => {
            let mask = u32::MAX.checked_shl(32u32.checked_sub(bits)?).unwrap_or(0);
            Some((u32::from(network) ^ u32::from(host)) & mask == 0)
        }
        (IpAddr::V6(network), IpAddr::V6(host)) => {
            let mask = u128::MAX.checked_shl(128u32.checked_sub(bits)?).unwrap_or(0);
            Some((u128::from(network) ^ u128::from(host)) & mask == 0)
        }
        _ => None,
    }
}

/// Body for a fuzzer: a proxy's URL in the first line, exceptions in the second, a host in the
/// third. A proxy that is read is told as it was, and its password is shown nowhere.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(text: &str) {
    let mut lines = text.splitn(3, '\n');
    let (url, exceptions) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    if let Ok(proxy) = Proxy::parse(url) {
        assert!(!proxy.host.is_empty() && proxy.port != 0, "no place: {proxy:?}");
        let again = Proxy::parse(&url_of(&proxy));
        assert_eq!(again.ok().as_ref(), Some(&proxy), "a proxy that changed");
    }
    const PASSWORD: &str = "hunter2";
    let told = match Proxy::parse(&format!("http://user:{PASSWORD}@{url}")) {
        Ok(proxy) => format!("{proxy:?}"),
        Err(error) => format!("{error} {error:?} {:?}", error.hint()),
    };
    assert!(url.contains(PASSWORD) || !told.contains(PASSWORD), "a password is shown: {told}");
    let variable = |name: &str| match name {
        "https_proxy" => Some("px:1".to_string()),
        "no_proxy" => Some(exceptions.to_string()),
        _ => None,
    };
    let Ok(environment) = ProxyEnvironment::read(variable) else { return };
    let host = lines.next().unwrap_or_default();
    for host in [host, "127.0.0.1", "169.254.169.254"] {
        let Ok(uri) = format!("https://{host}/").parse::<Uri>() else { continue };
        let picked = proxy_for(&ProxyChoice::Environment, &environment, &uri).is_some();
        let is_near = |host: &str| is_link_local(host) || is_loopback(host);
        assert!(!picked || !is_near(bare_host(host)), "{host} is asked for through a proxy");
    }
}

/// A proxy as a URL.
#[cfg(any(test, feature = "fuzzing"))]
fn url_of(proxy: &Proxy) -> String {
    use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
    let basic = proxy.authorization.as_ref().and_then(|value| {
        let token = STANDARD.decode(value.reveal().strip_prefix("Basic ")?).ok()?;
        String::from_utf8(token).ok()
    });
    let user_info = basic.map(|basic| {
        let (user, password) = basic.split_once(':').unwrap_or((&basic, ""));
        let encode = |text| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        format!("{}:{}@", encode(user), encode(password))
    });
    let host = match proxy.host.contains(':') {
        true => format!("[{}]", proxy.host),
        false => proxy.host.clone(),
    };
    format!("http://{}{host}:{}", user_info.unwrap_or_default(), proxy.port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn environment(pairs: &[(&str, &str)]) -> ProxyEnvironment {
        let map: HashMap<_, _> = pairs.iter().map(|(k, v)| (*k, v.to_string())).collect();
        ProxyEnvironment::read(|name| map.get(name).cloned()).unwrap()
    }

    fn goes_through(environment: &ProxyEnvironment, url: &str) -> bool {
        proxy_for(&ProxyChoice::Environment, environment, &url.parse().unwrap()).is_some()
    }

    #[test]
    fn url_with_user_and_password_parses_and_hides_them() {
        let proxy = Proxy::parse("http://u:p%40w@px.example:3128/").unwrap();
        assert_eq!((proxy.host.as_str(), proxy.port), ("px.example", 3128));
        assert_eq!(proxy.authorization.as_ref().unwrap().reveal(), "Basic dTpwQHc=");
        assert!(!format!("{proxy:?}").contains("dTpw"));
        assert_eq!(Proxy::parse("px").unwrap().port, 80);
        assert_eq!(Proxy::parse("socks5://px").unwrap_err().kind(), Kind::Unsupported);
        assert_eq!(Proxy::parse("http://").unwrap_err().kind(), Kind::Invalid);
    }

    #[test]
    fn a_proxy_without_a_name_is_refused() {
        for url in ["[]", "http://[]", "http://[]:3128", "http://", ":3128", "[h%40]", "[::1"] {
            let refused = Proxy::parse(url);
            assert_eq!(refused.err().map(|error| error.kind()), Some(Kind::Invalid), "{url}");
        }
    }

    #[test]
    fn wrong_ports_are_told_and_never_guessed() {
        let port = |text: &str| explicit_port(&text.parse::<Authority>().unwrap());
        for (text, expected) in [
            ("h", None),
            ("h:", None),
            ("h:80", Some(80)),
            ("u:p@h:65535", Some(65535)),
            ("[::1]", None),
            ("[::1]:9000", Some(9000)),
        ] {
            assert_eq!(port(text).unwrap(), expected, "{text}");
        }
        for text in ["127.0.0.1:99999", "host:abc", "h:0", "u:hunter2@h:-1", "[::1]:x", "h:8O"] {
            let error = port(text).unwrap_err();
            let shown = text.rsplit('@').next().unwrap();
            assert_eq!(error.kind(), Kind::Invalid, "{text}");
            assert!(error.message().contains(shown), "{error}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        for text in ["http://u:hunter2@px:99999", "u:hunter2://@px"] {
            let error = Proxy::parse(text).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid);
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_proxy_remembers_its_variable() {
        let environment = environment(&[("HTTPS_PROXY", "px:1"), ("all_proxy", "px:2")]);
        let named_by = |proxy: &Option<Proxy>| proxy.as_ref().unwrap().named_by.to_string();
        assert_eq!(named_by(&environment.https), "the environment variable HTTPS_PROXY");
        assert_eq!(named_by(&environment.http), "the environment variable all_proxy");
    }

    #[test]
    fn environment_decides_by_scheme_and_exceptions() {
        let environment = environment(&[
            ("HTTPS_PROXY", "http://px:1"),
            ("NO_PROXY", "internal.example, .corp, 10.0.0.0/8,plain.example:8443"),
        ]);
        for (url, expected) in [
            ("https://s3.amazonaws.com/b", true),
            ("http://s3.amazonaws.com/b", false),
            ("https://internal.example/", false),
            ("https://a.internal.example/", false),
            ("https://notinternal.example/", true),
            ("https://x.corp/", false),
            ("https://10.9.8.7/", false),
            ("https://11.9.8.7/", true),
            ("https://plain.example:8443/", false),
            ("https://plain.example/", true),
            ("https://localhost:9000/", false),
            ("https://169.254.169.254/latest", false),
        ] {
            assert_eq!(goes_through(&environment, url), expected, "{url}");
        }
    }
}

//! Where a request says that its bucket is: in the path, or in front of one of the gateway's own
//! host names. Pure; also the way back, the URL of an object as its client knows it.

use http::header::HOST;
use http::{HeaderMap, HeaderName};
use penstock_base::{Error, Kind, Result};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::S3Result;
use s3s::host::{S3Host, VirtualHost};

/// What stays as it is in a path.
pub(crate) const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');
/// By which a balancer that ends TLS tells how it was spoken to.
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The gateway's host names, and whether it speaks TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hosts {
    domains: Vec<String>,
    is_tls: bool,
}

/// A host without its port and the dot of the root, in small letters.
fn name_of(host: &str) -> String {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

impl Hosts {
    /// From the setting: names separated by commas.
    ///
    /// # Errors
    /// `Invalid` for what is no host name.
    pub fn parse(domains: &str, is_tls: bool) -> Result<Self> {
        let names = domains.split(',').map(str::trim).filter(|name| !name.is_empty());
        let domains: Vec<String> = names.map(str::to_ascii_lowercase).collect();
        let is_label = |label: &str| {
            let mut bytes = label.bytes();
            !label.is_empty() && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        if let Some(odd) = domains.iter().find(|name| !name.split('.').all(is_label)) {
            let why = format!("domains: `{odd}` is no host name");
            let hint = "Give names such as s3.example.org, without scheme and port";
            return Err(Error::new(Kind::Invalid, why).with_hint(hint));
        }
        Ok(Hosts { domains, is_tls })
    }

    /// The gateway's host names.
    pub fn domains(&self) -> &[String] {
        &self.domains
    }

    /// The bucket that a host names; `None` where it is the path's to say.
    fn bucket_in(&self, host: &str) -> Option<String> {
        let name = name_of(host);
        // One domain may lie in another: what it is for is its own.
        let domains = self.domains.iter().filter(|domain| {
            let before = name.strip_suffix(domain.as_str());
            before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
        });
        let domain = domains.max_by_key(|domain| domain.len())?;
        let bucket = name[..name.len() - domain.len()].strip_suffix('.')?;
        (!bucket.is_empty()).then(|| bucket.to_string())
    }

    /// The bucket that the host of a request names.
    pub fn bucket(&self, headers: &HeaderMap) -> Option<String> {
        if self.domains.is_empty() {
            return None;
        }
        self.bucket_in(headers.get(HOST)?.to_str().ok()?)
    }

    /// The path of a request with its bucket in front, wherever that was named.
    pub fn full_path(&self, headers: &HeaderMap, path: &str) -> String {
        match self.bucket(headers) {
            Some(bucket) => format!("/{bucket}{path}"),
            None => path.to_string(),
        }
    }

    /// The URL of an object, as the client that sent these headers would write it; a path where it
    /// named no host.
    pub fn location(&self, headers: &HeaderMap, bucket: &str, key: &str) -> String {
        let key = utf8_percent_encode(key, PATH);
        let path = match self.bucket(headers) {
            Some(_) => format!("/{key}"),
            None => format!("/{bucket}/{key}"),
        };
        let forwarded = headers.get(FORWARDED_PROTO).is_some_and(|scheme| scheme == "https");
        let scheme = if self.is_tls || forwarded { "https" } else { "http" };
        match headers.get(HOST).and_then(|host| host.to_str().ok()) {
            Some(host) => format!("{scheme}://{host}{path}"),
            None => path,
        }
    }
}

impl S3Host for Hosts {
    /// Any other host is fine too: a balancer, an address, a name inside a cluster.
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let named = VirtualHost::new(host);
        Ok(match self.bucket_in(host) {
            Some(bucket) => named.with_bucket(bucket),
            None => named,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(rows: &[(HeaderName, &'static str)]) -> HeaderMap {
        rows.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn a_bucket_stands_before_a_domain() {
        let hosts = Hosts::parse("s3.example.org, LAKE.internal", false).unwrap();
        let bucket = |host: &'static str| hosts.bucket(&headers(&[(HOST, host)]));
        assert_eq!(bucket("data.s3.example.org").as_deref(), Some("data"));
        assert_eq!(bucket("My.Data.S3.example.org:9000").as_deref(), Some("my.data"));
        assert_eq!(bucket("x.lake.internal").as_deref(), Some("x"));
        for host in ["s3.example.org", "s3.example.org:80", "127.0.0.1:9000", "[::1]:9000"] {
            assert_eq!(bucket(host), None, "{host}");
        }
        for host in ["datas3.example.org", "other.org", ".s3.example.org", ""] {
            assert_eq!(bucket(host), None, "{host}");
        }
        assert_eq!(Hosts::default().bucket(&headers(&[(HOST, "a.b.c")])), None);
    }

    #[test]
    fn the_nearest_of_nested_domains_counts_in_any_order() {
        for domains in ["example.org, eu.example.org", "eu.example.org, example.org"] {
            let hosts = Hosts::parse(domains, false).unwrap();
            let bucket = |host: &'static str| hosts.bucket(&headers(&[(HOST, host)]));
            for (host, told) in [
                ("eu.example.org", None),
                ("lake.eu.example.org", Some("lake")),
                ("us.example.org", Some("us")),
                ("lake.example.org.", Some("lake")),
                ("lake.example.org.:9000", Some("lake")),
                ("example.org.", None),
            ] {
                assert_eq!(bucket(host).as_deref(), told, "{host}");
            }
        }
    }

    #[test]
    fn domains_are_host_names() {
        assert_eq!(Hosts::parse(" , ", false).unwrap(), Hosts::default());
        for odd in ["http://a.b", "a..b", "a.b:80", "a b", ".a"] {
            assert_eq!(Hosts::parse(odd, false).unwrap_err().kind(), Kind::Invalid, "{odd}");
        }
    }

    #[test]
    fn locations_are_urls_of_the_client() {
        let hosts = Hosts::parse("s3.example.org", false).unwrap();
        let told =
            |rows: &[(HeaderName, &'static str)]| hosts.location(&headers(rows), "lake", "a b/ü");
        assert_eq!(told(&[(HOST, "h:9000")]), "http://h:9000/lake/a%20b/%C3%BC");
        let virtual_host = "lake.s3.example.org";
        assert_eq!(told(&[(HOST, virtual_host)]), format!("http://{virtual_host}/a%20b/%C3%BC"));
        let secure = [(HOST, "h"), (FORWARDED_PROTO, "https")];
        assert_eq!(told(&secure), "https://h/lake/a%20b/%C3%BC");
        assert_eq!(told(&[]), "/lake/a%20b/%C3%BC");
    }
}

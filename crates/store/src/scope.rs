//! Which URLs the scope of a secret covers. Pure.
//!
//! A scope is the beginning of a URL. Names in it end at a boundary: scheme, host and port,
//! account, bucket, container and repository of a scope are those of the URL, or the scope does not
//! cover it. After the bucket, the container, the host or the repository the scope is a prefix of
//! text, as in DuckDB. A repository without a revision is each of its revisions.
//!
//! Two texts name one host where they differ in the case of its letters, in the spelling of an IPv6
//! address, or in a port that the scheme implies. Everything else counts as another host or bucket:
//! a trailing dot, user info, percent-encoding, other spellings of an IPv4 address, other schemes
//! for the same store (`s3a`, `abfss`). A server resolves `.` and `..` in the path of a web URL, so
//! such a URL may lie anywhere on its host, and no scope with a path covers it.

use std::borrow::Cow;
use std::net::Ipv6Addr;

/// The schemes of Azure: hosts stand in some of their URLs, and containers in all.
const AZURE: &[&str] = crate::azure::address::SCHEMES;

/// How much of the URL the scope covers, in bytes of the scope; `None` where it does not cover the
/// URL. Of several scopes the longest is the closest.
pub fn covered_bytes(scope: &str, url: &str) -> Option<usize> {
    let covers = scope.is_empty() || covers(scope, url);
    covers.then_some(scope.len())
}

fn covers(scope: &str, url: &str) -> bool {
    let Some(url) = Parts::of(url) else { return false };
    let Some(scope) = Parts::of(scope) else {
        // Less than a scheme with its slashes is the scheme, whole.
        let scheme = scope.trim_end_matches('/');
        return scheme.strip_suffix(':').unwrap_or(scheme).eq_ignore_ascii_case(url.scheme);
    };
    if !scope.scheme.eq_ignore_ascii_case(url.scheme) {
        return false;
    }
    let Some(scope_path) = scope.path else {
        // `s3://` is every bucket.
        return scope.authority.is_empty() || scope.is_at(&url);
    };
    let url_path = url.path.unwrap_or_default();
    if scope.is_web() && !scope_path.is_empty() && has_dot_segment(url_path) {
        return false;
    }
    if scope.scheme.eq_ignore_ascii_case("hf") {
        return scope.is_at(&url) && has_repository(scope_path, url_path);
    }
    scope.is_at(&url) && has_prefix(scope_path, url_path, scope.begins_with_container())
}

/// Whether a path begins with another, whose first name, where it is a container's, ends there.
fn has_prefix(scope: &str, path: &str, begins_with_container: bool) -> bool {
    if !begins_with_container || scope.is_empty() || scope.contains('/') {
        return path.starts_with(scope);
    }
    path.split('/').next() == Some(scope)
}

/// Whether a server would resolve this path to another one (RFC 3986, section 5.2.4).
fn has_dot_segment(path: &str) -> bool {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    path.split(['/', '\\']).any(|segment| {
        let segment = segment.to_ascii_lowercase().replace("%2e", ".");
        segment == "." || segment == ".."
    })
}

/// Whether a path begins with another, in which the names of user and repository are whole.
fn has_repository(scope: &str, path: &str) -> bool {
    let mut names = path.splitn(3, '/');
    let mut wanted = scope.splitn(3, '/').peekable();
    for is_repository in [false, true] {
        let (Some(want), name) = (wanted.next(), names.next().unwrap_or_default()) else {
            return true;
        };
        let is_last = wanted.peek().is_none();
        let revision = name.strip_prefix(want).filter(|rest| rest.starts_with('@'));
        let is_of_it = is_repository && is_last && revision.is_some();
        if name != want && !is_of_it && !(want.is_empty() && is_last) {
            return false;
        }
    }
    names.next().unwrap_or_default().starts_with(wanted.next().unwrap_or_default())
}

/// A URL, divided where its store divides it.
struct Parts<'a> {
    scheme: &'a str,
    /// Host and port, bucket, container, or container and host.
    authority: &'a str,
    /// What follows the slash behind the authority.
    path: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let (authority, path) = match rest.split_once('/') {
            Some((authority, path)) => (authority, Some(path)),
            None => (rest, None),
        };
        Some(Parts { scheme, authority, path })
    }

    fn is_web(&self) -> bool {
        ["http", "https"].iter().any(|known| known.eq_ignore_ascii_case(self.scheme))
    }

    fn is_azure(&self) -> bool {
        AZURE.iter().any(|known| known.eq_ignore_ascii_case(self.scheme))
    }

    /// Whether a container stands behind a host: `az://account.blob.core.windows.net/container`.
    fn begins_with_container(&self) -> bool {
        self.is_azure() && self.authority.contains('.') && !self.authority.contains('@')
    }

    fn is_at(&self, other: &Parts<'_>) -> bool {
        self.place() == other.place()
    }

    /// The authority, in one spelling.
    fn place(&self) -> (Option<&str>, Cow<'_, str>) {
        let is_web = |scheme: &str| self.scheme.eq_ignore_ascii_case(scheme);
        if is_web("http") || is_web("https") {
            return (
                None,
                host_in_one_spelling(self.authority, if is_web("http") { 80 } else { 443 }),
            );
        }
        match self.authority.split_once('@') {
            Some((container, host)) if self.is_azure() => {
                (Some(container), host_in_one_spelling(host, 443))
            }
            None if self.is_azure() && self.authority.contains('.') => {
                (None, host_in_one_spelling(self.authority, 443))
            }
            _ => (None, self.authority.into()),
        }
    }
}

/// Host and port: lower-case letters, one form of an IPv6 address, no port that the scheme implies.
fn host_in_one_spelling(authority: &str, implied_port: u16) -> Cow<'_, str> {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (host, port),
        _ => (authority, ""),
    };
    let port = match port.parse::<u16>() {
        Ok(port) if port == implied_port => String::new(),
        Ok(port) => format!(":{port}"),
        // No port, or a number that is none.
        Err(_) if port.is_empty() => String::new(),
        Err(_) => format!(":{port}"),
    };
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match address.and_then(|address| address.parse::<Ipv6Addr>().ok()) {
        Some(address) => format!("[{address}]{port}").into(),
        None => format!("{}{port}", host.to_ascii_lowercase()).into(),
    }
}

#[cfg(test)]
mod tests;

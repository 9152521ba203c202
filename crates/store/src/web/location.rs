//! URLs of web objects: encoding, origins, and where redirects lead. Pure but for the memory of
//! redirects.

use crate::ETag;
use crate::azure::sas;
use crate::http::explicit_port;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a URL cannot carry as it is; everything else stays as the user wrote it.
const ILLEGAL: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'`')
    .add(b'{')
    .add(b'}')
    .add(b'|')
    .add(b'\\')
    .add(b'^');

/// How long a redirect is taken without asking again; signed targets live for minutes.
const REDIRECT_LIFE: Duration = Duration::from_secs(60);
/// Most redirects that are remembered.
const REDIRECTS_KEPT_MAX: usize = 1000;

/// The URL to ask for, without the fragment (RFC 9110 section 4.2.5). What is encoded already stays
/// so; only a shared access signature with a plus sign is mended, which no server would take.
pub(crate) fn request_url(root: &str, key: &str) -> String {
    let key = key.split_once('#').map_or(key, |(key, _)| key);
    let mended = key.split_once('?').map(|(path, query)| (path, sas::mended(query)));
    if let Some((path, Cow::Owned(query))) = mended {
        return format!("{root}{}?{query}", encoded(path));
    }
    format!("{root}{}", encoded(key))
}

/// A text with what no URL can carry percent-encoded.
pub(crate) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ILLEGAL).to_string()
}

/// Scheme, host and port, in one spelling; `None` for what has no such origin.
pub(crate) fn origin_of(url: &str) -> Option<(String, String, u16)> {
    let uri: http::Uri = url.parse().ok()?;
    let scheme = uri.scheme_str()?.to_ascii_lowercase();
    let port =
        explicit_port(uri.authority()?).ok()?.unwrap_or(if scheme == "https" { 443 } else { 80 });
    Some((scheme, uri.host()?.to_ascii_lowercase(), port))
}

/// Where a Location header leads, seen from `base` (RFC 3986 section 5); `None` for what is no
/// web address.
pub(crate) fn resolve(base: &str, location: &str) -> Option<String> {
    let location = location.trim();
    let location = location.split_once('#').map_or(location, |(url, _)| url);
    let location = encoded(location);
    let (scheme, rest) = base.split_once("://")?;
    let authority = rest.split(['/', '?']).next()?;
    // A colon behind the first slash or question mark belongs to a path or query.
    let absolute = location
        .split_once("://")
        .filter(|(target_scheme, _)| !target_scheme.contains(['/', '?']))
        .map(|(target_scheme, _)| target_scheme.to_ascii_lowercase());
    let target = match absolute.as_deref() {
        Some("http" | "https") => location,
        Some(_) => return None,
        None if location.starts_with("//") => format!("{scheme}:{location}"),
        None if location.starts_with('/') => format!("{scheme}://{authority}{location}"),
        None => relative(base, &location)?,
    };
    origin_of(&target).map(|_| target)
}

fn relative(base: &str, location: &str) -> Option<String> {
    let path_and_scheme = base.split('?').next()?;
    if location.starts_with('?') {
        return Some(format!("{path_and_scheme}{location}"));
    }
    let (scheme, rest) = path_and_scheme.split_once("://")?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    let (wanted, query) = match location.split_once('?') {
        Some((wanted, query)) => (wanted, format!("?{query}")),
        None => (location, String::new()),
    };
    let mut segments: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in wanted.split('/') {
        match part {
            "." => {}
            ".." => {
                segments.pop();
            }
            part => segments.push(part),
        }
    }
    Some(format!("{scheme}://{authority}/{}{query}", segments.join("/")))
}

/// Where a redirect leads, and the object's tag where the redirect told it.
pub(crate) type Found = (String, Option<ETag>);

/// Where objects were found, by their own URLs.
#[derive(Default)]
pub(crate) struct Redirects(Mutex<HashMap<String, (Found, Instant)>>);

/// By hand: what a redirect leads to may be signed.
impl std::fmt::Debug for Redirects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redirects").finish_non_exhaustive()
    }
}

impl Redirects {
    /// Where an object was found lately.
    pub(crate) fn get(&self, own: &str) -> Option<Found> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (found, since) = known.get(own)?;
        (since.elapsed() < REDIRECT_LIFE).then(|| found.clone())
    }

    pub(crate) fn put(&self, own: &str, (url, tag): (&str, Option<ETag>)) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REDIRECTS_KEPT_MAX {
            known.clear();
        }
        known.insert(own.to_string(), ((url.to_string(), tag), Instant::now()));
    }

    pub(crate) fn forget(&self, own: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn locations_resolve_as_the_rfc_says() {
        let base = "https://h.example/a/b/c?x=1";
        for (location, target) in [
            ("https://o.example/z", "https://o.example/z"),
            ("//o.example/z", "https://o.example/z"),
            ("/z?y=http://q", "https://h.example/z?y=http://q"),
            ("z", "https://h.example/a/b/z"),
            ("../z#f", "https://h.example/a/z"),
            ("../../../z", "https://h.example/z"),
            ("?y=2", "https://h.example/a/b/c?y=2"),
            ("d/?u=http://q", "https://h.example/a/b/d/?u=http://q"),
        ] {
            assert_eq!(resolve(base, location).as_deref(), Some(target), "{location}");
        }
        assert_eq!(resolve(base, "ftp://o.example/z"), None);
        assert_eq!(resolve(base, "http://"), None);
        assert_eq!(resolve(base, "http://o.example:99999/z"), None);
    }

    #[test]
    fn only_what_is_illegal_is_encoded() {
        let url = request_url("http://h/", "a b%20c/ü?x=[1]&y#frag");
        assert_eq!(url, "http://h/a%20b%20c/%C3%BC?x=[1]&y");
        let url = request_url("http://h/", "a b%2Bc+d?sv=1&sig=a+b/c=");
        assert_eq!(url, "http://h/a%20b%2Bc+d?sv=1&sig=a%2Bb%2Fc%3D");
    }

    #[test]
    fn default_ports_are_the_same_origin() {
        assert_eq!(origin_of("https://H/x"), origin_of("https://h:443/"));
        assert_ne!(origin_of("https://h/"), origin_of("http://h/"));
    }

    proptest! {
        #[test]
        fn any_location_ends_without_panic(location in ".{0,60}") {
            let _ = resolve("https://h.example/a/b", &location);
        }
    }
}

//! What the gateway says of itself when it starts: its version, addresses, back ends, buckets and
//! keys, by their names. No secret is among them. Pure.

use crate::access::Grant;
use crate::route::Routes;
use crate::{BackendOptions, Options};
use std::net::SocketAddr;

/// Most names of a list in one line.
const NAMES_MAX: usize = 20;

/// The first line: version and addresses.
pub(crate) fn begins(address: SocketAddr, is_tls: bool, admin: Option<SocketAddr>) -> String {
    let (version, scheme) = (env!("CARGO_PKG_VERSION"), if is_tls { "https" } else { "http" });
    let metrics = admin.map_or(String::new(), |admin| format!(", metrics on http://{admin}"));
    format!("penstock {version} serves S3 on {scheme}://{address}{metrics}")
}

/// The others: back ends, buckets and keys.
pub(crate) fn names(options: &Options, routes: &Routes) -> [String; 3] {
    let dynamic = options.backends.iter().find(|backend| backend.is_dynamic);
    let buckets = routes
        .fixed()
        .map(|(name, place)| format!("`{name}` on `{}`", options.backends[place.backend].name));
    let mut buckets = list(buckets);
    if let Some(dynamic) = dynamic {
        let more = format!("every container of `{}`", dynamic.name);
        buckets = if buckets == NONE { more } else { format!("{buckets}, and {more}") };
    }
    let mut keys = list(options.keys.iter().map(|pair| format!("`{}`", pair.access_key)));
    if options.public.iter().any(|grant| !is_empty(grant)) {
        keys += "; unsigned requests are let in";
    }
    [
        format!("back ends: {}", list(options.backends.iter().map(back_end))),
        format!("buckets: {buckets}"),
        format!("keys: {keys}"),
    ]
}

const NONE: &str = "none";

fn is_empty(grant: &Grant) -> bool {
    grant.rights.is_empty() || grant.buckets.is_empty()
}

/// A back end with its scheme: the rest of its URL may be nobody's business.
fn back_end(backend: &BackendOptions) -> String {
    let scheme = backend.url.split(':').next().unwrap_or_default();
    let mark = if backend.is_read_only { ", read only" } else { "" };
    format!("`{}` ({scheme}{mark})", backend.name)
}

/// Names, so many of them.
fn list(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    match names.len().checked_sub(NAMES_MAX) {
        _ if names.is_empty() => NONE.to_string(),
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..NAMES_MAX].join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_end_with_a_count() {
        let names = |count: usize| list((0..count).map(|number| number.to_string()));
        assert_eq!(names(0), "none");
        assert_eq!(names(2), "0, 1");
        assert!(names(20).ends_with(", 19"));
        assert!(names(25).ends_with(", 19 and 5 more"));
    }
}

//! What the settings of a server say that only trying them shows.

use super::judge::{Finding, called, failed};
use crate::Options;
use crate::access_log;
use crate::ahead;
use crate::hosts::Hosts;
use crate::proxies::Proxies;
use crate::sharing::Lists;
use penstock_engine::{cache_directory, check_ca_file, check_cache, check_proxy};
use rustix::process::{Resource, getrlimit};
use std::path::{Path, PathBuf};

/// Descriptors of the process itself: libraries, logs, the runtime's own.
const OWN_DESCRIPTORS: u64 = 64;

/// Everything that [`crate::Gateway::bind`] would refuse, and limits that it would meet later.
pub(super) fn settings(options: &Options) -> Vec<Finding> {
    let serve = &options.serve;
    let is_tls = options.tls_files().is_ok_and(|files| files.is_some());
    let mut findings = Vec::new();
    let mut tried = |name: &str, tried: penstock_base::Result<()>| {
        // What is about two of them is about settings.
        let subject = if name == "settings" { name.to_string() } else { called(name) };
        findings.extend(tried.err().map(|error| failed(&subject, &error)));
    };
    tried("settings", serve.check_together());
    tried("settings", options.settings.check_together());
    tried("acl", Lists::parse(&serve.acl).map(drop));
    tried("domains", Hosts::parse(&serve.domains, is_tls).map(drop));
    tried("trusted_proxies", Proxies::parse(&serve.trusted_proxies).map(drop));
    tried("access_log", access_log::check("access_log", &serve.access_log));
    tried("backend_log", access_log::check("backend_log", &serve.backend_log));
    tried("cache_dir", check_cache(&options.settings));
    tried("ca_file", check_ca_file(&options.settings));
    tried("http_proxy", check_proxy(&options.settings));
    tried("read_ahead_max_bytes", ahead::check(options));
    findings.extend(served_cache(options));
    let limit = getrlimit(Resource::Nofile).maximum;
    let hosts = options.backends.iter().filter(|backend| !backend.is_here()).count() as u64;
    let backends = hosts * options.settings.connections_per_host;
    findings.extend(descriptors(limit, serve.connections_max + backends));
    findings
}

/// A cache on disk within a directory that is served: its files would be objects, which clients
/// list and may remove.
fn served_cache(options: &Options) -> Option<Finding> {
    let cache = resolved(&cache_directory(&options.settings).ok()??);
    let within = options.backends.iter().find(|backend| {
        let served = backend.url.strip_prefix("file://");
        served.is_some_and(|served| cache.starts_with(resolved(Path::new(served))))
    })?;
    let what = format!(
        "{} lies in the directory that back end `{}` serves, so its files may be objects there",
        cache.display(),
        within.name
    );
    Some(Finding::warning(&called("cache_dir"), what, "Name a directory that is not served"))
}

/// A path without links as far as it is there: a cache's directory is made when it is first used.
fn resolved(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let real = path.ancestors().find_map(|it| Some((it, it.canonicalize().ok()?)));
    match real {
        // Nothing is left of a path that is there: joined to that, it would end with a slash.
        Some((above, real)) => match path.strip_prefix(above) {
            Ok(rest) if rest != Path::new("") => real.join(rest),
            _ => real,
        },
        None => path,
    }
}

/// Whether there can be as many connections as the settings allow; `limit` is the hard one, to
/// which a server raises its own.
fn descriptors(limit: Option<u64>, connections: u64) -> Option<Finding> {
    let wanted = OWN_DESCRIPTORS + connections;
    let limit = limit.filter(|limit| *limit < wanted)?;
    Some(Finding::warning(
        "open files",
        format!(
            "at most {limit} may be open, and {} and {} of each back end come to {wanted}",
            called("connections_max"),
            called("connections_per_host")
        ),
        "Raise the hard limit (`ulimit -Hn`, LimitNOFILE= of systemd), or lower these settings",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_descriptors_are_told_and_enough_are_not() {
        let told = |limit| descriptors(limit, 4196).map(|finding| finding.what);
        assert_eq!(told(None), None);
        assert_eq!(told(Some(OWN_DESCRIPTORS + 4196)), None);
        let what = told(Some(1024)).unwrap();
        assert!(what.contains("at most 1024") && what.contains("come to 4260"), "{what}");
    }
}

//! What the settings of a server say that only trying them shows.

use super::judge::{Finding, failed};
use crate::access_log;
use crate::hosts::Hosts;
use crate::proxies::Proxies;
use crate::sharing::Lists;
use crate::telemetry::Telemetry;
use crate::{Options, open};
use penstock_base::Settings;
use penstock_engine::CACHE_IN_USE;
use rustix::process::{Resource, getrlimit};
use std::sync::Arc;

/// Descriptors of the process itself: libraries, logs, the runtime's own.
const OWN_DESCRIPTORS: u64 = 64;

/// Everything that [`crate::Gateway::bind`] would refuse, and limits that it would meet later.
pub(super) fn settings(options: &Options, telemetry: &Arc<Telemetry>) -> Vec<Finding> {
    let serve = &options.serve;
    let is_tls = options.tls_files().is_ok_and(|files| files.is_some());
    let mut findings = Vec::new();
    let mut tried = |subject: &str, tried: penstock_base::Result<()>| {
        findings.extend(tried.err().map(|error| failed(subject, &error)));
    };
    tried("acl", Lists::parse(&serve.acl).map(drop));
    tried("domains", Hosts::parse(&serve.domains, is_tls).map(drop));
    tried("trusted_proxies", Proxies::parse(&serve.trusted_proxies).map(drop));
    tried("access_log", access_log::check("access_log", &serve.access_log));
    tried("backend_log", access_log::check("backend_log", &serve.backend_log));
    findings.extend(cache(options, telemetry));
    let limit = getrlimit(Resource::Nofile).maximum;
    findings.extend(descriptors(limit, &options.settings, serve.connections_max));
    findings
}

fn cache(options: &Options, telemetry: &Arc<Telemetry>) -> Option<Finding> {
    let subject = "cache_dir";
    if options.settings.cache_dir.is_empty() {
        return None;
    }
    let alone = Options { backends: Vec::new(), ..options.clone() };
    let opened = open(&alone, telemetry.clone(), None);
    match opened.and_then(|opened| opened.engine.open_cache()) {
        Ok(()) => Some(Finding::good(subject, format!("{} is usable", options.settings.cache_dir))),
        Err(error) if error.service_code() == Some(CACHE_IN_USE) => Some(Finding::warning(
            subject,
            format!("{} is in use", options.settings.cache_dir),
            "Nothing, if that is the gateway itself; else name another directory",
        )),
        Err(error) => Some(failed(subject, &error)),
    }
}

/// Whether there can be as many connections as the settings allow; `limit` is the hard one, to
/// which a server raises its own.
fn descriptors(limit: Option<u64>, settings: &Settings, connections_max: u64) -> Option<Finding> {
    let wanted = OWN_DESCRIPTORS + connections_max + settings.connections_per_host;
    let limit = limit.filter(|limit| *limit < wanted)?;
    Some(Finding::warning(
        "open files",
        format!(
            "at most {limit} may be open, and connections_max and connections_per_host allow \
             {wanted}"
        ),
        "Raise the hard limit (`ulimit -Hn`, LimitNOFILE= of systemd), or lower these settings",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_descriptors_are_told_and_enough_are_not() {
        let settings = Settings { connections_per_host: 100, ..Settings::default() };
        let told = |limit| descriptors(limit, &settings, 4096).map(|finding| finding.what);
        assert_eq!(told(None), None);
        assert_eq!(told(Some(OWN_DESCRIPTORS + 4196)), None);
        let what = told(Some(1024)).unwrap();
        assert!(what.contains("at most 1024") && what.contains("allow 4260"), "{what}");
    }
}

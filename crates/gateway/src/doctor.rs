//! `penstock doctor`: tries a configuration against its back ends and says what is wrong.
//!
//! Looks at what serving needs: keys, settings, TLS files and until when and for which names their
//! certificates hold, addresses, names that mean nothing or one place twice, and for each back end
//! and bucket that it is there, may be listed, written, read and removed from, and that the clocks
//! agree. It writes one small object into each writable bucket that the configuration names, into a
//! container that it makes where containers are buckets, and beside the notes of buckets, and
//! removes them, the very versions. Where a default retention would keep them it writes nothing. It
//! repairs nothing.

mod certificates;
mod dynamic;
mod judge;
mod names;
mod settings;

use crate::backend::passed_over;
use crate::hosts::Hosts;
use crate::probe::BackEnds;
use crate::ready::{Probe as _, is_answer};
use crate::route::{BackendOptions, Place, Routes};
use crate::telemetry::Telemetry;
use crate::{Options, check_keys, open, server, tls};
use bytes::Bytes;
pub(crate) use certificates::holds_until;
pub(crate) use judge::called;
pub use judge::{Finding, Level};
use judge::{clock, failed, keys, notes, transport};
use penstock_base::{Error, Kind, Result};
use penstock_store::{
    Account, GetRequest, GetResponse, ListRequest, Payload, PutOptions, PutResult, StreamingStore,
    Versioning, WriteCondition,
};
use std::sync::Arc;
use std::time::SystemTime;

/// What the object of the trial holds.
const TRIAL: &[u8] = b"penstock doctor writes this and removes it again\n";

/// Looks at everything that `options` say, in the order of the request's way. `now` tells the time.
pub async fn examine(options: &Options, now: impl Fn() -> SystemTime) -> Vec<Finding> {
    let mut findings = keys(options);
    if let Err(error) = check_keys(options) {
        findings.push(failed("keys", &error));
    }
    findings.extend(tls_files(options, now()));
    findings.extend(transport(&options.serve));
    findings.extend(notes(&options.serve));
    findings.extend(settings::settings(options));
    findings.extend(addresses(options).await);
    let routes = match Routes::of(options) {
        Ok(routes) => routes,
        Err(error) => {
            findings.push(failed("buckets", &error));
            return findings;
        }
    };
    findings.extend(names::patterns(options, &routes));
    findings.extend(names::back_doors(options, &routes));
    let telemetry = Arc::new(Telemetry::new(now()));
    for index in 0..options.backends.len() {
        findings.extend(back_end(options, &routes, index, &telemetry, &now).await);
    }
    findings
}

fn tls_files(options: &Options, now: SystemTime) -> Vec<Finding> {
    let checked = options.tls_files().and_then(|files| files.map(|it| tls::check(&it)).transpose());
    match checked {
        Ok(None) => Vec::new(),
        Ok(Some(chain)) => {
            let mut findings = vec![Finding::good("TLS", "certificate and key fit together")];
            // What is wrong with the domains themselves is told with the settings.
            let hosts = Hosts::parse(&options.serve.domains, true).unwrap_or_default();
            findings.extend(certificates::certificates(&chain, hosts.domains(), now));
            findings
        }
        Err(error) => vec![failed("TLS", &error)],
    }
}

/// Whether the addresses can be listened on.
async fn addresses(options: &Options) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (s3, admin) = (&options.serve.listen, &options.serve.admin_listen);
    for (name, listen) in [("listen", s3), ("admin_listen", admin)] {
        if listen.is_empty() {
            continue;
        }
        let flag = &called(name);
        match server::bind(flag, listen).await {
            Ok(_) => findings.push(Finding::good(flag, format!("{listen} is free"))),
            Err(error) if error.kind() == Kind::Conflict => findings.push(Finding::warning(
                flag,
                format!("{listen} is in use"),
                "Nothing, if that is the gateway itself; else choose another port",
            )),
            Err(error) => findings.push(failed(flag, &error)),
        }
    }
    findings
}

/// Options of back ends that name files.
const FILES: &[&str] =
    &["ca_cert_file", "service_account_path", "client_certificate_path", "web_identity_token_file"];

/// Files that a back end names and that cannot be read.
fn files(subject: &str, backend: &BackendOptions) -> Vec<Finding> {
    let named = backend.options.iter().filter(|(name, _)| FILES.contains(&name.as_str()));
    let unreadable = named.filter_map(|(name, path)| {
        let path = path.reveal();
        let cause = std::fs::File::open(path).err()?;
        let error = Error::new(Kind::Invalid, format!("`{name}`: {path} cannot be read: {cause}"));
        Some(failed(subject, &error.with_hint("Name a file that this user may read")))
    });
    unreadable.collect()
}

async fn back_end(
    options: &Options,
    routes: &Routes,
    index: usize,
    telemetry: &Arc<Telemetry>,
    now: &impl Fn() -> SystemTime,
) -> Vec<Finding> {
    let backend = &options.backends[index];
    let subject = format!("back end `{}`", backend.name);
    let unreadable = files(&subject, backend);
    if !unreadable.is_empty() {
        return unreadable;
    }
    let alone = Options { backends: vec![backend.clone()], ..options.clone() };
    let account = match open(&alone, telemetry.clone(), None) {
        Ok(mut opened) => opened.back_ends.remove(0).account,
        Err(error) => return vec![failed(&subject, &error)],
    };
    let accounts = [account.clone()];
    // The routes count all back ends, and the probe only this one.
    let own = Routes::default();
    let probe = BackEnds::new(&alone.backends, &own, &accounts);
    match probe.probe(0).await {
        // No such container, or not for this key: it answered, unless it was never asked.
        Err(error)
            if !matches!(error.kind(), Kind::NotFound | Kind::Denied)
                || !is_answer(&error, backend.is_here()) =>
        {
            return vec![failed(&subject, &error)];
        }
        _ => {}
    }
    let mut findings = vec![Finding::good(&subject, "answers")];
    findings.extend(passed_over(backend).into_iter().map(|name| {
        let what = format!("takes no `{name}`: nothing looks at it");
        Finding::warning(&subject, what, "Remove it; the reference tells which store takes what")
    }));
    if backend.is_dynamic {
        let (account, is_read_only) = (&account, backend.is_read_only);
        let named = routes.fixed().filter(|row| row.1.backend == index);
        let named: Vec<&str> = named.map(|row| row.1.container.as_str()).collect();
        let found = dynamic::containers(&subject, account, &named, is_read_only, now).await;
        findings.extend(found);
        if findings.iter().any(|finding| finding.level == Level::Problem) {
            return findings;
        }
    }
    let is_written = |place: &Place| place.backend == index && !place.is_read_only;
    let is_read_only = (backend.is_read_only || !backend.is_dynamic)
        && !routes.fixed().any(|row| is_written(row.1));
    let container = &options.serve.notes_bucket;
    if !container.is_empty() {
        findings.extend(dynamic::notes(&subject, &account, container, is_read_only, now).await);
    }
    for (name, place) in routes.fixed().filter(|row| row.1.backend == index) {
        findings.extend(bucket(name, place, &account, now).await);
    }
    findings
}

/// One bucket: there, listed, written, read, removed.
async fn bucket(
    name: &str,
    place: &Place,
    account: &Arc<dyn Account>,
    now: &impl Fn() -> SystemTime,
) -> Vec<Finding> {
    let subject = format!("bucket `{name}`");
    if let Err(error) = account.check(&place.container).await {
        return vec![failed(&subject, &error)];
    }
    let store = match account.open(&place.container).await {
        Ok(store) => store,
        Err(error) => return vec![failed(&subject, &error)],
    };
    let prefix = place.prefix.clone();
    let request = ListRequest { prefix, max_keys: Some(1), ..ListRequest::default() };
    let mut findings = vec![match store.list(request).await {
        Ok(_) => Finding::good(&subject, "may be listed"),
        Err(error) => failed(&subject, &error),
    }];
    if place.is_read_only {
        return findings;
    }
    if let Some(retained) = retained(&subject, &store).await {
        findings.push(retained);
        return findings;
    }
    match trial(&store, &place.prefix, now).await {
        Ok(stored) => {
            findings.push(Finding::good(&subject, "may be written, read and removed from"));
            findings.extend(stored.and_then(|stored| clock(&subject, stored.0, stored.1)));
        }
        Err(error) => findings.push(failed(&subject, &error)),
    }
    findings
}

/// Why nothing is written where it could not be removed again: a rule of the bucket retains every
/// version, or may do so.
async fn retained(subject: &str, store: &Arc<dyn StreamingStore>) -> Option<Finding> {
    match store.retains_versions().await {
        Ok(false) => None,
        Ok(true) => {
            let what = "writing was not tried: the bucket's default retention would keep what is \
                        written";
            Some(Finding::good(subject, what))
        }
        // There is no rule where no versions are kept.
        Err(error) if error.kind() == Kind::Denied => match store.versioning().await {
            Ok(Versioning::Enabled) => {
                let what = "writing was not tried: a default retention may keep what is written, \
                            and the identity may not know";
                let cure = "Give the identity s3:GetBucketObjectLockConfiguration";
                Some(Finding::warning(subject, what, cure))
            }
            _ => None,
        },
        Err(error) => Some(failed(subject, &error)),
    }
}

/// Writes, reads and removes an object. Gives the back end's time of it, and ours.
async fn trial(
    store: &Arc<dyn StreamingStore>,
    prefix: &str,
    now: &impl Fn() -> SystemTime,
) -> Result<Option<(SystemTime, SystemTime)>> {
    let since = now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let key = format!("{prefix}penstock-doctor-{}-{}", std::process::id(), since.as_nanos());
    // Nobody has this key: where no write can be tied to what is there, nothing is lost.
    let condition = match store.capabilities().conditional_put {
        true => WriteCondition::IfAbsent,
        false => WriteCondition::None,
    };
    let options = PutOptions { condition, ..PutOptions::default() };
    let placed = store.put(&key, Payload::from(Bytes::from_static(TRIAL)), &options).await?;
    let read = read_back(store, &key, now).await;
    // Removed whatever became of the reading; that it could not be is told before anything else.
    take_back(store, &key, &placed).await?;
    read
}

/// Removes what was placed: where versions are kept, that one, which leaves no delete marker.
async fn take_back(store: &Arc<dyn StreamingStore>, key: &str, placed: &PutResult) -> Result<()> {
    match placed.version.as_deref().filter(|_| store.has_versions()) {
        Some(version) => match store.remove(key, Some(version), None).await {
            // On Azure that is a right of its own. Where no markers are made, a plain removal does
            // what the gateway needs, and leaves a version that nobody meets by its key.
            Err(error) if error.kind() == Kind::Denied && !store.has_markers() => {
                store.delete(key, None).await
            }
            removed => removed.map(drop),
        },
        None => store.delete(key, None).await,
    }
}

async fn read_back(
    store: &Arc<dyn StreamingStore>,
    key: &str,
    now: &impl Fn() -> SystemTime,
) -> Result<Option<(SystemTime, SystemTime)>> {
    let request = GetRequest::default();
    let mut answer = store.get(key, request).await?;
    if read(&mut answer, TRIAL.len() + 1).await? != TRIAL {
        return Err(Error::new(Kind::Corrupt, "what was read is not what was written"));
    }
    Ok(answer.meta.modified.map(|modified| (modified, now())))
}

/// The first `max` bytes of an object.
async fn read(answer: &mut GetResponse, max: usize) -> Result<Vec<u8>> {
    let mut found = vec![0; max];
    let mut filled = 0;
    while filled < found.len() {
        match answer.body.read(&mut found[filled..]).await? {
            0 => break,
            count => filled += count,
        }
    }
    found.truncate(filled);
    Ok(found)
}

//! What the names of a configuration say beside each other: patterns that stand for no bucket, and
//! buckets that are read-only under one name and not under another. Pure.

use super::judge::Finding;
use crate::Options;
use crate::access::{Grant, Pattern};
use crate::route::{BackendOptions, Place, Routes, is_bucket_name};
use penstock_base::nearest::nearest;

/// Options that say where a back end is; the others say who asks, and how.
const WHERE: &[&str] = &["endpoint", "account_name", "connection_string"];

/// Patterns of keys, of what is public and of rules for pages that stand for no bucket.
pub(super) fn patterns(options: &Options, routes: &Routes) -> Vec<Finding> {
    let names: Vec<&str> = routes.fixed_names().collect();
    let is_dynamic = routes.dynamic_backend().is_some();
    let of_grants = |grants: &[Grant]| -> Vec<Pattern> {
        grants.iter().flat_map(|grant| grant.buckets.clone()).collect()
    };
    let keys = options.keys.iter();
    let mut places: Vec<(String, Vec<Pattern>)> =
        keys.map(|key| (format!("key `{}`", key.access_key), of_grants(&key.grants))).collect();
    places.push(("public".to_string(), of_grants(&options.public)));
    let rules = options.cors.iter().flat_map(|rule| rule.buckets.clone());
    places.push(("cors".to_string(), rules.collect()));
    let mut findings = Vec::new();
    for (subject, patterns) in places {
        let idle = patterns.iter().filter(|pattern| is_idle(pattern, &names, is_dynamic));
        findings.extend(idle.map(|pattern| idle_finding(&subject, pattern, &names)));
    }
    findings
}

/// Whether a pattern stands for no bucket that there can be. Where a back end is dynamic, that is
/// one that no bucket's name has the form of; whether there is such a container is not asked, since
/// it may be made tomorrow.
fn is_idle(pattern: &Pattern, names: &[&str], is_dynamic: bool) -> bool {
    if names.iter().any(|name| pattern.matches(name)) {
        return false;
    }
    let text = pattern.text();
    let may_stand_in_a_name = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'*')
    };
    let may_be_a_name = match text.contains('*') {
        true => text.bytes().all(may_stand_in_a_name),
        false => is_bucket_name(text),
    };
    !(is_dynamic && may_be_a_name)
}

fn idle_finding(subject: &str, pattern: &Pattern, names: &[&str]) -> Finding {
    let text = pattern.text();
    let cure = match nearest(text, names.iter().copied()) {
        Some(near) => format!("Did you mean `{near}`? Else take it away, or add the [[bucket]]"),
        None => "Correct it, take it away, or add the [[bucket]] or an alias of it".to_string(),
    };
    Finding::warning(subject, format!("`{text}` in `buckets` stands for no bucket"), &cure)
}

/// Read-only buckets in which something may be written by another name.
pub(super) fn back_doors(options: &Options, routes: &Routes) -> Vec<Finding> {
    let mut findings = Vec::new();
    for bucket in &options.buckets {
        let Some(place) = routes.place(&bucket.name).filter(|place| place.is_read_only) else {
            continue;
        };
        let named = options.buckets.iter().filter_map(|other| {
            let there = routes.place(&other.name)?;
            Some((other.name.as_str(), there))
        });
        // As a container of the dynamic back end, unless a bucket has its name or the gateway
        // keeps it for itself.
        let by_container = routes
            .place(&place.container)
            .filter(|it| !it.is_fixed && it.container != options.serve.notes_bucket)
            .map(|it| (place.container.as_str(), it));
        let doors = named.chain(by_container).filter(|(_, other)| {
            !other.is_read_only && are_beside(&options.backends, &place, other)
        });
        let subject = format!("bucket `{}`", bucket.name);
        findings.extend(doors.map(|(name, other)| door(&subject, &place, name, &other)));
    }
    findings
}

fn door(subject: &str, place: &Place, name: &str, other: &Place) -> Finding {
    let what = match other.prefix.len() > place.prefix.len() {
        true => format!("`{}` in it", &other.prefix[place.prefix.len()..]),
        false => "what is in it".to_string(),
    };
    let what = format!("is read-only, and {what} may be written as bucket `{name}`");
    let cure = match other.is_fixed {
        true => "Nothing, if that is meant; else set read_only there too",
        false => {
            "Nothing, if that is meant; else set read_only on the back end, or name its buckets \
             as [[bucket]] and take `dynamic` away"
        }
    };
    Finding::warning(subject, what, cure)
}

/// Whether one place has objects of the other.
fn are_beside(backends: &[BackendOptions], one: &Place, other: &Place) -> bool {
    let are_same = match (backends.get(one.backend), backends.get(other.backend)) {
        (Some(a), Some(b)) => one.backend == other.backend || is_same_service(a, b),
        _ => false,
    };
    let (a, b) = (&one.prefix, &other.prefix);
    are_same && one.container == other.container && (a.starts_with(b) || b.starts_with(a))
}

/// Whether two sections mean one service, as far as they say. Two connection strings may mean the
/// same with other keys; that is not seen.
fn is_same_service(a: &BackendOptions, b: &BackendOptions) -> bool {
    let told = |backend: &BackendOptions, name: &str| {
        let found = backend.options.iter().find(|pair| pair.0 == name);
        found.map(|pair| pair.1.reveal().to_string())
    };
    let url = |backend: &BackendOptions| backend.url.trim_end_matches('/').to_string();
    url(a) == url(b) && WHERE.iter().all(|name| told(a, name) == told(b, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeyPair;
    use crate::route::BucketOptions;
    use penstock_base::settings::ServeSettings;
    use penstock_base::{Secret, Settings};

    fn options(backends: &[BackendOptions], buckets: &[BucketOptions]) -> Options {
        Options {
            backends: backends.to_vec(),
            buckets: buckets.to_vec(),
            settings: Settings::default(),
            serve: ServeSettings::default(),
            keys: Vec::new(),
            public: Vec::new(),
            cors: Vec::new(),
        }
    }

    fn backend(name: &str, is_dynamic: bool) -> BackendOptions {
        let (name, url) = (name.to_string(), "az://".to_string());
        BackendOptions { name, url, is_dynamic, ..Default::default() }
    }

    fn bucket(name: &str, container: &str, prefix: &str) -> BucketOptions {
        BucketOptions {
            name: name.into(),
            backend: "one".into(),
            container: Some(container.into()),
            prefix: prefix.into(),
            ..Default::default()
        }
    }

    fn read_only(bucket: BucketOptions) -> BucketOptions {
        BucketOptions { is_read_only: true, ..bucket }
    }

    fn doors(options: &Options) -> Vec<String> {
        let routes = Routes::of(options).unwrap();
        let found = back_doors(options, &routes);
        found.into_iter().map(|it| format!("{} {}", it.subject, it.what)).collect()
    }

    #[test]
    fn patterns_that_stand_for_nothing_are_told_with_the_nearest_name() {
        let lake = BucketOptions { aliases: vec!["old".into()], ..bucket("lake", "raw", "") };
        let mut options = options(&[backend("one", false)], &[lake]);
        let grant = |names: &[&str]| Grant {
            buckets: names.iter().map(|name| Pattern::new(*name)).collect(),
            ..Grant::everything()
        };
        options.keys = ["A", "B"].map(|name| KeyPair::new(name, Secret::new("s"))).to_vec();
        options.keys[0].grants = vec![grant(&["lake", "old"]), grant(&["lakes", "team-*"])];
        options.public = vec![grant(&["l*"])];
        let found = |options: &Options| {
            let findings = patterns(options, &Routes::of(options).unwrap());
            let told = |it: &Finding| format!("{}: {} -> {}", it.subject, it.what, it.cure);
            findings.iter().map(told).collect::<Vec<_>>()
        };
        let told = found(&options);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("key `A`: `lakes` in `buckets`"), "{told:?}");
        assert!(told[0].contains("`lake`?") && told[1].contains("`team-*`"), "{told:?}");
        // Where containers are buckets, either may be one tomorrow.
        options.backends[0].is_dynamic = true;
        assert!(found(&options).is_empty());
        options.keys[0].grants = vec![grant(&["Lake", "team_*", "healthz", "*"])];
        assert_eq!(found(&options).len(), 3, "{:?}", found(&options));
    }

    #[test]
    fn a_read_only_bucket_is_told_that_another_name_writes_to() {
        let one = || backend("one", false);
        let events = || read_only(bucket("events", "raw", "events/"));
        let said = |buckets: &[BucketOptions]| doors(&options(&[one()], buckets));
        assert_eq!(
            said(&[events(), bucket("all", "raw", "")]),
            ["bucket `events` is read-only, and what is in it may be written as bucket `all`"]
        );
        assert_eq!(
            said(&[events(), bucket("new", "raw", "events/2026/")]),
            ["bucket `events` is read-only, and `2026/` in it may be written as bucket `new`"]
        );
        for beside in [
            bucket("else", "raw", "other/"),
            bucket("else", "cooked", ""),
            read_only(bucket("else", "raw", "")),
        ] {
            assert!(said(&[events(), beside]).is_empty());
        }
    }

    #[test]
    fn the_container_itself_is_a_name_where_the_back_end_is_dynamic() {
        let events = || read_only(bucket("events", "raw", "events/"));
        let dynamic = || backend("one", true);
        let told = doors(&options(&[dynamic()], &[events()]));
        assert!(told.len() == 1 && told[0].contains("as bucket `raw`"), "{told:?}");
        // That name is a bucket's already.
        let raw = read_only(bucket("raw", "raw", ""));
        assert!(doors(&options(&[dynamic()], &[events(), raw])).is_empty());
        let closed = BackendOptions { is_read_only: true, ..dynamic() };
        assert!(doors(&options(&[closed], &[events()])).is_empty());
    }

    #[test]
    fn two_sections_may_mean_one_service() {
        let at = |name: &str, account: &str, is_read_only| {
            let account = ("account_name".to_string(), Secret::new(account));
            BackendOptions { options: vec![account], is_read_only, ..backend(name, false) }
        };
        let shown = bucket("shown", "raw", "");
        let written = BucketOptions { backend: "two".into(), ..bucket("written", "raw", "") };
        let buckets = [shown, written];
        let both =
            |account: &str| options(&[at("one", "a", true), at("two", account, false)], &buckets);
        assert_eq!(doors(&both("a")).len(), 1);
        assert!(doors(&both("b")).is_empty());
    }
}

//! What the doctor finds, and how it is judged. Pure.

use crate::Options;
use crate::access::{Grant, Right};
use crate::config::is_subject;
use crate::keys::KeyPair;
use penstock_base::door::{Words, setting, spoken};
use penstock_base::settings::ServeSettings;
use penstock_base::{Error, Kind, redact};
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

/// Difference of clocks at which signatures fail: 15 minutes on S3 and Azure.
const SKEW_REFUSED: Duration = Duration::from_secs(15 * 60);
/// Difference that is told, since it may be on its way there; times of objects are whole seconds.
const SKEW_TOLD: Duration = Duration::from_secs(30);
/// What some editors begin a file with.
const BYTE_ORDER_MARK: char = '\u{feff}';
/// Secrets shorter than this can be guessed.
const SECRET_LENGTH_MIN: usize = 16;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As it should be.
    Good,
    /// Works, and is worth a look.
    Warning,
    /// Requests will fail.
    Problem,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What was looked at.
    pub subject: String,
    /// What was found, in a sentence without a period.
    pub what: String,
    /// What to do; empty where nothing is.
    pub cure: String,
    /// The kind of a problem, for the exit code.
    pub kind: Option<Kind>,
}

/// What a setting is called where this process was started from.
pub(crate) fn called(name: &str) -> String {
    match spoken() {
        // No statement starts a server.
        Words::Sql => name.to_string(),
        Words::Flags | Words::Config => setting(name),
    }
}

impl Finding {
    /// As it should be.
    pub fn good(subject: &str, what: impl Into<String>) -> Self {
        // A value of the configuration may be a URL with a password in it.
        let what = redact::text(&what.into()).into_owned();
        debug_assert!(is_subject(subject), "{subject} is in no row of the subjects");
        let subject = subject.to_string();
        Finding { level: Level::Good, subject, what, cure: String::new(), kind: None }
    }

    /// Worth a look.
    pub fn warning(subject: &str, what: impl Into<String>, cure: &str) -> Self {
        let finding = Finding::good(subject, what);
        let cure = redact::text(cure).into_owned();
        Finding { level: Level::Warning, cure, ..finding }
    }
}

/// What failed, in its own words, and the cure: its hint, or the advice of its kind.
pub(super) fn failed(subject: &str, error: &Error) -> Finding {
    let advice = Kind::ALL.iter().find(|row| row.0 == error.kind()).map_or("", |row| row.2);
    let cure = error.hint().unwrap_or(advice);
    let finding = Finding::warning(subject, error.without_hint(), cure);
    Finding { level: Level::Problem, kind: Some(error.kind()), ..finding }
}

/// The keys, as far as they can be judged without trying them.
pub(super) fn keys(options: &Options) -> Vec<Finding> {
    let mut findings: Vec<Finding> = options.keys.iter().map(key).collect();
    let may = |grant: &Grant, right| grant.rights.has(right);
    let writes = |grant: &Grant| {
        [Right::Write, Right::Delete, Right::Admin].into_iter().any(|right| may(grant, right))
    };
    let anonymous = called("anonymous");
    if options.public.iter().any(writes) {
        findings.push(Finding::warning(
            "public",
            "everyone who reaches the port may change or remove objects",
            &format!("Take write, delete and admin from [[public]], or {anonymous} away"),
        ));
    }
    findings.extend(public_rate(options));
    findings
}

/// How often everyone may ask, where everyone may ask anything. Lists of access control may let
/// them in too, but for those that are off.
fn public_rate(options: &Options) -> Option<Finding> {
    if options.public.is_empty() && options.serve.acl == "off" {
        return None;
    }
    let rate = called("public_requests_per_second");
    Some(match options.serve.public_requests_per_second {
        0 => Finding::warning(
            "public",
            "unsigned requests may come as often as they like",
            &format!("Set {rate}, unless what stands before the gateway limits them"),
        ),
        most => Finding::good("public", format!("at most {most} unsigned requests per second")),
    })
}

/// Where lists and policies count and their place is taken away, buckets have neither, and where
/// keys are owners none can be made.
pub(super) fn notes(serve: &ServeSettings) -> Option<Finding> {
    let contradict = serve.acl != "off" && serve.notes_bucket.is_empty();
    contradict.then(|| {
        let acl = &serve.acl;
        let made = if acl == "owners" { ", and no bucket can be made" } else { "" };
        let (lists, bucket) = (called("acl"), called("notes_bucket"));
        Finding::warning(
            &lists,
            format!("`{acl}` needs {bucket}, which is empty: buckets have no lists{made}"),
            &format!("Name a container as {bucket} (penstock-notes), or take `{lists}` away"),
        )
    })
}

fn key(pair: &KeyPair) -> Finding {
    let subject = format!("key `{}`", pair.access_key);
    if pair.grants.iter().all(|grant| grant.rights.is_empty() || grant.buckets.is_empty()) {
        let what = "may do nothing anywhere";
        return Finding::warning(&subject, what, "Name its `buckets` and `rights`");
    }
    if pair.access_key.contains(['/', ',']) {
        let what = "cannot sign by version 4: `/` and `,` end its name in a signature";
        let finding = Finding::warning(&subject, what, "Give it a name without them");
        return Finding { level: Level::Problem, kind: Some(Kind::Invalid), ..finding };
    }
    let secret = pair.secret_key.reveal();
    if secret != secret.trim_matches(|it: char| it.is_whitespace() || it == BYTE_ORDER_MARK) {
        let what = "has a secret with white space, or a byte order mark, at its ends";
        let cure = "Take it away where the secret is kept, unless clients have it too: of a \
                    variable the end of a line is not taken away";
        return Finding::warning(&subject, what, cure);
    }
    if secret.len() < SECRET_LENGTH_MIN {
        let what = "has a short secret, which can be guessed";
        return Finding::warning(&subject, what, "Make one: openssl rand -base64 30");
    }
    Finding::good(&subject, "is well formed")
}

/// What travels in the clear.
pub(super) fn transport(serve: &ServeSettings) -> Option<Finding> {
    let is_local = |listen: &str| {
        let address = listen.parse::<SocketAddr>();
        address.map_or(listen.starts_with("localhost:"), |address| address.ip().is_loopback())
    };
    let is_plain = serve.tls_cert_file.is_empty() && !is_local(&serve.listen);
    is_plain.then(|| {
        let files = [called("tls_cert_file"), called("tls_key_file")].join(" and ");
        Finding::warning(
            &called("listen"),
            format!("{} is open to other machines without TLS", serve.listen),
            &format!("Give {files}, unless a proxy before it speaks TLS"),
        )
    })
}

/// Compares the back end's time of an object with ours.
pub(super) fn clock(subject: &str, theirs: SystemTime, ours: SystemTime) -> Option<Finding> {
    let (skew, which) = match ours.duration_since(theirs) {
        Ok(skew) => (skew, "ahead of"),
        Err(error) => (error.duration(), "behind"),
    };
    if skew < SKEW_TOLD {
        return None;
    }
    let what = format!("this machine's clock is {} s {which} the back end's", skew.as_secs());
    let cure = "Set the clock: signatures fail at 15 minutes (chronyc makestep, or your NTP)";
    let finding = Finding::warning(subject, what, cure);
    let level = if skew < SKEW_REFUSED { Level::Warning } else { Level::Problem };
    Some(Finding { level, kind: Some(Kind::Denied), ..finding })
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_base::{Secret, Settings};

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn clocks_are_judged_in_both_directions() {
        assert_eq!(clock("back end `b`", at(1000), at(1010)), None);
        let ahead = clock("back end `b`", at(1000), at(1100)).unwrap();
        assert_eq!((ahead.level, ahead.what.contains("100 s ahead of")), (Level::Warning, true));
        let behind = clock("back end `b`", at(5000), at(1000)).unwrap();
        assert_eq!((behind.level, behind.what.contains("4000 s behind")), (Level::Problem, true));
    }

    #[test]
    fn a_problem_has_a_cure_and_its_words_stand_once() {
        let error = Error::new(Kind::Denied, "the key is wrong").with_hint("Set account_key");
        let finding = failed("back end `b`", &error);
        assert_eq!(
            (finding.what.as_str(), finding.cure.as_str()),
            ("the key is wrong", "Set account_key")
        );
        let asked = Error::new(Kind::Invalid, "was it cut?").with_hint("Paste it again");
        assert_eq!(failed("back end `b`", &asked).what, "was it cut?");
        let plain = failed("back end `b`", &Error::new(Kind::NotFound, "gone"));
        assert!(!plain.cure.is_empty());
    }

    #[test]
    fn who_lets_everyone_in_is_asked_for_a_rate() {
        let found = |public: Vec<Grant>, acl: &str, public_requests_per_second| {
            let acl = acl.to_string();
            let serve = ServeSettings { acl, public_requests_per_second, ..Default::default() };
            let options = Options {
                backends: Vec::new(),
                buckets: Vec::new(),
                keys: Vec::new(),
                cors: Vec::new(),
                settings: Settings::default(),
                serve,
                public,
            };
            public_rate(&options).map(|finding| finding.level)
        };
        let everyone = || vec![Grant::everything()];
        assert_eq!(found(Vec::new(), "off", 0), None);
        assert_eq!(found(everyone(), "off", 0), Some(Level::Warning));
        assert_eq!(found(Vec::new(), "public", 0), Some(Level::Warning));
        assert_eq!(found(everyone(), "off", 9), Some(Level::Good));
    }

    #[test]
    fn lists_without_a_place_for_them_are_told() {
        let found = |acl: &str, notes_bucket: &str| {
            let (acl, notes_bucket) = (acl.to_string(), notes_bucket.to_string());
            notes(&ServeSettings { acl, notes_bucket, ..ServeSettings::default() })
        };
        assert!(found("owners", "").unwrap().what.ends_with("no bucket can be made"));
        assert!(found("public", "").unwrap().what.ends_with("have no lists"));
        assert_eq!((found("off", ""), found("owners", "kept")), (None, None));
    }

    #[test]
    fn keys_and_plain_text_are_judged_without_telling_secrets() {
        let weak = key(&KeyPair::new("A", Secret::new("hunter2")));
        assert_eq!(weak.level, Level::Warning);
        assert!(!format!("{weak:?}").contains("hunter2"));
        assert_eq!(key(&KeyPair::new("A", Secret::new("x".repeat(20)))).level, Level::Good);
        for (before, after) in [("\u{feff}", ""), (" ", ""), ("", "\n")] {
            let odd = format!("{before}{}{after}", "x".repeat(20));
            let odd = key(&KeyPair::new("A", Secret::new(odd)));
            assert!(odd.level == Level::Warning && odd.what.contains("white space"), "{odd:?}");
        }
        for name in ["a/b", "a,b"] {
            let odd = key(&KeyPair::new(name, Secret::new("x".repeat(20))));
            assert!(odd.level == Level::Problem && odd.what.contains("version 4"), "{odd:?}");
        }
        let serve = |listen: &str, cert: &str| ServeSettings {
            listen: listen.to_string(),
            tls_cert_file: cert.to_string(),
            ..ServeSettings::default()
        };
        assert!(transport(&serve("0.0.0.0:9000", "")).is_some());
        assert!(transport(&serve("0.0.0.0:9000", "cert.pem")).is_none());
        assert!(transport(&serve("127.0.0.1:9000", "")).is_none());
    }
}

//! What certificates say of themselves: from when until when they hold, and for which names. Pure.
//!
//! Who signed them is for their clients to judge, which may know an authority of their own.

use super::judge::{Finding, Level};
use jiff::Timestamp;
use penstock_base::Kind;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error as TlsError, RootCertStore};
use std::time::{Duration, SystemTime};

const SUBJECT: &str = "TLS";
/// Before its end by this, a certificate that renews itself has been renewed: that is done a month
/// before with those that hold for three, and two weeks are left to find out why it was not.
const RENEWAL_LATE: Duration = Duration::from_secs(14 * 24 * 60 * 60);
/// A label that stands for every bucket before a domain: no certificate has it for its own sake.
const ANY_BUCKET: &str = "penstock-doctor";

/// The end of the year 9999, after which no certificate holds.
const FAR: Duration = Duration::from_secs(253_402_300_800);

/// What the times of a certificate say now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Validity {
    /// Not for a while yet.
    From(UnixTime),
    /// For long enough.
    Now,
    /// Not for much longer.
    Until(UnixTime),
    /// No longer.
    Over(UnixTime),
    /// Never: it ends before it begins.
    Never,
}

/// Looks at a chain whose first certificate is the gateway's own, beside its `domains`.
pub(super) fn certificates(
    chain: &[CertificateDer<'_>],
    domains: &[String],
    now: SystemTime,
) -> Vec<Finding> {
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut findings = Vec::new();
    for (at, der) in chain.iter().enumerate() {
        let told = match ParsedCertificate::try_from(der) {
            Ok(certificate) => {
                findings.extend(names(&certificate, domains).filter(|_| at == 0));
                findings.extend(authority(&certificate, now).filter(|_| at == 0));
                times(at, validity(&certificate, now), now)
            }
            Err(error) => {
                let what = format!("{} cannot be read: {error}", whose(at));
                Some(Finding::warning(SUBJECT, what, "Have it made anew, in X.509 version 3"))
            }
        };
        findings.extend(told.map(|finding| match at {
            0 => finding,
            // Not every client needs it: that is no reason not to serve.
            _ => Finding { level: Level::Warning, kind: None, ..finding },
        }));
    }
    findings
}

/// What a certificate at this place of the chain is called.
fn whose(at: usize) -> String {
    match at {
        0 => "the certificate".to_string(),
        at => format!("certificate {} of the chain", at + 1),
    }
}

/// Whether the gateway's own certificate says that it is an authority's (RFC 5280 section 4.2.1.9).
/// Of one whose times are wrong that is not told.
fn authority(certificate: &ParsedCertificate<'_>, now: Duration) -> Option<Finding> {
    let nobody = RootCertStore::empty();
    let now = UnixTime::since_unix_epoch(now);
    let refused = verify_server_cert_signed_by_trust_anchor(certificate, &nobody, &[], now, &[]);
    // webpki's name for it; no rustls variant has it.
    let is_authority = matches!(
        refused,
        Err(TlsError::InvalidCertificate(CertificateError::Other(other)))
            if format!("{other:?}").contains("CaUsedAsEndEntity")
    );
    is_authority.then(|| {
        let what = "the certificate is an authority's (CA:TRUE): clients that check this, \
                    penstock's among them, refuse it as a server's own";
        let cure = "Have it made with basicConstraints CA:FALSE, or signed by that authority";
        Finding::warning(SUBJECT, what, cure)
    })
}

/// Reads the times by asking whether the certificate holds at one. That is looked at before who
/// signed it: nobody is trusted here, so one whose times are right is refused for that.
fn validity(certificate: &ParsedCertificate<'_>, now: Duration) -> Validity {
    let nobody = RootCertStore::empty();
    let at = |time: Duration| {
        let time = UnixTime::since_unix_epoch(time);
        verify_server_cert_signed_by_trust_anchor(certificate, &nobody, &[], time, &[])
    };
    match at(now) {
        Err(TlsError::InvalidCertificate(CertificateError::NotValidYetContext {
            not_before,
            ..
        })) => Validity::From(not_before),
        Err(TlsError::InvalidCertificate(CertificateError::ExpiredContext {
            not_after, ..
        })) => Validity::Over(not_after),
        Err(TlsError::InvalidCertificate(CertificateError::Expired)) => Validity::Never,
        _ => match at(now + RENEWAL_LATE) {
            Err(TlsError::InvalidCertificate(CertificateError::ExpiredContext {
                not_after,
                ..
            })) => Validity::Until(not_after),
            _ => Validity::Now,
        },
    }
}

fn times(at: usize, validity: Validity, now: Duration) -> Option<Finding> {
    let (whose, who) = (whose(at), if at == 0 { "clients" } else { "clients that need it" });
    let refused = |what: String, cure: &str| Finding {
        level: Level::Problem,
        kind: Some(Kind::Invalid),
        ..Finding::warning(SUBJECT, format!("{whose} {what}: {who} refuse it"), cure)
    };
    let renew = "Renew it; the files are read again when they change";
    Some(match validity {
        Validity::Now => return None,
        Validity::From(time) => refused(
            format!("does not hold before {}", written(time)),
            "Serve the one before until then, or set the clock, if it is slow",
        ),
        Validity::Over(time) => refused(format!("expired at {}", written(time)), renew),
        Validity::Never => refused("ends before it begins".to_string(), "Have it made anew"),
        Validity::Until(time) => {
            let days = time.as_secs().saturating_sub(now.as_secs()) / (24 * 60 * 60);
            let what = format!("{whose} expires at {}, in {days} days", written(time));
            Finding::warning(SUBJECT, what, renew)
        }
    })
}

/// Until when the first certificate of a chain holds, as a log says it.
pub(crate) fn holds_until(chain: &[CertificateDer<'_>]) -> String {
    let certificate = chain.first().and_then(|der| ParsedCertificate::try_from(der).ok());
    match certificate.map(|certificate| validity(&certificate, FAR)) {
        Some(Validity::Over(time)) => written(time),
        _ => "a time that cannot be read".to_string(),
    }
}

fn written(time: UnixTime) -> String {
    let time = i64::try_from(time.as_secs()).ok().and_then(|it| Timestamp::from_second(it).ok());
    time.map_or_else(|| "the end of the calendar".to_string(), |time| time.to_string())
}

/// The names by which `domains` has clients come, and whether the certificate is for them: each
/// domain itself, and any bucket in front of it.
fn names(certificate: &ParsedCertificate<'_>, domains: &[String]) -> Option<Finding> {
    let is_for = |name: &str| {
        let name = ServerName::try_from(name.replace('*', ANY_BUCKET));
        name.is_ok_and(|name| verify_server_name(certificate, &name).is_ok())
    };
    let wanted: Vec<String> =
        domains.iter().flat_map(|domain| [domain.clone(), format!("*.{domain}")]).collect();
    let missing: Vec<&str> =
        wanted.iter().map(String::as_str).filter(|name| !is_for(name)).collect();
    let cure = "Have it made for those names (subjectAltName), or take the domain away: clients \
                that check names do not connect by them";
    match missing.len() {
        0 => None,
        count if count == wanted.len() => {
            let names = missing.join(" nor ");
            let what = format!("the certificate is for none of the `domains`: neither {names}");
            Some(Finding::warning(SUBJECT, what, cure))
        }
        _ => {
            let names = missing.join(", ");
            let what = format!("the certificate is not for {names}, which `domains` asks for");
            Some(Finding::warning(SUBJECT, what, cure))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    const DAY: u64 = 24 * 60 * 60;

    /// A certificate for these names that holds in the year 2030.
    fn certificate(names: &[&str]) -> CertificateDer<'static> {
        let names = names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = rcgen::date_time_ymd(2030, 1, 1);
        params.not_after = rcgen::date_time_ymd(2031, 1, 1);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }

    #[test]
    fn a_certificate_of_an_authority_is_told_where_it_is_the_gateways_own() {
        let mut params = CertificateParams::new(vec!["a.example".to_string()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2030, 1, 1);
        params.not_after = rcgen::date_time_ymd(2031, 1, 1);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone();
        let findings = told(std::slice::from_ref(&authority), &["a.example"], day(1));
        let found = findings.iter().find(|it| it.what.contains("CA:TRUE"));
        assert_eq!(found.map(|it| it.level), Some(Level::Warning), "{findings:?}");
        assert!(found.unwrap().cure.contains("CA:FALSE"));
        let chain = [certificate(&["a.example"]), authority];
        assert!(told(&chain, &[], day(1)).is_empty(), "it belongs there");
    }

    /// So many days after the beginning of 2030.
    fn day(days: i64) -> SystemTime {
        let begin = 1_893_456_000; // date -u -d 2030-01-01 +%s
        let second = begin + days * DAY as i64;
        SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(second).unwrap())
    }

    fn told(chain: &[CertificateDer<'_>], domains: &[&str], now: SystemTime) -> Vec<Finding> {
        let domains: Vec<String> = domains.iter().map(|name| name.to_string()).collect();
        certificates(chain, &domains, now)
    }

    #[test]
    fn times_are_told_two_weeks_before_the_end() {
        let own = [certificate(&["s3.example.org"])];
        for (days, level, words) in [
            (-1, Level::Problem, "does not hold before 2030-01-01T00:00:00Z"),
            (352, Level::Warning, "expires at 2031-01-01T00:00:00Z, in 13 days"),
            (364, Level::Warning, "in 1 days"),
            (366, Level::Problem, "expired at 2031-01-01T00:00:00Z"),
        ] {
            let findings = told(&own, &[], day(days));
            let [finding] = &findings[..] else { panic!("{days}: {findings:#?}") };
            assert_eq!(finding.level, level, "{finding:?}");
            assert!(finding.what.contains(words) && !finding.cure.is_empty(), "{finding:?}");
            assert_eq!(finding.kind.is_some(), level == Level::Problem);
        }
        for days in [0, 100, 351] {
            assert!(told(&own, &[], day(days)).is_empty(), "{days}");
        }
    }

    #[test]
    fn another_certificate_of_the_chain_is_told_by_its_number_and_hinders_nothing() {
        let chain = [certificate(&["a.example"]), certificate(&["b.example"])];
        let findings = told(&chain, &["a.example"], day(400));
        assert_eq!(findings.iter().filter(|it| it.level == Level::Problem).count(), 1);
        let second = findings.iter().find(|it| it.what.contains("certificate 2 of the chain"));
        assert_eq!(second.map(|it| (it.level, it.kind)), Some((Level::Warning, None)));
        let odd = [chain[0].clone(), CertificateDer::from(b"no certificate".to_vec())];
        let findings = told(&odd, &[], day(100));
        assert!(findings[0].what.contains("certificate 2 of the chain cannot be read"));
    }

    #[test]
    fn each_domain_is_asked_for_with_and_without_a_bucket() {
        let own = [certificate(&["s3.example.org", "*.s3.example.org", "lake.internal"])];
        let said = |domains: &[&str]| {
            told(&own, domains, day(1)).iter().map(|it| it.what.clone()).collect::<String>()
        };
        assert_eq!(said(&[]), "");
        assert_eq!(said(&["s3.example.org"]), "");
        assert_eq!(
            said(&["s3.example.org", "lake.internal"]),
            "the certificate is not for *.lake.internal, which `domains` asks for"
        );
        assert_eq!(
            said(&["example.org"]),
            "the certificate is for none of the `domains`: neither example.org nor *.example.org"
        );
        // A wildcard stands for one label.
        assert!(said(&["eu.s3.example.org"]).contains("not for *.eu.s3.example.org"));
    }
}

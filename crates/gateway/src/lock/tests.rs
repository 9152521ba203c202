use super::*;
use proptest::prelude::*;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn retention(mode: Mode, until: u64) -> Retention {
    Retention { mode, until: Timestamp::from(at(until)) }
}

fn meta(pairs: &[(&str, &str)]) -> ObjectMeta {
    let pair = |pair: &(&str, &str)| (pair.0.to_string(), pair.1.to_string());
    ObjectMeta { metadata: pairs.iter().map(pair).collect(), ..Default::default() }
}

fn kept(mode: Mode, until: u64) -> ObjectMeta {
    meta(&[(RETENTION, &retention(mode, until).to_text().unwrap())])
}

#[test]
fn a_retained_version_stays_until_its_time() {
    for mode in [Mode::Governance, Mode::Compliance] {
        let lock = Lock::of(&kept(mode, 100)).unwrap();
        assert!(lock.holds(at(99), false).is_some());
        assert!(lock.holds(at(100), false).is_none());
        assert_eq!(lock.holds(at(99), true).is_none(), mode == Mode::Governance);
    }
}

#[test]
fn a_hold_stays_until_it_is_lifted() {
    assert!(Lock::of(&meta(&[(HOLD, "ON")])).unwrap().holds(at(1), true).is_some());
    assert!(Lock::of(&meta(&[(HOLD, "OFF")])).unwrap().holds(at(1), false).is_none());
    assert_eq!(Lock::of(&meta(&[])).unwrap(), Lock::default());
    assert_eq!([hold_of("ON"), hold_of("OFF"), hold_of("on")], [Some(true), Some(false), None]);
}

#[test]
fn what_was_set_overrules_the_rule() {
    let by_rule = retention(Mode::Compliance, 9).to_text().unwrap();
    let own = retention(Mode::Governance, 5);
    let of = |text: &str| Lock::of(&meta(&[(BY_RULE, &by_rule), (RETENTION, text)])).unwrap();
    assert_eq!(of(&own.to_text().unwrap()).retention, Some(own));
    assert_eq!(of("").retention, None, "lifted");
}

#[test]
fn a_lock_that_cannot_be_read_lets_nothing_go() {
    for text in ["GOVERNANCE", "governance 2030-01-01T00:00:00.000Z", "COMPLIANCE soon", " "] {
        let leave = Leave { now: at(1), bypasses: true };
        let error = (leave.permit())(&meta(&[(RETENTION, text)])).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{text}");
    }
}

#[test]
fn a_rule_counts_from_the_making() {
    let rule = |period| Rule { mode: Mode::Governance, period };
    assert_eq!(rule(Period::Days(2)).at(at(7)), retention(Mode::Governance, 7 + 2 * 86_400));
    assert_eq!(rule(Period::Years(1)).at(at(7)), retention(Mode::Governance, 7 + 365 * 86_400));
    let none = [Period::days(0), Period::days(-1), Period::days(36_501), Period::years(101)];
    assert_eq!(none, [None; 4]);
    assert_eq!(Period::years(100), Some(Period::Years(100)));
}

proptest! {
    #[test]
    fn a_retention_reads_back(seconds in 0..200_000_000_000_u64, millis in 0..1000_u64) {
        let until = Timestamp::from(at(seconds) + Duration::from_millis(millis));
        let retention = Retention { mode: Mode::Compliance, until };
        prop_assert_eq!(Retention::from_text(&retention.to_text().unwrap()).unwrap(), retention);
    }

    #[test]
    fn a_retention_without_bypass_only_grows(old in 1..9_u64, new in 1..9_u64, now in 0..9_u64,
                                             modes in any::<(bool, bool)>()) {
        let mode = |is_firm| if is_firm { Mode::Compliance } else { Mode::Governance };
        let (old, new) = (retention(mode(modes.0), old), retention(mode(modes.1), new));
        let lock = Lock { retention: Some(old.clone()), is_held: None };
        let yields = lock.yields_to(Some(&new), at(now), false);
        let is_over = old.is_over(at(now));
        prop_assert_eq!(yields, is_over || (new.mode == old.mode && new.until >= old.until));
        prop_assert_eq!(lock.yields_to(None, at(now), false), is_over);
        let by_bypass = lock.yields_to(None, at(now), true);
        prop_assert_eq!(by_bypass, is_over || old.mode == Mode::Governance);
    }
}

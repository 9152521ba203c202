//! Object lock: what keeps a version from being removed, and who may change that. Pure.
//!
//! A version's lock is in its metadata. Retention that a request asked for, or set later, is one
//! pair; that of the bucket's rule is another, which the first overrules, so that an upload can get
//! the rule's when it is completed, from when the time counts. Days are of 24 hours, years of 365
//! days.

use penstock_base::{Error, Kind, Result};
use penstock_store::ObjectMeta;
use penstock_store::streaming::{Permit, Revision};
use s3s::dto::{Timestamp, TimestampFormat};
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime};

/// The pair that holds the retention of a version; empty where it was lifted.
pub(crate) const RETENTION: &str = "@lock-retention";
/// The pair that holds the retention by the bucket's rule.
pub(crate) const BY_RULE: &str = "@lock-by-rule";
/// The pair that holds the legal hold.
pub(crate) const HOLD: &str = "@lock-hold";

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const DAYS_OF_YEAR: u32 = 365;
/// Longest retention of a rule, as in S3.
const DAYS_MAX: u32 = 36_500;
const YEARS_MAX: u32 = 100;
const ON: &str = "ON";
const OFF: &str = "OFF";

/// How firm a retention is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Whoever may bypass it can remove the version, and shorten the retention.
    #[serde(rename = "GOVERNANCE")]
    Governance,
    /// Nobody can.
    #[serde(rename = "COMPLIANCE")]
    Compliance,
}

impl Mode {
    /// The mode of this name.
    pub fn parse(text: &str) -> Option<Self> {
        [Mode::Governance, Mode::Compliance].into_iter().find(|mode| mode.name() == text)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Governance => "GOVERNANCE",
            Mode::Compliance => "COMPLIANCE",
        }
    }
}

/// Until when a version must be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// How firmly.
    pub mode: Mode,
    /// The end, in milliseconds.
    pub until: Timestamp,
}

impl Retention {
    /// As it is kept.
    ///
    /// # Errors
    /// `Invalid` for a year that has no four digits.
    pub fn to_text(&self) -> Result<String> {
        let mut text = format!("{} ", self.mode.name()).into_bytes();
        let written = self.until.format(TimestampFormat::DateTime, &mut text);
        let text = written.ok().and_then(|()| String::from_utf8(text).ok());
        // What cannot be read back would hold nothing.
        text.filter(|text| Self::from_text(text).is_ok())
            .ok_or_else(|| Error::new(Kind::Invalid, "the retain until date cannot be kept"))
    }

    fn from_text(text: &str) -> Result<Self> {
        let parsed = text.split_once(' ').and_then(|(mode, until)| {
            let until = Timestamp::parse(TimestampFormat::DateTime, until).ok()?;
            Some(Retention { mode: Mode::parse(mode)?, until })
        });
        // Never taken for none.
        parsed.ok_or_else(|| Error::new(Kind::Corrupt, "the lock of this version cannot be read"))
    }

    fn is_over(&self, now: SystemTime) -> bool {
        self.until <= Timestamp::from(now)
    }
}

/// The lock of one version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// Until when it must be kept, which may be past.
    pub retention: Option<Retention>,
    /// Whether it is held until somebody says otherwise; `None` where nobody ever said.
    pub is_held: Option<bool>,
}

impl Lock {
    /// By a version's metadata.
    ///
    /// # Errors
    /// `Corrupt` for what nobody wrote.
    pub fn of(meta: &ObjectMeta) -> Result<Self> {
        let pair =
            |name: &str| meta.metadata.iter().find(|pair| pair.0 == name).map(|pair| &pair.1);
        let text = pair(RETENTION).or_else(|| pair(BY_RULE)).filter(|text| !text.is_empty());
        let retention = text.map(|text| Retention::from_text(text)).transpose()?;
        Ok(Lock { retention, is_held: pair(HOLD).map(|text| text == ON) })
    }

    /// Why the version may not be removed at this time; `bypasses` governs governance.
    pub fn holds(&self, now: SystemTime, bypasses: bool) -> Option<&'static str> {
        if self.is_held == Some(true) {
            return Some("a legal hold is on this version");
        }
        let retention = self.retention.as_ref().filter(|it| !it.is_over(now))?;
        match retention.mode {
            Mode::Governance if bypasses => None,
            Mode::Governance => Some("this version is retained (GOVERNANCE)"),
            Mode::Compliance => Some("this version is retained (COMPLIANCE)"),
        }
    }

    /// Whether the retention may become this one: it may always grow.
    fn yields_to(&self, new: Option<&Retention>, now: SystemTime, bypasses: bool) -> bool {
        let Some(old) = self.retention.as_ref().filter(|it| !it.is_over(now)) else { return true };
        let grows = new.is_some_and(|new| new.mode == old.mode && new.until >= old.until);
        grows || (old.mode == Mode::Governance && bypasses)
    }
}

/// The value of a legal hold.
pub(crate) fn hold_text(is_held: bool) -> &'static str {
    if is_held { ON } else { OFF }
}

/// The legal hold of this name.
pub(crate) fn hold_of(text: &str) -> Option<bool> {
    [true, false].into_iter().find(|is_held| hold_text(*is_held) == text)
}

fn denied(why: &str) -> Error {
    Error::new(Kind::Denied, format!("Access Denied because of object lock: {why}."))
}

/// With what leave somebody touches a version that may be locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leave {
    /// When they came.
    pub now: SystemTime,
    /// Whether they go past GOVERNANCE.
    pub bypasses: bool,
}

impl Leave {
    /// Lets a version go that nothing holds.
    pub fn permit(self) -> Permit {
        Box::new(move |meta| match Lock::of(meta)?.holds(self.now, self.bypasses) {
            None => Ok(()),
            Some(why) => Err(denied(why)),
        })
    }

    /// Changes the retention of a version, where that is allowed; `None` lifts it.
    pub fn retain(self, new: Option<Retention>) -> Revision {
        Box::new(move |meta| {
            if !Lock::of(meta)?.yields_to(new.as_ref(), self.now, self.bypasses) {
                return Err(denied("the retention of this version may only grow"));
            }
            Ok(Some(new.as_ref().map(Retention::to_text).transpose()?.unwrap_or_default()))
        })
    }
}

/// The retention of every new version of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// How firmly.
    pub mode: Mode,
    /// How long.
    pub period: Period,
}

/// How long a rule retains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Period {
    /// So many days.
    Days(u32),
    /// So many years.
    Years(u32),
}

impl Period {
    /// A period of a client; `None` for none, for no time, and for longer than S3 has.
    pub fn days(count: i32) -> Option<Self> {
        u32::try_from(count).ok().filter(|days| (1..=DAYS_MAX).contains(days)).map(Period::Days)
    }

    /// The same in years.
    pub fn years(count: i32) -> Option<Self> {
        u32::try_from(count).ok().filter(|years| (1..=YEARS_MAX).contains(years)).map(Period::Years)
    }
}

impl Rule {
    /// The retention of a version that is made now.
    pub fn at(&self, now: SystemTime) -> Retention {
        let days = match self.period {
            Period::Days(days) => days,
            Period::Years(years) => years * DAYS_OF_YEAR,
        };
        Retention { mode: self.mode, until: Timestamp::from(now + DAY * days) }
    }
}

/// What a bucket with object lock has set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketLock {
    /// The retention of new versions that ask for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<Rule>,
}

#[cfg(test)]
mod tests;

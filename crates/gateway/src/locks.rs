//! Object lock as requests ask for it: of buckets in their notes, of versions in their metadata.
//!
//! Only where the back end keeps versions whose metadata can be changed in place; what holds a
//! version is judged by the back end itself, when nobody else can change it.

use crate::auth::{Caller, still_let_in};
use crate::buckets::{Bucket, Buckets};
use crate::exchange::Exchange;
use crate::get::about_object;
use crate::judged::Judged;
use crate::lock::{
    BY_RULE, BucketLock, HOLD, Leave, Lock, Mode, Period, RETENTION, Retention, Rule, hold_of,
    hold_text,
};
use crate::notes::Notes;
use crate::versions;
use http::{Extensions, StatusCode};
use penstock_store::Versioning;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Result, dto, s3_error};
use std::sync::Arc;
use std::time::SystemTime;

/// What a request asks for a new version.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub mode: Option<dto::ObjectLockMode>,
    pub until: Option<dto::Timestamp>,
    pub hold: Option<dto::ObjectLockLegalHoldStatus>,
}

/// Takes the like-named fields of an input of s3s.
macro_rules! lock_asked {
    ($input:expr) => {
        $crate::locks::Asked {
            mode: $input.object_lock_mode.take(),
            until: $input.object_lock_retain_until_date.take(),
            hold: $input.object_lock_legal_hold_status.take(),
        }
    };
}
pub(crate) use lock_asked;

fn error_of(code: &'static str, status: StatusCode, why: &'static str) -> S3Error {
    let mut error = S3Error::with_message(S3ErrorCode::Custom(code.into()), why);
    error.set_status_code(status);
    error
}

fn no_lock() -> S3Error {
    s3_error!(InvalidRequest, "Bucket is missing Object Lock Configuration")
}

/// When a request came.
///
/// # Errors
/// `InternalError` for one that came past the front.
fn time_of(extensions: &Extensions) -> S3Result<SystemTime> {
    let exchange = extensions.get::<Arc<Exchange>>();
    let exchange = exchange.ok_or_else(|| s3_error!(InternalError, "a request without a time"))?;
    Ok(exchange.time())
}

/// Refuses by name where the back end cannot keep a lock.
///
/// # Errors
/// `NotImplemented`.
fn check(bucket: &Bucket) -> S3Result<()> {
    lockable(bucket.store.can_revise())
}

fn lockable(is_lockable: bool) -> S3Result<()> {
    match is_lockable {
        true => Ok(()),
        false => Err(s3_error!(
            NotImplemented,
            "object lock: this bucket's back end keeps no versions, or keeps their locks itself"
        )),
    }
}

fn in_future(until: dto::Timestamp, now: SystemTime) -> S3Result<dto::Timestamp> {
    match until > dto::Timestamp::from(now) {
        true => Ok(until),
        false => Err(s3_error!(InvalidArgument, "The retain until date must be in the future!")),
    }
}

impl Asked {
    fn is_none(&self) -> bool {
        self.mode.is_none() && self.until.is_none() && self.hold.is_none()
    }

    /// The pairs of metadata that a new version gets by itself.
    fn pairs(self, now: SystemTime) -> S3Result<Vec<(String, String)>> {
        let mut pairs = Vec::new();
        match (self.mode, self.until) {
            (None, None) => {}
            (Some(mode), Some(until)) => {
                let mode = Mode::parse(mode.as_str());
                let mode = mode.ok_or_else(|| s3_error!(InvalidArgument, "Unknown lock mode."))?;
                let retention = Retention { mode, until: in_future(until, now)? };
                let text = retention.to_text().map_err(about_object)?;
                pairs.push((RETENTION.to_string(), text));
            }
            _ => {
                let why = "x-amz-object-lock-retain-until-date and x-amz-object-lock-mode must \
                           both be supplied";
                return Err(s3_error!(InvalidArgument, "{why}"));
            }
        }
        if let Some(hold) = self.hold {
            let is_held = hold_of(hold.as_str());
            let why = "Legal Hold must be either of 'ON' or 'OFF'";
            let is_held = is_held.ok_or_else(|| s3_error!(InvalidArgument, "{why}"))?;
            pairs.push((HOLD.to_string(), hold_text(is_held).to_string()));
        }
        Ok(pairs)
    }
}

/// The lock of a bucket, if it has any. The notes are read only where versions are kept now, and
/// not again where they were to let the request in.
async fn of_bucket(
    buckets: &Buckets,
    (bucket, name): (&Bucket, &str),
    extensions: &Extensions,
) -> S3Result<Option<BucketLock>> {
    if !bucket.store.can_revise() {
        return Ok(None);
    }
    if versions::state(bucket).await? != Versioning::Enabled {
        return Ok(None);
    }
    match extensions.get::<Caller>().and_then(|caller| caller.notes.as_ref()) {
        Some(notes) => Ok(notes.lock),
        None => Ok(buckets.notes(name).await?.0.lock),
    }
}

/// The pairs of metadata that lock a new version: what its request asks for, and the bucket's rule
/// unless it asks for another retention.
///
/// # Errors
/// `NotImplemented`; `InvalidRequest` where the bucket has no object lock; `InvalidArgument`.
pub(crate) async fn of_new_object(
    buckets: &Buckets,
    place: (&Bucket, &str),
    extensions: &Extensions,
    asked: Asked,
) -> S3Result<Vec<(String, String)>> {
    let is_asked = !asked.is_none();
    if is_asked {
        check(place.0)?;
    }
    // What no bucket could keep is told before what this one cannot.
    let now = time_of(extensions)?;
    let mut pairs = asked.pairs(now)?;
    let Some(lock) = of_bucket(buckets, place, extensions).await? else {
        return if is_asked { Err(no_lock()) } else { Ok(Vec::new()) };
    };
    if pairs.iter().all(|pair| pair.0 != RETENTION) {
        pairs.extend(by_rule(lock, now)?);
    }
    Ok(pairs)
}

fn by_rule(lock: BucketLock, now: SystemTime) -> S3Result<Option<(String, String)>> {
    let Some(rule) = lock.rule else { return Ok(None) };
    Ok(Some((BY_RULE.to_string(), rule.at(now).to_text().map_err(about_object)?)))
}

/// The pairs of an upload that begins: what it asks for. The rule's comes when it is completed.
///
/// # Errors
/// As [`of_new_object`].
pub(crate) async fn of_new_upload(
    buckets: &Buckets,
    place: (&Bucket, &str),
    extensions: &Extensions,
    asked: Asked,
) -> S3Result<Vec<(String, String)>> {
    if asked.is_none() {
        return Ok(Vec::new());
    }
    let pairs = of_new_object(buckets, place, extensions, asked).await?;
    Ok(pairs.into_iter().filter(|pair| pair.0 != BY_RULE).collect())
}

/// The pair of an upload that is completed: the rule's, which the upload's own overrules.
///
/// # Errors
/// What the back end says.
pub(crate) async fn of_completion(
    buckets: &Buckets,
    place: (&Bucket, &str),
    extensions: &Extensions,
) -> S3Result<Option<(String, String)>> {
    match of_bucket(buckets, place, extensions).await? {
        Some(lock) => by_rule(lock, time_of(extensions)?),
        None => Ok(None),
    }
}

/// With what leave a request touches versions: it goes past GOVERNANCE if it asks to, and may.
///
/// # Errors
/// As [`time_of`].
pub(crate) fn leave(asked: Option<bool>, extensions: &Extensions) -> S3Result<Leave> {
    let may_bypass = extensions.get::<Caller>().is_some_and(|caller| caller.may_bypass);
    Ok(Leave { now: time_of(extensions)?, bypasses: asked == Some(true) && may_bypass })
}

/// GetObjectLockConfiguration.
pub(crate) async fn configuration(
    buckets: &Buckets,
    bucket: &str,
) -> S3Result<dto::GetObjectLockConfigurationOutput> {
    let (notes, version) = buckets.notes(bucket).await?;
    if version.is_none() {
        buckets.check(bucket).await?;
    }
    let lock = notes.lock.ok_or_else(|| {
        error_of(
            "ObjectLockConfigurationNotFoundError",
            StatusCode::NOT_FOUND,
            "Object Lock configuration does not exist for this bucket",
        )
    })?;
    let enabled = dto::ObjectLockEnabled::ENABLED;
    let configuration = dto::ObjectLockConfiguration {
        object_lock_enabled: Some(dto::ObjectLockEnabled::from_static(enabled)),
        rule: lock.rule.map(|rule| dto::ObjectLockRule { default_retention: Some(shown(rule)) }),
    };
    Ok(dto::GetObjectLockConfigurationOutput { object_lock_configuration: Some(configuration) })
}

fn shown(rule: Rule) -> dto::DefaultRetention {
    let count = |count| i32::try_from(count).ok();
    let (days, years) = match rule.period {
        Period::Days(days) => (count(days), None),
        Period::Years(years) => (None, count(years)),
    };
    let mode = Some(dto::ObjectLockRetentionMode::from_static(rule.mode.name()));
    dto::DefaultRetention { days, mode, years }
}

/// The rule of a document.
pub(crate) fn rule_of(rule: dto::ObjectLockRule) -> S3Result<Rule> {
    let malformed = || s3_error!(MalformedXML, "A rule has a mode, and days or years.");
    let asked = rule.default_retention.ok_or_else(malformed)?;
    let mode = asked.mode.as_ref().and_then(|mode| Mode::parse(mode.as_str()));
    let period = match (asked.days, asked.years) {
        (Some(days), None) => Period::days(days),
        (None, Some(years)) => Period::years(years),
        _ => return Err(malformed()),
    };
    let why = "Default retention is of 1 to 36500 days, or 1 to 100 years.";
    let period =
        period.ok_or_else(|| error_of("InvalidRetentionPeriod", StatusCode::BAD_REQUEST, why));
    Ok(Rule { mode: mode.ok_or_else(malformed)?, period: period? })
}

/// PutObjectLockConfiguration.
///
/// # Errors
/// `MalformedXML`; `NotImplemented` where the back end cannot; `InvalidRetentionPeriod`;
/// `InvalidBucketState` where no versions are kept now.
pub(crate) async fn configure(
    buckets: &Buckets,
    input: dto::PutObjectLockConfigurationInput,
    extensions: &Extensions,
) -> S3Result<()> {
    let malformed = || s3_error!(MalformedXML, "ObjectLockEnabled is Enabled.");
    let asked = input.object_lock_configuration.ok_or_else(malformed)?;
    let is_enabled = asked.object_lock_enabled.as_ref().map(dto::ObjectLockEnabled::as_str);
    if is_enabled != Some(dto::ObjectLockEnabled::ENABLED) {
        return Err(malformed());
    }
    let rule = match asked.rule.map(rule_of).transpose() {
        // What is no such document at all is told first, on every back end alike.
        Err(error) if *error.code() == S3ErrorCode::MalformedXML => return Err(error),
        told => told,
    };
    let bucket = buckets.writable(&input.bucket).await?;
    check(&bucket)?;
    let lock = BucketLock { rule: rule? };
    if versions::state(&bucket).await? != Versioning::Enabled {
        return Err(bad_state("Versioning must be 'Enabled' on the bucket to apply Object Lock"));
    }
    enable(buckets, &bucket, &Judged::of(extensions, &input.bucket), Some(lock)).await
}

fn bad_state(why: &'static str) -> S3Error {
    error_of("InvalidBucketState", StatusCode::CONFLICT, why)
}

/// Refuses by name to make a bucket with object lock where there can be none.
///
/// # Errors
/// `NotImplemented`; `InvalidBucketName`.
pub(crate) fn check_new(buckets: &Buckets, name: &str) -> S3Result<()> {
    lockable(buckets.is_lockable(name)?)
}

/// Making a bucket again changes nothing of it: one without object lock does not get it.
///
/// # Errors
/// `BucketAlreadyOwnedByYou`.
pub(crate) fn made_again(is_locked: bool, notes: &Notes) -> S3Result<()> {
    match is_locked && notes.lock.is_none() {
        true => {
            Err(s3_error!(BucketAlreadyOwnedByYou, "This bucket is there without object lock."))
        }
        false => Ok(()),
    }
}

/// Turns object lock on for a bucket that was just made. The rule of one that has it stays.
///
/// # Errors
/// What the back end says.
pub(crate) async fn begin(buckets: &Buckets, judged: &Judged<'_>) -> S3Result<()> {
    let bucket = buckets.get(judged.bucket).await?;
    enable(buckets, &bucket, judged, None).await
}

/// Notes the lock, then sees to it that versions are kept: whoever suspended them meanwhile looks
/// at the notes behind it (see [`suspend`]).
async fn enable(
    buckets: &Buckets,
    bucket: &Bucket,
    judged: &Judged<'_>,
    lock: Option<BucketLock>,
) -> S3Result<()> {
    let noted = |notes: &mut Notes| {
        notes.lock = lock.or(notes.lock).or_else(|| Some(BucketLock::default()));
        Ok(())
    };
    buckets.change_notes(judged, noted).await?;
    versions::keep(bucket, true).await
}

/// Suspends versions, which a bucket with object lock must keep, and so must every other in its
/// container: what is written there while they are suspended takes a version away.
///
/// # Errors
/// `InvalidBucketState`.
pub(crate) async fn suspend(buckets: &Buckets, bucket: &Bucket, name: &str) -> S3Result<()> {
    if let Some(refusal) = lock_at(buckets, name).await? {
        return Err(bad_state(refusal));
    }
    versions::keep(bucket, false).await?;
    if let Some(refusal) = lock_at(buckets, name).await? {
        versions::keep(bucket, true).await?;
        return Err(bad_state(refusal));
    }
    Ok(())
}

/// How it is told that the bucket, or another in its container, has object lock; `None` where none
/// has.
async fn lock_at(buckets: &Buckets, name: &str) -> S3Result<Option<&'static str>> {
    // The words of S3, which its suites compare.
    let own = "An Object Lock configuration is present on this bucket, so the versioning state \
               cannot be changed.";
    let beside = "An Object Lock configuration is present on another bucket in the container of \
                  this one, so the versioning state cannot be changed.";
    if buckets.notes(name).await?.0.lock.is_some() {
        return Ok(Some(own));
    }
    Ok(buckets.is_locked_beside(name).await?.then_some(beside))
}

/// The bucket of a version whose lock is asked for, and the version's name in the store.
async fn locked(
    buckets: &Buckets,
    judged: &Judged<'_>,
    key: &str,
    version: Option<&str>,
) -> S3Result<(Arc<Bucket>, String)> {
    let bucket = judged.bucket;
    let open = buckets.get(bucket).await?;
    check(&open)?;
    let notes = buckets.notes(bucket).await?.0;
    judged.check(&notes)?;
    if notes.lock.is_none() {
        buckets.check(bucket).await?;
        return Err(no_lock());
    }
    let name = versions::name(&open, key, version)?;
    Ok((open, name))
}

async fn lock_of(
    buckets: &Buckets,
    bucket: &str,
    (key, version): (&str, Option<&str>),
    extensions: &Extensions,
) -> S3Result<Lock> {
    let judged = Judged::by_none(bucket);
    let (bucket, name) = locked(buckets, &judged, key, version).await?;
    let meta = bucket.query().head(&bucket.at(&name)).await.map_err(about_object)?;
    still_let_in(extensions, &meta)?;
    Lock::of(&meta).map_err(about_object)
}

fn none_set() -> S3Error {
    error_of(
        "NoSuchObjectLockConfiguration",
        StatusCode::NOT_FOUND,
        "The specified object does not have a ObjectLock configuration",
    )
}

/// GetObjectRetention.
pub(crate) async fn retention(
    buckets: &Buckets,
    request: S3Request<dto::GetObjectRetentionInput>,
) -> S3Result<dto::GetObjectRetentionOutput> {
    let input = request.input;
    let place = (input.key.as_str(), input.version_id.as_deref());
    let lock = lock_of(buckets, &input.bucket, place, &request.extensions).await?;
    let retention = lock.retention.ok_or_else(none_set)?;
    let mode = dto::ObjectLockRetentionMode::from_static(retention.mode.name());
    let retain_until_date = Some(retention.until);
    Ok(dto::GetObjectRetentionOutput {
        retention: Some(dto::ObjectLockRetention { mode: Some(mode), retain_until_date }),
    })
}

/// PutObjectRetention; a document without mode and date lifts what there is.
///
/// # Errors
/// `MalformedXML`; `NotImplemented` where the back end cannot; `InvalidArgument` for a time that is
/// over; `InvalidRequest` where the bucket has no object lock; `AccessDenied` where it would become
/// less.
pub(crate) async fn retain(
    buckets: &Buckets,
    request: S3Request<dto::PutObjectRetentionInput>,
) -> S3Result<()> {
    let (input, extensions) = (request.input, &request.extensions);
    let leave = leave(input.bypass_governance_retention, extensions)?;
    let malformed = || s3_error!(MalformedXML, "Retention has a mode and a date.");
    let asked = input.retention.ok_or_else(malformed)?;
    let new = match (asked.mode, asked.retain_until_date) {
        (None, None) => None,
        (Some(mode), Some(until)) => {
            let mode = Mode::parse(mode.as_str()).ok_or_else(malformed)?;
            Some(Retention { mode, until })
        }
        _ => return Err(malformed()),
    };
    // What the back end cannot keep comes before what no bucket could.
    let open = buckets.get(&input.bucket).await?;
    check(&open)?;
    if let Some(new) = &new {
        in_future(new.until.clone(), leave.now)?;
    }
    let version = input.version_id.as_deref();
    let judged = Judged::of(extensions, &input.bucket);
    let (bucket, name) = locked(buckets, &judged, &input.key, version).await?;
    bucket.check_writable()?;
    let revision = leave.retain(new);
    let done = bucket.revise(&bucket.key(&name), RETENTION, revision).await;
    done.map_err(about_object)
}

/// GetObjectLegalHold.
pub(crate) async fn hold(
    buckets: &Buckets,
    request: S3Request<dto::GetObjectLegalHoldInput>,
) -> S3Result<dto::GetObjectLegalHoldOutput> {
    let input = request.input;
    let place = (input.key.as_str(), input.version_id.as_deref());
    let lock = lock_of(buckets, &input.bucket, place, &request.extensions).await?;
    let status = hold_text(lock.is_held.ok_or_else(none_set)?);
    let status = Some(dto::ObjectLockLegalHoldStatus::from_static(status));
    Ok(dto::GetObjectLegalHoldOutput { legal_hold: Some(dto::ObjectLockLegalHold { status }) })
}

/// PutObjectLegalHold.
///
/// # Errors
/// `MalformedXML`; `NotImplemented` where the back end cannot; `InvalidRequest` where the bucket
/// has no object lock.
pub(crate) async fn set_hold(
    buckets: &Buckets,
    request: S3Request<dto::PutObjectLegalHoldInput>,
) -> S3Result<()> {
    let input = request.input;
    let status = input.legal_hold.and_then(|hold| hold_of(hold.status?.as_str()));
    let is_held = status.ok_or_else(|| s3_error!(MalformedXML, "Status is ON or OFF."))?;
    let version = input.version_id.as_deref();
    let judged = Judged::of(&request.extensions, &input.bucket);
    let (bucket, name) = locked(buckets, &judged, &input.key, version).await?;
    bucket.check_writable()?;
    let text = Some(hold_text(is_held).to_string());
    let revision = Box::new(move |_: &penstock_store::ObjectMeta| Ok(text.clone()));
    bucket.revise(&bucket.key(&name), HOLD, revision).await.map_err(about_object)
}

//! An object that one request places, and whose it is where an answer was lost.
//!
//! A conditional write whose first attempt took effect unheard is refused when it is sent again:
//! its own object stands in its way. So it leaves a mark with the object, by which it knows it; the
//! bytes would not tell it from another writer's of the same ones. Where the mark is not there, the
//! write came too late or was replaced since, and which of both cannot be told.

use crate::attempt::{Weight, retry};
use crate::cause::Cause;
use crate::location::Location;
use crate::names::may_have_acted;
use crate::query::QueryCore;
use crate::upload::finish::published;
use penstock_base::{Error, Kind, Result};
use penstock_store::notes;
use penstock_store::{Payload, PutOptions, PutResult, WriteCondition};
use std::sync::atomic::{AtomicBool, Ordering};

/// Places a whole object in one request.
pub(crate) async fn put(
    query: &QueryCore,
    at: &Location,
    payload: Payload,
    options: &PutOptions,
) -> Result<PutResult> {
    let size = payload.len();
    let change = query.engine.listings.finish(query, std::slice::from_ref(at)).await?;
    let result = send_whole(query, at, payload, options, || Ok(())).await;
    change.ended(&result);
    let result = result?;
    published(query, at, size, &result);
    Ok(result)
}

/// `check` is asked before each attempt, which is not sent where it says no.
pub(super) async fn send_whole(
    query: &QueryCore,
    at: &Location,
    payload: Payload,
    options: &PutOptions,
    check: impl Fn() -> Result<()>,
) -> Result<PutResult> {
    let (store, key) = (&at.mount.store, &at.key);
    // The answers of what is near are not lost.
    if options.condition == WriteCondition::None || at.mount.origin.is_none() {
        let put = async || {
            check()?;
            store.put(key, payload.clone(), options).await
        };
        return retry(query, (Cause::Write, "PUT", at), Weight::Body, put).await;
    }
    let mark = new_mark(query);
    let mut options = options.clone();
    options.metadata.retain(|(name, _)| name != notes::WRITE);
    options.metadata.push((notes::WRITE.to_string(), mark.clone()));
    let is_open = AtomicBool::new(false);
    let sent = retry(query, (Cause::Write, "PUT", at), Weight::Body, async || {
        check()?;
        let sent = store.put(key, payload.clone(), &options).await;
        if sent.as_ref().is_err_and(may_have_acted) {
            is_open.store(true, Ordering::Relaxed);
        }
        sent
    });
    match sent.await {
        Err(error) if error.kind() == Kind::Conflict && is_open.into_inner() => {
            query.forget(at);
            own(query, at, &mark).await.ok_or_else(|| untold(at))
        }
        sent => sent,
    }
}

/// What stands there, if it is what the write with this mark made.
async fn own(query: &QueryCore, at: &Location, mark: &str) -> Option<PutResult> {
    let stat = || at.mount.store.stat(&at.key);
    let meta = retry(query, (Cause::Write, "HEAD", at), Weight::Small, stat).await.ok()?;
    let is_own = meta.metadata.iter().any(|pair| pair.0 == notes::WRITE && pair.1 == mark);
    is_own.then(|| PutResult {
        etag: meta.etag,
        modified: meta.modified,
        version: meta.version,
        ..PutResult::default()
    })
}

fn untold(at: &Location) -> Error {
    Error::new(
        Kind::Unavailable,
        "an attempt of this conditional write was not answered, and the next one was refused: \
         whether the first took effect, and was replaced since, cannot be told",
    )
    .with_operation("PUT")
    .with_object(at.url())
    .with_hint("Read the object before writing it again")
}

/// Other text for each write.
fn new_mark(query: &QueryCore) -> String {
    let half = || (query.engine.random.unit() * (1u64 << 53) as f64) as u64;
    format!("{:014x}{:014x}", half(), half())
}

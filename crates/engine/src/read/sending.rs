//! Sends a GET until its head arrives.

use crate::attempt::Attempts;
use crate::cause::Asked;
use crate::location::Location;
use crate::query::QueryCore;
use crate::waits::{For, waiting};
use futures_util::future::{Either, select};
use penstock_base::{Error, Kind, Result, Retry};
use penstock_store::{Again, GetRequest, GetResponse};
use std::pin::pin;
use std::sync::Arc;
use tokio::time::{Instant, sleep};

/// What becomes of the bytes before a range, where a server sends the whole object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unasked {
    Dropped,
    Taken,
}

/// Sends a GET until its head arrives, as fast as the store takes requests.
pub(super) async fn get(
    query: &Arc<QueryCore>,
    at: &Location,
    (request, unasked): (&GetRequest, Unasked),
    attempts: &mut Attempts,
) -> Result<GetResponse> {
    let pace = &at.mount.pace;
    loop {
        let came = Instant::now();
        let entered = waiting(For::Store, pin!(pace.enter())).await;
        let asked = Instant::now();
        attempts.excuse(asked - came);
        let answer = attempts.bounded(first_byte(query, at, request)).await;
        match &answer {
            Ok(_) => {
                at.mount.latency.note(asked.elapsed());
                entered.answered();
            }
            // An answer as good as any, and no failure.
            Err(error) if error.is_not_modified() => {
                at.mount.latency.note(asked.elapsed());
                entered.answered();
                return answer;
            }
            Err(error) if error.kind() == Kind::Throttled => entered.refused(),
            Err(_) => drop(entered),
        }
        let answer = match answer.and_then(|response| from_the_store(response, request, at)) {
            Ok(response) if unasked == Unasked::Dropped => response.cut(request.range).await,
            answer => answer,
        };
        match answer {
            Ok(response) => return Ok(response),
            Err(error) => attempts.failed(query, error).await?,
        }
    }
}

/// One GET; where its answer is late, a second one beside it, and the first answer of both.
async fn first_byte(query: &QueryCore, at: &Location, request: &GetRequest) -> Result<GetResponse> {
    let (store, pace) = (&at.mount.store, &at.mount.pace);
    let first = store.get(&at.key, request.clone());
    let Some(late_after) = pace.late_after() else { return first.await };
    // The store's futures are boxed, so to pin them costs nothing.
    let late = pin!(sleep(late_after));
    let first = match select(first, late).await {
        Either::Left((answer, _)) => return answer,
        Either::Right(((), first)) if pace.spend() => first,
        Either::Right(((), first)) => return first.await,
    };
    at.mount.sent_again(&query.scope, Again::Late);
    let second = store.get(&at.key, request.clone());
    let second = match Asked::current() {
        Some(asked) => Either::Left(asked.again().run(second)),
        None => Either::Right(second),
    };
    match select(first, pin!(second)).await {
        Either::Left((answer, _)) if is_answer(&answer) => {
            pace.judged(false);
            answer
        }
        Either::Right((answer, _)) if is_answer(&answer) => {
            pace.judged(true);
            answer
        }
        // One failed: the other may not.
        Either::Left((_, second)) => second.await,
        Either::Right((_, first)) => {
            pace.judged(false);
            first.await
        }
    }
}

/// Whether a store has said what was asked of it: that nothing changed is an answer too.
fn is_answer(answer: &Result<GetResponse>) -> bool {
    answer.as_ref().err().is_none_or(|error| error.is_not_modified())
}

/// A store that has tags sends one with every object: an answer without it comes from something in
/// between, such as the login page of a network.
fn from_the_store(
    response: GetResponse,
    request: &GetRequest,
    at: &Location,
) -> Result<GetResponse> {
    let expected = request.if_match.is_some() || at.mount.capabilities.list_etag;
    if response.meta.etag.is_some() || !expected {
        return Ok(response);
    }
    let media_type = response.meta.content_type.as_deref().unwrap_or("unknown");
    Err(Error::new(
        Kind::Corrupt,
        format!("the answer has no ETag (media type {media_type}), so it is not the store's"),
    )
    .with_operation("GET")
    .with_object(at.url())
    .with_retry(Retry::Briefly)
    .with_hint("Does a proxy answer in place of the store? Check the endpoint"))
}

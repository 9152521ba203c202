//! Sends again: the one place that acts on what `retry` decided.

use crate::cause::{Asked, Cause, shown_url};
use crate::location::Location;
use crate::query::QueryCore;
use crate::retry::{Decision, Past, Policy, decide};
use crate::waits::{For, waiting};
use penstock_base::door::setting;
use penstock_base::{Error, Kind, Metric, Result, Retry};
use penstock_store::Again;
use penstock_store::drive::timeout_at;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The attempts of one request.
#[derive(Debug)]
pub(crate) struct Attempts {
    policy: Policy,
    cause: Cause,
    verb: &'static str,
    at: Location,
    started: Instant,
    failed: u32,
    /// When the present run of failures that are retried only briefly began, and its length.
    brief: Option<(Instant, u32)>,
    /// Enough bytes arrived since the clock started: it starts anew with the next failure.
    progressed: bool,
    /// How many have arrived since.
    arrived_bytes: u64,
    /// Why the attempt before failed.
    last: Option<Error>,
    /// How often what is asked for now was sent before.
    sent_before: u32,
    url: OnceLock<Arc<str>>,
    /// How often the store's credentials had been replaced before this attempt.
    renewals: u64,
}

/// Fewest bytes in a deadline with which a read goes on that breaks off time and again. Else a
/// server that breaks each answer after a few bytes would be asked for ever.
const PROGRESS_BYTES_MIN: u64 = 64 << 10;

/// What is told of an attempt that the deadline cut short.
const NO_ANSWER: &str = "no answer before the deadline of requests";

impl Attempts {
    /// `verb` and `at` name the request in errors that do not name it themselves, and `cause` in
    /// the list of requests.
    pub fn new(query: &QueryCore, (cause, verb): (Cause, &'static str), at: &Location) -> Self {
        Attempts {
            policy: Policy::new(&query.settings),
            cause,
            verb,
            at: at.clone(),
            started: Instant::now(),
            failed: 0,
            brief: None,
            progressed: false,
            arrived_bytes: 0,
            last: None,
            sent_before: 0,
            url: OnceLock::new(),
            renewals: at.mount.renewals(),
        }
    }

    /// The request waited for its turn, or its answer for the reader: that is not the store's
    /// fault.
    pub fn excuse(&mut self, waited: Duration) {
        self.started += waited;
    }

    /// Bytes arrived: once they are enough, what comes next has the whole deadline again.
    pub fn arrived(&mut self, bytes: u64) {
        self.arrived_bytes = self.arrived_bytes.saturating_add(bytes);
        self.progressed |= self.arrived_bytes >= PROGRESS_BYTES_MIN;
        self.brief = None;
    }

    /// Nobody waited for a while: what comes next has the whole deadline again.
    pub fn rested(&mut self) {
        self.progressed = true;
    }

    /// A request begins: unless it repeats one that failed, it has the whole deadline.
    pub fn begin(&mut self) {
        if self.progressed || self.failed == 0 {
            self.restart();
        }
    }

    /// What was asked for came, if slowly: the next request has the whole deadline.
    pub fn restart(&mut self) {
        self.progressed = false;
        self.arrived_bytes = 0;
        self.started = Instant::now();
        self.failed = 0;
        self.brief = None;
        self.last = None;
    }

    /// All of it came: what comes next is asked for the first time.
    pub fn ended(&mut self) {
        self.sent_before = 0;
    }

    /// The answer is left unread, and the rest of it asked for anew.
    pub fn replaced(&mut self) {
        self.restart();
        self.sent_before += 1;
    }

    /// What the next request is sent for.
    fn asked(&self) -> Asked {
        let url = Arc::clone(self.url.get_or_init(|| shown_url(&self.at)));
        Asked { url, cause: self.cause, attempt: self.sent_before + 1 }
    }

    /// Runs one attempt whose answer is small: it must be there before the deadline.
    pub async fn bounded<T>(&self, attempt: impl Future<Output = Result<T>>) -> Result<T> {
        self.bounded_by(None, attempt).await
    }

    /// The same, where the answer may have to be there earlier.
    async fn bounded_by<T>(
        &self,
        earlier: Option<Instant>,
        attempt: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let attempt = pin!(self.asked().run(attempt));
        let attempt = waiting(For::Store, attempt);
        let deadline = self.started + self.policy.deadline;
        match timeout_at(earlier.map_or(deadline, |it| it.min(deadline)), attempt).await {
            Some(result) => result,
            None => Err(Error::new(Kind::Unavailable, NO_ANSWER)
                .with_retry(Retry::BackOff)
                .with_hint(format!(
                    "Check the endpoint and the network, or raise {}",
                    setting("request_deadline_ms")
                ))),
        }
    }

    /// Waits before the next attempt, or gives the final error.
    pub async fn failed(&mut self, query: &QueryCore, error: Error) -> Result<()> {
        if self.progressed {
            self.restart();
        }
        let past = self.past(&error);
        let chance = query.engine.random.unit();
        let decision = match error.kind() {
            // Others wait for what this store still gives.
            Kind::Throttled if query.is_giving_way() => Decision::Final,
            _ => match decide(&self.policy, &error, &past, chance) {
                Decision::Wait(wait) if !query.may_repeat(wait) => Decision::TooLate,
                decision => decision,
            },
        };
        match decision {
            Decision::Wait(wait) => {
                self.sent_before += 1;
                self.at.mount.sent_again(&query.scope, Again::Failed);
                self.last = Some(error);
                waiting(For::Store, pin!(sleep(wait))).await;
                Ok(())
            }
            Decision::Final if self.has_newer_credentials(&error) => {
                self.sent_before += 1;
                self.at.mount.sent_again(&query.scope, Again::Failed);
                Ok(())
            }
            Decision::Final | Decision::TooLate => {
                query.scope.count(Metric::Errors, 1);
                // What the store said earlier tells more than that it fell silent at the end.
                let cut_short = error.message() == NO_ANSWER;
                let error = self.last.take().filter(|_| cut_short).unwrap_or(error);
                Err(self.told(error, past.elapsed))
            }
        }
    }

    /// Whether this is a refusal of credentials that were replaced since. At most once for each
    /// replacement.
    fn has_newer_credentials(&mut self, error: &Error) -> bool {
        let mount = &self.at.mount;
        let has = error.kind() == Kind::Denied && mount.renew(&self.at.url(), self.renewals);
        self.renewals = mount.renewals();
        has
    }

    /// Counts this failure.
    fn past(&mut self, error: &Error) -> Past {
        self.failed += 1;
        self.brief = match (error.retry(), self.brief) {
            (Retry::Briefly, None) => Some((Instant::now(), 1)),
            (Retry::Briefly, Some((since, count))) => Some((since, count + 1)),
            _ => None,
        };
        let (brief_elapsed, brief) =
            self.brief.map_or_else(Default::default, |(since, count)| (since.elapsed(), count));
        Past { failed: self.failed, elapsed: self.started.elapsed(), brief, brief_elapsed }
    }

    fn told(&self, error: Error, elapsed: Duration) -> Error {
        let error = self.at.mount.told(error).with_operation(self.verb).with_object(self.at.url());
        let error = with_cure(error);
        if self.failed == 1 && elapsed < self.policy.deadline {
            return error;
        }
        let tries = if self.failed == 1 { "attempt" } else { "attempts" };
        error.with_note(format_args!(
            "gave up after {} {tries} in {:.1} s",
            self.failed,
            elapsed.as_secs_f64()
        ))
    }
}

/// A store that is overloaded, down or lying does not say what to do: what its kind of error asks
/// for.
fn with_cure(error: Error) -> Error {
    match error.kind() {
        kind @ (Kind::Throttled | Kind::Unavailable | Kind::Corrupt) => {
            error.with_hint(kind.next_move())
        }
        _ => error,
    }
}

/// Whether an attempt takes a time that depends on the size of the object: it carries a body, or
/// the store copies or joins one. The store's stall timeout bounds such an attempt; the deadline
/// then decides only whether another one begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    Small,
    Body,
}

/// Sends a request until it succeeds, cannot, or runs out of time. Its error names operation and
/// object: the store's names if it gave any, else `verb` and `at`. `cause` is what it is sent for.
pub(crate) async fn retry<T, F, A>(
    query: &QueryCore,
    (cause, verb, at): (Cause, &'static str, &Location),
    weight: Weight,
    mut attempt: F,
) -> Result<T>
where
    F: FnMut() -> A,
    A: Future<Output = Result<T>>,
{
    let mut attempts = Attempts::new(query, (cause, verb), at);
    loop {
        let result = match weight {
            Weight::Small => attempts.bounded_by(query.answers_by(), attempt()).await,
            Weight::Body => {
                let attempt = pin!(attempts.asked().run(attempt()));
                waiting(For::Store, attempt).await
            }
        };
        match result {
            Ok(answer) => return Ok(answer),
            Err(error) => attempts.failed(query, error).await?,
        }
    }
}

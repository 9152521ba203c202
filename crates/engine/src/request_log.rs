//! Counts and remembers requests: for the engine, and for the query that made them.
//!
//! A store reports each request to one [`Observer`]; which query made it is known from the task
//! that finished it, because every verb runs inside [`Scope::run`].

use crate::cause::{Asked, Cause};
use crate::statements::Statements;
use crate::traffic::Traffic;
use crate::waits::Background;
use penstock_base::{Metric, Metrics, micros};
use penstock_store::{Observer, Reason, RequestEvent};
use std::collections::VecDeque;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

tokio::task_local! {
    static CURRENT: Running;
}

/// What a task works for.
#[derive(Clone)]
struct Running {
    scope: Arc<Scope>,
    /// What its requests are sent for, where that is not said with each of them.
    cause: Option<Cause>,
}

/// One finished request, with its place in the engine's sequence.
#[derive(Clone, Debug)]
pub struct LoggedRequest {
    /// From 1, in the order in which requests ended.
    pub number: u64,
    /// What happened.
    pub event: Arc<RequestEvent>,
}

impl LoggedRequest {
    /// The URL in its user's spelling, where that is known, else the one that was asked for.
    pub fn url(&self) -> &str {
        let told = self.event.reason.as_ref().map(|reason| &*reason.url);
        told.filter(|url| !url.is_empty()).unwrap_or(&self.event.url)
    }
}

/// The most recent requests; older ones are forgotten.
#[derive(Debug)]
pub struct RequestLog {
    state: Mutex<Recent>,
}

#[derive(Debug)]
struct Recent {
    requests: VecDeque<LoggedRequest>,
    entries_max: usize,
}

impl Recent {
    fn trim(&mut self) {
        let surplus = self.requests.len().saturating_sub(self.entries_max);
        self.requests.drain(..surplus);
    }
}

impl RequestLog {
    pub(crate) fn new(entries_max: u64) -> Self {
        let entries_max = usize::try_from(entries_max).unwrap_or(usize::MAX);
        RequestLog { state: Mutex::new(Recent { requests: VecDeque::new(), entries_max }) }
    }

    /// Remembers so many from now on; of more, the most recent stay.
    pub(crate) fn set_entries_max(&self, entries_max: u64) {
        let mut recent = self.lock();
        recent.entries_max = usize::try_from(entries_max).unwrap_or(usize::MAX);
        recent.trim();
    }

    pub(crate) fn push(&self, request: LoggedRequest) {
        let mut recent = self.lock();
        if recent.entries_max > 0 {
            recent.requests.push_back(request);
            recent.trim();
        }
    }

    /// The requests remembered now, oldest first.
    pub fn snapshot(&self) -> Vec<LoggedRequest> {
        self.lock().requests.iter().cloned().collect()
    }

    /// Takes the requests out, oldest first.
    pub fn drain(&self) -> Vec<LoggedRequest> {
        self.lock().requests.drain(..).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Recent> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a query's counts go.
#[derive(Debug)]
pub(crate) struct Scope {
    /// The host's number of the statement, 0 for none.
    pub statement: u64,
    pub metrics: Arc<Metrics>,
    pub log: RequestLog,
    pub traffic: Traffic,
    pub background: Background,
    pub engine: Arc<EngineObserver>,
    /// Somebody reads the headers of its requests.
    pub wants_headers: AtomicBool,
}

impl Scope {
    pub fn new(
        statement: u64,
        metrics: Arc<Metrics>,
        log: RequestLog,
        engine: Arc<EngineObserver>,
    ) -> Arc<Self> {
        let (traffic, background) = Default::default();
        let wants_headers = AtomicBool::new(false);
        Arc::new(Scope { statement, metrics, log, traffic, background, engine, wants_headers })
    }

    /// One of its own.
    #[cfg(test)]
    pub fn for_test() -> Arc<Self> {
        let engine = Arc::new(EngineObserver::new(Arc::default(), 2));
        Scope::new(7, Arc::default(), RequestLog::new(10), engine)
    }

    /// That of the running task, if it works for one.
    pub fn current() -> Option<Arc<Self>> {
        CURRENT.try_with(|running| Arc::clone(&running.scope)).ok()
    }

    /// Adds to the query's and the engine's counter.
    pub fn count(&self, metric: Metric, amount: u64) {
        self.metrics.add(metric, amount);
        self.engine.metrics.add(metric, amount);
    }

    /// Requests that end inside `future` count for this query. So do those that end when the
    /// future is dropped.
    pub fn run<F: Future>(self: &Arc<Self>, future: F) -> impl Future<Output = F::Output> + use<F> {
        CURRENT.scope(Running { scope: Arc::clone(self), cause: None }, future)
    }

    /// As [`Scope::run`]; requests that begin inside `future` are sent for this, unless those
    /// around it are sent for something else.
    pub fn run_for<F: Future>(
        self: &Arc<Self>,
        cause: Cause,
        future: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        let around = CURRENT.try_with(|running| running.cause).ok().flatten();
        let scope = Arc::clone(self);
        CURRENT.scope(Running { scope, cause: around.or(Some(cause)) }, future)
    }
}

/// The observer that every store of an engine reports to.
#[derive(Debug)]
pub(crate) struct EngineObserver {
    pub metrics: Arc<Metrics>,
    pub log: RequestLog,
    pub statements: Statements,
    sequence: AtomicU64,
}

impl EngineObserver {
    pub fn new(metrics: Arc<Metrics>, log_entries: u64) -> Self {
        EngineObserver {
            metrics,
            log: RequestLog::new(log_entries),
            statements: Statements::default(),
            sequence: AtomicU64::new(0),
        }
    }
}

impl Observer for EngineObserver {
    fn reason(&self) -> Option<Reason> {
        let running = CURRENT.try_with(Clone::clone).ok()?;
        let asked = Asked::current();
        let cause = running.cause.or(asked.as_ref().map(|asked| asked.cause));
        Some(Reason {
            statement: running.scope.statement,
            cause: cause.unwrap_or(Cause::Other).name(),
            attempt: asked.as_ref().map_or(1, |asked| asked.attempt),
            url: asked.map_or_else(Arc::default, |asked| asked.url),
        })
    }

    fn wants_headers(&self) -> bool {
        let wants = |running: &Running| running.scope.wants_headers.load(Ordering::Relaxed);
        CURRENT.try_with(wants).unwrap_or(false)
    }

    fn request_finished(&self, event: RequestEvent) {
        let number = self.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        let request = LoggedRequest { number, event: Arc::new(event) };
        count_request(&self.metrics, &request.event);
        // Outside of any scope (an abort at shutdown) only the engine counts it.
        let _ = CURRENT.try_with(|Running { scope, .. }| {
            count_request(&scope.metrics, &request.event);
            scope.traffic.request(&request);
            scope.log.push(request.clone());
        });
        self.log.push(request);
    }

    fn connection_warmed(&self, is_open: bool) {
        count_warmed(&self.metrics, is_open);
        // As above.
        let _ = CURRENT.try_with(|running| count_warmed(&running.scope.metrics, is_open));
    }
}

fn count_warmed(metrics: &Metrics, is_open: bool) {
    if is_open {
        metrics.add(Metric::Connections, 1);
        metrics.add(Metric::ConnectionsWarmed, 1);
    } else {
        metrics.add(Metric::ConnectionsUnwarmed, 1);
    }
}

fn count_request(metrics: &Metrics, event: &RequestEvent) {
    metrics.add(Metric::Requests, 1);
    let by_method = match event.method {
        "GET" => Some(Metric::RequestsGet),
        "HEAD" => Some(Metric::RequestsHead),
        "PUT" => Some(Metric::RequestsPut),
        "POST" => Some(Metric::RequestsPost),
        "DELETE" => Some(Metric::RequestsDelete),
        _ => None,
    };
    if let Some(metric) = by_method {
        metrics.add(metric, 1);
    }
    metrics.add(Metric::BytesRead, event.received_bytes);
    metrics.add(Metric::BytesWritten, event.sent_bytes);
    metrics.add(Metric::Connections, u64::from(event.new_connection));
    metrics.add(Metric::RequestMicros, micros(event.total));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    fn event(method: &'static str) -> RequestEvent {
        RequestEvent {
            method,
            url: "s3://b/k".into(),
            range: String::new(),
            status: 200,
            started: SystemTime::UNIX_EPOCH,
            first_byte: Duration::ZERO,
            total: Duration::from_micros(5),
            sent_bytes: 0,
            received_bytes: 10,
            new_connection: true,
            error: String::new(),
            fault: None,
            span: None,
            reason: None,
            headers: None,
        }
    }

    #[tokio::test]
    async fn a_warmed_connection_is_one_that_was_opened() {
        let observer = EngineObserver::new(Arc::default(), 0);
        observer.connection_warmed(true);
        observer.connection_warmed(false);
        observer.request_finished(event("GET"));
        let metrics = &observer.metrics;
        let counted = [Metric::Connections, Metric::ConnectionsWarmed, Metric::ConnectionsUnwarmed];
        assert_eq!(counted.map(|metric| metrics.get(metric)), [2, 1, 1]);
    }

    #[tokio::test]
    async fn a_request_counts_for_the_engine_and_for_its_query() {
        let scope = Scope::for_test();
        let observer = Arc::clone(&scope.engine);
        scope.run(async { observer.request_finished(event("GET")) }).await;
        observer.request_finished(event("PUT"));
        observer.request_finished(event("PUT"));
        assert_eq!(scope.metrics.get(Metric::Requests), 1);
        assert_eq!(scope.metrics.get(Metric::BytesRead), 10);
        let so_far = scope.traffic.so_far();
        assert_eq!(so_far.slowest_request, Duration::from_micros(5));
        assert_eq!(
            (so_far.requests_busy, &*so_far.slowest_url),
            (so_far.slowest_request, "s3://b/k")
        );
        assert_eq!(observer.metrics.get(Metric::RequestsPut), 2);
        assert_eq!(scope.log.drain().len(), 1);
        let numbers: Vec<u64> = observer.log.snapshot().iter().map(|row| row.number).collect();
        assert_eq!(numbers, [2, 3], "the ring keeps the most recent");
        observer.log.set_entries_max(1);
        assert_eq!(observer.log.snapshot().len(), 1);
        observer.log.set_entries_max(3);
        for _ in 0..9 {
            observer.request_finished(event("PUT"));
        }
        let numbers: Vec<u64> = observer.log.snapshot().iter().map(|row| row.number).collect();
        assert_eq!(numbers, [10, 11, 12]);
        observer.log.set_entries_max(0);
        observer.request_finished(event("PUT"));
        assert!(observer.log.snapshot().is_empty());
    }
}

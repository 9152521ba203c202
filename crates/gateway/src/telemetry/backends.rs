//! What is counted of each back end. Whoever sends requests to it holds its counters, which are
//! atomic: no request looks anything up, or waits for another.

use super::Telemetry;
use super::counts::{Count, Statuses, Times};
use super::prometheus::{Family, Sample};
use crate::access_log::AccessLog;
use crate::notices::Notices;
use crate::presence::Presence;
use crate::trace::BackendLine;
use penstock_base::metrics as table;
use penstock_store::{Again, Observer, RequestEvent, Span};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// As events name them; the last is for those that have no name there.
const METHODS: [&str; 8] = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "OTHER"];

/// Requests of one method.
#[derive(Debug, Default)]
struct Method {
    statuses: Statuses,
    total: Times,
}

/// The counters of one back end.
#[derive(Debug)]
pub struct BackendCounts {
    name: String,
    pub(crate) presence: Presence,
    /// Those that it has been sent: each takes 8 KiB.
    methods: [OnceLock<Box<Method>>; METHODS.len()],
    sent: Count,
    received: Count,
    waiting: Count,
    waits: Times,
    /// Requests that were sent again, by why.
    again: [Count; 3],
}

impl BackendCounts {
    /// Zeroes, of the back end of this name.
    pub fn new(name: &str, notices: Notices) -> Self {
        BackendCounts {
            name: name.to_string(),
            presence: Presence::new(name, notices),
            methods: Default::default(),
            sent: Count::default(),
            received: Count::default(),
            waiting: Count::default(),
            waits: Times::default(),
            again: Default::default(),
        }
    }

    /// Of which back end they are.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A request ended.
    pub fn request(&self, event: &RequestEvent) {
        let known = METHODS.iter().position(|name| *name == event.method);
        let method = self.methods[known.unwrap_or(METHODS.len() - 1)].get_or_init(Box::default);
        method.statuses.add(event.status);
        method.total.observe(event.total);
        self.presence.request(event);
        self.sent.add(event.sent_bytes);
        self.received.add(event.received_bytes);
    }

    /// A request begins to wait for a connection.
    pub fn wait_begins(&self) {
        self.waiting.add(1);
    }

    /// It waited so long.
    pub fn wait_ended(&self, after: Duration) {
        self.waiting.sub(1);
        self.waits.observe(after);
    }

    /// A request is sent again.
    pub fn sent_again(&self, why: Again) {
        self.again[why as usize].add(1);
    }

    fn again(&self, why: Again) -> f64 {
        self.again[why as usize].get() as f64
    }

    /// The methods that it was sent, by name.
    fn methods(&self) -> impl Iterator<Item = (&'static str, &Method)> {
        let rows = METHODS.iter().zip(&self.methods);
        rows.filter_map(|(name, method)| Some((*name, &**method.get()?)))
    }
}

/// What is printed of all back ends.
pub(super) fn families(all: &[Arc<BackendCounts>]) -> Vec<Family> {
    let mut requests = Family::new(table::BACKEND_REQUESTS);
    let mut total = Family::new(table::BACKEND_SECONDS);
    let mut sent = Family::new(table::BACKEND_SENT_BYTES);
    let mut received = Family::new(table::BACKEND_RECEIVED_BYTES);
    let mut waiting = Family::new(table::BACKEND_WAITING);
    let mut waits = Family::new(table::BACKEND_WAIT_SECONDS);
    let mut retries = Family::new(table::RETRIES);
    let mut hedges = Family::new(table::HEDGES);
    for back_end in all {
        let name = back_end.name.as_str();
        for (method, row) in back_end.methods() {
            for (status, count) in row.statuses.counted() {
                let status = status.to_string();
                requests.push(Sample::of([name, method, &status], count as f64));
            }
            total.push(Sample::histogram([name, method], &row.total.histogram()));
        }
        sent.push(Sample::of([name], back_end.sent.get() as f64));
        received.push(Sample::of([name], back_end.received.get() as f64));
        waiting.push(Sample::of([name], back_end.waiting.get() as f64));
        waits.push(Sample::histogram([name], &back_end.waits.histogram()));
        retries.push(Sample::of([name], back_end.again(Again::Failed)));
        hedges.push(Sample::of([name, "late"], back_end.again(Again::Late)));
        hedges.push(Sample::of([name, "slow"], back_end.again(Again::Slow)));
    }
    vec![requests, total, sent, received, waiting, waits, retries, hedges]
}

/// Hears of every request to one back end, and tells the S3 request for which it was made, and the
/// engine, which keeps counters of its own.
#[derive(Debug)]
pub struct BackendObserver {
    pub telemetry: Arc<Telemetry>,
    pub counts: Arc<BackendCounts>,
    pub engine: Arc<dyn Observer>,
    pub log: Option<AccessLog>,
}

impl Observer for BackendObserver {
    fn request_begins(&self) -> Option<Span> {
        crate::exchange::backend_span()
    }

    fn request_finished(&self, event: RequestEvent) {
        if let Some(log) = &self.log {
            log.write(&BackendLine::of(&event), &self.telemetry);
        }
        self.counts.request(&event);
        crate::exchange::backend_request(self.counts.name(), &event);
        self.engine.request_finished(event);
    }

    fn wait_begins(&self) {
        self.counts.wait_begins();
    }

    fn wait_ended(&self, after: Duration) {
        self.counts.wait_ended(after);
    }

    fn sent_again(&self, why: Again) {
        self.counts.sent_again(why);
    }

    fn connection_warmed(&self, is_open: bool) {
        self.engine.connection_warmed(is_open);
    }
}

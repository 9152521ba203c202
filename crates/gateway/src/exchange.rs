//! One S3 request from its head to the last byte of its answer: its id, what was found out about
//! it, and the line that is written when it ends.

use crate::access_log::{AccessLog, Line};
use crate::claims::Claim;
use crate::keys::KeyRing;
use crate::telemetry::Telemetry;
use crate::{cause, claims, trace};
use penstock_base::{Error, micros, redact};
use penstock_store::{RequestEvent, Span};
use s3s::access::S3AccessContext;
use s3s::path::S3Path;
use std::future::Future;
use std::hash::{BuildHasher as _, Hasher as _};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

tokio::task_local! {
    /// The request for which the running task works.
    static CURRENT: Arc<Exchange>;
}

/// Most of a name that nobody has checked: no bucket or object of S3 has a longer one.
const NAME_CHARS_MAX: usize = 1024;

/// What an exchange is told to when it ends.
#[derive(Clone, Debug)]
pub struct Ledger {
    pub telemetry: Arc<Telemetry>,
    pub log: Option<AccessLog>,
    /// Somebody writes down what belongs to traces.
    pub is_traced: bool,
}

/// What is known of a request. Nothing secret is in it: neither query, signature nor token.
#[derive(Debug)]
pub struct Exchange {
    ledger: Ledger,
    id: String,
    client: IpAddr,
    method: http::Method,
    user_agent: String,
    span: Span,
    time: SystemTime,
    started: Instant,
    operation: OnceLock<String>,
    key_id: OnceLock<String>,
    /// What the request claims, where its signature did not hold.
    claim: OnceLock<Claim>,
    /// The key that a form names.
    form_key_id: OnceLock<String>,
    /// Whether it was within the rate that it was charged to.
    is_charged: OnceLock<bool>,
    bucket: OnceLock<String>,
    object: OnceLock<String>,
    /// The last failure that was told in the words of S3: its code, and what is behind it. It may
    /// have been got over since.
    failure: Mutex<Option<(String, String)>>,
    /// Code and cause of the answer.
    refusal: OnceLock<(String, String)>,
    /// The back ends that failed a request, each once.
    failing: Mutex<Vec<String>>,
    received: AtomicU64,
    backend_requests: AtomicU64,
    backend_micros: AtomicU64,
    is_finished: AtomicBool,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug)]
pub struct Ending {
    /// HTTP status.
    pub status: u16,
    /// Until the head of the answer.
    pub first_byte: Duration,
    /// Body bytes handed to the connection.
    pub sent: u64,
    /// Whether the whole body was.
    pub is_whole: bool,
}

impl Exchange {
    /// Begins with a request's head. `client` is the address that it counts as sent from.
    pub fn begin<B>(ledger: &Ledger, client: IpAddr, request: &http::Request<B>) -> Arc<Self> {
        ledger.telemetry.in_flight.add(1);
        let header = |name: &str, longest: usize| {
            let value = request.headers().get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().chars().take(longest).collect::<String>()
        };
        Arc::new(Exchange {
            ledger: ledger.clone(),
            id: next_id(),
            client,
            method: request.method().clone(),
            user_agent: header("user-agent", 200),
            span: trace::begin(request.headers(), ledger.is_traced),
            time: SystemTime::now(),
            started: Instant::now(),
            operation: OnceLock::new(),
            key_id: OnceLock::new(),
            claim: OnceLock::new(),
            form_key_id: OnceLock::new(),
            is_charged: OnceLock::new(),
            bucket: OnceLock::new(),
            object: OnceLock::new(),
            failure: Mutex::default(),
            refusal: OnceLock::new(),
            failing: Mutex::default(),
            received: AtomicU64::new(0),
            backend_requests: AtomicU64::new(0),
            backend_micros: AtomicU64::new(0),
            is_finished: AtomicBool::new(false),
        })
    }

    /// The id that the answer bears.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Who sent it: the other end of the connection, or whom a trusted proxy names.
    pub fn client(&self) -> IpAddr {
        self.client
    }

    /// Whether an answer of this status to it ends with its head (RFC 9110, section 6.4.1).
    pub fn is_bodiless(&self, status: u16) -> bool {
        self.method == http::Method::HEAD || matches!(status, 204 | 304)
    }

    /// When its head was read.
    pub fn time(&self) -> SystemTime {
        self.time
    }

    /// Since the head was read.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// The signature held (or there was none), and this is what is asked for.
    pub fn recognised(&self, context: &S3AccessContext<'_>) {
        self.operation.set(context.s3_op().name().to_string()).ok();
        match context.s3_path() {
            S3Path::Root => {}
            S3Path::Bucket { bucket } => drop(self.bucket.set(bucket.to_string())),
            S3Path::Object { bucket, key } => {
                self.bucket.set(bucket.to_string()).ok();
                self.object.set(key.to_string()).ok();
            }
        }
    }

    /// A form asks for this, as far as it was read: it may be refused before anybody is known to
    /// have signed it.
    pub fn aims_at(&self, bucket: &str, key: Option<&str>) {
        let bounded = |name: &str| name.chars().take(NAME_CHARS_MAX).collect::<String>();
        self.bucket.set(bounded(bucket)).ok();
        if let Some(key) = key {
            self.object.set(bounded(key)).ok();
        }
    }

    /// Whose request it is: this key signed it, wherever the signature stood.
    pub fn sent_by(&self, access_key: &str) {
        self.key_id.set(access_key.to_string()).ok();
    }

    /// A form names this key as its sender; nothing is verified yet.
    pub fn form_names(&self, access_key: &str) {
        self.form_key_id.set(claims::bounded(access_key)).ok();
    }

    /// Takes a refusal into account that came before anybody was known to have sent the request;
    /// gives what is said of it, where the request names a key.
    pub fn unverified(&self, claim: Claim, ring: &KeyRing) -> Option<String> {
        if self.key_id.get().is_some() {
            return None;
        }
        let access_key = claim.access_key.or_else(|| self.form_key_id.get().cloned())?;
        // Who mixes the two up puts the secret where the log shows the name.
        let (access_key, words) = match ring.is_secret(&access_key) {
            true => (None, "a secret key in the place of its access key".to_string()),
            false => (Some(access_key.clone()), format!("key `{access_key}`")),
        };
        let bucket = claim.bucket.as_ref().map_or(String::new(), |it| format!(" in bucket `{it}`"));
        let (operation, client) = (&claim.operation, self.client.to_canonical());
        let words = format!("{words}, {operation}{bucket}, from {client}, request {}", self.id);
        self.claim.set(Claim { access_key, ..claim }).ok();
        Some(words)
    }

    /// It was charged to a rate, and found to be within it or not.
    pub fn charged(&self, is_within: bool) {
        self.is_charged.set(is_within).ok();
    }

    /// What [`Exchange::charged`] was told; `None` for a request that nobody was charged for.
    pub fn is_charged(&self) -> Option<bool> {
        self.is_charged.get().copied()
    }

    /// The answer is an error with this code and message. What is behind it is told where an error
    /// of a store was translated to it, else the message.
    pub fn refused(&self, code: String, message: String) {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        let cause = match failure {
            Some((of, cause)) if of == code => cause,
            _ => cause::one_line(&message),
        };
        self.refusal.set((code, cause)).ok();
    }

    /// Body bytes came in.
    pub fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
        self.ledger.telemetry.received.add(bytes as u64);
    }

    /// Runs a future as part of this exchange.
    pub fn scope<F: Future>(self: &Arc<Self>, future: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self.clone(), future)
    }

    /// Runs a function as part of this exchange.
    pub fn sync_scope<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self.clone(), work)
    }

    /// Counts the answer and writes its line; the first call does, later ones do nothing.
    pub fn finish(&self, ending: Ending) {
        if self.is_finished.swap(true, Ordering::Relaxed) {
            return;
        }
        let total = self.started.elapsed();
        let telemetry = &self.ledger.telemetry;
        telemetry.in_flight.sub(1);
        telemetry.sent.add(ending.sent);
        let operation = self.operation.get().map_or("none", String::as_str);
        telemetry.request(operation, ending.status, ending.first_byte, total);
        if let Some(log) = &self.ledger.log {
            log.write(&self.line(ending, total), telemetry);
        }
    }

    fn line(&self, ending: Ending, total: Duration) -> Line {
        let text = |cell: &OnceLock<String>| cell.get().cloned();
        let claim = self.claim.get().cloned();
        let claimed = |field: fn(Claim) -> Option<String>| claim.clone().and_then(field);
        let millis = |time: Duration| time.as_micros() as f64 / 1000.0;
        Line {
            time: self.time,
            id: self.id.clone(),
            peer: self.client.to_canonical().to_string(),
            key_id: text(&self.key_id),
            claimed_key_id: claimed(|claim| claim.access_key),
            operation: text(&self.operation).or_else(|| claimed(|claim| Some(claim.operation))),
            method: self.method.to_string(),
            bucket: text(&self.bucket).or_else(|| claimed(|claim| claim.bucket)),
            key: text(&self.object)
                .or_else(|| claimed(|claim| claim.key))
                .map(|key| redact::url(&key).into_owned()),
            status: ending.status,
            error: self.refusal.get().map(|refusal| refusal.0.clone()),
            cause: self.refusal.get().map(|refusal| refusal.1.clone()),
            is_whole: ending.is_whole,
            received_bytes: self.received.load(Ordering::Relaxed),
            sent_bytes: ending.sent,
            first_byte_ms: millis(ending.first_byte),
            total_ms: millis(total),
            backend_requests: self.backend_requests.load(Ordering::Relaxed),
            backend_ms: self.backend_micros.load(Ordering::Relaxed) as f64 / 1000.0,
            user_agent: self.user_agent.clone(),
            trace_id: trace::trace_id(&self.span),
            span_id: trace::span_id(self.span.id),
            parent_id: self.span.parent_id.map(trace::span_id),
        }
    }
}

impl Drop for Exchange {
    /// A connection that broke before there was an answer.
    fn drop(&mut self) {
        let first_byte = self.started.elapsed();
        self.finish(Ending { status: 0, first_byte, sent: 0, is_whole: false });
    }
}

/// A request to the back end of this name ended; the S3 request that the task works for takes it on
/// its account.
pub fn backend_request(name: &str, event: &RequestEvent) {
    // Work that belongs to no request (the look of /readyz) has no account.
    let _ = CURRENT.try_with(|exchange| {
        exchange.backend_requests.fetch_add(1, Ordering::Relaxed);
        exchange.backend_micros.fetch_add(micros(event.total), Ordering::Relaxed);
        let is_broken = !event.error.is_empty() && !event.is_unread();
        if event.status >= 500 || is_broken {
            let mut failing = exchange.failing.lock().unwrap_or_else(PoisonError::into_inner);
            if !failing.iter().any(|known| known == name) {
                failing.push(name.to_string());
            }
        }
    });
}

/// The back ends that have failed a request for the S3 request that the task works for: one, but
/// for copies from one to another.
pub fn failing_back_ends() -> Vec<String> {
    let failing = |exchange: &Arc<Exchange>| {
        exchange.failing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    };
    CURRENT.try_with(failing).unwrap_or_default()
}

/// An error of a store was translated to this code of S3's, for the request that the task works
/// for.
pub fn failed(code: &str, error: &Error) {
    let _ = CURRENT.try_with(|exchange| {
        // Who keeps no log need not pay for the words.
        if exchange.ledger.is_traced {
            let cause = cause::one_line(&error.to_string());
            let mut failure = exchange.failure.lock().unwrap_or_else(PoisonError::into_inner);
            *failure = Some((code.to_string(), cause));
        }
    });
}

/// The span of a request to a back end, for the S3 request that the task works for.
pub fn backend_span() -> Option<Span> {
    CURRENT.try_with(|exchange| trace::child(&exchange.span)).ok()
}

/// Sixteen hexadecimal digits, unlike those of other requests and other replicas.
fn next_id() -> String {
    format!("{:016X}", next_number())
}

/// A number that no other call gets, and hardly another replica.
pub fn next_number() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // The standard library seeds its hashers from the system's random source.
    let seed =
        SEED.get_or_init(|| std::collections::hash_map::RandomState::new().build_hasher().finish());
    mixed(seed.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// A bijection of 64-bit numbers in which neighbours look unrelated (the finaliser of splitmix64).
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_do_not_repeat() {
        let ids: HashSet<String> = (0..1000).map(|_| next_id()).collect();
        assert!(ids.len() == 1000 && ids.iter().all(|id| id.len() == 16));
    }
}

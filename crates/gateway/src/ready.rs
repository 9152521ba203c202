//! Whether this gateway should be sent requests: `/readyz`.
//!
//! It should while at least one back end answers and no drain has begun. One back end of several
//! that is down does not take the others away from their clients. "Answers" means that a request
//! came back, not that it was granted: rights are `penstock doctor`'s business, and a back end that
//! throttles would not do so less for other replicas, which have the same one. A back end that was
//! never asked, for want of credentials, has not answered.

use crate::telemetry::Telemetry;
use async_trait::async_trait;
use penstock_base::{Error, Kind, Result};
use std::fmt::{Debug, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;

/// How long a look at the back ends holds: load balancers of many replicas ask often.
const LOOK_VALIDITY: Duration = Duration::from_secs(1);

/// Back ends that can be asked whether they are there.
#[async_trait]
pub trait Probe: Send + Sync + Debug {
    /// Their names.
    fn names(&self) -> Vec<String>;

    /// Whether a back end lies on this machine, where the system answers and not a service.
    fn is_here(&self, index: usize) -> bool;

    /// Sends one cheap request to the back end of this index.
    ///
    /// # Errors
    /// Whatever it says.
    async fn probe(&self, index: usize) -> Result<()>;
}

/// What was found of one back end.
#[derive(Clone, Debug)]
pub struct Look {
    name: String,
    /// How it answered, or why not, without addresses.
    found: Found,
}

/// Whether a back end answered, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub is_there: bool,
    pub words: &'static str,
}

/// The state behind `/readyz`.
#[derive(Debug)]
pub struct Readiness {
    probe: Arc<dyn Probe>,
    timeout: Duration,
    telemetry: Arc<Telemetry>,
    is_draining: AtomicBool,
    looked: Mutex<Looked>,
}

#[derive(Debug, Default)]
struct Looked {
    last: Option<(Instant, Vec<Look>)>,
    /// For each back end the question that has no answer yet.
    asked: Vec<Option<Question>>,
}

impl Readiness {
    /// Asks `probe`, each back end for at most `timeout`.
    pub fn new(probe: Arc<dyn Probe>, timeout: Duration, telemetry: Arc<Telemetry>) -> Self {
        Readiness {
            probe,
            timeout,
            telemetry,
            is_draining: AtomicBool::new(false),
            looked: Mutex::default(),
        }
    }

    /// From now on the answer is no.
    pub fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    /// Whether a drain has begun.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Whether it is ready, and the text that says why.
    pub async fn ask(&self) -> (bool, String) {
        if self.is_draining() {
            return (false, "draining\n".to_string());
        }
        judged(&self.looks().await)
    }

    /// What one back end says, in time or not. A question that takes longer than a look, or than
    /// whoever asked, goes on for the next one: it may wait for credentials, which would be
    /// forgotten with it.
    async fn found(&self, index: usize, asked: &mut Option<Question>) -> Found {
        let question = asked.get_or_insert_with(|| {
            let probe = self.probe.clone();
            tokio::spawn(async move { probe.probe(index).await })
        });
        match tokio::time::timeout(self.timeout, question).await {
            Err(_) => Found { is_there: false, words: "no answer in time" },
            Ok(answer) => {
                *asked = None;
                let answer = answer.unwrap_or_else(|cause| Err(broke_off(cause)));
                found(answer.as_ref().err(), self.probe.is_here(index))
            }
        }
    }

    /// One look at a time; those who come meanwhile share it.
    async fn looks(&self) -> Vec<Look> {
        let mut looked = self.looked.lock().await;
        let Looked { last, asked } = &mut *looked;
        if let Some((at, looks)) = &*last
            && at.elapsed() < LOOK_VALIDITY
        {
            return looks.clone();
        }
        let names = self.probe.names();
        asked.resize_with(names.len(), || None);
        let looks =
            names.into_iter().zip(asked).enumerate().map(|(index, (name, asked))| async move {
                let found = self.found(index, asked).await;
                Look { name, found }
            });
        let looks = futures_util::future::join_all(looks).await;
        for look in &looks {
            self.telemetry.looked(&look.name, look.found);
        }
        *last = Some((Instant::now(), looks.clone()));
        looks
    }
}

type Question = JoinHandle<Result<()>>;

fn broke_off(cause: JoinError) -> Error {
    Error::new(Kind::Internal, "the question broke off").with_source(cause)
}

/// The status with which a proxy on the way asks for credentials of its own.
const PROXY_AUTHENTICATION: u16 = 407;

/// Whether an error is an answer of the back end's, which no request has reached where credentials
/// could not be had.
pub(crate) fn is_answer(error: &Error, is_here: bool) -> bool {
    match error.kind() {
        Kind::NotFound | Kind::Unsupported | Kind::Conflict | Kind::Throttled => true,
        Kind::Denied => is_here || error.http_status().is_some_and(|it| it != PROXY_AUTHENTICATION),
        // Of its own, and not of this machine's.
        Kind::Exhausted => error.http_status().is_some(),
        _ => false,
    }
}

/// What an answer says of the back end.
fn found(error: Option<&Error>, is_here: bool) -> Found {
    let words = match error.map(|error| (error.kind(), is_answer(error, is_here))) {
        Some((Kind::Throttled, _)) => "ok, but it throttles",
        None | Some((_, true)) => "ok",
        Some((Kind::Denied, _)) => "no credentials",
        Some((Kind::Exhausted, _)) => "a local resource is exhausted",
        Some(_) => "not reachable",
    };
    Found { is_there: error.is_none_or(|error| is_answer(error, is_here)), words }
}

fn judged(looks: &[Look]) -> (bool, String) {
    let is_ready = looks.iter().any(|look| look.found.is_there);
    let mut text = String::from(if is_ready { "ready\n" } else { "no back end answers\n" });
    for look in looks {
        let _ = writeln!(text, "{}: {}", look.name, look.found.words);
    }
    (is_ready, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::time::UNIX_EPOCH;

    #[derive(Debug)]
    struct Fixed(Vec<Option<Kind>>, AtomicU64);

    #[async_trait]
    impl Probe for Fixed {
        fn names(&self) -> Vec<String> {
            (0..self.0.len()).map(|index| format!("b{index}")).collect()
        }

        fn is_here(&self, _: usize) -> bool {
            false
        }

        async fn probe(&self, index: usize) -> Result<()> {
            self.1.fetch_add(1, Ordering::Relaxed);
            match self.0[index] {
                None => Ok(()),
                Some(Kind::Cancelled) => std::future::pending().await,
                Some(Kind::Denied) => {
                    Err(Error::new(Kind::Denied, "the key is wrong").with_http_status(403))
                }
                Some(kind) => Err(Error::new(kind, "http://secret.example is down")),
            }
        }
    }

    fn readiness(answers: &[Option<Kind>]) -> (Readiness, Arc<Fixed>) {
        let probe = Arc::new(Fixed(answers.to_vec(), AtomicU64::new(0)));
        let telemetry = Arc::new(Telemetry::new(UNIX_EPOCH));
        (Readiness::new(probe.clone(), Duration::from_secs(2), telemetry), probe)
    }

    #[tokio::test(start_paused = true)]
    async fn one_back_end_that_answers_is_enough() {
        let down = Some(Kind::Unavailable);
        for (answers, expected) in [
            (vec![None, down], true),
            (vec![Some(Kind::NotFound)], true),
            (vec![Some(Kind::Denied)], true),
            (vec![down, Some(Kind::Throttled)], true),
            (vec![down, Some(Kind::Exhausted)], false),
            (vec![Some(Kind::Cancelled)], false),
        ] {
            let (is_ready, text) = readiness(&answers).0.ask().await;
            assert_eq!(is_ready, expected, "{text}");
            assert!(!text.contains("secret.example"), "{text}");
        }
    }

    #[test]
    fn a_back_end_that_was_never_asked_has_not_answered() {
        let denied = || Error::new(Kind::Denied, "no usable credentials");
        let full = || Error::new(Kind::Exhausted, "full");
        for (error, is_here, is_there, words) in [
            (denied(), false, false, "no credentials"),
            (denied().with_http_status(407), false, false, "no credentials"),
            (denied().with_http_status(401), false, true, "ok"),
            (denied(), true, true, "ok"),
            (full(), false, false, "a local resource is exhausted"),
            (full().with_http_status(507), false, true, "ok"),
        ] {
            let found = found(Some(&error), is_here);
            assert_eq!((found.is_there, found.words), (is_there, words), "{error}");
        }
    }

    /// Answers when it is told to.
    #[derive(Debug, Default)]
    struct Slow(tokio::sync::Notify, AtomicU64);

    #[async_trait]
    impl Probe for Slow {
        fn names(&self) -> Vec<String> {
            vec!["slow".to_string()]
        }

        fn is_here(&self, _: usize) -> bool {
            false
        }

        async fn probe(&self, _: usize) -> Result<()> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.notified().await;
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_takes_longer_than_a_look_is_not_asked_anew() {
        let slow = Arc::new(Slow::default());
        let telemetry = Arc::new(Telemetry::new(UNIX_EPOCH));
        let readiness = Readiness::new(slow.clone(), Duration::from_secs(2), telemetry);
        for _ in 0..3 {
            assert!(!readiness.ask().await.0);
            tokio::time::advance(LOOK_VALIDITY).await;
        }
        slow.0.notify_one();
        assert!(readiness.ask().await.0);
        assert_eq!(slow.1.load(Ordering::Relaxed), 1);
        tokio::time::advance(LOOK_VALIDITY).await;
        slow.0.notify_one();
        assert!(readiness.ask().await.0);
        assert_eq!(slow.1.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_is_shared_for_a_moment_and_a_drain_ends_it() {
        let (readiness, probe) = readiness(&[None]);
        for _ in 0..5 {
            assert!(readiness.ask().await.0);
        }
        assert_eq!(probe.1.load(Ordering::Relaxed), 1);
        tokio::time::advance(LOOK_VALIDITY).await;
        assert!(readiness.ask().await.0);
        assert_eq!(probe.1.load(Ordering::Relaxed), 2);
        readiness.drain();
        assert_eq!(readiness.ask().await, (false, "draining\n".to_string()));
    }
}

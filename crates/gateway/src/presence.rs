//! Whether a back end is lost, by the requests that it answers and those that it does not. Decides
//! when that is worth a line; `/readyz` asks for itself.

use crate::notices::{Limit, Notices};
use crate::ready::Found;
use penstock_store::{RequestEvent, RequestFault};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// So many requests in a row without an answer make a back end lost: one alone may be bad luck,
/// and is tried again.
const FAILURES_MAX: u32 = 3;

/// What is known of one back end.
#[derive(Debug)]
pub(crate) struct Presence {
    name: String,
    notices: Notices,
    /// Requests in a row that had no answer; [`LOST`] once the back end counts as lost.
    failures: AtomicU32,
    lost_at: Mutex<Option<Instant>>,
}

const LOST: u32 = u32::MAX;
/// A request that was given up after so long without an answer counts as one that failed.
const SILENCE: Duration = Duration::from_secs(5);

impl Presence {
    /// Of the back end of this name, which counts as there.
    pub fn new(name: &str, notices: Notices) -> Self {
        let (failures, lost_at) = (AtomicU32::new(0), Mutex::default());
        Presence { name: name.to_string(), notices, failures, lost_at }
    }

    /// A request to it ended.
    pub fn request(&self, event: &RequestEvent) {
        match is_answer(event) {
            Some(true) => self.answered(),
            Some(false) => self.failed(&words(event)),
            None => {}
        }
    }

    /// It was asked whether it is there.
    pub fn looked(&self, found: Found) {
        match found.is_there {
            true => self.answered(),
            false => self.lost(found.words),
        }
    }

    fn answered(&self) {
        // The usual case costs one look.
        if self.failures.load(Ordering::Relaxed) == 0 {
            return;
        }
        if self.failures.swap(0, Ordering::Relaxed) == LOST {
            let lost_at = self.lost_at.lock().unwrap_or_else(PoisonError::into_inner).take();
            let away = lost_at.map_or(Duration::ZERO, |at| at.elapsed());
            self.say(&format!("answers again, after {:.1} s", away.as_secs_f64()));
        }
    }

    fn failed(&self, why: &str) {
        let more = |count: u32| (count < FAILURES_MAX - 1).then(|| count + 1);
        let order = Ordering::Relaxed;
        if self.failures.fetch_update(order, order, more).is_err() {
            self.lost(why);
        }
    }

    fn lost(&self, why: &str) {
        if self.failures.swap(LOST, Ordering::Relaxed) == LOST {
            return;
        }
        let now = Instant::now();
        *self.lost_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        self.say(&format!("does not answer: {why}; requests for its buckets fail"));
    }

    fn say(&self, words: &str) {
        let subject = format!("back end `{}`", self.name);
        self.notices.say_within(Limit::BackEnds, &subject, words);
    }
}

/// Whether a request was answered; `None` for one that tells nothing of the back end: its client
/// went before an answer could be expected, or broke off the body that it sends. A back end that
/// asks for fewer requests is there.
fn is_answer(event: &RequestEvent) -> Option<bool> {
    let has_body = matches!(event.method, "PUT" | "POST");
    match (event.status, event.fault) {
        (0, Some(RequestFault::Body)) => None,
        // The time may have been that of a client which sends slowly.
        (0, Some(RequestFault::Cancelled)) if has_body || event.total < SILENCE => None,
        (0, _) => Some(false),
        (501 | 503 | 507, _) => Some(true),
        (500.., _) => Some(false),
        _ => Some(true),
    }
}

/// Why there was none, without addresses, which are for the log.
fn words(event: &RequestEvent) -> String {
    match event.status {
        0 => format!("{FAILURES_MAX} requests in a row had no answer"),
        status => format!("{FAILURES_MAX} requests in a row failed on its side ({status})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    type Ended = (u16, Option<RequestFault>);

    const DOWN: Ended = (0, Some(RequestFault::Service));

    fn event(method: &'static str, total: Duration, (status, fault): Ended) -> RequestEvent {
        RequestEvent {
            method,
            url: String::new(),
            range: String::new(),
            status,
            started: SystemTime::UNIX_EPOCH,
            first_byte: Duration::ZERO,
            total,
            sent_bytes: 0,
            received_bytes: 0,
            new_connection: false,
            error: String::new(),
            fault,
            span: None,
            reason: None,
            headers: None,
        }
    }

    fn told(events: &[Ended]) -> Vec<String> {
        told_of("GET", Duration::from_secs(1), events)
    }

    fn told_of(method: &'static str, total: Duration, events: &[Ended]) -> Vec<String> {
        let notices = Notices::kept();
        let presence = Presence::new("b", notices.clone());
        events.iter().for_each(|it| presence.request(&event(method, total, *it)));
        notices.lines()
    }

    #[tokio::test(start_paused = true)]
    async fn three_failures_in_a_row_are_a_loss_and_an_answer_is_its_end() {
        let (good, broken) = ((200, None), (500, None));
        let gave_up = (0, Some(RequestFault::Cancelled));
        assert!(told(&[DOWN, DOWN, good, DOWN, broken, good]).is_empty());
        assert!(told(&[DOWN, DOWN, gave_up, gave_up]).is_empty());
        assert!(told(&[gave_up; 9]).is_empty());
        assert_eq!(told_of("GET", SILENCE, &[gave_up; 9]).len(), 1);
        assert!(told(&[(503, None); 9]).is_empty());
        for method in ["PUT", "POST"] {
            assert_eq!(told_of(method, SILENCE, &[DOWN; 9]).len(), 1);
            assert_eq!(told_of(method, SILENCE, &[broken; 9]).len(), 1);
            assert!(told_of(method, SILENCE, &[gave_up; 9]).is_empty());
            let broke_off = (0, Some(RequestFault::Body));
            assert!(told_of(method, SILENCE, &[broke_off; 9]).is_empty());
        }
        let lost = "back end `b`: does not answer: 3 requests in a row had no answer; requests for \
                    its buckets fail";
        assert_eq!(told(&[DOWN, broken, DOWN, DOWN, DOWN, DOWN]), [lost]);
        let back = "back end `b`: answers again, after 0.0 s";
        assert_eq!(told(&[DOWN, DOWN, DOWN, (404, None), good]), [lost, back]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_says_it_at_once_and_how_long_it_took() {
        let notices = Notices::kept();
        let presence = Presence::new("b", notices.clone());
        presence.looked(Found { is_there: false, words: "not reachable" });
        tokio::time::advance(Duration::from_millis(2500)).await;
        presence.looked(Found { is_there: false, words: "not reachable" });
        presence.looked(Found { is_there: true, words: "ok" });
        let lines = notices.lines();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("does not answer: not reachable"), "{lines:?}");
        assert_eq!(lines[1], "back end `b`: answers again, after 2.5 s");
    }
}

//! Says when a drain begins and how it ends: that all requests have ended, or how many were cut.

use crate::telemetry::Telemetry;
use std::sync::Arc;
use tokio::time::Instant;

const SUBJECT: &str = "drain";

/// A drain under way. Dropped before its end, it was cut short.
#[derive(Debug)]
pub(crate) struct Drain {
    telemetry: Arc<Telemetry>,
    began: Instant,
    is_over: bool,
}

impl Drain {
    /// Begins: `delay_ms` until the port closes, then `seconds` for requests to end.
    pub fn begin(telemetry: Arc<Telemetry>, delay_ms: u64, seconds: u64) -> Self {
        let (requests, connections) = (&telemetry.in_flight, &telemetry.connections_open);
        let words = format!(
            "begins with {} requests at work on {} connections; the port closes in {delay_ms} ms, \
             and requests then have {seconds} s to end",
            requests.get(),
            connections.get()
        );
        telemetry.notices.say(SUBJECT, &words);
        Drain { telemetry, began: Instant::now(), is_over: false }
    }

    /// Ends, in time or at its limit.
    pub fn end(mut self) {
        self.is_over = true;
        self.say("ended");
    }

    fn say(&self, how: &str) {
        let (after, cut) = (self.began.elapsed().as_secs_f64(), self.telemetry.in_flight.get());
        let words = format!("{how} after {after:.1} s; {cut} requests were cut");
        self.telemetry.notices.say(SUBJECT, &words);
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        if !self.is_over {
            self.say("cut short");
        }
    }
}

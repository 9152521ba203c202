//! What a store tells about each request it made: for counters, logs and DuckDB's HTTP log.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A span of a distributed trace (W3C Trace Context): one piece of work of which somebody may want
/// to know how it hangs together with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The trace, not 0.
    pub trace_id: u128,
    /// The span's own id, not 0.
    pub id: u64,
    /// The span that this one is for; none for the first of a trace.
    pub parent_id: Option<u64>,
    /// Bit 0 says that who asked may keep what it knows of the trace.
    pub flags: u8,
}

impl Span {
    /// The value of the header `traceparent` for whoever works for this span.
    pub fn traceparent(&self) -> String {
        format!("00-{:032x}-{:016x}-{:02x}", self.trace_id, self.id, self.flags)
    }
}

/// What a request is sent for, as whoever sends it says; a store hands it back with its event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reason {
    /// The statement that sends it, 0 for none.
    pub statement: u64,
    /// The object's URL in its user's spelling, without secrets; empty where none is known.
    pub url: Arc<str>,
    /// One of the sender's words.
    pub cause: &'static str,
    /// How often the same was asked for by then, from 1.
    pub attempt: u32,
}

/// Headers of one request and of its answer, in the order in which they were sent: names and
/// values, those of credentials replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// Of the request.
    pub sent: Vec<(String, String)>,
    /// Of the answer; empty where none came.
    pub received: Vec<(String, String)>,
}

/// Whose doing it was that a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFault {
    /// The service's, or that of something on the way to it.
    Service,
    /// Its sender's: the body broke off, was of another size than announced, or was late.
    Body,
    /// It was given up before its answer was read.
    Cancelled,
    /// The answer came, and was not wanted to its end.
    Unread,
}

/// One finished request. Nothing secret is in it: signatures and tokens are cut from the URL.
#[derive(Clone, Debug)]
pub struct RequestEvent {
    /// `GET`, `PUT`, ...
    pub method: &'static str,
    /// The URL without query secrets.
    pub url: String,
    /// `Range` header sent, or empty.
    pub range: String,
    /// HTTP status; 0 when no answer came.
    pub status: u16,
    /// When it was sent.
    pub started: SystemTime,
    /// Until the first byte of the answer's head.
    pub first_byte: Duration,
    /// Until the last byte of the body was read, or the body was dropped.
    pub total: Duration,
    /// Body bytes sent.
    pub sent_bytes: u64,
    /// Body bytes received.
    pub received_bytes: u64,
    /// Whether this request opened a new connection.
    pub new_connection: bool,
    /// Why it failed, or empty.
    pub error: String,
    /// Whose doing that was; none of a request that did not fail.
    pub fault: Option<RequestFault>,
    /// Its place in a trace, which its header `traceparent` told.
    pub span: Option<Span>,
    /// What it was sent for, if its sender said so.
    pub reason: Option<Reason>,
    /// Its headers, where the observer wants them.
    pub headers: Option<Box<Headers>>,
}

impl RequestEvent {
    /// Whether the store has answered, and it was this side that wanted no more of it.
    pub fn is_unread(&self) -> bool {
        self.fault == Some(RequestFault::Unread)
    }
}

/// Why a request is sent a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// The first one failed.
    Failed,
    /// The answer to the first one is late; whichever comes first is taken.
    Late,
    /// The body of the first answer comes far slower than others of its store.
    Slow,
}

/// Receives events. Called on the thread that finished the request; it must not block.
pub trait Observer: Send + Sync + Debug {
    /// A request begins, on the task that wants it. It carries the span that this makes for it, as
    /// a header beside those that are signed.
    fn request_begins(&self) -> Option<Span> {
        None
    }

    /// What the request is for that begins now, on the task that wants it.
    fn reason(&self) -> Option<Reason> {
        None
    }

    /// Whether the event of the request that begins now is to have its headers, which cost time.
    fn wants_headers(&self) -> bool {
        false
    }

    /// A request ended.
    fn request_finished(&self, event: RequestEvent);

    /// A request waits for a connection, since as many to its host are in use as there may be.
    fn wait_begins(&self) {}

    /// It waits no longer, after this time: it got one, or was given up.
    fn wait_ended(&self, after: Duration) {
        // Of no matter to those who hear of requests only.
        let _ = after;
    }

    /// A request is sent again. No store does that: whoever decides it tells so here.
    fn sent_again(&self, why: Again) {
        // Of no matter to those who hear of requests only.
        let _ = why;
    }

    /// A connection was opened before a request needed it, or could not be.
    fn connection_warmed(&self, is_open: bool) {
        // Of no matter to those who hear of requests only.
        let _ = is_open;
    }
}

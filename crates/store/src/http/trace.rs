//! Measures one request, and its wait for a connection, and tells the observer exactly once,
//! however it ends.

use crate::observe::Headers;
use crate::{Observer, RequestEvent, RequestFault};
use http::header::RANGE;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use penstock_base::redact;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// A request under way. Dropped before its end, it counts as cancelled.
#[derive(Debug)]
pub(crate) struct Trace {
    observer: Arc<dyn Observer>,
    event: Option<Box<RequestEvent>>,
    started: Instant,
}

impl Trace {
    /// Begins with a request's head, which is told its place in a trace, if it has one.
    pub(crate) fn start(
        observer: Arc<dyn Observer>,
        request: &mut Parts,
        (agent, sent_bytes): (&str, u64),
    ) -> Self {
        let span = observer.request_begins();
        let traceparent = span.map(|span| HeaderValue::from_str(&span.traceparent()));
        if let Some(Ok(value)) = traceparent {
            request.headers.insert(TRACEPARENT, value);
        }
        let reason = observer.reason();
        let headers = observer.wants_headers().then(|| {
            let agent = ("user-agent".to_string(), agent.to_string());
            let sent = std::iter::once(agent).chain(shown(&request.headers)).collect();
            Box::new(Headers { sent, received: Vec::new() })
        });
        let event = RequestEvent {
            method: method_name(&request.method),
            url: redact::url(&request.uri.to_string()).into_owned(),
            range: asked_range(&request.headers),
            status: 0,
            started: SystemTime::now(),
            first_byte: Duration::ZERO,
            total: Duration::ZERO,
            sent_bytes,
            received_bytes: 0,
            new_connection: false,
            error: String::new(),
            fault: None,
            span,
            reason,
            headers,
        };
        Trace { observer, event: Some(Box::new(event)), started: Instant::now() }
    }

    pub(crate) fn connected(&mut self, is_new: bool) {
        if let Some(event) = &mut self.event {
            event.new_connection = is_new;
        }
    }

    pub(crate) fn answered(&mut self, status: u16, headers: &HeaderMap) {
        if let Some(event) = &mut self.event {
            event.status = status;
            if let Some(told) = &mut event.headers {
                told.received = shown(headers).collect();
            }
            event.first_byte = self.started.elapsed();
        }
    }

    pub(crate) fn received(&mut self, count: usize) {
        if let Some(event) = &mut self.event {
            event.received_bytes += count as u64;
        }
    }

    /// Tells the observer of a success. After a call of this or of [`Trace::fail`] nothing is said.
    pub(crate) fn finish(&mut self) {
        if let Some(mut event) = self.event.take() {
            event.total = self.started.elapsed();
            self.observer.request_finished(*event);
        }
    }

    /// Tells the observer of a failure.
    pub(crate) fn fail(&mut self, fault: RequestFault, error: &str) {
        if let Some(event) = &mut self.event {
            event.fault = Some(fault);
            event.error = error.to_string();
        }
        self.finish();
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.fail(RequestFault::Cancelled, "cancelled");
    }
}

/// A request's wait for a connection, as long as this lives.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    observer: &'a dyn Observer,
    since: Instant,
}

impl<'a> Waiting<'a> {
    pub(crate) fn begin(observer: &'a dyn Observer) -> Self {
        observer.wait_begins();
        Waiting { observer, since: Instant::now() }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.observer.wait_ended(self.since.elapsed());
    }
}

/// Headers whose values let others in: no log has them.
const CREDENTIALS: &[&str] = &[
    "authorization",
    "cookie",
    "proxy-authorization",
    "set-cookie",
    "x-amz-security-token",
    "x-amz-sso_bearer_token",
    "x-aws-ec2-metadata-token",
    "x-identity-header",
    "x-amz-server-side-encryption-customer-key",
    "x-ms-copy-source-authorization",
    "x-ms-encryption-key",
];

/// Names and values, for a log that others read.
fn shown(headers: &HeaderMap) -> impl Iterator<Item = (String, String)> + '_ {
    headers.iter().filter_map(|(name, value)| {
        let is_hidden = value.is_sensitive() || CREDENTIALS.contains(&name.as_str());
        let text = value.to_str().ok().filter(|_| !is_hidden)?;
        let shown = if text.contains("://") { redact::url(text) } else { redact::text(text) };
        Some((name.as_str().to_string(), shown.into_owned()))
    })
}

/// The method as static text; events keep no allocation for it.
pub(crate) fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::PUT => "PUT",
        Method::POST => "POST",
        Method::DELETE => "DELETE",
        Method::PATCH => "PATCH",
        Method::OPTIONS => "OPTIONS",
        _ => "OTHER",
    }
}

fn asked_range(headers: &HeaderMap) -> String {
    let value = headers.get(RANGE).or_else(|| headers.get("x-ms-range"));
    value.and_then(|value| value.to_str().ok()).unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn headers_that_let_others_in_are_in_no_log() {
        let mut headers = HeaderMap::new();
        for name in CREDENTIALS {
            headers.insert(*name, HeaderValue::from_static("opens"));
        }
        let mut marked = HeaderValue::from_static("opens");
        marked.set_sensitive(true);
        headers.insert("x-own", marked);
        headers.insert("range", HeaderValue::from_static("bytes=0-9"));
        let shown: Vec<_> = shown(&headers).collect();
        assert_eq!(shown, [("range".to_string(), "bytes=0-9".to_string())]);
    }
}

//! One error type for every crate; its kind says what the caller can do next.
//!
//! Each door translates a kind once: DuckDB exception class, S3 code and status, exit code.

use crate::door::setting;
use crate::redact;
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// Shorthand used throughout the workspace.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller can do about an error. The table [`Kind::ALL`] feeds the reference page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Kind {
    /// The object, bucket, container or file is not there.
    NotFound = 1,
    /// Credentials are missing, wrong, expired, or lack a right.
    Denied = 2,
    /// The object changed, exists already, or a condition did not hold.
    Conflict = 3,
    /// The store asked to slow down, and kept asking until the deadline.
    Throttled = 4,
    /// The store could not be reached, or failed on its side, until the deadline.
    Unavailable = 5,
    /// The caller's input (URL, setting, secret) is wrong.
    Invalid = 6,
    /// The store or this version cannot do what was asked.
    Unsupported = 7,
    /// Bytes arrived that cannot be right: truncated, wrong range, wrong checksum.
    Corrupt = 8,
    /// The caller cancelled.
    Cancelled = 9,
    /// A resource is exhausted: disk, memory, file descriptors here, or the space of the store.
    Exhausted = 10,
    /// A defect in Penstock.
    Internal = 11,
}

impl Kind {
    /// Every kind, its stable name, and the caller's next move.
    pub const ALL: &'static [(Kind, &'static str, &'static str)] = &[
        (Kind::NotFound, "not_found", "Check the name; list the parent to see what is there."),
        (Kind::Denied, "denied", "Check the secret and its scope, its expiry and its rights."),
        (Kind::Conflict, "conflict", "Re-run the query: the object changed or exists already."),
        (Kind::Throttled, "throttled", "Lower the concurrency or raise request_deadline_ms."),
        (Kind::Unavailable, "unavailable", "Check the endpoint and the network, then retry."),
        (Kind::Invalid, "invalid", "Correct the named input."),
        (Kind::Unsupported, "unsupported", "Use another store or the named alternative."),
        (Kind::Corrupt, "corrupt", "Retry; if it stays, the store or a proxy alters the bytes."),
        (Kind::Cancelled, "cancelled", "Nothing: it was asked for."),
        (Kind::Exhausted, "exhausted", "Free the named resource."),
        (Kind::Internal, "internal", "Report it, with the message."),
    ];

    /// The stable name, as printed in messages and the reference.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|row| row.0 == self).map_or("internal", |row| row.1)
    }

    /// What the caller does next, as a hint: without a period at the end, and with settings as the
    /// caller's door calls them.
    pub fn next_move(self) -> String {
        let advice = Self::ALL.iter().find(|row| row.0 == self).map_or("", |row| row.2);
        let deadline = "request_deadline_ms";
        advice.trim_end_matches('.').replace(deadline, &setting(deadline))
    }
}

/// Whether the same request can succeed when sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Sending it again cannot help.
    Never,
    /// It may succeed after a back-off chosen by the engine.
    BackOff,
    /// It may succeed within seconds, as when a server restarts; after that it is more likely a
    /// mistake that stays, such as a misspelt host name. The engine tries a few times.
    Briefly,
    /// The server named the wait (Retry-After).
    After(Duration),
}

/// An error: what failed (operation and object), why, and what to do.
///
/// Its texts go through [`redact`] when they are given, so that callers may name objects and quote
/// servers as they are.
#[derive(Debug)]
pub struct Error(Box<Inner>);

struct Inner {
    kind: Kind,
    retry: Retry,
    message: String,
    operation: Option<&'static str>,
    object: Option<String>,
    hint: Option<String>,
    http_status: Option<u16>,
    service_code: Option<String>,
    etag: Option<String>,
    was_unsigned: bool,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error that is not worth retrying. `message` says why, in a sentence without a period.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Error(Box::new(Inner {
            kind,
            retry: Retry::Never,
            message: redacted(message.into(), redact::text),
            operation: None,
            object: None,
            hint: None,
            http_status: None,
            service_code: None,
            etag: None,
            was_unsigned: false,
            source: None,
        }))
    }

    /// Marks the error as worth retrying or not.
    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.0.retry = retry;
        self
    }

    /// Names the request that failed (`GET`, `list`, `upload part 3` is `upload part`).
    /// The innermost caller wins, since it knows best.
    #[must_use]
    pub fn with_operation(mut self, operation: &'static str) -> Self {
        self.0.operation.get_or_insert(operation);
        self
    }

    /// Names the object by its URL, of which the secrets are replaced. The innermost caller wins.
    #[must_use]
    pub fn with_object(mut self, object: impl Into<String>) -> Self {
        self.0.object.get_or_insert_with(|| redacted(object.into(), redact::url));
        self
    }

    /// Tells the reader what to do next. The innermost caller wins.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint.get_or_insert_with(|| redacted(hint.into(), redact::text));
        self
    }

    /// Adds to the message, in parentheses: how often it was tried, what else failed.
    #[must_use]
    pub fn with_note(mut self, note: impl fmt::Display) -> Self {
        let message = format!("{} ({note})", self.0.message);
        self.0.message = redacted(message, redact::text);
        self
    }

    /// Keeps the HTTP status that the store answered.
    #[must_use]
    pub fn with_http_status(mut self, status: u16) -> Self {
        self.0.http_status = Some(status);
        self
    }

    /// Keeps the service's own code of the failure (`NoSuchBucket`), unless it is empty.
    #[must_use]
    pub fn with_service_code(mut self, code: impl Into<String>) -> Self {
        let code = Some(code.into()).filter(|code| !code.is_empty());
        self.0.service_code = code.map(|code| redacted(code, redact::text));
        self
    }

    /// Keeps the tag of the version that stands against the request, without its quotes, where the
    /// store told it.
    #[must_use]
    pub fn with_etag(mut self, etag: Option<String>) -> Self {
        self.0.etag = etag;
        self
    }

    /// Keeps whether the request that failed carried no credentials.
    #[must_use]
    pub fn with_unsigned(mut self, was_unsigned: bool) -> Self {
        self.0.was_unsigned = was_unsigned;
        self
    }

    /// Keeps the cause.
    #[must_use]
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The same error for another one who meets it, without its source.
    #[must_use]
    pub fn again(&self) -> Self {
        let Inner { message, object, hint, service_code, etag, .. } = &*self.0;
        Error(Box::new(Inner {
            message: message.clone(),
            object: object.clone(),
            hint: hint.clone(),
            service_code: service_code.clone(),
            etag: etag.clone(),
            source: None,
            ..*self.0
        }))
    }

    /// What the caller can do.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Whether sending it again can help.
    pub fn retry(&self) -> Retry {
        self.0.retry
    }

    /// The request that failed, if known.
    pub fn operation(&self) -> Option<&'static str> {
        self.0.operation
    }

    /// The object's URL, if known.
    pub fn object(&self) -> Option<&str> {
        self.0.object.as_deref()
    }

    /// Why, without operation, object and hint.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The HTTP status that the store answered, if one did.
    pub fn http_status(&self) -> Option<u16> {
        self.0.http_status
    }

    /// The code by which the store's service calls the failure, if it told one.
    pub fn service_code(&self) -> Option<&str> {
        self.0.service_code.as_deref()
    }

    /// Whether a read was not answered because the reader has this version already (304).
    pub fn is_not_modified(&self) -> bool {
        self.0.kind == Kind::Conflict && self.0.http_status == Some(304)
    }

    /// The tag of the version that is there, without its quotes, if the store told it.
    pub fn etag(&self) -> Option<&str> {
        self.0.etag.as_deref()
    }

    /// Whether the request that failed is known to have carried no credentials.
    pub fn was_unsigned(&self) -> bool {
        self.0.was_unsigned
    }

    /// What to do next, if something better than the kind's own advice is known.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }
}

impl Error {
    /// What failed and why, without the hint, for those that show it by itself.
    pub fn without_hint(&self) -> String {
        struct Why<'a>(&'a Error);
        impl fmt::Display for Why<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.why(f)
            }
        }
        Why(self).to_string()
    }

    fn why(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        match (inner.operation, &inner.object) {
            (Some(operation), Some(object)) => write!(f, "{operation} {object}: ")?,
            (Some(operation), None) => write!(f, "{operation}: ")?,
            (None, Some(object)) => write!(f, "{object}: ")?,
            (None, None) => {}
        }
        f.write_str(&inner.message)?;
        if let Some(source) = &inner.source {
            let cause = redacted(source.to_string(), redact::text);
            if !inner.message.contains(&cause) {
                write!(f, ": {cause}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why(f)?;
        let inner = &*self.0;
        if let Some(hint) = &inner.hint {
            let is_asked = inner.source.is_none() && inner.message.ends_with('?');
            write!(f, "{} {hint}", if is_asked { "" } else { "." })?;
        }
        Ok(())
    }
}

/// By hand: a source's own `Debug` may show what its text holds.
impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = self.source.as_ref().map(|it| redacted(it.to_string(), redact::text));
        f.debug_struct("Inner")
            .field("kind", &self.kind)
            .field("retry", &self.retry)
            .field("message", &self.message)
            .field("operation", &self.operation)
            .field("object", &self.object)
            .field("hint", &self.hint)
            .field("http_status", &self.http_status)
            .field("service_code", &self.service_code)
            .field("etag", &self.etag)
            .field("was_unsigned", &self.was_unsigned)
            .field("source", &source)
            .finish()
    }
}

/// A text without its secrets; the text itself where it has none.
fn redacted(text: String, by: fn(&str) -> Cow<'_, str>) -> String {
    match by(&text) {
        Cow::Owned(shown) => shown,
        Cow::Borrowed(_) => text,
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_names_operation_object_cause_and_cure() {
        let error = Error::new(Kind::Denied, "the store refused the key (403 AccessDenied)")
            .with_operation("GET")
            .with_object("s3://lake/t.parquet")
            .with_hint("Check the secret that `FROM which_secret(...)` names");
        assert_eq!(
            error.to_string(),
            "GET s3://lake/t.parquet: the store refused the key (403 AccessDenied). \
             Check the secret that `FROM which_secret(...)` names"
        );
    }

    #[test]
    fn no_text_of_an_error_shows_a_secret() {
        let url = "https://u:MARK1@h/x?sig=MARK2";
        let cause = std::io::Error::other(format!("{url}: no such host"));
        let error = Error::new(Kind::Denied, format!("`{url}` was refused"))
            .with_object(format!("{url}&se=1"))
            .with_hint(format!("Look at {url}"))
            .with_note(format_args!("asked {url} twice"))
            .with_service_code("X?token=MARK3")
            .with_source(cause);
        for shown in [error.to_string(), format!("{error:?}"), error.again().to_string()] {
            assert!(!shown.contains("MARK"), "{shown}");
            assert!(shown.contains("https://***@h/x?sig=***"), "{shown}");
        }
        assert_eq!(error.object(), Some("https://***@h/x?sig=***&se=***"));
    }

    #[test]
    fn innermost_context_wins() {
        let error =
            Error::new(Kind::NotFound, "gone").with_object("s3://a/b").with_object("s3://outer");
        assert_eq!(error.object(), Some("s3://a/b"));
    }

    #[test]
    fn every_kind_is_in_the_table_once() {
        for (index, row) in Kind::ALL.iter().enumerate() {
            assert_eq!(row.0 as usize, index + 1, "{} is out of order", row.1);
        }
    }
}

//! From an answer's status and code to [`Kind`] and [`Retry`], and the words of errors.

use super::codes::{CONDITIONS, OBJECT, code_verdict, missing_thing};
use crate::answer::{parse_http_date, parse_iso_date, text_header};
use crate::http::HttpResponse;
use crate::versions::{MARKER, MARKER_VERSION};
use crate::{ETag, advice};
use ::http::HeaderMap;
use ::http::header::{CONTENT_TYPE, DATE, ETAG, LOCATION, RETRY_AFTER};
use penstock_base::{Error, Kind, Retry};
use std::time::{Duration, SystemTime};

/// Most bytes of an error answer that are looked at.
const ERROR_BODY_BYTES_MAX: usize = 64 << 10;
/// A clock that is off by more than this explains a refused signature (S3 allows 15 minutes, but
/// names the cause only sometimes).
const CLOCK_SKEW_NOTABLE: Duration = Duration::from_secs(300);
/// Longest Retry-After that is believed.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// What a failed answer says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failure {
    pub status: u16,
    /// S3 or Azure error code, or empty.
    pub code: String,
    /// The service's own words, or empty.
    pub message: String,
    /// The region that S3 names as the right one.
    pub region: Option<String>,
    /// The size that S3 tells with an unsatisfiable range.
    pub object_size: Option<u64>,
    /// The body is a web page, so no object store wrote it.
    pub is_html: bool,
    /// The tag of what is there, as answers to conditions tell it.
    pub etag: Option<String>,
    /// S3: a delete marker stands where the object was, or is the version that was asked for. Its
    /// id, as far as the service tells it.
    pub marker: Option<String>,
    /// Where a redirect points.
    pub location: Option<String>,
    /// How far the server's clock is ahead of ours, in seconds.
    pub clock_ahead_s: Option<i64>,
    pub retry_after: Option<Duration>,
    /// Name of the secret that the request was signed with, for the words of the advice.
    pub secret_name: Option<String>,
    /// The secret has its key from the environment's variables.
    pub is_key_of_environment: bool,
    /// What to do where the credentials were the environment's.
    pub environment_hint: Option<String>,
    /// The request carried no credentials.
    pub was_unsigned: bool,
}

impl Failure {
    /// Reads what a failed answer says, and gives its connection back.
    pub(crate) async fn read(mut response: HttpResponse) -> Failure {
        let body = response.body.read_to_bytes(ERROR_BODY_BYTES_MAX).await.unwrap_or_default();
        Failure::parse(response.status, &response.headers, &body, SystemTime::now())
    }

    pub(crate) fn parse(status: u16, headers: &HeaderMap, body: &[u8], now: SystemTime) -> Self {
        let mut failure = Failure {
            status,
            code: ["x-ms-error-code", "x-error-code"]
                .iter()
                .find_map(|name| text_header(headers, name))
                .unwrap_or_default(),
            region: text_header(headers, "x-amz-bucket-region"),
            etag: tag_of_condition(status, headers),
            marker: delete_marker(headers),
            location: text_header(headers, LOCATION.as_str()),
            retry_after: retry_after(headers, now),
            clock_ahead_s: clock_ahead(headers, now),
            ..Failure::default()
        };
        failure.read_body(headers, body, now);
        if failure.message.is_empty() {
            let told = text_header(headers, "x-error-message").unwrap_or_default();
            failure.message = first_line(&told);
        }
        failure
    }

    fn read_body(&mut self, headers: &HeaderMap, body: &[u8], now: SystemTime) {
        let text = body.trim_ascii_start();
        let media_type = text_header(headers, CONTENT_TYPE.as_str()).unwrap_or_default();
        let begins = |prefix: &str| {
            text.len() >= prefix.len()
                && text[..prefix.len()].eq_ignore_ascii_case(prefix.as_bytes())
        };
        self.is_html = begins("<!doctype html")
            || begins("<html")
            || (media_type.starts_with("text/html") && !begins("<?xml") && !text.is_empty());
        if self.is_html {
            return;
        }
        // ADLS answers JSON: {"error":{"code":"...","message":"..."}}.
        if begins("{") {
            if let Ok(json) = serde_json::from_slice::<serde_json::Value>(text) {
                let field = |name: &str| {
                    let found = json.get("error").and_then(|error| error.get(name));
                    found.and_then(|value| value.as_str()).unwrap_or_default().to_string()
                };
                if self.code.is_empty() {
                    self.code = field("code");
                }
                self.message = first_line(&field("message"));
            }
            return;
        }
        let (mut code, mut message) = (String::new(), String::new());
        // A body that is no XML just tells nothing more.
        let _ = crate::xml::walk(text, |element| {
            match element.path.last().map(String::as_str) {
                Some("Code") if element.path.len() <= 3 => code = element.text.trim().to_string(),
                Some("Message") if element.path.len() <= 3 => message = first_line(element.text),
                Some("Region") if element.path.len() == 2 => {
                    self.region = Some(element.text.trim().to_string());
                }
                Some("ServerTime") => {
                    let server = parse_iso_date(element.text);
                    self.clock_ahead_s = server.and_then(|server| seconds_ahead(server, now));
                }
                Some("ActualObjectSize") => self.object_size = element.text.trim().parse().ok(),
                _ => {}
            }
            Ok(())
        });
        if self.code.is_empty() {
            self.code = code;
        }
        self.message = message;
    }

    /// The code of a delete marker, in the form that all stores have it in.
    pub(crate) fn marker_code(&self) -> Option<String> {
        let form = if self.status == 405 { MARKER_VERSION } else { MARKER };
        self.marker.as_ref().map(|id| format!("{form}{id}"))
    }

    /// Whether the service says that it knows no such request, or a header of it: by the status, or
    /// by the code under another status, as some appliances do.
    pub(crate) fn is_not_implemented(&self) -> bool {
        self.status == 501 || self.code == "NotImplemented"
    }

    /// What the caller can do about it. One row per meaning; the first that fits wins.
    pub(crate) fn verdict(&self) -> (Kind, Retry) {
        let wait = self.retry_after.map_or(Retry::BackOff, Retry::After);
        if self.marker.is_some() {
            return (Kind::NotFound, Retry::Never);
        }
        if let Some((kind, retryable)) = code_verdict(&self.code) {
            return (kind, if retryable { wait } else { Retry::Never });
        }
        match self.status {
            404 | 410 => (Kind::NotFound, Retry::Never),
            401 | 403 | 407 => (Kind::Denied, Retry::Never),
            304 | 409 | 412 => (Kind::Conflict, Retry::Never),
            429 | 503 => (Kind::Throttled, wait),
            405 | 501 => (Kind::Unsupported, Retry::Never),
            507 => (Kind::Exhausted, Retry::Never),
            408 | 425 | 500..=599 => (Kind::Unavailable, wait),
            // The server has begun something, and has no object yet.
            202 => match self.retry_after {
                Some(after) => (Kind::Unavailable, Retry::After(after)),
                None => (Kind::Unavailable, Retry::Briefly),
            },
            300..=499 => (Kind::Invalid, Retry::Never),
            // A proxy on the way may do better at the next request.
            200..=299 if self.is_html => (Kind::Corrupt, Retry::Briefly),
            200..=299 => (Kind::Corrupt, Retry::Never),
            // No status that HTTP knows: no store wrote it.
            _ => (Kind::Corrupt, Retry::Briefly),
        }
    }

    /// Whether a conflict is that of a condition, as far as the answer tells.
    fn is_condition(&self) -> bool {
        self.code.is_empty() || CONDITIONS.contains(&self.code.as_str())
    }

    /// The error, without operation and object. `hint` may know better than the general advice.
    pub(crate) fn into_error(self, hint: Option<String>) -> Error {
        let (kind, retry) = self.verdict();
        let label = if self.code.is_empty() {
            self.status.to_string()
        } else {
            format!("{} {}", self.status, self.code)
        };
        let mut text = match kind {
            Kind::NotFound => format!("{} ({label})", missing_thing(&self.code)),
            Kind::Denied => format!("the store refused the request ({label})"),
            Kind::Conflict if self.status == 304 => format!("the object has not changed ({label})"),
            Kind::Conflict if self.is_condition() => {
                format!("the object changed or exists already ({label})")
            }
            Kind::Conflict => format!("what is there stands against the request ({label})"),
            Kind::Unavailable if self.status == 202 => {
                format!("the server has no object yet, and says to ask later ({label})")
            }
            Kind::Corrupt if self.status < 300 => {
                format!("the server answered {label}, which is no object and no success")
            }
            Kind::Throttled => format!("the store asks to slow down ({label})"),
            Kind::Unavailable => format!("the store failed on its side ({label})"),
            Kind::Exhausted => format!("the store has no space left ({label})"),
            _ => format!("the store answered {label}"),
        };
        if self.is_html {
            text.push_str(", with a web page instead of an object store's answer");
        } else if !self.message.is_empty()
            && !says_the_same(missing_thing(&self.code), &self.message)
        {
            text.push_str(": ");
            text.push_str(&self.message);
        }
        let error = Error::new(kind, text)
            .with_retry(retry)
            .with_http_status(self.status)
            .with_service_code(self.marker_code().unwrap_or_else(|| self.code.clone()))
            .with_etag(self.etag.clone())
            .with_unsigned(self.was_unsigned);
        match self.own_hint(kind).or(hint) {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }

    /// What to do about a missing object of this URL, which may be meant as a directory; `None` for
    /// other failures, and for other things that are missing.
    pub(crate) fn missing_object_hint(&self, url: &str) -> Option<String> {
        let is_object = self.verdict().0 == Kind::NotFound && missing_thing(&self.code) == OBJECT;
        let directory = url.trim_end_matches('/');
        is_object.then(|| {
            format!(
                "List the parent to see what is there; to read a directory use \
                 `{directory}/*.parquet`"
            )
        })
    }

    /// Advice that follows from the answer alone, and is surer than any store's general one.
    fn own_hint(&self, kind: Kind) -> Option<String> {
        let is_signature_error =
            kind == Kind::Denied || matches!(self.code.as_str(), "RequestTimeTooSkewed");
        if is_signature_error && let Some(hint) = self.clock_hint() {
            return Some(hint);
        }
        if self.is_html {
            return Some(
                "Is there a proxy or login page in between, or is the endpoint a web console?"
                    .to_string(),
            );
        }
        if let Some(told) = hint_of_status(self.status) {
            return Some(told.to_string());
        }
        if kind == Kind::Exhausted {
            return Some("Free space at the store, or write to another one".to_string());
        }
        if kind == Kind::Denied && self.environment_hint.is_some() {
            return self.environment_hint.clone();
        }
        let secret = self.secret_name.as_deref();
        let values = |names: &[&str]| match self.is_key_of_environment {
            true => advice::values_of_environment(secret, names),
            false => advice::values(secret, names),
        };
        let told = match self.code.as_str() {
            "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired" => {
                let renew = match self.is_key_of_environment {
                    true => format!("renew {}", values(&["key_id", "secret", "session_token"])),
                    false => advice::renew(self.secret_name.as_deref()),
                };
                return Some(format!("The temporary credentials have expired: {renew}"));
            }
            "InvalidAccessKeyId" => {
                return Some(format!(
                    "The store does not know the key: check {}",
                    values(&["key_id"])
                ));
            }
            "SignatureDoesNotMatch" => {
                let values = values(&["secret", "region", "endpoint"]);
                return Some(format!("Check {values} for slips and lost characters"));
            }
            "RequestTimeTooSkewed" | "RequestExpired" => {
                "This machine's clock and the server's differ too much: set the clock, since \
                 signatures carry the time"
            }
            "InvalidToken" => return Some(format!("Check {}", values(&["session_token"]))),
            "InvalidObjectState" | "BlobArchived" => {
                "The object is in an archive tier: restore it before reading"
            }
            "BlobBeingRehydrated" => {
                "The object is on its way out of an archive tier: wait until it is there"
            }
            "InvalidBucketName" => {
                "A bucket's name has 3 to 63 lower-case letters, digits, dots and hyphens"
            }
            "InvalidResourceName" => {
                "A container's name has 3 to 63 lower-case letters, digits and single hyphens"
            }
            "NoSuchBucket" => "Check the bucket's name and the endpoint",
            "ContainerNotFound" | "FilesystemNotFound" => "Check the container and account names",
            _ => return None,
        };
        Some(told.to_string())
    }

    fn clock_hint(&self) -> Option<String> {
        let ahead = self.clock_ahead_s?;
        if ahead.unsigned_abs() < CLOCK_SKEW_NOTABLE.as_secs() {
            return None;
        }
        let direction = if ahead > 0 { "behind" } else { "ahead of" };
        let (minutes, seconds) = (ahead.unsigned_abs() / 60, ahead.unsigned_abs() % 60);
        Some(format!(
            "This machine's clock is {minutes} min {seconds} s {direction} the server's: set the \
             clock, since signatures carry the time"
        ))
    }
}

/// Advice for what only plain web servers and what stands before them answer.
fn hint_of_status(status: u16) -> Option<&'static str> {
    Some(match status {
        300 => "The URL stands for several variants: name one of them",
        411 => {
            "It wants a length of a request without a body: is a proxy in between, or does the URL \
             take uploads only?"
        }
        _ => return None,
    })
}

/// The tag that an answer about a condition tells of what is there.
fn tag_of_condition(status: u16, headers: &HeaderMap) -> Option<String> {
    let told = text_header(headers, ETAG.as_str()).filter(|_| matches!(status, 304 | 412))?;
    Some(ETag::parse(&told).0).filter(|tag| !tag.is_empty())
}

/// Whether a service's message tells no more than our own words.
fn says_the_same(ours: &str, message: &str) -> bool {
    let plain = message.trim().trim_end_matches('.').to_ascii_lowercase().replace("specified ", "");
    plain == ours
}

fn clock_ahead(headers: &HeaderMap, now: SystemTime) -> Option<i64> {
    seconds_ahead(parse_http_date(&text_header(headers, DATE.as_str())?)?, now)
}

fn seconds_ahead(server: SystemTime, now: SystemTime) -> Option<i64> {
    let seconds = match server.duration_since(now) {
        Ok(ahead) => i64::try_from(ahead.as_secs()).ok()?,
        Err(behind) => -i64::try_from(behind.duration().as_secs()).ok()?,
    };
    Some(seconds)
}

fn delete_marker(headers: &HeaderMap) -> Option<String> {
    let is_told = text_header(headers, "x-amz-delete-marker").is_some_and(|told| told == "true");
    is_told.then(|| text_header(headers, "x-amz-version-id").unwrap_or_default())
}

fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    if let Some(wait) = text_header(headers, "x-ms-retry-after-ms")
        .or_else(|| text_header(headers, "retry-after-ms"))
        .and_then(|text| text.parse().ok())
    {
        return Some(Duration::from_millis(wait).min(RETRY_AFTER_MAX));
    }
    let Some(text) = text_header(headers, RETRY_AFTER.as_str()) else {
        return limit_ends(headers).map(|wait| wait.min(RETRY_AFTER_MAX));
    };
    let wait = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => parse_http_date(&text)?.duration_since(now).unwrap_or_default(),
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

/// `"api";r=0;t=55`: nothing is left of a limit, which begins anew in so many seconds (the draft of
/// RateLimit headers that the Hugging Face Hub follows).
fn limit_ends(headers: &HeaderMap) -> Option<Duration> {
    let text = text_header(headers, "ratelimit")?;
    let mut parameters = text.split(';').map(str::trim);
    let is_used_up = parameters.clone().any(|it| it == "r=0");
    let seconds = parameters.find_map(|it| it.strip_prefix("t=")?.parse().ok());
    seconds.filter(|_| is_used_up).map(Duration::from_secs)
}

fn first_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default().trim().trim_end_matches('.');
    line.chars().take(300).collect()
}

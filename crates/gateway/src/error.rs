//! Says a store's error in the words of S3: code, status, message.
//!
//! The store's URL stays out of the answer: where the gateway keeps its objects is no business of
//! its clients.

use crate::chunks::Fault;
use crate::exchange;
use crate::observed::STALLED;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};
use penstock_base::{Error, Kind};
use penstock_store::STORAGE_FULL;
use s3s::{S3Error, S3ErrorCode, StdError, s3_error};
use std::time::Duration;

const VERSION_ID: http::HeaderName = http::HeaderName::from_static("x-amz-version-id");

/// What was asked for, since S3 has a code of its own for each thing that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A bucket.
    Bucket,
    /// An object.
    Object,
    /// A multipart upload.
    Upload,
}

/// Translates an error about `subject`; the access log tells what is behind it.
pub fn to_s3(subject: Subject, error: Error) -> S3Error {
    let answer = translated(subject, &error);
    exchange::failed(answer.code().as_str(), &error);
    answer
}

fn translated(subject: Subject, error: &Error) -> S3Error {
    let reason = without_path(error.message());
    // Advice about secrets and endpoints is for the operator of the gateway, not for its clients.
    let is_full = error.service_code() == Some(STORAGE_FULL)
        || error.kind() == Kind::Exhausted && error.http_status() == Some(507);
    let is_for_clients = is_full || matches!(error.kind(), Kind::Invalid | Kind::Unsupported);
    let message = match error.hint().filter(|_| is_for_clients) {
        Some(hint) => format!("{reason}. {hint}"),
        None => reason.to_string(),
    };
    if let Some(answer) = error.service_code().and_then(delete_marker) {
        return answer;
    }
    if let Some(code) = error.service_code().and_then(own_code) {
        let words = error.service_code().and_then(words_on_conflict).or_else(|| own_words(&code));
        let message = words.map_or(message, str::to_string);
        let mut answer = S3Error::with_message(code, message);
        if answer.status_code().is_none() {
            answer.set_status_code(StatusCode::RANGE_NOT_SATISFIABLE);
        }
        return answer;
    }
    if is_full {
        // No code of S3's says this, and a 5xx other than 507 would be retried for long.
        return S3Error::with_message(S3ErrorCode::Custom(STORAGE_FULL.into()), message)
            .with_status(StatusCode::INSUFFICIENT_STORAGE);
    }
    let code = match error.kind() {
        Kind::NotFound => return missing(subject),
        Kind::Denied => S3ErrorCode::AccessDenied,
        Kind::Conflict if is_condition(error) => S3ErrorCode::PreconditionFailed,
        Kind::Conflict => S3ErrorCode::OperationAborted,
        Kind::Throttled => {
            return slow_down("The back end asks for fewer requests.", COME_AGAIN);
        }
        // Connections, descriptors, memory: what others hold now they give back.
        Kind::Exhausted => return slow_down("Please reduce your request rate.", COME_AGAIN),
        Kind::Unavailable => {
            let message = unavailable(error, &exchange::failing_back_ends()).unwrap_or(message);
            return S3Error::with_message(S3ErrorCode::ServiceUnavailable, message);
        }
        Kind::Invalid => S3ErrorCode::InvalidArgument,
        Kind::Unsupported => S3ErrorCode::NotImplemented,
        Kind::Corrupt | Kind::Cancelled | Kind::Internal => S3ErrorCode::InternalError,
    };
    S3Error::with_message(code, message)
}

/// What clients hear of back ends that are silent or broken: their names in the configuration. The
/// reasons name hosts and addresses, and are for the log. `None` for what is no server's fault, and
/// for what a server says of the request.
fn unavailable(error: &Error, names: &[String]) -> Option<String> {
    if error.http_status().is_some_and(|status| status < 500) {
        return None;
    }
    let names: Vec<String> = names.iter().map(|name| format!("`{name}` ")).collect();
    let who = match names.len() {
        0 if error.object().is_none_or(|url| url.starts_with("file:")) => return None,
        0 | 1 => format!("The back end {}", names.concat()),
        _ => format!("One of the back ends {}", names.concat()),
    };
    let what = match error.http_status() {
        Some(status) => format!("failed on its side ({status})"),
        None => "cannot be reached, or its answer does not come or breaks off".to_string(),
    };
    Some(format!("{who}{what}; please try again."))
}

/// The answer where a delete marker stands instead of an object, or is the version that was asked
/// for. Its id is told in both.
fn delete_marker(code: &str) -> Option<S3Error> {
    let (kind, id) = code.split_once(':')?;
    let mut error = match kind {
        "DeleteMarker" => missing(Subject::Object),
        "DeleteMarkerVersion" => s3_error!(
            MethodNotAllowed,
            "The specified method is not allowed against this resource: it is a delete marker."
        ),
        _ => return None,
    };
    let mut headers = HeaderMap::new();
    headers.insert("x-amz-delete-marker", HeaderValue::from_static("true"));
    let id = HeaderValue::from_str(id).ok().filter(|id| !id.is_empty());
    headers.extend(id.map(|id| (VERSION_ID, id)));
    error.set_headers(headers);
    Some(error)
}

/// The codes of back ends that mean the same to a client of the gateway.
fn own_code(code: &str) -> Option<S3ErrorCode> {
    Some(match code {
        "NoSuchBucket" | "ContainerNotFound" | "FilesystemNotFound" => S3ErrorCode::NoSuchBucket,
        "NoSuchUpload" => S3ErrorCode::NoSuchUpload,
        "NoSuchVersion" => S3ErrorCode::NoSuchVersion,
        "InvalidPartNumber" => S3ErrorCode::Custom("InvalidPartNumber".into()),
        "MethodNotAllowed" => S3ErrorCode::MethodNotAllowed,
        "InvalidPart" | "InvalidBlockList" => S3ErrorCode::InvalidPart,
        "InvalidPartOrder" => S3ErrorCode::InvalidPartOrder,
        "EntityTooSmall" => S3ErrorCode::EntityTooSmall,
        "EntityTooLarge" | "RequestBodyTooLarge" => S3ErrorCode::EntityTooLarge,
        "BadDigest" | "Md5Mismatch" => S3ErrorCode::BadDigest,
        "InvalidRange" => S3ErrorCode::InvalidRange,
        "InvalidStorageClass" | "InvalidBlobTier" => S3ErrorCode::InvalidStorageClass,
        "InvalidTag" | "InvalidTags" => S3ErrorCode::InvalidTag,
        "BucketNotEmpty" => S3ErrorCode::BucketNotEmpty,
        "BucketAlreadyExists" => S3ErrorCode::BucketAlreadyExists,
        "InvalidBucketName" | "InvalidResourceName" => S3ErrorCode::InvalidBucketName,
        "KeyTooLongError" => S3ErrorCode::KeyTooLongError,
        "InvalidObjectState" | "BlobArchived" | "BlobBeingRehydrated" => {
            S3ErrorCode::InvalidObjectState
        }
        "InvalidBucketState" => S3ErrorCode::InvalidBucketState,
        "ConditionalRequestConflict" => S3ErrorCode::ConditionalRequestConflict,
        "OperationAborted"
        | "PendingCopyOperation"
        | "BlobModifiedWhileReading"
        | "BlobOverwritten" => S3ErrorCode::OperationAborted,
        // As S3 says it of what object lock holds.
        code if IMMUTABLE.contains(&code) => S3ErrorCode::AccessDenied,
        // Sending these again cannot help.
        "InvalidRequest"
        | "InvalidBlobType"
        | "SnapshotsPresent"
        | "BlockCountExceedsLimit"
        | "BlobUsesCustomerSpecifiedEncryption" => S3ErrorCode::InvalidRequest,
        lease if lease.starts_with(LEASE) => S3ErrorCode::OperationAborted,
        _ => return None,
    })
}

/// What Azure says of blobs and containers that a policy of immutability or a legal hold keeps.
const IMMUTABLE: &[&str] = &[
    "BlobImmutableDueToLegalHold",
    "BlobImmutableDueToPolicy",
    "ContainerHasLegalHold",
    "ContainerImmutabilityPolicyLocked",
];
/// How the codes begin that Azure has for leases. The gateway takes none, so it is another's.
const LEASE: &str = "Lease";

/// Why the back end refused what no condition of the client's forbade, and what to do.
fn words_on_conflict(code: &str) -> Option<&'static str> {
    Some(match code {
        "InvalidBlobType" => {
            "Under this key the back end has an append or page blob: remove it, or write to \
             another key."
        }
        "SnapshotsPresent" => "The object has snapshots at the back end: remove those first.",
        "BlobUsesCustomerSpecifiedEncryption" => {
            "The object is encrypted with a key of a customer, which the gateway does not have."
        }
        "PendingCopyOperation" => {
            "A copy to this object is under way at the back end: try again when it has ended."
        }
        code if IMMUTABLE.contains(&code) => {
            "Access Denied: at the back end a policy of immutability or a legal hold keeps this \
             from being changed."
        }
        lease if lease.starts_with(LEASE) => {
            "Another program holds a lease on this at the back end: try again when it has let go."
        }
        _ => return None,
    })
}

/// Whether a conflict is that of a condition: by the service's code, else by its status. Where
/// neither is told it is a store of ours that judged the condition.
fn is_condition(error: &Error) -> bool {
    match (error.service_code(), error.http_status()) {
        (Some("BlobAlreadyExists" | "PathAlreadyExists"), _) => true,
        (_, Some(status)) => status != StatusCode::CONFLICT.as_u16(),
        (_, None) => true,
    }
}

/// What S3 says itself, where a back end's words tell no more.
fn own_words(code: &S3ErrorCode) -> Option<&'static str> {
    Some(match code {
        S3ErrorCode::NoSuchBucket => NO_SUCH_BUCKET,
        S3ErrorCode::NoSuchUpload => NO_SUCH_UPLOAD,
        S3ErrorCode::BucketNotEmpty => "The bucket you tried to delete is not empty.",
        S3ErrorCode::InvalidPart => NO_SUCH_PART,
        _ => return None,
    })
}

/// S3's words for a bucket that is not there.
pub(crate) const NO_SUCH_BUCKET: &str = "The specified bucket does not exist.";
/// S3's words for a part that is not there.
pub(crate) const NO_SUCH_PART: &str = "One or more of the specified parts could not be found. The \
                                       part may not have been uploaded, or the specified entity \
                                       tag may not match the part's entity tag.";
pub(crate) const NO_SUCH_UPLOAD: &str = "The specified multipart upload does not exist. The \
                                         upload ID may be invalid, or the upload may have been \
                                         aborted or completed.";

/// What is asked for when nobody says how long it takes.
const COME_AGAIN: Duration = Duration::from_secs(1);

/// Tells a client to come again after a while.
pub fn slow_down(why: &str, wait: Duration) -> S3Error {
    let mut error = S3Error::with_message(S3ErrorCode::SlowDown, why.to_string());
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let mut headers = HeaderMap::new();
    headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    error.set_headers(headers);
    error
}

/// Says what is not there, in the words that S3 uses.
fn missing(subject: Subject) -> S3Error {
    match subject {
        Subject::Bucket => s3_error!(NoSuchBucket, "{NO_SUCH_BUCKET}"),
        Subject::Object => s3_error!(NoSuchKey, "The specified key does not exist."),
        Subject::Upload => s3_error!(NoSuchUpload, "{NO_SUCH_UPLOAD}"),
    }
}

/// Cuts the system call and its path, which a local store puts in parentheses at the end.
fn without_path(message: &str) -> &str {
    match message.rsplit_once(" (") {
        Some((reason, detail)) if detail.contains("`/") => reason,
        _ => message,
    }
}

/// Translates what broke a request body. s3s keeps the types of these errors to itself, so their
/// names are read from the text; a test sends each of them.
pub fn body_error(error: &StdError) -> S3Error {
    if let Some(fault) = error.downcast_ref::<Fault>() {
        return chunks_error(*fault);
    }
    let text = error.to_string();
    let has = |part: &str| text.contains(part);
    if has("Sha256Mismatch") {
        return S3Error::with_message(
            S3ErrorCode::Custom("XAmzContentSHA256Mismatch".into()),
            "The provided 'x-amz-content-sha256' header does not match what was computed.",
        )
        .with_status(StatusCode::BAD_REQUEST);
    }
    if has(STALLED) {
        let why = "Your socket connection to the server was not read from or written to within \
                   the timeout period.";
        return s3_error!(RequestTimeout, "{why}");
    }
    s3_error!(
        IncompleteBody,
        "You did not provide the number of bytes specified by the Content-Length HTTP header."
    )
}

fn chunks_error(fault: Fault) -> S3Error {
    match fault {
        Fault::Signature => {
            s3_error!(SignatureDoesNotMatch, "The signature of a chunk does not match.")
        }
        // As S3 has it.
        Fault::Malformed => s3_error!(
            IncompleteBody,
            "The request body terminated unexpectedly: what frames its chunks is malformed."
        ),
        Fault::NoTrailer => s3_error!(
            InvalidRequest,
            "The trailer of the aws-chunked body did not come, and its signature neither."
        ),
        Fault::Unannounced => S3Error::with_message(
            S3ErrorCode::Custom("MalformedTrailerError".into()),
            "The request contained trailing data that its x-amz-trailer does not announce.",
        )
        .with_status(StatusCode::BAD_REQUEST),
        Fault::NoLastChunk => {
            s3_error!(IncompleteBody, "The aws-chunked body ends before its last chunk.")
        }
    }
}

trait WithStatus {
    fn with_status(self, status: StatusCode) -> Self;
}

impl WithStatus for S3Error {
    fn with_status(mut self, status: StatusCode) -> Self {
        self.set_status_code(status);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_status_and_hides_the_place() {
        for (kind, name, _) in Kind::ALL {
            let why = "the reason (write `/srv/secret-place/b/k`, os error 28)";
            let error = Error::new(*kind, why).with_object("file:///srv/secret-place/b/k");
            let answer = to_s3(Subject::Object, error);
            assert!(answer.status_code().is_some(), "{name}");
            assert!(!answer.message().unwrap().contains("secret-place"), "{name}");
        }
    }

    #[test]
    fn conflicts_that_are_no_conditions_have_codes_of_their_own() {
        for (status, service, kind, told, code) in [
            (403, "InvalidObjectState", Kind::Unsupported, 403, "InvalidObjectState"),
            (409, "BlobArchived", Kind::Unsupported, 403, "InvalidObjectState"),
            (409, "BlobBeingRehydrated", Kind::Unsupported, 403, "InvalidObjectState"),
            (412, "LeaseIdMissing", Kind::Conflict, 409, "OperationAborted"),
            (409, "LeaseAlreadyPresent", Kind::Conflict, 409, "OperationAborted"),
            (409, "PendingCopyOperation", Kind::Conflict, 409, "OperationAborted"),
            (409, "BlobImmutableDueToPolicy", Kind::Conflict, 403, "AccessDenied"),
            (409, "ContainerHasLegalHold", Kind::Conflict, 403, "AccessDenied"),
            (409, "InvalidBlobType", Kind::Conflict, 400, "InvalidRequest"),
            (409, "SnapshotsPresent", Kind::Conflict, 400, "InvalidRequest"),
            (409, "OperationAborted", Kind::Conflict, 409, "OperationAborted"),
            (409, "ConditionalRequestConflict", Kind::Conflict, 409, "ConditionalRequestConflict"),
            (409, "InvalidBucketState", Kind::Conflict, 409, "InvalidBucketState"),
            (409, "SomethingNew", Kind::Conflict, 409, "OperationAborted"),
            // Those of conditions.
            (412, "PreconditionFailed", Kind::Conflict, 412, "PreconditionFailed"),
            (412, "ConditionNotMet", Kind::Conflict, 412, "PreconditionFailed"),
            (409, "BlobAlreadyExists", Kind::Conflict, 412, "PreconditionFailed"),
            (412, "", Kind::Conflict, 412, "PreconditionFailed"),
        ] {
            let error = Error::new(kind, "refused").with_http_status(status);
            let answer = to_s3(Subject::Object, error.with_service_code(service));
            let found = (answer.status_code().unwrap().as_u16(), answer.code().as_str());
            assert_eq!(found, (told, code), "{service}");
        }
        let ours = to_s3(Subject::Object, Error::new(Kind::Conflict, "the file exists already"));
        assert_eq!(*ours.code(), S3ErrorCode::PreconditionFailed);
    }

    #[test]
    fn a_full_disk_is_no_reason_to_come_again_and_what_is_in_use_is() {
        let full = Error::new(Kind::Exhausted, "the disk is full").with_service_code(STORAGE_FULL);
        let behind = Error::new(Kind::Exhausted, "no space left (507)").with_http_status(507);
        let hint = "Raise the setting connections_per_host";
        let in_use = Error::new(Kind::Exhausted, "all connections are in use").with_hint(hint);
        for (error, status, code) in [
            (full, 507, "StorageFull"),
            (behind, 507, "StorageFull"),
            (in_use, 503, "SlowDown"),
            (Error::new(Kind::Throttled, "busy"), 503, "SlowDown"),
            (Error::new(Kind::Unavailable, "down"), 503, "ServiceUnavailable"),
        ] {
            let answer = to_s3(Subject::Object, error);
            assert_eq!(
                (answer.status_code().unwrap().as_u16(), answer.code().as_str()),
                (status, code)
            );
            let waits = answer.headers().is_some_and(|headers| headers.contains_key(RETRY_AFTER));
            assert_eq!(waits, code == "SlowDown");
            assert!(!answer.message().unwrap().contains("Raise"));
        }
    }

    #[test]
    fn of_a_back_end_that_is_away_clients_hear_its_name_and_no_address() {
        let down = || {
            let why = "no connection to store.example (192.0.2.7:443)";
            Error::new(Kind::Unavailable, why).with_object("s3://raw/k")
        };
        let told = |error: &Error, names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            unavailable(error, &names).unwrap()
        };
        let failed = down().with_http_status(500);
        for (said, begins) in [
            (told(&down(), &["blob"]), "The back end `blob` cannot be reached"),
            (told(&failed, &["blob"]), "The back end `blob` failed on its side (500)"),
            (told(&down(), &[]), "The back end cannot be reached"),
            (told(&down(), &["a", "b"]), "One of the back ends `a` `b` cannot be reached"),
        ] {
            assert!(said.starts_with(begins) && !said.contains("192.0.2.7"), "{said}");
        }
        let disk = Error::new(Kind::Unavailable, "I/O error").with_object("file:///data/k");
        assert_eq!(unavailable(&disk, &[]), None);
        assert_eq!(to_s3(Subject::Object, disk).message(), Some("I/O error"));
    }

    #[test]
    fn what_is_missing_has_its_own_code() {
        let missing = |subject| to_s3(subject, Error::new(Kind::NotFound, "gone")).code().clone();
        assert_eq!(missing(Subject::Bucket), S3ErrorCode::NoSuchBucket);
        assert_eq!(missing(Subject::Object), S3ErrorCode::NoSuchKey);
        assert_eq!(missing(Subject::Upload), S3ErrorCode::NoSuchUpload);
    }
}

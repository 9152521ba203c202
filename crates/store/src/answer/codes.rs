//! What the error codes of S3, Azure and the Hub mean. Pure.

use penstock_base::Kind;

/// Codes for credentials that are missing, wrong, expired or lack a right.
const DENIED: &[&str] = &[
    "AccessDenied",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "ExpiredTokenException",
    "TokenRefreshRequired",
    "InvalidToken",
    "RequestTimeTooSkewed",
    "RequestExpired",
    "AuthenticationFailed",
    "AuthorizationFailure",
    "AuthorizationPermissionMismatch",
    "NoAuthenticationInformation",
    "InvalidAuthenticationInfo",
    "PublicAccessNotPermitted",
    "AccountProblem",
    "InvalidPayer",
    "AllAccessDisabled",
    "UnauthorizedAccess",
];

/// Codes for conditions that did not hold.
pub(super) const CONDITIONS: &[&str] = &[
    "PreconditionFailed",
    "ConditionNotMet",
    "BlobAlreadyExists",
    "PathAlreadyExists",
    "TargetConditionNotMet",
    "SourceConditionNotMet",
];

/// The meaning of a service's error code, and whether another try can help.
pub(super) fn code_verdict(code: &str) -> Option<(Kind, bool)> {
    Some(match code {
        "NoSuchKey" | "NoSuchBucket" | "NoSuchUpload" | "NoSuchVersion" | "BlobNotFound"
        | "ContainerNotFound" | "ResourceNotFound" | "PathNotFound" | "FilesystemNotFound" => {
            (Kind::NotFound, false)
        }
        "ContainerBeingDeleted" | "ContainerBeingCreated" => (Kind::Unavailable, true),
        code if DENIED.contains(&code) => (Kind::Denied, false),
        code if CONDITIONS.contains(&code) => (Kind::Conflict, false),
        // Another write of the same key was under way; its outcome is not known yet.
        "ConditionalRequestConflict" | "OperationAborted" => (Kind::Conflict, true),
        "SlowDown"
        | "SlowDownRead"
        | "SlowDownWrite"
        | "ServerBusy"
        | "Throttling"
        | "ThrottlingException"
        | "RequestLimitExceeded"
        | "TooManyRequests"
        | "BandwidthLimitExceeded"
        | "RequestThrottled" => (Kind::Throttled, true),
        "InternalError"
        | "ServiceUnavailable"
        | "RequestTimeout"
        | "OperationTimedOut"
        | "XMinioServerNotInitialized"
        | "IncompleteBody" => (Kind::Unavailable, true),
        "BadDigest"
        | "InvalidDigest"
        | "Md5Mismatch"
        | "Crc64Mismatch"
        | "XAmzContentChecksumMismatch"
        | "XAmzContentSHA256Mismatch" => (Kind::Corrupt, true),
        "NotImplemented"
        | "MethodNotAllowed"
        | "UnsupportedHttpVerb"
        | "InvalidObjectState"
        | "BlobArchived"
        | "BlobBeingRehydrated"
        | "BlobOperationNotSupported"
        | "BlobTagsNotSupportedForAccountType"
        | "FeatureNotSupported"
        | "BlobTypeNotSupported" => (Kind::Unsupported, false),
        "AuthorizationHeaderMalformed"
        | "IllegalLocationConstraintException"
        | "PermanentRedirect"
        | "TemporaryRedirect"
        | "InvalidBucketName"
        | "InvalidArgument"
        | "InvalidRequest"
        | "EntityTooLarge"
        | "EntityTooSmall"
        | "KeyTooLongError" => (Kind::Invalid, false),
        _ => return None,
    })
}

/// What is missing where no code tells otherwise.
pub(super) const OBJECT: &str = "the object does not exist";

/// What is missing, by the code that says so.
pub(super) fn missing_thing(code: &str) -> &'static str {
    match code {
        "NoSuchBucket" => "the bucket does not exist",
        "ContainerNotFound" | "FilesystemNotFound" => "the container does not exist",
        "NoSuchUpload" => "the upload does not exist (any more)",
        "RepoNotFound" => "the repository does not exist",
        "RevisionNotFound" => "the repository has no such revision",
        _ => OBJECT,
    }
}

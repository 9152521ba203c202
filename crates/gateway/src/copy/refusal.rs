//! What copies say no with: errors about their sources in the words of copies. Pure.

use crate::get::about_object;
use s3s::{S3Error, S3ErrorCode, s3_error};

/// A copy knows no 304: every condition that does not hold is a failed one.
pub(super) fn no_304(error: S3Error) -> S3Error {
    match error.code() {
        S3ErrorCode::NotModified => s3_error!(
            PreconditionFailed,
            "At least one of the pre-conditions you specified did not hold"
        ),
        _ => error,
    }
}

/// What a store says of a source.
pub(super) fn about_source(error: penstock_base::Error) -> S3Error {
    no_marker(about_object(error))
}

/// A delete marker that is named is a source that nobody should have named.
pub(super) fn no_marker(error: S3Error) -> S3Error {
    match error.code() {
        S3ErrorCode::MethodNotAllowed => s3_error!(
            InvalidRequest,
            "The source of a copy request may not specifically refer to a delete marker by \
             version id."
        ),
        _ => error,
    }
}

/// Where the client set no condition, one that failed was the gateway's own: what it had seen has
/// changed meanwhile.
pub(crate) fn came_between(error: S3Error) -> S3Error {
    match error.code() {
        S3ErrorCode::PreconditionFailed => s3_error!(
            OperationAborted,
            "A conflicting conditional operation is currently in progress against this resource: \
             another write came between. Please try again."
        ),
        _ => error,
    }
}

/// Of an object onto itself.
pub(super) fn changes_nothing() -> S3Error {
    s3_error!(
        InvalidRequest,
        "This copy request is illegal because it is trying to copy an object to itself without \
         changing the object's metadata or storage class."
    )
}

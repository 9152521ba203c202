//! Takes a request body into the store: hashed as it passes, whole in memory never, placed only
//! once every checksum agrees.

use crate::checksum::Verifier;
use crate::error::{Subject, body_error, to_s3};
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::HeaderMap;
use penstock_store::local::Staged;
use s3s::dto::{self, StreamingBlob};
use s3s::{S3Result, StdError, TrailingHeaders, s3_error};
use std::time::Duration;

/// Largest body of one PUT or part, as in S3.
const BODY_BYTES_MAX: i64 = 5 << 30;

/// Longest wait for the next bytes of a body, after which its sender counts as gone.
const STALL_MAX: Duration = Duration::from_secs(60);

/// Refuses a body that is too large before a byte of it is read.
///
/// # Errors
/// `EntityTooLarge`.
pub fn check_length(content_length: Option<i64>) -> S3Result<()> {
    if content_length.is_some_and(|length| length > BODY_BYTES_MAX) {
        return Err(s3_error!(
            EntityTooLarge,
            "Your proposed upload exceeds the maximum allowed size of 5 GiB; use a multipart upload."
        ));
    }
    Ok(())
}

/// Writes the body to `staged` and checks it. On an error the caller drops `staged`, and nothing
/// is left of it.
///
/// # Errors
/// `BadDigest`, `IncompleteBody`, `SignatureDoesNotMatch`, or what the store says.
pub async fn receive(
    staged: &mut Staged,
    body: Option<StreamingBlob>,
    headers: &HeaderMap,
    trailers: Option<TrailingHeaders>,
) -> S3Result<dto::Checksum> {
    let mut verifier = Verifier::from_headers(headers)?;
    if let Some(mut body) = body {
        while let Some(piece) = next_piece(&mut body).await? {
            let piece = piece.map_err(|error| body_error(&error))?;
            verifier.update(&piece);
            staged.write(piece).await.map_err(|error| to_s3(Subject::Object, error))?;
        }
    }
    let trailers = trailers.and_then(|trailers| trailers.take());
    verifier.finish(trailers.as_ref())
}

async fn next_piece(body: &mut StreamingBlob) -> S3Result<Option<Result<Bytes, StdError>>> {
    tokio::time::timeout(STALL_MAX, body.next()).await.map_err(|_| {
        s3_error!(
            RequestTimeout,
            "Your socket connection to the server was not written to within the timeout period."
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use s3s::S3ErrorCode;

    #[tokio::test(start_paused = true)]
    async fn a_sender_that_stalls_is_given_up() {
        let silent = futures_util::stream::pending::<Result<Bytes, std::io::Error>>();
        let error = next_piece(&mut StreamingBlob::wrap(silent)).await.unwrap_err();
        assert_eq!(error.code(), &S3ErrorCode::RequestTimeout);
    }

    #[test]
    fn five_gibibytes_are_the_most() {
        assert!(check_length(Some(BODY_BYTES_MAX)).is_ok() && check_length(None).is_ok());
        assert!(check_length(Some(BODY_BYTES_MAX + 1)).is_err());
    }
}

//! PutObjectTagging where lists and policies judge: by the tags in its body, which a policy may ask
//! for, and by what the bucket says once that is there.

use super::Asker;
use crate::auth::Caller;
use crate::buckets::Buckets;
use crate::judged::Judged;
use http::HeaderName;
use penstock_store::tags;
use s3s::{S3Request, S3Result, dto, s3_error};

/// The header by which a policy knows the tags that a request brings.
const TAGGING: HeaderName = HeaderName::from_static("x-amz-tagging");

/// Whether the sender may give the object these tags.
///
/// # Errors
/// `AccessDenied`; `OperationAborted` where the bucket is another's by now; `MalformedPolicy` of
/// notes that nobody wrote; what the back end says.
pub(crate) async fn permit_tags(
    buckets: &Buckets,
    request: &S3Request<dto::PutObjectTaggingInput>,
    tags: &[(String, String)],
) -> S3Result<()> {
    let Some(caller) = request.extensions.get::<Caller>() else { return Ok(()) };
    if caller.notes.is_none() {
        return Ok(());
    }
    let input = &request.input;
    let notes = buckets.notes(&input.bucket).await?.0;
    Judged::of(&request.extensions, &input.bucket).check(&notes)?;
    let policy = caller.sharing.policy_of(&notes, &input.bucket)?;
    // What the header says is not what is kept.
    let mut headers = request.headers.clone();
    headers.remove(TAGGING);
    if !tags.is_empty() {
        let text = tags::to_query(tags).parse();
        headers.insert(TAGGING, text.map_err(|_| s3_error!(InvalidTag, "A tag is no text."))?);
    }
    let asker = Asker::of(caller, (&headers, &request.uri, &request.extensions));
    let (key, version) = (Some(input.key.as_str()), input.version_id.as_deref());
    let ask = asker.asks("PutObjectTagging", &input.bucket, key, version);
    caller.sharing.judge(&ask, &notes, policy.as_ref()).await.map(drop)
}

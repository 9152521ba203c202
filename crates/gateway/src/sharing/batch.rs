//! A batch of removals where lists and policies judge: which of its objects its sender may remove.
//!
//! By what the bucket says once the body is there: it may be another one than at the head.

use super::{Ask, Asker};
use crate::auth::Caller;
use crate::buckets::Buckets;
use crate::judged::Judged;
use crate::lock::Leave;
use crate::notes::Notes;
use crate::policy::Policy;
use s3s::{S3ErrorCode, S3Request, S3Result, dto};

/// A batch that lists and policies judge object by object.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    request: &'a S3Request<dto::DeleteObjectsInput>,
    caller: &'a Caller,
    notes: Notes,
    policy: Option<Policy>,
}

impl<'a> Batch<'a> {
    /// `None` where the configuration alone let the batch in.
    ///
    /// # Errors
    /// `OperationAborted` where the bucket is another's by now; `MalformedPolicy` of notes that
    /// nobody wrote; what the back end says.
    pub async fn of(
        buckets: &Buckets,
        request: &'a S3Request<dto::DeleteObjectsInput>,
    ) -> S3Result<Option<Self>> {
        let Some(caller) = request.extensions.get::<Caller>() else { return Ok(None) };
        if caller.notes.is_none() {
            return Ok(None);
        }
        let bucket = &request.input.bucket;
        let notes = buckets.notes(bucket).await?.0;
        Judged::of(&request.extensions, bucket).check(&notes)?;
        let policy = caller.sharing.policy_of(&notes, bucket)?;
        Ok(Some(Batch { request, caller, notes, policy }))
    }

    /// With what leave an object may be removed, of that which the batch has.
    ///
    /// # Errors
    /// `AccessDenied`, and what the back end says.
    pub async fn leave(&self, object: &dto::ObjectIdentifier, leave: Leave) -> S3Result<Leave> {
        let S3Request { headers, uri, extensions, input, .. } = self.request;
        let asker = Asker::of(self.caller, (headers, uri, extensions));
        let (key, version) = (Some(object.key.as_str()), object.version_id.as_deref());
        let ask = asker.asks("DeleteObject", &input.bucket, key, version);
        let sharing = &self.caller.sharing;
        sharing.judge(&ask, &self.notes, self.policy.as_ref()).await?;
        if !leave.bypasses {
            return Ok(leave);
        }
        let bypass = Ask { operation: "BypassGovernanceRetention", ..ask };
        match sharing.judge(&bypass, &self.notes, self.policy.as_ref()).await {
            Ok(_) => Ok(leave),
            Err(error) if *error.code() == S3ErrorCode::AccessDenied => {
                Ok(Leave { bypasses: false, ..leave })
            }
            Err(error) => Err(error),
        }
    }
}

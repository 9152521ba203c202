//! A batch of removals under a policy: which of its objects its sender may remove.

use super::Ask;
use crate::auth::Caller;
use crate::exchange::Exchange;
use crate::lock::Leave;
use crate::notes::Notes;
use s3s::{S3ErrorCode, S3Request, S3Result, dto};
use std::net::IpAddr;
use std::sync::Arc;

/// A batch that lists and policies judge object by object.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    request: &'a S3Request<dto::DeleteObjectsInput>,
    caller: &'a Caller,
    notes: &'a Notes,
    peer: Option<IpAddr>,
}

impl<'a> Batch<'a> {
    /// `None` where the batch was judged as a whole: by the configuration alone, or by a bucket's
    /// list without a policy.
    pub fn of(request: &'a S3Request<dto::DeleteObjectsInput>) -> Option<Self> {
        let caller = request.extensions.get::<Caller>()?;
        let notes = caller.notes.as_ref().filter(|notes| notes.policy.is_some())?;
        let peer = request.extensions.get::<Arc<Exchange>>().map(|exchange| exchange.client());
        Some(Batch { request, caller, notes, peer })
    }

    /// With what leave an object may be removed, of that which the batch has.
    ///
    /// # Errors
    /// `AccessDenied`, and what the back end says.
    pub async fn leave(&self, object: &dto::ObjectIdentifier, leave: Leave) -> S3Result<Leave> {
        let ask = Ask {
            operation: "DeleteObject",
            who: self.caller.id.as_deref(),
            bucket: &self.request.input.bucket,
            key: Some(&object.key),
            version: object.version_id.as_deref(),
            headers: &self.request.headers,
            uri: &self.request.uri,
            peer: self.peer,
        };
        let sharing = &self.caller.sharing;
        sharing.judge(&ask, self.notes).await?;
        if !leave.bypasses {
            return Ok(leave);
        }
        let bypass = Ask { operation: "BypassGovernanceRetention", ..ask };
        match sharing.judge(&bypass, self.notes).await {
            Ok(()) => Ok(leave),
            Err(error) if *error.code() == S3ErrorCode::AccessDenied => {
                Ok(Leave { bypasses: false, ..leave })
            }
            Err(error) => Err(error),
        }
    }
}

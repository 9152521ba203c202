//! A batch of removals under a policy: which of its objects its sender may remove.

use super::Ask;
use crate::auth::Caller;
use crate::exchange::Exchange;
use crate::lock::Leave;
use crate::notes::Notes;
use crate::policy::Policy;
use s3s::{S3ErrorCode, S3Request, S3Result, dto};
use std::net::IpAddr;
use std::sync::Arc;

/// A batch that lists and policies judge object by object.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    request: &'a S3Request<dto::DeleteObjectsInput>,
    caller: &'a Caller,
    notes: &'a Notes,
    policy: Policy,
    peer: Option<IpAddr>,
}

impl<'a> Batch<'a> {
    /// `None` where the batch was judged as a whole: by the configuration alone, or by a bucket's
    /// list without a policy.
    ///
    /// # Errors
    /// `MalformedPolicy` of notes that nobody wrote.
    pub fn of(request: &'a S3Request<dto::DeleteObjectsInput>) -> S3Result<Option<Self>> {
        let Some(caller) = request.extensions.get::<Caller>() else { return Ok(None) };
        let Some(notes) = &caller.notes else { return Ok(None) };
        let policy = caller.sharing.policy_of(notes, &request.input.bucket)?;
        let Some(policy) = policy else { return Ok(None) };
        let peer = request.extensions.get::<Arc<Exchange>>().map(|exchange| exchange.client());
        Ok(Some(Batch { request, caller, notes, policy, peer }))
    }

    /// With what leave an object may be removed, of that which the batch has.
    ///
    /// # Errors
    /// `AccessDenied`, and what the back end says.
    pub async fn leave(&self, object: &dto::ObjectIdentifier, leave: Leave) -> S3Result<Leave> {
        let ask = Ask {
            operation: "DeleteObject",
            action: None,
            who: self.caller.id.as_deref(),
            bucket: &self.request.input.bucket,
            key: Some(&object.key),
            version: object.version_id.as_deref(),
            headers: &self.request.headers,
            uri: &self.request.uri,
            peer: self.peer,
            is_source: false,
        };
        let sharing = &self.caller.sharing;
        sharing.judge(&ask, self.notes, Some(&self.policy)).await?;
        if !leave.bypasses {
            return Ok(leave);
        }
        let bypass = Ask { operation: "BypassGovernanceRetention", ..ask };
        match sharing.judge(&bypass, self.notes, Some(&self.policy)).await {
            Ok(_) => Ok(leave),
            Err(error) if *error.code() == S3ErrorCode::AccessDenied => {
                Ok(Leave { bypasses: false, ..leave })
            }
            Err(error) => Err(error),
        }
    }
}

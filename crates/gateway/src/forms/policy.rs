//! The policy of a form: every condition holds, and every field has one. Pure.

use super::fields::Form;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use s3s::dto::Timestamp;
use s3s::post_policy::{PostPolicy, PostPolicyCondition};
use s3s::{S3Result, s3_error};
use std::time::SystemTime;

/// Fields that need no condition.
const EXEMPT: &[&str] = &["awsaccesskeyid", "signature", "x-amz-signature", "policy", "file"];

fn is_exempt(name: &str) -> bool {
    // A checksum says nothing that the file does not say.
    EXEMPT.contains(&name)
        || ["x-ignore-", "x-amz-checksum-"].iter().any(|start| name.starts_with(start))
}

/// Whether the expiration of a policy has the form that S3 asks for, with a `T` and a `Z`.
fn is_iso_8601(text: &str) -> bool {
    let json = STANDARD.decode(text).ok();
    let document = json.and_then(|json| serde_json::from_slice::<serde_json::Value>(&json).ok());
    let expiration = document.as_ref().and_then(|it| it.get("expiration")?.as_str());
    expiration.is_some_and(|date| date.as_bytes().get(10) == Some(&b'T') && date.ends_with('Z'))
}

/// Holds a form against its policy.
///
/// # Errors
/// `InvalidPolicyDocument` for one that cannot be read, `AccessDenied` for one that has expired or
/// does not hold, `EntityTooLarge` and `EntityTooSmall` for the file.
pub(super) fn check(text: &str, form: &Form, bucket: &str, now: SystemTime) -> S3Result<()> {
    let policy = PostPolicy::from_base64(text)
        .map_err(|error| s3_error!(error, InvalidPolicyDocument, "Invalid Policy"))?;
    if policy.conditions.is_empty() {
        return Err(s3_error!(InvalidPolicyDocument, "Invalid Policy: it has no conditions."));
    }
    // The parser takes dates that are not ISO 8601 too.
    if !is_iso_8601(text) {
        return Err(s3_error!(InvalidPolicyDocument, "Invalid Policy: Invalid 'expiration' value"));
    }
    if Timestamp::from(now) >= policy.expiration {
        let why = "Invalid according to Policy: Policy expired.";
        return Err(s3_error!(AccessDenied, "{why}"));
    }
    let failed = |what: &str| {
        s3_error!(AccessDenied, "Invalid according to Policy: Policy Condition failed: {what}")
    };
    let key = form.key()?;
    let value = |name: &str| match name {
        "bucket" => Some(bucket),
        "key" => Some(key.as_str()),
        name => form.field(name),
    };
    let size = form.file.len() as u64;
    let mut told = vec!["bucket"];
    for condition in &policy.conditions {
        match condition {
            PostPolicyCondition::Eq { field, value: wanted } => {
                told.push(field);
                if value(field) != Some(wanted) {
                    return Err(failed(&format!("[\"eq\", \"${field}\", \"{wanted}\"]")));
                }
            }
            PostPolicyCondition::StartsWith { field, prefix } => {
                told.push(field);
                // A field that is not there is empty.
                if !value(field).unwrap_or_default().starts_with(prefix) {
                    return Err(failed(&format!("[\"starts-with\", \"${field}\", \"{prefix}\"]")));
                }
            }
            PostPolicyCondition::ContentLengthRange { max, .. } if size > *max => {
                let why = "Your proposed upload exceeds the maximum allowed size";
                return Err(s3_error!(EntityTooLarge, "{why}"));
            }
            PostPolicyCondition::ContentLengthRange { min, .. } if size < *min => {
                let why = "Your proposed upload is smaller than the minimum allowed size";
                return Err(s3_error!(EntityTooSmall, "{why}"));
            }
            PostPolicyCondition::ContentLengthRange { .. } => {}
        }
    }
    let names_bucket = policy.conditions.iter().any(|condition| {
        matches!(condition, PostPolicyCondition::Eq { field, .. }
            | PostPolicyCondition::StartsWith { field, .. } if field == "bucket")
    });
    if !names_bucket {
        return Err(failed("the policy names no bucket"));
    }
    let is_untold = |name: &&String| !is_exempt(name) && !told.contains(&name.as_str());
    if let Some(name) = form.fields.iter().map(|pair| &pair.0).find(is_untold) {
        return Err(s3_error!(
            AccessDenied,
            "Invalid according to Policy: Extra input fields: {name}"
        ));
    }
    match form.field("bucket").is_some_and(|named| named != bucket) {
        true => Err(failed("the form names another bucket")),
        false => Ok(()),
    }
}

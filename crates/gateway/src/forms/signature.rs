//! Who signed a form: an HMAC of its policy, by version 4 or 2.

use super::fields::Form;
use crate::hex::unhex;
use crate::keys::KeyRing;
use crate::v4::signing_key;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use s3s::{S3Error, S3Result, s3_error};

const V4: &str = "AWS4-HMAC-SHA256";

fn differs() -> S3Error {
    s3_error!(
        SignatureDoesNotMatch,
        "The request signature we calculated does not match the signature you provided."
    )
}

fn required<'a>(form: &'a Form, name: &str) -> S3Result<&'a str> {
    let why = || s3_error!(InvalidArgument, "Bucket POST must contain a field named '{name}'.");
    form.field(name).ok_or_else(why)
}

/// The access key that a form names.
pub(super) fn claimed_key(form: &Form) -> Option<&str> {
    let v4 = form.field("x-amz-credential").and_then(|credential| credential.split('/').next());
    v4.or_else(|| form.field("awsaccesskeyid"))
}

/// The access key that signed a form; `None` for one that nobody signed.
///
/// # Errors
/// `SignatureDoesNotMatch`, `InvalidAccessKeyId`, `InvalidArgument` for missing fields,
/// `InvalidRequest` for version 2 where that is off.
pub(super) fn verify(form: &Form, ring: &KeyRing, takes_v2: bool) -> S3Result<Option<String>> {
    let unknown = || {
        let why = "The AWS Access Key Id you provided does not exist in our records.";
        s3_error!(InvalidAccessKeyId, "{why}")
    };
    if form.field("x-amz-signature").is_some() || form.field("x-amz-algorithm").is_some() {
        let signature = required(form, "x-amz-signature")?;
        let (policy, date) = (required(form, "policy")?, required(form, "x-amz-date")?);
        if required(form, "x-amz-algorithm")? != V4 {
            return Err(s3_error!(InvalidArgument, "x-amz-algorithm must be {V4}"));
        }
        let scope: Vec<&str> = required(form, "x-amz-credential")?.rsplitn(5, '/').collect();
        let [end, service, region, day, access_key] = scope[..] else {
            return Err(s3_error!(InvalidArgument, "x-amz-credential is malformed"));
        };
        if end != "aws4_request" || service != "s3" || !date.starts_with(day) {
            return Err(s3_error!(InvalidArgument, "x-amz-credential is malformed"));
        }
        let secret = ring.secret(access_key).ok_or_else(unknown)?;
        let scope = [day, region, service, end].join("/");
        let key = signing_key(secret.reveal(), &scope);
        let told = unhex(signature).ok_or_else(differs)?;
        hmac::verify(&key, policy.as_bytes(), &told).map_err(|_| differs())?;
        return Ok(Some(access_key.to_string()));
    }
    if form.field("signature").is_none() && form.field("policy").is_none() {
        return Ok(None);
    }
    if !takes_v2 {
        let why = "Please use AWS4-HMAC-SHA256. (Version 2 is off: signature_v2_enabled.)";
        return Err(s3_error!(InvalidRequest, "{why}"));
    }
    let (signature, policy) = (required(form, "signature")?, required(form, "policy")?);
    let access_key = required(form, "awsaccesskeyid")?;
    let secret = ring.secret(access_key).ok_or_else(unknown)?;
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.reveal().as_bytes());
    let told = STANDARD.decode(signature).map_err(|_| differs())?;
    hmac::verify(&key, policy.as_bytes(), &told).map_err(|_| differs())?;
    Ok(Some(access_key.to_string()))
}

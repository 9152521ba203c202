//! Says no, by name, to what S3 has and this gateway has not. Never silently ignores what a client
//! would rely on.

use http::HeaderMap;
use s3s::{S3Result, s3_error};

/// Headers that ask for something to be kept or done with an object, which is not.
const UNKEPT: &[(&str, &str)] = &[
    ("x-amz-server-side-encryption-customer-algorithm", "encryption with customer keys"),
    (
        "x-amz-copy-source-server-side-encryption-customer-algorithm",
        "encryption with customer keys",
    ),
    ("x-amz-website-redirect-location", "website redirects"),
];

/// Refuses headers whose effect would be lost.
///
/// # Errors
/// `NotImplemented`; `InvalidStorageClass` for a class other than STANDARD.
pub fn unkept_headers(headers: &HeaderMap) -> S3Result<()> {
    if let Some((name, what)) = UNKEPT.iter().find(|row| headers.contains_key(row.0)) {
        return Err(s3_error!(NotImplemented, "this gateway keeps no {what} (header {name})"));
    }
    match headers.get("x-amz-storage-class") {
        Some(class) if class != "STANDARD" => {
            Err(s3_error!(InvalidStorageClass, "the only storage class here is STANDARD"))
        }
        _ => Ok(()),
    }
}

/// Refuses encryption that the back end does not do anyway.
///
/// # Errors
/// `InvalidArgument` for headers that contradict each other; `NotImplemented` for keys of a service
/// or the customer's, and where nothing is encrypted.
pub fn encryption(headers: &HeaderMap, is_encrypted: bool) -> S3Result<()> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let algorithm = text("x-amz-server-side-encryption");
    let key = text("x-amz-server-side-encryption-aws-kms-key-id");
    let customer = text("x-amz-server-side-encryption-customer-algorithm");
    if customer.is_none() && text("x-amz-server-side-encryption-customer-key").is_some() {
        let why = "Requests specifying Server Side Encryption with Customer provided keys must \
                   provide a valid encryption algorithm.";
        return Err(s3_error!(InvalidArgument, "{why}"));
    }
    let is_kms = algorithm.is_some_and(|algorithm| algorithm.starts_with("aws:kms"));
    if algorithm.is_some() && customer.is_some() {
        let why = "Server Side Encryption with Customer provided key is incompatible with the \
                   encryption method specified";
        return Err(s3_error!(InvalidArgument, "{why}"));
    }
    if key.is_some() && !is_kms {
        let why = "x-amz-server-side-encryption-aws-kms-key-id takes the encryption aws:kms";
        return Err(s3_error!(InvalidArgument, "{why}"));
    }
    match algorithm {
        None => Ok(()),
        Some("AES256") if is_encrypted => Ok(()),
        Some("AES256") => Err(s3_error!(
            NotImplemented,
            "server-side encryption: this bucket's back end is not known to encrypt \
             (encrypted_at_rest of the [[backend]])"
        )),
        Some(_) if is_kms => Err(s3_error!(
            NotImplemented,
            "server-side encryption with keys of a service (aws:kms)"
        )),
        Some(other) => {
            Err(s3_error!(InvalidArgument, "there is no server-side encryption `{other}`"))
        }
    }
}

/// Refuses customer keys.
///
/// # Errors
/// `NotImplemented`.
pub fn customer_key(is_given: bool) -> S3Result<()> {
    match is_given {
        true => Err(s3_error!(NotImplemented, "encryption with customer keys")),
        false => Ok(()),
    }
}

/// Refuses encryption headers on reads: customer keys, and what belongs to writes.
///
/// # Errors
/// `NotImplemented`, `InvalidArgument`.
pub fn encryption_of_read(headers: &HeaderMap) -> S3Result<()> {
    customer_key(headers.contains_key("x-amz-server-side-encryption-customer-algorithm"))?;
    match headers.contains_key("x-amz-server-side-encryption") {
        true => Err(s3_error!(
            InvalidArgument,
            "x-amz-server-side-encryption header is not supported for this operation."
        )),
        false => Ok(()),
    }
}

//! Says no, by name, to what S3 has and this gateway has not. Never silently ignores what a client
//! would rely on.

use crate::query::pairs;
use http::{HeaderMap, StatusCode};
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

/// Conditions that s3s takes for none where they are empty.
const CONDITIONS: [&str; 6] = [
    "if-match",
    "if-none-match",
    "x-amz-if-match-size",
    "x-amz-if-match-last-modified-time",
    "x-amz-copy-source-if-match",
    "x-amz-copy-source-if-none-match",
];

/// Operations that a request is taken for when its query names no other one, and which parameters
/// they have. Where the last column says so, nothing else may stand there but `x-...`: an
/// operation that this gateway does not know would else overwrite or remove what it is for.
const PLAIN: &[(&str, &[&str], bool)] = &[
    ("PutObject", &[], true),
    ("CopyObject", &[], true),
    ("UploadPart", &["partNumber", "uploadId"], true),
    ("UploadPartCopy", &["partNumber", "uploadId"], true),
    ("AbortMultipartUpload", &["uploadId"], true),
    ("DeleteObject", &["versionId"], true),
    ("CreateBucket", &[], true),
    ("DeleteBucket", &[], true),
    ("GetObject", &["partNumber", "versionId"], false),
    ("HeadObject", &["partNumber", "versionId"], false),
    ("HeadBucket", &[], false),
    ("ListBuckets", &["bucket-region", "continuation-token", "max-buckets", "prefix"], false),
    ("ListObjects", &["delimiter", "encoding-type", "marker", "max-keys", "prefix"], false),
    (
        "ListObjectsV2",
        &[
            "continuation-token",
            "delimiter",
            "encoding-type",
            "fetch-owner",
            "list-type",
            "max-keys",
            "prefix",
            "start-after",
        ],
        false,
    ),
];
/// What signs a URL by version 2, and the headers that SDKs sign in it.
const SIGNING: [&str; 10] = [
    "awsaccesskeyid",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "expires",
    "signature",
];
/// Names of operations, which no read has as a parameter of the client's own.
pub(crate) const OPERATIONS: [&str; 38] = [
    "abac",
    "accelerate",
    "acl",
    "analytics",
    "annotation",
    "attributes",
    "cors",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "legal-hold",
    "lifecycle",
    "location",
    "logging",
    "metadataAnnotationTable",
    "metadataConfiguration",
    "metadataInventoryTable",
    "metadataJournalTable",
    "metadataTable",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "replication",
    "requestPayment",
    "restore",
    "retention",
    "select",
    "session",
    "tagging",
    "torrent",
    "uploads",
    "versioning",
    "versions",
    "website",
];

/// The status of an answer `NotImplemented` to a request with this query.
///
/// A 501 to a request for a sub-resource makes clients do without it: s3cmd passes over lists,
/// policies and lifecycles so. A 501 to a request for an object itself makes clients send it again:
/// s3cmd sends an upload six times within 45 seconds, and the `object_store` crate repeats every
/// 5xx. No client repeats a 400 with this code.
pub(crate) fn absent_status(query: &str) -> StatusCode {
    let is_subresource = |name: &str| name != "uploads" && OPERATIONS.contains(&name);
    match pairs(query).any(|pair| is_subresource(&pair.0)) {
        true => StatusCode::NOT_IMPLEMENTED,
        false => StatusCode::BAD_REQUEST,
    }
}

/// Refuses a request that is taken for a plain operation though its query names another one.
///
/// # Errors
/// `NotImplemented`.
pub fn unknown_parameters(operation: &str, query: &str) -> S3Result<()> {
    let Some((_, known, is_strict)) = PLAIN.iter().find(|row| row.0 == operation) else {
        return Ok(());
    };
    let mut names = pairs(query).map(|pair| pair.0);
    let unknown = names.find(|name| {
        let is_known = known.contains(&name.as_str())
            || SIGNING.iter().any(|signing| name.eq_ignore_ascii_case(signing))
            || name.starts_with("response-")
            || name.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("x-"));
        // A read with a parameter of the client's own is still that read.
        !is_known && (*is_strict || OPERATIONS.contains(&name.as_str()))
    });
    match unknown {
        None => Ok(()),
        Some(name) => Err(s3_error!(
            NotImplemented,
            "{operation} has no parameter `{name}`, and this gateway knows no other operation of \
             that name"
        )),
    }
}

/// Refuses headers whose effect would be lost.
///
/// # Errors
/// `NotImplemented`.
pub fn unkept_headers(headers: &HeaderMap) -> S3Result<()> {
    match UNKEPT.iter().find(|row| headers.contains_key(row.0)) {
        None => Ok(()),
        Some((name, what)) => {
            Err(s3_error!(NotImplemented, "this gateway keeps no {what} (header {name})"))
        }
    }
}

/// Refuses conditions of a write or removal that name nothing, as of a client whose variable was
/// empty: what they should protect would be replaced or gone.
///
/// # Errors
/// `InvalidArgument`.
pub fn void_conditions(headers: &HeaderMap) -> S3Result<()> {
    let is_void = |name: &&&str| {
        headers.get(**name).is_some_and(|value| value.as_bytes().trim_ascii().is_empty())
    };
    match CONDITIONS.iter().find(is_void) {
        None => Ok(()),
        Some(name) => Err(s3_error!(InvalidArgument, "the header {name} holds nothing")),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_of_an_object_itself_is_no_server_error() {
        for query in ["", "uploads", "uploadId=1&partNumber=2", "x-id=PutObject", "renameObject"] {
            assert_eq!(absent_status(query), StatusCode::BAD_REQUEST, "{query}");
        }
        for query in ["acl", "lifecycle=", "versionId=1&%61cl", "select&select-type=2"] {
            assert_eq!(absent_status(query), StatusCode::NOT_IMPLEMENTED, "{query}");
        }
    }

    #[test]
    fn a_query_that_names_another_operation_is_not_taken_for_a_plain_one() {
        for (operation, query, is_fine) in [
            ("PutObject", "", true),
            ("PutObject", "x-id=PutObject&X-Amz-Signature=s", true),
            ("PutObject", "AWSAccessKeyId=K&Expires=9&Signature=s", true),
            ("PutObject", "renameObject", false),
            ("PutObject", "uploadId=u", false),
            ("PutObject", "%61cl2=", false),
            ("CopyObject", "annotation", false),
            ("DeleteObject", "versionId=7", true),
            ("DeleteObject", "acl", false),
            ("DeleteBucket", "metadataConfiguration", false),
            ("CreateBucket", "abac", false),
            ("GetObject", "response-content-type=a&versionId=1&partNumber=2", true),
            ("PutObject", "content-type=a&Content-MD5=b&Signature=s", true),
            ("GetObject", "cache=17", true),
            ("GetObject", "1699999999", true),
            ("GetObject", "iefix", true),
            ("GetObject", "restore", false),
            ("ListObjects", "prefix=&delimiter=", true),
            ("ListObjects", "abac", false),
            ("GetBucketAcl", "acl", true),
        ] {
            assert_eq!(
                unknown_parameters(operation, query).is_ok(),
                is_fine,
                "{operation} {query}"
            );
        }
    }
}

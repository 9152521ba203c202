//! What a request says of itself before its signature holds: which key sent it and what it asks
//! for. For logs alone: nothing is let in by it. Pure.

use crate::absent::{ABSENT, Place, place_of};
use crate::forms;
use crate::hosts::Hosts;
use crate::query::{pairs, value_of};
use http::header::AUTHORIZATION;
use http::{HeaderValue, Method, Request, Uri};
use percent_encoding::percent_decode_str;

/// Longest name that a log shows of what nobody has checked, in characters.
const NAME_CHARS_MAX: usize = 128;
const COPY_SOURCE: &str = "x-amz-copy-source";

/// The codes by which a request is refused for its signature.
const CODES: [&str; 6] = [
    "SignatureDoesNotMatch",
    "InvalidAccessKeyId",
    "RequestTimeTooSkewed",
    "AuthorizationHeaderMalformed",
    "AuthorizationQueryParametersError",
    "AccessDenied",
];

/// Whether a refusal of a request whose sender is not known is about its signature.
pub(crate) fn is_about_signature(code: &str) -> bool {
    CODES.contains(&code)
}

/// What a request claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The access key, where the request names one.
    pub access_key: Option<String>,
    /// The S3 operation; the method and query where that is none.
    pub operation: String,
    pub bucket: Option<String>,
    pub key: Option<String>,
}

/// What is kept of a request's head until its answer is there. No `Debug`: the signature is in it.
pub(crate) struct Kept {
    method: Method,
    uri: Uri,
    authorization: Option<HeaderValue>,
    bucket_in_host: Option<String>,
    is_copy: bool,
    is_form: bool,
}

impl Kept {
    pub fn of<B>(request: &Request<B>, hosts: &Hosts) -> Self {
        let headers = request.headers();
        Kept {
            method: request.method().clone(),
            uri: request.uri().clone(),
            authorization: headers.get(AUTHORIZATION).cloned(),
            bucket_in_host: hosts.bucket(headers),
            is_copy: headers.contains_key(COPY_SOURCE),
            is_form: forms::is_form(request),
        }
    }

    /// The query.
    pub fn query(&self) -> &str {
        self.uri.query().unwrap_or_default()
    }

    /// What the request claims.
    pub fn claim(&self) -> Claim {
        let path = match &self.bucket_in_host {
            Some(bucket) => format!("/{bucket}{}", self.uri.path()),
            None => self.uri.path().to_string(),
        };
        let names = path.trim_start_matches('/');
        let (bucket, key) = names.split_once('/').unwrap_or((names, ""));
        let named = |name: &str| {
            let name = percent_decode_str(name).decode_utf8_lossy();
            (!name.is_empty()).then(|| bounded(&name))
        };
        let operation = match self.is_form {
            true => "PostObject".to_string(),
            false => operation(&self.method, &path, self.query(), self.is_copy),
        };
        Claim { access_key: self.access_key(), operation, bucket: named(bucket), key: named(key) }
    }

    fn access_key(&self) -> Option<String> {
        let header = self.authorization.as_ref().and_then(|value| value.to_str().ok());
        if let Some(header) = header {
            let v2 = || Some(header.strip_prefix("AWS ")?.split_once(':')?.0);
            let v4 = || {
                let fields = header.strip_prefix("AWS4-HMAC-SHA256")?;
                let mut fields = fields.split(',').map(str::trim);
                let credential = fields.find_map(|field| field.strip_prefix("Credential="))?;
                credential.split('/').next()
            };
            return v2().or_else(v4).map(bounded);
        }
        let pairs: Vec<_> = pairs(self.query()).collect();
        let v4 = value_of(&pairs, "X-Amz-Credential").and_then(|it| it.split('/').next());
        v4.or_else(|| value_of(&pairs, "AWSAccessKeyId")).map(bounded)
    }
}

/// A name as a log shows it: of bounded length, without control characters.
pub(crate) fn bounded(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect()
}

/// An operation that a request may ask for: method, place, name of the query, operation.
type Row = (&'static str, Place, &'static str, &'static str);

use Place::{Bucket, Object};

/// The operations of this gateway that a query names.
const NAMED: &[Row] = &[
    ("GET", Bucket, "acl", "GetBucketAcl"),
    ("PUT", Bucket, "acl", "PutBucketAcl"),
    ("GET", Bucket, "accelerate", "GetBucketAccelerateConfiguration"),
    ("GET", Bucket, "cors", "GetBucketCors"),
    ("PUT", Bucket, "cors", "PutBucketCors"),
    ("DELETE", Bucket, "cors", "DeleteBucketCors"),
    ("POST", Bucket, "delete", "DeleteObjects"),
    ("GET", Bucket, "encryption", "GetBucketEncryption"),
    ("PUT", Bucket, "encryption", "PutBucketEncryption"),
    ("DELETE", Bucket, "encryption", "DeleteBucketEncryption"),
    ("GET", Bucket, "lifecycle", "GetBucketLifecycleConfiguration"),
    ("GET", Bucket, "location", "GetBucketLocation"),
    ("GET", Bucket, "logging", "GetBucketLogging"),
    ("GET", Bucket, "notification", "GetBucketNotificationConfiguration"),
    ("GET", Bucket, "object-lock", "GetObjectLockConfiguration"),
    ("PUT", Bucket, "object-lock", "PutObjectLockConfiguration"),
    ("GET", Bucket, "ownershipControls", "GetBucketOwnershipControls"),
    ("PUT", Bucket, "ownershipControls", "PutBucketOwnershipControls"),
    ("DELETE", Bucket, "ownershipControls", "DeleteBucketOwnershipControls"),
    ("GET", Bucket, "policy", "GetBucketPolicy"),
    ("PUT", Bucket, "policy", "PutBucketPolicy"),
    ("DELETE", Bucket, "policy", "DeleteBucketPolicy"),
    ("GET", Bucket, "policyStatus", "GetBucketPolicyStatus"),
    ("GET", Bucket, "publicAccessBlock", "GetPublicAccessBlock"),
    ("PUT", Bucket, "publicAccessBlock", "PutPublicAccessBlock"),
    ("DELETE", Bucket, "publicAccessBlock", "DeletePublicAccessBlock"),
    ("GET", Bucket, "replication", "GetBucketReplication"),
    ("GET", Bucket, "requestPayment", "GetBucketRequestPayment"),
    ("GET", Bucket, "tagging", "GetBucketTagging"),
    ("PUT", Bucket, "tagging", "PutBucketTagging"),
    ("DELETE", Bucket, "tagging", "DeleteBucketTagging"),
    ("GET", Bucket, "uploads", "ListMultipartUploads"),
    ("GET", Bucket, "versioning", "GetBucketVersioning"),
    ("PUT", Bucket, "versioning", "PutBucketVersioning"),
    ("GET", Bucket, "versions", "ListObjectVersions"),
    ("GET", Bucket, "website", "GetBucketWebsite"),
    ("GET", Bucket, "list-type", "ListObjectsV2"),
    ("GET", Object, "acl", "GetObjectAcl"),
    ("PUT", Object, "acl", "PutObjectAcl"),
    ("GET", Object, "attributes", "GetObjectAttributes"),
    ("GET", Object, "legal-hold", "GetObjectLegalHold"),
    ("PUT", Object, "legal-hold", "PutObjectLegalHold"),
    ("GET", Object, "retention", "GetObjectRetention"),
    ("PUT", Object, "retention", "PutObjectRetention"),
    ("GET", Object, "tagging", "GetObjectTagging"),
    ("PUT", Object, "tagging", "PutObjectTagging"),
    ("DELETE", Object, "tagging", "DeleteObjectTagging"),
    ("POST", Object, "uploads", "CreateMultipartUpload"),
    ("PUT", Object, "uploadId", "UploadPart"),
    ("POST", Object, "uploadId", "CompleteMultipartUpload"),
    ("GET", Object, "uploadId", "ListParts"),
    ("DELETE", Object, "uploadId", "AbortMultipartUpload"),
];

/// Those that no query names.
const PLAIN: &[Row] = &[
    ("GET", Bucket, "", "ListObjects"),
    ("HEAD", Bucket, "", "HeadBucket"),
    ("PUT", Bucket, "", "CreateBucket"),
    ("DELETE", Bucket, "", "DeleteBucket"),
    ("GET", Object, "", "GetObject"),
    ("HEAD", Object, "", "HeadObject"),
    ("PUT", Object, "", "PutObject"),
    ("DELETE", Object, "", "DeleteObject"),
];

/// The operation that a request asks for. `path` has the bucket in front.
fn operation(method: &Method, path: &str, query: &str, is_copy: bool) -> String {
    if path == "/" && *method == Method::GET {
        return "ListBuckets".to_string();
    }
    let place = place_of(path);
    let pairs: Vec<_> = pairs(query).collect();
    let fits = |row: &&Row| *method == row.0 && place == row.1;
    let is_named = |row: &&Row| value_of(&pairs, row.2).is_some();
    let row = NAMED.iter().find(|row| fits(row) && is_named(row));
    let absent = || ABSENT.iter().find(|row| row.is_asked_by(method, place, query));
    let name = match (row, absent()) {
        (Some(row), _) => Some(row.3),
        (None, Some(absent)) => Some(absent.name),
        (None, None) => PLAIN.iter().find(fits).map(|row| row.3),
    };
    match name {
        Some("PutObject") if is_copy => "CopyObject".to_string(),
        Some("UploadPart") if is_copy => "UploadPartCopy".to_string(),
        Some(name) => name.to_string(),
        None => bounded(&format!("{method} of no operation")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(method: &str, uri: &str, headers: &[(&str, &str)]) -> Claim {
        let mut builder = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        let hosts = Hosts::parse("s3.example.org", false).unwrap();
        Kept::of(&builder.body(()).unwrap(), &hosts).claim()
    }

    #[test]
    fn a_request_names_its_key_wherever_it_is_signed() {
        let v4 = "AWS4-HMAC-SHA256 Credential=K/20130524/r/s3/aws4_request, SignedHeaders=host, \
                  Signature=s";
        let long = format!("AWS {}:s", "k".repeat(1000));
        for (uri, header, key) in [
            ("/", v4, Some("K")),
            ("/", "AWS K:s", Some("K")),
            ("/", "Bearer K", None),
            ("/", "", None),
            ("/?X-Amz-Credential=K%2F20130524%2Fr&X-Amz-Signature=s", "", Some("K")),
            ("/?AWSAccessKeyId=K&Signature=s", "", Some("K")),
            ("/", &long, Some(&"k".repeat(NAME_CHARS_MAX))),
        ] {
            let headers = [("authorization", header)];
            let headers = if header.is_empty() { &[][..] } else { &headers };
            assert_eq!(kept("GET", uri, headers).access_key.as_deref(), key, "{uri} {header}");
        }
    }

    #[test]
    fn a_request_names_its_bucket_in_the_path_or_in_the_host() {
        let place = |uri: &str, headers: &[(&str, &str)]| {
            let claim = kept("GET", uri, headers);
            (claim.bucket.unwrap_or_default(), claim.key.unwrap_or_default(), claim.operation)
        };
        let is = |bucket: &str, key: &str, operation: &str| {
            (bucket.to_string(), key.to_string(), operation.to_string())
        };
        assert_eq!(place("/", &[]), is("", "", "ListBuckets"));
        assert_eq!(place("/lake", &[]), is("lake", "", "ListObjects"));
        assert_eq!(place("/lake/?list-type=2", &[]), is("lake", "", "ListObjectsV2"));
        assert_eq!(place("/lake/a%20b/c", &[]), is("lake", "a b/c", "GetObject"));
        let host = [("host", "lake.s3.example.org")];
        assert_eq!(place("/k?acl", &host), is("lake", "k", "GetObjectAcl"));
        assert_eq!(place("/lake/k?torrent", &[]), is("lake", "k", "GetObjectTorrent"));
        assert_eq!(kept("PATCH", "/lake/k", &[]).operation, "PATCH of no operation");
        let copy = [(COPY_SOURCE, "a/b")];
        assert_eq!(kept("PUT", "/lake/k", &copy).operation, "CopyObject");
        assert_eq!(kept("PUT", "/lake/k?uploadId=u", &copy).operation, "UploadPartCopy");
    }
}

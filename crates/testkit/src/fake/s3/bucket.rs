//! Buckets: they appear on first use, and can be made, listed and removed.

use super::super::codec::iso_date;
use super::super::http::Response;
use super::super::refusal::{Refusal, Served};
use super::super::vault::Bucket;
use super::super::xml::{Writer, parse};
use super::payload::Payload;
use super::{Call, MISSING};

const NAMESPACE: &str = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";

fn valid(name: &str) -> bool {
    let allowed = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.'
    };
    (3..=63).contains(&name.len())
        && name.bytes().all(allowed)
        && !name.starts_with(['-', '.'])
        && !name.ends_with(['-', '.'])
}

/// Makes the bucket of a request, unless it is one that must be missing.
///
/// # Errors
/// `InvalidBucketName` or `NoSuchBucket`.
pub fn appear(call: &Call<'_>, operation: &str, bucket: &str) -> Result<(), Refusal> {
    if bucket.is_empty() || matches!(operation, "CreateBucket" | "DeleteBucket") {
        return Ok(());
    }
    if !valid(bucket) {
        return Err(invalid());
    }
    call.server.vault.with(|state| {
        if !state.buckets.contains_key(bucket) {
            if bucket.starts_with(MISSING) {
                return Err(no_such_bucket());
            }
            state.buckets.insert(bucket.to_string(), Bucket::default());
        }
        Ok(())
    })
}

fn invalid() -> Refusal {
    Refusal::new(400, "InvalidBucketName", "The specified bucket is not valid.")
}

fn no_such_bucket() -> Refusal {
    Refusal::new(404, "NoSuchBucket", "The specified bucket does not exist")
}

/// `CreateBucket`.
///
/// # Errors
/// `InvalidBucketName`, `BucketAlreadyOwnedByYou`.
pub fn create(call: &Call<'_>, payload: &Payload) -> Served {
    let name = &call.target.bucket;
    let configuration = parse(&payload.text());
    let location = configuration
        .as_ref()
        .and_then(|it| it.child_text("LocationConstraint"))
        .map(str::to_string);
    if !valid(name) {
        return Err(invalid().into());
    }
    let fresh = call.server.vault.with(|state| {
        let fresh = !state.buckets.contains_key(name);
        let bucket = state.buckets.entry(name.clone()).or_default();
        bucket.location = location.unwrap_or_default().trim().to_string();
        fresh
    });
    if !fresh {
        let message = "Your previous request to create the named bucket succeeded";
        return Err(Refusal::new(409, "BucketAlreadyOwnedByYou", message).into());
    }
    Ok(Response::new(200).with("Location", format!("/{name}")))
}

/// `DeleteBucket`.
///
/// # Errors
/// `NoSuchBucket`, `BucketNotEmpty`.
pub fn delete(call: &Call<'_>) -> Served {
    let name = &call.target.bucket;
    call.server.vault.with(|state| match state.buckets.get(name) {
        None => Err(no_such_bucket().into()),
        Some(bucket)
            if !bucket.objects.is_empty()
                || bucket.generations.all_gone().next().is_some()
                || bucket.history.keys().next().is_some() =>
        {
            let message = "The bucket you tried to delete is not empty";
            Err(Refusal::new(409, "BucketNotEmpty", message).into())
        }
        Some(_) => {
            state.buckets.remove(name);
            Ok(Response::new(204))
        }
    })
}

/// `ListBuckets`.
pub fn list(call: &Call<'_>) -> Response {
    let mut xml = Writer::default();
    xml.open("ListAllMyBucketsResult", NAMESPACE);
    xml.open("Owner", "").text("ID", "fake").text("DisplayName", "fake").close("Owner");
    xml.open("Buckets", "");
    call.server.vault.with(|state| {
        for (name, bucket) in &state.buckets {
            xml.open("Bucket", "");
            xml.text("Name", name).text("CreationDate", iso_date(bucket.created));
            xml.close("Bucket");
        }
    });
    xml.close("Buckets").close("ListAllMyBucketsResult");
    Response::text(200, "application/xml", xml.finish())
}

/// `GetBucketLocation`: an empty element means us-east-1.
pub fn location(call: &Call<'_>) -> Response {
    let bucket = &call.target.bucket;
    let location =
        call.server.vault.with(|state| state.buckets.get(bucket).map(|it| it.location.clone()));
    let mut xml = Writer::default();
    xml.text_with("LocationConstraint", NAMESPACE, &location.unwrap_or_default());
    Response::text(200, "application/xml", xml.finish())
}

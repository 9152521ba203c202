//! Whether a bucket keeps versions: what S3 and Google's XML API ask and tell alike.

use super::super::history::ENABLED;
use super::super::http::Response;
use super::super::refusal::{Refusal, Served};
use super::super::vault::Bucket;
use super::super::xml::{Writer, parse};
use super::payload::Payload;
use super::{Call, google, versions};

const ROOT: &str = "VersioningConfiguration";

/// Its status; empty where nobody ever asked.
fn status<'a>(call: &Call<'_>, bucket: &'a mut Bucket) -> &'a mut String {
    match call.server.options.google {
        true => &mut bucket.generations.status,
        false => &mut bucket.history.status,
    }
}

/// `GetBucketVersioning`: nothing inside where nobody ever asked.
pub fn get(call: &Call<'_>) -> Response {
    let found = call.server.vault.with(|state| {
        state.buckets.get_mut(&call.target.bucket).map(|bucket| status(call, bucket).clone())
    });
    let is_google = call.server.options.google;
    let mut xml = Writer::default();
    xml.open(ROOT, if is_google { google::NAMESPACE } else { versions::NAMESPACE });
    if let Some(found) = found.filter(|found| !found.is_empty()) {
        xml.text("Status", found);
    }
    xml.close(ROOT);
    Response::text(200, "application/xml", xml.finish())
}

/// `PutBucketVersioning`.
///
/// # Errors
/// `MalformedXML`.
pub fn set(call: &Call<'_>, payload: &Payload) -> Served {
    let document = parse(&payload.text()).filter(|node| node.name == ROOT);
    let asked = document.as_ref().and_then(|document| document.child_text("Status"));
    let asked = asked.filter(|asked| matches!(*asked, ENABLED | "Suspended"));
    let asked = asked.ok_or_else(|| {
        Refusal::new(400, "MalformedXML", "Status is either Enabled or Suspended")
    })?;
    call.server.vault.with(|state| {
        let bucket = state.buckets.entry(call.target.bucket.clone()).or_default();
        *status(call, bucket) = asked.to_string();
    });
    Ok(Response::new(200))
}

//! `DeleteObjects`.

use super::super::conditions::{Verdict, judge};
use super::super::history::Id;
use super::super::http::{Headers, Response};
use super::super::refusal::{Refusal, Served};
use super::super::xml::{Node, Writer, parse};
use super::payload::Payload;
use super::versions::Removed;
use super::{Call, versions};

/// Most keys of one request.
const KEYS_MAX: usize = 1000;

/// Tells of the version that was named, and of the delete marker that was made or removed.
fn tell(xml: &mut Writer, named: Option<Id>, (id, is_marker): Removed) {
    if let Some(named) = named {
        xml.text("VersionId", named.text());
    }
    if let Some(id) = id.filter(|_| is_marker) {
        xml.text("DeleteMarker", "true").text("DeleteMarkerVersionId", id.text());
    }
}

fn malformed() -> Refusal {
    Refusal::new(
        400,
        "MalformedXML",
        "The XML you provided was not well-formed or did not validate against our published schema",
    )
}

/// Removes many objects, one verdict each.
///
/// # Errors
/// `MalformedXML`, or `InvalidRequest` when no checksum protects the list of what to remove.
pub fn objects(call: &Call<'_>, payload: &Payload) -> Served {
    let protected =
        call.request.headers.get("content-md5").is_some() || !payload.checksums.is_empty();
    if !protected {
        let message = "Missing required header for this request: Content-MD5 OR x-amz-checksum-*";
        return Err(Refusal::new(400, "InvalidRequest", message).into());
    }
    let document = parse(&payload.text()).filter(|node| node.name == "Delete");
    let document = document.ok_or_else(malformed)?;
    let wanted: Vec<&Node> =
        document.children.iter().filter(|node| node.name == "Object").collect();
    if wanted.is_empty() || wanted.len() > KEYS_MAX {
        return Err(malformed().into());
    }
    let quiet = document.child_text("Quiet") == Some("true");
    let mut xml = Writer::default();
    xml.open("DeleteResult", "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"");
    call.server.vault.with(|state| -> Result<(), Refusal> {
        for object in wanted {
            let key = object.child_text("Key").ok_or_else(malformed)?;
            let text = object.child_text("VersionId");
            let named = text.and_then(Id::parse);
            if text.is_some() && named.is_none() {
                xml.open("Error", "").text("Key", key).text("Code", "NoSuchVersion");
                xml.text("Message", "The specified version does not exist.").close("Error");
                continue;
            }
            let present = state.object(&call.target.bucket, key);
            let tags = object.child_text("ETag").map(|tag| ("if-match".to_string(), tag.into()));
            let conditions = Headers(tags.into_iter().collect());
            if judge(&conditions, "", present.as_deref()) != Verdict::Proceed {
                xml.open("Error", "").text("Key", key).text("Code", "PreconditionFailed");
                xml.text("Message", "The ETag does not match").close("Error");
                continue;
            }
            let removed = versions::remove(state, &call.target.bucket, key, named);
            if !quiet {
                xml.open("Deleted", "").text("Key", key);
                tell(&mut xml, named, removed);
                xml.close("Deleted");
            }
        }
        Ok(())
    })?;
    xml.close("DeleteResult");
    Ok(Response::text(200, "application/xml", xml.finish()))
}

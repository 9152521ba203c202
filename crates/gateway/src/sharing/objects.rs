//! The list that a new object gets.

use super::{Lists, ONE_OWNER, PUT_ACL, PUT_TAGS, denied, is_enforced};
use crate::acl::{Acl, Asked, lists_are_off, owner_of};
use crate::auth::Caller;
use crate::notes::Notes;
use http::{Extensions, HeaderMap};
use penstock_store::notes;
use s3s::{S3Error, S3Result, dto, s3_error};

/// Owner of what is written without a signature.
const NOBODY: &str = "anonymous";
/// Ownership under which an object that its writer opens to the bucket's owner becomes theirs.
const PREFERRED: &str = "BucketOwnerPreferred";

/// The pair of an upload's metadata that tells who began it, where that is not its owner.
pub(crate) const INITIATOR: &str = "@initiator";

/// What tells who began an upload whose list is in these pairs.
pub(crate) fn initiator_note(extensions: &Extensions, acl: &[(String, String)]) -> Option<Pair> {
    let caller = extensions.get::<Caller>().filter(|it| it.sharing.lists == Lists::Owners)?;
    let who = caller.id.as_deref().unwrap_or(NOBODY);
    let owner = pair(acl, notes::ACL).and_then(Acl::from_text)?.owner;
    (owner != who).then(|| (INITIATOR.to_string(), who.to_string()))
}

/// Owner of an upload and who began it, by the metadata that it began with; both are `other` where
/// that does not tell.
pub(crate) fn of_upload(metadata: &[Pair], other: &dto::Owner) -> (dto::Owner, dto::Initiator) {
    let noted = pair(metadata, notes::ACL).and_then(Acl::from_text);
    let owner = noted.map_or_else(|| other.clone(), |acl| acl.shown_owner());
    let initiator = match pair(metadata, INITIATOR) {
        Some(id) => owner_of(id),
        None => owner.clone(),
    };
    let initiator = dto::Initiator { display_name: initiator.display_name, id: initiator.id };
    (owner, initiator)
}

type Pair = (String, String);

fn pair<'a>(pairs: &'a [Pair], name: &str) -> Option<&'a str> {
    pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.as_str())
}

/// The pairs of metadata that a new object in `bucket` gets, by what its request asks for.
///
/// # Errors
/// Those of [`Asked::acl`]; `NotImplemented` for a list that opens anything where lists are off;
/// `AccessControlListNotSupported`, `AccessDenied` where the bucket has none or refuses it.
pub(crate) async fn new_object(
    extensions: &Extensions,
    headers: &HeaderMap,
    bucket: &str,
) -> S3Result<Vec<(String, String)>> {
    let Some(caller) = extensions.get::<Caller>() else {
        return Err(s3_error!(InternalError, "a request without a caller"));
    };
    let sharing = &caller.sharing;
    let writer = caller.id.as_deref().unwrap_or(NOBODY);
    let asked = |bucket_owner: &str| {
        Asked { headers, document: None }.acl(writer, bucket_owner, &**sharing)
    };
    if sharing.lists == Lists::Off {
        return match asked(ONE_OWNER)? {
            Some(acl) if !acl.is_closed(ONE_OWNER) => Err(lists_open_nothing()),
            _ => Ok(Vec::new()),
        };
    }
    let notes = match &caller.notes {
        Some(notes) => notes.clone(),
        None => sharing.buckets.notes(bucket).await?.0,
    };
    let bucket_acl = sharing.bucket_acl(&notes);
    let bucket_owner = bucket_acl.map_or_else(|| writer.to_string(), |acl| acl.owner);
    let name = headers.get("x-amz-acl").and_then(|value| value.to_str().ok());
    let gives = name == Some("bucket-owner-full-control");
    let acl = checked(asked(&bucket_owner)?, &notes, gives)?;
    if acl.as_ref().is_some_and(|acl| !acl.is_closed(&bucket_owner)) && !caller.may_open(bucket) {
        return Err(s3_error!(AccessDenied, "Access Denied: this key may not let others in."));
    }
    let is_bucket_owners =
        is_enforced(&notes) || (gives && notes.ownership.as_deref() == Some(PREFERRED));
    let acl = match is_bucket_owners {
        true => Acl::private(&bucket_owner),
        false => acl.unwrap_or_else(|| Acl::private(writer)),
    };
    Ok(vec![(notes::ACL.to_string(), acl.to_text())])
}

fn lists_open_nothing() -> S3Error {
    let why = "access control lists that let others in (the gateway's setting `acl` is off)";
    s3_error!(NotImplemented, "{why}")
}

/// Whether lists let anybody in.
pub(crate) fn judges_lists(extensions: &Extensions) -> bool {
    extensions.get::<Caller>().is_some_and(|it| it.sharing.lists != Lists::Off)
}

/// Holds list and tags in an upload's metadata against what the caller may let in and give: where
/// the upload's id tells them, a client may have made them up. A list is closed, and takes no more
/// than to write, if it is the caller's own or the bucket's owner's: its word on whose it is counts
/// for nothing.
///
/// # Errors
/// `AccessDenied`; `NotImplemented` for a list that opens anything where lists are off, as it would
/// once they are on again.
pub(crate) async fn completed_object(
    extensions: &Extensions,
    metadata: &[(String, String)],
    bucket: &str,
) -> S3Result<()> {
    let Some(caller) = extensions.get::<Caller>() else { return Ok(()) };
    if !caller.may(PUT_TAGS) && pair(metadata, notes::TAGGING).is_some() {
        return Err(denied());
    }
    let acl = pair(metadata, notes::ACL).and_then(Acl::from_text);
    let Some(acl) = acl else { return Ok(()) };
    if caller.sharing.lists == Lists::Off {
        return if acl.is_closed(&acl.owner) { Ok(()) } else { Err(lists_open_nothing()) };
    }
    let notes = match &caller.notes {
        Some(notes) => notes.clone(),
        None => caller.sharing.buckets.notes(bucket).await?.0,
    };
    may_open(&acl, &notes)?;
    let writer = caller.id.as_deref().unwrap_or(NOBODY);
    let bucket_owner = caller.sharing.bucket_acl(&notes).map(|acl| acl.owner);
    let bucket_owner = bucket_owner.as_deref().unwrap_or(writer);
    let is_own = [writer, bucket_owner].contains(&acl.owner.as_str());
    let is_closed = is_own && acl.is_closed(bucket_owner);
    if !is_closed && !caller.may(PUT_ACL) {
        return Err(denied());
    }
    match is_closed || caller.may_open(bucket) {
        true => Ok(()),
        false => Err(s3_error!(AccessDenied, "Access Denied: this key may not let others in.")),
    }
}

/// Holds an asked list against what the bucket takes.
fn checked(acl: Option<Acl>, notes: &Notes, gives: bool) -> S3Result<Option<Acl>> {
    let Some(acl) = acl else { return Ok(None) };
    if is_enforced(notes) && !gives {
        return Err(lists_are_off());
    }
    may_open(&acl, notes)?;
    Ok(Some(acl))
}

/// Refuses a list that opens anything where the bucket's public access block forbids it.
///
/// # Errors
/// `AccessDenied`.
pub(crate) fn may_open(acl: &Acl, notes: &Notes) -> S3Result<()> {
    match acl.is_public() && notes.public_block.is_some_and(|block| block.block_acls) {
        true => Err(s3_error!(AccessDenied, "Access Denied: public lists are blocked.")),
        false => Ok(()),
    }
}

//! The list that a new object gets.

use super::{Asker, Lists, ONE_OWNER, denied, is_enforced};
use crate::acl::{Acl, Asked, lists_are_off, lists_count_for_nothing, owner_of};
use crate::auth::Caller;
use crate::notes::Notes;
use http::{Extensions, HeaderMap, HeaderName, Uri};
use penstock_store::notes;
use s3s::{S3ErrorCode, S3Result, dto, s3_error};

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

/// What a request says an upload is to begin with, as its headers begin.
const BEGINS: [&str; 4] = ["x-amz-acl", "x-amz-grant-", "x-amz-tagging", CLASS];
const CLASS: &str = "x-amz-storage-class";

type Pair = (String, String);

fn pair<'a>(pairs: &'a [Pair], name: &str) -> Option<&'a str> {
    pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.as_str())
}

/// The pairs of metadata that a new object in `bucket` gets, by what its request asks for.
///
/// # Errors
/// Those of [`Asked::acl`]; `AccessControlListNotSupported` for a list that opens anything where
/// lists are off, and where the bucket has none; `AccessDenied` where the bucket refuses it.
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
            Some(acl) if !acl.is_closed(ONE_OWNER) => Err(lists_count_for_nothing()),
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

/// Holds list and tags in an upload's metadata against what the caller may let in and give: where
/// the upload's id tells them, a client may have made them up. A list is closed, and takes no more
/// than to write, if it is the caller's own or the bucket's owner's: its word on whose it is counts
/// for nothing. A policy is asked as it would be if the upload began now.
///
/// # Errors
/// `AccessDenied`; `AccessControlListNotSupported` for a list that opens anything where lists are
/// off, as it would once they are on again.
pub(crate) async fn completed_object(
    completion: Completion<'_>,
    metadata: &[(String, String)],
) -> S3Result<()> {
    let Completion { extensions, bucket, .. } = completion;
    let Some(caller) = extensions.get::<Caller>() else { return Ok(()) };
    let acl = pair(metadata, notes::ACL).and_then(Acl::from_text);
    if caller.sharing.lists == Lists::Off {
        let is_closed = acl.is_none_or(|acl| acl.is_closed(&acl.owner));
        return if is_closed { Ok(()) } else { Err(lists_count_for_nothing()) };
    }
    let notes = match &caller.notes {
        Some(notes) => notes.clone(),
        None => caller.sharing.buckets.notes(bucket).await?.0,
    };
    let writer = caller.id.as_deref().unwrap_or(NOBODY);
    let bucket_owner = caller.sharing.bucket_acl(&notes).map(|acl| acl.owner);
    let bucket_owner = bucket_owner.as_deref().unwrap_or(writer);
    let is_closed = |acl: &Acl| {
        [writer, bucket_owner].contains(&acl.owner.as_str()) && acl.is_closed(bucket_owner)
    };
    let open = acl.as_ref().filter(|acl| !is_closed(acl));
    if let Some(acl) = open {
        may_open(acl, &notes)?;
        if !caller.may_open(bucket) {
            return Err(s3_error!(AccessDenied, "Access Denied: this key may not let others in."));
        }
    }
    let forms = acl.as_ref().map_or_else(Vec::new, |acl| acl.asked_with(bucket_owner));
    // A closed one is what there is without any header too.
    for form in open.is_none().then(Vec::new).into_iter().chain(forms) {
        match completion.as_begun_with(caller, metadata, form, open.is_some()).await {
            // It may have been asked for in another way.
            Err(error) if *error.code() == S3ErrorCode::AccessDenied => {}
            judged => return judged,
        }
    }
    Err(denied())
}

/// A completion that is judged once more.
#[derive(Clone, Copy)]
pub(crate) struct Completion<'a> {
    pub extensions: &'a Extensions,
    pub headers: &'a HeaderMap,
    pub uri: &'a Uri,
    pub bucket: &'a str,
    pub key: &'a str,
}

impl<'a> Completion<'a> {
    /// A request with this head, for an object.
    pub fn new(
        (headers, uri, extensions): (&'a HeaderMap, &'a Uri, &'a Extensions),
        bucket: &'a str,
        key: &'a str,
    ) -> Self {
        Completion { extensions, headers, uri, bucket, key }
    }

    /// Whether lists and policies would let an upload begin with this metadata, its list asked for
    /// in this form.
    async fn as_begun_with(
        self,
        caller: &Caller,
        metadata: &[(String, String)],
        form: Vec<(HeaderName, String)>,
        brings_list: bool,
    ) -> S3Result<()> {
        // Where the configuration let it in, nobody else is asked.
        let Some(entry) = &caller.entry() else { return Ok(()) };
        let mut headers = self.headers.clone();
        let begins = |name: &HeaderName| BEGINS.iter().any(|it| name.as_str().starts_with(it));
        let told: Vec<HeaderName> = headers.keys().filter(|name| begins(name)).cloned().collect();
        for name in told {
            headers.remove(name);
        }
        let pairs = [("x-amz-tagging", notes::TAGGING), (CLASS, notes::STORAGE_CLASS)];
        let pairs = pairs.into_iter().filter_map(|(header, note)| {
            Some((HeaderName::from_static(header), pair(metadata, note)?.to_string()))
        });
        for (name, value) in pairs.chain(form) {
            headers.insert(name, value.parse().map_err(|_| denied())?);
        }
        let asker = Asker::of(caller, (&headers, self.uri, self.extensions));
        let ask = asker.asks("CreateMultipartUpload", self.bucket, Some(self.key), None);
        caller.sharing.permit_begun(&ask, entry, brings_list).await
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

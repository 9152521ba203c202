//! Making buckets, and access control lists as answers tell and requests replace them.
//!
//! A bucket's list is in its notes, an object's in its metadata. The latter is replaced where it is
//! if the back end can; else the object is rewritten in place, tied to the version that was seen.

use crate::acl::{Acl, Asked, lists_are_off, lists_count_for_nothing};
use crate::auth::{Caller, still_let_in};
use crate::buckets::{Bucket, Buckets};
use crate::copy::{came_between, rewrite, tags_of};
use crate::creation;
use crate::documents::Verdict;
use crate::get::about_object;
use crate::judged::Judged;
use crate::locks;
use crate::notes::Notes;
use crate::sharing::{
    ENFORCED, Lists, ONE_OWNER, OWNERSHIPS, Standing, is_enforced, may_open,
    no_lists_beside_enforced, noted_acl,
};
use crate::versions;
use http::{Extensions, HeaderMap};
use penstock_base::{Error, Kind};
use penstock_store::notes;
use penstock_store::streaming::NULL_VERSION;
use penstock_store::{ObjectMeta, PutOptions, Revision, WriteCondition};
use s3s::{S3Error, S3Request, S3Result, dto, s3_error};

/// What a store tells of an object's tags besides its metadata.
const TAG_COUNT: &str = "@tag-count";

fn caller(extensions: &Extensions) -> S3Result<&Caller> {
    let found = extensions.get::<Caller>();
    found.ok_or_else(|| s3_error!(InternalError, "a request without a caller"))
}

/// The list that a request asks for, for something of `owner`.
fn asked(
    caller: &Caller,
    headers: &HeaderMap,
    document: Option<dto::AccessControlPolicy>,
    owner: &str,
    (bucket, bucket_owner): (&str, &str),
) -> S3Result<Option<Acl>> {
    let asked = Asked { headers, document };
    let acl = asked.acl(owner, bucket_owner, &*caller.sharing)?;
    match &acl {
        Some(acl) if caller.sharing.lists == Lists::Off && !acl.is_closed(ONE_OWNER) => {
            Err(lists_count_for_nothing())
        }
        Some(acl) if !acl.is_closed(bucket_owner) && !caller.may_open(bucket) => {
            Err(s3_error!(AccessDenied, "Access Denied: this key may not let others in."))
        }
        _ => Ok(acl),
    }
}

/// Refuses a list that the bucket takes no more.
fn taken(acl: &Acl, notes: &Notes) -> S3Result<()> {
    if is_enforced(notes) {
        return Err(lists_are_off());
    }
    may_open(acl, notes)
}

/// The owner of a bucket by its notes. One that was there before keys became owners is everybody's,
/// so that it is whoever asks; `None` where nobody signed.
fn owner_of(caller: &Caller, notes: &Notes) -> Option<String> {
    let acl = caller.sharing.bucket_acl(notes);
    acl.map(|acl| acl.owner).or_else(|| caller.id.clone())
}

/// Refuses to make something nobody's: no key could set up anything there any more.
fn nobodys() -> S3Error {
    s3_error!(AccessDenied, "Access Denied: nobody would own it.")
}

/// CreateBucket. Making one's own bucket again succeeds, as in the region us-east-1, unless it
/// would open or close it.
///
/// # Errors
/// `BucketAlreadyExists`; `NotImplemented` for object lock where versions cannot be locked, and for
/// lists that let others in where lists are off.
pub(crate) async fn create_bucket(
    buckets: &Buckets,
    request: S3Request<dto::CreateBucketInput>,
) -> S3Result<dto::CreateBucketOutput> {
    let caller = caller(&request.extensions)?;
    let input = request.input;
    let is_locked = input.object_lock_enabled_for_bucket.unwrap_or(false);
    let me = caller.id.as_deref().unwrap_or(ONE_OWNER);
    let acl = asked(caller, &request.headers, None, me, (&input.bucket, me))?;
    let constraint = input.create_bucket_configuration.and_then(|it| it.location_constraint);
    let location = constraint.map(|it| it.as_str().to_string()).filter(|it| !it.is_empty());
    let is_placed = buckets.is_placed(&input.bucket)?;
    let ownership = input.object_ownership.map(|it| it.as_str().to_string());
    check_ownership(ownership.as_deref(), acl.as_ref())?;
    let acl = acl.unwrap_or_else(|| Acl::private(me));
    let tags = tags_asked(&request.extensions)?;
    let output = dto::CreateBucketOutput { location: Some(format!("/{}", input.bucket)) };
    let lists = caller.sharing.lists;
    if is_locked {
        locks::check_new(buckets, &input.bucket)?;
    }
    let (notes, version) = buckets.notes(&input.bucket).await?;
    // Nothing hangs on it where neither lists nor locks count.
    let is_asked = lists != Lists::Off || is_locked || version.is_some();
    let is_there = is_asked && buckets.is_there(&input.bucket).await?;
    if is_there {
        let is_made = is_made(lists, caller.sharing.bucket_acl(&notes), &acl)?;
        if is_made && (lists != Lists::Off || is_locked) {
            return made_again(is_locked, tags, &notes).map(|()| output);
        }
        locks::made_again(is_locked, &notes)?;
    }
    // Those of a bucket of this name whose removal was cut short, or went past the gateway.
    if let Some(version) = version.filter(|_| !is_there) {
        buckets.forget_notes_at(&input.bucket, &version).await?;
    }
    let is_acl_noted =
        lists == Lists::Owners || (lists != Lists::Off && acl != Acl::private(ONE_OWNER));
    // Where the back end knows it, it is no setting of the gateway's.
    let placed_at = location.clone().filter(|_| is_placed);
    let location = location.filter(|_| !is_placed);
    let is_set_up = location.is_some() || ownership.is_some() || tags.is_some();
    let is_noted = is_acl_noted || is_set_up;
    if is_noted {
        buckets.check_notes_kept(&input.bucket).await?;
    }
    buckets.create(&input.bucket, placed_at.as_deref()).await?;
    // What the new owner takes it with.
    let found = if is_there { notes } else { Notes::default() };
    let found = (lists == Lists::Owners).then_some(found);
    if is_noted {
        let noted = |notes: &mut Notes| {
            claim(notes, Some(&acl).filter(|_| is_acl_noted), found.as_ref())?;
            // What was set up on one that was there before stays.
            notes.location = location.clone().or(notes.location.take());
            notes.ownership = ownership.clone().or(notes.ownership.take());
            notes.tags = tags.clone().or(notes.tags.take());
            Ok(())
        };
        buckets.change_notes(&Judged::by_none(&input.bucket), noted).await?;
    }
    if is_locked {
        // Whoever made it at the same time may have noted first that it is theirs.
        let owner = is_acl_noted.then_some(acl.owner.as_str());
        locks::begin(buckets, &Judged::by_owner(&input.bucket, owner)).await?;
    }
    Ok(output)
}

/// Whether a bucket that is there, with this list, is made already as it is asked for. One that
/// was there before keys became owners is not yet: it is theirs who make it again.
///
/// # Errors
/// `BucketAlreadyExists`.
fn is_made(lists: Lists, there: Option<Acl>, acl: &Acl) -> S3Result<bool> {
    match there {
        _ if lists == Lists::Off => Ok(true),
        None => Ok(false),
        Some(there) if there == *acl => Ok(true),
        Some(_) => Err(not_available()),
    }
}

/// Notes the list of a bucket. Of two that make one at once, it is theirs whose note is first;
/// until then it was everybody's, and what somebody set up on it since it was found does not stay.
///
/// # Errors
/// `BucketAlreadyExists`; those of a list that the bucket takes no more.
fn claim(notes: &mut Notes, acl: Option<&Acl>, found: Option<&Notes>) -> S3Result<()> {
    let there = notes.list();
    if let Some(found) = found.filter(|_| there.is_none()) {
        *notes = found.clone();
    }
    if acl.zip(there.as_ref()).is_some_and(|(acl, there)| acl.owner != there.owner) {
        return Err(not_available());
    }
    if let Some(acl) = acl.filter(|acl| there.is_none() && !acl.is_closed(&acl.owner)) {
        taken(acl, notes)?;
    }
    notes.acl = acl.map(Acl::to_text);
    Ok(())
}

fn not_available() -> S3Error {
    s3_error!(BucketAlreadyExists, "The requested bucket name is not available.")
}

/// The tags that CreateBucket asks for in its document.
fn tags_asked(extensions: &Extensions) -> S3Result<Option<Vec<(String, String)>>> {
    match extensions.get::<Verdict>() {
        Some(document) => creation::tags_of(&document.creation()?),
        None => Ok(None),
    }
}

/// Making a bucket again changes nothing of it: it gets neither object lock nor other tags.
///
/// # Errors
/// `BucketAlreadyOwnedByYou`.
fn made_again(is_locked: bool, tags: Option<Vec<(String, String)>>, notes: &Notes) -> S3Result<()> {
    locks::made_again(is_locked, notes)?;
    match tags.is_some() && tags != notes.tags {
        true => Err(s3_error!(BucketAlreadyOwnedByYou, "This bucket is there with other tags.")),
        false => Ok(()),
    }
}

/// What CreateBucket says of ownership.
///
/// # Errors
/// `InvalidArgument` for what is none; `InvalidBucketAclWithObjectOwnership` for one under which
/// lists count for nothing, beside a list that lets others in.
fn check_ownership(ownership: Option<&str>, acl: Option<&Acl>) -> S3Result<()> {
    match ownership {
        Some(odd) if !OWNERSHIPS.contains(&odd) => {
            Err(s3_error!(InvalidArgument, "Invalid x-amz-object-ownership header: {odd}"))
        }
        Some(ENFORCED) if acl.is_some_and(|acl| !acl.is_closed(&acl.owner)) => {
            Err(no_lists_beside_enforced())
        }
        _ => Ok(()),
    }
}

/// GetBucketAcl.
pub(crate) async fn get_bucket(
    buckets: &Buckets,
    request: S3Request<dto::GetBucketAclInput>,
) -> S3Result<dto::GetBucketAclOutput> {
    let caller = caller(&request.extensions)?;
    let bucket = &request.input.bucket;
    buckets.check(bucket).await?;
    let notes = match caller.sharing.lists {
        Lists::Off => Notes::default(),
        _ => buckets.notes(bucket).await?.0,
    };
    let owner = || owner_of(caller, &notes).unwrap_or_else(|| ONE_OWNER.to_string());
    let acl = caller.sharing.bucket_acl(&notes).unwrap_or_else(|| Acl::private(&owner()));
    let (owner, grants) = (acl.shown_owner(), acl.shown_grants());
    Ok(dto::GetBucketAclOutput { owner: Some(owner), grants: Some(grants) })
}

/// PutBucketAcl.
pub(crate) async fn put_bucket(
    buckets: &Buckets,
    mut request: S3Request<dto::PutBucketAclInput>,
) -> S3Result<dto::PutBucketAclOutput> {
    let document = request.input.access_control_policy.take();
    let caller = caller(&request.extensions)?;
    let bucket = &request.input.bucket;
    let is_off = caller.sharing.lists == Lists::Off;
    let notes = if is_off { Notes::default() } else { buckets.notes(bucket).await?.0 };
    let judged = Judged::of(&request.extensions, bucket);
    // The owner of the list is whose the bucket was.
    judged.check(&notes)?;
    let owner = owner_of(caller, &notes).ok_or_else(nobodys)?;
    let acl = asked(caller, &request.headers, document, &owner, (bucket, &owner))?;
    let acl = acl.ok_or_else(|| s3_error!(MissingSecurityHeader, "There is no list."))?;
    taken(&acl, &notes)?;
    buckets.writable(bucket).await?;
    match is_off {
        // The list that there is anyway.
        true => buckets.check(bucket).await?,
        false => {
            let noted = |notes: &mut Notes| {
                notes.acl = Some(acl.to_text());
                Ok(())
            };
            buckets.change_notes(&judged, noted).await?;
        }
    }
    Ok(dto::PutBucketAclOutput::default())
}

/// GetObjectAcl.
pub(crate) async fn get_object(
    buckets: &Buckets,
    request: S3Request<dto::GetObjectAclInput>,
) -> S3Result<dto::GetObjectAclOutput> {
    let caller = caller(&request.extensions)?;
    let bucket = buckets.get(&request.input.bucket).await?;
    let name = versions::name(&bucket, &request.input.key, request.input.version_id.as_deref())?;
    let meta = bucket.query().head(&bucket.at(&name)).await.map_err(about_object)?;
    still_let_in(&request.extensions, &meta)?;
    let noted = noted_acl(&meta).filter(|_| caller.sharing.lists != Lists::Off);
    let acl = noted.unwrap_or_else(|| {
        let owner = caller.notes.as_ref().and_then(|notes| owner_of(caller, notes));
        Acl::private(owner.as_deref().unwrap_or(ONE_OWNER))
    });
    Ok(dto::GetObjectAclOutput {
        owner: Some(acl.shown_owner()),
        grants: Some(acl.shown_grants()),
        ..Default::default()
    })
}

/// PutObjectAcl.
pub(crate) async fn put_object(
    buckets: &Buckets,
    mut request: S3Request<dto::PutObjectAclInput>,
) -> S3Result<dto::PutObjectAclOutput> {
    let document = request.input.access_control_policy.take();
    let caller = caller(&request.extensions)?;
    let (name, key) = (&request.input.bucket, &request.input.key);
    let bucket = buckets.writable(name).await?;
    let version = request.input.version_id.as_deref().filter(|id| *id != NULL_VERSION);
    if version.is_some() && bucket.store.has_versions() && !bucket.store.can_revise() {
        return Err(s3_error!(
            NotImplemented,
            "PutObjectAcl of one version: here it would rewrite the object"
        ));
    }
    let named = versions::name(&bucket, key, request.input.version_id.as_deref())?;
    let meta = bucket.query().head(&bucket.at(&named)).await.map_err(about_object)?;
    still_let_in(&request.extensions, &meta)?;
    let notes = match caller.sharing.lists {
        Lists::Off => Notes::default(),
        _ => buckets.notes(name).await?.0,
    };
    Judged::of(&request.extensions, name).check(&notes)?;
    let bucket_owner = owner_of(caller, &notes);
    let owner = noted_acl(&meta).map(|acl| acl.owner).or_else(|| bucket_owner.clone());
    let owner = owner.ok_or_else(nobodys)?;
    let bucket_owner = bucket_owner.unwrap_or_else(|| owner.clone());
    let acl = asked(caller, &request.headers, document, &owner, (name, &bucket_owner))?;
    let acl = acl.ok_or_else(|| s3_error!(MissingSecurityHeader, "There is no list."))?;
    taken(&acl, &notes)?;
    if caller.sharing.lists != Lists::Off && noted_acl(&meta).as_ref() != Some(&acl) {
        set_note(&bucket, (key, &named), (meta, &caller.of_object), &acl).await?;
    }
    Ok(dto::PutObjectAclOutput::default())
}

/// Gives the version that was judged its new list, and no other: somebody else's may have come
/// between, or another list.
fn revision(judged: &ObjectMeta, standings: &[Standing], acl: &Acl) -> Revision {
    let owner_of = |meta: &ObjectMeta| noted_acl(meta).map(|acl| acl.owner);
    let (etag, owner) = (judged.etag.clone(), owner_of(judged));
    let (standings, text) = (standings.to_vec(), acl.to_text());
    Box::new(move |meta| {
        let is_it = meta.etag == etag && owner_of(meta) == owner;
        match is_it && standings.iter().all(|standing| standing.check(meta).is_ok()) {
            true => Ok(Some(text.clone())),
            false => Err(Error::new(Kind::Conflict, "the object was written in between")),
        }
    })
}

async fn set_note(
    bucket: &Bucket,
    (key, named): (&str, &str),
    (meta, standings): (ObjectMeta, &[Standing]),
    acl: &Acl,
) -> S3Result<()> {
    if bucket.store.can_revise() {
        let revision = revision(&meta, standings, acl);
        let done = bucket.revise(&bucket.key(named), notes::ACL, revision).await;
        return done.map_err(|error| came_between(about_object(error)));
    }
    let tags = match bucket.store.copies_tags() {
        true => None,
        false => tags_of(bucket, named, &meta).await?,
    };
    let mut metadata = meta.metadata;
    metadata.extend(tags);
    metadata.retain(|pair| ![notes::ACL, TAG_COUNT].contains(&pair.0.as_str()));
    metadata.push((notes::ACL.to_string(), acl.to_text()));
    // Else what is rewritten would be STANDARD.
    let class = meta.storage_class.filter(|class| bucket.store.takes_class(class));
    metadata.extend(class.map(|class| (notes::STORAGE_CLASS.to_string(), class.into())));
    let condition = meta.etag.map_or(WriteCondition::None, WriteCondition::IfMatch);
    let options = PutOptions { condition, content_type: meta.content_type, metadata };
    rewrite(bucket, key, &options).await.map_err(came_between)
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_store::ETag;

    #[test]
    fn a_list_is_given_to_the_version_that_was_judged() {
        let meta = |etag: &str, owner: &str| ObjectMeta {
            etag: Some(ETag(etag.to_string())),
            metadata: vec![(notes::ACL.to_string(), Acl::private(owner).to_text())],
            ..ObjectMeta::default()
        };
        let acl = Acl::private("me");
        let revise = revision(&meta("a", "me"), &[], &acl);
        assert_eq!(revise(&meta("a", "me")).unwrap(), Some(acl.to_text()));
        for other in [meta("b", "me"), meta("a", "other"), ObjectMeta::default()] {
            let error = came_between(about_object(revise(&other).unwrap_err()));
            assert_eq!(error.code().as_str(), "OperationAborted");
        }
    }
}

//! Whether somebody may do something by access control lists and bucket policies: the acting side
//! of [`crate::acl`] and [`crate::policy`].
//!
//! Off by default: keys and their rights in the configuration decide alone. `public` lets lists and
//! policies open buckets and objects to unsigned requests. `owners` makes each key an owner of
//! what it makes, whom lists and policies let in besides what the configuration allows at most.

mod ask;
mod batch;
mod besides;
mod facts;
mod needs;
mod objects;
mod standing;
mod tags;

pub(crate) use ask::{Ask, Asker};
pub(crate) use batch::Batch;
pub(crate) use besides::{Entry, GET_TAGS, PUT_TAGS, besides, perhaps};
pub(crate) use facts::version_of;
pub(crate) use objects::{
    Completion, INITIATOR, completed_object, initiator_note, may_open, new_object, of_upload,
};
pub(crate) use standing::Standing;
use standing::{By, ByList, ByTags};
pub(crate) use tags::permit_tags;

use crate::acl::{Acl, Permission, Requester, Users};
use crate::buckets::Buckets;
use crate::error::{Subject, to_s3};
use crate::notes::Notes;
use crate::policy::{Decision, Policy, Request};
use crate::versions;
use http::StatusCode;
use needs::{Takes, action, is_about_policy, of_version, takes};
use penstock_base::{Error, Kind, Result};
use penstock_store::{ObjectMeta, notes};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};
use std::collections::HashSet;
use std::sync::Arc;

/// Owner of everything, where keys are no owners.
pub(crate) const ONE_OWNER: &str = "penstock";
/// Ownership under which lists count for nothing.
pub(crate) const ENFORCED: &str = "BucketOwnerEnforced";
/// Every ownership that there is.
pub(crate) const OWNERSHIPS: [&str; 3] = ["BucketOwnerPreferred", "ObjectWriter", ENFORCED];

/// What lists and policies are good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lists {
    /// Nothing: those that would open anything are refused.
    Off,
    /// They let unsigned requests in.
    Public,
    /// Keys are owners, and they let others in.
    Owners,
}

impl Lists {
    /// The value of the setting `acl`.
    ///
    /// # Errors
    /// `Invalid` for any other.
    pub fn parse(text: &str) -> Result<Self> {
        match text {
            "off" => Ok(Lists::Off),
            "public" => Ok(Lists::Public),
            "owners" => Ok(Lists::Owners),
            other => Err(Error::new(Kind::Invalid, format!("unknown value `{other}` of `acl`"))
                .with_hint("It takes off, public or owners")),
        }
    }
}

/// Lists and policies of a gateway.
#[derive(Debug)]
pub(crate) struct Sharing {
    pub lists: Lists,
    pub buckets: Arc<Buckets>,
    ids: HashSet<String>,
}

impl Users for Sharing {
    fn has(&self, id: &str) -> bool {
        match self.lists {
            Lists::Owners => self.ids.contains(id),
            Lists::Off | Lists::Public => id == ONE_OWNER,
        }
    }
}

/// Tags of an object, if there is one.
type Tags = Option<Vec<(String, String)>>;

/// What let a request in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LetIn {
    ByPolicy,
    /// A policy that there may be is silent.
    ByList,
}

fn denied() -> S3Error {
    s3_error!(AccessDenied, "Access Denied")
}

impl Sharing {
    pub fn new(lists: Lists, buckets: Arc<Buckets>, ids: HashSet<String>) -> Self {
        Sharing { lists, buckets, ids }
    }

    /// The owner's id of whoever signs with a key.
    pub fn owner_id(&self, access_key: &str) -> String {
        match self.lists {
            Lists::Owners => access_key.to_string(),
            Lists::Off | Lists::Public => ONE_OWNER.to_string(),
        }
    }

    /// The list of a bucket; one that was never noted is its only owner's, or nobody's where keys
    /// are owners.
    pub fn bucket_acl(&self, notes: &Notes) -> Option<Acl> {
        let noted = notes.list();
        match self.lists {
            Lists::Owners => noted,
            Lists::Off | Lists::Public => Some(noted.unwrap_or_else(|| Acl::private(ONE_OWNER))),
        }
    }

    /// Whether lists or policies let somebody do this. Takes a request for the bucket's notes, and
    /// one for the object's list where that counts.
    ///
    /// # Errors
    /// `AccessDenied`; `NoSuchBucket`.
    pub async fn permit(&self, ask: &Ask<'_>) -> S3Result<Entry> {
        let (notes, version) = self.buckets.notes(ask.bucket).await?;
        if version.is_none() {
            self.buckets.check(ask.bucket).await?;
        }
        // What a policy asks for is in their bodies, where [`batch`] and [`tags`] judge it.
        let is_in_body = matches!(ask.operation, "DeleteObjects" | "PutObjectTagging");
        if is_in_body && notes.policy.is_some() {
            return Ok(Entry::new(notes, LetIn::ByPolicy, Vec::new()));
        }
        let is_owners = || is_owner(ask, self.bucket_acl(&notes).as_ref());
        let policy = match self.policy_of(&notes, ask.bucket) {
            // Nobody else could mend it.
            Err(_) if is_about_policy(ask.operation) && is_owners() => None,
            policy => policy?,
        };
        let (how, standings) = self.judge(ask, &notes, policy.as_ref()).await?;
        Ok(Entry::new(notes, how, standings))
    }

    /// As [`Sharing::permit`], with the notes of the bucket and the policy in them.
    async fn judge(
        &self,
        ask: &Ask<'_>,
        notes: &Notes,
        policy: Option<&Policy>,
    ) -> S3Result<(LetIn, Vec<Standing>)> {
        let is_owner = is_owner(ask, self.bucket_acl(notes).as_ref());
        let (decision, by_tags) = self.by_policy(ask, (notes, policy), is_owner).await?;
        let mut standings = Vec::from_iter(by_tags);
        match decision {
            Decision::Denied if !(is_owner && is_about_policy(ask.operation)) => {
                return Err(denied());
            }
            Decision::Allowed => return Ok((LetIn::ByPolicy, standings)),
            Decision::Denied | Decision::Silent => {}
        }
        standings.extend(self.by_list(ask, notes, policy).await?);
        Ok((LetIn::ByList, standings))
    }

    /// Whether lists let somebody do this, under a policy that is silent about it. Where the
    /// object's own list did, whatever answers the request has to be held against it again.
    async fn by_list(
        &self,
        ask: &Ask<'_>,
        notes: &Notes,
        policy: Option<&Policy>,
    ) -> S3Result<Option<Standing>> {
        let acl = self.bucket_acl(notes);
        let is_owner = is_owner(ask, acl.as_ref());
        let acl = acl.unwrap_or(Acl { owner: String::new(), grants: Vec::new() });
        let effective = effective(acl, notes);
        let permits = |permission| is_owner || effective.permits(ask.who, permission);
        let mut standing = None;
        let is_let_in = match (takes(ask.operation), ask.key) {
            (Takes::OnBucket(permission), _) => permits(permission),
            (Takes::Owner, _) | (Takes::OnObject(_), None) => is_owner,
            (Takes::OnObject(_), Some(_)) if is_enforced(notes) => is_owner,
            (Takes::OnObject(permission), Some(key)) => {
                // A copy is tied to the version that is judged: it must be the one that there is.
                let found = self.object(ask, key, ask.is_source).await;
                let list = ByList {
                    who: ask.who.map(str::to_string),
                    permission,
                    bucket_owner: effective.owner.clone(),
                    is_let_in: is_owner && effective.owner.is_empty(),
                    ignores_public: notes.public_block.is_some_and(|block| block.ignore_acls),
                };
                let judged = found.as_ref().ok().and_then(|meta| meta.etag.clone());
                standing = Some(Standing { by: By::List(list.clone()), judged });
                match found {
                    Ok(meta) => list.permits(&meta),
                    // Whoever may list is told that it is not there.
                    Err(error) if is_missing(&error) => {
                        let operation = "ListObjects";
                        let listing = Ask { operation, action: None, version: None, ..*ask };
                        match self.by_policy(&listing, (notes, policy), is_owner).await?.0 {
                            Decision::Allowed => true,
                            Decision::Denied => false,
                            Decision::Silent => permits(Permission::Read),
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        if is_let_in { Ok(standing) } else { Err(denied()) }
    }

    /// What a policy that there may be says. Where that hangs on the object's tags, whatever
    /// answers the request has to be the version that has them.
    async fn by_policy(
        &self,
        ask: &Ask<'_>,
        (notes, policy): (&Notes, Option<&Policy>),
        is_owner: bool,
    ) -> S3Result<(Decision, Option<Standing>)> {
        let Some(policy) = policy else { return Ok((Decision::Silent, None)) };
        let mut facts = facts::facts(ask, |bucket| self.buckets.names(bucket));
        let is_list = takes(ask.operation) == Takes::OnBucket(Permission::Read);
        if let (true, Some(key)) = (is_list, ask.key) {
            // Whether a list would tell that this object is not there.
            facts.put("s3:prefix", key);
        }
        let is_of_version = ask.version.is_some();
        let name = match ask.action {
            Some(action) => of_version(action.to_string(), is_of_version),
            None => action(ask.operation, is_of_version),
        };
        let (who, key) = (ask.who, ask.key.filter(|_| !is_list));
        let asks_for_tags =
            policy.asks_for_tags(&Request { who, action: &name, key, facts: &facts });
        let mut standing = None;
        if let (true, Some(key)) = (asks_for_tags, ask.key) {
            let tags;
            (tags, standing) = self.by_tags(ask, key).await?;
            for (name, value) in tags.iter().flatten() {
                facts.put(&format!("s3:ExistingObjectTag/{name}"), value);
            }
        }
        let request = Request { who, action: &name, key, facts: &facts };
        let decision = match ask.action {
            Some(besides::PUT_ACL) => policy.judge_list(&request),
            _ => policy.judge(&request),
        };
        let restricted = notes.public_block.is_some_and(|block| block.restrict_buckets);
        match decision {
            Decision::Allowed if restricted && !is_owner && policy.is_public() => {
                Ok((Decision::Silent, standing))
            }
            decision => Ok((decision, standing)),
        }
    }

    /// The tags of an object, and where it or they answer the request what they are held against.
    async fn by_tags(&self, ask: &Ask<'_>, key: &str) -> S3Result<(Tags, Option<Standing>)> {
        let (mut judged, mut version) = (None, None);
        let is_by_object = standing::is_answered_by_object(ask);
        if is_by_object {
            // Before its tags: if these are of a later version, that is not the one here.
            match self.object(ask, key, true).await {
                Ok(meta) => (judged, version) = (meta.etag, meta.version),
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let tags = self.tags(ask, key).await?;
        let standing = (is_by_object || standing::is_answered_by_tags(ask)).then(|| {
            let tags = tags.clone();
            Standing { by: By::Tags(ByTags { tags, version }), judged }
        });
        Ok((tags, standing))
    }

    /// The tags of an object; `None` where it is not there, or the back end has none.
    async fn tags(&self, ask: &Ask<'_>, key: &str) -> S3Result<Tags> {
        let bucket = self.buckets.get(ask.bucket).await?;
        let name = versions::name(&bucket, key, ask.version)?;
        match bucket.store.tags(&bucket.key(&name)).await {
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Unsupported) => Ok(None),
            // Taken for none they would pass whatever is denied for them.
            tags => tags.map(Some).map_err(|error| to_s3(Subject::Object, error)),
        }
    }

    /// The policy in a bucket's notes.
    ///
    /// # Errors
    /// `MalformedPolicy` of notes that nobody wrote, or that were written when the bucket had other
    /// names.
    fn policy_of(&self, notes: &Notes, bucket: &str) -> S3Result<Option<Policy>> {
        let parse = |text: &String| Policy::parse(text, self.buckets.names(bucket));
        notes.policy.as_ref().map(parse).transpose()
    }

    /// An object, with the list that it has: as the back end has it now, or as a read of it would
    /// find it.
    ///
    /// # Errors
    /// `NoSuchKey`, and what the back end says.
    async fn object(&self, ask: &Ask<'_>, key: &str, is_asked: bool) -> S3Result<ObjectMeta> {
        let bucket = self.buckets.get(ask.bucket).await?;
        let name = versions::name(&bucket, key, ask.version)?;
        let query = if is_asked { bucket.asking_query() } else { bucket.query() };
        let meta = query.head(&bucket.at(&name)).await;
        meta.map_err(|error| to_s3(Subject::Object, error))
    }

    /// Which of these buckets belong to somebody, where keys are owners.
    pub async fn is_owned(&self, bucket: &str, who: Requester<'_>) -> bool {
        if self.lists != Lists::Owners {
            return true;
        }
        let Some(who) = who else { return false };
        // A bucket whose notes cannot be read is not shown.
        let notes = self.buckets.notes(bucket).await;
        notes.is_ok_and(|(notes, _)| notes.list().is_none_or(|acl| acl.owner == who))
    }
}

/// Whether somebody owns the bucket of this list. One that was there before keys became owners is
/// everybody's whom the configuration lets in.
fn is_owner(ask: &Ask<'_>, acl: Option<&Acl>) -> bool {
    ask.who.is_some() && acl.is_none_or(|acl| ask.who == Some(acl.owner.as_str()))
}

/// Whether an object or the version that is named is not there, or is a delete marker.
fn is_missing(error: &S3Error) -> bool {
    matches!(
        error.code(),
        S3ErrorCode::NoSuchKey | S3ErrorCode::NoSuchVersion | S3ErrorCode::MethodNotAllowed
    )
}

/// The list in an object's metadata.
pub(crate) fn noted_acl(meta: &ObjectMeta) -> Option<Acl> {
    let pair = meta.metadata.iter().find(|pair| pair.0 == notes::ACL)?;
    Acl::from_text(&pair.1)
}

/// Whether lists count for nothing in this bucket.
pub(crate) fn is_enforced(notes: &Notes) -> bool {
    notes.ownership.as_deref() == Some(ENFORCED)
}

/// Refuses a list that lets others in where it would count for nothing.
pub(crate) fn no_lists_beside_enforced() -> S3Error {
    let code = S3ErrorCode::Custom("InvalidBucketAclWithObjectOwnership".into());
    let why = "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced";
    let mut error = S3Error::with_message(code, why);
    error.set_status_code(StatusCode::BAD_REQUEST);
    error
}

/// What of a list counts.
fn effective(acl: Acl, notes: &Notes) -> Acl {
    if is_enforced(notes) {
        return Acl::private(&acl.owner);
    }
    match notes.public_block.is_some_and(|block| block.ignore_acls) {
        true => acl.without_public(),
        false => acl,
    }
}

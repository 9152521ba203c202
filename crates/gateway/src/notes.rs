//! What clients set up on a bucket besides what is in it: lists, rules, tags. One small object for
//! each bucket, in a container of their own on the same back end, so that every replica sees them.
//!
//! Decides how the notes are kept, not what they mean. A change is tied to the version that was
//! read: of two at once the second is made over what the first left.

use crate::acl::Acl;
use crate::buckets::{Bucket, Buckets};
use crate::cors::Rule;
use crate::error::{Subject, to_s3};
use crate::get::about_object;
use crate::judged::Judged;
use crate::lock::BucketLock;
use bytes::Bytes;
use penstock_base::Kind;
use penstock_store::{ETag, GetRequest, ListRequest, PutOptions, WriteCondition};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Longest notes of a bucket: a policy has 20 KiB at most, a hundred CORS rules as much again.
pub(crate) const NOTES_BYTES_MAX: usize = 256 << 10;

/// Changes of others that one change may be overtaken by: each of them went through.
const ROUNDS_MAX: usize = 100;

/// The four switches of PutPublicAccessBlock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicBlock {
    /// Lists that open anything are refused.
    pub block_acls: bool,
    /// Such lists have no effect.
    pub ignore_acls: bool,
    /// Policies that open anything are refused.
    pub block_policy: bool,
    /// Such policies have no effect on strangers.
    pub restrict_buckets: bool,
}

/// The notes of one bucket. What was never set up is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Notes {
    /// Access control list, as [`Acl::to_text`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acl: Option<String>,
    /// Tags, in the order in which they were sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<(String, String)>>,
    /// CORS rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cors: Option<Vec<Rule>>,
    /// Bucket policy, as it was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Public access block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_block: Option<PublicBlock>,
    /// Object ownership.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ownership: Option<String>,
    /// Algorithm of default encryption.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encryption: Option<String>,
    /// Object lock, where it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<BucketLock>,
    /// Location constraint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
}

impl Notes {
    /// The access control list, where there is one.
    pub fn list(&self) -> Option<Acl> {
        Acl::from_text(self.acl.as_deref()?)
    }
}

impl Buckets {
    /// Where the notes of a bucket lie, if there can be any.
    async fn notes_place(&self, bucket: &str) -> S3Result<Option<(Arc<Bucket>, String)>> {
        match self.notes_home(bucket).await {
            Err(error) if is_missing(&error) => Ok(None),
            found => found,
        }
    }

    /// The notes of a bucket and their version; none of a bucket that has none.
    ///
    /// # Errors
    /// What the back end says; `InternalError` for notes that nobody wrote.
    pub async fn notes(&self, bucket: &str) -> S3Result<(Notes, Option<ETag>)> {
        match self.notes_place(bucket).await? {
            Some((home, key)) => read(&home, &key).await,
            None => Ok((Notes::default(), None)),
        }
    }

    /// Whether a bucket in the container of this one has object lock: the container keeps versions
    /// of all of them or of none. The back end is asked which there are: the configuration of
    /// another replica may name some that this one's does not.
    ///
    /// # Errors
    /// As [`Buckets::notes`].
    pub async fn is_locked_beside(&self, bucket: &str) -> S3Result<bool> {
        let Some((home, key)) = self.notes_place(bucket).await? else { return Ok(false) };
        let folder = key.split_inclusive('/').next().unwrap_or_default().to_string();
        let mut request = ListRequest { prefix: folder, ..ListRequest::default() };
        loop {
            let page = home.store.list(request.clone()).await;
            let page = page.map_err(|error| to_s3(Subject::Bucket, error))?;
            for entry in page.objects {
                if read(&home, &entry.key).await?.0.lock.is_some() {
                    return Ok(true);
                }
            }
            match page.next {
                Some(next) => request.token = Some(next),
                None => return Ok(false),
            }
        }
    }

    /// The version of the notes of a bucket, which need not be such as can be read where its owner
    /// was not asked.
    ///
    /// # Errors
    /// `OperationAborted` where it is another's than it was; what the back end says.
    pub async fn notes_version(&self, judged: &Judged<'_>) -> S3Result<Option<ETag>> {
        if judged.is_owned() {
            let (notes, version) = self.notes(judged.bucket).await?;
            return judged.check(&notes).map(|()| version);
        }
        let Some((home, key)) = self.notes_place(judged.bucket).await? else {
            return Ok(None);
        };
        match home.asking_query().head(&home.at(&key)).await {
            Ok(meta) => Ok(meta.etag),
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            Err(error) => Err(about_object(error)),
        }
    }

    /// Changes the notes of a bucket that is there and may be written to. Whoever is overtaken by
    /// another change makes theirs again over what that one left, unless that made the bucket
    /// another's than it was when the request was judged.
    ///
    /// # Errors
    /// `NoSuchBucket`; `AccessDenied` for a read-only bucket; `OperationAborted` when others keep
    /// changing them, or it is another's; `NotImplemented` where none are kept.
    pub async fn change_notes(
        &self,
        judged: &Judged<'_>,
        change: impl Fn(&mut Notes) -> S3Result<()> + Send,
    ) -> S3Result<()> {
        let bucket = judged.bucket;
        self.writable(bucket).await?;
        self.check(bucket).await?;
        let mut home = self.notes_home(bucket).await;
        if home.as_ref().is_err_and(is_missing) {
            self.make_notes_home(bucket).await?;
            home = self.notes_home(bucket).await;
        }
        let (home, key) = home?.ok_or_else(not_kept)?;
        check_tied(&home)?;
        for _ in 0..ROUNDS_MAX {
            let (mut notes, etag) = self.notes(bucket).await?;
            judged.check(&notes)?;
            let before = notes.clone();
            change(&mut notes)?;
            if notes == before {
                return Ok(());
            }
            let text = serde_json::to_vec(&notes)
                .map_err(|_| s3_error!(InternalError, "the notes cannot be written"))?;
            if text.len() >= NOTES_BYTES_MAX {
                let why = "The settings of this bucket are too long.";
                return Err(s3_error!(InvalidRequest, "{why}"));
            }
            let condition = etag.map_or(WriteCondition::IfAbsent, WriteCondition::IfMatch);
            let content_type = Some("application/json".to_string());
            let options = PutOptions { condition, content_type, metadata: Vec::new() };
            if write(self, bucket, (&home, &key), text.into(), &options).await? {
                return Ok(());
            }
        }
        Err(came_between())
    }

    /// Refuses by name where notes of a bucket, which need not be there, cannot be changed.
    ///
    /// # Errors
    /// `NotImplemented`; as [`Buckets::get`].
    pub async fn check_notes_kept(&self, bucket: &str) -> S3Result<()> {
        match self.notes_home(bucket).await {
            Ok(Some((home, _))) => check_tied(&home),
            Ok(None) => Err(not_kept()),
            // Their container is made when they are.
            Err(error) if is_missing(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Forgets this version of the notes of a bucket that is gone. Others stay where the back end
    /// can tell: somebody else is making the bucket at the same time.
    ///
    /// # Errors
    /// What the back end says.
    pub async fn forget_notes_at(&self, bucket: &str, version: &ETag) -> S3Result<()> {
        let Some((home, key)) = self.notes_place(bucket).await? else {
            return Ok(());
        };
        let can_tell = home.store.capabilities().conditional_delete;
        let version = Some(version).filter(|_| can_tell);
        match home.query().delete(&home.at(&key), version).await {
            Err(error) if error.kind() == Kind::Conflict && version.is_some() => Ok(()),
            Err(error) if error.kind() != Kind::NotFound => Err(about_object(error)),
            _ => Ok(()),
        }
    }
}

/// The notes that lie there, and their version.
async fn read(home: &Bucket, key: &str) -> S3Result<(Notes, Option<ETag>)> {
    let whole = GetRequest::default();
    // Who may do what is never older than what the back end has, whatever a cache remembers.
    let mut stream = match home.asking_query().get(&home.at(key), whole).await {
        Ok(stream) => stream,
        Err(error) if error.kind() == Kind::NotFound => return Ok((Notes::default(), None)),
        Err(error) => return Err(about_object(error)),
    };
    let etag = stream.meta().etag.clone();
    let mut text = vec![0; NOTES_BYTES_MAX];
    let mut filled = 0;
    loop {
        let read = stream.read(&mut text[filled..]).await.map_err(about_object)?;
        if read == 0 {
            break;
        }
        filled += read;
    }
    let notes = serde_json::from_slice(&text[..filled]);
    let wrong = |_| s3_error!(InternalError, "the notes of this bucket cannot be read");
    Ok((notes.map_err(wrong)?, etag))
}

/// What others did at the same time is in the way.
pub(crate) fn came_between() -> S3Error {
    s3_error!(
        OperationAborted,
        "A conflicting conditional operation is currently in progress against this resource. \
         Please try again."
    )
}

fn not_kept() -> S3Error {
    let why = "settings of buckets: the gateway keeps none (its setting notes_bucket)";
    s3_error!(NotImplemented, "{why}")
}

/// Without it two changes at once would be one.
fn check_tied(home: &Bucket) -> S3Result<()> {
    match home.store.capabilities().conditional_put {
        true => Ok(()),
        false => Err(s3_error!(
            NotImplemented,
            "settings of buckets, their location and owner among them: this back end cannot tie a \
             write to what is there"
        )),
    }
}

fn is_missing(error: &S3Error) -> bool {
    *error.code() == S3ErrorCode::NoSuchBucket
}

/// Writes notes, unless somebody else was first; the first of a back end make their container.
async fn write(
    buckets: &Buckets,
    bucket: &str,
    (home, key): (&Bucket, &str),
    text: Bytes,
    options: &PutOptions,
) -> S3Result<bool> {
    let mut placed = home.query().put(&home.at(key), text.clone().into(), options).await;
    if placed.as_ref().is_err_and(|error| error.kind() == Kind::NotFound) {
        buckets.make_notes_home(bucket).await?;
        placed = home.query().put(&home.at(key), text.into(), options).await;
    }
    match placed {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == Kind::Conflict => Ok(false),
        Err(error) => Err(about_object(error)),
    }
}

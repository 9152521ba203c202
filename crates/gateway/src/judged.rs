//! The bucket that a request is to change, and whose it was when the request was judged.
//!
//! That is at its head. By the time its body is there the bucket may be gone, and one of that name
//! somebody else's, who lets the sender do nothing.

use crate::auth::Caller;
use crate::buckets::Buckets;
use crate::notes::{Notes, came_between};
use crate::sharing::Lists;
use http::Extensions;
use s3s::S3Result;
use std::pin::Pin;

/// Whether a bucket is whose it was, asked where a body ends.
pub type StillTheirs = Pin<Box<dyn Future<Output = S3Result<()>> + Send>>;

/// A bucket, and whose it has to be still.
#[derive(Clone, Debug)]
pub struct Judged<'a> {
    /// Its name.
    pub bucket: &'a str,
    /// `None` where no owner was asked; the inner one where the bucket was nobody's.
    owner: Option<Option<String>>,
}

impl<'a> Judged<'a> {
    /// The bucket of a request.
    pub fn of(extensions: &Extensions, bucket: &'a str) -> Self {
        let caller = extensions.get::<Caller>();
        let caller = caller.filter(|caller| caller.sharing.lists == Lists::Owners);
        let notes = caller.and_then(|caller| caller.notes.as_ref());
        Judged { bucket, owner: notes.map(owner_of) }
    }

    /// One whose owner is decided by the change itself.
    pub fn by_none(bucket: &'a str) -> Self {
        Judged { bucket, owner: None }
    }

    /// One that has this owner by now.
    pub fn by_owner(bucket: &'a str, owner: Option<&str>) -> Self {
        Judged { bucket, owner: owner.map(|owner| Some(owner.to_string())) }
    }

    /// Whether the owner was asked.
    pub fn is_owned(&self) -> bool {
        self.owner.is_some()
    }

    /// Asks the back end whether it is another's by now, where the owner was asked: one request.
    ///
    /// # Errors
    /// `OperationAborted`; what the back end says.
    pub async fn is_still(&self, buckets: &Buckets) -> S3Result<()> {
        match self.owner {
            Some(_) => self.check(&buckets.notes(self.bucket).await?.0),
            None => Ok(()),
        }
    }

    /// The same, to be asked when a body has come; `None` where the owner was not asked.
    pub fn at_the_end(self, extensions: &Extensions) -> Option<StillTheirs> {
        let buckets = extensions.get::<Caller>()?.sharing.buckets.clone();
        let (bucket, owner) = (self.bucket.to_string(), Some(self.owner?));
        Some(Box::pin(async move { Judged { bucket: &bucket, owner }.is_still(&buckets).await }))
    }

    /// Refuses where it is another's by now.
    ///
    /// # Errors
    /// `OperationAborted`.
    pub fn check(&self, notes: &Notes) -> S3Result<()> {
        match self.owner.as_ref().is_none_or(|owner| *owner == owner_of(notes)) {
            true => Ok(()),
            false => Err(came_between()),
        }
    }
}

fn owner_of(notes: &Notes) -> Option<String> {
    notes.list().map(|acl| acl.owner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::Acl;

    #[test]
    fn a_bucket_is_still_whose_it_was() {
        let notes = |owner: Option<&str>| Notes {
            acl: owner.map(|owner| Acl::private(owner).to_text()),
            ..Notes::default()
        };
        let all = [None, Some("me"), Some("other")];
        for was in all {
            let owner = Some(was.map(str::to_string));
            let judged = Judged { bucket: "b", owner };
            for is in all {
                assert_eq!(judged.check(&notes(is)).is_ok(), was == is, "{was:?} {is:?}");
            }
            assert!(Judged::by_none("b").check(&notes(was)).is_ok());
        }
    }
}

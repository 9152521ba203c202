//! By what of an object a request was let in, to be asked again of the version that answers it:
//! another may have come between, with a list and tags of its own. Pure.

use super::{Ask, denied, noted_acl};
use crate::acl::{Acl, Permission};
use crate::notes::came_between;
use penstock_store::{ETag, ObjectMeta};
use s3s::S3Result;

/// Whoever was let in by an object, and the version that was judged.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(super) by: By,
    /// `None` where there was none.
    pub(super) judged: Option<ETag>,
}

/// What of the object decided.
#[derive(Clone, Debug)]
pub(super) enum By {
    /// Its list, which the head of each version tells.
    List(ByList),
    /// Its tags, which a policy asks for and no head tells: no other version will do.
    Tags(ByTags),
}

/// The tags that were judged. They may be set anew without another version, or the same bytes be
/// written with others, so a request for the tags is answered with these.
#[derive(Clone, Debug)]
pub(super) struct ByTags {
    /// `None` where there was no object.
    pub tags: Option<Vec<(String, String)>>,
    /// The id of their version, where the container keeps versions.
    pub version: Option<String>,
}

/// Whoever was let in by the list of an object, and what the bucket says besides.
#[derive(Clone, Debug)]
pub(super) struct ByList {
    pub who: Option<String>,
    pub permission: Permission,
    /// Whose an object without a list is; empty where nobody owns the bucket.
    pub bucket_owner: String,
    /// Whether they count as the owner of a bucket that nobody owns.
    pub is_let_in: bool,
    /// What lists grant to anybody who is not named has no effect.
    pub ignores_public: bool,
}

/// Whether a request is answered with the tags by which it is judged.
pub(super) fn is_answered_by_tags(ask: &Ask<'_>) -> bool {
    ask.operation == "GetObjectTagging" && !ask.is_source
}

/// Whether a request is answered with the object that it names, or with what its head tells: then
/// the version can be held against the one that was judged.
pub(super) fn is_answered_by_object(ask: &Ask<'_>) -> bool {
    const OPERATIONS: [&str; 7] = [
        "GetObject",
        "HeadObject",
        "GetObjectAttributes",
        "GetObjectAcl",
        "PutObjectAcl",
        "GetObjectRetention",
        "GetObjectLegalHold",
    ];
    ask.is_source || OPERATIONS.contains(&ask.operation)
}

impl ByTags {
    /// Whether they are this version's, as far as both are known: the same bytes may have the same
    /// ETag, and other tags.
    fn is_of(&self, version: Option<&String>) -> bool {
        self.version.as_ref().zip(version).is_none_or(|(mine, answering)| mine == answering)
    }
}

impl ByList {
    /// Whether the list in this metadata lets them in.
    pub fn permits(&self, meta: &ObjectMeta) -> bool {
        let acl = noted_acl(meta).unwrap_or_else(|| Acl::private(&self.bucket_owner));
        let acl = if self.ignores_public { acl.without_public() } else { acl };
        self.is_let_in || acl.permits(self.who.as_deref(), self.permission)
    }
}

impl Standing {
    /// The version that let the request in.
    pub fn judged(&self) -> Option<&ETag> {
        self.judged.as_ref()
    }

    /// Refuses to answer with a version that does not let them in, or of which that is not known.
    ///
    /// # Errors
    /// `AccessDenied` by its list; `OperationAborted` where its tags may be others.
    pub fn check(&self, meta: &ObjectMeta) -> S3Result<()> {
        match &self.by {
            By::List(list) if list.permits(meta) => Ok(()),
            By::List(_) => Err(denied()),
            By::Tags(by) if meta.etag == self.judged && by.is_of(meta.version.as_ref()) => Ok(()),
            By::Tags(_) => Err(came_between()),
        }
    }

    /// The tags of an object by which the request was let in, if it was by such: `Some(None)` by
    /// there being no object.
    pub fn judged_tags(&self) -> Option<Option<&[(String, String)]>> {
        match &self.by {
            By::List(_) => None,
            By::Tags(by) => Some(by.tags.as_deref()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_store::notes;

    fn meta(etag: &str, list: Option<&str>) -> ObjectMeta {
        ObjectMeta {
            etag: Some(ETag(etag.to_string())),
            metadata: list.map(|it| (notes::ACL.to_string(), it.to_string())).into_iter().collect(),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn each_version_is_judged_by_its_own_list() {
        let list = ByList {
            who: None,
            permission: Permission::Read,
            bucket_owner: "me".to_string(),
            is_let_in: false,
            ignores_public: false,
        };
        let open = meta("v2", Some("me;r*;f=me"));
        let standing = Standing { by: By::List(list.clone()), judged: Some(ETag("v1".into())) };
        assert!(standing.check(&open).is_ok());
        for closed in [None, Some("me;f=me"), Some("me;w*"), Some("?;;")] {
            assert!(standing.check(&meta("v2", closed)).is_err(), "{closed:?}");
        }
        let owner = ByList { who: Some("me".to_string()), ..list.clone() };
        assert!(owner.permits(&meta("v2", None)));
        assert!(!ByList { ignores_public: true, ..list.clone() }.permits(&open));
        let ownerless = ByList { bucket_owner: String::new(), is_let_in: true, ..list };
        assert!(ownerless.permits(&meta("v2", None)));
    }

    #[test]
    fn tags_are_known_of_the_version_that_was_judged_and_of_no_other() {
        let judged = |etag: Option<&str>, version: Option<&str>| {
            let by = ByTags { tags: None, version: version.map(str::to_string) };
            Standing { by: By::Tags(by), judged: etag.map(|etag| ETag(etag.to_string())) }
        };
        assert!(judged(Some("v1"), None).check(&meta("v1", None)).is_ok());
        let kept = ObjectMeta { version: Some("second".to_string()), ..meta("v1", None) };
        assert!(judged(Some("v1"), Some("second")).check(&kept).is_ok());
        for (before, found) in [
            (judged(None, None), meta("v1", None)),
            (judged(Some("v0"), None), meta("v1", None)),
            (judged(Some("v1"), Some("first")), kept),
        ] {
            let error = before.check(&found).unwrap_err();
            assert_eq!(error.code().as_str(), "OperationAborted");
        }
    }
}

//! By what an object's list let a request in, to be asked again of the version that answers it:
//! another may have come between, with a list of its own. Pure.

use super::{denied, noted_acl};
use crate::acl::{Acl, Permission};
use penstock_store::{ETag, ObjectMeta};
use s3s::S3Result;

/// Whoever was let in by the list of an object, and what the bucket says besides.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(super) who: Option<String>,
    pub(super) permission: Permission,
    /// Whose an object without a list is; empty where nobody owns the bucket.
    pub(super) bucket_owner: String,
    /// Whether they count as the owner of a bucket that nobody owns.
    pub(super) is_let_in: bool,
    /// What lists grant to anybody who is not named has no effect.
    pub(super) ignores_public: bool,
    /// The version that was judged; `None` where there was none.
    pub(super) judged: Option<ETag>,
}

impl Standing {
    /// The version whose list let the request in.
    pub fn judged(&self) -> Option<&ETag> {
        self.judged.as_ref()
    }

    /// Whether the list in this metadata lets them in.
    pub(super) fn permits(&self, meta: &ObjectMeta) -> bool {
        let acl = noted_acl(meta).unwrap_or_else(|| Acl::private(&self.bucket_owner));
        let acl = if self.ignores_public { acl.without_public() } else { acl };
        self.is_let_in || acl.permits(self.who.as_deref(), self.permission)
    }

    /// Refuses to answer with a version whose list does not let them in.
    ///
    /// # Errors
    /// `AccessDenied`.
    pub fn check(&self, meta: &ObjectMeta) -> S3Result<()> {
        if self.permits(meta) { Ok(()) } else { Err(denied()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_store::notes;

    #[test]
    fn each_version_is_judged_by_its_own_list() {
        let standing = Standing {
            who: None,
            permission: Permission::Read,
            bucket_owner: "me".to_string(),
            is_let_in: false,
            ignores_public: false,
            judged: None,
        };
        let meta = |list: Option<&str>| ObjectMeta {
            metadata: list.map(|it| (notes::ACL.to_string(), it.to_string())).into_iter().collect(),
            ..ObjectMeta::default()
        };
        let open = meta(Some("me;r*;f=me"));
        assert!(standing.check(&open).is_ok());
        for closed in [None, Some("me;f=me"), Some("me;w*"), Some("?;;")] {
            assert!(standing.check(&meta(closed)).is_err(), "{closed:?}");
        }
        let owner = Standing { who: Some("me".to_string()), ..standing.clone() };
        assert!(owner.permits(&meta(None)));
        assert!(!Standing { ignores_public: true, ..standing.clone() }.permits(&open));
        let ownerless = Standing { bucket_owner: String::new(), is_let_in: true, ..standing };
        assert!(ownerless.permits(&meta(None)));
    }
}

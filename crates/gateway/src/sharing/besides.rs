//! What a request does besides what its operation's name says, as a policy has to be asked for it.
//!
//! A write may bring a list, tags, a retention or a hold, each of which has an action of its own in
//! S3. Some only the source or the upload tells: that a copy takes tags along, or that an upload
//! began with a list. Of a copy the verdict is kept with the caller until it is known; an upload is
//! judged once it is.

use super::{Ask, LetIn, Sharing, Standing, denied, is_owner};
use crate::notes::Notes;
use crate::policy::{Decision, Policy};
use http::HeaderMap;
use s3s::{S3ErrorCode, S3Result};

pub(crate) const PUT_ACL: &str = "s3:PutObjectAcl";
pub(crate) const GET_TAGS: &str = "s3:GetObjectTagging";
pub(crate) const PUT_TAGS: &str = "s3:PutObjectTagging";
const RETAIN: &str = "s3:PutObjectRetention";
const HOLD: &str = "s3:PutObjectLegalHold";

/// Operations that say with headers what a new object is to be.
const MAKE_OBJECTS: [&str; 4] = ["PutObject", "PostObject", "CopyObject", "CreateMultipartUpload"];

/// The actions that a request's head asks for besides that of its operation.
pub(crate) fn besides(operation: &str, headers: &HeaderMap) -> Vec<&'static str> {
    if operation == "GetObjectAttributes" {
        return vec!["s3:GetObject"];
    }
    if !MAKE_OBJECTS.contains(&operation) {
        return Vec::new();
    }
    let has = |names: &[&str]| names.iter().any(|name| headers.contains_key(*name));
    let has_grants = headers.keys().any(|name| name.as_str().starts_with("x-amz-grant-"));
    // An empty one says of a copy that it has no tags.
    let has_tags = headers.get_all("x-amz-tagging").iter().any(|value| !value.is_empty());
    let rows = [
        (PUT_ACL, has_grants || has(&["x-amz-acl"])),
        (PUT_TAGS, has_tags),
        (RETAIN, has(&["x-amz-object-lock-mode", "x-amz-object-lock-retain-until-date"])),
        (HOLD, has(&["x-amz-object-lock-legal-hold"])),
    ];
    rows.into_iter().filter(|row| row.1).map(|row| row.0).collect()
}

/// The actions that may turn out to be asked for: those on the object that is written, and that on
/// the source of a copy.
pub(crate) fn perhaps(
    operation: &str,
    headers: &HeaderMap,
) -> (&'static [&'static str], Option<&'static str>) {
    let mut directives = headers.get_all("x-amz-tagging-directive").iter().peekable();
    let replaces = directives.peek().is_some() && directives.all(|it| it == "REPLACE");
    match operation {
        "CopyObject" if !replaces => (&[PUT_TAGS], Some(GET_TAGS)),
        _ => (&[], None),
    }
}

/// What a bucket says of a request that was let in, to ask it for more.
#[derive(Debug)]
pub(crate) struct Entry {
    pub notes: Notes,
    /// By what of the object it was let in.
    pub standings: Vec<Standing>,
    pub how: LetIn,
}

impl Entry {
    pub fn new(notes: Notes, how: LetIn, standings: Vec<Standing>) -> Self {
        Entry { notes, standings, how }
    }
}

impl Sharing {
    /// Whether a request that was let in may do this besides. A policy is asked for the action by
    /// its name; where it is silent, whoever came in by a list may still do what that always let
    /// them, and whoever came in by the policy may do it if a list would have let them in. Tags
    /// are read by the bucket's owner only, whatever a list says.
    ///
    /// # Errors
    /// `AccessDenied`; what the back end says.
    pub async fn permit_besides(
        &self,
        ask: &Ask<'_>,
        action: &'static str,
        entry: &Entry,
    ) -> S3Result<Vec<Standing>> {
        let policy = self.policy_of(&entry.notes, ask.bucket)?;
        let ask = Ask { action: Some(action), ..*ask };
        self.judge_besides(&ask, entry, policy.as_ref()).await
    }

    /// As [`Sharing::permit_besides`], for what may turn out not to be asked for at all: `None`
    /// where it may not.
    ///
    /// # Errors
    /// Any but `AccessDenied`.
    pub async fn would_permit(
        &self,
        ask: &Ask<'_>,
        action: &'static str,
        entry: &Entry,
    ) -> S3Result<Option<Vec<Standing>>> {
        match self.permit_besides(ask, action, entry).await {
            Ok(standings) => Ok(Some(standings)),
            Err(error) if *error.code() == S3ErrorCode::AccessDenied => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether somebody whose completion was let in might begin such an upload, with all that it
    /// begins with. Where there is no policy, whoever writes may.
    ///
    /// # Errors
    /// `AccessDenied`; what the back end says.
    pub async fn permit_begun(
        &self,
        ask: &Ask<'_>,
        entry: &Entry,
        brings_list: bool,
    ) -> S3Result<()> {
        let Some(policy) = self.policy_of(&entry.notes, ask.bucket)? else { return Ok(()) };
        self.judge(ask, &entry.notes, Some(&policy)).await?;
        let mut actions = besides(ask.operation, ask.headers);
        if brings_list && !actions.contains(&PUT_ACL) {
            actions.push(PUT_ACL);
        }
        for action in actions {
            let ask = Ask { action: Some(action), ..*ask };
            self.judge_besides(&ask, entry, Some(&policy)).await?;
        }
        Ok(())
    }

    async fn judge_besides(
        &self,
        ask: &Ask<'_>,
        entry: &Entry,
        policy: Option<&Policy>,
    ) -> S3Result<Vec<Standing>> {
        let notes = &entry.notes;
        let is_owner = is_owner(ask, self.bucket_acl(notes).as_ref());
        let (decision, by_tags) = self.by_policy(ask, (notes, policy), is_owner).await?;
        let by_list = match decision {
            Decision::Denied => return Err(denied()),
            Decision::Allowed => None,
            // No list gives the right to read tags, so a copy tells them to nobody else either.
            Decision::Silent if ask.action == Some(GET_TAGS) => {
                let ask = Ask { operation: "GetObjectTagging", ..*ask };
                self.by_list(&ask, notes, policy).await?
            }
            Decision::Silent if entry.how == LetIn::ByList => None,
            Decision::Silent => self.by_list(ask, notes, policy).await?,
        };
        Ok(by_tags.into_iter().chain(by_list).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn asked(operation: &str, headers: &[(&'static str, &'static str)]) -> Vec<&'static str> {
        let header = |row: &(&'static str, &'static str)| {
            (HeaderName::from_static(row.0), HeaderValue::from_static(row.1))
        };
        besides(operation, &headers.iter().map(header).collect())
    }

    #[test]
    fn each_header_of_a_write_has_its_action() {
        for operation in MAKE_OBJECTS {
            assert_eq!(asked(operation, &[("x-amz-meta-a", "b")]), [""; 0]);
            for (name, action) in [
                ("x-amz-acl", PUT_ACL),
                ("x-amz-grant-read", PUT_ACL),
                ("x-amz-grant-full-control", PUT_ACL),
                ("x-amz-tagging", PUT_TAGS),
                ("x-amz-object-lock-mode", RETAIN),
                ("x-amz-object-lock-retain-until-date", RETAIN),
                ("x-amz-object-lock-legal-hold", HOLD),
            ] {
                assert_eq!(asked(operation, &[(name, "value")]), [action], "{operation} {name}");
            }
        }
        assert_eq!(asked("CopyObject", &[("x-amz-tagging", "")]), [""; 0]);
        let both = [("x-amz-tagging", "a=b"), ("x-amz-acl", "private")];
        assert_eq!(asked("PutObject", &both), [PUT_ACL, PUT_TAGS]);
        // There it is what the operation is about, or nothing at all.
        for operation in ["PutObjectAcl", "UploadPart", "PutBucketAcl", "GetObject"] {
            assert_eq!(asked(operation, &both), [""; 0], "{operation}");
        }
        assert_eq!(asked("GetObjectAttributes", &[]), ["s3:GetObject"]);
    }

    #[test]
    fn a_copy_takes_tags_along_unless_it_is_told_not_to() {
        let of_source = |directives: &[&'static str]| {
            let name = HeaderName::from_static("x-amz-tagging-directive");
            let header = |text: &&'static str| (name.clone(), HeaderValue::from_static(text));
            perhaps("CopyObject", &directives.iter().map(header).collect()).1
        };
        assert_eq!(of_source(&["REPLACE"]), None);
        for directives in [&[][..], &["COPY"], &["replace"], &["REPLACE", "COPY"]] {
            assert_eq!(of_source(directives), Some(GET_TAGS), "{directives:?}");
        }
    }
}

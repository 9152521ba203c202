//! Access control lists as requests bring them and answers show them.

use super::{Acl, CANNED, Grantee, Permission};
use http::{HeaderMap, HeaderName};
use s3s::{S3Error, S3ErrorCode, S3Result, dto, s3_error};

/// Most grants of one list, as in S3.
const GRANTS_MAX: usize = 100;
/// Before the permission in the headers that grant one.
const GRANT: &str = "x-amz-grant-";
const GROUPS: &[(Grantee, &str)] = &[
    (Grantee::Everyone, "http://acs.amazonaws.com/groups/global/AllUsers"),
    (Grantee::Signed, "http://acs.amazonaws.com/groups/global/AuthenticatedUsers"),
    (Grantee::LogDelivery, "http://acs.amazonaws.com/groups/s3/LogDelivery"),
];

/// Tells which owners there are.
pub trait Users {
    /// Whether somebody has this id.
    fn has(&self, id: &str) -> bool;
}

/// What a list is asked for with: headers or a document.
#[derive(Debug)]
pub struct Asked<'a> {
    /// The request's head.
    pub headers: &'a HeaderMap,
    /// The body.
    pub document: Option<dto::AccessControlPolicy>,
}

impl Asked<'_> {
    /// The list that is asked for; `None` where nothing is.
    ///
    /// # Errors
    /// `InvalidArgument` for unknown names, owners and groups, `InvalidRequest` for several ways of
    /// asking at once, `UnresolvableGrantByEmailAddress` for any mail address.
    pub fn acl(self, owner: &str, bucket_owner: &str, users: &dyn Users) -> S3Result<Option<Acl>> {
        let canned = self.headers.get("x-amz-acl").map(|value| value.to_str());
        let canned = canned.transpose().map_err(|_| unknown_canned("?"))?;
        // Whatever they name: which of both is meant is not known.
        let has_grants = self.headers.keys().any(|name| name.as_str().starts_with(GRANT));
        if canned.is_some() && has_grants {
            let why = "Specifying both Canned ACLs and Header Grants is not allowed";
            return Err(s3_error!(InvalidRequest, "{why}"));
        }
        let grants = granted(self.headers, users)?;
        if let Some(name) = canned {
            let acl = Acl::canned(name, owner, bucket_owner);
            return acl.map(Some).ok_or_else(|| unknown_canned(name));
        }
        if !grants.is_empty() {
            return Ok(Some(Acl { owner: owner.to_string(), grants }));
        }
        let Some(document) = self.document else { return Ok(None) };
        let told = document.owner.and_then(|owner| owner.id);
        if told.is_some_and(|id| id != owner) {
            return Err(s3_error!(AccessDenied, "Access Denied: the owner cannot be changed."));
        }
        let grants = document.grants.unwrap_or_default();
        if grants.len() > GRANTS_MAX {
            return Err(s3_error!(MalformedACLError, "An access control list has 100 grants."));
        }
        let grants = grants.into_iter().map(|grant| from_document(grant, users));
        Ok(Some(Acl { owner: owner.to_string(), grants: grants.collect::<S3Result<_>>()? }))
    }
}

fn unknown_canned(name: &str) -> S3Error {
    s3_error!(InvalidArgument, "x-amz-acl: there is no canned ACL `{name}`.")
}

/// The grants of `x-amz-grant-*`.
fn granted(headers: &HeaderMap, users: &dyn Users) -> S3Result<Vec<(Grantee, Permission)>> {
    let mut grants = Vec::new();
    // In the order in which S3 tells them.
    for name in ["read", "write", "read-acp", "write-acp", "full-control"] {
        let row = Permission::ALL.iter().find(|row| row.2 == name);
        let Some((permission, ..)) = row else { continue };
        for value in headers.get_all(format!("{GRANT}{name}")) {
            let text = value.to_str().map_err(|_| invalid_id())?;
            for pair in text.split(',') {
                let (kind, value) = pair.trim().split_once('=').ok_or_else(invalid_id)?;
                let value = value.trim().trim_matches('"');
                grants.push((grantee(kind.trim(), value, users)?, *permission));
            }
        }
    }
    Ok(grants)
}

fn invalid_id() -> S3Error {
    s3_error!(InvalidArgument, "Invalid id")
}

fn grantee(kind: &str, value: &str, users: &dyn Users) -> S3Result<Grantee> {
    match kind.to_ascii_lowercase().as_str() {
        "id" if users.has(value) => Ok(Grantee::Owner(value.to_string())),
        "uri" => {
            let row = GROUPS.iter().find(|row| row.1 == value);
            let group = row.map(|row| row.0.clone());
            group.ok_or_else(|| s3_error!(InvalidArgument, "Invalid group uri"))
        }
        "emailaddress" => {
            let why = "The e-mail address you provided does not match any account on record.";
            Err(s3_error!(UnresolvableGrantByEmailAddress, "{why}"))
        }
        _ => Err(invalid_id()),
    }
}

fn from_document(grant: dto::Grant, users: &dyn Users) -> S3Result<(Grantee, Permission)> {
    let malformed = || s3_error!(MalformedACLError, "The XML you provided was not well-formed");
    let (told, permission) = (grant.grantee.ok_or_else(malformed)?, grant.permission);
    let permission = permission.ok_or_else(malformed)?;
    let row = Permission::ALL.iter().find(|row| row.1 == permission.as_str());
    let (permission, ..) = row.ok_or_else(malformed)?;
    let named = match (&told.id, &told.uri, &told.email_address) {
        (Some(id), None, None) => grantee("id", id, users)?,
        (None, Some(uri), None) => grantee("uri", uri, users)?,
        (None, None, Some(address)) => grantee("emailaddress", address, users)?,
        _ => return Err(malformed()),
    };
    Ok((named, *permission))
}

/// An owner as answers name them.
pub fn owner_of(id: &str) -> dto::Owner {
    dto::Owner { display_name: Some(id.to_string()), id: Some(id.to_string()) }
}

impl Acl {
    /// The headers with which this list may have been asked for: by each canned name that means it,
    /// and by its grants.
    pub fn asked_with(&self, bucket_owner: &str) -> Vec<Vec<(HeaderName, String)>> {
        let is_meant = |name: &&&str| {
            Acl::canned(name, &self.owner, bucket_owner).is_some_and(|acl| acl == *self)
        };
        let canned = |name: &&str| vec![(HeaderName::from_static("x-amz-acl"), name.to_string())];
        let mut forms: Vec<_> = CANNED.iter().filter(is_meant).map(canned).collect();
        let granted = |row: &(Permission, &str, &str, &str)| {
            let own = self.grants.iter().filter(|grant| grant.1 == row.0);
            let grantees: Vec<String> = own.map(|grant| asked_grantee(&grant.0)).collect();
            let name = HeaderName::try_from(format!("{GRANT}{}", row.2)).ok()?;
            (!grantees.is_empty()).then(|| (name, grantees.join(",")))
        };
        forms.push(Permission::ALL.iter().filter_map(granted).collect());
        forms
    }

    /// The owner as answers name them.
    pub fn shown_owner(&self) -> dto::Owner {
        owner_of(&self.owner)
    }

    /// The grants as answers tell them.
    pub fn shown_grants(&self) -> Vec<dto::Grant> {
        let shown = |(grantee, permission): &(Grantee, Permission)| {
            let row = Permission::ALL.iter().find(|row| row.0 == *permission);
            dto::Grant {
                grantee: Some(shown_grantee(grantee)),
                permission: row.map(|row| dto::Permission::from_static(row.1)),
            }
        };
        // Groups come first, as in S3.
        let (groups, owners): (Vec<_>, Vec<_>) =
            self.grants.iter().partition(|grant| !matches!(grant.0, Grantee::Owner(_)));
        groups.into_iter().chain(owners).map(shown).collect()
    }
}

fn asked_grantee(grantee: &Grantee) -> String {
    let group = GROUPS.iter().find(|row| row.0 == *grantee);
    match (grantee, group) {
        (Grantee::Owner(id), _) => format!("id={id}"),
        (_, group) => format!("uri={}", group.map_or("", |row| row.1)),
    }
}

fn shown_grantee(grantee: &Grantee) -> dto::Grantee {
    let group = GROUPS.iter().find(|row| row.0 == *grantee).map(|row| row.1.to_string());
    let id = match grantee {
        Grantee::Owner(id) => Some(id.clone()),
        _ => None,
    };
    let kind = if group.is_some() { dto::Type::GROUP } else { dto::Type::CANONICAL_USER };
    dto::Grantee {
        display_name: id.clone(),
        email_address: None,
        id,
        type_: dto::Type::from_static(kind),
        uri: group,
    }
}

/// The refusal of a list where lists are off.
pub fn lists_are_off() -> S3Error {
    S3Error::with_message(
        S3ErrorCode::AccessControlListNotSupported,
        "The bucket does not allow ACLs".to_string(),
    )
}

/// The refusal of a list that lets others in, where the setting `acl` is off: S3 answers so for a
/// bucket whose owner is enforced.
pub fn lists_count_for_nothing() -> S3Error {
    S3Error::with_message(
        S3ErrorCode::AccessControlListNotSupported,
        "The bucket does not allow ACLs: the gateway's setting `acl` is off, so no list can let \
         others in. Send no ACL, or `private`."
            .to_string(),
    )
}

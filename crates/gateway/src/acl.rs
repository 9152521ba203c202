//! Access control lists: who may do what with a bucket or an object. Pure.
//!
//! Decides what a canned name, a header or an XML document means, and whether a list lets somebody
//! do something. Whether lists count at all is decided in [`crate::sharing`].

mod wire;

pub use wire::{Asked, Users, lists_are_off, lists_count_for_nothing, owner_of};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// What stays as it is in a kept list.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// The names of canned lists.
const CANNED: [&str; 7] = [
    "private",
    "public-read",
    "public-read-write",
    "authenticated-read",
    "bucket-owner-read",
    "bucket-owner-full-control",
    "log-delivery-write",
];

/// Somebody whom a list names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grantee {
    /// The owner of this id.
    Owner(String),
    /// Everybody, signed or not.
    Everyone,
    /// Whoever signs.
    Signed,
    /// S3's log writer, who does not exist here.
    LogDelivery,
}

/// What a list lets somebody do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// All of the others.
    FullControl,
    /// Read the object; list the bucket.
    Read,
    /// Write and remove objects of the bucket.
    Write,
    /// Read the list itself.
    ReadAcp,
    /// Replace the list itself.
    WriteAcp,
}

impl Permission {
    /// Every permission: in XML, behind `x-amz-grant-`, and in a kept list.
    pub const ALL: &'static [(Permission, &'static str, &'static str, &'static str)] = &[
        (Permission::FullControl, "FULL_CONTROL", "full-control", "f"),
        (Permission::Read, "READ", "read", "r"),
        (Permission::Write, "WRITE", "write", "w"),
        (Permission::ReadAcp, "READ_ACP", "read-acp", "a"),
        (Permission::WriteAcp, "WRITE_ACP", "write-acp", "p"),
    ];
}

/// A list with the owner of what it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    /// Id of the owner.
    pub owner: String,
    /// Who may do what.
    pub grants: Vec<(Grantee, Permission)>,
}

/// Who asks: an owner's id, or nobody.
pub type Requester<'a> = Option<&'a str>;

impl Acl {
    /// The owner alone may do everything.
    pub fn private(owner: &str) -> Self {
        let grants = vec![(Grantee::Owner(owner.to_string()), Permission::FullControl)];
        Acl { owner: owner.to_string(), grants }
    }

    /// A canned list, `None` for an unknown name. The bucket's owner is asked for by name only.
    pub fn canned(name: &str, owner: &str, bucket_owner: &str) -> Option<Self> {
        let to_bucket_owner = |permission| {
            let is_other = bucket_owner != owner;
            is_other.then(|| (Grantee::Owner(bucket_owner.to_string()), permission))
        };
        let before: &[(Grantee, Permission)] = match name {
            "private" | "bucket-owner-read" | "bucket-owner-full-control" => &[],
            "public-read" => &[(Grantee::Everyone, Permission::Read)],
            "public-read-write" => {
                &[(Grantee::Everyone, Permission::Read), (Grantee::Everyone, Permission::Write)]
            }
            "authenticated-read" => &[(Grantee::Signed, Permission::Read)],
            "log-delivery-write" => &[
                (Grantee::LogDelivery, Permission::Write),
                (Grantee::LogDelivery, Permission::ReadAcp),
            ],
            _ => return None,
        };
        let mut acl = Acl::private(owner);
        acl.grants.splice(..0, before.iter().cloned());
        match name {
            "bucket-owner-read" => acl.grants.extend(to_bucket_owner(Permission::Read)),
            "bucket-owner-full-control" => {
                acl.grants.extend(to_bucket_owner(Permission::FullControl));
            }
            _ => {}
        }
        Some(acl)
    }

    /// Whether it lets somebody do this. An owner may always see and replace the list of what they
    /// own, as in S3, so that nobody locks themselves out.
    pub fn permits(&self, who: Requester<'_>, wanted: Permission) -> bool {
        let is_acp = matches!(wanted, Permission::ReadAcp | Permission::WriteAcp);
        if is_acp && who == Some(self.owner.as_str()) {
            return true;
        }
        self.grants.iter().any(|(grantee, permission)| {
            let is_meant = match grantee {
                Grantee::Owner(id) => who == Some(id.as_str()),
                Grantee::Everyone => true,
                Grantee::Signed => who.is_some(),
                Grantee::LogDelivery => false,
            };
            is_meant && (*permission == wanted || *permission == Permission::FullControl)
        })
    }

    /// Whether it lets in anybody who is not named.
    pub fn is_public(&self) -> bool {
        self.grants.iter().any(|grant| matches!(grant.0, Grantee::Everyone | Grantee::Signed))
    }

    /// The list without what it grants to anybody who is not named.
    pub fn without_public(mut self) -> Self {
        self.grants.retain(|grant| !matches!(grant.0, Grantee::Everyone | Grantee::Signed));
        self
    }

    /// Whether nobody but the owner and the bucket's owner is named.
    pub fn is_closed(&self, bucket_owner: &str) -> bool {
        let is_own = |id: &str| id == self.owner || id == bucket_owner;
        self.grants.iter().all(|(who, _)| matches!(who, Grantee::Owner(id) if is_own(id)))
    }

    /// The text that is kept: the owner, and each grantee behind its permission, all printable.
    pub fn to_text(&self) -> String {
        let written = |id: &str| utf8_percent_encode(id, PLAIN).to_string();
        let mut text = written(&self.owner);
        for (grantee, permission) in &self.grants {
            let row = Permission::ALL.iter().find(|row| row.0 == *permission);
            text.push(';');
            text.push_str(row.map_or("", |row| row.3));
            match grantee {
                Grantee::Owner(id) => text.push_str(&format!("={}", written(id))),
                Grantee::Everyone => text.push('*'),
                Grantee::Signed => text.push('+'),
                Grantee::LogDelivery => text.push('!'),
            }
        }
        text
    }

    /// What a kept text says; `None` for one that nobody wrote.
    pub fn from_text(text: &str) -> Option<Self> {
        let read = |id: &str| Some(percent_decode_str(id).decode_utf8().ok()?.into_owned());
        let mut fields = text.split(';');
        let owner = read(fields.next()?)?;
        let mut grants = Vec::new();
        for field in fields {
            let row = Permission::ALL.iter().find(|row| field.starts_with(row.3))?;
            let grantee = match field.get(1..)? {
                "*" => Grantee::Everyone,
                "+" => Grantee::Signed,
                "!" => Grantee::LogDelivery,
                id => Grantee::Owner(read(id.strip_prefix('=')?)?),
            };
            grants.push((grantee, row.0));
        }
        Some(Acl { owner, grants })
    }
}

#[cfg(test)]
mod tests;

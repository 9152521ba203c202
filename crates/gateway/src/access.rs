//! Who may do what: keys, the buckets that each may use, and its rights there. Pure.
//!
//! Decides nothing about signatures: whoever asks here has been recognised, or is nobody. An
//! operation that no table names needs the highest right.

mod operations;

pub use operations::{Need, need_of};

use crate::wildcard;
use penstock_base::nearest::nearest;
use penstock_base::{Error, Kind, Result};
use std::fmt;

/// What a key may do with a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Right {
    /// Get objects, their metadata and tags.
    Read = 1,
    /// Put, copy to and upload objects, which replaces those of the same name.
    Write = 2,
    /// Remove objects.
    Delete = 4,
    /// List objects and uploads.
    List = 8,
    /// Make, remove and set up the bucket.
    Admin = 16,
}

impl Right {
    /// Every right with its name.
    pub const ALL: &'static [(Right, &'static str)] = &[
        (Right::Read, "read"),
        (Right::Write, "write"),
        (Right::Delete, "delete"),
        (Right::List, "list"),
        (Right::Admin, "admin"),
    ];
}

/// A set of rights.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Rights(u8);

impl Rights {
    /// Every right.
    pub const ALL: Rights = Rights(31);

    /// The rights of these names; `all` is every one.
    ///
    /// # Errors
    /// `Invalid` for an unknown name, with the nearest known one.
    pub fn parse<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let mut rights = Rights::default();
        for name in names {
            match Right::ALL.iter().find(|row| row.1 == name) {
                Some((right, _)) => rights.0 |= *right as u8,
                None if name == "all" => rights = Rights::ALL,
                None => return Err(unknown_right(name)),
            }
        }
        Ok(rights)
    }

    /// Whether the set holds this right.
    pub fn has(self, right: Right) -> bool {
        self.0 & right as u8 != 0
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(Right::ALL.iter().filter(|row| self.has(row.0)).map(|row| row.1))
            .finish()
    }
}

fn unknown_right(name: &str) -> Error {
    let names = || Right::ALL.iter().map(|row| row.1);
    let error = Error::new(Kind::Invalid, format!("unknown right `{name}`"));
    match nearest(name, names()) {
        Some(near) => error.with_hint(format!("Did you mean `{near}`?")),
        None => {
            let known = names().collect::<Vec<_>>().join(", ");
            error.with_hint(format!("Known are {known} and all"))
        }
    }
}

/// Names of buckets, where `*` stands for any run of characters, an empty one too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// Any text is a pattern.
    pub fn new(text: impl Into<String>) -> Self {
        Pattern(text.into())
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether it stands for this name. Takes time proportional to both lengths at most.
    pub fn matches(&self, name: &str) -> bool {
        wildcard::matches(&self.0, name, None)
    }
}

/// Rights on the buckets that a pattern stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Which buckets.
    pub buckets: Vec<Pattern>,
    /// What may be done with them.
    pub rights: Rights,
}

impl Grant {
    /// Everything everywhere.
    pub fn everything() -> Self {
        Grant { buckets: vec![Pattern::new("*")], rights: Rights::ALL }
    }

    fn covers(&self, bucket: &str) -> bool {
        self.buckets.iter().any(|pattern| pattern.matches(bucket))
    }
}

/// Whether one of `grants` allows what is needed. Where no bucket is meant (the list of buckets),
/// any grant will do.
pub fn allows(grants: &[Grant], bucket: Option<&str>, need: Need) -> bool {
    let enough = |grant: &Grant| match need {
        Need::Right(right) => grant.rights.has(right),
        Need::Any => !grant.rights.is_empty(),
    };
    let covers = |grant: &Grant| bucket.is_none_or(|bucket| grant.covers(bucket));
    grants.iter().any(|grant| covers(grant) && enough(grant))
}

#[cfg(test)]
mod tests;

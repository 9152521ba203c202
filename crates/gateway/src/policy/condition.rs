//! Conditions of a policy's statements. Pure.

use super::{malformed, texts};
use crate::network::Network;
use crate::wildcard::stands_for;
use s3s::S3Result;
use serde_json::Value;
use std::cmp::Ordering::{self, Equal, Greater, Less};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What is known of a request, by the names that conditions use, in lower case. A name may have
/// several values, and a value several spellings.
#[derive(Clone, Debug, Default)]
pub struct Facts(BTreeMap<String, Vec<Vec<String>>>);

impl Facts {
    /// Adds one.
    pub fn put(&mut self, name: &str, value: &str) {
        self.put_spelt(name, vec![value.to_string()]);
    }

    /// Adds one that a policy may write in any of these ways.
    pub fn put_spelt(&mut self, name: &str, spellings: Vec<String>) {
        self.0.entry(name.to_ascii_lowercase()).or_default().push(spellings);
    }

    fn of(&self, name: &str) -> &[Vec<String>] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }
}

/// Names that conditions may ask for; those that end with `/` have any name behind it.
const KNOWN: &[&str] = &[
    "aws:sourceip",
    "aws:useragent",
    "aws:referer",
    "aws:username",
    "s3:prefix",
    "s3:delimiter",
    "s3:max-keys",
    "s3:x-amz-acl",
    "s3:x-amz-grant-read",
    "s3:x-amz-grant-write",
    "s3:x-amz-grant-read-acp",
    "s3:x-amz-grant-write-acp",
    "s3:x-amz-grant-full-control",
    "s3:x-amz-copy-source",
    "s3:x-amz-metadata-directive",
    "s3:x-amz-server-side-encryption",
    "s3:x-amz-server-side-encryption-aws-kms-key-id",
    "s3:x-amz-storage-class",
    "s3:existingobjecttag/",
    "s3:requestobjecttag/",
    "s3:requestobjecttagkeys",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equals,
    EqualsIgnoreCase,
    Like,
    IsAddress,
    Bool,
    Compares(&'static [Ordering]),
    Null,
}

impl Operator {
    /// Whether a policy may name this value: one that no request could ever meet is a mistake, and
    /// a negation of it would hold for all.
    fn takes(self, value: &str) -> bool {
        match self {
            Operator::Equals | Operator::EqualsIgnoreCase | Operator::Like => true,
            Operator::IsAddress => Network::parse(value).is_some(),
            Operator::Bool => ["true", "false"].iter().any(|it| value.eq_ignore_ascii_case(it)),
            Operator::Null => matches!(value, "true" | "false"),
            Operator::Compares(_) => value.parse::<f64>().is_ok(),
        }
    }
}

/// Operators without their negations.
const OPERATORS: &[(&str, Operator, bool)] = &[
    ("stringequals", Operator::Equals, false),
    ("stringnotequals", Operator::Equals, true),
    ("stringequalsignorecase", Operator::EqualsIgnoreCase, false),
    ("stringnotequalsignorecase", Operator::EqualsIgnoreCase, true),
    ("stringlike", Operator::Like, false),
    ("stringnotlike", Operator::Like, true),
    ("arnequals", Operator::Like, false),
    ("arnlike", Operator::Like, false),
    ("ipaddress", Operator::IsAddress, false),
    ("notipaddress", Operator::IsAddress, true),
    ("bool", Operator::Bool, false),
    ("null", Operator::Null, false),
    ("numericequals", Operator::Compares(&[Equal]), false),
    ("numericnotequals", Operator::Compares(&[Equal]), true),
    ("numericlessthan", Operator::Compares(&[Less]), false),
    ("numericlessthanequals", Operator::Compares(&[Less, Equal]), false),
    ("numericgreaterthan", Operator::Compares(&[Greater]), false),
    ("numericgreaterthanequals", Operator::Compares(&[Greater, Equal]), false),
];

/// How several values of one name count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Each {
    Any,
    All,
}

/// One condition on one name.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    operator: Operator,
    is_negated: bool,
    /// Holds where there is no such fact.
    if_exists: bool,
    each: Each,
    name: String,
    wanted: Vec<String>,
}

impl Condition {
    /// Every condition of a `Condition` block; all of them must hold.
    pub(super) fn parse(value: &Value) -> S3Result<Vec<Self>> {
        let wrong = || malformed("Conditions are objects in an object.");
        let mut conditions = Vec::new();
        for (operator, names) in value.as_object().ok_or_else(wrong)? {
            let lower = operator.to_ascii_lowercase();
            let (each, bare) = match lower.split_once(':') {
                Some(("foranyvalue", bare)) => (Each::Any, bare),
                Some(("forallvalues", bare)) => (Each::All, bare),
                Some(_) => return Err(malformed("Unknown operator in a condition")),
                None => (Each::Any, lower.as_str()),
            };
            let (bare, if_exists) = match bare.strip_suffix("ifexists") {
                Some(bare) => (bare, true),
                None => (bare, false),
            };
            let row = OPERATORS.iter().find(|row| row.0 == bare);
            let why = format!("The operator {operator} of a condition is not known here");
            let (_, operator, is_negated) = row.ok_or_else(|| malformed(&why))?;
            for (name, wanted) in names.as_object().ok_or_else(wrong)? {
                let values = texts(wanted)?;
                if let Some(odd) = values.iter().find(|value| !operator.takes(value)) {
                    return Err(malformed(&format!(
                        "`{odd}` is no value for the condition {bare}"
                    )));
                }
                conditions.push(Condition {
                    operator: *operator,
                    is_negated: *is_negated,
                    if_exists,
                    each,
                    name: known(name)?,
                    wanted: values,
                });
            }
        }
        Ok(conditions)
    }

    pub(super) fn holds(&self, facts: &Facts) -> bool {
        let found = facts.of(&self.name);
        if self.operator == Operator::Null {
            return self.wanted.iter().any(|wanted| (wanted == "true") == found.is_empty());
        }
        if found.is_empty() {
            return self.if_exists || self.is_negated || self.each == Each::All;
        }
        let is_wanted = |text: &String| self.wanted.iter().any(|wanted| self.fits(wanted, text));
        let holds = |value: &Vec<String>| value.iter().any(is_wanted) != self.is_negated;
        match self.each {
            Each::Any => found.iter().any(holds),
            Each::All => found.iter().all(holds),
        }
    }

    fn fits(&self, wanted: &str, value: &str) -> bool {
        match self.operator {
            Operator::Equals => wanted == value,
            Operator::EqualsIgnoreCase | Operator::Bool => wanted.eq_ignore_ascii_case(value),
            Operator::Like => stands_for(wanted, value),
            Operator::IsAddress => is_in(value, wanted),
            Operator::Compares(orders) => match (value.parse::<f64>(), wanted.parse()) {
                (Ok(value), Ok(wanted)) => {
                    value.partial_cmp(&wanted).is_some_and(|order| orders.contains(&order))
                }
                _ => false,
            },
            Operator::Null => false,
        }
    }

    /// Whether it narrows who may ask.
    pub(super) fn is_about_sender(&self) -> bool {
        let narrows = |wanted: &String| !matches!(wanted.as_str(), "0.0.0.0/0" | "::/0" | "*");
        matches!(self.name.as_str(), "aws:sourceip" | "aws:username")
            && !self.is_negated
            && self.wanted.iter().all(narrows)
    }

    /// Whether it asks for a list that a request brings, and not for the want of one.
    pub(super) fn is_about_list(&self) -> bool {
        !self.is_negated
            && (self.name == "s3:x-amz-acl" || self.name.starts_with("s3:x-amz-grant-"))
    }

    pub(super) fn is_about_tags(&self) -> bool {
        self.name.starts_with("s3:existingobjecttag/")
    }
}

/// The name as facts have it.
fn known(name: &str) -> S3Result<String> {
    let lower = name.to_ascii_lowercase();
    let is_known = KNOWN.iter().any(|known| match known.strip_suffix('/') {
        Some(_) => lower.starts_with(known),
        None => lower == *known,
    });
    match is_known {
        true => Ok(lower),
        false => Err(malformed(&format!("The condition key {name} is not known here"))),
    }
}

/// Whether an address is in a network.
fn is_in(address: &str, wanted: &str) -> bool {
    let network = Network::parse(wanted);
    network.is_some_and(|network| address.parse().is_ok_and(|address: IpAddr| network.has(address)))
}

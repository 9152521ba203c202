//! Bucket policies: JSON documents that allow or deny. Pure.
//!
//! Decides what a document says about a request. Keys of conditions that this gateway does not
//! know, and operators that nobody has, are refused when the policy is set: a condition that could
//! not be judged would open or close more than its author meant.
//!
//! A bucket with several names (aliases) is one: a resource stands for it under any of them.

mod condition;

pub use condition::Facts;

use crate::wildcard::stands_for;
use condition::Condition;
use s3s::{S3Error, S3Result, s3_error};
use serde_json::{Map, Value};

/// The versions of the language that there are.
const VERSIONS: [&str; 2] = ["2008-10-17", "2012-10-17"];
/// Longest document, as in S3.
const POLICY_BYTES_MAX: usize = 20 << 10;
/// What stands before a bucket's name in a resource.
const ARN: &str = "arn:aws:s3:::";

/// What a policy says about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A statement denies it.
    Denied,
    /// A statement allows it, and none denies it.
    Allowed,
    /// No statement is about it.
    Silent,
}

/// A request as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Id of the owner who asks; `None` for nobody.
    pub who: Option<&'a str>,
    /// `s3:GetObject` and its kin.
    pub action: &'a str,
    /// The object's key, if there is one.
    pub key: Option<&'a str>,
    /// What conditions ask for.
    pub facts: &'a Facts,
}

/// Whom a statement is about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Principal {
    Everyone,
    Owners(Vec<String>),
}

impl Principal {
    fn names(&self, who: Option<&str>) -> bool {
        match self {
            Principal::Everyone => true,
            Principal::Owners(ids) => who.is_some_and(|who| ids.iter().any(|id| id == who)),
        }
    }
}

#[derive(Clone, Debug)]
struct Statement {
    denies: bool,
    principal: Principal,
    /// Whether the statement is about everybody else.
    is_not_principal: bool,
    actions: Vec<String>,
    is_not_action: bool,
    resources: Vec<String>,
    is_not_resource: bool,
    conditions: Vec<Condition>,
}

/// A policy.
#[derive(Clone, Debug)]
pub struct Policy {
    statements: Vec<Statement>,
    /// Those of the bucket.
    names: Vec<String>,
}

fn malformed(why: &str) -> S3Error {
    s3_error!(MalformedPolicy, "{why}")
}

/// A text or a list of texts.
fn texts(value: &Value) -> S3Result<Vec<String>> {
    let text = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Number(number) => Ok(number.to_string()),
        _ => Err(malformed("A text, or a list of texts, was expected.")),
    };
    match value {
        Value::Array(values) => values.iter().map(text).collect(),
        value => Ok(vec![text(value)?]),
    }
}

impl Policy {
    /// Reads a policy for a bucket of these names. Each statement has a resource of it: one that
    /// was set when the bucket had another name would deny nothing any more.
    ///
    /// # Errors
    /// `MalformedPolicy` with what is wrong.
    pub fn parse(text: &str, names: Vec<String>) -> S3Result<Self> {
        if text.len() > POLICY_BYTES_MAX {
            return Err(malformed("Policies must be at most 20 KiB long."));
        }
        let document: Value = serde_json::from_str(text)
            .map_err(|_| malformed("Policies must be valid JSON and the first byte must be '{'"))?;
        let version = document.get("Version");
        if version.is_some_and(|it| !it.as_str().is_some_and(|it| VERSIONS.contains(&it))) {
            return Err(malformed("The policy must contain a valid version string"));
        }
        let statements = match document.get("Statement") {
            Some(Value::Array(statements)) => statements.clone(),
            Some(statement @ Value::Object(_)) => vec![statement.clone()],
            _ => return Err(malformed("Missing required field Statement")),
        };
        if statements.is_empty() {
            return Err(malformed("Could not parse the policy: Statement is empty!"));
        }
        let statements: Vec<Statement> =
            statements.iter().map(Statement::parse).collect::<S3Result<_>>()?;
        let has_own = |it: &Statement| it.resources.iter().any(|text| is_of(text, &names));
        match statements.iter().all(has_own) {
            true => Ok(Policy { statements, names }),
            false => Err(invalid_resource()),
        }
    }

    /// Whether every resource is the bucket, under one of its names, or something in it.
    ///
    /// # Errors
    /// `MalformedPolicy`.
    pub fn check_resources(&self) -> S3Result<()> {
        let mut resources = self.statements.iter().flat_map(|it| &it.resources);
        match resources.all(|text| is_of(text, &self.names)) {
            true => Ok(()),
            false => Err(invalid_resource()),
        }
    }

    /// What it says about a request.
    pub fn judge(&self, request: &Request<'_>) -> Decision {
        let mut decision = Decision::Silent;
        for statement in self.statements.iter().filter(|it| it.is_about(request, &self.names)) {
            if statement.denies {
                return Decision::Denied;
            }
            decision = Decision::Allowed;
        }
        decision
    }

    /// What it says about the list that a write brings: a statement that lets the write in under a
    /// condition on its list has judged that too. Source: "Bucket policy examples using condition
    /// keys", Amazon S3 user guide, whose policies allow `s3:PutObject` only.
    pub fn judge_list(&self, list: &Request<'_>) -> Decision {
        let write = Request { action: "s3:PutObject", ..*list };
        let judges = |it: &&Statement| it.conditions.iter().any(Condition::is_about_list);
        let lets_in = |it: &Statement| !it.denies && it.is_about(&write, &self.names);
        match self.judge(list) {
            Decision::Silent if self.statements.iter().filter(judges).any(lets_in) => {
                Decision::Allowed
            }
            decision => decision,
        }
    }

    /// Whether a statement allows something to everybody, under no condition that narrows who
    /// asks.
    pub fn is_public(&self) -> bool {
        self.statements.iter().any(|it| {
            let is_open = it.principal == Principal::Everyone && !it.is_not_principal;
            !it.denies && is_open && !it.conditions.iter().any(Condition::is_about_sender)
        })
    }

    /// Whether all that it does is to let everybody in somewhere.
    pub fn only_opens(&self) -> bool {
        let opens = |it: &Statement| {
            !it.denies && it.principal == Principal::Everyone && !it.is_not_principal
        };
        self.statements.iter().all(opens)
    }

    /// Whether what it says about a request hangs on the tags of the object that there is.
    pub fn asks_for_tags(&self, request: &Request<'_>) -> bool {
        let asks = |it: &&Statement| it.conditions.iter().any(Condition::is_about_tags);
        self.statements.iter().filter(asks).any(|it| it.names(request, &self.names))
    }
}

impl Statement {
    fn parse(value: &Value) -> S3Result<Self> {
        let fields = value.as_object().ok_or_else(|| malformed("A statement is an object."))?;
        let denies = match fields.get("Effect").and_then(Value::as_str) {
            Some("Allow") => false,
            Some("Deny") => true,
            _ => return Err(malformed("Effect is Allow or Deny.")),
        };
        let (principal, is_not_principal) = either(fields, "Principal")?;
        if is_not_principal && !denies {
            return Err(malformed("Allow with NotPrincipal is not allowed."));
        }
        let (actions, is_not_action) = either(fields, "Action")?;
        let (resources, is_not_resource) = either(fields, "Resource")?;
        let actions: Vec<String> =
            texts(actions)?.into_iter().map(|it| it.to_ascii_lowercase()).collect();
        if actions.iter().any(|action| action != "*" && !action.starts_with("s3:")) {
            return Err(malformed("Policy has invalid action"));
        }
        let resources = texts(resources)?
            .into_iter()
            .map(|text| text.strip_prefix(ARN).map(str::to_string).ok_or_else(invalid_resource));
        let conditions = match fields.get("Condition") {
            None => Vec::new(),
            Some(value) => Condition::parse(value)?,
        };
        Ok(Statement {
            denies,
            principal: parse_principal(principal)?,
            is_not_principal,
            actions,
            is_not_action,
            resources: resources.collect::<S3Result<_>>()?,
            is_not_resource,
            conditions,
        })
    }

    fn is_about(&self, request: &Request<'_>, names: &[String]) -> bool {
        self.names(request, names) && self.conditions.iter().all(|it| it.holds(request.facts))
    }

    /// Whether it is about a request, to a bucket of these names, but for its conditions.
    fn names(&self, request: &Request<'_>, names: &[String]) -> bool {
        let name = |bucket: &String| match request.key {
            Some(key) => format!("{bucket}/{key}"),
            None => bucket.clone(),
        };
        let names: Vec<String> = names.iter().map(name).collect();
        let action = request.action.to_ascii_lowercase();
        let is_action = self.actions.iter().any(|pattern| stands_for(pattern, &action));
        let is_meant = |pattern: &String| names.iter().any(|name| stands_for(pattern, name));
        let is_resource = self.resources.iter().any(is_meant);
        self.principal.names(request.who) != self.is_not_principal
            && is_action != self.is_not_action
            && is_resource != self.is_not_resource
    }
}

/// Whether a resource can be the bucket of these names or something in it.
fn is_of(resource: &str, names: &[String]) -> bool {
    let named = resource.split('/').next().unwrap_or_default();
    names.iter().any(|name| stands_for(named, name))
}

fn invalid_resource() -> S3Error {
    malformed("Policy has invalid resource")
}

/// A field, or its negation.
fn either<'a>(fields: &'a Map<String, Value>, name: &str) -> S3Result<(&'a Value, bool)> {
    match (fields.get(name), fields.get(&format!("Not{name}"))) {
        (Some(value), None) => Ok((value, false)),
        (None, Some(value)) => Ok((value, true)),
        _ => Err(malformed(&format!("Missing required field {name}"))),
    }
}

fn parse_principal(value: &Value) -> S3Result<Principal> {
    let named = match value {
        Value::String(text) => vec![text.clone()],
        Value::Object(fields) => match fields.get("AWS") {
            Some(value) => texts(value)?,
            None => return Err(malformed("Invalid principal in policy")),
        },
        _ => return Err(malformed("Invalid principal in policy")),
    };
    if named.is_empty() || named.iter().any(String::is_empty) {
        return Err(malformed("Invalid principal in policy"));
    }
    if named.iter().any(|name| name == "*") {
        return Ok(Principal::Everyone);
    }
    // `arn:aws:iam::ACCOUNT:user/NAME`, `arn:aws:iam::ACCOUNT:root`, or an id as it is.
    let id = |name: String| match name.strip_prefix("arn:aws:iam::") {
        Some(rest) => match rest.split_once(":user/") {
            Some((_, user)) => user.to_string(),
            None => rest.trim_end_matches(":root").to_string(),
        },
        None => name,
    };
    Ok(Principal::Owners(named.into_iter().map(id).collect()))
}

#[cfg(test)]
mod tests;

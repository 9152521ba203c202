//! Values of settings from text: what each type takes, and what is told of anything else. Pure.

use super::{SettingSpec, SettingType};
use crate::door::setting;
use crate::nearest::nearest;
use crate::{ByteSize, Error, Kind, Result};
use std::fmt;

/// When what is remembered of an object counts without asking the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validation {
    /// As the door likes it: DuckDB as `Time`, the gateway and the command line as `Always`.
    Auto,
    /// Never: each open asks.
    Always,
    /// Within one query, once it has asked.
    Query,
    /// For `metadata_validity_ms` after the store confirmed it.
    Time,
    /// Always: objects never change under their names.
    Never,
}

impl Validation {
    /// Every policy with its name.
    pub const ALL: &'static [(Validation, &'static str)] = &[
        (Validation::Auto, "auto"),
        (Validation::Always, "always"),
        (Validation::Query, "query"),
        (Validation::Time, "time"),
        (Validation::Never, "never"),
    ];

    /// What stands for `Auto`.
    pub fn or(self, of_the_door: Validation) -> Validation {
        if self == Validation::Auto { of_the_door } else { self }
    }
}

impl fmt::Display for Validation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(policy, _)| policy == self).map(|(_, name)| *name);
        f.write_str(name.expect("the table has every policy"))
    }
}

/// A flag as people write it and DuckDB prints it; `None` for what is none. What DuckDB casts to a
/// boolean is among it.
pub fn flag(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "t" | "1" | "yes" | "y" | "on" => Some(true),
        "false" | "f" | "0" | "no" | "n" | "off" => Some(false),
        _ => None,
    }
}

/// A switch.
pub(super) fn parse_bool(spec: &SettingSpec, value: &str) -> Result<bool> {
    flag(value).ok_or_else(|| {
        let what = format!("setting `{}` takes true or false, not `{value}`", setting(spec.name));
        Error::new(Kind::Invalid, what)
    })
}

/// A policy by its name.
pub(super) fn parse_validation(spec: &SettingSpec, value: &str) -> Result<Validation> {
    let name = value.trim().to_ascii_lowercase();
    let names = || Validation::ALL.iter().map(|(_, name)| *name);
    let found = Validation::ALL.iter().find(|(_, known)| *known == name);
    found.map(|(policy, _)| *policy).ok_or_else(|| {
        let names_text = names().collect::<Vec<_>>().join(", ");
        let error = Error::new(
            Kind::Invalid,
            format!("setting `{}` takes one of {names_text}, not `{value}`", setting(spec.name)),
        );
        match nearest(&name, names()) {
            Some(near) => error.with_hint(format!("Did you mean `{near}`?")),
            None => error,
        }
    })
}

/// A whole number.
pub(super) fn parse_number(spec: &SettingSpec, value: &str) -> Result<u64> {
    value.trim().parse().map_err(|_| {
        Error::new(
            Kind::Invalid,
            format!("setting `{}` takes a whole number, not `{value}`", setting(spec.name)),
        )
    })
}

/// A number of bytes, with a unit or without.
pub(super) fn parse_size(spec: &SettingSpec, value: &str) -> Result<u64> {
    value.parse::<ByteSize>().map(|size| size.0).map_err(|error| {
        let hint = error.hint().unwrap_or_default().to_string();
        let why = format!("setting `{}`: {}", setting(spec.name), error.message());
        Error::new(Kind::Invalid, why).with_hint(hint)
    })
}

/// A number that its row allows.
pub(super) fn in_range(spec: &SettingSpec, value: &str, parsed: Result<u64>) -> Result<u64> {
    let number = parsed?;
    match spec.range {
        Some((min, max)) if number < min || number > max => {
            let shown = |bound: u64| match spec.setting_type {
                SettingType::Bytes => ByteSize(bound).to_string(),
                _ => bound.to_string(),
            };
            let bounds = match max {
                u64::MAX => format!("below {}", shown(min)),
                max => format!("outside {} to {}", shown(min), shown(max)),
            };
            let why = format!("setting `{}` is {value}, {bounds}", setting(spec.name));
            Err(Error::new(Kind::Invalid, why))
        }
        _ => Ok(number),
    }
}

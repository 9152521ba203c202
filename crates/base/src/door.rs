//! By which door people reach this process, and what a setting is called there.

use crate::settings::SERVE_TABLE;
use std::collections::BTreeMap;
use std::sync::{OnceLock, PoisonError, RwLock};

/// How settings and options are given where this process was started from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// `SET penstock_cache_dir`, `CREATE SECRET (TYPE s3, KEY_ID '...')`; unless another form is
    /// chosen.
    Sql,
    /// `--cache-dir`, `-o key_id='...'`.
    Flags,
    /// `cache_dir = "..."`, `key_id = "..."`.
    Config,
}

static WORDS: OnceLock<Words> = OnceLock::new();

/// Chooses the form for this process; the first choice stays.
pub fn speak(words: Words) {
    // A second choice would be of the same program, about the same command.
    let _ = WORDS.set(words);
}

static AGENT: OnceLock<String> = OnceLock::new();

/// Says what servers are told of who asks; the first word stays.
pub fn calls_itself(agent: String) {
    // A second one would be of the same program.
    let _ = AGENT.set(agent);
}

/// What servers are told of who asks.
pub fn agent() -> String {
    AGENT.get().cloned().unwrap_or_else(|| concat!("penstock/", env!("CARGO_PKG_VERSION")).into())
}

/// The form of this process.
pub fn spoken() -> Words {
    WORDS.get().copied().unwrap_or(Words::Sql)
}

/// Settings that somebody gave in another way than the process speaks, by their names.
static GIVEN: RwLock<BTreeMap<String, String>> = RwLock::new(BTreeMap::new());

/// Says how somebody gave a setting: by a flag, or by a variable of the environment. The last one
/// counts.
pub fn given_as(name: &str, called: String) {
    GIVEN.write().unwrap_or_else(PoisonError::into_inner).insert(name.to_string(), called);
}

/// What a setting of the settings table is called where this process was started from.
pub fn setting(name: &str) -> String {
    let given = GIVEN.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
    given.unwrap_or_else(|| setting_in(spoken(), name))
}

fn setting_in(words: Words, name: &str) -> String {
    // No statement starts a server.
    let is_of_server = || SERVE_TABLE.iter().any(|row| row.name == name);
    match words {
        Words::Sql if is_of_server() => name.to_string(),
        Words::Sql => format!("penstock_{name}"),
        Words::Flags => format!("--{}", name.replace('_', "-")),
        Words::Config => name.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_door_has_its_own_name_for_a_setting() {
        let names = [Words::Sql, Words::Flags, Words::Config].map(|it| setting_in(it, "cache_dir"));
        assert_eq!(names, ["penstock_cache_dir", "--cache-dir", "cache_dir"]);
    }

    #[test]
    fn a_setting_is_called_as_somebody_gave_it() {
        // No other test speaks of this one.
        given_as("a_setting_of_a_test", "PENSTOCK_A_SETTING_OF_A_TEST".to_string());
        assert_eq!(setting("a_setting_of_a_test"), "PENSTOCK_A_SETTING_OF_A_TEST");
        given_as("a_setting_of_a_test", "--a-setting-of-a-test".to_string());
        assert_eq!(setting("a_setting_of_a_test"), "--a-setting-of-a-test");
    }
}

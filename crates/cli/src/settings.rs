//! Flags and environment variables of the settings tables.
//!
//! A flag wins over its variable, a variable over the config file, that over the default. A
//! variable `PENSTOCK_*` that names nothing is an error, so that a slip of the pen does not go
//! unheard.

use clap::{Arg, ArgMatches, Command};
use penstock_base::nearest::nearest;
use penstock_base::settings::{SERVE_TABLE, SettingSpec, SettingType, TABLE};
use penstock_base::{Error, Kind, Result, ServeSettings, Settings};
use std::collections::BTreeSet;
use std::marker::PhantomData;

/// Variables with this prefix that are not settings: other flags of this binary take them.
pub const OTHER_VARIABLES: &[&str] = &["PENSTOCK_ACCESS_KEY", "PENSTOCK_SECRET_KEY"];

/// The values of one table.
pub trait Values: Default + Clone {
    /// Their rows.
    const ROWS: &'static [SettingSpec];
    /// What the help calls them.
    const HEADING: &'static str;
    /// Whether the verbs below take the flags too.
    const GLOBAL: bool;

    /// Sets one value from text.
    ///
    /// # Errors
    /// `Invalid`.
    fn set(&mut self, name: &str, value: &str) -> Result<()>;
}

impl Values for Settings {
    const ROWS: &'static [SettingSpec] = TABLE;
    const HEADING: &'static str = "Settings";
    const GLOBAL: bool = true;

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        Settings::set(self, name, value)
    }
}

impl Values for ServeSettings {
    const ROWS: &'static [SettingSpec] = SERVE_TABLE;
    const HEADING: &'static str = "Settings of the server";
    const GLOBAL: bool = false;

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        ServeSettings::set(self, name, value)
    }
}

/// The settings of one table given as flags, in its order.
#[derive(Clone, Debug, Default)]
pub struct TableFlags<V>(Vec<(&'static str, String)>, PhantomData<V>);

/// The values of one table, and which of them somebody gave.
#[derive(Clone, Debug)]
pub struct Resolved<V> {
    /// Given or default.
    pub settings: V,
    given: BTreeSet<String>,
}

impl<V> Resolved<V> {
    /// Whether a flag, a variable or the config file says this one.
    pub fn is_given(&self, name: &str) -> bool {
        self.given.contains(name)
    }
}

/// Those of every verb.
pub type SettingFlags = TableFlags<Settings>;
/// Those of `penstock serve`.
pub type ServeFlags = TableFlags<ServeSettings>;

impl<V: Values> TableFlags<V> {
    /// The defaults, then those of a config file, then the environment, then the flags; names of
    /// the other table are left to that.
    ///
    /// # Errors
    /// `Invalid` for an unknown variable or a value out of range, naming where it came from.
    pub fn resolve(
        &self,
        file: &[(String, String)],
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Resolved<V>> {
        let (mut settings, mut given) = (V::default(), BTreeSet::new());
        let is_own = |name: &str| V::ROWS.iter().any(|row| row.name == name);
        for (name, value) in file.iter().filter(|row| is_own(&row.0)) {
            settings.set(name, value).map_err(|error| error.with_operation_of("config file"))?;
            given.insert(name.clone());
        }
        for (variable, value) in environment {
            if let Some(name) = setting_of_variable(&variable)?
                && is_own(name)
            {
                settings.set(name, &value).map_err(|error| error.with_operation_of(&variable))?;
                given.insert(name.to_string());
            }
        }
        for (name, value) in &self.0 {
            settings.set(name, value).map_err(|error| error.with_operation_of(&flag(name)))?;
            given.insert((*name).to_string());
        }
        Ok(Resolved { settings, given })
    }
}

/// The setting that a variable names; `None` for variables that are no business of Penstock's.
fn setting_of_variable(variable: &str) -> Result<Option<&'static str>> {
    let Some(bare) = variable.strip_prefix("PENSTOCK_") else { return Ok(None) };
    if OTHER_VARIABLES.contains(&variable) {
        return Ok(None);
    }
    let name = bare.to_ascii_lowercase();
    let rows = || TABLE.iter().chain(SERVE_TABLE);
    if let Some(row) = rows().find(|row| row.name == name) {
        return Ok(Some(row.name));
    }
    let error = Error::new(Kind::Invalid, format!("unknown environment variable {variable}"));
    Err(match nearest(&name, rows().map(|row| row.name)) {
        Some(near) => error.with_hint(format!("Did you mean {}?", variable_of(near))),
        None => error.with_hint("`penstock reference` lists the settings; unset the variable"),
    })
}

/// The environment variable of a setting.
pub fn variable_of(name: &str) -> String {
    format!("PENSTOCK_{}", name.to_ascii_uppercase())
}

/// The flag of a setting.
pub fn flag(name: &str) -> String {
    format!("--{}", name.replace('_', "-"))
}

trait NameSource {
    fn with_operation_of(self, source: &str) -> Error;
}

impl NameSource for Error {
    fn with_operation_of(self, source: &str) -> Error {
        self.with_object(source)
    }
}

fn value_name(row: &SettingSpec) -> &'static str {
    match row.setting_type {
        SettingType::Bool => "BOOL",
        SettingType::Number => "NUMBER",
        SettingType::Bytes => "SIZE",
        SettingType::Millis => "MS",
        SettingType::Text => "TEXT",
        SettingType::Url => "URL",
        SettingType::Validation => "POLICY",
    }
}

impl<V: Values> clap::Args for TableFlags<V> {
    fn augment_args(command: Command) -> Command {
        V::ROWS.iter().fold(command, |command, row| {
            let default = if row.default.is_empty() { "empty" } else { row.default };
            let help = format!("{} [default: {default}] [env: {}]", row.doc, variable_of(row.name));
            command.arg(
                Arg::new(row.name)
                    .long(row.name.replace('_', "-"))
                    .value_name(value_name(row))
                    .help(help)
                    .help_heading(V::HEADING)
                    .hide_short_help(V::GLOBAL)
                    .global(V::GLOBAL),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<V: Values> clap::FromArgMatches for TableFlags<V> {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        let given = |row: &SettingSpec| {
            matches.get_one::<String>(row.name).map(|value| (row.name, value.clone()))
        };
        Ok(TableFlags(V::ROWS.iter().filter_map(given).collect(), PhantomData))
    }

    fn update_from_arg_matches(
        &mut self,
        matches: &ArgMatches,
    ) -> std::result::Result<(), clap::Error> {
        *self = <Self as clap::FromArgMatches>::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<V> TableFlags<V> {
        fn from_rows(rows: Vec<(&'static str, String)>) -> Self {
            TableFlags(rows, PhantomData)
        }
    }

    fn environment(rows: &[(&str, &str)]) -> std::vec::IntoIter<(String, String)> {
        let owned: Vec<_> = rows.iter().map(|row| (row.0.to_string(), row.1.to_string())).collect();
        owned.into_iter()
    }

    #[test]
    fn flags_win_over_the_environment() {
        let flags = SettingFlags::from_rows(vec![("part_size_bytes", "32MiB".to_string())]);
        let variables = [("PENSTOCK_PART_SIZE_BYTES", "16MiB"), ("PENSTOCK_IO_THREADS", "4")];
        let resolved = flags.resolve(&[], environment(&variables)).unwrap();
        let settings = &resolved.settings;
        assert_eq!((settings.part_size_bytes, settings.io_threads), (32 << 20, 4));
        for (name, is_given) in
            [("part_size_bytes", true), ("io_threads", true), ("stall_timeout_ms", false)]
        {
            assert_eq!(resolved.is_given(name), is_given, "{name}");
        }
    }

    #[test]
    fn the_environment_wins_over_the_file_and_each_table_takes_its_own() {
        let file = [("requests_max", "5"), ("drain_seconds", "6"), ("io_threads", "3")];
        let file = file.map(|(name, value)| (name.to_string(), value.to_string()));
        let variables = [("PENSTOCK_REQUESTS_MAX", "7"), ("PENSTOCK_IO_THREADS", "4")];
        let resolved = ServeFlags::default().resolve(&file, environment(&variables)).unwrap();
        assert_eq!((resolved.settings.requests_max, resolved.settings.drain_seconds), (7, 6));
        assert!(resolved.is_given("drain_seconds") && !resolved.is_given("io_threads"));
        let everywhere = SettingFlags::default().resolve(&file, environment(&variables)).unwrap();
        assert_eq!(everywhere.settings.io_threads, 4);
    }

    #[test]
    fn unknown_variable_suggests_the_nearest() {
        let variables = [("PENSTOCK_PART_SIZE_BYTE", "16MiB")];
        let error = SettingFlags::default().resolve(&[], environment(&variables)).unwrap_err();
        assert_eq!(error.hint(), Some("Did you mean PENSTOCK_PART_SIZE_BYTES?"));
    }

    #[test]
    fn keys_and_foreign_variables_are_left_alone() {
        let variables = [("PENSTOCK_SECRET_KEY", "s"), ("HOME", "/root")];
        assert!(SettingFlags::default().resolve(&[], environment(&variables)).is_ok());
    }

    #[test]
    fn a_bad_value_names_its_source() {
        let error = SettingFlags::default()
            .resolve(&[], environment(&[("PENSTOCK_IO_THREADS", "many")]))
            .unwrap_err();
        assert!(error.to_string().starts_with("PENSTOCK_IO_THREADS: "), "{error}");
    }
}

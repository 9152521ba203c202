//! Flags and environment variables of the settings table.
//!
//! A flag wins over its variable, a variable over the default. A variable `PENSTOCK_*` that names
//! nothing is an error, so that a slip of the pen does not go unheard.

use clap::{Arg, ArgMatches, Command};
use penstock_base::nearest::nearest;
use penstock_base::settings::{SettingSpec, SettingType, TABLE};
use penstock_base::{Error, Kind, Result, Settings};

/// Variables with this prefix that are not settings: other flags of this binary take them.
pub const OTHER_VARIABLES: &[&str] = &["PENSTOCK_ACCESS_KEY", "PENSTOCK_SECRET_KEY"];

/// The settings given as flags, in the order of the table.
#[derive(Clone, Debug, Default)]
pub struct SettingFlags(Vec<(&'static str, String)>);

impl SettingFlags {
    /// The defaults, then those of a config file, then the environment, then the flags.
    ///
    /// # Errors
    /// `Invalid` for an unknown variable or a value out of range, naming where it came from.
    pub fn resolve(
        &self,
        file: &[(String, String)],
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Settings> {
        let mut settings = Settings::default();
        for (name, value) in file {
            settings.set(name, value).map_err(|error| error.with_operation_of("config file"))?;
        }
        for (variable, value) in environment {
            if let Some(name) = setting_of_variable(&variable)? {
                settings.set(name, &value).map_err(|error| error.with_operation_of(&variable))?;
            }
        }
        for (name, value) in &self.0 {
            settings.set(name, value).map_err(|error| error.with_operation_of(&flag(name)))?;
        }
        Ok(settings)
    }

    /// Whether the flag was given.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|row| row.0 == name)
    }
}

/// The setting that a variable names; `None` for variables that are no business of Penstock's.
fn setting_of_variable(variable: &str) -> Result<Option<&'static str>> {
    let Some(bare) = variable.strip_prefix("PENSTOCK_") else { return Ok(None) };
    if OTHER_VARIABLES.contains(&variable) {
        return Ok(None);
    }
    let name = bare.to_ascii_lowercase();
    if let Some(row) = TABLE.iter().find(|row| row.name == name) {
        return Ok(Some(row.name));
    }
    let error = Error::new(Kind::Invalid, format!("unknown environment variable {variable}"));
    Err(match nearest(&name, TABLE.iter().map(|row| row.name)) {
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
    }
}

impl clap::Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        TABLE.iter().fold(command, |command, row| {
            let default = if row.default.is_empty() { "empty" } else { row.default };
            let help = format!("{} [default: {default}] [env: {}]", row.doc, variable_of(row.name));
            command.arg(
                Arg::new(row.name)
                    .long(row.name.replace('_', "-"))
                    .value_name(value_name(row))
                    .help(help)
                    .help_heading("Settings")
                    .hide_short_help(true)
                    .global(true),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        let given = |row: &SettingSpec| {
            matches.get_one::<String>(row.name).map(|value| (row.name, value.clone()))
        };
        Ok(SettingFlags(TABLE.iter().filter_map(given).collect()))
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

    fn environment(rows: &[(&str, &str)]) -> std::vec::IntoIter<(String, String)> {
        let owned: Vec<_> = rows.iter().map(|row| (row.0.to_string(), row.1.to_string())).collect();
        owned.into_iter()
    }

    #[test]
    fn flags_win_over_the_environment() {
        let flags = SettingFlags(vec![("part_size_bytes", "32MiB".to_string())]);
        let variables = [("PENSTOCK_PART_SIZE_BYTES", "16MiB"), ("PENSTOCK_IO_THREADS", "4")];
        let settings = flags.resolve(&[], environment(&variables)).unwrap();
        assert_eq!((settings.part_size_bytes, settings.io_threads), (32 << 20, 4));
    }

    #[test]
    fn the_environment_wins_over_the_file() {
        let file = [("io_threads".to_string(), "4".to_string())];
        let settings = SettingFlags::default().resolve(&file, environment(&[])).unwrap();
        assert_eq!(settings.io_threads, 4);
        let variables = [("PENSTOCK_IO_THREADS", "6")];
        let settings = SettingFlags::default().resolve(&file, environment(&variables)).unwrap();
        assert_eq!(settings.io_threads, 6);
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

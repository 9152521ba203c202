//! Flags and environment variables of the settings tables.
//!
//! A flag wins over its variable, a variable over the config file, that over the default. A
//! variable `PENSTOCK_*` that names nothing is an error, so that a slip of the pen does not go
//! unheard; but for those that Kubernetes makes of a Service by the name `penstock`.

use clap::{Arg, ArgMatches, Command};
use penstock_base::door::given_as;
use penstock_base::nearest::nearest;
use penstock_base::settings::{SERVE_TABLE, SettingSpec, SettingType, TABLE};
use penstock_base::{Error, Kind, Result, ServeSettings, Settings};
use std::collections::BTreeSet;
use std::marker::PhantomData;

/// Variables with this prefix that are not settings: other flags of this binary take them, or the
/// Python package does, which runs it.
pub const OTHER_VARIABLES: &[&str] =
    &["PENSTOCK_ACCESS_KEY", "PENSTOCK_SECRET_KEY", "PENSTOCK_HOME"];

/// The values of one table.
pub trait Values: Default + Clone {
    /// Their rows.
    const ROWS: &'static [SettingSpec];
    /// What the help calls them.
    const HEADING: &'static str;
    /// Whether the verbs below take the flags too.
    const GLOBAL: bool;

    /// The values where nobody gives any.
    fn here() -> Self {
        Self::default()
    }

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

    fn here() -> Self {
        penstock_engine::settings_here()
    }

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
    /// The defaults, then those of the config file of this path, then the environment, then the
    /// flags; names of the other table are left to that.
    ///
    /// # Errors
    /// `Invalid` for an unknown variable or a value out of range, naming where it came from.
    pub fn resolve(
        &self,
        (path, file): (&str, &[(String, String)]),
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Resolved<V>> {
        let (mut settings, mut given) = (V::here(), BTreeSet::new());
        let is_own = |name: &str| V::ROWS.iter().any(|row| row.name == name);
        for (name, value) in file.iter().filter(|row| is_own(&row.0)) {
            given_as(name, name.clone());
            settings.set(name, value).map_err(|error| error.with_object(path))?;
            given.insert(name.clone());
        }
        // Errors call a setting as it was given, also later ones.
        for (variable, value) in environment {
            if let Some(name) = setting_of_variable(&variable)?
                && is_own(name)
            {
                given_as(name, variable.clone());
                settings.set(name, &value)?;
                given.insert(name.to_string());
            }
        }
        for (name, value) in &self.0 {
            given_as(name, flag(name));
            settings.set(name, value)?;
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
    if is_service_link(bare) {
        return Ok(None);
    }
    let error = Error::new(Kind::Invalid, format!("unknown environment variable {variable}"));
    Err(match nearest(&name, rows().map(|row| row.name)) {
        Some(near) => error.with_hint(format!("Did you mean {}?", variable_of(near))),
        None => error.with_hint("`penstock reference` lists the settings; unset the variable"),
    })
}

/// Whether a variable, without its prefix, is one of those that Kubernetes puts into every pod
/// beside a Service by the name `penstock` (service links): where it is, and each of its ports.
fn is_service_link(bare: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    let is_name = |text: &str| !text.is_empty() && text.bytes().all(is_word);
    if let Some(port) = bare.strip_prefix("SERVICE_PORT_") {
        return is_name(port);
    }
    let Some(port) = bare.strip_prefix("PORT_") else {
        return matches!(bare, "SERVICE_HOST" | "SERVICE_PORT" | "PORT");
    };
    let mut words = port.split('_');
    let (number, protocol) = (words.next().unwrap_or_default(), words.next());
    let is_port = number.bytes().all(|byte| byte.is_ascii_digit()) && number.parse::<u16>().is_ok();
    is_port
        && matches!(protocol, Some("TCP" | "UDP" | "SCTP"))
        && matches!(words.next(), None | Some("PROTO" | "PORT" | "ADDR"))
        && words.next().is_none()
}

/// The environment variable of a setting.
pub fn variable_of(name: &str) -> String {
    format!("PENSTOCK_{}", name.to_ascii_uppercase())
}

/// The flag of a setting.
pub fn flag(name: &str) -> String {
    format!("--{}", name.replace('_', "-"))
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
    use penstock_base::door::setting;

    impl<V> TableFlags<V> {
        fn from_rows(rows: Vec<(&'static str, String)>) -> Self {
            TableFlags(rows, PhantomData)
        }
    }

    const NO_FILE: (&str, &[(String, String)]) = ("", &[]);

    fn environment(rows: &[(&str, &str)]) -> std::vec::IntoIter<(String, String)> {
        let owned: Vec<_> = rows.iter().map(|row| (row.0.to_string(), row.1.to_string())).collect();
        owned.into_iter()
    }

    #[test]
    fn flags_win_over_the_environment() {
        let flags = SettingFlags::from_rows(vec![("cache_memory_bytes", "32MiB".to_string())]);
        let variables = [("PENSTOCK_CACHE_MEMORY_BYTES", "16MiB"), ("PENSTOCK_IO_THREADS", "4")];
        let resolved = flags.resolve(NO_FILE, environment(&variables)).unwrap();
        let settings = &resolved.settings;
        assert_eq!((settings.cache_memory_bytes, settings.io_threads), (32 << 20, 4));
        assert_eq!(setting("cache_memory_bytes"), "--cache-memory-bytes");
        for (name, is_given) in
            [("cache_memory_bytes", true), ("io_threads", true), ("stall_timeout_ms", false)]
        {
            assert_eq!(resolved.is_given(name), is_given, "{name}");
        }
    }

    #[test]
    fn the_environment_wins_over_the_file_and_each_table_takes_its_own() {
        let file = [("requests_max", "5"), ("drain_seconds", "6"), ("io_threads", "3")];
        let file = file.map(|(name, value)| (name.to_string(), value.to_string()));
        let variables = [("PENSTOCK_REQUESTS_MAX", "7"), ("PENSTOCK_IO_THREADS", "4")];
        let resolved = ServeFlags::default()
            .resolve(("gateway.toml", &file), environment(&variables))
            .unwrap();
        assert_eq!((resolved.settings.requests_max, resolved.settings.drain_seconds), (7, 6));
        assert!(resolved.is_given("drain_seconds") && !resolved.is_given("io_threads"));
        let everywhere = SettingFlags::default()
            .resolve(("gateway.toml", &file), environment(&variables))
            .unwrap();
        assert_eq!(everywhere.settings.io_threads, 4);
    }

    #[test]
    fn unknown_variable_suggests_the_nearest() {
        let variables = [("PENSTOCK_PART_SIZE_BYTE", "16MiB")];
        let error = SettingFlags::default().resolve(NO_FILE, environment(&variables)).unwrap_err();
        assert_eq!(error.hint(), Some("Did you mean PENSTOCK_PART_SIZE_BYTES?"));
    }

    #[test]
    fn keys_and_foreign_variables_are_left_alone() {
        let variables =
            [("PENSTOCK_SECRET_KEY", "s"), ("PENSTOCK_HOME", "/opt/penstock"), ("HOME", "/root")];
        assert!(SettingFlags::default().resolve(NO_FILE, environment(&variables)).is_ok());
    }

    #[test]
    fn what_kubernetes_tells_of_a_service_by_this_name_is_no_setting() {
        let links = [
            "PENSTOCK_SERVICE_HOST",
            "PENSTOCK_SERVICE_PORT",
            "PENSTOCK_SERVICE_PORT_S3",
            "PENSTOCK_SERVICE_PORT_S3_TLS",
            "PENSTOCK_PORT",
            "PENSTOCK_PORT_9000_TCP",
            "PENSTOCK_PORT_9000_TCP_PROTO",
            "PENSTOCK_PORT_9000_TCP_PORT",
            "PENSTOCK_PORT_9000_TCP_ADDR",
            "PENSTOCK_PORT_53_UDP_ADDR",
            "PENSTOCK_PORT_1_SCTP",
        ];
        for link in links {
            let variables = [(link, "tcp://10.0.0.1:9000"), ("PENSTOCK_IO_THREADS", "4")];
            let settings =
                SettingFlags::default().resolve(NO_FILE, environment(&variables)).unwrap();
            assert_eq!(settings.settings.io_threads, 4, "{link}");
            assert!(
                ServeFlags::default().resolve(NO_FILE, environment(&variables)).is_ok(),
                "{link}"
            );
        }
        for slip in [
            "PENSTOCK_SERVICE",
            "PENSTOCK_SERVICE_HOSTS",
            "PENSTOCK_SERVICE_PORT_",
            "PENSTOCK_SERVICE_PORT_s3",
            "PENSTOCK_PORTS",
            "PENSTOCK_PORT_",
            "PENSTOCK_PORT_9000",
            "PENSTOCK_PORT_9000_HTTP",
            "PENSTOCK_PORT_90000_TCP",
            "PENSTOCK_PORT_+1_TCP",
            "PENSTOCK_PORT_9000_TCP_NAME",
            "PENSTOCK_PORT_9000_TCP_ADDR_2",
            "PENSTOCK_REDIS_SERVICE_HOST",
        ] {
            let found = SettingFlags::default().resolve(NO_FILE, environment(&[(slip, "1")]));
            assert!(found.is_err(), "{slip}");
        }
    }

    #[test]
    fn no_setting_has_the_name_of_a_service_link() {
        for row in TABLE.iter().chain(SERVE_TABLE) {
            assert!(!is_service_link(&row.name.to_ascii_uppercase()), "{}", row.name);
        }
    }

    #[test]
    fn a_bad_value_names_its_source() {
        let error = SettingFlags::default()
            .resolve(NO_FILE, environment(&[("PENSTOCK_IO_THREADS", "many")]))
            .unwrap_err();
        let told = "setting `PENSTOCK_IO_THREADS` takes a whole number";
        assert!(error.to_string().starts_with(told), "{error}");
        let file = [("part_size_bytes".to_string(), "true".to_string())];
        let error = SettingFlags::default().resolve(("gateway.toml", &file), environment(&[]));
        let told = error.unwrap_err().to_string();
        let said = "gateway.toml: setting `part_size_bytes`: `true` is not a byte size. Write";
        assert!(told.starts_with(said), "{told}");
    }
}

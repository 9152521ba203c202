//! The URLs of files on volumes: `nvme://PATH?db=NAME` and, for spilling, `nvme://PATH?temp`. Pure;
//! it decides which file of which device a URL means, and nothing about opening it.
//!
//! PATH and NAME are taken as they stand. DuckDB makes the names of a database's companions by
//! putting an ending before the `?`, and of temporary files by adding `/file` at the URL's end, or
//! from 2.0 on before the `?`.

mod replaced;
#[cfg(test)]
mod tests;

use crate::open::IoChoice;
use crate::queues::Discipline;
use crate::volume::table::{NAME_BYTES_MAX, is_name};
use crate::volume::{Asked, TEMP_PREFIX};
use crate::wait::Wait;
use penstock_base::door::setting;
use penstock_base::{Error, Kind, Result, Settings, nearest::nearest};
use std::fmt;
use std::path::{Path, PathBuf};

/// How these URLs begin; in any case.
pub const SCHEME: &str = "nvme://";

/// What DuckDB keeps beside a database while it is open; the longer ones first.
pub const ENDINGS: [&str; 3] = [".wal.checkpoint", ".wal.recovery", ".wal"];

/// What a database is called while it is imported.
pub const IMPORT_ENDING: &str = ".import";

/// The longest ending of a database's name, that of a checkpoint's log being imported, has its
/// place behind it.
const DATABASE_NAME_BYTES_MAX: usize = NAME_BYTES_MAX - ENDINGS[0].len() - IMPORT_ENDING.len();

/// How the names of DuckDB's temporary files begin (`temporary_file_manager.cpp`).
pub const SPILLED_BEGIN: &str = "duckdb_temp_";

const PARAMETERS: [&str; 6] = ["db", "temp", "io", "queues", "depth", "wait"];

/// What to do about a path that goes on behind a device.
pub const NO_DIRECTORIES: &str = "Name what lies on a volume by db: nvme:///dev/ng0n1?db=sales. A \
                                  volume has no directories: EXPORT DATABASE goes to a file system";
const EXAMPLE: &str = "Write nvme:///dev/ng0n1?db=sales";

/// What lies at a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A database, or with its ending one of its companions.
    Database(String),
    /// A directory of temporary files, or a file in it.
    Temp {
        /// Its name; empty for the one that has none.
        directory: String,
        /// The file, if the URL names one.
        file: Option<String>,
    },
    /// The volume: neither was named.
    Volume,
}

/// A URL, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The file, block device or NVMe device.
    pub device: PathBuf,
    /// What on it.
    pub place: Place,
    /// How it should be opened.
    pub asked: Asked,
}

fn fail<T>(url: &str, message: impl Into<String>, hint: impl Into<String>) -> Result<T> {
    let error = Error::new(Kind::Invalid, message).with_operation("volume address");
    Err(error.with_object(url).with_hint(hint))
}

/// Splits an ending of DuckDB's off a path.
fn split_ending(path: &str) -> (&str, &'static str) {
    let found = ENDINGS.into_iter().find(|ending| path.ends_with(ending)).unwrap_or("");
    (&path[..path.len() - found.len()], found)
}

/// Splits a temporary file's name off the path of its directory's URL, where DuckDB 2.0 puts it.
fn split_joined(path: &str) -> (&str, Option<&str>) {
    match path.rsplit_once('/') {
        Some((front, name)) if name.starts_with(SPILLED_BEGIN) => (front, Some(name)),
        _ => (path, None),
    }
}

impl Address {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// `Invalid` for what is no such URL: another scheme, no path, an unknown parameter or value,
    /// a name that no database can have.
    pub fn parse(url: &str) -> Result<Self> {
        let Some(rest) = strip_scheme(url) else {
            return fail(url, "it does not begin with nvme://", EXAMPLE);
        };
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let parameters = Parameters::parse(url, query)?;
        let (device, place) = match parameters {
            Parameters { db: Some(_), temp: Some(_), .. } => {
                let hint = "Name a database with db, or a place to spill with temp";
                return fail(url, "it has both db and temp", hint);
            }
            Parameters { temp: Some(directory), file: None, .. } => {
                let (device, file) = split_joined(path);
                (device, Place::Temp { directory, file: file.map(str::to_string) })
            }
            Parameters { temp: Some(directory), file, .. } => {
                (path, Place::Temp { directory, file })
            }
            Parameters { db: Some(db), .. } => {
                let (device, ending) = split_ending(path);
                check_name(url, &db)?;
                // Where a log is attached as a database, DuckDB looks for the log of that log.
                let (front, second) = split_ending(device);
                if !second.is_empty() {
                    // As whoever attached it wrote it.
                    let written = format!("{SCHEME}{front}?db={db}{second}");
                    return Err(no_database(&written, second));
                }
                (device, Place::Database(db + ending))
            }
            Parameters { db: None, temp: None, .. } => (path, Place::Volume),
        };
        if device.is_empty() {
            return fail(url, "it names no device", "Write its path, such as nvme:///dev/ng0n1");
        }
        Ok(Address { device: PathBuf::from(device), place, asked: parameters.asked })
    }

    /// The name of the database, if it is one.
    pub fn database(&self) -> Option<&str> {
        match &self.place {
            Place::Database(name) => Some(name),
            Place::Temp { .. } | Place::Volume => None,
        }
    }

    /// The same, also of a URL with the ending of a companion behind it: where DuckDB lists what
    /// may be opened without external access, it adds endings to whole paths.
    ///
    /// # Errors
    /// As [`Address::parse`].
    pub fn parse_any(url: &str) -> Result<Self> {
        let (front, ending) = split_ending(url);
        match Self::parse(front) {
            Ok(Address { device, place: Place::Database(name), asked })
                if split_ending(&name).1.is_empty() =>
            {
                Ok(Address { device, place: Place::Database(name + ending), asked })
            }
            _ => Self::parse(url),
        }
    }

    /// The one URL for all that mean the same, on the device at `real`. What was not asked for in
    /// the URL itself is told by `asked`.
    ///
    /// # Errors
    /// As [`check_volume_path`].
    pub fn canonical(&self, real: &Path, asked: Asked) -> Result<String> {
        let path = check_volume_path(real)?;
        let asked = self.asked.or(asked).to_string();
        match &self.place {
            Place::Database(name) => {
                let (name, ending) = split_ending(name);
                Ok(format!("{SCHEME}{path}{ending}?db={name}{asked}"))
            }
            // Its files' URLs begin with the directory's.
            Place::Temp { directory, file } => {
                let equals = if directory.is_empty() { "" } else { "=" };
                let temp = format!("{asked}&temp{equals}{directory}");
                let file = file.as_ref().map_or_else(String::new, |file| format!("/{file}"));
                Ok(format!("{SCHEME}{path}?{}{file}", &temp[1..]))
            }
            Place::Volume => fail(path, "it names no database", EXAMPLE),
        }
    }
}

fn unreachable(path: &Path, why: &str) -> Error {
    Error::new(Kind::Invalid, format!("no URL leads here: {why}"))
        .with_operation("volume address")
        .with_object(path.display().to_string())
        .with_hint("Give it another name")
}

/// A path as it can stand in a URL.
///
/// # Errors
/// `Invalid` for one that cannot.
pub fn check_path(path: &Path) -> Result<&str> {
    match path.to_str() {
        Some(text) if !text.contains('?') => Ok(text),
        Some(_) => Err(unreachable(path, "its path has a ? in it")),
        None => Err(unreachable(path, "its path is not UTF-8")),
    }
}

/// The same for the path of a volume, where every link has been followed.
///
/// # Errors
/// As [`check_path`], and for one that ends as DuckDB's logs and temporary files do: with an ending
/// in its place the URL of a log would be the URL of a database.
pub fn check_volume_path(real: &Path) -> Result<&str> {
    let path = check_path(real)?;
    let ending = split_ending(path).1;
    if !ending.is_empty() {
        return Err(unreachable(real, &format!("what ends with {ending} is a log")));
    }
    match split_joined(path).1 {
        Some(_) => Err(unreachable(real, "temporary files are called so")),
        None => Ok(path),
    }
}

/// The rest of a URL behind its scheme.
pub fn strip_scheme(url: &str) -> Option<&str> {
    let scheme = url.get(..SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then(|| &url[SCHEME.len()..])
}

/// Whether a database may have a name: with each ending it has to be one of a file, and none of the
/// files beside a database may be taken for a database.
///
/// # Errors
/// `Invalid`; `url` is how the error calls what has that name.
pub fn check_name(url: &str, name: &str) -> Result<()> {
    // Behind a `&` a URL has its next parameter.
    if !is_name(name) || name.len() > DATABASE_NAME_BYTES_MAX || name.contains('&') {
        let hint = format!(
            "A name has 1 to {DATABASE_NAME_BYTES_MAX} bytes, no & and no control characters"
        );
        return fail(url, "no database can have this name", hint);
    }
    let ending = ENDINGS.into_iter().chain([IMPORT_ENDING]).find(|it| name.ends_with(it));
    if name.starts_with(TEMP_PREFIX) || ending.is_some() {
        return Err(no_database(url, ending.unwrap_or(ENDINGS[2])));
    }
    Ok(())
}

fn no_database(url: &str, ending: &str) -> Error {
    let message = format!("{TEMP_PREFIX}… and …{ending} are not names of databases");
    let error = Error::new(Kind::Invalid, message).with_operation("volume address");
    error.with_object(url).with_hint("Choose another name")
}

#[derive(Default)]
struct Parameters {
    db: Option<String>,
    temp: Option<String>,
    /// What stands behind the last slash of a directory's URL.
    file: Option<String>,
    asked: Asked,
}

fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts.map(|part| part.split_once('=').unwrap_or((part, "")))
}

impl Parameters {
    fn parse(url: &str, query: &str) -> Result<Self> {
        let (front, file) = match query.rsplit_once('/') {
            Some((front, file)) if pairs(front).any(|pair| pair.0 == "temp") => (front, Some(file)),
            _ => (query, None),
        };
        let file = file.filter(|file| !file.is_empty()).map(str::to_string);
        let mut parameters = Parameters { file, ..Parameters::default() };
        let mut keys: Vec<&str> = Vec::new();
        for (key, value) in pairs(front) {
            if keys.contains(&key) {
                return fail(url, format!("it has {key} twice"), EXAMPLE);
            }
            keys.push(key);
            let asked = &mut parameters.asked;
            match key {
                "db" if parameters.db.is_none() => parameters.db = Some(value.to_string()),
                replaced::PARAMETER if parameters.db.is_none() => match replaced::decoded(value) {
                    Some(name) => parameters.db = Some(name),
                    None => return Err(unknown_parameter(url, key)),
                },
                "temp" => parameters.temp = Some(value.to_string()),
                "io" => {
                    asked.io = Some(IoChoice::by_name(value).map_err(|it| it.with_object(url))?);
                }
                "queues" => {
                    let queues = Discipline::by_name(value).map_err(|it| it.with_object(url))?;
                    asked.discipline = Some(queues);
                }
                "depth" => match value.parse() {
                    Ok(depth) => asked.queue_depth = Some(depth),
                    Err(_) => {
                        let message = format!("depth={value} is no number of commands");
                        return fail(url, message, "Write depth=32");
                    }
                },
                "wait" => {
                    let wait = Wait::by_name(value).map_err(|it| it.with_object(url))?;
                    asked.wait = Some(wait);
                }
                unknown => return Err(unknown_parameter(url, unknown)),
            }
        }
        Ok(parameters)
    }
}

fn unknown_parameter(url: &str, name: &str) -> Error {
    let hint = match nearest(name, PARAMETERS) {
        Some(near) => format!("Did you mean {near}?"),
        None => format!("Known are: {}", PARAMETERS.join(", ")),
    };
    let error = Error::new(Kind::Invalid, format!("there is no parameter {name}"));
    error.with_operation("volume address").with_object(url).with_hint(hint)
}

impl Asked {
    /// What the settings say.
    ///
    /// # Errors
    /// `Invalid` for a name that is none.
    pub fn from_settings(settings: &Settings) -> Result<Self> {
        let of = |name: &'static str| move |error: Error| error.with_object(setting(name));
        let depth = u32::try_from(settings.nvme_queue_depth).unwrap_or(u32::MAX);
        Ok(Asked {
            io: Some(IoChoice::by_name(&settings.nvme_io).map_err(of("nvme_io"))?),
            discipline: Some(
                Discipline::by_name(&settings.nvme_queues).map_err(of("nvme_queues"))?,
            ),
            queue_depth: Some(depth),
            wait: Some(Wait::by_name(&settings.nvme_wait).map_err(of("nvme_wait"))?),
        })
    }

    /// The same, and what it leaves open from another.
    #[must_use]
    pub fn or(self, other: Asked) -> Self {
        Asked {
            io: self.io.or(other.io),
            discipline: self.discipline.or(other.discipline),
            queue_depth: self.queue_depth.or(other.queue_depth),
            wait: self.wait.or(other.wait),
        }
    }

    /// Only where it differs from another.
    #[must_use]
    pub fn unlike(self, other: Asked) -> Self {
        Asked {
            io: self.io.filter(|_| self.io != other.io),
            discipline: self.discipline.filter(|_| self.discipline != other.discipline),
            queue_depth: self.queue_depth.filter(|_| self.queue_depth != other.queue_depth),
            wait: self.wait.filter(|_| self.wait != other.wait),
        }
    }
}

/// As parameters behind others.
impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(io) = self.io {
            write!(f, "&io={io}")?;
        }
        if let Some(discipline) = self.discipline {
            write!(f, "&queues={}", discipline.name())?;
        }
        if let Some(depth) = self.queue_depth {
            write!(f, "&depth={depth}")?;
        }
        self.wait.map_or(Ok(()), |wait| write!(f, "&wait={}", wait.name()))
    }
}

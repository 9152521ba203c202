//! The config file: TOML with settings at the top and a section for each back end, bucket and key.
//!
//! Decides what the text means; opens nothing. An unknown key is an error that names the nearest
//! known one and the line. A secret may stand in the file, in a file of its own (`..._file`) or in
//! a variable (`..._env`).

mod lines;

use crate::access::{Grant, Pattern, Rights};
use crate::cors::Rule;
use crate::keys::KeyPair;
use crate::pages::PageRule;
use crate::route::{BackendOptions, BucketOptions};
pub use lines::Lines;
pub(crate) use lines::is_subject;
use penstock_base::nearest::nearest;
use penstock_base::settings::{SERVE_TABLE, ServeSettings, TABLE};
use penstock_base::{Error, Kind, Result, Secret, Settings};
use penstock_store::StoreOptions;
use penstock_store::options::TABLE as OPTIONS;
use std::path::Path;
use toml_edit::{Document, Item, Table, TomlError, Value};

/// Keys at the top besides the settings.
const SERVE_KEYS: &[&str] = &["anonymous"];
const SECTIONS: &[&str] = &["backend", "bucket", "key", "public", "cors"];
const CORS_KEYS: &[&str] = &["buckets", "origins", "methods", "headers", "exposed", "max_age_s"];
const BACKEND_KEYS: &[&str] = &["name", "url", "dynamic", "read_only", "encrypted_at_rest"];
const BUCKET_KEYS: &[&str] = &["name", "backend", "container", "prefix", "read_only", "aliases"];
const KEY_KEYS: &[&str] = &[
    "access_key",
    "secret_key",
    "secret_key_file",
    "secret_key_env",
    "buckets",
    "rights",
    "grant",
    "requests_per_second",
];
const GRANT_KEYS: &[&str] = &["buckets", "rights"];

/// What a config file says. What it does not say is `None` or empty.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The file's path, for errors; empty where it is none.
    pub path: String,
    /// Where its parts stand.
    pub lines: Lines,
    /// Names and values of settings.
    pub settings: Vec<(String, String)>,
    /// Lets unsigned requests in.
    pub anonymous: Option<bool>,
    /// The pairs that sign requests.
    pub keys: Vec<KeyPair>,
    /// What unsigned requests may.
    pub public: Vec<Grant>,
    /// Which pages of other origins may use which buckets.
    pub cors: Vec<PageRule>,
    /// The back ends.
    pub backends: Vec<BackendOptions>,
    /// The buckets that are named.
    pub buckets: Vec<BucketOptions>,
}

/// Where a secret comes from that does not stand in the file itself.
pub trait Secrets {
    /// The first line of a file.
    ///
    /// # Errors
    /// `NotFound`, `Denied`.
    fn file(&self, path: &Path) -> Result<Secret>;

    /// A variable of the environment.
    ///
    /// # Errors
    /// `NotFound` when it is not set.
    fn variable(&self, name: &str) -> Result<Secret>;
}

/// This process's files and environment.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings;

impl Secrets for Surroundings {
    fn file(&self, path: &Path) -> Result<Secret> {
        let text = std::fs::read_to_string(path).map_err(|cause| {
            Error::new(Kind::NotFound, format!("cannot read a secret from {}", path.display()))
                .with_source(cause)
                .with_hint("Check the path and the file's mode")
        })?;
        Ok(Secret::new(text.lines().next().unwrap_or_default().trim()))
    }

    fn variable(&self, name: &str) -> Result<Secret> {
        std::env::var(name).map(Secret::new).map_err(|_| {
            Error::new(Kind::NotFound, format!("the variable {name} is not set"))
                .with_hint("Set it, or put the secret elsewhere")
        })
    }
}

impl Config {
    /// Reads a config file.
    ///
    /// # Errors
    /// `NotFound`, and those of [`Config::parse`].
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|cause| {
            Error::new(Kind::NotFound, "the config file cannot be read")
                .with_object(path.display().to_string())
                .with_source(cause)
        })?;
        let path = path.display().to_string();
        let config = Config::parse(&text, &Surroundings);
        let config = config.map_err(|error| error.with_object(path.clone()))?;
        let lines = config.lines.clone().at(&path);
        Ok(Config { path, lines, ..config })
    }

    /// Reads the text of a config file.
    ///
    /// # Errors
    /// `Invalid` for what is no TOML, an unknown key, or a value of the wrong type, with its line.
    pub fn parse(text: &str, secrets: &dyn Secrets) -> Result<Self> {
        let document = Document::parse(text).map_err(|cause| no_toml(text, &cause))?;
        let reader = Reader { text, secrets };
        let lines = Lines::of(document.as_table(), |at| line_of(text, at));
        let mut config = Config { lines, ..Config::default() };
        for (name, item) in document.as_table() {
            let line = reader.line(document.as_table(), name);
            match name {
                "backend" => config.backends = reader.sections(item, name, Reader::backend)?,
                "bucket" => config.buckets = reader.sections(item, name, Reader::bucket)?,
                "key" => config.keys = reader.sections(item, name, Reader::key)?,
                "public" => config.public = reader.sections(item, name, Reader::public)?,
                "cors" => config.cors = reader.sections(item, name, Reader::cors)?,
                "anonymous" => config.anonymous = Some(flag(item, name, line)?),
                name if TABLE.iter().chain(SERVE_TABLE).any(|row| row.name == name) => {
                    let value = scalar(item, name, line)?;
                    let judged = judge(name, &value);
                    judged.map_err(|error| error.with_note(format!("in line {line}")))?;
                    config.settings.push((name.to_string(), value));
                }
                name => {
                    let known = TABLE.iter().chain(SERVE_TABLE).map(|row| row.name);
                    let known = known.chain(SERVE_KEYS.iter().chain(SECTIONS).copied());
                    return Err(unknown(name, line, known));
                }
            }
        }
        Ok(config)
    }
}

/// Whether a setting takes a value.
fn judge(name: &str, value: &str) -> Result<()> {
    match TABLE.iter().any(|row| row.name == name) {
        true => Settings::default().set(name, value),
        false => ServeSettings::default().set(name, value),
    }
}

/// The line of a place in a text, counted from 1.
fn line_of(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or_default().matches('\n').count() + 1
}

/// An error about a section, with the line where the section begins, unless it names a line.
fn located(error: Error, name: &str, line: usize) -> Error {
    match error.message().contains("line ") {
        true => error,
        false => error.with_note(format!("[[{name}]] in line {line}")),
    }
}

struct Reader<'a> {
    text: &'a str,
    secrets: &'a dyn Secrets,
}

impl Reader<'_> {
    fn line(&self, table: &Table, name: &str) -> usize {
        let at = table.key(name).and_then(|key| key.span()).map_or(0, |span| span.start);
        line_of(self.text, at)
    }

    fn sections<T>(
        &self,
        item: &Item,
        name: &str,
        read: fn(&Self, &Table) -> Result<T>,
    ) -> Result<Vec<T>> {
        let sections = item.as_array_of_tables().ok_or_else(|| {
            Error::new(Kind::Invalid, format!("`{name}` is a list of sections"))
                .with_hint(format!("Begin each with [[{name}]]"))
        })?;
        let located = |section: &Table| {
            let at = section.span().map_or(0, |span| span.start);
            read(self, section).map_err(|error| located(error, name, line_of(self.text, at)))
        };
        sections.iter().map(located).collect()
    }

    fn backend(&self, section: &Table) -> Result<BackendOptions> {
        let mut backend = BackendOptions::default();
        for (name, item) in section {
            let line = self.line(section, name);
            match name {
                "name" => backend.name = string(item, name, line)?,
                "url" => backend.url = string(item, name, line)?,
                "dynamic" => backend.is_dynamic = flag(item, name, line)?,
                "read_only" => backend.is_read_only = flag(item, name, line)?,
                "encrypted_at_rest" => backend.is_encrypted = Some(flag(item, name, line)?),
                name => {
                    let (option, value) = self.store_option(name, item, line)?;
                    let is_it = |given: &(String, Secret)| given.0.eq_ignore_ascii_case(&option);
                    let is_new = !backend.options.iter().any(is_it);
                    given_once(is_new, &option, line)?;
                    backend.options.push((option, value));
                }
            }
        }
        require(!backend.name.is_empty(), "a [[backend]] has no `name`")?;
        require(!backend.url.is_empty(), &format!("back end `{}` has no `url`", backend.name))?;
        Ok(backend)
    }

    /// An option of a store, or the name of one with `_file` or `_env` behind it.
    fn store_option(&self, name: &str, item: &Item, line: usize) -> Result<(String, Secret)> {
        let value = scalar(item, name, line)?;
        if StoreOptions::new([(name, "x")]).is_ok() {
            return Ok((name.to_string(), Secret::new(value)));
        }
        let known = |option: &str| StoreOptions::new([(option, "x")]).is_ok();
        if let Some(option) = name.strip_suffix("_file").filter(|option| known(option)) {
            return Ok((option.to_string(), self.secrets.file(Path::new(&value))?));
        }
        if let Some(option) = name.strip_suffix("_env").filter(|option| known(option)) {
            return Ok((option.to_string(), self.secrets.variable(&value)?));
        }
        let known = OPTIONS.iter().map(|row| row.name).chain(BACKEND_KEYS.iter().copied());
        Err(unknown(name, line, known))
    }

    fn bucket(&self, section: &Table) -> Result<BucketOptions> {
        let mut bucket = BucketOptions::default();
        for (name, item) in section {
            let line = self.line(section, name);
            match name {
                "name" => bucket.name = string(item, name, line)?,
                "backend" => bucket.backend = string(item, name, line)?,
                "container" => bucket.container = Some(string(item, name, line)?),
                "prefix" => bucket.prefix = string(item, name, line)?,
                "read_only" => bucket.is_read_only = flag(item, name, line)?,
                "aliases" => bucket.aliases = strings(item, name, line)?,
                name => return Err(unknown(name, line, BUCKET_KEYS.iter().copied())),
            }
        }
        require(!bucket.name.is_empty(), "a [[bucket]] has no `name`")?;
        require(!bucket.backend.is_empty(), &format!("bucket `{}` has no `backend`", bucket.name))?;
        Ok(bucket)
    }

    fn key(&self, section: &Table) -> Result<KeyPair> {
        let mut pair = KeyPair::new("", Secret::default());
        let (mut grants, mut own) = (Vec::new(), OwnGrant::default());
        for (name, item) in section {
            let line = self.line(section, name);
            let text = || string(item, name, line);
            if name.starts_with("secret_key") {
                given_once(pair.secret_key.is_empty(), "secret_key", line)?;
            }
            match name {
                "access_key" => pair.access_key = text()?,
                "secret_key" => pair.secret_key = Secret::new(text()?),
                "secret_key_file" => pair.secret_key = self.secrets.file(Path::new(&text()?))?,
                "secret_key_env" => pair.secret_key = self.secrets.variable(&text()?)?,
                "buckets" => own.buckets = Some(strings(item, name, line)?),
                "rights" => own.rights = Some(strings(item, name, line)?),
                "grant" => grants = self.sections(item, "key.grant", Reader::grant)?,
                "requests_per_second" => {
                    pair.requests_per_second = Some(number(item, name, line)?);
                }
                name => return Err(unknown(name, line, KEY_KEYS.iter().copied())),
            }
        }
        require(!pair.access_key.is_empty(), "a [[key]] has no `access_key`")?;
        let what = format!("key `{}` has no secret", pair.access_key);
        require(!pair.secret_key.is_empty(), &what).map_err(|error| {
            error.with_hint("Give it `secret_key`, `secret_key_file` or `secret_key_env`")
        })?;
        // Everything everywhere, where nothing is said.
        if own.is_given() || grants.is_empty() {
            grants.push(own.grant()?);
        }
        pair.grants = grants;
        Ok(pair)
    }

    fn grant(&self, section: &Table) -> Result<Grant> {
        let mut own = OwnGrant::default();
        for (name, item) in section {
            let line = self.line(section, name);
            match name {
                "buckets" => own.buckets = Some(strings(item, name, line)?),
                "rights" => own.rights = Some(strings(item, name, line)?),
                name => return Err(unknown(name, line, GRANT_KEYS.iter().copied())),
            }
        }
        own.grant()
    }

    fn cors(&self, section: &Table) -> Result<PageRule> {
        let mut rule = PageRule { buckets: vec![Pattern::new("*")], rule: Rule::default() };
        for (name, item) in section {
            let line = self.line(section, name);
            let texts = || strings(item, name, line);
            match name {
                "buckets" => rule.buckets = texts()?.into_iter().map(Pattern::new).collect(),
                "origins" => rule.rule.origins = texts()?,
                "methods" => rule.rule.methods = texts()?,
                "headers" => rule.rule.headers = texts()?,
                "exposed" => rule.rule.exposed = texts()?,
                "max_age_s" => {
                    let seconds = i32::try_from(number(item, name, line)?);
                    let seconds = seconds.map_err(|_| wrong(name, line, "at most 2147483647"))?;
                    rule.rule.max_age_s = Some(seconds);
                }
                name => return Err(unknown(name, line, CORS_KEYS.iter().copied())),
            }
        }
        crate::pages::check(&rule.rule)?;
        Ok(rule)
    }

    /// What everybody may: both keys must stand there, since nobody means everything.
    fn public(&self, section: &Table) -> Result<Grant> {
        for key in GRANT_KEYS {
            require(section.contains_key(key), &format!("a [[public]] has no `{key}`"))?;
        }
        let own_rate = "requests_per_second";
        if section.contains_key(own_rate) {
            let line = self.line(section, own_rate);
            let why = format!("a [[public]] has no `{own_rate}` of its own (line {line})");
            return Err(Error::new(Kind::Invalid, why).with_hint(
                "All unsigned requests share one rate: set `public_requests_per_second` at the \
                 top of the file",
            ));
        }
        self.grant(section)
    }
}

/// The keys `buckets` and `rights` of a section; one that is not given means all.
#[derive(Default)]
struct OwnGrant {
    buckets: Option<Vec<String>>,
    rights: Option<Vec<String>>,
}

impl OwnGrant {
    fn is_given(&self) -> bool {
        self.buckets.is_some() || self.rights.is_some()
    }

    fn grant(self) -> Result<Grant> {
        let everything = Grant::everything();
        let patterns = |names: Vec<String>| names.into_iter().map(Pattern::new).collect();
        let rights = self.rights.map(|names| Rights::parse(names.iter().map(String::as_str)));
        Ok(Grant {
            buckets: self.buckets.map_or(everything.buckets, patterns),
            rights: rights.transpose()?.unwrap_or(everything.rights),
        })
    }
}

/// Says where and why a text is no TOML. The line itself, which the parser would show, stays out:
/// a secret may stand in it.
fn no_toml(text: &str, cause: &TomlError) -> Error {
    let at = cause.span().map_or(0, |span| span.start);
    let before = text.get(..at).unwrap_or_default();
    let (line, start) =
        (before.matches('\n').count() + 1, before.rfind('\n').map_or(0, |it| it + 1));
    let (column, why) = (before[start..].chars().count() + 1, cause.message());
    let why = why.lines().collect::<Vec<_>>().join(", ");
    Error::new(
        Kind::Invalid,
        format!("the config file is no TOML: line {line}, column {column}: {why}"),
    )
    .with_hint("Mend that line: a text stands in quotes, and each key on a line of its own")
}

fn require(holds: bool, why: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::new(Kind::Invalid, why)) }
}

/// Of two ways to say one thing none is passed over: which one was meant nobody here knows.
fn given_once(is_new: bool, name: &str, line: usize) -> Result<()> {
    let why = format!("`{name}` is given twice, the second time in line {line}");
    require(is_new, &why).map_err(|error| {
        error.with_hint(format!("Give one of `{name}`, `{name}_file` and `{name}_env`"))
    })
}

fn unknown<'a>(name: &str, line: usize, known: impl Iterator<Item = &'a str>) -> Error {
    let error = Error::new(Kind::Invalid, format!("unknown key `{name}` in line {line}"));
    let settings = TABLE.iter().chain(SERVE_TABLE).map(|row| row.name);
    if settings.chain(SERVE_KEYS.iter().copied()).any(|setting| setting == name) {
        let hint = "It is a setting: these stand at the top of the file, above the first [[...]]";
        return error.with_hint(hint);
    }
    match nearest(name, known) {
        Some(near) => error.with_hint(format!("Did you mean `{near}`?")),
        None => error.with_hint("`penstock reference` lists settings and store options"),
    }
}

fn wrong(name: &str, line: usize, wanted: &str) -> Error {
    Error::new(Kind::Invalid, format!("`{name}` in line {line} takes {wanted}"))
}

fn string(item: &Item, name: &str, line: usize) -> Result<String> {
    let text = item.as_str().map(str::to_string);
    text.ok_or_else(|| wrong(name, line, "a text in quotes"))
}

fn flag(item: &Item, name: &str, line: usize) -> Result<bool> {
    item.as_bool().ok_or_else(|| wrong(name, line, "true or false"))
}

fn number(item: &Item, name: &str, line: usize) -> Result<u64> {
    let number = item.as_integer().and_then(|number| u64::try_from(number).ok());
    number.ok_or_else(|| wrong(name, line, "a whole number"))
}

fn strings(item: &Item, name: &str, line: usize) -> Result<Vec<String>> {
    let texts = item.as_array().and_then(|array| {
        array.iter().map(|value| value.as_str().map(str::to_string)).collect::<Option<Vec<_>>>()
    });
    texts.ok_or_else(|| wrong(name, line, "a list of texts"))
}

/// A value of any simple type, as its text.
fn scalar(item: &Item, name: &str, line: usize) -> Result<String> {
    match item.as_value() {
        Some(Value::String(text)) => Ok(text.value().clone()),
        Some(Value::Integer(number)) => Ok(number.value().to_string()),
        Some(Value::Boolean(flag)) => Ok(flag.value().to_string()),
        _ => Err(wrong(name, line, "a text, a whole number, true or false")),
    }
}

#[cfg(test)]
mod tests;

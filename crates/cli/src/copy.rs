//! `penstock cp`: one object between stores, files, stdin and stdout.

use crate::args::{Cp, Target};
use crate::objects::{from_file, is_there, names_directory, to_file, to_stdout, to_store};
use crate::session::Session;
use penstock_base::{Error, Kind, Result};
use penstock_engine::{GetRange, Location, PutOptions, WriteCondition};
use std::path::{Path, PathBuf};

/// One end of a copy.
enum End {
    Store(Location),
    Local(PathBuf),
    /// stdin or stdout.
    Pipe,
}

/// Copies one object.
///
/// # Errors
/// `Invalid` for directories and prefixes, and for a copy between two local files; else as the
/// verbs `get` and `put`.
pub fn cp(session: &Session, cp: &Cp) -> Result<()> {
    let source = end(session, cp, &cp.source)?;
    match &source {
        End::Store(at) if names_directory(at) && !session.has_object(at)? => {
            return Err(one_object("the source names a directory", &cp.source));
        }
        End::Local(path) if path.is_dir() => {
            return Err(one_object("the source is a directory", &cp.source));
        }
        _ => {}
    }
    let target = end(session, cp, &within(&cp.target, &cp.source)?)?;
    let condition = if cp.no_clobber { WriteCondition::IfAbsent } else { WriteCondition::None };
    let options = PutOptions { condition, ..PutOptions::default() };
    match (source, target) {
        (End::Store(from), End::Store(to)) => {
            if from.url() == to.url() {
                return Err(Error::new(Kind::Invalid, "source and target are the same")
                    .with_object(from.url()));
            }
            let done = match from.is_copied_inside(&to) {
                true => session.query.block_on(session.query.copy(&from, &to, options)).map(drop),
                false => to_store(session, &from, &to, options),
            };
            done.map_err(|error| refused(error, cp, &to))
        }
        (End::Store(from), End::Local(file)) => {
            if cp.no_clobber && file.exists() {
                return Err(is_there(cp.target.clone()));
            }
            to_file(session, &from, &file, cp.no_clobber)
        }
        (End::Store(from), End::Pipe) => to_stdout(session, &from, GetRange::All),
        (End::Local(file), End::Store(to)) => {
            from_file(session, &file, &to, options).map_err(|error| refused(error, cp, &to))
        }
        (End::Pipe, End::Store(to)) => from_file(session, Path::new("-"), &to, options)
            .map_err(|error| refused(error, cp, &to)),
        _ => Err(Error::new(Kind::Invalid, "neither the source nor the target is a URL")
            .with_object(format!("{} {}", cp.source, cp.target))
            .with_hint("Copy local files with `cp` of the system")),
    }
}

fn end(session: &Session, cp: &Cp, text: &str) -> Result<End> {
    if text == "-" {
        return Ok(End::Pipe);
    }
    if !text.contains("://") {
        return Ok(End::Local(PathBuf::from(text)));
    }
    let target = Target { url: text.to_string(), store: cp.store.clone() };
    session.locate(&target).map(End::Store)
}

/// The target; a directory takes the source's name.
///
/// # Errors
/// `Invalid` for a directory where the source has no name.
pub fn within(target: &str, source: &str) -> Result<String> {
    let is_url = target.contains("://");
    // Options of the store may follow in a query.
    let asked = target.find('?').filter(|_| is_url).unwrap_or(target.len());
    let (directory, query) = target.split_at(asked);
    let is_directory = directory.ends_with('/') || (!is_url && Path::new(target).is_dir());
    if !is_directory {
        return Ok(target.to_string());
    }
    let path = source.split_once("://").map_or(source, |(_, path)| path);
    let path = path.split_once('?').filter(|_| source.contains("://")).map_or(path, |(it, _)| it);
    match path.rsplit('/').next() {
        Some(name) if !name.is_empty() && name != "-" => {
            Ok(format!("{}/{name}{query}", directory.trim_end_matches('/')))
        }
        _ => {
            Err(Error::new(Kind::Invalid, "the target is a directory, and the source has no name")
                .with_object(target)
                .with_hint("Name the object or file to write"))
        }
    }
}

/// The same where the target is a path of this machine, whose name need not be text.
///
/// # Errors
/// As [`within`].
pub fn within_directory(target: &Path, source: &str) -> Result<PathBuf> {
    let is_directory = target.is_dir() || target.as_os_str().as_encoded_bytes().ends_with(b"/");
    match is_directory {
        true => Ok(target.join(within("./", source)?.trim_start_matches("./"))),
        false => Ok(target.to_path_buf()),
    }
}

fn one_object(why: &str, which: &str) -> Error {
    Error::new(Kind::Invalid, format!("{why}, and cp copies one object at a time"))
        .with_object(which)
        .with_hint("Name each object; `penstock ls` shows them")
}

/// What a store says of something that must not be replaced.
fn refused(error: Error, cp: &Cp, to: &Location) -> Error {
    match error.kind() {
        Kind::Conflict if cp.no_clobber => is_there(to.url()),
        _ => error,
    }
}

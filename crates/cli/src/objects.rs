//! The object verbs: ls, stat, cat, put, get, rm, each on the engine.

use crate::args::{Cat, Get, Put, Target, Targets};
use crate::copy::{within, within_directory};
use crate::download::Download;
use crate::output::{print, shown, shown_url, unwritable};
use crate::progress::Progress;
use crate::range;
use crate::session::Session;
use jiff::Timestamp;
use penstock_base::{Error, Kind, Result};
use penstock_engine::notes::Named;
use penstock_engine::{Entry, GetRange, Location, ObjectMeta, PutOptions};
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write};
use std::path::Path;

/// Bytes moved at once between a file and the engine.
const PIECE_BYTES: usize = 1 << 20;
/// What makes a name a pattern where patterns are taken.
const PATTERN: [char; 3] = ['*', '?', '['];

/// Lists one level below a directory, or what a pattern matches, or the one object of this name.
///
/// # Errors
/// As [`penstock_engine::Query::list`] and [`penstock_engine::Query::glob`].
pub fn ls(session: &Session, target: &Target) -> Result<()> {
    let at = session.locate(target)?;
    let pattern = at.key().contains(PATTERN);
    let listed = session.query.block_on(async {
        match pattern {
            true => session.query.glob(&at).await,
            false => session.query.list_with_itself(&at).await,
        }
    });
    let nothing = || Error::new(Kind::NotFound, "nothing is there").with_object(at.url());
    let listed =
        listed.and_then(|entries| match entries.is_empty() && (pattern || !may_be_empty(&at)) {
            true => Err(nothing()),
            false => Ok(entries),
        });
    match listed {
        Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Unsupported) => {
            print(&object_line(&at.url(), &itself(session, &at, error)?))
        }
        listed => print(&listed?.iter().map(line).collect::<String>()),
    }
}

/// The object of this very name, where there is no listing below it.
///
/// # Errors
/// The listing's own where there is no such object, or nobody may see it.
fn itself(session: &Session, at: &Location, error: Error) -> Result<ObjectMeta> {
    if names_directory(at) {
        return Err(error);
    }
    match session.query.block_on(session.query.head(at)) {
        Ok(meta) => Ok(meta),
        Err(gone) if matches!(gone.kind(), Kind::NotFound | Kind::Denied) => Err(error),
        Err(other) => Err(other),
    }
}

/// Whether a listing without entries is a good answer: that of a whole bucket is, since a store
/// refuses to list a bucket that is not there, and that of a directory of this machine.
fn may_be_empty(at: &Location) -> bool {
    let url = at.url();
    // A path is written with the scheme or without.
    let path = url.strip_prefix("file://").or(Some(&*url).filter(|url| !url.contains("://")));
    at.key().is_empty() || path.is_some_and(|path| Path::new(path).is_dir())
}

fn line(entry: &Entry) -> String {
    if entry.is_directory {
        return format!("{:>14}  {:20}  {}/\n", "-", "-", shown_url(&entry.url));
    }
    object_line(&entry.url, &entry.meta)
}

fn object_line(url: &str, meta: &ObjectMeta) -> String {
    let size = meta.size_bytes.map_or_else(|| "?".to_string(), |size| size.to_string());
    format!("{size:>14}  {:20}  {}\n", time(&meta.modified), shown_url(url))
}

fn time(modified: &Option<std::time::SystemTime>) -> String {
    let stamp = modified.and_then(|time| Timestamp::try_from(time).ok());
    stamp.map_or_else(|| "-".to_string(), |stamp| format!("{:.0}", stamp))
}

/// Tells what the store says of one object.
///
/// # Errors
/// As [`penstock_engine::Query::head`].
pub fn stat(session: &Session, target: &Target) -> Result<()> {
    let at = session.locate(target)?;
    let meta = session.query.block_on(session.query.head(&at))?;
    let size = meta.size_bytes.map_or_else(|| "unknown".to_string(), |size| size.to_string());
    let mut text = format!("url: {}\nsize_bytes: {size}\n", shown_url(&at.url()));
    let etag = meta.etag.map(|etag| etag.0);
    let modified = meta.modified.is_some().then(|| time(&meta.modified));
    for (name, value) in
        [("etag", etag), ("modified", modified), ("content_type", meta.content_type)]
    {
        text.extend(value.map(|value| format!("{name}: {}\n", shown(&value))));
    }
    text.extend(meta.metadata.iter().filter_map(|(name, value)| match Named::of(name) {
        Named::Metadata(name) => Some(format!("metadata.{}: {}\n", shown(name), shown(value))),
        Named::Header(name) => Some(format!("{}: {}\n", name.replace('-', "_"), shown(value))),
        Named::Note => None,
    }));
    print(&text)
}

/// Writes an object, or a range of it, to stdout.
///
/// # Errors
/// As [`penstock_engine::Query::get`]; `Invalid` for a range that begins behind the end. A reader
/// that has seen enough is no error.
pub fn cat(session: &Session, cat: &Cat) -> Result<()> {
    let at = session.locate(&cat.target)?;
    to_stdout(session, &at, cat.range.map_or(GetRange::All, |range| range.0))
}

/// Writes an object, or a range of it, to stdout.
///
/// # Errors
/// As [`cat`].
pub fn to_stdout(session: &Session, at: &Location, asked: GetRange) -> Result<()> {
    session.query.block_on(async {
        let mut source = Download::start(session, at, asked).await?;
        range::check(asked, source.meta().size_bytes).map_err(|e| e.with_object(at.url()))?;
        let mut stdout = std::io::stdout().lock();
        match copy_out(&mut source, &mut stdout, Progress::new(None)).await {
            Err(Broken::Sink(cause)) if cause.kind() == ErrorKind::BrokenPipe => Ok(()),
            Err(Broken::Sink(cause)) => Err(unwritable(cause)),
            Err(Broken::Source(error)) => Err(error),
            Ok(()) => Ok(()),
        }
    })
}

enum Broken {
    Source(Error),
    Sink(std::io::Error),
}

async fn copy_out(
    source: &mut Download,
    sink: &mut impl Write,
    mut progress: Progress,
) -> std::result::Result<(), Broken> {
    loop {
        let piece = source.next().await.map_err(Broken::Source)?;
        if piece.is_empty() {
            return sink.flush().map_err(Broken::Sink);
        }
        sink.write_all(piece).map_err(Broken::Sink)?;
        progress.add(piece.len() as u64);
    }
}

/// Downloads an object into a file, which appears whole or not at all. A directory takes the
/// object's name, as with `cp`.
///
/// # Errors
/// As [`penstock_engine::Query::get`]; `Exhausted` for a full disk.
pub fn get(session: &Session, get: &Get) -> Result<()> {
    let at = session.locate(&get.target)?;
    let file = within_directory(&get.file, &get.target.url)?;
    to_file(session, &at, &file, false)
}

/// Downloads an object into a file, which appears whole or not at all. `is_new` refuses to replace
/// one.
///
/// # Errors
/// As [`get`]; `Conflict` where there is one that must not be replaced.
pub fn to_file(session: &Session, at: &Location, file: &Path, is_new: bool) -> Result<()> {
    let failed = |cause: std::io::Error| file_error(file, "write", cause);
    // A device or a pipe is written to, not replaced.
    let there = std::fs::metadata(file).ok();
    let is_special = there.is_some_and(|about| !about.is_file() && !about.is_dir());
    let mut name = file.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".penstock-{}", std::process::id()));
    let partial = if is_special { file.to_path_buf() } else { file.with_file_name(name) };
    let done = session.query.block_on(async {
        let mut source = Download::start(session, at, GetRange::All).await?;
        let mut open = File::options();
        open.write(true).create(!is_special).truncate(!is_special);
        let mut written = open.open(&partial).map_err(failed)?;
        let progress = Progress::new(source.meta().size_bytes);
        copy_out(&mut source, &mut written, progress).await.map_err(|broken| match broken {
            Broken::Source(error) => error,
            Broken::Sink(cause) => failed(cause),
        })?;
        if is_special {
            return Ok(());
        }
        written.sync_all().map_err(failed)?;
        match is_new {
            // Unlike renaming, a second name is refused where there is one already.
            true => std::fs::hard_link(&partial, file).map_err(|cause| match cause.kind() {
                ErrorKind::AlreadyExists => is_there(file.display().to_string()),
                _ => failed(cause),
            }),
            false => std::fs::rename(&partial, file).map_err(failed),
        }
    });
    if (done.is_err() || is_new) && !is_special {
        // It may not have been made; the verb's own error matters more.
        std::fs::remove_file(&partial).ok();
    }
    done
}

/// What must not be replaced.
pub fn is_there(object: String) -> Error {
    Error::new(Kind::Conflict, "it is there already, and --no-clobber was given")
        .with_object(object)
        .with_hint("Choose another name, or leave --no-clobber out")
}

fn file_error(path: &Path, doing: &str, cause: std::io::Error) -> Error {
    let (kind, hint) = match cause.kind() {
        ErrorKind::NotFound => (Kind::NotFound, "Check the path; its directory must exist"),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            (Kind::Denied, "Check owner and mode of the path and its directory")
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            (Kind::Exhausted, "Free space on its disk and run again")
        }
        ErrorKind::FileTooLarge => {
            (Kind::Exhausted, "Raise the limit of file sizes (`ulimit -f`), or take another disk")
        }
        _ => (Kind::Invalid, "Check the path"),
    };
    Error::new(kind, format!("cannot {doing} the file"))
        .with_object(path.display().to_string())
        .with_source(cause)
        .with_hint(hint)
}

/// Uploads a file, or stdin. The object appears whole or not at all. A directory takes the file's
/// name, as with `cp`.
///
/// # Errors
/// As [`penstock_engine::Writer::finish`]; `NotFound` for the file; `Invalid` for stdin into a
/// directory, where it has no name.
pub fn put(session: &Session, put: &Put) -> Result<()> {
    let url = within(&put.target.url, &put.file.to_string_lossy())?;
    let at = session.locate(&Target { url, ..put.target.clone() })?;
    let content_type = put.content_type.clone();
    from_file(session, &put.file, &at, PutOptions { content_type, ..PutOptions::default() })
}

/// Uploads a file, or stdin for `-`.
///
/// # Errors
/// As [`put`]; `Conflict` when the condition of the options does not hold.
pub fn from_file(session: &Session, file: &Path, at: &Location, options: PutOptions) -> Result<()> {
    let read_error = |cause: std::io::Error| file_error(file, "read", cause);
    let (source, total): (Box<dyn std::io::Read + Send>, Option<u64>) = if file == Path::new("-") {
        (Box::new(std::io::stdin()), None)
    } else {
        let open = File::open(file).map_err(read_error)?;
        let about = open.metadata().map_err(read_error)?;
        if about.is_dir() {
            return Err(Error::new(Kind::Invalid, "it is a directory, not a file")
                .with_object(file.display().to_string())
                .with_hint("Upload its files one by one"));
        }
        (Box::new(open), Some(about.len()))
    };
    session.query.block_on(async {
        let mut writer = session.query.create(at, options)?;
        let mut progress = Progress::new(total);
        let mut source = (source, vec![0; PIECE_BYTES]);
        loop {
            let (count, back) = read_aside(session, source).await?;
            source = back;
            match count {
                Ok(0) => break,
                Ok(count) => {
                    writer.write(&source.1[..count]).await?;
                    progress.add(count as u64);
                }
                Err(cause) => return Err(read_error(cause)),
            }
        }
        writer.finish().await.map(|_| ())
    })
}

/// Moves an object into another store, as it is read into a file. It appears whole or not at all.
///
/// # Errors
/// As [`get`] and [`put`]; `Conflict` when the condition of the options does not hold.
pub fn to_store(
    session: &Session,
    from: &Location,
    to: &Location,
    options: PutOptions,
) -> Result<()> {
    session.query.block_on(async {
        let mut source = Download::start(session, from, GetRange::All).await?;
        let mut writer = session.query.create(to, options)?;
        let mut progress = Progress::new(source.meta().size_bytes);
        loop {
            let piece = source.next().await?;
            if piece.is_empty() {
                return writer.finish().await.map(drop);
            }
            writer.write(piece).await?;
            progress.add(piece.len() as u64);
        }
    })
}

type Source = (Box<dyn std::io::Read + Send>, Vec<u8>);

/// Reads on another thread, so that waiting for a terminal or a pipe can be cancelled.
async fn read_aside(session: &Session, source: Source) -> Result<(std::io::Result<usize>, Source)> {
    let read = session.engine.handle().spawn_blocking(move || {
        let (mut reader, mut buffer) = source;
        loop {
            match reader.read(&mut buffer) {
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                count => return (count, (reader, buffer)),
            }
        }
    });
    read.await.map_err(|cause| {
        Error::new(Kind::Internal, "the reading thread broke off").with_source(cause)
    })
}

/// Whether a URL reads as a directory. There may be an object of such a name all the same.
pub fn names_directory(at: &Location) -> bool {
    at.key().is_empty() || at.key().ends_with('/')
}

/// Removes objects; those that are not there count as removed. What reads as a directory or a
/// pattern is an object only where there is one of just that name.
///
/// # Errors
/// `Invalid` for directories and patterns, before anything is removed; as
/// [`penstock_engine::Query::remove`], after every store was tried.
pub fn rm(session: &Session, targets: &Targets) -> Result<()> {
    let mut located = Vec::new();
    for target in targets.each() {
        let at = session.locate(&target)?;
        if let Some(misread) = misread(&at)
            && !session.has_object(&at)?
        {
            return Err(misread);
        }
        located.push(at);
    }
    session.query.block_on(session.query.remove(&located))
}

/// What a name is taken for by whoever wrote it, unless an object has it.
fn misread(at: &Location) -> Option<Error> {
    let (why, hint) = if names_directory(at) {
        let hint = "Name each object; `penstock ls` shows them";
        ("the URL names a directory, not an object", hint)
    } else if at.key().contains(PATTERN) {
        let hint = "In `rm` `*`, `?` and `[` are characters of a name: name each object; \
                    `penstock ls` takes the pattern and shows them";
        ("no object has this name, and it may be meant as a pattern", hint)
    } else {
        return None;
    };
    Some(Error::new(Kind::Invalid, why).with_object(at.url()).with_hint(hint))
}

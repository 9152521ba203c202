//! What Google's XML API has in place of Amazon's: headers of its own, classes, generations.
//!
//! With Amazon's signature it takes Amazon's headers, with a token its own, and never both.
//! Versions are generations: parameters and headers name one, and removing the live object makes it
//! one that is not live. The list of them is Google's own, oldest first.

use super::super::codec::iso_date;
use super::super::http::{Request, Response};
use super::super::refusal::{Refusal, Served};
use super::super::vault::{Object, State};
use super::super::xml::Writer;
use super::Call;
use super::list::form_encode;
use super::object::{STORAGE_CLASS, class_of};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

pub(super) const NAMESPACE: &str = "xmlns=\"http://doc.s3.amazonaws.com/2006-03-01\"";
/// The classes that a write may ask for.
pub const CLASSES: &[&str] = &[
    "STANDARD",
    "NEARLINE",
    "COLDLINE",
    "ARCHIVE",
    "MULTI_REGIONAL",
    "REGIONAL",
    "DURABLE_REDUCED_AVAILABILITY",
];
/// Which generation a copy is of.
pub const COPY_GENERATION: &str = "x-goog-copy-source-generation";
const IF_GENERATION: &str = "x-goog-if-generation-match";
const GENERATION: &str = "x-goog-generation";
/// Most names of a page.
const PAGE_MAX: usize = 1000;

/// Whether a request speaks Google's own dialect.
pub fn is_own_dialect(request: &Request) -> bool {
    request.headers.0.iter().any(|(name, _)| name.starts_with("x-goog-"))
}

/// The request in Amazon's words, but for what Amazon has no word for.
///
/// # Errors
/// `ExcessHeaderValues` for both dialects at once.
pub fn translated(request: &Request) -> Result<Cow<'_, Request>, Refusal> {
    if !is_own_dialect(request) {
        return Ok(Cow::Borrowed(request));
    }
    if request.headers.0.iter().any(|(name, _)| name.starts_with("x-amz-")) {
        let message = "Requests cannot specify both x-amz and x-goog headers.";
        return Err(Refusal::new(400, "ExcessHeaderValues", message));
    }
    let mut request = request.clone();
    for (name, _) in &mut request.headers.0 {
        if let Some(rest) = name.strip_prefix("x-goog-")
            && name != COPY_GENERATION
            && name != IF_GENERATION
        {
            *name = format!("x-amz-{rest}");
        }
    }
    Ok(Cow::Owned(request))
}

/// The answer in the dialect of the request, with what is always told of an object.
pub fn told(mut answer: Response, request: &Request, operation: &str) -> Response {
    let is_own = request.headers.get("authorization").is_some_and(|it| it.starts_with("Bearer "));
    for (name, _) in &mut answer.headers {
        let own = match name.strip_prefix("x-amz-") {
            Some("storage-class") => STORAGE_CLASS.replace("amz", "goog"),
            Some(rest) if is_own && rest.starts_with("meta-") => format!("x-goog-{rest}"),
            _ => continue,
        };
        *name = own.into();
    }
    let tells_class = answer.headers.iter().any(|(name, _)| name == "x-goog-storage-class");
    let is_read = matches!(operation, "GetObject" | "HeadObject") && answer.status < 300;
    match is_read && !tells_class {
        true => answer.with("x-goog-storage-class", "STANDARD"),
        false => answer,
    }
}

/// Tells which generation was read or written.
pub fn with_generation(answer: Response, call: &Call<'_>, generation: u64) -> Response {
    if !call.server.options.google {
        return answer;
    }
    answer.with(GENERATION, generation.to_string()).with("x-goog-metageneration", "1")
}

fn number(text: &str) -> Result<u64, Refusal> {
    let wrong = || Refusal::new(400, "InvalidArgument", "Invalid argument: generation");
    text.parse().map_err(|_| wrong())
}

/// An object and its generation: the live one, or the one that is named.
fn object_of(
    state: &State,
    bucket: &str,
    key: &str,
    named: Option<u64>,
) -> Option<(Arc<Object>, u64)> {
    let generations = &state.buckets.get(bucket)?.generations;
    let live = generations.live(key).unwrap_or_default();
    match named {
        Some(named) if named != live => {
            generations.gone(key, named).map(|gone| (gone.object.clone(), named))
        }
        _ => state.object(bucket, key).map(|object| (object, live)),
    }
}

/// The object that a request is about.
///
/// # Errors
/// `NoSuchKey`, `InvalidArgument`.
pub fn asked(call: &Call<'_>) -> Result<(Arc<Object>, u64), Refusal> {
    let named = named(call)?;
    let (bucket, key) = (&call.target.bucket, &call.target.key);
    let found = call.server.vault.with(|state| object_of(state, bucket, key, named));
    found.ok_or_else(|| call.no_such_key())
}

/// The generation that a request names.
fn named(call: &Call<'_>) -> Result<Option<u64>, Refusal> {
    match call.request.query.get("generation").filter(|_| call.server.options.google) {
        Some(text) => number(text).map(Some),
        None => Ok(None),
    }
}

/// The source of a copy.
///
/// # Errors
/// `NoSuchKey`, `InvalidArgument`.
pub fn source(call: &Call<'_>, bucket: &str, key: &str) -> Result<Arc<Object>, Refusal> {
    let text = call.request.headers.get(COPY_GENERATION).filter(|_| call.server.options.google);
    let named = text.map(number).transpose()?;
    let found = call.server.vault.with(|state| object_of(state, bucket, key, named));
    found.map(|found| found.0).ok_or_else(|| call.no_such_key())
}

/// Judges the one condition that a write of Google's takes; ETags it passes over.
///
/// # Errors
/// `PreconditionFailed`, `InvalidArgument`.
pub fn check_write(call: &Call<'_>, state: &State) -> Result<(), Refusal> {
    let Some(text) = call.request.headers.get(IF_GENERATION) else { return Ok(()) };
    let generations = state.buckets.get(&call.target.bucket).map(|bucket| &bucket.generations);
    let live = generations.and_then(|generations| generations.live(&call.target.key));
    match live.unwrap_or_default() == number(text)? {
        true => Ok(()),
        false => Err(super::object::precondition_failed()),
    }
}

/// Removes the generation that a request names, for good; whether it names one.
///
/// # Errors
/// `NoSuchKey`, `InvalidArgument`.
pub fn remove_named(call: &Call<'_>, state: &mut State) -> Result<bool, Refusal> {
    let Some(named) = named(call)? else { return Ok(false) };
    let (name, key) = (&call.target.bucket, &call.target.key);
    let bucket = state.buckets.get_mut(name).ok_or_else(|| call.no_such_key())?;
    if bucket.generations.live(key) == Some(named) {
        bucket.generations.forget_live(key);
        state.remove(name, key);
    } else if !bucket.generations.forget(key, named) {
        return Err(call.no_such_key());
    }
    Ok(true)
}

/// One generation of a list.
struct Row {
    key: String,
    generation: u64,
    object: Arc<Object>,
    gone: Option<SystemTime>,
}

/// Every generation of a bucket, by key and oldest first.
fn rows(state: &State, bucket: &str) -> Vec<Row> {
    let Some(bucket) = state.buckets.get(bucket) else { return Vec::new() };
    let mut rows: Vec<Row> = bucket
        .generations
        .all_gone()
        .map(|(key, generation, gone)| Row {
            key: key.to_string(),
            generation,
            object: gone.object.clone(),
            gone: Some(gone.since),
        })
        .collect();
    rows.extend(bucket.objects.iter().map(|(key, object)| Row {
        key: key.clone(),
        generation: bucket.generations.live(key).unwrap_or_default(),
        object: object.clone(),
        gone: None,
    }));
    rows.sort_by(|a, b| (&a.key, a.generation).cmp(&(&b.key, b.generation)));
    rows
}

/// The list with `versions`, from `marker` and `generation-marker` on.
///
/// # Errors
/// `InvalidArgument`.
pub fn versions(call: &Call<'_>) -> Served {
    let query = &call.request.query;
    let asked = |name: &str| query.get(name).unwrap_or_default();
    let most = asked("max-keys").parse().unwrap_or(PAGE_MAX).min(PAGE_MAX);
    let (prefix, delimiter, marker) = (asked("prefix"), asked("delimiter"), asked("marker"));
    let behind = match asked("generation-marker") {
        "" => u64::MAX,
        _ if marker.is_empty() => {
            let message = "generation-marker goes with marker";
            return Err(Refusal::new(400, "InvalidArgument", message).into());
        }
        text => number(text)?,
    };
    let is_encoded = asked("encoding-type") == "url";
    let spell = |text: &str| if is_encoded { form_encode(text) } else { text.to_string() };
    let mut xml = Writer::default();
    xml.open("ListBucketResult", NAMESPACE);
    xml.text("Name", &call.target.bucket).text("Prefix", spell(prefix));
    if is_encoded {
        xml.text("Encoding-Type", "url");
    }
    let (mut shown, mut last, mut more) = (0, (String::new(), None), false);
    for row in call.server.vault.with(|state| rows(state, &call.target.bucket)) {
        let Some(rest) = row.key.strip_prefix(prefix) else { continue };
        let fold = rest.find(delimiter).filter(|_| !delimiter.is_empty());
        let fold = fold.map(|at| format!("{prefix}{}", &rest[..at + delimiter.len()]));
        let is_behind = match &fold {
            Some(fold) => fold.as_str() > marker && *fold != last.0,
            None => (row.key.as_str(), row.generation) > (marker, behind),
        };
        if !is_behind {
            continue;
        }
        if shown == most {
            more = true;
            break;
        }
        shown += 1;
        match fold {
            Some(fold) => {
                xml.open("CommonPrefixes", "").text("Prefix", spell(&fold));
                xml.close("CommonPrefixes");
                last = (fold, None);
            }
            None => {
                tell(&mut xml, &row, &spell);
                last = (row.key, Some(row.generation));
            }
        }
    }
    xml.text("IsTruncated", more.to_string());
    if more {
        xml.text("NextMarker", spell(&last.0));
        if let Some(generation) = last.1 {
            xml.text("NextGenerationMarker", generation.to_string());
        }
    }
    xml.close("ListBucketResult");
    Ok(Response::text(200, "application/xml", xml.finish()))
}

fn tell(xml: &mut Writer, row: &Row, spell: &dyn Fn(&str) -> String) {
    xml.open("Version", "").text("Key", spell(&row.key));
    xml.text("Generation", row.generation.to_string()).text("MetaGeneration", "1");
    xml.text("IsLatest", row.gone.is_none().to_string());
    xml.text("LastModified", iso_date(row.object.modified));
    if let Some(since) = row.gone {
        xml.text("DeletedTime", iso_date(since));
    }
    xml.text("ETag", format!("\"{}\"", row.object.etag));
    xml.text("Size", row.object.data.len().to_string());
    xml.text("StorageClass", class_of(&row.object.headers)).close("Version");
}

//! Versions in S3's words: which one a request means, what answers tell, and their list.

use super::super::codec::{http_date, iso_date};
use super::super::history::{Found, Id};
use super::super::http::Response;
use super::super::refusal::{Refusal, Served};
use super::super::vault::{Object, State};
use super::super::xml::Writer;
use super::list::form_encode;
use super::object::class_of;
use super::{Call, google};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

pub(super) const NAMESPACE: &str = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";
/// Most names of a page.
const PAGE_MAX: usize = 1000;
const VERSION_ID: &str = "x-amz-version-id";
const DELETE_MARKER: &str = "x-amz-delete-marker";

/// What answers tell of the version that was read or written.
#[derive(Clone, Debug, Default)]
pub struct Told {
    generation: u64,
    /// `None` where nobody ever asked for versions.
    id: Option<Id>,
}

impl Told {
    /// Of the object that answers are about.
    pub fn told(&self, answer: Response, call: &Call<'_>) -> Response {
        let answer = google::with_generation(answer, call, self.generation);
        self.named(answer, VERSION_ID)
    }

    /// The id alone, in a header of this name.
    pub fn named(&self, answer: Response, name: &'static str) -> Response {
        match self.id {
            Some(id) => answer.with(name, id.text()),
            None => answer,
        }
    }
}

/// The id that a request has in text.
///
/// # Errors
/// `InvalidArgument`.
fn read(text: &str) -> Result<Id, Refusal> {
    let wrong = || Refusal::new(400, "InvalidArgument", "Invalid version id specified");
    Id::parse(text).ok_or_else(wrong)
}

/// The version that a request names.
///
/// # Errors
/// `InvalidArgument`.
pub fn named(call: &Call<'_>) -> Result<Option<Id>, Refusal> {
    let text = call.request.query.get("versionId").filter(|_| !call.server.options.google);
    text.map(read).transpose()
}

fn look(state: &State, bucket: &str, key: &str, named: Option<Id>) -> (Found, bool) {
    match state.buckets.get(bucket) {
        Some(bucket) => {
            let found = bucket.history.find(key, named, &bucket.objects);
            (found, !bucket.history.status.is_empty())
        }
        None => (Found::Nothing, false),
    }
}

/// The object that a request is about, the latest or the one that it names.
///
/// # Errors
/// `NoSuchKey`, `NoSuchVersion`, `MethodNotAllowed`, `InvalidArgument`.
pub fn asked(call: &Call<'_>) -> Result<(Arc<Object>, Told), Refusal> {
    if call.server.options.google {
        let (object, generation) = google::asked(call)?;
        return Ok((object, Told { generation, id: None }));
    }
    call.server.vault.with(|state| find(call, state))
}

/// The same while the state stands still, but not as Google has it.
///
/// # Errors
/// As [`asked`].
pub fn find(call: &Call<'_>, state: &State) -> Result<(Arc<Object>, Told), Refusal> {
    let named = named(call)?;
    let (found, is_told) = look(state, &call.target.bucket, &call.target.key, named);
    let marker =
        |refusal: Refusal, id: Id| refusal.with(DELETE_MARKER, "true").with(VERSION_ID, id.text());
    match found {
        Found::Object(object, id) => {
            Ok((object, Told { id: Some(id).filter(|_| is_told), ..Told::default() }))
        }
        Found::Marker(id, since) if named.is_some() => {
            let message = "The specified method is not allowed against this resource.";
            let refusal = Refusal::new(405, "MethodNotAllowed", message);
            let refusal = refusal.with("Allow", "DELETE").with("Last-Modified", http_date(since));
            Err(marker(refusal, id))
        }
        Found::Marker(id, _) => Err(marker(call.no_such_key(), id)),
        Found::Nothing if named.is_some() => Err(no_such_version()),
        Found::Nothing => Err(call.no_such_key()),
    }
}

fn no_such_version() -> Refusal {
    Refusal::new(404, "NoSuchVersion", "The specified version does not exist.")
}

/// The source of a copy, and its version.
///
/// # Errors
/// `NoSuchKey`, `NoSuchVersion`, `InvalidRequest`, `InvalidArgument`.
pub fn source(
    call: &Call<'_>,
    (bucket, key, version): (&str, &str, Option<&str>),
) -> Result<(Arc<Object>, Told), Refusal> {
    if call.server.options.google {
        return Ok((google::source(call, bucket, key)?, Told::default()));
    }
    let named = version.map(read).transpose()?;
    match call.server.vault.with(|state| look(state, bucket, key, named)) {
        (Found::Object(object, id), is_told) => {
            Ok((object, Told { id: Some(id).filter(|_| is_told), ..Told::default() }))
        }
        (Found::Marker(..), _) if named.is_some() => {
            let message = "The source of a copy request may not specifically refer to a delete \
                           marker by version id.";
            Err(Refusal::new(400, "InvalidRequest", message))
        }
        (Found::Nothing, _) if named.is_some() => Err(no_such_version()),
        _ => Err(call.no_such_key()),
    }
}

/// Places an object under the key of a request.
pub fn place(call: &Call<'_>, state: &mut State, object: Object) -> Told {
    let (bucket, key) = (&call.target.bucket, &call.target.key);
    let generation = state.place(bucket, key, object);
    let history = state.buckets.get(bucket).map(|bucket| &bucket.history);
    let history = history.filter(|history| !history.status.is_empty());
    Told { generation, id: history.map(|history| history.live_id(key)) }
}

/// Gives the object that a request is about another record of what is told of it.
pub fn amend(call: &Call<'_>, state: &mut State, told: &Told, object: Object) {
    let (name, key) = (&call.target.bucket, &call.target.key);
    let live = state.buckets.get(name).map(|bucket| bucket.history.live_id(key));
    match told.id.filter(|id| live != Some(*id)) {
        None => state.amend(name, key, object),
        Some(id) => {
            if let Some(bucket) = state.buckets.get_mut(name) {
                bucket.history.amend(key, id, object);
            }
        }
    }
}

/// What a removal came to: the id that is told, and whether it is a delete marker's.
pub type Removed = (Option<Id>, bool);

/// Removes the latest version of a key, in whose place a delete marker comes, or the one that is
/// named for good.
pub fn remove(state: &mut State, bucket: &str, key: &str, named: Option<Id>) -> Removed {
    if let Some(id) = named {
        return (Some(id), state.forget(bucket, key, id));
    }
    state.remove(bucket, key);
    match look(state, bucket, key, None).0 {
        Found::Marker(id, _) => (Some(id), true),
        Found::Object(..) | Found::Nothing => (None, false),
    }
}

/// Tells what a removal came to.
pub fn told_of_removal((id, is_marker): Removed, mut answer: Response) -> Response {
    if let Some(id) = id {
        answer = answer.with(VERSION_ID, id.text());
    }
    if is_marker { answer.with(DELETE_MARKER, "true") } else { answer }
}

/// One version of a list.
struct Row {
    key: String,
    id: Id,
    /// `None`: a delete marker.
    object: Option<Arc<Object>>,
    since: SystemTime,
    is_latest: bool,
}

/// Every version of a bucket, by key and latest first.
fn rows(state: &State, bucket: &str) -> Vec<Row> {
    let Some(bucket) = state.buckets.get(bucket) else { return Vec::new() };
    let keys: BTreeSet<&String> = bucket.objects.keys().chain(bucket.history.keys()).collect();
    let mut rows = Vec::new();
    for key in keys {
        let live = bucket.objects.get(key).map(|object| Row {
            key: key.clone(),
            id: bucket.history.live_id(key),
            object: Some(object.clone()),
            since: object.modified,
            is_latest: true,
        });
        let has_live = live.is_some();
        rows.extend(live);
        rows.extend(bucket.history.past(key).iter().rev().enumerate().map(|(at, past)| Row {
            key: key.clone(),
            id: past.id,
            object: past.object.clone(),
            since: past.object.as_ref().map_or(past.since, |object| object.modified),
            is_latest: at == 0 && !has_live,
        }));
    }
    rows
}

/// The serial behind which a list goes on in the key of its marker; `None` behind all of it.
fn behind(rows: &[Row], marker: &str, text: &str) -> Result<Option<u64>, Refusal> {
    if text.is_empty() {
        return Ok(None);
    }
    if marker.is_empty() {
        let message = "A version-id marker cannot be specified without a key marker.";
        return Err(Refusal::new(400, "InvalidArgument", message));
    }
    let id = read(text)?;
    if !id.is_null {
        return Ok(Some(id.serial));
    }
    let null = rows.iter().find(|row| row.key == marker && row.id.is_null);
    Ok(null.map(|row| row.id.serial))
}

/// `ListObjectVersions`.
///
/// # Errors
/// `InvalidArgument`.
pub fn list(call: &Call<'_>) -> Served {
    let query = &call.request.query;
    let asked = |name: &str| query.get(name).unwrap_or_default();
    let most = asked("max-keys").parse().unwrap_or(PAGE_MAX).min(PAGE_MAX);
    let (prefix, delimiter, marker) = (asked("prefix"), asked("delimiter"), asked("key-marker"));
    let rows = call.server.vault.with(|state| rows(state, &call.target.bucket));
    let behind = behind(&rows, marker, asked("version-id-marker"))?;
    let is_encoded = asked("encoding-type") == "url";
    let spell = |text: &str| if is_encoded { form_encode(text) } else { text.to_string() };
    let mut xml = Writer::default();
    xml.open("ListVersionsResult", NAMESPACE);
    xml.text("Name", &call.target.bucket).text("Prefix", spell(prefix));
    xml.text("KeyMarker", spell(marker)).text("VersionIdMarker", asked("version-id-marker"));
    if is_encoded {
        xml.text("EncodingType", "url");
    }
    let (mut shown, mut last, mut more) = (0, (String::new(), None), false);
    for row in rows {
        let Some(rest) = row.key.strip_prefix(prefix) else { continue };
        let fold = rest.find(delimiter).filter(|_| !delimiter.is_empty());
        let fold = fold.map(|at| format!("{prefix}{}", &rest[..at + delimiter.len()]));
        let is_behind = match row.key == marker {
            true => behind.is_some_and(|serial| row.id.serial < serial),
            false => row.key.as_str() > marker,
        };
        // A marker may be a fold, which is told once.
        let is_told = fold.as_ref().is_some_and(|fold| fold == marker || *fold == last.0);
        if !is_behind || is_told {
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
                last = (row.key, Some(row.id));
            }
        }
    }
    xml.text("MaxKeys", most.to_string()).text("IsTruncated", more.to_string());
    if more {
        xml.text("NextKeyMarker", spell(&last.0));
        if let Some(id) = last.1 {
            xml.text("NextVersionIdMarker", id.text());
        }
    }
    xml.close("ListVersionsResult");
    Ok(Response::text(200, "application/xml", xml.finish()))
}

fn tell(xml: &mut Writer, row: &Row, spell: &dyn Fn(&str) -> String) {
    let kind = if row.object.is_some() { "Version" } else { "DeleteMarker" };
    xml.open(kind, "").text("Key", spell(&row.key)).text("VersionId", row.id.text());
    xml.text("IsLatest", row.is_latest.to_string()).text("LastModified", iso_date(row.since));
    if let Some(object) = &row.object {
        xml.text("ETag", format!("\"{}\"", object.etag));
        xml.text("Size", object.data.len().to_string());
        xml.text("StorageClass", class_of(&object.headers));
    }
    xml.close(kind);
}

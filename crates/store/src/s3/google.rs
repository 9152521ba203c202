//! What Google's XML API says in other words than S3: storage classes, and generations, which are
//! its versions. Pure, but for the listing.
//!
//! Every write has a generation, whether or not the bucket keeps those that were before it. There
//! are no delete markers: a removal makes the generation a noncurrent one, and then none of the key
//! is the latest. Google lists generations oldest first, S3 latest first.

use super::replies::parse_generations;
use super::request::{Call, strange};
use super::streaming::same_page;
use super::{PAGE_MAX, S3Store};
use crate::streaming::{VersionsPage, VersionsRequest, split_version};
use crate::version_pages::{Found, is_listed};
use crate::{ETag, ObjectMeta, Store as _, answer};
use ::http::{HeaderMap, Method};
use penstock_base::{Error, Kind, Result};

/// The names that clients write and are told, and Google's for the same.
///
/// A pair is stored for the same shortest time (30 days, 90 days) and read at once. That is why
/// ARCHIVE keeps its own name: an object in GLACIER or DEEP_ARCHIVE has to be restored before it is
/// read, so clients pass over what is told as that. Each name has one other, so what was written
/// is what is told.
const CLASSES: &[(&str, &str)] = &[
    ("STANDARD", "STANDARD"),
    ("STANDARD_IA", "NEARLINE"),
    ("GLACIER_IR", "COLDLINE"),
    ("ARCHIVE", "ARCHIVE"),
];
/// Ties a request to a generation of its object.
pub(super) const IF_GENERATION: &str = "x-goog-if-generation-match";
/// Most digits of a generation.
const DIGITS_MAX: usize = 19;

/// Google's name of a class that a client asks for.
pub(super) fn class(asked: &str) -> Option<&'static str> {
    CLASSES.iter().find(|(name, _)| *name == asked).map(|(_, own)| *own)
}

/// What a class of Google's is told as. Those that are not written any more (`MULTI_REGIONAL` and
/// its kin) are told as they are.
pub(super) fn told_class(own: &str) -> &str {
    CLASSES.iter().find(|(_, known)| *known == own).map_or(own, |(name, _)| *name)
}

/// Whether this can be a generation: a number from 1 on, written in one way.
pub(super) fn is_generation(id: &str) -> bool {
    (1..=DIGITS_MAX).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_digit())
        && !id.starts_with('0')
}

/// The generation that an answer tells of.
pub(super) fn generation(headers: &HeaderMap) -> Option<String> {
    answer::text_header(headers, "x-goog-generation").filter(|id| is_generation(id))
}

/// Refuses a version that cannot be one, such as `null`, which Google would call a bad request.
///
/// # Errors
/// `NotFound`.
pub(super) fn check_version(name: &str) -> Result<()> {
    match split_version(name).1 {
        Some(id) if !is_generation(id) => {
            let why = "Google Cloud Storage has no such version: its versions are numbers";
            Err(Error::new(Kind::NotFound, why).with_service_code("NoSuchVersion"))
        }
        _ => Ok(()),
    }
}

/// What one pass over the bucket asks for.
#[derive(Clone, Debug, Default)]
struct Pass<'a> {
    prefix: &'a str,
    delimiter: Option<&'a str>,
    /// After this key, or after this generation of it.
    from: Option<(String, Option<String>)>,
}

impl S3Store {
    /// The service's name of a class that a write asks for.
    ///
    /// # Errors
    /// `Invalid` for one that the service does not have, where that is known.
    pub(super) fn own_class<'a>(&self, call: &Call<'_>, asked: &'a str) -> Result<&'a str> {
        if !self.is_gcs() {
            return Ok(asked);
        }
        class(asked).ok_or_else(|| {
            let why = format!("Google Cloud Storage has no storage class for `{asked}`");
            let names: Vec<&str> = CLASSES.iter().map(|(name, _)| *name).collect();
            let error = Error::new(Kind::Invalid, why).with_service_code("InvalidStorageClass");
            self.named(call, error.with_hint(format!("Its classes are {}", names.join(", "))))
        })
    }

    /// The class that a client is told.
    pub(super) fn told_class(&self, class: Option<Box<str>>) -> Option<Box<str>> {
        match self.is_gcs() {
            true => class.map(|own| told_class(&own).into()),
            false => class,
        }
    }

    /// What the headers of an answer tell of an object, with the class and the version that a
    /// client is told.
    pub(super) fn told(&self, meta: ObjectMeta, headers: &HeaderMap) -> ObjectMeta {
        let storage_class = self.told_class(meta.storage_class);
        ObjectMeta { version: self.version(headers), storage_class, ..meta }
    }

    /// The id of the version that an answer tells of.
    pub(super) fn version(&self, headers: &HeaderMap) -> Option<String> {
        match self.is_gcs() {
            true => generation(headers),
            false => answer::version(headers),
        }
    }

    /// The generation that has this tag, to which a removal of the latest is tied: Google knows no
    /// tags there. `None` where there is no object.
    ///
    /// # Errors
    /// `Conflict` where the latest has another tag; `Unsupported` with a key, whose dialect cannot
    /// name a generation.
    pub(super) async fn tied_generation(
        &self,
        call: &Call<'_>,
        name: &str,
        etag: &ETag,
    ) -> Result<Option<String>> {
        if !self.knows_generations() {
            let why = "this service cannot tie a delete to an ETag";
            return Err(self.named(call, Error::new(Kind::Unsupported, why)));
        }
        let meta = match self.stat(name).await {
            Err(error) if error.kind() == Kind::NotFound => return Ok(None),
            told => told?,
        };
        if meta.etag.as_ref() != Some(etag) {
            let why = "the object has changed: its tag is another one";
            return Err(self.named(call, Error::new(Kind::Conflict, why)));
        }
        let generation = meta.version.ok_or_else(|| strange("a generation"));
        generation.map(Some).map_err(|error| self.named(call, error))
    }

    /// A page of generations as S3 lists versions.
    pub(super) async fn generations(&self, request: &VersionsRequest) -> Result<VersionsPage> {
        let mut found = Found::default();
        let marker = request.key_marker.as_deref().unwrap_or_default();
        if let Some(id) = &request.version_marker {
            // What is left of the key that the page before ended with.
            let before = check_marker(id).map_err(|error| self.about_list(error))?;
            if is_listed(marker, request) {
                let pass = Pass { prefix: marker, ..Pass::default() };
                found = self.pass(&pass, usize::MAX, &|key| key == marker).await?;
                found.versions.retain(|entry| number(&entry.id) < before);
            }
        }
        if found.len() <= request.max {
            let from = (!marker.is_empty()).then(|| (marker.to_string(), None));
            let delimiter = request.delimiter.as_deref();
            let pass = Pass { prefix: &request.prefix, delimiter, from };
            let wanted = request.max - found.len();
            let rest = self.pass(&pass, wanted, &|_| true).await?;
            found.versions.extend(rest.versions);
            // A folded prefix is passed over whole, whatever the service makes of the marker.
            found.prefixes.extend(rest.prefixes.into_iter().filter(|prefix| prefix != marker));
            found.has_more = rest.has_more;
        }
        Ok(found.page(request.max, |a, b| number(&b.id).cmp(&number(&a.id))))
    }

    /// Reads pages until there are more than `wanted` names whose generations are all there, or a
    /// key is none of those that are meant: they come first.
    async fn pass(
        &self,
        pass: &Pass<'_>,
        wanted: usize,
        is_meant: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<Found> {
        let (mut found, mut from) = (Found::default(), pass.from.clone());
        loop {
            let page = self.generations_page(pass, from.as_ref(), wanted).await?;
            let is_behind = page.versions.iter().any(|entry| !is_meant(&entry.key));
            found.versions.extend(page.versions.into_iter().filter(|entry| is_meant(&entry.key)));
            found.prefixes.extend(page.prefixes);
            let Some(next) = page.next.filter(|_| !is_behind) else { return Ok(found) };
            if found.complete(Some(next.0.as_str())) > wanted {
                found.has_more = true;
                return Ok(found);
            }
            if from.as_ref() == Some(&next) {
                return Err(self.about_list(same_page()));
            }
            from = Some(next);
        }
    }

    async fn generations_page(
        &self,
        pass: &Pass<'_>,
        from: Option<&(String, Option<String>)>,
        wanted: usize,
    ) -> Result<VersionsPage> {
        let most = wanted.saturating_add(1).min(PAGE_MAX as usize);
        let mut call = Call::new(Method::GET, "list versions", None)
            .query("versions", "")
            .query("encoding-type", "url")
            .query("max-keys", most.to_string());
        // Names of Google's own: those of S3 are for another form of the list, which takes a header
        // that no request with an HMAC key may have.
        let optional = [
            ("prefix", Some(pass.prefix)),
            ("delimiter", pass.delimiter),
            ("marker", from.map(|from| from.0.as_str())),
            ("generation-marker", from.and_then(|from| from.1.as_deref())),
        ];
        for (name, value) in optional {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                call = call.query(name, value);
            }
        }
        let told = parse_generations(&self.answer(&call).await?);
        told.map_err(|error| self.named(&call, error))
    }

    fn about_list(&self, error: Error) -> Error {
        self.named(&Call::new(Method::GET, "list versions", None), error)
    }
}

/// The generation of a marker.
///
/// # Errors
/// `Invalid` for what is none.
fn check_marker(id: &str) -> Result<u64> {
    match is_generation(id) {
        true => Ok(number(id)),
        false => Err(Error::new(Kind::Invalid, "the version marker is no version of this bucket")),
    }
}

/// A generation as a number; 19 digits always fit.
fn number(id: &str) -> u64 {
    id.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests;

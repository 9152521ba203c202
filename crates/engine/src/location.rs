//! Where an object is: a store that the engine opened once, and a key in it.

use crate::generations::Generations;
use crate::latency::Latency;
use crate::pace::Pace;
use crate::read::{Heads, Spare};
use crate::renewal::{Renewable, Renewal};
use crate::request_log::Scope;
use penstock_base::{Error, Kind, Metric, Result, redact};
use penstock_store::{Again, Capabilities, HttpOptions, Observer, Profile, Store};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::time::Instant;

/// One store option: a pair of a secret, or of DuckDB's `s3_*` and `azure_*` settings.
pub type StoreOption = (String, String);

/// Makes a store from a URL and its options. The engine's own opener knows every scheme; tests
/// bring theirs.
pub trait Opener: Send + Sync + std::fmt::Debug {
    /// Root and key of a URL, without opening anything. What follows them in the URL (options in
    /// its query) distinguishes stores, as options do.
    ///
    /// # Errors
    /// As [`Opener::open`].
    fn root_of(&self, url: &str) -> Result<(String, String)>;

    /// The store that the URL lies in, and the URL's key in it. `http` is set where a query asks
    /// for other connections than the engine's own.
    ///
    /// # Errors
    /// `Invalid` for a malformed URL or option, `Unsupported` for an unknown scheme.
    fn open(
        &self,
        url: &str,
        options: &[StoreOption],
        http: Option<&HttpOptions>,
    ) -> Result<(Arc<dyn Store>, String)>;
}

/// A store as the engine holds it: opened once for a root and its options, then shared, so that
/// connections, tokens and remembered metadata are shared too.
#[derive(Debug)]
pub struct Mount {
    pub(crate) id: u64,
    pub(crate) store: Arc<dyn Store>,
    /// The same store, where its credentials can be replaced.
    renewable: Option<Arc<Renewable>>,
    pub(crate) profile: Profile,
    pub(crate) capabilities: Capabilities,
    /// Names and scopes of the secrets that the caller has for other paths.
    unmatched_secrets: Option<String>,
    /// Why the secret could not be made anew.
    refresh_failure: Option<String>,
    pub(crate) latency: Latency,
    pub(crate) pace: Pace,
    /// Its requests ahead of reads.
    pub(crate) spare: Spare,
    /// Whether HEAD tells of its objects what GET does.
    pub(crate) heads: Heads,
    /// Where the objects really are; none where no cache should copy them.
    pub(crate) origin: Option<String>,
    /// What stands before keys in URLs, in the spelling by which it was asked for first.
    pub(crate) spelt: OnceLock<Arc<str>>,
    /// Hears what the engine decides about requests, where the caller counts by store.
    pub(crate) observer: Option<Arc<dyn Observer>>,
}

impl Mount {
    /// The store, for verbs that carry no policy (a gateway's tags and multipart staging).
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// What the store can do.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Whether it serves ranges that are counted from the end, as far as it has found out.
    pub(crate) fn serves_suffix(&self) -> bool {
        self.capabilities.suffix_range && self.store.capabilities().suffix_range
    }

    /// How the store likes to be asked.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// How often its credentials were replaced.
    pub(crate) fn renewals(&self) -> u64 {
        self.renewable.as_ref().map_or(0, |store| store.renewals())
    }

    /// After a refusal of credentials that had been replaced `seen` times: whether there are newer
    /// ones now.
    pub(crate) fn renew(&self, url: &str, seen: u64) -> bool {
        self.renewable.as_ref().is_some_and(|store| store.renew(url, seen))
    }

    fn is_for(&self, began: Instant) -> bool {
        self.renewable.as_ref().is_none_or(|store| store.is_for(began))
    }

    /// With somebody who hears of requests that are sent again.
    pub(crate) fn observed(self, observer: Arc<dyn Observer>) -> Self {
        Mount { observer: Some(observer), ..self }
    }

    /// Counts a request that is sent again.
    pub(crate) fn sent_again(&self, scope: &Scope, why: Again) {
        let metric = match why {
            Again::Failed => Metric::Retries,
            Again::Late => Metric::RequestsHedged,
            Again::Slow => Metric::BodiesReplaced,
        };
        scope.count(metric, 1);
        if let Some(observer) = &self.observer {
            observer.sent_again(why);
        }
    }

    /// An error of this store; if credentials or an endpoint may be missing, with the secrets that
    /// could have given them, had their scopes covered the path.
    pub(crate) fn told(&self, error: Error) -> Error {
        let error = match &self.refresh_failure {
            Some(failure) if error.kind() == Kind::Denied => error.with_note(failure),
            _ => error,
        };
        match lacks_secret(&error) {
            true => with_unmatched(error, self.unmatched_secrets.as_deref()),
            false => error,
        }
    }

    /// As [`Location::name`].
    pub(crate) fn name_of(&self, key: &str) -> String {
        let origin = self.origin.as_deref().unwrap_or_else(|| self.store.root());
        format!("{origin}{key}")
    }

    /// The object of a key.
    pub fn at(self: &Arc<Self>, key: impl Into<String>) -> Location {
        Location {
            mount: Arc::clone(self),
            key: key.into(),
            prefix: self.store.root().into(),
            suffix: "".into(),
        }
    }
}

/// A named object, present or not. For listings the key is a prefix, for globs a pattern.
#[derive(Clone)]
pub struct Location {
    pub(crate) mount: Arc<Mount>,
    pub(crate) key: String,
    /// What stands before the key in URLs, spelt as the caller did (`s3a://`, `azure://`).
    prefix: Arc<str>,
    /// What stands behind it: options in a query, or nothing.
    suffix: Arc<str>,
}

/// By hand: a URL's query may hold a signature or a key.
impl std::fmt::Debug for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Location").field(&redact::url(&self.url())).finish()
    }
}

impl Location {
    /// The URL, spelt as the caller spells this store, with the secrets in it.
    pub fn url(&self) -> String {
        format!("{}{}{}", self.prefix, self.key, self.suffix)
    }

    /// The key inside the store.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The store.
    pub fn mount(&self) -> &Arc<Mount> {
        &self.mount
    }

    /// Whether a copy to another object is the store's to make, without the bytes coming here.
    pub fn is_copied_inside(&self, to: &Location) -> bool {
        Arc::ptr_eq(&self.mount, &to.mount) && self.mount.capabilities.copy
    }

    /// Another object of the same store, with the same spelling of the URL.
    pub fn sibling(&self, key: impl Into<String>) -> Location {
        Location { key: key.into(), ..self.clone() }
    }

    /// The object's name without regard to credentials, or to how its store was spelled (`az` and
    /// `abfss`, `s3` and `s3a`): where the store really is, and the key.
    pub(crate) fn name(&self) -> String {
        self.mount.name_of(&self.key)
    }

    /// Names the object as these credentials see it.
    pub(crate) fn id(&self) -> ObjectId {
        ObjectId { mount: self.mount.id, key: self.key.clone() }
    }
}

/// An object as one set of credentials sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ObjectId {
    pub mount: u64,
    pub key: String,
}

/// Root and options of a store, and how it is reached if not in the engine's own way.
pub(crate) type Identity = (String, Vec<StoreOption>, Option<HttpOptions>);

/// Most stores kept open. One that is forgotten lives on in its readers and writers; opening it
/// again only loses what was remembered of its objects.
const MOUNTS_MAX: u64 = 4096;

/// The store that was asked for last: queries mostly read one store, and to compare what it was
/// asked for by is cheaper than to sort and hash it.
struct Asked {
    root: String,
    suffix: String,
    options: Vec<StoreOption>,
    http: Option<HttpOptions>,
    mount: Arc<Mount>,
}

/// The stores opened so far.
pub(crate) struct Mounts {
    known: Mutex<Generations<Identity, Arc<Mount>>>,
    last: Mutex<Option<Asked>>,
    next_id: AtomicU64,
}

impl Default for Mounts {
    fn default() -> Self {
        Mounts {
            known: Mutex::new(Generations::new(MOUNTS_MAX)),
            last: Mutex::default(),
            next_id: AtomicU64::new(0),
        }
    }
}

// By hand: the keys of the map hold secrets.
impl std::fmt::Debug for Mounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mounts").finish_non_exhaustive()
    }
}

impl Mounts {
    /// The mount of a URL; a store opened before with the same root and options is used again. The
    /// statement that asks began at this time.
    pub fn locate(
        &self,
        opener: &dyn Opener,
        url: &str,
        options: &[StoreOption],
        http: Option<HttpOptions>,
        (began, renewal): (Instant, Option<&Renewal>),
    ) -> Result<Location> {
        let (root, key) = opener.root_of(url)?;
        let (prefix, suffix) = around(url, &key).unwrap_or((&root, ""));
        // `s3://bucket` names what `s3://bucket/` does, and its entries have the slash.
        let is_bare = key.is_empty() && !prefix.ends_with('/') && !prefix.contains('?');
        let spelt: Arc<str> = if is_bare { format!("{prefix}/").into() } else { prefix.into() };
        let at = |mount, prefix| Location { mount, prefix, suffix: suffix.into(), key };
        let is_same = |asked: &&Asked| {
            (&*asked.root, &*asked.suffix, &*asked.options, &asked.http)
                == (&*root, suffix, options, &http)
                && asked.mount.is_for(began)
        };
        if let Some(asked) = self.lock_last().as_ref().filter(is_same) {
            return Ok(at(Arc::clone(&asked.mount), spelt));
        }
        let mut sorted = options.to_vec();
        sorted.sort();
        // No option has an empty name, so this one is the URL's own.
        sorted.push((String::new(), suffix.to_string()));
        let identity = (root.clone(), sorted, http.clone());
        let found = self.lock().get(&identity).filter(|mount| mount.is_for(began)).cloned();
        let mount = match found {
            Some(mount) => mount,
            None => {
                let unmatched = option(options, "unmatched_secrets");
                // A secret may have what a store cannot be opened without, such as an account.
                let (store, _) = opener
                    .open(url, options, identity.2.as_ref())
                    .map_err(|error| with_unmatched(error, unmatched))?;
                let unmatched_secrets = unmatched.map(str::to_string);
                let renewable = renewal.map(|renewal| {
                    let http = identity.2.clone();
                    Arc::new(Renewable::new(Arc::clone(&store), options, http, renewal.clone()))
                });
                let store = renewable.clone().map_or(store, |store| store as Arc<dyn Store>);
                let refresh_failure = option(options, "refresh_failure").map(str::to_string);
                let opened =
                    Mount { unmatched_secrets, refresh_failure, renewable, ..self.mount(store) };
                self.keep_first(identity, Arc::new(opened), began)
            }
        };
        mount.spelt.get_or_init(|| Arc::clone(&spelt));
        *self.lock_last() = Some(Asked {
            root: root.clone(),
            suffix: suffix.to_string(),
            options: options.to_vec(),
            http,
            mount: Arc::clone(&mount),
        });
        Ok(at(mount, spelt))
    }

    /// Of two that opened a store at once both have the mount of whoever was first: they share its
    /// requests, its connections and what is remembered of its objects.
    fn keep_first(&self, identity: Identity, opened: Arc<Mount>, began: Instant) -> Arc<Mount> {
        let mut known = self.lock();
        if let Some(first) = known.get(&identity).filter(|mount| mount.is_for(began)) {
            return Arc::clone(first);
        }
        known.insert(identity, Arc::clone(&opened), 1);
        opened
    }

    fn lock_last(&self) -> MutexGuard<'_, Option<Asked>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Generations<Identity, Arc<Mount>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a store that the caller opened.
    pub fn mount(&self, store: Arc<dyn Store>) -> Mount {
        Mount {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            latency: Latency::new(store.profile().first_byte_ms),
            pace: Pace::new(&store.profile()),
            spare: Spare::default(),
            heads: Heads::default(),
            origin: store.origin(),
            profile: store.profile(),
            capabilities: store.capabilities(),
            store,
            renewable: None,
            unmatched_secrets: None,
            refresh_failure: None,
            observer: None,
            spelt: OnceLock::new(),
        }
    }
}

fn option<'a>(options: &'a [StoreOption], name: &str) -> Option<&'a str> {
    options.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

/// Whether this is what a store says of a request that lacks a secret's credentials, endpoint or
/// region.
fn lacks_secret(error: &Error) -> bool {
    match (error.kind(), error.http_status()) {
        (Kind::Denied, _) => true,
        // Some services hide from strangers what there is; one that names the object has let them
        // look.
        (Kind::NotFound, Some(_)) => {
            let named_object = error.service_code().is_some_and(|code| {
                let names = ["NoSuchKey", "BlobNotFound", "EntryNotFound", "RevisionNotFound"];
                names.contains(&code) || code.starts_with("DeleteMarker")
            });
            error.was_unsigned() && !named_object
        }
        // No such host.
        (Kind::Unavailable, None) => true,
        // Another region.
        (Kind::Invalid, Some(300..=400)) => true,
        _ => false,
    }
}

/// Tells of the secrets that do not cover the path.
fn with_unmatched(error: Error, unmatched: Option<&str>) -> Error {
    match unmatched {
        Some(secrets) => error.with_note(format_args!(
            "no secret's scope covers this path; there is {secrets}: make one with a SCOPE that the \
             path begins with, up to the end of a host's, bucket's or container's name"
        )),
        None => error,
    }
}

/// What stands before and behind the key in a URL.
fn around<'a>(url: &'a str, key: &str) -> Option<(&'a str, &'a str)> {
    // What stands behind the root of a store is a query.
    if key.is_empty()
        && let Some(at) = url.find('?')
    {
        return Some(url.split_at(at));
    }
    if let Some(prefix) = url.strip_suffix(key) {
        return Some((prefix, ""));
    }
    let begin = url.find(&format!("{key}?"))?;
    Some((&url[..begin], &url[begin + key.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_store::memory::MemoryStore;

    #[test]
    fn secrets_for_other_paths_are_told_where_one_was_missed() {
        let answer = |kind, status| Error::new(kind, "no").with_http_status(status);
        let unsigned = |error: Error| error.with_unsigned(true);
        let missing = |code: &str| answer(Kind::NotFound, 404).with_service_code(code);
        for suspect in [
            answer(Kind::Denied, 403),
            unsigned(answer(Kind::Denied, 401)),
            Error::new(Kind::Denied, "no credentials were found"),
            unsigned(answer(Kind::NotFound, 404)),
            unsigned(missing("NoSuchBucket")),
            unsigned(missing("ResourceNotFound")),
            Error::new(Kind::Unavailable, "no such host"),
            answer(Kind::Invalid, 400).with_service_code("AuthorizationHeaderMalformed"),
            answer(Kind::Invalid, 301),
        ] {
            assert!(lacks_secret(&suspect), "{suspect:?}");
        }
        for other in [
            // A public bucket, and the credentials of the environment.
            unsigned(missing("NoSuchKey")),
            unsigned(missing("BlobNotFound")),
            unsigned(missing("EntryNotFound")),
            missing("NoSuchKey"),
            missing("NoSuchBucket"),
            answer(Kind::NotFound, 404),
            unsigned(Error::new(Kind::Invalid, "the URL names a bucket")),
            answer(Kind::Unavailable, 500),
            Error::new(Kind::Conflict, "changed"),
        ] {
            assert!(!lacks_secret(&other), "{other:?}");
        }
        let text = with_unmatched(Error::new(Kind::Denied, "no"), Some("'a' for s3://x"));
        let told = "no secret's scope covers this path; there is 'a' for s3://x";
        assert!(text.to_string().contains(told), "{text}");
        assert_eq!(with_unmatched(Error::new(Kind::Denied, "no"), None).to_string(), "no");
    }

    /// While it opens a store, somebody else opens the same one.
    #[derive(Debug)]
    struct Overtaken<'a> {
        mounts: &'a Mounts,
        overtaking: Mutex<Vec<Arc<Mount>>>,
        is_overtaken: bool,
    }

    impl Opener for Overtaken<'_> {
        fn root_of(&self, url: &str) -> Result<(String, String)> {
            let key = url.strip_prefix("mem://t/").expect("a test URL");
            Ok(("mem://t/".to_string(), key.to_string()))
        }

        fn open(
            &self,
            url: &str,
            options: &[StoreOption],
            _: Option<&HttpOptions>,
        ) -> Result<(Arc<dyn Store>, String)> {
            if !self.is_overtaken {
                let other = Overtaken { overtaking: Mutex::default(), is_overtaken: true, ..*self };
                let at = self.mounts.locate(&other, url, options, None, (Instant::now(), None))?;
                self.overtaking.lock().unwrap().push(Arc::clone(at.mount()));
            }
            Ok((Arc::new(MemoryStore::new("t")), self.root_of(url)?.1))
        }
    }

    #[test]
    fn who_opens_a_store_at_once_shares_its_mount() {
        let mounts = Mounts::default();
        let opener =
            Overtaken { mounts: &mounts, overtaking: Mutex::default(), is_overtaken: false };
        let now = (Instant::now(), None);
        let ours = mounts.locate(&opener, "mem://t/a", &[], None, now).unwrap();
        let theirs = opener.overtaking.lock().unwrap().pop().unwrap();
        assert!(Arc::ptr_eq(ours.mount(), &theirs));
        let later = mounts.locate(&opener, "mem://t/b", &[], None, now).unwrap();
        assert!(Arc::ptr_eq(later.mount(), &theirs));
        assert!(opener.overtaking.lock().unwrap().is_empty(), "it is open");
    }

    #[test]
    fn key_is_found_in_its_url() {
        for (url, key, expected) in [
            ("s3a://b/k/x", "k/x", Some(("s3a://b/", ""))),
            ("s3://b/k?s3_region=x", "k", Some(("s3://b/", "?s3_region=x"))),
            ("s3://b/", "", Some(("s3://b/", ""))),
            ("s3://b/?s3_region=x", "", Some(("s3://b/", "?s3_region=x"))),
            ("az://a.blob.x.net/c?sv=1&sig=x", "", Some(("az://a.blob.x.net/c", "?sv=1&sig=x"))),
            ("az://c/p?.csv?sv=1&sig=x", "p?.csv", Some(("az://c/", "?sv=1&sig=x"))),
            ("/tmp/x", "tmp/x", Some(("/", ""))),
            ("s3://b/k", "other", None),
        ] {
            assert_eq!(around(url, key), expected, "{url}");
        }
    }
}

//! What the cases share: placing, reading back, comparing, and the shape of every error.

use super::Subject;
use crate::ramp::{first_difference, ramp};
use bytes::Bytes;
use penstock_base::{ByteRange, Error, Kind, Result, Retry};
use penstock_store::{
    Body, ETag, GetRange, GetRequest, GetResponse, ListPage, ListRequest, ObjectMeta, Payload,
    PutOptions, PutResult, WriteCondition,
};
use std::collections::BTreeSet;

/// Most pages that a listing may take before it counts as endless.
const PAGES_MAX: usize = 10_000;

/// A GET without condition.
pub fn plain(range: GetRange) -> GetRequest {
    GetRequest::from(range)
}

/// Bytes `start..end`.
pub fn bounded(start: u64, end: u64) -> GetRange {
    GetRange::Bounded(ByteRange { start, end })
}

/// Write options with a condition only.
pub fn when(condition: WriteCondition) -> PutOptions {
    PutOptions { condition, ..PutOptions::default() }
}

impl Subject {
    /// Places `len` bytes of stream `seed` under a key of this case and returns the whole key.
    pub async fn place(&self, name: &str, seed: u64, len: u64) -> String {
        let key = self.key(name);
        let payload = Payload::from(ramp(seed, 0, len));
        let placed = self.seeder.put(&key, payload, &PutOptions::default()).await;
        placed.unwrap_or_else(|error| panic!("cannot place {key:?}: {error}"));
        key
    }

    /// Puts through the store under examination.
    pub async fn put(&self, key: &str, bytes: Bytes, options: &PutOptions) -> Result<PutResult> {
        self.store.put(key, bytes.into(), options).await
    }

    /// The head of an object that must be there.
    pub async fn stat(&self, key: &str) -> ObjectMeta {
        self.store.stat(key).await.unwrap_or_else(|error| panic!("stat {key:?}: {error}"))
    }

    /// Gets a range that must succeed.
    pub async fn get(&self, key: &str, range: GetRange) -> GetResponse {
        let answer = self.store.get(key, plain(range)).await;
        answer.unwrap_or_else(|error| panic!("get {range:?} of {key:?}: {error}"))
    }

    /// Gets a range and reads it to its end.
    pub async fn read(&self, key: &str, range: GetRange) -> Vec<u8> {
        let mut answer = self.get(key, range).await;
        let bytes = read_to_end(&mut answer.body).await;
        let told = answer.range.end.saturating_sub(answer.range.start);
        assert_eq!(bytes.len() as u64, told, "body of {range:?} is not as long as the range told");
        bytes
    }

    /// Asserts that an object is `len` bytes of stream `seed`, by GET and by stat.
    pub async fn assert_is(&self, key: &str, seed: u64, len: u64) {
        assert_ramp(&self.read(key, GetRange::All).await, seed, 0, len, key);
        assert_eq!(self.stat(key).await.size_bytes, Some(len), "size of {key:?} by stat");
    }

    /// Asserts that no object has this key, by stat, GET and listing.
    pub async fn assert_absent(&self, key: &str) {
        self.refused(self.store.stat(key).await, &[Kind::NotFound], key);
        self.refused(self.store.get(key, plain(GetRange::All)).await, &[Kind::NotFound], key);
        if self.store.capabilities().list {
            let listed = self.names(key).await;
            assert!(!listed.iter().any(|name| name == key), "{key:?} is listed but not there");
        }
    }

    /// Asserts that a request failed with one of `kinds`, and that the error has its proper shape.
    pub fn refused<T>(&self, result: Result<T>, kinds: &[Kind], key: &str) -> Error {
        let Err(error) = result else {
            panic!("request on {key:?} succeeded; expected one of {kinds:?}");
        };
        assert!(kinds.contains(&error.kind()), "{key:?}: expected {kinds:?}, got {error:?}");
        self.assert_shape(&error, key);
        error
    }

    /// Every error names its operation and object, has a truthful `retry`, and shows no secret.
    pub fn assert_shape(&self, error: &Error, key: &str) {
        let text = error.to_string();
        let object = error.object().unwrap_or_else(|| panic!("error names no object: {text}"));
        assert!(object.starts_with(self.store.root()), "object {object} is not below the root");
        assert!(object.ends_with(key), "error names {object}, expected ...{key}");
        let operation = text.strip_suffix(&text[text.find(object).unwrap_or(0)..]).unwrap_or("");
        assert!(!operation.trim().is_empty(), "error names no operation: {text}");
        assert!(!error.message().trim().is_empty(), "error gives no reason: {text}");
        let final_kinds =
            [Kind::NotFound, Kind::Conflict, Kind::Unsupported, Kind::Invalid, Kind::Denied];
        if final_kinds.contains(&error.kind()) {
            assert_eq!(error.retry(), Retry::Never, "retrying cannot help: {text}");
        }
        self.assert_no_secret(&text);
        self.assert_no_secret(&format!("{error:?}"));
    }

    /// Asserts that a text shows none of the subject's secrets.
    pub fn assert_no_secret(&self, text: &str) {
        for secret in &self.secrets {
            assert!(!text.contains(secret.as_str()), "a secret is shown: {text}");
        }
    }

    /// Walks a listing to its end and checks what holds for every page.
    pub async fn walk(&self, request: ListRequest) -> Vec<ListPage> {
        let mut request = request;
        let mut pages = Vec::new();
        let mut last_key: Option<String> = None;
        loop {
            let page = self.store.list(request.clone()).await;
            let page = page.unwrap_or_else(|error| panic!("list {request:?}: {error}"));
            if let Some(most) = request.max_keys {
                let names = page.objects.len() + page.prefixes.len();
                assert!(names <= most as usize, "page of {names} names, asked for {most}");
            }
            for entry in &page.objects {
                let in_order = last_key.as_ref().is_none_or(|last| *last < entry.key);
                assert!(in_order, "{:?} is listed after {last_key:?}", entry.key);
                last_key = Some(entry.key.clone());
            }
            let next = page.next.clone();
            pages.push(page);
            assert!(pages.len() < PAGES_MAX, "listing does not end");
            match next {
                Some(token) => request.token = Some(token),
                None => return pages,
            }
        }
    }

    /// Names of all objects that start with a prefix.
    pub async fn names(&self, prefix: &str) -> Vec<String> {
        let pages =
            self.walk(ListRequest { prefix: prefix.to_string(), ..ListRequest::default() }).await;
        pages.into_iter().flat_map(|page| page.objects).map(|entry| entry.key).collect()
    }

    /// Smallest part that is legal before the last one, and not trivial.
    pub fn part_size(&self) -> u64 {
        self.store.profile().part_size_min_bytes.max(8000)
    }
}

/// Tag of a write or a head that must carry one.
pub fn tag(etag: Option<ETag>) -> ETag {
    etag.expect("a store that can write tells an ETag")
}

/// Reads a body to its end through buffers of changing size.
pub async fn read_to_end(body: &mut Body) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut size = 1013;
    loop {
        let mut buf = vec![0; size];
        let read = body.read(&mut buf).await.expect("the body can be read");
        assert!(read <= buf.len(), "read {read} bytes into a buffer of {}", buf.len());
        if read == 0 {
            return bytes;
        }
        bytes.extend_from_slice(&buf[..read]);
        size = (size * 2 + 1).min(1 << 20);
    }
}

/// Asserts that `got` is `len` bytes of stream `seed` from `start` on.
pub fn assert_ramp(got: &[u8], seed: u64, start: u64, len: u64, what: &str) {
    if let Some(difference) = first_difference(got, seed, start) {
        panic!("{what:?}: {difference}");
    }
    assert_eq!(got.len() as u64, len, "{what:?}: number of bytes");
}

/// Folded names of a walked listing; a prefix told twice fails.
pub fn prefixes(pages: &[ListPage]) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    for prefix in pages.iter().flat_map(|page| &page.prefixes) {
        assert!(seen.insert(prefix.clone()), "{prefix:?} is listed twice");
    }
    seen
}

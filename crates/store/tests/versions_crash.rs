//! A writer of a bucket that keeps versions, killed in the middle, loses none of them.
//!
//! The test starts itself as a child that writes, marks and removes versions without end, kills it
//! with SIGKILL while that is under way, and examines the directory.

#![allow(clippy::unwrap_used)] // a test without a harness

use bytes::Bytes;
use penstock_base::Kind;
use penstock_store::streaming::{StreamingStore as _, versioned};
use penstock_store::{GetRequest, LocalStore, PutOptions, Store as _, VersionsRequest};
use penstock_testkit::killed::{kill_after, run, tell};
use penstock_testkit::scratch::Scratch;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const ROUNDS: usize = 8;
/// Steps that the child tells of before it is killed.
const REPORTS: usize = 60;
const KEYS: u64 = 3;
const BYTES: usize = 32 << 10;

fn main() {
    run("killed_writer_keeps_every_version", write, killed_writer_keeps_every_version);
}

fn tell_whole(words: &[&str]) {
    tell(&format!("{} .", words.join(" ")));
}

/// Makes versions and delete markers, and removes some of both: the latest and the earliest.
async fn write(directory: PathBuf) {
    let store = LocalStore::open(&directory).unwrap();
    store.set_versioning(true).await.unwrap();
    let mut known: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for step in 0u64.. {
        let key = format!("d/k{}", step % KEYS);
        let ids = known.entry(key.clone()).or_default();
        match step / KEYS % 5 {
            3 => {
                let id = store.remove(&key, None, None).await.unwrap().version.unwrap();
                tell_whole(&["made", &key, &id, "marker"]);
                ids.push(id);
            }
            4 => {
                let at = if step % 2 == 0 { ids.len() - 1 } else { 0 };
                let id = ids.remove(at);
                tell_whole(&["going", &key, &id]);
                store.remove(&key, Some(&id), None).await.unwrap();
                tell_whole(&["gone", &key, &id]);
            }
            _ => {
                let body = Bytes::from(step.to_be_bytes().repeat(BYTES / 8));
                let placed = store.put(&key, body.into(), &PutOptions::default()).await.unwrap();
                let id = placed.version.unwrap();
                tell_whole(&["made", &key, &id, &step.to_string()]);
                ids.push(id);
            }
        }
    }
}

/// What became of versions, by key and id.
#[derive(Default)]
struct Told {
    /// What each holds; `None` for a delete marker.
    made: BTreeMap<(String, String), Option<u64>>,
    going: BTreeSet<(String, String)>,
    gone: BTreeSet<(String, String)>,
}

impl Told {
    fn note(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let place = |key: &str, id: &str| (key.to_string(), id.to_string());
        match words[..] {
            ["made", key, id, what, "."] => {
                self.made.insert(place(key, id), what.parse().ok());
            }
            ["going", key, id, "."] => drop(self.going.insert(place(key, id))),
            ["gone", key, id, "."] => drop(self.gone.insert(place(key, id))),
            // Cut by the end of the process.
            _ => {}
        }
    }
}

async fn killed_writer_keeps_every_version() -> String {
    let directory = Scratch::new("versions");
    let mut told = Told::default();
    for round in 0..ROUNDS {
        run_and_kill(directory.path(), &mut told);
        let store = LocalStore::open(directory.path()).unwrap();
        let listed = list(&store).await;
        for (place, what) in &told.made {
            let is_listed =
                listed.iter().any(|entry| (&entry.key, &entry.id) == (&place.0, &place.1));
            let found = content(&store, &versioned(&place.0, &place.1)).await;
            if told.gone.contains(place) {
                assert!(!is_listed && found.is_none(), "round {round}: {place:?} is back");
            } else if !told.going.contains(place) {
                assert!(is_listed, "round {round}: {place:?} is not listed");
                assert_eq!(found, *what, "round {round}: {place:?}");
            }
        }
        for key in (0..KEYS).map(|number| format!("d/k{number}")) {
            let of_key: Vec<_> = listed.iter().filter(|entry| entry.key == key).collect();
            let ids: BTreeSet<_> = of_key.iter().map(|entry| &entry.id).collect();
            assert_eq!(ids.len(), of_key.len(), "round {round}: {key} has a version twice");
            let latest: Vec<_> = of_key.iter().filter(|entry| entry.is_latest).collect();
            assert_eq!(latest.len(), usize::from(!of_key.is_empty()), "round {round}: {key}");
            // The plain name is the latest version, or nothing where that is a delete marker.
            let current = content(&store, &key).await;
            let of_latest = match latest.first().filter(|entry| !entry.is_marker) {
                Some(entry) => content(&store, &versioned(&key, &entry.id)).await,
                None => None,
            };
            assert_eq!(current, of_latest, "round {round}: {key}");
        }
    }
    format!("{ROUNDS} kills")
}

async fn list(store: &LocalStore) -> Vec<penstock_store::VersionEntry> {
    let mut request = VersionsRequest { max: 100, ..VersionsRequest::default() };
    let mut found = Vec::new();
    loop {
        let page = store.list_versions(&request).await.unwrap();
        found.extend(page.versions);
        let Some((key, id)) = page.next else { return found };
        (request.key_marker, request.version_marker) = (Some(key), id);
    }
}

/// The number that an object or version is made of, in all its parts; `None` where there is none.
async fn content(store: &LocalStore, name: &str) -> Option<u64> {
    let request = GetRequest::default();
    let mut answer = match store.get(name, request).await {
        Err(error) => {
            assert_eq!(error.kind(), Kind::NotFound, "{error}");
            return None;
        }
        Ok(answer) => answer,
    };
    let bytes = answer.body.read_to_bytes(1 << 20).await.unwrap();
    let step = u64::from_be_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(bytes, step.to_be_bytes().repeat(BYTES / 8), "{name} is a mix");
    Some(step)
}

/// Starts the writer, kills it in the middle, and notes what it told.
fn run_and_kill(directory: &Path, told: &mut Told) {
    kill_after(REPORTS, directory, |line| told.note(&line));
}

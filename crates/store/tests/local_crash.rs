//! A writer that is killed in the middle leaves whole objects or none, and nothing for ever.
//!
//! The test starts itself as a child that writes without end, kills it with SIGKILL while writes
//! are under way, and examines the directory.

#![allow(clippy::unwrap_used)] // a test without a harness

use bytes::Bytes;
use penstock_store::{Body, GetRequest, ListRequest, LocalStore, Payload, PutOptions, Store};
use penstock_testkit::killed::{kill_after, run, tell};
use penstock_testkit::scratch::Scratch;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

const ROUNDS: usize = 8;
/// Objects that the child reports as durable before it is killed.
const REPORTS: usize = 25;
const KEYS: u64 = 5;
const PIECE_BYTES: usize = 64 << 10;

fn main() {
    run("killed_writer_leaves_whole_objects", write, killed_writer_leaves_whole_objects);
}

/// Writes object after object, alternately in one request and in parts, and tells of each that is
/// durable. The first eight bytes of an object tell its version and fill the rest of it.
async fn write(directory: PathBuf) {
    let store = LocalStore::open(&directory).unwrap();
    for version in 0u64.. {
        let key = format!("d/k{}", version % KEYS);
        let options = PutOptions {
            metadata: vec![("version".into(), version.to_string())],
            ..PutOptions::default()
        };
        let piece = piece(version);
        let pieces = usize::try_from(version % 7 + 1).unwrap();
        if version % 2 == 0 {
            let payload = Payload(vec![piece; pieces]);
            store.put(&key, payload, &options).await.unwrap();
        } else {
            let id = store.create_upload(&key, &options).await.unwrap();
            let mut parts = Vec::new();
            for number in 1..=u32::try_from(pieces).unwrap() {
                let payload = Payload::from(piece.clone());
                parts.push(store.upload_part(&key, &id, number, payload).await.unwrap());
            }
            store.complete_upload(&key, &id, &parts, &options).await.unwrap();
        }
        tell(&format!("{key} {version} ."));
    }
}

fn piece(version: u64) -> Bytes {
    version.to_be_bytes().repeat(PIECE_BYTES / 8).into()
}

async fn killed_writer_leaves_whole_objects() -> String {
    let directory = Scratch::new("crash");
    for round in 0..ROUNDS {
        let durable = run_and_kill(directory.path());
        let store = LocalStore::open(directory.path()).unwrap();
        for (key, version) in &durable {
            let found = examine(&store, key).await;
            assert!(found >= *version, "round {round}: {key} went back to {found} from {version}");
        }
        let listed = store.list(ListRequest::default()).await.unwrap().objects;
        for entry in &listed {
            assert!(entry.key.starts_with("d/k"), "a leftover is listed: {}", entry.key);
            examine(&store, &entry.key).await;
        }
        store.put("d/next", Bytes::from_static(b"x").into(), &PutOptions::default()).await.unwrap();
        let left = hidden(&directory.path().join("d"), ".penstock-tmp-");
        assert!(left.is_empty(), "round {round}: leftovers outlive the next writer: {left:?}");
        store.delete("d/next", None).await.unwrap();
    }
    format!("{ROUNDS} kills")
}

/// Starts the writer, kills it in the middle, and returns the last durable version of each key.
fn run_and_kill(directory: &Path) -> HashMap<String, u64> {
    let mut durable = HashMap::new();
    kill_after(REPORTS, directory, |line| {
        // A line that was cut does not count.
        if let Some((key, version)) = line.strip_suffix(" .").and_then(|line| line.split_once(' '))
        {
            durable.insert(key.to_string(), version.parse().unwrap());
        }
    });
    durable
}

/// Reads an object whole and checks that it is one version in all its parts; which.
async fn examine(store: &LocalStore, key: &str) -> u64 {
    let request = GetRequest::default();
    let mut answer = store.get(key, request).await.unwrap();
    assert!(matches!(answer.body, Body::File(_)));
    let bytes = answer.body.read_to_bytes(64 << 20).await.unwrap();
    let version = u64::from_be_bytes(bytes[..8].try_into().unwrap());
    let pieces = usize::try_from(version % 7 + 1).unwrap();
    assert_eq!(bytes.len(), pieces * PIECE_BYTES, "{key} of version {version} is not whole");
    assert!(bytes.chunks(PIECE_BYTES).all(|chunk| chunk == piece(version)), "{key} is a mix");
    assert_eq!(answer.meta.metadata, [("version".to_string(), version.to_string())]);
    version
}

fn hidden(directory: &Path, prefix: &str) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(prefix)).collect()
}

//! A removal of a bucket that is killed in the middle leaves it whole or gone.
//!
//! The test starts itself as a child that makes and removes buckets without end, kills it with
//! SIGKILL as a removal begins, and examines what is there.

#![allow(clippy::unwrap_used)] // a test without a harness

use bytes::Bytes;
use penstock_store::streaming::{StreamingStore as _, UploadsRequest, Versioning};
use penstock_store::{LocalStore, PutOptions, Store as _};
use penstock_testkit::killed::{kill_after, run, tell};
use penstock_testkit::scratch::Scratch;
use std::path::{Path, PathBuf};

const ROUNDS: usize = 12;
/// Uploads of a bucket: moving them out of the way takes long enough to be killed in.
const UPLOADS: usize = 150;
const BUCKET: &str = "bucket";

fn main() {
    run("killed_removal_leaves_a_bucket_or_none", remove, killed_removal_leaves_a_bucket_or_none);
}

/// Makes a bucket with unfinished uploads and a note of versions, tells of it, and removes it.
async fn remove(directory: PathBuf) {
    let path = directory.join(BUCKET);
    loop {
        LocalStore::create_bucket(&path).await.unwrap();
        let store = LocalStore::open(&path).unwrap();
        store.set_versioning(true).await.unwrap();
        for number in 0..UPLOADS {
            let key = format!("d{number}/k");
            let id = store.create_upload(&key, &PutOptions::default()).await.unwrap();
            let part = Bytes::from_static(b"part").into();
            store.upload_part(&key, &id, 1, part).await.unwrap();
        }
        tell("removing");
        store.remove_bucket().await.unwrap();
        tell("removed");
    }
}

async fn killed_removal_leaves_a_bucket_or_none() -> String {
    let (mut cut, mut whole) = (0, 0);
    for round in 0..ROUNDS {
        let directory = Scratch::new("removal-crash");
        let mut last = String::new();
        kill_after(1 + 2 * (round % 2), directory.path(), |line| last = line);
        cut += usize::from(names(directory.path()).iter().any(|name| name != BUCKET));
        assert!(LocalStore::end_removals(directory.path(), None).unwrap(), "its lock died with it");
        let left = names(directory.path());
        assert!(left.iter().all(|name| name == BUCKET), "round {round}: {left:?} after {last}");
        if left.is_empty() || last == "removed" {
            continue;
        }
        whole += 1;
        let store = LocalStore::open(&directory.path().join(BUCKET)).unwrap();
        assert_eq!(store.versioning().await.unwrap(), Versioning::Enabled, "round {round}");
        let uploads = store.list_uploads(&UploadsRequest::default()).await.unwrap().uploads;
        assert_eq!(uploads.len(), UPLOADS, "round {round}");
        for upload in uploads {
            let parts = store.list_parts(&upload.key, &upload.id).await.unwrap();
            assert_eq!(parts.len(), 1, "round {round}: {}", upload.key);
        }
    }
    format!("{ROUNDS} kills, {cut} in the middle, {whole} buckets whole")
}

fn names(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap().flatten();
    names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

//! An upload of more parts than the process may have files open. The limit is the whole process's,
//! so this is the only test here.

#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use penstock_store::local::LocalStore;
use penstock_store::{GetRequest, PutOptions, Store as _, StreamingStore as _};
use penstock_testkit::scratch::Scratch;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const PARTS: u32 = 200;
/// For the store, its directories and the runtime.
const DESCRIPTORS: u64 = 100;

#[tokio::test]
async fn a_completion_needs_no_descriptor_for_each_part() {
    let limit = Rlimit { current: Some(DESCRIPTORS), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let dir = Scratch::new("descriptors");
    let store = LocalStore::create(dir.path()).unwrap();
    let upload = store.create_upload("k", &PutOptions::default()).await.unwrap();
    let (mut parts, mut all) = (Vec::new(), String::new());
    for number in 1..=PARTS {
        let text = format!("part {number};");
        all.push_str(&text);
        parts
            .push(store.upload_part("k", &upload, number, Bytes::from(text).into()).await.unwrap());
    }
    let read = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&read);
    let sink = Box::new(move |bytes: &[u8]| {
        count.fetch_add(bytes.len(), Ordering::Relaxed);
    });
    assert!(store.read_parts("k", &upload, &parts, sink).await.unwrap());
    assert_eq!(read.load(Ordering::Relaxed), all.len());
    store.complete_upload("k", &upload, &parts, &PutOptions::default()).await.unwrap();
    let mut body = store.get("k", GetRequest::default()).await.unwrap().body;
    assert_eq!(body.read_to_bytes(1 << 20).await.unwrap(), all);
}

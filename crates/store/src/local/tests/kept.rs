//! Versions of what other programs put into the directory.

use super::*;
use crate::VersionsRequest;
use crate::streaming::{NULL_VERSION, StreamingStore as _, versioned};

/// What other programs rename over an object has no id, however often they do it.
#[tokio::test]
async fn what_other_programs_put_there_is_kept_each_time() {
    let dir = Dir::new();
    let store = dir.bucket();
    store.set_versioning(true).await.unwrap();
    let foreign = |text: &str| {
        fs::write(dir.0.path().join("aside"), text).unwrap();
        fs::rename(dir.0.path().join("aside"), dir.0.path().join("k")).unwrap();
    };
    foreign("of others 1");
    put(&store, "k", "ours 1").await;
    foreign("of others 2");
    put(&store, "k", "ours 2").await;
    foreign("of others 3");
    store.delete("k", None).await.unwrap();
    let request = VersionsRequest { max: 100, ..VersionsRequest::default() };
    let mut found = Vec::new();
    for entry in store.list_versions(&request).await.unwrap().versions {
        if !entry.is_marker {
            found.push((read(&store, &versioned("k", &entry.id)).await.unwrap(), entry.id));
        }
    }
    found.sort();
    let texts: Vec<&str> = found.iter().map(|(text, _)| text.as_str()).collect();
    // What they renamed over is theirs to lose.
    assert_eq!(texts, ["of others 1", "of others 2", "of others 3"]);
    assert_eq!(found[0].1, NULL_VERSION);
    // Their ids stay when one of them becomes current again.
    let marker = store.list_versions(&request).await.unwrap().versions;
    let marker = marker.iter().find(|entry| entry.is_marker).unwrap().id.clone();
    store.remove("k", Some(&marker), None).await.unwrap();
    assert_eq!(read(&store, "k").await.unwrap(), "of others 3");
    let ids = store.list_versions(&request).await.unwrap().versions;
    let latest = ids.iter().find(|entry| entry.is_latest).unwrap();
    assert_eq!(latest.id, found[2].1);
}

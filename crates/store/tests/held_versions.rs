//! A version of a local bucket that is held while somebody removes it is held, or gone, never both.

#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

use bytes::Bytes;
use penstock_base::{Error, Kind};
use penstock_store::streaming::{StreamingStore as _, versioned};
use penstock_store::{LocalStore, ObjectMeta, PutOptions, Store as _};
use std::path::PathBuf;
use std::sync::Arc;

const HOLD: &str = "@hold";
const ROUNDS: usize = 60;

struct Dir(PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn is_held(meta: &ObjectMeta) -> bool {
    meta.metadata.iter().any(|pair| pair.0 == HOLD)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_is_held_or_gone() {
    let dir = Dir(std::env::temp_dir().join(format!("penstock-held-{}", std::process::id())));
    std::fs::create_dir_all(&dir.0).unwrap();
    let store = Arc::new(LocalStore::open(&dir.0).unwrap());
    store.set_versioning(true).await.unwrap();
    let put = async |body: &'static str| {
        let placed = store.put("d/k", Bytes::from(body).into(), &PutOptions::default()).await;
        placed.unwrap().version.unwrap()
    };
    let mut ends = [0, 0];
    for round in 0..ROUNDS {
        let mut id = put("first").await;
        if round % 2 == 0 {
            // Current, with another before it; else an earlier one.
            id = put("second").await;
        } else {
            put("second").await;
        }
        let (holding, removing) = (store.clone(), store.clone());
        let (name, gone) = (versioned("d/k", &id), id.clone());
        let holding = tokio::spawn(async move {
            holding.revise(&name, HOLD, Box::new(|_| Ok(Some("ON".to_string())))).await
        });
        let removing = tokio::spawn(async move {
            let permit = |meta: &ObjectMeta| match is_held(meta) {
                true => Err(Error::new(Kind::Denied, "held")),
                false => Ok(()),
            };
            removing.remove_permitted("d/k", &gone, None, Box::new(permit)).await
        });
        let (held, removed) = (holding.await.unwrap(), removing.await.unwrap());
        let found = store.stat(&versioned("d/k", &id)).await;
        match (&held, &removed) {
            (Ok(()), Err(error)) => {
                assert_eq!(error.kind(), Kind::Denied, "{error}");
                assert!(is_held(&found.unwrap()));
                ends[0] += 1;
            }
            (Err(error), Ok(_)) => {
                assert_eq!(error.kind(), Kind::NotFound, "{error}");
                assert_eq!(found.unwrap_err().kind(), Kind::NotFound);
                ends[1] += 1;
            }
            both => panic!("round {round}: {both:?}"),
        }
    }
    assert_eq!(ends[0] + ends[1], ROUNDS);
}

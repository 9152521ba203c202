//! A local bucket passes the exam. (Plain files under `/` cannot: a path is a file or a directory,
//! and not every key is a path. What they promise is tested beside the store.)

#![allow(clippy::unwrap_used)] // also in what the tests share

use penstock_store::{LocalStore, Store};
use penstock_testkit::conform::store::Subject;
use penstock_testkit::store_conformance;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A fresh directory, removed with its content when dropped.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let run = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("penstock-exam-{}-{run}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Dir(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn bucket() -> Subject {
    let dir = Dir::new();
    let store: Arc<dyn Store> = Arc::new(LocalStore::open(&dir.0).unwrap());
    Subject::new(store).refusing(is_no_file_name).keeping(dir)
}

/// All that a bucket refuses: no file system has longer names, and none with a zero byte.
fn is_no_file_name(key: &str) -> bool {
    key.contains('\0') || key.split('/').any(|part| part.len() > 255)
}

store_conformance!(conformance, bucket);

//! The memory store passes the exam.

use penstock_store::{MemoryStore, Store};
use penstock_testkit::store_conformance;
use std::sync::Arc;

async fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new("exam"))
}

store_conformance!(conformance, memory);

//! The uploads of an engine that may still be under way: what the end of a process gives up.

use crate::upload::core::Upload;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Every upload begun, until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct OpenUploads(Mutex<Registry>);

#[derive(Debug, Default)]
struct Registry {
    uploads: Vec<Weak<Upload>>,
    are_over: bool,
}

impl OpenUploads {
    /// Takes note of an upload; it is stopped at once where all were.
    pub fn register(&self, upload: &Arc<Upload>) {
        let mut registry = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if registry.are_over {
            drop(registry);
            return upload.stop();
        }
        registry.uploads.retain(|known| known.strong_count() > 0);
        registry.uploads.push(Arc::downgrade(upload));
    }

    /// Stops all that have not ended, and every later one.
    pub fn stop_all(&self) {
        let uploads = {
            let mut registry = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            registry.are_over = true;
            std::mem::take(&mut registry.uploads)
        };
        for upload in uploads.iter().filter_map(Weak::upgrade) {
            upload.stop();
        }
    }
}

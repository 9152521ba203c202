//! The limits of a process that a statement may change. Decides which settings they are.

use penstock_base::Settings;

/// Bytes of opened objects are kept up to one part in so many of the memory limit.
pub(crate) const HELD_PARTS: u64 = 16;

/// What is there once for all statements, and sized by a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub memory_bytes: u64,
    pub spills_beside_bytes: u64,
    pub upload_slots: usize,
    pub metadata_cache_entries: u64,
    pub cache_memory_bytes: u64,
    pub request_log_entries: u64,
}

impl Limits {
    /// Those that the settings ask for.
    pub fn of(settings: &Settings) -> Self {
        Limits {
            memory_bytes: settings.memory_limit_bytes,
            spills_beside_bytes: settings.nvme_spill_memory_bytes,
            upload_slots: usize::try_from(settings.upload_concurrency).unwrap_or(usize::MAX),
            metadata_cache_entries: settings.metadata_cache_entries,
            cache_memory_bytes: settings.cache_memory_bytes,
            request_log_entries: settings.request_log_entries,
        }
    }

    /// Most bytes of objects in the memory cache: the other half is for work.
    pub fn cached_bytes(&self) -> u64 {
        self.cache_memory_bytes.min(self.memory_bytes / 2)
    }

    /// Most bytes of opened objects kept from one query to the next.
    pub fn held_bytes(&self) -> u64 {
        self.memory_bytes / HELD_PARTS
    }
}
